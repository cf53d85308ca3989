/* entry.c - puts together what is told of a lock. */
#include "entry.h"

#include "backends/common/text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WHO_CHARS = 200 };

/* Text of one entry. */
struct words {
	char owner[OWNER_CHARS + 1], what[128], host[INET6_ADDRSTRLEN];
	char who[WHO_CHARS + 2]; /* one more than is told */
	char *record;
	struct foreign foreign;
};

/* ---- time ---- */

static int64_t
micros(int64_t ns)
{
	return ns < 0 ? EPOCH_NONE : ns / 1000;
}

static int64_t
micros_of_ms(int64_t ms)
{
	return micros(node_server_time(ms));
}

static void
note_time(struct looking *l, const struct Stat *stat)
{
	int64_t at = node_server_time(stat->mtime);

	l->newest = at > l->newest ? at : l->newest;
}

int64_t
entry_now(const struct looking *l)
{
	struct timespec t;
	int64_t here;

	clock_gettime(CLOCK_REALTIME, &t);
	here = t.tv_sec * NS_PER_S + t.tv_nsec;
	return here > l->newest ? here : l->newest;
}

/* ---- entries ---- */

void
entry_begin(struct looking *l, const char *key)
{
	l->key = key;
	l->position = 0;
}

/* One of which nothing is known yet. */
static struct entry
new_entry(const struct looking *l, enum entry_kind kind)
{
	return (struct entry){.kind = kind,
	    .key = l->key,
	    .slot = SLOT_NONE,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .status = STATUS_NONE};
}

/* The same of one who holds or waits; waiters are numbered as they come. */
static struct entry
entry_of_one(struct looking *l, enum entry_kind kind, const struct call *c)
{
	struct entry e = new_entry(l, kind);

	e.position = kind == ENTRY_WAITER ? ++l->position : 0;
	e.token = c ? (uint64_t)call_stat(c)->czxid : 0;
	return e;
}

static void
hand_on(struct looking *l, const struct entry *e)
{
	if (!l->enough && !l->look->see(l->look->ctx, e, micros(entry_now(l))))
		l->enough = true;
}

/* ---- what a node says ---- */

/* As it stands in the name, with the "d". */
static bool
owner_in_name(char out[OWNER_CHARS + 1], const char *there)
{
	size_t n = 0;

	for (const char *c = there; n < OWNER_CHARS && *c; c++)
		if (*c != '-')
			out[n++] = *c;
	out[n] = '\0';
	return n == OWNER_CHARS && strspn(out, "0123456789abcdef") == OWNER_CHARS;
}

static bool
is_printable(const char *text)
{
	size_t n = strlen(text);

	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			return false;
	return n > 0 && n <= WHO_CHARS && strcmp(text, CURATORS_REVOKE) != 0;
}

/*
 * Curator's own nodes have the address of their host, if their user wants nothing else, and
 * kazoo's what their user calls itself.  Where there is nothing, a name may say something.
 */
static const struct foreign *
describe_foreign(const struct session *s, struct words *w, const char *what,
    const char *name, const struct call *c)
{
	struct in6_addr address;
	int64_t session = c ? call_stat(c)->ephemeralOwner : 0;

	w->foreign = (struct foreign){.what = w->what};
	snprintf(w->what, sizeof w->what, "%s", what);
	if (session != 0)
		snprintf(w->what, sizeof w->what, "%s, session 0x%llx", what,
		    (unsigned long long)session);
	session_quote(s, w->who, sizeof w->who, c && *call_text(c) ? call_text(c) : name);
	if (inet_pton(AF_INET, w->who, &address) == 1 ||
	    inet_pton(AF_INET6, w->who, &address) == 1) {
		snprintf(w->host, sizeof w->host, "%s", w->who);
		w->foreign.host = w->host;
	} else if (is_printable(w->who)) {
		w->foreign.who = w->who;
	}
	return &w->foreign;
}

/* What a dlock has written; NULL: no record stands there. */
static char *
copy_record(const struct session *s, const char *data)
{
	const char *secret = session_secret(s);
	char *record = data_record(data, secret);

	if (record || !*data || strcmp(data, CURATORS_REVOKE) == 0)
		return record;
	record = strdup(data);
	if (record)
		secret_blot(record, secret);
	return record;
}

/* When a holder of that node was granted what it holds, ms. */
static int64_t
granted_at(const struct call *c)
{
	const struct Stat *stat = call_stat(c);
	int64_t granted = data_granted(call_text(c));

	switch (data_stage(call_text(c))) {
	case STAGE_AT_ONCE:
		return stat->ctime;
	case STAGE_WAITED:
		return granted >= stat->ctime && granted <= stat->mtime ? granted
									: stat->mtime;
	default:
		return -1;
	}
}

