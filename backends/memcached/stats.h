/*
 * stats.h - what a memcached server says of itself, and what that means for locks: how
 * much it can have forgotten, whether its clock runs, and which token a grant has.
 */
#ifndef DLOCK_MEMCACHED_STATS_H
#define DLOCK_MEMCACHED_STATS_H

#include "backends/backend.h"

enum { US_PER_S = 1000000 };

struct stats {
	char version[24];     /* hostile */
	int64_t uptime, time; /* seconds; the latter since 1970; -1: not told */
	uint64_t evictions, flushes;
	/* of `stats settings`: when it was flushed, as the server counts; -1: not told */
	int64_t oldest;
};

void stats_init(struct stats *);

/* Takes in one line STAT NAME VALUE. */
void stats_add(struct stats *, const char *name, const char *value);

/* RC_OK, or RC_CONFIG and why no lock can be kept there. */
enum rc stats_check(const struct stats *, const char *where, struct fault *);

/* For how many seconds, at least, the server has neither been started nor told to forget all. */
int64_t stats_age(const struct stats *);

/* ---- tokens ---- */

/*
 * memcached numbers all changes that are made there, whatever the item, in one count: the
 * CAS.  Eviction and flush_all leave that count alone; only a restart begins it anew, at a
 * later second.  So a token is the second in which the server was started, in microseconds,
 * and the number of the change that added the lock's item:
 *
 *	(time - uptime) * 1000000 + CAS
 *
 * A lock has one item at a time, which gets its number when it is added, so tokens grow
 * while the server runs.  They also grow over a restart if all of them are below the
 * server's clock.  That is so while the server counts less than a million changes a
 * second, and no token is given otherwise.
 *
 * The number is known only after the item was added.  So an item is added with a token of
 * 0, and its own CAS tells the token until the holder writes it again with that token.
 */

/* Of an item that was added with this CAS; 0: the server has counted too many changes. */
uint64_t stats_token(const struct stats *, uint64_t cas);

/* The seconds until there is a token for it. */
int64_t stats_token_missing(const struct stats *, uint64_t cas);

/* ---- the server's clock ---- */

/*
 * The server's clock is the whole seconds of the machine's clock when a timer last looked.
 * The timer looks a little less often than once a second, so the clock goes on by two
 * seconds now and then.  So an item ends up to two seconds early, and one second earlier
 * still where tick_goes_on() does not notice that the clock is late.  An item is kept for
 * that much longer than its lease.
 */
enum { ENDS_EARLY = 2, LEASE_BEYOND = ENDS_EARLY + 1 };

/* A longer time would be read as a date. */
enum { EXPTIME_MOST = 30 * 86400 };

/*
 * The timer runs in another thread than the one that answers.  After the process stood
 * still (SIGSTOP, a paused machine), requests that have waited for it may be answered by
 * the clock of before: an item that is stored then ends too early by as much.
 */
struct tick {
	bool known;
	instant at; /* not before the server read its clock */
	int64_t time;
	/* the last answer was not believed: when the question was sent, and what it said */
	bool doubted;
	instant doubt_at;
	int64_t doubt_time;
};

/*
 * The server's clock said `time` to a question that was sent at `sent` and answered at
 * `heard`.  False: the clock stands still, or did.  A paused machine may leave the clock
 * behind for good: it is believed again once it has gone on by itself.
 */
bool tick_goes_on(struct tick *, instant sent, instant heard, int64_t time);

#endif
