/*
 * simulate.c - Goal of these tests: no order of delays, losses, pauses, late answers and
 * exits makes the two state machines of dlock, the keeper's (cmd/supervise/step.c) and
 * the front's (cmd/supervise/watch.c), break a promise.
 *
 * Each seed is one world on one virtual clock: a server whose clock runs up to 1 % off
 * ours, others who take the lock the moment it lapses (or, where it is of a kind that
 * some hold together, when the last of those beside us has gone), a job that another may
 * have done, a network that delays and loses requests and answers, a command with
 * descendants that obey or do not, nested dlocks, a front that may die, and a front and a
 * keeper that are paused now and then (no step is run, everything that came is delivered
 * at its end), the keeper also between what it has decided and doing it. Several keys
 * are no other world here: their lease is the earliest of all, the first loss is theirs,
 * and a renewal that only some keys got is one that was lost (several.c). The world does what cmd/supervise/keeper.c and
 * cmd/supervise/front.c do with the actions.
 *
 *	SIMULATE_RUNS=N   schedules (500000)
 *	SIMULATE_SEED=N   one schedule, told event by event
 *
 * Each invariant has been seen to fail; a change to step.c (or lease.c), and what it
 * trips:
 *
 *	guard_tree      kill_at does not matter                   KILL_IN_TIME, NO_SPIN
 *	guard_tree      the loss comes with kill_at, not term_at  TERM_IN_TIME, NO_SPIN
 *	guard_tree      `disowned` does not matter                KILL_ON_DISOWNED
 *	guard_tree      `orphaned` does not matter                ORPHAN_STOPS
 *	guard_tree      `revoked` does not matter                 REVOKED_STOPS
 *	guard_tree      an empty tree loses nothing               NO_SPIN
 *	guard_tree      KILL_PATIENCE has no end                  RUN_ENDS
 *	next_wake       run_ends() is left out                    MAX_RUN_STOPS
 *	asked           does nothing, or stop_by comes later      ASKED_KILLS
 *	step            KILL_AGAIN is left out                    KILL_REPEATED, NO_SPIN
 *	take_lease      counts from the answer, not the request   EXCLUSION, KILL_IN_TIME, TERM_IN_TIME,
 *	                                                          GO_ONCE_ON_A_GRANT, LOSS_IS_TOLD
 *	lease_deadlines kill_at is a second later                 the same
 *	finished        does not wait for `empty` after a stop    RELEASE_AFTER_TREE, EXCLUSION, KILL_REPEATED, ...
 *	finished        forgets joined holds (or --wait-tree)     RELEASE_AFTER_TREE, EXCLUSION, ...
 *	give_back       asks for a renewal with the release       NO_RENEWAL_AFTER_RELEASE, ONE_CALL
 *	give_back       does not wait for the call in flight (*)  ONE_CALL, LOSS_IS_TOLD
 *	renew_if_due    does not look for a call in flight (*)    ONE_CALL, ONE_REPORT
 *	keep_granted    takes a grant after term_at               GO_ONCE_ON_A_GRANT
 *	renewed         GO once more                              GO_ONCE_ON_A_GRANT
 *	renewed         takes an answer after term_at             LATE_ANSWER_CHANGES_NOTHING, KILL_IN_TIME, ...
 *	is_kept_longer  never                                     MIN_HOLD_KEPT
 *	linger          reports each time                         ONE_REPORT
 *	step            no report on exit                         ONE_REPORT
 *	released        `unconfirmed` after the report            ENDING_STAYS
 *	lose            after the report                          ENDING_STAYS
 *	step            PH_OVER goes on                           EXIT_LAST
 *	hold            stop_by outlives the stop                 NO_SPIN
 *	guard_tree      what is finished loses nothing at term_at LOSS_IS_TOLD
 *	  and the world's EV_OVERTAKEN is left out               OWN_END_IS_OWN, RELEASE_AFTER_TREE, EXCLUSION,
 *	                                                          NOTHING_LEFT_RUNNING, KILL_IN_TIME
 *	overtaken       does nothing                              OWN_END_IS_OWN, NOTHING_LEFT_RUNNING, ...
 *	watch           no DUTY_KILL                              EXCLUSION
 *	watch           no DUTY_TERM                              FRONT_IS_IN_TIME
 *	watch           does not look again before the grant      EXCLUSION
 *	watch           does not ask whether all is finished      FRONT_IS_NEEDED
 *	  and the world's front does not hear of a grant         EXCLUSION, FRONT_IS_IN_TIME
 *	released        does not try again                        NOT_LEFT_BEHIND
 *	surely_over     counts from the last good renewal         NOT_LEFT_BEHIND
 *	absorb          EV_KEEP does nothing                      MIN_HOLD_KEPT
 *	not_executed    after the report                          ENDING_STAYS
 *	released        RC_LOST is no loss                        LOSS_IS_TOLD
 *	absorb          EV_INTERRUPTED counts in PH_HOLD          NOTHING_RAN_IS_TRUE
 *	  and in the world, finish_call() makes EV_GRANTED of RC_DONE   NOTHING_RAN_IS_TRUE
 *	absorb          a stub's end is the command's             COMMAND_RAN_IS_TRUE
 *	not_executed    a loss before it stays                    COMMAND_RAN_IS_TRUE
 *
 * (*) with the assertion in start_call() taken out, which catches them first.
 */
#include "cmd/supervise/run.h"
#include "cmd/supervise/step.h"
#include "cmd/supervise/watch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS NS_PER_MS
#define S NS_PER_S
/* from a deadline to the step that must have come; wakes are up to 30 ms late */
#define LATE (50 * MS)

/* ---- the invariants ---- */

enum invariant {
	KILL_IN_TIME,
	KILL_REPEATED,
	KILL_ON_DISOWNED,
	REVOKED_STOPS,
	TERM_IN_TIME,
	MAX_RUN_STOPS,
	ASKED_KILLS,
	ORPHAN_STOPS,
	EXCLUSION,
	RELEASE_AFTER_TREE,
	NO_RENEWAL_AFTER_RELEASE,
	ONE_CALL,
	GO_ONCE_ON_A_GRANT,
	LATE_ANSWER_CHANGES_NOTHING,
	MIN_HOLD_KEPT,
	ONE_REPORT,
	ENDING_STAYS,
	EXIT_LAST,
	RUN_ENDS,
	NO_SPIN,
	LOSS_IS_TOLD,
	NOTHING_RAN_IS_TRUE,
	COMMAND_RAN_IS_TRUE,
	OWN_END_IS_OWN,
	NOTHING_LEFT_RUNNING,
	NOT_LEFT_BEHIND,
	FRONT_IS_IN_TIME,
	FRONT_IS_NEEDED,
	INVARIANTS
};

