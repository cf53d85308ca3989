/*
 * redlock.c - one lock on N independent Redis masters that know nothing of each other.
 *
 * Who has the votes of N/2 + 1 of them holds the lock.  The algorithm is that of
 * redis.io's page on distributed locks; what its critics asked for is in 4, 5 and 7.
 * Here are the store and waiting (7); 1 to 6 are told in redlock_hold.c, what one round says
 * in quorum.c, and what one master is asked in master.c.
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
 *  4. No lease is longer than 60 s.  A vote counts only if some host has known the process
 *     of that master for 61 s, or if it wrote down each change before it answered when it
 *     was first met (restart.h, `run` in redlock.lua).  So whoever had a vote that a crash
 *     has made it forget holds no more, however long the leases are of those who ask, and
 *     whoever else is away.  Such a master is voted on and released all the same.
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
 * for T <= 60 s by its own clock, and to Y later.  Between, X's vote there ended: X released
 * it (then X was over), or T ran out (then X's time, T - 1 % from s, was over, if m's clock
 * did not run more than 1 % fast or was not set forward), or m forgot it.  Then m's process
 * of now, P, began after X's vote, so after s.  Some host had P's first answer at a, later
 * still, and P's vote for Y counts only if that host, or another run on it since the same
 * boot, sent a request at b >= a + 61 s by a clock that nobody can set, and P answered it.
 * Y was granted after b, so more than 60 s after s, when X was over.  What m keeps of this
 * names P by its run ID, which no other process has: data of an earlier one, of a backup
 * or of another master tell nothing of P, and whoever forgets them only waits anew.
 * T does not occur in this: the leases of X and Y, and what the rest of the masters know or
 * are, do not matter.  Healing adds votes to X while X has a quorum, so m may be one of
 * those, by the same argument.
 * What breaks it: a clock that is set forward on a master (that is a vote forgotten; it
 * takes as many as are beyond a quorum in X's favour); eviction; a DEL by hand; a crash
 * that loses what was said to be written, or settings that are made durable while a master
 * is down; a master that takes its data from a replica of its own and is a master again
 * within the minute (what it keeps of this names P, too); another client whose leases on
 * the same keys are longer; a machine that stands still between a look at the clock and the
 * write it allows.  For all of these there is the token.
 */
#include "redlock.h"

#include "backends/common/retry.h"
#include "backends/common/setting.h"
#include "dialects.h"
#include "redlock_hold.h"
#include "redlock_look.h"
#include "restart.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES_WITHOUT_WAIT = 4 };

/* When to ask again for what was refused. */
struct redlock_wait {
	instant began;  /* to ask */
	unsigned tries; /* since the votes were divided */
	uint64_t dice;
};

struct redlock {
	struct store base;
	struct quorum quorum;
	struct tls_settings tls_settings;
	struct retry patience;
	bool bare; /* the key itself is the lock's, as other clients have it */
	struct redlock_wait wait;
	struct redlock_hold hold;
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
	return setting_timeout(value, &redlock_of(s)->patience.first, f);
}

