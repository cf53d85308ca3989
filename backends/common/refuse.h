/*
 * refuse.h - why a lock is not given to a claim, in the same words on every backend.
 *
 * What is said of others comes from where they wrote it, and is hostile: numbers
 * may be anything, and a name is cut to size.
 */
#ifndef DLOCK_REFUSE_H
#define DLOCK_REFUSE_H

#include "backends/backend.h"

/*
 * RC_PROTOCOL: the key is in use as `kind` (and `limit`), beside which the claim may not
 * even wait.
 */
enum rc refuse_kind(struct fault *, const char *where, enum lock_kind kind,
    unsigned limit, const struct claim *);

/*
 * RC_DONE: a run of the job's ID that began so many milliseconds after 1970 has ended
 * with 0.  who "": not known.
 */
enum rc refuse_done(
    struct fault *, const struct job *, int64_t began_ms, const char *who);

/*
 * RC_DONE: the last run that ended with 0 began `age` ago, which is less than the job's
 * cooldown.
 */
enum rc refuse_recent(struct fault *, const struct job *, int64_t age);

/*
 * `rc`, RC_REVOKED or RC_LOST: somebody, whose `record` came with that, asks for a hold
 * back or has taken it by force.  The record goes to host->breaker if it is no longer
 * than one may be.
 */
enum rc refuse_broken(
    struct host *, struct fault *, enum rc, const char *where, const char *record);

#endif
