/* wait.c - dlock wait: returns when a lock could be had at once, and takes nothing. */
#include "cmd.h"

#include "backends/common/retry.h"
#include "host.h"
#include "look.h"
#include "options.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "status.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_PAUSE (50 * NS_PER_MS)
#define LAST_PAUSE NS_PER_S
#define SPEAK_FIRST (3 * NS_PER_S)
#define SPEAK_AGAIN (60 * NS_PER_S)

int
cmd_wait_explain(void)
{
	puts(
	    "usage: dlock wait -k KEY [options]\n"
	    "       dlock wait KEY...\n"
	    "\n"
	    "Returns when a run would not have to wait for the lock KEY: nobody holds it in a way\n"
	    "that excludes it, nobody waits for it, and it is not frozen.  Takes nothing, so another\n"
	    "may have it a moment later.  Several keys: when all are free in one look.  -s, -x and\n"
	    "--limit say which kind of run is meant.\n"
	    "\n"
	    "  dlock wait -u redis://10.0.0.5 -k deploy -w 10m && ./report.sh\n"
	    "  dlock wait -b file -n backup || echo 'a backup is running'\n");
	options_print_help(stdout, CMD_WAIT);
	puts(
	    "\nStatus: 0 free; 75 (or -E) not yet when -w was over, or with -n; 64 to 78 as dlock\n"
	    "run has them.  It looks again and again, at most a second apart.");
	return say_written();
}

struct wait {
	const struct plan *plan;
	struct looking looking;
	struct view view;
	struct retry patience;
	char owner[OWNER_CHARS + 1]; /* nobody's: only for chance */
	instant began, until, speaks;
	int64_t pause;
	/* of the key that is not free */
	const char *key;
	char words[1200];
};

/* ---- is it free? ---- */

/* Is there a place beside those who hold it for what is asked for? */
static bool
would_fit(const struct view *v, const struct plan_claim *c)
{
	enum lock_kind kind;
	unsigned limit;

	if (!view_kind(v, &kind, &limit))
		return true;
	if (kind != c->kind)
		return false;
	if (kind == KIND_LIMIT)
		return limit == (unsigned)c->limit && v->holders.all < limit;
	return kind == KIND_SHARED;
}

static bool
is_free(const struct view *v, const struct plan_claim *c)
{
	return !v->unknown && !v->is_frozen && v->waiters.all == 0 && would_fit(v, c);
}

/* RC_BUSY: one is not free, which w->key and w->words tell of. */
static enum rc
find_taken(struct wait *w, instant until, struct fault *f)
{
	for (size_t i = 0; i < w->plan->nkeys; i++) {
		enum rc rc;

		if (w->looking.ours & (1U << i))
			continue;
		w->key = w->plan->keys[i];
		rc = look_at(&w->looking, w->key, true, &w->view, until, f);
		if (rc != RC_OK)
			return rc;
		if (!is_free(&w->view, &w->plan->claim)) {
			show_words(&w->view, w->words, sizeof w->words);
			return RC_BUSY;
		}
	}
	return RC_OK;
}

/* ---- waiting ---- */

static int64_t
jitter(int64_t pause)
{
	uint32_t chance = 0;

	if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) != sizeof chance)
		chance = 0;
	return pause - pause / 4 + chance % (pause / 4 + 1);
}

/* On a terminal or not: a line after some seconds, then one a minute. */
static void
speak(struct wait *w, const char *words)
{
	char key[400], waited[32];
	instant now = instant_now();

	if (w->plan->show.quiet || now < w->speaks)
		return;
	say("waiting %s for %s; %s",
	    parse_duration_text(now - w->began, waited, sizeof waited),
	    text_name(key, sizeof key, w->key), words);
	w->speaks = now + SPEAK_AGAIN;
}

static void
rest(struct wait *w)
{
	host_wait(&w->looking.host, -1, 0,
	    instant_first(w->until, instant_after(instant_now(), jitter(w->pause))));
	w->pause = instant_first(w->pause + w->pause / 2, LAST_PAUSE);
}

