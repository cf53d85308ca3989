/*
 * hold.c - dlock hold and dlock release: a lock for a script that goes on by itself.
 *
 * A hold is a run without a command.  Keeper and front are the same.  They hold the lock for a
 * process that exists already, PID, or for a length of time (supervise/script.c).
 *
 *	asker       the process that the user has started.  It waits, and ends when the lock
 *	            is there, or as the front has ended
 *	front       while it waits it is in the asker's process group and speaks; then
 *	            it gives the handle to stdout, and goes into the background
 *	keeper      as in a run; it also waits for the end of PID, for --for, and for
 *	            dlock release, which asks through the socket that nested runs use
 *	release     asks that keeper to release, and tells how it has ended
 *
 * With --shell, both print what a POSIX shell evaluates.
 */
#include "cmd.h"

#include "backends/common/append.h"
#include "backends/common/libc.h"
#include "cmd/supervise/delivery.h"
#include "cmd/supervise/join_address.h"
#include "cmd/supervise/join_find.h"
#include "cmd/supervise/join_release.h"
#include "cmd/supervise/loop.h"
#include "cmd/supervise/script.h"
#include "cmd/supervise/told.h"
#include "environment.h"
#include "exit.h"
#include "record.h"
#include "said.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the process that the lock is held for ---- */

/*
 * Is the process a shell at a terminal?  Such a shell leads its session, or gives its jobs
 * process groups of their own.
 */
static bool
is_interactive(pid_t pid, const struct origin *o)
{
	return o->has_tty && getsid(pid) == getsid(0) &&
	    (pid == getsid(0) || getpgid(pid) != getpgrp());
}

/*
 * Is the process the shell of a `$(...)` with more than this one command in it, or of a part of a
 * pipeline?  Such a shell is a fork of its parent, writes into the same pipe as we do, and ends
 * soon.
 */
static bool
is_part_of_pipe(pid_t pid)
{
	char path[64], its[4096], above[4096];
	struct stat ours, theirs;
	struct process shell = {.pid = pid};

	snprintf(path, sizeof path, "/proc/%d/fd/1", (int)pid);
	return fstat(STDOUT_FILENO, &ours) == 0 && S_ISFIFO(ours.st_mode) &&
	    stat(path, &theirs) == 0 && theirs.st_ino == ours.st_ino &&
	    theirs.st_dev == ours.st_dev && process_look_up(&shell) &&
	    process_read(pid, "cmdline", its, sizeof its) &&
	    process_read(shell.parent, "cmdline", above, sizeof above) &&
	    strcmp(its, above) == 0;
}

/* The lock is for our parent, the script, unless nobody could mean that process. */
static enum rc
find_script(struct params *p, const struct origin *o, struct fault *f)
{
	pid_t parent = getppid();

	if (is_interactive(parent, o))
		return fault_set(f, RC_USAGE,
		    "the parent process is a shell at a terminal, and dlock would end it if the lock is lost: say --for DURATION, or --pid %d",
		    (int)parent);
	if (is_part_of_pipe(parent))
		return fault_set(f, RC_USAGE,
		    "the parent process %d is a subshell of a $(...) or a pipeline, which ends with it: say --pid $$ for the script",
		    (int)parent);
	if (parent <= 1)
		return fault_set(f, RC_USAGE,
		    "the parent process has ended, is process 1 or in another pid namespace: say --pid PID or --for DURATION");
	p->steer.pid = parent;
	return RC_OK;
}

/* Says by errno why dlock cannot hold the lock for that process. */
static enum rc
refuse_process(pid_t pid, struct fault *f)
{
	if (errno == ENOSYS)
		return fault_set(f, RC_CONFIG,
		    "--pid %d: /proc is an outer pid namespace's, where dlock needs pidfd_open(2), which this kernel or sandbox lacks: Linux 5.3 has it; --for DURATION needs none",
		    (int)pid);
	return fault_set(f, RC_USAGE, "--pid %d: %s", (int)pid,
	    errno == EPERM
		? "this is another user's process, which dlock cannot stop if the lock is lost"
		: errno == ESRCH || errno == EINVAL || errno == ENOENT
		? "there is no such process (any more)"
		: strerror(errno));
}

