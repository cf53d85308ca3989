/*
 * several.c - Goal of these tests: no order of delays, losses, pauses and thefts makes
 * several keys as one lock (backends/multi.c) anything but all of them or none.
 *
 * Each seed is one world on one virtual clock: up to four clients, each a multi of its own
 * as the keeper has it, who want one to three of three keys; a server for each key with a
 * queue; a network that delays, loses and overtakes (what was sent for a store that has been
 * closed may still come); keys that are taken away or wanted back; clients that are
 * paused, told to stop, or cut off.  The stores wait as backends do; what a client runs
 * with the lock is a time.
 *
 *	SEVERAL_RUNS=N   worlds (20000)
 *	SEVERAL_SEED=N   one of them, told event by event
 *
 * Each invariant has been seen to fail; a change to multi.c, and what it trips:
 *
 *	begin_again     gives nothing back, or one key alone        ALL_ARE_RELEASED, NOTHING_IS_LEFT
 *	begin_again     gives all back                              THOSE_BEFORE_ARE_KEPT, EVERYBODY_IS_SERVED
 *	begin_again     also without waiting                        ASKED_ONCE
 *	begin_again     asks with the same owner                    FRESH_OWNER, EXCLUSION
 *	combine         the lease that ends last                    EARLIEST, EXCLUSION
 *	combine         the first in order, not the first named     TOKENS
 *	multi_open      keys as named, not in order                 ORDER, THOSE_BEFORE_ARE_KEPT, EVERYBODY_IS_SERVED
 *	keep_held       a loss is none                              ALL_ARE_HELD, EVERYBODY_IS_SERVED
 *	keep_held       the end of a lease is none                  ALL_ARE_HELD
 *	renew_part      is not due when the lease ends              ALL_ARE_HELD
 *	renew_part      one that is lost is released, too           LOSS_IS_TOLD, ALL_ARE_RELEASED
 *	wait_and_keep   renews nothing                              EVERYBODY_IS_SERVED
 *	weight          a revocation, or silence, before a loss     LOSS_IS_TOLD
 *	weight          silence is RC_OK                            ALL_ARE_RENEWED, ALL_ARE_RELEASED
 *	renew_all       leaves out the last                         ALL_ARE_RENEWED, IN_TURN
 *	renew_all       ends with one that is silent                IN_TURN
 *	share           all of the time                             IN_TURN
 *	release_part    what was not heard is not asked again       ALL_ARE_RELEASED
 *	release_part    what is released is asked again             ALL_ARE_RELEASED
 *	multi_release   leaves out the first, or one not yet held   ALL_ARE_RELEASED, NOTHING_IS_LEFT
 *	multi_acquire   grants with the last one missing            ALL_ARE_HELD, TOKENS
 *	multi_acquire   does not look at what is due                ALL_ARE_HELD
 */
#include "backends/multi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#define MS NS_PER_MS
#define S NS_PER_S
#define TTL (6 * S)
#define ALIVE (2 * S) /* a waiter that has not asked for so long has gone */
#define BEAT (300 * MS)
#define PATIENCE (900 * MS) /* of a store, for one answer */
#define BEGINNING (1000 * S)
/* when everybody has been served, whatever has gone wrong */
#define LIMIT (BEGINNING + 900 * S)

enum { KEYS = 3, CLIENTS = 4, ROUNDS = 3, ROOM = 256, SPIN = 10000, STACK = 1 << 18 };

/* ---- the invariants ---- */

enum invariant {
	EXCLUSION,
	ALL_ARE_HELD,
	ORDER,
	THOSE_BEFORE_ARE_KEPT,
	FRESH_OWNER,
	EARLIEST,
	TOKENS,
	LOSS_IS_TOLD,
	ALL_ARE_RENEWED,
	IN_TURN,
	ALL_ARE_RELEASED,
	NOTHING_IS_LEFT,
	ASKED_ONCE,
	EVERYBODY_IS_SERVED,
	INVARIANTS
};

