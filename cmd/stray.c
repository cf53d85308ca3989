/* stray.c - finds variables of the environment that nobody reads. */
#include "stray.h"

#include "nearest.h"
#include "options.h"
#include "site.h"
#include "text.h"

#include <string.h>
#include <unistd.h>

static bool
is_word(const char *word, const char *text, size_t n)
{
	return strlen(word) == n && strncmp(word, text, n) == 0;
}

/* The variable of an option, of a URL, or one that dlock itself sets for commands. */
static bool
is_known_variable(const char *name, size_t n)
{
	static const char *const told[] = {"DLOCK_TOKEN", "DLOCK_TOKENS", "DLOCK_OWNER",
	    "DLOCK_KEEPER", "DLOCK_SLOT", "DLOCK_HANDLE"};
	char url[SITE_VARIABLE_BYTES];

	for (int i = 0; i < OPTIONS; i++)
		if (options[i].env && is_word(options[i].env, name, n))
			return true;
	for (size_t i = 0; i < sizeof told / sizeof *told; i++)
		if (is_word(told[i], name, n))
			return true;
	for (size_t i = 0; backends[i]; i++) {
		site_variable(backends[i], url);
		if (is_word(url, name, n))
			return true;
	}
	return false;
}

/*
 * "DLOCK_WIAT (did you mean DLOCK_WAIT?)"; returns its length, which may be more than
 * fits.
 */
static size_t
describe_variable(const char *name, size_t n, char *out, size_t size)
{
	const char *known[OPTIONS + 1] = {0}, *meant;
	char clean[64];
	size_t k = 0;

	for (int i = 0; i < OPTIONS; i++)
		if (options[i].env)
			known[k++] = options[i].env + strlen("DLOCK_");
	meant = nearest_word(name + strlen("DLOCK_"), n - strlen("DLOCK_"), known);
	text_clean(clean, sizeof clean, name, n);
	if (!meant)
		return snprintf(out, size, "%s", clean);
	return snprintf(out, size, "%s (did you mean DLOCK_%s?)", clean, meant);
}

bool
stray_list(char *out, size_t size)
{
	size_t used = 0;

	for (char **e = environ; *e; e++) {
		size_t n;

		if (strncmp(*e, "DLOCK_", strlen("DLOCK_")) != 0)
			continue;
		n = strcspn(*e, "=");
		if ((*e)[n] != '=' || !(*e)[n + 1] || is_known_variable(*e, n))
			continue;
		if (used > 0 && used < size)
			used += snprintf(out + used, size - used, ", ");
		if (used < size)
			used += describe_variable(*e, n, out + used, size - used);
	}
	return used > 0;
}
