/*
 * before.c - Goal of these tests: a run looks at its switches no more often than promised, begins on
 * no look that is older than 2 s, and keeps what it holds while it looks.
 */
#include "cmd/look.h"
#include "cmd/supervise/before.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a clock that goes on only while somebody waits ---- */

static instant now;

instant __wrap_instant_now(void);

instant
__wrap_instant_now(void)
{
	return now;
}

static enum woke
wait_by_clock(struct host *h, int fd, short events, instant until)
{
	(void)h, (void)fd, (void)events;
	assert_true(until < NEVER);
	now = until > now ? until : now;
	return WOKE_TIMEOUT;
}

/* ---- a place whose looks take their time ---- */

enum { ANSWERS = 32 };

static struct {
	int64_t takes; /* each look */
	unsigned frozen,
	    silent;      /* so many of the first looks find it frozen; get no answer */
	enum rc renewal; /* what a renewal gives */
	bool secret;     /* each store has one */
	enum rc end;     /* how each look ends that has seen what there is */
	unsigned looks, renewals, open;
	instant at[ANSWERS]; /* when each look began */
	/* our own key: who is there by our seconds, from the `from`th look on; 0 ends them */
	struct other {
		enum entry_kind kind;
		int64_t since;
		const char *record;
	} others[4];
	unsigned hidden;      /* the first of them, in so many looks */
	unsigned from, crowd; /* and so many of whom nothing is known */
	int64_t waits;        /* acquire does, before it is granted */
} script;

#define US INT64_C(1000000)
/* of 32 characters the first half is the run's, the second the keeper's */
#define REST \
	"000000000000000" \
	"0000000000000000"
#define OURS "5" REST

static char secret[] = "hunter2";

static const struct backend scripted_backend;

static enum rc
scripted_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	(void)site, (void)f;
	*ret = calloc(1, sizeof **ret);
	assert_non_null(*ret);
	**ret = (struct store){
	    &scripted_backend, host, "scripted", CAP_FAIR | CAP_FREEZE};
	if (script.secret)
		host->secret = secret;
	script.open++;
	return RC_OK;
}

static void
scripted_close(struct store *s)
{
	s->host->secret = NULL;
	memset(secret, 0, sizeof secret); /* it leaves with the store */
	script.open--;
	free(s);
}

static void
see_others(const struct look *l)
{
	const struct other *o = script.others + (script.looks <= script.hidden);
	struct entry e = {.kind = ENTRY_WAITER, .key = l->key, .since = EPOCH_NONE};
	bool more = script.looks > script.from;

	for (unsigned i = 0; i < script.crowd && more && !l->brief; i++)
		more = l->see(l->ctx, &e, now / 1000);
	for (; o->record && more; o++) {
		e = (struct entry){.kind = o->kind,
		    .key = l->key,
		    .since = o->since,
		    .record = o->record};
		more = l->see(l->ctx, &e, now / 1000);
	}
}

static enum rc
scripted_each(struct store *s, const struct look *l, struct fault *f)
{
	const struct entry freeze = {.kind = ENTRY_FREEZE,
	    .key = l->key,
	    .since = now / 1000 - 2 * US,
	    .until = EPOCH_NONE,
	    .record = "{\"who\":\"carol\",\"why\":\"hunter2\"}"};
	instant begun = now;

	assert_true(script.looks < ANSWERS);
	script.at[script.looks++] = now;
	while (now < begun + script.takes)
		if (s->host->wait(s->host, -1, 0, begun + script.takes) == WOKE_STOP)
			return RC_STOP;
	if (script.looks <= script.silent)
		return fault_set(f, RC_AGAIN, "it does not answer");
	if (strcmp(l->key, "a") == 0)
		see_others(l);
	else if (script.looks <= script.frozen)
		l->see(l->ctx, &freeze, now / 1000);
	return script.end;
}

