/* address.c - where a Redis server is, from a URL. */
#include "address.h"

#include "backends/common/append.h"
#include "backends/common/encode.h"
#include "backends/common/endpoint.h"
#include "backends/common/url.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 6379, SENTINEL_PORT = 26379, DB_MOST = 65535 };

/* What a scheme means, and how its URLs are written. */
static const struct shape {
	const char *scheme, *secure; /* the same with TLS */
	enum form form;
	int port;
	size_t least, most;     /* hosts */
	const char *printed[2]; /* for people, around its name, in front of its hosts */
	const char *written;    /* behind its scheme */
} shapes[] = {
    [FORM_SINGLE] = {"redis", "rediss", FORM_SINGLE, DEFAULT_PORT, 1, 1, {"redis ", ""},
	"://[user:password@]host[:port][/db] or redis+unix:///path"},
    [FORM_SENTINEL] = {"redis+sentinel", "rediss+sentinel", FORM_SENTINEL, SENTINEL_PORT,
	1, ADDRESS_HOSTS, {"redis master ", " of the sentinels "},
	"://[user:password@]host[:port],host[:port].../MASTER[/db]"},
    [FORM_CLUSTER] = {"redis+cluster", "rediss+cluster", FORM_CLUSTER, DEFAULT_PORT, 1,
	ADDRESS_HOSTS, {"redis cluster ", ""},
	"://[user:password@]host[:port],host[:port]..."},
    [FORM_REDLOCK] = {"redlock", "redlocks", FORM_REDLOCK, DEFAULT_PORT, REDLOCK_LEAST,
	REDLOCK_MOST, {"redlock ", ""},
	"://[user:password@]host[:port],host,host...[/db]"},
    {"redis+unix", "", FORM_SINGLE, DEFAULT_PORT, 0, 0, {NULL, NULL},
	":///path[?db=number]"},
};

/* Of a URL that is none, the first one. */
static const struct shape *
shape_of(const struct url *u)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (url_part_is(&u->scheme, shapes[i].scheme) ||
		    url_part_is(&u->scheme, shapes[i].secure))
			return &shapes[i];
	return &shapes[0];
}

static enum rc
address_bad_url(struct fault *f, const struct url *u, const char *what)
{
	const struct shape *s = shape_of(u);

	return fault_set(f, RC_USAGE, "the %s URL %s (%s%s)",
	    s->form == FORM_REDLOCK ? "redlock" : "redis", what,
	    url_part_is(&u->scheme, s->secure) ? s->secure : s->scheme, s->written);
}

static enum rc
address_socket(struct address *a, const struct url *u, struct fault *f)
{
	a->hosts[0].host[0] = '\0';
	if (u->hosts.n > 0 || u->path.n == 0)
		return address_bad_url(f, u, "needs a path after redis+unix://");
	if (u->query.at && strncmp(u->query.at, "db=", 3) == 0)
		a->db = endpoint_number(u->query.at + 3, u->query.n - 3, DB_MOST);
	else if (u->query.at)
		a->db = -1;
	if (a->db < 0)
		return address_bad_url(f, u, "has a wrong end (?db=NUMBER is allowed)");
	if (encode_undo(a->path, sizeof a->path, u->path.at, u->path.n) < 0)
		return address_bad_url(
		    f, u, "has a wrong socket path (absolute, at most 107 bytes)");
	return RC_OK;
}

/* "/db" behind what names the server, or nothing. */
static enum rc
address_db(struct address *a, const struct url *u, struct url_part db, struct fault *f)
{
	if (db.n > 1)
		a->db = endpoint_number(db.at + 1, db.n - 1, DB_MOST);
	if (a->db < 0 || u->query.at)
		return address_bad_url(
		    f, u, "has a wrong database (a number after the /)");
	return RC_OK;
}

