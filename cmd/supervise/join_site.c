/* join_site.c - where the locks of a run are kept, as an address says it. */
#include "join_site.h"

#include "backends/common/encode.h"
#include "cmd/mask.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is its value the name of a file, which a process elsewhere would not find? */
static bool
is_relative_file(const struct backend *b, const struct setting *s)
{
	for (const struct setting_row *row = b->settings; row && row->name; row++)
		if (strcmp(row->name, s->name) == 0)
			return strcmp(row->arg ? row->arg : "", "FILE") == 0 &&
			    *s->value != '/';
	return false;
}

/* Appends a part; false: it does not fit. */
static bool
add_part(char *out, size_t *used, char mark, const char *text)
{
	size_t n;

	if (*used + 2 > JOIN_SITE_BYTES)
		return false;
	out[(*used)++] = mark;
	n = encode_key(out + *used, JOIN_SITE_BYTES - *used, text);
	out[ *used += n] = '\0';
	return n > 0 || !*text;
}

void
join_site_write(char *out, const struct backend *b, const struct site *s)
{
	const char *url = s->url ? s->url : "";
	bool secret = mask_finds(s->url), fits;
	/* of which little is touched: of a stack all of it would be */
	static char masked[URL_BYTES], here[PATH_MAX], text[SETTINGS_BYTES + PATH_MAX];
	size_t used = 0;

	if (secret) {
		snprintf(masked, sizeof masked, "%s", url);
		mask_passwords(masked);
		url = masked;
	}
	fits = add_part(out, &used, secret ? '!' : '=', url);
	for (size_t i = 0; fits && i < s->nsettings; i++) {
		const struct setting *one = &s->settings[i];
		bool relative = is_relative_file(b, one) && getcwd(here, sizeof here);

		snprintf(text, sizeof text, "%s=%s%s%s", one->name, relative ? here : "",
		    relative ? "/" : "", one->value);
		fits = add_part(out, &used, '&', text);
	}
	if (!fits)
		*out = '\0';
}

/* The told settings stand before the run's own, so that those win.  False: it is wrong. */
static bool
read_site(struct join_site *w, const char *told, size_t size)
{
	const char *end = told + size, *next;
	size_t n = 0, used = 0;

	for (const char *part = told + 1; part <= end; part = next + 1) {
		char *text = w->text + used, *equals;
		size_t room = sizeof w->text - used;
		int length;

		next = memchr(part, '&', end - part);
		next = next ? next : end;
		length = room ? encode_undo(text, room, part, next - part) : -1;
		if (length < 0)
			return false;
		used += length + 1;
		if (part == told + 1)
			continue; /* the URL */
		equals = strchr(text, '=');
		if (!equals || n == SETTINGS_MAX)
			return false;
		*equals = '\0';
		w->settings[n++] = (struct setting){text, equals + 1};
	}
	for (size_t i = 0; i < w->site.nsettings; i++)
		w->settings[n++] = w->site.settings[i];
	w->site = (struct site){*w->text ? w->text : NULL, w->settings, n};
	w->secret = *told == '!';
	return true;
}

/* Has it a server of its own, not the default one?  A handle tells nothing. */
static bool
names_server(const struct join_address *a)
{
	return *a->backend && !(a->nsite == 1 && *a->site == '=');
}

void
join_site_find(struct join_site *w, const struct params *p)
{
	const char *addresses = p->site.url ? NULL : getenv("DLOCK_KEEPER");
	enum keeper_life life = KEEPER_ENDED;
	struct join_address a;
	bool ended = false; /* one has, the nearest */

	w->site = (struct site){p->site.url, p->site.settings, p->site.nsettings};
	w->secret = false;
	w->unknown = NULL;
	if (!addresses)
		return;
	while (life == KEEPER_ENDED && join_address_next_of(&addresses, p, &a)) {
		life = join_address_life(&a);
		if (life == KEEPER_ENDED && !ended && names_server(&a))
			w->unknown = "the outer run has ended";
		ended = true;
	}
	if (life == KEEPER_ENDED || !p->site.inherits)
		return;
	w->unknown = life == KEEPER_HIDDEN
	    ? "that cannot be asked from here (it is another user's, or in another network namespace)"
	    : a.nsite && read_site(w, a.site, a.nsite) ? NULL
						       : "that has not said which";
}

enum rc
join_site_check(const struct join_site *w, struct fault *f)
{
	if (!w->unknown && !w->secret)
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "it would use the server of the outer run, but %s%s",
	    w->secret
		? "a URL with a password is not handed on: set DLOCK_URL for both, or say -u"
		: w->unknown,
	    w->secret ? "" : ": say -u, or unset DLOCK_KEEPER and its other variables");
}