static const char *const promise[INVARIANTS] = {
    [EXCLUSION] = "no key is granted to another while who holds it has time left",
    [ALL_ARE_HELD] = "a grant is one of all keys, none of which is known to have gone",
    [ORDER] = "a key is asked for while only lesser ones are held or waited for",
    [THOSE_BEFORE_ARE_KEPT] =
	"what is given back while one waits has gone, or is behind one that has",
    [FRESH_OWNER] = "what is asked for again has another owner",
    [EARLIEST] = "the lease of all ends no later than that of any",
    [TOKENS] = "each key has its own token, the first one's is the lock's, and they grow",
    [LOSS_IS_TOLD] = "one that is lost is a loss, and nothing else is",
    [ALL_ARE_RENEWED] = "a renewal is one of all keys",
    [IN_TURN] = "each is asked to renew and has its share of the time, whoever is silent",
    [ALL_ARE_RELEASED] = "a release leaves out none that may be ours",
    [NOTHING_IS_LEFT] = "after a release no server knows of us",
    [ASKED_ONCE] = "who does not wait asks for each key once",
    [EVERYBODY_IS_SERVED] = "every run ends: nobody deadlocks, starves or spins",
};

static struct {
	unsigned long count, seed; /* the first */
} broken[INVARIANTS];

/* What the worlds have reached, to show that they reach everything. */
static struct {
	unsigned long runs, steps, grants, busy, again, lost, revoked, unanswered,
	    stopped, waited, left_alone;
} reached;

/* ---- a world ---- */

enum call { ACQUIRE, RENEW, RELEASE };
enum { QUEUED = 1000, SILENT, STOPPED }; /* beside enum rc */

struct packet {
	instant at;
	unsigned long order;
	bool answer, waits;
	enum call call;
	int client, key, value;
	unsigned id;
	uint64_t token;
	char owner[OWNER_CHARS + 1];
};

/* A key at its server. */
struct key {
	char owner[OWNER_CHARS + 1]; /* "": nobody */
	int client;
	instant ends;
	uint64_t token;
	bool revoked;
	struct {
		char owner[OWNER_CHARS + 1];
		int client;
		instant alive;
	} queue[ROOM];
	size_t waiting;
};

/* What a client has to do with one key. */
struct side {
	unsigned id;   /* of the last question */
	bool answered; /* it is, by: */
	int value;
	uint64_t token, last; /* `last`: that was ever told of */
	instant reaches;      /* what was sent last, on this connection */
	bool asked, held, gone, silent, released;
	instant sent; /* the last question */
	int64_t time; /* for the last renewal */
	bool taken;   /* by an administrator: what comes then is nobody's fault */
	instant ends;
	int renewed, acquired;
	char owner[OWNER_CHARS + 1];
};

struct client {
	struct host host; /* first */
	struct site site; /* by which a store knows whose it is */
	int index;
	ucontext_t context;
	void *stack;
	bool done, cut, acquiring, holds, saw_loss;
	int fd; /* what it waits for: a key, or -1 */
	instant until, paused_until, stop_at;
	instant ends; /* of what it holds, as it was told */
	const char *keys[KEYS];
	size_t n;
	struct side sides[KEYS];
};

static struct world {
	unsigned long seed, order;
	uint64_t random;
	bool told;
	instant now;
	int still;     /* steps without any time going by */
	unsigned loss; /* packets in 1000 */
	struct packet packets[ROOM];
	size_t flying;
	struct key keys[KEYS];
	struct client clients[CLIENTS];
	int n;
	ucontext_t scheduler;
} w;

static const char *const names[KEYS] = {"a", "b", "c"};

instant __wrap_instant_now(void);

instant
__wrap_instant_now(void)
{
	return w.now;
}

