# Goal of these tests: looking at locks in PostgreSQL and steering them: what each mode can
# tell, that a look changes nothing and costs little, that exactly the grant that was
# meant is broken, that a freeze holds until its end, and who may do all that.

import contextlib
import json
import re
import signal
import subprocess
import threading
import time

import psycopg2
import pytest

from admin import ADMIN, BOB, CONFIG, DENIED, LOST, OK, admin, does, each, kinds, revoke
from databases import (FORGET, JOBS, LOOK, RUN, STEER, block_of, hostile_runs_are_listed, may, paste, wait_for_renewals, waits_and_renews,
                       what_may)
from faults import LIVING_LEASE
from pg import MODES, USER, VERSION_5, error, pg_url, psql, schema_sql
from support import At, is_alive, run, wait_for

EXCLUSIVE, SHARED, LIMIT = 0, 2, 3  # enum lock_kind
ENDLESS = ("-t", "1h")
KINDS = {"x": [], "s": ["-s"], "l2": ["--limit", "2"]}


def who(entry):
    return json.loads(entry["record"])


@pytest.fixture
def at(db):
    return At(db.url)


@pytest.fixture(params=["direct", "pooled"])
def both(request, db):
    """A database of one's own, the second time behind a pooler that pools transactions."""
    if request.param == "direct":
        return At(db.url)
    pooler = request.getfixturevalue("make_pooler")(db.server)
    return At(pg_url(pooler.port, db=db.name))


# ---- what is told ----


@pytest.mark.parametrize("mode", MODES)
def test_where_there_is_nothing_nothing_is_held_and_nothing_made(dlock, db, mode):
    at = At(db.url, mode)
    assert each(at) == each(at, "job") == each(at, "job", "brief") == []
    assert revoke(at, {"token": 7, "owner": "17-42" if mode != "lease" else "-"}, "force") == LOST
    if mode == "lease":
        assert revoke(at, {"token": 7}) == does(at, "thaw", "job") == LOST
    assert db.value("SELECT to_regnamespace('dlock')") is None


def test_all_of_a_key_is_told_in_order(dlock, both):
    """Holders as granted, waiters as queued, the freeze; with a key the last run."""
    done = dlock.run("run", *both.words, "-k", "job", "--once", "monday", "--", "sh", "-c", "exit 3")
    assert done.status == 3
    holders = [dlock.hold(both, "job", *ENDLESS, "--limit", "2", "--why", f"holder {n}") for n in range(2)]
    waiters = [dlock.contend(both, "job", *ENDLESS, *kind).queued(n + 1) for n, kind in enumerate((["--limit", "2"], []))]
    assert does(both, "freeze", "job", BOB, 3600) == OK
    found = each(both, "job")
    assert kinds(found) == ["holder", "holder", "waiter", "waiter", "freeze", "last"]
    for n, (entry, holder) in enumerate(zip(found, holders)):
        assert (entry["token"], entry["lock"], entry["limit"], entry["slot"]) == (holder.token, LIMIT, 2, n)
        assert (who(entry)["why"], who(entry)["pid"]) == (f"holder {n}", holder.pid)
        assert entry["since"] <= entry["now"] and entry["until"] - entry["since"] >= 3600 * 10**6
    for n, (entry, waiter) in enumerate(zip(found[2:], waiters)):
        assert (entry["position"], who(entry)["pid"], entry["lock"]) == (n + 1, waiter.pid, [LIMIT, EXCLUSIVE][n])
        assert 0 < entry["since"] <= entry["now"]
    freeze, last = found[4:]
    assert freeze["record"] == BOB and freeze["until"] - freeze["since"] == 3600 * 10**6
    assert (last["once"], last["status"]) == ("monday", 3) and 0 < last["since"] <= last["until"] <= last["now"]
    assert {e["key"] for e in found} == {"job"} and not any("owner" in e for e in found)
    brief = each(both, "job", "brief")
    assert kinds(brief) == ["holder", "holder", "waiting", "freeze", "last"] and brief[2]["count"] == 2
    assert kinds(each(both)) == ["holder", "holder", "waiter", "waiter", "freeze"]


def test_locks_are_told_one_after_the_other(dlock, at):
    """By more than one page; those not in use are not told."""
    assert run(dlock, at.words[1]).status == 0
    held = {f"{name}{n}": dlock.hold(at, f"{name}{n}", *ENDLESS) for name in ("a", "a b", "ä", "z\\") for n in range(2)}
    dlock.contend(at, "a0", *ENDLESS).queued()
    assert does(at, "freeze", "frozen", BOB) == OK
    found = each(at)
    assert [e["key"] for e in found if e["kind"] == "holder"] == [shown(k) for k in sorted(held, key=str.encode)]
    assert [(e["kind"], e["key"]) for e in found if e["kind"] != "holder"] == [("waiter", "a0"), ("freeze", "frozen")]
    assert [e["until"] for e in found if e["kind"] == "freeze"] == [-1]


def shown(text):
    """As dlock-admin prints it."""
    return "".join(chr(b) if 32 <= b <= 126 and b != 92 else f"\\x{b:02X}" for b in text.encode())


def test_of_a_crowd_each_one_is_told_once(db, dlock, at):
    assert run(dlock, db.url).status == 0
    crowd(db, 1700)
    db.ask("INSERT INTO dlock.claims (key, ticket, owner, kind, room, lease, direct, alive, seal, since, record) SELECT 'key5',"
           " 90000 + n, md5('w' || n), 'shared', 0, '1 h', false, now() + interval '1 h', 'shared 0 -1', now(), '{}'"
           " FROM generate_series(1, 1300) n")
    found = each(at)
    tokens = [e["token"] for e in found if e["kind"] == "holder"]
    assert len(tokens) == 1700 == len(set(tokens))
    assert [e["position"] for e in found if e["kind"] == "waiter"] == list(range(1, 1301))
    assert {e["key"] for e in found if e["kind"] == "waiter"} == {"key5"}
    assert [e["count"] for e in each(at, "key5", "brief") if e["kind"] == "waiting"] == [1300]


def crowd(db, size):
    """So many locks, held."""
    db.ask("INSERT INTO dlock.claims (key, ticket, owner, kind, room, lease, direct, token, slot, seal, leads, ends, since, record)"
           " SELECT 'key' || n, n, md5(n::text), 'exclusive', 0, '1 h', true, n, 0, 'exclusive 0 0', true, now() + interval '1 h', now(),"
           " %s FROM generate_series(1, %s) n; ANALYZE dlock.claims", json.dumps({"who": "crowd", "why": "x" * 150}), size)


# ---- looking changes nothing ----


