/*
 * redis.c - locks on one Redis server.
 *
 *  1. Every operation is one run of lock.lua, atomic on the server, by the
 *     server's clock; the script's first lines describe what is stored.  All
 *     keys are declared and share the hash tag {KEY}, encoded.
 *  2. Each of them is idempotent for an owner, so that one whose answer got
 *     lost MAY be sent again; renew and release only ever touch a hold or a
 *     place that is this owner's, and create nothing.
 *  3. EVALSHA first; NOSCRIPT (a restarted server) is answered with EVAL.
 *  4. An uncontended acquire, a renewal and a release are one round trip each;
 *     AUTH and SELECT travel in front of the first one.
 *  5. A waiter hears of its grant on a second connection, subscribed to a
 *     channel of its own; it then asks once more, and that request earns the
 *     lease.  Meanwhile it asks every BEAT, by which it counts as alive for
 *     ALIVE; the first in line also asks when a holder's lease has run out.
 *  6. The lease outlives the connection.  One that was idle and is found
 *     closed is opened anew within the same call.  An answer that is overdue
 *     closes it (wire.h).
 *  7. RC_LOST is said on the script's word alone, or when the key has become
 *     something else (WRONGTYPE); every other trouble while holding is RC_AGAIN.
 *  8. After an outage of the server a waiter asks with its old ticket, which is
 *     its place, whatever the server still knows.
 *  9. Whether the server may lose locks is asked once, in one packet with a
 *     question that is sent anyhow: the first renewal, with -v the first of all.
 */
#include "backends/backend.h"

#include "address.h"
#include "answer.h"
#include "backends/encode.h"
#include "backends/patience.h"
#include "backends/redis/lock.lua.h"
#include "backends/secret.h"
#include "backends/setting.h"
#include "health.h"
#include "wire.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEAT (3300 * NS_PER_MS)	    /* a waiter asks at least so often, and half a second later at most */
#define ALIVE (9 * NS_PER_S)	    /* and is believed alive for so long: two beats may be lost */
#define ASK_PATIENCE (3 * NS_PER_S) /* for an answer while in the queue */
#define DEAF_BEAT NS_PER_S	    /* without an ear: well within the grace of a grant nobody tells us of */
#define HEALTH_PATIENCE (500 * NS_PER_MS) /* for what comes right behind an answer */

enum { LEFT_LEAST = 50 }; /* ms; a server that says less again and again is asked no more often */
enum { KEY_ROOM = ENCODED_BYTES + 16, KEYS = 5, ARGS = 3 + KEYS + 9 };

struct redis {
	struct store base;
	const struct claim *claim;
	struct address address;
	char where[WHERE_BYTES];
	struct patience patience;
	char keys[KEYS][KEY_ROOM]; /* as in lock.lua; the last one is the channel's beginning */
	struct wire talk;	   /* questions and answers */
	struct wire ear;	   /* in the queue: subscribed to our channel */
	instant ear_due;	   /* not to be opened again before */
	uint64_t ticket;	   /* our place, as the server dealt it; 0: none yet */
	bool asked;		   /* the server may know of us */
	bool held;
	bool repeated; /* the last question was asked twice: the first may have been heard */
	bool inspect;  /* ask with the next question how the server is set */
	bool inspected;
	unsigned beats; /* for their jitter */
};

/* A command, and what goes in one packet with it. */
struct question {
	int argc;
	const char **argv;
	const size_t *lengths; /* NULL: strings */
	bool knock;	       /* a PING in front, see send_question() */
	bool inspect;	       /* health_questions behind */
};

const struct backend redis_backend;

static struct redis *
redis_of(struct store *s)
{
	return (struct redis *)store_of(s, &redis_backend);
}

/* ---- one question, one answer ---- */

/* What an error reply means, in words. */
static enum rc
server_said(struct redis *r, char *text, struct fault *f)
{
	const char *hint;
	enum rc rc = resp_error(text, &hint);

	secret_blot(text, r->address.password);
	return fault_set(f, rc, "%s says '%.200s'%s%s", r->where, text, hint ? ": " : "", hint ? hint : "");
}

