/*
 * zk.h - a store in ZooKeeper: what zk.c opens and claim.c works on.
 */
#ifndef DLOCK_ZK_ZK_H
#define DLOCK_ZK_ZK_H

#include "jobs.h"
#include "permit.h"

/* between attempts to do what a server has not answered */
#define RETRY (100 * NS_PER_MS)

struct zk {
	struct store base;
	const struct claim *claim;
	struct ensemble ensemble;
	char where[WHERE_BYTES];
	struct retry patience;
	struct lockdir dir;
	struct node node; /* and the session that it lives in */
	struct turn turn;
	struct permit permit; /* with KIND_LIMIT */
	struct jobs jobs;     /* of a job */
	instant silent_since; /* from when on renewals went unanswered; NEVER */
};

extern const struct backend zk_backend;

static inline struct zk *
zk_of(struct store *s)
{
	return (struct zk *)store_of(s, &zk_backend);
}

/* A session of `ttl`; the one that there is, if it lives.  As session_await(). */
enum rc claim_connect(struct zk *, int64_t ttl, instant until, struct fault *);

/* The session is no more, and with it our node, or soon. */
void claim_leave_session(struct zk *);

/* As lock_ops has them. */
enum rc claim_acquire(
    struct store *, const struct claim *, instant until, struct grant *, struct fault *);
enum rc claim_renew(struct store *, instant until, struct grant *, struct fault *);
enum rc claim_release(struct store *, int status, instant until, struct fault *);

#endif
