/* join.c - see join.h. */
#include "join.h"

#include "tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define JOIN_VERSION 2
#define JOIN_PATIENCE (10 * NS_PER_S) /* a keeper on this machine that needs longer is frozen, or full */
#define JOIN_RETRY (10 * NS_PER_MS)
#define KEEP_MOST (365 * 86400 * NS_PER_S) /* what --min-hold may be */

enum { PLACE_BYTES = 4096 };

enum join_verb { JOIN_HOLD = 1, JOIN_CHECK };

/* One datagram each way; both ends are the same program on the same machine. */
struct join_ask {
	int version;
	enum join_verb verb;
	bool anywhere; /* the place is not stated: only backend and key count */
	int64_t keep;  /* the lock is wanted for so long from now, whatever becomes of the asker */
	char backend[16];
	char key[KEY_BYTES + 1];
	char place[PLACE_BYTES];
};

struct join_answer {
	int version;
	struct join_offer offer;
	char place[PLACE_BYTES];
};

/* "URL\nNAME=VALUE\n...\n": with backend and key, what makes two locks the same lock. */
static bool
write_place(char *out, const struct want *w)
{
	int n = snprintf(out, PLACE_BYTES, "%s\n", w->url ? w->url : "");

	for (size_t i = 0; i < w->nsettings && n > 0 && n < PLACE_BYTES; i++)
		n += snprintf(out + n, PLACE_BYTES - n, "%s=%s\n", w->settings[i].name, w->settings[i].value);
	return n > 0 && n < PLACE_BYTES;
}

/* The way back, into `w`, whose own settings stand behind so that they win; `place` is cut up and kept. */
static void
read_place(char *place, struct want *w)
{
	static struct setting settings[2 * SETTINGS_MAX];
	char *rest, *url = place, *line = place + strcspn(place, "\n");
	size_t n = 0;

	if (!*line)
		return;
	*line++ = '\0';
	w->url = *url ? url : NULL;
	for (line = strtok_r(line, "\n", &rest); line && n < SETTINGS_MAX; line = strtok_r(NULL, "\n", &rest)) {
		char *equals = strchr(line, '=');

		if (!equals)
			continue;
		*equals = '\0';
		settings[n++] = (struct setting){line, equals + 1};
	}
	memcpy(settings + n, w->settings, w->nsettings * sizeof *settings);
	w->settings = settings;
	w->nsettings += n;
}

/* ---- the outer side ---- */

void
join_listen(struct join_server *s, const char *owner)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t size;

	for (size_t i = 0; i < JOINS_MAX; i++)
		s->guests[i].fd = -1;
	s->used = s->present = 0;
	/* A name that is never used again: a process left behind must not find a stranger at it. */
	snprintf(s->address, sizeof s->address, "@dlock-%s", owner);
	size = strlen(s->address);
	memcpy(a.sun_path + 1, s->address + 1, size - 1);
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->listener < 0 ||
	    bind(s->listener, (struct sockaddr *)&a, offsetof(struct sockaddr_un, sun_path) + size) != 0 ||
	    listen(s->listener, SOMAXCONN) != 0)
		s->address[0] = '\0';
}

nfds_t
join_poll(const struct join_server *s, struct pollfd *set)
{
	set[0] = (struct pollfd){.fd = s->present < JOINS_MAX ? s->listener : -1, .events = POLLIN};
	for (size_t i = 0; i < s->used; i++)
		set[1 + i] = (struct pollfd){.fd = s->guests[i].fd, .events = POLLIN};
	return 1 + s->used;
}

/* The process at the other end, 0 unless it is our own user's. */
static pid_t
peer_of(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid() ? peer.pid : 0;
}

/* Only who descends from us may hold along with us: with our lease, it is killed in time. */
static void
welcome(struct join_server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) { /* else it would ring for ever */
		close(s->listener);
		s->listener = -1;
	}
	for (size_t i = 0; fd >= 0 && tree_relation(getpid(), peer_of(fd)) != KIN_NO && i < JOINS_MAX; i++)
		if (s->guests[i].fd < 0) {
			s->guests[i].fd = fd;
			s->present++;
			s->guests[i].holds = false;
			s->used = i < s->used ? s->used : i + 1;
			return;
		}
	if (fd >= 0)
		close(fd);
}

