/* show.c - shows what a look has found of one key. */
#include "show.h"

#include "jsonline.h"
#include "parse.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum {
	PERSON_BYTES = 900,
	LISTED = 20, /* so many holders, and waiters, are shown to people */
};

#define US_PER_S 1000000
#define YEAR_10000 (253402300800 * US_PER_S)

/* ---- JSON ---- */

static void
put_token(struct jsonline *j, uint64_t token)
{
	if (token)
		jsonline_number(j, "token", token);
	else
		jsonline_null(j, "token");
}

/* Who somebody is. */
static void
put_person(struct jsonline *j, const struct record *r)
{
	jsonline_string(j, "who", r->who);
	jsonline_string(j, "host", r->host);
	if (r->pid)
		jsonline_number(j, "pid", r->pid);
	else
		jsonline_null(j, "pid");
	jsonline_string(j, "command", r->command);
	jsonline_string(j, "why", r->why);
}

static void
put_holder(struct jsonline *j, const struct view *v, const struct person *p)
{
	jsonline_open(j, NULL, '{');
	put_token(j, p->token);
	jsonline_string(j, "owner", p->owner);
	if (p->slot >= 0)
		jsonline_number(j, "slot", p->slot);
	else
		jsonline_null(j, "slot");
	put_person(j, &p->said);
	jsonline_time(j, "since", p->since);
	jsonline_seconds(j, "held_s", view_ago(v, p->since));
	jsonline_seconds(j, "lease_left_s", view_left(v, p->until));
	jsonline_truth(j, "revoked", p->revoked);
	jsonline_truth(j, "foreign", p->foreign != NULL);
	if (p->foreign)
		jsonline_string(j, "what", p->foreign);
	jsonline_close(j, '}');
}

static void
put_holders(struct jsonline *j, const struct view *v)
{
	enum lock_kind kind;
	unsigned limit;
	bool known = view_kind(v, &kind, &limit);

	jsonline_string(j, "kind", known ? view_kind_name(kind) : NULL);
	if (known && kind == KIND_LIMIT && limit > 0)
		jsonline_number(j, "limit", limit);
	else
		jsonline_null(j, "limit");
	jsonline_open(j, "holders", '[');
	for (size_t i = 0; i < v->holders.n; i++)
		put_holder(j, v, &v->holders.list[i]);
	jsonline_close(j, ']');
}

static void
put_waiters(struct jsonline *j, const struct view *v)
{
	jsonline_open(j, "waiters", '[');
	for (size_t i = 0; i < v->waiters.n; i++) {
		const struct person *p = &v->waiters.list[i];

		jsonline_open(j, NULL, '{');
		jsonline_number(j, "position", p->position ? p->position : i + 1);
		jsonline_string(j, "kind", view_kind_name(p->kind));
		put_person(j, &p->said);
		jsonline_time(j, "since", p->since);
		jsonline_seconds(j, "waiting_s", view_ago(v, p->since));
		jsonline_close(j, '}');
	}
	jsonline_close(j, ']');
}

static void
put_freeze(struct jsonline *j, const struct view *v)
{
	if (!v->is_frozen) {
		jsonline_null(j, "frozen");
		return;
	}
	jsonline_open(j, "frozen", '{');
	jsonline_string(j, "who", v->frozen.said.who);
	jsonline_string(j, "why", v->frozen.said.why);
	jsonline_time(j, "since", v->frozen.since);
	jsonline_time(j, "until", v->frozen.until);
	jsonline_close(j, '}');
}

static void
put_last(struct jsonline *j, const struct view *v)
{
	if (!v->last.known) {
		jsonline_null(j, "last");
		return;
	}
	jsonline_open(j, "last", '{');
	jsonline_string(j, "id", v->last.once);
	jsonline_string(j, "who", v->last.by.said.who);
	jsonline_time(j, "began", v->last.by.since);
	jsonline_time(j, "ended", v->last.by.until);
	jsonline_number(j, "status", v->last.status & 0xff);
	put_token(j, v->last.by.token);
	jsonline_close(j, '}');
}

