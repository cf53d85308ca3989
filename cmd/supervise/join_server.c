/* join_server.c - the keeper's socket: who joins its hold, and who releases it. */
#include "join_server.h"

#include "cmd/mask.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEEP_MOST (365 * 86400 * NS_PER_S) /* what --min-hold may be */

/* ---- who is connected ---- */

/*
 * Who comes to release a hold must be heard also when descriptors have run out: the place
 * of this one is his.
 */
static void
keep_spare(struct join_server *s)
{
	if (!s->spares || s->spare >= 0)
		return;
	s->spare = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (s->spare >= 0)
		s->out_of_fds = false;
}

static bool
give_up_spare(struct join_server *s)
{
	if (s->spare < 0)
		return false;
	close(s->spare);
	s->spare = -1;
	return true;
}

void
join_server_open(struct join_server *s, const struct plan *p, pid_t root)
{
	for (size_t i = 0; i < JOINS_MAX; i++)
		s->peers[i].fd = -1;
	s->used = s->present = 0;
	s->out_of_fds = s->asked = false;
	s->root = root;
	s->listener = keeper_address_listen(s->address, p);
	s->spares = p->cmd == CMD_HOLD;
	s->spare = -1;
	keep_spare(s);
}

nfds_t
join_server_poll(const struct join_server *s, struct pollfd *set)
{
	set[0] = (struct pollfd){
	    .fd = s->present < JOINS_MAX && !s->out_of_fds ? s->listener : -1,
	    .events = POLLIN};
	for (size_t i = 0; i < s->used; i++)
		set[1 + i] = (struct pollfd){.fd = s->peers[i].fd, .events = POLLIN};
	return 1 + s->used;
}

static size_t
count_foreign_peers(const struct join_server *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->used; i++)
		n += s->peers[i].fd >= 0 && s->peers[i].foreign;
	return n;
}

static size_t
count_holding(const struct join_server *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->used; i++)
		n += s->peers[i].fd >= 0 && s->peers[i].holds;
	return n;
}

static void
add_peer(struct join_server *s, int fd, bool foreign)
{
	for (size_t i = 0; i < JOINS_MAX; i++)
		if (s->peers[i].fd < 0) {
			s->peers[i].fd = fd;
			s->peers[i].holds = false;
			s->peers[i].foreign = foreign;
			s->peers[i].releases = false;
			s->present++;
			s->used = i < s->used ? s->used : i + 1;
			return;
		}
	close(fd);
}

/*
 * Only who descends from us, or from whom we hold for, may hold along with us: with our
 * lease, it is killed in time.  Where /proc hides it, knowing our address is proof enough.
 */
static bool
is_foreign_peer(const struct join_server *s, pid_t pid)
{
	return s->root != 0 && pid != s->root && tree_relation(s->root, pid) == KIN_NO;
}

/* A descriptor; -1: nobody is there, or there is none to be had. */
static int
accept_one(struct join_server *s)
{
	int fd;

	do
		fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (fd < 0 && (errno == EMFILE || errno == ENFILE) && give_up_spare(s));
	if (fd < 0) /* else it would be ready for ever */
		s->out_of_fds = errno == EMFILE || errno == ENFILE;
	return fd;
}

/* False: nobody is there, or there is no descriptor. */
static bool
accept_peer(struct join_server *s)
{
	int fd = accept_one(s);
	bool foreign;
	pid_t pid;

	if (fd < 0)
		return false;
	if (!keeper_address_is_ours(fd, &pid)) {
		close(fd);
		return true;
	}
	foreign = is_foreign_peer(s, pid);
	if (foreign && count_foreign_peers(s) >= JOINS_FOREIGN)
		close(fd);
	else
		add_peer(s, fd, foreign);
	return true;
}

static void
drop_peer(struct join_server *s, size_t i)
{
	close(s->peers[i].fd);
	s->peers[i].fd = -1;
	s->present--;
	s->out_of_fds = false;
}

/* ---- what they are told ---- */

/* Does it speak of our backend?  Who has another is told nothing of where we are. */
static bool
is_same_backend(const struct join_ask *ask, const struct join_offer *o)
{
	return strncmp(ask->backend, o->plan->site.backend->name, sizeof ask->backend) ==
	    0;
}

/* Where we are, but for a password. */
static bool
tell_site(struct join_answer *a, const struct join_offer *o)
{
	a->secret = mask_finds(o->site->url);
	return join_site_write(a->site, o->plan->site.backend, o->site);
}

/* Are the keys asked for locks of the same place?  Where either is not known: no. */
static bool
is_same_place(const struct join_ask *ask, const struct join_offer *o)
{
	return *ask->identity && o->identity &&
	    strncmp(ask->identity, o->identity->text, sizeof ask->identity) == 0;
}

