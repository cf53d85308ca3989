/*
 * memcached.c - locks in memcached: the store, its settings, acquire, wait, renew, release;
 * looking (listing.h) and steering (orders.h) are left to others.
 *
 * It is a cache: it may evict, and it forgets all with a restart.  What can be done against
 * that is done; the rest is told, and for the rest there is the token.
 *
 *  1. A lock is an item (name.h, value.h) that is added where there is none, written over
 *     and deleted by compare-and-swap only.
 *  2. A CAS is believed on the connection on which it was read: a server that has been
 *     restarted counts from 1 again.  On another connection the item is read, and its
 *     owner compared, first.  So it is when a CAS has changed: somebody has asked for the
 *     lock back, or our own last write has arrived though its answer has not.
 *  3. Whether anything may be written is read before: the item, its freeze, the last token,
 *     and what the server says of itself.  A server that is not what we think gets nothing
 *     that it could take for commands (value.h).
 *  4. Who is granted has, after the item was added, found no freeze and has the number of
 *     the last grant counted up; where another has counted it meanwhile, it is dealt anew and
 *     the item written once more.  So a freeze, and every earlier token, came before.
 *  5. Items end when a clock of whole seconds says so, which takes between n - 1 and n
 *     seconds: a second more is asked for than the lease has.
 *  6. That clock may stand still (vitals.h); a write by it counts as none.
 *  7. A server that has been running, or was told to forget all, for less than the lease,
 *     grants nothing: who held the lock may not know it yet.
 *  8. No answer to an add: it is looked for, and is ours if our owner stands there.
 *  9. An error that leaves no room for a renewed item takes the old one along (-M): so it
 *     is looked for at once.
 * 10. Waiting is asking now and then: nobody is told of a release, and there is no order.
 */
#include "backends/backend.h"

#include "backends/dice.h"
#include "backends/patience.h"
#include "backends/refuse.h"
#include "backends/secret.h"
#include "backends/setting.h"
#include "listing.h"
#include "orders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a waiter asks so often, give or take a quarter */
#define POLL (200 * NS_PER_MS)
#define POLL_JITTER (100 * NS_PER_MS)
#define POLL_YOUNG NS_PER_S
#define ASK_PATIENCE (3 * NS_PER_S) /* for an answer while waiting */
#define NOTE_PATIENCE (300 * NS_PER_MS)
#define WITHDRAWAL NS_PER_S

enum {
	TRIES = 3, /* of one call, where others write at the same time */
	US_PER_S = 1000000,
};

/* Our item, as we wrote it last. */
struct memcached_hold {
	bool is; /* granted */
	uint64_t cas;
	unsigned epoch; /* of the connection on which that was read; 0: not known */
	struct value value;
};

struct memcached {
	struct store base;
	const struct claim *claim;
	struct names names; /* of the claim */
	const char *prefix;
	struct location address;
	char where[WHERE_BYTES];
	struct cache cache;
	struct patience patience;
	struct tick tick;
	struct memcached_hold hold;
	bool asked;  /* an item of ours may be there */
	bool unsure; /* an add went out, and was not answered: it may yet arrive */
	bool let_go; /* a deletion went out, and was not answered */
	bool told;   /* that it has evicted or forgotten */
	bool young;  /* why it was not granted: it may have forgotten a holder */
	bool young_told;
	uint64_t dice;
};

const struct backend memcached_backend;

static struct memcached *
memcached_of(struct store *s)
{
	return (struct memcached *)store_of(s, &memcached_backend);
}

/* ---- open ---- */

static enum rc
memcached_password_file(struct store *s, const char *value, struct fault *f)
{
	struct location *a = &memcached_of(s)->address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
memcached_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_patience(value, &memcached_of(s)->patience.first, f);
}

static enum rc
memcached_prefix(struct store *s, const char *value, struct fault *f)
{
	memcached_of(s)->prefix = value;
	return name_is_prefix(value)
	    ? RC_OK
	    : fault_set(f, RC_USAGE,
		  "prefix is up to %d printable characters of ASCII without blanks, %% and #, or empty",
		  PREFIX_MOST);
}

