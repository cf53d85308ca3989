/* view.c - collects what a look has shown of one key. */
#include "view.h"

#include "mask.h"
#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* longest copy: more than any key has */
enum { TEXT_MOST = KEY_BYTES + 88, TEXTS_BYTES = 8192 };

#define NS_PER_US 1000

/* ---- texts: copies that live as long as the view speaks of its key ---- */

struct view_texts {
	struct view_texts *next;
	size_t used;
	char text[TEXTS_BYTES];
};

/* Room for n bytes, at most TEXTS_BYTES; NULL: no memory. */
static char *
find_room(struct view *v, size_t n)
{
	struct view_texts *t = v->texts;
	char *room;

	if (!t || t->used + n > sizeof t->text) {
		t = malloc(sizeof *t);
		if (!t) {
			v->short_of_memory = true;
			return NULL;
		}
		t->next = v->texts;
		t->used = 0;
		v->texts = t;
	}
	room = t->text + t->used;
	t->used += n;
	return room;
}

/* Forgets all texts; one page is kept for the next. */
static void
forget_texts(struct view *v)
{
	while (v->texts && v->texts->next) {
		struct view_texts *t = v->texts;

		v->texts = t->next;
		free(t);
	}
	if (v->texts)
		v->texts->used = 0;
}

/* How much of a text is kept: whole characters, where it has such. */
static size_t
cut(const char *text)
{
	size_t n = strnlen(text, TEXT_MOST);

	if (n < TEXT_MOST)
		return n;
	for (size_t back = 1; back < 4; back++)
		if ((text[n - back] & 0xc0) != 0x80)
			return (text[n - back] & 0x80) ? n - back : n;
	return n;
}

/* A copy of any text; NULL stays NULL. */
static const char *
keep_text(struct view *v, const char *text)
{
	size_t n = text ? cut(text) : 0;
	char *copy = text ? find_room(v, n + 1) : NULL;

	if (!copy)
		return NULL;
	memcpy(copy, text, n);
	copy[n] = '\0';
	return copy;
}

/* The same of what somebody said, who may have said a password. */
static const char *
keep_masked(struct view *v, const char *text)
{
	char *copy = (char *)keep_text(v, text);

	if (copy)
		mask_spoken(copy);
	return copy;
}

/* The same of a name that must be whole to mean anything. */
static const char *
keep_whole(struct view *v, const char *text)
{
	return text && strlen(text) < TEXT_MOST ? keep_text(v, text) : NULL;
}

/* ---- entries ---- */

static void
keep_record(struct view *v, struct record *ret, const struct record *r)
{
	*ret = (struct record){
	    .who = keep_masked(v, r->who),
	    .host = keep_masked(v, r->host),
	    .command = keep_masked(v, r->command),
	    .why = keep_masked(v, r->why),
	    .pid = r->pid,
	};
}

static void
keep_person(struct view *v, struct person *p, const struct entry *e)
{
	struct record said = {0};
	json_t *root = NULL;

	*p = (struct person){
	    .kind = e->lock,
	    .limit = e->limit,
	    .owner = keep_whole(v, e->owner),
	    .token = e->token <= INT64_MAX ? e->token : 0, /* nobody could name it */
	    .slot = e->slot,
	    .revoked = e->revoked,
	    .position = e->position,
	    .since = e->since,
	    .until = e->until,
	};
	if (e->foreign) {
		p->foreign = keep_masked(v, e->foreign->what ? e->foreign->what : "");
		said = (struct record){.who = e->foreign->who,
		    .host = e->foreign->host,
		    .pid = e->foreign->pid > 0 ? e->foreign->pid : 0};
	} else {
		root = record_read(&said, e->record);
	}
	keep_record(v, &p->said, &said);
	json_decref(root);
}

