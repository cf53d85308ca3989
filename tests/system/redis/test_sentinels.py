# Goal of these tests: which sentinels dlock believes.  One that lies, or was cut off, does not
# decide where the master is while most of them may still answer.

import contextlib
import socket
import threading

import pytest

from hostile import Hostile, array, requests_in
from support import PATIENCE, At, boottime, wait_for

SILENT = 10 ** 6  # seconds: it is connected, and never answers


class FakeSentinel:
    """Says after `delay` seconds that the master is at `port`."""

    def __init__(self, port, delay):
        self.answer, self.delay, self.ended = array(b"127.0.0.1", b"%d" % port), delay, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client):
        buffer = bytearray()
        with contextlib.suppress(OSError), client:
            while data := client.recv(65536):
                buffer += data
                for _ in requests_in(buffer):
                    if not self.ended.wait(self.delay):
                        client.sendall(self.answer)

    def close(self):
        self.ended.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def make_sentinels():
    made = []

    def make(*each, gone=()):
        """From pairs of a master's port and a delay; returns where they lead to."""
        made.extend(FakeSentinel(*one) for one in each)
        for i in gone:
            made[i].close()
        return At("redis+sentinel://:geheim@" + ",".join(f"127.0.0.1:{s.port}" for s in made) + "/m")

    yield make
    for s in made:
        s.close()


@pytest.fixture
def liar():
    """A server that wants to be taken for the master."""
    result = Hostile({"role": array(b"master", 0, b"")})
    yield result
    result.close()


@pytest.fixture
def master(make_redis):
    server = make_redis()
    with server.client() as c:
        c.config_set("requirepass", "geheim")
    return server


def run(dlock, at, *words):
    return dlock.run("run", *at.words, "-w", "30s", "-k", "job", *words, "--", "true")


def test_the_first_to_answer_does_not_decide(dlock, master, liar, make_sentinels):
    """What it names gets no password."""
    at = make_sentinels((liar.port, 0), (master.port, 0.4), (master.port, 0.4))
    assert run(dlock, at).status == 0
    assert liar.asked == []


def test_two_that_do_not_agree_wait_for_the_third(dlock, master, liar, make_sentinels):
    at = make_sentinels((liar.port, 0), (master.port, 0), (master.port, 0.8))
    assert run(dlock, at).status == 0
    assert liar.asked == []


def test_one_will_do_when_the_others_are_silent_for_long(dlock, master, make_sentinels):
    at = make_sentinels((master.port, 0), (master.port, SILENT), (master.port, SILENT))
    began = boottime()
    assert run(dlock, at).status == 0
    assert 1 < boottime() - began < PATIENCE / 2


def test_one_will_do_at_once_when_the_others_are_gone(dlock, master, make_sentinels):
    at = make_sentinels((master.port, 0), (master.port, SILENT), (master.port, SILENT), gone=(1, 2))
    began = boottime()
    assert run(dlock, at, "-O", "connect-timeout=600s").status == 0
    assert boottime() - began < PATIENCE / 3


def test_a_single_sentinel_is_found_though_the_resolver_fails(dlock, master, make_sentinels, make_proxy, lost):
    """When its connection and the master's end, it is reached where it was."""
    server = make_proxy(master.port)
    with contextlib.closing(FakeSentinel(server.port, 0)) as fake:
        sentinel = make_proxy(fake.port)
        holder = dlock.hold(At(f"redis+sentinel://:geheim@m0:{sentinel.port}/m"), "job", "-v", "-t", "6s")
        lost.write_text("m0")
        server.refuse()
        for proxy in (server, sentinel):
            proxy.reset()
        wait_for(lambda: "renew: no answer" in holder.stderr(), what="a renewal that fails")
        server.accept()
        before = holder.stderr().count("renew: ok")
        wait_for(lambda: holder.stderr().count("renew: ok") > before + 1 or holder.poll() is not None, what="renewals")
        assert holder.finish().status == 0
