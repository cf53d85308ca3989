/*
 * steer.c - takes a lock from its holder, lets nobody take it, and ends that.
 *
 *  1. The holder that is meant is found by its token, which is its node's czxid, and is written
 *     or deleted with the version that was read with that: whoever comes to stand
 *     there instead is another node.
 *  2. A dlock is asked by what data.h says; Curator's users as Curator does it, who have to
 *     listen for that (makeRevocable).  Those of its semaphore cannot be asked.
 *  3. What is frozen, and how, is in freeze.h.
 */
#include "zk.h"

#include <stdio.h>
#include <string.h>

/* The node of a holder. */
struct holder {
	struct contents contents; /* to be ended; what follows lives as long */
	char name[NAME_BYTES];
	struct path path;
	struct call *data;      /* as it was read; NULL: there is none */
	bool ours, permit;      /* a dlock's; of a semaphore */
	char lease[NAME_BYTES]; /* of ours, in K/leases */
};

enum rc
steering_denied(const struct steering *how, const char *path, struct fault *f)
{
	return fault_set(f, RC_DENIED,
	    "%s: no permission to change %s: its ACL is for the user that made it (use that user: -O auth-file)",
	    how->dir->where, path);
}

static enum rc
is_gone(const struct steering *how, struct fault *f)
{
	return fault_set(f, RC_LOST, "%s: there is no such holder", how->dir->where);
}

enum rc
steering_changed(struct steering *how, struct call *c, struct fault *f)
{
	enum rc rc = call_await(c, how->until, f);

	how->asked = how->asked || rc == RC_AGAIN || rc == RC_LOST;
	return rc;
}

/* ---- the holder that is meant ---- */

/* Keeps the node if it is of the grant that is meant. */
static enum rc
see_holder(
    const struct steering *how, struct holder *h, const struct member *m, struct fault *f)
{
	const struct layout *l = how->dir->layout;
	const struct target *t = how->target;
	struct child c = layout_read(l, m->name);
	struct path path = lockdir_below(how->dir, m->part, m->name);
	struct progress told;

	if (!m->node)
		return steering_denied(how, path.at, f);
	told = data_read(m->node->text);
	if ((t->token && (uint64_t)m->node->stat.czxid != t->token) ||
	    (!t->token && !t->owner))
		return RC_OK;
	if (t->owner &&
	    !(l->single ? strcmp(told.owner, t->owner) == 0
			: child_has_owner(&c, t->owner)))
		return RC_OK;
	h->path = path;
	snprintf(h->name, sizeof h->name, "%s", m->name);
	h->ours = l->single ? *told.owner != '\0' : c.owner != NULL;
	h->permit = *m->part || c.kind == KIND_LIMIT;
	h->data = m->node;
	return RC_OK;
}

/* RC_LOST: nobody has that grant. */
static enum rc
find_holder(const struct steering *how, struct holder *h, struct fault *f)
{
	bool single = how->dir->layout->single, there = false;
	struct member m = {"", "", NULL};
	struct contents *c = &h->contents;
	const char *seat;
	enum rc rc = lockdir_sync(how->dir, how->until, f);

	*h = (struct holder){.data = NULL};
	if (rc != RC_OK)
		return rc;
	if (how->target->owner && strlen(how->target->owner) != OWNER_CHARS)
		return is_gone(how, f); /* nobody's */
	contents_begin(c, how->dir, NULL, how->until);
	rc = contents_list(c, how->target->owner, &there, f);
	if (rc == RC_DENIED && single)
		rc = steering_denied(how, how->dir->path, f);
	m.node = c->list;
	if (there)
		rc = single ? see_holder(how, h, &m, f) : contents_judge(c, false, -1, f);
	while (there && !single && rc == RC_OK && !h->data &&
	    (rc = contents_next(c, true, &m, f)) == RC_OK)
		rc = see_holder(how, h, &m, f);
	rc = rc == RC_DONE ? RC_OK : rc;
	seat = h->data && h->permit && h->ours ? contents_seat(c, h->name) : NULL;
	snprintf(h->lease, sizeof h->lease, "%s", seat ? seat : "");
	return rc == RC_OK &&
		(!h->data || data_read(h->data->text).stage == STAGE_WAITING)
	    ? is_gone(how, f)
	    : rc;
}

/* ---- asked ---- */

/*
 * *done: it has been asked.  Otherwise it has written to its node meanwhile, and is to be
 * read again.
 */
