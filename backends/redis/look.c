/*
 * look.c - tells what locks one Redis server has.
 *
 *  1. All locks: SCAN names those that may be in use; each is then asked for by itself.
 *  2. A lock is one question: its holders, a freeze, the last run, how many wait.
 *  3. Waiters, if wanted, come in pages, in the order of the queue.
 *  4. Runs that are remembered stand in keys of their own, and come in SCAN's order.
 *  5. Holders, if they are many, do not stand in the order of their grants: their tokens
 *     and owners are collected, and sorted, before each page of them is told.
 *
 * An answer is checked word by word before anything is told of it; what stands in the
 * words is hostile all the same.
 */
#include "redis.h"

#include "backends/common/endpoint.h"
#include "backends/common/encode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROWS = 32, /* holders of one page */
	SEAT_OWNER = 17,
	SEAT_BYTES = SEAT_OWNER + OWNER_CHARS + 1,
};

/* What is being told. */
struct redis_view {
	struct route *route;
	const char *where; /* the store, for people */
	const struct dialect *dialect;
	const struct look *look;
	const char *runs; /* of a look at jobs: which keys, as SCAN's pattern */
	struct fault *fault;
	const char *key;
	struct names names;
	int64_t now;
	unsigned position; /* of the waiter told last */
	bool enough;       /* nobody wants to hear more */
};

/* Many holders, each "token owner" with the token in 16 digits, so that they sort as texts. */
struct seats {
	char (*all)[SEAT_BYTES];
	size_t n, room;
};

/* ---- answers ---- */

#define CURSOR_END "0" /* before the first page and behind the last one */

/* Where SCAN and its like go on. */
typedef char cursor[24];

/* An operation on all locks, or (with names) on the one that is being told. */
static void
look_begin(const struct redis_view *v, struct script_call *c, const struct names *names,
    const char *operation)
{
	script_begin(c, v->dialect->looks ? v->dialect->looks : v->dialect->claims);
	c->reads = true;
	for (int i = 0; names && i < names->nkeys + (v->dialect->looks != NULL); i++)
		script_key(c, names->keys[i]);
	script_word(c, operation);
}

/* ---- entries ---- */

struct entry
look_entry_of(enum entry_kind kind)
{
	return (struct entry){
	    .kind = kind, .slot = -1, .since = EPOCH_NONE, .until = EPOCH_NONE};
}

static void
view_tell(struct redis_view *v, struct entry *e)
{
	e->key = v->key;
	v->enough = v->enough || !v->look->see(v->look->ctx, e, v->now);
}

/* Its members as look.lua and common.lua name them; what is odd becomes unknown. */
static bool
look_read_entry(
    struct redis_view *v, const redisReply *r, struct entry *e, struct foreign *o)
{
	const char *name, *kind = "x", *token = "";
	int64_t slot = -1, revoked = 0, status = 0;
	bool good = answer_members(r, 0, "s", &name);

