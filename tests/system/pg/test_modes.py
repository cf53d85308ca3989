# Goal of these tests: the modes of PostgreSQL that are not a lease in a table.
# mode=advisory shares its locks with other programs, byte for byte; mode=row is a
# locked row.  Both end with their session, and dlock knows when that has ended.

import contextlib
import hashlib
import json
import pathlib
import re
import signal
import subprocess
import threading
import time
import zlib

import psycopg2
import pytest

from databases import blocks_of, token_of
from faults import LEASE, assert_refused
from pg import DB, MODES, error, pg_url
from proxy import UP
from support import BRIEFLY, ROOT, At, run, wait_for

SESSION_MODES = ["advisory", "row"]


@pytest.fixture(params=SESSION_MODES)
def mode(request):
    return request.param


def advisory_locks(database, granted=True):
    """(classid, objid, objsubid) as pg_locks has them."""
    return database.ask("SELECT classid::bigint, objid::bigint, objsubid FROM pg_locks l JOIN pg_database d"
                        " ON d.oid = l.database WHERE locktype = 'advisory' AND datname = current_database()"
                        " AND granted = %s ORDER BY 1, 2", granted)


@contextlib.contextmanager
def taken(database, *key, **options):
    """The lock, taken by another program."""
    with contextlib.closing(database.connect(**options)) as c, c.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_lock({', '.join(['%s'] * len(key))})", key)
        yield c


def try_lock(database, *key):
    with contextlib.closing(database.connect()) as c, c.cursor() as cursor:
        cursor.execute(f"SELECT pg_try_advisory_lock({', '.join(['%s'] * len(key))})", key)
        return cursor.fetchone()[0]


# ---- locks that other programs take too ----

SQUARE = 1 << 32


def split(key):
    """A bigint key as pg_locks shows it."""
    return (key % (1 << 64)) // SQUARE, key % SQUARE, 1


# What others compute: (settings, dlock's key, database, the lock's key in SQL).
DERIVED = {
    "number": (["key=4711"], "job", None, (4711,)),
    "number-negative": (["key=-1"], "job", None, (-1,)),
    "number-least": (["key=-9223372036854775808"], "job", None, (-(1 << 63),)),
    "number-greatest": (["key=9223372036854775807"], "job", None, ((1 << 63) - 1,)),
    "pair": (["key=1,2"], "job", None, (1, 2)),
    "pair-negative": (["key=-5,7"], "job", None, (-5, 7)),
    "with_advisory_lock": (["derive=with_advisory_lock"], "foo", None, (208889121, 0)),
    "with_advisory_lock-2": (["derive=with_advisory_lock"], "nightly-report", None, (69980848, 0)),
    "rails-migration": (["derive=rails-migration"], "job", "app_production", (4615154450383096620,)),
    "django-pglock": (["derive=django-pglock"], "foo", None, (-8086495256948496852,)),
    "golang-migrate": (["derive=golang-migrate"], "public.schema_migrations", "app", (1726534663,)),
    "golang-migrate-instance": (["derive=golang-migrate-instance"], "public.schema_migrations", "app", (1787120056,)),
    "flyway": (["derive=flyway"], "public.flyway_schema_history", None, (77433833903597,)),
    "prisma-migrate": (["derive=prisma-migrate"], "any", None, (72707369,)),
    "symfony": (["derive=symfony"], "report", None, (3291445124,)),
    "django-pglocks": (["derive=django-pglocks"], "report", None, (-1003522172,)),
    "advisory-lock": (["derive=advisory-lock"], "report", None, (-2087625084, -1662510829)),
    "distributedlock": (["derive=distributedlock"], "report", None, (-443054338, 1562378239)),
    "distributedlock-hash": (["derive=distributedlock"], "nightly-report", None, (7635146791061737145,)),
}


@pytest.mark.parametrize("settings, key, name, lock", DERIVED.values(), ids=DERIVED.keys())
def test_locks_of_other_programs(dlock, pg_server, make_db, settings, key, name, lock):
    """Whoever takes it excludes dlock, and is excluded."""
    database = pg_server if name == DB else make_db(name) if name else make_db()
    words = ["-u", database.url, "-O", "mode=advisory", *(w for s in settings for w in ("-O", s))]
    holder = dlock.start("run", *words, "-k", key, "--", "sleep", "1000").held()
    classid, objid = (lock[0] % SQUARE, lock[1] % SQUARE) if len(lock) == 2 else split(lock[0])[:2]
    assert (classid, objid, len(lock)) in advisory_locks(database)
    assert not try_lock(database, *lock)
    holder.signal(signal.SIGTERM)
    assert holder.wait().status == -signal.SIGTERM
    assert try_lock(database, *lock)
    with taken(database, *lock):
        assert dlock.run("run", *words, "-k", key, "-n", "--", "echo", "ran").status == 75
        assert dlock.run("run", *words, "-k", key, "-w", BRIEFLY, "--", "echo", "ran").status == 75
        waiter = dlock.start("run", *words, "-k", key, "--", "true")
        waiter.event("waiting")
    assert waiter.wait().status == 0


