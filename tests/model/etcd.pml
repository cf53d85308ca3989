/*
 * etcd.pml - Goal: no order of requests, crashes, losses, delays, elections and stalls lets two
 * commands run at once under one lock of etcd, tells a loss that was none, or leaves a waiter
 * waiting for ever.
 *
 * What stands for what:
 *
 *	serve_take, serve_join		the transactions of take() and join(), backends/etcd/acquire.c,
 *					with the leases that go in the same packet; each is one step
 *	serve_proof			the three calls of a proof (backends/etcd/credit.h), each a step
 *					of its own, to one member
 *	serve_release, revoke		etcd_release() of lock.c, with and without a grant
 *	Client				etcd_acquire(): attempt(), await_turn(), renew_place();
 *					etcd_renew_lease(); and what the keeper (cmd/supervise/step.c)
 *					does with their results
 *	Late				the copy of a packet that was given up, and is done later
 *	Cluster				two members of three: an election, after which the old leader
 *					does not know of it (stale) until it wakes; and the ends of leases
 *	Steer				a freeze, FREEZES times
 *	Time				one clock, in ticks
 *
 * A key is that of a client's nth place, as in queue.h; a client has two at the most, and then
 * gives up.  Time is only ever "so long from now", and stands still while somebody has to act.
 * A stale leader answers each keep-alive with yes, and nothing else; it commits nothing.
 *
 * Each client asks once, as a writer, runs as long as it likes, and may give up while it waits.
 * FAULTS things go wrong, of: a process is killed, a request is lost, or done at any later time,
 * an answer is lost, a watch goes silent.  ELECTIONS elections are held.
 *
 * Left out: readers and permits (zk.pml has permits), jobs, breaks, a member that lags behind
 * without having led (it passes a keep-alive to a stale leader as if it were that leader), clocks
 * of different rates, tampered data.
 *
 * Checked in every state:
 *	EXCLUSION	who runs is the first in the queue, and nobody else runs
 *	TOKENS		a later grant has a greater token
 *	FROZEN		nobody is granted anything during a freeze
 *	LIE		a lock that the holder itself has given back is not told as lost
 * and that everything comes to an end (PROGRESS, an LTL formula), and none is stuck.
 *
 * With BUG=n the model is wrong on purpose, and a check has to say so:
 *	1  a keep-alive alone proves the lease				EXCLUSION
 *	2  a lease counts from its answer, not from its request		EXCLUSION
 *	3  a proof begins with the keep-alive, without a read before it	EXCLUSION
 *	4  the three calls of a proof may go to several members		EXCLUSION
 *	5  who is woken takes the lock without asking who is before it	EXCLUSION
 *	6  a beat does not look whether the watched key is there	PROGRESS
 *	7  a grant does not ask whether it is frozen			FROZEN
 *	8  a release that is asked for again trusts its answer		LIE
 *	9  a grant with a lease that is not proved begins at once	EXCLUSION
 */
#ifndef N
#define N 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef ELECTIONS
#define ELECTIONS 1
#endif
#ifndef FREEZES
#define FREEZES 0
#endif
#ifndef BUG
#define BUG 0
#endif

#ifndef NTH
#define NTH 2
#endif
#define KEYS (N * NTH)
#define NOBODY KEYS

/* Ticks.  Not to scale, but: a beat is shorter than a place, and a fresh lease outlives an answer. */
#ifndef LEASE
#define LEASE 3
#endif
#define MARGIN 1 /* so long before its end a command has to be dead */
#ifndef PLACE
#define PLACE 2
#endif
#define BEAT 1
#define PATIENCE 1

#if N == 2
#define ANY(P) (P(0) || P(1))
#define ANY_KEY(P) (P(0) || P(1) || P(KEYS - 2) || P(KEYS - 1))
#else
#define ANY(P) (P(0) || P(1) || P(2))
#define ANY_KEY(P) (P(0) || P(1) || P(2) || P(KEYS - 3) || P(KEYS - 2) || P(KEYS - 1))
#endif
#define PROVES(c) (phase[c] == BEATS || phase[c] == CONFIRMS || phase[c] == RENEWS)
#define OWN(c) ((c) * NTH + nth[c])
#define IN_QUEUE(k) (create[k])
#define KNOWS(c) (mine[c])
#define HAS_LATE(c) (late[c] != NOTHING)
#define FRESH(c) (rem[c] > LEASE / 2)

