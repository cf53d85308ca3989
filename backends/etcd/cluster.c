/* cluster.c - calls to an etcd cluster by its JSON gateway, and a watch of some keys. */
#include "cluster.h"

#include "backends/common/secret.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of several members may take so long: a leader that died does not answer it for seconds. */
#define MEMBER_MOST (1500 * NS_PER_MS)
#define LEAST (100 * NS_PER_MS) /* so long, and half of what is left, whatever that is */

#define ELECTION_PACE (100 * NS_PER_MS)

enum { PIECES_MOST = 1000 }; /* of a watch at once */

void
cluster_close(struct cluster *c)
{
	http_close(&c->calls);
	http_close(&c->watch);
	explicit_bzero(c->token, sizeof c->token);
}

void
cluster_turn(struct cluster *c)
{
	http_close(&c->calls);
	c->member = (c->member + 1) % c->address->n;
}

/*
 * etcd tells its clock in whole seconds only.  Our own says more, as long as it says the same
 * second.
 */
int64_t
cluster_time(const struct cluster *c)
{
	int64_t least = c->date * US_PER_S + (instant_now() - c->dated) / 1000,
		here = instant_epoch();

	if (c->date <= 0)
		return here;
	return here < least           ? least
	    : here < least + US_PER_S ? here
				      : least + US_PER_S - 1;
}

/* ---- requests ---- */

/*
 * With Grpc-Metadata-hasleader a member that has lost its leader says so at once, where it
 * would be silent for seconds.
 */
static void
put_request(struct text *t, const struct cluster *c, const struct call *call)
{
	const char *body = call->ask.n > 0 ? call->ask.at : "{}";
	char host[sizeof(struct endpoint) + 8];

	endpoint_print(host, sizeof host, "", &c->address->at[c->member]);
	text_add(t, "POST %s HTTP/1.1\r\nHost: %s\r\n", call->path, host);
	if (*c->token)
		text_add(t, "Authorization: %s\r\n", c->token);
	text_add(t,
	    "Grpc-Metadata-hasleader: true\r\nContent-Type: application/json\r\n"
	    "Content-Length: %zu\r\n\r\n%s",
	    strlen(body), body);
	t->failed = t->failed || call->ask.failed;
}

/* ---- what an answer means ---- */

enum {
	CODE_UNKNOWN = 2,
	CODE_INVALID = 3,
	CODE_DENIED = 7,
	CODE_FULL = 8,
	CODE_UNIMPLEMENTED = 12,
	CODE_UNAVAILABLE = 14,
	CODE_DATA_LOSS = 15,
	CODE_TOKEN = 16
};

static const char wants_login[] =
    "does it want a user and password? Put them into the URL, or the password into -O password-file=FILE";
static const char not_allowed[] =
    "the user's roles do not allow this (see dlock-etcd(7))";
static const char is_full[] =
    "its database is full, and takes nothing new (etcdctl compact, defrag, alarm disarm)";
static const char too_large[] = "raise its --max-request-bytes";
static const char too_old[] = "is it an etcd of version 3.4 or newer?";

/* One code may stand for several errors: those whose words are known come first. */
static const struct meaning {
	int code;
	const char *words; /* NULL: any */
	enum rc rc;        /* RC_OK: callers understand it */
	const char *hint;  /* NULL: none */
} meanings[] = {
    {CODE_INVALID, "user name is empty", RC_DENIED, wants_login},
    {CODE_INVALID, "auth", RC_DENIED, wants_login},
    {CODE_INVALID, "too many operations", RC_CONFIG, "raise its --max-txn-ops"},
    {CODE_INVALID, "too large", RC_CONFIG, too_large},
    {CODE_INVALID, NULL, RC_CONFIG, too_old},
    {CODE_DENIED, NULL, RC_DENIED, not_allowed},
    {CODE_EXISTS, "name not found", RC_DENIED, not_allowed}, /* of a user, a role */
    {CODE_EXISTS, "is not granted", RC_DENIED, not_allowed},
    {CODE_EXISTS, "root", RC_DENIED, not_allowed},
    {CODE_EXISTS, "not leader", RC_AGAIN, NULL},
    {CODE_EXISTS, "downgrade", RC_AGAIN, NULL},
    {CODE_COMPACTED, "future revision", RC_AGAIN, NULL},
    {CODE_COMPACTED, "too large lease TTL", RC_CONFIG, "ask for a shorter lease (-t)"},
    {CODE_FULL, "too many requests", RC_AGAIN, "it has too much to do"},
    {CODE_FULL, "message larger than max", RC_CONFIG, too_large},
    {CODE_FULL, NULL, RC_AGAIN, is_full},
    {CODE_UNIMPLEMENTED, NULL, RC_CONFIG, too_old},
    {CODE_DATA_LOSS, NULL, RC_CONFIG,
	"the data of its members differs (etcdctl alarm list)"},
    {CODE_TOKEN, NULL, RC_DENIED, "the login is not valid any more"},
    {CODE_OK, NULL, RC_OK, NULL},
    {CODE_NOT_FOUND, NULL, RC_OK, NULL},
    {CODE_EXISTS, NULL, RC_OK, NULL},
    {CODE_COMPACTED, NULL, RC_OK, NULL},
};

