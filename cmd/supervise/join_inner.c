/*
 * join_inner.c - an inner run: asks the outer keepers, and joins the hold of one.
 *
 *	identify   finds which locks are asked for
 *	search     asks one keeper of DLOCK_KEEPER after the other; the first one that has all of
 *	           them is joined
 *	store      from there on that keeper is the server: acquire, renew and release ask it
 */
#include "join_inner.h"

#include "cmd/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- which locks ---- */

/* A store that is only asked what it is has nothing to wait for. */
static enum woke
wait_for_nothing(struct host *h, int fd, short events, instant until)
{
	(void)h, (void)fd, (void)events, (void)until;
	return WOKE_STOP;
}

/* Which locks are asked for.  False: that is not known, and no keeper's are the same. */
static bool
identify(struct join_inner *k)
{
	static struct host nobody;
	const struct backend *b = k->params->site.backend;
	struct fault unused;
	struct store *s;
	bool known;

	*k->identity.text = '\0';
	nobody = (struct host){.wait = wait_for_nothing, .alert = -1};
	if (k->where->unknown || !b->open ||
	    b->open(&s, &nobody, &k->where->site, &unused) != RC_OK)
		return false;
	known = identity_ask(&k->identity, b, s);
	s->backend->close(s);
	return known;
}

/* ---- one keeper ---- */

/* It has the key `named`, or seems to, and cannot be joined; NULL: it has none of ours. */
static enum rc
refuse(const char *named, const char *why, struct fault *f)
{
	if (!named)
		return RC_LOST;
	return fault_set(f, RC_PROTOCOL,
	    "the outer run (DLOCK_KEEPER) has %s and %s; this run would wait for its own parent for ever; if it does not belong to the outer run, unset DLOCK_KEEPER",
	    text_key(named).text, why);
}

static void
leave(struct join_inner *k)
{
	if (k->keeper < 0)
		return;
	shutdown(k->keeper, SHUT_RDWR); /* of the front's copy as well */
	close(k->keeper);
	k->keeper = -1;
	anchors_close(&k->watched);
}

/*
 * Connects to a keeper.  RC_LOST: nobody of ours is there any more; RC_PROTOCOL: it has a
 * key of ours, but cannot be asked; RC_AGAIN: too many others wait to be accepted;
 * RC_SYSTEM.
 */
