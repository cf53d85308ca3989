/*
 * dialect.h - how a lock is spoken of in Redis: names, commands, answers; no I/O.
 *
 * A dialect is a row of functions.  There is one today, dlock's own (lock.lua);
 * that of another tool that locks in Redis would be a second.
 */
#ifndef DLOCK_REDIS_DIALECT_H
#define DLOCK_REDIS_DIALECT_H

#include "answer.h"
#include "backends/backend.h"
#include "backends/encode.h"

enum {
	NAME_BYTES = ENCODED_BYTES + KEY_BYTES + 16, /* slot.h puts a tag into it */
	RUN_BYTES = NAME_BYTES + 1 + 3 * ONCE_BYTES,
	NAMES = 6,
	CHANNEL_NAME = 4, /* of names.keys: no key, the channel's beginning */
};

/* What one claim is called on the server. */
struct names {
	char keys[NAMES][NAME_BYTES];           /* as KEYS of the script */
	char channel[NAME_BYTES + OWNER_CHARS]; /* where its owner is told to ask again */
	/* KEYS too, of a job: its last run */
	char last[NAME_BYTES];
	/* and the one that did its ID; "" without an ID */
	char done[RUN_BYTES];
};

/* What is to be asked for a claim. */
struct request {
	enum operation operation;
	/* of ACQUIRE: */
	int64_t alive;   /* so long we count as alive in the queue; 0: not to queue */
	bool subscribed; /* to our channel */
	uint64_t ticket; /* the place we had; 0: none */
	/* of RELEASE: */
	int status; /* to be remembered if there is a job; or STATUS_NONE */
};

/* What a reply is. */
enum reading {
	READ_ANSWER,         /* of the script: *answer is set */
	READ_UNKNOWN_SCRIPT, /* to be written again, `whole` */
	READ_ERROR,          /* an error reply */
	READ_FOREIGN,        /* the same, and whoever held a lock there has lost it */
	READ_NONSENSE,       /* nothing that the script answers */
};

/* What the lock is called: all but what is a claim's own. */
void dialect_name_lock(struct names *, const char *key);

struct dialect {
	void (*name)(struct names *, const struct claim *);
	/*
	 * Writes a request as one command (redisFreeCommand() it) and returns its
	 * length, -1 without memory.  `whole`: with the script, for a server that
	 * does not know it.
	 */
	int (*write)(char **command, const struct names *, const struct claim *,
	    const struct request *, bool whole);
	enum reading (*read)(struct answer *, const struct request *, const redisReply *);
};

extern const struct dialect dialect_native;

#endif
