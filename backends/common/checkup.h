/*
 * checkup.h - tells `dlock doctor` what a backend has found of its server.
 */
#ifndef DLOCK_CHECKUP_H
#define DLOCK_CHECKUP_H

#include "backends/backend.h"

/* Tells one finding; the fact is written as by printf. */
void checkup_tell(struct checkup *, enum fitness, const char *name, const char *advice,
    const char *fact, ...) __attribute__((format(printf, 5, 6)));

#endif
