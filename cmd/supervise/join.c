/* join.c - lets a dlock below another one use the lock that this one holds. */
#include "join.h"

#include "cmd/mask.h"
#include "cmd/text.h"
#include "tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define JOIN_VERSION 2
#define JOIN_PATIENCE (10 * NS_PER_S) /* a keeper on this machine that needs longer is frozen, or full */
#define JOIN_RETRY (10 * NS_PER_MS)
#define KEEP_MOST (365 * 86400 * NS_PER_S) /* what --min-hold may be */

enum join_verb { JOIN_HOLD = 1, JOIN_CHECK };

/* One datagram each way; both ends are the same program on the same machine. */
struct join_ask {
	int version;
	enum join_verb verb;
	bool anywhere; /* the site is not stated: only backend and key count */
	int64_t keep;  /* the lock is wanted for so long from now, whatever becomes of the asker */
	char backend[16];
	char key[KEY_BYTES + 1];
	char site[JOIN_SITE_BYTES];
};

struct join_answer {
	int version;
	bool foreign; /* the lock is the same, but the asker none of our descendants */
	bool secret;  /* the site has a password and is not told */
	struct join_offer offer;
	char site[JOIN_SITE_BYTES];
};

/* "URL\nNAME=VALUE\n...\n": with backend and key, what makes two locks the same lock. */
static bool
write_site(char *out, const struct site *s)
{
	int n = snprintf(out, JOIN_SITE_BYTES, "%s\n", s->url ? s->url : "");

	for (size_t i = 0; i < s->nsettings && n > 0 && n < JOIN_SITE_BYTES; i++)
		n += snprintf(out + n, JOIN_SITE_BYTES - n, "%s=%s\n", s->settings[i].name, s->settings[i].value);
	return n > 0 && n < JOIN_SITE_BYTES;
}

/* The way back, into `s`, whose own settings stand behind so that they win; the text is cut up. */
static void
read_site(struct join_site *told, struct site *s)
{
	char *rest, *url = told->text, *line = url + strcspn(url, "\n");
	size_t n = 0;

	if (!*line)
		return;
	*line++ = '\0';
	s->url = *url ? url : NULL;
	for (line = strtok_r(line, "\n", &rest); line && n < SETTINGS_MAX; line = strtok_r(NULL, "\n", &rest)) {
		char *equals = strchr(line, '=');

		if (!equals)
			continue;
		*equals = '\0';
		told->settings[n++] = (struct setting){line, equals + 1};
	}
	memcpy(told->settings + n, s->settings, s->nsettings * sizeof *s->settings);
	s->settings = told->settings;
	s->nsettings += n;
}

/* ---- addresses ---- */

struct address {
	char name[64]; /* in the abstract namespace, without its first byte */
	size_t n;
	unsigned long long net, lock;
	bool has_lock; /* it says which, as all of this version do */
};

/* Which lock, in short (FNV-1a). */
static unsigned long long
lock_hash(const struct plan *p)
{
	unsigned long long h = 14695981039346656037ULL;
	const char *words[] = {p->site.backend->name, p->keys[0]};

	for (size_t i = 0; i < 2; i++)
		for (const char *c = words[i];; c++) {
			h = (h ^ (unsigned char)*c) * 1099511628211ULL;
			if (!*c)
				break;
		}
	return h;
}

/* The network namespace of a socket; 0 if an old kernel does not tell. */
static unsigned long long
net_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof cookie;

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

static bool
is_same_net(const struct address *a, int fd)
{
	return a->net == net_of(fd);
}

/* The next of the addresses at *text; false: there is none.  What is none of ours has n 0. */
static bool
next_address(const char **text, struct address *a)
{
	size_t n = strcspn(*text, " ");
	const char *slash = memchr(*text, '/', n);
	size_t name = slash ? (size_t)(slash - *text) : n;

	*a = (struct address){.n = 0};
	if (**text == '@' && name > 1 && name < sizeof a->name) {
		a->n = name - 1;
		memcpy(a->name, *text + 1, a->n);
	}
	a->has_lock = a->n && slash && sscanf(slash, "/%llx/%llx", &a->net, &a->lock) == 2;
	*text += n;
	*text += strspn(*text, " ");
	return n > 0;
}

