/*
 * quorum.h - N independent masters, asked at once, and what more than half of them say.
 *
 * A question is put to all (or some) of them as a round, through fan.h; what is heard later
 * of an earlier round does not count.
 */
#ifndef DLOCK_REDIS_QUORUM_H
#define DLOCK_REDIS_QUORUM_H

#include "master.h"

/* What has been heard in the last round. */
struct tally {
	size_t votes[VERDICTS];
	size_t young;    /* of VERDICT_YES, those that do not count: see restart.h */
	size_t failed;   /* did not answer as they should */
	size_t foreign;  /* of these, those where the key is no lock any more */
	size_t open;     /* may still answer */
	size_t answered; /* those with a verdict */
	uint64_t token;  /* the highest of those who said yes */
};

struct quorum {
	struct host *host;
	size_t n;    /* masters */
	size_t need; /* so many are more than half of them */
	struct master *masters;
	struct fan fan;
	struct peer *peers; /* of the fan */
	struct master_names names;
	struct tls *tls; /* to all of them; NULL: plainly */
	char where[WHERE_BYTES];
	size_t
	    listener; /* the master at which those listen who wait: for all the same one */
	/* of quorum_hear() */
	struct tally *tally;
	bool (*enough)(const struct quorum *, const struct tally *);
};

/*
 * From redlock[s]://[[user]:password@]host[:port],host...[/db].  RC_OK, RC_USAGE or
 * RC_SYSTEM; quorum_end() in any case.
 */
enum rc quorum_begin(struct quorum *, struct host *, const char *url, struct fault *);

/* Before anything is asked: the login is complete, and tls_open_if() for all of them. */
enum rc quorum_secure(struct quorum *, const struct tls_settings *, struct fault *);

void quorum_end(struct quorum *);

/* Which lock it is about; `bare`: its key is that name itself, as other clients have it. */
void quorum_name(struct quorum *, const char *key, bool bare);

/* ---- a round ---- */

/*
 * Puts a question to those that `whom` picks (NULL: all) out of what was heard in the
 * round before.
 */
void quorum_ask(struct quorum *, const struct order *,
    bool (*whom)(const struct quorum *, const struct master *));

/* The same to one of them. */
void quorum_ask_one(struct quorum *, size_t i, const struct order *);

/*
 * Waits until enough() says so of the tally, all have answered, or `until`; NULL: until
 * all have.  RC_OK or RC_STOP.
 */
enum rc quorum_hear(struct quorum *, instant until,
    bool (*enough)(const struct quorum *, const struct tally *), struct tally *);

/* For quorum_hear(): a quorum has said yes, or too few can answer, or nobody else will. */
bool quorum_has_voted(const struct quorum *, const struct tally *);

/* What has been heard so far; yes counts as restart.h has it if it was asked to acquire. */
void quorum_count(struct quorum *, struct tally *);

/* Sleeps, while what is under way goes on.  RC_OK or RC_STOP. */
enum rc quorum_sleep(struct quorum *, instant until);

/* ---- what was heard in it ---- */

/*
 * The vote of a master that refused us for who has a quorum, with that one's record if
 * any of these told it; NULL: nobody has a quorum.
 */
const struct vote *quorum_find_holder(const struct quorum *);

/* The record of who wants it back, or has taken it; "" if no master told of one. */
void quorum_find_mark(const struct quorum *, char *mark, size_t size);

/* Was any of them asked twice? */
bool quorum_is_repeated(const struct quorum *);

/*
 * Too few have given a usable answer: RC_AGAIN, or what so many of them have to say that
 * it will stay so.
 */
enum rc quorum_refused(const struct quorum *, const struct tally *, struct fault *);

/* RC_CONFIG if two of them are one server; else RC_OK. */
enum rc quorum_check_twins(const struct quorum *, struct fault *);

#endif
