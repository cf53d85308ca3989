# Goal of these tests: a standby of PostgreSQL is known by what it reports of
# itself, whatever libpq was told to look for, and left for a host behind it.

import socket
import time

import pytest

from faults import assert_refused
from pg import DB, USER, pg_url
from proxy import DOWN
from strangers import stranger
from support import free_port, run


def of_hosts(*ports, extra=""):
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://{USER}@{hosts}/{DB}?sslmode=disable{extra}"


@pytest.fixture(scope="module", name="standby")
def a_standby(pg_server):
    """One of the server of all tests, that no test breaks."""
    result = pg_server.standby(synchronous=False)
    yield result
    result.stop()


@pytest.fixture(name="quiet")
def a_host_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(name="before_14")
def a_server_before_14(make_tamper):
    """A server in front of the one on a port: it does not report whether it is a standby, and must be asked."""
    def change(kind, body):
        if kind == b"S" and body.startswith(b"in_hot_standby\0"):
            return []
        if kind == b"S" and body.startswith(b"server_version\0"):
            body = b"server_version\x0013.9\0"
        return [(kind, body)]

    return lambda port: make_tamper(port, change, early=True).port


@pytest.mark.parametrize("wanted", ["any", "primary", "read-write", "standby", "prefer-standby"])
def test_a_standby_is_refused_whatever_is_wanted_of_it(dlock, standby, wanted):
    done = run(dlock, standby.url + f"?target_session_attrs={wanted}", "-n")
    assert_refused(done, 78, "standby", "primary")


@pytest.mark.parametrize("wanted", ["", "&target_session_attrs=any", "&target_session_attrs=primary",
                                    "&target_session_attrs=read-write"])
def test_a_standby_is_left_for_the_primary(dlock, pg_server, standby, wanted):
    for ports in ((standby.port, pg_server.port), (pg_server.port, standby.port),
                  (standby.port, standby.port, free_port(), pg_server.port)):
        done = run(dlock, of_hosts(*ports, extra=wanted), "-n")
        assert (done.status, done.stdout, done.stderr) == (0, "ran\n", "")


def test_where_all_are_standbys_no_primary_is_waited_for(dlock, standby):
    assert_refused(run(dlock, of_hosts(standby.port, standby.port)), 78, "standby", "primary")


def test_where_some_host_is_away_it_may_be_the_primary(dlock, standby):
    for ports in ((standby.port, free_port()), (free_port(), standby.port, standby.port)):
        assert_refused(run(dlock, of_hosts(*ports), "-n"), 69)


def test_each_host_is_told_of_where_they_failed_otherwise(dlock, pg_server, standby, quiet):
    """libpq writes a line for each, and what it says of one that it had to leave goes with that one's connection."""
    away = free_port()
    for ports, says in (
            ((away, pg_server.port), [f"Connection refused (127.0.0.1:{away})", f'role "nobody9" does not exist (127.0.0.1:{pg_server.port})']),
            ((quiet, away), [f"no answer (127.0.0.1:{quiet}), Connection refused (127.0.0.1:{away})"]),
            ((away, quiet, away), [f"Connection refused (127.0.0.1:{away}), no answer (127.0.0.1:{quiet}), Connection refused"])):
        done = run(dlock, of_hosts(*ports).replace(f"{USER}@", "nobody9@"), "-n", "-t", "6s")
        assert_refused(done, 69, "cannot reach pg 127.0.0.1,", *says)
    done = run(dlock, of_hosts(standby.port, away), "-n")
    assert_refused(done, 69, f"it is a standby (127.0.0.1:{standby.port}), Connection refused (127.0.0.1:{away})")


def test_hosts_that_failed_alike_are_one(dlock):
    ports = free_port(), free_port()
    done = run(dlock, of_hosts(*ports), "-n")
    assert_refused(done, 69, f"cannot reach pg 127.0.0.1,127.0.0.1:{ports[0]},{ports[1]}/{DB}: Connection refused; ")


def test_a_server_that_does_not_report_it_is_asked(dlock, pg_server, standby, before_14):
    old_primary, old_standby = before_14(pg_server.port), before_14(standby.port)
    assert_refused(run(dlock, of_hosts(old_standby), "-n"), 78, "standby", "primary")
    for ports in ((old_primary,), (old_standby, old_primary), (old_standby, pg_server.port)):
        done = run(dlock, of_hosts(*ports), "-n")
        assert (done.status, done.stdout, done.stderr) == (0, "ran\n", "")


def test_a_slow_server_behind_a_stranger_is_none(dlock, pg_server, make_tamper):
    """It has said something already, so it is not asked what it is."""
    late = []

    def tap(link, direction, data):
        if direction == DOWN and not late:
            link.client.sendall(data[:9])
            late.append(time.sleep(0.8))
            data = data[9:]
        return data

    slow = make_tamper(pg_server.port, None)
    slow.tap = tap
    with stranger("Redis") as port:
        done = run(dlock, of_hosts(port, slow.port), "-n")
        assert (done.status, done.stdout, done.stderr, len(late)) == (0, "ran\n", "", 1)


def test_a_server_that_hangs_when_it_is_asked(dlock, pg_server, make_tamper):
    """No answer is no reason to hang along, nor to take it for a primary."""
    ready = []

    def change(kind, body):
        if kind == b"S" and body.startswith(b"in_hot_standby\0") or ready:
            return []
        ready.extend([kind] if kind == b"Z" else [])
        return [(kind, body)]

    url = pg_url(make_tamper(pg_server.port, change, early=True).port, extra="?sslmode=disable")
    assert_refused(run(dlock, url, "-w", "2s"), 69)