static const struct setting_row settings[] = {
    {"password-file", "FILE", "the password, in a file of mode 0600",
	memcached_password_file},
    {"prefix", "TEXT",
	"names of items are this and the key (default: dlock:); empty: the key itself",
	memcached_prefix},
    {"connect-timeout", "DURATION",
	"for a server that does not answer, without --wait (default: 5s)",
	memcached_connect_timeout},
    {0},
};

static void
memcached_close(struct store *s)
{
	struct memcached *m = s ? memcached_of(s) : NULL;

	if (!m)
		return;
	cache_close(&m->cache);
	explicit_bzero(&m->address, sizeof m->address);
	free(m);
}

static enum rc
memcached_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct memcached *m = calloc(1, sizeof *m);
	enum rc rc;

	if (!m)
		return fault_set(f, RC_SYSTEM, "out of memory");
	m->base = (struct store){&memcached_backend, host, m->where,
	    CAP_DURABLE | CAP_REVOKE | CAP_FORCE | CAP_FREEZE};
	m->prefix = "dlock:";
	patience_init(&m->patience);
	cache_init(&m->cache, host, &m->address, m->where);
	rc = location_parse(&m->address, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&m->base, site, f);
	if (rc == RC_OK)
		rc = location_check_login(&m->address, f);
	if (rc != RC_OK) {
		memcached_close(&m->base);
		return rc;
	}
	location_print(&m->address, m->where, sizeof m->where);
	*ret = &m->base;
	return RC_OK;
}

/* ---- what the user should know ---- */

/* Once, that it is no place for what must not be lost; or, without -v, that it has lost. */
static void
memcached_tell(struct memcached *m, const struct vitals *v)
{
	struct host *host = m->base.host;
	bool has_lost = v->evictions > 0 || v->flushes > 0;

	if (m->told || (!has_lost && !host->verbose))
		return;
	m->told = true;
	fault_set(&host->notice, RC_OK,
	    "%s may lose locks: it is a cache, which evicts when it is full and forgets all when it is restarted (it has evicted %" PRIu64
	    " items, and was told %" PRIu64
	    " times to forget all); see dlock-backends(7)",
	    m->where, v->evictions, v->flushes);
}

static enum rc
memcached_stands_still(const struct memcached *m, struct fault *f)
{
	return fault_set(f, RC_AGAIN,
	    "the clock of %s stands still: it was stopped, and what it keeps ends too early",
	    m->where);
}

/* ---- what is seen of others ---- */

static int64_t
server_now(const struct memcached *m)
{
	return m->tick.time * US_PER_S + (instant_now() - m->tick.at) / 1000;
}

static int64_t
held_for(const struct memcached *m, int64_t since)
{
	int64_t us = since == EPOCH_NONE || !m->tick.known ? -1 : server_now(m) - since;

	return us < 0 ? -1 : us * 1000;
}

static void
memcached_show(struct memcached *m, struct sight *i)
{
	struct host *host = m->base.host;
	struct value *of = i->held && !i->foreign ? &i->value
	    : !i->held && i->frozen               ? &i->freeze
						  : NULL;

	host->seen.position = 0;
	host->seen.held = -1;
	*host->seen.holder = '\0';
	if (of) {
		secret_blot(of->record, m->address.password);
		memcpy(host->seen.holder, of->record, sizeof of->record);
		host->seen.held = held_for(m, of->since);
	}
	host->seen.kind = KIND_EXCLUSIVE;
	host->seen.holders = i->held;
	host->seen.frozen = i->frozen;
}

static enum rc
memcached_busy(struct memcached *m, struct sight *i, struct fault *f)
{
	memcached_show(m, i);
	return fault_set(
	    f, RC_BUSY, "%s: %s", m->where, i->frozen && !i->held ? "frozen" : "held");
}

/* ---- acquire ---- */

/* The item is to live for the lease at least. */
static int64_t
exptime_of(const struct claim *c)
{
	return ns_to_ms(c->ttl) / 1000 + (ns_to_ms(c->ttl) % 1000 > 0) + 1;
}

