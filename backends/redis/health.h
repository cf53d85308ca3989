/*
 * health.h - whether a Redis server is set so that it may lose locks.
 *
 * Judged by what the server says of itself, which it may not be willing to:
 * what is not known is no risk.
 */
#ifndef DLOCK_REDIS_HEALTH_H
#define DLOCK_REDIS_HEALTH_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

/* The questions, as commands on the wire, and how many answers they get. */
extern const char health_questions[];
enum { HEALTH_ANSWERS = 3, HEALTH_BYTES = 320 };

/* Is it an answer to one of them, if only that we are not told? */
bool health_is_answer(const redisReply *);

/*
 * Says in what ways this server may lose locks, as the rest of a sentence ("it
 * evicts keys ... and ..."), below HEALTH_BYTES; false: in none that is known.
 */
bool health_risks(redisReply *const answers[HEALTH_ANSWERS], char *out, size_t size);

#endif
