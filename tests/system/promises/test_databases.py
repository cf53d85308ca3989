# Goal of these tests: what holds for locks on every database alike.  `sql` is the server, pg
# or mysql, by which the parts of the check select tests (conftest.py); test_pg_*.py and
# test_mysql_*.py have what is one server's own.

import json
import os
import pathlib
import re
import shutil
import signal
import time

import pytest

from faults import IS_GONE, LEASE, LIVING_LEASE, SOON, SOON_SECONDS, STUBBORN, assert_refused
import mysql_server
import pg
from databases import a_wait_is_stretched_less, wait_for_renewals
from pg import make_directory
from proxy import BOTH, DOWN, UP
from support import At, boottime, compile_shim, is_alive, is_free, run, spent, told_at_the_end, wait_for

# Modes of locks that end with their session.
SESSION_MODES = {"pg": ["advisory", "row"], "mysql": ["row", "named"]}
MODES = {"pg": pg.MODES, "mysql": mysql_server.MODES}
# Takes all leases away, and counts them.
FORGET = {"pg": "DELETE FROM dlock.claims WHERE slot IS NOT NULL", "mysql": "DELETE FROM dlock_holds"}
COUNT = {"pg": "SELECT count(*) FROM dlock.claims WHERE slot IS NOT NULL", "mysql": "SELECT count(*) FROM dlock_holds"}
# A success of a clock that was decades ahead; and a status that none of ours has, in all rows.
AHEAD = {"pg": "INSERT INTO dlock.runs VALUES ('job', NULL, '2099-01-01', '2099-01-01', 0, 8, '{}')",
         "mysql": "INSERT INTO dlock_runs (k, ended, token, id, began, status, record) VALUES"
                  " ('job', 4102444700000000, 8, NULL, 4102444700000000, 0, '{}')"}
NO_RUN = {"pg": "ALTER TABLE dlock.runs DROP CONSTRAINT runs_status_check; UPDATE dlock.runs SET status = 999",
          "mysql": "UPDATE dlock_runs SET status = 999"}
NOW = {"pg": "SELECT extract(epoch FROM clock_timestamp())::float8", "mysql": "SELECT UNIX_TIMESTAMP(SYSDATE(6))"}

of_each_mode = pytest.mark.parametrize("sql, mode", [(sql, mode) for sql, modes in SESSION_MODES.items() for mode in modes])


@pytest.fixture(params=["pg", "mysql"])
def sql(request):
    """The server; others' fixtures follow it."""
    return request.param


@pytest.fixture
def database(request, sql):
    """A database that the test may break."""
    return request.getfixturevalue({"pg": "db", "mysql": "mysql_db"}[sql])


@pytest.fixture
def make_server(request, sql):
    """Starts servers of the test's own, with any settings."""
    return request.getfixturevalue({"pg": "make_pg", "mysql": "make_mysql"}[sql])


# ---- a lease: what is done to the data ----


def test_lost_data_are_noticed_at_release(dlock, sql, database):
    holder = dlock.hold(At(database.url), "job")
    database.ask(FORGET[sql])
    done = holder.finish()
    assert done.status == 79 and "job" in done.stderr


def test_a_success_far_ahead_hides_no_other(dlock, sql, database):
    words = At(database.url).words
    assert dlock.run("run", *words, "-k", "job", "--once", "near", "--", "true").status == 0
    database.ask(AHEAD[sql])
    assert dlock.run("status", "--done-within", "1h", *words, "job").status == 0
    seen = json.loads(dlock.run("status", "-J", *words, "job").stdout)
    assert (seen["last"]["token"], seen["last_success"]["id"]) == (8, "near")
    jobs = {o["id"]: o for o in map(json.loads, dlock.run("ls", "--jobs", "-J", *words).stdout.splitlines())}
    assert (jobs[None]["last"]["token"], jobs[None]["last_success"]["id"]) == (8, "near")


def test_a_run_that_makes_no_sense_is_not_told_as_none(dlock, sql, database):
    words = At(database.url).words
    assert dlock.run("run", *words, "-k", "job", "--once", "a", "--", "true").status == 0
    database.ask(NO_RUN[sql])
    done = dlock.run("status", "--done-within", "1h", *words, "job")
    assert done.status == 76 and done.stdout == "", done
    assert dlock.run("status", *words, "job").status == 1


