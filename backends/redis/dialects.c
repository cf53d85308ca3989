/* dialects.c - the dialects there are: their names, and what they say alike. */
#include "dialects.h"

#include "backends/common/append.h"
#include "backends/redis/dialects/redisson.lua.h"
#include "backends/redis/dialects/redisson_fair.lua.h"
#include "backends/redis/dialects/redisson_rw.lua.h"
#include "backends/redis/dialects/redisson_semaphore.lua.h"
#include "backends/redis/dialects/string.lua.h"
#include "backends/redis/dialects/symfony.lua.h"
#include "backends/redis/lock.lua.h"
#include "backends/redis/look.lua.h"

#include <stdio.h>
#include <string.h>

enum {
	KEYS_OF_LOCK = 6, /* those behind them are of a job */
	LACKS = CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE,
};

static const struct script lock = {lock_lua, sizeof lock_lua, lock_sha1},
			   look = {look_lua, sizeof look_lua, look_sha1},
			   string = {string_lua, sizeof string_lua, string_sha1},
			   redisson = {redisson_lua, sizeof redisson_lua, redisson_sha1},
			   redisson_rw = {redisson_rw_lua, sizeof redisson_rw_lua,
			       redisson_rw_sha1},
			   redisson_semaphore = {redisson_semaphore_lua,
			       sizeof redisson_semaphore_lua, redisson_semaphore_sha1},
			   symfony = {symfony_lua, sizeof symfony_lua, symfony_sha1},
			   redisson_fair = {redisson_fair_lua, sizeof redisson_fair_lua,
			       redisson_fair_sha1};

/*
 * In a name, these stand for
 *	%D	what names of dlock's own begin with: "dlock:{KEY}:", the key encoded;
 *		in a cluster, of a key that has a {tag}, "dlock:{TAG}:KEY:", so that the lock
 *		lies in that tag's hash slot, beside what users keep there
 *	%K	the key as its users call it
 *	%B	"{KEY}"; a key that has a brace gets no other: "KEY"
 *	%S	our key beside the lock, in its hash slot: "dlock:DIALECT:{KEY}"; of a key that
 *		has a {tag}, "dlock:DIALECT::KEY".  No two locks share one
 *	%O	the owner
 *	%U	":", and the owner as Redisson writes one; nothing without owner
 *	%I	the ID of a job, encoded
 * The channel is the third key of Redisson's dialects, as it is Redisson's KEYS[2]: its users
 * may use it.  Of the native one, the fifth is no key, but the beginning of channels.
 */
const struct dialect dialects[] = {
    [DIALECT_NATIVE] = {.name = "native",
	.claims = &lock,
	.looks = &look,
	.keys = {"%Dh", "%Di", "%Dq", "%Dl", "%Dw:", "%Df", "%Dr", "%Dr:%I"},
	.channel = "%Dw:%O"},
    [DIALECT_STRING] = {.name = "string",
	.lacks = LACKS,
	.claims = &string,
	.keys = {"%K", "%S"},
	.plain = true},
    {.name = "symfony",
	.lacks = LACKS & ~CAP_SHARED,
	.claims = &symfony,
	.keys = {"%K", "%S"}},
    {.name = "redisson",
	.lacks = LACKS,
	.claims = &redisson,
	.keys = {"%K", "%S", "redisson_lock__channel:%B"},
	.channel = "redisson_lock__channel:%B"},
    {.name = "redisson-fenced",
	.lacks = LACKS,
	.claims = &redisson,
	.keys = {"%K", "%S", "redisson_lock__channel:%B", "redisson_lock_token:%B"},
	.channel = "redisson_lock__channel:%B"},
    {.name = "redisson-rw",
	.lacks = LACKS & ~CAP_SHARED,
	.claims = &redisson_rw,
	.keys = {"%K", "%S", "redisson_rwlock:%B", "%B:"},
	.channel = "redisson_rwlock:%B"},
    {.name = "redisson-semaphore",
	.lacks = LACKS & ~CAP_LIMIT,
	.claims = &redisson_semaphore,
	.keys = {"%K", "%S", "redisson_sc:%B", "%B:timeout"},
	.channel = "redisson_sc:%B"},
    {.name = "redisson-fair",
	.lacks = LACKS & ~CAP_FAIR,
	.claims = &redisson_fair,
	.keys = {"%K", "%S", "redisson_lock__channel:%B", "redisson_lock_queue:%B",
	    "redisson_lock_timeout:%B"},
	/* a waiter has one of its own */
	.channel = "redisson_lock__channel:%B%U"},
};

/* ---- by name ---- */

const struct dialect *
dialect_named(const char *name)
{
	for (size_t i = 0; i < DIALECTS; i++)
		if (strcmp(dialects[i].name, name) == 0)
			return &dialects[i];
	return NULL;
}

/* ---- names ---- */

/* What names are made of. */
struct parts {
	const struct dialect *dialect;
	const struct claim *claim;
	enum form form;
	char encoded[ENCODED_BYTES], id[3 * ONCE_BYTES + 1];
	const char *tag; /* of the key, where Redis finds one; NULL: it is its own */
	int tag_length;
};

/* As Redis cuts it out: up to the first } behind the first {, unless that is nothing. */
static int
tag_of(const char *key, const char **tag)
{
	const char *open = strchr(key, '{'), *close = open ? strchr(open, '}') : NULL;

	*tag = close && close > open + 1 ? open + 1 : NULL;
	return *tag ? (int)(close - *tag) : 0;
}

bool
dialect_shares_slot(const char *key, const char *other)
{
	const char *tag, *tags;
	int n = tag_of(key, &tag), m = tag_of(other, &tags);

	return n > 0 && n == m && memcmp(tag, tags, n) == 0;
}

