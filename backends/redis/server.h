/*
 * server.h - questions to one Redis server, and their answers, on one connection.
 *
 * Whoever asks need not think of the connection: it is opened and logged in
 * (AUTH, SELECT in front of the first question, in the same packet) when it is
 * needed.  What is asked is no matter of this file: it knows nothing of locks.
 *
 * Which server it is can change (server_go): route.h knows where the locks are.
 */
#ifndef DLOCK_REDIS_SERVER_H
#define DLOCK_REDIS_SERVER_H

#include "address.h"
#include "wire.h"

struct server {
	struct wire wire;
	struct host *host;
	const struct address *address; /* who we are there; not owned */
	const struct endpoint *at;     /* where it is; not owned */
	const char *where;             /* the same for people; not owned */
	bool inspected;                /* it has been asked how it is set */
	int64_t acknowledged; /* of a question with `replicas`: how many did; -1 */
	/* For the caller, who clears them: */
	bool asked;    /* something has been sent: the server may know of us */
	bool repeated; /* a question was asked twice: the first one may have been heard */
};

/* A command, and what goes in one packet with it. */
struct question {
	const char *command; /* as redisFormatCommandArgv() writes it */
	size_t length;
	/*
	 * A PING travels in front of the command on a connection that is open.
	 * Redis writes out the answers of one round last come, first served;
	 * having been heard first, we are answered last, so that whom our
	 * release wakes begins before we take the processor to clean up
	 * (hand-off 1.6 to 1.4 x flock).
	 */
	bool ping_first;
	/*
	 * health_questions behind it, once for each server: a host->notice if they find
	 * something
	 */
	bool inspect;
	bool asking;  /* the slot moves to this node: its answer is wanted all the same */
	int replicas; /* wait for so many to have what it wrote; 0: for none */
	bool claimed; /* what it asks for is granted by the true master alone */
	bool settles; /* what is answered is the last word on a hold */
	bool
	    persist; /* nobody asks again if it fails: until the time is over, route.c does */
	/*
	 * it goes on with what was said on this connection: on another one it is not said
	 */
	bool continues;
	bool messages; /* more may come behind the answer: it begins a subscription */
};

/* At the first host of the address. */
void server_init(
    struct server *, struct host *, const struct address *, const char *where);

/* From now on it is another one: closes the connection to the one before. */
void server_go(struct server *, const struct endpoint *at, const char *where);

/*
 * Sends a question and reads the answer: the one that is due and nothing behind
 * it.  A connection that died of idleness, or on which somebody spoke unasked,
 * is opened anew; one that dies under the question gets a second chance.
 *
 * RC_OK: *reply is the caller's (freeReplyObject() it); it may be an error
 * reply.  Otherwise the connection is closed: see stream.h; RC_DENIED, RC_CONFIG
 * and others of server_refused(): the login did not succeed.
 */
enum rc server_ask(struct server *, const struct question *, instant until,
    redisReply **reply, struct fault *);

/*
 * What the error reply `text` means, to a question or to a look, in words; never RC_OK.  A
 * password in it is blotted out.
 */
enum rc server_refused(const struct server *, char *text, struct fault *);

/* The same of a server that is called `where`; `looks`: we only want to look. */
enum rc server_refuses(
    const char *where, const struct address *, bool looks, char *text, struct fault *);

/* ---- the greeting ---- */

/* What may travel in front of a question. */
enum greeting { GREET_PING, GREET_AUTH, GREET_SELECT, GREET_ASKING };

struct greetings {
	char text[1024];
	size_t used;
	enum greeting kinds[3];
	int n;
};

/* False without memory. */
bool greetings_add(struct greetings *, enum greeting, int argc, const char **argv);

/* AUTH and SELECT, as far as needed; false without memory. */
bool greetings_login(struct greetings *, const struct address *);

/* Was it taken?  Else why not, in words; an answer to AUTH is not quoted. */
enum rc greeting_taken(enum greeting, const char *where, const struct address *,
    const redisReply *, struct fault *);

void server_close(struct server *);

#endif