mtype:phase = { IDLE, TAKES, JOINS, WAITS, BEATS, CONFIRMS, RUNS, RENEWS, RELEASES, DONE };
mtype:wire = { FREE, ASKED, YES, NO, MOVED, GONE, LOST }; /* MOVED: our key is not there any more; GONE: the lease */
mtype:late = { NOTHING, TAKE, JOIN, RELEASE };

byte faults = FAULTS, elections = ELECTIONS, freezes = FREEZES;

/*
 * The store.  A lease: 0, there is none; 1, its time is over, and it will be deleted before the
 * next tick; otherwise the ticks that are left, and one.
 */
byte hold[KEYS], place[KEYS];
byte create[KEYS]; /* 0: the key is not there */
bool on_hold[KEYS]; /* the key is with the lease of the hold */
bool given_back[KEYS]; /* by the holder itself */
byte revision, last_token;
bool frozen;

/* The members. */
bit leader;
bool stale; /* the other member takes itself for the leader */

/* Of the clients. */
mtype:phase phase[N];
mtype:wire wire[N];
byte age[N];  /* of the packet under way */
byte rem[N];  /* so long the lease of the hold is ours, as is proved */
byte mine[N]; /* the create revision that we know; 0: we have no place */
byte pred[N]; /* the key that we watch; NOBODY: the freeze */
byte nth[N], beat[N];
bit member[N]; /* that is asked */
byte stage[N]; /* of a proof: calls that are answered */
bool lives[N], seen[N], gone[N]; /* what they say: of the lease, of our key, of the watched one */
bool busy[N], event[N], deaf[N], newly[N], unsure[N];
mtype:late late[N];
byte late_key[N], late_create[N];

#ifdef PROGRESS
bool moved;
#define happens() moved = true
#else
#define happens() skip
#endif

hidden byte i, x, before;
hidden byte fits, put;

/* ---- the store ---- */

inline notify(k)
{
	for (x : 0 .. N - 1) {
		if
		:: phase[x] != IDLE && phase[x] != DONE && pred[x] == k && mine[x] && !deaf[x] -> event[x] = true
		:: else
		fi
	}
}

inline delete_key(k)
{
	if
	:: create[k] -> create[k] = 0; on_hold[k] = false; notify(k)
	:: else
	fi
}

inline end_hold(k)
{
	hold[k] = 0;
	if
	:: on_hold[k] -> delete_key(k)
	:: else
	fi
}

inline end_place(k)
{
	place[k] = 0;
	if
	:: create[k] && !on_hold[k] -> delete_key(k)
	:: else
	fi
}

/* before: the last key before k, or the last of all if k is not there; NOBODY. */
inline find_before(k)
{
	before = NOBODY;
	for (i : 0 .. KEYS - 1) {
		if
		:: create[i] && i != k && (!create[k] || create[i] < create[k]) &&
		   (before == NOBODY || create[i] > create[before % KEYS]) -> before = i
		:: else
		fi
	}
}

/* wants: the create revision of our key; 0: nobody may be in the queue. */
inline serve_take(k, wants, grants, answer, is_new)
{
	is_new = false;
	if
	:: grants && !hold[k] -> hold[k] = LEASE + 1; is_new = true
	:: else
	fi;
	find_before(k);
	fits = (wants -> create[k] == wants && (before == NOBODY || BUG == 5) : before == NOBODY && !create[k]);
	fits = fits && (!frozen || BUG == 7);
	if
	:: fits && !hold[k] -> answer = GONE
	:: fits && hold[k] ->
		assert(!frozen); /* FROZEN */
		if
		:: !create[k] -> revision++; create[k] = revision
		:: else
		fi;
		on_hold[k] = true;
		answer = YES
	:: else -> answer = NO
	fi
}

inline serve_join(k, grants, is_new)
{
	is_new = false;
	if
	:: grants && !hold[k] -> hold[k] = LEASE + 1; is_new = true
	:: else
	fi;
	if
	:: !place[k] -> place[k] = PLACE + 1
	:: else
	fi;
	if
	:: !create[k] -> revision++; create[k] = revision; on_hold[k] = false
	:: else
	fi
}

inline survey(c)
{
	find_before(OWN(c));
	pred[c] = before
}

inline tidy()
{
	i = 0; x = 0; before = 0; fits = false; put = false
}

