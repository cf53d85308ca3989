/*
 * view.h - collects what a look finds of one key.
 *
 * Entries (backend.h) are added as they come.  Their texts are copied, cut to a sane length, and
 * passwords in them are masked.  The texts stay hostile: they are cleaned when they are shown
 * (text.h, json.h).  A view takes memory for each person in it, up to PEOPLE_MOST holders and as
 * many waiters, and uses it again for the next key.
 */
#ifndef DLOCK_VIEW_H
#define DLOCK_VIEW_H

#include "record.h"
#include "text.h"

enum { PEOPLE_MOST = LIMIT_MAX };

/* A person, or a run: who holds a lock, waits for it, has frozen it, or ran under it. */
struct person {
	struct record said;
	const char *foreign; /* what it is, if it is no dlock; else NULL */
	/* holder, waiter */
	enum lock_kind kind;
	int64_t limit;     /* of a limited lock; 0: none, or not known */
	const char *owner; /* as revoke wants it; NULL: not known */
	/* holder; run */
	int64_t token;       /* 0: not known */
	int64_t slot;        /* holder of a limited lock; -1: none */
	bool revoked;        /* holder: it has been asked to give the lock up, */
	struct record asker; /* by this one, if that is known */
	int64_t position;    /* waiter: 1 is next */
	/* run */
	const char *once; /* NULL: it had no ID */
	int64_t status;
	bool jobless; /* of --remember: it counts for nothing */
	/* as in struct entry: microseconds by the server's clock, EPOCH_NONE: not known */
	int64_t since, until;
};

struct people {
	struct person *list; /* the first n of them, in order */
	size_t n, room;
	uint64_t all; /* how many there are */
};

enum lock_state { STATE_FREE, STATE_HELD, STATE_FROZEN };

struct view {
	const char *key;
	int64_t now; /* the server's clock; EPOCH_NONE: it was not told */
	struct people holders;
	struct people waiters; /* a brief look fills in only `all` */
	struct person frozen, last;
	struct person good; /* a run that ended with 0: view_good() */
	bool is_frozen, has_last, has_good;
	/* in a look at jobs: `good` is the run of its ID, or `last`, which ended otherwise */
	bool of_id;
	const char
	    *beside; /* another program's lock may be meant: what to say; else NULL */
	const char *unknown;     /* what uses the key and is no lock; else NULL */
	bool short_of_memory;    /* something is missing */
	struct view_text *texts; /* copies of all texts above */
	/* of a run's switches (--unless-frozen), beside this key; not of a look at it */
	const struct view *switches;
	size_t nswitches;
};

/* Forgets everything and begins `key`.  A new view is all zero. */
void view_begin(struct view *, const char *key);
void view_free(struct view *);

/* Takes in one entry of the key; `now` is the server's clock, as in look.see. */
void view_add(struct view *, const struct entry *, int64_t now);

/* Adds what another program may have under the name of the key, as admin_ops.beside says. */
void view_add_beside(struct view *, const char *advice);

/*
 * The state is also STATE_HELD where something that is no lock uses the key, and where the key is
 * frozen and somebody still holds it.
 */
enum lock_state view_state(const struct view *);
const char *view_state_name(const struct view *); /* "free", "held", "frozen" */

/* The first holder, whose kind and limit are those of all holders; NULL: there is none. */
const struct person *view_holder(const struct view *);

/* The last run of a job that ended with 0; NULL: none is remembered. */
const struct person *view_good(const struct view *);

/* With of_id: that ID. */
const char *view_id(const struct view *);

/* When a run ended, or, if that is not known, began. */
static inline int64_t
view_end(const struct person *run)
{
	return run->until != EPOCH_NONE ? run->until : run->since;
}

/*
 * How long it was from one time of the server's clock to another, in nanoseconds; -1: not known.
 */
int64_t view_span(int64_t from, int64_t to);
/* How long ago by the server's clock, in nanoseconds; -1: not known. */
int64_t view_ago(const struct view *, int64_t since);
/* How long until then; never below 0; -1: not known. */
int64_t view_left(const struct view *, int64_t until);

/*
 * How long ago a holder has renewed its lease, which ends that much later; -1: not known, or it has
 * none.
 */
int64_t view_renewed(const struct view *, const struct person *holder);

/* Its grant, and what it has said of itself (struct record); EPOCH_NONE: nothing. */
int64_t view_after(const struct person *holder, int64_t length);

/*
 * Does the freeze last longer than was asked for?  It does if a clock was wrong when it began.
 * Only a person can end it sooner.
 */
bool view_freeze_is_late(const struct view *);

/*
 * Describes a person for a sentence, fit to be shown: by record_words(), or by what is known of
 * one who is no dlock.
 */
struct clean view_person(const struct person *);

#endif
