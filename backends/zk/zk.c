/*
 * zk.c - locks in ZooKeeper, in the layout of Curator's InterProcessMutex.
 *
 *  1. A lock is a directory, <chroot>/<encoded key> or -O path.  Whoever wants
 *     it makes an ephemeral sequential child `_c_<uuid>-lock-<number>`; the one
 *     that stands first (queue.h) has it.  Java services that use Curator on the
 *     same path exclude us and are excluded.
 *  2. An uncontended acquire is two requests sent back to back, create and
 *     list; a release is one, delete.  (A connection costs one more, session.h.)
 *     The token is the node's czxid, which comes with the answer to create.
 *  3. A waiter watches the one node ahead of it, so a release wakes one.  It
 *     then lists anew, for the node may have been a waiter's that gave up, and
 *     in the same breath writes its own node: that earns the lease.
 *  4. What a waiter does besides costs the same however long the queue is: a few
 *     times a session it asks for the directory's counts, which tell how many have
 *     left, and whereby the leader hears of it.  It lists only when it may have come
 *     near the head, and else after a second for each place: all names are sent with
 *     a list, so whoever joins has one for all who stand there.
 *  5. A waiter marks its node.  Those near the head delete the first node if it
 *     stays marked for IDLE_PATIENCE: its owner has died.
 *  6. The lease is the session.  It is renewed by writing our own node, which
 *     the quorum must agree to: a follower that is cut off from its leader goes
 *     on answering pings and reads while the leader gives the lock away.  How
 *     long a lease a write earns, and the proof of it, is in session.h.
 *     Another version than the one we wrote means that somebody else wrote to
 *     our node: it is read before anything is decided.  "__REVOKE__" is Curator's
 *     request to give the lock up.
 *  7. A create whose answer got lost may have happened: we look for our uuid.
 *     What another session of ours has left is deleted, never adopted.
 *  8. The session's end is the lock's; a lost node or session is never made
 *     again while the command runs.  A waiter that lost either joins anew, at the end.
 *  9. A server that is away is asked again at moments that are spread (patience.h),
 *     and the session goes on if it is back in time.  A release is asked for until
 *     its answer or the end of its time; where it is refused, the session's end is
 *     the release.
 */
#include "backends/backend.h"

#include "backends/encode.h"
#include "backends/patience.h"
#include "backends/setting.h"
#include "ensemble.h"
#include "queue.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_PATIENCE (1500 * NS_PER_MS)	/* for one of several hosts */
#define ATTEMPT (5 * NS_PER_S)		/* to have a session, before the next one */
#define ASK_PATIENCE (3 * NS_PER_S)	/* for an answer while in the queue, or a third of the lease */
#define IDLE_PATIENCE (3 * NS_PER_S)	/* for a waiter whose turn has come */
#define IDLE_BEAT NS_PER_S		/* to look whether it has taken it */
#define FIRST_RENEWAL (500 * NS_PER_MS) /* after the grant at most; from then on we hear of our node's end at once */
#define RETRY (100 * NS_PER_MS)		/* between attempts to give back */
#define NEAR_BEAT (2 * NS_PER_S)	/* to look at the queue when there are up to NEAR ahead, */
#define FAR_BEAT (10 * NS_PER_S)	/* or more */
#define SIGHT NS_PER_S			/* times our place: so often we want to know it anew */

enum {
	NEAR = 8,
	DIR_BYTES = 1024 + ENCODED_BYTES + 2,
	NAME_BYTES = 256, /* of a child; ours has 60 */
	NODE_BYTES = DIR_BYTES + NAME_BYTES,
};

struct zk {
	struct store base;
	const struct claim *claim;
	struct ensemble ensemble;
	char where[WHERE_BYTES];
	char dir[DIR_BYTES];
	char prefix[64]; /* of our node's name */
	enum { ACL_UNSAID, ACL_OPEN, ACL_CREATOR } acl; /* as the user has it */
	bool open_acl;
	struct patience patience;

	struct session *session; /* NULL: none yet, or it has ended */
	char node[NODE_BYTES];	 /* ours, with its path; "" if there is none that we know of */
	bool asked;		 /* there may be one that we do not know of */
	uint64_t token;
	int version;	   /* of what we last wrote */
	int64_t born;	   /* when our node was made, by the server's clock (< 0: not known), */
	instant born_here; /* and by ours */
	char data[RECORD_BYTES + 4]; /* of our node: the record, and a mark */
	bool marked;		     /* as a waiter's; the node has it too */
	instant turn_over;	     /* until then we must have earned a lease; NEVER: it is not our turn */
	uint32_t departed;	     /* from the directory, when we saw our place: twice as many as have left, */
	instant listed;		     /* which was then */
	int64_t idle;		     /* the node that does not take its turn: its czxid; 0: none */
	instant idle_since;
	instant silent_since; /* from when on renewals went unanswered; NEVER */
	bool queued; /* we have seen our place */
	bool held, guarded;
	bool release_doubted; /* our node may be gone: we have asked for it, and got no answer */
	bool revoked; /* we were asked to give it up, and have not yet said so */
};

