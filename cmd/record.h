/*
 * record.h - the holder's record that stands beside a lock on the server.
 *
 * JSON {who, host, pid, born, command, why, since}:
 *
 *	command        the base name only, since arguments may hold secrets
 *	since          the second, from the epoch, in which the run began to ask
 *	born           of a process of dlock's own: the clock tick in which it was started
 *	script_born    the same of the process for which `dlock hold` keeps the lock
 *	door           the name of the keeper's socket (supervise/join_outer.h), as long as it holds: no
 *	               other run has it, not even one of another machine with the same host,
 *	               pid and born
 *	for_ms         of a freeze: how long it lasts (-1: until it is thawed), so that every
 *	               server can tell a waiter of its end
 *
 * Anybody who may write the lock may write anything here, so a record is hostile: it is
 * parsed by jansson, cut, and cleaned before it is shown.
 */
#ifndef DLOCK_RECORD_H
#define DLOCK_RECORD_H

#include "params.h"

/* "exclusive", "shared", "limit" */
const char *record_kind_name(enum lock_kind);

/* A person or run, as its record has it.  Texts are hostile; NULL, or pid 0: not said. */
struct record {
	const char *who, *host, *command, *why, *door;
	int64_t pid, born, script_born;
	int64_t for_ms; /* a freeze's; -1: until it is thawed; 0: not said */
};

/*
 * Reads a record (NULL: none) into *ret, whose texts are UTF-8 and live until the
 * result is given to json_decref().  Never fails: a text that is no record says nothing.
 */
struct json_t *record_read(struct record *ret, const char *record);

/*
 * Describes somebody in a few words for a sentence: `alice (pid 4711 on ci-3,
 * running deploy.sh) "release 4.2"`, or "somebody".
 */
void record_words(const struct record *, char *out, size_t size);

/* What our own record says of us. */
struct record_own {
	char who[2 * 256 + 1], host[256], why[204];
	struct record said; /* its texts are these */
};

/* With pid 0 for a person, as record_write() has it. */
void record_find_own(struct record_own *, const struct params *, pid_t);

/*
 * Asks the password database who we are, where nothing else tells it.  It may ask a server that
 * hangs: so before signals are blocked, and before we fork.
 */
void record_find_user(const struct params *);

/*
 * The record of this run, into out[RECORD_BYTES].  Without a pid (0) and a door (NULL) that of a
 * person who breaks or freezes a lock: it names no process and no command.
 */
void record_write(char *out, const struct params *, pid_t, const char *door);

/* Which of the processes that we descend from has written a record. */
enum record_kin {
	KIN_NONE,
	KIN_RUN,   /* a dlock: it ends only after us */
	KIN_SCRIPT /* `dlock hold` keeps the lock for it, until it ends, or releases it */
};

/*
 * Certain by host, pid, the moment it was started, and the door, which is closed when it gives
 * the lock back or keeps it for --min-hold alone; where one is not known: KIN_NONE.  So says our
 * own record, whose door is `own`: a server may not have told us of our grant.
 */
enum record_kin record_kin(const char *record, const char *own);

/* Is the run that has written it among those of DLOCK_KEEPER? */
bool record_is_among(const char *record, const char *keepers);

/*
 * Blots the secret (NULL, "": none) out of a record, or of what stands in its place: whoever sees a
 * lock may not know by which password we have logged in.
 */
void record_blot(char *record, const char *secret);

/* record_read() and record_words() at once. */
void record_describe(const char *record, char *out, size_t size);

#endif
