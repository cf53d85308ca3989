/* loss.c - tells in words that a lock is not renewed, or lost. */
#include "loss.h"

#include "cmd/parse.h"
#include "cmd/say.h"
#include "cmd/text.h"
#include "delivery.h"

#include <stdio.h>

/* ---- not renewed ---- */

/* With -v it is said at once, otherwise only if it lasts. */
void
loss_suspect(const struct run *r, struct threat *t, const struct msg *m)
{
	t->why = text_shown(m->text);
	if (r->params->show.verbose)
		say("%s: %s; the command may go on for %s, trying again",
		    params_keys(r->params).text, t->why.text,
		    parse_span(m->number > 0 ? m->number : 0).text);
	if ((!r->params->show.verbose || r->ward->is_hold) && !r->params->show.quiet)
		t->warn_at = instant_now() + m->number / 2;
}

void
loss_warn(const struct run *r, struct threat *t)
{
	int64_t left = atomic_load(&r->page->term_at) - instant_now();
	char whom[64] = "the command is", text[1600];

	t->warn_at = NEVER;
	if (left <= 0 || atomic_load(&r->page->stopping) ||
	    atomic_load(&r->page->end.finished))
		return;
	t->warned = true;
	if (delivery_receiver(r))
		snprintf(whom, sizeof whom, "process %d and its descendants are",
		    (int)r->ward->outsider->pid);
	snprintf(text, sizeof text, "%s: %s; if no renewal succeeds, %s stopped in %s",
	    params_keys(r->params).text, t->why.text, whom, parse_span(left).text);
	r->ward->ops->tell(r, text);
}

void
loss_trust(const struct run *r, struct threat *t)
{
	char text[750];

	snprintf(text, sizeof text, "%s: the lease was renewed after all",
	    params_keys(r->params).text);
	if (t->warned)
		r->ward->ops->tell(r, text);
	else if (r->params->show.verbose)
		say("%s", text);
	t->warn_at = NEVER;
	t->warned = false;
}

/* ---- lost ---- */

void
loss_tell(const struct run *r, const struct ending *e, const char *words)
{
	const struct heard heard = {.words = words, .where = page_where(r->page)};

	if (e->kind != END_LOST || !delivery_receiver(r) ||
	    atomic_exchange(&r->page->end.loss_told, true))
		return;
	if (!r->ward->ops->tell(r, verdict_of(r->params, e, &heard).line))
		atomic_store(&r->page->end.loss_told, false);
}
