/*
 * show.h - a view, shown: as JSON, as lines for people, or in a sentence.
 */
#ifndef DLOCK_SHOW_H
#define DLOCK_SHOW_H

#include "look.h"
#include "screen.h"

/* One object on one line; `brief`: with the number of the waiters, not their list. */
void show_json(FILE *, const struct view *, const struct looking *, bool brief);

/* Some lines: who has it, since when and why, who waits, who has frozen it. */
void show_text(
    FILE *, const struct view *, const struct looking *, const struct screen *);

/*
 * "held by alice (pid 4711 on ci-3) for 2m13s", "held by 3 readers, first alice (...)
 * for ...", "frozen by ...", "waited for by 2 others", "free": for a sentence, clean.
 * Returns out.
 */
const char *show_words(const struct view *, char *out, size_t size);

/* " for 2m13s", or "" if that is not known. */
struct brief show_ago(const struct view *, int64_t since);

/* What switches to the colour of its state. */
const char *show_colour(const struct screen *, const struct view *);

/* A number that changes when the view does; the passing of time does not count. */
uint64_t show_facts(const struct view *);

#endif
