/* kind.h - the kinds of lock, as the schemas of databases name them. */
#ifndef DLOCK_KIND_H
#define DLOCK_KIND_H

#include "backends/backend.h"
#include "row.h"

/* The word for a kind; both exclusive ones have the same. */
const char *kind_word(enum lock_kind);

/* False: no kind has this word, or it is NULL. */
bool kind_of_word(const char *word, enum lock_kind *);

/*
 * The slot of a holder, of a limit of `room`; one that has no limit (0) has none: NULL, -1
 * or 0, and *slot is -1.  False: it makes no sense.
 */
bool kind_slot(const struct row *, int field, int64_t room, int64_t *slot);

/* What stands for a kind where there is a freeze. */
#define KIND_WORD_FREEZE "freeze"

#endif
