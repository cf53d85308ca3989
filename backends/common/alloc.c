/* alloc.c - the memory of a store: static for the first one, of the heap for others. */
#include "alloc.h"

#include <stdbool.h>
#include <stdlib.h>

static _Alignas(4096) char first[65536];

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
