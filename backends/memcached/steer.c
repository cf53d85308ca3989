/*
 * steer.c - takes locks away, and freezes keys, on a memcached server.
 *
 * Each change is made on the connection on which the items were read, and a lock is changed
 * by its CAS only.
 */
#include "memcached.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	TRIES = 8,      /* while the holder renews */
	NOTE_TIME = 60, /* s: a note outlives the lease that it speaks of by so much */
};

static const char no_such_grant[] = "who held it by this grant does so no more";

/*
 * Sends the one change that was put.  RC_BUSY: its CAS is another.  RC_LOST: it is gone, in
 * these words.
 */
static enum rc
steer_change(struct client *c, const char *gone, instant until, struct fault *f)
{
	struct reply r;
	enum rc rc = client_answer(c, &r, until, f);

	if (rc != RC_OK)
		return rc;
	switch (r.code) {
	case REPLY_HD:
		return RC_OK;
	case REPLY_EX:
		return fault_set(f, RC_BUSY, "it was written meanwhile");
	case REPLY_NF:
		return fault_set(f, RC_LOST, "%s: %s", c->stream.where, gone);
	default:
		return client_nonsense(c, f);
	}
}

static enum rc
steer_store(struct client *c, const char *tag, const char *name,
    const struct store_how *how, const struct value *v, instant until, struct fault *f)
{
	char text[VALUE_BYTES];

	if (!value_write(text, v))
		return fault_set(
		    f, RC_CONFIG, "control characters cannot be written there");
	client_store(c, tag, name, how, text);
	return steer_change(c, no_such_grant, until, f);
}

/* ---- revoke ---- */

static bool
is_meant_item(const struct item *i, const struct target *t)
{
	char cas[24];

	if (!i->there)
		return false;
	if (i->foreign) { /* listing.c shows its CAS as its owner */
		snprintf(cas, sizeof cas, "c%" PRIu64, i->cas);
		return t->token == 0 && t->owner && strcmp(t->owner, cas) == 0;
	}
	return (t->token == 0 || t->token == i->value.token) &&
	    (!t->owner || strcmp(t->owner, i->value.owner) == 0) &&
	    (t->token || t->owner);
}

/* Seconds for an item that ends when this one does; 0 would be never. */
static int64_t
rest_of(const struct item *i)
{
	return i->ttl == TTL_NONE ? 0 : i->ttl < 1 ? 1 : i->ttl;
}

/* Writes into the item who asks for it back. */
static enum rc
mark_item(struct client *c, const char *name, struct item *i, const char *record,
    instant until, struct fault *f)
{
	struct store_how how = {STORE_OVER, i->cas, rest_of(i)};

	if (i->foreign)
		return fault_set(f, RC_CONFIG,
		    "%s: another client holds it, which dlock cannot ask to give it up (--force takes it away)",
		    c->stream.where);
	snprintf(i->value.mark, sizeof i->value.mark, "%s", record);
	return steer_store(c, ITEM_LOCK, name, &how, &i->value, until, f);
}

/* Leaves a note for the holder's next renewal. */
static enum rc
leave_note(struct client *c, const char *name, const struct item *i, const char *record,
    instant until, struct fault *f)
{
	struct value note = {.since = EPOCH_NONE, .until = EPOCH_NONE};
	int64_t rest = rest_of(i) + NOTE_TIME;
	struct store_how how = {
	    .mode = STORE_ANY, .exptime = rest > EXPTIME_MOST ? EXPTIME_MOST : rest};

	memcpy(note.owner, i->value.owner, sizeof note.owner);
	snprintf(note.record, sizeof note.record, "%s", record);
	return steer_store(c, ITEM_NOTE, name, &how, &note, until, f);
}

static enum rc
take_item(struct client *c, const char *name, const struct item *i, const char *record,
    instant until, struct fault *f)
{
	enum rc rc = i->foreign ? RC_OK : leave_note(c, name, i, record, until, f);

	if (rc != RC_OK)
		return rc;
	client_delete(c, ITEM_LOCK, name, i->cas);
	return steer_change(c, no_such_grant, until, f);
}

enum rc
memcached_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct client *c = &m->client;
	struct item_name name;
	struct items i;
	enum rc rc = RC_BUSY;

	item_name(&name, m->prefix, t->key);
	for (int n = 0; n < TRIES && rc == RC_BUSY; n++) {
		rc = items_look(c, name.text, ITEMS_STATS, until, &i, f);
		if (rc == RC_OK && !is_meant_item(&i.lock, t))
			return fault_set(
			    f, RC_LOST, "%s: %s", m->server_name, no_such_grant);
		if (rc == RC_OK)
			rc = force ? take_item(c, name.text, &i.lock, record, until, f)
				   : mark_item(c, name.text, &i.lock, record, until, f);
	}
	return rc == RC_BUSY
	    ? fault_set(f, RC_AGAIN, "%s: others write to this lock all the time",
		  m->server_name)
	    : rc;
}

/* ---- freeze ---- */

/* Seconds for an item; a long time is written as a date. */
static int64_t
exptime_of(int64_t length, const struct stats *s)
{
	int64_t seconds = length / NS_PER_S + (length % NS_PER_S > 0) + ENDS_EARLY;

	if (length == NEVER)
		return 0;
	return seconds > EXPTIME_MOST ? s->time + seconds : seconds;
}

enum rc
memcached_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct store_how how = {.mode = STORE_ANY};
	struct value v = {.until = EPOCH_NONE};
	struct item_name name;
	struct items i;
	enum rc rc;

	item_name(&name, m->prefix, key);
	rc = items_look(&m->client, name.text, ITEMS_STATS, until, &i, f);
	if (rc != RC_OK)
		return rc;
	how.exptime = exptime_of(length, &i.stats);
	v.since = i.stats.time * US_PER_S;
	if (length != NEVER)
		v.until = v.since + length / 1000;
	memset(v.owner, '0', OWNER_CHARS);
	snprintf(v.record, sizeof v.record, "%s", record);
	if (name.hashed)
		snprintf(v.key, sizeof v.key, "%s", key);
	return steer_store(&m->client, ITEM_FREEZE, name.text, &how, &v, until, f);
}

enum rc
memcached_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct item_name name;
	struct items i;
	enum rc rc;

	item_name(&name, m->prefix, key);
	rc = items_look(&m->client, name.text, 0, until, &i, f);
	if (rc != RC_OK)
		return rc;
	client_delete(&m->client, ITEM_FREEZE, name.text, 0);
	return steer_change(&m->client, "it is not frozen", until, f);
}
