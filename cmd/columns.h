/*
 * columns.h - the table of `dlock ls`, and of `dlock ls --jobs`.
 *
 * Widths are chosen before the first row is known, so that each row is printed at once.  On a
 * terminal, values are cut to fit.  Elsewhere they are whole, and a long value moves those behind
 * it.
 */
#ifndef DLOCK_COLUMNS_H
#define DLOCK_COLUMNS_H

#include "screen.h"
#include "view.h"

enum { COLUMNS_MOST = 24, ROW_BYTES = 65536 };

struct columns {
	const struct column *list[COLUMNS_MOST];
	size_t width[COLUMNS_MOST];
	size_t n;
	bool jobs;                   /* they are columns of jobs */
	const struct screen *screen; /* of a terminal: each value is cut to its width */
};

/*
 * Chooses columns by their names ("key,host,PID"; NULL: the usual ones, as many as fit) for a
 * screen, which must outlive them.  RC_USAGE: the fault says which names there are.
 */
enum rc columns_choose(struct columns *, bool jobs, const char *names,
    const struct screen *, struct fault *);

/* Chooses the widths anew, after the screen has changed its size. */
void columns_fit(struct columns *, const char *names);

/*
 * Writes the line of one lock or job (NULL: of headings), without its newline, into
 * out[ROW_BYTES].
 */
void columns_row(const struct columns *, const struct view *, char *out);

#endif
