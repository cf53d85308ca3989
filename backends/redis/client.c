/* client.c - what one claim asks for, in a dialect. */
#include "client.h"

#include "transaction.h"

/* What is said to the user of a reply that is no answer. */
static enum rc
client_refused(struct client *c, const struct request *q, enum reading reading,
    const redisReply *reply, struct fault *f)
{
	enum rc rc;

	if (reading == READ_NONSENSE)
		return script_nonsense(&c->route, f);
	if (reading == READ_NO_SCRIPTS) /* but for its replicas we would do without */
		return fault_set(f, RC_CONFIG,
		    "%s runs no scripts for us ('%.150s'), which -O wait-replicas= needs",
		    c->route.where, reply->str);
	rc = server_refused(&c->route.server, reply->str, f);
	return reading == READ_FOREIGN && q->operation != ACQUIRE ? RC_LOST : rc;
}

static enum rc
client_run_script(struct client *c, const struct request *q, instant until,
    struct answer *a, struct fault *f)
{
	struct question how = {.ping_first = q->operation == RELEASE,
	    .inspect = q->operation == RENEW ||
		(q->operation == ACQUIRE && c->host->verbose),
	    .claimed = q->operation != RELEASE,
	    .settles = q->operation == RELEASE && q->held,
	    .replicas = q->operation == RELEASE ? 0 : c->replicas};
	struct script_call call;
	enum reading reading;
	redisReply *reply;
	enum rc rc;

	dialect_say(c->dialect, &call, &c->names, c->claim, q);
	rc = script_ask(&c->route, &call, how, until, &reply, f);
	if (rc != RC_OK)
		return rc;
	reading = dialect_read(c->dialect, a, q, reply);
	c->plainly = reading == READ_NO_SCRIPTS && !c->replicas;
	if (reading != READ_ANSWER && !c->plainly)
		rc = client_refused(c, q, reading, reply, f);
	freeReplyObject(reply);
	return rc;
}

enum rc
client_run(struct client *c, const struct request *q, instant until, instant *sent,
    struct answer *a, struct fault *f)
{
	enum rc rc = RC_OK;

	c->route.repeated = false;
	if (!c->plainly) {
		rc = client_run_script(c, q, until, a, f);
		*sent = c->route.sent;
	}
	if (rc != RC_OK || !c->plainly)
		return rc;
	*sent = instant_now();
	return transaction_run(&c->route, &c->names, c->claim, q, until, a, f);
}

bool
client_is_replicated(const struct client *c, struct fault *f)
{
	int64_t got = c->route.acknowledged;

	if (c->replicas == 0 || got >= c->replicas)
		return true;
	fault_set(f, RC_AGAIN,
	    "%s: %d of its replicas confirmed the lock, not %d (wait-replicas)",
	    c->route.where, got > 0 ? (int)got : 0, c->replicas);
	return false;
}