static const char *const promise[INVARIANTS] = {
    [KILL_IN_TIME] = "nothing covered runs past kill_at unkilled",
    [KILL_REPEATED] = "KILL is repeated until nothing is left",
    [KILL_ON_DISOWNED] = "the server's \"not yours\" kills in the same step",
    [REVOKED_STOPS] = "TERM or KILL as soon as the lock is wanted back",
    [TERM_IN_TIME] = "TERM or KILL in the first step at or after term_at",
    [MAX_RUN_STOPS] = "TERM or KILL in the first step after --max-run",
    [ASKED_KILLS] = "KILL in the first step --kill-after a signal has asked",
    [ORPHAN_STOPS] = "TERM or KILL as soon as the front is gone",
    [EXCLUSION] = "nothing covered runs while the server has granted the lock to another",
    [RELEASE_AFTER_TREE] = "release only when the covered tree is gone",
    [NO_RENEWAL_AFTER_RELEASE] = "no renewal after a release",
    [ONE_CALL] = "at most one call in flight",
    [GO_ONCE_ON_A_GRANT] = "GO once, on a grant that leaves time to run",
    [LATE_ANSWER_CHANGES_NOTHING] =
	"an answer at or after term_at moves no deadline and no verdict",
    [MIN_HOLD_KEPT] = "a lock that is ours is kept for --min-hold",
    [ONE_REPORT] = "one report in each run",
    [ENDING_STAYS] = "the ending does not change after the report",
    [EXIT_LAST] = "nothing is asked after EXIT",
    [RUN_ENDS] = "every run ends",
    [NO_SPIN] = "the next wake lies in the future",
    [LOSS_IS_TOLD] =
	"a lock that was lost under the command is not reported as the command's own end",
    [NOTHING_RAN_IS_TRUE] = "\"nothing was run\" only when nothing ran",
    [COMMAND_RAN_IS_TRUE] =
	"lost, max-run and the command's end only after a GO that was not refused",
    [OWN_END_IS_OWN] = "what the front has stopped has not ended by itself",
    [NOTHING_LEFT_RUNNING] = "nothing covered runs when the keeper exits",
    [NOT_LEFT_BEHIND] =
	"a lock that is still ours at the server was asked back for a whole lease",
    [FRONT_IS_IN_TIME] = "a front that is awake stops what a late keeper does not",
    [FRONT_IS_NEEDED] =
	"the front stops nothing that does not need the lock, and nothing before its time",
};

static struct {
	unsigned long count;
	unsigned long seed; /* the first */
} broken[INVARIANTS];

/* What the schedules have reached, to show that they reach everything. */
static struct {
	unsigned long runs, steps, endings[END_LOST + 1], losses[LOSS_FOUND + 1],
	    renewals, unanswered, late, pauses, alerts, revoked, kills, joins, lingered,
	    stuck, lapsed_under_pause, too_late, unconfirmed, front_pauses, half_done,
	    front_terms, overtaken, taken_over, left_behind, retried, kept, terminated,
	    skipped, beside;
} reached;

/* ---- a world ---- */

enum kind {
	/* the world's own */
	W_AT_SERVER, /* a request arrives: id, value is the enum call */
	W_LAPSE,     /* the lease ends at the server: id */
	W_OTHERS_END,
	W_BESIDE_ENDS,
	W_BREAK, /* an administrator takes the lock away */
	W_EXEC,
	W_COMMAND_ENDS, /* value: wait status */
	W_REST_ENDS,
	W_PEER_ENDS,
	W_TERM_LANDS,
	W_KILL_LANDS,
	W_PAUSE,
	W_RESUME,
	W_FRONT_WAKE, /* id */
	W_FRONT_PAUSE,
	W_FRONT_RESUME,
	W_FRONT_DIES,
	W_INTERRUPT,
	W_LOOK,     /* nothing but a look at the invariants that depend on time */
	W_LOOK_RUN, /* the same, for --max-run */
	/* what reaches the keeper: waits while it is paused */
	K_FIRST,
	K_CALL = K_FIRST, /* start the call that was asked for */
	K_STARTED,
	K_EXEC_FAILED,
	K_ENDED,
	K_EMPTY,
	K_ORPHANED,
	K_INTERRUPT,
	K_ASKED,
	K_PEER_ASKS,  /* value: 0 one in the tree, 1 one outside */
	K_PEER_KEEPS, /* value: ms */
	K_PEER_PARTS,
	K_TERMINATE,
	K_ALERT,
	K_WAKE,    /* id */
	K_ANSWER,  /* id, value: enum rc, or QUEUED */
	K_WAKEUP,  /* from the server, to a waiter */
	K_TIMEOUT, /* id */
	K_STOPPED, /* id */
};

enum { QUEUED = 1000, ROOM = 96, PAUSES = 3, PEERS = 2 };

struct logged {
	instant at;
	unsigned long order;
	enum kind kind;
	unsigned id;
	int value;
};

enum life { STUB, RUNS, DEAD };

struct world {
	unsigned long seed;
	uint64_t random;
	bool told; /* print what happens */
	instant now;
	struct logged queue[ROOM];
	size_t queued;
	unsigned long order;
	struct keep keep;
	struct terms terms;
	bool several;
	uint64_t jitter;

	/* network */
	unsigned loss; /* packets in 1000 */
	instant outage_from, outage_to;

	/* server */
	int64_t lease, pace; /* that it gives: LEASE_FOREVER; 0 */
	int rate;            /* of its clock against ours, in 1/1000 */
	bool contended, waiting, ours, other, errors, revokes;
	/* another of our kind (shared, or limited) holds it, beside whom we may */
	bool beside;
	bool once, job_done;
	unsigned lease_id;

	/* the backend's side of the call in flight */
	enum call call;
	unsigned call_id, asks;
	instant sent, until, wait_until;
	bool call_runs, stop, told_lost, told_done;

	/* keeper */
	bool paused, in_order;
	instant paused_from[PAUSES], paused_to[PAUSES];
	size_t pauses;
	struct logged inbox[ROOM];
	size_t came;
	unsigned wake_id;
	bool killed; /* by the front */
	instant killed_at;
	bool half_done; /* paused between step() and this: */
	struct actions half;

	/* front, and what both see */
	struct watch watch;
	struct watch_page page;
	struct ending page_ending;
	instant published_at;
	bool front_gone, front_dead, front_paused;
	instant front_dead_at, front_paused_from[PAUSES], front_paused_to[PAUSES];
	size_t front_pauses;
	unsigned front_wake_id;

	/* tree */
	enum life command;
	instant latest; /* to begin */
	bool execs, ran, rest, unkillable, obeys, missed_once;
	int64_t runs, rest_runs, kill_latency;
	struct {
		bool alive, holds;
	} peers[PEERS];

	/* what has been seen; the deadlines by our own arithmetic */
	bool go, reported, released, exited, disowned, revoked, orphaned, taken_away;
	bool not_executed; /* EV_EXEC_FAILED has come */
	bool done;         /* with the tree: nothing is covered any more */
	bool cut_short;    /* TERM came from the front while something covered ran */
	bool hurry;
	instant asked_by; /* --kill-after is over; NEVER */
	instant keep_until;
	bool term_asked, kill_asked, gone, empty, granted, usable, lost_known;
	unsigned joined;
	instant term_at, kill_at, granted_at, started_at, kill_asked_at, lost_at,
	    covered_until;
	int64_t grace;
	struct ending ending;
};

