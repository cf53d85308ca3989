# Goal of these tests: leases on MariaDB are kept through what happens to databases
# (administrators, restarts, clocks, wires), and what is lost costs the command.  All of it
# holds for the default mode, a lease in a table; mysql/test_modes.py has the other ones.

import time

import pytest

from databases import wait_for_renewals
from faults import IS_GONE, LEASE, PATIENT, STUBBORN
from mysql_server import mysql_url
from proxy import DOWN, UP
from support import At, is_free, run, told_at_the_end, wait_for


# ---- holding: a server that is there ----


def test_terminated_session_leaves_the_command_alone(dlock, mysql_db):
    """A lease is no session."""
    holder = dlock.hold(At(mysql_db.url), "job", "-t", "30s", "-v")
    waiter = dlock.contend(At(mysql_db.url), "job", command=("true",)).queued(1)
    assert mysql_db.terminate() >= 2
    wait_for_renewals(holder)
    assert run(dlock, mysql_db.url, "-n").status == 75
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert not holder.events("suspect")
    assert is_free(dlock, mysql_db.url)


# ---- holding: what is done to the data ----

TAMPERED = {
    "deleted": ["DELETE FROM dlock_holds"],
    "truncated": ["TRUNCATE dlock_holds"],
    "everything-deleted": ["DELETE FROM dlock_holds", "DELETE FROM dlock_keys", "DELETE FROM dlock_waiters"],
    "dropped": ["DROP TABLE dlock_holds"],
    "another-owner": ["UPDATE dlock_holds SET owner = REPEAT('f', 32)"],
    "expired": ["UPDATE dlock_holds SET ends = since"],
}


def test_a_dropped_procedure_is_no_lost_lock(dlock, mysql_db):
    """The row is there, and nobody can be granted the key: the lease runs on, and is renewed when the procedure is back."""
    assert run(dlock, mysql_db.url).status == 0
    dropped = mysql_db.ask("SHOW CREATE PROCEDURE dlock_renew_3")[0][2]
    holder = dlock.hold(At(mysql_db.url), "job", "-t", "20s")
    mysql_db.ask("DROP PROCEDURE dlock_renew_3")
    holder.event("suspect")
    mysql_db.ask(dropped)
    holder.event("trusted")
    mysql_db.ask("DROP PROCEDURE dlock_release_3")
    done = holder.finish()
    assert done.status == 0 and "not confirmed" in done.stderr and "mysql-schema" in done.stderr, done


def test_no_procedures_at_all_cost_the_command_at_the_end_of_its_lease(dlock, mysql_db):
    holder = dlock.hold(At(mysql_db.url), "job", *LEASE)
    mysql_db.ask("DROP PROCEDURE dlock_renew_3")
    done = holder.wait()
    assert done.status == 79 and "mysql-schema" in done.stderr, done
    wait_for(lambda: not mysql_db.ask("SELECT 1 FROM dlock_holds WHERE k = 'job'"), 10, "it to be given back")


def test_lost_data_cost_the_command(dlock, mysql_server, request):
    holders = {}
    for name in TAMPERED:
        database = mysql_server.database()
        request.addfinalizer(database.drop)
        holders[name] = database, dlock.contend(At(database.url), "job", *LEASE, *PATIENT)
    for name, (database, holder) in holders.items():
        holder.held()
        for sql in TAMPERED[name]:
            database.ask(sql)
        if name == "expired":
            assert run(dlock, database.url, "-n").status == 0
    for name, (database, holder) in holders.items():
        done = holder.wait()
        assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1, name
        if name != "another-owner":
            assert is_free(dlock, database.url), name


