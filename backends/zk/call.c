/* call.c - makes a request of the library, and keeps its answer for whoever waits. */
#include "call.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 4096 /* a node's path, or a record */ };

struct call {
	struct session *session; /* outlives the library's part in this */
	enum watched watched;
	atomic_int owners;
	atomic_bool done; /* what follows is set */
	int code;
	instant sent;
	struct Stat stat;
	char text[TEXT_BYTES];
	char **names;
	size_t nnames;
	size_t nresults; /* of a transaction */
	zoo_op_result_t results[CHANGES_MAX];
};

/* Answers of a server; the others are the library's, or about the session. */
static bool
is_about_nodes(int code)
{
	return code == ZOK || code == ZNONODE || code == ZNODEEXISTS ||
	    code == ZBADVERSION || code == ZUNIMPLEMENTED ||
	    code == ZNOCHILDRENFOREPHEMERALS;
}

static void
call_end(struct call *c)
{
	for (size_t i = 0; i < c->nnames; i++)
		free(c->names[i]);
	free(c->names);
	free(c);
}

void
call_drop(struct call *c)
{
	if (c && atomic_fetch_sub(&c->owners, 1) == 1)
		call_end(c);
}

struct call *
call_keep(const struct call *kept)
{
	struct call *c = (struct call *)kept;

	atomic_fetch_add(&c->owners, 1);
	return c;
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
	if (c->watched == WATCHED_OWN && code == ZNONODE)
		session_notice(s, WATCHED_OWN);
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

/* Of a list that a server has cut short, the library has NULL for what is missing. */
static int
take_names(struct call *c, const struct String_vector *names)
{
	for (int i = 0; i < names->count; i++)
		if (!names->data || !is_name(names->data[i]))
			return ZDATAINCONSISTENCY;
	if (names->count <= 0)
		return ZOK;
	c->names = calloc(names->count, sizeof *c->names);
	for (int i = 0; c->names && i < names->count; i++, c->nnames++) {
		c->names[i] = strdup(names->data[i]);
		if (!c->names[i])
			return ZSYSTEMERROR;
	}
	return c->names ? ZOK : ZSYSTEMERROR;
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

static void
on_nothing(int code, const void *ctx)
{
	call_answered((struct call *)ctx, code, NULL);
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
		session_notice(session, WATCHED_AHEAD);
}

/* About our own node. */
static void
on_end_own(zhandle_t *zh, int type, int state, const char *path, void *session)
{
	(void)zh, (void)state, (void)path;
	if (type != ZOO_SESSION_EVENT)
		session_notice(session, WATCHED_OWN);
}

/* ---- requests ---- */

static struct call *
call_watching(struct session *s, enum watched watched)
{
	struct call *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->session = s;
	c->watched = watched;
	atomic_init(&c->owners, 2);
	c->sent = instant_now();
	session_will_watch(s, watched);
	return c;
}

static struct call *
call_new(struct session *s)
{
	return call_watching(s, WATCHED_NONE);
}

/* What the library does not take it will not answer either. */
static struct call *
call_taken(struct call *c, int code)
{
	if (code != ZOK)
		call_answered(c, code, NULL);
	return c;
}

struct call *
call_create(struct session *s, const char *path, const char *data, int mode, bool open)
{
	const struct ACL_vector *acl = open ? &ZOO_OPEN_ACL_UNSAFE : &ZOO_CREATOR_ALL_ACL;
	struct call *c = call_new(s);

	return c ? call_taken(c,
		       zoo_acreate2(session_handle(s), path, data, (int)strlen(data), acl,
			   mode, on_path, c))
		 : NULL;
}

struct call *
call_list(struct session *s, const char *path)
{
	struct call *c = call_new(s);

	return c
	    ? call_taken(c, zoo_aget_children2(session_handle(s), path, 0, on_names, c))
	    : NULL;
}

struct call *
call_exists(struct session *s, const char *path)
{
	struct call *c = call_new(s);

	return c ? call_taken(c, zoo_aexists(session_handle(s), path, 0, on_stat, c))
		 : NULL;
}

struct call *
call_get(struct session *s, const char *path)
{
	struct call *c = call_new(s);

	return c
	    ? call_taken(c, zoo_awget(session_handle(s), path, NULL, NULL, on_data, c))
	    : NULL;
}

struct call *
call_set(struct session *s, const char *path, const char *data, int version)
{
	struct call *c = call_new(s);

	return c ? call_taken(c,
		       zoo_aset(session_handle(s), path, data, (int)strlen(data), version,
			   on_stat, c))
		 : NULL;
}

struct call *
call_delete(struct session *s, const char *path, int version)
{
	struct call *c = call_new(s);

	return c
	    ? call_taken(c, zoo_adelete(session_handle(s), path, version, on_nothing, c))
	    : NULL;
}

/* Of several names that are made, the first one is told. */
static void
call_set_op(struct call *c, zoo_op_t *op, const struct change *change,
    const struct ACL_vector *acl)
{
	int length = change->data ? (int)strlen(change->data) : 0;
	bool named = *c->text != '\0';

	switch (change->what) {
	case CHANGE_CREATE:
		if (!named)
			c->text[0] = '?'; /* until the answer is there */
		zoo_create_op_init(op, change->path, change->data, length, acl,
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
		call_set_op(c, &ops[i], &changes[i],
		    open ? &ZOO_OPEN_ACL_UNSAFE : &ZOO_CREATOR_ALL_ACL);
	return call_taken(
	    c, zoo_amulti(session_handle(s), (int)n, ops, c->results, on_nothing, c));
}

struct call *
call_sync(struct session *s, const char *path)
{
	struct call *c = call_new(s);

	return c ? call_taken(c, zoo_async(session_handle(s), path, on_sync, c)) : NULL;
}

struct call *
call_watch(struct session *s, const char *path)
{
	struct call *c = call_watching(s, WATCHED_AHEAD);

	return c ? call_taken(c,
		       zoo_awget_children(
			   session_handle(s), path, on_end_ahead, s, on_no_names, c))
		 : NULL;
}

struct call *
call_watch_data(struct session *s, const char *path)
{
	struct call *c = call_watching(s, WATCHED_AHEAD);

	return c ? call_taken(
		       c, zoo_awget(session_handle(s), path, on_end_ahead, s, on_data, c))
		 : NULL;
}

struct call *
call_watch_list(struct session *s, const char *path)
{
	struct call *c = call_watching(s, WATCHED_AHEAD);

	return c ? call_taken(c,
		       zoo_awget_children2(
			   session_handle(s), path, on_end_ahead, s, on_names, c))
		 : NULL;
}

struct call *
call_guard(struct session *s, const char *path)
{
	struct call *c = call_watching(s, WATCHED_OWN);

	return c ? call_taken(c,
		       zoo_awget_children(
			   session_handle(s), path, on_end_own, s, on_no_names, c))
		 : NULL;
}

/* ---- what was answered ---- */

enum rc
call_await(struct call *c, instant until, int *code, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!c)
		return fault_set(f, RC_SYSTEM, "out of memory");
	while (rc == RC_OK && !atomic_load(&c->done))
		rc = session_await_answer(c->session, until, f);
	if (rc != RC_OK)
		return rc;
	*code = c->code;
	return is_about_nodes(c->code) ? RC_OK : session_judge(c->session, c->code, f);
}

enum rc
call_finish(struct call *c, instant until, int *code, struct fault *f)
{
	enum rc rc = call_await(c, until, code, f);

	call_drop(c);
	return rc;
}

instant
call_sent(const struct call *c)
{
	return c->sent;
}

const struct Stat *
call_stat(const struct call *c)
{
	return &c->stat;
}

size_t
call_failed(const struct call *c)
{
	size_t i = 0;

	while (i < c->nresults && c->results[i].err == ZOK)
		i++;
	return i;
}

const char *
call_text(const struct call *c)
{
	return c->text;
}

const char *const *
call_names(const struct call *c, size_t *n)
{
	*n = c->nnames;
	return (const char *const *)c->names;
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
