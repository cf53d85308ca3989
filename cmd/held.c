/* held.c - the sentence of who holds a lock. */
#include "held.h"

#include "parse.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_US 1000

/* ---- what is known ---- */

bool
held_freeze_end(const struct holding *h, int64_t *end)
{
	struct record r;
	json_t *root = record_read(&r, h->record);

	json_decref(root);
	*end = EPOCH_NONE;
	if (r.for_ms > 0 && h->held >= 0)
		*end = instant_epoch() + r.for_ms * 1000 - h->held / 1000;
	return r.for_ms == -1 || *end != EPOCH_NONE;
}

void
held_of_holding(struct held *ret, const struct holding *h)
{
	struct record r;
	json_t *root = record_read(&r, *h->record ? h->record : NULL);
	int64_t end, since;

	*ret = (struct held){
	    .state = h->frozen && h->holders == 0 ? HELD_FROZEN : HELD_BY,
	    .kind = h->kind,
	    .holders = h->holders,
	    .limit = h->limit,
	    .frozen = h->frozen,
	    .ns = h->held >= 0 ? h->held : -1,
	    .kept = EPOCH_NONE,
	    .ends = EPOCH_NONE,
	    .now = instant_epoch(),
	};
	if (*h->record)
		record_words(&r, ret->who, sizeof ret->who);
	since = h->held >= 0 ? ret->now - h->held / NS_PER_US : EPOCH_NONE;
	if (ret->state == HELD_BY && h->holders <= 1 && since >= 0) {
		ret->kept = r.keep ? instant_after(since, r.keep / NS_PER_US)
				   : EPOCH_NONE;
		ret->ends = r.end ? instant_after(since, r.end / NS_PER_US) : EPOCH_NONE;
	}
	json_decref(root);
	if (*h->record && ret->state == HELD_FROZEN && held_freeze_end(h, &end))
		snprintf(ret->until, sizeof ret->until, "%s", text_until(end).text);
}

void
held_of_person(struct held *ret, const struct view *v, const struct person *p)
{
	*ret = (struct held){.state = HELD_BY,
	    .kind = KIND_EXCLUSIVE,
	    .ns = view_ago(v, p->since),
	    .kept = view_after(p, p->said.keep),
	    .ends = view_after(p, p->said.end),
	    .now = v->now};
	snprintf(ret->who, sizeof ret->who, "%.*s", (int)sizeof ret->who - 1,
	    view_person(p).text);
}

void
held_of_freeze(struct held *ret, const struct view *v)
{
	held_of_person(ret, v, &v->frozen);
	ret->state = HELD_FROZEN;
	snprintf(ret->until, sizeof ret->until, "%s", text_until(v->frozen.until).text);
}

void
held_of_view(struct held *ret, const struct view *v)
{
	const struct person *p = view_holder(v);

	*ret = (struct held){
	    .state = HELD_FREE, .ns = -1, .kept = EPOCH_NONE, .ends = EPOCH_NONE};
	if (p) {
		held_of_person(ret, v, p);
		ret->kind = p->kind;
		ret->holders = v->holders.all;
		ret->limit = p->limit;
		if (v->holders.all > 1)
			ret->kept = ret->ends = EPOCH_NONE;
	} else if (v->unknown) {
		ret->state = HELD_UNKNOWN;
		text_clean(ret->who, sizeof ret->who, v->unknown, strlen(v->unknown));
	} else if (v->is_frozen) {
		held_of_freeze(ret, v);
	} else if (v->waiters.all > 0) {
		ret->state = HELD_WAITED_FOR;
		ret->waiters = v->waiters.all;
	}
	ret->frozen = v->is_frozen;
	if (v->is_frozen)
		snprintf(ret->until, sizeof ret->until, "%s",
		    text_until(v->frozen.until).text);
}

void
held_ask(struct held *h, const struct params_claim *c)
{
	h->room = h->holders > 0 && h->kind == c->kind && !h->frozen &&
	    (h->kind == KIND_SHARED ||
		(h->kind == KIND_LIMIT && (int64_t)h->holders < h->limit));
}

/* ---- the sentence ---- */

struct brief
held_share(const struct held *h)
{
	unsigned long long n = h->holders;
	const char *s = n == 1 ? "" : "s";
	struct brief b = {""};

	if (h->kind == KIND_SHARED && n > 0)
		snprintf(b.text, sizeof b.text, "%llu reader%s", n, s);
	else if (h->kind == KIND_LIMIT && h->limit > 0)
		snprintf(b.text, sizeof b.text, "%llu of %lld slots taken", n,
		    (long long)h->limit);
	else if (h->kind == KIND_LIMIT && n > 0)
		snprintf(b.text, sizeof b.text, "%llu slot%s taken", n, s);
	else if (n > 1)
		snprintf(b.text, sizeof b.text, "%llu holders", n);
	return b;
}

