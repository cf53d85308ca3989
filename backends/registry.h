/*
 * registry.h - the table of backends.
 */
#ifndef DLOCK_REGISTRY_H
#define DLOCK_REGISTRY_H

#include "backend.h"

/* Every backend that dlock knows, also those that this build lacks; NULL-ended. */
extern const struct backend *const backends[];

/*
 * Find a backend by its name ("redis"), by the scheme of its URLs, n bytes long ("rediss"), or by a
 * URL ("redis+unix:///run/r", or pairs).  NULL: there is none.
 */
const struct backend *registry_named(const char *name);
const struct backend *registry_of_scheme(const char *scheme, size_t n);
const struct backend *registry_of_url(const char *url);

#endif
