/* tree.c - finds and signals all descendants of a process. */
#include "tree.h"

#include "backends/common/libc.h"
#include "backends/common/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- reading /proc ---- */

static int reserve = -1; /* for what a sweep has to open: one file at a time */

/* This process, as it was when tree_find_self() found it; beside the reserve, in its page. */
static struct process us = {.pid = -1};

void
tree_reserve(void)
{
	reserve = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void
tree_forget(void)
{
	reserve = -1;
}

static int
open_file(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && reserve >= 0) {
		close(reserve);
		reserve = -1;
		fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	}
	return fd;
}

static bool
read_file(const char *path, char *text, size_t size)
{
	int fd = open_file(path, 0);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	for (char *nul; (nul = memchr(text, '\0', n));)
		*nul = ' '; /* between the words of cmdline */
	text[n] = '\0';
	return true;
}

bool
process_read(pid_t pid, const char *name, char *out, size_t size)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	return read_file(path, out, size);
}

/* Field n of a `stat`, as proc(5) counts them, from the end of field 2 on; "": there is none. */
static const char *
stat_field(const char *after_name, int n)
{
	for (; after_name && n > 2; n--)
		after_name = strchr(after_name + 1, ' ');
	return after_name ? after_name + 1 : "";
}

/* -1: of a process that is being reaped there is none. */
static long long
number_at(const char *text)
{
	return *text == '-' ? -(long long)text_number(text + 1)
			    : (long long)text_number(text);
}

/* From a `stat`; without sscanf(3), which costs each run as much as all else here. */
static bool
read_stat(struct process *p, const char *text)
{
	/* the name may itself have brackets and blanks */
	const char *after_name = strrchr(text, ')');

	if (!after_name || !*stat_field(after_name, 22))
		return false;
	p->pid = number_at(text);
	p->state = *stat_field(after_name, 3);
	p->parent = number_at(stat_field(after_name, 4));
	p->group = number_at(stat_field(after_name, 5));
	p->session = number_at(stat_field(after_name, 6));
	p->threads = number_at(stat_field(after_name, 20));
	p->born = number_at(stat_field(after_name, 22));
	return true;
}

bool
process_look_up(struct process *p)
{
	char text[1024];

	return process_read(p->pid, "stat", text, sizeof text) && read_stat(p, text);
}

bool
tree_find_self(void)
{
	char text[1024];

	errno = 0;
	return read_file("/proc/self/stat", text, sizeof text) && read_stat(&us, text);
}

enum terminal
tree_terminal(void)
{
	char text[1024], *after_name;
	struct process p;

	if (!read_file("/proc/self/stat", text, sizeof text) || !read_stat(&p, text))
		return TERMINAL_NONE;
	after_name = strrchr(text, ')');
	if (number_at(stat_field(after_name, 7)) == 0)
		return TERMINAL_NONE;
	return number_at(stat_field(after_name, 8)) == p.group ? TERMINAL_FOREGROUND
							       : TERMINAL_BACKGROUND;
}

unsigned long long
process_born(pid_t pid)
{
	struct process p = {.pid = pid};

	if (pid == us.pid && pid == getpid())
		return us.born;
	return process_look_up(&p) ? p.born : 0;
}

/* The number of this process in /proc; 0: it is not there. */
static pid_t
own_number(void)
{
	char text[16];
	ssize_t n = readlink("/proc/self", text, sizeof text - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return atoi(text);
}

/* Under which number /proc shows the process that is `pid` to us; 0: none. */
static pid_t
number_in_proc(pid_t pid)
{
	pid_t self = own_number();
	char path[40], text[512], *rest = text, *line;
	int fd, number = 0;

	if (self == 0 || self == getpid() || pid == getpid())
		return self == getpid() ? pid : self;
	fd = libc_pidfd_open(pid);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	if (!read_file(path, text, sizeof text))
		rest = NULL;
	close(fd);
	while (number == 0 && (line = strsep(&rest, "\n")))
		sscanf(line, "Pid: %d", &number);
	return number > 0 ? number : 0;
}

char
tree_state(pid_t pid)
{
	struct process p = {.pid = number_in_proc(pid)};

	return p.pid && process_look_up(&p) ? p.state : '\0';
}

bool
tree_finds_all(void)
{
	struct process probe = {.pid = 0};
	bool shown;
	pid_t pid, parent = getpid();

	if ((us.pid > 0 ? us.pid : own_number()) == parent)
		return true;
	pid = libc_fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			pause();
		_exit(0);
	}
	if (pid < 0)
		return true; /* nor will anything else be started */
	probe.pid = number_in_proc(pid);
	shown = probe.pid && process_look_up(&probe);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return shown;
}

