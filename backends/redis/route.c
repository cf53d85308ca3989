/* route.c - finds the server that has the locks, and asks it. */
#include "route.h"

#include <string.h>

#define PAUSE (100 * NS_PER_MS)       /* before a question that persists is asked again */
#define SHARE_LEAST (500 * NS_PER_MS) /* for one server of several */

enum { HOPS = 5 }; /* so many times one question goes elsewhere */

/* ---- its life ---- */

void
route_init(struct route *r, struct host *host, const struct address *a,
    const struct address *sentinels)
{
	r->host = host;
	r->address = a;
	r->sentinel_address = sentinels;
	r->found = a->form == FORM_SINGLE;
	server_init(&r->server, host, a);
}

void
route_close(struct route *r)
{
	server_close(&r->server);
	if (r->aside)
		server_close(r->aside);
}

void
route_free(struct route *r)
{
	route_close(r);
	sentinels_free(r->sentinels);
	free(r->known);
	free(r->aside);
	r->sentinels = NULL;
	r->known = NULL;
	r->aside = NULL;
}

/* ---- where ---- */

static void
route_go(struct route *r, const struct endpoint *to)
{
	if (r->moves == 0 || !endpoint_is(&r->server.peer.at, to)) {
		r->moves++;
		r->trusted = false;
		server_go(&r->server, to);
	}
	r->found = true;
}

static enum rc
find_by_sentinels(struct route *r, instant until, struct fault *f)
{
	struct endpoint master;
	enum rc rc;

	if (!r->sentinels)
		r->sentinels = sentinels_new(r->host, r->sentinel_address);
	if (!r->sentinels)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = sentinels_ask(r->sentinels, until, &master, f);
	if (rc == RC_OK)
		route_go(r, &master);
	return rc;
}

enum rc
route_find(struct route *r, instant until, struct fault *f)
{
	if (r->found)
		return RC_OK;
	if (r->address->form == FORM_SENTINEL)
		return find_by_sentinels(r, until, f);
	if (!r->known) {
		r->known = calloc(NODES, sizeof *r->known);
		if (!r->known)
			return fault_set(f, RC_SYSTEM, "out of memory");
		r->n = r->address->n;
		memcpy(r->known, r->address->hosts, r->n * sizeof *r->known);
	}
	route_go(r, &r->known[r->turn % r->n]);
	return RC_OK;
}

void
route_doubt(struct route *r)
{
	r->found = r->address->form == FORM_SINGLE;
	r->trusted = false;
	r->turn++;
}

bool
route_redirection(const struct route *r, const char *text, struct endpoint *to)
{
	const char *slot = strchr(text, ' '),
		   *place = slot ? strchr(slot + 1, ' ') : NULL,
		   *colon = place ? strrchr(place, ':') : NULL;
	size_t n;

	if (!colon)
		return false;
	n = colon - ++place;
	if (n == 0) {
		place = r->server.peer.at.host;
		n = strlen(place);
	}
	return !endpoint_plain(to, place, n, colon + 1, strlen(colon + 1));
}

/* n: it is not among them. */
static size_t
index_of(const struct endpoint *to, const struct endpoint *all, size_t n)
{
	size_t i = 0;

	while (i < n && !endpoint_is(&all[i], to))
		i++;
	return i;
}

/* It stands among the nodes; the last one is replaced where they are too many. */
void
route_move(struct route *r, const struct endpoint *to)
{
	size_t i = index_of(to, r->known, r->n);

	if (i == r->n && r->n < NODES)
		r->n++;
	r->turn = i < r->n ? i : r->n - 1;
	r->known[r->turn] = *to;
	route_go(r, to);
}

/* ---- what is next ---- */

static enum resp_next
next_of(const struct route *r, const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ERROR
	    ? resp_next(reply->str, r->address->form == FORM_CLUSTER)
	    : RESP_KEEP;
}

/* It cannot be an answer: the reply becomes a fault. */
static enum rc
route_reject(struct route *r, redisReply **reply, struct fault *f)
{
	peer_refuses(&r->server.peer, false, NULL, (*reply)->str, f);
	r->said = *f;
	freeReplyObject(*reply);
	*reply = NULL;
	return RC_AGAIN;
}

static enum rc
route_follow(struct route *r, redisReply **reply, struct fault *f)
{
	struct endpoint to;
	bool good = route_redirection(r, (*reply)->str, &to);

	fault_set(f, RC_AGAIN,
	    good ? "%s sends dlock to another node, which sends it on: '%.100s'"
		 : "%s sends dlock to a node that it names wrongly: '%.100s'",
	    r->server.peer.where, (*reply)->str);
	freeReplyObject(*reply);
	*reply = NULL;
	if (good)
		route_move(r, &to);
	else
		route_doubt(r);
	return RC_AGAIN;
}

