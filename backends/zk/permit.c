/*
 * permit.c - takes one of the N permits of a limited lock, in the layout of Curator's
 * InterProcessSemaphoreV2, beside its users.
 *
 *	K/_c_<uuid>-<N>-unit-<n>	our place among all dlocks (queue.h), with the slot in its data
 *	K/locks/_c_<uuid>-lock-<n>	while we take a permit: the first one may
 *	K/leases/_c_<uuid>-lease-<n>	our permit, as Curator's users count it
 *	K/slots/<slot>			our slot
 *
 *  1. When it is our turn in K, at most N - 1 dlocks hold a permit, and all before us in K
 *     have theirs (wait.c).  Then we go to K/locks, where Curator's users stand, too; not
 *     before, since the first one there stops them all.
 *  2. Whoever is first in K/locks is the only one who may make a lease, so that the number of
 *     leases can only fall while we are that.  We wait until there are fewer than N; then
 *     one transaction makes lease and slot, removes our node from K/locks and writes our
 *     node in K, which earns the time.  All or nothing: there is no moment at which
 *     somebody counts one of them without the other.
 *  3. What we go by is not too old, though it is read from a server that may lag: whoever
 *     was before us in K/locks made lease and slot in the transaction by which it left (Curator's
 *     users: before), so a server that no longer shows it there shows these.
 *  4. No two holders have one slot, whatever they have read: a slot is the name of a node, and
 *     the second one's transaction fails.  It is the lowest that is free, since nobody else can
 *     take one meanwhile.  It goes with its owner's session, or in the transaction that gives up
 *     the place in K, the lease and the slot.
 *  5. Each renewal checks that lease and slot are there (node.h): if somebody deletes one, the
 *     lock is lost.
 *  6. After a lost connection our node in K/locks is where it was, or the transaction has
 *     happened; then the permit is ours, if the slot is our session's.  Whoever has lost the place in
 *     K goes from K/locks, too: those before it in K would wait for it there.
 */
#include "zk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As they are at the leader now. */
static enum rc
lists_read(struct lists *l, const struct lockdir *d, instant until, struct fault *f)
{
	enum rc rc = lockdir_sync(d, until, f);

	if (rc != RC_OK)
		return rc;
	lists_ask(l, d, PARTS);
	return lists_await(l, until, NULL, f);
}

/* Containers, as Curator makes them: they are to go when nobody uses them. */
static enum rc
make_parts(const struct lockdir *d, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	for (enum part p = 0; p < PARTS && rc == RC_OK; p++)
		rc = lockdir_make_path(
		    d, lockdir_below(d, parts[p], NULL).at, ZOO_CONTAINER, until, f);
	return rc;
}

/* The next name in that list, from *i on, that bears our uuid; NULL: none does. */
static const char *
next_of_ours(const struct zk *z, const struct lists *l, enum part part, size_t *i)
{
	const struct call *list = l->of[part];

	while (*i < list->nnames) {
		const char *name = list->names[(*i)++];

		if (strncmp(name, z->dir.prefix, UUID_CHARS) == 0 &&
		    strlen(name) < NAME_BYTES)
			return name;
	}
	return NULL;
}

/* ---- what is left of an attempt ---- */

static enum rc
sweep_part(
    struct zk *z, enum part part, const struct lists *l, instant until, struct fault *f)
{
	const char *name;
	size_t i = 0;
	enum rc rc = RC_OK;

	while (rc == RC_OK && (name = next_of_ours(z, l, part, &i)))
		rc = call_finish(call_delete(z->dir.session,
				     lockdir_below(&z->dir, parts[part], name).at, -1),
		    until, NULL, f);
	return rc;
}

/* A slot has no uuid; it is ours if our session has made it. */
static enum rc
slot_is_ours(struct zk *z, bool *ours, instant until, struct fault *f)
{
	struct call *slot;
	enum rc rc;

	*ours = false;
	if (!*z->node.permit.slot)
		return RC_OK;
	slot = call_ask(z->dir.session, ASK_EXISTS, z->node.permit.slot);
	rc = call_await(slot, until, f);
	*ours = rc == RC_OK && slot->code == ZOK &&
	    slot->stat.ephemeralOwner == session_look(z->dir.session).id;
	call_drop(slot);
	return rc;
}

enum rc
permit_sweep(struct zk *z, instant until, struct fault *f)
{
	struct lists l = {.n = 0};
	bool ours = false;
	enum rc rc;

	if (z->node.permit.state != PERMIT_ASKED)
		return RC_OK;
	rc = session_await(z->dir.session, until, f);
	if (rc == RC_OK)
		rc = lists_read(&l, &z->dir, until, f);
	if (rc == RC_OK)
		rc = sweep_part(z, LOCKS, &l, until, f);
	if (rc == RC_OK)
		rc = slot_is_ours(z, &ours, until, f);
	if (rc == RC_OK && ours) /* who sees a lease go needs one */
		rc = call_finish(
		    call_delete(z->dir.session, z->node.permit.slot, -1), until, NULL, f);
	if (rc == RC_OK)
		rc = sweep_part(z, LEASES, &l, until, f);
	lists_drop(&l);
	if (rc == RC_OK)
		z->node.permit = (struct permit){.state = PERMIT_NONE};
	return rc;
}

