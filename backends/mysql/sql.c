/* sql.c - writes statements. */
#include "sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void
put(struct sql *q, const char *text, size_t n)
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
put_word(struct sql *q, const char *text)
{
	put(q, text, strlen(text));
}

/* x'6a6f62' is binary, as are the columns that it is compared with. */
static void
put_bytes(struct sql *q, const char *bytes)
{
	static const char digits[] = "0123456789abcdef";

	if (!bytes) {
		put_word(q, "NULL");
		return;
	}
	put_word(q, "x'");
	for (; *bytes; bytes++) {
		unsigned char c = *bytes;

		put(q, (const char[]){digits[c >> 4], digits[c & 15]}, 2);
	}
	put_word(q, "'");
}

static void
put_value(struct sql *q, const struct sql_value *v)
{
	char number[24];

	if (v->type == SQL_BYTES_OF) {
		put_bytes(q, v->bytes);
		return;
	}
	snprintf(number, sizeof number, "%" PRId64, v->number);
	put_word(q, number);
}

static void
begin(struct sql *q)
{
	q->used = 0;
	q->full = false;
	q->text[0] = '\0';
}

const char *
sql_call(struct sql *q, const char *name, const struct sql_value *values, size_t n)
{
	begin(q);
	put_word(q, "CALL dlock_");
	put_word(q, name);
	put_word(q, "_" SQL_SCHEMA_VERSION);
	for (size_t i = 0; i < n; i++) {
		put_word(q, i ? ", " : "(");
		put_value(q, &values[i]);
	}
	put_word(q, n ? ")" : "()");
	return q->full ? NULL : q->text;
}

const char *
sql_write(struct sql *q, const char *format, const struct sql_value *values, size_t n)
{
	const char *mark;

	begin(q);
	for (size_t i = 0; i < n && (mark = strchr(format, '?')); i++) {
		put(q, format, mark - format);
		put_value(q, &values[i]);
		format = mark + 1;
	}
	put_word(q, format);
	return q->full ? NULL : q->text;
}
