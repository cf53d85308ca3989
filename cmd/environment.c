/* environment.c - names the variables of a command. */
#include "environment.h"

#include <stdlib.h>

const char *const environment_names[VARIABLES] = {"DLOCK_KEY", "DLOCK_TOKEN",
    "DLOCK_TOKENS", "DLOCK_SLOT", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"};

const char *
environment_get(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}
