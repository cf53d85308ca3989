/* release.c - dlock release: gives back what dlock hold has taken. */
#include "cmd.h"

#include "cmd/supervise/nested.h"
#include "options.h"
#include "sources.h"
#include "say.h"
#include "shell.h"
#include "status.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
cmd_release_explain(void)
{
	puts(
	    "usage: dlock release [--shell] [HANDLE]\n"
	    "\n"
	    "Gives back the lock that dlock hold has taken; HANDLE is what that printed\n"
	    "(default: $DLOCK_HANDLE, which hold --shell sets).  Returns when the lock is free\n"
	    "for others, or says what keeps it.\n"
	    "\n"
	    "  dlock release \"$handle\"\n"
	    "  eval \"$(dlock release --shell)\"     (after dlock hold --shell)\n");
	options_print_help(stdout, CMD_RELEASE);
	puts(
	    "\nStatus: 0 released; 1 nothing is held under this handle (any more); 79 the lock was\n"
	    "lost before; 75 a run that has joined the hold keeps it for its --min-hold;\n"
	    "69 the server has not confirmed the release; 64 this is no handle.");
	return say_written();
}

/* ---- what the shell has of it ---- */

/* Of the keepers in DLOCK_KEEPER those that are not this handle's, which are still there. */
static void
unset_keeper(const char *handle)
{
	const char *keepers = sources_variable("DLOCK_KEEPER"), *end;
	size_t size = strlen(keepers ? keepers : "") + 1, used = 0;
	char *others = calloc(1, size);

	for (; keepers && others && *keepers; keepers = end) {
		keepers += strspn(keepers, " ");
		end = keepers + strcspn(keepers, " ");
		if (!keeper_address_has_handle(keepers, handle))
			used += snprintf(others + used, size - used, "%s%.*s",
			    used ? " " : "", (int)(end - keepers), keepers);
	}
	if (others && *others)
		shell_export(stdout, "DLOCK_KEEPER", others);
	else
		puts("unset DLOCK_KEEPER;");
	free(others);
}

/* What `hold --shell` has set for this handle, unless a later one has set it anew. */
static void
unset_variables(const char *handle)
{
	const char *latest = sources_variable("DLOCK_HANDLE");

	if (latest && strcmp(latest, handle) == 0)
		puts("unset DLOCK_HANDLE DLOCK_KEY DLOCK_TOKEN DLOCK_TOKENS DLOCK_SLOT "
		     "DLOCK_OWNER DLOCK_BACKEND;");
	unset_keeper(handle);
}

/* ---- releasing ---- */

static void
say_of(const char *handle, const char *text)
{
	char clean[100], words[700];

	say_last("cannot release %s: %s",
	    text_name(clean, sizeof clean, text_brief(handle).text),
	    text_clean(words, sizeof words, text, strlen(text)));
}

/* Tells how it ended; returns the exit status. */
static int
tell_outcome(const struct plan *p, const char *handle, const struct join_outcome *o)
{
	char line[sizeof o->line];

	if (o->status == STATUS_NOTHING)
		say_of(handle, "this dlock runs a command, and holds nothing by hand");
	else if (o->status && !*o->line)
		say_of(handle,
		    "it is given back, but one of dlock's processes was killed before");
	else if (*o->line && (o->status || !p->show.quiet))
		say_last("%s", text_clean(line, sizeof line, o->line, strlen(o->line)));
	return o->status;
}

/* Returns the exit status; `gone`: nothing is held under this handle any more. */
static int
release_handle(const struct plan *p, const char *handle, bool *gone)
{
	struct join_outcome o;
	struct fault f;
	enum rc rc = nested_release(handle, &o, &f);

	*gone = rc == RC_LOST || rc == RC_AGAIN ||
	    (rc == RC_OK && o.status != STATUS_NOTHING);
	if (rc == RC_OK)
		return tell_outcome(p, handle, &o);
	say_of(handle, f.text);
	if (rc == RC_LOST || rc == RC_DENIED)
		return STATUS_NOTHING;
	return rc == RC_USAGE ? STATUS_USAGE : STATUS_SYSTEM;
}

/* The status of `eval`, too. */
static int
end_release(const struct plan *p, int status)
{
	int written;

	if (p->steer.shell)
		shell_status(stdout, status);
	written = say_written();
	return status ? status : written;
}

static int
release_named(const struct plan *p)
{
	const char *handle = p->steer.handle ? p->steer.handle
					     : sources_variable("DLOCK_HANDLE");
	bool gone;
	int status;

	if (!handle) {
		say_last(
		    "no handle: say dlock release HANDLE, with what dlock hold has printed, or set DLOCK_HANDLE");
		return STATUS_USAGE;
	}
	status = release_handle(p, handle, &gone);
	if (p->steer.shell && gone)
		unset_variables(handle);
	return status;
}

int
cmd_release(char **words)
{
	struct plan plan;
	struct fault fault;

	switch (plan_read(&plan, CMD_RELEASE, words, &fault)) {
	case PARSED_HELP:
		return cmd_release_explain();
	case PARSED_WRONG:
		plan.steer.shell = shell_is_meant(words);
		return end_release(&plan, cmd_wrong(&plan, &fault));
	case PARSED_PLAN:
		break;
	}
	return end_release(&plan, release_named(&plan));
}
