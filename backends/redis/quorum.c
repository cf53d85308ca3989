/* quorum.c - N independent masters, asked at once. */
#include "quorum.h"

#include "backends/common/refuse.h"
#include "backends/common/retry.h"
#include "backends/redis/redlock.lua.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#ifndef LONGEST_MS
#define LONGEST_MS 60000
#endif
#ifndef MARGIN_MS /* for clocks of holders and waiters that differ by less than 1 % in speed */
#define MARGIN_MS 1000
#endif

const int64_t quorum_longest = LONGEST_MS, quorum_enough = LONGEST_MS + MARGIN_MS;

/* ---- its life ---- */

static enum heard quorum_take(void *ctx, size_t i, int number, redisReply **);

enum rc
quorum_begin(struct quorum *q, struct host *host, const struct address *a,
    const char *where, struct fault *f)
{
	enum rc rc = RC_OK;

	*q = (struct quorum){.host = host, .where = where, .n = a->n};
	q->need = q->n / 2 + 1;
	q->masters = calloc(q->n, sizeof *q->masters);
	if (!q->masters ||
	    !fan_begin(&q->fan, host, a, "redis ", &resp_usual, quorum_take, q))
		rc = fault_set(f, RC_SYSTEM, "no descriptor, or no memory, is left");
	for (size_t i = 0; rc == RC_OK && i < q->n; i++) {
		struct peer *p = q->masters[i].peer = &q->fan.peers[i];

		/* the name for people says where one is, and nothing else */
		for (size_t j = 0; j < i; j++)
			if (strcasecmp(p->where, q->fan.peers[j].where) == 0)
				rc = fault_set(f, RC_USAGE,
				    "the redlock URL names the same host twice (redlock" TLS_SCHEME
				    "://[user:password@]host[:port],host,host...[/db])");
	}
	if (rc != RC_OK)
		quorum_end(q);
	return rc;
}

void
quorum_end(struct quorum *q)
{
	fan_end(&q->fan);
	for (size_t i = 0; q->masters && i < q->n; i++)
		freeReplyObject(q->masters[i].reply);
	free(q->masters);
}

/* In whatever order the URL names them. */
static size_t
listener_of(const struct quorum *q, const char *key)
{
	char text[WHERE_BYTES + KEY_BYTES + 2];
	uint64_t best = 0;
	size_t at = 0;

	for (size_t i = 0; i < q->n; i++) {
		uint64_t h, state;

		snprintf(text, sizeof text, "%s %s", q->fan.peers[i].where, key);
		state = jitter_of(text);
		h = (uint64_t)jitter_below(&state, INT64_MAX);
		if (h > best || i == 0) {
			best = h;
			at = i;
		}
	}
	return at;
}

void
quorum_name(struct quorum *q, const char *key, bool bare)
{
	char tag[ENCODED_BYTES];

	encode_key(tag, sizeof tag, key);
	snprintf(q->lock, sizeof q->lock, bare ? "%s" : "dlock:{%s}:redlock",
	    bare ? key : tag);
	snprintf(q->data, sizeof q->data, "dlock:{%s}:redlock-data", tag);
	snprintf(q->wake, sizeof q->wake, "dlock:{%s}:redlock-wake", tag);
	q->listener = listener_of(q, key);
}

void
quorum_name_clock(struct quorum *q, const char *owner)
{
	char boot[48], space[32];
	ssize_t n = readlink("/proc/self/ns/time", space, sizeof space - 1);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	space[n > 0 ? n : 0] = '\0';
	n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
	if (fd >= 0)
		close(fd);
	boot[n > 0 ? n : 0] = '\0';
	boot[strcspn(boot, " \n")] = '\0';
	/* a container may have a clock of its own */
	snprintf(q->clock, sizeof q->clock, "%s %s", *boot ? boot : owner, space);
}

/* ---- what one of them is asked ---- */

static void
call_begin(
    const struct quorum *q, struct script_call *c, enum asking asking, const char *owner)
{
	static const char *const operations[] = {
	    "acquire", "extend", "release", "revoke", "meet", "look", "scan"};

	static const struct script redlock = {
	    redlock_lua, sizeof redlock_lua, redlock_sha1};

	script_begin(c, &redlock);
	c->reads = asking >= ASK_LOOK;
	if (asking != ASK_SCAN) {
		script_key(c, q->lock);
		script_key(c, q->data);
		script_key(c, q->wake);
		/* where all masters keep which process of theirs has been met */
		script_key(c, "dlock:redlock-run");
	}
	script_word(c, operations[asking]);
	script_word(c, owner);
}

