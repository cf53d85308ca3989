/* lockers.c - reads /proc for those who have locked a file. */
#include "lockers.h"

#include "backends/common/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/*
 * How long names are looked for if the caller has as long, or does not wait at all: there may
 * be very many processes and descriptors, or the machine busy.
 */
#define PATIENCE NS_PER_S

/* A file, which of the two kinds of locks on it is meant, and until when is looked. */
struct locked {
	const struct stat *st;
	bool by_flock;
	instant until;
};

/* "1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF"; false: it is of another file. */
static bool
parse_lock(const struct locked *file, const char *line, struct locker *l)
{
	char kind[16], mode[16];
	unsigned major, minor;
	unsigned long long inode;
	int skip = 0, pid;

	if (sscanf(line, "%*u: %n", &skip) < 0 || skip == 0)
		return false;
	line += skip;
	*l = (struct locker){.waits = strncmp(line, "->", 2) == 0};
	line += l->waits ? 2 : 0;
	if (sscanf(line, " %15s %*s %15s %d %x:%x:%llu", kind, mode, &pid, &major, &minor,
		&inode) != 6)
		return false;
	l->shared = strcmp(mode, "READ") == 0;
	l->pid = pid;
	return (strcmp(kind, "FLOCK") == 0) == file->by_flock &&
	    (file->by_flock || strcmp(kind, "POSIX") == 0 ||
		strcmp(kind, "OFDLCK") == 0) &&
	    inode == file->st->st_ino && major == major(file->st->st_dev) &&
	    minor == minor(file->st->st_dev);
}

/* All locks in a text of /proc; 0: none that `taker` has taken, any (0) or this one; -1: no text. */
static int
read_proc_text(const struct locked *file, const char *path, const char *before,
    pid_t taker, struct locker *found, size_t *n)
{
	FILE *text = fopen(path, "re");
	char line[256];
	bool any = false;
	struct locker l;

	while (text && fgets(line, sizeof line, text)) {
		size_t skip = strlen(before);

		if (strncmp(line, before, skip) != 0 ||
		    !parse_lock(file, line + skip, &l) || (taker && l.pid != taker))
			continue;
		any = true;
		if (found && *n < LOCKERS_MOST)
			found[(*n)++] = l;
	}
	if (!text)
		return -1;
	fclose(text);
	return any;
}

/* Has a descriptor of this process the lock that `taker` has taken?  -1: not known (in time). */
static int
has_lock(const struct locked *file, pid_t pid, pid_t taker)
{
	char path[320];
	const struct dirent *entry;
	bool has = false, late = false;
	DIR *list;

	snprintf(path, sizeof path, "/proc/%d/fdinfo", (int)pid);
	list = opendir(path);
	if (!list)
		return -1;
	while (
	    !has && !(late = instant_now() >= file->until) && (entry = readdir(list))) {
		snprintf(
		    path, sizeof path, "/proc/%d/fdinfo/%s", (int)pid, entry->d_name);
		has = entry->d_name[0] != '.' &&
		    read_proc_text(file, path, "lock:\t", taker, NULL, NULL) > 0;
	}
	closedir(list);
	return late ? -1 : has;
}

/* The first process with a descriptor that has the lock; 0: none that we may ask in time. */
static pid_t
find_locker(const struct locked *file, pid_t taker)
{
	DIR *list = opendir("/proc");
	const struct dirent *entry;
	pid_t found = 0;

	while (list && !found && instant_now() < file->until && (entry = readdir(list))) {
		pid_t pid = atoi(entry->d_name);

		if (pid > 0 && pid != getpid() && has_lock(file, pid, taker) > 0)
			found = pid;
	}
	if (list)
		closedir(list);
	return found;
}

/* User and program, if the process is there. */
static bool
describe(struct locker *l)
{
	char path[64];
	struct stat st;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)l->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 || fstat(fd, &st) != 0 ? -1
					  : read(fd, l->command, sizeof l->command - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	l->command[strcspn(l->command, "\n")] = '\0';
	for (char *c = l->command; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
	/* the password database might ask a server */
	if (st.st_uid == 0)
		snprintf(l->user, sizeof l->user, "root");
	else
		snprintf(l->user, sizeof l->user, "uid %u", (unsigned)st.st_uid);
	return true;
}

/*
 * Who has the lock now, as its taker may have ended, and another process have his number.  A
 * lock of an open file has no taker: if it is not the only one, nobody knows whose it is.
 */
static void
name_locker(const struct locked *file, struct locker *l, bool alone)
{
	pid_t taker = l->pid;

	if (taker > 0 && (l->waits || has_lock(file, taker, taker) != 0) && describe(l))
		return;
	l->pid = !l->waits && (taker > 0 || alone) ? find_locker(file, taker) : 0;
	if (l->pid && !describe(l))
		l->pid = 0;
}

int
lockers_read(const struct stat *st, bool by_flock, instant until,
    struct locker found[LOCKERS_MOST])
{
	const instant most = instant_now() + PATIENCE;
	const struct locked file = {
	    st, by_flock, until ? instant_first(until, most) : most};
	size_t n = 0, unnamed = 0;

	if (read_proc_text(&file, "/proc/locks", "", 0, found, &n) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		unnamed += !found[i].waits && found[i].pid <= 0;
	for (size_t i = 0; i < n; i++) {
		if (instant_now() < file.until)
			name_locker(&file, &found[i], unnamed == 1);
		else if (!describe(&found[i]))
			found[i].pid = 0;
	}
	return (int)n;
}
