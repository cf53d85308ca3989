/* wait.c - dlock wait: returns when a run could have the lock at once, and takes nothing. */
#include "cmd.h"

#include "backends/common/retry.h"
#include "held.h"
#include "look.h"
#include "parse.h"
#include "say.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPEAK_FIRST (3 * NS_PER_S)
#define SPEAK_NEXT (60 * NS_PER_S)

struct wait {
	struct looker looker;
	struct view view;
	struct retry retry;
	instant began, until, speaks;
	/* the key that is not free, and who holds it */
	const char *key;
	struct held held;
	bool apart; /* no run here could join the outer run that has keys of it */
};

static const char apart[] =
    "a run here could not get it: an outer run has keys of it and cannot be joined";

/* ---- is the lock free? ---- */

/* Would a run of this kind be granted at once? */
static bool
is_free(const struct view *v, const struct params_claim *c)
{
	const struct person *h = view_holder(v);

	if (v->unknown || v->is_frozen || v->waiters.all > 0)
		return false;
	if (!h || h->kind != c->kind)
		return !h;
	if (h->kind == KIND_LIMIT)
		return h->limit == c->limit && (int64_t)v->holders.all < h->limit;
	return h->kind == KIND_SHARED;
}

/* Looks for a key that is not free.  RC_BUSY: w->key is not, and w->held says why. */
static enum rc
find_taken(struct wait *w, struct fault *f)
{
	instant until = retry_attempt(
	    &w->retry, w->looker.params->wait.most == 0 ? 0 : w->until);

	w->apart = false;
	for (size_t i = 0; i < w->looker.params->nkeys && w->looker.joined != RC_OK;
	     i++) {
		enum rc rc;

		w->key = w->looker.params->keys[i];
		rc = look_at(&w->looker, w->key, true, &w->view, until, f);
		if (rc != RC_OK)
			return rc;
		if (!is_free(&w->view, &w->looker.params->claim)) {
			held_of_view(&w->held, &w->view);
			held_ask(&w->held, &w->looker.params->claim);
			return RC_BUSY;
		}
	}
	if (w->looker.joined == RC_PROTOCOL) { /* the outer run may have ended since */
		look_ask_outer(&w->looker);
		if (w->looker.joined != RC_OK && w->looker.joined != RC_LOST)
			w->looker.joined = RC_PROTOCOL;
	}
	if (w->looker.joined != RC_PROTOCOL)
		return RC_OK;
	w->key = w->looker.params->keys[0];
	w->apart = true;
	return RC_BUSY;
}

/* ---- waiting ---- */

/* Says what we wait for: after some seconds, then once a minute, on a terminal or not. */
static void
speak(struct wait *w, const char *words)
{
	instant now = instant_now();

	if (w->looker.params->show.quiet || now < w->speaks)
		return;
	say("waiting %s for %s; %s", parse_span(now - w->began).text,
	    text_key(w->key).text, words);
	w->speaks = now + SPEAK_NEXT;
}

/*
 * Waits until all keys are free: RC_OK.  RC_BUSY: one is not.  Any other rc: not known, as the
 * fault says.
 */
static enum rc
wait_for_all(struct wait *w, struct fault *f)
{
	bool once = w->looker.params->wait.most == 0;
	char words[HELD_BYTES];

	for (bool heard = false;;) {
		enum rc rc = find_taken(w, f);

		if (rc == RC_OK || rc == RC_BUSY) {
			retry_end_outage(&w->retry);
			heard = true;
		}
		if (rc == RC_BUSY && !once && instant_now() < w->until) {
			speak(w, w->apart ? apart : held_words(&w->held, words));
			look_rest(&w->looker, w->until);
			continue;
		}
		if (rc != RC_AGAIN || once)
			return rc;
		speak(w, text_shown(f->text).text);
		rc = retry_wait(&w->retry, &w->looker.host, rc, heard, w->until);
		if (rc != RC_OK)
			return rc;
	}
}

/* ---- the end ---- */

static int
tell_busy(const struct wait *w)
{
	char end[80] = "not waiting (-n)", state[HELD_BYTES];
	bool waited = w->looker.params->wait.most != 0;

	if (waited)
		snprintf(end, sizeof end, "waited %s (-w)",
		    parse_span(instant_now() - w->began).text);
	if (!w->looker.params->show.quiet)
		say_last("%s (%s)%s%s; %s", text_key(w->key).text,
		    text_shown(w->looker.store->where).text, w->apart ? ": " : "",
		    w->apart ? apart : held_says(&w->held, waited, state), end);
	return w->looker.params->wait.conflict_status;
}

static int
run_wait(struct params *p)
{
	struct wait w = {.key = p->keys[0]};
	/* an owner of nothing, which only gives jitter, so that processes do not ask in step */
	char owner[OWNER_CHARS + 1];
	const struct claim claim = {
	    .owner = owner, .ttl = p->terms.ttl, .persist = p->wait.persist};
	struct fault f;
	enum rc rc = look_open(&w.looker, p, 0, &f);
	int status;

	if (rc != RC_OK)
		return look_refuse(&w.looker, w.key, rc, &f);
	w.began = instant_now();
	w.until = instant_after(w.began, p->wait.most);
	w.speaks = w.began + SPEAK_FIRST;
	snprintf(owner, sizeof owner, "%x %llx", (unsigned)getpid(), (long long)w.began);
	retry_init(&w.retry);
	w.retry.first = w.looker.patience;
	retry_begin(&w.retry, &claim);
	/* a lock that the store does not have is never free: a run would be refused, too */
	rc = params_check_kind(&p->claim, w.looker.store, &f);
	if (rc == RC_OK)
		rc = wait_for_all(&w, &f);
	if (rc == RC_OK)
		look_doubt(p);
	status = rc == RC_OK ? 0
	    : rc == RC_BUSY  ? tell_busy(&w)
			     : look_refuse(&w.looker, w.key, rc, &f);
	look_close(&w.looker);
	view_free(&w.view);
	return status;
}

const struct cmd cmd_wait = {.help = "wait until a lock is free, without taking it",
    .bit = CMD_WAIT,
    .usage =
	"usage: dlock wait -k KEY [options]\n"
	"       dlock wait KEY...\n"
	"\n"
	"Returns when a run would not have to wait for the lock KEY: nobody holds it in a way\n"
	"that excludes it, nobody waits for it, and it is not frozen.  Takes nothing, so another\n"
	"may have it a moment later.  Several keys: when all are free in one look.  -s, -x and\n"
	"--limit say which kind of run is meant.\n"
	"\n"
	"  dlock wait -u redis://10.0.0.5 -k deploy -w 10m && ./report.sh\n"
	"  dlock wait -b file -n backup || echo 'a backup is running'\n",
    .notes =
	"Status: 0 free; 75 (or -E) not yet when -w was over, or with -n; 64 to 78 as dlock\n"
	"run has them.  It looks again and again, at most a second apart.",
    .run = run_wait};
