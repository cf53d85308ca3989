# Goal of this file: places of locks in ZooKeeper, and other programs that lock there.

import pytest

from curator import JARS, Curator, compile_java
from support import At
from zk import Tap

_tests = iter(range(1, 1 << 30))


@pytest.fixture
def at(zk_server):
    """A fresh root on the server of all tests."""
    result = At(f"{zk_server.url}/zk{next(_tests)}")
    result.server, result.url, result.root = zk_server, result.words[1], "/" + result.words[1].rsplit("/", 1)[1]
    result.job = result.root + "/job"
    result.through = lambda proxy: At(f"zk://127.0.0.1:{proxy.port}{result.root}")
    return result


@pytest.fixture
def tapped(at, make_proxy):
    """(place, proxy, tap): the same through a proxy with somebody who reads along."""
    proxy = make_proxy(at.server.port)
    return at.through(proxy), proxy, Tap(proxy)


@pytest.fixture(scope="module")
def classpath():
    """Where Curator and the compiled Curator.java are."""
    return compile_java("Curator", JARS)


@pytest.fixture
def curator(classpath, zk_server):
    result = Curator(classpath, zk_server.port)
    yield result
    result.close()


@pytest.fixture
def kazoo(zk_server):
    with zk_server.client() as client:
        yield client


@pytest.fixture
def path(request):
    """The lock of this test, a path that some application has chosen."""
    return f"/shop/{request.node.name}"


@pytest.fixture
def words(zk_server, path):
    """How dlock joins that lock."""
    return ["-u", zk_server.url, "-O", f"path={path}", "-k", "job"]


@pytest.fixture
def second_curator(classpath, zk_server):
    """Another of those services."""
    result = Curator(classpath, zk_server.port)
    yield result
    result.close()
