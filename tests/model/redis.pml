/*
 * redis.pml - Goal: no order of requests, crashes, losses, delays and lapses lets two
 * commands run at once, loses a wake-up, or leaves a waiter waiting for ever.
 *
 * What stands for what:
 *
 *	look, fits, grant, publish_to, serve,	backends/redis/lock.lua, the functions of
 *	acquire, release, ask_renewal		these names (with take; renew); each operation is
 *						one step
 *	Client, Late, ask, give_back		backends/redis/redis.c: redis_acquire() with
 *						redis_queue_wait() and its next_beat(),
 *						redis_renew(), redis_release();
 *						and what the keeper (cmd/supervise/step.c) does
 *						with their results; what goes wrong is there, too
 *	Steer					its begin_freeze() and thaw(), FREEZES times and
 *						as often; a freeze has an end, after FROZEN
 *	Time					one clock, in ticks
 *
 * Time is only ever "so long from now".  It stands still while somebody has to act:
 * a command is stopped before its lease can end (supervise.pml is about that), a
 * waiter asks when its beat has come, an answer comes within PATIENCE or never.  Requests
 * are served when they are sent: a lease that begins later ends later, which is no harm.
 * Whatever need not happen now may happen later; so every order is tried.
 *
 * Each client asks once, at any time, as a writer (X), a reader (S) or one of LIMIT (L;
 * the first KINDS of these), runs as long as it likes, and may give up while it waits.
 * FAULTS things go wrong, of: a process is killed, its host is lost, a request is lost,
 * or arrives at any later time, an answer is lost, a subscription breaks, or goes
 * silent, or cannot be had.
 *
 * Left out: that the server loses its data or its memory is full (nothing is promised
 * then), clocks of different rates (the margin is for them), jobs (--once), -n,
 * tampered data, breaking by force (which gives up exclusion; a polite break is a
 * command that ends); and tokens, which are dealt in the order of grants.
 *
 * Checked in every state:
 *	EXCLUSION	who runs is a holder at the server, and all who run may run together
 *	SLOTS		no two holders have one slot
 *	FIFO		nobody is granted anything before who is in the queue before him
 *	SERVED		after an operation, nobody waits who could be granted
 *	FROZEN		nobody is granted anything during a freeze
 *	WOKEN		a waiter that was granted something will ask: it has a message to
 *			read, or has no subscription to trust and asks soon
 * and that everything comes to an end: there is no way to go on for ever without a
 * grant, a renewal or an end (PROGRESS, an LTL formula), and none to be stuck.
 *
 * With BUG=n the model is wrong on purpose, and a check has to say so:
 *	1  a waiter that is woken runs at once, without asking again	EXCLUSION
 *	2  a lease counts from its answer, not from its request		EXCLUSION
 *	3  it does not ask again when it has subscribed			WOKEN
 *	4  a release grants to one waiter, not to all who fit		SERVED
 *	5  who comes and fits passes the queue				FIFO
 *	6  a waiter trusts messages alone: it has no beat		PROGRESS
 *	7  a slot is the number of those who hold			SLOTS
 *	8  who waits does not ask whether it is frozen			FROZEN
 *	9  a thaw grants nothing					SERVED
 */
#ifndef N
#define N 3
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef KINDS
#define KINDS 3
#endif
#ifndef FREEZES
#define FREEZES 0
#endif
#ifndef BUG
#define BUG 0
#endif

/* Seconds of the code are not to scale, but these stay as they are: UNSUBSCRIBED < GRACE < BEAT < ALIVE. */
#define LEASE 3
#define VALID (LEASE - 1) /* so long after its request a command may run */
#define GRACE 2
#define UNSUBSCRIBED_GRACE 1
#define BEAT 3
#define UNSUBSCRIBED_BEAT 1
#define ALIVE 4
#ifndef PATIENCE
#define PATIENCE 1
#endif
#define LIMIT 2
#define FROZEN 3
#define NOBODY N
#define BUSY(c) (phase[c] != IDLE && phase[c] != DONE)

mtype:kind = { X, S, L };
mtype:phase = { IDLE, ASKS, SUBSCRIBES, WAITS, RUNS, DONE };
mtype:wire = { FREE, YES, NO, OTHER, LOST }; /* LOST: nothing will come */
mtype:late = { NOTHING, ASK, ASK_SUBSCRIBED, RENEW, RELEASE };

