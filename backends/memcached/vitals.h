/*
 * vitals.h - what a memcached server says of itself (stats), as far as locks depend on it.
 */
#ifndef DLOCK_MEMCACHED_VITALS_H
#define DLOCK_MEMCACHED_VITALS_H

#include "backends/backend.h"

struct vitals {
	char version[24];     /* hostile */
	int64_t uptime, time; /* seconds; the latter since 1970; -1: not told */
	uint64_t evictions, flushes;
	/* of `stats settings`: when it was flushed, as the server counts; -1: not told */
	int64_t oldest;
};

void vitals_init(struct vitals *);

/* Takes in one line STAT NAME VALUE. */
void vitals_add(struct vitals *, const char *name, const char *value);

/* RC_OK, or why no lock can be kept there. */
enum rc vitals_check(const struct vitals *, const char *where, struct fault *);

/* Seconds since it began, at least; and since that, or since it was last told to forget all. */
int64_t vitals_uptime(const struct vitals *);
int64_t vitals_age(const struct vitals *);

/*
 * Its clock is what the whole seconds of the machine's were when a timer last looked, which does
 * so a little less often than once a second: now and then it goes on by two at once.  So an item
 * ends up to two seconds early, and by one more for what tick_goes_on() does not see: so much
 * longer is asked for.
 */
enum { ENDS_EARLY = 2, LEASE_BEYOND = ENDS_EARLY + 1 };

/* ---- does its clock go? ---- */

/*
 * memcached reads its clock once a second, in another thread than the one that answers.
 * After the process stood still (SIGSTOP, a paused machine) what waited for it may be
 * answered by a clock that stands at the time of the stop: an item stored then ends too
 * early by so much.
 */
struct tick {
	bool known;
	instant at; /* not before the server read its clock */
	int64_t time;
	/* the last answer was not believed: when it was asked for, and what it was */
	bool doubted;
	instant doubt_at;
	int64_t doubt_time;
};

/*
 * The server's clock said `time` to a question sent at `sent` and answered at `heard`.
 * False: it stands still, or has.  A machine that was paused may have a clock that stays
 * behind for good: once that has gone on by itself, it is believed again.
 */
bool tick_goes_on(struct tick *, instant sent, instant heard, int64_t time);

#endif
