# Goal of this file: a TCP proxy that does to a connection what networks do.

import contextlib
import socket
import struct
import threading
import time

UP, DOWN = "up", "down"  # towards the server, towards the client
BOTH = (UP, DOWN)

TARGETS = {}  # port of a proxy -> port of its server


class Proxy:
    """Forwards a loopback port to another one; faults apply to old and new connections.

    hold(...)    keeps what is sent in these directions, until heal() delivers it
    strand()     the same for the connections there are, both ways, and for their end; not for new ones
    drop(...)    loses it silently
    delay        seconds by which every piece is late
    drip(...)    passes so many bytes at a time, with a pause after each
    cut(...)     resets each connection, or only one, after so many bytes in a direction
    reset()      resets all connections
    refuse()     closes the port, accept() opens it again; meanwhile nobody else is given it
    tap          a function of (connection, direction, bytes) that sees everything before it
                 passes, gives what passes instead, and may end the connection with
                 ConnectionResetError
    """

    def __init__(self, port, patience=0):
        """With patience, a connection waits so many seconds for a server that does not listen yet."""
        self._target, self._patience = ("127.0.0.1", port), patience
        self._change = threading.Condition()
        self._links = set()
        self._listener = None
        self._kept = bound(0)  # or a client's connection would be given the port while it is closed
        self.port = self._kept.getsockname()[1]
        self.connections = 0
        self.tap = None
        self.bytes = {UP: 0, DOWN: 0}
        self.heal()
        self.accept()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    # ---- faults ----

    def heal(self):
        with self._change:
            self._held, self._dropped, self._stranded = set(), set(), set()
            self._drip, self._cut, self._once = {}, {}, False
            self.delay = 0
            self._change.notify_all()

    def hold(self, *directions):
        self._held = set(directions)

    def strand(self):
        self._stranded = set(self._links)

    def drop(self, *directions):
        self._dropped = set(directions)

    def drip(self, direction, size, pause):
        self._drip = {direction: (size, pause)}

    def cut(self, direction, after, once=False):
        self._cut = {direction: after}
        self._once = once

    def reset(self):
        for link in list(self._links):
            link.reset()

    def refuse(self):
        listener, self._listener = self._listener, None
        TARGETS.pop(self.port, None)
        if listener:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listener.close()

    def accept(self):
        listener = bound(self.port)
        listener.listen(64)
        self._listener = listener
        TARGETS[self.port] = self._target[1]
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def close(self):
        self.refuse()
        self.heal()
        self.reset()
        self._kept.close()

    # ---- the work ----

    def _serve(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = self._connect()
                if server:
                    _Link(self, client, server)
                else:
                    self.connections += 1
                    close_with_reset(client)

    def _connect(self):
        end = time.monotonic() + self._patience
        while True:
            try:
                server = socket.create_connection(self._target, timeout=5)
                server.settimeout(None)
                return server
            except OSError:
                if time.monotonic() >= end:
                    return None
                time.sleep(0.02)

    def _wait_while_held(self, direction, link):
        with self._change:
            while (direction in self._held or link in self._stranded) and not link.over:
                self._change.wait(0.1)


class _Link:
    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.over = False
        self.passed = {UP: 0, DOWN: 0}
        proxy._links.add(self)
        proxy.connections += 1  # counted when reset() would end it, and before anything passes
        for direction, source, sink in ((UP, client, server), (DOWN, server, client)):
            threading.Thread(target=self._pump, args=(direction, source, sink), daemon=True).start()

    def reset(self):
        self.over = True
        close_with_reset(self.client)
        close_with_reset(self.server)
        self.proxy._links.discard(self)

    def _pump(self, direction, source, sink):
        try:
            while data := source.recv(65536):
                self._forward(direction, data, sink)
            self.proxy._wait_while_held(direction, self)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.reset()

    def _forward(self, direction, data, sink):
        proxy = self.proxy
        if proxy.delay:
            time.sleep(proxy.delay)
        proxy._wait_while_held(direction, self)
        if direction in proxy._dropped:
            return
        if proxy.tap:
            data = proxy.tap(self, direction, data)
        if not data:
            return
        size, pause = proxy._drip.get(direction, (len(data), 0))
        for i in range(0, len(data), size):
            self._send(direction, data[i:i + size], sink)
            if pause:
                time.sleep(pause)

    def _send(self, direction, data, sink):
        limit = self.proxy._cut.get(direction)
        if limit is not None:
            data = data[:max(0, limit - self.passed[direction])]
        if data:
            sink.sendall(data)
        self.passed[direction] += len(data)
        self.proxy.bytes[direction] += len(data)
        if limit is not None and self.passed[direction] >= limit:
            if self.proxy._once:
                self.proxy._cut = {}
            time.sleep(0.01)  # let the other side read what has come before the reset takes it away
            raise ConnectionResetError


def bound(port):
    """A socket that has this port (0: any), and shares it with others of ours; until it listens, connections are refused."""
    result = socket.socket()
    result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    result.bind(("127.0.0.1", port))
    return result


def close_with_reset(sock):
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RD)  # wakes a thread in recv()
    sock.close()
