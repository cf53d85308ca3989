/* mask.c - finds the passwords in a URL and blots them out. */
#include "mask.h"

#include <stddef.h>
#include <string.h>

/* The password of scheme://user:password@host/..., and its length; NULL: it has none. */
static char *
password_of_user(char *url, size_t *n)
{
	char *host = strstr(url, "://"), *at, *colon;

	if (!host)
		return NULL;
	host += 3;
	at = memrchr(host, '@', strcspn(host, "/"));
	colon = at ? memchr(host, ':', at - host) : NULL;
	*n = colon ? (size_t)(at - colon - 1) : 0;
	return colon ? colon + 1 : NULL;
}

/*
 * The same of ...?password=WORD&... and of password='WO\'RD' among other pairs, at or
 * after `text`.
 */
static char *
password_of_pair(char *text, size_t *n)
{
	static const char blanks[] = " \t\n\v\f\r"; /* as libpq skips them */
	char *word = text, *end;

	do {
		word = strstr(word, "password");
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

bool
mask_finds(const char *url)
{
	size_t n;

	return url &&
	    (password_of_user((char *)url, &n) || password_of_pair((char *)url, &n));
}

void
mask_passwords(char *url)
{
	char *word;
	size_t n;

	word = password_of_user(url, &n);
	if (word)
		memset(word, 'x', n);
	for (char *rest = url; (word = password_of_pair(rest, &n)); rest = word + n)
		memset(word, 'x', n);
}
