/* endpoint.c - reads and writes a host and a port. */
#include "endpoint.h"

#include "append.h"
#include "digits.h"

#include <string.h>

enum { PORT_MOST = 65535 };

static const char wrong_port[] = "has a wrong port (1 to 65535)";

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
		label = text[i] == '.' ? 0 : label + 1;
		if (label > 63 || !text[i] || !strchr(LETTERS_AND_DIGITS "-_.", text[i]))
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

const char *
endpoint_parse(struct endpoint *e, const char *text, size_t n, int port)
{
	bool bracket = n && *text == '[';
	const char *host = text + bracket, *end = memchr(text, bracket ? ']' : ':', n),
		   *rest, *stop = text + n;

	if (bracket && (!end || !is_ipv6(host, end - host)))
		return "has a wrong IPv6 address";
	end = end ? end : stop;
	if (end == host)
		return "names no host";
	if (!bracket && !is_host_name(host, end - host))
		return "has a wrong host name";
	memcpy(e->host, host, end - host);
	e->host[end - host] = '\0';
	rest = end + bracket;
	if (rest == stop)
		e->port = port;
	else
		e->port = *rest == ':'
		    ? endpoint_number(rest + 1, stop - rest - 1, PORT_MOST)
		    : -1;
	return e->port > 0 ? NULL : wrong_port;
}

const char *
endpoint_plain(
    struct endpoint *e, const char *host, size_t nhost, const char *port, size_t nport)
{
	if (nhost >= sizeof e->host)
		return "names no host";
	memcpy(e->host, host, nhost);
	e->host[nhost] = '\0';
	if (!is_host_name(e->host, nhost) && !is_ipv6(e->host, nhost))
		return "names no host";
	e->port = endpoint_number(port, nport, PORT_MOST);
	return e->port > 0 ? NULL : wrong_port;
}

int
endpoint_print(char *out, size_t size, const char *before, const struct endpoint *e)
{
	bool v6 = strchr(e->host, ':');
	const char *end = out + size;
	char *at = append_text(out, end, before);

	at = append_text(append_text(at, end, v6 ? "[" : ""), end, e->host);
	at = append_number(append_text(at, end, v6 ? "]:" : ":"), end, e->port);
	return at < end - 1 ? at - out : (int)size;
}

bool
endpoint_is(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}
