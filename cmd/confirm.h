/*
 * confirm.h - asks a person y/N before a lock is taken away or thawed.
 *
 * Such a subcommand acts only on what it has shown: on a terminal it asks first, elsewhere
 * somebody must have said that it need not (-y, or a --token that names the grant).
 */
#ifndef DLOCK_CONFIRM_H
#define DLOCK_CONFIRM_H

#include <stdbool.h>

/* Is there a person at a terminal who can be asked? */
bool confirm_can_ask(void);

/* Everything but a yes is a no. */
bool confirm_yes(const char *question);

#endif
