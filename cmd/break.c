/*
 * break.c - dlock break: takes a lock away from whoever holds it.
 *
 *	look    who holds it: these grants are meant, and no later ones
 *	ask     a person at a terminal; elsewhere -y or --token has said yes
 *	mark    each of them; whoever is no longer there has ended by itself
 *	wait    until none of them is left: its holder stops its command and
 *	        releases, or its lease ends
 *
 * Exclusion is never given up: the mark is read by the holder's next renewal (backend.h,
 * revoke).  With --force the grants are taken away at once instead, and it is said for
 * how long the command of each may still run beside the next one.
 */
#include "cmd.h"

#include "options.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "status.h"
#include "steer.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_FIRST (50 * NS_PER_MS)
#define PAUSE_MOST NS_PER_S
#define SPEAK_FIRST (500 * NS_PER_MS) /* who gives up at once needs no line */
/* beyond its lease, a holder that still has the lock does not heed us */
#define HEED (5 * NS_PER_S)

struct breaking {
	struct plan plan;
	struct looking looking;
	const char *key;
	struct view meant; /* what was shown: its holders are meant */
	struct view now;
	char record[RECORD_BYTES];
};

int
cmd_break_explain(void)
{
	puts(
	    "usage: dlock break [options] KEY\n"
	    "\n"
	    "Takes the lock KEY away from whoever holds it: its dlock stops the command\n"
	    "(--signal, KILL after --grace), releases, and ends with 79 saying who broke it\n"
	    "and why.  Waits until that is done, at the latest until the lease has ended.\n"
	    "\n"
	    "  dlock break deploy --why \"hotfix 4711\"\n"
	    "  dlock break -u redis://10.0.0.5 -k deploy --token 1763800000123456\n");
	options_print_help(stdout, CMD_BREAK);
	puts(
	    "\nStatus: 0 it is gone; 1 there was nothing to break, or you said no; 75 another holds\n"
	    "it by now (with --token), or --wait is over; 64 to 78 nothing was done.");
	return say_written();
}

/* ---- who is meant ---- */

static bool
is_same(const struct person *a, const struct person *b)
{
	if (a->token != b->token || !a->owner != !b->owner)
		return false;
	return !a->owner || strcmp(a->owner, b->owner) == 0;
}

static bool
is_to_be_broken(const struct breaking *b, const struct person *p)
{
	uint64_t token = b->plan.steer.token;

	return token == 0 || p->token == token;
}

/* The first of those who were meant and still hold it; NULL: none is left. */
static const struct person *
one_left(const struct breaking *b)
{
	for (size_t i = 0; i < b->meant.holders.n; i++)
		for (size_t k = 0; k < b->now.holders.n; k++)
			if (is_to_be_broken(b, &b->meant.holders.list[i]) &&
			    is_same(&b->meant.holders.list[i], &b->now.holders.list[k]))
				return &b->now.holders.list[k];
	return NULL;
}

/* There is one. */
static const struct person *
first_meant(const struct breaking *b)
{
	const struct person *p = b->meant.holders.list;

	while (!is_to_be_broken(b, p))
		p++;
	return p;
}

static size_t
count_meant(const struct breaking *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->meant.holders.n; i++)
		n += is_to_be_broken(b, &b->meant.holders.list[i]);
	return n;
}

/* "in 21s", "when its process ends" */
static const char *
describe_end(const struct view *v, const struct person *p, char *out, size_t size)
{
	int64_t left = view_left(v, p->until);
	char time[32];

	if (left < 0 || left == NEVER)
		snprintf(out, size, "when its process ends");
	else
		snprintf(
		    out, size, "in %s", parse_duration_text(left, time, sizeof time));
	return out;
}

