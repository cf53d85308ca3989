/*
 * dice.h - numbers that keep many who wait from asking in step.
 *
 * As random as the seed is, and no more: nothing secret is made of them.
 */
#ifndef DLOCK_DICE_H
#define DLOCK_DICE_H

#include <stdint.h>

/* A state that differs with the text (FNV-1a), such as a claim's owner; never 0. */
static inline uint64_t
dice_of(const char *text)
{
	uint64_t dice = 1469598103934665603ULL;

	for (; *text; text++)
		dice = (dice ^ (unsigned char)*text) * 1099511628211ULL;
	return dice ? dice : 1;
}

/* From 0 to below - 1. */
static inline int64_t
dice_roll(uint64_t *dice, int64_t below)
{
	*dice ^= *dice << 13; /* xorshift64, Marsaglia 2003 */
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return (int64_t)(*dice % (uint64_t)below);
}

#endif
