/* master.c - asks one of the masters that vote on a lock. */
#include "master.h"

#include "backends/common/secret.h"
#include "ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const operations[] = {
    "acquire", "extend", "release", "revoke", "meet", "look", "scan"};

/* Where all masters keep which process of theirs has been met. */
static const char run_key[] = "dlock:redlock-run";

static const char *
digit(bool is)
{
	return is ? "1" : "0";
}

/* The time is that before it is sent, so that no delay makes a master older. */
static void
order_write(
    const struct order *o, const struct master_names *names, struct script_call *c)
{
	script_begin(c, &script_redlock);
	c->reads = o->kind >= ORDER_LOOK;
	if (o->kind != ORDER_SCAN) {
		script_key(c, names->lock);
		script_key(c, names->data);
		script_key(c, names->wake);
		script_key(c, run_key);
	}
	script_word(c, operations[o->kind]);
	script_word(c, o->owner);
	if (o->kind == ORDER_ACQUIRE || o->kind == ORDER_EXTEND) {
		script_number(c, o->lease);
		script_word(c, o->record);
	}
	if (o->kind == ORDER_EXTEND || o->kind == ORDER_REVOKE)
		script_number(c, (int64_t)o->token);
	if (o->kind == ORDER_REVOKE)
		script_word(c, o->record);
	if (o->kind == ORDER_ACQUIRE || o->kind == ORDER_MEET) {
		script_word(c, names->clock);
		script_number(c, instant_now() / NS_PER_MS);
	}
	if (o->kind == ORDER_ACQUIRE)
		script_number(c, restart_enough());
	else
		script_word(c, digit(o->flag));
}

/* ---- answers ---- */

/* A word that is cut to size. */
static bool
take_text(const redisReply *r, size_t i, char *out, size_t size)
{
	const char *text;

	if (!answer_members(r, i, "s", &text))
		return false;
	snprintf(out, size, "%s", text);
	return true;
}

static bool
is_within(int64_t n, int64_t low)
{
	return n >= low && n < (int64_t)TOKEN_LIMIT;
}

static bool
read_acquire(struct vote *v, const redisReply *r)
{
	int64_t token;

	if (!answer_members(r, 1, "nn", &token, &v->known) || !is_within(token, 0) ||
	    !is_within(v->known, -1) || !take_text(r, 3, v->run, sizeof v->run))
		return false;
	v->token = token;
	if (v->verdict == VERDICT_YES)
		return token > 0;
	return v->verdict == VERDICT_NO &&
	    answer_members(r, 4, "nn", &v->left, &v->held) && is_within(v->left, -2) &&
	    is_within(v->held, -1) && take_text(r, 6, v->owner, sizeof v->owner) &&
	    take_text(r, 7, v->record, sizeof v->record);
}

static bool
read_vote(struct vote *v, enum order_kind kind, const redisReply *r)
{
	int64_t verdict;

	if (!answer_members(r, 0, "n", &verdict) || verdict < 0 || verdict >= VERDICTS)
		return false;
	v->verdict = verdict;
	if (kind == ORDER_ACQUIRE)
		return read_acquire(v, r);
	if (kind == ORDER_MEET || (kind == ORDER_RELEASE && v->verdict == VERDICT_YES))
		return true;
	return (kind != ORDER_EXTEND && kind != ORDER_RELEASE) ||
	    take_text(r, 1, v->record, sizeof v->record);
}

/* ---- scripts ---- */

/* RC_OK: *reply is the caller's. */
static enum rc
run_order(struct master *m, const struct order *o, redisReply **reply)
{
	struct script_call c;

	order_write(o, m->names, &c);
	return script_run(&m->route, &c, o->until, reply, &m->fault);
}

static enum rc
run_vote(struct master *m, const struct order *o, struct vote *v)
{
	redisReply *reply;
	enum rc rc = run_order(m, o, &reply);

	if (rc != RC_OK)
		return rc;
	if (!read_vote(v, o->kind, reply))
		rc = script_nonsense(&m->route, &m->fault);
	freeReplyObject(reply);
	return rc;
}

/* ---- a master that we have not met ---- */

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
ask_durable(struct master *m, bool *is)
{
	static const char command[] =
	    "*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$7\r\nappend*\r\n";
	struct question q = {.command = command, .length = sizeof command - 1};
	redisReply *reply = NULL;
	enum rc rc = route_ask(&m->route, &q, m->order.until, &reply, &m->fault);

	if (rc != RC_OK || !reply)
		return rc;
	*is = strcmp(setting_of(reply, "appendonly"), "yes") == 0 &&
	    strcmp(setting_of(reply, "appendfsync"), "always") == 0;
	freeReplyObject(reply);
	return RC_OK;
}

/*
 * From now on it is known here.  What its settings are at this moment is what counts: they
 * may be changed later, when it has forgotten something.
 */
static enum rc
meet(struct master *m)
{
	struct order o = {.kind = ORDER_MEET, .until = m->order.until};
	struct vote sure = {.verdict = VERDICT_NO};
	enum rc rc;

	snprintf(o.owner, sizeof o.owner, "%s", m->vote.run);
	rc = ask_durable(m, &o.flag);
	if (rc == RC_OK)
		rc = run_vote(m, &o, &sure);
	if (rc == RC_OK && sure.verdict == VERDICT_YES)
		m->vote.known = restart_enough();
	return rc;
}

static enum rc
check_restart(struct master *m)
{
	if (!*m->vote.run)
		return fault_set(&m->fault, RC_CONFIG,
		    "%s does not tell which process it is: its ACL needs +info",
		    m->where);
	return m->vote.known < 0 ? meet(m) : RC_OK;
}

/* ---- orders ---- */

static enum rc
run_script(struct master *m)
{
	enum rc rc;

	m->route.repeated = false;
	if (m->order.kind == ORDER_LOOK || m->order.kind == ORDER_SCAN)
		return run_order(m, &m->order, &m->reply);
	m->route.foreign = false;
	rc = run_vote(m, &m->order, &m->vote);
	m->vote.repeated = m->route.repeated;
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
	rc = route_ask(&m->route, &q, m->order.until, &reply, &m->fault);
	redisFreeCommand(command);
	if (rc == RC_OK && reply->type == REDIS_REPLY_ERROR)
		rc = server_refused(&m->route.server, reply->str, &m->fault);
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
	route_init(&m->route, host, &m->address, "");
}

void
master_close(struct master *m)
{
	route_free(&m->route);
	freeReplyObject(m->reply);
	explicit_bzero(&m->address, sizeof m->address);
}
