/* tell.c - what the user is told. */
#include "tell.h"

#include "backends/common/text.h"
#include "grant.h"
#include "token.h"

#include <inttypes.h>
#include <string.h>

enum { US_PER_S = 1000000 };

/* Once, that it is no place for what must not be lost; or, without -v, that it has lost. */
void
tell_losses(struct memcached *m, const struct vitals *v)
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
	    m->place.where, v->evictions, v->flushes);
}

/* By such a clock nothing is written that counts. */
enum rc
tell_standstill(const struct memcached *m, struct fault *f)
{
	return fault_set(f, RC_AGAIN,
	    "the clock of %s stands still: it was stopped, and what it keeps ends too early",
	    m->place.where);
}

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
show(struct memcached *m, struct sight *i)
{
	struct host *host = m->base.host;
	struct value *of = i->held && !i->foreign ? &i->value
	    : !i->held && i->frozen               ? &i->freeze
						  : NULL;

	host->seen.position = 0;
	host->seen.holding.held = -1;
	*host->seen.holding.record = '\0';
	if (of) {
		secret_blot(of->record, m->place.address.password);
		memcpy(host->seen.holding.record, of->record, sizeof of->record);
		host->seen.holding.held = held_for(m, of->since);
	}
	host->seen.holding.kind = KIND_EXCLUSIVE;
	host->seen.holding.holders = i->held;
	host->seen.holding.frozen = i->frozen;
}

enum rc
tell_busy(struct memcached *m, struct sight *i, struct fault *f)
{
	show(m, i);
	return fault_set(f, RC_BUSY, "%s: %s", m->place.where,
	    i->frozen && !i->held ? "frozen" : "held");
}

/* Nobody holds it, as far as we know, and yet it is not granted. */
static void
show_unready(struct memcached *m, enum unready why)
{
	m->pace.unready = why;
	m->base.host->seen.holding.holders = 0;
	*m->base.host->seen.holding.record = '\0';
	m->base.host->seen.holding.held = -1;
}

enum rc
tell_young(struct memcached *m, int64_t age, struct fault *f)
{
	int64_t lease = grant_seconds(m->claim);

	show_unready(m, UNREADY_YOUNG);
	return fault_set(f, RC_BUSY,
	    "%s was started, or told to forget all, %lld s ago and may not know who holds it: dlock waits until it has been for the lease, %lld s",
	    m->place.where, age < 0 ? 0LL : (long long)age, (long long)lease);
}

enum rc
tell_crowded(struct memcached *m, const struct vitals *v, uint64_t cas, struct fault *f)
{
	show_unready(m, UNREADY_CROWDED);
	return fault_set(f, RC_BUSY,
	    "%s has counted more than a million changes for each second since it was started, so that tokens might not grow over its next restart: dlock waits until it has been running for longer, %lld s",
	    m->place.where, (long long)token_missing(v, cas));
}
