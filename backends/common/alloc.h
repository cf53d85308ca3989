/*
 * alloc.h - gives a store its memory.
 *
 * A run opens one store.  Its memory is static, since the first call of malloc() costs seven page
 * faults, as much as taking a lock.  Further stores come from the heap.
 */
#ifndef DLOCK_ALLOC_H
#define DLOCK_ALLOC_H

#include <stddef.h>

/*
 * Zeroed memory for a backend's store, until alloc_free_store(); NULL: there is none.  The
 * members that every run uses stand at the beginning of a store, since a page that a run does not
 * touch costs nothing.
 */
void *alloc_store(size_t);
void alloc_free_store(void *);

#endif