enum kin
tree_relation(pid_t root, pid_t pid)
{
	struct process p = {.pid = number_in_proc(pid)};
	pid_t wanted = number_in_proc(root);

	/* Bounded, since the chain may change while we climb. */
	for (int steps = 0; steps < 10000; steps++) {
		if (p.pid == 0 || wanted == 0 || !process_look_up(&p))
			return KIN_HIDDEN;
		if (p.parent == wanted)
			return KIN_YES;
		if (p.parent == 0 || p.pid == 1)
			return KIN_NO;
		p.pid = p.parent;
	}
	return KIN_HIDDEN;
}

/* ---- all processes ---- */

static int
by_pid(const void *a, const void *b)
{
	pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;

	return (x > y) - (x < y);
}

/* False: no memory. */
static bool
add_process(struct processes *l, const struct process *p)
{
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 256;
		struct process *more = realloc(l->at, room * sizeof *more);

		if (!more)
			return false;
		l->at = more;
		l->room = room;
	}
	l->at[l->n++] = *p;
	return true;
}

/* The numbers of all that /proc shows. */
static struct processes
list_numbers(void)
{
	_Alignas(struct dirent64) char entries[8192];
	int dir = open_file("/proc", O_DIRECTORY);
	struct processes l = {0};
	ssize_t size;

	while (dir >= 0 && (size = getdents64(dir, (void *)entries, sizeof entries)) > 0)
		for (ssize_t i = 0; i < size;) {
			const struct dirent64 *entry = (const void *)(entries + i);
			struct process p = {.pid = atoi(entry->d_name)};

			if (p.pid > 0 && !add_process(&l, &p))
				break;
			i += entry->d_reclen;
		}
	if (dir >= 0)
		close(dir);
	return l;
}

/* All that /proc shows, one file after the other; at[] is the caller's. */
static struct processes
list_processes(void)
{
	struct processes l = list_numbers();
	size_t n = 0;

	for (size_t i = 0; i < l.n; i++)
		if (process_look_up(&l.at[i]))
			l.at[n++] = l.at[i];
	l.n = n;
	if (n)
		qsort(l.at, n, sizeof *l.at, by_pid);
	return l;
}

static const struct process *
find_process(const struct processes *l, pid_t pid)
{
	struct process wanted = {.pid = pid};

	return l && l->n ? bsearch(&wanted, l->at, l->n, sizeof *l->at, by_pid) : NULL;
}

/* Is it one of them, and the same process? */
static bool
is_among(const struct processes *l, const struct process *p)
{
	const struct process *found = find_process(l, p->pid);

	return found && found->born == p->born;
}

static bool
is_marked(const struct processes *l, pid_t pid)
{
	const struct process *found = find_process(l, pid);

	return found && found->ours;
}

/*
 * Marks what descends from root (0: from nobody) or from a marked one, except `but` and
 * theirs; again and again, for a child may stand before its parent.
 */
static void
mark_below(struct processes *l, pid_t root, const struct processes *but)
{
	bool grown = true;

	while (grown) {
		grown = false;
		for (size_t i = 0; i < l->n; i++) {
			struct process *p = &l->at[i];

			if (p->ours || is_among(but, p) ||
			    ((root == 0 || p->parent != root) &&
				!is_marked(l, p->parent)))
				continue;
			p->ours = grown = true;
		}
	}
}

/* Copies those that are marked; nothing changes where there is no memory. */
static void
keep_marked(struct processes *kept, const struct processes *l)
{
	struct processes marked = {0};

	for (size_t i = 0; i < l->n; i++)
		if (l->at[i].ours && !add_process(&marked, &l->at[i])) {
			free(marked.at);
			return;
		}
	free(kept->at);
	*kept = marked;
}

/*
 * A process whose first thread has ended looks like a zombie, but others of its threads
 * run on.
 */
static bool
is_dead_process(const struct process *p)
{
	return (p->state == 'Z' && p->threads <= 1) || p->state == 'X';
}

/* ---- outside ---- */

/* While it lives: does it lead a process group, and since when? */
static void
note_group(struct outside *o, const struct process *root)
{
	if (!root)
		return;
	o->group = root->group == root->pid ? root->pid : 0;
	o->born = root->born;
}

/* pidfd_open(2) itself says nothing of the kind. */
static bool
lacks_pidfd(int error)
{
	return error == ENOSYS || error == EPERM;
}

bool
tree_has_pidfds(void)
{
	int fd = libc_pidfd_open(getpid());
	bool has = fd >= 0 ? libc_pidfd_send_signal(fd, 0) == 0 : !lacks_pidfd(errno);

	if (fd >= 0)
		close(fd);
	return has;
}

