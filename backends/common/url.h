/*
 * url.h - cuts a URL into its parts: scheme://user:password@host1:port,host2/path?query.
 *
 * url_cut() decodes and copies nothing.  Each part is a piece of the text, which must outlive it.
 * The backend undoes the %XX of a part (encode_undo) into room of its own, and checks what it
 * allows there.
 */
#ifndef DLOCK_URL_H
#define DLOCK_URL_H

#include "backends/backend.h"

/* A piece of the text.  `at` NULL: the part is missing, which differs from an empty part. */
struct url_part {
	const char *at;
	size_t n;
};

struct url {
	struct url_part scheme;
	/* user and password end with the authority's last @; the first colon separates them */
	struct url_part user, password;
	struct url_part hosts; /* with commas between several; may be empty */
	struct url_part path;  /* from its slash on; n 0: none */
	struct url_part query; /* behind the question mark */
};

#define URL_HIDES_LOGIN \
	"has an '@' behind its hosts: write a '/' of a password %2F, a '?' %3F, a '#' %23, and an '@' of a path %40"

#define URL_WRONG_LOGIN "has a user or password that is too long, or a wrong %XX in it"

/*
 * Cuts the URL.  Returns NULL, or what is wrong with it: "has no // after its scheme".  The path
 * is set even then, for a backend that allows that (file:/DIR).
 */
const char *url_cut(struct url *, const char *text);

/*
 * Is there an @ in the path?  It may end a password with an unescaped /.  Then what looks like a
 * host is the user, and what looks like a port is the beginning of the password.
 */
bool url_hides_login(const struct url *);

bool url_part_is(const struct url_part *, const char *word);

/*
 * Takes the first piece off a list with commas.  The list then begins behind it; after the last
 * piece its `at` is NULL.
 */
struct url_part url_part_first(struct url_part *list);

/* Decodes user and password, each "" if there is none.  Returns NULL, or what is wrong. */
const char *url_login(const struct url *, char *user, size_t user_size, char *password,
    size_t password_size);

#endif
