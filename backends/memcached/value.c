/* value.c - what stands in an item of dlock's. */
#include "value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "dlock1 "

enum { NUMBERS = 6 };

static bool
is_one_line(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return false;
	return true;
}

size_t
value_write(char out[VALUE_BYTES], const struct value *v)
{
	int n = snprintf(out, VALUE_BYTES,
	    MAGIC "%s %" PRIu64 " %" PRId64 " %" PRId64 " %zu %zu %zu %s %s %s", v->owner,
	    v->token, v->since, v->until, strlen(v->key), strlen(v->record),
	    strlen(v->mark), v->key, v->record, v->mark);

	return n > 0 && n < VALUE_BYTES && is_one_line(out, n) ? (size_t)n : 0;
}

/* A number and the blank behind it, off the front of a text that ends with a NUL. */
static bool
take_number(const char **text, int64_t *ret)
{
	bool negative = **text == '-';
	const char *digits = *text + negative;
	size_t n = strspn(digits, "0123456789");

	*ret = 0;
	if (n == 0 || n > 18 || digits[n] != ' ')
		return false;
	for (size_t i = 0; i < n; i++)
		*ret = *ret * 10 + (digits[i] - '0');
	if (negative)
		*ret = -*ret;
	*text = digits + n + 1;
	return true;
}

static bool
take_owner(const char **text, char *owner)
{
	size_t n = strspn(*text, "0123456789abcdef");

	if (n != OWNER_CHARS || (*text)[n] != ' ')
		return false;
	memcpy(owner, *text, n);
	owner[n] = '\0';
	*text += n + 1;
	return true;
}

/* So many bytes, and what follows them: a blank, or the end. */
static bool
take_text(
    const char **text, const char *end, int64_t n, char *out, size_t size, char stop)
{
	if (n < 0 || (size_t)n >= size || end - *text < n || (*text)[n] != stop)
		return false;
	memcpy(out, *text, n);
	out[n] = '\0';
	*text += n + 1;
	return true;
}

bool
value_read(struct value *v, const char *text, size_t n)
{
	char line[VALUE_BYTES] = "";
	const char *rest = line + strlen(MAGIC), *end = line + n;
	int64_t numbers[NUMBERS];

	if (n >= sizeof line || !is_one_line(text, n))
		return false;
	memcpy(line, text, n);
	line[n] = '\0';
	if (strncmp(line, MAGIC, strlen(MAGIC)) != 0 || !take_owner(&rest, v->owner))
		return false;
	for (int i = 0; i < NUMBERS; i++)
		if (!take_number(&rest, &numbers[i]))
			return false;
	if (numbers[0] < 0 || numbers[1] < EPOCH_NONE || numbers[2] < EPOCH_NONE)
		return false;
	v->token = numbers[0];
	v->since = numbers[1];
	v->until = numbers[2];
	return take_text(&rest, end, numbers[3], v->key, sizeof v->key, ' ') &&
	    take_text(&rest, end, numbers[4], v->record, sizeof v->record, ' ') &&
	    take_text(&rest, end, numbers[5], v->mark, sizeof v->mark, '\0') &&
	    rest == end + 1;
}
