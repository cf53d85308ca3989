/* gate.c - holds the library's thread in its log until it may connect again. */
#include "gate.h"

#include "backends/common/clock.h"
#include "filter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* One for each key of a run, and as many for sessions that are still ending. */
/* clang-format off */
#define EACH_GATE(X) \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) \
	X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) \
	X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */
enum { GATES = 32 };

static struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t opens;
	instant taken; /* by whom has it now; the one thread that begins sessions knows */
	bool shut;     /* the library waits */
	bool leaving;  /* it is to end, and waits no more */
	int error;
	int wake_fd, alarm; /* of the session that wants to know; -1 */
} gates[GATES] = {
#define X(i) \
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .leaving = true, \
	    .wake_fd = -1, .alarm = -1},
    EACH_GATE(X)
#undef X
};

/* A session that has expired has no connection to wait for. */
static void
gate_hear(struct gate *g, const char *line)
{
	const char *number = strstr(line, "errno=");

	if (strstr(line, "nitiated connection to server"))
		filter_begin();
	if (!number || strstr(line, "has expired"))
		return;
	pthread_mutex_lock(&g->mutex);
	g->error = atoi(number + strlen("errno="));
	g->shut = !g->leaving;
	eventfd_write(g->wake_fd, 1);
	eventfd_write(g->alarm, 1);
	while (g->shut)
		pthread_cond_wait(&g->opens, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

#define X(i) \
	static void gate_hear_##i(const char *line) \
	{ \
		gate_hear(&gates[i], line); \
	}
EACH_GATE(X)
#undef X

log_callback_fn
gate_hearer(const struct gate *g)
{
#define X(i) gate_hear_##i,
	static const log_callback_fn hearers[GATES] = {EACH_GATE(X)};
#undef X

	return hearers[g - gates];
}

/*
 * One whose session has ended, or soon will have, if there is one; of such the one that
 * was taken longest ago.
 */
static bool
gate_is_freer(const struct gate *g, const struct gate *than)
{
	return g->leaving != than->leaving ? g->leaving : g->taken < than->taken;
}

struct gate *
gate_take(int wake_fd, int alarm)
{
	struct gate *g = &gates[0];

	for (size_t i = 1; i < GATES; i++)
		if (gate_is_freer(&gates[i], g))
			g = &gates[i];
	g->taken = instant_now();
	pthread_mutex_lock(&g->mutex);
	g->shut = g->leaving = false;
	g->error = 0;
	g->wake_fd = wake_fd;
	g->alarm = alarm;
	pthread_mutex_unlock(&g->mutex);
	return g;
}

bool
gate_is_shut(struct gate *g)
{
	bool shut;

	pthread_mutex_lock(&g->mutex);
	shut = g->shut;
	pthread_mutex_unlock(&g->mutex);
	return shut;
}

int
gate_error(struct gate *g)
{
	int error;

	pthread_mutex_lock(&g->mutex);
	error = g->error;
	pthread_mutex_unlock(&g->mutex);
	return error;
}

void
gate_open(struct gate *g)
{
	pthread_mutex_lock(&g->mutex);
	g->shut = false;
	pthread_cond_signal(&g->opens);
	pthread_mutex_unlock(&g->mutex);
}

void
gate_leave(struct gate *g)
{
	pthread_mutex_lock(&g->mutex);
	g->shut = false;
	g->leaving = true;
	g->wake_fd = g->alarm = -1;
	pthread_cond_signal(&g->opens);
	pthread_mutex_unlock(&g->mutex);
}
