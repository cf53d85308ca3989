/*
 * names.h - the names and values of all that is kept in etcd.  E is a key, encoded (url.h).
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
 *
 * The path of the URL stands for "dlock".  `etcdctl lock dlock/q/E` is the same lock; with
 * -O name=NAME the queue is NAME/LEASE..., and E stands for "+" and NAME.  E has no slash,
 * since etcdctl's lock on a name waits for those on all names below it.
 *
 * A key of the queue is never made anew, so its create revision tells its place for ever.
 * It goes with its lease; so do the permit and a mark.  Its value is dlock's, or anything.
 */
#ifndef DLOCK_ETCD_NAMES_H
#define DLOCK_ETCD_NAMES_H

#include "backends/backend.h"
#include "backends/common/url.h"
#include "kv.h"

enum { ROOT_MOST = 255, NAME_MOST = 512, QUEUE_BYTES = ROOT_MOST + ENCODED_BYTES + 16 };

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

/* The end of all keys that begin with this text. */
void names_end(char *out, size_t size, const char *prefix);

/* The last part of a key of the queue: LEASE and its suffix. */
struct queue_name {
	char text[32];
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

#endif
