/* server.c - sends questions to one Redis server and reads their answers. */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_SPARE (150 * NS_PER_MS) /* the answer to WAIT comes so much late */
#define WAIT_LEAST (20 * NS_PER_MS)
#define WAIT_MOST NS_PER_S
#define HEALTH_PATIENCE (500 * NS_PER_MS) /* for what comes right behind an answer */

/* ---- whether it may lose locks, by what it says of itself ---- */

/* As commands; HEALTH_ANSWERS come. */
static const char health_questions[] =
    "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n"
    "*2\r\n$4\r\nINFO\r\n$11\r\npersistence\r\n"
    "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$4\r\nsave\r\n";

const char *
health_text(const redisReply *r)
{
	if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
		r = r->element[1];
	return r->type == REDIS_REPLY_STRING ? r->str : NULL;
}

void
health_field(const char *info, const char *name, char *out, size_t size)
{
	size_t n = strlen(name), length;

	*out = '\0';
	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, n) != 0 || line[n] != ':')
			continue;
		length = strcspn(line + n + 1, "\r\n");
		if (length < size)
			snprintf(out, size, "%.*s", (int)length, line + n + 1);
		return;
	}
}

static bool
is(const char *info, const char *name, const char *value)
{
	char found[32];

	health_field(info, name, found, sizeof found);
	return strcmp(found, value) == 0;
}

/* The policy's name if it evicts at all; NULL: it does not. */
static const char *
evicting(const char *memory, char *policy, size_t size)
{
	char most[24];

	health_field(memory, "maxmemory", most, sizeof most);
	health_field(memory, "maxmemory_policy", policy, size);
	if (!*most || strcmp(most, "0") == 0 || !*policy ||
	    strcmp(policy, "noeviction") == 0)
		return NULL;
	return policy[strspn(policy, "abcdefghijklmnopqrstuvwxyz-")] ? "not noeviction"
								     : policy;
}

/* Without the append-only file a dump is better than nothing, if it can be written. */
static const char *
forgetting(const char *persistence, const char *save)
{
	if (is(persistence, "aof_enabled", "1"))
		return is(persistence, "aof_last_write_status", "err")
		    ? "it cannot write its append-only file"
		    : NULL;
	if (!is(persistence, "aof_enabled", "0"))
		return NULL;
	if (save && !*save)
		return "a restart makes it forget them all (neither appendonly nor save is set)";
	return is(persistence, "rdb_last_bgsave_status", "err")
	    ? "it cannot save its data to disk"
	    : NULL;
}

void
health_read(struct health *h, redisReply *const answers[HEALTH_ANSWERS])
{
	h->evicts = evicting(health_text(answers[0]), h->policy, sizeof h->policy);
	h->forgets = forgetting(health_text(answers[1]), health_text(answers[2]));
}

bool
health_risks(redisReply *const answers[HEALTH_ANSWERS], char *out, size_t size)
{
	struct health h;

	health_read(&h, answers);
	snprintf(out, size, "%s%s%s%s%s",
	    h.evicts ? "it evicts keys when its memory is full (maxmemory-policy " : "",
	    h.evicts ? h.evicts : "", h.evicts ? ")" : "",
	    h.evicts && h.forgets ? ", and " : "", h.forgets ? h.forgets : "");
	return h.evicts || h.forgets;
}

/* ---- what comes: in front of the answers, these, and what is behind them ---- */

static void
server_forget_replies(struct server *s)
{
	for (size_t i = 0; i < REPLIES_ALL; i++) {
		freeReplyObject(s->replies[i]);
		s->replies[i] = NULL;
	}
	freeReplyObject(s->early);
	s->early = NULL;
}

/*
 * PING is answered first, then ASKING.  A server that is full says so on a new connection and
 * closes it, which looks like an answer to PING.  That we may not PING says nothing of the
 * question.
 */
