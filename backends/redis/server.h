/*
 * server.h - questions to one Redis server, and their answers, on one connection.
 *
 * It is a fan of one (fan.h).  Which server it is can change (server_go): route.h knows where
 * the locks are.
 */
#ifndef DLOCK_REDIS_SERVER_H
#define DLOCK_REDIS_SERVER_H

#include "fan.h"

enum {
	REPLIES_MOST = 8,
	HEALTH_ANSWERS = 3,
	REPLIES_ALL = REPLIES_MOST + 1 + HEALTH_ANSWERS,
	HEALTH_BYTES = 320,
};

/* In what ways a server may lose locks; NULL: not in this one, or it does not tell. */
struct health {
	char policy[32];
	const char *evicts;  /* the policy by which it evicts keys */
	const char *forgets; /* what it forgets when, as a clause */
};

/* INFO tells a string, CONFIG GET the second of two; NULL: we are not told, as in an error. */
const char *health_text(const redisReply *);

/* From its answers to INFO memory, INFO persistence and CONFIG GET save. */
void health_read(struct health *, redisReply *const answers[HEALTH_ANSWERS]);

/*
 * The same as the rest of a sentence ("it evicts keys ... and ..."), below HEALTH_BYTES.
 * False: in no way that is known.
 */
bool health_risks(redisReply *const answers[HEALTH_ANSWERS], char *out, size_t size);

/* The value of "name:value" in a section of INFO; "" when it is not there or too long. */
void health_field(const char *info, const char *name, char *out, size_t size);

/* One or several commands, and what goes in one packet with them. */
struct question {
	const char *command; /* as resp_write() writes it, without a NUL */
	size_t several;      /* commands, up to REPLIES_MOST; 0: it is one */
	/*
	 * A PING travels in front of the command.
	 * Redis writes out the answers of one round last come, first served;
	 * having been heard first, we are answered last, so that whom our
	 * release wakes begins before we take the processor to clean up
	 * (hand-off 1.6 to 1.4 x flock).
	 */
	bool ping_first;
	/*
	 * behind it, once for each server, it is asked how it is set: a host->notice if
	 * it may lose locks
	 */
	bool inspect;
	bool asking;  /* the slot moves to this node: its answer is wanted all the same */
	int replicas; /* wait for so many to have what it wrote; 0: for none */
	bool claimed; /* what it asks for is granted by the true master alone */
	bool settles; /* what is answered is the last word on a hold */
	bool
	    persist; /* it is asked again if it fails, until the time is over (route.c) */
	bool continues;  /* it goes on with what was said on this connection alone */
	bool subscribes; /* more may come behind the answer */
};

struct server {
	struct fan fan;
	struct peer peer; /* the only one of the fan */
	bool inspected;   /* it has been asked how it is set */
	/* Of the question that is being asked: */
	const struct question *question;
	size_t before, own; /* answers in front of its own; of its own, with WAIT's */
	bool inspects;
	redisReply *replies[REPLIES_ALL];
	redisReply *early; /* an error in front of them; NULL: none */
	/* Of the question that was answered last, with `replicas`: how many did; -1, and why */
	int64_t acknowledged;
	struct fault unacknowledged; /* "": it has not been said */
};

/* It is all 0, and at the first host of the address, which is not copied. */
void server_init(struct server *, struct host *, const struct address *);

/* From now on it is another one: closes the connection to the one before. */
void server_go(struct server *, const struct endpoint *to);

/*
 * Sends a question and reads the answer: the one that is due and nothing behind it.
 *
 * RC_OK: *reply is the caller's (freeReplyObject() it); it may be an error reply.  To several
 * commands it is an array of their replies, or the first of these that is an error.  What a
 * server says before it closes the connection is its answer, too.
 * Otherwise it is NULL, and the connection is closed: see stream.h; RC_DENIED, RC_CONFIG
 * and others of peer_refuses(): the login did not succeed.
 */
enum rc server_ask(struct server *, const struct question *, instant until,
    redisReply **reply, struct fault *);

void server_close(struct server *);

#endif
