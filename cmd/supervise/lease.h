/*
 * lease.h - what is asked of a lease, and its arithmetic.
 *
 * The lease T counts from t_s, just before the request was sent that earned it; clocks may
 * differ in rate by 1 %, and KAPPA covers kill-to-reaped and our own scheduling.  All times
 * are nanoseconds.
 */
#ifndef DLOCK_LEASE_H
#define DLOCK_LEASE_H

#include "backends/backend.h"

#define KAPPA (500 * NS_PER_MS) /* from KILL to reaped */
/* of it, for finding those that are to be killed: the last one has SIGKILL by then */
#define KILL_FINDS (400 * NS_PER_MS)

/* The user's wishes, as far as time is concerned. */
struct terms {
	int64_t ttl;   /* lease to ask for */
	int64_t grace; /* from TERM to KILL */
	/* the user's word; otherwise it shrinks with a lease that is less than ttl */
	bool grace_fixed;
	/* keep the lock so long after the grant; 0: no longer than needed */
	int64_t min_hold;
	int64_t max_run; /* let the command run so long; NEVER: as long as it likes */
	/* let it run so long after a signal that asks us to end; NEVER: the same */
	int64_t kill_after;
	bool wait_tree; /* the lock covers all descendants, not the command alone */
};

/* When TERM and KILL are due for a lease earned by a request sent at `sent`. */
void lease_deadlines(
    instant sent, int64_t lease, int64_t grace, instant *term_at, instant *kill_at);

/* When to renew a lease for which the server's kind has no other wish. */
int64_t lease_pace(int64_t lease);

/*
 * Do two attempts to renew fit between `pace` and TERM?  Otherwise one lost packet
 * kills.
 */
bool lease_fits(int64_t lease, int64_t pace, int64_t grace);

/* The least ttl of whole seconds that fits `grace`. */
int64_t lease_least(int64_t grace);

/* The grace for a lease where nobody asked for another: a sixth, at most 5 s. */
int64_t lease_grace(int64_t lease);

/* How long one attempt to renew may take. */
int64_t lease_attempt(int64_t lease);

/* The pause before the next one, give or take a half. */
int64_t lease_backoff(int64_t lease);

#endif
