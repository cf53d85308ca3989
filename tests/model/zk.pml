/*
 * zk.pml - Goal: no order of requests, deaths, lost connections, freezes and deletions by others
 * lets more than LIMIT commands run at once under one lock of ZooKeeper, gives one slot twice,
 * begins a command during a freeze, leaves anything behind, or lets a waiter sleep for ever.
 *
 * What stands for what:
 *
 *	K/			the queue of a lock (backends/zk/queue.h): seq, says, version of each node
 *	K/locks, K/leases, K/slots	with -DPERMITS, of a semaphore (backends/zk/permit.c)
 *	Client			claim_acquire(): turn_await() of wait.c, permit_take() of permit.c;
 *				claim_release() of claim.c
 *	Curator			one who takes a permit as Curator's InterProcessSemaphoreV2 does, without
 *				a place in K
 *	Steer			steering_freeze() and its thaw, FREEZES times
 *	Server			ends sessions; deletes the node of one who stands idle (holders.c)
 *
 * Each request is one step of the server; what a client does with an answer is another.  So
 * what it goes by may be old: a follower that lags gives no older answer than one that was slow.
 * There is no clock.  A session ends only when its client is dead, or has no connection and runs
 * no command any more: credit.h and supervise.pml are about that.  Its watches live as long.
 *
 * FAULTS things go wrong, of: a client is killed, loses its connection before its request is
 * done or before the answer comes, its session ends; a waiter's node is deleted, by one who
 * takes its owner for dead, right or not.
 *
 * TIRED clients give up waiting.
 *
 * Left out: readers, jobs, breaks, other layouts; beats (a waiter looks every few seconds, too).
 *
 * Checked in every state:
 *	EXCLUSION	no more than LIMIT run
 *	SLOTS		no two of them have one slot
 *	ORDER		of two that had one slot, the later has the greater number in K
 *	LEASES		who runs has its place, its lease and its slot
 *	FROZEN		since a freeze was confirmed nobody has begun who was not seen to hold
 *	TOLD		when a command ends, all who waited for its permit to be taken have been called
 *	LEFT		who has ended has left nothing, but what goes with its session
 * and that none is stuck: a client that waits will be called (an invalid end state: STUCK).
 *
 * With BUG=n the model is wrong on purpose, and a check has to say so:
 *	1  a slot is the number of leases, and its node is not looked at	SLOTS
 *	2  a permit is taken without looking whether it was frozen meanwhile	FROZEN
 *	3  who is called takes its turn by the list from before its write	FROZEN
 *	4  an idle node is deleted whatever has been written to it	LEASES
 *	5  who comes back takes its node in K/locks for lost, and sweeps nothing	LEFT
 *	6  lease and slot are made by one request, and K/locks left by the next	LEFT
 *	7  who has lost its place in K stays in K/locks			STUCK
 *	8  a permit is taken though one before us in K has yet to take its own	ORDER
 *	9  who waits for that looks for its permit, and watches its node then	TOLD
 */
#ifndef N
#define N 2
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef FREEZES
#define FREEZES 0
#endif
#ifndef TIRED
#define TIRED 1
#endif
#ifndef CURATORS
#define CURATORS 0
#endif
#ifndef BUG
#define BUG 0
#endif

#ifdef PERMITS
#define PERMITTED true
#else
#define PERMITTED false
#endif

#define NOBODY 255
#define FREEZE 254
#define LIST 253
#define ALL (N + CURATORS)

mtype:phase = { IDLE, JOIN, LISTED, MARK, WATCH, WAITS, CLAIM, RELIST, ORDERLY, SERVE_TURN, WATCH_TURN, LOOK_TURN, ENTER, LISTS, SERVE, WATCH_PART, WAITS_PART, TAKE,
	LEAVE_LOCKS, BACK, SWEEP, RUNS, GIVE, DONE };
mtype:says = { AT_ONCE, WAITING, WAITED };

byte faults = FAULTS, freezes = FREEZES, tired = TIRED;