byte faults = FAULTS, freezes = FREEZES;

/* At the server.  How long it is frozen yet.  Who is not in the queue has no ticket, whose lease has ended (0) is no holder. */
byte frozen;
mtype:kind kind[N];
byte ends[N], slot[N];
byte ticket[N], alive[N], tickets;
bool unread[N];     /* granted by an answer that nobody has read */
bool subscribed[N]; /* as the row says */
bool listens[N];    /* as the connection says */

/* Of the clients. */
mtype:phase phase[N];
mtype:wire wire[N]; /* the one question under way: what it is, the phase says */
byte age[N];	    /* of that question */
byte left[N];	    /* in the answer: until a lease ends, if we are first; in SUBSCRIBES and WAITS: until we ask */
byte mine[N];	    /* our ticket, as far as we know */
byte valid[N];	    /* so long the command may run */
bool open[N];	    /* our subscription, as far as we know */
bool deaf[N];	    /* but nothing arrives */
bool message[N];
mtype:late late[N]; /* a question on a closed connection */
byte late_ticket[N];

/* ---- lock.lua ---- */

/* Has anything happened since the last tick that somebody may have waited for? */
#ifdef PROGRESS
bool moved;
#define happens() moved = true
#else
#define happens() skip
#endif

/* For the steps; 0 between them. */
hidden byte i, j, who, count, lowest, can, unheard;
hidden mtype:kind used;
hidden mtype:wire nowhere;

inline drop(c)
{
	ticket[c] = 0; alive[c] = 0; subscribed[c] = false
}

inline look()
{
	for (i : 0 .. N - 1) {
		if
		:: ticket[i] && !alive[i] -> drop(i)
		:: else
		fi
	}
}

inline learn_holders()
{
	count = 0; used = X;
	for (j : 0 .. N - 1) {
		if
		:: ends[j] -> count++; used = kind[j]
		:: else
		fi
	}
}

/* can: may c hold beside those who do? */
inline fits(c)
{
	learn_holders();
	can = count == 0 || (kind[c] == used && used != X && (used != L || count < LIMIT));
#if BUG == 8
	can = can && (!frozen || ticket[c]);
#else
	can = can && !frozen;
#endif
}

/* who: the first in the queue; NOBODY. */
inline find_head()
{
	who = NOBODY;
	for (j : 0 .. N - 1) {
		if
		:: ticket[j] && (who == NOBODY || ticket[j] < ticket[who % N]) -> who = j
		:: else
		fi
	}
}

inline find_slot()
{
	lowest = 0;
	for (j : 0 .. N - 1) { /* as often as there can be one in the way */
		for (i : 0 .. N - 1) {
			if
			:: ends[i] && slot[i] == lowest -> lowest++
			:: else
			fi
		}
	}
}

inline grant(c, ms)
{
	assert(!frozen); /* FROZEN */
	for (j : 0 .. N - 1) {
		assert(j == c || !ticket[j] || (ticket[c] && ticket[c] < ticket[j])) /* FIFO */
	}
	drop(c);
	if
	:: kind[c] == L ->
#if BUG == 7
		learn_holders(); lowest = count;
#else
		find_slot();
#endif
		slot[c] = lowest
	:: else
	fi;
	ends[c] = ms
}

inline publish_to(c)
{
	message[c] = message[c] || (listens[c] && !deaf[c])
}

/* Grants to those who wait; `asker` is on the line, or NOBODY. */
inline serve(asker)
{
	unheard = false;
	do
	:: true ->
		find_head();
		if
		:: who == NOBODY -> break
		:: else
		fi;
		fits(who);
		if
		:: !can ->
			if
			:: unheard -> publish_to(who)
			:: else
			fi;
			break
		:: can && who == asker -> grant(who, LEASE)
		:: can && who != asker && !listens[who] && subscribed[who] ->
			unheard = true;
			grant(who, UNSUBSCRIBED_GRACE)
		:: else ->
			publish_to(who);
			grant(who, GRACE)
#if BUG == 4
			; break
#endif
		fi
	od
}

/* can: is c not even to wait beside those who hold or wait? */
inline learn_other_kind(c)
{
	can = false;
	for (j : 0 .. N - 1) {
		can = can || (kind[c] != X && kind[j] != X && kind[j] != kind[c] && (ends[j] || ticket[j]))
	}
}

