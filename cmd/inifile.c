/* inifile.c - cuts the text of a configuration file, through libinih. */
#include "inifile.h"

#include <ini.h>
#include <stdbool.h>
#include <string.h>

/*
 * The longest line that libinih takes, where it lets itself be told (Debian's does, and
 * starts with 200); other builds keep their own.
 */
extern int ini_max_line __attribute__((weak));

enum { LINE_BYTES = 8192 };

static const char blanks[] = " \t";

struct reader {
	char *next, *end; /* what has not been read yet; a byte is free at `end` */
	struct inifile_line line;
	char *at; /* the line that libinih has now */
	enum rc (*take)(void *, const struct inifile_line *, struct fault *);
	void *ctx;
	enum rc rc;
	struct fault *fault;
};

/* Cuts the next line off, without the blanks around it; returns its length. */
static size_t
cut_line(struct reader *r)
{
	char *end = memchr(r->next, '\n', r->end - r->next);

	if (!end)
		end = r->end;
	r->at = r->next;
	r->next = end < r->end ? end + 1 : end;
	r->line.number++;
	while (r->at < end && strchr(blanks, *r->at) && *r->at)
		r->at++;
	if (end > r->at && end[-1] == '\r')
		end--;
	while (end > r->at && strchr(blanks, end[-1]) && end[-1])
		end--;
	*end = '\0';
	return end - r->at;
}

/* A line that is no comment, and of which libinih takes `most` bytes. */
static enum rc
check_line(const char *line, size_t n, size_t most, struct fault *f)
{
	if (n > most)
		return fault_set(
		    f, RC_CONFIG, "this line is longer than %zu bytes", most);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = line[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return fault_set(
			    f, RC_CONFIG, "a control character stands in this line");
		if (i > 0 && strchr(blanks, line[i - 1]) && (c == ';' || c == '#'))
			return fault_set(f, RC_CONFIG,
			    "a comment needs a line of its own (no value has a blank before a %c)",
			    c);
	}
	if (*line == '[' && strchr(line, ']') != line + n - 1)
		return fault_set(f, RC_CONFIG,
		    "a section's line ends with its ], and has no other one");
	return RC_OK;
}

/* The line begins a section: it is cut out of the text, and told. */
static enum rc
begin_section(struct reader *r, size_t n)
{
	r->at[n - 1] = '\0';
	r->line.section = r->at + 1;
	r->line.name = r->line.value = NULL;
	return r->take(r->ctx, &r->line, r->fault);
}

/* Gives libinih its next line, as fgets(3) would. */
static char *
next_line(char *out, int size, void *ctx)
{
	struct reader *r = ctx;
	size_t n, most = size - 1;

	if (r->rc != RC_OK || r->next == r->end)
		return NULL;
	n = cut_line(r);
	if (*r->at == ';' || *r->at == '#')
		n = n < most ? n : most;
	else
		r->rc = check_line(r->at, n, most, r->fault);
	if (r->rc != RC_OK)
		return NULL;
	memcpy(out, r->at, n);
	out[n] = '\0';
	if (*out == '[')
		r->rc = begin_section(r, n);
	return r->rc == RC_OK ? out : NULL;
}

/* The value's place is its line, which libinih has copied and which is longer. */
static int
take_pair(void *ctx, const char *section, const char *name, const char *value)
{
	struct reader *r = ctx;

	(void)section;
	r->line.name = name;
	r->line.value = memcpy(r->at, value, strlen(value) + 1);
	r->rc = r->take(r->ctx, &r->line, r->fault);
	return r->rc == RC_OK;
}

/* A mark that some editors put before UTF-8. */
static size_t
skip_mark(const char *text, size_t n)
{
	return n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

enum rc
inifile_read(char *text, size_t n,
    enum rc (*take)(void *, const struct inifile_line *, struct fault *), void *ctx,
    int *number, struct fault *f)
{
	struct reader r = {.next = text + skip_mark(text, n),
	    .end = text + n,
	    .line = {.section = ""},
	    .take = take,
	    .ctx = ctx,
	    .fault = f};
	int wrong;

	if (&ini_max_line)
		ini_max_line = LINE_BYTES;
	wrong = ini_parse_stream(next_line, &r, take_pair, &r);
	*number = r.line.number;
	if (r.rc != RC_OK || wrong == 0)
		return r.rc;
	*number = wrong;
	return fault_set(f, RC_CONFIG,
	    "neither NAME = VALUE nor a [section] nor a comment (behind # or ;)");
}
