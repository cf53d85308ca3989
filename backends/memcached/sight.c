/* sight.c - what one question tells of one lock. */
#include "sight.h"

#include "token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

void
sight_number(struct sight *i, const struct vitals *v)
{
	if (i->held && !i->foreign && i->value.token == 0)
		i->value.token = token_of(v, i->cas);
}

void
sight_ask(struct batch *b, const struct names *n, unsigned what)
{
	if (what & SIGHT_SERVER)
		batch_word(b, "stats");
	if (what & SIGHT_FLUSH)
		batch_word(b, "stats settings");
	batch_get(b, n->lock);
	batch_get(b, n->freeze);
}

static enum rc
read_server(
    struct cache *s, unsigned what, instant until, struct sight *i, struct fault *f)
{
	enum rc rc = cache_read_vitals(s, &i->vitals, until, f);

	if (rc == RC_OK && what & SIGHT_FLUSH)
		rc = cache_read_vitals(s, &i->vitals, until, f);
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
		rc = read_server(s, what, until, i, f);
	if (rc == RC_OK)
		rc = read_lock(s, until, i, f);
	if (rc == RC_OK)
		rc = sight_read_value(s, &i->frozen, &i->freeze, until, f);
	if (rc == RC_OK && what & SIGHT_SERVER)
		sight_number(i, &i->vitals);
	return rc;
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
	return rc == RC_OK ? sight_answered(s, what, until, i, f) : rc;
}

bool
sight_is_of(const struct sight *i, const char *owner)
{
	return i->held && !i->foreign && strcmp(i->value.owner, owner) == 0;
}
