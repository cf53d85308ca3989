/* steer.c - marks and removes what others have made, makes and removes what freezes. */
#include "steer.h"

#include "contents.h"
#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The node of a holder. */
struct holder {
	char name[NAME_BYTES], path[NODE_BYTES];
	struct call *data;      /* as it was read; NULL: there is none */
	bool ours, permit;      /* a dlock's; of a semaphore */
	char lease[NAME_BYTES]; /* of ours, in K/leases */
};

static enum rc
denied(const struct steering *how, const char *path, struct fault *f)
{
	return fault_set(f, RC_DENIED,
	    "%s: no permission to change %s: its ACL is for whoever made it (use the same user: -O auth-file)",
	    how->dir->where, path);
}

static enum rc
is_gone(const struct steering *how, struct fault *f)
{
	return fault_set(f, RC_LOST, "%s: there is no such holder", how->dir->where);
}

/* ---- the holder that is meant ---- */

static enum rc
list_below(
    const struct steering *how, const char *part, struct call **ret, struct fault *f)
{
	char path[NODE_BYTES];
	int code;

	snprintf(path, sizeof path, "%s%s", how->dir->path, part);
	*ret = call_list(how->session, path);
	return call_await(*ret, how->until, &code, f);
}

static void
holder_drop(struct holder *h)
{
	call_drop(h->data);
	h->data = NULL;
}

/* Whose is it?  Its name says that, or else its data. */
static bool
has_owner(const struct steering *how, const char *name, const struct call *data,
    const char *owner)
{
	struct child c = layout_read(how->dir->layout, name);
	char said[OWNER_CHARS + 1];

	if (how->dir->layout->single)
		return data_owner(said, call_text(data)) && strcmp(said, owner) == 0;
	return child_has_owner(&c, owner);
}

static bool
is_ours(const struct steering *how, const char *name, const struct call *data)
{
	char said[OWNER_CHARS + 1];

	return how->dir->layout->single
	    ? data_owner(said, call_text(data))
	    : layout_read(how->dir->layout, name).owner != NULL;
}

/* Is it the node of the grant that is meant? */
static bool
is_who_is_meant(const struct steering *how, const char *name, const struct call *data)
{
	const struct target *t = how->target;

	if (t->token && (uint64_t)call_stat(data)->czxid != t->token)
		return false;
	return t->owner ? has_owner(how, name, data, t->owner) : t->token != 0;
}

/* The search for a holder. */
struct search {
	const struct steering *how;
	struct holder *holder;
};

/* Keeps the node if it is the one. */
static enum rc
see_holder(void *ctx, const struct member *m, struct fault *f)
{
	const struct search *search = ctx;
	const struct steering *how = search->how;
	struct holder *h = search->holder;
	char path[NODE_BYTES];

	snprintf(path, sizeof path, "%s%s%s%s", how->dir->path, m->part,
	    *m->name ? "/" : "", m->name);
	if (!m->node)
		return denied(how, path, f);
	if (!is_who_is_meant(how, m->name, m->node))
		return RC_OK;
	snprintf(h->path, sizeof h->path, "%s", path);
	snprintf(h->name, sizeof h->name, "%s", m->name);
	h->ours = is_ours(how, m->name, m->node);
	h->permit = *m->part || layout_read(how->dir->layout, m->name).kind == KIND_LIMIT;
	h->data = call_keep(m->node);
	return RC_DONE;
}

/* In the directory, which is listed. */
static enum rc
find_in_list(struct contents *c, struct search *search, struct fault *f)
{
	struct holder *h = search->holder;
	const char *owner = search->how->target->owner, *seat;
	enum rc rc = contents_order(c, f);

	if (rc == RC_OK && owner)
		contents_want(c, owner);
	if (rc == RC_OK)
		rc = contents_judge(c, false, -1, f);
	if (rc == RC_OK)
		rc = contents_holders(c, &(struct visitor){see_holder, search}, f);
	seat = h->data && h->permit && h->ours ? contents_seat(c, h->name) : NULL;
	snprintf(h->lease, sizeof h->lease, "%s", seat ? seat : "");
	return rc;
}

