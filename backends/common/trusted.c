/* trusted.c - checks whether a file can be trusted, and reads it. */
#include "trusted.h"

#include "libc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int
trusted_open(const char *path, struct stat *st)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), error;

	if (fd < 0 || libc_stat_of(fd, st) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

enum rc
trusted_check(const struct stat *st, const char *shown, bool secret, struct fault *f)
{
	unsigned mode = st->st_mode & 0777;

	if (!S_ISREG(st->st_mode))
		return fault_set(f, RC_CONFIG, "is not a regular file");
	if (st->st_uid != 0 && st->st_uid != libc_user())
		return fault_set(f, RC_CONFIG,
		    "belongs to uid %u, neither root nor uid %u, who runs this",
		    (unsigned)st->st_uid, (unsigned)libc_user());
	if (mode & (S_IWGRP | S_IWOTH))
		return fault_set(f, RC_CONFIG,
		    "can be written by %s (its mode is 0%03o): chmod go-w %s",
		    mode & S_IWOTH ? "everybody" : "its group", mode, shown);
	if (secret && (mode & S_IROTH))
		return fault_set(f, RC_CONFIG,
		    "can be read by everybody (its mode is 0%03o): chmod 600 %s", mode,
		    shown);
	if (secret && (mode & S_IRGRP) && st->st_uid != 0)
		return fault_set(f, RC_CONFIG,
		    "can be read by its group (its mode is 0%03o), as only a file of root's may be: chmod 600 %s",
		    mode, shown);
	return RC_OK;
}

enum rc
trusted_read(
    int fd, const struct stat *st, char *out, size_t size, size_t *n, struct fault *f)
{
	char beyond;

	for (*n = 0;;) {
		bool full = *n == size;
		ssize_t got = read(fd, full ? &beyond : out + *n, full ? 1 : size - *n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fault_set(
			    f, RC_CONFIG, "cannot be read: %s", strerror(errno));
		if (got > 0 && full)
			return fault_set(f, RC_CONFIG, "is longer than %zu bytes", size);
		if (got == 0)
			break;
		*n += got;
	}
	if (*n < (size_t)st->st_size)
		return fault_set(f, RC_CONFIG,
		    "ended after %zu of its %lld bytes: it is being changed, try again",
		    *n, (long long)st->st_size);
	return RC_OK;
}
