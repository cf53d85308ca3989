/* permit.c - takes one of N permits beside Curator's users. */
#include "permit.h"

#include "holders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part { LOCKS, LEASES, SLOTS, PARTS };

static const char *const parts[PARTS] = {"locks", "leases", "slots"};

/* The three lists, as one server has them one after the other. */
struct lists {
	struct call *calls[PARTS];
};

static void
part_path(char out[NODE_BYTES], const struct node *n, enum part part, const char *name)
{
	snprintf(out, NODE_BYTES, "%s/%s%s%s", n->dir->path, parts[part], name ? "/" : "",
	    name ? name : "");
}

static struct call *
list_part(const struct node *n, enum part part)
{
	char path[NODE_BYTES];

	part_path(path, n, part, NULL);
	return call_list(n->session, path);
}

static void
lists_drop(struct lists *l)
{
	for (enum part p = 0; p < PARTS; p++)
		call_drop(l->calls[p]);
	*l = (struct lists){{NULL}};
}

static void
lists_ask(struct lists *l, const struct node *n)
{
	lists_drop(l);
	for (enum part p = 0; p < PARTS; p++)
		l->calls[p] = list_part(n, p);
}

/* *missing: one of the directories is not there. */
static enum rc
lists_await(struct lists *l, instant until, bool *missing, struct fault *f)
{
	enum rc rc = RC_OK;

	*missing = false;
	for (enum part p = 0; p < PARTS && rc == RC_OK; p++) {
		int code = ZOK;

		rc = call_await(l->calls[p], until, &code, f);
		*missing = *missing || code == ZNONODE;
	}
	return rc;
}

static const char *const *
lists_names(const struct lists *l, enum part part, size_t *n)
{
	return call_names(l->calls[part], n);
}

/* Containers, as Curator makes them: they are to go when nobody uses them. */
static enum rc
make_parts(const struct node *n, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	for (enum part p = 0; p < PARTS && rc == RC_OK; p++) {
		char path[NODE_BYTES];

		part_path(path, n, p, NULL);
		rc = lockdir_make_path(n->dir, n->session, path, ZOO_CONTAINER, until, f);
	}
	return rc;
}

/* ---- what is left of an attempt ---- */

static void
forget_attempt(struct permit *u)
{
	u->asked = false;
	u->lock[0] = u->tried[0] = '\0';
}

/* Those of one directory that bear our uuid. */
static enum rc
sweep_part(struct permit *u, enum part part, const struct lists *l, instant until,
    struct fault *f)
{
	const struct node *n = u->turn->node;
	size_t count;
	const char *const *names = lists_names(l, part, &count);
	enum rc rc = RC_OK;

	for (size_t i = 0; i < count && rc == RC_OK; i++) {
		char path[NODE_BYTES];
		int code;

		if (strncmp(names[i], n->dir->uuid, strlen(n->dir->uuid)) != 0 ||
		    strlen(names[i]) >= NAME_BYTES)
			continue;
		part_path(path, n, part, names[i]);
		rc = call_finish(call_delete(n->session, path, -1), until, &code, f);
	}
	return rc;
}

/* A slot has no uuid; it is ours if our session has made it. */
static enum rc
slot_is_ours(const struct permit *u, bool *ours, instant until, struct fault *f)
{
	struct session *s = u->turn->node->session;
	struct call *slot = call_exists(s, u->tried);
	int code;
	enum rc rc = call_await(slot, until, &code, f);

	*ours = rc == RC_OK && code == ZOK &&
	    call_stat(slot)->ephemeralOwner == session_look(s).id;
	call_drop(slot);
	return rc;
}

static enum rc
sweep_slot(struct permit *u, instant until, struct fault *f)
{
	struct session *s = u->turn->node->session;
	bool ours = false;
	int code;
	enum rc rc = *u->tried ? slot_is_ours(u, &ours, until, f) : RC_OK;

	return ours ? call_finish(call_delete(s, u->tried, -1), until, &code, f) : rc;
}

