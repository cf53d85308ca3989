/*
 * http.c - replies of HTTP/1.1, read as they are needed.
 *
 * The body is kept in one piece, with a NUL behind it, whether it came with a length or in
 * chunks.  A stream (a watch) is read chunk by chunk: its reader takes lines off the body.
 */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
	LINE_MOST = 4096, /* bytes of a status, a header, a chunk's size; with a NUL */
	HEADERS_MOST = 64,
	/*
	 * A page of our keys has less than 1 MiB, and a value of another client 2 MiB at most.
	 * JSON of so many bytes takes up to forty times as much memory.
	 */
	BODY_MOST = 3 << 20,
};

#define NO_LENGTH SIZE_MAX

void
http_close(struct connection *k)
{
	stream_close(&k->stream);
	free(k->body);
	*k = (struct connection){.stream = k->stream};
}

enum rc
http_fail(struct connection *k, enum rc rc, const char *what, struct fault *f)
{
	http_close(k);
	fault_set(f, rc, "%s %s", k->stream.where,
	    what ? what : "sent what etcd never sends: is this an etcd server?");
	return rc;
}

/* ---- bytes and lines ---- */

static enum rc
receive(struct connection *k, instant until, struct fault *f)
{
	enum rc rc;

	if (instant_now() >= until)
		return http_fail(k, RC_AGAIN, "does not come to an end", f);
	k->at = k->used = 0;
	rc = stream_receive(&k->stream, k->in, sizeof k->in, &k->used, until, f);
	if (rc != RC_OK)
		http_close(k);
	return rc;
}

static enum rc
next_line(struct connection *k, char line[LINE_MOST], instant until, struct fault *f)
{
	size_t n = 0;

	*line = '\0';
	for (;;) {
		const char *from = k->in + k->at;
		const char *end = memchr(from, '\n', k->used - k->at);
		size_t part = end ? (size_t)(end - from) : k->used - k->at;
		enum rc rc;

		if (n + part >= LINE_MOST || memchr(from, '\0', part))
			return http_fail(k, RC_PROTOCOL, NULL, f);
		memcpy(line + n, from, part);
		n += part;
		k->at += part;
		if (end)
			break;
		rc = receive(k, until, f);
		if (rc != RC_OK)
			return rc;
	}
	k->at++;
	line[n > 0 && line[n - 1] == '\r' ? n - 1 : n] = '\0';
	return RC_OK;
}

/* Adds the next `n` bytes to the body. */
static enum rc
read_body(struct connection *k, size_t n, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	if (n > 0 && k->n + n >= k->room) {
		size_t room = 2 * (k->n + n) + 512;
		char *body = k->n + n <= BODY_MOST ? realloc(k->body, room) : NULL;

		if (!body)
			return http_fail(k, RC_PROTOCOL, NULL, f);
		k->body = body;
		k->room = room;
	}
	while (rc == RC_OK && n > 0) {
		size_t part = k->used - k->at < n ? k->used - k->at : n;

		memcpy(k->body + k->n, k->in + k->at, part);
		k->at += part;
		k->n += part;
		k->body[k->n] = '\0';
		n -= part;
		if (n > 0)
			rc = receive(k, until, f);
	}
	return rc;
}

/* ---- the head ---- */

/* False: a length that is none, or too much. */
static bool
read_size(size_t *size, const char *text, int base)
{
	char *end;
	unsigned long long n = strtoull(text, &end, base);

	*size = n;
	return end > text && *text != '-' && *text != '+' && n <= BODY_MOST &&
	    strchr("; \t", *end); /* also at the end */
}

/* False: the reply cannot be read. */
static bool
read_header(struct connection *k, char *line)
{
	char *value = strchr(line, ':');
	struct tm t = {0};

	if (!value)
		return false;
	*value++ = '\0';
	value += strspn(value, " \t");
	if (strcasecmp(line, "Date") == 0)
		k->date = strptime(value, "%a, %d %b %Y %T GMT", &t) ? timegm(&t) : -1;
	else if (strcasecmp(line, "Connection") == 0)
		k->ends = k->ends || strcasecmp(value, "close") == 0;
	else if (strcasecmp(line, "Transfer-Encoding") == 0)
		return k->chunked = strcasecmp(value, "chunked") == 0;
	else if (strcasecmp(line, "Content-Length") == 0)
		return read_size(&k->length, value, 10);
	return true;
}

/* Headers or trailers, with the empty line behind them. */
static enum rc
read_headers(struct connection *k, instant until, struct fault *f)
{
	char line[LINE_MOST];

	for (int i = 0; i < HEADERS_MOST; i++) {
		enum rc rc = next_line(k, line, until, f);

		if (rc != RC_OK || !*line)
			return rc;
		if (!read_header(k, line))
			break;
	}
	return http_fail(k, RC_PROTOCOL, NULL, f);
}

/* "HTTP/1.1 200 OK", and headers. */
static enum rc
take_head(struct connection *k, instant until, struct fault *f)
{
	char line[LINE_MOST];
	int minor, end = 0;
	enum rc rc = next_line(k, line, until, f);

	if (rc != RC_OK)
		return rc;
	k->chunked = false;
	k->length = NO_LENGTH;
	k->date = -1;
	k->n = 0;
	if (sscanf(line, "HTTP/1.%1d %3d%n", &minor, &k->status, &end) != 2 || end < 12 ||
	    k->status < 200)
		return http_fail(k, RC_PROTOCOL, NULL, f);
	k->ends = minor == 0;
	return read_headers(k, until, f);
}

/* ---- the reply ---- */

static enum rc
read_chunk(struct connection *k, bool *whole, instant until, struct fault *f)
{
	char line[LINE_MOST];
	enum rc rc = next_line(k, line, until, f);
	size_t n;

	if (rc != RC_OK)
		return rc;
	if (!read_size(&n, line, 16))
		return http_fail(k, RC_PROTOCOL, NULL, f);
	*whole = n == 0;
	if (*whole)
		return read_headers(k, until, f);
	rc = read_body(k, n, until, f);
	if (rc == RC_OK)
		rc = next_line(k, line, until, f);
	return rc == RC_OK && *line ? http_fail(k, RC_PROTOCOL, NULL, f) : rc;
}

enum rc
http_read_piece(struct connection *k, bool *whole, instant until, struct fault *f)
{
	*whole = false;
	if (!k->status)
		return take_head(k, until, f);
	if (k->chunked)
		return read_chunk(k, whole, until, f);
	*whole = true;
	k->ends = k->ends || k->length == NO_LENGTH;
	return read_body(k, k->length == NO_LENGTH ? 0 : k->length, until, f);
}

enum rc
http_read(struct connection *k, instant until, struct fault *f)
{
	bool whole = false;
	enum rc rc = RC_OK;

	k->status = 0;
	while (rc == RC_OK && !whole)
		rc = http_read_piece(k, &whole, until, f);
	return rc;
}
