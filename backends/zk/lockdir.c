/* lockdir.c - names and makes the directory that is a lock. */
#include "lockdir.h"

#include <stdio.h>
#include <string.h>

void
lockdir_name(struct lockdir *d, const char *chroot, const struct claim *claim)
{
	const char *o = claim->owner;
	char key[ENCODED_BYTES];

	snprintf(d->prefix, sizeof d->prefix, "_c_%.8s-%.4s-%.4s-%.4s-%.12s-lock-", o, o + 8, o + 12, o + 16, o + 20);
	if (*d->path)
		return;
	encode_key(key, sizeof key, claim->key);
	/* The one name that ZooKeeper keeps to itself. */
	snprintf(d->path, sizeof d->path, "%s/%s", chroot,
	    !*chroot && strcmp(key, "zookeeper") == 0 ? "%7Aookeeper" : key);
}

bool
lockdir_is_ours(const struct lockdir *d, const char *name)
{
	return strncmp(name, d->prefix, strlen(d->prefix)) == 0 && strlen(name) < NAME_BYTES;
}

struct call *
lockdir_create(const struct lockdir *d, struct session *s, const char *path, const char *data, int mode)
{
	return call_create(s, path, data, mode, d->acl == ACL_OPEN);
}

/* Makes one of them; ZNODEEXISTS is as good as ZOK. */
static enum rc
make_one(const struct lockdir *d, struct session *s, const char *path, instant until, int *code, struct fault *f)
{
	bool last = strcmp(path, d->path) == 0;

	/* The lock's own is to go when nobody uses it any more. */
	for (int mode = last ? ZOO_CONTAINER : ZOO_PERSISTENT;; mode = ZOO_PERSISTENT) {
		enum rc rc = call_finish(lockdir_create(d, s, path, "", mode), until, code, f);

		if (rc != RC_OK || *code != ZUNIMPLEMENTED || mode == ZOO_PERSISTENT)
			return rc;
	}
}

enum rc
lockdir_make(const struct lockdir *d, struct session *s, instant until, struct fault *f)
{
	char path[DIR_BYTES];
	size_t length = strlen(d->path), end = length;
	int code = ZNONODE;

	while (instant_now() < until) {
		enum rc rc;

		snprintf(path, sizeof path, "%.*s", (int)end, d->path);
		rc = make_one(d, s, path, until, &code, f);
		if (rc != RC_OK)
			return rc;
		if (code == ZNOCHILDRENFOREPHEMERALS)
			return fault_set(f, RC_PROTOCOL, "%s: a part of %s is an ephemeral node", d->where, d->path);
		if (code != ZNONODE && end == length)
			return RC_OK;
		if (code != ZNONODE)
			end += 1 + strcspn(d->path + end + 1, "/");
		else if (end > 1)
			end = (const char *)memrchr(d->path, '/', end) - d->path;
		if (end == 0)
			return fault_set(f, RC_PROTOCOL, "%s has no root", d->where);
	}
	return lockdir_vanishes(d, f);
}

enum rc
lockdir_vanishes(const struct lockdir *d, struct fault *f)
{
	return fault_set(f, RC_AGAIN, "%s: %s vanishes as fast as it is made", d->where, d->path);
}