/* ---- a client ---- */

/* Where nothing can be compared any more, what comes next is as at the beginning. */
inline forget_tokens()
{
	if
	:: !ANY_KEY(IN_QUEUE) && !ANY(KNOWS) && !ANY(HAS_LATE) -> revision = 0; last_token = 0
	:: else
	fi
}

inline is_over(c)
{
	phase[c] = DONE; wire[c] = FREE; age[c] = 0; rem[c] = 0; mine[c] = 0; pred[c] = NOBODY; beat[c] = 0;
	stage[c] = 0; lives[c] = false; seen[c] = false; gone[c] = false; busy[c] = false; event[c] = false;
	deaf[c] = false; newly[c] = false; unsure[c] = false; member[c] = 0;
	given_back[OWN(c)] = false; nth[c] = 0;
	forget_tokens();
	happens()
}

inline turn(c)
{
	member[c] = 1 - member[c]
}

/* name_place(), and to join again with it */
inline lose_place(c)
{
	if
	:: nth[c] + 1 < NTH ->
		nth[c]++; mine[c] = 0; rem[c] = 0; event[c] = false; pred[c] = NOBODY;
		phase[c] = JOINS; begin_packet(c)
	:: else -> revoke(c)
	fi
}

/* A member that is stale serves no write and no linearizable read. */
#define SERVES(c) (member[c] == leader || !stale)

/* A packet to a stale member is not answered, but may be done once it has woken. */
inline begin_packet(c)
{
	age[c] = 0; wire[c] = ASKED
}

inline lose_packet(c, what)
{
	if
	:: true -> wire[c] = LOST
	:: late[c] == NOTHING ->
		late[c] = what; late_key[c] = OWN(c); late_create[c] = mine[c];
		wire[c] = LOST
	fi
}

inline revoke(c)
{
	if
	:: d_step { true ->
		end_hold(OWN(c)); end_place(OWN(c)); is_over(c); tidy() }
	:: faults -> faults--; is_over(c)
	fi
}

inline begin_proof(c)
{
	age[c] = 0; wire[c] = ASKED; lives[c] = false; seen[c] = false; gone[c] = false;
	stage[c] = (BUG == 1 || BUG == 3 -> 1 : 0)
}

inline serve_first(c)
{
	stage[c] = 1;
	seen[c] = create[OWN(c)] == mine[c]
}

inline serve_second(c)
{
	if
	:: stale && member[c] != leader -> lives[c] = true
	:: else ->
		lives[c] = hold[OWN(c)] > 1;
		hold[OWN(c)] = (hold[OWN(c)] > 1 -> LEASE + 1 : hold[OWN(c)]);
		place[OWN(c)] = (phase[c] == BEATS && place[OWN(c)] > 1 -> PLACE + 1 : place[OWN(c)])
	fi;
	stage[c] = 2;
#if BUG == 1
	stage[c] = 3; seen[c] = true
#endif
}

/* A beat has looked at our key in the first call, and looks at the watched one now. */
inline serve_third(c)
{
	stage[c] = 3;
	seen[c] = (phase[c] == BEATS && BUG != 3 -> seen[c] : create[OWN(c)] == mine[c]);
	gone[c] = (pred[c] != NOBODY && !create[pred[c] % KEYS]) || (pred[c] == NOBODY && !frozen)
}

/* Nothing: a connection has one member. */
inline may_turn(c)
{
#if BUG == 4
	if
	:: true -> turn(c)
	:: true
	fi
#else
	skip
#endif
}

/* Who runs has just been granted it, or has had an answer. */
inline assert_exclusion(c)
{
	find_before(OWN(c));
	assert(create[OWN(c)] && before == NOBODY); /* EXCLUSION */
	for (x : 0 .. N - 1) {
		assert(x == c || (phase[x] != RUNS && phase[x] != RENEWS)) /* EXCLUSION */
	}
}

inline begin_command(c)
{
	if
	:: rem[c] > MARGIN ->
		phase[c] = RUNS; pred[c] = NOBODY; event[c] = false; deaf[c] = false; beat[c] = 0; busy[c] = false;
		assert(mine[c] > last_token); /* TOKENS */
		last_token = mine[c];
		assert_exclusion(c);
		happens()
	:: else -> phase[c] = RELEASES
	fi;
	tidy()
}

