/* told.c - writes and reads the variables that tell of a grant: see told.h. */
#include "told.h"

#include "backends/common/append.h"
#include "cmd/json.h"
#include "stub.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_BYTES = 24, SLOT_BYTES = 12 };

/* Each byte of a key is written as six at most. */
static size_t
tokens_room(const struct params *p)
{
	size_t room = sizeof "{}";

	for (size_t i = 0; i < p->nkeys; i++)
		room += sizeof "\"\":18446744073709551615," + 6 * strlen(p->keys[i]);
	return room;
}

/* How much room a value needs, with its end; 0: it is not told. */
static size_t
room_of(const struct run *r, enum variable which)
{
	const struct params *p = r->params;

	switch (which) {
	case VAR_KEY:
		return strlen(p->keys[0]) + 1;
	case VAR_TOKEN:
		return TOKEN_BYTES;
	case VAR_TOKENS:
		return p->nkeys > 1 ? tokens_room(p) : 0;
	case VAR_SLOT:
		return p->claim.kind == KIND_LIMIT ? SLOT_BYTES : 0;
	case VAR_OWNER:
		return sizeof r->owner;
	case VAR_BACKEND:
		return strlen(p->site.backend->name) + 1;
	case VAR_KEEPER:
		return JOIN_ADDRESS_BYTES + strlen(r->site) + strlen(r->outer) + 1;
	case VARIABLES:
		break;
	}
	return 0;
}

size_t
told_room(const struct run *r)
{
	size_t room = 0;

	for (enum variable i = 0; i < VARIABLES; i++)
		if (room_of(r, i) > 0)
			room += strlen(environment_names[i]) + 1 + room_of(r, i);
	return room;
}

/* A value, of which `room` is left; returns its end. */
static char *
put_value(char *at, const char *end, enum variable which, const struct run *r,
    const struct join_part *parts, const char *address)
{
	const struct params *p = r->params;
	struct json tokens;

	switch (which) {
	case VAR_KEY:
		return append_text(at, end, p->keys[0]);
	case VAR_TOKEN:
		return append_number(at, end, parts->token);
	case VAR_TOKENS:
		json_begin(&tokens, at, end - at);
		for (size_t i = 0; i < p->nkeys; i++)
			json_put_number(&tokens, p->keys[i], parts[i].token);
		json_end(&tokens);
		return at + strlen(at);
	case VAR_SLOT:
		return append_number(at, end, parts->slot);
	case VAR_OWNER:
		return append_text(at, end, r->owner);
	case VAR_BACKEND:
		return append_text(at, end, p->site.backend->name);
	case VAR_KEEPER:
		/* behind ours, with where the lock is kept, are those of the outer runs */
		at = append_text(append_text(at, end, address), end, r->site);
		return *r->outer ? append_text(append_text(at, end, " "), end, r->outer)
				 : at;
	case VARIABLES:
		break;
	}
	return at;
}

bool
told_write(struct told *t, const struct run *r, const struct join_part *parts,
    const char *address)
{
	/* nearly all have room here, without the allocator, whose first call costs a run 2 % of flock */
	static char small[GO_AT_ONCE];
	size_t room = told_room(r);
	char *at, *end;

	if (t->text != small)
		free(t->text);
	t->text = room <= sizeof small ? small : malloc(room);
	if (!t->text)
		return false;
	at = t->text;
	end = at + room;
	for (enum variable i = 0; i < VARIABLES; i++) {
		if (room_of(r, i) == 0)
			continue;
		at = append_text(append_text(at, end, environment_names[i]), end, "=");
		at = put_value(at, end, i, r, parts, address) + 1;
	}
	t->n = at - t->text;
	return true;
}

const char *
told_value(const struct told *t, enum variable which)
{
	size_t n = strlen(environment_names[which]);

	for (const char *one = t->text; one < t->text + t->n; one += strlen(one) + 1)
		if (strncmp(one, environment_names[which], n) == 0 && one[n] == '=')
			return one + n + 1;
	return NULL;
}
