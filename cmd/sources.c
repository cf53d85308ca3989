/* sources.c - which of several sources gives an option its value. */
#include "sources.h"

#include "mask.h"
#include "outer.h"
#include "parse.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

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
 * has, and where.  Where it is counts least, but for one thing: see conf.c.  A backend
 * that is not its own has been named by somebody else, and counts as any variable.
 */
static void
read_environment(struct source *s, struct source *enclosing, unsigned cmd)
{
	const char *outer = outer_backend(), **named = &s->value[OPT_BACKEND];

	for (int i = 0; i < OPTIONS; i++)
		if (options[i].env && (options[i].cmds & cmd))
			s->value[i] = sources_variable(options[i].env);
	if (!sources_nested())
		return;
	s->value[OPT_KEY] = NULL;
	if (*named && outer && strcmp(*named, outer) != 0)
		return;
	if (!s->value[OPT_URL] && (options[OPT_BACKEND].cmds & cmd))
		enclosing->value[OPT_BACKEND] = *named ? *named : outer;
	*named = NULL;
}

void
sources_init(struct sources *all, unsigned cmd)
{
	static const enum source_kind first[] = {
	    SOURCE_WORDS, SOURCE_ENVIRONMENT, SOURCE_ENCLOSING};

	all->cmd = cmd;
	all->n = sizeof first / sizeof *first;
	all->nfiles = all->nsetters = 0;
	for (size_t i = 0; i < all->n; i++)
		all->list[i] = (struct source){.kind = first[i]};
	read_environment(&all->list[SOURCE_ENVIRONMENT], &all->list[all->n - 1], cmd);
}

struct source *
sources_add(struct sources *all, enum source_kind kind)
{
	struct source *s = all->list, *end = all->list + all->n;

	if (all->n == SOURCES_MAX)
		return NULL;
	while (s < end && s->kind < kind)
		s++;
	memmove(s + 1, s, (end - s) * sizeof *s);
	all->n++;
	*s = (struct source){.kind = kind};
	return s;
}

bool
sources_filed(const struct source *s)
{
	return s->kind >= SOURCE_USER_PROFILE && s->kind <= SOURCE_SYSTEM;
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

	for (const struct source *s = all->list; s < all->list + all->n; s++)
		if (s->value[i])
			return s;
		else if (group != GROUP_NONE && has_member(s, group))
			return NULL;
	return NULL;
}

static const char *
call(const struct source *s, int i, int line, char *out, size_t size)
{
	if (s->kind == SOURCE_WORDS)
		snprintf(out, size, "--%s", options[i].name);
	else if (sources_filed(s))
		snprintf(out, size, "%s:%d: %s", s->file, line, options[i].name);
	else
		snprintf(out, size, "%s", options[i].env);
	return out;
}

const char *
sources_call(const struct source *s, int i, char *out, size_t size)
{
	return call(s, i, s->line[i], out, size);
}

enum rc
sources_wrong(const struct source *s)
{
	return sources_filed(s) ? RC_CONFIG : RC_USAGE;
}

/*
 * Several keys are locked together: on one server, with one lease, one everything.  A
 * section that is for some of them only would be broken for one or the other, so that two
 * runs of that key might not exclude each other.
 */
static enum rc
outside(const struct source *s, int i, const char *called, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: [%s] is not for the key '%s', which is to be locked together with one that it is for: say --%s for all of them",
	    called, text_brief(s->section).text, text_brief(s->outside).text,
	    options[i].name);
}

/* One value of its, from that line where it is a file's. */
static enum rc
apply(const struct source *s, int i, const char *value, int line, struct plan *p,
    struct fault *f)
{
	const struct option *o = &options[i];
	bool variable = s->kind == SOURCE_ENVIRONMENT && o->set_variable;
	struct fault why = {""};
	char called[CALLED_BYTES];

	call(s, i, line, called, sizeof called);
	if (s->outside)
		return outside(s, i, called, f);
	if ((variable ? o->set_variable : o->set)(p, o, value, &why) == RC_OK)
		return RC_OK;
	if (mask_finds(value))
		return fault_set(f, sources_wrong(s), "%s: %s", called, why.text);
	return fault_set(
	    f, sources_wrong(s), "%s '%s': %s", called, text_brief(value).text, why.text);
}

