/* fan.c - asks several servers at once. */
#include "fan.h"

#include "backends/common/secret.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

enum { OWED_MOST = 16 }; /* answers; a server that owes more is asked anew */

/* ---- their life ---- */

void
fan_begin_one(struct fan *fan, struct host *host, const struct address *a, struct peer *p,
    fan_hear_fn *hear, void *ctx)
{
	*fan = (struct fan){
	    .host = host, .peers = p, .n = 1, .hear = hear, .ctx = ctx, .epoll = -1};
	stream_init(&p->stream, host, p->where);
	p->address = a;
	p->at = a->hosts[0];
	p->bounds = &resp_usual;
	address_print(a, p->where, sizeof p->where);
}

bool
fan_begin(struct fan *fan, struct host *host, const struct address *a, const char *before,
    const struct resp_bounds *bounds, fan_hear_fn *hear, void *ctx)
{
	*fan = (struct fan){.host = host,
	    .peers = calloc(a->n, sizeof *fan->peers),
	    .hear = hear,
	    .ctx = ctx,
	    .epoll = a->n > 1 ? epoll_create1(EPOLL_CLOEXEC) : -1};
	for (; fan->peers && fan->n < a->n; fan->n++) {
		struct peer *p = &fan->peers[fan->n];

		stream_init(&p->stream, host, p->where);
		p->address = a;
		p->at = a->hosts[fan->n];
		p->bounds = bounds;
		p->recalls = true;
		endpoint_print(p->where, sizeof p->where, before, &p->at);
	}
	return fan->peers && (a->n == 1 || fan->epoll >= 0);
}

/* It has the password in it. */
static void
peer_drop_out(struct peer *p)
{
	if (p->out)
		explicit_bzero(p->out, p->to_send);
	free(p->out);
	p->out = NULL;
	p->sent = p->to_send = 0;
}

static void
peer_disconnect(struct peer *p)
{
	stream_close(&p->stream);
	inbox_close(&p->inbox);
	p->watched = 0;
}

/* A lookup that is under way is left alone. */
static void
peer_forget_addresses(struct peer *p)
{
	struct fault ignored;

	if (p->lookup)
		resolve_end(p->lookup, p->stream.host, 0, p->addresses, &ignored);
	free(p->addresses);
	p->lookup = NULL;
	p->addresses = NULL;
}

/* It is over: with `rc`, and why. */
static void
peer_fail(struct peer *p, enum rc rc)
{
	peer_disconnect(p);
	peer_forget_addresses(p);
	p->state = PEER_IDLE;
	p->rc = rc;
}

void
fan_close(struct peer *p)
{
	peer_fail(p, p->rc);
	peer_drop_out(p);
	free(p->command);
	p->command = NULL;
}

void
fan_end(struct fan *fan)
{
	for (size_t i = 0; i < fan->n; i++)
		fan_close(&fan->peers[i]);
	if (fan->host && fan->epoll >= 0)
		close(fan->epoll);
	free(fan->peers);
	*fan = (struct fan){.n = 0};
}

/* ---- one of them: connecting ---- */

/* Puts more behind what is still to be sent. */
static bool
peer_put(struct peer *p, const char *text, size_t n)
{
	char *out = malloc(p->to_send - p->sent + n + 1);
	size_t left = p->to_send - p->sent;

	if (!out)
		return false;
	if (left > 0)
		memcpy(out, p->out + p->sent, left);
	memcpy(out + left, text, n);
	peer_drop_out(p);
	p->out = out;
	p->to_send = left + n;
	return true;
}

static bool
peer_greet(struct peer *p, resp_words words)
{
	char *text = resp_write((const resp_words *)words, 1);
	bool good = text && peer_put(p, text, strlen(text));

	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	p->greets++;
	return good;
}

