/*
 * say.h - how dlock speaks: one line on stderr, "dlock: " before it.
 *
 * Only the front speaks.  Without room in the pipe a line is dropped rather
 * than waited for, except for verdicts, after which there is nothing to guard.
 * errno survives.
 */
#ifndef DLOCK_SAY_H
#define DLOCK_SAY_H

/* Text with anything from outside must have passed text_clean(). */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same, but waits for room: for the last line. */
void say_last(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* For the end of a text on stdout: 0, or a complaint and its status if it could not be written. */
int say_written(void);

/* Would writing to this descriptor go through at once? */
int say_has_room(int fd);

#endif
