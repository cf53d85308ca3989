/* address.c - where a Redis server is, from a URL. */
#include "address.h"

#include "backends/encode.h"
#include "backends/url.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 6379, DB_MOST = 65535 };

static enum rc
bad_url(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE,
	    "the redis URL %s (redis://[user:password@]host[:port][/db], rediss:// or redis+unix:///path)",
	    what);
}

static enum rc
address_login(struct address *a, const struct url *u, struct fault *f)
{
	if (encode_undo(a->user, sizeof a->user, u->user.at, u->user.n) < 0 ||
	    encode_undo(a->password, sizeof a->password, u->password.at, u->password.n) <
		0)
		return bad_url(
		    f, "has a user or password that is too long, or a wrong %XX in it");
	return RC_OK;
}

static enum rc
address_socket(struct address *a, const struct url *u, struct fault *f)
{
	a->tcp.host[0] = '\0';
	if (u->hosts.n > 0 || u->path.n == 0)
		return bad_url(f, "needs a path after redis+unix://");
	if (u->query.at && strncmp(u->query.at, "db=", 3) == 0)
		a->db = endpoint_number(u->query.at + 3, u->query.n - 3, DB_MOST);
	else if (u->query.at)
		a->db = -1;
	if (a->db < 0)
		return bad_url(f, "has a wrong end (?db=NUMBER is allowed)");
	if (encode_undo(a->path, sizeof a->path, u->path.at, u->path.n) < 0)
		return bad_url(
		    f, "has a wrong socket path (absolute, at most 107 bytes)");
	return RC_OK;
}

static enum rc
address_host(struct address *a, const struct url *u, struct fault *f)
{
	const char *wrong = endpoint_parse(
	    &a->tcp, u->hosts.at, u->hosts.n, DEFAULT_PORT);

	if (wrong)
		return bad_url(f, wrong);
	if (u->path.n > 1)
		a->db = endpoint_number(u->path.at + 1, u->path.n - 1, DB_MOST);
	if (a->db < 0 || u->query.at)
		return bad_url(f, "has a wrong database (a number after the /)");
	return RC_OK;
}

enum rc
address_parse(struct address *a, const char *url, struct fault *f)
{
	const char *wrong;
	struct url u;

	*a = (struct address){.tcp = {.host = "127.0.0.1", .port = DEFAULT_PORT}};
	if (!url)
		return RC_OK;
	wrong = url_cut(&u, url);
	if (wrong)
		return bad_url(f, wrong);
	if (address_login(a, &u, f) != RC_OK)
		return RC_USAGE;
	a->secure = strncmp(u.scheme.at, "rediss", 6) == 0;
	return url_part_is(&u.scheme, "redis+unix") ? address_socket(a, &u, f)
						    : address_host(a, &u, f);
}

void
address_print(const struct address *a, char *out, size_t size)
{
	if (*a->path)
		snprintf(out, size, "redis %s", a->path);
	else
		snprintf(out, size,
		    strchr(a->tcp.host, ':') ? "redis [%s]:%d" : "redis %s:%d",
		    a->tcp.host, a->tcp.port);
}
