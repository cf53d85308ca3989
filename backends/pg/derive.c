/* derive.c - see derive.h.  Sources and test vectors: tests/unit/derive.c. */
#include "derive.h"

#include <errno.h>
#include <inttypes.h>
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

/* ---- SHA-256 (FIPS 180-4), of a short text ---- */

static const uint32_t round_constants[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
    0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74,
    0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3,
    0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354,
    0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3,
    0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa,
    0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t
rotate(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

/* The 64 bytes of a block spread over 64 words. */
static void
sha256_schedule(uint32_t w[64], const unsigned char *block)
{
	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 |
		       block[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       w[i - 7] + (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
}

static void
sha256_block(uint32_t state[8], const unsigned char *block)
{
	uint32_t w[64], v[8];

	sha256_schedule(w, block);
	memcpy(v, state, sizeof v);
	for (int i = 0; i < 64; i++) {
		uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
		uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
		uint32_t t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) + choice +
			      round_constants[i] + w[i];
		uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) + majority;

		memmove(v + 1, v, 7 * sizeof *v);
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		state[i] += v[i];
}

enum { SHA_TEXT = KEY_BYTES + 64 }; /* longest text, in whole blocks with their padding */

/* The first 8 bytes of the hash, in the order of the hash. */
static void
sha256_begin(unsigned char out[8], const char *text)
{
	uint32_t state[8] = {
	    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	unsigned char padded[SHA_TEXT + 64] = {0};
	size_t n = strnlen(text, SHA_TEXT), blocks = (n + 9 + 63) / 64;

	memcpy(padded, text, n);
	padded[n] = 0x80;
	for (int i = 0; i < 8; i++)
		padded[64 * blocks - 1 - i] = (uint64_t)n * 8 >> 8 * i;
	for (size_t i = 0; i < blocks; i++)
		sha256_block(state, padded + 64 * i);
	for (int i = 0; i < 8; i++)
		out[i] = state[i / 4] >> (24 - 8 * (i % 4));
}

/* ---- what the tools do ---- */

struct derivation {
	const char *name;
	enum rc (*derive)(struct number *, const char *key, const char *database, struct fault *);
};

/* dlock's own: the first half of a quarter of a hash, in network order. */
static enum rc
derive_dlock(struct number *n, const char *key, const char *database, struct fault *f)
{
	char text[KEY_BYTES + 16];
	unsigned char hash[8];
	uint64_t bits = 0;

	(void)database, (void)f;
	snprintf(text, sizeof text, "dlock:%s", key);
	sha256_begin(hash, text);
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | hash[i];
	*n = (struct number){.one = (int64_t)bits};
	return RC_OK;
}

/* Ruby: CRC-32 of the name, and a prefix of which nothing but a leading number survives. */
static enum rc
derive_with_advisory_lock(struct number *n, const char *key, const char *database, struct fault *f)
{
	const char *prefix = getenv("WITH_ADVISORY_LOCK_PREFIX");

	(void)database, (void)f;
	*n = (struct number){.pair = true};
	n->two[0] = crc32(0, key, strlen(key)) & 0x7fffffff;
	n->two[1] = prefix ? strtoll(prefix, NULL, 10) & 0x7fffffff : 0;
	return RC_OK;
}

/* Rails has one for the migrations of a database, whatever the key. */
static enum rc
derive_rails_migration(struct number *n, const char *key, const char *database, struct fault *f)
{
	(void)key, (void)f;
	*n = (struct number){.one = 2053462845LL * crc32(0, database, strlen(database))};
	return RC_OK;
}

static enum rc
derive_django_pglock(struct number *n, const char *key, const char *database, struct fault *f)
{
	unsigned char hash[8];
	uint64_t bits = 0;

	(void)database, (void)f;
	sha256_begin(hash, key);
	for (int i = 7; i >= 0; i--)
		bits = bits << 8 | hash[i];
	*n = (struct number){.one = (int64_t)bits};
	return RC_OK;
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

static enum rc
not_a_table(const char *example, struct fault *f)
{
	return fault_set(
	    f, RC_USAGE, "the key must be the table whose migrations are meant, such as %s", example);
}

static enum rc
derive_golang_migrate(struct number *n, const char *key, const char *database, struct fault *f)
{
	char schema[KEY_BYTES + 1];
	const char *table;
	uint32_t crc;

	if (!cut_table(key, schema, &table))
		return not_a_table("public.schema_migrations", f);
	crc =
	    crc32(0, schema, strlen(schema) + 1); /* with the NUL, which is what they join the names with */
	crc = crc32(crc, table, strlen(table) + 1);
	crc = crc32(crc, database, strlen(database));
	*n = (struct number){.one = (uint32_t)(crc * 1486364155U)};
	return RC_OK;
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

static enum rc
derive_flyway(struct number *n, const char *key, const char *database, struct fault *f)
{
	char schema[KEY_BYTES + 1], quoted[KEY_BYTES + 8];
	const char *table;

	(void)database;
	if (!cut_table(key, schema, &table))
		return not_a_table("public.flyway_schema_history", f);
	snprintf(quoted, sizeof quoted, "\"%s\".\"%s\"", schema, table);
	*n = (struct number){.one = 77431708279161LL + java_hash(quoted)};
	return RC_OK;
}

static const struct derivation derivations[] = {
    {"dlock", derive_dlock},
    {"with_advisory_lock", derive_with_advisory_lock},
    {"rails-migration", derive_rails_migration},
    {"django-pglock", derive_django_pglock},
    {"golang-migrate", derive_golang_migrate},
    {"flyway", derive_flyway},
};

const char derivation_names[] =
    "dlock, with_advisory_lock, rails-migration, django-pglock, golang-migrate, flyway";

const struct derivation *
derivation_named(const char *name)
{
	if (!name)
		return &derivations[0];
	for (size_t i = 0; i < sizeof derivations / sizeof *derivations; i++)
		if (strcmp(derivations[i].name, name) == 0)
			return &derivations[i];
	return NULL;
}

enum rc
derive(struct number *n, const struct derivation *d, const char *key, const char *database, struct fault *f)
{
	return d->derive(n, key, database, f);
}

/* ---- numbers as they are ---- */

static bool
read_integer(const char *text, char end, int64_t low, int64_t high, int64_t *ret, const char **rest)
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
number_read(struct number *n, const char *text)
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
