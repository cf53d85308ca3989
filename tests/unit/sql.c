/*
 * sql.c - Goal of these tests: on any database a renewal counts from when what was answered
 * had left, a lock that ends with its session is watched again after each renewal, and what
 * tells a holder of a break is asked for once, and not overheard.
 */
#include "backends/sql/lease.h"
#include "backends/sql/session_lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
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
	world.left = instant_now();
	return RC_OK;
}

static bool
scripted_is_pending(const struct sql *db)
{
	(void)db;
	return world.pending;
}

static bool
scripted_read_row(struct answer *a, int n)
{
	(void)n;
	a->at[0] = (char *)world.says;
	a->lengths[0] = 1;
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

static const struct lease_driver lease_driver = {.session_number = no_session,
    .listen = "LISTEN ",
    .is_notified = scripted_is_notified};
static const char *const no_failures[SQL_FAILURES];
static const struct sql_driver driver = {.is_open = scripted_is_open,
    .descriptor = scripted_descriptor,
    .exec = sql_exec_plainly,
    .send = scripted_send,
    .receive = scripted_receive,
    .is_pending = scripted_is_pending,
    .failures = no_failures,
    .read_row = scripted_read_row,
    .drop = scripted_drop,
    .call = "CALL ",
    .version = "",
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
	struct lease lease = {
	    .db = &db, .claim = &claim, .held = true, .token = 1, .is_direct = true};

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
	lease.is_direct = true;
	renew_lease_soon(NS_PER_S);
	renew_lease_soon(0);
	assert_int_equal(world.listened, 2);
	db.serial++;
	renew_lease_soon(0);
	lease.is_direct = true;
	world.sent -= 5 *
	    NS_PER_S; /* the answer took the time that listening would need */
	renew_lease_soon(0);
	assert_int_equal(world.listened, 2);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(a_lease_counts_from_its_request, begin),
	    cmocka_unit_test_setup(
		a_break_told_of_with_an_answer_is_not_overheard, begin),
	    cmocka_unit_test_setup(a_late_beat_counts_from_when_it_left, begin),
	    cmocka_unit_test_setup(a_session_is_watched_unless_it_is_lost, begin),
	};

	return cmocka_run_group_tests_name("sql", tests, NULL, NULL);
}
