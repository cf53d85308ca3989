/* sentinel.c - asks sentinels for the master, all at once. */
#include "sentinel.h"

#include "backends/common/net.h"
#include "backends/common/text.h"
#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ONE_PATIENCE (100 * NS_PER_MS) /* for one, once all else is answered */

enum {
	SENTINEL_WHERE = 300,
	COMMAND_BYTES = 2048,
	LAST_PART =
	    4, /* of the wait: one of so many parts, in which fewer than most will do */
};

/* What one of them has to say. */
enum word {
	WORD_NONE, /* nothing so far, or for ever */
	WORD_MASTER,
	WORD_UNKNOWN, /* it knows no master of that name */
	WORD_UNSAFE,  /* its certificate is not accepted */
	WORD_DENIED,
	WORD_NONSENSE,
};

struct sentinel {
	struct wire wire;
	const struct endpoint *at;
	char where[SENTINEL_WHERE];
	struct addresses addresses;
	size_t next; /* of the addresses */
	size_t sent; /* of the command */
	int answers; /* that have come */
	bool busy;
	enum word word;
	struct endpoint master;
};

struct sentinels {
	struct host *host;
	const struct address *address;
	const char *password;
	char command[COMMAND_BYTES];
	size_t length;
	int answers; /* to the command */
	int64_t down_after;
	size_t turn; /* whom to ask alone */
	struct sentinel *one;
	struct fault why; /* what the last one that failed had to say */
	size_t n;
	struct sentinel each[];
};

static const struct resp_bounds bounds = {RESP_BYTES, 128, RESP_DEPTH};

/* ---- the command ---- */

static bool
add_command(struct sentinels *s, int argc, const char **argv)
{
	char *text;
	int length = redisFormatCommandArgv(&text, argc, argv, NULL);
	bool fits = length >= 0 && s->length + length <= sizeof s->command;

	if (fits) {
		memcpy(s->command + s->length, text, length);
		s->length += length;
		s->answers++;
	}
	if (length >= 0) {
		explicit_bzero(text, length);
		redisFreeCommand(text);
	}
	return fits;
}

/* AUTH where there is a password; the question; and how patient they are, if wanted. */
static bool
write_command(struct sentinels *s, bool patience)
{
	const char *name = s->address->master;

	s->length = 0;
	s->answers = 0;
	return (!*s->password ||
		   add_command(s, 2, (const char *[]){"AUTH", s->password})) &&
	    add_command(
		s, 3, (const char *[]){"SENTINEL", "get-master-addr-by-name", name}) &&
	    (!patience ||
		add_command(s, 3, (const char *[]){"SENTINEL", "MASTER", name}));
}

/* ---- answers ---- */

static enum word
read_error(struct sentinels *s, struct sentinel *o, char *text)
{
	const char *hint;
	enum rc rc = resp_error(text, &hint);

	if (strstr(text, "No such master"))
		return WORD_UNKNOWN;
	secret_blot(text, s->password);
	fault_set(&s->why, rc, "%s says '%.200s'%s", o->where, text,
	    rc == RC_DENIED ? ": -O sentinel-password-file=FILE is for it" : "");
	return rc == RC_DENIED ? WORD_DENIED : WORD_NONSENSE;
}

static enum word
read_master(struct sentinels *s, struct sentinel *o, const redisReply *r)
{
	const redisReply *host, *port;

	if (r->type == REDIS_REPLY_ERROR)
		return read_error(s, o, r->str);
	if (r->type == REDIS_REPLY_NIL)
		return WORD_UNKNOWN;
	host = r->type == REDIS_REPLY_ARRAY && r->elements == 2 ? r->element[0] : NULL;
	port = host ? r->element[1] : NULL;
	if (host && host->type == REDIS_REPLY_STRING &&
	    port->type == REDIS_REPLY_STRING &&
	    !endpoint_plain(&o->master, host->str, host->len, port->str, port->len))
		return WORD_MASTER;
	fault_set(&s->why, RC_PROTOCOL,
	    "%s names no host and port as the master: is it a sentinel?", o->where);
	return WORD_NONSENSE;
}