/* AUTH and SELECT, as far as needed, and the question. */
static bool
peer_begin(struct peer *p)
{
	const struct address *a = p->address;
	const char *user = *a->user ? a->user : a->password;
	char db[16];

	if (a->db)
		snprintf(db, sizeof db, "%d", a->db);
	return (!*a->password ||
		   peer_greet(
		       p, (resp_words){"AUTH", user, *a->user ? a->password : NULL})) &&
	    (!a->db || peer_greet(p, (resp_words){"SELECT", db})) &&
	    peer_put(p, p->command, p->length - (p->repeated ? p->once : 0));
}

/* A dead address is to hide no living one, a name that nobody resolves no other server. */
static instant
share_of(instant until, size_t parts)
{
	instant now = instant_now();

	return now + (until == NEVER ? NS_PER_S : (until - now) / (int64_t)parts);
}

/* Begins to connect to one address; what is sent then may have to wait. */
static enum rc
peer_start(struct peer *p, const struct sockaddr *to, socklen_t size)
{
	enum rc rc;

	peer_disconnect(p);
	p->begun++;
	rc = stream_start(&p->stream, to, size, &p->fault);
	if (rc == RC_OK && p->address->tls)
		rc = tls_start(p->address->tls, &p->stream, p->at.host, &p->fault);
	else if (!*p->address->path)
		p->stream.hint = ": does it want TLS (rediss://)?";
	if (rc != RC_OK || inbox_open(&p->inbox, p->bounds))
		return rc;
	peer_disconnect(p);
	return fault_of(
	    &p->fault, RC_SYSTEM, p->stream.where, "cannot be read: out of memory");
}

/* To its next address; where there is none, the fault of the last one stays. */
static void
peer_connect(struct peer *p)
{
	peer_drop_out(p);
	p->greets = p->greeted = p->owed = p->heard = 0;
	p->reused = false;
	p->state = PEER_CONNECTING;
	if (!peer_begin(p)) {
		fault_set(&p->fault, RC_SYSTEM, "out of memory");
		peer_fail(p, RC_SYSTEM);
		return;
	}
	while (p->next < p->addresses->n && instant_now() < p->due) {
		size_t i = p->next++;

		p->address_due = share_of(p->due, p->addresses->n - i);
		p->rc = peer_start(p, (struct sockaddr *)&p->addresses->at[i].address,
		    p->addresses->at[i].size);
		if (p->rc == RC_OK)
			return;
	}
	peer_fail(p, p->rc == RC_OK ? RC_AGAIN : p->rc);
}

/* Without the resolver: where it was reached before. */
static bool
peer_recalls(struct peer *p)
{
	if (!p->last_size || p->addresses->absent)
		return false;
	p->addresses->at[0].address = p->last;
	p->addresses->at[0].size = p->last_size;
	p->addresses->n = 1;
	return true;
}

/*
 * A unix socket's address is its path.  What needs no lookup is connected to at once; one that
 * is under way goes on.
 */
static void
peer_resolve(struct peer *p)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	const char *path = p->address->path;

	p->state = PEER_RESOLVING;
	p->address_due = p->last_size ? share_of(p->due, 2) : p->due;
	if (p->lookup)
		return;
	p->next = 0;
	p->addresses = calloc(1, sizeof *p->addresses);
	if (p->addresses && *path) {
		memcpy(local.sun_path, path, strlen(path));
		memcpy(&p->addresses->at[0].address, &local, sizeof local);
		p->addresses->at[0].size = sizeof local;
		p->addresses->n = 1;
	} else if (p->addresses) {
		p->lookup = resolve_begin(p->at.host, p->at.port, p->addresses);
	}
	if (p->lookup)
		return;
	if (p->addresses && (p->addresses->n > 0 || peer_recalls(p))) {
		peer_connect(p);
		return;
	}
	fault_set(
	    &p->fault, RC_SYSTEM, "cannot start a thread to resolve %s", p->at.host);
	peer_fail(p, RC_SYSTEM);
}