const struct backend zk_backend;

static struct zk *
zk_of(struct store *s)
{
	return (struct zk *)store_of(s, &zk_backend);
}

/* ---- what stands in a node ---- */

/*
 * What a node tells of its owner, by white space behind its record that no other
 * program writes there.
 */
enum mark { AT_ONCE, WAITING, WAITED }; /* has the lock, having found it free; waits; has it, having waited */

static const char *const tails[] = {[AT_ONCE] = "", [WAITING] = "\t \n", [WAITED] = "\t\n"};

static void
set_mark(struct zk *z, enum mark mark)
{
	snprintf(z->data, sizeof z->data, "%s%s", z->claim->record, tails[mark]);
}

static bool
has_mark(const char *data, enum mark mark)
{
	size_t n = strlen(data), tail = strlen(tails[mark]);

	return n > tail + 1 && data[0] == '{' && data[n - tail - 1] == '}' && strcmp(data + n - tail, tails[mark]) == 0;
}

/* ---- open ---- */

/* Who may use the nodes that we make: by default we alone, if we have a name. */
static enum rc
choose_acl(struct zk *z, struct fault *f)
{
	z->open_acl = z->acl == ACL_OPEN || (z->acl == ACL_UNSAID && !*z->ensemble.login);
	return z->open_acl || *z->ensemble.login
	    ? RC_OK
	    : fault_set(f, RC_USAGE,
		  "-O acl=creator needs a creator: user:password in the URL, or -O auth-file=FILE");
}

static enum rc
set_acl(struct store *s, const char *value, struct fault *f)
{
	struct zk *z = zk_of(s);

	z->acl = strcmp(value, "open") == 0 ? ACL_OPEN : strcmp(value, "creator") == 0 ? ACL_CREATOR : ACL_UNSAID;
	return z->acl != ACL_UNSAID ? RC_OK : fault_set(f, RC_USAGE, "-O acl is creator or open");
}

static enum rc
set_path(struct store *s, const char *value, struct fault *f)
{
	struct zk *z = zk_of(s);

	if (!ensemble_is_path(value) || strlen(value) >= sizeof z->dir)
		return fault_set(f, RC_USAGE, "-O path must be absolute (/a/b, without empty parts, '.' or '..', and not "
				 "below /zookeeper)");
	snprintf(z->dir, sizeof z->dir, "%s", value);
	s->caps |= ONE_LOCK;
	return RC_OK;
}

static enum rc
set_auth_file(struct store *s, const char *file, struct fault *f)
{
	struct zk *z = zk_of(s);
	enum rc rc = setting_secret("auth-file", file, z->ensemble.login, sizeof z->ensemble.login, f);

	if (rc == RC_OK && (!strchr(z->ensemble.login, ':') || *z->ensemble.login == ':'))
		rc = fault_set(f, RC_CONFIG, "auth-file %s must have one line user:password", file);
	return rc;
}

static enum rc
set_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_patience(value, &zk_of(s)->patience.first, f);
}

static enum rc
set_tls_files(struct store *s, const char *value, struct fault *f)
{
	(void)f;
	zk_of(s)->ensemble.tls_files = value;
	return RC_OK;
}

static enum rc
set_sasl(struct store *s, const char *value, struct fault *f)
{
	(void)s, (void)value;
	return fault_set(f, RC_CONFIG, "this libzookeeper has no SASL: use user:password (digest)");
}

static const struct setting_row settings[] = {
    {"path", "PATH", "the lock's directory, as Curator's users name it (default: from the key)", set_path},
    {"auth-file", "FILE", "user:password, in a file of mode 0600", set_auth_file},
    {"acl", "creator|open", "who may use the nodes (default: creator, if there is a user)", set_acl},
    {"connect-timeout", "DURATION", "for a session, without --wait (default: 5s)", set_connect_timeout},
    {"tls-files", "FILES", "certificates for zks://, where the library has TLS", set_tls_files},
    {"sasl", NULL, NULL, set_sasl},
    {0},
};

/* Ours are found by the owner, written as the uuid that Curator puts there. */
static void
name_nodes(struct zk *z)
{
	const char *o = z->claim->owner;
	char key[ENCODED_BYTES];

	snprintf(z->prefix, sizeof z->prefix, "_c_%.8s-%.4s-%.4s-%.4s-%.12s-lock-", o, o + 8, o + 12, o + 16, o + 20);
	if (*z->dir)
		return;
	key_encode(key, sizeof key, z->claim->key);
	/* The one name that ZooKeeper keeps to itself. */
	snprintf(z->dir, sizeof z->dir, "%s/%s", z->ensemble.chroot,
	    !*z->ensemble.chroot && strcmp(key, "zookeeper") == 0 ? "%7Aookeeper" : key);
}

static void
zk_close(struct store *s)
{
	struct zk *z = s ? zk_of(s) : NULL;

	if (!z)
		return;
	session_end(z->session);
	explicit_bzero(&z->ensemble, sizeof z->ensemble);
	free(z);
}

