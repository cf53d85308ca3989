/* steer.c - takes locks away, and freezes keys, on one Redis server. */
#include "redis.h"

/* An operation on a lock, of `owner` or nobody; each is one run of the dialect's script. */
struct steering {
	struct route *route;
	struct names names;
	struct script_call call;
};

static void
steering_begin(struct steering *o, struct store *s, const char *key,
    const char *operation, const char *owner)
{
	struct redis *r = redis_of(s);

	o->route = &r->route;
	dialect_name_lock(r->store.dialect, &o->names, r->store.address.form, key);
	script_begin(&o->call, r->store.dialect->claims);
	for (int i = 0; i < o->names.nkeys; i++)
		script_key(&o->call, o->names.keys[i]);
	script_word(&o->call, operation);
	script_word(&o->call, owner);
}

/* The answer is {1}, or {0}: what is meant is not there. */
static enum rc
steering_run(struct steering *o, const char *missing, instant until, struct fault *f)
{
	redisReply *reply;
	enum rc rc = script_run(o->route, &o->call, until, &reply, f);
	int64_t done;

	if (rc != RC_OK)
		return rc;
	if (!answer_members(reply, 0, "i", &done) || reply->elements != 1)
		done = -1;
	freeReplyObject(reply);
	if (done == 1)
		return RC_OK;
	return done == 0 ? fault_set(f, RC_LOST, "%s: %s", o->route->where, missing)
			 : script_nonsense(o->route, f);
}

enum rc
steer_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct steering o;

	steering_begin(&o, s, t->key, "revoke", t->owner ? t->owner : "");
	script_number(&o.call, t->token);
	script_word(&o.call, record);
	script_word(&o.call, force ? "1" : "0");
	if (o.names.sharded)
		script_word(&o.call, SHARDED);
	return steering_run(&o, "who held it by this grant does so no more", until, f);
}

/* What a store cannot freeze is not asked of it: the dialect is the native one. */
enum rc
steer_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct steering o;

	steering_begin(&o, s, key, "freeze", "");
	script_word(&o.call, record);
	script_number(&o.call, length == NEVER ? 0 : ns_to_ms(length));
	return steering_run(&o, "it could not be frozen", until, f);
}

enum rc
steer_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct steering o;

	steering_begin(&o, s, key, "thaw", "");
	return steering_run(&o, "it is not frozen", until, f);
}
