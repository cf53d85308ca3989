/*
 * zk.c - locks in ZooKeeper, in the layout of Apache Curator or of others (layout.h): opens,
 * acquires, renews, releases.
 *
 *  1. A lock is a directory (lockdir.h), but for one layout (single.h).  Whoever wants it makes an ephemeral
 *     sequential child (node.h) whose name says what kind of lock that is; those that stand first
 *     (queue.h) have it.  Services that use the layout's recipe of that kind on the same
 *     path exclude us and are excluded; for one of N permits, see permit.h.
 *  2. An uncontended acquire is two requests sent back to back, create and
 *     list; a release is one, delete.  (A connection costs one more, credit.h.)
 *     How a waiter waits, and takes its turn, is in wait.h.
 *  3. The lease is the session.  It is renewed by writing our own node; how
 *     long a lease a write earns, and the proof of it, is in credit.h.
 *  4. The session's end is the lock's; a lost node or session is never made
 *     again while the command runs.  A waiter that lost either joins anew, at the end.
 *  5. A server that is away is asked again at moments that are spread (patience.h),
 *     and the session goes on if it is back in time.  A release is asked for until
 *     its answer or the end of its time; where it is refused, the session's end is
 *     the release.
 */
#include "backends/backend.h"

#include "backends/common/identity.h"
#include "backends/common/patience.h"
#include "backends/common/refuse.h"
#include "backends/common/setting.h"
#include "jobs.h"
#include "look.h"
#include "single.h"
#include "steer.h"
#include "permit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_PATIENCE (1500 * NS_PER_MS) /* for one of several hosts */
#define ATTEMPT (5 * NS_PER_S)           /* to have a session, before the next one */
/* after the grant at most; from then on we hear of our node's end at once */
#define FIRST_RENEWAL (500 * NS_PER_MS)
#define RETRY (100 * NS_PER_MS) /* between attempts to give back */
/* the session of whoever looks or steers, and holds nothing by it */
#define LOOK_TTL (10 * NS_PER_S)

struct zk {
	struct store base;
	const struct claim *claim;
	struct ensemble ensemble;
	char where[WHERE_BYTES];
	struct patience patience;
	struct lockdir dir;
	struct node node; /* and the session that it lives in */
	struct turn turn;
	struct permit permit; /* with KIND_LIMIT */
	struct jobs jobs;     /* of a job */
	bool held;
	instant silent_since; /* from when on renewals went unanswered; NEVER */
};

const struct backend zk_backend;

static struct zk *
zk_of(struct store *s)
{
	return (struct zk *)store_of(s, &zk_backend);
}

/* ---- open ---- */

/* By default we alone may use the nodes that we make, if we have a name. */
static enum rc
choose_acl(struct zk *z, struct fault *f)
{
	bool named = *z->ensemble.login != '\0';

	if (z->dir.acl == ACL_UNSAID)
		z->dir.acl = named ? ACL_CREATOR : ACL_OPEN;
	return z->dir.acl == ACL_OPEN || named
	    ? RC_OK
	    : fault_set(f, RC_USAGE,
		  "-O acl=creator needs a creator: user:password in the URL, or -O auth-file=FILE");
}

static enum rc
set_acl(struct store *s, const char *value, struct fault *f)
{
	enum acl *acl = &zk_of(s)->dir.acl;

	*acl = strcmp(value, "open") == 0   ? ACL_OPEN
	    : strcmp(value, "creator") == 0 ? ACL_CREATOR
					    : ACL_UNSAID;
	return *acl != ACL_UNSAID ? RC_OK
				  : fault_set(f, RC_USAGE, "-O acl is creator or open");
}

static enum rc
set_dir_path(struct store *s, const char *value, struct fault *f)
{
	struct lockdir *d = &zk_of(s)->dir;

	if (!ensemble_is_path(value) || strlen(value) >= sizeof d->path ||
	    strstr(value, "/" JOBS))
		return fault_set(f, RC_USAGE,
		    "-O path must be absolute (/a/b, without empty parts, '.' or '..', not below "
		    "/zookeeper, and without /" JOBS ")");
	snprintf(d->path, sizeof d->path, "%s", value);
	s->caps |= ONE_LOCK;
	return RC_OK;
}

