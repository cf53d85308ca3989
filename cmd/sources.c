/* sources.c - which of several sources gives an option its value. */
#include "sources.h"

#include "cmd/supervise/keeper_address.h"
#include "parse.h"

#include "backends/common/text.h"
#include "backends/registry.h"

#include <fnmatch.h>
#include <ctype.h>
#include <string.h>
#include <unistd.h>

/* ---- the environment ---- */

/*
 * The backend of the nearest dlock around this one; of those that have not ended if it is to be
 * living, or NULL.  One that does not say so (DLOCK_KEEPER is a handle) is believed to have told
 * DLOCK_BACKEND.
 */
static const char *
outer_backend(struct keeper_address *a, const char *keepers, bool living)
{
	do
		if (!keeper_address_next(&keepers, a))
			return NULL;
	while (living && keeper_address_life(a) == KEEPER_ENDED);
	return *a->backend ? a->backend : plan_variable("DLOCK_BACKEND");
}

struct brief
sources_url_variable(const struct backend *b)
{
	struct brief name;
	const char *end = name.text + sizeof name.text;
	char *at = text_put(text_put(name.text, end, "DLOCK_"), end, b->name);

	text_put(at, end, "_URL");
	for (char *c = name.text; *c; c++)
		*c = toupper((unsigned char)*c);
	return name;
}

/*
 * Kubernetes sets such variables for each Service: of one named "dlock" or "dlock-redis" they
 * begin as ours do.
 */
static bool
is_service_link(const char *word)
{
	static const char *const links[] = {"SERVICE_HOST=*", "SERVICE_PORT=*",
	    "SERVICE_PORT_*=*", "PORT=*://*", "PORT_[0-9]*_TCP*=*", "PORT_[0-9]*_UDP*=*",
	    "PORT_[0-9]*_SCTP*=*"};
	char below[64];

	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		snprintf(below, sizeof below, "*_%s", links[i]);
		if (fnmatch(links[i], word, 0) == 0 || fnmatch(below, word, 0) == 0)
			return true;
	}
	return false;
}

bool
sources_strays(char *out, size_t size)
{
	static const char prefix[] = "DLOCK_";
	const char *known[OPTIONS + OPTIONS_BACKENDS + VARIABLES + 2] = {"HANDLE"};
	struct brief urls[OPTIONS_BACKENDS];
	size_t nknown = 1, nurls = 0, used = 0;

	for (int i = 0; i < OPTIONS; i++)
		if (options[i].env)
			known[nknown++] = options[i].env + strlen(prefix);
	for (enum variable i = 0; i < VARIABLES; i++)
		known[nknown++] = variable_names[i] + strlen(prefix);
	for (char **e = environ; *e && used < size; e++) {
		const char *word;
		size_t n, i = 0;
		char name[64];

		if (strncmp(*e, prefix, strlen(prefix)) != 0)
			continue;
		word = *e + strlen(prefix);
		n = strcspn(word, "=");
		while (known[i] && !text_is(known[i], word, n))
			i++;
		/* the names of all backends are far apart, and seldom needed */
		while (!known[i] && backends[nurls]) {
			urls[nurls] = sources_url_variable(backends[nurls]);
			known[nknown++] = urls[nurls++].text + strlen(prefix);
			i += !text_is(known[i], word, n);
		}
		/* what begins with BEFORE_ a hold has kept for its release */
		if (known[i] || !word[n] || !word[n + 1] ||
		    strncmp(word, "BEFORE_", strlen("BEFORE_")) == 0 ||
		    is_service_link(word))
			continue;
		used += snprintf(out + used, size - used, "%s%s%s", used > 0 ? ", " : "",
		    text_clean(name, sizeof name, *e, strlen(prefix) + n),
		    parse_hint(
			" (did you mean DLOCK_", parse_nearest(word, n, known), "?)")
			.text);
	}
	return used > 0;
}

/* ---- the list ---- */

/* Most runs have none, and getenv() looks through all variables for each name. */
static bool
has_variables(void)
{
	char **e = environ;

	while (*e && strncmp(*e, "DLOCK_", strlen("DLOCK_")) != 0)
		e++;
	return *e;
}

