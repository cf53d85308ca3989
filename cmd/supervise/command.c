/*
 * command.c - the ward of `dlock run`.
 *
 *	find     the program, before anything is locked
 *	begin    the keeper adopts orphans and forks the stub, which waits at the gate
 *	start    "go", and with it the variables that tell of the grant
 *	look     what does not fit into the gate at once is sent; the gate is shut: the program
 *	         runs, or never will
 *	reap     a child has changed: the command is suspended, goes on, or has ended, and then it
 *	         is seen whether all of the rest have
 *	signal   a signal is passed on
 *	stop     the command and all below the keeper are signalled
 */
#include "command.h"

#include "backends/common/append.h"
#include "cmd/say.h"
#include "cmd/text.h"
#include "keeper_job.h"
#include "react.h"
#include "stub.h"
#include "told.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TREE_AGAIN (20 * NS_PER_MS) /* pause between two looks at what it has left */

/* for the front to erase its line; it may be suspended, or wait for a processor */
#define CLEAR_SCREEN (500 * NS_PER_MS)

/* ---- find ---- */

/* Where the program is; a page's fault less than on the stack, and it stays. */
static char found[PATH_MAX];

/*
 * Can `path` be executed by us?  If not: errno.  Where that cannot be asked (libc.h), it is
 * enough that there is a file that somebody can execute; execve(2) decides the rest.
 */
static bool
is_executable(const char *path)
{
	bool may = faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
	struct stat st;

	if (!may && errno != EPERM && errno != ENOSYS)
		return false;
	if (stat(path, &st) != 0)
		return may;
	if (S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (may || (st.st_mode & 0111))
		return true;
	else
		errno = EACCES;
	return false;
}

bool
command_lacks_interpreter(const char *path, char *out, size_t size)
{
	char first[256] = "", name[200], *start = first + 2, *end;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, first, sizeof first - 1);
	bool cr;

	if (fd >= 0)
		close(fd);
	if (n < 2)
		return false;
	first[n] = '\0';
	first[strcspn(first, "\n")] = '\0';
	if (strncmp(first, "#!", 2) != 0) {
		snprintf(out, size, "%s",
		    "the file is there, but not what loads it (a program for another C library?)");
		return strncmp(first, "\177ELF", 4) == 0;
	}
	start += strspn(start, " \t");
	end = start + strcspn(start, " \t\r");
	cr = *end == '\r';
	*end = '\0';
	text_clean(name, sizeof name, start, strlen(start));
	snprintf(out, size,
	    "its first line names the interpreter '%s'%s, which is not there%s", name,
	    cr ? " with a CR" : "", cr ? ": remove the CR at the ends of its lines" : "");
	return true;
}

/* found: a directory of PATH ("": the working directory) and the name.  Does it fit? */
static bool
put_path(const char *dir, size_t n, const char *name)
{
	char *at = found, *end = at + sizeof found;

	if (n == 0) {
		dir = ".";
		n = 1;
	}
	if (n + strlen(name) + sizeof "/" > sizeof found)
		return false;
	memcpy(at, dir, n);
	append_text(append_text(at + n, end, "/"), end, name);
	return true;
}

const char *
command_find(const char *name)
{
	const char *dirs = getenv("PATH"), *end;
	int error = ENOENT;

	if (strchr(name, '/')) {
		if (strlen(name) >= sizeof found) {
			errno = ENAMETOOLONG;
			return NULL;
		}
		strcpy(found, name);
		return is_executable(found) ? found : NULL;
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;; dirs = end + 1) {
		end = strchrnul(dirs, ':');
		if (put_path(dirs, end - dirs, name)) {
			if (is_executable(found))
				return found;
			/* what is there says more than what is not */
			if (error == ENOENT && errno != ENOTDIR)
				error = errno;
		}
		if (!*end)
			break;
	}
	errno = error;
	return NULL;
}

/* ---- before front and keeper part ---- */

static const char *
command_objection(const struct ward *w)
{
	const char *why = tree_objection();

	(void)w;
	return why ? why : process_adopt();
}

static bool
command_tell(const struct run *r, const char *text)
{
	(void)r;
	say("%s", text);
	return true;
}

/* ---- begin ---- */

static struct stub stub;

/* False, with errno.  The stub notes in the page what becomes of it. */
static bool
fork_stub(struct command *c, const struct run *r)
{
	int ends[2];

	stub = (struct stub){.front = getppid(),
	    .keeper = getpid(),
	    .leads = !r->origin->has_tty,
	    .origin = r->origin,
	    .path = r->path,
	    .argv = r->params->command.argv,
	    .exec = &r->page->exec};

	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	/* the pages that a user may have in pipes are few, and a thousand runs may wait */
	fcntl(ends[1], F_SETPIPE_SZ, 1);
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	stub.gate = ends[0];
	stub.others[0] = r->ends[1];
	stub.others[1] = ends[1];
	c->pid = stub_fork(&stub, told_room(r));
	close(ends[0]);
	if (c->pid < 0) {
		close(ends[1]);
		return false;
	}
	c->gate = ends[1];
	c->group = stub.leads ? c->pid : 0;
	/* and by the stub: should we end before it has, HUP goes to the caller's group */
	if (c->group)
		setpgid(c->pid, c->pid);
	return true;
}

