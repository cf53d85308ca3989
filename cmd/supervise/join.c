/* join.c - lets a dlock below others use the locks that these hold. */
#include "join.h"

#include "cmd/mask.h"
#include "cmd/text.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define JOIN_VERSION 5
/* a keeper on this machine that needs longer is frozen, or full */
#define JOIN_PATIENCE (10 * NS_PER_S)
#define JOIN_RETRY (10 * NS_PER_MS)
#define KEEP_MOST (365 * 86400 * NS_PER_S) /* what --min-hold may be */

/* Half of that each: for an answer, and then for a sign of life. */
#define RELEASE_SILENCE (JOIN_PATIENCE / 2)

/*
 * Bytes of what an outer keeper sends unasked: that it is to be asked; and to who asks for
 * a release again: that it is alive.
 */
enum { JOIN_CALL = 1, JOIN_ALIVE = 1 };

enum join_verb { JOIN_HOLD = 1, JOIN_CHECK, JOIN_RELEASE };

/* One datagram each way; both ends are the same program on the same machine. */
struct join_ask {
	int version;
	enum join_verb verb;
	bool anywhere; /* the site is not stated: only backend and keys count */
	/* the lock is wanted for so long from now, whatever becomes of the asker */
	int64_t keep;
	char backend[16];
	char site[JOIN_SITE_BYTES];
	/* one after the other, each with its NUL; sent up to the last one */
	char keys[KEYS_MAX * (KEY_BYTES + 1)];
};

/* What a keeper has, for those who may join. */
struct join_hold {
	enum lock_kind kind;
	unsigned limit;
	instant sent;
	int64_t lease, pace;
	struct join_part parts[KEYS_MAX]; /* in the order in which they were asked for */
};

struct join_answer {
	int version;
	bool foreign; /* a lock is the same, but the asker none of our descendants */
	bool secret;  /* the site has a password and is not told */
	bool stops;   /* it is ours still, but wanted back: to be stopped politely */
	bool full;    /* it is ours, but JOINS_HOLDING have joined already */
	/*
	 * bits: which of the keys asked for we hold, in the order in which they were
	 * asked for; 0: none
	 */
	unsigned has;
	struct join_hold hold;
	char site[JOIN_SITE_BYTES];
};

/* "URL\nNAME=VALUE\n...\n": with backend and key, what makes two locks the same lock. */
static bool
write_site(char *out, const struct site *s)
{
	int n = snprintf(out, JOIN_SITE_BYTES, "%s\n", s->url ? s->url : "");

	for (size_t i = 0; i < s->nsettings && n > 0 && n < JOIN_SITE_BYTES; i++)
		n += snprintf(out + n, JOIN_SITE_BYTES - n, "%s=%s\n",
		    s->settings[i].name, s->settings[i].value);
	return n > 0 && n < JOIN_SITE_BYTES;
}

/*
 * The way back, into `s`, whose own settings stand behind so that they win; the text is
 * cut up.
 */
