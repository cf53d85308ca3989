/*
 * hold.c - dlock hold: a lock for a script that goes on by itself.
 *
 * It is run with another body.  Keeper and front are the same, but there is no command:
 * they hold for a process that has asked for it, PID, or for nobody and a time.
 *
 *	asker       the process that the user has started: waits, ends when the lock
 *	            is there, or as the front has ended
 *	front       while it waits it is in the asker's process group and speaks; then
 *	            it gives the handle to stdout, and goes into the background
 *	keeper      as ever; it also waits for the end of PID, for --for, and for
 *	            dlock release, through the socket that nested runs use
 */
#include "cmd.h"

#include "cmd/supervise/child.h"
#include "cmd/supervise/loop.h"
#include "cmd/supervise/loss.h"
#include "options.h"
#include "sources.h"
#include "say.h"
#include "shell.h"
#include "stray.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int
cmd_hold_explain(void)
{
	puts(
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
	    "  dlock release\n");
	options_print_help(stdout, CMD_HOLD);
	puts(
	    "\nStatus: 0 it is held; 75 busy; 64 to 78 nothing is held, as for run.  With --shell\n"
	    "what is printed then makes eval end with that status, too; but eval of nothing is\n"
	    "success, so a dlock that was killed is only noticed in a line of its own, as above.");
	return say_written();
}

/* ---- for whom ---- */

/* What /proc has of a process in a small file; false: nothing. */
static bool
read_proc(pid_t pid, const char *name, char *out, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	for (ssize_t i = 0; i < n; i++)
		out[i] = out[i] ? out[i] : ' '; /* between the words of cmdline */
	out[n] = '\0';
	return true;
}

static pid_t
parent_of(pid_t pid)
{
	char text[512], *after_name;
	int parent = 0;

	if (!read_proc(pid, "stat", text, sizeof text) ||
	    !(after_name = strrchr(text, ')')) ||
	    sscanf(after_name + 1, " %*c %d", &parent) != 1)
		return 0;
	return parent;
}

/*
 * Is it a shell at a terminal?  Then it leads its session, or gives its jobs process
 * groups of their own.
 */
static bool
is_interactive(pid_t pid, const struct origin *o)
{
	return o->has_tty && getsid(pid) == getsid(0) &&
	    (pid == getsid(0) || getpgid(pid) != getpgrp());
}

/*
 * Is it the shell of a `$(...)` that does more than this one command, or of a part of a
 * pipeline?  It has forked itself, writes into the same pipe as we do, and ends with that.
 */
static bool
is_part_of_pipe(pid_t pid)
{
	char path[64], its[4096], above[4096];
	struct stat ours, theirs;

	snprintf(path, sizeof path, "/proc/%d/fd/1", (int)pid);
	return fstat(STDOUT_FILENO, &ours) == 0 && S_ISFIFO(ours.st_mode) &&
	    stat(path, &theirs) == 0 && theirs.st_ino == ours.st_ino &&
	    theirs.st_dev == ours.st_dev && read_proc(pid, "cmdline", its, sizeof its) &&
	    read_proc(parent_of(pid), "cmdline", above, sizeof above) &&
	    strcmp(its, above) == 0;
}

/* The parent, unless it is none that one would mean without saying so. */
static enum rc
find_parent(struct plan *p, const struct origin *o, struct fault *f)
{
	pid_t parent = getppid();

	if (is_interactive(parent, o))
		return fault_set(f, RC_USAGE,
		    "the parent process is a shell at a terminal, which a loss would end: say --for DURATION, or --pid %d",
		    (int)parent);
	if (is_part_of_pipe(parent))
		return fault_set(f, RC_USAGE,
		    "the parent process %d is a subshell of a $(...) or a pipeline, which ends with it: say --pid $$ for the script",
		    (int)parent);
	if (parent <= 1)
		return fault_set(f, RC_USAGE,
		    "the parent process has ended: say --pid PID or --for DURATION");
	p->steer.pid = parent;
	return RC_OK;
}

static enum rc
open_body(struct body *b, const struct plan *p, struct fault *f)
{
	int pid = p->steer.pid;
	const char *why = NULL;

	if (pid == 0)
		return RC_OK;
	if (pid == 1)
		why = "nobody can stop process 1, should the lock be lost";
	else if (pid == getpid())
		why = "this is dlock itself, which ends at once";
	else if (!outside_open(&b->outside, pid))
		why = errno == EPERM
		    ? "another user's process could not be stopped, should the lock be lost"
		    : errno == ESRCH || errno == EINVAL || errno == ENOENT
		    ? "there is no such process (any more)"
		    : strerror(errno);
	if (why)
		return fault_set(f, RC_USAGE, "--pid %d: %s", pid, why);
	return RC_OK;
}

