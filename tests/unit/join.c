/*
 * join.c - Goal of these tests: an inner run joins what is a part of the holds around it,
 * and is refused what is not; what an outer run tells of its site stays whole,
 * whoever else is asked.
 */
#include "cmd/look.h"
#include "cmd/record.h"
#include "cmd/supervise/join_inner.h"
#include "cmd/supervise/join_outer.h"

#include "backends/common/append.h"
#include "backends/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* An enclosing dlock; the offer is what it holds. */
struct outer {
	struct join_outer door;
	struct params params;
	struct site site;
	struct offer offer;
	struct join_part parts[KEYS_MAX];
	struct identity identity;
};

/* A name that no other one has. */
static const char *
next_door(void)
{
	static char id[JOIN_ID_CHARS + 1];
	static unsigned n;

	snprintf(id, sizeof id, "%024x%08x", (unsigned)getpid(), ++n);
	return id;
}

static void
open_outer(struct outer *o, const char *key, const char *url,
    const struct setting *settings, size_t n)
{
	static struct host host;
	struct store *store;
	struct fault f;

	*o = (struct outer){
	    .params = {.keys = {key},
		.nkeys = 1,
		.site = {.backend = registry_named("file")}},
	    .site = {url, settings, n},
	    .offer = {.ours = true, .sent = instant_now(), .lease = LEASE_FOREVER},
	};
	o->offer.params = &o->params;
	o->offer.parts = o->parts;
	o->offer.identity = &o->identity;
	look_host(&host);
	if (o->params.site.backend->open(&store, &host, &o->site, &f) == RC_OK) {
		(void)identity_ask(&o->identity, o->params.site.backend, store);
		o->params.site.backend->close(store);
	}
	join_outer_open(&o->door, &o->params, next_door(), getpid());
	assert_true(o->door.listener >= 0);
}

/* Serves both until the process that asks has ended; its status. */
static int
serve(struct outer *a, struct outer *b, pid_t asker)
{
	static struct pollfd sets[2][JOIN_PEERS + 1];
	struct outer *both[] = {a, b};
	int64_t keep = 0;
	int status;

	while (waitpid(asker, &status, WNOHANG) == 0)
		for (int i = 0; i < 2; i++) {
			poll(sets[i], join_outer_poll(&both[i]->door, sets[i]), 5);
			join_outer_serve(&both[i]->door, sets[i], &both[i]->offer, &keep);
		}
	return status;
}

/*
 * A nested run that names no server, and a setting of its own, below that dlock.
 */
static enum rc
open_inner(
    const struct outer *o, const char *key, struct store **store, struct join_site *where)
{
	static const struct setting own[] = {{"own", "1"}};
	static char address[JOIN_ADDRESS_BYTES + JOIN_SITE_BYTES], site[JOIN_SITE_BYTES];
	static struct host host;
	static struct params p;
	static struct join_inner nested;
	struct fault f;

	p = (struct params){.keys = {key},
	    .nkeys = 1,
	    .site = {
		.backend = registry_named("file"), .inherits = true, .nsettings = 1}};
	p.site.settings[0] = own[0];
	nested = (struct join_inner){.base.host = &host, .params = &p, .where = where};
	look_host(&host);
	join_site_write(site, o->params.site.backend, &o->site);
	snprintf(address, sizeof address, "%s%s", o->door.address, site);
	setenv("DLOCK_KEEPER", address, 1);
	join_site_find(where, &p);
	*store = NULL;
	return join_inner_open(store, &nested, &f);
}

static bool
is_told(const struct site *s, const char *url, const char *name, const char *value)
{
	return s->url && strcmp(s->url, url) == 0 && s->nsettings == 2 &&
	    strcmp(s->settings[0].name, name) == 0 &&
	    strcmp(s->settings[0].value, value) == 0 &&
	    strcmp(s->settings[1].name, "own") == 0;
}

