/* said.c - lists the values of options, and finds those that count. */
#include "said.h"

#include "parse.h"

#include "backends/common/append.h"

#include <string.h>

/* ---- the list ---- */

void
said_init(struct said_list *all, unsigned cmd)
{
	all->cmd = cmd;
	all->outer = NULL;
	all->first = NULL;
	all->words = (struct said_origin){.by = BY_WORDS};
	all->variables = (struct said_origin){.by = BY_VARIABLE};
	all->outer_run = (struct said_origin){.by = BY_OUTER};
	all->nsections = all->n = 0;
}

struct said_origin *
said_add_section(struct said_list *all, enum said_by by)
{
	struct said_origin *o = &all->sections[all->nsections];

	if (all->nsections == SAID_SECTIONS)
		return NULL;
	all->nsections++;
	*o = (struct said_origin){.by = by};
	return o;
}

/* Is `a` weaker than `b`?  Of two sections of one kind, the later one is stronger. */
static bool
is_weaker(const struct said_origin *a, const struct said_origin *b)
{
	return a->by > b->by || (a->by == b->by && a < b);
}

void
said_add(struct said_list *all, struct said_origin *origin, int option, const char *value,
    int line)
{
	struct said **at = &all->first, *s = &all->room[all->n];

	/* one more than is allowed is kept, so that it is refused later */
	if (option == OPT_OPTION && origin->nsettings++ > SETTINGS_MAX)
		return;
	if (option == OPT_UNLESS_FROZEN && origin->nswitches++ >= SAID_SWITCHES)
		return;
	while (*at && !is_weaker((*at)->origin, origin))
		at = &(*at)->next;
	*s = (struct said){*at, origin, value, option, line};
	*at = s;
	all->n++;
}

const struct said *
said_of(const struct said_list *all, int i)
{
	enum group group = options[i].group;
	const struct said_origin *owner = NULL;
	const struct said *s = all->first;

	/* the strongest origin that says an option of the group owns the group */
	for (; s && s->option != i; s = s->next)
		if (!owner && group != GROUP_NONE && options[s->option].group == group)
			owner = s->origin;
	return s && owner && s->origin != owner ? NULL : s;
}

bool
said_in_file(const struct said *s)
{
	return s->origin->by >= BY_USER_PROFILE && s->origin->by <= BY_SYSTEM;
}

struct clean
said_call(const struct said *s, int i)
{
	struct clean c;
	const char *end = c.text + sizeof c.text;

	if (!s || s->origin->by == BY_WORDS)
		append_text(append_text(c.text, end, "--"), end, options[i].name);
	else if (said_in_file(s))
		snprintf(c.text, sizeof c.text, "%s:%d: %s", s->origin->file, s->line,
		    options[i].name);
	else
		append_text(c.text, end, options[i].env);
	return c;
}

enum rc
said_wrong(const struct said *s)
{
	return said_in_file(s) ? RC_CONFIG : RC_USAGE;
}

/* ---- what counts ---- */

/*
 * Takes one value into the parameters.  Several keys are locked together, on one server and with
 * one lease.  A section for only some of them is refused: it cannot count for all, and if it did
 * not count, two runs of its key might use two servers and not exclude each other.
 */
static enum rc
apply(const struct said *s, struct params *p, struct fault *f)
{
	const struct said_origin *by = s->origin;
	struct fault why;

	if (by->outside)
		return fault_set(f, RC_CONFIG,
		    "%s: [%s] is for another key of this run, but not for '%s': say --%s, which counts for all keys",
		    said_call(s, s->option).text, text_brief(by->section).text,
		    text_brief(by->outside).text, options[s->option].name);
	if (options_take(p, s->option, s->value, &why) != RC_OK)
		return fault_set(
		    f, said_wrong(s), "%s%s", said_call(s, s->option).text, why.text);
	return RC_OK;
}

/* The value of option i that counts.  NULL: there is none, or it is a flag that says no. */
static const struct said *
said_yes(const struct said_list *all, int i)
{
	const struct said *s = said_of(all, i);
	bool on = true;

	if (s && !options[i].arg && (!parse_truth(s->value, &on) || !on))
		return NULL;
	return s;
}

/*
 * Refuses option i beside an earlier one of its group from the same origin: to wait and not to
 * wait, or two kinds of lock.
 */
