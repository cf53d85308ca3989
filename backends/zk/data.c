/* data.c - writes and reads what stands in a node. */
#include "data.h"

#include "backends/secret.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MEMBER "dlock"
#define SLOT "slot"

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

/* Most records stay as they are. */
static bool
is_more(enum stage stage, int slot)
{
	return stage == STAGE_WAITING || stage == STAGE_WAITED || slot != SLOT_NONE;
}

void
data_write(char out[DATA_BYTES], const char *record, enum stage stage, int slot)
{
	json_t *root = is_more(stage, slot) ? read_object(record) : NULL;
	char *text = NULL;

	if (root && (stage == STAGE_WAITING || stage == STAGE_WAITED))
		json_object_set_new(root, MEMBER, json_string(words[stage]));
	if (root && slot != SLOT_NONE)
		json_object_set_new(root, SLOT, json_integer(slot));
	if (root)
		text = json_dumps(root, JSON_COMPACT);
	snprintf(
	    out, DATA_BYTES, "%s", text && strlen(text) < DATA_BYTES ? text : record);
	free(text);
	json_decref(root);
}

enum stage
data_stage(const char *data)
{
	json_t *root = read_object(data), *member = json_object_get(root, MEMBER);
	const char *word = json_string_value(member);
	enum stage stage = root && !member ? STAGE_AT_ONCE : STAGE_UNKNOWN;

	for (enum stage s = STAGE_WAITING; word && s <= STAGE_WAITED; s++)
		if (strcmp(word, words[s]) == 0)
			stage = s;
	json_decref(root);
	return stage;
}

/* JSON has guises of its own for a character: what is swept is what they stand for. */
static void
blot_member(json_t *member, const char *secret)
{
	char *text = json_is_string(member) ? strdup(json_string_value(member)) : NULL;

	if (!text)
		return;
	secret_blot(text, secret);
	json_string_set_nocheck(member, text);
	free(text);
}

char *
data_record(const char *data, const char *secret)
{
	json_t *root = read_object(data);
	char *text;

	if (!root)
		return NULL;
	json_object_del(root, MEMBER);
	json_object_del(root, SLOT);
	for (void *i = json_object_iter(root); i; i = json_object_iter_next(root, i))
		blot_member(json_object_iter_value(i), secret);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}
