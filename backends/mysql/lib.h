/*
 * lib.h - libmariadb, when it is needed and not before.
 *
 * Linking it would bring OpenSSL into every start of dlock, on whatever backend.  So it
 * is loaded (dl.h) when a mysql lock is opened, and called through a table:
 * my->close(m) is mysql_close(m).
 *
 * Only libmariadb will do, for MySQL servers too: libmysqlclient has another MYSQL and
 * another non-blocking API.  A function that may wait has a _start and a _cont, which
 * return what to wait for (MYSQL_WAIT_READ and the like; 0: done).
 */
#ifndef DLOCK_MYSQL_LIB_H
#define DLOCK_MYSQL_LIB_H

#include "backends/backend.h"

#include <mysql.h>

#define MY_FUNCTIONS(X) \
	X(close) \
	X(error) \
	X(fetch_lengths) \
	X(fetch_row) \
	X(field_count) \
	X(free_result) \
	X(get_optionv) \
	X(get_server_info) \
	X(get_socket) \
	X(get_ssl_cipher) \
	X(init) \
	X(next_result_cont) \
	X(next_result_start) \
	X(num_fields) \
	X(num_rows) \
	X(options) \
	X(real_connect) \
	X(real_connect_cont) \
	X(real_connect_start) \
	X(real_query_cont) \
	X(real_query_start) \
	X(store_result_cont) \
	X(store_result_start) \
	X(thread_id)

struct libmariadb {
#define X(name) __typeof__(&mysql_##name) name;
	MY_FUNCTIONS(X)
#undef X
	__typeof__(&mysql_errno) error_number; /* mysql_errno: errno is a macro */
	/* ma_pvio_register_callback(), which mysql.h does not have */
	int (*watch_bytes)(
	    my_bool on, void (*tell)(int mode, MYSQL *, const unsigned char *, size_t));
};

/* How an attempt to log in has ended. */
enum connected {
	CONNECTED_NOT, /* libmariadb knows why: my->error() */
	CONNECTED_CUT, /* something could not be sent: as above, but wrong of plugins */
	CONNECTED,
	CONNECTED_LATE,    /* it has taken too long */
	CONNECTED_FOREIGN, /* the server speaks another language */
	CONNECTED_PLAINLY, /* the server lacks the TLS that was asked for */
};

/* What libmariadb does not tell of a login. */
struct login_watch {
	bool wants_tls;     /* to be set before */
	enum connected end; /* NOT, CUT, FOREIGN or PLAINLY */
	/* the first bytes that the server has sent, and how many of them there are */
	unsigned char begin[5];
	size_t begun;
};

/*
 * Every call that reads or writes on a connection stands between these two.  The bytes that
 * it reads are taken from *left (NULL: no matter), and with none left the connection is cut
 * off: libmariadb does not return as long as a server goes on talking, and keeps all of it.
 * OpenSSL writes to sockets without MSG_NOSIGNAL: here no peer that has gone raises SIGPIPE.
 *
 * A login is watched.  It is cut off where the other end speaks another language, and where TLS is
 * wanted and a server that has none goes on after its greeting: libmariadb would tell it the
 * password.
 */
void libmariadb_enter(MYSQL *, size_t *left, struct login_watch *);
void libmariadb_leave(void);

/* What libmariadb waits for (MYSQL_WAIT_READ and so on), as poll(2) has it. */
short libmariadb_events(int status);

/*
 * Gives the table.  RC_CONFIG: libmariadb.so.3 is not installed, or lacks a function;
 * RC_SYSTEM: it could not be loaded.
 */
enum rc libmariadb_load(const struct libmariadb **ret, struct fault *);

#endif
