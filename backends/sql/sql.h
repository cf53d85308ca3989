/*
 * sql.h - locks in a database: what is the same in each, and what a driver adds.
 *
 * What sql/ promises on any driver:
 *
 *  1. mode=lease (lease.c, lease_look.c): a hold is a row that ends.  Every operation is
 *     one statement, idempotent for an owner; RC_LOST is said on the server's word alone.
 *  2. A session lock (session_lock.h) lives and dies with its connection.
 *  3. A statement that may be run twice is asked again where the connection was found
 *     broken, and where its transaction has lost a race (store.c).  Nothing else is.
 *  4. What is missing is created at first use, by whoever may; a look creates nothing, but
 *     what a newer version adds where an older one's locks would else not be seen (mysql).
 *  5. A row is hostile until value.c has read it.
 *
 * What a driver is: struct sql_driver, and for the modes lease and row struct lease_driver
 * (lease.h) and row_driver (row.h).  It logs in, sends and receives by calls that wait in
 * host->wait alone, with a deadline; it says what codes of errors mean; it has the texts of
 * the statements.
 *
 * In a statement $1 is the first value.  Keys are values, never words of a statement.
 */
#ifndef DLOCK_SQL_SQL_H
#define DLOCK_SQL_SQL_H

#include "backends/backend.h"
#include "backends/common/retry.h"
#include "backends/common/task.h"

#define ASK_PATIENCE (5 * NS_PER_S) /* for an answer while in the queue */
/* for one that comes late, after a sleep in the server */
#define ASK_LEAST NS_PER_S

struct sql;

/* ---- one question, one answer ---- */

/* One value of a statement. */
struct sql_value {
	enum { SQL_BYTES_OF, SQL_NUMBER } type;
	const char *bytes; /* NULL: NULL */
	int64_t number;
};

#define SQL_TEXT(s) ((struct sql_value){.type = SQL_BYTES_OF, .bytes = (s)})
#define SQL_INT(n) ((struct sql_value){.type = SQL_NUMBER, .number = (n)})

enum { SQL_VALUES_MAX = 16 };

