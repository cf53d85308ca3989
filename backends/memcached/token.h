/*
 * token.h - tokens: how many changes a server has counted, over all its lives.
 *
 * memcached numbers every change that is made there, whatever the item (CAS), in one count
 * that eviction and flush_all leave alone; only a restart begins it anew, and at a later
 * second.  So a token is the second in which this life began, in microseconds, and the
 * number of the change that added the lock's item:
 *
 *	(time - uptime) * 1000000 + CAS
 *
 * The items of one lock are never there two at once, and numbers are given when one is
 * added: so within a life tokens grow.  Every one is smaller than the server's clock, if
 * no more than a million changes were counted for each second of its life, which is asked
 * for here: so those of the next life, whose beginning is later, are greater.
 *
 * Nobody knows the number before the item is there.  So an item is added with a token of 0,
 * and its own CAS tells the token until it is written again, with that token in it.
 */
#ifndef DLOCK_MEMCACHED_TOKEN_H
#define DLOCK_MEMCACHED_TOKEN_H

#include "vitals.h"

/*
 * Of an item that was added with this CAS, to a server that says this of itself.  0: it has
 * counted more changes than a token has room for yet.
 */
uint64_t token_of(const struct vitals *, uint64_t cas);

/* So many seconds later there is room for it. */
int64_t token_missing(const struct vitals *, uint64_t cas);

#endif
