/* verdict.c - turns an ending into one sentence and an exit status: see verdict.h. */
#include "verdict.h"

#include "cmd/parse.h"
#include "cmd/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Things from outside, as they are shown. */
struct shown {
	struct clean key, words, where;
	char command[200];
};

static void __attribute__((format(printf, 4, 5)))
verdict_decide(struct verdict *v, int status, const char *name, const char *fmt, ...)
{
	va_list ap;

	v->status = status;
	v->name = name;
	va_start(ap, fmt);
	vsnprintf(v->line, sizeof v->line, fmt, ap);
	va_end(ap);
}

/* Says what has not happened when there is no lock. */
static const char *
nothing(const struct params *p)
{
	return p->cmd == CMD_HOLD ? "nothing is held" : "nothing was run";
}

/*
 * "deploy (redis 10.0.0.5:6379) is held by alice ...", "deploy (...): all 4 slots are
 * taken, first alice ..."
 */
static void
busy(struct verdict *v, const struct params *p, const struct shown *s,
    const struct heard *h)
{
	const char *open = *s->where.text ? " (" : "", *close = *s->where.text ? ")" : "";
	char end[80];

	if (p->wait.most == 0)
		snprintf(end, sizeof end, "; not waiting (-n), %s", nothing(p));
	else
		snprintf(end, sizeof end, "; waited %s (-w), %s",
		    parse_span(h->waited).text, nothing(p));
	verdict_decide(v, p->wait.conflict_status, "busy", "%s%s%s%s%s%s",
	    text_key(h->key).text, open, s->where.text, close, h->state, end);
}

/* --newest: another run that waits came later. */
static void
superseded(struct verdict *v, const struct params *p, const struct shown *s,
    const struct heard *h)
{
	verdict_decide(v, p->wait.conflict_status, "superseded",
	    "%s%s%s%s: superseded by %s, which came later (--newest); %s", s->key.text,
	    *s->where.text ? " (" : "", s->where.text, *s->where.text ? ")" : "",
	    h->newer, nothing(p));
}

/* The server did not answer: how long we have tried is what -w says. */
static void
unreachable(
    struct verdict *v, const struct params *p, const struct shown *s, int64_t waited)
{
	char tried[80] = "tried once (-n)";

	if (p->wait.most != 0)
		snprintf(tried, sizeof tried, "tried for %s (%s)",
		    parse_span(waited).text,
		    p->wait.persist ? "-w" : "-w DURATION tries longer");
	verdict_decide(v, STATUS_UNAVAILABLE, "unreachable", "cannot take %s: %s; %s; %s",
	    s->key.text, s->words.text, tried, nothing(p));
}

/* Says what became of the lock when the command did not end by itself. */
static const char *
after(const struct ending *e)
{
	static const char *const kept[] = {
	    [KEPT_NOT] = "the lock was released",
	    [KEPT_MIN_HOLD] =
		"the lock is kept in the background until --min-hold is over",
	    [KEPT_OUTSIDE] = "the outer run still holds the lock",
	    [KEPT_TRYING] =
		"the release was not confirmed: dlock tries again in the background, and the lock ends with its lease at the latest",
	};

	if (e->stuck)
		return "it could NOT be killed and may still be running";
	if (e->unconfirmed && e->kept != KEPT_TRYING)
		return "the release was not confirmed: the lock ends with its lease";
	return kept[e->kept];
}

static void
verdict_refused(struct verdict *v, const struct params *p, const struct ending *e,
    const struct shown *s, const struct heard *h)
{
	struct status status = exit_of_rc(e->value);

	if (e->value == RC_BUSY)
		busy(v, p, s, h);
	else if (e->value == RC_DONE)
		verdict_decide(v, p->claim.skipped_status, "skipped",
		    "skipped '%s' under %s: %s", s->command, s->key.text, s->words.text);
	else if (e->value == RC_AGAIN && !e->too_late && *s->words.text)
		unreachable(v, p, s, h->waited);
	else if (e->too_late)
		verdict_decide(v, STATUS_UNAVAILABLE, "unreachable",
		    "%s %s granted too late to be used: the server or this machine is overloaded; %s, try again",
		    s->key.text, p->nkeys > 1 ? "were" : "was", nothing(p));
	else
		verdict_decide(v, status.number, status.name,
		    "cannot take %s: %s; %s%s%s", s->key.text,
		    *s->words.text ? s->words.text
				   : "descriptors, memory or processes have run out",
		    nothing(p), e->value == RC_SYSTEM && e->unconfirmed ? ", but " : "",
		    e->value == RC_SYSTEM && e->unconfirmed ? after(e) : "");
}

