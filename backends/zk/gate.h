/*
 * gate.h - where the library is held when it has lost its connection, or not got one.
 *
 * It would try again at once, and so would a thousand others.  It says so in its log
 * first, in its own thread and without a lock (3.8: handle_socket_error_msg), and
 * there it is kept waiting until session_await() lets it try once.
 *
 * In the same way it says that it has a connection, and from then on it reads through the
 * filter (filter.h).
 *
 * A log has no context, so each session has one of several functions for it, and
 * what that works on cannot but be global.  The last few sessions may still be
 * ending when a new one begins.
 */
#ifndef DLOCK_ZK_GATE_H
#define DLOCK_ZK_GATE_H

#include <stdbool.h>
#include <zookeeper/zookeeper.h>

struct gate;

/* For a session that begins; eventfds that are set when the gate shuts. */
struct gate *gate_take(int wake_fd, int alarm);

/* What the library is to be given for its log. */
log_callback_fn gate_hearer(const struct gate *);

/* The library waits: there is no connection. */
bool gate_is_shut(struct gate *);

/* errno of the last connection that failed; 0: none has. */
int gate_error(struct gate *);

/* Lets the library try once. */
void gate_open(struct gate *);

/* The session ends: the library waits no more, and nobody is told. */
void gate_leave(struct gate *);

#endif
