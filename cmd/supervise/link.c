/* link.c - messages and descriptors between front and keeper: see link.h. */
#include "link.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* As <linux/sockios.h> has it, which musl cannot include. */
#ifndef SIOCOUTQ
#define SIOCOUTQ TIOCOUTQ
#endif

int
link_open(int ends[2])
{
	return socketpair(
	    AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
}

/* The string with which a message ends. */
static char *
words_of(struct msg *m)
{
	return m->kind == MSG_WAITING ? m->holding.record : m->text;
}

/* In quarters, how much of the link is filled by what has not been read; 4: it is full. */
static int
link_fill(int end)
{
	int unread = 0, room = 0;
	socklen_t size = sizeof room;

	if (ioctl(end, SIOCOUTQ, &unread) != 0 ||
	    getsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, &size) != 0 || room <= 0)
		return 0;
	return (int)(4LL * unread / room);
}

bool
link_is_unread(int end)
{
	int unread = 0;

	return ioctl(end, SIOCOUTQ, &unread) == 0 && unread > 0;
}

bool
link_is_crowded(int end)
{
	return link_fill(end) >= 2;
}

/* A message of this kind is dropped when others have filled so many quarters of the link. */
static int
quarters_for(enum msg_kind kind)
{
	switch (kind) {
	case MSG_WAITING:
	case MSG_RETRYING:
	case MSG_SUSPECT:
	case MSG_TRACE:
	case MSG_NOTICE:
		return 2;
	/* the front looks whether it still is suspended: of many in the link one is enough */
	case MSG_SUSPENDED:
	case MSG_RESUMED:
		return 3;
	default:
		return 4;
	}
}

bool
link_send(int end, const struct msg *m, const struct anchors *a, const struct told *told)
{
	const char *words = words_of((struct msg *)m);
	struct iovec all[2] = {
	    {(void *)m, (size_t)(words - (const char *)m) + strlen(words) + 1}};

	if (quarters_for(m->kind) < 4 && link_fill(end) >= quarters_for(m->kind)) {
		errno = EAGAIN;
		return false;
	}
	if (told) { /* it stands behind a whole message */
		all[0].iov_len = sizeof *m;
		all[1] = (struct iovec){told->text, told->n};
	}
	return anchors_send(end, all, told ? 2 : 1, a) >= 0;
}

int
link_receive(int end, struct msg *m, struct anchors *a, const struct told *room)
{
	struct iovec all[2] = {{m, sizeof *m}};
	bool reset = false;
	ssize_t n;

	if (room)
		all[1] = (struct iovec){room->text, room->n};
	while ((n = anchors_receive(end, all, room ? 2 : 1, a)) < 0)
		/*
		 * The other side has ended and left something unread; what it has sent lies here.
		 * Linux says so once, and another kernel may say nothing else.
		 */
		if (errno == ECONNRESET && !reset)
			reset = true;
		else if (errno != EINTR)
			break;
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	if (n == 0)
		return -1;
	words_of(m)[RECORD_BYTES - 1] = '\0';
	return 1;
}
