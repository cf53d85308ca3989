/* tree.c - finds and signals all descendants of a process. */
#include "tree.h"

#include "backends/common/digits.h"
#include "backends/common/libc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
	return *text == '-' ? -(long long)digits_read(text + 1)
			    : (long long)digits_read(text);
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
	if (process_look_up(&root))
		note_group(o, &root);
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

/* Does it bear the name that both processes of a hold give themselves?  See HOLD_NAME. */
static bool
is_named_hold(const struct process *p)
{
	char name[20];

	return p->session == p->pid && process_read(p->pid, "comm", name, sizeof name) &&
	    strcmp(name, HOLD_NAME "\n") == 0;
}

static bool
is_hold(const struct process *p)
{
	char path[32];
	struct stat its, ours;

	if (!is_named_hold(p))
		return false;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)p->pid);
	return stat(path, &its) == 0 && stat("/proc/self/exe", &ours) == 0 &&
	    its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
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
	if (is_named_hold(&p))
		signal_process(&p, a);
	else if (p.parent != own_number() && process_look_up(&front) &&
	    !(a->but && front.group == number_in_proc(a->but)))
		signal_process(&front, a);
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

/* ---- a look: one sweep through /proc ---- */

/* What is below us, as far as earlier looks have seen it; for the outside it has its own. */
static struct processes below;

static int64_t look_took; /* the last one */

/* One pass through all that /proc shows. */
struct sweep {
	struct aim aim;
	bool spares_outside;               /* the process itself gets no signal */
	pid_t root, command, had, outside; /* as /proc numbers them; 0: none */
	struct processes but;    /* of dlock, by pid: they and theirs are not meant */
	struct process own[2];   /* room for these */
	pid_t adopter;           /* of orphans outside */
	struct processes *known; /* from earlier looks; NULL: it does not matter */
	struct processes all;    /* that have been read; at[] is the look's */
	bool sorted;             /* by pid */
	bool blind;              /* we do not know who we are: nobody is touched */
	bool cut;                /* not all have been seen */
	bool fresh;              /* some are new */
	bool moves;              /* some have not stopped */
	size_t alive, hidden;
};

/* This process and the front may be below the one outside, but are none of its own. */
static void
look_for_outside(struct sweep *s)
{
	struct outside *o = s->aim.outside;
	struct process self = {.pid = own_number()}, front, root, *adopted = &self;
	struct process leader = {.pid = o->group};

	if (o->group && process_look_up(&leader) && leader.born != o->born)
		o->group = 0; /* the number is another's by now */
	s->blind = !self.pid || !process_look_up(&self);
	front.pid = o->front == getpid() ? self.pid : number_in_proc(o->front);
	if (front.pid && process_look_up(&front))
		adopted = &front;
	s->adopter = adopted->parent;
	s->own[0] = self;
	s->own[1] = *adopted;
	qsort(s->own, 2, sizeof *s->own, by_pid);
	s->but = (struct processes){.n = 2, .at = s->own};
	root.pid = s->outside = outside_has_ended(o) ? 0 : number_in_proc(o->pid);
	if (root.pid && process_look_up(&root))
		note_group(o, &root);
}

static enum mark
mark_by_itself(const struct sweep *s, const struct process *p)
{
	const struct outside *o = s->aim.outside;

	if (is_among(s->aim.spared, p) || is_among(&s->but, p))
		return MARK_FOREIGN;
	if (s->root && p->parent == s->root)
		return MARK_OURS;
	if (o && (p->pid == s->outside || is_orphan(o, p, s->adopter)))
		return MARK_OURS;
	if (!is_among(s->known, p))
		return MARK_OPEN;
	if (!o || !is_hold(p))
		return MARK_OURS;
	/* it was one of ours, and may have been stopped as such; it is another lock's by now */
	signal_process(p, &(struct aim){.sig = SIGCONT});
	return MARK_OPEN;
}

/* The command, and its group if it leads one, has got its signal; these may get it twice. */
static bool
has_had_it(const struct sweep *s, const struct process *p)
{
	if (s->aim.sig == SIGSTOP || s->aim.sig == SIGKILL)
		return false;
	return (s->had && p->group == s->had) ||
	    (s->command &&
		(p->pid == s->command || (s->aim.leads && p->group == s->command)));
}

