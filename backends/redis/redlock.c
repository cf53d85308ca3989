/*
 * redlock.c - one lock on N independent Redis masters that know nothing of each other.
 *
 * Who has the votes of N/2 + 1 of them holds the lock.  The algorithm is that of
 * redis.io's page on distributed locks; what its critics asked for is in 4, 5 and 7.
 *
 *  1. All masters are asked at once, each by one run of redlock.lua, and a quorum of
 *     answers decides; nobody waits for the rest.  The loss of a minority, before or during
 *     a hold, is noticed by nobody.
 *  2. The lease T counts from before the first master was asked.  The caller takes 1 % and
 *     more off for clocks that differ in speed; by `ends` here, 1 % and 2 ms.
 *  3. Each attempt has an owner of its own: the claim's and a number.  One that wins no
 *     quorum is withdrawn wherever it may have a vote, also where no answer came.  What
 *     was sent for it and arrives later gives a vote to an owner who never uses
 *     it; that ends with its lease.
 *  4. A vote counts only if the master has run for longer than the longest lease it or
 *     any other that answered has heard of, or writes down each change before it answers
 *     (restart.h).  So whoever had a vote that a crash has made it forget holds no more.
 *     Such a master is voted on and released all the same.
 *  5. Token: each master deals max(the last it knows + 1, its clock in us); the highest of the
 *     voters is ours, and is written back to a quorum before the lock counts as ours.  Any
 *     later quorum has one of these among it, and gets a higher one.  The clock is for
 *     masters that have forgotten.
 *  6. A renewal counts only votes that are still ours; a vote that is missing is asked for
 *     again (healing) when, and only when, a quorum has just renewed, and counts
 *     from the next renewal on.  A hold that fewer than N/2 + 1 masters can still know is lost;
 *     it is never put together again.
 *  7. Waiting: who releases puts an element into a list on the one master that the
 *     key picks, and one of those who wait there (BLPOP) asks for the lock at once.  This
 *     is a hint: who hears nothing asks now and then.  Nobody is promised an order.
 *
 * Why two never hold: let X have had a quorum Q at its last good answer, sent at s, and
 * Y be granted with a quorum R.  Some master m is in both.  It gave its vote to X, after s,
 * for T by its own clock, and to Y later.  Between, X's vote there ended: X released it
 * (then X was over), or T ran out (then X's time, T - 1 % from s, was over, if m's clock
 * did not run more than 1 % fast or was not set forward), or m forgot it: then m has
 * restarted since s and its vote counts for Y only when more than T has passed since.
 * Healing adds votes to X while X has a quorum, so m may be one of those, by the same argument.
 * What breaks it: a clock that is set forward on a master (that is a vote forgotten; it
 * takes as many as are beyond a quorum in X's favour); eviction; FLUSHALL; a crash that
 * loses what was said to be written; a machine that stands still between a look at the
 * clock and the write it allows.  For all of these there is the token.
 */
#include "redlock.h"

#include "backends/dice.h"
#include "backends/patience.h"
#include "backends/refuse.h"
#include "backends/setting.h"
#include "backends/url.h"
#include "dialect.h"
#include "quorum.h"
#include "redlock_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* what a grant may take of its lease, in two rounds */
#define ROUND_MOST (2 * NS_PER_S)
enum { ROUNDS_OF_LEASE = 6 };
/* for the rest, once a quorum has answered and nobody is waiting for us */
#define REST_PATIENCE (100 * NS_PER_MS)
#define HEAL_PATIENCE NS_PER_S

enum { TRIES_WITHOUT_WAIT = 4 };

/* Why it was not granted. */
enum because {
	BECAUSE_HELD,  /* a quorum has given its votes to one other */
	BECAUSE_SPLIT, /* the votes are divided */
	BECAUSE_YOUNG, /* too many votes do not count yet */
};

struct redlock {
	struct store base;
	struct quorum quorum;
	struct tls_settings tls_settings;
	struct patience patience;
	const struct claim *claim;
	bool bare;    /* the key itself is the lock's, as other clients have it */
	bool listens; /* the master that tells of releases has answered */
	bool asked;   /* a vote may be ours */
	bool holds;
	bool told;         /* of masters that cannot be used */
	instant began;     /* to ask */
	unsigned attempts; /* each has an owner of its own */
	unsigned tries;    /* since the votes were divided */
	uint64_t dice;
	enum because because;
	int64_t left; /* until the first vote of a holder ends, ns; < 0: not known */
	struct order order; /* what is common to all that is asked for the attempt */
	instant ends;       /* of the lease, if we hold */
};

