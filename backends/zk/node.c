/* node.c - makes our node, finds it again, writes it and deletes it. */
#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how far the claim has come ---- */

/* What an event leads to, from a state between `first` and `last`; others stay as they are. */
static const struct {
	enum state first, last, to;
} steps[EVENTS] = {
    [EVENT_MAY_BE_MADE] = {STATE_NONE, STATE_NONE, STATE_UNSURE},
    [EVENT_NOT_MADE] = {STATE_UNSURE, STATE_UNSURE, STATE_NONE},
    [EVENT_MADE] = {STATE_NONE, STATE_UNSURE, STATE_JOINED},
    [EVENT_SEEN] = {STATE_JOINED, STATE_JOINED, STATE_PLACED},
    [EVENT_WATCHED] = {STATE_PLACED, STATE_PLACED, STATE_WATCHING},
    [EVENT_LIST_ANEW] = {STATE_JOINED, STATE_WATCHING, STATE_JOINED},
    [EVENT_GRANTED] = {STATE_JOINED, STATE_WATCHING, STATE_HELD},
    [EVENT_NO_ANSWER] = {STATE_JOINED, STATE_WATCHING, STATE_LEAVING},
    [EVENT_LOST] = {STATE_JOINED, STATE_GIVING, STATE_UNSURE},
    [EVENT_GONE] = {STATE_NONE, STATE_GIVING, STATE_NONE},
};

enum state
state_next(enum state s, enum event e)
{
	if (e == EVENT_NO_ANSWER && s == STATE_HELD)
		return STATE_GIVING;
	return s >= steps[e].first && s <= steps[e].last ? steps[e].to : s;
}

bool
state_is_holders(enum state s)
{
	return s == STATE_HELD || s == STATE_GIVING;
}

bool
state_is_ending(enum state s)
{
	return s == STATE_LEAVING || s == STATE_GIVING;
}

void
node_note(struct node *n, enum event e)
{
	n->state = state_next(n->state, e);
}

/* ---- what is known of it ---- */

int64_t
node_server_now(const struct node *n)
{
	return n->clock.server < 0 ? -1
				   : n->clock.server + (instant_now() - n->clock.here);
}

static enum rc
node_is_lost(const struct node *n, struct fault *f)
{
	return fault_set(f, RC_LOST, "%s: our node was deleted", n->dir->where);
}

enum rc
node_is_disturbed(const struct node *n, struct fault *f)
{
	return fault_set(
	    f, RC_AGAIN, "%s: somebody writes to our node all the time", n->dir->where);
}

void
node_forget(struct node *n)
{
	node_note(n, EVENT_LOST);
	n->path[0] = '\0';
	n->said = (struct node_said){.stage = STAGE_AT_ONCE};
	n->guarded = false;
	n->revocation.state = REVOKED_NOT;
	if (n->permit.state ==
	    PERMIT_TAKEN) /* to be given back before we ask for another */
		n->permit.state = PERMIT_ASKED;
}

static void
node_adopt(struct node *n, const char *path, const struct Stat *stat)
{
	node_note(n, EVENT_MADE);
	snprintf(n->path, sizeof n->path, "%s", path);
	n->said.version = stat->version;
	n->token = (uint64_t)stat->czxid;
	n->clock = (struct server_clock){stat_time(stat->ctime), instant_now()};
	if (n->joined == 0)
		n->joined = n->clock.server;
}

/* What is left of a lease that a write has earned which was sent at `sent`. */
static void
node_lease(struct node *n, instant sent)
{
	struct credit credit = session_look(n->dir->session).credit;

	n->grant.sent = sent;
	n->grant.lease = credit_lease(&credit, sent);
	n->grant.pace = credit_pace(&credit);
}

/* ---- found again ---- */

/*
 * A node with our uuid: this session's is adopted, an older one's deleted.  One without may
 * be anybody's else.
 */
