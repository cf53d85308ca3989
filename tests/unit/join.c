/* join.c - Goal of these tests: what an enclosing dlock tells of its site stays whole, whoever else is asked. */
#include "cmd/host.h"
#include "cmd/supervise/join.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* An enclosing dlock; the offer is what it holds. */
struct outer {
	struct join_server server;
	struct plan plan;
	struct site site;
	struct join_offer offer;
	struct join_part parts[KEYS_MAX];
};

static void
open_outer(struct outer *o, const char *key, const char *url, const struct setting *settings, size_t n)
{
	*o = (struct outer){
	    .plan = {.keys = {key}, .nkeys = 1, .site = {.backend = backend_named("file")}},
	    .site = {url, settings, n},
	    .offer = {.ours = true, .sent = instant_now(), .lease = LEASE_FOREVER},
	};
	o->offer.parts = o->parts;
	join_listen(&o->server, &o->plan);
	assert_true(o->server.listener >= 0);
}

/* Serves both until the process that asks has ended; its status. */
static int
serve(struct outer *a, struct outer *b, pid_t asker)
{
	static struct pollfd sets[2][JOINS_MAX + 1];
	struct outer *both[] = {a, b};
	int64_t keep = 0;
	int status;

	while (waitpid(asker, &status, WNOHANG) == 0)
		for (int i = 0; i < 2; i++) {
			poll(sets[i], join_poll(&both[i]->server, sets[i]), 5);
			join_serve(&both[i]->server, sets[i], &both[i]->plan, &both[i]->site, &both[i]->offer, &keep);
		}
	return status;
}

/* A nested run that names no server, and a setting of its own, below the dlock at `address`. */
static enum rc
open_inner(const char *address, const char *key, struct store **store, struct site *site, struct joined *told)
{
	static const struct setting own[] = {{"own", "1"}};
	static struct host host;
	struct plan p = {.keys = {key}, .nkeys = 1, .site = {.backend = backend_named("file"), .inherits = true}};
	instant keep_until = 0;
	struct fault f;

	host_init(&host);
	setenv("DLOCK_KEEPER", address, 1);
	*store = NULL;
	*site = (struct site){NULL, own, 1};
	return join_open(store, &host, &p, site, told, &keep_until, &f);
}

static bool
is_told(const struct site *s, const char *url, const char *name, const char *value)
{
	return s->url && strcmp(s->url, url) == 0 && s->nsettings == 2 && strcmp(s->settings[0].name, name) == 0 &&
	    strcmp(s->settings[0].value, value) == 0 && strcmp(s->settings[1].name, "own") == 0;
}

/* In a process below the two: both are asked for the site of another key, one after the other. */
static int
ask_both(const struct outer *a, const struct outer *b)
{
	static struct joined told[2];
	struct site site[2];
	struct store *store[2];

	if (open_inner(a->server.address, "other", &store[0], &site[0], &told[0]) != RC_OK ||
	    open_inner(b->server.address, "other", &store[1], &site[1], &told[1]) != RC_OK)
		return 2;
	if (store[0] || store[1]) /* neither has that key */
		return 3;
	return is_told(&site[0], "file:///a", "x", "1") && is_told(&site[1], "file:///b", "y", "2") ? 0 : 4;
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_sites_do_not_mix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