def contents(database):
    """All that the tables hold, and where, and by which transaction."""
    tables = [name for name, in database.ask("SELECT relname FROM pg_class WHERE relnamespace = 'dlock'::regnamespace"
                                             " AND relkind IN ('r', 'S') ORDER BY 1")]
    assert len(tables) >= 4
    return [database.ask(f"SELECT ctid, xmin, xmax, t.* FROM dlock.{name} t ORDER BY ctid") for name in tables]


GONE = ("key, ticket, owner, kind, room, lease, direct, alive, token, slot, seal, leads, ends, since, record) VALUES"
        " ('dead', 1, repeat('a', 32), 'exclusive', 0, '1 s', false, NULL, 1, 0, 'exclusive 0 0', true, now() - interval '1 s', now(), '{}'),"
        " ('dead', 2, repeat('b', 32), 'exclusive', 0, '1 s', false, now(), NULL, NULL, 'exclusive 0 -1', false, NULL, now(), '{}'),"
        " ('dead', 3, repeat('c', 32), 'shared', 0, '1 s', true, NULL, NULL, NULL, 'shared 0 -1', false, NULL, now(), '{}'),"
        " ('thawed', 0, repeat('d', 32), 'freeze', 0, '0', false, NULL, 9, 0, 'freeze 0 0', true, now(), now(), '{}')")


def test_a_look_changes_nothing_not_even_what_has_run_out(dlock, make_pg):
    server = make_pg(autovacuum="off")
    at = At(server.url)
    wait_for_renewals(dlock.hold(at, "job", "-s", *ENDLESS, "-v"))  # the first comes soon
    dlock.contend(at, "job", *ENDLESS).queued()
    dlock.hold(At(server.url, "row"), "row", *ENDLESS)
    dlock.hold(At(server.url, "advisory"), "advisory", *ENDLESS)
    server.ask(f"INSERT INTO dlock.claims ({GONE}")
    before, writes = contents(server), server.writes()
    for mode in MODES:
        for words in ((), ("job",), ("job", "brief"), ("dead",), ("thawed",), ("row",), ("advisory",), ("none",)):
            found = each(At(server.url, mode), *words)
            assert not [e for e in found if e["key"] in ("dead", "thawed", "none")]
    assert contents(server) == before
    assert server.writes() == writes


@pytest.mark.parametrize("mode", ["advisory", "row"])
def test_a_look_takes_no_lock_for_a_moment(dlock, db, mode):
    """Who tries it meanwhile always gets it."""
    at = At(db.url, mode)
    assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0
    looks = [subprocess.Popen([ADMIN, "pg", *at.words[1:], "each", "job"], stdout=subprocess.DEVNULL) for _ in range(10)]
    sql = {"advisory": "SELECT pg_try_advisory_lock(('x' || left(encode(sha256('dlock:job'), 'hex'), 16))::bit(64)::bigint)",
           "row": "SELECT count(*) = 1 FROM (SELECT FROM dlock.rows WHERE key = 'job' AND pg_try_advisory_xact_lock(hashtext('job'),"
                  " hashtext(E'job\\001')) FOR UPDATE SKIP LOCKED) r"}[mode]
    with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
        while any(look.poll() is None for look in looks):
            cursor.execute(sql)
            assert cursor.fetchone()[0]
            cursor.execute("SELECT pg_advisory_unlock_all()")
    assert [look.wait() for look in looks] == [0] * 10


def test_a_standby_can_be_looked_at_but_not_steered(dlock, make_pg):
    server = make_pg(wal_level="replica")
    at = At(server.url)
    holder = dlock.hold(at, "job", *ENDLESS)
    waiter = dlock.contend(at, "job", *ENDLESS).queued(1)
    standby = server.standby(synchronous=False)
    try:
        there = At(standby.url)
        wait_for(lambda: kinds(each(there, "job")) == ["holder", "waiter"], what="both on the standby")
        assert each(there, "job")[0]["token"] == holder.token
        assert kinds(each(there)) == ["holder", "waiter"]
        for words in (("freeze", "job", BOB), ("thaw", "job"), ("revoke", "job", holder.token, "-", BOB, "force")):
            rc, why, _ = admin(there, *words)
            assert rc == CONFIG and "standby" in why
        assert dlock.run("run", *there.words, "-k", "job", "-n", "--", "true").status == 78
        assert kinds(each(At(f"postgresql://app@127.0.0.1:{standby.port},127.0.0.1:{server.port}/app"), "job")) == ["holder", "waiter"]
    finally:
        standby.stop()
    assert holder.finish().status == waiter.finish().status == 0


# ---- what others may have written there ----

HOSTILE = ["\x1b[31mred\x1b[0m\x1b]0;title\x07", "‮evil‬", '{"who":', "{}" * 500000, '{"pid":1e999,"who":[1],"since":-1}', "", "a\tb\nc\\x00"]


@pytest.mark.parametrize("record", HOSTILE, ids=["escapes", "bidi", "broken", "1M", "wild", "empty", "lines"])
def test_a_hostile_record_is_handed_out_as_it_is_within_bounds(dlock, db, at, record):
    assert run(dlock, db.url).status == 0
    assert db.value("SELECT token FROM dlock.take('job', repeat('a', 32), %s, 3600000, 0, 0)", record)
    db.ask("SELECT dlock.enter('job', repeat('b', 32), %s, 60000, 60000, 'shared', 0, NULL, 0, 0, false)", record)
    assert does(at, "freeze", "other", record[:100000]) == OK
    found = each(at)
    assert kinds(found) == ["holder", "waiter", "freeze"]
    for entry in found:
        assert shown(record).startswith(entry["record"]) and len(entry["record"]) >= min(1023, len(record))
        assert len(entry["record"]) < 65536
    assert kinds(each(at, "job")) == ["holder", "waiter"]


def test_strange_rows_and_keys_are_nobody_elses(dlock, db, at):
    """Rows that break the table's rules are told as what they are; keys that cannot be dlock's are left out."""
    holder = dlock.hold(at, "job", *ENDLESS)
    constraints = db.ask("SELECT conname FROM pg_constraint WHERE conrelid = 'dlock.claims'::regclass AND contype = 'c'")
    for name, in constraints:
        db.ask(f'ALTER TABLE dlock.claims DROP CONSTRAINT "{name}"')
    db.ask("INSERT INTO dlock.claims (key, ticket, owner, kind, room, lease, direct, token, slot, seal, ends, since, record) SELECT k,"
           " n, md5(n::text), kind, room, '0', false, token, slot, 'x', 'infinity', 'infinity', 'x' FROM (VALUES (1, '', 'exclusive', 0, 5, 0),"
           " (2, 'odd', 'odd', 0, 6, 0), (3, 'room', 'limit', -7, 7, 0), (4, E'job\\001', 'shared', 0, 8, 0), (5, 'slot', 'limit', 2, 9, 5),"
           " (6, repeat('job', 200), 'exclusive', 0, 10, 0), (7, 'far', 'exclusive', 9, 11, 0)) v(n, k, kind, room, token, slot)")
    found = each(at)
    assert [(e["key"], e["kind"]) for e in found] == [("", "holder"), ("far", "unknown"), ("job", "holder"), ("job\\x01", "holder"),
                                                      ("odd", "unknown"), ("room", "unknown"), ("slot", "unknown")]
    assert all("dlock.claims" in e["what"] for e in found if e["kind"] == "unknown")
    assert [e["token"] for e in each(at, "job")] == [holder.token]


