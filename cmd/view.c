/* view.c - collects what a look has found of one key. */
#include "view.h"

#include "mask.h"
#include "parse.h"
#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = KEY_BYTES + 88 }; /* longest copy: more than any key has */

#define NS_PER_US 1000

/* ---- texts: copies that live until the view begins another key ---- */

struct view_text {
	struct view_text *next;
	char text[];
};

static void
forget_texts(struct view *v)
{
	while (v->texts) {
		struct view_text *t = v->texts;

		v->texts = t->next;
		free(t);
	}
}

/* Copies a text; NULL stays NULL. */
static char *
keep_text(struct view *v, const char *text)
{
	size_t n = text ? text_whole(text, TEXT_MOST) : 0;
	struct view_text *t = text ? malloc(sizeof *t + n + 1) : NULL;

	if (!t) {
		v->short_of_memory |= text != NULL;
		return NULL;
	}
	memcpy(t->text, text, n);
	t->text[n] = '\0';
	t->next = v->texts;
	v->texts = t;
	return t->text;
}

/* Copies a text of other people, and masks passwords in it. */
static const char *
keep_masked(struct view *v, const char *text)
{
	char *copy = keep_text(v, text);

	if (copy)
		mask_spoken(copy);
	return copy;
}

/* ---- entries ---- */

static void
keep_person(struct view *v, struct person *p, const struct entry *e)
{
	const struct foreign *other = e->foreign;
	/* half an owner's name would name another owner */
	bool whole = e->owner && strlen(e->owner) < TEXT_MOST;
	struct record said = {0}, asker;
	json_t *root = NULL, *asked = record_read(&asker, e->asker);

	if (!other)
		root = record_read(&said, e->record);
	else
		said = (struct record){.who = other->who,
		    .host = other->host,
		    .pid = other->pid > 0 ? other->pid : 0};
	*p = (struct person){
	    .said = {.who = keep_masked(v, said.who),
		.host = keep_masked(v, said.host),
		.command = keep_masked(v, said.command),
		.arguments = keep_masked(v, said.arguments),
		.ttl = said.ttl,
		.keep = said.keep,
		.end = said.end,
		.why = keep_masked(v, said.why),
		.pid = said.pid,
		.for_ms = said.for_ms,
		.newest = other ? -1 : said.newest},
	    .foreign = !other ? NULL : keep_masked(v, other->what ? other->what : ""),
	    .kind = e->lock,
	    .limit = e->lock == KIND_LIMIT ? e->limit : 0,
	    .owner = whole ? keep_text(v, e->owner) : NULL,
	    .token = e->token <= INT64_MAX ? (int64_t)e->token : 0, /* not known */
	    .slot = e->slot,
	    .revoked = e->revoked,
	    .asker = {.who = keep_masked(v, asker.who), .why = keep_masked(v, asker.why)},
	    .position = e->position,
	    .once = keep_masked(v, e->once),
	    .status = e->status & 0xff,
	    .since = e->since,
	    .until = e->until,
	};
	json_decref(root);
	json_decref(asked);
}

/* Adds a person to a list; those beyond PEOPLE_MOST are only counted. */
static void
add_person(struct view *v, struct people *p, const struct entry *e)
{
	p->all++;
	if (p->n == PEOPLE_MOST)
		return;
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 4;
		struct person *list = reallocarray(p->list, room, sizeof *list);

		if (!list) {
			v->short_of_memory = true;
			return;
		}
		p->list = list;
		p->room = room;
	}
	keep_person(v, &p->list[p->n++], e);
	if (!e->position)
		p->list[p->n - 1].position = (int64_t)p->n;
}

/*
 * A run that is no job's is the last one, unless a job's has ended since; of two, one that is
 * dated ahead of the server's clock may be the older one.  If a success is no longer the last run,
 * it is that yet.
 */
static void
add_shown(struct view *v, const struct entry *e)
{
	struct person before = v->last;
	bool had = v->has_last;

	if (had && view_end(&before) <= v->now && view_end(&before) > e->until)
		return;
	v->has_last = true;
	keep_person(v, &v->last, e);
	v->last.jobless = true;
	if (had && before.status == 0 && !v->has_good) {
		v->has_good = true;
		v->good = before;
	}
}

