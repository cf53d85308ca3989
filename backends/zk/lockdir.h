/*
 * lockdir.h - the directory that is a lock: its name, and how it is made.
 *
 * It is <chroot>/<encoded key>, or -O path.  Its children are the queue.
 */
#ifndef DLOCK_ZK_LOCKDIR_H
#define DLOCK_ZK_LOCKDIR_H

#include "backends/encode.h"
#include "call.h"

enum {
	DIR_BYTES = 1024 + ENCODED_BYTES + 2,
	NAME_BYTES = 256, /* of a child; ours has 60 */
	NODE_BYTES = DIR_BYTES + NAME_BYTES,
};

/* Who may use the nodes that we make. */
enum acl { ACL_UNSAID, ACL_OPEN, ACL_CREATOR };

struct lockdir {
	const char *where; /* the ensemble, for people */
	char path[DIR_BYTES];
	char prefix[64]; /* of our node's name */
	enum acl acl;
};

/* Names it (unless -O path has) and our node: that is found by the owner, written as the uuid that Curator puts there. */
void lockdir_name(struct lockdir *, const char *chroot, const struct claim *);

/* Is that a name of our node? */
bool lockdir_is_ours(const struct lockdir *, const char *name);

/* Makes a node with the rights that the user wants. */
struct call *lockdir_create(const struct lockdir *, struct session *, const char *path, const char *data, int mode);

/* Makes the directory and what is missing above it, from below, for we may have no rights up there. */
enum rc lockdir_make(const struct lockdir *, struct session *, instant until, struct fault *);

/* What is said of one that others remove whenever it is made. */
enum rc lockdir_vanishes(const struct lockdir *, struct fault *);

#endif
