/* cluster.c - reads CLUSTER SLOTS. */
#include "cluster.h"

#include <string.h>

/* The master of {first slot, last slot, {host, port, ...}, ...}; false: it is none. */
static bool
master_of(const struct call *c, const redisReply *range, struct endpoint *to)
{
	const redisReply *node = range->type == REDIS_REPLY_ARRAY && range->elements > 2
	    ? range->element[2]
	    : NULL;
	bool here;

	if (!node || node->type != REDIS_REPLY_ARRAY || node->elements < 2 ||
	    node->element[1]->type != REDIS_REPLY_INTEGER ||
	    node->element[1]->integer < 1 || node->element[1]->integer > 65535)
		return false;
	*to = c->topology.at; /* a node may not know its own host */
	to->port = node->element[1]->integer;
	here = node->element[0]->type == REDIS_REPLY_NIL ||
	    (node->element[0]->type == REDIS_REPLY_STRING && node->element[0]->len == 0);
	return here ||
	    (node->element[0]->type == REDIS_REPLY_STRING &&
		!endpoint_plain(
		    to, node->element[0]->str, node->element[0]->len, "1", 1) &&
		(to->port = node->element[1]->integer) > 0);
}

/* Each once, though it may have many ranges of slots; false: too many. */
static bool
add(struct endpoint *masters, size_t *n, const struct endpoint *to)
{
	for (size_t i = 0; i < *n; i++)
		if (endpoint_is(&masters[i], to))
			return true;
	if (*n == NODES)
		return false;
	masters[(*n)++] = *to;
	return true;
}

static enum rc
read_slots(struct call *c, const redisReply *reply, struct endpoint *masters, size_t *n,
    struct fault *f)
{
	struct endpoint to;

	for (size_t i = 0; i < reply->elements; i++) {
		if (!master_of(c, reply->element[i], &to))
			return fault_set(f, RC_PROTOCOL,
			    "%s gave a wrong answer to CLUSTER SLOTS", call_where(c));
		if (!add(masters, n, &to))
			return fault_set(f, RC_SYSTEM,
			    "%s has more than %d masters, which dlock cannot list",
			    call_where(c), NODES);
	}
	return RC_OK;
}

enum rc
cluster_masters(struct call *c, instant until, struct endpoint masters[NODES], size_t *n,
    struct fault *f)
{
	static const char command[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";
	struct question q = {
	    .command = command, .length = sizeof command - 1, .persist = true};
	redisReply *reply = NULL;
	enum rc rc = call_ask(c, &q, until, &reply, f);

	*n = 0;
	if (rc != RC_OK || !reply)
		return rc;
	if (reply->type == REDIS_REPLY_ARRAY)
		rc = read_slots(c, reply, masters, n, f);
	else
		rc = reply->type == REDIS_REPLY_ERROR
		    ? call_refused(c, reply->str, f)
		    : fault_set(f, RC_PROTOCOL, "%s gave a wrong answer to CLUSTER SLOTS",
			  call_where(c));
	freeReplyObject(reply);
	return rc;
}