enum rc
permit_sweep(struct permit *u, instant until, struct fault *f)
{
	struct node *n = u->turn->node;
	struct lists l = {{NULL}};
	int code;
	bool missing;
	enum rc rc;

	if (!u->asked)
		return RC_OK;
	rc = session_await(n->session, until, f);
	if (rc == RC_OK)
		rc = call_finish(call_sync(n->session, n->dir->path), until, &code, f);
	if (rc == RC_OK)
		lists_ask(&l, n);
	if (rc == RC_OK)
		rc = lists_await(&l, until, &missing, f);
	if (rc == RC_OK)
		rc = sweep_part(u, LOCKS, &l, until, f);
	if (rc == RC_OK)
		rc = sweep_slot(u, until, f); /* who sees a lease go needs one */
	if (rc == RC_OK)
		rc = sweep_part(u, LEASES, &l, until, f);
	lists_drop(&l);
	if (rc == RC_OK)
		forget_attempt(u);
	return rc;
}

/* ---- come back to ---- */

/* All is ours. */
static void
permit_note_taken(struct permit *u, unsigned slot, const char *lease)
{
	struct node *n = u->turn->node;

	n->taken.number = slot;
	snprintf(n->taken.lease, sizeof n->taken.lease, "%s", lease);
	snprintf(n->taken.slot, sizeof n->taken.slot, "%s", u->tried);
	forget_attempt(u);
}

/* The first of a list that bears our uuid; NULL: none does. */
static const char *
find_ours(const struct permit *u, const struct lists *l, enum part part)
{
	const char *uuid = u->turn->node->dir->uuid;
	size_t n;
	const char *const *names = lists_names(l, part, &n);

	for (size_t i = 0; i < n; i++)
		if (strncmp(names[i], uuid, strlen(uuid)) == 0 &&
		    strlen(names[i]) < NAME_BYTES)
			return names[i];
	return NULL;
}

/*
 * The transaction whose answer we have not got has made a lease and, if this session did it,
 * the slot.  *taken: both are ours.
 */
static enum rc
adopt_permit(
    struct permit *u, const struct lists *l, bool *taken, instant until, struct fault *f)
{
	const char *lease = find_ours(u, l, LEASES);
	char path[NODE_BYTES];
	enum rc rc = lease ? slot_is_ours(u, taken, until, f) : RC_OK;

	if (!*taken)
		return rc;
	part_path(path, u->turn->node, LEASES, lease);
	permit_note_taken(
	    u, (unsigned)strtoul(strrchr(u->tried, '/') + 1, NULL, 10), path);
	return RC_OK;
}

/*
 * There was no connection for a while: what has become of our place in K/locks?  *l is what
 * is there now.  *taken: it was given up for a permit.  Else, without u->lock: it is gone.
 */
static enum rc
come_back(struct permit *u, struct lists *l, bool *taken, instant until, struct fault *f)
{
	struct node *n = u->turn->node;
	const char *name = NULL;
	bool missing;
	int code;
	enum rc rc = call_finish(call_sync(n->session, n->dir->path), until, &code, f);

	if (rc == RC_OK)
		lists_ask(l, n);
	if (rc == RC_OK)
		rc = lists_await(l, until, &missing, f);
	if (rc == RC_OK && *u->tried)
		rc = adopt_permit(u, l, taken, until, f);
	if (rc != RC_OK || *taken)
		return rc;
	name = find_ours(u, l, LOCKS);
	if (name && strcmp(name, strrchr(u->lock, '/') + 1) == 0)
		u->tried[0] = '\0'; /* or it would have gone with that */
	else
		u->lock[0] = '\0';
	return RC_OK;
}

/* ---- into K/locks ---- */

/*
 * Our node there, and the lists as they are right after that.  RC_OK without u->lock:
 * there was no directory.
 */
static enum rc
enter_once(struct permit *u, struct lists *l, instant until, struct fault *f)
{
	struct node *n = u->turn->node;
	char path[NODE_BYTES];
	struct call *create;
	int code;
	bool missing = false;
	enum rc rc;

	snprintf(path, sizeof path, "%s/locks/%slock-", n->dir->path, n->dir->uuid);
	create = lockdir_create(
	    n->dir, n->session, path, n->record, ZOO_EPHEMERAL_SEQUENTIAL);
	lists_ask(l, n);
	u->asked = true;
	rc = call_await(create, until, &code, f);
	if (rc == RC_OK && code == ZOK &&
	    strncmp(call_text(create), path, strlen(path)) != 0)
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gives a wrong answer to create", n->dir->where);
	if (rc == RC_OK && code == ZOK)
		snprintf(u->lock, sizeof u->lock, "%s", call_text(create));
	call_drop(create);
	if (rc == RC_OK)
		rc = lists_await(l, until, &missing, f);
	if (rc == RC_OK && *u->lock && missing) { /* not all of them are there */
		rc = make_parts(n, until, f);
		lists_ask(l, n);
		return rc == RC_OK ? lists_await(l, until, &missing, f) : rc;
	}
	return rc;
}

