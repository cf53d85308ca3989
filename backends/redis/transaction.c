/*
 * transaction.c - the string dialect on a server that runs no scripts.
 *
 * The lock and our key beside it are watched, read, and then changed by a transaction,
 * which does nothing if another has changed one of them meanwhile: then all of it is
 * done again.  The commands follow one another on one connection; what is lost with it
 * (question.continues) was never done, but for the last of them, EXEC.
 */
#include "transaction.h"

#include "resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 5 };
static const int64_t day_ms = 86400 * 1000;

struct transaction {
	struct route *route;
	const struct names *names;
	const struct claim *claim;
	const struct request *request;
	instant until;
	struct answer *answer;
	struct fault *fault;
	char lease[24];
	bool begun;   /* something has been said that counts for what follows */
	bool settled; /* the answer is there */
};

/* ---- one command ---- */

#define SAY(t, reply, ...) \
	transaction_say(t, reply, (const char *const[]){__VA_ARGS__, NULL})

/* An error: nothing is to stay watched, or queued. */
static enum rc
transaction_refused(struct transaction *t, char *text)
{
	enum rc rc = server_refused(&t->route->server, text, t->fault);

	route_close(t->route);
	return t->request->operation != ACQUIRE && resp_is_foreign(text) ? RC_LOST : rc;
}

/* Says it; with RC_OK the reply, no error, is the caller's, else it is NULL. */
static enum rc
transaction_say(struct transaction *t, redisReply **reply, const char *const *words)
{
	bool release = t->request->operation == RELEASE;
	struct question q = {.continues = t->begun,
	    .claimed = !release && strcmp(*words, "EXEC") == 0,
	    /* what EXEC has ended there could not be asked for elsewhere */
	    .settles = release && t->request->held && strcmp(*words, "WATCH") == 0};
	char *command;
	int n = 0;
	enum rc rc;

	while (words[n])
		n++;
	if (redisFormatCommandArgv(&command, n, (const char **)words, NULL) < 0)
		return fault_set(t->fault, RC_SYSTEM, "out of memory");
	q.command = command;
	rc = route_ask(t->route, &q, t->until, reply, t->fault);
	redisFreeCommand(command);
	t->begun = true;
	if (rc != RC_OK) {
		*reply = NULL;
		route_close(t->route); /* where nothing is to stay queued */
		return rc;
	}
	if (!*reply)
		return script_nonsense(t->route, t->fault);
	if ((*reply)->type == REDIS_REPLY_ERROR) {
		rc = transaction_refused(t, (*reply)->str);
		freeReplyObject(*reply);
		*reply = NULL;
	}
	return rc;
}

/* The same where the reply does not matter. */
#define DO(t, ...) do_(t, (const char *const[]){__VA_ARGS__, NULL})

static enum rc
do_(struct transaction *t, const char *const *words)
{
	redisReply *reply;
	enum rc rc = transaction_say(t, &reply, words);

	freeReplyObject(reply);
	return rc;
}

static enum rc
transaction_say_number(struct transaction *t, int64_t *out, const char *const *words)
{
	redisReply *reply;
	enum rc rc = transaction_say(t, &reply, words);

	if (!reply)
		return rc;
	*out = reply->integer;
	if (reply->type != REDIS_REPLY_INTEGER)
		rc = script_nonsense(t->route, t->fault);
	freeReplyObject(reply);
	return rc;
}

/* The text, cut to size; "" where there is none. */
static enum rc
transaction_say_text(
    struct transaction *t, char *out, size_t size, bool *is, const char *const *words)
{
	redisReply *reply;
	enum rc rc = transaction_say(t, &reply, words);

	if (!reply)
		return rc;
	*is = reply->type == REDIS_REPLY_STRING;
	snprintf(out, size, "%s", *is ? reply->str : "");
	if (!*is && reply->type != REDIS_REPLY_NIL)
		rc = script_nonsense(t->route, t->fault);
	freeReplyObject(reply);
	return rc;
}

/*
 * Has it changed what it is about?  A watched key that ends by its own time is a change
 * since Redis 6.0.9 only.
 */
static bool
is_effective(const redisReply *first)
{
	return first->type == REDIS_REPLY_STATUS ||
	    (first->type == REDIS_REPLY_INTEGER && first->integer == 1);
}

