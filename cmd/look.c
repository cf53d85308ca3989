/* look.c - looks at locks through a backend's admin_ops. */
#include "look.h"

#include "cmd.h"
#include "host.h"
#include "say.h"
#include "status.h"
#include "stray.h"
#include "text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct looking *
looking_of(struct host *h)
{
	return (struct looking *)h;
}

/* A server that says nothing for too long is given up, however long the look may be. */
static enum woke
wait_patiently(struct host *h, int fd, short events, instant until)
{
	struct looking *l = looking_of(h);
	instant most = l->asked ? instant_after(l->heard, LOOK_PATIENCE) : NEVER;
	enum woke woke = host_wait(h, fd, events, instant_first(until, most));

	if (woke == WOKE_READY)
		l->heard = instant_now();
	if (woke == WOKE_TIMEOUT && until > most) {
		l->silent = true;
		return WOKE_STOP;
	}
	return woke;
}

static enum rc
check_can_look(const struct store *s, unsigned caps, struct fault *f)
{
	static const struct {
		unsigned cap;
		const char *cannot;
	} rows[] = {
	    {CAP_FREEZE, "cannot freeze locks"},
	    {CAP_FORCE, "cannot take locks away from who holds them"},
	    {CAP_REVOKE, "cannot ask a holder to give its lock up"},
	};

	if (!s->backend->admin)
		return fault_set(f, RC_CONFIG,
		    "%s can only lock: it tells nobody who holds what (dlock-backends(7) says who does)",
		    s->where);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (caps & ~s->caps & rows[i].cap)
			return fault_set(f, RC_CONFIG,
			    "%s %s (dlock-backends(7) says who can)", s->where,
			    rows[i].cannot);
	return RC_OK;
}

/* The plan's site, or that of the dlock around it. */
static enum rc
find_site(struct looking *l, struct fault *f)
{
	const struct backend *b = l->plan->site.backend;
	struct nested outer = {.host = &l->host, .plan = l->plan, .where = &l->where};

	if (!b->open)
		return fault_set(f, RC_CONFIG,
		    "this dlock was built without the %s backend (dlock version)",
		    b->name);
	nested_site_find(&l->where, l->plan);
	if (l->plan->cmd == CMD_WAIT)
		l->ours = nested_look(&outer);
	return nested_site_check(&l->where, f);
}

enum rc
look_open(struct looking *l, const struct plan *p, unsigned caps, struct fault *f)
{
	enum rc rc;

	prctl(PR_SET_DUMPABLE, 0); /* we may hold a password */
	signal(SIGXFSZ, SIG_IGN);  /* the write fails, and is told of */
	*l = (struct looking){.plan = p};
	host_init(&l->host);
	l->host.wait = wait_patiently;
	rc = find_site(l, f);
	if (rc == RC_OK)
		rc = p->site.backend->open(&l->store, &l->host, &l->where.site, f);
	if (rc != RC_OK)
		return rc;
	rc = check_can_look(l->store, caps, f);
	if (rc != RC_OK)
		look_close(l);
	return rc;
}

void
look_close(struct looking *l)
{
	if (l->store)
		l->store->backend->close(l->store);
	l->store = NULL;
}

/* What the user should know of the server, once. */
static void
say_notice(struct looking *l)
{
	char clean[700];

	if (*l->host.notice.text && !l->plan->show.quiet)
		say("%s",
		    text_clean(clean, sizeof clean, l->host.notice.text,
			strlen(l->host.notice.text)));
	*l->host.notice.text = '\0';
}

static enum rc
look(struct looking *l, const struct look *what, struct fault *f)
{
	enum rc rc;

	l->heard = instant_now();
	l->silent = false;
	l->asked = true;
	rc = l->store->backend->admin->each(l->store, what, f);
	l->asked = false;
	say_notice(l);
	if (rc == RC_STOP && l->silent)
		return fault_set(f, RC_AGAIN, "%s does not answer", l->store->where);
	return rc;
}

/* ---- one key ---- */