static void
read_site(struct join_site *told, struct site *s)
{
	char *rest, *url = told->text, *line = url + strcspn(url, "\n");
	size_t n = 0;

	if (!*line)
		return;
	*line++ = '\0';
	s->url = *url ? url : NULL;
	for (line = strtok_r(line, "\n", &rest); line && n < SETTINGS_MAX;
	     line = strtok_r(NULL, "\n", &rest)) {
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
	unsigned long long net;
	const char *locks; /* behind that: "/HASH/HASH...", up to a blank or the end */
};

/* Which lock, in short (FNV-1a). */
static unsigned long long
lock_hash(const char *backend, const char *key)
{
	unsigned long long h = 14695981039346656037ULL;
	const char *words[] = {backend, key};

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

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie
										: 0;
}

static bool
is_same_net(const struct address *a, int fd)
{
	return a->net == net_of(fd);
}

/*
 * The next of the addresses at *text; false: there is none.  What is none of ours has n
 * 0.
 */
static bool
next_address(const char **text, struct address *a)
{
	size_t n = strcspn(*text, " ");
	const char *slash = memchr(*text, '/', n);
	size_t name = slash ? (size_t)(slash - *text) : n;

	*a = (struct address){.locks = ""};
	if (**text == '@' && name > 1 && name < sizeof a->name) {
		a->n = name - 1;
		memcpy(a->name, *text + 1, a->n);
	}
	if (a->n && slash) {
		char *end;

		a->net = strtoull(slash + 1, &end, 16);
		a->locks = end;
	}
	*text += n;
	*text += strspn(*text, " ");
	return n > 0;
}

/*
 * One of the plan's keys that the keeper at this address has, as it says of itself;
 * NULL: none.
 */
static const char *
key_at(const struct address *a, const struct plan *p)
{
	char *end;

	for (const char *c = a->locks; *c == '/'; c = end) {
		unsigned long long lock = strtoull(c + 1, &end, 16);

		for (size_t i = 0; i < p->nkeys; i++)
			if (lock == lock_hash(p->site.backend->name, p->keys[i]))
				return p->keys[i];
	}
	return NULL;
}

/* "@NAME/NET/LOCK..." */
static void
write_address(
    struct join_server *s, const char *name, unsigned long long net, const struct plan *p)
{
	size_t n = snprintf(s->address, sizeof s->address, "@%s/%llx", name, net);

	for (size_t i = 0; i < p->nkeys; i++)
		n += snprintf(s->address + n, sizeof s->address - n, "/%llx",
		    lock_hash(p->site.backend->name, p->keys[i]));
}

static socklen_t
fill_address(struct sockaddr_un *out, const char *name, size_t n)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(out->sun_path + 1, name, n);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

/* ---- the outer side ---- */

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
join_listen(struct join_server *s, const struct plan *p, pid_t root)
{
	unsigned long long net = ~0ULL; /* found from nowhere */
	unsigned long long id[2] = {0};
	struct sockaddr_un a;
	socklen_t size;
	char name[64];

	for (size_t i = 0; i < JOINS_MAX; i++)
		s->peers[i].fd = -1;
	s->used = s->present = 0;
	s->out_of_fds = s->asked = false;
	s->root = root;
	/*
	 * A name that is never used again: a process left behind must not find another
	 * keeper at it.  And not the owner's, since every user of this machine can read
	 * it.
	 */
	if (getrandom(id, sizeof id, 0) != sizeof id)
		id[0] = 0; /* then nobody listens */
	snprintf(name, sizeof name, "dlock-%016llx%016llx", id[0], id[1]);
	size = fill_address(&a, name, strlen(name));
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id[0] && s->listener >= 0 &&
	    bind(s->listener, (struct sockaddr *)&a, size) == 0 &&
	    listen(s->listener, SOMAXCONN) == 0)
		net = net_of(s->listener);
	write_address(s, name, net, p);
	s->spares = p->cmd == CMD_HOLD;
	s->spare = -1;
	keep_spare(s);
}

nfds_t
join_poll(const struct join_server *s, struct pollfd *set)
{
	set[0] = (struct pollfd){
	    .fd = s->present < JOINS_MAX && !s->out_of_fds ? s->listener : -1,
	    .events = POLLIN};
	for (size_t i = 0; i < s->used; i++)
		set[1 + i] = (struct pollfd){.fd = s->peers[i].fd, .events = POLLIN};
	return 1 + s->used;
}

/*
 * Is it our own user at the other end?  *pid is 0 if we cannot see it from our pid
 * namespace.
 */