/* With --show-arguments: the words of the process, with its name for the first. */
static void
read_arguments(struct params *p, char *name)
{
	static char path[64], text[4096], *words[256];
	size_t n = 0, used = 0;
	FILE *list;

	snprintf(path, sizeof path, "/proc/%d/cmdline", p->steer.pid);
	list = fopen(path, "re");
	if (list) {
		used = fread(text, 1, sizeof text - 1, list);
		fclose(list);
	}
	words[n++] = name;
	for (char *c = text + strlen(text) + 1; c < text + used && n < 255;
	     c += strlen(c) + 1)
		words[n++] = c;
	p->command.argv = words;
}

/* Finds and opens the process that the lock is for.  Records show it as the command. */
static enum rc
settle_script(struct script *s, struct params *p, const struct origin *o, struct fault *f)
{
	static char name[32];
	bool is_parent = p->steer.pid == 0 && p->steer.length == NEVER;
	const char *why = NULL;
	int pid;

	if (is_parent && find_script(p, o, f) != RC_OK)
		return RC_USAGE;
	pid = p->steer.pid;
	if (pid == 1)
		why = "nobody can stop process 1 if the lock is lost";
	else if (pid == getpid())
		why = "this is dlock itself, which ends at once";
	else if (pid != 0 && !outsider_open(&s->outsider, pid))
		return refuse_process(pid, f);
	else if (is_parent && getppid() != pid)
		return fault_set(f, RC_USAGE, /* its number may be another's by now */
		    "the parent process has ended: say --pid PID or --for DURATION");
	if (why)
		return fault_set(f, RC_USAGE, "--pid %d: %s", pid, why);
	if (pid != 0)
		s->ward.outsider = &s->outsider;
	if (pid == 0 || !process_read(pid, "comm", name, sizeof name))
		snprintf(name, sizeof name, "dlock");
	name[strcspn(name, "\n")] = '\0';
	p->command.shell[0] = name;
	p->command.shell[1] = NULL;
	p->command.argv = p->command.shell;
	if (pid && p->show.arguments)
		read_arguments(p, name);
	return RC_OK;
}

/* ---- for a shell ---- */

/*
 * Prints an assignment; value NULL unsets.  The line ends with a ; since an eval may join lines.
 */
static void
set_variable(FILE *to, const char *name, const char *value)
{
	if (!value) {
		fprintf(to, "unset %s;\n", name);
		return;
	}
	fprintf(to, "export %s='", name);
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", to);
		else
			putc(*value, to);
	fputs("';\n", to);
}

/*
 * A hold sets variables that the script may have already: from an outer run, or from an earlier
 * hold.  The old values are kept for the release, in levels: DLOCK_BEFORE_KEY has the value that
 * DLOCK_KEY had before this hold, DLOCK_BEFORE_BEFORE_KEY the one before the earlier hold.  Only
 * DLOCK_KEEPER is not kept.  Each hold's level has its handle; the last level has none.  The
 * levels of holds that have ended are left out, so that a script that holds in a loop keeps one
 * level.
 */
enum { LEVELS_MAX = 32, LEVEL_HANDLE = VAR_KEEPER };

static const char *
name_at(int level, int i)
{
	static char name[LEVELS_MAX * sizeof "BEFORE_" + 32];
	const char *end = name + sizeof name;
	char *at = append_text(name, end, "DLOCK_");

	for (; level > 0; level--)
		at = append_text(at, end, "BEFORE_");
	append_text(at, end,
	    i == LEVEL_HANDLE ? "HANDLE" : environment_names[i] + strlen("DLOCK_"));
	return name;
}

static bool
hold_has_ended(const char *handle)
{
	struct join_address a;

	return !join_address_read_handle(handle, &a) ||
	    join_address_life(&a) == KEEPER_ENDED;
}

/* Sets the values of level `from` at `level`.  `from` below 0 unsets them. */
static void
set_level(FILE *to, int level, int from)
{
	for (int i = 0; i <= LEVEL_HANDLE && from != level; i++) {
		const char *value = from < 0 ? NULL : environment_get(name_at(from, i));

		set_variable(to, name_at(level, i), value);
	}
}

/* Moves the levels from `from` on to the levels from `level` on. */
static void
move_levels(FILE *to, int from, int level)
{
	for (;; from++) {
		const char *handle = environment_get(name_at(from, LEVEL_HANDLE));
		bool last = !handle || from + 1 == LEVELS_MAX;

		if (last || !hold_has_ended(handle))
			set_level(to, level++, from);
		if (last)
			break;
	}
	for (; level <= from; level++)
		set_level(to, level, -1);
}

/* ---- in the front: the delivery ---- */