enum rc
code_meaning(int code, const char *message, const char **hint)
{
	*hint = NULL;
	for (const struct meaning *m = meanings;
	     m < meanings + sizeof meanings / sizeof *meanings; m++) {
		if (m->code != code || (m->words && !strstr(message, m->words)))
			continue;
		*hint = m->hint;
		return m->rc;
	}
	return RC_AGAIN;
}

/* RC_OK: a caller understands it.  *expired: for the login's token only. */
static enum rc
code_judge(
    struct cluster *c, int code, const char *message, bool *expired, struct fault *f)
{
	char text[256];
	const char *hint;
	enum rc rc = code_meaning(code, message, &hint);

	/* after any change of users and roles, tokens of before are invalid arguments */
	*expired = code == CODE_TOKEN || (hint == wants_login && *c->token);
	if (rc == RC_OK)
		return rc;
	c->full = hint == is_full;
	snprintf(text, sizeof text, "%s", message);
	secret_blot(text, c->address->password);
	secret_blot(text, c->token);
	return fault_set(f, rc, "%s says '%.200s'%s%s", c->calls.stream.where, text,
	    hint ? ": " : "", hint ? hint : "");
}

/* The body is no JSON. */
static enum rc
reply_failed(struct connection *k, struct fault *f)
{
	int status = k->status;

	if (status == 200)
		return http_fail(k, RC_PROTOCOL, NULL, f);
	http_close(k);
	if (status >= 500)
		return fault_set(f, RC_AGAIN, "%s answers with status %d of HTTP",
		    k->stream.where, status);
	return fault_set(f, RC_CONFIG, "%s answers with status %d of HTTP%s",
	    k->stream.where, status,
	    status == 400
		? ": does it want TLS (etcds://)?"
		: ": it is no etcd of version 3.4 or newer, or its JSON gateway is off (enable-grpc-gateway)");
}

/*
 * Takes the reply's JSON, of whichever form: an object, one within "result", or an error,
 * whose fields differ between versions and between calls.  Errors of HTTP only: RC_CONFIG.
 */
static enum rc
take_answer(struct cluster *c, struct call *call, struct fault *f)
{
	struct connection *k = &c->calls;
	json_t *all = k->n > 0 ? json_loadb(k->body, k->n, 0, NULL) : NULL,
	       *error = json_object_get(all, "error"),
	       *from = json_is_object(error) ? error : all,
	       *result = json_object_get(from, "result");
	int64_t code = kv_number(
	    from, kv_number(from, "grpc_code") ? "grpc_code" : "code");

	if (!json_is_object(all)) {
		json_decref(all);
		return reply_failed(k, f);
	}
	call->code = code >= 0 && code <= CODE_TOKEN ? (int)code : CODE_UNKNOWN;
	if (call->code == CODE_OK && (error || k->status != 200))
		call->code = CODE_UNKNOWN;
	call->answer = json_incref(json_is_object(result) ? result : from);
	json_decref(all);
	return RC_OK;
}

