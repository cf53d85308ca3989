# Goal of this file: servers of other kinds, which wait for the end of what a database's client says first, and
# say what they are to a line of their own.

import contextlib
import socket
import threading
import time

# What each has to have heard, and what it answers then.
STRANGERS = {"Redis": (b"\n", b"-ERR unknown command\r\n"), "memcached": (b"\n", b"ERROR\r\n"),
             "ZooKeeper": (b"srvr", b"Zookeeper version: 3.8.0\n"), "a server of HTTP (etcd?)": (b"HTTP/1.0\r\n\r\n", b"HTTP/1.0 404 Not Found\r\n"),
             "PostgreSQL": (b"\0\0\0\x08\x04\xd2\x16\x2f", b"N")}


@contextlib.contextmanager
def stranger(name, wakes=False, pause=0):
    """The port of such a server; `wakes`: it says nothing to the first who comes.  It answers after `pause` seconds."""
    wanted, answer = STRANGERS[name]
    asleep = [None] * wakes

    def serve(client):
        sleeps = asleep and asleep.pop() is None
        with client, contextlib.suppress(OSError):
            heard = b""
            while sleeps or wanted not in heard:
                more = client.recv(1000)
                if not more:
                    return
                heard += more
            time.sleep(pause)
            client.sendall(answer)
            client.recv(1000)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