static enum rc
scripted_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	instant granted = now + script.waits;

	(void)until, (void)f;
	while (now < granted)
		if (s->host->wait(s->host, -1, 0, granted) == WOKE_STOP)
			return RC_STOP;
	*g = (struct grant){.token = 7, .sent = now, .lease = claim->ttl, .anchor = -1};
	return RC_OK;
}

static enum rc
scripted_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	(void)s, (void)until;
	script.renewals++;
	if (script.renewal != RC_OK)
		return fault_set(f, script.renewal, "it is gone");
	g->sent = now;
	return RC_OK;
}

static const struct backend scripted_backend = {
    .name = "scripted",
    .open = scripted_open,
    .close = scripted_close,
    .lock = &(const struct lock_ops){scripted_acquire, scripted_renew, NULL},
    .admin = &(const struct admin_ops){.each = scripted_each},
};

/* ---- a run ---- */

static struct page page;
static struct join_site where;
static struct host host;
static struct lock lock;
static struct before before;
static struct params params;
static struct run run = {.params = &params,
    .page = &page,
    .where = &where,
    .outer = "",
    .owner = "0011",
    .socket_id = OURS};
static struct fault fault;

static int
begin(void **state)
{
	(void)state;
	unsetenv("DLOCK_KEEPER");
	memset(&lock, 0, sizeof lock);
	memset(&before, 0, sizeof before);
	memset(&script, 0, sizeof script);
	atomic_store(&page.newest, 0);
	run.again = false;
	now = 1000 * NS_PER_S;
	params = (struct params){.keys = {"a"},
	    .nkeys = 1,
	    .site.backend = &scripted_backend,
	    .before = {.switches = {"all"}, .nswitches = 1},
	    .terms.ttl = 3 * NS_PER_S};
	host = (struct host){.wait = wait_by_clock, .alert = -1};
	lock_init(&lock, &params, &where, &host, run.owner, "{}");
	assert_int_equal(lock_open(&lock, &fault), RC_OK);
	return 0;
}

static int
end(void **state)
{
	(void)state;
	assert_int_equal(script.open, 1); /* the lock's own */
	lock_close(&lock);
	return 0;
}

static enum rc
ask(instant until)
{
	return before_acquire(&before, &run, &lock, &host, until, &fault);
}

static enum rc
go(void)
{
	assert_int_equal(ask(0), RC_OK);
	script.looks = 0;
	return before_go(&before, &fault);
}

static void
a_thaw_is_waited_for_by_a_look_a_second(void **state)
{
	(void)state;
	script.frozen = 9;
	assert_int_equal(ask(NEVER), RC_OK);
	assert_int_equal(script.looks, 10);
	for (unsigned i = 1; i < script.looks; i++)
		assert_in_range(
		    script.at[i] - script.at[i - 1], NS_PER_S, NS_PER_S * 5 / 4);
	assert_int_equal(host.seen.holding.frozen, false);
}

static void
who_does_not_wait_looks_once(void **state)
{
	(void)state;
	script.frozen = 9;
	assert_int_equal(ask(0), RC_BUSY);
	assert_int_equal(script.looks, 1);
	assert_string_equal(host.seen.key, "all");
	assert_int_equal(host.seen.holding.held, 2 * NS_PER_S);
	assert_string_equal(
	    host.seen.holding.record, "{\"who\":\"carol\",\"why\":\"hunter2\"}");
}

/* Also of a look that has seen the freeze, and fails then. */
static void
nobody_is_shown_the_secret_of_a_store_that_has_left(void **state)
{
	(void)state;
	script.frozen = 9;
	script.secret = true;
	for (script.end = RC_OK;; script.end = RC_DENIED) {
		strcpy(secret, "hunter2");
		assert_int_equal(ask(0), RC_BUSY);
		assert_non_null(strstr(host.seen.holding.record, "carol"));
		assert_null(strstr(host.seen.holding.record, "hunter2"));
		if (script.end == RC_DENIED)
			break;
	}
}