/* At the server.  0: there is no such node. */
byte seq[N], version[N], last_seq;
mtype:says says[N];
byte lock[ALL], last_lock; /* K/locks */
byte lease[ALL];	   /* how many of K/leases are its */
byte slot[LIMIT];	   /* of whom, and one */
byte last_of[LIMIT];	   /* with which number in K that was last taken */
byte locks_version;	   /* of K/locks, which a freeze writes */
bool frozen, confirmed;
bool may_begin[ALL]; /* was seen to hold when that was confirmed */

/* Of the clients. */
mtype:phase phase[N];
bool connected[N], alive[N];
bool called[N];	    /* what it watches has happened */
byte watches[N];    /* whose end in K, or in K/locks or K/leases: NOBODY, a client, FREEZE, LIST */
bool in_part[N];    /* the latter */
bool by_grant[N];   /* also that it is granted */
byte ahead[N], held[N]; /* of the list: how many are before us; the last of them is watched; leases */
byte before[N], before_nr[N];
bool saw_freeze[N];
byte saw_version[N], number[N]; /* of K/locks; our slot */
mtype:says marked[N];		/* what we wrote last, as far as we know */
byte known[N];			/* version of our node, as we know it */
byte own_lock[N];		/* our node in K/locks, as we know it */
bool asked[N];			/* what an attempt in K/locks has left may be there */
bool running[ALL];

bool idle_read; /* a node that was a waiter's is about to be deleted, at this version */
byte idle_version;
bool came[ALL];

hidden byte x, best, count;

/* ---- the server ---- */

inline call_watchers(who, part)
{
	for (x : 0 .. N - 1) {
		if
		:: in_part[x] == part && (watches[x] == who || (!part && watches[x] == LIST && who != FREEZE)) -> called[x] = true
		:: else
		fi
	}
}

inline remove_place(c)
{
	if
	:: seq[c] -> seq[c] = 0; version[c] = 0; says[c] = AT_ONCE; call_watchers(c, false)
	:: else
	fi
}

inline remove_lock(c)
{
	if
	:: lock[c] -> lock[c] = 0; call_watchers(c, true)
	:: else
	fi
}

inline remove_leases(c)
{
	if
	:: lease[c] ->
		lease[c] = 0;
		for (x : 0 .. N - 1) {
			if
			:: in_part[x] && watches[x] == LIST -> called[x] = true
			:: else
			fi
		}
	:: else
	fi
}

inline remove_slots(c)
{
	for (x : 0 .. LIMIT - 1) {
		if
		:: slot[x] == c + 1 -> slot[x] = 0
		:: else
		fi
	}
}

inline count_leases()
{
	count = 0;
	for (x : 0 .. ALL - 1) {
		count = count + lease[x]
	}
}

/* The list of K: how many are before us, and the last of them. */
inline read_queue(c)
{
	ahead[c] = 0; before[c] = NOBODY; best = 0;
	for (x : 0 .. N - 1) {
		if
		:: seq[x] && x != c && seq[x] < seq[c] ->
			ahead[c]++;
			if
			:: seq[x] > best -> best = seq[x]; before[c] = x
			:: else
			fi
		:: else
		fi
	}
	before_nr[c] = best;
	saw_freeze[c] = frozen
}

/* The lists of K/locks, K/leases and K/slots. */
inline read_parts(c)
{
	ahead[c] = 0; before[c] = NOBODY; best = 0;
	for (x : 0 .. ALL - 1) {
		if
		:: lock[x] && x != c && (lock[x] < lock[c] || !lock[c]) ->
			ahead[c]++;
			if
			:: lock[x] > best -> best = lock[x]; before[c] = x
			:: else
			fi
		:: else
		fi
	}
	before_nr[c] = best;
	count_leases();
	held[c] = count;
	saw_freeze[c] = frozen;
	saw_version[c] = locks_version;
	number[c] = 0;
#if BUG == 1
	number[c] = (count < LIMIT -> count : 0);
#else
	for (x : 0 .. LIMIT - 1) {
		if
		:: number[c] < LIMIT - 1 && slot[number[c] % LIMIT] -> number[c]++
		:: else
		fi
	}
#endif
}

