/* openssl.c - finds OpenSSL's functions when somebody wants TLS. */
#ifdef HAVE_OPENSSL
#include "openssl.h"

#include "dl.h"

static struct openssl table;

static const struct dl_symbol symbols[] = {
#define X(name) {#name, (void **)&table.name, false},
    OPENSSL_FUNCTIONS(X)
#undef X
};

enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* libssl brings the libcrypto that it needs, so that the two are never mixed. */
static const struct dl_library newer = {"OpenSSL", "libssl.so.3", "libssl3", symbols,
				   SYMBOLS},
			       older = {"OpenSSL", "libssl.so.1.1", "libssl1.1", symbols,
				   SYMBOLS};

enum rc
openssl_load(const struct openssl **ret, struct fault *f)
{
	struct fault ignored;
	enum rc rc = dl_load(&newer, f);

	if (rc == RC_CONFIG && dl_load(&older, &ignored) == RC_OK)
		rc = RC_OK;
	if (rc == RC_OK)
		*ret = &table;
	return rc;
}

#endif
