/*
 * check.c - tells whether Redis servers are fit for locks, and removes what a probe has left.
 *
 *  1. A server is asked how it is set by INFO and CONFIG GET, as the first renewal of a run
 *     asks it, and health_read() (server.h) reads both: what is a warning there is told here.
 *  2. Of a cluster each master is asked, of a quorum each of its masters; of sentinels the
 *     master, how long they take to name another one, and whether they can.
 *  3. What a server does not tell us (its ACL) is doubtful, and no more.
 */
#include "redis.h"

#include "backends/common/checkup.h"
#include "backends/common/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL 90        /* percent of maxmemory */
#define SHARE NS_PER_S /* of the time, for one of several */

/* One server that is being asked. */
struct patient {
	struct checkup *checkup;
	struct server *server;
	const char *prefix; /* of facts, where there are several servers */
	instant until;
	enum rc rc; /* RC_OK, or it does not answer: why, says *fault */
	struct fault *fault;
	char run[RUN_ID_BYTES];
};

/* Its answer, the caller's; an error reply, too.  NULL: it does not answer. */
static redisReply *
patient_ask(struct patient *p, resp_words words)
{
	struct question q = {.command = NULL};
	redisReply *reply = NULL;
	char *command;

	if (p->rc != RC_OK)
		return NULL;
	command = resp_write((const resp_words *)words, 1);
	if (!command) {
		p->rc = fault_set(p->fault, RC_SYSTEM, "out of memory");
		return NULL;
	}
	q.command = command;
	p->rc = server_ask(p->server, &q, p->until, &reply, p->fault);
	free(command);
	if (p->rc == RC_OK && reply->str) /* which may repeat what it likes */
		secret_blot(reply->str, p->server->peer.address->password);
	return reply;
}

#define ASK(p, ...) patient_ask(p, (resp_words){__VA_ARGS__})

static const char *
told_text(const redisReply *r)
{
	const char *told = r ? health_text(r) : NULL;

	return told ? told : "";
}

static long
told_number(const char *info, const char *name)
{
	char value[24];

	health_field(info, name, value, sizeof value);
	return strtol(value, NULL, 10);
}

/* ---- one server ---- */

static void
tell_redis(struct patient *p, const redisReply *info, const redisReply *who)
{
	char version[32];

	health_field(told_text(info), "redis_version", version, sizeof version);
	health_field(told_text(info), "run_id", p->run, sizeof p->run);
	checkup_tell(p->checkup, *version ? FIT : DOUBTFUL, "version",
	    *version
		? NULL
		: "let its ACL give +info +config|get +acl|whoami, so that doctor can look",
	    "%s%s %s", p->prefix, p->server->peer.where,
	    *version ? version : "does not tell us how it is set");
	if (*told_text(who))
		checkup_tell(
		    p->checkup, FIT, "user", NULL, "%s%s", p->prefix, told_text(who));
}

/* Beyond what a run warns of: what a crash costs. */
static void
tell_persistence(struct patient *p, const struct health *h, const char *persistence,
    const char *save, const char *fsync)
{
	bool appends = told_number(persistence, "aof_enabled") == 1,
	     always = appends && strcmp(fsync, "always") == 0 && !h->forgets;

	checkup_tell(p->checkup, always ? FIT : DOUBTFUL, "persistence",
	    always ? NULL
		: h->forgets || (!appends && *save)
		? "redis-cli CONFIG SET appendonly yes, then CONFIG REWRITE (and see dlock-redis(7))"
		: appends && *fsync
		? "redis-cli CONFIG SET appendfsync always, then CONFIG REWRITE, if that must not be"
		: "let its ACL give +config|get, so that doctor can look",
	    "%s%s%s", p->prefix,
	    h->forgets    ? h->forgets
		: always  ? "it writes to disk before it answers, appendfsync "
		: appends ? "a crash may lose what it has answered last, appendfsync "
		: *save   ? "a crash loses what has come since its last dump, save "
			  : "it does not tell whether a restart makes it forget them all",
	    h->forgets     ? ""
		: !appends ? save
		: *fsync   ? fsync
			   : "is not told");
}

static void
tell_health(
    struct patient *p, redisReply *const answers[HEALTH_ANSWERS], const redisReply *fsync)
{
	const char *memory = told_text(answers[0]);
	long most = told_number(memory, "maxmemory"),
	     used = told_number(memory, "used_memory");
	struct health h;