extern const struct backend redis_backend;
static const struct backend redlock_backend;

static struct redlock *
redlock_of(struct store *s)
{
	return (struct redlock *)store_of(s, &redlock_backend);
}

/* ---- open ---- */

bool
redlock_is_meant(const char *url)
{
	return url &&
	    (strncmp(url, "redlock:", 8) == 0 || strncmp(url, "redlocks:", 9) == 0);
}

static enum rc
redlock_password_file(struct store *s, const char *value, struct fault *f)
{
	struct quorum *q = &redlock_of(s)->quorum;
	char *first = q->masters[0].address.password;
	size_t size = sizeof q->masters[0].address.password;
	enum rc rc = setting_secret("password-file", value, first, size, f);

	for (size_t i = 1; rc == RC_OK && i < q->n; i++)
		memcpy(q->masters[i].address.password, first, size);
	return rc;
}

static enum rc
redlock_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_patience(value, &redlock_of(s)->patience.first, f);
}

static enum rc
redlock_dialect(struct store *s, const char *value, struct fault *f)
{
	const struct dialect *d;
	enum rc rc = dialect_choose(&d, value, f);

	if (rc != RC_OK)
		return rc;
	redlock_of(s)->bare = d == &dialect_string;
	return d == &dialect_string || d == &dialect_native
	    ? RC_OK
	    : fault_set(f, RC_CONFIG,
		  "redlock has no dialect '%.40s' (native, or string: the key itself)",
		  value);
}

static enum rc
redlock_cacert(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redlock_of(s)->tls_settings, "cacert", value, f);
}

static enum rc
redlock_cert(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redlock_of(s)->tls_settings, "cert", value, f);
}

static enum rc
redlock_key(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redlock_of(s)->tls_settings, "key", value, f);
}

static enum rc
redlock_tls_name(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redlock_of(s)->tls_settings, "tls-name", value, f);
}

static const struct setting_row settings[] = {
    {"password-file", "FILE", "the password of all masters, in a file of mode 0600",
	redlock_password_file},
    {"connect-timeout", "DURATION",
	"for masters that do not answer, without --wait (default: 5s)",
	redlock_connect_timeout},
    {"dialect", "NAME", "native (default), or string: the key itself", redlock_dialect},
    {"cacert", "FILE", "with redlocks://: the CAs to trust (default: the system's)",
	redlock_cacert},
    {"cert", "FILE", "with redlocks://: a client certificate, and those of its CAs",
	redlock_cert},
    {"key", "FILE", "its key, in a file of mode 0600", redlock_key},
    {"tls-name", "NAME",
	"with redlocks://: what the masters' certificates are for, if not the hosts' names",
	redlock_tls_name},
    {0},
};

static void
redlock_close(struct store *s)
{
	struct redlock *r = s ? redlock_of(s) : NULL;

	if (!r)
		return;
	quorum_end(&r->quorum);
	free(r);
}

static enum rc
check_login(const struct redlock *r, struct fault *f)
{
	const struct address *a = &r->quorum.masters[0].address;

	return *a->user && !*a->password
	    ? fault_set(f, RC_USAGE,
		  "the redlock URL has a user without a password (there or in -O password-file=FILE)")
	    : RC_OK;
}

enum rc
redlock_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct redlock *r = calloc(1, sizeof *r);
	enum rc rc;

	if (!r)
		return fault_set(f, RC_SYSTEM, "out of memory");
	r->base = (struct store){&redlock_backend, host, r->quorum.where,
	    CAP_DURABLE | CAP_REVOKE | CAP_FORCE};
	patience_init(&r->patience);
	rc = quorum_begin(&r->quorum, host, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&r->base, site, f);
	if (rc == RC_OK)
		rc = check_login(r, f);
	if (rc == RC_OK)
		rc = quorum_secure(&r->quorum, &r->tls_settings, f);
	if (rc != RC_OK)
		redlock_close(&r->base);
	else
		*ret = &r->base;
	return rc;
}

/* ---- what is asked ---- */

static instant
round_ends(const struct redlock *r)
{
	return instant_now() + instant_first(ROUND_MOST, r->claim->ttl / ROUNDS_OF_LEASE);
}

static void
redlock_put(struct redlock *r, enum order_kind kind, bool flag, instant until,
    bool (*whom)(const struct quorum *, const struct master *))
{
	r->order.kind = kind;
	r->order.flag = flag;
	r->order.until = until;
	quorum_ask(&r->quorum, &r->order, whom);
}

