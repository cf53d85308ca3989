/*
 * freeze.c - dlock freeze and dlock thaw: nobody may take a lock, until somebody says so.
 *
 * A freeze needs no process.  Whoever holds the lock goes on; whoever waits, or comes
 * later, waits for the thaw (or the end that was given).
 */
#include "cmd.h"

#include "options.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "status.h"
#include "steer.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

int
cmd_freeze_explain(void)
{
	puts(
	    "usage: dlock freeze [options] KEY...\n"
	    "\n"
	    "From now on nobody gets the lock KEY, also nobody who waits for it already; who\n"
	    "holds it goes on until its command ends.  No process is left behind.\n"
	    "\n"
	    "KEY is one key: freeze has no patterns.  A key with a * ? or [ in it is named by -k.\n"
	    "\n"
	    "  dlock freeze deploy --why \"hotfix under review\" --for 24h\n"
	    "  dlock thaw deploy\n");
	options_print_help(stdout, CMD_FREEZE);
	puts("\nStatus: 0 it is frozen; 64 to 78 nothing was done.");
	return say_written();
}

int
cmd_thaw_explain(void)
{
	puts("usage: dlock thaw [options] KEY...\n"
	     "\n"
	     "Ends what dlock freeze began: whoever is first in line gets the lock.\n");
	options_print_help(stdout, CMD_THAW);
	puts(
	    "\nStatus: 0 it is thawed; 1 it was not frozen, or you said no; 64 to 78 nothing was\n"
	    "done.");
	return say_written();
}

/* "held by alice (...)", or "held by 3, first alice (...)" */
static void
describe_holders(const struct view *v, char *out, size_t size)
{
	char who[700];

	view_person(v->holders.list, who, sizeof who);
	if (v->holders.all == 1)
		snprintf(out, size, "held by %s", who);
	else
		snprintf(out, size, "held by %llu, first %s",
		    (unsigned long long)v->holders.all, who);
}

/* ", instead of by bob@laptop "weekend" until 2026-..."; "": it was not frozen */
static void
describe_replaced(const struct view *before, char *out, size_t size)
{
	char who[700], until[64];

	*out = '\0';
	if (before->is_frozen)
		snprintf(out, size, ", instead of by %s %s",
		    view_person(&before->frozen, who, sizeof who),
		    show_until(before->frozen.until, until, sizeof until));
}

/* " for 2d12h, until 2026-...", or " until dlock thaw"; what the server tells counts. */
static void
describe_length(const struct plan *p, const struct view *v, char *out, size_t size)
{
	char time[32], until[64] = "";

	if (v->is_frozen || p->steer.length == NEVER)
		show_until(
		    v->is_frozen ? v->frozen.until : EPOCH_NONE, until, sizeof until);
	if (p->steer.length == NEVER)
		snprintf(out, size, " %s", until);
	else
		snprintf(out, size, " for %s%s%s",
		    parse_duration_text(p->steer.length, time, sizeof time),
		    *until ? ", " : "", until);
}

/* Says what was done, whose freeze that has replaced, and who has the lock still. */
static void
tell_frozen(struct looking *l, const char *key, const struct view *before)
{
	char name[400], held[800], end[120], replaced[800];
	struct view v = {0};
	struct fault f;
	bool seen;

	if (l->plan->show.quiet)
		return;
	text_name(name, sizeof name, key);
	describe_replaced(before, replaced, sizeof replaced);
	seen = look_at(l, key, true, &v, NEVER, &f) == RC_OK;
	describe_length(l->plan, &v, end, sizeof end);
	if (seen && v.holders.n > 0) {
		describe_holders(&v, held, sizeof held);
		say("%s is frozen%s%s; it is still %s", name, end, replaced, held);
	} else {
		say("%s is frozen%s%s", name, end, replaced);
	}
	view_free(&v);
}

