/*
 * etcd.h - one store in etcd, as the files of this directory share it.
 *
 * The layers, each of which knows only those before it:
 *
 *	kv.h       requests and answers of the key-value store, as JSON
 *	cluster.h  calls to the members of a cluster, in turn, and a watch; replies of HTTP
 *	queue.h    names and values of what is kept; who is before us, and whether that lets us in
 *	credit.h   for how long a lease is ours (its proof)
 *
 * acquire.c takes a lock, lock.c holds it, look.c looks, admin.c steers, check.c tells how
 * fit it is, site.c reads what the user has named.
 *
 * What is promised, and by what:
 *
 *  1. Who holds a lock is decided by etcd alone, by the order of create revisions in the
 *     lock's queue: the order of etcdctl's lock and of Go's concurrency.Mutex, which exclude
 *     dlock and are excluded.  A grant is a transaction, and a freeze is a condition of it.
 *  2. A hold lasts as long as its lease.  A lease counts from before the request that renewed
 *     it, and only if the answers prove it (credit.h).
 *  3. Our key and our leases have names that only we use, made of the claim's owner.  So each
 *     request may be made twice: what has been done already is seen by who asks again.
 *  4. What arrives late can only be a grant of our lease and our key in the queue (a ghost,
 *     which ends with that lease), a second write of our own key's value (harmless), or a
 *     release (of what is ours, and no other's).
 *  5. A waiter has a place with a short lease, which it renews; so a dead one blocks nobody
 *     for long.  With the grant the key passes to the lease that was asked for.  The key's
 *     create revision stays.
 *  6. A waiter watches one key of another, so a release wakes one.
 *  7. A holder watches its own key, and the mark of who asks for it back, from its first
 *     renewal on: short runs do not pay for it.
 *  8. A full database takes no grant, but renews, and lets our key go.  Only the release of a job
 *     needs room; without it the lock ends with its lease.  Before 3.4.20 and 3.5.7 it refuses
 *     every transaction, also a renewal's; a release revokes the lease then.
 *  9. The value of a key is written by whom it names and believed only after a check of form;
 *     nothing in it decides about exclusion, but for `held`, by which a queue is shown.
 */
#ifndef DLOCK_ETCD_H
#define DLOCK_ETCD_H

#include "backends/common/retry.h"
#include "credit.h"
#include "queue.h"

struct etcd {
	struct store base;
	/* where locks are kept (site.c) */
	struct address address;
	char root[ROOT_MOST + 1];
	const char *name; /* of etcdctl's lock; NULL: each key has its own */
	char server_name[WHERE_BYTES];

	struct cluster cluster;
	struct retry retry;

	/* the claim (lock.c) */
	const struct claim *claim;
	bool waits; /* for its turn */
	struct names names;
	char own[LONG_BYTES];  /* our key in the queue */
	char mark[LONG_BYTES]; /* who asks for it back writes this key */
	int64_t lease;         /* of the hold */
	instant lease_sent;    /* it lasts from then, as is proved; 0: not known */
	int64_t lease_ttl;     /* for so long */
	int64_t place_lease;   /* of the place in the queue; 0: we never had one */
	unsigned nth;          /* time that we queue */
	struct queue queue;    /* by the last survey; `create` 0: not in it */
	unsigned position;
	instant beat; /* when the place is to be renewed */
	bool busy;    /* there was a queue, which we join */
	bool adrift;  /* we have a place in it, as far as we know, but no watch */

	/* what may be on the server */
	bool asked; /* anything of ours */
	bool granted;
	bool unsure; /* a release was not answered */
	int64_t token;
	unsigned slot;
	int64_t began; /* the grant, by the server's clock */
};

extern const struct backend etcd_backend;

static inline struct etcd *
etcd_of(struct store *s)
{
	return (struct etcd *)store_of(s, &etcd_backend);
}

/* ---- lock.c and acquire.c ---- */

enum { LEASE_S_MOST = 1000 * 1000 * 1000 };

/* Seconds as etcd says them, which may be any (hostile): 30 years are endless enough. */
static inline int64_t
etcd_lease_ns(int64_t ttl)
{
	return (ttl < LEASE_S_MOST ? ttl : LEASE_S_MOST) * NS_PER_S;
}

/* A linearizable read, the first part of a proof (credit.h). */
struct call etcd_call_read(const struct etcd *);

/* What the answers to a read, a keep-alive and another read say; `ours`, by the last one. */
struct credit credit_of(const struct call[3], bool ours);

/*
 * Renews our lease, and reads our key at a revision of the store.  RC_BUSY: the answers prove
 * nothing.  Otherwise as lock_ops.renew.
 */
enum rc etcd_renew_lease(
    struct etcd *, instant until, struct grant *, int64_t *revision, struct fault *);

enum rc etcd_acquire(
    struct store *, const struct claim *, instant until, struct grant *, struct fault *);

/* ---- look.c and check.c ---- */

enum rc etcd_each(struct store *, const struct look *, struct fault *);

/*
 * With -v, names a server whose version lets an old leader end leases that live.  RC_OK, also if
 * it cannot be had; or RC_STOP.
 */
enum rc etcd_warn_of_version(struct etcd *, instant until);

enum rc etcd_check(struct store *, struct checkup *, struct fault *);

extern const struct lock_ops etcd_lock;
extern const struct admin_ops etcd_admin;

#endif
