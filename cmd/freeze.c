/*
 * freeze.c - dlock freeze and dlock thaw: nobody may take a lock, until somebody says so.
 *
 * A freeze needs no process.  The holders of the lock go on; all others, also those that
 * wait already, wait for the thaw (or for the end that was given).
 */
#include "cmd.h"

#include "confirm.h"
#include "exit.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "text.h"

#include <stdio.h>

/* "deploy is frozen until dlock thaw, instead of by bob@laptop until ...; it is still held by alice" */
static void
tell_frozen(struct looking *l, const char *key, const struct view *before)
{
	int64_t length = l->plan->steer.length;
	const struct person *old = &before->frozen;
	char span[48] = "", end[70] = "", replaced[800] = "", held[720] = "";
	struct view v = {0};
	struct fault f;
	bool seen = look_at(l, key, true, &v, NEVER, &f) == RC_OK;

	if (length != NEVER)
		snprintf(span, sizeof span, " for %s", parse_span(length).text);
	if (v.is_frozen || length == NEVER) /* what the server tells counts */
		snprintf(end, sizeof end, "%s %s", *span ? "," : "",
		    text_until(v.is_frozen ? v.frozen.until : EPOCH_NONE).text);
	if (before->is_frozen)
		snprintf(replaced, sizeof replaced, ", instead of by %s %s",
		    view_person(old).text, text_until(old->until).text);
	if (seen && v.holders.n > 0 && v.holders.all == 1)
		snprintf(held, sizeof held, "%s", view_person(v.holders.list).text);
	else if (seen && v.holders.n > 0)
		snprintf(held, sizeof held, "%llu, first %s",
		    (unsigned long long)v.holders.all, view_person(v.holders.list).text);
	say("%s is frozen%s%s%s%s%s", text_key(key).text, span, end, replaced,
	    *held ? "; it is still held by " : "", held);
	view_free(&v);
}

static int
freeze_key(struct looking *l, const char *key, const char *record)
{
	struct fault f = {""};
	struct view before = {0};
	enum rc rc;

	/* for the message alone: a look that fails does not prevent the freeze */
	look_at(l, key, true, &before, look_patience(), &f);
	rc = l->store->backend->admin->freeze(
	    l->store, key, record, l->plan->steer.length, look_patience(), &f);
	if (rc == RC_OK && !l->plan->show.quiet)
		tell_frozen(l, key, &before);
	view_free(&before);
	return rc == RC_OK ? 0 : look_refuse(l->plan, NULL, key, rc, &f);
}

/* The key is not frozen; returns the exit status. */
static int
nothing_to_thaw(const struct view *v)
{
	if (!v->unknown) {
		say_last("%s is not frozen", text_key(v->key).text);
		return STATUS_NOTHING;
	}
	say_last("cannot thaw %s: it is in use by what is no lock (%s)",
	    text_key(v->key).text, text_shown(v->unknown).text);
	return STATUS_PROTOCOL;
}

/* Is it another freeze than the one that was shown?  If the look fails, so will the thaw. */
static bool
is_another(struct looking *l, const struct view *shown)
{
	struct view v = {0};
	struct fault f;
	bool another = look_at(l, shown->key, true, &v, NEVER, &f) == RC_OK &&
	    v.is_frozen && v.frozen.since != shown->frozen.since;

	view_free(&v);
	return another;
}

/* Shows the freeze to the person at the terminal; false: the answer is no. */
static bool
may_thaw(struct looking *l, const struct view *v)
{
	const struct person *by = &v->frozen;
	const struct clean name = text_key(v->key);

	if (l->plan->steer.yes)
		return true;
	fprintf(stderr, "%s is frozen by %s%s, %s\n", name.text, view_person(by).text,
	    show_ago(v, by->since).text, text_until(by->until).text);
	if (!confirm_yes("Thaw it?"))
		say_last("%s stays frozen", name.text);
	else if (is_another(l, v))
		say_last("%s has been frozen anew meanwhile, and stays so", name.text);
	else
		return true;
	return false;
}

static int
thaw_key(struct looking *l, const char *key, const char *record)
{
	struct view v = {0};
	struct fault f = {""};
	int status = STATUS_NOTHING;
	enum rc rc = look_at(l, key, true, &v, NEVER, &f);

	(void)record;
	if (rc == RC_OK && !v.is_frozen) {
		status = nothing_to_thaw(&v);
	} else if (rc == RC_OK && may_thaw(l, &v)) {
		rc = l->store->backend->admin->thaw(l->store, key, look_patience(), &f);
		if (rc == RC_OK)
			status = 0;
		if (rc == RC_OK && !l->plan->show.quiet)
			say("%s is thawed", text_key(key).text);
		if (rc == RC_LOST)
			say_last("%s is not frozen any more", text_key(key).text);
	}
	view_free(&v);
	return rc == RC_OK || rc == RC_LOST ? status
					    : look_refuse(l->plan, NULL, key, rc, &f);
}

/* Each key in turn; returns the worst status. */
static int
steer_each(const struct plan *p,
    int (*one)(struct looking *, const char *key, const char *record))
{
	char record[RECORD_BYTES];
	struct looking l;
	struct fault f = {""};
	int status = 0;
	enum rc rc = look_open(&l, p, CAP_FREEZE, &f);

	if (rc != RC_OK)
		return look_refuse(p, NULL, p->keys[0], rc, &f);
	record_write(record, p, 0);
	for (size_t i = 0; i < p->nkeys; i++) {
		int got = one(&l, p->keys[i], record);

		status = got > status ? got : status;
	}
	look_close(&l);
	return status;
}

static int
run_freeze(struct plan *p)
{
	return steer_each(p, freeze_key);
}

static int
run_thaw(struct plan *p)
{
	if (!p->steer.yes && !confirm_can_ask()) {
		say_last(
		    "nobody can be asked, since this is no terminal: say -y; nothing was done");
		return STATUS_USAGE;
	}
	return steer_each(p, thaw_key);
}

const struct cmd cmd_freeze = {.name = "freeze",
    .help = "let nobody take a lock",
    .bit = CMD_FREEZE,
    .usage =
	"usage: dlock freeze [options] KEY...\n"
	"\n"
	"From now on nobody gets the lock KEY, also nobody who waits for it already; who\n"
	"holds it goes on until its command ends.  No process is left behind.\n"
	"\n"
	"KEY is one key: freeze has no patterns.  A key with a * ? or [ in it is named by -k.\n"
	"\n"
	"  dlock freeze deploy --why \"hotfix under review\" --for 24h\n"
	"  dlock thaw deploy\n",
    .notes = "Status: 0 it is frozen; 64 to 78 nothing was done.",
    .run = run_freeze};

const struct cmd cmd_thaw = {.name = "thaw",
    .help = "end a freeze",
    .bit = CMD_THAW,
    .usage = "usage: dlock thaw [options] KEY...\n"
	     "\n"
	     "Ends what dlock freeze began: whoever is first in line gets the lock.\n",
    .notes =
	"Status: 0 it is thawed; 1 it was not frozen, or you said no; 64 to 78 nothing was\n"
	"done.",
    .run = run_thaw};