static int64_t
between(int64_t low, int64_t high)
{
	uint64_t z = w.random += 0x9e3779b97f4a7c15u; /* splitmix64, Steele et al. 2014 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return low + (int64_t)((z ^ z >> 31) % (uint64_t)(high - low + 1));
}

static bool
chance(int percent)
{
	return between(0, 99) < percent;
}

static void __attribute__((format(printf, 1, 2))) tell(const char *fmt, ...)
{
	va_list ap;

	if (!w.told)
		return;
	printf("%10.4f  ", (double)(w.now - BEGINNING) / S);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void
require(enum invariant i, bool holds)
{
	if (holds)
		return;
	if (broken[i].count++ == 0)
		broken[i].seed = w.seed;
	tell("BROKEN: %s", promise[i]);
}

/* ---- the network ---- */

static void
post(struct packet p)
{
	struct client *c = &w.clients[p.client];
	struct side *side = &c->sides[p.key];
	int64_t delay = chance(80) ? between(0, 5 * MS)
	    : chance(75)           ? between(0, 300 * MS)
				   : between(0, 3 * S);

	if (c->cut || between(0, 999) < w.loss)
		return;
	if (w.flying == ROOM)
		abort();
	p.at = w.now + (w.loss ? delay : delay / 100);
	if (!p.answer &&
	    p.at < side->reaches) /* what one connection sends stays in order */
		p.at = side->reaches;
	if (!p.answer)
		side->reaches = p.at;
	p.order = w.order++;
	w.packets[w.flying++] = p;
}

static bool
is_flying(const struct client *c)
{
	for (size_t i = 0; i < w.flying; i++)
		if (w.packets[i].client == c->index)
			return true;
	return false;
}

/* ---- the servers ---- */

static void
leave_queue(struct key *k, const char *owner)
{
	size_t kept = 0;

	for (size_t i = 0; i < k->waiting; i++)
		if (k->queue[i].alive > w.now && strcmp(k->queue[i].owner, owner) != 0)
			k->queue[kept++] = k->queue[i];
	k->waiting = kept;
}

static void
join_queue(struct key *k, const struct packet *p)
{
	size_t i = 0;

	while (i < k->waiting && strcmp(k->queue[i].owner, p->owner) != 0)
		i++;
	if (i == k->waiting)
		k->waiting++;
	strcpy(k->queue[i].owner, p->owner);
	k->queue[i].client = p->client;
	k->queue[i].alive = w.now + ALIVE;
}

static void
give(struct key *k, const struct packet *p)
{
	for (const struct client *c = w.clients; c < w.clients + w.n; c++)
		require(EXCLUSION,
		    c->index == p->client || !c->holds || c->cut || c->ends <= w.now ||
			!c->sides[p->key].asked || c->sides[p->key].taken);
	leave_queue(k, p->owner);
	strcpy(k->owner, p->owner);
	k->client = p->client;
	k->token++;
	k->revoked = false;
}

static int
serve_acquire(struct key *k, const struct packet *p)
{
	bool first;

	leave_queue(k, "");
	first = k->waiting == 0 || strcmp(k->queue[0].owner, p->owner) == 0;
	if (strcmp(k->owner, p->owner) != 0) {
		if (*k->owner || !first) {
			if (p->waits)
				join_queue(k, p);
			return p->waits ? QUEUED : RC_BUSY;
		}
		give(k, p);
	}
	k->ends = w.now + TTL;
	return RC_OK;
}

static void
serve(struct packet p)
{
	struct key *k = &w.keys[p.key];
	bool ours;

	if (*k->owner && k->ends <= w.now)
		*k->owner = '\0';
	ours = strcmp(k->owner, p.owner) == 0;
	p.answer = true;
	p.value = ours ? RC_OK : RC_LOST;
	if (p.call == ACQUIRE)
		p.value = serve_acquire(k, &p);
	else if (p.call == RENEW && ours) {
		k->ends = w.now + TTL;
		p.value = k->revoked ? RC_REVOKED : RC_OK;
	} else if (p.call == RELEASE) {
		leave_queue(k, p.owner);
		if (ours)
			*k->owner = '\0';
	}
	p.token = k->token;
	tell("    server %s: %s of %d (%.6s): %d", names[p.key],
	    p.call == ACQUIRE     ? "acquire"
		: p.call == RENEW ? "renew"
				  : "release",
	    p.client, p.owner + OWNER_CHARS - 6, p.value);
	post(p);
}

static void
arrive(const struct packet *p)
{
	struct side *side = &w.clients[p->client].sides[p->key];

	if (!p->answer) {
		serve(*p);
	} else if (p->id == side->id) {
		side->answered = true;
		side->value = p->value;
		side->token = p->call == ACQUIRE ? p->token : side->token;
	}
}

/* An administrator takes a key away, or wants it back. */
static void
interfere(void)
{
	struct key *k = &w.keys[between(0, KEYS - 1)];
	struct client *c = &w.clients[k->client];

	if (!*k->owner)
		return;
	k->revoked = chance(50);
	tell(
	    "    %s is %s", names[k - w.keys], k->revoked ? "wanted back" : "taken away");
	if (k->revoked)
		return;
	if (strcmp(c->sides[k - w.keys].owner, k->owner) == 0)
		c->sides[k - w.keys].taken = true;
	*k->owner = '\0';
}

/* ---- the stores ---- */

struct kept {
	struct store base;
	struct client *client;
	int key;
	const struct claim *claim;
};

/* In the end all waiting is here. */
static enum woke
world_wait(struct host *host, int fd, short events, instant until)
{
	struct client *c = (struct client *)host;

	(void)events;
	c->fd = fd;
	c->until = until;
	swapcontext(&c->context, &w.scheduler);
	if (fd >= 0 && c->sides[fd].answered)
		return WOKE_READY;
	return w.now >= c->stop_at ? WOKE_STOP : WOKE_TIMEOUT;
}

static struct side *
side_of(struct kept *k)
{
	return &k->client->sides[k->key];
}

/* Asks the server and waits for what it says: an enum rc, QUEUED, SILENT or STOPPED. */
static int
question(struct kept *k, enum call call, bool waits, instant until)
{
	struct side *side = side_of(k);
	struct packet p = {.call = call,
	    .waits = waits,
	    .client = k->client->index,
	    .key = k->key,
	    .id = ++side->id};

	strcpy(p.owner, k->claim->owner);
	side->answered = false;
	side->sent = w.now;
	post(p);
	while (!side->answered) {
		if (w.now >= until)
			return SILENT;
		if (k->base.host->wait(k->base.host, k->key, 1, until) == WOKE_STOP)
			return STOPPED;
	}
	return side->value;
}

static void
check_order(const struct client *c, int key)
{
	for (int i = key; i < KEYS; i++)
		require(ORDER, !c->sides[i].asked || c->sides[i].released);
}

static enum rc
kept_granted(struct kept *k, instant sent, struct grant *g)
{
	struct side *side = side_of(k);

	side->held = true;
	side->ends = sent + TTL;
	*g = (struct grant){.token = side->token,
	    .sent = sent,
	    .lease = TTL,
	    .pace = TTL / 3,
	    .anchor = -1};
	return RC_OK;
}

static enum rc
kept_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct kept *k = (struct kept *)s;
	struct side *side;

	k->claim = claim;
	k->key = claim->key[0] - 'a';
	side = side_of(k);
	check_order(k->client, k->key);
	require(FRESH_OWNER, strcmp(side->owner, claim->owner) != 0);
	strcpy(side->owner, claim->owner);
	side->asked = true;
	side->gone = side->released = side->held = side->silent = side->taken = false;
	side->acquired++;
	for (int silent = 0; silent < 6;) {
		instant sent = w.now;
		int said = question(k, ACQUIRE, until > 0, w.now + PATIENCE);

		if (said == RC_OK)
			return kept_granted(k, sent, g);
		if (said == STOPPED)
			return RC_STOP;
		if (said == RC_BUSY || (said == QUEUED && w.now >= until))
			return fault_set(f, RC_BUSY, "held");
		silent = said == SILENT ? silent + 1 : 0;
		if (said == QUEUED &&
		    s->host->wait(s->host, -1, 0, instant_first(until, w.now + BEAT)) ==
			WOKE_STOP)
			return RC_STOP;
		reached.waited += said == QUEUED;
	}
	return fault_set(f, RC_AGAIN, "no answer");
}

