/* registry.c - has the table of backends, and finds one by name or by URL. */
#include "registry.h"
#include "backends/common/url.h"

#include <string.h>

extern const struct backend file_backend, redis_backend, zk_backend, pg_backend,
    mysql_backend, memcached_backend, etcd_backend, fake_backend;

/*
 * Defines a backend that this build lacks, without functions, so that its users read "not
 * compiled in" and not "unknown".  The arguments are its name, whether its URLs may be pairs, and
 * its schemes.
 */
#define MISSING(word, takes_pairs, ...) \
	const struct backend word##_backend = { \
	    .name = #word, \
	    .schemes = (const char *const[]){__VA_ARGS__, NULL}, \
	    .pairs = takes_pairs, \
	    .url_help = "not compiled in", \
	}

#ifndef HAVE_REDIS
MISSING(redis, false, "redis", "rediss", "redis+unix", "redis+sentinel",
    "rediss+sentinel", "redis+cluster", "rediss+cluster", "redlock", "redlocks");
#endif
#ifndef HAVE_ZK
MISSING(zk, false, "zk", "zks");
#endif
#ifndef HAVE_PG
MISSING(pg, true, "postgresql", "postgres");
#endif
#ifndef HAVE_MYSQL
MISSING(mysql, false, "mysql", "mariadb");
#endif
#ifndef HAVE_MEMCACHED
MISSING(memcached, false, "memcached");
#endif
#ifndef HAVE_ETCD
MISSING(etcd, false, "etcd", "etcds");
#endif

const struct backend *const backends[] = {
    &file_backend,
    &redis_backend,
    &zk_backend,
    &pg_backend,
    &mysql_backend,
    &memcached_backend,
    &etcd_backend,
#ifdef WITH_FAKE /* tests/servers/fake.c, only in the binary that the tests build */
    &fake_backend,
#endif
    NULL,
};

const struct backend *
registry_named(const char *name)
{
	for (size_t i = 0; backends[i]; i++)
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}

const struct backend *
registry_of_scheme(const char *scheme, size_t n)
{
	for (size_t i = 0; backends[i]; i++)
		for (const char *const *s = backends[i]->schemes; *s; s++)
			if (strlen(*s) == n && strncmp(*s, scheme, n) == 0)
				return backends[i];
	return NULL;
}

const struct backend *
registry_of_url(const char *url)
{
	size_t scheme = strcspn(url, ":"),
	       name = strspn(url, "abcdefghijklmnopqrstuvwxyz_"),
	       blanks = strspn(url + name, " ");
	/* the URL consists of name=value pairs: host=h dbname=d */
	bool pairs = name > 0 && url[name + blanks] == '=';

	if (!pairs)
		return url[scheme] ? registry_of_scheme(url, scheme) : NULL;
	for (size_t i = 0; backends[i]; i++)
		if (backends[i]->pairs)
			return backends[i];
	return NULL;
}
