/* join_site.c - where an enclosing dlock takes its locks, as it tells those below it. */
#include "join_site.h"

#include <stdio.h>
#include <string.h>

bool
join_site_write(char *out, const struct site *s)
{
	int n = snprintf(out, JOIN_SITE_BYTES, "%s\n", s->url ? s->url : "");

	for (size_t i = 0; i < s->nsettings && n > 0 && n < JOIN_SITE_BYTES; i++)
		n += snprintf(out + n, JOIN_SITE_BYTES - n, "%s=%s\n",
		    s->settings[i].name, s->settings[i].value);
	return n > 0 && n < JOIN_SITE_BYTES;
}

void
join_site_begin(struct join_site *told, const struct plan *p)
{
	told->due = p->site.inherits;
	told->secret = false;
}

/*
 * The told settings stand before the site's own, so that those win; the text is cut up.
 */
static void
read_site(struct join_site *told, struct site *s)
{
	char *rest, *url = told->text, *line = url + strcspn(url, "\n");
	size_t n = 0;

	if (!*line)
		return;
	*line++ = '\0';
	s->url = *url ? url : NULL;
	for (line = strtok_r(line, "\n", &rest); line && n < SETTINGS_MAX;
	     line = strtok_r(NULL, "\n", &rest)) {
		char *equals = strchr(line, '=');

		if (!equals)
			continue;
		*equals = '\0';
		told->settings[n++] = (struct setting){line, equals + 1};
	}
	memcpy(told->settings + n, s->settings, s->nsettings * sizeof *s->settings);
	s->settings = told->settings;
	s->nsettings += n;
}

void
join_site_hear(struct join_site *told, struct site *site, const char *text)
{
	if (!told->due)
		return;
	told->due = false;
	told->secret = !text;
	if (!text)
		return;
	memcpy(told->text, text, sizeof told->text);
	told->text[sizeof told->text - 1] = '\0';
	read_site(told, site);
}

enum rc
join_site_settle(const struct join_site *told, struct fault *f)
{
	if (!told->due && !told->secret)
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "it would go where the enclosing dlock goes, but %s",
	    told->secret
		? "a URL with a password is not handed on: set DLOCK_URL for both, or say -u"
		: "that has ended (DLOCK_KEEPER): say -u or -b, and unset what it has left behind");
}
