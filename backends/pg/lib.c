/* lib.c - see lib.h. */
#include "lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static struct pq table;

static bool
resolve_all(void *library)
{
	static const struct {
		const char *name;
		void **where;
		bool optional;
	} rows[] = {
#define X(name) {"PQ" #name, (void **)&table.name, false},
	    PQ_FUNCTIONS(X)
#undef X
#define X(name) {"PQ" #name, (void **)&table.name, true},
		PQ_PIPELINE_FUNCTIONS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		*rows[i].where = dlsym(library, rows[i].name);
		if (!*rows[i].where && !rows[i].optional)
			return false;
	}
	return true;
}

/* It is not there; or this machine had no memory or descriptors for it, or for what it needs. */
static enum rc
not_loaded(struct fault *f)
{
	const char *why = dlerror();

	if (!why || strstr(why, strerror(ENOENT)))
		return fault_set(f, RC_CONFIG, "libpq is not installed (apt install libpq5)");
	return fault_set(f, RC_SYSTEM, "cannot load libpq: %s", why);
}

enum rc
pq_load(const struct pq **ret, struct fault *f)
{
	void *library = dlopen("libpq.so.5", RTLD_LAZY | RTLD_LOCAL);

	if (!library)
		return not_loaded(f);
	if (!resolve_all(library))
		return fault_set(f, RC_CONFIG, "libpq is too old (apt install libpq5)");
	*ret = &table;
	return RC_OK;
}