def test_whose_lock_was_taken_by_force_is_told_by_whom_also_at_the_end(dlock, database):
    """No renewal comes before it."""
    holder = dlock.hold(At(database.url), "job", "-t", "1h")
    assert dlock.run("break", "-u", database.url, "-k", "job", "-y", "--force", "--who", "carol").status == 0
    done = holder.finish()
    assert done.status == 79 and "broken by carol" in done.stderr and "expired" not in done.stderr, done


def test_lost_lock_is_not_taken_again(dlock, sql, database):
    holder = dlock.hold(At(database.url), "job", *LEASE)
    database.ask(FORGET[sql])
    assert holder.wait().status == 79
    assert database.value(COUNT[sql]) == 0


# ---- a lease: its session ends ----

# How many are held of what wakes those who wait for the holder.
BELLS = {"pg": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
               " (SELECT oid FROM pg_database WHERE datname = current_database())",
         "mysql": "SELECT COUNT(IS_USED_LOCK(CONCAT('dlock:', bell))) FROM dlock_holds"}


def test_a_holder_whose_session_ends_is_back_at_once(dlock, sql, database):
    """Not with its next renewal: meanwhile a crowd may take all the room for connections that there is.

    Its bell may come only with that: a server frees what an ended session had when it gets to it.
    """
    holder = dlock.hold(At(database.url), "job", "-t", "80s")
    for _ in range(3):
        before = set(database.sessions())
        assert database.terminate() >= 1
        wait_for(lambda: set(database.sessions()) - before, 20, what="a new session")
        wait_for(lambda: before.isdisjoint(database.sessions()) and database.value(BELLS[sql]) == 1, what="its bell")
    assert holder.finish().status == 0


def test_a_holder_whose_sessions_end_soon_opens_no_end_of_them(dlock, sql, database):
    """Some proxy, or a setting of the server's, may end whatever is idle."""
    holder = dlock.hold(At(database.url), "job", "-t", "1h", "-v")
    for n in range(20):
        database.terminate()
        try:  # amid a renewal it would be one that failed, which is tried again sooner
            wait_for(lambda: holder.stderr().count("renew: ok") > n, timeout=3, what="a renewal over a new session")
        except AssertionError:
            break
    else:
        raise AssertionError("there is always another one")
    assert n > 0  # else nothing was seen
    assert holder.finish().status == 0


def test_a_holder_whose_server_is_away_asks_as_ever(dlock, make_server):
    """An attempt that fails is not made again at once, but after a pause of a quarter of a second at least."""
    server = make_server()
    holder = dlock.hold(At(server.url), "job", "-t", "1h", "-v")
    began = time.monotonic()
    server.kill()
    wait_for(lambda: re.search("renew: (?!ok)", holder.stderr()), what="an attempt that fails")
    server.start()
    assert holder.finish().status == 0
    assert holder.stderr().count("renew: ") <= 2 + (time.monotonic() - began) / 0.25, holder.stderr()


# ---- a lease: the server's clock ----


@pytest.fixture
def clock(request, sql, make_server):
    """A server whose wall clock is wrong by what is written into the file, in seconds."""
    owner = mysql_server.owner() if sql == "mysql" else None
    directory = pathlib.Path(make_directory("dlock-clock-", owner=owner))  # the server may not enter tmp_path
    request.addfinalizer(lambda: shutil.rmtree(directory, ignore_errors=True))
    file = directory / "shift"
    file.write_text("0")
    shim = compile_shim(directory, "clock", """
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <sys/time.h>
        #include <time.h>
        #include <unistd.h>
        static long shift(void)
        {
            char text[32] = "";
            int fd = open(getenv("SHIFT"), O_RDONLY);
            if (fd >= 0) {
                if (read(fd, text, sizeof text - 1) < 0)
                    text[0] = 0;
                close(fd);
            }
            return atol(text);
        }
        int clock_gettime(clockid_t id, struct timespec *t)
        {
            int rc = (int)syscall(SYS_clock_gettime, id, t);
            if (id == CLOCK_REALTIME)
                t->tv_sec += shift();
            return rc;
        }
        int gettimeofday(struct timeval *tv, void *zone)
        {
            struct timespec t;
            (void)zone;
            clock_gettime(CLOCK_REALTIME, &t);
            tv->tv_sec = t.tv_sec;
            tv->tv_usec = t.tv_nsec / 1000;
            return 0;
        }""")
    server = make_server(env={"LD_PRELOAD": shim, "SHIFT": str(file)})

    def shift(seconds):
        (directory / "new").write_text(str(seconds))
        os.rename(directory / "new", file)
        assert abs(float(server.value(NOW[sql])) - time.time() - seconds) < 60

    return server, shift


