/* field.c - reads the fields of a result's rows. */
#include "field.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct row
row_next(const struct libmariadb *my, MYSQL_RES *r)
{
	struct row row = {.at = my->fetch_row(r)};

	row.lengths = row.at ? my->fetch_lengths(r) : NULL;
	return row;
}

struct row
row_first(const struct libmariadb *my, MYSQL_RES *r)
{
	my->data_seek(r, 0);
	return row_next(my, r);
}

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
	int64_t n;

	if (!row_integer(row, field, 0, 1, &n))
		return false;
	*ret = n;
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
