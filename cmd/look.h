/*
 * look.h - how a subcommand looks at locks, without holding any.
 *
 * The store is the one that the user names, or that of the outer run where the user names no
 * server.  A look asks once: a silent server is not asked again here.  Each request of a look,
 * and each change, may take as long as connect-timeout says, with all that is asked again
 * meanwhile; so a server that says again and again that it cannot answer now is given up, too.
 *
 * Signals are as they were: Ctrl-C ends the process.
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
	/* CMD_WAIT: what join_inner_look() says of a run like this */
	enum rc joined;
	int64_t patience; /* for an answer: connect-timeout, or its default */
	int64_t pause;    /* the last one between two looks; 0: none yet */
	uint64_t jitter;
};

/* connect-timeout as the site has it, or its default: for an answer. */
int64_t look_connect_timeout(const struct site *);

/*
 * A backend's host where nothing is supervised: its wait is poll(2), and a signal ends the
 * process as it ends any other.
 */
void look_host(struct host *);

/*
 * Opens the store that was asked for.  It must be able to be looked at and have all of `caps`
 * (CAP_ bits; 0: nothing more).  Otherwise (RC_USAGE, RC_CONFIG, RC_SYSTEM, RC_AGAIN)
 * nothing needs closing.  The parameters must outlive it.
 */
enum rc look_open(struct looker *, const struct params *, unsigned caps, struct fault *);
void look_close(struct looker *);

/* CMD_WAIT: finds `joined` out anew. */
void look_ask_outer(struct looker *);

/* Until when to wait for the answer to a question that is sent now. */
instant look_patience(const struct looker *);

/* Looks at one key; `until`, or NEVER, bounds all of it. */
enum rc look_at(struct looker *, const char *key, bool brief, struct view *,
    instant until, struct fault *);

/*
 * Looks briefly at all that are held, waited for or frozen, or with --jobs at the runs that
 * are remembered, and hands out a view of each as soon as it is complete; `see` returns false
 * when it has seen enough.
 */
enum rc look_at_all(struct looker *, bool (*see)(void *ctx, const struct view *),
    void *ctx, instant until, struct fault *);

/*
 * Sleeps before the next look at a lock that is not free yet, longer each time, up to a
 * second, and at most until `until`.
 */
void look_rest(struct looker *, instant until);

/*
 * Says why a look (or what was to follow it) came to nothing; `key` NULL: of all.  Returns
 * the exit status.
 */
int look_refuse(const struct looker *, const char *key, enum rc, const struct fault *);

/* ---- once, or with --watch again and again ---- */

/* What is shown: a subcommand's own struct begins with it. */
struct rounds {
	struct looker looker;
	struct screen screen; /* open */
	const char *key;      /* the one that is looked at; NULL: all */
	/*
	 * Looks, and shows what there is, to stdout or to a picture, in which a failed look
	 * is told as well; or what has changed (`to` NULL).
	 */
	enum rc (*show)(struct rounds *, FILE *to, struct fault *);
};

/*
 * Returns the exit status.  On a terminal each round is a picture that is drawn anew;
 * elsewhere it is lines that tell what has changed.  Rounds end with a signal, or where the
 * very first look fails.
 */
int look_rounds(struct rounds *, const struct params *);

/* In a picture: the look has failed. */
void look_tell_failure(FILE *, const struct fault *);

#endif
