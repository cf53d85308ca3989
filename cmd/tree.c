/* tree.c - see tree.h. */
#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct process {
	pid_t pid, parent;
	char state;
	unsigned long long born; /* in clock ticks; with the pid, what makes a process itself */
	bool ours;
};

/* Reads what the kernel tells of p->pid into the rest of *p; false: there is no such process. */
static bool
look_up(struct process *p)
{
	char path[32], text[1024], *after_name;
	int fd, parent = 0;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	after_name = strrchr(text, ')'); /* the name may itself have brackets and blanks */
	if (!after_name ||
	    sscanf(after_name + 1, " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &p->state,
		&parent, &p->born) != 3)
		return false;
	p->parent = parent;
	return true;
}

pid_t
tree_parent(pid_t pid, char *state)
{
	struct process p = {.pid = pid};

	if (!look_up(&p))
		return 0;
	*state = p.state;
	return p.parent;
}

bool
tree_contains(pid_t root, pid_t pid)
{
	char state;

	/* Bounded, since the chain may change while we climb. */
	for (int steps = 0; pid > 1 && steps < 1000; steps++) {
		pid = tree_parent(pid, &state);
		if (pid == root)
			return true;
	}
	return false;
}

static int
by_pid(const void *a, const void *b)
{
	pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;

	return (x > y) - (x < y);
}

/* All processes of this machine, by pid, or NULL. */
static struct process *
list_processes(size_t *count)
{
	DIR *proc = opendir("/proc");
	struct process *list = NULL;
	size_t n = 0, room = 0;
	struct dirent *entry;

	while (proc && (entry = readdir(proc))) {
		struct process p = {.pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0};

		if (p.pid <= 0 || !look_up(&p))
			continue;
		if (n == room) {
			struct process *more = realloc(list, (room = room ? 2 * room : 256) * sizeof *list);

			if (!more)
				break;
			list = more;
		}
		list[n++] = p;
	}
	if (proc)
		closedir(proc);
	if (n)
		qsort(list, n, sizeof *list, by_pid);
	*count = n;
	return list;
}

static bool
is_ours(const struct process *list, size_t n, pid_t pid)
{
	struct process wanted = {.pid = pid}, *found = n ? bsearch(&wanted, list, n, sizeof *list, by_pid) : NULL;

	return found && found->ours;
}

static bool
is_spared(const struct spared *s, pid_t pid)
{
	for (size_t i = 0; s && i < s->n; i++)
		if (s->pid[i] == pid)
			return true;
	return false;
}

/* Marks what descends from root; again and again, for a child may stand before its parent. */
static void
mark_descendants(struct process *list, size_t n, pid_t root, const struct spared *spared)
{
	bool grown = true;

	while (grown) {
		grown = false;
		for (size_t i = 0; i < n; i++) {
			if (list[i].ours || (list[i].parent != root && !is_ours(list, n, list[i].parent)) ||
			    is_spared(spared, list[i].pid))
				continue;
			list[i].ours = grown = true;
		}
	}
}

static bool
is_dead(const struct process *p)
{
	return p->state == 'Z' || p->state == 'X';
}

/*
 * The pid may have been given to a stranger since we looked: hold it fast, look
 * again.  (Its parent may differ by now: the one before it in the list has just
 * got the same signal.)
 */
static void
signal_process(const struct process *p, int sig, bool wake)
{
	int fd = pidfd_open(p->pid, 0);
	struct process again = {.pid = p->pid};

	if (fd < 0 && errno != ESRCH) { /* no descriptors, or an old kernel: less sure, but better than nothing */
		kill(p->pid, sig);
		if (wake)
			kill(p->pid, SIGCONT);
	}
	if (fd < 0)
		return;
	if (look_up(&again) && again.born == p->born) {
		pidfd_send_signal(fd, sig, NULL, 0);
		if (wake)
			pidfd_send_signal(fd, SIGCONT, NULL, 0);
	}
	close(fd);
}

size_t
tree_signal(pid_t root, int sig, bool wake, const struct spared *spared)
{
	size_t n, alive = 0;
	struct process *list = list_processes(&n);

	mark_descendants(list, n, root, spared);
	for (size_t i = 0; i < n; i++)
		if (list[i].ours && !is_dead(&list[i])) {
			alive++; /* also if it has died since: it may have begotten another */
			signal_process(&list[i], sig, wake);
		}
	free(list);
	return alive;
}

void
tree_spare_children(struct spared *s)
{
	struct process *list;
	siginfo_t any;
	size_t n;

	s->n = 0;
	if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) != 0)
		return;
	list = list_processes(&n);
	for (size_t i = 0; i < n && s->n < SPARED_MAX; i++)
		if (list[i].parent == getpid())
			s->pid[s->n++] = list[i].pid;
	free(list);
}