/*
 * In a process below the two: both are asked for the site of another key, one after the
 * other.
 */
static int
ask_both(const struct outer *a, const struct outer *b)
{
	static struct join_site where[2];
	struct store *store[2];

	if (open_inner(a, "other", &store[0], &where[0]) != RC_OK ||
	    open_inner(b, "other", &store[1], &where[1]) != RC_OK)
		return 2;
	if (store[0] || store[1]) /* neither has that key */
		return 3;
	return is_told(&where[0].site, "file:///a", "x", "1") &&
		is_told(&where[1].site, "file:///b", "y", "2")
	    ? 0
	    : 4;
}

static void
two_sites_do_not_mix(void **state)
{
	static const struct setting x[] = {{"x", "1"}}, y[] = {{"y", "2"}};
	static struct outer a, b;
	pid_t asker;

	(void)state;
	open_outer(&a, "job", "file:///a", x, 1);
	open_outer(&b, "job", "file:///b", y, 1);
	asker = fork();
	if (asker == 0)
		_exit(ask_both(&a, &b));
	assert_int_equal(serve(&a, &b, asker), 0);
}

/* ---- what is joined ---- */

/* What a nested run asks for, and what the keepers around it hold. */
struct row {
	const char *outer[2]; /* keys, a letter each */
	enum lock_kind kind[2];
	const char *inner;
	enum lock_kind asked;
	unsigned limit;
	enum rc rc;
	/*
	 * RC_OK: the tokens joined, a letter each: A is the first keeper's first, a the
	 * second's; "": none
	 */
	const char *says;
};

/* Outer limits are 3. */
static const struct row rows[] = {
    {{"k", ""}, {KIND_EXCLUSIVE}, "k", KIND_EXCLUSIVE, 0, RC_OK, "A"},
    {{"k", ""}, {KIND_EXCLUSIVE}, "k", KIND_WRITER, 0, RC_OK, "A"},
    {{"k", ""}, {KIND_WRITER}, "k", KIND_EXCLUSIVE, 0, RC_OK, "A"},
    {{"k", ""}, {KIND_WRITER}, "k", KIND_SHARED, 0, RC_OK, "A"},
    {{"k", ""}, {KIND_SHARED}, "k", KIND_SHARED, 0, RC_OK, "A"},
    {{"k", ""}, {KIND_LIMIT}, "k", KIND_LIMIT, 3, RC_OK, "A"},
    {{"k", ""}, {KIND_SHARED}, "k", KIND_EXCLUSIVE, 0, RC_PROTOCOL, "shared (-s)"},
    {{"k", ""}, {KIND_SHARED}, "k", KIND_WRITER, 0, RC_PROTOCOL, "shared (-s)"},
    {{"k", ""}, {KIND_SHARED}, "k", KIND_LIMIT, 3, RC_PROTOCOL, "shared (-s)"},
    {{"k", ""}, {KIND_LIMIT}, "k", KIND_LIMIT, 4, RC_PROTOCOL, "--limit 4"},
    {{"k", ""}, {KIND_LIMIT}, "k", KIND_SHARED, 0, RC_PROTOCOL, "--limit 3"},
    {{"k", ""}, {KIND_LIMIT}, "k", KIND_EXCLUSIVE, 0, RC_PROTOCOL, "--limit 3"},
    {{"k", ""}, {KIND_EXCLUSIVE}, "k", KIND_LIMIT, 3, RC_PROTOCOL, "exclusively"},
    {{"k", ""}, {KIND_SHARED}, "l", KIND_EXCLUSIVE, 0, RC_OK, ""},
    {{"abc", ""}, {KIND_EXCLUSIVE}, "b", KIND_EXCLUSIVE, 0, RC_OK, "B"},
    {{"abc", ""}, {KIND_EXCLUSIVE}, "ca", KIND_EXCLUSIVE, 0, RC_OK, "CA"},
    {{"abc", ""}, {KIND_EXCLUSIVE}, "cd", KIND_EXCLUSIVE, 0, RC_PROTOCOL,
	"no outer run has d"},
    {{"abc", ""}, {KIND_EXCLUSIVE}, "dc", KIND_EXCLUSIVE, 0, RC_PROTOCOL, "has c,"},
    {{"abc", ""}, {KIND_EXCLUSIVE}, "de", KIND_EXCLUSIVE, 0, RC_OK, ""},
    {{"a", "b"}, {KIND_EXCLUSIVE, KIND_EXCLUSIVE}, "ba", KIND_EXCLUSIVE, 0, RC_PROTOCOL,
	"none of them has all"},
    {{"a", "b"}, {KIND_SHARED, KIND_EXCLUSIVE}, "ab", KIND_SHARED, 0, RC_PROTOCOL,
	"none of them has all"},
    {{"a", "b"}, {KIND_SHARED, KIND_EXCLUSIVE}, "b", KIND_EXCLUSIVE, 0, RC_OK, "a"},
    {{"a", "b"}, {KIND_SHARED, KIND_EXCLUSIVE}, "ab", KIND_EXCLUSIVE, 0, RC_PROTOCOL,
	"has a shared (-s)"},
    /* the one outside has all of it */
    {{"a", "a"}, {KIND_SHARED, KIND_EXCLUSIVE}, "a", KIND_EXCLUSIVE, 0, RC_OK, "a"},
    {{"a", "ab"}, {KIND_EXCLUSIVE, KIND_EXCLUSIVE}, "ab", KIND_EXCLUSIVE, 0, RC_OK, "ab"},
    {{"a", "bc"}, {KIND_EXCLUSIVE, KIND_EXCLUSIVE}, "abd", KIND_EXCLUSIVE, 0, RC_PROTOCOL,
	"no outer run has d"},
};

