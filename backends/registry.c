/*
 * registry.c - the list of backends, and the words for what became of a call.
 *
 * A backend that this build lacks is listed all the same, without functions,
 * so that its users read "not compiled in" and not "unknown".
 */
#include "backend.h"
#include "common/dl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend file_backend, redis_backend, zk_backend, pg_backend,
    mysql_backend, memcached_backend, etcd_backend, fake_backend;

/*
 * Stands for a backend that this build lacks; then its schemes, and whether it takes
 * pairs.
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
MISSING(zk, false, "zk");
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

const struct backend *
backend_named(const char *name)
{
	for (size_t i = 0; backends[i]; i++)
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	return NULL;
}

const struct backend *
backend_of_url(const char *url)
{
	size_t scheme = strcspn(url, ":"),
	       name = strspn(url, "abcdefghijklmnopqrstuvwxyz_"),
	       blanks = strspn(url + name, " ");
	/* written as name=value pairs: host=h dbname=d */
	bool pairs = name > 0 && url[name + blanks] == '=';

	for (size_t i = 0; backends[i]; i++) {
		const struct backend *b = backends[i];

		if (pairs && b->pairs)
			return b;
		for (const char *const *s = b->schemes; !pairs && url[scheme] && *s; s++)
			if (strlen(*s) == scheme && strncmp(*s, url, scheme) == 0)
				return b;
	}
	return NULL;
}

/*
 * A run's only store: the first call of malloc() costs ten page faults, and memory of our own
 * costs as much as taking a lock.
 */
static _Alignas(4096) char first[65536];

void *
store_new(size_t size)
{
	static bool fresh = true;

	if (!fresh || size > sizeof first)
		return calloc(1, size);
	fresh = false;
	return first;
}

void
store_free(void *store)
{
	if (store != first)
		free(store);
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

void
checkup_tell(struct checkup *c, enum fitness fitness, const char *name,
    const char *advice, const char *fact, ...)
{
	struct fault text;
	va_list ap;

	va_start(ap, fact);
	vsnprintf(text.text, sizeof text.text, fact, ap);
	va_end(ap);
	c->tell(c, &(struct finding){fitness, name, text.text, advice});
}

const char *
rc_name(enum rc rc)
{
	static const char *const names[] = {
	    [RC_OK] = "ok",
	    [RC_BUSY] = "busy",
	    [RC_DONE] = "done already",
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

void
call_tell(const struct host *host, const struct store *s, const char *key,
    const char *call, instant began, enum rc rc, const struct grant *g,
    const struct fault *f)
{
	instant now = instant_now();
	char line[1024], lease[64] = "";

	if (!host->tell)
		return;
	if (g && g->lease == LEASE_FOREVER && (rc == RC_OK || rc == RC_REVOKED))
		snprintf(lease, sizeof lease, ", kept until this process ends");
	else if (g && (rc == RC_OK || rc == RC_REVOKED))
		snprintf(lease, sizeof lease, ", lease for %.3f s",
		    (double)(instant_after(g->sent, g->lease) - now) / NS_PER_S);
	snprintf(line, sizeof line, "%s: %s%s%.100s: %s in %.3f ms%s%s%s", s->where, call,
	    key ? " " : "", key ? key : "", rc_name(rc),
	    (double)(now - began) / NS_PER_MS, lease, rc == RC_OK ? "" : ": ",
	    rc == RC_OK ? "" : f->text);
	host->tell(host->tell_ctx, line);
}
