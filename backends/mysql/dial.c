/*
 * dial.c - connects to a MySQL or MariaDB server in a thread.
 *
 * The option files are read in mysql_real_connect(), after our options, and overrule
 * them.  What is stated must stand; so there is first an attempt that cannot reach
 * anybody, and the options after it.
 */
#include "dial.h"

#include "backends/common/setting.h"
#include "backends/common/task.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	LOOK_MS = 100, /* so often the thread looks whether anybody still waits */
	PIECE_MS = 10, /* and whether more has come of a server's first words */
};
#define ENDED (POLLRDHUP | POLLHUP | POLLERR) /* no more will come */

/*
 * By these a password is proved and not told: whoever is at the other end learns nothing that
 * logs in as us.
 */
#define PLUGINS_PROVE "mysql_native_password,client_ed25519,parsec"
/*
 * This one tells it to a server that does not know its hash yet: in a session with TLS, or to a
 * unix socket, as it stands; and otherwise by whatever key the server has sent.
 */
#define PLUGINS_TELL ",caching_sha2_password"
/* And these are good enough if the server has proved who it is. */
#define PLUGINS_TRUST ",sha256_password,mysql_clear_password,dialog,auth_gssapi_client"

struct dial {
	struct task task;
	const struct libmariadb *my;
	struct login login;
	int64_t ttl;
	instant give_up;
	MYSQL *mysql;
	enum connected end;
	bool heard; /* the server has said something */
	struct login_watch watch;
};

/* ---- the end ---- */

void
dial_close(const struct libmariadb *my, MYSQL *mysql, bool amid)
{
	my_socket fd = mysql ? my->get_socket(mysql) : -1;
	struct pipe_guard guard;

	if (!mysql)
		return;
	if (amid && fd >= 0)
		shutdown(fd, SHUT_RDWR);
	dial_guard_pipe(&guard, my, mysql);
	my->close(mysql);
	dial_release_pipe(&guard);
}

/* ---- SIGPIPE ---- */

void
dial_guard_pipe(struct pipe_guard *guard, const struct libmariadb *my, MYSQL *mysql)
{
	sigset_t pipe, pending;

	guard->on = my->get_ssl_cipher(mysql) != NULL;
	if (!guard->on)
		return;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	guard->was_pending = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &guard->old);
}

void
dial_release_pipe(const struct pipe_guard *guard)
{
	const struct timespec now = {0, 0};
	sigset_t pipe;

	if (!guard->on)
		return;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	while (!guard->was_pending && sigtimedwait(&pipe, NULL, &now) == SIGPIPE)
		continue;
	pthread_sigmask(SIG_SETMASK, &guard->old, NULL);
}

/*
 * libmariadb ignores SIGPIPE for the whole process from its first use on: not in ours,
 * where `dlock ls | head` ends by it.
 */
static MYSQL *
init(const struct libmariadb *my)
{
	struct sigaction kept;
	sigset_t all;
	MYSQL *mysql;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL); /* they are for who waits */
	sigaction(SIGPIPE, NULL, &kept);
	mysql = my->init(NULL);
	sigaction(SIGPIPE, &kept, NULL);
	return mysql;
}

static void
dial_free(struct task *t)
{
	struct dial *d = (struct dial *)t;

	dial_close(d->my, d->mysql, d->end != CONNECTED);
	explicit_bzero(&d->login, sizeof d->login);
	free(d);
}

/* ---- options ---- */

static void
dial_set_flag(const struct dial *d, enum mysql_option option, bool on)
{
	my_bool value = on;

	d->my->options(d->mysql, option, &value);
}

/* Before the option files are read: what they may overrule. */
static void
set_defaults(const struct dial *d)
{
	dial_set_flag(d, MYSQL_OPT_SSL_ENFORCE, false);
	dial_set_flag(d, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, false);
	d->my->options(d->mysql, MYSQL_READ_DEFAULT_GROUP, "dlock");
}