static enum rc
zk_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct zk *z = calloc(1, sizeof *z);
	enum rc rc;

	if (!z)
		return fault_set(f, RC_SYSTEM, "out of memory");
	z->base = (struct store){&zk_backend, host, z->where, CAP_FAIR};
	patience_init(&z->patience);
	z->turn_over = z->silent_since = NEVER;
	rc = ensemble_parse(&z->ensemble, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&z->base, site, f);
	if (rc == RC_OK)
		rc = choose_acl(z, f);
	if (rc != RC_OK) {
		zk_close(&z->base);
		return rc;
	}
	ensemble_print(&z->ensemble, z->where, sizeof z->where);
	*ret = &z->base;
	return RC_OK;
}

/* Until when a question of a waiter's may be unanswered: a server on which a crowd has just come is slow. */
static instant
answer_by(struct zk *z)
{
	int64_t third = z->claim->ttl / 3;

	return instant_after(instant_now(), third > ASK_PATIENCE ? third : ASK_PATIENCE);
}

/* ---- directories ---- */

/* Makes one of them; ZNODEEXISTS is as good as ZOK. */
static enum rc
make_one(struct zk *z, const char *path, instant until, int *code, struct fault *f)
{
	bool last = strcmp(path, z->dir) == 0;
	enum rc rc = RC_OK;

	/* The lock's own is to go when nobody uses it any more. */
	for (int mode = last ? ZOO_CONTAINER : ZOO_PERSISTENT;; mode = ZOO_PERSISTENT) {
		struct call *c = session_create(z->session, path, "", mode, z->open_acl);

		rc = call_await(c, until, code, f);
		call_drop(c);
		if (rc != RC_OK || *code != ZUNIMPLEMENTED || mode == ZOO_PERSISTENT)
			return rc;
	}
}

/* Makes the lock's directory and what is missing above it, from below, for we may have no rights up there. */
static enum rc
make_directory(struct zk *z, instant until, struct fault *f)
{
	char path[DIR_BYTES];
	size_t length = strlen(z->dir), end = length;
	int code = ZNONODE;
	enum rc rc = RC_OK;

	while (rc == RC_OK && instant_now() < until) {
		snprintf(path, sizeof path, "%.*s", (int)end, z->dir);
		rc = make_one(z, path, until, &code, f);
		if (rc != RC_OK)
			return rc;
		if (code == ZNOCHILDRENFOREPHEMERALS)
			return fault_set(f, RC_PROTOCOL, "%s: a part of %s is an ephemeral node", z->where, z->dir);
		if (code != ZNONODE && end == length)
			return RC_OK;
		if (code != ZNONODE)
			end += 1 + strcspn(z->dir + end + 1, "/");
		else if (end > 1)
			end = (const char *)memrchr(z->dir, '/', end) - z->dir;
		if (end == 0)
			return fault_set(f, RC_PROTOCOL, "%s has no root", z->where);
	}
	return rc == RC_OK ? fault_set(f, RC_AGAIN, "%s: %s vanishes as fast as it is made", z->where, z->dir) : rc;
}

/* ---- our node ---- */

static void
forget_node(struct zk *z)
{
	z->node[0] = '\0';
	z->version = 0;
	set_mark(z, AT_ONCE);
	z->marked = z->guarded = false;
	z->turn_over = NEVER;
}

/* A server's time in ns; -1 if it makes no sense. */
static int64_t
server_time(int64_t ms)
{
	return ms > 0 && ms < INT64_MAX / NS_PER_MS / 2 ? ms * NS_PER_MS : -1;
}

static void
adopt_node(struct zk *z, const char *path, const struct Stat *node)
{
	snprintf(z->node, sizeof z->node, "%s", path);
	z->token = (uint64_t)node->czxid;
	z->version = node->version;
	z->born = server_time(node->ctime);
	z->born_here = instant_now();
}

static enum rc
delete_node(struct zk *z, const char *path, int version, instant until, int *code, struct fault *f)
{
	struct call *c = session_delete(z->session, path, version);
	enum rc rc = call_await(c, until, code, f);

	call_drop(c);
	return rc;
}

/* A node with our uuid: this session's is adopted, an older one's deleted. */
static enum rc
claim_node(struct zk *z, const char *name, instant until, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *c;
	int code;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", z->dir, name);
	c = session_get(z->session, path);
	rc = call_await(c, until, &code, f);
	if (rc == RC_OK && code == ZOK && call_stat(c)->czxid <= 0)
		rc = fault_set(f, RC_PROTOCOL, "%s gives a wrong answer to get", z->where);
	else if (rc == RC_OK && code == ZOK && call_stat(c)->ephemeralOwner == session_id(z->session) && !*z->node)
		adopt_node(z, path, call_stat(c));
	else if (rc == RC_OK && code == ZOK)
		rc = delete_node(z, path, -1, until, &code, f);
	call_drop(c);
	return rc;
}

