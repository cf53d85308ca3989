/*
 * show.h - a view, shown: as JSON, or as some lines for people.
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

/* "2026-11-22 08:37:14 UTC", in the user's own zone; "?": not known.  Returns out. */
const char *show_time(int64_t us, char *out, size_t size);

/* "until 2026-11-24 08:37:14 UTC", or of a freeze without an end "until dlock thaw". */
const char *show_until(int64_t us, char *out, size_t size);

/* A number that is another when what is shown, but for the passing of time, is. */
uint64_t show_facts(const struct view *);

#endif
