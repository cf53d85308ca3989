# Goal of this file: the fixtures of etcd.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import pytest

from etcd import Ensemble, Etcd
from support import making


@pytest.fixture(scope="session")
def etcd_server():
    server = Etcd()
    yield server
    server.stop()


@pytest.fixture
def make_etcd(nothing_is_left):
    """Starts servers of the test's own, with any options of etcd."""
    yield from making(Etcd)


@pytest.fixture
def own_etcd(make_etcd):
    """A server that the test may break."""
    return make_etcd()


@pytest.fixture
def make_ensemble(nothing_is_left):
    """Starts clusters of three."""
    yield from making(Ensemble)
