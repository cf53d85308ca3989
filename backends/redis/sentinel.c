/* sentinel.c - asks sentinels for the master, all at once. */
#include "sentinel.h"

#include "answer.h"
#include "backends/common/text.h"
#include "fan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE_PATIENCE (100 * NS_PER_MS) /* for one, once all else is answered */

/* of the wait: one of so many parts, in which fewer than most will do */
enum { LAST_PART = 4, SENTINEL_WHERE = 300 };

/* What one of them has to say. */
enum word {
	WORD_NONE, /* nothing so far, or for ever */
	WORD_MASTER,
	WORD_UNKNOWN, /* it knows no master of that name */
	WORD_UNSAFE,  /* its certificate is not accepted */
	WORD_DENIED,
	WORD_NONSENSE,
};

struct sentinel {
	char where[SENTINEL_WHERE];
	enum word word;
	struct endpoint master;
};

struct sentinels {
	struct host *host;
	const struct address *address;
	struct fan fan;
	struct peer *peers; /* of the fan */
	bool patience;      /* the last question was how patient they are, too */
	int64_t down_after;
	size_t turn;      /* the next one to be asked alone */
	size_t one;       /* the one that is asked alone; n: none is */
	struct fault why; /* what the last one that failed had to say */
	size_t n;
	struct sentinel each[];
};

static const struct resp_bounds bounds = {RESP_BYTES, 128, RESP_DEPTH};

/* ---- answers ---- */

static enum word
read_error(struct sentinels *s, struct sentinel *o, char *text)
{
	const char *hint;
	enum rc rc = resp_error(text, &hint);

	if (strncmp(text, "ERR No such master", 18) == 0)
		return WORD_UNKNOWN;
	secret_blot(text, s->address->password);
	fault_set(&s->why, rc, "%s says '%.200s'%s", o->where, text,
	    rc == RC_DENIED ? ": -O sentinel-password-file=FILE is for it" : "");
	return rc == RC_DENIED ? WORD_DENIED : WORD_NONSENSE;
}

static enum word
read_master(struct sentinels *s, struct sentinel *o, const redisReply *r)
{
	const char *host, *port;

	if (r->type == REDIS_REPLY_ERROR)
		return read_error(s, o, r->str);
	if (r->type == REDIS_REPLY_NIL)
		return WORD_UNKNOWN;
	if (answer_members(r, 0, "ww", &host, &port) && r->elements == 2 &&
	    !endpoint_plain(&o->master, host, strlen(host), port, strlen(port)))
		return WORD_MASTER;
	fault_set(&s->why, RC_PROTOCOL,
	    "%s names no host and port as the master: is it a sentinel?", o->where);
	return WORD_NONSENSE;
}

/* {name, value, ...} */
static void
read_patience(struct sentinels *s, const redisReply *r)
{
	const char *name, *value;

	for (size_t i = 0; i + 1 < r->elements; i += 2)
		if (answer_members(r, i, "ss", &name, &value) &&
		    strcmp(name, "down-after-milliseconds") == 0)
			s->down_after = endpoint_number(value, strlen(value), INT32_MAX);
}

/* AUTH, the question, and how patient they are. */
static enum heard
sentinel_hear(void *ctx, size_t i, int number, redisReply **reply)
{
	const redisReply *r = *reply;
	struct sentinels *s = ctx;
	struct sentinel *o = &s->each[i];
	enum word word;

	if (number > 0) {
		read_patience(s, r);
		return HEARD_ALL;
	}
	if (number == 0) {
		word = read_master(s, o, r);
		o->word = o->word == WORD_DENIED && word != WORD_MASTER ? WORD_DENIED
									: word;
		return s->patience ? HEARD_MORE : HEARD_ALL;
	}
	if (r->type == REDIS_REPLY_ERROR) {
		o->word = WORD_DENIED;
		fault_set(&s->why, RC_DENIED,
		    "%s refuses the password of -O sentinel-password-file=FILE",
		    o->where);
	}
	return HEARD_MORE;
}

/* How many say this. */
static size_t
count_words(const struct sentinels *s, enum word word)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->each[i].word == word;
	return n;
}

/* What became of those that have not answered; one that cannot be reached hides no other's word. */
static void
read_failures(struct sentinels *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct peer *p = &s->fan.peers[i];

		if (p->busy || p->rc == RC_OK)
			continue;
		if (p->rc != RC_AGAIN || count_words(s, WORD_NONE) == s->n)
			s->why = p->fault;
		if (s->each[i].word == WORD_NONE)
			s->each[i].word = p->rc == RC_CONFIG ? WORD_UNSAFE
			    : p->rc == RC_DENIED             ? WORD_DENIED
			    : p->rc == RC_PROTOCOL           ? WORD_NONSENSE
							     : WORD_NONE;
	}
}

/* ---- asking ---- */

