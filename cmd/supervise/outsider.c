/* outsider.c - a process that is none of our descendants, but is stopped as one. */
#include "outsider.h"

#include "backends/common/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void
outsider_note_group(struct outsider *o, const struct process *root)
{
	o->group = root->group == root->pid ? root->pid : 0;
	o->born = root->born;
}

/* The directory is of the same process for ever.  -1, with errno. */
static int
open_by_proc(pid_t number)
{
	char path[32], text[1024], *group;
	int fd, tgid = 0;

	errno = ENOSYS;
	if (number == 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%d", (int)number);
	fd = process_open_file(path, O_DIRECTORY);
	if (fd < 0)
		return -1;
	group = process_read(number, "status", text, sizeof text)
	    ? strstr(text, "\nTgid:")
	    : NULL;
	if (group && sscanf(group, " Tgid: %d", &tgid) == 1 && tgid == number)
		return fd;
	close(fd);
	errno = group ? EINVAL : ESRCH;
	return -1;
}

bool
outsider_open(struct outsider *o, pid_t pid)
{
	struct process root = {.pid = process_number(pid)};
	int error;

	*o = (struct outsider){.pid = pid, .fd = libc_pidfd_open(pid)};
	if (o->fd < 0 && process_lacks_pidfd(errno)) {
		o->by_proc = true;
		o->fd = open_by_proc(root.pid);
	}
	if (o->fd < 0)
		return false;
	if (process_look_up(&root))
		outsider_note_group(o, &root);
	if ((o->by_proc ? kill(pid, 0) : libc_pidfd_send_signal(o->fd, 0)) == 0 &&
	    !outsider_has_ended(o))
		return true;
	error = outsider_has_ended(o) ? ESRCH : errno;
	close(o->fd);
	errno = error;
	return false;
}

bool
outsider_has_ended(const struct outsider *o)
{
	struct pollfd p = {.fd = o->fd, .events = POLLIN};
	char path[40], text[16];
	struct process its;

	if (!o->by_proc)
		return poll(&p, 1, 0) > 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d/stat", o->fd);
	if (process_look_up_at(path, &its))
		return process_is_dead(&its);
	if (errno != EMFILE && errno != ENFILE)
		return true;
	/* this needs no descriptor: a process that has ended has no program any more */
	return readlinkat(o->fd, "exe", text, sizeof text) < 0 &&
	    (errno == ENOENT || errno == ESRCH);
}

/*
 * Such a process is in the group that the outsider leads, and has been adopted by the process
 * that has adopted our front.  (Others of that group, in a pipeline, have a parent of their own.)
 */
bool
outsider_has_orphan(const struct outsider *o, const struct process *p, pid_t adopter)
{
	return o->group && p->group == o->group && p->born >= o->born &&
	    p->parent == adopter;
}

bool
outsider_is_empty(const struct outsider *o)
{
	return o->quiet >= 2;
}