/* Says what a loss has stopped: the command, or the process for which the lock was held. */
static const char *
write_stopped(const struct params *p, const struct ending *e, char *out, size_t size)
{
	char whom[80] = "the command was";

	if (p->cmd == CMD_HOLD && !p->steer.pid)
		return "it was held for no process, so none was stopped";
	if (p->cmd == CMD_HOLD && e->returned)
		return "it had been released before, so nothing was stopped";
	if (p->cmd == CMD_HOLD)
		snprintf(whom, sizeof whom, "process %d and its descendants were",
		    p->steer.pid);
	if (e->stuck)
		snprintf(out, size, "%.*s could NOT be killed and may still be running",
		    (int)(strrchr(whom, ' ') - whom), whom);
	else
		snprintf(out, size, "%s stopped", whom);
	return out;
}

/* How it was lost; "": the words name the one that asked for it.  Of several keys, one is enough. */
static const char *
write_loss(const struct params *p, const struct ending *e, char *out, size_t size)
{
	const char *what = p->nkeys > 1 ? "one of them" : "it";
	bool held = p->cmd == CMD_HOLD;

	*out = '\0';
	if (e->loss == LOSS_SILENCE)
		return "the lease could not be renewed in time";
	if (e->loss == LOSS_TAKEN)
		snprintf(out, size, "%s was taken away while %s", what,
		    held ? "it was held" : "the command ran");
	if (e->loss == LOSS_FOUND)
		snprintf(out, size, "%s was no longer ours when %s", what,
		    held ? "it was to be released" : "the command ended");
	return out;
}

static void
lost(struct verdict *v, const struct params *p, const struct ending *e,
    const struct shown *s)
{
	char loss[80], stopped[160];
	const char *how = write_loss(p, e, loss, sizeof loss);
	bool alone = !*how, words = *s->words.text;

	verdict_decide(v, verdict_status(e), "lost",
	    "lost %s: %s%s%s%s; %s; check its work before you run it again", s->key.text,
	    how, words && !alone ? " (" : "", s->words.text, words && !alone ? ")" : "",
	    e->loss == LOSS_FOUND && !e->stuck
		? "another may have run beside it"
		: write_stopped(p, e, stopped, sizeof stopped));
}

int
verdict_status(const struct ending *e)
{
	switch (e->kind) {
	case END_COMMAND:
		return WIFSIGNALED(e->value) ? exit_of_signal(WTERMSIG(e->value))
					     : WEXITSTATUS(e->value);
	case END_EXEC:
		return exit_of_exec(e->value);
	case END_MAX_RUN:
		return STATUS_MAX_RUN;
	case END_KILLED:
		return exit_of_signal(e->value);
	case END_LOST:
		return STATUS_LOST;
	case END_ORPHANED:
		return STATUS_SYSTEM;
	default:
		return STATUS_NONE;
	}
}

struct outcome
verdict_outcome(const struct ending *e)
{
	return (struct outcome){.status = verdict_status(e),
	    .ended = e->kind == END_COMMAND || e->kind == END_MAX_RUN ||
		e->kind == END_KILLED};
}

static void
ended(struct verdict *v, const struct ending *e, const struct shown *s)
{
	v->name = "ended";
	if (WIFSIGNALED(e->value))
		v->signal = WTERMSIG(e->value);
	v->status = verdict_status(e);
	if (e->unconfirmed)
		snprintf(v->line, sizeof v->line,
		    "%s: the release was not confirmed (%s); %s", s->key.text,
		    s->words.text,
		    e->kept == KEPT_TRYING
			? "dlock tries again in the background, and the lock ends with its lease at the latest"
			: "the lock ends with its lease");
}

