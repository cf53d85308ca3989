/* server.c - sends questions to one Redis server and reads their answers. */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_SPARE (150 * NS_PER_MS) /* the answer to WAIT comes so much late */
#define WAIT_LEAST (20 * NS_PER_MS)
#define WAIT_MOST NS_PER_S
#define HEALTH_PATIENCE (500 * NS_PER_MS) /* for what comes right behind an answer */

/* ---- what comes: in front of the answers, these, and what is behind them ---- */

static void
server_forget_replies(struct server *s)
{
	for (size_t i = 0; i <= REPLIES_MOST; i++) {
		freeReplyObject(s->replies[i]);
		s->replies[i] = NULL;
	}
	for (size_t i = 0; i < HEALTH_ANSWERS; i++) {
		freeReplyObject(s->health[i]);
		s->health[i] = NULL;
	}
}

/* On a connection that is opened anew, all of it comes anew. */
static enum heard
server_hear(void *ctx, size_t peer, int number, redisReply **reply)
{
	struct server *s = ctx;
	struct peer *p = &s->peer;
	size_t i = number, behind = s->before + s->own,
	       all = behind + (s->inspects && !p->repeated ? HEALTH_ANSWERS : 0);

	(void)peer;
	if (number < 0)
		return fan_hear_greeting(p, number, *reply);
	if (i == 0)
		server_forget_replies(s);
	if (i < s->before) {
		if (!s->question->asking || i + 1 < s->before ||
		    (*reply)->type != REDIS_REPLY_ERROR)
			return HEARD_MORE;
		p->rc = server_refused(s, (*reply)->str, &p->fault);
		return HEARD_WRONG;
	}
	if (i >= behind && !health_is_answer(*reply)) {
		p->rc = fault_set(&p->fault, RC_PROTOCOL,
		    "%s gave two answers to one question", p->wire.stream.where);
		return HEARD_WRONG;
	}
	*(i < behind ? &s->replies[i - s->before] : &s->health[i - behind]) = *reply;
	*reply = NULL;
	if (i + 1 >= behind)
		p->continues = true; /* it is not asked again */
	return i + 1 < all ? HEARD_MORE : HEARD_ALL;
}

static bool
server_is_answered(void *ctx)
{
	const struct server *s = ctx;

	return s->replies[s->own - 1] != NULL;
}

/* ---- what goes ---- */

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

/* A proxy may close at a command it does not know: what only inspects is sent once. */
static void
server_say(struct server *s, const struct question *q, bool open, instant until)
{
	bool ping = open && q->ping_first;
	char wait[64] = "", *packet;
	int length;

	s->question = q;
	s->before = ping + q->asking;
	s->own = (q->several ? q->several : 1) + (q->replicas > 0);
	s->inspects = q->inspect && !s->inspected;
	if (q->replicas > 0)
		write_wait_replicas(wait, sizeof wait, q->replicas, until);
	length = asprintf(&packet, "%s%s%s%s%s", ping ? "*1\r\n$4\r\nPING\r\n" : "",
	    q->asking ? "*1\r\n$6\r\nASKING\r\n" : "", q->command, wait,
	    s->inspects ? health_questions : "");
	s->peer.once = s->inspects ? strlen(health_questions) : 0;
	s->peer.continues = q->continues;
	s->peer.subscribes = q->subscribes;
	fan_say(&s->fan, &s->peer, length < 0 ? NULL : packet, length, until);
}

/* ---- one question, one answer ---- */

/* That its answers about itself do not come, or not in time, is no failure. */
static void
server_judge_health(struct server *s)
{
	char risks[HEALTH_BYTES];

	if (s->health[HEALTH_ANSWERS - 1] && health_risks(s->health, risks, sizeof risks))
		fault_set(&s->fan.host->notice, RC_OK,
		    "%s may lose locks: %s; see dlock-redis(7)",
		    s->peer.wire.stream.where, risks);
}

/* Several become one array, or the first error of them. */
static redisReply *
server_take_replies(struct server *s)
{
	size_t n = s->question->several, one = 0;
	redisReply *all;

	for (size_t i = n; i-- > 0;)
		if (s->replies[i]->type == REDIS_REPLY_ERROR)
			one = i + 1;
	if (n == 0 || one > 0) {
		all = s->replies[n == 0 ? 0 : one - 1];
		s->replies[n == 0 ? 0 : one - 1] = NULL;
		return all;
	}
	all = calloc(1, sizeof *all);
	if (all)
		all->element = calloc(n, sizeof(redisReply *));
	if (!all || !all->element) {
		free(all);
		return NULL;
	}
	all->type = REDIS_REPLY_ARRAY;
	all->elements = n;
	memcpy(all->element, s->replies, n * sizeof(redisReply *));
	memset(s->replies, 0, n * sizeof(redisReply *));
	return all;
}

enum rc
server_ask(struct server *s, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	struct peer *p = &s->peer;
	bool open = wire_is_quiet(&p->wire);
	enum rc rc;

	*reply = NULL;
	p->told = p->repeated = false;
	if (!open && q->continues) {
		server_close(s);
		return fault_set(f, RC_AGAIN, "%s closed the connection within a request",
		    p->wire.stream.where);
	}
	server_say(s, q, open, until);
	rc = fan_hear(&s->fan, until, server_is_answered);
	if (rc == RC_OK && p->busy && server_is_answered(s))
		(void)fan_hear(/* our answer counts, whatever comes */
		    &s->fan, instant_first(until, instant_now() + HEALTH_PATIENCE), NULL);
	if (p->busy)
		server_close(s);
	s->inspected |= s->inspects && p->told;
	if (rc == RC_OK && (!server_is_answered(s) || p->rc == RC_PROTOCOL)) {
		rc = p->rc == RC_OK ? RC_AGAIN : p->rc;
		*f = p->fault;
	}
	if (rc == RC_OK) {
		server_judge_health(s);
		*reply = server_take_replies(s);
		rc = *reply ? RC_OK : fault_set(f, RC_SYSTEM, "out of memory");
	}
	s->acknowledged = rc == RC_OK && q->replicas > 0 &&
		s->replies[s->own - 1]->type == REDIS_REPLY_INTEGER
	    ? s->replies[s->own - 1]->integer
	    : -1;
	server_forget_replies(s);
	return rc;
}

/* ---- its life ---- */

void
server_init(
    struct server *s, struct host *host, const struct address *a, const char *where)
{
	fan_begin(&s->fan, host, &s->peer, 1, server_hear, s);
	fan_set(&s->fan, 0, a, &a->hosts[0], where, &resp_usual);
	s->peer.fresh = true;
}

void
server_go(struct server *s, const struct endpoint *at, const char *where)
{
	server_close(s);
	s->peer.at = at;
	s->peer.wire.stream.where = where;
	s->peer.addresses.n = 0;
	s->inspected = false;
}

void
server_close(struct server *s)
{
	fan_close(&s->peer);
}
