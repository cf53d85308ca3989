/* statement.c - writes statements. */
#include "statement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void
put_text(struct statement *q, const char *text, size_t n)
{
	if (n >= sizeof q->text - q->used) {
		q->full = true;
		return;
	}
	memcpy(q->text + q->used, text, n);
	q->used += n;
	q->text[q->used] = '\0';
}

static void
put_word(struct statement *q, const char *text)
{
	put_text(q, text, strlen(text));
}

/* x'6a6f62' is binary, as are the columns that it is compared with. */
static void
put_bytes(struct statement *q, const char *bytes)
{
	static const char digits[] = "0123456789abcdef";

	if (!bytes) {
		put_word(q, "NULL");
		return;
	}
	put_word(q, "x'");
	for (; *bytes; bytes++) {
		unsigned char c = *bytes;

		put_text(q, (const char[]){digits[c >> 4], digits[c & 15]}, 2);
	}
	put_word(q, "'");
}

static void
put_literal(struct statement *q, const struct sql_value *v)
{
	char number[24];

	if (v->type == SQL_BYTES_OF) {
		put_bytes(q, v->bytes);
		return;
	}
	snprintf(number, sizeof number, "%" PRId64, v->number);
	put_word(q, number);
}

/* The value that is meant at `mark`, "$1"; NULL: none is. */
static const struct sql_value *
value_at(const struct question *q, const char *mark)
{
	size_t n = mark[1] >= '1' && mark[1] <= '9' ? (size_t)(mark[1] - '0') : 0;

	if (n == 1 && mark[2] >= '0' && mark[2] <= '9')
		n = 10 + (size_t)(mark[2] - '0');
	return n > 0 && n <= q->n ? &q->values[n - 1] : NULL;
}

const char *
statement_write(struct statement *st, const struct question *q)
{
	const char *text = q->text, *mark;

	if (q->n == 0)
		return text;
	st->used = 0;
	st->full = false;
	st->text[0] = '\0';
	while ((mark = strchr(text, '$'))) {
		const struct sql_value *v = value_at(q, mark);

		put_text(st, text, mark - text);
		if (v)
			put_literal(st, v);
		else
			put_text(st, mark, 1);
		text = mark + 1;
		if (v)
			text += v - q->values >= 9 ? 2 : 1;
	}
	put_word(st, text);
	return st->full ? NULL : st->text;
}
