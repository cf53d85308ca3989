/*
 * client.h - commands to one memcached server and their replies, on one connection.
 *
 * A caller puts one or several commands, sends them together, and reads their replies in
 * that order, all of them.  Nothing here knows of locks.
 *
 * Functions that return an rc have closed the connection whenever that is not RC_OK.  A
 * reply that is an error counts as that, too: memcached may have taken what followed for
 * commands.  Every connection has a number of its own (epoch).  What was learned on another
 * one, a CAS first of all, may be of another life of the server.
 */
#ifndef DLOCK_MEMCACHED_CLIENT_H
#define DLOCK_MEMCACHED_CLIENT_H

#include "backends/common/endpoint.h"
#include "backends/common/stream.h"

enum {
	NAME_BYTES = 251,   /* longest name of an item, with a NUL */
	VALUE_BYTES = 4096, /* so much of a value is kept, with a NUL */
	LINE_MOST = 2048,   /* longest line that is believed */
};

/* Where the server is, and who we are to it. */
struct address {
	struct endpoint at;
	char user[128], password[128]; /* "": none */
};

struct client {
	struct stream stream;
	const struct address *address; /* not owned */
	unsigned epoch;                /* counts connections, from 1 */
	size_t at, used;               /* what has not been read yet of `in` */
	char in[4 * LINE_MOST];        /* stats and all settings at once */
	char value[VALUE_BYTES];       /* of the last reply */
	size_t filled; /* of `out`: commands that have not been sent yet */
	char out[3 * NAME_BYTES + 2 * VALUE_BYTES];
};

void client_init(
    struct client *, struct host *, const struct address *, const char *server_name);
void client_close(struct client *);

/* Is the connection with this number still open, and have its replies been read? */
bool client_is_same(struct client *, unsigned epoch);

/* ---- commands ---- */

/*
 * An item's name is given in two pieces, a tag and the name of its lock (item.h).  Between
 * the first command and client_send() nothing may fail: what was put would be sent later.
 */

/* Asks for CAS, time and value; to the server that does not count as use of the item (LRU). */
void client_get(struct client *, const char *tag, const char *name);

#define STORE_NEW 0          /* only if there is none */
#define STORE_ANY UINT64_MAX /* whatever there is */

/* Only over the item with this CAS, or as above; for so many seconds, 0: for ever. */
void client_store(struct client *, const char *tag, const char *name, uint64_t cas,
    int64_t exptime, const char *value);

/* Only with this CAS; 0: whatever it is. */
void client_delete(struct client *, const char *tag, const char *name, uint64_t cas);

/* A command without arguments: "stats". */
void client_word(struct client *, const char *word);

/* Sends what was put, after connecting and logging in if need be. */
enum rc client_send(struct client *, instant until, struct fault *);

/*
 * The same on the connection that is open, since the commands go on with what was read on
 * it.  RC_AGAIN: that connection has ended.
 */
enum rc client_go_on(struct client *, instant until, struct fault *);

/* ---- replies ---- */

enum reply_code {
	REPLY_HD,     /* done */
	REPLY_VA,     /* a value */
	REPLY_EN,     /* there is no such item */
	REPLY_NF,     /* nor one to be changed */
	REPLY_NS,     /* not stored: there is one already */
	REPLY_EX,     /* its CAS is another */
	REPLY_MN,     /* to mn */
	REPLY_OK,     /* STORED and the like */
	REPLY_STAT,   /* one line of statistics */
	REPLY_KEY,    /* one line of a list of items */
	REPLY_END,    /* of such lines */
	REPLY_BUSY,   /* the server lists its items for another client */
	REPLY_ERROR,  /* ERROR, CLIENT_ERROR, SERVER_ERROR */
	REPLY_STRANGE /* no memcached says that */
};

enum { TTL_NONE = -1, TTL_UNTOLD = -2 };

struct reply {
	enum reply_code code;
	uint64_t cas; /* of flag c; 0: not told, or the server keeps none */
	int64_t ttl;  /* of flag t, seconds; TTL_NONE: without an end; TTL_UNTOLD */
	size_t size;  /* of a value */
	/*
	 * STAT: its name and value.  KEY: the item's name, encoded.  ERROR: which one, and
	 * its text.  VA: the value, `n` bytes of it (fewer than `size` if it is longer than
	 * VALUE_BYTES) and a NUL.  All of it is valid until the next reply.
	 */
	const char *name, *text;
	size_t n;
};

/* Reads one.  REPLY_ERROR and REPLY_STRANGE are never returned: they are faults. */
enum rc client_read(struct client *, struct reply *, instant until, struct fault *);

/* client_go_on(), and the one reply to what was put. */
enum rc client_answer(struct client *, struct reply *, instant until, struct fault *);

/* RC_PROTOCOL: the reply does not belong to what was asked; closes. */
enum rc client_nonsense(struct client *, struct fault *);

/* RC_CONFIG: the server has answered with a CAS of 0; closes. */
enum rc client_without_cas(struct client *, struct fault *);

/* ---- pieces of a line ---- */

/* Reads a line without its end; cuts it into pieces. */
void reply_parse(struct reply *, char *line);

/* The word at *rest, which goes on behind it; "" at the end. */
char *reply_word(char **rest);

/* All of `text` as a decimal number of up to 19 digits. */
bool reply_number(const char *text, uint64_t *ret);

/* What a REPLY_ERROR means, in words (hint may be NULL); never RC_OK. */
enum rc reply_error(const struct reply *, const char **hint);

#endif
