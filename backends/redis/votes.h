/*
 * votes.h - what the votes of a round say, beside how many there are (quorum.h).
 *
 * Only of those masters that have answered the last round; nothing is asked.
 */
#ifndef DLOCK_REDIS_VOTES_H
#define DLOCK_REDIS_VOTES_H

#include "quorum.h"

/* Has it answered the last round with a vote? */
bool votes_has(const struct quorum *, const struct master *);

/*
 * The vote of a master that refused us for who has a quorum, with that one's record if
 * any of these told it; NULL: nobody has a quorum.
 */
const struct vote *votes_find_holder(const struct quorum *);

/* The record of who wants it back, or has taken it; "" if no master told of one. */
void votes_find_mark(const struct quorum *, char *mark, size_t size);

/* The masters where the key is no lock any more, which says no, too. */
size_t votes_count_foreign(const struct quorum *);

/* Was any of them asked twice? */
bool votes_are_repeated(const struct quorum *);

/* For quorum_hear(): a quorum has said yes, or too few can answer, or nobody else will. */
bool votes_are_in(const struct quorum *, const struct tally *);

#endif
