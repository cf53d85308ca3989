/*
 * unit multi.c - Goal of these tests: several keys are one lock, whatever the
 * stores below say and whenever: taken in order or not at all, kept while one
 * waits, lost as soon as one is.
 *
 * The stores are scripted: a test's hook answers each call, and the log has them
 * in order, "acquire a, acquire b, renew a, ".
 */
#include "backends/multi.h"
#include "cmd/look.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE (30 * NS_PER_S) /* of anything here that should happen */
#define SOON (5 * NS_PER_MS)

enum { LOG_BYTES = 16384 };

struct scripted {
	struct store base;
	const struct claim *claim;
};

static struct {
	char log[LOG_BYTES];
	enum rc (*hook)(struct scripted *, const char *call, instant until,
	    struct grant *, struct fault *);
	enum rc on_open;
	unsigned caps;
	int64_t pace;
	int opened, closed;
	int status[3]; /* with which a, b and c were released */
	int alert;     /* a's; -1 */
	char notice[64];
} world;

static const struct backend scripted_backend;

/* ---- the stores ---- */

static enum rc
called(struct store *s, const char *call, instant until, struct grant *g, struct fault *f)
{
	struct scripted *k = (struct scripted *)s;
	size_t n = strlen(world.log);

	assert_true(n < LOG_BYTES - 600);
	snprintf(world.log + n, LOG_BYTES - n, "%s %s, ", call, k->claim->key);
	return world.hook ? world.hook(k, call, until, g, f) : RC_OK;
}

static bool
is(const struct scripted *k, const char *key)
{
	return strcmp(k->claim->key, key) == 0;
}

static enum rc
scripted_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct scripted *k = (struct scripted *)s;
	instant sent = instant_now();
	enum rc rc;

	k->claim = claim;
	*g = (struct grant){.token = 7,
	    .sent = sent,
	    .lease = claim->ttl,
	    .pace = world.pace,
	    .anchor = -1};
	rc = called(s, "acquire", until, g, f);
	if (rc == RC_OK && is(k, "a"))
		s->host->alert = world.alert;
	return rc;
}

static enum rc
scripted_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct grant was = *g;
	uint64_t rang;
	enum rc rc;

	if (s->host->alert >= 0 && read(s->host->alert, &rang, sizeof rang) < 0)
		rang = 0;
	if (*world.notice)
		fault_set(&s->host->notice, RC_OK, "%s", world.notice);
	g->sent = instant_now();
	rc = called(s, "renew", until, g, f);
	if (rc != RC_OK && rc != RC_REVOKED)
		*g = was;
	return rc;
}

static enum rc
scripted_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	const char *key = ((struct scripted *)s)->claim->key;

	if (strlen(key) == 1 && *key >= 'a' && *key <= 'c')
		world.status[*key - 'a'] = o.status;
	return called(s, "release", until, NULL, f);
}

static enum rc
scripted_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct scripted *k;

	(void)site;
	if (world.on_open != RC_OK && world.opened == 1)
		return fault_set(f, world.on_open, "not this one");
	k = calloc(1, sizeof *k);
	assert_non_null(k);
	k->base = (struct store){
	    &scripted_backend, host, "scripted", CAP_FAIR | world.caps};
	world.opened++;
	*ret = &k->base;
	return RC_OK;
}

static void
scripted_close(struct store *s)
{
	world.closed++;
	free(s);
}

static const struct backend scripted_backend = {
    .name = "scripted",
    .open = scripted_open,
    .close = scripted_close,
    .lock = &(const struct lock_ops){scripted_acquire, scripted_renew, scripted_release},
};

/* Waits, as backends do, until `text` stands in the log. */
static enum rc
await_log(struct scripted *k, const char *text, instant until, struct fault *f)
{
	struct host *host = k->base.host;
	instant patience = instant_first(until, instant_now() + PATIENCE);

	while (!strstr(world.log, text)) {
		if (instant_now() >= patience)
			return fault_set(f, RC_AGAIN, "no answer");
		if (host->wait(host, -1, 0,
			instant_first(patience, instant_now() + NS_PER_MS)) == WOKE_STOP)
			return RC_STOP;
	}
	return RC_OK;
}

/* How often `text` stands in the log. */
static int
count(const char *text)
{
	int n = 0;

	for (const char *at = world.log; (at = strstr(at, text)); at++)
		n++;
	return n;
}

/* ---- the caller ---- */

static struct host host;
static struct claim claim;
static struct grant grant;
static struct fault fault;
static struct store *store;

