/* plan.c - names the keys of a plan, checks what a store can do, and hides passwords. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

const char *
plan_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

const char *const variable_names[VARIABLES] = {"DLOCK_KEY", "DLOCK_TOKEN", "DLOCK_TOKENS",
    "DLOCK_SLOT", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"};

struct clean
plan_name(const struct plan *p)
{
	const size_t size = 400, last = sizeof " and 15 more"; /* as text_key() has it */
	struct clean all = text_key(p->keys[0]);
	size_t used = 0;
	char key[120];

	for (size_t i = 0; i < p->nkeys && p->nkeys > 1; i++) {
		const char *between = i == 0 ? "" : i + 1 < p->nkeys ? ", " : " and ";

		text_name(key, sizeof key, p->keys[i]);
		if (used + strlen(between) + strlen(key) + last > size) {
			snprintf(
			    all.text + used, size - used, " and %zu more", p->nkeys - i);
			break;
		}
		used += snprintf(all.text + used, size - used, "%s%s", between, key);
	}
	return all;
}

enum rc
plan_check_kind(const struct plan_claim *c, const struct store *s, struct fault *f)
{
	if ((c->kind == KIND_SHARED && !(s->caps & CAP_SHARED)) ||
	    (c->kind == KIND_LIMIT && !(s->caps & CAP_LIMIT)))
		return fault_set(f, RC_CONFIG,
		    "%s has no %s locks (dlock-backends(7) says which backends have them)",
		    s->where, c->kind == KIND_SHARED ? "shared" : "limited");
	if (job_is_wanted(&c->job) && !(s->caps & CAP_JOB))
		return fault_set(f, RC_CONFIG,
		    "%s cannot remember runs, which --once and --cooldown need (dlock-backends(7) says which backends can)",
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
 * The password of scheme://user:password@host/..., and its length; NULL: it has none.  It
 * ends with the last @, wherever that is: somebody may have left a / ? or # of it unescaped.
 * `spoken`: of a URL among other words.
 */
static char *
password_of_user(char *url, bool spoken, size_t *n)
{
	char *host = strstr(url, "://"), *at, *colon;

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

/* Of one URL, or (`spoken`) of all that stand in a sentence. */
static void
blot_out(char *text, bool spoken)
{
	char *word;
	size_t n;

	for (char *url = text; (url = strstr(url, "://")); url += 3) {
		word = password_of_user(url, spoken, &n);
		if (word)
			memset(word, 'x', n);
		if (!spoken)
			break;
	}
	for (; (word = password_of_pair(text, &n)); text = word + n)
		memset(word, 'x', n);
}

void
mask_passwords(char *url)
{
	blot_out(url, false);
}

void
mask_spoken(char *text)
{
	blot_out(text, true);
}
