/*
 * supervise.pml - Goal: whichever of keeper and front is killed or frozen, at any moment,
 * nothing that the lock covers runs while another may have it.
 *
 * What stands for what:
 *
 *	Keeper	cmd/supervise/react.c: react_to(), carry_out(); command.c: command_start(), command_reap();
 *		cmd/supervise/incoming.c: incoming_wait();
 *		and what cmd/supervise/step.c decides: granted(), renewed(), overtaken(),
 *		guard_tree(), finished(), give_back()
 *	Front	cmd/supervise/front.c: watch_keeper(), stop_command(), take_over(),
 *		kill_everything(), hear_keeper(); and what cmd/supervise/watch.c decides
 *	Tree	the stub of cmd/supervise/command.c, the command, and what it has started
 *	Fate	kills and freezes
 *	Time	one clock, in ticks, and the server, which gives the lock to another as
 *		soon as our lease has ended or was released
 *
 * Each `atomic` is what nobody can come between: between any two of them a process may be
 * frozen for any time, or killed.  Who is awake acts at its deadlines, so time stands
 * still until it has; everything else may happen now or later.  A renewal is granted
 * when it is sent, or never; its answer comes at any later time, or never.
 * FAULTS times something is killed or frozen, but only while the other one is alive and
 * awake: against the loss of both at once there is only the token.
 *
 * With FOREVER the lock has no lease: it is a descriptor that keeper and front have (file,
 * pg); then a keeper that is silent for long is given up.  With WAIT_TREE the lock covers
 * all descendants.
 *
 * Left out: --min-hold, nested runs, --max-run, --kill-after, breaking by hand, what the server takes
 * away, an interrupt or an end of the connection that the keeper does not see,
 * descendants that nobody can see or kill, and clocks of different rates.
 *
 * Checked:
 *	EXCLUSION	nothing covered runs when another has the lock
 *	RELEASE		nothing covered runs when the keeper releases, or settles
 *	OWN_END		what the front has stopped is not told as the command's own end
 * and that nothing covered is left when nothing can happen any more.
 *
 * With BUG=n the model is wrong on purpose, and a check has to say so:
 *	1  the keeper releases when the command is gone, whatever is left of a tree it stops	RELEASE
 *	2  the keeper does not look whether the front has stopped the command (FOREVER)	OWN_END
 *	3  the keeper settles as soon as it asks the command to stop				EXCLUSION
 *	4  the stub does not look whether "go" came in time					EXCLUSION
 *	5  deadlines count from the answer, not from the request				EXCLUSION
 *	6  the front does not kill								EXCLUSION
 *	7  the front kills all without saying so first (FOREVER)				OWN_END
 */
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef BUG
#define BUG 0
#endif
#ifdef FOREVER
#define HAS_END false
#else
#define HAS_END true
#endif
#ifdef WAIT_TREE
#define WAITS_FOR_TREE true
#else
#define WAITS_FOR_TREE false
#endif

#define LEASE 6
#define TERM_AT 2 /* after the request */
#define KILL_AT 4
#define SLACK 1	  /* before the front acts */
#define GRACE 1	  /* for a command whose front is gone */
#define SILENCE 2 /* before a keeper that is frozen is given up */
#define NEVER 255

mtype:life = { STUB, RUNS, DEAD }; /* of what the command starts, STUB: not yet started */
mtype:event = { TICK, ENDED, EMPTY, RENEWED, ORPHANED };
mtype:deed = { NOTHING, TERM, KILL, SETTLE, TAKE_OVER };
mtype:state = { AWAKE, FROZEN, GONE };

mtype:state keeper = AWAKE, front = AWAKE;
mtype:life command = STUB, rest = STUB;
byte faults = FAULTS;
byte ends; /* at the server: our lease; 0: another has the lock, or may have it */

/* The page.  Its times are ticks until the front's turn, SLACK after the keeper's. */
bool granted, settled, stopping, told;
byte term_at = NEVER, kill_at = NEVER;

/* The keeper's. */
bool busy_keeper; /* in the midst of its steps */
bool gone, none_left, own_stopping, lost, killing, orphaned, own_end;
byte age = NEVER;    /* of the renewal under way */
byte earned = NEVER; /* of the request whose answer is there */
byte stop_by = NEVER, silent;
byte latest = NEVER; /* ticks for the stub to begin in */
bool go;

bool busy_front;

/* What is true, whoever knows it: was the command stopped before it ended, and by the front? */
bool cut, cut_by_front;

#define COVERED (command == RUNS || (rest == RUNS && (cut || WAITS_FOR_TREE)))
#define LIVES (command == RUNS || rest == RUNS)
#define K (keeper == AWAKE)
#define F (front == AWAKE)
#define TERM_DUE (term_at <= SLACK)
#define KILL_DUE (kill_at <= SLACK)
#define LATER(at, than) (at > than -> at - than : 0)

