/*
 * ensemble.c - where a ZooKeeper ensemble is, from a URL; turns the names of its servers into
 * addresses, and asks who is there.
 */
#include "ensemble.h"

#include "backends/common/resolve.h"
#include "backends/common/stream.h"
#include "backends/common/url.h"
#include "backends/common/endpoint.h"
#include "backends/common/encode.h"
#include "backends/common/endpoint.h"
#include "backends/common/encode.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE (250 * NS_PER_MS) /* for each question */

enum { DEFAULT_PORT = 2181, HOSTS_MAX = 64, NUMBER_BYTES = 64 };

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
	if (snprintf(out, size, "zk %s%s", e->hosts, e->chroot) >= (int)size)
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

/* All that a name stands for. */
static void
hosts_add(struct hosts *h, const struct addresses *all)
{
	for (size_t i = 0; i < all->n && h->n < HOSTS_MAX; i++) {
		size_t used = strlen(h->list);
		char number[NUMBER_BYTES], port[8];

		if (getnameinfo((const struct sockaddr *)&all->at[i].address,
			all->at[i].size, number, sizeof number, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
		    used + strlen(number) + 8 >= sizeof h->list)
			continue;
		snprintf(h->list + used, sizeof h->list - used, "%s%s:%s",
		    used ? "," : "", number, port);
		h->n++;
	}
}

enum rc
hosts_find(struct hosts *h, struct host *host, const struct ensemble *e,
    const char *where, instant until, struct fault *f)
{
	const char *text = e->hosts;
	size_t used, first;

	*h = (struct hosts){.n = 0};
	for (size_t n; *text; text += n + (text[n] == ',')) {
		struct addresses found;
		struct endpoint at;
		enum rc rc;

		n = strcspn(text, ",");
		if (endpoint_parse(&at, text, n, 1))
			continue;
		rc = resolve(host, at.host, at.port, until, &found, f);
		if (rc == RC_OK)
			hosts_add(h, &found);
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

enum rc
hosts_ask(struct host *host, const struct addresses *a, const char *question,
    size_t length, bool all, instant until, char *out, size_t size, size_t *n)
{
	struct iovec part = {(char *)question, length};
	struct stream s;
	struct fault unused;
	size_t more;
	enum rc rc;

	*n = 0;
	stream_init(&s, host, "");
	rc = stream_connect_to(&s, a, until, &unused);
	if (rc == RC_OK)
		rc = stream_send(&s, &part, 1, until, &unused);
	while (rc == RC_OK && *n < size && (all || *n == 0)) {
		rc = stream_receive(&s, out + *n, size - *n, &more, until, &unused);
		*n += rc == RC_OK ? more : 0;
	}
	stream_close(&s);
	return *n > 0 ? RC_OK : rc == RC_STOP ? RC_STOP : RC_AGAIN;
}

/* RC_OK: it is there.  RC_AGAIN: it says nothing. */
static enum rc
probe(struct host *host, const struct addresses *a, const char *question, size_t length)
{
	char answer[32];
	size_t n;
	enum rc rc = hosts_ask(host, a, question, length, false, instant_now() + PATIENCE,
	    answer, sizeof answer, &n);

	return rc == RC_OK && !is_of_zookeeper(answer, n) ? RC_PROTOCOL : rc;
}

enum rc
hosts_probe(const struct hosts *h, struct host *host)
{
	const char *text = h->list;
	enum rc rc = RC_AGAIN;

	/* each once: the list may name the first of them again */
	for (size_t i = 0, n; i < h->n && rc != RC_OK && rc != RC_STOP;
	     i++, text += n + (text[n] == ',')) {
		struct addresses a;
		struct fault unused;
		char number[NUMBER_BYTES + 8], *colon;

		n = strcspn(text, ",");
		snprintf(number, sizeof number, "%.*s", (int)n, text);
		colon = strrchr(number, ':');
		*colon = '\0';
		if (resolve(host, number, atoi(colon + 1), 0, &a, &unused) != RC_OK)
			continue;
		rc = probe(host, &a, hello, sizeof hello - 1);
		if (rc == RC_AGAIN) /* a Redis is silent */
			rc = probe(host, &a, word, strlen(word));
	}
	return rc == RC_AGAIN ? RC_OK : rc;
}
