/*
 * redlock_look.h - what locks there are on a quorum of masters, and taking them away.
 *
 * As admin_ops has it.  All masters are asked.  Who has the votes of more than half
 * of all masters holds; who might have them, if those that do not answer had given
 * theirs, is told as unknown; fewer are nothing.  There must be a quorum of answers, or nothing can be said.
 */
#ifndef DLOCK_REDIS_REDLOCK_LOOK_H
#define DLOCK_REDIS_REDLOCK_LOOK_H

#include "quorum.h"

enum rc redlock_each(struct quorum *, bool bare, const struct look *, struct fault *);

enum rc redlock_revoke(struct quorum *, bool bare, const struct target *,
    const char *record, bool force, instant until, struct fault *);

#endif
