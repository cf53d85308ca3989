/* show.c - shows what a look has found: as JSON, in words, as lines for people. */
#include "show.h"

#include "exit.h"
#include "held.h"
#include "json.h"
#include "parse.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 20 }; /* holders that people see, and as many waiters */

/* ---- JSON ---- */

static void
put_person(struct json *j, const struct record *r)
{
	json_put_string(j, "who", r->who);
	json_put_string(j, "host", r->host);
	json_put_known(j, "pid", r->pid, r->pid);
	json_put_string(j, "command", r->command);
	json_put_string(j, "arguments", r->arguments);
	json_put_string(j, "why", r->why);
}

static void
put_holder(struct json *j, const struct view *v, const struct person *p)
{
	json_open(j, NULL, '{');
	json_put_known(j, "token", p->token, p->token);
	json_put_string(j, "owner", p->owner);
	json_put_known(j, "slot", p->slot >= 0, p->slot);
	put_person(j, &p->said);
	json_put_time(j, "since", p->since);
	json_put_seconds(j, "held_s", view_ago(v, p->since));
	json_put_seconds(j, "lease_left_s", view_left(v, p->until));
	json_put_seconds(j, "ttl_s", p->said.ttl ? p->said.ttl : -1);
	json_put_seconds(j, "renewed_s", view_renewed(v, p));
	json_put_time(j, "kept_until", view_after(p, p->said.keep));
	json_put_time(j, "ends_by", view_after(p, p->said.end));
	json_put_truth(j, "revoked", p->revoked);
	if (p->revoked) {
		json_put_string(j, "revoked_by", p->asker.who);
		json_put_string(j, "revoked_why", p->asker.why);
	}
	json_put_truth(j, "foreign", p->foreign != NULL);
	if (p->foreign)
		json_put_string(j, "what", p->foreign);
	json_close(j, '}');
}

static void
put_waiter(struct json *j, const struct view *v, const struct person *p)
{
	json_open(j, NULL, '{');
	json_put_number(j, "position", p->position);
	json_put_string(j, "kind", record_kind_name(p->kind));
	put_person(j, &p->said);
	json_put_time(j, "since", p->since);
	json_put_seconds(j, "waiting_s", view_ago(v, p->since));
	json_put_time(j, "newest",
	    p->said.newest > 0        ? p->said.newest
		: p->said.newest == 0 ? p->since
				      : EPOCH_NONE);
	json_close(j, '}');
}

static void
put_freeze(struct json *j, const struct view *v)
{
	const struct person *p = &v->frozen;

	json_open(j, "frozen", '{');
	json_put_string(j, "who", p->said.who);
	json_put_string(j, "why", p->said.why);
	json_put_time(j, "since", p->since);
	json_put_time(j, "until", p->until);
	json_put_truth(j, "late", view_freeze_is_late(v));
	json_close(j, '}');
}

/* Puts a run, or null (NULL). */
static void
put_run(struct json *j, const char *name, const struct person *p)
{
	if (!p) {
		json_put_string(j, name, NULL);
		return;
	}
	json_open(j, name, '{');
	json_put_string(j, "id", p->once);
	json_put_string(j, "who", p->said.who);
	json_put_time(j, "began", p->since);
	json_put_time(j, "ended", p->until);
	json_put_seconds(j, "took_s", view_span(p->since, p->until));
	json_put_number(j, "status", p->status);
	json_put_known(j, "token", p->token, p->token);
	json_put_truth(j, "job", !p->jobless);
	json_close(j, '}');
}

static void
begin_line(struct json *j, FILE *to, int64_t time, const char *key,
    const struct backend *b, const struct store *s)
{
	json_begin_stream(j, to);
	json_put_number(j, "v", 1);
	if (time != EPOCH_NONE)
		json_put_time(j, "time", time);
	json_put_string(j, "key", key);
	json_put_string(j, "backend", b->name);
	json_put_string(j, "server", s ? s->where : NULL);
}

void
show_job(FILE *to, const struct view *v, const struct store *s)
{
	struct json j;

	begin_line(&j, to, instant_epoch(), v->key, s->backend, s);
	json_put_string(&j, "id", view_id(v));
	put_run(&j, "last", v->has_last ? &v->last : NULL);
	put_run(&j, "last_success", view_good(v));
	json_end(&j);
}