static enum rc
enter_locks(struct permit *u, struct lists *l, struct fault *f)
{
	instant until = turn_answer_by(u->turn);
	enum rc rc = permit_sweep(u, until, f);

	while (rc == RC_OK && !*u->lock && instant_now() < until) {
		rc = enter_once(u, l, until, f);
		if (rc == RC_OK && !*u->lock)
			rc = make_parts(u->turn->node, until, f);
	}
	return rc == RC_OK && !*u->lock ? lockdir_vanishes(u->turn->node->dir, f) : rc;
}

/* ---- waiting ---- */

/*
 * Asks to be told of the end of the one before us, or of a lease.  *over: it may have
 * ended already.
 */
static enum rc
permit_watch(
    struct permit *u, const struct place *p, size_t leases, bool *over, struct fault *f)
{
	struct node *n = u->turn->node;
	char path[NODE_BYTES];
	struct call *c;
	size_t now;
	int code;
	enum rc rc;

	part_path(
	    path, n, p->position > 0 ? LOCKS : LEASES, p->position > 0 ? p->ahead : NULL);
	c = p->position > 0 ? call_watch(n->session, path)
			    : call_watch_list(n->session, path);
	rc = call_await(c, turn_answer_by(u->turn), &code, f);
	call_names(c, &now);
	*over = rc == RC_OK && (code == ZNONODE || (p->position == 0 && now < leases));
	call_drop(c);
	return rc;
}

/* Until there is reason to look anew.  RC_BUSY: `until` has come. */
static enum rc
await_others(struct permit *u, const struct place *p, size_t leases, instant until,
    struct fault *f)
{
	struct turn *t = u->turn;
	bool over = false;
	enum rc rc = RC_OK;

	holders_show_permits(t, 1 + p->position, leases);
	if (until == 0)
		return fault_set(f, RC_BUSY, "%s: %s", t->node->dir->where,
		    t->freeze.on ? "frozen" : "held");
	rc = turn_serve(t, f);
	if (rc == RC_OK)
		rc = permit_watch(u, p, leases, &over, f);
	return rc == RC_OK && !over ? turn_doze(t, turn_beat(t), until, f) : rc;
}

/* ---- the permit ---- */

static void
note_taken(bool *taken, unsigned limit, const char *name)
{
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (name[0] >= '0' && name[0] <= '9' && !*end && number < limit)
		taken[number] = true;
}

/* The lowest number below `limit` that is no name of a slot; `limit`: there is none. */
static enum rc
find_slot(const struct lists *l, unsigned limit, unsigned *slot, struct fault *f)
{
	size_t n;
	const char *const *names = lists_names(l, SLOTS, &n);
	bool *taken = calloc(limit, sizeof *taken);

	if (!taken)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		note_taken(taken, limit, names[i]);
	for (*slot = 0; *slot < limit && taken[*slot];)
		++*slot;
	free(taken);
	return RC_OK;
}

/* If it has not been frozen since the lists were read: a freeze writes K/locks. */
static struct call *
ask_for_permit(struct permit *u, const struct lists *l, unsigned slot)
{
	struct node *n = u->turn->node;
	char lease[NODE_BYTES], locks[NODE_BYTES], number[16], data[DATA_BYTES];

	part_path(locks, n, LOCKS, NULL);
	snprintf(lease, sizeof lease, "%s/leases/%slease-", n->dir->path, n->dir->uuid);
	snprintf(number, sizeof number, "%u", slot);
	part_path(u->tried, n, SLOTS, number);
	n->said.granted = 0; /* not until this is answered */
	n->said.marked = false;
	node_data(n, (int)slot, data);
	return call_multi(n->session,
	    (const struct change[]){
		{CHANGE_SET, n->path, data, .version = n->said.version},
		{CHANGE_CREATE, lease, n->record, .mode = ZOO_EPHEMERAL_SEQUENTIAL},
		{CHANGE_CREATE, u->tried, strrchr(n->path, '/') + 1,
		    .mode = ZOO_EPHEMERAL},
		{CHANGE_DELETE, u->lock, .version = -1},
		{CHANGE_CHECK, locks, .version = call_stat(l->calls[LOCKS])->version},
	    },
	    5, n->dir->acl == ACL_OPEN);
}

