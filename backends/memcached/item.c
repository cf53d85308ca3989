/* item.c - the items that make up one lock, and what the server says of itself. */
#include "item.h"

#include "backends/common/digits.h"
#include "backends/common/encode.h"
#include "backends/common/sha.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "dlock1"
#define VALUE_LIMIT 1000000000000000000

enum {
	HASHED_CHARS = 1 + 2 * SHA256_BYTES,
	NUMBERS = 6, /* of a value */
};

/* ---- names ---- */

static bool
stands_for_itself(unsigned char c)
{
	return c > ' ' && c != 0x7f && c != '%' && c != '#';
}

void
item_name(struct item_name *name, const char *prefix, const char *key)
{
	size_t before = snprintf(name->text, sizeof name->text, "%s", prefix), n = before;
	unsigned char hash[SHA256_BYTES];

	name->hashed = false;
	for (const char *at = key; *at && !name->hashed; at++) {
		bool plain = stands_for_itself(*at);

		n += snprintf(name->text + n, sizeof name->text - n,
		    plain ? "%c" : "%%%02X", (unsigned char)*at);
		name->hashed = n > LOCK_NAME_MOST;
	}
	if (!name->hashed)
		return;
	sha_256(hash, key, strlen(key));
	name->text[before] = '#';
	digits_hex(name->text + before + 1, hash, sizeof hash);
}

bool
item_is_prefix(const char *prefix)
{
	size_t n = strlen(prefix);

	for (size_t i = 0; i < n; i++)
		if (!stands_for_itself(prefix[i]) || (unsigned char)prefix[i] > 0x7e)
			return false;
	return n <= PREFIX_MOST;
}

enum item_kind
item_name_read(char *key, const char **lock, const char *prefix, const char *name)
{
	bool freeze = strncmp(name, ITEM_FREEZE, strlen(ITEM_FREEZE)) == 0;
	enum item_kind kind = freeze ? ITEM_IS_FREEZE : ITEM_IS_LOCK;
	size_t n = strlen(prefix);
	struct item_name again;
	const char *text;

	*key = '\0';
	*lock = freeze ? name + strlen(ITEM_FREEZE) : name;
	if (strlen(*lock) > LOCK_NAME_MOST || strncmp(*lock, prefix, n) != 0)
		return ITEM_IS_OTHER;
	text = *lock + n;
	if (*text == '#')
		return strlen(text) == HASHED_CHARS ? kind : ITEM_IS_OTHER;
	if (encode_undo(key, KEY_BYTES + 1, text, strlen(text)) <= 0)
		return ITEM_IS_OTHER;
	item_name(&again, prefix, key);
	return strcmp(again.text, *lock) == 0 ? kind : ITEM_IS_OTHER;
}

/* ---- values ---- */

static bool
is_one_line(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return false;
	return true;
}

size_t
value_write(char out[VALUE_BYTES], const struct value *v)
{
	int n = snprintf(out, VALUE_BYTES,
	    MAGIC " %s %" PRIu64 " %" PRId64 " %" PRId64 " %zu %zu %zu %s %s %s",
	    v->owner, v->token, v->since, v->until, strlen(v->key), strlen(v->record),
	    strlen(v->mark), v->key, v->record, v->mark);

	return n > 0 && n < VALUE_BYTES && is_one_line(out, n) ? (size_t)n : 0;
}

/* So many bytes, and what follows them: a blank, or the end. */
static bool
value_text(char **text, const char *end, int64_t n, char *out, size_t size, char stop)
{
	if (n < 0 || (size_t)n >= size || end - *text < n || (*text)[n] != stop)
		return false;
	memcpy(out, *text, n);
	out[n] = '\0';
	*text += n + 1;
	return true;
}

