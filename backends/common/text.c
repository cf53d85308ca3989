/* text.c - the sentences that all backends have in common, and passwords in what is quoted. */
#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

bool
text_is_utf8(const char *text)
{
	json_t *j = json_string(text);

	json_decref(j);
	return j;
}

/* ---- refusals ---- */

enum { TEXT_BYTES = 40, SECONDS_LEAST = 1000000000 /* in 2001 */ };

static const char *
kind_text(enum lock_kind kind, unsigned limit, char *out)
{
	switch (kind) {
	case KIND_LIMIT:
		snprintf(out, TEXT_BYTES, "--limit %u", limit);
		return out;
	case KIND_SHARED:
		return "-s";
	default:
		return "-x";
	}
}

enum rc
refuse_kind(struct fault *f, const char *where, enum lock_kind kind, unsigned limit,
    const struct claim *c)
{
	char used[TEXT_BYTES], asked[TEXT_BYTES];

	return fault_set(f, RC_PROTOCOL,
	    "%s: the key is in use with %s, and this run asks for %s", where,
	    kind_text(kind, limit, used), kind_text(c->kind, c->limit, asked));
}

/* In the two largest units that are needed: 12m, 1h30m, 400ms. */
static const char *
length_text(int64_t ns, char *out)
{
	static const struct {
		int64_t seconds;
		char name;
	} units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
	int64_t left = ns / NS_PER_S;
	int used = 0, parts = 0;

	if (left == 0)
		snprintf(out, TEXT_BYTES, "%lldms", (long long)(ns / NS_PER_MS));
	for (size_t i = 0; i < sizeof units / sizeof *units && parts < 2; i++) {
		int64_t n = left / units[i].seconds;

		left %= units[i].seconds;
		parts += n > 0 || parts > 0;
		if (n > 0)
			used += snprintf(out + used, TEXT_BYTES - used, "%lld%c",
			    (long long)n, units[i].name);
	}
	return out;
}

void
text_who(const char *record, char *out, size_t size)
{
	static const char who_is[] = "\"who\":\"";
	const char *who = record ? strstr(record, who_is) : NULL;
	size_t n;

	*out = '\0';
	if (!who)
		return;
	who += strlen(who_is);
	for (n = 0; (unsigned char)who[n] >= ' ' && !strchr("\"\\\177", who[n]);)
		n++;
	if (n < size && who[n] == '"')
		snprintf(out, size, "%.*s", (int)n, who);
}

enum rc
refuse_done(struct fault *f, const struct job *j, int64_t began_ms, const char *who)
{
	time_t seconds = began_ms / 1000;
	char began[TEXT_BYTES];
	struct tm tm;

	if (began_ms < 0 || !gmtime_r(&seconds, &tm) ||
	    !strftime(began, sizeof began, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(began, sizeof began, "an unknown time");
	return fault_set(f, RC_DONE, "ID %s was run at %s%s%.100s and ended with 0",
	    j->once, began, *who ? " by " : "", who);
}

enum rc
period_name(const struct job *j, int64_t us, const char *where, struct fault *f)
{
	static const char *const forms[] = {
	    [PER_DAY] = "%Y-%m-%d", [PER_HOUR] = "%Y-%m-%dT%H", [PER_WEEK] = "%G-W%V"};
	struct period *p = j->per;
	time_t seconds;
	struct tm tm;

	if (!p || *p->id)
		return RC_OK;
	seconds = (us - p->offset / 1000) / 1000000;
	/* a clock that has never been set, or a time that is not known */
	if (us < 0 || seconds < SECONDS_LEAST || !gmtime_r(&seconds, &tm) ||
	    tm.tm_year > 9999 - 1900)
		return fault_set(f, RC_PROTOCOL,
		    "%s tells a time that is none, so no ID can be made of it", where);
	strftime(p->id, sizeof p->id, forms[p->kind], &tm);
	return RC_OK;
}

enum rc
refuse_recent(struct fault *f, const struct job *j, int64_t age)
{
	char ago[TEXT_BYTES], cooldown[TEXT_BYTES];

	return fault_set(f, RC_DONE,
	    "the last run that ended with 0 began %s ago, less than --cooldown %s",
	    length_text(age > 0 ? age : 0, ago), length_text(j->cooldown, cooldown));
}

enum rc
refuse_broken(
    struct host *host, struct fault *f, enum rc rc, const char *where, const char *record)
{
	size_t n = strlen(record);

	*host->breaker = '\0';
	if (n < sizeof host->breaker)
		memcpy(host->breaker, record, n + 1);
	return fault_set(f, rc,
	    rc == RC_LOST ? "%s: the lock was taken away by force"
			  : "%s: somebody asks for the lock back",
	    where);
}

/* ---- secrets ---- */

enum {
	ECHO = 8,  /* so much of a secret is too much of it */
	LEAST = 3, /* a shorter one stands in every other word, and stars would tell it */
};

/* The bytes of UTF-8 that "uXXXX" means, as JSON has it; 0: it is none. */
static size_t
json_letter(const char *text, char out[3])
{
	int high = *text == 'u' ? text_hex_byte(text + 1) : -1,
	    low = high < 0 ? -1 : text_hex_byte(text + 3), c;

	if (low < 0)
		return 0;
	c = high << 8 | low;
	out[0] = (char)(c < 0x80 ? c : c < 0x800 ? 0xc0 | c >> 6 : 0xe0 | c >> 12);
	out[1] = (char)(0x80 | (c < 0x800 ? c & 0x3f : c >> 6 & 0x3f));
	out[2] = (char)(0x80 | (c & 0x3f));
	return c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
}

/*
 * How many bytes at `text` stand for the first of `secret` in some guise, or for so many as
 * *stands; 0: none.
 */
static size_t
guise(const char *text, const char *secret, size_t *stands)
{
	char c = *secret, letters[3];
	const char *letter = strchr("\nn\rr\tt\aa\bb", c);
	size_t n = *text == '\\' ? json_letter(text + 1, letters) : 0;

	if (n > 0 && strncmp(secret, letters, n) == 0) {
		*stands = n;
		return 6;
	}
	*stands = 1;
	if (*text == '%' && text_hex_byte(text + 1) == (unsigned char)c)
		return 3;
	if (*text == '\\' && text[1] == 'x' &&
	    text_hex_byte(text + 2) == (unsigned char)c)
		return 4;
	if (*text == '\\' &&
	    (text[1] == c || (letter && (unsigned char)c < ' ' && text[1] == letter[1])))
		return 2;
	return *text == ' ' && ((unsigned char)c < ' ' || c == 0x7f);
}

/*
 * How many bytes of `text` are the secret or enough of its beginning; 0: it is not here.
 */
static size_t
echo_length(const char *text, const char *secret, bool disguised)
{
	size_t used = 0, matched = 0, stands = 1, n = 1;

	for (; secret[matched] && text[used]; matched += stands, used += n) {
		n = disguised ? guise(text + used, secret + matched, &stands) : 0;
		if (n == 0 && text[used] == secret[matched])
			n = 1;
		if (n == 0)
			break;
	}
	return !secret[matched] || matched >= ECHO ? used : 0;
}

void
secret_blot(char *text, const char *secret)
{
	if (!secret || strlen(secret) < LEAST)
		return;
	for (; *text; text++) {
		size_t plain = echo_length(text, secret, false),
		       disguised = echo_length(text, secret, true);
		size_t n = plain > disguised ? plain : disguised, stars = n < 3 ? n : 3;

		if (n == 0)
			continue;
		memset(text, '*', stars);
		memmove(text + stars, text + n, strlen(text + n) + 1);
		text += stars - 1;
	}
}