/* {name, value, ...} */
static void
read_patience(struct sentinels *s, const redisReply *r)
{
	for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements; i += 2)
		if (r->element[i]->type == REDIS_REPLY_STRING &&
		    r->element[i + 1]->type == REDIS_REPLY_STRING &&
		    strcmp(r->element[i]->str, "down-after-milliseconds") == 0)
			s->down_after = endpoint_number(
			    r->element[i + 1]->str, r->element[i + 1]->len, INT32_MAX);
}

static void
read_answer(struct sentinels *s, struct sentinel *o, const redisReply *r)
{
	int place = o->answers++ + !*s->password;

	if (place == 0) {
		if (r->type == REDIS_REPLY_ERROR) {
			o->word = WORD_DENIED;
			fault_set(&s->why, RC_DENIED,
			    "%s refuses the password of -O sentinel-password-file=FILE",
			    o->where);
		}
	} else if (place == 1) {
		enum word word = read_master(s, o, r);

		o->word = o->word == WORD_DENIED && word != WORD_MASTER ? WORD_DENIED
									: word;
	} else {
		read_patience(s, r);
	}
}

/* ---- one of them ---- */

static void
sentinel_end(struct sentinel *o)
{
	wire_close(&o->wire);
	o->busy = false;
}

/* To its next address. */
static void
sentinel_connect(struct sentinels *s, struct sentinel *o)
{
	o->sent = 0;
	o->busy = false;
	while (!o->busy && o->next < o->addresses.n) {
		size_t i = o->next++;

		o->busy = wire_start(&o->wire, s->address, o->at,
			      (struct sockaddr *)&o->addresses.at[i].address,
			      o->addresses.at[i].size, &s->why) == RC_OK;
	}
}

static enum rc
sentinel_begin(struct sentinels *s, struct sentinel *o, instant until)
{
	enum rc rc = resolve(
	    s->host, o->at->host, o->at->port, until, &o->addresses, &s->why);

	wire_close(&o->wire);
	o->busy = false;
	o->word = WORD_NONE;
	o->next = 0;
	o->answers = 0;
	if (rc == RC_OK)
		sentinel_connect(s, o);
	return rc == RC_STOP ? rc : RC_OK;
}

/* How many say this. */
static size_t
count(const struct sentinels *s, enum word word)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->each[i].word == word;
	return n;
}

/* The connection has ended, with `rc`; one that cannot be reached hides no other's word. */
static void
sentinel_ended(struct sentinels *s, struct sentinel *o, enum rc rc, const struct fault *f)
{
	if (rc != RC_AGAIN || count(s, WORD_NONE) == s->n)
		s->why = *f;
	o->busy = false;
	if (o->word == WORD_NONE)
		o->word = rc == RC_CONFIG ? WORD_UNSAFE
		    : rc == RC_DENIED     ? WORD_DENIED
		    : rc == RC_PROTOCOL   ? WORD_NONSENSE
					  : WORD_NONE;
}

/* It does not take the command: to its next address, or once more with more CAs. */
static void
sentinel_failed(struct sentinels *s, struct sentinel *o)
{
	struct fault f;
	int error = errno;
	enum rc rc = stream_failed(&o->wire.stream, &f);

	if (rc == RC_AGAIN && (!s->address->tls || error == ECONNREFUSED))
		fault_set(&f, rc, "cannot reach %s: %s", o->where, strerror(error));
	wire_close(&o->wire);
	if (rc == RC_CONFIG && s->address->tls && tls_can_retry(s->address->tls))
		o->next--;
	else
		sentinel_ended(s, o, rc, &f);
	sentinel_connect(s, o);
}

