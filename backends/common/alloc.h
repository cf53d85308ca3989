/*
 * alloc.h - the memory of a store.
 *
 * A run opens one store.  Its memory is static, since the first call of malloc() costs ten page
 * faults, which is as much as taking a lock.  The next stores come from the heap.
 */
#ifndef DLOCK_ALLOC_H
#define DLOCK_ALLOC_H

#include <stddef.h>

/*
 * Zeroed memory for a backend's store, until alloc_free_store(); NULL: there is none.  A backend
 * keeps what each run uses at the beginning of its store: a page that is never touched costs
 * nothing.
 */
void *alloc_store(size_t);
void alloc_free_store(void *);

#endif
