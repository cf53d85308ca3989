/* parse.c - reads durations, times, numbers and signals as people write them. */
#include "parse.h"

#include "backends/backend.h"
#include "backends/common/libc.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const struct unit {
	const char *name;
	int64_t ns;
} units[] = {
    {"w", 7 * 86400 * NS_PER_S},
    {"d", 86400 * NS_PER_S},
    {"h", 3600 * NS_PER_S},
    {"m", 60 * NS_PER_S},
    {"s", NS_PER_S},
    {"ms", NS_PER_MS},
};

enum { UNITS = sizeof units / sizeof *units, SECONDS = 4 };

/*
 * Reads "12" or "12.75" at *s, in units of `unit` ns, and moves *s on.  False: there is no
 * number, or it is too large.
 */
static bool
take_quantity(const char **s, int64_t unit, int64_t *ns)
{
	int64_t whole = 0, part = 0, scale = unit;

	if (**s < '0' || **s > '9')
		return false;
	for (; **s >= '0' && **s <= '9'; ++*s)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, **s - '0', &whole))
			return false;
	if (**s == '.') {
		++*s;
		if (**s < '0' || **s > '9')
			return false;
		for (; **s >= '0' && **s <= '9'; ++*s) {
			scale /= 10;
			part += (**s - '0') * scale;
		}
	}
	return !__builtin_mul_overflow(whole, unit, &whole) &&
	    !__builtin_add_overflow(whole, part, ns);
}

/* The unit whose name follows the digits at s, or -1. */
static int
unit_after_digits(const char *s)
{
	size_t digits = strspn(s, "0123456789."),
	       letters = strcspn(s + digits, "0123456789.");

	for (int i = 0; i < UNITS; i++)
		if (text_is(units[i].name, s + digits, letters))
			return i;
	return -1;
}

bool
parse_duration(const char *s, int64_t *ret)
{
	int64_t sum = 0, part;
	bool lone = s[strspn(s, "0123456789.")] == '\0';
	int last = -1;

	if (strcmp(s, "inf") == 0) {
		*ret = NEVER;
		return true;
	}
	do {
		int unit = lone ? SECONDS : unit_after_digits(s);
		size_t n = lone || unit < 0 ? 0 : strlen(units[unit].name);

		if (unit <= last || !take_quantity(&s, units[unit].ns, &part) ||
		    strncmp(s, units[unit].name, n) != 0 ||
		    __builtin_add_overflow(sum, part, &sum))
			return false;
		s += n;
		last = unit;
	} while (*s);
	*ret = sum;
	return true;
}

struct word
parse_span(int64_t ns)
{
	long long s = ns / NS_PER_S;
	struct word b;
	char *out = b.text;
	size_t size = sizeof b.text;

	if (ns == NEVER)
		snprintf(out, size, "inf");
	else if (ns < NS_PER_S)
		snprintf(out, size, "%lldms", (long long)(ns / NS_PER_MS));
	else if (s < 10 && ns % NS_PER_S >= NS_PER_S / 10)
		snprintf(out, size, "%lld.%llds", s,
		    (long long)(ns % NS_PER_S / (NS_PER_S / 10)));
	else if (s < 60)
		snprintf(out, size, "%llds", s);
	else if (s < 3600)
		snprintf(out, size, "%lldm%02llds", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, size, "%lldh%02lldm", s / 3600, s / 60 % 60);
	else
		snprintf(out, size, "%lldd%02lldh", s / 86400, s / 3600 % 24);
	return b;
}

/* Reads n digits, for a number from low to high, and steps over them. */
static bool
take_digits(const char **s, int n, int low, int high, int *ret)
{
	int value = 0;

	for (int i = 0; i < n; i++, ++*s) {
		if (**s < '0' || **s > '9')
			return false;
		value = 10 * value + (**s - '0');
	}
	*ret = value;
	return value >= low && value <= high;
}

/* Reads the fraction of a second, ".25" or "", in us. */
static bool
take_fraction(const char **s, int *us)
{
	int unit = 100000;

	if (**s != '.')
		return true;
	for (++*s; **s >= '0' && **s <= '9'; ++*s, unit /= 10)
		*us += unit * (**s - '0');
	return (*s)[-1] != '.';
}

/* Reads "Z", "+01:00" or "-08:00", in seconds; "" sets *local. */
static bool
take_zone(const char **s, int *offset, bool *local)
{
	char sign = **s;
	int hours = 0, minutes = 0;

	*local = !sign;
	*offset = 0;
	if (*local)
		return true;
	++*s;
	if (sign == 'Z' || sign == 'z')
		return true;
	if ((sign != '+' && sign != '-') || !take_digits(s, 2, 0, 23, &hours) ||
	    *(*s)++ != ':' || !take_digits(s, 2, 0, 59, &minutes))
		return false;
	*offset = (hours * 60 + minutes) * 60;
	if (sign == '-')
		*offset = -*offset;
	return true;
}

/*
 * Do both show one time?  mktime(3) changes a day that the month has not, or a time that summer
 * time leaves out.
 */
static bool
is_same_time(const struct tm *a, const struct tm *b)
{
	return a->tm_mday == b->tm_mday && a->tm_hour == b->tm_hour &&
	    a->tm_min == b->tm_min;
}

