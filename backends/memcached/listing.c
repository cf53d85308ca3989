/*
 * listing.c - tells what locks a memcached server has.
 *
 *  1. One key is one question.
 *  2. For all keys the server lists the names of all its items.  While that list is not
 *     read, the server may keep a lock on some of them, for which all its clients would
 *     wait.  So the list is read at once, and the names of locks are kept until its end.
 *     That takes some bytes of memory for each lock; there is no other way to list them.
 *  3. A freeze is told with the hold of its key; without one, by itself.
 */
#include "memcached.h"

#include "backends/common/url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_MOST (3 * NS_PER_S) /* for another client's list to end */
#define BUSY_PAUSE (100 * NS_PER_MS)

enum {
	PAGE = 12,             /* locks that are asked for at once */
	NAMES_MOST = 32 << 20, /* bytes: some hundred thousand locks */
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

/* steer.c knows a foreign item by its CAS. */
static void
listing_foreign(struct listing *l, const char *key, const struct item *i)
{
	char owner[24], what[FOREIGN_CHARS + 64];
	struct foreign foreign = {.what = what};
	struct entry e = {.kind = ENTRY_HOLDER,
	    .owner = owner,
	    .foreign = &foreign,
	    .since = EPOCH_NONE,
	    .until = listing_end(l, i, 0)};

	snprintf(owner, sizeof owner, "c%" PRIu64, i->cas);
	snprintf(what, sizeof what, "another client, whose value is '%s'", i->words);
	listing_tell(l, &e, key);
}

static void
listing_lock(struct listing *l, const char *key, const struct items *i)
{
	const struct value *v = &i->lock.value, *freeze = &i->freeze.value;
	struct entry holder = {.kind = ENTRY_HOLDER,
	    .token = v->token,
	    .owner = v->owner,
	    .record = v->record,
	    .since = v->since,
	    .until = listing_end(l, &i->lock, LEASE_BEYOND),
	    .revoked = *v->mark != '\0'};
	struct entry frozen = {.kind = ENTRY_FREEZE,
	    .record = freeze->record,
	    .since = freeze->since,
	    .until = freeze->until};

	if (i->lock.foreign)
		listing_foreign(l, key, &i->lock);
	else if (i->lock.there)
		listing_tell(l, &holder, key);
	if (i->freeze.there && !l->enough)
		listing_tell(l, &frozen, key);
}

/* ---- one key ---- */

static enum rc
listing_key(struct listing *l, const char *key)
{
	struct item_name name;
	struct items i;
	enum rc rc;

	item_name(&name, l->prefix, key);
	rc = items_look(l->client, name.text, ITEMS_STATS, l->look->until, &i, l->fault);
	if (rc != RC_OK)
		return rc;
	l->at = instant_now();
	l->stats = i.stats;
	listing_lock(l, key, &i);
	return RC_OK;
}

/* ---- all keys ---- */

static enum rc
listing_read_stats(struct listing *l)
{
	instant until = l->look->until;
	enum rc rc;

	stats_init(&l->stats);
	client_word(l->client, "stats");
	rc = client_send(l->client, until, l->fault);
	if (rc == RC_OK)
		rc = stats_read(&l->stats, l->client, until, l->fault);
	l->at = instant_now();
	return rc;
}

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
		    "%s lists more locks than dlock takes in: name a key",
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
	instant until = l->look->until;
	struct reply r;
	enum rc rc;

	client_word(l->client, "lru_crawler metadump hash");
	rc = client_send(l->client, until, l->fault);
	while (rc == RC_OK) {
		rc = client_read(l->client, &r, until, l->fault);
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
	instant most = instant_first(l->look->until, instant_now() + BUSY_MOST);
	enum rc rc;

	while ((rc = listing_try_names(l)) == RC_BUSY && instant_now() < most)
		if (host->wait(host, -1, 0, instant_now() + BUSY_PAUSE) == WOKE_STOP)
			return RC_STOP;
	return rc == RC_BUSY ? fault_set(l->fault, RC_AGAIN,
				   "%s is listing its items for somebody else: try again",
				   l->client->stream.where)
			     : rc;
}

/* The next name, up to `end`. */
static const char *
next_name(const char *name, const char *end)
{
	return name < end ? name + strlen(name) + 1 : end;
}

/* Asks for the locks of a page of names at once, and tells them. */
static enum rc
listing_page(struct listing *l, const char *from, const char *to)
{
	char key[KEY_BYTES + 1];
	const char *lock;
	struct items i;
	enum rc rc;

	for (const char *name = from; name < to; name = next_name(name, to)) {
		item_name_read(key, &lock, l->prefix, name);
		items_ask(l->client, lock, 0);
	}
	rc = client_send(l->client, l->look->until, l->fault);
	for (; rc == RC_OK && from < to; from = next_name(from, to)) {
		rc = items_read(l->client, 0, l->look->until, &i, l->fault);
		items_number(&i, &l->stats);
		if (rc == RC_OK)
			listing_found(l, from, &i);
	}
	return rc;
}

static enum rc
listing_names(struct listing *l)
{
	const char *from = l->names, *end = l->names + l->used, *to;
	enum rc rc = RC_OK;

	for (; rc == RC_OK && !l->enough && from < end; from = to) {
		to = from;
		for (int n = 0; n < PAGE; n++)
			to = next_name(to, end);
		rc = listing_page(l, from, to);
	}
	return rc;
}

static enum rc
listing_all(struct listing *l)
{
	enum rc rc = listing_read_stats(l);

	if (rc == RC_OK)
		rc = listing_read_names(l);
	if (rc == RC_OK && l->used > 0)
		rc = listing_names(l);
	free(l->names);
	return rc;
}

enum rc
memcached_each(struct store *s, const struct look *look, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	struct listing l = {
	    .client = &m->client, .prefix = m->prefix, .look = look, .fault = f};

	return look->key ? listing_key(&l, look->key) : listing_all(&l);
}
