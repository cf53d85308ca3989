/* events.c - writes what happens as JSON to --status-fd. */
#include "events.h"

#include "cmd/object.h"
#include "cmd/record.h"
#include "cmd/say.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* PIPE_BUF: a pipe that poll calls writable takes so much at once */
enum { LINE_BYTES = 4096 };

static void
events_begin(struct object *j, char *line, const struct plan *p, const char *event)
{
	struct timespec t;
	struct tm tm;
	char day[32] = "", stamp[48];

	clock_gettime(CLOCK_REALTIME, &t);
	if (gmtime_r(&t.tv_sec, &tm))
		strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(stamp, sizeof stamp, "%s.%03ldZ", day, t.tv_nsec / 1000000);
	object_begin(j, line, LINE_BYTES - 1);
	object_string(j, "time", stamp);
	object_string(j, "event", event);
	object_string(j, "key", p->keys[0]);
}

static void
events_finish(struct object *j, const struct plan *p, int64_t patience)
{
	if (p->nkeys > 1)
		/* last: long ones must not take the room of anything else */
		object_strings(j, "keys", p->keys, p->nkeys);
	object_end(j);
	j->out[j->used++] = '\n';
	say_bytes(p->show.status_fd, j->out, j->used, patience);
}

static void
put_kind(struct object *j, enum lock_kind kind, unsigned limit)
{
	object_string(j, "kind", record_kind_name(kind));
	if (kind == KIND_LIMIT)
		object_number(j, "limit", limit);
}

/* The holders of what we wait for, if they are known. */
static void
put_holding(struct object *j, const struct holding *h)
{
	if (h->frozen)
		object_truth(j, "frozen", true);
	if (h->holders > 0) {
		put_kind(j, h->kind, h->limit);
		object_number(j, "holders", h->holders);
	}
	if (*h->record)
		object_string(j, "holder", h->record);
}

void
events_message(const struct plan *p, const struct msg *m)
{
	static const struct {
		const char *event, *number, *text;
	} shapes[] = {
	    [MSG_WAITING] = {"waiting", "position", NULL},
	    [MSG_RETRYING] = {"retrying", NULL, "reason"},
	    [MSG_SKIPPED] = {"skipped", NULL, "reason"},
	    [MSG_GRANTED] = {"acquired", NULL, NULL},
	    [MSG_STARTED] = {"started", "pid", NULL},
	    [MSG_STOPPED] = {"stopped", "signal", NULL},
	    [MSG_RESUMED] = {"resumed", NULL, NULL},
	    [MSG_SUSPECT] = {"suspect", "left_ms", "reason"},
	    [MSG_TRUSTED] = {"trusted", NULL, NULL},
	    [MSG_STOPPING] = {"stopping", NULL, "reason"},
	    [MSG_NOTICE] = {"notice", NULL, "message"},
	};
	char line[LINE_BYTES];
	struct object j;

	if (p->show.status_fd < 0 || (size_t)m->kind >= sizeof shapes / sizeof *shapes ||
	    !shapes[m->kind].event)
		return;
	events_begin(&j, line, p, shapes[m->kind].event);
	if (m->kind == MSG_GRANTED) {
		object_number(&j, "token", m->token);
		put_kind(&j, p->claim.kind, p->claim.limit);
	}
	if (m->kind == MSG_GRANTED && p->claim.kind == KIND_LIMIT)
		object_number(&j, "slot", m->slot);
	if (shapes[m->kind].number)
		object_number(&j, shapes[m->kind].number,
		    m->kind == MSG_SUSPECT ? m->number / NS_PER_MS : m->number);
	if (m->kind == MSG_WAITING)
		put_holding(&j, &m->holding);
	if (shapes[m->kind].text && *m->text)
		object_string(&j, shapes[m->kind].text, m->text);
	events_finish(&j, p, SAY_AT_ONCE);
}

void
events_verdict(const struct plan *p, const struct verdict *v)
{
	char line[LINE_BYTES];
	struct object j;

	if (p->show.status_fd < 0)
		return;
	events_begin(&j, line, p, "verdict");
	object_string(&j, "verdict", v->name);
	object_number(&j, "status", v->status);
	if (v->signal)
		object_number(&j, "signal", v->signal);
	if (*v->line)
		object_string(&j, "message", v->line);
	events_finish(&j, p, SAY_PATIENTLY);
}
