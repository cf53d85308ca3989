/*
 * redlock.pml - Goal: no order of requests, delays, lapses and restarts of masters that
 * lose their data lets two clients hold one lock on a quorum of masters, though one asks
 * for long leases and the other for short ones.
 *
 * What stands for what:
 *
 *	Master			a Redis server without durable data.  One at a time may be down, as
 *				often as one likes; it comes back empty
 *	vote			backends/redis/redlock.lua: acquire, and `run`, who met it when
 *	renew			the same: extend, with healing
 *	Client			redlock.c: rounds that are served master by
 *				master, in any order and at any time, or never
 *	Time			one clock, in ticks
 *
 * A hold lasts for the lease, counted from before its round began.  Who has won a round
 * has perhaps been heard by the rest of the masters, too.  Votes of an earlier attempt are
 * given back before the next one; those that are not only keep others away for a while.
 *
 * Left out: clocks of different rates (the margins are for them), tokens, durable masters
 * (which forget nothing), and release (a hold that ends sooner).
 *
 * Checked in every state:
 *	EXCLUSION	no two clients hold the lock
 *
 * With BUG=1 the model is wrong on purpose, as the rule once was: a vote counts when the
 * master has run for as long as the longest lease of which it, or another that has
 * answered, has heard; EXCLUSION has to say so.
 */
#ifndef BUG
#define BUG 0
#endif

#define MASTERS 3
#define NEED 2
#define LONG 2 /* the longest lease that there is, client 0's */
#define SHORT 1
#define LEASE(c) (c == 0 -> LONG : SHORT)
#define ENOUGH LONG
#define NOBODY 2

/* Of the masters. */
bool up[MASTERS] = true;
byte vote_of[MASTERS] = NOBODY, ends[MASTERS];
byte known[MASTERS];   /* 1 when its process is met first, then a tick more each, up to 1 + ENOUGH; with BUG: when it starts */
byte longest[MASTERS]; /* lease of which it has heard: for BUG */

/* Of the clients. */
byte valid[2]; /* it holds for so long */
byte next[2];  /* and for so long if the round is won; 0: there is no round */
byte open[2];  /* a bit for each master that may still be asked in it */
bool one[2];   /* vote that counts, in it */
byte heard[2]; /* the longest lease of which anybody has told in it: for BUG */

hidden byte i;
hidden byte got;

/* Is it certain that whoever the master's last process voted for holds no more? */
#if BUG == 1
#define COUNTS(c, m) (known[m] > heard[c])
#else
#define COUNTS(c, m) (known[m] > ENOUGH)
#endif

inline hear(c, m)
{
	if
	:: LEASE(c) > longest[m] -> longest[m] = LEASE(c)
	:: else
	fi;
	if
	:: longest[m] > heard[c] -> heard[c] = longest[m]
	:: else
	fi
}

inline end_round(c)
{
	next[c] = 0; open[c] = 0; one[c] = false; heard[c] = 0
}

inline give_back(c)
{
	for (i : 0 .. MASTERS - 1) {
		if
		:: vote_of[i] == c -> vote_of[i] = NOBODY; ends[i] = 0
		:: else
		fi
	}
}

/* Gives the vote, if nobody has it. */
inline give(c, m)
{
	if
	:: vote_of[m] == NOBODY -> vote_of[m] = c; ends[m] = LEASE(c)
	:: else
	fi
}

/* The rest has been asked, or will not be: a hold is healed there. */
inline win(c)
{
	valid[c] = next[c];
	for (i : 0 .. MASTERS - 1) {
		if
		:: up[i] -> give(c, i)
		:: skip
		fi
	}
	end_round(c);
	assert(valid[1 - c] == 0) /* EXCLUSION */
}

inline vote(c, m)
{
#if BUG == 1
	hear(c, m);
#endif
	got = vote_of[m] == NOBODY && COUNTS(c, m);
	give(c, m);
	if
	:: known[m] == 0 -> known[m] = 1
	:: else
	fi
}

inline renew(c, m)
{
	got = vote_of[m] == c;
	if
	:: got -> ends[m] = LEASE(c)
	:: else
	fi
}

inline serve(c, m)
{
	open[c] = open[c] & ~(1 << m);
	if
	:: up[m] && valid[c] == 0 -> vote(c, m)
	:: up[m] && valid[c] > 0 -> renew(c, m)
	fi;
	if
	:: got && one[c] -> win(c)
	:: got && !one[c] -> one[c] = true
	:: else
	fi;
	got = false
}

proctype Client(byte c)
{
end:
	do
	:: atomic { next[c] == 0 -> /* it asks, or renews */
		if
		:: valid[c] == 0 -> give_back(c)
		:: else
		fi;
		next[c] = LEASE(c); open[c] = (1 << MASTERS) - 1 }
	:: atomic { (open[c] & 1) && up[0] -> serve(c, 0) }
	:: atomic { (open[c] & 2) && up[1] -> serve(c, 1) }
	:: atomic { (open[c] & 4) && up[2] -> serve(c, 2) }
	:: atomic { next[c] > 0 -> end_round(c) } /* it gives up */
	od
}

proctype Master(byte m)
{
end:
	do
	:: atomic { up[0] && up[1] && up[2] ->
		up[m] = false; vote_of[m] = NOBODY; ends[m] = 0; known[m] = 0; longest[m] = 0 }
	:: atomic { !up[m] -> up[m] = true; known[m] = (BUG == 1) }
	od
}

inline tick()
{
	for (i : 0 .. MASTERS - 1) {
		if
		:: known[i] > 0 && known[i] <= ENOUGH -> known[i]++
		:: else
		fi;
		if
		:: ends[i] > 1 -> ends[i]--
		:: ends[i] == 1 -> ends[i] = 0; vote_of[i] = NOBODY
		:: else
		fi
	}
	for (i : 0 .. 1) {
		if
		:: valid[i] > 0 -> valid[i]--
		:: else
		fi;
		if
		:: next[i] > 1 -> next[i]--
		:: next[i] == 1 -> end_round(i)
		:: else
		fi
	}
}

proctype Time()
{
end:
	do
	:: atomic { true -> tick() }
	od
}

init {
	atomic {
		run Time();
		run Client(0); run Client(1);
		run Master(0); run Master(1); run Master(2)
	}
}