bool
value_read(struct value *v, const char *text, size_t n)
{
	char line[VALUE_BYTES] = "", *rest = line;
	const char *end = line + n;
	int64_t numbers[NUMBERS];

	if (n >= sizeof line || !is_one_line(text, n))
		return false;
	memcpy(line, text, n);
	if (strcmp(reply_word(&rest), MAGIC) != 0 ||
	    !value_text(&rest, end, OWNER_CHARS, v->owner, sizeof v->owner, ' ') ||
	    strspn(v->owner, "0123456789abcdef") != OWNER_CHARS)
		return false;
	for (int i = 0; i < NUMBERS; i++) { /* of up to 18 digits */
		char *word = reply_word(&rest);
		bool negative = *word == '-';
		uint64_t number;

		if (!reply_number(word + negative, &number) || number >= VALUE_LIMIT)
			return false;
		numbers[i] = negative ? -(int64_t)number : (int64_t)number;
	}
	if (numbers[0] < 0 || numbers[1] < EPOCH_NONE || numbers[2] < EPOCH_NONE)
		return false;
	v->token = numbers[0];
	v->since = numbers[1];
	v->until = numbers[2];
	return value_text(&rest, end, numbers[3], v->key, sizeof v->key, ' ') &&
	    value_text(&rest, end, numbers[4], v->record, sizeof v->record, ' ') &&
	    value_text(&rest, end, numbers[5], v->mark, sizeof v->mark, '\0') &&
	    rest == end + 1;
}

/* ---- items ---- */

enum rc
item_read(struct client *c, struct item *i, instant until, struct fault *f)
{
	struct reply r;
	enum rc rc = client_read(c, &r, until, f);

	*i = (struct item){.value = {.since = EPOCH_NONE, .until = EPOCH_NONE}};
	if (rc != RC_OK || r.code == REPLY_EN)
		return rc;
	if (r.code != REPLY_VA || r.ttl == TTL_UNTOLD)
		return client_nonsense(c, f);
	if (!r.cas)
		return client_without_cas(c, f);
	i->there = true;
	i->cas = r.cas;
	i->ttl = r.ttl;
	i->foreign = r.size != r.n || !value_read(&i->value, r.text, r.n);
	if (i->foreign)
		i->value = (struct value){.since = EPOCH_NONE, .until = EPOCH_NONE};
	snprintf(i->words, sizeof i->words, "%.*s", FOREIGN_CHARS, r.text);
	return RC_OK;
}

bool
item_is_of(const struct item *i, const char *owner)
{
	return i->there && strcmp(i->value.owner, owner) == 0;
}

/* ---- statistics ---- */

enum {
	STATS_MOST = 1000,  /* lines */
	UPTIME_BEGINS = 2,  /* the first that is told */
	ROUNDING = 1,       /* it counts whole seconds */
	OLDEST_BEHIND = 59, /* "oldest" counts from so long before uptime does */
	DRIFT = 100,        /* clocks may differ by a hundredth */
};

#define TICK_SLACK (1250 * NS_PER_MS) /* a whole second, and a timer that is late */
#define SECONDS_LIMIT (1LL << 33)     /* times below are numbers in nanoseconds, too */

void
stats_init(struct stats *s)
{
	*s = (struct stats){.uptime = -1, .time = -1, .oldest = -1};
}

void
stats_add(struct stats *s, const char *name, const char *value)
{
	int64_t *time = strcmp(name, "uptime") == 0 ? &s->uptime
	    : strcmp(name, "time") == 0             ? &s->time
	    : strcmp(name, "oldest") == 0           ? &s->oldest
						    : NULL;
	int64_t *count = strcmp(name, "evictions") == 0 ? &s->evictions
	    : strcmp(name, "cmd_flush") == 0            ? &s->flushes
	    : strcmp(name, "limit_maxbytes") == 0       ? &s->room
	    : strcmp(name, "bytes") == 0                ? &s->used
							: NULL;
	uint64_t number;
	/* most lines are about something else */
	bool is_number = (time || count) && reply_number(value, &number) &&
	    number <= INT64_MAX;

	if (strcmp(name, "version") == 0)
		snprintf(s->version, sizeof s->version, "%s", value);
	if (time)
		*time = is_number && number < SECONDS_LIMIT ? (int64_t)number : -1;
	if (count && is_number) /* a setting has the name of a count, too */
		*count = (int64_t)number;
}

enum rc
stats_check(const struct stats *s, const char *where, struct fault *f)
{
	char *end;
	unsigned long major = strtoul(s->version, &end, 10),
		      minor = *end == '.' ? strtoul(end + 1, &end, 10) : 0,
		      patch = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	/* the meta commands are as we write them since 1.6.10 */
	if (major < 1 || (major == 1 && (minor < 6 || (minor == 6 && patch < 10))))
		return fault_set(f, RC_CONFIG,
		    "%s says it is version '%.20s': dlock needs memcached 1.6.10 or newer, and no proxy in front of it",
		    where, s->version);
	if (s->uptime < 0 || s->time < s->uptime)
		return fault_set(f, RC_CONFIG,
		    "%s does not tell how long it has been running: is there a proxy in front of it?",
		    where);
	return RC_OK;
}

