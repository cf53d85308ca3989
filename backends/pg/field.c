/* field.c - gives a result's rows. */
#include "field.h"

struct row
field_row(const struct pq *pq, const PGresult *r, int n, struct fields *room)
{
	int fields = pq->nfields(r);

	for (int i = 0; i < fields && i < FIELDS_MAX; i++) {
		room->at[i] = pq->getisnull(r, n, i) ? NULL : pq->getvalue(r, n, i);
		room->lengths[i] = pq->getlength(r, n, i);
	}
	return (struct row){room->at, room->lengths};
}

bool
field_integer(const struct pq *pq, const PGresult *r, int field, int64_t low,
    int64_t high, int64_t *ret)
{
	struct fields room;
	struct row row = field_row(pq, r, 0, &room);

	return row_integer(&row, field, low, high, ret);
}

bool
field_boolean(const struct pq *pq, const PGresult *r, int field, bool *ret)
{
	struct fields room;
	struct row row = field_row(pq, r, 0, &room);

	return row_boolean(&row, field, ret);
}
