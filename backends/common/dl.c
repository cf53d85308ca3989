/* dl.c - loads a shared library when it is needed, and finds its functions. */
#include "dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static void *
dl_open(const struct dl_library *l)
{
	return dlopen(l->file, RTLD_LAZY | RTLD_LOCAL);
}

bool
dl_is_there(const struct dl_library *l)
{
	return dl_open(l);
}

enum rc
dl_load(const struct dl_library *l, struct fault *f)
{
	void *library = dl_open(l);

	if (!library) {
		const char *why = dlerror();

		/* a file is missing; any other reason is a lack of memory or descriptors */
		if (!why || strstr(why, strerror(ENOENT)))
			return fault_set(f, RC_CONFIG,
			    "%s is not installed (apt install %s)", l->name, l->package);
		return fault_set(f, RC_SYSTEM, "cannot load %s: %s", l->name, why);
	}
	for (size_t i = 0; i < l->n; i++) {
		const struct dl_symbol *s = &l->symbols[i];
		void *found = dlsym(library, s->name);

		memcpy((char *)l->table + s->at, &found, sizeof found);
		if (!found && !s->optional)
			return fault_set(f, RC_CONFIG, "%s is too old (apt install %s)",
			    l->name, l->package);
	}
	return RC_OK;
}

extern const struct dl_library libpq_library, libmariadb_library, openssl_library,
    openssl_old_library;

const struct dl_library *const dl_libraries[] = {
#ifdef HAVE_PG
    &libpq_library,
#endif
#ifdef HAVE_MYSQL
    &libmariadb_library,
#endif
#ifdef HAVE_OPENSSL
    &openssl_library,
    &openssl_old_library,
#endif
    NULL,
};
