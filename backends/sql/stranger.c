/* stranger.c - asks a server that says nothing whether it is one of another kind. */
#include "stranger.h"

#include "sql.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE NS_PER_S /* for the answer to one line */
#define ASKED_MOST 3      /* times by this process: see stranger_ask() */

/* How each begins what it says to a line that is not for it. */
static const struct {
	const char *begins, *name;
} strangers[] = {
    {"-ERR", "Redis"},
    {"-NOAUTH", "Redis"},
    {"-NOPERM", "Redis"},
    {"-DENIED", "Redis"},
    {"-LOADING", "Redis"},
    {"ERROR\r\n", "memcached"},
    {"CLIENT_ERROR", "memcached"},
    {"Zookeeper version", "ZooKeeper"},
    {"srvr is not executed", "ZooKeeper"},
    {"This ZooKeeper instance", "ZooKeeper"},
    {"HTTP/", "a server of HTTP (etcd?)"},
};

/* A socket to where `fd` is connected; -1: there is none. */
static int
connect_again(const struct task *t, int fd, instant until)
{
	struct sockaddr_storage to = {.ss_family = AF_UNSPEC};
	socklen_t size = sizeof to;
	int other;

	if (getpeername(fd, (struct sockaddr *)&to, &size) != 0)
		return -1;
	other = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (other >= 0 && connect(other, (struct sockaddr *)&to, size) != 0 &&
	    (errno != EINPROGRESS || !sql_login_wait(t, other, POLLOUT, fd, until))) {
		close(other);
		other = -1;
	}
	return other;
}

/* What it is by its answer to this; NULL: nothing that is known. */
static const char *
ask(const struct task *t, int fd, const char *line, size_t n, instant end)
{
	instant until = instant_first(end, instant_now() + PATIENCE);
	bool speaks = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0;
	int other = speaks ? -1 : connect_again(t, fd, until);
	const char *name = NULL;
	char said[64] = "";

	if (other < 0)
		return NULL;
	if (send(other, line, n, MSG_NOSIGNAL) > 0 &&
	    sql_login_wait(t, other, POLLIN, fd, until))
		(void)!recv(other, said, sizeof said - 1, 0);
	if (strcmp(said, "S") == 0 || strcmp(said, "N") == 0)
		name = "PostgreSQL";
	for (size_t i = 0; i < sizeof strangers / sizeof *strangers && !name; i++)
		if (strncmp(said, strangers[i].begins, strlen(strangers[i].begins)) == 0)
			name = strangers[i].name;
	close(other);
	return name;
}

const char *
stranger_ask(const struct task *t, int fd, const char *ours, instant end)
{
	/* the first is a question to ZooKeeper, and to Redis and memcached a line without sense */
	static const char srvr[] = "srvr\r\n", get[] = "GET / HTTP/1.0\r\n\r\n",
			  encrypt[] = "\0\0\0\x08\x04\xd2\x16\x2f"; /* PostgreSQL's */
	static atomic_uint asked;
	const char *name = NULL;

	if (atomic_fetch_add(&asked, 1) >= ASKED_MOST)
		return NULL;
	name = ask(t, fd, srvr, sizeof srvr - 1, end);
	name = name ? name : ask(t, fd, get, sizeof get - 1, end);
	name = name ? name : ask(t, fd, encrypt, sizeof encrypt - 1, end);
	return name && strcmp(name, ours) != 0 ? name : NULL;
}