static void
show_holders(const struct breaking *b)
{
	char key[400], who[700], ago[40], end[64];

	text_name(key, sizeof key, b->key);
	for (size_t i = 0; i < b->meant.holders.n; i++) {
		const struct person *p = &b->meant.holders.list[i];

		if (!is_to_be_broken(b, p))
			continue;
		fprintf(stderr, "%s is held by %s%s, token %" PRIu64 "; %s ends %s\n",
		    key, view_person(p, who, sizeof who),
		    steer_ago(&b->meant, p->since, ago, sizeof ago), p->token,
		    p->foreign ? "that" : "its lease",
		    describe_end(&b->meant, p, end, sizeof end));
	}
}

/* Nobody holds it who is meant; returns the exit status. */
static int
nothing_to_break(const struct breaking *b)
{
	const struct view *v = &b->meant;
	char key[400], who[700], what[400], until[64];

	text_name(key, sizeof key, b->key);
	if (v->unknown) {
		say_last("cannot break %s: it is in use by what is no lock (%s)", key,
		    text_clean(what, sizeof what, v->unknown, strlen(v->unknown)));
		return STATUS_PROTOCOL;
	}
	if (v->holders.all > 0) {
		say_last("%s is held by %s, token %" PRIu64 ", not by token %" PRId64
			 "; nothing was broken",
		    key, view_person(v->holders.list, who, sizeof who),
		    v->holders.list[0].token, b->plan.steer.token);
		return STATUS_BUSY;
	}
	if (v->is_frozen)
		say_last(
		    "%s is held by nobody, but frozen by %s %s: dlock thaw ends that",
		    key, view_person(&v->frozen, who, sizeof who),
		    show_until(v->frozen.until, until, sizeof until));
	else
		say_last("%s is held by nobody: there is nothing to break", key);
	return 1;
}

/* ---- asking, marking ---- */

static bool
may_break(const struct breaking *b)
{
	const struct plan_steer *s = &b->plan.steer;
	bool one = count_meant(b) == 1;

	if (s->yes || (s->token && !steer_can_ask()))
		return true;
	show_holders(b);
	if (s->force)
		return steer_ask(first_meant(b)->foreign
			? "Take it away at once, though the program that has it goes on?"
			: "Take it away at once, though its command may still run?");
	if (first_meant(b)->foreign)
		return steer_ask("Ask the program that has it to give it up?");
	return steer_ask(one ? "Stop its command and take the lock away?"
			     : "Stop their commands and take the lock away?");
}

/*
 * RC_OK: none of those meant will go on; they may have ended by themselves.  `done`: how
 * many were there still.
 */
static enum rc
revoke_all(struct breaking *b, size_t *done, struct fault *f)
{
	struct store *s = b->looking.store;

	*done = 0;
	for (size_t i = 0; i < b->meant.holders.n; i++) {
		const struct person *p = &b->meant.holders.list[i];
		struct target t = {b->key, p->token, p->owner};
		enum rc rc;

		if (!is_to_be_broken(b, p))
			continue;
		rc = s->backend->admin->revoke(s, &t, b->record, b->plan.steer.force,
		    instant_after(instant_now(), LOOK_PATIENCE), f);
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
	int64_t pause;
	bool silent; /* it was said that the server does not answer */
};

static void
speak_of(const struct breaking *b, const struct person *p, struct retry_words *w)
{
	char key[400], who[700], end[64];
	instant now = instant_now();

	text_name(key, sizeof key, b->key);
	if (now >= w->speak && !b->plan.show.quiet)
		say("waiting for %s to give %s up; its lease ends %s",
		    view_person(p, who, sizeof who), key,
		    describe_end(&b->now, p, end, sizeof end));
	if (now >= w->speak)
		w->speak = NEVER;
	if (now >= w->doubt && !b->plan.show.quiet)
		say("%s goes on renewing %s: it does not do as it is asked; dlock break --force takes the lock away",
		    view_person(p, who, sizeof who), key);
	if (now >= w->doubt)
		w->doubt = NEVER;
}

/* A server that is away comes back: then as if the first of those meant were left. */
static const struct person *
speak_of_silence(const struct breaking *b, struct retry_words *w, const struct fault *f)
{
	char words[700];

	if (!w->silent && !b->plan.show.quiet)
		say("%s; asking again",
		    text_clean(words, sizeof words, f->text, strlen(f->text)));
	w->silent = true;
	return first_meant(b);
}

/* Until none of those meant holds it any more. */
static enum rc
await_end(struct breaking *b, struct fault *f)
{
	instant now = instant_now(), until = instant_after(now, b->plan.wait.most);
	struct retry_words w = {
	    instant_after(now, SPEAK_FIRST), NEVER, PAUSE_FIRST, false};

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
		b->looking.host.wait(&b->looking.host, -1, 0,
		    instant_first(until, instant_after(instant_now(), w.pause)));
		w.pause = w.pause * 2 < PAUSE_MOST ? w.pause * 2 : PAUSE_MOST;
	}
}

