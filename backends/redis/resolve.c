/* resolve.c - see resolve.h. */
#include "resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Shared by the thread and whoever waits for it; the one who lets go last frees it. */
struct inquiry {
	char name[256], service[8];
	int done; /* eventfd */
	int error;
	struct places places;
	atomic_int owners;
};

static void
let_go(struct inquiry *q)
{
	if (atomic_fetch_sub(&q->owners, 1) > 1)
		return;
	close(q->done);
	free(q);
}

static void
keep_places(struct places *p, const struct addrinfo *list)
{
	for (; list && p->n < PLACES_MAX; list = list->ai_next, p->n++) {
		memcpy(&p->at[p->n].address, list->ai_addr, list->ai_addrlen);
		p->at[p->n].size = list->ai_addrlen;
	}
}

static void *
ask(void *arg)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV}, *list;
	struct inquiry *q = arg;

	q->error = getaddrinfo(q->name, q->service, &hints, &list);
	if (q->error == 0) {
		keep_places(&q->places, list);
		freeaddrinfo(list);
	}
	eventfd_write(q->done, 1);
	let_go(q);
	return NULL;
}

/* Numeric addresses, which need no resolver, no thread, and no /etc. */
static bool
is_numeric(const char *name, int port, struct places *p)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *list;
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
	keep_places(p, list);
	freeaddrinfo(list);
	return p->n > 0;
}

static struct inquiry *
send_inquiry(const char *name, int port)
{
	struct inquiry *q = calloc(1, sizeof *q);
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	if (!q)
		return NULL;
	snprintf(q->name, sizeof q->name, "%s", name);
	snprintf(q->service, sizeof q->service, "%d", port);
	q->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_init(&q->owners, 2);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = q->done < 0 ? errno : pthread_create(&thread, &attr, ask, q);
	pthread_attr_destroy(&attr);
	if (error == 0)
		return q;
	if (q->done >= 0)
		close(q->done);
	free(q);
	errno = error;
	return NULL;
}

enum rc
resolve(struct host *host, const char *name, int port, instant until, struct places *ret, struct fault *f)
{
	struct inquiry *q;
	enum rc rc = RC_OK;

	if (is_numeric(name, port, ret))
		return RC_OK;
	q = send_inquiry(name, port);
	if (!q)
		return fault_set(f, RC_SYSTEM, "cannot start a thread to resolve %s: %s", name, strerror(errno));
	switch (host->wait(host, q->done, POLLIN, until)) {
	case WOKE_READY:
		if (q->error == 0 && q->places.n > 0)
			*ret = q->places;
		else
			rc = fault_set(f, RC_AGAIN, "cannot resolve the host name %s: %s", name, gai_strerror(q->error));
		break;
	case WOKE_TIMEOUT:
		rc = fault_set(f, RC_AGAIN, "cannot resolve the host name %s: no answer in time", name);
		break;
	case WOKE_STOP:
		rc = RC_STOP;
	}
	let_go(q);
	return rc;
}
