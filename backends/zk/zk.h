/*
 * zk.h - a store in ZooKeeper, and what its parts do with it.
 *
 *	zk.c		opens, looks and steers		claim.c		takes, renews, gives back
 *	wait.c		the queue: our turn in it	permit.c	one of N permits
 *	holders.c	those who hold the lock		single.c	a lock that is one node
 *	stranger.c	who else uses its directory	jobs.c		what jobs have done
 *	look.c, steer.c, check.c	what administrators ask
 */
#ifndef DLOCK_ZK_ZK_H
#define DLOCK_ZK_ZK_H

#include "backends/common/retry.h"
#include "contents.h"
#include "node.h"

/* between attempts to do what a server has not answered */
#define RETRY (100 * NS_PER_MS)

struct zk;

/* ---- jobs.c: what jobs have done ---- */

struct jobs {
	/* by the server's clock, in ns; < 0: there is nothing to remember */
	int64_t began;
	/* that ID has been done by somebody while we held the lock as well */
	bool exists;
};

/* A run, as it is remembered.  Text is to be freed by jobs_forget(), or NULL. */
struct past_run {
	char *id, *record;
	char who[128]; /* of the record */
	uint64_t token;
	int64_t began, ended; /* server's, ns since 1970; -1: not known */
	int status;
};

/* What a node says; false: it is no run as we remember them. */
bool jobs_read(struct past_run *, const struct call *node);
void jobs_forget(struct past_run *);

/* What is kept there under that name, of the runs of that lock; "": the directory. */
struct path jobs_path(const struct lockdir *, const char *name);

/* All IDs that are remembered of that lock, one after the other. */
struct ids {
	struct path era;   /* "/51": where this one is, */
	const char *name;  /* encoded, */
	struct call *node; /* and what is asked about it */
	/* jobs.c's own: */
	struct lockdir dir; /* of the lock's jobs */
	enum ask what;
	instant until;
	struct call *eras, *list;
	size_t neras; /* so many are read, or being read */
	struct reader reader;
};

/* `final`: of those that ended otherwise than with 0 and count. */
void ids_begin(struct ids *, const struct lockdir *, bool final, enum ask, instant until);
void ids_end(struct ids *);

/* The next one, until the next call.  RC_DONE: there are no more. */
enum rc ids_next(struct ids *, struct fault *);

/*
 * We have the lock, or a part of it: RC_DONE if the job has been done.  Otherwise it
 * begins now.
 */
enum rc jobs_check(struct zk *, instant until, struct fault *);

/* We have the lock: a run begins that is to be shown. */
enum rc jobs_begin_shown(struct zk *, instant until, struct fault *);

/* What a release is to write. */
struct memory {
	struct change changes[3];
	size_t n;
	struct path last, good, id;
	char data[4 * RECORD_BYTES];
};

/* The run has ended so. */
void jobs_remember(struct zk *, struct outcome, struct memory *);

/* It could not be written: makes what is missing.  To be remembered anew. */
enum rc jobs_prepare(struct zk *, struct outcome, instant until, struct fault *);

/* ---- what is known of the queue ---- */

/* A node among the first, where it is a waiter's. */
struct idler {
	int64_t czxid; /* 0: it is none's */
	instant since; /* when we first saw that */
};

/* Those who are looked at while we are near the head. */
struct idlers {
	struct idler first;      /* the first node, and */
	struct idler other;      /* one of those who hold it together with that: */
	char looked[NAME_BYTES]; /* the one after this */
};

struct turn {
	/* until then we must have earned a lease; NEVER: it is not our turn */
	instant over;
	bool queued;         /* we have seen our place once, or what stands in its way */
	struct call *list;   /* the queue when we last read it, */
	struct call *taking; /* and a write before that by which we take our turn; NULL */
	struct place place;  /* our place in it */
	struct freeze freeze;
	instant thaws;         /* when that ends by our clock */
	int64_t ahead_written; /* with AWAITS_CHANGE: when we last saw that */
	instant counted;       /* when we saw our place; 0: not yet */
	uint32_t departed;     /* twice as many as had left the directory until then */
	struct idlers idlers;
};

struct zk {
	struct store base;
	const struct claim *claim;
	struct ensemble ensemble;
	char where[WHERE_BYTES];
	struct retry patience;
	struct lockdir dir; /* and the session */
	struct node node;
	struct turn turn;
	struct jobs jobs;     /* of a job */
	instant silent_since; /* from when on renewals went unanswered; NEVER */
	bool
	    leaves; /* all of ours is deleted: nothing depends on the end of the session */
	size_t rooted; /* check.c: so much of the chroot was there */
};

extern const struct backend zk_backend;

static inline struct zk *
zk_of(struct store *s)
{
	return (struct zk *)store_of(s, &zk_backend);
}

/* Sleeps until then: RC_OK, RC_STOP. */
enum rc zk_pause(struct zk *, instant until);

/* Until when a question of a waiter's may be unanswered: a crowd makes a server slow. */
instant zk_answer_by(const struct zk *);

