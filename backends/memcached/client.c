/* client.c - commands to one memcached server and their replies, on one connection. */
#include "client.h"

#include "backends/common/resolve.h"
#include "backends/common/secret.h"
#include "backends/common/stream.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SIZE_MOST = 64 << 20 }; /* of a value that is read to its end */

static const char strange[] =
    "does not answer as memcached does: is this a memcached server?";

void
client_init(
    struct client *c, struct host *host, const struct address *a, const char *server_name)
{
	stream_init(&c->stream, host, server_name);
	c->address = a;
	c->epoch = 0;
	c->at = c->used = c->filled = 0;
}

void
client_close(struct client *c)
{
	stream_close(&c->stream);
	c->at = c->used = 0;
}

bool
client_is_same(struct client *c, unsigned epoch)
{
	return c->epoch == epoch && c->at == c->used && stream_is_quiet(&c->stream);
}

static enum rc
client_broken(struct client *c, enum rc rc, const char *what, struct fault *f)
{
	client_close(c);
	return fault_set(f, rc, "%s %s", c->stream.where, what);
}

enum rc
client_nonsense(struct client *c, struct fault *f)
{
	return client_broken(
	    c, RC_PROTOCOL, "sent an answer that does not fit the question", f);
}

enum rc
client_without_cas(struct client *c, struct fault *f)
{
	return client_broken(c, RC_CONFIG,
	    "runs with -C and numbers no changes, so two runs could get one lock", f);
}

/* ---- commands ---- */

/* A mistake of ours, if there is no room for what is asked at once. */
__attribute__((format(printf, 2, 3))) static void
put_command(struct client *c, const char *fmt, ...)
{
	size_t room = sizeof c->out - c->filled;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(c->out + c->filled, room, fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n >= room)
		abort();
	c->filled += n;
}

void
client_get(struct client *c, const char *tag, const char *name)
{
	put_command(c, "mg %s%s v c t u\r\n", tag, name);
}

void
client_store(struct client *c, const char *tag, const char *name, uint64_t cas,
    int64_t exptime, const char *value)
{
	put_command(c, "ms %s%s %zu c T%" PRId64, tag, name, strlen(value), exptime);
	if (cas != STORE_NEW && cas != STORE_ANY)
		put_command(c, " C%" PRIu64, cas);
	put_command(c, "%s\r\n%s\r\n", cas == STORE_NEW ? " ME" : "", value);
}

void
client_delete(struct client *c, const char *tag, const char *name, uint64_t cas)
{
	put_command(c, "md %s%s", tag, name);
	if (cas)
		put_command(c, " C%" PRIu64, cas);
	put_command(c, "\r\n");
}

void
client_word(struct client *c, const char *word)
{
	put_command(c, "%s\r\n", word);
}

/* ---- what a reply says ---- */

bool
reply_number(const char *text, uint64_t *ret)
{
	size_t n = strspn(text, "0123456789");

	*ret = 0;
	if (n == 0 || n > 19 || text[n] != '\0')
		return false;
	for (size_t i = 0; i < n; i++)
		*ret = *ret * 10 + (uint64_t)(text[i] - '0');
	return true;
}

char *
reply_word(char **rest)
{
	char *word = *rest;
	size_t n = strcspn(word, " ");

	*rest = word + n + (word[n] == ' ');
	word[n] = '\0';
	return word;
}

/* "c17", "t30", "t-1"; false: a flag that we never ask for. */
static bool
reply_flag(struct reply *r, const char *flag)
{
	uint64_t number;

	/* other clients have vivified or invalidated the item, which does not matter to us */
	if (strcmp(flag, "W") == 0 || strcmp(flag, "X") == 0 || strcmp(flag, "Z") == 0)
		return true;
	if (strcmp(flag, "t-1") == 0) {
		r->ttl = TTL_NONE;
		return true;
	}
	if (!reply_number(flag + 1, &number))
		return false;
	if (*flag == 'c')
		r->cas = number;
	else if (*flag == 't' && number <= INT32_MAX)
		r->ttl = (int64_t)number;
	else
		return false;
	return true;
}