static bool
is_asked_back(const struct call *c)
{
	char *asker = data_asker(call_text(c));

	free(asker);
	return asker != NULL;
}

/* ---- who holds, and who waits ---- */

/* Its node, as its owner has written it. */
static void
describe_dlocks(const struct looking *l, struct entry *e, struct words *w,
    const struct child *child, const struct call *c)
{
	bool holds = e->kind == ENTRY_HOLDER;

	if (owner_in_name(w->owner, child->owner))
		e->owner = w->owner;
	if (!c)
		return;
	if (holds)
		e->since = micros_of_ms(granted_at(c));
	if (holds && e->lock == KIND_LIMIT)
		e->slot = data_slot(call_text(c));
	e->record = w->record = copy_record(l->session, call_text(c));
}

/* A child of the lock's directory, whose place the name is. */
static void
tell_place(struct looking *l, enum entry_kind kind, const struct member *m)
{
	struct child child = layout_read(l->layout, m->name);
	const struct call *c = m->node;
	struct entry e = entry_of_one(l, kind, c);
	struct words w = {.record = NULL};

	e.lock = child.kind;
	e.limit = child.limit;
	e.revoked = c && kind == ENTRY_HOLDER && is_asked_back(c);
	if (c && kind == ENTRY_WAITER)
		e.since = micros_of_ms(call_stat(c)->ctime);
	if (child.what == CHILD_DLOCKS)
		describe_dlocks(l, &e, &w, &child, c);
	else
		e.foreign = describe_foreign(l->session, &w, l->layout->what,
		    l->layout->listens ? "" : m->name, c);
	hand_on(l, &e);
	free(w.record);
}

/* A user of Curator's semaphore, whose name is random. */
static void
tell_seat(struct looking *l, enum entry_kind kind, const struct call *c)
{
	struct entry e = entry_of_one(l, kind, c);
	struct words w;

	e.lock = KIND_LIMIT;
	if (c)
		e.since = micros_of_ms(call_stat(c)->ctime);
	e.foreign = describe_foreign(
	    l->session, &w, "a semaphore of Apache Curator's", "", c);
	hand_on(l, &e);
}

void
entry_member(struct looking *l, enum entry_kind kind, const struct member *m)
{
	if (m->node)
		note_time(l, call_stat(m->node));
	if (*m->part)
		tell_seat(l, kind, m->node);
	else
		tell_place(l, kind, m);
}

void
entry_single(struct looking *l, const struct call *c)
{
	struct entry e = entry_of_one(l, ENTRY_HOLDER, c);
	struct words w = {.record = NULL};

	note_time(l, call_stat(c));
	e.lock = KIND_EXCLUSIVE;
	e.since = micros_of_ms(call_stat(c)->ctime);
	e.revoked = is_asked_back(c);
	if (data_owner(w.owner, call_text(c))) {
		e.owner = w.owner;
		e.record = w.record = copy_record(l->session, call_text(c));
	} else {
		e.foreign = describe_foreign(l->session, &w, l->layout->what, "", c);
	}
	hand_on(l, &e);
	free(w.record);
}

/* ---- what else there is ---- */

void
entry_waiting(struct looking *l, uint64_t count)
{
	struct entry e = new_entry(l, ENTRY_WAITING);

	e.count = count;
	if (count > 0)
		hand_on(l, &e);
}

void
entry_freeze(struct looking *l, const struct freeze *z)
{
	struct entry e = new_entry(l, ENTRY_FREEZE);

	e.record = *z->record ? z->record : NULL;
	e.since = micros(z->since);
	e.until = z->until == NEVER ? EPOCH_NONE : micros(z->until);
	if (z->on)
		hand_on(l, &e);
}

void
entry_last(struct looking *l, const struct call *last)
{
	struct entry e = new_entry(l, ENTRY_LAST);
	struct past_run run;

	if (!jobs_read(&run, last))
		return;
	note_time(l, call_stat(last));
	if (run.record)
		secret_blot(run.record, session_secret(l->session));
	if (run.id)
		secret_blot(run.id, session_secret(l->session));
	e.token = run.token;
	e.record = run.record;
	e.since = micros(run.began);
	e.until = micros(run.ended);
	e.once = run.id;
	e.status = run.status;
	hand_on(l, &e);
	jobs_forget(&run);
}

void
entry_unknown(struct looking *l, const char *what)
{
	struct entry e = new_entry(l, ENTRY_UNKNOWN);

	e.what = what;
	hand_on(l, &e);
}