/* The pipe to the asker, and the errno that kept the grant from it. */
static int answered = -1, undelivered;

#define DELIVERY_PATIENCE (2 * NS_PER_S) /* for the reader of our stdout */

/* Prints the variables that a command would get, and the handle. */
static void
write_assignments(FILE *to, const struct run *r, const char *handle)
{
	move_levels(to, 0, 1);
	set_variable(to, "DLOCK_HANDLE", handle);
	for (enum variable i = 0; i < VARIABLES; i++)
		set_variable(to, environment_names[i], told_value(&r->told, i));
}

/* Prints the grant.  False, with errno: not all of it has reached stdout. */
static bool
print_grant(const struct run *r)
{
	char handle[JOIN_HANDLE_BYTES], *text = NULL;
	size_t n = 0, done;
	FILE *to = open_memstream(&text, &n);

	if (!to)
		return false;
	join_address_write_handle(told_value(&r->told, VAR_KEEPER), handle);
	if (r->params->steer.shell)
		write_assignments(to, r, handle);
	else
		fprintf(to, "%s\n", handle);
	if (fclose(to) != 0)
		return false;
	errno = 0;
	done = say_bytes(STDOUT_FILENO, text, n, DELIVERY_PATIENCE);
	free(text);
	errno = errno ? errno : EAGAIN;
	return done == n;
}

/*
 * Lets go of what is the user's: a `$(...)` waits for the end of its pipe, and umount(8) refuses
 * while a process is in the directory.  stdin is closed first, which makes room for /dev/null
 * even if descriptors have run out.
 */
static void
leave_caller(void)
{
	int null;

	setsid();
	(void)!chdir("/"); /* a failure does no harm to the lock */
	prctl(PR_SET_NAME, HOLD_NAME);
	close(STDIN_FILENO);
	null = libc_open_nothing(); /* the lowest that is free: 0 */
	for (int fd = 1; fd <= 2; fd++)
		if (dup2(null, fd) < 0)
			close(fd);
}

/*
 * Prints the grant, and leaves the asker's life.  Until here we die with the asker: a hold that
 * nobody has heard of could never be released.
 */
static bool
deliver_grant(const struct run *r)
{
	prctl(PR_SET_PDEATHSIG, 0);
	if (getppid() != script_of(r)->asker) {
		undelivered = ESRCH;
		return false;
	}
	if (!print_grant(r)) {
		undelivered = errno;
		return false;
	}
	return true;
}

static bool
leave_asker(const struct run *r, int status)
{
	char byte = (char)status;

	(void)r;
	leave_caller();
	if (write(answered, &byte, 1) != 1)
		undelivered = errno; /* the asker is dead, or will see how we end */
	close(answered);
	answered = -1;
	return !undelivered;
}

/* Says why a hold that was granted has reached nobody; the line was empty if it is given back. */
static void
say_undelivered(const struct run *r, struct verdict *v)
{
	const struct params *p = r->params;
	const struct outsider *o = r->ward->outsider;
	char why[120] = "the handle could not be delivered in time",
	     rest[sizeof v->line - sizeof why];

	if (undelivered && undelivered != EAGAIN)
		snprintf(why, sizeof why, "cannot write to standard output: %s",
		    strerror(undelivered));
	else if (!undelivered && o && outsider_has_ended(o))
		snprintf(why, sizeof why,
		    "process %d, for which the lock was to be held, has ended",
		    (int)o->pid);
	if (*v->line)
		snprintf(rest, sizeof rest, "%.*s", (int)sizeof rest - 1, v->line);
	else
		snprintf(rest, sizeof rest, "%s %s given back", params_keys(p).text,
		    p->nkeys > 1 ? "were" : "was");
	v->status = STATUS_SYSTEM;
	v->name = "failed";
	v->muted = false;
	v->held = 0;
	snprintf(v->line, sizeof v->line, "%s; %s", why, rest);
}

static _Noreturn void
be_front(struct run *r, struct params *p)
{
	struct verdict v = {.status = STATUS_SYSTEM, .name = "failed"};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == script_of(r)->asker)
		v = start_run(r);
	if (v.status == 0 && !v.signal && delivery_of(r) != DELIVERED)
		say_undelivered(r, &v);
	start_end(p, &v);
}

/* ---- the asker ---- */

/*
 * Ctrl-Z: the front gives up its place and erases its line.  The asker stops after the front,
 * since the shell writes its prompt when the asker has stopped.  If the front does not stop,
 * neither do we.
 */
