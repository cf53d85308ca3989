/* pool.c - takes one of N leases beside kazoo's users. */
#include "pool.h"

#include "stranger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What there is, as one server has it one after the other. */
struct lists {
	struct call *queue, *leases, *pool;
};

bool
pool_is_wanted(const struct lockdir *d, const struct claim *claim)
{
	return d->layout->queue && claim->kind == KIND_LIMIT;
}

void
pool_begin(struct pool *p, struct turn *t, const struct lockdir *d)
{
	*p = (struct pool){.turn = t, .queue = *d, .leases = *d};
	layout_name_lease(p->leases.prefix, t->claim->owner);
	snprintf(p->queue.path + strlen(d->path), QUEUE_BYTES, "%s", d->layout->queue);
	p->queue.pool = &p->leases;
	t->node->dir = &p->queue;
}

bool
pool_has_lease(const struct pool *p)
{
	return p->turn && p->turn->node->dir == &p->leases;
}

void
pool_forget(struct pool *p)
{
	if (pool_has_lease(p))
		p->turn->node->dir = &p->queue;
}

static void
lists_drop(struct lists *l)
{
	call_drop(l->queue);
	call_drop(l->leases);
	call_drop(l->pool);
	*l = (struct lists){.queue = NULL};
}

/* ---- N ---- */

/* As Python's int() reads it. */
long
pool_limit(const struct call *directory)
{
	const char *text = call_text(directory);
	char *end;
	long limit;

	errno = 0;
	limit = strtol(text, &end, 10);
	if (end == text || limit < 0 || errno != 0)
		return -1;
	end += strspn(end, " \t\r\n");
	return *end ? -1 : limit;
}

static enum rc
refuse_limit(
    const struct lockdir *d, const struct claim *claim, long limit, struct fault *f)
{
	return fault_set(f, RC_PROTOCOL,
	    "%s: %s is a semaphore for %ld, as it says itself and kazoo's users go by, and this is --limit %u: use --limit %ld, or delete it when nobody uses it",
	    d->where, d->path, limit, claim->limit, limit);
}

static enum rc
refuse_semaphore(const struct lockdir *d, long limit, struct fault *f)
{
	return fault_set(f, RC_PROTOCOL,
	    "%s: %s is a semaphore of kazoo's for %ld, whose users do not see a lock: --limit %ld joins them; or delete it when nobody uses it",
	    d->where, d->path, limit, limit);
}

/* The N that stands in a directory's data; -1: none does. */
static enum rc
read_limit(const struct node *n, const struct lockdir *d, long *limit, instant until,
    struct fault *f)
{
	struct call *c = call_get(n->session, d->path);
	int code = ZOK;
	enum rc rc = call_await(c, until, &code, f);

	*limit = rc == RC_OK && code == ZOK ? pool_limit(c) : -1;
	call_drop(c);
	return rc;
}

enum rc
pool_refuse(const struct turn *t, const struct call *list, instant until, struct fault *f)
{
	const struct node *n = t->node;
	const struct lockdir *pool = n->dir->pool;
	long limit;
	enum rc rc;

	if (!pool && (!n->dir->layout->queue || call_stat(list)->dataLength == 0))
		return RC_OK;
	rc = read_limit(n, pool ? pool : n->dir, &limit, until, f);
	if (limit < 0 || (pool && limit == (long)t->claim->limit))
		return rc;
	return pool ? refuse_limit(pool, t->claim, limit, f)
		    : refuse_semaphore(n->dir, limit, f);
}

/* ---- what there is ---- */

static enum rc
lists_await(struct lists *l, bool *missing, instant until, struct fault *f)
{
	int queue, leases = ZOK, pool = ZOK;
	enum rc rc = call_await(l->queue, until, &queue, f);

	if (rc == RC_OK)
		rc = call_await(l->leases, until, &leases, f);
	if (rc == RC_OK)
		rc = call_await(l->pool, until, &pool, f);
	*missing = leases == ZNONODE || pool == ZNONODE;
	return rc;
}

/* With N at once: it has no moment in which others could think that it has none. */
static enum rc
make_pool(struct pool *p, instant until, struct fault *f)
{
	char limit[16];
	int code;

	snprintf(limit, sizeof limit, "%u", p->turn->claim->limit);
	return call_finish(lockdir_create(&p->leases, p->turn->node->session,
			       p->leases.path, limit, ZOO_PERSISTENT),
	    until, &code, f);
}

/* The queue and the leases. */
static enum rc
look(struct pool *p, struct lists *l, struct fault *f)
{
	struct session *s = p->turn->node->session;
	instant until = turn_answer_by(p->turn);
	bool missing = true;
	enum rc rc = RC_OK;

	while (rc == RC_OK && missing && instant_now() < until) {
		lists_drop(l);
		l->queue = call_list(s, p->queue.path);
		l->leases = call_list(s, p->leases.path);
		l->pool = call_get(s, p->leases.path);
		rc = lists_await(l, &missing, until, f);
		if (rc == RC_OK && missing)
			rc = make_pool(p, until, f);
	}
	return rc == RC_OK && missing ? lockdir_vanishes(&p->leases, f) : rc;
}

