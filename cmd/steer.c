/*
 * steer.c - dlock break, freeze and thaw: takes a lock away, or lets nobody take it.
 *
 * break
 *	look    which grants there are: those are broken, and no later ones
 *	ask     a person at a terminal; elsewhere -y or --token has said yes
 *	mark    each of them; a holder that is no longer there has ended by itself
 *	wait    until none of them is left: its holder stops its command and
 *	        releases, or its lease ends
 *
 * Exclusion is never given up: the mark is read by the holder's next renewal (backend.h,
 * revoke).  With --force the grants are taken away at once instead, and it is said for
 * how long the command of each may still run beside the next one.
 *
 * freeze, thaw
 *	A freeze needs no process.  The holders of the lock go on; all others, also those
 *	that wait already, wait for the thaw (or for the end that was given).
 */
#include "cmd.h"

#include "exit.h"
#include "look.h"
#include "options.h"
#include "parse.h"
#include "say.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what all of them say ---- */

/* -J: what was done to a key; `v`: what is to be told of it, NULL: nothing.  Returns the status. */
static int
tell_object(const struct looking *l, const struct plan *p, const char *key,
    const struct view *v, int status)
{
	const struct steered steered = {.action = options_cmd(p->cmd),
	    .key = key,
	    .status = status,
	    .backend = p->site.backend,
	    .store = l->store,
	    .view = v};
	int written;

	if (!p->look.json)
		return status;
	show_steered(stdout, &steered);
	written = say_written();
	return status ? status : written;
}

/* The key is in use by what is no lock; returns the exit status. */
static int
refuse_unknown(const struct plan *p, const struct view *v)
{
	say_last("cannot %s %s: something that is no lock is in its place (%s)",
	    options_cmd(p->cmd), text_key(v->key).text, text_shown(v->unknown).text);
	return STATUS_PROTOCOL;
}

/* ---- break: which holders are meant ---- */

#define SPEAK_FIRST (500 * NS_PER_MS) /* a holder that gives up at once needs no line */
/* beyond its lease, a holder that still has the lock does not heed us */
#define HEED (5 * NS_PER_S)

struct breaking {
	struct looking looking;
	const char *key;
	struct view meant; /* as shown: its holders are meant, or the one of --token */
	struct view now;
	char record[RECORD_BYTES];
	instant speak, doubt; /* when a wait says something next */
	bool silent;          /* it was said that the server does not answer */
	bool seen;            /* `meant` is known */
};