void
show_json(FILE *to, const struct view *v, const struct looking *l, bool brief)
{
	struct jsonline j;

	jsonline_begin(&j, to);
	jsonline_number(&j, "v", 1);
	jsonline_string(&j, "key", v->key);
	jsonline_string(&j, "backend", l->store->backend->name);
	jsonline_string(&j, "server", l->store->where);
	jsonline_string(&j, "state", view_state_name(view_state(v)));
	put_holders(&j, v);
	if (brief)
		jsonline_number(&j, "waiting", v->waiters.all);
	else
		put_waiters(&j, v);
	put_freeze(&j, v);
	put_last(&j, v);
	if (v->unknown)
		jsonline_string(&j, "unknown", v->unknown);
	if (l->store->backend->caveat)
		jsonline_string(&j, "caveat", l->store->backend->caveat);
	jsonline_end(&j);
}

/* ---- words ---- */

const char *
show_time(int64_t us, char *out, size_t size)
{
	time_t seconds = us / US_PER_S;
	struct tm tm;

	if (us < 0 || us >= YEAR_10000 || !localtime_r(&seconds, &tm))
		snprintf(out, size, "?");
	else
		strftime(out, size, "%Y-%m-%d %H:%M:%S %Z", &tm);
	return out;
}

const char *
show_until(int64_t us, char *out, size_t size)
{
	char time[48];

	snprintf(out, size, "until %s",
	    us < 0 ? "dlock thaw" : show_time(us, time, sizeof time));
	return out;
}

/* " for 2m13s", or "" */
static const char *
show_for(int64_t ns, char *out, size_t size)
{
	char time[32];

	*out = '\0';
	if (ns >= 0)
		snprintf(
		    out, size, " for %s", parse_duration_text(ns, time, sizeof time));
	return out;
}

/* "3 readers", "2 of 4 slots", "2 slots" of a number that is not known; "": one alone has it. */
static const char *
show_share(const struct view *v, char *out, size_t size)
{
	enum lock_kind kind = KIND_EXCLUSIVE;
	unsigned limit = 0;

	*out = '\0';
	view_kind(v, &kind, &limit);
	if (kind == KIND_SHARED)
		snprintf(out, size, "%" PRIu64 " reader%s", v->holders.all,
		    v->holders.all == 1 ? "" : "s");
	else if (kind == KIND_LIMIT && limit > 0)
		snprintf(
		    out, size, "%" PRIu64 " of %u slots taken", v->holders.all, limit);
	else if (kind == KIND_LIMIT)
		snprintf(out, size, "%" PRIu64 " slot%s taken", v->holders.all,
		    v->holders.all == 1 ? "" : "s");
	else if (v->holders.all > 1)
		snprintf(out, size, "%" PRIu64 " holders", v->holders.all);
	return out;
}

const char *
show_words(const struct view *v, char *out, size_t size)
{
	char who[PERSON_BYTES], share[64], time[48], until[64], unknown[200];

	if (v->holders.n > 0) {
		const struct person *p = &v->holders.list[0];

		show_share(v, share, sizeof share);
		snprintf(out, size, "held by %s%s%s%s%s%s%s", share,
		    *share && v->holders.all > 1 ? ", first "
			: *share                 ? ", "
						 : "",
		    view_person(p, who, sizeof who),
		    show_for(view_ago(v, p->since), time, sizeof time),
		    v->is_frozen ? " (and frozen for others " : "",
		    v->is_frozen ? show_until(v->frozen.until, until, sizeof until) : "",
		    v->is_frozen ? ")" : "");
	} else if (v->unknown) {
		snprintf(out, size, "in use by something that is no lock: %s",
		    text_clean(unknown, sizeof unknown, v->unknown, strlen(v->unknown)));
	} else if (v->is_frozen) {
		snprintf(out, size, "frozen by %s%s, %s",
		    view_person(&v->frozen, who, sizeof who),
		    show_for(view_ago(v, v->frozen.since), time, sizeof time),
		    show_until(v->frozen.until, until, sizeof until));
	} else if (v->waiters.all > 0) {
		snprintf(out, size, "waited for by %" PRIu64 " other%s", v->waiters.all,
		    v->waiters.all == 1 ? "" : "s");
	} else {
		snprintf(out, size, "free");
	}
	return out;
}

