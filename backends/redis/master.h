/*
 * master.h - one of the masters that vote on a lock: what it is asked, and what it answers.
 *
 * It is asked to carry out an order, which is one run of redlock.lua, through fan.h; one that
 * we have not met is also asked for its settings, and met.
 */
#ifndef DLOCK_REDIS_MASTER_H
#define DLOCK_REDIS_MASTER_H

#include "answer.h"
#include "ask.h"
#include "backends/common/url.h"
#include "fan.h"
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
	char run[RUN_ID_BYTES];
	char owner[VOTER_BYTES];
	char record[RECORD_BYTES]; /* of who holds, or asks for the lock back */
};

/* One of those that vote on a lock. */
struct master {
	struct address address;
	char where[WHERE_BYTES];
	struct fan *fan;
	struct peer *peer; /* of the fan */
	const struct master_names *names;
	bool asked; /* in the last round */
	/* What it carries out, and how that is said. */
	struct order order;
	struct script_call call;
	struct manner manner;
	char unmet[RUN_ID_BYTES]; /* the process that is to be met; "": none */
	enum { STEP_SCRIPT, STEP_SETTINGS, STEP_MEET, STEP_LISTEN } step;
	/* What came of it: */
	enum rc rc;
	struct fault fault;
	bool foreign;      /* the key is no lock any more, which says no, too */
	struct vote vote;  /* with RC_OK, if it is a lock's */
	redisReply *reply; /* the same for ORDER_LOOK and ORDER_SCAN; owned */
};

/* Asks it; its address, name, fan and names are set. */
void master_ask(struct master *, const struct order *);

/* As fan_hear_fn. */
enum heard master_hear(struct master *, int number, redisReply **);

/* Was it asked in the last round, and is that over, with a vote or without? */
static inline bool
master_is_heard(const struct master *m)
{
	return m->asked && !m->peer->busy;
}

static inline bool
master_has_vote(const struct master *m)
{
	return master_is_heard(m) && m->rc == RC_OK;
}

#endif
