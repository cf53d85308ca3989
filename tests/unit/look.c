/*
 * look.c - Goal of these tests: a store is only looked at where it can be, entries are
 * handed out key by key, and a look ends when enough was seen.
 */
#include "cmd/look.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct store *opened;
static int closed;
static enum rc (*each)(struct store *, const struct look *, struct fault *);

static enum rc
stub_open(struct store **ret, struct host *h, const struct site *s, struct fault *f)
{
	(void)s, (void)f;
	opened->host = h;
	*ret = opened;
	return RC_OK;
}

static void
stub_close(struct store *s)
{
	(void)s;
	closed++;
}

static enum rc
stub_each(struct store *s, const struct look *l, struct fault *f)
{
	return each(s, l, f);
}

static const struct admin_ops admin = {.each = stub_each};
static const struct backend blind = {
    .name = "blind", .open = stub_open, .close = stub_close};
static const struct backend seeing = {
    .name = "seeing", .open = stub_open, .close = stub_close, .admin = &admin};
static const struct backend missing = {.name = "missing"};

static enum rc
open_on(struct looker *l, const struct backend *b, unsigned has, unsigned caps,
    struct fault *f)
{
	static struct store store;
	static struct params params;

	store = (struct store){.backend = b, .where = "there", .caps = has};
	opened = &store;
	params = (struct params){.cmd = CMD_STATUS, .site.backend = b};
	closed = 0;
	*f = (struct fault){""};
	return look_open(l, &params, caps, f);
}

static void
what_a_store_cannot_is_refused_before_it_is_asked(void **state)
{
	static const unsigned steering[] = {CAP_REVOKE, CAP_FORCE, CAP_FREEZE};
	struct looker l;
	struct fault f;

	(void)state;
	assert_int_equal(open_on(&l, &missing, 0, 0, &f), RC_CONFIG);
	assert_non_null(strstr(f.text, "without the missing backend"));
	assert_int_equal(open_on(&l, &blind, 0, 0, &f), RC_CONFIG);
	assert_non_null(strstr(f.text, "there cannot tell who holds a lock"));
	assert_int_equal(closed, 1);
	assert_int_equal(open_on(&l, &seeing, 0, 0, &f), RC_OK);
	look_close(&l);
	look_close(&l);
	assert_int_equal(closed, 1);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(
		    open_on(&l, &seeing, ~steering[i], steering[i], &f), RC_CONFIG);
		assert_non_null(strstr(f.text, "there cannot"));
		assert_int_equal(closed, 1);
		assert_int_equal(
		    open_on(&l, &seeing, steering[i], steering[i], &f), RC_OK);
		look_close(&l);
	}
}

static bool
tell(const struct look *l, const char *key, enum entry_kind kind)
{
	struct entry e = {.kind = kind, .key = key, .slot = -1, .count = 2};

	return l->see(l->ctx, &e, 5);
}

static enum rc
tell_three(struct store *s, const struct look *l, struct fault *f)
{
	char buffer[8] = "a"; /* only good during the call */

	(void)s, (void)f;
	assert_true(l->brief);
	if (!tell(l, buffer, ENTRY_HOLDER) || !tell(l, buffer, ENTRY_HOLDER))
		return RC_OK;
	strcpy(buffer, "b");
	if (!tell(l, buffer, ENTRY_HOLDER) || !tell(l, buffer, ENTRY_WAITING))
		return RC_OK;
	strcpy(buffer, "c");
	tell(l, buffer, ENTRY_FREEZE);
	strcpy(buffer, "x");
	return RC_OK;
}

struct seen {
	char text[100];
	size_t most;
};

static bool
note(void *ctx, const struct view *v)
{
	struct seen *s = ctx;
	size_t n = strlen(s->text);

	snprintf(s->text + n, sizeof s->text - n, "%s%zu+%d%s ", v->key, v->holders.n,
	    (int)v->waiters.all, v->is_frozen ? "f" : "");
	return --s->most > 0;
}

static void
entries_become_a_view_for_each_key(void **state)
{
	static const char *const expected[] = {"a2+0 ", "a2+0 b1+2 ", "a2+0 b1+2 c0+0f "};
	struct looker l;
	struct fault f;

	(void)state;
	each = tell_three;
	for (size_t most = 1; most <= 3; most++) {
		struct seen seen = {.most = most};

		assert_int_equal(open_on(&l, &seeing, 0, 0, &f), RC_OK);
		assert_int_equal(look_at_all(&l, note, &seen, NEVER, &f), RC_OK);
		assert_string_equal(seen.text, expected[most - 1]);
		look_close(&l);
	}
}

static enum rc
tell_a_key_that_is_too_long(struct store *s, const struct look *l, struct fault *f)
{
	char key[KEY_BYTES + 2];

	(void)s;
	memset(key, 'k', sizeof key);
	key[KEY_BYTES + 1] = '\0';
	tell(l, "a", ENTRY_HOLDER);
	tell(l, key, ENTRY_HOLDER);
	tell(l, "half", ENTRY_HOLDER); /* more of it would have come */
	return fault_set(f, RC_AGAIN, "gone");
}

static void
what_was_whole_before_a_failure_is_told(void **state)
{
	struct seen seen = {.most = 9};
	struct looker l;
	struct fault f;

	(void)state;
	each = tell_a_key_that_is_too_long;
	assert_int_equal(open_on(&l, &seeing, 0, 0, &f), RC_OK);
	assert_int_equal(look_at_all(&l, note, &seen, NEVER, &f), RC_AGAIN);
	assert_string_equal(seen.text, "a1+0 ");
	assert_string_equal(f.text, "gone");
	look_close(&l);
}

static int64_t given; /* how long an answer may take */

static enum rc
answer_soon(struct store *s, const struct look *l, struct fault *f)
{
	(void)s, (void)f;
	assert_int_equal(l->until, NEVER);
	given = look_answer_by(l) - instant_now();
	return RC_OK;
}

/* Whatever `until` is: a request may be made again and again, but not for ever. */
static void
an_answer_may_take_as_long_as_a_connection(void **state)
{
	static const struct setting settings[] = {
	    {"connect-timeout", "700ms"}, {"name", "x"}, {"connect-timeout", "2s"}};
	static const int64_t expected[] = {5000, 700, 700, 2000};
	struct view v = {0};
	struct looker l;
	struct params params;
	struct fault f;

	(void)state;
	each = answer_soon;
	for (size_t n = 0; n <= 3; n++) {
		assert_int_equal(open_on(&l, &seeing, 0, 0, &f), RC_OK);
		look_close(&l);
		params = *l.params;
		memcpy(params.site.settings, settings, sizeof settings);
		params.site.nsettings = n;
		assert_int_equal(look_open(&l, &params, 0, &f), RC_OK);
		assert_int_equal(look_at(&l, "k", true, &v, NEVER, &f), RC_OK);
		assert_true(given <= expected[n] * NS_PER_MS);
		assert_true(given > (expected[n] - 500) * NS_PER_MS);
		look_close(&l);
	}
	view_free(&v);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_a_store_cannot_is_refused_before_it_is_asked),
	    cmocka_unit_test(entries_become_a_view_for_each_key),
	    cmocka_unit_test(what_was_whole_before_a_failure_is_told),
	    cmocka_unit_test(an_answer_may_take_as_long_as_a_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
