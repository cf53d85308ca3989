/* kin.c - reads from /proc which processes we descend from. */
#include "kin.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GENERATIONS_MAX = 10000 };

bool
kin_read(pid_t pid, const char *name, char *out, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	for (char *nul; (nul = memchr(out, '\0', n));)
		*nul = ' '; /* between the words of cmdline */
	out[n] = '\0';
	return true;
}

bool
kin_family(pid_t pid, pid_t *parent, int64_t *born)
{
	char text[1024], *after_name;
	int up;

	*parent = 0;
	*born = 0;
	if (!kin_read(pid, "stat", text, sizeof text))
		return false;
	after_name = strrchr(text, ')'); /* the name may have brackets and blanks */
	if (!after_name ||
	    sscanf(after_name + 1,
		" %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64,
		&up, born) != 2)
		return false;
	*parent = up;
	return true;
}

bool
kin_is_ancestor(pid_t ancestor, int64_t born)
{
	pid_t pid = getpid(), parent;
	int64_t at;

	for (int i = 0; i < GENERATIONS_MAX && kin_family(pid, &parent, &at); i++) {
		if (i > 0 && pid == ancestor)
			return born != 0 && at == born;
		pid = parent;
	}
	return false;
}
