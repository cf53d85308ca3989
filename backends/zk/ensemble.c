/* ensemble.c - where a ZooKeeper ensemble is, from a URL. */
#include "ensemble.h"

#include "backends/common/url.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 2181 };

static enum rc
url_is_wrong(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE,
	    "the zk URL %s (zk://[user:password@]host[:port],.../chroot)", what);
}

static enum rc
ensemble_take_login(struct ensemble *e, const struct url *u, struct fault *f)
{
	int user, password;

	if (!u->user.at)
		return RC_OK;
	if (u->user.n == 0 || !u->password.at)
		return url_is_wrong(f, "needs user:password before its @");
	user = encode_undo(e->login, sizeof e->login - 1, u->user.at, u->user.n);
	if (user < 0 || memchr(e->login, ':', user))
		return url_is_wrong(
		    f, "has a user that is too long, has a ':' or a wrong %XX in it");
	e->login[user] = ':';
	password = encode_undo(e->login + user + 1, sizeof e->login - user - 1,
	    u->password.at, u->password.n);
	return password < 0
	    ? url_is_wrong(f, "has a password that is too long, or a wrong %XX in it")
	    : RC_OK;
}

static enum rc
ensemble_add_host(struct ensemble *e, struct url_part text, struct fault *f)
{
	size_t used = strlen(e->hosts);
	struct endpoint host;
	const char *wrong = endpoint_parse(&host, text.at, text.n, DEFAULT_PORT);
	int length;

	if (wrong)
		return url_is_wrong(f, wrong);
	length = snprintf(e->hosts + used, sizeof e->hosts - used,
	    strchr(host.host, ':') ? "%s[%s]:%d" : "%s%s:%d", used ? "," : "", host.host,
	    host.port);
	return (size_t)length < sizeof e->hosts - used
	    ? RC_OK
	    : url_is_wrong(f, "names too many hosts");
}

bool
ensemble_is_path(const char *path)
{
	if (strcmp(path, "/zookeeper") == 0 || strncmp(path, "/zookeeper/", 11) == 0)
		return false;
	do {
		size_t n;

		if (*path++ != '/')
			return false;
		n = strcspn(path, "/");
		if (n == 0 || (n <= 2 && strncmp(path, "..", n) == 0))
			return false;
		for (; n > 0; n--, path++)
			if ((unsigned char)*path < 0x20 || *path == 0x7f)
				return false;
	} while (*path);
	return true;
}

static enum rc
ensemble_take_chroot(struct ensemble *e, const struct url *u, struct fault *f)
{
	if (u->query.at)
		return url_is_wrong(f, "has a '?' in it (%3F)");
	if (u->path.n <= 1)
		return RC_OK;
	if (encode_undo(e->chroot, sizeof e->chroot, u->path.at, u->path.n) < 0 ||
	    !ensemble_is_path(e->chroot))
		return url_is_wrong(f,
		    "has a wrong chroot (/a/b, without empty parts, '.' or '..', and not below /zookeeper)");
	return RC_OK;
}

enum rc
ensemble_parse(struct ensemble *e, const char *url, struct fault *f)
{
	const char *wrong;
	struct url u;
	enum rc rc;

	memset(e, 0, sizeof *e);
	wrong = url_cut(&u, url ? url : "zk://127.0.0.1");
	if (wrong)
		return url_is_wrong(f, wrong);
	rc = ensemble_take_login(e, &u, f);
	while (rc == RC_OK && u.hosts.at)
		rc = ensemble_add_host(e, url_part_first(&u.hosts), f);
	return rc == RC_OK ? ensemble_take_chroot(e, &u, f) : rc;
}

void
ensemble_print(const struct ensemble *e, char *out, size_t size)
{
	if (snprintf(out, size, "zk %s%s", e->hosts, e->chroot) >= (int)size)
		memcpy(out + size - 4, "...", 4);
}

void
ensemble_rotate(struct ensemble *e, unsigned n)
{
	char first[sizeof e->hosts];
	const char *comma;

	for (; n > 0 && (comma = strchr(e->hosts, ',')); n--) {
		size_t length = comma - e->hosts, rest = strlen(comma + 1);

		memcpy(first, e->hosts, length);
		memmove(e->hosts, comma + 1, rest);
		e->hosts[rest] = ',';
		memcpy(e->hosts + rest + 1, first, length);
	}
}
