/*
 * connect.c - connects to a MySQL or MariaDB server in a thread.
 *
 * The option files are read in mysql_real_connect(), after our options, and overrule
 * them.  What is stated must stand; so there is first an attempt that cannot reach
 * anybody, and the options after it.
 */
#include "connect.h"
#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/sql/stranger.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#ifdef __GLIBC__
#include <nss.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/*
 * By these a password is proved and not told: the other end learns nothing that logs in as us.
 */
#define PLUGINS_PROVE "mysql_native_password,client_ed25519,parsec"
/*
 * This one tells the password to a server that does not know its hash yet: as it stands with TLS
 * or to a unix socket, and otherwise by whatever key the server has sent.
 */
#define PLUGINS_TELL ",caching_sha2_password"
/* These are good enough for a server that has proved its name. */
#define PLUGINS_TRUST ",sha256_password,mysql_clear_password,dialog,auth_gssapi_client"

/*
 * So long a server may take for its greeting before it is asked what it is: it may look for our
 * name first, and it counts what does not log in (max_connect_errors).
 */
#define GREETING (2 * NS_PER_S)

static const char *
or_null(const char *s)
{
	return *s ? s : NULL;
}

/* ---- options ---- */

static void
set_boolean(const struct connecting *c, enum mysql_option option, bool on)
{
	my_bool value = on;

	c->my->options(c->mysql, option, &value);
}

/* The process may have left the directory that a relative name is of. */
static void
set_file(const struct connecting *c, enum mysql_option option, const char *name)
{
	char *path = setting_absolute(name);

	c->my->options(c->mysql, option, path ? path : name);
	free(path);
}

/* The same of those that the option files name. */
static void
find_files(const struct connecting *c)
{
	static const enum mysql_option options[] = {MYSQL_OPT_SSL_KEY, MYSQL_OPT_SSL_CERT,
	    MYSQL_OPT_SSL_CA, MYSQL_OPT_SSL_CAPATH, MYSQL_OPT_SSL_CRL,
	    MYSQL_OPT_SSL_CRLPATH, MYSQL_PLUGIN_DIR, MYSQL_SERVER_PUBLIC_KEY,
	    MARIADB_OPT_UNIXSOCKET};

	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		char *name = NULL, *path = NULL;

		if (c->my->get_optionv(c->mysql, options[i], (void *)&name) == 0)
			path = setting_absolute(name);
		if (path)
			c->my->options(c->mysql, options[i], path);
		free(path);
	}
}

/*
 * libmariadb asks for the port of the service mysql when it is first used, stated or not.  Debian
 * has such names also looked for in a database whose library (libnss_db) is hardly ever there, and
 * is searched for in ninety places.  Where nobody asks for that port, /etc/services alone will do.
 */
static void
look_for_no_port(const struct login *a)
{
#ifdef __GLIBC__
	if (a->port || a->socket)
		__nss_configure_lookup("services", "files");
#else
	(void)a;
#endif
}

/*
 * Reads the option files, behind what they may overrule.  No unix socket has so long a path, which
 * libmariadb finds before it connects, and no server is at port 1.  False: no memory.
 */
static bool
read_option_files(struct connecting *c)
{
	char nowhere[256] = "";
	struct sigaction kept;

	memset(nowhere, '/', sizeof nowhere - 1);
	/* libmariadb ignores SIGPIPE for the whole process, and `dlock ls | head` ends by it */
	sigaction(SIGPIPE, NULL, &kept);
	look_for_no_port(&c->login);
	c->mysql = c->my->init(NULL);
	sigaction(SIGPIPE, &kept, NULL);
	if (!c->mysql)
		return false;
	set_boolean(c, MYSQL_OPT_SSL_ENFORCE, false);
	set_boolean(c, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, false);
	c->my->options(c->mysql, MYSQL_READ_DEFAULT_GROUP, "dlock");
	c->my->real_connect(
	    c->mysql, "localhost", "", "", NULL, 1, nowhere, CLIENT_REMEMBER_OPTIONS);
	find_files(c);
	return true;
}

/* Does only this machine's server hear us?  Option files say what is not stated. */
static bool
is_unix_socket(const struct connecting *c)
{
	const char *host = *c->login.host ? c->login.host : c->mysql->options.host;

	return (!host || strcmp(host, "localhost") == 0) && !c->login.port &&
	    c->mysql->options.protocol != MYSQL_PROTOCOL_TCP;
}