inline acquire(c, to_channel, had, answer)
{
	answer = YES;
	if
	:: ends[c] -> ends[c] = LEASE
	:: else ->
		look();
		learn_other_kind(c);
		if
		:: can && !ticket[c] -> answer = OTHER
		:: else ->
			find_head();
			fits(c);
			if
#if BUG == 5
			:: !ticket[c] && can -> grant(c, LEASE)
#else
			:: !ticket[c] && can && who == NOBODY -> grant(c, LEASE)
#endif
			:: else ->
				if
				:: !ticket[c] && had -> ticket[c] = had
				:: !ticket[c] && !had -> tickets++; ticket[c] = tickets
				:: else
				fi;
				subscribed[c] = to_channel;
				alive[c] = ALIVE;
				serve(c);
				if
				:: !ends[c] -> answer = NO
				:: else
				fi
			fi;
			assert_served() /* who is refused grants nothing: the first in line asks when a lease ends */
		fi
	fi
}

inline release(c)
{
	ends[c] = 0; slot[c] = 0;
	drop(c);
	look();
	serve(NOBODY);
	assert_served();
	find_head();
	if
	:: frozen && who != NOBODY -> publish_to(who)
	:: else
	fi
}

inline thaw()
{
	frozen = 0;
	look();
#if BUG != 9
	serve(NOBODY);
#endif
	assert_served()
}

inline assert_served()
{
	find_head();
	if
	:: who != NOBODY -> fits(who); assert(!can) /* SERVED */
	:: else
	fi
}

/* What the answer tells of the queue. */
inline tell_place(c)
{
	find_head();
	left[c] = 0;
	if
	:: who == c ->
		for (j : 0 .. N - 1) {
			if
			:: ends[j] && (!left[c] || ends[j] < left[c]) -> left[c] = ends[j]
			:: else
			fi
		}
		if
		:: frozen -> left[c] = frozen
		:: else
		fi
	:: else
	fi
}

/* ---- a client and its network ---- */

/* What never matters again is forgotten, so that states are one that differ only there. */
inline tidy()
{
	for (i : 0 .. N - 1) {
		if
		:: !ends[i] -> slot[i] = 0; unread[i] = false
		:: else
		fi
	}
	i = 0; j = 0; who = 0; count = 0; lowest = 0; can = false; unheard = false; used = X
}

inline is_over(c)
{
	phase[c] = DONE; wire[c] = FREE; age[c] = 0; left[c] = 0; mine[c] = 0; valid[c] = 0;
	open[c] = false; message[c] = false; listens[c] = false; deaf[c] = false;
	happens()
}

inline serve_ask(c)
{
	acquire(c, open[c], mine[c], wire[c]);
	unread[c] = false;
	if
	:: wire[c] == NO -> tell_place(c); mine[c] = ticket[c]
	:: else
	fi;
	tidy()
}

inline serve_renewal(c)
{
	if
	:: ends[c] -> ends[c] = LEASE; wire[c] = YES
	:: else -> wire[c] = NO
	fi
}

/* A request is served at once or, for a fault, later than anybody waits for it, or never; or its answer is lost. */
inline ask(c)
{
	phase[c] = ASKS; left[c] = 0; age[c] = 0;
	if
	:: d_step { true -> serve_ask(c) }
	:: d_step { faults -> faults--; serve_ask(c); left[c] = 0; mine[c] = (wire[c] == NO -> 0 : mine[c]); wire[c] = LOST }
	:: faults -> faults--; wire[c] = LOST
	:: faults && late[c] == NOTHING ->
		faults--; wire[c] = LOST;
		late[c] = (open[c] -> ASK_SUBSCRIBED : ASK); late_ticket[c] = mine[c]
	fi
}

inline ask_renewal(c)
{
	age[c] = 0;
	if
	:: true -> serve_renewal(c)
	:: faults -> faults--; serve_renewal(c); wire[c] = LOST
	:: faults -> faults--; wire[c] = LOST
	:: faults && late[c] == NOTHING -> faults--; wire[c] = LOST; late[c] = RENEW
	fi
}

