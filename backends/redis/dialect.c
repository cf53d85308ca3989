/* dialect.c - the dialects there are, by name. */
#include "dialect.h"

#include "slot.h"

#include <stdio.h>
#include <string.h>

static const struct dialect *const dialects[] = {&dialect_native, &dialect_string,
    &dialect_redisson, &dialect_redisson_fenced, &dialect_redisson_rw,
    &dialect_redisson_semaphore, &dialect_redisson_fair, NULL};

const char dialect_names[] = "native, string, redisson, redisson-fenced, redisson-rw, "
			     "redisson-semaphore, redisson-fair";

const struct dialect *
dialect_named(const char *name)
{
	for (size_t i = 0; dialects[i]; i++)
		if (strcmp(dialects[i]->name, name) == 0)
			return dialects[i];
	return NULL;
}

enum rc
dialect_choose(const struct dialect **ret, const char *name, struct fault *f)
{
	*ret = dialect_named(name);
	return *ret ? RC_OK
		    : fault_set(f, RC_USAGE,
			  "the redis backend knows no dialect '%s' (there are %s)", name,
			  dialect_names);
}

void
dialect_name(const struct dialect *d, struct names *names, enum form form,
    const struct claim *claim)
{
	d->names(names, claim);
	if (d == &dialect_native)
		slot_rename(names, form, claim->key);
	names->sharded = d != &dialect_native && *names->channel && form == FORM_CLUSTER;
}

void
dialect_name_lock(
    const struct dialect *d, struct names *names, enum form form, const char *key)
{
	dialect_name(d, names, form, &(struct claim){.key = key, .owner = ""});
}

void
dialect_side_prefix(const struct dialect *d, char out[PREFIX_BYTES])
{
	snprintf(out, PREFIX_BYTES, "dlock:%s:", d->name);
}