/* So much of it. */
static char *
put_some(char *out, const char *end, const char *text, size_t n)
{
	return append_text(out, (size_t)(end - out) > n + 1 ? out + n + 1 : end, text);
}

static char *
put_three(char *out, const char *end, const char *a, const char *b, const char *c)
{
	return append_text(append_text(append_text(out, end, a), end, b), end, c);
}

/* What stands for one letter; returns its end. */
static char *
print_part(char *out, const char *end, char letter, const struct parts *p)
{
	static const size_t groups[] = {8, 4, 4, 4, 12}; /* of a UUID */
	const char *key = p->claim->key, *o = p->claim->owner;

	switch (letter) {
	case 'D':
		if (!p->tag || p->form != FORM_CLUSTER)
			return put_three(out, end, "dlock:{", p->encoded, "}:");
		out = append_text(out, end, "dlock:{");
		out = put_some(out, end, p->tag, p->tag_length);
		return put_three(out, end, "}:", p->encoded, ":");
	case 'B':
		return strchr(key, '{') ? append_text(out, end, key)
					: put_three(out, end, "{", key, "}");
	case 'S':
		out = put_three(
		    out, end, "dlock:", p->dialect->name, p->tag ? "::" : ":{");
		return append_text(append_text(out, end, key), end, p->tag ? "" : "}");
	case 'U':
		if (!*o)
			return out;
		for (size_t i = 0; i < sizeof groups / sizeof *groups; o += groups[i++])
			out = put_some(
			    append_text(out, end, i ? "-" : ":"), end, o, groups[i]);
		return append_text(out, end, ":1");
	case 'O':
		return append_text(out, end, o);
	case 'I':
		return append_text(out, end, p->id);
	default:
		return append_text(out, end, key);
	}
}

/* NULL: "".  Returns what is printed; *next is behind it. */
static const char *
print_template(char **next, const char *end, const char *template, const struct parts *p)
{
	char *begin = *next < end ? *next : (char *)end - 1, *out = begin;

	for (const char *c = template; c && *c && out + 1 < end; c++)
		if (*c == '%')
			out = print_part(out, end, *++c, p);
		else
			*out++ = *c;
	*out = '\0';
	*next = out + 1;
	return begin;
}

/* A run that is done is a key of its own, which the server lets expire. */
void
dialect_name(const struct dialect *d, struct names *names, enum form form,
    const struct claim *claim)
{
	struct parts p = {.dialect = d, .claim = claim, .form = form};
	char *next = names->text, *end = next + sizeof names->text;

	encode_key(p.encoded, sizeof p.encoded, claim->key);
	encode_key(p.id, sizeof p.id, claim->job.once ? claim->job.once : "");
	p.tag_length = tag_of(claim->key, &p.tag);
	names->nkeys = 0;
	for (int i = 0; i < NAMES && d->keys[i]; i++) {
		names->keys[i] = print_template(&next, end, d->keys[i], &p);
		names->nkeys += i < KEYS_OF_LOCK;
	}
	names->channel = print_template(&next, end, d->channel, &p);
	names->sharded = dialect_is_foreign(d) && d->channel && form == FORM_CLUSTER;
}

/* ---- words ---- */

/* Is what is remembered spoken of?  To be shown surely, it has to be allowed before the lock is had. */
static bool
dialect_speaks_of_runs(
    const struct dialect *d, const struct job *job, const struct request *r)
{
	if (d->lacks & CAP_JOB)
		return false;
	if (r->operation == ACQUIRE)
		return job_is_wanted(job) || job->remember == REMEMBER_SURELY;
	return r->operation == RELEASE && r->outcome.status != STATUS_NONE &&
	    (job_is_wanted(job) || job->remember);
}

/* The keys of a job are declared only where it is spoken of. */
void
dialect_say(const struct dialect *d, struct script_call *c, const struct names *names,
    const struct claim *claim, const struct request *r)
{
	static const char *const operations[] = {
	    [ACQUIRE] = "acquire", [RENEW] = "renew", [RELEASE] = "release"};
	bool job = dialect_speaks_of_runs(d, &claim->job, r), any = claim->job.no_retry;
	int keys = names->nkeys + (job ? 1 + (claim->job.once != NULL) : 0);
	const char *end = c->kind + sizeof c->kind;
	char *at;

	script_begin(c, d->claims);
	for (int i = 0; i < keys; i++)
		script_key(c, names->keys[i]);
	script_word(c, operations[r->operation]);
	script_word(c, claim->owner);
	if (r->operation != RELEASE)
		script_number(c, ns_to_ms(claim->ttl));
	at = append_text(c->kind, end,
	    claim->kind == KIND_LIMIT        ? "l"
		: claim->kind == KIND_SHARED ? "s"
					     : "x");
	if (claim->kind == KIND_LIMIT)
		append_number(at, end, claim->limit);
	if (r->operation == ACQUIRE) {
		script_number(c, ns_to_ms(r->alive));
		script_word(c, r->subscribed ? "1" : "0");
		script_word(c, c->kind);
		script_word(c, claim->record);
		script_number(c, r->ticket);
	}
	if (r->operation == RENEW && dialect_is_foreign(d))
		script_number(c, r->token);
	if (job)
		script_number(c,
		    r->operation == ACQUIRE ? ns_to_ms(claim->job.cooldown)
					    : r->outcome.status);
	if (job && r->operation == RELEASE)
		script_word(c, claim->job.once ? claim->job.once : "");
	if (job && r->operation == RELEASE && job_is_shown(&claim->job))
		script_word(c, "shown");
	else if (job)
		script_word(
		    c, any && (r->operation == ACQUIRE || r->outcome.ended) ? "1" : "0");
	if (names->sharded)
		script_word(c, SHARDED);
}
