/* endpoint.c - reads a host and a port. */
#include "endpoint.h"

#include <string.h>

enum { PORT_MOST = 65535 };

int
endpoint_number(const char *text, size_t n, int most)
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

static bool
is_host_name(const char *text, size_t n)
{
	size_t label = 0;

	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		label = c == '.' ? 0 : label + 1;
		if (label > 63 ||
		    !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			(c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.'))
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
	return n > 1 && n < 100 && strspn(text, "0123456789abcdefABCDEF:.") == zone &&
	    memchr(text, ':', zone);
}

/* What follows the host: nothing, or a colon and the port. */
static const char *
parse_port(struct endpoint *e, const char *text, size_t n, int port)
{
	e->port = n ? endpoint_number(text + 1, n - 1, PORT_MOST) : port;
	return e->port > 0 && (n == 0 || *text == ':') ? NULL
						       : "has a wrong port (1 to 65535)";
}

static const char *
take_host(struct endpoint *e, const char *text, size_t n)
{
	memcpy(e->host, text, n);
	e->host[n] = '\0';
	return NULL;
}

const char *
endpoint_parse(struct endpoint *e, const char *text, size_t n, int port)
{
	const char *end;

	if (n && *text == '[') {
		end = memchr(text, ']', n);
		if (!end || !is_ipv6(text + 1, end - text - 1))
			return "has a wrong IPv6 address";
		take_host(e, text + 1, end - text - 1);
		end++;
	} else {
		end = memchr(text, ':', n);
		end = end ? end : text + n;
		if (end == text)
			return "names no host";
		if (!is_host_name(text, end - text))
			return "has a wrong host name";
		take_host(e, text, end - text);
	}
	return parse_port(e, end, text + n - end, port);
}

const char *
endpoint_plain(
    struct endpoint *e, const char *host, size_t nhost, const char *port, size_t nport)
{
	if (nhost >= sizeof e->host)
		return "names no host";
	take_host(e, host, nhost);
	if (!is_host_name(e->host, nhost) && !is_ipv6(e->host, nhost))
		return "names no host";
	e->port = endpoint_number(port, nport, PORT_MOST);
	return e->port > 0 ? NULL : "has a wrong port (1 to 65535)";
}

bool
endpoint_is(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}
