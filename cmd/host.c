/* host.c - a backend's host where nothing is supervised. */
#include "host.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>

/* Milliseconds from now to `until`, as poll takes them: rounded up, -1 for ever. */
static int
poll_time(instant until)
{
	int64_t ms;

	if (until == NEVER)
		return -1;
	ms = ns_to_ms(until - instant_now());
	return ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

enum woke
host_wait(struct host *h, int fd, short events, instant until)
{
	struct pollfd p = {.fd = fd, .events = events};

	(void)h;
	for (;;) {
		int n = poll(&p, 1, poll_time(until));

		if (n > 0)
			return WOKE_READY;
		if (n < 0 && errno != EINTR && errno != ENOMEM)
			return WOKE_READY; /* the next read says what is wrong */
		if (instant_now() >= until)
			return WOKE_TIMEOUT;
	}
}

void
host_init(struct host *h)
{
	*h = (struct host){.wait = host_wait, .seen.holding.held = -1, .alert = -1};
}
