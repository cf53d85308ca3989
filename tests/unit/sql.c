/*
 * sql.c - Goal of these tests: on any database a renewal counts from when what was answered
 * had left, a lock that ends with its session is watched again after each renewal, what
 * tells a holder of a break is asked for once, and not overheard, and a job is granted by one of
 * several servers only if that has named the grant twice; and what such a server calls undone
 * may have been done.
 */
#include "backends/sql/lease.h"
#include "backends/sql/session_lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a driver that says what a test wants ---- */

enum { DESCRIPTOR = 7 };

static struct {
	bool late; /* no answer comes in time */
	bool pending;
	instant sent;         /* when the question had left that exec() answers */
	instant left;         /* when a question last left by send() */
	const char *says;     /* the boolean of each answer */
	unsigned listened;    /* how often the server was asked to tell of a break */
	unsigned told, again; /* it has told of one; and tells so with the next answer */
	bool several;         /* other servers write, too */
	const char
	    *places;   /* a letter for each answer of enter: 5 or 6 is a token, d: done */
	bool entering; /* enter was asked last */
	unsigned entered, released;
	unsigned races; /* so many questions lose a race before one is answered */
	const char
	    *breaker;  /* the one who has taken the lock away, as a renewal is told */
	bool renewing; /* renew was asked last */
} world;

static bool
scripted_is_open(struct sql *db)
{
	(void)db;
	return true;
}

static int
scripted_descriptor(const struct sql *db)
{
	(void)db;
	return DESCRIPTOR;
}

static enum rc
scripted_receive(struct sql *db, const struct question *q, instant until,
    struct answer *a, struct fault *f)
{
	(void)q, (void)until;
	if (world.late)
		return fault_set(f, RC_AGAIN, "it does not answer");
	world.pending = false;
	if (world.races > 0) {
		world.races--;
		snprintf(db->error, sizeof db->error, "1213");
		return fault_set(f, RC_AGAIN, "deadlock");
	}
	world.told += world.again;
	world.again = 0;
	if (a)
		*a = (struct answer){.db = db, .rows = 1, .sent = world.sent};
	return RC_OK;
}

static enum rc
scripted_send(struct sql *db, const struct question *q, instant until, struct fault *f)
{
	(void)db, (void)until, (void)f;
	world.pending = true;
	world.listened += strcmp(q->text, "LISTEN 1") == 0;
	world.released += strncmp(q->text, "CALL release", 12) == 0;
	world.entering = strncmp(q->text, "CALL enter", 10) == 0;
	world.renewing = strncmp(q->text, "CALL renew", 10) == 0;
	world.left = instant_now();
	return RC_OK;
}

static bool
scripted_is_pending(const struct sql *db)
{
	(void)db;
	return world.pending;
}

static void
put(struct answer *a, int field, const char *text)
{
	a->at[field] = (char *)text;
	a->lengths[field] = strlen(text);
}

/* What enter answers: the columns that tell of a grant, or of a run that has been. */
static void
put_place(struct answer *a, char place)
{
	const int done = ANSWER_MORE + 1, direct = done + 4, listening = direct + 2;

	put(a, ANSWER_CODE, place == 'd' ? "2" : "1");
	put(a, ANSWER_TOKEN, place == '6' ? "6" : "5");
	if (place == 'd') {
		put(a, done + DONE_BY, "once");
		put(a, done + DONE_BEGAN_MS, "1000");
		put(a, done + DONE_AGE_MS, "7");
	}
	put(a, direct, "f");
	put(a, listening, "f");
	put(a, listening + 1, "9000000");
}

static bool
scripted_read_row(struct answer *a, int n)
{
	const int wanted_by = 1; /* behind whether it is ours: see lease.c */

	(void)n;
	if (world.entering)
		put_place(a, world.places[world.entered++]);
	else
		put(a, 0, world.says);
	if (world.renewing && world.breaker)
		put(a, wanted_by, world.breaker);
	return true;
}

static void
scripted_drop(struct answer *a)
{
	(void)a;
}

static int64_t
no_session(const struct sql *db)
{
	(void)db;
	return 0;
}

static bool
scripted_is_notified(struct sql *db)
{
	bool told = world.told > 0;

	(void)db;
	world.told = 0;
	return told;
}

static bool
scripted_is_one_of_several(const struct sql *db)
{
	(void)db;
	return world.several;
}

static const struct lease_driver lease_driver = {.session_number = no_session,
    .listen = "LISTEN ",
    .is_notified = scripted_is_notified};
