/* lib.c - finds libmariadb's functions when a mysql lock is opened. */
#include "lib.h"

#include "backends/dl.h"

#include <stdint.h>
#include <sys/socket.h>

static struct libmariadb table;

/* On which connection this thread's call of libmariadb may go on reading, and how long. */
static _Thread_local struct {
	MYSQL *mysql;
	size_t *left; /* so many bytes; NULL: any number */
	bool *plain; /* set, and nothing read behind the greeting, without TLS; or NULL */
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

/* Called with what has been read (mode 0) or written; n is negative for an error. */
static void
see_bytes(int mode, MYSQL *mysql, const unsigned char *bytes, size_t n)
{
	(void)bytes;
	if (mysql != bounds.mysql || n > SIZE_MAX / 2)
		return;
	if (mode == 0 && bounds.left) {
		*bounds.left = n < *bounds.left ? *bounds.left - n : 0;
		if (*bounds.left == 0)
			cut_off(mysql);
	}
	/* the greeting has been read before, not just now, if there is a version */
	if (bounds.plain && table.get_server_info(mysql) &&
	    !(mysql->server_capabilities & CLIENT_SSL)) {
		*bounds.plain = true;
		cut_off(mysql);
	}
}

void
libmariadb_bound(MYSQL *mysql, size_t *left, bool *plain)
{
	bounds.mysql = mysql;
	bounds.left = left;
	bounds.plain = plain;
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