/* Finds when local clocks show this.  *twice: they do so before and after summer time ends. */
static bool
local_time(const struct tm *shown, time_t *at, bool *twice)
{
	bool found = false;

	for (int summer = 0; summer < 2; summer++) {
		struct tm t = *shown;
		time_t when;

		t.tm_isdst = summer;
		when = mktime(&t);
		if (!is_same_time(&t, shown))
			continue;
		*twice = found && when != *at;
		*at = when;
		found = true;
	}
	return found;
}

bool
parse_time(const char *s, int64_t *us, bool *twice)
{
	struct tm t = {0}, given;
	int year, month, fraction = 0, offset;
	bool local;
	time_t at;

	*twice = false;

	if (!take_digits(&s, 4, 1970, 9999, &year) || *s++ != '-' ||
	    !take_digits(&s, 2, 1, 12, &month) || *s++ != '-' ||
	    !take_digits(&s, 2, 1, 31, &t.tm_mday) || !*s || !strchr("Tt ", *s++) ||
	    !take_digits(&s, 2, 0, 23, &t.tm_hour) || *s++ != ':' ||
	    !take_digits(&s, 2, 0, 59, &t.tm_min))
		return false;
	if (*s == ':' &&
	    (s++, !take_digits(&s, 2, 0, 59, &t.tm_sec) || !take_fraction(&s, &fraction)))
		return false;
	if (!take_zone(&s, &offset, &local) || *s)
		return false;
	t.tm_year = year - 1900;
	t.tm_mon = month - 1;
	given = t;
	at = timegm(&t);
	if (!is_same_time(&t, &given) || (local && !local_time(&given, &at, twice)) ||
	    *twice)
		return false;
	*us = (int64_t)(at - offset) * 1000000 + fraction;
	return true;
}

bool
parse_number(const char *s, long low, long high, long *ret)
{
	size_t n = strlen(s);
	long value;

	if (n == 0 || n > 18 || s[strspn(s, "0123456789")] != '\0')
		return false;
	value = strtol(s, NULL, 10);
	if (value < low || value > high)
		return false;
	*ret = value;
	return true;
}

bool
parse_truth(const char *s, bool *ret)
{
	static const char *const words[] = {
	    "0", "1", "no", "yes", "false", "true", "off", "on"};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(s, words[i]) == 0) {
			*ret = i % 2;
			return true;
		}
	return false;
}

bool
parse_signal(const char *s, int *ret)
{
	long number;

	if (parse_number(s, 1, SIGRTMAX, &number)) {
		*ret = number;
		return true;
	}
	if (strncmp(s, "SIG", 3) == 0)
		s += 3;
	for (int sig = 1; sig < NSIG; sig++) {
		const char *name = libc_signal_name(sig);

		if (name && strcmp(name, s) == 0) {
			*ret = sig;
			return true;
		}
	}
	return false;
}

struct word
parse_signal_text(int sig)
{
	const char *name = libc_signal_name(sig);
	struct word b;

	if (name)
		snprintf(b.text, sizeof b.text, "SIG%s", name);
	else
		snprintf(b.text, sizeof b.text, "signal %d", sig);
	return b;
}

/* ---- guesses at a word that is not known ---- */

enum { WORD_BYTES = 32 };

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool
is_same_letter(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/*
 * Counts the keys that were left out, hit too much, hit wrongly or swapped with their neighbour
 * (Damerau 1964).
 */
static size_t
distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t d[WORD_BYTES + 1][WORD_BYTES + 1];

	for (size_t i = 0; i <= na; i++)
		for (size_t j = 0; j <= nb; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			d[i][j] = d[i - 1][j - 1] + !is_same_letter(a[i - 1], b[j - 1]);
			d[i][j] = least(d[i][j], least(d[i - 1][j], d[i][j - 1]) + 1);
			if (i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2]) &&
			    is_same_letter(a[i - 2], b[j - 1]))
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[na][nb];
}

/*
 * Is the word "no" or "no-" before the name?  Then its opposite was meant, and the name is no
 * guess.
 */
static bool
denies(const char *word, size_t n, const char *name)
{
	size_t no = n > 2 && strchr("-_", word[2]) ? 3 : 2, length = strlen(name);

	return n > no + 1 && length <= WORD_BYTES && is_same_letter(word[0], 'n') &&
	    is_same_letter(word[1], 'o') &&
	    distance(word + no, n - no, name, length) <= 1;
}

const char *
parse_nearest(const char *word, size_t n, const char *const *known)
{
	const char *best = NULL;
	/* a word that is so far away was not meant */
	size_t nearest = n < 5 ? 2 : n < 8 ? 3 : 4;

	if (n < 2 || n > WORD_BYTES)
		return NULL;
	for (; *known; known++) {
		size_t length = strlen(*known), d;

		if (denies(word, n, "wait") && strcasecmp(*known, "nonblock") == 0)
			return *known;
		if (length > WORD_BYTES || denies(word, n, *known))
			continue;
		d = n < length && strncmp(word, *known, n) == 0
		    ? 1
		    : distance(word, n, *known, length);
		if (d < nearest && d < length) {
			nearest = d;
			best = *known;
		}
	}
	return best;
}

const char *
parse_meant(
    const char *word, size_t n, const struct synonym *others, const char *const *known)
{
	for (; others->said; others++)
		if (strlen(others->said) == n && strncasecmp(word, others->said, n) == 0)
			return others->meant;
	return parse_nearest(word, n, known);
}

struct brief
parse_hint(const char *before, const char *meant, const char *behind)
{
	struct brief b = {""};

	if (meant)
		snprintf(b.text, sizeof b.text, "%s%s%s", before, meant, behind);
	return b;
}
