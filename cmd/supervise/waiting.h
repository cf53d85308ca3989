/*
 * waiting.h - what a person sees while dlock waits.
 *
 * On a terminal (in the foreground, without CI in the environment): one live line, redrawn each second and erased on
 * acquisition.  The cursor stays at its beginning, so that it can be erased also when the
 * terminal has become narrower and has broken it.  Elsewhere: one line after 3 s, then one
 * a minute, which keeps CI systems from killing a silent job and cron from mailing about a
 * lock that came at once.  With -q: nothing.
 */
#ifndef DLOCK_WAITING_H
#define DLOCK_WAITING_H

#include "run.h"
#include "cmd/plan.h"

enum { STATE_BYTES = 900 };

/* The line that is drawn, or those that are printed. */
struct waiting_line {
	bool live, drawn, spoken;
	instant next; /* when waiting_tick() has something to do */
};

/* What has been heard of the lock. */
struct waiting_seen {
	const char *key; /* that is waited for */
	unsigned position;
	instant held_since; /* NEVER: not known */
	struct holding holding;
	bool noticed;     /* the user was told something of the server */
	bool named;       /* `holder` is known: */
	char holder[600]; /* described, clean */
	/* ", until 2026-11-24 08:37:14 UTC": its freeze's end; "": none, or not known */
	char until[72];
	/* why the server does not answer, clean; "": it does */
	char trouble[700];
};

struct waiting {
	const struct plan *plan;
	const struct shared *shared;
	instant began;
	struct waiting_line line;
	struct waiting_seen seen;
};

/* It is zeroed. */
void waiting_begin(struct waiting *, const struct plan *, const struct shared *,
    instant began, bool has_tty);

/* MSG_WAITING, MSG_RETRYING, or MSG_NOTICE, which is said next. */
void waiting_heard(struct waiting *, const struct msg *);

void waiting_tick(struct waiting *, instant now);

/* Erases the live line; the next tick draws it again. */
void waiting_pause(struct waiting *);

/* Erases the live line and stops; with a token, says that it was got after a long wait. */
void waiting_end(struct waiting *, uint64_t token);

/*
 * " is still held by alice (pid 4711 on ci-3, running deploy.sh) for 2m13s", " is frozen by
 * ...", or with --limit ": all 4 slots are still taken, first alice (...) for 2m13s": what
 * follows the name of a busy lock.  `still`: it has been waited for.  Returns out.
 */
const char *waiting_state(const struct waiting *, bool still, char *out, size_t size);

/*
 * When a freeze ends, in microseconds since the epoch, or EPOCH_NONE without an end: from how
 * long it was to last and how old it is.  False: that is not known.
 */
bool waiting_freeze_end(const struct holding *, int64_t *end);

#endif
