/* lease_rows.c - tells of leases as the rows of a database have them. */
#include "lease_rows.h"

#include "kind.h"

#include <stdio.h>
#include <string.h>

enum { TURN_HOLDER, TURN_WAITER, TURN_FREEZE, TURNS };

void
lease_rows_begin(struct lease_rows *s, const struct look *look)
{
	s->seen = (struct sighting){.look = look};
	snprintf(s->seen.key, sizeof s->seen.key, "%s", look->key ? look->key : "");
	s->turn = -1;
	s->number = 0;
}

/* What has no end may have the greatest time there is. */
static int64_t
read_time(const struct row *r, int field)
{
	int64_t t;

	return row_integer(r, field, 0, INT64_MAX - 1, &t) ? t : EPOCH_NONE;
}

/* Which kind of lock it is, and what goes with that.  False: none that makes sense. */
static bool
read_lock(const struct row *r, struct entry *e)
{
	const char *word = row_words(r, LEASE_KIND);
	int64_t room, token, slot;

	if (!word || !row_integer(r, LEASE_ROOM, 0, LIMIT_MAX, &room))
		return false;
	if (e->kind == ENTRY_FREEZE)
		return strcmp(word, KIND_WORD_FREEZE) == 0;
	if (!kind_of_word(word, &e->lock) || (e->lock == KIND_LIMIT) != (room > 0))
		return false;
	e->limit = room;
	if (e->kind == ENTRY_WAITER)
		return true;
	if (!row_integer(r, LEASE_TOKEN, 1, INT64_MAX, &token) ||
	    !kind_slot(r, LEASE_SLOT, room, &slot))
		return false;
	e->token = token;
	e->slot = (int)slot;
	return row_boolean(r, LEASE_IS_WANTED, &e->revoked);
}

static struct entry
read_entry(const struct row *r, const struct lease_rows *s)
{
	static const enum entry_kind kinds[TURNS] = {
	    ENTRY_HOLDER, ENTRY_WAITER, ENTRY_FREEZE};
	struct entry e = {.kind = kinds[s->turn],
	    .key = s->seen.key,
	    .slot = -1,
	    .record = row_words(r, LEASE_RECORD),
	    .since = read_time(r, LEASE_SINCE),
	    .until = read_time(r, LEASE_ENDS)};

	if (!read_lock(r, &e))
		e = (struct entry){.kind = ENTRY_UNKNOWN,
		    .key = s->seen.key,
		    .slot = -1,
		    .since = EPOCH_NONE,
		    .until = EPOCH_NONE,
		    .what = s->damaged};
	return e;
}

/* Where a row stands: behind the one before. */
static bool
read_position(const struct row *r, struct lease_rows *s)
{
	char key[sizeof s->seen.key];
	int64_t turn, number;
	int order;

	if (!row_text(r, LEASE_KEY, key, sizeof key) ||
	    !row_integer(r, LEASE_TURN, 0, TURNS - 1, &turn) ||
	    !row_integer(r, LEASE_NUMBER, INT64_MIN, INT64_MAX, &number) ||
	    !row_integer(r, LEASE_MOMENT, 0, INT64_MAX, &s->seen.now))
		return false;
	order = strcmp(key, s->seen.key);
	if ((order < 0 && !s->any_order) ||
	    (order == 0 && (turn < s->turn || (turn == s->turn && number <= s->number))))
		return false;
	sighting_key(&s->seen, key);
	if (turn > TURN_WAITER)
		sighting_tell_waiting(&s->seen);
	s->turn = turn;
	s->number = number;
	return true;
}

bool
lease_rows_see(struct lease_rows *s, const struct row *r)
{
	struct entry e;

	if (!read_position(r, s))
		return false;
	e = read_entry(r, s);
	sighting_tell_one(&s->seen, &e);
	return true;
}

void
lease_rows_see_run(struct lease_rows *s, const struct row *r)
{
	struct entry e = {.kind = ENTRY_LAST,
	    .key = s->seen.look->key,
	    .slot = -1,
	    .record = row_words(r, RUN_RECORD),
	    .since = read_time(r, RUN_BEGAN),
	    .until = read_time(r, RUN_ENDED),
	    .once = row_words(r, RUN_ID)};
	int64_t status, token;

	if (!row_integer(r, RUN_MOMENT, 0, INT64_MAX, &s->seen.now) ||
	    !row_integer(r, RUN_STATUS, 0, UINT8_MAX, &status))
		return;
	if (row_integer(r, RUN_TOKEN, 1, INT64_MAX, &token))
		e.token = token;
	e.status = (int)status;
	sighting_tell(&s->seen, &e);
}
