/*
 * events.h - --status-fd: every event, one JSON object a line, for scripts; and in words that
 * a lock is not renewed, or lost.
 *
 * Every line has `time` (UTC), `event` and `key`, with several keys also `keys`
 * (where they fit: a line has less than 4096 bytes); further members by event:
 *
 *	waiting   position, holder (the record as JSON text); of those that hold it, as far
 *	          as is known: kind (exclusive, shared, limit), holders (how many), limit;
 *	          frozen (true), if nobody may take it: without holders, `holder` says who
 *	          has frozen it
 *	retrying  reason      the server does not answer
 *	skipped   reason      the job has been done: nothing is run
 *	acquired  token, kind; with --limit: limit, slot
 *	started   pid
 *	stopped   signal      the command was stopped (Ctrl-Z)
 *	resumed
 *	suspect   left_ms, reason    the lease could not be renewed so far
 *	trusted               it was renewed after all
 *	stopping              the command is asked to end
 *	notice    message     what is wrong at the server although the lock works
 *	verdict   verdict, status, signal, message: the last line; waited_s, up to the grant or
 *	          the end; held_s, if it was granted
 */
#ifndef DLOCK_EVENTS_H
#define DLOCK_EVENTS_H

#include "run.h"

/*
 * Without --status-fd these do nothing.  A full pipe loses events, never time; the
 * verdict waits a little.
 */
void events_message(const struct plan *, const struct msg *);
void events_verdict(const struct plan *, const struct verdict *);

/*
 * ---- in words ----
 *
 * The user is told, or the script that has a hold.  When a hold is in the background nobody
 * of dlock has a descriptor of the script's, for that would keep its pipes open.  What the
 * process has as its stderr at that moment is written to, if it is what hold had when it was
 * started, or a terminal.
 */

/* Renewals that are not answered: the user hears of it while something can be done. */
struct doubt {
	instant warn_at; /* when half is over of what is left for it; NEVER */
	bool warned;     /* in this outage */
	char why[800];   /* clean */
};

/* In the front: MSG_SUSPECT has come; doubt->warn_at has; MSG_TRUSTED has. */
void loss_suspect(const struct run *, struct doubt *, const struct msg *);
void loss_warn(const struct run *, struct doubt *);
void loss_trust(const struct run *, struct doubt *);

/*
 * Tells a script once, before it is stopped, whether front or keeper comes first; nothing
 * where no process is stopped.  Never blocks.  `words` are the backend's.
 */
void loss_tell(const struct run *, const struct ending *, const char *words);

#endif