inline stops(by_front)
{
	cut = cut || command == RUNS;
	cut_by_front = cut_by_front || (by_front && command == RUNS)
}

inline kill_command(by_front)
{
	stops(by_front);
	command = DEAD
}

inline kill_rest()
{
	rest = (rest == RUNS -> DEAD : rest)
}

inline no_longer_ours()
{
	assert(!COVERED); /* RELEASE */
	ends = 0
}

/* Its parent's death kills the stub or command, and a descriptor may have been the last. */
inline keeper_dies()
{
	keeper = GONE; busy_keeper = false;
	kill_command(true);
	if
	:: !HAS_END && front == GONE -> no_longer_ours()
	:: else
	fi
}

inline front_ends()
{
	front = GONE; busy_front = false;
	if
	:: !HAS_END && keeper == GONE -> no_longer_ours()
	:: else
	fi
}

/* ---- the keeper ---- */

#define KEEPER_DUE (go && !none_left && \
	((TERM_DUE && !lost) || (!killing && (KILL_DUE || stop_by == 0)) || (killing && LIVES)))
#define MAY_RENEW (HAS_END && age == NEVER && !lost && term_at > SLACK && term_at < TERM_AT + SLACK)

/* step() */
inline decide()
{
	if
	:: heard == RENEWED && (lost || TERM_DUE) -> earned = NEVER /* too late: it changes nothing */
	:: heard == ENDED -> gone = true; own_end = !lost && !orphaned
	:: heard == EMPTY -> none_left = true
	:: heard == ORPHANED -> orphaned = true
	:: else
	fi;
	if
	:: earned != NEVER -> term_due = earned >= TERM_AT; kill_due = earned >= KILL_AT
	:: else -> term_due = TERM_DUE; kill_due = KILL_DUE
	fi;
	if
	:: term_due -> lost = true; own_end = false
	:: else
	fi;
	if
	:: ((own_stopping || lost) && BUG != 1 -> none_left : gone && (none_left || !WAITS_FOR_TREE)) -> todo = SETTLE
	:: else ->
		if
		:: none_left -> todo = NOTHING
		:: !none_left && (kill_due || stop_by == 0 || killing) -> own_stopping = true; killing = true; todo = KILL
		:: else ->
			if
			:: !own_stopping && (lost || orphaned) ->
				own_stopping = true; todo = TERM;
				stop_by = (lost -> NEVER : GRACE)
			:: else -> todo = NOTHING
			fi
		fi
	fi;
	term_due = false; kill_due = false; heard = TICK
}

proctype Keeper()
{
	mtype:event heard = TICK;
	mtype:deed todo = NOTHING;
	bool term_due, kill_due;

	{
	/* What was asked for is granted; the answer takes its time. */
	atomic { K -> ends = LEASE; age = 0 }
	atomic { K -> earned = (BUG == 5 -> 0 : age); age = NEVER; busy_keeper = true;
		if
		:: HAS_END && earned >= TERM_AT -> gone = true; none_left = true; command = DEAD; todo = SETTLE; goto settles
		:: else
		fi }
	/* start_command() */
	if
	:: HAS_END ->
		atomic { K -> term_at = LATER(TERM_AT + SLACK, earned); latest = LATER(TERM_AT, earned) }
		atomic { K -> kill_at = LATER(KILL_AT + SLACK, earned) }
	:: else
	fi;
	atomic { K -> earned = NEVER; granted = true }
	atomic { K -> go = true; busy_keeper = false }

wait:	atomic { K ->
		if
		:: command == DEAD && !gone -> heard = ENDED; busy_keeper = true
		:: gone && !none_left && !LIVES -> heard = EMPTY; busy_keeper = true
		:: front == GONE && !orphaned -> heard = ORPHANED; busy_keeper = true
		:: age != NEVER -> heard = RENEWED; earned = age; age = NEVER; busy_keeper = true
		:: KEEPER_DUE -> heard = TICK; busy_keeper = true
		/* A renewal is granted now, or never. */
		:: MAY_RENEW ->
			if
			:: ends -> ends = LEASE; age = 0
			:: age = LEASE
			fi;
			goto wait
		fi }
	/* What the front has done comes first, */
	atomic { K ->
		if
		:: stopping && !own_stopping && BUG != 2 -> own_stopping = true; lost = true; own_end = false
		:: else
		fi }
	/* then what is to be done now, */
	atomic { K -> decide() }
	/* and that it is done. */
	if
	:: earned != NEVER ->
		atomic { K -> term_at = LATER(TERM_AT + SLACK, earned) }
		atomic { K -> kill_at = LATER(KILL_AT + SLACK, earned); earned = NEVER }
	:: else
	fi;
	if
	:: todo == TERM ->
		atomic { K ->
			if
			:: stopping -> goto done
			:: else -> stopping = true
			fi }
#if BUG == 3
		atomic { K -> settled = true }
#endif
		atomic { K -> stops(false) }
	:: todo == KILL -> atomic { K -> kill_command(false); kill_rest() }
	:: todo == SETTLE -> goto settles
	:: todo == NOTHING
	fi;
done:	atomic { K -> todo = NOTHING; busy_keeper = false; goto wait }

settles:
	atomic { K -> settled = true;
		assert(!COVERED); /* RELEASE */
		assert(!own_end || !cut_by_front) /* OWN_END */ }
	atomic { K -> no_longer_ours() }
	atomic { K -> told = true }
	atomic { K -> keeper = GONE; busy_keeper = false }
	} unless { keeper == GONE }
}