/* RC_LOST: nobody has that grant. */
static enum rc
find_holder(const struct steering *how, struct holder *h, struct fault *f)
{
	struct search search = {how, h};
	struct contents c;
	bool there = false;
	int code;
	enum rc rc = call_finish(
	    call_sync(how->session, how->dir->path), how->until, &code, f);

	*h = (struct holder){.data = NULL};
	if (rc != RC_OK)
		return rc;
	if (how->target->owner && strlen(how->target->owner) != OWNER_CHARS)
		return is_gone(how, f); /* nobody's */
	contents_begin(&c, how->session, how->dir->layout, how->dir->path, how->until);
	rc = contents_await(&c, &there, f);
	if (rc == RC_DENIED && how->dir->layout->single)
		rc = denied(how, how->dir->path, f);
	if (there && how->dir->layout->single)
		rc = see_holder(&search, &(struct member){"", "", c.list}, f);
	else if (there)
		rc = find_in_list(&c, &search, f);
	contents_end(&c);
	if (rc == RC_DONE)
		rc = RC_OK;
	if (rc == RC_OK && (!h->data || data_stage(call_text(h->data)) == STAGE_WAITING))
		rc = is_gone(how, f);
	if (rc != RC_OK)
		holder_drop(h);
	return rc;
}

/* No such grant any more: by what an earlier attempt did, which got no answer? */
static bool
was_us(const struct steering *how, enum rc rc)
{
	return rc == RC_LOST && how->again && !session_look(how->session).dead;
}

/* ---- asked ---- */

static struct call *
ask_holder(const struct steering *how, const struct holder *h)
{
	const struct Stat *stat = call_stat(h->data);
	const char *text = call_text(h->data);
	char data[DATA_BYTES] = CURATORS_REVOKE;

	if (h->ours)
		data_mark(data, (size_t)stat->dataLength == strlen(text) ? text : "",
		    how->record);
	return call_set(how->session, h->path, data, stat->version);
}

/* Does its owner listen to us? */
static bool
can_be_asked(const struct steering *how, const struct holder *h)
{
	return h->ours || (how->dir->layout->listens && !h->permit);
}

static enum rc
refuse_to_ask(const struct steering *how, const struct holder *h, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: %s%s cannot be asked to give it up; it can only be taken away by force",
	    how->dir->where, h->permit ? "users of " : "",
	    h->permit ? "Curator's semaphore" : "a holder that is no dlock");
}

/*
 * *done: it has been asked.  Otherwise it has written to its node meanwhile, and is to be
 * read again.
 */
static enum rc
mark_once(struct steering *how, bool *done, struct fault *f)
{
	struct holder h;
	struct call *set;
	int code;
	enum rc rc = find_holder(how, &h, f);

	if (rc != RC_OK)
		return rc;
	if (!can_be_asked(how, &h)) {
		holder_drop(&h);
		return refuse_to_ask(how, &h, f);
	}
	set = ask_holder(how, &h);
	rc = call_await(set, how->until, &code, f);
	*done = rc == RC_OK && code == ZOK;
	how->asked = how->asked || rc == RC_AGAIN || rc == RC_LOST;
	if (rc == RC_DENIED)
		rc = denied(how, h.path, f);
	else if (*done && call_stat(set)->czxid != call_stat(h.data)->czxid)
		rc = is_gone(how, f);
	call_drop(set);
	holder_drop(&h);
	return rc;
}

enum rc
steering_mark(struct steering *how, struct fault *f)
{
	bool done = false;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !done && instant_now() < how->until)
		rc = mark_once(how, &done, f);
	if (was_us(how, rc))
		return RC_OK;
	return rc == RC_OK && !done
	    ? fault_set(f, RC_AGAIN, "%s: the holder writes to its node all the time",
		  how->dir->where)
	    : rc;
}

/* ---- taken away ---- */

/* The slot of a permit, if its node says so, too. */
static enum rc
slot_of_holder(const struct steering *how, const struct holder *h, char path[NODE_BYTES],
    bool *found, struct fault *f)
{
	struct call *c;
	int code;
	enum rc rc;

	snprintf(path, NODE_BYTES, "%s/slots/%d", how->dir->path,
	    data_slot(call_text(h->data)));
	c = call_get(how->session, path);
	rc = call_await(c, how->until, &code, f);
	*found = rc == RC_OK && code == ZOK && strcmp(call_text(c), h->name) == 0;
	call_drop(c);
	return rc == RC_DENIED ? RC_OK : rc;
}

/* Text of the lock's directory that is not ours stays. */
static enum rc
find_note(const struct steering *how, const struct holder *h, struct change *ret,
    char data[DATA_BYTES], bool *is_free, struct fault *f)
{
	struct call *c = call_get(how->session, how->dir->path);
	int code;
	enum rc rc = call_await(c, how->until, &code, f);

	*is_free = rc == RC_OK && code == ZOK &&
	    (call_stat(c)->dataLength == 0 || data_is_force(call_text(c)));
	if (*is_free) {
		data_note_force(data, (uint64_t)call_stat(h->data)->czxid, how->record);
		*ret = (struct change){
		    CHANGE_SET, how->dir->path, data, .version = call_stat(c)->version};
	}
	call_drop(c);
	return rc == RC_DENIED ? RC_OK : rc;
}

