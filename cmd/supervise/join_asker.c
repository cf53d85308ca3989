/* join_asker.c - a run that asks the keepers around it whether they have its keys. */
#include "join_asker.h"

#include "cmd/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum rc
join_asker_refuse(const char *named, const char *why, struct fault *f)
{
	char key[400];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s and %s; a run that waits for its own parent would never end; "
	    "unset DLOCK_KEEPER if this is none of its parts",
	    text_name(key, sizeof key, named), why);
}

static enum rc
not_asked(const struct join_asker *k, const struct keeper_address *a, const char *why,
    struct fault *f)
{
	const char *key = keeper_address_key(a, k->plan);

	return key ? join_asker_refuse(key, why, f) : RC_LOST;
}

static enum rc
await_connection(const struct join_asker *k, const struct keeper_address *to,
    instant until, int fd, struct fault *f)
{
	pid_t pid;

	while (keeper_address_connect(to, fd) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			return keeper_address_is_near(to, fd)
			    ? RC_LOST
			    : not_asked(k, to,
				  "cannot be asked from here (another network namespace?)",
				  f);
		if (instant_now() >= until) /* too many others wait to be accepted */
			return fault_set(
			    f, RC_AGAIN, "the enclosing dlock does not answer");
		if (k->host->wait(k->host, -1, 0, instant_now() + JOIN_RETRY) ==
		    WOKE_STOP)
			return RC_STOP;
	}
	return keeper_address_is_ours(fd, &pid)
	    ? RC_OK
	    : not_asked(k, to, "is another user's", f);
}

enum rc
join_asker_connect(const struct join_asker *k, const struct keeper_address *to,
    instant until, int *fd, struct fault *f)
{
	enum rc rc;

	*fd = -1;
	if (to->n == 0)
		return RC_LOST;
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	rc = await_connection(k, to, until, *fd, f);
	if (rc != RC_OK) {
		close(*fd);
		*fd = -1;
	}
	return rc;
}

/* Returns how much of *a is to be sent. */
static size_t
write_ask(struct join_ask *a, const struct join_asker *k, enum join_verb verb)
{
	char *key = a->keys;

	*a = (struct join_ask){.version = JOIN_VERSION, .verb = verb};
	snprintf(a->backend, sizeof a->backend, "%s", k->plan->site.backend->name);
	for (size_t i = 0; i < k->plan->nkeys; i++)
		key = stpcpy(key, k->plan->keys[i]) + 1;
	if (k->plan->nkeys == 0)
		key++; /* an empty one, which nobody has */
	if (*k->keep_until > instant_now())
		a->keep = *k->keep_until - instant_now();
	if (k->identity)
		memcpy(a->identity, k->identity->text, sizeof a->identity);
	return key - (char *)a;
}

enum rc
join_asker_no_room(struct fault *f)
{
	return fault_set(f, RC_AGAIN,
	    "the enclosing dlock has no room for one more run that joins it");
}

enum rc
join_asker_ask(const struct join_asker *k, int fd, enum join_verb verb, instant until,
    struct join_answer *answer, struct fault *f)
{
	struct join_ask a;
	size_t size = write_ask(&a, k, verb);

	while (recv(fd, answer, sizeof *answer, MSG_DONTWAIT) > 0)
		continue; /* an answer that nobody waited for any longer */
	answer->version = 0;
	if (send(fd, &a, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
		return fault_set(f, RC_LOST, "the enclosing dlock has ended");
	for (;;) {
		ssize_t n = recv(fd, answer, sizeof *answer, MSG_DONTWAIT);

		if (n == sizeof *answer && answer->version == JOIN_VERSION && answer->has)
			return RC_OK;
		if (n == JOIN_CALL)
			continue; /* we are asking already */
		if (n == sizeof *answer && answer->full)
			return join_asker_no_room(f);
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return fault_set(
			    f, RC_LOST, "the enclosing dlock no longer holds the lock");
		switch (k->host->wait(k->host, fd, POLLIN, until)) {
		case WOKE_READY:
			break;
		case WOKE_TIMEOUT:
			return fault_set(
			    f, RC_AGAIN, "the enclosing dlock does not answer");
		case WOKE_STOP:
			return RC_STOP;
		}
	}
}
