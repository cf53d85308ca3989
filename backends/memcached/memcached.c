/*
 * memcached.c - locks in memcached: acquire, renew, release.
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
 *  3. Whether anything may be written is read before: the item, its freeze, and what the
 *     server says of itself.  A server that is not what we think gets nothing that it could
 *     take for commands (value.h).
 *  4. Every freeze came before a grant (grant.h), and its token is greater than any before
 *     (token.h).
 *  5. Items end by a clock of whole seconds, early by up to two of them: more is asked for
 *     than the lease has (vitals.h).
 *  6. That clock may stand still (vitals.h); a write by it counts as none.
 *  7. A server that has been running, or was told to forget all, for less than the lease,
 *     grants nothing: who held the lock may not know it yet.  Nor does one that has counted
 *     too many changes for a token, until it has been running for longer (token.h).
 *  8. No answer to an add: it is looked for, and is ours if our owner stands there.
 *  9. An error that leaves no room for a renewed item takes the old one along (-M): so it
 *     is looked for at once.
 * 10. Waiting is asking now and then (pace.h): nobody is told of a release, and there is no
 *     order.
 */
#include "memcached.h"

#include "backends/common/text.h"
#include "grant.h"
#include "listing.h"
#include "orders.h"
#include "settings.h"
#include "tell.h"

#include <stdio.h>
#include <string.h>

#define ASK_PATIENCE (3 * NS_PER_S) /* for an answer while waiting */
#define NOTE_PATIENCE (300 * NS_PER_MS)
#define LATE NS_PER_S /* a standstill that is shorter does no harm */
#define MOMENT (100 * NS_PER_MS)

enum { TRIES = 3 }; /* of one call, where others write at the same time */

/* ---- acquire ---- */

/*
 * All that is asked before an item is added.  Whether the server was told to forget all is
 * seen behind it (grant.h): only who has been refused for that asks before, too.
 *
 * A server that was stopped answers what has waited for it by a clock that may not have gone
 * on yet (vitals.h), and who asks for the first time cannot see that: so after an answer that
 * was late the clock is given a moment, and asked again.
 */
static enum rc
memcached_question(struct memcached *m, instant until, struct sight *i, struct fault *f)
{
	unsigned what = SIGHT_SERVER | (m->flushed ? SIGHT_FLUSH : 0);
	struct host *host = m->base.host;
	enum rc rc = sight_read(&m->cache, &m->names, what, until, i, f);

	if (rc != RC_OK || m->tick.known || instant_now() - i->sent < LATE)
		return rc;
	if (host->wait(host, -1, 0, instant_now() + MOMENT) == WOKE_STOP)
		return RC_STOP;
	return sight_read(&m->cache, &m->names, what, until, i, f);
}

/* RC_OK: granted.  RC_BUSY: not yet. */
static enum rc
memcached_ask(struct memcached *m, instant until, struct grant *g, struct fault *f)
{
	struct sight i;
	enum rc rc = memcached_question(m, until, &i, f);
	bool ours, is_young;

	if (rc != RC_OK)
		return rc;
	if (!tick_goes_on(&m->tick, i.sent, instant_now(), i.vitals.time))
		return tell_standstill(m, f);
	if (m->base.host->verbose)
		tell_losses(m, &i.vitals);
	ours = sight_is_of(&i, m->claim->owner);
	if (i.held && !ours)
		return tell_busy(m, &i, f);
	is_young = vitals_age(&i.vitals) < grant_seconds(m->claim);
	if ((i.frozen || is_young) && ours && grant_withdraw(m, i.cas) == RC_STOP)
		return RC_STOP;
	i.held = false;
	if (i.frozen)
		return tell_busy(m, &i, f);
	if (is_young)
		return tell_young(m, vitals_age(&i.vitals), f);
	return ours ? grant_adopt(m, &i, until, g, f) : grant_add(m, &i, until, g, f);
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
		return tell_busy(m, &i, f);
	return memcached_ask(m, until, g, f);
}

static void
memcached_begin(struct memcached *m, const struct claim *claim)
{
	struct value *v = &m->hold.value;

	m->claim = claim;
	name_lock(&m->names, m->place.prefix, claim->key);
	*v = (struct value){.until = EPOCH_NONE};
	snprintf(v->owner, sizeof v->owner, "%s", claim->owner);
	snprintf(v->record, sizeof v->record, "%s", claim->record);
	if (m->names.hashed)
		snprintf(v->key, sizeof v->key, "%s", claim->key);
	pace_begin(&m->pace, claim);
}

