/*
 * script.h - runs of dlock's scripts, put together word by word, and what they answer.
 *
 * Each is asked for by its hash; a server that does not know it (it was restarted) is sent
 * the whole script.
 *
 * An answer is checked before anybody computes with it: it is read by a declared shape, a
 * letter for each member; nothing else reads one.  Others may write into a lock's keys, so a
 * number from there may be anything: what is of the wrong type or impossible is refused,
 * what is merely absurd (a lease for a thousand years) is cut to what can be computed with.
 */
#ifndef DLOCK_REDIS_SCRIPT_H
#define DLOCK_REDIS_SCRIPT_H

#include "backends/backend.h"
#include "resp.h"

#include <stdarg.h>

/* ---- what is said ---- */

struct script {
	const char *text; /* not ended by a NUL */
	size_t length;
	const char *sha1;
};

enum { SCRIPT_WORDS = 48, SCRIPT_NUMBERS = 6 };

/* The last word of what is said with sharded names. */
#define SHARDED "sharded"

/* Keys come before other words; all are texts that outlive the call. */
struct script_call {
	const struct script *script;
	/* it writes nothing: a replica, or a user who may not write, can run it */
	bool reads;
	int replicas; /* as in struct question */
	int keys, n;
	const char *words[SCRIPT_WORDS];
	/* texts of its own, for words */
	int used;
	char numbers[SCRIPT_NUMBERS][24], kind[16];
};

/* How it is sent: by its hash or as a whole; before Redis 7, not as one that reads. */
struct manner {
	bool whole, reads;
};

/* The first of its KEYS; NULL: it has none. */
static inline const char *
script_about(const struct script_call *c)
{
	return c->keys > 0 ? c->words[0] : NULL;
}

void script_begin(struct script_call *, const struct script *);

static inline void
script_key(struct script_call *c, const char *key)
{
	c->words[c->n++] = key;
	c->keys++;
}

static inline void
script_word(struct script_call *c, const char *word)
{
	c->words[c->n++] = word;
}

void script_number(struct script_call *, int64_t);

/* As one command (free() it); NULL: without memory. */
char *script_write(const struct script_call *, const struct manner *);

/* Does the reply say that the script is to be sent in another manner?  It is changed to that. */
bool script_change(struct manner *, const redisReply *);

/* ---- what is answered ---- */

/* no lease and no cooldown is longer than a year */
#define ANSWER_MS_MOST (366LL * 86400 * 1000)
/* ms since 1970: the end of the year 9999 */
#define ANSWER_TIME_MOST (253402300799LL * 1000)
#define TOKEN_LIMIT (1ULL << 53) /* Redis computes with doubles */

enum operation { ACQUIRE, RENEW, RELEASE };

enum answer_code {
	/* acquire: the key is in use as a lock of another kind */
	ANSWER_OTHER_KIND = -1,
	/* acquire: it waits, or others hold; renew, release: it does not hold */
	ANSWER_NOT_HOLDER = 0,
	ANSWER_HOLDER = 1, /* release: it was until now */
	ANSWER_WAITER = 2, /* release: it was in the queue */
	/* release: it was until now, but its run could not be written down */
	ANSWER_UNREMEMBERED = 3,
	ANSWER_DONE = 4,    /* acquire: the job's ID is done */
	ANSWER_RECENT = 5,  /* acquire: its cooldown is not over */
	ANSWER_REVOKED = 6, /* renew: it holds, and is asked to give it up */
};

/* Texts are hostile, and cut to size. */
struct answer {
	enum answer_code code;
	/* Of acquire and renew, to a holder: */
	uint64_t token; /* 1 to TOKEN_LIMIT - 1 */
	unsigned slot;  /* below LIMIT_MAX */
	/* Of acquire, to a waiter: */
	unsigned place;  /* from 1; 0: there is no queue */
	uint64_t ticket; /* below TOKEN_LIMIT */
	/* until a lease or a freeze ends, 0 to ANSWER_MS_MOST; 0: none does */
	int64_t left_ms;
	/* what it waits for; of ANSWER_OTHER_KIND: how the key is in use */
	struct holding holding;
	/* Of acquire, when the job is done: */
	int64_t began_ms; /* since 1970, to ANSWER_TIME_MOST; -1: not known */
	int64_t status;   /* of ANSWER_DONE: 0 to 255 */
	int64_t age_ms;   /* of ANSWER_RECENT: 0 to ANSWER_MS_MOST */
	/* who did the job; of renew and release: who has revoked it; "": not known */
	char who[RECORD_BYTES];
};

/*
 * Reads members `first`, first + 1, ... of an array into what the letters of the shape say;
 * more members may follow.  False: one is missing, or is of another type.
 *	s	const char **: words of others, up to a NUL
 *	w	const char **: a word, which has no NUL
 *	i	int64_t *: an integer
 *	n	int64_t *: an integer, or the digits of one below 10^18
 *	o	int64_t *: the same, or -1 for a text that has other characters
 *	t	uint64_t *: a token, in digits
 *	a	const redisReply **: an array
 */
bool answer_members(const redisReply *, size_t first, const char *shape, ...);
bool answer_vmembers(const redisReply *, size_t first, const char *shape, va_list);

/* The value behind this name in a list of names and values; "": it is not there. */
const char *answer_setting(const redisReply *, const char *name);

/* Wrong if it is below `low`; else it is cut to `most`. */
bool answer_bound(int64_t *, int64_t low, int64_t most);

/* A kind as the script names it: "x", "s", or "l" and the limit (else 0); false: none. */
bool answer_kind(const char *text, enum lock_kind *, unsigned *limit);

/*
 * Reads a reply of the script; its first lines say what it answers to each
 * operation, and the first number is an answer_code.  False: the script gives no
 * such answer.
 */
bool answer_read(struct answer *, const redisReply *, enum operation);

#endif