	if (!*memory)
		return;
	health_read(&h, answers);
	checkup_tell(p->checkup, h.evicts ? UNFIT : FIT, "eviction",
	    h.evicts
		? "redis-cli CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE"
		: NULL,
	    h.evicts
		? "%sit evicts keys, locks too, when its memory is full (maxmemory-policy %s)"
		: "%sit evicts nothing%s",
	    p->prefix, h.evicts ? h.evicts : "");
	if (most > 0 && used / FULL >= most / 100)
		checkup_tell(p->checkup, UNFIT, "memory",
		    "raise maxmemory, or remove what fills it",
		    "%s%ld of %ld bytes are used: when it is full it refuses every lock",
		    p->prefix, used, most);
	if (*told_text(answers[1]))
		tell_persistence(p, &h, told_text(answers[1]), told_text(answers[2]),
		    told_text(fsync));
}

/* `wanted`: -O wait-replicas=. */
static void
tell_replicas(
    struct patient *p, const redisReply *info, const redisReply *least, int wanted)
{
	long n = told_number(told_text(info), "connected_slaves");
	bool guarded = n == 0 || wanted > 0;
	char role[16];

	health_field(told_text(info), "role", role, sizeof role);
	if (strcmp(role, "slave") == 0)
		checkup_tell(p->checkup, UNFIT, "role",
		    "name the master, or its sentinels",
		    "%sit is a replica: locks need the master", p->prefix);
	if (strcmp(role, "master") != 0)
		return;
	if (n < wanted)
		checkup_tell(p->checkup, UNFIT, "replicas",
		    "connect so many replicas, or lower -O wait-replicas=",
		    "%s%ld replicas, while -O wait-replicas=%d are to have each lock",
		    p->prefix, n, wanted);
	else
		checkup_tell(p->checkup, guarded ? FIT : DOUBTFUL, "replicas",
		    guarded
			? NULL
			: "-O wait-replicas=1, so that a lock counts when a replica has it",
		    "%s%ld replicas%s%s", p->prefix, n,
		    guarded
			? ""
			: ", and a fail-over may forget what they have not got yet; min-replicas-to-write ",
		    guarded                 ? ""
			: *told_text(least) ? told_text(least)
					    : "is not told");
}

static enum rc
check_server(struct patient *p, int wanted)
{
	redisReply *info = ASK(p, "INFO", "server"), *who = ASK(p, "ACL", "WHOAMI"),
		   *replication = ASK(p, "INFO", "replication"),
		   *least = ASK(p, "CONFIG", "GET", "min-replicas-to-write"),
		   *fsync = ASK(p, "CONFIG", "GET", "appendfsync"),
		   *answers[HEALTH_ANSWERS] = {ASK(p, "INFO", "memory"),
		       ASK(p, "INFO", "persistence"), ASK(p, "CONFIG", "GET", "save")};

	if (p->rc == RC_OK) {
		tell_redis(p, info, who);
		tell_health(p, answers, fsync);
		tell_replicas(p, replication, least, wanted);
	}
	freeReplyObject(info);
	freeReplyObject(who);
	freeReplyObject(replication);
	freeReplyObject(least);
	freeReplyObject(fsync);
	for (size_t i = 0; i < HEALTH_ANSWERS; i++)
		freeReplyObject(answers[i]);
	return p->rc;
}

/* ---- several ---- */

enum { PREFIX_BYTES = WHERE_BYTES + 2 };

/* A silent one leaves the others their time. */
static instant
share_of_time(instant until, size_t others)
{
	instant now = instant_now();
	int64_t each = (until - now) / (int64_t)(others + 1);

	return now + (each < SHARE ? each : SHARE);
}

/* All of them, on connections of their own; *good: how many answer. */
static void
check_each(struct redis_store *r, const struct endpoint *at, size_t n, size_t *good,
    struct checkup *c)
{
	char runs[NODES][RUN_ID_BYTES], prefix[PREFIX_BYTES];
	struct server s = {.inspected = false};

