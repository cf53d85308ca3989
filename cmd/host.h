/*
 * host.h - a backend's host where nothing is supervised.
 *
 * A subcommand that looks, or takes a lock for a moment, has no command to
 * guard: its wait is poll(2), and a signal ends the process as it ends any
 * other.  `dlock run` has its own (keeper.c).
 */
#ifndef DLOCK_HOST_H
#define DLOCK_HOST_H

#include "backends/backend.h"

void host_init(struct host *);

/* What host_init() makes its wait. */
enum woke host_wait(struct host *, int fd, short events, instant until);

#endif
