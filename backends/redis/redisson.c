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

/* A waiter has a channel of its own. */
static void
fair_names(struct names *names, const struct claim *claim)
{
	const char *o = claim->owner;

	side_names(names, &dialect_redisson_fair, claim->key);
	add_channel(names, "redisson_lock__channel", claim->key);
	name_before(
	    names->keys[3], sizeof names->keys[3], "redisson_lock_queue", claim->key);
	name_before(
	    names->keys[4], sizeof names->keys[4], "redisson_lock_timeout", claim->key);
	names->nkeys = 5;
	if (*o)
		snprintf(names->channel, sizeof names->channel,
		    "%s:%.8s-%.4s-%.4s-%.4s-%s:1", names->keys[2], o, o + 8, o + 12,
		    o + 16, o + 20);
}

/* KEYS[4] is KEY:, or {KEY}:, with which other keys of Redisson's begin. */
static void
add_behind(struct names *names, const char *key, const char *suffix)
{
	snprintf(names->keys[3], sizeof names->keys[3],
	    strchr(key, '{') ? "%s:%s" : "{%s}:%s", key, suffix);
	names->nkeys = 4;
}

static void
rw_names(struct names *names, const struct claim *claim)
{
	side_names(names, &dialect_redisson_rw, claim->key);
	add_channel(names, "redisson_rwlock", claim->key);
	add_behind(names, claim->key, "");
}

static void
semaphore_names(struct names *names, const struct claim *claim)
{
	side_names(names, &dialect_redisson_semaphore, claim->key);
	add_channel(names, "redisson_sc", claim->key);
	add_behind(names, claim->key, "timeout");
}

static int
redisson_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	return command_write(command, names, claim, r, &script_redisson, whole);
}

static int
rw_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	return command_write(command, names, claim, r, &script_redisson_rw, whole);
}

static int
semaphore_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	return command_write(command, names, claim, r, &script_redisson_semaphore, whole);
}

static int
fair_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	return command_write(command, names, claim, r, &script_redisson_fair, whole);
}

enum {
	LACKS = CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE,
};

const struct dialect dialect_redisson = {
    .name = "redisson",
    .lacks = LACKS,
    .claims = &script_redisson,
    .looks = &script_redisson,
    .names = redisson_names,
    .write = redisson_write,
    .read = command_read,
};

const struct dialect dialect_redisson_fenced = {
    .name = "redisson-fenced",
    .lacks = LACKS,
    .claims = &script_redisson,
    .looks = &script_redisson,
    .names = fenced_names,
    .write = redisson_write,
    .read = command_read,
};

const struct dialect dialect_redisson_rw = {
    .name = "redisson-rw",
    .lacks = LACKS & ~CAP_SHARED,
    .claims = &script_redisson_rw,
    .looks = &script_redisson_rw,
    .names = rw_names,
    .write = rw_write,
    .read = command_read,
};

const struct dialect dialect_redisson_semaphore = {
    .name = "redisson-semaphore",
    .lacks = LACKS & ~CAP_LIMIT,
    .claims = &script_redisson_semaphore,
    .looks = &script_redisson_semaphore,
    .names = semaphore_names,
    .write = semaphore_write,
    .read = command_read,
};

const struct dialect dialect_redisson_fair = {
    .name = "redisson-fair",
    .lacks = LACKS & ~CAP_FAIR,
    .claims = &script_redisson_fair,
    .looks = &script_redisson_fair,
    .names = fair_names,
    .write = fair_write,
    .read = command_read,
};
