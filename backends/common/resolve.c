/* resolve.c - names to addresses, by a thread where the resolver is needed. */
#include "resolve.h"

#include "task.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
	struct task task;
	char name[256], service[8];
	int error; /* as getaddrinfo has it */
	struct addresses found;
};

static void
lookup_free(struct task *t)
{
	free(t);
}

static void
keep_addresses(struct addresses *p, const struct addrinfo *list)
{
	for (; list && p->n < ADDRESSES_MAX; list = list->ai_next, p->n++) {
		memcpy(&p->at[p->n].address, list->ai_addr, list->ai_addrlen);
		p->at[p->n].size = list->ai_addrlen;
	}
}

static void
lookup_work(struct task *t)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
			    .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV},
			*list;
	struct lookup *q = (struct lookup *)t;

	q->error = getaddrinfo(q->name, q->service, &hints, &list);
	if (q->error == 0) {
		keep_addresses(&q->found, list);
		freeaddrinfo(list);
	}
}

/* Numeric addresses, which need no resolver, no thread, and no /etc. */
static bool
is_numeric(const char *name, int port, struct addresses *p)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
			    .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
			*list;
	char service[8];

	p->n = 0;
	if (inet_pton(AF_INET, name, &v4.sin_addr) == 1) {
		memcpy(&p->at[0].address, &v4, sizeof v4);
		p->at[0].size = sizeof v4;
		p->n = 1;
		return true;
	}
	if (!strchr(name, ':'))
		return false;
	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(name, service, &hints, &list) != 0)
		return false;
	keep_addresses(p, list);
	freeaddrinfo(list);
	return p->n > 0;
}

static struct lookup *
lookup_start(const char *name, int port)
{
	struct lookup *q = calloc(1, sizeof *q);

	if (!q)
		return NULL;
	q->task.work = lookup_work;
	q->task.free = lookup_free;
	snprintf(q->name, sizeof q->name, "%s", name);
	snprintf(q->service, sizeof q->service, "%d", port);
	return task_start(&q->task, 0) ? q : NULL;
}

enum rc
resolve(struct host *host, const char *name, int port, instant until,
    struct addresses *ret, struct fault *f)
{
	struct lookup *q;
	enum rc rc = RC_OK;

	if (is_numeric(name, port, ret))
		return RC_OK;
	q = lookup_start(name, port);
	if (!q)
		return fault_set(f, RC_SYSTEM, "cannot start a thread to resolve %s: %s",
		    name, strerror(errno));
	switch (host->wait(host, q->task.done, POLLIN, until)) {
	case WOKE_READY:
		if (q->error == 0 && q->found.n > 0)
			*ret = q->found;
		else
			rc = fault_set(f, RC_AGAIN, "cannot resolve the host name %s: %s",
			    name, gai_strerror(q->error));
		break;
	case WOKE_TIMEOUT:
		rc = fault_set(f, RC_AGAIN,
		    "cannot resolve the host name %s: no answer in time", name);
		break;
	case WOKE_STOP:
		rc = RC_STOP;
	}
	task_drop(&q->task);
	return rc;
}
