/*
 * route.h - which server has the locks now, and questions to it.
 *
 * With a single server there is nothing to find: every reply is an answer.  Otherwise a
 * server is found by the sentinels, or by what a node of the cluster said; it is trusted once
 * it has answered, and doubted when it does not, or says that it is no master: then it is
 * looked for again.  Each reply says what is next (resp.h).
 */
#ifndef DLOCK_REDIS_ROUTE_H
#define DLOCK_REDIS_ROUTE_H

#include "script.h"
#include "sentinel.h"
#include "server.h"

enum { NODES = 64 }; /* of a cluster that are remembered */

struct route {
	struct host *host;
	const struct address *address;
	const struct address *sentinel_address; /* who we are to them */
	struct server server;                   /* to be asked */
	bool found;                             /* by whatever finds it */
	bool trusted;                           /* it has answered as a master does */
	unsigned moves;                         /* how often it has been another one */
	struct sentinels *sentinels; /* FORM_SENTINEL, once they have been asked */
	struct endpoint *known;      /* FORM_CLUSTER: NODES of them, at first the URL's */
	size_t n, turn;              /* so many are; the one to try next */
	/* Of the question that was answered last: */
	instant sent;                  /* just before it left */
	const struct server *answered; /* by it, or by nobody */
	struct fault said;             /* why a reply could not be an answer */
	/* For the caller, who clears them: */
	bool asked;    /* something has been sent: a server may know of us */
	bool repeated; /* a question was asked twice: the first one may have been heard */
	/* A node to which the hash slot moves; NULL: there was none so far. */
	struct server *aside;
};

/* It is all 0; `sentinels` as sentinels_new(), with FORM_SENTINEL. */
void route_init(struct route *, struct host *, const struct address *,
    const struct address *sentinels);
void route_free(struct route *);

/*
 * RC_OK: *reply is the caller's (freeReplyObject() it); it may be an error reply.
 * RC_AGAIN: no server answers as a master, in words.  Others as server_ask().
 */
enum rc route_ask(struct route *, const struct question *, instant until,
    redisReply **reply, struct fault *);

/* ---- scripts ---- */

/*
 * Asks, as the question says that carries the script.  RC_OK: *reply is the caller's
 * (freeReplyObject() it), which may be an error reply.  Else it is NULL; as route_ask().
 */
enum rc script_ask(struct route *, const struct script_call *, struct question,
    instant until, redisReply **, struct fault *);

/*
 * The same until it is answered, by an array that begins as the shape says; an error reply
 * becomes what peer_refuses() says.
 */
enum rc script_run(struct route *, const struct script_call *, instant until,
    redisReply **, struct fault *, const char *shape, ...);

/* The answer that has just been given is none of the script's: RC_PROTOCOL. */
enum rc script_nonsense(struct route *, struct fault *);

/* ---- where ---- */

void route_close(struct route *);

/* RC_OK: `server` is the one to ask.  Otherwise as sentinels_ask(). */
enum rc route_find(struct route *, instant until, struct fault *);

/* It has not answered as a master does, or no longer. */
void route_doubt(struct route *);

/* A node of the cluster says that this one has the hash slot. */
void route_move(struct route *, const struct endpoint *to);

/*
 * The host and port that a node sends us to, "MOVED 15495 127.0.0.1:7401" or "ASK ...";
 * false: that is none.  A port alone is on the host of the node itself.
 */
bool route_redirection(const struct route *, const char *text, struct endpoint *to);

/*
 * RC_OK: *n masters of the cluster, as the node that is asked sees it, which may say as much as
 * resp_pages.  RC_SYSTEM: there are more than NODES.
 */
enum rc route_masters(struct route *, instant until, struct endpoint masters[NODES],
    size_t *n, struct fault *);

#endif
