/* forget.c - dlock forget: makes a job due again that counts as done. */
#include "cmd.h"

#include "exit.h"
#include "look.h"
#include "options.h"
#include "say.h"
#include "text.h"

#include <stdio.h>

/* "the run of ID 2026-11-26 under nightly", "all runs under nightly" */
static const char *
describe_runs(const struct plan *p, char *out, size_t size)
{
	char id[900];

	if (p->word)
		snprintf(out, size, "the run of ID %s under %s",
		    text_name(id, sizeof id, p->word), text_key(p->keys[0]).text);
	else
		snprintf(out, size, "all runs under %s", text_key(p->keys[0]).text);
	return out;
}

/* Shows the person at the terminal what was run last; false: the answer is no. */
static bool
may_forget(struct looking *l, const char *runs)
{
	const struct plan *p = l->plan;
	struct view v = {0};
	struct fault f;
	char question[2000];

	if (p->steer.yes)
		return true;
	if (look_at(l, p->keys[0], true, &v, NEVER, &f) == RC_OK && v.has_last)
		fprintf(stderr,
		    "the last run was by %s, and ended at %s with status %d\n",
		    view_person(&v.last).text, text_time(v.last.until).text,
		    (int)v.last.status);
	view_free(&v);
	snprintf(question, sizeof question, "Forget %s, so that it is due again?", runs);
	return say_asks(question);
}

static int
forget_open(struct looking *l)
{
	const struct plan *p = l->plan;
	struct store *s = l->store;
	struct fault f = {""};
	char runs[1700];
	enum rc rc;

	describe_runs(p, runs, sizeof runs);
	if (!may_forget(l, runs)) {
		say_last("nothing was forgotten");
		return STATUS_NOTHING;
	}
	rc = s->backend->admin->forget(s, p->keys[0], p->word, look_patience(), &f);
	if (rc == RC_LOST) {
		say_last("%s: none is remembered", runs);
		return STATUS_NOTHING;
	}
	if (rc != RC_OK)
		return look_refuse(l, p->keys[0], rc, &f);
	if (!p->show.quiet)
		say("forgot %s", runs);
	return 0;
}

static int
run_forget(struct plan *p)
{
	struct looking l;
	struct fault f = {""};
	int status;
	enum rc rc;

	if (p->nkeys > 1) {
		say_last("forget takes one key at a time; nothing was done");
		return STATUS_USAGE;
	}
	if (!p->steer.yes && !say_can_ask()) {
		say_last(
		    "cannot ask you, since this is no terminal: say -y; nothing was done");
		return STATUS_USAGE;
	}
	rc = look_open(&l, p, CAP_JOB, &f);
	if (rc != RC_OK)
		return look_refuse(&l, p->keys[0], rc, &f);
	status = forget_open(&l);
	look_close(&l);
	return status;
}

const struct cmd cmd_forget = {.name = "forget",
    .help = "make a job due again",
    .bit = CMD_FORGET,
    .usage =
	"usage: dlock forget [options] KEY [ID]\n"
	"\n"
	"Forgets the runs of KEY with --once ID, or all of KEY, so that dlock run --once and\n"
	"--cooldown run the job again.  A run that goes on is not disturbed.\n"
	"\n"
	"  dlock ls --jobs 'nightly*'\n"
	"  dlock forget nightly 2026-11-26\n",
    .notes =
	"Status: 0 forgotten; 1 nothing was remembered, or you said no; 64 to 78 nothing was\n"
	"done.",
    .run = run_forget};
