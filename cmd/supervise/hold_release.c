/* hold_release.c - what `dlock release` asks of the keeper that holds a lock for a script. */
#include "hold_release.h"

#include "keeper_address.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Half of the patience each: for an answer, and then for a sign of life. */
#define SILENCE (JOIN_PATIENCE / 2)

/* Nobody but a keeper of ours is told anything: the name may be anybody's by now. */
static enum rc
connect_to_hold(int fd, const struct keeper_address *a, struct fault *f)
{
	pid_t pid;

	while (keeper_address_connect(a, fd) != 0) {
		if (errno != EINTR && !keeper_address_is_near(a, fd))
			return fault_set(f, RC_DENIED,
			    "this handle cannot be asked from here (another network namespace, or another machine?)");
		if (errno != EINTR)
			return fault_set(f, RC_LOST,
			    "nothing is held under this handle: it was released, its time or its process has ended, or it was lost more than a minute ago");
	}
	if (!keeper_address_is_ours(fd, &pid))
		return fault_set(f, RC_LOST, "this handle is another user's");
	return RC_OK;
}

static enum rc
keeper_is_silent(int fd, struct fault *f)
{
	pid_t pid = 0;

	(void)keeper_address_is_ours(fd, &pid);
	return fault_set(f, RC_SYSTEM,
	    "dlock's keeper process (pid %d) does not answer: it is stopped, or this machine is overloaded; "
	    "it releases the lock once it goes on",
	    (int)pid);
}

/*
 * For how the release ends a server may be waited for, as long as the keeper does.  While
 * none is told the keeper is asked again, and has to say at least that it is alive.
 */
static enum rc
await_outcome(int fd, struct join_outcome *o, struct fault *f)
{
	const struct join_ask ask = {.version = JOIN_VERSION, .verb = JOIN_RELEASE};
	const size_t size = offsetof(struct join_ask, keys) + 1;
	bool alive = true;
	ssize_t n = -1;

	send(fd, &ask, size, MSG_NOSIGNAL);
	for (;;) {
		n = recv(fd, o, sizeof *o, 0);
		if (n == JOIN_ALIVE)
			alive = true;
		else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
		else if (errno == EAGAIN && !alive)
			return keeper_is_silent(fd, f);
		else if (errno == EAGAIN) {
			alive = false;
			send(fd, &ask, size, MSG_NOSIGNAL);
		}
	}
	o->line[sizeof o->line - 1] = '\0';
	return n == sizeof *o && o->version == JOIN_VERSION
	    ? RC_OK
	    : fault_set(f, RC_AGAIN,
		  "dlock's keeper process has ended before it could say whether it is released; "
		  "the lock ends with its lease at the latest");
}

enum rc
hold_release(const char *handle, struct join_outcome *o, struct fault *f)
{
	const struct timeval patience = {.tv_sec = SILENCE / NS_PER_S};
	struct keeper_address a;
	enum rc rc;
	int fd;

	if (!keeper_address_read_handle(handle, &a))
		return fault_set(f, RC_USAGE, "this is no handle: dlock hold prints one");
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	rc = connect_to_hold(fd, &a, f);
	if (rc == RC_OK)
		rc = await_outcome(fd, o, f);
	close(fd);
	return rc;
}
