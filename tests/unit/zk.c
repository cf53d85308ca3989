/*
 * zk.c - Goal of these tests: the pure parts of the zk backend: who stands
 * before whom in a lock directory, what stands in a node, and what a URL means.
 */
#include "backends/zk/data.h"
#include "backends/zk/ensemble.h"
#include "backends/zk/freeze.h"
#include "backends/zk/node.h"
#include "backends/zk/queue.h"
#include "backends/zk/session.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OURS "_c_11111111-2222-3333-4444-555555555555-lock-0000000007"
#define UUID "_c_99999999-2222-3333-4444-555555555555"

/* ---- the queue ---- */

/* Names, the last one NULL. */
static struct place
look(const char *own, const char *const *names)
{
	const char *all[64];
	struct place place;
	size_t n = 0;

	for (; names[n]; n++)
		all[n] = names[n];
	queue_look(&place, &(struct queue){layouts, all, n}, own);
	return place;
}

static enum lock_kind
kind_of(const char *name)
{
	return layout_read(layouts, name).kind;
}

static void
assert_name(const char *got, const char *wanted)
{
	if (!wanted)
		assert_null(got);
	else if (!got)
		fail_msg("nobody, not %s", wanted);
	else
		assert_string_equal(got, wanted);
}

static void
places(void **state)
{
	static const struct {
		const char *names[6];
		bool found;
		size_t position;
		const char *ahead, *first;
	} rows[] = {
	    {{NULL}, false, 1, NULL, NULL},
	    {{OURS}, true, 0, NULL, OURS},
	    {{UUID "-lock-0000000008", OURS}, true, 0, NULL, OURS},
	    {{UUID "-lock-0000000006", OURS}, true, 1, UUID "-lock-0000000006",
		UUID "-lock-0000000006"},
	    /* the uuid counts nothing, and the order of the names neither */
	    {{"_c_z-lock-0000000003", OURS, "_c_a-lock-0000000006",
		 "_c_b-lock-0000000005", "_c_0-lock-0000000010"},
		true, 3, "_c_a-lock-0000000006", "_c_z-lock-0000000003"},
	    {{"_c_0-lock-0000000010", "_c_b-lock-0000000005", "_c_a-lock-0000000006",
		 OURS, "_c_z-lock-0000000003"},
		true, 3, "_c_a-lock-0000000006", "_c_z-lock-0000000003"},
	    /* ours is not among them: then its place is nobody's */
	    {{"_c_a-lock-0000000006"}, false, 1, "_c_a-lock-0000000006",
		"_c_a-lock-0000000006"},
	    {{UUID "-lock-0000000007"}, false, 0, NULL, UUID "-lock-0000000007"},
	    /* other makers: the last lock- counts; who has no number has no place */
	    {{"x-lock-0000000006", OURS}, true, 1, "x-lock-0000000006",
		"x-lock-0000000006"},
	    {{"x-lock-9-lock-0000000006", OURS}, true, 1, "x-lock-9-lock-0000000006",
		"x-lock-9-lock-0000000006"},
	    {{"x-lock-0-lock-0000000008", OURS}, true, 0, NULL, OURS},
	    {{"block-0000000006", OURS}, true, 1, "block-0000000006", "block-0000000006"},
	    {{"x", "write-0000000001", "x-0000000001", "LOCK-0000000001", "~"}, false, 0,
		NULL, "LOCK-0000000001"},
	    {{"lock-x", OURS, "\xff", "x-lock-0000000008"}, true, 0, NULL, OURS},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct place place = look(OURS, rows[i].names);

		if (place.found != rows[i].found || place.position != rows[i].position)
			fail_msg("row %zu: found %d, position %zu", i, place.found,
			    place.position);
		assert_name(place.ahead, rows[i].ahead);
		assert_name(place.holders.first, rows[i].first);
		assert_null(place.foreign);
		assert_null(place.exhausted);
	}
}

static void
strangers_are_seen_wherever_they_stand(void **state)
{
	static const char *const strangers[] = {
	    "0123456789abcdef0123456789abcdef__lock__0000000001",
	    "0123456789abcdef0123456789abcdef__rlock__0000000001",
	    UUID "-__READ__0000000001", UUID "-__WRIT__0000000001",
	    "zzz__lock__9999999999", "x-00001000a1b2c3d4-0000000001",
	    "x-72057594037927936-0000000001"};

	(void)state;
	for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
		const char *const first[] = {
		    strangers[i], OURS, UUID "-lock-0000000008", NULL};
		const char *const last[] = {
		    UUID "-lock-0000000001", OURS, strangers[i], NULL};

		assert_name(look(OURS, first).foreign, strangers[i]);
		assert_name(look(OURS, last).foreign, strangers[i]);
	}
}

static void
what_no_layout_knows_is_strange(void **state)
{
	static const char *const names[] = {"x-0000000001", "x--0000000001",
	    "x-lock-x-0000000001", "ex0000000001", "sh0000000001", "read-0000000001",
	    "write-0000000001", "LOCK-EXCLUSIVE-0000000001", "0000000006", "!", "-",
	    "lock", "lock-", "lock-lock-", "lock-x", "readme", "lock-00000000070",
	    "lock-000000000", "x-lock-0-lock-9", "web", "permit-0000000001",
	    "0123456789abcdef0123456789abcdef"};
	static const char *const known[] = {OURS, "x-lock-0000000006", "locks",
	    "block-0000000006", UUID "-lock--2147483648",
	    "0123456789abcdef0123456789abcdef__lock__0000000001", "lock-0000000006"};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct place p = look(OURS, (const char *const[]){names[i], OURS, NULL});

		if (!p.strange || p.foreign || p.position > 0 ||
		    !layout_read(layouts, names[i]).blind)
			fail_msg("%s", names[i]);
	}
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (look(OURS, (const char *const[]){known[i], OURS, NULL}).strange)
			fail_msg("%s", known[i]);
}

/* ---- layouts ---- */

#define DLOCKS "0123456789abd123456789abcdef0123"
#define OTHERS "0123456789ab4123456789abcdef0123"

static const struct layout *
layout(const char *name)
{
	const struct layout *l = layout_named(name);

	assert_non_null(l);
	return l;
}

