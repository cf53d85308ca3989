# Goal of this file: Redis behind TLS, as a place for the suites, and a TLS server that talks of itself.

import contextlib
import ctypes
import select
import socket
import threading
import time

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import redis

from support import RedisPlace, RedisServer, compile_shim


class RedisTls(RedisServer):
    """A redis-server whose port speaks TLS alone; our own clients use its unix socket."""

    def __init__(self, authority, *options, certificate=None, clients="no", **more):
        certificate = certificate or authority.sign("server")
        super().__init__("--tls-cert-file", certificate.cert, "--tls-key-file", certificate.key, "--tls-ca-cert-file",
                         authority.cert, "--tls-auth-clients", clients, "--port", "0", *options, **more)

    @property
    def url(self):
        return f"rediss://127.0.0.1:{self.port}"

    def client(self, **options):
        return redis.Redis(unix_socket_path=self.socket, **{"decode_responses": True, **options})

    def start(self, wait=True):
        self.options = (*self.options, "--tls-port", str(self.port))
        super().start(wait)


class RedisTlsPlace(RedisPlace):
    """Locks on a server of its own for all tests, through TLS."""

    id = "redis-tls"
    ordinarily = {"test_command_is_told_about_its_lock", "test_contenders_never_overlap", "test_waiters_are_served_in_order",
                  "test_killed_waiter_blocks_nobody_for_long", "test_killed_keeper_takes_the_whole_tree_along"}

    def __init__(self, request):
        self.authority = request.getfixturevalue("authority")
        self.server = request.getfixturevalue("redis_tls_server")
        self.prefix = f"t{next(self._numbers)}:"

    @property
    def settings(self):
        return (f"cacert={self.authority.cert}",)

    def url_at(self, port, host="127.0.0.1"):
        return f"rediss://{host}:{port}"

    def crashable(self, request):
        self.server = request.getfixturevalue("make_redis_tls")("--appendonly", "yes", "--appendfsync", "always")
        return self.server.restart


class Chatty:
    """A TLS front of a plain port that sends tickets for the next session again and again, unasked.

    With flood=True it sends nothing else, without end, once something is asked.
    """

    PAUSE = 0.05

    def __init__(self, port, certificate, flood=False):
        self.target, self.flood = ("127.0.0.1", port), flood
        self.connections = self.tickets = 0
        self.ssl = ctypes.CDLL("libssl.so.3")
        for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
            getattr(self.ssl, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.ssl.SSL_CTX_new(ctypes.c_void_p(self.ssl.TLS_server_method())))
        assert self.ssl.SSL_CTX_use_certificate_chain_file(self.context, certificate.cert.encode()) == 1
        assert self.ssl.SSL_CTX_use_PrivateKey_file(self.context, certificate.key.encode(), 1) == 1
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.over = False
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self):
        return f"rediss://127.0.0.1:{self.port}"

    def close(self):
        self.over = True
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._link, args=(client,), daemon=True).start()

    def _link(self, client):
        with client, contextlib.suppress(OSError), socket.create_connection(self.target) as server:
            ssl = ctypes.c_void_p(self.ssl.SSL_new(self.context))
            self.ssl.SSL_set_fd(ssl, client.fileno())
            if self.ssl.SSL_accept(ssl) == 1:
                self._talk(ssl, client, server)

    def _talk(self, ssl, client, server):
        data = ctypes.create_string_buffer(65536)
        due = time.monotonic() + self.PAUSE
        while not self.over:
            ready = [client] if self.ssl.SSL_pending(ssl) else select.select([client, server], [], [], self.PAUSE)[0]
            if client in ready:
                n = self.ssl.SSL_read(ssl, data, len(data))
                if n <= 0:
                    return
                while self.flood and not self.over and self._ticket(ssl):
                    pass
                server.sendall(data.raw[:n])
            elif server in ready:
                answer = server.recv(65536)
                if not answer or self.ssl.SSL_write(ssl, answer, len(answer)) <= 0:
                    return
            if time.monotonic() >= due:
                self._ticket(ssl)
                due = time.monotonic() + self.PAUSE

    def _ticket(self, ssl):
        self.tickets += 1
        return self.ssl.SSL_new_session_ticket(ssl) == 1 and self.ssl.SSL_do_handshake(ssl) == 1


# Another bundle of all CAs than the system's; and who has read it is written down.
BUNDLE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static FILE *
other(const char *path, const char *mode, const char *which)
{
	FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, which);
	size_t n = strlen(path);
	if (n > 9 && strcmp(path + n - 9, "/cert.pem") == 0) {
		FILE *f = next(getenv("TEST_READ"), "a");
		fputs("read\n", f);
		fclose(f);
		path = getenv("TEST_BUNDLE");
	}
	return next(path, mode);
}
FILE *fopen(const char *path, const char *mode) { return other(path, mode, "fopen"); }
FILE *fopen64(const char *path, const char *mode) { return other(path, mode, "fopen64"); }
"""


def trust_bundle(dlock, authority, directory):
    """The system's directory of CAs has none, its bundle this one; "read" in the directory tells who has read it."""
    dlock.env.pop("SSL_CERT_FILE", None)
    dlock.env.update(LD_PRELOAD=compile_shim(directory, "bundle", BUNDLE), TEST_BUNDLE=authority.cert,
                     TEST_READ=str(directory / "read"), SSL_CERT_DIR=str(directory))