/* Parameters with its keys, one letter each. */
static void
set_keys(struct params *p, const char *letters, char text[KEYS_MAX][2])
{
	for (p->nkeys = 0; letters[p->nkeys]; p->nkeys++) {
		text[p->nkeys][0] = letters[p->nkeys];
		text[p->nkeys][1] = '\0';
		p->keys[p->nkeys] = text[p->nkeys];
	}
}

static void
open_row(struct outer *o, const struct row *r, int i, char text[KEYS_MAX][2])
{
	open_outer(o, "", "file:///a", NULL, 0);
	close(o->door.listener);
	o->params.claim.kind = r->kind[i];
	o->params.claim.limit = r->kind[i] == KIND_LIMIT ? 3 : 0;
	set_keys(&o->params, r->outer[i], text);
	for (size_t k = 0; k < o->params.nkeys; k++)
		o->parts[k] = (struct join_part){(i ? 'a' : 'A') + k, i ? 7 : 5};
	join_outer_open(&o->door, &o->params, next_door(), getpid());
}

/* Do the calls on what was joined give what belongs to it? */
static bool
is_joined(struct store *s, const struct params *p, const struct join_inner *joined,
    const char *tokens)
{
	struct claim claim = {.key = p->keys[0], .ttl = 30 * NS_PER_S};
	struct grant g = {0};
	struct fault f;

	for (size_t i = 0; tokens[i]; i++)
		if (joined->parts[i].token != (uint64_t)tokens[i])
			return false;
	return s->backend->lock->acquire(s, &claim, 0, &g, &f) == RC_OK &&
	    g.token == (uint64_t)tokens[0] && g.slot == (tokens[0] >= 'a' ? 7 : 5) &&
	    s->backend->lock->renew(s, NEVER, &g, &f) == RC_OK &&
	    s->backend->lock->release(s, (struct outcome){0}, NEVER, &f) == RC_OK &&
	    s->backend->lock->release(s, (struct outcome){0}, NEVER, &f) == RC_OK;
}

