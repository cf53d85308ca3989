/* status.c - dlock status: who holds a lock, since when and why, and who waits. */
#include "cmd.h"

#include "look.h"

enum { STATUS_FREE = 1 };

struct status_rounds {
	struct rounds rounds; /* its key is the one that was looked at last */
	struct view view;
	uint64_t facts[KEYS_MAX]; /* as they were printed; 0: not yet */
	bool held;                /* one of the keys */
};

static enum rc
show_keys(struct rounds *r, FILE *to, struct fault *f)
{
	struct status_rounds *s = (struct status_rounds *)r;
	const struct plan *p = r->looking.plan;

	s->held = false;
	for (size_t i = 0; i < p->nkeys; i++) {
		enum rc rc = look_at(
		    &r->looking, p->keys[i], false, &s->view, look_patience(), f);
		uint64_t facts = show_facts(&s->view, r->looking.store, false);

		r->key = p->keys[i];
		if (rc != RC_OK && to && to != stdout)
			look_tell_failure(to, f);
		if (rc != RC_OK)
			return rc;
		s->held |= view_state(&s->view) != STATE_FREE;
		if ((to || s->facts[i] != facts) && p->look.json)
			show_json(to ? to : stdout, &s->view, r->looking.store, false);
		else if (to || s->facts[i] != facts)
			show_text(
			    to ? to : stdout, &s->view, r->looking.store, &r->screen);
		s->facts[i] = facts;
	}
	return RC_OK;
}

static int
run_status(struct plan *p)
{
	struct status_rounds s = {.rounds = {.key = p->keys[0], .show = show_keys}};
	int status;

	screen_open(&s.rounds.screen);
	status = look_rounds(&s.rounds, p);
	view_free(&s.view);
	return status || p->look.again || s.held ? status : STATUS_FREE;
}

const struct cmd cmd_status = {.name = "status",
    .help = "show who holds a lock, and who waits",
    .bit = CMD_STATUS,
    .usage =
	"usage: dlock status -k KEY [options]\n"
	"       dlock status KEY...\n"
	"\n"
	"Shows who holds the lock KEY, since when and why, who waits for it, whether it is\n"
	"frozen, and for jobs with --once how the last run ended.  Changes nothing.\n"
	"\n"
	"  dlock status -u redis://10.0.0.5 -k deploy\n"
	"  dlock status -b pg -k nightly -J | jq .last\n"
	"  dlock status -b file -k backup --watch\n",
    .notes =
	"Status: 0 held or frozen; 1 free (with several keys: all of them); 64 to 78 as\n"
	"dlock run has them.  With --watch: on a terminal the picture is drawn anew, elsewhere\n"
	"what has changed is printed, until a signal ends it.",
    .run = run_status};
