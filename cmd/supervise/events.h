/*
 * events.h - --status-fd: every event, one JSON object a line, for scripts; and in words that
 * a lock is not renewed, or lost.
 *
 * man/dlock-events.7 says what each has.
 */
#ifndef DLOCK_EVENTS_H
#define DLOCK_EVENTS_H

#include "run.h"

/*
 * Without --status-fd these do nothing.  A full pipe loses events, never time; the
 * verdict waits a little.
 */
void events_message(const struct params *, const struct msg *);
void events_verdict(const struct params *, const struct verdict *);

/*
 * ---- the log ----
 *
 * Without --log these do nothing.
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

/*
 * ---- in words ----
 *
 * The user is told, or the script that has a hold: on what is its stderr at that moment, if
 * hold had the same when it was started, or it is a terminal.  (A descriptor that a hold
 * kept would keep the script's pipes open.)
 */

/* Renewals that are not answered: the user hears of it while something can be done. */
struct doubt {
	instant warn_at; /* when half is over of what is left for it; NEVER */
	bool warned;     /* in this outage */
	struct clean why;
};

/* In the front: MSG_SUSPECT has come; doubt->warn_at has; MSG_TRUSTED has. */
void loss_suspect(const struct run *, struct doubt *, const struct msg *);
void loss_warn(const struct run *, struct doubt *);
void loss_trust(const struct run *, struct doubt *);

/*
 * Tells a script before it is stopped, and once: front or keeper.  Never blocks.  `words` are
 * the backend's.
 */
void loss_tell(const struct run *, const struct ending *, const char *words);

#endif