/* ---- one server ---- */

static enum rc
route_ask_server(struct route *r, struct server *s, const struct question *q,
    instant until, redisReply **reply, struct fault *f)
{
	enum rc rc;

	r->sent = instant_now();
	rc = server_ask(s, q, until, reply, f);
	r->answered = s;
	r->repeated |= s->peer.repeated || (rc == RC_AGAIN && s->peer.told);
	r->asked |= s->peer.told;
	return rc;
}

/* Once, at the node that gets the hash slot; the next question is asked here again. */
static enum rc
route_ask_aside(struct route *r, const struct question *q, instant until,
    redisReply **reply, struct fault *f)
{
	struct question asking = *q;
	struct endpoint to;
	enum resp_next next;
	enum rc rc;

	if (!route_redirection(r, (*reply)->str, &to))
		return route_reject(r, reply, f);
	freeReplyObject(*reply);
	*reply = NULL;
	if (!r->aside) {
		r->aside = calloc(1, sizeof *r->aside);
		if (!r->aside)
			return fault_set(f, RC_SYSTEM, "out of memory");
		server_init(r->aside, r->host, r->address);
		server_go(r->aside, &to);
		r->aside->peer.bounds = r->server.peer.bounds;
	}
	if (!endpoint_is(&to, &r->aside->peer.at))
		server_go(r->aside, &to);
	asking.asking = true;
	rc = route_ask_server(r, r->aside, &asking, until, reply, f);
	if (rc != RC_OK)
		return rc;
	next = next_of(r, *reply);
	return next == RESP_KEEP || next == RESP_ELSEWHERE ? RC_OK
							   : route_reject(r, reply, f);
}

/* What one sentinel says is enough to ask again; a last word is not asked for twice: do most say so? */
static bool
is_deposed(struct route *r, const struct question *q, instant until)
{
	struct endpoint master;
	struct fault ignored;

	return q->claimed ||
	    (sentinels_ask(r->sentinels, until, &master, &ignored) == RC_OK &&
		!endpoint_is(&master, &r->server.peer.at));
}

/*
 * A master that was deposed while it was cut off, or stopped, goes on for some seconds as if
 * it were one: a sentinel is asked alongside.
 */
static enum rc
route_ask_here(struct route *r, const struct question *q, instant until,
    redisReply **reply, struct fault *f)
{
	bool beside = (q->claimed || q->settles) && r->trusted && r->sentinels;
	instant now = instant_now(), half = now + (until - now) / 2;
	enum rc rc;

	if (beside)
		sentinels_ask_one(r->sentinels, until);
	/* one that does not answer is to leave time for others */
	if (half < now + SHARE_LEAST)
		half = instant_first(until, now + SHARE_LEAST);
	rc = route_ask_server(r, &r->server, q, half, reply, f);
	if (beside && sentinels_one_differs(r->sentinels, &r->server.peer.at) &&
	    rc == RC_OK && is_deposed(r, q, until)) {
		freeReplyObject(*reply);
		*reply = NULL;
		server_close(&r->server);
		rc = fault_set(f, RC_AGAIN, "%s is no longer the master, says a sentinel",
		    r->server.peer.where);
	}
	return rc;
}

/* ---- whichever has the locks ---- */

/* One try; *again: it may be worth to ask whom route_find() finds next. */
static enum rc
route_try(struct route *r, const struct question *q, instant until, redisReply **reply,
    struct fault *f, bool *again)
{
	enum rc rc = route_ask_here(r, q, until, reply, f);

	*again = rc == RC_AGAIN;
	if (rc != RC_OK) {
		if (rc != RC_STOP)
			route_doubt(r);
		return rc;
	}
	switch (next_of(r, *reply)) {
	case RESP_KEEP:
		r->trusted = true;
		return RC_OK;
	case RESP_ASK:
		return route_ask_aside(r, q, until, reply, f);
	case RESP_MOVED:
		*again = !q->continues; /* that began on this connection */
		return route_follow(r, reply, f);
	case RESP_ELSEWHERE:
		*again = true;
		server_close(&r->server);
		route_doubt(r);
		break;
	case RESP_LATER:
		break;
	}
	return route_reject(r, reply, f);
}

static enum rc
route_ask_any(struct route *r, const struct question *q, instant until,
    redisReply **reply, struct fault *f)
{
	bool again = true;
	enum rc rc = RC_AGAIN;

	for (int hops = 0; again && hops <= HOPS && (hops == 0 || instant_now() < until);
	     hops++) {
		unsigned moves = r->moves;
		enum rc found = route_find(r, until, f);

		if (found != RC_OK)
			return found;
		if (hops > 0 && moves == r->moves && r->address->form == FORM_SENTINEL)
			return rc; /* the same one once more: later */
		rc = route_try(r, q, until, reply, f, &again);
	}
	return rc;
}