static const char *const failures[SQL_FAILURES] = {[SQL_LOST_RACE] = "1213"};
static const struct sql_driver driver = {.is_open = scripted_is_open,
    .descriptor = scripted_descriptor,
    .exec = sql_exec_plainly,
    .send = scripted_send,
    .receive = scripted_receive,
    .is_pending = scripted_is_pending,
    .failures = failures,
    .read_row = scripted_read_row,
    .drop = scripted_drop,
    .call = "CALL ",
    .version = "",
    .is_one_of_several = scripted_is_one_of_several,
    .lease = &lease_driver};

/* ---- the holder ---- */

static const struct claim claim = {
    .key = "k", .owner = "0123456789abcdef0123456789abcdef", .ttl = 30 * NS_PER_S};
static struct host host;
static struct sql db;
static struct session_lock session;
static struct grant grant;
static struct fault fault;

static struct question
is_it_ours(const struct sql *asked, bool ends, char *text)
{
	(void)asked, (void)ends, (void)text;
	return (struct question){.text = "is it ours", .fields = 1};
}

static const struct session_lock_way way = {.still = is_it_ours};
static const struct sql_mode session_mode = {.way = &way};

static int
begin(void **state)
{
	(void)state;
	world.late = world.pending = false;
	world.says = "t";
	world.listened = world.told = world.again = 0;
	world.entered = world.released = 0;
	world.several = world.entering = false;
	world.races = 0;
	world.breaker = NULL;
	host = (struct host){.alert = DESCRIPTOR};
	db = (struct sql){.base = {.host = &host},
	    .driver = &driver,
	    .claim = &claim,
	    .mode = &session_mode,
	    .own = &session};
	session = (struct session_lock){.held = true};
	grant = (struct grant){.token = 1};
	return 0;
}

static enum rc
renew_session(void)
{
	return session_lock_renew(&db, instant_now() + NS_PER_S, &grant, &fault);
}

static void
a_lease_counts_from_its_request(void **state)
{
	struct lease lease = {.db = &db, .claim = &claim, .held = true, .token = 1};

	(void)state;
	db.mode = &lease_mode;
	db.own = &lease;
	world.sent = instant_now() - 5 * NS_PER_S;
	assert_int_equal(
	    lease_mode.renew(&db, instant_now() + NS_PER_S, &grant, &fault), RC_OK);
	assert_true(grant.sent == world.sent && grant.lease == claim.ttl);
}

static void
renew_lease_soon(int64_t soon)
{
	grant.soon = -1;
	assert_int_equal(
	    lease_mode.renew(&db, instant_now() + NS_PER_S, &grant, &fault), RC_OK);
	assert_true(grant.soon == soon);
	assert_int_equal(host.alert, DESCRIPTOR);
}

static void
a_break_told_of_with_an_answer_is_not_overheard(void **state)
{
	struct lease lease = {.db = &db,
	    .claim = &claim,
	    .held = true,
	    .token = 1,
	    .is_direct = true,
	    .has_own = true};

	(void)state;
	db.mode = &lease_mode;
	db.own = &lease;
	world.sent = instant_now();
	world.told = 1;
	renew_lease_soon(
	    NS_PER_S); /* which has answered that, and then begun to listen */
	world.told = 1;
	renew_lease_soon(0);
	world.again = 1;
	renew_lease_soon(NS_PER_S);
	renew_lease_soon(0);
	assert_int_equal(world.listened, 1);
	db.serial++; /* another connection, of which nothing is known */
	renew_lease_soon(0);
	assert_int_equal(world.listened, 1);
	lease.is_direct = lease.has_own = true;
	renew_lease_soon(NS_PER_S);
	renew_lease_soon(0);
	assert_int_equal(world.listened, 2);
	db.serial++;
	renew_lease_soon(0);
	lease.is_direct = lease.has_own = true;
	world.sent -= 5 *
	    NS_PER_S; /* the answer took the time that listening would need */
	renew_lease_soon(NS_PER_S);
	renew_lease_soon(2 * NS_PER_S); /* and tries it again, less and less often */
	renew_lease_soon(4 * NS_PER_S);
	renew_lease_soon(8 * NS_PER_S);
	renew_lease_soon(10 * NS_PER_S);
	assert_int_equal(world.listened, 2);
	world.sent = instant_now();
	renew_lease_soon(NS_PER_S);
	renew_lease_soon(0);
	assert_int_equal(world.listened, 3);
}

static void
a_holder_without_its_wake_up_lock_asks_again_soon(void **state)
{
	struct lease lease = {
	    .db = &db, .claim = &claim, .held = true, .token = 1, .is_direct = true};

	(void)state;
	db.mode = &lease_mode;
	db.own = &lease;
	world.sent = instant_now();
	for (int64_t ms = 20; ms <= 640; ms *= 2)
		renew_lease_soon(ms * NS_PER_MS);
	renew_lease_soon(NS_PER_S); /* as often as an alert may be followed */
	lease.has_own = true;
	renew_lease_soon(0);
}