static enum rc
node_claim(struct node *n, const char *path, instant until, struct fault *f)
{
	struct session *s = n->dir->session;
	struct call *c = call_ask(s, ASK_GET, path);
	enum rc rc = call_await(c, until, f);

	if (rc == RC_OK && c->code == ZOK && c->stat.czxid <= 0)
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gives a wrong answer to get", n->dir->where);
	else if (rc == RC_OK && c->code == ZOK &&
	    c->stat.ephemeralOwner == session_look(s).id && !*n->path)
		node_adopt(n, path, &c->stat);
	else if (rc == RC_OK && c->code == ZOK && !n->dir->layout->single)
		rc = call_finish(call_delete(s, path, -1), until, NULL, f);
	call_drop(c);
	return rc;
}

/* Did a create whose answer we have not got happen?  Then the path is set. */
static enum rc
node_find(struct node *n, instant until, struct fault *f)
{
	const struct lockdir *d = n->dir;
	struct call *sync, *list = NULL;
	enum rc rc = session_await(d->session, until, f);

	if (rc != RC_OK)
		return rc;
	sync = lockdir_ask(d, ASK_SYNC, "", NULL);
	if (!d->layout->single)
		list = lockdir_ask(d, ASK_LIST, "", NULL);
	rc = call_finish(sync, until, NULL, f);
	if (rc == RC_OK && d->layout->single)
		rc = node_claim(n, d->path, until, f);
	else if (rc == RC_OK)
		rc = call_await(list, until, f);
	for (size_t i = 0; rc == RC_OK && list && i < list->nnames; i++)
		if (lockdir_is_ours(d, list->names[i]))
			rc = node_claim(
			    n, lockdir_below(d, "", list->names[i]).at, until, f);
	call_drop(list);
	if (rc == RC_OK && !*n->path)
		node_note(n, EVENT_NOT_MADE);
	return rc;
}

/* ---- made ---- */

/*
 * What became of `create`, which is dropped.  RC_OK without a path: *code says why there is
 * none, for certain.
 */
static enum rc
node_made(struct node *n, struct call *create, instant until, int *code, struct fault *f)
{
	const struct lockdir *d = n->dir;
	size_t length = strlen(d->path);
	struct credit credit;
	bool ours = false, lasts;
	enum rc rc;

	node_note(n, EVENT_MAY_BE_MADE);
	rc = call_await(create, until, f);
	/* does the ensemble give sessions that last? */
	credit = session_look(d->session).credit;
	lasts = credit_pace(&credit) > 0;
	if (rc == RC_OK)
		*code = create->code;
	/* a server could say that it has made anything */
	if (rc == RC_OK && *code == ZOK && create->stat.czxid > 0 &&
	    strncmp(create->text, d->path, length) == 0)
		ours = d->layout->single ? !create->text[length]
					 : create->text[length] == '/' &&
			lockdir_is_ours(d, create->text + length + 1);
	if (rc == RC_OK &&
	    (*code == ZNONODE || (*code == ZNODEEXISTS && d->layout->single)))
		node_note(n, EVENT_NOT_MADE);
	if (ours && lasts) {
		node_adopt(n, create->text, &create->stat);
		node_lease(n, create->sent);
	} else if (rc == RC_OK && *code == ZNOCHILDRENFOREPHEMERALS) {
		rc = d->layout->single ? lockdir_is_childless(d, d->path, f)
				       : lockdir_is_single(d, f);
	} else if (rc == RC_OK && (n->state != STATE_NONE || !lasts)) {
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gives a wrong answer to create", d->where);
	}
	call_drop(create);
	return rc;
}

static struct call *
ask_for_node(const struct node *n)
{
	const struct lockdir *d = n->dir;
	char data[DATA_BYTES];

	if (!d->layout->single)
		return lockdir_create(d, lockdir_below(d, "", d->prefix).at, n->record,
		    ZOO_EPHEMERAL_SEQUENTIAL);
	node_data(n, SLOT_NONE, data);
	return lockdir_create(d, d->path, data, ZOO_EPHEMERAL);
}