/* ---- come back to ---- */

/* All is ours. */
static void
note_permit(struct zk *z, const char *lease)
{
	struct permit *p = &z->node.permit;

	p->state = PERMIT_TAKEN;
	p->lock[0] = '\0';
	snprintf(p->lease, sizeof p->lease, "%.*s", NODE_BYTES - 1, lease);
}

/*
 * There was no connection for a while: what has become of our place in K/locks?  *l is what
 * is there now.  It may have been given up for a permit.  Else, without `lock`: it is gone.
 */
static enum rc
come_back(struct zk *z, struct lists *l, struct fault *f)
{
	struct permit *p = &z->node.permit;
	const char *name, *lease;
	size_t i = 0, k = 0;
	bool ours = false;
	enum rc rc = lists_read(l, &z->dir, zk_answer_by(z), f);

	/* a lease, and if this session did it, the slot: the transaction has happened */
	lease = rc == RC_OK ? next_of_ours(z, l, LEASES, &k) : NULL;
	if (lease)
		rc = slot_is_ours(z, &ours, zk_answer_by(z), f);
	if (ours)
		note_permit(z, lockdir_below(&z->dir, parts[LEASES], lease).at);
	if (rc != RC_OK || ours)
		return rc;
	name = next_of_ours(z, l, LOCKS, &i);
	if (name && strcmp(name, strrchr(p->lock, '/') + 1) == 0)
		p->slot[0] = '\0'; /* or it would have gone with that */
	else
		p->lock[0] = '\0';
	return RC_OK;
}

/* ---- into K/locks ---- */

/* A server could say anything. */
static enum rc
check_made(const struct zk *z, const struct call *made, const char *path, struct fault *f)
{
	return strncmp(made->text, path, strlen(path)) == 0
	    ? RC_OK
	    : fault_set(f, RC_PROTOCOL, "%s gives a wrong answer to create", z->where);
}

/* Our node there, and the lists as they are right after that. */
static enum rc
enter_locks(struct zk *z, struct lists *l, struct fault *f)
{
	struct permit *p = &z->node.permit;
	const struct lockdir *d = &z->dir;
	struct path path = path_of("%s/locks/%.*slock-", d->path, UUID_CHARS, d->prefix);
	instant until = zk_answer_by(z);
	enum rc rc = permit_sweep(z, until, f);

	while (rc == RC_OK && !*p->lock && instant_now() < until) {
		struct call *create = lockdir_create(
		    d, path.at, z->node.record, ZOO_EPHEMERAL_SEQUENTIAL);
		bool missing = false;

		lists_ask(l, d, PARTS);
		p->state = PERMIT_ASKED;
		rc = call_await(create, until, f);
		if (rc == RC_OK && create->code == ZOK)
			rc = check_made(z, create, path.at, f);
		if (rc == RC_OK && create->code == ZOK)
			snprintf(p->lock, sizeof p->lock, "%.*s", NODE_BYTES - 1,
			    create->text);
		call_drop(create);
		if (rc == RC_OK)
			rc = lists_await(l, until, &missing, f);
		if (rc != RC_OK || (*p->lock && !missing))
			return rc;
		rc = make_parts(d, until, f);
		lists_ask(l, d, PARTS);
		if (rc == RC_OK && *p->lock)
			rc = lists_await(l, until, NULL, f);
	}
	return rc == RC_OK && !*p->lock ? lockdir_vanishes(d, f) : rc;
}

/* ---- waiting ---- */

/*
 * Until there is reason to look anew: the one before us has ended, or a lease, which may have
 * happened already.  RC_BUSY: `until` has come.
 */
static enum rc
await_others(
    struct zk *z, const struct place *p, size_t leases, instant until, struct fault *f)
{
	bool over, queued = p->position > 0;
	struct call *c;
	enum rc rc;

	holders_show_permits(z, 1 + p->position, leases);
	if (until == 0)
		return fault_set(f, RC_BUSY, "%s: %s", z->where,
		    z->turn.freeze.on ? "frozen" : "held");
	rc = turn_serve(z, f);
	if (rc != RC_OK)
		return rc;
	c = queued ? lockdir_ask(&z->dir, ASK_END, parts[LOCKS], p->ahead)
		   : lockdir_ask(&z->dir, ASK_CHILDREN, parts[LEASES], NULL);
	rc = call_await(c, zk_answer_by(z), f);
	over = rc == RC_OK && (c->code == ZNONODE || (!queued && c->nnames < leases));
	call_drop(c);
	return rc == RC_OK && !over ? turn_doze(z, turn_beat(z), until, f) : rc;
}

/* ---- the permit ---- */

