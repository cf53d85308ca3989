/* health.c - judges by a Redis server's own words whether it may lose locks. */
#include "health.h"

#include <stdio.h>
#include <string.h>

const char health_questions[] = "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n"
				"*2\r\n$4\r\nINFO\r\n$11\r\npersistence\r\n"
				"*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$4\r\nsave\r\n";

/* INFO tells a string, CONFIG GET the second of two; NULL: we are not told. */
static const char *
text_of(const redisReply *r)
{
	if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
		r = r->element[1];
	return r->type == REDIS_REPLY_STRING ? r->str : NULL;
}

bool
health_is_answer(const redisReply *r)
{
	return text_of(r) || r->type == REDIS_REPLY_ERROR;
}

/* The value of "name:value" in a section of INFO; "" when it is not there or too long. */
static void
field(const char *info, const char *name, char *out, size_t size)
{
	size_t n = strlen(name), length;

	*out = '\0';
	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, n) != 0 || line[n] != ':')
			continue;
		length = strcspn(line + n + 1, "\r\n");
		if (length < size)
			snprintf(out, size, "%.*s", (int)length, line + n + 1);
		return;
	}
}

static bool
is(const char *info, const char *name, const char *value)
{
	char found[32];

	field(info, name, found, sizeof found);
	return strcmp(found, value) == 0;
}

/* The policy's name if it evicts at all; NULL: it does not. */
static const char *
evicting(const char *memory, char *policy, size_t size)
{
	char most[24];

	field(memory, "maxmemory", most, sizeof most);
	field(memory, "maxmemory_policy", policy, size);
	if (!*most || strcmp(most, "0") == 0 || !*policy ||
	    strcmp(policy, "noeviction") == 0)
		return NULL;
	return policy[strspn(policy, "abcdefghijklmnopqrstuvwxyz-")] ? "not noeviction"
								     : policy;
}

/* Without the append-only file a dump is better than nothing, if it can be written. */
static const char *
forgetting(const char *persistence, const char *save)
{
	if (is(persistence, "aof_enabled", "1"))
		return is(persistence, "aof_last_write_status", "err")
		    ? "it cannot write its append-only file"
		    : NULL;
	if (!is(persistence, "aof_enabled", "0"))
		return NULL;
	if (save && !*save)
		return "a restart makes it forget them all (neither appendonly nor save is set)";
	return is(persistence, "rdb_last_bgsave_status", "err")
	    ? "it cannot save its data to disk"
	    : NULL;
}

bool
health_risks(redisReply *const answers[HEALTH_ANSWERS], char *out, size_t size)
{
	char policy[32];
	const char *evicts = evicting(text_of(answers[0]), policy, sizeof policy),
		   *forgets = forgetting(text_of(answers[1]), text_of(answers[2]));

	snprintf(out, size, "%s%s%s%s%s",
	    evicts ? "it evicts keys when its memory is full (maxmemory-policy " : "",
	    evicts ? evicts : "", evicts ? ")" : "", evicts && forgets ? ", and " : "",
	    forgets ? forgets : "");
	return evicts || forgets;
}