static enum rc
check_cluster(struct cluster *c, const struct call *call, struct fault *f)
{
	int64_t id = kv_header(call->answer, "cluster_id");

	if (!id)
		return http_fail(&c->calls, RC_PROTOCOL, NULL, f);
	if (c->id && id != c->id)
		return http_fail(&c->calls, RC_CONFIG,
		    "belongs to another cluster than before: name the members of one", f);
	c->id = id;
	return RC_OK;
}

/* ---- connecting ---- */

static enum rc
connection_open(struct cluster *c, struct connection *k, instant until, struct fault *f)
{
	const struct endpoint *at = &c->address->at[c->member];
	struct addresses all;
	enum rc rc;

	http_close(k);
	rc = resolve(k->stream.host, at->host, at->port, until, &all, f);
	if (rc == RC_OK)
		rc = stream_connect_to(&k->stream, &all, until, f);
	if (rc == RC_OK && !c->address->tls)
		k->stream.hint = ": does it want TLS (etcds://)?";
	if (rc == RC_OK && c->address->tls)
		rc = tls_start(c->address->tls, &k->stream, at->host, f);
	return rc;
}

/* Sends calls in one packet, as far as it goes. */
static enum rc
send_calls(const struct cluster *c, struct connection *k, const struct call *calls, int n,
    instant until, struct fault *f)
{
	struct text t = {0};
	struct iovec part;
	enum rc rc;

	for (int i = 0; i < n; i++)
		put_request(&t, c, &calls[i]);
	part = (struct iovec){t.at, t.n};
	if (t.failed) {
		http_close(k);
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	} else {
		rc = stream_send(&k->stream, &part, 1, until, f);
	}
	text_free(&t);
	return rc;
}

/* Sends calls on the connection that is open, and reads their answers. */
static enum rc
exchange(struct cluster *c, struct call *calls, int n, instant until, struct fault *f)
{
	struct connection *k = &c->calls;
	int64_t most = c->address->n > 1 ? MEMBER_MOST : ANSWER_MOST;
	enum rc rc = send_calls(c, k, calls, n, until, f);
	instant by;

	for (int i = 0; rc == RC_OK && i < n; i++) {
		json_decref(calls[i].answer);
		calls[i].answer = NULL;
		if (i > 0 && k->ends)
			return http_fail(
			    k, RC_AGAIN, "closed the connection between answers", f);
		rc = http_read(k, until, f);
		if (rc == RC_OK)
			rc = take_answer(c, &calls[i], f);
		if (rc == RC_OK && k->date > 0) {
			c->date = k->date;
			c->dated = instant_now();
		}
		by = instant_first(instant_after(instant_now(), most), c->answer_by);
		until = by > until ? by : until;
	}
	if (rc == RC_OK && k->ends)
		http_close(k);
	return rc;
}

/* As a string of JSON, in UTF-8. */
static void
put_string(struct text *t, const char *text)
{
	text_add(t, "\"");
	for (; *text; text++)
		text_add(t,
		    (unsigned char)*text < ' ' || strchr("\"\\", *text) ? "\\u%04x"
									: "%c",
		    *text);
	text_add(t, "\"");
}

static enum rc
login(struct cluster *c, instant until, struct fault *f)
{
	struct call call = {.path = "/v3/auth/authenticate"};
	const char *token;
	enum rc rc;

	text_add(&call.ask, "{\"name\":");
	put_string(&call.ask, c->address->user);
	text_add(&call.ask, ",\"password\":");
	put_string(&call.ask, c->address->password);
	text_add(&call.ask, "}");
	rc = exchange(c, &call, 1, until, f);
	token = json_string_value(json_object_get(call.answer, "token"));
	if (rc == RC_OK && call.code != CODE_OK) {
		bool wrong = call.code == CODE_INVALID || call.code == CODE_DENIED,
		     none = call.code == CODE_EXISTS;

		/* its words are not shown: they may repeat the password */
		rc = http_fail(&c->calls, wrong || none ? RC_DENIED : RC_AGAIN,
		    wrong      ? "refuses the login: wrong user or password"
			: none ? "wants no password: leave user and password out"
			       : "cannot tell who we are now",
		    f);
	} else if (rc == RC_OK &&
	    (!token || !*token || strlen(token) >= sizeof c->token ||
		strpbrk(token, "\r\n"))) {
		rc = http_fail(&c->calls, RC_PROTOCOL, NULL, f);
	} else if (rc == RC_OK) {
		memcpy(c->token, token, strlen(token) + 1);
	}
	calls_free(&call, 1);
	return rc;
}

