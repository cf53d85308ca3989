/*
 * cache.h - commands to one memcached server, and its replies, on one connection.
 *
 * Whoever asks writes one or several commands into a batch, sends it, and reads their
 * replies in that order, all of them.  What is asked is no matter of this file: it knows
 * nothing of locks.
 *
 * Whatever is returned but RC_OK has closed the connection, as in stream.h, and so has any
 * reply that is an error: memcached may have taken what followed for commands.  A new
 * connection has a new number (cache_epoch): what was learned on another one, a CAS
 * first of all, may be of another life of the server.
 */
#ifndef DLOCK_MEMCACHED_CACHE_H
#define DLOCK_MEMCACHED_CACHE_H

#include "location.h"
#include "backends/common/net.h"
#include "name.h"
#include "reply.h"
#include "value.h"
#include "vitals.h"

enum {
	LINE_MOST = 2048, /* longest line that is believed in */
	BATCH_BYTES = 3 * NAME_BYTES + 2 * VALUE_BYTES,
	SIZE_MOST = 64 << 20, /* of a value that is read over */
};

struct cache {
	struct stream stream;
	const struct location *address; /* not owned */
	unsigned epoch;                 /* counts connections */
	size_t at, used;                /* what is not yet read of `in` */
	char in[4 * LINE_MOST];         /* stats and all settings at once */
};

void cache_init(
    struct cache *, struct host *, const struct location *, const char *where);
void cache_close(struct cache *);

/* Is the connection that had this number still there, and are its replies read? */
bool cache_is_same(struct cache *, unsigned epoch);

/* ---- commands ---- */

struct batch {
	char text[BATCH_BYTES];
	size_t used;
};

void batch_begin(struct batch *);

/* mg: c, t and v as flags; the item is not made younger to those who evict. */
void batch_get(struct batch *, const char *name);

/* How a value is stored. */
struct store_how {
	enum {
		STORE_NEW,  /* only if there is none */
		STORE_OVER, /* only over the one with this CAS */
		STORE_ANY,  /* whatever there is */
	} mode;
	uint64_t cas;
	int64_t exptime; /* seconds; 0: for ever */
};

void batch_store(struct batch *, const char *name, const struct store_how *,
    const char *value, size_t n);

/* Only with this CAS; 0: whatever it is. */
void batch_delete(struct batch *, const char *name, uint64_t cas);

/* A command without arguments: "stats". */
void batch_word(struct batch *, const char *word);

/* ---- exchange ---- */

/* Sends it, after connecting and logging in if need be. */
enum rc cache_send(struct cache *, const struct batch *, instant until, struct fault *);

/*
 * The same, but only on the connection that is there, for what goes on with what was read on
 * it; otherwise RC_AGAIN.
 */
enum rc cache_go_on(struct cache *, const struct batch *, instant until, struct fault *);

/* One reply, with up to VALUE_BYTES - 1 of its value. */
struct answer {
	struct reply reply;
	size_t n; /* of value; less than reply.size: it was longer */
	char value[VALUE_BYTES];
};

enum rc cache_read(struct cache *, struct answer *, instant until, struct fault *);

/* The lines up to END. */
enum rc cache_read_vitals(struct cache *, struct vitals *, instant until, struct fault *);

/* RC_PROTOCOL: a reply that does not belong to what was asked; closes. */
enum rc cache_nonsense(struct cache *, struct fault *);

#endif
