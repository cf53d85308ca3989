/*
 * message.h - what ZooKeeper's clients and servers send each other, looked at byte by byte.
 *
 * The library reads an answer without looking whether all of it is there, and then frees what it
 * has not read.  So each is looked at before (library.h).
 *
 * Pure: bytes in, what they are out.  A message is without the four bytes of its length.
 */
#ifndef DLOCK_ZK_MESSAGE_H
#define DLOCK_ZK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MESSAGE_MOST = 8 << 20, /* bytes of an answer */
	/* of one that nobody has asked for */
	MESSAGE_NEWS_MOST = 64 << 10,
	MESSAGE_STEPS = 8, /* of a transaction */
};

/* A request: what its answer must be like. */
struct request {
	int32_t xid, op;
	size_t nsteps; /* of a transaction: */
	int32_t steps[MESSAGE_STEPS];
};

/* False: it is none, or a transaction of more steps. */
bool message_request(struct request *, const unsigned char *bytes, size_t n);

/* Some requests are answered apart from the others: false.  One for a login is such. */
bool message_is_in_line(const struct request *);
bool message_is_login(const struct request *);

/* Is it the answer to a request for a session, for which nothing but its length can be wrong? */
bool message_is_welcome(size_t n);

/* What a server has sent after that: */
enum answered {
	ANSWER_WRONG, /* nothing that the library could read */
	ANSWER_NEWS,  /* the answer to no request in line */
	ANSWER_LOGIN, /* the same, to a login */
	ANSWER_DUE,   /* the one to this request */
};

/* `due` is the request whose answer is next; NULL: there is none. */
enum answered message_answers(
    const unsigned char *bytes, size_t n, const struct request *due);

#endif
