/* vitals.c - what a memcached server says of itself. */
#include "vitals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	UPTIME_BEGINS = 2,  /* the first that is told */
	ROUNDING = 1,       /* it counts whole seconds */
	OLDEST_BEHIND = 59, /* "oldest" counts from so long before uptime does */
};

/* what whole seconds may differ by, and a timer be late */
#define TICK_SLACK (1250 * NS_PER_MS)
enum { DRIFT = 100 }; /* a hundredth between clocks */

#define SECONDS_LIMIT (1LL << 33) /* also as nanoseconds they are a number */

void
vitals_init(struct vitals *v)
{
	*v = (struct vitals){.uptime = -1, .time = -1, .oldest = -1};
}

/* -1: none, or one that no server would say. */
static int64_t
number(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n < 16 && text[n] == '\0' ? atoll(text) : -1;
}

/* The same of a time. */
static int64_t
seconds(const char *text)
{
	int64_t n = number(text);

	return n < SECONDS_LIMIT ? n : -1;
}

/* How often something has happened. */
static uint64_t
count(const char *text)
{
	int64_t n = number(text);

	return n > 0 ? (uint64_t)n : 0;
}

void
vitals_add(struct vitals *v, const char *name, const char *value)
{
	if (strcmp(name, "version") == 0)
		snprintf(v->version, sizeof v->version, "%s", value);
	else if (strcmp(name, "uptime") == 0)
		v->uptime = seconds(value);
	else if (strcmp(name, "time") == 0)
		v->time = seconds(value);
	else if (strcmp(name, "oldest") == 0)
		v->oldest = seconds(value);
	else if (strcmp(name, "evictions") == 0)
		v->evictions = count(value);
	else if (strcmp(name, "cmd_flush") == 0)
		v->flushes = count(value);
}

/* The meta commands are as we write them since 1.6.10. */
static bool
is_old(const char *version)
{
	char *end;
	unsigned long major = strtoul(version, &end, 10),
		      minor = *end == '.' ? strtoul(end + 1, &end, 10) : 0,
		      patch = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	return major < 1 || (major == 1 && (minor < 6 || (minor == 6 && patch < 10)));
}

enum rc
vitals_check(const struct vitals *v, const char *where, struct fault *f)
{
	if (is_old(v->version))
		return fault_set(f, RC_CONFIG,
		    "%s says it is version '%.20s': dlock needs memcached 1.6.10 or newer, and no proxy before it",
		    where, v->version);
	if (v->uptime < 0 || v->time < v->uptime)
		return fault_set(f, RC_CONFIG,
		    "%s does not tell how long it has been running: is there a proxy before it?",
		    where);
	return RC_OK;
}

int64_t
vitals_uptime(const struct vitals *v)
{
	return v->uptime - UPTIME_BEGINS - ROUNDING;
}

int64_t
vitals_age(const struct vitals *v)
{
	int64_t age = vitals_uptime(v),
		flushed = v->uptime + OLDEST_BEHIND - v->oldest - ROUNDING;

	return v->oldest > 0 && flushed < age ? flushed : age;
}

/* Does it go on as it must, since it said what we know? */
static bool
goes_on(const struct tick *t, instant sent, int64_t time)
{
	int64_t real = sent - t->at, told = (time - t->time) * NS_PER_S;

	return real - told <= TICK_SLACK + real / DRIFT;
}

/* A moment ago it was doubted, and the timer has run since. */
static bool
has_gone_on(const struct tick *t, instant sent, int64_t time)
{
	return t->doubted && time > t->doubt_time && sent - t->doubt_at <= TICK_SLACK;
}

/*
 * What is compared with is the most that we know: an answer that was late, or came at the
 * end of a second, would hide as much.  A clock that is slow by the drift is followed.
 */
static bool
is_better(const struct tick *t, instant heard, int64_t time)
{
	int64_t real = heard - t->at;

	return (time - t->time) * NS_PER_S >= real - real / DRIFT;
}

bool
tick_goes_on(struct tick *t, instant sent, instant heard, int64_t time)
{
	bool again = has_gone_on(t, sent, time);

	if (t->known && !again && !goes_on(t, sent, time)) {
		t->doubted = true;
		t->doubt_at = sent;
		t->doubt_time = time;
		return false;
	}
	if (!t->known || again || is_better(t, heard, time))
		*t = (struct tick){.known = true, .at = heard, .time = time};
	t->doubted = false;
	return true;
}