static void
put_switches(struct json *j, const struct view *v)
{
	json_open(j, "unless_frozen", '[');
	for (size_t i = 0; i < v->nswitches; i++) {
		json_open(j, NULL, '{');
		json_put_string(j, "key", v->switches[i].key);
		if (v->switches[i].is_frozen)
			put_freeze(j, &v->switches[i]);
		else
			json_put_string(j, "frozen", NULL);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void
put_view(struct json *j, const struct view *v, const struct store *s, bool brief)
{
	const struct person *h = view_holder(v);

	json_put_string(j, "state", view_state_name(v));
	json_put_string(j, "kind", h ? record_kind_name(h->kind) : NULL);
	json_put_known(j, "limit", h && h->limit, h ? h->limit : 0);
	json_open(j, "holders", '[');
	for (size_t i = 0; i < v->holders.n; i++)
		put_holder(j, v, &v->holders.list[i]);
	json_close(j, ']');
	if (brief)
		json_put_number(j, "waiting", (int64_t)v->waiters.all);
	else {
		json_open(j, "waiters", '[');
		for (size_t i = 0; i < v->waiters.n; i++)
			put_waiter(j, v, &v->waiters.list[i]);
		json_close(j, ']');
	}
	if (v->is_frozen)
		put_freeze(j, v);
	else
		json_put_string(j, "frozen", NULL);
	put_run(j, "last", v->has_last ? &v->last : NULL);
	put_run(j, "last_success", view_good(v));
	if (v->nswitches > 0)
		put_switches(j, v);
	if (v->unknown)
		json_put_string(j, "unknown", v->unknown);
	if (v->beside)
		json_put_string(j, "beside", v->beside);
	if (s->backend->caveat)
		json_put_string(j, "caveat", s->backend->caveat);
}

void
show_json(FILE *to, const struct view *v, const struct store *s, bool brief, int64_t time)
{
	struct json j;

	begin_line(&j, to, time, v->key, s->backend, s);
	put_view(&j, v, s, brief);
	json_end(&j);
}

void
show_steered(FILE *to, const struct steered *w)
{
	struct json j;

	begin_line(&j, to, instant_epoch(), w->key, w->backend, w->store);
	json_put_string(&j, "action", w->action);
	json_put_string(&j, "result",
	    w->status == 0                    ? "done"
		: w->status == STATUS_NOTHING ? "nothing"
		: w->status == STATUS_BUSY    ? "busy"
					      : "failed");
	json_put_number(&j, "status", w->status);
	json_put_string(&j, "who", w->by->who);
	json_put_string(&j, "why", w->by->why);
	if (w->view)
		put_view(&j, w->view, w->store, true);
	json_end(&j);
}

/* ---- words ---- */

/* " for 2m13s", or "" if that is not known. */
static struct brief
for_time(const struct view *v, int64_t since)
{
	int64_t ago = view_ago(v, since);
	struct brief b = {""};

	if (ago >= 0)
		snprintf(b.text, sizeof b.text, " for %s", parse_span(ago).text);
	return b;
}

const char *
show_colour(const struct screen *s, const struct view *v)
{
	static const enum colour colours[] = {GREEN, YELLOW, CYAN};

	return screen_colour(s, colours[view_state(v)]);
}

/* ---- lines for people ---- */

struct printer {
	FILE *to;
	const struct view *view;
	const struct screen *screen;
};

static void
print_name(const struct printer *p, const char *name)
{
	fprintf(p->to, "  %s%-9s%s ", screen_colour(p->screen, DIM), name,
	    screen_colour(p->screen, PLAIN));
}

static void
print_token(const struct printer *p, int64_t token)
{
	if (token)
		fprintf(p->to, ", token %" PRId64, token);
}

/* "deploy (redis 127.0.0.1:6379) is held: 2 of 4 slots taken" */
static void
print_head(const struct printer *p, const struct store *s)
{
	const struct view *v = p->view;
	struct held h;
	struct brief share;
	char key[2200];

	held_of_view(&h, v);
	share = held_share(&h);

	fprintf(p->to, "%s%s%s (%s) is %s%s%s", screen_colour(p->screen, BOLD),
	    text_name(key, sizeof key, v->key), screen_colour(p->screen, PLAIN),
	    text_shown(s->where).text, show_colour(p->screen, v), view_state_name(v),
	    screen_colour(p->screen, PLAIN));
	if (v->is_frozen && view_state(v) != STATE_FROZEN)
		fputs(", and frozen for others", p->to);
	if (v->unknown)
		fprintf(p->to, " by something that is no lock: %s",
		    text_shown(v->unknown).text);
	fprintf(p->to, "%s%s\n", *share.text ? ": " : "", share.text);
}

static void
print_holder(const struct printer *p, const struct person *h)
{
	int64_t ago = view_ago(p->view, h->since);
	const struct brief lease = held_lease(p->view, h);
	char asker[700], ahead[HELD_AHEAD];
	struct held held;

	held_of_person(&held, p->view, h);
	record_words(&h->asker, asker, sizeof asker);
	print_name(p, "holder");
	fprintf(p->to, "%s\n  %-9s since %s", view_person(h).text, "",
	    text_time(h->since).text);
	if (ago >= 0)
		fprintf(p->to, " (%s ago)", parse_span(ago).text);
	fprintf(p->to, "%s%s%s", *lease.text ? ", " : "", lease.text,
	    held_ahead(&held, ahead));
	if (h->slot >= 0)
		fprintf(p->to, ", slot %" PRId64, h->slot);
	print_token(p, h->token);
	if (h->revoked)
		fprintf(p->to, ", %sasked to give it back%s%s%s",
		    screen_colour(p->screen, RED), screen_colour(p->screen, PLAIN),
		    h->asker.who ? " by " : "", h->asker.who ? asker : "");
	fputs("\n", p->to);
}

static void
print_more(const struct printer *p, uint64_t all)
{
	if (all > LISTED)
		fprintf(p->to, "  %-9s and %" PRIu64 " more (-J lists them)\n", "",
		    all - LISTED);
}

static void
print_waiter(const struct printer *p, size_t i)
{
	const struct person *w = &p->view->waiters.list[i];
	char name[32];

	snprintf(
	    name, sizeof name, "%-7s %" PRId64, i == 0 ? "waiting" : "", w->position);
	print_name(p, name);
	fprintf(p->to, "%s%s%s%s\n", view_person(w).text,
	    w->kind == KIND_SHARED      ? " as a reader"
		: w->kind == KIND_LIMIT ? " for a slot"
					: "",
	    for_time(p->view, w->since).text, w->said.newest >= 0 ? " (--newest)" : "");
}

static void
print_run(const struct printer *p, const char *name, const struct person *by)
{
	int64_t took = view_span(by->since, by->until);
	char who[200], id[900];

	print_name(p, name);
	fprintf(p->to, "%s%s%sby %s, status %" PRId64 "\n  %-9s began %s",
	    by->once ? "ID " : "", by->once ? text_name(id, sizeof id, by->once) : "",
	    by->once ? " " : "",
	    text_name(who, sizeof who, by->said.who ? by->said.who : "somebody"),
	    by->status, "", text_time(by->since).text);
	if (took >= 0)
		fprintf(p->to, ", took %s", parse_span(took).text);
	print_token(p, by->token);
	fputs("\n", p->to);
}

/* A frozen key on which runs of this one wait. */
static void
print_switch(const struct printer *p, const struct view *v)
{
	char name[900], says[HELD_BYTES];
	struct held h;

	held_of_freeze(&h, v);
	print_name(p, "waits for");
	fprintf(p->to, "%s, which%s\n", text_name(name, sizeof name, v->key),
	    held_says(&h, false, says));
}

void
show_text(
    FILE *to, const struct view *v, const struct store *s, const struct screen *screen)
{
	const struct printer p = {to, v, screen};
	const char *caveat = s->backend->caveat;

	print_head(&p, s);
	for (size_t i = 0; i < v->holders.n && i < LISTED; i++)
		print_holder(&p, &v->holders.list[i]);
	print_more(&p, v->holders.all);
	for (size_t i = 0; i < v->waiters.n && i < LISTED; i++)
		print_waiter(&p, i);
	print_more(&p, v->waiters.all);
	if (v->is_frozen) {
		print_name(&p, "frozen");
		fprintf(to, "by %s\n  %-9s since %s, %s\n", view_person(&v->frozen).text,
		    "", text_time(v->frozen.since).text,
		    text_until(v->frozen.until).text);
		if (view_freeze_is_late(v))
			fprintf(to,
			    "  %-9s that is later than was asked for, because a clock was wrong: dlock thaw ends it\n",
			    "");
	}
	for (size_t i = 0; i < v->nswitches; i++)
		if (v->switches[i].is_frozen)
			print_switch(&p, &v->switches[i]);
	if (v->has_last)
		print_run(&p, "last run", &v->last);
	if (v->has_good)
		print_run(&p, "success", &v->good);
	if (v->beside) {
		print_name(&p, "beside");
		fprintf(to, "%s\n", text_shown(v->beside).text);
	}
	/* nobody relies on a lock that is free */
	if (caveat && view_state(v) != STATE_FREE) {
		print_name(&p, "caveat");
		fprintf(to, "%s\n", caveat);
	}
}

/* ---- changes ---- */

uint64_t
show_facts(const struct view *v, const struct store *s, bool brief)
{
	uint64_t h = 14695981039346656037ULL; /* FNV-1a */
	struct view still = *v;
	char *text = NULL;
	size_t n = 0;
	FILE *to = open_memstream(&text, &n);

	if (!to)
		return 0;
	still.now = EPOCH_NONE; /* without a clock no time passes */
	show_json(to, &still, s, brief, EPOCH_NONE);
	fprintf(to, "%" PRIu64, v->holders.all);
	fclose(to);
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)text[i]) * 1099511628211ULL;
	free(text);
	return h;
}
