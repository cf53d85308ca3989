/* events.c - tells each event as a line of JSON. */
#include "events.h"

#include "backends/common/libc.h"
#include "cmd/json.h"
#include "cmd/log.h"
#include "cmd/parse.h"
#include "cmd/record.h"
#include "cmd/say.h"
#include "cmd/text.h"
#include "delivery.h"
#include "waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* PIPE_BUF: a pipe that poll calls writable takes so much at once */
enum { LINE_BYTES = 4096 };

static void
events_begin(struct json *j, char *line, const struct params *p, const char *event)
{
	json_begin(j, line, LINE_BYTES - 1);
	json_put_time(j, "time", instant_epoch());
	json_put_string(j, "event", event);
	json_put_string(j, "key", p->keys[0]);
}

static void
events_finish(struct json *j, const struct params *p, int64_t patience)
{
	if (p->nkeys > 1)
		/* last: long ones must not take the room of anything else */
		json_put_strings(j, "keys", p->keys, p->nkeys);
	json_end(j);
	j->out[j->used++] = '\n';
	say_bytes(p->show.status_fd, j->out, j->used, patience);
}

static void
put_kind(struct json *j, enum lock_kind kind, unsigned limit)
{
	json_put_string(j, "kind", record_kind_name(kind));
	if (kind == KIND_LIMIT)
		json_put_number(j, "limit", limit);
}

/* The holders of what we wait for, if they are known. */
static void
put_holding(struct json *j, const struct holding *h)
{
	int64_t until;

	if (h->frozen)
		json_put_truth(j, "frozen", true);
	if (h->frozen && held_freeze_end(h, &until))
		json_put_time(j, "until", until);
	if (h->holders > 0) {
		put_kind(j, h->kind, h->limit);
		json_put_number(j, "holders", h->holders);
	}
	if (*h->record)
		json_put_string(j, "holder", h->record);
}

void
events_message(const struct params *p, const struct msg *m)
{
	static const struct {
		const char *event, *number, *text;
	} shapes[] = {
	    [MSG_WAITING] = {"waiting", "position", NULL},
	    [MSG_RETRYING] = {"retrying", NULL, "reason"},
	    [MSG_SKIPPED] = {"skipped", "done_status", "reason"},
	    [MSG_SUPERSEDED] = {"superseded", NULL, "by"},
	    [MSG_GRANTED] = {"acquired", NULL, NULL},
	    [MSG_STARTED] = {"started", "pid", NULL},
	    [MSG_SUSPENDED] = {"stopped", "signal", NULL},
	    [MSG_RESUMED] = {"resumed", NULL, NULL},
	    [MSG_SUSPECT] = {"suspect", "left_ms", "reason"},
	    [MSG_TRUSTED] = {"trusted", NULL, NULL},
	    [MSG_STOPPING] = {"stopping", NULL, "reason"},
	    [MSG_NOTICE] = {"notice", NULL, "message"},
	};
	char line[LINE_BYTES];
	struct json j;

	if ((size_t)m->kind >= sizeof shapes / sizeof *shapes || !shapes[m->kind].event)
		return;
	events_begin(&j, line, p, shapes[m->kind].event);
	if (m->kind == MSG_GRANTED) {
		json_put_number(&j, "token", m->token);
		put_kind(&j, p->claim.kind, p->claim.limit);
	}
	if (m->kind == MSG_GRANTED && p->claim.kind == KIND_LIMIT)
		json_put_number(&j, "slot", m->slot);
	if (shapes[m->kind].number)
		json_put_number(&j, shapes[m->kind].number,
		    m->kind == MSG_SUSPECT ? m->number / NS_PER_MS : m->number);
	if (m->kind == MSG_WAITING && m->key >= KEYS_MAX)
		json_put_string(&j, "unless_frozen", params_awaited(p, m->key));
	if (m->kind == MSG_WAITING)
		put_holding(&j, &m->holding);
	if (shapes[m->kind].text && *m->text)
		json_put_string(&j, shapes[m->kind].text, m->text);
	events_finish(&j, p, SAY_AT_ONCE);
}

void
events_verdict(const struct params *p, const struct verdict *v)
{
	char line[LINE_BYTES];
	struct json j;

	events_begin(&j, line, p, "verdict");
	json_put_string(&j, "verdict", v->name);
	json_put_number(&j, "status", v->status);
	if (v->signal)
		json_put_number(&j, "signal", v->signal);
	if (v->waited)
		json_put_seconds(&j, "waited_s", v->waited);
	if (v->held)
		json_put_seconds(&j, "held_s", v->held);
	if (*v->line && !v->muted)
		json_put_string(&j, "message", v->line);
	events_finish(&j, p, SAY_PATIENTLY);
}