/* What is in the directory is of the same process for ever.  -1, with errno. */
static int
open_by_proc(pid_t number)
{
	char path[32], text[1024], *group;
	int fd, tgid = 0;

	errno = ENOSYS;
	if (number == 0)
		return -1;
	snprintf(path, sizeof path, "/proc/%d", (int)number);
	fd = open_file(path, O_DIRECTORY);
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
outside_open(struct outside *o, pid_t pid)
{
	struct process root = {.pid = number_in_proc(pid)};
	int error;

	*o = (struct outside){.pid = pid, .fd = libc_pidfd_open(pid)};
	if (o->fd < 0 && lacks_pidfd(errno)) {
		o->by_proc = true;
		o->fd = open_by_proc(root.pid);
	}
	if (o->fd < 0)
		return false;
	note_group(o, process_look_up(&root) ? &root : NULL);
	if ((o->by_proc ? kill(pid, 0) : libc_pidfd_send_signal(o->fd, 0)) == 0 &&
	    !outside_has_ended(o))
		return true;
	error = outside_has_ended(o) ? ESRCH : errno;
	close(o->fd);
	errno = error;
	return false;
}

bool
outside_has_ended(const struct outside *o)
{
	struct pollfd p = {.fd = o->fd, .events = POLLIN};
	char path[40], text[1024];
	struct process its;

	if (!o->by_proc)
		return poll(&p, 1, 0) > 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d/stat", o->fd);
	if (read_file(path, text, sizeof text) && read_stat(&its, text))
		return is_dead_process(&its);
	if (errno != EMFILE && errno != ENFILE)
		return true;
	/* this needs no descriptor: a process that has ended has no program any more */
	return readlinkat(o->fd, "exe", text, sizeof text) < 0 &&
	    (errno == ENOENT || errno == ESRCH);
}

/*
 * Was its parent one of them, which ended before we saw it?  Then it is in the group that
 * the process itself leads, and has been adopted by the process that has adopted our front.
 * (Others of that group, in a pipeline, have a parent of their own.)
 */
static bool
is_orphan(const struct outside *o, const struct process *p, pid_t adopter)
{
	return o->group && p->group == o->group && p->born >= o->born &&
	    p->parent == adopter;
}

/* Both processes of a hold lead a session, as no other dlock does. */
static bool
is_hold(const struct process *p)
{
	char path[32];
	struct stat its, ours;

	if (p->session != p->pid)
		return false;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)p->pid);
	return stat(path, &its) == 0 && stat("/proc/self/exe", &ours) == 0 &&
	    its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

/* Marks those of `o`.  This process and the front may be below it, but are none of them. */
static void
mark_outside(struct processes *l, struct outside *o)
{
	pid_t root = outside_has_ended(o) ? 0 : number_in_proc(o->pid);
	const struct process *self = find_process(l, own_number()),
			     *front = find_process(l, number_in_proc(o->front)),
			     *adopted = front ? front : self;
	struct process two[2];
	const struct processes own = {.n = 2, .at = two};

	if (!self)
		return; /* /proc has shown nobody */
	two[0] = *self;
	two[1] = *adopted;
	qsort(two, 2, sizeof *two, by_pid);
	note_group(o, find_process(l, root));
	for (size_t i = 0; i < l->n; i++) {
		struct process *p = &l->at[i];

		p->ours |= !is_among(&own, p) &&
		    (p->pid == root || (is_among(&o->known, p) && !is_hold(p)) ||
			is_orphan(o, p, adopted->parent));
	}
	mark_below(l, root, &own);
	keep_marked(&o->known, l);
}

/* ---- sending ---- */

static void
send_to(pid_t pid, const struct aim *a)
{
	kill(pid, a->sig);
	if (a->wake)
		kill(pid, SIGCONT);
}

static bool
send_by(int pidfd, const struct aim *a)
{
	if (libc_pidfd_send_signal(pidfd, a->sig) != 0)
		return false;
	if (a->wake)
		libc_pidfd_send_signal(pidfd, SIGCONT);
	return true;
}

static bool
is_still(const struct process *p)
{
	struct process again = {.pid = p->pid};

	return process_look_up(&again) && again.born == p->born;
}

/*
 * The pid may be another process's since we looked: hold it fast, look again.  (Its parent
 * may differ by now: the one before it in the list has just got the same signal.)  A
 * directory in /proc is as good as a pidfd, and means the same process whatever number it
 * has here.  Without a second descriptor a moment lies between the look and the signal.
 */