static const char *
command_begin(struct keeper *k, int *kept)
{
	k->root = getpid();
	k->command.gate = -1;
	if (process_adopt())
		return "cannot adopt orphans";
	if (!fork_stub(&k->command, k->run))
		return "cannot start a process";
	*kept = k->command.gate;
	return NULL;
}

/* ---- start ---- */

/* A stub that cannot be let go is killed, and the gate says so. */
static void
kill_stub(struct command *c)
{
	kill(c->pid, SIGKILL);
	c->nunsent = 0;
}

/*
 * "go", and what goes with it: after `latest` the stub fails with ETIME.  Never blocks: what finds
 * no room is sent when the gate can be written.
 */
static void
send_go(struct command *c, instant latest, const struct told *told)
{
	struct go go = {latest, told->n};
	struct iovec all[] = {{&go, sizeof go}, {told->text, told->n}};
	/* "go" has room: nothing lies in the gate yet.  SIGPIPE is blocked */
	ssize_t sent = writev(c->gate, all, 2);

	c->unsent = told->text;
	c->nunsent = told->n;
	if (sent < (ssize_t)sizeof go) {
		kill_stub(c);
		return;
	}
	c->unsent += sent - sizeof go;
	c->nunsent -= sent - sizeof go;
}

static void
send_rest(struct command *c)
{
	ssize_t n = write(c->gate, c->unsent, c->nunsent);

	if (n >= 0) {
		c->unsent += n;
		c->nunsent -= n;
	} else if (errno != EAGAIN && errno != EINTR) {
		kill_stub(c);
	}
}

static bool
command_start(struct keeper *k, const struct told *told)
{
	instant now = instant_now();
	instant latest = instant_first(
	    k->keep.lease.term_at, atomic_load(&k->page->begin_by));
	/* a grant that is late already is not made too late by that */
	instant patience = instant_first(now + CLEAR_SCREEN, now + (latest - now) / 2);

	/* what is in the link has reached the front, even one that sleeps */
	if (!news_grant(&k->news, &k->lock.grant, &k->lock.anchors,
		k->lock.outer.watched.n > 0, NULL))
		return false;
	atomic_store(&k->page->command, k->command.pid);
	atomic_store(&k->page->granted_at, now);
	/* the live line of a run that has waited is erased before the command writes */
	while (atomic_load(&k->page->front.on_screen) && instant_now() < patience)
		poll(NULL, 0, 1); /* it needs the processor to erase it */
	send_go(&k->command, latest, told);
	return true;
}

