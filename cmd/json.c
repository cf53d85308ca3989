/* json.c - writes a JSON object into a buffer or to a stream. */
#include "json.h"

#include "text.h"

#include "backends/common/append.h"
#include "backends/common/instant.h"

#include <string.h>

/* False: it does not fit.  Room is always kept for the closing brace and the NUL. */
static inline bool
put(struct json *j, const char *text, size_t n)
{
	if (j->to)
		return fwrite(text, 1, n, j->to) == n;
	if (j->used + n + 2 > j->size)
		return false;
	memcpy(j->out + j->used, text, n);
	j->used += n;
	return true;
}

static bool
put_text(struct json *j, const char *s)
{
	bool fits = put(j, "\"", 1);

	for (size_t left = strlen(s), n; fits && left > 0; s += n, left -= n) {
		char escaped[8];

		n = text_json(escaped, s, left);
		fits = put(j, escaped, strlen(escaped));
	}
	return fits && put(j, "\"", 1);
}

/* Puts a comma and a name before each value. */
static bool
put_name(struct json *j, const char *name)
{
	if (j->filled && !put(j, ",", 1))
		return false;
	j->filled = true;
	return !name || (put_text(j, name) && put(j, ":", 1));
}

/* Puts a name and a value, which is JSON already.  NULL: it is not known. */
static void
put_named(struct json *j, const char *name, const char *value)
{
	const struct json before = *j;

	if (!value && !j->to)
		return;
	value = value ? value : "null";
	if (!put_name(j, name) || !put(j, value, strlen(value)))
		*j = before;
}

void
json_begin(struct json *j, char *out, size_t size)
{
	*j = (struct json){.out = out, .size = size};
	put(j, "{", 1);
}

void
json_begin_stream(struct json *j, FILE *to)
{
	*j = (struct json){.to = to};
	put(j, "{", 1);
}

void
json_end(struct json *j)
{
	if (j->to)
		put(j, "}\n", 2);
	else
		memcpy(j->out + j->used++, "}", 2);
}

void
json_put_string(struct json *j, const char *name, const char *value)
{
	const struct json before = *j;

	if (!value)
		put_named(j, name, NULL);
	else if (!put_name(j, name) || !put_text(j, value))
		*j = before;
}

void
json_put_cut(struct json *j, const char *name, const char *value)
{
	static const char more[] = "...";
	const struct json before = *j;
	bool begun = put_name(j, name) && put(j, "\"", 1), fits = begun;

	j->size -= sizeof more; /* for it and the quote */
	for (size_t left = strlen(value), n; fits && left > 0; value += n, left -= n) {
		char escaped[8];

		n = text_json(escaped, value, left);
		fits = put(j, escaped, strlen(escaped));
	}
	j->size = before.size;
	if (!begun || (!fits && !put(j, more, strlen(more))) || !put(j, "\"", 1))
		*j = before;
}

void
json_put_strings(struct json *j, const char *name, const char *const *values, size_t n)
{
	const struct json before = *j;
	bool fits = put_name(j, name) && put(j, "[", 1);

	for (size_t i = 0; i < n; i++)
		fits = fits && (i == 0 || put(j, ",", 1)) && put_text(j, values[i]);
	if (!fits || !put(j, "]", 1))
		*j = before;
}

void
json_put_number(struct json *j, const char *name, int64_t value)
{
	char digits[24];

	append_signed(digits, digits + sizeof digits, value);
	put_named(j, name, digits);
}

void
json_put_known(struct json *j, const char *name, bool known, int64_t value)
{
	if (known)
		json_put_number(j, name, value);
	else
		put_named(j, name, NULL);
}

void
json_put_truth(struct json *j, const char *name, bool value)
{
	put_named(j, name, value ? "true" : "false");
}

void
json_put_seconds(struct json *j, const char *name, int64_t ns)
{
	char text[32];

	snprintf(text, sizeof text, "%lld.%03d", (long long)(ns / NS_PER_S),
	    (int)(ns % NS_PER_S / NS_PER_MS));
	put_named(j, name, ns < 0 || ns == NEVER ? NULL : text);
}

void
json_put_time(struct json *j, const char *name, int64_t us)
{
	const struct brief text = text_time_utc(us);

	json_put_string(j, name, *text.text ? text.text : NULL);
}

void
json_open(struct json *j, const char *name, char bracket)
{
	put_name(j, name);
	put(j, &bracket, 1);
	j->filled = false;
}

void
json_close(struct json *j, char bracket)
{
	put(j, &bracket, 1);
	j->filled = true;
}
