/* field.c - reads numbers, booleans and text out of what a server has sent. */
#include "field.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool
field_integer_in(const struct pq *pq, const PGresult *r, int row, int field, int64_t low,
    int64_t high, int64_t *ret)
{
	const char *text = pq->getvalue(r, row, field);
	char *end;

	if (pq->getisnull(r, row, field) || !*text ||
	    strlen(text) != (size_t)pq->getlength(r, row, field))
		return false;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0' && *ret >= low && *ret <= high;
}

bool
field_integer(const struct pq *pq, const PGresult *r, int field, int64_t low,
    int64_t high, int64_t *ret)
{
	return field_integer_in(pq, r, 0, field, low, high, ret);
}

bool
field_boolean_in(const struct pq *pq, const PGresult *r, int row, int field, bool *ret)
{
	const char *text = pq->getvalue(r, row, field);

	*ret = strcmp(text, "t") == 0;
	return !pq->getisnull(r, row, field) && (*ret || strcmp(text, "f") == 0);
}

bool
field_boolean(const struct pq *pq, const PGresult *r, int field, bool *ret)
{
	return field_boolean_in(pq, r, 0, field, ret);
}

const char *
field_text_in(const struct pq *pq, const PGresult *r, int row, int field)
{
	return pq->getisnull(r, row, field) ? NULL : pq->getvalue(r, row, field);
}

bool
field_text(const struct pq *pq, const PGresult *r, int field, char *out, size_t size)
{
	size_t n = pq->getlength(r, 0, field);

	if (n >= size)
		return false;
	memcpy(out, pq->getvalue(r, 0, field), n);
	out[n] = '\0';
	return true;
}