/* Carries out what is queued; *done: nobody was quicker, and the first of it had its effect. */
static enum rc
transaction_execute(struct transaction *t, bool *done)
{
	redisReply *reply;
	enum rc rc = SAY(t, &reply, "EXEC");

	t->begun = false;
	if (!reply)
		return rc;
	*done = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
	for (size_t i = 0; *done && i < reply->elements && rc == RC_OK; i++)
		if (reply->element[i]->type == REDIS_REPLY_ERROR)
			rc = server_refused(
			    &t->route->server, reply->element[i]->str, t->fault);
	*done = *done && rc == RC_OK && is_effective(reply->element[0]);
	freeReplyObject(reply);
	return rc;
}

/* ---- the side ---- */

static enum rc
read_clock(struct transaction *t, int64_t *us)
{
	redisReply *reply;
	enum rc rc = SAY(t, &reply, "TIME");

	if (!reply)
		return rc;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	    reply->element[0]->type == REDIS_REPLY_STRING &&
	    reply->element[1]->type == REDIS_REPLY_STRING)
		*us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
		    strtoll(reply->element[1]->str, NULL, 10);
	else
		rc = script_nonsense(t->route, t->fault);
	freeReplyObject(reply);
	return rc;
}

/* The row of `who`, if it is one: its token, since when, its record; token 0: none. */
static enum rc
read_row(struct transaction *t, const char *who, uint64_t *token, int64_t *since,
    char *record, size_t size)
{
	char row[RECORD_BYTES + 64];
	int at = 0, slot;
	bool is;
	enum rc rc = transaction_say_text(t, row, sizeof row, &is,
	    (const char *const[]){"HGET", t->names->keys[1], who, NULL});

	if (rc == RC_OK &&
	    (sscanf(row, "%20" SCNu64 " %20" SCNd64 " %9d %n", token, since, &slot,
		 &at) != 3 ||
		*token >= TOKEN_LIMIT))
		*token = 0;
	snprintf(record, size, "%s", rc == RC_OK && *token ? row + at : "");
	return rc;
}

/* ---- operations, the lock being watched and read ---- */

/* Takes what is free. */
static enum rc
transaction_take(struct transaction *t)
{
	const char *const *k = (const char *const[]){
	    t->names->keys[0], t->names->keys[1]};
	char dealt[24], token[24], row[RECORD_BYTES + 64], ends[24];
	int64_t us = 0;
	uint64_t before;
	bool is;
	enum rc rc = read_clock(t, &us);

	if (rc == RC_OK)
		rc = transaction_say_text(t, dealt, sizeof dealt, &is,
		    (const char *const[]){"HGET", k[1], "#token", NULL});
	if (rc != RC_OK)
		return rc;
	before = strtoull(dealt, NULL, 10);
	t->answer->granted.token = before + 1 > (uint64_t)us ? before + 1 : (uint64_t)us;
	if (t->answer->granted.token >= TOKEN_LIMIT)
		return script_nonsense(t->route, t->fault);
	snprintf(token, sizeof token, "%" PRIu64, t->answer->granted.token);
	snprintf(row, sizeof row, "%s %" PRId64 " 0 %s", token, us, t->claim->record);
	snprintf(ends, sizeof ends, "%" PRId64,
	    (us > (int64_t)t->answer->granted.token ? us
						    : (int64_t)t->answer->granted.token) /
		    1000 +
		ns_to_ms(t->claim->ttl) + day_ms);
	if ((rc = DO(t, "MULTI")) != RC_OK ||
	    (rc = DO(t, "SET", k[0], t->claim->owner, "NX", "PX", t->lease)) != RC_OK ||
	    (rc = DO(t, "DEL", k[1])) != RC_OK ||
	    (rc = DO(t, "HSET", k[1], "#token", token)) != RC_OK ||
	    (rc = DO(t, "HSET", k[1], t->claim->owner, row)) != RC_OK ||
	    (rc = DO(t, "PEXPIREAT", k[1], ends)) != RC_OK)
		return rc;
	t->answer->code = ANSWER_HOLDER;
	return transaction_execute(t, &t->settled);
}