def test_server_clock_set_forward_costs_the_command(dlock, clock):
    server, shift = clock
    holder = dlock.hold(At(server.url), "job", *LEASE)
    shift(3600)
    assert is_free(dlock, server.url)  # by its clock, the lease has ended
    assert holder.wait().status == 79


def test_server_clock_set_back_changes_nothing_for_the_holder(dlock, clock):
    server, shift = clock
    holder = dlock.hold(At(server.url), "job", *LIVING_LEASE, "-v")
    waiter = dlock.contend(At(server.url), "job").queued(1)
    shift(-3600)
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.held().token > holder.token
    assert waiter.finish().status == 0
    assert is_free(dlock, server.url)


# ---- a lease: connections that break while asking ----


@pytest.mark.parametrize("direction", [UP, DOWN], ids=["request", "answer"])
def test_lock_is_free_after_a_reset_in_the_middle(dlock, database, make_proxy, direction):
    proxy = make_proxy(database.port)
    url = database.through(proxy)
    assert run(dlock, url).status == 0
    proxy.bytes = {UP: 0, DOWN: 0}
    assert run(dlock, url).status == 0
    length = proxy.bytes[direction]  # of a whole run: all that comes before the release is lost on the way
    refused = 0
    for n in range(1, length, max(1, length // 25)):
        proxy.cut(direction, n)
        done = run(dlock, url, *LEASE, "-n")
        proxy.cut(direction, 1 << 30)
        if done.status == 0:  # only the release got lost
            assert "not confirmed" in done.stderr or not done.stderr
        else:
            assert_refused(done, 69)
            refused += 1
        assert run(dlock, database.url, "-w", SOON).status == 0
    assert refused > 5


def test_lost_answer_to_a_release_is_no_lost_lock(dlock, database, make_proxy):
    """The server has released, its answer got lost, and asked again it knows of nothing: that proves no loss."""
    proxy = make_proxy(database.port)
    holder = dlock.hold(At(database.through(proxy)), "job")
    proxy.cut(DOWN, 1)  # resets at the next answer
    done = holder.finish()
    assert done.status == 0 and "the release was not confirmed" in done.stderr
    wait_for(lambda: is_free(dlock, database.url), what="a free lock")


def test_a_release_that_was_heard_but_not_answered_is_no_loss(dlock, database, make_proxy):
    """Asked again over another connection, the server knows of no hold: that proves nothing."""
    proxy = make_proxy(database.port)
    holder = dlock.contend(At(database.through(proxy)), "job").held()
    proxy.cut(DOWN, proxy.bytes[DOWN], once=True)
    done = holder.finish()
    assert done.status == 0 and "not confirmed" in done.stderr
    assert is_free(dlock, database.url)


# ---- the session ends, and the lock with it ----


@of_each_mode
def test_terminated_session_ends_the_command_at_once(dlock, database, tmp_path, mode):
    heard = tmp_path / "heard"
    holder = dlock.contend(At(database.url, mode), "job", "-t", "10m", command=("sh", "-c", STUBBORN, heard)).held()
    before = boottime()
    assert database.terminate() >= 1
    done = holder.wait()
    assert spent(before) < 90  # long before the next renewal
    assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1 and "job" in done.stderr
    assert not heard.exists()  # KILL, without TERM
    wait_for(lambda: is_free(dlock, database.url, mode=mode), 10, "the end of the session")  # its client hears of it before


@of_each_mode
def test_restart_costs_the_command(dlock, make_server, mode):
    server = make_server(safe=True)
    holder = dlock.hold(At(server.url, mode), "job", "-t", "30s")
    waiter = dlock.contend(At(server.url, mode), "job", command=("true",))
    waiter.event("waiting")
    server.restart()
    assert holder.wait().status == 79
    assert waiter.wait().status == 0
    assert waiter.token > holder.token


class Silent:
    """A holder who falls silent, and who comes after it."""

    def __init__(self, dlock, database, proxy, mode, key):
        self.proxy, self.at, self.key = proxy, At(database.url, mode), key
        self.holder = dlock.contend(At(database.through(proxy), mode), key, *LEASE).held()
        self.keeper = self.holder.keeper
        self.next = dlock.contend(self.at, key, command=("sh", "-c", IS_GONE, self.holder.command))
        self.next.event("waiting")


def test_silence_ends_the_session_as_a_lease(dlock, sql, database, make_proxy):
    """The server ends a session that says nothing for a ttl, and not before the command is dead."""
    silent = {(m, how): Silent(dlock, database, make_proxy(database.port), m, how)
              for m in SESSION_MODES[sql] for how in ("frozen", "partition")}
    before = boottime()
    for (_, how), s in silent.items():
        if how == "frozen":
            s.holder.signal(signal.SIGSTOP, "keeper")
        else:
            s.proxy.hold(*BOTH)
    for name, s in silent.items():
        assert s.next.wait().status == 0, name
        assert s.next.token > s.holder.token
    assert spent(before) < SOON_SECONDS
    for name, s in silent.items():
        s.holder.signal(signal.SIGCONT, "keeper")
        assert s.holder.wait().status == 79, name
        wait_for(lambda s=s: not is_alive(s.keeper), what="the keeper's end")
        assert dlock.run("run", *s.at.words, "-k", s.key, "-n", "--", "true").status == 0, name


# ---- waiting for such a lock ----


def test_waiters_that_are_no_more_block_for_a_lease_at_most(dlock, sql, database, make_proxy):
    """One was killed, one is behind a partition: the server looks now and then whether they still are there."""
    stories = []
    for m in SESSION_MODES[sql]:
        for how in ("killed", "partition"):
            proxy = make_proxy(database.port)
            holder = dlock.hold(At(database.url, m), how)
            lost = dlock.contend(At(database.through(proxy), m), how, *LEASE)
            lost.event("waiting")
            behind = dlock.contend(At(database.url, m), how, command=("true",))
            behind.event("waiting")
            stories.append((f"{m} {how}", proxy, holder, lost, behind))
    for name, proxy, _, lost, _ in stories:
        if "killed" in name:
            assert lost.keeper
            lost.signal(signal.SIGKILL, "keeper")
            lost.wait()
        else:
            proxy.drop(*BOTH)
    for name, _, holder, _, behind in stories:
        assert holder.finish().status == 0, name
    for name, _, _, lost, behind in stories:
        assert behind.wait().status == 0, name
        assert not lost.running


@pytest.mark.parametrize("sql, mode", [(sql, mode) for sql, modes in MODES.items() for mode in modes])
def test_a_server_that_hangs_does_not_stretch_a_wait(dlock, make_server, mode):
    server = make_server()
    at = At(server.url, mode)
    dlock.hold(at, "job", "-t", "10m")
    # 1 s for the answer, and 0.8 s to leave
    assert a_wait_is_stretched_less(4, dlock, at, 69, server)


@of_each_mode
def test_waiter_survives_a_partition(dlock, database, make_proxy, mode):
    proxy = make_proxy(database.port)
    holder = dlock.hold(At(database.url, mode), "job")
    waiter = dlock.contend(At(database.through(proxy), mode), "job", command=("true",))
    waiter.event("waiting")
    before = proxy.connections
    proxy.reset()
    wait_for(lambda: proxy.connections > before, what="the waiter's return")
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


@pytest.mark.parametrize("sql, mode", [("mysql", "row"), ("mysql", "named")])
def test_a_table_that_another_run_has_not_made_yet_is_made(dlock, database, mode):
    """Of several first runs at once one may find the first table of the other."""
    at = At(database.url, mode)
    assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0
    database.ask("DROP TABLE dlock_grants")
    done = dlock.run("run", *at.words, "-k", "job", "-n", "--", "echo", "ran")
    assert (done.status, done.stdout) == (0, "ran\n"), done


def test_modes_of_one_key_are_different_locks(dlock, sql, database):
    """As the manual says: a key's users agree on a mode."""
    holders = [dlock.contend(At(database.url, m), "job", "-n") for m in MODES[sql]]
    for holder in holders:
        holder.held()
    assert [h.finish().status for h in holders] == [0, 0, 0]
