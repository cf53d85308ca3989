/*
 * wait.c - waits in the queue for our turn, and takes it.
 *
 *  1. A waiter watches the last node ahead of it that it cannot hold the lock together
 *     with, so a release wakes one, or all readers behind a writer.  It
 *     then writes its own node, which earns the lease and says that it takes its turn, and
 *     in the same breath lists anew, for the node may have been a waiter's that gave up, or
 *     the lock be frozen by now (freeze.h).  Of those who want one of N
 *     permits, the next one in line watches the list, for any holder may be the first
 *     to go; each one behind it waits for the one before to be granted.  When the turn of several
 *     has come, each takes its permit when the one before has its own: a token is as old as the
 *     place in the queue, and of two that hold one slot the later is to have the greater one.
 *  2. What it does besides costs the same however long the queue is: a few
 *     times a session it asks for the directory's counts, which tell how many have
 *     left, and whereby the leader hears of it.  It lists only when it may have come
 *     near the head, and else after a second for each place: all names are sent with
 *     a list, so whoever joins has one for all who stand there.
 *  3. What is watched stays watched through all connections of a session (the library
 *     sees to that).  So a waiter that had lost its connection asks for the counts at
 *     once, and goes on: a thousand that come back at once, each with a list of all,
 *     would keep the server busy for longer than their sessions last.
 *  4. Those near the head look at those who hold it (holders.c).
 *  5. While the lock is frozen (freeze.h), those next in line watch that node, and nobody's turn
 *     comes.  Its end wakes them; that it has ended, those near the head see for themselves.
 */
#include "zk.h"

#include <string.h>

#define IDLE_BEAT NS_PER_S /* to look whether it has taken it */
/* to look at the queue when there are up to NEAR ahead, */
#define NEAR_BEAT (2 * NS_PER_S)
#define FAR_BEAT (10 * NS_PER_S) /* or more */
/* times our place: so often we want to know it anew */
#define SIGHT NS_PER_S
/* whoever does not wait gives those before it so long to take permits that are free */
#define TAKE_MOST NS_PER_S

enum { NEAR = 8 };

static enum rc
place_is_lost(const struct zk *z, struct fault *f)
{
	return fault_set(f, RC_LOST, "%s: our place in the queue was deleted", z->where);
}

static bool
was_called(const struct zk *z)
{
	return session_look(z->dir.session).called;
}

/* ---- in the queue: where do we stand? ---- */

/*
 * The write with which a waiter takes what has become its own; where there is no queue, the
 * node is as old as the grant.
 */
static struct call *
claim_turn(struct zk *z)
{
	if (!z->dir.layout->single)
		z->node.said.stage = STAGE_WAITED;
	return node_write(&z->node);
}

/*
 * The queue as it is now.  With `claim` we take our turn in our node before we read it.  What
 * create has earned is too long ago.
 */
static void
list_anew(struct zk *z, bool claim)
{
	struct turn *t = &z->turn;

	node_note(&z->node, EVENT_LIST_ANEW);
	z->node.grant = (struct grant){.anchor = -1};
	call_drop(t->list);
	call_drop(t->taking);
	t->taking = claim ? claim_turn(z) : NULL;
	t->list = lockdir_ask(&z->dir, ASK_LIST, "", NULL);
}

/*
 * Twice the number of children that have left a directory: a change is either a birth or
 * a death.
 */
static uint32_t
departed(const struct Stat *directory)
{
	return (uint32_t)directory->cversion - (uint32_t)directory->numChildren;
}

enum rc
turn_heed_freeze(struct zk *z, struct place *p, const char *part, const struct queue *q,
    struct fault *f)
{
	struct freeze *freeze = &z->turn.freeze;
	int64_t now = node_server_now(&z->node);
	enum rc rc = RC_OK;

