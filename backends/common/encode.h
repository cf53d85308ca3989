/*
 * encode.h - writes keys as names that a server or a file system takes, with %XX, and reads them.
 */
#ifndef DLOCK_ENCODE_H
#define DLOCK_ENCODE_H

#include "backends/backend.h"

/* Room for any encoded key, with the NUL. */
enum { ENCODED_BYTES = 3 * 512 + 1 };

/*
 * Percent-encodes `key` into `out` (at least ENCODED_BYTES for a legal key).  ASCII letters,
 * digits and - _ . ~ : @ = stand for themselves; every other byte becomes %XX with capital
 * digits; "." and ".." become "%2E" and "%2E%2E".  So the result is one path component, without
 * braces, '+' or blanks; it is not empty unless the key is; and no two keys share one.  Returns
 * its length, or 0 where it does not fit.
 */
size_t encode_key(char *out, size_t size, const char *key);

/*
 * Undoes %XX in `n` bytes of `text`, for keys and for the parts of a URL.  It refuses a % without
 * two hexadecimal digits, and %00.  Returns the length, or -1 where the text is wrong or does not
 * fit.
 */
int encode_undo(char *out, size_t size, const char *text, size_t n);

/*
 * Reads the key that encode_key() writes as these `n` bytes.  False: no key is written so.  It
 * refuses "a%61", say, which another program may have written: that would be a second name of the
 * key "aa".
 */
bool encode_read_key(char key[KEY_BYTES + 1], const char *text, size_t n);

#endif
