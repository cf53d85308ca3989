/*
 * inifile.h - the text of a configuration file, cut into sections and NAME = VALUE.
 *
 * libinih cuts.  What it would do behind the writer's back is refused before it sees the
 * line, or cannot happen, however it was built: it gets one whole line at a time, without
 * the blanks around it.  So no line continues another one, none is cut in two, and none
 * loses what follows a blank and a semicolon, a section's bracket or a NUL.  Names of
 * sections are taken from the text, since libinih cuts off what is longer than 49 bytes
 * and says nothing of a section that is empty.
 */
#ifndef DLOCK_INIFILE_H
#define DLOCK_INIFILE_H

#include "backends/backend.h"

struct inifile_line {
	int number;          /* from 1 on */
	const char *section; /* what stands between the brackets; "": none so far */
	const char *name;    /* NULL: the section begins here */
	const char *value;
};

/*
 * Hands each line that says something to `take`, until one gives another rc than RC_OK.
 * The text, n bytes and room for one more, is written over: values and sections are
 * pieces of it.  Names live until `take` returns.  Returns that rc, or RC_CONFIG for what
 * cannot be read; then *number is the line's, and the fault says what is wrong with it.
 */
enum rc inifile_read(char *text, size_t n,
    enum rc (*take)(void *ctx, const struct inifile_line *, struct fault *), void *ctx,
    int *number, struct fault *);

#endif