/* The same of an answer to AUTH, which may repeat the password and is not quoted. */
static enum rc
login_refused(struct redis *r, const char *text, struct fault *f)
{
	const char *hint;
	enum rc rc = resp_error(text, &hint);

	return fault_set(f, rc, "%s refuses the login: %s", r->where,
	    hint ? hint : "its answer is not shown, since it may repeat the password");
}

enum greeting { KNOCK, LOGIN, CHOICE };

/* Reads the answer to a greeting: +OK, or to a knock whatever it is. */
static enum rc
read_greeted(struct redis *r, struct wire *w, enum greeting g, instant until, struct fault *f)
{
	redisReply *reply = NULL;
	enum rc rc = wire_receive(w, &reply, until, f);

	if (rc != RC_OK || !reply)
		return rc;
	if (g != KNOCK && reply->type == REDIS_REPLY_ERROR)
		rc = g == LOGIN ? login_refused(r, reply->str, f) : server_said(r, reply->str, f);
	else if (g != KNOCK && (reply->type != REDIS_REPLY_STATUS || strcmp(reply->str, "OK") != 0))
		rc = fault_set(f, RC_PROTOCOL, "%s gave a wrong answer to a greeting", r->where);
	freeReplyObject(reply);
	if (rc != RC_OK)
		wire_close(w);
	return rc;
}

/* AUTH and SELECT, as far as needed, into buf, and what they are into kinds; returns how many, -1 without memory. */
static int
write_greeting(struct redis *r, char *buf, size_t size, size_t *used, enum greeting kinds[2])
{
	const char *argv[3] = {"AUTH"};
	const struct address *a = &r->address;
	char db[16], *text;
	int n = 0, argc = 1, length;

	*used = 0;
	if (*a->password) {
		if (*a->user)
			argv[argc++] = a->user;
		argv[argc++] = a->password;
		length = redisFormatCommandArgv(&text, argc, argv, NULL);
		if (length < 0 || (size_t)length > size)
			return -1;
		memcpy(buf, text, length);
		explicit_bzero(text, length);
		free(text);
		*used = length;
		kinds[n++] = LOGIN;
	}
	if (a->db) {
		snprintf(db, sizeof db, "%d", a->db);
		*used += snprintf(buf + *used, size - *used, "*2\r\n$6\r\nSELECT\r\n$%zu\r\n%s\r\n", strlen(db), db);
		kinds[n++] = CHOICE;
	}
	return n;
}

/*
 * Sends a question on w, which is connected first if need be, and reads what
 * comes before its answer.
 *
 * With `knock`, a PING travels in front of the command on a connection that is
 * open.  Redis writes out the answers of one round last come, first served;
 * having been heard first, we are answered last, so that whom our release wakes
 * begins before we take the processor to clean up (hand-off 1.6 to 1.4 x flock).
 */
static enum rc
send_question(struct redis *r, struct wire *w, const struct question *q, struct iovec command, instant until,
    struct fault *f)
{
	char greeting[1024] = "*1\r\n$4\r\nPING\r\n";
	size_t used = q->knock ? strlen(greeting) : 0;
	enum greeting kinds[2] = {KNOCK};
	struct iovec parts[3];
	int answers = q->knock;
	enum rc rc;

	if (!wire_is_open(w)) {
		rc = wire_connect(w, &r->address, until, f);
		if (rc != RC_OK)
			return rc;
		answers = write_greeting(r, greeting, sizeof greeting, &used, kinds);
		if (answers < 0)
			return fault_set(f, RC_SYSTEM, "out of memory");
	}
	r->asked = true; /* from here on the server may know of us */
	parts[0] = (struct iovec){greeting, used};
	parts[1] = command;
	parts[2] = (struct iovec){(char *)health_questions, q->inspect ? strlen(health_questions) : 0};
	rc = wire_send(w, parts, 3, until, f);
	explicit_bzero(greeting, used);
	for (int i = 0; rc == RC_OK && i < answers; i++)
		rc = read_greeted(r, w, kinds[i], until, f);
	return rc;
}

