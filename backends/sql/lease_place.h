/*
 * lease_place.h - where a claim stands in a queue that a database keeps: what the server has
 * said of it, and when to ask again.
 *
 * A waiter sleeps until its turn, in the server or here.  Those who are told by nobody ask
 * now and then, the first in line most often.  Of a thousand waiters no two are to ask in
 * step, so each pause is a bit off, by the owner's random bits.
 */
#ifndef DLOCK_SQL_LEASE_PLACE_H
#define DLOCK_SQL_LEASE_PLACE_H

#include "value.h"

#include "backends/backend.h"

/* so long a waiter sleeps in the server, */
#define PLACE_CHUNK (10 * NS_PER_S)
/* and the first in line: less than a grant waits for it */
#define PLACE_CHUNK_FIRST (2500 * NS_PER_MS)

enum place_code {
	IN_USE = -1, /* another kind of lock is, beside which we may not even wait */
	QUEUED,
	GRANTED,
	DONE /* the job has been */
};

/* The columns with which an answer begins. */
enum {
	ANSWER_CODE,
	ANSWER_TOKEN, /* GRANTED: it; DONE: NULL where the server has nothing of ours */
	ANSWER_SLOT,  /* GRANTED: of a limited lock */
	/* QUEUED: our place, 1 is the first in line; ms until a lease ends, NULL: nobody holds; */
	ANSWER_PLACE,
	ANSWER_LEFT_MS,
	/* ms that one holder has had it, its record, how many hold; */
	ANSWER_HELD_MS,
	ANSWER_HOLDER,
	ANSWER_HOLDERS,
	/* their kind, and its limit (IN_USE: of the one that is); */
	ANSWER_KIND,
	ANSWER_ROOM,
	ANSWER_NEXT, /* and whether the end of that lease is ours to notice */
	ANSWER_MORE  /* the backend's own follow */
};

/* DONE: how it was found, begin and age; consecutive, from a column of the backend's. */
enum { DONE_BY, DONE_BEGAN_MS, DONE_AGE_MS };

struct lease_place {
	enum place_code code;
	int64_t token, slot;       /* GRANTED; token 0: no grant */
	int64_t position, left_ms; /* QUEUED */
	bool next;
	/* IN_USE */
	enum lock_kind kind;
	int64_t room;
	/* DONE */
	struct done {
		bool forgotten; /* the server has nothing of ours */
		bool recently;  /* not this ID, but within the cooldown: `age_ms` ago */
		int64_t began_ms, age_ms;
		char who[128]; /* who ran it; "": not known; the backend's to set */
	} done;
	unsigned jitter; /* counts what must not be done in step with others */
};

/*
 * What the server says of a claim; of a queue also host->seen.  `done`: the column with
 * which DONE_BY begins.  False: it makes no sense.
 */
bool lease_place_read(struct lease_place *, const struct claim *, struct host *,
    const struct row *, int done);

/* What the question says whether there is nobody: a token, all alone, for a grant. */
bool lease_place_read_taken(struct lease_place *, const struct row *);

/* The parts of it: a grant; our place, from the columns ANSWER_PLACE to ANSWER_NEXT. */
bool lease_place_read_grant(
    struct lease_place *, const struct claim *, const struct row *);
bool lease_place_read_place(struct lease_place *, struct host *, const struct row *);

/* Is the end of the holder's lease ours to notice? */
bool lease_place_concerns_us(const struct lease_place *);

/* `wake`, or that end, if it is ours to notice and comes first. */
instant lease_place_wake(const struct lease_place *, instant wake);

/*
 * How long not to ask, for who is at this place and told by nobody: 0.2 s for the first
 * in line, at most 2 s.
 */
int64_t lease_place_pause(struct lease_place *, const struct claim *, int64_t position);

/* When to ask again: after that, or at the end of a lease. */
instant lease_place_next_question(struct lease_place *, const struct claim *);

/*
 * So long one sleep in the server is, `most` at the most.  Whoever is before us may become
 * the holder meanwhile and be cut off: so less than a lease.
 */
int64_t lease_place_chunk(struct lease_place *, const struct claim *, int64_t most);

#endif
