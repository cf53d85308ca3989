/*
 * dialect.h - how a lock is spoken of in Redis: names, commands, answers; no I/O.
 *
 * A dialect is a row: what it can do, what its keys are called, and its script.  There is
 * dlock's own (lock.lua), and those of other tools that lock in Redis, whose scripts
 * (dialects/) take the same words and give the same answers.
 */
#ifndef DLOCK_REDIS_DIALECT_H
#define DLOCK_REDIS_DIALECT_H

#include "address.h"
#include "answer.h"
#include "backends/backend.h"
#include "backends/common/url.h"
#include "script.h"

enum {
	NAME_BYTES = ENCODED_BYTES + KEY_BYTES + 16, /* slot.h puts a tag into it */
	RUN_BYTES = NAME_BYTES + 1 + 3 * ONCE_BYTES,
	NAMES = 6,
	CHANNEL_NAME = 4, /* of names.keys: no key, the channel's beginning */
};

/* The last word of what is said with sharded names. */
#define SHARDED "sharded"

/* What one claim is called on the server. */
struct names {
	char keys[NAMES][NAME_BYTES]; /* as KEYS of the script */
	int nkeys;
	bool
	    sharded; /* in a cluster: what is told on the channel, is told in the slot, too */
	/* where its owner is told to ask again; "": nobody is told, it asks often */
	char channel[NAME_BYTES + OWNER_CHARS];
	/* KEYS too, of a job (native): its last run */
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
	/* of RENEW: */
	uint64_t token; /* of the grant */
	/* of RELEASE: */
	bool held;  /* a hold is given back */
	int status; /* to be remembered if there is a job; or STATUS_NONE */
};

/* What a reply is. */
enum reading {
	READ_ANSWER,         /* of the script: *answer is set */
	READ_UNKNOWN_SCRIPT, /* to be written again, `whole` */
	READ_ERROR,          /* an error reply */
	READ_FOREIGN,        /* the same, and whoever held a lock there has lost it */
	READ_NO_SCRIPTS,     /* the same: it runs none, but `plainly` does without */
	READ_NONSENSE,       /* nothing that the script answers */
};

struct dialect {
	const char *name;
	unsigned lacks; /* CAP_ bits of what it cannot do */
	const struct script *claims, *looks;
	/* its names, of a claim or (without owner) of a lock that is looked at */
	void (*names)(struct names *, const struct claim *);
	/*
	 * Writes a request as one command (redisFreeCommand() it) and returns its
	 * length, -1 without memory.  `whole`: with the script, for a server that
	 * does not know it.
	 */
	int (*write)(char **command, const struct names *, const struct claim *,
	    const struct request *, bool whole);
	enum reading (*read)(struct answer *, const struct request *, const redisReply *);
	/*
	 * Does a request without a script, by commands that follow one another, on a
	 * server that runs none; NULL: it cannot.
	 */
	enum rc (*plainly)(struct call *, const struct names *, const struct claim *,
	    const struct request *, instant until, struct answer *, struct fault *);
};

extern const struct dialect dialect_native, dialect_string, dialect_redisson,
    dialect_redisson_fenced, dialect_redisson_rw, dialect_redisson_semaphore,
    dialect_redisson_fair;

/* What -O dialect= calls so; NULL: none. */
const struct dialect *dialect_named(const char *name);
extern const char dialect_names[]; /* all of them, for people */

/* The same for the setting: RC_USAGE, in words, if there is none. */
enum rc dialect_choose(const struct dialect **, const char *name, struct fault *);

/* dialect.names, as they are where such a form of Redis keeps them. */
void dialect_name(
    const struct dialect *, struct names *, enum form, const struct claim *);

/* The same for a look at the lock `key`, or what is done to it from outside. */
void dialect_name_lock(
    const struct dialect *, struct names *, enum form, const char *key);

/*
 * Of the other tools' dialects: the beginning of the name of each key of ours that stands
 * beside a lock, behind which scan of common.lua finds the lock's.
 */
enum { PREFIX_BYTES = 40 };
void dialect_side_prefix(const struct dialect *, char out[PREFIX_BYTES]);

#endif
