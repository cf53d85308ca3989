/* master.c - asks one of the masters that vote on a lock. */
#include "master.h"

#include "backends/secret.h"
#include "restart.h"
#include "script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The texts of an order's numbers. */
struct numbers {
	char lease[24], longest[24], token[24];
};

static const char *const operations[] = {
    "acquire", "extend", "release", "revoke", "look", "scan"};

static const char *
digit(bool is)
{
	return is ? "1" : "0";
}

static void
order_write(const struct order *o, const struct master_names *names, struct numbers *n,
    struct script_call *c)
{
	snprintf(n->lease, sizeof n->lease, "%" PRId64, o->lease);
	snprintf(n->longest, sizeof n->longest, "%" PRId64, o->longest);
	snprintf(n->token, sizeof n->token, "%" PRIu64, o->token);
	*c = (struct script_call){
	    .script = &script_redlock, .reads = o->kind >= ORDER_LOOK};
	if (o->kind != ORDER_SCAN) {
		script_key(c, names->lock);
		script_key(c, names->data);
		script_key(c, names->wake);
	}
	script_word(c, operations[o->kind]);
	script_word(c, o->owner);
	if (o->kind == ORDER_ACQUIRE || o->kind == ORDER_EXTEND) {
		script_word(c, n->lease);
		script_word(c, n->longest);
		script_word(c, o->record);
	}
	if (o->kind == ORDER_EXTEND || o->kind == ORDER_REVOKE)
		script_word(c, n->token);
	if (o->kind == ORDER_REVOKE)
		script_word(c, o->record);
	if (o->kind != ORDER_ACQUIRE)
		script_word(c, digit(o->flag));
}

/* ---- answers ---- */

static bool
take_text(const redisReply *r, size_t i, char *out, size_t size)
{
	const redisReply *e = i < r->elements ? r->element[i] : NULL;

	if (!e || e->type != REDIS_REPLY_STRING)
		return false;
	snprintf(out, size, "%s", e->str);
	return true;
}

/* A number, or digits. */
static bool
take_number(const redisReply *r, size_t i, int64_t low, int64_t *out)
{
	const redisReply *e = i < r->elements ? r->element[i] : NULL;

	if (e && e->type == REDIS_REPLY_INTEGER)
		*out = e->integer;
	else if (e && e->type == REDIS_REPLY_STRING && e->len > 0 && e->len < 18 &&
	    e->str[strspn(e->str, "0123456789")] == '\0')
		*out = strtoll(e->str, NULL, 10);
	else
		return false;
	return *out >= low && *out < (int64_t)TOKEN_LIMIT;
}

static bool
read_acquire(struct vote *v, const redisReply *r)
{
	int64_t token;

	if (!take_number(r, 1, 0, &token) || !take_number(r, 2, -1, &v->uptime) ||
	    !take_text(r, 3, v->run, sizeof v->run) || !take_number(r, 4, 0, &v->longest))
		return false;
	v->token = token;
	if (v->verdict == VERDICT_YES)
		return token > 0;
	return v->verdict == VERDICT_NO && take_number(r, 5, -2, &v->left) &&
	    take_number(r, 6, -1, &v->held) &&
	    take_text(r, 7, v->owner, sizeof v->owner) &&
	    take_text(r, 8, v->record, sizeof v->record);
}

static bool
read_vote(struct vote *v, enum order_kind kind, const redisReply *r)
{
	int64_t verdict;

	if (!take_number(r, 0, 0, &verdict) || verdict >= VERDICTS)
		return false;
	v->verdict = verdict;
	if (kind == ORDER_ACQUIRE)
		return read_acquire(v, r);
	if (kind == ORDER_RELEASE && v->verdict == VERDICT_YES)
		return true;
	return (kind != ORDER_EXTEND && kind != ORDER_RELEASE) ||
	    take_text(r, 1, v->record, sizeof v->record);
}

/* ---- a master that has restarted ---- */

