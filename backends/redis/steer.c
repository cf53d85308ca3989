/* steer.c - takes locks away, freezes keys, and forgets runs, on one Redis server. */
#include "redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_BYTES = 24 };

/*
 * One run of the dialect's script, on a claim's lock: the operation, the owner ("": nobody),
 * and what else it wants to hear, up to a NULL.  Its answer is {1}, or {0}: what is meant is
 * not there.
 */
static enum rc
steer_claim(struct store *s, const struct claim *claim, const char *const *words,
    const char *missing, instant until, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct script_call call;
	struct claim named = *claim;
	struct names names;
	redisReply *reply;
	int64_t done;
	int runs = claim->job.once ? 2 : claim->job.cooldown ? 1 : 0;
	enum rc rc;

	named.key = store_key(&r->store, claim->key);
	dialect_name(r->store.dialect, &names, r->store.address.form, &named);
	script_begin(&call, r->store.dialect->claims);
	for (int i = 0; i < names.nkeys + runs; i++)
		script_key(&call, names.keys[i]);
	for (; *words; words++)
		script_word(&call, *words);
	if (names.sharded)
		script_word(&call, SHARDED);
	rc = script_run(&r->route, &call, until, &reply, f, "i", &done);
	if (rc != RC_OK)
		return rc;
	freeReplyObject(reply);
	if (done == 1)
		return RC_OK;
	return done == 0
	    ? fault_set(f, RC_LOST, "%s: %s", r->route.server.peer.where, missing)
	    : script_nonsense(&r->route, f);
}

/* On the lock of a key. */
static enum rc
steer_run(struct store *s, const char *key, const char *const *words, const char *missing,
    instant until, struct fault *f)
{
	return steer_claim(
	    s, &(struct claim){.key = key, .owner = ""}, words, missing, until, f);
}

enum rc
steer_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	char token[NUMBER_BYTES];

	snprintf(token, sizeof token, "%" PRIu64, t->token);
	return steer_run(s, t->key,
	    (const char *[]){"revoke", t->owner ? t->owner : "", token, record,
		force ? "1" : "0", NULL},
	    "this holder no longer has the lock", until, f);
}

/* What a store cannot freeze is not asked of it: the dialect is the native one. */
enum rc
steer_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	char ms[NUMBER_BYTES];

	snprintf(ms, sizeof ms, "%" PRId64, length == NEVER ? 0 : ns_to_ms(length));
	return steer_run(s, key, (const char *[]){"freeze", "", record, ms, NULL},
	    "it could not be frozen", until, f);
}

enum rc
steer_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	return steer_run(
	    s, key, (const char *[]){"thaw", "", NULL}, "it is not frozen", until, f);
}

/* ---- runs ---- */

/* All IDs of a key are being forgotten. */
struct forgetting {
	struct store *store;
	const char *key;
	instant until;
	struct fault *fault;
	enum rc rc;
	bool found;
};

/* The run of an ID (NULL: the last ones); the keys of a job are named, which its claim has. */
static enum rc
steer_forget_one(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	const struct claim claim = {
	    .key = key, .owner = "", .job = {.once = once, .cooldown = 1}};

	return steer_claim(s, &claim,
	    (const char *[]){"forget", "", once ? once : "", NULL},
	    "no such run is remembered", until, f);
}

static bool
steer_forget_done(void *ctx, const struct entry *e, int64_t now)
{
	struct forgetting *g = ctx;

	(void)now;
	if (e->kind != ENTRY_DONE || strcmp(e->key, g->key) != 0)
		return true;
	g->rc = steer_forget_one(g->store, g->key, e->once, g->until, g->fault);
	g->found |= g->rc == RC_OK;
	return g->rc == RC_OK || g->rc == RC_LOST;
}

enum rc
steer_forget(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	struct forgetting g = {.store = s, .key = key, .until = until, .fault = f};
	enum rc rc;

	if (once)
		return steer_forget_one(s, key, once, until, f);
	rc = look_done(s, key, steer_forget_done, &g, until, f);
	if (rc == RC_OK && g.rc != RC_OK && g.rc != RC_LOST)
		rc = g.rc;
	if (rc != RC_OK)
		return rc;
	rc = steer_forget_one(s, key, NULL, until, f);
	return rc == RC_LOST && g.found ? RC_OK : rc;
}