def test_a_server_that_makes_no_sense_is_no_end_of_a_look(dlock, db, make_tamper):
    """The same page again and again, or fields that are none."""
    assert run(dlock, db.url).status == 0
    crowd(db, 3)
    answers = {"again": (lambda kind, body: [(kind, body)] * 2 if kind == b"D" else [(kind, body)]),
               "text": (lambda kind, body: [(kind, body.replace(b"key1", b"\xff\xfe\x1b[")) if kind == b"D" else (kind, body)]),
               "error": (lambda kind, body: [(b"E", error("XX000", "no")), (b"Z", b"I")] if kind == b"D" else [] if kind in b"CZ" else [(kind, body)])}
    for name, change in answers.items():
        done = subprocess.run([ADMIN, "pg", make_tamper(db.port, change).url(db.name), "each"], capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, 1) and b"\nrc " in b"\n" + done.stdout, (name, done)
        if name != "text":
            assert done.returncode == 1


# ---- what it costs ----


def look_at(at, *words):
    """(seconds to the first line, lines, kilobytes) of a look."""
    began, kilobytes = time.monotonic(), None
    with subprocess.Popen([ADMIN, "pg", *at.words[1:], "each", *words], stdout=subprocess.PIPE) as look:
        assert look.stdout.readline()
        seconds, lines = time.monotonic() - began, 1
        while look.stdout.readline():
            lines += 1
            if lines % 250 == 0:  # it is not at its end, for what it has to say does not fit into a pipe
                kilobytes = peak_of(look.pid) or kilobytes
    assert look.returncode == 0
    return seconds, lines, kilobytes


