/* stats.c - what a memcached server says of itself, and what that means for locks. */
#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
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

/* -1: not a number below the limit. */
static int64_t
stats_number(const char *text, int64_t limit)
{
	size_t n = strspn(text, "0123456789");
	int64_t number = n > 0 && n < 16 && text[n] == '\0' ? atoll(text) : -1;

	return number < limit ? number : -1;
}

/* A setting has the name of a count, too: what is no number leaves the count alone. */
static uint64_t
stats_count(const char *text, uint64_t known)
{
	int64_t number = stats_number(text, INT64_MAX);

	return number < 0 ? known : (uint64_t)number;
}

void
stats_add(struct stats *s, const char *name, const char *value)
{
	if (strcmp(name, "version") == 0)
		snprintf(s->version, sizeof s->version, "%s", value);
	else if (strcmp(name, "uptime") == 0)
		s->uptime = stats_number(value, SECONDS_LIMIT);
	else if (strcmp(name, "time") == 0)
		s->time = stats_number(value, SECONDS_LIMIT);
	else if (strcmp(name, "oldest") == 0)
		s->oldest = stats_number(value, SECONDS_LIMIT);
	else if (strcmp(name, "evictions") == 0)
		s->evictions = stats_count(value, s->evictions);
	else if (strcmp(name, "cmd_flush") == 0)
		s->flushes = stats_count(value, s->flushes);
}

/* The meta commands are as we write them since 1.6.10. */
static bool
speaks_meta(const char *version)
{
	char *end;
	unsigned long major = strtoul(version, &end, 10),
		      minor = *end == '.' ? strtoul(end + 1, &end, 10) : 0,
		      patch = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	return major > 1 || (major == 1 && (minor > 6 || (minor == 6 && patch >= 10)));
}

enum rc
stats_check(const struct stats *s, const char *where, struct fault *f)
{
	if (!speaks_meta(s->version))
		return fault_set(f, RC_CONFIG,
		    "%s says it is version '%.20s': dlock needs memcached 1.6.10 or newer, and no proxy before it",
		    where, s->version);
	if (s->uptime < 0 || s->time < s->uptime)
		return fault_set(f, RC_CONFIG,
		    "%s does not tell how long it has been running: is there a proxy before it?",
		    where);
	return RC_OK;
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

/* Has it gone on as far as it must since what we know of it? */
static bool
is_in_time(const struct tick *t, instant sent, int64_t time)
{
	int64_t real = sent - t->at, told = (time - t->time) * NS_PER_S;

	return real - told <= TICK_SLACK + real / DRIFT;
}

/*
 * What is kept to compare with is the answer that tells the most: one that was late, or
 * came at the end of a second, would hide as much of a standstill.  A clock that is slow
 * by the drift is followed.
 */
static bool
tells_more(const struct tick *t, instant heard, int64_t time)
{
	int64_t real = heard - t->at;

	return (time - t->time) * NS_PER_S >= real - real / DRIFT;
}

bool
tick_goes_on(struct tick *t, instant sent, instant heard, int64_t time)
{
	/* it was doubted a moment ago, and the timer has run since */
	bool again = t->doubted && time > t->doubt_time &&
	    sent - t->doubt_at <= TICK_SLACK;

	if (t->known && !again && !is_in_time(t, sent, time)) {
		t->doubted = true;
		t->doubt_at = sent;
		t->doubt_time = time;
		return false;
	}
	if (!t->known || again || tells_more(t, heard, time))
		*t = (struct tick){.known = true, .at = heard, .time = time};
	t->doubted = false;
	return true;
}
