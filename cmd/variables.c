/* variables.c - reads what users say in the environment. */
#include "variables.h"

#include "cmd/supervise/join_address.h"
#include "environment.h"
#include "parse.h"

#include "backends/common/append.h"
#include "backends/registry.h"

#include <ctype.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

/* ---- options ---- */

/*
 * Finds the backend of the nearest outer run, or (`living`) of the nearest one that has not
 * ended.  NULL: there is none.  DLOCK_KEEPER may be a handle, which names no backend; then
 * DLOCK_BACKEND does.
 */
static const char *
outer_backend(struct join_address *a, const char *keepers, bool living)
{
	do
		if (!join_address_next(&keepers, a))
			return NULL;
	while (living && join_address_life(a) == KEEPER_ENDED);
	return *a->backend ? a->backend : environment_get("DLOCK_BACKEND");
}

/* DLOCK_OPTION stands for several flags, with blanks between them. */
static void
add_settings(struct said_list *all, const char *value)
{
	for (char *rest = strdup(value), *word; (word = strtok_r(rest, " \t\n", &rest));)
		said_add(all, &all->variables, OPT_OPTION, word, 0);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the words are read to the end */
}

/* Does the value come from an outer run: its key, or its backend?  Then no user has said it. */
static bool
is_of_outer(int i, const char *value, const char *backend)
{
	return i == OPT_KEY ||
	    (i == OPT_BACKEND && backend && strcmp(value, backend) == 0);
}

/*
 * The server of an outer run counts least, with one exception: see is_overruled() in conf.c.  A
 * DLOCK_BACKEND that differs from the outer run's was set by a user, and counts as any variable.
 * The variables of an outer run that has ended are no user's either, and overrule nothing.
 */
void
variables_read(struct said_list *all)
{
	static struct join_address nearest, living;
	const char *keepers = environment_get("DLOCK_KEEPER");
	const char *backend = keepers ? outer_backend(&nearest, keepers, false) : NULL;
	bool inherits = keepers && (options[OPT_BACKEND].cmds & all->cmd);

	if (inherits)
		all->outer = outer_backend(&living, keepers, true);
	for (int i = 0; i < OPTIONS; i++) {
		const char *value = options[i].env && (options[i].cmds & all->cmd)
		    ? environment_get(options[i].env)
		    : NULL;

		if (!value || (keepers && is_of_outer(i, value, backend)))
			continue;
		if (i == OPT_BACKEND)
			inherits = false;
		if (i == OPT_OPTION)
			add_settings(all, value);
		else
			said_add(all, &all->variables, i, value, 0);
	}
	if (all->outer)
		backend = all->outer;
	if (inherits && backend)
		said_add(all, &all->outer_run, OPT_BACKEND, backend, 0);
}

/* ---- the variables of backends ---- */

struct brief
variables_url(const struct backend *b)
{
	struct brief name;
	const char *end = name.text + sizeof name.text;
	char *at = append_text(append_text(name.text, end, "DLOCK_"), end, b->name);

	append_text(at, end, "_URL");
	for (char *c = name.text; *c; c++)
		*c = toupper((unsigned char)*c);
	return name;
}

/* ---- typing errors ---- */

/*
 * Is this a variable that Kubernetes sets for a Service?  Those for a Service named "dlock" or
 * "dlock-redis" begin as ours do.
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
variables_strays(char *out, size_t size)
{
	static const char prefix[] = "DLOCK_";
	const char *known[OPTIONS + OPTIONS_BACKENDS + VARIABLES + 2] = {"HANDLE"};
	struct brief urls[OPTIONS_BACKENDS];
	size_t nknown = 1, nurls = 0, used = 0;

	for (int i = 0; i < OPTIONS; i++)
		if (options[i].env)
			known[nknown++] = options[i].env + strlen(prefix);
	for (enum variable i = 0; i < VARIABLES; i++)
		known[nknown++] = environment_names[i] + strlen(prefix);
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
		/* made only when needed, since the names of all backends are on many pages */
		while (!known[i] && backends[nurls]) {
			urls[nurls] = variables_url(backends[nurls]);
			known[nknown++] = urls[nurls++].text + strlen(prefix);
			i += !text_is(known[i], word, n);
		}
		/* a hold keeps values for its release in DLOCK_BEFORE_... */
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
