/*
 * spawn.c - the small tools of bench.py: two small tools without an
 * interpreter's cost.
 *
 *	bench_spawn time ROUNDS : EVERY COMMAND... : EVERY COMMAND...
 *		runs each command in every EVERY-th round, all of them in turn and in
 *		an order that rotates, so that a busy moment of the machine hits all
 *		alike; prints for each "MEDIAN P95 RUNS", nanoseconds from just
 *		before posix_spawn until it has been waited for.
 *
 *	bench_spawn stamp LOG MS [GATE]
 *		the command under a lock: creates LOG, waits until GATE exists,
 *		sleeps MS milliseconds, appends to LOG when it started and when it ended
 *		(two 64-bit numbers, nanoseconds on CLOCK_BOOTTIME).
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { COMMANDS_MAX = 32, WARM_UP = 3 };

static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void
sleep_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	while (nanosleep(&t, &t) != 0)
		continue;
}

/* ---- stamp ---- */

static int
stamp(const char *path, long ms, const char *gate)
{
	int64_t times[2] = {now()};
	int log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	/* flock(1), when it is ended, leaves us behind */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (gate && access(gate, F_OK) != 0)
		sleep_us(1000);
	sleep_us(ms * 1000);
	times[1] = now();
	return log >= 0 && write(log, times, sizeof times) == sizeof times ? 0 : 1;
}

/* ---- time ---- */

struct timed {
	char **argv;
	long every, runs;
	int64_t *took;
};

static volatile pid_t running; /* 0: none */

/* What we have started must not outlive us. */
static void
end_both(int sig)
{
	pid_t pid = running;

	if (pid > 0) {
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
	}
	_exit(128 + sig);
}

static int64_t
run_once(char **argv, const posix_spawn_file_actions_t *quiet)
{
	int64_t began = now();
	pid_t pid;
	int status, error = posix_spawnp(&pid, argv[0], quiet, NULL, argv, environ);

	if (error != 0)
		errx(1, "%s: %s", argv[0], strerror(error));
	running = pid;
	if (waitpid(pid, &status, 0) != pid)
		err(1, "waitpid");
	running = 0;
	if (status != 0)
		errx(1, "%s ... ended with wait status %#x", argv[0], (unsigned)status);
	return now() - began;
}

static int
by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void
print_quantiles(struct timed *t)
{
	qsort(t->took, t->runs, sizeof *t->took, by_size);
	printf("%lld %lld %ld\n", (long long)t->took[t->runs / 2],
	    (long long)t->took[t->runs * 95 / 100], t->runs);
}

static int
time_all(long rounds, char **words)
{
	struct timed timed[COMMANDS_MAX];
	posix_spawn_file_actions_t quiet;
	int n = 0;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGTERM, end_both);
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	while (*words) {
		if (n == COMMANDS_MAX || !words[1] || !words[2])
			errx(64, "too many commands, or half of one");
		*words = NULL; /* the colon: ends the command before it */
		timed[n] = (struct timed){.argv = words + 2, .every = atol(words[1])};
		timed[n].took = calloc(rounds + 1, sizeof *timed[n].took);
		if (timed[n].every < 1 || !timed[n].took)
			errx(64, "'%s' is no number of rounds", words[1]);
		n++;
		for (words += 2; *words && strcmp(*words, ":") != 0; words++)
			continue;
	}
	for (long round = -WARM_UP; round < rounds; round++)
		for (int i = 0; i < n; i++) {
			struct timed *t = &timed[(i + round + WARM_UP) % n];

			if (round < 0)
				run_once(t->argv, &quiet);
			else if (round % t->every == 0)
				t->took[t->runs++] = run_once(t->argv, &quiet);
		}
	for (int i = 0; i < n; i++)
		print_quantiles(&timed[i]);
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "stamp") == 0)
		return stamp(argv[2], atol(argv[3]), argv[4]);
	if (argc >= 6 && strcmp(argv[1], "time") == 0)
		return time_all(atol(argv[2]), argv + 3);
	errx(64,
	    "usage: bench_spawn time ROUNDS : EVERY COMMAND... | bench_spawn stamp LOG MS [GATE]");
}
