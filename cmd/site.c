/* site.c - finds out which backend and which server are meant. */
#include "site.h"

#include "mask.h"
#include "nearest.h"
#include "outer.h"
#include "text.h"

#include <ctype.h>
#include <string.h>

enum { BACKENDS_MAX = 16 };

/* "file, redis, zk, pg", with `last` before the last one. */
static const char *
list_backends(char *out, size_t size, const char *last)
{
	size_t used = 0;

	for (size_t i = 0; backends[i] && used < size; i++)
		used += snprintf(out + used, size - used, "%s%s",
		    i == 0                ? ""
			: backends[i + 1] ? ", "
					  : last,
		    backends[i]->name);
	return out;
}

const char *
site_list_backends(char *out, size_t size)
{
	return list_backends(out, size, " or ");
}

void
site_print_raw(FILE *to)
{
	for (size_t i = 0; backends[i]; i++) {
		fprintf(to, "%s\t", backends[i]->name);
		for (const char *const *s = backends[i]->schemes; *s; s++)
			fprintf(to, "%s%s", *s, s[1] ? " " : "\n");
	}
}

enum rc
site_set_backend(
    struct plan *p, const struct option *o, const char *value, struct fault *f)
{
	static const struct synonym synonyms[] = {
	    {"postgres", "pg"},
	    {"postgresql", "pg"},
	    {"psql", "pg"},
	    {"mariadb", "mysql"},
	    {"zookeeper", "zk"},
	    {"flock", "file"},
	    {"dir", "file"},
	    {"directory", "file"},
	    {"local", "file"},
	    {"sentinel", "redis"},
	    {NULL, NULL},
	};
	const char *known[BACKENDS_MAX + 1] = {0}, *meant;
	char names[128];

	(void)o;
	p->site.backend = backend_named(value);
	if (p->site.backend)
		return RC_OK;
	for (size_t i = 0; i < BACKENDS_MAX && backends[i]; i++)
		known[i] = backends[i]->name;
	meant = nearest_meant(value, strlen(value), synonyms, known);
	return fault_set(f, RC_USAGE, "no such backend%s%s%s (there are %s)",
	    meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : "",
	    list_backends(names, sizeof names, ", "));
}

enum rc
site_set_url(struct plan *p, const struct option *o, const char *value, struct fault *f)
{
	if (!*value)
		return fault_set(f, RC_USAGE,
		    "a URL begins with a scheme (such as redis://host or file:///directory)");
	if (strlen(value) > (size_t)o->max)
		return fault_set(f, RC_USAGE, "too long (up to %lld bytes are allowed)",
		    (long long)o->max);
	p->site.url = value;
	return RC_OK;
}

static enum rc
wrong_path(
    struct fault *f, const char *called, const char *path, const char *from_the_root_on)
{
	return fault_set(f, RC_USAGE, "%s '%s': a directory is written file://%s", called,
	    text_brief(path).text, text_brief(from_the_root_on).text);
}

/* Shows the scheme alone, for there may be a password behind it; a path has none. */
static enum rc
no_url(struct fault *f, const char *called, const char *url)
{
	static const struct synonym synonyms[] = {
	    {"zookeeper", "zk"},
	    {"pg", "postgresql"},
	    {"psql", "postgresql"},
	    {"dir", "file"},
	    {"valkey", "redis"},
	    {NULL, NULL},
	};
	const char *known[BACKENDS_MAX + 1] = {0}, *meant = NULL;
	size_t n = strcspn(url, ":/@ =");

	for (size_t i = 0; i < BACKENDS_MAX && backends[i]; i++)
		known[i] = backends[i]->schemes[0];
	if (strncmp(url + n, "://", 3) == 0)
		meant = nearest_meant(url, n, synonyms, known);
	if (*url == '/')
		return wrong_path(f, called, url, url);
	if (*url == '.' || *url == '~')
		return wrong_path(f, called, url, "/DIRECTORY");
	return fault_set(f, RC_USAGE,
	    "%s '%.*s...': begins with no scheme known here%s%s%s (such as redis://host or file:///directory)",
	    called, n < 60 ? (int)n : 60, url, meant ? ": did you mean " : "",
	    meant ? meant : "", meant ? "://?" : "");
}