/* The text of an answer to one of health_questions: of a string, or of the second of two; NULL: we are not told. */
static const char *
told(const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
		reply = reply->element[1];
	return reply->type == REDIS_REPLY_STRING ? reply->str : NULL;
}

/*
 * Reads the answers to health_questions, and gives notice of what they say.
 * That they do not come, or not in time, is no failure: what was asked before
 * them has been answered.  False: something else came.
 */
static bool
hear_health(struct redis *r, struct wire *w, instant until)
{
	redisReply *replies[HEALTH_ANSWERS] = {NULL};
	char complaint[HEALTH_BYTES];
	struct fault ignored;
	struct health h;
	enum rc rc = RC_OK;
	int n = 0;

	while (rc == RC_OK && n < HEALTH_ANSWERS) {
		rc = wire_receive(w, &replies[n], until, &ignored);
		if (rc == RC_OK && !told(replies[n]) && replies[n]->type != REDIS_REPLY_ERROR)
			rc = RC_PROTOCOL;
		n += replies[n] != NULL;
	}
	if (rc == RC_OK) {
		h = (struct health){told(replies[0]), told(replies[1]), told(replies[2])};
		if (health_complaint(&h, complaint, sizeof complaint))
			fault_set(&r->base.host->notice, RC_OK, "%s may lose locks: %s; see dlock-backends(7)", r->where,
			    complaint);
	}
	while (n > 0)
		freeReplyObject(replies[--n]);
	return rc != RC_PROTOCOL;
}

/*
 * Sends a question and reads the answer: the one that is due and nothing behind
 * it.  A connection that died of idleness, or on which somebody spoke unasked,
 * is opened anew; one that dies under the question gets a second chance.
 */
static enum rc
exchange(struct redis *r, struct wire *w, struct question q, instant until, redisReply **reply, struct fault *f)
{
	bool idle = wire_is_quiet(w);
	char *command;
	int n = redisFormatCommandArgv(&command, q.argc, q.argv, q.lengths);
	enum rc rc;

	if (n < 0)
		return fault_set(f, RC_SYSTEM, "out of memory");
	if (!idle)
		wire_close(w);
	do {
		rc = send_question(r, w, &q, (struct iovec){command, n}, until, f);
		r->inspected = r->inspected || (q.inspect && rc == RC_OK);
		if (rc == RC_OK)
			rc = wire_receive(w, reply, until, f);
		if (rc != RC_AGAIN || !idle)
			break;
		idle = q.inspect = false; /* a proxy may close at a command it does not know */
		r->repeated = true;
	} while (instant_now() < until);
	free(command);
	if (rc != RC_OK)
		return rc;
	if ((q.inspect && !hear_health(r, w, instant_first(until, instant_now() + HEALTH_PATIENCE))) ||
	    (w == &r->talk && w->used > 0)) {
		freeReplyObject(*reply);
		wire_close(w);
		return fault_set(f, RC_PROTOCOL, "%s gave two answers to one question", r->where);
	}
	return RC_OK;
}

/* Puts the script's command together: argv[0] is the operation, the owner is put behind it. */
static int
write_script(struct redis *r, int argc, const char **args, const char *argv[ARGS], size_t lengths[ARGS])
{
	int n = 0;

	argv[n++] = "EVALSHA";
	argv[n++] = lock_sha1;
	argv[n++] = "5";
	for (int i = 0; i < KEYS; i++)
		argv[n++] = r->keys[i];
	argv[n++] = args[0];
	argv[n++] = r->claim->owner;
	for (int i = 1; i < argc; i++)
		argv[n++] = args[i];
	for (int i = 0; i < n; i++)
		lengths[i] = strlen(argv[i]);
	return n;
}

