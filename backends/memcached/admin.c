/*
 * admin.c - tells what locks a memcached server has, takes them away, and freezes keys.
 *
 *  1. One key is one question.
 *  2. For all keys the server lists the names of all its items.  While that list is not
 *     read, the server may keep a lock on some of them, for which all its clients would
 *     wait.  So the list is read at once, and the names of locks are kept until its end.
 *     That takes some bytes of memory for each lock; there is no other way to list them.
 *  3. A freeze is told with the hold of its key; without one, by itself.
 *  4. Each change is made on the connection on which the items were read, and a lock is
 *     changed by its CAS only.
 */
#include "memcached.h"

#include "backends/common/checkup.h"
#include "backends/common/encode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_MOST (3 * NS_PER_S) /* for another client's list to end */
#define BUSY_PAUSE (100 * NS_PER_MS)

enum {
	PAGE = 12,             /* locks that are asked for at once */
	NAMES_MOST = 32 << 20, /* bytes: some hundred thousand locks */
	TRIES = 8,             /* while the holder renews */
	NOTE_TIME = 60, /* s: a note outlives the lease that it speaks of by so much */
};

struct listing {
	struct client *client;
	const char *prefix;
	const struct look *look;
	struct fault *fault;
	struct stats stats; /* of when our clock said `at` */
	instant at;
	bool enough; /* nobody wants to hear more */
	/* the names of locks and freezes that the server has listed, each ended by a NUL */
	char *names;
	size_t used, room;
};

/* ---- entries ---- */

/* The server's clock, in microseconds. */
static int64_t
listing_now(const struct listing *l)
{
	return l->stats.time * US_PER_S + (instant_now() - l->at) / 1000;
}

static void
listing_tell(struct listing *l, struct entry *e, const char *key)
{
	e->key = key;
	e->lock = KIND_EXCLUSIVE;
	e->slot = -1;
	l->enough = l->enough || !l->look->see(l->look->ctx, e, listing_now(l));
}

/* When an item ends that is kept for so many seconds longer than its lease. */
static int64_t
listing_end(const struct listing *l, const struct item *i, int64_t beyond)
{
	return i->ttl < 0
	    ? EPOCH_NONE
	    : listing_now(l) + (i->ttl > beyond ? i->ttl - beyond : 0) * US_PER_S;
}

/* A foreign item is known by its CAS, which is told as its owner. */
static void
listing_lock(struct listing *l, const char *key, const struct items *i)
{
	char owner[24], what[FOREIGN_CHARS + 64];
	struct foreign foreign = {.what = what};
	const struct value *v = &i->lock.value, *freeze = &i->freeze.value;
	struct entry holder = {.kind = ENTRY_HOLDER,
	    .token = v->token,
	    .owner = v->owner,
	    .record = v->record,
	    .since = v->since,
	    .until = listing_end(l, &i->lock, LEASE_BEYOND),
	    .revoked = *v->mark != '\0',
	    .asker = v->mark};
	struct entry frozen = {.kind = ENTRY_FREEZE,
	    .record = freeze->record,
	    .since = freeze->since,
	    .until = freeze->until};

	if (i->lock.foreign) {
		snprintf(owner, sizeof owner, "c%" PRIu64, i->lock.cas);
		snprintf(what, sizeof what, "another client, whose value is '%s'",
		    i->lock.words);
		holder = (struct entry){.kind = ENTRY_HOLDER,
		    .owner = owner,
		    .foreign = &foreign,
		    .since = EPOCH_NONE,
		    .until = listing_end(l, &i->lock, 0)};
	}
	if (i->lock.there)
		listing_tell(l, &holder, key);
	if (i->freeze.there && !l->enough)
		listing_tell(l, &frozen, key);
}

/* ---- all keys ---- */

/*
 * Tells what a listed name has led to.  A hashed name has its key in the value, if they
 * belong together.  Without a prefix any item may have such a name: those of other clients
 * are no locks.
 */
