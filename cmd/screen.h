/*
 * screen.h - what standard output is like, and how it is drawn on again and again.
 *
 * Colours are for terminals alone, and not where NO_COLOR is set or TERM is dumb.  A
 * picture is drawn over the one before with one write, line by line, so that nothing
 * flickers; the cursor rests below it, so that nothing needs to be tidied up when a
 * signal ends us.
 */
#ifndef DLOCK_SCREEN_H
#define DLOCK_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum colour { PLAIN, BOLD, DIM, GREEN, YELLOW, CYAN, RED };

struct screen {
	bool colours;
	bool moves;           /* the cursor can be moved: pictures can be drawn */
	size_t columns, rows; /* 0: no terminal */
	/* the picture that is drawn, and the one that is made */
	size_t drawn;
	char *text;
	size_t size;
	FILE *picture;
};

void screen_open(struct screen *);

/* The bytes that switch to a colour, or back (PLAIN); "" without colours. */
const char *screen_colour(const struct screen *, enum colour);

/*
 * Cuts a line off so that it takes no more than so many columns; what switches colours
 * takes none.  A cut line ends plain.
 */
void screen_cut(char *line, size_t columns);

/*
 * A new picture: a stream for its lines, which are cut where the terminal ends.  NULL:
 * no memory.
 */
FILE *screen_begin(struct screen *);
/* Forgets it. */
void screen_drop(struct screen *);
/* Draws it in place of the one before.  False: it cannot be written. */
bool screen_draw(struct screen *);

#endif
