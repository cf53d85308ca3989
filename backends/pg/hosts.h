/* hosts.h - the hosts that a connection string names, as libpq writes them: lists with commas. */
#ifndef DLOCK_PG_HOSTS_H
#define DLOCK_PG_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: not stated.  One port stands for all hosts. */
struct hosts {
	const char *host, *hostaddr, *port;
};

/* How many there are, at least one. */
size_t hosts_count(const struct hosts *);

/*
 * Those behind the first one called `host` (its name, or its address where it has none) with `port`; *behind
 * points into the same lists.  False: that one is the last, or none of these.
 */
bool hosts_behind(const struct hosts *, const char *host, const char *port, struct hosts *behind);

#endif
