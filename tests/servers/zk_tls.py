# Goal of this file: ZooKeeper behind TLS alone, by itself and three together, as a place for the suites, and a TLS
# front of a plain one.

import contextlib
import functools
import os
import select
import socket
import ssl
import threading
import time

from zk import CLASSES, Frames, ZkEnsemble, ZkPlace, ZkServer

NETTY = ("-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "-Dio.netty.transport.noNative=true")


class ZkTls(ZkServer):
    """A ZooKeeper that has a secureClientPort and no other; `clients`: need, want or none of their certificates."""

    classes = f"{CLASSES}:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"  # which Debian's manifest forgets

    def __init__(self, authority, certificate=None, clients="none", java=(), **more):
        self.authority, self.certificate, self.clients = authority, certificate or authority.sign("server"), clients
        super().__init__((*NETTY, *java), **more)

    @property
    def url(self):
        return f"zks://127.0.0.1:{self.port}"

    def config(self):
        """Its key and its certificate in one file, as PEM: no keytool is needed."""
        both = os.path.join(self.directory, "server.pem")
        with open(both, "w", encoding="ascii") as f:
            for path in (self.certificate.key, self.certificate.cert):
                with open(path, encoding="ascii") as part:
                    f.write(part.read())
        return {"secureClientPort": self.port, "secureClientPortAddress": "127.0.0.1", "ssl.keyStore.location": both,
                "ssl.trustStore.location": self.authority.cert, "ssl.keyStore.type": "PEM", "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": self.clients, "ssl.hostnameVerification": "false"}

    def connect(self, timeout=5):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.clients == "need":
            context.load_cert_chain(self.certificate.cert, self.certificate.key)
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), timeout))

    def client(self, **options):
        mine = {"certfile": self.certificate.cert, "keyfile": self.certificate.key} if self.clients == "need" else {}
        return super().client(use_ssl=True, verify_certs=False, ca=self.authority.cert, **mine, **options)


class ZkTlsEnsemble(ZkEnsemble):
    """Three of them; what they say to each other is in the clear."""

    def __init__(self, authority, **settings):
        self.server = functools.partial(ZkTls, authority, authority.sign("server"))
        super().__init__(**settings)

    @property
    def url(self):
        return super().url.replace("zk:", "zks:")


class ZkTlsPlace(ZkPlace):
    """Locks on a server of its own for all tests, through TLS."""

    id = "zk-tls"
    ordinarily = {"test_command_is_told_about_its_lock", "test_contenders_never_overlap", "test_waiters_are_served_in_order",
                  "test_killed_waiter_blocks_nobody_for_long", "test_killed_keeper_takes_the_whole_tree_along"}

    def __init__(self, request):
        super().__init__(request, "zk_tls_server")
        self.authority = request.getfixturevalue("authority")

    @property
    def settings(self):
        return (f"cacert={self.authority.cert}",)

    def url_at(self, port, host="127.0.0.1"):
        return f"zks://{host}:{port}{self.root}"

    def crashable(self, request):
        self.server = request.getfixturevalue("make_zk_tls")()
        return self.server.restart


class TlsFront:
    """Speaks TLS in front of a server's plain port: what the server says within `pause` goes into one record; or each byte into one of its own."""

    def __init__(self, port, certificate, bytewise=False, pause=0.0):
        self.target, self.bytewise, self.pause = ("127.0.0.1", port), bytewise, pause
        self.show(certificate)
        self.links = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.most = 0  # answers in one record
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self):
        return f"zks://127.0.0.1:{self.port}"

    def show(self, certificate):
        """To those who connect from now on."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate.cert, certificate.key)

    def hang_up(self):
        """On all."""
        while self.links:
            with contextlib.suppress(OSError):
                self.links.pop().shutdown(socket.SHUT_RDWR)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._link, args=(client,), daemon=True).start()

    def _link(self, client):
        self.links.append(client.dup())
        with contextlib.suppress(OSError), self.context.wrap_socket(client, server_side=True) as tls, \
                socket.create_connection(self.target) as server:
            while True:
                ready = [tls] if tls.pending() else select.select([tls, server], [], [])[0]
                if tls in ready:
                    data = tls.recv(65536)
                    if not data:
                        return
                    server.sendall(data)
                elif not self._answer(tls, server):
                    return

    def _answer(self, tls, server):
        time.sleep(self.pause)
        data = server.recv(16384)
        self.most = max(self.most, len(list(Frames().feed(data))))
        for piece in [data[i:i + 1] for i in range(len(data))] if self.bytewise else [data]:
            tls.sendall(piece)
        return data