static void
listing_found(struct listing *l, const char *name, const struct items *i)
{
	char key[KEY_BYTES + 1];
	struct item_name again;
	const char *lock;
	bool freeze = item_name_read(key, &lock, l->prefix, name) == ITEM_IS_FREEZE;

	if (l->enough || (freeze && i->lock.there) || (!*l->prefix && i->lock.foreign))
		return;
	if (!*key)
		snprintf(key, sizeof key, "%s",
		    *i->lock.value.key ? i->lock.value.key : i->freeze.value.key);
	item_name(&again, l->prefix, key);
	if (*key && strcmp(again.text, lock) == 0)
		listing_lock(l, key, i);
}

/* Keeps a name as the server lists it, encoded, if it is one of ours. */
static enum rc
listing_keep(struct listing *l, const char *encoded)
{
	char name[NAME_BYTES], key[KEY_BYTES + 1];
	const char *lock;
	int n = encode_undo(name, sizeof name, encoded, strlen(encoded));

	if (n <= 0 || item_name_read(key, &lock, l->prefix, name) == ITEM_IS_OTHER)
		return RC_OK;
	if (l->used > NAMES_MOST)
		return fault_set(l->fault, RC_PROTOCOL,
		    "%s lists more locks than dlock can read: name a key",
		    l->client->stream.where);
	if (l->used + n + 1 > l->room) {
		size_t room = 2 * l->room + NAME_BYTES;
		char *names = realloc(l->names, room);

		if (!names)
			return fault_set(l->fault, RC_SYSTEM, "out of memory");
		l->names = names;
		l->room = room;
	}
	memcpy(l->names + l->used, name, n + 1);
	l->used += n + 1;
	return RC_OK;
}

/* RC_BUSY: the server lists for another client. */
static enum rc
listing_try_names(struct listing *l)
{
	struct reply r;
	enum rc rc;

	client_word(l->client, "lru_crawler metadump hash");
	rc = client_send(l->client, look_answer_by(l->look), l->fault);
	while (rc == RC_OK) {
		rc = client_read(l->client, &r, look_answer_by(l->look), l->fault);
		if (rc != RC_OK || r.code == REPLY_END)
			break;
		if (r.code == REPLY_BUSY)
			return RC_BUSY;
		rc = r.code == REPLY_KEY ? listing_keep(l, r.name)
					 : client_nonsense(l->client, l->fault);
	}
	return rc;
}

static enum rc
listing_read_names(struct listing *l)
{
	struct host *host = l->client->stream.host;
	instant most = instant_first(look_answer_by(l->look), instant_now() + BUSY_MOST);
	enum rc rc;

	while ((rc = listing_try_names(l)) == RC_BUSY && instant_now() < most)
		if (host->wait(host, -1, 0, instant_now() + BUSY_PAUSE) == WOKE_STOP)
			return RC_STOP;
	return rc == RC_BUSY ? fault_set(l->fault, RC_AGAIN,
				   "%s is listing its items for somebody else: try again",
				   l->client->stream.where)
			     : rc;
}

/* Asks for the locks of a page of names at once, and tells them; *from goes on behind it. */
static enum rc
listing_page(struct listing *l, const char **from, const char *end)
{
	char key[KEY_BYTES + 1];
	const char *lock, *to = *from;
	struct items i;
	enum rc rc;

	for (int n = 0; n < PAGE && to < end; n++, to += strlen(to) + 1) {
		item_name_read(key, &lock, l->prefix, to);
		items_ask(l->client, lock, 0);
	}
	rc = client_send(l->client, look_answer_by(l->look), l->fault);
	for (; rc == RC_OK && *from < to; *from += strlen(*from) + 1) {
		rc = items_read(l->client, 0, look_answer_by(l->look), &i, l->fault);
		items_number(&i, &l->stats);
		if (rc == RC_OK)
			listing_found(l, *from, &i);
	}
	return rc;
}

static enum rc
listing_all(struct listing *l)
{
	const char *from, *end;
	enum rc rc;

	stats_init(&l->stats);
	client_word(l->client, "stats");
	rc = client_send(l->client, look_answer_by(l->look), l->fault);
	if (rc == RC_OK)
		rc = stats_read(&l->stats, l->client, look_answer_by(l->look), l->fault);
	l->at = instant_now();
	if (rc == RC_OK)
		rc = listing_read_names(l);
	from = l->names;
	end = l->names ? l->names + l->used : NULL;
	while (rc == RC_OK && !l->enough && from < end)
		rc = listing_page(l, &from, end);
	free(l->names);
	return rc;
}

