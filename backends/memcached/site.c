/*
 * site.c - a memcached store from what the user has named: URL and -O.
 *
 * Nothing here touches the network.  The password is wiped when the store is closed.
 */
#include "memcached.h"

#include "backends/common/alloc.h"
#include "backends/common/url.h"
#include "backends/common/endpoint.h"
#include "backends/common/endpoint.h"
#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/identity.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 11211 };

/* ---- URL ---- */

static enum rc
wrong_url(struct fault *f, const char *what)
{
	return fault_set(
	    f, RC_USAGE, "the memcached URL %s (%s)", what, memcached_backend.url_help);
}

enum rc
memcached_read_url(struct address *a, const char *url, struct fault *f)
{
	const char *wrong;
	struct url_part list, first;
	struct url u;

	*a = (struct address){.at = {.host = "127.0.0.1", .port = DEFAULT_PORT}};
	if (!url)
		return RC_OK;
	wrong = url_cut(&u, url);
	if (wrong)
		return wrong_url(f, wrong);
	wrong = url_login(&u, a->user, sizeof a->user, a->password, sizeof a->password);
	if (wrong)
		return wrong_url(f, wrong);
	list = u.hosts;
	first = url_part_first(&list);
	if (list.at)
		return fault_set(f, RC_CONFIG,
		    "the memcached URL names several servers: when one dies, its keys move to another, which gives locks away that are held; name one (memcached://host[:port])");
	wrong = endpoint_parse(&a->at, first.at, first.n, DEFAULT_PORT);
	if (!wrong && (u.path.n > 1 || u.query.at))
		wrong = "has something behind its host";
	return wrong ? wrong_url(f, wrong) : RC_OK;
}

/* A login is one line with a blank between user and password. */
static bool
is_login_word(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text <= ' ')
			return false;
	return true;
}

enum rc
memcached_check_login(const struct address *a, struct fault *f)
{
	if (!*a->user != !*a->password)
		return fault_set(f, RC_USAGE,
		    "memcached wants a user and a password, or neither (memcached://user@host, and -O password-file=FILE)");
	if (!is_login_word(a->user) || !is_login_word(a->password))
		return fault_set(f, RC_USAGE,
		    "a user and a password of memcached have neither blanks nor control characters");
	return RC_OK;
}

/* ---- settings ---- */

static enum rc
set_password(struct store *s, const char *value, struct fault *f)
{
	struct address *a = &memcached_of(s)->address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &memcached_of(s)->retry.first, f);
}

static enum rc
set_prefix(struct store *s, const char *value, struct fault *f)
{
	memcached_of(s)->prefix = value;
	return item_is_prefix(value)
	    ? RC_OK
	    : fault_set(f, RC_USAGE,
		  "prefix is up to %d printable characters of ASCII without blanks, %% and #, or empty",
		  PREFIX_MOST);
}

static enum rc
set_item(struct store *s, const char *value, struct fault *f)
{
	struct item_name name;

	memcached_of(s)->item = value;
	s->caps |= ONE_LOCK;
	if (*value && strlen(value) <= KEY_BYTES)
		item_name(&name, "", value);
	else
		return fault_set(f, RC_USAGE, "name has 1 to %d bytes", KEY_BYTES);
	return strcmp(name.text, value) == 0
	    ? RC_OK
	    : fault_set(f, RC_USAGE, "no item of memcached can be called '%.60s'", value);
}

static const struct setting_row memcached_settings[] = {
    {"password-file", "FILE", "the password, in a file of mode 0600", set_password},
    {"prefix", "TEXT",
	"names of items are this and the key (default: dlock:); empty: the key itself",
	set_prefix},
    {"name", "NAME", "the item that another program adds, not that of the key", set_item},
    {"connect-timeout", "DURATION",
	"for a server that does not answer, without --wait (default: 5s)", set_timeout},
    {0},
};

/* ---- the store ---- */

static void
memcached_close(struct store *s)
{
	struct memcached *m = s ? memcached_of(s) : NULL;

	if (!m)
		return;
	client_close(&m->client);
	explicit_bzero(&m->address, sizeof m->address);
	alloc_free_store(m);
}

static enum rc
memcached_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct memcached *m = memcached_of(s);

	(void)f;
	identity_add(id, "host", m->address.at.host);
	identity_hosts(id, m->address.at.host);
	identity_number(id, "port", m->address.at.port);
	identity_add(id, "user", m->address.user);
	identity_add(id, "prefix", m->item ? NULL : m->prefix);
	identity_add(id, "name", m->item);
	return RC_OK;
}

static enum rc
memcached_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct memcached *m = alloc_store(sizeof *m);
	enum rc rc;

	if (!m)
		return fault_set(f, RC_SYSTEM, "out of memory");
	m->base = (struct store){&memcached_backend, host, m->server_name,
	    CAP_DURABLE | CAP_REVOKE | CAP_FORCE | CAP_FREEZE};
	m->prefix = "dlock:";
	retry_init(&m->retry);
	client_init(&m->client, host, &m->address, m->server_name);
	rc = memcached_read_url(&m->address, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&m->base, site, f);
	if (rc == RC_OK)
		rc = memcached_check_login(&m->address, f);
	if (rc != RC_OK) {
		memcached_close(&m->base);
		return rc;
	}
	endpoint_print(
	    m->server_name, sizeof m->server_name, "memcached ", &m->address.at);
	host->secret = m->address.password;
	*ret = &m->base;
	return RC_OK;
}

const struct backend memcached_backend = {
    .name = "memcached",
    .schemes = (const char *const[]){"memcached", NULL},
    .user_needs_password = true,
    .settings = memcached_settings,
    .url_help = "memcached://[user:password@]host[:port]",
    .caveat = "best effort: memcached may evict it, and forgets it when it is restarted",
    .open = memcached_open,
    .close = memcached_close,
    .identify = memcached_identify,
    .lock = &memcached_lock,
    .admin = &memcached_admin,
};