	freeze->on = false;
	z->turn.thaws = NEVER;
	if (p->freeze)
		rc = freeze_look(
		    freeze, &z->dir, part, q->names, q->n, now, true, zk_answer_by(z), f);
	if (freeze->on && freeze->until != NEVER && now >= 0)
		z->turn.thaws = instant_now() +
		    (freeze->until > now ? freeze->until - now : 0);
	if (freeze->on) /* their turn has not come */
		idlers_forget(&z->turn.idlers);
	else
		z->base.host->seen.holding.frozen = false;
	if (rc == RC_OK && freeze->on)
		queue_hold_back(p, freeze->name, AWAITS_END);
	return rc;
}

/*
 * Has that one its permit?  Its lease is there then, and bears its uuid; what stands in its node may
 * be others'.
 */
static enum rc
look_for_permit(struct zk *z, const char *name, bool *taken, struct fault *f)
{
	struct call *leases = lockdir_ask(&z->dir, ASK_LIST, parts[LEASES], NULL);
	enum rc rc = call_await(leases, zk_answer_by(z), f);

	*taken = false;
	for (size_t i = 0; rc == RC_OK && !*taken && i < leases->nnames; i++)
		*taken = strncmp(leases->names[i], name, UUID_CHARS) == 0;
	call_drop(leases);
	return rc;
}

/*
 * Permits are taken in the order of the queue: the one right before us has its own only if all
 * before it had theirs.
 */
static enum rc
heed_order(struct zk *z, const struct queue *q, struct fault *f)
{
	struct place *p = &z->turn.place;
	bool taken = true;
	enum rc rc = RC_OK;

	if (z->claim->kind == KIND_LIMIT && p->position == 0 && p->before > 0)
		rc = look_for_permit(z, q->names[p->before - 1], &taken, f);
	if (rc == RC_OK && !taken)
		queue_hold_back(p, q->names[p->before - 1], AWAITS_PERMIT);
	return rc;
}

/* Our place in the list. */
static enum rc
place_find(struct zk *z, struct fault *f)
{
	struct turn *t = &z->turn;
	struct queue q = {.layout = z->dir.layout};
	enum rc rc = call_await(t->list, zk_answer_by(z), f);

	if (rc != RC_OK)
		return rc;
	q.names = t->list->names;
	q.n = t->list->nnames;
	if (!queue_look(&t->place, &q, strrchr(z->node.path, '/') + 1))
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = stranger_refuse(z, f);
	if (rc == RC_OK && !t->place.found)
		rc = place_is_lost(z, f);
	if (rc != RC_OK)
		return rc;
	retry_end_outage(&z->patience);
	t->departed = departed(&t->list->stat);
	t->counted = instant_now();
	t->queued = true;
	node_note(&z->node, EVENT_SEEN);
	rc = turn_heed_freeze(z, &t->place, "", &q, f);
	return rc == RC_OK ? heed_order(z, &q, f) : rc;
}

/* ---- placed: others are ahead ---- */

/*
 * For those behind us, who must know a waiter from a holder.  A write may have said that our
 * turn had come, and was wrong.
 */
static enum rc
mark_as_waiter(struct zk *z, struct fault *f)
{
	struct node *n = &z->node;
	struct call *wrong = z->turn.taking;
	enum rc rc = RC_OK;

	z->turn.taking = NULL;
	if (wrong)
		rc = node_written(n, wrong, zk_answer_by(z), NULL, f);
	if (rc != RC_OK)
		return rc;
	node_guard(n);
	n->said.stage = STAGE_WAITING;
	return node_written(n, node_write(n), zk_answer_by(z), NULL, f);
}

enum rc
turn_serve(struct zk *z, struct fault *f)
{
	struct node *n = &z->node;
	enum stage before = n->said.stage;
	bool written;
	enum rc rc;

	if (before == STAGE_WAITED)
		return RC_OK;
	/* not so far, if we were the first at once */
	node_guard(n);
	n->said.stage = STAGE_WAITED;
	rc = node_written(n, node_write(n), zk_answer_by(z), &written, f);
	if (!written) /* it says so only when that is certain */
		n->said.stage = before;
	return rc;
}