static void
stop_after(pid_t front, struct loop *l, int *put_off)
{
	siginfo_t found = {0};

	if (!*put_off || waitid(P_PID, front, &found, WSTOPPED | WNOHANG) != 0 ||
	    found.si_pid == 0)
		return;
	loop_suspend_now(*put_off);
	loop_hear_suspends(l, true);
	*put_off = 0;
}

static void
asker_take_signal(pid_t front, struct loop *l, const struct signalfd_siginfo *info)
{
	static int put_off; /* the signal by which we are to stop; 0 */
	int sig = info->ssi_signo;
	const struct signal_case c = {
	    .sig = sig,
	    .getter = BY_ASKER,
	    .reach = signal_reach_by_code(sig, info->ssi_code, getsid(0) == getpid()),
	    .sender = info->ssi_pid == (uint32_t)getpid() ? FROM_DLOCK : FROM_OTHERS,
	    .ends = signal_is_end(sig),
	};

	if (sig == SIGCHLD)
		stop_after(front, l, &put_off);
	if (sig == SIGCHLD || c.sender == FROM_DLOCK)
		return;
	if (signal_suspends(sig)) {
		put_off = sig;
		loop_put_off(l, sig);
	} else if (sig == SIGCONT) {
		put_off = 0;
		loop_hear_suspends(l, true);
	}
	if (signal_decide(&c) == DEED_PASS_ON)
		kill(front, sig);
	stop_after(front, l, &put_off); /* it may have been faster */
}

/*
 * The front has ended without the lock, and the asker ends the same way: with its status, or of
 * its signal.  If the front was killed after the grant, the keeper stops the process that has the
 * lock.
 */
static int
end_as(pid_t front, const struct params *p, const _Atomic int *delivery)
{
	char stopped[100] = "";
	int status;

	while (waitpid(front, &status, 0) < 0 && errno == EINTR)
		continue;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		return status;
	if (p->steer.pid && atomic_load(delivery) == DELIVERED)
		snprintf(stopped, sizeof stopped,
		    ", and process %d and its descendants are stopped", p->steer.pid);
	say_last("cannot take %s: one of dlock's processes was killed; nothing is held%s",
	    params_keys(p).text, stopped);
	return W_EXITCODE(STATUS_SYSTEM, 0);
}

/*
 * Waits until the grant is delivered, or lost meanwhile.  Returns how the asker ends: 0 when the lock
 * is held.
 */
static int
await_delivery(pid_t front, int delivery, struct run *r, const _Atomic int *how)
{
	struct pollfd set[LOOP_OWN + 2];
	struct signalfd_siginfo info;
	struct loop loop;
	sigset_t all;
	ssize_t n = -1;
	char byte;

	libc_sigfillset(&all);
	if (loop_open(&loop, &all) != 0)
		return end_as(front, r->params, how); /* it cannot go on either */
	while (n < 0) {
		set[LOOP_OWN] = (struct pollfd){.fd = delivery, .events = POLLIN};
		set[LOOP_OWN + 1] = (struct pollfd){.fd = r->parent.fd, .events = POLLIN};
		loop_wait(&loop, set, LOOP_OWN + 2,
		    r->parent.pid ? parent_wake(&r->parent) : NEVER);
		if (set[LOOP_OWN].revents)
			n = read(delivery, &byte, 1);
		while (n < 0 && loop_signal(&loop, &info))
			asker_take_signal(front, &loop, &info);
		if (n < 0 && r->parent.pid && parent_ends(&r->parent))
			kill(front, SIGTERM); /* an end, whoever ignores TERM: S2 */
	}
	if (n > 0 && byte)
		say_last(
		    "lost %s while the handle was printed; process %d and its descendants are stopped",
		    params_keys(r->params).text, r->params->steer.pid);
	return n > 0 ? W_EXITCODE(byte, 0) : end_as(front, r->params, how);
}

/* ---- the process ---- */

static int
hold_refused(const char *what)
{
	say_last("cannot hold: %s: %s; nothing is held", what, strerror(errno));
	return W_EXITCODE(STATUS_SYSTEM, 0);
}

