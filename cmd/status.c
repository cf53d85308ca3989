/* status.c - dlock status: who holds a lock, since when and why, and who waits. */
#include "cmd.h"

#include "exit.h"
#include "look.h"
#include "parse.h"
#include "show.h"

#include <stdio.h>

struct status_rounds {
	struct rounds rounds; /* rounds.key is the key that was looked at last */
	struct view view;
	struct view switches[SWITCHES_MAX];
	uint64_t facts[KEYS_MAX]; /* show_facts() as last printed; 0: not yet */
	bool held;                /* a key is held */
	bool late;                /* a key was not done within --done-within */
};

/* ---- --done-within ---- */

/*
 * Was it done so recently?  A time far ahead of the clock says nothing, since the clock may have
 * been set back.
 */
static bool
is_done(const struct view *v, int64_t at, int64_t within)
{
	int64_t age = at > v->now ? view_left(v, at) : view_ago(v, at);

	return age >= 0 && age <= within;
}

/* "nightly: a run by alice ended with 0 at 2026-11-26 03:12:09 UTC, 2h05m ago" */
static bool
tell_done(FILE *to, const struct view *v, const struct looker *l)
{
	const struct person *p = view_good(v);
	int64_t within = l->params->look.done_within, at, ago;
	struct clean key = text_key(v->key);
	bool done;

	if (!p) {
		if (!l->params->look.json)
			fprintf(
			    to, "%s: no run is remembered that ended with 0\n", key.text);
		return false;
	}
	at = view_end(p);
	ago = view_ago(v, at);
	done = is_done(v, at, within);
	if (l->params->look.json)
		return done;
	fprintf(to, "%s: a run by %s ended with 0 at %s", key.text, view_person(p).text,
	    text_time(at).text);
	if (ago >= 0)
		fprintf(to, ", %s ago", parse_span(ago).text);
	if (!done)
		fprintf(to, ", not within %s", parse_span(within).text);
	fputs("\n", to);
	return done;
}

/* ---- the look ---- */

/* Runs look at these, too, before they begin; where nothing can be frozen, none is. */
static enum rc
look_at_switches(struct status_rounds *s, struct fault *f)
{
	struct looker *l = &s->rounds.looker;
	const struct params_before *b = &l->params->before;
	enum rc rc = RC_OK;

	if (l->params->look.done_within ||
	    params_check_switches(l->params, l->store, f) != RC_OK)
		return RC_OK;
	for (size_t i = 0; i < b->nswitches && rc == RC_OK; i++) {
		s->rounds.key = b->switches[i];
		rc = look_at(
		    l, b->switches[i], true, &s->switches[i], look_patience(l), f);
	}
	return rc;
}

static enum rc
show_keys(struct rounds *r, FILE *to, struct fault *f)
{
	struct status_rounds *s = (struct status_rounds *)r;
	const struct params *p = r->looker.params;
	enum rc rc;

	s->held = false;
	rc = look_at_switches(s, f);
	if (rc != RC_OK && to && to != stdout)
		look_tell_failure(to, f);
	for (size_t i = 0; i < p->nkeys && rc == RC_OK; i++) {
		uint64_t facts;

		r->key = p->keys[i];
		rc = look_at(&r->looker, p->keys[i], false, &s->view,
		    look_patience(&r->looker), f);
		if (rc == RC_OK && !p->look.done_within)
			look_around(&r->looker, &s->view, look_patience(&r->looker));
		s->view.switches = s->switches;
		s->view.nswitches = s->switches[0].key ? p->before.nswitches : 0;
		facts = show_facts(&s->view, r->looker.store, false);
		if (rc != RC_OK && to && to != stdout)
			look_tell_failure(to, f);
		if (rc != RC_OK)
			return rc;
		s->held |= view_state(&s->view) != STATE_FREE;
		if (p->look.done_within)
			s->late |= !tell_done(to, &s->view, &r->looker);
		if ((to || s->facts[i] != facts) && p->look.json)
			show_json(to ? to : stdout, &s->view, r->looker.store, false,
			    instant_epoch());
		else if (!p->look.done_within && (to || s->facts[i] != facts))
			show_text(
			    to ? to : stdout, &s->view, r->looker.store, &r->screen);
		s->facts[i] = facts;
	}
	return rc;
}

static int
run_status(struct params *p)
{
	struct status_rounds s = {.rounds = {.key = p->keys[0], .show = show_keys}};
	int status;

	screen_open(&s.rounds.screen);
	status = look_rounds(&s.rounds, p);
	view_free(&s.view);
	for (size_t i = 0; i < SWITCHES_MAX; i++)
		view_free(&s.switches[i]);
	if (status == 0 && !p->look.again && !s.held)
		look_doubt(p);
	if (status == 0 && p->look.done_within)
		return s.late ? STATUS_LATE : 0;
	return status || p->look.again || s.held ? status : STATUS_FREE;
}

const struct cmd cmd_status = {.help = "show who holds a lock, and who waits",
    .bit = CMD_STATUS,
    .usage =
	"usage: dlock status -k KEY [options]\n"
	"       dlock status KEY...\n"
	"\n"
	"Shows who holds the lock KEY, since when and why, who waits for it, whether it is\n"
	"frozen, and for jobs with --once how the last run ended.  Changes nothing.\n"
	"With --done-within it asks instead whether a job has been done.\n"
	"\n"
	"  dlock status -u redis://10.0.0.5 -k deploy\n"
	"  dlock status -b pg -k nightly -J | jq .last\n"
	"  dlock status -b file -k backup --watch\n"
	"  dlock status -b pg nightly --done-within 26h || alert\n",
    .notes =
	"Status: 0 held or frozen; 1 free (with several keys: all of them); 64 to 78 as\n"
	"dlock run has them.  With --done-within: 0 a run with --once or --cooldown ended\n"
	"with 0 so recently by the server's clock, 1 none did (of one of the keys).\n"
	"With --watch: on a terminal the picture is drawn anew, elsewhere\n"
	"what has changed is printed, until a signal ends it.",
    .run = run_status};
