/*
 * data.h - what stands in a node: its owner's record, and how far the owner has come.
 *
 * The latter is one more member of the record, "dlock", so that those behind know a
 * waiter from a holder; a holder of one of N units has its slot there, too, for people.
 * Whatever else stands in a node was written by others, and says nothing.
 *
 * Pure: text in, text out.
 */
#ifndef DLOCK_ZK_DATA_H
#define DLOCK_ZK_DATA_H

#include "backends/backend.h"

enum { DATA_BYTES = RECORD_BYTES + 48 };

enum stage {
	STAGE_UNKNOWN, /* no dlock has written that */
	STAGE_AT_ONCE, /* has the lock, having found it free */
	STAGE_WAITING,
	STAGE_WAITED, /* has it, having waited */
};

enum { SLOT_NONE = -1 };

/*
 * The record with the stage and the slot in it; a record that is no JSON object stays as
 * it is.
 */
void data_write(char out[DATA_BYTES], const char *record, enum stage, int slot);

enum stage data_stage(const char *data);

/*
 * The record alone, as plain as JSON can be, and without `secret` in any of its
 * strings (secret.h); to be freed.  NULL: it is no JSON object.
 */
char *data_record(const char *data, const char *secret);

#endif