static enum rc
memcached_each(struct store *s, const struct look *look, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct listing l = {
	    .client = &m->client, .prefix = m->prefix, .look = look, .fault = f};
	struct item_name name;
	struct items i;
	enum rc rc;

	if (!look->key)
		return listing_all(&l);
	memcached_name(m, &name, look->key);
	rc = items_look(&m->client, name.text, ITEMS_STATS, look_answer_by(look), &i, f);
	if (rc != RC_OK)
		return rc;
	l.at = instant_now();
	l.stats = i.stats;
	listing_lock(&l, look->key, &i);
	return RC_OK;
}

/* ---- changes ---- */

static const char no_such_grant[] = "this holder no longer has the lock";

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
		return fault_set(
		    f, RC_BUSY, "another client has changed the lock meanwhile");
	case REPLY_NF:
		return fault_set(f, RC_LOST, "%s: %s", c->stream.where, gone);
	default:
		return client_nonsense(c, f);
	}
}

static enum rc
steer_store(struct client *c, const char *tag, const char *name, uint64_t cas,
    int64_t exptime, const struct value *v, instant until, struct fault *f)
{
	char text[VALUE_BYTES];

	if (!value_write(text, v))
		return fault_set(
		    f, RC_CONFIG, "memcached cannot store control characters in a lock");
	client_store(c, tag, name, cas, exptime, text);
	return steer_change(c, no_such_grant, until, f);
}

/* ---- revoke ---- */

static bool
is_meant_item(const struct item *i, const struct target *t)
{
	char cas[24];

	if (!i->there)
		return false;
	if (i->foreign) { /* listing_lock() */
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
	if (i->foreign)
		return fault_set(f, RC_CONFIG,
		    "%s: another client holds the lock, and cannot be asked to give it up (--force takes it away)",
		    c->stream.where);
	snprintf(i->value.mark, sizeof i->value.mark, "%s", record);
	return steer_store(c, ITEM_LOCK, name, i->cas, rest_of(i), &i->value, until, f);
}

/* Leaves a note for the holder's next renewal, and deletes the item. */
static enum rc
take_item(struct client *c, const char *name, const struct item *i, const char *record,
    instant until, struct fault *f)
{
	struct value note = {.since = EPOCH_NONE, .until = EPOCH_NONE};
	int64_t rest = rest_of(i) + NOTE_TIME;
	enum rc rc = RC_OK;

	memcpy(note.owner, i->value.owner, sizeof note.owner);
	snprintf(note.record, sizeof note.record, "%s", record);
	if (!i->foreign)
		rc = steer_store(c, ITEM_NOTE, name, STORE_ANY,
		    rest > EXPTIME_MOST ? EXPTIME_MOST : rest, &note, until, f);
	if (rc != RC_OK)
		return rc;
	client_delete(c, ITEM_LOCK, name, i->cas);
	return steer_change(c, no_such_grant, until, f);
}

static enum rc
memcached_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct client *c = &m->client;
	struct item_name name;
	struct items i;
	enum rc rc = RC_BUSY;

	memcached_name(m, &name, t->key);
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
	    ? fault_set(f, RC_AGAIN, "%s: other clients change this lock all the time",
		  m->server_name)
	    : rc;
}

/* ---- freeze ---- */

