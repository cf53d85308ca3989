/*
 * memcached.c - holds a lock in memcached: acquire, renew, release.
 *
 * memcached is a cache: it may evict the lock, and a restart makes it forget all locks.
 * dlock does what can be done against that and tells the user the rest, for which there is
 * the token.
 *
 *  1. A lock is an item (item.h).  It is added where there is none, and written over and
 *     deleted by compare-and-swap only.
 *  2. A CAS is believed only on the connection on which it was read: a restarted server
 *     counts from 1 again.  On another connection the item is read first, and its owner
 *     compared.  The same is done when the CAS has changed: somebody has asked for the lock
 *     back, or our own last write has arrived though its answer has not.
 *  3. Before an item is added, the item, its freeze and the server's statistics are read.
 *     A server that is no memcached gets nothing that it could take for commands.
 *  4. Behind the item, in the same packet, the freeze and the last flush_all are asked for.
 *     So whoever is granted a lock knows that its item came before any freeze, and took the
 *     place of none that was flushed.  An item that comes to nothing is deleted again.
 *  5. Items end by a clock of whole seconds, up to two of them early, so an item is kept
 *     for longer than its lease.  That clock may stand still, and a write by it does not
 *     count (item.h).
 *  6. A server that was started, or told to forget all, less than a lease ago grants
 *     nothing: a holder that it has forgotten may not know it yet.  Nor does a server that
 *     has counted too many changes for a token (item.h).  Both pass with time.
 *  7. After an add without an answer the item is looked for, and is ours if our owner
 *     stands in it.
 *  8. Where there is no room for a renewed item, memcached deletes the old one (-M).  So
 *     after an error the item is looked for at once.
 *  9. memcached tells nobody of a release, so a waiter asks about every 200 ms, at random
 *     within a quarter so that many do not ask at once.  There is no order among waiters.
 *     Where the server is not ready (6), once a second is enough.
 * 10. A holder learns only from its renewals that the server has lost its lock.  So it
 *     renews every second, which is sooner than a server that has forgotten all grants
 *     anything.
 */
#include "memcached.h"

#include "backends/common/refuse.h"
#include "backends/common/retry.h"
#include "backends/common/secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define POLL (200 * NS_PER_MS)
#define POLL_JITTER (100 * NS_PER_MS)
#define POLL_UNREADY NS_PER_S
#define RENEWAL_PACE NS_PER_S
#define ANSWER_MOST (3 * NS_PER_S) /* for an answer while waiting */
#define NOTE_MOST (300 * NS_PER_MS)
#define WITHDRAWAL_MOST NS_PER_S
#define LATE NS_PER_S /* a standstill that is shorter does no harm */
#define MOMENT (100 * NS_PER_MS)

enum { TRIES = 3 }; /* of one call, where others write at the same time */

/* The lease. */
static int64_t
claim_seconds(const struct claim *c)
{
	return (ns_to_ms(c->ttl) + 999) / 1000;
}

/* ---- what the user is told ---- */

bool
memcached_losses(const struct stats *s, char *out, size_t size)
{
	snprintf(out, size,
	    "it is a cache, which evicts items when it is full and forgets all when it is restarted (so far it has evicted %" PRId64
	    " items, and was flushed %" PRId64 " times)",
	    s->evictions, s->flushes);
	return s->evictions > 0 || s->flushes > 0;
}

/*
 * Once: that the server has lost items; with -v also that it is no place for what must not
 * be lost.
 */
static void
tell_losses(struct memcached *m, const struct stats *s)
{
	struct host *host = m->base.host;
	char losses[LOSSES_BYTES];
	bool has_lost = memcached_losses(s, losses, sizeof losses);

	if (m->losses_told || (!has_lost && !host->verbose))
		return;
	m->losses_told = true;
	fault_set(&host->notice, RC_OK, "%s may lose locks: %s; see dlock-memcached(7)",
	    m->server_name, losses);
}

static enum rc
fail_still(const struct memcached *m, struct fault *f)
{
	return fault_set(f, RC_AGAIN,
	    "the clock of %s stands still: the server was stopped, and its items end too early",
	    m->server_name);
}

static enum rc
fail_contended(const struct memcached *m, struct fault *f)
{
	return fault_set(f, RC_AGAIN, "%s: other clients change this lock all the time",
	    m->server_name);
}