/* Did a create whose answer we have not got happen?  Then z->node is set. */
static enum rc
find_node(struct zk *z, instant until, struct fault *f)
{
	struct call *sync, *list;
	const char *const *names;
	size_t n = 0;
	int code = ZOK;
	enum rc rc = session_await(z->session, until, f);

	if (rc != RC_OK)
		return rc;
	sync = session_sync(z->session, z->dir);
	list = session_list(z->session, z->dir);
	rc = call_await(sync, until, &code, f);
	if (rc == RC_OK)
		rc = call_await(list, until, &code, f);
	names = rc == RC_OK ? call_names(list, &n) : NULL;
	for (size_t i = 0; rc == RC_OK && i < n; i++)
		if (strncmp(names[i], z->prefix, strlen(z->prefix)) == 0 && strlen(names[i]) < NAME_BYTES)
			rc = claim_node(z, names[i], until, f);
	call_drop(sync);
	call_drop(list);
	if (rc == RC_OK)
		z->asked = *z->node != '\0';
	return rc;
}

/* ---- acquire ---- */

/* What is left of a lease that a write has earned which was sent at `sent`. */
static void
set_lease(struct zk *z, struct grant *g, instant sent)
{
	g->sent = sent;
	g->lease = session_lease(z->session, sent);
	g->pace = session_pace(z->session);
}

/*
 * A server that takes connections and says nothing would cost the library two
 * thirds of the timeout; where there are others, one of them is tried first then.
 */
static enum rc
begin_session(struct zk *z, instant until, struct fault *f)
{
	bool several = strchr(z->ensemble.hosts, ',') != NULL;
	enum rc rc;

	for (;;) {
		instant patience = several ? instant_first(until, instant_now() + HOST_PATIENCE) : until;

		rc = session_begin(&z->session, z->base.host, z->where, &z->ensemble, z->claim->ttl, until, f);
		if (rc == RC_OK)
			rc = session_await(z->session, patience, f);
		if (rc != RC_AGAIN || instant_now() < patience || instant_now() >= until)
			return rc;
		session_abandon(z->session);
		z->session = NULL;
		ensemble_rotate(&z->ensemble, 1);
	}
}

static enum rc
connect_session(struct zk *z, instant until, struct fault *f)
{
	return z->session ? session_await(z->session, until, f) : begin_session(z, until, f);
}

/* The session is no more, and with it our node, or soon. */
static void
leave_session(struct zk *z)
{
	session_abandon(z->session);
	z->session = NULL;
	forget_node(z);
}

/* Is it what we wanted to be made?  A server could say anything. */
static bool
is_ours(struct zk *z, const struct call *create)
{
	const char *path = call_text(create);
	size_t n = strlen(z->dir);

	return strncmp(path, z->dir, n) == 0 && path[n] == '/' &&
	    strncmp(path + n + 1, z->prefix, strlen(z->prefix)) == 0 && strlen(path) < n + NAME_BYTES &&
	    call_stat(create)->czxid > 0;
}

/* Makes our node; *list is the queue right after that.  RC_OK with *code ZNONODE: there is no directory. */
static enum rc
create_node(struct zk *z, struct grant *g, struct call **list, instant until, int *code, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *create;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", z->dir, z->prefix);
	create = session_create(z->session, path, z->claim->record, ZOO_EPHEMERAL_SEQUENTIAL, z->open_acl);
	*list = session_list(z->session, z->dir);
	z->asked = true;
	rc = call_await(create, until, code, f);
	if (rc == RC_OK && *code == ZNONODE)
		z->asked = false; /* it was not made, for certain */
	if (rc == RC_OK && *code == ZOK && is_ours(z, create) && session_pace(z->session) > 0) {
		adopt_node(z, call_text(create), call_stat(create));
		set_lease(z, g, call_sent(create));
	} else if (rc == RC_OK && *code == ZNOCHILDRENFOREPHEMERALS) {
		rc = fault_set(f, RC_PROTOCOL, "%s: %s is an ephemeral node, no lock", z->where, z->dir);
	} else if (rc == RC_OK && (*code != ZNONODE || session_pace(z->session) <= 0)) {
		rc = fault_set(f, RC_PROTOCOL, "%s gives a wrong answer to create", z->where);
	}
	call_drop(create);
	return rc;
}

/*
 * Joins the queue; *list is what it looked like then.  *g is set if the answer to
 * our own create came, which earned a lease.  A directory that is removed on the
 * way is made again until `until`.
 */
static enum rc
enter(struct zk *z, struct grant *g, struct call **list, instant until, struct fault *f)
{
	int code;
	enum rc rc;

	do {
		call_drop(*list);
		*list = NULL;
		rc = z->asked ? find_node(z, until, f) : RC_OK; /* or there might be two of ours */
		if (rc == RC_OK && *z->node)
			*list = session_list(z->session, z->dir);
		else if (rc == RC_OK)
			rc = create_node(z, g, list, until, &code, f);
		if (rc == RC_OK && !*z->node)
			rc = make_directory(z, until, f);
	} while (rc == RC_OK && !*z->node && instant_now() < until);
	if (rc == RC_OK && !*z->node)
		return fault_set(f, RC_AGAIN, "%s: %s vanishes as fast as it is made", z->where, z->dir);
	return rc;
}

