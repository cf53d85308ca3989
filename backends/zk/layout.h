/*
 * layout.h - whose locks these are: how the nodes of a lock are called, and what their
 * names say.
 *
 *	curator		K/_c_<uuid>-lock-<n>, -__READ__<n>, -__WRIT__<n>: Apache Curator's recipes
 *	kazoo		K/<uuid>__lock__<n>, __rlock__<n>: Lock, WriteLock and ReadLock of Python's kazoo
 *	menagerie	K/lock-<host>-<thread>-<n>, readLock-<n>, writeLock-<n>
 *	rw-seq		K/<host>-W-<n>, <host>-R-<n>: what many write for themselves
 *	recipes		K/x-<session>-<n>: ZooKeeper's own recipe, in C and in Java
 *	plain		K, an ephemeral node that is the lock (single.c)
 *
 *  1. But for the last, a lock is a directory K, its children are the queue, and the number
 *     that the server gives a child is its place (queue.h).  Create, list, watch what is ahead,
 *     renew by writing, delete: that is the same for all.
 *  2. The name of each node of ours has its owner, which has a "d" where a random uuid has
 *     a "4".  So it is found again when the answer to create was lost, is nobody else's
 *     by mistake, and tells others that a dlock has made it.
 *  3. Users of one layout do not wait for those of another.  So no two share a directory: a
 *     node of another layout is refused, whether it stands before or behind us.  One
 *     kind of it is left alone: that of a dlock which has come later.  It has listed the
 *     children after it had made its own node, so it has seen ours, and goes.  Of two that
 *     come at the same moment, the one with the greater number is that.
 *  4. A child of a directory and an ephemeral node at its place cannot both exist, so that the
 *     server itself keeps `plain` and all others apart.
 *
 * Pure: names in, what they mean out.
 */
#ifndef DLOCK_ZK_LAYOUT_H
#define DLOCK_ZK_LAYOUT_H

#include "backends/backend.h"

/* of our node's name, without the number */
enum { PREFIX_BYTES = 176, FREEZES = 2 };

/* What a child is, by its name. */
enum child_kind {
	CHILD_DLOCKS,
	CHILD_OTHERS, /* the layout's users', or of another that has a place as these have */
	CHILD_FOREIGN, /* no lock of this layout has made it */
	CHILD_FREEZE,
	CHILD_PART, /* of a semaphore of Curator's: a directory */
};

/* One child. */
struct child {
	const char *name; /* NULL: there is none */
	const char
	    *rank; /* what counts of the name for the order; `name`: it has no number */
	const char *owner; /* a dlock's: there it begins in the name; NULL */
	enum child_kind what;
	/* it has no place: whoever has made it does not wait for ours, nor we for it */
	bool blind;
	enum lock_kind kind;
	unsigned limit;
};

/* Whose name stands in those of nodes, and how. */
enum naming {
	NAMING_OWNER, /* nothing but an owner; behind a head also the number of a session */
	NAMING_UUID,  /* "_c_01234567-...-" */
	NAMING_LABEL, /* a host; dlock's is "<host>.<owner>" */
};

/* A name is a head, whose it is, a tag and the number. */
struct form {
	enum lock_kind kind;
	const char *head, *tag; /* tag NULL: there are no more */
	bool thread;            /* the number of a thread stands before the tag */
};

/* How a freeze is called (freeze.h): these, and between them its number and length. */
struct freeze_form {
	const char *part; /* "": in the lock's directory; else in that one below it */
	const char *head, *tail;
};

struct layout {
	const char *name;  /* as -O layout has it */
	const char *users; /* for people: "kazoo", */
	const char *what;  /* and what a node of theirs is */
	unsigned caps;
	enum naming naming;
	struct form forms[5]; /* the first is for all kinds that have none */
	bool single;          /* K is the lock, not a directory */
	/* its users make K once, and count on it: it stays when nobody uses it */
	bool lasting;
	/* K's data may be a number: it is a semaphore for so many, whose users see no lock */
	bool counts;
	/* plain runs are one recipe, -s and -x another; neither sees the other's nodes */
	bool recipes;
	/* users can listen for CURATORS_REVOKE in their nodes */
	bool listens;
	struct freeze_form freezes[FREEZES]; /* the first ones, with a head */
};

/* The first is the default; ended by a row without a name. */
extern const struct layout layouts[];

/* NULL: there is none of that name. */
const struct layout *layout_named(const char *name);

/* The name of a claim's node up to the number; "": K is the lock. */
void layout_name(char out[PREFIX_BYTES], const struct layout *, const struct claim *);

struct child layout_read(const struct layout *, const char *name);

/*
 * Whose node is that, of all layouts?  NULL: none's that has directories.  *ret is what
 * it means there.
 */
const struct layout *layout_of(const char *name, struct child *ret);

/* Whose semaphore has a permit of that name?  NULL: none's.  dlock has no layout for these. */
const char *layout_semaphore(const char *name);

/* A dlock's owner as it stands in the name, with the "d" but without "-"; false: it is none. */
bool child_owner(char out[OWNER_CHARS + 1], const struct child *);
bool child_has_owner(const struct child *, const char *owner);

/* What the name of a freeze says, whatever the layout. */
struct freeze_parts {
	int64_t length;                  /* NEVER without an end; 0: it is no freeze's */
	const struct freeze_form *forms; /* all of its layout's */
	const char *core;                /* what all names of this one have in common, */
	size_t n;                        /* so many characters */
};

struct freeze_parts layout_freeze(const char *name);

#endif
