/*
 * tls.h - TLS on a stream: a second row of stream_ops.
 *
 * One struct tls is what we trust and who we are: certificates and key, read once,
 * when it is made.  Any number of streams are connected by it, to any number of
 * servers; whoever sends and receives on them does not see the difference.
 *
 *  1. The server's certificate must be signed by a CA that we trust, be valid now,
 *     and be for the name by which we called the server.  There is no way around it.
 *  2. Which CAs: those of `cacert`; else of the file that $SSL_CERT_FILE names; else
 *     the system's, from its directory, where only the one that is needed is read.
 *     The system's bundle, a file of all, takes fifty times as long to read, and
 *     is read when the directory does not have the one.
 *  3. TLS 1.2 at least.
 *  4. OpenSSL works on memory alone; our own send and recv move what it writes and
 *     reads, with the deadlines of stream.h and without SIGPIPE.
 *
 * OpenSSL is loaded by tls_open_if() (openssl.h), and costs nobody else anything.
 */
#ifndef DLOCK_TLS_H
#define DLOCK_TLS_H

#include "backends/backend.h"
#include "stream.h"

/* The setter of -O cacert=, cert=, key= and tls-name=, which tls_open_if() reads: RC_OK. */
enum rc tls_set(struct store *, const char *value, struct fault *);

/* Behind a scheme, where this dlock is built with TLS: "redis[s]://". */
#ifdef HAVE_OPENSSL
#define TLS_SCHEME "[s]"
#else
#define TLS_SCHEME ""
#endif

struct tls;

/*
 * If the URL wants TLS: loads OpenSSL and reads the files.  RC_USAGE: a setting that is empty,
 * or settings that make no sense together; RC_CONFIG: a file that cannot be read or used, a key that others may read,
 * or OpenSSL is not installed; RC_SYSTEM.  The caller closes it after its streams.  If not,
 * *ret is NULL, and any setting is RC_USAGE: URLs that want it begin with `scheme`.
 */
enum rc tls_open_if(bool wanted, const char *scheme, struct tls **ret,
    const struct site *, struct fault *);

/* Another one of the same settings: each thread connects by its own.  As tls_open_if(). */
enum rc tls_again(struct tls **ret, const struct tls *, struct fault *);

/* Accepts NULL. */
void tls_close(struct tls *);

/*
 * Puts TLS on a stream that is connected, or about to be: what is written or read on it
 * begins with the handshake.  `host` is what the server's certificate must be for, unless
 * -O tls-name= says another.  RC_SYSTEM: without memory, and closed.
 *
 * Beside what is said in stream.h, sending and receiving give RC_CONFIG: the server's certificate
 * is not accepted, or we have no version or cipher in common; RC_DENIED: it does not accept
 * ours; RC_PROTOCOL: no TLS is spoken there.  That it wants a certificate may be said as late
 * as by the first answer.
 */
enum rc tls_start(struct tls *, struct stream *, const char *host, struct fault *);

/*
 * A certificate was not accepted for its CA: will the next connection look for that in the
 * system's bundle, too?
 */
bool tls_can_retry(const struct tls *);

#endif