static enum rc
memcached_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	int64_t exptime = 0;
	struct value v = {.until = EPOCH_NONE};
	struct item_name name;
	struct items i;
	enum rc rc;

	memcached_name(m, &name, key);
	rc = items_look(&m->client, name.text, ITEMS_STATS, until, &i, f);
	if (rc != RC_OK)
		return rc;
	v.since = i.stats.time * US_PER_S;
	if (length != NEVER) {
		int64_t seconds = length / NS_PER_S + (length % NS_PER_S > 0) +
		    ENDS_EARLY;

		/* a long time is written as a date */
		exptime = seconds > EXPTIME_MOST ? i.stats.time + seconds : seconds;
		v.until = v.since + length / 1000;
	}
	memset(v.owner, '0', OWNER_CHARS);
	snprintf(v.record, sizeof v.record, "%s", record);
	if (name.hashed)
		snprintf(v.key, sizeof v.key, "%s", key);
	return steer_store(
	    &m->client, ITEM_FREEZE, name.text, STORE_ANY, exptime, &v, until, f);
}

static enum rc
memcached_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct item_name name;
	struct items i;
	enum rc rc;

	memcached_name(m, &name, key);
	rc = items_look(&m->client, name.text, 0, until, &i, f);
	if (rc != RC_OK)
		return rc;
	client_delete(&m->client, ITEM_FREEZE, name.text, 0);
	return steer_change(&m->client, "it is not frozen", until, f);
}

/* ---- for doctor ---- */

#define FULL 90 /* percent */

/* Nothing stays of a probe: its items are deleted as they are given back. */
static enum rc
memcached_check(struct store *s, struct checkup *c, struct fault *f)
{
	static const char more[] = "more memory (-m), or a server for locks alone";
	struct memcached *m = memcached_of(s);
	char losses[LOSSES_BYTES];
	struct item_name name;
	struct items i;
	bool full, small, young;
	enum rc rc;

	if (c->sweep)
		return RC_OK;
	item_name(&name, m->prefix, c->probe);
	rc = items_look(
	    &m->client, name.text, ITEMS_STATS | ITEMS_FLUSH, c->until, &i, f);
	if (rc != RC_OK)
		return rc;
	full = i.stats.room > 0 && i.stats.used / FULL >= i.stats.room / 100;
	small = i.stats.evictions > 0;
	young = stats_age(&i.stats) < (c->ttl + NS_PER_S - 1) / NS_PER_S;
	(void)memcached_losses(&i.stats, losses, sizeof losses);
	checkup_tell(
	    c, FIT, "version", NULL, "%s: memcached %s", m->server_name, i.stats.version);
	checkup_tell(c, FIT, "user", NULL, "%s",
	    *m->address.user ? m->address.user : "nobody in particular");
	checkup_tell(c, DOUBTFUL, "cache",
	    "keep locks that must hold elsewhere: dlock-backends(7)", "%s", losses);
	checkup_tell(c, small ? UNFIT : FIT, "eviction", small ? more : NULL,
	    "it has evicted %" PRId64 " items%s", i.stats.evictions,
	    small ? ": its memory is too small" : "");
	checkup_tell(c, full ? UNFIT : FIT, "memory", full ? more : NULL,
	    "%" PRId64 " of %" PRId64 " bytes are used%s", i.stats.used, i.stats.room,
	    full ? ": it is about to evict" : "");
	checkup_tell(c, young ? DOUBTFUL : FIT, "uptime",
	    young ? "wait: it grants nothing before it has been running for the lease"
		  : NULL,
	    "it has neither been started nor told to forget all for %" PRId64 " s",
	    stats_age(&i.stats));
	return RC_OK;
}

/* ---- what others have ---- */

static enum rc
memcached_beside(struct store *s, const char *key, instant until, struct fault *advice)
{
	struct memcached *m = memcached_of(s);
	struct items i;
	enum rc rc;

	if (until == 0 || m->item || !*m->prefix || strlen(key) > 200 ||
	    strpbrk(key, " "))
		return RC_LOST; /* nobody has such an item, or it is ours */
	rc = items_look(&m->client, key, 0, until, &i, advice);
	if (rc == RC_OK && !i.lock.there)
		rc = RC_LOST;
	return rc != RC_OK
	    ? rc
	    : fault_set(advice, RC_OK,
		  "an item has this very name: if it is another client's lock, -O name=NAME takes it (dlock-joins(7))");
}

const struct admin_ops memcached_admin = {memcached_each, memcached_revoke,
    memcached_freeze, memcached_thaw, NULL, memcached_check, memcached_beside};
