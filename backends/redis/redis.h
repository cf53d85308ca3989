/*
 * redis.h - the stores of this backend: locks on one server, wherever that is, and on a
 * quorum of several.  Both have the same settings.
 */
#ifndef DLOCK_REDIS_REDIS_H
#define DLOCK_REDIS_REDIS_H

#include "backends/common/retry.h"
#include "dialects.h"
#include "quorum.h"
#include "route.h"

extern const struct backend redis_backend, redlock_backend;
extern const struct setting_row redis_settings[];

/* What every store has: where it is and how it is asked, as the user said it. */
struct redis_store {
	struct store base;
	struct retry patience;
	const struct dialect *dialect;
	/* what the other clients call the lock; NULL: as the key says */
	const char *name;
	int replicas; /* that are to have what was written; 0: none */
	char where[WHERE_BYTES];
	struct address address;
	/* FORM_SENTINEL: the same hosts, and who we are to them; else NULL */
	struct address *sentinels;
};

static inline const char *
store_key(const struct redis_store *s, const char *key)
{
	return s->name ? s->name : key;
}

enum rc redis_open(struct store **, struct host *, const struct site *, struct fault *);
enum rc redis_identify(struct store *, struct identity *, struct fault *);
void redis_close(struct store *);

enum {
	REDLOCK_CAPS = CAP_DURABLE | CAP_REVOKE | CAP_FORCE,
	REDIS_CAPS = REDLOCK_CAPS | CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB |
	    CAP_FREEZE,
};

/* ---- our place in the queue of one server: queue.c ---- */

struct queue {
	struct server listener;
	const struct route *route; /* where the lock is */
	unsigned moves;            /* of the route, when the listener went there */
	instant listen_due;        /* not to be opened again before */
	bool deaf;                 /* we may not listen */
	uint64_t ticket;           /* the place, as the server dealt it; 0: none yet */
	unsigned beats;            /* for their jitter */
};

/* so long, a waiter that asked counts as alive: two beats may be lost */
#define QUEUE_ALIVE (9 * NS_PER_S)
/* for an answer while in the queue */
#define QUEUE_PATIENCE (3 * NS_PER_S)

/* Is a message to the channel heard?  Not if the lock has moved to another server. */
bool queue_is_subscribed(struct queue *);

/*
 * Sleeps until there is reason to ask again: a message, a beat, or a subscription just
 * begun, since a message may have gone out before.  Without a subscription (the
 * server has no room for a second connection) beats must do; it is tried again now and
 * then.  RC_OK; RC_BUSY, without words, at `until`; RC_AGAIN: the subscription has ended;
 * else as server_ask().
 */
enum rc queue_wait(struct queue *, const struct names *, const char *owner,
    const struct answer *, instant until, struct fault *);

/* While the lock is held: a renewal that begins now tells all that was called until now. */
void queue_forget_messages(struct queue *);

/*
 * Listens for what would wake a holder, unless it does, lately tried to, or may not; it is no
 * failure that this fails.  True: it has begun just now, and a message may have gone out before.
 */
bool queue_hear(struct queue *, const struct names *, instant until);

/* ---- on one server: redis.c ---- */

/* What the server has told us that we have. */
struct redis_hold {
	bool is; /* anything at all */
	uint64_t token;
	unsigned slot;
	instant inspect_from; /* a renewal asks how the server is set */
	bool
	    unsure; /* given back, but replicas have not confirmed that the run is remembered */
};

struct redis {
	struct redis_store store;
	struct route route;
	struct queue queue;
	/* Of acquire: */
	const struct claim *claim;
	struct redis_hold hold;
	bool queued;     /* the server has told us our place in its queue */
	bool plainly;    /* the server runs no scripts, and the dialect does without */
	bool down_after; /* has been spoken of */
	int both;        /* an epoll descriptor of what redis_watch() watches; 0: none */
	int64_t unheard; /* ns: the last alert_unheard(); 0: we listen, or may not */
	struct names names; /* last: it is long, and little of it is touched */
};

static inline struct redis *
redis_of(struct store *s)
{
	return (struct redis *)store_of(s, &redis_backend);
}

/*
 * What string.lua does, on a server that runs no scripts: by WATCH, MULTI and EXEC.  RC_AGAIN
 * also when others changed the lock at the same time again and again.
 */
enum rc transaction_run(struct redis *, const struct request *, instant until,
    struct answer *, struct fault *);

/* What an error reply to a request means, in words.  RC_LOST: the key is no lock any more. */
enum rc redis_refused(struct redis *, const struct request *, char *text, struct fault *);

/* Have as many replicas as are to have it what the last one wrote?  False: in words. */
bool redis_is_replicated(const struct redis *, struct fault *);

/* admin_ops of one server: look.c and steer.c. */
enum rc look_each(struct store *, const struct look *, struct fault *);
enum rc look_beside(struct store *, const char *key, instant until, struct fault *);
enum rc steer_revoke(struct store *, const struct target *, const char *record,
    bool force, instant until, struct fault *);
enum rc steer_freeze(struct store *, const char *key, const char *record, int64_t length,
    instant until, struct fault *);
enum rc steer_forget(
    struct store *, const char *key, const char *once, instant until, struct fault *);
enum rc steer_thaw(struct store *, const char *key, instant until, struct fault *);

/* The same for doctor: check.c. */
enum rc redis_check(struct store *, struct checkup *, struct fault *);

/*
 * The lease that bears a fail-over, which takes so long, at least `ttl`; that one where the
 * sentinels have not been asked how long they wait (0).
 */
int64_t redis_lease_for_switch(const struct redis *, int64_t ttl, int64_t *takes);

/* The runs of that key's IDs alone; each answer may take `patience`. */
enum rc look_done(struct store *, const char *key,
    bool (*see)(void *ctx, const struct entry *, int64_t now), void *ctx,
    int64_t patience, struct fault *);

/* For any look: one of which nothing is known. */
struct entry look_entry_of(enum entry_kind);

/* ---- on a quorum: redlock.c ---- */

/* The votes of one owner. */
struct redlock_hold {
	char owner[VOTER_BYTES];
	unsigned owners; /* have been used: each attempt has one of its own */
	uint64_t token;
	bool asked;   /* a vote may be ours */
	bool is;      /* a quorum of votes is */
	instant ends; /* of the lease, if so */
};

struct redlock {
	struct redis_store store;
	struct quorum quorum;
	bool told; /* host->notice: of masters that cannot be used */
	/* Of acquire: */
	const struct claim *claim;
	struct redlock_hold hold;
	instant began;  /* to ask */
	unsigned tries; /* since the votes were divided */
	uint64_t jitter;
};

static inline struct redlock *
redlock_of(struct store *s)
{
	return (struct redlock *)store_of(s, &redlock_backend);
}

/* The key itself is the lock's, as other clients of Redlock have it. */
static inline bool
redlock_is_bare(const struct redlock *r)
{
	return r->store.dialect == &dialects[DIALECT_STRING];
}

/* admin_ops of a quorum: redlock_look.c. */
enum rc redlock_each(struct store *, const struct look *, struct fault *);
enum rc redlock_revoke(struct store *, const struct target *, const char *record,
    bool force, instant until, struct fault *);
enum rc redlock_check(struct store *, struct checkup *, struct fault *);

#endif