static bool
is_noscript(const redisReply *reply)
{
	return reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

/* Runs the script.  *sent: just before the request left that was answered. */
static enum rc
run_script(struct redis *r, int argc, const char **args, instant until, instant *sent, struct answer *a,
    struct fault *f)
{
	const char *argv[ARGS];
	size_t lengths[ARGS];
	bool acquiring = strcmp(args[0], "acquire") == 0;
	struct question q = {write_script(r, argc, args, argv, lengths), argv, lengths,
	    strcmp(args[0], "release") == 0, r->inspect && !r->inspected};
	redisReply *reply = NULL;
	enum rc rc;

	r->repeated = false;
	*sent = instant_now();
	rc = exchange(r, &r->talk, q, until, &reply, f);
	if (rc == RC_OK && is_noscript(reply)) {
		freeReplyObject(reply);
		argv[0] = "EVAL";
		argv[1] = lock_lua;
		lengths[0] = 4;
		lengths[1] = sizeof lock_lua;
		q.inspect = false;
		*sent = instant_now();
		rc = exchange(r, &r->talk, q, until, &reply, f);
	}
	if (rc != RC_OK || !reply)
		return rc;
	if (reply->type == REDIS_REPLY_ERROR) {
		bool lost = !acquiring && resp_is_foreign(reply->str);

		rc = server_said(r, reply->str, f);
		rc = lost ? RC_LOST : rc;
	} else if (!answer_read(a, reply, acquiring)) {
		wire_close(&r->talk);
		rc = fault_set(f, RC_PROTOCOL, "%s gave an answer that dlock's script does not give", r->where);
	}
	freeReplyObject(reply);
	return rc;
}

/* ---- open ---- */

static enum rc
set_password_file(struct store *s, const char *value, struct fault *f)
{
	struct address *a = &redis_of(s)->address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_patience(value, &redis_of(s)->patience.first, f);
}

static const struct setting_row settings[] = {
    {"password-file", "FILE", "the password, in a file of mode 0600", set_password_file},
    {"connect-timeout", "DURATION", "for a server that does not answer, without --wait (default: 5s)", set_connect_timeout},
    {0},
};

static void
name_keys(struct redis *r)
{
	static const char *const suffixes[KEYS] = {"h", "i", "q", "l", "w:"};
	char tag[ENCODED_BYTES];

	key_encode(tag, sizeof tag, r->claim->key);
	for (size_t i = 0; i < KEYS; i++)
		snprintf(r->keys[i], sizeof r->keys[i], "dlock:{%s}:%s", tag, suffixes[i]);
}

static void
redis_close(struct store *s)
{
	struct redis *r = s ? redis_of(s) : NULL;

	if (!r)
		return;
	wire_close(&r->talk);
	wire_close(&r->ear);
	explicit_bzero(&r->address, sizeof r->address);
	free(r);
}

static enum rc
redis_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct redis *r = calloc(1, sizeof *r);
	enum rc rc;

	if (!r)
		return fault_set(f, RC_SYSTEM, "out of memory");
	r->base = (struct store){&redis_backend, host, r->where, CAP_FAIR | CAP_DURABLE};
	r->inspect = host->verbose;
	patience_init(&r->patience);
	wire_init(&r->talk, host, r->where);
	wire_init(&r->ear, host, r->where);
	rc = address_parse(&r->address, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&r->base, site, f);
	if (rc == RC_OK && *r->address.user && !*r->address.password)
		rc = fault_set(f, RC_USAGE, "the redis URL has a user without a password (there or in -O password-file=FILE)");
	if (rc != RC_OK) {
		redis_close(&r->base);
		return rc;
	}
	address_print(&r->address, r->where, sizeof r->where);
	*ret = &r->base;
	return RC_OK;
}

/* ---- acquire ---- */

static bool
is_granted(const struct answer *a)
{
	return a->code == 1;
}

