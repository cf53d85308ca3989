/*
 * join_search.h - which of the keepers around a run have its keys.
 *
 * Each of the run's keys is looked for in all the keepers of DLOCK_KEEPER.  A key is the
 * same lock there only if all that both sides have resolved is equal (setting.h);
 * where that is not known on either side, nothing is joined.  A keeper
 * says which of them it has, and of which kind; what is asked for must be a part
 * of that: anything exclusive or shared of an exclusive hold, else the same kind
 * and the same limit.  (A limit inside an exclusive hold is none of its parts: there
 * is no slot.)  All keys are found, perhaps in several keepers, or none; whatever
 * lies between would wait for its own parent, or for others who wait for it.
 */
#ifndef DLOCK_JOIN_SEARCH_H
#define DLOCK_JOIN_SEARCH_H

#include "join_asker.h"
#include "link.h"

/* What enclosing dlocks have told. */
struct joined {
	struct join_site site;
	struct identity identity; /* which locks the plan's keys are there */
	/* the connections, each of which is a hold */
	struct anchors keepers;
	struct join_part parts[KEYS_MAX]; /* of the plan's keys */
};

/*
 * RC_OK: all of the plan's keys are held by the keepers of *joined, which keep them for
 * us until they are left; or none is, and there are no such keepers: then
 * *asker->site is the one that counts, which may point into *joined.  RC_USAGE: that
 * site is not to be known (any more); or the plan has a job, which is remembered with a
 * release, and a joined hold has none.  RC_AGAIN: a keeper around us is there but does
 * not answer.  RC_PROTOCOL: one has a key of ours, or may have it, but it cannot be
 * joined, or not for the kind or all the keys that are asked for; asking the server
 * might be waiting for ourselves.
 */
enum rc join_search(const struct join_asker *, struct joined *, struct fault *);

/* Ends the connections: that gives back. */
void join_search_leave(struct anchors *keepers);

/*
 * For who only looks at locks, and joins nothing.  RC_OK: for a plan that inherits its
 * site, *site is that of the nearest dlock around us and points into *told; and unless
 * `ours` is NULL, it has a bit for each of the plan's keys that a run would join.
 * RC_USAGE: the site is not to be known (any more).
 */
enum rc join_search_look(struct host *, const struct plan *, struct site *site,
    struct join_site *told, unsigned *ours, struct fault *);

#endif
