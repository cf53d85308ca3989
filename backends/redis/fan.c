/* fan.c - asks several servers at once. */
#include "fan.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* answers: a server that owes more is asked on another connection */
enum { OWED_MOST = 16 };

/* ---- their life ---- */

enum rc
fan_begin(struct fan *fan, struct host *host, size_t n, fan_hear_fn *hear, void *ctx,
    struct fault *f)
{
	*fan = (struct fan){.host = host, .hear = hear, .ctx = ctx};
	fan->epoll = epoll_create1(EPOLL_CLOEXEC);
	fan->peers = calloc(n, sizeof *fan->peers);
	if (fan->epoll < 0 || !fan->peers)
		return fault_set(f, RC_SYSTEM, "no descriptor, or no memory, is left");
	fan->n = n;
	for (size_t i = 0; i < n; i++)
		wire_init(&fan->peers[i].wire, host, "");
	return RC_OK;
}

void
fan_set(struct fan *fan, size_t i, const struct address *a, const struct endpoint *at,
    const char *where, const struct resp_bounds *bounds)
{
	struct peer *p = &fan->peers[i];

	wire_init(&p->wire, fan->host, where);
	wire_bound(&p->wire, bounds);
	p->address = a;
	p->at = at;
}

void
fan_close(struct peer *p)
{
	wire_close(&p->wire);
	p->watched = 0;
	p->busy = p->pending = false;
}

void
fan_end(struct fan *fan)
{
	for (size_t i = 0; i < fan->n; i++) {
		fan_close(&fan->peers[i]);
		free(fan->peers[i].out);
		redisFreeCommand(fan->peers[i].command);
	}
	free(fan->peers);
	if (fan->host && fan->epoll >= 0)
		close(fan->epoll);
	explicit_bzero(&fan->greeting, sizeof fan->greeting);
	fan->peers = NULL;
	fan->host = NULL;
	fan->n = 0;
}

/* ---- one of them: connecting ---- */

/* It is over: with `rc`, and why. */
static void
peer_fail(struct peer *p, enum rc rc)
{
	wire_close(&p->wire);
	p->watched = 0;
	p->busy = p->pending = false;
	p->rc = rc;
}

/* Puts more behind what is still to be sent. */
static bool
peer_put(struct peer *p, const char *text, size_t n)
{
	char *out = realloc(p->out, p->to_send + n + 1);

	if (!out)
		return false;
	memcpy(out + p->to_send, text, n);
	p->out = out;
	p->to_send += n;
	return true;
}

/* A dead address is to hide no living one, a name that nobody resolves no other server. */
static instant
share_of(instant until, size_t parts)
{
	instant now = instant_now();

	return now + (until == NEVER ? NS_PER_S : (until - now) / (int64_t)parts);
}

/* To its next address; where there is none, the fault of the last one stays. */
static void
peer_connect(struct peer *p)
{
	p->sent = p->to_send = p->greeting_sent = 0;
	p->greeted = p->owed = p->heard = 0;
	p->watched = 0;
	p->reused = p->pending = false;
	p->connecting = true;
	if (!peer_put(p, p->command, p->length)) {
		fault_set(&p->fault, RC_SYSTEM, "out of memory");
		peer_fail(p, RC_SYSTEM);
		return;
	}
	while (p->next < p->addresses.n && instant_now() < p->due) {
		size_t i = p->next++;

		p->address_due = share_of(p->due, p->addresses.n - i);
		p->rc = wire_start(&p->wire, p->address, p->at,
		    (struct sockaddr *)&p->addresses.at[i].address,
		    p->addresses.at[i].size, &p->fault);
		p->wire.stream.hint = p->address->tls ? NULL
						      : ": does it want TLS (rediss://)?";
		if (p->rc == RC_OK)
			return;
	}
	p->addresses.n = 0; /* they may be others by now */
	peer_fail(p, p->rc == RC_OK ? RC_AGAIN : p->rc);
}

/* Connects to those whose address is not known, and so had to wait. */
static enum rc
fan_connect(struct fan *fan, instant until)
{
	size_t pending = 0;

	for (size_t i = 0; i < fan->n; i++)
		pending += fan->peers[i].pending;
	for (size_t i = 0; i < fan->n; i++) {
		struct peer *p = &fan->peers[i];
		enum rc rc;

		if (!p->pending)
			continue;
		rc = resolve(fan->host, p->at->host, p->at->port,
		    share_of(instant_first(p->due, until), pending--), &p->addresses,
		    &p->fault);
		if (rc == RC_STOP)
			return rc;
		if (rc == RC_OK)
			peer_connect(p);
		else
			peer_fail(p, rc);
	}
	return RC_OK;
}

