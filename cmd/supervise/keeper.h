/*
 * keeper.h - the process that keeps the lock, for the files that it is made of.
 *
 *	keeper.c    its story, from the fork to the end, and the calls to the backend
 *	incoming.c  all its waiting, in one place, and what may come there
 *	react.c     each event goes to step(), and what that decides is carried out
 *	keeper_job.c  its place beside a shell's job, and a front that is stopped
 */
#ifndef DLOCK_KEEPER_H
#define DLOCK_KEEPER_H

#include "child.h"
#include "join_outer.h"
#include "lock.h"
#include "loop.h"
#include "news.h"

/* step() wants this of the main line, and of the call that it is in. */
struct todo {
	unsigned calls; /* DO_ACQUIRE, DO_RENEW, DO_RELEASE, DO_EXIT */
	instant until;  /* of the call to be made */
	instant wake;   /* for the next EV_TICK */
	bool stop;      /* the call in flight is to return */
};

/* See keeper_job.h. */
struct keeper_job {
	pid_t group;      /* the front's */
	instant leave_at; /* when to leave the session; NEVER: we have, or need not */
	int guard[2];     /* a pipe that continues a stopped front when we end; or -1 */
	instant look_at;  /* when to look whether the front is stopped */
};

struct keeper {
	struct host host; /* first: the backend's way back to us */
	const struct run *run;
	const struct params *params;
	struct page *page;
	struct keep keep; /* what step() knows */
	struct todo todo;
	bool for_ancestor; /* what we would wait for ends only after us */
	bool for_script;   /* the user was told that our own script has it */
	bool untold;       /* the front cannot be given the grant: nothing may begin */
	struct lock lock;
	char record[RECORD_BYTES]; /* with --min-hold: ours, not the front's */
	struct fault fault;        /* of the call that decided the ending */
	struct news news;          /* to the front, and the link from there */
	struct loop loop;
	struct child child;
	bool childless; /* but those that were seen below us may live */
	bool answered;  /* somebody wanted the lock released, and knows how that ended */
	struct keeper_job job;
	struct join_outer outer; /* last: it is large */
};

#endif
