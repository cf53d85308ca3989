/*
 * tickets.c - Goal of these tests: in whatever order tickets were drawn,
 * the last one below a number is found, and few questions are asked for it.
 */
#include "backends/file/block.h"
#include "backends/file/line.h"
#include "backends/file/place.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <fcntl.h>

#include <cmocka.h>

enum { MOST = 64 };

static const struct span byte_5 = {5, 6};

/* A file with tickets on it, each of an open file of its own. */
struct queue {
	char path[32];
	int fd; /* that of who looks */
	int others[MOST];
	int n;
};

static void
begin(struct queue *q)
{
	snprintf(q->path, sizeof q->path, "/tmp/unit_tickets.XXXXXX");
	q->fd = mkstemp(q->path);
	q->n = 0;
	assert_true(q->fd >= 0);
}

static void
add(struct queue *q, short type, int64_t byte)
{
	int fd = open(q->path, O_RDWR);

	assert_true(fd >= 0 && q->n < MOST);
	assert_int_equal(tickets_lock(fd, type, byte), 0);
	q->others[q->n++] = fd;
}

static void
end(struct queue *q)
{
	while (q->n > 0)
		close(q->others[--q->n]);
	close(q->fd);
	unlink(q->path);
}

/* How many are locked in the span, one after the other; *first is the first, or 0. */
static unsigned
count(int fd, struct span s, int64_t *first)
{
	struct span found;
	unsigned n = 0;

	*first = 0;
	for (; tickets_next(fd, s, &found); s.from = found.to) {
		*first = *first ? *first : found.from;
		n += (unsigned)(found.to - found.from);
	}
	return n;
}

static void
nobody_is_there(void **state)
{
	struct queue q;
	int64_t first;

	(void)state;
	begin(&q);
	add(&q, F_WRLCK, META);
	add(&q, F_RDLCK, 7); /* somebody who has waited */
	assert_false(line_is_used(q.fd));
	assert_int_equal(tickets_last(q.fd, 0, 1, NUMBER_LIMIT), 0);
	assert_int_equal(tickets_last(q.fd, 0, 7, 8), 0);
	assert_int_equal(count(q.fd, (struct span){1, 9}, &first), 0);
	end(&q);
}

/*
 * The kernel then reports 10 first: with byte 10 locked before byte 5 it is not the
 * lowest that comes.
 */
static void
the_last_one_is_found_in_any_order(void **state)
{
	static const int64_t numbers[] = {
	    10, 5, 40, 6, 1, 39, NUMBER_LIMIT - 1, 12, 1000000};
	static const int64_t hints[] = {1, 2, 5, 11, 41, 42, 1000001, NUMBER_LIMIT};
	static const struct {
		int64_t limit, last;
		unsigned before;
	} rows[] = {{1, 0, 0}, {2, 1, 1}, {5, 1, 1}, {6, 5, 2}, {10, 6, 3}, {11, 10, 4},
	    {12, 10, 4}, {13, 12, 5}, {39, 12, 5}, {40, 39, 6}, {1000, 40, 7},
	    {NUMBER_LIMIT, NUMBER_LIMIT - 1, 9}};
	struct queue q;
	int64_t first;

	(void)state;
	begin(&q);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		add(&q, F_WRLCK, numbers[i]);
	assert_true(line_is_used(q.fd));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct span below = {1, rows[i].limit};

		for (size_t h = 0; h < sizeof hints / sizeof *hints; h++)
			assert_int_equal(
			    tickets_last(q.fd, 0,
				hints[h] < rows[i].limit ? hints[h] : rows[i].limit,
				rows[i].limit),
			    rows[i].last);
		assert_int_equal(count(q.fd, below, &first), rows[i].before);
		assert_int_equal(first, rows[i].before > 0 ? 1 : 0);
	}
	end(&q);
}

static void
random_queues(void **state)
{
	(void)state;
	srand(5);
	for (int round = 0; round < 300; round++) {
		int64_t limit = 1 + rand() % 60, hint = 1 + rand() % limit, first = 0,
			last = 0, found;
		bool drawn[61] = {false};
		unsigned before = 0;
		struct queue q;

		begin(&q);
		for (int i = rand() % 20; i > 0; i--) {
			int64_t number = 1 + rand() % 60;

			if (!drawn[number])
				add(&q, F_WRLCK, number);
			drawn[number] = true;
		}
		for (int64_t i = 1; i < limit; i++) {
			last = drawn[i] ? i : last;
			first = first ? first : last;
			before += drawn[i];
		}
		assert_int_equal(tickets_last(q.fd, 0, hint, limit), last);
		assert_int_equal(count(q.fd, (struct span){1, limit}, &found), before);
		assert_int_equal(found, first);
		end(&q);
	}
}

static void
what_cannot_be_asked_is_an_error(void **state)
{
	int fd = open("/dev/null", O_RDWR), gone;
	int64_t first;

	(void)state;
	gone = dup(fd);
	close(gone);
	close(fd);
	assert_int_equal(tickets_last(gone, 0, 1, NUMBER_LIMIT), -1);
	assert_int_equal(count(gone, byte_5, &first), 0);
	assert_false(line_is_used(gone));
	assert_int_equal(tickets_lock(gone, F_WRLCK, 1), -1);
}

