/*
 * answer.h - what lock.lua answers, checked before anybody computes with it.
 *
 * Others may write into a lock's keys, so a number from there may be anything:
 * what is of the wrong type or impossible is refused, what is merely absurd (a
 * lease for a thousand years) is cut to what can be computed with.
 */
#ifndef DLOCK_REDIS_ANSWER_H
#define DLOCK_REDIS_ANSWER_H

#include "backends/backend.h"

#include <hiredis/hiredis.h>

#define ANSWER_MS_MOST (366LL * 86400 * 1000) /* no lease is longer than a year */
#define TOKEN_LIMIT (1ULL << 53)              /* Redis computes with doubles */

enum answer_code {
	/* acquire: the key is a lock with another number of holders */
	ANSWER_OTHER_LIMIT = -1,
	/* acquire: it waits, or others hold; renew, release: it does not hold */
	ANSWER_NOT_HOLDER = 0,
	ANSWER_HOLDER = 1, /* release: it was until now */
	ANSWER_WAITER = 2, /* release: it was in the queue */
};

struct answer {
	enum answer_code code;
	/* of a waiter: */
	unsigned place; /* from 1 */
	/* until a lease ends, 0 to ANSWER_MS_MOST; 0: none does */
	int64_t left_ms;
	int64_t held_ms;           /* -1 (not known) to ANSWER_MS_MOST */
	uint64_t ticket;           /* below TOKEN_LIMIT */
	char holder[RECORD_BYTES]; /* hostile */
	/* of a holder: */
	uint64_t token; /* 1 to TOKEN_LIMIT - 1 */
};

/*
 * Reads a reply of the script: to acquire {1, token}, {0, place, left, held,
 * record, ticket} or {-1, capacity}; to renew and release {code}: the first
 * number is an answer_code.  False: the script gives no such answer.
 */
bool answer_read(struct answer *, const redisReply *, bool acquiring);

#endif