static void
a_look_counts_from_its_beginning(void **state)
{
	instant begun;

	(void)state;
	script.takes = 1500 * NS_PER_MS;
	assert_int_equal(go(), RC_OK);
	begun = script.at[0];
	assert_int_equal(atomic_load(&page.begin_by), begun + 2 * NS_PER_S);
	assert_int_equal(script.renewals, 1); /* of 3 s, at a third */
	assert_true(lock.grant.sent > begun);
}

static void
a_look_that_takes_too_long_lets_nobody_begin(void **state)
{
	(void)state;
	assert_int_equal(ask(0), RC_OK);
	script.takes = 2 * NS_PER_S;
	assert_int_equal(before_go(&before, &fault), RC_AGAIN);
	assert_non_null(strstr(fault.text, "longer than 2 s"));
	assert_in_range(now - script.at[1], 5 * NS_PER_S, 8 * NS_PER_S);
}

static void
a_look_that_gets_no_answer_is_made_again(void **state)
{
	(void)state;
	assert_int_equal(ask(0), RC_OK);
	script.silent = 4; /* the first was answered */
	assert_int_equal(before_go(&before, &fault), RC_OK);
	assert_int_equal(script.looks, 5);
	assert_int_equal(atomic_load(&page.begin_by), script.at[4] + 2 * NS_PER_S);
}

static void
what_is_frozen_or_lost_meanwhile_is_asked_for_anew(void **state)
{
	(void)state;
	script.frozen = 2;
	assert_int_equal(ask(instant_now() + 5 * NS_PER_S), RC_OK);
	script.frozen = 4;
	assert_int_equal(before_go(&before, &fault), RC_BUSY);
	script.frozen = 0;
	script.takes = 1500 * NS_PER_MS;
	script.renewal = RC_LOST;
	assert_int_equal(before_go(&before, &fault), RC_BUSY);
	assert_true(before.gone);
}

/* ---- which run is the newest ---- */

/* Of a run that came then; 0: it does not know when. */
#define CAME_BY(us, door) "{\"door\":\"" door "\",\"newest\":" #us ",\"who\":\"carol\"}"
#define CAME(us, door) CAME_BY(us, door REST)

static void
the_one_that_came_later_supersedes(void **state)
{
	static const struct {
		struct other others[3];
		bool superseded;
	} rows[] = {
	    /* it is 1000 s, and we come now */
	    {{{ENTRY_WAITER, 999 * US, CAME(999000000, "1")}}, false},
	    {{{ENTRY_WAITER, 1002 * US, CAME(1001000000, "1")}}, true},
	    {{{ENTRY_HOLDER, 1002 * US, CAME(1001000000, "1")}}, true},
	    {{{ENTRY_WAITER, 1002 * US, CAME(1000000000, "4")}}, false},
	    {{{ENTRY_WAITER, 1002 * US, CAME(1000000000, "6")}}, true},
	    /* an earlier keeper of ours */
	    {{{ENTRY_WAITER, 1002 * US,
		 CAME_BY(1000000000, "5000000000000000ffffffffffffffff")}},
		false},
	    {{{ENTRY_WAITER, 1002 * US, CAME_BY(0, "5000000000000000ffffffffffffffff")}},
		false},
	    /* it is ahead of the clock */
	    {{{ENTRY_WAITER, 1002 * US, CAME(1006000000, "1")}}, false},
	    /* it has found nobody before it: its place says when it came */
	    {{{ENTRY_WAITER, 1001 * US, CAME(0, "1")}}, true},
	    {{{ENTRY_WAITER, 999 * US, CAME(0, "1")}}, false},
	    {{{ENTRY_HOLDER, 1001 * US, CAME(0, "1")}}, false},
	    /* it does not ask for that */
	    {{{ENTRY_WAITER, 1001 * US, "{\"who\":\"carol\"}"}}, false},
	    {{{ENTRY_WAITER, 1001 * US, "nonsense"}, {ENTRY_WAITER, 1001 * US, NULL}},
		false},
	    {{{ENTRY_WAITER, 1001 * US, CAME(1001000000, "123")}}, false},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(begin(state), 0);
		params.before = (struct params_before){.newest = true};
		memcpy(script.others, rows[i].others, sizeof rows[i].others);
		assert_int_equal(ask(NEVER), RC_OK);
		assert_int_equal(
		    before_go(&before, &fault), rows[i].superseded ? RC_BUSY : RC_OK);
		assert_int_equal(before.superseded, rows[i].superseded);
		if (rows[i].superseded)
			assert_string_equal(page.end.newer.text, "carol");
		assert_int_equal(end(state), 0);
	}
	begin(state);
}

