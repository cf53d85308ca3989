/*
 * record.c - Goal of these tests: whatever stands on a server as a holder's record is
 * shown harmlessly.
 */
#include "cmd/json.h"
#include "cmd/record.h"
#include "cmd/text.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>

/* Whole characters, none that controls the terminal, hides or reorders. */
static void
is_harmless(const char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = text_next(s + i, n - i, &c);

		CLAIM(len > 0);
		CLAIM(c >= 0x20 && !(c >= 0x7f && c <= 0x9f));
		CLAIM(!(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) &&
		    !(c >= 0x2060 && c <= 0x206f));
		CLAIM(c != 0xfeff && c != 0xad);
		i += len;
	}
}

static void
check_text(const uint8_t *data, size_t size)
{
	for (size_t room = 4; room < 300; room += 37) {
		char *out = malloc(room);

		CLAIM(out);
		text_clean(out, room, (const char *)data, size);
		CLAIM(strlen(out) < room);
		is_harmless(out);
		text_fit(out, size % 80);
		CLAIM(strlen(out) < room);
		is_harmless(out);
		free(out);
	}
}

/* Within quotes there is none that has no backslash before it. */
static void
check_name(const char *text)
{
	for (size_t room = 8; room < 300; room += 37) {
		char *out = malloc(room);

		CLAIM(out);
		text_name(out, room, text);
		CLAIM(strlen(out) < room);
		is_harmless(out);
		if (*out == '\'' && strchr(text, ' '))
			CLAIM(strlen(out) >= 2 && out[strlen(out) - 1] == '\'');
		text_quote(out, room, text, '"');
		for (size_t i = 1; out[i + 1]; i++)
			CLAIM(out[i] != '"' || out[i - 1] == '\\');
		is_harmless(out);
		free(out);
	}
}

static void
check_object(const char *text, size_t room)
{
	char *out = malloc(room);
	struct json j;
	json_t *root;

	CLAIM(out);
	json_begin(&j, out, room);
	json_put_number(&j, "n", (int64_t)room);
	json_put_string(&j, "text", text);
	json_end(&j);
	root = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
	CLAIM(json_is_object(root));
	json_decref(root);
	free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *record = fuzz_string(data, size), whole[400];

	record_describe(record, whole, sizeof whole);
	CLAIM(*whole);
	is_harmless(whole);
	check_text(data, size);
	check_name(record);
	for (size_t room = 3; room < 200; room += 23)
		check_object(record, room);
	free(record);
	return 0;
}