/* Room for one more of them; NULL: only counted. */
static struct person *
one_more(struct view *v, struct people *p)
{
	p->all++;
	if (p->n == PEOPLE_MOST)
		return NULL;
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 4;
		struct person *list = reallocarray(p->list, room, sizeof *list);

		if (!list) {
			v->short_of_memory = true;
			return NULL;
		}
		p->list = list;
		p->room = room;
	}
	return &p->list[p->n++];
}

static void
add_person(struct view *v, struct people *people, const struct entry *e)
{
	struct person *p = one_more(v, people);

	if (p)
		keep_person(v, p, e);
}

static void
add_last(struct view *v, const struct entry *e)
{
	v->last.known = true;
	v->last.once = keep_masked(v, e->once);
	v->last.status = e->status;
	keep_person(v, &v->last.by, e);
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
		add_last(v, e);
		break;
	case ENTRY_UNKNOWN:
		v->unknown = keep_masked(v, e->what ? e->what : "something else");
		break;
	}
}

/* ---- a view ---- */

void
view_begin(struct view *v, const char *key)
{
	struct view empty = {.now = EPOCH_NONE,
	    .holders = {.list = v->holders.list, .room = v->holders.room},
	    .waiters = {.list = v->waiters.list, .room = v->waiters.room},
	    .texts = v->texts};

	forget_texts(&empty);
	*v = empty;
	v->key = keep_text(v, key);
	if (!v->key)
		v->key = "";
}

void
view_free(struct view *v)
{
	forget_texts(v);
	free(v->texts);
	free(v->holders.list);
	free(v->waiters.list);
	*v = (struct view){0};
}

/* ---- what it says ---- */

enum lock_state
view_state(const struct view *v)
{
	if (v->holders.all > 0 || v->unknown)
		return STATE_HELD;
	return v->is_frozen ? STATE_FROZEN : STATE_FREE;
}

const char *
view_state_name(enum lock_state s)
{
	static const char *const names[] = {"free", "held", "frozen"};

	return names[s];
}

const char *
view_kind_name(enum lock_kind kind)
{
	static const char *const names[] = {[KIND_EXCLUSIVE] = "exclusive",
	    [KIND_WRITER] = "exclusive",
	    [KIND_SHARED] = "shared",
	    [KIND_LIMIT] = "limit"};

	return names[kind];
}

bool
view_kind(const struct view *v, enum lock_kind *kind, unsigned *limit)
{
	if (v->holders.n == 0)
		return false;
	*kind = v->holders.list[0].kind;
	*limit = *kind == KIND_LIMIT ? v->holders.list[0].limit : 0;
	return true;
}

const struct person *
view_grant(const struct view *v, uint64_t token)
{
	for (size_t i = 0; i < v->holders.n; i++)
		if (v->holders.list[i].token == token)
			return &v->holders.list[i];
	return NULL;
}

/* Microseconds as nanoseconds, as far as they go. */
static int64_t
nanoseconds(int64_t us)
{
	return us > NEVER / NS_PER_US ? NEVER : us * NS_PER_US;
}

int64_t
view_span(int64_t from, int64_t to)
{
	if (from < 0 || to < 0)
		return -1;
	return to > from ? nanoseconds(to - from) : 0;
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

/* "an advisory lock (pid 77 on 10.0.0.3)" */
static void
describe_other(const struct person *p, char *out, size_t size)
{
	char name[160], who[200], what[200];
	struct record r = p->said;

	text_clean(what, sizeof what, p->foreign, strlen(p->foreign));
	r.who = "";
	record_words(&r, who, sizeof who);
	if (p->said.who)
		snprintf(out, size, "%s (%s)%s",
		    text_name(name, sizeof name, p->said.who), what, who);
	else
		snprintf(out, size, "%s%s", *what ? what : "somebody", who);
}

const char *
view_person(const struct person *p, char *out, size_t size)
{
	if (p->foreign)
		describe_other(p, out, size);
	else
		record_words(&p->said, out, size);
	return out;
}