struct script_call *
quorum_say(struct quorum *q, enum asking asking, const char *owner)
{
	q->asking = asking;
	call_begin(q, &q->call, asking, owner);
	return &q->call;
}

/*
 * One that has not answered the question before may not know the script, and nobody may be
 * there when it says so: it is sent the whole of it.  One that listens would not come to what
 * is sent behind, and is asked on another connection.
 */
static void
master_ask(struct quorum *q, struct master *m, instant until)
{
	struct peer *p = m->peer;
	bool slow = peer_is_busy(p);
	char *command, seconds[24];

	if (m->asking == ASK_LISTEN && slow)
		fan_close(p);
	m->asking = q->asking;
	m->step = STEP_ASKED;
	m->foreign = false;
	m->vote = (struct vote){.verdict = VERDICT_NO};
	freeReplyObject(m->reply);
	m->reply = NULL;
	if (q->asking == ASK_LISTEN) {
		snprintf(seconds, sizeof seconds, "%.3f",
		    (double)(until - instant_now()) / NS_PER_S);
		command = resp_write(&(resp_words){"BLPOP", q->wake, seconds}, 1);
		until += NS_PER_S;
	} else {
		m->manner = (struct manner){.whole = slow, .reads = q->call.reads};
		command = script_write(&q->call, &m->manner);
	}
	fan_say(&q->fan, p, command, until);
}

void
quorum_ask(struct quorum *q, instant until, bool (*whom)(const struct master *))
{
	for (size_t i = 0; i < q->n; i++)
		q->masters[i].asked = !whom || whom(&q->masters[i]);
	/* whoever listens there is told when the others have been */
	for (size_t n = 1; n <= q->n; n++) {
		struct master *m = &q->masters[(q->listener + n) % q->n];

		if (m->asked)
			master_ask(q, m, until);
	}
}

void
quorum_ask_one(struct quorum *q, size_t one, instant until)
{
	for (size_t i = 0; i < q->n; i++)
		q->masters[i].asked = i == one;
	master_ask(q, &q->masters[one], until);
}

/* ---- what one of them answers ---- */

/* A word that is cut to size. */
static bool
vote_text(const redisReply *r, size_t i, char *out, size_t size)
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
	    !is_within(v->known, -1) || !vote_text(r, 3, v->run, sizeof v->run))
		return false;
	v->token = token;
	if (v->verdict == VERDICT_YES)
		return token > 0;
	return v->verdict == VERDICT_NO &&
	    answer_members(r, 4, "nn", &v->left, &v->held) && is_within(v->left, -2) &&
	    is_within(v->held, -1) && vote_text(r, 6, v->owner, sizeof v->owner) &&
	    vote_text(r, 7, v->record, sizeof v->record);
}

static bool
read_seen(struct vote *v, const redisReply *r)
{
	int64_t token, revoked, remembers;

	if (!answer_members(r, 0, "o", &v->now) || v->now < 0 ||
	    !vote_text(r, 1, v->owner, sizeof v->owner) ||
	    !answer_members(r, 2, "oooi", &token, &v->since, &v->until, &revoked) ||
	    !vote_text(r, 6, v->record, sizeof v->record) ||
	    !answer_members(r, 7, "i", &remembers))
		return false;
	v->token = token > 0 ? token : 0;
	v->revoked = revoked == 1;
	v->remembers = remembers == 1;
	return true;
}

static bool
read_vote(struct vote *v, enum asking asking, const redisReply *r)
{
	int64_t verdict;

	if (asking == ASK_LOOK)
		return read_seen(v, r);
	if (!answer_members(r, 0, "n", &verdict) || verdict < 0 || verdict >= VERDICTS)
		return false;
	v->verdict = verdict;
	if (asking == ASK_ACQUIRE)
		return read_acquired(v, r);
	if (asking == ASK_RELEASE && v->verdict == VERDICT_YES)
		return true;
	return (asking != ASK_EXTEND && asking != ASK_RELEASE) ||
	    vote_text(r, 1, v->record, sizeof v->record);
}

static enum heard
master_nonsense(struct peer *p)
{
	p->rc = fault_set(&p->fault, RC_PROTOCOL,
	    "%s gave an answer that dlock's script does not give", p->stream.where);
	return HEARD_WRONG;
}

