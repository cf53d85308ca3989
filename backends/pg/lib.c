/* lib.c - finds libpq's functions when a pg lock is opened. */
#include "lib.h"

#include "backends/common/dl.h"

static struct pq table;

static const struct dl_symbol symbols[] = {
#define X(name) {"PQ" #name, (void **)&table.name, false},
    PQ_FUNCTIONS(X)
#undef X
#define X(name) {"PQ" #name, (void **)&table.name, true},
	PQ_PIPELINE_FUNCTIONS(X)
#undef X
};

static const struct dl_library libpq = {
    "libpq", "libpq.so.5", "libpq5", symbols, sizeof symbols / sizeof *symbols};

enum rc
pq_load(const struct pq **ret, struct fault *f)
{
	enum rc rc = dl_load(&libpq, f);

	if (rc == RC_OK)
		*ret = &table;
	return rc;
}
