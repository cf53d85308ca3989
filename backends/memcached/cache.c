/* cache.c - commands to one memcached server, and its replies. */
#include "cache.h"

#include "backends/common/net.h"
#include "backends/common/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STATS_MOST = 1000 }; /* lines */

void
cache_init(
    struct cache *s, struct host *host, const struct location *a, const char *where)
{
	stream_init(&s->stream, host, where);
	s->address = a;
	s->epoch = 0;
	s->at = s->used = 0;
}

void
cache_close(struct cache *s)
{
	stream_close(&s->stream);
	s->at = s->used = 0;
}

bool
cache_is_same(struct cache *s, unsigned epoch)
{
	return s->epoch == epoch && s->at == s->used && stream_is_quiet(&s->stream);
}

static enum rc
cache_broken(struct cache *s, enum rc rc, const char *what, struct fault *f)
{
	cache_close(s);
	return fault_set(f, rc, "%s %s", s->stream.where, what);
}

enum rc
cache_nonsense(struct cache *s, struct fault *f)
{
	return cache_broken(
	    s, RC_PROTOCOL, "gave an answer to something that was not asked", f);
}

/* ---- commands ---- */

void
batch_begin(struct batch *b)
{
	b->used = 0;
}

/* What does not fit is a mistake of ours: a batch has room for what is asked at once. */
static void
put(struct batch *b, const char *text, size_t n)
{
	if (n > sizeof b->text - b->used)
		abort();
	memcpy(b->text + b->used, text, n);
	b->used += n;
}

static void
put_text(struct batch *b, const char *text)
{
	put(b, text, strlen(text));
}

static void
put_cas(struct batch *b, uint64_t cas)
{
	char text[32];

	snprintf(text, sizeof text, " C%" PRIu64, cas);
	put_text(b, text);
}

static void
put_number(struct batch *b, const char *before, int64_t number)
{
	char text[32];

	snprintf(text, sizeof text, "%s%" PRId64, before, number);
	put_text(b, text);
}

static void
put_name(struct batch *b, const char *command, const char *name)
{
	put_text(b, command);
	put_text(b, " ");
	put_text(b, name);
}

void
batch_get(struct batch *b, const char *name)
{
	put_name(b, "mg", name);
	put_text(b, " v c t u\r\n");
}

void
batch_store(struct batch *b, const char *name, const struct store_how *how,
    const char *value, size_t n)
{
	put_name(b, "ms", name);
	put_number(b, " ", (int64_t)n);
	put_number(b, " c T", how->exptime);
	if (how->mode == STORE_OVER)
		put_cas(b, how->cas);
	if (how->mode == STORE_NEW)
		put_text(b, " ME");
	put_text(b, "\r\n");
	put(b, value, n);
	put_text(b, "\r\n");
}

void
batch_delete(struct batch *b, const char *name, uint64_t cas)
{
	put_name(b, "md", name);
	if (cas)
		put_cas(b, cas);
	put_text(b, "\r\n");
}

void
batch_word(struct batch *b, const char *word)
{
	put_text(b, word);
	put_text(b, "\r\n");
}

/* ---- lines ---- */

/*
 * The next line, without its end; valid until the next call.  Lines of metadump end
 * without a CR.
 */
static enum rc
cache_line(struct cache *s, char **ret, instant until, struct fault *f)
{
	*ret = NULL;
	for (;;) {
		char *from = s->in + s->at, *end = memchr(from, '\n', s->used - s->at);
		size_t n = end ? (size_t)(end - from) : s->used - s->at, got;
		enum rc rc;

		if (n > LINE_MOST || memchr(from, '\0', n))
			return cache_broken(s, RC_PROTOCOL,
			    "sent what memcached never sends: is this a memcached server?",
			    f);
		if (end) {
			s->at += n + 1;
			from[n > 0 && from[n - 1] == '\r' ? n - 1 : n] = '\0';
			*ret = from;
			return RC_OK;
		}
		memmove(s->in, from, n);
		s->at = 0;
		s->used = n;
		rc = stream_receive(
		    &s->stream, s->in + n, sizeof s->in - n, &got, until, f);
		if (rc != RC_OK) {
			s->used = 0;
			return rc;
		}
		s->used += got;
	}
}

