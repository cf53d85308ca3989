/* native.c - dlock's own dialect: every operation is one run of lock.lua. */
#include "command.h"

#include <stdio.h>
#include <string.h>

/*
 * A run that is done is a key of its own, which the server lets expire: there is
 * nothing to prune, and it can be found, and deleted, by its ID.
 */
static void
name_done(struct names *names, const char *once)
{
	char id[3 * ONCE_BYTES + 1];

	if (once && encode_key(id, sizeof id, once))
		snprintf(names->done, sizeof names->done, "%s:%s", names->last, id);
}

/* All keys are declared and share the hash tag {KEY}, encoded. */
static void
name_keys(struct names *names, const char *key)
{
	static const char *const suffixes[NAMES] = {"h", "i", "q", "l", "w:", "f"};
	char tag[ENCODED_BYTES];

	encode_key(tag, sizeof tag, key);
	for (size_t i = 0; i < NAMES; i++)
		snprintf(names->keys[i], sizeof names->keys[i], "dlock:{%s}:%s", tag,
		    suffixes[i]);
	snprintf(names->last, sizeof names->last, "dlock:{%s}:r", tag);
	names->nkeys = NAMES;
	names->done[0] = '\0';
}

static void
native_names(struct names *names, const struct claim *claim)
{
	name_keys(names, claim->key);
	snprintf(names->channel, sizeof names->channel, "%s%s", names->keys[CHANNEL_NAME],
	    claim->owner);
	name_done(names, claim->job.once);
}

/* The keys; those of a job only where it is spoken of. */
static void
add_keys(struct command *c, const struct names *names, bool job)
{
	bool once = job && *names->done;

	command_number(c, names->nkeys + job + once);
	for (int i = 0; i < names->nkeys; i++)
		command_text(c, names->keys[i]);
	if (job)
		command_text(c, names->last);
	if (once)
		command_text(c, names->done);
}

static void
add_run(struct command *c, const struct claim *claim, const struct request *r)
{
	command_number(c, r->status);
	command_text(c, claim->job.once ? claim->job.once : "");
}

static int
native_write(char **command, const struct names *names, const struct claim *claim,
    const struct request *r, bool whole)
{
	bool job = job_is_wanted(&claim->job) &&
	    (r->operation == ACQUIRE ||
		(r->operation == RELEASE && r->status != STATUS_NONE));
	struct command c;

	command_begin(&c, &script_lock, whole);
	add_keys(&c, names, job);
	command_operation(&c, claim, r);
	if (r->operation == ACQUIRE && job)
		command_number(&c, ns_to_ms(claim->job.cooldown));
	else if (job)
		add_run(&c, claim, r);
	return command_end(command, &c);
}

const struct dialect dialect_native = {
    .name = "native",
    .claims = &script_lock,
    .looks = &script_look,
    .names = native_names,
    .write = native_write,
    .read = command_read,
};