static enum tls_wish
tls_wish(const struct login *a)
{
	if (a->tls.wish != TLS_UNSAID)
		return a->tls.wish;
	return a->tls.cacert || a->tls.cert ? TLS_VERIFY : TLS_UNSAID;
}

/* Does nobody but this machine's server hear us?  What is not stated the option files say. */
static bool
is_unix_socket(const struct dial *d)
{
	const char *host = *d->login.host ? d->login.host : d->mysql->options.host;

	return (!host || strcmp(host, "localhost") == 0) && !d->login.port &&
	    d->mysql->options.protocol != MYSQL_PROTOCOL_TCP;
}

/* Has anybody asked for TLS, who needs it here? */
static bool
dial_wants_tls(const struct dial *d)
{
	return d->mysql->options.use_ssl &&
	    (tls_wish(&d->login) != TLS_UNSAID || !is_unix_socket(d));
}

/* The ways to log in that we go along with. */
static const char *
plugins(const struct dial *d)
{
	if (tls_wish(&d->login) == TLS_VERIFY)
		return PLUGINS_PROVE PLUGINS_TELL PLUGINS_TRUST;
	return dial_wants_tls(d) || is_unix_socket(d) ? PLUGINS_PROVE PLUGINS_TELL
						      : PLUGINS_PROVE;
}

static void
dial_set_tls(const struct dial *d)
{
	const struct login *a = &d->login;
	enum tls_wish wish = tls_wish(a);

	if (a->tls.cacert)
		d->my->options(d->mysql, MYSQL_OPT_SSL_CA, a->tls.cacert);
	if (a->tls.cert) {
		d->my->options(d->mysql, MYSQL_OPT_SSL_CERT, a->tls.cert);
		d->my->options(d->mysql, MYSQL_OPT_SSL_KEY, a->tls.key);
	}
	if (wish == TLS_UNSAID)
		return;
	dial_set_flag(d, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, wish == TLS_VERIFY);
	dial_set_flag(d, MYSQL_OPT_SSL_ENFORCE, wish != TLS_OFF);
}

/* Refuses to hand out files, whatever the server asks for. */
static int
no_file(void **ptr, const char *name, void *user)
{
	(void)name;
	(void)user;
	*ptr = NULL;
	return 1;
}

static int
no_bytes(void *ptr, char *out, unsigned n)
{
	(void)ptr;
	(void)out;
	(void)n;
	return -1;
}

static void
no_end(void *ptr)
{
	(void)ptr;
}

static int
no_words(void *ptr, char *out, unsigned n)
{
	(void)ptr;
	if (n > 0)
		*out = '\0';
	return 2000; /* CR_UNKNOWN_ERROR */
}

