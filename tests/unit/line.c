/*
 * line.c - Goal of these tests: who holds and who waits is told from the kernel's locks
 * and the blocks of the file, whatever stands there; and nobody is written over who is
 * alive.
 */
#include "backends/file/line.h"
#include "backends/file/place.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 200, NOW = 1000000 };

/* A lock file, and others who have locked bytes of it. */
struct test {
	char path[32];
	int fd; /* that of who looks: it can only read */
	int others[MOST];
	int n;
};

static void
begin(struct test *t)
{
	int fd;

	snprintf(t->path, sizeof t->path, "/tmp/unit_line.XXXXXX");
	fd = mkstemp(t->path);
	assert_true(fd >= 0);
	close(fd);
	t->fd = open(t->path, O_RDONLY | O_CLOEXEC);
	t->n = 0;
}

static void
end(struct test *t)
{
	while (t->n > 0)
		close(t->others[--t->n]);
	close(t->fd);
	unlink(t->path);
}

static int
lock(struct test *t, int64_t byte)
{
	int fd = open(t->path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0 && t->n < MOST);
	assert_int_equal(tickets_lock(fd, F_WRLCK, byte), 0);
	return t->others[t->n++] = fd;
}

/* Locks the byte, and says whose it is; token 0: he waits. */
static off_t
stand(struct test *t, int64_t byte, int64_t token)
{
	struct block h = {.next = 1, .token = token, .byte = byte, .granted = 1};
	int fd = lock(t, byte);
	off_t at = block_choose(fd, byte);

	snprintf(h.record, sizeof h.record, "%lld", (long long)byte);
	assert_int_equal(block_write(fd, at, &h), 0);
	return at;
}

static void
write_header(struct test *t, int64_t byte, int64_t token, int64_t freeze)
{
	int fd = open(t->path, O_RDWR | O_CLOEXEC);
	struct block h = {.next = 9, .token = token, .byte = byte, .freeze = freeze};

	assert_int_equal(block_write(fd, BLOCK_HEADER, &h), 0);
	close(fd);
}

static void
expect(struct test *t, const int64_t *holders, const int64_t *waiters)
{
	struct line_waiter w = {.position = 0};
	struct line l;
	size_t n = 0;

	assert_int_equal(line_read(&l, t->fd, TICKET_OF_A_LOOK, false, NOW), 1);
	for (; holders[n]; n++)
		assert_true(n < l.n && l.holders[n].byte == holders[n]);
	assert_int_equal(l.n, n);
	for (n = 0; waiters[n]; n++) {
		assert_true(line_wait(&l, &w));
		assert_int_equal(w.byte, waiters[n]);
		assert_int_equal(w.position, n + 1);
	}
	assert_false(line_wait(&l, &w));
	assert_false(line_wait(&l, &w));
	line_free(&l);
}

#define LIST(...) ((const int64_t[]){__VA_ARGS__})

static void
nobody(void **state)
{
	struct test t;

	(void)state;
	begin(&t);
	expect(&t, LIST(0), LIST(0));
	write_header(&t, 3, 7, 0);
	expect(&t, LIST(0), LIST(0));
	end(&t);
}

/* All kinds in one line, which joined from 1 to 9. */
static void
who_is_alone_and_who_waits(void **state)
{
	struct test t;

	(void)state;
	begin(&t);
	write_header(&t, 5, 7, 0);
	lock(&t, BYTE(READERS, 9));
	stand(&t, BYTE(ALONE, 8), 0);
	stand(&t, BYTE(READERS, 7), 0);
	lock(&t, 5);
	expect(&t, LIST(5, 0), LIST(BYTE(READERS, 7), 8, BYTE(READERS, 9), 0));
	end(&t);
}

static void
several_hold_in_the_order_of_their_grants(void **state)
{
	struct test t;

	(void)state;
	begin(&t);
	write_header(&t, 0, 12, 0);
	stand(&t, BYTE(PERMITS, 0), 12);
	stand(&t, BYTE(PERMITS, 2), 10);
	stand(&t, BYTE(PERMITS, 1), 11);
	stand(&t, BYTE(LIMITED, 4), 0);
	stand(&t, BYTE(ALONE, 6), 0);
	expect(&t, LIST(BYTE(PERMITS, 2), BYTE(PERMITS, 1), BYTE(PERMITS, 0), 0),
	    LIST(BYTE(LIMITED, 4), 6, 0));
	end(&t);
	begin(&t);
	write_header(&t, 0, 12, 0);
	stand(&t, BYTE(READERS, 1), 11);
	stand(&t, BYTE(READERS, 2), 12);
	stand(&t, BYTE(ALONE, 3), 0);
	stand(&t, BYTE(READERS, 4), 0);
	expect(&t, LIST(BYTE(READERS, 1), BYTE(READERS, 2), 0),
	    LIST(3, BYTE(READERS, 4), 0));
	end(&t);
}

