/* wait.c - waits in the queue for our turn, and takes it. */
#include "wait.h"

#include "stranger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* for an answer while in the queue, or a third of the lease */
#define ASK_PATIENCE (3 * NS_PER_S)
#define IDLE_PATIENCE (3 * NS_PER_S) /* for a waiter whose turn has come */
#define IDLE_BEAT NS_PER_S           /* to look whether it has taken it */
/* to look at the queue when there are up to NEAR ahead, */
#define NEAR_BEAT (2 * NS_PER_S)
#define FAR_BEAT (10 * NS_PER_S) /* or more */
/* times our place: so often we want to know it anew */
#define SIGHT NS_PER_S

enum { NEAR = 8, LOOKS = 8 /* at most, in one beat */ };

instant
turn_answer_by(const struct turn *t)
{
	int64_t third = t->claim->ttl / 3;

	return instant_after(instant_now(), third > ASK_PATIENCE ? third : ASK_PATIENCE);
}

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

/* The children, if there are any. */
static struct queue
queue_listed(const struct lockdir *d, const struct call *list)
{
	struct queue q = {.layout = d->layout};

	q.names = call_names(list, &q.n);
	return q;
}

static void
forget_idlers(struct turn *t)
{
	t->idlers.first = t->idlers.other = (struct idler){0, NEVER};
}

