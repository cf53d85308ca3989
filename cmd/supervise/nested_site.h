/*
 * nested_site.h - where the outer dlock has its locks, as its keeper's address says.
 *
 * A run that states no URL (by -u or a variable), and no other backend, means the server
 * of the nearest outer dlock, also for another key, so that it does not end up
 * elsewhere without a word.  That stands in the keeper's address, in this form:
 *
 *	=URL&NAME=VALUE...	each percent-encoded, with files by their absolute names
 *	!URL&NAME=VALUE...	the same; a password of the URL is blotted out, so that
 *				it says which locks are meant, and no more
 */
#ifndef DLOCK_NESTED_SITE_H
#define DLOCK_NESTED_SITE_H

#include "cmd/plan.h"
#include "keeper_address.h"

/* Of a site in the form above, with the NUL: any that a plan can have. */
enum { SITE_BYTES = 3 * (URL_BYTES + SETTINGS_BYTES) };

/* Writes it into out[SITE_BYTES]; "": it is too long. */
void nested_site_write(char *out, const struct backend *, const struct site *);

/* Where the plan's locks are kept.  It points into itself, and into the plan. */
struct nested_site {
	struct site site;
	bool ended;  /* it would be that of the outer dlock, but that has ended */
	bool secret; /* it has a password, which is not told */
	char text[URL_BYTES + SETTINGS_BYTES];
	/* the told ones, and the plan's own behind them, so that those win */
	struct setting settings[2 * SETTINGS_MAX];
};

void nested_site_find(struct nested_site *, const struct plan *);

/* RC_USAGE: a run that joins nothing cannot go there. */
enum rc nested_site_check(const struct nested_site *, struct fault *);

/* The next address of a keeper of the plan's backend at *addresses, which may be NULL. */
bool nested_site_keeper(
    const char **addresses, const struct plan *, struct keeper_address *);

#endif
