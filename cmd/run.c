/*
 * run.c - dlock run: the story of one lock, from the first word to the last.
 *
 *	read        words, variables and files become a struct params (args.c); whatever is
 *	            wrong with them is said now, before anything is touched
 *	find        the command must exist before we ask for its lock, and, with
 *	            --with-parent, our parent
 *	block       the user is looked up, for the record; from there on signals are blocked
 *	part        the keeper is forked: it forks the command's stub, takes the
 *	            lock, lets the stub begin, renews, releases (keeper.c)
 *	watch       the front passes signals on and waits (front.c)
 *	end         what happened is said in one line, and in the status
 */
#include "cmd.h"

#include "cmd/supervise/command.h"
#include "cmd/supervise/run.h"
#include "exit.h"
#include "mask.h"
#include "record.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Is the word one of a list with blanks between them? */
static bool
is_among(const char *word, const char *list)
{
	for (; *list; list += strcspn(list, " "), list += *list == ' ')
		if (text_is(word, list, strcspn(list, " ")))
			return true;
	return false;
}

/* Is the word a builtin or keyword of POSIX or bash, and hardly anywhere a program? */
static bool
is_shells_own(const char *word)
{
	return is_among(word,
	    ". : ! [[ ]] { } ( ) alias bg bind break builtin caller case cd chdir command compgen "
	    "complete compopt continue coproc declare dirs disown do done elif else enable "
	    "esac eval exec exit export fc fg fi for function getopts hash help history if in "
	    "jobs let local logout mapfile popd pushd read readarray readonly return select "
	    "set shift shopt source suspend then time times trap type typeset ulimit umask "
	    "unalias unset until wait while");
}

/* Guesses why there is no such command; "": no guess. */
static const char *
guess(char *const *argv)
{
	if (argv[0][0] == '-')
		return " (options go before the --)";
	if (strchr(argv[0], ' ') && !argv[1])
		return " (did you mean -c? it runs a line of shell)";
	if (is_shells_own(argv[0]))
		return " (a builtin of the shell, and no program: say -c, which runs a line of shell)";
	if (strchr(argv[0], '=') && argv[1])
		return " (did you mean env? it sets variables)";
	return "";
}

/* The verdict if there is no such command: no lock is asked for. */
static struct verdict
no_command(struct params *p, int error)
{
	struct verdict v = {.status = exit_of_exec(error), .name = "not-executed"};
	const char *command = p->command.argv[0];
	char name[300];

	mask_passwords(p->command.argv[0]); /* it may be a URL without its -u */
	snprintf(v.line, sizeof v.line,
	    "cannot execute '%s' under %s: %s%s; no lock was asked for",
	    text_clean(name, sizeof name, command, strlen(command)), params_keys(p).text,
	    strerror(error), guess(p->command.argv));
	return v;
}

static int
run_run(struct params *p)
{
	struct origin origin;
	struct run r = {
	    .params = p, .origin = &origin, .ward = &command_ward, .parent.fd = -1};
	struct fault fault;
	struct verdict v;

	/* checked before the lock is asked for; it may be gone when the lock comes */
	r.path = command_find(p->command.argv[0]);
	if (!r.path) {
		v = no_command(p, errno);
	} else if (p->with_parent && parent_watch(&r.parent, p, &fault) != RC_OK) {
		v = (struct verdict){.status = STATUS_USAGE, .name = "usage"};
		snprintf(v.line, sizeof v.line, "%s; nothing was run", fault.text);
	} else {
		record_find_user(p);
		start_origin(&origin);
		v = start_run(&r);
	}
	start_end(p, &v);
}

const struct cmd cmd_run = {.help = "run a command under a lock",
    .bit = CMD_RUN,
    .usage = "usage: dlock run -k KEY [options] [--] COMMAND [ARGUMENT...]\n"
	     "       dlock run [options] KEY [--] COMMAND [ARGUMENT...]\n"
	     "\n"
	     "Takes the lock KEY, runs COMMAND, keeps the lease alive, releases it.\n"
	     "\n"
	     "  dlock run -b file -k backup -- ./backup.sh\n"
	     "  dlock run -u redis://10.0.0.5 -k deploy -w 10m -- make deploy\n"
	     "  dlock run -u redis://10.0.0.5 -k nightly -n -E 0 -- ./nightly   (cron)\n",
    .notes =
	"DURATION: 30, 1.5s, 500ms, 2m, 1h30m, inf.  Each option but -h has a variable,\n"
	"such as DLOCK_TTL for --ttl.  Status: the command's own; 75 busy; 79 lock lost;\n"
	"124 --max-run; 126, 127 not executable, not found; 64 to 78 nothing was run.",
    .run = run_run};