/* ---- the front ---- */

#define FRONT_DUE ((granted && !settled && ((kill_at == 0 && BUG != 6) || (term_at == 0 && !stopping))) || \
	keeper == GONE || (!HAS_END && silent >= SILENCE))

proctype Front()
{
	bool seen_granted, seen_settled, seen_stopping;
	mtype:deed duty = NOTHING;

	{ skip;
	/* view_of(): one after the other */
look:	atomic { F -> busy_front = true; seen_granted = granted; seen_settled = settled }
	atomic { F -> seen_stopping = stopping }
	/* watch() */
	atomic { F ->
		if
		:: keeper == GONE || (!HAS_END && silent >= SILENCE) -> duty = TAKE_OVER
		:: else ->
			if
			:: seen_granted && !seen_settled && kill_at == 0 && BUG != 6 -> duty = TAKE_OVER
			:: seen_granted && !seen_settled && kill_at && term_at == 0 && !seen_stopping -> duty = TERM
			:: else
			fi
		fi;
		seen_granted = false; seen_settled = false; seen_stopping = false }
	if
	:: duty == TERM ->
		/* stop_command() */
		atomic { F ->
			if
			:: stopping -> goto looked
			:: else -> stopping = true
			fi }
		atomic { F -> stops(true) }
	:: duty == TAKE_OVER -> goto take_over
	:: duty == NOTHING
	fi;
looked:	atomic { F -> duty = NOTHING; busy_front = false; goto look }

take_over:
	atomic { F -> duty = NOTHING;
		if
		:: settled && keeper != GONE -> keeper_dies(); front_ends(); goto over
		:: settled && keeper == GONE -> front_ends(); goto over
		:: else
		fi }
	/* kill_everything() */
#if BUG != 7
	atomic { F -> stopping = true }
#endif
	atomic { F -> kill_command(true) }
	atomic { F ->
		if
		:: keeper != GONE -> keeper_dies()
		:: else
		fi }
	atomic { F -> kill_rest() }
	atomic { F -> front_ends() }
over:	skip
	} unless { front == GONE }
}

/* ---- everything else ---- */

proctype Tree()
{
end:	do
	:: atomic { command == STUB && go && (latest || BUG == 4) -> command = RUNS; assert(ends) /* EXCLUSION */ }
	:: atomic { command == STUB && go && !latest -> command = DEAD }
	:: atomic { command == RUNS -> command = DEAD } /* of itself, or asked to */
	:: atomic { command == RUNS && rest == STUB -> rest = RUNS }
	:: atomic { rest == RUNS -> rest = DEAD }
	od
}

proctype Fate()
{
end:	do
	:: atomic { faults && K && F -> faults--; keeper = FROZEN }
	:: atomic { faults && K && F -> faults--; front = FROZEN }
	:: atomic { faults && keeper != GONE && F -> faults--; keeper_dies() }
	:: atomic { faults && front != GONE && K -> faults--; front_ends() }
	:: atomic { keeper == FROZEN -> keeper = AWAKE; silent = 0 }
	:: atomic { front == FROZEN -> front = AWAKE }
	od
}

inline less(x)
{
	x = (x && x != NEVER -> x - 1 : x)
}

inline more(x)
{
	x = (x < LEASE -> x + 1 : x)
}

proctype Time()
{
	do
	:: d_step { !(K && (busy_keeper || KEEPER_DUE)) && !(F && (busy_front || FRONT_DUE)) &&
			(keeper != GONE || front != GONE || ends) ->
			if
			:: HAS_END -> less(ends)
			:: else
			fi;
			less(term_at); less(kill_at); less(latest); less(stop_by);
			more(age); more(earned);
			silent = (keeper == FROZEN && silent < SILENCE -> silent + 1 : silent);
			assert(ends || !COVERED) /* EXCLUSION */ }
	:: keeper == GONE && front == GONE && !ends -> assert(!COVERED) /* EXCLUSION */; break
	od
}

init
{
	atomic { run Keeper(); run Front(); run Tree(); run Fate(); run Time() }
}