/* ---- check.c: for doctor, in a session with the lease of a run ---- */

enum rc check_tell(struct zk *, struct checkup *, struct fault *);
/* Removes all that is in the directory of the probe, and that. */
enum rc check_sweep(struct zk *, const struct lockdir *, instant until, struct fault *);

/* ---- claim.c ---- */

/* A session of `ttl`; the one that there is, if it lives.  As session_await(). */
enum rc claim_connect(struct zk *, int64_t ttl, instant until, struct fault *);

/* The session is no more, and with it our node, or soon. */
void claim_leave_session(struct zk *);

/* As lock_ops has them. */
enum rc claim_acquire(
    struct store *, const struct claim *, instant until, struct grant *, struct fault *);
enum rc claim_renew(struct store *, instant until, struct grant *, struct fault *);
enum rc claim_release(struct store *, struct outcome, instant until, struct fault *);

/* ---- wait.c ---- */

/*
 * Into the queue until `join_by`; where we stand there already, it is read anew.  Then waits for
 * our turn until `until`, and takes it, which may earn a lease (not for a permit: permit.c); to be
 * followed by turn_earn().  `until` 0: RC_BUSY at once, where others are ahead.  RC_LOST: our
 * place is.  RC_AGAIN: to be called again when there is a connection.
 */
enum rc turn_await(struct zk *, instant join_by, instant until, struct fault *);

/* Our turn has come: earns a lease that lasts by writing our node, if there is none yet. */
enum rc turn_earn(struct zk *, struct fault *);

/* Our place is gone, or not needed any more. */
void turn_forget(struct zk *);

/*
 * Sleeps until `beat`, if nothing that is watched happens.  RC_BUSY: `until` has come.
 * RC_LOST: our node is gone.  RC_AGAIN: the connection is.
 */
enum rc turn_doze(struct zk *, instant beat, instant until, struct fault *);

/* When to look next while we are that near. */
instant turn_beat(const struct zk *);

/*
 * Is it frozen, by the names of children of the lock, or of that part of it (FREEZE_PART)?
 * Then whoever has a place from which it would hold waits.  Removes what has ended.
 */
enum rc turn_heed_freeze(
    struct zk *, struct place *, const char *part, const struct queue *, struct fault *);

/* From here on we are no waiter whom those behind may take for dead. */
enum rc turn_serve(struct zk *, struct fault *);

/* ---- permit.c, single.c: as turn_await() and turn_earn() ---- */

/* It is our turn in K: waits for a permit. */
enum rc permit_take(struct zk *, instant until, struct fault *);

/* Removes whatever an attempt has left that did not come to its end. */
enum rc permit_sweep(struct zk *, instant until, struct fault *);

enum rc single_take(struct zk *, instant until, struct fault *);

/* ---- holders.c, stranger.c ---- */

/* Nobody has left a turn unused, as far as we have seen. */
void idlers_forget(struct idlers *);

/*
 * Reads the node of the first, shows it, and deletes it if its owner has died.  `all`: also of
 * the others, a few at a time; one that is idle is looked at again.
 */
enum rc holders_look_at(struct zk *, bool all, struct fault *);

/* Shows one who is at that position before permits are taken, while so many are held. */
void holders_show_permits(struct zk *, size_t position, size_t held);

/*
 * We have a place, as the turn's list has it.  RC_PROTOCOL or RC_CONFIG: we cannot share the
 * directory.
 */
enum rc stranger_refuse(struct zk *, struct fault *);

/* ---- look.c, steer.c: as admin_ops has them, with a session ---- */

/* Everything below `chroot`; or look->key, which has that directory; or what is locked there. */
enum rc look_below(
    const struct lockdir *, const char *chroot, const struct look *, struct fault *);
enum rc look_into(const struct lockdir *, const struct look *, struct fault *);

/* The runs of all locks below `chroot`; NULL: of this lock. */
enum rc look_at_jobs(
    const struct lockdir *, const char *chroot, const struct look *, struct fault *);

struct steering {
	struct lockdir *dir; /* the lock's */
	instant until;
	const struct target *target; /* to be revoked, */
	bool force;                  /* and that at once */
	const char *record;          /* who does it, and why */
	const char *once;            /* the ID whose run is forgotten; NULL: all */
	char freeze[FREEZE_BYTES];   /* its name, if it is to be made */
	bool asked; /* a server was asked to mark or remove what is to go; */
	bool again; /* it was in an earlier attempt, which got no answer */
};

/* Awaits a change of what is to go; it may have been made though no answer came. */
enum rc steering_changed(struct steering *, struct call *, struct fault *);

/* RC_DENIED: what stands at that path is another user's. */
enum rc steering_denied(const struct steering *, const char *path, struct fault *);

/* Each may be repeated after RC_AGAIN. */
enum rc steering_revoke(struct steering *, struct fault *);
enum rc steering_freeze(struct steering *, struct fault *);
enum rc steering_thaw(struct steering *, struct fault *);
enum rc steering_forget(struct steering *, struct fault *); /* jobs.c */

#endif