/* The values of a question, written out. */
#define SQL_VALUES(...) \
	.values = (const struct sql_value[]){__VA_ARGS__}, \
	.n = sizeof((const struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value)

struct question {
	const char *text;      /* NULL: a call of */
	const char *procedure; /* this one, with the values for arguments */
	const struct sql_value *values;
	size_t n;
	unsigned fields; /* of each row of the answer; 0: that it was done */
	bool many;       /* any number of rows, not exactly one */
	bool harmless;   /* it uses nothing that others may have put into the database */
	/*
	 * The values behind those, as they are on the connection that is there: called for each
	 * attempt, with `call`.  How many; NULL: there are none.
	 */
	size_t (*more)(struct sql *, int call, instant until, struct sql_value *);
	int call;
};

enum { FIELDS_MAX = 24 }; /* no question has an answer with more */

/*
 * Databases send text.  It is hostile: what is no number, too long, or has a NUL in it, is
 * refused here (value.c).
 */

/* One row, as long as the answer lives. */
struct row {
	char *const *at; /* its fields, NULL for NULL; NULL: there is no (further) row */
	const unsigned long *lengths;
};

bool row_is_null(const struct row *, int field);

/*
 * False: not that, or NULL.  An integer from `low` to `high`; a boolean, 0 or 1, f or t;
 * text that fits and has no NUL in it ("" for NULL).
 */
bool row_integer(const struct row *, int field, int64_t low, int64_t high, int64_t *ret);
bool row_boolean(const struct row *, int field, bool *ret);
bool row_text(const struct row *, int field, char *out, size_t size);

/* A boolean that is true; a time, EPOCH_NONE for none (and for the greatest that there is). */
bool row_is(const struct row *, int field);
int64_t row_time(const struct row *, int field);

/* Text as the answer has it, up to its first NUL; NULL for NULL. */
const char *row_words(const struct row *, int field);

/* What has come; all zeros: nothing has. */
struct answer {
	struct sql *db;       /* NULL: there is none */
	void *result;         /* the driver's */
	int rows, next;       /* how many it has, and which one is next */
	instant sent;         /* just before the question left */
	struct row row;       /* the one that was read last */
	char *at[FIELDS_MAX]; /* its fields */
	unsigned long lengths[FIELDS_MAX];
};

/*
 * The next row, into a->row; false: there is none.  That of a question of exactly one has been
 * read already.
 */
bool answer_next(struct answer *);

/*
 * The boolean that it is, if it came with `rc` (no answer leaves that alone); drops it.
 * RC_PROTOCOL: it makes no sense.
 */
enum rc answer_boolean(struct answer *, enum rc rc, bool *, struct fault *);

/* Frees it; an answer that is none, too. */
void answer_drop(struct answer *);

/* ---- the words for kinds of lock, as the schemas have them ---- */

/* The word for a kind; both exclusive ones have the same. */
const char *kind_word(enum lock_kind);

/* False: no kind has this word, or it is NULL. */
bool kind_of_word(const char *word, enum lock_kind *);

/*
 * The slot of a holder, of a limit of `limit`; one that has no limit (0) has none: NULL, -1
 * or 0, and *slot is -1.  False: it makes no sense.
 */
bool kind_slot(const struct row *, int field, int64_t limit, int64_t *slot);

/* What stands for a kind where there is a freeze. */
#define KIND_WORD_FREEZE "freeze"

/* ---- what a driver is ---- */

/* What the last error says, if it is one of these. */
enum sql_failure {
	SQL_LOST_RACE,    /* a transaction has lost, and changed nothing */
	SQL_NO_TABLE,     /* with it, the locks are gone; */
	SQL_NO_PROCEDURE, /* without it they may all be there, and nobody is granted one */
	SQL_NO_RIGHT,     /* to what the statement uses */
	SQL_INTERRUPTED,  /* somebody has cancelled the statement */
	SQL_READ_ONLY,    /* a standby, a replica, or what may be one */
	SQL_FAILURES
};

/* What codes of errors, or beginnings of such, mean for a lock. */
struct sql_meaning {
	enum rc rc;
	const char *codes; /* with a blank behind each but the last */
	const char *hint;  /* NULL: none */
};

struct sql_driver {
	size_t bytes; /* of its own struct, which begins as zeros */

	/* Reads the URL (NULL: none), behind the settings; connects to nobody. */
	enum rc (*init)(struct sql *, const char *url, struct fault *);

	/* Which locks its are, beside the mode. */
	enum rc (*identify)(const struct sql *, struct identity *, struct fault *);

	/* Begins to connect, in a thread.  NULL: no memory or no thread (errno). */
	struct task *(*login)(struct sql *);

	/* That has ended: makes the connection the store's, or says why there is none. */
	enum rc (*adopt)(struct sql *, struct task *, instant until, struct fault *);

	/* Is it there, and nothing known against it?  Closes one that has ended. */
	bool (*is_open)(struct sql *);

	/* Of the connection; readable, or broken, when something has happened to it.  -1: none. */
	int (*descriptor)(const struct sql *);

	/* As sql_exec() without the values behind; most of it is sql_exec_plainly(). */
	enum rc (*exec)(struct sql *, const struct question *, instant until,
	    struct answer *, struct fault *);

	/*
	 * The same in two steps; forgets the last error.  An answer that is late may be waited
	 * for again; until it has come, is_pending.
	 */
	enum rc (*send)(
	    struct sql *, const struct question *, instant until, struct fault *);
	enum rc (*receive)(struct sql *, const struct question *, instant until,
	    struct answer *, struct fault *);
	bool (*is_pending)(const struct sql *);

	/* Closes the connection without waiting; another may be opened.  Accepts none. */
	void (*close)(struct sql *);

	/*
	 * Do other servers write, too, so that their writes become visible here between two
	 * statements of a transaction?  NULL: never.
	 */
	bool (*is_one_of_several)(const struct sql *);

	const char *const *failures;        /* the codes of each sql_failure */
	const struct sql_meaning *meanings; /* the last one is of all other codes */

	/* The n-th row of a result, into a->at and a->lengths; in order.  False: none. */
	bool (*read_row)(struct answer *, int n);
	void (*drop)(struct answer *);

	/* Creates what is missing in the database, or brings it up to date. */
	enum rc (*create)(struct sql *, instant until, struct fault *);

	/*
	 * A look or a steering has found something missing.  RC_OK: nothing is held there;
	 * *create: something may be, once what is missing is created.
	 */
	enum rc (*explain_absence)(
	    struct sql *, instant until, bool *create, struct fault *);

	/* RC_DENIED: which right is missing, who has it, and what to do. */
	enum rc (*explain_denial)(const struct sql *, struct fault *);

	/* As admin_ops.check. */
	enum rc (*check)(struct sql *, struct checkup *, struct fault *);

	const char *procedures; /* what this database calls them */
	/* what stands before and behind the name of one in a statement that calls it */
	const char *call, *version;
	const struct sql_mode *const *modes; /* the first is the default; NULL-ended */
	const char *mode_names;              /* for people */
	const struct lease_driver *lease;
	const struct row_driver *row;
};

/* ---- a mode ---- */

struct session_lock_way;

/* What a mode does of lock_ops and admin_ops; NULL: it lacks the capability. */
struct sql_mode {
	const char *name;
	unsigned caps;
	size_t bytes; /* of its own struct, which begins as zeros */
	enum rc (*acquire)(struct sql *, instant until, struct grant *, struct fault *);
	enum rc (*renew)(struct sql *, instant until, struct grant *, struct fault *);
	enum rc (*release)(struct sql *, struct outcome, instant until, struct fault *);
	enum rc (*each)(struct sql *, const struct look *, struct fault *);
	enum rc (*revoke)(struct sql *, const struct target *, const char *record,
	    bool force, instant until, struct fault *);
	enum rc (*freeze)(struct sql *, const char *key, const char *record,
	    int64_t length, instant until, struct fault *);
	enum rc (*thaw)(struct sql *, const char *key, instant until, struct fault *);
	enum rc (*forget)(struct sql *, const char *key, const char *once, instant until,
	    struct fault *);
	const struct session_lock_way *way; /* of a session lock; else NULL */
};

/* ---- the store ---- */

/* The first member of a driver's own struct. */
struct sql {
	struct store base;
	const struct sql_driver *driver;
	const struct sql_mode *mode;
	void *own; /* the mode's: sql_own() */
	/* a mode made for company, and no name that another program could have for the lock */
	bool names_nobodys;
	char where[WHERE_BYTES];
	struct retry retry;
	const struct claim *claim;
	/* for the driver's connection: */
	int64_t ttl; /* a peer that is silent for so long has gone */
	bool reads;  /* it only looks: a read-only server will do, if there is no other */
	/* by it: */
	unsigned serial; /* counts the connections: a new one has nothing of the last */
	bool whole_seconds; /* a sleep in the server lasts no fractions of one */
	char error[8];      /* the code of the server's last error; "": there was none */
	/* the question was answered, but a fail-over may undo it: it is to be asked again */
	bool unreplicated;
	char last_words
	    [160]; /* what the server has said unasked, such as why it hangs up */
	struct task *login; /* a connection on its way */
	/* sql_ask() had to ask twice: the first may have been heard, and done */
	bool again;
};

/* The struct that belongs to `mode`; checked: another mode's is a mistake of ours. */
static inline void *
sql_own(const struct sql *db, const struct sql_mode *mode)
{
	if (db->mode != mode)
		abort();
	return db->own;
}

/* Is there a connection, as far as we know? */
static inline bool
sql_is_connected(const struct sql *db)
{
	return db->driver->descriptor(db) >= 0;
}

/* When the connection ends we renew at once. */
static inline void
sql_watch(const struct sql *db)
{
	db->base.host->alert = db->driver->descriptor(db);
}

/* As struct backend has them. */
enum rc sql_store_open(struct store **, const struct backend *, const struct sql_driver *,
    struct host *, const struct site *, struct fault *);
void sql_store_close(struct store *);
enum rc sql_store_identify(struct store *, struct identity *, struct fault *);

/* Setters of struct setting_row. */
enum rc sql_set_mode(struct store *, const char *value, struct fault *);
enum rc sql_set_patience(struct store *, const char *value, struct fault *);

extern const struct lock_ops sql_lock_ops;
extern const struct admin_ops sql_admin_ops;

/* ---- the connection ---- */

/*
 * Connects, if need be; a connection that is late is waited for again by the next call.
 * Forgets the last error.
 */
enum rc sql_open(struct sql *, instant until, struct fault *);

/*
 * How long one login may take: as connect-timeout says, so that another is tried when one was
 * not heard.  No less than by default, since a hold whose server is slow to let it in again
 * would have no way back.
 */
int64_t sql_login_most(const struct sql *);

/* Waits for `events` at one of its descriptors.  RC_AGAIN: in vain. */
enum rc sql_wait(struct sql *, int fd, short events, instant until, struct fault *);

/*
 * The same in the thread of a login, where there is no host.  False: it is `end`, or nobody
 * waits for the login any more, or `beside` can be read (-1: there is none).
 */
bool sql_login_wait(const struct task *, int fd, short events, int beside, instant end);

/* RC_AGAIN: it has broken, or makes no sense any more, and is closed; it never stops talking. */
enum rc sql_broken(struct sql *, struct fault *);
enum rc sql_endless(const struct sql *, struct fault *);

/* ---- errors ---- */

/* Is the code of the last error, or its beginning, among these? */
bool sql_error_is(const struct sql *, const char *codes);
bool sql_is_failure(const struct sql *, enum sql_failure);

/* The server has refused, with db->error and this text: as the driver's meanings have it. */
enum rc sql_refused(const struct sql *, const char *text, struct fault *);

/* ---- asking ---- */

/*
 * A question on the connection there is (RC_AGAIN if there is none), and its answer (NULL:
 * nobody wants it).  An answer that is late is not waited for: the connection is closed, for
 * it might be taken for the answer to the next question.
 */
enum rc sql_exec(struct sql *, const struct question *, instant until, struct answer *,
    struct fault *);

/* The same, as all drivers do it: sends it, and receives the answer. */
enum rc sql_exec_plainly(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);

/* Rolls back what a statement that failed may have left open; db->error stays. */
void sql_undo(struct sql *, instant until);

/* Do other servers write, too, as far as the connection that is there can tell? */
bool sql_is_one_of_several(const struct sql *);

/*
 * For a statement that may be run twice: connects if need be, asks, and waits for the
 * answer.  A connection that was found broken is opened anew, and one that breaks under
 * the question gets a second chance (db->again); a transaction that has lost a race gets as
 * many as fit into 2 s.
 */
enum rc sql_ask(struct sql *, const struct question *, instant until, struct answer *,
    struct fault *);

/* The same; creates what is missing in the database, and asks again. */
enum rc sql_ask_created(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);

/*
 * The same; where nothing has been created yet, RC_OK without an answer: nothing is held,
 * and nothing is made.
 */
enum rc sql_ask_existing(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);

/* Is a table or procedure missing: says the last error. */
bool sql_is_missing(const struct sql *);

/* RC_DENIED for want of a right: who has it, and what to do. */
enum rc sql_explain_denial(const struct sql *, enum rc, struct fault *);

/* What the server has sent is no answer to what was asked. */
enum rc sql_makes_no_sense(const struct sql *, enum rc, struct fault *);

/*
 * After an attempt that has failed: RC_OK, and what has passed by itself may be tried
 * again.  `queued`: the server knows of us; then one that is read-only will be promoted.
 */
enum rc sql_try_again(struct sql *, enum rc, bool queued, instant until);

#endif
