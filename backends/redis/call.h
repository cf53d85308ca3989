/*
 * call.h - questions to whichever server has the locks now, and their answers.
 *
 * The only place that asks elsewhere: it finds the server (topology.h), asks it
 * (server.h), and judges what came as far as it says that another one is to be asked.
 * With a single server there is nothing to judge: every reply is an answer.
 */
#ifndef DLOCK_REDIS_CALL_H
#define DLOCK_REDIS_CALL_H

#include "server.h"
#include "topology.h"

struct call {
	struct topology topology;
	struct server server; /* at the topology's place */
	unsigned moves;       /* of the topology, as the server has followed them */
	struct server aside;  /* a node to which the slot moves */
	struct endpoint aside_at;
	char aside_where[WHERE_BYTES];
	instant sent;         /* just before the question left that was answered last */
	int64_t acknowledged; /* as server.h */
	struct fault said;    /* why an answer could not be one */
	/* For the caller, who clears them: */
	bool asked;    /* something has been sent: a server may know of us */
	bool repeated; /* a question was asked twice: the first one may have been heard */
};

/* `password` as sentinels_new(). */
void call_init(
    struct call *, struct host *, const struct address *, const char *password);
void call_free(struct call *);

/*
 * RC_OK: *reply is the caller's (freeReplyObject() it); it may be an error reply.
 * RC_AGAIN: no server answers as a master, in words.  Others as server_ask().
 */
enum rc call_ask(struct call *, const struct question *, instant until,
    redisReply **reply, struct fault *);

/* The server that answered last, for messages. */
static inline const char *
call_where(const struct call *c)
{
	return c->topology.where;
}

/* As server_refused(), of that server. */
enum rc call_refused(const struct call *, char *text, struct fault *);

/* What comes next is no answer to what was asked. */
void call_close(struct call *);

/* Larger replies are let in from now on: pages of look.lua. */
void call_let_pages_in(struct call *);

#endif
