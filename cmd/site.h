/*
 * site.h - which backend, and which server of it.
 *
 * Backend and URL may each name the backend; both must name the same one.
 * Without a URL of the words or of DLOCK_URL, DLOCK_<BACKEND>_URL counts, after it what
 * files say, and then the backend's default.
 */
#ifndef DLOCK_SITE_H
#define DLOCK_SITE_H

#include "sources.h"

/*
 * Fills in what of backend and URL was not said, once all values are in the
 * plan.  A password in a URL of the command line is overwritten there, so that
 * ps(1) does not show it for long; the plan keeps a copy.  RC_USAGE, of a
 * file RC_CONFIG: the fault is one sentence, without any password.
 */
enum rc site_settle(struct plan *, const struct sources *, struct fault *);

#endif
