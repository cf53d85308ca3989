/*
 * quorum.h - N independent masters, asked at once, and what more than half of them say.
 *
 * A question is put to all (or some) of them as a round; a round that is left
 * before all have answered goes on when the next one is waited for, and what is
 * heard then of an earlier one does not count.
 */
#ifndef DLOCK_REDIS_QUORUM_H
#define DLOCK_REDIS_QUORUM_H

#include "master.h"
#include "together.h"

enum {
	QUORUM_LEAST = 3,
	QUORUM_MOST = 15,
};

struct quorum {
	struct host *host;
	size_t n;    /* masters */
	size_t need; /* so many are more than half of them */
	struct master *masters;
	struct together together;
	struct master_names names;
	struct tls *tls; /* to all of them; NULL: plainly */
	char where[WHERE_BYTES];
	size_t listener; /* the master at which those listen who wait */
	unsigned round;
	bool is_begun;              /* together_begin() was called */
	bool asked_to[QUORUM_MOST]; /* in the last round */
};

/* What has been heard in the last round. */
struct tally {
	size_t votes[VERDICTS];
	size_t young;    /* of VERDICT_YES, those that do not count: see restart.h */
	size_t failed;   /* did not answer as they should */
	size_t open;     /* may still answer */
	size_t answered; /* those with a verdict */
	uint64_t token;  /* the highest of those who said yes */
};

/*
 * From redlock[s]://[[user]:password@]host[:port],host...[/db].  RC_OK, RC_USAGE or
 * RC_SYSTEM; quorum_end() in any case.
 */
enum rc quorum_begin(struct quorum *, struct host *, const char *url, struct fault *);

/* Before anything is asked: tls_open_if(), for all of them. */
enum rc quorum_secure(struct quorum *, const struct tls_settings *, struct fault *);

void quorum_end(struct quorum *);

/* Which lock it is about; `bare`: its key is that name itself, as other clients have it. */
void quorum_name(struct quorum *, const char *key, bool bare);

/*
 * Puts a question to those that `whom` picks (NULL: all) out of what was heard in the
 * round before.
 */
void quorum_ask(struct quorum *, const struct order *,
    bool (*whom)(const struct quorum *, const struct master *));

/* The same to one of them. */
void quorum_ask_one(struct quorum *, size_t i, const struct order *);

/* Of the last round; yes counts as restart.h has it if it was asked to acquire. */
void quorum_count(const struct quorum *, struct tally *);

/*
 * Waits until enough() says so of the tally, all have answered, or `until`; NULL: until
 * all have.  RC_OK or RC_STOP.
 */
enum rc quorum_hear(struct quorum *, instant until,
    bool (*enough)(const struct quorum *, const struct tally *), struct tally *);

/* Was it asked in the last round, and has answered? */
bool quorum_has_heard(const struct quorum *, const struct master *);

/* Who has not begun with the last round since it still is at an earlier one begins now. */
void quorum_hurry(struct quorum *);

/* Who has not answered need not; nothing is under way any more. */
void quorum_drop(struct quorum *);

/* Sleeps, while what is under way goes on.  RC_OK or RC_STOP. */
enum rc quorum_sleep(struct quorum *, instant until);

/* The master on which those who wait for the key listen: the same for all who wait. */
size_t quorum_listens_at(const struct quorum *, const char *key);

/*
 * Too few have given a usable answer: RC_AGAIN, or what so many of them have to say that
 * it will stay so.
 */
enum rc quorum_refused(const struct quorum *, const struct tally *, struct fault *);

/* RC_CONFIG if two of them are one server; else RC_OK. */
enum rc quorum_check_twins(const struct quorum *, struct fault *);

#endif
