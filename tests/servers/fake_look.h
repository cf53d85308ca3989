/* fake_look.h - the part of the fake backend that is looked at. */
#ifndef DLOCK_TESTS_FAKE_LOOK_H
#define DLOCK_TESTS_FAKE_LOOK_H

#include "backends/backend.h"

/* Tells what stands in the file (NULL: nothing), as admin_ops.each. */
enum rc fake_look(struct store *, const char *file, const struct look *, struct fault *);

#endif