/* ---- lines for people ---- */

struct page {
	FILE *to;
	const struct view *view;
	const struct screen *screen;
};

static void
print_name(const struct page *p, const char *name)
{
	fprintf(p->to, "  %s%-9s%s ", screen_colour(p->screen, DIM), name,
	    screen_colour(p->screen, PLAIN));
}

/* "deploy (redis 127.0.0.1:6379) is held: 2 of 4 slots taken" */
static void
print_head(const struct page *p, const struct looking *l)
{
	static const enum colour colours[] = {GREEN, YELLOW, CYAN};
	const struct view *v = p->view;
	enum lock_state state = view_state(v);
	char key[2200], where[WHERE_BYTES], share[64], unknown[400];

	text_clean(where, sizeof where, l->store->where, strlen(l->store->where));
	fprintf(p->to, "%s%s%s (%s) is %s%s%s", screen_colour(p->screen, BOLD),
	    text_name(key, sizeof key, v->key), screen_colour(p->screen, PLAIN), where,
	    screen_colour(p->screen, colours[state]), view_state_name(state),
	    screen_colour(p->screen, PLAIN));
	if (v->is_frozen && state != STATE_FROZEN)
		fputs(", and frozen for others", p->to);
	if (v->unknown)
		fprintf(p->to, " by something that is no lock: %s",
		    text_clean(unknown, sizeof unknown, v->unknown, strlen(v->unknown)));
	show_share(v, share, sizeof share);
	fprintf(p->to, "%s%s\n", *share ? ": " : "", share);
}

static void
print_holder(const struct page *p, const struct person *h)
{
	char who[PERSON_BYTES], since[64], time[48];
	int64_t left = view_left(p->view, h->until);

	print_name(p, "holder");
	fprintf(p->to, "%s\n", view_person(h, who, sizeof who));
	fprintf(p->to, "  %-9s since %s", "", show_time(h->since, since, sizeof since));
	if (view_ago(p->view, h->since) >= 0)
		fprintf(p->to, " (%s ago)",
		    parse_duration_text(view_ago(p->view, h->since), time, sizeof time));
	if (left >= 0)
		fprintf(p->to, ", lease ends in %s",
		    parse_duration_text(left, time, sizeof time));
	if (h->slot >= 0)
		fprintf(p->to, ", slot %d", h->slot);
	if (h->token)
		fprintf(p->to, ", token %" PRIu64, h->token);
	if (h->revoked)
		fprintf(p->to, ", %sasked to give it back%s",
		    screen_colour(p->screen, RED), screen_colour(p->screen, PLAIN));
	fputs("\n", p->to);
}

static void
print_more(const struct page *p, uint64_t all)
{
	if (all > LISTED)
		fprintf(p->to, "  %-9s and %" PRIu64 " more (-J lists them)\n", "",
		    all - LISTED);
}

static void
print_waiters(const struct page *p)
{
	const struct people *w = &p->view->waiters;
	static const char *const kinds[] = {
	    [KIND_SHARED] = " as a reader", [KIND_LIMIT] = " for a slot"};
	char who[PERSON_BYTES], time[48], name[24];

	for (size_t i = 0; i < w->n && i < LISTED; i++) {
		const struct person *h = &w->list[i];
		const char *kind = h->kind < sizeof kinds / sizeof *kinds &&
			kinds[h->kind]
		    ? kinds[h->kind]
		    : "";

		snprintf(name, sizeof name, i == 0 ? "waiting %zu" : "        %zu",
		    h->position ? (size_t)h->position : i + 1);
		print_name(p, name);
		fprintf(p->to, "%s%s%s\n", view_person(h, who, sizeof who), kind,
		    show_for(view_ago(p->view, h->since), time, sizeof time));
	}
	print_more(p, w->all);
}

