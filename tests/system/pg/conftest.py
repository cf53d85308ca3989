# Goal of this file: roles of PostgreSQL.

import pytest

from pg import pg_url


@pytest.fixture
def worker(db):
    """A role that may enter the database, and no more."""
    db.ask("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    db.ask(f"REVOKE ALL ON DATABASE {db.name} FROM PUBLIC")
    db.ask("CREATE ROLE worker LOGIN")
    db.ask(f"GRANT CONNECT ON DATABASE {db.name} TO worker")
    yield pg_url(db.server.port, "worker", db.name)
    db.drop()
    db.server.ask("DROP ROLE worker", db="postgres")
