/* server.c - logs in to one Redis server, sends questions and reads their answers. */
#include "server.h"

#include "backends/common/text.h"
#include "health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_SPARE (150 * NS_PER_MS) /* the answer to WAIT comes so much late */
#define WAIT_LEAST (20 * NS_PER_MS)
#define WAIT_MOST NS_PER_S
#define HEALTH_PATIENCE (500 * NS_PER_MS) /* for what comes right behind an answer */

void
server_init(
    struct server *s, struct host *host, const struct address *a, const char *where)
{
	*s = (struct server){
	    .host = host, .address = a, .at = &a->hosts[0], .where = where};
	wire_init(&s->wire, host, where);
}

void
server_go(struct server *s, const struct endpoint *at, const char *where)
{
	server_close(s);
	s->at = at;
	s->where = s->wire.stream.where = where;
	s->inspected = false;
}

void
server_close(struct server *s)
{
	wire_close(&s->wire);
}

enum rc
server_refuses(
    const char *where, const struct address *a, bool looks, char *text, struct fault *f)
{
	const char *hint;
	enum rc rc = looks ? resp_error_look(text, &hint) : resp_error(text, &hint);

	secret_blot(text, a->password);
	return fault_set(f, rc, "%s says '%.200s'%s%s", where, text, hint ? ": " : "",
	    hint ? hint : "");
}

enum rc
server_refused(const struct server *s, char *text, struct fault *f)
{
	return server_refuses(s->where, s->address, false, text, f);
}

/* ---- the greeting ---- */

bool
greetings_add(struct greetings *g, enum greeting kind, int argc, const char **argv)
{
	char *text;
	int length = redisFormatCommandArgv(&text, argc, argv, NULL);
	bool fits = length >= 0 && (size_t)length <= sizeof g->text - g->used;

	if (fits) {
		memcpy(g->text + g->used, text, length);
		g->used += length;
		g->kinds[g->n++] = kind;
	}
	if (length >= 0) {
		explicit_bzero(text, length);
		redisFreeCommand(text);
	}
	return fits;
}

bool
greetings_login(struct greetings *g, const struct address *a)
{
	const char *auth[3] = {"AUTH"};
	char db[16];
	int argc = 1;

	if (*a->password) {
		if (*a->user)
			auth[argc++] = a->user;
		auth[argc++] = a->password;
		if (!greetings_add(g, GREET_AUTH, argc, auth))
			return false;
	}
	snprintf(db, sizeof db, "%d", a->db);
	return !a->db ||
	    greetings_add(g, GREET_SELECT, 2, (const char *[]){"SELECT", db});
}

/* +OK, or to a PING whatever it is.  An answer to AUTH may repeat the password. */
enum rc
greeting_taken(enum greeting kind, const char *where, const struct address *a,
    const redisReply *reply, struct fault *f)
{
	const char *hint;
	enum rc rc;

	if (kind == GREET_PING)
		return RC_OK;
	if (reply->type != REDIS_REPLY_ERROR)
		return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0
		    ? RC_OK
		    : fault_set(
			  f, RC_PROTOCOL, "%s gave a wrong answer to a greeting", where);
	if (kind != GREET_AUTH)
		return server_refuses(where, a, false, reply->str, f);
	rc = resp_error(reply->str, &hint);
	return fault_set(f, rc, "%s refuses the login: %s", where,
	    hint ? hint : "its answer is not shown, since it may repeat the password");
}

static enum rc
read_greeted(struct server *s, enum greeting kind, instant until, struct fault *f)
{
	redisReply *reply = NULL;
	enum rc rc = wire_receive(&s->wire, &reply, until, f);

	if (rc != RC_OK)
		return rc;
	rc = greeting_taken(kind, s->where, s->address, reply, f);
	freeReplyObject(reply);
	if (rc != RC_OK)
		wire_close(&s->wire);
	return rc;
}

/* ---- how it is set ---- */

/*
 * The text of an answer to one of health_questions: of a string, or of the second of
 * two; NULL: we are not told.
 */
static const char *
health_text(const redisReply *reply)
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
read_health(struct server *s, instant until)
{
	redisReply *replies[HEALTH_ANSWERS] = {NULL};
	char risks[HEALTH_BYTES];
	struct fault ignored;
	struct health h;
	enum rc rc = RC_OK;
	int n = 0;

	while (rc == RC_OK && n < HEALTH_ANSWERS) {
		rc = wire_receive(&s->wire, &replies[n], until, &ignored);
		if (rc == RC_OK && !health_text(replies[n]) &&
		    replies[n]->type != REDIS_REPLY_ERROR)
			rc = RC_PROTOCOL;
		n += replies[n] != NULL;
	}
	if (rc == RC_OK) {
		h = (struct health){health_text(replies[0]), health_text(replies[1]),
		    health_text(replies[2])};
		if (health_risks(&h, risks, sizeof risks))
			fault_set(&s->host->notice, RC_OK,
			    "%s may lose locks: %s; see dlock-backends(7)", s->where,
			    risks);
	}
	while (n > 0)
		freeReplyObject(replies[--n]);
	return rc != RC_PROTOCOL;
}

