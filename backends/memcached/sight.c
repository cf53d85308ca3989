/* sight.c - what one question tells of one lock. */
#include "sight.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TOKEN_LIMIT (1ULL << 62) /* no clock, and no counter, gets there */

enum rc
sight_without_cas(struct cache *s, struct fault *f)
{
	cache_close(s);
	return fault_set(f, RC_CONFIG,
	    "%s numbers no changes (-C): a lock there could be given to two",
	    s->stream.where);
}

/* Is it there?  What must be told of it has been told. */
static enum rc
read_item(struct cache *s, struct answer *a, bool *is, instant until, struct fault *f)
{
	enum rc rc = cache_read(s, a, until, f);

	if (rc != RC_OK)
		return rc;
	*is = a->reply.code == REPLY_VA;
	if (*is ? a->reply.ttl == TTL_UNTOLD : a->reply.code != REPLY_EN)
		return cache_nonsense(s, f);
	return *is && !a->reply.cas ? sight_without_cas(s, f) : RC_OK;
}

static enum rc
read_lock(struct cache *s, instant until, struct sight *i, struct fault *f)
{
	struct answer a;
	enum rc rc = read_item(s, &a, &i->held, until, f);

	if (rc != RC_OK || !i->held)
		return rc;
	i->cas = a.reply.cas;
	i->ttl = a.reply.ttl;
	i->foreign = a.reply.size != a.n || !value_read(&i->value, a.value, a.n);
	snprintf(i->words, sizeof i->words, "%.*s", FOREIGN_CHARS, a.value);
	return RC_OK;
}

enum rc
sight_read_value(
    struct cache *s, bool *is, struct value *v, instant until, struct fault *f)
{
	struct answer a;
	enum rc rc = read_item(s, &a, is, until, f);

	if (rc == RC_OK && *is && !value_read(v, a.value, a.n))
		*v = (struct value){.since = EPOCH_NONE, .until = EPOCH_NONE};
	return rc;
}

bool
sight_read_token(const char *text, uint64_t *ret)
{
	int used = 0;

	return strspn(text, "0123456789") > 0 && strspn(text, "0123456789") < 20 &&
	    sscanf(text, "%" SCNu64 " %n", ret, &used) == 1 && text[used] == '\0' &&
	    *ret > 0 && *ret < TOKEN_LIMIT;
}

static enum rc
read_counter(struct cache *s, instant until, struct sight *i, struct fault *f)
{
	struct answer a;
	bool is;
	enum rc rc = read_item(s, &a, &is, until, f);

	if (rc != RC_OK || !is)
		return rc;
	i->counter_cas = a.reply.cas;
	if (sight_read_token(a.value, &i->last))
		return RC_OK;
	cache_close(s);
	return fault_set(f, RC_PROTOCOL,
	    "%s: somebody has written over the number of the last grant (dlock#n:...): delete that item",
	    s->stream.where);
}

void
sight_ask(struct batch *b, const struct names *n, unsigned what)
{
	if (what & SIGHT_SERVER)
		batch_word(b, "stats");
	batch_get(b, n->lock);
	batch_get(b, n->freeze);
	if (what & SIGHT_COUNTER)
		batch_get(b, n->counter);
}

static enum rc
read_server(struct cache *s, instant until, struct sight *i, struct fault *f)
{
	enum rc rc = cache_read_vitals(s, &i->vitals, until, f);

	if (rc != RC_OK)
		return rc;
	rc = vitals_check(&i->vitals, s->stream.where, f);
	if (rc != RC_OK)
		cache_close(s);
	return rc;
}

enum rc
sight_answered(
    struct cache *s, unsigned what, instant until, struct sight *i, struct fault *f)
{
	enum rc rc = RC_OK;

	*i = (struct sight){.sent = i->sent};
	vitals_init(&i->vitals);
	if (what & SIGHT_SERVER)
		rc = read_server(s, until, i, f);
	if (rc == RC_OK)
		rc = read_lock(s, until, i, f);
	if (rc == RC_OK)
		rc = sight_read_value(s, &i->frozen, &i->freeze, until, f);
	return rc == RC_OK && what & SIGHT_COUNTER ? read_counter(s, until, i, f) : rc;
}

/* When it was told to forget all, if it ever was; not on another connection. */
static enum rc
ask_for_flush(struct cache *s, instant until, struct sight *i, struct fault *f)
{
	struct batch b;
	enum rc rc;

	if (!cache_is_same(s, s->epoch))
		return fault_set(f, RC_AGAIN, "%s closed the connection within a request",
		    s->stream.where);
	batch_begin(&b);
	batch_word(&b, "stats settings");
	rc = cache_send(s, &b, until, f);
	return rc == RC_OK ? cache_read_vitals(s, &i->vitals, until, f) : rc;
}

enum rc
sight_read(struct cache *s, const struct names *n, unsigned what, instant until,
    struct sight *i, struct fault *f)
{
	struct batch b;
	enum rc rc;

	batch_begin(&b);
	sight_ask(&b, n, what);
	i->sent = instant_now();
	rc = cache_send(s, &b, until, f);
	if (rc == RC_OK)
		rc = sight_answered(s, what, until, i, f);
	return rc == RC_OK && i->vitals.flushes > 0 ? ask_for_flush(s, until, i, f) : rc;
}

bool
sight_is_of(const struct sight *i, const char *owner)
{
	return i->held && !i->foreign && strcmp(i->value.owner, owner) == 0;
}