static enum rc
set_auth_file(struct store *s, const char *file, struct fault *f)
{
	struct ensemble *e = &zk_of(s)->ensemble;
	enum rc rc = setting_secret("auth-file", file, e->login, sizeof e->login, f);

	if (rc == RC_OK && (!strchr(e->login, ':') || *e->login == ':'))
		rc = fault_set(
		    f, RC_CONFIG, "auth-file %s must have one line user:password", file);
	return rc;
}

static enum rc
zk_set_patience(struct store *s, const char *value, struct fault *f)
{
	return setting_patience(value, &zk_of(s)->patience.first, f);
}

/* What it can do is its layout's. */
static void
choose_layout(struct zk *z, const struct layout *l)
{
	z->dir.layout = l;
	z->base.caps = (z->base.caps & ONE_LOCK) | l->caps;
}

static enum rc
set_layout(struct store *s, const char *value, struct fault *f)
{
	const struct layout *l = layout_named(value);

	if (!l)
		return fault_set(f, RC_USAGE,
		    "-O layout is curator, plain, rw-seq, kazoo or menagerie");
	choose_layout(zk_of(s), l);
	return RC_OK;
}

static const struct setting_row settings[] = {
    {"layout", "curator|plain|rw-seq|kazoo|menagerie",
	"whose locks these are (default: curator)", set_layout},
    {"path", "PATH",
	"the lock's node, as others who use it name it (default: from the key)",
	set_dir_path},
    {"auth-file", "FILE", "user:password, in a file of mode 0600", set_auth_file},
    {"acl", "creator|open",
	"who may use the nodes (default: creator, if there is a user)", set_acl},
    {"connect-timeout", "DURATION", "for a session, without --wait (default: 5s)",
	zk_set_patience},
    {0},
};

static void
zk_close(struct store *s)
{
	struct zk *z = s ? zk_of(s) : NULL;

	if (!z)
		return;
	turn_forget(&z->turn);
	session_end(z->node.session);
	explicit_bzero(&z->ensemble, sizeof z->ensemble);
	free(z);
}

static void
print_where(struct zk *z)
{
	char layout[24] = "";
	size_t n;

	if (z->dir.layout != &layouts[0])
		snprintf(layout, sizeof layout, " layout=%s", z->dir.layout->name);
	ensemble_print(&z->ensemble, z->where, sizeof z->where - strlen(layout));
	n = strlen(z->where);
	snprintf(z->where + n, sizeof z->where - n, "%s", layout);
}

static enum rc
zk_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct zk *z = calloc(1, sizeof *z);
	enum rc rc;

	if (!z)
		return fault_set(f, RC_SYSTEM, "out of memory");
	z->base = (struct store){&zk_backend, host, z->where, 0};
	choose_layout(z, &layouts[0]);
	patience_init(&z->patience);
	z->silent_since = NEVER;
	rc = ensemble_parse(&z->ensemble, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&z->base, site, f);
	if (rc == RC_OK)
		rc = choose_acl(z, f);
	if (rc != RC_OK) {
		zk_close(&z->base);
		return rc;
	}
	print_where(z);
	*ret = &z->base;
	return RC_OK;
}

/* The user is what stands before the password; hosts are one ensemble in any order. */
static enum rc
zk_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct zk *z = zk_of(s);
	char user[sizeof z->ensemble.login];

	(void)f;
	snprintf(user, sizeof user, "%.*s", (int)strcspn(z->ensemble.login, ":"),
	    z->ensemble.login);
	identity_list(id, "host", z->ensemble.hosts, ',');
	identity_add(id, "chroot", z->ensemble.chroot);
	identity_add(id, "user", user);
	identity_add(id, "layout", z->dir.layout->name);
	identity_add(id, "path", s->caps & ONE_LOCK ? z->dir.path : NULL);
	return RC_OK;
}

/* ---- the session ---- */

/*
 * A server that takes connections and says nothing would cost the library two
 * thirds of the timeout; where there are others, one of them is tried first then.
 */