static enum rc
memcached_young(struct memcached *m, int64_t age, struct fault *f)
{
	int64_t lease = exptime_of(m->claim) - 1;

	m->young = true;
	m->base.host->seen.holders = 0;
	*m->base.host->seen.holder = '\0';
	m->base.host->seen.held = -1;
	return fault_set(f, RC_BUSY,
	    "%s was started, or told to forget all, %lld s ago and may not know who holds it: dlock waits until it has been for the lease, %lld s",
	    m->where, age < 0 ? 0LL : (long long)age, (long long)lease);
}

/* Deletes what has come to nothing. */
static enum rc
memcached_withdraw(struct memcached *m, uint64_t cas)
{
	instant until = instant_now() + WITHDRAWAL;
	struct fault ignored;
	struct answer a;
	struct batch b;
	enum rc rc;

	batch_begin(&b);
	batch_delete(&b, m->names.lock, cas);
	rc = cache_go_on(&m->cache, &b, until, &ignored);
	if (rc == RC_OK)
		rc = cache_read(&m->cache, &a, until, &ignored);
	if (rc == RC_OK && (a.reply.code == REPLY_HD || a.reply.code == REPLY_NF))
		m->asked = m->unsure;
	return rc == RC_STOP ? RC_STOP : RC_OK;
}

static void
memcached_watch(struct memcached *m)
{
	m->base.host->alert = m->cache.stream.fd;
}

static enum rc
memcached_granted(struct memcached *m, uint64_t cas, instant sent, struct grant *g)
{
	m->hold.is = true;
	m->hold.cas = cas;
	m->hold.epoch = m->cache.epoch;
	*g = (struct grant){.token = m->hold.value.token,
	    .sent = sent,
	    .lease = m->claim->ttl,
	    .anchor = -1};
	memcached_watch(m);
	return RC_OK;
}

/* Our item; cas 0: where there is none. */
static enum rc
put_hold(struct memcached *m, struct batch *b, uint64_t cas, struct fault *f)
{
	struct store_how how = {cas ? STORE_OVER : STORE_NEW, cas, exptime_of(m->claim)};
	char text[VALUE_BYTES];
	size_t n = value_write(text, &m->hold.value);

	if (n == 0)
		return fault_set(
		    f, RC_SYSTEM, "the record of this run has control characters in it");
	batch_store(b, m->names.lock, &how, text, n);
	return RC_OK;
}

static void
put_counter(struct memcached *m, struct batch *b, const struct sight *i)
{
	struct store_how how = {
	    i->counter_cas ? STORE_OVER : STORE_NEW, i->counter_cas, EXPTIME_MOST};
	char digits[24];
	int n = snprintf(digits, sizeof digits, "%" PRIu64, m->hold.value.token);

	batch_store(b, m->names.counter, &how, digits, n);
}

/* What became of a store. */
struct stored {
	bool is;
	uint64_t cas; /* 0: the server keeps none */
};

static enum rc
read_stored(struct memcached *m, struct stored *s, instant until, struct fault *f)
{
	struct answer a;
	enum rc rc = cache_read(&m->cache, &a, until, f);

	if (rc != RC_OK)
		return rc;
	*s = (struct stored){a.reply.code == REPLY_HD, a.reply.cas};
	return s->is || a.reply.code == REPLY_NS || a.reply.code == REPLY_EX ||
		a.reply.code == REPLY_NF
	    ? RC_OK
	    : cache_nonsense(&m->cache, f);
}

/* Lost a race: who has it?  That nobody has any more is for the next time. */
static enum rc
memcached_beaten(struct memcached *m, instant until, struct fault *f)
{
	struct sight i;
	enum rc rc = sight_read(&m->cache, &m->names, 0, until, &i, f);

	return rc == RC_OK ? memcached_busy(m, &i, f) : rc;
}

/* It was added by us just now, and lives for as long as our lease: it is ours to delete. */
static enum rc
memcached_without_cas(struct memcached *m, struct fault *f)
{
	if (memcached_withdraw(m, 0) == RC_STOP)
		return RC_STOP;
	cache_close(&m->cache);
	return sight_without_cas(&m->cache, f);
}

