/*
 * ask.h - runs of dlock's scripts, put together word by word.
 *
 * Each is asked for by its hash; a server that does not know it (it was restarted) is sent
 * the whole script.  What its answer looks like is declared where it is read: answer.h.
 */
#ifndef DLOCK_REDIS_ASK_H
#define DLOCK_REDIS_ASK_H

#include "route.h"

struct script {
	const char *text; /* not ended by a NUL */
	size_t length;
	const char *sha1;
};

extern const struct script script_lock, script_look, script_redlock, script_string,
    script_redisson, script_redisson_rw, script_redisson_semaphore, script_redisson_fair;

enum { SCRIPT_WORDS = 48, SCRIPT_NUMBERS = 6 };

/* The last word of what is said with sharded names. */
#define SHARDED "sharded"

/* Keys come before other words; all are texts that outlive the call. */
struct script_call {
	const struct script *script;
	/* it writes nothing: a replica, or a user who may not write, can run it */
	bool reads;
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

/* As one command (redisFreeCommand() it); returns its length, -1 without memory. */
int script_write(char **command, const struct script_call *, const struct manner *);

/* Does the reply say that the script is to be sent in another manner?  It is changed to that. */
bool script_change(struct manner *, const redisReply *);

/*
 * Asks, as the question says that carries the script.  RC_OK: *reply is the caller's
 * (freeReplyObject() it), which may be an error reply.  Else it is NULL; as route_ask().
 */
enum rc script_ask(struct route *, const struct script_call *, struct question,
    instant until, redisReply **, struct fault *);

/*
 * The same until it is answered, for an array; an error reply becomes what
 * server_refused() says.
 */
enum rc script_run(struct route *, const struct script_call *, instant until,
    redisReply **, struct fault *);

/* The answer that has just been given is none of the script's: RC_PROTOCOL. */
enum rc script_nonsense(struct route *, struct fault *);

#endif
