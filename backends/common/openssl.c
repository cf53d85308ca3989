/* openssl.c - finds OpenSSL's functions when somebody wants TLS, or says that TLS is not compiled in. */
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

#else /* built without OpenSSL's headers: tls_open() fails, so nobody has a struct tls */
#include "tls.h"

enum rc
tls_open(struct tls **ret, const struct tls_settings *settings, struct fault *f)
{
	(void)ret, (void)settings;
	return fault_set(f, RC_CONFIG,
	    "TLS is not compiled in: this dlock was built without OpenSSL's headers (libssl-dev)");
}

enum rc
tls_start(struct tls *t, struct stream *s, const char *host, struct fault *f)
{
	(void)s, (void)host;
	return tls_open(&t, NULL, f);
}

enum rc
tls_connect(struct tls *t, struct stream *s, const char *host, int port, instant until,
    struct fault *f)
{
	(void)port, (void)until;
	return tls_start(t, s, host, f);
}

bool
tls_can_retry(const struct tls *t)
{
	return t && false;
}

void
tls_close(struct tls *t)
{
	(void)t;
}
#endif