/* The one before has just ended, or the lock is frozen: the first in line holds nothing. */
static void
whom_the_file_does_not_name_waits(void **state)
{
	struct test t;

	(void)state;
	begin(&t);
	write_header(&t, 4, 7, 0);
	lock(&t, 5);
	lock(&t, 6);
	expect(&t, LIST(0), LIST(5, 6, 0));
	end(&t);
	begin(&t);
	write_header(&t, 4, 7, 1);
	stand(&t, BYTE(READERS, 5), 0);
	lock(&t, BYTE(READERS, 6));
	expect(&t, LIST(0), LIST(BYTE(READERS, 5), BYTE(READERS, 6), 0));
	end(&t);
}

/* A file that was cut, or an older dlock's. */
static void
of_whom_nothing_is_written_holds_if_he_can(void **state)
{
	struct test t;

	(void)state;
	begin(&t);
	lock(&t, 5);
	lock(&t, 6);
	expect(&t, LIST(5, 0), LIST(6, 0));
	write_header(&t, 0, 7, 0);
	expect(&t, LIST(5, 0), LIST(6, 0));
	end(&t);
	begin(&t);
	lock(&t, BYTE(READERS, 5));
	lock(&t, BYTE(READERS, 6));
	lock(&t, 7);
	expect(&t, LIST(BYTE(READERS, 5), BYTE(READERS, 6), 0), LIST(7, 0));
	end(&t);
}

static void
a_stranger_who_locks_all_is_one(void **state)
{
	struct test t;
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct line_waiter w = {.position = 0};
	struct line l;
	int fd;

	(void)state;
	begin(&t);
	fd = open(t.path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &all), 0);
	assert_int_equal(line_read(&l, t.fd, TICKET_OF_A_LOOK, false, NOW), 1);
	assert_true(l.n < 100);
	while (line_wait(&l, &w))
		assert_true(w.position < 1000);
	line_free(&l);
	close(fd);
	end(&t);
}

static void
expect_position(struct test *t, int64_t ours, unsigned position, int64_t first)
{
	struct place p = {.fd = t->fd, .ticket = ours};
	int64_t found;
	struct line l;

	assert_int_equal(line_read(&l, t->fd, p.ticket, p.plain, NOW), 1);
	assert_int_equal(line_position(&l, &found), position);
	assert_int_equal(found, first);
	line_free(&l);
}

/* Who is behind it does not matter; far back the numbers are reckoned with. */
static void
a_place_is_told_of_those_before_it(void **state)
{
	struct place p = {.ticket = 5};
	struct test t;
	struct line l;

	(void)state;
	begin(&t);
	write_header(&t, 5, 7, 0);
	lock(&t, 5);
	expect_position(&t, 1000005, 1, 0); /* all those between have left */
	stand(&t, 6, 0);
	stand(&t, BYTE(READERS, 7), 0);
	lock(&t, 200);
	expect_position(&t, 5, 1, 0);
	expect_position(&t, 6, 1, 0);
	expect_position(&t, 8, 3, 6);
	expect_position(&t, 38, 3, 6);
	expect_position(&t, 39, 34, 6);
	expect_position(&t, 1000005, 1000000, 6);
	expect_position(&t, 1000006, 0, 6);
	p.fd = t.fd;
	assert_int_equal(line_read(&l, t.fd, p.ticket, p.plain, NOW), 1);
	assert_int_equal(l.n, 0);
	line_free(&l);
	write_header(&t, 4, 7, 0);
	expect_position(&t, 8, 4, 5);
	expect_position(&t, 37, 4, 5);
	expect_position(&t, 38, 34, 5);
	stand(&t, 8, 0);
	expect_position(&t, 37, 5, 5);
	expect_position(&t, 38, 34, 5);
	expect_position(&t, 1000004, 1000000, 5);
	expect_position(&t, 1000005, 0, 5);
	end(&t);
}

/* It has seen that all before it are, when it came. */
static void
a_place_among_exclusive_ones_asks_for_no_others(void **state)
{
	struct place p = {.ticket = 8, .plain = true};
	int64_t first;
	struct test t;
	struct line l;

	(void)state;
	begin(&t);
	write_header(&t, 5, 7, 0);
	lock(&t, 5);
	lock(&t, BYTE(READERS, 4));
	lock(&t, BYTE(LIMITED, 3));
	lock(&t, BYTE(PERMITS, 0));
	p.fd = t.fd;
	assert_int_equal(line_read(&l, t.fd, p.ticket, p.plain, NOW), 1);
	assert_true(l.n == 1 && l.holders[0].byte == 5);
	assert_int_equal(line_position(&l, &first), 1);
	line_free(&l);
	end(&t);
}

static void
a_place_counts_some_holders_only(void **state)
{
	struct place p = {.ticket = NUMBER_LIMIT - 1};
	struct test t;
	struct line l;
	int fd;

	(void)state;
	begin(&t);
	p.fd = t.fd;
	fd = lock(&t, BYTE(READERS, 1));
	for (int64_t i = 1; i < LINE_HOLDERS + 9; i++)
		assert_int_equal(tickets_lock(fd, F_WRLCK, BYTE(READERS, 1 + 2 * i)), 0);
	assert_int_equal(line_read(&l, t.fd, p.ticket, p.plain, NOW), 1);
	assert_int_equal(l.n, LINE_HOLDERS + 1);
	line_free(&l);
	assert_int_equal(line_read(&l, t.fd, TICKET_OF_A_LOOK, false, NOW), 1);
	assert_int_equal(l.n, LINE_HOLDERS + 9);
	line_free(&l);
	end(&t);
}

