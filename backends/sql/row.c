/* row.c - reads numbers, booleans and text out of what a database has sent. */
#include "row.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool
row_is_null(const struct row *row, int field)
{
	return !row->at || !row->at[field];
}

bool
row_integer(const struct row *row, int field, int64_t low, int64_t high, int64_t *ret)
{
	const char *text = row_words(row, field);
	char *end;

	if (!text || !*text || strspn(text, "-0123456789") != row->lengths[field])
		return false;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0' && *ret >= low && *ret <= high;
}

bool
row_boolean(const struct row *row, int field, bool *ret)
{
	const char *text = row_words(row, field);

	if (!text || !*text || row->lengths[field] != 1 || !strchr("01ft", *text))
		return false;
	*ret = *text == '1' || *text == 't';
	return true;
}

bool
row_text(const struct row *row, int field, char *out, size_t size)
{
	const char *text = row_words(row, field);
	size_t n = text ? strlen(text) : 0;

	*out = '\0';
	if (n >= size || (text && n != row->lengths[field]))
		return false;
	if (text)
		memcpy(out, text, n + 1);
	return true;
}

const char *
row_words(const struct row *row, int field)
{
	return row->at ? row->at[field] : NULL;
}
