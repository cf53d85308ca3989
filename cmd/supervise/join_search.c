/* join_search.c - which of the keepers around a run have its keys. */
#include "join_search.h"

#include "cmd/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* What looking for the plan's keys has found so far; bits are keys. */
struct search {
	const struct join_asker *asker;
	struct join_site *told;
	struct joined *joined;     /* NULL: only to look */
	struct join_answer answer; /* of the keeper that was asked last */
	int fd;                    /* of that one; -1 */
	unsigned found;            /* held by a keeper of a kind that fits */
	unsigned other;            /* held by one of another kind: */
	enum lock_kind kind;
	unsigned limit;
};

static unsigned
all_keys(const struct plan *p)
{
	return (1U << p->nkeys) - 1;
}

/* ---- one keeper ---- */

/* Asks it, and again for a while where it has no room for one more. */
static enum rc
ask_for_room(
    struct search *s, const struct keeper_address *a, instant until, struct fault *f)
{
	struct host *host = s->asker->host;

	for (;;) {
		enum rc rc = join_asker_connect(s->asker, a, until, &s->fd, f);

		if (rc == RC_OK)
			rc = join_asker_ask(
			    s->asker, s->fd, JOIN_HOLD, until, &s->answer, f);
		if (rc != RC_AGAIN || !s->answer.full)
			return rc;
		if (instant_now() + JOIN_RETRY >= until)
			/* the last one may not have been answered */
			return join_asker_no_room(f);
		close(s->fd);
		s->fd = -1;
		if (host->wait(host, -1, 0, instant_now() + JOIN_RETRY) == WOKE_STOP)
			return RC_STOP;
	}
}

/*
 * Asks the keeper at one address.  RC_OK: it has keys of ours, and keeps them for us
 * from now on.  RC_LOST: it has none, or is gone.
 */
static enum rc
ask_keeper(struct search *s, const struct keeper_address *a, struct fault *f)
{
	const struct plan *p = s->asker->plan;
	const char *key = keeper_address_key(a, p);
	enum rc rc = ask_for_room(s, a, instant_now() + JOIN_PATIENCE, f);

	return rc == RC_LOST && s->answer.foreign
	    ? join_asker_refuse(key ? key : p->keys[0],
		  "counts this run among no descendants of its", f)
	    : rc;
}

/* What it tells of its site. */
static void
hear_site(struct search *s)
{
	const struct join_answer *a = &s->answer;

	if (a->version == JOIN_VERSION)
		join_site_hear(s->told, s->asker->site, a->site, a->secret);
}

/* The next address of a keeper of our backend; nothing has been heard of it yet. */
static bool
next_keeper(struct search *s, const char **addresses, struct keeper_address *a)
{
	s->answer.version = 0;
	s->answer.foreign = s->answer.full = false;
	while (keeper_address_next(addresses, a))
		if (keeper_address_serves(a, s->asker->plan->site.backend))
			return true;
	return false;
}

