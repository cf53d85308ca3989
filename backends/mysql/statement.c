/*
 * statement.c - writes statements, with what the user named in them as hexadecimal literals:
 * there is nothing to escape, and no character set that changes it.
 */
#include "mysql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows; its end, and how many bytes are left behind it (0: something did not fit). */
struct text {
	char *end;
	size_t left;
};

static void
append(struct text *t, const char *text, size_t n)
{
	if (n >= t->left) {
		t->left = 0;
		return;
	}
	memcpy(t->end, text, n);
	t->end += n;
	t->left -= n;
	*t->end = '\0';
}

static void
put_literal(struct text *t, const struct sql_value *v)
{
	static const char digits[] = "0123456789abcdef";
	char number[24];

	if (v->type == SQL_NUMBER) {
		snprintf(number, sizeof number, "%" PRId64, v->number);
		append(t, number, strlen(number));
		return;
	}
	if (!v->bytes) {
		append(t, "NULL", 4);
		return;
	}
	/* x'6a6f62' is binary, as are the columns that it is compared with */
	append(t, "x'", 2);
	for (const unsigned char *c = (const unsigned char *)v->bytes; *c; c++)
		append(t, (const char[]){digits[*c >> 4], digits[*c & 15]}, 2);
	append(t, "'", 1);
}

bool
statement_write(char out[STATEMENT_BYTES], const struct question *q)
{
	struct text t = {out, STATEMENT_BYTES};
	const char *text = q->text, *mark;

	while ((mark = strchr(text, '$'))) {
		char *end = NULL;
		unsigned long n = strtoul(mark + 1, &end, 10);

		append(&t, text, mark - text);
		text = mark + 1;
		if (n > 0 && n <= q->n) {
			put_literal(&t, &q->values[n - 1]);
			text = end;
		} else {
			append(&t, "$", 1);
		}
	}
	append(&t, text, strlen(text));
	return t.left > 0;
}
