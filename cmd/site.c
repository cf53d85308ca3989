/* site.c - finds out which backend and which server are meant. */
#include "site.h"

#include "mask.h"
#include "parse.h"

#include <string.h>

/* Shows the scheme alone, for there may be a password behind it; a path has none. */
static enum rc
no_url(struct fault *f, const char *called, const char *url)
{
	const char *known[OPTIONS_BACKENDS + 1] = {0}, *meant = NULL;
	size_t n = strcspn(url, ":/@ =");

	for (size_t i = 0; i < OPTIONS_BACKENDS && backends[i]; i++)
		known[i] = backends[i]->schemes[0];
	if (strncmp(url + n, "://", 3) == 0)
		meant = parse_nearest(url, n, known);
	if (*url == '/' || *url == '.' || *url == '~')
		return fault_set(f, RC_USAGE, "%s '%s': a directory is written file://%s",
		    called, text_brief(url).text,
		    *url == '/' ? text_brief(url).text : "/DIRECTORY");
	return fault_set(f, RC_USAGE,
	    "%s '%.*s...': begins with no scheme known here%s (such as redis://host or file:///directory)",
	    called, n < 60 ? (int)n : 60, url,
	    parse_hint(": did you mean ", meant, "://?").text);
}

/* The backend, by its name or by the URL's scheme. */
static enum rc
settle_backend(struct plan *p, const struct sources *all, struct fault *f)
{
	const struct backend *of_url = p->site.url ? backend_of_url(p->site.url) : NULL;
	const struct source *by = sources_of(all, OPT_URL);

	if (p->site.url && !of_url) {
		no_url(f, sources_call(by, OPT_URL).text, p->site.url);
		return sources_wrong(by);
	}
	if (of_url && p->site.backend && of_url != p->site.backend)
		return fault_set(f, sources_wrong(by),
		    "%s (%s) and %s (%s) contradict each other",
		    sources_call(sources_of(all, OPT_BACKEND), OPT_BACKEND).text,
		    p->site.backend->name, sources_call(by, OPT_URL).text, of_url->name);
	if (of_url)
		p->site.backend = of_url;
	if (!p->site.backend && p->cmd != CMD_CONFIG)
		return fault_set(f, RC_USAGE,
		    "no backend named: say -b NAME or -u URL, or set DLOCK_BACKEND or DLOCK_URL, or name one in dlock.conf(5) (there are %s)",
		    options_backends(", ").text);
	return RC_OK;
}

/* The backend's own variable. */
static enum rc
read_variable(struct plan *p, struct fault *f)
{
	const struct brief name = sources_url_variable(p->site.backend);
	const char *url = plan_variable(name.text);

	if (!url)
		return RC_OK;
	if (!backend_of_url(url))
		return no_url(f, name.text, url);
	if (backend_of_url(url) != p->site.backend)
		return fault_set(f, RC_USAGE, "%s is not a URL of %s", name.text,
		    p->site.backend->name);
	p->site.url = url;
	return RC_OK;
}

enum rc
site_settle(struct plan *p, const struct sources *all, struct fault *f)
{
	const struct source *of_url = sources_of(all, OPT_URL);
	struct plan_site *s = &p->site;
	const char *outer;
	enum rc rc = sources_check_outer(f);

	if (rc == RC_OK)
		rc = settle_backend(p, all, f);
	if (rc != RC_OK || !s->backend)
		return rc;
	if (of_url && of_url->kind == SOURCE_WORDS) {
		char *word = (char *)s->url;

		snprintf(s->url_text, sizeof s->url_text, "%s", word);
		s->url = s->url_text;
		mask_passwords(word);
	}
	/* a variable is stronger than a file */
	if (!of_url || sources_filed(of_url))
		rc = read_variable(p, f);
	/*
	 * Without a URL at all, what an enclosing dlock uses, if its backend is ours.  One that
	 * does not say so (DLOCK_KEEPER is a handle) is believed to have told DLOCK_BACKEND.
	 */
	outer = sources_outer_backend();
	if (!outer)
		outer = plan_variable("DLOCK_BACKEND");
	s->inherits = !s->url && sources_nested() && outer &&
	    strcmp(outer, s->backend->name) == 0;
	return rc;
}