struct one {
	struct looking *looking;
	struct view *view;
};

static bool
see_one(void *ctx, const struct entry *e, int64_t now)
{
	struct one *one = ctx;

	one->looking->heard = instant_now();
	view_add(one->view, e, now);
	return true;
}

static enum rc
out_of_memory(struct fault *f)
{
	return fault_set(f, RC_SYSTEM, "no memory for all who hold it or wait for it");
}

enum rc
look_at(struct looking *l, const char *key, bool brief, struct view *v, instant until,
    struct fault *f)
{
	struct one one = {l, v};
	struct look what = {
	    .key = key, .brief = brief, .until = until, .see = see_one, .ctx = &one};
	enum rc rc;

	view_begin(v, key);
	rc = look(l, &what, f);
	return rc == RC_OK && v->short_of_memory ? out_of_memory(f) : rc;
}

/* ---- all of them ---- */

struct all {
	struct looking *looking;
	struct view view;
	bool begun, enough;
	bool (*see)(void *, const struct view *);
	void *ctx;
};

/* Whatever came of one key has come. */
static void
complete(struct all *all)
{
	if (all->begun && !all->view.short_of_memory)
		all->enough = !all->see(all->ctx, &all->view);
	all->begun = false;
}

static bool
see_any(void *ctx, const struct entry *e, int64_t now)
{
	struct all *all = ctx;

	all->looking->heard = instant_now();
	if (strlen(e->key) > KEY_BYTES)
		return true; /* nobody can lock that */
	if (!all->begun || strcmp(all->view.key, e->key) != 0) {
		complete(all);
		view_begin(&all->view, e->key);
		all->begun = true;
	}
	view_add(&all->view, e, now);
	return !all->enough && !all->view.short_of_memory;
}

enum rc
look_at_all(struct looking *l, bool (*see)(void *, const struct view *), void *ctx,
    instant until, struct fault *f)
{
	struct all all = {.looking = l, .see = see, .ctx = ctx};
	struct look what = {.brief = true, .until = until, .see = see_any, .ctx = &all};
	enum rc rc = look(l, &what, f);

	/* else there may have been more of the last one */
	if ((rc == RC_OK || rc == RC_DENIED) && !all.enough)
		complete(&all);
	if (rc == RC_OK && all.view.short_of_memory)
		rc = out_of_memory(f);
	view_free(&all.view);
	return rc;
}

int
look_pause(struct looking *l)
{
	instant next = instant_after(instant_now(), l->plan->look.again);

	if (host_wait(&l->host, STDOUT_FILENO, 0, next) != WOKE_READY)
		return 0;
	raise(SIGPIPE); /* as the next write would */
	say_last("cannot write to standard output: %s", strerror(EPIPE));
	return STATUS_SYSTEM;
}

/* ---- the beginning and the end of a subcommand ---- */

bool
look_plan(struct plan *p, unsigned cmd, char **words, int (*explain)(void), int *status)
{
	struct fault fault;
	char clean[700];

	switch (plan_read(p, cmd, words, &fault)) {
	case PARSED_HELP:
		*status = explain();
		return false;
	case PARSED_WRONG:
		*status = cmd_wrong(p, &fault);
		return false;
	case PARSED_PLAN:
		break;
	}
	if (!p->show.quiet && stray_list(clean, sizeof clean))
		say("unknown in the environment and ignored: %s", clean);
	return true;
}

int
look_refuse(const struct plan *p, const char *what, const char *key, enum rc rc,
    const struct fault *f)
{
	char name[400], words[700];

	text_clean(words, sizeof words, f->text, strlen(f->text));
	if (key)
		text_name(name, sizeof name, key);
	else
		snprintf(name, sizeof name, "locks of %s", p->site.backend->name);
	say_last("cannot %s %s: %s%s", what, name,
	    *words ? words : "descriptors or memory have run out",
	    rc == RC_AGAIN ? "; see whether the server runs, or name another (-u)" : "");
	return status_of_rc(rc).number;
}