/* RC_BUSY: it is held, or frozen. */
static enum rc
fail_busy(struct memcached *m, struct items *i, struct fault *f)
{
	struct value *v = i->lock.there ? &i->lock.value : &i->freeze.value;
	struct holding *h = &m->base.host->seen.holding;
	int64_t now = m->tick.time * US_PER_S + (instant_now() - m->tick.at) / 1000;
	bool known = v->since != EPOCH_NONE && m->tick.known && now >= v->since;

	m->unready = READY;
	*h = (struct holding){.kind = KIND_EXCLUSIVE,
	    .holders = i->lock.there,
	    .frozen = i->freeze.there,
	    .held = known ? (now - v->since) * 1000 : -1};
	memcpy(h->record, v->record, sizeof h->record);
	return fault_set(f, RC_BUSY, "%s: %s", m->server_name,
	    i->freeze.there && !i->lock.there ? "frozen" : "held");
}

static void
set_unready(struct memcached *m, enum unready why)
{
	m->unready = why;
	m->base.host->seen.holding = (struct holding){.held = -1};
}

/* RC_BUSY: the server may not know who holds it. */
static enum rc
fail_young(struct memcached *m, const struct stats *s, struct fault *f)
{
	int64_t age = stats_age(s);

	set_unready(m, UNREADY_YOUNG);
	return fault_set(f, RC_BUSY,
	    "%s was started or flushed %lld s ago, and may not know who holds the lock: dlock waits until %lld s, a lease, have passed since then",
	    m->server_name, age < 0 ? 0LL : (long long)age,
	    (long long)claim_seconds(m->claim));
}

/* ---- our item ---- */

/* Puts our item, over the one with this CAS, or STORE_NEW. */
static void
put_ours(struct memcached *m, uint64_t cas)
{
	char text[VALUE_BYTES];

	if (!value_write(text, &m->ours))
		abort(); /* begin_claim() has tried it */
	client_store(&m->client, ITEM_LOCK, m->name.text, cas,
	    claim_seconds(m->claim) + LEASE_BEYOND, text);
}

/* Deletes our item, which has come to nothing.  Returns `why`, or RC_STOP. */
static enum rc
withdraw(struct memcached *m, uint64_t cas, enum rc why)
{
	instant until = instant_now() + WITHDRAWAL_MOST;
	struct fault ignored;
	struct reply r;
	enum rc rc;

	client_delete(&m->client, ITEM_LOCK, m->name.text, cas);
	rc = client_answer(&m->client, &r, until, &ignored);
	if (rc == RC_OK && (r.code == REPLY_HD || r.code == REPLY_NF))
		m->may_be_there = m->add_unanswered;
	return rc == RC_STOP ? RC_STOP : why;
}

/* The server has our item for a whole lease, by a request that was sent then. */
static void
set_lease(struct memcached *m, instant sent, struct grant *g)
{
	g->sent = sent;
	g->lease = m->claim->ttl;
	g->pace = RENEWAL_PACE;
}

/*
 * Sees to it that m->cas is the CAS of our item on this connection, or 0 if our item is not
 * there.  An item of ours without the token of our grant was added by a late request, and
 * is deleted.
 */
static enum rc
look_for_ours(struct memcached *m, instant until, struct fault *f)
{
	struct items i;
	enum rc rc;

	if (client_is_same(&m->client, m->epoch))
		return RC_OK;
	m->cas = 0;
	rc = items_look(&m->client, m->name.text, ITEMS_STATS, until, &i, f);
	if (rc != RC_OK || !item_is_of(&i.lock, m->claim->owner))
		return rc;
	if (m->granted && i.lock.value.token != m->ours.token)
		return withdraw(m, i.lock.cas, RC_OK);
	m->cas = i.lock.cas;
	m->epoch = m->client.epoch;
	memcpy(m->ours.mark, i.lock.value.mark, sizeof m->ours.mark);
	return RC_OK;
}

/* RC_LOST.  A client that has taken the lock away by force has left a note. */
static enum rc
fail_lost(struct memcached *m, instant until, struct fault *f)
{
	struct fault ignored;
	struct item note;
	enum rc rc;

	until = instant_first(until, instant_now() + NOTE_MOST);
	client_get(&m->client, ITEM_NOTE, m->name.text);
	rc = client_send(&m->client, until, &ignored);
	if (rc == RC_OK)
		rc = item_read(&m->client, &note, until, &ignored);
	if (rc == RC_OK && item_is_of(&note, m->claim->owner))
		return refuse_broken(
		    m->base.host, f, RC_LOST, m->server_name, note.value.record);
	return fault_set(f, RC_LOST,
	    "%s no longer names us as the holder: the lock was evicted or deleted, or the server was restarted or told to forget all",
	    m->server_name);
}