static const struct reply_row {
	char word[16];
	enum reply_code code;
} words[] = {
    {"STAT", REPLY_STAT}, /* the first, since there are many of them */
    {"HD", REPLY_HD},
    {"VA", REPLY_VA},
    {"EN", REPLY_EN},
    {"NF", REPLY_NF},
    {"NS", REPLY_NS},
    {"EX", REPLY_EX},
    {"MN", REPLY_MN},
    {"OK", REPLY_OK},
    {"STORED", REPLY_OK},
    {"END", REPLY_END},
    {"BUSY", REPLY_BUSY},
    {"ERROR", REPLY_ERROR},
    {"CLIENT_ERROR", REPLY_ERROR},
    {"SERVER_ERROR", REPLY_ERROR},
};

/* What stands behind the word.  False: that does not follow such a word. */
static bool
reply_rest(struct reply *r, enum reply_code code, char *text)
{
	uint64_t size = 0;

	if (code == REPLY_STAT) {
		r->name = reply_word(&text);
		r->text = text;
		return *r->name != '\0';
	}
	if (code == REPLY_BUSY || code == REPLY_ERROR)
		return true;
	if (code == REPLY_VA &&
	    (!reply_number(reply_word(&text), &size) || size > INT32_MAX))
		return false;
	r->size = size;
	while (*text)
		if (!reply_flag(r, reply_word(&text)))
			return false;
	return true;
}

void
reply_parse(struct reply *r, char *line)
{
	const struct reply_row *w = words, *end = words + sizeof words / sizeof *words;
	char *rest = line, *word = reply_word(&rest);

	*r = (struct reply){
	    .code = REPLY_STRANGE, .ttl = TTL_UNTOLD, .name = word, .text = rest};
	if (strncmp(word, "key=", 4) == 0 && word[4]) {
		r->code = REPLY_KEY;
		r->name = word + 4;
		return;
	}
	while (w < end && strcmp(word, w->word) != 0)
		w++;
	if (w < end && reply_rest(r, w->code, rest))
		r->code = w->code;
}

#define OLD "dlock needs memcached 1.6.10 or newer"

/* Words behind one of memcached's three codes, which say more than that; then these codes. */
static const struct meaning {
	const char *words;
	enum rc rc;
	const char *hint;
} meanings[] = {
    {"unauthenticated", RC_DENIED,
	"it wants a user and password: put them into the URL, or the password into -O password-file=FILE"},
    {"authentication failure", RC_DENIED, "wrong user or password"},
    {"bad authentication token", RC_DENIED, "wrong user or password"},
    {"metadump not allowed", RC_CONFIG,
	"it does not list its keys, because it runs with -X: name a key"},
    {"lru crawler disabled", RC_CONFIG,
	"it does not list its keys, because it runs with -o no_lru_crawler: name a key"},
    {"ut of memory", RC_AGAIN,
	"its memory is full, and with -M it evicts nothing: raise its -m"},
    {"oo many open connections", RC_AGAIN,
	"it has no room for another connection: raise its -c"},
    {"object too large", RC_CONFIG, "its -I is too small for a lock: 16k will do"},
    {"not supported", RC_CONFIG, "a proxy does not pass what dlock needs"},
    {"failed to start lru crawler", RC_AGAIN, NULL},
    {"SERVER_ERROR", RC_AGAIN, NULL},
    {"CLIENT_ERROR", RC_CONFIG, OLD},
    {"ERROR", RC_CONFIG, OLD},
};

enum rc
reply_error(const struct reply *r, const char **hint)
{
	const struct meaning *m = meanings,
			     *last = m + sizeof meanings / sizeof *meanings - 1;

	while (m < last && !strstr(r->text, m->words) && strcmp(r->name, m->words) != 0)
		m++;
	*hint = m->hint;
	return m->rc;
}