/* A release that is lost is the same as a client that dies; one that is asked for again, as one that is late. */
inline give_back(c)
{
	is_over(c);
	if
	:: d_step { true -> release(c); tidy() }
	:: faults && late[c] == NOTHING -> faults--; late[c] = RELEASE
	fi
}

proctype Late(byte c)
{
end:	do
	:: d_step { late[c] == ASK || late[c] == ASK_SUBSCRIBED ->
			acquire(c, late[c] == ASK_SUBSCRIBED, late_ticket[c], nowhere);
			unread[c] = nowhere == YES;
			late[c] = NOTHING; late_ticket[c] = 0;
			tidy() }
	:: d_step { late[c] == RENEW ->
			late[c] = NOTHING;
			ends[c] = (ends[c] -> LEASE : 0) }
	:: d_step { late[c] == RELEASE -> late[c] = NOTHING; release(c); tidy() }
	od
}

inline assert_exclusion(c)
{
	assert(ends[c]); /* EXCLUSION */
	for (i : 0 .. N - 1) {
		assert(i == c || phase[i] != RUNS || (kind[i] == kind[c] && kind[c] != X)); /* EXCLUSION */
		assert(i == c || phase[i] != RUNS || kind[c] != L || slot[i] != slot[c]) /* SLOTS */
	}
	i = 0
}

inline run_command(c)
{
	phase[c] = RUNS; mine[c] = 0; left[c] = 0;
	assert_exclusion(c);
	happens()
}

/* The answer is there: the lease began, at the earliest, when we asked. */
inline take_lease(c)
{
#if BUG == 2
	valid[c] = VALID;
#else
	valid[c] = (age[c] < VALID -> VALID - age[c] : 0);
#endif
	wire[c] = FREE; age[c] = 0
}

/* next_beat() of backends/redis/queue.c */
inline choose_beat(c)
{
	left[c] = (left[c] && left[c] < BEAT -> left[c] : BEAT)
}

/* It may never begin.  Of clients of one kind the first comes first: they differ in nothing else. */
#define MAY_BEGIN(c) (phase[c] == IDLE && (!c || kind[(c + N - 1) % N] != kind[c] || phase[(c + N - 1) % N] != IDLE))
#define LATE_LEASE(c) (wire[c] == YES && age[c] >= VALID)
#define UNANSWERED(c) (wire[c] == LOST && age[c] >= PATIENCE)
#define HAS_REASON_TO_ASK(c) (phase[c] == SUBSCRIBES || (phase[c] == ASKS && UNANSWERED(c)) || \
	(phase[c] == WAITS && (message[c] || (BUG != 6 && !left[c]) || (open[c] && !listens[c]))))
#define MAY_GIVE_BACK(c) (phase[c] == WAITS || phase[c] == RUNS || \
	(phase[c] == ASKS && (UNANSWERED(c) || LATE_LEASE(c) || wire[c] == OTHER)))

proctype Client(byte c)
{
end:	do
	:: atomic { MAY_BEGIN(c) || HAS_REASON_TO_ASK(c) ->
			if
			:: phase[c] == SUBSCRIBES -> listens[c] = true; open[c] = true; deaf[c] = false
			:: phase[c] == WAITS && !listens[c] -> open[c] = false
			:: else
			fi;
#if BUG == 1
			if
			:: message[c] -> message[c] = false; valid[c] = VALID; run_command(c)
			:: else -> ask(c)
			fi
#elif BUG == 3
			if
			:: phase[c] == SUBSCRIBES -> phase[c] = WAITS; choose_beat(c)
			:: else -> message[c] = false; ask(c)
			fi
#else
			message[c] = false;
			ask(c)
#endif
		}
	:: atomic { phase[c] == ASKS && wire[c] == YES && !LATE_LEASE(c) -> take_lease(c); run_command(c) }
	:: atomic { phase[c] == ASKS && wire[c] == NO ->
			wire[c] = FREE; age[c] = 0;
			if
			:: open[c] -> phase[c] = WAITS; choose_beat(c)
			:: else -> phase[c] = SUBSCRIBES; left[c] = UNSUBSCRIBED_BEAT
			fi }

	:: atomic { phase[c] == RUNS && wire[c] == FREE && valid[c] < VALID ->
			/* not while it was granted: the command would have waited */
			open[c] = false; listens[c] = false; deaf[c] = false; message[c] = false;
			ask_renewal(c) }
	:: atomic { phase[c] == RUNS && wire[c] == YES && age[c] < VALID -> take_lease(c); happens() }
	:: atomic { phase[c] == RUNS && wire[c] == NO -> is_over(c) }
	:: atomic { phase[c] == RUNS && UNANSWERED(c) -> wire[c] = FREE; age[c] = 0 }

	/* The command has ended, or must, since valid[c] is 0; nobody answers; or it has waited long enough. */
	:: atomic { MAY_GIVE_BACK(c) -> give_back(c) }

	:: atomic { faults && BUSY(c) -> faults--; is_over(c) } /* killed */
	/* its host is lost: the server goes on taking it for a listener */
	:: atomic { faults && BUSY(c) && listens[c] -> faults--; is_over(c); listens[c] = true; deaf[c] = true }
	:: atomic { faults && phase[c] == SUBSCRIBES -> faults--; phase[c] = WAITS } /* no subscription is to be had, */
	:: atomic { faults && listens[c] && !deaf[c] -> faults--; listens[c] = false; message[c] = false } /* it breaks, */
	:: atomic { faults && listens[c] && !deaf[c] -> faults--; deaf[c] = true; message[c] = false } /* or is silent */
	od
}

