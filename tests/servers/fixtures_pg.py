# Goal of this file: the fixtures of PostgreSQL.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import pytest

from pg import PgBouncer, PgServer, Tamper
from support import SHARED, making


@pytest.fixture(scope="session")
def pg_server():
    server = PgServer()
    server.keep()
    SHARED.add(server.port)
    yield server
    server.stop()


@pytest.fixture
def make_pg(nothing_is_left):
    """Starts servers of the test's own, with any settings."""
    yield from making(PgServer)


@pytest.fixture
def own_pg(make_pg):
    """A server that the test may break."""
    return make_pg()


@pytest.fixture
def make_db(pg_server, nothing_is_left):
    """Makes databases on the shared server."""
    yield from making(pg_server.database, "drop")


@pytest.fixture
def db(make_db):
    """A database that the test may break."""
    return make_db()


@pytest.fixture
def make_pooler(nothing_is_left):
    """Starts poolers in front of a server."""
    yield from making(PgBouncer)


@pytest.fixture
def make_tamper():
    """Proxies that change what a PostgreSQL server says."""
    yield from making(Tamper, "close")