enum rc
route_ask(struct route *r, const struct question *q, instant until, redisReply **reply,
    struct fault *f)
{
	if (r->address->form == FORM_SINGLE)
		return route_ask_server(r, &r->server, q, until, reply, f);
	r->said.text[0] = '\0';
	for (;;) {
		enum rc rc = route_ask_any(r, q, until, reply, f);

		/* the one that was asked last may have had no time to say it again */
		if (rc == RC_AGAIN && *r->said.text && instant_now() + PAUSE >= until)
			*f = r->said;
		if (rc != RC_AGAIN || !q->persist || instant_now() + PAUSE >= until)
			return rc;
		if (r->host->wait(r->host, -1, 0, instant_now() + PAUSE) == WOKE_STOP)
			return RC_STOP;
	}
}

/* ---- scripts ---- */

enum rc
script_ask(struct route *to, const struct script_call *c, struct question q,
    instant until, redisReply **reply, struct fault *f)
{
	struct manner m = {.reads = c->reads};
	enum rc rc;

	*reply = NULL;
	do {
		char *command = script_write(c, &m);

		freeReplyObject(*reply);
		*reply = NULL;
		if (!command)
			return fault_set(f, RC_SYSTEM, "out of memory");
		q.command = command;
		rc = route_ask(to, &q, until, reply, f);
		free(command);
	} while (rc == RC_OK && script_change(&m, *reply));
	return rc;
}

enum rc
script_nonsense(struct route *to, struct fault *f)
{
	route_close(to);
	return fault_set(f, RC_PROTOCOL,
	    "%s gave an answer that dlock's script does not give", to->server.peer.where);
}

enum rc
script_run(struct route *to, const struct script_call *c, instant until,
    redisReply **reply, struct fault *f, const char *shape, ...)
{
	enum rc rc = script_ask(to, c,
	    (struct question){.persist = true, .replicas = c->replicas}, until, reply, f);
	va_list members;

	if (rc != RC_OK)
		return rc;
	va_start(members, shape);
	if ((*reply)->type == REDIS_REPLY_ERROR)
		rc = peer_refuses(
		    &to->server.peer, c->reads, script_about(c), (*reply)->str, f);
	else if (!answer_vmembers(*reply, 0, shape, members))
		rc = script_nonsense(to, f);
	va_end(members);
	if (rc != RC_OK) {
		freeReplyObject(*reply);
		*reply = NULL;
	}
	return rc;
}

/* ---- the masters of a cluster ---- */

/* The master of {first slot, last slot, {host, port, ...}, ...}; false: it is none. */
static bool
master_of(const struct route *r, const redisReply *range, struct endpoint *to)
{
	const redisReply *node, *host;
	int64_t first, last, port;

	if (!answer_members(range, 0, "iia", &first, &last, &node) ||
	    !answer_members(node, 1, "i", &port) || port < 1 || port > 65535)
		return false;
	host = node->element[0];
	*to = r->server.peer.at; /* a node may not know its own host */
	if (host->type == REDIS_REPLY_STRING && host->len > 0 &&
	    endpoint_plain(to, host->str, host->len, "1", 1))
		return false;
	to->port = (int)port;
	return host->type == REDIS_REPLY_STRING || host->type == REDIS_REPLY_NIL;
}

enum rc
route_masters(struct route *r, instant until, struct endpoint masters[NODES], size_t *n,
    struct fault *f)
{
	static const char command[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";
	struct question q = {.command = command, .persist = true};
	redisReply *reply = NULL;
	struct endpoint to;
	enum rc rc = route_ask(r, &q, until, &reply, f);
	bool is_list;

	*n = 0;
	if (rc != RC_OK)
		return rc;
	is_list = reply->type == REDIS_REPLY_ARRAY;
	if (reply->type == REDIS_REPLY_ERROR)
		rc = peer_refuses(&r->server.peer, false, NULL, reply->str, f);
	for (size_t i = 0; rc == RC_OK && is_list && i < reply->elements; i++)
		if (!master_of(r, reply->element[i], &to))
			is_list = false;
		else if (index_of(&to, masters, *n) < *n)
			continue; /* it has several ranges of slots */
		else if (*n < NODES)
			masters[(*n)++] = to;
		else
			rc = fault_set(f, RC_SYSTEM,
			    "%s has more than %d masters, which dlock cannot list",
			    r->server.peer.where, NODES);
	if (rc == RC_OK && !is_list)
		rc = fault_set(f, RC_PROTOCOL, "%s gave a wrong answer to CLUSTER SLOTS",
		    r->server.peer.where);
	freeReplyObject(reply);
	return rc;
}