/* One that is ours. */
static void
meet(struct sweep *s, struct process *p)
{
	bool stopped = p->state == 'T' || p->state == 't';

	p->met = true;
	if (is_dead_process(p))
		return;
	if (p->pid == s->outside) { /* it is counted, and has been signalled */
		s->moves |= !stopped && !s->spares_outside;
		return;
	}
	s->alive++; /* also if it has died since: it may have started another */
	s->moves |= !stopped;
	s->fresh |= !is_among(s->known, p);
	if (s->aim.sig && !has_had_it(s, p) &&
	    !(p->state == 'T' && s->aim.sig == SIGSTOP))
		signal_process(p, &s->aim);
}

/* Signals it at once if it can be told, as mostly, that it is ours. */
static void
take(struct sweep *s, struct process *p)
{
	const struct process *parent;

	s->sorted = s->sorted && (s->all.n == 0 || s->all.at[s->all.n - 1].pid < p->pid);
	p->mark = mark_by_itself(s, p);
	parent = p->mark == MARK_OPEN && s->sorted ? find_process(&s->all, p->parent)
						   : NULL;
	if (parent)
		p->mark = parent->mark;
	if (p->mark == MARK_OURS)
		meet(s, p);
	s->cut |= !add_process(&s->all, p);
}

/* The next numbers from /proc, as getdents64(2) does; no descriptor stays open. */
static ssize_t
list_numbers(off64_t *at, char *entries, size_t size)
{
	int dir = open_file("/proc", O_DIRECTORY);
	off64_t from = *at;
	ssize_t n = -1;

	if (dir >= 0 && lseek64(dir, from, SEEK_SET) == from)
		n = getdents64(dir, (void *)entries, size);
	if (dir >= 0)
		close(dir);
	for (ssize_t i = 0; i < n;) {
		const struct dirent64 *entry = (const void *)(entries + i);

		*at = entry->d_off;
		i += entry->d_reclen;
	}
	return n > 0 && *at == from ? -1 : n;
}

/* Takes those that /proc shows from one number to before another, one file after the other. */
static void
read_processes(struct sweep *s, pid_t from, pid_t to)
{
	_Alignas(struct dirent64) char entries[8192];
	off64_t at = 0;
	ssize_t size = -1;

	while (!s->blind && (size = list_numbers(&at, entries, sizeof entries)) > 0)
		for (ssize_t i = 0; i < size;) {
			const struct dirent64 *entry = (const void *)(entries + i);
			struct process p = {.pid = atoi(entry->d_name)};

			i += entry->d_reclen;
			if (p.pid < from || p.pid >= to)
				continue;
			errno = 0;
			if (process_look_up(&p))
				take(s, &p);
			else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				s->cut = true;
		}
	s->cut |= size < 0;
}

static struct process *
find_parent(const struct sweep *s, const struct process *p)
{
	return (struct process *)find_process(&s->all, p->parent);
}

/* Settles it and those above it by the first one that is settled; nobody twice. */
static void
climb(const struct sweep *s, struct process *p)
{
	enum mark mark = MARK_FOREIGN;
	struct process *q = p;

	for (; q && q->mark == MARK_OPEN; q = find_parent(s, q))
		q->mark = MARK_CLIMBED;
	if (q && q->mark == MARK_OURS)
		mark = MARK_OURS;
	for (q = p; q && q->mark == MARK_CLIMBED; q = find_parent(s, q))
		q->mark = mark;
}

/* Is the group of the one outside its own? */
static bool
has_whole_group(const struct sweep *s)
{
	pid_t group = s->aim.outside->group;
	bool any = false;

	for (size_t i = 0; group && i < s->all.n; i++) {
		const struct process *p = &s->all.at[i];

		if (p->group != group || is_dead_process(p))
			continue;
		if (p->mark != MARK_OURS)
			return false;
		any = true;
	}
	return any && !s->cut;
}