/* Its name is resolved, or was waited for long enough. */
static void
peer_end_lookup(struct peer *p)
{
	enum rc rc = resolve_end(p->lookup, p->stream.host, 0, p->addresses, &p->fault);

	p->lookup = NULL;
	if (rc == RC_OK || (rc == RC_AGAIN && peer_recalls(p)))
		peer_connect(p);
	else
		peer_fail(p, rc);
}

/* ---- one of them: what comes and goes ---- */

/* It died with the question on it: it may have died of idleness before. */
static void
peer_died(struct peer *p, enum rc rc, const struct fault *f)
{
	p->fault = *f;
	if (rc != RC_AGAIN || !p->reused || p->continues || instant_now() >= p->due) {
		peer_fail(p, rc);
		return;
	}
	p->repeated = true;
	peer_disconnect(p);
	peer_resolve(p);
}

/* It does not take what is sent: to its next address, or once more with more CAs. */
static void
peer_refused(struct peer *p)
{
	struct fault f;
	int error = errno;
	enum rc rc = stream_failed(&p->stream, &f);

	if (p->state != PEER_CONNECTING) {
		peer_died(p, rc, &f);
		return;
	}
	if (rc == RC_AGAIN && error != EPIPE && error != ECONNRESET &&
	    (!p->address->tls || error == ECONNREFUSED))
		fault_set(
		    &f, rc, "cannot reach %s: %s", p->stream.where, strerror(error));
	if (rc == RC_CONFIG && p->address->tls && tls_can_retry(p->address->tls))
		p->next--;
	p->rc = rc;
	p->fault = f;
	peer_connect(p);
}

/* Many wait for long, and keep no more than one address. */
static void
peer_is_reached(struct peer *p)
{
	if (p->addresses && p->recalls) {
		p->last = p->addresses->at[p->next - 1].address;
		p->last_size = p->addresses->at[p->next - 1].size;
	}
	peer_forget_addresses(p);
}

/* As far as it goes; false: it has to wait, or it is over. */
static bool
peer_send(struct peer *p)
{
	while (p->state > PEER_RESOLVING && p->sent < p->to_send) {
		struct iovec rest = {p->out + p->sent, p->to_send - p->sent};
		ssize_t n = p->stream.ops->write(&p->stream, &rest, 1);

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n > 0) {
			p->sent += n;
			p->told = true;
			p->state = PEER_ASKED;
			peer_is_reached(p);
		} else if (errno != EINTR) {
			peer_refused(p);
		}
	}
	if (p->sent == p->to_send)
		peer_drop_out(p);
	return p->state > PEER_RESOLVING;
}

enum rc
peer_receive(struct peer *p, redisReply **reply, struct fault *f)
{
	const char *wrong;

	for (;;) {
		enum rc rc = inbox_take(&p->inbox, p->bounds, reply, &wrong);
		size_t used = p->inbox.used;
		ssize_t n;

		if (rc == RC_OK && *reply)
			return rc;
		if (rc != RC_OK) {
			peer_disconnect(p);
			return fault_set(f, rc, "%s %s", p->stream.where, wrong);
		}
		n = p->stream.ops->read(
		    &p->stream, p->inbox.bytes + used, p->inbox.size - used);
		if (n > 0)
			p->inbox.used += n;
		else if (n < 0 && errno == EAGAIN)
			return RC_OK;
		else if (n == 0 || errno != EINTR) {
			rc = stream_failed(&p->stream, f);
			peer_disconnect(p);
			return rc;
		}
	}
}

/* ---- one of them: what an answer means ---- */

enum rc
peer_refuses(
    const struct peer *p, bool looks, const char *key, char *text, struct fault *f)
{
	const char *hint;
	char rights[RIGHTS_BYTES];
	enum rc rc = resp_error(text, &hint);

	resp_rights(rights, sizeof rights, hint, looks, key);
	secret_blot(text, p->address->password);
	return fault_set(f, rc, "%s says '%.200s'%s%s", p->stream.where, text,
	    *rights ? ": " : "", rights);
}

