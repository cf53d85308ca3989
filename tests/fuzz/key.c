/*
 * key.c - Goal of these tests: every key has one safe name and comes back from it; every
 * text decodes or is refused.
 */
#include "backends/backend.h"
#include "backends/common/encode.h"
#include "cmd/text.h"
#include "tests/fuzz/fuzz.h"

static void
check_key(const char *key)
{
	size_t n = strlen(key), room = 3 * n + 1, length;
	char *name = malloc(room), *back = malloc(n + 1);

	CLAIM(name && back);
	length = encode_key(name, room, key);
	if (length > 0) {
		CLAIM(length == strlen(name));
		CLAIM(!strchr(name, '/') && strcmp(name, ".") != 0 &&
		    strcmp(name, "..") != 0);
		CLAIM(
		    strspn(name,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~:@=%") ==
		    length);
		CLAIM(encode_undo(back, n + 1, name, length) == (int)n);
		CLAIM(strcmp(back, key) == 0);
	}
	free(name);
	free(back);
	if (*key &&
	    !text_objection(key, KEY_BYTES)) { /* a legal key fits where it is to fit */
		char encoded[ENCODED_BYTES];

		CLAIM(n >= 1 && n <= KEY_BYTES);
		CLAIM(encode_key(encoded, sizeof encoded, key) > 0);
	}
}

static void
check_text(const char *text, size_t n)
{
	char *out = malloc(n + 1);
	int length;

	CLAIM(out);
	length = encode_undo(out, n + 1, text, n);
	CLAIM(length >= -1 && length <= (int)n);
	if (length >= 0)
		CLAIM(out[length] == '\0');
	free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = fuzz_string(data, size);

	check_key(s);
	check_text((const char *)data, size);
	free(s);
	return 0;
}
