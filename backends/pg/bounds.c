/* bounds.c - counts what a PostgreSQL server sends. */
#include "bounds.h"

#include <string.h>
#include <sys/socket.h>

/* The second word of what a client begins with, where it asks for encryption. */
enum { TLS_REQUEST = 80877103, GSS_REQUEST = 80877104 };

enum { TLS_HANDSHAKE = 0x16 }; /* the first byte of one */

static uint32_t
read_uint32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * The next byte of a message's head: a letter, and a length that counts itself.  Where the
 * first one makes no sense, the server speaks another language: libpq says so, and takes no
 * more.  False: the message is too long.
 */
static bool
follow_head(struct bounds *b, unsigned char byte)
{
	uint32_t length;
	bool first = b->first;

	b->head[b->header++] = byte;
	if (first && (!b->head[0] || !strchr("REv", b->head[0])))
		b->foreign = true;
	if (b->header < sizeof b->head)
		return true;
	length = read_uint32(b->head + 1);
	b->first = false;
	b->header = 0;
	b->left = length > 4 ? length - 4 : 0;
	return length <= BOUNDS_MOST || first;
}

/* Follows the messages; false: one of them is too long. */
static bool
follow(struct bounds *b, const unsigned char *p, size_t n)
{
	while (n > 0) {
		size_t take = b->left > 0 ? (b->left < n ? b->left : n) : 1;

		if (b->left > 0)
			b->left -= take;
		else if (!follow_head(b, *p))
			return false;
		p += take;
		n -= take;
	}
	return true;
}

static bool
is_bearable(struct bounds *b, const unsigned char *p, size_t n)
{
	b->read += n;
	if (b->read > BOUNDS_MOST)
		return false;
	/* an old server answers a request for encryption with a message */
	if (b->letter && *p != 'E') {
		b->foreign = b->foreign || n > 1 || !*p || !strchr("SNG", *p);
		b->encrypted = *p == 'S' || *p == 'G';
		p++;
		n--;
	}
	b->letter = false;
	return b->encrypted || follow(b, p, n);
}

static ssize_t
bounds_recv(struct inlet *i, int fd, void *to, size_t size, int flags)
{
	struct bounds *b = (struct bounds *)i;
	ssize_t n = b->endless ? 0 : inlet_recv(fd, to, size, flags);

	if (n <= 0 || flags & MSG_PEEK)
		return n;
	b->endless = !is_bearable(b, to, n);
	return b->endless ? 0 : n;
}

/*
 * The first words of a connection, perhaps to another host, begin with a zero byte; no later
 * message does.
 */
static ssize_t
bounds_send(struct inlet *i, int fd, const void *from, size_t size, int flags)
{
	struct bounds *b = (struct bounds *)i;
	const unsigned char *p = from;
	ssize_t n = inlet_send(fd, from, size, flags);
	uint32_t code = n >= 8 ? read_uint32(p + 4) : 0;

	if (n >= 8 && *p == 0)
		*b = (struct bounds){.inlet = b->inlet,
		    .foreign = b->foreign,
		    .first = true,
		    .letter = code == TLS_REQUEST || code == GSS_REQUEST};
	else if (n > 0 && *p == TLS_HANDSHAKE)
		b->encrypted = true;
	return n;
}

void
bounds_watch(struct bounds *b, int fd, bool begins)
{
	inlet_leave(&b->inlet);
	b->inlet = (struct inlet){
	    .fd = fd, .recv = bounds_recv, .send = begins ? bounds_send : NULL};
	if (fd >= 0)
		inlet_watch(&b->inlet);
}
