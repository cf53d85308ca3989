/* http.c - replies of HTTP/1.1, as they come in pieces. */
#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

void
http_begin(struct http *h)
{
	h->state = HTTP_STATUS;
	h->status = 0;
	h->date = -1;
	h->ends = h->chunked = h->sized = false;
	h->left = h->nline = h->n = h->head = h->seen = 0;
}

void
http_free(struct http *h)
{
	free(h->body);
	*h = (struct http){.date = -1};
}

const char *
http_line_end(struct http *h)
{
	const char *end = h->n > h->seen ? memchr(h->body + h->seen, '\n', h->n - h->seen)
					 : NULL;

	if (!end)
		h->seen = h->n;
	return end;
}

void
http_drop(struct http *h, size_t n)
{
	h->seen = 0;
	h->n -= n;
	memmove(h->body, h->body + n, h->n);
	h->body[h->n] = '\0';
}

/* ---- lines ---- */

/* "HTTP/1.1 200 OK" */
static bool
read_status(struct http *h)
{
	int minor, end = 0;

	if (sscanf(h->line, "HTTP/1.%1d %3d%n", &minor, &h->status, &end) != 2 ||
	    end < 12 || h->status < 200)
		return false;
	h->ends = minor == 0;
	h->state = HTTP_HEAD;
	return true;
}

/* "Thu, 26 Nov 2026 00:56:36 GMT"; -1: it is not that. */
static int64_t
read_date(const char *text)
{
	struct tm t = {0};

	return strptime(text, "%a, %d %b %Y %T GMT", &t) ? timegm(&t) : -1;
}

/* False: a length that is none, or too much. */
static bool
read_size(struct http *h, const char *text, int base, size_t most)
{
	char *end;
	unsigned long long n = strtoull(text, &end, base);

	h->left = n;
	return end > text && *text != '-' && *text != '+' && n <= most &&
	    strchr("; \t", *end); /* also at the end */
}

/* The head has ended. */
static bool
begin_body(struct http *h)
{
	if (h->chunked)
		h->state = HTTP_CHUNK_SIZE;
	else
		h->state = h->sized && h->left > 0 ? HTTP_BODY : HTTP_WHOLE;
	h->ends = h->ends || (!h->chunked && !h->sized);
	return true;
}

static bool
read_header(struct http *h)
{
	char *value = strchr(h->line, ':');

	if (!*h->line)
		return begin_body(h);
	if (!value)
		return false;
	*value++ = '\0';
	value += strspn(value, " \t");
	if (strcasecmp(h->line, "Date") == 0)
		h->date = read_date(value);
	else if (strcasecmp(h->line, "Connection") == 0)
		h->ends = h->ends || strcasecmp(value, "close") == 0;
	else if (strcasecmp(h->line, "Transfer-Encoding") == 0)
		return h->chunked = strcasecmp(value, "chunked") == 0;
	else if (strcasecmp(h->line, "Content-Length") == 0)
		return h->sized = read_size(h, value, 10, HTTP_BODY_MOST);
	return true;
}

/* A line has come whole. */
static bool
read_header_line(struct http *h)
{
	switch (h->state) {
	case HTTP_STATUS:
		return read_status(h);
	case HTTP_HEAD:
		return read_header(h);
	case HTTP_CHUNK_SIZE:
		if (!read_size(h, h->line, 16, HTTP_BODY_MOST))
			return false;
		h->state = h->left > 0 ? HTTP_CHUNK : HTTP_TRAILER;
		return true;
	case HTTP_CHUNK_END:
		h->state = HTTP_CHUNK_SIZE;
		return !*h->line;
	default: /* HTTP_TRAILER */
		if (!*h->line)
			h->state = HTTP_WHOLE;
		return true;
	}
}

/* Takes bytes up to the end of the line. */
static bool
feed_line(struct http *h, const char *bytes, size_t n, size_t *used)
{
	const char *end = memchr(bytes, '\n', n);
	size_t part = end ? (size_t)(end - bytes) : n;

	if (h->state == HTTP_HEAD || h->state == HTTP_TRAILER)
		h->head += part + 1;
	if (h->nline + part >= sizeof h->line || memchr(bytes, '\0', part) ||
	    h->head > HTTP_HEAD_MOST)
		return false;
	memcpy(h->line + h->nline, bytes, part);
	h->nline += part;
	*used += part + (end != NULL);
	if (!end)
		return true;
	if (h->nline > 0 && h->line[h->nline - 1] == '\r')
		h->nline--;
	h->line[h->nline] = '\0';
	h->nline = 0;
	return read_header_line(h);
}

/* ---- the body ---- */

static bool
feed_body(struct http *h, const char *bytes, size_t n, size_t *used)
{
	size_t part = n < h->left ? n : h->left;

	if (h->n + part >= h->room) {
		size_t room = 2 * (h->n + part) + 512;
		char *body = h->n + part < HTTP_BODY_MOST ? realloc(h->body, room) : NULL;

		if (!body)
			return false;
		h->body = body;
		h->room = room;
	}
	memcpy(h->body + h->n, bytes, part);
	h->n += part;
	h->body[h->n] = '\0';
	h->left -= part;
	*used += part;
	if (h->left == 0)
		h->state = h->state == HTTP_CHUNK ? HTTP_CHUNK_END : HTTP_WHOLE;
	return true;
}

bool
http_feed(struct http *h, const char *bytes, size_t n, size_t *used)
{
	bool good = true;

	*used = 0;
	while (good && *used < n && h->state != HTTP_WHOLE)
		good = h->state == HTTP_BODY || h->state == HTTP_CHUNK
		    ? feed_body(h, bytes + *used, n - *used, used)
		    : feed_line(h, bytes + *used, n - *used, used);
	return good;
}
