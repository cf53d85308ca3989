/* look.c - looks at locks through a backend's admin_ops, once or again and again. */
#include "look.h"

#include "exit.h"
#include "options.h"
#include "record.h"
#include "said.h"
#include "say.h"
#include "text.h"

#include "backends/common/retry.h"
#include "backends/common/setting.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAUSE_FIRST (50 * NS_PER_MS)
#define PAUSE_MOST NS_PER_S

instant
look_patience(const struct looker *l)
{
	return instant_after(instant_now(), l->patience);
}

/* ---- waiting ---- */

static enum woke
wait_by_poll(struct host *h, int fd, short events, instant until)
{
	struct pollfd p = {.fd = fd, .events = events};

	(void)h;
	for (;;) {
		int64_t ms = until == NEVER ? -1 : ns_to_ms(until - instant_now());
		int n;

		if (until != NEVER)
			ms = ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : ms;
		n = poll(&p, 1, (int)ms);
		if (n > 0 || (n < 0 && errno != EINTR && errno != ENOMEM))
			return WOKE_READY; /* the next read says what is wrong */
		if (instant_now() >= until)
			return WOKE_TIMEOUT;
	}
}

void
look_host(struct host *h)
{
	*h = (struct host){.wait = wait_by_poll, .seen.holding.held = -1, .alert = -1};
}

/* ---- the store ---- */

static enum rc
check_can_look(const struct store *s, unsigned caps, struct fault *f)
{
	/* `other` can what this one cannot do, in another way */
	static const struct {
		unsigned cap, other;
		const char *cannot, *instead;
	} rows[] = {
	    {CAP_FREEZE, 0, "cannot freeze locks", ""},
	    {CAP_FORCE, CAP_REVOKE, "cannot take a lock away from its holder",
		"; without --force, dlock asks the holder for it"},
	    {CAP_REVOKE, CAP_FORCE, "cannot ask a holder to give its lock up",
		"; with --force, dlock takes it away while the command may still run"},
	    {CAP_JOB, 0, "cannot remember runs", ""},
	};

	if (!s->backend->admin)
		return fault_set(f, RC_CONFIG,
		    "%s cannot tell who holds a lock (dlock-backends(7) says which backends can)",
		    s->where);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (caps & ~s->caps & rows[i].cap ||
		    (caps & rows[i].cap & CAP_JOB && !s->backend->admin->forget))
			return fault_set(f, RC_CONFIG,
			    "%s %s%s (dlock-backends(7) says which backends can)",
			    s->where, rows[i].cannot,
			    s->caps & rows[i].other ? rows[i].instead : "");
	return RC_OK;
}

/* Reads the site's connect-timeout.  The backend refuses a wrong one later, when it is opened. */
int64_t
look_connect_timeout(const struct site *site)
{
	struct retry retry;
	struct fault unused;

	retry_init(&retry);
	for (size_t i = 0; i < site->nsettings; i++)
		if (strcmp(site->settings[i].name, "connect-timeout") == 0)
			setting_timeout(site->settings[i].value, &retry.first, &unused);
	return retry.first;
}

void
look_ask_outer(struct looker *l)
{
	struct join_inner outer = {
	    .base.host = &l->host, .params = l->params, .where = &l->where};

	l->joined = join_inner_look(&outer);
}

enum rc
look_open(struct looker *l, const struct params *p, unsigned caps, struct fault *f)
{
	const struct backend *b = p->site.backend;
	enum rc rc;

	prctl(PR_SET_DUMPABLE, 0); /* we may hold a password */
	signal(SIGXFSZ, SIG_IGN);  /* the write fails instead, and we say so */
	*l = (struct looker){.params = p, .jitter = (uint64_t)instant_now() | 1};
	look_host(&l->host);
	if (!b->open)
		return fault_set(f, RC_CONFIG,
		    "this dlock was built without the %s backend (dlock version)",
		    b->name);
	join_site_find(&l->where, p);
	if (p->cmd == CMD_WAIT)
		look_ask_outer(l);
	rc = join_site_check(&l->where, f);
	if (rc == RC_OK) {
		l->patience = look_connect_timeout(&l->where.site);
		rc = b->open(&l->store, &l->host, &l->where.site, f);
		if (rc == RC_USAGE)
			rc = said_blame(p, &l->where.site, &l->host, f);
	}
	if (rc != RC_OK)
		return rc;
	rc = check_can_look(l->store, caps, f);
	if (rc != RC_OK)
		look_close(l);
	return rc;
}