/* Kills the stub, if it has never begun and was not reaped. */
static void
command_dismiss(struct keeper *k)
{
	struct command *c = &k->command;

	if (atomic_load(&k->page->granted_at) || k->keep.tree.gone || c->gate < 0)
		return;
	close(c->gate);
	c->gate = -1;
	kill(c->pid, SIGKILL);
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

/* ---- look ---- */

/*
 * Is the moment of the command's start worth a wake-up?  A stub that cannot execute it ends, and
 * then the gate is looked at anyhow.
 */
static bool
awaits_start(const struct keeper *k)
{
	const struct params *p = k->params;

	return k->keep.phase != PH_ASK &&
	    (p->show.status_fd >= 0 || p->terms.max_run != NEVER);
}

/*
 * Orphans become our children, but not in another pid namespace.  A process that was seen below
 * us before it went there is to end with the rest.
 */
static bool
awaits_rest(const struct keeper *k)
{
	return k->command.childless && !k->keep.tree.empty && k->keep.phase != PH_OVER;
}

static instant
command_await(const struct keeper *k, struct pollfd *set)
{
	bool sends = k->command.nunsent > 0;

	*set = (struct pollfd){.fd = sends || awaits_start(k) ? k->command.gate : -1,
	    .events = sends ? POLLOUT : POLLIN};
	return awaits_rest(k) ? instant_now() + TREE_AGAIN : NEVER;
}

/*
 * Has the gate been shut?  POLLERR: nobody can read from it any more.  Before the grant that is no
 * sign of anything.
 */
static void
check_gate(struct keeper *k)
{
	struct command *c = &k->command;
	struct pollfd gate = {.fd = c->gate};
	int exec;

	if (c->gate < 0 || k->keep.phase == PH_ASK || poll(&gate, 1, 0) <= 0)
		return;
	close(c->gate);
	c->gate = -1;
	exec = atomic_load(stub.exec);
	if (exec == EXEC_CALLED) {
		if (k->params->show.status_fd >= 0)
			news_send(&k->news, MSG_STARTED, c->pid, "");
		react(k, EV_STARTED, 0);
		return;
	}
	if (exec == EXEC_NOT_CALLED && k->keep.phase == PH_HOLD)
		fault_set(
		    &k->fault, RC_SYSTEM, "the process for the command could not start");
	react(k, EV_EXEC_FAILED, exec);
}

static void
check_rest(struct keeper *k)
{
	if (awaits_rest(k) && !(k->keep.tree.stopping && tree_has_known()))
		react(k, EV_EMPTY, 0);
}

static void
command_look(struct keeper *k, const struct pollfd *set)
{
	if (set->revents == POLLOUT)
		send_rest(&k->command);
	else if (set->revents)
		check_gate(k);
	check_rest(k);
}

/* ---- reap ---- */

static void
command_suspended(struct keeper *k, int sig)
{
	k->command.suspended = true;
	if (k->keep.tree.killing_since != NEVER)
		return; /* halted by us: nobody is to be suspended with it */
	keeper_job_leave_session(k);
	news_send(&k->news, MSG_SUSPENDED, sig, "");
}

static void
command_resumed(struct keeper *k)
{
	k->command.suspended = false;
	news_send(&k->news, MSG_RESUMED, 0, "");
	if (atomic_load(&k->page->front.mirrored))
		keeper_job_wake_front(k);
}

static void
command_ended(struct keeper *k, int status)
{
	k->command.suspended = false;
	check_gate(k); /* "could not be executed" comes before "has ended" */
	if (k->keep.phase == PH_ASK)
		fault_set(&k->fault, RC_SYSTEM,
		    "the process for the command has ended before it started the command");
	react(k, EV_ENDED, status);
}

/*
 * The page forgets the command before its number is free for others: we could be frozen in
 * between, and the front kill another process.
 */
static void
reap_one(struct keeper *k, const siginfo_t *ended)
{
	int status;

	if (ended->si_pid == k->command.pid) {
		atomic_store(&k->page->died_at, instant_now());
		if (ended->si_code != CLD_EXITED)
			atomic_store(&k->page->died_of, ended->si_status);
		atomic_store(&k->page->command, 0);
	}
	if (waitpid(ended->si_pid, &status, WNOHANG) == k->command.pid)
		command_ended(k, status);
}

/* It may have ended since it was seen, and is not reaped here. */
static void
take_change(struct keeper *k, pid_t child)
{
	siginfo_t changed = {0};

	if (waitid(P_PID, child, &changed, WSTOPPED | WCONTINUED | WNOHANG) != 0 ||
	    changed.si_pid != k->command.pid)
		return;
	if (changed.si_code == CLD_CONTINUED)
		command_resumed(k);
	else
		command_suspended(k, changed.si_status);
}

static void
command_reap(struct keeper *k)
{
	const int any = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT;
	siginfo_t changed = {0};

	for (; waitid(P_ALL, 0, &changed, any) == 0; changed.si_pid = 0) {
		if (changed.si_pid == 0)
			return;
		if (process_is_end(&changed))
			reap_one(k, &changed);
		else
			take_change(k, changed.si_pid);
	}
	k->command.childless = errno == ECHILD;
	check_rest(k);
}

/* ---- signals ---- */

/* Its end may lie in the signalfd, behind the link. */
static enum signal_state
command_state(const struct keeper *k)
{
	pid_t command = atomic_load(&k->page->command);

	return command && process_state(command) != 'Z' ? SIGNAL_RUNS : SIGNAL_RESTS;
}

/* When the command has ended: to all that --wait-tree waits for, else to those that have joined. */
static void
signal_rest(struct keeper *k, const struct aim *aim)
{
	if (k->params->terms.wait_tree)
		tree_signal(getpid(), aim);
	else
		join_outer_signal(&k->socket, aim);
}

static void
command_signal(struct keeper *k, enum signal_deed deed, const struct signal_case *c)
{
	struct aim aim = {.sig = c->sig};

	switch (deed) {
	case DEED_PASS_ON:
	case DEED_PASS_ON_OUTSIDE:
		/* to the command alone, as without us: its own children are its affair */
		if (c->state == SIGNAL_RUNS) {
			kill(k->command.pid, c->sig);
			return;
		}
		aim.but = deed == DEED_PASS_ON_OUTSIDE ? k->job.group : 0;
		break;
	case DEED_END_REST:
		aim = (struct aim){.sig = k->params->command.signal, .wake = true};
		break;
	default:
		return;
	}
	signal_rest(k, &aim);
}

/*
 * The look comes before the signal, for parents end by it, and what they leave in another pid
 * namespace is below us no longer.  Where the lock is lost there is none: a look takes time, the
 * time is short, and many runs of one machine may lose theirs in one moment.
 */
static void
command_stop(struct keeper *k, const struct aim *aim)
{
	if (!keep_is_lost(&k->keep))
		tree_signal(getpid(), &(struct aim){.sig = 0});
	tree_signal(getpid(), aim);
}

static const struct ward_ops command_ops = {
    .objection = command_objection,
    .tell = command_tell,
    .begin = command_begin,
    .start = command_start,
    .dismiss = command_dismiss,
    .await = command_await,
    .look = command_look,
    .reap = command_reap,
    .state = command_state,
    .signal = command_signal,
    .stop = command_stop,
};

struct ward command_ward = {.ops = &command_ops, .until = NEVER};
