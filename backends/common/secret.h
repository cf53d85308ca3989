/*
 * secret.h - keeps passwords out of what is quoted from a server.
 *
 * Servers, proxies and libraries repeat what they were sent: a Redis that knows
 * no AUTH says with which arguments it was called.  What answers a login is
 * best not quoted at all; everything else that is quoted passes here, before
 * it is cut to size.
 */
#ifndef DLOCK_SECRET_H
#define DLOCK_SECRET_H

/*
 * Writes "***" over `secret` wherever it stands in `text`: as it is, or
 * with characters of it as %XX, \xXX or behind a backslash, or with blanks for
 * its control characters.  A beginning of 8 characters counts as all of it,
 * since an echo is often cut.  `secret` is given as the user means it, decoded;
 * NULL, or
 * fewer than 3 characters: nothing is done.  The text never grows.
 */
void secret_blot(char *text, const char *secret);

#endif
