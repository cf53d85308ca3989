/*
 * tunnel.h - TLS below libzookeeper, which has none.
 *
 * What the library sends, receives and waits for on its connection comes here (library.c), and
 * goes on encrypted (backends/common/tls.h).
 *
 *  1. The library connects by itself.  The first bytes that it sends begin the handshake.  They
 *     wait in memory until the server has shown the certificate of the host that has this
 *     address in the URL.  So nothing is sent that is not encrypted.
 *  2. The kernel does not know of bytes that are decrypted and not yet read, nor of such that
 *     are encrypted and not yet sent.  tunnel_poll() does: it says "ready" while a read has not
 *     yet found the end of what has come, and it sends the rest when that can be sent.
 *  3. A library that waits otherwise than by poll() could leave bytes lying.  So nothing is
 *     received before it has polled once.
 *
 * A tunnel belongs to one session, which has one connection at a time.  It is used by the
 * library's thread, and when that has ended, by the one that closes the session.
 */
#ifndef DLOCK_ZK_TUNNEL_H
#define DLOCK_ZK_TUNNEL_H

#include "ensemble.h"

#include "backends/common/tls.h"

#include <poll.h>
#include <sys/types.h>

struct tunnel;

/* The hosts, with their names, must outlive it.  As tls_open_if(). */
enum rc tunnel_open(
    struct tunnel **ret, const struct tls *, const struct hosts *, struct fault *);

/* The library has closed its connection.  Accepts NULL. */
void tunnel_close(struct tunnel *);

/*
 * The library gives its connection up; the next thing that it sends begins another one.  Returns why, where TLS
 * or the server's end of it says that; RC_OK: they do not.
 */
enum rc tunnel_end(struct tunnel *, struct fault *);

/* tls_can_retry(), of a connection that has ended. */
bool tunnel_can_retry(const struct tunnel *);

/* Has a connection begun? */
bool tunnel_has_begun(const struct tunnel *);

/* Has all that was sent left this process? */
bool tunnel_is_flushed(const struct tunnel *);

/* As recv(), send() and poll(); with MSG_MORE, bytes wait for those that follow. */
ssize_t tunnel_recv(struct tunnel *, int fd, void *to, size_t size);
ssize_t tunnel_send(struct tunnel *, int fd, const void *from, size_t size, int flags);
int tunnel_poll(struct tunnel *, struct pollfd *, nfds_t n, int timeout);

#endif
