/* node.c - makes our node, finds it again, writes it and deletes it. */
#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t
node_server_time(int64_t ms)
{
	return ms > 0 && ms < INT64_MAX / NS_PER_MS / 2 ? ms * NS_PER_MS : -1;
}

int64_t
node_server_now(const struct node *n)
{
	return n->clock.server < 0 ? -1
				   : n->clock.server + (instant_now() - n->clock.here);
}

enum rc
node_is_lost(const struct node *n, struct fault *f)
{
	return fault_set(f, RC_LOST, "%s: our node was deleted", n->dir->where);
}

void
node_note(struct node *n, enum event e)
{
	n->state = state_next(n->state, e);
}

void
node_forget(struct node *n)
{
	node_note(n, EVENT_LOST);
	n->path[0] = '\0';
	n->said = (struct said){.stage = STAGE_AT_ONCE};
	n->guarded = false;
	n->revocation.news = n->revocation.stands = false;
	n->taken = (struct taken){.number = 0};
}

static void
node_adopt(struct node *n, const char *path, const struct Stat *stat)
{
	node_note(n, EVENT_MADE);
	snprintf(n->path, sizeof n->path, "%s", path);
	n->said.version = stat->version;
	n->token = (uint64_t)stat->czxid;
	n->clock = (struct server_clock){node_server_time(stat->ctime), instant_now()};
}

/* What is left of a lease that a write has earned which was sent at `sent`. */
static void
node_lease(struct node *n, struct grant *g, instant sent)
{
	struct credit credit = session_look(n->session).credit;

	g->sent = sent;
	g->lease = credit_lease(&credit, sent);
	g->pace = credit_pace(&credit);
}

/* ---- found again ---- */

/*
 * A node with our uuid: this session's is adopted, an older one's deleted.  One without may
 * be anybody's else.
 */
static enum rc
node_claim(struct node *n, const char *path, instant until, struct fault *f)
{
	struct call *c;
	int code;
	enum rc rc;

	c = call_get(n->session, path);
	rc = call_await(c, until, &code, f);
	if (rc == RC_OK && code == ZOK && call_stat(c)->czxid <= 0)
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gives a wrong answer to get", n->dir->where);
	else if (rc == RC_OK && code == ZOK &&
	    call_stat(c)->ephemeralOwner == session_look(n->session).id && !*n->path)
		node_adopt(n, path, call_stat(c));
	else if (rc == RC_OK && code == ZOK && !n->dir->layout->single)
		rc = call_finish(call_delete(n->session, path, -1), until, &code, f);
	call_drop(c);
	return rc;
}

/* Among the children, as they are listed after `sync`. */
static enum rc
find_among(struct node *n, struct call *sync, instant until, struct fault *f)
{
	struct call *list = call_list(n->session, n->dir->path);
	const char *const *names;
	char path[NODE_BYTES];
	size_t count = 0;
	int code = ZOK;
	enum rc rc = call_finish(sync, until, &code, f);

	if (rc == RC_OK)
		rc = call_await(list, until, &code, f);
	names = rc == RC_OK ? call_names(list, &count) : NULL;
	for (size_t i = 0; rc == RC_OK && i < count; i++) {
		if (!lockdir_is_ours(n->dir, names[i]))
			continue;
		snprintf(path, sizeof path, "%s/%s", n->dir->path, names[i]);
		rc = node_claim(n, path, until, f);
	}
	call_drop(list);
	return rc;
}

enum rc
node_find(struct node *n, instant until, struct fault *f)
{
	struct call *sync;
	int code = ZOK;
	enum rc rc = session_await(n->session, until, f);

	if (rc != RC_OK)
		return rc;
	sync = call_sync(n->session, n->dir->path);
	if (!n->dir->layout->single)
		rc = find_among(n, sync, until, f);
	else
		rc = call_finish(sync, until, &code, f);
	if (rc == RC_OK && n->dir->layout->single)
		rc = node_claim(n, n->dir->path, until, f);
	if (rc == RC_OK && !*n->path)
		node_note(n, EVENT_NOT_MADE);
	return rc;
}

/* ---- made ---- */

/* Does the ensemble give sessions that last? */
static bool
node_can_be_held(struct node *n)
{
	struct credit credit = session_look(n->session).credit;

	return credit_pace(&credit) > 0;
}

/* Is it what we wanted to be made?  A server could say anything. */
static bool
node_is_ours(struct node *n, const struct call *create)
{
	const char *path = call_text(create);
	size_t length = strlen(n->dir->path);

	if (n->dir->layout->single)
		return strcmp(path, n->dir->path) == 0 && call_stat(create)->czxid > 0;
	return strncmp(path, n->dir->path, length) == 0 && path[length] == '/' &&
	    lockdir_is_ours(n->dir, path + length + 1) && call_stat(create)->czxid > 0;
}

static enum rc
refuse_ephemeral(const struct lockdir *d, struct fault *f)
{
	if (d->layout->single)
		return fault_set(f, RC_PROTOCOL, "%s: a part of %s is an ephemeral node",
		    d->where, d->path);
	return fault_set(f, RC_PROTOCOL,
	    "%s: %s is an ephemeral node, which can be a lock of layout=plain only (-O layout=plain joins it)",
	    d->where, d->path);
}