	if (!good)
		return false;
	*e = look_entry_of(ENTRY_HOLDER);
	switch (*name) {
	case 'h':
		good = answer_members(r, 1, "sssiiiis", &e->owner, &kind, &token, &slot,
		    &e->since, &e->until, &revoked, &e->record);
		if (good && revoked)
			(void)answer_members(r, 9, "s", &e->asker);
		break;
	case 'o': /* no dlock */
		good = answer_members(
		    r, 1, "ssis", &e->owner, &kind, &e->until, &o->what);
		e->foreign = o;
		break;
	case 'w':
		e->kind = ENTRY_WAITER;
		e->position = ++v->position;
		good = answer_members(
		    r, 1, "ssis", &e->owner, &kind, &e->since, &e->record);
		break;
	case 'f':
		e->kind = ENTRY_FREEZE;
		good = answer_members(r, 1, "iis", &e->since, &e->until, &e->record);
		break;
	case 'r':
	case 'g':
	case 'd':
	case 's':
		e->kind = *name == 'r' ? ENTRY_LAST
		    : *name == 'g'     ? ENTRY_GOOD
		    : *name == 's'     ? ENTRY_SHOWN
				       : ENTRY_DONE;
		good = answer_members(r, 1, "siiiss", &e->once, &e->since, &e->until,
		    &status, &token, &e->record);
		e->once = good && *e->once ? e->once : NULL;
		e->record = good && *e->record ? e->record : NULL;
		break;
	case 'u':
		e->kind = ENTRY_UNKNOWN;
		good = answer_members(r, 1, "s", &e->what);
		break;
	default:
		return false;
	}
	if (!good)
		return false;
	e->token = strlen(token) < 20 ? strtoull(token, NULL, 10) : 0;
	if (e->token >= TOKEN_LIMIT) /* not known */
		e->token = 0;
	e->revoked = revoked != 0;
	e->status = status;
	if (*kind == 'l' && slot >= 0 && slot < LIMIT_MAX)
		e->slot = slot;
	if (status < 0 || status > 255)
		e->what = "a last run whose status is damaged";
	if (!answer_kind(kind, &e->lock, &e->limit))
		e->what = e->kind == ENTRY_WAITER
		    ? "a waiter of a kind that this dlock does not know"
		    : "a holder of a kind that this dlock does not know";
	return true;
}

/* Those from member `first` on. */
static enum rc
look_tell_entries(struct redis_view *v, const redisReply *r, size_t first)
{
	for (size_t i = first; i < r->elements && !v->enough; i++) {
		struct foreign foreign = {.what = ""};
		struct entry e, unknown = look_entry_of(ENTRY_UNKNOWN);

		if (!look_read_entry(v, r->element[i], &e, &foreign))
			return script_nonsense(v->route, v->fault);
		unknown.what = e.what;
		view_tell(v, e.what ? &unknown : &e);
	}
	return RC_OK;
}

/* ---- many holders ---- */

static bool
seats_add(struct seats *s, const char *text)
{
	if (strlen(text) <= SEAT_OWNER || strlen(text) >= SEAT_BYTES)
		return true; /* no owner of a dlock's */
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 256;
		void *all = realloc(s->all, room * SEAT_BYTES);

		if (!all)
			return false;
		s->all = all;
		s->room = room;
	}
	snprintf(s->all[s->n++], SEAT_BYTES, "%s", text);
	return true;
}

static int
compare_seats(const void *left, const void *right)
{
	return strcmp(left, right);
}

/* False: it is none.  One that never ends might be asked for again and again, else. */
static bool
take_cursor(cursor at, const char *text)
{
	size_t n = strspn(text, "0123456789");

	if (n == 0 || text[n] || n >= sizeof(cursor))
		return false;
	memcpy(at, text, n + 1);
	return true;
}

static enum rc
seats_read(struct seats *s, struct redis_view *v)
{
	cursor at = CURSOR_END;
	enum rc rc;

	do {
		struct script_call c;
		const char *text;
		redisReply *r;

		look_begin(v, &c, &v->names, "holders");
		script_word(&c, at);
		rc = script_run(
		    v->route, &c, look_answer_by(v->look), &r, v->fault, "s", &text);
		if (rc != RC_OK)
			return rc;
		if (!take_cursor(at, text))
			rc = script_nonsense(v->route, v->fault);
		for (size_t i = 1; rc == RC_OK && i < r->elements; i++)
			if (!answer_members(r, i, "s", &text))
				rc = script_nonsense(v->route, v->fault);
			else if (!seats_add(s, text))
				rc = fault_set(v->fault, RC_SYSTEM, "out of memory");
		freeReplyObject(r);
	} while (rc == RC_OK && strcmp(at, CURSOR_END) != 0);
	return rc;
}