enum rc
stats_read(struct stats *s, struct client *c, instant until, struct fault *f)
{
	struct reply r = {.code = REPLY_STRANGE};
	enum rc rc = RC_OK;

	for (int i = 0; i < STATS_MOST; i++) {
		rc = client_read(c, &r, until, f);
		if (rc != RC_OK || r.code != REPLY_STAT)
			break;
		stats_add(s, r.name, r.text);
	}
	if (rc != RC_OK)
		return rc;
	if (r.code != REPLY_END)
		return client_nonsense(c, f);
	rc = stats_check(s, c->stream.where, f);
	if (rc != RC_OK)
		client_close(c);
	return rc;
}

/* Seconds since the server was started, at least. */
static int64_t
known_uptime(const struct stats *s)
{
	return s->uptime - UPTIME_BEGINS - ROUNDING;
}

int64_t
stats_age(const struct stats *s)
{
	int64_t age = known_uptime(s),
		flushed = s->uptime + OLDEST_BEHIND - s->oldest - ROUNDING;

	return s->oldest > 0 && flushed < age ? flushed : age;
}

uint64_t
stats_token(const struct stats *s, uint64_t cas)
{
	return stats_token_missing(s, cas) > 0
	    ? 0
	    : (uint64_t)(s->time - s->uptime) * US_PER_S + cas;
}

int64_t
stats_token_missing(const struct stats *s, uint64_t cas)
{
	return (int64_t)(cas / US_PER_S) + 1 - known_uptime(s);
}

/*
 * What is kept to compare with is the answer that tells the most: one that was late, or
 * came at the end of a second, would hide as much of a standstill.  A clock that is slow
 * by the drift is followed.
 */
bool
tick_goes_on(struct tick *t, instant sent, instant heard, int64_t time)
{
	/* it was doubted a moment ago, and the timer has run since */
	bool again = t->doubted && time > t->doubt_time &&
	    sent - t->doubt_at <= TICK_SLACK;
	int64_t told = (time - t->time) * NS_PER_S, least = sent - t->at,
		most = heard - t->at;

	if (t->known && !again && least - told > TICK_SLACK + least / DRIFT) {
		t->doubted = true;
		t->doubt_at = sent;
		t->doubt_time = time;
		return false;
	}
	if (!t->known || again || told >= most - most / DRIFT)
		*t = (struct tick){.known = true, .at = heard, .time = time};
	t->doubted = false;
	return true;
}

/* ---- one lock ---- */

void
items_ask(struct client *c, const char *name, unsigned what)
{
	if (what & ITEMS_STATS)
		client_word(c, "stats");
	if (what & ITEMS_FLUSH)
		client_word(c, "stats settings");
	client_get(c, ITEM_LOCK, name);
	client_get(c, ITEM_FREEZE, name);
}

enum rc
items_read(
    struct client *c, unsigned what, instant until, struct items *i, struct fault *f)
{
	enum rc rc = RC_OK;

	stats_init(&i->stats);
	if (what & ITEMS_STATS)
		rc = stats_read(&i->stats, c, until, f);
	if (rc == RC_OK && what & ITEMS_FLUSH)
		rc = stats_read(&i->stats, c, until, f);
	if (rc == RC_OK)
		rc = item_read(c, &i->lock, until, f);
	if (rc == RC_OK)
		rc = item_read(c, &i->freeze, until, f);
	if (rc == RC_OK && what & ITEMS_STATS)
		items_number(i, &i->stats);
	return rc;
}

enum rc
items_look(struct client *c, const char *name, unsigned what, instant until,
    struct items *i, struct fault *f)
{
	enum rc rc;

	items_ask(c, name, what);
	i->sent = instant_now();
	rc = client_send(c, until, f);
	return rc == RC_OK ? items_read(c, what, until, i, f) : rc;
}

void
items_number(struct items *i, const struct stats *s)
{
	if (i->lock.there && !i->lock.foreign && i->lock.value.token == 0)
		i->lock.value.token = stats_token(s, i->lock.cas);
}
