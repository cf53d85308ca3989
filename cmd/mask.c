/* mask.c - finds passwords in URLs and connection strings, and hides them. */
#include "mask.h"

#include "backends/registry.h"

#include <string.h>

static const char blanks[] = " \t\n\v\f\r"; /* as libpq skips them */

/* Is this @ part of a value, as in libpq's ?user=NAME@REALM? */
static bool
is_of_pair(const char *host, const char *at)
{
	while (at > host && *at != '?' && *at != '&')
		at--;
	return strncmp(at + 1, "user=", 5) == 0;
}

/*
 * Finds the password of scheme://user:password@host/..., and its length; NULL: there is none.
 * The password ends with the last @ of the URL, since a user may have left a / ? or # in it
 * unescaped.  `spoken`: other words follow the URL.
 */
static const char *
password_of_user(const char *url, bool spoken, size_t *n)
{
	const char *host = strstr(url, "://"), *at, *colon;

	if (!host)
		return NULL;
	host += 3;
	at = host + (spoken ? strcspn(host, blanks) : strlen(host));
	do
		at = *host == '/' ? NULL : memrchr(host, '@', at - host);
	while (at && is_of_pair(host, at));
	colon = at ? memchr(host, ':', at - host) : NULL;
	*n = colon ? (size_t)(at - colon - 1) : 0;
	return colon ? colon + 1 : NULL;
}

/*
 * Finds the next password at or after `text` in ...?password=WORD&..., or in pairs such as
 * password='WO\'RD'.
 */
static const char *
password_of_pair(const char *text, size_t *n)
{
	const char *word = text, *end;

	do {
		word = strcasestr(word, "password");
		if (!word)
			return NULL;
		word += strlen("password");
		word += strspn(word, blanks);
	} while (*word != '=');
	word++;
	word += strspn(word, blanks);
	for (end = word; *end && *end != '&' && (!strchr(blanks, *end) || *word == '\'');
	     end++) {
		if (*end == '\\' && end[1])
			end++;
		else if (*end == '\'' && end > word && *word == '\'')
			break;
	}
	*n = end - word;
	return word;
}

/* Are these hosts: "h", "h:6379", "[::1]:6379", with commas between several? */
static bool
are_hosts(const char *at, const char *end)
{
	while (at < end) {
		const char *comma = memchr(at, ',', end - at),
			   *stop = comma ? comma : end,
			   *bracket = *at == '[' ? memchr(at, ']', stop - at) : NULL,
			   *colon = memchr(bracket ? bracket : at, ':',
			       stop - (bracket ? bracket : at));

		if (colon &&
		    (size_t)(stop - colon) != 1 + strspn(colon + 1, "0123456789"))
			return false;
		at = stop + 1;
	}
	return true;
}

/*
 * Finds the text that may hold a password in a URL that we cannot parse: all behind its scheme.
 * It may be a login without its host (redis://u:pw), or without the slashes (redis:u:pw@h).
 * NULL: we can parse it, or it is no URL of ours.
 */
static const char *
odd_url(const char *url)
{
	size_t n = strcspn(url, ":");
	const char *rest = url + n + 1, *end;

	if (!url[n] || !registry_of_scheme(url, n))
		return NULL;
	if (strncmp(rest, "//", 2) != 0)
		return *rest == '/' && n == strlen("file") && strncmp(url, "file", n) == 0
		    ? NULL
		    : rest;
	rest += 2;
	end = rest + strcspn(rest, "/?#");
	return strchr(rest, '@') || are_hosts(rest, end) ? NULL : rest;
}

/* The user ends with the last @ of the URL, as a password does. */
const char *
mask_lone_user(const char *url, size_t *n)
{
	const struct backend *b = registry_of_url(url);
	const char *user = strstr(url, "://"), *at, *colon;

	if (!b || !b->user_needs_password || !user || user[3] == '/')
		return NULL;
	user += 3;
	at = strrchr(user, '@');
	colon = at ? memchr(user, ':', at - user) : NULL;
	*n = (colon ? colon : at ? at : user) - user;
	return *n > 0 && (!colon || colon + 1 == at) ? user : NULL;
}

bool
mask_finds(const char *url)
{
	size_t n;

	return url &&
	    (password_of_user(url, false, &n) || password_of_pair(url, &n) ||
		odd_url(url));
}

/* Blots n bytes at `at`.  `out` has only the first `size` bytes of the text. */
static void
blot(char *out, size_t size, size_t at, size_t n)
{
	if (at < size)
		memset(out + at, 'x', n < size - at ? n : size - at);
}

void
mask_copy(char *out, size_t size, const char *text, bool spoken)
{
	const char *word = spoken ? NULL : odd_url(text);
	size_t n;

	if (word)
		blot(out, size, word - text, strlen(word));
	for (const char *url = text; (url = strstr(url, "://")); url += 3) {
		word = password_of_user(url, spoken, &n);
		if (word)
			blot(out, size, word - text, n);
		if (!spoken)
			break;
	}
	for (const char *rest = text; (word = password_of_pair(rest, &n));
	     rest = word + n)
		blot(out, size, word - text, n);
}

void
mask_passwords(char *url)
{
	mask_copy(url, strlen(url), url, false);
}

void
mask_spoken(char *text)
{
	mask_copy(text, strlen(text), text, true);
}

void
mask_word(char *out, size_t size, const char *text)
{
	const char *url = strstr(text, "://");

	mask_copy(out, size, text, true);
	if (url && text + strcspn(text, blanks) > url)
		mask_copy(out, size, text, false);
}
