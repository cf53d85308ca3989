/*
 * look.h - how a subcommand looks at locks, without holding any.
 *
 * The store is the one that the user names, or that of the outer run where the user names no
 * server.  A look asks once: a silent server is not asked again here.  Each request of a look,
 * and each change, has connect-timeout for everything, also for what the backend asks again.  So
 * a server that keeps saying that it cannot answer now is given up as well.
 *
 * Signals are not touched: Ctrl-C ends the process.
 */
#ifndef DLOCK_LOOK_H
#define DLOCK_LOOK_H

#include "cmd/supervise/join_inner.h"
#include "screen.h"
#include "view.h"

struct looker {
	struct host host;
	const struct params *params;
	struct store *store;
	struct join_site where;
	/* CMD_WAIT: the answer of join_inner_look() for a run like this */
	enum rc joined;
	int64_t patience; /* for an answer: connect-timeout, or its default */
	int64_t pause;    /* between the last two looks; 0: there was none yet */
	uint64_t jitter;
};

/* connect-timeout as the site has it, or its default: for an answer. */
int64_t look_connect_timeout(const struct site *);

/*
 * Makes a host for a backend where nothing is supervised: it waits by poll(2), and a signal ends
 * the process as it ends any other.
 */
void look_host(struct host *);

/*
 * Opens the store that was asked for.  It must be able to be looked at and have all of `caps`
 * (CAP_ bits; 0: nothing more).  Otherwise (RC_USAGE, RC_CONFIG, RC_SYSTEM, RC_AGAIN)
 * nothing needs closing.  The parameters must outlive it.
 */
enum rc look_open(struct looker *, const struct params *, unsigned caps, struct fault *);
void look_close(struct looker *);

/* CMD_WAIT: asks the outer run again, for `joined`. */
void look_ask_outer(struct looker *);

/* The moment until which to wait for the answer to a question that is sent now. */
instant look_patience(const struct looker *);

/* Looks at one key.  The whole look ends by `until`, which may be NEVER. */
enum rc look_at(struct looker *, const char *key, bool brief, struct view *,
    instant until, struct fault *);

/*
 * Asks whether the key of the view names something of another program, too.  A server that
 * cannot be asked leaves that unknown.
 */
void look_around(struct looker *, struct view *, instant until);

/*
 * Looks briefly at all keys that are held, waited for or frozen; with --jobs at all runs that are
 * remembered.  `see` gets each view as soon as it is complete, and returns false when it has seen
 * enough.
 */
enum rc look_at_all(struct looker *, bool (*see)(void *ctx, const struct view *),
    void *ctx, instant until, struct fault *);

/*
 * Sleeps before the next look at a lock that is not free yet: longer each time, up to a second,
 * and not beyond `until`.
 */
void look_rest(struct looker *, instant until);

/*
 * Says why a look, or the change that was to follow it, has failed.  `key` NULL: a look at all
 * keys.  Returns the exit status.
 */
int look_refuse(const struct looker *, const char *key, enum rc, const struct fault *);

/*
 * If nobody uses the keys and one was named by a word like a pattern, says that it is a key: "free"
 * may be taken for all keys that match.
 */
void look_doubt(const struct params *);

/* ---- once, or with --watch again and again ---- */

/* A subcommand that can watch begins its own struct with this one. */
struct rounds {
	struct looker looker;
	struct screen screen; /* open */
	const char *key;      /* the key that is looked at; NULL: all keys */
	/*
	 * Looks, and shows what there is: on stdout, or in a picture, which also tells of a look
	 * that failed.  `to` NULL: prints what has changed.
	 */
	enum rc (*show)(struct rounds *, FILE *to, struct fault *);
};

/*
 * Runs the rounds and returns the exit status.  On a terminal each round draws a picture anew;
 * elsewhere it prints what has changed.  Rounds end with a signal, or if the first look fails.
 */
int look_rounds(struct rounds *, const struct params *);

/* Tells in a picture that the look has failed. */
void look_tell_failure(FILE *, const struct fault *);

#endif
