/* call.c - asks the server that has the locks, and the next one if it has them no more. */
#include "call.h"

#include <string.h>

#define BREATH (100 * NS_PER_MS)      /* before a question that persists is asked again */
#define SHARE_LEAST (500 * NS_PER_MS) /* for one server of several */

enum { HOPS = 5 }; /* so many times one question goes elsewhere */

/* What is to be done after a reply. */
enum next {
	NEXT_NOTHING, /* it is the answer */
	NEXT_LATER,   /* the same server will answer, but not yet */
	NEXT_ELSEWHERE,
	NEXT_ASIDE, /* another node is to be asked this once */
};

void
call_init(
    struct call *c, struct host *host, const struct address *a, const char *password)
{
	*c = (struct call){.moves = 0};
	topology_init(&c->topology, host, a, password);
	server_init(&c->server, host, a, c->topology.where);
	server_init(&c->aside, host, a, c->aside_where);
}

void
call_close(struct call *c)
{
	server_close(&c->server);
	server_close(&c->aside);
}

void
call_free(struct call *c)
{
	call_close(c);
	topology_free(&c->topology);
}

void
call_let_pages_in(struct call *c)
{
	wire_bound(&c->server.wire, &resp_pages);
	wire_bound(&c->aside.wire, &resp_pages);
}

enum rc
call_refused(const struct call *c, char *text, struct fault *f)
{
	return server_refused(&c->server, text, f);
}

static bool
begins(const char *text, const char *word)
{
	return strncmp(text, word, strlen(word)) == 0;
}

/* It cannot be an answer: the reply becomes a fault. */
static enum next
call_reject(struct call *c, enum next next, redisReply **reply, struct fault *f)
{
	call_refused(c, (*reply)->str, f);
	c->said = *f;
	freeReplyObject(*reply);
	*reply = NULL;
	return next;
}

/* ---- redirections ---- */

static enum rc
call_server(struct call *c, struct server *s, const struct question *q, instant until,
    redisReply **reply, struct fault *f)
{
	enum rc rc;

	s->asked = s->repeated = false;
	c->sent = instant_now();
	rc = server_ask(s, q, until, reply, f);
	c->acknowledged = s->acknowledged;
	c->repeated |= s->repeated || (rc == RC_AGAIN && s->asked);
	c->asked |= s->asked;
	return rc;
}

/* Once, at the node that gets the slot; the next question is asked here again. */
static enum rc
call_aside(struct call *c, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	struct question asking = *q;
	struct endpoint to;
	const char *text;
	enum rc rc;

	if (!topology_redirection(&c->topology, (*reply)->str, &to)) {
		call_reject(c, NEXT_LATER, reply, f);
		return RC_AGAIN;
	}
	freeReplyObject(*reply);
	*reply = NULL;
	if (!endpoint_is(&to, &c->aside_at)) {
		c->aside_at = to;
		address_print_host(&to, c->aside_where, sizeof c->aside_where);
		server_go(&c->aside, &c->aside_at, c->aside_where);
	}
	asking.asking = true;
	rc = call_server(c, &c->aside, &asking, until, reply, f);
	if (rc != RC_OK)
		return rc;
	text = (*reply)->type == REDIS_REPLY_ERROR ? (*reply)->str : "";
	if (!strstr(text, "TRYAGAIN") && !begins(text, "MOVED ") && !begins(text, "ASK "))
		return RC_OK;
	call_reject(c, NEXT_LATER, reply, f);
	return RC_AGAIN;
}

static enum next
call_moved(struct call *c, redisReply **reply, struct fault *f)
{
	struct endpoint to;
	bool good = topology_redirection(&c->topology, (*reply)->str, &to);

	fault_set(f, RC_AGAIN,
	    good ? "%s sends dlock to another node, which sends it on: '%.100s'"
		 : "%s sends dlock to a node that it names wrongly: '%.100s'",
	    c->topology.where, (*reply)->str);
	freeReplyObject(*reply);
	*reply = NULL;
	if (good)
		topology_moved(&c->topology, &to);
	else
		topology_doubt(&c->topology);
	return NEXT_ELSEWHERE;
}

/* Does it say that this is not the place? */
static bool
is_no_master(const char *text)
{
	return strstr(text, "READONLY") || begins(text, "UNBLOCKED") ||
	    begins(text, "MASTERDOWN") || begins(text, "CLUSTERDOWN") ||
	    begins(text, "LOADING") || begins(text, "BUSY ") ||
	    begins(text, "ERR max number of clients");
}

