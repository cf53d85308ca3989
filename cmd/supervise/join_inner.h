/*
 * join_inner.h - an inner run: asks the outer keepers, and joins their hold.
 *
 * `dlock run -k deploy -- make` whose Makefile says `dlock run -k deploy` again must not
 * wait for itself: the inner run joins the hold of the outer one, whose keeper is reached
 * by DLOCK_KEEPER (join_outer.h).  A run that cannot ask a keeper whose address names its lock is
 * refused.
 *
 * A key is the same lock there only if all that both sides have resolved is equal
 * (identity.h).  One keeper must have all the keys that are asked for, and of a kind of
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
#ifndef DLOCK_JOIN_INNER_H
#define DLOCK_JOIN_INNER_H

#include "anchors.h"
#include "join.h"
#include "join_site.h"

/* A run that asks the outer keepers, and the store of the hold that it joins. */
struct join_inner {
	struct store base; /* its host is set by the caller: it waits there */
	const struct params *params;
	const struct join_site *where;
	instant keep_until; /* the keeper is asked to keep the lock so long */
	/* set by join_inner_open(), if it joins: */
	int keeper;             /* the connection, which is the hold; -1: none */
	struct anchors watched; /* what came with it: see join.h */
	struct join_part parts[KEYS_MAX]; /* of the run's keys */
	struct identity identity; /* which locks the run's keys are there; else "" */
};

/*
 * Asks the keepers of DLOCK_KEEPER, where it is set.  RC_OK: *ret is the store of a hold that is joined; or it is untouched if no keeper holds
 * any of the run's keys: take them from the server then.  RC_USAGE: that server is not to
 * be known (any more); or the run has a job, which is remembered with a release, and a
 * joined hold has none.  RC_AGAIN: an outer keeper is there but does not answer.
 * RC_PROTOCOL: one has a key of ours, or may have it, but it cannot be joined, or not for
 * the kind or all the keys that are asked for.
 */
enum rc join_inner_open(struct store **ret, struct join_inner *, struct fault *);

/*
 * Tells what join_inner_open() would do, for a process that joins nothing.  RC_OK: join a keeper's
 * hold.  RC_LOST: take the keys from the server.  RC_PROTOCOL: refuse.  RC_AGAIN, RC_SYSTEM:
 * that is not known.
 */
enum rc join_inner_look(struct join_inner *);

#endif