/*
 * Some variables may be only what an enclosing dlock tells its command: which lock that
 * has, and where.  Where it is counts least, but for one thing: see conf.c.  A backend
 * that is not the enclosing dlock's has been named by somebody else, and counts as any
 * variable.  What is left of a dlock that has ended says as little, and overrules nothing.
 */
void
sources_init(struct sources *all, unsigned cmd)
{
	static struct keeper_address nearest, outer;
	const char *keepers = plan_variable("DLOCK_KEEPER"), *told, **said, **named;
	bool has_ours = has_variables(), asks = options[OPT_BACKEND].cmds & cmd;

	all->cmd = cmd;
	all->outer = keepers && asks ? outer_backend(&outer, keepers, true) : NULL;
	all->n = all->nfiles = 0;
	sources_add(all, SOURCE_WORDS);
	sources_add(all, SOURCE_ENVIRONMENT);
	sources_add(all, SOURCE_ENCLOSING);
	said = all->list[SOURCE_ENVIRONMENT].value;
	for (int i = 0; i < OPTIONS && has_ours; i++)
		if (options[i].env && (options[i].cmds & cmd))
			said[i] = plan_variable(options[i].env);
	if (said[OPT_OPTION]) /* a variable stands for several flags */
		for (char *rest = strdup(said[OPT_OPTION]), *word;
		     (word = strtok_r(rest, " \t\n", &rest));)
			sources_note_setting(&all->list[SOURCE_ENVIRONMENT], word, 0);
	if (!keepers)
		return;
	said[OPT_KEY] = NULL;
	told = outer_backend(&nearest, keepers, false);
	named = &said[OPT_BACKEND];
	if (*named && (!told || strcmp(*named, told) != 0))
		return;
	*named = NULL;
	if (asks)
		all->list[all->n - 1].value[OPT_BACKEND] = all->outer ? all->outer : told;
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

void
sources_note_setting(struct source *s, const char *text, int line)
{
	if (s->nsettings <= SETTINGS_MAX)
		s->settings[s->nsettings++] = (struct source_setting){text, line};
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
	const struct source *s = all->list, *end = all->list + all->n;

	while (s < end && !s->value[i])
		s++;
	for (const struct source *stronger = all->list; s < end && stronger < s;
	     stronger++)
		if (group != GROUP_NONE && has_member(stronger, group))
			return NULL;
	return s < end ? s : NULL;
}

/* ---- what counts ---- */

/* From that line, where it is a file's. */
static struct clean
call(const struct source *s, int i, int line)
{
	struct clean c;
	const char *end = c.text + sizeof c.text;

	if (!s || s->kind == SOURCE_WORDS)
		text_put(text_put(c.text, end, "--"), end, options[i].name);
	else if (sources_filed(s))
		snprintf(
		    c.text, sizeof c.text, "%s:%d: %s", s->file, line, options[i].name);
	else
		text_put(c.text, end, options[i].env);
	return c;
}

struct clean
sources_call(const struct source *s, int i)
{
	return call(s, i, s ? s->line[i] : 0);
}

struct clean
sources_call_setting(const struct setter *by)
{
	return call(by->by, OPT_OPTION, by->line);
}

enum rc
sources_wrong(const struct source *s)
{
	return sources_filed(s) ? RC_CONFIG : RC_USAGE;
}

/*
 * One value of its, from that line where it is a file's.
 *
 * Several keys are locked together: on one server, with one lease, one everything.  A
 * section that is for some of them only would be broken for one or the other, so that two
 * runs of that key might not exclude each other.
 */
static enum rc
apply(const struct source *s, int i, const char *value, int line, struct plan *p,
    struct fault *f)
{
	const struct clean called = call(s, i, line);

	if (s->outside)
		return fault_set(f, RC_CONFIG,
		    "%s: [%s] is for another key of this run, but not for '%s': say --%s, which counts for all keys",
		    called.text, text_brief(s->section).text, text_brief(s->outside).text,
		    options[i].name);
	return options_take(p, i, called.text, value, sources_wrong(s), f);
}

/* Is the option said, and if it is a flag, not told no? */
static const struct source *
source_that_says(const struct sources *all, int i)
{
	const struct source *s = sources_of(all, i);
	bool on = true;

	if (s && !options[i].arg && (!parse_truth(s->value[i], &on) || !on))
		return NULL;
	return s;
}

/* Not to wait and to wait, or two kinds of lock: to say both in one source is a mistake. */
static enum rc
check_group(const struct sources *all, int i, struct fault *f)
{
	enum group group = options[i].group;
	const struct source *s = source_that_says(all, i), *before;
	bool shown = s && i == OPT_WAIT && s->kind == SOURCE_WORDS;

	for (int first = 0; s && group >= GROUP_WAIT && first < i; first++) {
		before = options[first].group == group ? source_that_says(all, first)
						       : NULL;
		if (before)
			return fault_set(f, sources_wrong(s),
			    "%s and %s%s%s contradict each other%s",
			    sources_call(before, first).text, sources_call(s, i).text,
			    shown ? " " : "", shown ? text_brief(s->value[i]).text : "",
			    group == GROUP_KIND ? ": a lock is of one kind" : "");
	}
	return RC_OK;
}

/*
 * Each setting counts that no stronger source has by its name.  A variable's count where the
 * words have none.  Those of files belong to the server: they end with the source that names
 * it.
 */
static enum rc
apply_settings(struct sources *all, struct plan *p, struct fault *f)
{
	struct plan_site *site = &p->site;
	bool named = false;

	for (const struct source *s = all->list; s < all->list + all->n; s++) {
		bool counts = sources_filed(s) ? !named
					       : s == sources_of(all, OPT_OPTION);
		size_t stronger = site->nsettings;

		for (size_t i = 0; counts && i < s->nsettings; i++) {
			const struct source_setting *one = &s->settings[i];
			bool has = false;

			for (size_t k = 0; k < stronger; k++)
				has |= text_is(site->settings[k].name, one->text,
				    strcspn(one->text, "="));
			if (has)
				continue;
			if (apply(s, OPT_OPTION, one->text, one->line, p, f) != RC_OK)
				return sources_wrong(s);
			all->setters[site->nsettings - 1] = (struct setter){s, one->line};
		}
		named = named || has_member(s, GROUP_SERVER);
	}
	return RC_OK;
}

enum rc
sources_apply(struct sources *all, int first, int end, struct plan *p, struct fault *f)
{
	enum rc rc = RC_OK;

	for (int i = first; i < end && rc == RC_OK; i++) {
		const struct source *s = sources_of(all, i);

		rc = check_group(all, i, f);
		if (rc == RC_OK && i == OPT_OPTION)
			rc = apply_settings(all, p, f);
		else if (rc == RC_OK && s && (i != OPT_KEY || s->kind != SOURCE_WORDS))
			rc = apply(s, i, s->value[i], s->line[i], p, f);
	}
	return rc;
}

/* Does a store with the first n of its settings meet this very objection? */
static bool
is_met_with(const struct plan *p, struct site site, size_t n, struct host *host,
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

/* FILE:LINE before what is wrong, if a file says it. */
static enum rc
blame(const struct source *by, int i, int line, struct fault *f)
{
	const struct fault why = *f;

	if (!by || !sources_filed(by))
		return RC_USAGE;
	return fault_set(f, RC_CONFIG, "%s: %.*s", call(by, i, line).text,
	    (int)sizeof why.text - 300, why.text);
}

enum rc
sources_blame(const struct plan *p, const struct site *site, struct host *host,
    enum rc rc, struct fault *f)
{
	const size_t told = site->nsettings - p->site.nsettings; /* by an outer dlock */
	const struct source *url;
	size_t n = 0;

	if (rc != RC_USAGE)
		return rc;
	while (n <= site->nsettings && !is_met_with(p, *site, n, host, f))
		n++;
	if (n > told && n <= site->nsettings) {
		const struct setter *s = &p->sources->setters[n - told - 1];

		return blame(s->by, OPT_OPTION, s->line, f);
	}
	url = sources_of(p->sources, OPT_URL);
	return n > 0 || p->site.of_variable || !url
	    ? RC_USAGE
	    : blame(url, OPT_URL, url->line[OPT_URL], f);
}
