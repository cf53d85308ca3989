/*
 * record.h - the holder's record that stands beside a lock on the server.
 *
 * JSON {who, host, pid, born, command, why, since, ttl}:
 *
 *	command        the base name only, since arguments may hold secrets
 *	arguments      of the command, with --show-arguments: as a shell has them, cut off
 *	since          the second, from the epoch, in which the run began to ask
 *	born           of a process of dlock's own: the clock tick in which it was started
 *	script_born    the same of the process for which `dlock hold` keeps the lock
 *	door           the name of the keeper's socket (supervise/join_outer.h), as long as it holds.
 *	               It is unique, even among machines with the same host, pid and born
 *	ttl            the lease that it asks for, and renews, in milliseconds
 *	keep_ms        with --min-hold: so long it keeps the lock, from the grant on
 *	end_ms         with --max-run, or --for of a hold: no longer than that
 *	newest         of a run with --newest: when it came, in microseconds since the epoch by
 *	               the server's clock, wherever it has waited since (supervise/before.h)
 *	for_ms         of a freeze: how long it lasts (-1: until it is thawed).  The record has it
 *	               so that a waiter learns it from any server
 *
 * Anybody who may write the lock may write anything here, so a record is hostile: jansson parses
 * it, and its texts are cut and cleaned before they are shown.
 */
#ifndef DLOCK_RECORD_H
#define DLOCK_RECORD_H

#include "params.h"

/* "exclusive", "shared", "limit" */
const char *record_kind_name(enum lock_kind);

/* A person or run, as its record says.  Texts are hostile.  NULL, or pid 0: not said. */
struct record {
	const char *who, *host, *command, *arguments, *why, *door;
	int64_t pid, born, script_born;
	int64_t ttl, keep, end; /* in nanoseconds; 0: not said */
	int64_t for_ms;         /* a freeze's; -1: until it is thawed; 0: not said */
	int64_t
	    newest; /* --newest: 0: came at a time that is not known; -1: without it */
};

/*
 * Reads a record (NULL: none) into *ret.  The texts in it are UTF-8 and live until the caller
 * gives the result to json_decref().  It never fails: a text that is no record says nothing.
 */
struct json_t *record_read(struct record *ret, const char *record);

/*
 * Describes somebody in a few words for a sentence: `alice (pid 4711 on ci-3,
 * running deploy.sh) "release 4.2"`, or "somebody".
 */
void record_words(const struct record *, char *out, size_t size);

/* The texts about us in our own record. */
struct record_own {
	char who[2 * 256 + 1], host[256], why[204];
	struct record said; /* its texts are these */
};

/* With pid 0 for a person, as record_write() has it. */
void record_find_own(struct record_own *, const struct params *, pid_t);

/* The command, which is known, with what is known of its arguments; clean.  Returns out. */
const char *record_command(const struct record *, char *out, size_t size);

/*
 * Asks the password database who we are, where nothing else tells it.  The database may ask a
 * server that hangs, so this is called before signals are blocked, and before we fork.
 */
void record_find_user(const struct params *);

/*
 * Writes the record of this run into out[RECORD_BYTES].  With pid 0 and no door (NULL) it is the
 * record of a person who breaks or freezes a lock, and names no process and no command.
 */
void record_write(char *out, const struct params *, pid_t, const char *door);

/* The same of a run with --newest. */
void record_write_newest(
    char *out, const struct params *, pid_t, const char *door, int64_t newest);

/* Which of our ancestors has written a record. */
enum record_kin {
	KIN_NONE,
	KIN_RUN,   /* a dlock: it ends only after us */
	KIN_SCRIPT /* `dlock hold` keeps the lock for it, until it ends, or releases it */
};

/*
 * Tells whether an ancestor of ours has written this record.  Host, pid, start and door must all
 * agree, and be known; else it is KIN_NONE.  A run closes its door when it gives the lock back,
 * or keeps it only for --min-hold.  Our own record, whose door is `own`, gives KIN_NONE: a server
 * may not have told us yet that we have the lock.
 */
enum record_kin record_kin(const char *record, const char *own);

/* Is the run that has written the record one of those in DLOCK_KEEPER? */
bool record_is_among(const char *record, const char *keepers);

/*
 * Takes the secret (NULL, "": none) out of a record, or out of a text in its place.  A user who
 * may see a lock need not be one who may know the password by which we have logged in.
 */
void record_blot(char *record, const char *secret);

/* Does record_read() and record_words() in one call. */
void record_describe(const char *record, char *out, size_t size);

#endif
