/* probe.c - asks an address whether there is a ZooKeeper. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE (250 * NS_PER_MS) /* for each question */

bool
probe_address(struct socket_address *ret, const char *number, int port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	char service[8];

	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(number, service, &hints, &found) != 0)
		return false;
	memcpy(&ret->storage, found->ai_addr, found->ai_addrlen);
	ret->size = found->ai_addrlen;
	freeaddrinfo(found);
	return true;
}

/*
 * A client's first packet: protocol 0, nothing seen, a timeout of 1 s, a session that
 * there is not, its password of 16 bytes.  Servers that speak in lines answer to the
 * ends of such.
 */
static const char hello[] = "\0\0\0\x2d" "\0\0\0\0" "\0\0\0\0\0\0\0\0" "\0\0\3\xe8" "\0\0\0\0\0\0\0\1" "\0\0\0\x10"
			    "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n" "\0";
static const char word[] = "srvr\r\n\r\n";

/* How answers of ZooKeeper begin, to the one and the other; they may come in parts. */
static bool
is_of_zookeeper(const char *answer, size_t n)
{
	static const struct {
		const char *text;
		size_t n;
	} beginnings[] = {{"\0\0\0\x25", 4}, {"\0\0\0\x24", 4}, {"Zookeeper ", 10}, {"This ZooKeeper ", 15}, {"srvr is not ", 12}};

	for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
		if (memcmp(answer, beginnings[i].text, n < beginnings[i].n ? n : beginnings[i].n) == 0)
			return true;
	return false;
}

static enum probed
probe_read(int fd)
{
	char answer[32];
	ssize_t n = recv(fd, answer, sizeof answer, 0);

	if (n <= 0)
		return PROBE_UNKNOWN;
	return is_of_zookeeper(answer, n) ? PROBE_ZOOKEEPER : PROBE_OTHER;
}

static enum probed
probe_put(int fd, struct host *host, const struct socket_address *a, const char *question, size_t n)
{
	instant until = instant_now() + PATIENCE;
	enum woke woke = WOKE_READY;

	if (connect(fd, (const struct sockaddr *)&a->storage, a->size) != 0) {
		if (errno != EINPROGRESS)
			return PROBE_UNKNOWN;
		woke = host->wait(host, fd, POLLOUT, until);
	}
	if (woke == WOKE_READY && send(fd, question, n, MSG_NOSIGNAL) > 0)
		woke = host->wait(host, fd, POLLIN, until);
	if (woke == WOKE_STOP)
		return PROBE_STOP;
	return woke == WOKE_READY ? probe_read(fd) : PROBE_UNKNOWN;
}

static enum probed
probe_ask(struct host *host, const struct socket_address *a, const char *question, size_t n)
{
	int fd = socket(a->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	enum probed answer;

	if (fd < 0)
		return PROBE_UNKNOWN;
	answer = probe_put(fd, host, a, question, n);
	close(fd);
	return answer;
}

enum probed
probe(struct host *host, const struct socket_address *a)
{
	enum probed answer = probe_ask(host, a, hello, sizeof hello - 1);

	return answer == PROBE_UNKNOWN ? probe_ask(host, a, word, strlen(word)) : answer;
}
