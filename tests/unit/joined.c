/*
 * joined.c - Goal of these tests: a wait in the kernel that ends too late never has the
 * lock, however little too late it is, and one that the kernel refuses ends in time.
 */
#include "backends/common/instant.h"
#include "backends/common/task.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

static pthread_t caller;
static atomic_bool stored, go;

/* The thread stops between its store and its load until `go`. */
static bool
load_later(atomic_bool *flag)
{
	if (!pthread_equal(pthread_self(), caller)) {
		atomic_store(&stored, true);
		while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
			usleep(1000);
	}
	return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

static bool as_nfs, cannot_wait, cannot_ask, cannot_open, slow;

/* NFS makes of it what fcntl(2) has, which wants one that is open for writing. */
static int
flock_as_nfs(int fd, int operation)
{
	if (as_nfs && (operation & LOCK_EX) &&
	    (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
		errno = EBADF;
		return -1;
	}
	if (cannot_wait && (operation & LOCK_EX) && !(operation & LOCK_NB)) {
		errno = ENOLCK;
		return -1;
	}
	return flock(fd, operation);
}

/* How often a file of another user's in /tmp seems to be missing, as if made just now. */
static int missing;

/* errno of the kernel, or 0. */
static int
refused_open(const char *path, int flags, ...)
{
	if (strncmp(path, "/tmp/", 5) != 0)
		return 0;
	if (missing > 0 && missing-- > 0)
		return flags & O_CREAT ? EACCES : ENOENT;
	return cannot_open ? EACCES : 0;
}

/* What the kernel lists: NULL: all; "": cannot be read. */
static const char *listed, *listed_first; /* the second: once */

static FILE *
open_listed(const char *path, const char *mode)
{
	if (slow && strstr(path, "/fdinfo/"))
		usleep(20 * 1000);
	if (strcmp(path, "/proc/locks") == 0 && (listed_first || listed)) {
		path = listed_first ? listed_first : listed;
		listed_first = NULL;
	}
	return fopen(path, mode);
}

/* Copies of these files, that load in this way, beside those of the library. */
#undef atomic_load
#define atomic_load load_later
#define fopen(path, mode) open_listed(path, mode)
#define open(path, ...) \
	((errno = refused_open(path, __VA_ARGS__, 0)) ? -1 : open(path, __VA_ARGS__))
#define fcntl(fd, command, ...) \
	(cannot_ask && (command) == F_OFD_GETLK ? (errno = EIO, -1) \
						: fcntl(fd, command, __VA_ARGS__))
#define flock(fd, operation) flock_as_nfs(fd, operation)
#define tickets_lock test_tickets_lock
#define tickets_unlock test_tickets_unlock
#define tickets_lock_file test_tickets_lock_file
#define tickets_look test_tickets_look
#define tickets_last test_tickets_last
#define tickets_next test_tickets_next
#define tickets_wait test_tickets_wait
#define tickets_done test_tickets_done
#define tickets_waited test_tickets_waited
#define tickets_watch test_tickets_watch
#define tickets_watched test_tickets_watched
#define tickets_unwatch test_tickets_unwatch
#define tickets_wake test_tickets_wake
#define joined_open test_joined_open
#include "backends/file/tickets.c"
#include "backends/file/joined.c"

struct test {
	struct host host;
	int other; /* has the lock until the wait is over */
	enum woke woke;
};

static enum woke
wait_too_short(struct host *host, int fd, short events, instant until)
{
	struct test *t = (struct test *)host;

	(void)fd, (void)events;
	assert_int_equal(flock(t->other, LOCK_UN), 0);
	while (!__atomic_load_n(&stored, __ATOMIC_SEQ_CST) || instant_now() < until)
		usleep(1000);
	return t->woke;
}

/* Both ways: the thread gives the lock back, or we do. */
static void
what_comes_too_late_is_not_taken(enum woke woke, enum rc expected)
{
	const struct claim claim = {.key = "k", .kind = KIND_EXCLUSIVE};
	struct test t = {.host = {.wait = wait_too_short, .alert = -1}, .woke = woke};
	char path[] = "/tmp/unit_joined.XXXXXX";
	struct store *s;
	struct grant g;
	struct fault f;

	caller = pthread_self();
	stored = go = false;
	t.other = mkstemp(path);
	assert_true(t.other >= 0);
	assert_int_equal(flock(t.other, LOCK_EX), 0);
	assert_int_equal(joined_open(&s, &t.host, path, NULL, &f), RC_OK);
	assert_int_equal(
	    s->backend->lock->acquire(s, &claim, instant_now() + NS_PER_MS, &g, &f),
	    expected);
	go = true;
	for (int i = 0; i < 60000 && flock(t.other, LOCK_EX | LOCK_NB) != 0; i++)
		usleep(1000);
	assert_int_equal(flock(t.other, LOCK_EX | LOCK_NB), 0);
	s->backend->close(s);
	close(t.other);
	unlink(path);
}

static void
a_wait_that_is_over_has_nothing(void **state)
{
	(void)state;
	what_comes_too_late_is_not_taken(WOKE_TIMEOUT, RC_BUSY);
}

static void
a_wait_that_is_stopped_has_nothing(void **state)
{
	(void)state;
	what_comes_too_late_is_not_taken(WOKE_STOP, RC_STOP);
}

struct refused {
	struct host host;
	enum woke woke; /* from the second pause on */
	unsigned pauses;
	instant
	    due; /* what is done next is done by then, unless the machine stands still */
	bool stood_still;
};

#define STANDS_STILL (100 * NS_PER_MS)

/* A thread is waited for; a pause is only counted, and then over. */
static enum woke
count_pause(struct host *host, int fd, short events, instant until)
{
	struct refused *r = (struct refused *)host;
	struct pollfd p = {fd, events, 0};

	if (fd >= 0)
		return poll(&p, 1, 10000) == 1 ? WOKE_READY : WOKE_TIMEOUT;
	r->pauses++;
	r->stood_still = r->stood_still || instant_now() > r->due;
	assert_true(until <= instant_now() + NS_PER_S);
	if (r->pauses > 1 && r->woke == WOKE_STOP)
		return WOKE_STOP;
	while (instant_now() < until)
		usleep(1000);
	r->due = instant_now() + STANDS_STILL;
	r->stood_still = r->stood_still || instant_now() > until + STANDS_STILL;
	return WOKE_TIMEOUT;
}

/* With -w and with a signal: what the kernel refuses each time is no hang, and no busy one. */
static void
a_wait_that_is_refused_ends_in_time(void **state)
{
	const struct claim claim = {.key = "k", .kind = KIND_EXCLUSIVE};
	char path[] = "/tmp/unit_joined.XXXXXX";
	int other = mkstemp(path);

	(void)state;
	stored = go = cannot_wait = true;
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	for (int i = 0; i < 2; i++) {
		struct refused r = {.host = {.wait = count_pause, .alert = -1},
		    .woke = i ? WOKE_STOP : WOKE_TIMEOUT,
		    .due = instant_now() + STANDS_STILL};
		instant until = i ? NEVER : instant_now() + 500 * NS_PER_MS;
		struct store *s;
		struct grant g;
		struct fault f;

		assert_int_equal(joined_open(&s, &r.host, path, NULL, &f), RC_OK);
		assert_int_equal(s->backend->lock->acquire(s, &claim, until, &g, &f),
		    i ? RC_STOP : RC_BUSY);
		assert_in_range(r.pauses, r.stood_still ? 1 : 2,
		    i ? 5 : 7); /* of 10, 20, 40 ms and so on */
		s->backend->close(s);
	}
	cannot_wait = false;
	close(other);
	unlink(path);
}

static void
on_nfs_it_is_opened_for_writing(void **state)
{
	const struct claim claim = {.key = "k", .kind = KIND_EXCLUSIVE};
	struct test t = {
	    .host = {.wait = wait_too_short, .alert = -1}, .woke = WOKE_TIMEOUT};
	char path[] = "/tmp/unit_joined.XXXXXX";
	struct store *s;
	struct grant g;
	struct fault f;

	(void)state;
	t.other = mkstemp(path);
	stored = as_nfs = true;
	assert_int_equal(joined_open(&s, &t.host, path, NULL, &f), RC_OK);
	assert_int_equal(s->backend->lock->acquire(s, &claim, 0, &g, &f), RC_OK);
	assert_int_equal(flock(t.other, LOCK_SH | LOCK_NB), -1);
	assert_int_equal(s->backend->lock->release(s, (struct outcome){0}, 0, &f), RC_OK);
	assert_int_equal(flock(t.other, LOCK_SH | LOCK_NB), 0);
	as_nfs = false;
	s->backend->close(s);
	close(t.other);
	unlink(path);
}

/* fs.protected_regular: who opens it with O_CREAT is denied, though it is there. */
static void
what_another_user_makes_meanwhile_is_locked(void **state)
{
	const struct claim claim = {.key = "k", .kind = KIND_EXCLUSIVE};
	struct test t = {
	    .host = {.wait = wait_too_short, .alert = -1}, .woke = WOKE_TIMEOUT};
	char path[] = "/tmp/unit_joined.XXXXXX";
	struct store *s;
	struct grant g;
	struct fault f;

	(void)state;
	close(mkstemp(path));
	missing = 2;
	assert_int_equal(joined_open(&s, &t.host, path, NULL, &f), RC_OK);
	assert_int_equal(s->backend->lock->acquire(s, &claim, 0, &g, &f), RC_OK);
	s->backend->close(s);
	unlink(path);
}

static bool
count_holders(void *ctx, const struct entry *e, int64_t now)
{
	(void)now;
	*(unsigned *)ctx += e->kind == ENTRY_HOLDER;
	return true;
}

static enum rc
count(const char *path, const char *lock, unsigned *n)
{
	const struct look look = {.key = "k",
	    .see = count_holders,
	    .ctx = n,
	    .until = NEVER,
	    .patience = NEVER};
	struct host host = {.alert = -1};
	struct store *s;
	struct fault f;
	enum rc rc;

	*n = 0;
	assert_int_equal(joined_open(&s, &host, path, lock, &f), RC_OK);
	rc = s->backend->admin->each(s, &look, &f);
	s->backend->close(s);
	return rc;
}

/* The kernel may call the device of a file otherwise than stat(2), or may show nothing. */
static void
what_is_not_listed_is_not_free(void **state)
{
	char path[] = "/tmp/unit_joined.XXXXXX";
	int fd = mkstemp(path);
	unsigned n;

	(void)state;
	assert_int_equal(count(path, "fcntl", &n), RC_OK);
	assert_int_equal(n, 0);
	assert_int_equal(tickets_lock_file(fd, false, F_WRLCK), 0);
	for (int i = 0; i < 2; i++) {
		listed = i ? "/dev/null" : NULL;
		assert_int_equal(count(path, "fcntl", &n), RC_OK);
		assert_int_equal(n, 1);
	}
	cannot_ask = true;
	assert_int_equal(count(path, "fcntl", &n), RC_AGAIN);
	cannot_ask = false;
	cannot_open = true;
	assert_int_equal(count(path, "fcntl", &n), RC_DENIED);
	assert_int_equal(count(path, "flock", &n), RC_OK);
	cannot_open = false;
	listed = "";
	assert_int_equal(count(path, "fcntl", &n), RC_AGAIN);
	assert_int_equal(count(path, "flock", &n), RC_AGAIN);
	listed = NULL;
	close(fd);
	unlink(path);
}

/* Others lock and unlock while the list is read. */
static void
what_is_listed_twice_is_there_once(void **state)
{
	char path[] = "/tmp/unit_joined.XXXXXX", list[] = "/tmp/unit_joined.XXXXXX";
	int fd = mkstemp(path), text = mkstemp(list);
	struct stat st;
	unsigned n;

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	for (int i = 1; i <= 2; i++)
		dprintf(text, "%d: POSIX  ADVISORY  WRITE %d %02x:%02x:%llu 0 EOF\n", i,
		    (int)getpid(), major(st.st_dev), minor(st.st_dev),
		    (unsigned long long)st.st_ino);
	assert_int_equal(tickets_lock_file(fd, false, F_WRLCK), 0);
	listed_first = list;
	assert_int_equal(count(path, "fcntl", &n), RC_OK);
	assert_int_equal(n, 1);
	close(fd);
	close(text);
	unlink(path);
	unlink(list);
}

/* A process with many descriptors, on a busy machine: who took the lock is told in time. */
static void
names_are_looked_for_in_time(void **state)
{
	char path[] = "/tmp/unit_joined.XXXXXX", list[] = "/tmp/unit_joined.XXXXXX";
	int fd = mkstemp(path), many[100], text = mkstemp(list);
	const struct joined j = {.path = path, .by_flock = true, .fd = -1};
	struct locker found[LOCKERS_MOST];
	struct fault f;
	size_t n;
	instant begun;
	struct stat st;

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	for (int i = 0; i < 3; i++)
		dprintf(text, "%d: FLOCK  ADVISORY  WRITE %d %02x:%02x:%llu 0 EOF\n",
		    i + 1, (int)getpid(), major(st.st_dev), minor(st.st_dev),
		    (unsigned long long)st.st_ino);
	for (size_t i = 0; i < 100; i++)
		many[i] = dup(fd);
	listed = list;
	slow = true;
	begun = instant_now();
	assert_int_equal(
	    read_lockers(&j, &st, begun + 100 * NS_PER_MS, found, &n, &f), RC_OK);
	assert_true(instant_now() - begun < NS_PER_S);
	slow = false;
	listed = NULL;
	assert_int_equal(n, 3);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(found[i].pid, getpid());
		assert_string_not_equal(found[i].user, "");
	}
	for (size_t i = 0; i < 100; i++)
		close(many[i]);
	close(fd);
	close(text);
	unlink(path);
	unlink(list);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_wait_that_is_over_has_nothing),
	    cmocka_unit_test(a_wait_that_is_stopped_has_nothing),
	    cmocka_unit_test(a_wait_that_is_refused_ends_in_time),
	    cmocka_unit_test(what_is_not_listed_is_not_free),
	    cmocka_unit_test(what_is_listed_twice_is_there_once),
	    cmocka_unit_test(names_are_looked_for_in_time),
	    cmocka_unit_test(on_nfs_it_is_opened_for_writing),
	    cmocka_unit_test(what_another_user_makes_meanwhile_is_locked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