/* Twice the number of children that have left a directory: a change is either a birth or a death. */
static uint32_t
departed(const struct Stat *directory)
{
	return (uint32_t)directory->cversion - (uint32_t)directory->numChildren;
}

/* Our place in a list of the queue. */
static enum rc
find_place(struct zk *z, struct call *list, struct place *ret, instant until, struct fault *f)
{
	const char *const *names;
	size_t n;
	int code;
	enum rc rc = call_await(list, until, &code, f);

	if (rc != RC_OK)
		return rc;
	names = call_names(list, &n);
	queue_look(ret, names, code == ZOK ? n : 0, strrchr(z->node, '/') + 1);
	if (ret->foreign)
		return fault_set(f, RC_PROTOCOL, "%s: %s is in use as a lock of another kind (%.80s)", z->where, z->dir,
		    ret->foreign);
	if (ret->exhausted)
		return fault_set(f, RC_CONFIG,
		    "%s: %s has been used two thousand million times and has no numbers left: delete it when nobody uses it",
		    z->where, z->dir);
	if (!ret->found)
		return fault_set(f, RC_LOST, "%s: our place in the queue was deleted", z->where);
	patience_end_outage(&z->patience);
	z->departed = departed(call_stat(list));
	z->listed = instant_now();
	z->queued = true;
	return RC_OK;
}

/* What is shown of the holder.  If it had to wait its node is older than its hold, and how old that is nobody knows. */
static void
see_holder(struct zk *z, const struct call *first, size_t before)
{
	int64_t born = server_time(call_stat(first)->ctime);
	int64_t held = z->born < 0 || born < 0 ? -1 : z->born + (instant_now() - z->born_here) - born;

	z->base.host->seen.position = before;
	z->base.host->seen.held = has_mark(call_text(first), AT_ONCE) && held >= 0 ? held : -1;
	snprintf(z->base.host->seen.holder, sizeof z->base.host->seen.holder, "%s", call_text(first));
}

/* Asks to be told of the end of the node ahead.  *gone: it has ended already. */
static enum rc
watch_ahead(struct zk *z, const struct place *p, bool *gone, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *ahead;
	int code = ZOK;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", z->dir, p->ahead);
	ahead = session_watch(z->session, path);
	rc = call_await(ahead, answer_by(z), &code, f);
	*gone = code == ZNONODE;
	call_drop(ahead);
	return rc;
}

/* A node of dlock's whose owner waits, beyond doubt: others' are not ours to delete. */
static bool
is_waiter(const struct call *node)
{
	const struct Stat *n = call_stat(node);

	return has_mark(call_text(node), WAITING) && n->dataLength == (int32_t)strlen(call_text(node)) && n->ephemeralOwner != 0;
}

/* Since when we have seen the first node leave its turn unused; NEVER: it does not. */
static instant
idle_since(struct zk *z, const struct call *first)
{
	int64_t id = is_waiter(first) ? call_stat(first)->czxid : 0;

	if (z->idle != id || id == 0)
		z->idle_since = id ? instant_now() : NEVER;
	z->idle = id;
	return z->idle_since;
}

/*
 * Reads the first node, for people.  If it is a waiter's that does not take its
 * turn, it is deleted: its owner has died, and would block us until its session
 * ends.  If it takes its turn at this very moment its node has another version,
 * and stays.  Whoever is near enough to the front does that: the next in line may
 * be dead too.
 */
static enum rc
look_at_first(struct zk *z, const struct place *p, struct fault *f)
{
	instant now = instant_now(), until = answer_by(z);
	char path[NODE_BYTES];
	struct call *first;
	int code;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", z->dir, p->first);
	first = session_get(z->session, path);
	rc = call_await(first, until, &code, f);
	if (rc == RC_OK && code == ZOK) {
		see_holder(z, first, p->before);
		if (now >= instant_after(idle_since(z, first), IDLE_PATIENCE) && strncmp(p->first, "_c_", 3) == 0)
			rc = delete_node(z, path, call_stat(first)->version, until, &code, f);
		if (rc == RC_DENIED || rc == RC_PROTOCOL)
			rc = RC_OK; /* it was worth trying */
	}
	call_drop(first);
	return rc;
}

/*
 * Asks for the directory's counts, whereby the leader hears of us, too.  *moved: some
 * have left, and we may be near the head, or have not known our place for long.  All
 * of them may have stood behind us; then our place is as it was.
 */
