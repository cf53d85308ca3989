/* sentinel.c - asks sentinels for the master, all at once. */
#include "sentinel.h"

#include "backends/common/secret.h"
#include "fan.h"
#include "script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE_PATIENCE (100 * NS_PER_MS) /* for one, once all else is answered */

/* of the wait: one of so many parts, in which fewer than most will do */
enum { LAST_PART = 4 };

struct sentinels {
	struct host *host;
	const struct address *address;
	struct fan fan; /* a peer that tells no master says in which way */
	bool patience;  /* the last question was how patient they are, too */
	int64_t down_after;
	size_t turn;             /* the next one to be asked alone */
	size_t one;              /* the one that is asked alone */
	struct endpoint named[]; /* as masters, by each; port 0: it has not said */
};

static const struct resp_bounds bounds = {RESP_BYTES, 128, RESP_DEPTH};

/* ---- answers ---- */

/* What it says instead: a code that goes for all of them, and the words. */
static enum rc
read_error(const struct peer *p, const char *master, char *text, struct fault *f)
{
	const char *hint;
	enum rc rc;

	if (!text || resp_says(text, "No such master"))
		return fault_set(f, RC_CONFIG,
		    "the sentinels know no master called '%s': its name stands behind their hosts in the URL",
		    master);
	rc = resp_error(text, &hint);
	if (resp_says(text, "unknown command")) /* it is a server */
		rc = RC_PROTOCOL;
	secret_blot(text, p->address->password);
	if (rc == RC_DENIED)
		return fault_set(f, rc,
		    "%s says '%.200s': -O sentinel-password-file=FILE is for it",
		    p->stream.where, text);
	return fault_set(f, rc, "%s says '%.200s'", p->stream.where, text);
}

static enum heard
read_master(struct sentinels *s, size_t i, const redisReply *r)
{
	struct endpoint *named = &s->named[i];
	struct peer *p = &s->fan.peers[i];
	const char *host, *port;

	if (answer_members(r, 0, "ww", &host, &port) && r->elements == 2 &&
	    !endpoint_plain(named, host, strlen(host), port, strlen(port)))
		return s->patience ? HEARD_MORE : HEARD_ALL;
	named->port = 0;
	if (p->refused)
		p->rc = fault_set(&p->fault, RC_DENIED,
		    "%s refuses the password of -O sentinel-password-file=FILE",
		    p->where);
	else if (r->type == REDIS_REPLY_ERROR || r->type == REDIS_REPLY_NIL)
		p->rc = read_error(p, s->address->master, r->str, &p->fault);
	else
		p->rc = fault_set(&p->fault, RC_PROTOCOL,
		    "%s names no host and port as the master: is it a sentinel?",
		    p->where);
	return HEARD_WRONG;
}

/* The question, and how patient they are. */
static enum heard
sentinel_hear(void *ctx, size_t i, int number, redisReply **reply)
{
	struct sentinels *s = ctx;
	const char *value;

	if (number < 0)
		return HEARD_MORE;
	if (number == 0)
		return read_master(s, i, *reply);
	value = answer_setting(*reply, "down-after-milliseconds");
	if (*value)
		s->down_after = endpoint_number(value, strlen(value), INT32_MAX);
	return HEARD_ALL;
}

/* ---- asking ---- */

/* Where the master is; and, if wanted, how patient they are. */
static void
sentinel_say(struct sentinels *s, size_t i, instant until)
{
	const char *name = s->address->master;
	const resp_words commands[] = {
	    {"SENTINEL", "get-master-addr-by-name", name}, {"SENTINEL", "MASTER", name}};

	s->named[i].port = 0;
	fan_say(
	    &s->fan, &s->fan.peers[i], resp_write(commands, s->patience ? 2 : 1), until);
}

/* How many name this one; NULL: any. */
static size_t
votes_for(const struct sentinels *s, const struct endpoint *master)
{
	size_t n = 0;

	for (size_t i = 0; i < s->fan.n; i++)
		n += s->named[i].port > 0 &&
		    (!master || endpoint_is(&s->named[i], master));
	return n;
}

