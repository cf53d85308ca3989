/*
 * slot.h - where the keys of one lock lie in a cluster.
 *
 * All have one hash tag, and so one slot: the lock's key.  A key that has a {tag} of its
 * own is to lie in that tag's slot, beside what users keep there: then the tag comes first.
 *
 *	job      dlock:{job}:h		a{b}c	dlock:{b}:a%7Bb%7Dc:h
 */
#ifndef DLOCK_REDIS_SLOT_H
#define DLOCK_REDIS_SLOT_H

#include "address.h"
#include "dialect.h"

/* What dialect.names of the native one has named: changed only in a cluster. */
void slot_rename(struct names *, enum form, const char *key);

/* Do both lie in one slot, whatever the cluster? */
bool slot_is_same(const char *key, const char *other);

#endif
