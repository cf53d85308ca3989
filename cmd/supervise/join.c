/* join.c - the store of a nested dlock, whose servers are the keepers around it. */
#include "join.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

struct join {
	struct store base;
	struct join_asker asker;
	struct joined *joined;
	int alert; /* readable when one of several keepers says something; -1 */
};

static const struct backend join_backend;

static struct join *
join_of(struct store *s)
{
	return (struct join *)store_of(s, &join_backend);
}

/*
 * Asks all keepers whose holds are joined: together they are worth what the one is whose
 * lease ends first.
 */
static enum rc
ask_all(
    struct join *j, enum join_verb verb, instant until, struct grant *g, struct fault *f)
{
	const struct anchors *keepers = &j->joined->keepers;
	struct grant all = {.token = j->joined->parts[0].token,
	    .slot = j->joined->parts[0].slot,
	    .anchor = keepers->fds[0]};
	bool stops = false;

	for (size_t i = 0; i < keepers->n; i++) {
		struct join_answer a;
		enum rc rc = join_asker_ask(
		    &j->asker, keepers->fds[i], verb, until, &a, f);

		if (rc != RC_OK)
			return rc;
		stops = stops || a.stops;
		if (i > 0 &&
		    instant_after(a.hold.sent, a.hold.lease) >=
			instant_after(all.sent, all.lease))
			continue;
		all.sent = a.hold.sent;
		all.lease = a.hold.lease;
		all.pace = a.hold.pace;
	}
	*g = all;
	return stops ? fault_set(f, RC_REVOKED, "of the enclosing dlock") : RC_OK;
}

/* A descriptor that is readable when one of them has ended. */
static int
watch_keepers(struct join *j)
{
	const struct anchors *keepers = &j->joined->keepers;

	if (keepers->n == 1)
		return keepers->fds[0];
	j->alert = epoll_create1(EPOLL_CLOEXEC);
	for (size_t i = 0; i < keepers->n; i++)
		epoll_ctl(j->alert, EPOLL_CTL_ADD, keepers->fds[i],
		    &(struct epoll_event){.events = EPOLLIN});
	return j->alert;
}

/*
 * The connection is the hold: the front has it too, so that the outer one keeps
 * the lock until all that a killed keeper of ours has left behind is gone.
 */
static enum rc
join_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct join *j = join_of(s);
	enum rc rc;

	(void)claim, (void)until;
	s->host->alert = watch_keepers(j);
	rc = ask_all(j, JOIN_HOLD, instant_now() + JOIN_PATIENCE, g, f);
	return rc == RC_REVOKED ? RC_OK : rc; /* the next renewal says it again */
}

static enum rc
join_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return ask_all(join_of(s), JOIN_CHECK, until, g, f);
}

static void
leave_keepers(struct join *j)
{
	join_search_leave(&j->joined->keepers);
	if (j->alert >= 0)
		close(j->alert);
	j->alert = -1;
}

/* Asks a last time whether the outer ones still have it. */
static enum rc
join_release(struct store *s, int status, instant until, struct fault *f)
{
	struct join *j = join_of(s);
	struct grant g;
	enum rc rc;

	(void)status;
	if (j->joined->keepers.n == 0)
		return RC_OK;
	rc = ask_all(j, JOIN_CHECK, until, &g, f);
	s->host->alert = -1;
	leave_keepers(j);
	return rc == RC_REVOKED ? RC_OK : rc;
}

static void
join_close(struct store *s)
{
	if (s)
		leave_keepers(join_of(s));
	free(s);
}

static const struct backend join_backend = {
    .name = "join",
    .close = join_close,
    .lock = &(const struct lock_ops){join_acquire, join_renew, join_release},
};

enum rc
join_open(struct store **ret, const struct join_asker *asker, struct joined *joined,
    struct fault *f)
{
	enum rc rc = join_search(asker, joined, f);
	struct join *j;

	if (rc != RC_OK || joined->keepers.n == 0)
		return rc;
	j = malloc(sizeof *j);
	if (!j) {
		join_search_leave(&joined->keepers);
		return fault_set(f, RC_SYSTEM, "out of memory");
	}
	*j = (struct join){
	    .base = {&join_backend, asker->host, "the enclosing dlock",
		CAP_FAIR | CAP_SHARED | CAP_LIMIT},
	    .asker = *asker,
	    .joined = joined,
	    .alert = -1,
	};
	j->asker.identity = &joined->identity;
	*ret = &j->base;
	return RC_OK;
}