/* Numbers of which only the order counts begin anew when nobody has one. */
inline tidy()
{
	count = 0; best = 0;
	for (x : 0 .. N - 1) {
		count = count + seq[x]
	}
	last_seq = (count -> last_seq : 0);
	for (x : 0 .. LIMIT - 1) {
		last_of[x] = (count -> last_of[x] : 0)
	}
	count = 0;
	for (x : 0 .. ALL - 1) {
		count = count + lock[x]
	}
	for (x : 0 .. N - 1) {
		count = count + own_lock[x]
	}
	last_lock = (count -> last_lock : 0);
	count = 0; x = 0
}

/* ---- a client ---- */

#define ACTS(c) (alive[c] && connected[c])
#define CAN_FAIL(c) (faults && ACTS(c) && phase[c] != IDLE && phase[c] != DONE && phase[c] != RUNS)

inline stop_watching(c)
{
	watches[c] = NOBODY; called[c] = false; in_part[c] = false; by_grant[c] = false
}

inline forget_all(c)
{
	stop_watching(c);
	ahead[c] = 0; before[c] = NOBODY; before_nr[c] = 0; held[c] = 0; saw_freeze[c] = false; saw_version[c] = 0; number[c] = 0;
	marked[c] = AT_ONCE; known[c] = 0; own_lock[c] = 0; asked[c] = false
}

/* Our place in K is lost: what is left before a permit goes first. */
inline lose_place(c)
{
	stop_watching(c);
	marked[c] = AT_ONCE; known[c] = 0;
#if BUG == 7
	phase[c] = JOIN
#else
	phase[c] = (asked[c] -> SWEEP : JOIN)
#endif
}

inline begin_command(c)
{
	phase[c] = RUNS; running[c] = true;
	assert(seq[c] && (!PERMITTED || (lease[c] == 1 && slot[number[c] % LIMIT] == c + 1))); /* LEASES */
	assert(!confirmed || may_begin[c]); /* FROZEN */
	count = 0;
	for (x : 0 .. ALL - 1) {
		count = count + running[x];
		assert(!PERMITTED || x == c || x >= N || !running[x] || number[x % N] != number[c]) /* SLOTS */
	}
	assert(count <= LIMIT); /* EXCLUSION */
	stop_watching(c);
	tidy()
}

inline note_order(c)
{
	assert(seq[c] > last_of[number[c] % LIMIT] || (BUG && BUG != 8)); /* ORDER */
	last_of[number[c] % LIMIT] = (PERMITTED -> seq[c] : 0)
}

/* What its owner writes into it is told to those who wait for its grant. */
inline call_for_grant(c)
{
	for (x : 0 .. N - 1) {
		if
		:: !in_part[x] && watches[x] == c && by_grant[x] -> called[x] = true
		:: else
		fi
	}
	x = 0
}

/* What a list of K means. */
inline heed_queue(c)
{
	if
	:: ahead[c] >= LIMIT || saw_freeze[c] -> phase[c] = (marked[c] == WAITING -> WATCH : MARK)
	:: ahead[c] < LIMIT && !saw_freeze[c] && PERMITTED && ahead[c] && BUG != 8 -> phase[c] = ORDERLY
	:: ahead[c] < LIMIT && !saw_freeze[c] && PERMITTED && (!ahead[c] || BUG == 8) -> phase[c] = (own_lock[c] || asked[c] -> BACK : ENTER)
	:: ahead[c] < LIMIT && !saw_freeze[c] && !PERMITTED && marked[c] != WAITING -> begin_command(c)
	:: ahead[c] < LIMIT && !saw_freeze[c] && !PERMITTED && marked[c] == WAITING -> phase[c] = CLAIM
	fi
}

inline heed_parts(c)
{
	if
	:: saw_freeze[c] || ahead[c] || held[c] >= LIMIT -> phase[c] = (marked[c] == WAITED || marked[c] == AT_ONCE -> WATCH_PART : SERVE)
	:: else -> phase[c] = TAKE
	fi
}

