/* past.c - reads and writes a run, and finds out whether a job has been done. */
#include "past.h"

#include "header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define US_PER_S INT64_C(1000000)

static const char no_id[] = "."; /* that of a file name is %2E */

bool
run_parse(struct run *r, const char *line, size_t n)
{
	const char *s = line, *end = line + n, *blank;
	int64_t status;

	*r = (struct run){.begin = header_number(&s, end)};
	r->end = header_number(&s, end);
	status = header_number(&s, end);
	r->token = header_number(&s, end);
	blank = memchr(s, ' ', (size_t)(end - s));
	if (r->begin < 0 || r->end < 0 || status < 0 || status > 255 || r->token < 0 ||
	    !blank || blank == s || blank + 1 == end)
		return false;
	if (blank - s >= (ptrdiff_t)sizeof r->id ||
	    end - blank > (ptrdiff_t)sizeof r->record || memchr(line, '\0', n))
		return false; /* torn, or none of ours */
	r->status = (int)status;
	if (blank - s != 1 || *s != *no_id)
		memcpy(r->id, s, (size_t)(blank - s));
	memcpy(r->record, blank + 1, (size_t)(end - blank - 1));
	return true;
}

size_t
run_format(const struct run *r, char line[RUN_LINE])
{
	return (size_t)snprintf(line, RUN_LINE,
	    "%" PRId64 " %" PRId64 " %d %" PRId64 " %s %s\n", r->begin, r->end, r->status,
	    r->token, *r->id ? r->id : no_id, *r->record ? r->record : "{}");
}

/* ---- what a job asks ---- */

void
past_add(struct past *p, const struct run *r, const struct job *job, int64_t now_us)
{
	char id[ENCODED_BYTES];
	int64_t ago = now_us - r->begin, cooldown = job->cooldown / 1000;

	if (r->status != 0)
		return;
	if (job->once && encode_key(id, sizeof id, job->once) > 0 &&
	    strcmp(id, r->id) == 0) {
		p->once = true;
		p->of_id = *r;
	}
	/*
	 * A clock that was set back makes a run lie in the future: by so much it may be
	 * wrong, not by more.
	 */
	if (ago < cooldown && -ago < cooldown && (!p->recent || ago < p->ago)) {
		p->recent = true;
		p->ago = ago;
	}
}

/* "2026-11-22T02:00:01Z" */
static void
tell_time(char *out, size_t size, int64_t us)
{
	time_t t = us / US_PER_S;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		snprintf(out, size, "some time");
}

/*
 * In the longest unit that says it exactly, or to a twelfth: "1500ms", "90s", "12m",
 * "3h".
 */
static void
tell_duration(char *out, size_t size, int64_t us)
{
	static const struct {
		int64_t ms;
		const char *name;
	} units[] = {{24 * 3600 * 1000, "d"}, {3600 * 1000, "h"}, {60 * 1000, "m"},
	    {1000, "s"}, {1, "ms"}};
	int64_t ms = us > 0 ? us / 1000 : 0;
	size_t i = 0;

	while (units[i].ms > 1 &&
	    (ms == 0 || (ms % units[i].ms != 0 && ms < 12 * units[i].ms)))
		i++;
	snprintf(out, size, "%" PRId64 "%s", ms / units[i].ms, units[i].name);
}

/*
 * The value of "who" in a record, as it stands there: whoever prints it makes it
 * harmless.
 */
static void
tell_who(char *out, size_t size, const char *record)
{
	static const char name[] = "\"who\":\"";
	const char *who = strstr(record, name);

	who = who ? who + strlen(name) : "somebody\"";
	snprintf(out, size, "%.*s", (int)strcspn(who, "\"\\"), who);
}

enum rc
past_tell(const struct past *p, const struct job *job, struct fault *fault)
{
	char began[32], who[100], ago[32], cooldown[32];

	if (p->once) {
		tell_time(began, sizeof began, p->of_id.begin);
		tell_who(who, sizeof who, p->of_id.record);
		return fault_set(fault, RC_DONE,
		    "ID %s was run at %s by %s and ended with 0", job->once, began, who);
	}
	tell_duration(ago, sizeof ago, p->ago);
	tell_duration(cooldown, sizeof cooldown, job->cooldown / 1000);
	return fault_set(fault, RC_DONE,
	    "the last run that ended with 0 began %s ago, less than --cooldown %s", ago,
	    cooldown);
}
