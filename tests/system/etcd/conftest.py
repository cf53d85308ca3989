# Goal of this file: a lock's place in an etcd of the tests' own, and what stands between.

import pytest

from etcd import Meddler
from support import At, making


def place_at(server):
    result = At(server.url)
    result.server, result.url = server, server.url
    return result


@pytest.fixture
def at(own_etcd):
    return place_at(own_etcd)


@pytest.fixture
def client(at):
    return at.server.client()


@pytest.fixture
def make_meddler(nothing_is_left):
    """What stands in front of a server and changes answers."""
    yield from making(Meddler, "close")