static enum rc
begin_session(struct zk *z, int64_t ttl, instant until, struct fault *f)
{
	bool several = strchr(z->ensemble.hosts, ',') != NULL;
	struct session **s = &z->node.session;
	enum rc rc;

	for (;;) {
		instant patience = several
		    ? instant_first(until, instant_now() + HOST_PATIENCE)
		    : until;

		rc = session_begin(
		    s, z->base.host, z->where, &z->ensemble, ttl, until, f);
		if (rc == RC_OK)
			rc = session_await(*s, patience, f);
		if (rc != RC_AGAIN || instant_now() < patience || instant_now() >= until)
			return rc;
		session_abandon(*s);
		*s = NULL;
		ensemble_rotate(&z->ensemble, 1);
	}
}

static enum rc
connect_session(struct zk *z, int64_t ttl, instant until, struct fault *f)
{
	return z->node.session ? session_await(z->node.session, until, f)
			       : begin_session(z, ttl, until, f);
}

/* Our place is no more. */
static void
forget_place(struct zk *z)
{
	node_forget(&z->node);
	turn_forget(&z->turn);
}

/*
 * Our place is lost.  A permit that we had, and lost with it, is to be given back before
 * we ask for another.
 */
static void
lose_place(struct zk *z)
{
	struct taken *taken = &z->node.taken;

	if (*taken->lease) {
		z->permit.asked = true;
		snprintf(z->permit.tried, sizeof z->permit.tried, "%s", taken->slot);
	}
	forget_place(z);
}

/* The session is no more, and with it our node, or soon. */
static void
leave_session(struct zk *z)
{
	session_abandon(z->node.session);
	z->node.session = NULL;
	lose_place(z);
}

/* ---- given back ---- */

/*
 * Asks once.  What a job has done is written with it, or anew if something is missing
 * for that.
 */
static enum rc
zk_give_back(struct zk *z, int status, instant until, struct fault *f)
{
	bool remember = z->held && status >= 0 && job_is_wanted(&z->claim->job),
	     refused = true;
	struct memory m = {.n = 0};
	enum rc rc = permit_sweep(&z->permit, until, f);

	while (rc == RC_OK && refused) {
		if (remember)
			jobs_remember(&z->jobs, &z->node, status, &m);
		rc = node_delete(&z->node, m.changes, m.n, &refused, until, f);
		if (rc == RC_OK && refused)
			rc = jobs_prepare(&z->jobs, &z->node, until, f);
	}
	return rc;
}

/*
 * A server that is away is asked again until `until`: whoever waits is to have the lock
 * as soon as it is back.
 */
static enum rc
remove_node(struct zk *z, int status, instant until, struct fault *f)
{
	enum rc rc;

	for (;;) {
		rc = zk_give_back(z, status, until, f);
		if (rc != RC_AGAIN)
			return rc;
		if (instant_now() >= until)
			/* or the next attempt would be with one who says nothing */
			session_poison(z->node.session);
		if (instant_now() >= until)
			return rc;
		if (z->base.host->wait(z->base.host, -1, 0,
			instant_first(until, instant_now() + RETRY)) == WOKE_STOP)
			return RC_STOP;
	}
}

/* ---- acquire ---- */

/*
 * Until when we must be in the queue once we have a session.  A slow server is not
 * made faster by beginning anew: whoever has time waits for a whole ttl.
 */
static instant
join_by(struct zk *z, instant until)
{
	if (!until || !z->patience.persist)
		return instant_after(instant_now(), z->patience.first);
	return instant_first(instant_after(instant_now(), z->claim->ttl),
	    patience_first(&z->patience, until));
}

static enum rc
come(struct zk *z, instant until, struct fault *f)
{
	instant patience = instant_first(
	    patience_first(&z->patience, until), instant_after(instant_now(), ATTEMPT));

	return connect_session(z, z->claim->ttl, patience, f);
}