/* The item is ours, and comes behind the freeze; or it is not ours any more. */
static enum rc
memcached_frozen(
    struct memcached *m, const struct stored *hold, struct value *freeze, struct fault *f)
{
	struct sight i = {.frozen = true, .freeze = *freeze};

	if (hold->is && memcached_withdraw(m, hold->cas) == RC_STOP)
		return RC_STOP;
	return memcached_busy(m, &i, f);
}

/* The next token, from the server. */
static enum rc
memcached_deal(struct memcached *m, int64_t time, instant until, struct fault *f)
{
	struct answer a;
	struct batch b;
	enum rc rc;

	batch_begin(&b);
	batch_count(&b, m->names.counter, EXPTIME_MOST, time * US_PER_S);
	rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = cache_read(&m->cache, &a, until, f);
	if (rc != RC_OK)
		return rc;
	return a.reply.code == REPLY_VA && sight_read_token(a.value, &m->hold.value.token)
	    ? RC_OK
	    : cache_nonsense(&m->cache, f);
}

/* Ours by `cas`, but not yet with a token of its own: it gets one, and is written again. */
static enum rc
memcached_confirm(struct memcached *m, uint64_t cas, int64_t time, instant until,
    struct grant *g, struct fault *f)
{
	enum rc rc = memcached_deal(m, time, until, f);
	struct stored hold = {.is = false};
	struct value freeze;
	struct batch b;
	bool frozen;
	instant sent;

	batch_begin(&b);
	if (rc == RC_OK)
		rc = put_hold(m, &b, cas, f);
	if (rc != RC_OK)
		return rc;
	batch_get(&b, m->names.freeze);
	sent = instant_now();
	rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = read_stored(m, &hold, until, f);
	if (rc == RC_OK)
		rc = sight_read_value(&m->cache, &frozen, &freeze, until, f);
	if (rc != RC_OK)
		return rc;
	if (hold.is && !hold.cas)
		return memcached_without_cas(m, f);
	if (frozen)
		return memcached_frozen(m, &hold, &freeze, f);
	return hold.is ? memcached_granted(m, hold.cas, sent, g)
		       : memcached_beaten(m, until, f);
}

/* There is none: ours is added. */
static enum rc
memcached_add(struct memcached *m, const struct sight *i, instant until, struct grant *g,
    struct fault *f)
{
	int64_t now = i->vitals.time * US_PER_S;
	struct stored hold = {.is = false}, counted;
	struct value freeze;
	struct batch b;
	bool frozen, unsure;
	instant sent;
	enum rc rc;

	m->hold.value.token = i->last ? i->last + 1 : (uint64_t)now;
	m->hold.value.since = now;
	batch_begin(&b);
	rc = put_hold(m, &b, 0, f);
	if (rc != RC_OK)
		return rc;
	put_counter(m, &b, i);
	batch_get(&b, m->names.freeze);
	unsure = m->unsure;
	m->asked = m->unsure = true;
	sent = instant_now();
	rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = read_stored(m, &hold, until, f);
	if (rc == RC_OK)
		rc = read_stored(m, &counted, until, f);
	if (rc == RC_OK)
		rc = sight_read_value(&m->cache, &frozen, &freeze, until, f);
	if (rc != RC_OK)
		return rc;
	m->unsure = unsure;
	m->asked = hold.is || unsure;
	if (hold.is && !hold.cas)
		return memcached_without_cas(m, f);
	if (frozen)
		return memcached_frozen(m, &hold, &freeze, f);
	if (!hold.is)
		return memcached_beaten(m, until, f);
	return counted.is ? memcached_granted(m, hold.cas, sent, g)
			  : memcached_confirm(m, hold.cas, i->vitals.time, until, g, f);
}

/* It is there from an attempt whose answer we did not get. */
static enum rc
memcached_adopt(struct memcached *m, const struct sight *i, instant until,
    struct grant *g, struct fault *f)
{
	m->hold.value.since = i->value.since;
	memcpy(m->hold.value.mark, i->value.mark, sizeof i->value.mark);
	return memcached_confirm(m, i->cas, i->vitals.time, until, g, f);
}