proctype Client(byte c)
{
	do
	:: atomic { phase[c] == IDLE && (!c || phase[(c + N - 1) % N] != IDLE) -> phase[c] = JOIN }

	/* node_join(): the node is made, and the queue listed behind it */
	:: d_step { phase[c] == JOIN && ACTS(c) ->
			if
			:: !seq[c] -> last_seq++; seq[c] = last_seq; says[c] = AT_ONCE; version[c] = 0
			:: else
			fi;
			marked[c] = says[c]; known[c] = version[c];
			read_queue(c);
			phase[c] = LISTED; tidy() }
	:: atomic { phase[c] == LISTED && ACTS(c) -> heed_queue(c) }

	/* mark_as_waiter(), watch_ahead() */
	:: d_step { phase[c] == MARK && ACTS(c) ->
			if
			:: !seq[c] -> lose_place(c)
			:: seq[c] -> says[c] = WAITING; version[c]++; known[c] = version[c]; marked[c] = WAITING; phase[c] = WATCH
			fi }
	:: d_step { phase[c] == WATCH && ACTS(c) ->
			in_part[c] = false; called[c] = false;
			if
			:: saw_freeze[c] && ahead[c] < LIMIT -> watches[c] = FREEZE; called[c] = !frozen
			:: !(saw_freeze[c] && ahead[c] < LIMIT) && PERMITTED && ahead[c] == LIMIT ->
				/* the next in line: any holder may go; it lists with the watch */
				watches[c] = LIST; read_queue(c); called[c] = ahead[c] < LIMIT
			:: else ->
				watches[c] = before[c]; by_grant[c] = PERMITTED;
				called[c] = seq[before[c] % N] != before_nr[c] || (PERMITTED && says[before[c] % N] != WAITING)
			fi;
			called[c] = called[c] || !seq[c];
			phase[c] = WAITS; tidy() }
	/* not through a place that is lost: its end is watched, too */
	:: atomic { phase[c] == WAITS && ACTS(c) && (called[c] || !seq[c]) ->
			stop_watching(c);
			if
			:: !seq[c] -> lose_place(c)
			:: seq[c] -> phase[c] = (PERMITTED || BUG == 3 -> RELIST : CLAIM)
			fi }
	:: d_step { phase[c] == RELIST && ACTS(c) ->
			if
			:: seq[c] -> read_queue(c); phase[c] = LISTED
			:: !seq[c] -> lose_place(c)
			fi;
			tidy() }

	/* claim_turn(): our node says that we take our turn; then the queue is read */
	:: d_step { phase[c] == CLAIM && ACTS(c) ->
			if
			:: !seq[c] -> lose_place(c)
			:: seq[c] ->
				says[c] = WAITED; version[c]++; known[c] = version[c]; marked[c] = WAITED;
				phase[c] = (BUG == 3 -> RUNS : RELIST)
			fi;
			tidy() }

	/* heed_order(): has the one right before us its permit? */
	:: d_step { phase[c] == ORDERLY && ACTS(c) ->
			if
			:: lease[before[c] % N] -> phase[c] = (own_lock[c] || asked[c] -> BACK : ENTER)
			:: !lease[before[c] % N] && marked[c] == WAITING -> phase[c] = SERVE_TURN
			:: else -> phase[c] = WATCH_TURN
			fi }
	:: d_step { phase[c] == SERVE_TURN && ACTS(c) ->
			if
			:: !seq[c] -> lose_place(c)
			:: seq[c] ->
				says[c] = WAITED; version[c]++; known[c] = version[c]; marked[c] = WAITED;
				call_for_grant(c);
				phase[c] = WATCH_TURN
			fi;
			tidy() }
	/* its node is watched, and its permit looked for behind that */
	:: d_step { phase[c] == WATCH_TURN && ACTS(c) ->
			in_part[c] = false; watches[c] = before[c]; by_grant[c] = true;
			called[c] = seq[before[c] % N] != before_nr[c] || !seq[c];
			phase[c] = (BUG == 9 -> WAITS : LOOK_TURN);
			tidy() }
	:: d_step { phase[c] == LOOK_TURN && ACTS(c) ->
			called[c] = called[c] || lease[before[c] % N];
			phase[c] = WAITS }

	/* enter_locks() */
	:: d_step { phase[c] == ENTER && ACTS(c) ->
			assert(!lock[c]); /* LEFT */
			last_lock++; lock[c] = last_lock; own_lock[c] = last_lock; asked[c] = true;
			read_parts(c);
			phase[c] = LISTS; tidy() }
	:: atomic { phase[c] == LISTS && ACTS(c) -> heed_parts(c) }
	/* turn_serve(), await_others() */
	:: d_step { phase[c] == SERVE && ACTS(c) ->
			if
			:: !seq[c] -> lose_place(c)
			:: seq[c] ->
				says[c] = WAITED; version[c]++; known[c] = version[c]; marked[c] = WAITED;
				call_for_grant(c);
				phase[c] = WATCH_PART
			fi;
			x = 0 }
	:: d_step { phase[c] == WATCH_PART && ACTS(c) ->
			in_part[c] = true; called[c] = false;
			if
			:: saw_freeze[c] -> watches[c] = FREEZE; called[c] = !frozen
			:: !saw_freeze[c] && ahead[c] -> watches[c] = before[c]; called[c] = lock[before[c] % ALL] != before_nr[c]
			:: !saw_freeze[c] && !ahead[c] -> watches[c] = LIST; count_leases(); called[c] = count < held[c]
			fi;
			phase[c] = WAITS_PART; tidy() }
	:: atomic { phase[c] == WAITS_PART && ACTS(c) && (called[c] || !seq[c]) ->
			stop_watching(c);
			if
			:: !seq[c] -> lose_place(c)
			:: else ->
				d_step { read_parts(c); tidy() }
				phase[c] = (lock[c] -> LISTS : ENTER)
			fi }

	/* take_slot(): one transaction */
	:: d_step { phase[c] == TAKE && ACTS(c) ->
			if
			:: seq[c] && version[c] == known[c] && lock[c] == own_lock[c] &&
			   (BUG == 1 || !slot[number[c] % LIMIT]) && (BUG == 2 || saw_version[c] == locks_version) ->
				says[c] = WAITED; version[c]++; known[c] = version[c]; marked[c] = WAITED;
				note_order(c);
				slot[number[c] % LIMIT] = c + 1;
				lease[c]++;
				call_for_grant(c);
#if BUG == 6
				phase[c] = LEAVE_LOCKS
#else
				remove_lock(c);
				own_lock[c] = 0; asked[c] = false;
				phase[c] = RUNS
#endif
			:: else ->
				if
				:: !seq[c] -> lose_place(c)
				:: seq[c] && version[c] != known[c] -> known[c] = version[c]; marked[c] = says[c]
				:: seq[c] && version[c] == known[c] && !lock[c] -> phase[c] = ENTER
				:: else -> read_parts(c); phase[c] = LISTS
				fi
			fi;
			tidy() }
	:: atomic { phase[c] == LEAVE_LOCKS && ACTS(c) -> remove_lock(c); own_lock[c] = 0; asked[c] = false; phase[c] = RUNS; tidy() }
	:: atomic { phase[c] == RUNS && !running[c] && ACTS(c) -> begin_command(c) }

	/* come_back(): there was no connection for a while, or we were before K/locks already */
	:: d_step { phase[c] == BACK && ACTS(c) ->
			if
			:: !seq[c] -> lose_place(c)
			:: seq[c] && lease[c] && slot[number[c] % LIMIT] == c + 1 ->
				known[c] = version[c]; marked[c] = says[c];
				own_lock[c] = 0; asked[c] = false; phase[c] = RUNS
			:: seq[c] && !(lease[c] && slot[number[c] % LIMIT] == c + 1) && lock[c] && lock[c] == own_lock[c] && BUG != 5 ->
				known[c] = version[c]; marked[c] = says[c];
				read_parts(c); phase[c] = LISTS
			:: else ->
				own_lock[c] = 0;
				asked[c] = BUG != 5;
				phase[c] = (BUG == 5 -> RELIST : SWEEP)
			fi;
			tidy() }
	/* permit_sweep(): whatever an attempt has left */
	:: d_step { phase[c] == SWEEP && ACTS(c) ->
			remove_lock(c); remove_slots(c); remove_leases(c);
			own_lock[c] = 0; asked[c] = false;
			phase[c] = (seq[c] -> RELIST : JOIN);
			tidy() }

	/* The command has ended; or it waits no longer. */
	:: d_step { phase[c] == RUNS && running[c] ->
			for (x : 0 .. N - 1) {
				assert(phase[x] != WAITS || watches[x] != c || !by_grant[x] || called[x]) /* TOLD */
			}
			x = 0;
			running[c] = false; phase[c] = GIVE }
	:: atomic { tired && (phase[c] == WAITS || phase[c] == WAITS_PART) && ACTS(c) -> tired--; stop_watching(c); phase[c] = GIVE }
	:: d_step { phase[c] == GIVE && ACTS(c) ->
			if
			:: asked[c] -> remove_lock(c); remove_slots(c); remove_leases(c)
			:: !asked[c] && seq[c] -> remove_slots(c); remove_leases(c)
			:: else
			fi;
			remove_place(c);
			assert(!lock[c] && !lease[c]); /* LEFT */
			forget_all(c); phase[c] = DONE; tidy() }

	/* ---- what goes wrong ---- */
	:: atomic { faults && alive[c] && phase[c] != IDLE && phase[c] != DONE ->
			faults--; alive[c] = false; running[c] = false; stop_watching(c) }
	/* before the request is done: it is asked anew, by another connection; watches live on */
	:: atomic { CAN_FAIL(c) -> faults--; connected[c] = false }
	/* after it is done, before the answer */
	:: d_step { CAN_FAIL(c) && phase[c] == TAKE && seq[c] && version[c] == known[c] && lock[c] == own_lock[c] &&
		   !slot[number[c] % LIMIT] && saw_version[c] == locks_version ->
			faults--; connected[c] = false;
			says[c] = WAITED; version[c]++;
			note_order(c);
			slot[number[c] % LIMIT] = c + 1; lease[c]++;
			call_for_grant(c);
			remove_lock(c);
			phase[c] = BACK; tidy() }
	:: d_step { CAN_FAIL(c) && phase[c] == ENTER ->
			faults--; connected[c] = false;
			last_lock++; lock[c] = last_lock; asked[c] = true; own_lock[c] = 0;
			phase[c] = BACK; tidy() }
	:: d_step { CAN_FAIL(c) && phase[c] == GIVE ->
			faults--; connected[c] = false;
			if
			:: asked[c] -> remove_lock(c); remove_slots(c); remove_leases(c)
			:: !asked[c] && seq[c] -> remove_slots(c); remove_leases(c)
			:: else
			fi;
			remove_place(c); tidy() }
	:: atomic { alive[c] && !connected[c] ->
			connected[c] = true;
			if
			:: phase[c] == LISTS || phase[c] == SERVE || phase[c] == WATCH_PART || phase[c] == WAITS_PART ||
			   phase[c] == TAKE || phase[c] == LEAVE_LOCKS -> stop_watching(c); phase[c] = BACK
			:: phase[c] == LISTED || phase[c] == MARK || phase[c] == WATCH || phase[c] == CLAIM ||
			   phase[c] == ORDERLY || phase[c] == SERVE_TURN || phase[c] == WATCH_TURN || phase[c] == LOOK_TURN -> stop_watching(c); phase[c] = RELIST
			:: else
			fi }
	:: phase[c] == DONE || !alive[c] -> break
	od
}

