/* resolve.c - asks for names in threads of their own. */
#include "resolve.h"

#include "task.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lookup {
	struct task task;
	char name[256];
	int port, error; /* error: getaddrinfo's */
	struct addresses found;
};

/* Returns getaddrinfo's error. */
static int
find_addresses(const char *name, int port, int flags, struct addresses *found)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
			    .ai_flags = AI_NUMERICSERV | flags},
			*list;
	char service[8];
	int error;

	found->n = 0;
	snprintf(service, sizeof service, "%d", port);
	error = getaddrinfo(name, service, &hints, &list);
	if (error != 0)
		return error;
	for (struct addrinfo *at = list; at && found->n < ADDRESSES_MAX;
	     at = at->ai_next) {
		memcpy(&found->at[found->n].address, at->ai_addr, at->ai_addrlen);
		found->at[found->n++].size = at->ai_addrlen;
	}
	freeaddrinfo(list);
	return 0;
}

static void
lookup_free(struct task *t)
{
	free(t);
}

static void
lookup_work(struct task *t)
{
	struct lookup *q = (struct lookup *)t;

	q->error = find_addresses(q->name, q->port, AI_ADDRCONFIG, &q->found);
}

/* Numeric addresses need no resolver, thread or file in /etc; IPv4 ones need no heap either. */
struct lookup *
resolve_begin(const char *name, int port, struct addresses *ret)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct lookup *q;

	ret->n = 0;
	if (inet_pton(AF_INET, name, &v4.sin_addr) == 1) {
		memcpy(&ret->at[0].address, &v4, sizeof v4);
		ret->at[0].size = sizeof v4;
		ret->n = 1;
		return NULL;
	}
	if (strchr(name, ':') && find_addresses(name, port, AI_NUMERICHOST, ret) == 0)
		return NULL;
	q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->task.work = lookup_work;
	q->task.free = lookup_free;
	q->port = port;
	snprintf(q->name, sizeof q->name, "%s", name);
	return task_start(&q->task, 0) ? q : NULL;
}

int
resolve_fd(const struct lookup *q)
{
	return q->task.done;
}

enum rc
resolve_end(struct lookup *q, struct host *host, instant until, struct addresses *ret,
    struct fault *f)
{
	enum rc rc = RC_OK;

	switch (host->wait(host, q->task.done, POLLIN, until)) {
	case WOKE_READY:
		if (q->error == 0 && q->found.n > 0)
			*ret = q->found;
		else
			rc = fault_set(f, RC_AGAIN, "cannot resolve the host name %s: %s",
			    q->name, gai_strerror(q->error));
		ret->absent = q->error == EAI_NONAME || q->error == EAI_NODATA;
		break;
	case WOKE_TIMEOUT:
		rc = fault_set(f, RC_AGAIN,
		    "cannot resolve the host name %s: no answer in time", q->name);
		break;
	case WOKE_STOP:
		rc = RC_STOP;
	}
	task_drop(&q->task);
	return rc;
}

enum rc
resolve(struct host *host, const char *name, int port, instant until,
    struct addresses *ret, struct fault *f)
{
	struct lookup *q = resolve_begin(name, port, ret);

	if (q)
		return resolve_end(q, host, until, ret, f);
	return ret->n > 0
	    ? RC_OK
	    : fault_set(f, RC_SYSTEM, "cannot start a thread to resolve %s: %s", name,
		  strerror(errno));
}
