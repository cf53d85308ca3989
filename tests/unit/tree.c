/*
 * tree.c - Goal of these tests: what the command has brought into the
 * world is found and stopped, and nothing else is.
 */
#include "cmd/supervise/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Forks a process that sleeps until it is killed. */
static pid_t
sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* also behind a test that fails */
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

/*
 * Forks a family: a child (returned) and a grandchild (*grand), which leaves
 * session and group, and runs `program`, if not "", or, if NULL, is named as a hold is; with
 * `orphan` it loses its parent too.
 */
static pid_t
family_with(const char *program, pid_t *grand, bool orphan)
{
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		pid_t self = fork() == 0 ? setsid() : 0;

		if (self > 0 && !program)
			prctl(PR_SET_NAME, HOLD_NAME);
		if (self > 0 && write(ends[1], &self, sizeof self) < 0)
			_exit(1);
		if (self > 0 && program && *program)
			execlp(program, program, "1000", NULL);
		close(ends[1]);
		if (self == 0 && orphan)
			_exit(0);
		for (;;)
			pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], grand, sizeof *grand), sizeof *grand);
	assert_int_equal(read(ends[0], &(char){0}, 1), 0); /* it runs the program */
	close(ends[0]);
	return pid;
}

static pid_t
family(pid_t *grand, bool orphan)
{
	return family_with("sleep", grand, orphan);
}

static void
bury(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void
states(void **state)
{
	pid_t child = sleeper();

	(void)state;
	assert_non_null(strchr("RS", process_state(child)));
	kill(child, SIGSTOP);
	waitpid(child, NULL, WUNTRACED);
	assert_int_equal(process_state(child), 'T');
	kill(child, SIGKILL);
	waitid(P_PID, child, NULL, WEXITED | WNOWAIT);
	assert_int_equal(process_state(child), 'Z');
	assert_int_equal(process_kin(getpid(), child), KIN_YES);
	bury(child);
	assert_int_equal(process_state(child), 0);
}

/* The name in /proc is the process's own to choose. */
static void
hostile_names_do_not_confuse(void **state)
{
	static const char *const names[] = {
	    ") Z 1", "((((", "a b c", "\n", "", "))))))))))))))"};
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int ends[2];
		pid_t child;
		char c;

		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (child == 0) {
			prctl(PR_SET_NAME, names[i]);
			close(ends[1]);
			for (;;)
				pause();
		}
		close(ends[1]);
		assert_int_equal(read(ends[0], &c, 0), 0);
		while (process_state(child) == 'R')
			usleep(1000);
		assert_int_equal(process_state(child), 'S');
		assert_int_equal(process_kin(getpid(), child), KIN_YES);
		close(ends[0]);
		bury(child);
	}
}

static void
descendants_are_contained(void **state)
{
	pid_t grand, child = family(&grand, false), other = sleeper();

	(void)state;
	assert_int_equal(process_kin(getpid(), child), KIN_YES);
	assert_int_equal(process_kin(getpid(), grand), KIN_YES);
	assert_int_equal(process_kin(child, grand), KIN_YES);
	assert_int_equal(process_kin(child, other), KIN_NO);
	assert_int_equal(process_kin(child, child), KIN_NO);
	assert_int_equal(process_kin(child, getpid()), KIN_NO);
	assert_int_equal(process_kin(getpid(), 1), KIN_NO);
	assert_int_equal(process_kin(getpid(), 0), KIN_HIDDEN);
	kill(grand, SIGKILL);
	bury(child);
	bury(other);
	waitpid(grand, NULL, 0);
}

/* Signals reach the whole family below its root, not the root, not others. */
static void
signal_reaches_descendants_only(void **state)
{
	pid_t grand, child = family(&grand, false), other = sleeper();
	int status;

	(void)state;
	assert_int_equal(tree_signal(child, &(struct aim){.sig = SIGKILL}), 1);
	assert_int_equal(waitpid(child, &status, WNOHANG), 0);
	assert_int_equal(waitpid(other, &status, WNOHANG), 0);
	kill(child, SIGKILL); /* now the grandchild is ours, dead as it is */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(waitpid(grand, &status, 0), grand);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	bury(other);
}

