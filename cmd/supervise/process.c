/* process.c - what /proc tells of a process, and the kernel of a child. */
#include "process.h"

#include "backends/common/libc.h"
#include "backends/common/digits.h"
#include "backends/common/instant.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- reading /proc ---- */

static int reserve = -1; /* closed to open a file where there is no other descriptor */

/*
 * This process, as process_find_self() has found it.  It stands here to be on one page with
 * `reserve`.
 */
static struct process us = {.pid = -1};

void
process_reserve(void)
{
	if (reserve < 0)
		reserve = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void
process_forget(void)
{
	reserve = -1;
}

int
process_open_file(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && reserve >= 0) {
		close(reserve);
		reserve = -1;
		fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	}
	return fd;
}

bool
process_read_file(const char *path, char *text, size_t size)
{
	int fd = process_open_file(path, 0);
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
	return process_read_file(path, out, size);
}

/* Field n of a `stat`, as proc(5) counts them, from the end of field 2 on; "": there is none. */
static const char *
stat_field(const char *after_name, int n)
{
	for (; after_name && n > 2; n--)
		after_name = strchr(after_name + 1, ' ');
	return after_name ? after_name + 1 : "";
}

/* Reads a number, which is -1 where a process that is being reaped has none. */
static long long
number_at(const char *text)
{
	return *text == '-' ? -(long long)digits_read(text + 1)
			    : (long long)digits_read(text);
}

/* Reads a `stat`, without sscanf(3), which would cost each run as much as all else here. */
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
process_look_up_at(const char *path, struct process *p)
{
	char text[1024];

	return process_read_file(path, text, sizeof text) && read_stat(p, text);
}

bool
process_look_up(struct process *p)
{
	char text[1024];

	return process_read(p->pid, "stat", text, sizeof text) && read_stat(p, text);
}

pid_t
process_find_self(void)
{
	char text[1024];

	errno = 0;
	return process_read_file("/proc/self/stat", text, sizeof text) &&
		read_stat(&us, text)
	    ? us.pid
	    : 0;
}

unsigned long long
process_clock(void)
{
	return instant_now() / (NS_PER_S / sysconf(_SC_CLK_TCK));
}

unsigned long long
process_born(pid_t pid)
{
	struct process p = {.pid = pid};

	if (pid == us.pid && pid == getpid())
		return us.born;
	return process_look_up(&p) ? p.born : 0;
}

/* ---- under which number ---- */

pid_t
process_self(void)
{
	char text[16];
	ssize_t n = readlink("/proc/self", text, sizeof text - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return atoi(text);
}

pid_t
process_number(pid_t pid)
{
	pid_t self = process_self();
	char path[40], text[512], *rest = text, *line;
	int fd, number = 0;

	if (self == 0 || self == getpid() || pid == getpid())
		return self == getpid() ? pid : self;
	fd = libc_pidfd_open(pid);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	if (!process_read_file(path, text, sizeof text))
		rest = NULL;
	close(fd);
	while (number == 0 && (line = strsep(&rest, "\n")))
		sscanf(line, "Pid: %d", &number);
	return number > 0 ? number : 0;
}

/* ---- what it is ---- */

/* The state of those of its threads that live: its first one has ended, and stays as a zombie. */
static char
state_of_threads(pid_t pid)
{
	char path[48], state = 'Z';
	struct process thread;
	struct dirent *entry;
	DIR *list;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	list = opendir(path);
	if (!list)
		return '\0';
	while (state == 'Z' && (entry = readdir(list))) {
		snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid,
		    atoi(entry->d_name));
		if (process_look_up_at(path, &thread) && thread.state != 'X')
			state = thread.state;
	}
	closedir(list);
	return state;
}

char
process_state(pid_t pid)
{
	struct process p = {.pid = process_number(pid)};

	if (!p.pid || !process_look_up(&p))
		return '\0';
	return p.state == 'Z' && p.threads > 1 ? state_of_threads(p.pid) : p.state;
}

