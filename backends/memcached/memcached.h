/*
 * memcached.h - one store in memcached, as the files of this directory share it.
 *
 * memcached.c tells what becomes of a lock; each struct below belongs to one of the others.
 */
#ifndef DLOCK_MEMCACHED_H
#define DLOCK_MEMCACHED_H

#include "cache.h"
#include "name.h"
#include "pace.h"
#include "vitals.h"

/* The server and the names there, as the user has said (settings.h). */
struct place {
	struct location address;
	const char *prefix;
	char where[WHERE_BYTES];
};

/* Our item, as we wrote it last (grant.h). */
struct hold {
	bool is; /* granted */
	uint64_t cas;
	unsigned epoch; /* of the connection on which that was read; 0: not known */
	struct value value;
};

/* What may have happened on the server without our knowing. */
struct pending {
	bool item;     /* an item of ours may be there */
	bool add;      /* an add went out, and was not answered: it may yet arrive */
	bool deletion; /* a deletion went out, and was not answered */
};

struct memcached {
	struct store base;
	struct place place;
	struct cache cache;
	struct tick tick;
	bool told;    /* that the server has lost items (tell.h) */
	bool flushed; /* it was told to forget all, not long ago */
	const struct claim *claim;
	struct names names; /* of the claim */
	struct pace pace;
	struct hold hold;
	struct pending pending;
};

extern const struct backend memcached_backend;

static inline struct memcached *
memcached_of(struct store *s)
{
	return (struct memcached *)store_of(s, &memcached_backend);
}

#endif
