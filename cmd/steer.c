/*
 * steer.c - dlock break, freeze, thaw and forget: takes a lock away, lets nobody take it, or
 * makes a job due again.
 *
 * break
 *	look    finds the grants that there are: only those are broken, and no later ones
 *	ask     asks a person at a terminal; elsewhere -y or --token has said yes
 *	mark    marks each grant; a holder that is no longer there has ended by itself
 *	wait    waits until none of them is left: each holder stops its command and
 *	        releases, or its lease ends
 *
 * Exclusion holds all the time: the holder's next renewal reads the mark (backend.h, revoke), and
 * the holder releases when its command has stopped.  --force takes the grants away at once
 * instead, and says how long the command of each may still run beside the next one.
 *
 * freeze, thaw
 *	A freeze needs no process.  The holders of the lock go on; all others, also those
 *	that wait already, wait for the thaw (or for the end that was given).
 */
#include "cmd.h"

#include "exit.h"
#include "held.h"
#include "log.h"
#include "look.h"
#include "options.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One key that is steered. */
struct action {
	struct looker looker;
	const char *key;
	struct view view; /* of the key: before a break or thaw, after a freeze */
	bool seen;        /* `view` is known */
	/* a holder that a break meant, and that is gone by the end of its lease; empty: none */
	struct clean expired;
};

/* Looks at the key, into its view. */
static enum rc
see_key(struct action *s, struct fault *f)
{
	enum rc rc = look_at(&s->looker, s->key, true, &s->view, NEVER, f);

	s->seen = rc == RC_OK;
	return rc;
}

/* Refuses a key that something else than a lock uses.  Returns the exit status. */
static int
refuse_unknown(const struct action *s)
{
	say_last("cannot %s %s: something that is no lock is in its place (%s)",
	    options_cmd(s->looker.params->cmd), text_key(s->key).text,
	    text_shown(s->view.unknown).text);
	return STATUS_PROTOCOL;
}

/*
 * Logs what was done, or (rc is not RC_OK) may have been done, for the server has not confirmed
 * it.  `l` has the event, and what is this deed's own; `did` and `after` are words around who did
 * it.
 */
static void
log_deed(const struct action *s, struct log_line l, enum rc rc, const char *did,
    const char *after)
{
	char before[1500], behind[1000];

	snprintf(before, sizeof before, "%s%s by ", text_key(s->key).text, did);
	snprintf(behind, sizeof behind, "%s%s", after,
	    rc == RC_OK ? "" : " (the server has not confirmed it)");
	l.key = s->key;
	l.before = before;
	l.after = behind;
	l.weight = LOG_NOTABLE;
	l.server = s->looker.store->where;
	l.has_status = true;
	l.status = rc == RC_OK ? 0 : exit_of_rc(rc).number;
	l.waited = -1;
	log_write(s->looker.params, &l);
}

/* ---- break: which holders are meant ---- */

#define SPEAK_FIRST (500 * NS_PER_MS) /* a holder that gives up at once needs no line */
/* a holder that still has the lock so long after its lease does not heed us */
#define HEED (5 * NS_PER_S)

/* A break that waits until no meant holder is left. */
struct breaking {
	struct action *of;
	struct view now;
	instant speak, doubt; /* when the wait says something next */
	bool silent;          /* it was said that the server does not answer */
	struct clean last;    /* the holder that was seen last, and, if it is silent, */
	instant ends;         /* when its lease ends, or somewhat earlier */
};

/*
 * Returns the next meant holder behind `p`, or the first (NULL); NULL: there is none.  Meant are
 * the holders that were shown, or the one of --token.
 */
static const struct person *
next_meant(const struct action *s, const struct person *p)
{
	const struct people *all = &s->view.holders;
	int64_t token = s->looker.params->steer.token;

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
	for (const struct person *p = NULL; (p = next_meant(b->of, p));)
		for (size_t i = 0; i < b->now.holders.n; i++)
			if (is_same(p, &b->now.holders.list[i]))
				return &b->now.holders.list[i];
	return NULL;
}

/*
 * "renewed 4s ago"; where that is not known, "its lease ends in 21s", "its lease ends when its
 * process ends"
 */
static struct brief
describe_lease(const struct view *v, const struct person *p)
{
	int64_t left = view_left(v, p->until);
	const char *whose = p->foreign ? "that" : "its lease";
	struct brief b;

	if (view_renewed(v, p) >= 0)
		return held_lease(v, p);
	if (left < 0 || left == NEVER)
		snprintf(b.text, sizeof b.text, "%s ends when its process ends", whose);
	else
		snprintf(
		    b.text, sizeof b.text, "%s ends in %s", whose, parse_span(left).text);
	return b;
}

