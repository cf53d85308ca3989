/*
 * script.h - runs of dlock's scripts, put together word by word.
 *
 * Each is asked for by its hash first; a server that does not know it (it was restarted)
 * is sent the whole script.  lock.lua itself is asked for in the words of dialect.h where
 * it is asked for a claim.
 */
#ifndef DLOCK_REDIS_SCRIPT_H
#define DLOCK_REDIS_SCRIPT_H

#include "call.h"

struct script {
	const char *text; /* not ended by a NUL */
	size_t length;
	const char *sha1;
};

extern const struct script script_lock, script_look, script_redlock, script_string,
    script_redisson, script_redisson_rw, script_redisson_semaphore, script_redisson_fair;

enum { SCRIPT_WORDS = 48 };

/* Keys come before other words; all are texts that outlive the call. */
struct script_call {
	const struct script *script;
	bool
	    reads; /* it writes nothing: a replica, or one who may not write, can run it */
	int keys;
	int n;
	const char *words[SCRIPT_WORDS];
};

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

/*
 * Asks, and gives the answer with RC_OK, else NULL: an array (freeReplyObject() it).  An
 * error reply becomes what server_refused() says.
 */
enum rc script_run(struct call *, const struct script_call *, instant until,
    redisReply **, struct fault *);

/* The answer that has just been given is none of the script's: RC_PROTOCOL. */
enum rc script_nonsense(struct call *, struct fault *);

#endif