/* Beside the leases, where strangers are no leases of a kazoo's. */
static enum rc
find_stranger(const struct pool *p, const struct queue *q, const char **ret,
    instant until, struct fault *f)
{
	struct node *own = p->turn->node;
	const struct lockdir *before = own->dir;
	enum rc rc;

	own->dir = &p->leases;
	rc = stranger_find(p->turn, q, ret, until, f);
	own->dir = before;
	return rc;
}

/* A node that is the place of a lock, or that nobody knows: its owner does not see our lease. */
static enum rc
refuse_locks(
    const struct pool *p, const struct call *list, instant until, struct fault *f)
{
	struct queue q = {.layout = p->leases.layout};
	const char *found = NULL;
	bool strange = false;
	enum rc rc = RC_OK;

	q.names = call_names(list, &q.n);
	for (size_t i = 0; i < q.n && !found; i++) {
		struct child c;

		if (layout_is_permit(q.names[i]) ||
		    (layout_of(q.names[i], &c) &&
			(c.what == CHILD_DLOCKS || c.what == CHILD_OTHERS)))
			found = q.names[i];
		strange = strange || queue_is_strange(q.layout, q.names[i]);
	}
	if (!found && strange)
		rc = find_stranger(p, &q, &found, until, f);
	return found ? lockdir_refuse(&p->leases, p->turn->node->session, found, NULL, f)
		     : rc;
}

enum rc
pool_check(const struct pool *p, instant until, struct fault *f)
{
	struct call *list = call_list(p->turn->node->session, p->leases.path);
	int code;
	enum rc rc = call_await(list, until, &code, f);

	if (rc == RC_OK)
		rc = refuse_locks(p, list, until, f);
	call_drop(list);
	return rc;
}

/* Is it a semaphore, for as many as we say? */
static enum rc
judge(const struct pool *p, const struct lists *l, struct fault *f)
{
	long limit = pool_limit(l->pool);

	if (stat_is_ephemeral(call_stat(l->pool)))
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s is an ephemeral node, which can be a lock of layout=plain only (-O layout=plain joins it)",
		    p->leases.where, p->leases.path);
	if (limit >= 0 && limit != (long)p->turn->claim->limit)
		return refuse_limit(&p->leases, p->turn->claim, limit, f);
	return refuse_locks(p, l->leases, turn_answer_by(p->turn), f);
}

/* ---- waiting ---- */

/* Asks to be told when the leases change.  *over: there are fewer already. */
static enum rc
watch_leases(struct pool *p, size_t leases, bool *over, struct fault *f)
{
	struct call *c = call_watch_list(p->turn->node->session, p->leases.path);
	size_t now;
	int code;
	enum rc rc = call_await(c, turn_answer_by(p->turn), &code, f);

	call_names(c, &now);
	*over = rc == RC_OK && (code == ZNONODE || now < leases);
	call_drop(c);
	return rc;
}

/* Until there is reason to look anew.  RC_BUSY: `until` has come. */
static enum rc
await_lease(struct pool *p, size_t leases, instant until, struct fault *f)
{
	struct turn *t = p->turn;
	bool over = false;
	enum rc rc = RC_OK;

	turn_show_units(t, 1, leases);
	if (until == 0)
		return fault_set(f, RC_BUSY, "%s: %s", p->leases.where,
		    t->freeze.on ? "frozen" : "held");
	rc = turn_wait(t, f);
	if (rc == RC_OK)
		rc = watch_leases(p, leases, &over, f);
	return rc == RC_OK && !over ? turn_doze(t, turn_beat(t), until, f) : rc;
}

/* ---- the lease ---- */

/* The lowest slot that no lease of a dlock has; `limit`: there is none. */
static enum rc
find_slot(
    const struct pool *p, const struct call *leases, unsigned *slot, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(leases, &n);
	unsigned limit = p->turn->claim->limit;
	bool *taken = calloc(limit, sizeof *taken);

	if (!taken)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; i < n; i++) {
		struct child c = layout_read(p->leases.layout, names[i]);

		if (c.slot >= 0 && (unsigned)c.slot < limit)
			taken[c.slot] = true;
	}
	for (*slot = 0; *slot < limit && taken[*slot];)
		++*slot;
	free(taken);
	return *slot < limit ? RC_OK
			     : fault_set(f, RC_AGAIN, "%s: there is no slot in %s",
				   p->leases.where, p->leases.path);
}

/* The lease, if all is as it was read; what is written last tells its czxid. */
static struct call *
ask_for_lease(struct pool *p, const struct lists *l, const char *path)
{
	const struct node *n = p->turn->node;
	const struct node fresh = {.record = n->record, .said.stage = STAGE_AT_ONCE};
	bool said = call_stat(l->pool)->dataLength > 0 &&
	    !data_is_force(call_text(l->pool)); /* that makes room */
	char limit[16], data[DATA_BYTES];

	node_data(&fresh, SLOT_NONE, data);
	snprintf(limit, sizeof limit, "%u", p->turn->claim->limit);
	return call_multi(n->session,
	    (const struct change[]){
		{said ? CHANGE_CHECK : CHANGE_SET, p->leases.path, limit,
		    .version = call_stat(l->pool)->version},
		{CHANGE_CHECK, p->queue.path, .version = call_stat(l->queue)->version},
		{CHANGE_DELETE, n->path, .version = -1},
		{CHANGE_CREATE, path, "", .mode = ZOO_EPHEMERAL},
		{CHANGE_SET, path, data, .version = 0},
	    },
	    5, p->leases.acl == ACL_OPEN);
}

