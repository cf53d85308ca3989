/*
 * data.h - what stands in a node: its owner's record, and how far the owner has come.
 *
 * The latter is one more member of the record, "dlock", so that those behind know a
 * waiter from a holder; a holder of one of N permits has its slot there, too, for people,
 * and whoever had to wait for it since when it has the lock, "granted".
 *
 * Where the name of the node says nothing (single.c), its "owner" stands there, too.
 *
 * Others may write "revoke" into a holder's node: the record of who asks for the lock
 * back, as a string.  Its owner keeps that there.  "__REVOKE__" alone is the same as
 * Curator asks it, who does not say who.  Whatever else stands in a node says nothing.
 *
 * Pure: text in, text out.
 */
#ifndef DLOCK_ZK_DATA_H
#define DLOCK_ZK_DATA_H

#include "backends/backend.h"

/* with the record of who asks, in which each quote needs two bytes */
enum { DATA_BYTES = RECORD_BYTES + 80 + OWNER_CHARS + 16 + 2 * RECORD_BYTES + 16 };

#define CURATORS_REVOKE "__REVOKE__"

enum stage {
	STAGE_UNKNOWN, /* no dlock has written that */
	STAGE_AT_ONCE, /* has the lock, having found it free */
	STAGE_WAITING,
	STAGE_WAITED, /* has it, having waited */
};

enum { SLOT_NONE = -1 };

/* What the owner of a node says besides its record. */
struct progress {
	enum stage stage;
	int slot;        /* or SLOT_NONE */
	int64_t granted; /* ms since 1970; 0: not known, or as old as the node */
	char owner[OWNER_CHARS + 1]; /* where the node's name does not say it; "" */
	uint64_t
	    forced; /* read of a note (data_note_force()): the grant; 0: it is none */
};

/*
 * The record with that in it, and `asker`, whose wish to have the lock back stands there (NULL:
 * nobody's); a record that is no JSON object stays as it is.
 */
void data_write(
    char out[DATA_BYTES], const char *record, const struct progress *, const char *asker);

struct progress data_read(const char *data);

/* Who asks for the lock back, to be freed, "" where they do not say; NULL: nobody does. */
char *data_asker(const char *data);

/* What is to be written in the place of `data`, a dlock's, so that `asker` asks it. */
void data_mark(char out[DATA_BYTES], const char *data, const char *asker);

/*
 * For the lock's directory, in the place of `data`, which is such a note or empty: from which grant the
 * lock was taken by force, and by whom; and the same of as many grants before as there is room for, since
 * their holders may not have asked yet.
 */
void data_note_force(
    char out[DATA_BYTES], const char *data, uint64_t token, const char *record);

/* The record of whoever took it from that grant, to be freed; NULL: that is not noted, and may have happened. */
char *data_forcer(const char *data, uint64_t token);

/* Is it a number, as Python's int() reads it? */
bool data_is_number(const char *data, long *number);

/* The record alone, as plain as JSON can be, to be freed.  NULL: it is no JSON object. */
char *data_record(const char *data);

/* The same, cut to size; what is no record as it stands there. */
void data_quote(char *out, size_t size, const char *data);

#endif
