/*
 * screen.h - finds out what standard output can show, and draws on it again and again.
 *
 * Only terminals get colours, and not where NO_COLOR is set or TERM is dumb.  A picture is drawn
 * over the last one with one write, line by line, so that nothing flickers.  The cursor rests
 * below it, so that nothing needs to be tidied up when a signal ends us.
 */
#ifndef DLOCK_SCREEN_H
#define DLOCK_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum colour { PLAIN, BOLD, DIM, GREEN, YELLOW, CYAN, RED };

struct screen {
	bool colours;
	bool moves;           /* we can move the cursor, and so draw pictures */
	size_t columns, rows; /* 0: no terminal */
	/* lines of the picture on the terminal, and the text of the next one */
	size_t drawn;
	char *text;
	size_t size;
	FILE *picture;
};

void screen_open(struct screen *);

/* The bytes that switch to a colour, or back (PLAIN); "" without colours. */
const char *screen_colour(const struct screen *, enum colour);

/*
 * Cuts a line so that it takes no more than so many columns.  Sequences that switch colours take
 * none.  A line that was cut ends without a colour.
 */
void screen_cut(char *line, size_t columns);

/*
 * Begins a picture and returns a stream for its lines, which are cut where the terminal ends.
 * NULL: no memory.
 */
FILE *screen_begin(struct screen *);
/* Forgets the picture. */
void screen_drop(struct screen *);
/* Draws the picture over the last one.  False: it cannot be written. */
bool screen_draw(struct screen *);

#endif