static void
signal_process(const struct process *p, const struct aim *a)
{
	char path[32];
	bool sent;
	int fd;

	snprintf(path, sizeof path, "/proc/%d", (int)p->pid);
	fd = open_file(path, O_DIRECTORY);
	sent = fd >= 0 && is_still(p) && send_by(fd, a);
	if (fd >= 0)
		close(fd);
	if (!sent && own_number() == getpid() && is_still(p))
		send_to(p->pid, a);
}

void
tree_signal_run(pid_t keeper, const struct aim *a)
{
	struct process p = {.pid = number_in_proc(keeper)}, front;

	if (!p.pid || !process_look_up(&p))
		return;
	front.pid = p.parent;
	if (p.session == p.pid) /* of a hold */
		signal_process(&p, a);
	else if (p.parent != own_number() && process_look_up(&front))
		signal_process(&front, a);
}

/*
 * The command, and its group if it leads one, has got it.  The outside process gets it
 * before those below it: it must not go on as if they had ended by themselves.
 */
static size_t
signal_marked(const struct processes *l, const struct aim *a)
{
	pid_t command = a->command ? number_in_proc(a->command) : 0,
	      outside = a->outside ? number_in_proc(a->outside->pid) : 0;
	size_t alive = 0;

	if (a->outside && !outside_has_ended(a->outside)) {
		alive++; /* also if we may not signal it: then it goes on */
		if (!send_by(a->outside->fd, a) && a->outside->by_proc)
			send_to(a->outside->pid, a);
	}
	for (size_t i = 0; i < l->n; i++) {
		const struct process *p = &l->at[i];

		if (!p->ours || is_dead_process(p) || (outside && p->pid == outside))
			continue;
		alive++; /* also if it has died since: it may have started another */
		if (command == 0 ||
		    (p->pid != command && !(a->leads && p->group == command)))
			signal_process(p, a);
	}
	return alive;
}

/* ---- our own children ---- */

bool
tree_has_children(void)
{
	siginfo_t found;

	return waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool
tree_is_end(const siginfo_t *found)
{
	return found->si_code == CLD_EXITED || found->si_code == CLD_KILLED ||
	    found->si_code == CLD_DUMPED;
}

/* Is it a child of ours, and no zombie?  That it is stopped under ptrace(2) is told unasked. */
static bool
lives(pid_t child)
{
	siginfo_t found = {0};

	return waitid(P_PID, child, &found, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	    (found.si_pid == 0 || !tree_is_end(&found));
}

/*
 * Those that the look has not found: /proc hides them, or they were born since.  Most
 * kernels list children in one go.
 */
static size_t
signal_children(const struct processes *found, const struct aim *a)
{
	char text[4096], *rest, *word;
	size_t n = 0;

	if (own_number() != getpid() ||
	    !read_file("/proc/thread-self/children", text, sizeof text))
		return 0;
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		struct process p = {.pid = atoi(word)};

		(void)process_look_up(&p);
		if (is_marked(found, p.pid) || is_among(a->spared, &p) || !lives(p.pid))
			continue; /* or the last number was cut */
		n++;
		if (p.pid != a->command)
			send_to(p.pid, a);
	}
	return n;
}

size_t
tree_signal(pid_t root, const struct aim *a)
{
	struct processes l;
	size_t alive;

	/* nothing is needed for the command but its number */
	if (a->command && a->leads)
		send_to(-a->command, a);
	if (a->command && (!a->leads || getpgid(a->command) != a->command))
		send_to(a->command, a);
	l = list_processes();
	if (root)
		mark_below(&l, number_in_proc(root), a->spared);
	if (a->outside)
		mark_outside(&l, a->outside);
	alive = signal_marked(&l, a) +
	    (l.n == 0); /* it cannot be seen that all is quiet */
	if (root == getpid())
		alive += signal_children(&l, a);
	free(l.at);
	if (reserve < 0)
		tree_reserve(); /* what has died may have left room */
	return alive;
}

void
outside_look(struct outside *o)
{
	if (o)
		tree_signal(0, &(struct aim){.outside = o});
}

bool
tree_spare(struct processes *spared, pid_t keeper)
{
	struct process own = {.pid = number_in_proc(keeper)};
	const struct processes but = {.n = own.pid && process_look_up(&own), .at = &own};
	struct processes l = list_processes();
	/* /proc may hide the keeper, from both looks; never ourselves */
	bool seen = own.pid && find_process(&l, own_number()) &&
	    (but.n == 1 || !find_process(&l, own.pid));

	mark_below(&l, own_number(), &but);
	if (seen && lives(keeper))
		keep_marked(spared, &l);
	free(l.at);
	return seen;
}
