/* side.c - names that the other tools' dialects share. */
#include "side.h"

#include <stdio.h>
#include <string.h>

/* Has the key a hash tag of its own? */
static bool
has_tag(const char *key)
{
	const char *open = strchr(key, '{');

	return open && open[1] != '}' && strchr(open, '}');
}

/*
 * In the slot of the lock: a key with {tag} of its own lies in the tag's, any other in
 * that of the whole of it.  No two locks share one.
 */
void
side_names(struct names *names, const struct dialect *d, const char *key)
{
	const char *format = has_tag(key) ? "%s:%s" : "%s{%s}";
	char prefix[PREFIX_BYTES];

	dialect_side_prefix(d, prefix);
	snprintf(names->keys[0], sizeof names->keys[0], "%s", key);
	snprintf(names->keys[1], sizeof names->keys[1], format, prefix, key);
	names->nkeys = 2;
	names->channel[0] = names->last[0] = names->done[0] = '\0';
}
