/*
 * sight.h - what one question tells of one lock.
 */
#ifndef DLOCK_MEMCACHED_SIGHT_H
#define DLOCK_MEMCACHED_SIGHT_H

#include "cache.h"

enum { FOREIGN_CHARS = 40 };

struct sight {
	instant sent; /* just before the question left */
	bool held;    /* the item is there, whosever it is */
	bool foreign; /* its value is none of dlock's; `value` is not set */
	uint64_t cas; /* of it */
	int64_t ttl;  /* of it, whole seconds; TTL_NONE */
	struct value value;
	char words[FOREIGN_CHARS + 1]; /* the beginning of a foreign one; hostile */
	bool frozen;
	struct value freeze;  /* "" and 0 where its value is none of dlock's */
	struct vitals vitals; /* with SIGHT_SERVER */
};

/* What is asked for beside the lock and its freeze. */
enum {
	SIGHT_SERVER = 1 << 0, /* vitals, and the token of an item that was only added */
	SIGHT_FLUSH = 1 << 1,  /* vitals.oldest, too */
};

/*
 * As cache.h, all of it on one connection.  RC_CONFIG: no lock can be kept there.
 */
enum rc sight_read(struct cache *, const struct names *, unsigned what, instant until,
    struct sight *, struct fault *);

/* The same in two parts, for many questions in one packet. */
void sight_ask(struct batch *, const struct names *, unsigned what);
enum rc sight_answered(
    struct cache *, unsigned what, instant until, struct sight *, struct fault *);

/* An item that is read by itself: a freeze, a note. */
enum rc sight_read_value(
    struct cache *, bool *is, struct value *, instant until, struct fault *);

/* The token of an item that was only added, from what the server says of itself. */
void sight_number(struct sight *, const struct vitals *);

/* RC_CONFIG: it has answered with a CAS of 0. */
enum rc sight_without_cas(struct cache *, struct fault *);

/* Is it held by this owner? */
bool sight_is_of(const struct sight *, const char *owner);

/* No lease is longer: memcached takes larger numbers for dates. */
enum { EXPTIME_MOST = 30 * 86400 };

#endif