/* ---- one of them: what comes and goes ---- */

/* It died with the question on it: it may have died of idleness before. */
static void
peer_died(struct peer *p, enum rc rc, const struct fault *f)
{
	p->fault = *f;
	if (rc != RC_AGAIN || !p->reused || p->heard > 0 || instant_now() >= p->due) {
		peer_fail(p, rc);
		return;
	}
	p->repeated = true;
	p->next = 0;
	peer_connect(p);
}

/* It does not take what is sent: to its next address, or once more with more CAs. */
static void
peer_refused(struct peer *p)
{
	struct fault f;
	int error = errno;
	enum rc rc = stream_failed(&p->wire.stream, &f);

	wire_close(&p->wire);
	if (!p->connecting) {
		peer_died(p, rc, &f);
		return;
	}
	if (rc == RC_AGAIN && (!p->address->tls || error == ECONNREFUSED))
		fault_set(
		    &f, rc, "cannot reach %s: %s", p->wire.stream.where, strerror(error));
	if (rc == RC_CONFIG && p->address->tls && tls_can_retry(p->address->tls))
		p->next--;
	p->rc = rc;
	p->fault = f;
	peer_connect(p);
}

/* Some bytes have gone, of the greeting first. */
static void
peer_has_sent(struct fan *fan, struct peer *p, size_t n)
{
	size_t greeting = fan->greeting.used - p->greeting_sent;

	if (greeting > n)
		greeting = n;
	p->greeting_sent += greeting;
	p->sent += n - greeting;
	p->connecting = false;
}

/* As far as it goes; false: it has to wait, or it is over. */
static bool
peer_send(struct fan *fan, struct peer *p)
{
	while (
	    p->busy && (p->sent < p->to_send || p->greeting_sent < fan->greeting.used)) {
		struct stream *stream = &p->wire.stream;
		struct iovec rest[] = {{fan->greeting.text + p->greeting_sent,
					   fan->greeting.used - p->greeting_sent},
		    {p->out + p->sent, p->to_send - p->sent}};
		bool greets = rest[0].iov_len > 0;
		ssize_t n = stream->ops->write(
		    stream, rest + !greets, 1 + (greets && rest[1].iov_len > 0));

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n > 0)
			peer_has_sent(fan, p, n);
		else if (errno != EINTR)
			peer_refused(p);
	}
	return p->busy;
}

/* More came than was asked for. */
static bool
peer_is_talkative(const struct peer *p)
{
	return !p->busy && p->rc == RC_OK && p->wire.used > 0;
}

static void
peer_take(struct fan *fan, struct peer *p, redisReply *reply)
{
	enum heard heard;
	int number;

	p->wire.stream.hint = NULL;
	if (p->greeted < fan->greeting.n) {
		number = p->greeted++ - fan->greeting.n;
	} else if (p->owed > 0) {
		p->owed--;
		number = FAN_LATE;
	} else {
		number = p->heard++;
	}
	heard = fan->hear(fan->ctx, p - fan->peers, number, &reply);
	freeReplyObject(reply);
	if (heard == HEARD_WRONG) {
		peer_fail(p, p->rc);
	} else if (heard == HEARD_ALL) {
		p->busy = false;
		p->rc = RC_OK;
	}
	if (peer_is_talkative(p)) {
		fault_set(&p->fault, RC_PROTOCOL, "%s gave two answers to one question",
		    p->wire.stream.where);
		peer_fail(p, RC_PROTOCOL);
	}
}

static void
peer_step(struct fan *fan, struct peer *p)
{
	while (!p->pending && peer_send(fan, p)) {
		redisReply *reply = NULL;
		struct fault f;
		enum rc rc = wire_take(&p->wire, &reply, &f);

		if (rc != RC_OK)
			peer_died(p, rc, &f);
		else if (reply)
			peer_take(fan, p, reply);
		else
			return;
	}
}

/* ---- asking ---- */

