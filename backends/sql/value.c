/* value.c - reads numbers, booleans, text and kinds of lock out of what a database has sent. */
#include "sql.h"

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
row_is(const struct row *row, int field)
{
	bool is;

	return row_boolean(row, field, &is) && is;
}

int64_t
row_time(const struct row *row, int field)
{
	int64_t t;

	return row_integer(row, field, 0, INT64_MAX - 1, &t) ? t : EPOCH_NONE;
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

const char *
kind_word(enum lock_kind kind)
{
	return kind == KIND_SHARED ? "shared"
	    : kind == KIND_LIMIT   ? "limit"
				   : "exclusive";
}

bool
kind_of_word(const char *word, enum lock_kind *kind)
{
	static const enum lock_kind kinds[] = {KIND_EXCLUSIVE, KIND_SHARED, KIND_LIMIT};

	for (size_t i = 0; word && i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kind_word(kinds[i]), word) == 0) {
			*kind = kinds[i];
			return true;
		}
	return false;
}

bool
kind_slot(const struct row *r, int field, int64_t limit, int64_t *slot)
{
	int64_t none;

	if (limit > 0)
		return row_integer(r, field, 0, limit - 1, slot);
	*slot = -1;
	return row_is_null(r, field) || row_integer(r, field, -1, 0, &none);
}
