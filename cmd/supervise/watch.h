/*
 * watch.h - the front's state machine: does the keeper do its duty?
 *
 * watch() is pure, as step() is, so tests/model/simulate.c can run both against each other.
 *
 * It promises, as long as the front itself is awake:
 *
 *  1. DUTY_TERM when the keeper has not stopped the command by term_at + SLACK,
 *     DUTY_KILL when it has not ended by kill_at + SLACK: a keeper that is
 *     frozen or starved costs the command, never exclusion.
 *  2. Nothing of the kind once the page says that nothing is left that needs
 *     the lock; then a keeper that will not go is left behind after
 *     KEEPER_PATIENCE.
 *  3. A keeper that has given no sign of life for a whole ttl is given up, also
 *     where no lease would end.  A keeper that wants a processor is not frozen, and
 *     has a minute more (watch_bear()).
 */
#ifndef DLOCK_WATCH_H
#define DLOCK_WATCH_H

#include "step.h"

/* what a keeper that does its duty is given beyond each deadline */
#define SLACK (50 * NS_PER_MS)
#define KEEPER_PATIENCE (3 * NS_PER_S) /* for a keeper that only has to release */
/* for a silent keeper, of our own time awake: after a suspend both are late */
#define DOUBT (2 * NS_PER_S)
/*
 * A keeper that wants a processor is doubted anew so often in a row, for a minute in all: a
 * hundred may begin at once on a small machine.
 */
enum { BORNE_MOST = 30 };

/* for a keeper whose lock has ended with its connection */
#define ANCHOR_PATIENCE (200 * NS_PER_MS)
/* for a keeper that has to leave the queue */
#define INTERRUPT_PATIENCE (1500 * NS_PER_MS)

/* The shared page at one moment. */
struct watch_page {
	bool granted, finished, stopping;
	instant term_at, kill_at, alive_at;
};

struct watch {
	int64_t ttl, grace;
	instant interrupt_by, release_by, doubt_by, adrift_by; /* NEVER: not counting */
	int borne;                                             /* times in a row */
};

enum duty {
	DUTY_NONE,
	DUTY_TERM,      /* say so in the page, then ask the command to stop */
	DUTY_INTERRUPT, /* the keeper does not leave the queue: kill everything */
	DUTY_KILL,      /* the keeper is past kill_at: the same */
	DUTY_ADRIFT,    /* the lock has ended with its connection: the same */
	DUTY_GIVE_UP,   /* the keeper is frozen: the same, or leave it if nothing runs */
};

struct watch_due {
	enum duty duty;
	instant wake; /* look again no later than this */
};

void watch_init(struct watch *, int64_t ttl, int64_t grace);

/* A signal has come that should end the waiting. */
void watch_interrupted(struct watch *, instant now);

/* The connection that is the lock has ended. */
void watch_adrift(struct watch *, instant now);

struct watch_due watch(struct watch *, instant now, const struct watch_page *);

/*
 * The keeper is to be given up (DUTY_GIVE_UP), but wants a processor: doubts it anew, unless it has
 * been borne for long enough, or nothing is left that needs the lock.
 */
void watch_bear(struct watch *, instant now, const struct watch_page *);

#endif
