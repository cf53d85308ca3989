# Goal of these tests: whatever a PostgreSQL server or a pooler in front of it says,
# whenever, and wherever the connection breaks: nonsense and errors are reported as what they
# were, and grant nothing.

import contextlib
import json
import signal
import subprocess
import threading

import psycopg2
import pytest

from databases import wait_for_renewals
from faults import IMPATIENT, LEASE, LIVING_LEASE, UntilTold, assert_goes_on, assert_password_is_not_shown, assert_refused
from pg import ADVISORY, DB, MODES, USER, columns, data_row, error, message, pg_url
from proxy import DOWN, UP
from support import DLOCK, At, boottime, children_of, compile_shim, is_free, kill, run, told_at_the_end, wait_for

# What the server has done all the same may stay for a lease: no key of other tests on that server.
LEFT = "left"
SCREEN = "\x1b[2J\x1b]52;c;cm0=\x07"


# ---- at the start: what a server says ----

STATES = {
    "08006": 69, "08P01": 69, "53200": 69, "53300": 69, "53400": 69, "57P01": 69, "57P02": 69, "57P03": 69,
    "28000": 77, "28P01": 77, "42501": 77,
    "25006": 78, "3D000": 78, "22P02": 78,
    "42601": 76,
    "54000": 69, "XX000": 69, "ZZ999": 69,  # full; and what nobody has foreseen
    "40001": (69, 76), "40P01": (69, 76),  # asked again a few times before
}


def failing_with(state, text="not now"):
    """Every result is this error instead."""
    def change(kind, body):
        if kind == b"T":
            return [(b"E", error(state, text))]
        return [] if kind in (b"D", b"C") else [(kind, body)]
    return change


@pytest.mark.parametrize("state, status", STATES.items())
def test_errors_have_their_status(dlock, pg_server, make_tamper, state, status):
    assert run(dlock, pg_server.url).status == 0  # the schema is there
    change = failing_with(state, f"no such thing{SCREEN} as luck\nand more")
    done = run(dlock, make_tamper(pg_server.port, change).url(), "-n", key=LEFT)
    assert done.status in (status if isinstance(status, tuple) else (status,))
    assert_refused(done, done.status, *(["GRANT"] if state == "42501" else ["\\x1B", "no such thing"]))
    assert "and more" not in done.stderr


@pytest.mark.parametrize("state, status", [("57P03", 69), ("53300", 69), ("28000", 77), ("3D000", 78)])
def test_errors_at_the_door_have_their_status(dlock, pg_server, make_tamper, state, status):
    def change(kind, body):
        return [(b"E", error(state, f"go away{SCREEN}", "FATAL"))] if kind == b"R" else []

    done = run(dlock, make_tamper(pg_server.port, change, early=True).url(), *IMPATIENT)
    assert_refused(done, status, "go away", "\\x1B")


@pytest.mark.parametrize("early", [True, False], ids=["at-the-door", "later"])
def test_a_password_that_a_server_repeats_is_not_shown(dlock, pg_server, make_tamper, early):
    assert run(dlock, pg_server.url).status == 0  # the schema is there
    text = "no luck with c0rrect-h@rse!, as c0rrect-h%40rse!"
    refusal = (b"E", error("28P01", text, "FATAL"))
    change = (lambda kind, body: [refusal] if kind == b"R" else []) if early else failing_with("XX000", text)
    url = make_tamper(pg_server.port, change, early=early).url().replace("app@", "app:c0rrect-h%40rse!@", 1)
    done = run(dlock, url, "-n", key=LEFT)
    assert_refused(done, 77 if early else 69, "no luck with ***, as ***")


def test_a_password_in_what_others_have_said_is_not_shown(dlock, db):
    assert_password_is_not_shown(dlock, db.url.replace("app@", "app:c0rrect-h%40rse!@", 1), "c0rrect-h@rse!")


def each_row(change):
    """Rows are what `change` makes of their columns: a list of rows."""
    return lambda kind, body: [(b"D", data_row(r)) for r in change(columns(body))] if kind == b"D" else [(kind, body)]