/* Not to wait and to wait: whoever says both in one source has made a mistake. */
static enum rc
check_wait(const struct sources *all, struct fault *f)
{
	const struct source *s = sources_of(all, OPT_NONBLOCK);
	char nonblock[CALLED_BYTES], wait[CALLED_BYTES];
	bool on = false, words;

	if (!s || s != sources_of(all, OPT_WAIT) ||
	    !parse_truth(s->value[OPT_NONBLOCK], &on) || !on)
		return RC_OK;
	words = s->kind == SOURCE_WORDS;
	return fault_set(f, sources_wrong(s), "%s and %s%s%s contradict each other",
	    sources_call(s, OPT_NONBLOCK, nonblock, sizeof nonblock),
	    sources_call(s, OPT_WAIT, wait, sizeof wait), words ? " " : "",
	    words ? text_brief(s->value[OPT_WAIT]).text : "");
}

/* Of -s, -x and --limit one source may say one. */
static enum rc
sources_check_kind(const struct sources *all, struct fault *f)
{
	const struct source *before = NULL;
	char one[CALLED_BYTES], other[CALLED_BYTES];
	int first = 0;

	for (int i = OPT_SHARED; i <= OPT_LIMIT; i++) {
		const struct source *s = sources_of(all, i);
		bool on = i == OPT_LIMIT;

		if (!s || (i != OPT_LIMIT && (!parse_truth(s->value[i], &on) || !on)))
			continue;
		if (before)
			return fault_set(f, sources_wrong(s),
			    "%s and %s contradict each other: a lock is of one kind",
			    sources_call(before, first, one, sizeof one),
			    sources_call(s, i, other, sizeof other));
		before = s;
		first = i;
	}
	return RC_OK;
}

/* Is there one of this NAME=VALUE's name among the first n? */
static bool
has_setting(const struct plan_site *site, size_t n, const char *text)
{
	size_t length = strcspn(text, "=");

	for (size_t i = 0; i < n; i++)
		if (strlen(site->settings[i].name) == length &&
		    strncmp(site->settings[i].name, text, length) == 0)
			return true;
	return false;
}

/* All that are new in the plan are of this source, and that line. */
static void
note_setters(struct sources *all, const struct source *s, int line, const struct plan *p)
{
	for (; all->nsetters < p->site.nsettings; all->nsetters++)
		all->setters[all->nsetters] = (struct setter){s, line};
}

/* What a section says of settings that no stronger source has. */
static enum rc
apply_section(
    struct sources *all, const struct source *s, struct plan *p, struct fault *f)
{
	size_t before = p->site.nsettings;

	for (size_t i = 0; i < s->nsettings; i++) {
		const struct source_setting *one = &s->settings[i];

		if (has_setting(&p->site, before, one->text))
			continue;
		if (apply(s, OPT_OPTION, one->text, one->line, p, f) != RC_OK)
			return RC_CONFIG;
		note_setters(all, s, one->line, p);
	}
	return RC_OK;
}

/*
 * The words' have taken effect already.  Those of files belong to the server: they end
 * with the source that names it.
 */
static enum rc
apply_settings(struct sources *all, struct plan *p, struct fault *f)
{
	bool named = false;

	note_setters(all, all->list, 0, p);
	for (const struct source *s = all->list; s < all->list + all->n; s++) {
		enum rc rc = RC_OK;

		if (sources_filed(s) && !named)
			rc = apply_section(all, s, p, f);
		else if (s == sources_of(all, OPT_OPTION) &&
		    s->kind == SOURCE_ENVIRONMENT)
			rc = apply(s, OPT_OPTION, s->value[OPT_OPTION], 0, p, f);
		if (rc != RC_OK)
			return rc;
		note_setters(all, s, 0, p);
		named = named || has_member(s, GROUP_SERVER);
	}
	return RC_OK;
}

enum rc
sources_apply_one(const struct sources *all, int i, struct plan *p, struct fault *f)
{
	const struct source *s = sources_of(all, i);

	if (!s || (s->kind == SOURCE_WORDS && options[i].repeats))
		return RC_OK;
	return apply(s, i, s->value[i], s->line[i], p, f);
}

enum rc
sources_apply(struct sources *all, struct plan *p, struct fault *f)
{
	enum rc rc = check_wait(all, f);

	if (rc == RC_OK)
		rc = sources_check_kind(all, f);
	for (int i = 0; i < OPTIONS && rc == RC_OK; i++)
		rc = i == OPT_OPTION ? apply_settings(all, p, f)
				     : sources_apply_one(all, i, p, f);
	return rc;
}