/* RC_OK: granted.  RC_BUSY: not yet. */
static enum rc
memcached_ask(struct memcached *m, instant until, struct grant *g, struct fault *f)
{
	struct sight i;
	enum rc rc = sight_read(
	    &m->cache, &m->names, SIGHT_SERVER | SIGHT_COUNTER, until, &i, f);
	bool ours, is_young;

	if (rc != RC_OK)
		return rc;
	if (!tick_goes_on(&m->tick, i.sent, instant_now(), i.vitals.time))
		return memcached_stands_still(m, f);
	if (m->base.host->verbose)
		memcached_tell(m, &i.vitals);
	ours = sight_is_of(&i, m->claim->owner);
	if (i.held && !ours)
		return memcached_busy(m, &i, f);
	is_young = vitals_age(&i.vitals) < exptime_of(m->claim) - 1;
	if ((i.frozen || is_young) && ours && memcached_withdraw(m, i.cas) == RC_STOP)
		return RC_STOP;
	i.held = false;
	if (i.frozen)
		return memcached_busy(m, &i, f);
	if (is_young)
		return memcached_young(m, vitals_age(&i.vitals), f);
	return ours ? memcached_adopt(m, &i, until, g, f)
		    : memcached_add(m, &i, until, g, f);
}

/* The same for a waiter, who asks for little as long as others have it. */
static enum rc
memcached_poll(struct memcached *m, instant until, struct grant *g, struct fault *f)
{
	struct sight i;
	enum rc rc = sight_read(&m->cache, &m->names, 0, until, &i, f);

	if (rc != RC_OK)
		return rc;
	if (i.frozen || (i.held && !sight_is_of(&i, m->claim->owner)))
		return memcached_busy(m, &i, f);
	return memcached_ask(m, until, g, f);
}

