# Goal of these tests: locks on PostgreSQL are kept through what happens to databases
# (administrators, restarts, fail-over, clocks), and what is lost costs the command.  All of
# it holds for the default mode, a lease in a table; pg/test_modes.py has the other ones.

import time

import pytest

from databases import wait_for_renewals
from faults import IS_GONE, LEASE, STUBBORN
from pg import DB, USER
from support import At, is_free, run, told_at_the_end, wait_for


# ---- holding: a server that is there ----


def test_terminated_session_leaves_the_command_alone(dlock, db):
    """A lease is no session."""
    holder = dlock.hold(At(db.url), "job", "-t", "30s", "-v")
    assert db.terminate() >= 1
    wait_for_renewals(holder)
    assert run(dlock, db.url, "-n").status == 75
    assert holder.finish().status == 0
    assert not holder.events("suspect")
    assert is_free(dlock, db.url)


# ---- holding: what is done to the data ----

TAMPERED = {
    "deleted": ["DELETE FROM dlock.claims WHERE slot IS NOT NULL"],
    "truncated": ["TRUNCATE dlock.claims"],
    "everything-deleted": ["DELETE FROM dlock.claims"],
    "dropped": ["DROP TABLE dlock.claims CASCADE"],
    "schema-dropped": ["DROP SCHEMA dlock CASCADE"],
    "another-owner": ["UPDATE dlock.claims SET owner = repeat('f', 32)"],
    "expired": ["UPDATE dlock.claims SET ends = clock_timestamp() - interval '1 hour'"],
}


def tamper_with(database, statements):
    for sql in statements:
        database.ask(sql)


def test_a_dropped_function_is_no_lost_lock(dlock, db):
    """The row is there, and nobody can be granted the key: the lease runs on, and is renewed when the function is back."""
    holder = dlock.hold(At(db.url), "job", "-t", "20s")
    db.ask("ALTER FUNCTION dlock.renew RENAME TO renew_away")
    holder.event("suspect")
    db.ask("ALTER FUNCTION dlock.renew_away RENAME TO renew")
    holder.event("trusted")
    db.ask("DROP FUNCTION dlock.release_alone")
    done = holder.finish()
    assert done.status == 0 and "not confirmed" in done.stderr and "pg-schema" in done.stderr, done