#if CURATORS
/* Holds K/locks until it has a lease: makes it, and counts; waits while there are too many. */
proctype Curator(byte c)
{
end:	do
	:: d_step { !lock[c] && !lease[c] && !running[c] && !came[c] -> last_lock++; lock[c] = last_lock; came[c] = true }
	:: d_step { lock[c] && !lease[c] ->
			best = 0;
			for (x : 0 .. ALL - 1) {
				best = best + (lock[x] && lock[x] < lock[c])
			}
			if
			:: best == 0 && !frozen -> lease[c] = 1
			:: else
			fi;
			best = 0; x = 0 }
	:: d_step { lock[c] && lease[c] ->
			count_leases();
			if
			:: count <= LIMIT -> running[c] = true; remove_lock(c)
			:: else
			fi;
			tidy() }
	:: atomic { running[c] ->
			count = 0;
			for (x : 0 .. ALL - 1) {
				count = count + running[x]
			}
			assert(count <= LIMIT); /* EXCLUSION */
			running[c] = false; remove_leases(c); tidy() }
	od
}
#endif

/* ---- the server, and others ---- */

#define HAS_ANYTHING(c) (seq[c] || lock[c] || lease[c] || slot[0] == (c) + 1 || slot[LIMIT - 1] == (c) + 1)