static enum rc
kept_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct kept *k = (struct kept *)s;
	struct side *side = side_of(k);
	instant sent = w.now;
	int said;

	side->time = until - w.now;
	said = question(k, RENEW, false, until);

	if (said == STOPPED)
		return RC_STOP;
	if (said == SILENT)
		return fault_set(f, RC_AGAIN, "no answer");
	side->gone = side->gone || said != RC_OK;
	if (said == RC_LOST) {
		k->client->saw_loss = true;
		side->asked = false;
		return fault_set(f, RC_LOST, "not ours");
	}
	side->renewed++;
	side->ends = g->sent = sent;
	side->ends += TTL;
	return said == RC_OK ? RC_OK : fault_set(f, RC_REVOKED, "wanted back");
}

static enum rc
kept_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct kept *k = (struct kept *)s;
	struct side *side = side_of(k);
	bool gone = !k->client->acquiring, lost;
	int said;

	(void)o;
	require(ALL_ARE_RELEASED, side->asked);
	for (int i = 0; i <= k->key; i++)
		gone = gone || k->client->sides[i].gone ||
		    (k->client->sides[i].held && k->client->sides[i].ends <= w.now);
	require(THOSE_BEFORE_ARE_KEPT, gone);
	side->released = true;
	said = question(k, RELEASE, false, instant_first(until, w.now + PATIENCE));
	if (said == STOPPED || said == SILENT) {
		side->silent = true;
		return said == STOPPED ? RC_STOP : fault_set(f, RC_AGAIN, "no answer");
	}
	/* one that was asked before, and not heard, may have been the one that did it */
	lost = said == RC_LOST && side->held && !side->silent;
	side->asked = false;
	k->client->saw_loss = k->client->saw_loss || lost;
	return lost ? fault_set(f, RC_LOST, "not ours") : RC_OK;
}

