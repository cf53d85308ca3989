/* address.c - see address.h. */
#include "address.h"

#include "backends/encode.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 6379, DB_MOST = 65535 };

static enum rc
bad(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE, "the redis URL %s (redis://[user:password@]host[:port][/db] or redis+unix:///path)",
	    what);
}

/* "user:password", "user" or ":password", n bytes. */
static enum rc
parse_login(struct address *a, const char *text, size_t n, struct fault *f)
{
	const char *colon = memchr(text, ':', n);
	size_t user = colon ? (size_t)(colon - text) : n;

	if (percent_decode(a->user, sizeof a->user, text, user) < 0 ||
	    (colon && percent_decode(a->password, sizeof a->password, colon + 1, n - user - 1) < 0))
		return bad(f, "has a user or password that is too long, or a wrong %XX in it");
	return RC_OK;
}

/* "host", "host:port", "[v6]:port", n bytes. */
static enum rc
parse_host(struct address *a, const char *text, size_t n, struct fault *f)
{
	const char *wrong = endpoint_parse(&a->tcp, text, n, DEFAULT_PORT);

	return wrong ? bad(f, wrong) : RC_OK;
}

static enum rc
parse_socket(struct address *a, const char *text, struct fault *f)
{
	size_t n = strcspn(text, "?");
	const char *query = text + n;

	if (*query)
		a->db = strncmp(query, "?db=", 4) == 0 ? endpoint_number(query + 4, strlen(query + 4), DB_MOST) : -1;
	if (a->db < 0)
		return bad(f, "has a wrong end (?db=NUMBER is allowed)");
	if (*text != '/' || percent_decode(a->path, sizeof a->path, text, n) < 0)
		return bad(f, "has a wrong socket path (absolute, at most 107 bytes)");
	return RC_OK;
}

enum rc
address_parse(struct address *a, const char *url, struct fault *f)
{
	bool unix_socket = url && strncmp(url, "redis+unix:", 11) == 0;
	const char *rest, *at, *slash;
	size_t n;

	*a = (struct address){.tcp = {.host = "127.0.0.1", .port = DEFAULT_PORT}};
	if (!url)
		return RC_OK;
	rest = strstr(url, "://");
	if (!rest || rest != url + strcspn(url, ":"))
		return bad(f, "has no // after its scheme");
	rest += 3;
	n = strcspn(rest, "/?#"); /* the authority; a password has its / as %2F */
	at = memrchr(rest, '@', n);
	if (at && parse_login(a, rest, at - rest, f) != RC_OK)
		return RC_USAGE;
	slash = rest + n;
	if (at)
		rest = at + 1;
	if (unix_socket) {
		a->tcp.host[0] = '\0';
		return slash == rest ? parse_socket(a, rest, f) : bad(f, "needs a path after redis+unix://");
	}
	if (parse_host(a, rest, slash - rest, f) != RC_OK)
		return RC_USAGE;
	if (*slash && strcmp(slash, "/") != 0) {
		a->db = *slash == '/' ? endpoint_number(slash + 1, strlen(slash + 1), DB_MOST) : -1;
		if (a->db < 0)
			return bad(f, "has a wrong database (a number after the /)");
	}
	return RC_OK;
}

void
address_print(const struct address *a, char *out, size_t size)
{
	if (*a->path)
		snprintf(out, size, "redis %s", a->path);
	else
		snprintf(out, size, strchr(a->tcp.host, ':') ? "redis [%s]:%d" : "redis %s:%d", a->tcp.host, a->tcp.port);
}
