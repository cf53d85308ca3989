/*
 * derive.h - which advisory lock a key is, as dlock and other tools have it.
 *
 * PostgreSQL knows two kinds of advisory locks, named by one number of 64 bits
 * or by two of 32; they never meet.  Every tool derives its numbers from names
 * in its own way; whoever is to be excluded must do it alike.
 */
#ifndef DLOCK_PG_DERIVE_H
#define DLOCK_PG_DERIVE_H

#include "backends/backend.h"

struct number {
	bool pair;
	int64_t one;    /* if not a pair */
	int32_t two[2]; /* if a pair */
};

/* "-42" or "7,-1".  False: neither, or out of range. */
bool derive_read_number(struct number *, const char *text);

/* What derivations read besides key and database, for identify(). */
struct identity;
void derive_identify(struct identity *);

/* Is this the name that -O derive= has for one? */
bool derive_knows(const char *tool);

/* Does it have one lock, whatever the key? */
bool derive_is_one(const char *tool);

/* Has it that one in every database?  Then *n is it. */
bool derive_is_fixed(const char *tool, struct number *n);

/* All their names, for people. */
extern const char derive_names[];

/*
 * The lock for `key` in `database` (some tools put its name in), as this tool has it; NULL:
 * dlock itself.  RC_USAGE: not a key that this tool could have.
 */
enum rc derive_number(struct number *, const char *tool, const char *key,
    const char *database, struct fault *);

#endif