/* After them: what must stand. */
static void
set_options(const struct dial *d)
{
	unsigned off = 0, protocol = MYSQL_PROTOCOL_TCP,
		 patience = (unsigned)((d->give_up - instant_now()) / NS_PER_S) + 1;
	unsigned long packet = 1 << 20;

	dial_set_flag(d, MYSQL_OPT_RECONNECT, false);
	d->my->options(d->mysql, MYSQL_OPT_LOCAL_INFILE, &off);
	d->my->set_local_infile_handler(
	    d->mysql, no_file, no_bytes, no_end, no_words, NULL);
	/* a handshake of TLS waits in the library: no longer than we do */
	d->my->options(d->mysql, MYSQL_OPT_CONNECT_TIMEOUT, &patience);
	d->my->options(d->mysql, MYSQL_OPT_READ_TIMEOUT, &off);
	d->my->options(d->mysql, MYSQL_OPT_WRITE_TIMEOUT, &off);
	d->my->options(d->mysql, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet);
	d->my->options(d->mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
	if (d->login.port)
		d->my->options(d->mysql, MYSQL_OPT_PROTOCOL, &protocol);
	dial_set_tls(d);
	d->my->options(d->mysql, MARIADB_OPT_RESTRICTED_AUTH, plugins(d));
	d->my->options(d->mysql, MYSQL_OPT_NONBLOCK, 0);
}

/* No unix socket is called so, and no server is at port 1. */
static void
read_option_files(const struct dial *d)
{
	d->my->real_connect(d->mysql, "localhost", "", "", NULL, 1, "/dev/null/dlock",
	    CLIENT_REMEMBER_OPTIONS);
}

/* ---- whom the login would reach ---- */

/*
 * What is not stated, the option files say, and then variables of the library's own.
 * Which user logs in where none is named depends on the process's user alone.
 */
static void
dial_add_identity(const struct dial *d, struct identity *id)
{
	const struct login *a = &d->login;
	const struct st_mysql_options *o = &d->mysql->options;
	const char *socket = a->socket ? a->socket : o->unix_socket;

	identity_add(id, "host", *a->host ? a->host : o->host);
	if (a->port || o->port)
		identity_number(id, "port", a->port ? (unsigned)a->port : o->port);
	else
		identity_add(id, "port", getenv("MYSQL_TCP_PORT"));
	identity_add(id, "socket", socket ? socket : getenv("MYSQL_UNIX_PORT"));
	/* as set_options() does it */
	identity_number(id, "protocol", a->port ? MYSQL_PROTOCOL_TCP : o->protocol);
	identity_add(id, "user", *a->user ? a->user : o->user);
	identity_add(id, "database", *a->database ? a->database : o->db);
}

/* False: no memory. */
static bool
identify_unconnected(struct dial *d, struct identity *id)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	d->mysql = init(d->my);
	if (d->mysql) {
		set_defaults(d);
		read_option_files(d);
		dial_add_identity(d, id);
		d->my->close(d->mysql);
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return d->mysql != NULL;
}

bool
dial_identify(const struct libmariadb *my, MYSQL *connected, const struct login *login,
    struct identity *id)
{
	struct dial d = {.my = my, .mysql = connected, .login = *login};
	bool is = true;

	if (connected)
		dial_add_identity(&d, id);
	else
		is = identify_unconnected(&d, id);
	explicit_bzero(&d.login, sizeof d.login);
	return is;
}

/* ---- the handshake ---- */

/*
 * A look at the first bytes a server says, which libmariadb goes on to read: a packet
 * with number 0, a greeting of protocol 10 or an error.  What libmariadb has to say of
 * anything else depends on its version.  A greeting that it has read needs no look.
 *
 * False: it is too early, for fewer bytes have come than tell.  They may come piece by
 * piece, and libmariadb may have read some of them already: it reads as soon as it is
 * connected.
 */
static bool
look_at_greeting(struct dial *d)
{
	unsigned char words[sizeof d->watch.begin];
	size_t begun = d->watch.begun;
	ssize_t n = 0;

	if (d->heard || d->my->get_server_info(d->mysql))
		return true;
	memcpy(words, d->watch.begin, begun);
	if (begun < sizeof words)
		n = recv(d->my->get_socket(d->mysql), words + begun, sizeof words - begun,
		    MSG_PEEK | MSG_DONTWAIT);
	if (begun < sizeof words && n <= 0)
		return true;
	if (begun + (size_t)n < sizeof words)
		return false;
	d->heard = true;
	if (words[2] != 0 || words[3] != 0 || (words[4] != 10 && words[4] != 255))
		d->end = CONNECTED_FOREIGN;
	return true;
}

static short
dial_events_of(int status)
{
	return (status & MYSQL_WAIT_READ ? POLLIN : 0) |
	    (status & MYSQL_WAIT_WRITE ? POLLOUT : 0) |
	    (status & MYSQL_WAIT_EXCEPT ? POLLPRI : 0);
}

/* Errors count as all that is waited for: the next step finds out. */
static int
status_of(int status, short revents)
{
	if (revents & ~(POLLIN | POLLOUT | POLLPRI))
		return status & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE);
	return (revents & POLLIN ? MYSQL_WAIT_READ : 0) |
	    (revents & POLLOUT ? MYSQL_WAIT_WRITE : 0) |
	    (revents & POLLPRI ? MYSQL_WAIT_EXCEPT : 0);
}