static socklen_t
fill_address(struct sockaddr_un *out, const char *name, size_t n)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(out->sun_path + 1, name, n);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

/* ---- the outer side ---- */

void
join_listen(struct join_server *s, const struct plan *p)
{
	unsigned long long net = ~0ULL; /* found from nowhere */
	unsigned long long id[2] = {0};
	struct sockaddr_un a;
	socklen_t size;
	char name[64];

	for (size_t i = 0; i < JOINS_MAX; i++)
		s->peers[i].fd = -1;
	s->used = s->present = 0;
	s->out_of_fds = false;
	/*
	 * A name that is never used again: a process left behind must not find another
	 * keeper at it.  And not the owner's, since every user of this machine can read it.
	 */
	if (getrandom(id, sizeof id, 0) != sizeof id)
		id[0] = 0; /* then nobody listens */
	snprintf(name, sizeof name, "dlock-%016llx%016llx", id[0], id[1]);
	size = fill_address(&a, name, strlen(name));
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id[0] && s->listener >= 0 && bind(s->listener, (struct sockaddr *)&a, size) == 0 &&
	    listen(s->listener, SOMAXCONN) == 0)
		net = net_of(s->listener);
	snprintf(s->address, sizeof s->address, "@%s/%llx/%llx", name, net, lock_hash(p));
}

nfds_t
join_poll(const struct join_server *s, struct pollfd *set)
{
	set[0] = (struct pollfd){.fd = s->present < JOINS_MAX && !s->out_of_fds ? s->listener : -1, .events = POLLIN};
	for (size_t i = 0; i < s->used; i++)
		set[1 + i] = (struct pollfd){.fd = s->peers[i].fd, .events = POLLIN};
	return 1 + s->used;
}

/* Is it our own user at the other end?  *pid is 0 if we cannot see it from our pid namespace. */
static bool
is_own_user(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
		return false;
	*pid = peer.pid;
	return true;
}

static void
add_peer(struct join_server *s, int fd, bool foreign)
{
	for (size_t i = 0; i < JOINS_MAX; i++)
		if (s->peers[i].fd < 0) {
			s->peers[i].fd = fd;
			s->peers[i].holds = false;
			s->peers[i].foreign = foreign;
			s->present++;
			s->used = i < s->used ? s->used : i + 1;
			return;
		}
	close(fd);
}

/*
 * Only who descends from us may hold along with us: with our lease, it is killed
 * in time.  Where /proc hides it, knowing our address is proof enough.
 */
static void
accept_peer(struct join_server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	bool foreign;
	pid_t pid;

	if (fd < 0) {
		s->out_of_fds = errno == EMFILE || errno == ENFILE; /* else it would be ready for ever */
		return;
	}
	if (!is_own_user(fd, &pid)) {
		close(fd);
		return;
	}
	foreign = tree_relation(getpid(), pid) == KIN_NO;
	if (foreign && s->present >= JOINS_MAX / 2)
		close(fd);
	else
		add_peer(s, fd, foreign);
}

static void
drop_peer(struct join_server *s, size_t i)
{
	close(s->peers[i].fd);
	s->peers[i].fd = -1;
	s->present--;
	s->out_of_fds = false;
}

/* Where we are, but for a password. */
static bool
tell_site(struct join_answer *a, const struct site *s)
{
	a->secret = mask_finds(s->url);
	return a->secret || write_site(a->site, s);
}

/* `site`: ours, as write_site() has it. */
static bool
is_same_lock(const struct join_ask *ask, const struct plan *p, const char *site)
{
	return strncmp(ask->backend, p->site.backend->name, sizeof ask->backend) == 0 &&
	    strncmp(ask->key, p->keys[0], sizeof ask->key) == 0 &&
	    (ask->anywhere || strncmp(ask->site, site, sizeof ask->site) == 0);
}

