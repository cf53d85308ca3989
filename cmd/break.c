/*
 * break.c - dlock break: takes a lock away from its holder.
 *
 *	look    which grants there are: those are broken, and no later ones
 *	ask     a person at a terminal; elsewhere -y or --token has said yes
 *	mark    each of them; a holder that is no longer there has ended by itself
 *	wait    until none of them is left: its holder stops its command and
 *	        releases, or its lease ends
 *
 * Exclusion is never given up: the mark is read by the holder's next renewal (backend.h,
 * revoke).  With --force the grants are taken away at once instead, and it is said for
 * how long the command of each may still run beside the next one.
 */
#include "cmd.h"

#include "confirm.h"
#include "exit.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SPEAK_FIRST (500 * NS_PER_MS) /* a holder that gives up at once needs no line */
/* beyond its lease, a holder that still has the lock does not heed us */
#define HEED (5 * NS_PER_S)

struct breaking {
	const struct plan *plan;
	struct looking looking;
	const char *key;
	struct view
	    meant; /* what was shown: its holders are meant, or the one of --token */
	struct view now;
	char record[RECORD_BYTES];
};

/* ---- which holders are meant ---- */

/* The next one behind `p`, or (NULL) the first; NULL: there is none. */
static const struct person *
next_meant(const struct breaking *b, const struct person *p)
{
	const struct people *all = &b->meant.holders;
	uint64_t token = b->plan->steer.token;

	for (p = p ? p + 1 : all->list; p < all->list + all->n; p++)
		if (token == 0 || p->token == token)
			return p;
	return NULL;
}

static bool
is_same(const struct person *a, const struct person *b)
{
	if (a->token != b->token || !a->owner != !b->owner)
		return false;
	return !a->owner || strcmp(a->owner, b->owner) == 0;
}

/* The first meant holder that is still there; NULL: none is left. */
static const struct person *
one_left(const struct breaking *b)
{
	for (const struct person *p = NULL; (p = next_meant(b, p));)
		for (size_t i = 0; i < b->now.holders.n; i++)
			if (is_same(p, &b->now.holders.list[i]))
				return &b->now.holders.list[i];
	return NULL;
}

/* "in 21s", "when its process ends" */
static struct brief
describe_end(const struct view *v, const struct person *p)
{
	int64_t left = view_left(v, p->until);
	struct brief b = {"when its process ends"};

	if (left >= 0 && left != NEVER)
		snprintf(b.text, sizeof b.text, "in %s", parse_span(left).text);
	return b;
}

/* No meant holder is there; returns the exit status. */
static int
nothing_to_break(const struct breaking *b)
{
	const struct view *v = &b->meant;
	const struct clean key = text_key(b->key);

	if (v->unknown) {
		say_last("cannot break %s: it is in use by what is no lock (%s)",
		    key.text, text_shown(v->unknown).text);
		return STATUS_PROTOCOL;
	}
	if (v->holders.all > 0) {
		say_last("%s is held by %s, token %" PRIu64 ", not by token %" PRId64
			 "; nothing was broken",
		    key.text, view_person(v->holders.list).text, v->holders.list[0].token,
		    b->plan->steer.token);
		return STATUS_BUSY;
	}
	if (v->is_frozen)
		say_last(
		    "%s is held by nobody, but frozen by %s %s: dlock thaw ends that",
		    key.text, view_person(&v->frozen).text,
		    text_until(v->frozen.until).text);
	else
		say_last("%s is held by nobody: there is nothing to break", key.text);
	return STATUS_NOTHING;
}

/* ---- asking, marking ---- */

static bool
may_break(const struct breaking *b)
{
	const struct plan_steer *s = &b->plan->steer;
	const struct person *first = next_meant(b, NULL);

	if (s->yes || (s->token && !confirm_can_ask()))
		return true;
	for (const struct person *p = NULL; (p = next_meant(b, p));)
		fprintf(stderr, "%s is held by %s%s, token %" PRIu64 "; %s ends %s\n",
		    text_key(b->key).text, view_person(p).text,
		    show_ago(&b->meant, p->since).text, p->token,
		    p->foreign ? "that" : "its lease", describe_end(&b->meant, p).text);
	if (s->force)
		return confirm_yes(first->foreign
			? "Take it away at once, though the program that has it goes on?"
			: "Take it away at once, though its command may still run?");
	if (first->foreign)
		return confirm_yes("Ask the program that has it to give it up?");
	return confirm_yes(!next_meant(b, first)
		? "Stop its command and take the lock away?"
		: "Stop their commands and take the lock away?");
}

/*
 * RC_OK: no meant holder will go on; some may have ended by themselves.  `done`: how many
 * were still there.
 */
static enum rc
revoke_all(struct breaking *b, size_t *done, struct fault *f)
{
	struct store *s = b->looking.store;

	*done = 0;
	for (const struct person *p = NULL; (p = next_meant(b, p));) {
		const struct target t = {b->key, p->token, p->owner};
		enum rc rc = s->backend->admin->revoke(
		    s, &t, b->record, b->plan->steer.force, look_patience(), f);

		if (rc != RC_OK && rc != RC_LOST)
			return rc;
		*done += rc == RC_OK;
	}
	return RC_OK;
}

/* ---- waiting for them to be gone ---- */

/* What a wait is about to say next, and when. */
struct retry_words {
	instant speak, doubt;
	bool silent; /* it was said that the server does not answer */
};

