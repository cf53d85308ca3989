/*
 * run.c - dlock run: the story of one lock, from the first word to the last.
 *
 *	parse       the words and the environment become a plan; whatever is
 *	            wrong with them is said now, before anything is touched
 *	find        the command must exist before we ask for its lock
 *	part        the keeper is forked: it forks the command's stub, takes the
 *	            lock, lets the stub begin, renews, releases (keeper.c)
 *	watch       the front passes signals on and waits (front.c)
 *	end         what happened is said in one line, and in the status
 */
#include "cmd.h"

#include "cmd/supervise/child.h"
#include "cmd/supervise/events.h"
#include "cmd/supervise/front.h"
#include "cmd/supervise/keeper.h"
#include "cmd/supervise/tree.h"
#include "cmd/supervise/verdict.h"
#include "options.h"
#include "record.h"
#include "say.h"
#include "stray.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

int
cmd_run_explain(void)
{
	puts(
	    "usage: dlock run -k KEY [options] [--] COMMAND [ARGUMENT...]\n"
	    "       dlock run [options] KEY [--] COMMAND [ARGUMENT...]\n"
	    "\n"
	    "Takes the lock KEY, runs COMMAND, keeps the lease alive, releases it.\n"
	    "\n"
	    "  dlock run -b file -k backup -- ./backup.sh\n"
	    "  dlock run -u redis://10.0.0.5 -k deploy -w 10m -- make deploy\n"
	    "  dlock run -u redis://10.0.0.5 -k nightly -n -E 0 -- ./nightly   (cron)\n");
	options_print_help(stdout, CMD_RUN);
	puts(
	    "\nDURATION: 30, 1.5s, 500ms, 2m, 1h30m, inf.  Each option but -h has a variable,\n"
	    "such as DLOCK_TTL for --ttl.  Status: the command's own; 75 busy; 79 lock lost;\n"
	    "124 --max-run; 126, 127 not executable, not found; 64 to 78 nothing was run.");
	return say_written();
}

/* What a shell or a supervisor has set up, to be given back to the command. */
static void
remember_origin(struct origin *o)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	struct sigaction chld;
	sigset_t all;
	int tty;

	sigfillset(&all);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&all, faults[i]);
	sigprocmask(SIG_SETMASK, &all, &o->mask);
	sigaction(SIGCHLD, NULL, &chld);
	o->chld_ignored = chld.sa_handler == SIG_IGN;
	if (o->chld_ignored)
		signal(SIGCHLD, SIG_DFL);
	tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	o->has_tty = tty >= 0;
	if (tty >= 0)
		close(tty);
}

static bool
make_owner(struct run *r, uint64_t *seed)
{
	unsigned char bytes[OWNER_CHARS / 2 + sizeof *seed];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return false;
	for (size_t i = 0; i < OWNER_CHARS / 2; i++)
		snprintf(r->owner + 2 * i, 3, "%02x", bytes[i]);
	memcpy(seed, bytes + OWNER_CHARS / 2, sizeof *seed);
	return true;
}

static int
system_refused(const struct plan *p, const char *what)
{
	char clean[400];

	say_last("cannot take %s: %s: %s; nothing was run",
	    plan_name(p, clean, sizeof clean), what, strerror(errno));
	return STATUS_SYSTEM;
}

/* As the command did: loops in shells stop on Ctrl-C only when they see the signal. */
static int
die_of(int sig)
{
	struct rlimit none = {0, 0};
	sigset_t one;

	setrlimit(RLIMIT_CORE, &none); /* one core file, the command's, is enough */
	prctl(PR_SET_DUMPABLE, 0);
	signal(sig, SIG_DFL);
	raise(sig);
	sigemptyset(&one);
	sigaddset(&one, sig);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	return 128 + sig;
}

/*
 * Without exit(3): nothing of ours is buffered, and what it would look through costs as
 * much as a fork.
 */
static _Noreturn void
end(const struct plan *p, const struct verdict *v)
{
	if (*v->line)
		say_last("%s", v->line);
	events_verdict(p, v);
	_exit(v->signal ? die_of(v->signal) : v->status);
}

/* Why there is no such command, if one can guess; or "". */
static const char *
guess(char *const *argv)
{
	if (argv[0][0] == '-')
		return " (options go before the --)";
	if (strchr(argv[0], ' ') && !argv[1])
		return " (did you mean -c? it runs a line of shell)";
	if (strchr(argv[0], '=') && argv[1])
		return " (did you mean env? it sets variables)";
	return "";
}

/*
 * The command must exist before we ask for its lock; that it still does when
 * the lock comes, nobody promises.  True, or *v says what is wrong.
 */
static bool
find_command(const struct plan *p, char *path, size_t size, struct verdict *v)
{
	char name[300], key[400];

	if (child_find(p->command.argv[0], path, size))
		return true;
	*v = (struct verdict){.status = status_of_exec(errno), .name = "not-executed"};
	snprintf(v->line, sizeof v->line,
	    "cannot execute '%s' under %s: %s%s; no lock was asked for",
	    text_clean(name, sizeof name, p->command.argv[0], strlen(p->command.argv[0])),
	    plan_name(p, key, sizeof key), strerror(errno), guess(p->command.argv));
	return false;
}

/*
 * All that front and keeper share when they part.  False, with errno: something is not
 * to be had.
 */
static bool
prepare_run(struct run *r, struct plan *p, struct origin *o, const char *path)
{
	*r = (struct run){.plan = p, .origin = o, .path = path, .began = instant_now()};
	remember_origin(o);
	prctl(PR_SET_DUMPABLE, 0); /* we may hold a password */
	record_write(r->record, p, getpid());
	r->has_elders = tree_has_children();
	r->shared = shared_new();
	return r->shared && make_owner(r, &p->terms.seed) && link_open(r->ends) == 0;
}

int
cmd_run(char **words)
{
	char path[PATH_MAX], clean[700];
	struct plan plan;
	struct run r;
	struct origin origin;
	struct verdict v;
	struct fault fault;
	pid_t keeper;

	switch (plan_read(&plan, CMD_RUN, words, &fault)) {
	case PARSED_HELP:
		return cmd_run_explain();
	case PARSED_WRONG:
		return cmd_wrong(&plan, &fault);
	case PARSED_PLAN:
		break;
	}
	if (!plan.show.quiet && stray_list(clean, sizeof clean))
		say("unknown in the environment and ignored: %s", clean);
	if (!find_command(&plan, path, sizeof path, &v))
		end(&plan, &v);
	if (!prepare_run(&r, &plan, &origin, path))
		return system_refused(
		    &plan, "cannot get memory, random numbers or sockets");
	keeper = _Fork();
	if (keeper < 0)
		return system_refused(&plan, "cannot start a process");
	if (keeper == 0)
		keeper_run(&r);
	v = front_run(&r, keeper);
	end(&plan, &v);
}