/* By how many the joined holds have grown. */
static int
serve_peer(struct join_server *s, size_t i, const struct plan *p, const struct site *site,
    const struct join_offer *offer, int64_t *keep)
{
	struct join_answer answer = {.version = JOIN_VERSION};
	struct join_ask ask;
	char ours[JOIN_SITE_BYTES];
	ssize_t n = recv(s->peers[i].fd, &ask, sizeof ask, MSG_DONTWAIT);
	bool held = s->peers[i].holds;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n == sizeof ask && ask.version == JOIN_VERSION && write_site(ours, site) && tell_site(&answer, site)) {
		answer.foreign = s->peers[i].foreign && is_same_lock(&ask, p, ours);
		if (!s->peers[i].foreign && is_same_lock(&ask, p, ours))
			answer.offer = *offer;
		if (answer.offer.ours && ask.keep > *keep)
			*keep = ask.keep < KEEP_MOST ? ask.keep : KEEP_MOST;
		send(s->peers[i].fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (!answer.offer.ours) {
		drop_peer(s, i);
		return held ? -1 : 0;
	}
	s->peers[i].holds = held || ask.verb == JOIN_HOLD;
	return s->peers[i].holds - held;
}

int
join_serve(struct join_server *s, const struct pollfd *set, const struct plan *p, const struct site *site,
    const struct join_offer *offer, int64_t *keep)
{
	int grown = 0;

	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && set[1 + i].revents)
			grown += serve_peer(s, i, p, site, offer, keep);
	if (set[0].revents)
		accept_peer(s);
	return grown;
}

/* ---- the inner side: a backend whose server is the outer keeper ---- */

struct join {
	struct store base;
	const struct plan *plan;
	const struct site *site;
	const instant *keep_until;
	int fd;
	struct join_answer answer; /* the last one */
};

static const struct backend join_backend;

static struct join *
join_of(struct store *s)
{
	return (struct join *)store_of(s, &join_backend);
}

static void
write_ask(struct join_ask *a, const struct join *j, enum join_verb verb)
{
	*a = (struct join_ask){.version = JOIN_VERSION, .verb = verb, .anywhere = j->plan->site.inherits};
	snprintf(a->backend, sizeof a->backend, "%s", j->plan->site.backend->name);
	snprintf(a->key, sizeof a->key, "%s", j->plan->keys[0]);
	if (*j->keep_until > instant_now())
		a->keep = *j->keep_until - instant_now();
	if (!write_site(a->site, j->site))
		a->version = 0; /* too long to be compared: never the same */
}

static enum rc
join_exchange(struct join *j, enum join_verb verb, instant until, struct grant *g, struct fault *f)
{
	struct join_ask a;

	while (recv(j->fd, &j->answer, sizeof j->answer, MSG_DONTWAIT) > 0)
		continue; /* an answer that nobody waited for any longer */
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
	g->token = j->answer.offer.token;
	g->sent = j->answer.offer.sent;
	g->lease = j->answer.offer.lease;
	g->pace = j->answer.offer.pace;
	g->anchor = j->fd;
	return RC_OK;
}

/*
 * The connection is the hold: the front has it too, so that the outer one keeps
 * the lock until all that a killed keeper of ours has left behind is gone.
 */
static enum rc
join_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g, struct fault *f)
{
	struct join *j = join_of(s);

	(void)claim, (void)until;
	s->host->alert = j->fd;
	return join_exchange(j, JOIN_HOLD, instant_now() + JOIN_PATIENCE, g, f);
}

static enum rc
join_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return join_exchange(join_of(s), JOIN_CHECK, until, g, f);
}

/* Asks a last time whether the outer one still has it; the end of the connection is what gives back. */
static enum rc
join_release(struct store *s, int status, instant until, struct fault *f)
{
	struct join *j = join_of(s);
	struct grant g;
	enum rc rc;

	(void)status;
	if (j->fd < 0)
		return RC_OK;
	rc = join_exchange(j, JOIN_CHECK, until, &g, f);
	s->host->alert = -1;
	shutdown(j->fd, SHUT_RDWR); /* for the front's copy as well */
	close(j->fd);
	j->fd = -1;
	return rc;
}

static void
join_close(struct store *s)
{
	struct join *j = s ? join_of(s) : NULL;

	if (j && j->fd >= 0)
		close(j->fd);
	free(j);
}