	*good = 0;
	server_init(&s, r->base.host, &r->address);
	for (size_t i = 0; i < n && i < NODES; i++) {
		struct fault f;
		struct patient p = {
		    c, &s, prefix, share_of_time(c->until, n - i - 1), RC_OK, &f, ""};

		server_go(&s, &at[i]);
		snprintf(prefix, sizeof prefix, "%s: ", s.peer.where);
		if (check_server(&p, r->replicas) != RC_OK) {
			checkup_tell(c, DOUBTFUL, "master",
			    "start it again, or name another", "%s", f.text);
			continue;
		}
		for (size_t j = 0; *p.run && j < *good; j++)
			if (strcmp(p.run, runs[j]) == 0)
				checkup_tell(c, UNFIT, "master",
				    "name each server once, by one name",
				    "%s is another one of them by another name",
				    s.peer.where);
		memcpy(runs[(*good)++], p.run, RUN_ID_BYTES);
	}
	server_close(&s);
}

static enum rc
check_nodes(struct redis *r, struct checkup *c, struct fault *f)
{
	struct endpoint masters[NODES];
	size_t n, good;
	enum rc rc;

	r->route.server.peer.bounds = &resp_pages;
	rc = route_masters(&r->route, c->until, masters, &n, f);
	if (rc != RC_OK)
		return rc;
	check_each(&r->store, masters, n, &good, c);
	checkup_tell(c, good < n ? UNFIT : FIT, "cluster",
	    good < n ? "the hash slots of the others have no locks until they are back"
		     : NULL,
	    "%zu of %zu masters answer", good, n);
	return RC_OK;
}

static void
tell_sentinels(struct redis *r, struct checkup *c)
{
	int64_t takes, enough = redis_lease_for_switch(r, c->ttl, &takes);

	if (takes > 0)
		checkup_tell(c, enough > c->ttl ? DOUBTFUL : FIT, "fail-over",
		    enough > c->ttl ? "a longer --ttl, or a lower down-after-milliseconds"
				    : NULL,
		    "a fail-over takes at least %.1f s, which %s",
		    (double)takes / NS_PER_S,
		    enough > c->ttl ? "is too long for this lease: the lock would be lost"
				    : "this lease bears");
}

/* Each is asked whether it and those that it sees are enough to name another master. */
static void
check_sentinels(struct redis *r, struct checkup *c)
{
	const struct address *a = r->store.sentinels;
	size_t good = 0, able = 0, unable = 0, barred = 0;
	struct server s = {.inspected = false};

	server_init(&s, r->store.base.host, a);
	s.peer.lenient = true;
	for (size_t i = 0; i < a->n; i++) {
		struct fault f;
		struct patient p = {
		    c, &s, "", share_of_time(c->until, a->n - i - 1), RC_OK, &f, ""};
		redisReply *told;

		server_go(&s, &a->hosts[i]);
		endpoint_print(
		    s.peer.where, sizeof s.peer.where, "sentinel ", &a->hosts[i]);
		told = ASK(&p, "SENTINEL", "CKQUORUM", a->master);
		good += told != NULL;
		able += told && told->type == REDIS_REPLY_STATUS;
		unable += told && told->type == REDIS_REPLY_ERROR &&
		    resp_says(told->str, "NOQUORUM");
		barred += told && told->type == REDIS_REPLY_ERROR &&
		    resp_says(told->str, "NOPERM");
		if (!told)
			checkup_tell(c, DOUBTFUL, "sentinels",
			    "start it again, or name another", "%s", f.text);
		freeReplyObject(told);
	}
	server_close(&s);
	checkup_tell(c,
	    able == 0 && unable > 0 ? UNFIT
		: able < a->n       ? DOUBTFUL
				    : FIT,
	    "sentinels",
	    able == a->n ? NULL
		: barred > 0
		? "let their ACL give +sentinel|ckquorum, so that doctor can look"
		: "start the others, until redis-cli -p 26379 SENTINEL CKQUORUM MASTER says OK on each",
	    "%zu of %zu sentinels answer, and %zu say that they are enough for a fail-over",
	    good, a->n, able);
}

/* ---- what a probe has left ---- */

static enum rc
sweep_one(struct route *r, resp_words words, instant until, struct fault *f)
{
	struct question q = {.persist = true};
	redisReply *reply = NULL;
	char *command = resp_write((const resp_words *)words, 1);
	enum rc rc;

	if (!command)
		return fault_set(f, RC_SYSTEM, "out of memory");
	q.command = command;
	rc = route_ask(r, &q, until, &reply, f);
	free(command);
	if (rc == RC_OK && reply->type == REDIS_REPLY_ERROR)
		rc = peer_refuses(&r->server.peer, false, NULL, reply->str, f);
	freeReplyObject(reply);
	return rc;
}