/* ---- reading ---- */

/* Makes room behind the first `n` bytes of what was not read yet, and waits for more. */
static enum rc
client_receive(struct client *c, size_t n, instant until, struct fault *f)
{
	size_t got = 0;
	enum rc rc;

	memmove(c->in, c->in + c->at, n);
	rc = stream_receive(&c->stream, c->in + n, sizeof c->in - n, &got, until, f);
	c->at = 0;
	c->used = rc == RC_OK ? n + got : 0;
	return rc;
}

/*
 * The next line, without its end; valid until the next call.  The lines of a list of items
 * end without a CR.
 */
static enum rc
client_line(struct client *c, char **ret, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	*ret = NULL;
	while (rc == RC_OK) {
		char *from = c->in + c->at, *end = memchr(from, '\n', c->used - c->at);
		size_t n = end ? (size_t)(end - from) : c->used - c->at;

		if (n > LINE_MOST || memchr(from, '\0', n))
			return client_broken(c, RC_PROTOCOL, strange, f);
		if (end) {
			c->at += n + 1;
			from[n > 0 && from[n - 1] == '\r' ? n - 1 : n] = '\0';
			*ret = from;
			return RC_OK;
		}
		rc = client_receive(c, n, until, f);
	}
	return rc;
}

/* Takes `n` bytes, the first `room` of them to `to`. */
static enum rc
client_bytes(
    struct client *c, size_t n, char *to, size_t room, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	while (rc == RC_OK && n > 0) {
		size_t part = c->used - c->at < n ? c->used - c->at : n,
		       kept = part < room ? part : room;

		memcpy(to, c->in + c->at, kept);
		to += kept;
		room -= kept;
		n -= part;
		c->at += part;
		if (n > 0)
			rc = client_receive(c, 0, until, f);
	}
	return rc;
}

/* A reply that is an error, or that no memcached gives.  An error may repeat what we sent. */
static enum rc
client_refused(struct client *c, const struct reply *r, struct fault *f)
{
	enum { TLS_ALERT = 0x15 };
	char text[LINE_MOST + 1];
	const char *hint;
	enum rc rc;

	if (r->code != REPLY_ERROR)
		return client_broken(c, RC_PROTOCOL,
		    *r->name == TLS_ALERT
			? "speaks TLS, which dlock does not speak to memcached"
			: strange,
		    f);
	rc = reply_error(r, &hint);
	snprintf(text, sizeof text, "%s%s%s", r->name, *r->text ? " " : "", r->text);
	secret_blot(text, c->address->password);
	client_close(c);
	return fault_set(f, rc, "%s says '%.200s'%s%s", c->stream.where, text,
	    hint ? ": " : "", hint ? hint : "");
}

static enum rc
client_reply(struct client *c, struct reply *r, instant until, struct fault *f)
{
	char *line;
	enum rc rc = client_line(c, &line, until, f);

	*r = (struct reply){.code = REPLY_STRANGE, .name = "", .text = ""};
	if (rc == RC_OK && line)
		reply_parse(r, line);
	return rc;
}

enum rc
client_read(struct client *c, struct reply *r, instant until, struct fault *f)
{
	char end[2];
	enum rc rc = client_reply(c, r, until, f);

	if (rc == RC_OK && (r->code == REPLY_ERROR || r->code == REPLY_STRANGE))
		return client_refused(c, r, f);
	if (rc != RC_OK || r->code != REPLY_VA)
		return rc;
	if (r->size > SIZE_MOST)
		return client_broken(c, RC_PROTOCOL,
		    "has a value of more than 64 MiB under this key, which is no lock",
		    f);
	r->n = r->size < VALUE_BYTES ? r->size : VALUE_BYTES - 1;
	rc = client_bytes(c, r->size, c->value, r->n, until, f);
	if (rc == RC_OK)
		rc = client_bytes(c, sizeof end, end, sizeof end, until, f);
	if (rc != RC_OK)
		return rc;
	c->value[r->n] = '\0';
	r->text = c->value;
	return memcmp(end, "\r\n", 2) == 0 ? RC_OK : client_nonsense(c, f);
}