/* When all of it have ended, others may get its number. */
static bool
has_group(const struct sweep *s)
{
	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].group == s->aim.outside->group)
			return true;
	return s->cut;
}

/*
 * Copies those that are ours, and where the list was cut off keeps those that it lacks; nothing
 * changes where there is no memory.
 */
static void
keep_ours(struct processes *kept, const struct sweep *s)
{
	struct processes ours = {0};
	bool fits = true;

	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].mark == MARK_OURS)
			fits = fits && add_process(&ours, &s->all.at[i]);
	for (size_t i = 0; s->cut && i < kept->n; i++)
		if (!find_process(&s->all, kept->at[i].pid))
			fits = fits && add_process(&ours, &kept->at[i]);
	if (!fits) {
		free(ours.at);
		return;
	}
	if (s->cut && ours.n > 0)
		qsort(ours.at, ours.n, sizeof *ours.at, by_pid);
	free(kept->at);
	*kept = ours;
}

/*
 * Descendants mostly have greater numbers than who they descend from, and those of others, that
 * have been there before, come later.  Settles those whose parents came later in the list.
 */
static void
look_at_all(struct sweep *s)
{
	pid_t first = s->root ? s->root : s->outside ? s->outside : 1;

	s->sorted = true;
	read_processes(s, first, INT_MAX);
	if (first > 1)
		read_processes(s, 1, first);
	s->cut |= s->all.n == 0;
	if (!s->sorted)
		qsort(s->all.at, s->all.n, sizeof *s->all.at, by_pid);
	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].mark == MARK_OPEN)
			climb(s, &s->all.at[i]);
	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].mark == MARK_OURS && !s->all.at[i].met)
			meet(s, &s->all.at[i]);
}

/*
 * Those that the look has not found: /proc hides them, or they were born since.  Most
 * kernels list children in one go.
 */
static size_t
signal_children(const struct sweep *s)
{
	char text[4096], *rest, *word;
	size_t n = 0;

	if (own_number() != getpid() ||
	    !read_file("/proc/thread-self/children", text, sizeof text))
		return 0;
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		struct process p = {.pid = atoi(word)};
		const struct process *found = find_process(&s->all, p.pid);

		(void)process_look_up(&p);
		if ((found && found->mark == MARK_OURS) || is_among(s->aim.spared, &p) ||
		    !lives(p.pid))
			continue; /* or the last number was cut */
		n++;
		if (p.pid != s->aim.command)
			send_to(p.pid, &s->aim);
	}
	return n;
}

/* Nothing is needed for the command but its number, and for what is outside its descriptor. */
static void
signal_first(struct sweep *s)
{
	const struct aim *a = &s->aim;

	if (a->command && a->leads)
		send_to(-a->command, a);
	if (a->command && (!a->leads || getpgid(a->command) != a->command))
		send_to(a->command, a);
	if (!a->outside || outside_has_ended(a->outside))
		return;
	s->alive++; /* also if we may not signal it: then it goes on */
	if (!s->spares_outside && !send_by(a->outside->fd, a) && a->outside->by_proc)
		send_to(a->outside->pid, a);
}

/* The outside process gets it before those below it: it must not go on as if they had ended. */
static void
sweep(struct sweep *s, pid_t root)
{
	struct outside *o = s->aim.outside;
	instant began = instant_now();

	signal_first(s);
	s->root = root ? number_in_proc(root) : 0;
	s->command = s->aim.command ? number_in_proc(s->aim.command) : 0;
	s->had = s->aim.but ? number_in_proc(s->aim.but) : 0;
	s->known = o ? &o->known : &below;
	if (o)
		look_for_outside(s);
	look_at_all(s);
	if (root == getpid())
		s->hidden = signal_children(s);
	s->alive += s->hidden + s->cut; /* it cannot be seen that all is quiet */
	if (o) {
		if (!has_group(s))
			o->group = 0;
		o->whole = has_whole_group(s);
		o->quiet = s->alive ? 0 : o->quiet + 1;
	}
	keep_ours(s->known, s);
	free(s->all.at);
	if (reserve < 0)
		tree_reserve(); /* what has died may have left room */
	look_took = instant_now() - began;
}

