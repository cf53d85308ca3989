/*
 * reader.h - nodes of one directory, read in the order in which they are wanted: a few of them
 * are asked for before it is their turn.
 *
 * A node that has gone since its directory was listed is none.
 */
#ifndef DLOCK_ZK_READER_H
#define DLOCK_ZK_READER_H

#include "lockdir.h"

enum { READER_AHEAD = 8 };

/* Names of children; the text is the list's, the rest is to be freed by names_free(). */
struct names {
	const char **at;
	size_t n;
};

/* Those of an answered list, to be put into order. */
enum rc names_copy(struct names *, const struct call *list, struct fault *);
void names_sort(struct names *); /* as strings */
void names_free(struct names *);

struct reader {
	struct session *session; /* NULL: nothing is to be read */
	const char *dir, *part;  /* as they make up the directory's path */
	const char *const *names;
	size_t n, asked, given;
	struct call *calls[READER_AHEAD];
};

/* The first n names, of which none is asked for yet; all of that must outlive it. */
void reader_begin(struct reader *, struct session *, const char *dir, const char *part,
    const struct names *, size_t n);

/* Asks for the first ones now, not only when one is wanted. */
void reader_ask(struct reader *);

/* The name of the next one; NULL: there is none any more. */
const char *reader_name(const struct reader *);

/*
 * Reads it: *ret is the reader's until reader_done(), which has to follow in any case.  NULL:
 * it is gone, or may not be read (*denied).
 */
enum rc reader_next(struct reader *, instant until, const struct call **ret, bool *denied,
    struct fault *);
void reader_done(struct reader *);

/* Also before all are read; also one that was never begun, but is zero. */
void reader_end(struct reader *);

#endif
