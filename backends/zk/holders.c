/* holders.c - shows a waiter those who hold the lock, and removes the dead. */
#include "holders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_PATIENCE (3 * NS_PER_S) /* for a waiter whose turn has come */

enum { LOOKS = 8 /* at most, in one beat */ };

void
idlers_forget(struct idlers *i)
{
	i->first = i->other = (struct idler){0, NEVER};
}

/* ---- shown ---- */

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
holders_show_freeze(struct turn *t)
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
holders_show_permits(struct turn *t, size_t position, size_t held)
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
		holders_show_freeze(t);
}

/* The first of those who hold it, or else who has frozen it. */
static void
show_who_holds(struct turn *t, const struct call *first)
{
	t->host->seen.holding.frozen = t->freeze.on;
	if (t->freeze.on &&
	    !freeze_leaves(
		&t->freeze, call_stat(first)->czxid, data_stage(call_text(first))))
		holders_show_freeze(t);
	else
		show_first(t, first);
}

/* ---- looked at ---- */

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
look_at_holder(struct turn *t, const char *name, struct idler *idler, struct fault *f)
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
			show_who_holds(t, node);
		if (!t->freeze.on &&
		    now >= instant_after(idle_since(t, idler, name, node), IDLE_PATIENCE))
			rc = delete_idler(t, path, call_stat(node)->version, f);
		if (rc == RC_DENIED || rc == RC_PROTOCOL)
			rc = RC_OK; /* it was worth trying */
	} else {
		*idler = (struct idler){0, NEVER};
		if (name == t->place.holders.first && t->freeze.on)
			holders_show_freeze(t);
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
	struct queue q = {.layout = t->node->dir->layout};
	enum rc rc = RC_OK;

	q.names = call_names(t->list, &q.n);
	if (!*t->idlers.looked)
		snprintf(t->idlers.looked, sizeof t->idlers.looked, "%s",
		    t->place.holders.first);
	for (int i = 0; rc == RC_OK && i < LOOKS; i++) {
		const char *name = queue_next_holder(
		    &t->place.holders, &q, t->idlers.looked);

		if (name)
			rc = look_at_holder(t, name, &t->idlers.other, f);
		if (rc != RC_OK || (name && t->idlers.other.czxid))
			return rc;
		snprintf(
		    t->idlers.looked, sizeof t->idlers.looked, "%s", name ? name : "");
		if (!name)
			return rc;
	}
	return rc;
}

enum rc
holders_look_at_first(struct turn *t, struct fault *f)
{
	return look_at_holder(t, t->place.holders.first, &t->idlers.first, f);
}

enum rc
holders_look_at(struct turn *t, struct fault *f)
{
	enum rc rc = holders_look_at_first(t, f);

	return rc == RC_OK && t->place.holders.n > 1 ? look_at_others(t, f) : rc;
}
