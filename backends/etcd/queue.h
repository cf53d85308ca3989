/*
 * queue.h - what stands before us in a lock's queue, and whether that lets us in.
 *
 * One transaction reads it, together with our own key, the freeze and the job's last runs: a
 * survey.  Nobody can come to stand before us later, and nobody there changes its kind.  So
 * what a survey has allowed stays allowed, but for a freeze and the loss of our own key,
 * which a grant asks for once more.
 */
#ifndef DLOCK_ETCD_QUEUE_H
#define DLOCK_ETCD_QUEUE_H

#include "cluster.h"
#include "names.h"

enum { PAGE = 64 }; /* keys of the queue that are read at once */

/* One key of the queue. */
struct queue_entry {
	struct queue_name name;
	struct queue_value value; /* of a dlock; empty of others */
	bool foreign;
	int64_t create, lease;
};

/* False: it is no lock's key. */
bool queue_entry_read(struct queue_entry *, const struct names *, const struct kv *);

/* The last of those before us that matter for something. */
struct ahead {
	int64_t create; /* 0: there is none */
	bool held;
	char name[32];
};

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

	/* those before us; everybody, if our own key is not there */
	bool whole;      /* all of them were read, or as many as matter */
	int64_t read_to; /* up to this create revision */
	unsigned ahead;  /* so many were read */
	unsigned holders;
	struct ahead last;     /* the last one */
	struct ahead excludes; /* the last exclusive one */
	struct queue_entry first_holder;
	bool mixed; /* with a kind beside which ours may not wait: */
	enum lock_kind other;
	unsigned other_limit;
	unsigned char used[LIMIT_MAX / 8 + 1]; /* permits that holders have */
};

/* ---- surveys ---- */

/* Adds the operations of a survey to those of a transaction, and returns the list. */
json_t *queue_ask(const struct queue *, json_t *ops);

/* Reads their answers, from the `i`th one on. */
void queue_read(struct queue *, const json_t *txn, size_t i);

/* The next page, as a request to /v3/kv/range, while it is not whole; and its answer. */
json_t *queue_ask_more(const struct queue *);
void queue_read_more(struct queue *, const json_t *range);

/* ---- what it means ---- */

/* Are all gone for whom our kind of lock waits? */
bool queue_lets_in(const struct queue *);

/*
 * Which keys are to be watched, whose change may let us in: at most WATCHED_MOST.  Each of
 * those who wait for one holder watches the one before it, so that a release wakes one.
 */
enum { WATCHED_MOST = 3 };

struct watch_list {
	int n;
	struct watched at[WATCHED_MOST];
	char key[QUEUE_BYTES + 32];
};

void queue_watch(const struct queue *, struct watch_list *);

/* The lowest permit from `least` on that no holder has; the limit, if there is none. */
unsigned queue_permit(const struct queue *, unsigned least);

#endif