static enum rc
check_contradiction(const struct said_list *all, int i, struct fault *f)
{
	enum group group = options[i].group;
	const struct said *s = said_yes(all, i);
	bool shown = s && i == OPT_WAIT && s->origin->by == BY_WORDS;

	for (int first = 0; s && first < i; first++) {
		const struct said *before = options[first].group == group
		    ? said_yes(all, first)
		    : NULL;

		if (before)
			return fault_set(f, said_wrong(s),
			    "%s and %s%s%s contradict each other%s",
			    said_call(before, first).text, said_call(s, i).text,
			    shown ? " " : "", shown ? text_brief(s->value).text : "",
			    group == GROUP_KIND ? ": a lock is of one kind" : "");
	}
	return RC_OK;
}

/* Has one of the first n settings the name in this NAME=VALUE? */
static bool
has_setting(const struct params_site *site, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (text_is(site->settings[i].name, text, strcspn(text, "=")))
			return true;
	return false;
}

/*
 * Takes the settings that count.  A setting counts if no stronger origin has one of its name.
 * Variables count where the words have no setting at all.  Files count down to the file that
 * names the server: settings of weaker files are for another server, and one of them may be that
 * server's password.
 */
static enum rc
apply_settings(struct said_list *all, struct params *p, struct fault *f)
{
	const struct said *own = said_of(all, OPT_OPTION);
	const struct said_origin *origin = NULL;
	size_t stronger = 0; /* settings of stronger origins */
	bool server_said = false, here = false;

	for (const struct said *s = all->first; s; s = s->next) {
		if (!origin || s->origin != origin) {
			origin = s->origin;
			stronger = p->site.nsettings;
			server_said |= here;
			here = false;
		}
		here |= options[s->option].group == GROUP_SERVER;
		if (s->option != OPT_OPTION ||
		    (said_in_file(s) ? server_said : origin != own->origin) ||
		    has_setting(&p->site, stronger, s->value))
			continue;
		if (apply(s, p, f) != RC_OK)
			return said_wrong(s);
		all->settings[p->site.nsettings - 1] = s;
	}
	return RC_OK;
}

/* All that the strongest origin says of an option that may be repeated. */
static enum rc
apply_each(const struct said *first, struct params *p, struct fault *f)
{
	enum rc rc = RC_OK;

	for (const struct said *s = first; s && s->origin == first->origin && rc == RC_OK;
	     s = s->next)
		if (s->option == first->option)
			rc = apply(s, p, f);
	return rc;
}

enum rc
said_apply(struct said_list *all, int first, int end, struct params *p, struct fault *f)
{
	enum rc rc = RC_OK;

	for (int i = first; i < end && rc == RC_OK; i++) {
		const struct said *s = said_of(all, i);

		if (!s || (i == OPT_KEY && s->origin->by == BY_WORDS))
			continue;
		if (options[i].group >= GROUP_WAIT)
			rc = check_contradiction(all, i, f);
		if (rc == RC_OK && i == OPT_OPTION)
			rc = apply_settings(all, p, f);
		else if (rc == RC_OK && i == OPT_UNLESS_FROZEN)
			rc = apply_each(s, p, f);
		else if (rc == RC_OK)
			rc = apply(s, p, f);
	}
	return rc;
}

/* ---- blame ---- */

/* Does the backend refuse the site with only its first n settings for the same reason? */
static bool
is_met_with(const struct params *p, struct site site, size_t n, struct host *host,
    const struct fault *objection)
{
	const struct backend *b = p->site.backend;
	struct fault f = {""};
	struct store *store;

	site.nsettings = n;
	if (b->open(&store, host, &site, &f) != RC_OK)
		return strcmp(f.text, objection->text) == 0;
	store->backend->close(store);
	return false;
}

/* Puts FILE:LINE before the fault, if a file says that value. */
static enum rc
blame(const struct said *s, struct fault *f)
{
	const struct fault why = *f;

	if (!said_in_file(s))
		return RC_USAGE;
	return fault_set(f, RC_CONFIG, "%s: %.*s", said_call(s, s->option).text,
	    (int)sizeof why.text - 300, why.text);
}

enum rc
said_blame(
    const struct params *p, const struct site *site, struct host *host, struct fault *f)
{
	const size_t told = site->nsettings - p->site.nsettings; /* by the outer run */
	const struct said *url;
	size_t n = 0;

	while (n <= site->nsettings && !is_met_with(p, *site, n, host, f))
		n++;
	if (n > told && n <= site->nsettings)
		return blame(p->said->settings[n - told - 1], f);
	url = said_of(p->said, OPT_URL);
	return n > 0 || p->site.of_variable || !url ? RC_USAGE : blame(url, f);
}