static enum heard
master_go_on(struct master *m, const struct script_call *c)
{
	fan_say_more(m->peer, script_write(c, &m->manner));
	return HEARD_MORE;
}

/*
 * From now on it is known here.  What its settings are at this moment is what counts: they
 * may be changed later, when it has forgotten something.  One that does not tell them is not
 * sure.  (The time is that before it is sent, so that no delay makes a master older.)
 */
static enum heard
master_meet(struct quorum *q, struct master *m, const redisReply *settings)
{
	struct script_call c;

	if (settings)
		m->sure = strcmp(answer_setting(settings, "appendonly"), "yes") == 0 &&
		    strcmp(answer_setting(settings, "appendfsync"), "always") == 0;
	m->step = STEP_MEET;
	call_begin(q, &c, ASK_MEET, m->unmet);
	script_word(&c, q->clock);
	script_number(&c, instant_now() / NS_PER_MS);
	script_word(&c, m->sure ? "1" : "0");
	return master_go_on(m, &c);
}

static void
master_keep_unmet(struct master *m, int64_t known, const char *run)
{
	snprintf(m->unmet, sizeof m->unmet, "%s", known < 0 ? run : "");
}

/* One that we have not met: does it write down what it is told before it answers? */
static enum heard
master_has_voted(struct master *m, const redisReply *r)
{
	struct peer *p = m->peer;

	if (!read_vote(&m->vote, m->asking, r))
		return master_nonsense(p);
	if (m->asking == ASK_ACQUIRE && !*m->vote.run) {
		p->rc = fault_set(&p->fault, RC_CONFIG,
		    "%s does not say which process it is: allow the user +info",
		    p->where);
		return HEARD_ALL;
	}
	if (m->asking == ASK_ACQUIRE)
		master_keep_unmet(m, m->vote.known, m->vote.run);
	if (!*m->unmet)
		return HEARD_ALL;
	m->step = STEP_SETTINGS;
	fan_say_more(p, resp_write(&(resp_words){"CONFIG", "GET", "append*"}, 1));
	return HEARD_MORE;
}

/* One that was not asked in this round does not say again what is no longer asked. */
static enum heard
master_hear_script(struct quorum *q, struct master *m, redisReply **reply)
{
	struct peer *p = m->peer;
	struct vote sure;

	if (m->asked && script_change(&m->manner, *reply))
		return m->step == STEP_MEET ? master_meet(q, m, NULL)
					    : master_go_on(m, &q->call);
	if ((*reply)->type == REDIS_REPLY_ERROR) {
		m->foreign = resp_says((*reply)->str, "WRONGTYPE");
		p->rc = peer_refuses(p, m->asking >= ASK_LOOK, script_about(&q->call),
		    (*reply)->str, &p->fault);
		return HEARD_ALL;
	}
	if (m->asking == ASK_LISTEN)
		return HEARD_ALL;
	if ((*reply)->type != REDIS_REPLY_ARRAY)
		return master_nonsense(p);
	if (m->step == STEP_MEET) {
		if (!read_vote(&sure, ASK_MEET, *reply))
			return master_nonsense(p);
		if (sure.verdict == VERDICT_YES)
			m->vote.known = quorum_enough;
		*m->unmet = '\0';
		return HEARD_ALL;
	}
	if (m->asking != ASK_SCAN)
		return master_has_voted(m, *reply);
	m->reply = *reply;
	*reply = NULL;
	return HEARD_ALL;
}

static enum heard
quorum_take(void *ctx, size_t i, int number, redisReply **reply)
{
	struct quorum *q = ctx;
	struct master *m = &q->masters[i];
	int64_t verdict, token, known;
	const char *run;

	if (number == FAN_LATE) {
		/* nobody waited for it; but if it is an acquire's, it tells whether we have met */
		if (answer_members(*reply, 0, "nnns", &verdict, &token, &known, &run))
			master_keep_unmet(m, known, run);
		return HEARD_MORE;
	}
	return m->step == STEP_SETTINGS ? master_meet(q, m, *reply)
					: master_hear_script(q, m, reply);
}

/* ---- a round ---- */

/*
 * Has it voted at the same address as one before it?  A name that has moved may lead to the
 * server of another one.  (Who asks for a lock compares what the servers say of themselves.)
 */
static bool
is_twin(const struct quorum *q, size_t i)
{
	const struct sockaddr_storage *own = &q->fan.peers[i].last;

	for (size_t j = 0; j < i; j++)
		if (own->ss_family && master_has_vote(&q->masters[j]) &&
		    memcmp(own, &q->fan.peers[j].last, sizeof *own) == 0)
			return true;
	return false;
}

