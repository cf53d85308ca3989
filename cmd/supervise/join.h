/*
 * join.h - a nested dlock on keys that enclosing dlocks already hold.
 *
 * `dlock run -k deploy -- make` whose Makefile says `dlock run -k deploy` again
 * must neither wait for itself nor ask the server: the inner one joins the
 * outer one's hold.  The command finds the keepers around it in DLOCK_KEEPER;
 * each has a socket (join_server.h), open to processes of the same user that
 * descend from it.  Since an address says which locks the keeper has
 * (keeper_address.h), a run which cannot ask is not left to wait for its own
 * ancestor: it is refused.
 *
 * A joined hold is the outer one in everything: token, slot, lease, deadlines (same
 * clock, so t_s can be handed on).  The outer keeper goes on renewing until the last
 * joined hold has ended, and the --min-hold of each is over; when it loses the lock it
 * kills its tree, of which the inner dlock is a part, and tells "lost" to whoever asks.
 *
 * The inner side is a backend like any other, so nothing else in dlock knows about
 * nesting: join_open() gives its store, whose servers are the keepers that
 * join_search() has found.
 */
#ifndef DLOCK_JOIN_H
#define DLOCK_JOIN_H

#include "join_search.h"

/*
 * RC_OK: *ret is a store that joins the holds of asker's keepers, and *joined, which
 * outlives it, says of which; or it is untouched if none of them holds any of the plan's
 * keys: take them from the server then.  Otherwise what join_search() says.  On release the
 * enclosing dlock is asked to keep the lock until *asker->keep_until.
 */
enum rc join_open(
    struct store **ret, const struct join_asker *, struct joined *, struct fault *);

#endif
