/*
 * check.c - tells whether a cluster is fit for locks, and removes what a probe has left.
 *
 *  1. Each member of the URL is asked for its version, its part in the cluster, the size of its
 *     database, and the alarms.  The list of all members says how many there are.
 *  2. A freeze has no lease, and the mark of a hold that was taken by force outlives it: both
 *     are deleted.  So are permits, which last as long as a lease that could not be revoked.
 */
#include "etcd.h"

#include "backends/common/checkup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MEMBER_PATIENCE NS_PER_S
#define ELECTION (5 * NS_PER_S) /* two of them, if the first finds nobody */

#define QUOTA (INT64_C(2) << 30) /* quota-backend-bytes, if it is not set */

static const struct call ask_state = {.path = "/v3/maintenance/status"};

enum { NEARLY = 90 }; /* percent of it */

struct checking {
	struct etcd *etcd;
	struct checkup *c;
	size_t good; /* members that can serve */
	size_t last; /* one of them */
	bool denied;
};

/* An old leader that wakes up may end leases that live (etcd #12528).  NULL: not known. */
static bool
is_risky(const char *version)
{
	int major = 0, minor = 0, patch = 0;

	return version && sscanf(version, "%d.%d.%d", &major, &minor, &patch) == 3 &&
	    major == 3 && minor < 6 && patch < (minor == 5 ? 13 : 31);
}

enum rc
etcd_warn_of_version(struct etcd *e, instant until)
{
	struct fault ignored;
	const char *version;
	json_t *state;
	enum rc rc;

	if (!e->base.host->verbose)
		return RC_OK;
	state = cluster_answer(&e->cluster, ask_state, until, &rc, &ignored);
	version = json_string_value(json_object_get(state, "version"));
	if (is_risky(version))
		fault_set(&e->base.host->notice, RC_OK,
		    "%s is version %.*s, where a leader that was stopped for seconds may end leases that live when it goes on (mended in 3.4.31 and 3.5.13); see dlock-etcd(7)",
		    e->server_name, (int)strspn(version, "0123456789."), version);
	json_decref(state);
	return rc == RC_STOP ? RC_STOP : RC_OK;
}

/* ---- members ---- */

static void
tell_version(struct checkup *c, const char *where, const char *version)
{
	if (is_risky(version))
		checkup_tell(c, DOUBTFUL, "version", "use etcd 3.4.31, 3.5.13 or newer",
		    "%s is etcd %s: a leader that was stopped for seconds may end leases that live when it goes on",
		    where, version);
	else
		checkup_tell(c, FIT, "version", NULL, "%s is etcd %s", where, version);
}

static void
tell_database(struct checkup *c, const char *where, const json_t *state)
{
	int64_t size = kv_number(state, "dbSize"), told = kv_number(state, "dbSizeQuota"),
		quota = told ? told : QUOTA;
	bool full = told >= 0 /* else there is none */ && size > quota / 100 * NEARLY &&
	    (told || size <= quota);

	checkup_tell(c, full ? DOUBTFUL : FIT, "database",
	    full ? "etcdctl compact and defrag; or raise quota-backend-bytes" : NULL,
	    "that of %s has %" PRId64 " bytes; the quota is %" PRId64 "%s", where, size,
	    quota, told ? "" : " unless quota-backend-bytes says otherwise");
}

/* "memberID:4711 alarm:NOSPACE": an alarm by its type, or words about the member. */
static void
tell_errors(struct checkup *c, const char *where, const json_t *errors)
{
	for (size_t i = 0; i < json_array_size(errors); i++) {
		const char *text = json_string_value(json_array_get(errors, i));
		char alarm[16];
		bool full = text &&
		    sscanf(text, "memberID:%*[0-9] alarm:%15[A-Z]", alarm) == 1 &&
		    strcmp(alarm, "NOSPACE") == 0;

		checkup_tell(c, UNFIT, full ? "database" : "alarm",
		    full ? "etcdctl compact and defrag, then etcdctl alarm disarm"
			 : "see etcdctl endpoint health and etcdctl alarm list",
		    full ? "that of %s is full, and takes nothing new (%s)"
			 : "%s says '%s'",
		    where, text ? text : "?");
	}
}

static void
tell_state(struct checking *k, size_t i, const char *where, const json_t *state)
{
	struct checkup *c = k->c;
	const char *version = json_string_value(json_object_get(state, "version"));
	int64_t leader = kv_number(state, "leader");
	bool learner = json_is_true(json_object_get(state, "isLearner")),
	     serves = leader != 0 && !learner;

	checkup_tell(c, serves ? FIT : DOUBTFUL, "server",
	    serves        ? NULL
		: learner ? "leave it out of the URL until it is promoted"
			  : "see why it has no leader: its log, its way to the others",
	    "%s answers: %s", where,
	    learner                                       ? "a learner"
		: !serves                                 ? "it has no leader"
		: leader == kv_header(state, "member_id") ? "the leader"
							  : "a follower");
	tell_version(c, where, version ? version : "of an unknown version");
	tell_database(c, where, state);
	tell_errors(c, where, json_object_get(state, "errors"));
	if (!serves)
		return;
	k->good++;
	k->last = i;
}

