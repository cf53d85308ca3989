/* outer.c - reads what DLOCK_KEEPER says of the dlock around this one. */
#include "outer.h"

#include "cmd/supervise/keeper_address.h"
#include "sources.h"

const char *
outer_backend(void)
{
	static struct keeper_address nearest;
	const char *keepers = sources_variable("DLOCK_KEEPER");

	if (!keepers || !keeper_address_next(&keepers, &nearest) || !*nearest.backend)
		return NULL;
	return nearest.backend;
}

enum rc
outer_check(struct fault *f)
{
	const char *keepers = sources_variable("DLOCK_KEEPER");
	struct keeper_address a;

	while (keepers && keeper_address_next(&keepers, &a))
		if (a.is_old)
			return fault_set(f, RC_USAGE,
			    "DLOCK_KEEPER is another version's, which cannot be asked whether the dlock around this one "
			    "has the lock: let both be of one version, or unset DLOCK_KEEPER");
	return RC_OK;
}