/* In whose name others are shown it. */
static void
name_command(struct plan *p)
{
	static char name[32];

	if (p->steer.pid == 0 || !read_proc(p->steer.pid, "comm", name, sizeof name))
		snprintf(name, sizeof name, "dlock");
	name[strcspn(name, "\n")] = '\0';
	p->command.shell[0] = name;
	p->command.shell[1] = NULL;
	p->command.argv = p->command.shell;
}

static enum rc
settle_body(struct body *b, struct plan *p, const struct origin *o, struct fault *f)
{
	if (p->steer.pid == 0 && p->steer.length == NEVER &&
	    find_parent(p, o, f) != RC_OK)
		return RC_USAGE;
	if (open_body(b, p, f) != RC_OK)
		return RC_USAGE;
	name_command(p);
	return RC_OK;
}

/* ---- in the front: the delivery ---- */

/* The end of the pipe to the asker, and why he has got nothing: an errno. */
static int answered = -1, undelivered;

#define DELIVERY_PATIENCE (2 * NS_PER_S) /* for whoever reads our stdout */

/* DLOCK_KEEPER: ours before those of the dlocks around us. */
static void
write_keepers(FILE *to, const char *address, const char *site)
{
	const char *outer = sources_variable("DLOCK_KEEPER");
	char *all = NULL;

	if (asprintf(&all, "%s%s%s%s", address, site, outer ? " " : "",
		outer ? outer : "") < 0)
		all = NULL;
	shell_export(to, "DLOCK_KEEPER", all ? all : address);
	free(all);
}

static void
write_tokens(FILE *to, const struct plan *p, const struct go *go)
{
	size_t room = child_tokens_room(p);
	char *text = malloc(room);

	if (text)
		child_write_tokens(p, go, text, room);
	shell_export(to, "DLOCK_TOKENS", text ? text : "{}");
	free(text);
}

/* What a command would get, and the handle. */
static void
write_assignments(FILE *to, const struct run *r, const char *handle)
{
	const struct plan *p = r->plan;
	const struct go *go = &r->shared->go;

	fputs("unset DLOCK_TOKENS DLOCK_SLOT;\n", to);
	shell_export(to, "DLOCK_HANDLE", handle);
	shell_export(to, "DLOCK_KEY", p->keys[0]);
	shell_export(to, "DLOCK_TOKEN", go->token);
	if (p->nkeys > 1)
		write_tokens(to, p, go);
	if (p->claim.kind == KIND_LIMIT)
		shell_export(to, "DLOCK_SLOT", go->slot);
	shell_export(to, "DLOCK_OWNER", r->owner);
	shell_export(to, "DLOCK_BACKEND", p->site.backend->name);
	write_keepers(to, go->keeper, r->site);
}

/* False, with errno: not all of it has reached stdout. */
static bool
print_grant(const struct run *r)
{
	char handle[HANDLE_BYTES], *text = NULL;
	size_t n = 0, done;
	FILE *to = open_memstream(&text, &n);

	if (!to)
		return false;
	keeper_address_write_handle(r->shared->go.keeper, handle);
	if (r->plan->steer.shell)
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
 * Nothing of the user's stays open: a `$(...)` waits for the end of its pipe.  What is
 * closed first makes the room for /dev/null, should descriptors have run out.
 */
static void
leave_caller(void)
{
	int null;

	setsid();
	prctl(PR_SET_NAME, HOLD_NAME);
	close(STDIN_FILENO);
	null = open("/dev/null", O_RDWR); /* the lowest that is free: 0 */
	for (int fd = 1; fd <= 2; fd++)
		if (dup2(null, fd) < 0)
			close(fd);
}

/* Until here we die with the asker: whom nobody hears must not hold. */
static bool
deliver_grant(const struct run *r)
{
	prctl(PR_SET_PDEATHSIG, 0);
	if (getppid() != r->body->asker) {
		undelivered = ESRCH;
		return false;
	}
	if (!print_grant(r)) {
		undelivered = errno;
		return false;
	}
	leave_caller();
	if (write(answered, "", 1) != 1)
		undelivered = errno; /* he has just been killed, or will see how we end */
	close(answered);
	answered = -1;
	return !undelivered;
}

static struct verdict
not_delivered(const struct plan *p)
{
	struct verdict v = {.status = STATUS_SYSTEM, .name = "failed"};
	char key[400];

	snprintf(v.line, sizeof v.line,
	    "cannot write to standard output: %s; %s %s given back",
	    strerror(undelivered), plan_name(p, key, sizeof key),
	    p->nkeys > 1 ? "were" : "was");
	return v;
}

static _Noreturn void
be_front(struct run *r, struct plan *p)
{
	struct verdict v = {.status = STATUS_SYSTEM, .name = "failed"};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == r->body->asker)
		v = start_run(r, p);
	if (undelivered && v.status == 0 && !v.signal)
		v = not_delivered(p);
	start_end(p, &v);
}

