/*
 * listing.c - tells what locks a memcached server has.
 *
 *  1. One key is one question.
 *  2. All keys: the server lists the names of all its items.  While that list is not read it
 *     may hold a lock on some of them, for which everybody would wait, ourselves
 *     first: so it is read at once, and the names of locks are kept until then.  That
 *     takes some bytes of memory for each lock; there is no other way to list them.
 *  3. A freeze is told with the hold of its key; without one, by itself.
 */
#include "listing.h"

#include "backends/common/url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_PATIENCE (3 * NS_PER_S) /* for another's list to end */
#define BUSY_PAUSE (100 * NS_PER_MS)

enum {
	PAGE = 12,
	US_PER_S = 1000000,
	LIST_MOST = 32 << 20, /* bytes of names: some hundred thousand locks */
};

/* The names of locks and freezes that the server has listed, each ended by a NUL. */
struct list {
	char *text;
	size_t used, room;
};

/* What a name in the list has led to. */
struct found {
	enum name_of of;
	char key[KEY_BYTES + 1]; /* "": in the value */
	struct names names;
};

struct view {
	struct cache *server;
	const char *prefix;
	const struct look *look;
	struct fault *fault;
	struct vitals vitals;
	int64_t time; /* the server's clock, us, when ours said `at` */
	instant at;
	bool enough; /* nobody wants to hear more */
	size_t n;
	struct found page[PAGE];
};

/* ---- entries ---- */

static int64_t
view_now(const struct view *v)
{
	return v->time + (instant_now() - v->at) / 1000;
}

static void
view_tell(struct view *v, struct entry *e)
{
	v->enough = v->enough || !v->look->see(v->look->ctx, e, view_now(v));
}

/* When an item ends that has so many seconds left, some of them beyond the lease. */
static int64_t
ends(const struct view *v, int64_t ttl, int64_t beyond)
{
	return ttl < 0 ? EPOCH_NONE
		       : view_now(v) + (ttl > beyond ? ttl - beyond : 0) * US_PER_S;
}

static void
tell_holder(struct view *v, const char *key, const struct sight *i)
{
	struct entry e = {.kind = ENTRY_HOLDER,
	    .key = key,
	    .lock = KIND_EXCLUSIVE,
	    .token = i->value.token,
	    .owner = i->value.owner,
	    .slot = -1,
	    .record = i->value.record,
	    .since = i->value.since,
	    .until = ends(v, i->ttl, LEASE_BEYOND),
	    .revoked = *i->value.mark != '\0'};

	view_tell(v, &e);
}

/* Of one that is no dlock.  Its CAS is what revoke knows it by. */
static void
tell_foreign(struct view *v, const char *key, const struct sight *i)
{
	char owner[24], what[FOREIGN_CHARS + 64];
	struct foreign foreign = {.what = what};
	struct entry e = {.kind = ENTRY_HOLDER,
	    .key = key,
	    .lock = KIND_EXCLUSIVE,
	    .owner = owner,
	    .slot = -1,
	    .foreign = &foreign,
	    .since = EPOCH_NONE,
	    .until = ends(v, i->ttl, 0)};

	snprintf(owner, sizeof owner, "c%" PRIu64, i->cas);
	snprintf(what, sizeof what, "another client, whose value is '%s'", i->words);
	view_tell(v, &e);
}

static void
tell_freeze(struct view *v, const char *key, const struct sight *i)
{
	struct entry e = {.kind = ENTRY_FREEZE,
	    .key = key,
	    .slot = -1,
	    .record = i->freeze.record,
	    .since = i->freeze.since,
	    .until = i->freeze.until};

	view_tell(v, &e);
}

static void
tell_lock(struct view *v, const char *key, const struct sight *i)
{
	if (i->held && i->foreign)
		tell_foreign(v, key, i);
	else if (i->held)
		tell_holder(v, key, i);
	if (i->frozen && !v->enough)
		tell_freeze(v, key, i);
}

/* ---- one key ---- */

static enum rc
view_key(struct view *v, const char *key)
{
	struct names names;
	struct sight i;
	enum rc rc;

	name_lock(&names, v->prefix, key);
	rc = sight_read(v->server, &names, SIGHT_SERVER, v->look->until, &i, v->fault);
	if (rc != RC_OK)
		return rc;
	v->at = instant_now();
	v->time = i.vitals.time * US_PER_S;
	tell_lock(v, key, &i);
	return RC_OK;
}

/* ---- all keys ---- */

static enum rc
view_clock(struct view *v)
{
	struct batch b;
	enum rc rc;

	vitals_init(&v->vitals);
	batch_begin(&b);
	batch_word(&b, "stats");
	rc = cache_send(v->server, &b, v->look->until, v->fault);
	if (rc == RC_OK)
		rc = cache_read_vitals(v->server, &v->vitals, v->look->until, v->fault);
	if (rc == RC_OK)
		rc = vitals_check(&v->vitals, v->server->stream.where, v->fault);
	v->at = instant_now();
	v->time = v->vitals.time * US_PER_S;
	return rc;
}

/* The key of a value, if that is what the item's name stands for. */
static bool
key_of_value(const struct view *v, const struct found *found, const struct value *value)
{
	struct names names;

	if (!*value->key)
		return false;
	name_lock(&names, v->prefix, value->key);
	return strcmp(names.lock, found->names.lock) == 0;
}

