/*
 * dial.h - a connection to a MySQL or MariaDB server on its way.
 *
 * libmariadb connects in a thread of its own: it reads option files, asks for names and
 * loads plugins there, each of which can block without end.  Whoever waits may leave at
 * any time: the thread then throws away what it gets.
 */
#ifndef DLOCK_MYSQL_DIAL_H
#define DLOCK_MYSQL_DIAL_H

#include "lib.h"
#include "login.h"

#include <signal.h>

struct dial;

/*
 * Begins to connect; gives up by itself after `patience`.  The address is copied, but
 * for the settings' texts in it, which outlive all.  NULL: no memory or no thread (errno).
 *
 * What is stated in the address stands, whatever the option files say.
 */
struct dial *dial_start(
    const struct libmariadb *, const struct login *, int64_t ttl, int64_t patience);

/* Readable when it has ended, well or not. */
int dial_fd(const struct dial *);

/* What became of it. */
enum connected {
	CONNECTED,
	CONNECTED_NOT,  /* libmariadb knows why: my->error() */
	CONNECTED_CUT,  /* something could not be sent: as above, but wrong of plugins */
	CONNECTED_LATE, /* it has taken too long */
	CONNECTED_FOREIGN, /* some server began with what no MySQL says */
	CONNECTED_PLAINLY, /* without the TLS that was asked for */
};

/*
 * What came of it, once that is so: *ret is the caller's to close, or NULL without
 * memory.
 */
enum connected dial_take(struct dial *, MYSQL **ret);

/*
 * To whom it has connected, and as whom: for identify().  Or with NULL, to whom it would
 * connect, once the option files are read.  False: no memory.
 */
bool dial_identify(
    const struct libmariadb *, MYSQL *connected, const struct login *, struct identity *);

/* Accepts NULL. */
void dial_drop(struct dial *);

/*
 * Closes a connection without waiting for anything: one that may be in the midst of a
 * statement (`amid`) is cut off before.
 */
void dial_close(const struct libmariadb *, MYSQL *, bool amid);

/*
 * OpenSSL writes to sockets without MSG_NOSIGNAL: what writes to a connection with TLS
 * stands between these two, so that a peer that has gone ends nobody by SIGPIPE.
 */
struct pipe_guard {
	bool on, was_pending;
	sigset_t old;
};

void dial_guard_pipe(struct pipe_guard *, const struct libmariadb *, MYSQL *);
void dial_release_pipe(const struct pipe_guard *);

#endif
