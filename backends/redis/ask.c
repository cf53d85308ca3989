/* ask.c - asks a Redis server to run a script of dlock's. */
#include "ask.h"

#include "backends/redis/dialects/redisson.lua.h"
#include "backends/redis/dialects/redisson_fair.lua.h"
#include "backends/redis/dialects/redisson_rw.lua.h"
#include "backends/redis/dialects/redisson_semaphore.lua.h"
#include "backends/redis/dialects/string.lua.h"
#include "backends/redis/lock.lua.h"
#include "backends/redis/look.lua.h"
#include "backends/redis/redlock.lua.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct script script_lock = {lock_lua, sizeof lock_lua, lock_sha1},
		    script_look = {look_lua, sizeof look_lua, look_sha1},
		    script_redlock = {redlock_lua, sizeof redlock_lua, redlock_sha1},
		    script_string = {string_lua, sizeof string_lua, string_sha1},
		    script_redisson = {redisson_lua, sizeof redisson_lua, redisson_sha1},
		    script_redisson_rw = {redisson_rw_lua, sizeof redisson_rw_lua,
			redisson_rw_sha1},
		    script_redisson_semaphore = {redisson_semaphore_lua,
			sizeof redisson_semaphore_lua, redisson_semaphore_sha1},
		    script_redisson_fair = {
			redisson_fair_lua, sizeof redisson_fair_lua, redisson_fair_sha1};

/* ---- words ---- */

void
script_begin(struct script_call *c, const struct script *script)
{
	c->script = script;
	c->reads = false;
	c->keys = c->n = c->used = 0;
}

void
script_number(struct script_call *c, int64_t number)
{
	char *text = c->numbers[c->used++];

	snprintf(text, sizeof c->numbers[0], "%" PRId64, number);
	script_word(c, text);
}

static const char *
verb(const struct manner *m)
{
	if (m->reads)
		return m->whole ? "EVAL_RO" : "EVALSHA_RO";
	return m->whole ? "EVAL" : "EVALSHA";
}

int
script_write(char **command, const struct script_call *c, const struct manner *m)
{
	const char *words[3 + SCRIPT_WORDS] = {
	    verb(m), m->whole ? c->script->text : c->script->sha1};
	size_t lengths[3 + SCRIPT_WORDS];
	char keys[12];

	snprintf(keys, sizeof keys, "%d", c->keys);
	words[2] = keys;
	memcpy(words + 3, c->words, c->n * sizeof *words);
	for (int i = 0; i < 3 + c->n; i++)
		lengths[i] = i == 1 && m->whole ? c->script->length : strlen(words[i]);
	return redisFormatCommandArgv(command, 3 + c->n, words, lengths);
}

bool
script_change(struct manner *m, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ERROR)
		return false;
	if (!m->whole && resp_says(reply->str, "NOSCRIPT"))
		return m->whole = true;
	if (m->reads && resp_says(reply->str, "ERR unknown command")) {
		m->reads = false;
		return true;
	}
	return false;
}

/* ---- asking ---- */

enum rc
script_ask(struct route *to, const struct script_call *c, struct question q,
    instant until, redisReply **reply, struct fault *f)
{
	struct manner m = {.reads = c->reads};
	enum rc rc;

	*reply = NULL;
	do {
		char *command;
		int length = script_write(&command, c, &m);

		freeReplyObject(*reply);
		*reply = NULL;
		if (length < 0)
			return fault_set(f, RC_SYSTEM, "out of memory");
		q.command = command;
		rc = route_ask(to, &q, until, reply, f);
		redisFreeCommand(command);
	} while (rc == RC_OK && script_change(&m, *reply));
	return rc;
}

enum rc
script_nonsense(struct route *to, struct fault *f)
{
	route_close(to);
	return fault_set(f, RC_PROTOCOL,
	    "%s gave an answer that dlock's script does not give", to->where);
}

enum rc
script_run(struct route *to, const struct script_call *c, instant until,
    redisReply **reply, struct fault *f)
{
	struct question q = {.persist = true};
	enum rc rc = script_ask(to, c, q, until, reply, f);

	if (rc != RC_OK || (*reply)->type == REDIS_REPLY_ARRAY)
		return rc;
	if ((*reply)->type != REDIS_REPLY_ERROR)
		rc = script_nonsense(to, f);
	else
		rc = peer_refuses(&to->server.peer, c->reads, (*reply)->str, f);
	freeReplyObject(*reply);
	*reply = NULL;
	return rc;
}