static bool
has_ended(const struct ticket_wait *w, int ms)
{
	struct pollfd p = {.fd = tickets_done(w), .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void
a_thread_waits_for_a_byte(void **state)
{
	struct ticket_wait *w;
	struct queue q;

	(void)state;
	begin(&q);
	add(&q, F_WRLCK, 5);
	w = tickets_wait(q.fd, false, F_RDLCK, byte_5);
	assert_non_null(w);
	assert_false(has_ended(w, 20));
	close(q.others[--q.n]);
	assert_true(has_ended(w, 60000));
	assert_true(tickets_waited(w));
	add(&q, F_RDLCK, 5);
	/* it is locked by the file that waited */
	assert_int_equal(tickets_lock(q.others[0], F_WRLCK, 5), -1);
	end(&q);
	assert_null(tickets_wait(q.fd, false, F_RDLCK, byte_5)); /* closed by now */
}

/*
 * The caller may close the file at any time, and its number soon means another one: that
 * is left alone.
 */
static void
a_thread_locks_the_file_it_was_given(void **state)
{
	(void)state;
	for (int round = 0; round < 300; round++) {
		struct ticket_wait *w;
		struct queue q, other;
		int number;

		begin(&q);
		begin(&other);
		add(&q, F_WRLCK, 5);
		number = q.fd;
		w = tickets_wait(q.fd, false, F_RDLCK, byte_5);
		assert_non_null(w);
		assert_int_equal(dup2(other.fd, number), number);
		close(q.others[--q.n]);
		assert_true(has_ended(w, 60000));
		assert_true(tickets_waited(w));
		add(&other, F_WRLCK, 5);
		end(&other);
		end(&q);
	}
}

static void
a_wait_is_abandoned(void **state)
{
	struct ticket_wait *w;
	struct queue q;

	(void)state;
	begin(&q);
	add(&q, F_WRLCK, 5);
	w = tickets_wait(q.fd, false, F_RDLCK, byte_5);
	assert_non_null(w);
	assert_false(tickets_waited(w));
	end(&q);
}

/* It may get the lock before or after; then nobody is there who would give it back. */
static void
a_wait_that_was_abandoned_locks_nothing(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		struct ticket_wait *w;
		struct queue q;
		int other;

		begin(&q);
		add(&q, F_WRLCK, 5);
		w = tickets_wait(q.fd, false, F_RDLCK, byte_5);
		other = open(q.path, O_RDWR);
		assert_true(w && other >= 0);
		if (round % 2)
			usleep(round * 10);
		close(q.others[--q.n]);
		if (tickets_waited(w))
			tickets_unlock(q.fd, byte_5);
		for (int i = 0; tickets_lock(other, F_WRLCK, 5) != 0; i++) {
			assert_true(i < 60000);
			usleep(1000);
		}
		close(other);
		end(&q);
	}
}

/* In the end, after the locks of all others in it have gone one by one. */
static void
a_thread_waits_for_a_range(void **state)
{
	struct ticket_wait *w;
	struct queue q;

	(void)state;
	begin(&q);
	for (int64_t byte = 9; byte > 3; byte--)
		add(&q, F_WRLCK, byte);
	w = tickets_wait(q.fd, false, F_RDLCK, (struct span){4, 9});
	assert_non_null(w);
	while (q.n > 2) {
		assert_false(has_ended(w, 5));
		close(q.others[--q.n]);
	}
	assert_false(has_ended(w, 20));
	close(q.others[--q.n]);
	assert_true(has_ended(w, 60000) && tickets_waited(w));
	end(&q);
}

static void
a_watch_tells_of_rings_and_of_the_last_close(void **state)
{
	struct pollfd p = {.events = POLLIN};
	struct queue q;

	(void)state;
	begin(&q);
	add(&q, F_WRLCK, 5);
	p.fd = tickets_watch(q.fd);
	assert_true(p.fd >= 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	tickets_wake(q.others[0]);
	assert_int_equal(poll(&p, 1, 60000), 1);
	tickets_watched(p.fd);
	assert_int_equal(poll(&p, 1, 0), 0);
	close(dup(q.others[0]));
	assert_int_equal(poll(&p, 1, 0), 0);
	close(q.others[--q.n]);
	assert_int_equal(poll(&p, 1, 60000), 1);
	tickets_unwatch(p.fd);
	tickets_unwatch(-1);
	while (fcntl(p.fd, F_GETFD) >= 0)
		usleep(1000);
	end(&q);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nobody_is_there),
	    cmocka_unit_test(the_last_one_is_found_in_any_order),
	    cmocka_unit_test(random_queues),
	    cmocka_unit_test(what_cannot_be_asked_is_an_error),
	    cmocka_unit_test(a_thread_waits_for_a_byte),
	    cmocka_unit_test(a_thread_locks_the_file_it_was_given),
	    cmocka_unit_test(a_wait_is_abandoned),
	    cmocka_unit_test(a_wait_that_was_abandoned_locks_nothing),
	    cmocka_unit_test(a_thread_waits_for_a_range),
	    cmocka_unit_test(a_watch_tells_of_rings_and_of_the_last_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