/*
 * Nobody is before us, and there are fewer than N leases.  *taken: we have one now;
 * otherwise something has changed.
 */
static enum rc
take_slot(struct permit *u, const struct lists *l, unsigned slot, struct grant *g,
    bool *taken, struct fault *f)
{
	struct node *n = u->turn->node;
	enum stage before = n->said.stage;
	instant until = turn_answer_by(u->turn);
	struct call *c;
	int code;
	enum rc rc;

	n->said.stage = before == STAGE_WAITING ? STAGE_WAITED : before;
	c = ask_for_permit(u, l, slot);
	rc = call_await(c, until, &code, f);
	*taken = rc == RC_OK && code == ZOK;
	if (!*taken) /* it says so only when that is certain */
		n->said.stage = before;
	if (*taken && strncmp(call_text(c), n->dir->path, strlen(n->dir->path)) != 0)
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gives a wrong answer to create", n->dir->where);
	else if (*taken)
		permit_note_taken(u, slot, call_text(c));
	if (rc == RC_OK && (*taken || call_failed(c) == 0))
		return node_written(n, c, until, g, &(bool){false}, f);
	call_drop(c);
	return rc;
}

/* There are fewer than N leases, and it is for us to make one more. */
static enum rc
take_permit(struct permit *u, const struct lists *l, struct grant *g, bool *taken,
    struct fault *f)
{
	const struct node *n = u->turn->node;
	unsigned limit = u->turn->claim->limit, slot = limit;
	enum rc rc = find_slot(l, limit, &slot, f);

	if (rc != RC_OK)
		return rc;
	if (slot == limit)
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s/slots has nodes for all %u slots, though not all units are held",
		    n->dir->where, n->dir->path, limit);
	return take_slot(u, l, slot, g, taken, f);
}

/* One look at the lists: takes a permit, or waits for those before us. */
static enum rc
advance(struct permit *u, struct lists *l, instant until, struct grant *g, bool *taken,
    struct fault *f)
{
	size_t count, leases;
	const char *const *names = lists_names(l, LOCKS, &count);
	const struct queue q = {u->turn->node->dir->layout, names, count};
	struct place p;
	enum rc rc;

	queue_look(&p, &q, strrchr(u->lock, '/') + 1);
	lists_names(l, LEASES, &leases);
	if (!p.found) /* somebody has deleted it */
		return enter_locks(u, l, f);
	rc = turn_heed_freeze(u->turn, &p, FREEZE_PART, names, count, f);
	if (rc != RC_OK)
		return rc;
	if (p.position > 0 || leases >= u->turn->claim->limit)
		return await_others(u, &p, leases, until, f);
	return take_permit(u, l, g, taken, f);
}

static enum rc
look_anew(struct permit *u, struct lists *l, struct fault *f)
{
	instant until = turn_answer_by(u->turn);
	bool missing;
	enum rc rc;

	lists_ask(l, u->turn->node);
	rc = lists_await(l, until, &missing, f);
	return rc == RC_OK && missing ? make_parts(u->turn->node, until, f) : rc;
}

enum rc
permit_take(struct permit *u, instant until, struct grant *g, struct fault *f)
{
	struct lists l = {{NULL}};
	bool taken = false;
	enum rc rc = RC_OK;

	if (*u->lock)
		rc = come_back(u, &l, &taken, turn_answer_by(u->turn), f);
	if (rc == RC_OK && !*u->lock && !taken)
		rc = enter_locks(u, &l, f);
	while (rc == RC_OK && !taken) {
		rc = advance(u, &l, until, g, &taken, f);
		if (rc == RC_OK && !taken)
			rc = look_anew(u, &l, f);
	}
	lists_drop(&l);
	return rc == RC_OK ? turn_earn(u->turn, g, f) : rc;
}
