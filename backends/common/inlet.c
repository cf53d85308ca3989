/* inlet.c - recv(), send() and poll() of the whole program. */
#undef _FORTIFY_SOURCE /* its headers would define a recv() and a poll() of their own */
#include "inlet.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Each thread has inlets of its own, so no lock is needed. */
static _Thread_local struct inlet *inlets;
static _Thread_local int sent_on = -1;

void
inlet_leave(struct inlet *i)
{
	struct inlet **at = &inlets;

	while (*at && *at != i)
		at = &(*at)->next;
	if (*at)
		*at = i->next;
}

void
inlet_watch(struct inlet *i)
{
	inlet_leave(i);
	i->next = inlets;
	inlets = i;
}

static struct inlet *
inlet_of(int fd)
{
	struct inlet *any = NULL;

	for (struct inlet *i = inlets; i; i = i->next) {
		if (i->fd == fd)
			return i;
		if (i->fd < 0)
			any = i;
	}
	return any;
}

int
inlet_sent_on(void)
{
	return sent_on;
}

ssize_t
inlet_recv(int fd, void *to, size_t size, int flags)
{
	return recvfrom(fd, to, size, flags, NULL, NULL);
}

ssize_t
inlet_send(int fd, const void *from, size_t size, int flags)
{
	return sendto(fd, from, size, flags, NULL, 0);
}

/* The C library's poll() is this, and cannot be called by its name any more.  ppoll() costs 40 ns more. */
int
inlet_poll(struct pollfd *at, nfds_t n, int timeout)
{
#ifdef SYS_poll
	return (int)syscall(SYS_poll, at, n, timeout);
#else
	struct timespec t = {timeout / 1000, timeout % 1000 * 1000000L};

	return ppoll(at, n, timeout < 0 ? NULL : &t, NULL);
#endif
}

ssize_t
recv(int fd, void *to, size_t size, int flags)
{
	struct inlet *i = inlet_of(fd);

	return i && i->recv ? i->recv(i, fd, to, size, flags)
			    : inlet_recv(fd, to, size, flags);
}

ssize_t
send(int fd, const void *from, size_t size, int flags)
{
	struct inlet *i = inlet_of(fd);

	sent_on = fd;
	return i && i->send ? i->send(i, fd, from, size, flags)
			    : inlet_send(fd, from, size, flags);
}

int
poll(struct pollfd *at, nfds_t n, int timeout)
{
	for (struct inlet *i = inlets; i; i = i->next)
		if (i->poll)
			return i->poll(i, at, n, timeout);
	return inlet_poll(at, n, timeout);
}
