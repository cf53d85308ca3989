# Goal of this file: the fixtures of memcached.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import functools

import pytest

from memcached import Memcached, Pretender, compile_clock
from support import making


@pytest.fixture(scope="session")
def memcached_clock(tmp_path_factory):
    """By which servers seem to have been running for long."""
    return compile_clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="session")
def memcached_server(memcached_clock):
    server = Memcached(memcached_clock)
    yield server
    server.stop()


@pytest.fixture
def make_memcached(memcached_clock, nothing_is_left):
    """Starts servers of the test's own, with any options of memcached."""
    yield from making(functools.partial(Memcached, memcached_clock))


@pytest.fixture
def make_pretender():
    """Servers that pretend to be a memcached."""
    yield from making(Pretender, "close")


@pytest.fixture
def own_memcached(make_memcached):
    """A server that the test may break."""
    return make_memcached()
