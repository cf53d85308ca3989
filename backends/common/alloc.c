/* alloc.c - gives the first store static memory, and others memory from the heap. */
#include "alloc.h"

#include <stdbool.h>
#include <stdlib.h>

static _Alignas(4096) char first[65536]; /* whole pages: a page fault less */

void *
alloc_store(size_t size)
{
	static bool fresh = true;

	if (!fresh || size > sizeof first)
		return calloc(1, size);
	fresh = false;
	return first;
}

void
alloc_free_store(void *store)
{
	if (store != first)
		free(store);
}
