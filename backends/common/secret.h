/*
 * secret.h - takes secrets out of what is quoted.
 *
 * Servers, proxies and libraries repeat what they were sent: a Redis that knows no AUTH says
 * with which arguments it was called.  An answer to a login is best not quoted at all; every
 * other quotation passes here before it is cut to size.
 */
#ifndef DLOCK_COMMON_SECRET_H
#define DLOCK_COMMON_SECRET_H

/*
 * Writes "***" over `secret` wherever it stands in `text`: as it is, or with characters of it as
 * %XX, \xXX, \uXXXX or behind a backslash, or with blanks for its control characters.  Its first
 * 8 characters count as all of it, since an echo is often cut.  `secret` is decoded, as the user
 * means it.  NULL, or one of fewer than 3 characters, changes nothing.  The text never grows.
 */
void secret_blot(char *text, const char *secret);

#endif