static void
who_finds_nobody_came_as_it_joined(void **state)
{
	(void)state;
	params.before = (struct params_before){.newest = true};
	script.from = 1;
	script.waits = NS_PER_S / 2;
	script.others[0] = (struct other){ENTRY_HOLDER, 1000 * US, CAME(0, "5")};
	script.others[1] = (struct other){ENTRY_WAITER, 1000 * US + 1, CAME(0, "1")};
	assert_int_equal(ask(NEVER), RC_OK);
	assert_non_null(strstr(lock.claim.record, "\"newest\":0"));
	assert_int_equal(before_go(&before, &fault), RC_BUSY); /* it came later */
	assert_int_equal(atomic_load(&page.newest), 1000 * US);
}

/* A guess counts no longer: others see the place. */
static void
who_is_seen_came_as_it_joined_whatever_was_guessed(void **state)
{
	(void)state;
	params.before = (struct params_before){.newest = true};
	script.silent = 1; /* the look for the time */
	script.hidden = 2;
	script.waits = NS_PER_S * 3 / 2;
	script.others[0] = (struct other){ENTRY_WAITER, 1001 * US, CAME(0, "5")};
	script.others[1] = (struct other){ENTRY_WAITER, 999 * US, CAME(999000000, "1")};
	assert_int_equal(ask(NEVER), RC_OK);
	assert_int_equal(before.came, 1000 * US);
	script.others[1].record = CAME(1000500000, "1");
	assert_int_equal(before_go(&before, &fault), RC_OK);
	assert_int_equal(atomic_load(&page.newest), 1001 * US);
}

static void
a_look_that_fails_supersedes_nobody(void **state)
{
	(void)state;
	params.before = (struct params_before){.newest = true};
	script.others[0] = (struct other){ENTRY_WAITER, 1001 * US, CAME(1001000000, "1")};
	script.silent = 2;
	assert_int_equal(ask(NEVER), RC_OK);
	assert_int_equal(before_go(&before, &fault), RC_OK);
}

static void
the_queue_is_looked_at_more_rarely_the_longer_it_is(void **state)
{
	(void)state;
	params.before = (struct params_before){.newest = true};
	script.others[0] = (struct other){ENTRY_WAITER, 999 * US, CAME(999000000, "1")};
	for (script.crowd = 0; script.crowd <= 100; script.crowd += 50) {
		int64_t pause = NS_PER_S + script.crowd * 40 * NS_PER_MS;

		script.looks = 0;
		script.waits = 3 * pause;
		assert_int_equal(ask(NEVER), RC_OK);
		assert_in_range(script.looks, 3, 4);
		assert_in_range(script.at[2] - script.at[1], pause, pause * 5 / 4 + 1);
	}
}

static void
assert_pause(unsigned before_look, int64_t seconds)
{
	assert_in_range(script.at[before_look] - script.at[before_look - 1],
	    seconds * NS_PER_S, seconds * NS_PER_S * 5 / 4 + 1);
}

