/* open.c - makes a store from what the user named: its URL and its settings. */
#include "redis.h"

#include "backends/common/alloc.h"
#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPLICAS_MOST = 100 };

/* ---- settings ---- */

static struct redis_store *
store_being_set(struct store *s)
{
	return (struct redis_store *)s;
}

static enum rc
set_password_file(struct store *s, const char *value, struct fault *f)
{
	struct address *a = &store_being_set(s)->address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_sentinel_password_file(struct store *s, const char *value, struct fault *f)
{
	struct address *a = store_being_set(s)->sentinels;

	if (!a)
		return fault_set(
		    f, RC_USAGE, "sentinel-password-file is for redis+sentinel:// only");
	return setting_secret(
	    "sentinel-password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &store_being_set(s)->patience.first, f);
}

static enum rc
set_dialect(struct store *s, const char *value, struct fault *f)
{
	struct redis_store *r = store_being_set(s);
	char all[128] = "";
	size_t used = 0;

	r->dialect = dialect_named(value);
	for (size_t i = 0; !r->dialect && i < DIALECTS; i++)
		used += snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "",
		    dialects[i].name);
	if (!r->dialect)
		return fault_set(f, RC_USAGE,
		    "the redis backend knows no dialect '%s' (there are %s)", value, all);
	if (r->address.form != FORM_REDLOCK || r->dialect == &dialects[DIALECT_NATIVE] ||
	    r->dialect == &dialects[DIALECT_STRING])
		return RC_OK;
	return fault_set(f, RC_CONFIG,
	    "redlock has no dialect '%.40s' (native, or string: the key itself)", value);
}

static enum rc
set_foreign_name(struct store *s, const char *value, struct fault *f)
{
	store_being_set(s)->name = value;
	s->caps |= ONE_LOCK;
	return *value && strlen(value) <= KEY_BYTES
	    ? RC_OK
	    : fault_set(f, RC_USAGE, "name has 1 to %d bytes", KEY_BYTES);
}

static enum rc
set_wait_replicas(struct store *s, const char *value, struct fault *f)
{
	struct redis_store *r = store_being_set(s);

	if (r->address.form == FORM_REDLOCK)
		return fault_set(f, RC_USAGE, "wait-replicas is not for redlock://");
	r->replicas = endpoint_number(value, strlen(value), REPLICAS_MOST);
	return r->replicas > 0
	    ? RC_OK
	    : fault_set(
		  f, RC_USAGE, "wait-replicas is a number from 1 to %d", REPLICAS_MOST);
}

const struct setting_row redis_settings[] = {
    {"dialect", "NAME",
	"how other clients of the server lock: string, redisson, ... "
	"(default: native)",
	set_dialect},
    {"name", "NAME", "with a dialect: the lock that its clients call so, not the key",
	set_foreign_name},
    {"password-file", "FILE", "the password, in a file of mode 0600", set_password_file},
    {"sentinel-password-file", "FILE",
	"the sentinels' own password, in a file of mode 0600",
	set_sentinel_password_file},
    {"wait-replicas", "N",
	"a grant or a renewal counts once N replicas have it (default: 0)",
	set_wait_replicas},
    {"cacert", "FILE", "with rediss://: the CAs to trust (default: the system's)",
	tls_set},
    {"cert", "FILE", "with rediss://: a client certificate, and those of its CAs",
	tls_set},
    {"key", "FILE", "its key, in a file of mode 0600", tls_set},
    {"tls-name", "NAME",
	"with rediss://: the name in the server's certificate, if it is not the host's",
	tls_set},
    {"connect-timeout", "DURATION",
	"for a server that does not answer, without --wait (default: 5s)",
	set_connect_timeout},
    {0},
};

/* ---- stores ---- */

/* Little of it is touched, and malloc() would clear all of it. */
union either {
	struct redis redis;
	struct redlock redlock;
};

/* One of either kind, of which nothing is open. */
static void
redis_free(struct redis_store *r)
{
	tls_close(r->address.tls);
	explicit_bzero(&r->address, sizeof r->address);
	if (r->sentinels)
		explicit_bzero(r->sentinels, sizeof *r->sentinels);
	free(r->sentinels);
	alloc_free_store(r);
}

void
redis_close(struct store *s)
{
	if (!s)
		return;
	if (s->backend == &redlock_backend) {
		quorum_end(&redlock_of(s)->quorum);
	} else {
		route_free(&redis_of(s)->route);
		server_close(&redis_of(s)->queue.listener);
		if (redis_of(s)->both > 0)
			close(redis_of(s)->both);
	}
	redis_free((struct redis_store *)s);
}

/* Several sentinels, nodes of a cluster or masters are the same ones in any order. */
static void
identify_several(struct identity *id, const struct address *a)
{
	char list[ADDRESS_HOSTS * (sizeof a->hosts->host + sizeof "[]:65535,")] = "";
	size_t used = 0;

	for (size_t i = 0; i < a->n; i++) {
		used += endpoint_print(
		    list + used, sizeof list - used, i > 0 ? "," : "", &a->hosts[i]);
		identity_hosts(id, a->hosts[i].host);
	}
	identity_list(id, "hosts", list, ',');
}

/* All but the password. */
enum rc
redis_identify(struct store *s, struct identity *id, struct fault *f)
{
	static const char *const forms[] = {[FORM_SINGLE] = "single",
	    [FORM_SENTINEL] = "sentinel",
	    [FORM_CLUSTER] = "cluster",
	    [FORM_REDLOCK] = "redlock"};
	const struct redis_store *r = (struct redis_store *)s;
	const struct address *a = &r->address;

	(void)f;
	identity_add(id, "form", forms[a->form]);
	if (a->n > 1) {
		identify_several(id, a);
	} else {
		identity_add(id, "host", a->hosts->host);
		identity_number(id, "port", a->hosts->port);
		identity_hosts(id, a->hosts->host);
	}
	identity_add(id, "path", a->path);
	if (*a->path)
		identity_file(id, a->path);
	identity_add(id, "master", a->master);
	identity_add(id, "user", *a->user ? a->user : "default");
	identity_number(id, "db", a->db);
	identity_number(id, "tls", a->secure);
	identity_add(id, "dialect", r->dialect->name);
	identity_add(id, "name", r->name);
	return RC_OK;
}

/* All but what the kind of store has of its own. */
static enum rc
store_read(struct redis_store *r, const struct site *site, struct fault *f)
{
	bool quorum = r->address.form == FORM_REDLOCK;
	enum rc rc;

	retry_init(&r->patience);
	r->dialect = &dialects[DIALECT_NATIVE];
	address_print(&r->address, r->where, sizeof r->where);
	if (r->address.form == FORM_SENTINEL) {
		r->sentinels = malloc(sizeof *r->sentinels);
		if (!r->sentinels)
			return fault_set(f, RC_SYSTEM, "out of memory");
		/* they have a login of their own */
		*r->sentinels = r->address;
		*r->sentinels->user = *r->sentinels->password = '\0';
		r->sentinels->db = 0;
	}
	rc = setting_read(&r->base, site, f);
	if (rc == RC_OK && r->name && !dialect_is_foreign(r->dialect))
		rc = fault_set(f, RC_USAGE,
		    "name= is for locks of other clients: say which dialect= is theirs");
	if (rc == RC_OK && *r->address.user && !*r->address.password)
		rc = fault_set(f, RC_USAGE,
		    "the %s URL has a user without a password (there or in -O password-file=FILE; one without a user is written %s://:PASSWORD@host)",
		    quorum ? "redlock" : "redis", quorum ? "redlock" : "redis");
	if (rc == RC_OK)
		rc = tls_open_if(r->address.secure, quorum ? "redlocks://" : "rediss://",
		    &r->address.tls, site, f);
	if (r->sentinels)
		r->sentinels->tls = r->address.tls;
	return rc;
}

enum rc
redis_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	union either *either = alloc_store(sizeof *either);
	struct redis_store *r = (struct redis_store *)either;
	bool quorum;
	enum rc rc;

	if (!either)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = address_parse(&r->address, site->url, f);
	quorum = r->address.form == FORM_REDLOCK;
	r->base = (struct store){quorum ? &redlock_backend : &redis_backend, host,
	    r->where, quorum ? REDLOCK_CAPS : REDIS_CAPS};
	if (rc == RC_OK)
		rc = store_read(r, site, f);
	if (rc == RC_OK && quorum) {
		rc = quorum_begin(
		    &either->redlock.quorum, host, &r->address, r->where, f);
	} else if (rc == RC_OK) {
		r->base.caps &= ~r->dialect->lacks;
		route_init(&either->redis.route, host, &r->address, r->sentinels);
		either->redis.queue.route = &either->redis.route;
		server_init(&either->redis.queue.listener, host, &r->address);
	}
	host->secret = rc == RC_OK ? r->address.password : NULL;
	if (rc == RC_OK)
		*ret = &r->base;
	else
		redis_free(r);
	return rc;
}
