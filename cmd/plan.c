/* plan.c - names the keys of a plan, checks what a store can do, and hides passwords. */
#include "plan.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

const char *
plan_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

char *
plan_name(const struct plan *p, char *out, size_t size)
{
	const size_t last = sizeof " and 15 more";
	size_t used = 0;
	char key[120];

	if (p->nkeys == 1)
		return text_name(out, size, p->keys[0]);
	for (size_t i = 0; i < p->nkeys; i++) {
		const char *between = i == 0 ? "" : i + 1 < p->nkeys ? ", " : " and ";

		text_name(key, sizeof key, p->keys[i]);
		if (used + strlen(between) + strlen(key) + last > size) {
			snprintf(out + used, size - used, " and %zu more", p->nkeys - i);
			break;
		}
		used += snprintf(out + used, size - used, "%s%s", between, key);
	}
	return out;
}

enum rc
plan_check_kind(const struct plan_claim *c, const struct store *s, struct fault *f)
{
	if ((c->kind == KIND_SHARED && !(s->caps & CAP_SHARED)) ||
	    (c->kind == KIND_LIMIT && !(s->caps & CAP_LIMIT)))
		return fault_set(f, RC_CONFIG,
		    "%s has no %s locks (dlock-backends(7) says who has)", s->where,
		    c->kind == KIND_SHARED ? "shared" : "limited");
	if (job_is_wanted(&c->job) && !(s->caps & CAP_JOB))
		return fault_set(f, RC_CONFIG,
		    "%s cannot remember runs, as --once and --cooldown need (dlock-backends(7) says who can)",
		    s->where);
	return RC_OK;
}

/* ---- passwords ---- */

static const char blanks[] = " \t\n\v\f\r"; /* as libpq skips them */

/* Is this @ the value's of a pair ?user=NAME@REALM of libpq's? */
static bool
is_of_pair(const char *host, const char *at)
{
	while (at > host && *at != '?' && *at != '&')
		at--;
	return strncmp(at + 1, "user=", 5) == 0;
}

/*
 * The end of a login in `n` bytes, or NULL.  It is the last @, wherever that is: somebody
 * may have left a / ? or # of a password unescaped.
 */
static char *
end_of_login(char *host, size_t n)
{
	char *at = *host == '/' ? NULL : memrchr(host, '@', n);

	while (at && is_of_pair(host, at))
		at = memrchr(host, '@', at - host);
	return at;
}

/*
 * The password of scheme://user:password@host/..., and its length; NULL: it has none.
 * `spoken`: of a URL among other words.
 */
static char *
password_of_user(char *url, bool spoken, size_t *n)
{
	char *host = strstr(url, "://"), *at, *colon;

	if (!host)
		return NULL;
	host += 3;
	at = end_of_login(host, spoken ? strcspn(host, blanks) : strlen(host));
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
	    (password_of_user((char *)url, false, &n) ||
		password_of_pair((char *)url, &n));
}

static void
mask_user(char *url, bool spoken)
{
	size_t n;
	char *word = password_of_user(url, spoken, &n);

	if (word)
		memset(word, 'x', n);
}

static void
mask_pairs(char *text)
{
	char *word;
	size_t n;

	for (; (word = password_of_pair(text, &n)); text = word + n)
		memset(word, 'x', n);
}

void
mask_passwords(char *url)
{
	mask_user(url, false);
	mask_pairs(url);
}

void
mask_spoken(char *text)
{
	for (char *url = text; (url = strstr(url, "://")); url += 3)
		mask_user(url, true);
	mask_pairs(text);
}