/* ---- acquire ---- */

/*
 * Does anything speak against a grant, before or after our item was added?  RC_BUSY: yes;
 * an item of ours has come to nothing then.
 */
static enum rc
check_grant(struct memcached *m, struct items *i, struct fault *f)
{
	bool ours = item_is_of(&i->lock, m->claim->owner),
	     young = stats_age(&i->stats) < claim_seconds(m->claim);
	enum rc rc;

	if (i->lock.there && !ours)
		return fail_busy(m, i, f);
	if (!i->freeze.there && !young)
		return RC_OK;
	i->lock.there = false;
	rc = i->freeze.there ? fail_busy(m, i, f) : fail_young(m, &i->stats, f);
	return ours ? withdraw(m, i->lock.cas, rc) : rc;
}

/*
 * Writes our item, and asks behind it for what may speak against it.  The item is added; or
 * written once more, for its whole lease, if it is there from an attempt whose answer we
 * did not get.  RC_BUSY: another client was faster.
 */
static enum rc
store_ours(struct memcached *m, struct items *i, instant until, struct fault *f)
{
	bool added = !i->lock.there, unsure = m->add_unanswered;
	struct reply r;
	enum rc rc;

	m->ours.token = i->lock.value.token;
	m->ours.since = added ? i->stats.time * US_PER_S : i->lock.value.since;
	memcpy(m->ours.mark, i->lock.value.mark, sizeof m->ours.mark);
	put_ours(m, i->lock.cas);
	client_get(&m->client, ITEM_FREEZE, m->name.text);
	client_word(&m->client, "stats settings");
	m->may_be_there = true;
	m->add_unanswered = unsure || added;
	i->sent = instant_now();
	rc = client_answer(&m->client, &r, until, f);
	if (rc == RC_OK)
		rc = item_read(&m->client, &i->freeze, until, f);
	if (rc == RC_OK)
		rc = stats_read(&i->stats, &m->client, until, f);
	if (rc != RC_OK)
		return rc;
	if (r.code != REPLY_HD && r.code != REPLY_NS && r.code != REPLY_EX &&
	    r.code != REPLY_NF)
		return client_nonsense(&m->client, f);
	m->add_unanswered = unsure;
	if (r.code != REPLY_HD) {
		m->may_be_there = !added || unsure;
		rc = items_look(&m->client, m->name.text, 0, until, i, f);
		return rc == RC_OK ? fail_busy(m, i, f) : rc;
	}
	i->lock = (struct item){.there = true, .cas = r.cas, .value = m->ours};
	if (r.cas)
		return RC_OK;
	/* added just now, for as long as our lease: it is ours to delete */
	rc = withdraw(m, 0, RC_OK);
	return rc == RC_OK ? client_without_cas(&m->client, f) : rc;
}

/* Nothing has spoken against it before our item was added. */
static enum rc
grant_lock(
    struct memcached *m, struct items *i, instant until, struct grant *g, struct fault *f)
{
	struct value *ours = &m->ours;
	enum rc rc = store_ours(m, i, until, f);

	if (rc == RC_OK)
		rc = check_grant(m, i, f);
	if (rc != RC_OK)
		return rc;
	if (!ours->token)
		ours->token = stats_token(&i->stats, i->lock.cas);
	if (!ours->token) {
		set_unready(m, UNREADY_CROWDED);
		fault_set(f, RC_BUSY,
		    "%s has made more than a million changes for each second since its start, so tokens might not grow across its next restart: dlock waits for %lld s",
		    m->server_name,
		    (long long)stats_token_missing(&i->stats, i->lock.cas));
		return withdraw(m, i->lock.cas, RC_BUSY);
	}
	m->granted = true;
	m->cas = i->lock.cas;
	m->epoch = m->client.epoch;
	m->base.host->alert = m->client.stream.fd;
	*g = (struct grant){.token = ours->token, .anchor = -1};
	set_lease(m, i->sent, g);
	return RC_OK;
}

/*
 * Asks for the lock, and first for all that has to be known before an item is added.  RC_BUSY:
 * not yet.  Whether the server was told to forget all is asked for behind the item; before it,
 * only by a waiter that was refused for that.
 *
 * A server that was stopped may answer by a clock that has not gone on yet, which cannot
 * be seen by a client that asks for the first time.  So if the answer was late, the clock
 * is given a moment, and asked again.
 */