/* What a server answers to AUTH is not quoted: it may repeat the password. */
static enum heard
peer_hear_greeting(struct peer *p, redisReply *reply)
{
	bool auth = p->greeted++ == 0 && *p->address->password;
	const char *where = p->stream.where, *hint;

	p->refused = p->lenient && reply->type == REDIS_REPLY_ERROR;
	if (p->lenient ||
	    (reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0))
		return HEARD_MORE;
	if (reply->type != REDIS_REPLY_ERROR) {
		p->rc = fault_of(&p->fault, RC_PROTOCOL, p->stream.where,
		    "gave a wrong answer to a greeting");
	} else if (!auth) {
		p->rc = peer_refuses(p, false, NULL, reply->str, &p->fault);
	} else {
		p->rc = resp_error(reply->str, &hint);
		p->rc = hint ? p->rc : RC_DENIED;
		fault_set(&p->fault, p->rc, "%s refuses the login: %s", where,
		    hint ? hint
			 : "its answer is not shown, because it may repeat the password");
	}
	return HEARD_WRONG;
}

static void
peer_take(struct fan *fan, struct peer *p, redisReply *reply)
{
	int number = FAN_LATE;
	enum heard heard;

	p->stream.hint = NULL;
	if (p->greeted < p->greets) {
		heard = peer_hear_greeting(p, reply);
	} else {
		if (p->owed > 0) {
			p->owed--;
		} else {
			number = p->heard++;
			p->rc = RC_OK;
		}
		heard = fan->hear(fan->ctx, p - fan->peers, number, &reply);
	}
	freeReplyObject(reply);
	if (heard == HEARD_WRONG)
		peer_fail(p, p->rc);
	else if (heard == HEARD_ALL)
		p->state = PEER_IDLE;
	if (!peer_is_busy(p) && !p->subscribes && p->inbox.used > 0) {
		peer_fail(p,
		    fault_of(&p->fault, RC_PROTOCOL, p->stream.where,
			"gave two answers to one question"));
	}
}

static void
peer_step(struct fan *fan, struct peer *p)
{
	struct pollfd resolved = {p->lookup ? resolve_fd(p->lookup) : -1, POLLIN, 0};

	if (p->lookup && poll(&resolved, 1, 0) > 0)
		peer_end_lookup(p);
	while (peer_send(p)) {
		redisReply *reply = NULL;
		struct fault f;
		enum rc rc = peer_receive(p, &reply, &f);

		if (rc != RC_OK)
			peer_died(p, rc, &f);
		else if (reply)
			peer_take(fan, p, reply);
		else
			return;
	}
}

/* ---- asking ---- */

/* Is it open, and is nothing there that would be taken for an answer? */
static bool
peer_is_quiet(struct peer *p)
{
	return p->inbox.used == 0 && stream_is_quiet(&p->stream);
}

/*
 * Can the next question go behind the one before?  What is answered to that from now on is
 * late, also what came while nobody looked.
 */
static bool
peer_goes_on(struct fan *fan, struct peer *p)
{
	if (!peer_is_busy(p))
		return peer_is_quiet(p);
	if (p->state != PEER_ASKED)
		return false;
	p->owed++;
	p->reused = false; /* no second chance for the question before */
	peer_step(fan, p);
	if (!peer_is_busy(p))
		return false;
	return p->owed == 0 ? peer_is_quiet(p)
			    : p->owed < OWED_MOST && instant_now() < p->due;
}

void
fan_say_more(struct peer *p, char *command)
{
	free(p->command);
	p->command = command;
	p->length = command ? strlen(command) : 0;
	if (command && (p->state != PEER_ASKED || peer_put(p, command, p->length)))
		return;
	fault_set(&p->fault, RC_SYSTEM, "out of memory");
	peer_fail(p, RC_SYSTEM);
}

