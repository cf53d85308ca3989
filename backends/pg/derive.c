/*
 * derive.c - which advisory lock a key is, tool by tool.  Sources and test vectors:
 * tests/unit/derive.c.
 */
#include "derive.h"

#include "backends/common/setting.h"
#include "backends/common/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- CRC-32, as zlib and Ethernet have it ---- */

static uint32_t
crc32(uint32_t crc, const void *data, size_t n)
{
	const unsigned char *p = data;

	crc = ~crc;
	for (; n > 0; n--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* ---- what the tools do ---- */

#define PREFIX_VARIABLE "WITH_ADVISORY_LOCK_PREFIX"

/* dlock's own: the first half of a quarter of a hash, in network order. */
static bool
derive_dlock(struct number *n, const char *key, const char *database)
{
	char text[KEY_BYTES + 16];
	unsigned char hash[SHA256_BYTES];
	uint64_t bits = 0;

	(void)database;
	snprintf(text, sizeof text, "dlock:%s", key);
	sha256(hash, text, strlen(text));
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | hash[i];
	*n = (struct number){.one = (int64_t)bits};
	return true;
}

/*
 * Ruby: CRC-32 of the name, and a prefix of which nothing but a leading number survives.
 */
static bool
derive_with_advisory_lock(struct number *n, const char *key, const char *database)
{
	const char *prefix = getenv(PREFIX_VARIABLE);

	(void)database;
	*n = (struct number){.pair = true};
	n->two[0] = crc32(0, key, strlen(key)) & 0x7fffffff;
	n->two[1] = prefix ? strtoll(prefix, NULL, 10) & 0x7fffffff : 0;
	return true;
}

/* Rails has one for the migrations of a database, whatever the key. */
static bool
derive_rails_migration(struct number *n, const char *key, const char *database)
{
	(void)key;
	*n = (struct number){.one = 2053462845LL * crc32(0, database, strlen(database))};
	return true;
}

static bool
derive_django_pglock(struct number *n, const char *key, const char *database)
{
	unsigned char hash[SHA256_BYTES];
	uint64_t bits = 0;

	(void)database;
	sha256(hash, key, strlen(key));
	for (int i = 7; i >= 0; i--)
		bits = bits << 8 | hash[i];
	*n = (struct number){.one = (int64_t)bits};
	return true;
}

/* Cuts "schema.table". */
static bool
cut_table(const char *key, char *schema, const char **table)
{
	size_t n = strcspn(key, ".");

	if (n == 0 || n > KEY_BYTES || key[n] != '.' || !key[n + 1])
		return false;
	memcpy(schema, key, n);
	schema[n] = '\0';
	*table = key + n + 1;
	return true;
}

/* Schema, table and database, joined by NULs; `slash` stands before the database. */
static bool
derive_migrate(struct number *n, const char *key, const char *slash, const char *database)
{
	char schema[KEY_BYTES + 1];
	const char *table;
	uint32_t crc;

	if (!cut_table(key, schema, &table))
		return false;
	crc = crc32(0, schema, strlen(schema) + 1);
	crc = crc32(crc, table, strlen(table) + 1);
	crc = crc32(crc, slash, strlen(slash));
	crc = crc32(crc, database, strlen(database));
	*n = (struct number){.one = (uint32_t)(crc * 1486364155U)};
	return true;
}

/* The program migrate and migrate.New(url) take the URL's path for the database. */
static bool
derive_golang_migrate(struct number *n, const char *key, const char *database)
{
	return derive_migrate(n, key, "/", database);
}

/* WithInstance() is given a connection, and asks it for the database's name. */
static bool
derive_golang_migrate_instance(struct number *n, const char *key, const char *database)
{
	return derive_migrate(n, key, "", database);
}

/* A character of UTF-8; the bytes are known to be good ones. */
static uint32_t
next_character(const unsigned char **p)
{
	uint32_t c = *(*p)++;
	int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

	c = more ? c & (0x3f >> more) : c;
	for (; more > 0 && (**p & 0xc0) == 0x80; more--)
		c = c << 6 | (*(*p)++ & 0x3f);
	return c;
}

/* String.hashCode(), which goes by units of UTF-16. */
static int32_t
java_hash(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	uint32_t hash = 0;

	while (*p) {
		uint32_t c = next_character(&p);

		if (c >= 0x10000) {
			hash = 31 * hash + (0xd800 + ((c - 0x10000) >> 10));
			c = 0xdc00 + (c & 0x3ff);
		}
		hash = 31 * hash + c;
	}
	return (int32_t)hash;
}

static bool
derive_flyway(struct number *n, const char *key, const char *database)
{
	char schema[KEY_BYTES + 1], quoted[KEY_BYTES + 8];
	const char *table;

	(void)database;
	if (!cut_table(key, schema, &table))
		return false;
	snprintf(quoted, sizeof quoted, "\"%s\".\"%s\"", schema, table);
	*n = (struct number){.one = 77431708279161LL + java_hash(quoted)};
	return true;
}

static const struct derivation {
	const char *name;
	bool (*derive)(struct number *, const char *key, const char *database);
	const char *table; /* false: the key is none; an example */
} derivations[] = {
    {"dlock", derive_dlock, NULL},
    {"with_advisory_lock", derive_with_advisory_lock, NULL},
    {"rails-migration", derive_rails_migration, NULL},
    {"django-pglock", derive_django_pglock, NULL},
    {"golang-migrate", derive_golang_migrate, "public.schema_migrations"},
    {"golang-migrate-instance", derive_golang_migrate_instance,
	"public.schema_migrations"},
    {"flyway", derive_flyway, "public.flyway_schema_history"},
};

const char derive_names[] =
    "dlock, with_advisory_lock, rails-migration, django-pglock, golang-migrate, golang-migrate-instance, flyway";

static const struct derivation *
find(const char *tool)
{
	for (size_t i = 0; i < sizeof derivations / sizeof *derivations; i++)
		if (strcmp(derivations[i].name, tool) == 0)
			return &derivations[i];
	return NULL;
}

bool
derive_knows(const char *tool)
{
	return find(tool) != NULL;
}

enum rc
derive_number(struct number *n, const char *tool, const char *key, const char *database,
    struct fault *f)
{
	const struct derivation *d = find(tool ? tool : "dlock");

	if (d->derive(n, key, database))
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "the key must be the table whose migrations are meant, such as %s", d->table);
}

/* ---- numbers as they are ---- */

static bool
read_integer(const char *text, char end, int64_t low, int64_t high, int64_t *ret,
    const char **rest)
{
	char *stop;
	long long n;

	if (strspn(text, "-0123456789") == 0)
		return false;
	errno = 0;
	n = strtoll(text, &stop, 10);
	if (errno != 0 || stop == text || *stop != end || n < low || n > high)
		return false;
	*ret = n;
	*rest = stop + 1;
	return true;
}

bool
derive_read_number(struct number *n, const char *text)
{
	const char *rest;
	int64_t a, b;

	if (read_integer(text, '\0', INT64_MIN, INT64_MAX, &a, &rest)) {
		*n = (struct number){.one = a};
		return true;
	}
	if (!read_integer(text, ',', INT32_MIN, INT32_MAX, &a, &rest) ||
	    !read_integer(rest, '\0', INT32_MIN, INT32_MAX, &b, &rest))
		return false;
	*n = (struct number){.pair = true, .two = {(int32_t)a, (int32_t)b}};
	return true;
}

void
derive_identify(struct identity *id)
{
	identity_add(id, "prefix", getenv(PREFIX_VARIABLE));
}
