/*
 * job.h - what all backends decide of a job: the ID of its period, whether its last run is
 * recent.
 */
#ifndef DLOCK_COMMON_JOB_H
#define DLOCK_COMMON_JOB_H

#include "backends/backend.h"

/*
 * Finds the text of "who" in a record.  Others have written that record: a "who" with escapes or
 * control characters in it counts as none, and gives "".  The caller cleans the text before it
 * prints it.
 */
void job_who(const char *record, char *out, size_t size);

/*
 * Names the period of a job that has one and is not named yet, by the server's clock, which shows
 * `us` microseconds since 1970.  RC_PROTOCOL: that is no time.
 */
enum rc job_name_period(
    const struct job *, int64_t us, const char *where, struct fault *);

/*
 * Tells the user that a run, which is remembered only to be shown, could not be written.  Nothing
 * unless that was asked for expressly.
 */
void job_note_unshown(struct host *, const struct job *, const char *where, int status);

/*
 * Is a run that ended with 0 within the job's cooldown?  It began `age_us` microseconds ago by
 * the server's clock; below 0 it is dated ahead of that clock.  The rule is in struct job.
 */
static inline bool
job_is_recent(const struct job *j, int64_t age_us)
{
	int64_t cooldown = j->cooldown / 1000;

	return age_us < cooldown && -age_us < cooldown;
}

#endif
