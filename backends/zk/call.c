/* call.c - makes a request of the library, and keeps its answer for whoever waits. */
#include "call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Answers of a server; the others are the library's, or about the session. */
static bool
is_about_nodes(int code)
{
	return code == ZOK || code == ZNONODE || code == ZNODEEXISTS ||
	    code == ZBADVERSION || code == ZUNIMPLEMENTED ||
	    code == ZNOCHILDRENFOREPHEMERALS;
}

void
call_drop(struct call *c)
{
	if (!c || atomic_fetch_sub(&c->owners, 1) > 1)
		return;
	free(c->names);
	free(c);
}

/* ---- answers, in the library's thread ---- */

/* What every answer ends with; from here on the library has done with the call. */
static void
call_answered(struct call *c, int code, const struct Stat *stat)
{
	struct session *s = c->session;

	if (stat)
		c->stat = *stat;
	c->code = code;
	if (is_about_nodes(code))
		session_answered(s, c->sent);
	if (c->own_end && code == ZNONODE)
		session_note(s, WATCHED_OWN, true);
	atomic_store(&c->done, true);
	session_wake(s);
	call_drop(c);
}

static void
copy_text(struct call *c, const char *text, size_t n)
{
	n = n < sizeof c->text ? n : sizeof c->text - 1;
	memcpy(c->text, text, n);
	c->text[n] = '\0';
}

static void
on_path(int code, const char *path, const struct Stat *stat, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	if (path)
		copy_text(c, path, strlen(path));
	call_answered(c, code, stat);
}

static void
on_data(int code, const char *data, int n, const struct Stat *stat, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	if (data && n > 0)
		copy_text(c, data, n);
	call_answered(c, code, stat);
}

