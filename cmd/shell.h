/* shell.h - what a POSIX shell is given to evaluate. */
#ifndef DLOCK_SHELL_H
#define DLOCK_SHELL_H

#include <stdbool.h>
#include <stdio.h>

/* Does --shell stand among words that cannot be read? */
bool shell_is_meant(char **words);

/* `export NAME='VALUE';`, also right if eval joins the lines. */
void shell_export(FILE *, const char *name, const char *value);

/*
 * Makes eval end with this status, where it would take a failure for success, having
 * nothing to evaluate; nothing for 0.
 */
void shell_status(FILE *, int status);

#endif