def test_nothing_is_left_of_locks_that_were_released(dlock, mysql_db):
    for n in range(5):
        holder = dlock.hold(At(mysql_db.url), f"key{n}")
        waiter = dlock.contend(At(mysql_db.url), f"key{n}", command=("true",)).queued(1)
        assert holder.finish().status == 0 and waiter.wait().status == 0
    assert mysql_db.value("SELECT (SELECT count(*) FROM dlock_holds) + (SELECT count(*) FROM dlock_waiters)") == 0
    wait_for(lambda: not mysql_db.sessions(), what="the end of all sessions")


def test_somebody_who_keeps_the_rows_locked_costs_no_more_than_the_lease(dlock, mysql_db):
    """A dump, or a forgotten transaction: renewals wait, and are asked for again."""
    holder = dlock.hold(At(mysql_db.url), "job", "-t", "9s", "-v")
    c = mysql_db.connect()
    with c.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT * FROM dlock_holds FOR UPDATE")
        wait_for(lambda: "(1205)" in holder.stderr() or "does not answer" in holder.stderr(), what="a renewal in vain")
        cursor.execute("ROLLBACK")
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    c.close()


# ---- restarts ----


def test_a_lease_survives_the_crash_of_its_server(dlock, make_mysql):
    """What was acknowledged is there again, whoever waits keeps its place, and tokens grow."""
    server = make_mysql(safe=True)
    holder = dlock.hold(At(server.url), "job", "-t", "9s", "-v")
    waiters = [dlock.contend(At(server.url), "job", "-t", "9s", command=("true",)).queued(n) for n in (1, 2)]
    server.restart()
    wait_for_renewals(holder)
    wait_for(lambda: server.asleep() == 2, what="the waiters, of whom one that is away is overtaken")
    assert run(dlock, server.url, "-n").status == 75
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0]
    assert holder.token < waiters[0].token < waiters[1].token < dlock.hold(At(server.url), "job").token


def test_a_frozen_server_is_waited_for_as_long_as_the_lease(dlock, own_mysql, tmp_path):
    holder = dlock.contend(At(own_mysql.url), "job", *LEASE, command=("sh", "-c", STUBBORN, tmp_path / "heard")).held()
    next_ = dlock.contend(At(own_mysql.url), "job", "-w", "1m", command=("sh", "-c", IS_GONE, holder.command)).queued(1)
    own_mysql.pause()
    assert holder.wait().status == 79
    own_mysql.resume()
    assert next_.wait().status == 0


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_wire_that_is_cut_in_one_direction(dlock, mysql_db, make_proxy, direction):
    """Requests that do not arrive, answers that do not: the command ends in time, and the next one runs after it."""
    proxy = make_proxy(mysql_db.port)
    at = At(mysql_url(proxy.port, db=mysql_db.name))
    holder = dlock.contend(at, "job", *LEASE, command=("sleep", "1000")).held()
    next_ = dlock.contend(At(mysql_db.url), "job", command=("sh", "-c", IS_GONE, holder.command)).queued(1)
    proxy.drop(direction)
    assert holder.wait().status == 79
    assert next_.wait().status == 0


def test_late_answers_are_never_taken_for_others(dlock, mysql_db, make_proxy):
    """Each comes after its renewal was given up."""
    proxy = make_proxy(mysql_db.port)
    holder = dlock.hold(At(mysql_url(proxy.port, db=mysql_db.name)), "job", "-t", "9s", "-v")
    proxy.hold(DOWN)
    wait_for(lambda: "does not answer" in holder.stderr(), what="a renewal in vain")
    proxy.heal()
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert is_free(dlock, mysql_db.url)


# ---- the server's clock ----


def test_time_zones_of_server_and_summer_time_do_not_matter(dlock, make_mysql):
    """Sessions of others may have any; leases are counted in microseconds since 1970."""
    server = make_mysql(default_time_zone="-11:30")
    before = time.time()
    holder = dlock.hold(At(server.url), "job")
    since, ends = server.ask("SELECT since, ends FROM dlock_holds", db="app")[0]
    assert before - 1 < since / 1e6 < time.time() + 1 and ends - since == 30_000_000
    assert holder.finish().status == 0