/*
 * What belongs to the holder, all or none, as a release does it: its node, which must be
 * as it was read, and of a permit the lease and the slot.
 */
static enum rc
remove_holder(struct steering *how, const struct holder *h, const struct change *note,
    int *code, struct fault *f)
{
	char lease[NODE_BYTES], slot[NODE_BYTES];
	struct change all[4] = {
	    {CHANGE_DELETE, h->path, .version = call_stat(h->data)->version}};
	bool found = false;
	size_t n = 1;
	enum rc rc = RC_OK;

	if (h->permit && h->ours)
		rc = slot_of_holder(how, h, slot, &found, f);
	if (rc != RC_OK)
		return rc;
	if (h->permit && h->ours) {
		snprintf(lease, sizeof lease, "%s/leases/%s", how->dir->path, h->lease);
		all[n++] = (struct change){CHANGE_DELETE, lease, .version = -1};
	}
	if (found)
		all[n++] = (struct change){CHANGE_DELETE, slot, .version = -1};
	if (note)
		all[n++] = *note;
	how->asked = true;
	return call_finish(call_multi(how->session, all, n, false), how->until, code, f);
}

/* With a note for a dlock, so that it can say who did it; or else without. */
static enum rc
remove_with_note(struct steering *how, const struct holder *h, int *code, struct fault *f)
{
	char data[DATA_BYTES];
	struct change note;
	bool is_free = false;
	bool noted = h->ours && !how->dir->layout->single;
	enum rc rc = noted ? find_note(how, h, &note, data, &is_free, f) : RC_OK;

	*code = ZBADVERSION;
	if (rc == RC_OK && is_free)
		rc = remove_holder(how, h, &note, code, f);
	if (rc == RC_DENIED || (rc == RC_OK && *code != ZOK))
		rc = remove_holder(how, h, NULL, code, f);
	return rc;
}

/* *done: as in mark_once(). */
static enum rc
force_once(struct steering *how, bool *done, struct fault *f)
{
	struct holder h;
	int code = ZOK;
	enum rc rc = find_holder(how, &h, f);

	if (rc != RC_OK)
		return rc;
	rc = remove_with_note(how, &h, &code, f);
	*done = rc == RC_OK && code == ZOK;
	if (rc == RC_DENIED)
		rc = denied(how, h.path, f);
	holder_drop(&h);
	return rc;
}

enum rc
steering_force(struct steering *how, struct fault *f)
{
	bool done = false;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !done && instant_now() < how->until)
		rc = force_once(how, &done, f);
	if (was_us(how, rc))
		return RC_OK;
	return rc == RC_OK && !done
	    ? fault_set(f, RC_AGAIN, "%s: the holder writes to its node all the time",
		  how->dir->where)
	    : rc;
}

/* ---- frozen ---- */

/* Writes into `path` the directory below the lock's own in which a node of `form` lies. */
static bool
freeze_directory(const struct steering *how, const char *form, char path[NODE_BYTES])
{
	if (!strchr(form + 1, '/'))
		return false;
	snprintf(path, NODE_BYTES, "%s%.*s", how->dir->path,
	    (int)(strrchr(form, '/') - form), form);
	return true;
}

/* The directories of the lock, and of its semaphore, so that whoever comes there waits. */
static enum rc
make_directories(const struct steering *how, struct fault *f)
{
	char form[FORM_BYTES], path[NODE_BYTES];
	enum rc rc = lockdir_make(how->dir, how->session, how->until, f);

	for (int i = 0; rc == RC_OK && freeze_form(form, how->freeze, i); i++) {
		if (freeze_directory(how, form, path))
			rc = lockdir_make_path(how->dir, how->session, path,
			    lockdir_mode(how->dir), how->until, f);
	}
	return rc;
}

/*
 * All of its nodes or none.  *made: they are there.  The semaphore's directory gets
 * another version, so that nobody takes a permit who has looked before.
 */
