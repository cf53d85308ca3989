/*
 * held.c - Goal of these tests: who holds a lock is said in the same words, whoever asks.
 */
#include "cmd/held.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S NS_PER_S
#define NOW INT64_C(1700000000000000)
#define ALICE "alice (pid 7 on h, running make) \"why\""

static const char record[] =
    "{\"who\":\"alice\",\"pid\":7,\"host\":\"h\",\"command\":\"make\",\"why\":\"why\"}";

/* What a run and `dlock wait` may find: n holders of a kind, and one who has frozen it. */
struct found {
	enum lock_kind kind;
	unsigned holders, limit;
	bool frozen;
};

static void
of_look(struct held *h, const struct found *f)
{
	struct view v = {0};

	view_begin(&v, "k");
	for (unsigned i = 0; i < f->holders; i++) {
		struct entry e = {.kind = ENTRY_HOLDER,
		    .lock = f->kind,
		    .limit = f->limit,
		    .token = i + 1,
		    .slot = -1,
		    .record = record,
		    .since = NOW - 3000000,
		    .until = EPOCH_NONE};

		view_add(&v, &e, NOW);
	}
	if (f->frozen) {
		struct entry e = {.kind = ENTRY_FREEZE,
		    .record = "{\"who\":\"bob\",\"for_ms\":-1}",
		    .since = NOW - 3000000,
		    .until = EPOCH_NONE};

		view_add(&v, &e, NOW);
	}
	held_of_view(h, &v);
	view_free(&v);
}

static void
of_backend(struct held *h, const struct found *f)
{
	struct holding x = {.kind = f->kind,
	    .holders = f->holders,
	    .limit = f->limit,
	    .frozen = f->frozen,
	    .held = 3 * S};

	snprintf(x.record, sizeof x.record, "%s",
	    f->holders ? record : "{\"who\":\"bob\",\"for_ms\":-1}");
	held_of_holding(h, &x);
}

static void
run_and_look_say_the_same(void **state)
{
	static const struct {
		struct found found;
		const char *says;
	} rows[] = {
	    {{KIND_EXCLUSIVE, 1, 0, false}, " is held by " ALICE " for 3s"},
	    {{KIND_WRITER, 1, 0, false}, " is held by " ALICE " for 3s"},
	    {{KIND_EXCLUSIVE, 2, 0, false},
		" is held by 2 holders, first " ALICE " for 3s"},
	    {{KIND_SHARED, 1, 0, false}, " is held by a reader, " ALICE " for 3s"},
	    {{KIND_SHARED, 3, 0, false}, " is held by 3 readers, first " ALICE " for 3s"},
	    {{KIND_LIMIT, 1, 1, false}, ": the only slot is taken, by " ALICE " for 3s"},
	    {{KIND_LIMIT, 2, 2, false}, ": both slots are taken, first " ALICE " for 3s"},
	    {{KIND_LIMIT, 1, 4, false}, ": 1 of 4 slots is taken, by " ALICE " for 3s"},
	    {{KIND_LIMIT, 2, 4, false},
		": 2 of 4 slots are taken, first " ALICE " for 3s"},
	    {{KIND_LIMIT, 4, 4, false},
		": all 4 slots are taken, first " ALICE " for 3s"},
	    {{KIND_LIMIT, 2, 0, false}, ": 2 slots are taken, first " ALICE " for 3s"},
	    {{KIND_EXCLUSIVE, 0, 0, true}, " is frozen by bob for 3s, until dlock thaw"},
	};
	char words[HELD_BYTES];
	struct held h;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		of_look(&h, &rows[i].found);
		assert_string_equal(held_says(&h, false, words), rows[i].says);
		of_backend(&h, &rows[i].found);
		assert_string_equal(held_says(&h, false, words), rows[i].says);
	}
}

/* One holder of a look at NOW, with this record, whose lease ends so much later. */
static void
view_of(struct view *v, const char *text, int64_t left)
{
	const struct entry e = {.kind = ENTRY_HOLDER,
	    .token = 1,
	    .slot = -1,
	    .record = text,
	    .since = NOW - 3000000,
	    .until = left < 0 ? EPOCH_NONE : NOW + left / 1000};

	view_begin(v, "k");
	view_add(v, &e, NOW);
}

