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
 *  4. A host's addresses are tried in turn, each with its share of the time.  Its name is
 *     resolved for each connection, since it may lead elsewhere by then.  One that
 *     `recalls` is reached where it was before if the resolver fails or takes half of the time:
 *     a hold is not to be lost with the resolver alone.  (The server of a URL with one host
 *     does not: its name may be moved to another one that is to have the locks.)
 *
 * hiredis formats the commands and builds the replies; its own I/O can neither keep a deadline
 * nor is it safe from SIGPIPE, so the bytes go through stream.h.
 */
#ifndef DLOCK_REDIS_FAN_H
#define DLOCK_REDIS_FAN_H

#include "address.h"
#include "backends/common/resolve.h"
#include "backends/common/stream.h"
#include "resp.h"

enum peer_state {
	PEER_IDLE,       /* nothing is asked of it */
	PEER_RESOLVING,  /* the question waits for its addresses */
	PEER_CONNECTING, /* to one of them: it has not taken anything yet */
	PEER_ASKED,      /* it has been sent some of the question, or is open */
};

/* One of the servers, and the connection to it. */
struct peer {
	struct endpoint at;
	char where[WHERE_BYTES]; /* the same for people */
	struct stream stream;
	const struct resp_bounds *bounds; /* from the next connection on */
	const struct address *address;    /* who we are there */
	bool recalls;                     /* its name is always this one server's */
	enum peer_state state;
	struct sockaddr_storage last; /* where it was reached */
	socklen_t last_size;          /* 0: nowhere */
	struct inbox inbox;           /* of the stream */
	/* The question; and what is to be sent on this connection. */
	char *command, *out;
	size_t length, to_send, sent;
	instant due, address_due;
	struct lookup *lookup;       /* PEER_RESOLVING; else NULL */
	struct addresses *addresses; /* until it has taken something; else NULL */
	size_t next;                 /* of them */
	short watched;               /* events that the epoll descriptor has */
	unsigned begun;              /* connections, so far */
	bool reused;                 /* the connection was open before the question */
	int greets, greeted;         /* AUTH and SELECT; answers to them */
	int owed;                    /* answers to earlier questions, still to come */
	int heard;                   /* answers to the question */
	/* Of the question, from the caller, who sets them before fan_say(): */
	size_t once;     /* so many bytes at its end are not sent a second time */
	bool continues;  /* what was said on this connection: on no other one */
	bool subscribes; /* more may come behind the answer */
	/* For the caller: */
	bool lenient;  /* set by it: that the login is refused is noted, and no failure */
	bool refused;  /* it was */
	bool told;     /* some of the question has been sent: the server may know of it */
	bool repeated; /* it was sent twice: the first one may have been heard */
	enum rc rc;    /* when it is idle: RC_OK, or why there is no answer */
	struct fault fault;
};

/* May it still answer? */
static inline bool
peer_is_busy(const struct peer *p)
{
	return p->state != PEER_IDLE;
}

enum { FAN_LATE = -1 };

enum heard {
	HEARD_MORE,  /* there is more to come, perhaps to what fan_say_more() has said */
	HEARD_ALL,   /* it is answered; peer->rc may be set to what that comes to */
	HEARD_WRONG, /* peer->rc and fault say why; the connection is to be closed */
};

/*
 * Reads answer `number`, from 0 on, of peer `i` to its question; FAN_LATE: one to an earlier
 * question.  The reply is the fan's unless it is taken: set to NULL.
 */
typedef enum heard fan_hear_fn(void *ctx, size_t i, int number, redisReply **);

struct fan {
	struct host *host;
	fan_hear_fn *hear;
	void *ctx;
	int epoll; /* of several */
	size_t n;
	struct peer *peers;
};

/*
 * Of all hosts of the address, which is not copied.  `before` stands before their names for
 * people: "sentinel ".  None says more than the bounds.  False: no descriptor, or no memory,
 * is left.
 */
bool fan_begin(struct fan *, struct host *, const struct address *, const char *before,
    const struct resp_bounds *, fan_hear_fn *, void *ctx);

/* Also of a fan that is all 0. */
void fan_end(struct fan *);

/* Of one peer, which is the caller's, at the first host of the address; without an end. */
void fan_begin_one(struct fan *, struct host *, const struct address *, struct peer *,
    fan_hear_fn *, void *ctx);

/*
 * What the error reply `text` means, to a question or (`looks`) to a look, in words; never
 * RC_OK.  `key` as in resp_rights().  A password in the text is blotted out.
 */
enum rc peer_refuses(
    const struct peer *, bool looks, const char *key, char *text, struct fault *);

/*
 * Asks a peer, until `due` at the latest.  The command is the fan's from then on, which frees
 * it; NULL says that there was no memory for it.
 */
void fan_say(struct fan *, struct peer *, char *command, instant due);

/* The same for what follows the answer that is being read. */
void fan_say_more(struct peer *, char *command);

/*
 * Waits until enough() says so, nobody is busy any more, or `until`; NULL: not before.
 * RC_OK or RC_STOP.
 */
enum rc fan_hear(struct fan *, instant until, bool (*enough)(void *ctx));

/* The peer's connection is closed, and its answer not waited for. */
void fan_close(struct peer *);

/*
 * The next reply (freeReplyObject() it) on an open connection, without waiting: *reply is NULL
 * while it has not come.  Else the connection is closed; RC_PROTOCOL: what came is none, or
 * too large.
 */
enum rc peer_receive(struct peer *, redisReply **reply, struct fault *);

#endif