static bool
is_wanted(const struct dial *d)
{
	return !atomic_load(&d->task.dropped) && instant_now() < d->give_up;
}

/* Waits for what libmariadb waits for; 0: nobody wants it any more. */
static int
await(struct dial *d, int status)
{
	struct pollfd p = {.fd = d->my->get_socket(d->mysql),
	    .events = (short)(dial_events_of(status) | POLLRDHUP)};

	while (is_wanted(d)) {
		int64_t left = ns_to_ms(d->give_up - instant_now());

		if (poll(&p, 1, left < LOOK_MS ? (int)left : LOOK_MS) <= 0)
			continue;
		if (!look_at_greeting(d) && !(p.revents & ENDED)) {
			poll(NULL, 0, PIECE_MS);
			continue;
		}
		return d->end == CONNECTED_FOREIGN ? 0 : status_of(status, p.revents);
	}
	return 0;
}

static const char *
or_null(const char *s)
{
	return *s ? s : NULL;
}

/* The login; leaves in d->end how it ended. */
static void
log_in(struct dial *d)
{
	const struct login *a = &d->login;
	MYSQL *done = NULL;
	int status;

	d->watch.wants_tls = dial_wants_tls(d);
	libmariadb_bound(d->mysql, NULL, &d->watch);
	status = d->my->real_connect_start(&done, d->mysql, or_null(a->host),
	    or_null(a->user), a->has_password ? a->password : NULL, or_null(a->database),
	    a->port, a->socket, CLIENT_MULTI_STATEMENTS | CLIENT_REMEMBER_OPTIONS);

	d->end = CONNECTED_LATE;
	while (status) {
		int ready = await(d, status);

		if (!ready)
			return;
		status = d->my->real_connect_cont(&done, d->mysql, ready);
	}
	d->end = done ? CONNECTED : d->watch.is_cut ? CONNECTED_CUT : CONNECTED_NOT;
	if (d->watch.is_plain ||
	    (done && dial_wants_tls(d) && !d->my->get_ssl_cipher(d->mysql)))
		d->end = CONNECTED_PLAINLY;
}

/*
 * A peer that is gone is noticed within the ttl.  And OpenSSL waits where it reads from a
 * socket that blocks, as libmariadb leaves it.
 */
static void
dial_set_socket(const struct dial *d)
{
	int fd = d->my->get_socket(d->mysql), on = 1, probes = 3;
	int seconds = (int)instant_first(d->ttl / NS_PER_S, 7200);
	int idle = seconds / 3 > 0 ? seconds / 3 : 1,
	    interval = seconds / 10 > 0 ? seconds / 10 : 1;
	unsigned ms = (unsigned)instant_first(ns_to_ms(d->ttl), 7200000);

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void
dial_work(struct task *t)
{
	struct dial *d = (struct dial *)t;

	d->mysql = init(d->my);
	if (!d->mysql)
		return;
	set_defaults(d);
	read_option_files(d);
	set_options(d);
	log_in(d);
	if (d->end == CONNECTED)
		dial_set_socket(d);
}

struct dial *
dial_start(const struct libmariadb *my, const struct login *address, int64_t ttl,
    int64_t patience)
{
	struct dial *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	*d = (struct dial){
	    .task = {.work = dial_work, .free = dial_free},
	    .my = my,
	    .login = *address,
	    .ttl = ttl,
	    .give_up = instant_after(instant_now(), patience),
	    .end = CONNECTED_NOT,
	};
	return task_start(&d->task, 0) ? d : NULL;
}

int
dial_fd(const struct dial *d)
{
	return d->task.done;
}

enum connected
dial_take(struct dial *d, MYSQL **ret)
{
	*ret = d->mysql;
	d->mysql = NULL;
	return d->end;
}

void
dial_drop(struct dial *d)
{
	task_drop(d ? &d->task : NULL);
}
