/*
 * ensemble.c - where a ZooKeeper ensemble is, from a URL; turns the names of its servers into
 * addresses, and asks who is there.
 */
#include "ensemble.h"

#include "backends/common/encode.h"
#include "backends/common/resolve.h"
#include "backends/common/stream.h"
#include "backends/common/tls.h"
#include "backends/common/url.h"

#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE (250 * NS_PER_MS) /* for each question */

/* TLS_PORT is the one of ZooKeeper's own examples. */
enum { DEFAULT_PORT = 2181, TLS_PORT = 2281, NUMBER_BYTES = 64 };

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
	const char *wrong = endpoint_parse(
	    &host, text.at, text.n, e->secure ? TLS_PORT : DEFAULT_PORT);
	int length;

	if (wrong)
		return url_is_wrong(f, wrong);
	length = endpoint_print(
	    e->hosts + used, sizeof e->hosts - used, used ? "," : "", &host);
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
	e->secure = url_part_is(&u.scheme, "zks");
	rc = ensemble_take_login(e, &u, f);
	while (rc == RC_OK && u.hosts.at)
		rc = ensemble_add_host(e, url_part_first(&u.hosts), f);
	if (rc == RC_OK && u.query.at)
		rc = url_is_wrong(f, "has a '?' in it (%3F)");
	if (rc != RC_OK || u.path.n <= 1)
		return rc;
	if (encode_undo(e->chroot, sizeof e->chroot, u.path.at, u.path.n) < 0 ||
	    !ensemble_is_path(e->chroot))
		rc = url_is_wrong(f,
		    "has a wrong chroot (/a/b, without empty parts, '.' or '..', and not below /zookeeper)");
	return rc;
}

void
ensemble_print(const struct ensemble *e, char *out, size_t size)
{
	if (snprintf(out, size, "%s %s%s", e->secure ? "zks" : "zk", e->hosts,
		e->chroot) >= (int)size)
		memcpy(out + size - 4, "...", 4);
}

