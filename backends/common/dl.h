/*
 * dl.h - loads a shared library when it is needed and not before.
 *
 * A library that is linked is loaded at every start of dlock, with all that it needs, on whatever
 * backend.  So it is opened by name at first use, and called through a table of pointers to its
 * functions.  An X-macro lists the functions once, for the members of the table and for the rows
 * here.  The library's header gives their types, so that the compiler checks every call:
 *
 *	#define X(name) __typeof__(&PQ##name) name;		in the table
 *	#define X(name) {"PQ" #name, false, offsetof(struct pq, name)},	in the rows
 */
#ifndef DLOCK_DL_H
#define DLOCK_DL_H

#include "backends/backend.h"

/* The name is no pointer, since each pointer here would be relocated at every start. */
struct dl_symbol {
	char name[43];
	bool optional; /* NULL where the library is too old to have it */
	unsigned at;   /* where in the table its address is put */
};

struct dl_library {
	const char *name;    /* for people: "libpq" */
	const char *file;    /* "libpq.so.5" */
	const char *package; /* Debian's package of it */
	void *table;
	const struct dl_symbol *symbols;
	size_t n;
};

/*
 * Loads the library, for as long as the process lives, and fills the table.  It may be called
 * again.  RC_CONFIG: the library is not installed, or lacks a function; RC_SYSTEM: it could not
 * be loaded.
 */
enum rc dl_load(const struct dl_library *, struct fault *);

/* Can the library be opened here?  This loads it. */
bool dl_is_there(const struct dl_library *);

/* All libraries that this build may load, NULL-ended. */
extern const struct dl_library *const dl_libraries[];

#endif
