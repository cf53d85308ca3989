# Goal of this file: the fixtures of MySQL and MariaDB.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import pytest

from mysql_server import MysqlServer, MysqlTamper
from support import SHARED, making


@pytest.fixture(scope="session")
def mysql_server():
    server = MysqlServer()
    SHARED.add(server.port)
    yield server
    server.stop()


@pytest.fixture
def make_mysql(nothing_is_left):
    """Starts servers of the test's own, with any settings."""
    yield from making(MysqlServer)


@pytest.fixture
def own_mysql(make_mysql):
    """A server that the test may break."""
    return make_mysql()


@pytest.fixture
def mysql_db(mysql_server, nothing_is_left):
    """A database on the shared server, which the test may break."""
    result = mysql_server.database()
    yield result
    result.drop()


@pytest.fixture
def make_mysql_tamper():
    """Proxies that change what a MariaDB server says."""
    yield from making(MysqlTamper, "close")
