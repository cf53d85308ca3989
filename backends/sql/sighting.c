/* sighting.c - tells what a look has seen, and in a brief one how many wait. */
#include "sighting.h"

#include <stdio.h>
#include <string.h>

void
sighting_tell(struct sighting *s, const struct entry *e)
{
	if (!s->enough)
		s->enough = !s->look->see(s->look->ctx, e, s->now);
}

void
sighting_tell_waiting(struct sighting *s)
{
	const struct entry e = {.kind = ENTRY_WAITING,
	    .key = s->key,
	    .slot = -1,
	    .count = s->waiters,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE};

	if (s->untold)
		sighting_tell(s, &e);
	s->untold = false;
}

void
sighting_key(struct sighting *s, const char *key)
{
	if (strcmp(key, s->key) == 0)
		return;
	sighting_tell_waiting(s);
	snprintf(s->key, sizeof s->key, "%s", key);
	s->waiters = 0;
}

void
sighting_tell_one(struct sighting *s, struct entry *e)
{
	bool waits = e->kind == ENTRY_WAITER;

	if (waits)
		e->position = ++s->waiters;
	s->untold = waits && s->look->brief;
	if (!s->untold)
		sighting_tell(s, e);
}
