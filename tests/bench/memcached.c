/*
 * memcached.c - the least that a command under a lock in memcached costs: connect, add an
 * item, run the command, delete the item.
 *
 *	bench_memcached PORT KEY COMMAND
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void
ask(int fd, const char *text, size_t n)
{
	char answer[256];
	ssize_t got;

	if (write(fd, text, n) != (ssize_t)n ||
	    (got = read(fd, answer, sizeof answer)) < 2)
		err(1, "memcached");
	if (memcmp(answer, "HD", 2) != 0)
		errx(1, "memcached says '%.*s'", (int)got, answer);
}

int
main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, status;
	char text[256];
	pid_t pid;

	if (argc != 4)
		errx(64, "usage: bench_memcached PORT KEY COMMAND");
	a.sin_port = htons(atoi(argv[1]));
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
		err(1, "connect");
	ask(fd, text, snprintf(text, sizeof text, "ms %s 2 T31 ME\r\nme\r\n", argv[2]));
	if (posix_spawnp(&pid, argv[3], NULL, NULL, argv + 3, environ) != 0 ||
	    waitpid(pid, &status, 0) != pid)
		err(1, "%s", argv[3]);
	ask(fd, text, snprintf(text, sizeof text, "md %s\r\n", argv[2]));
	return 0;
}