/* Nor is one who is alive lost, when many numbers want the same places. */
static void
nobody_alive_is_written_over(void **state)
{
	struct block h;
	struct test t;
	off_t at;

	(void)state;
	begin(&t);
	for (int64_t i = 1; i <= 6; i++)
		stand(&t, BYTE(READERS, 65536 * i), i);
	for (int64_t i = 1; i <= 6; i++) {
		at = block_find(t.fd, BYTE(READERS, 65536 * i), &h);
		assert_true(at > BLOCK_FREEZE && h.token == i);
		assert_int_equal(at % (2 * BLOCK_BYTES), 0);
	}
	assert_int_equal(block_find(t.fd, BYTE(READERS, 65536 * 7), &h), 0);
	close(t.others[0]);
	at = stand(&t, BYTE(ALONE, 65536), 9);
	assert_int_equal(block_find(t.fd, BYTE(ALONE, 65536), &h), at);
	assert_int_equal(block_find(t.fd, BYTE(READERS, 65536), &h), 0);
	t.others[0] = t.others[--t.n];
	end(&t);
}

/* So a file is about as long as there are others at a time. */
static void
few_need_few_places(void **state)
{
	off_t last = 0;
	struct test t;

	(void)state;
	begin(&t);
	for (int64_t i = 1; i < 1000; i++) {
		off_t at = stand(&t, BYTE(READERS, i), i);

		last = at > last ? at : last;
		if (t.n > 2) {
			close(t.others[0]);
			t.others[0] = t.others[1];
			t.others[1] = t.others[2];
			t.n = 2;
		}
	}
	assert_true(last <= BLOCK_BYTES * (4 + 2 * 4));
	/* such as a permit and a ticket of the same number */
	assert_int_not_equal(
	    stand(&t, BYTE(LIMITED, 1), 0), stand(&t, BYTE(PERMITS, 1), 1));
	end(&t);
}

static void
a_mark_means_one_grant(void **state)
{
	struct block who = {.next = 1, .token = 7}, mark;
	struct test t;
	off_t at;
	int fd;

	(void)state;
	begin(&t);
	at = stand(&t, BYTE(PERMITS, 0), 7);
	fd = t.others[0];
	assert_false(block_is_marked(fd, at, 7, &mark));
	assert_int_equal(block_write(fd, block_mark(at), &who), 0);
	assert_true(block_is_marked(fd, at, 7, &mark));
	assert_false(block_is_marked(fd, at, 8, &mark));
	assert_false(block_is_marked(fd, BLOCK_HEADER, 7, &mark));
	who.token = 0;
	assert_int_equal(block_write(fd, block_mark(at), &who), 0);
	assert_false(block_is_marked(fd, at, 0, &mark));
	end(&t);
}

static void
a_freeze_ends_or_not(void **state)
{
	struct block h = {.next = 1}, f = {.next = 1, .freeze = NOW + 1}, found;
	struct test t;
	int fd;

	(void)state;
	begin(&t);
	fd = lock(&t, 1);
	assert_int_equal(block_write(fd, BLOCK_FREEZE, &f), 0);
	assert_false(block_is_frozen(fd, &h, NOW, &found));
	h.freeze = 1;
	assert_true(block_is_frozen(fd, &h, NOW, &found));
	assert_false(block_is_frozen(fd, &h, NOW + 1, &found));
	f.freeze = FREEZE_FOREVER;
	assert_int_equal(block_write(fd, BLOCK_FREEZE, &f), 0);
	assert_true(block_is_frozen(fd, &h, INT64_MAX, &found));
	/* what cannot be read is no reason to let anybody in */
	assert_int_equal(pwrite(fd, "nonsense", 8, BLOCK_FREEZE), 8);
	assert_true(block_is_frozen(fd, &h, NOW, &found));
	assert_true(found.freeze == FREEZE_FOREVER && !*found.record);
	end(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nobody),
	    cmocka_unit_test(who_is_alone_and_who_waits),
	    cmocka_unit_test(several_hold_in_the_order_of_their_grants),
	    cmocka_unit_test(whom_the_file_does_not_name_waits),
	    cmocka_unit_test(of_whom_nothing_is_written_holds_if_he_can),
	    cmocka_unit_test(a_stranger_who_locks_all_is_one),
	    cmocka_unit_test(a_place_is_told_of_those_before_it),
	    cmocka_unit_test(a_place_among_exclusive_ones_asks_for_no_others),
	    cmocka_unit_test(a_place_counts_some_holders_only),
	    cmocka_unit_test(nobody_alive_is_written_over),
	    cmocka_unit_test(few_need_few_places),
	    cmocka_unit_test(a_mark_means_one_grant),
	    cmocka_unit_test(a_freeze_ends_or_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
