/*
 * item.h - what a server has of one lock: its items, their names and values; what the server
 * says of itself, and what that means for a lock; and one question that reads it all.
 *
 *	PREFIX KEY           the lock: who has it
 *	dlock#f:PREFIX KEY   its freeze
 *	dlock#b:PREFIX KEY   a note: who took it away by force, and from whom
 *
 * Bytes of a key that memcached does not take in a name (blanks, control characters), and
 * % and #, are written %XX.  A key that is too long then is named by its SHA-256, as
 * PREFIX#HEX, and stands in the value.
 */
#ifndef DLOCK_MEMCACHED_ITEM_H
#define DLOCK_MEMCACHED_ITEM_H

#include "client.h"

/* ---- names ---- */

#define ITEM_LOCK ""
#define ITEM_FREEZE "dlock#f:"
#define ITEM_NOTE "dlock#b:"

enum {
	PREFIX_MOST = 64,
	LOCK_NAME_MOST = NAME_BYTES - sizeof ITEM_FREEZE, /* a tag fits before it */
};

/* Of the lock's own item; a tag before it makes the others. */
struct item_name {
	char text[LOCK_NAME_MOST + 1];
	bool hashed; /* it does not tell the key */
};

void item_name(struct item_name *, const char *prefix, const char *key);

/* May names begin with this?  Up to PREFIX_MOST printable characters of ASCII, no % or #. */
bool item_is_prefix(const char *prefix);

enum item_kind { ITEM_IS_OTHER, ITEM_IS_LOCK, ITEM_IS_FREEZE };

/*
 * The way back, of a name that a server lists: what the item is, the name of its lock (a
 * piece of `name`), and its key (KEY_BYTES + 1); "" if only the value has it.
 */
enum item_kind item_name_read(
    char *key, const char **lock, const char *prefix, const char *name);

/* ---- values ---- */

/*
 *	dlock1 OWNER TOKEN SINCE UNTIL nKEY nRECORD nMARK KEY RECORD MARK
 *
 * on one line, numbers in decimal.  The line begins with no word that memcached knows: a
 * server that should ever read it as a command does nothing.
 */
struct value {
	char owner[OWNER_CHARS + 1];
	uint64_t token; /* of the grant; 0: its CAS tells it (stats_token), or none */
	int64_t since, until;      /* microseconds of the server; EPOCH_NONE */
	char key[KEY_BYTES + 1];   /* "": the name tells it */
	char record[RECORD_BYTES]; /* hostile, but without control characters */
	char mark[RECORD_BYTES];   /* who asks for it back; "": nobody; as hostile */
};

/* Returns its length, below VALUE_BYTES; 0: a text has control characters. */
size_t value_write(char out[VALUE_BYTES], const struct value *);

/* False: it is not dlock's. */
bool value_read(struct value *, const char *text, size_t n);

/* ---- items ---- */

enum { FOREIGN_CHARS = 40 };

/* One that was read. */
struct item {
	bool there;
	bool foreign; /* not dlock's */
	uint64_t cas;
	int64_t ttl;                   /* whole seconds; TTL_NONE */
	struct value value;            /* empty where there is none of dlock's */
	char words[FOREIGN_CHARS + 1]; /* the beginning of what stands there; hostile */
};

/* Reads the reply to client_get().  RC_CONFIG: no lock can be kept on that server. */
enum rc item_read(struct client *, struct item *, instant until, struct fault *);

/* Does this owner hold it? */
bool item_is_of(const struct item *, const char *owner);

/*
 * ---- statistics: how much the server can have forgotten, whether its clock runs, and which
 * token a grant has ----
 */

/* What the server says of itself. */
struct stats {
	char version[24];     /* hostile */
	int64_t uptime, time; /* seconds; the latter since 1970; -1: not told */
	int64_t evictions, flushes;
	int64_t room, used; /* bytes for items; 0: not told */
	/* of `stats settings`: when it was flushed, as the server counts; -1: not told */
	int64_t oldest;
};