static enum rc
mark_holder(struct steering *how, const struct holder *h, bool *done, struct fault *f)
{
	const struct Stat *stat = &h->data->stat;
	const char *text = h->data->text;
	char data[DATA_BYTES] = CURATORS_REVOKE;
	struct call *set;
	enum rc rc;

	if (!h->ours && (h->permit || !how->dir->layout->listens))
		return fault_set(f, RC_CONFIG,
		    "%s: %s%s cannot be asked to give the lock up; dlock break --force takes it away",
		    how->dir->where, h->permit ? "users of " : "",
		    h->permit ? "Curator's semaphore" : "a program other than dlock");
	if (h->ours)
		data_mark(data, (size_t)stat->dataLength == strlen(text) ? text : "",
		    how->record);
	set = call_set(how->dir->session, h->path.at, data, stat->version);
	rc = steering_changed(how, set, f);
	*done = rc == RC_OK && set->code == ZOK;
	if (*done && set->stat.czxid != stat->czxid)
		rc = is_gone(how, f);
	call_drop(set);
	return rc == RC_DENIED ? steering_denied(how, h->path.at, f) : rc;
}

/* ---- taken away ---- */

/*
 * What belongs to the holder, all or none, as a release does it: its node, which must be
 * as it was read, and of a permit the lease and the slot.
 */
static enum rc
remove_holder(struct steering *how, const struct holder *h, const struct change *note,
    bool *done, struct fault *f)
{
	struct path slot, lease = lockdir_below(how->dir, "/leases", h->lease);
	struct change all[4] = {
	    {CHANGE_DELETE, h->path.at, .version = h->data->stat.version}};
	struct call *c;
	size_t n = 1;
	enum rc rc;

	if (h->permit && h->ours) {
		slot = path_of(
		    "%s/slots/%d", how->dir->path, data_read(h->data->text).slot);
		c = call_ask(how->dir->session, ASK_GET, slot.at);
		rc = call_await(c, how->until, f);
		all[n++] = (struct change){CHANGE_DELETE, lease.at, .version = -1};
		/* if its node says that it is the slot of this permit, too */
		if (rc == RC_OK && c->code == ZOK && strcmp(c->text, h->name) == 0)
			all[n++] = (struct change){CHANGE_DELETE, slot.at, .version = -1};
		call_drop(c);
		if (rc != RC_OK && rc != RC_DENIED)
			return rc;
	}
	if (note)
		all[n++] = *note;
	c = call_multi(how->dir->session, all, n, false);
	rc = steering_changed(how, c, f);
	*done = rc == RC_OK && c->code == ZOK;
	call_drop(c);
	return rc;
}

/*
 * With a note for a dlock in the lock's directory, so that it can say who did it.  *fits: there is room for
 * one, since no other text stands there.
 */
static enum rc
force_with_note(
    struct steering *how, const struct holder *h, bool *fits, bool *done, struct fault *f)
{
	struct call *c = lockdir_ask(how->dir, ASK_GET, "", NULL);
	char data[DATA_BYTES];
	struct change note = {CHANGE_SET, how->dir->path, .data = data};
	enum rc rc = call_await(c, how->until, f);

	*fits = rc == RC_OK && c->code == ZOK && h->ours && !how->dir->layout->single &&
	    (c->stat.dataLength == 0 || data_read(c->text).forced > 0);
	if (*fits) {
		note.version = c->stat.version;
		data_note_force(
		    data, c->text, (uint64_t)h->data->stat.czxid, how->record);
		rc = remove_holder(how, h, &note, done, f);
	}
	call_drop(c);
	return rc;
}

/* Without a note where none can be written. */
static enum rc
force_holder(struct steering *how, const struct holder *h, bool *done, struct fault *f)
{
	bool fits = true;
	enum rc rc = RC_OK;

	/* between our look and our note another may have written one */
	for (int i = 0; i < 3 && rc == RC_OK && fits && !*done; i++)
		rc = force_with_note(how, h, &fits, done, f);
	if (rc == RC_DENIED || (rc == RC_OK && !*done))
		rc = remove_holder(how, h, NULL, done, f);
	return rc == RC_DENIED ? steering_denied(how, h->path.at, f) : rc;
}

/*
 * No such grant any more may be what an earlier attempt did, which got no answer.  Where the
 * holder has written to its node meanwhile, another attempt follows.
 */
enum rc
steering_revoke(struct steering *how, struct fault *f)
{
	struct holder h;
	bool done = false;
	enum rc rc = find_holder(how, &h, f);

	if (rc == RC_OK)
		rc = how->force ? force_holder(how, &h, &done, f)
				: mark_holder(how, &h, &done, f);
	contents_end(&h.contents);
	if (rc == RC_LOST && how->again && !session_look(how->dir->session).dead)
		return RC_OK;
	return rc == RC_OK && !done
	    ? fault_set(f, RC_AGAIN, "%s: the holder writes to its node all the time",
		  how->dir->where)
	    : rc;
}

/* ---- frozen ---- */

/*
 * Makes the directories of the lock, and of its semaphore, so that whoever comes there waits;
 * and all nodes of the freeze or none.  *made: they are there.  The semaphore's directory gets
 * another version, so that nobody takes a permit who has looked before.
 */