static bool
is_own_user(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
	    peer.uid != geteuid())
		return false;
	*pid = peer.pid;
	return true;
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
	if (!is_own_user(fd, &pid)) {
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

/* Where we are, but for a password. */
static bool
tell_site(struct join_answer *a, const struct site *s)
{
	a->secret = mask_finds(s->url);
	return a->secret || write_site(a->site, s);
}

static bool
is_same_place(const struct join_ask *ask, const struct plan *p, const struct site *site)
{
	char ours[JOIN_SITE_BYTES];

	return strncmp(ask->backend, p->site.backend->name, sizeof ask->backend) == 0 &&
	    write_site(ours, site) &&
	    (ask->anywhere || strncmp(ask->site, ours, sizeof ask->site) == 0);
}

/*
 * Fills in which of the keys asked for we hold, in n bytes, and what was granted for
 * them.
 */
static void
find_keys(struct join_answer *a, const struct join_ask *ask, size_t n,
    const struct plan *p, const struct join_part *parts)
{
	const char *key = ask->keys, *end = (const char *)ask + n;

	for (size_t i = 0; i < KEYS_MAX && key < end; i++) {
		size_t length = strnlen(key, end - key);

		for (size_t k = 0; k < p->nkeys && key + length < end; k++)
			if (strcmp(key, p->keys[k]) == 0) {
				a->has |= 1U << i;
				a->hold.parts[i] = parts[k];
			}
		key += length + 1;
	}
}

/* A stranger is told that he is one, and only if he asks for what we have. */
static void
answer_peer(struct join_answer *a, const struct join_ask *ask, size_t n, bool foreign,
    const struct plan *p, const struct site *site, const struct join_offer *o)
{
	if (is_same_place(ask, p, site))
		find_keys(a, ask, n, p, o->parts);
	a->foreign = foreign && a->has;
	if (foreign || !o->ours)
		a->has = 0;
	if (!a->has)
		return;
	a->hold.kind = p->claim.kind;
	a->hold.limit = p->claim.limit;
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
serve_peer(struct join_server *s, size_t i, const struct plan *p, const struct site *site,
    const struct join_offer *offer, int64_t *keep)
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
	    tell_site(&answer, site)) {
		answer_peer(&answer, &ask, n, s->peers[i].foreign, p, site, offer);
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
join_serve(struct join_server *s, const struct pollfd *set, const struct plan *p,
    const struct site *site, const struct join_offer *offer, int64_t *keep)
{
	int grown = 0;

	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && set[1 + i].revents)
			grown += serve_peer(s, i, p, site, offer, keep);
	if (set[0].revents)
		accept_peer(s);
	keep_spare(s);
	return grown;
}

void
join_refuse(struct join_server *s)
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
join_is_asked(const struct join_server *s)
{
	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && s->peers[i].releases)
			return true;
	return false;
}