inline expire(c)
{
	remove_place(c); remove_lock(c); remove_leases(c); remove_slots(c)
}

/* A client without its session: what it had is gone. */
inline begin_anew(c)
{
	phase[c] = (phase[c] == GIVE -> DONE : JOIN);
	forget_all(c); tidy()
}

proctype Server()
{
end:	do
	:: d_step { !alive[0] && HAS_ANYTHING(0) -> expire(0); tidy() }
	:: d_step { !alive[1] && HAS_ANYTHING(1) -> expire(1); tidy() }
#if N == 3
	:: d_step { !alive[2] && HAS_ANYTHING(2) -> expire(2); tidy() }
#endif
	/* a session that ends while its client has no connection: it begins anew */
	:: d_step { faults && alive[0] && !connected[0] && !running[0] -> faults--; expire(0); begin_anew(0) }
	:: d_step { faults && alive[1] && !connected[1] && !running[1] -> faults--; expire(1); begin_anew(1) }
	/* delete_idler(): the first, by the version that was read while it was a waiter's */
	:: d_step { faults && !idle_read && seq[0] && says[0] == WAITING && !frozen -> faults--; idle_read = true; idle_version = version[0] }
	:: d_step { idle_read ->
			if
			:: seq[0] && (version[0] == idle_version || BUG == 4) -> remove_place(0)
			:: else
			fi;
			idle_read = false; idle_version = 0; tidy() }
	od
}