static instant
look_until(const struct wait *w)
{
	return retry_attempt(&w->patience, w->plan->wait.most == 0 ? 0 : w->until);
}

/* RC_OK: all are free.  RC_BUSY: not yet.  Else why it is not known. */
static enum rc
wait_for_all(struct wait *w, struct fault *f)
{
	bool once = w->plan->wait.most == 0;
	char clean[700];

	for (bool heard = false;;) {
		enum rc rc = find_taken(w, look_until(w), f);

		if (rc == RC_OK || rc == RC_BUSY) {
			retry_end_outage(&w->patience);
			heard = true;
		}
		if (rc == RC_BUSY && !once && instant_now() < w->until) {
			speak(w, w->words);
			rest(w);
			continue;
		}
		if (rc != RC_AGAIN || once)
			return rc;
		text_clean(clean, sizeof clean, f->text, strlen(f->text));
		speak(w, clean);
		rc = retry_wait(&w->patience, &w->looking.host, rc, heard, w->until);
		if (rc != RC_OK)
			return rc;
	}
}

/* ---- the end ---- */

static int
not_yet(const struct wait *w)
{
	char key[400], where[WHERE_BYTES], end[80] = "not waiting (-n)", time[32];

	text_clean(where, sizeof where, w->looking.store->where,
	    strlen(w->looking.store->where));
	if (w->plan->wait.most != 0)
		snprintf(end, sizeof end, "waited %s (-w)",
		    parse_duration_text(instant_now() - w->began, time, sizeof time));
	if (!w->plan->show.quiet)
		say_last("%s (%s) is %s%s; %s", text_name(key, sizeof key, w->key), where,
		    w->plan->wait.most ? "still " : "", w->words, end);
	return w->plan->wait.conflict_status;
}

/* What a run of that kind would be refused, there is no waiting for. */
static enum rc
check_kind(const struct store *s, enum lock_kind kind, struct fault *f)
{
	if (kind == KIND_SHARED && !(s->caps & CAP_SHARED))
		return fault_set(f, RC_CONFIG,
		    "%s has no shared locks (dlock-backends(7) says who has)", s->where);
	if (kind == KIND_LIMIT && !(s->caps & CAP_LIMIT))
		return fault_set(f, RC_CONFIG,
		    "%s has no limited locks (dlock-backends(7) says who has)", s->where);
	return RC_OK;
}

static void
begin(struct wait *w)
{
	const struct claim claim = {.owner = w->owner,
	    .ttl = w->plan->terms.ttl,
	    .persist = w->plan->wait.persist};
	unsigned char chance[OWNER_CHARS / 2];

	w->began = instant_now();
	w->until = instant_after(w->began, w->plan->wait.most);
	w->speaks = w->began + SPEAK_FIRST;
	w->pause = FIRST_PAUSE;
	if (getrandom(chance, sizeof chance, GRND_NONBLOCK) == sizeof chance)
		for (size_t i = 0; i < sizeof chance; i++)
			snprintf(w->owner + 2 * i, 3, "%02x", chance[i]);
	retry_init(&w->patience);
	retry_begin(&w->patience, &claim);
}

int
cmd_wait(char **words)
{
	struct plan plan;
	struct wait w = {.plan = &plan};
	struct fault f;
	enum rc rc;
	int status;

	if (!look_plan(&plan, CMD_WAIT, words, cmd_wait_explain, &status))
		return status;
	w.key = plan.keys[0];
	rc = look_open(&w.looking, &plan, 0, &f);
	if (rc != RC_OK)
		return look_refuse(&plan, "wait for", w.key, rc, &f);
	begin(&w);
	rc = check_kind(w.looking.store, plan.claim.kind, &f);
	if (rc == RC_OK)
		rc = wait_for_all(&w, &f);
	if (rc == RC_OK)
		status = 0;
	else if (rc == RC_BUSY)
		status = not_yet(&w);
	else
		status = look_refuse(&plan, "wait for", w.key, rc, &f);
	look_close(&w.looking);
	view_free(&w.view);
	return status;
}
