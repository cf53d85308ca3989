/*
 * plan.c - makes a subcommand's plan from the command line, the environment and the
 * configuration files, and checks it as a whole.
 */
#include "plan.h"

#include "conf.h"
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

/* "--ttl", or as a file calls it. */
static const char *
call_option(const struct sources *all, int i, char *out, size_t size)
{
	const struct source *s = sources_of(all, i);

	if (s && sources_filed(s))
		return sources_call(s, i, out, size);
	snprintf(out, size, "--%s", options[i].name);
	return out;
}

/* Can the lease carry two attempts to renew, the grace and the margin? */
static enum rc
settle_lease(struct terms *t, const struct sources *all, struct fault *f)
{
	const struct source *of = sources_of(all, OPT_TTL);
	char ttl[32], grace[32], least[32], of_ttl[CALLED_BYTES], of_grace[CALLED_BYTES];

	if (!t->grace_fixed)
		t->grace = lease_grace(t->ttl);
	if (lease_fits(t->ttl, lease_pace(t->ttl), t->grace))
		return RC_OK;
	parse_duration_text((lease_least(t->grace) + NS_PER_S - 1) / NS_PER_S * NS_PER_S,
	    least, sizeof least);
	if (!of)
		of = sources_of(all, OPT_GRACE);
	return fault_set(f, of ? sources_wrong(of) : RC_USAGE,
	    "%s %s is too short for %s %s: two renewals would not fit (at least --ttl %s)",
	    call_option(all, OPT_TTL, of_ttl, sizeof of_ttl),
	    parse_duration_text(t->ttl, ttl, sizeof ttl),
	    call_option(all, OPT_GRACE, of_grace, sizeof of_grace),
	    parse_duration_text(t->grace, grace, sizeof grace), least);
}

/* A run that is busy may be content; elsewhere, 0 is what the caller has asked for. */
static enum rc
settle_conflict(const struct plan *p, const struct sources *all, struct fault *f)
{
	const struct source *of = sources_of(all, OPT_CONFLICT);
	char called[CALLED_BYTES];

	if (!of || p->wait.conflict_status != 0 || !(p->cmd & (CMD_HOLD | CMD_WAIT)))
		return RC_OK;
	return fault_set(f, sources_wrong(of), "%s 0: status 0 of dlock %s says that %s",
	    sources_call(of, OPT_CONFLICT, called, sizeof called), options_cmd(p->cmd),
	    p->cmd == CMD_HOLD ? "the lock is held" : "the lock is free");
}

/* What stands between the options of a subcommand that runs nothing. */
static enum rc
take_operand(struct plan *p, const char *operand, struct fault *f)
{
	const char **only = p->cmd == CMD_LS ? &p->look.pattern
	    : p->cmd == CMD_RELEASE          ? &p->steer.handle
					     : NULL;
	struct fault why;

	if (only) {
		if (*only)
			return fault_set(f, RC_USAGE, "'%s' is one word too many",
			    text_brief(operand).text);
		*only = operand;
		return RC_OK;
	}
	if (!(options[OPT_KEY].cmds & p->cmd))
		return fault_set(
		    f, RC_USAGE, "'%s' is one word too many", text_brief(operand).text);
	if ((p->cmd & (CMD_FREEZE | CMD_THAW)) && strpbrk(operand, "*?["))
		return fault_set(f, RC_USAGE,
		    "key '%s': %s has no patterns: name each key (dlock ls PATTERN lists those in use), or say -k for a key of just that name",
		    text_brief(operand).text, options_cmd(p->cmd));
	if (options[OPT_KEY].set(p, &options[OPT_KEY], operand, &why) != RC_OK)
		return fault_set(
		    f, RC_USAGE, "key '%s': %s", text_brief(operand).text, why.text);
	return RC_OK;
}

/* All that is not a word: files, for the keys that are known by now, and variables. */
static enum rc
read_sources(struct plan *p, struct sources *all, struct fault *f)
{
	const struct source *of_key = sources_of(all, OPT_KEY);
	bool named = p->nkeys > 0 || !of_key;
	enum rc rc = sources_apply_one(all, OPT_CONFIG, p, f);

	if (rc == RC_OK)
		rc = sources_apply_one(all, OPT_PROFILE, p, f);
	if (rc == RC_OK && (options[OPT_CONFIG].cmds & p->cmd))
		rc = conf_read(all, named ? p->keys : &of_key->value[OPT_KEY],
		    named ? p->nkeys : 1, f);
	return rc == RC_OK ? sources_apply(all, p, f) : rc;
}

/* `dlock run` ends its options where the command begins. */
static enum rc
read_run_words(struct plan *p, struct words *w, struct sources *all, struct fault *f)
{
	enum rc rc;
	bool named; /* the key is a word of its own */

	if (words_read_options(w, f) != RC_OK)
		return RC_USAGE;
	named = !w->help && !sources_of(all, OPT_KEY);
	if (named && *w->next && words_read_key(w, f) != RC_OK)
		return RC_USAGE;
	if (w->help)
		return RC_OK;
	rc = read_sources(p, all, f);
	return rc == RC_OK ? settle_command(p, w->next, named, f) : rc;
}

/* Any other: keys named as words leave no room for a variable's. */
static enum rc
read_other(struct plan *p, struct words *w, struct sources *all, struct fault *f)
{
	enum rc rc;

	if (words_read_all(w, take_operand, f) != RC_OK)
		return RC_USAGE;
	if (w->help)
		return RC_OK;
	if (p->nkeys > 0)
		all->list[SOURCE_ENVIRONMENT].value[OPT_KEY] = NULL;
	rc = read_sources(p, all, f);
	if (rc == RC_OK && p->nkeys == 0 && (options[OPT_KEY].cmds & p->cmd) &&
	    p->cmd != CMD_CONFIG)
		return fault_set(
		    f, RC_USAGE, "no key: say dlock %s KEY", options_cmd(p->cmd));
	return rc;
}

enum parsed
plan_trace(
    struct plan *p, struct sources *all, unsigned cmd, char **argv, struct fault *f)
{
	struct words words = {
	    .cmd = cmd, .next = argv, .plan = p, .said = &all->list[SOURCE_WORDS]};
	bool sited = options[OPT_URL].cmds & cmd;
	enum rc rc;

	*p = (struct plan){
	    .cmd = cmd,
	    .wait = {.most = NEVER, .conflict_status = STATUS_BUSY},
	    .terms = {.ttl = 30 * NS_PER_S, .max_run = NEVER},
	    .show = {.status_fd = -1},
	    .command = {.shell = {"/bin/sh", "-c"}, .signal = SIGTERM},
	    .steer = {.length = NEVER},
	};
	sources_init(all, cmd);
	rc = cmd == CMD_RUN ? read_run_words(p, &words, all, f)
			    : read_other(p, &words, all, f);
	if (rc == RC_OK && words.help)
		return PARSED_HELP;
	if (rc == RC_OK && sited)
		rc = site_settle(p, all, f);
	if (rc == RC_OK)
		rc = settle_lease(&p->terms, all, f);
	if (rc == RC_OK)
		rc = settle_conflict(p, all, f);
	p->status = status_of_rc(rc).number;
	return rc == RC_OK ? PARSED_PLAN : PARSED_WRONG;
}

enum parsed
plan_read(struct plan *p, unsigned cmd, char **argv, struct fault *f)
{
	static struct sources
	    all; /* of which little is touched: a stack would be, all of it */

	return plan_trace(p, &all, cmd, argv, f);
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
