/* gate.c - holds the library's thread in its log until it may connect again. */
#include "gate.h"

#include "backends/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

enum { GATES = 4 };

static struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t opens;
	instant taken; /* by whom has it now; the one thread that begins sessions knows */
	bool shut;     /* the library waits */
	bool leaving;  /* it is to end, and waits no more */
	int error;
	int wake_fd, alarm; /* of the session that wants to know; -1 */
} gates[GATES] = {
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
};

/* A session that has expired has no connection to wait for. */
static void
gate_hear(struct gate *g, const char *line)
{
	const char *number = strstr(line, "errno=");

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

static void
gate_hear_0(const char *line)
{
	gate_hear(&gates[0], line);
}

static void
gate_hear_1(const char *line)
{
	gate_hear(&gates[1], line);
}

static void
gate_hear_2(const char *line)
{
	gate_hear(&gates[2], line);
}

static void
gate_hear_3(const char *line)
{
	gate_hear(&gates[3], line);
}

log_callback_fn
gate_hearer(const struct gate *g)
{
	static const log_callback_fn hearers[GATES] = {gate_hear_0, gate_hear_1, gate_hear_2, gate_hear_3};

	return hearers[g - gates];
}

/* The one that was taken longest ago: its session has ended, or soon will have. */
struct gate *
gate_take(int wake_fd, int alarm)
{
	struct gate *g = &gates[0];

	for (size_t i = 1; i < GATES; i++)
		if (gates[i].taken < g->taken)
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
