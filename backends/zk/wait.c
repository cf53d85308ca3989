/* wait.c - waits in the queue for our turn, and takes it. */
#include "wait.h"

#include "holders.h"
#include "stranger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_BEAT NS_PER_S /* to look whether it has taken it */
/* to look at the queue when there are up to NEAR ahead, */
#define NEAR_BEAT (2 * NS_PER_S)
#define FAR_BEAT (10 * NS_PER_S) /* or more */
/* times our place: so often we want to know it anew */
#define SIGHT NS_PER_S

enum { NEAR = 8 };

static enum rc
place_is_lost(const struct turn *t, struct fault *f)
{
	return fault_set(
	    f, RC_LOST, "%s: our place in the queue was deleted", t->node->dir->where);
}

/* ---- our place ---- */

/*
 * Twice the number of children that have left a directory: a change is either a birth or
 * a death.
 */
static uint32_t
departed(const struct Stat *directory)
{
	return (uint32_t)directory->cversion - (uint32_t)directory->numChildren;
}

static void
note_freeze(struct turn *t, int64_t now)
{
	int64_t left = t->freeze.until - now;

	t->thaws = NEVER;
	if (t->freeze.on && t->freeze.until != NEVER && now >= 0)
		t->thaws = instant_now() + (left > 0 ? left : 0);
	if (t->freeze.on) /* their turn has not come */
		idlers_forget(&t->idlers);
}

enum rc
turn_heed_freeze(struct turn *t, struct place *p, const char *part,
    const char *const *names, size_t n, struct fault *f)
{
	struct node *own = t->node;
	int64_t now = node_server_now(own);
	enum rc rc = RC_OK;

	t->freeze.on = false;
	if (p->freeze)
		rc = freeze_look(&t->freeze, own->session, own->dir->path, part, names, n,
		    now, true, turn_answer_by(t), f);
	note_freeze(t, now);
	if (!t->freeze.on)
		t->host->seen.holding.frozen = false;
	if (rc == RC_OK && t->freeze.on)
		queue_hold_back(p, t->freeze.name);
	return rc;
}

/* Our place in the list. */
static enum rc
place_find(struct turn *t, struct fault *f)
{
	struct queue q = {.layout = t->node->dir->layout};
	struct place *p = &t->place;
	int code;
	enum rc rc = call_await(t->list, turn_answer_by(t), &code, f);

	if (rc != RC_OK)
		return rc;
	q.names = call_names(t->list, &q.n);
	queue_look(p, &q, strrchr(t->node->path, '/') + 1);
	rc = stranger_refuse(
	    t->node, t->host, t->claim, p, t->list, turn_answer_by(t), f);
	if (rc == RC_OK && !p->found)
		rc = place_is_lost(t, f);
	if (rc != RC_OK)
		return rc;
	retry_end_outage(t->patience);
	t->census = (struct census){departed(call_stat(t->list)), instant_now()};
	t->queued = true;
	node_note(t->node, EVENT_SEEN);
	return turn_heed_freeze(t, p, "", q.names, q.n, f);
}

/*
 * May the owner of the node ahead have been granted the lock after we have read the list?
 * It writes its node then.  What others write into it is reason to look once.
 */
static bool
may_be_granted(struct turn *t, const struct call *ahead)
{
	int64_t written = call_stat(ahead)->mzxid;
	bool news = written > call_stat(t->list)->pzxid && written != t->ahead_written;

	t->ahead_written = written;
	return news && data_stage(call_text(ahead)) != STAGE_WAITING;
}

/*
 * Asks to be told of the end of the node ahead, or of its grant.  *over: that has
 * happened already.
 */
static enum rc
watch_node(struct turn *t, bool *over, struct fault *f)
{
	struct session *s = t->node->session;
	char path[NODE_BYTES];
	struct call *c;
	int code = ZOK;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", t->node->dir->path, t->place.ahead);
	c = t->place.awaits == AWAITS_CHANGE ? call_watch_data(s, path)
					     : call_watch(s, path);
	rc = call_await(c, turn_answer_by(t), &code, f);
	*over = rc == RC_OK &&
	    (code == ZNONODE ||
		(t->place.awaits == AWAITS_CHANGE && may_be_granted(t, c)));
	call_drop(c);
	return rc;
}