/* Says that no meant holder is there.  Returns the exit status. */
static int
nothing_to_break(const struct action *s)
{
	const struct view *v = &s->view;
	const struct person *first = view_holder(v);
	const struct clean key = text_key(s->key);
	char words[HELD_BYTES];
	struct held h;

	if (v->unknown)
		return refuse_unknown(s);
	held_of_view(&h, v);
	if (first) {
		say_last("%s%s, token %" PRId64 ", not by token %" PRId64
			 "; nothing was broken",
		    key.text, held_says(&h, false, words), first->token,
		    s->looker.params->steer.token);
		return STATUS_BUSY;
	}
	if (v->is_frozen)
		say_last("%s is held by nobody, but %s: dlock thaw ends that", key.text,
		    held_words(&h, words));
	else
		look_doubt(s->looker.params);
	say_last("%s is held by nobody: there is nothing to break", key.text);
	return STATUS_NOTHING;
}

/* ---- break: asking, marking ---- */

static bool
may_break(const struct action *s)
{
	const struct params_steer *how = &s->looker.params->steer;
	const struct person *first = next_meant(s, NULL);
	char words[HELD_BYTES];
	struct held h;

	if (how->yes || (how->token && !say_can_ask()))
		return true;
	for (const struct person *p = NULL; (p = next_meant(s, p));) {
		held_of_person(&h, &s->view, p);
		fprintf(stderr, "%s%s, token %" PRId64 "; %s\n", text_key(s->key).text,
		    held_says(&h, false, words), p->token,
		    describe_lease(&s->view, p).text);
	}
	if (how->force)
		return say_asks(first->foreign
			? "Take it away at once, though the program that has it goes on?"
			: "Take it away at once, though its command may still run?");
	if (first->foreign)
		return say_asks("Ask the program that has it to give it up?");
	return say_asks(!next_meant(s, first)
		? "Stop its command and take the lock away?"
		: "Stop their commands and take the lock away?");
}

/* A grant that was taken away by force has no other log than this: its holder may be gone. */
static void
log_break(const struct action *s, const struct person *p, enum rc rc)
{
	bool force = s->looker.params->steer.force;
	const struct clean who = view_person(p);
	struct log_line l = {.event = "break",
	    .token = p->token,
	    .held = view_ago(&s->view, p->since),
	    .holder = who.text,
	    .force = force};
	char after[900];

	snprintf(after, sizeof after, "; it was held by %s, token %" PRId64, who.text,
	    p->token);
	log_deed(s, l, rc,
	    force ? " was taken away (--force)" : " was asked back from its holder",
	    after);
}

/*
 * Revokes the grants of all meant holders.  RC_OK: none of them will go on; some may have ended
 * by themselves.  *done: how many were still there.
 */
static enum rc
revoke_all(struct action *s, size_t *done, struct fault *f)
{
	struct store *store = s->looker.store;
	char record[RECORD_BYTES];

	*done = 0;
	record_write(record, s->looker.params, 0, NULL);
	for (const struct person *p = NULL; (p = next_meant(s, p));) {
		const struct target t = {s->key, p->token, p->owner};
		enum rc rc = store->backend->admin->revoke(store, &t, record,
		    s->looker.params->steer.force, look_patience(&s->looker), f);

		if (rc == RC_OK || rc == RC_AGAIN)
			log_break(s, p, rc);
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
		say("waiting for %s to give %s up; %s", view_person(p).text,
		    text_key(b->of->key).text, describe_lease(&b->now, p).text);
		b->speak = NEVER;
	}
	if (now >= b->doubt) {
		say("%s goes on renewing %s, although it was asked to give it up%s",
		    view_person(p).text, text_key(b->of->key).text,
		    b->of->looker.store->caps & CAP_FORCE
			? "; dlock break --force takes the lock away"
			: "");
		b->doubt = NEVER;
	}
}

/*
 * Says once that the server is silent.  It may come back; until then the first meant holder
 * counts as there.
 */
static const struct person *
speak_of_silence(struct breaking *b, const struct fault *f)
{
	if (!b->silent && !b->of->looker.params->show.quiet)
		say("%s; asking again", text_shown(f->text).text);
	b->silent = true;
	return next_meant(b->of, NULL);
}

/*
 * Notes when the lease of the holder that was just seen ends.  A holder that lives renews at a
 * third of its lease: one that has not for half of it is silent.
 */