/* Into the queue, if we are not there, and to its head. */
static enum rc
go_through_queue(struct zk *z, instant until, struct grant *g, struct fault *f)
{
	struct call *list = NULL;
	enum rc rc = RC_OK;

	if (!*z->node.path) /* what is left before a permit stops others */
		rc = permit_sweep(&z->permit, join_by(z, until), f);
	if (rc == RC_OK && !*z->node.path)
		rc = node_join(&z->node, g, &list, join_by(z, until), f);
	else if (rc == RC_OK && !z->turn.watching)
		list = call_list(z->node.session, z->node.dir->path);
	if (rc != RC_OK) {
		call_drop(list);
		return rc;
	}
	rc = turn_await(&z->turn, list, until, g, f);
	if (rc == RC_OK && z->claim->kind == KIND_LIMIT && !*z->node.taken.lease)
		rc = permit_take(&z->permit, until, g, f);
	else if (rc == RC_OK)
		rc = turn_earn(&z->turn, g, f);
	return rc;
}

/* From wherever we are: no session, no node, or all of that. */
static enum rc
try_acquire(struct zk *z, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = come(z, until, f);

	*g = (struct grant){.anchor = -1};
	if (rc == RC_OK && z->dir.layout->single)
		rc = single_take(&z->turn, until, g, f);
	else if (rc == RC_OK)
		rc = go_through_queue(z, until, g, f);
	if (rc == RC_OK && job_is_wanted(&z->claim->job))
		rc = jobs_check(&z->jobs, &z->node, turn_answer_by(&z->turn), f);
	return rc;
}

/*
 * After a failure: makes ready for the next attempt, and waits for its time.  A session
 * that has ended costs the place.
 */
static enum rc
prepare_retry(struct zk *z, enum rc rc, instant until)
{
	struct session *s = z->node.session;

	if (rc != RC_LOST && rc != RC_AGAIN)
		return rc;
	if (rc == RC_LOST && z->turn.placed)
		/* that is an answer: the server is back */
		patience_end_outage(&z->patience);
	if (s && session_look(s).dead)
		leave_session(z);
	else if (rc == RC_LOST)
		lose_place(z);
	else if (s)
		session_poison(s); /* it has had its time */
	if (!z->patience.persist && instant_now() >= z->turn.over)
		return RC_AGAIN;
	if (instant_now() >= z->turn.over)
		z->turn.over = NEVER; /* or no attempt would have any time */
	if (z->turn.placed && z->turn.place.position == 0)
		z->base.host->seen.position = 1; /* all wait for us */
	return patience_retry(
	    &z->patience, z->base.host, RC_AGAIN, z->turn.queued, until);
}

static void
begin_acquire(struct zk *z, const struct claim *claim)
{
	z->claim = claim;
	/* so that not all go to the same server */
	ensemble_rotate(&z->ensemble, (unsigned char)claim->owner[0]);
	z->dir.where = z->where;
	lockdir_name(&z->dir, z->ensemble.chroot, claim);
	z->node = (struct node){.session = z->node.session,
	    .dir = &z->dir,
	    .record = claim->record,
	    .owner = z->dir.layout->single ? claim->owner : NULL};
	z->turn = (struct turn){.node = &z->node,
	    .host = z->base.host,
	    .patience = &z->patience,
	    .claim = claim};
	z->permit = (struct permit){.turn = &z->turn};
	jobs_begin(&z->jobs, claim, &z->dir);
	forget_place(z);
	patience_begin(&z->patience, claim);
}

/* The job has been done: the next one's turn. */
static enum rc
zk_pass_on(struct zk *z)
{
	struct fault unused;

	/* or else the release that follows does it */
	if (remove_node(z, STATUS_NONE, turn_answer_by(&z->turn), &unused) == RC_OK) {
		z->node.asked = false;
		forget_place(z);
	}
	return RC_DONE;
}

static enum rc
zk_acquire(struct store *s, const struct claim *claim, instant until, struct grant *ret,
    struct fault *f)
{
	struct zk *z = zk_of(s);
	struct grant g;
	enum rc rc;

