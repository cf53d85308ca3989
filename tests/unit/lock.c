/*
 * lock.c - Goal of these tests: who has broken a lock is named for that alone, with one key
 * and with several.
 */
#include "cmd/look.h"
#include "cmd/supervise/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct backend scripted_backend;
static enum rc answer;
static const char *breaker; /* NULL: not known */

static enum rc
scripted_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	(void)site, (void)f;
	*ret = calloc(1, sizeof **ret);
	assert_non_null(*ret);
	**ret = (struct store){&scripted_backend, host, "scripted", CAP_FAIR};
	return RC_OK;
}

static void
scripted_close(struct store *s)
{
	free(s);
}

static enum rc
scripted_identify(struct store *s, struct identity *id, struct fault *f)
{
	(void)s, (void)id;
	return fault_set(f, RC_CONFIG, "not told");
}

static enum rc
scripted_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	(void)s, (void)until, (void)f;
	*g = (struct grant){
	    .token = 7, .sent = instant_now(), .lease = claim->ttl, .anchor = -1};
	return RC_OK;
}

static enum rc
answered(struct host *host, struct fault *f)
{
	if (breaker)
		strcpy(host->breaker, breaker);
	return answer == RC_OK ? RC_OK : fault_set(f, answer, "it is gone");
}

static enum rc
scripted_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	(void)until;
	g->sent = instant_now();
	return answered(s->host, f);
}

static enum rc
scripted_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	(void)o, (void)until;
	return answered(s->host, f);
}

static const struct backend scripted_backend = {
    .name = "scripted",
    .open = scripted_open,
    .close = scripted_close,
    .identify = scripted_identify,
    .lock = &(const struct lock_ops){scripted_acquire, scripted_renew, scripted_release},
};

static void
a_breaker_is_not_named_for_what_comes_later(void **state)
{
	static struct join_site where;
	static struct host host;
	static struct lock l;

	(void)state;
	unsetenv("DLOCK_KEEPER");
	for (size_t n = 1; n <= 2; n++) {
		struct params p = {.keys = {"a", "b"},
		    .nkeys = n,
		    .site.backend = &scripted_backend,
		    .terms.ttl = 30 * NS_PER_S};
		instant until = instant_now() + 30 * NS_PER_S;
		struct fault f = {""};

		memset(&l, 0, sizeof l);
		look_host(&host);
		answer = RC_OK;
		breaker = NULL;
		lock_init(
		    &l, &p, &where, &host, "00112233445566778899aabbccddeeff", "{}");
		assert_int_equal(lock_open(&l, &f), RC_OK);
		assert_int_equal(lock_acquire(&l, until, &f), RC_OK);
		answer = RC_REVOKED;
		breaker = "{\"who\":\"carol\"}";
		assert_int_equal(lock_renew(&l, until, &f), RC_REVOKED);
		assert_non_null(strstr(f.text, "broken by carol"));
		answer = RC_LOST;
		breaker = NULL;
		assert_int_equal(lock_renew(&l, until, &f), RC_LOST);
		assert_null(strstr(f.text, "carol"));
		assert_non_null(strstr(f.text, "it is gone"));
		lock_close(&l);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_breaker_is_not_named_for_what_comes_later),
	};

	return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
