# Goal of this file: the fixtures that all tests share.

import os
import time

import pytest

from hostile import Hostile
from pg import PG_PLACES, db, make_db, make_pg, make_pooler, make_tamper, own_pg, pg_server  # noqa: F401, fixtures
from proxy import Proxy
from support import (OTHER_PLACES, PLACES, Dlock, RedisServer, adopt_orphans, descendants_of, kill, leftovers, place_id,
                     places, stat_of)


def pytest_configure(config):
    adopt_orphans()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each test, no process that it brought into the world is left."""
    before = descendants_of(os.getpid())
    yield
    end = time.monotonic() + 10  # keepers may still be releasing
    while leftovers(before) and time.monotonic() < end:
        time.sleep(0.02)
    left = [(pid, stat_of(pid)) for pid in leftovers(before)]
    for pid, _ in left:
        kill(pid)
    _reap_adopted()
    assert not left, f"processes left behind: {left}"


def _reap_adopted():
    """Collects orphans that became ours, but no child that a Popen waits for."""
    for entry in os.listdir("/proc"):
        found = stat_of(entry) if entry.isdigit() else None
        if found and found[1] == "Z" and found[2] == os.getpid():
            try:
                os.waitpid(int(entry), os.WNOHANG)
            except ChildProcessError:
                pass


@pytest.fixture
def dlock(tmp_path, nothing_is_left):
    """Runs dlock; what still runs at the end of the test is killed."""
    result = Dlock(tmp_path)
    yield result
    result.close()


@pytest.fixture(scope="session")
def redis_server():
    """One server for all tests that do it no harm."""
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def make_redis(nothing_is_left):
    """Starts servers of the test's own, with any options of redis-server."""
    made = []

    def make(*options, **arguments):
        made.append(RedisServer(*options, **arguments))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def own_redis(make_redis):
    """A server that the test may break."""
    return make_redis()


@pytest.fixture
def make_proxy():
    """Proxies in front of a local port."""
    made = []

    def make(port):
        made.append(Proxy(port))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def make_hostile():
    """Servers that misbehave."""
    made = []

    def make(*arguments, **options):
        made.append(Hostile(*arguments, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


PLACES.append(PG_PLACES[0])
OTHER_PLACES += PG_PLACES[1:]


@pytest.fixture(params=places(), ids=place_id)
def place(request):
    """Each backend in turn: `words` to reach it and fresh keys."""
    return request.param(request)