static void
redlock_begin(struct redlock *r, const struct claim *claim)
{
	r->claim = claim;
	r->began = instant_now();
	r->order = (struct order){.lease = ns_to_ms(claim->ttl),
	    .longest = ns_to_ms(claim->ttl),
	    .record = claim->record};
	r->dice = dice_of(claim->owner);
	quorum_name(&r->quorum, claim->key, r->bare);
	patience_begin(&r->patience, claim);
}

static void
next_owner(struct redlock *r)
{
	snprintf(r->order.owner, sizeof r->order.owner, "%s-%u", r->claim->owner,
	    r->attempts++);
}

/* ---- withdrawing and releasing ---- */

/* Who may have given us a vote: all but those who said no. */
static bool
may_have_voted(const struct quorum *q, const struct master *m)
{
	return !quorum_has_heard(q, m) || m->rc != RC_OK ||
	    (m->vote.verdict != VERDICT_NO && m->vote.verdict != VERDICT_ABSENT);
}

/*
 * All are told, and who is still at another answer has a little time to come to
 * this one; then it is told on a connection of its own.
 */
static enum rc
redlock_let_go(struct redlock *r, bool wake, instant until,
    bool (*whom)(const struct quorum *, const struct master *), struct tally *t)
{
	instant rest = instant_now() + REST_PATIENCE;
	enum rc rc;

	redlock_put(r, ORDER_RELEASE, wake, until, whom);
	rc = quorum_hear(&r->quorum, instant_first(until, rest), NULL, t);
	if (rc == RC_OK && t->open > 0) {
		quorum_hurry(&r->quorum);
		rc = quorum_hear(
		    &r->quorum, instant_first(until, rest + REST_PATIENCE), NULL, t);
	}
	return rc;
}

/* The attempt has won no quorum. */
static enum rc
redlock_withdraw(struct redlock *r)
{
	struct tally t;
	enum rc rc = redlock_let_go(
	    r, false, instant_now() + ROUND_MOST, may_have_voted, &t);

	if (rc == RC_OK && t.failed + t.open == 0)
		r->asked = false;
	return rc;
}

/* ---- acquire: one attempt ---- */

static bool
is_decided(const struct quorum *q, const struct tally *t)
{
	size_t yes = t->votes[VERDICT_YES] - t->young;

	return yes >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && yes + t->young + t->open < q->need);
}

static bool
is_written(const struct quorum *q, const struct tally *t)
{
	return t->votes[VERDICT_YES] >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && t->open == 0);
}

/* The votes of one owner other than us. */
static size_t
votes_of(const struct quorum *q, const char *owner)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		n += quorum_has_heard(q, m) && m->rc == RC_OK &&
		    m->vote.verdict == VERDICT_NO && strcmp(m->vote.owner, owner) == 0;
	}
	return n;
}

/* Who holds it, as far as a master told; NULL: nobody has a quorum. */
static const struct vote *
find_holder(const struct quorum *q)
{
	const struct vote *found = NULL;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (quorum_has_heard(q, m) && m->rc == RC_OK &&
		    m->vote.verdict == VERDICT_NO &&
		    votes_of(q, m->vote.owner) >= q->need && (!found || !*found->record))
			found = &m->vote;
	}
	return found;
}

static void
redlock_show(struct redlock *r, const struct vote *holder)
{
	struct host *host = r->base.host;

	host->seen.position = 0;
	host->seen.held = holder && holder->held >= 0 ? holder->held * NS_PER_MS : -1;
	snprintf(host->seen.holder, sizeof host->seen.holder, "%s",
	    holder ? holder->record : "");
	host->seen.kind = KIND_EXCLUSIVE;
	host->seen.holders = holder ? 1 : 0;
	host->seen.frozen = false;
	r->left = holder && holder->left >= 0 ? holder->left * NS_PER_MS : -1;
}