/* In a process below the two: 0 if it is as the row says. */
static int
ask_row(const struct outer *outers, const struct row *r)
{
	static struct host host;
	static struct join_site where = {.site = {"file:///a", NULL, 0}};
	static struct join_inner nested;
	struct params p = {.site = {.backend = registry_named("file")},
	    .claim = {.kind = r->asked, .limit = r->limit}};
	struct store *store = NULL;
	char address[800], text[KEYS_MAX][2];
	struct fault f = {""};
	enum rc rc;
	bool good;

	look_host(&host);
	set_keys(&p, r->inner, text);
	snprintf(address, sizeof address, "%s %s", outers[0].door.address,
	    outers[1].door.address);
	setenv("DLOCK_KEEPER", address, 1);
	nested = (struct join_inner){.base.host = &host, .params = &p, .where = &where};
	rc = join_inner_open(&store, &nested, &f);
	if (rc != r->rc || (rc != RC_OK && !strstr(f.text, r->says)))
		return 2;
	if (rc != RC_OK || !*r->says)
		return store ? 3 : 0;
	good = store && is_joined(store, &p, &nested, r->says);
	if (store)
		store->backend->close(store);
	return good ? 0 : 4;
}

static void
what_is_a_part_of_a_hold_is_joined(void **state)
{
	static struct outer outers[2];
	char text[2][KEYS_MAX][2];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		pid_t asker;
		int status;

		for (int o = 0; o < 2; o++)
			open_row(&outers[o], &rows[i], o, text[o]);
		asker = fork();
		if (asker == 0)
			_exit(ask_row(outers, &rows[i]));
		status = serve(&outers[0], &outers[1], asker);
		if (status != 0)
			fail_msg("row %zu: %d", i, WEXITSTATUS(status));
		for (int o = 0; o < 2; o++)
			close(outers[o].door.listener);
	}
}

/*
 * Sixteen keys in the address of a keeper that cannot be asked, as it lives in another
 * network.
 */
static void
a_keeper_that_cannot_be_asked_is_known_by_any_of_its_keys(void **state)
{
	static struct outer outer;
	static struct join_site where;
	static struct join_inner nested;
	static struct host host;
	struct row r = {.outer = {"abcdefghijklmnop"}};
	struct params p = {.site = {.backend = registry_named("file")}};
	char text[KEYS_MAX][2], ours[KEYS_MAX][2], address[400], *net;
	struct store *store = NULL;
	struct fault f;

	(void)state;
	look_host(&host);
	open_row(&outer, &r, 0, text);
	close(outer.door.listener);
	snprintf(address, sizeof address, "%s", outer.door.address);
	net = strchr(address, '/');
	net[1] = net[1] == '9' ? '8' : '9';
	setenv("DLOCK_KEEPER", address, 1);
	nested = (struct join_inner){.base.host = &host, .params = &p, .where = &where};
	set_keys(&p, "xp", ours);
	assert_int_equal(join_inner_open(&store, &nested, &f), RC_PROTOCOL);
	assert_non_null(strstr(f.text, "has p and cannot be asked from here"));
	set_keys(&p, "xy", ours);
	assert_int_equal(join_inner_open(&store, &nested, &f), RC_OK);
	assert_null(store);
}

/* ---- long sites ---- */

static char long_url[URL_BYTES], long_value[SETTINGS_BYTES - sizeof "x=" + 1];
static const struct setting long_setting[] = {{"x", long_value}};

/*
 * In a process below: whoever names no site is told all of it.  It makes no sense to the
 * backend, which cannot say which locks these are: so nothing is joined.
 */
static int
ask_long(const struct outer *o)
{
	static struct join_site where;
	struct store *store = NULL;

	if (open_inner(o, "job", &store, &where) != RC_OK)
		return 3;
	return !store && is_told(&where.site, long_url, "x", long_value) ? 0 : 4;
}