static enum rc kept_open(
    struct store **, struct host *, const struct site *, struct fault *);

static void
kept_close(struct store *s)
{
	struct kept *k = (struct kept *)s;

	if (k->claim) {
		require(ALL_ARE_RELEASED, !side_of(k)->asked || side_of(k)->released);
		side_of(k)->reaches = 0; /* the next one has another connection */
		side_of(k)->id++;
		side_of(k)->asked = false;
	}
	free(s);
}

static const struct backend kept_backend = {
    .name = "kept",
    .open = kept_open,
    .close = kept_close,
    .lock = &(const struct lock_ops){kept_acquire, kept_renew, kept_release},
};

static enum rc
kept_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct kept *k = calloc(1, sizeof *k);

	if (!k)
		return fault_set(f, RC_SYSTEM, "out of memory");
	k->base = (struct store){&kept_backend, host, "kept", CAP_FAIR};
	k->client = w.clients + strtoul(site->url, NULL, 10);
	*ret = &k->base;
	return RC_OK;
}

/* ---- a client ---- */

static struct side *
named(struct client *c, size_t i)
{
	return &c->sides[c->keys[i][0] - 'a'];
}

/* What it was told of all keys against what each server told, and now has. */
static void
check_grant(struct client *c, struct store *s, const struct grant *g)
{
	for (size_t i = 0; i < c->n; i++) {
		struct side *side = named(c, i);
		uint64_t token = multi_grant(s, i)->token;

		require(ALL_ARE_HELD, side->held && !side->gone);
		require(EARLIEST, g->sent + g->lease <= side->ends);
		require(TOKENS, token == side->token && token >= side->last);
		side->last = token;
	}
	require(TOKENS, g->token == multi_grant(s, 0)->token);
	c->ends = g->sent + g->lease;
}