static enum rc
redlock_refused(struct redlock *r, const struct tally *t, struct fault *f)
{
	const struct vote *holder = find_holder(&r->quorum);
	size_t at = quorum_listens_at(&r->quorum, r->claim->key);
	const struct master *told = &r->quorum.masters[at];

	if (t->answered < r->quorum.need)
		return quorum_refused(&r->quorum, t, f);
	r->listens = quorum_has_heard(&r->quorum, told) && told->rc == RC_OK;
	redlock_show(r, holder);
	if (holder) {
		r->because = BECAUSE_HELD;
		return fault_set(f, RC_BUSY, "%s: held", r->base.where);
	}
	if (t->votes[VERDICT_YES] >= r->quorum.need) {
		r->because = BECAUSE_YOUNG;
		return fault_set(f, RC_BUSY,
		    "%zu of %zu masters have restarted less than %lld s ago and may have forgotten who holds it (with appendfsync always they would not)",
		    t->young, r->quorum.n,
		    (long long)(t->longest > r->order.longest ? t->longest
							      : r->order.longest) /
			    1000 +
			1);
	}
	r->because = BECAUSE_SPLIT;
	return fault_set(f, RC_BUSY,
	    "%s: no quorum: several ask for it at once, or masters are down",
	    r->base.where);
}

/* Too few masters can be used, though enough: somebody should know. */
static void
redlock_notice(struct redlock *r)
{
	for (size_t i = 0; i < r->quorum.n && !r->told; i++) {
		const struct master *m = &r->quorum.masters[i];

		if (!quorum_has_heard(&r->quorum, m) || m->rc == RC_OK ||
		    (m->rc == RC_AGAIN && !r->base.host->verbose))
			continue;
		r->told = true;
		fault_set(&r->base.host->notice, RC_OK,
		    "%.400s (one of %zu masters, of which %zu are needed)", m->fault.text,
		    r->quorum.n, r->quorum.need);
	}
}

/* The token to a quorum, and our vote to who has not yet been asked for it. */
static enum rc
redlock_write_token(struct redlock *r, struct tally *t, struct fault *f)
{
	enum rc rc;

	redlock_put(r, ORDER_EXTEND, true, round_ends(r), NULL);
	rc = quorum_hear(&r->quorum, r->order.until, is_written, t);
	if (rc != RC_OK)
		return rc;
	if (t->answered < r->quorum.need)
		return quorum_refused(&r->quorum, t, f);
	return t->votes[VERDICT_YES] + t->votes[VERDICT_HEALED] >= r->quorum.need
	    ? RC_OK
	    : fault_set(
		  f, RC_AGAIN, "%s: votes were lost while it was granted", r->base.where);
}

static instant
lease_ends(const struct redlock *r, instant sent)
{
	return sent + r->claim->ttl - r->claim->ttl / 100 - 2 * NS_PER_MS;
}

/* RC_OK: it is ours.  RC_BUSY: r->because.  Else nothing is ours. */
static enum rc
redlock_attempt(struct redlock *r, instant most, struct grant *g, struct fault *f)
{
	struct tally t;
	instant sent;
	enum rc rc;

	next_owner(r);
	r->order.token = 0;
	r->asked = true;
	sent = instant_now();
	redlock_put(r, ORDER_ACQUIRE, false, instant_first(round_ends(r), most), NULL);
	rc = quorum_hear(&r->quorum, r->order.until, is_decided, &t);
	if (rc == RC_OK)
		rc = quorum_check_twins(&r->quorum, f);
	if (rc != RC_OK)
		return rc;
	if (t.longest > r->order.longest)
		r->order.longest = t.longest;
	if (t.votes[VERDICT_YES] - t.young < r->quorum.need) {
		rc = redlock_refused(r, &t, f);
		return redlock_withdraw(r) == RC_STOP ? RC_STOP : rc;
	}
	redlock_notice(r);
	r->order.token = t.token;
	rc = redlock_write_token(r, &t, f);
	if (rc == RC_STOP)
		return rc;
	if (rc != RC_OK)
		return redlock_withdraw(r) == RC_STOP ? RC_STOP : rc;
	r->holds = true;
	r->ends = lease_ends(r, sent);
	*g = (struct grant){
	    .token = r->order.token, .sent = sent, .lease = r->claim->ttl, .anchor = -1};
	return RC_OK;
}

/* ---- acquire: waiting ---- */

/* Until somebody releases it, as far as we are told, or so long. */
static void
redlock_listen(struct redlock *r, int64_t length)
{
	struct order order = {.kind = ORDER_LISTEN,
	    .lease = ns_to_ms(length),
	    .until = instant_now() + length + NS_PER_S};

	quorum_ask_one(&r->quorum, quorum_listens_at(&r->quorum, r->claim->key), &order);
}