/* setsid and a double fork do not escape a subreaper. */
static void
orphans_are_found(void **state)
{
	pid_t grand, child = family(&grand, true);
	int status;

	(void)state;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(process_kin(getpid(), grand), KIN_YES);
	assert_int_equal(tree_signal(getpid(), &(struct aim){.sig = SIGKILL}), 1);
	assert_int_equal(waitpid(grand, &status, 0), grand);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void
stopped_processes_are_woken_to_obey(void **state)
{
	pid_t child = sleeper();
	int status;

	(void)state;
	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	assert_int_equal(
	    tree_signal(getpid(), &(struct aim){.sig = SIGTERM, .wake = true}), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/*
 * Who is there besides the keeper is left alone, with all that they beget, however many
 * they are.
 */
static void
strangers_are_spared(void **state)
{
	enum { N = 100 };
	struct processes spared = {0};
	pid_t grand, keeper = sleeper(), child = family(&grand, true), own;
	int status;

	(void)state;
	for (int i = 0; i < N; i++)
		sleeper();
	/* the grandchild is ours now */
	assert_int_equal(waitpid(child, &status, 0), child);
	tree_spare(&spared, keeper);
	assert_int_equal(spared.n, N + 1);
	own = sleeper();
	assert_int_equal(
	    tree_signal(getpid(), &(struct aim){.sig = SIGKILL, .spared = &spared}), 2);
	assert_int_equal(waitpid(own, &status, 0), own);
	assert_int_equal(waitpid(keeper, &status, 0), keeper);
	assert_int_equal(waitpid(-1, &status, WNOHANG), 0);
	tree_spare(&spared, keeper); /* too late: who is ours now may have been its */
	assert_int_equal(spared.n, N + 1);
	assert_int_equal(tree_signal(getpid(), &(struct aim){.sig = SIGKILL}), N + 1);
	while (waitpid(-1, &status, 0) > 0)
		continue;
	free(spared.at);
}

/*
 * Without a descriptor nobody can be told from anybody: those that are spared stay so, and it
 * is to be asked again.
 */
static void
a_look_without_descriptors_spares_nobody_anew(void **state)
{
	struct processes spared = {0};
	pid_t keeper = sleeper(), other = sleeper();
	struct rlimit none, old;

	(void)state;
	process_reserve();
	assert_true(tree_spare(&spared, keeper));
	assert_int_equal(spared.n, 1);
	process_forget();
	getrlimit(RLIMIT_NOFILE, &old);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_false(tree_spare(&spared, keeper));
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(spared.n, 1);
	assert_true(tree_spare(&spared, keeper));
	assert_int_equal(spared.n, 1);
	bury(keeper);
	bury(other);
	free(spared.at);
	process_reserve();
}

/* A sleeper with this number, where the kernel lets us choose; else another one. */
static pid_t
sleeper_with_number(pid_t number)
{
	char text[16];
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY),
	    n = snprintf(text, sizeof text, "%d", number - 1);

	if (fd >= 0 && write(fd, text, n) < 0)
		errno = 0; /* not ours to choose */
	if (fd >= 0)
		close(fd);
	return sleeper();
}

/* A number is given out again: it is the time of its start that makes a process itself. */
static void
the_number_of_one_that_was_spared_spares_nobody(void **state)
{
	struct processes spared = {0};
	pid_t keeper = sleeper(), old = sleeper(), other = 0;

	(void)state;
	tree_spare(&spared, keeper);
	assert_int_equal(spared.n, 1);
	bury(old);
	usleep(50000); /* the kernel counts in clock ticks */
	for (int i = 0; i < 20 && other != old; i++) {
		if (other)
			bury(other);
		other = sleeper_with_number(old);
	}
	if (other == old)
		assert_int_equal(tree_signal(getpid(),
				     &(struct aim){.sig = SIGKILL, .spared = &spared}),
		    2);
	tree_signal(getpid(), &(struct aim){.sig = SIGKILL});
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	free(spared.at);
	if (other != old)
		skip();
}

/* The command gets its signal once, and so does each of its group. */
static void
nobody_is_signalled_twice(void **state)
{
	int ends[2], sent = 0;
	sigset_t term;
	pid_t command;
	char c;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	sigemptyset(&term);
	sigaddset(&term, SIGRTMIN); /* these are queued */
	sigprocmask(SIG_BLOCK, &term, NULL);
	command = fork();
	if (command == 0) {
		setpgid(0, 0);
		for (int i = fork() == 0 || write(ends[1], "", 1) < 0; i < 2; i++)
			while (sigwait(&term, &sent) != 0 || write(ends[1], "", 1) < 0)
				continue;
		pause();
	}
	sigprocmask(SIG_UNBLOCK, &term, NULL);
	assert_int_equal(read(ends[0], &c, 1), 1);
	assert_int_equal(
	    tree_signal(getpid(),
		&(struct aim){.sig = SIGRTMIN, .command = command, .leads = true}),
	    2);
	assert_int_equal(read(ends[0], &c, 1), 1);
	assert_int_equal(read(ends[0], &c, 1), 1);
	usleep(50000);
	close(ends[1]);
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(read(ends[0], &c, 1), -1);
	tree_signal(
	    getpid(), &(struct aim){.sig = SIGKILL, .command = command, .leads = true});
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	close(ends[0]);
}

/* Kills level by level as dlock does; returns how many looks that took, 0: in vain. */
static int
kill_all(void)
{
	for (int looks = 1; looks < 100; looks++) {
		tree_signal(getpid(), &(struct aim){.sig = SIGKILL});
		usleep(10000);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		if (!process_has_children())
			return looks;
	}
	return 0;
}

static void *
rest(void *unused)
{
	while (pause() < 0)
		continue;
	return unused;
}

/* It looks like a zombie to /proc, but not to who waits for it. */
static void
a_process_without_its_first_thread_lives(void **state)
{
	pthread_t thread;
	struct process shown;
	pid_t child, lone;
	int ends[2], status;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		lone = fork();
		if (lone == 0) {
			pthread_create(&thread, NULL, rest, NULL);
			pthread_exit(NULL);
		}
		if (write(ends[1], &lone, sizeof lone) > 0)
			waitpid(lone, NULL, 0);
		_exit(0);
	}
	assert_int_equal(read(ends[0], &lone, sizeof lone), sizeof lone);
	shown.pid = lone;
	while (process_look_up(&shown) && shown.state != 'Z')
		usleep(1000);
	while (process_state(lone) == 'R') /* the other thread has yet to sleep */
		usleep(1000);
	assert_int_equal(process_state(lone), 'S');
	kill(lone, SIGSTOP);
	while (process_state(lone) != 'T')
		usleep(1000);
	assert_int_equal(
	    tree_signal(child, &(struct aim){.sig = SIGTERM, .wake = true}), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	close(ends[0]);
	close(ends[1]);
}

/* Those in reserve let a sweep see the whole tree. */
static void
descriptors_are_in_reserve(void **state)
{
	struct rlimit full, old;
	int last;
	pid_t grand;

	(void)state;
	process_reserve();
	family(&grand, false);
	last = dup(0);
	close(last);
	getrlimit(RLIMIT_NOFILE, &old);
	full = old;
	full.rlim_cur = last;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
	assert_int_equal(dup(0), -1);
	assert_int_equal(tree_signal(getpid(), &(struct aim){.sig = SIGKILL}), 2);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_true(kill_all() > 0);
	process_reserve();
}

static void
large_families_are_found_whole(void **state)
{
	enum { N = 400 };
	int status, dead = 0;

	(void)state;
	for (int i = 0; i < N; i++)
		sleeper();
	assert_int_equal(tree_signal(getpid(), &(struct aim){.sig = SIGKILL}), N);
	while (waitpid(-1, &status, 0) > 0)
		dead += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	assert_int_equal(dead, N);
}

/* How often a tree has forked, and how many of it there are. */
struct births {
	_Atomic int n, living;
};

/* Forks as fast as it may, at most so many at a time, each in a group of its own. */
static void
breed(struct births *b)
{
	alarm(60); /* bounded whatever happens */
	for (;;) {
		pid_t pid;

		while (waitpid(-1, NULL, WNOHANG) > 0)
			atomic_fetch_sub(&b->living, 1);
		if (atomic_load(&b->n) >= 20000)
			_exit(0);
		if (atomic_fetch_add(&b->living, 1) >= 60) {
			atomic_fetch_sub(&b->living, 1);
			if (waitpid(-1, NULL, 0) < 0)
				pause(); /* room is made by those that have children */
			atomic_fetch_sub(&b->living, 1);
			continue;
		}
		pid = fork();
		if (pid > 0)
			continue;
		setpgid(0, 0);
		alarm(60);
		if (atomic_fetch_add(&b->n, 1) % 4) {
			usleep(2000);
			_exit(0);
		}
	}
}

/* Who is killed would make room for new ones: so nobody forks any more when the killing begins. */
static void
a_tree_that_forks_is_stopped_before_it_is_killed(void **state)
{
	struct births *b = mmap(
	    NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int n;

	(void)state;
	assert_ptr_not_equal(b, MAP_FAILED);
	for (int round = 0; round < 5; round++) {
		atomic_store(&b->n, 0);
		atomic_store(&b->living, 0);
		if (fork() == 0)
			breed(b);
		for (int ms = 0; atomic_load(&b->n) < 200; ms++) {
			assert_true(ms < 50000); /* else they have ended unseen */
			usleep(1000);
		}
		tree_kill(getpid(), &(struct aim){0});
		n = atomic_load(&b->n);
		while (waitpid(-1, NULL, 0) > 0) /* all are dead, or dying */
			continue;
		assert_int_equal(atomic_load(&b->n), n);
		assert_int_equal(tree_kill(getpid(), &(struct aim){0}), 0);
	}
	munmap(b, sizeof *b);
}

static void *
bear(void *births)
{
	struct births *b = births;

	for (int i = 0; i < 1500 && atomic_load(&b->living); i++) {
		if (fork() == 0)
			for (;;)
				pause();
		atomic_fetch_add(&b->n, 1);
		usleep(2000);
	}
	return NULL;
}

/* New ones come without an end; the lease does not wait for that. */
static void
who_is_known_is_killed_in_time(void **state)
{
	struct births b = {.living = 1};
	instant began;
	int64_t took;
	pthread_t mother;

	(void)state;
	/* where it may, ahead of what else is built and tested: the time is real */
	setpriority(PRIO_PROCESS, 0, -20);
	assert_int_equal(pthread_create(&mother, NULL, bear, &b), 0);
	while (atomic_load(&b.n) < 20)
		usleep(1000);
	began = instant_now();
	tree_kill(getpid(), &(struct aim){.by = began + 300 * NS_PER_MS});
	took = instant_now() - began;
	atomic_store(&b.living, 0);
	pthread_join(mother, NULL);
	while (tree_kill(getpid(), &(struct aim){0}) > 0)
		continue;
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	setpriority(PRIO_PROCESS, 0, 0);
	assert_true(took < HUNT_PATIENCE / 4 * 3);
}

/* As one does that loses its parent in another pid namespace: below us no longer, but seen. */
static void
who_was_seen_and_has_escaped_is_killed(void **state)
{
	pid_t grand, child = family(&grand, false), lonely = sleeper();
	int status;

	(void)state;
	assert_int_equal(tree_signal(child, &(struct aim){.sig = 0}), 1);
	bury(child);
	assert_int_equal(process_kin(lonely, grand), KIN_NO);
	tree_kill(lonely, &(struct aim){.sig = 0});
	assert_int_equal(waitpid(grand, &status, 0), grand);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	bury(lonely);
}

/* Where there is no memory for the list it is cut off, and it is not known who is there. */
static void
a_list_that_was_cut_off_shows_nobody_gone(void **state)
{
	enum { N = 600 };
	pid_t lonely = sleeper(), pids[N];
	struct rlimit none, old;
	void *volatile room, *all = NULL;
	size_t seen;

	(void)state;
	for (int i = 0; i < N; i++)
		pids[i] = sleeper();
	assert_int_equal(tree_signal(lonely, &(struct aim){.sig = 0}), 0);
	getrlimit(RLIMIT_AS, &old);
	none = old;
	none.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
	for (size_t size = 1 << 20; size >= 64; size /= 2)
		while ((room = malloc(size))) {
			*(void **)room = all;
			all = room;
		}
	seen = tree_signal(lonely, &(struct aim){.sig = 0});
	setrlimit(RLIMIT_AS, &old);
	while ((room = all)) {
		all = *(void **)room;
		free(room);
	}
	assert_int_not_equal(seen, 0);
	assert_int_equal(tree_signal(lonely, &(struct aim){.sig = 0}), 0);
	for (int i = 0; i < N; i++)
		kill(pids[i], SIGKILL);
	kill(lonely, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
}

static int
become_subreaper(void **state)
{
	(void)state;
	process_reserve();
	return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* ---- outside ---- */

static void
await_death(pid_t pid)
{
	while (process_state(pid) != 'Z' && process_state(pid) != 0)
		usleep(1000);
}

/*
 * Who is known once stays known when his parent dies; what holds for others is none of
 * them, nor is anybody else.
 */
static void
outside_processes_are_known_by_themselves(void **state)
{
	pid_t grand, child = family(&grand, false), other = sleeper();
	struct outsider o;

	(void)state;
	assert_true(outsider_open(&o, child));
	assert_int_equal(tree_signal(0, &(struct aim){.sig = 0, .outsider = &o}), 2);
	kill(child, SIGKILL);
	await_death(child);
	assert_true(outsider_has_ended(&o));
	assert_int_equal(
	    tree_signal(0, &(struct aim){.sig = SIGKILL, .outsider = &o}), 1);
	await_death(grand);
	assert_int_equal(
	    tree_signal(0, &(struct aim){.sig = SIGKILL, .outsider = &o}), 0);
	assert_non_null(strchr("RS", process_state(other)));
	bury(child);
	bury(other);
	waitpid(grand, NULL, 0);
	close(o.fd);
	free(o.known.at);
}

/* In a terminal it leads a session as well, but it is a part of what the script has started. */
static void
a_keeper_of_a_run_is_not_spared(void **state)
{
	pid_t grand, child = family_with("", &grand, false);
	struct outsider o;

	(void)state;
	assert_true(outsider_open(&o, child));
	assert_int_equal(tree_signal(0, &(struct aim){.sig = 0, .outsider = &o}), 2);
	kill(child, SIGKILL);
	await_death(child);
	assert_int_equal(
	    tree_signal(0, &(struct aim){.sig = SIGKILL, .outsider = &o}), 1);
	await_death(grand);
	bury(child);
	waitpid(grand, NULL, 0);
	close(o.fd);
	free(o.known.at);
}

/* It may be a hold for somebody else by now, which has gone into the background. */
static void
a_hold_that_has_left_is_spared(void **state)
{
	pid_t grand, child = family_with(NULL, &grand, false);
	struct outsider o;

	(void)state;
	assert_true(outsider_open(&o, child));
	assert_int_equal(tree_signal(0, &(struct aim){.sig = 0, .outsider = &o}), 2);
	kill(child, SIGKILL);
	await_death(child);
	assert_int_equal(
	    tree_signal(0, &(struct aim){.sig = SIGKILL, .outsider = &o}), 0);
	assert_non_null(strchr("RS", process_state(grand)));
	kill(grand, SIGKILL);
	bury(child);
	waitpid(grand, NULL, 0);
	close(o.fd);
	free(o.known.at);
}

/* It may have got our SIGSTOP just before, as one of those that are being stopped. */
static void
a_hold_that_was_stopped_with_others_goes_on(void **state)
{
	pid_t grand, child = family_with(NULL, &grand, false);
	struct outsider o;

	(void)state;
	assert_true(outsider_open(&o, child));
	tree_look(&o); /* so it is known */
	kill(child, SIGKILL);
	await_death(child);
	kill(grand, SIGSTOP);
	while (process_state(grand) != 'T')
		usleep(1000);
	tree_look(&o);
	for (int i = 0; i < 2000 && process_state(grand) == 'T'; i++)
		usleep(1000);
	assert_non_null(strchr("RS", process_state(grand)));
	kill(grand, SIGKILL);
	bury(child);
	waitpid(grand, NULL, 0);
	close(o.fd);
	free(o.known.at);
}

/* When all of a group have ended, the kernel gives its number to others. */
static void
the_number_of_a_group_that_has_ended_is_somebody_elses(void **state)
{
	pid_t leader = sleeper(), other = 0;
	struct outsider o;
	char lives;

	(void)state;
	setpgid(leader, leader);
	assert_true(outsider_open(&o, leader));
	tree_look(&o);
	assert_true(o.whole);
	bury(leader);
	usleep(50000); /* the kernel counts in clock ticks */
	for (int i = 0; i < 20 && other != leader; i++) {
		if (other)
			bury(other);
		other = sleeper_with_number(leader);
	}
	setpgid(other, other);
	tree_kill(0, &(struct aim){.outsider = &o});
	usleep(50000); /* a killed one would be a zombie by then */
	lives = process_state(other);
	bury(other);
	close(o.fd);
	free(o.known.at);
	if (other != leader)
		skip();
	assert_non_null(strchr("RS", lives));
}

/* Nor is one of that group an orphan of ours, whoever has adopted it. */
static void
the_orphans_of_a_group_that_has_ended_are_somebody_elses(void **state)
{
	pid_t leader = sleeper(), front = sleeper(), other = 0;
	struct outsider o;
	char lives;

	(void)state;
	setpgid(leader, leader);
	assert_true(outsider_open(&o, leader));
	o.front = front; /* so that this process is the one that adopts */
	bury(leader);
	usleep(50000); /* the kernel counts in clock ticks */
	for (int i = 0; i < 20 && other != leader; i++) {
		if (other)
			bury(other);
		other = sleeper_with_number(leader);
	}
	setpgid(other, other);
	tree_kill(0, &(struct aim){.outsider = &o});
	usleep(50000); /* a killed one would be a zombie by then */
	lives = process_state(other);
	bury(other);
	bury(front);
	close(o.fd);
	free(o.known.at);
	if (other != leader)
		skip();
	assert_non_null(strchr("RS", lives));
}

static void
what_dlock_has_below_it_is_spared(void **state)
{
	int ends[2];
	pid_t child, held;
	struct outsider o;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		pid_t self = fork() == 0 ? getpid() : 0;

		if (self > 0)
			self = write(ends[1], &self, sizeof self) < 0 ? 0 : self;
		for (;;)
			pause();
	}
	assert_int_equal(read(ends[0], &held, sizeof held), sizeof held);
	assert_true(outsider_open(&o, child));
	o.front = held;
	assert_int_equal(
	    tree_signal(0, &(struct aim){.sig = SIGKILL, .outsider = &o}), 1);
	await_death(child);
	assert_int_equal(
	    tree_signal(0, &(struct aim){.sig = SIGKILL, .outsider = &o}), 0);
	assert_non_null(strchr("RS", process_state(held)));
	kill(held, SIGKILL);
	bury(child);
	waitpid(held, NULL, 0);
	close(o.fd);
	free(o.known.at);
	close(ends[0]);
	close(ends[1]);
}

/* One look may miss a process that is just being handed on. */
static void
nobody_is_gone_before_two_looks_have_found_nobody(void **state)
{
	pid_t child = sleeper();
	struct outsider o;

	(void)state;
	assert_true(outsider_open(&o, child));
	kill(child, SIGKILL);
	await_death(child);
	tree_look(&o);
	assert_false(outsider_is_empty(&o));
	tree_look(&o);
	assert_true(outsider_is_empty(&o));
	bury(child);
	close(o.fd);
	free(o.known.at);
}

/* A signal to a process group is for all of it: so it must have nobody else. */
static void
a_group_is_whole_unless_others_are_in_it(void **state)
{
	pid_t leader, other;
	struct outsider o;

	(void)state;
	leader = sleeper();
	other = sleeper();
	setpgid(leader, leader);
	assert_true(outsider_open(&o, leader));
	tree_look(&o);
	assert_true(o.whole);
	setpgid(other, leader);
	tree_look(&o);
	assert_false(o.whole);
	tree_kill(0, &(struct aim){.outsider = &o});
	await_death(leader);
	assert_non_null(strchr("RS", process_state(other)));
	bury(leader);
	bury(other);
	close(o.fd);
	free(o.known.at);
}

/*
 * A parent that ends of TERM leaves children that have not been seen: no orphan of it is
 * missed, though nothing but their parents leads to them.
 */
static void
what_is_outside_loses_no_orphan_to_a_polite_signal(void **state)
{
	struct births *b = mmap(
	    NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct outsider o;
	int ends[2];
	char c;

	(void)state;
	assert_ptr_not_equal(b, MAP_FAILED);
	for (int round = 0; round < 3; round++) {
		pid_t adopter, child;

		atomic_store(&b->n, 0);
		atomic_store(&b->living, 0);
		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		adopter = fork(); /* orphans are to be nobody's that we know */
		if (adopter == 0) {
			prctl(PR_SET_CHILD_SUBREAPER, 1);
			child = fork();
			if (child == 0)
				breed(b);
			if (write(ends[1], &child, sizeof child) < 0)
				_exit(1);
			close(ends[1]);
			while (wait(NULL) > 0)
				continue;
			_exit(0);
		}
		assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
		close(ends[1]);
		assert_true(outsider_open(&o, child));
		while (atomic_load(&b->n) < 100)
			usleep(1000);
		tree_signal(
		    0, &(struct aim){.sig = SIGTERM, .wake = true, .outsider = &o});
		while (tree_kill(0, &(struct aim){.outsider = &o}) > 0)
			usleep(1000);
		usleep(10000); /* a dead one's descriptors may still be being closed */
		fcntl(ends[0], F_SETFL, O_NONBLOCK);
		assert_int_equal(read(ends[0], &c, 1), 0); /* nobody has the other end */
		assert_int_equal(waitpid(adopter, NULL, 0), adopter);
		close(ends[0]);
		close(o.fd);
		free(o.known.at);
	}
	munmap(b, sizeof *b);
}

static void
who_is_not_there_is_not_opened(void **state)
{
	pid_t child = sleeper();
	struct outsider o;

	(void)state;
	kill(child, SIGKILL);
	await_death(child);
	assert_false(outsider_open(&o, child)); /* a zombie */
	assert_int_equal(errno, ESRCH);
	bury(child);
	assert_false(outsider_open(&o, child));
	assert_int_equal(errno, ESRCH);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(states),
	    cmocka_unit_test(hostile_names_do_not_confuse),
	    cmocka_unit_test(descendants_are_contained),
	    cmocka_unit_test(signal_reaches_descendants_only),
	    cmocka_unit_test(orphans_are_found),
	    cmocka_unit_test(stopped_processes_are_woken_to_obey),
	    cmocka_unit_test(strangers_are_spared),
	    cmocka_unit_test(a_look_without_descriptors_spares_nobody_anew),
	    cmocka_unit_test(the_number_of_one_that_was_spared_spares_nobody),
	    cmocka_unit_test(nobody_is_signalled_twice),
	    cmocka_unit_test(a_process_without_its_first_thread_lives),
	    cmocka_unit_test(descriptors_are_in_reserve),
	    cmocka_unit_test(large_families_are_found_whole),
	    cmocka_unit_test(a_tree_that_forks_is_stopped_before_it_is_killed),
	    cmocka_unit_test(who_is_known_is_killed_in_time),
	    cmocka_unit_test(who_was_seen_and_has_escaped_is_killed),
	    cmocka_unit_test(a_list_that_was_cut_off_shows_nobody_gone),
	    cmocka_unit_test(outside_processes_are_known_by_themselves),
	    cmocka_unit_test(nobody_is_gone_before_two_looks_have_found_nobody),
	    cmocka_unit_test(a_group_is_whole_unless_others_are_in_it),
	    cmocka_unit_test(what_is_outside_loses_no_orphan_to_a_polite_signal),
	    cmocka_unit_test(a_hold_that_has_left_is_spared),
	    cmocka_unit_test(a_hold_that_was_stopped_with_others_goes_on),
	    cmocka_unit_test(the_number_of_a_group_that_has_ended_is_somebody_elses),
	    cmocka_unit_test(the_orphans_of_a_group_that_has_ended_are_somebody_elses),
	    cmocka_unit_test(a_keeper_of_a_run_is_not_spared),
	    cmocka_unit_test(what_dlock_has_below_it_is_spared),
	    cmocka_unit_test(who_is_not_there_is_not_opened),
	};

	return cmocka_run_group_tests_name("tree", tests, become_subreaper, NULL);
}
