/* lib.c - see lib.h. */
#include "lib.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

static struct pq table;

static bool
resolve_all(void *library)
{
	static const struct {
		const char *name;
		void **where;
	} rows[] = {
#define X(name) {"PQ" #name, (void **)&table.name},
	    PQ_FUNCTIONS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		*rows[i].where = dlsym(library, rows[i].name);
		if (!*rows[i].where)
			return false;
	}
	return true;
}

const struct pq *
pq_load(void)
{
	void *library = dlopen("libpq.so.5", RTLD_LAZY | RTLD_LOCAL);

	return library && resolve_all(library) ? &table : NULL;
}
