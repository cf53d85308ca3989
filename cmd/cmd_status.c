/* cmd_status.c - dlock status: who holds a lock, since when and why, and who waits. */
#include "cmd.h"

#include "options.h"
#include "say.h"
#include "show.h"
#include "status.h"
#include "text.h"

#include <string.h>

enum { STATUS_FREE = 1 };

int
cmd_status_explain(void)
{
	puts(
	    "usage: dlock status -k KEY [options]\n"
	    "       dlock status KEY...\n"
	    "\n"
	    "Tells who holds the lock KEY, since when and why, who waits for it, whether it is\n"
	    "frozen, and of jobs with --once how the last run ended.  Changes nothing.\n"
	    "\n"
	    "  dlock status -u redis://10.0.0.5 -k deploy\n"
	    "  dlock status -b pg -k nightly -J | jq .last\n"
	    "  dlock status -b file -k backup --watch\n");
	options_print_help(stdout, CMD_STATUS);
	puts(
	    "\nStatus: 0 held or frozen; 1 free (with several keys: all of them); 64 to 78 as\n"
	    "dlock run has them.  With --watch: on a terminal the picture is drawn anew, elsewhere\n"
	    "what has changed is printed, until a signal ends it.");
	return say_written();
}

struct status_look {
	const struct plan *plan;
	struct looking looking;
	struct view view;
	struct screen screen;
	uint64_t facts[KEYS_MAX]; /* as they were printed; 0: not yet */
	const char *failed;       /* the key that could not be looked at */
	bool held;                /* one of the keys */
};

static void
print_key(struct status_look *s, FILE *to)
{
	if (s->plan->look.json)
		show_json(to, &s->view, &s->looking, false);
	else
		show_text(to, &s->view, &s->looking, &s->screen);
}

/* Looks at all keys in turn; what is shown goes to `to`, NULL: what has changed to stdout. */
static enum rc
look_at_keys(struct status_look *s, FILE *to, struct fault *f)
{
	s->held = false;
	for (size_t i = 0; i < s->plan->nkeys; i++) {
		instant until = instant_after(instant_now(), LOOK_PATIENCE);
		enum rc rc = look_at(
		    &s->looking, s->plan->keys[i], false, &s->view, until, f);

		s->failed = s->plan->keys[i];
		if (rc != RC_OK)
			return rc;
		s->held |= view_state(&s->view) != STATE_FREE;
		if (to || s->facts[i] != show_facts(&s->view))
			print_key(s, to ? to : stdout);
		s->facts[i] = show_facts(&s->view);
	}
	return RC_OK;
}

/* One round of --watch on a terminal; what is wrong with the first is said elsewhere. */
static enum rc
draw_keys(struct status_look *s, bool first, struct fault *f)
{
	FILE *to = screen_begin(&s->screen);
	char clean[700];
	enum rc rc;

	if (!to)
		return fault_set(f, RC_SYSTEM, "no memory");
	rc = look_at_keys(s, to, f);
	if (rc != RC_OK && first) {
		screen_drop(&s->screen);
		return rc;
	}
	if (rc != RC_OK)
		fprintf(to, "dlock: %s; trying again\n",
		    text_clean(clean, sizeof clean, f->text, strlen(f->text)));
	return screen_draw(&s->screen)
	    ? rc
	    : fault_set(f, RC_SYSTEM, "cannot write to standard output");
}

static int
refuse_key(const struct status_look *s, enum rc rc, const struct fault *f)
{
	return look_refuse(s->plan, "look at", s->failed, rc, f);
}

/* Ends with a signal, or where the very first look fails. */
static int
watch_keys(struct status_look *s)
{
	bool draws = s->screen.moves && !s->plan->look.json, told = false;
	struct fault f;
	int status;

	for (bool first = true;; first = false) {
		enum rc rc = draws ? draw_keys(s, first, &f) : look_at_keys(s, NULL, &f);

		if ((rc != RC_OK && (first || rc != RC_AGAIN)) || say_written() != 0)
			return rc != RC_OK ? refuse_key(s, rc, &f) : STATUS_SYSTEM;
		if (rc != RC_OK && !draws && !told)
			refuse_key(s, rc, &f);
		told = rc != RC_OK;
		status = look_pause(&s->looking);
		if (status != 0)
			return status;
	}
}

static int
look_once(struct status_look *s)
{
	struct fault f;
	enum rc rc = look_at_keys(s, stdout, &f);
	int written;

	if (rc != RC_OK) {
		fflush(stdout); /* of other keys */
		return refuse_key(s, rc, &f);
	}
	written = say_written();
	return written ? written : s->held ? 0 : STATUS_FREE;
}

int
cmd_status(char **words)
{
	struct plan plan;
	struct status_look s = {.plan = &plan};
	struct fault f;
	enum rc rc;
	int status;

	if (!look_plan(&plan, CMD_STATUS, words, cmd_status_explain, &status))
		return status;
	screen_open(&s.screen);
	rc = look_open(&s.looking, &plan, 0, &f);
	if (rc != RC_OK)
		return look_refuse(&plan, "look at", plan.keys[0], rc, &f);
	status = plan.look.again ? watch_keys(&s) : look_once(&s);
	look_close(&s.looking);
	view_free(&s.view);
	return status;
}