/* The value of a setting in an answer to CONFIG GET; "": it has none of that name. */
static const char *
setting_of(const redisReply *r, const char *name)
{
	for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i + 1 < r->elements; i += 2)
		if (r->element[i]->type == REDIS_REPLY_STRING &&
		    r->element[i + 1]->type == REDIS_REPLY_STRING &&
		    strcmp(r->element[i]->str, name) == 0)
			return r->element[i + 1]->str;
	return "";
}

/* Does it write down what it is told before it answers?  Who is not told thinks not. */
static enum rc
ask_durable(struct master *m)
{
	static const char command[] =
	    "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$7\r\nappend*\r\n";
	struct question q = {.command = command, .length = sizeof command - 1};
	redisReply *reply = NULL;
	enum rc rc = call_ask(&m->call, &q, m->order.until, &reply, &m->fault);

	if (rc != RC_OK || !reply)
		return rc;
	m->vote.durable = strcmp(setting_of(reply, "appendonly"), "yes") == 0 &&
	    strcmp(setting_of(reply, "appendfsync"), "always") == 0;
	freeReplyObject(reply);
	return RC_OK;
}

static enum rc
check_restart(struct master *m)
{
	const struct vote *v = &m->vote;

	if (v->uptime < 0)
		return fault_set(&m->fault, RC_CONFIG,
		    "%s does not tell how long it has run: its ACL needs +info",
		    m->where);
	return v->verdict == VERDICT_YES && !restart_is_over(v->uptime, v->longest, false)
	    ? ask_durable(m)
	    : RC_OK;
}

/* ---- orders ---- */

static enum rc
run_script(struct master *m)
{
	struct script_call c;
	struct numbers n;
	redisReply *reply;
	enum rc rc;

	order_write(&m->order, m->names, &n, &c);
	m->call.repeated = false;
	rc = script_run(&m->call, &c, m->order.until, &reply, &m->fault);
	if (rc != RC_OK)
		return rc;
	if (m->order.kind == ORDER_LOOK || m->order.kind == ORDER_SCAN) {
		m->reply = reply;
		return RC_OK;
	}
	m->vote.repeated = m->call.repeated;
	if (!read_vote(&m->vote, m->order.kind, reply))
		rc = script_nonsense(&m->call, &m->fault);
	freeReplyObject(reply);
	secret_blot(m->vote.record, m->address.password);
	return rc == RC_OK && m->order.kind == ORDER_ACQUIRE ? check_restart(m) : rc;
}

/* What it says does not matter: that it answers is reason to ask for the lock. */
static enum rc
master_listen(struct master *m)
{
	char seconds[24];
	const char *argv[] = {"BLPOP", m->names->wake, seconds};
	redisReply *reply = NULL;
	struct question q = {.command = NULL};
	char *command;
	int length;
	enum rc rc;

	snprintf(seconds, sizeof seconds, "%.3f", (double)m->order.lease / 1000);
	length = redisFormatCommandArgv(&command, 3, argv, NULL);
	if (length < 0)
		return fault_set(&m->fault, RC_SYSTEM, "out of memory");
	q.command = command;
	q.length = length;
	rc = call_ask(&m->call, &q, m->order.until, &reply, &m->fault);
	redisFreeCommand(command);
	if (rc == RC_OK && reply->type == REDIS_REPLY_ERROR)
		rc = call_refused(&m->call, reply->str, &m->fault);
	if (reply)
		freeReplyObject(reply);
	return rc;
}

void
master_run(void *arg)
{
	struct master *m = arg;

	while (m->has_next) {
		m->has_next = false;
		m->order = m->next;
		m->vote = (struct vote){.verdict = VERDICT_NO};
		freeReplyObject(m->reply);
		m->reply = NULL;
		m->rc = m->order.kind == ORDER_LISTEN ? master_listen(m) : run_script(m);
		m->answered = m->order.round;
		if (m->rc == RC_STOP)
			m->has_next = false;
	}
}

void
master_init(struct master *m, struct host *host, const struct master_names *names)
{
	m->names = names;
	address_print(&m->address, m->where, sizeof m->where);
	call_init(&m->call, host, &m->address, "");
}

void
master_close(struct master *m)
{
	call_free(&m->call);
	freeReplyObject(m->reply);
	explicit_bzero(&m->address, sizeof m->address);
}
