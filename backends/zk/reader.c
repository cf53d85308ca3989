/* reader.c - reads nodes of one directory, one after the other. */
#include "reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

enum rc
names_copy(struct names *ret, const struct call *list, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(list, &n);

	*ret = (struct names){calloc(n + 1, sizeof *ret->at), n};
	if (!ret->at) {
		ret->n = 0;
		return fault_set(f, RC_SYSTEM, "out of memory");
	}
	if (n > 0)
		memcpy(ret->at, names, n * sizeof *names);
	return RC_OK;
}

static int
compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void
names_sort(struct names *n)
{
	qsort(n->at, n->n, sizeof *n->at, compare);
}

void
names_free(struct names *n)
{
	free(n->at);
	*n = (struct names){NULL, 0};
}

/* ---- nodes ---- */

void
reader_ask(struct reader *r)
{
	char path[NODE_BYTES + DIR_BYTES];

	for (; r->asked < r->n && r->asked < r->given + READER_AHEAD; r->asked++) {
		snprintf(
		    path, sizeof path, "%s%s/%s", r->dir, r->part, r->names[r->asked]);
		r->calls[r->asked % READER_AHEAD] = call_get(r->session, path);
	}
}

void
reader_begin(struct reader *r, struct session *s, const char *dir, const char *part,
    const struct names *names, size_t n)
{
	*r = (struct reader){.session = s,
	    .dir = dir,
	    .part = part,
	    .names = names->at,
	    .n = n < names->n ? n : names->n};
}

const char *
reader_name(const struct reader *r)
{
	return r->given < r->n ? r->names[r->given] : NULL;
}

enum rc
reader_next(struct reader *r, instant until, const struct call **ret, bool *denied,
    struct fault *f)
{
	struct call *c;
	int code = ZOK;
	enum rc rc;

	reader_ask(r);
	c = r->calls[r->given % READER_AHEAD];
	rc = call_await(c, until, &code, f);
	*denied = rc == RC_DENIED;
	*ret = rc == RC_OK && code == ZOK ? c : NULL;
	r->given++;
	return *denied ? RC_OK : rc;
}

void
reader_done(struct reader *r)
{
	struct call **last = &r->calls[(r->given - 1) % READER_AHEAD];

	call_drop(*last);
	*last = NULL;
}

void
reader_end(struct reader *r)
{
	for (; r->given < r->asked; r->given++)
		call_drop(r->calls[r->given % READER_AHEAD]);
}