static void
close_keeper(struct search *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* ---- where they are ---- */

/* Asks one keeper for its site.  RC_OK: whether it has told it or not. */
static enum rc
ask_site(struct search *s, const struct keeper_address *a, struct fault *f)
{
	instant until = instant_now() + JOIN_PATIENCE;
	enum rc rc = join_asker_connect(s->asker, a, until, &s->fd, f);

	if (rc == RC_OK)
		rc = join_asker_ask(s->asker, s->fd, JOIN_CHECK, until, &s->answer, f);
	hear_site(s);
	close_keeper(s);
	return rc == RC_LOST ? RC_OK : rc;
}

/*
 * A plan that names no server has that of the nearest keeper, which tells it.  Only then is
 * it known which locks are asked for.
 */
static enum rc
hear_due_site(struct search *s, const char *addresses, struct fault *f)
{
	struct keeper_address a;
	enum rc rc = RC_OK;

	while (rc == RC_OK && s->told->due && next_keeper(s, &addresses, &a))
		rc = ask_site(s, &a, f);
	return rc;
}

/*
 * Which locks are asked for, into *id.  False: that is not known, so that nobody's can
 * be the same.
 */
static bool
identify(struct search *s, struct identity *id)
{
	const struct join_asker *k = s->asker;
	struct fault unused;

	return !s->told->due &&
	    join_site_identify(id, k->plan->site.backend, k->site, &unused) == RC_OK;
}

/* ---- which are joined ---- */

/* Is what the plan asks for a part of such a hold? */
static bool
is_part_of(const struct plan *p, enum lock_kind kind, unsigned limit)
{
	if (p->claim.kind == KIND_LIMIT)
		return kind == KIND_LIMIT && limit == (unsigned)p->claim.limit;
	return kind_is_exclusive(kind) ||
	    (kind == KIND_SHARED && p->claim.kind == KIND_SHARED);
}

/*
 * The keeper that was asked has keys of ours: joins it for those that are not found yet,
 * or leaves it.
 */
static void
take_hold(struct search *s)
{
	const struct plan *p = s->asker->plan;
	const struct join_answer *a = &s->answer;
	struct joined *joined = s->joined;
	unsigned more = a->has & ~s->found & all_keys(p);

	if (!is_part_of(p, a->hold.kind, a->hold.limit)) {
		s->kind = more & ~s->other ? a->hold.kind : s->kind;
		s->limit = more & ~s->other ? a->hold.limit : s->limit;
		s->other |= more;
		return;
	}
	for (size_t i = 0; i < p->nkeys; i++)
		if (more & (1U << i))
			joined->parts[i] = a->hold.parts[i];
	if (more) {
		joined->keepers.fds[joined->keepers.n++] = s->fd;
		s->fd = -1;
	}
	s->found |= more;
}

/* The first of the plan's keys whose bit is set. */
static const char *
first_key(const struct plan *p, unsigned bits)
{
	size_t i = 0;

	while (i + 1 < p->nkeys && !(bits & (1U << i)))
		i++;
	return p->keys[i];
}

static const char *
kind_words(enum lock_kind kind, unsigned limit, char *out, size_t size)
{
	if (kind == KIND_LIMIT)
		snprintf(out, size, "with --limit %u", limit);
	else
		snprintf(
		    out, size, "%s", kind == KIND_SHARED ? "shared (-s)" : "exclusively");
	return out;
}

static enum rc
refuse_kind(const struct search *s, struct fault *f)
{
	const struct plan *p = s->asker->plan;
	char key[400], theirs[32], ours[32];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s %s, and it is asked for %s here: this run would wait for its own "
	    "parent for ever; ask for the same kind there, or unset DLOCK_KEEPER if this is none of its parts",
	    text_name(key, sizeof key, first_key(p, s->other & ~s->found)),
	    kind_words(s->kind, s->limit, theirs, sizeof theirs),
	    kind_words(p->claim.kind, p->claim.limit, ours, sizeof ours));
}

static enum rc
refuse_mixture(const struct search *s, struct fault *f)
{
	const struct plan *p = s->asker->plan;
	char held[120], free[120];

	return fault_set(f, RC_PROTOCOL,
	    "the dlock around it (DLOCK_KEEPER) has %s, and nobody around it has %s: to wait for one with the other in "
	    "hand can end in a deadlock; take both in the enclosing run",
	    text_name(held, sizeof held, first_key(p, s->found)),
	    text_name(free, sizeof free, first_key(p, ~s->found)));
}

/*
 * All keepers have been asked, or all keys were found: is it to be joined (RC_OK), or
 * taken elsewhere (RC_LOST)?
 */
