/* url.c - cuts a URL into its parts, reads a host and a port, and writes keys as names. */
#include "url.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

/* isalnum() would read a page of the locale's. */
#define LETTERS_AND_DIGITS \
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* ---- its parts ---- */

/* user:password@, if there is an @; returns what stands behind it. */
static const char *
cut_login(struct url *u, const char *text, size_t n)
{
	const char *at = memrchr(text, '@', n), *colon;

	if (!at)
		return text;
	colon = memchr(text, ':', at - text);
	u->user = (struct url_part){text, (colon ? colon : at) - text};
	if (colon)
		u->password = (struct url_part){colon + 1, at - colon - 1};
	return at + 1;
}

/* strcspn(3), but for its table, which is two page faults. */
static size_t
before_any(const char *text, const char *marks)
{
	size_t n = 0;

	while (text[n] && !strchr(marks, text[n]))
		n++;
	return n;
}

const char *
url_cut(struct url *u, const char *text)
{
	size_t scheme = before_any(text, ":/?#"), authority;
	const char *rest = text + scheme, *hosts;

	*u = (struct url){.scheme = {text, scheme}};
	if (strncmp(rest, "://", 3) != 0) {
		u->path = strncmp(rest, ":/", 2) == 0
		    ? (struct url_part){rest + 1, before_any(rest + 1, "?#")}
		    : (struct url_part){NULL, 0};
		return "has no // after its scheme";
	}
	rest += 3;
	authority = before_any(rest, "/?#"); /* a password has its / as %2F */
	hosts = cut_login(u, rest, authority);
	rest += authority;
	u->hosts = (struct url_part){hosts, rest - hosts};
	u->path = (struct url_part){rest, *rest == '/' ? before_any(rest, "?#") : 0};
	rest += u->path.n;
	if (*rest == '?')
		u->query = (struct url_part){rest + 1, strcspn(rest + 1, "#")};
	if (url_hides_login(u) || strchr(rest, '@'))
		return URL_HIDES_LOGIN;
	if (*rest == '#' || (u->query.at && u->query.at[u->query.n] == '#'))
		return "has a '#' in it (%23)";
	return NULL;
}

bool
url_hides_login(const struct url *u)
{
	return u->path.n > 0 && memchr(u->path.at, '@', u->path.n);
}

bool
url_part_is(const struct url_part *p, const char *word)
{
	return p->at && strlen(word) == p->n && memcmp(p->at, word, p->n) == 0;
}

struct url_part
url_part_first(struct url_part *list)
{
	const char *comma = memchr(list->at, ',', list->n);
	struct url_part first = {list->at, comma ? (size_t)(comma - list->at) : list->n};

	*list = comma ? (struct url_part){comma + 1, list->n - first.n - 1}
		      : (struct url_part){NULL, 0};
	return first;
}

/* ---- a host and a port ---- */

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
	char *at = text_put(out, end, before);

	at = text_put(text_put(at, end, v6 ? "[" : ""), end, e->host);
	at = text_put_number(text_put(at, end, v6 ? "]:" : ":"), end, e->port);
	return at < end - 1 ? at - out : (int)size;
}

const char *
url_login(const struct url *u, char *user, size_t user_size, char *password,
    size_t password_size)
{
	return encode_undo(user, user_size, u->user.at, u->user.n) < 0 ||
		encode_undo(password, password_size, u->password.at, u->password.n) < 0
	    ? URL_WRONG_LOGIN
	    : NULL;
}

bool
endpoint_is(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* ---- %XX ---- */

size_t
encode_key(char *out, size_t size, const char *key)
{
	static const char hex[] = "0123456789ABCDEF",
			  itself[] = LETTERS_AND_DIGITS "-_.~:@=";
	bool dots = strcmp(key, ".") == 0 || strcmp(key, "..") == 0;
	size_t n = 0;

	for (; *key; key++) {
		unsigned char c = *key;

		if (n + 4 > size)
			return 0;
		if (!dots && strchr(itself, c)) {
			out[n++] = c;
		} else {
			out[n++] = '%';
			out[n++] = hex[c >> 4];
			out[n++] = hex[c & 15];
		}
	}
	out[n] = '\0';
	return n;
}

int
encode_undo(char *out, size_t size, const char *text, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		int c = (unsigned char)text[i];

		if (c == '%') {
			c = i + 2 < n ? text_hex_byte(text + i + 1) : -1;
			if (c <= 0)
				return -1;
			i += 2;
		}
		if (len + 1 >= size)
			return -1;
		out[len++] = c;
	}
	out[len] = '\0';
	return len;
}

bool
encode_read_key(char key[KEY_BYTES + 1], const char *text, size_t n)
{
	char again[ENCODED_BYTES];

	if (encode_undo(key, KEY_BYTES + 1, text, n) < 1)
		return false;
	for (const char *c = key; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7F)
			return false;
	return encode_key(again, sizeof again, key) == n && memcmp(again, text, n) == 0;
}