/* The next one behind `p`, or (NULL) the first; NULL: there is none. */
static const struct person *
next_meant(const struct breaking *b, const struct person *p)
{
	const struct people *all = &b->meant.holders;
	int64_t token = b->looking.plan->steer.token;

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
	const struct person *first = view_holder(v);
	const struct clean key = text_key(b->key);

	if (v->unknown)
		return refuse_unknown(b->looking.plan, v);
	if (first) {
		say_last("%s is held by %s, token %" PRId64 ", not by token %" PRId64
			 "; nothing was broken",
		    key.text, view_person(first).text, first->token,
		    b->looking.plan->steer.token);
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

/* ---- break: asking, marking ---- */

static bool
may_break(const struct breaking *b)
{
	const struct plan_steer *s = &b->looking.plan->steer;
	const struct person *first = next_meant(b, NULL);

	if (s->yes || (s->token && !say_can_ask()))
		return true;
	for (const struct person *p = NULL; (p = next_meant(b, p));)
		fprintf(stderr, "%s is held by %s%s, token %" PRId64 "; %s ends %s\n",
		    text_key(b->key).text, view_person(p).text,
		    show_ago(&b->meant, p->since).text, p->token,
		    p->foreign ? "that" : "its lease", describe_end(&b->meant, p).text);
	if (s->force)
		return say_asks(first->foreign
			? "Take it away at once, though the program that has it goes on?"
			: "Take it away at once, though its command may still run?");
	if (first->foreign)
		return say_asks("Ask the program that has it to give it up?");
	return say_asks(!next_meant(b, first)
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
		    s, &t, b->record, b->looking.plan->steer.force, look_patience(), f);

		if (rc != RC_OK && rc != RC_LOST)
			return rc;
		*done += rc == RC_OK;
	}
	return RC_OK;
}

/* ---- break: waiting for them to be gone ---- */

static void
speak_of(struct breaking *b, const struct person *p)
{
	instant now = instant_now();

	if (now >= b->speak) {
		say("waiting for %s to give %s up; its lease ends %s",
		    view_person(p).text, text_key(b->key).text,
		    describe_end(&b->now, p).text);
		b->speak = NEVER;
	}
	if (now >= b->doubt) {
		say("%s goes on renewing %s, although it was asked to give it up; dlock break --force takes the lock away",
		    view_person(p).text, text_key(b->key).text);
		b->doubt = NEVER;
	}
}

/* A silent server may come back: until then the first meant holder counts as left. */
static const struct person *
speak_of_silence(struct breaking *b, const struct fault *f)
{
	if (!b->silent && !b->looking.plan->show.quiet)
		say("%s; asking again", text_shown(f->text).text);
	b->silent = true;
	return next_meant(b, NULL);
}

/* Until no meant holder is left. */
static enum rc
await_end(struct breaking *b, struct fault *f)
{
	instant now = instant_now(),
		until = instant_after(now, b->looking.plan->wait.most);

	b->speak = instant_after(now, SPEAK_FIRST);
	b->doubt = NEVER;
	for (bool first = true;; first = false) {
		enum rc rc = look_at(&b->looking, b->key, true, &b->now, NEVER, f);
		const struct person *left = one_left(b);

		if (rc == RC_AGAIN && instant_now() < until)
			left = speak_of_silence(b, f);
		else if (rc != RC_OK || !left)
			return rc;
		if (first && left->until != EPOCH_NONE)
			b->doubt = instant_after(instant_now(),
			    instant_after(view_left(&b->now, left->until), HEED));
		if (instant_now() >= until)
			return RC_BUSY;
		if (!b->looking.plan->show.quiet)
			speak_of(b, left);
		look_rest(&b->looking, until);
	}
}

/* ---- break: all of it ---- */

static void
tell_end(const struct breaking *b, size_t done)
{
	const struct person *p = next_meant(b, NULL);
	const struct clean key = text_key(b->key), who = view_person(p);
	int64_t left = view_left(&b->meant, p->until);

	if (!done)
		say_last("%s: %s has ended by itself meanwhile", key.text, who.text);
	else if (!b->looking.plan->steer.force)
		say_last("%s: %s has given the lock up", key.text, who.text);
	else if (p->foreign)
		say_last(
		    "%s was taken away from %s, a program other than dlock, which may go on working under it",
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

	b->seen = rc == RC_OK;
	if (rc == RC_OK && !next_meant(b, NULL))
		return nothing_to_break(b);
	if (rc == RC_OK && !may_break(b)) {
		say_last("nothing was broken");
		return STATUS_NOTHING;
	}
	if (rc == RC_OK)
		rc = revoke_all(b, &done, &f);
	if (rc == RC_OK && !b->looking.plan->steer.force)
		rc = await_end(b, &f);
	if (rc == RC_BUSY) {
		say_last("%s: its holder has been asked, but has not given it up yet",
		    text_key(b->key).text);
		return STATUS_BUSY;
	}
	if (rc != RC_OK)
		return look_refuse(&b->looking, b->key, rc, &f);
	if (!b->looking.plan->show.quiet)
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
	if (!p->steer.yes && !p->steer.token && !say_can_ask()) {
		say_last(
		    "cannot ask you, since this is no terminal: say -y, or --token N, which dlock status shows; nothing was done");
		return STATUS_USAGE;
	}
	b.key = p->keys[0];
	record_write(b.record, p, 0);
	rc = look_open(&b.looking, p, p->steer.force ? CAP_FORCE : CAP_REVOKE, &f);
	if (rc != RC_OK)
		return tell_object(
		    &b.looking, p, b.key, NULL, look_refuse(&b.looking, b.key, rc, &f));
	status = break_open(&b);
	status = tell_object(&b.looking, p, b.key, b.seen ? &b.meant : NULL, status);
	look_close(&b.looking);
	return status;
}

/* ---- freeze ---- */

/* "deploy is frozen until dlock thaw, instead of by bob@laptop until ...; it is still held by alice" */
static void
tell_frozen(const struct looking *l, const char *key, const struct view *before,
    const struct view *after)
{
	int64_t length = l->plan->steer.length;
	const struct person *old = &before->frozen;
	char span[48] = "", end[70] = "", replaced[800] = "", held[720] = "";
	struct view none = {0}, v = after ? *after : none;

	if (length != NEVER)
		snprintf(span, sizeof span, " for %s", parse_span(length).text);
	if (v.is_frozen || length == NEVER) /* what the server tells counts */
		snprintf(end, sizeof end, "%s %s", *span ? "," : "",
		    text_until(v.is_frozen ? v.frozen.until : EPOCH_NONE).text);
	if (before->is_frozen)
		snprintf(replaced, sizeof replaced, ", instead of by %s %s",
		    view_person(old).text, text_until(old->until).text);
	if (v.holders.n > 0 && v.holders.all == 1)
		snprintf(held, sizeof held, "%s", view_person(v.holders.list).text);
	else if (v.holders.n > 0)
		snprintf(held, sizeof held, "%llu, first %s",
		    (unsigned long long)v.holders.all, view_person(v.holders.list).text);
	say("%s is frozen%s%s%s%s%s", text_key(key).text, span, end, replaced,
	    *held ? "; it is still held by " : "", held);
}

static int
freeze_key(struct looking *l, const char *key)
{
	char record[RECORD_BYTES];
	const struct plan_show *show = &l->plan->show;
	struct fault f = {""}, ignored;
	struct view before = {0}, after = {0};
	bool seen = false;
	int status = 0;
	enum rc rc;

	/* for the message alone: a look that fails does not prevent the freeze */
	look_at(l, key, true, &before, look_patience(), &f);
	record_write(record, l->plan, 0);
	rc = l->store->backend->admin->freeze(
	    l->store, key, record, l->plan->steer.length, look_patience(), &f);
	if (rc != RC_OK)
		status = look_refuse(l, key, rc, &f);
	else if (!show->quiet || l->plan->look.json)
		seen = look_at(l, key, true, &after, NEVER, &ignored) == RC_OK;
	if (rc == RC_OK && !show->quiet)
		tell_frozen(l, key, &before, seen ? &after : NULL);
	status = tell_object(l, l->plan, key, seen ? &after : NULL, status);
	view_free(&before);
	view_free(&after);
	return status;
}

/* ---- thaw ---- */

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
	if (!say_asks("Thaw it?"))
		say_last("%s stays frozen", name.text);
	else if (is_another(l, v))
		say_last("%s was frozen again meanwhile, and stays frozen", name.text);
	else
		return true;
	return false;
}

static int
thaw_key(struct looking *l, const char *key)
{
	struct view v = {0};
	struct fault f = {""};
	int status = STATUS_NOTHING;
	enum rc rc = look_at(l, key, true, &v, NEVER, &f);
	bool seen = rc == RC_OK;

	if (rc == RC_OK && !v.is_frozen && v.unknown) {
		status = refuse_unknown(l->plan, &v);
	} else if (rc == RC_OK && !v.is_frozen) {
		say_last("%s is not frozen", text_key(key).text);
	} else if (rc == RC_OK && may_thaw(l, &v)) {
		rc = l->store->backend->admin->thaw(l->store, key, look_patience(), &f);
		if (rc == RC_OK)
			status = 0;
		if (rc == RC_OK && !l->plan->show.quiet)
			say("%s is thawed", text_key(key).text);
		if (rc == RC_LOST)
			say_last("%s is not frozen any more", text_key(key).text);
	}
	if (rc != RC_OK && rc != RC_LOST)
		status = look_refuse(l, key, rc, &f);
	status = tell_object(l, l->plan, key, seen ? &v : NULL, status);
	view_free(&v);
	return status;
}

/* ---- freeze, thaw: each key in turn ---- */

/* On a store that has all of `caps`; returns the worst status. */
static int
steer_each(
    const struct plan *p, unsigned caps, int (*one)(struct looking *, const char *key))
{
	struct looking l;
	struct fault f = {""};
	int status = 0;
	enum rc rc = look_open(&l, p, caps, &f);

	if (rc != RC_OK)
		status = look_refuse(&l, p->keys[0], rc, &f);
	for (size_t i = 0; i < p->nkeys && rc != RC_OK; i++)
		tell_object(&l, p, p->keys[i], NULL, status);
	for (size_t i = 0; i < p->nkeys && rc == RC_OK; i++) {
		int got = one(&l, p->keys[i]);

		status = got > status ? got : status;
	}
	look_close(&l);
	return status;
}

static int
run_freeze(struct plan *p)
{
	return steer_each(p, CAP_FREEZE, freeze_key);
}

static int
run_thaw(struct plan *p)
{
	if (!p->steer.yes && !say_can_ask()) {
		say_last(
		    "cannot ask you, since this is no terminal: say -y; nothing was done");
		return STATUS_USAGE;
	}
	return steer_each(p, CAP_FREEZE, thaw_key);
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
	"Status: 0 the holder no longer has it; 1 nothing to break, or you said no; 75 another\n"
	"holds it by now (with --token), or --wait is over; 64 to 78 nothing was done.",
    .run = run_break};

const struct cmd cmd_freeze = {.name = "freeze",
    .help = "let nobody take a lock",
    .bit = CMD_FREEZE,
    .usage =
	"usage: dlock freeze [options] KEY...\n"
	"\n"
	"From now on nobody gets the lock KEY, not even a run that waits for it already.  A run\n"
	"that holds it goes on until its command ends.  No process is left behind.\n"
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
	     "Ends what dlock freeze began: the first in line gets the lock.\n",
    .notes =
	"Status: 0 it is thawed; 1 it was not frozen, or you said no; 64 to 78 nothing was\n"
	"done.",
    .run = run_thaw};
