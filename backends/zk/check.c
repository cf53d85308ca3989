/*
 * check.c - tells whether an ensemble is fit for locks, and removes what a probe has left.
 *
 *  1. The session is asked for with the lease of a run: what the server grants is what a run
 *     would get.
 *  2. Each server of the URL is asked for its version and its part in the ensemble (srvr, which
 *     a server may keep to itself); how many there are says /zookeeper/config.
 *  3. A run makes the chroot where it is missing.  What a probe has made of it goes again,
 *     unless somebody has come to use it.
 */
#include "zk.h"

#include "backends/common/checkup.h"
#include "backends/common/resolve.h"
#include "backends/common/endpoint.h"

#include <stdio.h>
#include <string.h>

#define WORD_PATIENCE NS_PER_S

enum { DEPTH = 3 }; /* of what a lock may have made: directory, part, node */

/* ---- the session ---- */

static void
tell_session(struct zk *z, struct checkup *c)
{
	int64_t granted = session_look(z->dir.session).credit.granted;
	bool less = granted < c->ttl;
	const char *login = *z->ensemble.login ? z->ensemble.login
	    : z->dir.acl == ACL_CREATOR        ? "the subject of the client certificate"
					       : "nobody";

	checkup_tell(c, less ? DOUBTFUL : FIT, "lease",
	    less ? "raise maxSessionTimeout of the servers, or ask for a shorter --ttl"
		 : NULL,
	    less
		? "it grants sessions of %.1f s, less than the lease of %.1f s (maxSessionTimeout)"
		: "it grants sessions of %.1f s for the lease of %.1f s",
	    (double)granted / NS_PER_S, (double)c->ttl / NS_PER_S);
	checkup_tell(c, FIT, "user", NULL, "%.*s%s", (int)strcspn(login, ":"), login,
	    z->dir.acl == ACL_OPEN ? ": everybody may use and delete the nodes (acl=open)"
				   : ": nobody else may use the nodes (acl=creator)");
}

/* ---- the servers ---- */

/* What stands in its line behind `name`, up to the first of `end`. */
static void
read_word_line(
    const char *answer, const char *name, const char *end, char *out, size_t size)
{
	const char *at = strstr(answer, name);

	at = at ? at + strlen(name) : "";
	snprintf(out, size, "%.*s", (int)strcspn(at, end), at);
}

/* Does it answer?  It may not want to say more. */
static bool
tell_ensemble_member(struct zk *z, struct checkup *c, const struct endpoint *at)
{
	char answer[1024], version[40], mode[24];
	instant until = instant_first(c->until, instant_now() + WORD_PATIENCE);
	struct addresses a;
	struct asked asked = {z->base.host, &a, z->ensemble.tls, at->host};
	struct fault unused;
	size_t n = 0;
	bool serves;

	if (resolve(z->base.host, at->host, at->port, until, &a, &unused) == RC_OK)
		(void)hosts_ask(
		    &asked, "srvr", 4, true, until, answer, sizeof answer - 1, &n);
	answer[n] = '\0';
	read_word_line(answer, "ookeeper version: ", ",-\n", version, sizeof version);
	read_word_line(answer, "Mode: ", "\n", mode, sizeof mode);
	serves = *answer && !strstr(answer, "not currently serving") &&
	    strcmp(mode, "read-only") != 0;
	if (!*answer)
		checkup_tell(c, DOUBTFUL, "server",
		    "start it again, or take it out of the URL", "%s:%d does not answer",
		    at->host, at->port);
	else if (!serves)
		checkup_tell(c, DOUBTFUL, "server",
		    "see why it has no quorum: its log, its way to the others",
		    "%s:%d serves no requests", at->host, at->port);
	else
		checkup_tell(c, FIT, "server", NULL, "%s:%d answers%s%s%s%s", at->host,
		    at->port, *version ? ": ZooKeeper " : "", version, *mode ? ", " : "",
		    mode);
	return serves;
}

static size_t
count_members(const struct zk *z, instant until)
{
	struct call *config = call_ask(z->dir.session, ASK_GET, "/zookeeper/config");
	struct fault unused;
	size_t n = 0;

	if (call_await(config, until, &unused) == RC_OK && config->code == ZOK)
		for (const char *at = config->text; (at = strstr(at, "server.")); at++)
			n++;
	call_drop(config);
	return n;
}

static void
tell_ensemble(struct zk *z, struct checkup *c)
{
	const char *text = z->ensemble.hosts;
	size_t named = 0, good = 0, members;

	for (size_t n; *text; text += n + (text[n] == ',')) {
		struct endpoint at;

		n = strcspn(text, ",");
		named++;
		if (!endpoint_parse(&at, text, n, 2181))
			good += tell_ensemble_member(z, c, &at);
	}
	members = count_members(z, c->until);
	checkup_tell(c, good < named ? DOUBTFUL : FIT, "quorum",
	    good < named
		? "start those that are away; more than half of an ensemble must answer"
		: NULL,
	    members > 0 ? "%zu of the %zu servers of the URL answer; the ensemble has %zu"
			: "%zu of the %zu servers of the URL answer",
	    good, named, members);
}

/* ---- what a probe leaves ---- */

/* How much of the chroot is there. */
static enum rc
find_root(struct zk *z, instant until, struct fault *f)
{
	size_t n = strlen(z->ensemble.chroot);
	int code = ZNONODE;

	while (n > 0 && code == ZNONODE) {
		enum rc rc = call_finish(
		    call_ask(z->dir.session, ASK_EXISTS,
			path_of("%.*s", (int)n, z->ensemble.chroot).at),
		    until, &code, f);

		if (rc != RC_OK)
			return rc;
		if (code == ZNONODE)
			n = (const char *)memrchr(z->ensemble.chroot, '/', n) -
			    z->ensemble.chroot;
	}
	z->rooted = n;
	return RC_OK;
}

/* The nodes below it first. */
static enum rc
remove_tree(struct zk *z, const char *path, int depth, instant until, struct fault *f)
{
	struct call *list = call_ask(z->dir.session, ASK_LIST, path);
	enum rc rc = call_await(list, until, f);
	int code = ZOK;

	for (size_t i = 0;
	     rc == RC_OK && depth > 1 && list->code == ZOK && i < list->nnames; i++)
		rc = remove_tree(
		    z, path_of("%s/%s", path, list->names[i]).at, depth - 1, until, f);
	call_drop(list);
	if (rc == RC_OK)
		rc = call_finish(call_delete(z->dir.session, path, -1), until, &code, f);
	return code == ZOK || code == ZNONODE ? rc
					      : session_judge(z->dir.session, code, f);
}

enum rc
check_sweep(struct zk *z, const struct lockdir *d, instant until, struct fault *f)
{
	size_t n = strlen(z->ensemble.chroot);
	struct fault unused;
	enum rc rc = remove_tree(z, d->path, DEPTH, until, f);

	for (; rc == RC_OK && n > z->rooted; n--)
		/* one that is in use by now stays */
		if (n == strlen(z->ensemble.chroot) || z->ensemble.chroot[n] == '/')
			(void)call_finish(
			    call_delete(z->dir.session,
				path_of("%.*s", (int)n, z->ensemble.chroot).at, -1),
			    until, NULL, &unused);
	return rc;
}

enum rc
check_tell(struct zk *z, struct checkup *c, struct fault *f)
{
	checkup_tell(c, FIT, "server", NULL, "%s", z->where);
	tell_session(z, c);
	tell_ensemble(z, c);
	return find_root(z, c->until, f);
}
