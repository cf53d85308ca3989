/* tree.c - finds and signals all descendants of a process. */
#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	PID_MAX = 1 << 22,   /* PID_MAX_LIMIT of the kernel: no pid is greater */
	PID_USUAL = 1 << 15, /* nor than this on most machines */
};

struct process {
	pid_t pid, parent, group; /* as /proc numbers them */
	char state;
	int threads;
	/* in clock ticks; with the pid, what makes a process itself */
	unsigned long long born;
	/* is called HOLD_NAME, as anybody may be; and has announced itself, if we asked */
	bool named, asked, holds;
	bool ours;
};

/* ---- reading /proc ---- */

static int proc = -1;    /* /proc itself */
static int reserve = -1; /* for what a sweep has to open besides */

void
tree_prepare(void)
{
	proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	reserve = proc < 0 ? -1 : fcntl(proc, F_DUPFD_CLOEXEC, 0);
}

static bool
give_up_reserve(void)
{
	bool had = reserve >= 0;

	if (had)
		close(reserve);
	reserve = -1;
	return had;
}

static int
open_at(int dir, const char *path, int flags)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && give_up_reserve())
		fd = openat(dir, path, O_RDONLY | O_CLOEXEC | flags);
	return fd;
}

static bool
read_at(int dir, const char *path, char *text, size_t size)
{
	int fd = open_at(dir, path, 0);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

/*
 * Reads what the kernel tells in dir/path of one process into all of *p but its pid;
 * false: there is no such process.
 */
static bool
read_stat(int dir, const char *path, struct process *p)
{
	char text[1024], *after_name;
	int parent = 0, group = 0;

	if (!read_at(dir, path, text, sizeof text))
		return false;
	/* the name may itself have brackets and blanks */
	after_name = strrchr(text, ')');
	if (!after_name ||
	    sscanf(after_name + 1,
		" %c %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d %*s %llu",
		&p->state, &parent, &group, &p->threads, &p->born) != 5)
		return false;
	p->parent = parent;
	p->group = group;
	*after_name = '\0';
	p->named = strcmp(strchrnul(text, '(') + 1, HOLD_NAME) == 0;
	return true;
}

static bool
look_up(struct process *p)
{
	char path[32];

	snprintf(path, sizeof path, "%d/stat", (int)p->pid);
	return read_stat(proc, path, p);
}

/*
 * The number of this process in /proc; 0: it is not there, so this is no /proc of ours.
 */
static pid_t
own_number(void)
{
	char text[16];
	ssize_t n = readlinkat(proc, "self", text, sizeof text - 1);

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
	char path[40], text[512], *line;
	bool found;
	int fd;

	if (self == 0 || self == getpid() || pid == getpid())
		return self == getpid() ? pid : self;
	fd = pidfd_open(pid, 0);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "self/fdinfo/%d", fd);
	found = read_at(proc, path, text, sizeof text);
	close(fd);
	line = found ? strstr(text, "\nPid:") : NULL;
	return line && atoi(line + 5) > 0 ? atoi(line + 5) : 0;
}

char
tree_state(pid_t pid)
{
	struct process p = {.pid = number_in_proc(pid)};

	return p.pid && look_up(&p) ? p.state : '\0';
}

