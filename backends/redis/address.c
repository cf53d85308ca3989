/* address.c - see address.h. */
#include "address.h"

#include "backends/encode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_PORT = 6379, DB_MOST = 65535 };

static enum rc
bad(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE, "the redis URL %s (redis://[user:password@]host[:port][/db] or redis+unix:///path)",
	    what);
}

/* All of `text` (n bytes) as a number up to `most`, or -1. */
static int
number(const char *text, size_t n, int most)
{
	int value = 0;

	if (n == 0 || n > 6)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		value = value * 10 + text[i] - '0';
	}
	return value <= most ? value : -1;
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

static bool
is_host_name(const char *text, size_t n)
{
	size_t label = 0;

	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		label = c == '.' ? 0 : label + 1;
		if (label > 63 || !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
				      c == '-' || c == '_' || c == '.'))
			return false;
	}
	return n > 0 && n < 254;
}

static bool
is_ipv6(const char *text, size_t n)
{
	size_t zone = 0;

	while (zone < n && text[zone] != '%')
		zone++;
	return n > 1 && n < 100 && strspn(text, "0123456789abcdefABCDEF:.") == zone && memchr(text, ':', zone);
}

/* "host", "host:port", "[v6]:port", n bytes. */
static enum rc
parse_host(struct address *a, const char *text, size_t n, struct fault *f)
{
	const char *port = NULL;
	size_t host = n;

	if (n && *text == '[') {
		const char *close = memchr(text, ']', n);

		if (!close || !is_ipv6(text + 1, close - text - 1))
			return bad(f, "has a wrong IPv6 address");
		host = close - text - 1;
		if (close + 1 < text + n)
			port = close[1] == ':' ? close + 2 : text + n;
		memcpy(a->host, text + 1, host);
	} else {
		const char *colon = memchr(text, ':', n);

		if (colon)
			host = colon - text;
		if (colon)
			port = colon + 1;
		if (host == 0)
			return bad(f, "names no host");
		if (!is_host_name(text, host))
			return bad(f, "has a wrong host name");
		memcpy(a->host, text, host);
	}
	a->host[host] = '\0';
	a->port = port ? number(port, text + n - port, 65535) : DEFAULT_PORT;
	return a->port > 0 ? RC_OK : bad(f, "has a wrong port (1 to 65535)");
}

static enum rc
parse_socket(struct address *a, const char *text, struct fault *f)
{
	size_t n = strcspn(text, "?");
	const char *query = text + n;

	if (*query)
		a->db = strncmp(query, "?db=", 4) == 0 ? number(query + 4, strlen(query + 4), DB_MOST) : -1;
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

	*a = (struct address){.host = "127.0.0.1", .port = DEFAULT_PORT};
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
		a->host[0] = '\0';
		return slash == rest ? parse_socket(a, rest, f) : bad(f, "needs a path after redis+unix://");
	}
	if (parse_host(a, rest, slash - rest, f) != RC_OK)
		return RC_USAGE;
	if (*slash && strcmp(slash, "/") != 0) {
		a->db = *slash == '/' ? number(slash + 1, strlen(slash + 1), DB_MOST) : -1;
		if (a->db < 0)
			return bad(f, "has a wrong database (a number after the /)");
	}
	return RC_OK;
}

enum rc
address_read_password(struct address *a, const char *file, struct fault *f)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return fault_set(f, RC_CONFIG, "password-file %s: %s", file, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
	    (st.st_mode & 077)) {
		close(fd);
		return fault_set(f, RC_CONFIG, "password-file %s must be a plain file of yours with mode 0600", file);
	}
	n = read(fd, a->password, sizeof a->password);
	close(fd);
	if (n > 0 && a->password[n - 1] == '\n')
		n--;
	if (n <= 0 || (size_t)n == sizeof a->password || memchr(a->password, '\n', n) || memchr(a->password, '\0', n)) {
		explicit_bzero(a->password, sizeof a->password);
		return fault_set(f, RC_CONFIG, "password-file %s must have one line of 1 to %zu bytes", file,
		    sizeof a->password - 1);
	}
	a->password[n] = '\0';
	return RC_OK;
}

void
address_print(const struct address *a, char *out, size_t size)
{
	if (*a->path)
		snprintf(out, size, "redis %s", a->path);
	else
		snprintf(out, size, strchr(a->host, ':') ? "redis [%s]:%d" : "redis %s:%d", a->host, a->port);
}
