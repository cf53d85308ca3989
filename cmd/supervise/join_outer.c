/*
 * join_outer.c - the outer keeper's side of its socket.
 *
 *	open     the socket, while a server thinks, or when the command is about to begin
 *	poll     what the keeper waits for: the listener, and each that is connected
 *	serve    accepts those that come, and answers: which of your keys are held, and until when.
 *	         A run that asks to hold along is counted, until its connection ends
 *	answer   tells those that have asked for a release how that has ended
 *	close    nobody can join any more; `drain` still serves those that have come before
 */
#include "join_outer.h"

#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEEP_MOST (365 * 86400 * NS_PER_S) /* what --min-hold may be */

/* ---- which are connected ---- */

/* When descriptors have run out, a process that releases a hold gets the place of this one. */
static void
keep_spare(struct join_outer *d)
{
	if (d->spare >= 0)
		return;
	d->spare = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (d->spare >= 0)
		d->out_of_fds = false;
}

void
join_outer_open(struct join_outer *d, const struct params *p, const char *id, pid_t root)
{
	d->root = root;
	d->listener = join_address_listen(d->address, id, p);
	d->spares = p->cmd == CMD_HOLD;
	d->spare = -1;
	if (d->spares)
		keep_spare(d);
}

nfds_t
join_outer_poll(struct join_outer *d, struct pollfd *set)
{
	set[0] = (struct pollfd){
	    .fd = d->n < JOIN_PEERS && !d->out_of_fds ? d->listener : -1,
	    .events = POLLIN};
	for (size_t i = 0; i < d->n; i++)
		set[1 + i] = (struct pollfd){.fd = d->peers[i].fd, .events = POLLIN};
	d->polled = d->n;
	return 1 + d->n;
}

static size_t
count_peers(const struct join_outer *d, unsigned is)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		n += (d->peers[i].is & is) != 0;
	return n;
}

/* The last one gets its place: who goes through all of them begins at the end. */
static void
drop_peer(struct join_outer *d, struct peer *p)
{
	close(p->fd);
	*p = d->peers[--d->n];
	d->out_of_fds = false;
}