static void
print_freeze(const struct page *p)
{
	const struct person *f = &p->view->frozen;
	char who[PERSON_BYTES], since[64], until[64];

	if (!p->view->is_frozen)
		return;
	print_name(p, "frozen");
	fprintf(p->to, "by %s\n", view_person(f, who, sizeof who));
	fprintf(p->to, "  %-9s since %s, %s\n", "",
	    show_time(f->since, since, sizeof since),
	    show_until(f->until, until, sizeof until));
}

static void
print_last(const struct page *p)
{
	const struct person *by = &p->view->last.by;
	char who[200], id[900], began[64], time[48];
	const char *once = p->view->last.once;

	if (!p->view->last.known)
		return;
	print_name(p, "last run");
	fprintf(p->to, "%s%s%sby %s, status %d\n", once ? "ID " : "",
	    once ? text_name(id, sizeof id, once) : "", once ? " " : "",
	    text_name(who, sizeof who, by->said.who ? by->said.who : "somebody"),
	    p->view->last.status);
	fprintf(p->to, "  %-9s began %s", "", show_time(by->since, began, sizeof began));
	if (view_span(by->since, by->until) >= 0)
		fprintf(p->to, ", took %s",
		    parse_duration_text(
			view_span(by->since, by->until), time, sizeof time));
	if (by->token)
		fprintf(p->to, ", token %" PRIu64, by->token);
	fputs("\n", p->to);
}

/* Who looks at a lock that is free has nothing to rely on. */
static void
print_caveat(const struct page *p, const char *caveat)
{
	if (!caveat || view_state(p->view) == STATE_FREE)
		return;
	print_name(p, "caveat");
	fprintf(p->to, "%s\n", caveat);
}

void
show_text(FILE *to, const struct view *v, const struct looking *l, const struct screen *s)
{
	struct page p = {to, v, s};

	print_head(&p, l);
	for (size_t i = 0; i < v->holders.n && i < LISTED; i++)
		print_holder(&p, &v->holders.list[i]);
	print_more(&p, v->holders.all);
	print_waiters(&p);
	print_freeze(&p);
	print_last(&p);
	print_caveat(&p, l->store->backend->caveat);
}

/* ---- what has changed ---- */

/* FNV-1a */
static uint64_t
mix(uint64_t h, const void *data, size_t n)
{
	for (const unsigned char *c = data; n > 0; c++, n--)
		h = (h ^ *c) * 1099511628211ULL;
	return h;
}

static uint64_t
mix_number(uint64_t h, uint64_t n)
{
	return mix(h, &n, sizeof n);
}

static uint64_t
mix_person(uint64_t h, const struct person *p)
{
	const char *texts[] = {p->owner, p->said.who, p->said.host, p->said.command,
	    p->said.why, p->foreign};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		h = texts[i] ? mix(h, texts[i], strlen(texts[i]) + 1) : mix(h, "\1", 1);
	h = mix_number(h, p->token);
	h = mix_number(h, p->since);
	h = mix_number(h, p->said.pid);
	return mix_number(h, p->revoked);
}

uint64_t
show_facts(const struct view *v)
{
	uint64_t h = 14695981039346656037ULL;

	for (size_t i = 0; i < v->holders.n; i++)
		h = mix_person(h, &v->holders.list[i]);
	h = mix_number(h, v->holders.all);
	for (size_t i = 0; i < v->waiters.n; i++)
		h = mix_person(h, &v->waiters.list[i]);
	h = mix_number(h, v->waiters.all);
	if (v->is_frozen) {
		h = mix_person(h, &v->frozen);
		h = mix_number(h, v->frozen.until);
	}
	if (v->last.known)
		h = mix_person(h, &v->last.by);
	return v->unknown ? mix(h, v->unknown, strlen(v->unknown)) : h;
}