static enum rc
check_member(struct checking *k, size_t i, struct fault *f)
{
	struct etcd *e = k->etcd;
	const struct endpoint *at = &e->address.at[i];
	struct call call = ask_state;
	char where[sizeof at->host + 16];
	instant until = instant_first(k->c->until, instant_now() + MEMBER_PATIENCE);
	enum rc rc;

	*f->text = '\0';
	rc = cluster_ask(&e->cluster, i, &call, until, f);
	endpoint_print(where, sizeof where, "", at);
	if (rc == RC_OK && call.code == CODE_OK) {
		tell_state(k, i, where, call.answer);
	} else if (rc == RC_DENIED) {
		k->denied = true;
		checkup_tell(
		    k->c, FIT, "server", NULL, "%s does not tell us its state", where);
	} else if (rc != RC_STOP) {
		checkup_tell(k->c, rc == RC_AGAIN ? DOUBTFUL : UNFIT, "server",
		    "start it again, or take it out of the URL", "%s is of no use: %s",
		    where, *f->text ? f->text : "no answer");
	}
	calls_free(&call, 1);
	return rc;
}

static enum rc
tell_quorum(struct checking *k)
{
	size_t named = k->etcd->address.n, all = 0; /* members that vote; 0: not known */
	const struct call call = {.path = "/v3/cluster/member/list"};
	struct fault unused;
	enum rc rc;
	json_t *list = cluster_answer(&k->etcd->cluster, call,
		   instant_first(k->c->until, instant_now() + MEMBER_PATIENCE), &rc,
		   &unused),
	       *members = json_object_get(list, "members");
	bool away = k->good < named, few;

	for (size_t i = 0; i < json_array_size(members); i++)
		all += !json_is_true(
		    json_object_get(json_array_get(members, i), "isLearner"));
	json_decref(list);
	few = all > named;
	checkup_tell(k->c, away || few || all == 2 ? DOUBTFUL : FIT, "quorum",
	    away ? "start those that are away; more than half of a cluster must serve"
		: few      ? "name all members in the URL"
		: all == 2 ? "take three members: with two, the loss of one stops both"
			   : NULL,
	    all > 0 ? "%zu of the %zu members of the URL serve; the cluster has %zu"
		    : "%zu of the %zu members of the URL serve",
	    k->good, named, all);
	return rc == RC_STOP ? RC_STOP : RC_OK;
}

/* ---- the whole check, and what a probe has left ---- */

/* A read goes by the leader: there is one once it is answered.  A run waits for that, too. */
static enum rc
await_leader(struct etcd *e, const struct checkup *c)
{
	instant until = instant_first(c->until, instant_now() + ELECTION);
	struct fault unused;
	enum rc rc;

	json_decref(cluster_answer(&e->cluster,
	    call_range(&(struct kv_range){.key = e->root, .count_only = true}), until,
	    &rc, &unused));
	return rc == RC_STOP ? RC_STOP : RC_OK;
}

/* Where one lock is named, there was no probe. */
static enum rc
sweep_keys(struct etcd *e, struct checkup *c, struct fault *f)
{
	char marks[QUEUE_BYTES], permits[QUEUE_BYTES];
	struct txn t = {0};
	struct names l;
	enum rc rc;

	if (e->name)
		return RC_OK;
	names_of(&l, e->root, NULL, c->probe);
	names_end(marks, sizeof marks, l.marks);
	names_end(permits, sizeof permits, l.permits);
	kv_op_delete(&t.success, l.freeze, NULL);
	kv_op_delete(&t.success, l.marks, marks);
	kv_op_delete(&t.success, l.permits, permits);
	json_decref(cluster_answer(&e->cluster, call_txn(&t), c->until, &rc, f));
	return rc;
}

enum rc
etcd_check(struct store *s, struct checkup *c, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct checking k = {.etcd = e, .c = c};
	struct fault other;
	enum rc rc = RC_OK;

	if (c->sweep)
		return sweep_keys(e, c, f);
	if (await_leader(e, c) == RC_STOP)
		return RC_STOP;
	for (size_t i = 0; i < e->address.n; i++) {
		enum rc its = check_member(&k, i, i == 0 ? f : &other);

		if (its == RC_STOP)
			return RC_STOP;
		if (i == 0)
			rc = its;
	}
	if (k.good == 0 && !k.denied)
		return rc == RC_OK
		    ? fault_set(f, RC_AGAIN, "%s has no leader", e->server_name)
		    : rc;
	checkup_tell(c, FIT, "user", NULL, "%s",
	    *e->address.user ? e->address.user : "nobody in particular");
	if (k.good == 0)
		return RC_OK;
	while (e->cluster.member != k.last)
		cluster_turn(&e->cluster);
	return tell_quorum(&k);
}