/* Has somebody asked for TLS, and does it serve a purpose here? */
static bool
wants_tls(const struct connecting *c)
{
	return c->mysql->options.use_ssl &&
	    (c->login.tls.wish != TLS_UNSAID || !is_unix_socket(c));
}

/* The ways to log in that a server may ask for. */
static const char *
plugins(const struct connecting *c)
{
	if (c->login.tls.wish == TLS_VERIFY)
		return PLUGINS_PROVE PLUGINS_TELL PLUGINS_TRUST;
	return wants_tls(c) || is_unix_socket(c) ? PLUGINS_PROVE PLUGINS_TELL
						 : PLUGINS_PROVE;
}

/* After the option files: what must stand. */
static void
set_options(const struct connecting *c)
{
	const struct libmariadb *my = c->my;
	const struct login *a = &c->login;
	unsigned off = 0, protocol = MYSQL_PROTOCOL_TCP,
		 seconds = (unsigned)((c->give_up - instant_now()) / NS_PER_S) + 1;
	unsigned long packet = 1 << 20;

	set_boolean(c, MYSQL_OPT_RECONNECT, false);
	my->options(c->mysql, MYSQL_OPT_LOCAL_INFILE, &off); /* no file is handed out */
	/* the library itself waits in a handshake of TLS: no longer than we do */
	my->options(c->mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
	my->options(c->mysql, MYSQL_OPT_READ_TIMEOUT, &off);
	my->options(c->mysql, MYSQL_OPT_WRITE_TIMEOUT, &off);
	my->options(c->mysql, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet);
	my->options(c->mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
	if (a->port)
		my->options(c->mysql, MYSQL_OPT_PROTOCOL, &protocol);
	if (a->tls.cacert)
		set_file(c, MYSQL_OPT_SSL_CA, a->tls.cacert);
	if (a->tls.cert) {
		set_file(c, MYSQL_OPT_SSL_CERT, a->tls.cert);
		set_file(c, MYSQL_OPT_SSL_KEY, a->tls.key);
	}
	if (a->tls.wish != TLS_UNSAID) {
		set_boolean(
		    c, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, a->tls.wish == TLS_VERIFY);
		set_boolean(c, MYSQL_OPT_SSL_ENFORCE, a->tls.wish != TLS_OFF);
	}
	my->options(c->mysql, MARIADB_OPT_RESTRICTED_AUTH, plugins(c));
	my->options(c->mysql, MYSQL_OPT_NONBLOCK, 0);
}

/* ---- the server that a login would reach ---- */

/* What host and socket lead to here; without either, the library's own sockets. */
static void
identify_way(struct identity *id, const char *host, const char *socket)
{
	static const char *const usual[] = {"/run/mysqld/mysqld.sock", "/tmp/mysql.sock"};

	if (host && *host && strcmp(host, "localhost") != 0)
		identity_hosts(id, host);
	else if (socket)
		identity_file(id, socket);
	else
		for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
			identity_file(id, usual[i]);
}

/*
 * Option files say what is not stated, and then the library's own variables do.  A user that
 * nobody names depends on the process's user alone.
 */
bool
connect_identify(const struct libmariadb *my, MYSQL *connected, const struct login *a,
    struct identity *id)
{
	struct connecting c = {.my = my, .mysql = connected};
	const struct st_mysql_options *o;
	const char *socket;

	if (!connected && !read_option_files(&c))
		return false;
	o = &c.mysql->options;
	socket = a->socket ? a->socket : o->unix_socket;
	identity_add(id, "host", *a->host ? a->host : o->host);
	if (a->port || o->port)
		identity_number(id, "port", a->port ? (unsigned)a->port : o->port);
	else
		identity_add(id, "port", getenv("MYSQL_TCP_PORT"));
	identity_add(id, "socket", socket ? socket : getenv("MYSQL_UNIX_PORT"));
	/* as set_options() does it */
	identity_number(id, "protocol", a->port ? MYSQL_PROTOCOL_TCP : o->protocol);
	identify_way(id, *a->host ? a->host : o->host,
	    socket ? socket : getenv("MYSQL_UNIX_PORT"));
	identity_add(id, "user", *a->user ? a->user : o->user);
	identity_add(id, "database", *a->database ? a->database : o->db);
	if (!connected)
		my->close(c.mysql);
	return true;
}

/* ---- the login ---- */

/*
 * Waits for the server.  One that has sent no greeting for long may be none of MySQL; it is asked
 * once.  False: it has taken too long, or is a stranger.
 */
static bool
wait_for_server(struct connecting *c, int status, const struct login_watch *watch)
{
	const int fd = c->my->get_socket(c->mysql);
	const short events = libmariadb_events(status);

	if (!c->asks || watch->begun > 0 || !(status & MYSQL_WAIT_READ))
		return sql_login_wait(&c->task, fd, events, -1, c->give_up);
	c->asks = false;
	if (sql_login_wait(&c->task, fd, events, -1,
		instant_first(c->give_up, instant_now() + GREETING)))
		return true;
	c->stranger = stranger_ask(&c->task, fd, "MySQL", c->give_up);
	return !c->stranger && sql_login_wait(&c->task, fd, events, -1, c->give_up);
}

static enum connected
log_in(struct connecting *c)
{
	const struct login *a = &c->login;
	struct login_watch watch = {.wants_tls = wants_tls(c)};
	MYSQL *done = NULL;
	int status;

	libmariadb_enter(c->mysql, NULL, &watch);
	status = c->my->real_connect_start(&done, c->mysql, or_null(a->host),
	    or_null(a->user), a->has_password ? a->password : NULL, or_null(a->database),
	    a->port, a->socket, CLIENT_MULTI_STATEMENTS | CLIENT_REMEMBER_OPTIONS);
	while (status && wait_for_server(c, status, &watch))
		status = c->my->real_connect_cont(
		    &done, c->mysql, status & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE));
	libmariadb_leave();

	if (done && watch.wants_tls && !c->my->get_ssl_cipher(c->mysql))
		return CONNECTED_PLAINLY;
	if (watch.end > CONNECTED_CUT)
		return watch.end;
	if (status)
		return c->stranger ? CONNECTED_FOREIGN : CONNECTED_LATE;
	return done ? CONNECTED : watch.end;
}

/*
 * The system notices within the ttl that a peer has gone.  OpenSSL would wait in a read
 * from a socket that blocks, as libmariadb leaves it.
 */
static void
set_socket(const struct connecting *c)
{
	int fd = c->my->get_socket(c->mysql), on = 1, probes = 3;
	int seconds = (int)instant_first(c->ttl / NS_PER_S, 7200);
	int idle = seconds / 3 > 0 ? seconds / 3 : 1,
	    interval = seconds / 10 > 0 ? seconds / 10 : 1;
	unsigned ms = (unsigned)instant_first(ns_to_ms(c->ttl), 7200000);

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void
connect_work(struct task *t)
{
	struct connecting *c = (struct connecting *)t;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL); /* they are for the waiter */
	if (!read_option_files(c))
		return;
	set_options(c);
	c->end = log_in(c);
	if (c->end == CONNECTED)
		set_socket(c);
}

static void
connect_free(struct task *t)
{
	struct connecting *c = (struct connecting *)t;

	connect_close(c->my, c->mysql, c->end != CONNECTED);
	explicit_bzero(&c->login, sizeof c->login);
	free(c);
}

struct connecting *
connect_start(const struct libmariadb *my, const struct login *login, bool asks,
    int64_t ttl, int64_t most)
{
	struct connecting *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	*c = (struct connecting){
	    .task = {.work = connect_work, .free = connect_free},
	    .my = my,
	    .asks = asks,
	    .login = *login,
	    .ttl = ttl,
	    .give_up = instant_after(instant_now(), most),
	};
	return task_start(&c->task, 0) ? c : NULL;
}

void
connect_close(const struct libmariadb *my, MYSQL *mysql, bool amid)
{
	my_socket fd = mysql ? my->get_socket(mysql) : -1;

	if (!mysql)
		return;
	if (amid && fd >= 0)
		shutdown(fd, SHUT_RDWR);
	libmariadb_enter(mysql, NULL, NULL);
	my->close(mysql);
	libmariadb_leave();
}
