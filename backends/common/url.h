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

/* User and password of a URL, each "" if it has none.  NULL, or what is wrong. */
const char *url_login(const struct url *, char *user, size_t user_size, char *password,
    size_t password_size);

#endif