static const struct {
	const char *layout, *name;
	enum child_kind what;
	enum lock_kind kind;
	const char *rank;
} layout_names[] = {
    {"rw-seq", "ci-W-0000000001", CHILD_OTHERS, KIND_EXCLUSIVE, "0000000001"},
    {"rw-seq", "ci-R-0000000001", CHILD_OTHERS, KIND_SHARED, "0000000001"},
    {"rw-seq", "a-W-1-R-0000000002", CHILD_OTHERS, KIND_SHARED, "0000000002"},
    {"rw-seq", "a-R-0000000009-W-0000000002", CHILD_OTHERS, KIND_EXCLUSIVE, "0000000002"},
    {"rw-seq", "lock-W-0000000002", CHILD_OTHERS, KIND_EXCLUSIVE, "0000000002"},
    {"rw-seq", "ci-W--2147483648", CHILD_OTHERS, KIND_EXCLUSIVE, "-2147483648"},
    {"rw-seq", "ci." DLOCKS "-R-0000000003", CHILD_DLOCKS, KIND_SHARED, "0000000003"},
    {"rw-seq", "ci." OTHERS "-R-0000000003", CHILD_OTHERS, KIND_SHARED, "0000000003"},
    {"rw-seq", DLOCKS "-R-0000000003", CHILD_OTHERS, KIND_SHARED, "0000000003"},
    {"rw-seq", "-R-0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"rw-seq", "ci-X-0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"rw-seq", "ci-R-000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"rw-seq", "ci-R-00000000011", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"rw-seq", "locks", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", OTHERS "__lock__0000000001", CHILD_OTHERS, KIND_EXCLUSIVE, "0000000001"},
    {"kazoo", OTHERS "__rlock__0000000001", CHILD_OTHERS, KIND_SHARED, "0000000001"},
    {"kazoo", DLOCKS "__rlock__0000000001", CHILD_DLOCKS, KIND_SHARED, "0000000001"},
    {"kazoo", DLOCKS "__lock__0000000001", CHILD_DLOCKS, KIND_EXCLUSIVE, "0000000001"},
    {"kazoo", "x" DLOCKS "__lock__0000000001", CHILD_OTHERS, KIND_EXCLUSIVE,
	"0000000001"},
    {"kazoo", "__lock__-2147483648", CHILD_OTHERS, KIND_EXCLUSIVE, "-2147483648"},
    {"kazoo", OTHERS, CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", DLOCKS, CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", OTHERS "-slot-7", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", DLOCKS "-slot-", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", DLOCKS "-slot--7", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", DLOCKS "-slot-7x", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", DLOCKS "-slot-0000007", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", OTHERS "__lock__", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"kazoo", OTHERS "__lock__x0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"menagerie", "lock-0000000001", CHILD_OTHERS, KIND_EXCLUSIVE, "0000000001"},
    {"menagerie", "lock-ci-1-12-0000000001", CHILD_OTHERS, KIND_EXCLUSIVE, "0000000001"},
    {"menagerie", "readLock-0000000001", CHILD_OTHERS, KIND_SHARED, "0000000001"},
    {"menagerie", "writeLock-0000000001", CHILD_OTHERS, KIND_WRITER, "0000000001"},
    {"menagerie", "lock-ci." DLOCKS "-1152921504606846976-0000000001", CHILD_DLOCKS,
	KIND_EXCLUSIVE, "0000000001"},
    {"menagerie", "readLock-ci." DLOCKS "-0000000001", CHILD_DLOCKS, KIND_SHARED,
	"0000000001"},
    {"recipes", "x-0100a1b2c3d4e5f6-0000000001", CHILD_OTHERS, KIND_EXCLUSIVE,
	"0000000001"},
    {"recipes", "x-72234567890123456-0000000001", CHILD_OTHERS, KIND_EXCLUSIVE,
	"0000000001"},
    {"recipes", "x--72234567890123456-0000000001", CHILD_OTHERS, KIND_EXCLUSIVE,
	"0000000001"},
    {"recipes", "x--0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"recipes", "x-" DLOCKS "-0000000001", CHILD_DLOCKS, KIND_EXCLUSIVE, "0000000001"},
    {"recipes", "ex0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"menagerie", "permit-0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"menagerie", "locks", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"menagerie", "lock0000000001", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
    {"plain", "x", CHILD_FOREIGN, KIND_EXCLUSIVE, NULL},
};

static void
names_are_read_as_their_layout_has_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof layout_names / sizeof *layout_names; i++) {
		struct child c = layout_read(
		    layout(layout_names[i].layout), layout_names[i].name);

		if (c.what != layout_names[i].what || c.kind != layout_names[i].kind ||
		    c.blind != (layout_names[i].rank == NULL))
			fail_msg("row %zu: what %d, kind %d", i, c.what, c.kind);
		assert_string_equal(c.rank,
		    layout_names[i].rank ? layout_names[i].rank : layout_names[i].name);
		assert_int_equal(c.owner != NULL, c.what == CHILD_DLOCKS);
		if (c.owner)
			assert_true(
			    child_has_owner(&c, "0123456789abf123456789abcdef0123"));
		assert_false(child_has_owner(&c, "0123456789abf123456789abcdef0124"));
	}
}

/* What each layout names, it reads again; no other one takes it for its own. */
static void
own_names_are_nobodys_else(void **state)
{
	static const enum lock_kind kinds[] = {KIND_EXCLUSIVE, KIND_WRITER, KIND_SHARED};

	(void)state;
	for (const struct layout *l = layouts; l->name; l++)
		for (size_t i = 0; i < 3 && !l->single; i++) {
			struct claim claim = {.owner = "fedcba9876543210fedcba9876543210",
			    .kind = kinds[i]};
			char name[PREFIX_BYTES + 10];
			struct child c;

			if (kinds[i] == KIND_SHARED && !(l->caps & CAP_SHARED))
				continue;
			layout_name(name, l, &claim);
			strcat(name, "0000000005");
			c = layout_read(l, name);
			assert_int_equal(c.what, CHILD_DLOCKS);
			assert_true(child_has_owner(&c, claim.owner));
			assert_int_equal(c.kind == KIND_SHARED, kinds[i] == KIND_SHARED);
			assert_ptr_equal(layout_of(name, &c), l);
			for (const struct layout *m = layouts; m->name; m++)
				assert_int_equal(layout_read(m, name).blind, m != l);
		}
}