/* ---- all of it ---- */

/* What is there now instead; returns the exit status. */
static int
tell_end(const struct breaking *b, size_t done)
{
	char key[400], who[700], time[32];
	const struct person *p = first_meant(b);
	int64_t left = view_left(&b->meant, p->until);

	text_name(key, sizeof key, b->key);
	if (b->plan.show.quiet)
		return 0;
	view_person(p, who, sizeof who);
	if (!done)
		say_last("%s: %s has ended by itself meanwhile", key, who);
	else if (!b->plan.steer.force)
		say_last("%s: %s has given it up", key, who);
	else if (p->foreign)
		say_last(
		    "%s was taken away from %s, which is no dlock: what it does with the lock is not stopped",
		    key, who);
	else if (left < 0 || left == NEVER)
		say_last(
		    "%s was taken away from %s, whose command may still run", key, who);
	else
		say_last("%s was taken away from %s, whose command may still run for %s",
		    key, who, parse_duration_text(left, time, sizeof time));
	return 0;
}

static int
break_open(struct breaking *b)
{
	struct fault f = {""};
	char key[400];
	size_t done;
	enum rc rc = look_at(&b->looking, b->key, true, &b->meant, NEVER, &f);

	if (rc != RC_OK)
		return steer_refuse(&b->looking, b->key, rc, &f);
	if (count_meant(b) == 0)
		return nothing_to_break(b);
	if (!may_break(b)) {
		say_last("nothing was broken");
		return 1;
	}
	rc = revoke_all(b, &done, &f);
	if (rc == RC_OK && !b->plan.steer.force)
		rc = await_end(b, &f);
	if (rc == RC_BUSY) {
		say_last("%s: its holder has been asked, but has not given it up yet",
		    text_name(key, sizeof key, b->key));
		return STATUS_BUSY;
	}
	return rc == RC_OK ? tell_end(b, done)
			   : steer_refuse(&b->looking, b->key, rc, &f);
}

/* NULL, or what is wrong with the words as a whole. */
static const char *
objection(const struct plan *p)
{
	if (p->nkeys > 1)
		return "break takes one key at a time";
	if (!p->steer.yes && !p->steer.token && !steer_can_ask())
		return "nobody can be asked, since this is no terminal: say -y, or --token N as dlock status shows it";
	return NULL;
}

int
cmd_break(char **words)
{
	static struct breaking b;
	struct fault f = {""};
	int status;
	enum rc rc;

	if (!look_plan(&b.plan, CMD_BREAK, words, cmd_break_explain, &status))
		return status;
	if (objection(&b.plan)) {
		say_last("%s; nothing was done", objection(&b.plan));
		return STATUS_USAGE;
	}
	b.key = b.plan.keys[0];
	record_write(b.record, &b.plan, 0);
	rc = look_open(
	    &b.looking, &b.plan, b.plan.steer.force ? CAP_FORCE : CAP_REVOKE, &f);
	if (rc != RC_OK)
		return steer_refuse(&b.looking, b.key, rc, &f);
	status = break_open(&b);
	look_close(&b.looking);
	return status;
}
