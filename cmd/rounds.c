/* rounds.c - shows what a subcommand looks at, once or again and again. */
#include "rounds.h"

#include "exit.h"
#include "say.h"
#include "text.h"

void
rounds_tell_failure(FILE *to, const struct fault *f)
{
	fprintf(to, "dlock: %s; trying again\n", text_shown(f->text).text);
}

/* One round as a picture; a failure of the first round is said by the caller. */
static enum rc
draw(struct rounds *r, bool first, struct fault *f)
{
	FILE *to = screen_begin(&r->screen);
	enum rc rc;

	if (!to)
		return fault_set(f, RC_SYSTEM, "no memory");
	rc = r->show(r, to, f);
	if (rc != RC_OK && first)
		screen_drop(&r->screen);
	else if (!screen_draw(&r->screen))
		return fault_set(f, RC_SYSTEM, "cannot write to standard output");
	return rc;
}

static int
refuse_round(const struct rounds *r, enum rc rc, const struct fault *f)
{
	return look_refuse(r->looking.plan, r->what, r->key, rc, f);
}

static int
show_again(struct rounds *r)
{
	bool draws = r->screen.moves && !r->looking.plan->look.json, told = false;
	struct fault f;

	for (bool first = true;; first = false) {
		enum rc rc = draws ? draw(r, first, &f) : r->show(r, NULL, &f);
		int status;

		if (rc != RC_OK && (first || rc != RC_AGAIN))
			return refuse_round(r, rc, &f);
		if (say_written() != 0)
			return STATUS_SYSTEM;
		if (rc != RC_OK && !draws && !told)
			refuse_round(r, rc, &f);
		told = rc != RC_OK;
		status = look_pause(&r->looking);
		if (status != 0)
			return status;
	}
}

int
rounds_run(struct rounds *r, const struct plan *p)
{
	struct fault f;
	enum rc rc = look_open(&r->looking, p, 0, &f);
	int status;

	if (rc != RC_OK)
		return look_refuse(p, r->what, r->key, rc, &f);
	if (p->look.again) {
		status = show_again(r);
	} else if ((rc = r->show(r, stdout, &f)) == RC_OK) {
		status = say_written();
	} else {
		fflush(stdout); /* what has been found before */
		status = refuse_round(r, rc, &f);
	}
	look_close(&r->looking);
	return status;
}