static bool
has_heard_enough(void *ctx)
{
	struct quorum *q = ctx;
	struct tally *t = &q->tally;

	*t = (struct tally){.open = 0};
	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];
		const struct vote *v = &m->vote;

		t->open += m->asked && !master_is_heard(m);
		t->failed += master_is_heard(m) && m->peer->rc != RC_OK;
		t->foreign += master_is_heard(m) && m->peer->rc != RC_OK && m->foreign;
		if (!master_has_vote(m))
			continue;
		if (m->asking != ASK_ACQUIRE && is_twin(q, i)) {
			t->failed++;
			continue;
		}
		t->answered++;
		t->votes[v->verdict]++;
		t->repeated = t->repeated || m->peer->repeated;
		if (v->verdict == VERDICT_YES && m->asking == ASK_ACQUIRE)
			t->young += v->known < quorum_enough;
		if (v->verdict == VERDICT_YES && v->token > t->token)
			t->token = v->token;
	}
	return t->open == 0 || (q->enough && q->enough(q));
}

enum rc
quorum_hear(struct quorum *q, instant until, bool (*enough)(const struct quorum *))
{
	enum rc rc;

	q->enough = enough;
	rc = fan_hear(&q->fan, until, has_heard_enough);
	has_heard_enough(q);
	return rc;
}

bool
quorum_has_voted(const struct quorum *q)
{
	const struct tally *t = &q->tally;

	return t->votes[VERDICT_YES] >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && t->open == 0);
}

/* ---- what was heard in it ---- */

size_t
quorum_votes_of(const struct quorum *q, const char *owner)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		n += master_has_vote(m) && m->vote.verdict == VERDICT_NO &&
		    strcmp(m->vote.owner, owner) == 0;
	}
	return n;
}

const struct vote *
quorum_find_holder(const struct quorum *q)
{
	const struct vote *found = NULL;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (master_has_vote(m) && m->vote.verdict == VERDICT_NO &&
		    *m->vote.owner && quorum_votes_of(q, m->vote.owner) >= q->need &&
		    (!found || !*found->record))
			found = &m->vote;
	}
	return found;
}

bool
quorum_is_broken(const struct quorum *q, enum rc *rc, struct fault *f)
{
	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (!master_has_vote(m) || !*m->vote.record)
			continue;
		*rc = refuse_broken(q->host, f, *rc, q->where, m->vote.record);
		return true;
	}
	return false;
}

enum rc
quorum_refused(const struct quorum *q, struct fault *f)
{
	const struct peer *first = NULL, *permanent = NULL;
	const struct tally *t = &q->tally;
	size_t n = 0, missing = t->failed, may_fail = q->n - q->need;

	for (size_t i = 0; i < q->n; i++) {
		const struct peer *p = &q->fan.peers[i];

		if (!master_is_heard(&q->masters[i]) || p->rc == RC_OK)
			continue;
		if (!first)
			first = p;
		if (p->rc != RC_AGAIN && p->rc != RC_STOP && n++ == 0)
			permanent = p;
	}
	if (n > may_fail)
		return fault_set(f, permanent->rc,
		    "%.500s (so it is on %zu of %zu masters)", permanent->fault.text, n,
		    q->n);
	if (missing <= may_fail)
		missing = q->n - t->answered;
	if (missing <= may_fail)
		return fault_set(f, RC_AGAIN,
		    "only %zu of %zu masters say that it is ours, and %zu must",
		    t->votes[VERDICT_YES], q->n, q->need);
	return fault_set(f, RC_AGAIN,
	    "%zu of %zu masters do not answer, and only %zu may fail (%.400s)", missing,
	    q->n, may_fail, first ? first->fault.text : "all are silent");
}

enum rc
quorum_check_twins(const struct quorum *q, struct fault *f)
{
	for (size_t i = 0; i < q->n; i++)
		for (size_t j = 0; j < i; j++) {
			const struct master *a = &q->masters[j], *b = &q->masters[i];

			if (master_has_vote(a) && master_has_vote(b) && *a->vote.run &&
			    strcmp(a->vote.run, b->vote.run) == 0)
				return fault_set(f, RC_CONFIG,
				    "%.150s and %.150s are one server, whose vote would count twice",
				    a->peer->where, b->peer->where);
		}
	return RC_OK;
}