/* A role that may not delete may still say that a key has ended. */
static enum rc
sweep_key(struct route *r, const char *key, instant until, struct fault *f)
{
	enum rc rc = sweep_one(r, (resp_words){"DEL", key}, until, f);

	return rc == RC_DENIED
	    ? sweep_one(r, (resp_words){"PEXPIREAT", key, "1"}, until, f)
	    : rc;
}

static enum rc
redis_sweep(struct redis *r, struct checkup *c, struct fault *f)
{
	const struct dialect *d = r->store.dialect;
	struct names names;
	enum rc rc = RC_OK;

	dialect_name(d, &names, r->store.address.form,
	    &(struct claim){.key = c->probe, .owner = ""});
	for (int i = 0; i < names.nkeys && rc == RC_OK; i++)
		if (i != (dialect_is_foreign(d) ? 2 : 4)) /* the name of channels */
			rc = sweep_key(&r->route, names.keys[i], c->until, f);
	return rc;
}

enum rc
redis_check(struct store *s, struct checkup *c, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct patient p = {c, &r->route.server, "", c->until, RC_OK, f, ""};
	resp_words question = {"TIME"};
	enum rc rc;

	if (c->sweep)
		return redis_sweep(r, c, f);
	if (r->store.address.form == FORM_CLUSTER)
		return check_nodes(r, c, f);
	/* a question, so that route.h finds the master */
	rc = sweep_one(&r->route, question, c->until, f);
	if (rc != RC_OK && rc != RC_DENIED)
		return rc;
	if (r->store.address.form == FORM_SENTINEL) {
		tell_sentinels(r, c);
		check_sentinels(r, c);
	}
	return check_server(&p, r->store.replicas);
}

/* ---- a quorum ---- */

/* As sweep_key(), at one master; it may be away (p->rc). */
static enum rc
sweep_vote(struct patient *p, const char *key)
{
	redisReply *reply = ASK(p, "DEL", key);
	enum rc rc = p->rc;

	if (reply && reply->type == REDIS_REPLY_ERROR) {
		freeReplyObject(reply);
		reply = ASK(p, "PEXPIREAT", key, "1");
		rc = p->rc;
	}
	if (reply && reply->type == REDIS_REPLY_ERROR)
		rc = peer_refuses(&p->server->peer, false, NULL, reply->str, p->fault);
	freeReplyObject(reply);
	return rc;
}

static enum rc
redlock_sweep(struct redlock *r, struct checkup *c, struct fault *f)
{
	struct quorum *q = &r->quorum;
	struct server s = {.inspected = false};
	const struct address *a = &r->store.address;
	const char *const keys[] = {q->lock, q->data, q->wake};
	enum rc rc = RC_OK, one;

	quorum_name(q, c->probe, redlock_is_bare(r));
	server_init(&s, q->host, a);
	for (size_t i = 0; i < a->n; i++) {
		struct fault why;
		struct patient p = {
		    c, &s, "", share_of_time(c->until, a->n - i), RC_OK, &why, ""};

		server_go(&s, &a->hosts[i]);
		for (size_t k = 0; k < sizeof keys / sizeof *keys && p.rc == RC_OK; k++) {
			one = sweep_vote(&p, keys[k]);
			/* one that is away knows nothing of it, or for a day */
			if (one != RC_OK && p.rc == RC_OK) {
				rc = one;
				*f = why;
			}
		}
	}
	server_close(&s);
	return rc;
}

enum rc
redlock_check(struct store *s, struct checkup *c, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	size_t n = r->store.address.n, need = r->quorum.need, good;

	if (c->sweep)
		return redlock_sweep(r, c, f);
	check_each(&r->store, r->store.address.hosts, n, &good, c);
	if (good < need)
		return fault_set(f, RC_AGAIN,
		    "%s: %zu of %zu masters answer, and %zu must", r->store.where, good,
		    n, need);
	checkup_tell(c, good < n ? DOUBTFUL : FIT, "quorum",
	    good < n
		? "bring the others back: so many more may fail as answer beyond the quorum"
		: NULL,
	    "%zu of %zu masters answer, of which %zu are needed", good, n, need);
	if (ns_to_ms(c->ttl) > quorum_longest)
		checkup_tell(c, UNFIT, "lease", "a shorter --ttl",
		    "with redlock --ttl is 3s to %llds",
		    (long long)quorum_longest / 1000);
	return RC_OK;
}