/* ---- the asker ---- */

/* What a terminal sends to our group has reached the front, too; what only we get has not. */
static void
pass_signal_on(pid_t front, const struct signalfd_siginfo *info)
{
	int sig = info->ssi_signo;

	if (sig == SIGCHLD)
		return;
	if (!loop_is_for_group(info))
		kill(front, sig);
	if (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU)
		loop_stop_here(sig);
}

/* How the asker ends. */
struct end {
	int status, signal; /* signal 0: none */
};

/* The front has ended without the lock: as it did, so do we. */
static struct end
end_as(pid_t front, const struct plan *p)
{
	char key[400];
	int status;

	while (waitpid(front, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFEXITED(status))
		return (struct end){.status = WEXITSTATUS(status)};
	if (WTERMSIG(status) != SIGKILL)
		return (struct end){128 + WTERMSIG(status), WTERMSIG(status)};
	say_last("cannot take %s: one of dlock's processes was killed; nothing is held",
	    plan_name(p, key, sizeof key));
	return (struct end){.status = STATUS_SYSTEM};
}

static struct end
await_delivery(pid_t front, int delivery, const struct plan *p)
{
	struct pollfd set[LOOP_OWN + 1];
	struct signalfd_siginfo info;
	const struct end held = {0};
	struct loop loop;
	sigset_t all;
	ssize_t n = -1;
	char byte;

	sigfillset(&all);
	if (loop_open(&loop, &all) != 0)
		return end_as(front, p); /* it cannot go on either */
	while (n < 0) {
		set[LOOP_OWN] = (struct pollfd){.fd = delivery, .events = POLLIN};
		loop_wait(&loop, set, LOOP_OWN + 1, NEVER);
		if (set[LOOP_OWN].revents)
			n = read(delivery, &byte, 1);
		while (n < 0 && loop_signal(&loop, &info))
			pass_signal_on(front, &info);
	}
	return n > 0 ? held : end_as(front, p);
}

/* ---- the process ---- */

static int
end_asker(bool shell, struct end end)
{
	if (shell) {
		shell_status(stdout, end.status);
		fflush(stdout);
	}
	return end.signal ? start_die_of(end.signal) : end.status;
}

static struct end
hold_refused(const char *what)
{
	say_last("cannot hold: %s: %s; nothing is held", what, strerror(errno));
	return (struct end){.status = STATUS_SYSTEM};
}

static struct end
hold_lock(struct plan *p)
{
	struct origin origin;
	struct body body = {.outside.fd = -1,
	    .until = NEVER,
	    .deliver = deliver_grant,
	    .asker = getpid()};
	struct run r = {.plan = p, .origin = &origin, .body = &body};
	struct fault fault;
	int delivery[2];
	pid_t front;

	close_range(3, ~0U, 0); /* the caller's are none of ours */
	loss_note_stderr(&body);
	start_origin(&origin);
	if (settle_body(&body, p, &origin, &fault) != RC_OK) {
		say_last("%s", fault.text);
		return (struct end){.status = STATUS_USAGE};
	}
	if (pipe2(delivery, O_CLOEXEC) != 0)
		return hold_refused("cannot get a pipe");
	front = _Fork();
	if (front < 0)
		return hold_refused("cannot start a process");
	if (front == 0) {
		close(delivery[0]);
		answered = delivery[1];
		be_front(&r, p);
	}
	close(delivery[1]);
	return await_delivery(front, delivery[0], p);
}

int
cmd_hold(char **words)
{
	bool shell = shell_is_meant(words);
	struct plan plan;
	struct fault fault;
	char clean[700];

	prctl(PR_SET_DUMPABLE, 0); /* the plan may have a password, while we wait */
	switch (plan_read(&plan, CMD_HOLD, words, &fault)) {
	case PARSED_HELP:
		return cmd_hold_explain();
	case PARSED_WRONG:
		return end_asker(shell, (struct end){.status = cmd_wrong(&plan, &fault)});
	case PARSED_PLAN:
		break;
	}
	if (!plan.show.quiet && stray_list(clean, sizeof clean))
		say("unknown in the environment and ignored: %s", clean);
	return end_asker(shell, hold_lock(&plan));
}
