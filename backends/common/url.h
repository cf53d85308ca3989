/*
 * url.h - what a URL says: scheme://user:password@host1:port,host2/path?query.
 *
 * url_cut() decodes and copies nothing: each part is a piece of the text, which must
 * outlive it.  Whoever takes a part undoes its %XX (encode_undo) into room of its own, and
 * says what it allows.
 */
#ifndef DLOCK_URL_H
#define DLOCK_URL_H

#include "backends/backend.h"

/* ---- its parts ---- */

/* Some bytes of a text; at NULL: the part is missing, which differs from an empty one. */
struct url_part {
	const char *at;
	size_t n;
};

struct url {
	struct url_part scheme;
	/* before the last @ of the authority; the password behind its first colon */
	struct url_part user, password;
	struct url_part hosts; /* with commas between several; may be empty */
	struct url_part path;  /* from its slash on; n 0: none */
	struct url_part query; /* behind the question mark */
};

#define URL_HIDES_LOGIN \
	"has an '@' behind its hosts: write a '/' of a password %2F, a '?' %3F, a '#' %23, and an '@' of a path %40"

#define URL_WRONG_LOGIN "has a user or password that is too long, or a wrong %XX in it"

/*
 * NULL, or what is wrong with it: "has no // after its scheme".  The path is set
 * all the same, for those who allow that (file:/DIR).
 */
const char *url_cut(struct url *, const char *text);

/*
 * An @ in the path: it may end a password with a / that was not escaped, so that what
 * seems to be a host is a user, and a port the beginning of his password.
 */
bool url_hides_login(const struct url *);

bool url_part_is(const struct url_part *, const char *word);

/*
 * The first of a list with commas; the list goes on behind it, and has at NULL after the
 * last one.
 */
struct url_part url_part_first(struct url_part *list);

/* ---- a host and a port ---- */

struct endpoint {
	char host[256]; /* a name, an IPv4 address, or an IPv6 one without its brackets */
	int port;       /* 1 to 65535 */
};

/*
 * Reads "host", "host:port" or "[v6]:port", n bytes of text; `port` is for
 * those that name none.  NULL, or what is wrong: "names no host".
 */
const char *endpoint_parse(struct endpoint *, const char *text, size_t n, int port);

/*
 * The same from two texts, as servers name each other: the host of an IPv6 address has no
 * brackets there.
 */
const char *endpoint_plain(
    struct endpoint *, const char *host, size_t nhost, const char *port, size_t nport);

/*
 * `before` and "host:port" or "[v6]:port"; returns its length, or `size` where it is cut, or
 * only just fits.
 */
int endpoint_print(char *out, size_t size, const char *before, const struct endpoint *);

/* User and password of a URL, each "" if it has none.  NULL, or what is wrong. */
const char *url_login(const struct url *, char *user, size_t user_size, char *password,
    size_t password_size);

bool endpoint_is(const struct endpoint *, const struct endpoint *);

/* All of `text` (n bytes) as a decimal number up to `most`; -1 if it is none. */
int endpoint_number(const char *text, size_t n, int most);

/* ---- %XX, and keys as names that a server or a file system takes ---- */

/* Room for any encoded key, with the NUL. */
enum { ENCODED_BYTES = 3 * 512 + 1 };

/*
 * Percent-encodes `key` into `out` (at least ENCODED_BYTES for a legal key):
 * ASCII letters, digits and - _ . ~ : @ = stand for themselves, every other
 * byte becomes %XX with capital digits; "." and ".." become "%2E" and "%2E%2E".
 * So the result is one path component, has no braces, '+' or blanks, is never
 * empty for a key that is not, and no two keys share one.  Returns its length,
 * or 0 where it does not fit.
 */
size_t encode_key(char *out, size_t size, const char *key);

/*
 * The way back: undoes %XX in `n` bytes of `text`, for keys and for the parts
 * of a URL alike.  Refuses a % without two hexadecimal digits, and %00.
 * Returns the length, or -1 where text is wrong or does not fit.
 */
int encode_undo(char *out, size_t size, const char *text, size_t n);

/*
 * The key that encode_key() writes as these `n` bytes; false: there is none.  Others may have
 * written "a%61", which would be a second name of the key "aa".
 */
bool encode_read_key(char key[KEY_BYTES + 1], const char *text, size_t n);

#endif
