/* single.c - makes the node that is the lock, or waits for its end. */
#include "single.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- made ---- */

static enum rc
make_once(struct turn *t, struct grant *g, struct fault *f)
{
	struct node *n = t->node;
	instant until = turn_answer_by(t);
	int code = ZNODEEXISTS;
	enum rc rc = n->state != STATE_NONE ? node_find(n, until, f) : RC_OK;

	while (rc == RC_OK && !*n->path) {
		rc = node_make(n, g, until, &code, f);
		if (rc != RC_OK || *n->path || code == ZNODEEXISTS)
			return rc;
		if (instant_now() >= until)
			return lockdir_vanishes(n->dir, f);
		rc = lockdir_make(n->dir, n->session, until, f);
	}
	return rc;
}

/* ---- what stands there ---- */

static void
show_node(struct turn *t, const struct call *node)
{
	struct host *h = t->host;
	const char *data = call_text(node);
	char *record = data_record(data, session_secret(t->node->session));

	h->seen.position = 0;
	h->seen.holding.kind = KIND_EXCLUSIVE;
	h->seen.holding.holders = 1;
	h->seen.holding.limit = 0;
	h->seen.holding.held = -1; /* the server's clock is told with nodes of our own */
	session_quote(t->node->session, h->seen.holding.record,
	    sizeof h->seen.holding.record, record ? record : data);
	free(record);
}

/* It blocks until somebody removes it; said once. */
static void
note_lasting(struct turn *t)
{
	const struct lockdir *d = t->node->dir;

	if (!t->queued)
		fault_set(&t->host->notice, RC_OK,
		    "%s: %s does not end with a session: dlock waits until somebody deletes it",
		    d->where, d->path);
}

/*
 * Whoever has made it may count on it, and those of its clients that are about to come do not see
 * a node in its place.
 */
static enum rc
refuse_directory(const struct turn *t, const struct call *list, struct fault *f)
{
	const struct lockdir *d = t->node->dir;
	size_t n;
	const char *const *names = call_names(list, &n);

	if (n > 0)
		return lockdir_refuse(d, t->node->session, names[0], NULL, f);
	return fault_set(f, RC_PROTOCOL,
	    "%s: %s is the empty directory of a lock of another layout: delete it if nobody uses that (the server does so in a minute or so if it was made for Curator's)",
	    d->where, d->path);
}

/*
 * `list` is of the node's children, `data` the node.  *over: it is to be made anew.
 */
static enum rc
judge_node(struct turn *t, const struct call *list, const struct call *data, bool *over,
    struct fault *f)
{
	struct node *n = t->node;
	const struct Stat *stat = call_stat(data);

	if (stat_is_directory(stat))
		return refuse_directory(t, list, f);
	/* our create has happened after all */
	*over = stat->ephemeralOwner == session_look(n->session).id;
	node_note(n, *over ? EVENT_MAY_BE_MADE : EVENT_NOT_MADE);
	if (!stat_is_ephemeral(stat))
		note_lasting(t);
	show_node(t, data);
	t->queued = true;
	return RC_OK;
}

/* Looks at it, and is told of its end from now on. */
static enum rc
look_at_node(struct turn *t, bool *over, struct fault *f)
{
	struct session *s = t->node->session;
	const char *path = t->node->dir->path;
	instant until = turn_answer_by(t);
	struct call *list = call_watch_list(s, path), *data = call_get(s, path);
	int code = ZOK, other = ZOK;
	enum rc rc = call_await(list, until, &code, f);

	*over = false;
	if (rc == RC_OK)
		rc = call_await(data, until, &other, f);
	if (rc == RC_OK)
		retry_end_outage(t->patience);
	if (rc == RC_OK && (code == ZNONODE || other == ZNONODE))
		*over = true;
	else if (rc == RC_OK)
		rc = judge_node(t, list, data, over, f);
	call_drop(list);
	call_drop(data);
	return rc;
}

/* ---- waiting ---- */

/* Until it may be gone. */
static enum rc
wait_for_end(struct turn *t, instant until, struct fault *f)
{
	bool over = false;
	enum rc rc = look_at_node(t, &over, f);

	if (rc == RC_OK && !over && until == 0)
		return fault_set(f, RC_BUSY, "%s: held", t->node->dir->where);
	while (rc == RC_OK && !over && !session_look(t->node->session).called) {
		rc = turn_doze(t, turn_beat(t), until, f);
		if (rc == RC_OK && !session_look(t->node->session).called)
			rc = look_at_node(t, &over, f);
	}
	return rc;
}

enum rc
single_take(struct turn *t, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = make_once(t, g, f);

	t->thaws = NEVER;
	while (rc == RC_OK && !*t->node->path) {
		rc = wait_for_end(t, until, f);
		if (rc == RC_OK)
			rc = make_once(t, g, f);
	}
	return rc == RC_OK ? turn_earn(t, g, f) : rc;
}
