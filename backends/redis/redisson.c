/* redisson.c - the dialects of Redisson, by the names that it gives its keys. */
#include "command.h"
#include "side.h"

#include <stdio.h>
#include <string.h>

/* prefix:{KEY}; a KEY that has a brace gets no other. */
static void
name_before(char *out, size_t size, const char *prefix, const char *key)
{
	snprintf(out, size, strchr(key, '{') ? "%s:%s" : "%s:{%s}", prefix, key);
}

/* The channel is KEYS[3], as it is Redisson's KEYS[2]: its users may use it. */
static void
add_channel(struct names *names, const char *prefix, const char *key)
{
	name_before(names->keys[2], sizeof names->keys[2], prefix, key);
	snprintf(names->channel, sizeof names->channel, "%s", names->keys[2]);
	names->nkeys = 3;
}

static void
redisson_names(struct names *names, const struct claim *claim)
{
	side_names(names, &dialect_redisson, claim->key);
	add_channel(names, "redisson_lock__channel", claim->key);
}

static void
fenced_names(struct names *names, const struct claim *claim)
{
	side_names(names, &dialect_redisson_fenced, claim->key);
	add_channel(names, "redisson_lock__channel", claim->key);
	name_before(
	    names->keys[3], sizeof names->keys[3], "redisson_lock_token", claim->key);
	names->nkeys = 4;
}

static int
redisson_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	return command_write(command, names, claim, r, &script_redisson, whole);
}

enum {
	LACKS = CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE,
	EXCLUSIVE = 1 << KIND_EXCLUSIVE | 1 << KIND_WRITER,
};

const struct dialect dialect_redisson = {
    .name = "redisson",
    .lacks = LACKS,
    .kinds = EXCLUSIVE,
    .claims = &script_redisson,
    .looks = &script_redisson,
    .names = redisson_names,
    .write = redisson_write,
    .read = command_read,
};

const struct dialect dialect_redisson_fenced = {
    .name = "redisson-fenced",
    .lacks = LACKS,
    .kinds = EXCLUSIVE,
    .claims = &script_redisson,
    .looks = &script_redisson,
    .names = fenced_names,
    .write = redisson_write,
    .read = command_read,
};
