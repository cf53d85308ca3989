/* names.c - the hashes that programs have for the names of their locks. */
#include "names.h"

#include <stdbool.h>
#include <string.h>

uint32_t
names_crc32(uint32_t crc, const void *data, size_t n)
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

/* It goes by units of UTF-16. */
int32_t
names_java_hash(const char *text)
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

int64_t
names_rails(const char *database)
{
	return 2053462845LL * names_crc32(0, database, strlen(database));
}

uint32_t
names_golang_migrate(uint32_t crc)
{
	return crc * 1486364155U;
}

/* ---- whose lock it is ---- */

/* The programs that take the lock of a tool by themselves, with `word` (NULL: any) among theirs. */
static const struct {
	const char *tool, *program, *word;
} programs[] = {
    {"golang-migrate", "migrate", NULL},
    {"golang-migrate-instance", "migrate", NULL},
    {"flyway", "flyway", NULL},
    {"prisma-migrate", "prisma", "migrate"},
    {"node-pg-migrate", "node-pg-migrate", NULL},
    {"graphile-migrate", "graphile-migrate", NULL},
    {"rails-migration", "rails", "db:"},
    {"rails-migration", "rake", "db:"},
};

/* These run what stands behind them. */
static const char *const launchers[] = {"npx", "bunx", "pnpm", "yarn", "bundle", "exec",
    "env", "nice", "nohup", "time", "sudo"};

static bool
is_program(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, name) == 0;
}

static bool
is_launcher(const char *path)
{
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		if (is_program(path, launchers[i]))
			return true;
	return false;
}

static bool
has_word(char *const *argv, const char *word)
{
	while (word && *argv && strncmp(*argv, word, strlen(word)) != 0)
		argv++;
	return !word || *argv;
}

const char *
names_runs_own(const struct site *site, char *const *argv)
{
	const char *tool = NULL;

	for (size_t i = 0; i < site->nsettings; i++)
		if (strcmp(site->settings[i].name, "derive") == 0)
			tool = site->settings[i].value;
	while (*argv && is_launcher(*argv))
		argv++;
	for (size_t i = 0; tool && *argv && i < sizeof programs / sizeof *programs; i++)
		if (strcmp(tool, programs[i].tool) == 0 &&
		    is_program(*argv, programs[i].program) &&
		    has_word(argv + 1, programs[i].word))
			return programs[i].program;
	return NULL;
}
