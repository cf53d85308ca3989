/*
 * join_site.h - where an enclosing dlock takes its locks, as it tells those below it.
 *
 * A run that states no URL (by -u or a variable), and no other backend, means the
 * server of the dlock around it, also for another key: it is told which, so that it
 * does not end up elsewhere without a word.  A password is told to nobody: without it
 * the site says which locks are meant, and no more.
 */
#ifndef DLOCK_JOIN_SITE_H
#define DLOCK_JOIN_SITE_H

#include "backends/common/identity.h"
#include "cmd/plan.h"

/* Of a site as text, with the NUL: any that a plan can have. */
enum { JOIN_SITE_BYTES = URL_BYTES + SETTINGS_BYTES + 1 };

/*
 * "URL\nNAME=VALUE\n...\n" into out[JOIN_SITE_BYTES], as it is told: without a password,
 * and with files by their absolute names.  False: it is too long.
 */
bool join_site_write(char *out, const struct backend *, const struct site *);

/* Which locks are kept there, as backend.identify says.  Not RC_OK: that is not known. */
enum rc join_site_identify(
    struct identity *, const struct backend *, const struct site *, struct fault *);

/* The same of a store of that backend: one that was just opened, or was just granted its lock. */
enum rc join_site_identify_store(
    struct identity *, const struct backend *, struct store *, struct fault *);

/* What has been told.  Owned by whoever owns the struct site that may point into it. */
struct join_site {
	bool due;    /* the plan has none of its own, and nobody has told one yet */
	bool secret; /* it has a password, which is not told */
	char text[JOIN_SITE_BYTES];
	/* the told ones, and the plan's own behind them */
	struct setting settings[2 * SETTINGS_MAX];
};

void join_site_begin(struct join_site *, const struct plan *);

/*
 * Takes over, into *site, what a keeper has told: text[JOIN_SITE_BYTES], and whether it
 * has a password.  Only the first one counts, that of the nearest keeper.
 */
void join_site_hear(struct join_site *, struct site *site, const char *text, bool secret);

/* For who does not join.  RC_USAGE: the site is not to be known (any more). */
enum rc join_site_settle(const struct join_site *, struct fault *);

#endif
