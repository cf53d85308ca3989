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
#include "cmd/held.h"

/* The line that is drawn, or those that are printed. */
struct waiting_line {
	bool live, drawn, spoken;
	instant next; /* when waiting_tick() has something to do */
};

/* The state of the lock, as it was last heard. */
struct waiting_seen {
	const char *key; /* of ours, that is waited for */
	const char
	    *gate; /* or a switch that is to be thawed before we ask for it; NULL */
	unsigned position;
	struct held held;
	instant at;   /* when `held` was heard */
	bool noticed; /* the user was told something of the server */
	/* why the server does not answer, clean; "": it does */
	char trouble[700];
};

struct waiting {
	const struct params *params;
	const struct page *page;
	instant began;
	struct waiting_line line;
	struct waiting_seen seen;
};

/* Begins with a struct that is zeroed. */
void waiting_begin(struct waiting *, const struct params *, const struct page *,
    instant began, bool has_tty);

/* MSG_WAITING, MSG_RETRYING, or MSG_NOTICE, which is said next. */
void waiting_heard(struct waiting *, const struct msg *);

void waiting_tick(struct waiting *, instant now);

/* Erases the live line; the next tick draws it again. */
void waiting_pause(struct waiting *);

/* Erases the live line and stops; with a token, says that it was got after a long wait. */
void waiting_end(struct waiting *, uint64_t token);

/* Writes what follows the name of a busy lock, into out[HELD_BYTES]: held_says().  Returns out. */
const char *waiting_state(const struct waiting *, bool still, char *out);

#endif
