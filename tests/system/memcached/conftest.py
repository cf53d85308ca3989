# Goal of this file: a lock's place in a memcached of the test's own.

import pytest

from support import At


@pytest.fixture
def at(own_memcached):
    result = At(own_memcached.url)
    result.server, result.url = own_memcached, own_memcached.url
    return result


@pytest.fixture
def client(at):
    with at.server.client() as c:
        yield c