/*
 * Asks to be told of the end of the node ahead, or of its grant, or of a change of the list,
 * which it may have made since we read it.  *over: that has happened already.  Whoever is granted
 * the lock writes its node; what others write into that is reason to look once.
 */
static enum rc
watch_ahead(struct zk *z, bool *over, struct fault *f)
{
	struct turn *t = &z->turn;
	bool change = t->place.awaits == AWAITS_CHANGE,
	     permit = t->place.awaits == AWAITS_PERMIT;
	struct call *c;
	enum rc rc;

	if (t->place.awaits == AWAITS_LIST) {
		call_drop(t->list);
		t->list = lockdir_ask(&z->dir, ASK_CHILDREN, "", NULL);
		rc = place_find(z, f);
		*over = rc == RC_OK &&
		    (t->place.position == 0 || t->place.awaits != AWAITS_LIST);
		return rc;
	}
	c = lockdir_ask(
	    &z->dir, change || permit ? ASK_CHANGE : ASK_END, "", t->place.ahead);
	rc = call_await(c, zk_answer_by(z), f);
	*over = rc == RC_OK && c->code == ZNONODE;
	if (rc == RC_OK && change && !*over) {
		*over = c->stat.mzxid > t->list->stat.pzxid &&
		    c->stat.mzxid != t->ahead_written &&
		    data_read(c->text).stage != STAGE_WAITING;
		t->ahead_written = c->stat.mzxid;
	}
	call_drop(c);
	if (rc == RC_OK && permit && !*over)
		rc = look_for_permit(z, t->place.ahead, over, f);
	return rc;
}

/* For those behind us.  One whose turn has come is no waiter whom they may take for dead. */
static enum rc
say_that_we_wait(struct zk *z, struct fault *f)
{
	if (z->turn.place.awaits == AWAITS_PERMIT)
		return turn_serve(z, f);
	return z->node.said.marked ? RC_OK : mark_as_waiter(z, f);
}

/* `until` 0: no waiting. */
static enum rc
begin_watch(struct zk *z, instant until, struct fault *f)
{
	bool over = false;
	enum rc rc = RC_OK;

	z->turn.over = NEVER;
	if (until)
		rc = say_that_we_wait(z, f);
	if (rc == RC_OK)
		rc = watch_ahead(z, &over, f);
	if (rc == RC_OK && !over)
		rc = holders_look_at(z, false, f);
	if (rc == RC_OK && !over && until == 0)
		return fault_set(f, RC_BUSY, "%s: %s", z->where,
		    z->base.host->seen.holding.frozen ? "frozen" : "held");
	if (rc == RC_OK && over)
		list_anew(z, was_called(z) && z->claim->kind != KIND_LIMIT);
	else if (rc == RC_OK)
		node_note(&z->node, EVENT_WATCHED);
	return rc;
}

/* ---- watching: until there is reason to read the queue again ---- */

/*
 * Asks for the directory's counts, whereby the leader hears of us, too.  *moved: some
 * have left, and we may be near the head, or have not known our place for long.  All of
 * them may have stood behind us; then our place is as it was.  A freeze that we have heard of
 * may be what has left.
 */