static enum heard
server_hear_before(struct server *s, bool asking, redisReply **reply)
{
	struct peer *p = &s->peer;

	if ((*reply)->type != REDIS_REPLY_ERROR)
		return HEARD_MORE;
	if (asking) {
		p->rc = peer_refuses(p, false, NULL, (*reply)->str, &p->fault);
		return HEARD_WRONG;
	}
	/* who does not know, or allow, PING may have heard what stands behind it */
	if (!p->reused && !resp_says((*reply)->str, "NOPERM") &&
	    !resp_says((*reply)->str, "unknown command")) {
		s->early = *reply;
		*reply = NULL;
	}
	return HEARD_MORE;
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
		return HEARD_MORE;
	if (i == 0)
		server_forget_replies(s);
	if (i < s->before)
		return server_hear_before(s, i == s->question->ping_first, reply);
	s->replies[i - s->before] = *reply;
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

static void
print_wait(char *out, size_t size, int replicas, int64_t ms)
{
	char n[12], time[24];

	snprintf(n, sizeof n, "%d", replicas);
	snprintf(time, sizeof time, "%lld", (long long)ms);
	snprintf(out, size, "*3\r\n$4\r\nWAIT\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(n),
	    n, strlen(time), time);
}

/*
 * WAIT counts what was written on this connection, and so goes with it in one packet.  The
 * server gives up a little before we do; to WAIT, 0 is for ever.  A proxy may close at a
 * command it does not know: what only inspects is sent once.
 */
static void
server_say(struct server *s, const struct question *q, instant until)
{
	int64_t left = instant_first(until - instant_now() - WAIT_SPARE, WAIT_MOST);
	char wait[64] = "", *packet, *next;
	const char *parts[] = {"", "", q->command, wait, ""};
	size_t size = 1;

	s->question = q;
	s->before = q->ping_first + q->asking;
	s->own = (q->several ? q->several : 1) + (q->replicas > 0);
	s->inspects = q->inspect && !s->inspected;
	if (q->replicas > 0)
		print_wait(wait, sizeof wait, q->replicas,
		    ns_to_ms(left > WAIT_LEAST ? left : WAIT_LEAST));
	if (q->ping_first)
		parts[0] = "*1\r\n$4\r\nPING\r\n";
	if (q->asking)
		parts[1] = "*1\r\n$6\r\nASKING\r\n";
	if (s->inspects)
		parts[4] = health_questions;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		size += strlen(parts[i]);
	/* not by asprintf(3): at its first call glibc looks up some of its own symbols */
	next = packet = malloc(size);
	for (size_t i = 0; packet && i < sizeof parts / sizeof *parts; i++)
		next = stpcpy(next, parts[i]);
	s->peer.once = s->inspects ? strlen(health_questions) : 0;
	s->peer.continues = q->continues;
	s->peer.subscribes = q->subscribes;
	fan_say(&s->fan, &s->peer, packet, until);
}

/* ---- one question, one answer ---- */

/* Has it closed the connection with a last word?  That is the answer. */
static bool
server_has_ended(struct server *s, instant until)
{
	if (!s->early || s->replies[0] || s->peer.rc != RC_AGAIN ||
	    instant_now() >= until)
		return false;
	s->replies[0] = s->early;
	s->early = NULL;
	return true;
}

/* Several become one array, or the first error of them. */
static redisReply *
server_take_replies(struct server *s)
{
	size_t n = s->question->several, one = 0;
	redisReply *all;

	while (one < n && s->replies[one]->type != REDIS_REPLY_ERROR)
		one++;
	if (n == 0 || one < n) {
		all = s->replies[one];
		s->replies[one] = NULL;
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

/* The answer to WAIT, which is the last one where there are replicas to be waited for. */
static void
server_read_acknowledged(struct server *s, redisReply *wait)
{
	bool waited = wait && s->question->replicas > 0;

	s->acknowledged = waited && wait->type == REDIS_REPLY_INTEGER ? wait->integer
								      : -1;
	*s->unacknowledged.text = '\0';
	if (waited && wait->type == REDIS_REPLY_ERROR)
		peer_refuses(&s->peer, false, NULL, wait->str, &s->unacknowledged);
}

enum rc
server_ask(struct server *s, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	struct peer *p = &s->peer;
	char risks[HEALTH_BYTES];
	enum rc rc;

	*reply = NULL;
	server_say(s, q, until);
	rc = fan_hear(&s->fan, until, server_is_answered);
	if (rc == RC_OK && peer_is_busy(p) && server_is_answered(s))
		(void)fan_hear(/* our answer counts, whatever comes */
		    &s->fan, instant_first(until, instant_now() + HEALTH_PATIENCE), NULL);
	if (peer_is_busy(p))
		server_close(s);
	s->inspected |= s->inspects && p->told;
	if (rc == RC_OK && !server_has_ended(s, until) &&
	    (!server_is_answered(s) || p->rc == RC_PROTOCOL)) {
		rc = p->rc == RC_OK ? RC_AGAIN : p->rc;
		*f = p->fault;
	}
	/* that its answers about itself do not come, or not in time, is no failure */
	if (rc == RC_OK && s->inspects && s->replies[s->own + HEALTH_ANSWERS - 1] &&
	    health_risks(s->replies + s->own, risks, sizeof risks))
		fault_set(&s->fan.host->notice, RC_OK,
		    "%s may lose locks: %s; see dlock-redis(7)", p->where, risks);
	if (rc == RC_OK) {
		*reply = server_take_replies(s);
		rc = *reply ? RC_OK : fault_set(f, RC_SYSTEM, "out of memory");
	}
	server_read_acknowledged(s, rc == RC_OK ? s->replies[s->own - 1] : NULL);
	server_forget_replies(s);
	return rc;
}

/* ---- its life ---- */

void
server_init(struct server *s, struct host *host, const struct address *a)
{
	fan_begin_one(&s->fan, host, a, &s->peer, server_hear, s);
}

void
server_go(struct server *s, const struct endpoint *to)
{
	server_close(s);
	s->peer.at = *to;
	endpoint_print(s->peer.where, sizeof s->peer.where, "redis ", to);
	s->inspected = false;
}

void
server_close(struct server *s)
{
	fan_close(&s->peer);
}
