/* location.c - where a memcached server is, from a URL. */
#include "location.h"

#include "backends/common/url.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 11211 };

static enum rc
bad_url(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE,
	    "the memcached URL %s (memcached://[user:password@]host[:port])", what);
}

/* Several may follow after the first, which is looked at alone. */
static enum rc
location_host(struct location *a, const struct url *u, struct fault *f)
{
	struct url_part list = u->hosts, one = url_part_first(&list);
	const char *wrong = endpoint_parse(&a->at, one.at, one.n, DEFAULT_PORT);

	if (list.at)
		return fault_set(f, RC_CONFIG,
		    "the memcached URL names several servers: when one dies, its keys move to another, which gives locks away that are held; name one (memcached://host[:port])");
	if (wrong)
		return bad_url(f, wrong);
	return u->path.n > 1 || u->query.at ? bad_url(f, "has something behind its host")
					    : RC_OK;
}

enum rc
location_parse(struct location *a, const char *url, struct fault *f)
{
	const char *wrong;
	struct url u;

	*a = (struct location){.at = {.host = "127.0.0.1", .port = DEFAULT_PORT}};
	if (!url)
		return RC_OK;
	wrong = url_cut(&u, url);
	if (wrong)
		return bad_url(f, wrong);
	if (encode_undo(a->user, sizeof a->user, u.user.at, u.user.n) < 0 ||
	    encode_undo(a->password, sizeof a->password, u.password.at, u.password.n) < 0)
		return bad_url(
		    f, "has a user or password that is too long, or a wrong %XX in it");
	return location_host(a, &u, f);
}

/* They go into one line with a blank between them; memcached knows no other blanks there. */
static bool
is_word(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text <= ' ')
			return false;
	return true;
}

enum rc
location_check_login(const struct location *a, struct fault *f)
{
	if (!*a->user != !*a->password)
		return fault_set(f, RC_USAGE,
		    "memcached wants a user and a password, or neither (memcached://user@host, and -O password-file=FILE)");
	if (!is_word(a->user) || !is_word(a->password))
		return fault_set(f, RC_USAGE,
		    "a user and a password of memcached have neither blanks nor control characters");
	return RC_OK;
}

void
location_print(const struct location *a, char *out, size_t size)
{
	snprintf(out, size,
	    strchr(a->at.host, ':') ? "memcached [%s]:%d" : "memcached %s:%d", a->at.host,
	    a->at.port);
}