static enum rc
ask_lock(struct memcached *m, instant until, struct grant *g, struct fault *f)
{
	unsigned what = ITEMS_STATS | (m->unready == UNREADY_YOUNG ? ITEMS_FLUSH : 0);
	struct host *host = m->base.host;
	struct items i;
	enum rc rc = items_look(&m->client, m->name.text, what, until, &i, f);

	if (rc == RC_OK && !m->tick.known && instant_now() - i.sent >= LATE) {
		if (host->wait(host, -1, 0, instant_now() + MOMENT) == WOKE_STOP)
			return RC_STOP;
		rc = items_look(&m->client, m->name.text, what, until, &i, f);
	}
	if (rc != RC_OK)
		return rc;
	if (!tick_goes_on(&m->tick, i.sent, instant_now(), i.stats.time))
		return fail_still(m, f);
	if (host->verbose)
		tell_losses(m, &i.stats);
	rc = check_grant(m, &i, f);
	return rc == RC_OK ? grant_lock(m, &i, until, g, f) : rc;
}

/* The same for a waiter, which asks for little as long as the lock is held or frozen. */
static enum rc
poll_lock(struct memcached *m, instant until, struct grant *g, struct fault *f)
{
	struct items i;
	enum rc rc = items_look(&m->client, m->name.text, 0, until, &i, f);

	if (rc != RC_OK)
		return rc;
	if (i.freeze.there || (i.lock.there && !item_is_of(&i.lock, m->claim->owner)))
		return fail_busy(m, &i, f);
	return ask_lock(m, until, g, f);
}

/*
 * Sleeps until it is time to ask again, after an answer in words `f`.  RC_BUSY: `until` has
 * come (RC_AGAIN where it is the server that was waited for).  RC_STOP.
 */