static void
speak_of(const struct breaking *b, const struct person *p, struct retry_words *w)
{
	instant now = instant_now();

	if (now >= w->speak && !b->plan->show.quiet)
		say("waiting for %s to give %s up; its lease ends %s",
		    view_person(p).text, text_key(b->key).text,
		    describe_end(&b->now, p).text);
	if (now >= w->speak)
		w->speak = NEVER;
	if (now >= w->doubt && !b->plan->show.quiet)
		say("%s goes on renewing %s: it does not do as it is asked; dlock break --force takes the lock away",
		    view_person(p).text, text_key(b->key).text);
	if (now >= w->doubt)
		w->doubt = NEVER;
}

/* A silent server may come back: until then the first meant holder counts as left. */
static const struct person *
speak_of_silence(const struct breaking *b, struct retry_words *w, const struct fault *f)
{
	if (!w->silent && !b->plan->show.quiet)
		say("%s; asking again", text_shown(f->text).text);
	w->silent = true;
	return next_meant(b, NULL);
}

/* Until no meant holder is left. */
static enum rc
await_end(struct breaking *b, struct fault *f)
{
	instant now = instant_now(), until = instant_after(now, b->plan->wait.most);
	struct retry_words w = {instant_after(now, SPEAK_FIRST), NEVER, false};

	for (bool first = true;; first = false) {
		enum rc rc = look_at(&b->looking, b->key, true, &b->now, NEVER, f);
		const struct person *left = one_left(b);

		if (rc == RC_AGAIN && instant_now() < until)
			left = speak_of_silence(b, &w, f);
		else if (rc != RC_OK || !left)
			return rc;
		if (first && left->until != EPOCH_NONE)
			w.doubt = instant_after(instant_now(),
			    instant_after(view_left(&b->now, left->until), HEED));
		if (instant_now() >= until)
			return RC_BUSY;
		speak_of(b, left, &w);
		look_rest(&b->looking, until);
	}
}

/* ---- all of it ---- */

static void
tell_end(const struct breaking *b, size_t done)
{
	const struct person *p = next_meant(b, NULL);
	const struct clean key = text_key(b->key), who = view_person(p);
	int64_t left = view_left(&b->meant, p->until);

	if (!done)
		say_last("%s: %s has ended by itself meanwhile", key.text, who.text);
	else if (!b->plan->steer.force)
		say_last("%s: %s has given it up", key.text, who.text);
	else if (p->foreign)
		say_last(
		    "%s was taken away from %s, which is no dlock: what it does with the lock is not stopped",
		    key.text, who.text);
	else if (left < 0 || left == NEVER)
		say_last("%s was taken away from %s, whose command may still run",
		    key.text, who.text);
	else
		say_last("%s was taken away from %s, whose command may still run for %s",
		    key.text, who.text, parse_span(left).text);
}

static int
break_open(struct breaking *b)
{
	struct fault f = {""};
	size_t done = 0;
	enum rc rc = look_at(&b->looking, b->key, true, &b->meant, NEVER, &f);

	if (rc == RC_OK && !next_meant(b, NULL))
		return nothing_to_break(b);
	if (rc == RC_OK && !may_break(b)) {
		say_last("nothing was broken");
		return STATUS_NOTHING;
	}
	if (rc == RC_OK)
		rc = revoke_all(b, &done, &f);
	if (rc == RC_OK && !b->plan->steer.force)
		rc = await_end(b, &f);
	if (rc == RC_BUSY) {
		say_last("%s: its holder has been asked, but has not given it up yet",
		    text_key(b->key).text);
		return STATUS_BUSY;
	}
	if (rc != RC_OK)
		return look_refuse(b->plan, NULL, b->key, rc, &f);
	if (!b->plan->show.quiet)
		tell_end(b, done);
	return 0;
}

static int
run_break(struct plan *p)
{
	static struct breaking b;
	struct fault f = {""};
	int status;
	enum rc rc;

	if (p->nkeys > 1) {
		say_last("break takes one key at a time; nothing was done");
		return STATUS_USAGE;
	}
	if (!p->steer.yes && !p->steer.token && !confirm_can_ask()) {
		say_last(
		    "nobody can be asked, since this is no terminal: say -y, or --token N as dlock status shows it; nothing was done");
		return STATUS_USAGE;
	}
	b.plan = p;
	b.key = p->keys[0];
	record_write(b.record, p, 0);
	rc = look_open(&b.looking, p, p->steer.force ? CAP_FORCE : CAP_REVOKE, &f);
	if (rc != RC_OK)
		return look_refuse(p, NULL, b.key, rc, &f);
	status = break_open(&b);
	look_close(&b.looking);
	return status;
}

const struct cmd cmd_break = {.name = "break",
    .help = "take a lock away from its holder",
    .bit = CMD_BREAK,
    .usage =
	"usage: dlock break [options] KEY\n"
	"\n"
	"Takes the lock KEY away from its holder: its dlock stops the command\n"
	"(--signal, KILL after --grace), releases, and ends with 79 saying who broke it\n"
	"and why.  Waits until that is done, at the latest until the lease has ended.\n"
	"\n"
	"  dlock break deploy --why \"hotfix 4711\"\n"
	"  dlock break -u redis://10.0.0.5 -k deploy --token 1763800000123456\n",
    .notes =
	"Status: 0 it is gone; 1 there was nothing to break, or you said no; 75 another holds\n"
	"it by now (with --token), or --wait is over; 64 to 78 nothing was done.",
    .run = run_break};
