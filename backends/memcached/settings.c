/* settings.c - a store from what the user has said. */
#include "settings.h"

#include "backends/common/setting.h"
#include "backends/common/text.h"
#include "memcached.h"

#include <stdlib.h>
#include <string.h>

static enum rc
set_password_file(struct store *s, const char *value, struct fault *f)
{
	struct location *a = &memcached_of(s)->place.address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &memcached_of(s)->pace.patience.first, f);
}

static enum rc
set_prefix(struct store *s, const char *value, struct fault *f)
{
	memcached_of(s)->place.prefix = value;
	return name_is_prefix(value)
	    ? RC_OK
	    : fault_set(f, RC_USAGE,
		  "prefix is up to %d printable characters of ASCII without blanks, %% and #, or empty",
		  PREFIX_MOST);
}

const struct setting_row settings_rows[] = {
    {"password-file", "FILE", "the password, in a file of mode 0600", set_password_file},
    {"prefix", "TEXT",
	"names of items are this and the key (default: dlock:); empty: the key itself",
	set_prefix},
    {"connect-timeout", "DURATION",
	"for a server that does not answer, without --wait (default: 5s)",
	set_connect_timeout},
    {0},
};

void
settings_close(struct store *s)
{
	struct memcached *m = s ? memcached_of(s) : NULL;

	if (!m)
		return;
	cache_close(&m->cache);
	explicit_bzero(&m->place.address, sizeof m->place.address);
	free(m);
}

enum rc
settings_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct place *p = &memcached_of(s)->place;

	(void)f;
	identity_add(id, "host", p->address.at.host);
	identity_number(id, "port", p->address.at.port);
	identity_add(id, "user", p->address.user);
	identity_add(id, "prefix", p->prefix);
	return RC_OK;
}

enum rc
settings_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct memcached *m = calloc(1, sizeof *m);
	enum rc rc;

	if (!m)
		return fault_set(f, RC_SYSTEM, "out of memory");
	m->base = (struct store){&memcached_backend, host, m->place.where,
	    CAP_DURABLE | CAP_REVOKE | CAP_FORCE | CAP_FREEZE};
	m->place.prefix = "dlock:";
	retry_init(&m->pace.patience);
	cache_init(&m->cache, host, &m->place.address, m->place.where);
	rc = location_parse(&m->place.address, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&m->base, site, f);
	if (rc == RC_OK)
		rc = location_check_login(&m->place.address, f);
	if (rc != RC_OK) {
		settings_close(&m->base);
		return rc;
	}
	location_print(&m->place.address, m->place.where, sizeof m->place.where);
	*ret = &m->base;
	return RC_OK;
}
