/*
 * command.h - the ward of `dlock run`: from a waiting stub to an executed program, and its end.
 *
 * The stub (stub.h) is forked before anything is locked, so that a fork that fails is known
 * then.  It waits at a gate for "go".  The gate is close-on-exec at the stub's side: end of
 * file there means that the program is running, or never will; the page says which of the two.
 *
 * The program gets the signal mask and dispositions, descriptors, directory
 * and limits that dlock was started with, and some more variables.
 */
#ifndef DLOCK_COMMAND_H
#define DLOCK_COMMAND_H

#include "ward.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* There is one in a process. */
extern struct ward command_ward;

/*
 * Finds the program that `name` means; the path stays ours.  NULL, with errno: there is nothing
 * that can be executed.
 */
const char *command_find(const char *name);

/*
 * Why execve(2) finds no such file where there is one: its interpreter is not there.  False:
 * it has another reason.
 */
bool command_lacks_interpreter(const char *path, char *out, size_t size);

#endif
