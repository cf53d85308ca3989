/* orders.c - takes locks away, and freezes keys, on a memcached server. */
#include "orders.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	TRIES = 8, /* while the holder renews */
	US_PER_S = 1000000,
	NOTE_TIME = 60, /* s: a note outlives the lease that it speaks of by so much */
};

/* One order, on one lock. */
struct order {
	struct cache *server;
	struct names names;
	instant until;
	struct fault *fault;
};

static struct order
order_of(
    struct cache *s, const char *prefix, const char *key, instant until, struct fault *f)
{
	struct order o = {.server = s, .until = until, .fault = f};

	name_lock(&o.names, prefix, key);
	return o;
}

/*
 * The reply to what was done by CAS.  RC_BUSY: that was another one.  RC_LOST: it is gone.
 */
static enum rc
order_answered(struct order *o, const char *missing)
{
	struct answer a;
	enum rc rc = cache_read(o->server, &a, o->until, o->fault);

	if (rc != RC_OK || a.reply.code == REPLY_HD)
		return rc;
	if (a.reply.code == REPLY_EX)
		return fault_set(o->fault, RC_BUSY, "it was written meanwhile");
	if (a.reply.code == REPLY_NF)
		return fault_set(
		    o->fault, RC_LOST, "%s: %s", o->server->stream.where, missing);
	return cache_nonsense(o->server, o->fault);
}

static enum rc
put_value(struct order *o, struct batch *b, const char *name, const struct store_how *how,
    const struct value *v)
{
	char text[VALUE_BYTES];
	size_t n = value_write(text, v);

	if (n == 0)
		return fault_set(
		    o->fault, RC_CONFIG, "control characters cannot be written there");
	batch_store(b, name, how, text, n);
	return RC_OK;
}

/* ---- revoke ---- */

static bool
is_meant(const struct sight *i, const struct target *t)
{
	char owner[24];

	if (!i->held)
		return false;
	if (i->foreign) {
		snprintf(owner, sizeof owner, "c%" PRIu64, i->cas);
		return t->token == 0 && t->owner && strcmp(t->owner, owner) == 0;
	}
	return (t->token == 0 || t->token == i->value.token) &&
	    (!t->owner || strcmp(t->owner, i->value.owner) == 0) &&
	    (t->token || t->owner);
}

/* Seconds for an item that ends when this one does; 0 would be never. */
static int64_t
rest_of(const struct sight *i)
{
	return i->ttl == TTL_NONE ? 0 : i->ttl < 1 ? 1 : i->ttl;
}

static enum rc
mark(struct order *o, struct sight *i, const char *record)
{
	struct batch b;
	enum rc rc;

	if (i->foreign)
		return fault_set(o->fault, RC_CONFIG,
		    "%s: another client holds it, which dlock cannot ask to give it up (--force takes it away)",
		    o->server->stream.where);
	snprintf(i->value.mark, sizeof i->value.mark, "%s", record);
	batch_begin(&b);
	rc = put_value(o, &b, o->names.lock,
	    &(struct store_how){STORE_OVER, i->cas, rest_of(i)}, &i->value);
	if (rc == RC_OK)
		rc = cache_go_on(o->server, &b, o->until, o->fault);
	return rc == RC_OK
	    ? order_answered(o, "who held it by this grant does so no more")
	    : rc;
}

/* A note for the holder's next renewal first, and then the item is deleted. */
static enum rc
take(struct order *o, const struct sight *i, const char *record)
{
	struct value note = {.since = EPOCH_NONE, .until = EPOCH_NONE};
	int64_t rest = rest_of(i);
	struct answer a;
	struct batch b;
	enum rc rc = RC_OK;

	batch_begin(&b);
	if (!i->foreign) {
		memcpy(note.owner, i->value.owner, sizeof note.owner);
		snprintf(note.record, sizeof note.record, "%s", record);
		rc = put_value(o, &b, o->names.broken,
		    &(struct store_how){.mode = STORE_ANY,
			.exptime = rest + NOTE_TIME > EXPTIME_MOST ? EXPTIME_MOST
								   : rest + NOTE_TIME},
		    &note);
	}
	batch_delete(&b, o->names.lock, i->cas);
	if (rc == RC_OK)
		rc = cache_go_on(o->server, &b, o->until, o->fault);
	if (rc == RC_OK && !i->foreign)
		rc = cache_read(o->server, &a, o->until, o->fault);
	return rc == RC_OK
	    ? order_answered(o, "who held it by this grant does so no more")
	    : rc;
}

enum rc
orders_revoke(struct cache *s, const char *prefix, const struct target *t,
    const char *record, bool force, instant until, struct fault *f)
{
	struct order o = order_of(s, prefix, t->key, until, f);
	enum rc rc = RC_BUSY;
	struct sight i;

	for (int n = 0; n < TRIES && rc == RC_BUSY; n++) {
		rc = sight_read(s, &o.names, SIGHT_SERVER, until, &i, f);
		if (rc == RC_OK && !is_meant(&i, t))
			return fault_set(f, RC_LOST,
			    "%s: who held it by this grant does so no more",
			    s->stream.where);
		if (rc == RC_OK)
			rc = force ? take(&o, &i, record) : mark(&o, &i, record);
	}
	return rc == RC_BUSY
	    ? fault_set(f, RC_AGAIN, "%s: others write to this lock all the time",
		  s->stream.where)
	    : rc;
}

/* ---- freeze ---- */

/* Seconds for an item; a long time is written as a date. */
static int64_t
exptime_of(int64_t length, const struct vitals *v)
{
	int64_t seconds = length / NS_PER_S + (length % NS_PER_S > 0) + ENDS_EARLY;

	if (length == NEVER)
		return 0;
	return seconds > EXPTIME_MOST ? v->time + seconds : seconds;
}

enum rc
orders_freeze(struct cache *s, const char *prefix, const char *key, const char *record,
    int64_t length, instant until, struct fault *f)
{
	struct order o = order_of(s, prefix, key, until, f);
	struct value v = {.until = EPOCH_NONE};
	struct batch b;
	struct sight i;
	enum rc rc = sight_read(s, &o.names, SIGHT_SERVER, until, &i, f);

	if (rc != RC_OK)
		return rc;
	v.since = i.vitals.time * US_PER_S;
	if (length != NEVER)
		v.until = v.since + length / 1000;
	memset(v.owner, '0', OWNER_CHARS);
	snprintf(v.record, sizeof v.record, "%s", record);
	if (o.names.hashed)
		snprintf(v.key, sizeof v.key, "%s", key);
	batch_begin(&b);
	rc = put_value(&o, &b, o.names.freeze,
	    &(struct store_how){
		.mode = STORE_ANY, .exptime = exptime_of(length, &i.vitals)},
	    &v);
	if (rc == RC_OK)
		rc = cache_go_on(s, &b, until, f);
	return rc == RC_OK ? order_answered(&o, "it could not be frozen") : rc;
}

enum rc
orders_thaw(
    struct cache *s, const char *prefix, const char *key, instant until, struct fault *f)
{
	struct order o = order_of(s, prefix, key, until, f);
	struct batch b;
	struct sight i;
	enum rc rc = sight_read(s, &o.names, 0, until, &i, f);

	if (rc != RC_OK)
		return rc;
	batch_begin(&b);
	batch_delete(&b, o.names.freeze, 0);
	rc = cache_go_on(s, &b, until, f);
	return rc == RC_OK ? order_answered(&o, "it is not frozen") : rc;
}
