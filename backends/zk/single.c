/*
 * single.c - a lock that is one node: whoever makes it has it (layout=plain).
 *
 *  1. It is ephemeral, and lies at the lock's path.  That it is there already means that somebody
 *     else has the lock, or we, where the answer to our create was lost: then it is our session's.
 *  2. There is no queue.  Who waits watches the node; its end wakes all, and the first to
 *     make it anew has it.
 *     What we write to and delete is the node that we have read just before, by its version, since
 *     ZooKeeper knows no such condition on its czxid.  So if somebody deletes ours in that one
 *     round trip, and another makes a node which is then as often written, it is taken for
 *     ours: that other node is written, which is told as a loss, or deleted.  Ours is never
 *     as young as that but in its first half second.
 *  3. A node that has children, or had some, is the directory of a lock of another layout:
 *     refused.
 *  4. One that does not end with a session is a lock that somebody has made to stay: it is waited
 *     for and never touched.
 */
#include "zk.h"

/* ---- what stands there ---- */

/*
 * `list` is of the node's children, `data` the node.  *over: it is to be made anew.
 */
static enum rc
judge_node(struct zk *z, const struct call *list, const struct call *data, bool *over,
    struct fault *f)
{
	const struct Stat *stat = &data->stat;
	struct holding *h = &z->base.host->seen.holding;

	/*
	 * Whoever has made it may count on it, and those of its clients that are about to come do
	 * not see a node in its place.
	 */
	if (stat_is_directory(stat) && list->nnames > 0)
		return lockdir_refuse(&z->dir, list->names[0], NULL, f);
	if (stat_is_directory(stat))
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s is the empty directory of a lock of another layout: delete it if nobody uses that lock (if Curator made it, the server deletes it in about a minute)",
		    z->where, z->dir.path);
	/* our create has happened after all */
	*over = stat->ephemeralOwner == session_look(z->dir.session).id;
	node_note(&z->node, *over ? EVENT_MAY_BE_MADE : EVENT_NOT_MADE);
	/* it blocks until somebody removes it; said once */
	if (!stat_is_ephemeral(stat) && !z->turn.queued)
		fault_set(&z->base.host->notice, RC_OK,
		    "%s: %s stays when its session ends: dlock waits until somebody deletes it",
		    z->where, z->dir.path);
	z->base.host->seen.position = 0;
	/* the server's clock is told with nodes of our own */
	*h = (struct holding){.kind = KIND_EXCLUSIVE, .holders = 1, .held = -1};
	data_quote(h->record, sizeof h->record, data->text);
	z->turn.queued = true;
	return RC_OK;
}

/* Looks at it, and is told of its end from now on. */
static enum rc
look_at_node(struct zk *z, bool *over, struct fault *f)
{
	instant until = zk_answer_by(z);
	struct call *list = lockdir_ask(&z->dir, ASK_CHILDREN, "", NULL),
		    *data = lockdir_ask(&z->dir, ASK_GET, "", NULL);
	enum rc rc = call_await(list, until, f);

	*over = false;
	if (rc == RC_OK)
		rc = call_await(data, until, f);
	if (rc == RC_OK)
		retry_end_outage(&z->patience);
	if (rc == RC_OK && (list->code == ZNONODE || data->code == ZNONODE))
		*over = true;
	else if (rc == RC_OK)
		rc = judge_node(z, list, data, over, f);
	call_drop(list);
	call_drop(data);
	return rc;
}

/* ---- waiting ---- */

/* Until it may be gone. */
static enum rc
wait_for_end(struct zk *z, instant until, struct fault *f)
{
	bool over = false;
	enum rc rc = look_at_node(z, &over, f);

	if (rc == RC_OK && !over && until == 0)
		return fault_set(f, RC_BUSY, "%s: held", z->where);
	while (rc == RC_OK && !over && !session_look(z->dir.session).called) {
		rc = turn_doze(z, turn_beat(z), until, f);
		if (rc == RC_OK && !session_look(z->dir.session).called)
			rc = look_at_node(z, &over, f);
	}
	return rc;
}

enum rc
single_take(struct zk *z, instant until, struct fault *f)
{
	struct call *none = NULL;
	enum rc rc = node_join(&z->node, &none, zk_answer_by(z), f);

	z->turn.thaws = NEVER;
	while (rc == RC_OK && !*z->node.path) {
		rc = wait_for_end(z, until, f);
		if (rc == RC_OK)
			rc = node_join(&z->node, &none, zk_answer_by(z), f);
	}
	return rc == RC_OK ? turn_earn(z, f) : rc;
}