static enum rc
count_departed(struct zk *z, bool *moved, struct fault *f)
{
	struct turn *t = &z->turn;
	struct call *c = lockdir_ask(&z->dir, ASK_EXISTS, "", NULL);
	struct holding *h = &z->base.host->seen.holding;
	size_t position = t->place.position;
	uint32_t left = 0;
	int code;
	enum rc rc = call_await(c, zk_answer_by(z), f);

	if (rc == RC_OK && c->code != ZOK)
		rc = place_is_lost(z, f);
	if (rc == RC_OK) {
		left = (departed(&c->stat) - t->departed) / 2;
		retry_end_outage(&z->patience);
	}
	call_drop(c);
	*moved = left > 0 &&
	    (position <= (size_t)NEAR + left ||
		instant_now() >= t->counted + (int64_t)position * SIGHT);
	if (left == 0 || *moved || !t->freeze.on)
		return rc;
	/* not a list of all: that would be one for each who stands here */
	rc = call_finish(lockdir_ask(&z->dir, ASK_EXISTS, "", t->freeze.name),
	    zk_answer_by(z), &code, f);
	if (rc == RC_OK && code == ZNONODE) {
		t->freeze.on = h->frozen = false;
		t->thaws = NEVER;
		h->held = -1;
		h->record[0] = '\0'; /* it was who had frozen it */
	}
	return rc;
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
turn_beat(const struct zk *z)
{
	const struct turn *t = &z->turn;
	struct credit credit = session_look(z->dir.session).credit;
	int64_t beat = NEAR_BEAT;

	if (t->place.position > NEAR)
		beat = FAR_BEAT;
	else if (t->idlers.first.czxid || t->idlers.other.czxid)
		beat = IDLE_BEAT;
	return instant_first(
	    instant_now() + instant_first(credit_life(&credit), beat), thaws_for(t));
}

enum rc
turn_doze(struct zk *z, instant beat, instant until, struct fault *f)
{
	struct session *s = z->dir.session;
	struct session_view v = session_look(s);
	enum rc rc = RC_OK;

	for (; rc == RC_OK && !v.called && instant_now() < beat; v = session_look(s)) {
		if (instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", z->where);
		if (v.alarmed)
			session_clear_alarm(s);
		if (v.alarmed)
			return place_is_lost(z, f);
		if (!v.connected)
			return fault_set(f, RC_AGAIN, "%s: connection lost", z->where);
		rc = session_sleep(s, instant_first(beat, until), f);
		if (rc == RC_AGAIN)
			rc = RC_OK; /* it was only the time */
	}
	return rc;
}

/* First looks at `beat`.  RC_BUSY: `until` has come. */
static enum rc
await_change(struct zk *z, instant beat, instant until, struct fault *f)
{
	struct turn *t = &z->turn;
	bool moved = false;
	enum rc rc = RC_OK;

	for (; rc == RC_OK && !moved && !was_called(z); beat = turn_beat(z)) {
		rc = turn_doze(z, beat, until, f);
		if (rc != RC_OK || was_called(z) || instant_now() >= thaws_for(t))
			break;
		rc = count_departed(z, &moved, f);
		if (rc == RC_OK && !moved && t->place.position <= NEAR)
			rc = holders_look_at(z, true, f);
	}
	/* if we were called, most likely nobody is ahead */
	if (rc == RC_OK)
		list_anew(z, was_called(z) && z->claim->kind != KIND_LIMIT);
	return rc;
}

/* ---- our turn ---- */

/*
 * What our turn has been written by is answered.  Who is asked to give up what it does not yet
 * have goes back to the end of the queue.
 */
static enum rc
turn_written(struct zk *z, struct call *set, bool *written, struct fault *f)
{
	struct node *n = &z->node;
	int code = ZBADVERSION;
	enum rc rc = set ? node_written(n, set, z->turn.over, written, f) : RC_OK;

	if (rc != RC_OK || n->revocation.state != REVOKED_NEWS)
		return rc;
	while (rc == RC_OK && code == ZBADVERSION) {
		/* a name that is not ours alone may be another's by now */
		int version = z->dir.layout->single ? n->said.version : -1;

		if (instant_now() >= z->turn.over)
			return node_is_disturbed(n, f);
		rc = call_finish(call_delete(z->dir.session, n->path, version),
		    z->turn.over, &code, f);
		if (rc == RC_OK && code == ZBADVERSION)
			rc = node_read(n, z->turn.over, f);
	}
	if (rc == RC_OK ||
	    rc == RC_LOST) /* else the next attempt takes what it was to give up */
		n->revocation.state = REVOKED_TOLD;
	return rc == RC_OK
	    ? fault_set(f, RC_LOST, "%s: our place in the queue was revoked", z->where)
	    : rc;
}

/*
 * Is it the lease that later renewals will keep up?  One that is shorter says nothing
 * about the settings.
 */
static bool
is_steady(const struct zk *z)
{
	struct credit credit = session_look(z->dir.session).credit;

	return z->node.grant.lease > 0 && z->node.grant.lease >= credit_steady(&credit);
}

/* From now on we must earn a lease within the ttl. */
static void
begin_turn(struct zk *z)
{
	z->turn.over = instant_first(
	    z->turn.over, instant_after(instant_now(), z->claim->ttl));
}

static enum rc
is_too_slow(const struct zk *z, struct fault *f)
{
	return fault_set(f, RC_AGAIN, "%s answers too slowly for this --ttl", z->where);
}

/*
 * Earns the lease by writing our node.  While the leader has not heard
 * of us for long enough, that would be too short a lease: then once more.  After the ttl
 * our turn is over.
 */
enum rc
turn_earn(struct zk *z, struct fault *f)
{
	struct call *set;

	if (is_steady(z))
		return RC_OK;
	set = claim_turn(z);
	for (begin_turn(z);; set = node_write(&z->node)) {
		bool written = false;
		struct credit credit;
		enum rc rc = set ? turn_written(z, set, &written, f)
				 : fault_set(f, RC_SYSTEM, "out of memory");

		if (rc != RC_OK || (written && is_steady(z)))
			return rc;
		if (instant_now() >= z->turn.over)
			return is_too_slow(z, f);
		credit = session_look(z->dir.session).credit;
		if (written &&
		    zk_pause(z, instant_now() + credit_pace(&credit)) == RC_STOP)
			return RC_STOP;
	}
}

/*
 * Nobody is ahead of us.  *claimed: our node said that we take our turn before the queue was
 * read in which we see that (freeze.h).  Otherwise it is written, and the queue read again.
 */
static enum rc
check_claim(struct zk *z, bool *claimed, struct fault *f)
{
	struct call *taking = z->turn.taking;
	enum rc rc;

	z->turn.taking = NULL;
	*claimed = z->node.said.stage == STAGE_AT_ONCE;
	begin_turn(z);
	rc = turn_written(z, taking, claimed, f);
	if (rc != RC_OK || *claimed)
		return rc;
	if (instant_now() >= z->turn.over)
		return is_too_slow(z, f);
	list_anew(z, true);
	return RC_OK;
}

/* Until when we wait there: there may be a permit for all before us, and for us. */
static instant
patience(const struct turn *t, instant began, instant until)
{
	return until == 0 && t->place.awaits == AWAITS_PERMIT ? began + TAKE_MOST : until;
}

enum rc
turn_await(struct zk *z, instant join_by, instant until, struct fault *f)
{
	struct turn *t = &z->turn;
	/* through another connection than before: much may have happened */
	const instant began = instant_now();
	instant beat = began, most = until;
	bool done = false;
	enum rc rc = RC_OK;

	if (!*z->node.path)
		rc = node_join(&z->node, &t->list, join_by, f);
	else if (z->node.state != STATE_WATCHING)
		list_anew(z, false);
	/* those whose turn has come may have lost their connection, as we have */
	idlers_forget(&t->idlers);
	while (rc == RC_OK && !done) {
		if (z->node.state == STATE_WATCHING) {
			rc = await_change(z, beat, most, f);
		} else if (z->node.state != STATE_PLACED) {
			rc = place_find(z, f);
		} else if (t->place.position > 0) {
			most = patience(t, began, until);
			rc = begin_watch(z, most, f);
			beat = rc == RC_OK ? turn_beat(z) : beat;
		} else if (z->claim->kind == KIND_LIMIT) {
			done = true;
		} else {
			rc = check_claim(z, &done, f);
		}
	}
	call_drop(t->taking);
	t->taking = NULL;
	return rc;
}

void
turn_forget(struct zk *z)
{
	struct turn *t = &z->turn;

	call_drop(t->list);
	t->list = NULL;
	t->counted = 0;
	t->idlers.looked[0] = '\0';
	t->over = NEVER;
}
