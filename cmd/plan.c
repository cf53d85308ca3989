/*
 * plan.c - makes the plan of a run from the command line and the environment, and checks
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

enum parsed
plan_read(struct plan *p, char **argv, struct fault *f)
{
	struct sources all;
	struct words words = {.next = argv, .plan = p, .said = &all.list[SOURCE_WORDS]};
	bool named; /* the key is a word of its own */

	*p = (struct plan){
	    .wait = {.most = NEVER, .conflict_status = STATUS_BUSY},
	    .terms = {.ttl = 30 * NS_PER_S, .max_run = NEVER},
	    .show = {.status_fd = -1},
	    .command = {.shell = {"/bin/sh", "-c"}, .signal = SIGTERM},
	};
	sources_init(&all);
	if (words_read_options(&words, f) != RC_OK)
		return PARSED_WRONG;
	named = !words.help && !sources_of(&all, OPT_KEY);
	if (named && *words.next && words_read_key(&words, f) != RC_OK)
		return PARSED_WRONG;
	if (words.help)
		return PARSED_HELP;
	if (sources_apply(&all, p, f) != RC_OK ||
	    settle_command(p, words.next, named, f) != RC_OK ||
	    site_settle(p, &all, f) != RC_OK || settle_lease(&p->terms, f) != RC_OK)
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