/* Takes `n` bytes, the first `room` of them to `to`. */
static enum rc
cache_bytes(
    struct cache *s, size_t n, char *to, size_t room, instant until, struct fault *f)
{
	while (n > 0) {
		size_t part = s->used - s->at < n ? s->used - s->at : n,
		       kept = part < room ? part : room, got;
		enum rc rc;

		memcpy(to, s->in + s->at, kept);
		to += kept;
		room -= kept;
		n -= part;
		s->at += part;
		if (n == 0)
			break;
		s->at = s->used = 0;
		rc = stream_receive(&s->stream, s->in, sizeof s->in, &got, until, f);
		if (rc != RC_OK)
			return rc;
		s->used = got;
	}
	return RC_OK;
}

static enum rc
cache_value(struct cache *s, struct answer *a, instant until, struct fault *f)
{
	char end[2];
	enum rc rc;

	if (a->reply.size > SIZE_MOST)
		return cache_broken(s, RC_PROTOCOL,
		    "has a value of more than 64 MiB under this key: it is no lock", f);
	a->n = a->reply.size < sizeof a->value ? a->reply.size : sizeof a->value - 1;
	rc = cache_bytes(s, a->reply.size, a->value, a->n, until, f);
	if (rc == RC_OK)
		rc = cache_bytes(s, sizeof end, end, sizeof end, until, f);
	if (rc != RC_OK)
		return rc;
	a->value[a->n] = '\0';
	return memcmp(end, "\r\n", 2) == 0 ? RC_OK : cache_nonsense(s, f);
}

/* Its error, which may repeat what we sent. */
static enum rc
cache_refused(struct cache *s, const char *error, const char *text, struct fault *f)
{
	char said[LINE_MOST + 1];
	const char *hint;
	enum rc rc;

	snprintf(said, sizeof said, "%s%s%s", error, *text ? " " : "", text);
	rc = reply_error(said, &hint);
	secret_blot(said, s->address->password);
	cache_close(s);
	return fault_set(f, rc, "%s says '%.200s'%s%s", s->stream.where, said,
	    hint ? ": " : "", hint ? hint : "");
}

static enum rc
cache_strange(struct cache *s, char first, struct fault *f)
{
	enum { TLS_ALERT = 0x15 };

	return cache_broken(s, RC_PROTOCOL,
	    first == TLS_ALERT
		? "speaks TLS, which dlock does not speak to memcached"
		: "sent what memcached never sends: is this a memcached server?",
	    f);
}

static enum rc
cache_reply(struct cache *s, struct reply *r, instant until, struct fault *f)
{
	char *line;
	enum rc rc = cache_line(s, &line, until, f);

	*r = (struct reply){.code = REPLY_STRANGE};
	if (rc != RC_OK || !line)
		return rc;
	reply_read(r, line);
	if (r->code == REPLY_ERROR)
		return cache_refused(s, r->name, r->value, f);
	return r->code == REPLY_STRANGE ? cache_strange(s, *line, f) : RC_OK;
}

enum rc
cache_read(struct cache *s, struct answer *a, instant until, struct fault *f)
{
	enum rc rc = cache_reply(s, &a->reply, until, f);

	a->n = 0;
	return rc == RC_OK && a->reply.code == REPLY_VA ? cache_value(s, a, until, f)
							: rc;
}

enum rc
cache_read_vitals(struct cache *s, struct vitals *v, instant until, struct fault *f)
{
	struct reply r;
	enum rc rc;

	for (int i = 0; i < STATS_MOST; i++) {
		rc = cache_reply(s, &r, until, f);
		if (rc != RC_OK || r.code == REPLY_END)
			return rc;
		if (r.code != REPLY_STAT)
			break;
		vitals_add(v, r.name, r.value);
	}
	return cache_nonsense(s, f);
}

