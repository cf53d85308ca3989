/*
 * transaction.c - the string dialect on a server that runs no scripts.
 *
 * The lock and our key beside it are watched and read in one packet, and then changed in
 * another one by a transaction, which does nothing if another has changed one of them
 * meanwhile: then all of it is done again.  Both go over one connection; what is lost with
 * it (question.continues) was never done, but for the transaction itself.
 */
#include "redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 5 };
static const int64_t day_ms = 86400 * 1000;

struct transaction {
	struct redis *redis;
	const char *lock, *side, *owner;
	const struct request *request;
	instant until;
	struct answer *answer;
	struct fault *fault;
	char lease[24];
	/* What the first packet has read: */
	bool begun;                  /* it is watched */
	bool locked;                 /* by anybody */
	char value[64];              /* of the lock, cut to size */
	char row[RECORD_BYTES + 64]; /* our own */
	char dealt[24];              /* the last token */
	int64_t us;                  /* the server's time */
};

/* ---- what is said ---- */

/*
 * Says them; RC_OK: *reply has an answer to each, none of which is an error.  After an error
 * nothing is to stay watched, or queued.
 */
static enum rc
transaction_say(
    struct transaction *t, const resp_words *commands, size_t n, redisReply **reply)
{
	bool release = t->request->operation == RELEASE;
	struct question q = {.several = n,
	    .continues = t->begun,
	    .claimed = t->begun && !release,
	    /* what a transaction has ended there could not be asked for elsewhere */
	    .settles = !t->begun && release && t->request->held};
	char *text = resp_write(commands, n);
	enum rc rc;

	if (!text)
		return fault_set(t->fault, RC_SYSTEM, "out of memory");
	q.command = text;
	rc = route_ask(&t->redis->route, &q, t->until, reply, t->fault);
	free(text);
	if (rc == RC_OK && (*reply)->type == REDIS_REPLY_ERROR) {
		rc = redis_refused(t->redis, t->request, (*reply)->str, t->fault);
		freeReplyObject(*reply);
	}
	if (rc != RC_OK)
		route_close(&t->redis->route);
	return rc;
}

/* A text, cut to size; "" where there is none.  False: something else. */
static bool
read_text(const redisReply *r, char *out, size_t size)
{
	bool is = r->type == REDIS_REPLY_STRING;

	snprintf(out, size, "%s", is ? r->str : "");
	return is || r->type == REDIS_REPLY_NIL;
}

static bool
read_watched(struct transaction *t, const redisReply *r)
{
	const redisReply *time;
	const char *seconds, *rest;

	if (!answer_members(r, 4, "a", &time) ||
	    !answer_members(time, 0, "ss", &seconds, &rest))
		return false;
	t->locked = r->element[1]->type != REDIS_REPLY_NIL;
	t->us = strtoll(seconds, NULL, 10) * 1000000 + strtoll(rest, NULL, 10);
	return read_text(r->element[1], t->value, sizeof t->value) &&
	    read_text(r->element[2], t->row, sizeof t->row) &&
	    read_text(r->element[3], t->dealt, sizeof t->dealt);
}

static enum rc
transaction_watch(struct transaction *t)
{
	const resp_words commands[] = {{"WATCH", t->lock, t->side}, {"GET", t->lock},
	    {"HGET", t->side, t->owner}, {"HGET", t->side, "#token"}, {"TIME"}};
	redisReply *reply;
	enum rc rc;

	t->begun = false;
	rc = transaction_say(t, commands, 5, &reply);
	if (rc != RC_OK)
		return rc;
	t->begun = true;
	if (!read_watched(t, reply))
		rc = script_nonsense(&t->redis->route, t->fault);
	freeReplyObject(reply);
	return rc;
}

/*
 * Carries out a transaction.  *done: nobody was quicker, and the first of it had its effect:
 * a watched key that ends by its own time is a change since Redis 6.0.9 only.
 */
static enum rc
transaction_execute(
    struct transaction *t, const resp_words *commands, size_t n, bool *done)
{
	redisReply *reply, *exec;
	enum rc rc = transaction_say(t, commands, n, &reply);

	if (rc != RC_OK)
		return rc;
	exec = reply->element[n - 1];
	*done = exec->type == REDIS_REPLY_ARRAY && exec->elements > 0 &&
	    (exec->element[0]->type == REDIS_REPLY_STATUS ||
		exec->element[0]->type == REDIS_REPLY_INTEGER);
	if (*done && exec->element[0]->type == REDIS_REPLY_INTEGER)
		*done = exec->element[0]->integer == 1;
	for (size_t i = 0; exec->type == REDIS_REPLY_ARRAY && i < exec->elements; i++)
		if (rc == RC_OK && exec->element[i]->type == REDIS_REPLY_ERROR)
			rc = peer_refuses(&t->redis->route.server.peer, false,
			    t->redis->names.keys[0], exec->element[i]->str, t->fault);
	freeReplyObject(reply);
	return rc;
}

/* ---- operations, the lock being watched and read ---- */

