/*
 * join_find.c - finds the hold that `dlock release -k KEY` means.
 *
 *	list     /proc/net/unix shows the sockets of all keepers here
 *	ask      each keeper of our user says which keys it has, and whether as a hold
 *	choose   the one hold that has exactly these keys; if there is none, or several, the user is
 *	         told what there is
 */
#include "join_find.h"

#include "cmd/text.h"
#include "join.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* for one keeper, and for all of those that do not answer */
#define PATIENCE_ONE NS_PER_S
#define PATIENCE_ALL JOIN_PATIENCE
#define PATIENCE_END (NS_PER_S / 5) /* for the end of one that has hung up */

/* So many handles fit into a message. */
enum { NAMED = 4 };

/* A search, and its findings so far. */
struct search {
	const struct params *params;
	instant until;
	size_t holds, lost; /* with exactly the run's keys */
	struct {
		struct join_found hold;
		int64_t pid;
	} named[NAMED]; /* the first of the holds, or while there is none of those lost */
	bool silent;    /* one does not answer, */
	pid_t pid;      /* this one; 0: it cannot be seen */
	int64_t run;    /* a run that has one of the keys for its command; 0: none */
	struct brief run_where;
	struct join_found more; /* a hold with further keys; its handle "": none */
};

/* ---- one keeper ---- */

/* False: it does not answer so, or not in time, or has hung up. */
static bool
ask_names(int fd, struct join_name *says, size_t *size, bool *hung_up)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	const struct join_ask ask = {.version = JOIN_VERSION, .verb = JOIN_NAME};
	ssize_t n = -1;

	send(fd, &ask, offsetof(struct join_ask, keys) + 1, MSG_NOSIGNAL);
	errno = 0;
	if (poll(&p, 1, PATIENCE_ONE / NS_PER_MS) > 0)
		n = recv(fd, says, sizeof *says, 0);
	*hung_up = n == 0 || (n < 0 && errno == ECONNRESET);
	*size = n > 0 ? (size_t)n : 0;
	if (*size <= offsetof(struct join_name, keys) || says->version != JOIN_VERSION)
		return false;
	says->where[sizeof says->where - 1] = '\0';
	return true;
}

/* How many of the keys that it has, *all of them, are the parameters'. */
static size_t
count_keys(const struct join_name *says, size_t size, const struct params *p, size_t *all)
{
	const char *key = says->keys, *end = (const char *)says + size;
	size_t ours = 0;

	for (*all = 0; key < end; (*all)++) {
		size_t n = strnlen(key, end - key);

		for (size_t i = 0; i < p->nkeys; i++)
			ours += strlen(p->keys[i]) == n &&
			    memcmp(p->keys[i], key, n) == 0;
		key += n + 1;
	}
	return ours;
}

static struct join_found
found_of(const char *handle, const struct join_name *says)
{
	struct join_found found = {.where = text_brief(says->where)};

	snprintf(found.handle, sizeof found.handle, "%s", handle);
	return found;
}

static void
note_hold(struct search *s, bool lost, const char *handle, const struct join_name *says)
{
	size_t *n = lost ? &s->lost : &s->holds;

	if (*n < NAMED && (!lost || s->holds == 0)) {
		s->named[*n].hold = found_of(handle, says);
		s->named[*n].pid = says->pid;
	}
	(*n)++;
}

static void
note_keeper(
    struct search *s, const struct join_name *says, size_t size, const char *handle)
{
	size_t all, ours = count_keys(says, size, s->params, &all);

	if (ours == 0 || says->has == HAS_NOTHING)
		return;
	if (says->has == HAS_RUN) {
		s->run = says->pid;
		s->run_where = text_brief(says->where);
	} else if (ours == s->params->nkeys && ours == all) {
		note_hold(s, says->has == HAS_LOSS, handle, says);
	} else {
		s->more = found_of(handle, says);
	}
}

/* A keeper that ends hangs up a moment before its socket is gone. */
static bool
ends(struct join_address a, int fd)
{
	instant until = instant_now() + PATIENCE_END;
	bool ended;

	a.net = join_address_net(fd);
	while (!(ended = join_address_life(&a) == KEEPER_ENDED) && instant_now() < until)
		poll(NULL, 0, 10);
	return ended;
}

static void
ask_whether_meant(struct search *s, const struct join_address *a)
{
	char handle[JOIN_HANDLE_BYTES];
	struct join_name says;
	size_t size;
	bool hung_up = false;
	pid_t pid = 0;
	/* anybody can listen under such a name, and never accept */
	int fd = join_address_connect(a, SOCK_NONBLOCK, &pid);

	s->silent = s->silent || (fd < 0 && errno == EAGAIN);
	if (fd < 0)
		return; /* or another user's, or it has ended */
	snprintf(handle, sizeof handle, "@%.*s/%llx", (int)a->n, a->name,
	    join_address_net(fd));
	if (instant_now() < s->until && ask_names(fd, &says, &size, &hung_up))
		note_keeper(s, &says, size, handle);
	else if (!hung_up || !ends(*a, fd)) {
		s->silent = true;
		s->pid = pid;
	}
	close(fd);
}

/* ---- all of them ---- */

static enum rc
refuse_several(const struct search *s, struct fault *f)
{
	size_t n = s->holds ? s->holds : s->lost;
	char handles[NAMED * (sizeof s->named->hold + 40)] = "";

	for (size_t i = 0, used = 0; i < n && i < NAMED; i++)
		used += snprintf(handles + used, sizeof handles - used,
		    "%s%s (pid %" PRId64 ", %s)", i > 0 ? ", " : "",
		    s->named[i].hold.handle, s->named[i].pid,
		    s->named[i].hold.where.text);
	return fault_set(f, RC_USAGE,
	    "you have %zu holds of it here: release one by its handle: %s%s", n, handles,
	    n > NAMED ? ", ..." : "");
}

static enum rc
find_none(const struct search *s, struct fault *f)
{
	if (*s->more.handle)
		return fault_set(f, RC_USAGE,
		    "your hold of it (%s) has other keys than you name: say -k for each of its keys, or dlock release %s",
		    s->more.where.text, s->more.handle);
	if (s->silent)
		return fault_set(f, RC_SYSTEM,
		    "a keeper process of dlock (pid %d) does not answer, and may have it: it is stopped, or this machine is overloaded",
		    (int)s->pid);
	if (s->run)
		return fault_set(f, RC_LOST,
		    "you have no hold of it here, but a dlock run (pid %" PRId64
		    ", %s), which gives it back when its command ends",
		    s->run, s->run_where.text);
	return fault_set(f, RC_LOST,
	    "you have no hold of it on this machine, at any server (in a container, or another network namespace, release it there)");
}

enum rc
join_find(const struct params *p, struct join_found *found, struct fault *f)
{
	struct search s = {
	    .params = p, .until = instant_after(instant_now(), PATIENCE_ALL)};
	FILE *list = fopen("/proc/net/unix", "re");
	struct join_address a;

	if (!list)
		return fault_set(
		    f, RC_SYSTEM, "cannot read /proc/net/unix: %s", strerror(errno));
	while (join_address_next_socket(list, &a))
		ask_whether_meant(&s, &a);
	fclose(list);
	if (s.holds > 1 || (s.holds == 0 && s.lost > 1))
		return refuse_several(&s, f);
	if (s.holds + s.lost == 0)
		return find_none(&s, f);
	*found = s.named[0].hold;
	return RC_OK;
}