/* ---- login ---- */

static enum rc
cache_put(struct cache *s, const char *text, size_t n, instant until, struct fault *f)
{
	struct iovec part = {(char *)text, n};

	return stream_send(&s->stream, &part, 1, until, f);
}

/* What answers a login is not quoted: it may repeat the password. */
static enum rc
cache_login_answered(struct cache *s, instant until, struct fault *f)
{
	const char *hint;
	char *line;
	enum rc rc = cache_line(s, &line, until, f);

	if (rc != RC_OK || !line || strcmp(line, "STORED") == 0)
		return rc;
	rc = reply_error(line, &hint) == RC_DENIED ? RC_DENIED : RC_PROTOCOL;
	return cache_broken(s, rc,
	    rc == RC_DENIED
		? "refuses the login: wrong user or password"
		: "gave a wrong answer to the login, which is not shown, since it may repeat the password",
	    f);
}

/*
 * A server that wants no password would store it, for everybody to read: so it must say
 * first that it wants one.
 */
static enum rc
cache_login(struct cache *s, instant until, struct fault *f)
{
	const struct location *a = s->address;
	char login[sizeof a->user + sizeof a->password + 32],
	    words[sizeof a->user + sizeof a->password + 2], *line = NULL;
	enum rc rc = cache_put(s, "mn\r\n", 4, until, f);
	int n;

	if (rc == RC_OK)
		rc = cache_line(s, &line, until, f);
	if (rc != RC_OK || !line)
		return rc;
	if (strcmp(line, "MN") == 0)
		return cache_broken(
		    s, RC_DENIED, "wants no password: leave user and password out", f);
	if (strcmp(line, "CLIENT_ERROR unauthenticated") != 0)
		return strcmp(line, "ERROR") == 0 ? cache_refused(s, line, "", f)
						  : cache_strange(s, *line, f);
	n = snprintf(words, sizeof words, "%s %s", a->user, a->password);
	n = snprintf(login, sizeof login, "set auth 0 0 %d\r\n%s\r\n", n, words);
	rc = cache_put(s, login, n, until, f);
	explicit_bzero(login, sizeof login);
	explicit_bzero(words, sizeof words);
	return rc == RC_OK ? cache_login_answered(s, until, f) : rc;
}

/* Several servers behind one name have several locks for one key.  IPv4 and IPv6 are two ways to one. */
static bool
is_one_server(const struct addresses *all)
{
	for (size_t i = 1; i < all->n; i++)
		for (size_t k = 0; k < i; k++)
			if (all->at[i].address.ss_family ==
				all->at[k].address.ss_family &&
			    memcmp(&all->at[i].address, &all->at[k].address,
				all->at[i].size) != 0)
				return false;
	return true;
}

static enum rc
cache_connect(struct cache *s, instant until, struct fault *f)
{
	const struct endpoint *at = &s->address->at;
	struct addresses all;
	enum rc rc;

	cache_close(s);
	s->epoch++;
	rc = resolve(s->stream.host, at->host, at->port, until, &all, f);
	if (rc == RC_OK && !is_one_server(&all))
		return fault_set(f, RC_CONFIG,
		    "the name %s stands for several servers, each of which would give the lock to another: name one",
		    at->host);
	if (rc == RC_OK)
		rc = stream_connect_to(&s->stream, &all, until, f);
	return rc == RC_OK && *s->address->password ? cache_login(s, until, f) : rc;
}

enum rc
cache_send(struct cache *s, const struct batch *b, instant until, struct fault *f)
{
	enum rc rc = cache_is_same(s, s->epoch) ? RC_OK : cache_connect(s, until, f);

	return rc == RC_OK ? cache_put(s, b->text, b->used, until, f) : rc;
}

enum rc
cache_go_on(struct cache *s, const struct batch *b, instant until, struct fault *f)
{
	return cache_is_same(s, s->epoch)
	    ? cache_put(s, b->text, b->used, until, f)
	    : cache_broken(s, RC_AGAIN, "closed the connection within a request", f);
}