static bool
is_same_lock(const struct join_ask *ask, const struct plan *p, const char *place)
{
	return strncmp(ask->backend, p->backend->name, sizeof ask->backend) == 0 &&
	    strncmp(ask->key, p->keys[0], sizeof ask->key) == 0 &&
	    (ask->anywhere || strncmp(ask->place, place, sizeof ask->place) == 0);
}

/* By how many the joined holds have grown. */
static int
serve_guest(struct join_server *s, size_t i, const struct plan *p, const struct want *w,
    const struct join_offer *offer, int64_t *keep)
{
	static struct join_answer answer; /* large */
	static struct join_ask ask;
	ssize_t n = recv(s->guests[i].fd, &ask, sizeof ask, MSG_DONTWAIT);
	bool held = s->guests[i].holds;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	answer = (struct join_answer){.version = JOIN_VERSION};
	if (n == sizeof ask && ask.version == JOIN_VERSION && write_place(answer.place, w)) {
		if (is_same_lock(&ask, p, answer.place))
			answer.offer = *offer;
		if (answer.offer.ours && ask.keep > *keep)
			*keep = ask.keep < KEEP_MOST ? ask.keep : KEEP_MOST;
		send(s->guests[i].fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (!answer.offer.ours) {
		close(s->guests[i].fd);
		s->guests[i].fd = -1;
		s->present--;
		return held ? -1 : 0;
	}
	s->guests[i].holds = held || ask.verb == JOIN_HOLD;
	return s->guests[i].holds - held;
}

int
join_serve(struct join_server *s, const struct pollfd *set, const struct plan *p, const struct want *w,
    const struct join_offer *offer, int64_t *keep)
{
	int grown = 0;

	for (size_t i = 0; i < s->used; i++)
		if (s->guests[i].fd >= 0 && set[1 + i].revents)
			grown += serve_guest(s, i, p, w, offer, keep);
	if (set[0].revents)
		welcome(s);
	return grown;
}

/* ---- the inner side: a backend whose server is the outer keeper ---- */

struct join {
	struct lock base;
	const struct plan *plan;
	const struct want *want;
	const instant *keep_until;
	int fd;
	struct join_answer answer; /* the last one */
};

static const struct backend join_backend;

static void
write_ask(struct join_ask *a, const struct join *j, enum join_verb verb)
{
	*a = (struct join_ask){.version = JOIN_VERSION, .verb = verb, .anywhere = j->plan->inherits};
	snprintf(a->backend, sizeof a->backend, "%s", j->plan->backend->name);
	snprintf(a->key, sizeof a->key, "%s", j->plan->keys[0]);
	if (*j->keep_until > instant_now())
		a->keep = *j->keep_until - instant_now();
	if (!write_place(a->place, j->want))
		a->version = 0; /* too long to be compared: never the same */
}

static enum rc
ask(struct join *j, enum join_verb verb, instant until, struct grant *g, struct fault *f)
{
	static struct join_ask a; /* large */

	j->answer.version = 0;
	write_ask(&a, j, verb);
	if (send(j->fd, &a, sizeof a, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof a)
		return fault_set(f, RC_LOST, "the enclosing dlock has ended");
	for (;;) {
		ssize_t n = recv(j->fd, &j->answer, sizeof j->answer, MSG_DONTWAIT);

		if (n == sizeof j->answer && j->answer.version == JOIN_VERSION && j->answer.offer.ours)
			break;
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return fault_set(f, RC_LOST, "the enclosing dlock no longer holds the lock");
		switch (j->base.host->wait(j->base.host, j->fd, POLLIN, until)) {
		case WOKE_READY:
			break;
		case WOKE_TIMEOUT:
			return fault_set(f, RC_AGAIN, "the enclosing dlock does not answer");
		case WOKE_STOP:
			return RC_STOP;
		}
	}
	g->tokens[0] = j->answer.offer.token;
	g->sent = j->answer.offer.sent;
	g->lease = j->answer.offer.lease;
	g->pace = j->answer.offer.pace;
	g->anchor = -1;
	return RC_OK;
}

static enum rc
join_acquire(struct lock *l, instant until, struct grant *g, struct fault *f)
{
	(void)until;
	return ask((struct join *)l, JOIN_HOLD, instant_now() + JOIN_PATIENCE, g, f);
}

static enum rc
join_renew(struct lock *l, instant until, struct grant *g, struct fault *f)
{
	return ask((struct join *)l, JOIN_CHECK, until, g, f);
}

/* Asks a last time whether the outer one still has it; closing the socket is what gives back. */
static enum rc
join_release(struct lock *l, instant until, struct fault *f)
{
	struct join *j = (struct join *)l;
	struct grant g;
	enum rc rc;

	if (j->fd < 0)
		return RC_OK;
	rc = ask(j, JOIN_CHECK, until, &g, f);
	close(j->fd);
	j->fd = -1;
	return rc;
}

static void
join_close(struct lock *l)
{
	struct join *j = (struct join *)l;

	if (j && j->fd >= 0)
		close(j->fd);
	free(j);
}

static const struct backend join_backend = {
    .name = "join",
    .caps = CAP_FAIR,
    .acquire = join_acquire,
    .renew = join_renew,
    .release = join_release,
    .close = join_close,
};

/* Connects to one address ("@name" of n bytes).  RC_LOST: nobody of ours is there any more. */
static enum rc
connect_to(struct join *j, const char *address, size_t n, instant until, struct fault *f)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (n < 2 || n > sizeof a.sun_path || *address != '@')
		return RC_LOST;
	memcpy(a.sun_path + 1, address + 1, n - 1);
	j->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (j->fd < 0)
		return fault_set(f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	while (connect(j->fd, (struct sockaddr *)&a, offsetof(struct sockaddr_un, sun_path) + n) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			return RC_LOST;
		if (instant_now() >= until) /* too many others are at its door */
			return fault_set(f, RC_AGAIN, "the enclosing dlock does not answer");
		if (j->base.host->wait(j->base.host, -1, 0, instant_now() + JOIN_RETRY) == WOKE_STOP)
			return RC_STOP;
	}
	return peer_of(j->fd) ? RC_OK : RC_LOST;
}

/* Takes over the place that this keeper has told. */
static void
inherit_place(const struct join *j, struct want *want)
{
	static char place[PLACE_BYTES];

	memcpy(place, j->answer.place, sizeof place);
	place[sizeof place - 1] = '\0';
	read_place(place, want);
}

/* Asks the keeper at one address.  RC_OK: it has our key.  RC_LOST: it has not, or is gone. */
static enum rc
ask_keeper(struct join *j, const char *address, size_t n, struct fault *f)
{
	instant until = instant_now() + JOIN_PATIENCE;
	struct grant g;
	enum rc rc = connect_to(j, address, n, until, f);

	return rc == RC_OK ? ask(j, JOIN_CHECK, until, &g, f) : rc;
}

enum rc
join_open(struct lock **ret, struct host *host, const struct plan *p, struct want *want, const instant *keep_until,
    struct fault *f)
{
	const char *address = getenv("DLOCK_KEEPER");
	bool placed = !p->inherits;

	while (address && *address) {
		size_t n = strcspn(address, " ");
		struct join *j = calloc(1, sizeof *j);
		enum rc rc;

		if (!j)
			return fault_set(f, RC_SYSTEM, "out of memory");
		*j = (struct join){
		    .base = {.ops = &join_backend, .host = host, .where = "the enclosing dlock"},
		    .plan = p,
		    .want = want,
		    .keep_until = keep_until,
		    .fd = -1,
		};
		rc = ask_keeper(j, address, n, f);
		if (rc == RC_OK) {
			*ret = &j->base;
			return RC_OK;
		}
		if (!placed && j->answer.version == JOIN_VERSION) {
			inherit_place(j, want); /* the nearest one's */
			placed = true;
		}
		join_close(&j->base);
		if (rc != RC_LOST)
			return rc;
		address += n + strspn(address + n, " ");
	}
	return placed ? RC_OK
		      : fault_set(f, RC_USAGE, "it would go where the enclosing dlock goes, but that has ended: say -u or -b");
}