def test_no_functions_at_all_cost_the_command_at_the_end_of_its_lease(dlock, db):
    holder = dlock.hold(At(db.url), "job", *LEASE)
    db.ask("DROP FUNCTION dlock.renew")
    done = holder.wait()
    # the last attempt, on a busy machine, may say that the server does not answer
    assert done.status == 79 and "pg-schema" in done.stderr + str(holder.events("suspect")), done
    wait_for(lambda: db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NOT NULL") == 0, 10, "it to be given back")


def test_lost_data_cost_the_command(dlock, make_db):
    holders = {}
    for name in TAMPERED:
        database = make_db()
        holders[name] = database, dlock.contend(At(database.url), "job", *LEASE)
    for name, (database, holder) in holders.items():
        holder.held()
        tamper_with(database, TAMPERED[name])
        if name == "expired":  # it is not lost while nobody else has it
            assert run(dlock, database.url, "-n").status == 0
    for name, (database, holder) in holders.items():
        done = holder.wait()
        assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1, name
        if name == "dropped":
            database.ask("DROP SCHEMA dlock CASCADE")
        if name != "another-owner":
            assert is_free(dlock, database.url), name


def test_nothing_is_left_of_locks_that_were_released(dlock, db):
    for n in range(5):
        holder = dlock.hold(At(db.url), f"key{n}")
        waiter = dlock.contend(At(db.url), f"key{n}", command=("true",)).queued(1)
        assert holder.finish().status == 0 and waiter.wait().status == 0
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NOT NULL") == 0
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NULL") == 0


# ---- restarts and fail-over ----


def test_a_grant_is_on_disk_before_the_command_runs(dlock, make_pg):
    """Even where commits are told not to wait for it."""
    server = make_pg(safe=True, synchronous_commit="off", wal_writer_delay="10s")
    run(dlock, server.url)
    first = dlock.hold(At(server.url), "job")
    server.restart()
    assert run(dlock, server.url, "-n").status == 75
    waiter = dlock.contend(At(server.url), "job").queued(1)
    assert first.finish().status == 0
    token = waiter.held().token
    server.restart()
    assert run(dlock, server.url, "-n").status == 75  # so is the grant of one who waited
    assert waiter.finish().status == 0
    assert first.token < token


def test_numbers_are_on_disk_before_they_are_told(dlock, make_pg):
    """Those that are drawn outside a grant of the default mode too."""
    server = make_pg(safe=True, synchronous_commit="off", wal_writer_delay="10s")
    run(dlock, server.url)
    server.ask("CHECKPOINT")
    drawn = server.value("SELECT max(dlock.number()) FROM generate_series(1, 100)")
    server.restart()
    assert server.value("SELECT dlock.number()") > drawn


@pytest.fixture
def fleet(make_pg, request):
    """A primary and its synchronous standby."""
    primary = make_pg(safe=True)
    standby = primary.standby()
    request.addfinalizer(standby.stop)
    return primary, standby


def test_promotion_keeps_the_lock(dlock, fleet):
    """The primary dies; the standby, which has every acknowledged write, goes on as the server."""
    primary, standby = fleet
    url = f"postgresql://{USER}@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/{DB}"
    run(dlock, url)
    holder = dlock.hold(At(url), "job", "-t", "12s", "-v")
    waiter = dlock.contend(At(url), "job", "-t", "12s", command=("true",)).queued(1)
    primary.kill()
    time.sleep(1)  # all that they find is a standby
    standby.promote()
    wait_for_renewals(holder)
    assert run(dlock, standby.url, "-n").status == 75
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    last = dlock.hold(At(standby.url), "job")
    assert holder.token < waiter.token < last.token


def test_old_primary_keeps_nobody(dlock, fleet, tmp_path):
    """The standby is promoted while the primary lives: whoever sees the old one only has lost."""
    primary, standby = fleet
    run(dlock, primary.url)
    holder = dlock.contend(At(primary.url), "job", *LEASE, command=("sh", "-c", STUBBORN, tmp_path / "heard")).held()
    standby.promote()
    next_ = dlock.contend(At(standby.url), "job", command=("sh", "-c", IS_GONE, holder.command))
    assert holder.wait().status == 79
    assert next_.wait().status == 0
    assert next_.token > holder.token


def waiting_for_a_standby(server):
    """(process, start of its statement) of whoever does."""
    return server.ask("SELECT pid, query_start FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


def test_a_grant_that_its_standby_does_not_have_is_none(dlock, fleet):
    """An administrator cancels the wait for it; the server then says that all is well, and a warning."""
    primary, standby = fleet
    run(dlock, primary.url)
    standby.pause()
    starter = dlock.contend(At(primary.url), "job", "-O", "connect-timeout=60s")
    first = wait_for(lambda: waiting_for_a_standby(primary), what="a commit")
    primary.ask("SELECT pg_cancel_backend(%s)", first[0][0])
    wait_for(lambda: starter.running or waiting_for_a_standby(primary) not in ([], first), what="another one")
    assert not starter.running
    standby.resume()
    assert starter.held().finish().status == 0


def test_a_release_that_its_standby_does_not_have_is_no_loss(dlock, fleet):
    """It is asked for again, and finds what its own first question has done."""
    primary, standby = fleet
    run(dlock, primary.url)
    holder = dlock.contend(At(primary.url), "job", "--once", "a", "-t", "30s", "-O", "connect-timeout=60s", command=("cat",)).held()
    standby.pause()
    holder.popen.stdin.close()
    first = wait_for(lambda: waiting_for_a_standby(primary), what="the commit of the release")
    primary.ask("SELECT pg_cancel_backend(%s)", first[0][0])
    wait_for(lambda: holder.poll() is not None or waiting_for_a_standby(primary) != first, what="another one")
    standby.resume()
    done = holder.wait()
    assert done.status == 0, done
    assert dlock.run("run", "-u", primary.url, "-k", "job", "--once", "a", "--", "echo", "ran").stdout == ""