static enum rc
redlock_dialect(struct store *s, const char *value, struct fault *f)
{
	const struct dialect *d;
	enum rc rc = dialect_choose(&d, value, f);

	if (rc != RC_OK)
		return rc;
	redlock_of(s)->bare = d == &dialects[DIALECT_STRING];
	return d == &dialects[DIALECT_STRING] || d == &dialects[DIALECT_NATIVE]
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

/* The masters in the order in which they are named. */
static enum rc
redlock_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct redlock *r = redlock_of(s);

	(void)f;
	identity_add(id, "form", "redlock");
	for (size_t i = 0; i < r->quorum.n; i++)
		address_identify(id, &r->quorum.masters[i].address);
	identity_add(id, "dialect", r->bare ? "string" : "native");
	return RC_OK;
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
	retry_init(&r->patience);
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

/* ---- waiting ---- */

static void
wait_begin(struct redlock_wait *w, const struct claim *claim)
{
	w->began = instant_now();
	w->dice = jitter_of(claim->owner);
}

/* Is there nothing to wait for?  One that does not wait asks again only while votes are divided. */
static bool
wait_is_over(const struct redlock_wait *w, const struct refusal *refusal, instant until)
{
	return until == 0 &&
	    (refusal->because != BECAUSE_SPLIT || w->tries >= TRIES_WITHOUT_WAIT ||
		instant_now() >= w->began + NS_PER_S);
}

/* Until somebody releases it, as far as we are told, or so long. */
static void
listen_for_release(struct quorum *q, int64_t length)
{
	struct order order = {.kind = ORDER_LISTEN,
	    .lease = ns_to_ms(length),
	    .until = instant_now() + length + NS_PER_S};

	quorum_ask_one(q, q->listener, &order);
}

static int64_t
pause_while_held(struct redlock_wait *w, const struct refusal *refusal)
{
	int64_t pause = (refusal->listens ? 500 + jitter_below(&w->dice, 500)
					  : 50 + jitter_below(&w->dice, 200)) *
	    NS_PER_MS;

	w->tries = 0;
	if (refusal->left >= 0 && refusal->left + 5 * NS_PER_MS < pause)
		pause = refusal->left + (5 + jitter_below(&w->dice, 20)) * NS_PER_MS;
	return pause;
}

static int64_t
pause_of(struct redlock_wait *w, const struct refusal *refusal)
{
	switch (refusal->because) {
	case BECAUSE_YOUNG:
		return (200 + jitter_below(&w->dice, 200)) * NS_PER_MS;
	case BECAUSE_SPLIT:
		return (w->tries++ < 8 ? 25 + jitter_below(&w->dice, 50)
				       : 100 + jitter_below(&w->dice, 200)) *
		    NS_PER_MS;
	case BECAUSE_HELD:
		break;
	}
	return pause_while_held(w, refusal);
}

/*
 * Sleeps until there is reason to ask again.  RC_OK, RC_BUSY at `until` (without words), or
 * RC_STOP.
 */
static enum rc
redlock_wait(struct redlock_wait *w, struct quorum *q, const struct refusal *refusal,
    instant until)
{
	int64_t pause = pause_of(w, refusal);
	instant ends = instant_first(until, instant_now() + pause);
	struct tally t;
	enum rc rc;

	if (refusal->because == BECAUSE_HELD && refusal->listens) {
		listen_for_release(q, pause);
		rc = quorum_hear(q, ends + NS_PER_S / 10, NULL, &t);
		if (rc == RC_OK && t.failed > 0)
			rc = quorum_sleep(q, ends);
	} else {
		rc = quorum_sleep(q, ends);
	}
	if (rc != RC_OK)
		return rc;
	return instant_now() >= until ? RC_BUSY : RC_OK;
}

/* ---- the lock ---- */

/* RC_OK: there is reason to ask again.  Else that is what acquire returns. */
static enum rc
redlock_go_on(
    struct redlock *r, const struct refusal *refusal, instant until, struct fault *f)
{
	bool young = refusal->because == BECAUSE_YOUNG;
	enum rc rc;

	if (wait_is_over(&r->wait, refusal, until))
		return young ? RC_AGAIN : RC_BUSY;
	if (young && !r->hold.told) {
		r->base.host->notice = *f;
		r->hold.told = true;
	}
	rc = redlock_wait(&r->wait, &r->quorum, refusal, until ? until : NEVER);
	if (rc != RC_BUSY)
		return rc;
	return young ? RC_AGAIN : fault_set(f, rc, "%s: still held", r->quorum.where);
}

/* What a master that restarts may have forgotten is never longer. */
static enum rc
check_lease(const struct claim *claim, struct fault *f)
{
	long long most = restart_longest() / 1000;

	return ns_to_ms(claim->ttl) > restart_longest()
	    ? fault_set(f, RC_USAGE, "with redlock --ttl is 3s to %llds", most)
	    : RC_OK;
}

static enum rc
redlock_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	struct refusal refusal;
	bool heard = false;
	enum rc rc = check_lease(claim, f);

	if (rc != RC_OK)
		return rc;
	quorum_name(&r->quorum, claim->key, r->bare);
	redlock_hold_begin(&r->hold, &r->quorum, claim);
	wait_begin(&r->wait, claim);
	retry_begin(&r->patience, claim);
	do {
		rc = redlock_attempt(
		    &r->hold, retry_attempt(&r->patience, until), g, &refusal, f);
		if (rc == RC_BUSY) {
			heard = true;
			retry_end_outage(&r->patience);
			rc = redlock_go_on(r, &refusal, until, f);
		} else if (rc != RC_OK && (until || rc != RC_AGAIN)) {
			rc = retry_wait(&r->patience, s->host, rc, heard, until);
		}
	} while (rc == RC_OK && !r->hold.is);
	return rc;
}

static enum rc
redlock_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return redlock_hold_renew(&redlock_of(s)->hold, until, g, f);
}

static enum rc
redlock_release(struct store *s, int status, instant until, struct fault *f)
{
	(void)status;
	return redlock_hold_release(&redlock_of(s)->hold, until, f);
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
    .identify = redlock_identify,
    .lock = &(const struct lock_ops){redlock_acquire, redlock_renew, redlock_release},
    .admin = &(
	const struct admin_ops){admin_each, admin_revoke, admin_freeze, admin_thaw},
};