/* ---- what replicas have of it ---- */

/*
 * WAIT counts what was written on this connection, and so goes with it in one packet.  The
 * server gives up a little before we do; to WAIT, 0 is for ever.
 */
static void
write_wait_replicas(char *out, size_t size, int replicas, instant until)
{
	int64_t left = instant_first(until - instant_now() - WAIT_SPARE, WAIT_MOST);
	char n[12], ms[12];

	snprintf(n, sizeof n, "%d", replicas);
	snprintf(
	    ms, sizeof ms, "%d", (int)ns_to_ms(left > WAIT_LEAST ? left : WAIT_LEAST));
	snprintf(out, size, "*3\r\n$4\r\nWAIT\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(n),
	    n, strlen(ms), ms);
}

/* An error (it is a replica by now) is as good as nobody's having it. */
static enum rc
read_acknowledged(struct server *s, instant until, struct fault *f)
{
	redisReply *reply = NULL;
	enum rc rc = wire_receive(&s->wire, &reply, until, f);

	s->acknowledged = -1;
	if (rc != RC_OK)
		return rc;
	if (reply->type == REDIS_REPLY_INTEGER)
		s->acknowledged = reply->integer;
	freeReplyObject(reply);
	return RC_OK;
}

/* ---- one question, one answer ---- */

/*
 * Sends a question, after connecting if need be, and reads what comes before its answer.
 */
static enum rc
server_send(struct server *s, const struct question *q, bool inspect, instant until,
    struct fault *f)
{
	struct greetings g = {.n = 0};
	struct iovec parts[4];
	char wait[64] = "";
	bool fits = true;
	enum rc rc;

	if (wire_is_open(&s->wire)) {
		if (q->ping_first)
			fits = greetings_add(&g, GREET_PING, 1, (const char *[]){"PING"});
	} else {
		rc = wire_connect(&s->wire, s->address, s->at, until, f);
		if (rc != RC_OK)
			return rc;
		fits = greetings_login(&g, s->address);
	}
	if (fits && q->asking)
		fits = greetings_add(&g, GREET_ASKING, 1, (const char *[]){"ASKING"});
	if (!fits) {
		wire_close(&s->wire);
		explicit_bzero(g.text, g.used);
		return fault_set(f, RC_SYSTEM, "out of memory");
	}
	if (q->replicas > 0)
		write_wait_replicas(wait, sizeof wait, q->replicas, until);
	s->asked = true;
	parts[0] = (struct iovec){g.text, g.used};
	parts[1] = (struct iovec){(char *)q->command, q->length};
	parts[2] = (struct iovec){wait, strlen(wait)};
	parts[3] = (struct iovec){
	    (char *)health_questions, inspect ? strlen(health_questions) : 0};
	rc = wire_send(&s->wire, parts, 4, until, f);
	explicit_bzero(g.text, g.used);
	for (int i = 0; rc == RC_OK && i < g.n; i++)
		rc = read_greeted(s, g.kinds[i], until, f);
	return rc;
}

/* Reads what comes behind the answer; false: what nobody asked for. */
static bool
read_rest(struct server *s, const struct question *q, bool inspect, instant until)
{
	if (inspect &&
	    !read_health(s, instant_first(until, instant_now() + HEALTH_PATIENCE)))
		return false;
	return q->messages || s->wire.used == 0;
}

static enum rc
read_answer(struct server *s, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	enum rc rc = wire_receive(&s->wire, reply, until, f);

	if (rc != RC_OK || q->replicas == 0)
		return rc;
	rc = read_acknowledged(s, until, f);
	if (rc != RC_OK) {
		freeReplyObject(*reply);
		*reply = NULL;
	}
	return rc;
}

enum rc
server_ask(struct server *s, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	bool idle = wire_is_quiet(&s->wire), inspect = q->inspect && !s->inspected;
	enum rc rc;

	if (!idle)
		wire_close(&s->wire);
	if (!idle && q->continues)
		return fault_set(
		    f, RC_AGAIN, "%s closed the connection within a request", s->where);
	do {
		rc = server_send(s, q, inspect, until, f);
		s->inspected = s->inspected || (inspect && rc == RC_OK);
		if (rc == RC_OK)
			rc = read_answer(s, q, until, reply, f);
		if (rc != RC_AGAIN || !idle || q->continues)
			break;
		/* a proxy may close at a command it does not know */
		idle = inspect = false;
		s->repeated = true;
	} while (instant_now() < until);
	if (rc != RC_OK || read_rest(s, q, inspect, until))
		return rc;
	freeReplyObject(*reply);
	*reply = NULL;
	wire_close(&s->wire);
	return fault_set(f, RC_PROTOCOL, "%s gave two answers to one question", s->where);
}