/* Can a child have that name?  No path of it could be asked for. */
static bool
is_name(const char *name)
{
	if (!name || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return false;
	for (const char *c = name; *c; c++)
		if (*c == '/' || (*c > 0 && *c < 0x1f))
			return false;
	return true;
}

/*
 * Of a list that a server has cut short, the library has NULL for what is missing.  The names
 * stand behind the pointers to them.
 */
static int
take_names(struct call *c, const struct String_vector *names)
{
	size_t n = names->count > 0 ? (size_t)names->count : 0,
	       size = n * sizeof *c->names;
	char *text;

	for (size_t i = 0; i < n; i++) {
		if (!names->data || !is_name(names->data[i]))
			return ZDATAINCONSISTENCY;
		size += strlen(names->data[i]) + 1;
	}
	c->names = n ? malloc(size) : NULL;
	if (n && !c->names)
		return ZSYSTEMERROR;
	text = (char *)(c->names + n);
	for (; c->nnames < n; c->nnames++) {
		c->names[c->nnames] = text;
		text = stpcpy(text, names->data[c->nnames]) + 1;
	}
	return ZOK;
}

static void
on_names(
    int code, const struct String_vector *names, const struct Stat *stat, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	if (code == ZOK && names)
		code = take_names(c, names);
	call_answered(c, code, stat);
}

/* Of a node that is watched, which has no children. */
static void
on_no_names(int code, const struct String_vector *names, const void *ctx)
{
	(void)names;
	call_answered((struct call *)ctx, code, NULL);
}

static void
on_stat(int code, const struct Stat *stat, const void *ctx)
{
	call_answered((struct call *)ctx, code, stat);
}

/* Also to a transaction. */
static void
on_nothing(int code, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	while (c->failed < c->nresults && c->results[c->failed].err == ZOK)
		c->failed++;
	call_answered(c, code, NULL);
}

static void
on_sync(int code, const char *path, const void *ctx)
{
	(void)path;
	call_answered((struct call *)ctx, code, NULL);
}

/* About what we wait for: the node ahead of us, or a list. */
static void
on_end_ahead(zhandle_t *zh, int type, int state, const char *path, void *session)
{
	(void)zh, (void)state, (void)path;
	if (type != ZOO_SESSION_EVENT)
		session_note(session, WATCHED_AHEAD, true);
}

/* About our own node. */
static void
on_end_own(zhandle_t *zh, int type, int state, const char *path, void *session)
{
	(void)zh, (void)state, (void)path;
	if (type != ZOO_SESSION_EVENT)
		session_note(session, WATCHED_OWN, true);
}

/* ---- requests ---- */

static struct call *
call_new(struct session *s)
{
	struct call *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->session = s;
	atomic_init(&c->owners, 2);
	c->sent = instant_now();
	return c;
}

/* What the library does not take it will not answer either. */
static struct call *
call_taken(struct call *c, int code)
{
	if (c && code != ZOK)
		call_answered(c, code, NULL);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has two owners */
	return c;
}

static int
ask_library(struct session *s, enum ask what, const char *path, struct call *c)
{
	zhandle_t *zh = session_handle(s);

	switch (what) {
	case ASK_LIST:
		return zoo_aget_children2(zh, path, 0, on_names, c);
	case ASK_EXISTS:
		return zoo_aexists(zh, path, 0, on_stat, c);
	case ASK_GET:
		return zoo_awget(zh, path, NULL, NULL, on_data, c);
	case ASK_SYNC:
		return zoo_async(zh, path, on_sync, c);
	case ASK_END:
		return zoo_awget_children(zh, path, on_end_ahead, s, on_no_names, c);
	case ASK_CHANGE:
		return zoo_awget(zh, path, on_end_ahead, s, on_data, c);
	case ASK_CHILDREN:
		return zoo_awget_children2(zh, path, on_end_ahead, s, on_names, c);
	case ASK_OWN_END:
		return zoo_awget_children(zh, path, on_end_own, s, on_no_names, c);
	}
	return ZBADARGUMENTS;
}

struct call *
call_ask(struct session *s, enum ask what, const char *path)
{
	struct call *c = call_new(s);

	if (!c)
		return NULL;
	c->own_end = what == ASK_OWN_END;
	if (what >= ASK_END)
		session_note(s, c->own_end ? WATCHED_OWN : WATCHED_AHEAD, false);
	return call_taken(c, ask_library(s, what, path, c));
}

static const struct ACL_vector *
acl_of(bool open)
{
	return open ? &ZOO_OPEN_ACL_UNSAFE : &ZOO_CREATOR_ALL_ACL;
}

struct call *
call_create(struct session *s, const char *path, const char *data, int mode, bool open)
{
	struct call *c = call_new(s);
	int code = c ? zoo_acreate2(session_handle(s), path, data, (int)strlen(data),
			   acl_of(open), mode, on_path, c)
		     : ZOK;

	return call_taken(c, code);
}

struct call *
call_set(struct session *s, const char *path, const char *data, int version)
{
	struct call *c = call_new(s);
	int code = c ? zoo_aset(session_handle(s), path, data, (int)strlen(data), version,
			   on_stat, c)
		     : ZOK;

	return call_taken(c, code);
}

struct call *
call_delete(struct session *s, const char *path, int version)
{
	struct call *c = call_new(s);

	return call_taken(
	    c, c ? zoo_adelete(session_handle(s), path, version, on_nothing, c) : ZOK);
}

/* Of several names that are made, the first one is told. */
static void
call_set_op(struct call *c, zoo_op_t *op, const struct change *change, bool open)
{
	int length = change->data ? (int)strlen(change->data) : 0;
	bool named = *c->text != '\0';

	switch (change->what) {
	case CHANGE_CREATE:
		if (!named)
			c->text[0] = '?'; /* until the answer is there */
		zoo_create_op_init(op, change->path, change->data, length, acl_of(open),
		    change->mode, named ? NULL : c->text, named ? 0 : sizeof c->text);
		break;
	case CHANGE_SET:
		zoo_set_op_init(
		    op, change->path, change->data, length, change->version, &c->stat);
		break;
	case CHANGE_DELETE:
		zoo_delete_op_init(op, change->path, change->version);
		break;
	case CHANGE_CHECK:
		zoo_check_op_init(op, change->path, change->version);
	}
}

struct call *
call_multi(struct session *s, const struct change *changes, size_t n, bool open)
{
	struct call *c = n <= CHANGES_MAX ? call_new(s) : NULL;
	zoo_op_t ops[CHANGES_MAX];

	if (!c)
		return NULL;
	c->nresults = n;
	for (size_t i = 0; i < n; i++)
		call_set_op(c, &ops[i], &changes[i], open);
	return call_taken(
	    c, zoo_amulti(session_handle(s), (int)n, ops, c->results, on_nothing, c));
}

struct path
path_of(const char *form, ...)
{
	struct path p;
	va_list args;

	va_start(args, form);
	vsnprintf(p.at, sizeof p.at, form, args);
	va_end(args);
	return p;
}

/* ---- what was answered ---- */

enum rc
call_await(struct call *c, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!c)
		return fault_set(f, RC_SYSTEM, "out of memory");
	until = session_answer_by(c->session, until);
	while (rc == RC_OK && !atomic_load(&c->done))
		rc = session_await_answer(c->session, until, f);
	if (rc != RC_OK || is_about_nodes(c->code))
		return rc;
	return session_judge(c->session, c->code, f);
}

enum rc
call_finish(struct call *c, instant until, int *code, struct fault *f)
{
	enum rc rc = call_await(c, until, f);

	if (rc == RC_OK && code)
		*code = c->code;
	call_drop(c);
	return rc;
}

/* Servers keep quiet about containers and nodes with a time to live; some did not. */
bool
stat_is_ephemeral(const struct Stat *stat)
{
	int64_t owner = stat->ephemeralOwner;

	return owner != 0 && owner != INT64_MIN && (uint64_t)owner >> 56 != 0xff;
}

bool
stat_is_directory(const struct Stat *stat)
{
	return stat->numChildren > 0 || stat->cversion != 0;
}

int64_t
stat_time(int64_t ms)
{
	return ms > 0 && ms < INT64_MAX / NS_PER_MS / 2 ? ms * NS_PER_MS : -1;
}
