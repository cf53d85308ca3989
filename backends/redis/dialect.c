/* dialect.c - dlock's own dialect: every operation is one run of lock.lua. */
#include "dialect.h"

#include "resp.h"
#include "script.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	/* behind operation and owner, at most */
	OPERANDS = 7,
	ARGUMENTS = 3 + NAMES + 2 + 2 + OPERANDS, /* of the command */
};

/*
 * A run that is done is a key of its own, which the server lets expire: there is
 * nothing to prune, and it can be found, and deleted, by its ID.
 */
static void
name_done(struct names *names, const char *once)
{
	char id[3 * ONCE_BYTES + 1];

	if (once && encode_key(id, sizeof id, once))
		snprintf(names->done, sizeof names->done, "%s:%s", names->last, id);
}

/* All keys are declared and share the hash tag {KEY}, encoded. */
void
dialect_name_lock(struct names *names, const char *key)
{
	static const char *const suffixes[NAMES] = {"h", "i", "q", "l", "w:", "f"};
	char tag[ENCODED_BYTES];

	encode_key(tag, sizeof tag, key);
	for (size_t i = 0; i < NAMES; i++)
		snprintf(names->keys[i], sizeof names->keys[i], "dlock:{%s}:%s", tag,
		    suffixes[i]);
	snprintf(names->last, sizeof names->last, "dlock:{%s}:r", tag);
	names->channel[0] = names->done[0] = '\0';
}

static void
native_name(struct names *names, const struct claim *claim)
{
	dialect_name_lock(names, claim->key);
	snprintf(names->channel, sizeof names->channel, "%s%s", names->keys[CHANNEL_NAME],
	    claim->owner);
	name_done(names, claim->job.once);
}

/* A command that is being put together; the texts of its numbers are kept here. */
struct native_command {
	const char *argv[ARGUMENTS];
	size_t lengths[ARGUMENTS];
	int argc;
	char numbers[5][24];
	char kind[16];
	int n;
};

static void
add_bytes(struct native_command *c, const char *bytes, size_t length)
{
	c->argv[c->argc] = bytes;
	c->lengths[c->argc++] = length;
}

static void
add_text(struct native_command *c, const char *text)
{
	add_bytes(c, text, strlen(text));
}

static void
add_number(struct native_command *c, uint64_t number)
{
	char *text = c->numbers[c->n++];

	snprintf(text, sizeof c->numbers[0], "%" PRIu64, number);
	add_text(c, text);
}

/* The keys; those of a job only where it is spoken of. */
static void
add_keys(struct native_command *c, const struct names *names, bool job)
{
	bool once = job && *names->done;

	add_number(c, NAMES + job + once);
	for (int i = 0; i < NAMES; i++)
		add_text(c, names->keys[i]);
	if (job)
		add_text(c, names->last);
	if (once)
		add_text(c, names->done);
}

static void
add_kind(struct native_command *c, const struct claim *claim)
{
	if (claim->kind == KIND_LIMIT)
		snprintf(c->kind, sizeof c->kind, "l%u", claim->limit);
	else
		snprintf(c->kind, sizeof c->kind, "%s",
		    claim->kind == KIND_SHARED ? "s" : "x");
	add_text(c, c->kind);
}

static void
add_acquire(struct native_command *c, const struct claim *claim, const struct request *r)
{
	add_number(c, ns_to_ms(claim->ttl));
	add_number(c, ns_to_ms(r->alive));
	add_text(c, r->subscribed ? "1" : "0");
	add_kind(c, claim);
	add_text(c, claim->record);
	add_number(c, r->ticket);
	if (job_is_wanted(&claim->job))
		add_number(c, ns_to_ms(claim->job.cooldown));
}

static void
add_run(struct native_command *c, const struct claim *claim, const struct request *r)
{
	add_number(c, r->status);
	add_text(c, claim->job.once ? claim->job.once : "");
}

static int
native_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	static const char *const operations[] = {
	    [ACQUIRE] = "acquire", [RENEW] = "renew", [RELEASE] = "release"};
	bool job = job_is_wanted(&claim->job) &&
	    (r->operation == ACQUIRE ||
		(r->operation == RELEASE && r->status != STATUS_NONE));
	struct native_command c;

	c.argc = c.n = 0;
	add_text(&c, whole ? "EVAL" : "EVALSHA");
	add_bytes(&c, whole ? script_lock.text : script_lock.sha1,
	    whole ? script_lock.length : strlen(script_lock.sha1));
	add_keys(&c, names, job);
	add_text(&c, operations[r->operation]);
	add_text(&c, claim->owner);
	if (r->operation == ACQUIRE)
		add_acquire(&c, claim, r);
	else if (r->operation == RENEW)
		add_number(&c, ns_to_ms(claim->ttl));
	else if (job)
		add_run(&c, claim, r);
	return redisFormatCommandArgv(command, c.argc, c.argv, c.lengths);
}

static enum reading
native_read(struct answer *a, const struct request *r, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ERROR)
		return answer_read(a, reply, r->operation) ? READ_ANSWER : READ_NONSENSE;
	if (resp_is_noscript(reply->str))
		return READ_UNKNOWN_SCRIPT;
	return resp_is_foreign(reply->str) ? READ_FOREIGN : READ_ERROR;
}

const struct dialect dialect_native = {native_name, native_write, native_read};