void
look_close(struct looker *l)
{
	if (l->store)
		l->store->backend->close(l->store);
	l->store = NULL;
}

/* A look collects the view of one key, or of each in turn. */
struct collection {
	struct looker *looker;
	struct view *view;
	/* of all keys: gets each view that is complete; NULL: one key is looked at */
	bool (*see)(void *, const struct view *);
	void *ctx;
	bool enough;
};

/* Hands out the view, since all entries of its key have come. */
static void
complete(struct collection *c)
{
	if (c->see && c->view->key && !c->enough && !c->view->short_of_memory)
		c->enough = !c->see(c->ctx, c->view);
}

/* The texts of an entry, in any of which the secret may stand. */
enum { RECORD, ASKER, ONCE, WHAT, FOREIGN_WHAT, FOREIGN_WHO, FOREIGN_HOST, TEXTS };

/* A copy without the secret; "" for want of memory; NULL for NULL. */
static const char *
blotted(const char *text, const char *secret, char **copy)
{
	if (!text)
		return NULL;
	*copy = strdup(text);
	if (!*copy)
		return "";
	record_blot(*copy, secret);
	return *copy;
}

/* Takes our password out of an entry, since a user may show the output to anybody. */
static void
add_blotted(struct view *v, const struct entry *e, int64_t now, const char *secret)
{
	struct entry shown = *e;
	struct foreign foreign;
	char *copies[TEXTS] = {NULL};

	shown.record = blotted(e->record, secret, &copies[RECORD]);
	shown.asker = blotted(e->asker, secret, &copies[ASKER]);
	shown.once = blotted(e->once, secret, &copies[ONCE]);
	shown.what = blotted(e->what, secret, &copies[WHAT]);
	if (e->foreign) {
		foreign = *e->foreign;
		foreign.what = blotted(foreign.what, secret, &copies[FOREIGN_WHAT]);
		foreign.who = blotted(foreign.who, secret, &copies[FOREIGN_WHO]);
		foreign.host = blotted(foreign.host, secret, &copies[FOREIGN_HOST]);
		shown.foreign = &foreign;
	}
	view_add(v, &shown, now);
	for (size_t i = 0; i < TEXTS; i++)
		free(copies[i]);
}

static bool
collect(void *ctx, const struct entry *e, int64_t now)
{
	struct collection *c = ctx;
	const char *secret = c->looker->host.secret;

	if (c->see && strlen(e->key) > KEY_BYTES)
		return true; /* no run can have a key of this length */
	/* the run of each ID, and the one that is no job's, is a row of its own */
	if (c->see &&
	    (!c->view->key || strcmp(c->view->key, e->key) != 0 || c->view->of_id ||
		c->view->last.jobless || e->kind == ENTRY_DONE ||
		e->kind == ENTRY_SHOWN)) {
		complete(c);
		view_begin(c->view, e->key);
	}
	if (secret && *secret)
		add_blotted(c->view, e, now, secret);
	else
		view_add(c->view, e, now);
	return !c->see || (!c->enough && !c->view->short_of_memory);
}

static enum rc
look(struct collection *c, struct look *what, struct fault *f)
{
	struct looker *l = c->looker;
	enum rc rc;

	what->see = collect;
	what->ctx = c;
	what->patience = l->patience;
	rc = l->store->backend->admin->each(l->store, what, f);
	if (*l->host.notice.text && !l->params->show.quiet)
		say("%s", text_shown(l->host.notice.text).text);
	*l->host.notice.text = '\0'; /* each notice is said once */
	/* after any other rc, entries of the last key may be missing */
	if (rc == RC_OK || rc == RC_DENIED)
		complete(c);
	if (rc == RC_OK && c->view->short_of_memory)
		return fault_set(
		    f, RC_SYSTEM, "not enough memory to list all holders and waiters");
	return rc;
}

enum rc
look_at(struct looker *l, const char *key, bool brief, struct view *v, instant until,
    struct fault *f)
{
	struct collection one = {.looker = l, .view = v};
	struct look what = {.key = key,
	    .brief = brief,
	    .success = l->params->look.done_within != 0,
	    .until = until};

