/*
 * tls.h - TLS on a stream: a second row of stream_ops.
 *
 * A struct tls has the CAs that we trust, and our own certificate and key, which are read once,
 * when it is made.  It serves any number of streams to any number of servers.  Code that sends
 * and receives on such a stream sees no difference.
 *
 *  1. The server's certificate must be signed by a CA that we trust, be valid now,
 *     and be for the name by which we called the server.  There is no way around it.
 *  2. The CAs are those of `cacert`, or of the file that $SSL_CERT_FILE names, or else the
 *     system's.  Of the system's directory only the CA that is needed is read.  The
 *     system's file of all CAs takes fifty times as long; it is read only if the
 *     directory lacks the CA.
 *  3. The version is TLS 1.2 at least.
 *  4. OpenSSL works on memory alone; our own send and recv move what it writes and
 *     reads, with the deadlines of stream.h and without SIGPIPE.
 *
 * OpenSSL is loaded by tls_open_if() (openssl.h), and costs nobody else anything.
 */
#ifndef DLOCK_TLS_H
#define DLOCK_TLS_H

#include "backends/backend.h"
#include "stream.h"

/* The setter of -O cacert=, cert=, key= and tls-name=: RC_OK, since tls_open_if() reads them. */
enum rc tls_set(struct store *, const char *value, struct fault *);

/* Stands behind a scheme in help texts, if this dlock is built with TLS: "redis[s]://". */
#ifdef HAVE_OPENSSL
#define TLS_SCHEME "[s]"
#else
#define TLS_SCHEME ""
#endif

struct tls;

/*
 * Loads OpenSSL and reads the files, if the URL wants TLS (`wanted`).  The caller closes it after
 * its streams.  RC_USAGE: a setting is empty, or two make no sense together.  RC_CONFIG: a file
 * cannot be read or used, others may read the key, or OpenSSL is not installed.  RC_SYSTEM.
 *
 * If the URL does not want TLS, *ret is NULL, and any of the settings is RC_USAGE: the fault
 * names `scheme`, with which URLs that want TLS begin.
 */
enum rc tls_open_if(bool wanted, const char *scheme, struct tls **ret,
    const struct site *, struct fault *);

/* Another one of the same settings: each thread connects by its own.  As tls_open_if(). */
enum rc tls_again(struct tls **ret, const struct tls *, struct fault *);

/* Accepts NULL. */
void tls_close(struct tls *);

/*
 * Puts TLS on a stream that is connected, or about to be.  The first read or write does the
 * handshake.  The server's certificate must be for `host`, unless -O tls-name= names another.
 * RC_SYSTEM: no memory, and the stream is closed.
 *
 * Beside the rc's in stream.h, sending and receiving then give RC_CONFIG: we do not accept the
 * server's certificate, or have no version or cipher in common; RC_DENIED: the server does not
 * accept ours; RC_PROTOCOL: it does not speak TLS.  A server may say as late as in its first
 * answer that it wants a certificate.
 */
enum rc tls_start(struct tls *, struct stream *, const char *host, struct fault *);

/*
 * Is the next connection worth a try?  Yes if we did not know the certificate's CA, and have not
 * yet looked into the system's file of all CAs: the next connection will.
 */
bool tls_can_retry(const struct tls *);

#endif