static void
note_lease(struct breaking *b, const struct person *left, instant asked)
{
	int64_t lease = view_left(&b->now, left->until);

	b->last = view_person(left);
	b->ends = lease >= 0 && lease < left->said.ttl / 2 ? instant_after(asked, lease)
							   : NEVER;
}

/* Waits until no meant holder is left. */
static enum rc
await_end(struct action *s, struct fault *f)
{
	instant now = instant_now(),
		until = instant_after(now, s->looker.params->wait.most);
	struct breaking b = {.of = s,
	    .speak = instant_after(now, SPEAK_FIRST),
	    .doubt = NEVER,
	    .ends = NEVER};
	enum rc rc;

	for (bool first = true;; first = false) {
		const struct person *left;
		instant asked = instant_now();

		rc = look_at(&s->looker, s->key, true, &b.now, NEVER, f);
		left = one_left(&b);
		if (rc == RC_AGAIN && instant_now() < until)
			left = speak_of_silence(&b, f);
		else if (rc != RC_OK || !left)
			break;
		else
			note_lease(&b, left, asked);
		if (first && left->until != EPOCH_NONE)
			b.doubt = instant_after(instant_now(),
			    instant_after(view_left(&b.now, left->until), HEED));
		if (instant_now() >= until) {
			rc = RC_BUSY;
			break;
		}
		if (!s->looker.params->show.quiet)
			speak_of(&b, left);
		look_rest(&s->looker, until);
	}
	if (instant_now() >= b.ends)
		s->expired = b.last;
	view_free(&b.now);
	return rc;
}

/* ---- break: all of it ---- */

