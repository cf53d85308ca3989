/* nested_site.c - where the outer dlock has its locks, as its keeper's address says. */
#include "nested_site.h"

#include "backends/common/url.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool
nested_site_keeper(const char **addresses, const struct plan *p, struct keeper_address *a)
{
	while (*addresses && keeper_address_next(addresses, a))
		if (keeper_address_serves(a, p->site.backend))
			return true;
	return false;
}

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

/* Behind what is there; false: it does not fit. */
static bool
append_part(char *out, size_t *used, char mark, const char *text)
{
	size_t n;

	if (*used + 2 > SITE_BYTES)
		return false;
	out[(*used)++] = mark;
	n = encode_key(out + *used, SITE_BYTES - *used, text);
	out[ *used += n] = '\0';
	return n > 0 || !*text;
}

static bool
append_setting(char *out, size_t *used, const struct backend *b, const struct setting *s)
{
	char here[PATH_MAX] = "", text[SETTINGS_BYTES + PATH_MAX];
	bool relative = is_relative_file(b, s) && getcwd(here, sizeof here);

	snprintf(
	    text, sizeof text, "%s=%s%s%s", s->name, here, relative ? "/" : "", s->value);
	return append_part(out, used, '&', text);
}

void
nested_site_write(char *out, const struct backend *b, const struct site *s)
{
	const char *url = s->url ? s->url : "";
	bool secret = mask_finds(s->url), fits;
	char masked[URL_BYTES];
	size_t used = 0;

	if (secret) {
		snprintf(masked, sizeof masked, "%s", url);
		mask_passwords(masked);
		url = masked;
	}
	fits = append_part(out, &used, secret ? '!' : '=', url);
	for (size_t i = 0; fits && i < s->nsettings; i++)
		fits = append_setting(out, &used, b, &s->settings[i]);
	if (!fits)
		*out = '\0';
}

/* One part of a told site, as text; NULL: it is wrong, or does not fit. */
static char *
read_part(struct nested_site *w, size_t *used, const char *part, size_t n)
{
	char *text = w->text + *used;
	size_t room = sizeof w->text - *used;
	int length = room ? encode_undo(text, room, part, n) : -1;

	if (length < 0)
		return NULL;
	*used += length + 1;
	return text;
}

/* A setting, "NAME=VALUE", which is cut in two. */
static bool
take_setting(struct nested_site *w, size_t *n, char *text)
{
	char *equals = strchr(text, '=');

	if (!equals || *n == SETTINGS_MAX)
		return false;
	*equals = '\0';
	w->settings[(*n)++] = (struct setting){text, equals + 1};
	return true;
}

/* The told settings stand before the plan's own, so that those win.  False: it is wrong. */
static bool
read_site(struct nested_site *w, const char *told, size_t size)
{
	const char *end = told + size, *next;
	size_t n = 0, used = 0;

	for (const char *part = told + 1; part <= end; part = next + 1) {
		char *text;

		next = memchr(part, '&', end - part);
		next = next ? next : end;
		text = read_part(w, &used, part, next - part);
		if (!text || (part > told + 1 && !take_setting(w, &n, text)))
			return false;
	}
	for (size_t i = 0; i < w->site.nsettings; i++)
		w->settings[n++] = w->site.settings[i];
	w->site = (struct site){*w->text ? w->text : NULL, w->settings, n};
	w->secret = *told == '!';
	return true;
}

/* Does a keeper of ours listen there, though it may have no time just now? */
static bool
is_there(const struct keeper_address *a)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool there = fd < 0;
	pid_t pid;

	if (fd >= 0 && keeper_address_connect(a, fd) == 0)
		there = keeper_address_is_ours(fd, &pid);
	else if (fd >= 0)
		there = errno == EAGAIN;
	if (fd >= 0)
		close(fd);
	return there;
}

void
nested_site_find(struct nested_site *w, const struct plan *p)
{
	const char *addresses = getenv("DLOCK_KEEPER");
	struct keeper_address a;

	w->site = (struct site){p->site.url, p->site.settings, p->site.nsettings};
	w->secret = false;
	w->ended = p->site.inherits;
	while (w->ended && nested_site_keeper(&addresses, p, &a))
		w->ended = !(a.nsite && is_there(&a) && read_site(w, a.site, a.nsite));
}

enum rc
nested_site_check(const struct nested_site *w, struct fault *f)
{
	if (!w->ended && !w->secret)
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "it would go where the enclosing dlock goes, but %s",
	    w->secret
		? "a URL with a password is not handed on: set DLOCK_URL for both, or say -u"
		: "that has ended (DLOCK_KEEPER): say -u or -b, and unset what it has left behind");
}