/*
 * Those of earlier looks, the youngest first: when a parent dies, the kernel wakes a process
 * group that has nobody left and was stopped.
 */
static void
signal_known(const struct aim *a)
{
	struct outside *o = a->outside;
	const struct processes *known = o ? &o->known : &below;
	bool grouped = o &&
	    !outside_has_ended(o); /* or the group's number is another's */

	for (size_t i = known->n; i-- > 0;) {
		struct process p = {.pid = known->at[i].pid};

		if (!process_look_up(&p) || p.born != known->at[i].born)
			continue;
		grouped |= o && p.group == o->group;
		if (!is_dead_process(&p) && !is_among(a->spared, &p) &&
		    !(o && is_hold(&p)))
			signal_process(&p, a);
	}
	if (grouped && o->group && o->whole && own_number() == getpid())
		kill(-o->group, a->sig);
}

bool
tree_has_known(void)
{
	for (size_t i = 0; i < below.n; i++) {
		struct process p = {.pid = below.at[i].pid};

		if (process_look_up(&p) && p.born == below.at[i].born &&
		    !is_dead_process(&p))
			return true;
	}
	return false;
}

/* For one more look of a hunt that began then? */
static bool
has_time(const struct aim *a, instant began)
{
	instant now = instant_now();

	return now < began + HUNT_PATIENCE &&
	    (a->by <= began || now + look_took <= a->by);
}

/*
 * Stops all, until nobody new comes, or the time is up.  A process that does not stop at once
 * may just be bearing a child; it may also be one that cannot be stopped.  With `spares` the
 * one outside gets no signal.  False: there is nobody.
 */
static bool
stop_all(pid_t root, const struct aim *a, bool spares)
{
	instant began = instant_now();
	size_t hidden = 0;

	for (int quiet = 0; quiet < 2 && has_time(a, began);) {
		struct sweep s = {.aim = *a, .spares_outside = spares};

		s.aim.sig = SIGSTOP;
		s.aim.wake = false;
		sweep(&s, root);
		if (s.alive == 0)
			return false;
		if (s.fresh || s.hidden > hidden ||
		    (s.moves && instant_now() < began + STOP_PATIENCE))
			quiet = 0;
		else
			quiet++;
		hidden = s.hidden;
		if (!quiet)
			poll(NULL, 0, 1); /* they need the processor to stop */
	}
	return true;
}

/*
 * A shell at a terminal takes it back from a job that has stopped.  Such a job leads a
 * process group, in which what has lost its parent is found; so it may run on here.
 */
size_t
tree_signal(pid_t root, const struct aim *a)
{
	struct sweep s = {.aim = *a};

	if (a->outside && a->wake)
		stop_all(root, a, a->outside->group != 0);
	sweep(&s, root);
	return s.alive;
}

size_t
tree_kill(pid_t root, const struct aim *a)
{
	struct sweep s = {.aim = *a};
	struct aim stop = *a;

	stop.sig = SIGSTOP;
	s.aim.sig = SIGKILL;
	s.aim.wake = stop.wake = false;
	signal_known(&stop);
	if (!stop_all(root, a, false))
		return 0;
	signal_known(&s.aim);
	sweep(&s, root);
	return s.alive;
}

void
outside_look(struct outside *o)
{
	if (o)
		tree_signal(0, &(struct aim){.outside = o});
}

bool
outside_is_empty(const struct outside *o)
{
	return o->quiet >= 2;
}

bool
tree_spare(struct processes *spared, pid_t keeper)
{
	struct sweep s = {.root = own_number()};
	bool seen;

	s.own[0].pid = number_in_proc(keeper);
	s.but.n = s.own[0].pid && process_look_up(&s.own[0]);
	s.but.at = s.own;
	look_at_all(&s);
	/* /proc may hide the keeper, from both looks; never ourselves */
	seen = !s.cut && s.own[0].pid && find_process(&s.all, s.root) &&
	    (s.but.n == 1 || !find_process(&s.all, s.own[0].pid));
	if (seen && lives(keeper))
		keep_ours(spared, &s);
	free(s.all.at);
	return seen;
}