static enum rc
make_freeze(const struct steering *how, bool *made, struct fault *f)
{
	const struct lockdir *d = how->dir;
	char form[FORM_BYTES];
	struct path nodes[FREEZES], above[FREEZES];
	struct change all[2 * FREEZES];
	size_t n = 0;
	int code;
	enum rc rc = lockdir_make(d, how->until, f);

	for (int i = 0; rc == RC_OK && freeze_form(form, how->freeze, i); i++) {
		nodes[i] = lockdir_below(d, form, NULL);
		all[n++] = (struct change){
		    CHANGE_CREATE, nodes[i].at, how->record, .mode = ZOO_PERSISTENT};
		*strrchr(form, '/') = '\0';
		if (!*form)
			continue;
		above[i] = lockdir_below(d, form, NULL);
		all[n++] = (struct change){CHANGE_SET, above[i].at, "", .version = -1};
		rc = lockdir_make_path(d, above[i].at, lockdir_mode(d), how->until, f);
	}
	if (rc != RC_OK)
		return rc;
	rc = call_finish(
	    call_multi(d->session, all, n, d->acl == ACL_OPEN), how->until, &code, f);
	*made = rc == RC_OK && (code == ZOK || code == ZNODEEXISTS);
	if (rc == RC_OK && code == ZNOCHILDRENFOREPHEMERALS)
		return lockdir_is_single(d, f);
	return rc == RC_DENIED ? steering_denied(how, d->path, f) : rc;
}

enum rc
steering_freeze(struct steering *how, struct fault *f)
{
	const struct lockdir *d = how->dir;
	struct call *list = NULL;
	bool made = false;
	enum rc rc = lockdir_sync(d, how->until, f);

	if (rc == RC_OK) {
		list = lockdir_ask(d, ASK_LIST, "", NULL);
		rc = call_await(list, how->until, f);
	}
	while (rc == RC_OK && !made && instant_now() < how->until)
		rc = make_freeze(how, &made, f);
	for (size_t i = 0; rc == RC_OK && made && i < list->nnames; i++)
		if (layout_freeze(list->names[i]).length > 0 &&
		    !freeze_is(list->names[i], how->freeze))
			rc = freeze_remove(d, list->names[i], NULL, how->until, f);
	if (made && rc == RC_DENIED)
		rc = RC_OK; /* an older one is left, and ours is newer */
	call_drop(list);
	return rc == RC_OK && !made ? lockdir_vanishes(d, f) : rc;
}

/* ---- thawed ---- */

/* Has it ended by itself?  Where we may not write to it, nobody tells us the time. */
static enum rc
freeze_has_ended(
    const struct steering *how, const char *name, bool *ended, struct fault *f)
{
	int64_t length = layout_freeze(name).length;
	struct path path = lockdir_below(how->dir, "", name);
	struct call *read, *set;
	enum rc rc;

	*ended = false;
	if (length == NEVER)
		return RC_OK;
	read = call_ask(how->dir->session, ASK_GET, path.at);
	rc = call_await(read, how->until, f);
	if (rc == RC_OK && read->code == ZOK) {
		set = call_set(how->dir->session, path.at, read->text, -1);
		rc = call_await(set, how->until, f);
		*ended = rc == RC_OK && set->code == ZOK &&
		    stat_time(set->stat.mtime) >= stat_time(read->stat.ctime) + length;
		call_drop(set);
	}
	call_drop(read);
	return rc == RC_DENIED ? RC_OK : rc;
}

/*
 * Those that are listed in the lock's directory, or in that part of it.  *n: so many more were in
 * force, and are not any more.
 */
static enum rc
thaw_all(struct steering *how, const char *part, size_t *n, struct fault *f)
{
	struct call *list = lockdir_ask(how->dir, ASK_LIST, part, NULL);
	enum rc rc = call_await(list, how->until, f);

	for (size_t i = 0; rc == RC_OK && i < list->nnames; i++) {
		const char *name = list->names[i];
		bool ended, removed = false;

		if (layout_freeze(name).length == 0)
			continue;
		rc = freeze_has_ended(how, name, &ended, f);
		how->asked = how->asked || !ended;
		if (rc == RC_OK)
			rc = freeze_remove(how->dir, name, &removed, how->until, f);
		*n += removed && !ended;
	}
	call_drop(list);
	return rc == RC_DENIED ? steering_denied(how, how->dir->path, f) : rc;
}

enum rc
steering_thaw(struct steering *how, struct fault *f)
{
	size_t n = 0;
	enum rc rc = lockdir_sync(how->dir, how->until, f);

	if (rc == RC_OK)
		rc = thaw_all(how, "", &n, f);
	if (rc == RC_OK)
		rc = thaw_all(how, FREEZE_PART, &n, f); /* if the other was deleted */
	return rc == RC_OK && n == 0 && !how->again
	    ? fault_set(f, RC_LOST, "%s: it is not frozen", how->dir->where)
	    : rc;
}
