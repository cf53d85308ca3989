/* anchors.c - descriptors that keep a lock are sent and received: see anchors.h. */
#include "anchors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for them beside a message. */
union control {
	struct cmsghdr first;
	char room[CMSG_SPACE(sizeof((struct anchors *)0)->fds)];
};

ssize_t
anchors_send(int socket, const struct iovec *parts, size_t n, const struct anchors *a)
{
	struct msghdr h = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n};
	union control control;
	ssize_t sent;

	if (a && a->n > 0) {
		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(a->n * sizeof a->fds[0]);
		memset(&control, 0, h.msg_controllen);
		control.first = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
		    .cmsg_type = SCM_RIGHTS,
		    .cmsg_len = CMSG_LEN(a->n * sizeof a->fds[0])};
		memcpy(CMSG_DATA(&control.first), a->fds, a->n * sizeof a->fds[0]);
	}
	do
		sent = sendmsg(socket, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent;
}

/* There may be more than fit: the room for them is a whole number of words. */
static void
append_all(struct anchors *a, const unsigned char *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, fds + i * sizeof fd, sizeof fd);
		if (a->n < sizeof a->fds / sizeof a->fds[0]) {
			a->fds[a->n++] = fd;
			continue;
		}
		close(fd);
		a->cut = true;
	}
}

ssize_t
anchors_receive(int socket, const struct iovec *parts, size_t n, struct anchors *a)
{
	union control control;
	struct msghdr h = {.msg_iov = (struct iovec *)parts,
	    .msg_iovlen = n,
	    .msg_control = control.room,
	    .msg_controllen = sizeof control.room};
	ssize_t received = recvmsg(socket, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	a->n = 0;
	a->cut = received >= 0 && (h.msg_flags & MSG_CTRUNC);
	if (received < 0)
		return received;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			size_t sent = (c->cmsg_len - CMSG_LEN(0)) / sizeof a->fds[0];

			append_all(a, CMSG_DATA(c), sent);
		}
	return received;
}

void
anchors_close(struct anchors *a)
{
	while (a->n > 0)
		close(a->fds[--a->n]);
}