	view_begin(v, key);
	return look(&one, &what, f);
}

void
look_around(struct looker *l, struct view *v, instant until)
{
	const struct admin_ops *admin = l->store->backend->admin;
	struct fault advice = {""};

	if (admin->beside && admin->beside(l->store, v->key, until, &advice) == RC_OK)
		view_add_beside(v, advice.text);
	*l->host.notice.text = '\0';
}

enum rc
look_at_all(struct looker *l, bool (*see)(void *, const struct view *), void *ctx,
    instant until, struct fault *f)
{
	struct view view = {0};
	struct collection all = {.looker = l, .view = &view, .see = see, .ctx = ctx};
	struct look what = {.brief = true, .jobs = l->params->look.jobs, .until = until};
	enum rc rc = look(&all, &what, f);

	view_free(&view);
	return rc;
}

void
look_rest(struct looker *l, instant until)
{
	int64_t pause;

	l->pause = l->pause ? instant_first(l->pause + l->pause / 2, PAUSE_MOST)
			    : PAUSE_FIRST;
	pause = l->pause - jitter_below(&l->jitter, l->pause / 4 + 1);
	wait_by_poll(
	    &l->host, -1, 0, instant_first(until, instant_after(instant_now(), pause)));
}

void
look_doubt(const struct params *p)
{
	if (p->odd && !p->show.quiet)
		say(PARAMS_NO_PATTERNS, text_brief(p->odd).text, options_cmd(p->cmd));
}

int
look_refuse(const struct looker *l, const char *key, enum rc rc, const struct fault *f)
{
	const struct params *p = l->params;
	const char *what = p->cmd == CMD_STATUS ? "look at"
	    : p->cmd == CMD_LS                  ? "list"
	    : p->cmd == CMD_WAIT                ? "wait for"
						: options_cmd(p->cmd);
	char name[400];

	if (key)
		text_name(name, sizeof name, key);
	else
		snprintf(name, sizeof name, "%s of %s", p->look.jobs ? "jobs" : "locks",
		    p->site.backend->name);
	say_last("cannot %s %s: %s%s", what, name,
	    *f->text ? text_shown(f->text).text : "descriptors or memory have run out",
	    rc == RC_AGAIN ? "; check that the server runs, or name another one with -u"
			   : "");
	return exit_of_rc(rc).number;
}

/* ---- rounds ---- */

void
look_tell_failure(FILE *to, const struct fault *f)
{
	fprintf(to, "dlock: %s; trying again\n", text_shown(f->text).text);
}

/* Draws one round as a picture.  The caller says the failure of a first round. */
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
show_again(struct rounds *r)
{
	bool draws = r->screen.moves && !r->looker.params->look.json, told = false;
	struct fault f;

	for (bool first = true;; first = false) {
		enum rc rc = draws ? draw(r, first, &f) : r->show(r, NULL, &f);

		if (rc != RC_OK && (first || rc != RC_AGAIN))
			return look_refuse(&r->looker, r->key, rc, &f);
		if (say_written() != 0)
			return STATUS_SYSTEM;
		if (rc != RC_OK && !draws && !told)
			look_refuse(&r->looker, r->key, rc, &f);
		told = rc != RC_OK;
		if (wait_by_poll(&r->looker.host, STDOUT_FILENO, 0,
			instant_after(instant_now(), r->looker.params->look.again)) ==
		    WOKE_READY) {
			/* the reader has gone: end as the next write would end us */
			raise(SIGPIPE);
			say_last("cannot write to standard output: %s", strerror(EPIPE));
			return STATUS_SYSTEM;
		}
	}
}

int
look_rounds(struct rounds *r, const struct params *p)
{
	struct fault f;
	unsigned caps = p->look.jobs || p->look.done_within ? CAP_JOB : 0;
	enum rc rc = look_open(&r->looker, p, caps, &f);
	int status;

	if (rc != RC_OK)
		return look_refuse(&r->looker, r->key, rc, &f);
	if (p->look.again) {
		status = show_again(r);
	} else if ((rc = r->show(r, stdout, &f)) == RC_OK) {
		status = say_written();
	} else {
		fflush(stdout); /* what was found before the failure */
		status = look_refuse(&r->looker, r->key, rc, &f);
	}
	look_close(&r->looker);
	return status;
}