static void
nap(struct client *c, instant until)
{
	while (w.now < until)
		if (c->host.wait(&c->host, -1, 0, until) == WOKE_STOP)
			return;
}

static bool
renew_once(struct client *c, struct store *s, struct grant *g, struct fault *f)
{
	enum rc rc;
	size_t renewed = 0;
	instant until = instant_first(c->ends, w.now + PATIENCE);
	int64_t share = (until - w.now) / (int64_t)c->n;
	bool paused = c->paused_until > w.now;

	for (size_t i = 0; i < c->n; i++)
		named(c, i)->renewed = named(c, i)->time = 0;
	rc = s->backend->lock->renew(s, until, g, f);
	for (size_t i = 0; i < c->n; i++)
		renewed += named(c, i)->renewed == 1;
	tell("client %d: renewed: %d", c->index, rc);
	require(LOSS_IS_TOLD, (rc == RC_LOST) == c->saw_loss);
	require(ALL_ARE_RENEWED, rc != RC_OK || renewed == c->n);
	for (size_t i = 0; i < c->n && !paused && rc != RC_LOST && w.now < c->stop_at;
	     i++)
		require(IN_TURN, named(c, i)->time >= share);
	if (rc == RC_OK || rc == RC_REVOKED) {
		for (size_t i = 0; i < c->n; i++)
			named(c, i)->gone = false;
		check_grant(c, s, g);
	}
	reached.unanswered += rc == RC_AGAIN;
	reached.revoked += rc == RC_REVOKED;
	reached.lost += rc == RC_LOST;
	return rc == RC_OK || rc == RC_AGAIN;
}

/* As long as its command runs, or what it has is worth anything. */
static void
hold(struct client *c, struct store *s, struct grant *g, struct fault *f)
{
	instant ends = w.now + between(0, 12 * S);

	c->holds = true;
	c->saw_loss = false;
	while (w.now < ends && w.now < c->stop_at) {
		nap(c, instant_first(ends, instant_first(g->sent + g->pace, c->ends)));
		if (w.now >= c->ends || w.now >= c->stop_at)
			break;
		if (w.now < ends && !renew_once(c, s, g, f))
			break;
		if (w.now < ends && w.now >= g->sent + g->pace)
			nap(c, instant_first(c->ends, w.now + PATIENCE / 3));
	}
	c->holds = false;
}

static void
give_back(struct client *c, struct store *s, struct fault *f, bool had)
{
	enum rc rc = RC_AGAIN;

	c->stop_at = NEVER;
	for (int i = 0; i < 5 && rc != RC_OK && rc != RC_LOST; i++) {
		for (size_t k = 0; k < c->n; k++)
			named(c, k)->released = false;
		rc = s->backend->lock->release(s, (struct outcome){0}, w.now + 2 * S, f);
		for (size_t k = 0; k < c->n; k++)
			require(ALL_ARE_RELEASED,
			    !named(c, k)->asked || named(c, k)->released);
	}
	require(LOSS_IS_TOLD, !had || (rc == RC_LOST) == c->saw_loss);
	tell("client %d: released: %d", c->index, rc);
	reached.left_alone += rc != RC_OK && rc != RC_LOST;
	for (int i = 0; i < KEYS && rc == RC_OK; i++)
		require(ALL_ARE_RELEASED, !c->sides[i].asked);
	for (int i = 0; i < KEYS && rc == RC_OK && !w.loss && !is_flying(c); i++)
		require(NOTHING_IS_LEFT,
		    !*w.keys[i].owner || w.keys[i].client != c->index ||
			w.keys[i].ends <= w.now);
}

