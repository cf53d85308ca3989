/*
 * plan.c - makes a subcommand's plan from the command line and the environment, and checks
 * it as a whole.
 */
#include "plan.h"

#include "parse.h"
#include "site.h"
#include "status.h"
#include "text.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

/* The words after options and key; `named`: one of those was the key. */
static enum rc
settle_command(struct plan *p, char **words, bool named, struct fault *f)
{
	if (p->nkeys == 0)
		return fault_set(f, RC_USAGE,
		    "no key: say dlock run -k KEY -- COMMAND, with a name for the lock");
	if (p->command.line && *words)
		return fault_set(f, RC_USAGE,
		    "both --command and '%s' are given: which one is to run?",
		    text_brief(*words).text);
	if (p->command.line) {
		p->command.shell[2] = (char *)p->command.line;
		p->command.argv = p->command.shell;
		return RC_OK;
	}
	if (!*words && named)
		return fault_set(f, RC_USAGE,
		    "no command after the key '%s' (with -k KEY all words are the command)",
		    text_brief(p->keys[0]).text);
	if (!*words)
		return fault_set(f, RC_USAGE, "no command to run under '%s'",
		    text_brief(p->keys[0]).text);
	if (!**words)
		return fault_set(f, RC_USAGE, "the command to run under '%s' is empty",
		    text_brief(p->keys[0]).text);
	p->command.argv = words;
	return RC_OK;
}

/* Can the lease carry two attempts to renew, the grace and the margin? */
static enum rc
settle_lease(struct terms *t, struct fault *f)
{
	char ttl[32], grace[32], least[32];

	if (!t->grace_fixed)
		t->grace = lease_grace(t->ttl);
	if (lease_fits(t->ttl, lease_pace(t->ttl), t->grace))
		return RC_OK;
	parse_duration_text((lease_least(t->grace) + NS_PER_S - 1) / NS_PER_S * NS_PER_S,
	    least, sizeof least);
	return fault_set(f, RC_USAGE,
	    "--ttl %s is too short for --grace %s: two renewals would not fit (at least --ttl %s)",
	    parse_duration_text(t->ttl, ttl, sizeof ttl),
	    parse_duration_text(t->grace, grace, sizeof grace), least);
}

/* What stands between the options of a subcommand that runs nothing. */
static enum rc
take_operand(struct plan *p, const char *operand, struct fault *f)
{
	struct fault why;

	if (p->cmd == CMD_LS || p->cmd == CMD_RELEASE) {
		if (p->operand)
			return fault_set(f, RC_USAGE, "'%s' is one word too many",
			    text_brief(operand).text);
		p->operand = operand;
		return RC_OK;
	}
	if (!(options[OPT_KEY].cmds & p->cmd))
		return fault_set(
		    f, RC_USAGE, "'%s' is one word too many", text_brief(operand).text);
	if (options[OPT_KEY].set(p, &options[OPT_KEY], operand, &why) != RC_OK)
		return fault_set(
		    f, RC_USAGE, "key '%s': %s", text_brief(operand).text, why.text);
	return RC_OK;
}

/* `dlock run` ends its options where the command begins. */
static enum rc
read_run(struct plan *p, struct words *w, const struct sources *all, struct fault *f)
{
	bool named; /* the key is a word of its own */

	if (words_read_options(w, f) != RC_OK)
		return RC_USAGE;
	named = !w->help && !sources_of(all, OPT_KEY);
	if (named && *w->next && words_read_key(w, f) != RC_OK)
		return RC_USAGE;
	if (w->help)
		return RC_OK;
	if (sources_apply(all, p, f) != RC_OK ||
	    settle_command(p, w->next, named, f) != RC_OK)
		return RC_USAGE;
	return RC_OK;
}

/* Any other: keys named as words leave no room for a variable's. */
static enum rc
read_other(struct plan *p, struct words *w, struct sources *all, struct fault *f)
{
	if (words_read_all(w, take_operand, f) != RC_OK)
		return RC_USAGE;
	if (w->help)
		return RC_OK;
	if (p->nkeys > 0)
		all->list[SOURCE_ENVIRONMENT].value[OPT_KEY] = NULL;
	if (sources_apply(all, p, f) != RC_OK)
		return RC_USAGE;
	if (p->nkeys == 0 && (options[OPT_KEY].cmds & p->cmd))
		return fault_set(
		    f, RC_USAGE, "no key: say dlock %s KEY", options_cmd(p->cmd));
	return RC_OK;
}

enum parsed
plan_read(struct plan *p, unsigned cmd, char **argv, struct fault *f)
{
	struct sources all;
	struct words words = {
	    .cmd = cmd, .next = argv, .plan = p, .said = &all.list[SOURCE_WORDS]};
	bool sited = options[OPT_URL].cmds & cmd;

	*p = (struct plan){
	    .cmd = cmd,
	    .wait = {.most = NEVER, .conflict_status = STATUS_BUSY},
	    .terms = {.ttl = 30 * NS_PER_S, .max_run = NEVER},
	    .show = {.status_fd = -1},
	    .command = {.shell = {"/bin/sh", "-c"}, .signal = SIGTERM},
	    .steer = {.length = NEVER},
	};
	sources_init(&all, cmd);
	if ((cmd == CMD_RUN ? read_run(p, &words, &all, f)
			    : read_other(p, &words, &all, f)) != RC_OK)
		return PARSED_WRONG;
	if (words.help)
		return PARSED_HELP;
	if ((sited && site_settle(p, &all, f) != RC_OK) ||
	    settle_lease(&p->terms, f) != RC_OK)
		return PARSED_WRONG;
	return PARSED_PLAN;
}

char *
plan_name(const struct plan *p, char *out, size_t size)
{
	const size_t last = sizeof " and 15 more";
	size_t used = 0;
	char key[120];

	if (p->nkeys == 1)
		return text_name(out, size, p->keys[0]);
	for (size_t i = 0; i < p->nkeys; i++) {
		const char *between = i == 0 ? "" : i + 1 < p->nkeys ? ", " : " and ";

		text_name(key, sizeof key, p->keys[i]);
		if (used + strlen(between) + strlen(key) + last > size) {
			snprintf(out + used, size - used, " and %zu more", p->nkeys - i);
			break;
		}
		used += snprintf(out + used, size - used, "%s%s", between, key);
	}
	return out;
}
