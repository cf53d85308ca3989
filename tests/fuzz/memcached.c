/*
 * memcached.c - Goal of these tests: what a memcached server says, and what others write
 * there, is within its bounds; a value that is believed comes back as it was, and nothing
 * that is written back ends a line.
 */
#include "backends/memcached/item.h"
#include "tests/fuzz/fuzz.h"

static void
reply_is_sound(char *line)
{
	struct stats s;
	struct reply r;

	stats_init(&s);
	reply_parse(&r, line);
	CLAIM(r.ttl >= TTL_UNTOLD && r.ttl <= INT32_MAX && r.size <= INT32_MAX);
	if (r.code != REPLY_STAT)
		return;
	stats_add(&s, r.name, r.text);
	CLAIM(s.uptime >= -1 && s.time >= -1 && s.oldest >= -1);
	CLAIM(strlen(s.version) < sizeof s.version);
}

static void
value_is_sound(const char *text, size_t n)
{
	char again[VALUE_BYTES];
	struct value v, back;
	size_t length;

	if (!value_read(&v, text, n))
		return;
	length = value_write(again, &v);
	CLAIM(length > 0 && length < VALUE_BYTES && !memchr(again, '\n', length));
	CLAIM(value_read(&back, again, length) && back.token == v.token &&
	    back.since == v.since && strcmp(back.owner, v.owner) == 0 &&
	    strcmp(back.key, v.key) == 0 && strcmp(back.record, v.record) == 0 &&
	    strcmp(back.mark, v.mark) == 0);
}

static void
name_is_sound(const char *name)
{
	char key[KEY_BYTES + 1];
	struct item_name n;
	const char *lock;

	if (item_name_read(key, &lock, "dlock:", name) == ITEM_IS_OTHER)
		return;
	CLAIM(strlen(key) <= KEY_BYTES && strlen(lock) <= LOCK_NAME_MOST);
	if (!*key)
		return;
	item_name(&n, "dlock:", key);
	CLAIM(!n.hashed && strcmp(n.text, lock) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	CLAIM(text);
	memcpy(text, data, size);
	text[size] = '\0';
	value_is_sound(text, size);
	name_is_sound(text);
	reply_is_sound(text);
	free(text);
	return 0;
}