/* As far as it goes; false: it has to wait, or it is over. */
static bool
sentinel_send(struct sentinels *s, struct sentinel *o)
{
	while (o->busy && o->sent < s->length) {
		struct stream *stream = &o->wire.stream;
		struct iovec rest = {s->command + o->sent, s->length - o->sent};
		ssize_t n = stream->ops->write(stream, &rest, 1);

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n > 0)
			o->sent += n;
		else if (errno != EINTR)
			sentinel_failed(s, o);
	}
	return o->busy;
}

static void
sentinel_step(struct sentinels *s, struct sentinel *o)
{
	while (sentinel_send(s, o)) {
		redisReply *reply = NULL;
		struct fault f;
		enum rc rc;

		if (o->answers == s->answers) {
			sentinel_end(o);
		} else if ((rc = wire_take(&o->wire, &reply, &f)) != RC_OK) {
			sentinel_ended(s, o, rc, &f);
		} else if (reply) {
			read_answer(s, o, reply);
			freeReplyObject(reply);
		} else {
			return;
		}
	}
}

/* ---- all of them ---- */

/* How many say the same as this one. */
static size_t
votes_for(const struct sentinels *s, const struct sentinel *of)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->each[i].word == WORD_MASTER &&
		    endpoint_is(&s->each[i].master, &of->master);
	return n;
}

static bool
anyone_busy(const struct sentinels *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->each[i].busy)
			return true;
	return false;
}

/* What at least `votes` say, and with fewer than most: nobody else says another; or NULL. */
static const struct endpoint *
named_by(const struct sentinels *s, bool most)
{
	size_t masters = count(s, WORD_MASTER);

	for (size_t i = 0; i < s->n; i++) {
		const struct sentinel *o = &s->each[i];

		if (o->word == WORD_MASTER &&
		    (most ? votes_for(s, o) * 2 > s->n : votes_for(s, o) == masters))
			return &o->master;
	}
	return NULL;
}

/* What goes on at all of them, in one descriptor; -1 and errno. */
static int
watch_all(const struct sentinels *s)
{
	int all = epoll_create1(EPOLL_CLOEXEC);

	for (size_t i = 0; all >= 0 && i < s->n; i++) {
		const struct stream *stream = &s->each[i].wire.stream;
		struct epoll_event e = {
		    .events = stream->wants == POLLOUT ? EPOLLOUT : EPOLLIN};

		if (s->each[i].busy)
			epoll_ctl(all, EPOLL_CTL_ADD, stream->fd, &e);
	}
	return all;
}

