/*
 * etcd.c - the least that a command under a lock in etcd costs by the JSON gateway: connect, grant
 * a lease and put a key with it, run the command, delete the key and revoke the lease; two round
 * trips.
 *
 *	bench_etcd PORT KEY COMMAND
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

/* Two requests in one packet; reads until both answers have come. */
static void
ask(int fd, const char *path1, const char *body1, const char *path2, const char *body2)
{
	char text[4096];
	int n = snprintf(text, sizeof text,
	    "POST /v3/%s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s"
	    "POST /v3/%s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
	    path1, strlen(body1), body1, path2, strlen(body2), body2);
	size_t used = 0;
	int answers = 0;

	if (write(fd, text, n) != n)
		err(1, "etcd");
	while (answers < 2) {
		ssize_t got = read(fd, text + used, sizeof text - 1 - used);

		if (got <= 0)
			err(1, "etcd");
		used += (size_t)got;
		text[used] = '\0';
		answers = 0;
		for (char *at = text; (at = strstr(at, "{\"header\"")); at++)
			answers++;
	}
	if (strstr(text, "\"error\""))
		errx(1, "etcd says '%s'", text);
}

int
main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, status;
	char lease[128], revoke[128], put[512], delete[512];
	pid_t pid;

	if (argc != 4)
		errx(64, "usage: bench_etcd PORT KEY COMMAND");
	a.sin_port = htons(atoi(argv[1]));
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
		err(1, "connect");
	snprintf(lease, sizeof lease, "{\"TTL\":30,\"ID\":%d}", getpid());
	snprintf(revoke, sizeof revoke, "{\"ID\":%d}", getpid());
	/* the key is base64 as it is; so is the value */
	snprintf(put, sizeof put,
	    "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"create_revision\":0}],\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"bWU=\",\"lease\":%d}}]}",
	    argv[2], argv[2], getpid());
	snprintf(delete, sizeof delete,
	    "{\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}]}", argv[2]);
	ask(fd, "lease/grant", lease, "kv/txn", put);
	if (posix_spawnp(&pid, argv[3], NULL, NULL, argv + 3, environ) != 0 ||
	    waitpid(pid, &status, 0) != pid)
		err(1, "%s", argv[3]);
	ask(fd, "kv/txn", delete, "lease/revoke", revoke);
	return 0;
}
