/*
 * registry.c - the list of backends, and the words for what became of a call.
 *
 * A backend that this build lacks is listed all the same, without functions,
 * so that its users read "not compiled in" and not "unknown".
 */
#include "backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern const struct backend file_backend, redis_backend, zk_backend, pg_backend, fake_backend;

#ifndef HAVE_REDIS
const struct backend redis_backend = {
    .name = "redis",
    .schemes = "redis redis+unix ",
    .settings = "",
    .url_help = "not compiled in",
};
#endif
#ifndef HAVE_ZK
const struct backend zk_backend = {
    .name = "zk",
    .schemes = "zk zks ",
    .settings = "",
    .url_help = "not compiled in",
};
#endif
#ifndef HAVE_PG
const struct backend pg_backend = {
    .name = "pg",
    .schemes = "postgresql postgres = ",
    .settings = "",
    .url_help = "not compiled in",
};
#endif

const struct backend *const backends[] = {
    &file_backend,
    &redis_backend,
    &zk_backend,
    &pg_backend,
#ifdef WITH_FAKE /* tests/servers/fake.c, only in the binary that the tests build */
    &fake_backend,
#endif
    NULL,
};

const struct backend *
backend_named(const char *name)
{
	for (size_t i = 0; backends[i]; i++)
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}

/* Is `scheme` (of n bytes) one of the words of `list`? */
static bool
listed(const char *list, const char *scheme, size_t n)
{
	for (; *list; list = strchr(list, ' ') + 1)
		if (strncmp(list, scheme, n) == 0 && list[n] == ' ')
			return true;
	return false;
}

/* What stands for a scheme in `url`, n bytes: "redis" of redis://host, "=" of the pairs host=h dbname=d. */
static const char *
scheme_of(const char *url, size_t *n)
{
	size_t name = strspn(url, "abcdefghijklmnopqrstuvwxyz_"), blanks = strspn(url + name, " ");

	if (name > 0 && url[name + blanks] == '=') {
		*n = 1;
		return url + name + blanks;
	}
	*n = strcspn(url, ":");
	return *n > 0 && url[*n] == ':' ? url : NULL;
}

const struct backend *
backend_of_url(const char *url)
{
	size_t n;
	const char *scheme = scheme_of(url, &n);

	if (!scheme)
		return NULL;
	for (size_t i = 0; backends[i]; i++)
		if (listed(backends[i]->schemes, scheme, n))
			return backends[i];
	return NULL;
}

enum rc
fault_set(struct fault *f, enum rc rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->text, sizeof f->text, fmt, ap);
	va_end(ap);
	return rc;
}

const char *
rc_name(enum rc rc)
{
	static const char *const names[] = {
	    [RC_OK] = "ok",
	    [RC_BUSY] = "busy",
	    [RC_STOP] = "stopped",
	    [RC_AGAIN] = "no answer",
	    [RC_LOST] = "not ours",
	    [RC_REVOKED] = "wanted back",
	    [RC_DENIED] = "denied",
	    [RC_USAGE] = "usage",
	    [RC_CONFIG] = "unsafe configuration",
	    [RC_PROTOCOL] = "protocol",
	    [RC_SYSTEM] = "system",
	};

	return names[rc];
}
