/*
 * lockdir.h - the directory that is a lock: its name, how it is made, and what is asked about it.
 *
 * It is <chroot>/<encoded key>, or -O path.  Its children are the queue; in one layout it
 * has none, and is the lock itself (single.c).
 */
#ifndef DLOCK_ZK_LOCKDIR_H
#define DLOCK_ZK_LOCKDIR_H

#include "backends/common/encode.h"
#include "call.h"
#include "layout.h"

/* The directory beside a lock's in which is kept what its jobs have done (jobs.c). */
#define JOBS "dlock-jobs"
#define FINAL "final"
#define SHOWN "shown"

enum {
	/* or of its jobs */
	DIR_BYTES = 1024 + sizeof JOBS + ENCODED_BYTES + 2 + sizeof FINAL,
	NAME_BYTES = 256,                         /* of a child; ours has 60, or 150 */
	NODE_BYTES = DIR_BYTES + NAME_BYTES + 16, /* also of one a directory deeper */
	/* "_c_<uuid>-", with which all names of ours begin in Curator's layout */
	UUID_CHARS = 40,
};

/* Who may use the nodes that we make. */
enum acl { ACL_UNSAID, ACL_OPEN, ACL_CREATOR };

struct lockdir {
	struct session *session; /* NULL: there is none yet, or it has ended */
	const char *where;       /* the ensemble, for people */
	char path[DIR_BYTES];
	const struct layout *layout;
	/* of our node in the queue: its name without the number */
	char prefix[PREFIX_BYTES];
	enum acl acl;
};

/* Names it, unless -O path has. */
void lockdir_place(struct lockdir *, const char *chroot, const char *key);

/* The key of a directory with that name below `chroot`; false: it is no key's. */
bool lockdir_key(char out[KEY_BYTES + 1], const char *chroot, const char *name);

/* Is that a name of our node? */
bool lockdir_is_ours(const struct lockdir *, const char *name);

/*
 * A path in it, or in that part of it ("/locks"; "": itself); name NULL or "": the
 * directory.  And what call_ask() asks there.
 */
struct path lockdir_below(const struct lockdir *, const char *part, const char *name);
struct call *lockdir_ask(
    const struct lockdir *, enum ask, const char *part, const char *name);

/* As ASK_SYNC, and waits. */
enum rc lockdir_sync(const struct lockdir *, instant until, struct fault *);

/*
 * The directories of a semaphore (permit.c), and their lists, as one server has them one after
 * the other.
 */
enum part { LOCKS, LEASES, SLOTS, PARTS };
extern const char *const parts[PARTS]; /* "/locks" */

struct lists {
	struct call *of[PARTS];
	enum part n; /* so many are asked for */
};

/* The first n, also in place of earlier ones; to be dropped at last. */
void lists_ask(struct lists *, const struct lockdir *, enum part n);
void lists_drop(struct lists *);

/* *missing (or NULL): one of the directories is not there. */
enum rc lists_await(struct lists *, instant until, bool *missing, struct fault *);

/* Makes a node with the rights that the user wants. */
struct call *lockdir_create(
    const struct lockdir *, const char *path, const char *data, int mode);

/*
 * Makes the directory (where it is the lock itself, the one in which it lies) and what is
 * missing above it, from below, for we may have no rights up there.
 */
enum rc lockdir_make(const struct lockdir *, instant until, struct fault *);

/* What such a directory is: a container goes when nobody uses it any more. */
int lockdir_mode(const struct lockdir *);

/* The same for any path. */
enum rc lockdir_make_path(
    const struct lockdir *, const char *path, int mode, instant until, struct fault *);

/*
 * RC_PROTOCOL: somebody else's node, by whose lock we must not go; `why`, or NULL: it is of
 * another layout.
 */
enum rc lockdir_refuse(
    const struct lockdir *, const char *name, const char *why, struct fault *);

/* What is said of one that others remove whenever it is made, and of a path that cannot be. */
enum rc lockdir_vanishes(const struct lockdir *, struct fault *);
enum rc lockdir_is_childless(const struct lockdir *, const char *path, struct fault *);

/* RC_PROTOCOL: it is an ephemeral node, which is no directory. */
enum rc lockdir_is_single(const struct lockdir *, struct fault *);

#endif