/* Our key is put as held: is the lease proved? */
inline begin_hold(c)
{
	if
	:: FRESH(c) || BUG == 9 ->
#if BUG == 9
		rem[c] = (rem[c] -> rem[c] : LEASE - age[c]);
#endif
		wire[c] = FREE; age[c] = 0; begin_command(c)
	:: else -> phase[c] = CONFIRMS; begin_proof(c)
	fi
}

inline learn_lease(c)
{
	rem[c] = LEASE - (BUG == 2 -> 0 : age[c])
}

inline wait_for_turn(c)
{
	phase[c] = WAITS; wire[c] = FREE; age[c] = 0; deaf[c] = false;
	event[c] = event[c] || (pred[c] == NOBODY && !frozen) || (pred[c] != NOBODY && !create[pred[c] % KEYS])
}

/* An answer comes within PATIENCE, or never. */
#define TIRED(c) (age[c] >= PATIENCE && (wire[c] == LOST || (wire[c] == ASKED && !SERVES(c))))

proctype Client(byte c)
{
end:	do
	:: atomic { phase[c] == IDLE && (!c || phase[(c + N - 1) % N] != IDLE) ->
			phase[c] = TAKES; begin_packet(c) }

	/* take(), at first or from our place */
	:: atomic { phase[c] == TAKES && wire[c] == ASKED && SERVES(c) ->
			if
			:: d_step { true ->
				serve_take(OWN(c), mine[c], !FRESH(c), wire[c], newly[c]);
				survey(c);
				if
				:: wire[c] == YES -> mine[c] = create[OWN(c)]
				:: wire[c] == NO && mine[c] && create[OWN(c)] != mine[c] -> wire[c] = MOVED
				:: else
				fi;
				tidy() }
			:: d_step { faults -> faults--;
				serve_take(OWN(c), mine[c], !FRESH(c), wire[c], newly[c]);
				newly[c] = false; wire[c] = LOST; tidy() }
			fi }
	:: atomic { phase[c] == TAKES && wire[c] == YES ->
			if
			:: newly[c] -> learn_lease(c); newly[c] = false
			:: else
			fi;
			begin_hold(c); tidy() }
	:: atomic { phase[c] == TAKES && wire[c] == GONE -> rem[c] = 0; begin_packet(c) }
	:: atomic { phase[c] == TAKES && wire[c] == NO ->
			if
			:: newly[c] -> learn_lease(c); newly[c] = false
			:: else
			fi;
			busy[c] = true;
			if
			:: mine[c] -> wait_for_turn(c)
			:: else -> phase[c] = JOINS; begin_packet(c)
			fi;
			tidy() }
	:: atomic { phase[c] == TAKES && wire[c] == MOVED -> newly[c] = false; lose_place(c) }
	:: atomic { phase[c] == TAKES && TIRED(c) ->
			turn(c);
			begin_packet(c);
			phase[c] = (busy[c] && !mine[c] -> JOINS : TAKES) }

	:: atomic { phase[c] == TAKES && wire[c] == ASKED && faults -> faults--; lose_packet(c, TAKE) }

	/* join() */
	:: atomic { phase[c] == JOINS && wire[c] == ASKED && SERVES(c) ->
			if
			:: d_step { true ->
				serve_join(OWN(c), !rem[c], newly[c]);
				wire[c] = YES; survey(c); mine[c] = create[OWN(c)]; tidy() }
			:: d_step { faults -> faults--;
				serve_join(OWN(c), !rem[c], newly[c]);
				newly[c] = false; wire[c] = LOST; tidy() }
			fi }
	:: atomic { phase[c] == JOINS && wire[c] == YES ->
			if
			:: newly[c] -> learn_lease(c); newly[c] = false
			:: else
			fi;
			beat[c] = (BEAT > age[c] -> BEAT - age[c] : 0);
			wait_for_turn(c) }
	:: atomic { phase[c] == JOINS && wire[c] == ASKED && faults -> faults--; lose_packet(c, JOIN) }
	:: atomic { phase[c] == JOINS && TIRED(c) -> turn(c); begin_packet(c) }

	/* await_turn() and renew_place() */
	:: atomic { phase[c] == WAITS && event[c] ->
			event[c] = false; phase[c] = TAKES; begin_packet(c) }
	:: atomic { phase[c] == WAITS && !event[c] && !beat[c] -> phase[c] = BEATS; begin_proof(c) }
	:: atomic { phase[c] == BEATS && stage[c] == 3 ->
			if
			:: lives[c] -> learn_lease(c)
			:: else
			fi;
			beat[c] = (BEAT > age[c] -> BEAT - age[c] : 0);
			stage[c] = 0;
			if
			:: !seen[c] -> lose_place(c)
			:: seen[c] ->
				if
				:: gone[c] && BUG != 6 -> event[c] = true
				:: else
				fi;
				phase[c] = WAITS; wire[c] = FREE; age[c] = 0
			fi;
			lives[c] = false; seen[c] = false; gone[c] = false }
	:: atomic { phase[c] == BEATS && stage[c] < 3 && TIRED(c) -> turn(c); begin_proof(c) } /* adrift */

	/* begin_hold(), renew() */
	:: atomic { phase[c] == RUNS && rem[c] < LEASE && rem[c] > MARGIN -> phase[c] = RENEWS; begin_proof(c) }
	:: atomic { (phase[c] == CONFIRMS || phase[c] == RENEWS) && stage[c] == 3 ->
			stage[c] = 0;
			if
			:: !seen[c] && phase[c] == RENEWS -> is_over(c) /* lost */
			:: !seen[c] && phase[c] == CONFIRMS -> phase[c] = TAKES; begin_packet(c)
			:: seen[c] && !lives[c] -> begin_proof(c); wire[c] = LOST /* asked again after a pause */
			:: seen[c] && lives[c] ->
				learn_lease(c);
				wire[c] = FREE; age[c] = 0;
				if
				:: phase[c] == CONFIRMS -> begin_command(c)
				:: else -> phase[c] = RUNS; happens()
				fi
			fi;
			lives[c] = false; seen[c] = false; gone[c] = false }
	:: atomic { (phase[c] == CONFIRMS || phase[c] == RENEWS) && stage[c] < 3 && TIRED(c) &&
			(phase[c] == CONFIRMS || rem[c] > MARGIN) -> turn(c); begin_proof(c) }

	/* The calls of a proof, one after the other; without elections there is nothing that they tell apart. */
#if ELECTIONS
	:: atomic { stage[c] == 0 && wire[c] == ASKED && PROVES(c) && SERVES(c) -> serve_first(c); may_turn(c) }
	:: atomic { stage[c] == 1 && wire[c] == ASKED && PROVES(c) -> serve_second(c); may_turn(c) }
	:: atomic { stage[c] == 2 && wire[c] == ASKED && PROVES(c) && SERVES(c) -> serve_third(c) }
#else
	:: d_step { stage[c] == 0 && wire[c] == ASKED && PROVES(c) -> serve_first(c); serve_second(c); serve_third(c) }
#endif
	:: atomic { faults && wire[c] == ASKED && PROVES(c) && stage[c] < 3 -> faults--; wire[c] = LOST }

	/* etcd_release(): the command has ended, or must; the answer may be lost, and it is asked again */
	:: atomic { phase[c] == RUNS || (phase[c] == RENEWS && rem[c] <= MARGIN) ->
			stage[c] = 0; lives[c] = false; seen[c] = false; gone[c] = false; rem[c] = 0;
			phase[c] = RELEASES; begin_packet(c) }
	:: atomic { phase[c] == RELEASES && wire[c] == FREE -> begin_packet(c) }
	:: atomic { phase[c] == RELEASES && wire[c] == ASKED && SERVES(c) ->
			if
			:: d_step { true ->
				wire[c] = (create[OWN(c)] && create[OWN(c)] == mine[c] -> YES : NO);
				if
				:: wire[c] == YES -> given_back[OWN(c)] = true; delete_key(OWN(c))
				:: else
				fi;
				tidy() }
			:: d_step { faults -> faults--;
				if
				:: create[OWN(c)] && create[OWN(c)] == mine[c] -> given_back[OWN(c)] = true; delete_key(OWN(c))
				:: else
				fi;
				wire[c] = LOST; tidy() }
			fi }
	:: atomic { phase[c] == RELEASES && wire[c] == ASKED && faults -> faults--; lose_packet(c, RELEASE) }
	:: atomic { phase[c] == RELEASES && wire[c] == YES -> is_over(c) }
	:: atomic { phase[c] == RELEASES && wire[c] == NO ->
			assert(!given_back[OWN(c)] || (unsure[c] && BUG != 8)); /* LIE */
			is_over(c) }
	:: atomic { phase[c] == RELEASES && TIRED(c) -> unsure[c] = true; turn(c); begin_packet(c) }

	/* It has waited long enough, or is killed. */
	:: atomic { phase[c] == WAITS && !event[c] -> revoke(c) }
	:: atomic { faults && phase[c] != IDLE && phase[c] != DONE -> faults--; is_over(c) }
	:: atomic { faults && phase[c] == WAITS && !deaf[c] -> faults--; deaf[c] = true }
	od
}