/* Whose semaphore it is that is refused. */
static void
semaphores_of_others_are_known(void **state)
{
	struct child c;

	(void)state;
	assert_string_equal(layout_semaphore(OTHERS), "kazoo");
	assert_string_equal(layout_semaphore(DLOCKS), "kazoo");
	assert_string_equal(layout_semaphore("permit-0000000001"), "menagerie");
	assert_null(layout_semaphore("permit-"));
	assert_null(layout_semaphore(OTHERS "0"));
	assert_null(layout_semaphore(OTHERS "__lock__0000000001"));
	assert_null(layout_of(OTHERS, &c));
	for (const struct layout *l = layouts; l->name; l++)
		assert_true(layout_read(l, OTHERS).blind);
}

static void
numbers_are_read_as_python_does(void **state)
{
	static const struct {
		const char *text;
		long number; /* -1: it is none */
	} cases[] = {{"2", 2}, {" 17\r\n", 17}, {"0", 0}, {"+3", 3}, {"", -1}, {"2x", -1},
	    {"-1", -1}, {"2 3", -1}, {"{\"forced\":7}", -1},
	    {"99999999999999999999999", -1}};
	long number;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool is_one = data_is_number(cases[i].text, &number);

		assert_int_equal(is_one ? number : -1, cases[i].number);
	}
}