/* Extends what is ours, whose token is known to the request, or to the side. */
static enum rc
transaction_extend(struct transaction *t)
{
	char record[RECORD_BYTES];
	int64_t since;
	enum rc rc = read_row(
	    t, t->claim->owner, &t->answer->granted.token, &since, record, sizeof record);

	if (rc != RC_OK)
		return rc;
	if (!t->answer->granted.token)
		t->answer->granted.token = t->request->token;
	if ((rc = DO(t, "MULTI")) != RC_OK ||
	    (rc = DO(t, "PEXPIRE", t->names->keys[0], t->lease)) != RC_OK)
		return rc;
	t->answer->code = ANSWER_HOLDER;
	return transaction_execute(t, &t->settled);
}

static enum rc
transaction_give_back(struct transaction *t)
{
	enum rc rc;

	if ((rc = DO(t, "MULTI")) != RC_OK ||
	    (rc = DO(t, "DEL", t->names->keys[0])) != RC_OK ||
	    (rc = DO(t, "HDEL", t->names->keys[1], t->claim->owner)) != RC_OK)
		return rc;
	t->answer->code = ANSWER_HOLDER;
	return transaction_execute(t, &t->settled);
}

/* Another has it, or nobody: a "no", with a write in front of it that changes nothing. */
static enum rc
transaction_refuse(struct transaction *t, const char *value)
{
	struct answer *a = t->answer;
	int64_t left = 0, now = 0, since = 0;
	uint64_t token = 0;
	enum rc rc = DO(t, "UNWATCH");

	if (rc == RC_OK)
		rc = DO(t, "HDEL", t->names->keys[1], "");
	a->code = ANSWER_NOT_HOLDER;
	*a->mark = '\0';
	t->settled = true;
	if (rc != RC_OK || t->request->operation != ACQUIRE)
		return rc;
	rc = transaction_say_number(
	    t, &left, (const char *const[]){"PTTL", t->names->keys[0], NULL});
	if (rc == RC_OK)
		rc = read_row(t, value, &token, &since, a->waiting.holder,
		    sizeof a->waiting.holder);
	if (rc == RC_OK)
		rc = read_clock(t, &now);
	a->waiting.place = 0;
	a->waiting.ticket = 0;
	a->waiting.frozen = false;
	a->used.kind = KIND_EXCLUSIVE;
	a->used.limit = 0;
	a->waiting.holders = 1;
	a->waiting.left_ms = left < 0 ? 0 : left < ANSWER_MS_MOST ? left : ANSWER_MS_MOST;
	a->waiting.held_ms = token && now > since ? (now - since) / 1000 : -1;
	if (a->waiting.held_ms > ANSWER_MS_MOST)
		a->waiting.held_ms = -1;
	if (!token)
		snprintf(a->waiting.holder, sizeof a->waiting.holder,
		    "{\"who\":\"another client%s\"}",
		    left == -1 ? ", without an end (TTL)" : "");
	return rc;
}

/* ---- all of it ---- */

static enum rc
transaction_attempt(struct transaction *t)
{
	char value[64];
	bool is = false, ours;
	enum rc rc;

	t->begun = false;
	rc = DO(t, "WATCH", t->names->keys[0], t->names->keys[1]);
	if (rc == RC_OK)
		rc = transaction_say_text(t, value, sizeof value, &is,
		    (const char *const[]){"GET", t->names->keys[0], NULL});
	if (rc != RC_OK)
		return rc;
	ours = is && strcmp(value, t->claim->owner) == 0;
	if (ours)
		return t->request->operation == RELEASE ? transaction_give_back(t)
							: transaction_extend(t);
	return !is && t->request->operation == ACQUIRE ? transaction_take(t)
						       : transaction_refuse(t, value);
}

enum rc
transaction_run(struct route *r, const struct names *names, const struct claim *claim,
    const struct request *request, instant until, struct answer *a, struct fault *f)
{
	struct transaction t = {.route = r,
	    .names = names,
	    .claim = claim,
	    .request = request,
	    .until = until,
	    .answer = a,
	    .fault = f};
	enum rc rc = RC_OK;

	a->granted.slot = 0;
	snprintf(t.lease, sizeof t.lease, "%" PRId64, ns_to_ms(claim->ttl));
	for (int i = 0; rc == RC_OK && !t.settled && i < ATTEMPTS; i++)
		rc = transaction_attempt(&t);
	if (rc == RC_OK && !t.settled)
		rc = fault_set(
		    f, RC_AGAIN, "%s: others change it at the same time", r->where);
	return rc;
}