static void
note_freeze(struct turn *t, int64_t now)
{
	int64_t left = t->freeze.until - now;

	t->thaws = NEVER;
	if (t->freeze.on && t->freeze.until != NEVER && now >= 0)
		t->thaws = instant_now() + (left > 0 ? left : 0);
	if (t->freeze.on) /* their turn has not come */
		forget_idlers(t);
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
	const struct lockdir *d = t->node->dir;
	struct queue q;
	struct place *p = &t->place;
	int code;
	enum rc rc = call_await(t->list, turn_answer_by(t), &code, f);

	if (rc != RC_OK)
		return rc;
	q = queue_listed(d, t->list);
	queue_look(p, &q, strrchr(t->node->path, '/') + 1);
	rc = stranger_refuse(
	    t->node, t->host, t->claim, p, t->list, turn_answer_by(t), f);
	if (rc == RC_OK && !p->found)
		rc = place_is_lost(t, f);
	if (rc != RC_OK)
		return rc;
	patience_end_outage(t->patience);
	t->census = (struct census){departed(call_stat(t->list)), instant_now()};
	t->queued = t->placed = true;
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

/* ---- those who hold it ---- */

/*
 * What is shown of the first.  If it had to wait its node is older than its hold, and
 * how old that is nobody knows.
 */
static void
show_first(struct turn *t, const struct call *first)
{
	int64_t now = node_server_now(t->node),
		born = node_server_time(call_stat(first)->ctime);
	int64_t held = now < 0 || born < 0 ? -1 : now - born;
	char *record = data_record(call_text(first), session_secret(t->node->session));

	t->host->seen.position = t->place.position;
	t->host->seen.holding.kind = t->place.holders.kind;
	t->host->seen.holding.holders = t->place.holders.n;
	t->host->seen.holding.limit = t->place.holders.limit;
	t->host->seen.holding.held = data_stage(call_text(first)) == STAGE_AT_ONCE &&
		held >= 0
	    ? held
	    : -1;
	session_quote(t->node->session, t->host->seen.holding.record,
	    sizeof t->host->seen.holding.record, record ? record : call_text(first));
	free(record);
}

void
turn_show_freeze(struct turn *t)
{
	struct host *h = t->host;
	int64_t now = node_server_now(t->node);

	h->seen.holding.frozen = true;
	h->seen.position = t->place.before + 1;
	h->seen.holding.kind = KIND_EXCLUSIVE;
	h->seen.holding.holders = h->seen.holding.limit = 0;
	h->seen.holding.held = now < 0 || t->freeze.since < 0 || now < t->freeze.since
	    ? -1
	    : now - t->freeze.since;
	snprintf(h->seen.holding.record, sizeof h->seen.holding.record, "%s",
	    t->freeze.record);
}

void
turn_show_permits(struct turn *t, size_t position, size_t held)
{
	struct host *h = t->host;

	h->seen.position = position;
	h->seen.holding.kind = KIND_LIMIT;
	h->seen.holding.limit = t->claim->limit;
	h->seen.holding.holders = held;
	h->seen.holding.held = -1;
	h->seen.holding.record[0] = '\0';
	h->seen.holding.frozen = t->freeze.on;
	if (h->seen.holding.frozen && held == 0)
		turn_show_freeze(t);
}

/* The first of those who hold it, or else who has frozen it. */
static void
show(struct turn *t, const struct call *first)
{
	t->host->seen.holding.frozen = t->freeze.on;
	if (t->freeze.on &&
	    !freeze_leaves(
		&t->freeze, call_stat(first)->czxid, data_stage(call_text(first))))
		turn_show_freeze(t);
	else
		show_first(t, first);
}

/* A node of dlock's whose owner waits, beyond doubt: others' are not ours to delete. */
static bool
is_waiter(const struct layout *l, const char *name, const struct call *node)
{
	const struct Stat *n = call_stat(node);

	return layout_read(l, name).what == CHILD_DLOCKS &&
	    n->dataLength == (int32_t)strlen(call_text(node)) && n->ephemeralOwner != 0 &&
	    data_stage(call_text(node)) == STAGE_WAITING;
}

/* Since when we have seen a node leave its turn unused; NEVER: it does not. */
static instant
idle_since(
    const struct turn *t, struct idler *i, const char *name, const struct call *node)
{
	bool idle = is_waiter(t->node->dir->layout, name, node);
	int64_t czxid = idle ? call_stat(node)->czxid : 0;

	if (i->czxid != czxid || czxid == 0)
		*i = (struct idler){czxid, czxid ? instant_now() : NEVER};
	return i->since;
}

/* If it is not a freeze, which we have not heard of yet, that lets it wait. */
static enum rc
delete_idler(struct turn *t, const char *path, int version, struct fault *f)
{
	struct session *s = t->node->session;
	struct call *list = call_list(s, t->node->dir->path);
	const char *const *names;
	size_t n = 0, i = 0;
	int code;
	enum rc rc = call_await(list, turn_answer_by(t), &code, f);

	names = rc == RC_OK ? call_names(list, &n) : NULL;
	while (i < n && layout_freeze_length(names[i]) == 0)
		i++;
	call_drop(list);
	return rc == RC_OK && i == n
	    ? call_finish(call_delete(s, path, version), turn_answer_by(t), &code, f)
	    : rc;
}

/*
 * Reads the node of one whose turn has come.  If it is a waiter's that does not take
 * it, it is deleted: its owner has died, and would block us until its session
 * ends.  If it takes its turn at this very moment its node has another version,
 * and stays.  Whoever is near enough to the front does that: the next in line may
 * be dead too.
 */
static enum rc
look_at(struct turn *t, const char *name, struct idler *idler, struct fault *f)
{
	struct session *s = t->node->session;
	instant now = instant_now(), until = turn_answer_by(t);
	char path[NODE_BYTES];
	struct call *node;
	int code;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", t->node->dir->path, name);
	node = call_get(s, path);
	rc = call_await(node, until, &code, f);
	if (rc == RC_OK && code == ZOK) {
		if (name == t->place.holders.first)
			show(t, node);
		if (!t->freeze.on &&
		    now >= instant_after(idle_since(t, idler, name, node), IDLE_PATIENCE))
			rc = delete_idler(t, path, call_stat(node)->version, f);
		if (rc == RC_DENIED || rc == RC_PROTOCOL)
			rc = RC_OK; /* it was worth trying */
	} else {
		*idler = (struct idler){0, NEVER};
		if (name == t->place.holders.first && t->freeze.on)
			turn_show_freeze(t);
	}
	call_drop(node);
	return rc;
}

/*
 * Those who hold it beside the first, a few at a time; one that is idle is looked at
 * again.
 */
static enum rc
look_at_others(struct turn *t, struct fault *f)
{
	struct queue q = queue_listed(t->node->dir, t->list);
	enum rc rc = RC_OK;

	if (!*t->idlers.looked)
		snprintf(t->idlers.looked, sizeof t->idlers.looked, "%s",
		    t->place.holders.first);
	for (int i = 0; rc == RC_OK && i < LOOKS; i++) {
		const char *name = queue_next_holder(
		    &t->place.holders, &q, t->idlers.looked);

		if (name)
			rc = look_at(t, name, &t->idlers.other, f);
		if (rc != RC_OK || (name && t->idlers.other.czxid))
			return rc;
		snprintf(
		    t->idlers.looked, sizeof t->idlers.looked, "%s", name ? name : "");
		if (!name)
			return rc;
	}
	return rc;
}

static enum rc
look_at_holders(struct turn *t, struct fault *f)
{
	enum rc rc = look_at(t, t->place.holders.first, &t->idlers.first, f);

	return rc == RC_OK && t->place.holders.n > 1 ? look_at_others(t, f) : rc;
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
		patience_end_outage(t->patience);
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
			rc = look_at_holders(t, f);
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
	if (t->watching)
		return await_change(t, instant_now(), until, f);
	rc = watch_ahead(t, &over, f);
	if (rc == RC_OK && !over)
		rc = look_at(t, t->place.holders.first, &t->idlers.first, f);
	if (rc != RC_OK || over)
		return rc;
	if (until == 0)
		return fault_set(f, RC_BUSY, "%s: %s", t->node->dir->where,
		    t->host->seen.holding.frozen ? "frozen" : "held");
	t->watching = true;
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
turn_wait(struct turn *t, struct fault *f)
{
	struct call *none = NULL;

	return t->node->said.marked ? RC_OK : mark_as_waiter(t, &none, f);
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
	t->watching = false;
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
		enum rc rc = t->watching ? RC_OK : place_find(t, f);

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
	forget_idlers(t);
	if (!t->watching) {
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
	t->watching = t->placed = false;
	t->idlers.looked[0] = '\0';
	t->over = NEVER;
}
