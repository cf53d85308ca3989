/* lib.c - finds libmariadb's functions when a mysql lock is opened. */
#include "lib.h"

#include "backends/dl.h"

static struct libmariadb table;

static const struct dl_symbol symbols[] = {
#define X(name) {"mysql_" #name, (void **)&table.name, false},
    MY_FUNCTIONS(X)
#undef X
	{"mysql_errno", (void **)&table.error_number, false},
};

static const struct dl_library libmariadb = {"libmariadb", "libmariadb.so.3",
    "libmariadb3", symbols, sizeof symbols / sizeof *symbols};

enum rc
libmariadb_load(const struct libmariadb **ret, struct fault *f)
{
	enum rc rc = dl_load(&libmariadb, f);

	if (rc == RC_OK)
		*ret = &table;
	return rc;
}
