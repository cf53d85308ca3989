/* script.c - asks a Redis server to run a script of dlock's. */
#include "script.h"

#include "backends/redis/dialects/redisson.lua.h"
#include "backends/redis/dialects/redisson_fair.lua.h"
#include "backends/redis/dialects/redisson_rw.lua.h"
#include "backends/redis/dialects/redisson_semaphore.lua.h"
#include "backends/redis/dialects/string.lua.h"
#include "backends/redis/lock.lua.h"
#include "backends/redis/look.lua.h"
#include "backends/redis/redlock.lua.h"

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

/* How it may be asked for: by its hash or as a whole; before Redis 7, not as a reader. */
struct manner {
	bool whole, reads;
};

static const char *
verb(const struct manner *m)
{
	if (m->reads)
		return m->whole ? "EVAL_RO" : "EVALSHA_RO";
	return m->whole ? "EVAL" : "EVALSHA";
}

static enum rc
ask(struct call *to, const struct script_call *c, const struct manner *m, instant until,
    redisReply **reply, struct fault *f)
{
	const char *words[3 + SCRIPT_WORDS] = {
	    verb(m), m->whole ? c->script->text : c->script->sha1};
	size_t lengths[3 + SCRIPT_WORDS];
	struct question q = {.persist = true};
	char keys[12], *command;
	int length;
	enum rc rc;

	snprintf(keys, sizeof keys, "%d", c->keys);
	words[2] = keys;
	memcpy(words + 3, c->words, c->n * sizeof *words);
	for (int i = 0; i < 3 + c->n; i++)
		lengths[i] = i == 1 && m->whole ? c->script->length : strlen(words[i]);
	length = redisFormatCommandArgv(&command, 3 + c->n, words, lengths);
	if (length < 0)
		return fault_set(f, RC_SYSTEM, "out of memory");
	q.command = command;
	q.length = length;
	rc = call_ask(to, &q, until, reply, f);
	redisFreeCommand(command);
	return rc;
}

/* Is it worth to be asked again in another manner? */
static bool
change(struct manner *m, const char *error)
{
	if (!m->whole && resp_is_noscript(error))
		return m->whole = true;
	if (m->reads && resp_is_unknown_command(error)) {
		m->reads = false;
		return true;
	}
	return false;
}

enum rc
script_nonsense(struct call *to, struct fault *f)
{
	call_close(to);
	return fault_set(f, RC_PROTOCOL,
	    "%s gave an answer that dlock's script does not give", call_where(to));
}

/* Who may lock, but not look, needs another rule than the usual one. */
static enum rc
refused(struct call *to, const struct script_call *c, char *text, struct fault *f)
{
	enum rc rc = call_refused(to, text, f);
	char *hint = c->reads ? strstr(f->text, "allow the user ") : NULL;

	if (rc == RC_DENIED && hint)
		snprintf(hint, f->text + sizeof f->text - hint,
		    "to look, allow the user %%R~dlock:* +@read +time +eval_ro +evalsha_ro");
	return rc;
}

enum rc
script_run(struct call *to, const struct script_call *c, instant until,
    redisReply **reply, struct fault *f)
{
	struct manner m = {.reads = c->reads};
	enum rc rc = RC_OK;

	*reply = NULL;
	do {
		freeReplyObject(*reply);
		*reply = NULL;
		rc = ask(to, c, &m, until, reply, f);
	} while (rc == RC_OK && *reply && (*reply)->type == REDIS_REPLY_ERROR &&
	    change(&m, (*reply)->str));
	if (rc != RC_OK) {
		*reply = NULL;
		return rc;
	}
	if (!*reply)
		return script_nonsense(to, f);
	if ((*reply)->type == REDIS_REPLY_ARRAY)
		return RC_OK;
	rc = (*reply)->type == REDIS_REPLY_ERROR ? refused(to, c, (*reply)->str, f)
						 : script_nonsense(to, f);
	freeReplyObject(*reply);
	*reply = NULL;
	return rc;
}
