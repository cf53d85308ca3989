/*
 * run.h - what front and keeper agree on before they part.
 *
 * cmd/run.c fills it before the fork; from then on each has its own copy, and
 * only the shared page and the link carry anything further.
 */
#ifndef DLOCK_RUN_H
#define DLOCK_RUN_H

#include "cmd/plan.h"
#include "link.h"

struct run {
	const struct plan *plan;
	const struct origin *origin;
	struct shared *shared;
	int ends[2];      /* of the link: [0] the front's, [1] the keeper's */
	const char *path; /* what to execute */
	char owner[OWNER_CHARS + 1];
	char record[RECORD_BYTES];
	/* the front has children from before: `daemon & exec dlock run ...` */
	bool has_elders;
	instant began;
};

#endif