static void
only_a_later_dlock_of_another_layout_is_passed(void **state)
{
	static const struct {
		const char *other;
		bool passed;
	} rows[] = {
	    {DLOCKS "__lock__0000000008", true},
	    {DLOCKS "__lock__0000000006", false},
	    {OTHERS "__lock__0000000008", false},
	    {"ci." DLOCKS "-W-0000000008", true},
	    {"ci." OTHERS "-W-0000000008", false},
	    {"lock-ci." DLOCKS "-1152921504606846976-0000000008", true},
	    {"lock-ci-12-0000000008", false},
	    {"readLock-0000000008", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct place p = look(
		    OURS, (const char *const[]){rows[i].other, OURS, NULL});

		assert_name(p.foreign, rows[i].passed ? NULL : rows[i].other);
		if (rows[i].passed)
			assert_int_equal(p.position, 0);
	}
}

static void
each_layout_has_its_own_names_of_a_freeze(void **state)
{
	char name[FREEZE_BYTES], form[FORM_BYTES];

	(void)state;
	for (const struct layout *l = layouts; l->name; l++) {
		int n = 0;

		if (!(l->caps & CAP_FREEZE))
			continue;
		freeze_name(name, l, 5 * NS_PER_S);
		for (; freeze_form(form, name, n); n++) {
			const char *part = strrchr(form, '/') + 1;

			assert_int_equal(layout_freeze(part).length, 5 * NS_PER_S);
			assert_true(freeze_is(part, name));
			for (const struct layout *m = layouts; m->name; m++)
				assert_int_equal(layout_read(m, part).what, CHILD_FREEZE);
		}
		assert_int_equal(n, l->freezes[1].head ? 2 : 1);
	}
	assert_false(freeze_is("lock-freeze-0123456789abcdef-inf-0000000000",
	    "lock-freeze-0123456789abcdee-inf-0000000000"));
	assert_int_equal(layout_freeze("lock-freeze-12-0000000001").length, 0);
}

static void
worn_numbers_are_seen(void **state)
{
	static const char *const others[] = {
	    "-0000000001", "a-b", "--1", "x--2147483648", "lock-", "lock--", "lock--x"};

	(void)state;
	assert_name(
	    look(OURS, (const char *const[]){UUID "-lock--2147483648", OURS, NULL})
		.exhausted,
	    UUID "-lock--2147483648");
	assert_name(
	    look(OURS, (const char *const[]){OURS, "x-lock--000000001", NULL}).exhausted,
	    "x-lock--000000001");
	assert_name(
	    look("a-lock--2147483648",
		(const char *const[]){"b-lock-0000000007", "a-lock--2147483648", NULL})
		.exhausted,
	    "a-lock--2147483648");
	assert_null(look(OURS, (const char *const[]){OURS, UUID "-lock-2147483646", NULL})
			.exhausted);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_null(
		    look(OURS, (const char *const[]){others[i], OURS, NULL}).exhausted);
	/* 3.8's counter stops there: many have this number, in no order */
	assert_name(
	    look("a-lock-2147483647",
		(const char *const[]){"a-lock-2147483647", "b-lock-2147483647", NULL})
		.exhausted,
	    "a-lock-2147483647");
	assert_name(
	    look("a-lock-2147483647", (const char *const[]){"a-lock-2147483647", NULL})
		.exhausted,
	    "a-lock-2147483647");
	assert_null(
	    look("a-lock-2147483646", (const char *const[]){"a-lock-2147483646", NULL})
		.exhausted);
}

/*
 * However the names are shuffled, each sees as many before it as there are, and exactly
 * one sees nobody.
 */
static void
all_agree_on_one_order(void **state)
{
	enum { MANY = 40 };
	char names[MANY][80];
	const char *list[MANY];
	bool taken[MANY];

	(void)state;
	srand(7);
	for (int round = 0; round < 300; round++) {
		memset(taken, 0, sizeof taken);
		/* also equal numbers, and names of others */
		for (int i = 0; i < MANY; i++) {
			snprintf(names[i], sizeof names[i],
			    rand() % 4 ? "_c_%d-%d-lock-%010d" : "%d-%d-%d", i, rand(),
			    rand() % 60);
			list[i] = names[i];
		}
		for (int i = 0; i < MANY; i++) {
			int j = rand() % MANY;
			const char *swap = list[i];

			list[i] = list[j];
			list[j] = swap;
		}
		for (int i = 0; i < MANY; i++) {
			struct place place, ahead;

			queue_look(
			    &place, &(struct queue){layouts, list, MANY}, names[i]);
			assert_true(place.found && place.position < MANY &&
			    !taken[place.position]);
			taken[place.position] = true;
			assert_int_equal(place.position == 0, place.ahead == NULL);
			assert_int_equal(place.position == 0,
			    strcmp(place.holders.first, names[i]) == 0);
			if (place.ahead) {
				queue_look(&ahead, &(struct queue){layouts, list, MANY},
				    place.ahead);
				assert_int_equal(ahead.position, place.position - 1);
			}
		}
	}
}

/* ---- kinds ---- */

#define U "_c_11111111-2222-d333-4444-555555555555-"

static void
who_holds_together(void **state)
{
	static const struct {
		const char *names[7]; /* ours first */
		size_t position, holders;
		enum awaits awaits;
		const char *ahead;
	} rows[] = {
	    {{U "__READ__0000000003", U "__READ__0000000001"}, 0, 2, AWAITS_END, NULL},
	    {{U "__READ__0000000009", U "__READ__0000000001", U "__WRIT__0000000002",
		 U "__READ__0000000003", U "lock-0000000004"},
		4, 1, AWAITS_END, U "lock-0000000004"},
	    {{U "lock-0000000009", U "__READ__0000000001", U "__READ__0000000002"}, 1, 2,
		AWAITS_END, U "__READ__0000000002"},
	    {{U "__WRIT__0000000009", U "__READ__0000000010"}, 0, 1, AWAITS_END, NULL},
	    {{U "3-unit-0000000009", U "3-unit-0000000007", U "3-unit-0000000001"}, 0, 3,
		AWAITS_END, NULL},
	    {{U "2-unit-0000000009", U "2-unit-0000000007", U "2-unit-0000000001"}, 1, 2,
		AWAITS_LIST, NULL},
	    {{U "1-unit-0000000009", U "1-unit-0000000007", U "1-unit-0000000001"}, 2, 1,
		AWAITS_CHANGE, U "1-unit-0000000007"},
	    {{U "2-unit-0000000009", U "lock-0000000007", U "2-unit-0000000001"}, 2, 1,
		AWAITS_END, U "lock-0000000007"},
	    {{U "1-unit-0000000009", U "lock-0000000007", U "1-unit-0000000008"}, 2, 1,
		AWAITS_CHANGE, U "1-unit-0000000008"},
	    {{U "lock-0000000009", "locks", "leases", "slots", "x-lock-0000000001"}, 1, 1,
		AWAITS_END, "x-lock-0000000001"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct place p = look(rows[i].names[0], rows[i].names);

		if (!p.found || p.position != rows[i].position ||
		    p.holders.n != rows[i].holders ||
		    (p.position && p.awaits != rows[i].awaits))
			fail_msg("row %zu: position %zu, holders %zu, awaits %d", i,
			    p.position, p.holders.n, p.awaits);
		assert_name(p.ahead, rows[i].ahead);
		assert_null(p.foreign);
		assert_null(p.other);
	}
}

static void
who_does_not_mix(void **state)
{
	(void)state;
	assert_name(look(U "__READ__0000000002",
			(const char *const[]){
			    U "__READ__0000000002", U "3-unit-0000000001", NULL})
			.other,
	    U "3-unit-0000000001");
	assert_name(
	    look(U "2-unit-0000000002",
		(const char *const[]){U "2-unit-0000000002", U "3-unit-0000000001", NULL})
		.other,
	    U "3-unit-0000000001");
	/* who is first says what it is: the second is about to go */
	assert_null(look(U "__READ__0000000003",
	    (const char *const[]){U "__READ__0000000001", U "3-unit-0000000002",
		U "__READ__0000000003", NULL})
			.other);
	assert_null(look(U "__READ__0000000001",
	    (const char *const[]){U "__READ__0000000001", U "3-unit-0000000002", NULL})
			.other);
	assert_null(look(U "lock-0000000002",
	    (const char *const[]){U "lock-0000000002", U "3-unit-0000000001", NULL})
			.other);
	/* numbers that are none */
	assert_int_equal(kind_of(U "0-unit-0000000001"), KIND_EXCLUSIVE);
	assert_int_equal(kind_of(U "100001-unit-0000000001"), KIND_EXCLUSIVE);
	assert_int_equal(kind_of(U "4294967297-unit-0000000001"), KIND_EXCLUSIVE);
	assert_int_equal(kind_of("3-unit-0000000001"), KIND_EXCLUSIVE);
}

static void
who_is_foreign_to_whom(void **state)
{
	static const struct {
		const char *own, *other;
		bool foreign;
	} rows[] = {
	    {U "lock-0000000002", UUID "-lock-0000000001", false},
	    {U "lock-0000000002", UUID "-__READ__0000000001", true},
	    {U "lock-0000000002", U "__WRIT__0000000001", false},
	    {U "__WRIT__0000000002", UUID "-lock-0000000001", true},
	    {U "__WRIT__0000000002", UUID "-__READ__0000000001", false},
	    {U "__READ__0000000002", UUID "-__WRIT__0000000003", false},
	    {U "__READ__0000000002", UUID "-lock-0000000003", true},
	    {U "3-unit-0000000002", UUID "-lock-0000000001", true},
	    {U "3-unit-0000000002", UUID "-__READ__0000000003", true},
	    {U "3-unit-0000000002", U "lock-0000000001", false},
	    {U "3-unit-0000000002", "locks", false},
	    {U "__READ__0000000002", "readme", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *const names[] = {rows[i].own, rows[i].other, NULL};

		if ((look(rows[i].own, names).foreign != NULL) != rows[i].foreign)
			fail_msg("row %zu", i);
	}
}

enum { CROWD = 9 };

/* A crowd of dlocks, of units or of readers, with writers among them. */
static size_t
make_crowd(char names[CROWD][80], const char *list[CROWD])
{
	size_t n = 1 + rand() % CROWD;
	int limit = rand() % 4; /* 0: readers */

	for (size_t i = 0; i < n; i++) {
		if (rand() % 4 == 0)
			snprintf(names[i], 80, U "lock-%010zu", i);
		else if (limit)
			snprintf(names[i], 80, U "%d-unit-%010zu", limit, i);
		else
			snprintf(names[i], 80, U "__READ__%010zu", i);
		list[i] = names[i];
	}
	return n;
}

static bool
is_there(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == name)
			return true;
	return false;
}

/*
 * Whatever nodes end: whoever can be granted then has been told, or will be by the grant
 * of the one before.
 */
static void
nobody_waits_for_the_wrong_one(void **state)
{
	char names[CROWD][80];
	const char *list[CROWD], *left[CROWD];

	(void)state;
	srand(11);
	for (int round = 0; round < 20000; round++) {
		size_t n = make_crowd(names, list), own = rand() % n, nleft = 0;
		struct place p, q, ahead;

		queue_look(&p, &(struct queue){layouts, list, n}, names[own]);
		for (size_t i = 0; i < n; i++)
			if (i == own || rand() % 3)
				left[nleft++] = names[i];
		queue_look(&q, &(struct queue){layouts, left, nleft}, names[own]);
		assert_true(p.found && q.found && q.position <= p.position);
		if (p.position == 0 || q.position > 0)
			continue;
		if (p.awaits == AWAITS_LIST) {
			assert_true(nleft < n);
			continue;
		}
		queue_look(&ahead, &(struct queue){layouts, left, nleft}, p.ahead);
		assert_true(!is_there(left, nleft, p.ahead) ||
		    (p.awaits == AWAITS_CHANGE && ahead.position == 0));
	}
}

/* ---- what stands in a node ---- */

static void
a_stage_is_read_as_it_was_written(void **state)
{
	static const char *const records[] = {
	    "{}", "{\"who\":\"a\"}", "{\"who\":\"\xc3\xa9 \\\"\\\\ \\u0001\",\"pid\":7}"};
	char data[DATA_BYTES], again[DATA_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof records / sizeof *records; i++)
		for (enum stage stage = STAGE_AT_ONCE; stage <= STAGE_WAITED; stage++) {
			char *record;

			data_write(data, records[i],
			    &(struct progress){.stage = stage, .slot = SLOT_NONE}, NULL);
			assert_int_equal(data_read(data).stage, stage);
			record = data_record(data);
			assert_string_equal(record, records[i]);
			free(record);
			/* the later word counts */
			data_write(again, data,
			    &(struct progress){.stage = STAGE_WAITED, .slot = SLOT_NONE},
			    NULL);
			assert_int_equal(data_read(again).stage, STAGE_WAITED);
		}
	data_write(data, records[1],
	    &(struct progress){.stage = STAGE_AT_ONCE, .slot = SLOT_NONE}, NULL);
	assert_string_equal(data, records[1]);
}

static void
the_longest_record_has_room_for_its_stage(void **state)
{
	char record[RECORD_BYTES], data[DATA_BYTES], *back;

	(void)state;
	snprintf(record, sizeof record, "{\"who\":\"%0*d\"}", RECORD_BYTES - 1 - 10, 0);
	assert_int_equal(strlen(record), RECORD_BYTES - 1);
	data_write(data, record,
	    &(struct progress){.stage = STAGE_WAITING, .slot = SLOT_NONE}, NULL);
	assert_int_equal(data_read(data).stage, STAGE_WAITING);
	back = data_record(data);
	assert_string_equal(back, record);
	free(back);
}

static void
what_others_write_says_nothing(void **state)
{
	static const char *const others[] = {"", "x", "__REVOKE__", "127.0.0.1", "[]",
	    "\"dlock\"", "{", "{\"dlock\":1}", "{\"dlock\":\"\"}",
	    "{\"dlock\":\"waiting \"}", "{\"dlock\":\"waiting\"}}",
	    "{\"dlock\":\"waiting\",\"dlock\":\"waiting\"}", "{\"who\":\"\xff\"}"};
	char data[DATA_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (data_read(others[i]).stage != STAGE_UNKNOWN)
			fail_msg("%s: %d", others[i], data_read(others[i]).stage);
	assert_null(data_record("127.0.0.1"));
	assert_null(data_record("[1]"));
	data_write(data, "[1]",
	    &(struct progress){.stage = STAGE_WAITING, .slot = SLOT_NONE}, NULL);
	assert_string_equal(data, "[1]");
}

/* Who asks for the lock back stands beside all that its owner says, and is kept with it. */
static void
a_mark_is_read_again(void **state)
{
	static const char *const askers[] = {
	    "{\"who\":\"bob\",\"why\":\"a \\\"b\\\"\"}", "", "x", "\x01\x02\n", "\xff"};
	struct progress p = {STAGE_WAITED, 3, 1700000000000, "", 0};
	char data[DATA_BYTES], marked[DATA_BYTES], *asker;

	(void)state;
	data_write(data, "{\"who\":\"ann\"}", &p, NULL);
	assert_null(data_asker(data));
	for (size_t i = 0; i < sizeof askers / sizeof *askers; i++) {
		data_mark(marked, data, askers[i]);
		data_write(data, "{\"who\":\"ann\"}", &p, askers[i]);
		assert_string_equal(data, marked);
		assert_int_equal(data_read(data).stage, STAGE_WAITED);
		assert_int_equal(data_read(data).slot, 3);
		assert_int_equal(data_read(data).granted, 1700000000000);
		asker = data_asker(data);
		assert_string_equal(asker, *askers[i] == '\xff' ? "" : askers[i]);
		free(asker);
	}
	asker = data_asker(CURATORS_REVOKE);
	assert_string_equal(asker, "");
	free(asker);
}

static void
whatever_stood_there_is_marked(void **state)
{
	char longest[4096], record[RECORD_BYTES], data[DATA_BYTES], *asker;
	const char *const others[] = {
	    "", "x", "[1]", "__REVOKE__", "{\"a\":1,\"a\":2}", longest};

	(void)state;
	snprintf(longest, sizeof longest, "{\"who\":\"%04000d\"}", 0);
	memset(record, '"', sizeof record - 1);
	record[sizeof record - 1] = '\0';
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		data_mark(data, others[i], record);
		asker = data_asker(data);
		assert_string_equal(asker, record);
		free(asker);
	}
	memset(record, '\1',
	    sizeof record - 1); /* six bytes each: that it is asked counts */
	data_mark(data, "", record);
	asker = data_asker(data);
	assert_string_equal(asker, "");
	free(asker);
}

static void
a_note_of_force_is_for_one_grant(void **state)
{
	char data[DATA_BYTES], *forcer;

	(void)state;
	data_note_force(data, "", 7, "{\"who\":\"bob\"}");
	assert_true(data_read(data).forced > 0);
	forcer = data_forcer(data, 7);
	assert_string_equal(forcer, "{\"who\":\"bob\"}");
	free(forcer);
	assert_null(data_forcer(data, 8));
	assert_null(data_forcer("{\"forced\":7}", 7));
	assert_null(data_forcer("{\"forced\":8,\"earlier\":7}", 7));
	assert_false(data_read("mine").forced > 0);
	assert_false(data_read("{\"forced\":\"7\"}").forced > 0);
}

static void
a_note_of_force_keeps_those_before(void **state)
{
	char data[DATA_BYTES] = "", next[DATA_BYTES], by[RECORD_BYTES], *forcer;

	(void)state;
	memset(by, 'b', sizeof by - 1);
	by[sizeof by - 1] = '\0';
	for (uint64_t token = 7; token < 20; token++) {
		data_note_force(next, data, token, token < 15 ? "bob" : by);
		memcpy(data, next, sizeof data);
		forcer = data_forcer(data, token < 12 ? 7 : token - 1);
		assert_string_equal(forcer, token < 16 ? "bob" : by);
		free(forcer);
	}
	assert_null(data_forcer(data, 7)); /* there is no room for all */
	assert_int_equal(data_read(data).forced, 19);
}

static void
a_freeze_has_a_name(void **state)
{
	static const char *const others[] = {"-freeze-",
	    "-freeze-inf-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef-0-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef--1-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef-+1-__WRIT__-0000000001",
	    "-freeze-0123456789ABCDEF-1-__WRIT__-0000000001",
	    "-freeze-0123456789abcde-1-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef0-1-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef-1000000000000-__WRIT__-0000000001",
	    "-freeze-0123456789abcdef-1-__WRIT__0000000001",
	    "-freeze-0123456789abcdef-1-__WRIT__",
	    "x-freeze-0123456789abcdef-1-__WRIT__-0000000001"};
	static const int64_t lengths[] = {
	    1, NS_PER_S, 3600 * NS_PER_S, INT64_MAX / 2, NEVER};
	char name[FREEZE_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		int64_t read;

		freeze_name(name, layouts, lengths[i]);
		read = layout_freeze(name).length;
		assert_true(read == lengths[i] || (i == 0 && read == NS_PER_MS) ||
		    (i == 3 && read == NEVER));
		assert_int_equal(layout_read(layouts, name).what, CHILD_FREEZE);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (layout_freeze(others[i]).length != 0)
			fail_msg("%s", others[i]);
}

/* It is nobody's place; only whoever would hold the lock waits for it. */
static void
a_freeze_holds_back_whoever_is_first(void **state)
{
	static const char *const names[] = {
	    "-freeze-0123456789abcdef-inf-__WRIT__-0000000001", "_c_1-__READ__0000000001",
	    "_c_2-__READ__0000000002", "_c_3-__WRIT__0000000003", NULL};
	struct place p;

	(void)state;
	for (size_t i = 1; i < 4; i++) {
		p = look(names[i], names);
		assert_string_equal(p.freeze, names[0]);
		assert_string_equal(p.holders.first, names[1]);
		assert_int_equal(p.holders.n, 2);
		assert_int_equal(p.before, i - 1);
		assert_int_equal(p.position, i == 3);
		queue_hold_back(&p, names[0], AWAITS_END);
		assert_int_equal(p.position, 1);
		assert_string_equal(p.ahead, names[i == 3 ? 2 : 0]);
	}
}

/* ---- addresses ---- */

/* The library goes through an odd number of them only. */
static void
numbers_need_no_resolver(void **state)
{
	static const struct {
		const char *url, *list;
		size_t n;
	} rows[] = {
	    {"zk://127.0.0.1", "127.0.0.1:2181", 1},
	    {"zk://127.0.0.1:1,[::1]:2", "127.0.0.1:1,::1:2,127.0.0.1:1", 2},
	    {"zk://127.0.0.1:1,127.0.0.2,[fe80::1]:3",
		"127.0.0.1:1,127.0.0.2:2181,fe80::1:3", 3},
	};
	struct ensemble e;
	struct fault f;
	static struct hosts h;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(ensemble_parse(&e, rows[i].url, &f), RC_OK);
		assert_int_equal(hosts_find(&h, NULL, &e, "zk", 0, &f), RC_OK);
		assert_string_equal(h.list, rows[i].list);
		assert_int_equal(h.n, rows[i].n);
	}
}

/* Its certificate is to be for that. */
static void
the_host_of_an_address(void **state)
{
	static const struct {
		const char *url, *address, *host;
	} rows[] = {
	    {"zks://10.0.0.1,10.0.0.2", "10.0.0.2:2281", "10.0.0.2"},
	    {"zks://10.0.0.1,10.0.0.2", "10.0.0.1:2281", "10.0.0.1"},
	    {"zks://10.0.0.1:1,10.0.0.2:1,[::1]:11", "10.0.0.2:1", "10.0.0.2"},
	    {"zks://10.0.0.1:1,10.0.0.1:11", "10.0.0.1:11", "10.0.0.1"},
	    {"zks://10.0.0.1:1", "10.0.0.1:11", NULL},
	};
	struct ensemble e;
	struct fault f;
	static struct hosts h;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct sockaddr_in a = {.sin_family = AF_INET};
		struct endpoint at;
		char number[32];

		snprintf(number, sizeof number, "%.*s",
		    (int)strcspn(rows[i].address, ":"), rows[i].address);
		a.sin_port = htons(atoi(strchr(rows[i].address, ':') + 1));
		assert_int_equal(inet_pton(AF_INET, number, &a.sin_addr), 1);
		assert_int_equal(ensemble_parse(&e, rows[i].url, &f), RC_OK);
		assert_int_equal(hosts_find(&h, NULL, &e, "zks", 0, &f), RC_OK);
		assert_int_equal(hosts_name(&h, (struct sockaddr *)&a, sizeof a, &at),
		    rows[i].host != NULL);
		if (!rows[i].host)
			continue;
		assert_string_equal(at.host, rows[i].host);
		assert_int_equal(at.port, ntohs(a.sin_port));
	}
}

/* ---- URLs ---- */

static void
good_urls(void **state)
{
	static const struct {
		const char *url, *hosts, *chroot, *login, *printed;
	} rows[] = {
	    {NULL, "127.0.0.1:2181", "", "", "zk 127.0.0.1:2181"},
	    {"zk://h", "h:2181", "", "", "zk h:2181"},
	    {"zk://h/", "h:2181", "", "", "zk h:2181"},
	    {"zk://10.0.0.1:1", "10.0.0.1:1", "", "", "zk 10.0.0.1:1"},
	    {"zk://h:65535/a", "h:65535", "/a", "", "zk h:65535/a"},
	    {"zk://a,b:1,10.0.0.1", "a:2181,b:1,10.0.0.1:2181", "", "",
		"zk a:2181,b:1,10.0.0.1:2181"},
	    {"zk://10.0.0.1,b", "10.0.0.1:2181,b:2181", "", "",
		"zk 10.0.0.1:2181,b:2181"},
	    {"zk://[::1],[fe80::2]:3", "[::1]:2181,[fe80::2]:3", "", "",
		"zk [::1]:2181,[fe80::2]:3"},
	    {"zk://h/a/b.c/...", "h:2181", "/a/b.c/...", "", "zk h:2181/a/b.c/..."},
	    {"zk://h/a%20b%2Fc", "h:2181", "/a b/c", "", "zk h:2181/a b/c"},
	    {"zk://h/zookeeper2", "h:2181", "/zookeeper2", "", "zk h:2181/zookeeper2"},
	    {"zk://h/a/zookeeper", "h:2181", "/a/zookeeper", "", "zk h:2181/a/zookeeper"},
	    {"zk://u:pw@h", "h:2181", "", "u:pw", "zk h:2181"},
	    {"zk://u:p%40s%2Fs%3A%25@h,i/c", "h:2181,i:2181", "/c", "u:p@s/s:%",
		"zk h:2181,i:2181/c"},
	    {"zk://u:p:q@h", "h:2181", "", "u:p:q", "zk h:2181"},
	    {"zk://u:p@q@h", "h:2181", "", "u:p@q", "zk h:2181"},
	    {"zks://u:pw@h,i:1/c", "h:2281,i:1", "/c", "u:pw", "zks h:2281,i:1/c"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct ensemble e;
		struct fault f = {""};
		char printed[WHERE_BYTES];

		if (ensemble_parse(&e, rows[i].url, &f) != RC_OK)
			fail_msg("%s: %s", rows[i].url, f.text);
		assert_string_equal(e.hosts, rows[i].hosts);
		assert_string_equal(e.chroot, rows[i].chroot);
		assert_string_equal(e.login, rows[i].login);
		ensemble_print(&e, printed, sizeof printed);
		assert_string_equal(printed, rows[i].printed);
	}
}

static void
is_wrong(const char *url)
{
	struct ensemble e;
	struct fault f = {""};

	if (ensemble_parse(&e, url, &f) != RC_USAGE)
		fail_msg("%s: not refused", url);
	assert_string_not_equal(f.text, "");
	assert_null(strstr(f.text, "secret"));
}

static void
wrong_urls(void **state)
{
	static const char *const rows[] = {"zk:", "zk:/", "zk:h", "zk://", "zk:///",
	    "zk:///a", "zk://:2181", "zk://h:", "zk://h:0", "zk://h:65536",
	    "zk://h:2181abc", "zk://h:-1", "zk://h:+1", "zk://h: 1", "zk://h:1:2",
	    "zk://h:99999999999", "zk://a,,b", "zk://,a", "zk://a,", "zk://,", "zk://a;b",
	    "zk://h h", "zk://h\n", "zk://::1", "zk://[::1", "zk://[]", "zk://[h]",
	    "zk://h//a", "zk://h/a/", "zk://h/a//b", "zk://h//", "zk://h/.", "zk://h/..",
	    "zk://h/a/../b", "zk://h/%2E%2e/b", "zk://h/a%00b", "zk://h/%zz", "zk://h/a%",
	    "zk://h/a%0Ab", "zk://h/\x7f", "zk://h/zookeeper", "zk://h/zookeeper/a",
	    "zk://h?a=b", "zk://h/a?b=c", "zk://h/a#b", "zk://secret@h", "zk://:secret@h",
	    "zk://@h", "zk://u:secret%zz@h", "zk://u:secret%00@h", "zk://u:secret%4@h",
	    "zk://u%:secret@h", "zk://u%3Av:secret@h", "zk://u:secret@",
	    "zk://u:secret@:1", "zk://u:secret@,h"};
	char url[8000];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		is_wrong(rows[i]);
	snprintf(url, sizeof url, "zk://u:%0700d@h", 0);
	is_wrong(url);
	snprintf(url, sizeof url, "zk://%0700d:secret@h", 0);
	is_wrong(url);
	snprintf(url, sizeof url, "zk://h/%01024d", 0);
	is_wrong(url);
	snprintf(url, sizeof url, "zk://%0300d", 0);
	is_wrong(url);
	strcpy(url, "zk://h");
	for (int i = 0; i < 1000; i++)
		strcat(url, ",h:1234");
	is_wrong(url);
}

static void
long_urls_are_printed_in_part(void **state)
{
	struct ensemble e;
	struct fault f;
	char url[2000] = "zk://h", printed[WHERE_BYTES];

	(void)state;
	for (int i = 0; i < 200; i++)
		strcat(url, ",h:1234");
	assert_int_equal(ensemble_parse(&e, url, &f), RC_OK);
	ensemble_print(&e, printed, sizeof printed);
	assert_int_equal(strlen(printed), WHERE_BYTES - 1);
	assert_string_equal(printed + WHERE_BYTES - 4, "...");
}

static void
paths(void **state)
{
	static const char *const good[] = {"/a", "/a/b", "/...", "/.a", "/a b",
	    "/\xc3\xbc", "/zookeeper2", "/a/zookeeper"};
	static const char *const wrong[] = {"", "a", "/", "//", "/a/", "//a", "/a//b",
	    "/.", "/..", "/a/.", "/a/../b", "/\x01", "/a\x1f", "/a\x7f", "/zookeeper",
	    "/zookeeper/config"};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		if (!ensemble_is_path(good[i]))
			fail_msg("%s is no path", good[i]);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (ensemble_is_path(wrong[i]))
			fail_msg("%s is a path", wrong[i]);
}

/* ---- how far a claim has come ---- */

static enum state
walk(enum state s, const enum event *events, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s = state_next(s, events[i]);
	return s;
}

#define WALK(...) \
	walk(STATE_NONE, (const enum event[]){__VA_ARGS__}, \
	    sizeof((const enum event[]){__VA_ARGS__}) / sizeof(enum event))

static void
claims_go_through_their_states(void **state)
{
	(void)state;
	assert_int_equal(WALK(EVENT_MAY_BE_MADE), STATE_UNSURE);
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_NOT_MADE), STATE_NONE);
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_MADE), STATE_JOINED);
	/* found free: one node, which is the lock, has no place */
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_GRANTED), STATE_HELD);
	assert_int_equal(
	    WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_SEEN, EVENT_GRANTED), STATE_HELD);
	/* waits, and is called */
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_SEEN, EVENT_WATCHED),
	    STATE_WATCHING);
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_SEEN, EVENT_WATCHED,
			     EVENT_LIST_ANEW, EVENT_SEEN, EVENT_GRANTED),
	    STATE_HELD);
	/* its place is deleted: an attempt to find it again comes before another create */
	assert_int_equal(
	    WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_SEEN, EVENT_WATCHED, EVENT_LOST),
	    STATE_UNSURE);
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_LOST, EVENT_NOT_MADE,
			     EVENT_MAY_BE_MADE, EVENT_MADE),
	    STATE_JOINED);
	/* gives up, or back, through a connection that breaks */
	assert_int_equal(WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_SEEN, EVENT_NO_ANSWER),
	    STATE_LEAVING);
	assert_int_equal(
	    WALK(EVENT_MAY_BE_MADE, EVENT_MADE, EVENT_GRANTED, EVENT_NO_ANSWER),
	    STATE_GIVING);
}