static void
a_late_beat_counts_from_when_it_left(void **state)
{
	instant left;

	(void)state;
	world.late = true;
	assert_int_equal(renew_session(), RC_AGAIN);
	left = world.left;
	assert_int_equal(renew_session(), RC_AGAIN);
	world.late = false;
	assert_int_equal(renew_session(), RC_OK);
	assert_true(world.left == left); /* it was the same one all the time */
	assert_true(grant.sent <= left && grant.lease == claim.ttl);
}

static void
a_session_is_watched_unless_it_is_lost(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(renew_session(), RC_OK);
		assert_int_equal(host.alert, DESCRIPTOR);
	}
	world.late = true;
	assert_int_equal(renew_session(), RC_AGAIN);
	assert_int_equal(host.alert, DESCRIPTOR);
	world.late = false;
	world.says = "f";
	assert_int_equal(renew_session(), RC_LOST);
	assert_int_equal(host.alert, -1);
}

static const struct claim job = {.key = "k",
    .owner = "0123456789abcdef0123456789abcdef",
    .record = "{}",
    .ttl = 30 * NS_PER_S,
    .job = {.once = "a"}};

/* What acquire gives if enter answers so, and that enter is asked for each of these answers. */
static enum rc
acquire_job(bool several, const char *places)
{
	struct lease lease;
	enum rc rc;

	begin(NULL);
	db.mode = &lease_mode;
	db.own = &lease;
	db.claim = &job;
	world.several = several;
	world.places = places;
	world.says = "1";
	world.sent = instant_now();
	rc = lease_mode.acquire(&db, 0, &grant, &fault);
	assert_int_equal(world.entered, strlen(places));
	assert_int_equal(lease.held, rc == RC_OK);
	return rc;
}

static void
a_job_is_granted_by_one_server_at_once(void **state)
{
	(void)state;
	assert_int_equal(acquire_job(false, "5"), RC_OK);
	assert_int_equal(grant.token, 5);
	assert_int_equal(acquire_job(false, "d"), RC_DONE);
}

/* What another server wrote came between two statements: the grant is given back. */
static void
a_job_that_was_done_elsewhere_is_not_run_again(void **state)
{
	(void)state;
	assert_int_equal(acquire_job(true, "5d"), RC_DONE);
	assert_int_equal(world.released, 1);
	assert_int_equal(acquire_job(true, "55"), RC_OK);
	assert_int_equal(grant.token, 5);
	assert_int_equal(world.released, 0);
	assert_int_equal(acquire_job(true, "566"), RC_OK); /* it was another grant */
	assert_int_equal(grant.token, 6);
}

static enum woke
wait_a_moment(struct host *h, int fd, short events, instant until)
{
	(void)h, (void)fd, (void)events, (void)until;
	return WOKE_TIMEOUT;
}

/* The second question finds nothing of ours: who has given it back, if the server does not know? */
static void
a_node_of_a_cluster_may_have_done_what_it_says_it_has_undone(void **state)
{
	for (int i = 0; i < 3; i++) {
		bool several = i > 0;
		struct lease lease = {
		    .db = &db, .claim = &claim, .asked = true, .held = true, .token = 1};

		begin(state);
		host.wait = wait_a_moment;
		db.mode = &lease_mode;
		db.own = &lease;
		world.several = several;
		world.races = 1;
		world.says = "0";
		world.breaker = i == 2 ? "{}" : NULL;
		assert_int_equal(
		    lease_mode.release(&db, NO_OUTCOME, instant_now() + NS_PER_S, &fault),
		    i == 1 ? RC_AGAIN : RC_LOST);
		assert_int_equal(world.released, 2);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(a_lease_counts_from_its_request, begin),
	    cmocka_unit_test_setup(
		a_break_told_of_with_an_answer_is_not_overheard, begin),
	    cmocka_unit_test_setup(
		a_holder_without_its_wake_up_lock_asks_again_soon, begin),
	    cmocka_unit_test_setup(a_late_beat_counts_from_when_it_left, begin),
	    cmocka_unit_test_setup(a_session_is_watched_unless_it_is_lost, begin),
	    cmocka_unit_test(a_job_is_granted_by_one_server_at_once),
	    cmocka_unit_test(a_job_that_was_done_elsewhere_is_not_run_again),
	    cmocka_unit_test(
		a_node_of_a_cluster_may_have_done_what_it_says_it_has_undone),
	};

	return cmocka_run_group_tests_name("sql", tests, NULL, NULL);
}
