/*
 * stray.h - variables that look like dlock's but mean nothing to it, most likely for a
 * typing error.
 */
#ifndef DLOCK_STRAY_H
#define DLOCK_STRAY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Their names and what was meant, fit to be shown, as far as there is room.  False:
 * there are none.
 */
bool stray_list(char *out, size_t size);

#endif