/* Where the master is; and, if wanted, how patient they are. */
static void
sentinel_say(struct sentinels *s, size_t i, instant until)
{
	const char *name = s->address->master;
	size_t n = strlen(name);
	char *command;
	int length = asprintf(&command,
	    s->patience
		? "*3\r\n$8\r\nSENTINEL\r\n$23\r\nget-master-addr-by-name\r\n$%zu\r\n%s\r\n"
		  "*3\r\n$8\r\nSENTINEL\r\n$6\r\nMASTER\r\n$%zu\r\n%s\r\n"
		: "*3\r\n$8\r\nSENTINEL\r\n$23\r\nget-master-addr-by-name\r\n$%zu\r\n%s\r\n",
	    n, name, n, name);

	s->each[i].word = WORD_NONE;
	fan_say(&s->fan, &s->fan.peers[i], length < 0 ? NULL : command, length, until);
}

/* How many say the same as this one. */
static size_t
votes_for(const struct sentinels *s, const struct sentinel *of)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->each[i].word == WORD_MASTER &&
		    endpoint_is(&s->each[i].master, &of->master);
	return n;
}

/* What at least `votes` say, and with fewer than most: nobody else says another; or NULL. */
static const struct endpoint *
named_by(const struct sentinels *s, bool most)
{
	size_t masters = count_words(s, WORD_MASTER);

	for (size_t i = 0; i < s->n; i++) {
		const struct sentinel *o = &s->each[i];

		if (o->word == WORD_MASTER &&
		    (most ? votes_for(s, o) * 2 > s->n : votes_for(s, o) == masters))
			return &o->master;
	}
	return NULL;
}

static bool
most_agree(void *ctx)
{
	return named_by(ctx, true) != NULL;
}

static bool
most_agree_or_one_has_answered(void *ctx)
{
	return named_by(ctx, true) || count_words(ctx, WORD_MASTER) > 0;
}

static enum rc
refusal(struct sentinels *s, struct fault *f)
{
	const char *name = s->address->master;

	if (count_words(s, WORD_MASTER) > 0)
		return fault_set(f, RC_AGAIN,
		    "the sentinels do not agree where the master %s is", name);
	if (count_words(s, WORD_UNKNOWN) > 0)
		return fault_set(f, RC_CONFIG,
		    "the sentinels know no master called '%s': its name stands behind their hosts in the URL",
		    name);
	if (count_words(s, WORD_UNSAFE) > 0)
		return fault_set(f, RC_CONFIG, "%s", s->why.text);
	if (count_words(s, WORD_DENIED) > 0)
		return fault_set(f, RC_DENIED, "%s", s->why.text);
	if (count_words(s, WORD_NONSENSE) > 0)
		return fault_set(f, RC_PROTOCOL, "%s", s->why.text);
	return fault_set(f, RC_AGAIN, "no sentinel tells where the master %s is: %.300s",
	    name, *s->why.text ? s->why.text : "none answers");
}

/* Nobody is busy with what was asked before. */
static void
close_busy(struct sentinels *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->fan.peers[i].busy)
			fan_close(&s->fan.peers[i]);
	s->one = s->n;
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

	*s->why.text = '\0';
	close_busy(s);
	s->patience = s->host->verbose && !s->down_after;
	for (size_t i = 0; i < s->n; i++)
		sentinel_say(s, i, until);
	rc = fan_hear(&s->fan, soon, most_agree);
	if (rc == RC_OK && !named_by(s, true))
		rc = fan_hear(&s->fan, until, most_agree_or_one_has_answered);
	read_failures(s);
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
	s->one = s->turn++ % s->n;
	s->patience = false;
	sentinel_say(s, s->one, until);
}

bool
sentinels_one_differs(struct sentinels *s, const struct endpoint *master)
{
	const struct sentinel *o = &s->each[s->one];

	fan_hear(&s->fan, instant_now() + ONE_PATIENCE, NULL);
	close_busy(s);
	return o->word == WORD_MASTER && !endpoint_is(&o->master, master);
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
	struct sentinels *s = calloc(1, sizeof *s + a->n * sizeof s->each[0]);

	if (!s)
		return NULL;
	s->host = host;
	s->address = a;
	s->n = s->one = a->n;
	s->peers = calloc(s->n, sizeof *s->peers);
	if (!s->peers || !fan_begin(&s->fan, host, s->peers, s->n, sentinel_hear, s)) {
		sentinels_free(s);
		return NULL;
	}
	for (size_t i = 0; i < s->n; i++) {
		struct sentinel *o = &s->each[i];

		snprintf(o->where, sizeof o->where,
		    strchr(a->hosts[i].host, ':') ? "sentinel [%s]:%d" : "sentinel %s:%d",
		    a->hosts[i].host, a->hosts[i].port);
		fan_set(&s->fan, i, a, &a->hosts[i], o->where, &bounds);
	}
	return s;
}

void
sentinels_free(struct sentinels *s)
{
	if (!s)
		return;
	fan_end(&s->fan);
	free(s->peers);
	free(s);
}