static enum rc
memcached_attempt(
    struct memcached *m, bool heard, instant until, struct grant *g, struct fault *f)
{
	m->pace.unready = READY;
	return heard ? memcached_poll(m, instant_now() + ASK_PATIENCE, g, f)
		     : memcached_ask(m, retry_attempt(&m->pace.patience, until), g, f);
}

static enum rc
memcached_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	bool heard = false;
	enum rc rc;

	if (grant_exptime(claim) > EXPTIME_MOST)
		return fault_set(f, RC_USAGE,
		    "%s keeps nothing for longer than 30 days: give a shorter --ttl",
		    m->place.where);
	memcached_begin(m, claim);
	do {
		rc = memcached_attempt(m, heard, until, g, f);
		if (rc == RC_BUSY) {
			heard = true;
			retry_end_outage(&m->pace.patience);
			if (!until)
				return m->pace.unready ? RC_AGAIN : RC_BUSY;
			rc = pace_sleep(&m->pace, s->host, until, f);
		} else {
			rc = retry_wait(&m->pace.patience, s->host, rc, heard, until);
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
		secret_blot(note.record, m->place.address.password);
		return refuse_broken(
		    m->base.host, f, RC_LOST, m->place.where, note.record);
	}
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it was evicted or deleted, or the server was restarted or told to forget all",
	    m->place.where);
}

static bool
is_our_hold(const struct memcached *m, const struct sight *i)
{
	return sight_is_of(i, m->hold.value.owner) &&
	    i->value.token == m->hold.value.token;
}

/*
 * What is there, and not the item of our grant, is deleted if it is ours: an add that was late
 * has left it.  RC_OK or RC_STOP.
 */
static enum rc
delete_late(struct memcached *m, const struct sight *i)
{
	return sight_is_of(i, m->claim->owner) ? grant_withdraw(m, i->cas) : RC_OK;
}

/* Reads what we hold: its CAS, and whether it is asked back. */
static enum rc
memcached_find(struct memcached *m, instant until, struct fault *f)
{
	struct sight i;
	enum rc rc = sight_read(&m->cache, &m->names, SIGHT_SERVER, until, &i, f);

	if (rc != RC_OK)
		return rc;
	if (!is_our_hold(m, &i))
		return delete_late(m, &i) == RC_STOP ? RC_STOP
						     : memcached_lost(m, until, f);
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
	tell_losses(m, v);
	if (!tick_goes_on(&m->tick, sent, instant_now(), v->time))
		return tell_standstill(m, f);
	g->sent = sent;
	g->lease = m->claim->ttl;
	g->pace = GRANT_PACE;
	if (!*m->hold.value.mark)
		return RC_OK;
	secret_blot(m->hold.value.mark, m->place.address.password);
	return refuse_broken(
	    m->base.host, f, RC_REVOKED, m->place.where, m->hold.value.mark);
}

/* To our write. */
struct written {
	instant sent;
	struct vitals vitals;
	struct answer answer;
};

/* Writes our item over the one whose CAS we know; the server says how it is, too. */
static enum rc
memcached_write(struct memcached *m, instant until, struct written *w, struct fault *f)
{
	struct batch b;
	enum rc rc;

	vitals_init(&w->vitals);
	batch_begin(&b);
	batch_word(&b, "stats");
	rc = grant_put(m, &b, m->hold.cas, f);
	w->sent = instant_now();
	if (rc == RC_OK)
		rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = cache_read_vitals(&m->cache, &w->vitals, until, f);
	return rc == RC_OK ? cache_read(&m->cache, &w->answer, until, f) : rc;
}

/* *again: its CAS was another, or no answer came; it is to be looked for. */
static enum rc
memcached_rewrite(
    struct memcached *m, instant until, struct grant *g, bool *again, struct fault *f)
{
	struct written w;
	enum rc rc = memcached_write(m, until, &w, f);
	enum reply_code code = rc == RC_OK ? w.answer.reply.code : REPLY_STRANGE;