/* A server that has too much to do is not helped by those who ask again. */
static void
the_queue_is_looked_at_more_rarely_while_looks_fail(void **state)
{
	static const int64_t seconds[] = {1, 2, 4, 8, 16, 16, 16, 1, 1};

	(void)state;
	params.before = (struct params_before){.newest = true};
	script.silent = 7; /* the first is for the time */
	for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
		script.waits += seconds[i] * NS_PER_S * 5 / 4 + 1;
	assert_int_equal(ask(NEVER), RC_OK);
	assert_true(script.looks > sizeof seconds / sizeof *seconds);
	for (unsigned i = 0; i < sizeof seconds / sizeof *seconds; i++)
		assert_pause(i + 1, seconds[i]);
}

static void
an_older_run_ends_while_it_waits(void **state)
{
	(void)state;
	params.before = (struct params_before){.newest = true};
	script.others[0] = (struct other){ENTRY_WAITER, 1001 * US, CAME(1001000000, "1")};
	script.waits = 60 * NS_PER_S;
	assert_int_equal(ask(NEVER), RC_STOP);
	assert_true(before.superseded && now < 1002 * NS_PER_S);
	assert_int_equal(before_go(&before, &fault), RC_BUSY);
	assert_ptr_equal(host.wait, wait_by_clock);
}

static void
after_a_thaw_others_get_time_to_come(void **state)
{
	instant thawed;

	(void)state;
	params.before.newest = true;
	script.frozen = 2; /* the first look is at our key, which nobody uses */
	script.from = 3;   /* and a newer one comes when we have asked */
	script.others[0] = (struct other){ENTRY_WAITER, 1002 * US, CAME(1001000000, "1")};
	assert_int_equal(ask(NEVER), RC_OK);
	assert_non_null(strstr(lock.claim.record, "\"newest\":1000000000,"));
	thawed = now;
	assert_int_equal(before_go(&before, &fault), RC_BUSY);
	assert_true(before.superseded);
	assert_int_equal(now, thawed + 3 * NS_PER_S);
	assert_int_equal(script.renewals, 2); /* of 3 s, at a third */
}

/* A keeper that asks anew may find it thawed at its first look, as others do in that moment. */
static void
who_asks_anew_lets_others_come_as_well(void **state)
{
	(void)state;
	params.before.newest = true;
	run.again = true;
	assert_int_equal(ask(NEVER), RC_OK);
	assert_int_equal(before.settled_at, now + 3 * NS_PER_S);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		a_thaw_is_waited_for_by_a_look_a_second, begin, end),
	    cmocka_unit_test_setup_teardown(who_does_not_wait_looks_once, begin, end),
	    cmocka_unit_test_setup_teardown(
		nobody_is_shown_the_secret_of_a_store_that_has_left, begin, end),
	    cmocka_unit_test_setup_teardown(a_look_counts_from_its_beginning, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_look_that_takes_too_long_lets_nobody_begin, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_look_that_gets_no_answer_is_made_again, begin, end),
	    cmocka_unit_test_setup_teardown(
		what_is_frozen_or_lost_meanwhile_is_asked_for_anew, begin, end),
	    cmocka_unit_test_setup_teardown(
		the_one_that_came_later_supersedes, begin, end),
	    cmocka_unit_test_setup_teardown(
		who_finds_nobody_came_as_it_joined, begin, end),
	    cmocka_unit_test_setup_teardown(
		who_is_seen_came_as_it_joined_whatever_was_guessed, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_look_that_fails_supersedes_nobody, begin, end),
	    cmocka_unit_test_setup_teardown(
		the_queue_is_looked_at_more_rarely_the_longer_it_is, begin, end),
	    cmocka_unit_test_setup_teardown(
		the_queue_is_looked_at_more_rarely_while_looks_fail, begin, end),
	    cmocka_unit_test_setup_teardown(an_older_run_ends_while_it_waits, begin, end),
	    cmocka_unit_test_setup_teardown(
		after_a_thaw_others_get_time_to_come, begin, end),
	    cmocka_unit_test_setup_teardown(
		who_asks_anew_lets_others_come_as_well, begin, end),
	};

	return cmocka_run_group_tests_name("before", tests, NULL, NULL);
}
