/*
 * join_site.h - where the locks of a run are kept, if that is where an outer run keeps its own.
 *
 * An address (join_address.h) ends with it.
 */
#ifndef DLOCK_JOIN_SITE_H
#define DLOCK_JOIN_SITE_H

#include "backends/common/identity.h"
#include "join_address.h"

/* Of a site as an address has it, with the NUL: any that a run can have. */
enum { JOIN_SITE_BYTES = 3 * (URL_BYTES + SETTINGS_BYTES) };

/* Writes a site, as an address has it, into out[JOIN_SITE_BYTES]; "": it is too long. */
void join_site_write(char *out, const struct backend *, const struct site *);

/* Where the parameters' locks are kept.  It points into itself, and into the parameters. */
struct join_site {
	char text[URL_BYTES + SETTINGS_BYTES];
	/* the told ones, and the run's own behind them, so that those win */
	struct setting settings[2 * SETTINGS_MAX];
	/* without an outer dlock only the rest is used */
	struct site site;
	/* why it is not known, though it would be that of an outer dlock; NULL: it is known */
	const char *unknown;
	bool secret; /* it has a password, which is not told */
};

void join_site_find(struct join_site *, const struct params *);

/* RC_USAGE: a run that joins nothing cannot go there. */
enum rc join_site_check(const struct join_site *, struct fault *);

#endif
