/* slot.c - puts a key's own tag in front of the names of its lock. */
#include "slot.h"

#include <stdio.h>
#include <string.h>

/* As Redis cuts it out: up to the first } behind the first {, unless that is nothing. */
static size_t
tag_of(const char *key, const char **tag)
{
	const char *open = strchr(key, '{'), *close = open ? strchr(open, '}') : NULL;

	*tag = close ? open + 1 : NULL;
	return close ? close - *tag : 0;
}

/* "dlock:{KEY}REST" becomes "dlock:{TAG}:KEYREST". */
static void
rename_one(char *name, size_t size, const char *tag, size_t n)
{
	static const char head[] = "dlock:{";
	char old[RUN_BYTES];
	const char *key = old + sizeof head - 1, *close;

	snprintf(old, sizeof old, "%s", name);
	close = strchr(old, '}');
	if (close)
		snprintf(name, size, "%s%.*s}:%.*s%s", head, (int)n, tag,
		    (int)(close - key), key, close + 1);
}

void
slot_rename(struct names *names, enum form form, const char *key)
{
	const char *tag;
	size_t n = tag_of(key, &tag);

	if (form != FORM_CLUSTER || n == 0)
		return;
	for (int i = 0; i < NAMES; i++)
		rename_one(names->keys[i], sizeof names->keys[i], tag, n);
	rename_one(names->channel, sizeof names->channel, tag, n);
	rename_one(names->last, sizeof names->last, tag, n);
	rename_one(names->done, sizeof names->done, tag, n);
}

bool
slot_is_same(const char *key, const char *other)
{
	const char *tag, *tags;
	size_t n = tag_of(key, &tag), m = tag_of(other, &tags);

	return n > 0 && n == m && memcmp(tag, tags, n) == 0;
}