/* ---- steering ---- */

/* A thaw comes as late as it likes, or never. */
proctype Steer()
{
end:	do
	:: d_step { freezes && !frozen -> freezes--; frozen = FROZEN;
			find_head();
			if
			:: who != NOBODY -> publish_to(who) /* it will ask when the freeze ends */
			:: else
			fi;
			tidy() }
	:: d_step { frozen -> thaw(); tidy() }
	od
}

/* ---- time ---- */

#define ASKED(c) (wire[c] != FREE)
#define MUST_ACT(c) ((ASKED(c) && age[c] >= PATIENCE) || (phase[c] == RUNS && valid[c] == 0) || \
	((phase[c] == WAITS || phase[c] == SUBSCRIBES) && left[c] == 0 && BUG != 6))
#define NOT_DONE(c) (phase[c] != DONE)
#define CHANGES(c) (ends[c] || alive[c] || BUSY(c))
#define WOKEN(c) (phase[c] != WAITS || !ends[c] || message[c] || unread[c] || !open[c] || !listens[c] || deaf[c])
#if N == 2
#define ANY(P) (P(0) || P(1))
#elif N == 3
#define ANY(P) (P(0) || P(1) || P(2))
#else
#define ANY(P) (P(0) || P(1) || P(2) || P(3))
#endif

inline less(x)
{
	x = (x -> x - 1 : 0)
}

proctype Time()
{
	byte c;

	do
	:: d_step { !ANY(MUST_ACT) && ANY(CHANGES) ->
			for (c : 0 .. N - 1) {
				assert(WOKEN(c)); /* WOKEN */
				less(ends[c]); less(alive[c]); less(valid[c]);
				if
				:: ASKED(c) -> age[c]++
				:: !ASKED(c) && (phase[c] == WAITS || phase[c] == SUBSCRIBES) -> less(left[c])
				:: else
				fi;
				assert(phase[c] != RUNS || ends[c]) /* EXCLUSION */
			}
			c = 0;
			less(frozen);
#ifdef PROGRESS
			moved = false;
#endif
			tidy() }
	:: !ANY(NOT_DONE) -> break /* otherwise it is an error if nothing can happen */
	od
}

#ifdef PROGRESS
ltl progress { []<>(moved || !ANY(BUSY)) }
#endif

/* Clients differ in nothing else: an order of the kinds is enough. */
init
{
	atomic {
		byte c;

		for (c : 0 .. N - 1) {
			phase[c] = IDLE; wire[c] = FREE; late[c] = NOTHING;
			if
			:: c == 0 || kind[(c + N - 1) % N] == X -> kind[c] = X
#if KINDS > 1
			:: c == 0 || kind[(c + N - 1) % N] != L -> kind[c] = S
#endif
#if KINDS > 2
			:: kind[c] = L
#endif
			fi
		}
		c = 0;
		for (c : 0 .. N - 1) {
			run Client(c);
			run Late(c)
		}
		c = 0;
#if FREEZES
		run Steer();
#endif
		run Time()
	}
}