/* ---- calls ---- */

/* etcd counts in seconds. */
struct call
call_grant(int64_t lease, int64_t ns)
{
	struct call c = {.path = "/v3/lease/grant"};

	text_add(&c.ask, "{\"ID\":%" PRId64 ",\"TTL\":%" PRId64 "}", lease,
	    (ns_to_ms(ns) + 999) / 1000);
	return c;
}

struct call
call_lease(const char *path, int64_t lease)
{
	struct call c = {.path = path};

	text_add(&c.ask, "{\"ID\":%" PRId64 "}", lease);
	return c;
}

struct call
call_range(const struct kv_range *r)
{
	struct call c = {.path = "/v3/kv/range"};

	text_add(&c.ask, "{");
	kv_range(&c.ask, r);
	text_add(&c.ask, "}");
	return c;
}

struct call
call_txn(struct txn *t)
{
	struct call c = {.path = "/v3/kv/txn"};

	kv_txn(&c.ask, t);
	return c;
}

bool
call_has_succeeded(const struct call *txn)
{
	return txn->code == CODE_OK &&
	    json_is_true(json_object_get(txn->answer, "succeeded"));
}

void
calls_free(struct call *calls, int n)
{
	for (int i = 0; i < n; i++) {
		text_free(&calls[i].ask);
		json_decref(calls[i].answer);
		calls[i].answer = NULL;
	}
}

/* The first call that has failed decides; *expired: for its token only. */
static enum rc
judge(struct cluster *c, struct call *calls, int n, bool *expired, struct fault *f)
{
	enum rc rc = RC_OK;

	for (int i = 0; rc == RC_OK && i < n; i++) {
		const char *message = json_string_value(
		    json_object_get(calls[i].answer, "message"));

		rc = code_judge(c, calls[i].code, message ? message : "", expired, f);
		if (calls[i].code == CODE_OK)
			rc = check_cluster(c, &calls[i], f);
	}
	return rc;
}

/* On one member, by `until`; once more, if it has forgotten our login. */
static enum rc
ask_member(struct cluster *c, struct call *calls, int n, instant until, struct fault *f)
{
	struct connection *k = &c->calls;
	bool expired = true;
	enum rc rc = RC_AGAIN;

	for (int i = 0; i < 2 && expired; i++) {
		expired = false;
		rc = stream_is_quiet(&k->stream) && k->at == k->used
		    ? RC_OK
		    : connection_open(c, k, until, f);
		if (rc == RC_OK && *c->address->user && !*c->token)
			rc = login(c, until, f);
		if (rc == RC_OK && k->stream.fd < 0) /* closed behind that answer */
			rc = connection_open(c, k, until, f);
		if (rc != RC_OK)
			return rc;
		c->repeated = c->sent != 0;
		c->sent = instant_now();
		rc = exchange(c, calls, n, until, f);
		if (rc == RC_OK)
			rc = judge(c, calls, n, &expired, f);
		if (expired)
			*c->token = '\0';
		expired = expired && *c->address->user;
	}
	return rc;
}

enum rc
cluster_calls(
    struct cluster *c, struct call *calls, int n, instant until, struct fault *f)
{
	size_t members = c->address->n;
	/* the connection to the only member may have died unseen: it is asked once more */
	size_t tries = members > 1 ? members : 1 + (c->calls.stream.fd >= 0);
	enum rc rc = RC_AGAIN;

	c->sent = 0;
	c->repeated = c->full = false;
	for (size_t i = 0; rc == RC_AGAIN && i < tries; i++) {
		instant now = instant_now(), by = until;

		if (i > 0 && now >= until)
			break;
		if (i + 1 < tries)
			by = instant_first(until, now + LEAST + (until - now) / 2);
		if (members > 1)
			by = instant_first(by, now + MEMBER_MOST);
		rc = ask_member(c, calls, n, by, f);
		if (rc == RC_AGAIN)
			cluster_turn(c);
	}
	if (rc != RC_OK)
		http_close(&c->calls);
	return rc;
}

enum rc
cluster_ask(
    struct cluster *c, size_t member, struct call *call, instant until, struct fault *f)
{
	enum rc rc;

