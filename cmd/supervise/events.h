/*
 * events.h - --status-fd: every event, one JSON object a line, for scripts.
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
 *	verdict   verdict, status, signal, message: the last line
 */
#ifndef DLOCK_EVENTS_H
#define DLOCK_EVENTS_H

#include "verdict.h"

#include "run.h"

/*
 * Without --status-fd these do nothing.  A full pipe loses events, never time; the
 * verdict waits a little.
 */
void events_message(const struct plan *, const struct msg *);
void events_verdict(const struct plan *, const struct verdict *);

#endif
