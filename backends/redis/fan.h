/*
 * fan.h - one question to each of several servers, all at once, until enough have answered.
 *
 * Where there are several, their descriptors are in one epoll descriptor, which is what the
 * host waits for; what comes is read only inside fan_hear().  Connections stay open from
 * question to question.  On a new one AUTH and SELECT travel in front of the question, in the
 * same packet.
 *
 *  1. A question to a server that still owes the answer to the one before is sent behind
 *     that; the answer that is owed comes late.  So a server carries out questions in their
 *     order.  One that it has not been sent yet is replaced.
 *  2. A connection on which an answer is overdue is closed; the next question opens another.
 *  3. A connection that dies under the first question on it is not opened anew.  One that was
 *     open before may have died of idleness: the question gets a second chance.
 *  4. A host's addresses are tried in turn, each with its share of the time.
 *
 * What is asked, and what an answer means, is the caller's: one server is a fan of one
 * (server.h); Sentinel and Redlock ask several.
 */
#ifndef DLOCK_REDIS_FAN_H
#define DLOCK_REDIS_FAN_H

#include "wire.h"

/* One of the servers. */
struct peer {
	/* From fan_set(): */
	struct wire wire;
	const struct address *address; /* who we are there */
	const struct endpoint *at;
	/* The question; and what is to be sent on this connection. */
	char *command, *out;
	size_t length, to_send, sent;
	instant due, address_due;
	struct addresses addresses; /* none: to be resolved */
	struct lookup *lookup;      /* of one that is pending, within fan_hear() */
	size_t next;                /* of them */
	short watched;              /* events that the epoll descriptor has */
	bool fresh; /* its name is resolved for each connection: it may lead elsewhere */
	bool pending;        /* nobody has begun to connect */
	bool connecting;     /* nothing has been taken yet on this connection */
	bool reused;         /* the connection was open before the question */
	int greets, greeted; /* AUTH and SELECT; answers to them */
	int owed;            /* answers to earlier questions, still to come */
	int heard;           /* answers to the question */
	/* Of the question, from the caller, who sets them before fan_say(): */
	size_t once; /* so many bytes at its end are not sent a second time */
	bool
	    continues; /* it goes on with what was said on this connection, and on no other */
	bool subscribes; /* more may come behind the answer */
	/* For the caller: */
	bool busy; /* it may still answer */
	bool told; /* some of the question has been sent: the server may know of it */
	/* the question was sent twice: the first one may have been heard */
	bool repeated;
	enum rc rc; /* when it is not busy: RC_OK, or why there is no answer */
	struct fault fault;
};

enum { FAN_LATE = -100 };

enum heard {
	HEARD_MORE,  /* there is more to come, perhaps to what fan_say_more() has said */
	HEARD_ALL,   /* it is answered; peer->rc may be set to what that comes to */
	HEARD_WRONG, /* peer->rc and fault say why; the connection is to be closed */
};

/*
 * Reads answer `number` of peer `i`: from 0 on those to its question, below 0 those to the
 * greeting, of which the last one is -1; FAN_LATE: one to an earlier question.  The reply is
 * the fan's unless it is taken: set to NULL.
 */
typedef enum heard fan_hear_fn(void *ctx, size_t i, int number, redisReply **);

struct fan {
	struct host *host;
	fan_hear_fn *hear;
	void *ctx;
	int epoll; /* of several */
	size_t n;
	struct peer *peers; /* not owned */
};

/*
 * The peers are all 0, and nothing is asked before fan_set() of all.  False: errno says why
 * there is no descriptor for several.
 */
bool fan_begin(
    struct fan *, struct host *, struct peer *, size_t n, fan_hear_fn *, void *ctx);

/* Also of a fan that is all 0. */
void fan_end(struct fan *);

/*
 * Peer `i` is there, is called `where` by people, and says no more than the bounds.  Nothing
 * is copied.
 */
void fan_set(struct fan *, size_t i, const struct address *, const struct endpoint *at,
    const char *where, const struct resp_bounds *);

/*
 * Was this answer to the greeting (number < 0) taken?  HEARD_MORE or HEARD_WRONG.  What a
 * server answers to AUTH is not quoted: it may repeat the password.
 */
enum heard fan_hear_greeting(struct peer *, int number, redisReply *);

/*
 * What the error reply `text` means, to a question or (`looks`) to a look, in words; never
 * RC_OK.  A password in it is blotted out.
 */
enum rc peer_refuses(const struct peer *, bool looks, char *text, struct fault *);

/*
 * Asks a peer, until `due` at the latest.  The command is the fan's from then on, which frees
 * it; a length below 0 says that there was no memory for it.
 */
void fan_say(struct fan *, struct peer *, char *command, int length, instant due);

/* The same for what follows the answer that is being read. */
void fan_say_more(struct peer *, char *command, int length);

/*
 * Waits until enough() says so, nobody is busy any more, or `until`; NULL: not before.
 * RC_OK or RC_STOP.
 */
enum rc fan_hear(struct fan *, instant until, bool (*enough)(void *ctx));

/* The peer's connection is closed, and its answer not waited for. */
void fan_close(struct peer *);

#endif
