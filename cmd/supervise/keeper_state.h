/*
 * keeper_state.h - the state of the process that keeps the lock, for the files that work on it.
 *
 *	keeper.c    its story, from the fork to the end, and the calls to the backend
 *	incoming.c  all its waiting, in one place, and what may come there
 *	react.c     each event goes to step(), and what that decides is carried out
 *	command.c, script.c  what it guards (ward.h)
 *	keeper_job.c  its place beside a shell's job, and a front that is suspended
 */
#ifndef DLOCK_KEEPER_STATE_H
#define DLOCK_KEEPER_STATE_H

#include "join_outer.h"
#include "lock.h"
#include "loop.h"
#include "news.h"

/* step() wants this of the main line, and of the call that it is in. */
struct todo {
	unsigned calls; /* DO_ACQUIRE, DO_RENEW, DO_RELEASE, DO_EXIT */
	instant until;  /* of the call to be made */
	instant wake;   /* for the next EV_TICK */
	bool end_call;  /* the call in flight is to return */
};

/* command.c: the stub, then the command.  Of a hold it is zeroed. */
struct command {
	pid_t pid;
	pid_t group; /* its own process group, or 0: the front's, with the terminal */
	int gate;    /* -1 once the program runs or never will */
	/* this is still to be sent through the gate: a stub may be stopped */
	const char *unsent;
	size_t nunsent;
	bool suspended; /* with the whole job, before the program ran */
	bool childless; /* the keeper is; but those that were seen below it may live */
};

/* keeper_job.c */
struct keeper_job {
	pid_t group;      /* the front's */
	instant leave_at; /* when to leave the session; NEVER: we have, or need not */
	int guard[2];     /* a pipe that continues a suspended front when we end; or -1 */
	instant look_at;  /* when to look whether the front is suspended */
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
	struct command command;
	pid_t root;    /* what descends from it may join; 0: anything */
	bool answered; /* somebody wanted the lock released, and knows how that ended */
	struct keeper_job job;
	struct join_outer socket; /* for inner runs, and a release; last: it is large */
};

#endif
