/*
 * holders.c - shows a waiter near the head those who hold the lock, and removes the dead.
 *
 *  1. It shows the first of them to its user: by its node, or who has frozen the lock.
 *  2. A waiter says in its node that it is one (data.h).  One whose turn has come, and whose
 *     node stays a waiter's for RETRY_RETURN, has died: one that has lost its connection would
 *     be back by then.  Whoever is near the head, for the next in line may be dead, too, deletes
 *     that node, which would block all until its session ends.
 */
#include "zk.h"

#include <stdio.h>
#include <string.h>

enum { LOOKS = 8 /* at most, in one beat */ };

static const struct idler none = {0, NEVER};

void
idlers_forget(struct idlers *i)
{
	i->first = i->other = none;
}

/* ---- shown ---- */

/* Since `then`, by the server's clock; < 0: not known. */
static int64_t
time_since(const struct zk *z, int64_t then)
{
	int64_t now = node_server_now(&z->node);

	return now < 0 || then < 0 || now < then ? -1 : now - then;
}

/*
 * If it had to wait its node is older than its hold, and
 * how old that is nobody knows.
 */
static void
show_first(struct zk *z, const struct call *first)
{
	const struct holders *holders = &z->turn.place.holders;
	struct holding *h = &z->base.host->seen.holding;
	size_t before = z->turn.place.before; /* we may be among them, without a permit */

	z->base.host->seen.position = z->turn.place.position;
	*h = (struct holding){.kind = holders->kind,
	    .holders = before < holders->n ? before : holders->n,
	    .limit = holders->limit,
	    .frozen = z->turn.freeze.on,
	    .held = data_read(first->text).stage == STAGE_AT_ONCE
		? time_since(z, stat_time(first->stat.ctime))
		: -1};
	data_quote(h->record, sizeof h->record, first->text);
}

static void
show_freeze(struct zk *z)
{
	const struct freeze *freeze = &z->turn.freeze;
	struct holding *h = &z->base.host->seen.holding;

	z->base.host->seen.position = z->turn.place.before + 1;
	*h = (struct holding){
	    .kind = KIND_EXCLUSIVE, .frozen = true, .held = time_since(z, freeze->since)};
	snprintf(h->record, sizeof h->record, "%s", freeze->record);
}

void
holders_show_permits(struct zk *z, size_t position, size_t held)
{
	z->base.host->seen.position = position;
	z->base.host->seen.holding = (struct holding){.kind = KIND_LIMIT,
	    .limit = z->claim->limit,
	    .holders = held,
	    .held = -1,
	    .frozen = z->turn.freeze.on};
	if (z->turn.freeze.on && held == 0)
		show_freeze(z);
}

/* ---- looked at ---- */

/*
 * Since when we have seen a node leave its turn unused; NEVER: it does not, or it is not beyond
 * doubt a dlock's whose owner waits, and so not ours to delete.
 */
static instant
idle_since(const struct zk *z, struct idler *i, const char *name, const struct call *node)
{
	const struct Stat *stat = &node->stat;
	bool idle = layout_read(z->dir.layout, name).what == CHILD_DLOCKS &&
	    stat->dataLength == (int32_t)strlen(node->text) &&
	    stat->ephemeralOwner != 0 && data_read(node->text).stage == STAGE_WAITING;

	if (!idle)
		*i = none;
	else if (i->czxid != stat->czxid)
		*i = (struct idler){stat->czxid, instant_now()};
	return i->since;
}

/* If it is not a freeze, which we have not heard of yet, that lets it wait. */
static enum rc
delete_idler(struct zk *z, const char *name, int version, struct fault *f)
{
	struct call *list = lockdir_ask(&z->dir, ASK_LIST, "", NULL);
	instant until = zk_answer_by(z);
	size_t i = 0;
	bool frozen = false;
	enum rc rc = call_await(list, until, f);

	while (rc == RC_OK && !frozen && i < list->nnames)
		frozen = layout_freeze(list->names[i++]).length > 0;
	call_drop(list);
	return rc == RC_OK && !frozen
	    ? call_finish(call_delete(z->dir.session, lockdir_below(&z->dir, "", name).at,
			      version),
		  until, NULL, f)
	    : rc;
}

/*
 * Reads the node of one whose turn has come, and deletes it where its owner has died.  If that takes
 * its turn at this very moment its node has another version, and stays.
 */
static enum rc
look_at_holder(struct zk *z, const char *name, struct idler *idler, struct fault *f)
{
	struct turn *t = &z->turn;
	bool first = name == t->place.holders.first;
	instant now = instant_now();
	struct call *node = lockdir_ask(&z->dir, ASK_GET, "", name);
	enum rc rc = call_await(node, zk_answer_by(z), f);
	bool there = rc == RC_OK && node->code == ZOK;

	if (first && t->freeze.on && !(there && freeze_leaves(&t->freeze, node)))
		show_freeze(z);
	else if (first && there)
		show_first(z, node);
	if (!there)
		*idler = none;
	else if (!t->freeze.on &&
	    now >= instant_after(idle_since(z, idler, name, node), RETRY_RETURN))
		rc = delete_idler(z, name, node->stat.version, f);
	if (there && (rc == RC_DENIED || rc == RC_PROTOCOL))
		rc = RC_OK; /* it was worth trying */
	call_drop(node);
	return rc;
}

/*
 * Those who hold it beside the first, a few at a time; one that is idle is looked at
 * again.
 */
static enum rc
look_at_others(struct zk *z, struct fault *f)
{
	struct turn *t = &z->turn;
	const struct queue q = {z->dir.layout, t->list->names, t->list->nnames};
	struct idlers *i = &t->idlers;
	enum rc rc = RC_OK;

	if (!*i->looked)
		snprintf(i->looked, sizeof i->looked, "%s", t->place.holders.first);
	for (int n = 0; rc == RC_OK && n < LOOKS; n++) {
		const char *name = queue_next_holder(&t->place.holders, &q, i->looked);

		if (name)
			rc = look_at_holder(z, name, &i->other, f);
		if (rc != RC_OK || (name && i->other.czxid))
			return rc;
		snprintf(i->looked, sizeof i->looked, "%s", name ? name : "");
		if (!name)
			return rc;
	}
	return rc;
}

enum rc
holders_look_at(struct zk *z, bool all, struct fault *f)
{
	struct turn *t = &z->turn;
	enum rc rc = look_at_holder(z, t->place.holders.first, &t->idlers.first, f);

	return rc == RC_OK && all && t->place.holders.n > 1 ? look_at_others(z, f) : rc;
}