enum rc
client_answer(struct client *c, struct reply *r, instant until, struct fault *f)
{
	enum rc rc = client_go_on(c, until, f);

	return rc == RC_OK ? client_read(c, r, until, f) : rc;
}

/* ---- connecting ---- */

static enum rc
client_transmit(
    struct client *c, const char *text, size_t n, instant until, struct fault *f)
{
	struct iovec part = {(char *)text, n};

	return stream_send(&c->stream, &part, 1, until, f);
}

/*
 * A server that wants no password would store it, for everybody to read: so it must say
 * first that it wants one.  Its answer to the password is not quoted, because it may repeat
 * the password.
 */
static enum rc
client_login(struct client *c, instant until, struct fault *f)
{
	const struct address *a = c->address;
	char login[sizeof a->user + sizeof a->password + 32];
	enum rc rc = client_transmit(c, "mn\r\n", 4, until, f);
	const char *hint;
	struct reply r;
	int n;

	if (rc == RC_OK)
		rc = client_reply(c, &r, until, f);
	if (rc != RC_OK)
		return rc;
	if (r.code == REPLY_MN)
		return client_broken(
		    c, RC_DENIED, "wants no password: leave user and password out", f);
	if (r.code != REPLY_ERROR || strcmp(r.text, "unauthenticated") != 0)
		return client_refused(c, &r, f);
	n = snprintf(login, sizeof login, "set auth 0 0 %zu\r\n%s %s\r\n",
	    strlen(a->user) + 1 + strlen(a->password), a->user, a->password);
	rc = client_transmit(c, login, n, until, f);
	explicit_bzero(login, sizeof login);
	if (rc == RC_OK)
		rc = client_reply(c, &r, until, f);
	if (rc != RC_OK || r.code == REPLY_OK)
		return rc;
	rc = r.code == REPLY_ERROR ? reply_error(&r, &hint) : RC_PROTOCOL;
	if (rc == RC_DENIED)
		return client_broken(
		    c, rc, "refuses the login: wrong user or password", f);
	return client_broken(c, rc,
	    "gave a wrong answer to the login, which is not shown, because it may repeat the password",
	    f);
}

/*
 * Several servers behind one name have several locks for one key.  IPv4 and IPv6 are two
 * ways to one server.
 */
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
client_connect(struct client *c, instant until, struct fault *f)
{
	const struct endpoint *at = &c->address->at;
	struct addresses all;
	enum rc rc;

	client_close(c);
	c->epoch++;
	rc = resolve(c->stream.host, at->host, at->port, until, &all, f);
	if (rc == RC_OK && !is_one_server(&all))
		return fault_set(f, RC_CONFIG,
		    "the name %s stands for several servers, and each would give the lock to a different run: name one server",
		    at->host);
	if (rc == RC_OK)
		rc = stream_connect_to(&c->stream, &all, until, f);
	return rc == RC_OK && *c->address->password ? client_login(c, until, f) : rc;
}

/* Sends what was put; drops it if there is no connection for it. */
static enum rc
client_flush(struct client *c, bool go_on, instant until, struct fault *f)
{
	size_t n = c->filled;
	enum rc rc = RC_OK;

	c->filled = 0;
	if (!client_is_same(c, c->epoch))
		rc = go_on ? client_broken(
				 c, RC_AGAIN, "closed the connection within a request", f)
			   : client_connect(c, until, f);
	return rc == RC_OK ? client_transmit(c, c->out, n, until, f) : rc;
}

enum rc
client_send(struct client *c, instant until, struct fault *f)
{
	return client_flush(c, false, until, f);
}

enum rc
client_go_on(struct client *c, instant until, struct fault *f)
{
	return client_flush(c, true, until, f);
}