/* Whatever happens, in whatever order. */
static void
no_event_makes_a_lock_of_nothing(void **state)
{
	bool reached[STATES] = {[STATE_NONE] = true};

	(void)state;
	for (int round = 0; round < STATES; round++)
		for (enum state s = 0; s < STATES; s++)
			for (enum event e = 0; reached[s] && e < EVENTS; e++)
				reached[state_next(s, e)] = true;
	for (enum state s = 0; s < STATES; s++) {
		assert_true(reached[s]);
		assert_int_equal(state_next(s, EVENT_GONE), STATE_NONE);
		for (enum event e = 0; e < EVENTS; e++) {
			enum state to = state_next(s, e);

			/* a hold begins with a grant to one who has a node, */
			if (to == STATE_HELD && s != to)
				assert_true(e == EVENT_GRANTED && s >= STATE_JOINED &&
				    !state_is_ending(s));
			/* it ends, and is not forgotten but by its end, */
			if (state_is_holders(s) && !state_is_holders(to))
				assert_true(e == EVENT_LOST || e == EVENT_GONE);
			/* a node that may be there is not forgotten without a word, */
			if (s != STATE_NONE && to == STATE_NONE)
				assert_true(e == EVENT_GONE ||
				    (e == EVENT_NOT_MADE && s == STATE_UNSURE));
			/* and one that is watched has a place. */
			if (to == STATE_WATCHING && s != to)
				assert_int_equal(s, STATE_PLACED);
		}
	}
}

