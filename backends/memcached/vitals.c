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

void
vitals_init(struct vitals *v)
{
	*v = (struct vitals){.uptime = -1, .time = -1, .oldest = -1};
}

static int64_t
number(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n < 16 && text[n] == '\0' ? atoll(text) : -1;
}

void
vitals_add(struct vitals *v, const char *name, const char *value)
{
	int64_t n = number(value);

	if (strcmp(name, "version") == 0)
		snprintf(v->version, sizeof v->version, "%s", value);
	else if (strcmp(name, "uptime") == 0)
		v->uptime = n;
	else if (strcmp(name, "time") == 0)
		v->time = n;
	else if (strcmp(name, "oldest") == 0)
		v->oldest = n;
	else if (strcmp(name, "evictions") == 0 && n > 0)
		v->evictions = n;
	else if (strcmp(name, "cmd_flush") == 0 && n > 0)
		v->flushes = n;
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
	if (v->uptime < 0 || v->time < 0)
		return fault_set(f, RC_CONFIG,
		    "%s does not tell how long it has been running: is there a proxy before it?",
		    where);
	return RC_OK;
}

int64_t
vitals_age(const struct vitals *v)
{
	int64_t age = v->uptime - UPTIME_BEGINS - ROUNDING,
		flushed = v->uptime + OLDEST_BEHIND - v->oldest - ROUNDING;

	return v->oldest > 0 && flushed < age ? flushed : age;
}

bool
tick_goes_on(struct tick *t, instant sent, instant heard, int64_t time)
{
	int64_t real = sent - t->at, told = (time - t->time) * NS_PER_S;

	if (t->known && real - told > TICK_SLACK + real / DRIFT)
		return false;
	*t = (struct tick){true, heard, time};
	return true;
}