/* What was given up is done all the same, at any time. */
proctype Late(byte c)
{
end:	do
	:: d_step { late[c] == TAKE ->
			late[c] = NOTHING;
			serve_take(late_key[c], late_create[c], true, put, fits);
			late_key[c] = 0; late_create[c] = 0; tidy() }
	:: d_step { late[c] == JOIN ->
			late[c] = NOTHING;
			serve_join(late_key[c], true, fits);
			late_key[c] = 0; late_create[c] = 0; tidy() }
	:: d_step { late[c] == RELEASE ->
			late[c] = NOTHING;
			if
			:: create[late_key[c]] && create[late_key[c]] == late_create[c] ->
				given_back[late_key[c]] = true; delete_key(late_key[c])
			:: else
			fi;
			late_key[c] = 0; late_create[c] = 0; tidy() }
	od
}

/* ---- the members ---- */

#define OVERDUE(k) (hold[k] == 1 || place[k] == 1)

proctype Cluster()
{
	byte k;

end:	do
	/* a new leader gives each lease its whole length */
	:: d_step { elections && !stale -> elections--; leader = 1 - leader; stale = true;
			for (k : 0 .. KEYS - 1) {
				hold[k] = (hold[k] -> LEASE + 1 : 0);
				place[k] = (place[k] -> PLACE + 1 : 0)
			}
			k = 0 }
	:: stale -> stale = false
	:: d_step { ANY_KEY(OVERDUE) ->
			for (k : 0 .. KEYS - 1) {
				if
				:: hold[k] == 1 -> end_hold(k)
				:: else
				fi;
				if
				:: place[k] == 1 -> end_place(k)
				:: else
				fi
			}
			k = 0; tidy() }
	od
}

