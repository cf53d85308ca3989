/* field.c - gives a result's rows one by one. */
#include "field.h"

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