def peak_of(pid):
    """Kilobytes of memory that a process had at most."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            found = re.search(r"VmHWM:\s*(\d+) kB", f.read())
            return found and int(found[1])
    return None


@pytest.mark.parametrize("mode", ["lease", "advisory"])
def test_ten_thousand_locks(dlock, make_pg, mode):
    """The best of some looks, for others may have used the machine meanwhile."""
    server = make_pg(log_statement_stats="on")
    assert run(dlock, server.url).status == 0
    crowd(server, 10000)
    with contextlib.closing(server.connect()) as c, c.cursor() as cursor:
        cursor.execute("SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 10000) n")
        looks_are_cheap(server, At(server.url, mode))


def worked(server, act):
    """What act() returns, and the seconds that a processor has worked for each statement meanwhile."""
    logged = len(server.log())
    result = act()
    return result, [float(user) + float(system) for user, system in
                    re.findall(r"(\d+\.\d+) s user, (\d+\.\d+) s system, \S+ s elapsed", server.log()[logged:])]


def count_locks(server):
    """In a session of its own, as a look is: what it reads first costs it most."""
    with contextlib.closing(server.connect()) as c, c.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks")


def looks_are_cheap(server, at):
    """Each statement takes less than 50 ms, or than three counts of the locks on a machine where that is more."""
    found = []
    for _ in range(8):
        count = max(worked(server, lambda: count_locks(server))[1])
        (seconds, lines, kilobytes), statements = worked(server, lambda: look_at(at))
        assert lines == 10001 and len(statements) > 10
        assert 1000 < kilobytes < 16 << 10
        found.append((max(statements), count, seconds))
        if max(statements) < max(0.05, 3 * count) and seconds < 1:
            return
    raise AssertionError(f"the longest statement's work, that of a count, the first line's delay in each look: {found}")


# ---- break, politely ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_holder_that_is_asked_gives_it_up(dlock, both, kind):
    """It ends with 79 and names who asked; the mark dies with the grant."""
    holder = dlock.hold(both, "job", *LIVING_LEASE, *KINDS[kind])
    waiter = dlock.contend(both, "job", *LIVING_LEASE).queued(1)
    found = each(both, "job")
    holder.signal(signal.SIGSTOP, "keeper")  # it would hear of the first one
    assert revoke(both, found[0]) == OK
    assert revoke(both, found[0], record=BOB.replace("bob", "eve")) == OK  # the newer one wins
    marked = each(both, "job")[:1]
    assert not marked or marked[0]["token"] != holder.token or marked[0]["revoked"]
    holder.signal(signal.SIGCONT, "keeper")
    done = holder.wait()
    assert done.status == 79 and "eve@office" in done.stderr and "it hangs" in done.stderr
    assert [(e["token"], e["revoked"]) for e in each(both, "job")] == [(waiter.held().token, 0)]
    assert revoke(both, found[0]) == revoke(both, found[0], "force") == LOST
    assert waiter.finish().status == 0


def test_to_ask_costs_the_holder_nothing(dlock, make_pg):
    """Its renewals stay what they were: one statement each, on its connection."""
    server = make_pg(log_statement="all", log_connections="on")
    at = At(server.url)
    assert run(dlock, server.url).status == 0
    holder = dlock.hold(at, "job", "-t", "30s")
    session, = wait_for(lambda: len(found := server.sessions()) == 1 and found, what="its session alone")
    assert revoke(at, each(at, "job")[0]) == OK
    assert holder.wait().status == 79
    asked = re.findall(rf"\[{session}\] LOG:  (?:execute|statement).*?(pg_roles|dlock\.\w+)", server.log())
    assert asked == ["pg_roles", "dlock.take", *["dlock.renew"] * (len(asked) - 3), "dlock.release_alone"] and len(asked) > 3


def test_a_schema_that_cannot_tell_who_asks_tells_the_rest(dlock, db, at):
    """As version 7 could not."""
    def look():
        done = dlock.run("status", *at.words, "-J", "job")
        told, = json.loads(done.stdout)["holders"]
        assert (done.status, done.stderr, told["revoked"]) == (0, "", True), done
        return told["revoked_by"], told["revoked_why"]

    holder = dlock.hold(at, "job", *ENDLESS)
    holder.signal(signal.SIGSTOP, "keeper")
    assert revoke(at, each(at, "job")[0]) == OK
    db.ask("DROP FUNCTION dlock.asker", user=USER)
    assert look() == (None, None)
    psql(db, schema_sql(dlock), USER)
    assert look() == ("bob@office", "it hangs")
    holder.signal(signal.SIGCONT, "keeper")
    assert holder.wait().status == 79


@pytest.mark.parametrize("force", [(), ("force",)], ids=["asked", "force"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_holder_is_told_of_a_break_at_once(dlock, at, kind, force):
    """Not a third of its lease later."""
    holder = dlock.hold(at, "job", *ENDLESS, *KINDS[kind], "-v")
    wait_for_renewals(holder)
    assert revoke(at, each(at, "job")[0], *force) == OK
    done = holder.wait()
    assert done.status == 79 and "bob@office" in done.stderr


def test_who_ran_for_a_moment_has_asked_to_be_told_of_nothing_and_who_is_behind_a_pooler_neither(dlock, make_pg, make_pooler):
    server = make_pg(log_statement="all")
    for _ in range(2):
        assert run(dlock, server.url).status == 0
    pooled = At(pg_url(make_pooler(server).port))
    holder = dlock.hold(pooled, "job", *LIVING_LEASE, "-v")
    wait_for_renewals(holder, 2)
    assert "statement: LISTEN" not in server.log()
    assert holder.finish().status == 0
    holder = dlock.hold(At(server.url), "job", "-t", "30s", "-v")
    wait_for_renewals(holder, 2)
    assert server.log().count("statement: LISTEN dlock_") == 1
    server.terminate("app")
    wait_for_renewals(holder, 2)
    assert server.log().count("statement: LISTEN dlock_") == 2
    assert holder.finish().status == 0


def test_who_cries_break_all_day_is_heard_now_and_then(dlock, db, at):
    """Any role may notify; what is true stands in the table."""
    holder = dlock.hold(at, "job", *ENDLESS, "-v")
    wait_for_renewals(holder)
    for _ in range(100):
        db.ask(f"SELECT pg_notify('dlock_{holder.token}', repeat('x', 7000))")
    renewals = holder.stderr().count("renew: ok")
    assert 1 <= renewals < 10 and holder.poll() is None
    assert revoke(at, each(at, "job")[0], "force") == OK
    assert holder.finish().status == 79


def test_a_waiter_that_was_granted_can_be_asked_before_it_knows(dlock, at):
    """It comes to hold it, and is told then; who comes too late for that is granted it anew, unmarked."""
    holder = dlock.hold(at, "job", *LIVING_LEASE)
    waiter = dlock.contend(at, "job", *LIVING_LEASE).queued(1)
    waiter.signal(signal.SIGSTOP, "keeper")
    assert holder.finish().status == 0
    granted, = each(at, "job")
    assert granted["kind"] == "holder" and revoke(at, granted) == OK
    waiter.signal(signal.SIGCONT, "keeper")
    if waiter.token == granted["token"]:
        assert waiter.wait().status == 79
    else:
        assert waiter.finish().status == 0


def test_only_the_grant_that_was_meant(dlock, at):
    """Not the next one's, not by a wrong owner, not a freeze's, not a waiter."""
    first = dlock.hold(at, "job", *ENDLESS)
    second = dlock.contend(at, "job", *ENDLESS).queued(1)
    seen = each(at, "job")[0]
    assert revoke(at, {**seen, "owner": "f" * 32}) == revoke(at, {**seen, "owner": "f" * 32}, "force") == LOST
    assert revoke(at, seen, key="other") == revoke(at, {"token": 0}) == revoke(at, {"token": (1 << 64) - 1}) == LOST
    assert first.finish().status == 0
    second.held()
    assert does(at, "freeze", "job", BOB) == OK
    for force in ((), ("force",)):
        assert revoke(at, seen, *force) == LOST
        for token in range(second.token + 1, second.token + 5):
            assert revoke(at, {"token": token}, *force) == LOST
    assert [(e["kind"], e["revoked"]) for e in each(at, "job")] == [("holder", 0), ("freeze", 0)]
    assert second.finish().status == 0


def test_a_grant_that_ends_meanwhile_is_broken_or_not_and_no_other_is(dlock, db, at):
    """Holders follow upon each other as fast as they can while each is broken, or asked."""
    assert run(dlock, db.url).status == 0
    tokens, broken, over = [], {}, threading.Event()

    def breaker(function):
        with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
            while not over.is_set():
                if tokens:
                    token = tokens[-1]
                    cursor.execute(f"SELECT dlock.{function}('job', %s, NULL, %s)", (token, str(token)))
                    if cursor.fetchone()[0]:
                        broken.setdefault(token, set()).add(function)

    threads = [threading.Thread(target=breaker, args=(f,)) for f in ("ask_back", "take_away")]
    results = []
    with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
        try:
            for thread in threads:
                thread.start()
            for n in range(300):
                me = f"{n:032x}"
                cursor.execute("SELECT token FROM dlock.take('job', %s, '{}', 3600000, 0, 0)", (me,))
                token = cursor.fetchone()[0]
                assert token, "it was free"
                tokens.append(token)
                cursor.execute("SELECT code, wanted_by FROM dlock.renew('job', %s, %s, 3600000, 0)", (me, token))
                code, by = cursor.fetchone()
                cursor.execute("SELECT dlock.release('job', %s, NULL, NULL, false)", (me,))
                results.append((token, code, by, cursor.fetchone()[0]))
        finally:
            over.set()
            for thread in threads:
                thread.join()
    for token, code, by, released in results:
        assert by in (None, str(token)), "another's mark"
        taken = "take_away" in broken.get(token, ())
        assert released == (0 if taken else 1)
        assert code == 1 or taken
        assert by is None or token in broken
    assert any(r[3] == 0 for r in results) and any(r[3] == 1 for r in results)
    assert each(at) == []


# ---- break, by force ----


def test_force_takes_it_at_once_and_tells_the_next_one(dlock, both):
    """Who is next does not sleep on; who had it is told who has taken it."""
    holder = dlock.hold(both, "job", *LIVING_LEASE)
    waiter = dlock.contend(both, "job", *ENDLESS).queued(1)
    target = each(both, "job")[0]
    assert revoke(both, target, "force") == OK
    assert each(both, "job")[0]["token"] > target["token"]
    waiter.held()
    assert revoke(both, target, "force") == OK  # it had been done
    assert revoke(both, target, "force", record="{}") == LOST  # by somebody else
    done = holder.wait()
    assert done.status == 79 and "bob@office" in done.stderr
    assert [e["token"] for e in each(both, "job")] == [waiter.token]
    assert waiter.finish().status == 0


def test_force_wakes_who_sleeps_in_the_server(dlock, make_pg):
    """Its statement is cancelled: it asks, and is granted; also with the rights of an ordinary role that owns the schema."""
    server = make_pg()
    at = At(server.url)
    holder = dlock.hold(at, "job", *ENDLESS)
    readers = [dlock.contend(at, "job", "-s", *ENDLESS).queued(n + 1) for n in range(3)]
    sleeping = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    wait_for(lambda: server.value(sleeping) == 3, what="three that sleep")
    assert revoke(at, each(at, "job")[0], "force") == OK
    for reader in readers:
        reader.held()
    assert server.log().count("canceling statement due to user request") == 3
    holder.signal(signal.SIGTERM)
    holder.wait()


def test_force_frees_what_a_dead_machine_holds(dlock, at):
    holder = dlock.hold(at, "job", *ENDLESS)
    target = each(at, "job")[0]
    for process in ("front", "keeper", "command"):  # what could be told later
        holder.signal(signal.SIGSTOP, process)
    assert revoke(at, target, "force") == OK
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0


# ---- freeze and thaw ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_freeze_lets_nobody_in_until_thaw(dlock, both, kind):
    """Not who waits already, not who comes; who holds goes on; thaw lets in whoever fits."""
    holder = dlock.hold(both, "job", *ENDLESS)
    early = [dlock.contend(both, "job", *ENDLESS, *KINDS[kind]).queued(n + 1) for n in range(2)]
    assert does(both, "freeze", "job", BOB) == OK
    late = dlock.contend(both, "job", *ENDLESS, *KINDS[kind]).queued(3)
    assert holder.finish().status == 0
    wait_for(lambda: kinds(each(both, "job")) == ["waiter"] * 3 + ["freeze"], what="the end of the hold")
    refused = dlock.run("run", *both.words, "-k", "job", "-n", *KINDS[kind], "--", "true")
    assert refused.status == 75 and "bob@office" in refused.stderr
    time.sleep(3.5)  # longer than the first in line sleeps
    assert not any(w.running for w in (*early, late))
    assert does(both, "thaw", "job") == OK
    early[0].held()
    if kind != "x":
        early[1].held()
    for waiter in (*early, late):
        assert waiter.held().finish().status == 0
    assert each(both) == [] and does(both, "thaw", "job") == LOST


def best_of(attempts, measure, bound):
    """Is what it measures, for any of some keys, below the bound?  The machine may be slow now and then."""
    found = []
    for n in range(attempts):
        found.append(measure(f"job{n}"))
        if found[-1] < bound:
            return
    raise AssertionError(f"not below {bound}: {found}")


def test_thaw_wakes_whoever_can_be_granted(dlock, at):
    """Readers at once, sooner than they would have asked again; the writer behind them sleeps on."""
    def seconds(key):
        assert does(at, "freeze", key, BOB) == OK
        waiters = [dlock.contend(at, key, *ENDLESS, *kind).queued(n + 1) for n, kind in enumerate((["-s"], ["-s"], []))]
        began = time.monotonic()
        assert does(at, "thaw", key) == OK
        waiters[0].held(), waiters[1].held()
        result = time.monotonic() - began
        assert not waiters[2].running
        return result

    best_of(5, seconds, 1)


def test_the_end_of_a_freeze_is_noticed(dlock, both):
    """Also by who has waited for a holder when it was made."""
    def seconds(key):
        holder = dlock.hold(both, key, *ENDLESS)
        waiter = dlock.contend(both, key, *ENDLESS).queued(1)
        assert does(both, "freeze", key, BOB, 3) == OK
        until = each(both, key)[-1]["until"]
        assert holder.finish().status == 0
        waiter.held()
        entry, = each(both, key)
        assert entry["since"] >= until
        return (entry["since"] - until) / 1e6

    best_of(5, seconds, 1)


def test_a_second_freeze_replaces_the_first(dlock, at):
    assert does(at, "freeze", "job", BOB, 3600) == OK
    first, = each(at, "job")
    assert does(at, "freeze", "job", BOB.replace("bob", "eve")) == OK
    second, = each(at, "job")
    assert "eve@office" in second["record"] and second["until"] == -1 and second["since"] > first["since"]
    assert does(at, "freeze", "job", BOB, 0.001) == OK
    wait_for(lambda: not each(at, "job"), what="its end")
    assert does(at, "thaw", "job") == LOST  # it has ended
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0


def test_what_is_beside_a_freeze(dlock, at):
    """Holders renew, may be broken and are not replaced; a job that has been done stays so."""
    assert dlock.run("run", *at.words, "-k", "job", "--once", "monday", "--", "true").status == 0
    holders = [dlock.hold(at, "job", *LIVING_LEASE, "-s") for _ in range(2)]
    assert does(at, "freeze", "job", BOB) == OK
    assert dlock.run("run", *at.words, "-k", "job", "--once", "monday", "--", "false").status == 0
    assert dlock.run("run", *at.words, "-k", "job", "-n", "-s", "--", "true").status == 75
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--limit", "2", "--", "true").status == 76  # beside readers
    assert revoke(at, each(at, "job")[0], "force") == OK
    assert holders[0].wait().status == 79
    assert kinds(each(at, "job")) == ["holder", "freeze", "last"]
    reader = dlock.contend(at, "job", "-s").queued(1)
    assert does(at, "thaw", "job") == OK
    reader.held()
    assert holders[1].finish().status == reader.finish().status == 0


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_a_freeze_at_the_moment_of_a_release(dlock, db, at, isolation):
    """Whoever was granted was so before the freeze, whatever the isolation of transactions."""
    assert run(dlock, db.url).status == 0
    options = {"options": f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"}
    over, granted, frozen = threading.Event(), [], []

    def ask(cursor, sql, *arguments):
        while True:
            with contextlib.suppress(psycopg2.errors.SerializationFailure, psycopg2.errors.UniqueViolation):
                cursor.execute(sql, arguments)
                return cursor.fetchone()[0]

    def runs(n):
        with contextlib.closing(db.connect(**options)) as c, c.cursor() as cursor:
            turn = 0
            while not over.is_set():
                turn, me = turn + 1, f"{n:016x}{turn:016x}"
                token = ask(cursor, "SELECT token FROM dlock.take('job', %s, '{}', 3600000, 0, 0)", me)
                if token:
                    granted.append(token)
                    ask(cursor, "SELECT dlock.release('job', %s, NULL, NULL, false)", me)

    threads = [threading.Thread(target=runs, args=(n,)) for n in range(3)]
    with contextlib.closing(db.connect(**options)) as c, c.cursor() as cursor:
        try:
            for thread in threads:
                thread.start()
            for _ in range(30):
                seen = len(granted)
                wait_for(lambda: len(granted) > seen + 3, what="some runs")  # pylint: disable=cell-var-from-loop
                ask(cursor, "SELECT dlock.freeze('job', '{}', NULL)")
                first = ask(cursor, "SELECT dlock.number()")
                time.sleep(0.02)
                frozen.append((first, ask(cursor, "SELECT dlock.number()")))
                assert ask(cursor, "SELECT dlock.thaw('job')")
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert not [token for token in granted for first, last in frozen if first < token < last]
    assert each(at) == []


def test_a_freeze_outlives_the_server(dlock, make_pg):
    server = make_pg(safe=True)
    at = At(server.url)
    assert does(at, "freeze", "job", BOB, 3600) == OK
    waiter = dlock.contend(at, "job", *ENDLESS).queued(1)
    before = each(at, "job")[-1]
    server.restart()
    wait_for(lambda: kinds(each(at, "job")) == ["waiter", "freeze"], what="the waiter again")
    after = each(at, "job")[-1]
    assert {k: v for k, v in after.items() if k != "now"} == {k: v for k, v in before.items() if k != "now"}
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 75
    assert does(at, "thaw", "job") == OK
    assert waiter.held().finish().status == 0


# ---- who may ----


@pytest.mark.parametrize("call", [("each",), ("each", "job"), ("revoke", "job", "1", "-", BOB), ("revoke", "job", "1", "-", BOB, "force"),
                                  ("freeze", "job", BOB), ("thaw", "job")], ids=" ".join)
def test_a_role_that_may_not_is_told_what_it_needs(dlock, db, worker, call):  # noqa: F811
    psql(db, schema_sql(dlock))
    rc, why, entries = admin(At(worker), *call)
    assert (rc, entries) == (DENIED, []) and "GRANT USAGE ON SCHEMA dlock" in why


def test_the_rights_of_a_run_are_enough(dlock, db, worker):  # noqa: F811
    """And an administrator can keep some of it from some."""
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker")
    at = At(worker)
    holder = dlock.hold(At(pg_url(db.port, "postgres", db.name)), "job", *LIVING_LEASE)
    assert does(at, "freeze", "job", BOB) == OK
    db.ask("ALTER ROLE worker SET default_transaction_read_only = on")
    holding, freeze = each(at, "job")
    assert kinds(each(at)) == ["holder", "freeze"] and freeze["record"] == BOB
    assert does(at, "thaw", "job") == CONFIG  # a read-only role
    db.ask("ALTER ROLE worker RESET default_transaction_read_only")
    assert does(at, "thaw", "job") == OK
    assert revoke(at, holding) == OK
    assert holder.wait().status == 79
    db.ask("REVOKE EXECUTE ON FUNCTION dlock.freeze(text, text, interval) FROM PUBLIC")
    assert does(at, "freeze", "job", BOB) == DENIED
    psql(db, schema_sql(dlock))  # again; it stays so
    assert does(at, "freeze", "job", BOB) == DENIED
    assert each(at) == []


# What is there, the words, and the functions that they cannot do without.
TYPED = {
    "run": ("", ("run", "-n", "-k", "job", "true"), ["take"]),
    "status": ("", ("status", "-k", "job"), ["list", "last_run"]),
    "ls": ("", ("ls",), ["list"]),
    "wait": ("", ("wait", "-n", "-k", "job"), ["list"]),
    "freeze": ("", ("freeze", "-k", "job"), ["freeze"]),
    "thaw": ("frozen", ("thaw", "-y", "-k", "job"), ["list", "thaw"]),
    "break": ("held", ("break", "-y", "-w", "0", "-k", "job"), ["list", "ask_back"]),
    "ls --jobs": ("", ("ls", "--jobs"), ["list_jobs", "list_done"]),
    "forget": ("done", ("forget", "-y", "job"), ["forget"]),
    "break --force": ("held", ("break", "-y", "--force", "-k", "job"), ["list", "take_away"]),
}


@pytest.mark.parametrize("scene", TYPED)
def test_each_function_can_be_kept_from_a_role(dlock, db, worker, scene):  # noqa: F811
    """Who lacks it is told which, and does nothing; who has all does all."""
    there, words, functions = TYPED[scene]
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker")
    own, place = At(pg_url(db.port, "postgres", db.name)), At(worker)
    if there == "held":
        dlock.hold(own, "job")
    elif there == "frozen":
        assert dlock.run("freeze", *own.words, "-k", "job").status == 0
    elif there == "done":
        assert dlock.run("run", *own.words, "-k", "job", "--once", "id", "--", "true", events=False).status == 0
    for function in functions:
        name, = [name for name, in db.ask("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"
                                          f" AND proname = '{function}'")]
        db.ask(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
        done = dlock.run(words[0], *place.words, *words[1:])
        assert done.status == 77 and f"function {function}'" in done.stderr and "EXECUTE" in done.stderr, done
        db.ask(f"GRANT EXECUTE ON FUNCTION {name} TO PUBLIC")
    assert dlock.run(words[0], *place.words, *words[1:]).status == {"status": 1, "break": 75}.get(scene, 0)


class Roles:
    """A server with the roles of the manual, and its blocks, pasted."""

    PAGE = "dlock-pg.7"
    MARKS = {"deploy": "GRANT USAGE ON SCHEMA dlock TO deploy", "watcher": "TO watcher", "oncall": "dlock.forget TO oncall",
             "sessions": "pg_signal_backend TO oncall"}

    def __init__(self, server, directory):
        self.server, self.directory = server, directory
        server.ask("".join(f"CREATE ROLE {name} LOGIN;" for name in ("deploy", "watcher", "oncall")))
        self.own = At(pg_url(server.port, "postgres"))

    def paste(self, name):
        paste(block_of(self.PAGE, self.MARKS[name]), self.directory, PGHOST="127.0.0.1", PGPORT=str(self.server.port), PGUSER="postgres")

    def at(self, name, mode="lease"):
        return At(pg_url(self.server.port, name), mode)


@pytest.fixture
def roles(own_pg, tmp_path):
    return Roles(own_pg, tmp_path)


@pytest.mark.parametrize("order", [("deploy",), ("deploy", "watcher"), ("deploy", "oncall"), ("deploy", "watcher", "oncall")], ids=" ".join)
def test_each_role_of_the_manual_may_do_what_it_says(dlock, roles, order):
    """In the order of the page, as far as one follows it; and again, which changes nothing."""
    for name in order * 2:
        roles.paste(name)
    steers = {*STEER, *FORGET} if order[-1] != "oncall" else set()
    assert what_may(dlock, roles.own, roles.at("deploy")) == {*RUN, *LOOK, *JOBS} | steers
    assert waits_and_renews(dlock, roles.own, roles.at("deploy"))
    assert dlock.run("run", *roles.at("deploy").words, "-n", "-k", "looks", "--newest", "--unless-frozen", "all", "true").status == 0
    if "watcher" in order:
        assert what_may(dlock, roles.own, roles.at("watcher")) == {*LOOK, *JOBS}
    if "oncall" in order:
        assert what_may(dlock, roles.own, roles.at("oncall")) == {*LOOK, *STEER, *JOBS, *FORGET} | (set() if "watcher" in order else {*RUN})


# The functions that the blocks grant, and what cannot be done without.
NEEDS = {"list": ("ls", "lease"), "last_run": ("status", "lease"), "list_rows": ("ls", "row"), "ask_back": ("break", "lease"),
         "take_away": ("break --force", "lease"), "freeze": ("freeze", "lease"), "thaw": ("thaw", "lease"),
         "list_jobs": ("ls --jobs", "lease"), "list_done": ("ls --jobs", "lease"), "forget": ("forget", "lease"),
         "asker": ("asker", "lease"), "list_ended": ("shown", "lease")}


@pytest.mark.parametrize("name, count", [("watcher", 7), ("oncall", 12)])
def test_each_right_of_the_manual_is_needed(dlock, roles, name, count):
    for block in ("deploy", "watcher", name):
        roles.paste(block)
    granted = re.search(rf"GRANT EXECUTE ON FUNCTION ([^;]*?)\s+TO {name};", block_of(roles.PAGE, roles.MARKS[name]))[1]
    functions = re.findall(r"dlock\.(\w+)", granted)
    assert len(functions) == count and {*functions} <= {*NEEDS}
    for function in functions:
        scene, mode = NEEDS[function]
        assert may(dlock, scene, roles.own, roles.at(name, mode))
        roles.server.ask(f"REVOKE EXECUTE ON FUNCTION dlock.{function} FROM {name}")
        assert not may(dlock, scene, roles.own, roles.at(name, mode)), function
        roles.server.ask(f"GRANT EXECUTE ON FUNCTION dlock.{function} TO {name}")


@pytest.mark.parametrize("mode", ["advisory", "row"])
def test_the_rights_over_session_locks_of_the_manual(dlock, roles, mode):
    """Who runs, who looks, and who ends a session of another role; and each of both rights is needed for that."""
    for block in ("deploy", "watcher", "oncall"):
        roles.paste(block)
    own, oncall = roles.at("deploy", mode), roles.at("oncall", mode)
    assert may(dlock, "run", own, own) and may(dlock, "run -s", own, own) and may(dlock, "break --force", own, own)
    for name in ("deploy", "watcher", "oncall"):
        assert all(may(dlock, scene, own, roles.at(name, mode)) for scene in LOOK)
    assert not may(dlock, "break --force", own, oncall)
    roles.paste("sessions")
    assert may(dlock, "break --force", own, oncall)
    for right in ("pg_read_all_stats", "pg_signal_backend"):
        roles.server.ask(f"REVOKE {right} FROM oncall")
        assert not may(dlock, "break --force", own, oncall), right
        roles.server.ask(f"GRANT {right} TO oncall")


def test_an_advisory_lock_needs_no_schema_and_the_role_that_runs_where_there_is_one(dlock, roles):
    """And any role may look at it."""
    place = roles.at("watcher", "advisory")
    assert may(dlock, "run", place, place) and may(dlock, "status", place, place)
    roles.paste("deploy")
    assert not may(dlock, "run", place, place) and may(dlock, "status", place, place)
    assert may(dlock, "run", place, roles.at("deploy", "advisory"))


def test_no_owner_is_shown_to_anybody(dlock, db, at):
    """Who knew it could release."""
    dlock.hold(at, "job", *ENDLESS)
    dlock.contend(at, "job", *ENDLESS).queued(1)
    owners = [owner for owner, in db.ask("SELECT owner FROM dlock.claims")]
    with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
        cursor.execute("SELECT l::text FROM dlock.list(NULL, '', -1, 0, 100) l")
        told = str(cursor.fetchall())
    assert len(owners) == 2 and not any(owner in told for owner in owners)


LOOKS = ("each",), ("each", "job"), ("thaw", "job"), ("revoke", "job", "1", "-", BOB), ("revoke", "job", "1", "-", BOB, "force")


def test_a_newer_schema_is_not_taken_for_none(dlock, db, at):
    """Nothing of it is called; what there is to do is told."""
    psql(db, schema_sql(dlock), USER)
    db.ask("COMMENT ON SCHEMA dlock IS 'dlock 12: locks for commands'; ALTER FUNCTION dlock.serves_6 RENAME TO serves_12", user=USER)
    for words in (*LOOKS, ("freeze", "job", BOB)):
        rc, why, entries = admin(at, *words)
        assert (rc, entries) == (CONFIG, []) and "newer" in why
    assert admin(At(db.url, "row"), "each")[0] == CONFIG


def test_a_look_does_not_bring_a_schema_up_to_date(dlock, db, at):
    psql(db, VERSION_5, USER)
    for words in LOOKS:
        rc, why, entries = admin(at, *words)
        assert (rc, entries) == (CONFIG, []) and "an older dlock" in why and "dlock help pg-schema | psql" in why
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 5:")
    assert admin(at, "freeze", "job", BOB)[0] == OK
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 11:")


# ---- the modes that end with the connection ----


@pytest.fixture(params=["advisory", "row"])
def bound(request, db):
    return At(db.url, request.param)


def test_sessions_that_hold_and_wait_are_told(dlock, bound):
    holders = [dlock.hold(bound, "job", *ENDLESS, "-s", "--why", "because") for _ in range(2)]
    writer = dlock.contend(bound, "job", *ENDLESS).queued(1)
    wait_for(lambda: "waiter" in kinds(each(bound, "job")), what="the writer in the server's queue")  # it says so before
    reader = dlock.contend(bound, "job", *ENDLESS, "-s").queued(2)

    def both_wait():
        found = each(bound, "job")
        return found if kinds(found) == ["holder"] * 2 + ["waiter"] * 2 else None

    found = wait_for(both_wait, what="both in the queue")  # between two pieces of their wait they are not in it
    assert {who(e)["pid"] for e in found[:2]} == {h.pid for h in holders}
    assert {(e["lock"], who(e)["why"]) for e in found[:2]} == {(SHARED, "because")}
    assert {who(e)["pid"] for e in found[2:]} == {writer.pid, reader.pid}
    assert [e["position"] for e in found] == [0, 0, 1, 2]
    assert all(0 < e["since"] <= e["now"] for e in found[2:])
    assert all(e["token"] == 0 and "foreign" not in e for e in found)
    assert [e["count"] for e in wait_for(lambda: [e for e in each(bound, "job", "brief") if e.get("count") == 2], what="a count")] == [2]
    assert kinds(each(bound))[:2] == ["holder"] * 2
    assert each(bound, "other") == []


def test_exactly_the_session_that_was_meant_is_ended(dlock, bound):
    holder = dlock.hold(bound, "job", *ENDLESS)
    beside = dlock.hold(bound, "other", *ENDLESS)
    target, = each(bound, "job")
    pid, began = target["owner"].split("-")
    for owner in (f"{pid}-{int(began) + 1}", f"{pid}-0", f"{pid}-", pid, "-", f"-1-{began}", f"{int(pid) + 1}-{began}", "x", f"{pid}-{began}0"):
        assert revoke(bound, {"token": 0, "owner": owner}, "force") == LOST, owner
    assert revoke(bound, target, "force", key="other") == LOST
    waiter = dlock.contend(bound, "job", *ENDLESS).queued(1)
    assert not holder.events("lost") and is_alive(holder.command)
    assert revoke(bound, target, "force") == OK
    waiter.held()
    assert holder.wait().status == 79
    assert revoke(bound, target, "force") == LOST
    assert beside.finish().status == waiter.finish().status == 0


def test_a_role_that_may_not_end_it_is_told(dlock, db, bound, worker):  # noqa: F811
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker, app")
    holder = dlock.hold(bound, "job", *ENDLESS)
    stranger = At(worker)
    stranger.words += bound.words[2:]
    target, = each(stranger, "job")
    assert target["owner"].endswith("-0") and who(target)["pid"] == holder.pid
    for owner in (target["owner"], each(bound, "job")[0]["owner"]):
        rc, why, _ = admin(stranger, "revoke", "job", 0, owner, BOB, "force")
        assert rc == DENIED and "pg_signal_backend" in why
    assert holder.finish().status == 0


def test_advisory_locks_of_other_programs(dlock, db):
    """By their number; with a key those of that key."""
    at = At(db.url, "advisory")
    with contextlib.closing(db.connect(user="app")) as d, contextlib.closing(db.connect(application_name="\x1b[31m cron; '")) as c:
        with c.cursor() as cursor, d.cursor() as other:
            cursor.execute("SELECT pg_advisory_lock(42), pg_advisory_lock(-1), pg_advisory_lock(7, -2), pg_advisory_lock_shared(5)")
            other.execute("SELECT pg_advisory_lock_shared(5)")
            thread = threading.Thread(target=other.execute, args=("SELECT pg_advisory_lock(42)",))
            thread.start()
            wait_for(lambda: len(each(at)) == 6, what="all of them")
            found = {(e["key"], e["kind"], e["lock"]): e for e in each(at)}
            assert set(found) == {("-O key=42", "holder", EXCLUSIVE), ("-O key=42", "waiter", EXCLUSIVE), ("-O key=5", "holder", SHARED),
                                  ("-O key=-1", "holder", EXCLUSIVE), ("-O key=7,-2", "holder", EXCLUSIVE)}
            entry = found["-O key=42", "holder", EXCLUSIVE]
            assert entry["who"] == "postgres" and "cron; '" in entry["foreign"] and "\x1b" not in entry["foreign"]
            assert f"server process {c.info.backend_pid}" in entry["foreign"] and entry["pid"] == 0 and "record" not in entry
            by_number = At(db.url)
            by_number.words += ["-O", "mode=advisory", "-O", "key=7,-2"]
            assert [e["key"] for e in each(by_number, "word")] == ["word"]
            cursor.execute("SELECT pg_advisory_unlock_all()")
            thread.join()


def test_of_dlocks_own_advisory_locks_none_is_told(dlock, db):
    """Of who waits in mode=lease, and the order locks of readers and writers."""
    dlock.hold(At(db.url), "job", *ENDLESS)
    dlock.contend(At(db.url), "job", *ENDLESS).queued(1)
    at = At(db.url, "advisory")
    dlock.hold(at, "job", *ENDLESS)
    dlock.contend(at, "job", *ENDLESS).queued(1)
    dlock.contend(at, "job", *ENDLESS, "-s").queued(2)
    wait_for(lambda: kinds(each(at)) == ["holder", "waiter", "waiter"], what="both in the queue")
    assert len({e["key"] for e in each(at)}) == 1


def test_who_is_no_dlock_and_has_locked_a_row(dlock, db):
    at = At(db.url, "row")
    assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0
    with contextlib.closing(db.connect("app", application_name="by hand")) as c, c.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT FROM dlock.rows WHERE key = 'job' FOR UPDATE")
        waiter = dlock.contend(at, "job", *ENDLESS).queued()
        wait_for(lambda: kinds(each(at)) == ["holder", "waiter"], what="the waiter")
        found = each(at, "job")[0]
        assert f"by hand (server process {c.info.backend_pid})" in found["foreign"] and found["pid"] == 0 and found["key"] == "job"
        assert 0 < found["since"] <= found["now"]
        assert revoke(at, found, "force") == OK
    assert waiter.held().finish().status == 0
    assert each(at) == []


def test_a_prepared_transaction_holds_it(dlock, make_pg):
    """It has no session; what it is, is told, and nothing ends it but its own end."""
    server = make_pg(max_prepared_transactions=5)
    for mode, sql, key in (("row", "SELECT FROM dlock.rows WHERE key = 'job' FOR UPDATE", "job"),
                           ("advisory", "SELECT pg_advisory_xact_lock(42)", "-O key=42")):
        at = At(server.url, mode)
        assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0
        with contextlib.closing(server.connect()) as c, c.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(sql)
            cursor.execute("PREPARE TRANSACTION 'p'")
        found = [e for e in each(at) if e["key"] == key]
        assert [(e["kind"], e["foreign"], e["pid"]) for e in found] == [("holder", "a prepared transaction", 0)]
        assert revoke(at, found[0], "force") == LOST
        server.ask("ROLLBACK PREPARED 'p'")
        assert each(at) == []


def test_rows_page_by_page(dlock, db):
    """Of thousands of rows that are not locked, those that are."""
    at = At(db.url, "row")
    assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0
    db.ask("INSERT INTO dlock.rows SELECT 'key' || n FROM generate_series(1, 4999) n")
    keys = ["key1", "key4999", "key5"]
    holders = [dlock.hold(at, key, *ENDLESS) for key in keys]
    assert [e["key"] for e in each(at)] == keys
    assert all(h.finish().status == 0 for h in holders)
    assert each(at) == []


# ---- runs ----


def test_hostile_runs_are_listed_as_far_as_they_are_runs(dlock, db, at):
    """In the order of keys and IDs, whatever stands in their columns; more than a page of them."""
    assert dlock.run("run", *at.words, "-k", "job", "--once", "first", "--", "true").status == 0
    db.ask("INSERT INTO dlock.runs VALUES ('job', E'\\x1b[2J', '1970-01-01', '2100-01-01', 255, 7, repeat(E'\\x1b', 4000))", user=USER)
    db.ask("INSERT INTO dlock.runs VALUES ('job', NULL, '2099-01-01', '2099-01-01', 0, 8, '{}')", user=USER)  # of a clock far ahead
    db.ask("INSERT INTO dlock.runs SELECT 'many', 'id' || n, now(), now(), 0, n, '{}' FROM generate_series(1, 1200) n", user=USER)
    hostile_runs_are_listed(dlock, at)