/* ---- errors ---- */

/* The library's, and those of servers: org.apache.zookeeper.KeeperException. */
static void
each_code_means_what_was_decided(void **state)
{
	static const struct {
		int code;
		enum rc rc;
	} rows[] = {
	    {-1, RC_SYSTEM}, {-2, RC_AGAIN}, {-3, RC_PROTOCOL}, {-4, RC_AGAIN},
	    {-5, RC_SYSTEM}, {-7, RC_AGAIN}, {-8, RC_USAGE}, {-9, RC_LOST},
	    {-12, RC_LOST},  /* no such session */
	    {-13, RC_AGAIN}, /* these two and the next: of changes of the ensemble */
	    {-14, RC_AGAIN}, {-123, RC_AGAIN},
	    {-15, RC_AGAIN},   /* TLS, which libzookeeper-mt of Debian 12 lacks */
	    {-100, RC_AGAIN},  /* not in use */
	    {-102, RC_DENIED}, /* no right */
	    {-111, RC_PROTOCOL}, {-112, RC_LOST}, {-113, RC_AGAIN},
	    {-114, RC_CONFIG}, /* an ACL that it does not take */
	    {-115, RC_DENIED}, {-116, RC_AGAIN}, {-117, RC_AGAIN}, {-118, RC_AGAIN},
	    {-119, RC_AGAIN},
	    {-120, RC_CONFIG},                  /* an ephemeral node of a local session */
	    {-121, RC_AGAIN}, {-122, RC_AGAIN}, /* a timeout */
	    {-124, RC_DENIED},                  /* SASL is wanted */
	    {-125, RC_AGAIN},                   /* a quota */
	    {-127, RC_AGAIN},                   /* throttled */
	};
	/* What these say of nodes is the answer. */
	static const int answers[] = {-6, -101, -103, -108, -110};
	const char *words, *unknown = zerror(-999);

	(void)state;
	for (int code = -1; code >= -140; code--) {
		bool known = strcmp(zerror(code), unknown) != 0, decided = false;

		for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
			decided = decided || answers[i] == code;
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			if (rows[i].code != code)
				continue;
			decided = true;
			if (session_meaning(code, &words) != rows[i].rc)
				fail_msg("%d: %s", code,
				    fault_rc_name(session_meaning(code, &words)));
		}
		if (known && !decided)
			fail_msg("%d has no row: decide what it means", code);
		if (!known && !decided)
			assert_int_equal(session_meaning(code, &words), RC_AGAIN);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(places),
	    cmocka_unit_test(strangers_are_seen_wherever_they_stand),
	    cmocka_unit_test(names_are_read_as_their_layout_has_them),
	    cmocka_unit_test(own_names_are_nobodys_else),
	    cmocka_unit_test(semaphores_of_others_are_known),
	    cmocka_unit_test(numbers_are_read_as_python_does),
	    cmocka_unit_test(only_a_later_dlock_of_another_layout_is_passed),
	    cmocka_unit_test(each_layout_has_its_own_names_of_a_freeze),
	    cmocka_unit_test(what_no_layout_knows_is_strange),
	    cmocka_unit_test(worn_numbers_are_seen),
	    cmocka_unit_test(all_agree_on_one_order),
	    cmocka_unit_test(who_holds_together),
	    cmocka_unit_test(who_does_not_mix),
	    cmocka_unit_test(who_is_foreign_to_whom),
	    cmocka_unit_test(nobody_waits_for_the_wrong_one),
	    cmocka_unit_test(a_stage_is_read_as_it_was_written),
	    cmocka_unit_test(the_longest_record_has_room_for_its_stage),
	    cmocka_unit_test(what_others_write_says_nothing),
	    cmocka_unit_test(a_mark_is_read_again),
	    cmocka_unit_test(whatever_stood_there_is_marked),
	    cmocka_unit_test(a_note_of_force_is_for_one_grant),
	    cmocka_unit_test(a_note_of_force_keeps_those_before),
	    cmocka_unit_test(a_freeze_has_a_name),
	    cmocka_unit_test(a_freeze_holds_back_whoever_is_first),
	    cmocka_unit_test(numbers_need_no_resolver),
	    cmocka_unit_test(the_host_of_an_address),
	    cmocka_unit_test(good_urls),
	    cmocka_unit_test(wrong_urls),
	    cmocka_unit_test(long_urls_are_printed_in_part),
	    cmocka_unit_test(claims_go_through_their_states),
	    cmocka_unit_test(no_event_makes_a_lock_of_nothing),
	    cmocka_unit_test(paths),
	    cmocka_unit_test(each_code_means_what_was_decided),
	};

	return cmocka_run_group_tests_name("zk", tests, NULL, NULL);
}
