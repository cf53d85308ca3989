/* kind.h - the kinds of lock, as the schemas of databases name them. */
#ifndef DLOCK_KIND_H
#define DLOCK_KIND_H

#include "backends/backend.h"

/* The word for a kind; both exclusive ones have the same. */
const char *kind_word(enum lock_kind);

/* False: no kind has this word, or it is NULL. */
bool kind_of_word(const char *word, enum lock_kind *);

/* What stands for a kind where there is a freeze. */
#define KIND_WORD_FREEZE "freeze"

#endif