/* Asks for the lock, or for our place in the queue; `alive` 0: do not queue. */
static enum rc
ask(struct redis *r, int64_t alive, instant until, struct grant *g, struct answer *a, struct fault *f)
{
	char lease[24], patience[24], ticket[24];
	const char *args[] = {"acquire", lease, patience, wire_is_open(&r->ear) ? "1" : "0", "1", "1", r->claim->record,
	    ticket};
	instant sent;
	enum rc rc;

	snprintf(lease, sizeof lease, "%" PRId64, ns_to_ms(r->claim->ttl));
	snprintf(patience, sizeof patience, "%" PRId64, ns_to_ms(alive));
	snprintf(ticket, sizeof ticket, "%" PRIu64, r->ticket);
	rc = run_script(r, sizeof args / sizeof *args, args, until, &sent, a, f);
	if (rc != RC_OK)
		return rc;
	if (a->code < 0)
		return fault_set(f, RC_PROTOCOL, "%s: this key is in use as a lock of another kind (another --limit)",
		    r->where);
	if (is_granted(a)) {
		r->held = true;
		*g = (struct grant){.token = a->token, .sent = sent, .lease = r->claim->ttl, .anchor = -1};
		return RC_OK;
	}
	r->ticket = a->ticket;
	secret_blot(a->holder, r->address.password);
	r->base.host->seen.position = a->place;
	r->base.host->seen.held = a->held_ms < 0 ? -1 : a->held_ms * NS_PER_MS;
	memcpy(r->base.host->seen.holder, a->holder, sizeof a->holder);
	return RC_OK;
}

/* Opens the ear: from its answer on, a call to us is heard. */
static enum rc
listen_to_calls(struct redis *r, instant until, struct fault *f)
{
	char channel[KEY_ROOM + OWNER_CHARS];
	const char *argv[] = {"SUBSCRIBE", channel};
	redisReply *reply = NULL;
	enum rc rc;

	snprintf(channel, sizeof channel, "%s%s", r->keys[KEYS - 1], r->claim->owner);
	rc = exchange(r, &r->ear, (struct question){.argc = 2, .argv = argv}, until, &reply, f);
	if (rc != RC_OK || !reply)
		return rc;
	if (reply->type == REDIS_REPLY_ERROR)
		rc = server_said(r, reply->str, f);
	else if (reply->type != REDIS_REPLY_ARRAY)
		rc = fault_set(f, RC_PROTOCOL, "%s gave a wrong answer to SUBSCRIBE", r->where);
	freeReplyObject(reply);
	if (rc != RC_OK)
		wire_close(&r->ear);
	return rc;
}

/* When to ask again although nobody called: the next beat, or the end of a lease if we are first. */
static instant
next_beat(struct redis *r, const struct answer *a)
{
	/* A few bits of the owner and a counter: enough to keep a thousand waiters from asking in step. */
	int64_t jitter = (r->claim->owner[r->beats++ % OWNER_CHARS] % 16) * 30 * NS_PER_MS;
	instant now = instant_now(), beat = now + BEAT + jitter;

	if (!wire_is_open(&r->ear))
		beat = now + DEAF_BEAT;
	if (a->place == 1 && a->left_ms > 0)
		beat = instant_first(beat, now + (a->left_ms < LEFT_LEAST ? LEFT_LEAST : a->left_ms + 5) * NS_PER_MS);
	return beat;
}

/* Sleeps until we are called, or it is time to ask again.  RC_BUSY: `until` has come.  RC_AGAIN: the ear is gone. */
static enum rc
await_call(struct redis *r, instant beat, instant until, struct fault *f)
{
	redisReply *reply = NULL;
	enum rc rc;

	switch (r->base.host->wait(r->base.host, r->ear.stream.fd, POLLIN, instant_first(beat, until))) {
	case WOKE_STOP:
		return RC_STOP;
	case WOKE_TIMEOUT:
		return instant_now() >= until ? fault_set(f, RC_BUSY, "%s: still held", r->where) : RC_OK;
	case WOKE_READY:
		break;
	}
	rc = wire_receive(&r->ear, &reply, instant_now() + ASK_PATIENCE, f);
	if (rc == RC_OK)
		freeReplyObject(reply); /* what it says does not matter: we ask */
	return rc == RC_PROTOCOL ? RC_OK : rc;
}