/*
 * Can the next question go behind the one before?  What is answered to that from now on is
 * late, also what came while nobody looked.
 */
static bool
peer_goes_on(struct fan *fan, struct peer *p)
{
	if (!p->busy)
		return wire_is_quiet(&p->wire);
	if (p->pending || p->connecting)
		return false;
	p->owed++;
	peer_step(fan, p);
	if (!p->busy || p->connecting)
		return false;
	return p->owed == 0 ? wire_is_quiet(&p->wire)
			    : p->owed < OWED_MOST && instant_now() < p->due;
}

static void
peer_say(struct peer *p, char *command, int length)
{
	redisFreeCommand(p->command);
	p->command = command;
	p->length = length < 0 ? 0 : (size_t)length;
	if (p->sent == p->to_send)
		p->sent = p->to_send = 0;
	if (length >= 0 && (p->pending || peer_put(p, command, length)))
		return;
	fault_set(&p->fault, RC_SYSTEM, "out of memory");
	peer_fail(p, RC_SYSTEM);
}

void
fan_say(struct fan *fan, struct peer *p, char *command, int length, instant due)
{
	p->reused = peer_goes_on(fan, p);
	if (!p->reused)
		fan_close(p);
	p->busy = true;
	p->pending = !p->reused;
	p->due = due;
	p->heard = 0;
	p->next = 0;
	p->repeated = false;
	p->rc = fault_set(
	    &p->fault, RC_AGAIN, "%s does not answer", p->wire.stream.where);
	peer_say(p, command, length);
	if (p->pending && p->addresses.n > 0)
		peer_connect(p);
	if (!p->pending)
		peer_send(fan, p);
}

void
fan_say_more(struct peer *p, char *command, int length)
{
	peer_say(p, command, length);
}

/* ---- hearing ---- */

static bool
anyone_is_busy(const struct fan *fan)
{
	for (size_t i = 0; i < fan->n; i++)
		if (fan->peers[i].busy)
			return true;
	return false;
}

/* EPOLLIN and EPOLLOUT are POLLIN and POLLOUT. */
static void
peer_watch(const struct fan *fan, struct peer *p)
{
	short wants = !p->busy ? 0 : p->wire.stream.wants == POLLOUT ? POLLOUT : POLLIN;
	struct epoll_event e = {.events = wants};

	if (wants == p->watched || p->wire.stream.fd < 0)
		return;
	epoll_ctl(fan->epoll,
	    !wants            ? EPOLL_CTL_DEL
		: !p->watched ? EPOLL_CTL_ADD
			      : EPOLL_CTL_MOD,
	    p->wire.stream.fd, &e);
	p->watched = wants;
}

/* Till when it has time: each address for itself, while it is not known whether it is any. */
static instant
peer_due(const struct peer *p)
{
	if (!p->busy)
		return NEVER;
	return p->connecting && p->next < p->addresses.n ? p->address_due : p->due;
}

static void
peer_end_overdue(struct peer *p)
{
	p->rc = fault_set(
	    &p->fault, RC_AGAIN, "%s does not answer", p->wire.stream.where);
	wire_close(&p->wire);
	if (p->connecting)
		peer_connect(p);
	else
		peer_fail(p, RC_AGAIN);
}

static enum rc
fan_await(struct fan *fan, instant until)
{
	instant now;

	for (size_t i = 0; i < fan->n; i++) {
		peer_watch(fan, &fan->peers[i]);
		until = instant_first(until, peer_due(&fan->peers[i]));
	}
	if (fan->host->wait(fan->host, fan->epoll, POLLIN, until) == WOKE_STOP)
		return RC_STOP;
	now = instant_now();
	for (size_t i = 0; i < fan->n; i++) {
		peer_step(fan, &fan->peers[i]);
		if (now >= peer_due(&fan->peers[i]))
			peer_end_overdue(&fan->peers[i]);
	}
	return RC_OK;
}

enum rc
fan_hear(struct fan *fan, instant until, bool (*enough)(void *ctx))
{
	enum rc rc = fan_connect(fan, until);

	for (size_t i = 0; rc == RC_OK && i < fan->n; i++)
		peer_step(fan, &fan->peers[i]);
	while (rc == RC_OK && anyone_is_busy(fan) && !(enough && enough(fan->ctx)) &&
	    instant_now() < until)
		rc = fan_await(fan, until);
	return rc;
}
