/*
 * join_release.c - asks the keeper of a hold for its end.
 *
 *	connect   to the socket that the handle names; a keeper that is gone has nothing to give back
 *	ask       to release
 *	wait      until the keeper says how that has ended.  While it does not, it is asked again,
 *	          and has to say at least that it is alive
 */
#include "join_release.h"

#include "join_address.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Half of the patience each: for an answer, and then for a sign of life. */
#define SILENCE (JOIN_PATIENCE / 2)

/*
 * For how the release ends a server may be waited for, as long as the keeper does.  While
 * none is told the keeper is asked again, and has to say at least that it is alive.
 */
static enum rc
await_outcome(int fd, pid_t keeper, struct join_outcome *o, struct fault *f)
{
	const struct join_ask ask = {.version = JOIN_VERSION, .verb = JOIN_RELEASE};
	const size_t size = offsetof(struct join_ask, keys) + 1;
	bool alive = true, reset = false;
	ssize_t n = -1;

	send(fd, &ask, size, MSG_NOSIGNAL);
	for (;;) {
		n = recv(fd, o, sizeof *o, 0);
		if (n < 0 && errno == ECONNRESET && !reset) {
			/* it has ended before our second question, and its answer lies here */
			reset = true;
			continue;
		}
		if (n == JOIN_ALIVE)
			alive = true;
		else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
		else if (errno == EAGAIN && !alive)
			return fault_set(f, RC_SYSTEM,
			    "dlock's keeper process (pid %d) does not answer: it is stopped, or this machine is overloaded; "
			    "it releases the lock once it goes on",
			    (int)keeper);
		else if (errno == EAGAIN) {
			alive = false;
			send(fd, &ask, size, MSG_NOSIGNAL);
		}
	}
	o->line[sizeof o->line - 1] = '\0';
	return n == sizeof *o && o->version == JOIN_VERSION
	    ? RC_OK
	    : fault_set(f, RC_AGAIN,
		  "dlock's keeper process has ended before it said whether the lock is released; the lock ends with its lease at the latest");
}

enum rc
join_release(const char *handle, struct join_outcome *o, struct fault *f)
{
	const struct timeval patience = {.tv_sec = SILENCE / NS_PER_S};
	struct join_address a;
	pid_t keeper;
	enum rc rc;
	int fd;

	if (!join_address_read_handle(handle, &a))
		return fault_set(f, RC_USAGE,
		    "this is no handle: dlock hold prints one (for a key say -k)");
	/* nobody but a keeper of ours is told anything: the name may be anybody's by now */
	fd = join_address_connect(&a, 0, &keeper);
	if (fd < 0 && errno == ENONET)
		return fault_set(f, RC_DENIED,
		    "the hold of this handle cannot be reached from here (is it in another network namespace, or on another machine?)");
	if (fd < 0 && errno == ECONNREFUSED)
		return fault_set(f, RC_LOST,
		    "nothing is held under this handle: it was released, its time or its process has ended, or it was lost more than a minute ago");
	if (fd < 0 && errno == EPERM)
		return fault_set(f, RC_LOST, "this handle is another user's");
	if (fd < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	rc = await_outcome(fd, keeper, o, f);
	close(fd);
	return rc;
}
