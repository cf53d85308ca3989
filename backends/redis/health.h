/*
 * health.h - whether a Redis server is set so that it may lose locks.
 *
 * Judged by what the server says of itself, which it may not be willing to:
 * what is not known is no risk.
 */
#ifndef DLOCK_REDIS_HEALTH_H
#define DLOCK_REDIS_HEALTH_H

#include <stdbool.h>
#include <stddef.h>

/* The questions, as commands on the wire, and how many answers they get. */
extern const char health_questions[];
enum { HEALTH_ANSWERS = 3, HEALTH_BYTES = 320 };

/* What is known: the answers' texts; NULL: not told. */
struct health {
	const char *memory;      /* INFO memory */
	const char *persistence; /* INFO persistence */
	const char *save;        /* CONFIG GET save: its value */
};

/*
 * Says in what ways this server may lose locks, as the rest of a sentence ("it
 * evicts keys ... and ..."), below HEALTH_BYTES; false: in none that is known.
 */
bool health_risks(const struct health *, char *out, size_t size);

#endif
