/*
 * zk.c - locks in ZooKeeper, in the layout of Apache Curator or of others (layout.h): opens,
 * looks and steers.  claim.c takes locks and gives them back.
 *
 *  1. A lock is a directory (lockdir.h), but for one layout (single.c).  Whoever wants it makes
 *     an ephemeral sequential child (node.h) whose name says what kind of lock that is; those
 *     that stand first (queue.h) have it.  Services that use the layout's recipe of that kind on the same
 *     path exclude us and are excluded; for one of N permits, see permit.c.
 *  2. An uncontended acquire is two requests sent back to back, create and
 *     list; a release is one, delete.  (A connection costs one more, credit.h.)
 *     How a waiter waits, and takes its turn, is in wait.c.  How far a claim
 *     can have come is in node.h.
 *  3. The lease is the session.  It is renewed by writing our own node; how
 *     long a lease a write earns, and the proof of it, is in credit.h.
 *  4. The session's end is the lock's; a lost node or session is never made
 *     again while the command runs.  A waiter that lost either joins anew, at the end.
 *  5. A server that is away is asked again at moments that are spread (retry.h),
 *     and the session goes on if it is back in time.  A release is asked for until
 *     its answer or the end of its time; where it is refused, the session's end is
 *     the release.
 */
#include "zk.h"

#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/retry.h"
#include "backends/common/tls.h"
#include "backends/common/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* the session of whoever looks or steers, and holds nothing by it */
#define LOOK_TTL (10 * NS_PER_S)

/* for an answer while in the queue, or a third of the lease */
#define ASK_PATIENCE (3 * NS_PER_S)

enum rc
zk_pause(struct zk *z, instant until)
{
	return z->base.host->wait(z->base.host, -1, 0, until) == WOKE_STOP ? RC_STOP
									   : RC_OK;
}

instant
zk_answer_by(const struct zk *z)
{
	int64_t third = z->claim->ttl / 3;

	return instant_after(instant_now(), third > ASK_PATIENCE ? third : ASK_PATIENCE);
}

/* ---- open ---- */

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

	if (!ensemble_is_path(value) || strlen(value) + sizeof JOBS >= sizeof d->path ||
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
	return setting_timeout(value, &zk_of(s)->patience.first, f);
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
		    "-O layout is curator, plain, rw-seq, kazoo, menagerie or recipes");
	choose_layout(zk_of(s), l);
	return RC_OK;
}

static const struct setting_row settings[] = {
    {"layout", "curator|plain|rw-seq|kazoo|menagerie|recipes",
	"whose locks these are (default: curator)", set_layout},
    {"name", "PATH", "the same", set_dir_path},
    {"path", "PATH",
	"the lock's node, as others who use it name it (default: from the key)",
	set_dir_path},
    {"auth-file", "FILE", "user:password, in a file of mode 0600", set_auth_file},
    {"acl", "creator|open",
	"who may use the nodes (default: creator, if there is a user)", set_acl},
    {"cacert", "FILE", "with zks://: the CAs to trust (default: the system's)", tls_set},
    {"cert", "FILE", "with zks://: a client certificate, and those of its CAs", tls_set},
    {"key", "FILE", "its key, in a file of mode 0600", tls_set},
    {"tls-name", "NAME",
	"with zks://: what the server's certificate is for, if not the host's name",
	tls_set},
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
	turn_forget(z);
	session_end(z->dir.session, !z->leaves);
	tls_close(z->ensemble.tls);
	explicit_bzero(&z->ensemble, sizeof z->ensemble);
	free(z);
}

/* Servers take it for a name, too. */
static bool
has_certificate(const struct site *site)
{
	for (size_t i = 0; i < site->nsettings; i++)
		if (strcmp(site->settings[i].name, "cert") == 0)
			return true;
	return false;
}

static enum rc
zk_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct zk *z = calloc(1, sizeof *z);
	char layout[24] = "";
	bool named;
	size_t n;
	enum rc rc;

	if (!z)
		return fault_set(f, RC_SYSTEM, "out of memory");
	z->base = (struct store){&zk_backend, host, z->where, 0};
	choose_layout(z, &layouts[0]);
	z->dir.where = z->where;
	retry_init(&z->patience);
	z->silent_since = NEVER;
	rc = ensemble_parse(&z->ensemble, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&z->base, site, f);
	named = *z->ensemble.login != '\0';
	if (z->dir.acl ==
	    ACL_UNSAID) /* then we alone may use the nodes, if we have a name */
		z->dir.acl = named ? ACL_CREATOR : ACL_OPEN;
	if (rc == RC_OK && z->dir.acl == ACL_CREATOR && !named && !has_certificate(site))
		rc = fault_set(f, RC_USAGE,
		    "-O acl=creator needs a creator: user:password in the URL, or -O auth-file=FILE");
	if (rc == RC_OK)
		rc = tls_open_if(z->ensemble.secure, "zks://", &z->ensemble.tls, site, f);
	if (rc != RC_OK) {
		zk_close(&z->base);
		return rc;
	}
	if (z->dir.layout != &layouts[0])
		snprintf(layout, sizeof layout, " layout=%s", z->dir.layout->name);
	ensemble_print(&z->ensemble, z->where, sizeof z->where - strlen(layout));
	n = strlen(z->where);
	snprintf(z->where + n, sizeof z->where - n, "%s", layout);
	host->secret = ensemble_password(&z->ensemble);
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
	identity_hosts(id, z->ensemble.hosts);
	identity_add(id, "chroot", z->ensemble.chroot);
	identity_add(id, "user", user);
	identity_add(id, "layout", z->dir.layout->name);
	identity_add(id, "path", s->caps & ONE_LOCK ? z->dir.path : NULL);
	return RC_OK;
}

/* ---- looking and steering ---- */

