/*
 * signals.h - what becomes of a signal that one of dlock's processes gets.
 *
 * signal_decide() is pure: it knows what a struct signal_case says.  The front asks it for its
 * own part, the keeper with what it knows better than the front: what runs.  The table of all
 * cases stands in signals.c.
 */
#ifndef DLOCK_SIGNALS_H
#define DLOCK_SIGNALS_H

#include <stdbool.h>

/* Which process has got it. */
enum signal_getter { BY_FRONT, BY_KEEPER, BY_ASKER /* of a hold: cmd/hold.c */ };

/* The processes that it has reached as well. */
enum signal_reach {
	REACH_UNKNOWN,
	REACH_US,    /* that process alone */
	REACH_GROUP, /* the whole process group of the front */
	REACHES,
};

enum signal_sender {
	FROM_OTHERS,
	FROM_DLOCK,   /* the front itself, its keeper, or the kernel for these */
	FROM_COMMAND, /* the command itself, not what it has started */
	FROM_ASKER,   /* of a hold */
	SENDERS,
};

enum signal_state {
	SIGNAL_WAITS,       /* for the lock: nothing runs yet */
	SIGNAL_RUNS,        /* the command does */
	SIGNAL_RESTS,       /* it has ended, and others are waited for */
	SIGNAL_UNDELIVERED, /* a hold: granted, but nobody has been told */
	SIGNAL_DELIVERED,   /* a hold: its asker has been told */
	SIGNAL_OVER,        /* nothing is left that needs the lock */
};

struct signal_case {
	int sig;
	enum signal_getter getter;
	enum signal_reach reach;
	enum signal_sender sender;
	enum signal_state state;
	/* it ends a program that does nothing about it, and our caller does not ignore it */
	bool ends;
	bool by_key;      /* the terminal has sent it: INT, QUIT */
	bool terminal;    /* we have one */
	bool foreground;  /* and our process group is in its foreground */
	bool apart;       /* the command is not in our process group */
	bool suspended;   /* the command is */
	bool sent;        /* to the command, by loop_suspend_with() */
	bool had;         /* the command got it while that ran */
	bool may_suspend; /* a shell could continue us */
	bool for_nobody;  /* a hold with --for */
	bool min_hold;    /* others are shown the keeper's pid */
};

enum signal_deed {
	DEED_NOTHING,
	DEED_REAP,            /* a child has ended, or was suspended */
	DEED_END_WAITING,     /* give up the place, end by the signal */
	DEED_SUSPEND_WAITING, /* give up the place, be suspended, ask again when continued */
	DEED_SUSPEND,         /* be suspended, with those that are waited for */
	DEED_PASS_ON, /* to the command, RESTS: to all of those; asker: to the front */
	DEED_PASS_ON_OUTSIDE, /* RESTS: to those of them that are not in our process group */
	DEED_END_REST,        /* RESTS: --signal to all of them */
	DEED_END_HOLD,        /* give it back */
};

enum signal_deed signal_decide(const struct signal_case *);

/*
 * Tells by its si_code whom a signal has reached, where nothing else tells.  `leads`: the process
 * that has got it leads its session.
 */
enum signal_reach signal_reach_by_code(int sig, int code, bool leads);

/* Does it ask dlock itself to end, so that --kill-after counts?  Not by a key: programs use it. */
bool signal_asks(const struct signal_case *);

/* Does this signal suspend, as Ctrl-Z does? */
bool signal_suspends(int sig);

/* Would this signal have ended a program that does nothing about it? */
bool signal_is_end(int sig);

#endif
