/* look.c - tells what a look has seen, and in a brief one how many wait. */
#include "look.h"

#include <stdio.h>
#include <string.h>

void
sql_look_entry(struct sql_look *s, const struct entry *e)
{
	if (!s->enough)
		s->enough = !s->look->see(s->look->ctx, e, s->now);
}

void
sql_look_waiting(struct sql_look *s)
{
	const struct entry e = {.kind = ENTRY_WAITING,
	    .key = s->key,
	    .slot = -1,
	    .count = s->waiters,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE};

	if (s->untold)
		sql_look_entry(s, &e);
	s->untold = false;
}

void
sql_look_key(struct sql_look *s, const char *key)
{
	if (strcmp(key, s->key) == 0)
		return;
	sql_look_waiting(s);
	snprintf(s->key, sizeof s->key, "%s", key);
	s->waiters = 0;
}

void
sql_look_claim(struct sql_look *s, struct entry *e)
{
	bool waits = e->kind == ENTRY_WAITER;

	if (waits)
		e->position = ++s->waiters;
	s->untold = waits && s->look->brief;
	if (!s->untold)
		sql_look_entry(s, e);
}
