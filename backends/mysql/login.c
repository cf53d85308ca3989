/* login.c - reads a login from a URL, and checks it. */
#include "login.h"

#include "backends/common/url.h"
#include "backends/common/endpoint.h"
#include "backends/common/encode.h"
#include "backends/common/endpoint.h"
#include "backends/common/encode.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 3306, NO_PORT = 65536 };

static enum rc
refuse_url(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE,
	    "the mysql URL %s (mysql://[user[:password]@]host[:port][/database])", what);
}

/* Undoes %XX; false: wrong, too long, or control characters. */
static bool
take_part(char *out, size_t size, const struct url_part *p)
{
	if (p->n > 0 && encode_undo(out, size, p->at, p->n) < 0)
		return false;
	for (const char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			return false;
	return true;
}

static enum rc
login_host(struct login *a, const struct url *u, struct fault *f)
{
	struct endpoint e;
	const char *wrong;

	if (u->hosts.n == 0)
		return RC_OK;
	if (memchr(u->hosts.at, ',', u->hosts.n))
		return refuse_url(f, "names more than one host");
	wrong = endpoint_parse(&e, u->hosts.at, u->hosts.n, NO_PORT);
	if (wrong)
		return refuse_url(f, wrong);
	snprintf(a->host, sizeof a->host, "%s", e.host);
	a->port = e.port == NO_PORT ? 0 : e.port;
	return RC_OK;
}

enum rc
login_parse(struct login *a, const char *url, struct fault *f)
{
	const char *wrong;
	struct url_part name = {NULL, 0};
	struct url u;
	enum rc rc;

	if (!url)
		return RC_OK;
	wrong = url_cut(&u, url);
	if (wrong)
		return refuse_url(f, wrong);
	a->has_password = a->has_password || u.password.at;
	if (!take_part(a->user, sizeof a->user, &u.user) ||
	    !take_part(a->password, sizeof a->password, &u.password))
		return refuse_url(f, URL_WRONG_LOGIN);
	rc = login_host(a, &u, f);
	if (rc != RC_OK)
		return rc;
	if (u.query.at)
		return refuse_url(f, "has a query: use -O for settings");
	if (u.path.n > 1)
		name = (struct url_part){u.path.at + 1, u.path.n - 1};
	if (!take_part(a->database, sizeof a->database, &name) ||
	    strchr(a->database, '/'))
		return refuse_url(
		    f, "has a database's name that is wrong or longer than 64 bytes");
	return RC_OK;
}

enum rc
login_check(struct login *a, struct fault *f)
{
	bool is_local = !*a->host || (strcmp(a->host, "localhost") == 0 && !a->port);

	if (a->socket && !is_local)
		return fault_set(f, RC_USAGE,
		    "socket= is a server on this machine, and the URL names a host: leave one of them out");
	if (!a->tls.cert != !a->tls.key)
		return fault_set(f, RC_USAGE, "cert= and key= belong together");
	if (a->tls.wish == TLS_OFF && (a->tls.cacert || a->tls.cert))
		return fault_set(
		    f, RC_USAGE, "tls=off, and cacert= or cert=, contradict each other");
	if (a->tls.wish == TLS_UNSAID && (a->tls.cacert || a->tls.cert))
		a->tls.wish = TLS_VERIFY;
	return RC_OK;
}

void
login_print(const struct login *a, char *out, size_t size)
{
	bool is_v6 = strchr(a->host, ':');
	const char *slash = *a->database ? "/" : "";

	if (a->socket)
		snprintf(out, size, "mysql %.200s%s%s", a->socket, *slash ? " " : "",
		    a->database);
	else if (a->port || (*a->host && strcmp(a->host, "localhost") != 0))
		snprintf(out, size, "mysql %s%.200s%s:%d%s%s", is_v6 ? "[" : "", a->host,
		    is_v6 ? "]" : "", a->port ? a->port : DEFAULT_PORT, slash,
		    a->database);
	else
		snprintf(out, size, "mysql %s%s%s", *a->host ? a->host : "local", slash,
		    a->database);
}