static enum rc
settle_search(const struct search *s, struct fault *f)
{
	const struct plan *p = s->asker->plan;

	if (s->other & ~s->found)
		return refuse_kind(s, f);
	if (!s->found)
		return RC_LOST;
	if (s->found != all_keys(p))
		return refuse_mixture(s, f);
	if (job_is_wanted(&p->claim.job))
		return fault_set(f, RC_USAGE,
		    "the dlock around it (DLOCK_KEEPER) holds the lock already, and what --once and --cooldown remember is "
		    "written when that one releases it: say them there");
	return RC_OK;
}

/*
 * Asks one keeper after the other.  Not RC_OK: one of them cannot be asked, or not be
 * joined.
 */
static enum rc
ask_all(struct search *s, const char *addresses, struct fault *f)
{
	const unsigned all = all_keys(s->asker->plan);
	struct keeper_address a;
	enum rc rc = RC_OK;

	while ((rc == RC_OK || rc == RC_LOST) && s->found != all &&
	    next_keeper(s, &addresses, &a)) {
		rc = ask_keeper(s, &a, f);
		if (rc == RC_OK)
			take_hold(s);
		close_keeper(s);
	}
	return rc == RC_LOST ? RC_OK : rc;
}

/* RC_LOST: none of them has a key of ours. */
static enum rc
search_among(const struct join_asker *asker, const char *addresses, struct joined *joined,
    struct fault *f)
{
	struct join_asker knowing = *asker;
	struct search s = {
	    .asker = asker, .told = &joined->site, .joined = joined, .fd = -1};
	enum rc rc = hear_due_site(&s, addresses, f);

	if (rc != RC_OK)
		return rc;
	if (!identify(&s, &joined->identity))
		return RC_LOST;
	knowing.identity = &joined->identity;
	s.asker = &knowing;
	rc = ask_all(&s, addresses, f);
	return rc == RC_OK ? settle_search(&s, f) : rc;
}

enum rc
join_search(const struct join_asker *asker, struct joined *joined, struct fault *f)
{
	const char *addresses = getenv("DLOCK_KEEPER");
	enum rc rc = RC_LOST;

	joined->keepers.n = 0;
	join_site_begin(&joined->site, asker->plan);
	if (addresses && *addresses)
		rc = search_among(asker, addresses, joined, f);
	if (rc != RC_OK)
		join_search_leave(&joined->keepers);
	return rc == RC_LOST ? join_site_settle(&joined->site, f) : rc;
}

void
join_search_leave(struct anchors *keepers)
{
	while (keepers->n > 0) {
		int fd = keepers->fds[--keepers->n];

		shutdown(fd, SHUT_RDWR); /* for the front's copy as well */
		close(fd);
	}
}

/* ---- only to look ---- */

/* Asks one keeper what it has, and leaves it. */
static void
look_at_keeper(struct search *s, const struct keeper_address *a, unsigned *ours)
{
	const struct join_hold *h = &s->answer.hold;
	instant until = instant_now() + JOIN_PATIENCE;
	struct fault f;

	if (join_asker_connect(s->asker, a, until, &s->fd, &f) == RC_OK &&
	    join_asker_ask(s->asker, s->fd, JOIN_CHECK, until, &s->answer, &f) == RC_OK &&
	    is_part_of(s->asker->plan, h->kind, h->limit))
		*ours |= s->answer.has;
	close_keeper(s);
}

enum rc
join_search_look(struct host *host, const struct plan *p, struct site *site,
    struct join_site *told, unsigned *ours, struct fault *f)
{
	static const instant not_kept = 0;
	static struct identity identity;
	struct join_asker asker = {host, p, site, NULL, &not_kept};
	const char *addresses = getenv("DLOCK_KEEPER");
	struct search s = {.asker = &asker, .told = told, .fd = -1};
	struct keeper_address a;
	struct fault unused;

	join_site_begin(told, p);
	if (addresses)
		(void)hear_due_site(&s, addresses, &unused);
	if (addresses && ours && identify(&s, &identity)) {
		asker.identity = &identity;
		while (next_keeper(&s, &addresses, &a))
			look_at_keeper(&s, &a, ours);
	}
	return join_site_settle(told, f);
}