/* Without a prefix any item may have such a name: those of others are no locks. */
static void
tell_found(struct view *v, const struct found *found, const struct sight *i)
{
	const struct value *value = i->held && !i->foreign ? &i->value
	    : i->frozen                                    ? &i->freeze
							   : NULL;
	const char *key = found->key;

	if (v->enough || (found->of == NAME_FREEZE && i->held) ||
	    (!*v->prefix && i->held && i->foreign))
		return;
	if (!*key && (!value || !key_of_value(v, found, value)))
		return;
	tell_lock(v, *key ? key : value->key, i);
}

/* Asks for those of the page, and tells them. */
static enum rc
view_page(struct view *v)
{
	instant until = v->look->until;
	struct batch b;
	struct sight i;
	enum rc rc;

	batch_begin(&b);
	for (size_t k = 0; k < v->n; k++)
		sight_ask(&b, &v->page[k].names, 0);
	rc = v->n > 0 ? cache_send(v->server, &b, until, v->fault) : RC_OK;
	for (size_t k = 0; k < v->n && rc == RC_OK; k++) {
		rc = sight_answered(v->server, 0, until, &i, v->fault);
		if (rc != RC_OK)
			break;
		sight_number(&i, &v->vitals);
		tell_found(v, &v->page[k], &i);
	}
	v->n = 0;
	return rc;
}

static bool
list_add(struct list *l, const char *name)
{
	size_t n = strlen(name) + 1;

	if (l->used + n > l->room) {
		size_t room = 2 * l->room + NAME_BYTES;
		char *text = realloc(l->text, room);

		if (!text)
			return false;
		l->text = text;
		l->room = room;
	}
	memcpy(l->text + l->used, name, n);
	l->used += n;
	return true;
}

/* A name as the server lists it, encoded. */
static enum rc
view_listed(struct view *v, struct list *l, const char *encoded)
{
	char name[NAME_BYTES], key[KEY_BYTES + 1];
	const char *lock;

	if (encode_undo(name, sizeof name, encoded, strlen(encoded)) <= 0 ||
	    name_read(key, &lock, v->prefix, name) == NAME_OTHER)
		return RC_OK;
	if (l->used > LIST_MOST)
		return fault_set(v->fault, RC_PROTOCOL,
		    "%s lists more locks than dlock takes in: name a key",
		    v->server->stream.where);
	return list_add(l, name) ? RC_OK
				 : fault_set(v->fault, RC_SYSTEM, "out of memory");
}

/* RC_BUSY: somebody else lists. */
static enum rc
view_read_list(struct view *v, struct list *l)
{
	instant until = v->look->until;
	struct answer a;
	struct batch b;
	enum rc rc;

	batch_begin(&b);
	batch_word(&b, "lru_crawler metadump hash");
	rc = cache_send(v->server, &b, until, v->fault);
	while (rc == RC_OK) {
		rc = cache_read(v->server, &a, until, v->fault);
		if (rc != RC_OK || a.reply.code == REPLY_END)
			break;
		if (a.reply.code == REPLY_BUSY)
			return RC_BUSY;
		rc = a.reply.code == REPLY_KEY ? view_listed(v, l, a.reply.name)
					       : cache_nonsense(v->server, v->fault);
	}
	return rc;
}

/* When nobody else lists any more. */
static enum rc
view_await_list(struct view *v, struct list *l)
{
	struct host *host = v->server->stream.host;
	instant most = instant_first(v->look->until, instant_now() + BUSY_PATIENCE);
	enum rc rc;

	while ((rc = view_read_list(v, l)) == RC_BUSY && instant_now() < most)
		if (host->wait(host, -1, 0, instant_now() + BUSY_PAUSE) == WOKE_STOP)
			return RC_STOP;
	return rc == RC_BUSY ? fault_set(v->fault, RC_AGAIN,
				   "%s is listing its items for somebody else: try again",
				   v->server->stream.where)
			     : rc;
}

static enum rc
view_list(struct view *v, const struct list *l)
{
	enum rc rc = RC_OK;

	for (const char *name = l->text;
	     rc == RC_OK && !v->enough && name < l->text + l->used;
	     name += strlen(name) + 1) {
		struct found *found = &v->page[v->n++];
		const char *lock;

		found->of = name_read(found->key, &lock, v->prefix, name);
		name_of_lock(&found->names, lock);
		if (v->n == PAGE)
			rc = view_page(v);
	}
	return rc == RC_OK ? view_page(v) : rc;
}

static enum rc
view_all(struct view *v)
{
	struct list list = {NULL, 0, 0};
	enum rc rc = view_clock(v);

	if (rc == RC_OK)
		rc = view_await_list(v, &list);
	if (rc == RC_OK && list.used > 0)
		rc = view_list(v, &list);
	free(list.text);
	return rc;
}

enum rc
listing_each(
    struct cache *s, const char *prefix, const struct look *look, struct fault *f)
{
	struct view v = {.server = s, .prefix = prefix, .look = look, .fault = f};

	return look->key ? view_key(&v, look->key) : view_all(&v);
}