	begin_acquire(z, claim);
	for (;;) {
		rc = try_acquire(z, until, &g, f);
		if (rc == RC_OK)
			break;
		if (rc == RC_DONE)
			return zk_pass_on(z);
		rc = prepare_retry(z, rc, until);
		if (rc != RC_OK)
			return rc;
	}
	z->held = true;
	turn_forget(&z->turn); /* the queue may be long */
	g.token = z->node.token;
	g.slot = z->node.taken.number;
	g.pace = instant_first(g.pace, FIRST_RENEWAL);
	*ret = g;
	return RC_OK;
}

/* ---- renew ---- */

/*
 * A server that has left renewals unanswered for a while: there is time yet to ask the
 * next one.  Where there is but one, a late answer is better than none.
 */
static void
try_another_server(struct zk *z, instant began)
{
	struct credit credit = session_look(z->node.session).credit;
	int64_t patience = credit_pace(&credit) *
	    (strchr(z->ensemble.hosts, ',') ? 3 : 8) / 2;

	z->silent_since = instant_first(z->silent_since, began);
	if (instant_now() < instant_after(z->silent_since, patience))
		return;
	session_poison(z->node.session);
	z->silent_since = NEVER;
}

/*
 * Writes our node, also where others write to it, until nothing is to be heard of its
 * end.
 */
static enum rc
write_through(struct zk *z, instant until, struct grant *g, struct fault *f)
{
	struct node *n = &z->node;
	bool written, alarmed;
	enum rc rc;

	do {
		written = false;
		session_clear_alarm(n->session);
		/* or we would write to another's, which is at that place now */
		rc = n->dir->layout->single ? node_read(n, until, f) : RC_OK;
		if (rc == RC_OK)
			rc = node_written(n, node_write(n), until, g, &written, f);
		alarmed = session_look(n->session).alarmed;
	} while (rc == RC_OK && (!written || alarmed) && instant_now() < until);
	if (rc == RC_OK && !written)
		return fault_set(f, RC_AGAIN,
		    "%s: somebody writes to our node all the time", z->where);
	return rc;
}

/*
 * If our node has gone, it may have been taken by force, and the lock's directory say by
 * whom.  That is asked for before our write, so that nothing waits for it.
 */
static struct call *
ask_who(struct zk *z)
{
	return session_look(z->node.session).alarmed
	    ? call_get(z->node.session, z->dir.path)
	    : NULL;
}

static enum rc
say_who(struct zk *z, struct call *directory, struct fault *f)
{
	struct fault unused;
	int code;
	enum rc rc = RC_LOST;
	char *forcer = NULL;

	if (directory && call_await(directory, instant_now(), &code, &unused) == RC_OK)
		forcer = data_forcer(call_text(directory), z->node.token);
	if (forcer)
		rc = refuse_broken(z->base.host, f, RC_LOST, z->where, forcer);
	free(forcer);
	return rc;
}

static enum rc
zk_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct call *directory = ask_who(z);
	instant began = instant_now();
	enum rc rc;

	session_clear_alarm(z->node.session);
	rc = session_await(z->node.session, until, f);
	if (rc == RC_OK) {
		node_guard(&z->node); /* not at the grant: short commands do without */
		rc = write_through(z, until, g, f);
	}
	if (rc == RC_LOST)
		rc = say_who(z, directory, f);
	call_drop(directory);
	if (rc == RC_OK)
		z->silent_since = NEVER;
	if (rc == RC_OK && z->node.revocation.news) {
		z->node.revocation.news = false;
		return refuse_broken(
		    s->host, f, RC_REVOKED, z->where, z->node.revocation.asker);
	}
	if (rc == RC_OK || rc == RC_STOP || rc == RC_LOST)
		return rc;
	if (session_look(z->node.session).dead)
		return RC_LOST;
	try_another_server(z, began);
	return RC_AGAIN;
}

/* ---- release ---- */

/*
 * Where we must not delete our node, or get nonsense for an answer, it goes with the
 * session alone.
 */
static bool
is_refusal(enum rc rc)
{
	return rc != RC_OK && rc != RC_LOST && rc != RC_AGAIN && rc != RC_STOP;
}