static int64_t
pause_of(struct redlock *r)
{
	int64_t pause;

	switch (r->because) {
	case BECAUSE_YOUNG:
		return (200 + dice_roll(&r->dice, 200)) * NS_PER_MS;
	case BECAUSE_SPLIT:
		pause = r->tries++ < 8 ? 25 + dice_roll(&r->dice, 50)
				       : 100 + dice_roll(&r->dice, 200);
		return pause * NS_PER_MS;
	case BECAUSE_HELD:
		break;
	}
	r->tries = 0;
	pause = (r->listens ? 500 + dice_roll(&r->dice, 500)
			    : 50 + dice_roll(&r->dice, 200)) *
	    NS_PER_MS;
	if (r->left >= 0 && r->left + 5 * NS_PER_MS < pause)
		pause = r->left + (5 + dice_roll(&r->dice, 20)) * NS_PER_MS;
	return pause;
}

static enum rc
redlock_pause(struct redlock *r, instant until, struct fault *f)
{
	int64_t pause = pause_of(r);
	instant ends = instant_first(until, instant_now() + pause);
	struct tally t;
	enum rc rc;

	if (r->because == BECAUSE_HELD && r->listens) {
		redlock_listen(r, pause);
		rc = quorum_hear(&r->quorum, ends + NS_PER_S / 10, NULL, &t);
		if (rc == RC_OK && t.failed > 0)
			rc = quorum_sleep(&r->quorum, ends);
	} else {
		rc = quorum_sleep(&r->quorum, ends);
	}
	if (rc != RC_OK)
		return rc;
	return instant_now() >= until
	    ? fault_set(f, RC_BUSY, "%s: still held", r->base.where)
	    : RC_OK;
}

/* Nobody waits, but what looks taken since several have asked at once is asked for again. */
static bool
is_final(struct redlock *r, instant until)
{
	return until == 0 &&
	    (r->because != BECAUSE_SPLIT || r->tries >= TRIES_WITHOUT_WAIT ||
		instant_now() >= r->began + NS_PER_S);
}

static enum rc
redlock_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	bool heard = false;
	enum rc rc;

	redlock_begin(r, claim);
	do {
		rc = redlock_attempt(r, patience_attempt(&r->patience, until), g, f);
		if (rc == RC_BUSY) {
			heard = true;
			patience_end_outage(&r->patience);
			if (is_final(r, until))
				return r->because == BECAUSE_YOUNG ? RC_AGAIN : RC_BUSY;
			if (r->because == BECAUSE_YOUNG && !r->told) {
				s->host->notice = *f;
				r->told = true;
			}
			rc = redlock_pause(r, until ? until : NEVER, f);
		} else if (rc != RC_OK) {
			rc = until || rc != RC_AGAIN
			    ? patience_retry(&r->patience, s->host, rc, heard, until)
			    : RC_AGAIN;
		}
	} while (rc == RC_OK && !r->holds);
	return rc;
}

/* ---- renew ---- */

static bool
is_settled(const struct quorum *q, const struct tally *t)
{
	return t->votes[VERDICT_YES] >= q->need ||
	    t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] > q->n - q->need;
}

static bool
has_forgotten(const struct quorum *q, const struct master *m)
{
	return quorum_has_heard(q, m) && m->rc == RC_OK &&
	    m->vote.verdict == VERDICT_ABSENT && !*m->vote.record;
}

/* Those who forgot it, when a quorum has just renewed. */
static enum rc
redlock_heal(struct redlock *r, instant until)
{
	struct tally t;

	quorum_count(&r->quorum, &t);
	if (t.votes[VERDICT_ABSENT] == 0)
		return RC_OK;
	redlock_put(r, ORDER_EXTEND, true,
	    instant_first(r->ends, instant_now() + HEAL_PATIENCE), has_forgotten);
	return quorum_hear(
	    &r->quorum, instant_first(until, instant_now() + REST_PATIENCE), NULL, &t);
}

/* The record of who wants it back, or has taken it; "" if a master told of none. */
static void
find_mark(const struct quorum *q, char *mark, size_t size)
{
	*mark = '\0';
	for (size_t i = 0; i < q->n && !*mark; i++)
		if (quorum_has_heard(q, &q->masters[i]) && q->masters[i].rc == RC_OK)
			snprintf(mark, size, "%s", q->masters[i].vote.record);
}

/* A key that is no lock any more says no, too. */
static size_t
count_foreign(const struct quorum *q)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++)
		n += quorum_has_heard(q, &q->masters[i]) &&
		    q->masters[i].rc == RC_PROTOCOL &&
		    resp_is_foreign(q->masters[i].fault.text);
	return n;
}

