/*
 * steer.h - what the subcommands that change other people's locks have in common.
 *
 * They act only on what they have shown: on a terminal they ask first, elsewhere
 * somebody must have said that they need not (-y, or a --token that names the grant).
 */
#ifndef DLOCK_STEER_H
#define DLOCK_STEER_H

#include "look.h"

/* Is there a person at a terminal who can be asked? */
bool steer_can_ask(void);

/* Asks; true: yes.  Everything but a yes is a no. */
bool steer_ask(const char *question);

/* What the server did while we looked or steered goes wrong: says so, gives the status. */
int steer_refuse(struct looking *, const char *key, enum rc, const struct fault *);

/* " for 2m13s", or "" if that is not known.  Returns out. */
const char *steer_ago(const struct view *, int64_t since, char *out, size_t size);

#endif