void
fan_say(struct fan *fan, struct peer *p, char *command, instant due)
{
	p->reused = peer_goes_on(fan, p);
	if (!p->reused && (!p->lookup || p->continues))
		fan_close(p);
	p->due = due;
	p->heard = 0;
	p->repeated = p->told = false;
	p->rc = fault_of(&p->fault, RC_AGAIN, p->stream.where,
	    !p->reused && p->continues ? "closed the connection within a request"
				       : "does not answer");
	if (!p->reused && p->continues) {
		free(command);
		return;
	}
	p->state = p->reused ? PEER_ASKED : PEER_RESOLVING;
	fan_say_more(p, command);
	if (p->state == PEER_RESOLVING)
		peer_resolve(p);
	peer_send(p);
}

/* ---- hearing ---- */

static bool
anyone_is_busy(const struct fan *fan)
{
	for (size_t i = 0; i < fan->n; i++)
		if (peer_is_busy(&fan->peers[i]))
			return true;
	return false;
}

/* What it waits for; -1: nothing. */
static int
peer_fd(const struct peer *p)
{
	return p->lookup ? resolve_fd(p->lookup) : p->stream.fd;
}

/* EPOLLIN and EPOLLOUT are POLLIN and POLLOUT. */
static void
peer_watch(const struct fan *fan, struct peer *p)
{
	short wants = !peer_is_busy(p)                 ? 0
	    : !p->lookup && p->stream.wants == POLLOUT ? POLLOUT
						       : POLLIN;
	struct epoll_event e = {.events = wants};

	if (wants == p->watched || peer_fd(p) < 0)
		return;
	epoll_ctl(fan->epoll,
	    !wants            ? EPOLL_CTL_DEL
		: !p->watched ? EPOLL_CTL_ADD
			      : EPOLL_CTL_MOD,
	    peer_fd(p), &e);
	p->watched = wants;
}

/* Till when it has time: its name, and each address while it is not known whether it is any. */
static instant
peer_due(const struct peer *p)
{
	if (!peer_is_busy(p))
		return NEVER;
	return p->lookup || (p->state == PEER_CONNECTING && p->next < p->addresses->n)
	    ? p->address_due
	    : p->due;
}

static void
peer_end_overdue(struct peer *p)
{
	bool connecting = p->state == PEER_CONNECTING,
	     shakes = connecting && p->address->tls && p->stream.wants == POLLIN;

	if (p->lookup) {
		peer_end_lookup(p);
		return;
	}
	p->rc = fault_of(&p->fault, RC_AGAIN, p->stream.where,
	    shakes ? "does not answer in TLS: is that its TLS port?" : "does not answer");
	if (connecting)
		peer_connect(p);
	else
		peer_fail(p, RC_AGAIN);
}

static void
fan_end_overdue(struct fan *fan)
{
	for (size_t i = 0; i < fan->n; i++)
		if (instant_now() >= peer_due(&fan->peers[i]))
			peer_end_overdue(&fan->peers[i]);
}

/* One alone needs no epoll descriptor. */
static enum rc
fan_await(struct fan *fan, instant until)
{
	const struct peer *one = &fan->peers[0];
	bool alone = fan->n == 1;

	for (size_t i = 0; i < fan->n; i++) {
		if (!alone)
			peer_watch(fan, &fan->peers[i]);
		until = instant_first(until, peer_due(&fan->peers[i]));
	}
	if (fan->host->wait(fan->host, alone ? peer_fd(one) : fan->epoll,
		alone && !one->lookup ? one->stream.wants : POLLIN, until) == WOKE_STOP)
		return RC_STOP;
	for (size_t i = 0; i < fan->n; i++)
		peer_step(fan, &fan->peers[i]);
	fan_end_overdue(fan);
	return RC_OK;
}

enum rc
fan_hear(struct fan *fan, instant until, bool (*enough)(void *ctx))
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < fan->n; i++)
		peer_step(fan, &fan->peers[i]);
	while (rc == RC_OK && anyone_is_busy(fan) && !(enough && enough(fan->ctx)) &&
	    instant_now() < until)
		rc = fan_await(fan, until);
	fan_end_overdue(fan);
	return rc;
}
