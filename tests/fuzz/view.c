/*
 * view.c - Goal of these tests: whatever a server says of a lock, its JSON is JSON, and
 * its lines and rows are harmless and as many as they should be.
 */
#include "cmd/columns.h"
#include "cmd/held.h"
#include "cmd/show.h"
#include "cmd/text.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>

static const struct backend backend = {.name = "b"};
static struct store store = {.backend = &backend, .where = "b"};

/* Whole characters, none that controls the terminal, hides or reorders; n newlines. */
static void
is_harmless(const char *s, size_t most_lines)
{
	size_t n = strlen(s), lines = 0;

	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = text_next(s + i, n - i, &c);

		CLAIM(len > 0);
		lines += c == '\n';
		CLAIM(c == '\n' || (c >= 0x20 && !(c >= 0x7f && c <= 0x9f)));
		CLAIM(!(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e));
		CLAIM(!(c >= 0x2060 && c <= 0x206f) && c != 0xfeff && c != 0xad);
		i += len;
	}
	CLAIM(lines <= most_lines);
}

static int64_t
take_number(const uint8_t **data, size_t *size)
{
	int64_t n = 0;
	size_t used = *size < sizeof n ? *size : sizeof n;

	memcpy(&n, *data, used);
	*data += used;
	*size -= used;
	return n;
}

/* The rest of the input is every text of the entry. */
static void
add_all(struct view *v, const uint8_t *data, size_t size)
{
	int64_t since = take_number(&data, &size), until = take_number(&data, &size),
		now = take_number(&data, &size), number = take_number(&data, &size);
	char *text = fuzz_string(data, size);
	struct foreign foreign = {text, text, text, number};
	struct entry e = {.key = text,
	    .lock = (uint64_t)number % 4,
	    .limit = number >> 8,
	    .token = number,
	    .owner = text,
	    .slot = number >> 40,
	    .position = number >> 20,
	    .count = number,
	    .record = text,
	    .since = since,
	    .until = until,
	    .revoked = number & 1,
	    .once = text,
	    .status = number >> 12,
	    .what = text};

	view_begin(v, text);
	for (int kind = ENTRY_HOLDER; kind <= ENTRY_UNKNOWN; kind++) {
		e.kind = kind;
		e.foreign = number & 2 ? &foreign : NULL;
		view_add(v, &e, now);
	}
	e.kind = ENTRY_HOLDER;
	view_add(v, &e, now);
	free(text);
}

static void
check_json(const struct view *v, bool brief)
{
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);
	json_t *root;

	CLAIM(to);
	show_json(to, v, &store, brief, instant_epoch());
	fclose(to);
	root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	CLAIM(json_is_object(root));
	CLAIM(json_array_size(json_object_get(root, "holders")) == 2);
	CLAIM(text[size - 1] == '\n' && strlen(text) == size);
	for (size_t i = 0; i + 1 < size; i++)
		CLAIM((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
	json_decref(root);
	free(text);
}

static void
check_text(const struct view *v)
{
	static const struct screen plain;
	char *text = NULL, words[HELD_BYTES];
	struct held held;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	CLAIM(to);
	show_text(to, v, &store, &plain);
	fclose(to);
	/* a head, two holders, a waiter, how many more, a freeze that is late, two runs */
	is_harmless(text, 1 + 2 * 2 + 1 + 1 + 3 + 2 + 2);
	held_of_view(&held, v);
	is_harmless(held_says(&held, true, words), 0);
	free(text);
}

static void
check_rows(const struct view *v, size_t columns)
{
	static char row[ROW_BYTES];
	struct screen screen = {.columns = columns, .rows = 24};
	struct columns c;
	struct fault f;

	for (int jobs = 0; jobs < 2; jobs++) {
		CLAIM(columns_choose(&c, jobs, NULL, &screen, &f) == RC_OK);
		columns_row(&c, v, row);
		is_harmless(row, 0);
		CLAIM(!columns || text_columns(row) < columns);
	}
	CLAIM(columns_choose(&c, true, "id,success,ended,took,status,why,host", &screen,
		  &f) == RC_OK);
	columns_row(&c, v, row);
	is_harmless(row, 0);
	CLAIM(
	    columns_choose(&c, false, "owner,command,since,left,token,holders,limit,why",
		&screen, &f) == RC_OK);
	columns_row(&c, v, row);
	is_harmless(row, 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct view v; /* used again and again, as ls does */

	add_all(&v, data, size);
	show_facts(&v, &store, false);
	check_json(&v, size % 2);
	check_text(&v);
	check_rows(&v, 0);
	check_rows(&v, 1 + size % 200);
	return 0;
}
