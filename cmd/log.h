/*
 * log.h - --log: one line for each grant, end and deed, for those who ask later who did what.
 *
 * A line is a sentence for people, and behind it the same as a JSON object.  It goes to syslog, to
 * a file or to a descriptor, in one write of at most LOG_BYTES, and is never waited for.  A line
 * that cannot be written at once is dropped and counted; the next line that is written tells how many
 * were.  A file is opened anew for each line, so that logrotate works.
 *
 * The front of a run writes.  If it is dead, the keeper does: supervise/events.h.
 */
#ifndef DLOCK_LOG_H
#define DLOCK_LOG_H

#include "params.h"

#include <sys/types.h>

/* A pipe takes so many bytes as a whole or not at all (PIPE_BUF). */
enum { LOG_BYTES = 4096 };

enum log_weight { LOG_USUAL, LOG_NOTABLE, LOG_TROUBLE };

/* Facts of one line.  Texts are clean; NULL, 0: not known, but where it says otherwise. */
struct log_line {
	const char *event;
	const char *key; /* NULL: all that the parameters has */
	enum log_weight weight;
	/* the sentence; between the two stands who does it */
	const char *before, *after;
	pid_t pid; /* of the process that others are shown */
	const char *server;
	uint64_t token;
	bool has_status;
	int status, signal;
	int64_t waited, held; /* nanoseconds; negative: not known */
	const char *message;
	/* of a deed: whose lock it was; whose run it was; until when (microseconds) */
	const char *holder, *id;
	bool has_until, force;
	int64_t until; /* EPOCH_NONE: without an end */
};

/* Does nothing without --log. */
void log_write(const struct params *, const struct log_line *);

/* The last word of a process: says on stderr if lines are missing. */
void log_end(const struct params *);

#endif