/* In pages of up to ROWS of them. */
static enum rc
seats_tell(const struct seats *s, struct redis_view *v)
{
	enum rc rc = RC_OK;

	for (size_t next = 0; rc == RC_OK && next < s->n && !v->enough;) {
		struct script_call c;
		redisReply *r;
		int64_t n;

		look_begin(v, &c, &v->names, "rows");
		for (size_t i = next; i < s->n && i < next + ROWS; i++)
			script_word(&c, s->all[i] + SEAT_OWNER);
		rc = script_run(v->route, &c, look_answer_by(v->look), &r, v->fault, "ii",
		    &v->now, &n);
		if (rc != RC_OK)
			return rc;
		next += n;
		rc = n >= 1 && n <= ROWS ? look_tell_entries(v, r, 2)
					 : script_nonsense(v->route, v->fault);
		freeReplyObject(r);
	}
	return rc;
}

static enum rc
look_many_holders(struct redis_view *v)
{
	struct seats s = {NULL, 0, 0};
	enum rc rc = seats_read(&s, v);
	size_t n = 0;

	/* in the order of their grants, and each once: Redis may name one twice */
	if (s.n > 0)
		qsort(s.all, s.n, SEAT_BYTES, compare_seats);
	for (size_t i = 0; i < s.n; i++)
		if (n == 0 || strcmp(s.all[n - 1], s.all[i]) != 0)
			memmove(s.all[n++], s.all[i], SEAT_BYTES);
	s.n = n;
	if (rc == RC_OK)
		rc = seats_tell(&s, v);
	free(s.all);
	return rc;
}

/* ---- waiters ---- */

/* Each page goes on behind the last one that was told: by its owner, or its ticket. */
static enum rc
look_waiters(struct redis_view *v)
{
	char owner[OWNER_CHARS + 1] = "", ticket[OWNER_CHARS + 1] = "";
	enum rc rc;

	v->position = 0;
	do {
		const char *last, *its_ticket;
		struct script_call c;
		redisReply *r;

		look_begin(v, &c, &v->names, "waiters");
		script_word(&c, owner);
		script_word(&c, ticket);
		rc = script_run(v->route, &c, look_answer_by(v->look), &r, v->fault,
		    "iss", &v->now, &last, &its_ticket);
		if (rc != RC_OK)
			return rc;
		snprintf(owner, sizeof owner, "%s", last);
		snprintf(ticket, sizeof ticket, "%s", its_ticket);
		rc = look_tell_entries(v, r, 3);
		freeReplyObject(r);
	} while (rc == RC_OK && *ticket && !v->enough);
	return rc;
}

/* ---- locks ---- */

static enum rc
look_lock(struct redis_view *v, const char *key)
{
	struct entry queue = look_entry_of(ENTRY_WAITING);
	const redisReply *holders, *others;
	int64_t many, waiting;
	struct script_call c;
	redisReply *r;
	enum rc rc;

	v->key = key;
	dialect_name(v->dialect, &v->names, v->route->address->form,
	    &(struct claim){.key = key, .owner = ""});
	look_begin(v, &c, &v->names, "lock");
	script_word(&c, v->look->brief ? "1" : "0");
	script_word(&c, v->look->success ? "2" : v->look->key ? "1" : "0");
	rc = script_run(v->route, &c, look_answer_by(v->look), &r, v->fault, "iiiaa",
	    &v->now, &many, &waiting, &holders, &others);
	if (rc != RC_OK)
		return rc;
	rc = many ? look_many_holders(v) : look_tell_entries(v, holders, 0);
	queue.count = waiting;
	if (rc == RC_OK && waiting > 0 && !v->enough && v->look->brief)
		view_tell(v, &queue);
	else if (rc == RC_OK && waiting > 0 && !v->enough)
		rc = look_waiters(v);
	if (rc == RC_OK)
		rc = look_tell_entries(v, others, 0);
	freeReplyObject(r);
	return rc;
}

/* ---- runs ---- */

/* The runs in a key's own names; false: somebody else's name, with which nobody works. */
static bool
look_name_runs(
    struct redis_view *v, char key[KEY_BYTES + 1], const char *name, const char *id)
{
	char encoded[ENCODED_BYTES], suffix[ENCODED_BYTES + 4] = ":r";
	const char *tagged = strstr(name, "}:");
	size_t n = strlen(name), m, before = strlen("dlock:{");
	struct claim claim = {.key = key, .owner = "", .job.once = id};