static void
the_longest_site_is_told(void **state)
{
	static struct outer outer, other;
	pid_t asker;

	(void)state;
	memset(long_url, 'u', sizeof long_url - 1);
	memset(long_value, 'v', sizeof long_value - 1);
	open_outer(&outer, "job", long_url, long_setting, 1);
	open_outer(&other, "job", "file:///b", NULL, 0);
	asker = fork();
	if (asker == 0)
		_exit(ask_long(&outer));
	assert_int_equal(serve(&outer, &other, asker), 0);
}

/* ---- whose record it is ---- */

/* In a process below: whether a record with that door is that of a run around it. */
static enum record_kin
kin_below(const char *door, const char *own)
{
	char *argv[] = {"true", NULL};
	struct params p = {.command = {.argv = argv}};
	char record[RECORD_BYTES];
	int status;
	pid_t pid;

	record_write(record, &p, getpid(), door);
	pid = fork();
	if (pid == 0)
		_exit(record_kin(record, own));
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

/*
 * Host, pid and birth may be those of a process of another container, or of a run that gives its
 * lock back.
 */
static void
a_run_around_is_known_by_its_door(void **state)
{
	static struct outer o;
	struct join_address a;
	const char *text;
	char id[JOIN_ID_CHARS + 1];
	pid_t pid;
	int joined;

	(void)state;
	open_outer(&o, "job", "file:///a", NULL, 0);
	text = o.door.address;
	assert_true(join_address_next(&text, &a));
	append_text(id, id + sizeof id, a.name + strlen("dlock-"));
	assert_int_equal(kin_below(id, "ours"), KIN_RUN);
	assert_int_equal(kin_below(id, id), KIN_NONE);
	assert_int_equal(kin_below(next_door(), "ours"), KIN_NONE);
	assert_int_equal(kin_below(NULL, "ours"), KIN_RUN); /* of an earlier version */
	/* an accepted connection bears the name, too */
	joined = join_address_connect(&a, 0, &pid);
	assert_true(joined >= 0);
	join_outer_drain(&o.door);
	assert_int_equal(o.door.n, 1);
	assert_int_equal(kin_below(id, "ours"), KIN_NONE);
	close(joined);
}

/*
 * A run of today joins an outer run of 1.0, and releases its hold.  Where one of these has to
 * change, JOIN_VERSION does, and both versions are to be answered.
 */
static void
what_crosses_between_dlocks_is_laid_out_as_in_1_0(void **state)
{
	(void)state;
	assert_int_equal(JOIN_VERSION, 10);
	assert_int_equal(JOIN_HOLD, 1);
	assert_int_equal(JOIN_CHECK, 2);
	assert_int_equal(JOIN_RELEASE, 3);
	assert_int_equal(JOIN_NAME, 4);
	assert_int_equal(JOIN_CALL, 1);
	assert_int_equal(JOIN_ALIVE, 1);
	assert_int_equal(offsetof(struct join_ask, keep), 8);
	assert_int_equal(offsetof(struct join_ask, identity), 16);
	assert_int_equal(offsetof(struct join_ask, keys), 8768);
	assert_int_equal(sizeof(struct join_ask), 16976);
	assert_int_equal(sizeof(struct join_answer), 304);
	assert_int_equal(offsetof(struct join_answer, hold), 16);
	assert_int_equal(sizeof(struct join_part), 16);
	assert_int_equal(offsetof(struct join_name, keys), 400);
	assert_int_equal(sizeof(struct join_name), 8608);
	assert_int_equal(sizeof(struct join_outcome), 1808);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_crosses_between_dlocks_is_laid_out_as_in_1_0),
	    cmocka_unit_test(two_sites_do_not_mix),
	    cmocka_unit_test(the_longest_site_is_told),
	    cmocka_unit_test(what_is_a_part_of_a_hold_is_joined),
	    cmocka_unit_test(a_keeper_that_cannot_be_asked_is_known_by_any_of_its_keys),
	    cmocka_unit_test(a_run_around_is_known_by_its_door),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