static enum rc
count_departed(struct zk *z, const struct place *p, bool *moved, struct fault *f)
{
	struct call *c = session_look(z->session, z->dir);
	int code;
	enum rc rc = call_await(c, answer_by(z), &code, f);
	uint32_t left = rc == RC_OK ? (departed(call_stat(c)) - z->departed) / 2 : 0;

	call_drop(c);
	if (rc == RC_OK && code != ZOK)
		return fault_set(f, RC_LOST, "%s: our place in the queue was deleted", z->where);
	*moved = left > 0 && (p->before <= (size_t)NEAR + left || instant_now() >= z->listed + (int64_t)p->before * SIGHT);
	return rc;
}

/* When to look at the queue though nobody called: the nearer our turn, the sooner. */
static int64_t
beat_of(struct zk *z, const struct place *p)
{
	int64_t life = session_life(z->session);

	if (p->before > NEAR)
		return instant_first(life, FAR_BEAT);
	return instant_first(life, z->idle ? IDLE_BEAT : NEAR_BEAT);
}

/* Sleeps until `beat`, if nothing happens.  RC_BUSY: `until` has come.  RC_LOST: our node is gone. */
static enum rc
doze(struct zk *z, instant beat, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	while (rc == RC_OK && !session_was_called(z->session) && instant_now() < beat) {
		if (instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", z->where);
		if (session_was_alarmed(z->session))
			return fault_set(f, RC_LOST, "%s: our place in the queue was deleted", z->where);
		if (!session_is_connected(z->session))
			return fault_set(f, RC_AGAIN, "%s: connection lost", z->where);
		rc = session_sleep(z->session, instant_first(beat, until), f);
		if (rc == RC_AGAIN)
			rc = RC_OK; /* it was only the time */
	}
	return rc;
}

/* Waits until there is reason to list the queue anew.  RC_BUSY: `until` has come. */
static enum rc
await_call(struct zk *z, const struct place *p, instant until, struct fault *f)
{
	bool moved = false;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !moved && !session_was_called(z->session)) {
		instant beat = instant_now() + beat_of(z, p);

		rc = doze(z, beat, until, f);
		if (rc != RC_OK || session_was_called(z->session))
			break;
		rc = count_departed(z, p, &moved, f);
		if (rc == RC_OK && !moved && p->before <= NEAR)
			rc = look_at_first(z, p, f);
	}
	return rc;
}

/*
 * Returns when there is reason to list the queue anew: the node ahead is gone, or
 * others are.  RC_BUSY: `until` has come, or is 0: no waiting.
 */
static enum rc
await_turn(struct zk *z, const struct place *p, instant until, struct fault *f)
{
	bool gone;
	enum rc rc = watch_ahead(z, p, &gone, f);

	if (rc == RC_OK && !gone)
		rc = look_at_first(z, p, f);
	if (rc != RC_OK || gone)
		return rc;
	if (until == 0)
		return fault_set(f, RC_BUSY, "%s: held", z->where);
	return await_call(z, p, until, f);
}

static struct call *
write_node(struct zk *z)
{
	return session_set(z->session, z->node, z->data, z->version);
}

/* Somebody else has written to our node: reads what, and from which version we go on. */
static enum rc
read_own(struct zk *z, instant until, struct fault *f)
{
	struct call *own = session_get(z->session, z->node);
	int code;
	enum rc rc = call_await(own, until, &code, f);

	if (rc == RC_OK && code != ZOK)
		rc = fault_set(f, RC_LOST, "%s: our node was deleted", z->where);
	if (rc == RC_OK) {
		z->version = call_stat(own)->version;
		z->revoked = z->revoked || strcmp(call_text(own), "__REVOKE__") == 0;
	}
	call_drop(own);
	return rc;
}

/* The answer to a write of our node, which earns the lease; not `written`: now we know what is there instead. */
static enum rc
write_once(struct zk *z, struct call *set, instant until, struct grant *g, bool *written, struct fault *f)
{
	int code;
	enum rc rc = call_await(set, until, &code, f);

	*written = rc == RC_OK && code == ZOK;
	if (*written && (uint64_t)call_stat(set)->czxid != z->token) {
		rc = fault_set(f, RC_LOST, "%s: our node was deleted, and made again by another", z->where);
	} else if (*written) {
		z->version = call_stat(set)->version;
		set_lease(z, g, call_sent(set));
	} else if (rc == RC_OK && code == ZNONODE) {
		rc = fault_set(f, RC_LOST, "%s: our node was deleted", z->where);
	} else if (rc == RC_OK) {
		rc = read_own(z, until, f);
	}
	call_drop(set);
	return rc;
}

/* Who is asked to give up what it does not yet have goes back to the end of the queue. */
static enum rc
yield(struct zk *z, instant until, struct fault *f)
{
	int code;
	enum rc rc = delete_node(z, z->node, -1, until, &code, f);

	z->revoked = false;
	return rc == RC_OK ? fault_set(f, RC_LOST, "%s: our place in the queue was revoked", z->where) : rc;
}

/* Is it the lease that later renewals will keep up?  One that is shorter says nothing about the settings. */
static bool
is_steady(struct zk *z, const struct grant *g)
{
	return g->lease > 0 && g->lease >= session_steady(z->session);
}

