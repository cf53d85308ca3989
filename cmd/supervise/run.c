/* run.c - what passes between front and keeper: the page, messages, descriptors and news. */
#include "run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* As <linux/sockios.h> has it, which musl cannot include. */
#ifndef SIOCOUTQ
#define SIOCOUTQ TIOCOUTQ
#endif

int
link_open(int ends[2])
{
	return socketpair(
	    AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
}

/* As bits, beside the value: so many each has. */
enum { KIND_AT = 32, LOSS_AT = 36, KEPT_AT = 40, FLAGS_AT = 44, FOUR_BITS = 0xf };

void
shared_put_ending(struct shared *s, const struct ending *e)
{
	uint64_t flags = e->stuck | e->unconfirmed << 1 | e->too_late << 2 |
	    e->returned << 3;

	atomic_store(&s->end.ending,
	    (uint32_t)e->value | (uint64_t)e->kind << KIND_AT |
		(uint64_t)e->loss << LOSS_AT | (uint64_t)e->kept << KEPT_AT |
		flags << FLAGS_AT);
}

struct ending
shared_ending(const struct shared *s)
{
	uint64_t bits = atomic_load(&s->end.ending);

	return (struct ending){
	    .value = (int)(uint32_t)bits,
	    .kind = bits >> KIND_AT & FOUR_BITS,
	    .loss = bits >> LOSS_AT & FOUR_BITS,
	    .kept = bits >> KEPT_AT & FOUR_BITS,
	    .stuck = bits >> FLAGS_AT & 1,
	    .unconfirmed = bits >> FLAGS_AT & 2,
	    .too_late = bits >> FLAGS_AT & 4,
	    .returned = bits >> FLAGS_AT & 8,
	};
}

const char *
shared_where(const struct shared *s)
{
	return atomic_load(&s->opened) ? s->where : "";
}

struct outside *
run_guarded(const struct run *r)
{
	return r->body && r->body->outside.pid && run_delivery(r) == DELIVERED &&
		!atomic_load(&r->shared->end.returned)
	    ? &r->body->outside
	    : NULL;
}

enum delivery
run_delivery(const struct run *r)
{
	return r->body ? atomic_load(r->body->delivery) : UNDELIVERED;
}

bool
run_settle(const struct run *r, enum delivery how)
{
	int open = UNDELIVERED;

	return r->body && atomic_compare_exchange_strong(r->body->delivery, &open, how);
}

bool
run_is_stop(int sig)
{
	return sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU || sig == SIGSTOP;
}

bool
run_is_end(int sig)
{
	static const int harmless[] = {
	    SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGTSTP, SIGTTIN, SIGTTOU};
	/* we change none, so what is there is our caller's wish */
	struct sigaction inherited;

	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (sig == harmless[i])
			return false;
	return sigaction(sig, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN;
}

struct shared *
shared_new(size_t told)
{
	struct shared *s = mmap(NULL, sizeof *s + told, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		return NULL;
	atomic_init(&s->term_at, NEVER);
	atomic_init(&s->kill_at, NEVER);
	atomic_init(&s->alive_at, instant_now());
	return s;
}

void
shared_end(struct shared *s, size_t told)
{
	munmap(s, sizeof *s + told);
}

bool
link_looks_in_time(const struct grant *g, int64_t ttl, instant now)
{
	return g->lease >= ttl && now - g->sent <= GRANT_QUICK;
}

enum telling
link_tells(
    const struct shared *s, const struct grant *g, int64_t ttl, instant now, bool awaited)
{
	if (g->anchor >= 0 || atomic_load(&s->front.on_screen) ||
	    !link_looks_in_time(g, ttl, now))
		return TELL_BEFORE;
	return awaited ? TELL_AFTER : TELL_NOT;
}

/* Room for them beside a message. */
union control {
	struct cmsghdr first;
	char room[CMSG_SPACE(sizeof((struct anchors *)0)->fds)];
};

/* The string with which a message ends. */
static char *
words_of(struct msg *m)
{
	return m->kind == MSG_WAITING ? m->holding.record : m->text;
}

/* In quarters, how much of the link is filled by what has not been read; 4: it is full. */
static int
link_fill(int end)
{
	int unread = 0, room = 0;
	socklen_t size = sizeof room;

	if (ioctl(end, SIOCOUTQ, &unread) != 0 ||
	    getsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, &size) != 0 || room <= 0)
		return 0;
	return (int)(4LL * unread / room);
}

bool
link_is_crowded(int end)
{
	return link_fill(end) >= 2;
}

/* Up to how many quarters others may have filled before a message of this kind is dropped. */
static int
share_of(enum msg_kind kind)
{
	switch (kind) {
	case MSG_WAITING:
	case MSG_RETRYING:
	case MSG_SUSPECT:
	case MSG_TRACE:
	case MSG_NOTICE:
		return 2;
	/* the front looks whether it still is stopped: of many in the link one is enough */
	case MSG_STOPPED:
	case MSG_RESUMED:
		return 3;
	default:
		return 4;
	}
}

bool
link_send(int end, const struct msg *m, const struct anchors *a)
{
	const char *words = words_of((struct msg *)m);
	struct iovec text = {
	    (void *)m, (size_t)(words - (const char *)m) + strlen(words) + 1};
	struct msghdr h = {.msg_iov = &text, .msg_iovlen = 1};
	union control control;
	ssize_t sent;

	if (share_of(m->kind) < 4 && link_fill(end) >= share_of(m->kind)) {
		errno = EAGAIN;
		return false;
	}
	if (a && a->n > 0) {
		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(a->n * sizeof a->fds[0]);
		memset(&control, 0, h.msg_controllen);
		control.first = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
		    .cmsg_type = SCM_RIGHTS,
		    .cmsg_len = CMSG_LEN(a->n * sizeof a->fds[0])};
		memcpy(CMSG_DATA(&control.first), a->fds, a->n * sizeof a->fds[0]);
	}
	do
		sent = sendmsg(end, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent >= 0;
}

int
link_receive(int end, struct msg *m, struct anchors *a)
{
	struct iovec text = {m, sizeof *m};
	union control control;
	struct msghdr h = {.msg_iov = &text,
	    .msg_iovlen = 1,
	    .msg_control = control.room,
	    .msg_controllen = sizeof control.room};
	ssize_t n;

	a->n = 0;
	a->cut = false;
	do
		n = recvmsg(end, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	if (n == 0)
		return -1;
	a->cut = h.msg_flags & MSG_CTRUNC;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			a->n = (c->cmsg_len - CMSG_LEN(0)) / sizeof a->fds[0];
			memcpy(a->fds, CMSG_DATA(c), a->n * sizeof a->fds[0]);
		}
	words_of(m)[RECORD_BYTES - 1] = '\0';
	return 1;
}

/* ---- news ---- */

bool
news_message(const struct news *n, const struct msg *m, const struct anchors *a)
{
	if (n->link >= 0)
		return link_send(n->link, m, a);
	errno = EPIPE;
	return false;
}

bool
news_send(struct news *n, enum msg_kind kind, int64_t number, const char *text)
{
	struct msg m = {.kind = kind, .number = number};

	snprintf(m.text, sizeof m.text, "%s", text);
	return news_message(n, &m, NULL);
}

void
news_trace(void *news, const char *line)
{
	news_send(news, MSG_TRACE, 0, line);
}

void
news_notice(struct news *n)
{
	if (!*n->host->notice.text)
		return;
	news_send(n, MSG_NOTICE, 0, n->host->notice.text);
	n->host->notice.text[0] = '\0';
}

/* But for the time, which always passes. */
static bool
is_same_wait(const struct msg *a, const struct msg *b)
{
	const struct holding *x = &a->holding, *y = &b->holding;

	if (a->kind != b->kind || a->number != b->number || a->key != b->key)
		return false;
	if (a->kind == MSG_RETRYING)
		return strcmp(a->text, b->text) == 0;
	return x->kind == y->kind && x->holders == y->holders && x->limit == y->limit &&
	    x->frozen == y->frozen && strcmp(x->record, y->record) == 0;
}

bool
news_wait(struct news *n, const char *trouble)
{
	bool silent = n->host->seen.silent;
	const struct holding *holding = &n->host->seen.holding;
	struct msg m = {.kind = silent ? MSG_RETRYING : MSG_WAITING,
	    .number = n->host->seen.position};

	if (silent)
		snprintf(m.text, sizeof m.text, "%s", trouble);
	else
		m.holding = *holding;
	/* where nothing else is known, which key it is says nothing */
	if (!silent && !m.number && !holding->holders && !holding->frozen &&
	    !*holding->record)
		m.key = n->last.key;
	else
		while (n->host->seen.key && n->plan->keys[m.key] != n->host->seen.key)
			m.key++;
	if (is_same_wait(&m, &n->last))
		return false;
	n->waited = true;
	/* what found no room is news again the next time */
	if (news_message(n, &m, NULL))
		n->last = m;
	return true;
}
