/* listener.c - is told by the server that there is reason to ask again. */
#include "listener.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_PATIENCE (3 * NS_PER_S) /* for the rest of a message that has begun */

void
listener_init(struct listener *l, struct host *host, const struct address *a,
    const struct topology *t)
{
	*l = (struct listener){.topology = t};
	server_init(&l->server, host, a, t->where);
}

bool
listener_is_open(const struct listener *l)
{
	return server_is_open(&l->server);
}

void
listener_close(struct listener *l)
{
	server_close(&l->server);
}

void
listener_follow(struct listener *l)
{
	if (l->moves != l->topology->moves)
		listener_close(l);
}

/*
 * To the channel; with sharded names also to what stays in its slot.  The answer to that
 * comes as if it were a message: one more reason to ask, also where it says that the server
 * has no such thing.
 */
static int
write_subscribe(char **command, const struct names *names)
{
	const char *c = names->channel;
	size_t n = strlen(c);

	return asprintf(command,
	    names->sharded
		? "*2\r\n$9\r\nSUBSCRIBE\r\n$%zu\r\n%s\r\n*2\r\n$10\r\nSSUBSCRIBE\r\n$%zu\r\n%s\r\n"
		: "*2\r\n$9\r\nSUBSCRIBE\r\n$%zu\r\n%s\r\n",
	    n, c, n, c);
}

enum rc
listener_begin(
    struct listener *l, const struct names *names, instant until, struct fault *f)
{
	struct question q = {.messages = true};
	redisReply *reply = NULL;
	char *command;
	int length = write_subscribe(&command, names);
	enum rc rc;

	if (length < 0)
		return fault_set(f, RC_SYSTEM, "out of memory");
	q.command = command;
	q.length = length;
	if (l->moves != l->topology->moves) {
		server_go(&l->server, &l->topology->at, l->topology->where);
		l->moves = l->topology->moves;
	}
	rc = server_ask(&l->server, &q, until, &reply, f);
	free(command);
	if (rc != RC_OK || !reply)
		return rc;
	if (reply->type == REDIS_REPLY_ERROR)
		rc = server_refused(&l->server, reply->str, f);
	else if (reply->type != REDIS_REPLY_ARRAY)
		rc = fault_set(f, RC_PROTOCOL, "%s gave a wrong answer to SUBSCRIBE",
		    l->server.where);
	freeReplyObject(reply);
	if (rc != RC_OK)
		listener_close(l);
	return rc;
}

enum rc
listener_await(struct listener *l, instant until, struct fault *f)
{
	struct host *host = l->server.host;
	enum woke woke;
	enum rc rc;

	do
		woke = host->wait(host, server_descriptor(&l->server), POLLIN, until);
	while (
	    woke == WOKE_READY && server_is_quiet(&l->server) && instant_now() < until);
	if (woke != WOKE_READY)
		return woke == WOKE_STOP ? RC_STOP : RC_BUSY;
	rc = server_take_message(&l->server, instant_now() + REST_PATIENCE, f);
	return rc == RC_PROTOCOL ? RC_OK : rc;
}