/* Sends to a process that may be suspended. */
static void
send_to_peer(const struct peer *p, const void *what, size_t size)
{
	send(p->fd, what, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/*
 * Only what descends from us, or from the process for which we hold, may hold along with
 * us: with our lease, it is killed in time.  Where /proc hides it, knowing our address is
 * proof enough.  False: nobody is there, or there is no descriptor.
 */
static bool
accept_peer(struct join_outer *d)
{
	int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	bool short_of_fds = fd < 0 && (errno == EMFILE || errno == ENFILE), foreign;
	pid_t pid;

	if (short_of_fds && d->spare >= 0) {
		close(d->spare);
		d->spare = -1;
		return accept_peer(d);
	}
	if (fd < 0) { /* the listener would be ready for ever */
		d->out_of_fds = short_of_fds;
		return false;
	}
	if (d->n == JOIN_PEERS || !join_address_is_ours(fd, &pid)) {
		close(fd);
		return true;
	}
	foreign = d->root && pid != d->root && process_kin(d->root, pid) == KIN_NO;
	if (foreign && count_peers(d, PEER_FOREIGN) >= JOIN_FOREIGN)
		close(fd);
	else
		d->peers[d->n++] = (struct peer){fd, foreign ? PEER_FOREIGN : 0, pid};
	return true;
}

/* ---- what they are told ---- */

/*
 * Fills in which of the keys asked for, in n bytes, we hold, and what was granted for
 * them.  Where it is not known on either side which locks these are, none is.
 */
static void
find_keys(
    struct join_answer *a, const struct join_ask *ask, size_t n, const struct offer *o)
{
	const char *key = ask->keys, *end = (const char *)ask + n;

	if (!*ask->identity.text || !identity_is_same(o->identity, &ask->identity))
		return;
	for (size_t i = 0; i < KEYS_MAX && key < end; i++) {
		size_t length = strnlen(key, end - key);

		for (size_t k = 0; k < o->params->nkeys && key + length < end; k++)
			if (o->identity->one_lock ||
			    strcmp(key, o->params->keys[k]) == 0) {
				a->has |= 1U << i;
				a->hold.parts[i] = o->parts[k];
			}
		key += length + 1;
	}
}

/* A stranger is told that it is one, and only if it asks for what we have. */
static void
answer_peer(struct join_answer *a, const struct join_ask *ask, size_t n, bool foreign,
    const struct offer *o)
{
	find_keys(a, ask, n, o);
	a->foreign = foreign && a->has;
	if (foreign || !o->ours)
		a->has = 0;
	if (!a->has)
		return;
	a->hold.kind = o->params->claim.kind;
	a->hold.limit = o->params->claim.limit;
	a->hold.age = instant_now() - o->sent;
	a->hold.lease = o->lease;
	a->hold.pace = o->pace;
	a->stops = o->stops;
}

static void
tell_names(const struct peer *p, const struct offer *o)
{
	struct join_name answer = {.version = JOIN_VERSION, .has = o->has, .pid = o->pid};
	char *key = answer.keys;

	snprintf(answer.where, sizeof answer.where, "%s", o->where);
	for (size_t i = 0; i < o->params->nkeys; i++)
		key = stpcpy(key, o->params->keys[i]) + 1;
	send_to_peer(p, &answer, key - (char *)&answer);
}

/*
 * A run that joins gets a copy of what the front watches.  Where that cannot be sent, it is told
 * that there is no room, and asks again.
 */
static void
send_answer(
    const struct join_outer *d, const struct peer *p, struct join_answer *a, bool joins)
{
	const struct iovec part = {a, sizeof *a};
	const struct anchors copy = {.fds = {d->watched}, .n = joins && d->watched};

	if (anchors_send(p->fd, &part, 1, &copy) >= 0 || copy.n == 0)
		return;
	a->full = true;
	a->has = 0;
	send_to_peer(p, a, sizeof *a);
}

/* By how many the joined holds have grown. */
static int
serve_peer(struct join_outer *d, struct peer *p, const struct offer *offer, int64_t *keep)
{
	struct join_answer answer = {.version = JOIN_VERSION};
	struct join_ask ask;
	ssize_t n = recv(p->fd, &ask, sizeof ask, MSG_DONTWAIT);
	bool held = p->is & PEER_HOLDS, told = false;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > (ssize_t)offsetof(struct join_ask, keys) && ask.version == JOIN_VERSION) {
		if (ask.verb == JOIN_RELEASE && !held) {
			if (p->is & PEER_RELEASES) /* it is under way */
				send_to_peer(p, "", JOIN_ALIVE);
			else
				d->asked = true;
			p->is |= PEER_RELEASES;
			return 0;
		}
		if (ask.verb == JOIN_NAME && !held) {
			tell_names(p, offer);
			drop_peer(d, p);
			return 0;
		}
		answer_peer(&answer, &ask, n, p->is & PEER_FOREIGN, offer);
		/* would one more take the room of a release? */
		answer.full = answer.has && !held && ask.verb == JOIN_HOLD &&
		    (count_peers(d, PEER_HOLDS) >= JOIN_HOLDING ||
			(d->spares && d->spare < 0));
		if (answer.full)
			answer.has = 0;
		if (answer.has && ask.keep > *keep)
			*keep = ask.keep < KEEP_MOST ? ask.keep : KEEP_MOST;
		send_answer(d, p, &answer, !held && answer.has && ask.verb == JOIN_HOLD);
		told = true;
	}
	/* it is told of a loss, and holds along until it has stopped what it runs, and ends */
	if (!answer.has && held && told)
		return 0;
	if (!answer.has) {
		drop_peer(d, p);
		return held ? -1 : 0;
	}
	if (ask.verb == JOIN_HOLD)
		p->is |= PEER_HOLDS;
	return !held && ask.verb == JOIN_HOLD;
}

int
join_outer_serve(struct join_outer *d, const struct pollfd *set,
    const struct offer *offer, int64_t *keep)
{
	int grown = 0;

	for (size_t i = d->n; i-- > 0;)
		if (i < d->polled && set[1 + i].revents)
			grown += serve_peer(d, &d->peers[i], offer, keep);
	if (set[0].revents)
		accept_peer(d);
	if (d->spares)
		keep_spare(d);
	return grown;
}

bool
join_outer_watch(struct join_outer *d, struct anchors *a)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	a->fds[a->n++] = ends[0];
	d->watched = ends[1];
	return true;
}

void
join_outer_unwatch(struct join_outer *d)
{
	if (d->watched)
		close(d->watched);
	d->watched = 0;
}

void
join_outer_drain(struct join_outer *d)
{
	if (d->listener < 0)
		return;
	shutdown(d->listener, SHUT_RD); /* from here on connect(2) fails */
	while (accept_peer(d))
		continue;
	join_outer_close(d);
}

void
join_outer_close(struct join_outer *d)
{
	if (d->listener >= 0)
		close(d->listener);
	d->listener = -1;
}

bool
join_outer_is_awaited(const struct join_outer *d)
{
	return count_peers(d, PEER_RELEASES) > 0;
}

void
join_outer_call(struct join_outer *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->peers[i].is & PEER_HOLDS)
			send_to_peer(&d->peers[i], "", JOIN_CALL);
}

void
join_outer_signal(const struct join_outer *d, const struct aim *a)
{
	for (size_t i = 0; i < d->n; i++)
		if ((d->peers[i].is & PEER_HOLDS) && d->peers[i].keeper)
			tree_signal_run(d->peers[i].keeper, a);
}

void
join_outer_answer(struct join_outer *d, int status, const char *line)
{
	struct join_outcome o = {.version = JOIN_VERSION, .status = status};

	snprintf(o.line, sizeof o.line, "%s", line);
	for (size_t i = d->n; i-- > 0;)
		if (d->peers[i].is & PEER_RELEASES) {
			send_to_peer(&d->peers[i], &o, sizeof o);
			drop_peer(d, &d->peers[i]);
		}
}
