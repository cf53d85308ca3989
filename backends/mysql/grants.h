/*
 * grants.h - dlock_grants: the rows by which holders and waiters of the modes row and named
 * let others know of them.
 *
 *  1. The writer of a row keeps its transaction open as long as it holds or waits, and
 *     never commits it.  So the row is gone when the session is, whatever has ended that;
 *     and others see it by reading what is not committed.
 *  2. Its number is the token: AUTO_INCREMENT never gives one twice while the server
 *     lives, whatever is rolled back; it is pushed ahead to the server's clock each time, for
 *     a crash may lose what it had come to.
 *  3. A look takes no lock, not for a moment: nobody finds a key held because of it.
 *  4. A lock of another program has no row.
 *  5. A server that becomes read-only while we wait grants nothing, and while we hold, the
 *     lock is lost: as a replica it would go on saying that it is ours, and the new primary
 *     knows nothing of it.
 */
#ifndef DLOCK_MYSQL_GRANTS_H
#define DLOCK_MYSQL_GRANTS_H

#include "mysql.h"

#include "backends/sql/look.h"
#include "backends/sql/session_lock.h"

/*
 * The value of an expression about a lock of this session; NULL on a server that has become
 * read-only: by now it may be a replica, and excludes nobody.
 */
#define GRANTS_ON_PRIMARY(expression) \
	"CASE WHEN " SERVER_IS_PRIMARY " THEN " expression " END"

/* Tells, in a transaction, that we wait; $1 to $4 are GRANTS_VALUES. */
#define GRANTS_WAITS \
	"SET @dlock_since = COALESCE(@dlock_since, " SERVER_CLOCK "); " \
	"INSERT INTO dlock_grants (mode, k, shared, record, waits, session, since) " \
	"VALUES ($1, $2, $3, $4, 1, CONNECTION_ID(), @dlock_since); " \
	"SET @dlock_waiter = LAST_INSERT_ID(); "

/* Tells that we hold, and selects the token. */
#define GRANTS_HOLDS \
	"INSERT IGNORE INTO dlock_grants (n, mode, k, shared, record, waits, session, since) " \
	"VALUES (" SERVER_CLOCK ", '', '', 0, '', 0, 0, 0); " \
	"INSERT INTO dlock_grants (mode, k, shared, record, waits, session, since) " \
	"VALUES ($1, $2, $3, $4, 0, CONNECTION_ID(), " SERVER_CLOCK "); " \
	"SET @dlock_token = LAST_INSERT_ID(); " \
	"DELETE FROM dlock_grants WHERE n = @dlock_waiter; " \
	"SET @dlock_waiter = NULL; " \
	"SELECT " GRANTS_ON_PRIMARY("@dlock_token")

/* `what` is the key, or what else the mode calls a lock. */
#define GRANTS_VALUES(db, what) \
	SQL_TEXT((db)->mode->name), SQL_TEXT(what), \
	    SQL_INT((db)->claim->kind == KIND_SHARED), SQL_TEXT((db)->claim->record)

/*
 * The session as the modes need it: open, with a lease, and one that keeps the lock.
 * RC_CONFIG: it cannot be had so, and why.
 */
enum rc grants_open(struct sql *, instant until, struct fault *);

/*
 * The session has the lock: tells so, with GRANTS_HOLDS or another text that selects a token.
 * RC_OK: it is a grant, whose lease counts from this.  RC_CONFIG: the server is read-only.
 */
enum rc grants_take_token(struct sql *, const char *text, const char *what, instant until,
    struct grant *, struct fault *);

/* Reads holders and waiters into host->seen, on the session there is, in no transaction. */
enum rc grants_see(struct sql *, const char *what, instant until, struct fault *);

/* Has a question failed because the table that it wants is out of reach? */
bool grants_out_of_reach(const struct sql *, enum rc);

/*
 * One look.  `also`, of a mode that can do without the rows: the holder that is told of if no
 * row has its session (0: there is none); a user who may not read the rows sees none.
 */
struct grants_holder {
	int64_t session;
	struct foreign foreign;
};
enum rc grants_each(struct sql *, const struct look *, const char *what,
    const struct grants_holder *also, struct fault *);

/*
 * Ends the session that `owner` names, if it holds `what`, and waits until it has gone.
 * `holds` says of one without a row whether it does: an expression, in which $2 is `what` and $4
 * the session; NULL: it does not.  RC_DENIED: we have no right to.
 */
enum rc grants_end(struct sql *, const char *what, const char *owner, const char *holds,
    instant until, struct fault *);

#endif
