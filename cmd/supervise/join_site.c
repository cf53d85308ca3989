/* join_site.c - where an enclosing dlock takes its locks, as it tells those below it. */
#include "join_site.h"

#include "cmd/mask.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Is its value the name of a file, which the one who is told may look for elsewhere? */
static bool
is_relative_file(const struct backend *b, const struct setting *s)
{
	for (const struct setting_row *row = b->settings; row && row->name; row++)
		if (strcmp(row->name, s->name) == 0)
			return strcmp(row->arg ? row->arg : "", "FILE") == 0 &&
			    *s->value != '/';
	return false;
}

/* The URL is the first line. */
static void
mask_line(char *text)
{
	char *end = strchr(text, '\n');

	*end = '\0';
	mask_passwords(text);
	*end = '\n';
}

bool
join_site_write(char *out, const struct backend *b, const struct site *s)
{
	int n = snprintf(out, JOIN_SITE_BYTES, "%s\n", s->url ? s->url : "");
	char here[PATH_MAX];

	for (size_t i = 0; i < s->nsettings && n > 0 && n < JOIN_SITE_BYTES; i++) {
		const struct setting *one = &s->settings[i];
		bool relative = is_relative_file(b, one) && getcwd(here, sizeof here);

		n += snprintf(out + n, JOIN_SITE_BYTES - n, "%s=%s%s%s\n", one->name,
		    relative ? here : "", relative ? "/" : "", one->value);
	}
	if (n <= 0 || n >= JOIN_SITE_BYTES)
		return false;
	mask_line(out);
	return true;
}

/* A store that is only asked what it is has nobody to wait for. */
static enum woke
wait_for_nothing(struct host *h, int fd, short events, instant until)
{
	(void)h, (void)fd, (void)events, (void)until;
	return WOKE_STOP;
}

enum rc
join_site_identify_store(
    struct identity *id, const struct backend *b, struct store *s, struct fault *f)
{
	enum rc rc;

	identity_begin(id, b->name);
	id->one_lock = s->caps & ONE_LOCK;
	rc = s->backend->identify
	    ? s->backend->identify(s, id, f)
	    : fault_set(f, RC_CONFIG, "%s cannot tell which locks it has", s->where);
	if (rc == RC_OK && !identity_is_whole(id))
		return fault_set(f, RC_CONFIG, "too long to be compared");
	return rc;
}

enum rc
join_site_identify(struct identity *id, const struct backend *b, const struct site *site,
    struct fault *f)
{
	static struct host nobody;
	struct store *s;
	enum rc rc;

	nobody = (struct host){.wait = wait_for_nothing, .alert = -1};
	if (!b->open)
		return fault_set(f, RC_CONFIG, "not compiled in");
	rc = b->open(&s, &nobody, site, f);
	if (rc != RC_OK)
		return rc;
	rc = join_site_identify_store(id, b, s, f);
	s->backend->close(s);
	return rc;
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
join_site_hear(struct join_site *told, struct site *site, const char *text, bool secret)
{
	if (!told->due)
		return;
	told->due = false;
	told->secret = secret;
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