static enum rc
zk_release(struct store *s, int status, instant until, struct fault *f)
{
	struct zk *z = zk_of(s);
	enum rc rc;

	if (!z->node.session || !z->node.asked)
		return RC_OK;
	rc = remove_node(z, status, until, f);
	if (rc == RC_LOST && !z->held)
		rc = RC_OK;
	if (is_refusal(rc))
		/*
		 * to ask again would be to keep the session alive: next time, there is
		 * nothing to give
		 */
		z->node.asked = false;
	if (rc == RC_OK || rc == RC_LOST) {
		z->node.asked = z->held = false;
		forget_place(z);
	}
	return rc;
}

/* ---- looking and steering ---- */

/* A session; the one of an earlier call, if it lives. */
static enum rc
come_to_look(struct zk *z, const char *key, instant until, struct fault *f)
{
	const struct claim nobody = {.owner = key ? key : "", .ttl = LOOK_TTL};
	enum rc rc = RC_OK;

	patience_begin(&z->patience, &nobody);
	while (rc == RC_OK) {
		rc = connect_session(
		    z, LOOK_TTL, patience_attempt(&z->patience, until), f);
		if (rc == RC_OK)
			return rc;
		if (rc == RC_LOST)
			leave_session(z);
		rc = patience_retry(&z->patience, z->base.host,
		    rc == RC_LOST ? RC_AGAIN : rc, false, until);
	}
	return rc;
}

static void
place_key(const struct zk *z, struct lockdir *d, const char *key)
{
	*d = z->dir;
	d->where = z->where;
	lockdir_place(d, z->ensemble.chroot, key ? key : "");
}

static enum rc
zk_each(struct store *s, const struct look *look, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct lockdir d;
	enum rc rc = come_to_look(z, look->key, look->until, f);

	if (rc != RC_OK)
		return rc;
	place_key(z, &d, look->key);
	rc = look->key || (s->caps & ONE_LOCK)
	    ? look_into(z->node.session, &d, look, f)
	    : look_below(z->node.session, z->dir.layout, z->ensemble.chroot, look, f);
	if (rc == RC_LOST)
		rc = RC_AGAIN; /* the session */
	return rc;
}

/*
 * Does it, and again while there is no answer: each of these can be repeated.  Of the
 * session, RC_LOST is no answer.
 */
static enum rc
steer(struct zk *z, const char *key, enum rc (*op)(struct steering *, struct fault *),
    struct steering *how, instant until, struct fault *f)
{
	enum rc rc;

	place_key(z, how->dir, key);
	for (;;) {
		rc = come_to_look(z, key, until, f);
		if (rc != RC_OK)
			return rc;
		how->session = z->node.session;
		how->until = until;
		how->again = how->asked;
		rc = op(how, f);
		if (rc == RC_LOST && session_look(z->node.session).dead)
			rc = RC_AGAIN;
		if (rc != RC_AGAIN || instant_now() >= until)
			return rc;
		if (z->base.host->wait(z->base.host, -1, 0,
			instant_first(until, instant_now() + RETRY)) == WOKE_STOP)
			return RC_STOP;
	}
}

static enum rc
zk_revoke(struct store *s, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	struct lockdir d;
	struct steering how = {.dir = &d, .target = target, .record = record};

	return steer(zk_of(s), target->key, force ? steering_force : steering_mark, &how,
	    until, f);
}

static enum rc
zk_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct lockdir d;
	struct steering how = {.dir = &d, .record = record};

	freeze_name(how.freeze, zk_of(s)->dir.layout, length);
	return steer(zk_of(s), key, steering_freeze, &how, until, f);
}

static enum rc
zk_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct lockdir d;
	struct steering how = {.dir = &d, .record = ""};

	return steer(zk_of(s), key, steering_thaw, &how, until, f);
}

const struct backend zk_backend = {
    .name = "zk",
    .schemes = (const char *const[]){"zk", NULL},
    .settings = settings,
    .url_help = "zk://[user:password@]host[:port],.../chroot",
    .open = zk_open,
    .close = zk_close,
    .identify = zk_identify,
    .lock = &(const struct lock_ops){zk_acquire, zk_renew, zk_release},
    .admin = &(const struct admin_ops){zk_each, zk_revoke, zk_freeze, zk_thaw},
};
