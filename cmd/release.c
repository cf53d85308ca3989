/* release.c - dlock release: gives back what dlock hold has taken. */
#include "cmd.h"

#include "cmd/supervise/join.h"
#include "options.h"
#include "sources.h"
#include "say.h"
#include "status.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

int
cmd_release_explain(void)
{
	puts(
	    "usage: dlock release [HANDLE]\n"
	    "\n"
	    "Gives back the lock that dlock hold has taken; HANDLE is what that printed\n"
	    "(default: $DLOCK_HANDLE, which hold --shell sets).  Returns when the lock is free\n"
	    "for others, or says what keeps it.\n"
	    "\n"
	    "  dlock release \"$handle\"\n");
	options_print_help(stdout, CMD_RELEASE);
	puts(
	    "\nStatus: 0 released; 1 nothing is held under this handle (any more); 79 the lock was\n"
	    "lost before; 69 the server has not confirmed the release; 64 this is no handle.");
	return say_written();
}

static void
say_of(const char *handle, const char *text)
{
	char clean[100], words[700];

	say_last("cannot release %s: %s",
	    text_name(clean, sizeof clean, text_brief(handle).text),
	    text_clean(words, sizeof words, text, strlen(text)));
}

static int
release(const struct plan *p, const char *handle)
{
	struct join_outcome o;
	struct fault f;
	char line[sizeof o.line];

	switch (join_ask_release(handle, &o, &f)) {
	case RC_OK:
		break;
	case RC_USAGE:
		say_of(handle, f.text);
		return STATUS_USAGE;
	case RC_LOST:
		say_of(handle, f.text);
		return STATUS_NOTHING;
	default:
		say_of(handle, f.text);
		return STATUS_SYSTEM;
	}
	if (o.status == STATUS_NOTHING)
		say_of(handle, "this dlock runs a command, and holds nothing by hand");
	else if (o.status && !*o.line)
		say_of(handle,
		    "it is given back, but one of dlock's processes was killed before");
	else if (*o.line && (o.status || !p->show.quiet))
		say_last("%s", text_clean(line, sizeof line, o.line, strlen(o.line)));
	return o.status;
}

int
cmd_release(char **words)
{
	struct plan plan;
	struct fault fault;
	const char *handle;

	switch (plan_read(&plan, CMD_RELEASE, words, &fault)) {
	case PARSED_HELP:
		return cmd_release_explain();
	case PARSED_WRONG:
		return cmd_wrong(&plan, &fault);
	case PARSED_PLAN:
		break;
	}
	handle = plan.operand ? plan.operand : sources_variable("DLOCK_HANDLE");
	if (!handle) {
		say_last(
		    "no handle: say dlock release HANDLE, with what dlock hold has printed, or set DLOCK_HANDLE");
		return STATUS_USAGE;
	}
	return release(&plan, handle);
}