NONSENSE = {
    "no-row": each_row(lambda row: []),
    "two-rows": each_row(lambda row: [row, row]),
    "nulls": each_row(lambda row: [[None] * len(row)]),
    "empty": each_row(lambda row: [[b""] * len(row)]),
    "words": each_row(lambda row: [[b"hello"] * len(row)]),
    "nuls": each_row(lambda row: [[b"t\0"] * len(row)]),
    "negative": each_row(lambda row: [[b"-1"] * len(row)]),
    "huge": each_row(lambda row: [[b"9" * 30] * len(row)]),
    "floats": each_row(lambda row: [[b"1.7e15"] * len(row)]),
    "large": each_row(lambda row: [[b"x" * 100000] * len(row)]),
    "one-column-less": each_row(lambda row: [row[:-1]]),
    "no-result": lambda kind, body: [] if kind in (b"T", b"D") else [(kind, body)],
    "no-end": lambda kind, body: [] if kind == b"Z" else [(kind, body)],
    "copy": lambda kind, body: [(b"G", b"\0\0\0")] if kind == b"T" else [] if kind in (b"D", b"C") else [(kind, body)],
    "unknown-message": lambda kind, body: [(b"!", b"?"), (kind, body)] if kind == b"D" else [(kind, body)],
}


@pytest.mark.parametrize("mode", ["lease", "advisory"])
@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_runs_nothing(dlock, db, make_tamper, change, mode):
    run(dlock, db.url, mode=mode)
    tamper = make_tamper(db.server.port, change)
    done = run(dlock, tamper.url(db.name), *IMPATIENT, mode=mode)
    assert done.status in (69, 76, 77, 78)
    assert_refused(done, done.status)


def test_a_password_in_the_last_words_of_a_session_is_not_shown(dlock, db, make_tamper):
    text = "no luck with c0rrect-h@rse!, as c0rrect-h%40rse!"

    def change(kind, body):
        return [(b"E", error("57P01", text, "FATAL"))] if kind == b"E" and b"57P01" in body else [(kind, body)]

    url = make_tamper(db.port, change).url(db.name).replace("app@", "app:c0rrect-h%40rse!@", 1)

    def are_told():
        holder = dlock.hold(At(url, "advisory"), "job", "-t", "10m")
        assert db.terminate() >= 1
        done = holder.wait()
        assert done.status == 79 and "rse!" not in done.stderr, done
        return "no luck with ***, as ***" in done.stderr

    assert any(are_told() for _ in range(3))  # not by a keeper that is late by a fifth of a second