/*
 * Fills in which of the keys asked for we hold, in n bytes, and what was granted for
 * them.
 */
static void
find_keys(struct join_answer *a, const struct join_ask *ask, size_t n,
    const struct join_offer *o, bool one_lock)
{
	const char *key = ask->keys, *end = (const char *)ask + n;

	for (size_t i = 0; i < KEYS_MAX && key < end; i++) {
		size_t length = strnlen(key, end - key);

		for (size_t k = 0; k < o->plan->nkeys && key + length < end; k++)
			if (one_lock || strcmp(key, o->plan->keys[k]) == 0) {
				a->has |= 1U << i;
				a->hold.parts[i] = o->parts[k];
			}
		key += length + 1;
	}
}

/* A stranger is told that he is one, and only if he asks for what we have. */
static void
answer_peer(struct join_answer *a, const struct join_ask *ask, size_t n, bool foreign,
    const struct join_offer *o)
{
	if (is_same_place(ask, o))
		find_keys(a, ask, n, o, o->identity->one_lock);
	a->foreign = foreign && a->has;
	if (foreign || !o->ours)
		a->has = 0;
	if (!a->has)
		return;
	a->hold.kind = o->plan->claim.kind;
	a->hold.limit = o->plan->claim.limit;
	a->hold.sent = o->sent;
	a->hold.lease = o->lease;
	a->hold.pace = o->pace;
	a->stops = o->stops;
}

/*
 * It would be one more than can hold along with us, or would keep the place of who
 * releases; `counted`: it is not.
 */
static void
refuse_one_more(const struct join_server *s, struct join_answer *a, bool counted)
{
	bool full = count_holding(s) >= JOINS_HOLDING || (s->spares && s->spare < 0);

	if (counted || !a->has || !full)
		return;
	a->full = true;
	a->has = 0;
}

/* That it is under way is said to who asks again. */
static void
hear_release(struct join_server *s, size_t i)
{
	if (s->peers[i].releases)
		send(s->peers[i].fd, "", JOIN_ALIVE, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		s->peers[i].releases = s->asked = true;
}

/* By how many the joined holds have grown. */
static int
serve_peer(struct join_server *s, size_t i, const struct join_offer *offer, int64_t *keep)
{
	struct join_answer answer = {.version = JOIN_VERSION};
	struct join_ask ask;
	ssize_t n = recv(s->peers[i].fd, &ask, sizeof ask, MSG_DONTWAIT);
	bool held = s->peers[i].holds;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > (ssize_t)offsetof(struct join_ask, keys) && ask.version == JOIN_VERSION &&
	    ask.verb == JOIN_RELEASE && !held) {
		hear_release(s, i);
		return 0;
	}
	if (n > (ssize_t)offsetof(struct join_ask, keys) && ask.version == JOIN_VERSION &&
	    is_same_backend(&ask, offer) && tell_site(&answer, offer)) {
		answer_peer(&answer, &ask, n, s->peers[i].foreign, offer);
		refuse_one_more(s, &answer, held || ask.verb != JOIN_HOLD);
		if (answer.has && ask.keep > *keep)
			*keep = ask.keep < KEEP_MOST ? ask.keep : KEEP_MOST;
		send(s->peers[i].fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (!answer.has) {
		drop_peer(s, i);
		return held ? -1 : 0;
	}
	s->peers[i].holds = held || ask.verb == JOIN_HOLD;
	return s->peers[i].holds - held;
}

int
join_server_serve(struct join_server *s, const struct pollfd *set,
    const struct join_offer *offer, int64_t *keep)
{
	int grown = 0;

	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && set[1 + i].revents)
			grown += serve_peer(s, i, offer, keep);
	if (set[0].revents)
		accept_peer(s);
	keep_spare(s);
	return grown;
}

void
join_server_refuse(struct join_server *s)
{
	if (s->listener < 0)
		return;
	shutdown(s->listener, SHUT_RD); /* from here on connect(2) fails */
	while (accept_peer(s))
		continue;
	close(s->listener);
	s->listener = -1;
}

bool
join_server_is_asked(const struct join_server *s)
{
	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && s->peers[i].releases)
			return true;
	return false;
}

void
join_server_call(struct join_server *s)
{
	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && s->peers[i].holds)
			send(s->peers[i].fd, "", JOIN_CALL, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void
join_server_answer(struct join_server *s, int status, const char *line)
{
	struct join_outcome o = {.version = JOIN_VERSION, .status = status};

	snprintf(o.line, sizeof o.line, "%s", line);
	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && s->peers[i].releases) {
			send(s->peers[i].fd, &o, sizeof o, MSG_DONTWAIT | MSG_NOSIGNAL);
			drop_peer(s, i);
		}
}