const char *
ensemble_password(const struct ensemble *e)
{
	const char *colon = strchr(e->login, ':');

	return colon ? colon + 1 : "";
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

/* ---- names to addresses ---- */

/* "10.0.0.1:2181"; false: it cannot be written. */
static bool
print_address(const struct sockaddr *a, socklen_t size, char out[NUMBER_BYTES + 8])
{
	char number[NUMBER_BYTES], port[8];

	if (getnameinfo(a, size, number, sizeof number, port, sizeof port,
		NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return false;
	snprintf(out, NUMBER_BYTES + 8, "%s:%s", number, port);
	return true;
}

/* All that a name stands for; it is the host of that number. */
static void
hosts_add(struct hosts *h, const struct addresses *all, size_t number)
{
	for (size_t i = 0; i < all->n && h->n < sizeof h->name_of; i++) {
		size_t used = strlen(h->list);
		char text[NUMBER_BYTES + 8];

		if (!print_address((const struct sockaddr *)&all->at[i].address,
			all->at[i].size, text) ||
		    used + strlen(text) + 2 >= sizeof h->list)
			continue;
		snprintf(
		    h->list + used, sizeof h->list - used, "%s%s", used ? "," : "", text);
		h->name_of[h->n++] = number < UCHAR_MAX ? number : UCHAR_MAX;
	}
}

/* The n-th of a list, as it stands there. */
static size_t
find_part(const char **list, size_t n)
{
	for (; n > 0 && **list; n--)
		*list += strcspn(*list, ",") + (strchr(*list, ',') != NULL);
	return strcspn(*list, ",");
}

bool
hosts_name(
    const struct hosts *h, const struct sockaddr *a, socklen_t size, struct endpoint *ret)
{
	char text[NUMBER_BYTES + 8];

	if (!print_address(a, size, text))
		return false;
	for (size_t i = 0; i < h->n; i++) {
		const char *at = h->list, *name = h->names;
		size_t n = find_part(&at, i);

		if (n != strlen(text) || strncmp(at, text, n) != 0)
			continue;
		n = find_part(&name, h->name_of[i]);
		return !endpoint_parse(ret, name, n, TLS_PORT);
	}
	return false;
}

enum rc
hosts_find(struct hosts *h, struct host *host, const struct ensemble *e,
    const char *where, instant until, struct fault *f)
{
	const char *text = e->hosts;
	size_t used, first;

	*h = (struct hosts){.n = 0};
	if (e->secure)
		snprintf(h->names, sizeof h->names, "%s", e->hosts);
	for (size_t n, number = 0; *text; text += n + (text[n] == ','), number++) {
		struct addresses found;
		struct endpoint at;
		enum rc rc;

		n = strcspn(text, ",");
		if (endpoint_parse(&at, text, n, 1))
			continue;
		rc = resolve(host, at.host, at.port, until, &found, f);
		if (rc == RC_OK)
			hosts_add(h, &found, number);
		else if (rc != RC_AGAIN) /* of several, one is enough */
			return rc;
	}
	if (h->n == 0)
		return fault_set(f, RC_AGAIN,
		    until && instant_now() >= until
			? "%s: its name was not resolved in time"
			: "%s: unknown host",
		    where);
	used = strlen(h->list);
	first = strcspn(h->list, ",");
	if (h->n % 2 == 0 && used + 1 + first < sizeof h->list) {
		h->list[used] = ',';
		memcpy(h->list + used + 1, h->list, first);
		h->list[used + 1 + first] = '\0';
	}
	return RC_OK;
}

/* ---- is there a ZooKeeper? ---- */

/*
 * A client's first packet: protocol 0, nothing seen, a timeout of 1 s, a session that
 * there is not, its password of 16 bytes.  Servers that speak in lines answer to the
 * ends of such.
 */
static const char hello[] = "\0\0\0\x2d"
			    "\0\0\0\0"
			    "\0\0\0\0\0\0\0\0"
			    "\0\0\3\xe8"
			    "\0\0\0\0\0\0\0\1"
			    "\0\0\0\x10"
			    "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"
			    "\0";
static const char word[] = "srvr\r\n\r\n";

/* How answers of ZooKeeper begin, to the one and the other; they may come in parts. */
static bool
is_of_zookeeper(const char *answer, size_t n)
{
	static const struct {
		const char *text;
		size_t n;
	} beginnings[] = {{"\0\0\0\x25", 4}, {"\0\0\0\x24", 4}, {"Zookeeper ", 10},
	    {"This ZooKeeper ", 15}, {"srvr is not ", 12}};

	for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
		if (memcmp(answer, beginnings[i].text,
			n < beginnings[i].n ? n : beginnings[i].n) == 0)
			return true;
	return false;
}

/* Its stream is open, and the question on its way. */
static enum rc
begin_to_ask(const struct asked *a, struct stream *s, const char *question, size_t length,
    instant until)
{
	struct iovec part = {(char *)question, length};
	struct fault unused;
	enum rc rc = stream_connect_to(s, a->at, until, &unused);

	if (rc == RC_OK && a->tls)
		rc = tls_start(a->tls, s, a->name, &unused);
	return rc == RC_OK ? stream_send(s, &part, 1, until, &unused) : rc;
}

enum rc
hosts_ask(const struct asked *a, const char *question, size_t length, bool all,
    instant until, char *out, size_t size, size_t *n)
{
	struct stream s;
	struct fault unused;
	size_t more;
	enum rc rc;

	*n = 0;
	stream_init(&s, a->host, "");
	rc = begin_to_ask(a, &s, question, length, until);
	if (rc == RC_CONFIG && a->tls && tls_can_retry(a->tls))
		rc = begin_to_ask(a, &s, question, length, until);
	while (rc == RC_OK && *n < size && (all || *n == 0)) {
		rc = stream_receive(&s, out + *n, size - *n, &more, until, &unused);
		*n += rc == RC_OK ? more : 0;
	}
	stream_close(&s);
	return *n > 0 ? RC_OK : rc == RC_STOP ? RC_STOP : RC_AGAIN;
}

/* How a server that speaks TLS says that it has not understood: an alert. */
static bool
is_alert(const char *answer, size_t n)
{
	return n >= 3 && answer[0] == 0x15 && answer[1] == 3 && answer[2] <= 4;
}

/* RC_OK: it is there.  RC_AGAIN: it says nothing. */
static enum rc
probe(const struct asked *a, const char *question, size_t length, bool *speaks_tls)
{
	char answer[32];
	size_t n;
	enum rc rc = hosts_ask(a, question, length, false, instant_now() + PATIENCE,
	    answer, sizeof answer, &n);

	*speaks_tls = *speaks_tls || (rc == RC_OK && is_alert(answer, n));
	return rc == RC_OK && !is_of_zookeeper(answer, n) ? RC_PROTOCOL : rc;
}

enum rc
hosts_probe(const struct hosts *h, struct host *host, struct tls *tls, bool *speaks_tls)
{
	const char *text = h->list;
	enum rc rc = RC_AGAIN;

	*speaks_tls = false;
	/* each once: the list may name the first of them again */
	for (size_t i = 0, n; i < h->n && rc != RC_OK && rc != RC_STOP;
	     i++, text += n + (text[n] == ',')) {
		struct addresses a;
		struct endpoint name;
		struct asked asked = {host, &a, tls, name.host};
		struct fault unused;
		char number[NUMBER_BYTES + 8], *colon;

		n = strcspn(text, ",");
		snprintf(number, sizeof number, "%.*s", (int)n, text);
		colon = strrchr(number, ':');
		*colon = '\0';
		if (resolve(host, number, atoi(colon + 1), 0, &a, &unused) != RC_OK ||
		    (tls &&
			!hosts_name(
			    h, (struct sockaddr *)&a.at->address, a.at->size, &name)))
			continue;
		rc = probe(&asked, hello, sizeof hello - 1, speaks_tls);
		if (rc == RC_AGAIN) /* a Redis is silent */
			rc = probe(&asked, word, strlen(word), speaks_tls);
	}
	return rc;
}