static enum rc
make_freeze(const struct steering *how, bool *made, struct fault *f)
{
	char form[FORM_BYTES], paths[2 * FREEZES][NODE_BYTES];
	struct change all[2 * FREEZES];
	size_t n = 0;
	int code;
	enum rc rc;

	for (int i = 0; freeze_form(form, how->freeze, i); i++) {
		snprintf(paths[n], sizeof paths[n], "%s%s", how->dir->path, form);
		all[n] = (struct change){
		    CHANGE_CREATE, paths[n], how->record, .mode = ZOO_PERSISTENT};
		n++;
		if (!freeze_directory(how, form, paths[n]))
			continue;
		all[n] = (struct change){CHANGE_SET, paths[n], "", .version = -1};
		n++;
	}
	rc = call_finish(call_multi(how->session, all, n, how->dir->acl == ACL_OPEN),
	    how->until, &code, f);
	*made = rc == RC_OK && (code == ZOK || code == ZNODEEXISTS);
	if (rc == RC_OK && code == ZNOCHILDRENFOREPHEMERALS)
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s is an ephemeral node, which can be a lock of layout=plain only",
		    how->dir->where, how->dir->path);
	return rc == RC_DENIED ? denied(how, how->dir->path, f) : rc;
}

/* All of those names but one. */
static enum rc
remove_others(const struct steering *how, const struct call *list, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(list, &n);
	bool removed;
	enum rc rc = RC_OK;

	for (size_t i = 0; rc == RC_OK && i < n; i++)
		if (layout_freeze_length(names[i]) > 0 &&
		    !freeze_is(names[i], how->freeze))
			rc = freeze_remove(how->session, how->dir->path, names[i],
			    &removed, how->until, f);
	return rc == RC_DENIED ? RC_OK : rc; /* ours is newer */
}

enum rc
steering_freeze(struct steering *how, struct fault *f)
{
	struct call *list = NULL;
	bool made = false;
	int code;
	enum rc rc = call_finish(
	    call_sync(how->session, how->dir->path), how->until, &code, f);

	if (rc == RC_OK)
		rc = list_below(how, "", &list, f);
	while (rc == RC_OK && !made && instant_now() < how->until) {
		rc = make_directories(how, f);
		if (rc == RC_OK)
			rc = make_freeze(how, &made, f);
	}
	if (rc == RC_OK && made)
		rc = remove_others(how, list, f);
	call_drop(list);
	return rc == RC_OK && !made ? lockdir_vanishes(how->dir, f) : rc;
}

/* ---- thawed ---- */

/* Has it ended by itself?  Where we may not write to it, nobody tells us the time. */
static enum rc
freeze_has_ended(
    const struct steering *how, const char *name, bool *ended, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *read, *set;
	int64_t length = layout_freeze_length(name);
	int code;
	enum rc rc;

	*ended = false;
	if (length == NEVER)
		return RC_OK;
	snprintf(path, sizeof path, "%s/%s", how->dir->path, name);
	read = call_get(how->session, path);
	rc = call_await(read, how->until, &code, f);
	if (rc == RC_OK && code == ZOK) {
		set = call_set(how->session, path, call_text(read), -1);
		rc = call_await(set, how->until, &code, f);
		*ended = rc == RC_OK && code == ZOK &&
		    node_server_time(call_stat(set)->mtime) >=
			node_server_time(call_stat(read)->ctime) + length;
		call_drop(set);
	}
	call_drop(read);
	return rc == RC_DENIED ? RC_OK : rc;
}

/* One that is listed in the lock's directory, or in that of its semaphore. */
static enum rc
thaw_one(struct steering *how, const char *name, size_t *n, struct fault *f)
{
	bool ended, removed = false;
	enum rc rc = freeze_has_ended(how, name, &ended, f);

	how->asked = how->asked || !ended;
	if (rc == RC_OK)
		rc = freeze_remove(
		    how->session, how->dir->path, name, &removed, how->until, f);
	*n += removed && !ended;
	return rc;
}

/* *n: so many more were in force, and are not any more. */
static enum rc
thaw_all(struct steering *how, const char *part, size_t *n, struct fault *f)
{
	struct call *list;
	size_t count = 0;
	enum rc rc = list_below(how, part, &list, f);
	const char *const *names = rc == RC_OK ? call_names(list, &count) : NULL;

	for (size_t i = 0; rc == RC_OK && i < count; i++)
		if (layout_freeze_length(names[i]) > 0)
			rc = thaw_one(how, names[i], n, f);
	call_drop(list);
	return rc == RC_DENIED ? denied(how, how->dir->path, f) : rc;
}

enum rc
steering_thaw(struct steering *how, struct fault *f)
{
	size_t n = 0;
	int code;
	enum rc rc = call_finish(
	    call_sync(how->session, how->dir->path), how->until, &code, f);

	if (rc == RC_OK)
		rc = thaw_all(how, "", &n, f);
	if (rc == RC_OK)
		rc = thaw_all(how, FREEZE_PART, &n, f); /* if the other was deleted */
	return rc == RC_OK && n == 0 && !how->again
	    ? fault_set(f, RC_LOST, "%s: it is not frozen", how->dir->where)
	    : rc;
}