static enum rc
redlock_not_renewed(struct redlock *r, const struct tally *t, struct fault *f)
{
	struct quorum *q = &r->quorum;
	char mark[RECORD_BYTES];
	size_t no = t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] + count_foreign(q);

	if (no <= q->n - q->need) {
		quorum_refused(q, t, f);
		return RC_AGAIN;
	}
	find_mark(q, mark, sizeof mark);
	if (*mark)
		return refuse_broken(r->base.host, f, RC_LOST, r->base.where, mark);
	return fault_set(f, RC_LOST,
	    "%zu of %zu masters no longer have it as ours: it expired, was deleted, or they lost their data",
	    no, q->n);
}

static enum rc
redlock_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	char mark[RECORD_BYTES];
	instant sent = instant_now();
	struct tally t;
	enum rc rc;

	redlock_put(r, ORDER_EXTEND, false, until, NULL);
	rc = quorum_hear(&r->quorum, until, is_settled, &t);
	if (rc != RC_OK)
		return rc;
	if (t.votes[VERDICT_YES] < r->quorum.need)
		return redlock_not_renewed(r, &t, f);
	if (instant_now() >= r->ends)
		return fault_set(
		    f, RC_AGAIN, "%s answered after the end of the lease", r->base.where);
	r->ends = lease_ends(r, sent);
	g->sent = sent;
	g->lease = r->claim->ttl;
	/* nobody waits for us: those behind the quorum are heard, too */
	rc = quorum_hear(
	    &r->quorum, instant_first(until, instant_now() + REST_PATIENCE), NULL, &t);
	find_mark(&r->quorum, mark, sizeof mark);
	if (*mark)
		return refuse_broken(s->host, f, RC_REVOKED, s->where, mark);
	if (rc == RC_OK)
		redlock_heal(r, until);
	return RC_OK;
}

/* ---- release ---- */

static bool
was_repeated(const struct quorum *q)
{
	for (size_t i = 0; i < q->n; i++)
		if (quorum_has_heard(q, &q->masters[i]) && q->masters[i].vote.repeated)
			return true;
	return false;
}

static enum rc
redlock_released(struct redlock *r, const struct tally *t, struct fault *f)
{
	const struct quorum *q = &r->quorum;

	if (t->votes[VERDICT_YES] >= q->need || (!r->holds && t->answered >= q->need))
		return RC_OK;
	if (t->votes[VERDICT_NO] + count_foreign(q) <= q->n - q->need)
		return quorum_refused(q, t, f) == RC_OK ? RC_OK : RC_AGAIN;
	if (was_repeated(q))
		return fault_set(f, RC_AGAIN,
		    "%s closed connections before they answered", r->base.where);
	return fault_set(f, RC_LOST,
	    "%zu of %zu masters no longer had it as ours: it expired, was deleted, or they lost their data",
	    t->votes[VERDICT_NO], q->n);
}

static enum rc
redlock_release(struct store *s, int status, instant until, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	struct tally t;
	enum rc rc;

	(void)status;
	if (!r->asked)
		return RC_OK;
	rc = redlock_let_go(r, r->holds, until, NULL, &t);
	if (rc == RC_OK && t.answered < r->quorum.need)
		rc = quorum_hear(&r->quorum, until, is_written, &t);
	if (rc != RC_OK)
		return rc;
	rc = redlock_released(r, &t, f);
	if (rc == RC_OK || rc == RC_LOST)
		r->asked = r->holds = false;
	return rc;
}

/* ---- looking and steering ---- */

static enum rc
admin_each(struct store *s, const struct look *look, struct fault *f)
{
	struct redlock *r = redlock_of(s);

	return redlock_each(&r->quorum, r->bare, look, f);
}

static enum rc
admin_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct redlock *r = redlock_of(s);

	return redlock_revoke(&r->quorum, r->bare, t, record, force, until, f);
}

static enum rc
admin_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	(void)key, (void)record, (void)length, (void)until;
	return fault_set(f, RC_CONFIG, "%s cannot freeze locks", s->where);
}

static enum rc
admin_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	(void)key, (void)until;
	return fault_set(f, RC_CONFIG, "%s cannot freeze locks", s->where);
}

static const struct backend redlock_backend = {
    .name = "redis",
    .schemes = (const char *const[]){"redlock", "redlocks", NULL},
    .settings = settings,
    .url_help = "redlock[s]://[user:password@]host[:port],host,host...[/db]",
    .open = redlock_open,
    .close = redlock_close,
    .lock = &(const struct lock_ops){redlock_acquire, redlock_renew, redlock_release},
    .admin = &(
	const struct admin_ops){admin_each, admin_revoke, admin_freeze, admin_thaw},
};
