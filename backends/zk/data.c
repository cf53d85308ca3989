/* data.c - writes and reads what stands in a node. */
#include "data.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER "dlock"
#define SLOT "slot"
#define GRANTED "granted"
#define REVOKE "revoke"
#define OWNER "owner"
#define FORCED "forced"
#define FORCER "by"
#define EARLIER "earlier"

static const char *const words[] = {
    [STAGE_WAITING] = "waiting", [STAGE_WAITED] = "waited"};

/* NULL: it is none. */
static json_t *
read_object(const char *data)
{
	json_t *root = json_loads(data, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(root))
		return root;
	json_decref(root);
	return NULL;
}

/* What is no UTF-8, or too long, is not said: that somebody asks is. */
static void
set_asker(json_t *root, const char *name, const char *asker)
{
	json_t *text = json_string(asker);
	size_t size = text ? json_dumpb(text, NULL, 0, JSON_ENCODE_ANY) : 0;

	if (!text || size > 2 * RECORD_BYTES) {
		json_decref(text);
		text = json_string("");
	}
	json_object_set_new(root, name, text);
}

static bool
print_object(char out[DATA_BYTES], json_t *root)
{
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	bool fits = text && strlen(text) < DATA_BYTES;

	if (fits)
		snprintf(out, DATA_BYTES, "%s", text);
	free(text);
	return fits;
}

void
data_write(
    char out[DATA_BYTES], const char *record, const struct progress *p, const char *asker)
{
	bool waits = p->stage == STAGE_WAITING || p->stage == STAGE_WAITED;
	/* most records stay as they are */
	json_t *root = waits || p->slot != SLOT_NONE || asker || *p->owner
	    ? read_object(record)
	    : NULL;

	if (root && waits)
		json_object_set_new(root, MEMBER, json_string(words[p->stage]));
	if (root && p->stage == STAGE_WAITED && p->granted > 0)
		json_object_set_new(root, GRANTED, json_integer(p->granted));
	if (root && p->slot != SLOT_NONE)
		json_object_set_new(root, SLOT, json_integer(p->slot));
	if (root && *p->owner)
		json_object_set_new(root, OWNER, json_string(p->owner));
	if (root && asker)
		set_asker(root, REVOKE, asker);
	if (!print_object(out, root))
		snprintf(out, DATA_BYTES, "%s", record);
	json_decref(root);
}

void
data_mark(char out[DATA_BYTES], const char *data, const char *asker)
{
	json_t *root = read_object(data);

	if (!root)
		root = json_object();
	set_asker(root, REVOKE, asker);
	if (!print_object(out, root)) { /* no dlock has written the rest */
		json_object_clear(root);
		set_asker(root, REVOKE, asker);
		if (!print_object(out, root))
			snprintf(out, DATA_BYTES, CURATORS_REVOKE);
	}
	json_decref(root);
}

static json_int_t
number_in(json_t *root, const char *name, json_int_t none)
{
	json_t *member = json_object_get(root, name);

	return json_is_integer(member) && json_integer_value(member) >= 0
	    ? json_integer_value(member)
	    : none;
}

struct progress
data_read(const char *data)
{
	json_t *root = read_object(data), *member = json_object_get(root, MEMBER);
	const char *word = json_string_value(member),
		   *owner = json_string_value(json_object_get(root, OWNER));
	json_int_t slot = number_in(root, SLOT, SLOT_NONE);
	struct progress p = {.stage = root && !member ? STAGE_AT_ONCE : STAGE_UNKNOWN,
	    .slot = slot < LIMIT_MAX ? (int)slot : SLOT_NONE,
	    .granted = number_in(root, GRANTED, 0),
	    .forced = (uint64_t)number_in(root, FORCED, 0)};

	for (enum stage s = STAGE_WAITING; word && s <= STAGE_WAITED; s++)
		if (strcmp(word, words[s]) == 0)
			p.stage = s;
	if (owner && strlen(owner) == OWNER_CHARS &&
	    strspn(owner, "0123456789abcdef") == OWNER_CHARS)
		snprintf(p.owner, sizeof p.owner, "%s", owner);
	json_decref(root);
	return p;
}

void
data_note_force(
    char out[DATA_BYTES], const char *data, uint64_t token, const char *record)
{
	json_t *root = json_object(), *before = read_object(data);
	json_t *earlier = json_object_get(before, EARLIER);

	earlier = json_is_array(earlier) ? json_incref(earlier) : json_array();
	json_object_del(before, EARLIER);
	if (number_in(before, FORCED, 0) > 0)
		json_array_insert(earlier, 0, before);
	json_object_set_new(root, FORCED, json_integer((json_int_t)token));
	set_asker(root, FORCER, record);
	if (json_array_size(earlier) > 0)
		json_object_set(root, EARLIER, earlier);
	*out = '\0';
	while (!print_object(out, root) && json_array_size(earlier) > 0)
		json_array_remove(earlier, json_array_size(earlier) - 1);
	json_decref(earlier);
	json_decref(before);
	json_decref(root);
}

char *
data_forcer(const char *data, uint64_t token)
{
	json_t *root = read_object(data), *note = root, *earlier, *by;
	char *forcer = NULL;
	size_t i;

	earlier = json_object_get(root, EARLIER);
	for (i = 0; note && (uint64_t)number_in(note, FORCED, 0) != token; i++)
		note = json_array_get(earlier, i);
	by = json_object_get(note, FORCER);
	if (json_is_string(by))
		forcer = strdup(json_string_value(by));
	json_decref(root);
	return forcer;
}

bool
data_is_number(const char *data, long *number)
{
	char *end;

	errno = 0;
	*number = strtol(data, &end, 10);
	return end != data && *number >= 0 && errno == 0 &&
	    end[strspn(end, " \t\r\n")] == '\0';
}

char *
data_asker(const char *data)
{
	json_t *root = read_object(data), *member = json_object_get(root, REVOKE);
	bool asked = json_is_string(member) || strcmp(data, CURATORS_REVOKE) == 0;
	const char *text = json_string_value(member);
	char *asker = asked ? strdup(text ? text : "") : NULL;

	json_decref(root);
	return asker;
}

char *
data_record(const char *data)
{
	static const char *const besides[] = {MEMBER, SLOT, GRANTED, OWNER, REVOKE};
	json_t *root = read_object(data);
	char *text;

	if (!root)
		return NULL;
	for (size_t i = 0; i < sizeof besides / sizeof *besides; i++)
		json_object_del(root, besides[i]);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}

void
data_quote(char *out, size_t size, const char *data)
{
	char *text = data_record(data);

	snprintf(out, size, "%s", text ? text : data);
	free(text);
}