enum rc
node_join(struct node *n, struct call **list, instant until, struct fault *f)
{
	const struct lockdir *d = n->dir;
	enum rc rc;

	do {
		struct call *create = NULL;
		int code = ZOK;

		call_drop(*list);
		*list = NULL;
		/* or there might be two of ours */
		rc = n->state != STATE_NONE ? node_find(n, until, f) : RC_OK;
		if (rc == RC_OK && !*n->path)
			create = ask_for_node(n);
		if (rc == RC_OK && !d->layout->single)
			*list = lockdir_ask(d, ASK_LIST, "", NULL);
		if (rc == RC_OK && !*n->path)
			rc = node_made(n, create, until, &code, f);
		if (code == ZNODEEXISTS)
			return rc;
		if (rc == RC_OK && !*n->path)
			rc = lockdir_make(d, until, f);
	} while (rc == RC_OK && !*n->path && instant_now() < until);
	return rc == RC_OK && !*n->path ? lockdir_vanishes(d, f) : rc;
}

/* ---- written ---- */

/* Others count the leases: without ours they may hold as many as they like. */
static enum rc
seat_is_lost(const struct node *n, struct fault *f)
{
	return fault_set(
	    f, RC_LOST, "%s: our lease or our slot was deleted", n->dir->where);
}

void
node_data(const struct node *n, int slot, char data[DATA_BYTES])
{
	struct progress p = {
	    .stage = n->said.stage, .slot = slot, .granted = n->said.granted};

	if (n->owner)
		snprintf(p.owner, sizeof p.owner, "%s", n->owner);
	data_write(data, n->record, &p,
	    n->revocation.state != REVOKED_NOT ? n->revocation.asker : NULL);
}

struct call *
node_write(struct node *n)
{
	bool taken = n->permit.state == PERMIT_TAKEN;
	char data[DATA_BYTES];

	n->said.marked = false;
	node_data(n, taken ? (int)n->permit.number : SLOT_NONE, data);
	if (!taken)
		return call_set(n->dir->session, n->path, data, n->said.version);
	return call_multi(n->dir->session,
	    (const struct change[]){
		{CHANGE_SET, n->path, data, .version = n->said.version},
		{CHANGE_CHECK, n->permit.lease, .version = -1},
		{CHANGE_CHECK, n->permit.slot, .version = -1},
	    },
	    3, false);
}

/*
 * Somebody else may have written to it, perhaps that they want the lock back: what, and from
 * which version do we go on?  *there: it is ours.
 */
static enum rc
look_at_own(struct node *n, bool *there, instant until, struct fault *f)
{
	struct call *own = call_ask(n->dir->session, ASK_GET, n->path);
	struct revocation *r = &n->revocation;
	char *asker;
	enum rc rc = call_await(own, until, f);

	*there = rc == RC_OK && own->code == ZOK && (uint64_t)own->stat.czxid == n->token;
	if (*there) {
		n->said.version = own->stat.version;
		asker = data_asker(own->text);
		if (asker) {
			r->state = REVOKED_NEWS;
			snprintf(r->asker, sizeof r->asker, "%s", asker);
		}
		free(asker);
	}
	call_drop(own);
	return rc;
}

enum rc
node_read(struct node *n, instant until, struct fault *f)
{
	bool there;
	enum rc rc = look_at_own(n, &there, until, f);

	return rc == RC_OK && !there ? node_is_lost(n, f) : rc;
}

/* The write that takes what we have waited for is when we were granted it. */
static void
note_written(struct node *n, const struct call *set)
{
	struct node_said *said = &n->said;

	said->version = set->stat.version;
	said->marked = said->stage == STAGE_WAITING;
	n->clock = (struct server_clock){stat_time(set->stat.mtime), instant_now()};
	if (said->stage != STAGE_WAITED)
		said->granted = 0;
	else if (said->granted == 0)
		said->granted = set->stat.mtime;
	node_lease(n, set->sent);
}

