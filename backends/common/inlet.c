/* inlet.c - recv() and send() of the whole program. */
#undef _FORTIFY_SOURCE /* it has a recv() of its own */
#include "inlet.h"

#include <stddef.h>
#include <sys/socket.h>

/* A thread's inlets are its own, so no other thread has to be kept out. */
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
	int more = i && i->flags ? i->flags(i, size) : 0;
	ssize_t n = sendto(fd, from, size, flags | more, NULL, 0);

	sent_on = fd;
	if (i && i->sent && n > 0)
		i->sent(i, fd, from, n);
	return n;
}
