/*
 * memcached.c - Goal of these tests: what a memcached server says, and what others write
 * there, is within its bounds; a value that is believed comes back as it was, and nothing
 * that is written back ends a line.
 */
#include "backends/memcached/name.h"
#include "backends/memcached/reply.h"
#include "backends/memcached/value.h"
#include "backends/memcached/vitals.h"
#include "tests/fuzz/fuzz.h"

enum rc
fault_set(struct fault *f, enum rc rc, const char *fmt, ...)
{
	(void)f, (void)fmt;
	return rc;
}

static void
reply_is_sound(char *line)
{
	struct vitals v;
	struct reply r;

	vitals_init(&v);
	reply_read(&r, line);
	CLAIM(r.ttl >= TTL_UNTOLD && r.ttl <= INT32_MAX && r.size <= INT32_MAX);
	if (r.code != REPLY_STAT)
		return;
	vitals_add(&v, r.name, r.value);
	CLAIM(v.uptime >= -1 && v.time >= -1 && v.oldest >= -1);
	CLAIM(strlen(v.version) < sizeof v.version);
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
	struct names n;
	const char *lock;

	if (name_read(key, &lock, "dlock:", name) == NAME_OTHER)
		return;
	CLAIM(strlen(key) <= KEY_BYTES && strlen(lock) < NAME_BYTES);
	name_of_lock(&n, lock);
	CLAIM(strcmp(n.lock, lock) == 0);
	if (!*key)
		return;
	name_lock(&n, "dlock:", key);
	CLAIM(!n.hashed && strcmp(n.lock, lock) == 0);
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
