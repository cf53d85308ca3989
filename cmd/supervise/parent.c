/* parent.c - sees the end of the process that has started dlock. */
#include "parent.h"

#include "backends/common/libc.h"
#include "cmd/said.h"

#include <poll.h>
#include <unistd.h>

/* pause between two looks where no descriptor tells */
#define PARENT_AGAIN (100 * NS_PER_MS)

static enum rc
refuse_parent(const struct params *params, const char *why, struct fault *f)
{
	return fault_set(f, RC_USAGE, "%s: %s",
	    said_call(said_of(params->said, OPT_WITH_PARENT), OPT_WITH_PARENT).text, why);
}

/*
 * The kernel does not tell whether it had ended before we began: then process 1 is our parent,
 * or another one that adopts orphans.
 */
enum rc
parent_watch(struct parent *p, const struct params *params, struct fault *f)
{
	pid_t pid = getppid();

	if (pid == 0)
		return refuse_parent(params,
		    "the parent process is in another pid namespace, and its end cannot be seen from here",
		    f);
	if (pid == 1)
		return refuse_parent(
		    params, "the parent process has ended, or is process 1", f);
	p->fd = libc_pidfd_open(pid);
	p->pid = pid;
	/* it may have ended in between, and its number be another's */
	return getppid() == pid
	    ? RC_OK
	    : refuse_parent(params, "the parent process has ended", f);
}

void
parent_forget(struct parent *p)
{
	if (p->pid && p->fd >= 0)
		close(p->fd);
	*p = (struct parent){.fd = -1};
}

bool
parent_ends(struct parent *p)
{
	struct pollfd set = {.fd = p->fd, .events = POLLIN};

	if ((p->fd >= 0 ? poll(&set, 1, 0) <= 0 : getppid() == p->pid))
		return false;
	*p = (struct parent){.fd = -1};
	return true;
}

instant
parent_wake(const struct parent *p)
{
	return p->fd < 0 ? instant_now() + PARENT_AGAIN : NEVER;
}
