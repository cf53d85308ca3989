/*
 * library.h - what we need of libzookeeper and it does not offer.
 *
 *  1. It has no way to say when it may connect.  When it has lost its connection, or not got one,
 *     it would try again at once, and so would a thousand others.  It writes a line with
 *     "errno=" into its log first, in its own thread and without a lock (3.8 and 3.9:
 *     handle_socket_error_msg).  We hold it there, until session_await() lets it try once.
 *  2. It trusts its server: it takes memory for a length of 2^31 - 1, frees what it has not read
 *     when an answer ends too early, and ends the process when one comes that it has not
 *     asked for.  So from the moment on at which it writes that it has "initiated connection to
 *     server", its thread reads through an inlet (inlet.h): an answer is gathered there, and
 *     given to the library when all of it is there and it is one to the request whose turn it is
 *     (message.c).  Anything else is a broken connection: the library reads an error.
 *  3. It stays with a silent server for two thirds of the session, and keeps its socket to
 *     itself.  When it has written that line, it has just sent its first request, and inlet.h
 *     knows on which descriptor.  library_break() shuts that down.
 *  4. It has no TLS.  At the level DEBUG it writes that it has "started IO thread", in that thread
 *     and before it connects.  From then on all that the thread sends, receives and waits for
 *     passes a tunnel (tunnel.h).  Where that line or the tunnel is missing, there is no session, and no
 *     password is sent.
 *
 * There is no other way to any of these, so the log is what we depend on, and this is the only
 * place that reads it.  library_look() says whether the library writes what we know.  Without the
 * line of 1 the library connects as it likes, which is no danger to a lock.
 *
 * A log has no context, so each session has one of several functions for it, and what these
 * work on cannot but be global.  The last few sessions may still be ending when a new one begins.
 */
#ifndef DLOCK_ZK_LIBRARY_H
#define DLOCK_ZK_LIBRARY_H

#include "backends/backend.h"

#include <stdbool.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

struct library;
struct tunnel;

/*
 * For a session that begins; eventfds that are set when the library is held.  The tunnel, or NULL,
 * is the library's until library_close() has returned.
 */
struct library *library_take(int wake_fd, int alarm, struct tunnel *);

/* What the library is to be given for its log. */
log_callback_fn library_log(const struct library *);

struct library_view {
	bool held;      /* its thread waits: there is no connection */
	bool written;   /* a line has come, as it must when the library has begun, */
	bool initiated; /* and one that says that it has initiated a connection */
	bool tunneled;  /* its thread sends and receives through the tunnel */
	bool bypasses;  /* it has connected past the tunnel, and is held for good */
	int error;      /* errno of the last connection that failed; 0: none has */
};

struct library_view library_look(struct library *);

/*
 * What TLS says of the last connection that failed: RC_CONFIG, RC_DENIED and RC_PROTOCOL, as in
 * tls.h, or RC_AGAIN; RC_OK: nothing.
 */
enum rc library_refusal(struct library *, struct fault *);

/* What the library has read as errno, for people; NULL: it is not ours. */
const char *library_error(int error);

/* Lets the library try once. */
void library_let_try(struct library *);

/* Shuts down the socket of its connection, if it has one. */
void library_break(struct library *);

/* The session ends: the library is held no more, and nobody is told. */
void library_leave(struct library *);

/*
 * zookeeper_close(), which waits for the server's answer for 1.5 s at most, and so for its disk.
 * `leave`: it does not.
 */
void library_close(zhandle_t *, struct tunnel *, bool leave);

/*
 * ---- message.c: what ZooKeeper's clients and servers send each other, byte by byte ----
 *
 * Pure: bytes in, what they are out.  A message is without the four bytes of its length.
 */

enum {
	MESSAGE_MOST = 8 << 20, /* bytes of an answer */
	/* of one that nobody has asked for */
	MESSAGE_NEWS_MOST = 64 << 10,
	MESSAGE_STEPS = 8, /* of a transaction */
};

/* A request: what its answer must be like. */
struct request {
	int32_t xid, op;
	bool in_line;  /* it is answered in its turn, */
	bool login;    /* or apart from the others, as a login is */
	size_t nsteps; /* of a transaction: */
	int32_t steps[MESSAGE_STEPS];
};

/* False: it is none, or a transaction of more steps. */
bool message_request(struct request *, const unsigned char *bytes, size_t n);

/* Is it the answer to a request for a session, for which nothing but its length can be wrong? */
bool message_is_welcome(size_t n);

/* What a server has sent after that: */
enum answered {
	ANSWER_WRONG, /* nothing that the library could read */
	ANSWER_NEWS,  /* the answer to no request in line */
	ANSWER_LOGIN, /* the same, to a login */
	ANSWER_DUE,   /* the one to this request */
};

/* `due` is the request whose answer is next; NULL: there is none. */
enum answered message_answers(
    const unsigned char *bytes, size_t n, const struct request *due);

#endif
