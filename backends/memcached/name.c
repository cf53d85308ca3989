/* name.c - the names of items that make up one lock. */
#include "name.h"

#include "backends/common/url.h"
#include "backends/common/sha256.h"

#include <stdio.h>
#include <string.h>

#define FREEZE "dlock#f:"
#define BROKEN "dlock#b:"

enum {
	LOCK_MOST = NAME_BYTES - sizeof FREEZE, /* for the others fit, too */
	HASHED_CHARS = 1 + 2 * SHA256_BYTES,
};

static bool
is_plain(unsigned char c)
{
	return c > ' ' && c != 0x7f && c != '%' && c != '#';
}

/* Returns the length; more than `most`: it does not fit. */
static size_t
write_key(char *out, size_t most, const char *key)
{
	size_t n = 0;

	for (; *key && n <= most; key++) {
		unsigned char c = *key;

		if (is_plain(c))
			n += snprintf(out + n, 2, "%c", c);
		else
			n += snprintf(out + n, 4, "%%%02X", c);
	}
	return n;
}

static void
write_hash(char *out, const char *key)
{
	unsigned char hash[SHA256_BYTES];

	sha256(hash, key, strlen(key));
	*out++ = '#';
	for (size_t i = 0; i < sizeof hash; i++)
		out += snprintf(out, 3, "%02x", hash[i]);
}

/* The lock's own; true: hashed. */
static bool
write_lock(char *out, const char *prefix, const char *key)
{
	size_t before = snprintf(out, LOCK_MOST, "%s", prefix), most = LOCK_MOST - before;
	char text[LOCK_MOST + 4];
	bool fits = write_key(text, most, key) <= most;

	if (fits)
		memcpy(out + before, text, strlen(text) + 1);
	else
		write_hash(out + before, key);
	return !fits;
}

/* Those that go with the lock's own. */
static void
write_others(struct names *names)
{
	snprintf(names->freeze, NAME_BYTES, FREEZE "%.*s", LOCK_MOST, names->lock);
	snprintf(names->broken, NAME_BYTES, BROKEN "%.*s", LOCK_MOST, names->lock);
}

void
name_lock(struct names *names, const char *prefix, const char *key)
{
	names->hashed = write_lock(names->lock, prefix, key);
	write_others(names);
}

void
name_of_lock(struct names *names, const char *lock)
{
	snprintf(names->lock, NAME_BYTES, "%.*s", LOCK_MOST, lock);
	names->hashed = false;
	write_others(names);
}

bool
name_is_prefix(const char *prefix)
{
	size_t n = strlen(prefix);

	for (size_t i = 0; i < n; i++)
		if (!is_plain(prefix[i]) || (unsigned char)prefix[i] > 0x7e)
			return false;
	return n <= PREFIX_MOST;
}

enum name_of
name_read(char *key, const char **lock, const char *prefix, const char *name)
{
	bool freeze = strncmp(name, FREEZE, strlen(FREEZE)) == 0;
	enum name_of of = freeze ? NAME_FREEZE : NAME_LOCK;
	size_t n = strlen(prefix);
	struct names again;
	const char *text;

	*key = '\0';
	*lock = freeze ? name + strlen(FREEZE) : name;
	if (strlen(*lock) > LOCK_MOST || strncmp(*lock, prefix, n) != 0)
		return NAME_OTHER;
	text = *lock + n;
	if (*text == '#')
		return strlen(text) == HASHED_CHARS ? of : NAME_OTHER;
	if (encode_undo(key, KEY_BYTES + 1, text, strlen(text)) <= 0)
		return NAME_OTHER;
	name_lock(&again, prefix, key);
	return strcmp(again.lock, *lock) == 0 ? of : NAME_OTHER;
}
