/* client.c - what one claim asks for, in a dialect. */
#include "client.h"

static enum rc
client_ask(struct client *c, const struct request *q, bool whole, instant until,
    redisReply **reply, struct fault *f)
{
	struct question question = {.ping_first = q->operation == RELEASE,
	    .inspect = q->operation == RENEW ||
		(q->operation == ACQUIRE && c->host->verbose),
	    .claimed = q->operation != RELEASE,
	    .settles = q->operation == RELEASE && q->held,
	    .replicas = q->operation == RELEASE ? 0 : c->replicas};
	char *command;
	int length = c->dialect->write(&command, &c->names, c->claim, q, whole);
	enum rc rc;

	if (length < 0)
		return fault_set(f, RC_SYSTEM, "out of memory");
	question.command = command;
	question.length = length;
	rc = call_ask(&c->call, &question, until, reply, f);
	redisFreeCommand(command);
	return rc;
}

/* What is said to the user of a reply; RC_OK: it is an answer. */
static enum rc
client_judge(struct client *c, const struct request *q, enum reading reading,
    const redisReply *reply, struct fault *f)
{
	enum rc rc;

	switch (reading) {
	case READ_ANSWER:
		return RC_OK;
	case READ_NONSENSE:
		call_close(&c->call);
		return fault_set(f, RC_PROTOCOL,
		    "%s gave an answer that dlock's script does not give",
		    call_where(&c->call));
	case READ_NO_SCRIPTS: /* but for its replicas we would do without */
		return fault_set(f, RC_CONFIG,
		    "%s runs no scripts for us ('%.150s'), which -O wait-replicas= needs",
		    call_where(&c->call), reply->str);
	case READ_UNKNOWN_SCRIPT:
	case READ_ERROR:
	case READ_FOREIGN:
		break;
	}
	rc = call_refused(&c->call, reply->str, f);
	return reading == READ_FOREIGN && q->operation != ACQUIRE ? RC_LOST : rc;
}

static enum rc
client_run_plainly(struct client *c, const struct request *q, instant until,
    instant *sent, struct answer *a, struct fault *f)
{
	c->plainly = true;
	*sent = instant_now();
	return c->dialect->plainly(&c->call, &c->names, c->claim, q, until, a, f);
}

enum rc
client_run(struct client *c, const struct request *q, instant until, instant *sent,
    struct answer *a, struct fault *f)
{
	enum reading reading = READ_UNKNOWN_SCRIPT;
	enum rc rc = RC_OK;

	c->call.repeated = false;
	if (c->plainly)
		return client_run_plainly(c, q, until, sent, a, f);
	for (int whole = 0; rc == RC_OK && reading == READ_UNKNOWN_SCRIPT && whole < 2;
	     whole++) {
		redisReply *reply = NULL;

		rc = client_ask(c, q, whole, until, &reply, f);
		*sent = c->call.sent;
		if (rc != RC_OK || !reply)
			return rc;
		reading = c->dialect->read(a, q, reply);
		if (reading == READ_NO_SCRIPTS && !c->replicas) {
			freeReplyObject(reply);
			return client_run_plainly(c, q, until, sent, a, f);
		}
		if (reading != READ_UNKNOWN_SCRIPT || whole)
			rc = client_judge(c, q, reading, reply, f);
		freeReplyObject(reply);
	}
	return rc;
}

bool
client_is_replicated(const struct client *c, struct fault *f)
{
	int64_t got = c->call.acknowledged;

	if (c->replicas == 0 || got >= c->replicas)
		return true;
	fault_set(f, RC_AGAIN,
	    "%s: %d of its replicas confirmed the lock, not %d (wait-replicas)",
	    call_where(&c->call), got > 0 ? (int)got : 0, c->replicas);
	return false;
}