/* "2 of 4 slots are", "all 4 slots are", "the only slot is" */
static struct brief
slots_taken(const struct held *h)
{
	unsigned long long n = h->holders, most = h->limit;
	const char *are = n == 1 ? "is" : "are";
	struct brief b;

	if (h->limit == 0)
		snprintf(
		    b.text, sizeof b.text, "%llu slot%s %s", n, n == 1 ? "" : "s", are);
	else if (n < most)
		snprintf(b.text, sizeof b.text, "%llu of %llu slots %s", n, most, are);
	else if (most == 1)
		snprintf(b.text, sizeof b.text, "the only slot is");
	else if (most == 2)
		snprintf(b.text, sizeof b.text, "both slots are");
	else
		snprintf(b.text, sizeof b.text, "all %llu slots are", most);
	return b;
}

/*
 * The words before the name of the first holder.  `slots`: the sentence has counted them already.
 */
static const char *
before_first(const struct held *h, bool slots, char *out, size_t size)
{
	const struct brief share = held_share(h);

	*out = '\0';
	if (slots)
		snprintf(out, size, h->holders == 1 ? "by " : "first ");
	else if (h->kind == KIND_SHARED && h->holders == 1)
		snprintf(out, size, "a reader, ");
	else if (h->kind == KIND_SHARED && h->holders == 0)
		snprintf(out, size, "readers, first ");
	else if (h->holders > 1)
		snprintf(out, size, "%s, first ", share.text);
	return out;
}

const char *
held_ahead(const struct held *h, char *out)
{
	size_t n = 0;

	*out = '\0';
	if (h->kept > h->now)
		n = snprintf(out, HELD_AHEAD, ", kept until %s (--min-hold)",
		    text_clock(h->kept, h->now).text);
	if (h->ends > h->now)
		snprintf(out + n, HELD_AHEAD - n, ", ends at %s at the latest",
		    text_clock(h->ends, h->now).text);
	return out;
}

struct brief
held_lease(const struct view *v, const struct person *p)
{
	int64_t left = view_left(v, p->until), renewed = view_renewed(v, p);
	struct brief b = {""};

	if (renewed >= 0 && renewed < p->said.ttl / 2)
		snprintf(
		    b.text, sizeof b.text, "renewed %s ago", parse_span(renewed).text);
	else if (renewed >= 0)
		snprintf(b.text, sizeof b.text,
		    "not renewed for %.11s, free in %.11s at the latest",
		    parse_span(renewed).text, parse_span(left).text);
	else if (left >= 0)
		snprintf(
		    b.text, sizeof b.text, "lease ends in %s", parse_span(left).text);
	return b;
}

/* The words behind the name: how long it is held, and why one who would fit has to wait. */
static const char *
behind_first(const struct held *h, char *out, size_t size)
{
	char ahead[HELD_AHEAD];
	size_t n = 0;

	*out = '\0';
	if (h->ns >= 0)
		n = snprintf(out, size, " for %s", parse_span(h->ns).text);
	if (h->state == HELD_BY)
		n += snprintf(out + n, size - n, "%s", held_ahead(h, ahead));
	if (h->state == HELD_FROZEN && *h->until)
		snprintf(out + n, size - n, ", %s", h->until);
	else if (h->state == HELD_BY && h->frozen)
		snprintf(out + n, size - n, " (and the key is frozen%s%s)",
		    *h->until ? " " : "", h->until);
	else if (h->room)
		snprintf(out + n, size - n, " (and another run waits already)");
	return out;
}

/* "held by alice (...) for 3s", "frozen by bob for 1h00m, until dlock thaw" */
static void
describe_state(const struct held *h, bool slots, char *out)
{
	const char *who = *h->who ? h->who : "somebody";
	char before[80], behind[400];

	switch (h->state) {
	case HELD_BY:
		snprintf(out, HELD_BYTES, "%s%s%s%s", slots ? "" : "held by ",
		    before_first(h, slots, before, sizeof before), who,
		    behind_first(h, behind, sizeof behind));
		break;
	case HELD_FROZEN:
		snprintf(out, HELD_BYTES, "frozen by %s%s", who,
		    behind_first(h, behind, sizeof behind));
		break;
	case HELD_UNKNOWN:
		snprintf(
		    out, HELD_BYTES, "in use by something that is no lock: %s", h->who);
		break;
	case HELD_WAITED_FOR:
		snprintf(out, HELD_BYTES, "waited for by %" PRIu64 " other%s", h->waiters,
		    h->waiters == 1 ? "" : "s");
		break;
	case HELD_FREE:
		snprintf(out, HELD_BYTES, "free");
		break;
	}
}

/* `is`: the sentence follows the name of the key. */
static const char *
compose(const struct held *h, bool is, const char *still, char *out)
{
	bool slots = h->state == HELD_BY && h->kind == KIND_LIMIT && h->holders > 0;
	char what[HELD_BYTES];

	describe_state(h, slots, what);
	if (slots)
		snprintf(out, HELD_BYTES, "%s%s%s taken, %.*s", is ? ": " : "",
		    slots_taken(h).text, still, HELD_BYTES - 100, what);
	else
		snprintf(out, HELD_BYTES, "%s%s%s%.*s", is ? " is" : "", still,
		    is ? " " : "", HELD_BYTES - 100, what);
	return out;
}

const char *
held_says(const struct held *h, bool still, char *out)
{
	return compose(h, true, still ? " still" : "", out);
}

const char *
held_words(const struct held *h, char *out)
{
	return compose(h, false, "", out);
}