/*
 * Our turn has come: earns the lease by writing our node; `set` is the first
 * attempt at that.  While the leader has not heard of us for long enough, that
 * would be too short a lease: then once more.  After the ttl our turn is over.
 */
static enum rc
confirm(struct zk *z, struct call *set, struct grant *g, struct fault *f)
{
	bool written;
	enum rc rc;

	z->turn_over = instant_first(z->turn_over, instant_after(instant_now(), z->claim->ttl));
	for (;; set = write_node(z)) {
		rc = write_once(z, set, z->turn_over, g, &written, f);
		if (rc == RC_OK && z->revoked)
			rc = yield(z, z->turn_over, f);
		if (rc != RC_OK || (written && is_steady(z, g)))
			return rc;
		if (instant_now() >= z->turn_over)
			return fault_set(f, RC_AGAIN, "%s: answers too slowly for this --ttl", z->where);
		if (written &&
		    z->base.host->wait(z->base.host, -1, 0, instant_now() + session_pace(z->session)) == WOKE_STOP)
			return RC_STOP;
	}
}

/* Watches over our own node, through all connections of this session. */
static void
guard_node(struct zk *z)
{
	if (!z->guarded)
		call_drop(session_guard(z->session, z->node));
	z->guarded = true;
}

/* For those behind us, who must know a waiter from a holder. */
static enum rc
mark_as_waiter(struct zk *z, struct fault *f)
{
	struct grant unused;

	guard_node(z);
	set_mark(z, WAITING);
	return write_once(z, write_node(z), answer_by(z), &unused, &z->marked, f);
}

/* The write with which a waiter takes what has become its own. */
static struct call *
claim(struct zk *z)
{
	set_mark(z, WAITED);
	z->marked = false;
	return write_node(z);
}

/* We are in the queue, which `list` shows: waits for our turn. */
static enum rc
wait_in_queue(struct zk *z, struct call *list, instant until, struct grant *g, struct fault *f)
{
	struct call *set = NULL;
	struct place p;
	bool next;
	enum rc rc;

	for (;;) {
		rc = find_place(z, list, &p, answer_by(z), f);
		if (rc != RC_OK || p.before == 0)
			break;
		if (until && !z->marked)
			rc = mark_as_waiter(z, f);
		if (rc == RC_OK)
			rc = await_turn(z, &p, until, f);
		if (rc != RC_OK)
			break;
		*g = (struct grant){.anchor = -1}; /* what create has earned is too long ago */
		next = session_was_called(z->session); /* then most likely nobody is ahead */
		call_drop(list);
		call_drop(set);
		list = session_list(z->session, z->dir);
		set = next ? claim(z) : NULL;
	}
	call_drop(list);
	if (rc == RC_OK && !is_steady(z, g))
		return confirm(z, set ? set : claim(z), g, f);
	call_drop(set);
	return rc;
}

/*
 * Until when we must be in the queue once we have a session.  A slow server is not
 * made faster by beginning anew: whoever has time waits for a whole ttl.
 */
static instant
enter_by(struct zk *z, instant until)
{
	if (!until || !z->patience.persist)
		return instant_after(instant_now(), z->patience.first);
	return instant_first(instant_after(instant_now(), z->claim->ttl), patience_first(&z->patience, until));
}

/* Into the queue, from wherever we are: no session, no node, or all of that. */
static enum rc
come(struct zk *z, struct grant *g, struct call **list, instant until, struct fault *f)
{
	instant patience = instant_first(patience_first(&z->patience, until), instant_after(instant_now(), ATTEMPT));
	enum rc rc = connect_session(z, patience, f);

	*list = NULL;
	if (rc == RC_OK && !*z->node)
		return enter(z, g, list, enter_by(z, until), f);
	if (rc == RC_OK)
		*list = session_list(z->session, z->dir);
	return rc;
}

/* Into the queue, and to its head. */
static enum rc
try_acquire(struct zk *z, instant until, struct grant *g, struct fault *f)
{
	struct call *list = NULL;
	enum rc rc;

	*g = (struct grant){.anchor = -1};
	rc = come(z, g, &list, until, f);
	if (rc == RC_OK)
		return wait_in_queue(z, list, until, g, f);
	call_drop(list);
	return rc;
}

/* After a failure: makes ready for the next attempt, and waits for its time.  A session that has ended costs the place. */
static enum rc
prepare_retry(struct zk *z, enum rc rc, instant until)
{
	if (rc != RC_LOST && rc != RC_AGAIN)
		return rc;
	if (z->session && session_is_dead(z->session))
		leave_session(z);
	else if (rc == RC_LOST)
		forget_node(z);
	else if (z->session)
		session_poison(z->session); /* it has had its time */
	if (!z->patience.persist && instant_now() >= z->turn_over)
		return RC_AGAIN;
	return patience_retry(&z->patience, z->base.host, RC_AGAIN, z->queued, until);
}