enum kin
tree_relation(pid_t root, pid_t pid)
{
	struct process p = {.pid = number_in_proc(pid)};
	pid_t wanted = number_in_proc(root);

	/* Bounded, since the chain may change while we climb. */
	for (int steps = 0; steps < 10000; steps++) {
		if (p.pid == 0 || wanted == 0 || !look_up(&p))
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

struct list {
	struct process *at;
	size_t n, room;
};

static int
by_pid(const void *a, const void *b)
{
	pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;

	return (x > y) - (x < y);
}

/* False: no memory. */
static bool
add_process(struct list *l, const struct process *p)
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

/* False: no memory for all of them. */
static bool
add_entries(struct list *l, const char *entries, size_t size)
{
	for (size_t i = 0; i < size;) {
		const struct dirent64 *entry = (const void *)(entries + i);
		struct process p = {.pid = isdigit((unsigned char)*entry->d_name)
			? atoi(entry->d_name)
			: 0};

		if (p.pid > 0 && look_up(&p) && !add_process(l, &p))
			return false;
		i += entry->d_reclen;
	}
	return true;
}

/* All that /proc shows, by pid; at[] is the caller's. */
static struct list
list_processes(void)
{
	_Alignas(struct dirent64) char entries[8192];
	struct list l = {0};
	ssize_t size;

	lseek(proc, 0, SEEK_SET);
	while ((size = getdents64(proc, entries, sizeof entries)) > 0 &&
	    add_entries(&l, entries, size))
		continue;
	if (l.n)
		qsort(l.at, l.n, sizeof *l.at, by_pid);
	return l;
}

static const struct process *
find_process(const struct process *at, size_t n, pid_t pid)
{
	struct process wanted = {.pid = pid};

	return n ? bsearch(&wanted, at, n, sizeof *at, by_pid) : NULL;
}

static bool
is_marked(const struct list *l, pid_t pid)
{
	const struct process *found = find_process(l->at, l->n, pid);

	return found && found->ours;
}

/* Seen before, and the same: `born` is 0 where /proc did not tell. */
static bool
is_spared(const struct spared *s, const struct process *p)
{
	const struct process *found = s ? find_process(s->list, s->n, p->pid) : NULL;

	return found && (found->born == p->born || found->born == 0 || p->born == 0);
}

/* ---- dlock's own ---- */

/*
 * The name in the abstract namespace under which a process of a hold announces itself:
 * what makes it itself, and nobody else.
 */
static socklen_t
write_announcement(struct sockaddr_un *to, const struct process *p)
{
	int n;

	*to = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(to->sun_path + 1, sizeof to->sun_path - 1, HOLD_NAME "-%d-%llu",
	    (int)p->pid, p->born);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

static int
open_announcement(void)
{
	return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool
tree_announce(void)
{
	struct process self = {0};
	struct sockaddr_un name;
	char number[16] = "";
	int fd;

	if (readlink("/proc/self", number, sizeof number - 1) <= 0 ||
	    !read_stat(AT_FDCWD, "/proc/self/stat", &self))
		return true; /* then nobody sees us there, either */
	self.pid = atoi(number);
	fd = open_announcement();
	if (fd < 0)
		return false;
	shutdown(fd, SHUT_RD);
	if (bind(fd, (struct sockaddr *)&name, write_announcement(&name, &self)) == 0)
		return true;
	close(fd); /* somebody else has taken the name: we do without */
	return true;
}

static bool
has_announced_itself(const struct process *p)
{
	struct sockaddr_un name;
	socklen_t size = write_announcement(&name, p);
	int fd = open_announcement();
	bool found;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && give_up_reserve())
		fd = open_announcement();
	if (fd < 0)
		return false;
	found = connect(fd, (struct sockaddr *)&name, size) == 0;
	close(fd);
	return found;
}

/* A process of a hold, ours or another's; asked once in each look, and only if it matters. */
static bool
is_of_hold(struct process *p)
{
	if (p->named && !p->asked) {
		p->asked = true;
		p->holds = has_announced_itself(p);
	}
	return p->holds;
}

/* ---- marking ---- */

/*
 * Marks what descends from root (0: from nobody) or who is marked already; again and
 * again, for a child may stand before its parent.  `others`: not what holds for others.
 */
static void
mark_more(struct list *l, pid_t root, const struct spared *spared, bool others)
{
	bool grown = true;

	while (grown) {
		grown = false;
		for (size_t i = 0; i < l->n; i++) {
			struct process *p = &l->at[i];

			if (p->ours || is_spared(spared, p) ||
			    ((root == 0 || p->parent != root) &&
				!is_marked(l, p->parent)) ||
			    (others && is_of_hold(p)))
				continue;
			p->ours = grown = true;
		}
	}
}

static void
mark_descendants(struct list *l, pid_t root, const struct spared *spared)
{
	if (root > 0)
		mark_more(l, root, spared, false);
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

/* ---- children, without /proc ---- */

bool
tree_has_children(void)
{
	siginfo_t found;

	return waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/*
 * Have we children, and no zombies among them?  (After those are reaped one sees more.)
 */
static bool
all_children_live(void)
{
	siginfo_t found = {0};

	return waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	    found.si_pid == 0;
}

/* The next pid of a living child of ours in (after, last]; 0: there is none. */
static pid_t
next_child(pid_t after, pid_t last)
{
	for (pid_t pid = after + 1; pid <= last; pid++) {
		siginfo_t found = {0};

		if (waitid(P_PID, pid, &found, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    found.si_pid == 0)
			return pid;
	}
	return 0;
}

static bool
lives(pid_t child)
{
	return next_child(child - 1, child) == child;
}

/*
 * The pid that was given out last, learned by asking for one; 0: there is none to be
 * had.
 */
static pid_t
newest_pid(void)
{
	pid_t pid = _Fork();

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	return pid > 0 ? pid : 0;
}

/* ---- sending ---- */

static void
send_to(pid_t pid, const struct aim *a)
{
	kill(pid, a->sig);
	if (a->wake)
		kill(pid, SIGCONT);
}

/* Nothing is needed for this but a number. */
static void
signal_command(const struct aim *a)
{
	if (a->command == 0)
		return;
	if (a->leads)
		send_to(-a->command, a);
	if (!a->leads || getpgid(a->command) != a->command)
		send_to(a->command, a);
}

/*
 * By its number: a moment lies between the look and the signal, but no descriptor is
 * needed for both at once.
 */
static void
signal_number(const struct process *p, const struct aim *a)
{
	struct process again = *p;

	if (own_number() == getpid() && look_up(&again) && again.born == p->born)
		send_to(p->pid, a);
}

/*
 * The pid may be another process's since we looked: hold it fast, look
 * again.  (Its parent may differ by now: the one before it in the list has just
 * got the same signal.)  A directory in /proc is as good as a pidfd, and means
 * the same process whatever number it has here.
 */
static void
signal_process(const struct process *p, const struct aim *a)
{
	struct process again = *p;
	char path[16];
	int fd, error = 0;

	snprintf(path, sizeof path, "%d", (int)p->pid);
	fd = open_at(proc, path, O_DIRECTORY);
	if (fd < 0 || !read_stat(fd, "stat", &again) ||
	    pidfd_send_signal(fd, again.born == p->born ? a->sig : 0, NULL, 0) != 0)
		error = errno;
	else if (a->wake && again.born == p->born)
		pidfd_send_signal(fd, SIGCONT, NULL, 0);
	if (fd >= 0)
		close(fd);
	if (error == EMFILE || error == ENFILE || error == ENOSYS)
		signal_number(p, a);
}

/* The descendants of root that /proc shows. */
static size_t
signal_seen(pid_t root, const struct aim *a)
{
	struct list l = list_processes();
	pid_t command = a->command ? number_in_proc(a->command) : 0;
	size_t alive = 0;

	mark_descendants(&l, number_in_proc(root), a->spared);
	for (size_t i = 0; i < l.n; i++) {
		const struct process *p = &l.at[i];

		if (!p->ours || is_dead_process(p))
			continue;
		alive++; /* also if it has died since: it may have started another */
		if (command == 0 ||
		    (p->pid != command && !(a->leads && p->group == command)))
			signal_process(p, a);
	}
	free(l.at);
	return alive;
}

/* How many there are in (after, last] but the spared, of whom there are *spared more. */
static size_t
signal_range(pid_t after, pid_t last, const struct aim *a, size_t *spared)
{
	size_t n = 0;

	for (pid_t pid = after; (pid = next_child(pid, last)) > 0;) {
		struct process p = {.pid = pid};

		if (is_spared(a->spared, &p)) {
			++*spared;
			continue;
		}
		n++;
		if (pid != a->command)
			send_to(pid, a);
	}
	return n;
}

static pid_t
greater(pid_t a, pid_t b)
{
	return a > b ? a : b;
}

/*
 * Our children, seen or not; theirs become ours when they die.  All are younger than we
 * are: their numbers lie between ours and the newest, or where numbers have begun again
 * since, below the newest or above ours.  To try every number is the last resort: it
 * takes a second and a half, several on a busy machine, and then we might give up.  So
 * it is not done for a child that has died while we looked.
 */
static size_t
signal_children(const struct aim *a)
{
	pid_t self = getpid(), newest;
	size_t n = 0, spared = 0;

	if (!all_children_live())
		return 0;
	newest = newest_pid();
	if (newest > self)
		n = signal_range(self, newest, a, &spared);
	if (n || spared)
		return n;
	n = signal_range(0, newest < self ? newest : self, a, &spared) +
	    signal_range(greater(self, newest), PID_USUAL, a, &spared);
	if (n || !all_children_live())
		return n;
	return signal_range(
	    greater(greater(self, newest), PID_USUAL), PID_MAX, a, &spared);
}

/*
 * Who forks and exits faster than we can look at a whole machine is our own child
 * by then, and most kernels list these in one go.  Was there any?
 */
static bool
kill_children(const struct aim *a)
{
	char text[4096], *rest, *word;
	bool any = false;

	if (own_number() != getpid() ||
	    !read_at(proc, "thread-self/children", text, sizeof text))
		return false;
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		struct process p = {.pid = atoi(word)};

		/* the last number may be cut */
		if (p.pid > 0 && !is_spared(a->spared, &p) && lives(p.pid))
			any = kill(p.pid, SIGKILL) == 0 || any;
	}
	return any;
}

size_t
tree_signal(pid_t root, const struct aim *a)
{
	size_t alive;

	signal_command(a);
	alive = signal_seen(root, a);
	if (a->outside)
		alive += outside_signal(a->outside, a->sig, a->wake);
	if (root == getpid() && a->sig == SIGKILL && kill_children(a) && alive == 0)
		alive = 1;
	return alive || root != getpid() ? alive : signal_children(a);
}

/* ---- outside ---- */

bool
outside_open(struct outside *o, pid_t pid)
{
	int error;

	*o = (struct outside){.pid = pid, .fd = pidfd_open(pid, 0)};
	if (o->fd < 0)
		return false;
	if (pidfd_send_signal(o->fd, 0, NULL, 0) == 0 && !outside_has_ended(o))
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

	return poll(&p, 1, 0) > 0;
}

/* While it lives: does it lead a process group, and since when? */
static void
note_group(struct outside *o, const struct list *l, pid_t root)
{
	const struct process *p = find_process(l->at, l->n, root);

	if (!p)
		return;
	o->group = p->group == root ? root : 0;
	o->born = p->born;
}

/*
 * Was its parent one of them, who ended before we saw it?  Then it is in the group that
 * the process itself leads, whose number is nobody else's as long as one is in it, and
 * has been adopted by who has adopted our front.  (The process may have been started
 * beside others of its group, in a pipeline; these have a parent of their own.)
 */
static bool
is_orphan(struct list *l, const struct outside *o, const struct process *p)
{
	if (o->group == 0 || p->group != o->group || p->born < o->born)
		return false;
	for (size_t i = 0; i < l->n; i++)
		if (l->at[i].parent == p->parent && is_of_hold(&l->at[i]))
			return true;
	return false;
}

/*
 * The process itself, as long as its number is its own, those known from before, and
 * orphans.
 */
static void
mark_known(struct list *l, const struct outside *o, pid_t root)
{
	const struct spared known = {o->n, o->known};

	for (size_t i = 0; i < l->n; i++)
		l->at[i].ours = (l->at[i].pid == root || is_spared(&known, &l->at[i]) ||
				    is_orphan(l, o, &l->at[i])) &&
		    !is_of_hold(&l->at[i]);
}

/* Keeps those that are marked, unless /proc has shown nobody at all. */
static void
keep_known(struct outside *o, struct list *l)
{
	size_t n = 0;

	if (l->n == 0)
		return;
	for (size_t i = 0; i < l->n; i++)
		if (l->at[i].ours)
			l->at[n++] = l->at[i];
	free(o->known);
	o->known = l->at;
	o->n = n;
}

size_t
outside_signal(struct outside *o, int sig, bool wake)
{
	const struct aim aim = {.sig = sig, .wake = wake};
	struct list l = list_processes();
	pid_t root = number_in_proc(o->pid);
	size_t alive = 0;

	if (outside_has_ended(o)) {
		root = 0;
	} else {
		alive = 1;
		pidfd_send_signal(o->fd, sig, NULL, 0);
		if (wake)
			pidfd_send_signal(o->fd, SIGCONT, NULL, 0);
	}
	if (root)
		note_group(o, &l, root);
	mark_known(&l, o, root);
	mark_more(&l, 0, NULL, true);
	for (size_t i = 0; i < l.n; i++) {
		if (!l.at[i].ours || l.at[i].pid == root || is_dead_process(&l.at[i]))
			continue;
		alive++;
		signal_process(&l.at[i], &aim);
	}
	keep_known(o, &l);
	return alive;
}

/* ---- sparing ---- */

/* Where there is no /proc: children at least.  They are older than the keeper. */
static void
list_elders(struct list *l, pid_t keeper)
{
	pid_t pid = keeper > getpid() ? getpid() : 0, last = pid ? keeper - 1 : PID_MAX;

	while ((pid = next_child(pid, last)) > 0)
		if (pid != keeper)
			add_process(l, &(struct process){.pid = pid});
}

static void
list_strangers(struct list *l, pid_t keeper)
{
	struct process own = {.pid = number_in_proc(keeper)};
	const struct spared but = {1, &own};
	size_t n = 0;

	*l = list_processes();
	mark_descendants(l, own_number(), &but);
	for (size_t i = 0; i < l->n; i++)
		if (l->at[i].ours)
			l->at[n++] = l->at[i];
	l->n = n;
}

void
tree_spare(struct spared *s, pid_t keeper)
{
	struct list l = {0};

	if (own_number() != 0)
		list_strangers(&l, keeper);
	else if (s->n == 0)
		list_elders(&l, keeper);
	else
		return;
	if (!lives(keeper)) {
		free(l.at);
		return;
	}
	free(s->list);
	*s = (struct spared){l.n, l.at};
}
