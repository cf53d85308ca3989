/*
 * site.c - an etcd store from what the user has named: URL and -O.
 *
 * Nothing here touches the network.  The password is wiped when the store is closed.
 */
#include "etcd.h"

#include "backends/common/encode.h"
#include "backends/common/endpoint.h"
#include "backends/common/identity.h"
#include "backends/common/setting.h"
#include "backends/common/url.h"
#include "backends/common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 2379 };

/* ---- URL ---- */

/* "/prefix": what all names begin with; without a slash at its end. */
static const char *
read_root(char root[ROOT_MOST + 1], struct url_part path)
{
	int n;

	while (path.n > 1 && path.at[path.n - 1] == '/')
		path.n--;
	if (path.n <= 1)
		return NULL;
	n = encode_undo(root, ROOT_MOST + 1, path.at + 1, path.n - 1);
	return n > 0 ? NULL : "has a prefix that is too long, or a wrong %XX in it";
}

static enum rc
read_url(struct address *a, char root[ROOT_MOST + 1], const char *url, struct fault *f)
{
	const char *wrong;
	struct url_part list;
	struct url u;

	*a = (struct address){
	    .n = 1, .at = {{.host = "127.0.0.1", .port = DEFAULT_PORT}}};
	snprintf(root, ROOT_MOST + 1, "dlock");
	if (!url)
		return RC_OK;
	wrong = url_cut(&u, url);
	a->secure = url_part_is(&u.scheme, "etcds");
	if (!wrong)
		wrong = url_login(
		    &u, a->user, sizeof a->user, a->password, sizeof a->password);
	list = u.hosts;
	for (a->n = 0; list.at && !wrong; a->n++) {
		struct url_part one = url_part_first(&list);

		wrong = a->n < MEMBERS_MOST
		    ? endpoint_parse(&a->at[a->n], one.at, one.n, DEFAULT_PORT)
		    : "names more than 16 hosts";
	}
	if (!wrong && u.query.at)
		wrong = "has a query behind its hosts";
	if (!wrong)
		wrong = read_root(root, u.path);
	return wrong
	    ? fault_set(f, RC_USAGE, "the etcd URL %s (%s)", wrong, etcd_backend.url_help)
	    : RC_OK;
}

/* ---- settings ---- */

static enum rc
take_password(struct store *s, const char *value, struct fault *f)
{
	struct address *a = &etcd_of(s)->address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
take_name(struct store *s, const char *value, struct fault *f)
{
	size_t n = strlen(value);

	etcd_of(s)->name = value;
	s->caps |= ONE_LOCK;
	return n > 0 && n <= NAME_MOST && value[n - 1] != '/'
	    ? RC_OK
	    : fault_set(f, RC_USAGE,
		  "name is that of a lock of etcdctl, 1 to %d bytes without a / at its end",
		  NAME_MOST);
}

static enum rc
take_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &etcd_of(s)->retry.first, f);
}

static const struct setting_row etcd_settings[] = {
    {"name", "NAME", "joins `etcdctl lock NAME`, whatever the key is", take_name},
    {"password-file", "FILE", "the password, in a file of mode 0600", take_password},
    {"cacert", "FILE", "with etcds://: the CAs to trust (default: the system's)",
	tls_set},
    {"cert", "FILE", "with etcds://: a client certificate, and those of its CAs",
	tls_set},
    {"key", "FILE", "its key, in a file of mode 0600", tls_set},
    {"tls-name", "NAME",
	"with etcds://: what the server's certificate is for, if not the host's name",
	tls_set},
    {"connect-timeout", "DURATION",
	"for a server that does not answer, without --wait (default: 5s)", take_timeout},
    {0},
};

/* ---- the store ---- */

static void
etcd_close(struct store *s)
{
	struct etcd *e = s ? etcd_of(s) : NULL;

	if (!e)
		return;
	cluster_close(&e->cluster);
	tls_close(e->address.tls);
	explicit_bzero(&e->address, sizeof e->address);
	free(e);
}

/* "HOST:PORT,HOST:PORT" */
static void
print_members(const struct address *a, char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < a->n && used < size; i++)
		used += endpoint_print(out + used, size - used, i ? "," : "", &a->at[i]);
}

static enum rc
etcd_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct etcd *e = etcd_of(s);
	char members[MEMBERS_MOST * (sizeof e->address.at->host + 10)];

	(void)f;
	print_members(&e->address, members, sizeof members);
	identity_list(id, "members", members, ',');
	identity_hosts(id, members);
	identity_add(id, "root", e->root);
	identity_add(id, "name", e->name);
	return RC_OK;
}

static enum rc
etcd_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct etcd *e = calloc(1, sizeof *e);
	const struct address *a;
	enum rc rc;

	if (!e)
		return fault_set(f, RC_SYSTEM, "out of memory");
	a = &e->address;
	e->base = (struct store){&etcd_backend, host, e->server_name,
	    CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
		CAP_FORCE | CAP_FREEZE};
	retry_init(&e->retry);
	e->cluster.address = a;
	stream_init(&e->cluster.calls.stream, host, e->server_name);
	stream_init(&e->cluster.watch.stream, host, e->server_name);
	rc = read_url(&e->address, e->root, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&e->base, site, f);
	if (rc == RC_OK && !*a->user != !*a->password)
		rc = fault_set(f, RC_USAGE,
		    "etcd wants a user and a password, or neither (etcd://user@host, and -O password-file=FILE)");
	if (rc == RC_OK && (!utf8_is_valid(a->user) || !utf8_is_valid(a->password)))
		rc = fault_set(f, RC_USAGE, "etcd wants user and password in UTF-8");
	if (rc == RC_OK)
		rc = tls_open_if(a->secure, "etcds://", &e->address.tls, site, f);
	if (rc != RC_OK) {
		etcd_close(&e->base);
		return rc;
	}
	print_members(a, e->server_name + snprintf(e->server_name, 8, "etcd "),
	    sizeof e->server_name - 5);
	host->secret = a->password;
	*ret = &e->base;
	return RC_OK;
}

const struct backend etcd_backend = {
    .name = "etcd",
    .schemes = (const char *const[]){"etcd", "etcds", NULL},
    .user_needs_password = true,
    .settings = etcd_settings,
    .url_help = "etcd" TLS_SCHEME "://[user:password@]host[:port][,host...][/prefix]",
    .open = etcd_open,
    .close = etcd_close,
    .identify = etcd_identify,
    .lock = &etcd_lock,
    .admin = &etcd_admin,
};