static enum next
call_judge(struct call *c, redisReply **reply, struct fault *f)
{
	const char *text = (*reply)->type == REDIS_REPLY_ERROR ? (*reply)->str : NULL;
	bool cluster = c->topology.address->form == FORM_CLUSTER;

	if (!text)
		return NEXT_NOTHING;
	if (cluster && begins(text, "MOVED "))
		return call_moved(c, reply, f);
	if (cluster && begins(text, "ASK "))
		return NEXT_ASIDE;
	if (cluster && (strstr(text, "TRYAGAIN") || strstr(text, "non local key")))
		return call_reject(c, NEXT_LATER, reply, f);
	if (!is_no_master(text))
		return NEXT_NOTHING;
	call_reject(c, NEXT_ELSEWHERE, reply, f);
	server_close(&c->server);
	topology_doubt(&c->topology);
	return NEXT_ELSEWHERE;
}

/* ---- the question ---- */

/* One that does not answer is to leave time for others. */
static instant
share_of_time(instant until)
{
	instant now = instant_now();

	return instant_first(until,
	    now + (until - now > 2 * SHARE_LEAST ? (until - now) / 2 : SHARE_LEAST));
}

/* What one sentinel says is enough to ask again; a last word is not asked for twice: do most say so? */
static bool
is_deposed(struct call *c, const struct question *q, instant until)
{
	struct topology *t = &c->topology;
	struct endpoint master;
	struct fault ignored;

	return q->claimed ||
	    (sentinels_ask(t->sentinels, until, &master, &ignored) == RC_OK &&
		!endpoint_is(&master, &t->at));
}

/*
 * Asks at the place.  A master that was deposed while it was cut off, or stopped, goes on
 * for some seconds as if it were one: a sentinel is asked alongside.
 */
static enum rc
call_here(struct call *c, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	struct topology *t = &c->topology;
	bool beside = (q->claimed || q->settles) && t->trusted && t->sentinels;
	enum rc rc;

	if (c->moves != t->moves) {
		server_go(&c->server, &t->at, t->where);
		c->moves = t->moves;
	}
	if (beside)
		sentinels_ask_one(t->sentinels, until);
	rc = call_server(c, &c->server, q, share_of_time(until), reply, f);
	if (beside && sentinels_one_differs(t->sentinels, &t->at) && rc == RC_OK &&
	    is_deposed(c, q, until)) {
		freeReplyObject(*reply);
		*reply = NULL;
		server_close(&c->server);
		rc = fault_set(
		    f, RC_AGAIN, "%s is no longer the master, says a sentinel", t->where);
	}
	return rc;
}

/* One try; *again: it may be worth to ask whom the topology names next. */
static enum rc
call_try(struct call *c, const struct question *q, instant until, redisReply **reply,
    struct fault *f, bool *again)
{
	enum rc rc = call_here(c, q, until, reply, f);
	enum next next;

	*again = rc == RC_AGAIN;
	if (rc != RC_OK) {
		if (rc != RC_STOP)
			topology_doubt(&c->topology);
		return rc;
	}
	next = call_judge(c, reply, f);
	*again = next == NEXT_ELSEWHERE;
	if (next == NEXT_ASIDE)
		return call_aside(c, q, until, reply, f);
	if (next != NEXT_NOTHING)
		return RC_AGAIN;
	topology_trust(&c->topology);
	return RC_OK;
}

static enum rc
call_any(struct call *c, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	struct topology *t = &c->topology;
	bool again = true;
	enum rc rc = RC_AGAIN;

	for (int hops = 0; again && hops <= HOPS && (hops == 0 || instant_now() < until);
	     hops++) {
		unsigned moves = t->moves;
		enum rc found = topology_find(t, until, f);

		if (found != RC_OK)
			return found;
		if (hops > 0 && moves == t->moves && t->address->form == FORM_SENTINEL)
			return rc; /* the same one once more: later */
		rc = call_try(c, q, until, reply, f, &again);
	}
	return rc;
}

enum rc
call_ask(struct call *c, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	struct host *host = c->topology.host;
	enum rc rc;

	if (c->topology.address->form == FORM_SINGLE)
		return call_server(c, &c->server, q, until, reply, f);
	c->said.text[0] = '\0';
	for (;;) {
		rc = call_any(c, q, until, reply, f);
		/* whoever was asked last may have had no time to say it again */
		if (rc == RC_AGAIN && *c->said.text && instant_now() + BREATH >= until)
			*f = c->said;
		if (rc != RC_AGAIN || !q->persist || instant_now() + BREATH >= until)
			return rc;
		if (host->wait(host, -1, 0, instant_now() + BREATH) == WOKE_STOP)
			return RC_STOP;
	}
}
