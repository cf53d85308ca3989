/*
 * derive.c - which advisory lock a key is, tool by tool.  Sources and test vectors:
 * tests/unit/derive.c.
 */
#include "derive.h"

#include "backends/common/digits.h"
#include "backends/common/identity.h"
#include "backends/common/sha.h"
#include "backends/sql/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the tools do ---- */

/* The first 8 bytes of a hash, in network order. */
static struct number
first_bytes(const unsigned char *hash)
{
	uint64_t bits = 0;

	for (int i = 0; i < 8; i++)
		bits = bits << 8 | hash[i];
	return (struct number){.one = (int64_t)bits};
}

static bool
derive_dlock(struct number *n, const char *key, const char *database)
{
	char text[KEY_BYTES + 16];
	unsigned char hash[SHA256_BYTES];

	(void)database;
	snprintf(text, sizeof text, "dlock:%s", key);
	sha_256(hash, text, strlen(text));
	*n = first_bytes(hash);
	return true;
}

/*
 * Ruby: CRC-32 of the name, and a prefix of which nothing but a leading number survives.
 */
static bool
derive_with_advisory_lock(struct number *n, const char *key, const char *database)
{
	const char *prefix = getenv(NAMES_PREFIX_VARIABLE);

	(void)database;
	*n = (struct number){.pair = true};
	n->two[0] = names_crc32(0, key, strlen(key)) & 0x7fffffff;
	n->two[1] = prefix ? strtoll(prefix, NULL, 10) & 0x7fffffff : 0;
	return true;
}

/* Rails has one for the migrations of a database, whatever the key. */
static bool
derive_rails_migration(struct number *n, const char *key, const char *database)
{
	(void)key;
	*n = (struct number){.one = names_rails(database)};
	return true;
}

