/* master.c - what one of the masters that vote on a lock is asked, and what it answers. */
#include "master.h"

#include "backends/common/text.h"

#include <stdio.h>
#include <string.h>

/* ---- what it is asked ---- */

static const char *
digit(bool is)
{
	return is ? "1" : "0";
}

/* The time is that before it is sent, so that no delay makes a master older. */
static void
order_say(const struct order *o, const struct master_names *names, struct script_call *c)
{
	static const char *const operations[] = {
	    "acquire", "extend", "release", "revoke", "meet", "look", "scan"};

	script_begin(c, &script_redlock);
	c->reads = o->kind >= ORDER_LOOK;
	if (o->kind != ORDER_SCAN) {
		script_key(c, names->lock);
		script_key(c, names->data);
		script_key(c, names->wake);
		/* where all masters keep which process of theirs has been met */
		script_key(c, "dlock:redlock-run");
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

/* What it says does not matter: that it answers is reason to ask for the lock. */
static int
write_listen(char **command, const struct order *o, const struct master_names *names)
{
	char seconds[24];

	snprintf(seconds, sizeof seconds, "%.3f", (double)o->lease / 1000);
	return redisFormatCommandArgv(
	    command, 3, (const char *[]){"BLPOP", names->wake, seconds}, NULL);
}

/*
 * One that has not answered the question before may not know the script, and nobody may be
 * there when it says so: it is sent the whole of it.  One that listens would not come to what
 * is sent behind, and is asked on another connection.
 */
void
master_ask(struct master *m, const struct order *order)
{
	bool listens = order->kind == ORDER_LISTEN, slow = m->peer->busy;
	char *command = NULL;
	int length;

	if (m->step == STEP_LISTEN && m->peer->busy)
		fan_close(m->peer);
	m->order = *order;
	m->step = listens ? STEP_LISTEN : STEP_SCRIPT;
	m->rc = RC_OK;
	m->foreign = false;
	m->vote = (struct vote){.verdict = VERDICT_NO};
	freeReplyObject(m->reply);
	m->reply = NULL;
	if (listens) {
		length = write_listen(&command, &m->order, m->names);
	} else {
		order_say(&m->order, m->names, &m->call);
		m->manner = (struct manner){.whole = slow, .reads = m->call.reads};
		length = script_write(&command, &m->call, &m->manner);
	}
	fan_say(m->fan, m->peer, command, length, order->until);
}

/* ---- what it answers ---- */

/* A word that is cut to size. */
static bool
read_text(const redisReply *r, size_t i, char *out, size_t size)
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
read_acquired(struct vote *v, const redisReply *r)
{
	int64_t token;

	if (!answer_members(r, 1, "nn", &token, &v->known) || !is_within(token, 0) ||
	    !is_within(v->known, -1) || !read_text(r, 3, v->run, sizeof v->run))
		return false;
	v->token = token;
	if (v->verdict == VERDICT_YES)
		return token > 0;
	return v->verdict == VERDICT_NO &&
	    answer_members(r, 4, "nn", &v->left, &v->held) && is_within(v->left, -2) &&
	    is_within(v->held, -1) && read_text(r, 6, v->owner, sizeof v->owner) &&
	    read_text(r, 7, v->record, sizeof v->record);
}

static bool
read_vote(struct vote *v, enum order_kind kind, const redisReply *r)
{
	int64_t verdict;

	if (!answer_members(r, 0, "n", &verdict) || verdict < 0 || verdict >= VERDICTS)
		return false;
	v->verdict = verdict;
	if (kind == ORDER_ACQUIRE)
		return read_acquired(v, r);
	if (kind == ORDER_RELEASE && v->verdict == VERDICT_YES)
		return true;
	return (kind != ORDER_EXTEND && kind != ORDER_RELEASE) ||
	    read_text(r, 1, v->record, sizeof v->record);
}

/* The value of a setting in an answer to CONFIG GET; "": it has none of that name. */
static const char *
setting_of(const redisReply *r, const char *wanted)
{
	const char *name, *value;

	for (size_t i = 0; i + 1 < r->elements; i += 2)
		if (answer_members(r, i, "ss", &name, &value) &&
		    strcmp(name, wanted) == 0)
			return value;
	return "";
}

static enum heard
master_refused(struct master *m, char *text)
{
	m->foreign = resp_is_foreign(text);
	m->rc = peer_refuses(m->peer, m->call.reads, text, &m->fault);
	return HEARD_ALL;
}

static enum heard
master_nonsense(struct master *m)
{
	struct peer *p = m->peer;

	p->rc = fault_set(&p->fault, RC_PROTOCOL,
	    "%s gave an answer that dlock's script does not give", m->where);
	return HEARD_WRONG;
}

/* One that we have not met: does it write down what it is told before it answers? */
static enum heard
master_ask_settings(struct master *m)
{
	char *command;
	int length = redisFormatCommandArgv(
	    &command, 3, (const char *[]){"CONFIG", "GET", "append*"}, NULL);

	m->step = STEP_SETTINGS;
	fan_say_more(m->peer, command, length);
	return HEARD_MORE;
}

/* In the manner that is left. */
static enum heard
master_say_script(struct master *m)
{
	char *command;
	int length = script_write(&command, &m->call, &m->manner);

	fan_say_more(m->peer, command, length);
	return HEARD_MORE;
}

/*
 * From now on it is known here.  What its settings are at this moment is what counts: they
 * may be changed later, when it has forgotten something.  One that does not tell them is not
 * sure.
 */
static enum heard
master_meet(struct master *m, const redisReply *settings)
{
	struct order o = {.kind = ORDER_MEET};

	m->step = STEP_MEET;
	o.flag = strcmp(setting_of(settings, "appendonly"), "yes") == 0 &&
	    strcmp(setting_of(settings, "appendfsync"), "always") == 0;
	order_say(&o, m->names, &m->call);
	m->call.words[m->call.keys + 1] = m->unmet;
	m->manner = (struct manner){.whole = m->manner.whole};
	return master_say_script(m);
}

static void
master_keep_unmet(struct master *m, int64_t known, const char *run)
{
	snprintf(m->unmet, sizeof m->unmet, "%s", known < 0 ? run : "");
}

/* Nobody waited for it; but if it is an acquire's, it tells whether we have met. */
static void
master_is_late(struct master *m, const redisReply *r)
{
	int64_t verdict, token, known;
	const char *run;

	if (answer_members(r, 0, "nnns", &verdict, &token, &known, &run))
		master_keep_unmet(m, known, run);
}

static enum heard
master_has_voted(struct master *m, const redisReply *r)
{
	if (!read_vote(&m->vote, m->order.kind, r))
		return master_nonsense(m);
	secret_blot(m->vote.record, m->address.password);
	if (m->order.kind == ORDER_ACQUIRE && !*m->vote.run) {
		m->rc = fault_set(&m->fault, RC_CONFIG,
		    "%s does not tell which process it is: its ACL needs +info",
		    m->where);
		return HEARD_ALL;
	}
	if (m->order.kind == ORDER_ACQUIRE)
		master_keep_unmet(m, m->vote.known, m->vote.run);
	return *m->unmet ? master_ask_settings(m) : HEARD_ALL;
}

static enum heard
master_is_met(struct master *m, const redisReply *r)
{
	struct vote sure;

	if (!read_vote(&sure, ORDER_MEET, r))
		return master_nonsense(m);
	if (sure.verdict == VERDICT_YES)
		m->vote.known = restart_enough();
	*m->unmet = '\0';
	return HEARD_ALL;
}

static enum heard
master_hear_script(struct master *m, redisReply **reply)
{
	if (script_change(&m->manner, *reply))
		return master_say_script(m);
	if ((*reply)->type == REDIS_REPLY_ERROR)
		return master_refused(m, (*reply)->str);
	if ((*reply)->type != REDIS_REPLY_ARRAY)
		return master_nonsense(m);
	if (m->step == STEP_MEET)
		return master_is_met(m, *reply);
	if (m->order.kind != ORDER_LOOK && m->order.kind != ORDER_SCAN)
		return master_has_voted(m, *reply);
	m->reply = *reply;
	*reply = NULL;
	return HEARD_ALL;
}

enum heard
master_hear(struct master *m, int number, redisReply **reply)
{
	struct peer *p = m->peer;

	if (number == FAN_LATE) {
		master_is_late(m, *reply);
		return HEARD_MORE;
	}
	if (number < 0) {
		return fan_hear_greeting(p, number, *reply);
	}
	if (m->step == STEP_SETTINGS)
		return master_meet(m, *reply);
	if (m->step != STEP_LISTEN)
		return master_hear_script(m, reply);
	return (*reply)->type == REDIS_REPLY_ERROR ? master_refused(m, (*reply)->str)
						   : HEARD_ALL;
}
