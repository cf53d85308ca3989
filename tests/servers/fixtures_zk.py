# Goal of this file: the fixtures of ZooKeeper.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import functools

import pytest

from support import making
from zk import ZkEnsemble, ZkServer
from zk_tls import TlsFront, ZkTls, ZkTlsEnsemble


@pytest.fixture(scope="session")
def zk_server():
    server = ZkServer()
    yield server
    server.stop()


@pytest.fixture
def make_zk(nothing_is_left):
    """Starts servers of the test's own, with any settings of zoo.cfg."""
    yield from making(ZkServer)


@pytest.fixture
def own_zk(make_zk):
    """A server that the test may break."""
    return make_zk()


@pytest.fixture
def ensemble(make_zk):
    """Three servers that the test may break."""
    return make_zk(program=ZkEnsemble)


@pytest.fixture(scope="session")
def zk_tls_server(authority):
    server = ZkTls(authority)
    yield server
    server.stop()


@pytest.fixture
def make_zk_tls(authority, nothing_is_left):
    """Starts servers of the test's own that speak TLS alone, with any settings of zoo.cfg."""
    yield from making(functools.partial(ZkTls, authority))


@pytest.fixture
def tls_ensemble(authority, make_zk_tls):
    """Three of them that the test may break."""
    return make_zk_tls(program=functools.partial(ZkTlsEnsemble, authority))


@pytest.fixture
def make_tls_front(authority, nothing_is_left):
    """TLS in front of a plain port."""
    yield from making(TlsFront, "close")
