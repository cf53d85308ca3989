/* grant.c - an item becomes ours, and a grant. */
#include "grant.h"

#include "tell.h"
#include "token.h"

#include <string.h>

#define WITHDRAWAL NS_PER_S

enum { US_PER_S = 1000000 };

int64_t
grant_seconds(const struct claim *c)
{
	return ns_to_ms(c->ttl) / 1000 + (ns_to_ms(c->ttl) % 1000 > 0);
}

/* The item is to live for the lease at least. */
int64_t
grant_exptime(const struct claim *c)
{
	return grant_seconds(c) + LEASE_BEYOND;
}

/* Deletes what has come to nothing. */
enum rc
grant_withdraw(struct memcached *m, uint64_t cas)
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
		m->pending.item = m->pending.add;
	return rc == RC_STOP ? RC_STOP : RC_OK;
}

void
grant_watch(struct memcached *m)
{
	m->base.host->alert = m->cache.stream.fd;
}

/* Our item; cas 0: where there is none. */
enum rc
grant_put(struct memcached *m, struct batch *b, uint64_t cas, struct fault *f)
{
	struct store_how how = {
	    cas ? STORE_OVER : STORE_NEW, cas, grant_exptime(m->claim)};
	char text[VALUE_BYTES];
	size_t n = value_write(text, &m->hold.value);

	if (n == 0)
		return fault_set(
		    f, RC_SYSTEM, "the record of this run has control characters in it");
	batch_store(b, m->names.lock, &how, text, n);
	return RC_OK;
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
beaten(struct memcached *m, instant until, struct fault *f)
{
	struct sight i;
	enum rc rc = sight_read(&m->cache, &m->names, 0, until, &i, f);

	return rc == RC_OK ? tell_busy(m, &i, f) : rc;
}

/* It was added by us just now, and lives for as long as our lease: it is ours to delete. */
static enum rc
without_cas(struct memcached *m, struct fault *f)
{
	if (grant_withdraw(m, 0) == RC_STOP)
		return RC_STOP;
	cache_close(&m->cache);
	return sight_without_cas(&m->cache, f);
}

/* The item is ours, and comes behind the freeze; or it is not ours any more. */
static enum rc
frozen(
    struct memcached *m, const struct stored *hold, struct value *freeze, struct fault *f)
{
	struct sight i = {.frozen = true, .freeze = *freeze};

	if (hold->is && grant_withdraw(m, hold->cas) == RC_STOP)
		return RC_STOP;
	return tell_busy(m, &i, f);
}

/* It comes to nothing as long as there is no token for it. */
static enum rc
without_token(struct memcached *m, const struct vitals *v, uint64_t cas, struct fault *f)
{
	return grant_withdraw(m, cas) == RC_STOP ? RC_STOP : tell_crowded(m, v, cas, f);
}

/* What came of a batch that stores our item, and asks what may speak against it. */
struct tried {
	instant sent;
	struct stored hold;
	bool frozen;
	struct value freeze;
	struct vitals vitals; /* and what was known before */
};

static enum rc
try_to_store(struct memcached *m, uint64_t cas, const struct vitals *known, instant until,
    struct tried *t, struct fault *f)
{
	struct batch b;
	enum rc rc;

	*t = (struct tried){.vitals = *known};
	batch_begin(&b);
	rc = grant_put(m, &b, cas, f);
	if (rc != RC_OK)
		return rc;
	batch_get(&b, m->names.freeze);
	batch_word(&b, "stats settings");
	m->pending.item = true;
	m->pending.add = m->pending.add || !cas;
	t->sent = instant_now();
	rc = cache_go_on(&m->cache, &b, until, f);
	if (rc == RC_OK)
		rc = read_stored(m, &t->hold, until, f);
	if (rc == RC_OK)
		rc = sight_read_value(&m->cache, &t->frozen, &t->freeze, until, f);
	return rc == RC_OK ? cache_read_vitals(&m->cache, &t->vitals, until, f) : rc;
}

/* The server was told to forget all, too short a time ago. */
static enum rc
forgotten(struct memcached *m, const struct tried *t, struct fault *f)
{
	m->flushed = true;
	if (grant_withdraw(m, t->hold.cas) == RC_STOP)
		return RC_STOP;
	return tell_young(m, vitals_age(&t->vitals), f);
}

/* RC_OK: the item is ours, came before any freeze, and took the place of nothing that was forgotten. */
static enum rc
judge(struct memcached *m, struct tried *t, instant until, struct fault *f)
{
	if (t->hold.is && !t->hold.cas)
		return without_cas(m, f);
	if (t->frozen)
		return frozen(m, &t->hold, &t->freeze, f);
	if (!t->hold.is)
		return beaten(m, until, f);
	return vitals_age(&t->vitals) < grant_seconds(m->claim) ? forgotten(m, t, f)
								: RC_OK;
}

static enum rc
granted(struct memcached *m, const struct tried *t, struct grant *g)
{
	m->hold.is = true;
	m->hold.cas = t->hold.cas;
	m->hold.epoch = m->cache.epoch;
	*g = (struct grant){.token = m->hold.value.token,
	    .sent = t->sent,
	    .lease = m->claim->ttl,
	    .pace = GRANT_PACE,
	    .anchor = -1};
	grant_watch(m);
	return RC_OK;
}

enum rc
grant_add(struct memcached *m, const struct sight *i, instant until, struct grant *g,
    struct fault *f)
{
	struct value *ours = &m->hold.value;
	struct tried t;
	bool unsure = m->pending.add;
	enum rc rc;

	ours->token = 0;
	ours->since = i->vitals.time * US_PER_S;
	rc = try_to_store(m, 0, &i->vitals, until, &t, f);
	if (rc != RC_OK)
		return rc;
	m->pending.add = unsure;
	m->pending.item = t.hold.is || unsure;
	rc = judge(m, &t, until, f);
	if (rc != RC_OK)
		return rc;
	ours->token = token_of(&i->vitals, t.hold.cas);
	return ours->token ? granted(m, &t, g)
			   : without_token(m, &i->vitals, t.hold.cas, f);
}

/* It is written once more, for its whole lease. */
enum rc
grant_adopt(struct memcached *m, const struct sight *i, instant until, struct grant *g,
    struct fault *f)
{
	struct value *ours = &m->hold.value;
	struct tried t;
	enum rc rc;

	if (!i->value.token)
		return without_token(m, &i->vitals, i->cas, f);
	ours->token = i->value.token;
	ours->since = i->value.since;
	memcpy(ours->mark, i->value.mark, sizeof ours->mark);
	rc = try_to_store(m, i->cas, &i->vitals, until, &t, f);
	if (rc == RC_OK)
		rc = judge(m, &t, until, f);
	return rc == RC_OK ? granted(m, &t, g) : rc;
}
