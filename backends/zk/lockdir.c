/* lockdir.c - names and makes the directory that is a lock. */
#include "lockdir.h"

#include "backends/common/utf8.h"

#include <stdio.h>
#include <string.h>

/*
 * Names that are kept for others, that of what jobs have done and at the top the server's
 * own, change places with names that encode_key() never writes.
 */
static const char *
swap_reserved(const char *name, const char *chroot)
{
	static const char *const pairs[][2] = {
	    {JOBS, "%64lock-jobs"}, {"zookeeper", "%7Aookeeper"}};

	for (size_t i = 0; i < (*chroot ? 2 : 4); i++)
		if (strcmp(pairs[i / 2][i % 2], name) == 0)
			return pairs[i / 2][1 - i % 2];
	return name;
}

void
lockdir_place(struct lockdir *d, const char *chroot, const char *key)
{
	char encoded[ENCODED_BYTES];

	if (*d->path)
		return;
	encode_key(encoded, sizeof encoded, key);
	snprintf(
	    d->path, sizeof d->path, "%s/%s", chroot, swap_reserved(encoded, chroot));
}

/* Others' directories stand there, too. */
bool
lockdir_key(char out[KEY_BYTES + 1], const char *chroot, const char *name)
{
	const char *encoded = swap_reserved(name, chroot);

	return encode_read_key(out, encoded, strlen(encoded)) && utf8_is_valid(out);
}

bool
lockdir_is_ours(const struct lockdir *d, const char *name)
{
	return strncmp(name, d->prefix, strlen(d->prefix)) == 0 &&
	    strlen(name) < NAME_BYTES;
}

struct path
lockdir_below(const struct lockdir *d, const char *part, const char *name)
{
	return path_of(
	    "%s%s%s%s", d->path, part, name && *name ? "/" : "", name ? name : "");
}

struct call *
lockdir_ask(const struct lockdir *d, enum ask what, const char *part, const char *name)
{
	return call_ask(d->session, what, lockdir_below(d, part, name).at);
}

enum rc
lockdir_sync(const struct lockdir *d, instant until, struct fault *f)
{
	return call_finish(call_ask(d->session, ASK_SYNC, d->path), until, NULL, f);
}

const char *const parts[PARTS] = {"/locks", "/leases", "/slots"};

void
lists_drop(struct lists *l)
{
	for (enum part p = 0; p < PARTS; p++)
		call_drop(l->of[p]);
	*l = (struct lists){.n = 0};
}

void
lists_ask(struct lists *l, const struct lockdir *d, enum part n)
{
	lists_drop(l);
	for (; l->n < n; l->n++)
		l->of[l->n] = lockdir_ask(d, ASK_LIST, parts[l->n], NULL);
}

enum rc
lists_await(struct lists *l, instant until, bool *missing, struct fault *f)
{
	bool some = false;
	enum rc rc = RC_OK;

	for (enum part p = 0; p < l->n && rc == RC_OK; p++) {
		rc = call_await(l->of[p], until, f);
		some = some || (rc == RC_OK && l->of[p]->code == ZNONODE);
	}
	if (missing)
		*missing = some;
	return rc;
}

struct call *
lockdir_create(const struct lockdir *d, const char *path, const char *data, int mode)
{
	return call_create(d->session, path, data, mode, d->acl == ACL_OPEN);
}

/* Makes one of them; ZNODEEXISTS is as good as ZOK. */
static enum rc
make_one(const struct lockdir *d, const char *path, int mode, instant until, int *code,
    struct fault *f)
{
	enum rc rc = call_finish(lockdir_create(d, path, "", mode), until, code, f);

	return rc == RC_OK && *code == ZUNIMPLEMENTED && mode != ZOO_PERSISTENT
	    ? make_one(d, path, ZOO_PERSISTENT, until, code, f)
	    : rc;
}

enum rc
lockdir_is_childless(const struct lockdir *d, const char *path, struct fault *f)
{
	return fault_set(f, RC_PROTOCOL,
	    "%s: a part of the path %s is an ephemeral node, which cannot have nodes below it: use another path",
	    d->where, path);
}

enum rc
lockdir_make_path(
    const struct lockdir *d, const char *whole, int mode, instant until, struct fault *f)
{
	size_t length = strlen(whole), end = length;
	int code = ZNONODE;

	while (instant_now() < until) {
		enum rc rc = make_one(d, path_of("%.*s", (int)end, whole).at,
		    end == length ? mode : ZOO_PERSISTENT, until, &code, f);

		if (rc != RC_OK)
			return rc;
		if (code == ZNOCHILDRENFOREPHEMERALS)
			return lockdir_is_childless(d, whole, f);
		if (code != ZNONODE && end == length)
			return RC_OK;
		if (code != ZNONODE)
			end += 1 + strcspn(whole + end + 1, "/");
		else if (end > 1)
			end = (const char *)memrchr(whole, '/', end) - whole;
		if (end == 0)
			return fault_set(f, RC_PROTOCOL,
			    "%s has no node / (is the chroot in the URL right?)",
			    d->where);
	}
	return lockdir_vanishes(d, f);
}

int
lockdir_mode(const struct lockdir *d)
{
	return d->layout->lasting ? ZOO_PERSISTENT : ZOO_CONTAINER;
}

enum rc
lockdir_make(const struct lockdir *d, instant until, struct fault *f)
{
	const char *end = strrchr(d->path, '/');

	if (!d->layout->single)
		return lockdir_make_path(d, d->path, lockdir_mode(d), until, f);
	return end > d->path
	    ? lockdir_make_path(d, path_of("%.*s", (int)(end - d->path), d->path).at,
		  ZOO_PERSISTENT, until, f)
	    : RC_OK; /* the root is there */
}

/* It says how to join those who have made such a node, if there is a way. */
enum rc
lockdir_refuse(
    const struct lockdir *d, const char *name, const char *why, struct fault *f)
{
	struct child c;
	const struct layout *l = layout_of(name, &c);
	char quoted[81], way[200];

	session_quote(d->session, quoted, sizeof quoted, name);
	if (why)
		snprintf(way, sizeof way, "%s", why);
	else if (layout_semaphore(name))
		snprintf(way, sizeof way,
		    "it is a semaphore of %s, which dlock cannot join",
		    layout_semaphore(name));
	else if (!l || l == d->layout)
		snprintf(way, sizeof way, "dlock does not know this kind");
	else
		snprintf(way, sizeof way,
		    "%s and layout=%s do not see each other; -O layout=%s joins its users",
		    l->users, d->layout->name, l->name);
	return fault_set(f, RC_PROTOCOL,
	    "%s: %s is in use as a lock of another kind (%s): %s", d->where, d->path,
	    quoted, way);
}

enum rc
lockdir_is_single(const struct lockdir *d, struct fault *f)
{
	return fault_set(f, RC_PROTOCOL,
	    "%s: %s is an ephemeral node, which can be a lock of layout=plain only (-O layout=plain joins it)",
	    d->where, d->path);
}

enum rc
lockdir_vanishes(const struct lockdir *d, struct fault *f)
{
	return fault_set(f, RC_AGAIN,
	    "%s: somebody deletes %s each time that dlock makes it", d->where, d->path);
}
