/*
 * connect.h - opens and closes a connection to a MySQL or MariaDB server.
 *
 * libmariadb connects in a thread of its own: it reads option files, asks for names and
 * loads plugins there, each of which can block without end.  A waiter may leave at any
 * time: the thread then throws away what it gets.
 */
#ifndef DLOCK_MYSQL_CONNECT_H
#define DLOCK_MYSQL_CONNECT_H

#include "lib.h"
#include "login.h"

#include "backends/common/identity.h"
#include "backends/common/task.h"
#include "backends/sql/sql.h"

/* An attempt. */
struct connecting {
	struct task task;
	/* when that is done: */
	enum connected end;
	MYSQL *mysql;         /* its taker sets NULL, and closes it; NULL: no memory */
	const char *stranger; /* what is there, and no MySQL; NULL: not known */
	/* the thread's: */
	const struct libmariadb *my;
	struct login login;
	int64_t ttl;
	instant give_up;
	bool asks; /* whether a silent server is another one: stranger.h */
};

/*
 * Begins to connect, for `most` at the most.  The login is copied, but for the settings'
 * texts in it, which outlive all.  What it states stands, whatever the option files say.
 * NULL: no memory or no thread (errno).
 */
struct connecting *connect_start(const struct libmariadb *, const struct login *,
    bool asks, int64_t ttl, int64_t most);

/*
 * Adds for identify() the server and the user of a connection, or with NULL, those that the
 * option files and the login name.  False: no memory.
 */
bool connect_identify(
    const struct libmariadb *, MYSQL *connected, const struct login *, struct identity *);

/*
 * Closes a connection (NULL: none) without waiting for anything: one that may be in the
 * midst of a statement (`amid`) is cut off before.
 */
void connect_close(const struct libmariadb *, MYSQL *, bool amid);

#endif