static void
begin_run(struct client *c)
{
	int first = (int)between(0, KEYS - 1), step = chance(50) ? 1 : KEYS - 1;

	c->n = (size_t)between(1, KEYS);
	for (size_t i = 0; i < c->n; i++)
		c->keys[i] = names[(first + (int)i * step) % KEYS];
	for (int i = 0; i < KEYS; i++)
		c->sides[i] = (struct side){
		    .id = c->sides[i].id, .last = c->sides[i].last};
	c->stop_at = chance(10) ? w.now + between(0, 20 * S) : NEVER;
	c->paused_until = chance(20) ? w.now + between(0, 8 * S) : 0;
	c->holds = false;
}

static void
run(struct client *c, struct store *s, const struct claim *claim)
{
	instant until = chance(25) ? 0 : chance(25) ? w.now + between(0, 20 * S) : NEVER;
	struct fault f;
	struct grant g;
	enum rc rc;

	c->acquiring = true;
	rc = s->backend->lock->acquire(s, claim, until, &g, &f);
	c->acquiring = false;
	tell("client %d: acquired: %d", c->index, rc);
	for (size_t i = 0; i < c->n && until == 0; i++)
		require(ASKED_ONCE, named(c, i)->acquired <= 1);
	for (size_t i = 0; i < c->n; i++)
		reached.again += named(c, i)->acquired > 1;
	reached.grants += rc == RC_OK;
	reached.busy += rc == RC_BUSY;
	reached.stopped += rc == RC_STOP;
	if (rc == RC_OK) {
		check_grant(c, s, &g);
		require(ALL_ARE_HELD, w.now < c->ends);
		hold(c, s, &g, &f);
	}
	give_back(c, s, &f, rc == RC_OK);
}

static void
client_main(unsigned index)
{
	struct client *c = &w.clients[index];
	char owner[OWNER_CHARS + 1];

	for (unsigned i = 0; i < ROUNDS && !c->cut; i++) {
		struct claim claim = {.owner = owner, .record = "{}", .ttl = TTL};
		struct store *s = NULL;
		struct fault f;

		nap(c, w.now + between(0, 3 * S));
		begin_run(c);
		snprintf(owner, sizeof owner, "%02x%02x%028x", index, i, 0);
		if (multi_open(&s, &c->host, &kept_backend, &c->site, c->keys, c->n,
			&f) != RC_OK)
			abort();
		run(c, s, &claim);
		s->backend->close(s);
	}
	c->done = true;
	swapcontext(&c->context, &w.scheduler);
}

/* ---- a world's course ---- */

/* When it has something to do. */
static instant
wakes(const struct client *c)
{
	instant at = instant_first(c->until, c->stop_at);

	if (c->done)
		return NEVER;
	if (c->fd >= 0 && c->sides[c->fd].answered)
		at = w.now;
	at = at > c->paused_until ? at : c->paused_until;
	return at > w.now ? at : w.now;
}

static struct client *
next_client(void)
{
	struct client *first = w.clients;

	for (struct client *c = w.clients; c < w.clients + w.n; c++)
		first = wakes(c) < wakes(first) ? c : first;
	return first;
}

static size_t
next_packet(void)
{
	size_t first = 0;

	for (size_t i = 1; i < w.flying; i++)
		if (w.packets[i].at < w.packets[first].at ||
		    (w.packets[i].at == w.packets[first].at &&
			w.packets[i].order < w.packets[first].order))
			first = i;
	return first;
}

/* One thing happens; false: nothing is left to happen. */
static bool
step(void)
{
	struct client *c = next_client();
	size_t i = next_packet();
	instant at = wakes(c);

	if (w.flying > 0 && w.packets[i].at <= at) {
		struct packet p = w.packets[i];

		w.packets[i] = w.packets[--w.flying];
		w.now = p.at > w.now ? p.at : w.now;
		arrive(&p);
		return true;
	}
	if (at == NEVER)
		return false;
	w.now = at;
	if (chance(1) && w.loss)
		interfere();
	swapcontext(&w.scheduler, &c->context);
	return true;
}