/* ---- the log ---- */

/* Tells how long the run waited for its grant, and how long it has held it until now. */
static void
log_times(const struct run *r, int64_t *waited, int64_t *held)
{
	instant now = instant_now(), granted = atomic_load(&r->page->granted_at);

	*waited = (granted ? granted : now) - r->began;
	*held = granted ? now - granted : -1;
}

void
events_log_grant(const struct run *r)
{
	uint64_t token = atomic_load(&r->page->log.token);
	struct log_line l = {.event = "acquired",
	    .pid = r->shown,
	    .server = page_where(r->page),
	    .token = token};
	char before[750], after[100];

	if (atomic_exchange(&r->page->log.granted, true))
		return;
	log_times(r, &l.waited, &l.held);
	l.held = -1;
	snprintf(before, sizeof before, "%s: acquired by ", params_keys(r->params).text);
	snprintf(after, sizeof after, ", token %" PRIu64 ", after %s of waiting", token,
	    parse_span(l.waited).text);
	l.before = before;
	l.after = after;
	log_write(r->params, &l);
}

/* Says what the user did in a run that ends so. */
static const char *
part_of(const struct params *p, const struct verdict *v)
{
	return !v->held ? "asked for" : p->cmd == CMD_HOLD ? "held" : "run";
}

/* The sentence for a verdict that needs none elsewhere. */
static void
describe_end(const struct params *p, const struct verdict *v, char *out, size_t size)
{
	const struct clean key = params_keys(p);
	char how[80];

	snprintf(how, sizeof how, "dlock was killed, and has stopped the %s",
	    p->cmd == CMD_HOLD ? "process" : "command");
	if (strcmp(v->name, "interrupted") == 0 && v->signal)
		snprintf(how, sizeof how, "interrupted by %s",
		    parse_signal_text(v->signal).text);
	else if (strcmp(v->name, "ended") == 0 && p->cmd == CMD_HOLD)
		snprintf(how, sizeof how, "given back");
	else if (strcmp(v->name, "ended") == 0 && v->signal)
		snprintf(how, sizeof how, "the command was ended by %s",
		    parse_signal_text(v->signal).text);
	else if (strcmp(v->name, "ended") == 0)
		snprintf(how, sizeof how, "the command ended with status %d", v->status);
	snprintf(out, size, "%s: %s after %s%s, %s by ", key.text, how,
	    parse_span(v->held ? v->held : v->waited).text, v->held ? "" : " of waiting",
	    part_of(p, v));
}

/* Is it something to look at in the morning? */
static enum log_weight
weight_of(const struct verdict *v)
{
	if (v->status == 0 || strcmp(v->name, "skipped") == 0)
		return LOG_USUAL;
	if (strcmp(v->name, "ended") == 0 || strcmp(v->name, "busy") == 0 ||
	    strcmp(v->name, "superseded") == 0 || strcmp(v->name, "interrupted") == 0)
		return LOG_NOTABLE;
	return LOG_TROUBLE;
}

void
events_log_end(const struct params *p, const struct verdict *v)
{
	struct log_line l = {.event = v->name,
	    .weight = weight_of(v),
	    .pid = v->pid ? v->pid : getpid(),
	    .server = v->where,
	    .token = v->token,
	    .has_status = true,
	    .status = v->status,
	    .signal = v->signal,
	    .waited = v->waited ? v->waited : -1,
	    .held = v->held ? v->held : -1,
	    .message = v->line};
	char before[sizeof v->line + 20];

	if (*v->line)
		snprintf(before, sizeof before, "%s (%s by ", v->line, part_of(p, v));
	else
		describe_end(p, v, before, sizeof before);
	l.before = before;
	l.after = *v->line ? ")" : "";
	log_write(p, &l);
}

void
events_log_orphan(const struct run *r, const struct ending *e, const char *words)
{
	const struct heard heard = {.words = words, .where = page_where(r->page)};
	bool granted = atomic_load(&r->page->granted_at);
	struct verdict v;

	if (r->params->show.log.kind == LOG_TO_FD ||
	    atomic_exchange(&r->page->log.ended, true))
		return;
	if (granted && delivery_known(r))
		events_log_grant(r);
	v = verdict_of(r->params, e, &heard);
	log_times(r, &v.waited, &v.held);
	if (!granted)
		v.held = 0;
	v.where = page_where(r->page);
	v.token = atomic_load(&r->page->log.token);
	v.pid = r->shown;
	events_log_end(r->params, &v);
}