static int
hold_lock(struct params *p)
{
	struct origin origin;
	struct script script = {
	    .ward = {.ops = &script_ops, .is_hold = true, .until = NEVER},
	    .outsider.fd = -1,
	    .print = deliver_grant,
	    .leave = leave_asker,
	    .asker = getpid()};
	struct run r = {
	    .params = p, .origin = &origin, .ward = &script.ward, .parent.fd = -1};
	struct fault fault;
	int delivery[2];
	pid_t front;
	enum rc rc;

	prctl(PR_SET_DUMPABLE, 0); /* the parameters may have a password, while we wait */
	libc_close_range(3, ~0U);  /* the keeper must hold none of the caller's open */
	script.has_stderr = fstat(STDERR_FILENO, &script.errors) == 0;
	record_find_user(p);
	start_origin(&origin);
	rc = settle_script(&script, p, &origin, &fault);
	/* until the lock is held, whichever process it is for */
	if (rc == RC_OK && p->with_parent)
		rc = parent_watch(&r.parent, p, &fault);
	if (rc != RC_OK) {
		say_last("%s", fault.text);
		return W_EXITCODE(exit_of_rc(rc).number, 0);
	}
	/* main.c has put a descriptor in place of a closed stdout, and marked it close-on-exec */
	if (!p->steer.pid && (fcntl(STDOUT_FILENO, F_GETFD) & FD_CLOEXEC)) {
		say_last(
		    "cannot hold: standard output is closed, and nobody could release it without the handle; nothing is held");
		return W_EXITCODE(STATUS_SYSTEM, 0);
	}
	script.ward.delivery = mmap(NULL, sizeof *script.ward.delivery,
	    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (script.ward.delivery == MAP_FAILED)
		return hold_refused("cannot get memory");
	if (pipe2(delivery, O_CLOEXEC) != 0)
		return hold_refused("cannot get a pipe");
	front = process_fork();
	if (front < 0)
		return hold_refused("cannot start a process");
	if (front == 0) {
		close(delivery[0]);
		answered = delivery[1];
		parent_forget(&r.parent); /* the asker watches it */
		be_front(&r, p);
	}
	close(delivery[1]);
	return await_delivery(front, delivery[0], &r, script.ward.delivery);
}

static int
run_hold(struct params *p)
{
	int end = hold_lock(p), sig = WIFSIGNALED(end) ? WTERMSIG(end) : 0;
	int status = sig ? exit_of_signal(sig) : WEXITSTATUS(end);

	if (p->steer.shell)
		say_to_eval(status);
	return sig ? start_die_of(sig) : status;
}

/* ---- release: what the shell has of it ---- */

/*
 * Restores the variables that `hold --shell` has set for this handle, unless a later hold has set
 * them anew.  DLOCK_KEEPER keeps the other keepers that still live.
 */
static void
take_back_variables(const char *handle)
{
	const char *latest = environment_get("DLOCK_HANDLE");
	char *others = join_address_living(environment_get("DLOCK_KEEPER"), handle);

	if (latest && strcmp(latest, handle) == 0)
		move_levels(stdout, 1, 0);
	set_variable(stdout, "DLOCK_KEEPER", others && *others ? others : NULL);
	free(others);
}

/* ---- release: asking the keeper ---- */

/* The hold that is to be released. */
struct releasing {
	const char *handle;
	struct join_found found; /* by its key */
	/* for a sentence: the handle, or "KEY (SERVER)", or "KEY" until it is found; "": none is said */
	char name[sizeof(struct clean) + sizeof(struct clean) + 4];
};

static void
say_of(const struct releasing *t, const char *text)
{
	if (*t->name)
		say_last("cannot release %s: %s", t->name, text_shown(text).text);
	else
		say_last("%s", text_shown(text).text);
}

/*
 * Asks the keeper to release and tells how that ended.  Returns the exit status.  *gone: nothing
 * is held under this handle any more.
 */
static int
release_target(const struct params *p, const struct releasing *t, bool *gone)
{
	struct join_outcome o;
	char line[sizeof o.line + 4]; /* the keeper has cleaned it, so all of it fits */
	struct fault f;
	enum rc rc = join_release(t->handle, &o, &f);

	*gone = rc == RC_LOST || rc == RC_AGAIN ||
	    (rc == RC_OK && o.status != STATUS_NOTHING);
	if (rc != RC_OK) {
		say_of(t, f.text);
		return exit_of_release(rc);
	}
	if (o.status == STATUS_NOTHING)
		say_of(t,
		    "this dlock runs a command: only what dlock hold has taken can be released");
	else if (o.status && !*o.line)
		say_of(t,
		    "the lock was released, but one of dlock's processes had been killed before");
	else if (*o.line && (o.status || !p->show.quiet))
		say_last("%s", text_clean(line, sizeof line, o.line, strlen(o.line)));
	return o.status;
}

/*
 * Finds what to release: a handle, the hold of -k, the handle that a shell has, or the hold of
 * DLOCK_KEY.  RC_USAGE: none of these, or two.
 */
static enum rc
find_target(const struct params *p, struct releasing *t, struct fault *f)
{
	const struct said *of = p->nkeys > 0 ? said_of(p->said, OPT_KEY) : NULL;
	bool keyed = of && of->origin->by == BY_WORDS;
	enum rc rc;

	if (p->word && keyed)
		return fault_set(f, RC_USAGE,
		    "both a handle and --key are given: give only one of them");
	t->handle = p->word ? p->word : environment_get("DLOCK_HANDLE");
	if (t->handle && !keyed) {
		snprintf(t->name, sizeof t->name, "%s",
		    text_key(text_brief(t->handle).text).text);
		return RC_OK;
	}
	if (!of)
		return fault_set(f, RC_USAGE,
		    "no handle: say dlock release HANDLE, with what dlock hold has printed, or -k KEY, or set DLOCK_HANDLE");
	t->handle = t->found.handle;
	snprintf(t->name, sizeof t->name, "%s", params_keys(p).text);
	rc = join_find(p, &t->found, f);
	if (rc == RC_OK)
		snprintf(t->name, sizeof t->name, "%s (%s)", params_keys(p).text,
		    text_shown(t->found.where.text).text);
	return rc;
}

static int
run_release(struct params *p)
{
	struct releasing target = {0};
	bool gone = false;
	struct fault f;
	enum rc rc = find_target(p, &target, &f);
	int status, written;

	if (rc == RC_OK) {
		status = release_target(p, &target, &gone);
	} else {
		status = exit_of_release(rc);
		say_of(&target, f.text);
	}
	if (p->steer.shell && gone)
		take_back_variables(target.handle);
	if (p->steer.shell)
		say_to_eval(status);
	written = say_written();
	return status ? status : written;
}

const struct cmd cmd_hold = {.help = "hold a lock for a script that goes on by itself",
    .bit = CMD_HOLD,
    .usage =
	"usage: dlock hold -k KEY [--pid PID | --for DURATION] [--shell] [options]\n"
	"\n"
	"Takes the lock KEY, prints a handle and returns.  In the background the lock is\n"
	"kept until dlock release, until PID has ended, or until the time of --for is over.\n"
	"If it is lost, PID and its descendants are stopped.  Without --pid and --for, PID is\n"
	"the parent process; a shell at a terminal, or in a $(...) or a pipeline, is\n"
	"refused; with --for alone nobody is stopped.\n"
	"\n"
	"  set -e\n"
	"  lock=$(dlock hold -u redis://10.0.0.5 -k deploy --pid $$ --shell)\n"
	"  eval \"$lock\"\n"
	"  ./build; dlock run -k deploy -- ./copy     (joins the hold)\n"
	"  dlock release\n",
    .notes =
	"Status: 0 it is held; 75 busy; 64 to 79 nothing is held, as for run.  With --shell,\n"
	"eval ends with that status, too.  eval of nothing ends with 0: to notice that dlock\n"
	"was killed, write the assignment in a line of its own, as above.",
    .run = run_hold};

const struct cmd cmd_release = {.help = "release what hold has taken",
    .bit = CMD_RELEASE,
    .usage =
	"usage: dlock release [--shell] [HANDLE | -k KEY]\n"
	"\n"
	"Releases the lock that dlock hold has taken.  HANDLE is what dlock hold printed\n"
	"(default: $DLOCK_HANDLE, which hold --shell sets).  With -k it is your own hold of\n"
	"KEY on this machine, whichever server keeps it.  Returns when the lock is free for\n"
	"others, or says what keeps it.\n"
	"\n"
	"  dlock release \"$handle\"\n"
	"  dlock release -k deploy\n"
	"  eval \"$(dlock release --shell)\"     (after dlock hold --shell)\n",
    .notes =
	"Status: 0 released; 1 nothing is held under this handle or key (any more); 79 the lock was\n"
	"lost before; 75 a run that has joined the hold keeps it for its --min-hold;\n"
	"69 the server has not confirmed the release; 64 this is no handle, or KEY has\n"
	"several holds (their handles are named).",
    .run = run_release};
