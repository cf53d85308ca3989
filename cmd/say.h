/*
 * say.h - says something to the user: one line on stderr, which begins with "dlock: ".
 *
 * Only the front speaks.  While it has a command to look after it never waits for a reader: a
 * terminal may have been halted (Ctrl-S), the reader of a pipe may sleep.  O_NONBLOCK is no way,
 * since the command has the same open file and would get it, too.  So a line is written when
 * poll(2) says that there is room, and a timer interrupts the write(2) if there was none after
 * all.  errno is kept.
 */
#ifndef DLOCK_SAY_H
#define DLOCK_SAY_H

#include "backends/common/instant.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Says a line, or drops it if there is no room.  Texts from outside must have passed
 * text_clean().
 */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Says the last line.  Nothing is left to guard, so it waits some seconds for room.
 */
void say_last(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Ends a text on stdout.  Returns 0, or says that it could not be written and returns the status
 * for that.
 */
int say_written(void);

/*
 * Makes the eval of a shell that evaluates our stdout end with this status.  With nothing to
 * evaluate it would end with 0, also if we fail.
 */
void say_to_eval(int status);

/* Is there a person at a terminal who can be asked? */
bool say_can_ask(void);

/* Asks that person.  Everything but a yes is a no. */
bool say_asks(const char *question);

#define SAY_AT_ONCE 0
#define SAY_PATIENTLY (5 * NS_PER_S)

/*
 * Writes to any descriptor, and waits for room at most `patience` nanoseconds.  Returns how much
 * was written.  It uses SIGCHLD, so one may be lost: look for dead children after it.
 */
size_t say_bytes(int fd, const char *text, size_t n, int64_t patience);

#endif