static enum rc
sleep_busy(struct memcached *m, instant until, const struct fault *f)
{
	struct host *host = m->base.host;
	int64_t pause = m->unready ? POLL_UNREADY : POLL - POLL_JITTER / 2;
	instant next = instant_now() + pause + jitter_below(&m->jitter, POLL_JITTER);
	enum rc over = m->unready ? RC_AGAIN : RC_BUSY;

	if (!until)
		return over;
	if (m->unready && m->told != m->unready) {
		host->notice = *f;
		m->told = m->unready;
	}
	if (host->wait(host, -1, 0, instant_first(next, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() < until ? RC_OK : over;
}

static enum rc
begin_claim(struct memcached *m, const struct claim *claim, struct fault *f)
{
	struct value *v = &m->ours;
	char text[VALUE_BYTES];

	if (claim_seconds(claim) + LEASE_BEYOND > EXPTIME_MOST)
		return fault_set(f, RC_USAGE,
		    "%s keeps nothing for longer than 30 days: give a shorter --ttl",
		    m->server_name);
	m->claim = claim;
	memcached_name(m, &m->name, claim->key);
	*v = (struct value){.until = EPOCH_NONE};
	snprintf(v->owner, sizeof v->owner, "%s", claim->owner);
	snprintf(v->record, sizeof v->record, "%s", claim->record);
	if (m->name.hashed)
		snprintf(v->key, sizeof v->key, "%s", claim->key);
	m->jitter = jitter_of(claim->owner);
	retry_begin(&m->retry, claim);
	return value_write(text, v)
	    ? RC_OK
	    : fault_set(f, RC_SYSTEM,
		  "the record of this run has control characters, which memcached cannot store");
}

static enum rc
memcached_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	bool heard = false;
	enum rc rc = begin_claim(m, claim, f);

	if (rc != RC_OK)
		return rc;
	do {
		rc = heard ? poll_lock(m, instant_now() + ANSWER_MOST, g, f)
			   : ask_lock(m, retry_attempt(&m->retry, until), g, f);
		if (rc == RC_BUSY) {
			heard = true;
			retry_end_outage(&m->retry);
			rc = sleep_busy(m, until, f);
		} else {
			rc = retry_wait(&m->retry, s->host, rc, heard, until);
		}
	} while (rc == RC_OK && !m->granted);
	return rc;
}

/* ---- renew ---- */

/*
 * Writes our item over the one whose CAS we know.  *again: the CAS was another, or no answer
 * came, and our item is to be looked for.
 */
static enum rc
renew_ours(
    struct memcached *m, instant until, struct grant *g, bool *again, struct fault *f)
{
	struct reply r;
	instant sent = instant_now();
	struct stats stats;
	enum rc rc;

	/* the server tells its clock first, so the item is not older than that */
	stats_init(&stats);
	client_word(&m->client, "stats");
	put_ours(m, m->cas);
	rc = client_go_on(&m->client, until, f);
	if (rc == RC_OK)
		rc = stats_read(&stats, &m->client, until, f);
	if (rc == RC_OK)
		rc = client_read(&m->client, &r, until, f);
	m->epoch = 0;
	*again = rc == RC_OK ? r.code != REPLY_HD && r.code != REPLY_NF : rc != RC_STOP;
	if (rc != RC_OK)
		return rc;
	if (r.code == REPLY_NF)
		return fail_lost(m, until, f);
	if (r.code == REPLY_EX || r.code == REPLY_NS)
		return fail_contended(m, f);
	if (r.code != REPLY_HD || !r.cas)
		return client_nonsense(&m->client, f);
	m->cas = r.cas;
	m->epoch = m->client.epoch;
	tell_losses(m, &stats);
	if (!tick_goes_on(&m->tick, sent, instant_now(), stats.time))
		return fail_still(m, f);
	set_lease(m, sent, g);
	if (!*m->ours.mark)
		return RC_OK;
	secret_blot(m->ours.mark, m->address.password);
	return refuse_broken(m->base.host, f, RC_REVOKED, m->server_name, m->ours.mark);
}

static enum rc
memcached_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	bool again = true;
	enum rc rc = RC_AGAIN;

	for (int i = 0; again && i < TRIES && (i == 0 || instant_now() < until); i++) {
		again = false;
		rc = look_for_ours(m, until, f);
		if (rc == RC_OK)
			rc = m->cas ? renew_ours(m, until, g, &again, f)
				    : fail_lost(m, until, f);
	}
	s->host->alert = m->client.stream.fd;
	return rc == RC_OK || rc == RC_REVOKED || rc == RC_LOST || rc == RC_STOP
	    ? rc
	    : RC_AGAIN;
}

/* ---- release ---- */

/*
 * Our item is not there.  A lock that was granted is lost then, unless it was our own
 * deletion that has come late.
 */
static enum rc
forget_item(struct memcached *m, instant until, struct fault *f)
{
	bool granted = m->granted, unsure = m->delete_unanswered;

	m->may_be_there = m->granted = m->delete_unanswered = false;
	if (!granted)
		return RC_OK;
	return unsure ? fault_set(f, RC_AGAIN,
			    "%s closed the connection before it answered", m->server_name)
		      : fail_lost(m, until, f);
}

/* *again: the CAS was another, and our item is to be looked for. */
static enum rc
delete_ours(struct memcached *m, instant until, bool *again, struct fault *f)
{
	bool unsure = m->delete_unanswered; /* an earlier one may come first */
	struct reply r;
	enum rc rc;

	client_delete(&m->client, ITEM_LOCK, m->name.text, m->cas);
	m->delete_unanswered = true;
	rc = client_answer(&m->client, &r, until, f);
	if (rc != RC_OK)
		return rc;
	m->delete_unanswered = unsure;
	m->epoch = 0;
	switch (r.code) {
	case REPLY_HD:
		m->may_be_there = m->granted = false;
		return RC_OK;
	case REPLY_NF:
		return forget_item(m, until, f);
	case REPLY_EX:
		*again = true;
		return fail_contended(m, f);
	default:
		return client_nonsense(&m->client, f);
	}
}

static enum rc
memcached_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct memcached *m = memcached_of(s);
	enum rc rc = RC_OK;
	bool again = true;

	(void)o;
	s->host->alert = -1;
	for (int i = 0; m->may_be_there && again && i < TRIES; i++) {
		again = false;
		rc = look_for_ours(m, until, f);
		if (rc == RC_OK)
			rc = m->cas ? delete_ours(m, until, &again, f)
				    : forget_item(m, until, f);
		/* the connection has ended: another one shows what has become of it */
		again = again || (rc == RC_AGAIN && instant_now() < until);
	}
	return rc == RC_OK || rc == RC_LOST || rc == RC_STOP ? rc : RC_AGAIN;
}

const struct lock_ops memcached_lock = {
    memcached_acquire, memcached_renew, memcached_release};