/*
 * Returns when there is reason to ask: a call, a beat, or an ear just opened,
 * since a call may have come before; or that a server that was away may be back.
 * Without an ear (the server has no room
 * for a second connection) beats must do; it is tried again now and then.
 */
static enum rc
attend(struct redis *r, const struct answer *a, instant until, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	if (patience_is_outage(&r->patience))
		return RC_OK;
	if (!wire_is_open(&r->ear) && now >= r->ear_due) {
		r->ear_due = now + DEAF_BEAT;
		rc = listen_to_calls(r, now + ASK_PATIENCE, f);
		if (rc != RC_AGAIN)
			return rc;
	}
	return await_call(r, next_beat(r, a), until, f);
}

/*
 * One attempt: asks, after listening for a reason to if we are in the queue.
 * Each is bounded by itself; patience.h says how many there are.
 */
static enum rc
attempt(struct redis *r, bool queued, instant until, struct grant *g, struct answer *a, struct fault *f)
{
	enum rc rc;

	if (!queued)
		return ask(r, until ? ALIVE : 0, patience_attempt(&r->patience, until), g, a, f);
	rc = attend(r, a, until, f);
	return rc == RC_OK ? ask(r, ALIVE, instant_now() + ASK_PATIENCE, g, a, f) : rc;
}

static enum rc
redis_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {0};
	bool queued = false;
	enum rc rc;

	r->claim = claim;
	name_keys(r);
	patience_begin(&r->patience, claim);
	do {
		rc = attempt(r, queued, until, g, &a, f);
		if (rc == RC_OK) {
			patience_end_outage(&r->patience);
			queued = true;
		} else {
			rc = patience_retry(&r->patience, s->host, rc, queued, until);
		}
	} while (rc == RC_OK && !is_granted(&a) && until);
	if (rc != RC_OK || is_granted(&a))
		return rc;
	r->asked = false; /* who does not queue leaves nothing */
	return fault_set(f, RC_BUSY, "%s: held", r->where);
}

/* ---- renew and release ---- */

static enum rc
redis_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct redis *r = redis_of(s);
	char lease[24];
	const char *args[] = {"renew", lease};
	struct answer a = {0};
	instant sent;
	enum rc rc;

	wire_close(&r->ear); /* not when we were granted: that would have kept the command waiting */
	snprintf(lease, sizeof lease, "%" PRId64, ns_to_ms(r->claim->ttl));
	r->inspect = true;
	rc = run_script(r, 2, args, until, &sent, &a, f);
	if (rc == RC_OK && a.code == 1) {
		g->sent = sent;
		g->lease = r->claim->ttl;
		return RC_OK;
	}
	if (rc == RC_OK)
		return fault_set(f, RC_LOST, "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
		    r->where);
	return rc == RC_STOP || rc == RC_LOST ? rc : RC_AGAIN;
}

static enum rc
redis_release(struct store *s, instant until, struct fault *f)
{
	struct redis *r = redis_of(s);
	const char *args[] = {"release"};
	struct answer a = {0};
	instant sent;
	enum rc rc;

	if (!r->asked)
		return RC_OK;
	r->inspect = false;
	rc = run_script(r, 1, args, until, &sent, &a, f);
	if (rc == RC_OK && a.code == 0 && r->held && r->repeated)
		rc = fault_set(f, RC_AGAIN, "%s closed the connection before it answered", r->where);
	else if (rc == RC_OK && a.code == 0 && r->held)
		rc = fault_set(f, RC_LOST, "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
		    r->where);
	if (rc == RC_OK || rc == RC_LOST)
		r->asked = r->held = false;
	return rc;
}

const struct backend redis_backend = {
    .name = "redis",
    .schemes = (const char *const[]){"redis", "redis+unix", NULL},
    .settings = settings,
    .url_help = "redis://[user:password@]host[:port][/db], redis+unix:///path",
    .open = redis_open,
    .close = redis_close,
    .lock = &(const struct lock_ops){redis_acquire, redis_renew, redis_release},
};