static const struct backend join_backend = {
    .name = "join",
    .close = join_close,
    .lock = &(const struct lock_ops){join_acquire, join_renew, join_release},
};

/* That keeper has our key, or seems to. */
static enum rc
unjoinable(const struct join *j, const char *why, struct fault *f)
{
	char key[400];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s and %s; a run that waits for its own parent would never end; "
	    "unset DLOCK_KEEPER if this is none of its parts",
	    text_clean(key, sizeof key, j->plan->keys[0], strlen(j->plan->keys[0])), why);
}

static enum rc
not_joined(const struct join *j, const struct address *a, const char *why, struct fault *f)
{
	return a->has_lock && a->lock == lock_hash(j->plan) ? unjoinable(j, why, f) : RC_LOST;
}

/* Connects to one address.  RC_LOST: nobody of ours is there any more. */
static enum rc
connect_to(struct join *j, const struct address *to, instant until, struct fault *f)
{
	struct sockaddr_un a;
	socklen_t size = fill_address(&a, to->name, to->n);
	pid_t pid;

	if (to->n == 0)
		return RC_LOST;
	j->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (j->fd < 0)
		return fault_set(f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	while (connect(j->fd, (struct sockaddr *)&a, size) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			return is_same_net(to, j->fd)
			    ? RC_LOST
			    : not_joined(j, to, "cannot be asked from here (another network namespace?)", f);
		if (instant_now() >= until) /* too many others wait to be accepted */
			return fault_set(f, RC_AGAIN, "the enclosing dlock does not answer");
		if (j->base.host->wait(j->base.host, -1, 0, instant_now() + JOIN_RETRY) == WOKE_STOP)
			return RC_STOP;
	}
	return is_own_user(j->fd, &pid) ? RC_OK : not_joined(j, to, "is another user's", f);
}

/* Takes over the site that this keeper has told. */
static void
inherit_site(const struct join *j, struct join_site *told, struct site *site)
{
	memcpy(told->text, j->answer.site, sizeof told->text);
	told->text[sizeof told->text - 1] = '\0';
	read_site(told, site);
}

/*
 * Asks the keeper at one address.  RC_OK: it has our key, and keeps it for us
 * from now on.  RC_LOST: it has not, or is gone.
 */
static enum rc
ask_keeper(struct join *j, const struct address *a, struct fault *f)
{
	instant until = instant_now() + JOIN_PATIENCE;
	struct grant g;
	enum rc rc = connect_to(j, a, until, f);

	if (rc == RC_OK)
		rc = join_exchange(j, JOIN_HOLD, until, &g, f);
	return rc == RC_LOST && j->answer.foreign ? unjoinable(j, "counts this run among no descendants of its", f) : rc;
}

enum rc
join_open(struct store **ret, struct host *host, const struct plan *p, struct site *site, struct join_site *told,
    const instant *keep_until, struct fault *f)
{
	const char *addresses = getenv("DLOCK_KEEPER");
	bool known = !p->site.inherits, secret = false; /* the site */
	struct address address;

	while (addresses && next_address(&addresses, &address)) {
		struct join *j = calloc(1, sizeof *j);
		enum rc rc;

		if (!j)
			return fault_set(f, RC_SYSTEM, "out of memory");
		*j = (struct join){
		    .base = {&join_backend, host, "the enclosing dlock", CAP_FAIR},
		    .plan = p,
		    .site = site,
		    .keep_until = keep_until,
		    .fd = -1,
		};
		rc = ask_keeper(j, &address, f);
		if (rc == RC_OK) {
			*ret = &j->base;
			return RC_OK;
		}
		if (!known && !secret && j->answer.version == JOIN_VERSION) { /* the nearest one's */
			secret = j->answer.secret;
			known = !secret;
			if (known)
				inherit_site(j, told, site);
		}
		join_close(&j->base);
		if (rc != RC_LOST)
			return rc;
	}
	if (known)
		return RC_OK;
	return fault_set(f, RC_USAGE, "it would go where the enclosing dlock goes, but %s",
	    secret ? "a URL with a password is not handed on: set DLOCK_URL for both, or say -u" : "that has ended: say -u or -b");
}
