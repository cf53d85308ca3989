/*
 * tls_none.c - tls.h where OpenSSL's headers were missing when dlock was built: tls_open() fails,
 * so nobody has a struct tls.
 */
#ifndef HAVE_OPENSSL
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
