/*
 * queue.h - the names and values of all that is kept for a lock; what stands before us in its
 * queue, and whether that lets us in.  E is a key, encoded (encode.h).
 *
 *	dlock/q/E/LEASE      the queue: a holder or waiter; its lease in hexadecimal.  Who came
 *	                     first has the lowest create revision, which is the token, too
 *	dlock/q/E/LEASE.r    a reader (-s)
 *	dlock/q/E/LEASE.N    one of --limit N
 *	dlock/s/E/SLOT       the permit that one of N has
 *	dlock/f/E            the freeze
 *	dlock/m/E/LEASE      who asks for a hold back, or has taken it by force
 *	dlock/j/E/last       the last run of a job
 *	dlock/j/E/good       the last one that ended with 0
 *	dlock/j/E/id/ID      a run of this ID that ended with 0
 *	dlock/j/E/final/ID   one with --no-retry that ended otherwise
 *	dlock/j/E/shown      the last run that is no job's (--remember)
 *
 * The path of the URL stands for "dlock".  `etcdctl lock dlock/q/E` is the same lock; with
 * -O name=NAME the queue is NAME/LEASE..., and E stands for "+" and NAME.  E has no slash,
 * since etcdctl's lock on a name waits for those on all names below it.
 *
 * A key of the queue is never made anew, so its create revision tells its place for ever.
 * It goes with its lease; so do the permit and a mark.  Its value is dlock's, or anything.
 *
 * One transaction reads the queue, together with our own key, the freeze and the job's last runs: a
 * survey.  Nobody can come to stand before us later, and nobody there changes its kind.  So
 * what a survey has allowed stays allowed, but for a freeze and the loss of our own key,
 * which a grant asks for once more.
 */
#ifndef DLOCK_ETCD_QUEUE_H
#define DLOCK_ETCD_QUEUE_H

#include "backends/backend.h"
#include "backends/common/encode.h"
#include "cluster.h"

enum {
	ROOT_MOST = 255,
	NAME_MOST = 512,
	QUEUE_BYTES = ROOT_MOST + ENCODED_BYTES + 16,
	JOB_BYTES = QUEUE_BYTES + ENCODED_BYTES + 8,
	LONG_BYTES = QUEUE_BYTES + 32,
};

/* ---- one lock ---- */

struct names {
	char queue[QUEUE_BYTES],
	    queue_end[QUEUE_BYTES]; /* "dlock/q/E/" and what is behind it */
	char freeze[QUEUE_BYTES];
	char permits[QUEUE_BYTES], marks[QUEUE_BYTES],
	    jobs[QUEUE_BYTES]; /* with a slash */
};

/* name NULL: the lock of that key. */
void names_of(struct names *, const char *root, const char *name, const char *key);

/* A key below one of these.  Returns `out`. */
const char *key_below(char out[LONG_BYTES], const char *below, const char *name);

void names_permit(char out[LONG_BYTES], const struct names *, unsigned slot);

/*
 * The key of what is remembered of a job: its "last" run, the last one that was "good", or that
 * of an ID ("id/", "final/").  Returns `out`.
 */
const char *names_run(
    char out[JOB_BYTES], const struct names *, const char *which, const char *once);

/* The end of all keys that begin with this text. */
void names_end(char *out, size_t size, const char *prefix);

/* The last part of a key of the queue: LEASE and its suffix. */
struct queue_name {
	char text[32];
	bool
	    cut; /* it is longer, or cannot be read: of another client, below this name */
	enum lock_kind kind;
	unsigned limit;
};

void queue_name_write(struct queue_name *, int64_t lease, enum lock_kind, unsigned limit);

/* False: no lock ever has such a name (hostile, or a key of a name below). */
bool queue_name_read(struct queue_name *, const char *text);

/* The lease of an owner's claim on a key; another `nth` is another lease.  Never 0. */
int64_t lease_of(const char *owner, const char *key, unsigned nth);

/* ---- values ---- */

/* All times are microseconds since 1970. */

struct queue_value {
	char owner[OWNER_CHARS + 1];
	bool held;     /* it has the lock, not only a place */
	int64_t since; /* of the grant; of a waiter: of joining the queue */
	int slot;      /* of one of N that has the lock; -1 */
	char record[RECORD_BYTES];
};

