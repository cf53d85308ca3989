/* jsonline.c - writes JSON to a stream. */
#include "jsonline.h"

#include "backends/common/clock.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define US_PER_S 1000000
#define YEAR_10000 (253402300800 * US_PER_S)

static void
write_string(struct jsonline *j, const char *s)
{
	putc('"', j->to);
	for (size_t left = strlen(s); left > 0;) {
		char escaped[8];
		size_t n = text_json(escaped, s, left);

		fputs(escaped, j->to);
		s += n;
		left -= n;
	}
	putc('"', j->to);
}

/* What comes before each value. */
static void
write_name(struct jsonline *j, const char *name)
{
	if (j->filled)
		putc(',', j->to);
	j->filled = true;
	if (name)
		fprintf(j->to, "\"%s\":", name);
}

void
jsonline_begin(struct jsonline *j, FILE *to)
{
	*j = (struct jsonline){.to = to};
	putc('{', to);
}

void
jsonline_end(struct jsonline *j)
{
	fputs("}\n", j->to);
}

void
jsonline_open(struct jsonline *j, const char *name, char bracket)
{
	write_name(j, name);
	putc(bracket, j->to);
	j->filled = false;
}

void
jsonline_close(struct jsonline *j, char bracket)
{
	putc(bracket, j->to);
	j->filled = true;
}

void
jsonline_string(struct jsonline *j, const char *name, const char *value)
{
	write_name(j, name);
	if (value)
		write_string(j, value);
	else
		fputs("null", j->to);
}

void
jsonline_number(struct jsonline *j, const char *name, uint64_t value)
{
	write_name(j, name);
	/* what reads it may know no larger one */
	fprintf(j->to, "%" PRIu64, value <= INT64_MAX ? value : INT64_MAX);
}

void
jsonline_truth(struct jsonline *j, const char *name, bool value)
{
	write_name(j, name);
	fputs(value ? "true" : "false", j->to);
}

void
jsonline_null(struct jsonline *j, const char *name)
{
	jsonline_string(j, name, NULL);
}

void
jsonline_seconds(struct jsonline *j, const char *name, int64_t ns)
{
	if (ns < 0 || ns == NEVER) {
		jsonline_null(j, name);
		return;
	}
	write_name(j, name);
	fprintf(j->to, "%lld.%03d", ns / NS_PER_S, (int)(ns % NS_PER_S / NS_PER_MS));
}

void
jsonline_time(struct jsonline *j, const char *name, int64_t us)
{
	time_t seconds = us / US_PER_S;
	struct tm tm;
	char date[32];

	if (us < 0 || us >= YEAR_10000 || !gmtime_r(&seconds, &tm)) {
		jsonline_null(j, name);
		return;
	}
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	write_name(j, name);
	fprintf(j->to, "\"%s.%03dZ\"", date, (int)(us % US_PER_S / 1000));
}