int
process_died_of(pid_t pid)
{
	pid_t number = process_number(pid);
	char text[1024];
	int status = 0;

	if (number && process_read(number, "stat", text, sizeof text))
		status = number_at(stat_field(strrchr(text, ')'), 52));
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

bool
process_is_dead(const struct process *p)
{
	return (p->state == 'Z' && p->threads <= 1) || p->state == 'X';
}

bool
process_is_still(const struct process *p)
{
	struct process again = {.pid = p->pid};

	return process_look_up(&again) && again.born == p->born;
}

enum kin
process_kin(pid_t root, pid_t pid)
{
	struct process p = {.pid = process_number(pid)};
	pid_t wanted = process_number(root);

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

enum terminal
process_terminal(void)
{
	char text[1024], *after_name;
	struct process p;

	if (!process_read_file("/proc/self/stat", text, sizeof text) ||
	    !read_stat(&p, text))
		return TERMINAL_NONE;
	after_name = strrchr(text, ')');
	if (number_at(stat_field(after_name, 7)) == 0)
		return TERMINAL_NONE;
	return number_at(stat_field(after_name, 8)) == p.group ? TERMINAL_FOREGROUND
							       : TERMINAL_BACKGROUND;
}

bool
process_is_named_hold(const struct process *p)
{
	char name[20];

	return p->session == p->pid && process_read(p->pid, "comm", name, sizeof name) &&
	    strcmp(name, HOLD_NAME "\n") == 0;
}

bool
process_is_hold(const struct process *p)
{
	char path[32];
	struct stat its, ours;

	if (!process_is_named_hold(p))
		return false;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)p->pid);
	if (stat(path, &its) != 0)
		return errno == EACCES;
	return stat("/proc/self/exe", &ours) == 0 && its.st_dev == ours.st_dev &&
	    its.st_ino == ours.st_ino;
}

bool
process_is_hold_front(const struct process *p)
{
	struct process parent = {.pid = p->parent};

	return process_is_hold(p) &&
	    !(process_look_up(&parent) && process_is_named_hold(&parent));
}

/* pidfd_open(2) itself says nothing of the kind. */
bool
process_lacks_pidfd(int error)
{
	return error == ENOSYS || error == EPERM;
}

bool
process_has_pidfds(void)
{
	int fd = libc_pidfd_open(getpid());
	bool has = fd >= 0 ? libc_pidfd_send_signal(fd, 0) == 0
			   : !process_lacks_pidfd(errno);

	if (fd >= 0)
		close(fd);
	return has;
}

/* ---- our own children ---- */

const char *
process_adopt(void)
{
	return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
	    ? NULL
	    : "the kernel, or a filter of system calls, refuses PR_SET_CHILD_SUBREAPER";
}

/* NULL before glibc 2.34, where fork() does the same and more. */
pid_t _Fork(void) __attribute__((weak));

pid_t
process_fork(void)
{
	return _Fork ? _Fork() : fork();
}

bool
process_has_children(void)
{
	siginfo_t found;

	return waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool
process_is_end(const siginfo_t *found)
{
	return found->si_code == CLD_EXITED || found->si_code == CLD_KILLED ||
	    found->si_code == CLD_DUMPED;
}

/* The kernel tells unasked that a child is stopped under ptrace(2). */
bool
process_lives(pid_t child)
{
	siginfo_t found = {0};

	return waitid(P_PID, child, &found, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	    (found.si_pid == 0 || !process_is_end(&found));
}

/* ---- lists ---- */

static int
by_pid(const void *a, const void *b)
{
	pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;

	return (x > y) - (x < y);
}

bool
process_add(struct processes *l, const struct process *p)
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

void
process_sort(struct processes *l)
{
	qsort(l->at, l->n, sizeof *l->at, by_pid);
}

const struct process *
process_find(const struct processes *l, pid_t pid)
{
	struct process wanted = {.pid = pid};

	return l && l->n ? bsearch(&wanted, l->at, l->n, sizeof *l->at, by_pid) : NULL;
}

bool
process_is_among(const struct processes *l, const struct process *p)
{
	const struct process *found = process_find(l, p->pid);

	return found && found->born == p->born;
}