void queue_value_write(char out[KV_VALUE_BYTES], const struct queue_value *);
bool queue_value_read(struct queue_value *, const char *text);

struct freeze {
	int64_t since, until; /* EPOCH_NONE: without an end */
	char record[RECORD_BYTES];
};

void freeze_write(char out[KV_VALUE_BYTES], const struct freeze *);
bool freeze_read(struct freeze *, const char *text);

/* What is remembered of a run. */
struct run {
	int64_t began, ended;
	int64_t token;
	int status;
	char once[3 * ONCE_BYTES + 1]; /* its ID, encoded; "": none */
	char record[RECORD_BYTES];
};

void run_write(char out[KV_VALUE_BYTES], const struct run *);
bool run_read(struct run *, const char *text);

/* The run of the one key that a range has found; false, and token 0: there is none. */
bool run_found(struct run *, const json_t *range);

/* ---- the queue ---- */

enum { PAGE = 64, HEAD = 16 }; /* keys of the queue that are read at once */

/* One key of the queue. */
struct queue_entry {
	struct queue_name name;
	struct queue_value value; /* of a dlock; empty of others */
	bool foreign;
	int64_t create, lease;
};

/*
 * Reads the `i`th of those that a range has found.  What cannot be read is taken for another
 * client's.  Of those who do not say so, only the `first` of the queue has the lock.  False: there
 * is none.
 */
bool queue_entry_read(struct queue_entry *, struct kv *, const struct names *,
    const json_t *range, size_t i, bool first);

struct queue {
	/* whose survey it is: set before */
	const struct names *names;
	const struct claim *claim;
	const char *own; /* our key */

	int64_t revision;         /* of the whole store, as it was read */
	int64_t count;            /* of all keys in the queue */
	int64_t create;           /* of our own key; 0: it is not there */
	struct queue_value value; /* of our own key */

	bool frozen;
	struct freeze freeze;
	int64_t freeze_modified;

	struct run good;    /* the last run that ended with 0; token 0: none */
	struct run same_id; /* one of our ID that ended with 0; token 0: none */
	struct run final;   /* one that ended otherwise and counts; token 0: none */

	/* those before us; everybody, if our own key is not there */
	bool whole;      /* all of them were read, or as many as matter */
	int64_t read_to; /* up to this create revision */
	unsigned ahead;  /* so many were read */
	unsigned holders;
	struct queue_entry last;     /* the last one; create 0: there is none */
	struct queue_entry excludes; /* the last exclusive one */
	struct queue_entry first_holder;
	bool mixed; /* with a kind beside which ours may not wait: */
	enum lock_kind other;
	unsigned other_limit;
	unsigned char used[LIMIT_MAX / 8 + 1]; /* permits that holders have */
};

/* ---- surveys ---- */

/* Of the queue in the order of create revisions, those behind that one, as of then (0: now). */
struct kv_range names_page(
    const struct names *, int64_t size, int64_t after, int64_t revision);

/*
 * Adds those of a survey to a transaction's; without `others`, it finds nobody before us, and does
 * not read our own value.
 */
void queue_ask(const struct queue *, bool others, struct text *ops);

/* Reads their answers, from the `i`th one on. */
void queue_read(struct queue *, const json_t *txn, size_t i);

/* Reads the next page, behind read_to, while it is not whole. */
void queue_read_more(struct queue *, const json_t *range);

/* ---- what it means ---- */

/* Are all gone for whom our kind of lock waits? */
bool queue_has_room(const struct queue *);

/* The same, and has everybody before us been granted it? */
bool queue_lets_in(const struct queue *);

/*
 * Which keys are to be watched, whose change may let us in: our own and another one.  Each of
 * those who wait for one holder watches the one before it, so that a release wakes one.
 */
struct watch_list {
	struct watched at[2];
	char key[LONG_BYTES];
};

void queue_watch(const struct queue *, struct watch_list *);

/* The lowest permit from `least` on that no holder has; the limit, if there is none. */
unsigned queue_permit(const struct queue *, unsigned least);

#endif