/* The backend, by its name or by the URL's scheme. */
static enum rc
settle_backend(struct plan *p, const struct sources *all, struct fault *f)
{
	const struct backend *of_url = p->site.url ? backend_of_url(p->site.url) : NULL;
	char called[CALLED_BYTES], other[CALLED_BYTES], names[128];

	if (p->site.url && !of_url) {
		no_url(f,
		    sources_call(
			sources_of(all, OPT_URL), OPT_URL, called, sizeof called),
		    p->site.url);
		return sources_wrong(sources_of(all, OPT_URL));
	}
	if (of_url && p->site.backend && of_url != p->site.backend)
		return fault_set(f, sources_wrong(sources_of(all, OPT_URL)),
		    "%s (%s) and %s (%s) contradict each other",
		    sources_call(
			sources_of(all, OPT_BACKEND), OPT_BACKEND, called, sizeof called),
		    p->site.backend->name,
		    sources_call(sources_of(all, OPT_URL), OPT_URL, other, sizeof other),
		    of_url->name);
	if (of_url)
		p->site.backend = of_url;
	if (!p->site.backend && p->cmd != CMD_CONFIG)
		return fault_set(f, RC_USAGE,
		    "no backend named: say -b NAME or -u URL, or set DLOCK_BACKEND or DLOCK_URL, or name one in dlock.conf(5) (there are %s)",
		    list_backends(names, sizeof names, ", "));
	return RC_OK;
}

static void
keep_copy(struct plan *p, char *url)
{
	snprintf(p->site.url_text, sizeof p->site.url_text, "%s", url);
	p->site.url = p->site.url_text;
	mask_passwords(url);
}

void
site_variable(const struct backend *b, char *out)
{
	snprintf(out, SITE_VARIABLE_BYTES, "DLOCK_%s_URL", b->name);
	for (char *c = out; *c; c++)
		*c = toupper((unsigned char)*c);
}

/* The backend's own variable. */
static enum rc
read_variable(struct plan *p, struct fault *f)
{
	char name[SITE_VARIABLE_BYTES];
	const char *url;

	site_variable(p->site.backend, name);
	url = sources_variable(name);
	if (!url)
		return RC_OK;
	if (!backend_of_url(url))
		return no_url(f, name, url);
	if (backend_of_url(url) != p->site.backend)
		return fault_set(
		    f, RC_USAGE, "%s is not a URL of %s", name, p->site.backend->name);
	p->site.url = url;
	return RC_OK;
}

/*
 * Without a URL at all, what an enclosing dlock uses, if its backend is ours.  One that
 * does not say so (DLOCK_KEEPER is a handle) is believed to have told DLOCK_BACKEND.
 */
static void
settle_inherited(struct plan *p)
{
	const char *enclosing = outer_backend();

	if (!enclosing)
		enclosing = sources_variable("DLOCK_BACKEND");
	p->site.inherits = !p->site.url && sources_nested() && enclosing &&
	    strcmp(enclosing, p->site.backend->name) == 0;
}

enum rc
site_settle(struct plan *p, const struct sources *all, struct fault *f)
{
	const struct source *of_url = sources_of(all, OPT_URL);
	enum rc rc = outer_check(f);

	if (rc == RC_OK)
		rc = settle_backend(p, all, f);
	if (rc != RC_OK || !p->site.backend)
		return rc;
	if (of_url && of_url->kind == SOURCE_WORDS)
		keep_copy(p, (char *)p->site.url);
	/* a variable is stronger than a file */
	if (!of_url || sources_filed(of_url))
		rc = read_variable(p, f);
	settle_inherited(p);
	return rc;
}