/* This stands apart, since most runs end without a word and need none of its pages. */
static __attribute__((noinline)) struct verdict
verdict_in_words(const struct params *p, const struct ending *e, const struct heard *h)
{
	struct verdict v = {.name = "failed", .status = STATUS_SYSTEM};
	struct shown s = {params_keys(p), text_shown(h->words), text_shown(h->where), ""};

	text_clean(
	    s.command, sizeof s.command, p->command.argv[0], strlen(p->command.argv[0]));
	switch (e->kind) {
	case END_NONE:
	case END_ORPHANED:
		break;
	case END_COMMAND:
		ended(&v, e, &s);
		break;
	case END_EXEC:
		verdict_decide(&v, verdict_status(e), "not-executed",
		    "cannot execute '%s' under %s: %s; %s", s.command, s.key.text,
		    h->missing ? h->missing : strerror(e->value), after(e));
		break;
	case END_REFUSED:
		verdict_refused(&v, p, e, &s, h);
		break;
	case END_INTERRUPTED:
		if (e->value == INTERRUPTED_BY_LOOK && h->newer) {
			superseded(&v, p, &s, h);
			break;
		}
		v = (struct verdict){.status = exit_of_signal(e->value),
		    .signal = e->value,
		    .again = e->value == INTERRUPTED_BY_LOOK,
		    .name = "interrupted"};
		break;
	case END_MAX_RUN:
		verdict_decide(&v, verdict_status(e), "max-run",
		    "stopped '%s' under %s after --max-run %s; %s", s.command, s.key.text,
		    parse_span(p->terms.max_run).text, after(e));
		break;
	case END_KILLED:
		verdict_decide(&v, verdict_status(e), "killed",
		    "killed '%s' under %s: it had not ended --kill-after %s after %s; %s",
		    s.command, s.key.text, parse_span(p->terms.kill_after).text,
		    parse_signal_text(e->value).text, after(e));
		v.signal = e->value;
		break;
	case END_LOST:
		lost(&v, p, e, &s);
		break;
	}
	v.muted = p->show.quiet &&
	    ((e->kind == END_REFUSED && e->value == RC_BUSY) ||
		e->kind == END_INTERRUPTED || e->kind == END_COMMAND);
	/* where the job has been done nothing is wrong: -v asks to be told */
	if (e->kind == END_REFUSED && e->value == RC_DONE && !p->show.verbose)
		v.muted = h->done_status == 0 || p->show.quiet;
	return v;
}

struct verdict
verdict_of(const struct params *p, const struct ending *e, const struct heard *h)
{
	struct verdict v = {.line = ""};

	if (e->kind != END_COMMAND || e->unconfirmed)
		return verdict_in_words(p, e, h);
	ended(&v, e, NULL);
	return v;
}

struct verdict
verdict_of_release(
    const struct params *p, const struct ending *e, const char *words, const char *where)
{
	const struct heard heard = {.words = words, .where = where};
	struct verdict v = verdict_of(p, e, &heard);
	bool several = p->nkeys > 1;

	if (v.muted)
		v.line[0] = '\0';
	if (e->kind == END_COMMAND)
		v.status = e->unconfirmed ? STATUS_UNAVAILABLE : 0;
	if (e->kept == KEPT_OUTSIDE && !*v.line)
		snprintf(v.line, sizeof v.line,
		    "%s %s released here, but the outer run still holds %s",
		    params_keys(p).text, several ? "are" : "is", several ? "them" : "it");
	return v;
}

struct verdict
verdict_of_kept(const struct params *p, unsigned joined, instant keep_until)
{
	struct verdict v = {.name = "kept"};
	int64_t left = keep_until - instant_now();
	char many[100] = "", until[200] = "";

	if (joined)
		snprintf(many, sizeof many,
		    " until the runs that have joined this hold have ended: %u", joined);
	if (left > 0)
		snprintf(until, sizeof until,
		    "%s until %s, for the --min-hold of a run that has joined this hold",
		    joined ? ", and" : "", text_time(instant_epoch() + left / 1000).text);
	v.status = left > 0 ? STATUS_BUSY : 0;
	snprintf(v.line, sizeof v.line, "%s %s kept%s%s", params_keys(p).text,
	    p->nkeys > 1 ? "are" : "is", many, until);
	return v;
}