/* A lease that ends in 25 s is no lock that is free in 25 s. */
static void
a_lease_is_told_by_its_renewal(void **state)
{
	static const struct {
		const char *ttl;
		int64_t left;
		const char *says;
	} rows[] = {
	    {"30000", 30 * S, "renewed 0ms ago"},
	    {"30000", 31 * S, "renewed 0ms ago"}, /* a server may round */
	    {"30000", 26 * S, "renewed 4s ago"},
	    {"30000", 15 * S + 1000000, "renewed 14s ago"},
	    {"30000", 15 * S, "not renewed for 15s, free in 15s at the latest"},
	    {"30000", 9 * S, "not renewed for 21s, free in 9s at the latest"},
	    {"30000", 0, "not renewed for 30s, free in 0ms at the latest"},
	    {"3000", 2 * S, "renewed 1s ago"},
	    {"30000", 40 * S,
		"lease ends in 40s"}, /* it has another one than it has asked for */
	    {"30000", -1, ""},
	    /* an older dlock; what nobody could mean */
	    {"0", 9 * S, "lease ends in 9s"},
	    {"-1", 9 * S, "lease ends in 9s"},
	    {"9223372036854775807", 9 * S, "lease ends in 9s"},
	    {"\"30000\"", 9 * S, "lease ends in 9s"},
	};
	struct view v = {0};
	char text[100];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(text, sizeof text, "{\"who\":\"a\",\"ttl\":%s}", rows[i].ttl);
		view_of(&v, text, rows[i].left);
		v.holders.list[0].since = NOW - 60000000; /* not by its grant */
		assert_string_equal(held_lease(&v, view_holder(&v)).text, rows[i].says);
	}
	view_free(&v);
}

static void
another_program_has_no_such_lease(void **state)
{
	const struct foreign other = {.what = "a lock"};
	const struct entry e = {.kind = ENTRY_HOLDER,
	    .foreign = &other,
	    .record = "{\"ttl\":30000,\"keep_ms\":60000}",
	    .slot = -1,
	    .since = NOW,
	    .until = NOW + 9000000};
	struct view v = {0};
	char words[HELD_BYTES];
	struct held h;

	(void)state;
	view_begin(&v, "k");
	view_add(&v, &e, NOW);
	assert_string_equal(held_lease(&v, view_holder(&v)).text, "lease ends in 9s");
	held_of_view(&h, &v);
	assert_string_equal(held_words(&h, words), "held by a lock for 0ms");
	view_free(&v);
}

/* Run and look say it alike, of one holder alone. */
static void
what_it_has_said_of_its_end(void **state)
{
	static const struct {
		const char *said, *says;
	} rows[] = {
	    {"\"keep_ms\":63000", ", kept until 22:14:20 (--min-hold)"},
	    {"\"end_ms\":63000", ", ends at 22:14:20 at the latest"},
	    {"\"keep_ms\":63000,\"end_ms\":123000",
		", kept until 22:14:20 (--min-hold), ends at 22:15:20 at the latest"},
	    {"\"end_ms\":172803000", ", ends at 2023-11-16 22:13:20 UTC at the latest"},
	    {"\"keep_ms\":3000,\"end_ms\":2000", ""}, /* over */
	    {"\"keep_ms\":9223372036854775807,\"end_ms\":-1", ""},
	    {"\"keep_ms\":\"x\",\"end_ms\":[]", ""},
	};
	struct view v = {0};
	char text[200], words[HELD_BYTES], ahead[HELD_AHEAD];
	struct holding x = {.kind = KIND_EXCLUSIVE, .holders = 1, .held = 3 * S};
	struct held h;

	(void)state;
	setenv("TZ", "UTC", 1);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(text, sizeof text, "{\"who\":\"a\",%s}", rows[i].said);
		view_of(&v, text, -1);
		held_of_view(&h, &v);
		assert_string_equal(held_ahead(&h, ahead), rows[i].says);
		snprintf(text, sizeof text, "held by a for 3s%s", rows[i].says);
		assert_string_equal(held_words(&h, words), text);
		/* by our own clock */
		snprintf(x.record, sizeof x.record, "{\"who\":\"a\",%s}", rows[i].said);
		held_of_holding(&h, &x);
		h.kept -= h.kept < 0 ? 0 : h.now - NOW;
		h.ends -= h.ends < 0 ? 0 : h.now - NOW;
		h.now = NOW;
		assert_string_equal(held_ahead(&h, ahead), rows[i].says);
		x.holders = 2;
		held_of_holding(&h, &x);
		assert_string_equal(held_ahead(&h, ahead), "");
		x.holders = 1;
	}
	view_free(&v);
}

