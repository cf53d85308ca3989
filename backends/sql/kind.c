/* kind.c - names the kinds of lock. */
#include "kind.h"

#include <string.h>

const char *
kind_word(enum lock_kind kind)
{
	switch (kind) {
	case KIND_SHARED:
		return "shared";
	case KIND_LIMIT:
		return "limit";
	default:
		return "exclusive";
	}
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
kind_slot(const struct row *r, int field, int64_t room, int64_t *slot)
{
	int64_t none;

	if (room > 0)
		return row_integer(r, field, 0, room - 1, slot);
	*slot = -1;
	return row_is_null(r, field) || row_integer(r, field, -1, 0, &none);
}
