/*
 * held.h - says who holds a lock, in one sentence, wherever dlock says it.
 *
 *	KEY is held by alice@web-1 (pid 4711 on web-1, running make) "release" for 2m13s,
 *		ends at 22:05:00 at the latest
 *	KEY is held by 3 readers, first alice@web-1 (...) for 2m13s
 *	KEY: 2 of 4 slots are taken, first alice@web-1 (...) for 2m13s
 *	KEY is frozen by bob@laptop "weekend" for 1h00m, until dlock thaw
 *	KEY is in use by something that is no lock: a list
 *	KEY is waited for by 2 others
 *	KEY is free
 *
 * A run hears of the holders from its backend while it waits (struct holding); other subcommands
 * look (struct view).  Both become a struct held.  A fact that is not known is left out.
 */
#ifndef DLOCK_HELD_H
#define DLOCK_HELD_H

#include "view.h"

enum held_state { HELD_BY, HELD_FROZEN, HELD_UNKNOWN, HELD_WAITED_FOR, HELD_FREE };

/* All texts are fit to be shown. */
struct held {
	enum held_state state;
	/* HELD_BY: what the holders have taken */
	enum lock_kind kind;
	uint64_t holders; /* 0: not known how many */
	int64_t limit;    /* of a limited lock; 0: not known */
	bool frozen;      /* nobody else may take the key */
	bool room;        /* the one who asks would fit: another one waits before it */
	/* the first holder, or who has frozen it; "": not known.  HELD_UNKNOWN: what it is */
	char who[700];
	int64_t ns;     /* how long already; -1: not known */
	char until[72]; /* when the freeze ends: "until dlock thaw"; "": not known */
	/*
	 * HELD_BY one holder: what that has said of its end, microseconds since the epoch by the
	 * clock that says `now`; EPOCH_NONE: nothing.
	 */
	int64_t kept, ends, now;
	/* HELD_WAITED_FOR */
	uint64_t waiters;
};

enum { HELD_BYTES = 1000 }; /* the longest sentence, beside its key */

/* From what a backend tells a run that waits.  The caller keeps h->held up to date. */
void held_of_holding(struct held *, const struct holding *);

/* From a look. */
void held_of_view(struct held *, const struct view *);

/* From a look: of one holder, or of the freeze, whoever else has the lock. */
void held_of_person(struct held *, const struct view *, const struct person *);
void held_of_freeze(struct held *, const struct view *);

/* Sets `room`: would a run of this kind fit, so that it only waits for those ahead of it? */
void held_ask(struct held *, const struct params_claim *);

/*
 * Writes the words behind the name of the key into out[HELD_BYTES]: " is held by ...", ": 2 of 4
 * slots are taken, ...".  `still`: somebody has waited for it, so it says "still".  Returns out.
 */
const char *held_says(const struct held *, bool still, char *out);

/* Writes the same without a key before it: "held by ...", "2 of 4 slots are taken, ...". */
const char *held_words(const struct held *, char *out);

/* ", kept until 22:05:00 (--min-hold), ends at 22:30:00 at the latest", as far as that is said. */
enum { HELD_AHEAD = 200 };
const char *held_ahead(const struct held *, char *out);

/*
 * Describes a holder's lease: "renewed 4s ago", "not renewed for 21s, free in 9s at the
 * latest"; where it is not known how long it is, "lease ends in 9s"; "": it has none.
 */
struct brief held_lease(const struct view *, const struct person *);

/*
 * The share of several holders: "3 readers", "2 of 4 slots taken"; "": one holder has it alone.
 */
struct brief held_share(const struct held *);

/*
 * Computes when a freeze ends, from its length and its age: *end is in microseconds since the
 * epoch, or EPOCH_NONE for a freeze without an end.  False: not known.
 */
bool held_freeze_end(const struct holding *, int64_t *end);

#endif
