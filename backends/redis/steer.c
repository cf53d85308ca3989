/* steer.c - takes locks away, freezes keys, and forgets runs, on one Redis server. */
#include "redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_BYTES = 24 };

/* One run of a script of the dialect's, on a claim's lock, with these words up to a NULL. */
static void
steer_say(struct script_call *call, const struct redis *r, const struct script *script,
    struct names *names, const struct claim *claim, const char *const *words)
{
	struct claim named = *claim;
	int runs = claim->job.once ? 2 : claim->job.cooldown ? 1 : 0;

	named.key = store_key(&r->store, claim->key);
	dialect_name(r->store.dialect, names, r->store.address.form, &named);
	script_begin(call, script);
	for (int i = 0; i < names->nkeys + runs; i++)
		script_key(call, names->keys[i]);
	for (; *words; words++)
		script_word(call, *words);
	if (names->sharded)
		script_word(call, SHARDED);
}

/*
 * An operation, its owner ("": nobody), and what else it wants to hear.  Its answer is {1}, or
 * {0}: what is meant is not there.
 */
static enum rc
steer_claim(struct store *s, const struct claim *claim, const char *const *words,
    const char *missing, instant until, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct script_call call;
	struct names names;
	redisReply *reply;
	int64_t done;
	enum rc rc;

	steer_say(&call, r, r->store.dialect->claims, &names, claim, words);
	call.replicas = r->store.replicas;
	rc = script_run(&r->route, &call, until, &reply, f, "i", &done);
	if (rc != RC_OK)
		return rc;
	freeReplyObject(reply);
	if (done == 1) /* a fail-over must not undo what was confirmed */
		return redis_is_replicated(r, f) ? RC_OK : RC_AGAIN;
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

static const char none_remembered[] = "no such run is remembered";

/* All IDs of a key are being forgotten. */
struct forgetting {
	struct store *store;
	const char *key;
	int64_t patience; /* for one answer: how many keys there are, nobody knows */
	struct fault *fault;
	enum rc rc;
	bool found;
	bool
	    repeated; /* one that was not there: it may have been forgotten by the first question */
};

/* The keys of a job are named, which its claim has. */
static enum rc
steer_forget_id(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	const struct claim claim = {
	    .key = key, .owner = "", .job = {.once = once, .cooldown = 1}};

	return steer_claim(s, &claim, (const char *[]){"forget", "", once, NULL},
	    none_remembered, until, f);
}

static bool
steer_forget_done(void *ctx, const struct entry *e, int64_t now)
{
	struct forgetting *g = ctx;
	struct route *route = &redis_of(g->store)->route;

	(void)now;
	if (e->kind != ENTRY_DONE || strcmp(e->key, g->key) != 0)
		return true;
	route->repeated = false;
	g->rc = steer_forget_id(g->store, g->key, e->once,
	    instant_after(instant_now(), g->patience), g->fault);
	g->found |= g->rc == RC_OK;
	g->repeated |= g->rc == RC_LOST && route->repeated;
	return g->rc == RC_OK || g->rc == RC_LOST;
}

/*
 * All runs of a key.  The last ones are read first: one that ends while the IDs are forgotten
 * may have its ID behind us, and then stays with all that it has written.
 */
static enum rc
steer_forget_all(struct store *s, const char *key, instant until, struct fault *f)
{
	const struct claim claim = {.key = key, .owner = "", .job.cooldown = 1};
	struct forgetting g = {
	    .store = s, .key = key, .patience = until - instant_now(), .fault = f};
	struct redis *r = redis_of(s);
	const char *ended, *good, *shown;
	struct script_call call;
	struct names names;
	redisReply *last;
	enum rc rc;

	steer_say(&call, r, r->store.dialect->looks, &names, &claim,
	    (const char *[]){"last", NULL});
	call.reads = true;
	rc = script_run(&r->route, &call, until, &last, f, "www", &ended, &good, &shown);
	if (rc != RC_OK)
		return rc;
	rc = look_done(s, key, steer_forget_done, &g, g.patience, f);
	if (rc == RC_OK && g.rc != RC_OK && g.rc != RC_LOST)
		rc = g.rc;
	r->route.repeated = false; /* to look twice does no harm */
	if (rc == RC_OK)
		rc = steer_claim(s, &claim,
		    (const char *[]){"forget", "", "", ended, good, shown, NULL},
		    none_remembered, instant_after(instant_now(), g.patience), f);
	r->route.repeated |= g.repeated;
	freeReplyObject(last);
	return rc == RC_LOST && g.found ? RC_OK : rc;
}

enum rc
steer_forget(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	struct route *route = &redis_of(s)->route;
	enum rc rc;

	route->repeated = false;
	key = store_key(&redis_of(s)->store, key);
	rc = once ? steer_forget_id(s, key, once, until, f)
		  : steer_forget_all(s, key, until, f);
	/* of a question that was asked again, the first may have been heard */
	return rc == RC_LOST && route->repeated
	    ? fault_set(f, RC_AGAIN, "%s closed the connection before it answered",
		  route->server.peer.where)
	    : rc;
}
