/* openssl.c - finds libssl of one of the versions that dlock works with. */
#ifdef HAVE_OPENSSL
#include "openssl.h"

#include "dl.h"

#include <stddef.h>

static struct openssl table;

static const struct dl_symbol symbols[] = {
#define X(name) {#name, false, offsetof(struct openssl, name)},
    OPENSSL_FUNCTIONS(X)
#undef X
};

enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/*
 * Only libssl is opened: it brings its own libcrypto, so that the two never come from two
 * versions.
 */
const struct dl_library openssl_library = {
    "OpenSSL", "libssl.so.3", "libssl3", &table, symbols, SYMBOLS};
const struct dl_library openssl_old_library = {
    "OpenSSL", "libssl.so.1.1", "libssl1.1", &table, symbols, SYMBOLS};

enum rc
openssl_load(const struct openssl **ret, struct fault *f)
{
	struct fault ignored;
	enum rc rc = dl_load(&openssl_library, f);

	if (rc == RC_CONFIG && dl_load(&openssl_old_library, &ignored) == RC_OK)
		rc = RC_OK;
	if (rc == RC_OK)
		*ret = &table;
	return rc;
}

#endif
