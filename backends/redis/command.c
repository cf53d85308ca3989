/* command.c - one run of a script for a claim, put together word by word. */
#include "command.h"

#include "resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void
command_bytes(struct command *c, const char *bytes, size_t length)
{
	c->argv[c->argc] = bytes;
	c->lengths[c->argc++] = length;
}

void
command_text(struct command *c, const char *text)
{
	command_bytes(c, text, strlen(text));
}

void
command_number(struct command *c, uint64_t number)
{
	char *text = c->numbers[c->n++];

	snprintf(text, sizeof c->numbers[0], "%" PRIu64, number);
	command_text(c, text);
}

void
command_begin(struct command *c, const struct script *script, bool whole)
{
	c->argc = c->n = 0;
	command_text(c, whole ? "EVAL" : "EVALSHA");
	command_bytes(c, whole ? script->text : script->sha1,
	    whole ? script->length : strlen(script->sha1));
}

static void
add_kind(struct command *c, const struct claim *claim)
{
	if (claim->kind == KIND_LIMIT)
		snprintf(c->kind, sizeof c->kind, "l%u", claim->limit);
	else
		snprintf(c->kind, sizeof c->kind, "%s",
		    claim->kind == KIND_SHARED ? "s" : "x");
	command_text(c, c->kind);
}

static void
add_acquire(struct command *c, const struct claim *claim, const struct request *r)
{
	command_number(c, ns_to_ms(claim->ttl));
	command_number(c, ns_to_ms(r->alive));
	command_text(c, r->subscribed ? "1" : "0");
	add_kind(c, claim);
	command_text(c, claim->record);
	command_number(c, r->ticket);
}

void
command_operation(struct command *c, const struct claim *claim, const struct request *r)
{
	static const char *const operations[] = {
	    [ACQUIRE] = "acquire", [RENEW] = "renew", [RELEASE] = "release"};

	command_text(c, operations[r->operation]);
	command_text(c, claim->owner);
	if (r->operation == ACQUIRE)
		add_acquire(c, claim, r);
	else if (r->operation == RENEW)
		command_number(c, ns_to_ms(claim->ttl));
}

int
command_end(char **command, const struct command *c)
{
	return redisFormatCommandArgv(
	    command, c->argc, (const char **)c->argv, c->lengths);
}

int
command_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, const struct script *script, bool whole)
{
	struct command c;

	command_begin(&c, script, whole);
	command_number(&c, names->nkeys);
	for (int i = 0; i < names->nkeys; i++)
		command_text(&c, names->keys[i]);
	command_operation(&c, claim, r);
	if (r->operation == RENEW)
		command_number(&c, r->token);
	if (names->sharded)
		command_text(&c, SHARDED);
	return command_end(command, &c);
}

enum reading
command_read(struct answer *a, const struct request *r, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ERROR)
		return answer_read(a, reply, r->operation) ? READ_ANSWER : READ_NONSENSE;
	if (resp_is_noscript(reply->str))
		return READ_UNKNOWN_SCRIPT;
	return resp_is_foreign(reply->str) ? READ_FOREIGN : READ_ERROR;
}
