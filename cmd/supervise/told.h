/*
 * told.h - what a grant tells, as variables: to the command, or to the script that has a hold.
 *
 * It is one text: NAME=VALUE for each, with its NUL.  The keeper writes it when it has the
 * lock.  A command gets it through the gate (stub.h), the front of a hold through the link.
 */
#ifndef DLOCK_TOLD_H
#define DLOCK_TOLD_H

#include "cmd/environment.h"
#include "join_outer.h"
#include "run.h"

/* The most bytes that it can have. */
size_t told_room(const struct run *);

/*
 * Writes what a grant tells, which has one part for each key; `address` is that of the keeper's
 * socket.  The text is told.c's, until the next call.  False: there is no memory for it.
 */
bool told_write(
    struct told *, const struct run *, const struct join_part *, const char *address);

/* The value of a variable; NULL: this one is not told. */
const char *told_value(const struct told *, enum variable);

#endif
