/*
 * script.h - the ward of `dlock hold`: a process that goes on by itself, or nobody for a time.
 *
 * A grant is delivered to it by the front; from then on that process is stopped on a loss, as a
 * command is.
 */
#ifndef DLOCK_SCRIPT_H
#define DLOCK_SCRIPT_H

#include "ward.h"

#include <sys/stat.h>

struct script {
	struct ward ward;         /* outsider NULL: for nobody */
	struct outsider outsider; /* not open: fd is -1 */
	/*
	 * In the front: prints the grant; then leaves the process that has asked, which
	 * ends with the status: 0, unless the lock was lost meanwhile.  False: nobody has
	 * it, and the lock goes back; so it does if a signal that was to end the asker
	 * comes between the two.
	 */
	bool (*print)(const struct run *);
	bool (*leave)(const struct run *, int status);
	pid_t asker; /* waits for the delivery */
	/* stderr is to be what it was when hold was started */
	bool has_stderr;
	struct stat errors;
};

extern const struct ward_ops script_ops;

/* The script of a run; NULL: it has none. */
const struct script *script_of(const struct run *);

/* The process goes on without the lock, though others that have joined may keep it. */
void script_take_back(struct keeper *);

#endif