static void
tell_end(const struct action *s, size_t done)
{
	const struct person *p = next_meant(s, NULL);
	const struct clean key = text_key(s->key), who = view_person(p);
	int64_t left = view_left(&s->view, p->until);

	if (!done)
		say_last("%s: %s has ended by itself meanwhile", key.text, who.text);
	else if (*s->expired.text)
		say_last(
		    "%s: %s has not answered, and its lease has ended: see whether its command is dead",
		    key.text, s->expired.text);
	else if (!s->looker.params->steer.force)
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
break_key(struct action *s)
{
	struct fault f = {""};
	size_t done = 0;
	enum rc rc = see_key(s, &f);

	if (rc == RC_OK && !next_meant(s, NULL))
		return nothing_to_break(s);
	if (rc == RC_OK && !may_break(s)) {
		say_last("nothing was broken");
		return STATUS_NOTHING;
	}
	if (rc == RC_OK)
		rc = revoke_all(s, &done, &f);
	if (rc == RC_OK && !s->looker.params->steer.force)
		rc = await_end(s, &f);
	if (rc == RC_BUSY) {
		say_last("%s: its holder has been asked, but has not given it up yet",
		    text_key(s->key).text);
		return STATUS_BUSY;
	}
	if (rc != RC_OK)
		return look_refuse(&s->looker, s->key, rc, &f);
	if (!s->looker.params->show.quiet)
		tell_end(s, done);
	return 0;
}

/* ---- freeze ---- */

/*
 * "deploy is frozen until dlock thaw, instead of by bob@laptop until ...; it is still held by
 * alice"
 */
static void
tell_frozen(const struct action *s, const struct view *before)
{
	int64_t length = s->looker.params->steer.length;
	const struct person *old = &before->frozen;
	char span[48] = "", end[70] = "", replaced[800] = "", words[HELD_BYTES];
	const char *held = "";
	struct held h;
	struct view none = {0};
	const struct view *v = s->seen ? &s->view : &none;

	if (length != NEVER)
		snprintf(span, sizeof span, " for %s", parse_span(length).text);
	if (v->is_frozen || length == NEVER) /* the server's end counts */
		snprintf(end, sizeof end, "%s %s", *span ? "," : "",
		    text_until(v->is_frozen ? v->frozen.until : EPOCH_NONE).text);
	if (before->is_frozen)
		snprintf(replaced, sizeof replaced,
		    "; this replaces the freeze by %s, %s", view_person(old).text,
		    text_until(old->until).text);
	held_of_view(&h, v);
	h.frozen = false; /* the sentence says it already */
	if (v->holders.n > 0)
		held = held_says(&h, true, words);
	say("%s is frozen%s%s%s%s%s", text_key(s->key).text, span, end, replaced,
	    *held == ' ' ? "; it" : "", held);
}

/* Says that the freeze ended before the server confirmed it.  Returns the exit status. */
static int
refuse_over(const struct action *s)
{
	say_last(
	    "%s is not frozen any more: before that was confirmed its end had come, or somebody has thawed it",
	    text_key(s->key).text);
	return STATUS_UNAVAILABLE;
}

static void
log_freeze(const struct action *s, enum rc rc)
{
	bool known = s->seen && s->view.is_frozen;
	int64_t length = s->looker.params->steer.length;
	struct log_line l = {.event = "freeze",
	    .held = -1,
	    .has_until = true,
	    .until = known        ? s->view.frozen.until
		: length == NEVER ? EPOCH_NONE
				  : instant_epoch() + length / 1000};
	char after[100];

	snprintf(after, sizeof after, ", %s", text_until(l.until).text);
	log_deed(s, l, rc, " was frozen", after);
}

static int
freeze_key(struct action *s)
{
	struct looker *l = &s->looker;
	bool quiet = l->params->show.quiet;
	char record[RECORD_BYTES];
	struct fault f = {""}, ignored;
	struct view before = {0};
	bool is_over, was_seen;
	enum rc rc;

	/* this look is only for the message, so its failure does not prevent the freeze */
	was_seen = look_at(l, s->key, true, &before, look_patience(l), &ignored) == RC_OK;
	record_write(record, l->params, 0, NULL);
	rc = l->store->backend->admin->freeze(
	    l->store, s->key, record, l->params->steer.length, look_patience(l), &f);
	if (rc == RC_OK &&
	    (!quiet || l->params->look.json || l->params->steer.length != NEVER))
		(void)see_key(s, &ignored);
	is_over = rc == RC_OK && s->seen && !s->view.is_frozen &&
	    l->params->steer.length != NEVER;
	if (rc == RC_OK || (rc == RC_AGAIN && was_seen))
		log_freeze(s, rc);
	if (rc == RC_OK && !quiet && !is_over)
		tell_frozen(s, &before);
	view_free(&before);
	if (is_over)
		return refuse_over(s);
	return rc == RC_OK ? 0 : look_refuse(l, s->key, rc, &f);
}

/* ---- thaw ---- */

/*
 * Is the key frozen by another freeze than the one we showed?  If this look fails, so will the
 * thaw.
 */
static bool
is_another(struct action *s)
{
	struct view v = {0};
	struct fault f;
	bool another = look_at(&s->looker, s->key, true, &v, NEVER, &f) == RC_OK &&
	    v.is_frozen && v.frozen.since != s->view.frozen.since;

	view_free(&v);
	return another;
}

/* Shows the freeze to the person at the terminal; false: the answer is no. */
static bool
may_thaw(struct action *s)
{
	const struct clean name = text_key(s->key);
	char words[HELD_BYTES];
	struct held h;

	if (s->looker.params->steer.yes)
		return true;
	held_of_freeze(&h, &s->view);
	fprintf(stderr, "%s%s\n", name.text, held_says(&h, false, words));
	if (!say_asks("Thaw it?"))
		say_last("%s stays frozen", name.text);
	else if (is_another(s))
		say_last("%s was frozen again meanwhile, and stays frozen", name.text);
	else
		return true;
	return false;
}

static void
log_thaw(const struct action *s, enum rc rc)
{
	const struct clean who = view_person(&s->view.frozen);
	struct log_line l = {.event = "thaw",
	    .held = view_ago(&s->view, s->view.frozen.since),
	    .holder = who.text};
	char after[800];

	snprintf(after, sizeof after, "; it was frozen by %s", who.text);
	log_deed(s, l, rc, " was thawed", after);
}

static int
thaw_key(struct action *s)
{
	struct store *store = s->looker.store;
	const struct clean name = text_key(s->key);
	struct fault f = {""};
	enum rc rc = see_key(s, &f);

	if (rc == RC_OK && !s->view.is_frozen && s->view.unknown)
		return refuse_unknown(s);
	if (rc == RC_OK && !s->view.is_frozen) {
		say_last("%s is not frozen", name.text);
		return STATUS_NOTHING;
	}
	if (rc == RC_OK && !may_thaw(s))
		return STATUS_NOTHING;
	if (rc == RC_OK)
		rc = store->backend->admin->thaw(
		    store, s->key, look_patience(&s->looker), &f);
	if (s->seen && (rc == RC_OK || rc == RC_AGAIN))
		log_thaw(s, rc);
	if (rc == RC_LOST) {
		say_last("%s is not frozen any more", name.text);
		return STATUS_NOTHING;
	}
	if (rc != RC_OK)
		return look_refuse(&s->looker, s->key, rc, &f);
	if (!s->looker.params->show.quiet)
		say("%s is thawed", name.text);
	return 0;
}

/* ---- forget ---- */

/* Shows the person at the terminal what was run last; false: the answer is no. */
static bool
may_forget(struct action *s, const char *runs)
{
	const struct person *last = &s->view.last;
	char question[2000];
	struct fault f;

	if (s->looker.params->steer.yes)
		return true;
	if (see_key(s, &f) == RC_OK && s->view.has_last)
		fprintf(stderr,
		    "the last run was by %s, and ended at %s with status %d\n",
		    view_person(last).text, text_time(last->until).text,
		    (int)last->status);
	snprintf(question, sizeof question, "Forget %s, so that it is due again?", runs);
	return say_asks(question);
}

static void
log_forget(const struct action *s)
{
	const char *id = s->looker.params->word;
	struct log_line l = {.event = "forget", .held = -1, .id = id};
	char did[1000], name[900];

	snprintf(did, sizeof did, ": %s%s forgotten",
	    id ? text_name(name, sizeof name, id) : "all its runs",
	    id ? " was" : " were");
	log_deed(s, l, RC_OK, did, "");
}

static int
forget_key(struct action *s)
{
	struct store *store = s->looker.store;
	const char *id = s->looker.params->word;
	char name[900], runs[1700];
	struct fault f = {""};
	enum rc rc;

	snprintf(runs, sizeof runs, "%s%s under %s", id ? "the run of ID " : "all runs",
	    id ? text_name(name, sizeof name, id) : "", text_key(s->key).text);
	if (!may_forget(s, runs)) {
		say_last("nothing was forgotten");
		return STATUS_NOTHING;
	}
	rc = store->backend->admin->forget(
	    store, s->key, id, look_patience(&s->looker), &f);
	if (rc == RC_OK)
		log_forget(s);
	if (rc == RC_LOST) {
		say_last("%s: none is remembered", runs);
		return STATUS_NOTHING;
	}
	if (rc != RC_OK)
		return look_refuse(&s->looker, s->key, rc, &f);
	if (!s->looker.params->show.quiet)
		say("forgot %s", runs);
	return 0;
}

/* ---- each key in turn ---- */

/* For -J: prints the action and the key as it was found.  Returns the status. */
static int
tell_object(const struct action *s, int status)
{
	const struct params *p = s->looker.params;
	struct record_own own;
	const struct steered steered = {.action = options_cmd(p->cmd),
	    .key = s->key,
	    .status = status,
	    .backend = p->site.backend,
	    .store = s->looker.store,
	    .view = s->seen ? &s->view : NULL,
	    .by = &own.said};
	int written;

	if (!p->look.json)
		return status;
	record_find_own(&own, p, 0);
	show_steered(stdout, &steered);
	written = say_written();
	return status ? status : written;
}

/* Runs the subcommand for each key in turn.  Returns the worst status. */
static int
run_steer(struct params *p)
{
	unsigned caps = p->cmd == CMD_FORGET ? CAP_JOB
	    : p->cmd != CMD_BREAK            ? CAP_FREEZE
	    : p->steer.force                 ? CAP_FORCE
					     : CAP_REVOKE;
	int (*one)(struct action *) = p->cmd == CMD_BREAK ? break_key
	    : p->cmd == CMD_FREEZE                        ? freeze_key
	    : p->cmd == CMD_THAW                          ? thaw_key
							  : forget_key;
	struct action s = {.key = p->keys[0]};
	struct fault f = {""};
	enum rc rc = look_open(&s.looker, p, caps, &f);
	int status = rc == RC_OK ? 0 : look_refuse(&s.looker, s.key, rc, &f);

	for (size_t i = 0; i < p->nkeys; i++) {
		int got;

		s.key = p->keys[i];
		s.seen = false;
		got = tell_object(&s, rc == RC_OK ? one(&s) : status);
		status = got > status ? got : status;
	}
	view_free(&s.view);
	look_close(&s.looker);
	log_end(p);
	return status;
}

const struct cmd cmd_break = {.help = "take a lock away from its holder",
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
    .run = run_steer};

const struct cmd cmd_freeze = {.help = "let nobody take a lock",
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
    .run = run_steer};

const struct cmd cmd_thaw = {.help = "end a freeze",
    .bit = CMD_THAW,
    .usage = "usage: dlock thaw [options] KEY...\n"
	     "\n"
	     "Ends what dlock freeze began: the first in line gets the lock.\n",
    .notes =
	"Status: 0 it is thawed; 1 it was not frozen, or you said no; 64 to 78 nothing was\n"
	"done.",
    .run = run_steer};

const struct cmd cmd_forget = {.help = "make a job due again",
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
    .run = run_steer};
