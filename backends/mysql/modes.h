/*
 * modes.h - what the three modes of the mysql backend share.
 *
 *	lease   a row with an end, which outlives connection and server
 *		(lease.c, lease_steering.c, schema.sql)
 *	row     SELECT ... FOR UPDATE in an open transaction (row.c)
 *	named   a session's GET_LOCK, as other programs take it (named.c)
 *
 * Below them: mysql.c (settings, schema, patience), session.h (one session, statements
 * with deadlines), errors.h (what errors mean), field.h (rows), sql.h (statements),
 * dial.h (the login, in a thread), login.h, lib.h.
 *
 * row and named live in their session: they use session_ask_here(), set
 * session.idle_s, and tell the host session_fd() as its alert while they hold.
 */
#ifndef DLOCK_MYSQL_MODES_H
#define DLOCK_MYSQL_MODES_H

#include "field.h"
#include "session.h"
#include "sql.h"

#include "backends/sql/lease.h"

struct mysql;

/* What a mode does of struct admin_ops; NULL: nothing, it lacks the capability. */
struct steering {
	enum rc (*each)(struct mysql *, const struct look *, struct fault *);
	enum rc (*revoke)(struct mysql *, const struct target *, const char *record,
	    bool force, instant until, struct fault *);
	enum rc (*freeze)(struct mysql *, const char *key, const char *record,
	    int64_t length, instant until, struct fault *);
	enum rc (*thaw)(struct mysql *, const char *key, instant until, struct fault *);
};

extern const struct steering mysql_lease_steering, mysql_row_steering,
    mysql_named_steering;

/* What a mode does of struct lock_ops. */
struct mode {
	const char *name;
	unsigned caps;
	const char *rights;  /* that a user needs, as GRANT has them */
	size_t bytes;        /* of its own struct, which begins as zeros */
	bool needs_database; /* its tables lie in one; "dlock" where none is stated */
	enum rc (*acquire)(struct mysql *, instant until, struct grant *, struct fault *);
	enum rc (*renew)(struct mysql *, instant until, struct grant *, struct fault *);
	enum rc (*release)(struct mysql *, int status, instant until, struct fault *);
	const struct steering *steering;
};

extern const struct mode mysql_lease_mode, mysql_row_mode, mysql_named_mode;

struct mysql {
	struct store base;
	const struct mode *mode;
	const char *name; /* of mode=named, as stated; NULL: a key has one */
	void *own;        /* the mode's: mysql_own() */
	struct session session;
	struct retry patience;
	const struct claim *claim;
	int64_t lease_us; /* of the claim, for the server */
};

extern const struct backend mysql_backend;

static inline struct mysql *
mysql_of(struct store *s)
{
	return (struct mysql *)store_of(s, &mysql_backend);
}

/* The struct that belongs to `mode`; checked: another mode's is a mistake of ours. */
static inline void *
mysql_own(const struct mysql *my, const struct mode *mode)
{
	if (my->mode != mode)
		abort();
	return my->own;
}

/*
 * session_ask(), and where a table or procedure of dlock's is missing, creates them and
 * asks again.
 */
enum rc mysql_ask(struct mysql *, const char *sql, const struct shape *, instant until,
    instant *sent, MYSQL_RES **ret, struct fault *);

/*
 * session_ask(), and where there are no tables of dlock's, RC_OK without an answer (*ret
 * NULL): nothing is held, and nothing is made.  Where there are those of another version,
 * as mysql_ask(): something may be held.
 */
enum rc mysql_ask_existing(struct mysql *, const char *sql, const struct shape *,
    instant until, MYSQL_RES **ret, struct fault *);

/* Where a right is missing: who has it, and what to do. */
enum rc mysql_explain_denial(struct mysql *, enum rc, struct fault *);

/* Is a table or procedure missing: says the last error. */
bool mysql_is_missing(const struct mysql *);

/*
 * Is a table missing: says the last error.  With it, the locks are gone; without a procedure
 * they may all be there, and nobody can be granted one.
 */
bool mysql_lacks_table(const struct mysql *);

/* What the server has sent is no answer to what was asked. */
enum rc mysql_makes_no_sense(const struct mysql *, enum rc, struct fault *);

/*
 * After an attempt that has failed: RC_OK, and what has passed by itself may be
 * tried again.  `queued`: the server knows of us; then a replica is one that will
 * be promoted.
 */
enum rc mysql_try_again(struct mysql *, enum rc, bool queued, instant until);

#endif
