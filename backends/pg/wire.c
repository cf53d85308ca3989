/* wire.c - counts what a PostgreSQL server sends. */
#include "wire.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* The second word of what a client begins with, where it asks for encryption. */
enum { TLS_REQUEST = 80877103, GSS_REQUEST = 80877104 };

enum { TLS_HANDSHAKE = 0x16 }; /* the first byte of one */

static struct wire *
wire_of(struct inlet *i)
{
	return (struct wire *)((char *)i - offsetof(struct wire, inlet));
}

static uint32_t
read_uint32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * The head of a message is there: a letter, and a length that counts itself.  Where the first
 * one makes no sense, the server speaks another language: libpq says so, and takes no more.
 */
static bool
begin_message(struct wire *w)
{
	uint32_t length = read_uint32(w->head + 1);
	bool first = w->first;

	w->first = false;
	w->header = 0;
	w->left = length > 4 ? length - 4 : 0;
	return length <= WIRE_MOST || first;
}

/* Follows the messages; false: one of them is too long. */
static bool
follow(struct wire *w, const unsigned char *p, size_t n)
{
	while (n > 0) {
		size_t take = w->left > 0 ? (w->left < n ? w->left : n) : 1;

		if (w->left > 0)
			w->left -= take;
		else
			w->head[w->header++] = *p;
		p += take;
		n -= take;
		if (w->header == sizeof w->head && !begin_message(w))
			return false;
	}
	return true;
}

/* The answer to a request for encryption; one of an old server's is a message. */
static void
read_letter(struct wire *w, const unsigned char **p, size_t *n)
{
	w->letter = false;
	w->encrypted = **p == 'S' || **p == 'G';
	if (!w->encrypted && **p != 'N')
		return;
	*p += 1;
	*n -= 1;
}

static bool
is_bearable(struct wire *w, const unsigned char *p, size_t n)
{
	w->come += n;
	if (w->come > WIRE_MOST)
		return false;
	if (w->letter)
		read_letter(w, &p, &n);
	return w->encrypted || follow(w, p, n);
}

static ssize_t
wire_recv(struct inlet *i, int fd, void *to, size_t size, int flags)
{
	struct wire *w = wire_of(i);
	ssize_t n = w->endless ? 0 : inlet_recv(fd, to, size, flags);

	if (n <= 0 || flags & MSG_PEEK)
		return n;
	w->endless = !is_bearable(w, to, n);
	return w->endless ? 0 : n;
}

/*
 * The first words of a connection, perhaps to another host, begin with a zero byte; no later
 * message does.
 */
static void
wire_sent(struct inlet *i, int fd, const void *from, size_t n)
{
	struct wire *w = wire_of(i);
	const unsigned char *p = from;
	uint32_t code = n >= 8 ? read_uint32(p + 4) : 0;

	(void)fd;
	if (n >= 8 && *p == 0)
		*w = (struct wire){.inlet = w->inlet,
		    .first = true,
		    .letter = code == TLS_REQUEST || code == GSS_REQUEST};
	else if (n > 0 && *p == TLS_HANDSHAKE)
		w->encrypted = true;
}

void
wire_watch(struct wire *w, int fd, bool begins)
{
	inlet_leave(&w->inlet);
	w->inlet = (struct inlet){
	    .fd = fd, .recv = wire_recv, .sent = begins ? wire_sent : NULL};
	if (fd >= 0)
		inlet_watch(&w->inlet);
}

void
wire_asked(struct wire *w)
{
	w->come = 0;
}
