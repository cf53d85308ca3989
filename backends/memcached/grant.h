/*
 * grant.h - an item becomes ours, and a grant.
 *
 * Who is granted has found, after the item was added, no freeze: one that is made later
 * comes behind this grant; and no flush_all within the lease: where there was one, somebody may
 * hold the lock whose item it has taken.  The token is that of the item (token.h).  What does not become a
 * grant is deleted again.
 *
 * All of it goes on with what was read on the connection that is open: RC_AGAIN if that is
 * another one by now.
 */
#ifndef DLOCK_MEMCACHED_GRANT_H
#define DLOCK_MEMCACHED_GRANT_H

#include "memcached.h"
#include "sight.h"

/* The lease of a claim in whole seconds, and how long its item is kept. */
int64_t grant_seconds(const struct claim *);
int64_t grant_exptime(const struct claim *);

/* There is no item: ours is added.  RC_BUSY: another was faster. */
enum rc grant_add(struct memcached *, const struct sight *, instant until, struct grant *,
    struct fault *);

/* Ours is there, from an attempt whose answer we did not get. */
enum rc grant_adopt(struct memcached *, const struct sight *, instant until,
    struct grant *, struct fault *);

/* Deletes our item, which has come to nothing.  RC_OK or RC_STOP. */
enum rc grant_withdraw(struct memcached *, uint64_t cas);

/* Writes our item as it stands in m->hold; cas 0: where there is none. */
enum rc grant_put(struct memcached *, struct batch *, uint64_t cas, struct fault *);

/*
 * That the server has lost a hold is seen by its renewal only; so that is as often as with
 * the shortest lease, and sooner than a server that has forgotten all grants anything.
 */
#define GRANT_PACE NS_PER_S

/* The end of the connection is news of the hold. */
void grant_watch(struct memcached *);

#endif