static bool
derive_django_pglock(struct number *n, const char *key, const char *database)
{
	unsigned char hash[SHA256_BYTES];
	uint64_t bits = 0;

	(void)database;
	sha_256(hash, key, strlen(key));
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
	crc = names_crc32(0, schema, strlen(schema) + 1);
	crc = names_crc32(crc, table, strlen(table) + 1);
	crc = names_crc32(crc, slash, strlen(slash));
	crc = names_crc32(crc, database, strlen(database));
	*n = (struct number){.one = names_golang_migrate(crc)};
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

static bool
derive_flyway(struct number *n, const char *key, const char *database)
{
	char schema[KEY_BYTES + 1], quoted[KEY_BYTES + 8];
	const char *table;

	(void)database;
	if (!cut_table(key, schema, &table))
		return false;
	snprintf(quoted, sizeof quoted, "\"%s\".\"%s\"", schema, table);
	*n = (struct number){.one = 77431708279161LL + names_java_hash(quoted)};
	return true;
}

/* The key is pg-boss's schema; its older versions have MD5 in the place of SHA-224. */
static bool
derive_pg_boss(struct number *n, const char *key, const char *database)
{
	char text[2 * KEY_BYTES];
	unsigned char hash[SHA256_BYTES];

	snprintf(text, sizeof text, "%.64s.pgboss.%s", database, key);
	sha_224(hash, text, strlen(text));
	*n = first_bytes(hash);
	return true;
}

static bool
derive_symfony(struct number *n, const char *key, const char *database)
{
	(void)database;
	*n = (struct number){.one = names_crc32(0, key, strlen(key))};
	return true;
}

static bool
derive_django_pglocks(struct number *n, const char *key, const char *database)
{
	(void)database;
	*n = (struct number){.one = (int32_t)names_crc32(0, key, strlen(key))};
	return true;
}

/* npm's advisory-lock has the same hash, as two numbers. */
static bool
derive_advisory_lock(struct number *n, const char *key, const char *database)
{
	derive_django_pglock(n, key, database);
	*n = (struct number){
	    .pair = true, .two = {(int32_t)n->one, (int32_t)(n->one >> 32)}};
	return true;
}

static bool
read_hex(const char *text, int bytes, uint64_t *number)
{
	for (*number = 0; bytes > 0; bytes--, text += 2) {
		int byte = digits_hex_byte(text);

		if (byte < 0)
			return false;
		*number = *number << 8 | (unsigned)byte;
	}
	return true;
}

/*
 * DistributedLock of .NET: up to nine characters of ASCII, seven bits each, a 0, and 1s for those
 * that are missing; what its keys are written as, 16 hexadecimal digits, or 8 and 8; or a hash.
 */
static bool
derive_distributedlock(struct number *n, const char *key, const char *database)
{
	enum { CHARACTERS = 9, BITS = 7, ONES = (1 << BITS) - 1 };
	unsigned char hash[SHA1_BYTES];
	size_t length = strlen(key), plain = 0;
	uint64_t bits = 0, low = 0;

	(void)database;
	n->pair = false;
	while (plain < length && (unsigned char)key[plain] <= ONES)
		bits = bits << BITS | (unsigned char)key[plain++];
	if (plain == length && length <= CHARACTERS) {
		for (bits <<= 1; plain < CHARACTERS; plain++)
			bits = bits << BITS | ONES;
		low = (uint32_t)bits;
		bits >>= 32;
		n->pair = true;
	} else if (length == 17 && key[8] == ',' && read_hex(key, 4, &bits) &&
	    read_hex(key + 9, 4, &low)) {
		n->pair = true;
	} else if (length != 16 || !read_hex(key, 8, &bits)) {
		sha_1(hash, key, length);
		for (int i = 7; i >= 0; i--)
			bits = bits << 8 | hash[i];
	}
	*n = n->pair ? (struct number){.pair = true, .two = {(int32_t)bits, (int32_t)low}}
		     : (struct number){.one = (int64_t)bits};
	return true;
}

static const struct derivation {
	const char *name;
	/* NULL: the lock is `fixed`, whatever the key */
	bool (*derive)(struct number *, const char *key, const char *database);
	const char *table; /* false: the key is none; an example */
	int64_t fixed;
} derivations[] = {
    {"dlock", .derive = derive_dlock},
    {"with_advisory_lock", .derive = derive_with_advisory_lock},
    {"rails-migration", .derive = derive_rails_migration},
    {"django-pglock", .derive = derive_django_pglock},
    {"golang-migrate", .derive = derive_golang_migrate,
	.table = "public.schema_migrations"},
    {"golang-migrate-instance", .derive = derive_golang_migrate_instance,
	.table = "public.schema_migrations"},
    {"flyway", .derive = derive_flyway, .table = "public.flyway_schema_history"},
    {"prisma-migrate", .fixed = 72707369},
    {"node-pg-migrate", .fixed = 7241865325823964},
    {"graphile-migrate", .fixed = 4727445306447283},
    {"postgres-migrations", .fixed = -8525285245963000605},
    {"pg-boss", .derive = derive_pg_boss},
    {"symfony", .derive = derive_symfony},
    {"django-pglocks", .derive = derive_django_pglocks},
    {"advisory-lock", .derive = derive_advisory_lock},
    {"distributedlock", .derive = derive_distributedlock},
};

const char derive_names[] =
    "dlock, with_advisory_lock, rails-migration, django-pglock, golang-migrate, golang-migrate-instance, flyway, "
    "prisma-migrate, node-pg-migrate, graphile-migrate, postgres-migrations, pg-boss, symfony, django-pglocks, advisory-lock, distributedlock";

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

bool
derive_is_one(const char *tool)
{
	const struct derivation *d = find(tool);

	return d && (!d->derive || d->derive == derive_rails_migration);
}

bool
derive_is_fixed(const char *tool, struct number *n)
{
	const struct derivation *d = find(tool);

	if (!d || d->derive)
		return false;
	*n = (struct number){.one = d->fixed};
	return true;
}

enum rc
derive_number(struct number *n, const char *tool, const char *key, const char *database,
    struct fault *f)
{
	const struct derivation *d = find(tool ? tool : "dlock");

	*n = (struct number){.one = d->fixed};
	if (!d->derive || d->derive(n, key, database))
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
	identity_add(id, "prefix", getenv(NAMES_PREFIX_VARIABLE));
}