/* A thaw comes as late as it likes, or never. */
proctype Steer()
{
end:	do
	:: d_step { freezes && !frozen -> freezes--; frozen = true }
	:: d_step { frozen -> frozen = false; notify(NOBODY); tidy() }
	od
}

/* ---- time ---- */

#define MUST_ACT(c) ((wire[c] != FREE && age[c] >= PATIENCE) || \
	((phase[c] == RUNS || phase[c] == RENEWS) && rem[c] <= MARGIN) || \
	(phase[c] == WAITS && (event[c] || !beat[c])) || (phase[c] == RELEASES && wire[c] == FREE))
#define NOT_DONE(c) (phase[c] != DONE)
#define BUSY(c) (phase[c] != IDLE && phase[c] != DONE)
#define ALIVE(k) (hold[k] || place[k])

inline less(v)
{
	v = (v -> v - 1 : 0)
}

proctype Time()
{
	byte c;

	do
	:: d_step { !ANY(MUST_ACT) && !ANY_KEY(OVERDUE) && (ANY(BUSY) || ANY_KEY(ALIVE)) ->
			for (c : 0 .. N - 1) {
				if
				:: phase[c] == RUNS || phase[c] == RENEWS -> assert_exclusion(c)
				:: else
				fi;
				less(rem[c]); less(beat[c]);
				age[c] = (wire[c] != FREE -> age[c] + 1 : 0)
			}
			c = 0;
			for (c : 0 .. KEYS - 1) {
				hold[c] = (hold[c] > 1 -> hold[c] - 1 : hold[c]);
				place[c] = (place[c] > 1 -> place[c] - 1 : place[c])
			}
			c = 0;
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

init
{
	atomic {
		byte c;

		for (c : 0 .. N - 1) {
			phase[c] = IDLE; wire[c] = FREE; late[c] = NOTHING; pred[c] = NOBODY
		}
		c = 0;
		for (c : 0 .. N - 1) {
			run Client(c);
			run Late(c)
		}
		c = 0;
		run Cluster();
#if FREEZES
		run Steer();
#endif
		run Time()
	}
}