proctype Steer()
{
	byte c;

end:	do
	/* both nodes, and K/locks is written; the order of these does not matter to what is checked */
	:: d_step { freezes && !frozen -> freezes--; frozen = true; locks_version++ }
	/* it is confirmed: who is seen to hold */
	:: d_step { frozen && !confirmed ->
			for (c : 0 .. N - 1) {
				best = 0;
				for (x : 0 .. N - 1) {
					best = best + (seq[x] && seq[x] < seq[c])
				}
				may_begin[c] = (PERMITTED -> lease[c] > 0 : seq[c] && best < LIMIT && says[c] != WAITING)
			}
			c = 0; best = 0; x = 0;
			confirmed = true }
	:: d_step { frozen -> frozen = false; confirmed = false;
			for (c : 0 .. N - 1) {
				may_begin[c] = false
			}
			c = 0;
			call_watchers(FREEZE, false); call_watchers(FREEZE, true); tidy() }
	od
}

init
{
	atomic {
		byte c;

		for (c : 0 .. N - 1) {
			phase[c] = IDLE; alive[c] = true; connected[c] = true; watches[c] = NOBODY; before[c] = NOBODY;
			says[c] = AT_ONCE; marked[c] = AT_ONCE
		}
		c = 0;
		for (c : 0 .. N - 1) {
			run Client(c)
		}
		c = 0;
#if CURATORS
		run Curator(N);
#endif
#if FREEZES
		run Steer();
#endif
		run Server()
	}
}
