/* lib.c - finds libmariadb's functions when a mysql lock is opened. */
#include "lib.h"

#include "backends/common/dl.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>

static struct libmariadb table;

/* What this thread's call of libmariadb is for. */
static _Thread_local struct {
	MYSQL *mysql;
	size_t *left; /* so many bytes it may read; NULL: any number */
	struct login_watch *login;
	sigset_t mask;   /* as it was before */
	bool is_blocked; /* SIGPIPE, and not by us: a keeper never takes one */
} call;

static const struct dl_symbol symbols[] = {
#define X(name) {"mysql_" #name, false, offsetof(struct libmariadb, name)},
    MY_FUNCTIONS(X)
#undef X
	{"mysql_errno", false, offsetof(struct libmariadb, error_number)},
    {"ma_pvio_register_callback", false, offsetof(struct libmariadb, watch_bytes)},
};

const struct dl_library libmariadb_library = {"libmariadb", "libmariadb.so.3",
    "libmariadb3", &table, symbols, sizeof symbols / sizeof *symbols};

static void
cut_off(MYSQL *mysql)
{
	shutdown(table.get_socket(mysql), SHUT_RDWR);
}

/* A server begins with a packet whose number is 0: a greeting of protocol 10, or an error. */
static void
see_beginning(struct login_watch *w, const unsigned char *bytes, size_t n)
{
	for (; n > 0 && w->begun < sizeof w->begin; n--)
		w->begin[w->begun++] = *bytes++;
	if (w->begun == sizeof w->begin &&
	    (w->begin[2] != 0 || w->begin[3] != 0 ||
		(w->begin[4] != 10 && w->begin[4] != 255)))
		w->end = CONNECTED_FOREIGN;
}

/* Called with what has been read (mode 0) or written; n is negative for an error. */
static void
see_bytes(int mode, MYSQL *mysql, const unsigned char *bytes, size_t n)
{
	struct login_watch *w = call.login;
	bool fails = n > SIZE_MAX / 2, reads = mode == 0 && !fails;

	if (mysql != call.mysql)
		return;
	if (reads && call.left) {
		*call.left = n < *call.left ? *call.left - n : 0;
		if (*call.left == 0)
			cut_off(mysql);
	}
	if (!w)
		return;
	if (reads)
		see_beginning(w, bytes, n);
	if (fails && mode != 0 && w->end == CONNECTED_NOT)
		w->end = CONNECTED_CUT;
	/* the greeting has been read before, not just now, if there is a version */
	if (!fails && w->wants_tls && table.get_server_info(mysql) &&
	    !(mysql->server_capabilities & CLIENT_SSL))
		w->end = CONNECTED_PLAINLY;
	if (w->end > CONNECTED_CUT)
		cut_off(mysql);
}

void
libmariadb_enter(MYSQL *mysql, size_t *left, struct login_watch *login)
{
	sigset_t pipe;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	if (!call.is_blocked) {
		pthread_sigmask(SIG_BLOCK, &pipe, &call.mask);
		call.is_blocked = sigismember(&call.mask, SIGPIPE);
	}
	call.mysql = mysql;
	call.left = left;
	call.login = login;
}

void
libmariadb_leave(void)
{
	const struct timespec now = {0, 0};
	sigset_t pipe;

	call.mysql = NULL;
	if (call.is_blocked)
		return;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	while (sigtimedwait(&pipe, NULL, &now) == SIGPIPE)
		continue;
	pthread_sigmask(SIG_SETMASK, &call.mask, NULL);
}

short
libmariadb_events(int status)
{
	return (status & MYSQL_WAIT_READ ? POLLIN : 0) |
	    (status & MYSQL_WAIT_WRITE ? POLLOUT : 0);
}

enum rc
libmariadb_load(const struct libmariadb **ret, struct fault *f)
{
	static bool is_watching;
	enum rc rc = dl_load(&libmariadb_library, f);

	if (rc != RC_OK)
		return rc;
	if (!is_watching)
		table.watch_bytes(true, see_bytes);
	is_watching = true;
	*ret = &table;
	return RC_OK;
}
