# Goal of this file: the fixtures of ZooKeeper.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import pytest

from support import making
from zk import ZkEnsemble, ZkServer


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