static enum rc
await_any(struct sentinels *s, instant until, struct fault *f)
{
	int all = watch_all(s);
	enum woke woke;

	if (all < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot wait for sentinels: %s", strerror(errno));
	woke = s->host->wait(s->host, all, POLLIN, until);
	close(all);
	for (size_t i = 0; i < s->n; i++)
		sentinel_step(s, &s->each[i]);
	return woke == WOKE_STOP ? RC_STOP : RC_OK;
}

/*
 * Until most agree; or all are heard; or the wait nears its end and some are.  The first
 * to answer may be one that was cut off, or lies: whom it names would get the password.
 */
static enum rc
hear(struct sentinels *s, instant until, struct fault *f)
{
	instant soon = until - (until - instant_now()) / LAST_PART;
	enum rc rc = RC_OK;

	while (rc == RC_OK && anyone_busy(s) && !named_by(s, true)) {
		bool enough = count(s, WORD_MASTER) > 0;

		if (instant_now() >= (enough ? soon : until))
			break;
		rc = await_any(s, enough ? soon : until, f);
	}
	return rc;
}

static enum rc
refusal(struct sentinels *s, struct fault *f)
{
	const char *name = s->address->master;

	if (count(s, WORD_MASTER) > 0)
		return fault_set(f, RC_AGAIN,
		    "the sentinels do not agree where the master %s is", name);
	if (count(s, WORD_UNKNOWN) > 0)
		return fault_set(f, RC_CONFIG,
		    "the sentinels know no master called '%s': its name stands behind their hosts in the URL",
		    name);
	if (count(s, WORD_UNSAFE) > 0)
		return fault_set(f, RC_CONFIG, "%s", s->why.text);
	if (count(s, WORD_DENIED) > 0)
		return fault_set(f, RC_DENIED, "%s", s->why.text);
	if (count(s, WORD_NONSENSE) > 0)
		return fault_set(f, RC_PROTOCOL, "%s", s->why.text);
	return fault_set(f, RC_AGAIN, "no sentinel tells where the master %s is: %.300s",
	    name, *s->why.text ? s->why.text : "none answers");
}

/* A name that nobody resolves is to hide no other. */
static instant
share_of_time(instant until, size_t sentinels)
{
	instant now = instant_now();

	return now + (until - now) / (int64_t)sentinels;
}

enum rc
sentinels_ask(
    struct sentinels *s, instant until, struct endpoint *master, struct fault *f)
{
	const struct endpoint *named;
	enum rc rc = RC_OK;

	*s->why.text = '\0';
	s->one = NULL;
	if (!write_command(s, s->host->verbose && !s->down_after))
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; rc == RC_OK && i < s->n; i++)
		rc = sentinel_begin(s, &s->each[i], share_of_time(until, s->n - i));
	for (size_t i = 0; rc == RC_OK && i < s->n; i++)
		sentinel_step(s, &s->each[i]);
	if (rc == RC_OK)
		rc = hear(s, until, f);
	for (size_t i = 0; i < s->n; i++)
		sentinel_end(&s->each[i]);
	if (rc != RC_OK)
		return rc;
	named = named_by(s, true);
	named = named ? named : named_by(s, false);
	if (!named)
		return refusal(s, f);
	*master = *named;
	return RC_OK;
}

/* ---- one alone ---- */

void
sentinels_ask_one(struct sentinels *s, instant until)
{
	struct sentinel *o = &s->each[s->turn++ % s->n];

	s->one = NULL;
	if (!write_command(s, false) ||
	    sentinel_begin(s, o, instant_first(until, instant_now() + ONE_PATIENCE)) !=
		RC_OK)
		return;
	s->one = o;
	sentinel_step(s, o);
}

bool
sentinels_one_differs(struct sentinels *s, const struct endpoint *master)
{
	instant until = instant_now() + ONE_PATIENCE;
	struct sentinel *o = s->one;

	s->one = NULL;
	if (!o)
		return false;
	sentinel_step(s, o);
	while (o->busy &&
	    s->host->wait(s->host, o->wire.stream.fd, o->wire.stream.wants, until) ==
		WOKE_READY)
		sentinel_step(s, o);
	sentinel_end(o);
	return o->word == WORD_MASTER && !endpoint_is(&o->master, master);
}

/* ---- their life ---- */

int64_t
sentinels_down_after(const struct sentinels *s)
{
	return s->down_after > 0 ? s->down_after : 0;
}

struct sentinels *
sentinels_new(struct host *host, const struct address *a, const char *password)
{
	struct sentinels *s = calloc(1, sizeof *s + a->n * sizeof s->each[0]);

	if (!s)
		return NULL;
	s->host = host;
	s->address = a;
	s->password = password;
	s->n = a->n;
	for (size_t i = 0; i < s->n; i++) {
		struct sentinel *o = &s->each[i];

		o->at = &a->hosts[i];
		snprintf(o->where, sizeof o->where,
		    strchr(o->at->host, ':') ? "sentinel [%s]:%d" : "sentinel %s:%d",
		    o->at->host, o->at->port);
		wire_init(&o->wire, host, o->where);
		wire_bound(&o->wire, &bounds);
	}
	return s;
}

void
sentinels_free(struct sentinels *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		wire_close(&s->each[i].wire);
	explicit_bzero(s->command, sizeof s->command);
	free(s);
}
