/*
 * say.h - how dlock speaks: one line on stderr, "dlock: " before it.
 *
 * Only the front speaks, and while there is a command to look after it never
 * waits for a listener: a terminal may have been halted (Ctrl-S), a
 * pipe's reader may sleep.  O_NONBLOCK is no way: it would hold for the command
 * as well, which has the same open file.  So a line is written when poll(2) says
 * that there is room, and a timer interrupts the write if that was not so.
 * errno survives.
 */
#ifndef DLOCK_SAY_H
#define DLOCK_SAY_H

#include "backends/common/instant.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Text with anything from outside must have passed text_clean().  Without room the line
 * is dropped.
 */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * The same for the last line, after which there is nothing to guard: waits some seconds
 * for room.
 */
void say_last(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * For the end of a text on stdout: 0, or a line on stderr and its status if it could not
 * be written.
 */
int say_written(void);

/*
 * For a shell that evaluates what stands on stdout: makes eval end with this status, where
 * it would take a failure for success, having nothing to evaluate.
 */
void say_to_eval(int status);

/* Is there a person at a terminal who can be asked? */
bool say_can_ask(void);

/* Asks that person: everything but a yes is a no. */
bool say_asks(const char *question);

#define SAY_AT_ONCE 0
#define SAY_PATIENTLY (5 * NS_PER_S)

/*
 * Writes to any descriptor; waits for room at most so many nanoseconds.  Returns
 * how much was written.  Uses SIGCHLD, which may be lost: look for dead children
 * after it.
 */
size_t say_bytes(int fd, const char *text, size_t n, int64_t patience);

#endif