/* Our node in the queue has gone with that, which was no loss. */
static enum rc
note_lease(struct pool *p, unsigned slot, const char *path, const struct call *multi,
    struct grant *g, struct fault *f)
{
	struct node *n = p->turn->node;
	enum rc rc;

	session_clear_alarm(n->session);
	rc = node_move(n, &p->leases, path, multi, g, f);
	n->taken.number = slot;
	return rc;
}

/* *taken: we have a lease now; otherwise something has changed. */
static enum rc
take_lease(
    struct pool *p, const struct lists *l, struct grant *g, bool *taken, struct fault *f)
{
	struct session *s = p->turn->node->session;
	instant until = turn_answer_by(p->turn);
	char path[NODE_BYTES];
	struct call *multi, *list;
	unsigned slot = 0;
	int code, listed;
	enum rc rc = find_slot(p, l->leases, &slot, f);

	if (rc != RC_OK)
		return rc;
	snprintf(path, sizeof path, "%s/%s%u", p->leases.path, p->leases.prefix, slot);
	multi = ask_for_lease(p, l, path);
	list = call_list(s, p->leases.path);
	p->asked = true;
	rc = call_await(multi, until, &code, f);
	p->asked = rc != RC_OK;
	*taken = rc == RC_OK && code == ZOK;
	if (*taken)
		rc = note_lease(p, slot, path, multi, g, f);
	if (rc == RC_OK)
		rc = call_await(list, until, &listed, f);
	if (rc == RC_OK && *taken)
		rc = refuse_locks(p, list, until, f);
	call_drop(multi);
	call_drop(list);
	return rc;
}

/* Do we stand in the queue, and may we go on?  Of a freeze, the node among the leases goes last. */
static enum rc
find_place(struct pool *p, const struct lists *l, struct place *place, struct fault *f)
{
	struct turn *t = p->turn;
	struct queue q = {.layout = p->queue.layout};
	size_t n;
	const char *const *leases = call_names(l->leases, &n);

	q.names = call_names(l->queue, &q.n);
	queue_look(place, &q, strrchr(t->node->path, '/') + 1);
	if (!place->found)
		return node_is_lost(t->node, f);
	place->freeze = NULL;
	for (size_t i = 0; i < n; i++)
		if (layout_freeze_length(leases[i]) > 0)
			place->freeze = leases[i];
	return turn_heed_freeze(t, place, "", leases, n, f);
}

/* One look: takes a lease, or waits for one. */
static enum rc
advance(struct pool *p, const struct lists *l, instant until, struct grant *g,
    bool *taken, struct fault *f)
{
	size_t leases;
	struct place place;
	enum rc rc = judge(p, l, f);

	if (rc == RC_OK)
		rc = find_place(p, l, &place, f);
	if (rc != RC_OK)
		return rc;
	call_names(l->leases, &leases);
	return place.position > 0 || leases >= p->turn->claim->limit
	    ? await_lease(p, leases, until, f)
	    : take_lease(p, l, g, taken, f);
}

enum rc
pool_take(struct pool *p, instant until, struct grant *g, struct fault *f)
{
	struct lists l = {.queue = NULL};
	bool taken = false;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !taken) {
		rc = look(p, &l, f);
		if (rc == RC_OK)
			rc = advance(p, &l, until, g, &taken, f);
	}
	lists_drop(&l);
	return rc == RC_OK ? turn_earn(p->turn, g, f) : rc;
}

/* ---- found again ---- */

/* A lease that is there is ours, and so is its slot. */
static enum rc
find_lease(struct pool *p, instant until, struct fault *f)
{
	struct node *n = p->turn->node;
	enum rc rc;

	n->dir = &p->leases;
	rc = node_find(n, until, f);
	if (rc != RC_OK || !*n->path)
		n->dir = &p->queue;
	else
		n->taken.number = (unsigned)layout_read(
		    p->leases.layout, strrchr(n->path, '/') + 1)
				      .slot;
	return rc;
}

static enum rc
find_ours(struct pool *p, instant until, struct fault *f)
{
	struct node *n = p->turn->node;
	enum rc rc;

	node_forget(n);
	rc = find_lease(p, until, f);
	if (rc == RC_OK && !*n->path)
		rc = node_find(n, until, f);
	p->asked = rc != RC_OK;
	n->asked = n->asked || p->asked;
	return rc;
}

enum rc
pool_find(struct pool *p, instant until, struct fault *f)
{
	return p->asked ? find_ours(p, until, f) : RC_OK;
}