/* If it has not been frozen since the lists were read: a freeze writes K/locks. */
static struct call *
ask_for_permit(struct zk *z, const struct lists *l)
{
	struct node *n = &z->node;
	const struct lockdir *d = &z->dir;
	struct path locks = lockdir_below(d, parts[LOCKS], NULL);
	struct path lease = path_of(
	    "%s/leases/%.*slease-", d->path, UUID_CHARS, d->prefix);
	char data[DATA_BYTES];

	snprintf(n->permit.slot, sizeof n->permit.slot, "%s/slots/%u", d->path,
	    n->permit.number);
	n->said.granted = 0; /* not until this is answered */
	n->said.marked = false;
	node_data(n, (int)n->permit.number, data);
	return call_multi(d->session,
	    (const struct change[]){
		{CHANGE_SET, n->path, data, .version = n->said.version},
		{CHANGE_CREATE, lease.at, n->record, .mode = ZOO_EPHEMERAL_SEQUENTIAL},
		{CHANGE_CREATE, n->permit.slot, strrchr(n->path, '/') + 1,
		    .mode = ZOO_EPHEMERAL},
		{CHANGE_DELETE, n->permit.lock, .version = -1},
		{CHANGE_CHECK, locks.at, .version = l->of[LOCKS]->stat.version},
	    },
	    5, d->acl == ACL_OPEN);
}

/*
 * Nobody is before us, there are fewer than N leases, and the slot is free.  Where we do not get
 * it all, something has changed.
 */
static enum rc
take_slot(struct zk *z, const struct lists *l, struct fault *f)
{
	struct node *n = &z->node;
	enum stage before = n->said.stage;
	instant until = zk_answer_by(z);
	struct call *c;
	bool taken;
	enum rc rc;

	n->said.stage = before == STAGE_WAITING ? STAGE_WAITED : before;
	c = ask_for_permit(z, l);
	rc = call_await(c, until, f);
	taken = rc == RC_OK && c->code == ZOK;
	if (!taken) /* it says so only when that is certain */
		n->said.stage = before;
	else
		rc = check_made(z, c, z->dir.path, f);
	if (rc == RC_OK && taken)
		note_permit(z, c->text);
	if (rc == RC_OK && (taken || c->failed == 0))
		return node_written(n, c, until, NULL, f);
	call_drop(c);
	return rc;
}

/*
 * There are fewer than N leases, and it is for us to make one more, with the lowest slot whose
 * number is no name.
 */
static enum rc
take_permit(struct zk *z, const struct lists *l, struct fault *f)
{
	unsigned limit = z->claim->limit, *slot = &z->node.permit.number;
	const struct call *slots = l->of[SLOTS];
	bool *taken = calloc(limit, sizeof *taken);

	if (!taken)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; i < slots->nnames; i++) {
		const char *name = slots->names[i];
		char *end;
		unsigned long number = strtoul(name, &end, 10);

		if (name[0] >= '0' && name[0] <= '9' && !*end && number < limit)
			taken[number] = true;
	}
	for (*slot = 0; *slot < limit && taken[*slot];)
		++*slot;
	free(taken);
	if (*slot == limit)
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s/slots has nodes for all %u slots, though not all permits are held",
		    z->where, z->dir.path, limit);
	return take_slot(z, l, f);
}

/* One look at the lists: takes a permit, or waits for those before us. */
static enum rc
advance(struct zk *z, struct lists *l, instant until, struct fault *f)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.*): the lists have been read */
	const struct queue q = {z->dir.layout, l->of[LOCKS]->names, l->of[LOCKS]->nnames};
	size_t leases = l->of[LEASES]->nnames;
	struct place p;
	enum rc rc;

	if (!queue_look(&p, &q, strrchr(z->node.permit.lock, '/') + 1))
		return fault_set(f, RC_SYSTEM, "out of memory");
	if (!p.found) /* somebody has deleted it */
		return enter_locks(z, l, f);
	rc = turn_heed_freeze(z, &p, FREEZE_PART, &q, f);
	if (rc != RC_OK)
		return rc;
	if (p.position > 0 || leases >= z->claim->limit)
		return await_others(z, &p, leases, until, f);
	return take_permit(z, l, f);
}

enum rc
permit_take(struct zk *z, instant until, struct fault *f)
{
	struct permit *p = &z->node.permit;
	struct lists l = {.n = 0};
	bool missing = false;
	enum rc rc = RC_OK;

	if (*p->lock)
		rc = come_back(z, &l, f);
	if (rc == RC_OK && !*p->lock && p->state != PERMIT_TAKEN)
		rc = enter_locks(z, &l, f);
	while (rc == RC_OK && p->state != PERMIT_TAKEN) {
		rc = advance(z, &l, until, f);
		if (rc != RC_OK || p->state == PERMIT_TAKEN)
			break;
		lists_ask(&l, &z->dir, PARTS);
		rc = lists_await(&l, zk_answer_by(z), &missing, f);
		if (rc == RC_OK && missing)
			rc = make_parts(&z->dir, zk_answer_by(z), f);
	}
	lists_drop(&l);
	return rc == RC_OK ? turn_earn(z, f) : rc;
}