/* Asks to be told when the list changes, which it may have done since we read it. */
static enum rc
watch_list(struct turn *t, bool *over, struct fault *f)
{
	enum rc rc;

	call_drop(t->list);
	t->list = call_watch_list(t->node->session, t->node->dir->path);
	rc = place_find(t, f);
	*over = rc == RC_OK && (t->place.position == 0 || t->place.awaits != AWAITS_LIST);
	return rc;
}

static enum rc
watch_ahead(struct turn *t, bool *over, struct fault *f)
{
	return t->place.awaits == AWAITS_LIST ? watch_list(t, over, f)
					      : watch_node(t, over, f);
}

/* ---- waiting ---- */

/* Whoever stands far behind, and has heard of a freeze when it came: is that over? */
static enum rc
look_at_freeze(struct turn *t, struct fault *f)
{
	struct host *h = t->host;
	char path[NODE_BYTES];
	struct call *c;
	int code;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", t->node->dir->path, t->freeze.name);
	c = call_exists(t->node->session, path);
	rc = call_finish(c, turn_answer_by(t), &code, f);
	if (rc == RC_OK && code == ZNONODE) {
		t->freeze.on = h->seen.holding.frozen = false;
		t->thaws = NEVER;
		h->seen.holding.held = -1;
		h->seen.holding.record[0] = '\0'; /* it was who had frozen it */
	}
	return rc;
}

/*
 * Asks for the directory's counts, whereby the leader hears of us, too.  *moved: some
 * have left, and we may be near the head, or have not known our place for long.  All
 * of them may have stood behind us; then our place is as it was.
 */
static enum rc
count_departed(struct turn *t, bool *moved, struct fault *f)
{
	struct call *c = call_exists(t->node->session, t->node->dir->path);
	int code;
	enum rc rc = call_await(c, turn_answer_by(t), &code, f);
	uint32_t left = rc == RC_OK ? (departed(call_stat(c)) - t->census.departed) / 2
				    : 0;
	size_t position = t->place.position;

	call_drop(c);
	if (rc == RC_OK && code != ZOK)
		return place_is_lost(t, f);
	if (rc == RC_OK)
		retry_end_outage(t->patience);
	*moved = left > 0 &&
	    (position <= (size_t)NEAR + left ||
		instant_now() >= t->census.taken + (int64_t)position * SIGHT);
	return rc == RC_OK && left > 0 && !*moved && t->freeze.on ? look_at_freeze(t, f)
								  : rc;
}

/* Those near the head see first that a freeze has ended; the others may hear of it. */
static instant
thaws_for(const struct turn *t)
{
	size_t position = t->place.position;

	return instant_after(t->thaws, position > NEAR ? (int64_t)position * SIGHT : 0);
}

/* When to look at the queue though nobody called: the nearer our turn, the sooner. */
instant
turn_beat(struct turn *t)
{
	struct credit credit = session_look(t->node->session).credit;
	int64_t beat = NEAR_BEAT;

	if (t->place.position > NEAR)
		beat = FAR_BEAT;
	else if (t->idlers.first.czxid || t->idlers.other.czxid)
		beat = IDLE_BEAT;
	return instant_first(
	    instant_now() + instant_first(credit_life(&credit), beat), thaws_for(t));
}

static bool
was_called(const struct turn *t)
{
	return session_look(t->node->session).called;
}

