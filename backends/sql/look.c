/* look.c - tells what a look has seen, and in a brief one how many wait; and names sessions. */
#include "look.h"

#include <inttypes.h>
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

bool
sql_look_position(
    struct sql_look *s, const struct row *r, int64_t turns, int moment, bool any_order)
{
	char key[sizeof s->key];
	int64_t turn, number;
	int order;

	if (!row_text(r, 0, key, sizeof key) || !row_integer(r, 1, 0, turns - 1, &turn) ||
	    !row_integer(r, 2, INT64_MIN, INT64_MAX, &number) ||
	    !row_integer(r, moment, 0, INT64_MAX, &s->now))
		return false;
	order = strcmp(key, s->key);
	if ((order < 0 && !any_order) ||
	    (order == 0 && (turn < s->turn || (turn == s->turn && number <= s->number))))
		return false;
	sql_look_key(s, key);
	if (turn > 1)
		sql_look_waiting(s);
	s->turn = turn;
	s->number = number;
	return true;
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

enum rc
sql_look_page(struct sql *db, struct sql_look *s, const struct question *q,
    bool (*read)(void *ctx, const struct row *), void *ctx, int *n, struct fault *f)
{
	struct answer a = {.db = NULL};
	enum rc rc = sql_ask_existing(db, q, look_answer_by(s->look), &a, f);

	*n = a.rows;
	while (rc == RC_OK && !s->enough && answer_next(&a))
		if (!read(ctx, &a.row))
			rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	answer_drop(&a);
	return rc;
}

void
session_name_write(char out[SESSION_NAME_BYTES], const struct session_name *name)
{
	snprintf(
	    out, SESSION_NAME_BYTES, "%" PRId64 "-%" PRId64, name->session, name->second);
}

bool
session_name_read(const char *owner, struct session_name *name)
{
	char again[SESSION_NAME_BYTES];

	if (!owner ||
	    sscanf(owner, "%18" SCNd64 "-%18" SCNd64, &name->session, &name->second) != 2)
		return false;
	session_name_write(again, name);
	return strcmp(owner, again) == 0 && name->session > 0 && name->second >= 0;
}