	if (c->member != member)
		http_close(&c->calls);
	c->member = member;
	c->sent = 0;
	rc = ask_member(c, call, 1, until, f);
	if (rc != RC_OK)
		http_close(&c->calls);
	return rc;
}

json_t *
cluster_answer(
    struct cluster *c, struct call call, instant until, enum rc *rc, struct fault *f)
{
	struct host *h = c->calls.stream.host;
	json_t *answer = NULL;

	*rc = cluster_calls(c, &call, 1, until, f);
	/* a member has answered that nothing can be done now: it has no leader */
	while (*rc == RC_AGAIN && call.code == CODE_UNAVAILABLE &&
	    instant_now() + ELECTION_PACE < until) {
		if (h->wait(h, -1, 0, instant_now() + ELECTION_PACE) == WOKE_STOP) {
			*rc = RC_STOP;
			break;
		}
		call.code = CODE_OK;
		*rc = cluster_calls(c, &call, 1, until, f);
	}
	if (*rc == RC_OK && call.code == CODE_OK)
		answer = json_incref(call.answer);
	else if (*rc == RC_OK)
		*rc = fault_set(f, RC_AGAIN,
		    call.code == CODE_COMPACTED ? "%s was compacted meanwhile: try again"
						: "%s does not find what it had",
		    c->calls.stream.where);
	calls_free(&call, 1);
	return answer;
}

/* ---- a watch ---- */

enum rc
watch_begin(struct cluster *c, const struct watched keys[2], int64_t revision,
    instant until, struct fault *f)
{
	struct call call = {.path = "/v3/watch"};
	enum rc rc = connection_open(c, &c->watch, until, f);

	/* two requests in one body: one connection has both */
	for (int i = 0; i < 2; i++) {
		const struct kv_range range = {.key = keys[i].key, .end = keys[i].end};

		text_add(&call.ask, "{\"create_request\":{");
		kv_range(&call.ask, &range);
		text_add(&call.ask, ",\"start_revision\":%" PRId64 "%s}}\n", revision,
		    keys[i].puts ? "" : ",\"filters\":[\"NOPUT\"]");
	}
	if (rc == RC_OK)
		rc = send_calls(c, &c->watch, &call, 1, until, f);
	c->watched = c->member;
	calls_free(&call, 1);
	return rc;
}

/* One line of the stream.  False: the watch has ended. */
static bool
watch_line(const char *line, size_t n, bool *events)
{
	json_t *j = json_loadb(line, n, 0, NULL), *result = json_object_get(j, "result");
	bool good = json_is_object(result) &&
	    !json_is_true(json_object_get(result, "canceled"));

	if (json_array_size(json_object_get(result, "events")) > 0)
		*events = true;
	json_decref(j);
	return good;
}

/* All lines that are whole; the first `seen` bytes of the body have no end of one. */
static bool
watch_lines(struct connection *k, size_t seen, bool *events)
{
	size_t from = 0;
	bool good = true;
	char *end;

	while (good && k->n > seen && (end = memchr(k->body + seen, '\n', k->n - seen))) {
		size_t n = end - k->body - from;

		good = n == 0 || watch_line(k->body + from, n, events);
		from = seen = from + n + 1;
	}
	k->n -= from;
	if (k->n > 0)
		memmove(k->body, k->body + from, k->n);
	return good;
}

enum rc
watch_read(struct cluster *c, bool *events, instant until, struct fault *f)
{
	struct connection *k = &c->watch;
	enum rc rc = k->stream.fd < 0 ? RC_AGAIN : RC_OK;
	bool whole;

	*events = false;
	for (int i = 0; rc == RC_OK && (k->at < k->used || !stream_is_quiet(&k->stream));
	     i++) {
		size_t seen = k->n;

		if (i == PIECES_MOST) /* the rest another time: it may have no end */
			return http_fail(k, RC_AGAIN, "tells of too much", f);
		rc = http_read_piece(k, &whole, until, f);
		if (rc == RC_OK &&
		    (whole || k->status != 200 || !watch_lines(k, seen, events)))
			rc = http_fail(k, RC_AGAIN, "has ended the watch", f);
	}
	return rc;
}