def test_a_lock_that_nobody_else_has_is_warned_of(dlock, db):
    warning = "mode=advisory without name= or derive=: no other program takes this lock"
    words = ["-u", db.url, "-O", "mode=advisory"]
    assert dlock.run("run", *words, "-k", "job", "--", "true").stderr.count(warning) == 1
    for more in (["-O", "derive=dlock"], ["-O", "key=7"], ["-O", "name=7"], ["-q"]):
        assert dlock.run("run", *words, *more, "-k", "job", "--", "true").stderr == ""
    assert dlock.run("status", *words, "job").stderr == ""


def typed_in_the_manual():
    """Its commands that take the lock of another program, as lists of words."""
    text = "\n".join(block for block in blocks_of("dlock-pg.7") if "-O mode=advisory" in block).replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.startswith("dlock run")]


def lock_of(setting, key, database):
    """What the program computes, as pg_locks has it."""
    found = [lock for settings, k, name, lock in DERIVED.values() if settings == [setting] and k == key]
    if setting == "key=42":
        found = [(42,)]
    elif setting == "derive=with_advisory_lock":
        found = [(zlib.crc32(key.encode()) & 0x7fffffff, 0)]
    elif setting == "derive=django-pglock":
        found = [(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little", signed=True),)]
    elif setting == "derive=rails-migration":
        found = [(2053462845 * zlib.crc32(database.encode()),)]
    lock, = found
    return (*lock, 2) if len(lock) == 2 else split(lock[0])


def test_the_commands_of_the_manual_take_the_locks_of_other_programs(dlock, pg_server, tmp_path):
    """Each of them, in a database that is called as there."""
    (tmp_path / "job").write_text("#!/bin/sh\ncat\n")
    (tmp_path / "job").chmod(0o755)
    typed, seen = typed_in_the_manual(), set()
    for words in typed:
        (option, mode), setting, key = words[2:4], words[5], words[7]
        assert (option, mode, words[4], words[6], words[8:]) == ("-O", "mode=advisory", "-O", "-k", ["--", "./job"])
        holder = dlock.start("run", "-u", pg_server.url, *words[2:], cwd=tmp_path, stdin=subprocess.PIPE).held()
        assert lock_of(setting, key, pg_server.name) in advisory_locks(pg_server)
        assert holder.finish().status == 0
        seen.add(setting)
    named = run(dlock, pg_server.url, "-O", "derive=none", mode="advisory").stderr
    there = re.search(r"there are dlock, (.*?)\)", named)[1].split(", ")
    assert {"key=42"} < seen <= {"key=42"} | {f"derive={name}" for name in there}
    table = pathlib.Path(ROOT, "man/dlock-pg.7").read_text(encoding="utf-8").split("Cm derive Ns = Ta")[1].split(".El")[0]
    assert re.findall(r"^\.It Cm (\S+) Ta", table, re.M) == there


def test_others_wait_in_the_same_queue(dlock, db):
    words = ["-u", db.url, "-O", "mode=advisory", "-O", "key=7"]
    holder = dlock.start("run", *words, "-k", "job", "--", "sleep", "1000").held()
    served = threading.Event()

    def other():
        with taken(db, 7):
            served.set()

    thread = threading.Thread(target=other)
    thread.start()
    wait_for(lambda: advisory_locks(db, granted=False), what="the other one in the queue")
    assert not served.is_set()
    holder.signal(signal.SIGTERM)
    thread.join(20)
    assert served.is_set()


def test_keys_of_its_own_are_hashes(dlock, db):
    """The first 8 bytes of SHA-256("dlock:" + key), so that other versions and programs can compute them."""
    holder = dlock.hold(At(db.url, "advisory"), "job")
    expected = db.value("SELECT ('x' || left(encode(sha256('dlock:job'), 'hex'), 16))::bit(64)::bigint")
    assert split(expected) in advisory_locks(db)
    assert holder.finish().status == 0
    assert advisory_locks(db) == []


@pytest.mark.parametrize("settings", [["key="], ["key=x"], ["key=9223372036854775808"], ["key=1,2,3"], ["key=1,"],
                                      ["key=2147483648,0"], ["key=0x10"], ["key= 1"], ["derive=none"], ["derive="],
                                      ["key=1", "derive=flyway"], ["key=1.5"]])
def test_keys_that_make_no_sense(dlock, pg_server, settings):
    words = [w for s in settings for w in ("-O", s)]
    assert_refused(run(dlock, pg_server.url, *words, mode="advisory"), 64, settings[0].split("=")[0])


def test_who_blocks_is_told(dlock, db):
    """Other programs store no record, but the server knows their sessions."""
    with taken(db, 4711, application_name="migrate\x1b[2J") as c:
        done = run(dlock, db.url, "-O", "mode=advisory", "-O", "key=4711", "-n")
        assert_refused(done, 75, f"server process {c.get_backend_pid()}", "migrate")
        assert "pid" not in done.stderr  # that is on another machine


def test_a_password_in_the_name_of_who_blocks_is_not_told(dlock, db):
    words = ["-u", db.url.replace("app@", "app:c0rrect-h0rse@", 1), "-O", "mode=advisory", "-O", "key=4711"]
    with taken(db, 4711, application_name="migrate c0rrect-h0rse"):
        told = [dlock.run("status", "-k", "job", *words), dlock.run("status", "-J", "-k", "job", *words), dlock.run("run", "-n", "-k", "job", *words, "true")]
    for done in told:
        assert "migrate ***" in done.stdout + done.stderr and "c0rrect" not in done.stdout + done.stderr, done


def test_who_of_us_blocks_is_told(dlock, db):
    holder = dlock.hold(At(db.url, "advisory"), "job")
    waiter = dlock.contend(At(db.url, "advisory"), "job")
    record = json.loads(waiter.event("waiting")["holder"])
    assert record["pid"] in (holder.pid, *db.sessions())


def test_a_granted_lock_is_not_overlooked_for_a_timeout(dlock, db, make_tamper):
    """The server may say that the time is up although it has granted the lock: madelson/DistributedLock#147."""
    holder = dlock.hold(At(db.url, "advisory"), "job")
    lying, lied = threading.Event(), threading.Event()

    def change(kind, body):
        if kind == b"T" and lying.is_set() and not lied.is_set():  # the lock's (void) result
            lied.set()
            return [(b"E", error("55P03", "canceling statement due to lock timeout"))]
        return [] if lied.is_set() and lying.is_set() and kind in (b"D", b"C") else quiet(kind, body)

    def quiet(kind, body):
        if lied.is_set() and kind == b"Z":
            lying.clear()
        return [(kind, body)]

    url = make_tamper(db.server.port, change).url(db.name)
    waiter = dlock.contend(At(url, "advisory"), "job", command=("true",))
    waiter.event("waiting")
    wait_for(lambda: advisory_locks(db, granted=False), what="the waiter's request")
    lying.set()
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert lied.is_set()
    assert advisory_locks(db) == []


# ---- tokens ----


def test_tokens_grow_in_each_mode(dlock, db):
    tokens = {mode_: [] for mode_ in MODES}
    for _ in range(3):
        for mode_, seen in tokens.items():
            seen.append(token_of(dlock, db.url, mode_))
    for seen in tokens.values():
        assert seen == sorted(set(seen))


def test_tokens_of_a_row_grow_though_the_clock_goes_back(dlock, db):
    """The last one stands in the row; a crash may have lost the numbers drawn."""
    token_of(dlock, db.url, "row")
    ahead = int((time.time() + 3600) * 1e6)
    db.ask("UPDATE dlock.rows SET token = %s", ahead)
    tokens = [ahead, *(token_of(dlock, db.url, "row") for _ in range(2))]
    assert tokens == sorted(set(tokens))


def test_tokens_without_a_schema_are_the_servers_clock(dlock, db):
    """A role that may make nothing can still take advisory locks."""
    db.ask("CREATE ROLE guest LOGIN")
    db.ask(f"GRANT CONNECT ON DATABASE {db.name} TO guest")
    url = pg_url(db.server.port, "guest", db.name)
    before = time.time() * 1e6
    tokens = [token_of(dlock, url, "advisory") for _ in range(3)]
    assert before < tokens[0] < tokens[1] < tokens[2] < time.time() * 1e6
    token_of(dlock, db.url, "lease")
    assert tokens[2] < token_of(dlock, db.url, "advisory")  # now there is a schema, and its sequence began by the clock
    assert_refused(run(dlock, url, mode="advisory"), 77)  # which it may not use: its tokens would be of another kind
    db.drop()
    db.server.ask("DROP ROLE guest", db="postgres")


# ---- the session ends, and the lock with it ----


def test_lost_lock_is_not_taken_again(dlock, db, mode):
    """The connection is not opened anew for another renewal."""
    holder = dlock.hold(At(db.url, mode), "job", *LEASE)
    db.terminate()
    assert holder.wait().status == 79
    wait_for(lambda: not db.sessions(), what="the end of all sessions")
    assert advisory_locks(db) == []


def test_the_lease_is_the_servers_own(dlock, db):
    """Whatever the database has set, and for this session only."""
    db.ask(f"ALTER DATABASE {db.name} SET idle_session_timeout = '1s'")
    db.ask(f"ALTER DATABASE {db.name} SET idle_in_transaction_session_timeout = '1s'")
    db.ask(f"ALTER DATABASE {db.name} SET statement_timeout = '2s'")
    db.ask(f"ALTER DATABASE {db.name} SET lock_timeout = '100ms'")
    holders = [dlock.hold(At(db.url, m), "job", "-t", "9s", "-v") for m in SESSION_MODES]
    waiters = [dlock.contend(At(db.url, m), "job", command=("true",)) for m in SESSION_MODES]
    for holder in holders:
        wait_for(lambda h=holder: "renew: ok" in h.stderr(), what="a renewal")  # at a third of 9 s
    for holder, waiter in zip(holders, waiters):
        assert holder.finish().status == 0
        assert waiter.wait().status == 0


# ---- what it is, and which modes there are ----


def test_row_is_a_row(dlock, db):
    """Others see the textbook's lock: a row that is locked for update in a transaction."""
    holder = dlock.hold(At(db.url, "row"), "job")
    assert db.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND state LIKE 'idle in transaction%%'") == 1
    with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            cursor.execute("SELECT 1 FROM dlock.rows WHERE key = %s FOR UPDATE NOWAIT", ("job",))
    assert holder.finish().status == 0
    assert db.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND state LIKE 'idle in transaction%%'") == 0


def test_nested_runs_join_in_every_mode(dlock, db, mode):
    inner = pathlib.Path(dlock.directory, "inner")
    inner.write_text("echo $DLOCK_TOKEN\n")
    from support import DLOCK
    script = f'echo $DLOCK_TOKEN; "{DLOCK}" run -k job -n -- sh {inner}'
    done = run(dlock, db.url, command=("sh", "-c", script), mode=mode)
    first, second = done.stdout.split()
    assert done.status == 0 and first == second


@pytest.mark.parametrize("outer, inner, same", [
    ("name=42", "key=042", True),
    ("key=72707369", "derive=prisma-migrate", True),
    ("key=7,-1", "name=07,-01", True),
    ("key=42", "key=43", False),
    ("key=0,42", "key=42", False),
], ids=str)
def test_a_number_is_one_lock_however_it_is_named(dlock, db, outer, inner, same):
    """A nested run joins what is the same, and takes what is another."""
    from support import DLOCK
    script = f'echo $DLOCK_TOKEN; "{DLOCK}" run -u {db.url} -O mode=advisory -O {inner} -k b -n -- sh -c \'echo $DLOCK_TOKEN\''
    done = dlock.run("run", "-u", db.url, "-O", "mode=advisory", "-O", outer, "-k", "a", "--", "sh", "-c", script)
    assert done.status == 0, done
    first, second = done.stdout.split()
    assert (first == second) == same


@pytest.mark.parametrize("later", ["now()+interval'1h'", "'2100-01-01'::timestamptz"])
def test_a_clock_that_is_set_back_makes_no_wait_longer(dlock, db, make_proxy, later):
    """The server's, while one waits for the first of two locks."""
    proxy, begin = make_proxy(db.port), b"pg_catalog.statement_timestamp()"
    proxy.tap = lambda _, direction, data: data.replace(begin, later.encode().ljust(len(begin))) if direction == UP else data
    dlock.hold(At(db.url, "advisory"), "job", "-t", "10m")
    waiter = dlock.contend(At(db.through(proxy), "advisory"), "job", "-t", "10m", "-w", "5s", "-s")
    waiter.event("waiting")
    assert waiter.wait().status == 75
    assert not waiter.events("retrying")
