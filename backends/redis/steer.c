/* steer.c - takes locks away, and freezes keys, on one Redis server. */
#include "steer.h"

#include "script.h"

#include <inttypes.h>
#include <stdio.h>

/* An operation on a lock, of `owner` or nobody. */
struct order {
	struct names names;
	struct script_call call;
};

static void
order_begin(struct order *o, const struct call *to, const struct dialect *d,
    const char *key, const char *operation, const char *owner)
{
	dialect_name_lock(d, &o->names, to->topology.address->form, key);
	o->call = (struct script_call){.script = d->claims};
	for (int i = 0; i < o->names.nkeys; i++)
		script_key(&o->call, o->names.keys[i]);
	script_word(&o->call, operation);
	script_word(&o->call, owner);
}

/* The answer is {1}, or {0}: what is meant is not there. */
static enum rc
order_run(
    struct order *o, struct call *to, const char *missing, instant until, struct fault *f)
{
	redisReply *reply;
	enum rc rc = script_run(to, &o->call, until, &reply, f);
	int64_t done;

	if (rc != RC_OK)
		return rc;
	done = reply->elements == 1 && reply->element[0]->type == REDIS_REPLY_INTEGER
	    ? reply->element[0]->integer
	    : -1;
	freeReplyObject(reply);
	if (done == 1)
		return RC_OK;
	return done == 0 ? fault_set(f, RC_LOST, "%s: %s", call_where(to), missing)
			 : script_nonsense(to, f);
}

enum rc
steer_revoke(struct call *to, const struct dialect *d, const struct target *t,
    const char *record, bool force, instant until, struct fault *f)
{
	char token[24];
	struct order o;

	snprintf(token, sizeof token, "%" PRIu64, t->token);
	order_begin(&o, to, d, t->key, "revoke", t->owner ? t->owner : "");
	script_word(&o.call, token);
	script_word(&o.call, record);
	script_word(&o.call, force ? "1" : "0");
	if (o.names.sharded)
		script_word(&o.call, SHARDED);
	return order_run(&o, to, "who held it by this grant does so no more", until, f);
}

enum rc
steer_freeze(struct call *to, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	char ms[24];
	struct order o;

	snprintf(ms, sizeof ms, "%" PRId64, length == NEVER ? 0 : ns_to_ms(length));
	order_begin(&o, to, &dialect_native, key, "freeze", "");
	script_word(&o.call, record);
	script_word(&o.call, ms);
	return order_run(&o, to, "it could not be frozen", until, f);
}

enum rc
steer_thaw(struct call *to, const char *key, instant until, struct fault *f)
{
	struct order o;

	order_begin(&o, to, &dialect_native, key, "thaw", "");
	return order_run(&o, to, "it is not frozen", until, f);
}