/* Its token, since when, where its record begins; 0: it is no row. */
static uint64_t
read_row(const char *row, int64_t *since, int *record)
{
	uint64_t token;
	int slot;

	*record = 0;
	return sscanf(row, "%20" SCNu64 " %20" SCNd64 " %9d %n", &token, since, &slot,
		   record) == 3 &&
		token < TOKEN_LIMIT
	    ? token
	    : 0;
}

/* Takes what is free. */
static enum rc
transaction_take(struct transaction *t, bool *done)
{
	uint64_t before = strtoull(t->dealt, NULL, 10), us = t->us,
		 n = before + 1 > us ? before + 1 : us;
	char token[24], row[RECORD_BYTES + 64], ends[24];

	if (n >= TOKEN_LIMIT)
		return script_nonsense(&t->redis->route, t->fault);
	t->answer->token = n;
	snprintf(token, sizeof token, "%" PRIu64, n);
	snprintf(row, sizeof row, "%s %" PRId64 " 0 %s", token, t->us,
	    t->redis->claim->record);
	snprintf(ends, sizeof ends, "%" PRId64,
	    (int64_t)(n / 1000) + ns_to_ms(t->redis->claim->ttl) + day_ms);
	return transaction_execute(t,
	    (const resp_words[]){{"MULTI"},
		{"SET", t->lock, t->owner, "NX", "PX", t->lease}, {"DEL", t->side},
		{"HSET", t->side, "#token", token}, {"HSET", t->side, t->owner, row},
		{"PEXPIREAT", t->side, ends}, {"EXEC"}},
	    7, done);
}

/* Another has it, or nobody: a "no", with a write in front of it that changes nothing. */
static enum rc
transaction_refuse(struct transaction *t)
{
	const resp_words commands[] = {{"UNWATCH"}, {"HDEL", t->side, ""},
	    {"PTTL", t->lock}, {"HGET", t->side, t->value}};
	struct answer *a = t->answer;
	int64_t since = 0, left;
	redisReply *reply;
	uint64_t token;
	int record;
	enum rc rc = transaction_say(t, commands, 4, &reply);

	if (rc != RC_OK)
		return rc;
	if (!answer_members(reply, 2, "i", &left) ||
	    !read_text(reply->element[3], t->row, sizeof t->row))
		rc = script_nonsense(&t->redis->route, t->fault);
	freeReplyObject(reply);
	token = read_row(t->row, &since, &record);
	*a = (struct answer){.code = ANSWER_NOT_HOLDER};
	a->holding.kind = KIND_EXCLUSIVE;
	a->holding.holders = 1;
	a->left_ms = answer_bound(&left, 0, ANSWER_MS_MOST) ? left : 0;
	a->holding.held = token && t->us > since && t->us - since < ANSWER_MS_MOST * 1000
	    ? (t->us - since) * 1000
	    : -1;
	if (token)
		snprintf(
		    a->holding.record, sizeof a->holding.record, "%s", t->row + record);
	else
		snprintf(a->holding.record, sizeof a->holding.record,
		    "{\"who\":\"another client%s\"}",
		    left == -1 ? ", without an end (TTL)" : "");
	return rc;
}

/* ---- all of it ---- */

/* Of a lock that is ours, the token is known to the side, or to the request. */
static enum rc
transaction_attempt(struct transaction *t, bool *settled)
{
	enum operation operation = t->request->operation;
	enum rc rc = transaction_watch(t);
	int64_t since;
	int record;

	if (rc != RC_OK)
		return rc;
	t->answer->code = ANSWER_HOLDER;
	if (!t->locked && operation == ACQUIRE)
		return transaction_take(t, settled);
	if (!t->locked || strcmp(t->value, t->owner) != 0) {
		*settled = true;
		return transaction_refuse(t);
	}
	if (operation == RELEASE)
		return transaction_execute(t,
		    (const resp_words[]){{"MULTI"}, {"DEL", t->lock},
			{"HDEL", t->side, t->owner}, {"EXEC"}},
		    4, settled);
	t->answer->token = read_row(t->row, &since, &record);
	if (t->answer->token == 0)
		t->answer->token = t->request->token;
	return transaction_execute(t,
	    (const resp_words[]){{"MULTI"}, {"PEXPIRE", t->lock, t->lease}, {"EXEC"}}, 3,
	    settled);
}

enum rc
transaction_run(struct redis *r, const struct request *request, instant until,
    struct answer *a, struct fault *f)
{
	struct transaction t = {.redis = r,
	    .lock = r->names.keys[0],
	    .side = r->names.keys[1],
	    .owner = r->claim->owner,
	    .request = request,
	    .until = until,
	    .answer = a,
	    .fault = f};
	bool settled = false;
	enum rc rc = RC_OK;

	a->slot = 0;
	snprintf(t.lease, sizeof t.lease, "%" PRId64, ns_to_ms(r->claim->ttl));
	for (int i = 0; rc == RC_OK && !settled && i < ATTEMPTS; i++)
		rc = transaction_attempt(&t, &settled);
	if (rc == RC_OK && !settled)
		rc = fault_set(f, RC_AGAIN,
		    "%s: other clients change this key at the same time",
		    r->route.server.peer.where);
	return rc;
}