static int
begin(void **state)
{
	(void)state;
	memset(&world, 0, sizeof world);
	world.alert = -1;
	world.pace = 10 * NS_PER_S;
	look_host(&host);
	claim = (struct claim){.key = "not used",
	    .owner = "00112233445566778899aabbccddeeff",
	    .record = "{}",
	    .ttl = 30 * NS_PER_S};
	memset(&grant, 0, sizeof grant);
	fault.text[0] = '\0';
	store = NULL;
	return 0;
}

static int
end(void **state)
{
	(void)state;
	if (store)
		store->backend->close(store);
	return world.opened == world.closed ? 0 : -1;
}

#define OPEN(...) \
	open_keys((const char *const[]){__VA_ARGS__}, \
	    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static enum rc
open_keys(const char *const *keys, size_t n)
{
	static const struct site site;
	static const char *kept[8];

	memcpy(kept, keys, n * sizeof *keys);
	return multi_open(&store, &host, &scripted_backend, &site, kept, n, &fault);
}

static enum rc
acquire(instant until)
{
	return store->backend->lock->acquire(store, &claim, until, &grant, &fault);
}

static enum rc
renew(instant until)
{
	return store->backend->lock->renew(store, until, &grant, &fault);
}

static enum rc
release(int status)
{
	return store->backend->lock->release(
	    store, (struct outcome){status, true}, instant_now() + PATIENCE, &fault);
}

static void
says(const char *log)
{
	assert_string_equal(world.log, log);
	world.log[0] = '\0';
}

static void
names(const char *key)
{
	if (strncmp(fault.text, key, strlen(key)) != 0 || fault.text[strlen(key)] != ':')
		fail_msg("'%s' does not name %s", fault.text, key);
}

/* ---- order ---- */

static void
keys_are_taken_in_the_order_of_their_bytes(void **state)
{
	(void)state;
	assert_int_equal(OPEN("z", "\xc3\xa9", "a", "ab", "Z", "a "), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	says(
	    "acquire Z, acquire a, acquire a , acquire ab, acquire z, acquire \xc3\xa9, ");
}

static enum rc
give_various(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)until, (void)f;
	if (strcmp(call, "acquire") == 0) {
		g->token = k->claim->key[0];
		g->slot = k->claim->key[0] - 'a';
		g->lease = is(k, "a") ? LEASE_FOREVER
		    : is(k, "b")      ? 20 * NS_PER_S
				      : 10 * NS_PER_S;
		g->pace = is(k, "b") ? NS_PER_S : 0;
		g->soon = is(k, "c") ? NS_PER_S / 2 : 0;
		g->anchor = is(k, "b") ? 42 : -1;
	}
	return RC_OK;
}

static void
a_grant_is_what_all_have_in_common(void **state)
{
	(void)state;
	world.hook = give_various;
	assert_int_equal(OPEN("b", "c", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(grant.token, 'b'); /* named first */
	assert_int_equal(grant.slot, 1);
	assert_int_equal(grant.lease, 10 * NS_PER_S); /* c's */
	assert_int_equal(grant.sent, multi_grant(store, 1)->sent);
	assert_int_equal(grant.pace, NS_PER_S);     /* b's */
	assert_int_equal(grant.soon, NS_PER_S / 2); /* c's */
	assert_int_equal(grant.anchor, 42);
	assert_int_equal(multi_grant(store, 0)->token, 'b');
	assert_int_equal(multi_grant(store, 1)->token, 'c');
	assert_int_equal(multi_grant(store, 2)->token, 'a');
}

static void
a_lease_without_end_has_no_pace_but_that_of_the_ttl(void **state)
{
	(void)state;
	world.hook = give_various;
	assert_int_equal(OPEN("a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(grant.lease, LEASE_FOREVER);
	assert_int_equal(grant.pace, claim.ttl / 3);
	assert_int_equal(grant.soon, claim.ttl / 3);
}

/* ---- all or none ---- */

static enum rc
b_is_busy(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g;
	if (!is(k, "b") || strcmp(call, "acquire") != 0)
		return RC_OK;
	assert_int_equal(until, 0);
	k->base.host->seen.holding.held = 5;
	strcpy(k->base.host->seen.holding.record, "{\"who\":\"somebody\"}");
	return fault_set(f, RC_BUSY, "held");
}

static void
one_that_is_busy_leaves_none(void **state)
{
	(void)state;
	world.hook = b_is_busy;
	assert_int_equal(OPEN("c", "b", "a"), RC_OK);
	assert_int_equal(acquire(0), RC_BUSY);
	names("b");
	assert_string_equal(host.seen.key, "b");
	assert_int_equal(host.seen.holding.held, 5);
	assert_string_equal(host.seen.holding.record, "{\"who\":\"somebody\"}");
	assert_int_equal(release(STATUS_NONE), RC_OK);
	says("acquire a, acquire b, release a, release b, ");
	assert_int_equal(release(STATUS_NONE), RC_OK);
	says("");
}

static void
nothing_was_asked_nothing_is_released(void **state)
{
	(void)state;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(release(STATUS_NONE), RC_OK);
	says("");
}

static void
what_cannot_be_opened_is_refused(void **state)
{
	(void)state;
	world.on_open = RC_CONFIG;
	assert_int_equal(OPEN("a", "b", "c"), RC_CONFIG);
	assert_null(store);
	assert_int_equal(world.closed, 1);
}

static void
a_setting_that_names_the_lock_is_refused(void **state)
{
	(void)state;
	world.caps = ONE_LOCK;
	assert_int_equal(OPEN("a", "b"), RC_USAGE);
	assert_null(store);
}

/* ---- waiting ---- */

static enum rc
b_waits_for_renewals(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g;
	if (!is(k, "b") || strcmp(call, "acquire") != 0)
		return RC_OK;
	k->base.host->seen.position = 3;
	return await_log(k, "renew a, renew a, renew a, ", until, f);
}

static void
what_is_held_is_renewed_while_the_next_is_waited_for(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = b_waits_for_renewals;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_string_equal(host.seen.key, "b");
	assert_int_equal(host.seen.position, 3);
	assert_int_equal(count("acquire a"), 1);
	assert_true(grant.sent >= multi_grant(store, 1)->sent);
}

/*
 * The first renewal of `ill` gives `how`; c is there when all have been asked for anew.
 */
static const char *ill;
static enum rc how;

static enum rc
one_goes_while_c_is_waited_for(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	char first[16];

	(void)g;
	snprintf(first, sizeof first, "renew %s", ill);
	if (strcmp(call, "renew") == 0 && is(k, ill) && count(first) == 1)
		return fault_set(f, how, "it is gone");
	if (strcmp(call, "acquire") == 0 && is(k, "c") && count("acquire c") == 1)
		return await_log(k, "never", until, f);
	return RC_OK;
}

/* Only the renewals are left out of the log: how many there are is a matter of time. */
static const char *
without_renewals(void)
{
	static char out[LOG_BYTES];
	char *rest, *word, copy[LOG_BYTES];

	out[0] = '\0';
	strcpy(copy, world.log);
	for (word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		word += strspn(word, " ");
		if (*word && strncmp(word, "renew", 5) != 0)
			sprintf(out + strlen(out), "%s, ", word);
	}
	return out;
}

static void
one_that_is_lost_while_waiting_is_asked_for_again(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = one_goes_while_c_is_waited_for;
	ill = "a";
	how = RC_LOST;
	assert_int_equal(OPEN("c", "b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	/* all behind it are given back first, also the place in the queue for c */
	assert_string_equal(without_renewals(),
	    "acquire a, acquire b, acquire c, release b, release c, "
	    "acquire a, acquire b, acquire c, ");
	assert_non_null(strstr(host.notice.text, "a: it is gone"));
	/* and what is still on its way for them finds nobody */
	assert_int_equal(world.closed, 3);
}

static void
those_before_it_are_kept(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = one_goes_while_c_is_waited_for;
	ill = "b";
	how = RC_LOST;
	assert_int_equal(OPEN("c", "b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_string_equal(without_renewals(),
	    "acquire a, acquire b, acquire c, release c, acquire b, acquire c, ");
}

static void
one_that_is_wanted_back_while_waiting_is_given_back(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = one_goes_while_c_is_waited_for;
	ill = "b";
	how = RC_REVOKED;
	assert_int_equal(OPEN("c", "b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_string_equal(without_renewals(),
	    "acquire a, acquire b, acquire c, release b, release c, acquire b, acquire c, ");
}

static void
one_unanswered_renewal_is_no_loss(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = one_goes_while_c_is_waited_for;
	ill = "a";
	how = RC_AGAIN;
	assert_int_equal(OPEN("c", "b", "a"), RC_OK);
	/* c's own answer: nothing came */
	assert_int_equal(acquire(instant_now() + NS_PER_S / 2), RC_AGAIN);
	names("c");
	assert_int_equal(count("acquire a"), 1);
}

static enum rc
a_is_silent(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	if (strcmp(call, "acquire") == 0)
		g->lease = 2 * NS_PER_S;
	if (strcmp(call, "renew") == 0 && is(k, "a") && count("acquire b") == 1)
		return fault_set(f, RC_AGAIN, "no answer");
	if (strcmp(call, "acquire") == 0 && is(k, "b") && count("acquire b") == 1)
		return await_log(k, "never", until, f);
	return RC_OK;
}

static void
one_that_is_silent_for_a_lease_is_asked_for_again(void **state)
{
	(void)state;
	world.pace = SOON;
	claim.ttl = 2 * NS_PER_S;
	world.hook = a_is_silent;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_string_equal(without_renewals(),
	    "acquire a, acquire b, release a, release b, acquire a, acquire b, ");
	assert_true(count("renew a") > 1);
}

static char owners[2][OWNER_CHARS + 1];

static enum rc
note_owners(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	if (strcmp(call, "acquire") == 0 && is(k, "a"))
		strcpy(owners[count("acquire a") - 1], k->claim->owner);
	return one_goes_while_c_is_waited_for(k, call, until, g, f);
}

static void
what_is_asked_for_again_has_an_owner_of_its_own(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = note_owners;
	ill = "a";
	how = RC_LOST;
	/* the last digit is as great as can be */
	claim.owner = "0011223344556677889aabbccddeefff";
	assert_int_equal(OPEN("c", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_string_equal(owners[0], claim.owner);
	assert_string_not_equal(owners[1], claim.owner);
	assert_int_equal(strspn(owners[1], "0123456789abcdef"), OWNER_CHARS);
}

static enum rc
a_is_lost_during_an_answer(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g, (void)until;
	if (strcmp(call, "renew") == 0)
		return fault_set(f, RC_LOST, "it is gone");
	if (strcmp(call, "acquire") == 0 && is(k, "b"))
		return await_log(k, "never", instant_now() + NS_PER_S, f);
	return RC_OK;
}

static void
without_waiting_nothing_is_asked_for_again(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = a_is_lost_during_an_answer;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(0), RC_BUSY);
	names("a");
	release(STATUS_NONE);
	assert_string_equal(without_renewals(), "acquire a, acquire b, release b, ");
}

static bool stopping;

static enum woke
stop_when_asked(struct host *h, int fd, short events, instant until)
{
	struct host plain;

	(void)h;
	look_host(&plain);
	return stopping ? WOKE_STOP : plain.wait(&plain, fd, events, until);
}

static enum rc
stop_when_b_waits(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g;
	if (strcmp(call, "acquire") != 0 || !is(k, "b"))
		return RC_OK;
	stopping = true;
	return await_log(k, "never", until, f);
}

static void
who_is_told_to_stop_stops(void **state)
{
	(void)state;
	stopping = false;
	host.wait = stop_when_asked;
	world.hook = stop_when_b_waits;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_STOP);
	stopping = false; /* as the keeper does for the next call */
	assert_int_equal(release(STATUS_NONE), RC_OK);
	says("acquire a, acquire b, release a, release b, ");
}

static enum rc
stop_in_a_renewal(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g;
	if (strcmp(call, "acquire") == 0 && is(k, "b"))
		return await_log(k, "never", until, f);
	if (strcmp(call, "renew") != 0)
		return RC_OK;
	stopping = true;
	return await_log(k, "never", until, f);
}

static void
who_is_told_to_stop_while_renewing_stops(void **state)
{
	(void)state;
	world.pace = SOON;
	stopping = false;
	host.wait = stop_when_asked;
	world.hook = stop_in_a_renewal;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_STOP);
	stopping = false;
	assert_int_equal(release(STATUS_NONE), RC_OK);
	says("acquire a, acquire b, renew a, release a, release b, ");
}

static enum rc
b_comes_in_time(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	instant limit = instant_now() + 20 * NS_PER_MS;

	(void)g;
	if (strcmp(call, "renew") == 0) /* no answer */
		return await_log(k, "never", until, f);
	if (strcmp(call, "release") == 0 || is(k, "a"))
		return RC_OK;
	assert_int_equal(k->base.host->wait(k->base.host, -1, 0, limit), WOKE_TIMEOUT);
	assert_true(instant_now() >= limit);
	/* a renewal may take a tenth */
	assert_true(instant_now() < limit + claim.ttl / 20);
	return RC_OK;
}

static void
a_renewal_does_not_make_the_wait_longer(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = b_comes_in_time;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_non_null(strstr(world.log, "renew a"));
}

/* ---- renewals ---- */

static int64_t had[3];   /* how much time a, b and c were given */
static const char *mute; /* those that give no answer */

static enum rc
note_time(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	const char *key = k->claim->key;

	(void)g;
	if (strcmp(call, "acquire") == 0)
		return RC_OK;
	had[*key - 'a'] = until - instant_now();
	return strstr(mute, key) ? await_log(k, "never", until, f) : RC_OK;
}

static void
all_are_asked_in_turn_with_shared_time(void **state)
{
	(void)state;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	says("acquire a, acquire b, acquire c, ");
	world.hook = note_time;
	mute = "a b";
	assert_int_equal(renew(instant_now() + 3000 * NS_PER_MS), RC_AGAIN);
	says("renew a, renew b, renew c, ");
	assert_in_range(had[0], 1, 1000 * NS_PER_MS);
	assert_in_range(had[1], 1, 2000 * NS_PER_MS);
	assert_in_range(had[2], 1, 2000 * NS_PER_MS);
	/* the one that was silent first is the last now, and has what the others left */
	mute = "";
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	says("renew b, renew c, renew a, ");
	assert_true(had[0] > PATIENCE / 2);
	mute = "a b";
	assert_int_equal(store->backend->lock->release(store, (struct outcome){0},
			     instant_now() + 3000 * NS_PER_MS, &fault),
	    RC_AGAIN);
	says("release a, release b, release c, ");
	assert_in_range(had[1], 1, 2000 * NS_PER_MS);
	assert_in_range(had[2], 1, 2000 * NS_PER_MS);
}

static enum rc
b_is_stopped(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	if (strcmp(call, "acquire") == 0)
		return is(k, "b") ? RC_STOP : RC_OK;
	return note_time(k, call, until, g, f);
}

static void
what_was_never_asked_for_has_no_share_of_a_withdrawal(void **state)
{
	(void)state;
	world.hook = b_is_stopped;
	mute = "";
	assert_int_equal(OPEN("a", "b", "c", "d"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_STOP);
	assert_int_equal(store->backend->lock->release(store, (struct outcome){0},
			     instant_now() + PATIENCE, &fault),
	    RC_OK);
	says("acquire a, acquire b, release a, release b, ");
	assert_true(had[0] > PATIENCE / 3 && had[1] > PATIENCE / 2);
}

static void
one_with_an_alert_is_renewed_first(void **state)
{
	(void)state;
	world.alert = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	world.hook = note_time;
	mute = "b";
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(renew(instant_now() + 30 * NS_PER_MS), RC_AGAIN);
	world.log[0] = '\0';
	mute = "";
	eventfd_write(world.alert, 1); /* a's; otherwise c would be the first */
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	says("renew a, renew b, renew c, ");
	close(world.alert);
}

static enum rc answers[3]; /* of a, b and c; 100: none until `until` */

static enum rc
as_said(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	int i = k->claim->key[0] - 'a';

	(void)g;
	if (strcmp(call, "acquire") == 0 || answers[i] == RC_OK)
		return RC_OK;
	if (answers[i] == 100)
		return await_log(k, "never", until, f);
	return fault_set(f, answers[i], "%s", fault_rc_name(answers[i]));
}

static void
an_answer_that_does_not_come_costs_the_others_nothing(void **state)
{
	struct grant was;

	(void)state;
	world.hook = as_said;
	answers[0] = answers[1] = answers[2] = RC_OK;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	was = grant;
	for (int silent = 0; silent < 3; silent++) {
		instant sent[3];

		for (int i = 0; i < 3; i++) {
			answers[i] = i == silent ? 100 : RC_OK;
			sent[i] = multi_grant(store, i)->sent;
		}
		assert_int_equal(renew(instant_now() + 20 * NS_PER_MS), RC_AGAIN);
		names((const char *[]){"a", "b", "c"}[silent]);
		assert_memory_equal(&was, &grant, sizeof was); /* left alone */
		for (int i = 0; i < 3; i++)
			assert_true(i == silent ? multi_grant(store, i)->sent == sent[i]
						: multi_grant(store, i)->sent > sent[i]);
	}
	answers[2] = RC_OK;
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	assert_true(grant.sent > was.sent);
	/* asked first, ends first */
	assert_int_equal(grant.sent, multi_grant(store, 0)->sent);
}

static void
what_is_worst_counts(void **state)
{
	static const struct {
		enum rc a, b, c, all;
		const char *key;
	} cases[] = {
	    {RC_OK, RC_OK, RC_AGAIN, RC_AGAIN, "c"},
	    {RC_AGAIN, RC_REVOKED, RC_OK, RC_REVOKED, "b"},
	    {RC_REVOKED, RC_LOST, RC_AGAIN, RC_LOST, "b"},
	    {RC_LOST, RC_OK, RC_REVOKED, RC_LOST, "a"},
	    {RC_SYSTEM, RC_OK, RC_OK, RC_SYSTEM, "a"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct grant was;

		begin(state);
		world.hook = as_said;
		answers[0] = answers[1] = answers[2] = RC_OK;
		assert_int_equal(OPEN("a", "b", "c"), RC_OK);
		assert_int_equal(acquire(NEVER), RC_OK);
		was = grant;
		answers[0] = cases[i].a;
		answers[1] = cases[i].b;
		answers[2] = cases[i].c;
		assert_int_equal(renew(instant_now() + PATIENCE), cases[i].all);
		names(cases[i].key);
		/* the lease is that of the one that gave no answer */
		if (cases[i].all == RC_REVOKED)
			assert_true(grant.sent == was.sent &&
			    multi_grant(store, 1)->sent > was.sent);
		if (i + 1 < sizeof cases / sizeof *cases)
			assert_int_equal(end(state), 0);
	}
}

/*
 * The command is to be killed at once, not when the last of the others has had its time.
 */
static void
a_loss_waits_for_no_other_answer(void **state)
{
	instant until = instant_now() + PATIENCE;

	(void)state;
	world.hook = as_said;
	answers[0] = answers[1] = answers[2] = RC_OK;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	answers[0] = 100;
	answers[1] = RC_LOST;
	assert_int_equal(renew(until), RC_LOST);
	assert_true(instant_now() < until);
	names("b");
	world.log[0] = '\0';
	answers[0] = RC_OK;
	assert_int_equal(release(79), RC_LOST);
	says("release a, release c, ");
}

static void
one_that_was_lost_is_not_released(void **state)
{
	(void)state;
	world.hook = as_said;
	answers[0] = answers[1] = answers[2] = RC_OK;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	answers[1] = RC_LOST;
	assert_int_equal(renew(instant_now() + PATIENCE), RC_LOST);
	world.log[0] = '\0';
	assert_int_equal(release(79), RC_LOST);
	names("b");
	says("release a, release c, ");
}

/* ---- release ---- */

static void
what_is_not_known_to_be_released_is_asked_for_again(void **state)
{
	(void)state;
	world.hook = as_said;
	answers[0] = answers[2] = RC_OK;
	answers[1] = RC_AGAIN;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(release(0), RC_AGAIN);
	names("b");
	world.log[0] = '\0';
	assert_int_equal(release(0), RC_AGAIN);
	answers[1] = RC_OK;
	assert_int_equal(release(0), RC_OK);
	assert_int_equal(release(0), RC_OK);
	says("release b, release b, ");
}

static void
one_that_was_no_longer_ours_counts_for_all(void **state)
{
	(void)state;
	world.hook = as_said;
	answers[0] = RC_AGAIN;
	answers[1] = RC_OK;
	answers[2] = RC_LOST;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(release(0), RC_LOST);
	names("c");
	assert_int_equal(release(0), RC_LOST);
}

static const char *with_job;
static int shown;

static enum rc
note_jobs(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	shown += strcmp(call, "acquire") == 0 && job_is_shown(&k->claim->job);
	if (strcmp(call, "acquire") == 0 && job_is_wanted(&k->claim->job)) {
		assert_null(with_job);
		with_job = k->claim->key;
		assert_string_equal(k->claim->job.once, "id");
	}
	return as_said(k, call, until, g, f);
}

static void
a_job_is_the_first_ones_and_remembered_last(void **state)
{
	(void)state;
	claim.job.once = "id";
	world.hook = note_jobs;
	with_job = NULL;
	answers[0] = answers[1] = answers[2] = RC_OK;
	assert_int_equal(OPEN("b", "a", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_string_equal(with_job, "b");
	world.log[0] = '\0';
	assert_int_equal(release(0), RC_OK);
	says("release a, release c, release b, ");
	assert_int_equal(world.status[1], 0);
}

/* All of them can show it, in whatever order. */
static void
a_run_that_is_no_job_is_shown_by_each(void **state)
{
	(void)state;
	claim.job.remember = REMEMBER_SURELY;
	world.hook = note_jobs;
	with_job = NULL;
	shown = 0;
	answers[0] = answers[1] = answers[2] = RC_OK;
	assert_int_equal(OPEN("b", "a", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_null(with_job);
	assert_int_equal(shown, 3);
	assert_int_equal(release(5), RC_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(world.status[i], 5);
}

static void
a_run_that_lost_a_key_is_not_remembered(void **state)
{
	(void)state;
	claim.job.cooldown = 1;
	world.hook = as_said;
	answers[0] = answers[1] = RC_OK;
	answers[2] = RC_LOST;
	assert_int_equal(OPEN("b", "a", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(release(0), RC_LOST);
	names("c");
	assert_int_equal(world.status[1], STATUS_NONE);
}

/* With --min-hold: the status has been told when the loss comes. */
static void
a_loss_that_was_known_before_is_in_the_status(void **state)
{
	(void)state;
	claim.job.cooldown = 1;
	world.hook = as_said;
	answers[0] = answers[1] = answers[2] = RC_OK;
	assert_int_equal(OPEN("b", "a", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	answers[2] = RC_LOST;
	assert_int_equal(renew(instant_now() + PATIENCE), RC_LOST);
	assert_int_equal(release(0), RC_LOST);
	assert_int_equal(world.status[1], 0);
}

static bool had_time;

static enum rc
c_is_silent(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g;
	if (strcmp(call, "release") == 0 && is(k, "c"))
		return await_log(k, "never", until, f);
	if (strcmp(call, "release") == 0 && is(k, "b"))
		had_time = instant_now() < until;
	return RC_OK;
}

static void
one_that_is_silent_leaves_time_to_remember_the_job(void **state)
{
	(void)state;
	claim.job.once = "id";
	world.hook = c_is_silent;
	had_time = false;
	assert_int_equal(OPEN("b", "a", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_int_equal(store->backend->lock->release(store, (struct outcome){0},
			     instant_now() + 3 * NS_PER_S, &fault),
	    RC_AGAIN);
	assert_true(had_time);
	assert_int_equal(world.status[1], 0);
}

static void
where_nothing_was_run_all_are_given_back_in_order(void **state)
{
	(void)state;
	claim.job.once = "id";
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	world.log[0] = '\0';
	assert_int_equal(release(STATUS_NONE), RC_OK);
	says("release a, release b, release c, ");
}

/* ---- alerts, notices, traces ---- */

static bool
rings(void)
{
	return host.alert >= 0 &&
	    poll(&(struct pollfd){.fd = host.alert, .events = POLLIN}, 1, 0) == 1;
}

static void
an_alert_of_one_is_one_of_all(void **state)
{
	(void)state;
	world.alert = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(host.alert, -1);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_true(host.alert >= 0 && !rings());
	eventfd_write(world.alert, 1);
	assert_true(rings());
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	assert_false(rings());
	close(world.alert);
}

static enum rc
a_rings_while_b_is_waited_for(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)g;
	if (strcmp(call, "acquire") != 0 || !is(k, "b"))
		return RC_OK;
	eventfd_write(world.alert, 1);
	return await_log(k, "renew a", until, f);
}

static void
an_alert_is_heard_while_waiting(void **state)
{
	(void)state;
	world.alert = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	world.hook = a_rings_while_b_is_waited_for;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	says("acquire a, acquire b, renew a, ");
	close(world.alert);
}

/* As if each renewal opened a connection that ends at once. */
static enum rc
a_rings_without_end(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	struct host *to = k->base.host;
	instant ends = instant_now() + 300 * NS_PER_MS;

	(void)until, (void)g, (void)f;
	if (is(k, "a"))
		eventfd_write(world.alert, 1);
	while (is(k, "b") && strcmp(call, "acquire") == 0 && instant_now() < ends)
		if (to->wait(to, -1, 0, ends) == WOKE_STOP)
			return RC_STOP;
	return RC_OK;
}

static void
alerts_without_end_are_not_all_heard_while_waiting(void **state)
{
	(void)state;
	claim.ttl = 3600 * NS_PER_S;
	world.pace = 1200 * NS_PER_S;
	world.alert = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	world.hook = a_rings_without_end;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_in_range(count("renew a"), 5, 6); /* and once when it has both */
	close(world.alert);
}

static enum rc
a_is_lost_at_the_last_moment(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)until, (void)g;
	if (strcmp(call, "renew") == 0 && is(k, "a") && count("renew a") == 1)
		return fault_set(f, RC_LOST, "it is gone");
	if (strcmp(call, "acquire") == 0 && is(k, "b") && count("acquire b") == 1)
		eventfd_write(world.alert, 1);
	return RC_OK;
}

static void
none_is_granted_with_one_that_rings(void **state)
{
	(void)state;
	world.alert = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	world.hook = a_is_lost_at_the_last_moment;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	says("acquire a, acquire b, renew a, release b, acquire a, acquire b, ");
	close(world.alert);
}

static enum rc
b_comes_late(
    struct scripted *k, const char *call, instant until, struct grant *g, struct fault *f)
{
	(void)until, (void)f, (void)g;
	if (strcmp(call, "acquire") == 0 && is(k, "b"))
		/* it does not wait: it computes, or the machine is slow */
		usleep(2 * SOON / 1000);
	return RC_OK;
}

static void
what_is_due_at_the_grant_is_renewed_before_it(void **state)
{
	(void)state;
	world.pace = SOON;
	world.hook = b_comes_late;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_non_null(strstr(world.log, "acquire b, renew a, renew b, "));
}

static void
a_notice_is_passed_on_once(void **state)
{
	(void)state;
	assert_int_equal(OPEN("a", "b", "c"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	strcpy(world.notice, "the server forgets");
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	assert_string_equal(host.notice.text, "the server forgets");
	host.notice.text[0] = '\0';
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	assert_string_equal(host.notice.text, "");
	strcpy(world.notice, "the server burns");
	assert_int_equal(renew(instant_now() + PATIENCE), RC_OK);
	assert_string_equal(host.notice.text, "the server burns");
}

static void
add_line(void *ctx, const char *line)
{
	char *text = ctx;

	snprintf(text + strlen(text), 1000 - strlen(text), "%.*s|",
	    (int)strcspn(line, "."), line);
}

static void
traces_name_the_key(void **state)
{
	char text[1000] = "";

	(void)state;
	host.tell = add_line;
	host.tell_ctx = text;
	assert_int_equal(OPEN("b", "a"), RC_OK);
	assert_int_equal(acquire(NEVER), RC_OK);
	assert_non_null(strstr(text, "scripted: acquire a: ok in"));
	assert_non_null(strstr(text, "scripted: acquire b: ok in"));
	assert_int_equal(release(0), RC_OK);
	assert_non_null(strstr(text, "scripted: release a: ok in"));
}

static void
texts_fit_whatever_the_key(void **state)
{
	static char key[KEY_BYTES + 1];

	(void)state;
	for (size_t i = 0; i + 1 < KEY_BYTES; i += 2)
		strcpy(key + i, "\xc3\xa9");
	memmove(key + 1, key, KEY_BYTES - 1);
	key[0] = 'b'; /* now byte 100 is within a character */
	world.hook = as_said;
	answers[0] = RC_OK;
	answers[1] = RC_DENIED;
	assert_int_equal(OPEN("a", key), RC_OK);
	answers[1] = RC_OK;
	assert_int_equal(acquire(NEVER), RC_OK);
	answers[1] = RC_LOST;
	assert_int_equal(renew(instant_now() + PATIENCE), RC_LOST);
	assert_int_equal(strncmp(fault.text, key, 99), 0);
	assert_string_equal(fault.text + 99, "...: not ours");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(keys_are_taken_in_the_order_of_their_bytes),
	    TEST(a_grant_is_what_all_have_in_common),
	    TEST(a_lease_without_end_has_no_pace_but_that_of_the_ttl),
	    TEST(one_that_is_busy_leaves_none),
	    TEST(nothing_was_asked_nothing_is_released),
	    TEST(what_cannot_be_opened_is_refused),
	    TEST(a_setting_that_names_the_lock_is_refused),
	    TEST(what_is_held_is_renewed_while_the_next_is_waited_for),
	    TEST(one_that_is_lost_while_waiting_is_asked_for_again),
	    TEST(those_before_it_are_kept),
	    TEST(one_that_is_wanted_back_while_waiting_is_given_back),
	    TEST(one_unanswered_renewal_is_no_loss),
	    TEST(one_that_is_silent_for_a_lease_is_asked_for_again),
	    TEST(what_is_asked_for_again_has_an_owner_of_its_own),
	    TEST(without_waiting_nothing_is_asked_for_again),
	    TEST(who_is_told_to_stop_stops),
	    TEST(who_is_told_to_stop_while_renewing_stops),
	    TEST(a_renewal_does_not_make_the_wait_longer),
	    TEST(all_are_asked_in_turn_with_shared_time),
	    TEST(what_was_never_asked_for_has_no_share_of_a_withdrawal),
	    TEST(one_with_an_alert_is_renewed_first),
	    TEST(an_answer_that_does_not_come_costs_the_others_nothing),
	    TEST(what_is_worst_counts),
	    TEST(a_loss_waits_for_no_other_answer),
	    TEST(one_that_was_lost_is_not_released),
	    TEST(what_is_not_known_to_be_released_is_asked_for_again),
	    TEST(one_that_was_no_longer_ours_counts_for_all),
	    TEST(a_job_is_the_first_ones_and_remembered_last),
	    TEST(a_run_that_is_no_job_is_shown_by_each),
	    TEST(a_run_that_lost_a_key_is_not_remembered),
	    TEST(a_loss_that_was_known_before_is_in_the_status),
	    TEST(one_that_is_silent_leaves_time_to_remember_the_job),
	    TEST(where_nothing_was_run_all_are_given_back_in_order),
	    TEST(an_alert_of_one_is_one_of_all),
	    TEST(an_alert_is_heard_while_waiting),
	    TEST(alerts_without_end_are_not_all_heard_while_waiting),
	    TEST(none_is_granted_with_one_that_rings),
	    TEST(what_is_due_at_the_grant_is_renewed_before_it),
	    TEST(a_notice_is_passed_on_once),
	    TEST(traces_name_the_key),
	    TEST(texts_fit_whatever_the_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