static int
freeze_key(struct looking *l, const char *key, const char *record)
{
	struct fault f = {""};
	struct view before = {0};
	enum rc rc;

	/* only to be told of: that it cannot be seen is no reason not to freeze it */
	look_at(l, key, true, &before, instant_after(instant_now(), LOOK_PATIENCE), &f);
	rc = l->store->backend->admin->freeze(l->store, key, record,
	    l->plan->steer.length, instant_after(instant_now(), LOOK_PATIENCE), &f);
	if (rc == RC_OK)
		tell_frozen(l, key, &before);
	view_free(&before);
	return rc == RC_OK ? 0 : steer_refuse(l, key, rc, &f);
}

/* Nobody is known to have frozen it; returns the exit status. */
static int
nothing_to_thaw(const struct view *v, const char *name)
{
	char what[400];

	if (!v->unknown) {
		say_last("%s is not frozen", name);
		return STATUS_NOTHING;
	}
	say_last("cannot thaw %s: it is in use by what is no lock (%s)", name,
	    text_clean(what, sizeof what, v->unknown, strlen(v->unknown)));
	return STATUS_PROTOCOL;
}

/* Another freeze than the one that was shown?  What cannot be seen now, thaw will tell. */
static bool
is_another(struct looking *l, const char *key, const struct view *shown)
{
	struct view v = {0};
	struct fault f;
	bool another = look_at(l, key, true, &v, NEVER, &f) == RC_OK && v.is_frozen &&
	    v.frozen.since != shown->frozen.since;

	view_free(&v);
	return another;
}

/* Shows who has frozen it; false: nobody has, or the person at the terminal says no. */
static bool
may_thaw(struct looking *l, const char *key, int *status)
{
	char name[400], who[700], ago[40], until[64];
	struct view v = {0};
	struct fault f = {""};
	enum rc rc = look_at(l, key, true, &v, NEVER, &f);
	bool may = false;

	*status = 1;
	text_name(name, sizeof name, key);
	if (rc != RC_OK) {
		*status = steer_refuse(l, key, rc, &f);
	} else if (!v.is_frozen) {
		*status = nothing_to_thaw(&v, name);
	} else if (l->plan->steer.yes) {
		may = true;
	} else {
		fprintf(stderr, "%s is frozen by %s%s, %s\n", name,
		    view_person(&v.frozen, who, sizeof who),
		    steer_ago(&v, v.frozen.since, ago, sizeof ago),
		    show_until(v.frozen.until, until, sizeof until));
		may = steer_ask("Thaw it?");
		if (may && is_another(l, key, &v)) {
			say_last("%s has been frozen anew meanwhile, and stays so", name);
			may = false;
		} else if (!may) {
			say_last("%s stays frozen", name);
		}
	}
	view_free(&v);
	return may;
}

static int
thaw_key(struct looking *l, const char *key, const char *record)
{
	char name[400];
	struct fault f = {""};
	int status;
	enum rc rc;

	(void)record;
	if (!may_thaw(l, key, &status))
		return status;
	rc = l->store->backend->admin->thaw(
	    l->store, key, instant_after(instant_now(), LOOK_PATIENCE), &f);
	if (rc != RC_OK && rc != RC_LOST)
		return steer_refuse(l, key, rc, &f);
	text_name(name, sizeof name, key);
	if (rc == RC_LOST)
		say_last("%s is not frozen any more", name);
	else if (!l->plan->show.quiet)
		say("%s is thawed", name);
	return rc == RC_LOST;
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
		return look_refuse(p, options_cmd(p->cmd), p->keys[0], rc, &f);
	record_write(record, p, 0);
	for (size_t i = 0; i < p->nkeys; i++) {
		int got = one(&l, p->keys[i], record);

		status = got > status ? got : status;
	}
	look_close(&l);
	return status;
}

int
cmd_freeze(char **words)
{
	static struct plan plan;
	int status;

	if (!look_plan(&plan, CMD_FREEZE, words, cmd_freeze_explain, &status))
		return status;
	return steer_each(&plan, freeze_key);
}

int
cmd_thaw(char **words)
{
	static struct plan plan;
	int status;

	if (!look_plan(&plan, CMD_THAW, words, cmd_thaw_explain, &status))
		return status;
	if (!plan.steer.yes && !steer_can_ask()) {
		say_last(
		    "nobody can be asked, since this is no terminal: say -y; nothing was done");
		return STATUS_USAGE;
	}
	return steer_each(&plan, thaw_key);
}