void stats_init(struct stats *);

/* Takes in one line STAT NAME VALUE. */
void stats_add(struct stats *, const char *name, const char *value);

/* RC_OK, or RC_CONFIG and why no lock can be kept there. */
enum rc stats_check(const struct stats *, const char *where, struct fault *);

/* Reads STAT lines up to END, adds them to what is known, and checks that. */
enum rc stats_read(struct stats *, struct client *, instant until, struct fault *);

/* For how many seconds, at least, the server has neither been started nor told to forget all. */
int64_t stats_age(const struct stats *);

/* ---- tokens ---- */

/*
 * memcached numbers all changes that are made there, whatever the item, in one count: the
 * CAS.  Eviction and flush_all leave that count alone; only a restart begins it anew, at a
 * later second.  So a token is the second in which the server was started, in microseconds,
 * and the number of the change that added the lock's item:
 *
 *	(time - uptime) * 1000000 + CAS
 *
 * A lock has one item at a time, which gets its number when it is added, so tokens grow
 * while the server runs.  They also grow over a restart if all of them are below the
 * server's clock.  That is so while the server counts less than a million changes a
 * second, and no token is given otherwise.
 *
 * The number is known only after the item was added.  So an item is added with a token of
 * 0, and its own CAS tells the token until the holder writes it again with that token.
 */

/* Of an item that was added with this CAS; 0: the server has counted too many changes. */
uint64_t stats_token(const struct stats *, uint64_t cas);

/* The seconds until there is a token for it. */
int64_t stats_token_missing(const struct stats *, uint64_t cas);

/* ---- the server's clock ---- */

/*
 * The server's clock is the whole seconds of the machine's clock when a timer last looked.
 * The timer looks a little less often than once a second, so the clock goes on by two
 * seconds now and then.  So an item ends up to two seconds early, and one second earlier
 * still where tick_goes_on() does not notice that the clock is late.  An item is kept for
 * that much longer than its lease.
 */
enum { ENDS_EARLY = 2, LEASE_BEYOND = ENDS_EARLY + 1 };

/* A longer time would be read as a date. */
enum { EXPTIME_MOST = 30 * 86400 };

/*
 * The timer runs in another thread than the one that answers.  After the process stood
 * still (SIGSTOP, a paused machine), requests that have waited for it may be answered by
 * the clock of before: an item that is stored then ends too early by as much.
 */
struct tick {
	bool known;
	instant at; /* not before the server read its clock */
	int64_t time;
	/* the last answer was not believed: when the question was sent, and what it said */
	bool doubted;
	instant doubt_at;
	int64_t doubt_time;
};

/*
 * The server's clock said `time` to a question that was sent at `sent` and answered at
 * `heard`.  False: the clock stands still, or did.  A paused machine may leave the clock
 * behind for good: it is believed again once it has gone on by itself.
 */
bool tick_goes_on(struct tick *, instant sent, instant heard, int64_t time);

/* ---- one lock ---- */

/* What one question has found, all of it on one connection. */
struct items {
	instant sent; /* just before the question left */
	struct item lock, freeze;
	struct stats stats; /* with ITEMS_STATS */
};

/* What is asked for beside the lock and its freeze. */
enum {
	ITEMS_STATS = 1 << 0, /* and so the token of an item that was only added */
	ITEMS_FLUSH = 1 << 1, /* stats.oldest, too */
};

/* RC_CONFIG: no lock can be kept on that server. */
enum rc items_look(struct client *, const char *name, unsigned what, instant until,
    struct items *, struct fault *);

/* The same in two parts, for many locks in one packet. */
void items_ask(struct client *, const char *name, unsigned what);
enum rc items_read(
    struct client *, unsigned what, instant until, struct items *, struct fault *);

/* Sets the token of a lock that was only added. */
void items_number(struct items *, const struct stats *);

#endif
