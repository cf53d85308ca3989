/*
 * dl.h - a shared library that is loaded when it is needed and not before.
 *
 * Linking it would cost every start of dlock, on whatever backend, what it costs
 * to load it and all that it needs.  So it is opened by name at first use, and
 * called through a table of pointers to its functions.  An X-macro lists them
 * once, for the table's members and for the rows here, and the library's header
 * gives their types, so that the compiler checks every call:
 *
 *	#define X(name) __typeof__(&PQ##name) name;		in the table
 *	#define X(name) {"PQ" #name, false, offsetof(struct pq, name)},	in the rows
 */
#ifndef DLOCK_DL_H
#define DLOCK_DL_H

#include "backends/backend.h"

/* No pointers: each would be relocated at every start. */
struct dl_symbol {
	char name[43];
	bool optional; /* NULL where the library is too old to have it */
	unsigned at;   /* where in the table its address is put */
};

struct dl_library {
	const char *name;    /* for people: "libpq" */
	const char *file;    /* "libpq.so.5" */
	const char *package; /* of Debian, that brings it */
	void *table;
	const struct dl_symbol *symbols;
	size_t n;
};

/*
 * Loads it, for as long as the process lives, and fills the table; may be called
 * again.  RC_CONFIG: it is not installed, or lacks a function; RC_SYSTEM: it
 * could not be loaded.
 */
enum rc dl_load(const struct dl_library *, struct fault *);

/* Can it be opened here?  Loads it, too. */
bool dl_is_there(const struct dl_library *);

/* All that this build may load, NULL-ended. */
extern const struct dl_library *const dl_libraries[];

#endif
