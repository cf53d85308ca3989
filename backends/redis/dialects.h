/*
 * dialects.h - how a lock is spoken of in Redis: names, words, replies; no I/O.
 *
 * A dialect is a row of a table: what it cannot do, what its keys are called, and its script.
 * There is dlock's own (lock.lua), and those of other tools that lock in Redis, whose scripts
 * (dialects/) take the same words and give the same answers.  One more is a row and a script.
 */
#ifndef DLOCK_REDIS_DIALECTS_H
#define DLOCK_REDIS_DIALECTS_H

#include "backends/common/encode.h"
#include "route.h"

enum {
	/* a tag may stand in front of the key */
	NAME_BYTES = ENCODED_BYTES + KEY_BYTES + 16,
	RUN_BYTES = NAME_BYTES + 1 + 3 * ONCE_BYTES,
	NAMES = 8,
};

/* What one claim is called on the server. */
struct names {
	/*
	 * as KEYS of the script; behind nkeys of them, those of a job (native): its last
	 * run, and the one that did its ID
	 */
	const char *keys[NAMES];
	int nkeys;
	/* in a cluster: what is told on the channel is told in the hash slot, too */
	bool sharded;
	/* where its owner is told to ask again; "": nobody is told, it asks often */
	const char *channel;
	/* theirs, one behind the other: most together touch one page */
	char text[NAMES * RUN_BYTES + NAME_BYTES + OWNER_CHARS];
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
	bool held;              /* a hold is given back */
	struct outcome outcome; /* to be remembered if that is wanted */
	bool counts; /* what is remembered keeps others from running it again */
};

struct dialect {
	const char *name;
	unsigned lacks; /* CAP_ bits of what it cannot do */
	const struct script *claims;
	const struct script *looks; /* native; the others have one script for all */
	/* its names; dialects.c says what stands for what */
	const char *keys[NAMES], *channel;
	bool plain; /* transaction.c does without scripts */
};

enum { DIALECT_NATIVE, DIALECT_STRING, DIALECTS = 8 };
extern const struct dialect dialects[DIALECTS];

/*
 * Another tool's.  One key of ours stands beside each lock; its name begins with
 * "dlock:DIALECT:", behind which scan of common.lua finds the lock's.
 */
static inline bool
dialect_is_foreign(const struct dialect *d)
{
	return !d->looks;
}

/* What -O dialect= calls so; NULL: none. */
const struct dialect *dialect_named(const char *name);

/* Names a claim, or (with the owner "") a lock, as such a form of Redis keeps it. */
void dialect_name(
    const struct dialect *, struct names *, enum form, const struct claim *);

/* Do the locks of both lie in one hash slot, whatever the cluster? */
bool dialect_shares_slot(const char *key, const char *other);

/* Puts a request into words; names, claim and request outlive these. */
void dialect_say(const struct dialect *, struct script_call *, const struct names *,
    const struct claim *, const struct request *);

#endif