static enum rc
address_hosts(struct address *a, const struct url *u, struct fault *f)
{
	const struct shape *s = shape_of(u);
	struct url_part list = u->hosts;
	const char *wrong = NULL;
	char many[48];

	for (a->n = 0; list.at && !wrong; a->n++) {
		struct url_part one = url_part_first(&list);

		if (a->n < s->most && one.n > 0)
			wrong = endpoint_parse(&a->hosts[a->n], one.at, one.n, s->port);
		else if (a->n < s->most)
			wrong = u->hosts.n > 0 ? "names an empty host" : NULL;
		else if (snprintf(many, sizeof many, "names more than %zu host%s",
			     s->most, s->most > 1 ? "s" : ""))
			wrong = many;
	}
	if (!wrong && (a->n < s->least || u->hosts.n == 0))
		wrong = s->least > 1 ? "needs at least three hosts" : "names no host";
	return wrong ? address_bad_url(f, u, wrong) : RC_OK;
}

/* It goes into messages and commands. */
static bool
is_master_name(const char *name)
{
	for (const char *c = name; *c; c++)
		if (*c <= ' ' || *c > '~')
			return false;
	return *name;
}

/* "/MASTER[/db]" */
static enum rc
address_master(struct address *a, const struct url *u, struct fault *f)
{
	struct url_part name = {u->path.n ? u->path.at + 1 : NULL,
			    u->path.n > 1 ? u->path.n - 1 : 0},
			db;
	const char *slash = name.n ? memchr(name.at, '/', name.n) : NULL;

	if (slash)
		name.n = slash - name.at;
	db = (struct url_part){
	    slash, slash ? (size_t)(u->path.at + u->path.n - slash) : 0};
	if (name.n == 0)
		return address_bad_url(f, u,
		    "needs the name of a master after its hosts, as the sentinels call it");
	if (encode_undo(a->master, sizeof a->master, name.at, name.n) < 0 ||
	    !is_master_name(a->master))
		return address_bad_url(
		    f, u, "has a master's name that is wrong or too long");
	return address_db(a, u, db, f);
}

enum rc
address_parse(struct address *a, const char *url, struct fault *f)
{
	const char *wrong;
	struct url u;
	enum rc rc;

	*a = (struct address){
	    .n = 1, .hosts = {{.host = "127.0.0.1", .port = DEFAULT_PORT}}};
	if (!url)
		return RC_OK;
	wrong = url_cut(&u, url);
	if (wrong)
		return address_bad_url(f, &u, wrong);
	wrong = url_login(&u, a->user, sizeof a->user, a->password, sizeof a->password);
	if (wrong)
		return address_bad_url(f, &u, wrong);
	a->form = shape_of(&u)->form;
	a->secure = url_part_is(&u.scheme, shape_of(&u)->secure);
	if (url_part_is(&u.scheme, "redis+unix"))
		return address_socket(a, &u, f);
	rc = address_hosts(a, &u, f);
	if (rc != RC_OK)
		return rc;
	switch (a->form) {
	case FORM_SENTINEL:
		return address_master(a, &u, f);
	case FORM_CLUSTER:
		if (u.query.at)
			return address_bad_url(f, &u, "has a query behind its hosts");
		return u.path.n > 1
		    ? fault_set(f, RC_CONFIG,
			  "a Redis cluster has no databases: leave what is behind the hosts out of the URL (redis" TLS_SCHEME
			  "+cluster://[user:password@]host[:port],host[:port]...)")
		    : RC_OK;
	default:
		return address_db(a, &u, u.path, f);
	}
}

/* As many hosts as there is room for. */
void
address_print(const struct address *a, char *out, size_t size)
{
	const char *const *around = shapes[a->form].printed, *end = out + size;
	char *at = append_text(
	    append_text(out, end, around[0]), end, *a->path ? a->path : a->master);
	size_t used = append_text(at, end, around[1]) - out;

	for (size_t i = 0; !*a->path && i < a->n && used < size; i++)
		used += endpoint_print(
		    out + used, size - used, i ? "," : "", &a->hosts[i]);
}