static enum rc
zk_acquire(struct store *s, const struct claim *claim, instant until, struct grant *ret, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct grant g;
	enum rc rc;

	z->claim = claim;
	ensemble_rotate(&z->ensemble, (unsigned char)claim->owner[0]); /* so that not all go to the same server */
	name_nodes(z);
	set_mark(z, AT_ONCE);
	patience_begin(&z->patience, claim);
	for (;;) {
		rc = try_acquire(z, until, &g, f);
		if (rc == RC_OK)
			break;
		rc = prepare_retry(z, rc, until);
		if (rc != RC_OK)
			return rc;
	}
	z->held = true;
	g.token = z->token;
	g.pace = instant_first(g.pace, FIRST_RENEWAL);
	*ret = g;
	return RC_OK;
}

/* ---- renew and release ---- */

/*
 * A server that has left renewals unanswered for a while: there is time yet to ask the
 * next one.  Where there is but one, a late answer is better than none.
 */
static void
try_another_server(struct zk *z, instant began)
{
	int64_t patience = session_pace(z->session) * (strchr(z->ensemble.hosts, ',') ? 3 : 8) / 2;

	z->silent_since = instant_first(z->silent_since, began);
	if (instant_now() < instant_after(z->silent_since, patience))
		return;
	session_poison(z->session);
	z->silent_since = NEVER;
}

/* Writes our node, also where others write to it, until nothing is to be heard of its end. */
static enum rc
write_through(struct zk *z, instant until, struct grant *g, struct fault *f)
{
	bool written, alarmed;
	enum rc rc;

	do {
		rc = write_once(z, write_node(z), until, g, &written, f);
		alarmed = session_was_alarmed(z->session);
	} while (rc == RC_OK && (!written || alarmed) && instant_now() < until);
	if (rc == RC_OK && !written)
		return fault_set(f, RC_AGAIN, "%s: somebody writes to our node all the time", z->where);
	return rc;
}

static enum rc
zk_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct zk *z = zk_of(s);
	instant began = instant_now();
	enum rc rc;

	session_clear_alarm(z->session);
	rc = session_await(z->session, until, f);
	if (rc == RC_OK) {
		guard_node(z); /* not at the grant: short commands do without */
		rc = write_through(z, until, g, f);
	}
	if (rc == RC_OK)
		z->silent_since = NEVER;
	if (rc == RC_OK && z->revoked) {
		z->revoked = false;
		return fault_set(f, RC_REVOKED, "%s: __REVOKE__ was written to our node", z->where);
	}
	if (rc == RC_OK || rc == RC_STOP || rc == RC_LOST)
		return rc;
	if (session_is_dead(z->session))
		return RC_LOST;
	try_another_server(z, began);
	return RC_AGAIN;
}

/* Our node, whichever it is, is to go; *doubt: an earlier attempt at that may have succeeded. */
static enum rc
remove_once(struct zk *z, instant until, bool *doubt, struct fault *f)
{
	int code = ZOK;
	enum rc rc = session_await(z->session, until, f);

	if (rc == RC_OK && !*z->node)
		rc = find_node(z, until, f);
	if (rc != RC_OK || !*z->node)
		return rc;
	rc = delete_node(z, z->node, -1, until, &code, f);
	if (rc == RC_OK && code == ZNONODE && !*doubt)
		return fault_set(f, RC_LOST, "%s: our node was deleted", z->where);
	*doubt = *doubt || rc == RC_AGAIN;
	return rc;
}

/* A server that is away is asked again until `until`: whoever waits is to have the lock as soon as it is back. */
static enum rc
remove_node(struct zk *z, instant until, struct fault *f)
{
	enum rc rc;

	for (;;) {
		rc = remove_once(z, until, &z->release_doubted, f);
		if (rc != RC_AGAIN)
			return rc;
		if (instant_now() >= until)
			session_poison(z->session); /* or the next attempt would be with one who says nothing */
		if (instant_now() >= until)
			return rc;
		if (z->base.host->wait(z->base.host, -1, 0, instant_first(until, instant_now() + RETRY)) == WOKE_STOP)
			return RC_STOP;
	}
}

/* Where we must not delete our node, or get nonsense for an answer, it goes with the session alone. */
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

	(void)status;
	if (!z->session || !z->asked)
		return RC_OK;
	rc = remove_node(z, until, f);
	if (rc == RC_LOST && !z->held)
		rc = RC_OK;
	if (is_refusal(rc))
		z->asked = false; /* to ask again would be to keep the session alive: next time, there is nothing to give */
	if (rc == RC_OK || rc == RC_LOST) {
		z->asked = z->held = false;
		forget_node(z);
	}
	return rc;
}

const struct backend zk_backend = {
    .name = "zk",
    .schemes = (const char *const[]){"zk", "zks", NULL},
    .settings = settings,
    .url_help = "zk://[user:password@]host[:port],.../chroot",
    .open = zk_open,
    .close = zk_close,
    .lock = &(const struct lock_ops){zk_acquire, zk_renew, zk_release},
};