/* What a look alone knows, or a run alone does not. */
static void
what_is_not_known_is_left_out(void **state)
{
	const struct found frozen = {KIND_EXCLUSIVE, 1, 0, true};
	struct holding nothing = {.held = -1};
	char words[HELD_BYTES];
	struct held h;

	(void)state;
	of_look(&h, &frozen);
	assert_string_equal(held_words(&h, words),
	    "held by " ALICE " for 3s (and the key is frozen until dlock thaw)");
	of_backend(&h, &frozen);
	assert_string_equal(held_says(&h, true, words),
	    " is still held by " ALICE " for 3s (and the key is frozen)");
	held_of_holding(&h, &nothing);
	assert_string_equal(held_words(&h, words), "held by somebody");
	nothing.kind = KIND_SHARED;
	held_of_holding(&h, &nothing);
	assert_string_equal(held_words(&h, words), "held by readers, first somebody");
	nothing.kind = KIND_LIMIT;
	nothing.limit = 4;
	held_of_holding(&h, &nothing);
	assert_string_equal(held_words(&h, words), "held by somebody");
	nothing = (struct holding){.held = -1, .frozen = true};
	held_of_holding(&h, &nothing);
	assert_string_equal(held_says(&h, true, words), " is still frozen by somebody");
}

static void
who_would_fit_is_told_why_not(void **state)
{
	const struct found readers = {KIND_SHARED, 2, 0, false},
			   slots = {KIND_LIMIT, 1, 2, false},
			   full = {KIND_LIMIT, 2, 2, false},
			   frozen = {KIND_SHARED, 2, 0, true};
	const struct params_claim reader = {.kind = KIND_SHARED},
				  limited = {.kind = KIND_LIMIT, .limit = 2};
	char words[HELD_BYTES];
	struct held h;

	(void)state;
	of_look(&h, &readers);
	held_ask(&h, &limited);
	assert_null(strstr(held_words(&h, words), "waits"));
	held_ask(&h, &reader);
	assert_string_equal(held_words(&h, words),
	    "held by 2 readers, first " ALICE " for 3s (and another run waits already)");
	of_backend(&h, &slots);
	held_ask(&h, &limited);
	assert_string_equal(held_says(&h, true, words),
	    ": 1 of 2 slots is still taken, by " ALICE
	    " for 3s (and another run waits already)");
	of_look(&h, &full);
	held_ask(&h, &limited);
	assert_null(strstr(held_words(&h, words), "waits"));
	of_look(&h, &frozen);
	held_ask(&h, &reader);
	assert_null(strstr(held_words(&h, words), "waits"));
}

/* A text of others may be as long as it likes. */
static void
longest_names_fit(void **state)
{
	struct holding x = {.kind = KIND_LIMIT, .holders = 2, .limit = 2, .held = 3 * S};
	char words[HELD_BYTES], many[240];
	struct held h;

	(void)state;
	memset(many, 'x', sizeof many - 1);
	many[sizeof many - 1] = '\0';
	snprintf(x.record, sizeof x.record,
	    "{\"who\":\"%s\",\"pid\":7,\"host\":\"%.200s\",\"command\":\"%.200s\",\"why\":\"%s\"}",
	    many, many, many, many);
	held_of_holding(&h, &x);
	held_says(&h, true, words);
	assert_non_null(strstr(words, "\" for 3s"));
	assert_in_range(strlen(words), 500, HELD_BYTES - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(run_and_look_say_the_same),
	    cmocka_unit_test(a_lease_is_told_by_its_renewal),
	    cmocka_unit_test(another_program_has_no_such_lease),
	    cmocka_unit_test(what_it_has_said_of_its_end),
	    cmocka_unit_test(what_is_not_known_is_left_out),
	    cmocka_unit_test(who_would_fit_is_told_why_not),
	    cmocka_unit_test(longest_names_fit),
	};

	return cmocka_run_group_tests_name("held", tests, NULL, NULL);
}
