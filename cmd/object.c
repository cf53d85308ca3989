/* object.c - writes one flat JSON object into a buffer. */
#include "object.h"

#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Room is always kept for the closing brace and the NUL. */
static bool
put(struct object *j, const char *text, size_t n)
{
	if (j->used + n + 2 > j->size)
		return false;
	memcpy(j->out + j->used, text, n);
	j->used += n;
	return true;
}

static bool
put_string(struct object *j, const char *s)
{
	size_t n = strlen(s);

	if (!put(j, "\"", 1))
		return false;
	for (size_t i = 0; i < n;) {
		char escaped[8];

		i += text_json(escaped, s + i, n - i);
		if (!put(j, escaped, strlen(escaped)))
			return false;
	}
	return put(j, "\"", 1);
}

static bool
put_name(struct object *j, const char *name)
{
	return (j->used == 1 || put(j, ",", 1)) && put_string(j, name) && put(j, ":", 1);
}

void
object_begin(struct object *j, char *out, size_t size)
{
	*j = (struct object){.out = out, .size = size};
	put(j, "{", 1);
}

void
object_number(struct object *j, const char *name, int64_t value)
{
	size_t before = j->used;
	char digits[24];
	int n = snprintf(digits, sizeof digits, "%lld", (long long)value);

	if (!put_name(j, name) || !put(j, digits, n))
		j->used = before;
}

void
object_true(struct object *j, const char *name)
{
	size_t before = j->used;

	if (!put_name(j, name) || !put(j, "true", strlen("true")))
		j->used = before;
}

void
object_string(struct object *j, const char *name, const char *value)
{
	size_t before = j->used;

	if (value && !(put_name(j, name) && put_string(j, value)))
		j->used = before;
}

void
object_strings(struct object *j, const char *name, const char *const *values, size_t n)
{
	size_t before = j->used;
	bool fits = put_name(j, name) && put(j, "[", 1);

	for (size_t i = 0; i < n; i++)
		fits = fits && (i == 0 || put(j, ",", 1)) && put_string(j, values[i]);
	if (!fits || !put(j, "]", 1))
		j->used = before;
}

void
object_end(struct object *j)
{
	j->out[j->used++] = '}';
	j->out[j->used] = '\0';
}
