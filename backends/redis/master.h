/*
 * master.h - one of the masters that vote on a lock, and what it is asked.
 *
 * An order is one run of redlock.lua there.  A master carries out one after the
 * other, as a strand of together.h: one that comes while another is under way
 * waits for its end, and replaces one that waits.
 */
#ifndef DLOCK_REDIS_MASTER_H
#define DLOCK_REDIS_MASTER_H

#include "address.h"
#include "answer.h"
#include "backends/common/encode.h"
#include "route.h"
#include "restart.h"

enum {
	MASTER_NAME_BYTES = ENCODED_BYTES + 24,
	/* an owner of ours has a number behind it; what others call themselves is cut */
	VOTER_BYTES = 80,
	RUN_ID_BYTES = 48,
};

/* What a lock is called on each master, and our clock. */
struct master_names {
	char lock[MASTER_NAME_BYTES], data[MASTER_NAME_BYTES], wake[MASTER_NAME_BYTES];
	char clock[CLOCK_ID_BYTES]; /* restart_name_clock() */
};

/* Those in front of ORDER_LISTEN are operations of redlock.lua. */
enum order_kind {
	ORDER_ACQUIRE,
	ORDER_EXTEND,
	ORDER_RELEASE,
	ORDER_REVOKE,
	ORDER_MEET, /* comes with ORDER_ACQUIRE, if at all */
	ORDER_LOOK,
	ORDER_SCAN,
	ORDER_LISTEN, /* until somebody releases the lock, or `lease` ms */
};

struct order {
	enum order_kind kind;
	unsigned round;          /* numbers all questions that were put to the masters */
	char owner[VOTER_BYTES]; /* of ORDER_SCAN: the cursor */
	int64_t lease;           /* ms */
	uint64_t token;
	const char *record; /* not owned */
	bool flag;          /* EXTEND: heal; RELEASE: wake; REVOKE: force */
	instant until;
};

/* What redlock.lua says. */
enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_HEALED, VERDICT_ABSENT, VERDICTS };

/* The answer; what an operation does not tell is 0 or "".  Texts are hostile. */
struct vote {
	enum verdict verdict;
	uint64_t token;
	int64_t known;      /* for so long the master has been running, ms: restart.h */
	int64_t left, held; /* ms; -1: for ever; not known */
	bool repeated;      /* the question was asked twice */
	char run[RUN_ID_BYTES];
	char owner[VOTER_BYTES];
	char record[RECORD_BYTES]; /* of who holds, or asks for the lock back */
};

struct master {
	struct address address;
	char where[WHERE_BYTES];
	struct route route; /* to no more than this one */
	const struct master_names *names;
	struct order order, next; /* that is, or was, carried out; that comes then */
	bool has_next;
	/* Of the last order that came to an end: */
	unsigned answered; /* its round */
	enum rc rc;
	struct vote vote;  /* with RC_OK, if it is a lock's */
	redisReply *reply; /* the same for ORDER_LOOK and ORDER_SCAN; owned */
	struct fault fault;
};

/* The address is set. */
void master_init(struct master *, struct host *, const struct master_names *);

/* What a strand is to run: carries out `next` and what comes then; arg: the master. */
void master_run(void *arg);

void master_close(struct master *);

#endif
