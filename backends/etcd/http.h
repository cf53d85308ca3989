/*
 * http.h - replies of HTTP/1.1, as they come in pieces.
 *
 * A reply is fed bytes until it is whole.  Its body is kept in one piece, with a NUL behind
 * it, whether it came with a length or in chunks.  A stream (a watch) never becomes whole: its
 * reader takes lines off the body as they come.  Nothing here does I/O.
 */
#ifndef DLOCK_ETCD_HTTP_H
#define DLOCK_ETCD_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HTTP_LINE_MOST = 4096,     /* of a status, a header, a chunk's size; with a NUL */
	HTTP_HEAD_MOST = 64 << 10, /* of all headers and trailers */
	/*
	 * A page of our keys has less than 1 MiB, and a value of another client 2 MiB at most.
	 * JSON of so many bytes takes up to forty times as much memory.
	 */
	HTTP_BODY_MOST = 3 << 20,
};

enum http_state {
	HTTP_STATUS,
	HTTP_HEAD,
	HTTP_BODY,
	HTTP_CHUNK_SIZE,
	HTTP_CHUNK,
	HTTP_CHUNK_END,
	HTTP_TRAILER,
	HTTP_WHOLE,
};

struct http {
	enum http_state state;
	int status;
	int64_t date; /* seconds since 1970, as the server says; -1: it does not */
	bool ends;    /* the server closes the connection behind it */
	bool chunked;
	bool sized;
	size_t left; /* of the body, or of a chunk */
	char line[HTTP_LINE_MOST];
	size_t nline, head;
	char *body; /* NULL: nothing has come of it; freed by http_free() */
	size_t n, room;
	size_t seen; /* so much of it has no end of a line */
};

/* Before each reply; the body's memory is used again.  The first time it must be zero. */
void http_begin(struct http *);

/*
 * Takes the next bytes, as many of `n` as belong to the reply: *used.  False: that is not
 * HTTP, or more than there is room for.
 */
bool http_feed(struct http *, const char *bytes, size_t n, size_t *used);

/* The end of the body's first line; NULL: it has not come. */
const char *http_line_end(struct http *);

/* Drops the first `n` bytes of the body. */
void http_drop(struct http *, size_t n);

void http_free(struct http *);

#endif