/* Sleeps until it is time to ask again.  RC_BUSY: `until` has come. */
static enum rc
memcached_pause(struct memcached *m, instant until, struct fault *f)
{
	struct host *host = m->base.host;
	int64_t pause = m->young ? POLL_YOUNG : POLL - POLL_JITTER / 2;
	instant next = instant_now() + pause + dice_roll(&m->dice, POLL_JITTER);

	if (m->young && !m->young_told) {
		host->notice = *f;
		m->young_told = true;
	}
	if (host->wait(host, -1, 0, instant_first(next, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() >= until ? RC_BUSY : RC_OK;
}

static void
memcached_begin(struct memcached *m, const struct claim *claim)
{
	struct value *v = &m->hold.value;

	m->claim = claim;
	name_lock(&m->names, m->prefix, claim->key);
	*v = (struct value){.until = EPOCH_NONE};
	snprintf(v->owner, sizeof v->owner, "%s", claim->owner);
	snprintf(v->record, sizeof v->record, "%s", claim->record);
	if (m->names.hashed)
		snprintf(v->key, sizeof v->key, "%s", claim->key);
	m->dice = dice_of(claim->owner);
	patience_begin(&m->patience, claim);
}

static enum rc
memcached_attempt(
    struct memcached *m, bool heard, instant until, struct grant *g, struct fault *f)
{
	m->young = false;
	return heard ? memcached_poll(m, instant_now() + ASK_PATIENCE, g, f)
		     : memcached_ask(m, patience_attempt(&m->patience, until), g, f);
}

static enum rc
memcached_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	bool heard = false;
	enum rc rc;

	if (exptime_of(claim) > EXPTIME_MOST)
		return fault_set(f, RC_USAGE,
		    "%s keeps nothing for longer than 30 days: give a shorter --ttl",
		    m->where);
	memcached_begin(m, claim);
	do {
		rc = memcached_attempt(m, heard, until, g, f);
		if (rc == RC_BUSY) {
			heard = true;
			patience_end_outage(&m->patience);
			if (!until)
				return m->young ? RC_AGAIN : RC_BUSY;
			rc = memcached_pause(m, until, f);
		} else {
			rc = patience_retry(&m->patience, s->host, rc, heard, until);
		}
	} while (rc == RC_OK && !m->hold.is);
	return rc;
}

/* ---- renew ---- */

/* Who has taken it away may have left a note. */
static enum rc
memcached_lost(struct memcached *m, instant until, struct fault *f)
{
	struct value note;
	struct fault ignored;
	struct batch b;
	bool is = false;

	until = instant_first(until, instant_now() + NOTE_PATIENCE);
	batch_begin(&b);
	batch_get(&b, m->names.broken);
	if (cache_send(&m->cache, &b, until, &ignored) == RC_OK &&
	    sight_read_value(&m->cache, &is, &note, until, &ignored) == RC_OK && is &&
	    strcmp(note.owner, m->hold.value.owner) == 0) {
		secret_blot(note.record, m->address.password);
		return refuse_broken(m->base.host, f, RC_LOST, m->where, note.record);
	}
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it was evicted or deleted, or the server was restarted or told to forget all",
	    m->where);
}

static bool
is_our_hold(const struct memcached *m, const struct sight *i)
{
	return sight_is_of(i, m->hold.value.owner) &&
	    i->value.token == m->hold.value.token;
}

/* Reads what we hold: its CAS, and whether it is asked back. */
static enum rc
memcached_find(struct memcached *m, instant until, struct fault *f)
{
	struct sight i;
	enum rc rc = sight_read(&m->cache, &m->names, 0, until, &i, f);

	if (rc != RC_OK)
		return rc;
	if (!is_our_hold(m, &i))
		return memcached_lost(m, until, f);
	m->hold.cas = i.cas;
	m->hold.epoch = m->cache.epoch;
	memcpy(m->hold.value.mark, i.value.mark, sizeof i.value.mark);
	return RC_OK;
}

/* It was written, at `sent`, by a server whose clock says this. */
static enum rc
memcached_renewed(struct memcached *m, const struct vitals *v, instant sent,
    struct grant *g, struct fault *f)
{
	memcached_tell(m, v);
	if (!tick_goes_on(&m->tick, sent, instant_now(), v->time))
		return memcached_stands_still(m, f);
	g->sent = sent;
	g->lease = m->claim->ttl;
	if (!*m->hold.value.mark)
		return RC_OK;
	secret_blot(m->hold.value.mark, m->address.password);
	return refuse_broken(m->base.host, f, RC_REVOKED, m->where, m->hold.value.mark);
}

/* *again: its CAS was another, or no answer came; it is to be looked for. */
static enum rc
memcached_write(
    struct memcached *m, instant until, struct grant *g, bool *again, struct fault *f)
{
	struct vitals v;
	struct answer a;
	struct batch b;
	instant sent = instant_now();
	enum rc rc;

	vitals_init(&v);
	batch_begin(&b);
	batch_word(&b, "stats");
	rc = put_hold(m, &b, m->hold.cas, f);
	if (rc == RC_OK)
		rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = cache_read_vitals(&m->cache, &v, until, f);
	if (rc == RC_OK)
		rc = cache_read(&m->cache, &a, until, f);
	m->hold.epoch = 0;
	*again = rc != RC_STOP;
	if (rc != RC_OK)
		return rc;
	switch (a.reply.code) {
	case REPLY_HD:
		*again = false;
		if (!a.reply.cas)
			return cache_nonsense(&m->cache, f);
		m->hold.cas = a.reply.cas;
		m->hold.epoch = m->cache.epoch;
		return memcached_renewed(m, &v, sent, g, f);
	case REPLY_NF:
		*again = false;
		return memcached_lost(m, until, f);
	case REPLY_EX:
	case REPLY_NS:
		return fault_set(
		    f, RC_AGAIN, "%s: others write to this lock all the time", m->where);
	default:
		return cache_nonsense(&m->cache, f);
	}
}

static enum rc
memcached_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	bool again = true;
	enum rc rc = RC_OK;

	for (int i = 0; i < TRIES && again; i++) {
		if (i > 0 && instant_now() >= until)
			break;
		if (!cache_is_same(&m->cache, m->hold.epoch))
			rc = memcached_find(m, until, f);
		again = false;
		if (rc == RC_OK)
			rc = memcached_write(m, until, g, &again, f);
		rc = again && i + 1 < TRIES && instant_now() < until ? RC_OK : rc;
	}
	memcached_watch(m);
	return rc == RC_OK || rc == RC_REVOKED || rc == RC_LOST || rc == RC_STOP
	    ? rc
	    : RC_AGAIN;
}

