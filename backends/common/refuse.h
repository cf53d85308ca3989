/*
 * refuse.h - the sentences with which all backends refuse a claim.
 */
#ifndef DLOCK_COMMON_REFUSE_H
#define DLOCK_COMMON_REFUSE_H

#include "backends/backend.h"

/*
 * RC_PROTOCOL: the key is in use as `kind` (and `limit`), beside which the claim may not
 * even wait.
 */
enum rc refuse_kind(struct fault *, const char *where, enum lock_kind kind,
    unsigned limit, const struct claim *);

/*
 * RC_DONE: a run of the job's ID has ended with this status, which the host is told; it began
 * `began_ms` milliseconds after 1970.  `who` is "" where that is not known.
 */
enum rc refuse_done(struct host *, struct fault *, const struct job *, int status,
    int64_t began_ms, const char *who);

/*
 * RC_DONE: the last run that ended with 0 began `age` nanoseconds ago; below 0: it is dated
 * ahead.
 */
enum rc refuse_recent(struct fault *, const struct job *, int64_t age);

/*
 * Returns `rc`: RC_REVOKED where somebody asks for the hold back, RC_LOST where somebody has
 * taken it by force.  That one's `record` goes to host->breaker, unless it is longer than a
 * record may be.
 */
enum rc refuse_broken(
    struct host *, struct fault *, enum rc, const char *where, const char *record);

#endif
