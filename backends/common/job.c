/* job.c - names periods, and who ran a job. */
#include "job.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SECONDS_LEAST = 1000000000 /* in 2001 */ };

void
job_who(const char *record, char *out, size_t size)
{
	static const char who_is[] = "\"who\":\"";
	const char *who = record ? strstr(record, who_is) : NULL;
	size_t n;

	*out = '\0';
	if (!who)
		return;
	who += strlen(who_is);
	for (n = 0; (unsigned char)who[n] >= ' ' && !strchr("\"\\\177", who[n]);)
		n++;
	if (n < size && who[n] == '"')
		snprintf(out, size, "%.*s", (int)n, who);
}

enum rc
job_name_period(const struct job *j, int64_t us, const char *where, struct fault *f)
{
	static const char *const forms[] = {
	    [PER_DAY] = "%Y-%m-%d", [PER_HOUR] = "%Y-%m-%dT%H", [PER_WEEK] = "%G-W%V"};
	struct period *p = j->per;
	time_t seconds;
	struct tm tm;

	if (!p || *p->id)
		return RC_OK;
	seconds = (us - p->offset / 1000) / 1000000;
	/* a clock that has never been set, or a time that is not known */
	if (us < 0 || seconds < SECONDS_LEAST || !gmtime_r(&seconds, &tm) ||
	    tm.tm_year > 9999 - 1900)
		return fault_set(f, RC_PROTOCOL,
		    "%s tells a time that is none, so no ID can be made of it", where);
	strftime(p->id, sizeof p->id, forms[p->kind], &tm);
	return RC_OK;
}

void
job_note_unshown(struct host *host, const struct job *j, const char *where, int status)
{
	if (status >= 0 && job_is_shown(j) && j->remember == REMEMBER_SURELY)
		fault_set(&host->notice, RC_OK,
		    "%s could not record that this run ended with %d: status will not show it",
		    where, status);
}