/* ---- release ---- */

/* It is not there (any more) as ours. */
static enum rc
memcached_gone(struct memcached *m, instant until, struct fault *f)
{
	bool held = m->hold.is, known = !m->let_go;

	m->asked = m->hold.is = m->let_go = false;
	if (!held)
		return RC_OK;
	return known ? memcached_lost(m, until, f)
		     : fault_set(f, RC_AGAIN,
			   "%s closed the connection before it answered", m->where);
}

/* RC_OK: *cas is ours; 0: it is not there. */
static enum rc
find_to_release(struct memcached *m, uint64_t *cas, instant until, struct fault *f)
{
	struct sight i;
	enum rc rc;

	*cas = m->hold.cas;
	if (m->hold.is && cache_is_same(&m->cache, m->hold.epoch))
		return RC_OK;
	rc = sight_read(&m->cache, &m->names, 0, until, &i, f);
	*cas = rc == RC_OK && sight_is_of(&i, m->claim->owner) ? i.cas : 0;
	return rc;
}

static enum rc
memcached_delete(
    struct memcached *m, uint64_t cas, instant until, bool *again, struct fault *f)
{
	struct answer a;
	struct batch b;
	enum rc rc;

	batch_begin(&b);
	batch_delete(&b, m->names.lock, cas);
	m->let_go = true;
	rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = cache_read(&m->cache, &a, until, f);
	if (rc != RC_OK)
		return rc;
	m->let_go = false;
	m->hold.epoch = 0;
	switch (a.reply.code) {
	case REPLY_HD:
		m->asked = m->hold.is = false;
		return RC_OK;
	case REPLY_NF:
		return memcached_gone(m, until, f);
	case REPLY_EX:
		*again = true;
		return RC_OK;
	default:
		return cache_nonsense(&m->cache, f);
	}
}

static enum rc
memcached_release(struct store *s, int status, instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	enum rc rc = RC_OK;
	bool again = true;
	uint64_t cas;

	(void)status;
	m->base.host->alert = -1;
	for (int i = 0; m->asked && again && i < TRIES; i++) {
		again = false;
		rc = find_to_release(m, &cas, until, f);
		if (rc == RC_OK)
			rc = cas ? memcached_delete(m, cas, until, &again, f)
				 : memcached_gone(m, until, f);
	}
	if (again && m->asked)
		return fault_set(
		    f, RC_AGAIN, "%s: others write to this lock all the time", m->where);
	return rc == RC_OK || rc == RC_LOST || rc == RC_STOP ? rc : RC_AGAIN;
}

/* ---- looking and steering ---- */

static enum rc
memcached_each(struct store *s, const struct look *look, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return listing_each(&m->cache, m->prefix, look, f);
}

static enum rc
memcached_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return orders_revoke(&m->cache, m->prefix, t, record, force, until, f);
}

static enum rc
memcached_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return orders_freeze(&m->cache, m->prefix, key, record, length, until, f);
}

static enum rc
memcached_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return orders_thaw(&m->cache, m->prefix, key, until, f);
}

const struct backend memcached_backend = {
    .name = "memcached",
    .schemes = (const char *const[]){"memcached", NULL},
    .settings = settings,
    .url_help = "memcached://[user:password@]host[:port]",
    .caveat = "best effort: memcached may evict it, and forgets it when it is restarted",
    .open = memcached_open,
    .close = memcached_close,
    .lock = &(
	const struct lock_ops){memcached_acquire, memcached_renew, memcached_release},
    .admin = &(const struct admin_ops){memcached_each, memcached_revoke, memcached_freeze,
	memcached_thaw},
};