static void
begin_client(int i)
{
	static char stacks[CLIENTS][STACK];
	static const char *const numbers[CLIENTS] = {"0", "1", "2", "3"};
	struct client *c = &w.clients[i];

	*c = (struct client){.index = i, .fd = -1, .stop_at = NEVER};
	c->host = (struct host){.wait = world_wait, .alert = -1};
	c->site.url = numbers[i];
	getcontext(&c->context);
	c->context.uc_stack.ss_sp = stacks[i];
	c->context.uc_stack.ss_size = STACK;
	makecontext(&c->context, (void (*)(void))client_main, 1, (unsigned)i);
}

static void
simulate(unsigned long seed, bool told)
{
	memset(&w, 0, sizeof w);
	w.seed = seed;
	w.random = seed * 0x2545f4914f6cdd1du;
	w.told = told;
	w.now = BEGINNING;
	w.loss = chance(50) ? 0 : (unsigned)between(1, 150);
	w.n = (int)between(1, CLIENTS);
	for (int i = 0; i < w.n; i++)
		begin_client(i);
	for (instant before = w.now; w.still < SPIN && w.now < LIMIT && step();
	     before = w.now) {
		w.still = w.now == before ? w.still + 1 : 0;
		reached.steps++;
		if (w.loss && chance(1) && chance(5))
			w.clients[0].cut = true;
	}
	for (int i = 0; i < w.n; i++)
		require(EVERYBODY_IS_SERVED, w.clients[i].done);
	reached.runs++;
}

/* ---- what cmocka is told ---- */

static int
simulate_all(void **state)
{
	const char *runs = getenv("SEVERAL_RUNS");
	unsigned long n = runs ? strtoul(runs, NULL, 10) : 20000;

	(void)state;
	for (unsigned long seed = 1; seed <= n && broken[EVERYBODY_IS_SERVED].count < 20;
	     seed++)
		simulate(seed, false);
	print_message(
	    "%lu worlds, %lu steps: %lu grants, %lu busy, %lu stopped, %lu waits; %lu keys asked for again, %lu lost, %lu wanted back, %lu renewals unanswered, %lu left alone\n",
	    reached.runs, reached.steps, reached.grants, reached.busy, reached.stopped,
	    reached.waited, reached.again, reached.lost, reached.revoked,
	    reached.unanswered, reached.left_alone);
	return 0;
}

static void
holds(void **state)
{
	enum invariant i = *(const enum invariant *)*state;

	if (broken[i].count > 0)
		fail_msg("%s: broken %lu times in %lu worlds, first by SEVERAL_SEED=%lu",
		    promise[i], broken[i].count, reached.runs, broken[i].seed);
}

/* A simulator that never gets anywhere would find nothing. */
static void
everything_is_reached(void **state)
{
	const unsigned long found[] = {reached.grants, reached.busy, reached.stopped,
	    reached.waited, reached.again, reached.lost, reached.revoked,
	    reached.unanswered, reached.left_alone};

	(void)state;
	for (size_t i = 0; i < sizeof found / sizeof *found; i++)
		assert_in_range(found[i], reached.runs / 1000, reached.steps);
}

int
main(void)
{
	static enum invariant which[INVARIANTS];
	struct CMUnitTest tests[INVARIANTS + 1] = {
	    [INVARIANTS] = cmocka_unit_test(everything_is_reached),
	};
	const char *seed = getenv("SEVERAL_SEED");

	if (seed) {
		simulate(strtoul(seed, NULL, 10), true);
		return 0;
	}
	for (int i = 0; i < INVARIANTS; i++) {
		which[i] = i;
		tests[i] = (struct CMUnitTest){
		    .name = promise[i], .test_func = holds, .initial_state = &which[i]};
	}
	return cmocka_run_group_tests_name("several", tests, simulate_all, NULL);
}
