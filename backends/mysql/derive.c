/*
 * derive.c - the name of GET_LOCK that a key is, program by program.  Test vectors:
 * tests/unit/names.c.
 */
#include "derive.h"

#include "backends/sql/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void
name_prisma(char *out, const char *key, const char *database)
{
	(void)key, (void)database;
	strcpy(out, "prisma_migrate");
}

/* Rails has one for the migrations of a database, whatever the key. */
static void
name_rails(char *out, const char *key, const char *database)
{
	(void)key;
	snprintf(out, DERIVE_NAME_BYTES, "%" PRId64, names_rails(database));
}

/* The key is the table of the migrations. */
static void
name_golang_migrate(char *out, const char *key, const char *database)
{
	char table[DERIVE_NAME_BYTES];

	snprintf(table, sizeof table, "%s:%s", database, key);
	snprintf(out, DERIVE_NAME_BYTES, "%" PRIu32,
	    names_golang_migrate(names_crc32(0, table, strlen(table))));
}

/* The key is the table of the history. */
static void
name_flyway(char *out, const char *key, const char *database)
{
	char table[DERIVE_NAME_BYTES];

	snprintf(table, sizeof table, "`%s`.`%s`", database, key);
	snprintf(out, DERIVE_NAME_BYTES, "Flyway-%" PRId32, names_java_hash(table));
}

static void
name_with_advisory_lock(char *out, const char *key, const char *database)
{
	const char *prefix = getenv(NAMES_PREFIX_VARIABLE);

	(void)database;
	snprintf(
	    out, DERIVE_NAME_BYTES, "%.*s%s", KEY_BYTES - 1, prefix ? prefix : "", key);
}

static const struct derivation {
	const char *name;
	void (*derive)(char *out, const char *key, const char *database);
	bool is_one;
	bool asks; /* SELECT DATABASE(), where others go by what was typed */
} derivations[] = {
    {"prisma-migrate", name_prisma, true, false},
    {"rails-migration", name_rails, true, true},
    {"golang-migrate", name_golang_migrate, false, false},
    {"flyway", name_flyway, false, true},
    {"with_advisory_lock", name_with_advisory_lock, false, false},
};

const char derive_mysql_names[] =
    "dlock, prisma-migrate, rails-migration, golang-migrate, flyway, with_advisory_lock";

static const struct derivation *
find_program(const char *tool)
{
	for (size_t i = 0; i < sizeof derivations / sizeof *derivations; i++)
		if (strcmp(derivations[i].name, tool) == 0)
			return &derivations[i];
	return NULL;
}

bool
derive_mysql_knows(const char *tool)
{
	return find_program(tool) != NULL;
}

bool
derive_mysql_is_one(const char *tool)
{
	return find_program(tool) && find_program(tool)->is_one;
}

bool
derive_mysql_asks(const char *tool)
{
	return find_program(tool) && find_program(tool)->asks;
}

void
derive_mysql_name(
    char out[DERIVE_NAME_BYTES], const char *tool, const char *key, const char *database)
{
	find_program(tool)->derive(out, key, database);
}