	m->hold.epoch = 0;
	*again = rc != RC_STOP && code != REPLY_HD && code != REPLY_NF;
	if (rc != RC_OK)
		return rc;
	if (code == REPLY_NF)
		return memcached_lost(m, until, f);
	if (code == REPLY_EX || code == REPLY_NS)
		return fault_set(f, RC_AGAIN,
		    "%s: others write to this lock all the time", m->place.where);
	if (code != REPLY_HD || !w.answer.reply.cas)
		return cache_nonsense(&m->cache, f);
	m->hold.cas = w.answer.reply.cas;
	m->hold.epoch = m->cache.epoch;
	return memcached_renewed(m, &w.vitals, w.sent, g, f);
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
			rc = memcached_rewrite(m, until, g, &again, f);
		rc = again && i + 1 < TRIES && instant_now() < until ? RC_OK : rc;
	}
	grant_watch(m);
	return rc == RC_OK || rc == RC_REVOKED || rc == RC_LOST || rc == RC_STOP
	    ? rc
	    : RC_AGAIN;
}

/* ---- release ---- */

/* It is not there (any more) as ours. */
static enum rc
memcached_gone(struct memcached *m, instant until, struct fault *f)
{
	bool held = m->hold.is, known = !m->pending.deletion;

	m->pending.item = m->hold.is = m->pending.deletion = false;
	if (!held)
		return RC_OK;
	return known ? memcached_lost(m, until, f)
		     : fault_set(f, RC_AGAIN,
			   "%s closed the connection before it answered", m->place.where);
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
	*cas = 0;
	rc = sight_read(&m->cache, &m->names, SIGHT_SERVER, until, &i, f);
	if (rc != RC_OK || !sight_is_of(&i, m->claim->owner))
		return rc;
	if (m->hold.is && !is_our_hold(m, &i))
		return delete_late(m, &i);
	*cas = i.cas;
	return RC_OK;
}

static enum rc
memcached_delete(
    struct memcached *m, uint64_t cas, instant until, bool *again, struct fault *f)
{
	bool unsure = m->pending.deletion; /* an earlier one may come first */
	struct answer a;
	struct batch b;
	enum rc rc;

	batch_begin(&b);
	batch_delete(&b, m->names.lock, cas);
	m->pending.deletion = true;
	rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = cache_read(&m->cache, &a, until, f);
	if (rc != RC_OK)
		return rc;
	m->pending.deletion = unsure;
	m->hold.epoch = 0;
	switch (a.reply.code) {
	case REPLY_HD:
		m->pending.item = m->hold.is = false;
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
	for (int i = 0; m->pending.item && again && i < TRIES; i++) {
		again = false;
		rc = find_to_release(m, &cas, until, f);
		if (rc == RC_OK)
			rc = cas ? memcached_delete(m, cas, until, &again, f)
				 : memcached_gone(m, until, f);
		/* its connection ended: what has become of it is seen on another */
		again = again || (rc == RC_AGAIN && instant_now() < until);
	}
	if (rc == RC_OK && again && m->pending.item)
		return fault_set(f, RC_AGAIN,
		    "%s: others write to this lock all the time", m->place.where);
	return rc == RC_OK || rc == RC_LOST || rc == RC_STOP ? rc : RC_AGAIN;
}

/* ---- looking and steering ---- */

static enum rc
memcached_each(struct store *s, const struct look *look, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return listing_each(&m->cache, m->place.prefix, look, f);
}

static enum rc
memcached_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return orders_revoke(&m->cache, m->place.prefix, t, record, force, until, f);
}

static enum rc
memcached_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return orders_freeze(&m->cache, m->place.prefix, key, record, length, until, f);
}

static enum rc
memcached_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);

	return orders_thaw(&m->cache, m->place.prefix, key, until, f);
}

const struct backend memcached_backend = {
    .name = "memcached",
    .schemes = (const char *const[]){"memcached", NULL},
    .settings = settings_rows,
    .url_help = "memcached://[user:password@]host[:port]",
    .caveat = "best effort: memcached may evict it, and forgets it when it is restarted",
    .open = settings_open,
    .close = settings_close,
    .identify = settings_identify,
    .lock = &(
	const struct lock_ops){memcached_acquire, memcached_renew, memcached_release},
    .admin = &(const struct admin_ops){memcached_each, memcached_revoke, memcached_freeze,
	memcached_thaw},
};