/* What most of all say, or all that name one; or NULL. */
static const struct endpoint *
named_by(const struct sentinels *s, bool most)
{
	size_t enough = most ? s->fan.n / 2 + 1 : votes_for(s, NULL);

	for (size_t i = 0; i < s->fan.n; i++)
		if (s->named[i].port > 0 && votes_for(s, &s->named[i]) >= enough)
			return &s->named[i];
	return NULL;
}

static bool
most_agree(void *ctx)
{
	return named_by(ctx, true) != NULL;
}

static bool
one_has_answered(void *ctx)
{
	return votes_for(ctx, NULL) > 0;
}

/* One that cannot be reached hides no other's word. */
static enum rc
refusal(struct sentinels *s, struct fault *f)
{
	static const enum rc order[] = {RC_CONFIG, RC_DENIED, RC_PROTOCOL};
	const char *name = s->address->master;

	if (votes_for(s, NULL) > 0)
		return fault_set(f, RC_AGAIN,
		    "the sentinels do not agree where the master %s is", name);
	for (size_t o = 0; o < sizeof order / sizeof *order; o++)
		for (size_t i = 0; i < s->fan.n; i++)
			if (s->fan.peers[i].rc == order[o]) {
				*f = s->fan.peers[i].fault;
				return order[o];
			}
	return fault_set(f, RC_AGAIN, "no sentinel tells where the master %s is: %.300s",
	    name, s->fan.peers[s->fan.n - 1].fault.text);
}

/* Nobody is busy with what was asked before. */
static void
close_busy(struct sentinels *s)
{
	for (size_t i = 0; i < s->fan.n; i++)
		if (peer_is_busy(&s->fan.peers[i]))
			fan_close(&s->fan.peers[i]);
}

/*
 * Until most agree; or all are heard; or the wait nears its end and some are.  The first
 * to answer may be one that was cut off, or lies: whom it names would get the password.
 */
enum rc
sentinels_ask(
    struct sentinels *s, instant until, struct endpoint *master, struct fault *f)
{
	instant soon = until - (until - instant_now()) / LAST_PART;
	const struct endpoint *named;
	enum rc rc;

	close_busy(s);
	s->patience = s->host->verbose && !s->down_after;
	for (size_t i = 0; i < s->fan.n; i++)
		sentinel_say(s, i, until);
	rc = fan_hear(&s->fan, soon, most_agree);
	if (rc == RC_OK && !named_by(s, true))
		rc = fan_hear(&s->fan, until, one_has_answered);
	close_busy(s);
	if (rc != RC_OK)
		return rc;
	named = named_by(s, true);
	named = named ? named : named_by(s, false);
	if (!named)
		return refusal(s, f);
	*master = *named;
	return RC_OK;
}

/* ---- one alone ---- */

/* It is sent at once if its connection is open; else that is opened when it is heard. */
void
sentinels_ask_one(struct sentinels *s, instant until)
{
	close_busy(s);
	s->one = s->turn++ % s->fan.n;
	s->patience = false;
	sentinel_say(s, s->one, until);
}

bool
sentinels_one_differs(struct sentinels *s, const struct endpoint *master)
{
	const struct endpoint *named = &s->named[s->one];

	fan_hear(&s->fan, instant_now() + ONE_PATIENCE, NULL);
	close_busy(s);
	return named->port > 0 && !endpoint_is(named, master);
}

/* ---- their life ---- */

int64_t
sentinels_down_after(const struct sentinels *s)
{
	return s->down_after > 0 ? s->down_after : 0;
}

struct sentinels *
sentinels_new(struct host *host, const struct address *a)
{
	struct sentinels *s = calloc(1, sizeof *s + a->n * sizeof s->named[0]);

	if (!s)
		return NULL;
	s->host = host;
	s->address = a;
	if (!fan_begin(&s->fan, host, a, "sentinel ", &bounds, sentinel_hear, s)) {
		sentinels_free(s);
		return NULL;
	}
	/* one that refuses the login may tell where the master is all the same */
	for (size_t i = 0; i < s->fan.n; i++)
		s->fan.peers[i].lenient = true;
	return s;
}

void
sentinels_free(struct sentinels *s)
{
	if (!s)
		return;
	fan_end(&s->fan);
	free(s);
}