	if (id) {
		encode_key(encoded, sizeof encoded, id);
		snprintf(suffix, sizeof suffix, ":r:%s", encoded);
	}
	m = strlen(suffix);
	if (n <= m + before || !tagged || strcmp(name + n - m, suffix) != 0)
		return false;
	/* as the dialect has it: {KEY}, or in a cluster {TAG}:KEY */
	if (name + n - m == tagged + 1)
		snprintf(encoded, sizeof encoded, "%.*s", (int)(n - m - before - 1),
		    name + before);
	else
		snprintf(encoded, sizeof encoded, "%.*s",
		    (int)(name + n - m - (tagged + 2)), tagged + 2);
	if (!encode_read_key(key, encoded, strlen(encoded)))
		return false;
	dialect_name(v->dialect, &v->names, v->route->address->form, &claim);
	return strcmp(v->names.keys[v->names.nkeys + (id != NULL)], name) == 0;
}

/* What one name of the server has: {NAME, entry ...}. */
static enum rc
look_tell_runs(struct redis_view *v, const redisReply *r)
{
	char key[KEY_BYTES + 1];
	struct foreign none;
	struct entry e;
	const char *name;

	if (!answer_members(r, 0, "s", &name) || r->elements < 2 ||
	    !look_read_entry(v, r->element[1], &e, &none))
		return script_nonsense(v->route, v->fault);
	/* a key may end as its own last run's name does */
	if (e.kind == ENTRY_DONE && !e.once)
		return RC_OK;
	if (!look_name_runs(v, key, name, e.kind == ENTRY_DONE ? e.once : NULL))
		return RC_OK;
	v->key = key;
	return look_tell_entries(v, r, 1);
}

/* Other tools' keys stand there as they are. */
static enum rc
look_tell_names(struct redis_view *v, const redisReply *names)
{
	bool plain = dialect_is_foreign(v->dialect);
	char key[KEY_BYTES + 1];
	const char *name;
	enum rc rc = RC_OK;

	for (size_t i = 1; rc == RC_OK && i < names->elements && !v->enough; i++)
		if (!answer_members(names, i, "s", &name))
			rc = script_nonsense(v->route, v->fault);
		else if (plain ? snprintf(key, sizeof key, "%s", name) <= KEY_BYTES
			       : encode_read_key(key, name, strlen(name)))
			rc = look_lock(v, key);
	return rc;
}

/* Each name stands for itself: a key's IDs may come before its last run. */
static enum rc
look_tell_pages(struct redis_view *v, const redisReply *r)
{
	enum rc rc = answer_members(r, 1, "i", &v->now)
	    ? RC_OK
	    : script_nonsense(v->route, v->fault);

	for (size_t i = 2; rc == RC_OK && i < r->elements && !v->enough; i++)
		rc = look_tell_runs(v, r->element[i]);
	return rc;
}

/*
 * Those of one server; in a cluster of this node, from which a question about one of them may
 * have been sent on.
 */
static enum rc
look_server(struct redis_view *v, const struct endpoint *node)
{
	char prefix[40];
	cursor at = CURSOR_END;
	bool jobs = v->look->jobs;
	enum rc rc;

	snprintf(prefix, sizeof prefix, "dlock:%s:", v->dialect->name);
	do {
		struct script_call c;
		const char *next;
		redisReply *r;

		if (node)
			route_move(v->route, node);
		look_begin(v, &c, NULL, jobs ? "jobs" : "scan");
		script_word(&c, at);
		if (jobs)
			script_word(&c, v->runs);
		if (dialect_is_foreign(v->dialect))
			script_word(&c, prefix);
		rc = script_run(
		    v->route, &c, look_answer_by(v->look), &r, v->fault, "s", &next);
		if (rc != RC_OK)
			return rc;
		if (!take_cursor(at, next))
			rc = script_nonsense(v->route, v->fault);
		else if (node && !endpoint_is(node, &v->route->server.peer.at))
			rc = fault_set(v->fault, RC_AGAIN,
			    "%s: %.255s:%d does not answer as one of its masters",
			    v->where, node->host, node->port);
		else
			rc = jobs ? look_tell_pages(v, r) : look_tell_names(v, r);
		freeReplyObject(r);
	} while (rc == RC_OK && strcmp(at, CURSOR_END) != 0 && !v->enough);
	return rc;
}