enum rc
turn_doze(struct turn *t, instant beat, instant until, struct fault *f)
{
	struct session *s = t->node->session;
	const char *where = t->node->dir->where;
	struct session_view v = session_look(s);
	enum rc rc = RC_OK;

	for (; rc == RC_OK && !v.called && instant_now() < beat; v = session_look(s)) {
		if (instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", where);
		if (v.alarmed)
			session_clear_alarm(s);
		if (v.alarmed)
			return place_is_lost(t, f);
		if (!v.connected)
			return fault_set(f, RC_AGAIN, "%s: connection lost", where);
		rc = session_sleep(s, instant_first(beat, until), f);
		if (rc == RC_AGAIN)
			rc = RC_OK; /* it was only the time */
	}
	return rc;
}

/*
 * Waits until there is reason to list the queue anew; first looks at `beat`.  RC_BUSY:
 * `until` has come.
 */
static enum rc
await_change(struct turn *t, instant beat, instant until, struct fault *f)
{
	bool moved = false;
	enum rc rc = RC_OK;

	for (; rc == RC_OK && !moved && !was_called(t); beat = turn_beat(t)) {
		rc = turn_doze(t, beat, until, f);
		if (rc != RC_OK || was_called(t) || instant_now() >= thaws_for(t))
			break;
		rc = count_departed(t, &moved, f);
		if (rc == RC_OK && !moved && t->place.position <= NEAR)
			rc = holders_look_at(t, f);
	}
	return rc;
}

/*
 * Returns when there is reason to list the queue anew: the node ahead is gone, or
 * others are.  RC_BUSY: `until` has come, or is 0: no waiting.
 */
static enum rc
wait_behind(struct turn *t, instant until, struct fault *f)
{
	bool over;
	enum rc rc;

	/* through another connection than before: much may have happened */
	if (t->node->state == STATE_WATCHING)
		return await_change(t, instant_now(), until, f);
	rc = watch_ahead(t, &over, f);
	if (rc == RC_OK && !over)
		rc = holders_look_at_first(t, f);
	if (rc != RC_OK || over)
		return rc;
	if (until == 0)
		return fault_set(f, RC_BUSY, "%s: %s", t->node->dir->where,
		    t->host->seen.holding.frozen ? "frozen" : "held");
	node_note(t->node, EVENT_WATCHED);
	return await_change(t, turn_beat(t), until, f);
}

/*
 * For those behind us, who must know a waiter from a holder.  *set is a write that has
 * said that our turn had come, and was wrong.
 */
static enum rc
mark_as_waiter(struct turn *t, struct call **set, struct fault *f)
{
	struct grant unused;
	struct call *wrong = *set;
	bool written;
	enum rc rc = RC_OK;

	*set = NULL;
	if (wrong)
		rc = node_written(
		    t->node, wrong, turn_answer_by(t), &unused, &written, f);
	if (rc != RC_OK)
		return rc;
	node_guard(t->node);
	t->node->said.stage = STAGE_WAITING;
	return node_written(
	    t->node, node_write(t->node), turn_answer_by(t), &unused, &written, f);
}

enum rc
turn_serve(struct turn *t, struct fault *f)
{
	struct node *n = t->node;
	enum stage before = n->said.stage;
	struct grant unused;
	bool written;
	enum rc rc;

	if (before == STAGE_WAITED)
		return RC_OK;
	/* not so far, if we were the first at once */
	node_guard(n);
	n->said.stage = STAGE_WAITED;
	rc = node_written(n, node_write(n), turn_answer_by(t), &unused, &written, f);
	if (!written) /* it says so only when that is certain */
		n->said.stage = before;
	return rc;
}

/* ---- our turn ---- */

/*
 * The write with which a waiter takes what has become its own; where there is no queue, the
 * node is as old as the grant.
 */
static struct call *
claim_turn(struct turn *t)
{
	if (!t->node->dir->layout->single)
		t->node->said.stage = STAGE_WAITED;
	return node_write(t->node);
}

/* A name that is not ours alone may be another's by now: RC_LOST. */
static enum rc
delete_own(struct turn *t, struct fault *f)
{
	struct node *n = t->node;
	int code = ZBADVERSION;
	enum rc rc = RC_OK;

	while (rc == RC_OK && code == ZBADVERSION) {
		int version = n->dir->layout->single ? n->said.version : -1;

		if (instant_now() >= t->over)
			return fault_set(f, RC_AGAIN,
			    "%s: somebody writes to our node all the time",
			    n->dir->where);
		rc = call_finish(
		    call_delete(n->session, n->path, version), t->over, &code, f);
		if (rc == RC_OK && code == ZBADVERSION)
			rc = node_read(n, t->over, f);
	}
	return rc;
}

/* Who is asked to give up what it does not yet have goes back to the end of the queue. */
static enum rc
yield_turn(struct turn *t, struct fault *f)
{
	struct node *n = t->node;
	enum rc rc = delete_own(t, f);

	n->revocation.news = rc != RC_OK &&
	    rc != RC_LOST; /* else the next attempt takes what it was to give up */
	return rc == RC_OK ? fault_set(f, RC_LOST,
				 "%s: our place in the queue was revoked", n->dir->where)
			   : rc;
}

/*
 * Is it the lease that later renewals will keep up?  One that is shorter says nothing
 * about the settings.
 */
static bool
is_steady(struct turn *t, const struct grant *g)
{
	struct credit credit = session_look(t->node->session).credit;

	return g->lease > 0 && g->lease >= credit_steady(&credit);
}

/* From now on we must earn a lease within the ttl. */
static void
begin_turn(struct turn *t)
{
	t->over = instant_first(t->over, instant_after(instant_now(), t->claim->ttl));
}

static enum rc
is_too_slow(const struct turn *t, struct fault *f)
{
	return fault_set(
	    f, RC_AGAIN, "%s: answers too slowly for this --ttl", t->node->dir->where);
}

/*
 * Our turn has come: earns the lease by writing our node.  While the leader has not heard
 * of us for long enough, that would be too short a lease: then once more.  After the ttl
 * our turn is over.
 */
static enum rc
take_turn(struct turn *t, struct grant *g, struct fault *f)
{
	struct call *set = claim_turn(t);
	bool written;
	enum rc rc;

	begin_turn(t);
	for (;; set = node_write(t->node)) {
		struct credit credit;

		rc = node_written(t->node, set, t->over, g, &written, f);
		if (rc == RC_OK && t->node->revocation.news)
			rc = yield_turn(t, f);
		if (rc != RC_OK || (written && is_steady(t, g)))
			return rc;
		if (instant_now() >= t->over)
			return is_too_slow(t, f);
		credit = session_look(t->node->session).credit;
		if (written &&
		    t->host->wait(t->host, -1, 0, instant_now() + credit_pace(&credit)) ==
			WOKE_STOP)
			return RC_STOP;
	}
}

/*
 * The queue as it is now.  With `claim` we take our turn in our node before we read it:
 * *set is that write.
 */
static void
list_anew(struct turn *t, bool claim, struct call **set)
{
	node_note(t->node, EVENT_LIST_ANEW);
	call_drop(t->list);
	call_drop(*set);
	*set = claim ? claim_turn(t) : NULL;
	t->list = call_list(t->node->session, t->node->dir->path);
}

/* Until nobody is ahead of us. */
static enum rc
await_head(
    struct turn *t, instant until, struct grant *g, struct call **set, struct fault *f)
{
	for (;;) {
		enum rc rc = t->node->state == STATE_WATCHING ? RC_OK : place_find(t, f);

		if (rc != RC_OK || t->place.position == 0)
			return rc;
		t->over = NEVER;
		if (until && !t->node->said.marked)
			rc = mark_as_waiter(t, set, f);
		if (rc == RC_OK)
			rc = wait_behind(t, until, f);
		if (rc != RC_OK)
			return rc;
		/* what create has earned is too long ago */
		*g = (struct grant){.anchor = -1};
		/* if we were called, most likely nobody is ahead */
		list_anew(t, was_called(t) && t->claim->kind != KIND_LIMIT, set);
	}
}

/*
 * Nobody is ahead of us.  *claimed: our node said that we take our turn before the queue was
 * read in which we see that (freeze.h).  Otherwise it is written, and the queue read again.
 */
static enum rc
check_claim(
    struct turn *t, struct call **set, struct grant *g, bool *claimed, struct fault *f)
{
	struct call *written = *set;
	enum rc rc = RC_OK;

	*set = NULL;
	*claimed = t->node->said.stage == STAGE_AT_ONCE;
	begin_turn(t);
	if (written)
		rc = node_written(t->node, written, t->over, g, claimed, f);
	if (rc == RC_OK && t->node->revocation.news)
		rc = yield_turn(t, f);
	if (rc != RC_OK || *claimed)
		return rc;
	if (instant_now() >= t->over)
		return is_too_slow(t, f);
	list_anew(t, true, set);
	return RC_OK;
}

enum rc
turn_await(
    struct turn *t, struct call *list, instant until, struct grant *g, struct fault *f)
{
	struct call *set = NULL;
	bool claimed = false;
	enum rc rc = RC_OK;

	/* those whose turn has come may have lost their connection, as we have */
	idlers_forget(&t->idlers);
	if (t->node->state != STATE_WATCHING) {
		call_drop(t->list);
		t->list = list;
	}
	while (rc == RC_OK && !claimed) {
		rc = await_head(t, until, g, &set, f);
		if (rc != RC_OK || t->claim->kind == KIND_LIMIT)
			break;
		rc = check_claim(t, &set, g, &claimed, f);
	}
	call_drop(set);
	return rc;
}

enum rc
turn_earn(struct turn *t, struct grant *g, struct fault *f)
{
	return is_steady(t, g) ? RC_OK : take_turn(t, g, f);
}

void
turn_forget(struct turn *t)
{
	call_drop(t->list);
	t->list = NULL;
	t->idlers.looked[0] = '\0';
	t->over = NEVER;
}
