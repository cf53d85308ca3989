/*
 * memcached.h - one store in memcached, as the files of this directory share it.
 *
 * client.h < item.h are its layers: commands and replies, and what the server has of a lock
 * and says of itself.  memcached.c holds a lock, admin.c looks, takes locks away and freezes
 * keys, site.c reads what the user has named.
 */
#ifndef DLOCK_MEMCACHED_H
#define DLOCK_MEMCACHED_H

#include "backends/common/retry.h"
#include "item.h"

/* Why a lock is not granted although nobody is known to hold it. */
enum unready {
	READY,
	UNREADY_YOUNG,   /* the server may have forgotten a holder */
	UNREADY_CROWDED, /* it has counted too many changes for a token */
};

struct memcached {
	struct store base;
	/* where locks are kept (site.c) */
	struct address address;
	const char *prefix;
	char server_name[WHERE_BYTES];

	struct client client;
	struct tick tick;
	bool losses_told; /* that the server has lost items, or may */

	/* waiting (memcached.c) */
	struct retry retry;
	uint64_t jitter;
	enum unready unready; /* by the last answer */
	enum unready told;    /* the user knows that */

	/* the claim, and our item of it as we wrote it last */
	const struct claim *claim;
	struct item_name name;
	struct value ours;
	uint64_t cas;   /* 0: it is not there */
	unsigned epoch; /* of the connection on which that was read; 0: not known */

	/* what may be on the server */
	bool granted;
	bool may_be_there;      /* an item of ours */
	bool add_unanswered;    /* an item of ours may yet arrive */
	bool delete_unanswered; /* our item may be gone, or go yet */
};

extern const struct backend memcached_backend;

static inline struct memcached *
memcached_of(struct store *s)
{
	return (struct memcached *)store_of(s, &memcached_backend);
}

/* How the server loses items, as a clause.  False: it has lost none yet. */
enum { LOSSES_BYTES = 240 };
bool memcached_losses(const struct stats *, char *out, size_t size);

/* memcached.c, and admin.c. */
extern const struct lock_ops memcached_lock;
extern const struct admin_ops memcached_admin;

/*
 * Reads memcached://[USER[:PASSWORD]@]HOST[:PORT]; url NULL: 127.0.0.1:11211.  RC_OK, or
 * RC_USAGE (RC_CONFIG: several servers) with what is wrong; never repeats the password.
 */
enum rc memcached_read_url(struct address *, const char *url, struct fault *);

/* After all settings: are there both a user and a password, or neither? */
enum rc memcached_check_login(const struct address *, struct fault *);

#endif