/*
 * A session of `ttl`, the one of an earlier call if it lives, and in it the key's directory.  An
 * election is waited for; where nobody listens, there is none.
 */
static enum rc
connect_to_key(struct zk *z, struct lockdir *d, const char *key, int64_t ttl,
    instant until, struct fault *f)
{
	const struct claim nobody = {.owner = key ? key : "", .ttl = ttl};
	enum rc rc;

	retry_begin(&z->patience, &nobody);
	do {
		rc = claim_connect(z, ttl, retry_attempt(&z->patience, until), f);
		if (rc == RC_LOST) {
			claim_leave_session(z);
			rc = RC_AGAIN;
		} else if (rc == RC_AGAIN && z->dir.session &&
		    session_is_refused(z->dir.session)) {
			break;
		}
	} while (retry_first_again(&z->patience, z->base.host, until, &rc));
	*d = z->dir;
	lockdir_place(d, z->ensemble.chroot, key ? key : "");
	return rc;
}

static enum rc
zk_each(struct store *s, const struct look *look, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct lockdir d;
	const char *chroot = s->caps & ONE_LOCK ? NULL : z->ensemble.chroot;
	enum rc rc = connect_to_key(z, &d, look->key, LOOK_TTL, look_answer_by(look), f);

	if (rc != RC_OK)
		return rc;
	session_limit(d.session, look->patience);
	if (look->jobs)
		rc = look_at_jobs(&d, chroot, look, f);
	else
		rc = look->key || !chroot ? look_into(&d, look, f)
					  : look_below(&d, chroot, look, f);
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
    struct steering how, instant until, struct fault *f)
{
	struct lockdir d;
	enum rc rc;

	how.dir = &d;
	how.until = until;
	for (;;) {
		rc = connect_to_key(z, &d, key, LOOK_TTL, until, f);
		if (rc != RC_OK)
			return rc;
		how.again = how.asked;
		rc = op(&how, f);
		if (rc == RC_LOST && session_look(z->dir.session).dead)
			rc = RC_AGAIN;
		if (rc != RC_AGAIN || instant_now() >= until)
			return rc;
		if (zk_pause(z, instant_first(until, instant_now() + RETRY)) == RC_STOP)
			return RC_STOP;
	}
}

/* Does a node of this name belong to a recipe: Curator's, kazoo's or another one? */
static bool
is_of_recipe(const char *name)
{
	static const char *const marks[] = {
	    "lock-", "__lock__", "__rlock__", "__READ__", "__WRIT__", "-R-", "-W-"};

	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
		if (strstr(name, marks[i]))
			return true;
	return strcmp(name, "locks") == 0 || strcmp(name, "leases") == 0;
}

/* Others call a lock by the path of its node.  What is no path of a node nobody calls so. */
static enum rc
zk_beside(struct store *s, const char *key, instant until, struct fault *advice)
{
	struct zk *z = zk_of(s);
	char path[KEY_BYTES + 2];
	struct call *list;
	struct lockdir d;
	bool named = *key == '/', is = false;
	enum rc rc;

	snprintf(path, sizeof path, "%s%s", named ? "" : "/", key);
	if (s->caps & ONE_LOCK || strstr(path, "//") || strlen(path) < 2 ||
	    path[strlen(path) - 1] == '/')
		return RC_LOST;
	if (!named && until) {
		rc = connect_to_key(z, &d, key, LOOK_TTL, until, advice);
		if (rc != RC_OK)
			return rc;
		if (strcmp(path, d.path) == 0)
			return RC_LOST; /* that is where ours is */
		list = call_ask(d.session, ASK_LIST, path);
		rc = call_await(list, until, advice);
		for (size_t i = 0; rc == RC_OK && i < list->nnames && !is; i++)
			is = is_of_recipe(list->names[i]);
		call_drop(list);
		if (rc != RC_OK)
			return rc;
	}
	return !named && !is
	    ? RC_LOST
	    : fault_set(advice, RC_OK,
		  "the key is a name, and not the node %.200s: -O name=PATH takes the lock that Curator and others have there (dlock-joins(7))",
		  path);
}

static enum rc
zk_revoke(struct store *s, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	struct steering how = {.target = target, .force = force, .record = record};

	return steer(zk_of(s), target->key, steering_revoke, how, until, f);
}

static enum rc
zk_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct steering how = {.record = record};

	freeze_name(how.freeze, zk_of(s)->dir.layout, length);
	return steer(zk_of(s), key, steering_freeze, how, until, f);
}

static enum rc
zk_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct steering how = {.record = ""};

	return steer(zk_of(s), key, steering_thaw, how, until, f);
}

static enum rc
zk_forget(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	struct steering how = {.record = "", .once = once};

	return steer(zk_of(s), key, steering_forget, how, until, f);
}

static enum rc
zk_check(struct store *s, struct checkup *c, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct lockdir d;
	enum rc rc = connect_to_key(z, &d, c->probe, c->ttl, c->until, f);

	if (rc != RC_OK)
		return rc;
	rc = c->sweep ? check_sweep(z, &d, c->until, f) : check_tell(z, c, f);
	return rc == RC_LOST ? RC_AGAIN : rc;
}

const struct backend zk_backend = {
    .name = "zk",
    .schemes = (const char *const[]){"zk", "zks", NULL},
    .user_needs_password = true,
    .settings = settings,
    .url_help = "zk" TLS_SCHEME "://[user:password@]host[:port],.../chroot",
    .open = zk_open,
    .close = zk_close,
    .identify = zk_identify,
    .lock = &(const struct lock_ops){claim_acquire, claim_renew, claim_release},
    .admin = &(const struct admin_ops){zk_each, zk_revoke, zk_freeze, zk_thaw, zk_forget,
	zk_check, zk_beside},
};
