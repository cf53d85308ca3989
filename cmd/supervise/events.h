/*
 * events.h - --status-fd: every event, one JSON object a line, for scripts; and --log.
 *
 * man/dlock-events.7 says what each has.
 */
#ifndef DLOCK_EVENTS_H
#define DLOCK_EVENTS_H

#include "run.h"

/*
 * Where there is a --status-fd.  A full pipe loses events, never time; the verdict waits a
 * little.
 */
void events_message(const struct params *, const struct msg *);
void events_verdict(const struct params *, const struct verdict *);

/*
 * ---- the log ----
 *
 * Where there is a --log.
 */

/* The lock is granted, and (a hold) delivered: once, in the front, or when it is dead the keeper. */
void events_log_grant(const struct run *);

/* A run has ended, or was refused before it began. */
void events_log_end(const struct params *, const struct verdict *);

/*
 * In a keeper that has given its lock back: logs what a front that is dead has not.  A descriptor
 * of the front's is closed here.
 */
void events_log_orphan(const struct run *, const struct ending *, const char *words);

#endif
