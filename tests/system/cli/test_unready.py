# Goal of these tests: who looks or steers gives a server up that never answers what was asked, whether it is silent or says
# again and again that it cannot do it now.  Each pretends to be one; promises/test_looks.py has the real ones.

import contextlib
import json
import socket
import struct
import threading
import time

import pytest

from support import WANTED, boottime, spent

BOUND = 1  # s: connect-timeout


def etcd(link):
    """A member without a leader, or a learner."""
    body = json.dumps({"error": "etcdserver: no leader", "message": "etcdserver: no leader", "code": 14}).encode()
    while link.recv(65536):
        link.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def redis_saying(text):
    def answer(link):
        while data := link.recv(65536):
            link.sendall(text * max(data.count(b"*") - data.count(b"$*"), 1))
    return answer


def memcached(link):
    while data := link.recv(65536):
        link.sendall(b"SERVER_ERROR out of memory writing get response\r\n" * data.count(b"\n"))


def zk(link):
    """A server that has lost its quorum."""
    link.recv(65536)


def postgresql(link):
    while len(data := link.recv(65536)) == 8:  # for TLS
        link.sendall(b"N")
    fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
    if data:
        link.sendall(b"E" + struct.pack(">I", len(fields) + 4) + fields)


def mysql(link):
    error = b"\xff" + struct.pack("<H", 1040) + b"#08004Too many connections"
    link.sendall(struct.pack("<I", len(error)) + error)


def silent(link):
    while link.recv(65536):
        pass


def dripping(text):
    """Some of an answer, and then a byte of it each 100 ms: it is never over."""
    def answer(link):
        link.recv(65536)
        for byte in text:
            link.sendall(bytes([byte]))
            time.sleep(0.1)
    return answer


LONG = b"x" * 1000
SERVERS = {
    "etcd-unready": ("etcd://{}", etcd),
    "etcd-silent": ("etcd://{}", silent),
    "etcd-dripping": ("etcd://{}", dripping(b"HTTP/1.1 200 OK\r\nX: " + LONG)),
    "redis-unready": ("redis://{}", redis_saying(b"-LOADING Redis is loading the dataset in memory\r\n")),
    "redis-silent": ("redis://{}", silent),
    "redis-dripping": ("redis://{}", dripping(b"$1000\r\n" + LONG)),
    "redis-cluster": ("redis+cluster://{}", redis_saying(b"-CLUSTERDOWN The cluster is down\r\n")),
    "redlock": ("redlock://{},{},{}", redis_saying(b"-LOADING Redis is loading the dataset in memory\r\n")),
    "memcached-unready": ("memcached://{}", memcached),
    "memcached-silent": ("memcached://{}", silent),
    "memcached-dripping": ("memcached://{}", dripping(b"VA " + LONG)),
    "zk-unready": ("zk://{}", zk),
    "zk-silent": ("zk://{}", silent),
    "pg-unready": ("postgresql://app@{}/app", postgresql),
    "pg-silent": ("postgresql://app@{}/app?sslmode=disable", silent),
    "mysql-unready": ("mysql://app@{}/app", mysql),
    "mysql-silent": ("mysql://app@{}/app", silent),
}


class Unready:
    """A server that treats each connection so; as many as the URL has places for."""

    def __init__(self, url, talk):
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(url.count("{}"))]
        self.talk = talk
        self.url = url.format(*(f"127.0.0.1:{one.getsockname()[1]}" for one in self.listeners))
        for one in self.listeners:
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, listener):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._treat, args=listener.accept()[:1], daemon=True).start()

    def _treat(self, link):
        with contextlib.suppress(OSError), link:
            self.talk(link)

    def close(self):
        for one in self.listeners:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


WORDS = (("status",), ("ls",), ("break", "-y"), ("break", "-y", "--force"), ("freeze",), ("thaw", "-y"), ("forget", "-y"), ("wait",),
         ("wait", "-n"))


@pytest.mark.parametrize("name", [name for name in SERVERS if name.split("-")[0].replace("redlock", "redis") in WANTED])
def test_nobody_asks_for_ever(dlock, name):
    """Each answer has the time of connect-timeout, with all that is asked again meanwhile; freeze looks before, too."""
    with contextlib.closing(Unready(*SERVERS[name])) as server:
        began = boottime()
        started = {words: dlock.start(*words, "-u", server.url, "-O", f"connect-timeout={BOUND}s", *(() if words == ("ls",) else ("-k", "job")),
                                      events=False) for words in WORDS}
        done = {words: s.wait() for words, s in started.items()}
        assert spent(began) < 6 * BOUND
    statuses = {words: d.status for words, d in done.items()}
    lacks = {words for words, status in statuses.items() if status == 78}
    assert lacks <= {("break", "-y"), ("freeze",), ("thaw", "-y"), ("forget", "-y"), ("ls",)}, done  # what it cannot do
    assert {status for words, status in statuses.items() if words not in lacks} == {69}, done


def test_wait_asks_for_as_long_as_it_was_told_to(dlock):
    with contextlib.closing(Unready(*SERVERS["etcd-unready"])) as server:
        began = boottime()
        done = dlock.run("wait", "-w", "3s", "-u", server.url, "-O", "connect-timeout=500ms", "-k", "job", events=False)
        assert done.status == 69 and boottime() - began >= 2.5 and spent(began) < 6, done


@pytest.mark.parametrize("name", [name for name in SERVERS if name.endswith("-silent") and name.split("-")[0] in WANTED])
@pytest.mark.parametrize("words", [("status",), ("freeze",)], ids=lambda words: words[0])
def test_who_looks_or_steers_does_not_wait_where_nobody_listens(dlock, name, words):
    server = Unready(*SERVERS[name])
    server.close()
    began = boottime()
    done = dlock.run(*words, "-k", "job", "-u", server.url, events=False)
    assert done.status == 69 or (done.status, words) == (78, ("freeze",)), done
    assert spent(began) < 2, done
