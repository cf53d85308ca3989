/* sources.c - which of several sources gives an option its value. */
#include "sources.h"

#include "parse.h"
#include "text.h"

#include <stdlib.h>

const char *
sources_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

bool
sources_nested(void)
{
	return sources_variable("DLOCK_KEEPER") != NULL;
}

/*
 * Some variables may be only what an enclosing dlock tells its command: which lock that
 * has, and where.
 */
static void
read_environment(struct source *s, unsigned cmd)
{
	for (int i = 0; i < OPTIONS; i++)
		if (options[i].env && (options[i].cmds & cmd))
			s->value[i] = sources_variable(options[i].env);
	if (!sources_nested())
		return;
	s->value[OPT_KEY] = NULL;
	if (s->value[OPT_URL])
		s->value[OPT_BACKEND] = NULL;
}

void
sources_init(struct sources *all, unsigned cmd)
{
	all->cmd = cmd;
	for (int i = 0; i < SOURCES; i++)
		all->list[i] = (struct source){.kind = i};
	read_environment(&all->list[SOURCE_ENVIRONMENT], cmd);
}

static bool
has_member(const struct source *s, enum group group)
{
	for (int i = 0; i < OPTIONS; i++)
		if (options[i].group == group && s->value[i])
			return true;
	return false;
}

const struct source *
sources_of(const struct sources *all, int i)
{
	enum group group = options[i].group;

	for (const struct source *s = all->list; s < all->list + SOURCES; s++)
		if (s->value[i])
			return s;
		else if (group != GROUP_NONE && has_member(s, group))
			return NULL;
	return NULL;
}

const char *
sources_call(const struct source *s, int i, char *out, size_t size)
{
	if (s->kind == SOURCE_WORDS)
		snprintf(out, size, "--%s", options[i].name);
	else
		snprintf(out, size, "%s", options[i].env);
	return out;
}

static enum rc
apply(const struct source *s, int i, struct plan *p, struct fault *f)
{
	const struct option *o = &options[i];
	bool variable = s->kind == SOURCE_ENVIRONMENT && o->set_variable;
	struct fault why = {""};
	char called[64];

	if ((variable ? o->set_variable : o->set)(p, o, s->value[i], &why) == RC_OK)
		return RC_OK;
	return fault_set(f, RC_USAGE, "%s '%s': %s",
	    sources_call(s, i, called, sizeof called), text_brief(s->value[i]).text,
	    why.text);
}

/* Not to wait and to wait: whoever says both in one source has made a mistake. */
static enum rc
check_wait(const struct sources *all, struct fault *f)
{
	const struct source *s = sources_of(all, OPT_NONBLOCK);
	char nonblock[64], wait[64];
	bool on = false, words;

	if (!s || s != sources_of(all, OPT_WAIT) ||
	    !parse_truth(s->value[OPT_NONBLOCK], &on) || !on)
		return RC_OK;
	words = s->kind == SOURCE_WORDS;
	return fault_set(f, RC_USAGE, "%s and %s%s%s contradict each other",
	    sources_call(s, OPT_NONBLOCK, nonblock, sizeof nonblock),
	    sources_call(s, OPT_WAIT, wait, sizeof wait), words ? " " : "",
	    words ? text_brief(s->value[OPT_WAIT]).text : "");
}

/* Of -s, -x and --limit one source may say one. */
static enum rc
sources_check_kind(const struct sources *all, struct fault *f)
{
	const struct source *before = NULL;
	char one[64], other[64];
	int first = 0;

	for (int i = OPT_SHARED; i <= OPT_LIMIT; i++) {
		const struct source *s = sources_of(all, i);
		bool on = i == OPT_LIMIT;

		if (!s || (i != OPT_LIMIT && (!parse_truth(s->value[i], &on) || !on)))
			continue;
		if (before)
			return fault_set(f, RC_USAGE,
			    "%s and %s contradict each other: a lock is of one kind",
			    sources_call(before, first, one, sizeof one),
			    sources_call(s, i, other, sizeof other));
		before = s;
		first = i;
	}
	return RC_OK;
}

enum rc
sources_apply(const struct sources *all, struct plan *p, struct fault *f)
{
	if (check_wait(all, f) != RC_OK || sources_check_kind(all, f) != RC_OK)
		return RC_USAGE;
	for (int i = 0; i < OPTIONS; i++) {
		const struct source *s = sources_of(all, i);

		if (!s || (s->kind == SOURCE_WORDS && options[i].repeats))
			continue;
		if (apply(s, i, p, f) != RC_OK)
			return RC_USAGE;
	}
	return RC_OK;
}