SLOW_STOP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
int kill(pid_t pid, int sig)
{
	if (sig == SIGSTOP)
		usleep(700000);
	return ((int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill"))(pid, sig);
}
"""


def test_the_server_s_last_words_are_told_also_if_the_tree_is_killed_slowly(dlock, db, tmp_path):
    """The keeper has said why before: a front that is impatient takes that over, and blames nobody."""
    words = At(db.url, "advisory").words
    shim = compile_shim(tmp_path, "slow", SLOW_STOP)

    def are_told():
        holder = dlock.start("run", *words, "-k", "job", "-t", "10m", "--", "sleep", "60", env={"LD_PRELOAD": shim}).held()
        assert db.terminate() >= 1
        done = holder.wait()
        assert done.status == 79, done
        return "terminating connection" in done.stderr and "react" not in done.stderr

    assert any(are_told() for _ in range(3))  # not by a keeper that is late by a fifth of a second


def test_notices_are_not_printed(dlock, pg_server, make_tamper):
    notice = (b"N", error("01000", f"look here{SCREEN}", "WARNING"))

    def change(kind, body):
        return [notice] * 2000 + [(kind, body)]

    done = run(dlock, make_tamper(pg_server.port, change).url(), "-v", "-O", "connect-timeout=60s")
    assert (done.status, done.stdout) == (0, "ran\n")
    assert "look" not in done.stderr and "\x1b" not in done.stderr


def parameter(name, value):
    """Lies about a parameter of the server."""
    def change(kind, body):
        if kind == b"S" and body.startswith(name.encode() + b"\0"):
            body = f"{name}\0{value}\0".encode()
        return [(kind, body)]
    return change


def test_a_crowd_where_transactions_are_serializable(dlock, db):
    """They lose races against each other, which nobody needs to know."""
    db.ask(f"ALTER DATABASE {db.name} SET default_transaction_isolation = 'serializable'")
    holder = dlock.hold(At(db.url), "job")
    crowd = [dlock.contend(At(db.url), "job", "-w", "60s", command=("true",)) for _ in range(20)]
    for waiter in crowd:
        waiter.queued()
    assert holder.finish().status == 0
    assert [w.wait().status for w in crowd] == [0] * 20
    said = [line for w in crowd for line in w.stderr().splitlines()]  # who waits for 3 s is told that
    assert [line for line in said if not line.startswith(("dlock: waiting ", "dlock: got "))] == []


def test_a_server_of_another_encoding_or_style(dlock, make_db):
    """What a database or role sets for itself changes nothing."""
    database = make_db()
    settings = {"datestyle": "German", "timezone": "Pacific/Apia", "extra_float_digits": -5, "bytea_output": "escape",
                "intervalstyle": "sql_standard", "standard_conforming_strings": "off", "client_encoding": "LATIN1",
                "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
                "statement_timeout": "3s", "lock_timeout": "50ms", "row_security": "off", "lc_monetary": "C",
                "plan_cache_mode": "force_generic_plan", "search_path": '"$user", nowhere'}
    for name, value in settings.items():
        value = value if name == "search_path" else f"'{value}'"
        database.ask(f"ALTER DATABASE {database.name} SET {name} = {value}")
    key = "schlüssel"
    holder = dlock.hold(At(database.url), key, "--why", "größer", *LIVING_LEASE, "-v")
    waiter = dlock.contend(At(database.url), key, command=("true",)).queued(1)
    wait_for_renewals(holder)
    assert json.loads(waiter.event("waiting")["holder"])["why"] == "größer"
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_database_that_lacks_letters(dlock, db, mode):
    """Where it is not in Unicode: what it cannot store is refused, not mangled."""
    db.drop()
    db.server.ask(f"CREATE DATABASE {db.name} OWNER {USER} TEMPLATE template0 ENCODING LATIN1", db="postgres")
    at = At(db.url, mode)
    holder = dlock.hold(at, "schlüssel", "--why", "größer")
    assert dlock.run("run", *at.words, "-k", "schlüssel", "-n", "--", "true").status == 75
    assert holder.finish().status == 0
    done = dlock.run("run", *at.words, "-k", "ключ", "-n", "--", "echo", "ran")
    if mode != "advisory" or done.status != 0:  # which is a number to the server
        assert_refused(done, 78)


def test_a_database_that_is_read_only_by_default(dlock, db):
    """The setting is a default, which dlock either overrides or names; the lock is never half there."""
    db.ask(f"ALTER DATABASE {db.name} SET default_transaction_read_only = on")
    done = run(dlock, db.url)
    if done.status != 0:
        assert_refused(done, 78, "read-only")


@pytest.mark.parametrize("mode, version, word", [("advisory", "13.9", "14"), ("lease", "9.4.26", "older")])
def test_servers_that_are_too_old(dlock, pg_server, make_tamper, mode, version, word):
    """Before 14, the server does not end idle sessions."""
    tamper = make_tamper(pg_server.port, parameter("server_version", version), early=True)
    assert_refused(run(dlock, tamper.url(), mode=mode), 78, word)


# ---- holding: what a server says ----


def test_passing_errors_do_not_end_the_command(dlock, db, make_tamper):
    """Of a renewal; the next one succeeds."""
    run(dlock, db.url)
    holders = {}
    for state in STATES:
        failing = UntilTold()

        def change(kind, body, fail=failing_with(state), failing=failing):
            if kind in (b"T", b"Z"):
                failing.decide()
            return fail(kind, body) if failing.on else [(kind, body)]

        url = make_tamper(db.server.port, change).url(db.name)
        holders[state] = dlock.hold(At(url), state, *LIVING_LEASE)
        failing.begin(holders[state])
    for holder in holders.values():
        holder.event("trusted")
    for state, holder in holders.items():
        assert_goes_on(holder, state)


def test_lasting_errors_end_the_command(dlock, db, make_tamper):
    """As does nonsense, which is no renewal."""
    run(dlock, db.url)
    changes = {state: failing_with(state) for state in ("25006", "42501", "57P03", "XX000", "40001")}
    changes.update((name, change) for name, change in NONSENSE.items() if name != "unknown-message")
    holders = {}
    for name, change in changes.items():
        lying = threading.Event()

        def now_and_then(kind, body, change=change, lying=lying):
            return change(kind, body) if lying.is_set() else [(kind, body)]

        url = make_tamper(db.server.port, now_and_then).url(db.name)
        holders[name] = dlock.hold(At(url), name, *LEASE)
        lying.set()
    for name, holder in holders.items():
        done = holder.wait()
        assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1), name


# ---- connections that break while asking ----


def test_lost_answer_is_withdrawn(dlock, db, make_proxy):
    """The request arrives, its answer does not: what it took is given back."""
    run(dlock, db.url)
    proxy = make_proxy(db.server.port)
    deaf = lose_first_answer(proxy)
    done = run(dlock, pg_url(proxy.port, db=db.name), *IMPATIENT)
    assert_refused(done, 69)
    assert deaf
    assert is_free(dlock, db.url)


def lose_first_answer(proxy):
    """Of the first connection that asks for something of dlock's; returns a list which that one is put into."""
    deaf = []

    def rewrite(link, direction, data):
        if direction == UP and not deaf and b"dlock." in data:
            deaf.append(link)
        return b"" if direction == DOWN and link in deaf else data

    proxy.tap = rewrite
    return deaf


def test_an_answer_that_has_come_in_time_is_taken_however_late(dlock, db, make_proxy):
    """The keeper is stopped meanwhile, as a whole machine may be."""
    assert is_free(dlock, db.url)
    proxy, started, stopped, answered = make_proxy(db.port), [], [], []

    def tap(_, direction, data):
        if direction == UP and b"dlock.take(" in data:
            stopped[:] = wait_for(lambda: started and children_of(started[0].pid))
            kill(stopped[0], signal.SIGSTOP)
        elif direction == DOWN and stopped:
            answered.append(boottime())
        return data

    proxy.tap = tap
    url = pg_url(proxy.port, db=db.name, extra="?sslmode=disable")
    started.append(dlock.start("run", "-u", url, "-O", "connect-timeout=2s", "-k", "job", "-n", "--", "echo", "ran"))
    wait_for(lambda: answered and boottime() - answered[-1] > 2.5, what="the answer, and more than the time for it")
    kill(stopped[0], signal.SIGCONT)
    done = started[0].wait()
    assert (done.status, done.stdout) == (0, "ran\n"), done


# ---- too much ----

MUCH = 32 << 20
LONG_ROW = data_row([b"x" * 60000])
NOTIFICATION = b"\0\0\0\1" + b"dlock_nobody\0" + b"x" * 7000 + b"\0"


def before_rows(kind_, flood):
    """Puts the flood before the first row of an answer, or at the door before the login is accepted.

    It is put together here: dlock takes a server for silent that does so for long when it is asked.
    """
    flood = b"".join(message(*m) for m in flood)
    return lambda kind, body: [flood, (kind, body)] if kind == kind_ else [(kind, body)]


# Made when they are needed: what stays in memory is copied by each fork of the process of tests.
FLOODS = {
    "rows": lambda: [(b"D", LONG_ROW)] * (MUCH // len(LONG_ROW)),
    "notifications": lambda: [(b"A", NOTIFICATION)] * (MUCH // len(NOTIFICATION)),
    "notices": lambda: [(b"N", error("01000", "x" * 8000, "WARNING"))] * (MUCH // 8000),
    "a-message": lambda: [(b"D", data_row([b"x" * MUCH]))],
    "a-length": lambda: [(b"D\x7f\xff\xff\xff", b"x" * MUCH)],  # the length of a message of 2 GiB
}


def run_frugally(dlock, cmd, *words):
    """With less memory than would be needed to keep it all, and with time to read it."""
    return subprocess.run(["prlimit", f"--data={MUCH}", DLOCK, cmd, "-O", "connect-timeout=50s", *words], env=dlock.env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("cmd", [("run", "-k", "job", "-n", "--", "echo", "ran"), ("status", "-k", "job"), ("ls",)], ids=lambda c: c[0])
@pytest.mark.parametrize("flood", FLOODS)
def test_an_answer_without_an_end_takes_no_memory(dlock, db, make_tamper, flood, cmd):
    dlock.hold(At(db.url), "job")
    url = make_tamper(db.server.port, before_rows(b"D", FLOODS[flood]())).url(db.name)
    done = run_frugally(dlock, cmd[0], "-u", url, *cmd[1:])
    assert done.returncode == 69 and "ran" not in done.stdout and "does not end its answer" in done.stderr, done


@pytest.mark.parametrize("flood", ["notices", "a-length"])
def test_a_login_without_an_end_takes_no_memory(dlock, pg_server, make_tamper, flood):
    url = make_tamper(pg_server.port, before_rows(b"K", FLOODS[flood]()), early=True).url()
    done = run_frugally(dlock, "run", "-u", url, "-k", "job", "-n", "--", "echo", "ran")
    assert done.returncode == 69 and "ran" not in done.stdout and "does not end its answer" in done.stderr, done


def test_who_waits_is_not_flooded_with_notifications(dlock, db, make_proxy):
    """It goes on over another connection."""
    holder = dlock.hold(At(db.url), "job", "-s")
    proxy, flooded = make_proxy(db.port), []

    def tap(link, direction, data):
        if direction == DOWN and links and link is links[-1] and not flooded:
            flooded.append(link)
            return data + b"".join(message(*m) for m in FLOODS["notifications"]())
        if direction == UP and b"dlock.enter(" in data:
            links.append(link)
        return data

    links = []
    proxy.tap = tap
    waiter = dlock.contend(At(pg_url(proxy.port, db=db.name, extra="?sslmode=disable&gssencmode=disable")), "job", "-w", "1h")
    wait_for(lambda: flooded, what="the flood")
    wait_for(lambda: len(set(map(id, links))) > 1, what="another connection")
    with open(f"/proc/{children_of(waiter.pid)[0]}/status", encoding="ascii") as f:
        assert int(next(line for line in f if line.startswith("VmHWM")).split()[1]) < 40 << 10
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


# ---- poolers ----


def test_leases_through_poolers(dlock, db, make_pooler):
    """And with directly connected ones in the same queue."""
    run(dlock, db.url)
    holders, waiters = {}, {}
    for pooling, size in (("session", 10), ("transaction", 2), ("statement", 2)):
        pooled = At(pg_url(make_pooler(db.server, pooling, default_pool_size=size).port, db=db.name))
        holders[pooling] = dlock.hold(pooled, pooling, *LIVING_LEASE, "-v")
        waiters[pooling] = [dlock.contend(at, pooling, command=("true",)).queued(n + 1)
                            for n, at in enumerate((At(db.url), pooled, At(db.url), pooled))]
    for pooling, holder in holders.items():
        wait_for_renewals(holder)
        assert holder.finish().status == 0
        assert [w.wait().status for w in waiters[pooling]] == [0] * 4
        tokens = [s.token for s in (holder, *waiters[pooling])]
        assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("mode, pooling", [("advisory", "session"), ("advisory", "transaction"), ("advisory", "statement"),
                                           ("row", "statement")])
def test_what_a_pooler_cannot_carry_is_refused(dlock, db, make_pooler, pooling, mode):
    """And nothing is left in the sessions that the pooler keeps."""
    run(dlock, db.url, mode=mode)
    pooler = make_pooler(db.server, pooling)
    assert_refused(run(dlock, pg_url(pooler.port, db=db.name), mode=mode), 78, "pool")
    assert db.value(f"SELECT count(*) FROM {ADVISORY}") == 0
    assert is_free(dlock, db.url, mode=mode)
    with contextlib.closing(psycopg2.connect(pg_url(pooler.port, db=db.name))) as c, c.cursor() as cursor:
        c.autocommit = True
        cursor.execute("SHOW idle_session_timeout")
        assert cursor.fetchone() == ("0",)
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


@pytest.mark.parametrize("name", ["nowhere", "authors"])
def test_a_database_that_a_pooler_does_not_know(dlock, pg_server, make_pooler, name):
    """Whatever it is called: the pooler has one SQLSTATE for this and for a wrong password."""
    pooler = make_pooler(pg_server, db=DB)
    assert_refused(run(dlock, pg_url(pooler.port, db=name), *IMPATIENT), 78, f"no such database: {name}", "3D000")


def test_a_row_through_a_pooler(dlock, db, make_pooler):
    """A transaction has a connection of its own while it is open."""
    pooler = make_pooler(db.server)
    pooled = At(pg_url(pooler.port, db=db.name), "row")
    holder = dlock.hold(pooled, "job", *LIVING_LEASE, "-v")
    waiters = [dlock.contend(at, "job", command=("true",)) for at in (At(db.url, "row"), pooled)]
    for waiter in waiters:
        waiter.event("waiting")
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0]
    with contextlib.closing(psycopg2.connect(pg_url(pooler.port, db=db.name))) as c, c.cursor() as cursor:
        for setting in ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"):
            cursor.execute(f"SHOW {setting}")
            assert cursor.fetchone() == ("0",)


def test_a_pooler_that_restarts_costs_nothing(dlock, db, make_pooler):
    run(dlock, db.url)
    pooler = make_pooler(db.server)
    at = At(pg_url(pooler.port, db=db.name))
    holder = dlock.hold(at, "job", *LIVING_LEASE, "-v")
    waiter = dlock.contend(at, "job", "-t", "6s", command=("true",)).queued(1)
    pooler.restart()
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
