/*
 * item.h - the items that make up one lock: their names, their values, and one question
 * that reads them all.
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
	uint64_t token;       /* of the grant; 0: its CAS tells it (stats.h), or none */
	int64_t since, until; /* microseconds of the server; EPOCH_NONE */
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