static enum rc
connect_to(struct join_inner *k, const struct join_address *to, struct fault *f)
{
	const char *key = join_address_key(to, k->params);
	pid_t pid;

	if (to->n == 0)
		return RC_LOST;
	k->keeper = join_address_connect(to, SOCK_NONBLOCK, &pid);
	if (k->keeper >= 0)
		return RC_OK;
	if (errno == ECONNREFUSED)
		return RC_LOST;
	if (errno == ENONET)
		return refuse(
		    key, "cannot be asked from here (another network namespace?)", f);
	if (errno == EPERM)
		return refuse(key, "is another user's", f);
	if (errno == EAGAIN)
		return fault_set(f, RC_AGAIN, "the outer run does not answer");
	return fault_set(f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
}

/* Returns how much of *a is to be sent. */
static size_t
write_ask(struct join_ask *a, const struct join_inner *k, enum join_verb verb)
{
	char *key = a->keys;

	*a = (struct join_ask){.version = JOIN_VERSION, .verb = verb};
	for (size_t i = 0; i < k->params->nkeys; i++)
		key = stpcpy(key, k->params->keys[i]) + 1;
	if (k->keep_until > instant_now())
		a->keep = k->keep_until - instant_now();
	a->identity = k->identity;
	return key - (char *)a;
}

/* Keeps what has come with the answer that lets us join; later ones bring nothing. */
static enum rc
take_watched(struct join_inner *k, struct anchors *came, struct fault *f)
{
	if (came->cut) {
		anchors_close(came);
		return fault_set(
		    f, RC_SYSTEM, "no file descriptor is left to join the outer run");
	}
	if (came->n > 0) {
		anchors_close(&k->watched);
		k->watched = *came;
	}
	return RC_OK;
}

/*
 * Asks the connected keeper for the run's keys.  RC_OK: it has some, says *answer.
 * RC_LOST: it has none.  RC_AGAIN: it does not answer, or has no room, says *answer;
 * RC_STOP; RC_SYSTEM: we have no room for what has come with it.
 */
static enum rc
ask_for_keys(struct join_inner *k, enum join_verb verb, instant until,
    struct join_answer *answer, struct fault *f)
{
	struct iovec part = {answer, sizeof *answer};
	struct anchors came;
	struct join_ask a;
	size_t size = write_ask(&a, k, verb);

	while (recv(k->keeper, answer, sizeof *answer, MSG_DONTWAIT) > 0)
		continue; /* an answer that nobody waited for any longer */
	*answer = (struct join_answer){0};
	if (send(k->keeper, &a, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
		/* an outer run that is stopped has not read our earlier questions */
		return errno == EAGAIN || errno == ENOBUFS
		    ? fault_set(f, RC_AGAIN, "the outer run does not answer")
		    : fault_set(f, RC_LOST, "the outer run has ended");
	for (;;) {
		ssize_t n = anchors_receive(k->keeper, &part, 1, &came);

		if (n == sizeof *answer && answer->version == JOIN_VERSION && answer->has)
			return take_watched(k, &came, f);
		anchors_close(&came);
		if (n == JOIN_CALL)
			continue; /* we are asking already */
		if (n == sizeof *answer && answer->full)
			return RC_AGAIN;
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return fault_set(
			    f, RC_LOST, "the outer run no longer holds the lock");
		switch (k->base.host->wait(k->base.host, k->keeper, POLLIN, until)) {
		case WOKE_READY:
			break;
		case WOKE_TIMEOUT:
			return fault_set(f, RC_AGAIN, "the outer run does not answer");
		case WOKE_STOP:
			return RC_STOP;
		}
	}
}

static instant
join_until(const struct join_inner *k)
{
	int64_t most = k->params->wait.most;

	most = most < JOIN_PATIENCE_LEAST ? JOIN_PATIENCE_LEAST : most;
	return instant_now() + (most < JOIN_PATIENCE ? most : JOIN_PATIENCE);
}

/*
 * Connects to the keeper at an address and asks it; for a while again where it has no room
 * for one more.
 */
static enum rc
ask_keeper(struct join_inner *k, const struct join_address *a, enum join_verb verb,
    struct join_answer *answer, struct fault *f)
{
	instant until = join_until(k);
	const char *key = join_address_key(a, k->params);
	bool full = false; /* so it has said; the last question may not be answered */

	for (;;) {
		enum rc rc = connect_to(k, a, f);

		*answer = (struct join_answer){0};
		if (rc == RC_OK)
			rc = ask_for_keys(k, verb, until, answer, f);
		if (rc == RC_LOST && answer->foreign)
			return refuse(key ? key : k->params->keys[0],
			    "does not count this run as its descendant", f);
		full = full || answer->full;
		if (rc != RC_AGAIN || (k->keeper >= 0 && !full))
			return rc;
		if (full && instant_now() + JOIN_RETRY >= until)
			return fault_set(f, RC_AGAIN,
			    "too many runs have joined the outer run already");
		if (instant_now() >= until)
			return rc;
		leave(k);
		if (k->base.host->wait(k->base.host, -1, 0, instant_now() + JOIN_RETRY) ==
		    WOKE_STOP)
			return RC_STOP;
	}
}

/* ---- which is joined ---- */

/* The findings so far of asking the keepers; bits are keys. */
struct keys_found {
	unsigned held;  /* by a keeper, of a kind that fits */
	unsigned other; /* by one of another kind: */
	enum lock_kind kind;
	unsigned limit;
};

static unsigned
all_keys(const struct params *p)
{
	return (1U << p->nkeys) - 1;
}

/* Is what the run asks for a part of such a hold? */
static bool
is_part_of(const struct params *p, const struct join_hold *h)
{
	if (p->claim.kind == KIND_LIMIT)
		return h->kind == KIND_LIMIT && h->limit == (unsigned)p->claim.limit;
	return kind_is_exclusive(h->kind) ||
	    (h->kind == KIND_SHARED && p->claim.kind == KIND_SHARED);
}

/* The first of the run's keys whose bit is set. */
static const char *
first_key(const struct params *p, unsigned bits)
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

/* No keeper has all of it, but one has something. */
static enum rc
refuse_found(const struct params *p, const struct keys_found *found, struct fault *f)
{
	char held[120], more[120], theirs[32], ours[32];
	unsigned other = found->other & ~found->held;

	if (other)
		return fault_set(f, RC_PROTOCOL,
		    "the outer run (DLOCK_KEEPER) has %s %s, and this run asks for it %s: it would wait for its own parent for ever; ask for the same kind in the outer run, or, if this run does not belong to it, unset DLOCK_KEEPER",
		    text_key(first_key(p, other)).text,
		    kind_words(found->kind, found->limit, theirs, sizeof theirs),
		    kind_words(p->claim.kind, p->claim.limit, ours, sizeof ours));
	if (found->held == all_keys(p))
		return fault_set(f, RC_PROTOCOL,
		    "the outer runs (DLOCK_KEEPER) have the keys of this run, but none of them has all, and a run can join only one; take all keys in one outer run");
	return fault_set(f, RC_PROTOCOL,
	    "the outer run (DLOCK_KEEPER) has %s, and no outer run has %s: to wait for one key while you hold the other can end in a deadlock; take both in the outer run",
	    text_name(held, sizeof held, first_key(p, found->held)),
	    text_name(more, sizeof more, first_key(p, ~found->held)));
}

/* Is it the keeper that is joined?  If not, we leave it. */
static bool
take_hold(struct join_inner *k, const struct join_answer *a, struct keys_found *found)
{
	unsigned has = a->has & all_keys(k->params);

	if (!is_part_of(k->params, &a->hold)) {
		if (has & ~found->held & ~found->other) {
			found->kind = a->hold.kind;
			found->limit = a->hold.limit;
		}
		found->other |= has;
		return false;
	}
	found->held |= has;
	memcpy(k->parts, a->hold.parts, sizeof k->parts);
	return has == all_keys(k->params);
}

/* RC_OK: a keeper is joined.  RC_LOST: none of them has a key of ours. */
static enum rc
search(struct join_inner *k, enum join_verb verb, struct fault *f)
{
	const char *addresses = getenv("DLOCK_KEEPER");
	struct keys_found found = {0};
	struct join_address a;
	struct join_answer answer;

	while (join_address_next_of(&addresses, k->params, &a)) {
		enum rc rc = ask_keeper(k, &a, verb, &answer, f);

		if (rc == RC_OK && take_hold(k, &answer, &found))
			break;
		leave(k);
		if (rc != RC_OK && rc != RC_LOST)
			return rc;
	}
	if (k->keeper < 0)
		return found.held | found.other ? refuse_found(k->params, &found, f)
						: RC_LOST;
	if (job_is_wanted(&k->params->claim.job) ||
	    k->params->claim.job.remember == REMEMBER_SURELY)
		return fault_set(f, RC_USAGE,
		    "the outer run (DLOCK_KEEPER) holds the lock already, and what --once, --cooldown and --remember remember is written when the outer run releases it: give that run these options");
	return RC_OK;
}

enum rc
join_inner_look(struct join_inner *k)
{
	enum rc rc = RC_LOST;
	struct fault f;

	k->keeper = -1;
	if (identify(k))
		rc = search(k, JOIN_CHECK, &f);
	leave(k);
	return rc;
}

/* ---- the store of a joined hold ---- */

static const struct backend join_backend;

static struct join_inner *
join_inner_of(struct store *s)
{
	return (struct join_inner *)store_of(s, &join_backend);
}

/* The lease is that of the keeper. */
static enum rc
ask_for_lease(
    struct store *s, enum join_verb verb, instant until, struct grant *g, struct fault *f)
{
	struct join_inner *k = join_inner_of(s);
	instant asked = instant_now(); /* the answer is later, and older than it says */
	struct join_answer a;
	enum rc rc = ask_for_keys(k, verb, until, &a, f);

	if (rc != RC_OK)
		return rc;
	*g = (struct grant){.token = k->parts[0].token,
	    .slot = k->parts[0].slot,
	    .anchor = k->keeper,
	    .sent = asked - a.hold.age,
	    .lease = a.hold.lease,
	    .pace = a.hold.pace};
	return a.stops ? fault_set(f, RC_REVOKED, "of the outer run") : RC_OK;
}

/* The connection is the hold, and so the anchor of the grant. */
static enum rc
inner_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	enum rc rc;

	(void)claim, (void)until;
	s->host->alert = join_inner_of(s)->keeper;
	rc = ask_for_lease(s, JOIN_HOLD, join_until(join_inner_of(s)), g, f);
	return rc == RC_REVOKED ? RC_OK : rc; /* the next renewal says it again */
}

static enum rc
inner_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return ask_for_lease(s, JOIN_CHECK, until, g, f);
}

/* Asks a last time whether the outer one still has it. */
static enum rc
inner_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct grant g;
	enum rc rc;

	(void)o;
	if (join_inner_of(s)->keeper < 0)
		return RC_OK;
	rc = ask_for_lease(s, JOIN_CHECK, until, &g, f);
	s->host->alert = -1;
	leave(join_inner_of(s));
	return rc == RC_REVOKED ? RC_OK : rc;
}

static void
inner_close(struct store *s)
{
	leave(join_inner_of(s));
}

static const struct backend join_backend = {
    .name = "join",
    .close = inner_close,
    .lock = &(const struct lock_ops){inner_acquire, inner_renew, inner_release},
};

enum rc
join_inner_open(struct store **ret, struct join_inner *k, struct fault *f)
{
	enum rc rc = RC_LOST;

	k->keeper = -1;
	if (identify(k) || k->where->unknown)
		rc = search(k, JOIN_HOLD, f);
	if (rc != RC_OK) {
		leave(k);
		*k->identity.text = '\0';
		return rc == RC_LOST ? join_site_check(k->where, f) : rc;
	}
	k->base.backend = &join_backend;
	k->base.where = "the outer run";
	k->base.caps = CAP_FAIR | CAP_SHARED | CAP_LIMIT;
	*ret = &k->base;
	return RC_OK;
}