void
view_add(struct view *v, const struct entry *e, int64_t now)
{
	v->now = now;
	switch (e->kind) {
	case ENTRY_HOLDER:
		add_person(v, &v->holders, e);
		break;
	case ENTRY_WAITER:
		add_person(v, &v->waiters, e);
		break;
	case ENTRY_WAITING:
		v->waiters.all = e->count;
		break;
	case ENTRY_FREEZE:
		v->is_frozen = true;
		keep_person(v, &v->frozen, e);
		break;
	case ENTRY_LAST:
		v->has_last = true;
		keep_person(v, &v->last, e);
		break;
	case ENTRY_GOOD:
		v->has_good = true;
		keep_person(v, &v->good, e);
		break;
	case ENTRY_DONE:
		v->of_id = true;
		v->has_good = e->status == 0;
		v->has_last = e->status != 0;
		keep_person(v, v->has_good ? &v->good : &v->last, e);
		break;
	case ENTRY_SHOWN:
		add_shown(v, e);
		break;
	case ENTRY_UNKNOWN:
		v->unknown = keep_masked(v, e->what ? e->what : "something else");
		break;
	}
}

void
view_add_beside(struct view *v, const char *advice)
{
	v->beside = keep_masked(v, advice);
}

/* ---- a view ---- */

void
view_begin(struct view *v, const char *key)
{
	forget_texts(v);
	*v = (struct view){.now = EPOCH_NONE,
	    .holders = {.list = v->holders.list, .room = v->holders.room},
	    .waiters = {.list = v->waiters.list, .room = v->waiters.room}};
	v->key = keep_text(v, key);
	if (!v->key)
		v->key = "";
}

void
view_free(struct view *v)
{
	forget_texts(v);
	free(v->holders.list);
	free(v->waiters.list);
	*v = (struct view){0};
}

/* ---- questions to a view ---- */

enum lock_state
view_state(const struct view *v)
{
	if (v->holders.all > 0 || v->unknown)
		return STATE_HELD;
	return v->is_frozen ? STATE_FROZEN : STATE_FREE;
}

#define LATE_US INT64_C(5000000) /* two servers' clocks may differ by so much */

bool
view_freeze_is_late(const struct view *v)
{
	const struct person *z = &v->frozen;
	int64_t begun = v->now >= 0 && v->now < z->since ? v->now : z->since, length;

	if (!v->is_frozen || begun < 0 || z->until <= begun)
		return false;
	length = z->said.for_ms > 0 ? z->said.for_ms * 1000 : z->until - z->since;
	return z->until - begun - LATE_US > length;
}

const char *
view_state_name(const struct view *v)
{
	static const char *const names[] = {"free", "held", "frozen"};

	return names[view_state(v)];
}

const struct person *
view_holder(const struct view *v)
{
	return v->holders.n > 0 ? v->holders.list : NULL;
}

const struct person *
view_good(const struct view *v)
{
	if (v->has_good)
		return &v->good;
	return v->has_last && v->last.status == 0 && !v->last.jobless ? &v->last : NULL;
}

const char *
view_id(const struct view *v)
{
	return !v->of_id ? NULL : v->has_good ? v->good.once : v->last.once;
}

int64_t
view_span(int64_t from, int64_t to)
{
	if (from < 0 || to < 0)
		return -1;
	if (to <= from)
		return 0;
	return to - from > NEVER / NS_PER_US ? NEVER : (to - from) * NS_PER_US;
}

int64_t
view_ago(const struct view *v, int64_t since)
{
	return view_span(since, v->now);
}

int64_t
view_left(const struct view *v, int64_t until)
{
	return view_span(v->now, until);
}

/* A server may round, and clocks of several servers differ. */
#define ROUNDED (2 * NS_PER_S)

int64_t
view_renewed(const struct view *v, const struct person *p)
{
	int64_t left = view_left(v, p->until), ago;
	int64_t held = p->since >= 0 ? view_ago(v, p->since) : NEVER;

	if (p->foreign || p->said.ttl == 0 || left < 0 || left > p->said.ttl + ROUNDED)
		return -1;
	ago = left < p->said.ttl ? p->said.ttl - left : 0;
	/* the grant was the first renewal, also where the server counts whole seconds (etcd) */
	return held >= 0 && ago > held ? held : ago;
}

int64_t
view_after(const struct person *p, int64_t length)
{
	if (p->foreign || length == 0 || p->since < 0)
		return EPOCH_NONE;
	return instant_after(p->since, length / NS_PER_US);
}

/* A person who is no dlock is described as "an advisory lock (pid 77 on 10.0.0.3)". */
struct clean
view_person(const struct person *p)
{
	char name[160], who[300], what[200];
	struct record r = p->said;
	struct clean s;

	if (!p->foreign) {
		record_words(&p->said, s.text, sizeof s.text);
		return s;
	}
	text_clean(what, sizeof what, p->foreign, strlen(p->foreign));
	r.who = "";
	record_words(&r, who, sizeof who);
	if (p->said.who)
		snprintf(s.text, sizeof s.text, "%s (%s)%s",
		    text_name(name, sizeof name, p->said.who), what, who);
	else
		snprintf(s.text, sizeof s.text, "%s%s", *what ? what : "somebody", who);
	return s;
}