enum rc
node_written(
    struct node *n, struct call *set, instant until, bool *written, struct fault *f)
{
	enum rc rc = call_await(set, until, f);
	bool done = rc == RC_OK && set->code == ZOK;

	if (done && (uint64_t)set->stat.czxid != n->token)
		rc = fault_set(f, RC_LOST,
		    "%s: our node was deleted, and another client made it again",
		    n->dir->where);
	else if (done)
		note_written(n, set);
	else if (rc == RC_OK && set->code == ZNONODE)
		rc = set->failed == 0 ? node_is_lost(n, f) : seat_is_lost(n, f);
	else if (rc == RC_OK)
		rc = node_read(n, until, f);
	call_drop(set);
	if (written)
		*written = done;
	return rc;
}

void
node_guard(struct node *n)
{
	if (!n->guarded)
		call_drop(call_ask(n->dir->session, ASK_OWN_END, n->path));
	n->guarded = true;
}

/* ---- deleted ---- */

/* All that is ours, then `more`; the first that could not be changed is *failed of them. */
static enum rc
delete_all(struct node *n, const struct change *more, size_t nmore, size_t *failed,
    int *code, instant until, struct fault *f)
{
	int version = n->dir->layout->single ? n->said.version : -1;
	struct change all[CHANGES_MAX] = {{CHANGE_DELETE, n->path, .version = version},
	    {CHANGE_DELETE, n->permit.lease, .version = -1},
	    {CHANGE_DELETE, n->permit.slot, .version = -1}};
	size_t own = n->permit.state == PERMIT_TAKEN ? 3 : 1;
	struct call *c;
	enum rc rc;

	for (size_t i = 0; i < nmore; i++)
		all[own + i] = more[i];
	c = own + nmore == 1
	    ? call_delete(n->dir->session, n->path, version)
	    : call_multi(n->dir->session, all, own + nmore, n->dir->acl == ACL_OPEN);
	rc = call_await(c, until, f);
	if (rc == RC_OK) {
		*failed = c->failed;
		*code = c->code;
	}
	call_drop(c);
	if (rc == RC_AGAIN)
		node_note(n, EVENT_NO_ANSWER);
	return rc;
}

enum rc
node_delete(struct node *n, const struct change *more, size_t nmore, bool *refused,
    instant until, struct fault *f)
{
	struct session *s = n->dir->session;
	int code;
	size_t failed;
	enum rc rc = session_await(s, until, f);

	*refused = false;
	if (rc == RC_OK && !*n->path)
		rc = node_find(n, until, f);
	if (rc != RC_OK || !*n->path)
		return rc;
	do {
		bool there = true;

		code = ZNONODE;
		failed = 0;
		/* a name that is not ours alone: what stands there now may be another's */
		if (n->dir->layout->single)
			rc = look_at_own(n, &there, until, f);
		if (rc == RC_OK && there)
			rc = delete_all(n, more, nmore, &failed, &code, until, f);
	} while (
	    rc == RC_OK && code == ZBADVERSION && failed == 0 && instant_now() < until);
	if (rc == RC_OK && code == ZOK)
		node_note(n, EVENT_GONE);
	if (rc != RC_OK || code == ZOK)
		return rc;
	if (code == ZBADVERSION && failed == 0)
		return node_is_disturbed(n, f);
	*refused = failed >= (n->permit.state == PERMIT_TAKEN ? 3 : 1);
	if (*refused)
		return RC_OK;
	if (failed > 0) { /* by others; the rest goes, too */
		call_drop(call_delete(s, n->permit.lease, -1));
		call_drop(call_delete(s, n->permit.slot, -1));
		rc = call_finish(call_delete(s, n->path, -1), until, NULL, f);
		return rc == RC_OK ? seat_is_lost(n, f) : rc;
	}
	return code == ZNONODE && !state_is_ending(n->state) ? node_is_lost(n, f) : RC_OK;
}