void
join_call(struct join_server *s)
{
	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && s->peers[i].holds)
			send(s->peers[i].fd, "", JOIN_CALL, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool
join_answer_release(struct join_server *s, int status, const char *line)
{
	struct join_outcome o = {.version = JOIN_VERSION, .status = status};
	bool any = false;

	snprintf(o.line, sizeof o.line, "%s", line);
	for (size_t i = 0; i < s->used; i++)
		if (s->peers[i].fd >= 0 && s->peers[i].releases) {
			send(s->peers[i].fd, &o, sizeof o, MSG_DONTWAIT | MSG_NOSIGNAL);
			drop_peer(s, i);
			any = true;
		}
	return any;
}

/* ---- who releases a hold ---- */

/* An address without its locks: "@dlock-ID/NET". */
void
join_write_handle(const char *address, char *out)
{
	size_t n = strcspn(address, "/");

	n += address[n] == '/' ? 1 + strcspn(address + n + 1, "/ ") : 0;
	snprintf(out, HANDLE_BYTES, "%.*s", (int)n, address);
}

static bool
read_handle(const char *handle, struct address *a)
{
	static const char digits[] = "0123456789abcdef";
	const char *name = "@dlock-", *id = handle + strlen(name);

	if (strncmp(handle, name, strlen(name)) != 0 || strspn(id, digits) != 32 ||
	    id[32] != '/' || strspn(id + 33, digits) != strlen(id + 33) || !id[33])
		return false;
	return strlen(handle) < HANDLE_BYTES && next_address(&handle, a);
}

/* Nobody but a keeper of ours is told anything: the name may be anybody's by now. */
static enum rc
connect_to_hold(int fd, const struct address *a, struct fault *f)
{
	struct sockaddr_un to;
	socklen_t size = fill_address(&to, a->name, a->n);
	pid_t pid;

	while (connect(fd, (struct sockaddr *)&to, size) != 0) {
		if (errno != EINTR && !is_same_net(a, fd))
			return fault_set(f, RC_DENIED,
			    "this handle cannot be asked from here (another network namespace, or another machine?)");
		if (errno != EINTR)
			return fault_set(f, RC_LOST,
			    "nothing is held under this handle: it was released, or its time or its process has ended");
	}
	if (!is_own_user(fd, &pid))
		return fault_set(f, RC_LOST, "this handle is another user's");
	return RC_OK;
}

static enum rc
keeper_is_silent(int fd, struct fault *f)
{
	pid_t pid = 0;

	(void)is_own_user(fd, &pid);
	return fault_set(f, RC_SYSTEM,
	    "dlock's keeper process (pid %d) does not answer: it is stopped, or this machine is overloaded; "
	    "it releases the lock once it goes on",
	    (int)pid);
}

/*
 * For how the release ends a server may be waited for, as long as the keeper does.  While
 * none is told the keeper is asked again, and has to say at least that it is alive.
 */
static enum rc
await_outcome(int fd, struct join_outcome *o, struct fault *f)
{
	const struct join_ask ask = {.version = JOIN_VERSION, .verb = JOIN_RELEASE};
	const size_t size = offsetof(struct join_ask, keys) + 1;
	bool alive = true;
	ssize_t n = -1;

	send(fd, &ask, size, MSG_NOSIGNAL);
	for (;;) {
		n = recv(fd, o, sizeof *o, 0);
		if (n == JOIN_ALIVE)
			alive = true;
		else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
		else if (errno == EAGAIN && !alive)
			return keeper_is_silent(fd, f);
		else if (errno == EAGAIN) {
			alive = false;
			send(fd, &ask, size, MSG_NOSIGNAL);
		}
	}
	o->line[sizeof o->line - 1] = '\0';
	return n == sizeof *o && o->version == JOIN_VERSION
	    ? RC_OK
	    : fault_set(f, RC_AGAIN,
		  "dlock's keeper process has ended before it could say whether it is released; "
		  "the lock ends with its lease at the latest");
}

enum rc
join_ask_release(const char *handle, struct join_outcome *o, struct fault *f)
{
	const struct timeval patience = {.tv_sec = RELEASE_SILENCE / NS_PER_S};
	struct address a;
	enum rc rc;
	int fd;

	if (!read_handle(handle, &a))
		return fault_set(f, RC_USAGE, "this is no handle: dlock hold prints one");
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	rc = connect_to_hold(fd, &a, f);
	if (rc == RC_OK)
		rc = await_outcome(fd, o, f);
	close(fd);
	return rc;
}

/* ---- the inner side: a backend whose servers are the keepers around it ---- */

struct join {
	struct store base;
	const struct plan *plan;
	const struct site *site;
	const instant *keep_until;
	struct joined *joined;
	int alert; /* readable when one of several keepers says something; -1 */
	struct join_answer answer; /* the last one */
};

static const struct backend join_backend;

static struct join *
join_of(struct store *s)
{
	return (struct join *)store_of(s, &join_backend);
}

/* Returns how much of *a is to be sent. */
static size_t
write_ask(struct join_ask *a, const struct join *j, enum join_verb verb)
{
	char *key = a->keys;

	*a = (struct join_ask){
	    .version = JOIN_VERSION, .verb = verb, .anywhere = j->plan->site.inherits};
	snprintf(a->backend, sizeof a->backend, "%s", j->plan->site.backend->name);
	for (size_t i = 0; i < j->plan->nkeys; i++)
		key = stpcpy(key, j->plan->keys[i]) + 1;
	if (j->plan->nkeys == 0)
		key++; /* an empty one, which nobody has */
	if (*j->keep_until > instant_now())
		a->keep = *j->keep_until - instant_now();
	if (!write_site(a->site, j->site))
		a->version = 0; /* too long to be compared: never the same */
	return key - (char *)a;
}

static enum rc
no_room(struct fault *f)
{
	return fault_set(f, RC_AGAIN,
	    "the enclosing dlock has no room for one more run that joins it");
}

/* Asks the keeper at `fd`; its answer is then in j->answer. */
static enum rc
join_exchange(struct join *j, int fd, enum join_verb verb, instant until, struct fault *f)
{
	struct join_ask a;
	size_t size = write_ask(&a, j, verb);

	while (recv(fd, &j->answer, sizeof j->answer, MSG_DONTWAIT) > 0)
		continue; /* an answer that nobody waited for any longer */
	j->answer.version = 0;
	if (send(fd, &a, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
		return fault_set(f, RC_LOST, "the enclosing dlock has ended");
	for (;;) {
		ssize_t n = recv(fd, &j->answer, sizeof j->answer, MSG_DONTWAIT);

		if (n == sizeof j->answer && j->answer.version == JOIN_VERSION &&
		    j->answer.has)
			return RC_OK;
		if (n == JOIN_CALL)
			continue; /* we are asking already */
		if (n == sizeof j->answer && j->answer.full)
			return no_room(f);
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return fault_set(
			    f, RC_LOST, "the enclosing dlock no longer holds the lock");
		switch (j->base.host->wait(j->base.host, fd, POLLIN, until)) {
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

/*
 * Asks all keepers whose holds are joined: together they are worth what the one is whose
 * lease ends first.
 */
static enum rc
exchange_all(
    struct join *j, enum join_verb verb, instant until, struct grant *g, struct fault *f)
{
	const struct anchors *keepers = &j->joined->keepers;
	struct grant all = {.token = j->joined->parts[0].token,
	    .slot = j->joined->parts[0].slot,
	    .anchor = keepers->fds[0]};
	bool stops = false;

	for (size_t i = 0; i < keepers->n; i++) {
		const struct join_answer *a = &j->answer;
		enum rc rc = join_exchange(j, keepers->fds[i], verb, until, f);

		if (rc != RC_OK)
			return rc;
		stops = stops || a->stops;
		if (i > 0 &&
		    instant_after(a->hold.sent, a->hold.lease) >=
			instant_after(all.sent, all.lease))
			continue;
		all.sent = a->hold.sent;
		all.lease = a->hold.lease;
		all.pace = a->hold.pace;
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
	rc = exchange_all(j, JOIN_HOLD, instant_now() + JOIN_PATIENCE, g, f);
	return rc == RC_REVOKED ? RC_OK : rc; /* the next renewal says it again */
}

static enum rc
join_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return exchange_all(join_of(s), JOIN_CHECK, until, g, f);
}

/* Ends the connections: that gives back. */
static void
leave_keepers(struct join *j)
{
	struct anchors *keepers = &j->joined->keepers;

	while (keepers->n > 0) {
		int fd = keepers->fds[--keepers->n];

		shutdown(fd, SHUT_RDWR); /* for the front's copy as well */
		close(fd);
	}
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
	rc = exchange_all(j, JOIN_CHECK, until, &g, f);
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

/* ---- which keepers are joined ---- */

/* What looking for the plan's keys has found so far; bits are keys. */
struct search {
	struct join *join;
	int fd;         /* of the keeper that is being asked; -1 */
	unsigned found; /* held by a keeper of a kind that fits, which is joined */
	unsigned other; /* held by one of another kind: */
	enum lock_kind kind;
	unsigned limit;
};

/* That keeper has our key, or seems to. */
static enum rc
unjoinable(const char *named, const char *why, struct fault *f)
{
	char key[400];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s and %s; a run that waits for its own parent would never end; "
	    "unset DLOCK_KEEPER if this is none of its parts",
	    text_name(key, sizeof key, named), why);
}

static enum rc
not_joined(
    const struct join *j, const struct address *a, const char *why, struct fault *f)
{
	const char *key = key_at(a, j->plan);

	return key ? unjoinable(key, why, f) : RC_LOST;
}

/* Connects to one address.  RC_LOST: nobody of ours is there any more. */
static enum rc
connect_to(struct search *s, const struct address *to, instant until, struct fault *f)
{
	struct host *host = s->join->base.host;
	struct sockaddr_un a;
	socklen_t size = fill_address(&a, to->name, to->n);
	pid_t pid;

	if (to->n == 0)
		return RC_LOST;
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	while (connect(s->fd, (struct sockaddr *)&a, size) != 0) {
		if (errno != EAGAIN && errno != EINTR)
			return is_same_net(to, s->fd)
			    ? RC_LOST
			    : not_joined(s->join, to,
				  "cannot be asked from here (another network namespace?)",
				  f);
		if (instant_now() >= until) /* too many others wait to be accepted */
			return fault_set(
			    f, RC_AGAIN, "the enclosing dlock does not answer");
		if (host->wait(host, -1, 0, instant_now() + JOIN_RETRY) == WOKE_STOP)
			return RC_STOP;
	}
	return is_own_user(s->fd, &pid) ? RC_OK
					: not_joined(s->join, to, "is another user's", f);
}

/* Takes over the site that this keeper has told. */
static void
inherit_site(const struct join *j, struct site *site)
{
	struct join_site *told = &j->joined->site;

	memcpy(told->text, j->answer.site, sizeof told->text);
	told->text[sizeof told->text - 1] = '\0';
	read_site(told, site);
}

/* Asks it, and again for a while where it has no room for one more. */
static enum rc
ask_for_room(struct search *s, const struct address *a, instant until, struct fault *f)
{
	struct host *host = s->join->base.host;

	for (;;) {
		enum rc rc = connect_to(s, a, until, f);

		if (rc == RC_OK)
			rc = join_exchange(s->join, s->fd, JOIN_HOLD, until, f);
		if (rc != RC_AGAIN || !s->join->answer.full)
			return rc;
		if (instant_now() + JOIN_RETRY >= until)
			return no_room(f); /* the last one may not have been answered */
		close(s->fd);
		s->fd = -1;
		if (host->wait(host, -1, 0, instant_now() + JOIN_RETRY) == WOKE_STOP)
			return RC_STOP;
	}
}

/*
 * Asks the keeper at one address.  RC_OK: it has keys of ours, and keeps them for us
 * from now on.  RC_LOST: it has none, or is gone.
 */
static enum rc
ask_keeper(struct search *s, const struct address *a, struct fault *f)
{
	struct join *j = s->join;
	const char *key = key_at(a, j->plan);
	enum rc rc;

	j->answer.foreign = j->answer.full = false;
	rc = ask_for_room(s, a, instant_now() + JOIN_PATIENCE, f);
	return rc == RC_LOST && j->answer.foreign
	    ? unjoinable(key ? key : j->plan->keys[0],
		  "counts this run among no descendants of its", f)
	    : rc;
}

/* Is what the plan asks for a part of such a hold? */
static bool
is_part_of(const struct plan *p, enum lock_kind kind, unsigned limit)
{
	if (p->claim.kind == KIND_LIMIT)
		return kind == KIND_LIMIT && limit == (unsigned)p->claim.limit;
	return kind_is_exclusive(kind) ||
	    (kind == KIND_SHARED && p->claim.kind == KIND_SHARED);
}

/*
 * The keeper that was asked has keys of ours: joins it for those that are not found yet,
 * or leaves it.
 */
static void
take_hold(struct search *s)
{
	const struct join_answer *a = &s->join->answer;
	struct joined *joined = s->join->joined;
	unsigned more = a->has & ~s->found & ((1U << s->join->plan->nkeys) - 1);

	if (!is_part_of(s->join->plan, a->hold.kind, a->hold.limit)) {
		s->kind = more & ~s->other ? a->hold.kind : s->kind;
		s->limit = more & ~s->other ? a->hold.limit : s->limit;
		s->other |= more;
		return;
	}
	for (size_t i = 0; i < s->join->plan->nkeys; i++)
		if (more & (1U << i))
			joined->parts[i] = a->hold.parts[i];
	if (more) {
		joined->keepers.fds[joined->keepers.n++] = s->fd;
		s->fd = -1;
	}
	s->found |= more;
}

/* The first of the plan's keys whose bit is set. */
static const char *
first_key(const struct plan *p, unsigned bits)
{
	size_t i = 0;

	while (i + 1 < p->nkeys && !(bits & (1U << i)))
		i++;
	return p->keys[i];
}

static const char *
kind_words(enum lock_kind kind, unsigned limit, char *out, size_t size)
{
	if (kind == KIND_LIMIT)
		snprintf(out, size, "with --limit %u", limit);
	else
		snprintf(
		    out, size, "%s", kind == KIND_SHARED ? "shared (-s)" : "exclusively");
	return out;
}

static enum rc
join_refuse_kind(const struct search *s, struct fault *f)
{
	const struct plan *p = s->join->plan;
	char key[400], theirs[32], ours[32];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s %s, and it is asked for %s here: this run would wait for its own "
	    "parent for ever; ask for the same kind there, or unset DLOCK_KEEPER if this is none of its parts",
	    text_name(key, sizeof key, first_key(p, s->other & ~s->found)),
	    kind_words(s->kind, s->limit, theirs, sizeof theirs),
	    kind_words(p->claim.kind, p->claim.limit, ours, sizeof ours));
}

static enum rc
refuse_mixture(const struct search *s, struct fault *f)
{
	const struct plan *p = s->join->plan;
	char held[120], free[120];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s, and nobody around it has %s: to wait for one with the other in "
	    "hand can end in a deadlock; take both in the enclosing run",
	    text_name(held, sizeof held, first_key(p, s->found)),
	    text_name(free, sizeof free, first_key(p, ~s->found)));
}

/*
 * All keepers have been asked, or all keys were found: is it to be joined (RC_OK), or
 * taken elsewhere (RC_LOST)?
 */
static enum rc
settle_search(const struct search *s, struct fault *f)
{
	const struct plan *p = s->join->plan;

	if (s->other & ~s->found)
		return join_refuse_kind(s, f);
	if (!s->found)
		return RC_LOST;
	if (s->found != (1U << p->nkeys) - 1)
		return refuse_mixture(s, f);
	if (job_is_wanted(&p->claim.job))
		return fault_set(f, RC_USAGE,
		    "the dlock around it (DLOCK_KEEPER) holds the lock already, and what --once and --cooldown remember is "
		    "written when that one releases it: say them there");
	return RC_OK;
}

/* What the nearest keeper tells of its site, for a plan that names none. */
struct whereabouts {
	bool known, secret;
};

static void
note_site(const struct join *j, struct site *site, struct whereabouts *w)
{
	if (w->known || w->secret || j->answer.version != JOIN_VERSION)
		return;
	w->secret = j->answer.secret;
	w->known = !w->secret;
	if (w->known)
		inherit_site(j, site);
}

static enum rc
unknown_site(const struct whereabouts *w, struct fault *f)
{
	return fault_set(f, RC_USAGE,
	    "it would go where the enclosing dlock goes, but %s",
	    w->secret
		? "a URL with a password is not handed on: set DLOCK_URL for both, or say -u"
		: "that has ended (DLOCK_KEEPER): say -u or -b, and unset what it has left behind");
}

/*
 * Asks one keeper after the other.  Not RC_OK: one of them cannot be asked, or not be
 * joined.
 */
static enum rc
search(struct search *s, const char *addresses, struct site *site, struct whereabouts *w,
    struct fault *f)
{
	const unsigned all = (1U << s->join->plan->nkeys) - 1;
	struct join *j = s->join;
	struct address address;
	enum rc rc = RC_OK;

	while ((rc == RC_OK || rc == RC_LOST) && s->found != all &&
	    next_address(&addresses, &address)) {
		j->answer.version = 0;
		rc = ask_keeper(s, &address, f);
		if (rc == RC_OK)
			take_hold(s);
		if (rc != RC_OK)
			note_site(j, site, w);
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
	}
	return rc == RC_LOST ? RC_OK : rc;
}

enum rc
join_open(struct store **ret, struct host *host, const struct plan *p, struct site *site,
    struct joined *joined, const instant *keep_until, struct fault *f)
{
	const char *addresses = getenv("DLOCK_KEEPER");
	struct whereabouts w = {.known = !p->site.inherits};
	struct search s = {.fd = -1};
	enum rc rc;

	if (addresses && *addresses) {
		s.join = calloc(1, sizeof *s.join);
		if (!s.join)
			return fault_set(f, RC_SYSTEM, "out of memory");
		*s.join = (struct join){
		    .base = {&join_backend, host, "the enclosing dlock",
			CAP_FAIR | CAP_SHARED | CAP_LIMIT},
		    .plan = p,
		    .site = site,
		    .keep_until = keep_until,
		    .joined = joined,
		    .alert = -1,
		};
		joined->keepers.n = 0;
		rc = search(&s, addresses, site, &w, f);
		if (rc == RC_OK)
			rc = settle_search(&s, f);
		if (rc == RC_OK) {
			*ret = &s.join->base;
			return RC_OK;
		}
		join_close(&s.join->base);
		if (rc != RC_LOST)
			return rc;
	}
	return w.known ? RC_OK : unknown_site(&w, f);
}

/* Asks one keeper what it has, and leaves it. */
static void
look_at_keeper(struct search *s, const struct address *a, struct site *site,
    struct whereabouts *w, unsigned *ours)
{
	struct join *j = s->join;
	instant until = instant_now() + JOIN_PATIENCE;
	struct fault f;

	j->answer.version = 0;
	if (connect_to(s, a, until, &f) == RC_OK &&
	    join_exchange(j, s->fd, JOIN_CHECK, until, &f) == RC_OK && ours &&
	    is_part_of(j->plan, j->answer.hold.kind, j->answer.hold.limit))
		*ours |= j->answer.has;
	note_site(j, site, w);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

enum rc
join_look(struct host *host, const struct plan *p, struct site *site,
    struct joined *joined, unsigned *ours, struct fault *f)
{
	static const instant not_kept = 0;
	const char *addresses = getenv("DLOCK_KEEPER");
	struct whereabouts w = {.known = !p->site.inherits};
	struct search s = {.join = calloc(1, sizeof *s.join), .fd = -1};
	struct address address;

	if (!s.join)
		return fault_set(f, RC_SYSTEM, "out of memory");
	*s.join = (struct join){.base.host = host,
	    .plan = p,
	    .site = site,
	    .keep_until = &not_kept,
	    .joined = joined};
	while (addresses && (ours || !(w.known || w.secret)) &&
	    next_address(&addresses, &address))
		look_at_keeper(&s, &address, site, &w, ours);
	free(s.join);
	return w.known ? RC_OK : unknown_site(&w, f);
}
