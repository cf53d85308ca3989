/*
 * standing.h - where a claim stands in a queue that a database keeps: what the server has
 * said of it, and when to ask again.
 *
 * A waiter sleeps until its turn, in the server or here.  Those who are told by nobody ask
 * now and then, the first in line most often.  Of a thousand waiters no two are to ask in
 * step, so each pause is a bit off, by the owner's random bits.
 */
#ifndef DLOCK_STANDING_H
#define DLOCK_STANDING_H

#include "row.h"

#include "backends/backend.h"

/* so long a waiter sleeps in the server, */
#define STANDING_CHUNK (10 * NS_PER_S)
/* and the first in line: less than a grant waits for it */
#define STANDING_CHUNK_FIRST (2500 * NS_PER_MS)

enum standing_code {
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

struct standing {
	enum standing_code code;
	int64_t token, slot;    /* GRANTED; token 0: no grant */
	int64_t place, left_ms; /* QUEUED */
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
bool standing_read(
    struct standing *, const struct claim *, struct host *, const struct row *, int done);

/* What the question says whether there is nobody: a token, all alone, for a grant. */
bool standing_read_taken(struct standing *, const struct row *);

/* The parts of it: a grant; our place, from the columns ANSWER_PLACE to ANSWER_NEXT. */
bool standing_read_grant(struct standing *, const struct claim *, const struct row *);
bool standing_read_place(struct standing *, struct host *, const struct row *);

/* Is the end of the holder's lease ours to notice? */
bool standing_concerns_us(const struct standing *);

/* `wake`, or that end, if it is ours to notice and comes first. */
instant standing_wake(const struct standing *, instant wake);

/*
 * How long not to ask, for who is at this place and told by nobody: 0.2 s for the first
 * in line, at most 2 s.
 */
int64_t standing_pause(struct standing *, const struct claim *, int64_t place);

/* When to ask again: after that, or at the end of a lease. */
instant standing_next_question(struct standing *, const struct claim *);

/*
 * So long one sleep in the server is, `most` at the most.  Whoever is before us may become
 * the holder meanwhile and be cut off: so less than a lease.
 */
int64_t standing_chunk(struct standing *, const struct claim *, int64_t most);

#endif