static uint64_t
draw(struct world *w)
{
	w->random += 0x9e3779b97f4a7c15u; /* splitmix64, Steele et al. 2014 */
	uint64_t z = w->random;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static int64_t
below(struct world *w, int64_t n)
{
	return n > 0 ? (int64_t)(draw(w) % (uint64_t)n) : 0;
}

static int64_t
between(struct world *w, int64_t low, int64_t high)
{
	return low + below(w, high - low + 1);
}

static bool
chance(struct world *w, int percent)
{
	return below(w, 100) < percent;
}

static void __attribute__((format(printf, 2, 3)))
tell(const struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (!w->told)
		return;
	printf("%10.4f  ", (double)w->now / S);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void
require(struct world *w, enum invariant i, bool holds)
{
	if (holds)
		return;
	if (broken[i].count++ == 0)
		broken[i].seed = w->seed;
	tell(w, "BROKEN: %s", promise[i]);
}

static void
later(struct world *w, int64_t after, enum kind kind, unsigned id, int value)
{
	if (w->queued == ROOM)
		abort();
	w->queue[w->queued++] = (struct logged){
	    instant_after(w->now, after), w->order++, kind, id, value};
}

/* Takes back what was to happen. */
static void
forget(struct world *w, enum kind kind)
{
	size_t kept = 0;

	for (size_t i = 0; i < w->queued; i++)
		if (w->queue[i].kind != kind)
			w->queue[kept++] = w->queue[i];
	w->queued = kept;
}

static bool
next_entry(struct world *w, struct logged *ret)
{
	size_t best = 0;

	if (w->queued == 0)
		return false;
	for (size_t i = 1; i < w->queued; i++)
		if (w->queue[i].at < w->queue[best].at ||
		    (w->queue[i].at == w->queue[best].at &&
			w->queue[i].order < w->queue[best].order))
			best = i;
	*ret = w->queue[best];
	w->queue[best] = w->queue[--w->queued];
	return true;
}

/* ---- what is true, whatever the keeper knows ---- */

/* Does anything run that the lock is there for? */
static bool
covered_alive(const struct world *w)
{
	bool all = w->terms.wait_tree || w->term_asked || w->kill_asked;

	if (!w->go)
		return false;
	if (w->command == RUNS || (w->command == STUB && w->execs && w->now < w->latest))
		return true;
	if (w->peers[0].alive && (w->peers[0].holds || all))
		return true;
	return w->rest && all;
}

/*
 * The same as far as the keeper has been told, and can do something about: a
 * joined dlock outside the tree keeps the deadlines itself.
 */
static bool
covered_known(const struct world *w)
{
	if (!w->go || w->done || w->empty)
		return false;
	if (w->term_asked || w->kill_asked || w->disowned || w->lost_known)
		return true;
	return !w->gone || w->terms.wait_tree || w->joined > 0;
}

static bool
front_paused_at(const struct world *w, instant when)
{
	if (w->front_dead && w->front_dead_at <= instant_after(when, 3 * LATE))
		return true;
	for (size_t i = 0; i < w->front_pauses; i++)
		if (w->front_paused_from[i] <= instant_after(when, 3 * LATE) &&
		    w->front_paused_to[i] >= when)
			return true;
	return false;
}

/* Was the keeper paused at that instant, or so near that it could not act? */
static bool
paused_at(const struct world *w, instant when)
{
	for (size_t i = 0; i < w->pauses; i++)
		if (w->paused_from[i] <= instant_after(when, LATE) &&
		    w->paused_to[i] >= when)
			return true;
	return false;
}

/* When --max-run is over; NEVER where there is nothing for it to stop. */
static instant
run_over(const struct world *w)
{
	if (w->started_at == NEVER || (w->gone && !w->terms.wait_tree))
		return NEVER;
	return instant_after(w->started_at, w->terms.max_run);
}

static void
look(struct world *w)
{
	bool alive = covered_alive(w), stopped = w->page.stopping || w->kill_asked;

	if (alive)
		w->covered_until = w->now;
	if (alive && w->other && !w->unkillable && !w->taken_away &&
	    !(paused_at(w, w->kill_at) && front_paused_at(w, w->kill_at)))
		require(w, EXCLUSION, false);
	if (w->page.granted && !w->page.finished && !w->killed && !w->front_gone) {
		instant term_at = w->page.term_at > w->published_at ? w->page.term_at
								    : w->published_at;
		instant kill_at = w->page.kill_at > w->published_at ? w->page.kill_at
								    : w->published_at;

		require(w, FRONT_IS_IN_TIME,
		    w->page.stopping || w->now <= instant_after(term_at, 3 * LATE) ||
			front_paused_at(w, term_at));
		require(w, FRONT_IS_IN_TIME,
		    w->now <= instant_after(kill_at, 3 * LATE) ||
			front_paused_at(w, kill_at));
	}
	if (covered_known(w) && !w->paused && !w->killed) {
		require(w, KILL_IN_TIME,
		    w->kill_asked || w->now <= instant_after(w->kill_at, LATE) ||
			paused_at(w, w->kill_at));
		require(w, TERM_IN_TIME,
		    stopped || w->now <= instant_after(w->term_at, LATE) ||
			paused_at(w, w->term_at));
		require(w, MAX_RUN_STOPS,
		    stopped || w->now <= instant_after(run_over(w), LATE) ||
			paused_at(w, run_over(w)));
		require(w, ASKED_KILLS,
		    w->kill_asked || w->now <= instant_after(w->asked_by, LATE) ||
			paused_at(w, w->asked_by));
	}
}

/* ---- the server ---- */

static int64_t
at_server(const struct world *w, int64_t length)
{
	return length == LEASE_FOREVER ? NEVER : length / (1000 + w->rate) * 1000;
}

static void
send_packet(struct world *w, enum kind kind, unsigned id, int value)
{
	int64_t lot = below(w, 100),
		attempt = lease_attempt(
		    w->lease == LEASE_FOREVER ? w->terms.ttl : w->lease);
	int64_t delay = lot < 80 ? below(w, 5 * MS)
	    : lot < 95           ? below(w, 300 * MS)
				 : below(w, 3 * attempt);

	if ((unsigned)below(w, 1000) < w->loss ||
	    (w->now >= w->outage_from && w->now < w->outage_to)) {
		tell(w, "            (lost on the way)");
		return;
	}
	later(w, delay, kind, id, value);
}

static void
take_place(struct world *w)
{
	w->other = true;
	later(w, between(w, 100 * MS, 10 * S), W_OTHERS_END, 0, 0);
}

static void
extend(struct world *w)
{
	w->ours = true;
	w->waiting = false;
	forget(w, W_LAPSE);
	later(w, at_server(w, w->lease), W_LAPSE, ++w->lease_id, 0);
}

static void
no_longer_ours(struct world *w)
{
	w->ours = false;
	w->lease_id++;
	if (w->go && w->lost_at == NEVER)
		w->lost_at = w->now;
	if (w->contended && !w->beside)
		take_place(w);
}

/*
 * The last of our kind beside us, or whom we lost it to: now it is an exclusive one's
 * turn.
 */
static void
beside_ends(struct world *w)
{
	w->beside = false;
	if (!w->ours && w->contended && !w->other)
		take_place(w);
}

/* Decided under the lock, which goes on to the next at once. */
static void
skip_job(struct world *w, unsigned id)
{
	if (w->ours)
		no_longer_ours(w);
	w->waiting = false;
	send_packet(w, K_ANSWER, id, RC_DONE);
}

static void
serve_acquire(struct world *w, unsigned id)
{
	if (w->lost_at != NEVER || w->released)
		/*
		 * an old request that comes after all: what it gives or not is the
		 * backend's business
		 */
		return;
	if (w->job_done) {
		skip_job(w, id);
		return;
	}
	if (!w->ours && w->other) {
		w->waiting = true;
		send_packet(w, K_ANSWER, id, QUEUED);
		return;
	}
	extend(w);
	send_packet(w, K_ANSWER, id, RC_OK);
}

static void
serve(struct world *w, unsigned id, enum call call)
{
	enum rc rc = w->ours ? RC_OK : RC_LOST;

	tell(w, "    server: %s, %s",
	    call == CALL_ACQUIRE     ? "acquire"
		: call == CALL_RENEW ? "renew"
				     : "release",
	    w->ours        ? "ours"
		: w->other ? "another's"
			   : "nobody's");
	if (w->errors && chance(w, 10)) { /* LOADING, MISCONF, ... */
		send_packet(w, K_ANSWER, id, RC_AGAIN);
		return;
	}
	if (call == CALL_ACQUIRE) {
		serve_acquire(w, id);
		return;
	}
	if (call == CALL_RENEW && w->ours)
		extend(w);
	if (call == CALL_RELEASE && w->ours) {
		w->ours = false;
		w->lease_id++;
		if (w->contended && !w->beside)
			take_place(w);
	}
	if (call == CALL_RELEASE)
		w->waiting = false;
	send_packet(w, K_ANSWER, id, rc);
}

static void
others_end(struct world *w)
{
	w->other = false;
	/* what the other ran was the same job */
	w->job_done = w->job_done || (w->once && chance(w, 50));
	if (w->waiting) {
		extend(w);
		send_packet(w, K_WAKEUP, 0, 0);
	}
}

/* ---- the tree ---- */

static bool
nothing_left(const struct world *w)
{
	return w->command == DEAD && !w->rest && !w->peers[0].alive;
}

static void
after_a_death(struct world *w)
{
	if (nothing_left(w))
		later(w, below(w, 2 * MS), K_EMPTY, 0, 0);
}

static void
command_ends(struct world *w, int status)
{
	if (w->command == DEAD)
		return;
	w->command = DEAD;
	later(w, 0, K_ENDED, 0, status);
	after_a_death(w);
}

static void
rest_ends(struct world *w)
{
	if (!w->rest)
		return;
	w->rest = false;
	after_a_death(w);
}

static void
peer_ends(struct world *w, int which)
{
	if (!w->peers[which].alive)
		return;
	w->peers[which].alive = false;
	if (w->peers[which].holds) {
		int64_t delay = below(w, 5 * MS);

		if (chance(w, 30))
			later(w, delay, K_PEER_KEEPS, 0,
			    (int)below(w, 2 * w->terms.ttl / MS));
		later(w, delay, K_PEER_PARTS, 0, which);
	}
	if (which == 0)
		after_a_death(w);
}

static void
exec_command(struct world *w)
{
	if (w->command != STUB)
		return;
	if (!w->execs || w->now >= w->latest) {
		later(w, 0, K_EXEC_FAILED, 0, w->execs ? ETIME : ENOENT);
		command_ends(w, 127 << 8);
		return;
	}
	w->command = RUNS;
	w->ran = true;
	w->rest = w->rest_runs > 0;
	later(w, below(w, 3 * MS), K_STARTED, 0, 0);
	later(w, w->runs, W_COMMAND_ENDS, 0, (int)below(w, 2) << 8);
	if (w->rest)
		later(w, w->rest_runs, W_REST_ENDS, 0, 0);
	if (chance(w, 15))
		later(w, below(w, w->runs), K_PEER_ASKS, 0, 0);
	if (chance(w, 3))
		later(w, below(w, w->runs), K_PEER_ASKS, 0, 1);
}

static void
term_lands(struct world *w)
{
	if (!w->obeys || w->unkillable)
		return;
	command_ends(w, 15);
	peer_ends(w, 0);
	if (chance(w, 60))
		rest_ends(w);
}

static void
kill_lands(struct world *w)
{
	if (w->unkillable)
		return;
	command_ends(w, 9);
	peer_ends(w, 0);
	if (!w->missed_once && chance(w, 20))
		w->missed_once = true; /* it forked while the keeper looked */
	else
		rest_ends(w);
}

/* ---- the keeper, as keeper.c is ---- */

static void deliver(struct world *, struct event);

static void
ask(struct world *w)
{
	int64_t patience = w->call == CALL_ACQUIRE ? S : w->until - w->now;

	w->sent = w->now;
	w->call_id++;
	send_packet(w, W_AT_SERVER, w->call_id, w->call);
	forget(w, K_TIMEOUT);
	later(w, patience > 0 ? patience : 0, K_TIMEOUT, w->call_id, 0);
	if (w->stop)
		later(w, 0, K_STOPPED, w->call_id, 0);
}

static void
finish_call(struct world *w, enum rc rc)
{
	struct event e = {
	    .sent = w->sent, .lease = w->lease, .pace = w->pace, .value = rc};
	enum call call = w->call;

	w->call = CALL_NONE;
	w->call_runs = false;
	w->call_id++;
	w->stop = false;
	if (call == CALL_ACQUIRE)
		e.kind = rc == RC_OK ? EV_GRANTED : EV_REFUSED;
	else if (call == CALL_RENEW)
		e.kind = rc == RC_OK ? EV_RENEWED
		    : rc == RC_LOST  ? EV_DISOWNED
				     : EV_UNANSWERED;
	else
		e.kind = EV_RELEASED;
	if (e.kind == EV_GRANTED && chance(w, 2))
		e.value = RC_AGAIN; /* the look before "go" has failed */
	w->told_lost = w->told_lost || (w->go && rc == RC_LOST);
	w->told_done = w->told_done || (call == CALL_ACQUIRE && rc == RC_DONE);
	if (e.kind == EV_RENEWED && w->revokes && chance(w, 30))
		e.kind = EV_REVOKED;
	reached.revoked += e.kind == EV_REVOKED;
	reached.renewals += e.kind == EV_RENEWED;
	reached.unanswered += e.kind == EV_UNANSWERED;
	deliver(w, e);
}

/* A waiter's backend asks again, until it has waited enough or nobody answers. */
static void
ask_again(struct world *w, bool answered)
{
	w->asks = answered ? 0 : w->asks + 1;
	if (w->now >= w->wait_until)
		finish_call(w, RC_BUSY);
	else if (w->asks >= 5)
		finish_call(w, RC_AGAIN);
	else
		ask(w);
}

static void
answered(struct world *w, int value)
{
	if (value == QUEUED) {
		w->asks = 0;
		w->call_id++; /* the answer is in: no timeout, but a heartbeat */
		later(w, between(w, 0, 3 * S), K_TIMEOUT, w->call_id, QUEUED);
	} else if (w->call == CALL_ACQUIRE && value == RC_AGAIN && chance(w, 50)) {
		finish_call(w, RC_DENIED);
	} else {
		finish_call(w, value);
	}
}

static void
peer_asks(struct world *w, int which)
{
	bool there = which == 1 || w->command == RUNS || w->rest;

	if (!there || w->peers[which].alive)
		return;
	w->peers[which].alive = true;
	later(w, between(w, MS, w->terms.ttl), W_PEER_ENDS, 0, which);
	if (w->keep.phase != PH_HOLD || keep_is_lost(&w->keep))
		return;
	w->peers[which].holds = true;
	w->joined++;
	reached.joins++;
	deliver(w, (struct event){.kind = EV_JOINED});
}

static void arrive(struct world *, const struct logged *);

static void
take_end(struct world *w, const struct logged *e)
{
	if (!w->ran && w->keep.phase != PH_ASK && !w->not_executed)
		deliver(w, (struct event){.kind = EV_EXEC_FAILED});
	if (w->paused) /* in between: it is still to do what that has led to */
		arrive(w, e);
	else
		deliver(w, (struct event){.kind = EV_ENDED, .value = e->value});
}

static void
take_input(struct world *w, const struct logged *e)
{
	switch (e->kind) {
	case K_CALL:
		w->call_runs = true;
		w->asks = 0;
		ask(w);
		break;
	case K_STARTED:
		deliver(w, (struct event){.kind = EV_STARTED});
		break;
	case K_EXEC_FAILED:
		deliver(w, (struct event){.kind = EV_EXEC_FAILED, .value = e->value});
		break;
	case K_ENDED:
		take_end(w, e);
		break;
	case K_EMPTY:
		deliver(w, (struct event){.kind = EV_EMPTY});
		break;
	case K_ORPHANED:
		deliver(w, (struct event){.kind = EV_ORPHANED});
		break;
	case K_INTERRUPT:
		deliver(w, (struct event){.kind = EV_INTERRUPTED, .value = 2});
		break;
	case K_ASKED:
		deliver(w, (struct event){.kind = EV_ASKED, .value = 15});
		break;
	case K_PEER_ASKS:
		peer_asks(w, e->value);
		break;
	case K_PEER_KEEPS:
		if (w->keep.phase == PH_HOLD && !keep_is_lost(&w->keep))
			deliver(
			    w, (struct event){.kind = EV_KEEP, .lease = e->value * MS});
		break;
	case K_PEER_PARTS:
		w->joined--;
		deliver(w, (struct event){.kind = EV_PARTED});
		break;
	case K_TERMINATE:
		deliver(w,
		    (struct event){
			.kind = w->keep.phase == PH_ASK ? EV_INTERRUPTED : EV_TERMINATED,
			.value = 15});
		break;
	case K_ALERT:
		reached.alerts += keep_wants_alert(&w->keep, w->now);
		if (keep_wants_alert(&w->keep, w->now))
			deliver(w, (struct event){.kind = EV_ALERT});
		break;
	case K_WAKE:
		if (e->id == w->wake_id)
			deliver(w, (struct event){.kind = EV_TICK});
		break;
	case K_ANSWER:
		if (w->call_runs && e->id == w->call_id)
			answered(w, e->value);
		break;
	case K_WAKEUP:
		if (w->call_runs && w->call == CALL_ACQUIRE)
			ask(w);
		break;
	case K_TIMEOUT:
		if (w->call_runs && e->id == w->call_id && w->call == CALL_ACQUIRE)
			ask_again(w, e->value == QUEUED);
		else if (w->call_runs && e->id == w->call_id)
			finish_call(w, RC_AGAIN);
		break;
	case K_STOPPED:
		if (w->call_runs && e->id == w->call_id)
			finish_call(w, RC_STOP);
		break;
	default:
		abort();
	}
}

/* What reaches the keeper, now or when it is awake. */
static void
arrive(struct world *w, const struct logged *e)
{
	if (!w->paused)
		take_input(w, e);
	else if (w->came < ROOM)
		w->inbox[w->came++] = *e;
}

static void carry_out(struct world *, const struct actions *);

/*
 * What came during a pause, in the order in which pump() looks; in half of the worlds in
 * another one.
 */
static void
resume(struct world *w)
{
	enum kind first[] = {
	    K_CALL, K_STARTED, K_ORPHANED, K_PEER_ASKS, K_WAKE, K_ANSWER, K_STOPPED + 1};
	size_t order[] = {0, 1, 2, 3, 4, 5}, came = w->came;
	struct logged inbox[ROOM];

	memcpy(inbox, w->inbox, sizeof inbox);
	w->came = 0;
	w->paused = false;
	if (w->half_done) {
		w->half_done = false;
		carry_out(w, &w->half);
	}
	for (size_t i = 5; i > 1 && !w->in_order; i--) {
		size_t j = 1 + below(w, i), o = order[i];

		order[i] = order[j];
		order[j] = o;
	}
	for (size_t c = 0; c < 6; c++)
		for (size_t i = 0; i < came; i++)
			if (inbox[i].kind >= first[order[c]] &&
			    inbox[i].kind < first[order[c] + 1] && !w->exited)
				arrive(w, &inbox[i]);
}

/* ---- what step() answers ---- */

static void
note_lease(struct world *w, const struct event *e)
{
	if (!w->terms.grace_fixed && !w->granted) {
		int64_t sixth = e->lease / 6 < 5 * S ? e->lease / 6 : 5 * S;

		w->grace = sixth < w->grace ? sixth : w->grace;
	}
	if (e->lease == LEASE_FOREVER) {
		w->kill_at = w->term_at = NEVER;
		return;
	}
	w->kill_at = e->sent + e->lease - e->lease / 100 - 500 * MS;
	w->term_at = w->kill_at - w->grace;
	forget(w, W_LOOK);
	later(w, w->term_at + LATE + 1 - w->now, W_LOOK, 0, 0);
	later(w, w->kill_at + LATE + 1 - w->now, W_LOOK, 0, 0);
}

/* What the event tells, taken down before step() sees it. */
static void
note_event(struct world *w, const struct event *e)
{
	switch (e->kind) {
	case EV_GRANTED:
		note_lease(w, e);
		w->granted = true;
		w->granted_at = w->now;
		w->keep_until = instant_after(w->now, w->terms.min_hold);
		w->usable = w->now < w->term_at;
		break;
	case EV_RENEWED:
		if (w->now < w->term_at && !w->lost_known)
			note_lease(w, e);
		else
			reached.late++;
		break;
	case EV_REVOKED:
		w->revoked = true;
		if (w->now < w->term_at && !w->lost_known)
			note_lease(w, e);
		break;
	case EV_DISOWNED:
		w->disowned = true;
		break;
	case EV_STARTED:
		w->started_at = w->now;
		if (w->terms.max_run != NEVER)
			later(w, w->terms.max_run + LATE + 1, W_LOOK_RUN, 0, 0);
		break;
	case EV_EXEC_FAILED:
		w->gone = w->empty = w->not_executed = true;
		break;
	case EV_ENDED:
		w->gone = true;
		break;
	case EV_EMPTY:
		w->empty = true;
		break;
	case EV_ASKED:
		if (w->keep.phase != PH_HOLD || w->asked_by != NEVER)
			break;
		w->asked_by = instant_after(w->now, w->terms.kill_after);
		if (w->asked_by != NEVER)
			later(w, w->terms.kill_after + LATE + 1, W_LOOK_RUN, 0, 0);
		break;
	case EV_ORPHANED:
		w->orphaned = true;
		break;
	case EV_KEEP:
		reached.kept++;
		if (w->keep_until < w->now + e->lease)
			w->keep_until = w->now + e->lease;
		break;
	case EV_OVERTAKEN:
		reached.overtaken++;
		break;
	case EV_TERMINATED:
		reached.terminated++;
		w->keep_until = 0;
		w->hurry = w->hurry || w->keep.phase > PH_HOLD;
		break;
	default:
		break;
	}
}

static void
check_stopping(
    struct world *w, const struct event *e, const struct actions *a, bool covered)
{
	bool stop = w->page.stopping || w->kill_asked || (a->set & (DO_TERM | DO_KILL));

	if (!covered || w->exited)
		return;
	require(w, TERM_IN_TIME, stop || w->now < w->term_at);
	require(
	    w, KILL_IN_TIME, w->kill_asked || (a->set & DO_KILL) || w->now < w->kill_at);
	require(w, MAX_RUN_STOPS, stop || w->now < run_over(w));
	require(
	    w, ASKED_KILLS, w->kill_asked || (a->set & DO_KILL) || w->now < w->asked_by);
	require(w, ORPHAN_STOPS, stop || !w->orphaned);
	require(w, REVOKED_STOPS, stop || !w->revoked);
	require(w, KILL_ON_DISOWNED, e->kind != EV_DISOWNED || (a->set & DO_KILL));
	require(w, KILL_REPEATED,
	    !w->kill_asked || (a->set & DO_KILL) ||
		w->now < w->kill_asked_at + KILL_AGAIN);
	require(w, KILL_REPEATED,
	    !(w->kill_asked || (a->set & DO_KILL)) || (a->set & DO_EXIT) ||
		a->wake <= w->now + KILL_AGAIN);
}

/* Did the command run and end while all was well? */
static bool
own_end(const struct world *w)
{
	return w->go &&
	    (w->keep.ending.kind == END_COMMAND || w->keep.ending.kind == END_MAX_RUN ||
		w->keep.ending.kind == END_KILLED);
}

static void
check_calls(struct world *w, const struct actions *a)
{
	unsigned calls = a->set & (DO_ACQUIRE | DO_RENEW | DO_RELEASE);

	require(
	    w, ONE_CALL, !calls || (w->call == CALL_NONE && (calls & (calls - 1)) == 0));
	require(w, NO_RENEWAL_AFTER_RELEASE,
	    !(w->released && (a->set & (DO_RENEW | DO_ACQUIRE))));
	if (a->set & DO_RELEASE) {
		require(w, RELEASE_AFTER_TREE, !covered_alive(w) && w->joined == 0);
		require(w, MIN_HOLD_KEPT,
		    !own_end(w) || w->disowned || w->revoked || w->now >= w->term_at ||
			w->now >= w->keep_until);
	}
	if (a->set & DO_EXIT) {
		require(
		    w, NOTHING_LEFT_RUNNING, !covered_alive(w) || w->keep.ending.stuck);
		require(w, NOT_LEFT_BEHIND,
		    !w->ours || !w->granted || w->lease == LEASE_FOREVER || w->hurry ||
			w->disowned || w->keep.ending.stuck || w->keep.tree.joined > 0 ||
			w->now >= w->keep.lease.asked + w->lease);
	}
}

static void
check_ending(struct world *w, const struct actions *a)
{
	const struct ending *e = &w->keep.ending;
	bool own = e->kind == END_COMMAND || e->kind == END_MAX_RUN ||
	    e->kind == END_KILLED;
	/* by force, and no answer came through since */
	bool unknowable = w->taken_away && !w->told_lost;

	if (w->reported)
		require(w, ENDING_STAYS, memcmp(e, &w->ending, sizeof *e) == 0);
	if (!(a->set & DO_REPORT))
		return;
	require(w, ONE_REPORT, !w->reported);
	require(w, ONE_REPORT, e->kind != END_NONE);
	require(w, OWN_END_IS_OWN, !own || !w->cut_short);
	require(w, LOSS_IS_TOLD,
	    !own || w->lost_at == NEVER || w->covered_until < w->lost_at || unknowable);
	require(w, NOTHING_RAN_IS_TRUE,
	    !w->ran ||
		(e->kind != END_REFUSED && e->kind != END_INTERRUPTED &&
		    e->kind != END_EXEC));
	/* of one that cannot be killed nobody knows */
	require(
	    w, COMMAND_RAN_IS_TRUE, w->ran || (!own && e->kind != END_LOST) || e->stuck);
	require(w, NOTHING_RAN_IS_TRUE, !w->told_done || (!w->ran && !w->go));
	w->reported = true;
	w->ending = *e;
	reached.skipped += e->kind == END_REFUSED && e->value == RC_DONE;
	reached.beside += w->beside && w->ran;
	reached.endings[e->kind]++;
	reached.losses[e->loss]++;
	reached.stuck += e->stuck;
	reached.too_late += e->too_late;
	reached.unconfirmed += e->unconfirmed;
	reached.lingered += w->keep.phase == PH_LINGER;
}

static void
check(struct world *w, const struct event *e, const struct actions *a, bool covered)
{
	bool was_lost = w->lost_known;

	require(w, EXIT_LAST, !w->exited || a->set == 0);
	check_calls(w, a);
	check_stopping(w, e, a, covered);
	if (a->set & DO_GO) {
		require(w, GO_ONCE_ON_A_GRANT, !w->go && e->kind == EV_GRANTED);
		require(
		    w, GO_ONCE_ON_A_GRANT, w->usable && w->keep.ending.kind == END_NONE);
	}
	w->lost_known = w->lost_known ||
	    (w->keep.ending.kind == END_LOST && w->keep.ending.loss != LOSS_REVOKED);
	require(w, LATE_ANSWER_CHANGES_NOTHING,
	    !was_lost || w->keep.ending.kind == END_LOST || w->not_executed);
	if (w->go || (a->set & DO_GO))
		require(w, LATE_ANSWER_CHANGES_NOTHING,
		    w->keep.lease.term_at == w->term_at &&
			w->keep.lease.kill_at == w->kill_at);
	require(w, NO_SPIN, a->wake > w->now || (a->set & DO_EXIT));
	check_ending(w, a);
}

static void
start(struct world *w, enum call call, instant until)
{
	w->call = call;
	w->until = until;
	later(w, below(w, MS / 4), K_CALL, 0, 0);
}

static void
wake_front(struct world *w, int64_t after)
{
	later(w, after, W_FRONT_WAKE, ++w->front_wake_id, 0);
}

static void
carry_out(struct world *w, const struct actions *a)
{
	if (a->set & DO_PUBLISH) {
		w->page.term_at = w->keep.lease.term_at;
		w->page.kill_at = w->keep.lease.kill_at;
		w->published_at = w->now;
	}
	if (w->keep.phase > PH_HOLD) {
		w->page.finished = true;
		w->page_ending = w->keep.ending;
	}
	if (a->set & DO_REPORT)
		w->front_gone = true;
	if (a->set & DO_GO) {
		w->page.granted = true;
		wake_front(w, below(w, LISTEN_LATER)); /* by a message */
		w->go = true;
		w->latest = w->term_at;
		later(w, chance(w, 99) ? below(w, 20 * MS) : below(w, 2 * w->terms.ttl),
		    W_EXEC, 0, 0);
	}
	if ((a->set & DO_TERM) && !w->page.stopping) {
		w->page.stopping = w->term_asked = true;
		later(w, between(w, 0, w->grace * 3 / 2), W_TERM_LANDS, 0, 0);
	}
	if (a->set & DO_KILL) {
		reached.kills += !w->kill_asked;
		w->kill_asked = true;
		w->kill_asked_at = w->now;
		if (w->queued < ROOM / 2)
			later(w, w->kill_latency, W_KILL_LANDS, 0, 0);
	}
	if (a->set & DO_ACQUIRE)
		start(w, CALL_ACQUIRE, NEVER);
	if (a->set & DO_RENEW)
		start(w, CALL_RENEW, a->until);
	if (a->set & DO_RELEASE) {
		reached.retried += w->reported && w->released;
		w->released = true;
		start(w, CALL_RELEASE, a->until);
	}
	if (a->set & DO_END_CALL) {
		w->stop = true;
		if (w->call_runs)
			later(w, below(w, MS), K_STOPPED, w->call_id, 0);
	}
	if (a->set & DO_EXIT)
		w->exited = true;
	w->wake_id++;
	forget(w, K_WAKE);
	if (a->wake != NEVER)
		later(w,
		    (a->wake > w->now ? a->wake - w->now : 0) +
			(chance(w, 95) ? below(w, MS) : below(w, 30 * MS)),
		    K_WAKE, w->wake_id, 0);
}

static void
pause_keeper(struct world *w)
{
	int64_t length = chance(w, 50) ? below(w, S) : below(w, 3 * w->terms.ttl);

	if (w->pauses == PAUSES || w->paused)
		return;
	tell(w, "--- paused for %.4f s", (double)length / S);
	w->paused = true;
	w->paused_from[w->pauses] = w->now;
	w->paused_to[w->pauses++] = w->now + length;
	w->page.alive_at = w->now;
	later(w, length, W_RESUME, 0, 0);
	reached.pauses++;
}

static void
deliver(struct world *w, struct event e)
{
	static const char *const names[] = {"tick", "granted", "refused", "renewed",
	    "unanswered", "revoked", "disowned", "alert", "released", "started",
	    "exec failed", "ended", "empty", "joined", "parted", "keep", "interrupted",
	    "asked", "orphaned", "overtaken", "terminated"};
	struct actions a;
	bool covered;

	if (e.kind != EV_OVERTAKEN && w->keep.phase == PH_HOLD &&
	    !w->keep.tree.stopping && w->page.stopping)
		deliver(w, (struct event){.kind = EV_OVERTAKEN});
	note_event(w, &e);
	a = step(&w->keep, w->now, &e);
	covered = covered_known(w);
	tell(w, "%s (%d): phase %d, ending %d, actions %#x, wake %.4f", names[e.kind],
	    e.value, w->keep.phase, w->keep.ending.kind, a.set,
	    a.wake == NEVER ? -1.0 : (double)a.wake / S);
	check(w, &e, &a, covered);
	w->done = w->done || (w->go && !covered && w->joined == 0);
	reached.steps++;
	if (e.kind != EV_OVERTAKEN && below(w, 1000) < 2)
		pause_keeper(w);
	if (w->paused) {
		w->half_done = true;
		w->half = a;
		reached.half_done++;
	} else {
		carry_out(w, &a);
	}
}

/* ---- the front, as front.c is ---- */

/* The keeper dies at once, the tree a little later. */
static void
front_kills(struct world *w, enum duty duty)
{
	struct ending e = {.kind = END_REFUSED};

	if (w->ran)
		e = (struct ending){.kind = END_LOST};
	if (w->page.finished)
		e = w->page_ending;
	tell(w, "front: duty %d, ending %d", duty, e.kind);
	require(w, FRONT_IS_NEEDED,
	    duty != DUTY_KILL ||
		(!w->page.finished && w->now >= w->page.kill_at + SLACK));
	require(w, FRONT_IS_NEEDED, duty != DUTY_INTERRUPT || !w->page.granted);
	require(w, OWN_END_IS_OWN,
	    (e.kind != END_COMMAND && e.kind != END_MAX_RUN && e.kind != END_KILLED) ||
		!w->cut_short);
	require(w, NOTHING_RAN_IS_TRUE, !w->ran || e.kind != END_REFUSED);
	require(w, NOTHING_LEFT_RUNNING, !w->page.finished || !covered_alive(w));
	reached.taken_over += !w->page.finished;
	reached.left_behind += w->page.finished;
	w->killed = w->front_gone = w->reported = true;
	w->killed_at = w->now;
	if (!w->page.finished) {
		w->kill_asked = true;
		later(w, w->kill_latency, W_KILL_LANDS, 0, 0);
		later(w, w->kill_latency + KILL_AGAIN, W_KILL_LANDS, 0, 0);
	}
}

static void
front_stops(struct world *w)
{
	tell(w, "front: TERM");
	require(w, FRONT_IS_NEEDED,
	    !w->page.finished && !w->page.stopping && w->now >= w->page.term_at + SLACK);
	reached.front_terms++;
	if (covered_alive(w)) {
		w->term_asked = true;
		/* what is being killed for a reason of its own is not cut short */
		w->cut_short = w->cut_short || !w->kill_asked;
	}
	w->page.stopping = true;
	later(w, between(w, 0, w->grace * 3 / 2), W_TERM_LANDS, 0, 0);
}

static void
front_looks(struct world *w)
{
	struct watch_due due;

	if (w->front_gone || w->front_dead || w->front_paused)
		return;
	if (!w->paused)
		w->page.alive_at = w->now;
	due = watch(&w->watch, w->now, &w->page);
	require(w, NO_SPIN,
	    due.wake > w->now || (due.duty != DUTY_NONE && due.duty != DUTY_TERM));
	if (due.duty == DUTY_TERM)
		front_stops(w);
	else if (due.duty != DUTY_NONE)
		front_kills(w, due.duty);
	if (due.wake != NEVER)
		wake_front(w,
		    due.wake - w->now +
			(chance(w, 95) ? below(w, MS) : below(w, 30 * MS)));
}

static void
pause_front(struct world *w)
{
	int64_t length = chance(w, 50) ? below(w, S) : below(w, 3 * w->terms.ttl);

	if (w->front_pauses == PAUSES || w->front_paused)
		return;
	tell(w, "--- front paused for %.4f s", (double)length / S);
	w->front_paused = true;
	w->front_paused_from[w->front_pauses] = w->now;
	w->front_paused_to[w->front_pauses++] = w->now + length;
	later(w, length, W_FRONT_RESUME, 0, 0);
	reached.front_pauses++;
}

/* ---- one schedule ---- */

static void
lease_lapses(struct world *w, const struct logged *e)
{
	if (!w->ours || e->id != w->lease_id)
		return;
	tell(w, "    server: the lease lapses");
	reached.lapsed_under_pause += w->paused && covered_alive(w);
	no_longer_ours(w);
}

static void
hold_is_broken(struct world *w)
{
	if (!w->ours || !w->go)
		return;
	w->taken_away = true;
	no_longer_ours(w);
}

static void
front_dies(struct world *w)
{
	if (w->front_gone)
		return;
	w->front_dead = true;
	w->front_dead_at = w->now;
	later(w, 0, K_ORPHANED, 0, 0);
}

static void
user_interrupts(struct world *w)
{
	if (!w->page.granted)
		watch_interrupted(&w->watch, w->now);
	wake_front(w, 0);
	later(w, 0, K_INTERRUPT, 0, 0);
}

static void
happen(struct world *w, const struct logged *e)
{
	switch (e->kind) {
	case W_AT_SERVER:
		serve(w, e->id, e->value);
		break;
	case W_LAPSE:
		lease_lapses(w, e);
		break;
	case W_BESIDE_ENDS:
		beside_ends(w);
		break;
	case W_OTHERS_END:
		others_end(w);
		break;
	case W_BREAK:
		hold_is_broken(w);
		break;
	case W_EXEC:
		exec_command(w);
		break;
	case W_COMMAND_ENDS:
		command_ends(w, e->value);
		break;
	case W_REST_ENDS:
		rest_ends(w);
		break;
	case W_PEER_ENDS:
		peer_ends(w, e->value);
		break;
	case W_TERM_LANDS:
		term_lands(w);
		break;
	case W_KILL_LANDS:
		kill_lands(w);
		break;
	case W_PAUSE:
		pause_keeper(w);
		break;
	case W_RESUME:
		tell(w, "--- goes on");
		if (!w->killed)
			resume(w);
		break;
	case W_FRONT_WAKE:
		if (e->id == w->front_wake_id)
			front_looks(w);
		break;
	case W_FRONT_PAUSE:
		pause_front(w);
		break;
	case W_FRONT_RESUME:
		tell(w, "--- front goes on");
		w->front_paused = false;
		front_looks(w);
		break;
	case W_FRONT_DIES:
		front_dies(w);
		break;
	case W_INTERRUPT:
		user_interrupts(w);
		break;
	case W_LOOK:
	case W_LOOK_RUN:
		break;
	default:
		if (!w->killed)
			arrive(w, e);
	}
}

static void
choose_terms(struct world *w)
{
	static const int64_t usual[] = {3 * S, 5 * S, 10 * S, 15 * S, 30 * S};
	struct terms *t = &w->terms;

	t->ttl = chance(w, 70) ? usual[below(w, 5)] : between(w, 3 * S, 60 * S);
	t->grace = lease_grace(t->ttl);
	if (chance(w, 30)) {
		int64_t grace = below(w, t->ttl / 2);

		t->grace_fixed = lease_fits(t->ttl, lease_pace(t->ttl), grace);
		if (t->grace_fixed)
			t->grace = grace;
	}
	t->min_hold = chance(w, 25) ? below(w, 2 * t->ttl) : 0;
	t->max_run = chance(w, 20) ? between(w, 1, 2 * t->ttl) : NEVER;
	t->kill_after = chance(w, 50) ? between(w, 1, 2 * t->ttl) : NEVER;
	t->wait_tree = chance(w, 30);
	w->several = chance(w, 20);
	w->jitter = draw(w);
	w->grace = t->grace;
}

static void
choose_world(struct world *w)
{
	static const unsigned losses[] = {0, 0, 10, 100, 400};
	int64_t ttl = w->terms.ttl;

	w->loss = losses[below(w, 5)];
	w->outage_from = chance(w, 40) ? below(w, 3 * ttl) : NEVER;
	w->outage_to = instant_after(w->outage_from, below(w, 2 * ttl));
	w->lease = chance(w, 3) ? LEASE_FOREVER
	    : chance(w, 90)     ? ttl
				: between(w, S, ttl);
	w->pace = w->lease != LEASE_FOREVER && chance(w, 20)
	    ? between(w, w->lease / 20, w->lease / 2)
	    : 0;
	w->rate = (int)between(w, -10, 10);
	w->contended = chance(w, 80);
	w->errors = chance(w, 10);
	w->wait_until = chance(w, 20) ? below(w, ttl) : NEVER;
	w->in_order = chance(w, 50);
	w->execs = chance(w, 95);
	w->obeys = chance(w, 70);
	w->unkillable = chance(w, 1);
	w->runs = chance(w, 50) ? below(w, 4 * ttl) : below(w, S);
	if (w->unkillable && chance(w, 50))
		w->runs = 600 * S;
	w->rest_runs = chance(w, 40) ? below(w, 5 * ttl) : 0;
	w->kill_latency = between(w, 0, 200 * MS);
	w->once = chance(w, 10);
	w->job_done = w->once && chance(w, 20);
	w->beside = chance(w, 30);
	if (w->beside)
		later(w, below(w, 3 * ttl), W_BESIDE_ENDS, 0, 0);
	else if (chance(w, 40))
		take_place(w);
	for (int n = chance(w, 50) ? 0 : (int)between(w, 1, PAUSES); n > 0; n--)
		later(w, below(w, 3 * ttl), W_PAUSE, 0, 0);
	if (chance(w, 8))
		later(w, below(w, 2 * ttl), W_FRONT_DIES, 0, 0);
	if (chance(w, 8))
		later(w, below(w, 5 * S), W_INTERRUPT, 0, 0);
	for (int n = chance(w, 75) ? 0 : (int)between(w, 1, PAUSES); n > 0; n--)
		later(w, below(w, 3 * ttl), W_FRONT_PAUSE, 0, 0);
	if (chance(w, 5))
		later(w, below(w, 4 * ttl), K_TERMINATE, 0, 0);
	for (int n = chance(w, 80) ? 0 : (int)between(w, 1, 2); n > 0; n--)
		later(w, below(w, 3 * ttl), K_ASKED, 0, 0);
	w->revokes = chance(w, 5);
	for (int n = chance(w, 90) ? 0 : (int)between(w, 1, 3); n > 0; n--)
		later(w, below(w, 2 * ttl), K_ALERT, 0, 0);
	if (chance(w, 6))
		later(w, below(w, 2 * ttl), W_BREAK, 0, 0);
	if (chance(w, 1))
		/* perhaps while it still is a stub */
		later(w, below(w, 5 * S), W_COMMAND_ENDS, 0, 9);
}

/* Nothing can happen any more that matters to anybody. */
static bool
is_over(const struct world *w)
{
	return w->exited || (w->killed && (!covered_alive(w) || w->unkillable));
}

static void
simulate(unsigned long seed, bool told)
{
	static struct world world;
	struct world *w = &world;
	struct logged e;
	unsigned long events = 0;

	memset(w, 0, sizeof *w);
	w->seed = seed;
	w->random = seed;
	w->told = told;
	w->now = S; /* booted a second ago */
	w->term_at = w->kill_at = w->granted_at = w->started_at = w->kill_asked_at =
	    w->lost_at = w->asked_by = NEVER;
	choose_terms(w);
	choose_world(w);
	w->page = (struct watch_page){
	    .term_at = NEVER, .kill_at = NEVER, .alive_at = w->now};
	watch_init(&w->watch, w->terms.ttl, w->terms.grace);
	keep_init(&w->keep, &w->terms, w->jitter);
	w->keep.lock.several = w->several;
	deliver(w, (struct event){.kind = EV_TICK});
	front_looks(w);
	while (!is_over(w) && events++ < 30000 && next_entry(w, &e)) {
		w->now = e.at > w->now ? e.at : w->now;
		happen(w, &e);
		look(w);
	}
	require(w, RUN_ENDS, is_over(w));
	require(w, ONE_REPORT, !w->exited || w->reported);
	if (w->exited) {
		deliver(w, (struct event){.kind = EV_TICK});
		deliver(w, (struct event){.kind = EV_EMPTY});
	}
	reached.runs++;
}

/* ---- the tests ---- */

static int
simulate_all(void **state)
{
	const char *runs = getenv("SIMULATE_RUNS");
	unsigned long n = runs ? strtoul(runs, NULL, 10) : 500000;

	(void)state;
	for (unsigned long seed = 1; seed <= n; seed++)
		simulate(seed, false);
	printf(
	    "%lu schedules, %lu steps, %lu renewals, %lu unanswered, %lu answers too late, %lu pauses, %lu leases "
	    "that lapsed in one, %lu trees killed, %lu joins; front: %lu pauses, %lu TERMs, %lu taken over\n",
	    reached.runs, reached.steps, reached.renewals, reached.unanswered,
	    reached.late, reached.pauses, reached.lapsed_under_pause, reached.kills,
	    reached.joins, reached.front_pauses, reached.front_terms, reached.taken_over);
	return 0;
}

static void
holds(void **state)
{
	enum invariant i = *(const enum invariant *)*state;

	if (broken[i].count > 0)
		fail_msg("%s: broken %lu times in %lu runs, first by SIMULATE_SEED=%lu",
		    promise[i], broken[i].count, reached.runs, broken[i].seed);
}

/* A simulator that never gets anywhere would find nothing. */
static void
every_ending_is_reached(void **state)
{
	(void)state;
	if (reached.runs < 10000) {
		print_message("SIMULATE_RUNS asks for too few to expect everything\n");
		skip();
	}
	for (int i = END_COMMAND; i <= END_LOST; i++)
		assert_in_range(reached.endings[i], reached.runs / 1000, reached.runs);
	for (int i = LOSS_REVOKED; i <= LOSS_FOUND; i++)
		assert_in_range(reached.losses[i], reached.runs / 1000, reached.runs);
	assert_in_range(reached.skipped, reached.runs / 1000, reached.runs);
	assert_in_range(reached.beside, reached.runs / 1000, reached.runs);
	assert_in_range(reached.stuck, 10, reached.runs);
	assert_in_range(reached.front_terms, reached.runs / 1000, reached.runs);
	assert_in_range(reached.overtaken, reached.runs / 1000, reached.runs);
	assert_in_range(reached.taken_over, reached.runs / 1000, reached.runs);
	assert_in_range(reached.left_behind, reached.runs / 10000, reached.runs);
	assert_in_range(reached.half_done, reached.runs / 1000, reached.runs);
	assert_in_range(reached.retried, reached.runs / 1000, reached.steps);
	assert_in_range(reached.kept, reached.runs / 1000, reached.steps);
	assert_in_range(reached.terminated, reached.runs / 1000, reached.steps);
	assert_in_range(reached.alerts, reached.runs / 100, reached.runs);
	assert_in_range(reached.too_late, 10, reached.runs);
	assert_in_range(reached.late, 10, reached.steps);
	assert_in_range(reached.lingered, reached.runs / 1000, reached.runs);
	assert_in_range(reached.lapsed_under_pause, reached.runs / 1000, reached.runs);
	assert_in_range(reached.unconfirmed, reached.runs / 1000, reached.runs);
	assert_in_range(reached.joins, reached.runs / 1000, reached.steps);
}

/* The same seed is the same schedule, or a failure could not be looked at again. */
static void
a_seed_repeats(void **state)
{
	unsigned long before, once;

	(void)state;
	before = reached.steps;
	simulate(4711, false);
	once = reached.steps - before;
	simulate(4711, false);
	assert_int_equal(reached.steps - before, 2 * once);
}

int
main(void)
{
	static enum invariant which[INVARIANTS];
	struct CMUnitTest tests[INVARIANTS + 2] = {
	    [INVARIANTS] = cmocka_unit_test(every_ending_is_reached),
	    [INVARIANTS + 1] = cmocka_unit_test(a_seed_repeats),
	};
	const char *seed = getenv("SIMULATE_SEED");

	if (seed) {
		simulate(strtoul(seed, NULL, 10), true);
		return 0;
	}
	for (int i = 0; i < INVARIANTS; i++) {
		which[i] = i;
		tests[i] = (struct CMUnitTest){
		    .name = promise[i], .test_func = holds, .initial_state = &which[i]};
	}
	return cmocka_run_group_tests_name("simulate", tests, simulate_all, NULL);
}