/*
 * What became of `create`, which is dropped.  RC_OK without a path: *code says why there is
 * none, for certain.
 */
static enum rc
node_made(struct node *n, struct call *create, struct grant *g, instant until, int *code,
    struct fault *f)
{
	const struct lockdir *d = n->dir;
	enum rc rc;

	node_note(n, EVENT_MAY_BE_MADE);
	rc = call_await(create, until, code, f);
	if (rc == RC_OK &&
	    (*code == ZNONODE || (*code == ZNODEEXISTS && d->layout->single)))
		node_note(n, EVENT_NOT_MADE);
	if (rc == RC_OK && *code == ZOK && node_is_ours(n, create) &&
	    node_can_be_held(n)) {
		node_adopt(n, call_text(create), call_stat(create));
		node_lease(n, g, call_sent(create));
	} else if (rc == RC_OK && *code == ZNOCHILDRENFOREPHEMERALS) {
		rc = refuse_ephemeral(d, f);
	} else if (rc == RC_OK && (n->state != STATE_NONE || !node_can_be_held(n))) {
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gives a wrong answer to create", d->where);
	}
	call_drop(create);
	return rc;
}

/*
 * Makes it; *list is the queue right after that.  RC_OK with *code ZNONODE: there is no
 * directory.
 */
static enum rc
node_create(struct node *n, struct grant *g, struct call **list, instant until, int *code,
    struct fault *f)
{
	const struct lockdir *d = n->dir;
	char path[NODE_BYTES];
	struct call *create;

	snprintf(path, sizeof path, "%s/%s", d->path, d->prefix);
	create = lockdir_create(d, n->session, path, n->record, ZOO_EPHEMERAL_SEQUENTIAL);
	*list = call_list(n->session, d->path);
	return node_made(n, create, g, until, code, f);
}

enum rc
node_make(struct node *n, struct grant *g, instant until, int *code, struct fault *f)
{
	char data[DATA_BYTES];

	node_data(n, SLOT_NONE, data);
	return node_made(n,
	    lockdir_create(n->dir, n->session, n->dir->path, data, ZOO_EPHEMERAL), g,
	    until, code, f);
}

enum rc
node_join(
    struct node *n, struct grant *g, struct call **list, instant until, struct fault *f)
{
	int code;
	enum rc rc;

	do {
		call_drop(*list);
		*list = NULL;
		/* or there might be two of ours */
		rc = n->state != STATE_NONE ? node_find(n, until, f) : RC_OK;
		if (rc == RC_OK && *n->path)
			*list = call_list(n->session, n->dir->path);
		else if (rc == RC_OK)
			rc = node_create(n, g, list, until, &code, f);
		if (rc == RC_OK && !*n->path)
			rc = lockdir_make(n->dir, n->session, until, f);
	} while (rc == RC_OK && !*n->path && instant_now() < until);
	return rc == RC_OK && !*n->path ? lockdir_vanishes(n->dir, f) : rc;
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
	const struct progress p = {n->said.stage, slot, n->said.granted,
	    n->revocation.stands ? n->revocation.asker : NULL, n->owner};

	data_write(data, n->record, &p);
}

struct call *
node_write(struct node *n)
{
	char data[DATA_BYTES];

	n->said.marked = false;
	node_data(n, *n->taken.lease ? (int)n->taken.number : SLOT_NONE, data);
	if (!*n->taken.lease)
		return call_set(n->session, n->path, data, n->said.version);
	return call_multi(n->session,
	    (const struct change[]){
		{CHANGE_SET, n->path, data, .version = n->said.version},
		{CHANGE_CHECK, n->taken.lease, .version = -1},
		{CHANGE_CHECK, n->taken.slot, .version = -1},
	    },
	    3, false);
}

/* What somebody else has written to it may be that they want the lock back. */
static void
note_asker(struct node *n, const char *data)
{
	char *asker = data_asker(data);

	if (!asker)
		return;
	n->revocation.news = n->revocation.stands = true;
	session_quote(n->session, n->revocation.asker, sizeof n->revocation.asker, asker);
	free(asker);
}

/* Somebody else may have written to it: what, and from which version do we go on? */
enum rc
node_read(struct node *n, instant until, struct fault *f)
{
	struct call *own = call_get(n->session, n->path);
	int code;
	enum rc rc = call_await(own, until, &code, f);

	if (rc == RC_OK && (code != ZOK || (uint64_t)call_stat(own)->czxid != n->token))
		rc = node_is_lost(n, f);
	if (rc == RC_OK) {
		n->said.version = call_stat(own)->version;
		note_asker(n, call_text(own));
	}
	call_drop(own);
	return rc;
}

/* The write that takes what we have waited for is when we were granted it. */
static void
note_grant(struct said *said, int64_t written)
{
	if (said->stage != STAGE_WAITED)
		said->granted = 0;
	else if (said->granted == 0)
		said->granted = written;
}

