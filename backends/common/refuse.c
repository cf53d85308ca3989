/* refuse.c - writes the sentences that all backends have in common. */
#include "refuse.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TEXT_BYTES = 40 };

static const char *
kind_text(enum lock_kind kind, unsigned limit, char *out)
{
	switch (kind) {
	case KIND_LIMIT:
		snprintf(out, TEXT_BYTES, "--limit %u", limit);
		return out;
	case KIND_SHARED:
		return "-s";
	default:
		return "-x";
	}
}

enum rc
refuse_kind(struct fault *f, const char *where, enum lock_kind kind, unsigned limit,
    const struct claim *c)
{
	char used[TEXT_BYTES], asked[TEXT_BYTES];

	return fault_set(f, RC_PROTOCOL,
	    "%s: the key is in use with %s, and this run asks for %s", where,
	    kind_text(kind, limit, used), kind_text(c->kind, c->limit, asked));
}

/* In the two largest units that are needed: 12m, 1h30m, 400ms. */
static const char *
length_text(int64_t ns, char *out)
{
	static const struct {
		int64_t seconds;
		char name;
	} units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
	int64_t left = ns / NS_PER_S;
	int used = 0, parts = 0;

	if (left == 0)
		snprintf(out, TEXT_BYTES, "%lldms", (long long)(ns / NS_PER_MS));
	for (size_t i = 0; i < sizeof units / sizeof *units && parts < 2; i++) {
		int64_t n = left / units[i].seconds;

		left %= units[i].seconds;
		parts += n > 0 || parts > 0;
		if (n > 0)
			used += snprintf(out + used, TEXT_BYTES - used, "%lld%c",
			    (long long)n, units[i].name);
	}
	return out;
}

enum rc
refuse_done(struct host *host, struct fault *f, const struct job *j, int status,
    int64_t began_ms, const char *who)
{
	time_t seconds = began_ms / 1000;
	char began[TEXT_BYTES];
	struct tm tm;

	if (began_ms < 0 || !gmtime_r(&seconds, &tm) ||
	    !strftime(began, sizeof began, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(began, sizeof began, "an unknown time");
	host->seen.done_status = status;
	return fault_set(f, RC_DONE, "ID %s was run at %s%s%.100s and ended with %d%s",
	    j->once, began, *who ? " by " : "", who, status,
	    status == 0 ? "" : ", which counts (--no-retry)");
}

enum rc
refuse_recent(struct fault *f, const struct job *j, int64_t age)
{
	char ago[TEXT_BYTES], cooldown[TEXT_BYTES];

	return fault_set(f, RC_DONE,
	    "the last run that ended with 0 began %s ago, less than --cooldown %s",
	    length_text(age > 0 ? age : 0, ago), length_text(j->cooldown, cooldown));
}

enum rc
refuse_broken(
    struct host *host, struct fault *f, enum rc rc, const char *where, const char *record)
{
	size_t n = strlen(record);

	*host->breaker = '\0';
	if (n < sizeof host->breaker)
		memcpy(host->breaker, record, n + 1);
	return fault_set(f, rc,
	    rc == RC_LOST ? "%s: the lock was taken away by force"
			  : "%s: somebody asks for the lock back",
	    where);
}
