/*
 * front_state.h - the process that the user sees, as its own files know it: front.c, front_signals.c.
 */
#ifndef DLOCK_FRONT_STATE_H
#define DLOCK_FRONT_STATE_H

#include "run.h"

#include "events.h"
#include "loss.h"
#include "guard.h"
#include "loop.h"
#include "waiting.h"
#include "witness.h"

/* Processes below us, but not by way of the keeper: children from before. */
struct front_elders {
	struct processes spared;
	instant look_at; /* when to look for such again; NEVER: there is nobody */
};

struct front_end {
	bool over;
	struct ending ending;
	char words[RECORD_BYTES]; /* the backend's */
};

/*
 * The command is suspended, and we are to be as well.  A shell's `fg` continues us a moment
 * before the command: what is still suspended then will not be in a moment.
 */
struct front_suspension {
	int sig;
	instant at;        /* when to see whether it still is; NEVER: not at all */
	instant continued; /* when we were, last */
	bool put_off;      /* of a run that waits: the keeper first gives up our place */
	bool hung_up; /* the command has got the SIGHUP that is still to come to us */
	struct guard guard; /* while we are suspended */
};

/* The other process. */
struct front_keeper {
	pid_t pid; /* 0: reaped */
	int link;  /* -1: end of file seen */
	/* when to begin to listen to the keeper; NEVER: we do already */
	instant listen_from;
	bool granted; /* the keeper has said so: it goes on to say so in the page */
	struct anchors anchors; /* keep the lock while we live, and break if it ends */
	size_t broken;          /* of them, once the watch knows that one is */
	int joined; /* of a hold with anchors: ends with the last that has joined; or -1 */
	int watched; /* of one that has joined such a hold: ends with us; or -1 */
};

struct front {
	const struct run *run;
	const struct params *params;
	struct page *page;
	struct front_keeper keeper;
	pid_t parent; /* ours, when we began */
	struct parent with_parent;
	struct loop loop;
	struct front_elders elders;
	struct watch watch;
	instant duty_at; /* when it may be ours to act for the keeper */
	struct front_suspension suspension;
	struct witness witness;
	instant witness_at; /* when to begin it; NEVER: we need none, or have done so */
	int interrupt; /* the signal that is to end us, as long as nothing has run; 0 */
	/*
	 * a bit for each signal passed on since the link is crowded:
	 * [the command had it][whom else it reached][from a key][its sender]
	 */
	uint64_t passed_on[2][REACHES][2][SENDERS];
	uint64_t given; /* and for each that our group has got since the grant */
	bool printed;   /* a hold, for its asker, which has not been left yet */
	struct front_end end;
	struct threat threat;
	struct waiting waiting;
};

/* Was the lock granted, as far as the front knows? */
static inline bool
front_has_grant(const struct front *f)
{
	return f->keeper.granted || atomic_load(&f->page->granted_at) != 0;
}

#endif