/* Pages are larger than what is said to a claim, for which the connection has no room. */
static enum rc
look_for(struct store *s, const struct look *look, const char *runs, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct redis_view v = {.route = &r->route,
	    .where = r->store.where,
	    .dialect = r->store.dialect,
	    .look = look,
	    .runs = runs,
	    .fault = f};
	struct endpoint masters[NODES];
	size_t n;
	enum rc rc;

	if (r->route.server.peer.bounds != &resp_pages) {
		route_close(&r->route);
		r->route.server.peer.bounds = &resp_pages;
	}
	if (look->key)
		return look_lock(&v, store_key(&r->store, look->key));
	if (r->store.address.form != FORM_CLUSTER)
		return look_server(&v, NULL);
	rc = route_masters(&r->route, look_answer_by(look), masters, &n, f);
	for (size_t i = 0; rc == RC_OK && i < n && !v.enough; i++)
		rc = look_server(&v, &masters[i]);
	return rc;
}

enum rc
look_each(struct store *s, const struct look *look, struct fault *f)
{
	return look_for(s, look, "dlock:{*:r*", f);
}

enum rc
look_done(struct store *s, const char *key,
    bool (*see)(void *, const struct entry *, int64_t now), void *ctx, int64_t patience,
    struct fault *f)
{
	const struct redis *r = redis_of(s);
	const struct look look = {
	    .jobs = true, .until = NEVER, .patience = patience, .see = see, .ctx = ctx};
	char pattern[2 * RUN_BYTES + 2], *to = pattern;
	struct names names;

	dialect_name(r->store.dialect, &names, r->store.address.form,
	    &(struct claim){.key = key, .owner = ""});
	for (const char *c = names.keys[names.nkeys]; *c; *to++ = *c++)
		if (strchr("*?[]\\^-", *c))
			*to++ = '\\';
	memcpy(to, ":*", sizeof ":*");
	return look_for(s, &look, pattern, f);
}

/* ---- what others have ---- */

/* The words that join what has such a type, where that is a lock; NULL: no client's lock has it. */
static const char *
dialect_of_type(const char *type)
{
	static const char *const rows[][2] = {
	    {"string",
		"a string stands under this very name: if it is another client's lock, -O dialect=string takes it"},
	    {"hash",
		"a hash stands under this very name: if it is a lock of Redisson, -O dialect=redisson takes it"},
	    {"zset",
		"a sorted set stands under this very name: if it is a lock of Symfony, -O dialect=symfony takes it"}};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (strcmp(type, rows[i][0]) == 0)
			return rows[i][1];
	return NULL;
}

enum rc
look_beside(struct store *s, const char *key, instant until, struct fault *advice)
{
	struct redis *r = redis_of(s);
	struct question q = {.persist = true};
	const char *found = NULL;
	redisReply *reply = NULL;
	char *command;
	enum rc rc;

	if (until == 0 || dialect_is_foreign(r->store.dialect))
		return RC_LOST;
	command = resp_write(&(resp_words){"TYPE", key}, 1);
	if (!command)
		return fault_set(advice, RC_SYSTEM, "out of memory");
	q.command = command;
	rc = route_ask(&r->route, &q, until, &reply, advice);
	free(command);
	if (rc == RC_OK && reply->type == REDIS_REPLY_STATUS)
		found = dialect_of_type(reply->str);
	freeReplyObject(reply);
	return rc != RC_OK ? rc
	    : !found       ? RC_LOST
			   : fault_set(advice, RC_OK, "%s (dlock-joins(7))", found);
}
