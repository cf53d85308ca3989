/* lib.c - finds libmariadb's functions when a mysql lock is opened. */
#include "lib.h"

#include "backends/common/dl.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

static struct libmariadb table;

/* On which connection this thread's call of libmariadb may go on reading, and how long. */
static _Thread_local struct {
	MYSQL *mysql;
	size_t *left; /* so many bytes; NULL: any number */
	struct login_watch *login;
} bounds;

static const struct dl_symbol symbols[] = {
#define X(name) {"mysql_" #name, (void **)&table.name, false},
    MY_FUNCTIONS(X)
#undef X
	{"mysql_errno", (void **)&table.error_number, false},
    {"ma_pvio_register_callback", (void **)&table.watch_bytes, false},
};

static const struct dl_library libmariadb = {"libmariadb", "libmariadb.so.3",
    "libmariadb3", symbols, sizeof symbols / sizeof *symbols};

static void
cut_off(MYSQL *mysql)
{
	shutdown(table.get_socket(mysql), SHUT_RDWR);
}

static void
see_beginning(struct login_watch *w, const unsigned char *bytes, size_t n)
{
	size_t room = sizeof w->begin - w->begun, more = n < room ? n : room;

	memcpy(w->begin + w->begun, bytes, more);
	w->begun += more;
}

/* Called with what has been read (mode 0) or written; n is negative for an error. */
static void
see_bytes(int mode, MYSQL *mysql, const unsigned char *bytes, size_t n)
{
	if (mysql != bounds.mysql)
		return;
	if (n > SIZE_MAX / 2) {
		if (bounds.login)
			bounds.login->is_cut = bounds.login->is_cut || mode != 0;
		return;
	}
	if (mode == 0 && bounds.login)
		see_beginning(bounds.login, bytes, n);
	if (mode == 0 && bounds.left) {
		*bounds.left = n < *bounds.left ? *bounds.left - n : 0;
		if (*bounds.left == 0)
			cut_off(mysql);
	}
	/* the greeting has been read before, not just now, if there is a version */
	if (bounds.login && bounds.login->wants_tls && table.get_server_info(mysql) &&
	    !(mysql->server_capabilities & CLIENT_SSL)) {
		bounds.login->is_plain = true;
		cut_off(mysql);
	}
}

void
libmariadb_bound(MYSQL *mysql, size_t *left, struct login_watch *login)
{
	bounds.mysql = mysql;
	bounds.left = left;
	bounds.login = login;
}

enum rc
libmariadb_load(const struct libmariadb **ret, struct fault *f)
{
	static bool is_watching;
	enum rc rc = dl_load(&libmariadb, f);

	if (rc != RC_OK)
		return rc;
	if (!is_watching)
		table.watch_bytes(true, see_bytes);
	is_watching = true;
	*ret = &table;
	return RC_OK;
}