enum rc
node_written(struct node *n, struct call *set, instant until, struct grant *g,
    bool *written, struct fault *f)
{
	int code;
	enum rc rc = call_await(set, until, &code, f);

	*written = rc == RC_OK && code == ZOK;
	if (*written && (uint64_t)call_stat(set)->czxid != n->token) {
		rc = fault_set(f, RC_LOST,
		    "%s: our node was deleted, and made again by another", n->dir->where);
	} else if (*written) {
		n->said.version = call_stat(set)->version;
		n->clock = (struct server_clock){
		    node_server_time(call_stat(set)->mtime), instant_now()};
		n->said.marked = n->said.stage == STAGE_WAITING;
		note_grant(&n->said, call_stat(set)->mtime);
		node_lease(n, g, call_sent(set));
	} else if (rc == RC_OK && code == ZNONODE) {
		rc = call_failed(set) == 0 ? node_is_lost(n, f) : seat_is_lost(n, f);
	} else if (rc == RC_OK) {
		rc = node_read(n, until, f);
	}
	call_drop(set);
	return rc;
}

void
node_guard(struct node *n)
{
	if (!n->guarded)
		call_drop(call_guard(n->session, n->path));
	n->guarded = true;
}

/* ---- deleted ---- */

/* Some of it has been deleted by others: the rest goes, too. */
static enum rc
delete_rest(struct node *n, instant until, struct fault *f)
{
	int code;
	enum rc rc;

	call_drop(call_delete(n->session, n->taken.lease, -1));
	call_drop(call_delete(n->session, n->taken.slot, -1));
	rc = call_finish(call_delete(n->session, n->path, -1), until, &code, f);
	return rc == RC_OK ? seat_is_lost(n, f) : rc;
}

/* The request to delete it; *own: how many of its changes are about what is ours. */
static struct call *
ask_to_delete(
    struct node *n, int version, const struct change *more, size_t nmore, size_t *own)
{
	struct change all[CHANGES_MAX] = {{CHANGE_DELETE, n->path, .version = version}};

	*own = 1;
	if (*n->taken.lease) {
		all[(*own)++] = (struct change){
		    CHANGE_DELETE, n->taken.lease, .version = -1};
		all[(*own)++] = (struct change){
		    CHANGE_DELETE, n->taken.slot, .version = -1};
	}
	if (*own + nmore == 1)
		return call_delete(n->session, n->path, version);
	for (size_t i = 0; i < nmore && *own + i < CHANGES_MAX; i++)
		all[*own + i] = more[i];
	return call_multi(n->session, all, *own + nmore, n->dir->acl == ACL_OPEN);
}

/*
 * A name that is not ours alone: what stands there now may be another's.  *version: what
 * ours has now; *code ZNONODE: it is gone.
 */
static enum rc
version_of_ours(struct node *n, int *version, int *code, instant until, struct fault *f)
{
	struct call *c = call_get(n->session, n->path);
	enum rc rc = call_await(c, until, code, f);

	if (rc == RC_OK && *code == ZOK && (uint64_t)call_stat(c)->czxid != n->token)
		*code = ZNONODE;
	if (rc == RC_OK && *code == ZOK)
		*version = call_stat(c)->version;
	call_drop(c);
	return rc;
}

/* *failed: so many of what is ours, and of `more`, could be changed before one could not. */
static enum rc
delete_once(struct node *n, const struct change *more, size_t nmore, size_t *own,
    size_t *failed, int *code, instant until, struct fault *f)
{
	int version = -1;
	struct call *c;
	enum rc rc = RC_OK;

	*code = ZOK;
	*failed = 0;
	*own = 1;
	if (n->dir->layout->single)
		rc = version_of_ours(n, &version, code, until, f);
	if (rc != RC_OK || *code != ZOK)
		return rc;
	c = ask_to_delete(n, version, more, nmore, own);
	rc = call_await(c, until, code, f);
	*failed = rc == RC_OK ? call_failed(c) : 0;
	call_drop(c);
	if (rc == RC_AGAIN)
		node_note(n, EVENT_NO_ANSWER);
	return rc;
}

enum rc
node_delete(struct node *n, const struct change *more, size_t nmore, bool *refused,
    instant until, struct fault *f)
{
	int code;
	size_t own, failed;
	enum rc rc = session_await(n->session, until, f);

	*refused = false;
	if (rc == RC_OK && !*n->path)
		rc = node_find(n, until, f);
	if (rc != RC_OK || !*n->path)
		return rc;
	do
		rc = delete_once(n, more, nmore, &own, &failed, &code, until, f);
	while (
	    rc == RC_OK && code == ZBADVERSION && failed == 0 && instant_now() < until);
	if (rc != RC_OK || code == ZOK)
		return rc;
	if (code == ZBADVERSION && failed == 0)
		return fault_set(f, RC_AGAIN,
		    "%s: somebody writes to our node all the time", n->dir->where);
	*refused = failed >= own;
	if (failed > 0)
		return *refused ? RC_OK : delete_rest(n, until, f);
	return code == ZNONODE && !state_is_ending(n->state) ? node_is_lost(n, f) : RC_OK;
}
