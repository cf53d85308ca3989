/*
 * nested.h - an inner run: asks the outer keepers, and joins their hold.
 *
 * `dlock run -k deploy -- make` whose Makefile says `dlock run -k deploy` again must not
 * wait for itself: the inner run joins the hold of the outer one, whose keeper is reached
 * by DLOCK_KEEPER (door.h).  A run that cannot ask a keeper whose address names its lock is
 * refused.
 *
 * A key is the same lock there only if all that both sides have resolved is equal
 * (setting.h).  One keeper must have all the keys that are asked for, and of a kind of
 * which the one that is asked for is a part: anything exclusive or shared of an exclusive
 * hold, else the same kind and the same limit.  (A limit inside an exclusive hold is none
 * of its parts: there is no slot.)  A run of which a keeper has only a part would wait for
 * its own parent, or for others that wait for it: it is refused, too.
 *
 * A joined hold is the outer one in everything: token, slot, lease, deadlines (same
 * clock, so t_s can be handed on).  The outer keeper goes on renewing until the last
 * joined hold has ended, and the --min-hold of each is over; when it loses the lock it
 * kills its tree, of which the inner dlock is a part, and tells "lost" to all that ask.
 * The inner side is a backend like any other, whose server is that keeper.
 */
#ifndef DLOCK_NESTED_H
#define DLOCK_NESTED_H

#include "door.h"

/* Which locks a store of that backend has, as backend.identify says; false: not known, "". */
bool nested_identify(struct identity *, const struct backend *, struct store *);

/* A run that asks the outer keepers, and the store of the hold that it joins. */
struct nested {
	struct store base; /* its host is set by the caller: it waits there */
	const struct plan *plan;
	const struct nested_site *where;
	instant keep_until; /* the keeper is asked to keep the lock so long */
	/* set by nested_open(), if it joins: */
	int keeper; /* the connection, which is the hold; -1: none */
	struct join_part parts[KEYS_MAX]; /* of the plan's keys */
	struct identity identity; /* which locks the plan's keys are there; else "" */
};

/*
 * RC_OK: *ret is the store of a hold that is joined; or it is untouched if no keeper holds
 * any of the plan's keys: take them from the server then.  RC_USAGE: that server is not to
 * be known (any more); or the plan has a job, which is remembered with a release, and a
 * joined hold has none.  RC_AGAIN: an outer keeper is there but does not answer.
 * RC_PROTOCOL: one has a key of ours, or may have it, but it cannot be joined, or not for
 * the kind or all the keys that are asked for.
 */
enum rc nested_open(struct store **ret, struct nested *, struct fault *);

/*
 * What nested_open() would do, for a process that joins nothing.  RC_OK: join a keeper's
 * hold.  RC_LOST: take the keys from the server.  RC_PROTOCOL: refuse.  RC_AGAIN, RC_SYSTEM:
 * that is not known.
 */
enum rc nested_look(struct nested *);

/* ---- dlock release ---- */

/*
 * Asks the keeper for the release of its hold, and waits for how that ends.  RC_USAGE:
 * this is no handle.  RC_LOST: nobody of our user is there (any more).  RC_DENIED: it
 * cannot be reached from here.  RC_AGAIN: the keeper was asked, and has ended without a
 * word.  RC_SYSTEM: it was not asked, or shows no sign of life.  *f says it.
 */
enum rc nested_release(const char *handle, struct join_outcome *, struct fault *f);

#endif
