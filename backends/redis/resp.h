/*
 * resp.h - what a Redis server may say to us, how it becomes replies, and what errors mean.
 *
 * hiredis builds the replies, but trusts lengths that a server announces (it
 * would allocate 16 GiB for "*2147483647"), so a reply is given to it only
 * when it is complete and this file has found it small and well-formed.
 */
#ifndef DLOCK_REDIS_RESP_H
#define DLOCK_REDIS_RESP_H

#include "backends/backend.h"

#include <hiredis/hiredis.h>
#include <sys/types.h>

enum {
	RESP_BYTES = 16384, /* the longest reply */
	RESP_MEMBERS = 16,  /* of one array */
	RESP_DEPTH = 3,     /* arrays within arrays */
};

/* A command, ended by NULL. */
typedef const char *const resp_words[10];

/* Writes n of them, one behind the other; free() it.  NULL: without memory. */
char *resp_write(const resp_words *, size_t n);

/*
 * The same piece by piece: how many words a command has ('*'), then each of them.  They
 * return what is behind it, and write no NUL.
 */
enum { RESP_WORD_BYTES = 25 }; /* beside its own bytes, each takes at most so many */
char *resp_put_count(char *to, char kind, size_t n);
char *resp_put_word(char *to, const char *word, size_t n);

/* What is let in. */
struct resp_bounds {
	size_t bytes;
	long members;
	int depth;
};

/* As above; and for pages of look.lua. */
extern const struct resp_bounds resp_usual, resp_pages;

/*
 * The length of the first reply in buf[0..n).  0: it is not complete yet.
 * -1: it is no RESP2, or beyond the bounds.
 */
ssize_t resp_length(const char *buf, size_t n, const struct resp_bounds *);

/* What has come on a connection and is not yet read as a reply. */
struct inbox {
	redisReader *reader;
	char *bytes; /* NULL: it is closed */
	size_t size, used;
};

/* It is all 0, or closed.  False: no memory. */
bool inbox_open(struct inbox *, const struct resp_bounds *);
void inbox_close(struct inbox *);

/*
 * The next reply (freeReplyObject() it); *reply is NULL while it is not complete, and there is
 * room for the rest.  Otherwise RC_PROTOCOL or RC_SYSTEM, and in *wrong the rest of a sentence
 * about the server.
 */
enum rc inbox_take(
    struct inbox *, const struct resp_bounds *, redisReply **reply, const char **wrong);

/*
 * What an error reply means while we ask for or hold a lock: an rc, and in *hint what the
 * user can do or NULL.  RC_AGAIN for everything that may pass.
 */
enum rc resp_error(const char *text, const char **hint);

enum { RIGHTS_BYTES = 400 };

/*
 * The same hint, for a question (or a look) about a lock; "": none.  A right that is missing is
 * named with the names of this lock alone: users may share a server, each with keys of its own.
 * `key` is the first of KEYS; NULL: the question was about no lock, or about all.
 */
void resp_rights(char *out, size_t size, const char *hint, bool looks, const char *key);

/* Where there are several servers: what is next after an error reply. */
enum resp_next {
	RESP_KEEP,      /* it is the answer */
	RESP_ELSEWHERE, /* another server is to be found */
	/* Of a cluster: */
	RESP_LATER, /* this server will answer, but not yet */
	RESP_MOVED, /* another one has the hash slot from now on */
	RESP_ASK,   /* another one is to be asked this once */
};
enum resp_next resp_next(const char *text, bool cluster);

/*
 * Does it say that?  In capitals it is a code, such as "WRONGTYPE" (what stands under the key is
 * no lock) or "NOSCRIPT"; else the first of some words for which there is no code.
 */
bool resp_says(const char *text, const char *what);

/* Does it say that the server runs no scripts, or none of ours? */
bool resp_is_no_scripts(const char *text);

#endif
