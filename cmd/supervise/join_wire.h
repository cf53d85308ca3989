/*
 * join_wire.h - what passes between a keeper and who comes to its socket.
 *
 * One datagram each way; both ends are the same program on the same machine, so
 * that a struct is sent as it is.  JOIN_VERSION changes with any of them.
 */
#ifndef DLOCK_JOIN_WIRE_H
#define DLOCK_JOIN_WIRE_H

#include "backends/common/setting.h"
#include "join_site.h"

#define JOIN_VERSION 7
/* a keeper on this machine that needs longer is frozen, or full */
#define JOIN_PATIENCE (10 * NS_PER_S)
#define JOIN_RETRY (10 * NS_PER_MS) /* pause before a full one is asked again */

/*
 * Bytes of what a keeper sends unasked: that it is to be asked; and to who asks for a
 * release again: that it is alive.
 */
enum { JOIN_CALL = 1, JOIN_ALIVE = 1 };

enum join_verb { JOIN_HOLD = 1, JOIN_CHECK, JOIN_RELEASE };

struct join_ask {
	int version;
	enum join_verb verb;
	/* the lock is wanted for so long from now, whatever becomes of the asker */
	int64_t keep;
	char backend[16];
	/* which locks the keys are (setting.h); "": only the site is asked for */
	char identity[IDENTITY_BYTES];
	/* one after the other, each with its NUL; sent up to the last one */
	char keys[KEYS_MAX * (KEY_BYTES + 1)];
};

/* What was granted for one key. */
struct join_part {
	uint64_t token;
	unsigned slot;
};

/* What a keeper has, for those who may join. */
struct join_hold {
	enum lock_kind kind;
	unsigned limit;
	instant sent;
	int64_t lease, pace;
	struct join_part parts[KEYS_MAX]; /* in the order in which they were asked for */
};

/* To JOIN_HOLD and JOIN_CHECK. */
struct join_answer {
	int version;
	bool foreign; /* a lock is the same, but the asker none of our descendants */
	bool secret;  /* the site has a password, which is blotted out */
	bool stops;   /* it is ours still, but wanted back: to be stopped politely */
	bool full;    /* it is ours, but JOINS_HOLDING have joined already */
	/*
	 * bits: which of the keys asked for we hold, in the order in which they were
	 * asked for; 0: none
	 */
	unsigned has;
	struct join_hold hold;
	char site[JOIN_SITE_BYTES]; /* told to those of the same backend */
};

/* To JOIN_RELEASE, when it has ended. */
struct join_outcome {
	int version;
	int status;
	char line[1800]; /* to be said; "": nothing */
};

#endif
