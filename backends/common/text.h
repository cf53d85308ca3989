/*
 * text.h - texts that several backends read or say alike: why a lock is not given to a claim,
 * and what is quoted from a server.
 */
#ifndef DLOCK_COMMON_TEXT_H
#define DLOCK_COMMON_TEXT_H

#include "backends/backend.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* ---- hexadecimal digits ---- */

/*
 * The byte that two digits mean, in either case, reading no further than a NUL; -1: they are
 * none.
 */
static inline int
text_hex_byte(const char *text)
{
	int byte = 0;

	for (const char *end = text + 2; text < end; text++) {
		int c = *text | 0x20;

		if (!isxdigit((unsigned char)*text))
			return -1;
		byte = byte * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
	}
	return byte;
}

/* Two digits for each byte, and a NUL. */
static inline void
text_hex(char *out, const unsigned char *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	*out = '\0';
}

/*
 * ---- put together ----
 *
 * Without stdio, which costs each process that uses it ten page faults: for what each run
 * writes.  From `at` on, before `end`, which is beyond `at`, and a NUL behind it; returns
 * where that is.  What does not fit is cut off.
 */
static inline char *
text_put(char *at, const char *end, const char *text)
{
	size_t n = strnlen(text, end - at - 1);

	memcpy(at, text, n);
	at[n] = '\0';
	return at + n;
}

static inline char *
text_put_number(char *at, const char *end, uint64_t number)
{
	char digits[24], *first = digits + sizeof digits - 1;

	*first = '\0';
	do
		*--first = '0' + number % 10;
	while (number /= 10);
	return text_put(at, end, first);
}

static inline char *
text_put_signed(char *at, const char *end, int64_t number)
{
	if (number >= 0)
		return text_put_number(at, end, number);
	return text_put_number(text_put(at, end, "-"), end, -(uint64_t)number);
}

static inline char *
text_put_hex(char *at, const char *end, uint64_t number)
{
	char digits[17], *first = digits;

	for (int i = 0; i < 16; i++)
		digits[i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
	digits[16] = '\0';
	while (*first == '0' && first[1])
		first++;
	return text_put(at, end, first);
}

/* What the digits at the beginning mean; they fit. */
static inline uint64_t
text_number(const char *text)
{
	uint64_t number = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		number = 10 * number + (*text - '0');
	return number;
}

/* Else JSON cannot have it. */
bool text_is_utf8(const char *text);

/* ---- refusals ---- */

/*
 * RC_PROTOCOL: the key is in use as `kind` (and `limit`), beside which the claim may not
 * even wait.
 */
enum rc refuse_kind(struct fault *, const char *where, enum lock_kind kind,
    unsigned limit, const struct claim *);

/*
 * "who":"..." of a record, which others have written, where it is that simple; else "".  Whoever
 * prints it makes it harmless.
 */
void text_who(const char *record, char *out, size_t size);

/*
 * RC_DONE: a run of the job's ID that began so many milliseconds after 1970 has ended
 * with 0.  who "": not known.
 */
enum rc refuse_done(
    struct fault *, const struct job *, int64_t began_ms, const char *who);

/*
 * The server's clock shows so many microseconds since 1970: names the period of a job that has
 * one, if it is not named yet.  RC_PROTOCOL: that is no time.
 */
enum rc period_name(const struct job *, int64_t us, const char *where, struct fault *);

/*
 * A run that ended with 0 began so many microseconds ago by the server's clock; below 0: it is
 * dated ahead of it.  Is that within the job's cooldown?  The rule is in struct job.
 */
static inline bool
job_is_recent(const struct job *j, int64_t age_us)
{
	int64_t cooldown = j->cooldown / 1000;

	return age_us < cooldown && -age_us < cooldown;
}

/* RC_DONE: that run began `age` ago, in nanoseconds; below 0: it is dated ahead. */
enum rc refuse_recent(struct fault *, const struct job *, int64_t age);

/*
 * `rc`, RC_REVOKED or RC_LOST: somebody, whose `record` came with that, asks for a hold
 * back or has taken it by force.  The record goes to host->breaker if it is no longer
 * than one may be.
 */
enum rc refuse_broken(
    struct host *, struct fault *, enum rc, const char *where, const char *record);

/*
 * ---- secrets ----
 *
 * Servers, proxies and libraries repeat what they were sent: a Redis that knows no AUTH says
 * with which arguments it was called.  An answer to a login is best not quoted at all; every
 * other quotation passes here before it is cut to size.
 */

/*
 * Writes "***" over `secret` wherever it stands in `text`: as it is, or
 * with characters of it as %XX, \xXX, \uXXXX or behind a backslash, or with blanks for
 * its control characters.  A beginning of 8 characters counts as all of it,
 * since an echo is often cut.  `secret` is given as the user means it, decoded;
 * NULL, or fewer than 3 characters: nothing is done.  The text never grows.
 */
void secret_blot(char *text, const char *secret);

#endif
