/* hosts.c - turns the names of an ensemble's servers into addresses. */
#include "hosts.h"

#include "backends/common/url.h"
#include "backends/common/task.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hosts_task {
	struct task task;
	char names[sizeof((struct ensemble *)0)->hosts];
	struct hosts found;
};

/* One more for the list. */
static void
hosts_add(struct hosts *h, const char *number, int port)
{
	size_t used = strlen(h->list);

	if (used + strlen(number) + 8 >= sizeof h->list || h->n == HOSTS_MAX ||
	    !probe_address(&h->at[h->n], number, port))
		return;
	h->n++;
	snprintf(h->list + used, sizeof h->list - used, "%s%s:%d", used ? "," : "",
	    number, port);
}

/* All that a name stands for. */
static void
hosts_add_name(struct hosts *h, const char *name, int port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	    .ai_protocol = IPPROTO_TCP,
	    .ai_flags = AI_ADDRCONFIG};
	struct addrinfo *found;
	char number[64];

	if (getaddrinfo(name, NULL, &hints, &found) != 0)
		return;
	for (struct addrinfo *a = found; a; a = a->ai_next)
		if (getnameinfo(a->ai_addr, a->ai_addrlen, number, sizeof number, NULL, 0,
			NI_NUMERICHOST) == 0)
			hosts_add(h, number, port);
	freeaddrinfo(found);
}

static void
hosts_make_odd(struct hosts *h)
{
	size_t first = strcspn(h->list, ","), used = strlen(h->list);

	if (h->n == 0 || h->n % 2 == 1 || used + 1 + first >= sizeof h->list)
		return;
	h->list[used] = ',';
	memcpy(h->list + used + 1, h->list, first);
	h->list[used + 1 + first] = '\0';
}

/* From "host:port,[v6]:port"; may block in DNS where there are names. */
static void
hosts_fill(struct hosts *h, const char *text, bool named)
{
	struct endpoint e;

	for (size_t n; *text; text += n + (text[n] == ',')) {
		n = strcspn(text, ",");
		if (endpoint_parse(&e, text, n, 1))
			continue;
		if (named)
			hosts_add_name(h, e.host, e.port);
		else
			hosts_add(h, e.host, e.port);
	}
	hosts_make_odd(h);
}

static void
hosts_task_work(struct task *t)
{
	struct hosts_task *q = (struct hosts_task *)t;

	hosts_fill(&q->found, q->names, true);
}

static void
hosts_task_free(struct task *t)
{
	free(t);
}

static struct hosts_task *
hosts_task_start(const char *names)
{
	struct hosts_task *q = calloc(1, sizeof *q);

	if (!q)
		return NULL;
	q->task.work = hosts_task_work;
	q->task.free = hosts_task_free;
	snprintf(q->names, sizeof q->names, "%s", names);
	return task_start(&q->task, 0) ? q : NULL;
}

static enum rc
hosts_look_up(struct hosts *h, struct host *host, const struct ensemble *e,
    const char *where, instant until, struct fault *f)
{
	struct hosts_task *q = hosts_task_start(e->hosts);
	enum rc rc = RC_OK;

	if (!q)
		return fault_set(
		    f, RC_SYSTEM, "cannot start a thread: %s", strerror(errno));
	switch (host->wait(host, q->task.done, POLLIN, until)) {
	case WOKE_READY:
		*h = q->found;
		break;
	case WOKE_TIMEOUT:
		rc = fault_set(
		    f, RC_AGAIN, "%s: its name was not resolved in time", where);
		break;
	case WOKE_STOP:
		rc = RC_STOP;
	}
	task_drop(&q->task);
	return rc;
}

enum rc
hosts_find(struct hosts *h, struct host *host, const struct ensemble *e,
    const char *where, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	h->n = 0;
	h->list[0] = '\0';
	if (e->named)
		rc = hosts_look_up(h, host, e, where, until, f);
	else
		hosts_fill(h, e->hosts, false);
	return rc == RC_OK && h->n == 0
	    ? fault_set(f, RC_AGAIN, "%s: unknown host", where)
	    : rc;
}
