# Goal of these tests: kinds of lock and jobs on PostgreSQL: who is granted and woken by what,
# what is stored, what others may do to it, and what the modes without a table can.

import contextlib
import random
import re
import signal
import threading
import time

import psycopg2
import pytest

from faults import assert_refused
from pg import ADVISORY, Tamper, columns, data_row, pg_url, rows_of
from proxy import BOTH, UP
from support import At, children_of, is_alive, kill, run, wait_for

KINDS = {"x": [], "s": ["-s"], "l3": ["--limit", "3"], "l5": ["--limit", "5"]}
SLOT = ("sh", "-c", "echo $DLOCK_SLOT; exec cat")


def ran(done):
    return (done.status, done.stdout) == (0, "ran\n")


def slot(started):
    wait_for(lambda: started.stdout().endswith("\n"), what="a slot")
    return int(started.stdout())


@pytest.fixture(params=["direct", "pooled"])
def at(request, db):
    """A database of one's own, where others wait by a pooler, too."""
    if request.param == "direct":
        return At(db.url)
    pooler = request.getfixturevalue("make_pooler")(db.server)
    return At(pg_url(pooler.port, db=db.name))


# ---- one queue ----


def test_kinds_take_turns_in_the_order_in_which_they_came(dlock, at):
    writer = dlock.hold(at, "job", "-t", "60s")
    readers = [dlock.contend(at, "job", "-s").queued(n) for n in (1, 2, 3)]
    second = dlock.contend(at, "job", "-x").queued(4)
    last = dlock.contend(at, "job", "-s").queued(5)
    writer.finish()
    for r in readers:
        r.held()
    assert not second.running and not last.running
    for r in readers:
        assert not second.running
        r.finish()
    second.held()
    assert not last.running
    second.finish()
    assert last.held().finish().status == 0
    tokens = [s.token for s in (writer, *readers, second, last)]
    assert tokens == sorted(tokens) and len(set(tokens)) == len(tokens)


def test_a_mixture_of_fifty_is_first_come_first_served(dlock, db):
    """Each runs in its turn: a writer's token lies between those of its neighbours."""
    at = At(db.url)
    dice = random.Random(11)
    holder = dlock.hold(at, "job", "-t", "60s")
    kinds = [dice.choice(["x", "s", "s"]) for _ in range(50)]
    crowd = [dlock.contend(at, "job", *KINDS[k], "-t", "60s", command=("true",)).queued(n + 1) for n, k in enumerate(kinds)]
    holder.finish()
    assert [c.wait(60).status for c in crowd] == [0] * len(crowd)
    tokens = [c.token for c in crowd]
    assert tokens == sorted(tokens) and len(set(tokens)) == len(tokens)
    assert db.value("SELECT count(*) FROM dlock.claims") == 0


def test_a_reader_does_not_pass_a_writer_and_takes_its_turn_when_that_gives_up(dlock, db, at):
    reader = dlock.hold(at, "job", "-s")
    writer = dlock.contend(at, "job", "-x").queued(1)
    assert run(dlock, db.url, "-s", "-n").status == 75
    behind = dlock.contend(at, "job", "-s").queued(2)
    writer.signal(signal.SIGTERM)
    assert writer.wait().status == -signal.SIGTERM
    assert is_alive(reader.command) and behind.held().finish().status == 0


def test_a_writer_gets_its_turn_in_a_stream_of_readers(dlock, db):
    """There is always a reader, and another one comes before it ends."""
    at = At(db.url)
    readers = [dlock.hold(at, "job", "-s") for _ in range(3)]
    writer = dlock.contend(at, "job", "-t", "60s").queued(1)
    readers += [dlock.contend(at, "job", "-s").queued(n) for n in (2, 3)]
    for r in readers[:3]:
        r.finish()
    writer.held()
    assert not any(r.running for r in readers[3:])
    writer.finish()
    for r in readers[3:]:
        assert r.held().finish().status == 0


def test_a_unit_of_a_limit_goes_to_one_waiter_with_its_slot(dlock, at):
    holders = [dlock.hold(at, "job", "--limit", "3", command=SLOT) for _ in range(3)]
    assert [slot(h) for h in holders] == [0, 1, 2]
    waiters = [dlock.contend(at, "job", "--limit", "3", command=SLOT).queued(n) for n in (1, 2)]
    holders[1].finish()
    assert slot(waiters[0].held()) == 1
    assert not waiters[1].running
    holders[0].finish()
    assert slot(waiters[1].held()) == 0


def test_an_exclusive_one_among_limited_ones(dlock, at):
    """It waits until all have gone; then as many as fit follow at once."""
    holders = [dlock.hold(at, "job", "--limit", "3") for _ in range(2)]
    writer = dlock.contend(at, "job").queued(1)
    behind = [dlock.contend(at, "job", "--limit", "3", command=SLOT).queued(n + 2) for n in range(4)]
    holders[1].finish()
    holders[0].finish()
    writer.held()
    assert not any(b.running for b in behind)
    writer.finish()
    assert sorted(slot(b.held()) for b in behind[:3]) == [0, 1, 2]
    assert not behind[3].running
    behind[1].finish()
    assert slot(behind[3].held()) == 1


def test_a_release_wakes_those_whom_it_grants_and_nobody_else(dlock, make_pg):
    """Counted in the server's log: what readers who do not fit yet, and a writer, ask meanwhile: nothing."""
    server = make_pg(log_statement="all", client_connection_check_interval="5s")
    at = At(server.url)

    def asked():
        text = server.log()
        return text.count("dlock.enter("), text.count("dlock.await(")

    writer = dlock.hold(at, "job", "-t", "60s")
    readers = [dlock.contend(at, "job", "-s", "-t", "60s").queued(n + 1) for n in range(5)]
    second = dlock.contend(at, "job", "-t", "60s").queued(6)
    last = [dlock.contend(at, "job", "-s", "-t", "60s").queued(7 + n) for n in range(5)]
    wait_for(lambda: asked()[1] >= 11, what="sleep")
    joined = asked()[0]
    writer.finish()
    for r in readers:
        r.held()
    wait_for(lambda: "LISTEN" in server.log() or asked()[0] > joined, what="the first in line")
    for r in readers:
        r.finish()
    second.held()
    assert asked()[0] - joined <= 3  # the second writer's: it is the first in line; it is granted (and one for a slow machine)
    second.finish()
    for r in last:
        r.held()
    assert asked()[0] - joined <= 3


class Late(Tamper):
    """Keeps back the answer that tells a waiter to listen until the notification comes, and then gives both at once."""

    def __init__(self, port):
        super().__init__(port, self.look)
        self.kept, self.given, self.asked = [], None, None

    def look(self, kind, body):
        row = columns(body) if kind == b"D" and self.given is None else []
        if not self.kept and (len(row) < 19 or row[18] != b"t"):
            return [(kind, body)]
        self.kept.append((kind, body))
        if kind != b"A":
            return []
        both, self.kept, self.given = self.kept, [], time.monotonic()
        return both

    def rewrite(self, link, direction, data):
        if direction == UP and self.given and not self.asked:
            self.asked = time.monotonic()
        return super().rewrite(link, direction, data)


def test_a_notification_that_comes_with_an_answer_wakes(dlock, db, request):
    """It does not make the socket readable any more.  One attempt of three may meet a busy machine."""
    run(dlock, db.url)
    took = []
    for _ in range(3):
        proxy = Late(db.port)
        request.addfinalizer(proxy.close)
        reader = dlock.hold(At(db.url), "job", "-s")
        writer = dlock.contend(At(proxy.url(db.name)), "job", "-t", "60s")
        wait_for(lambda p=proxy: p.kept, what="the first in line")
        assert reader.finish().status == 0
        assert writer.held().finish().status == 0
        took.append(proxy.asked - proxy.given)
    assert min(took) < 1, took  # without it, the first in line asks every 2.5 s


def test_a_listener_whose_renewal_fails_does_not_listen_on(dlock, db):
    """With the grant its session has ended that: nobody will call it again.  One attempt of three may meet a busy machine."""
    at = At(db.url)
    took = []
    for _ in range(3):
        first = dlock.hold(at, "job", "-t", "60s")
        reader = dlock.contend(at, "job", "-s", "-t", "60s").queued(1)
        writer = dlock.contend(at, "job", "-t", "60s").queued(2)
        assert first.finish().status == 0
        reader.held()
        wait_for(lambda: db.value("SELECT bool_or(listens) FROM dlock.claims"), what="the first in line")
        function = db.value("SELECT pg_get_functiondef('dlock.renew'::regproc)")
        db.ask(function.replace("\nBEGIN\n", "\nBEGIN\nRAISE lock_not_available;\n", 1))
        began = time.monotonic()
        assert reader.finish().status == 0
        writer.held()
        took.append(time.monotonic() - began)
        db.ask(function)
        assert writer.finish().status == 0
    assert min(took) < 2, took  # what it waits for comes after 2.5 s at the earliest, by itself


def test_readers_behind_a_writer_are_granted_together(dlock, db):
    """In one statement, for they sleep until it is done; up to the next writer, and without those who are away."""
    db.ask(f"ALTER DATABASE {db.name} SET track_functions = 'all'")
    at = At(db.url)
    writer = dlock.hold(at, "job", "-t", "60s")
    readers = [dlock.contend(at, "job", "-s", "-t", "60s").queued(n + 1) for n in range(8)]
    readers.pop(3).signal(signal.SIGKILL, "keeper")
    second = dlock.contend(at, "job", "-t", "60s").queued()
    behind = dlock.contend(at, "job", "-s").queued()
    wait_for(lambda: db.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
                              " AND pid <> pg_backend_pid()") == len(readers) + 2, what="their sleep, and the death of one")
    assert writer.finish().status == 0
    for r in readers:
        r.held()
    assert not second.running and not behind.running
    tokens = [r.token for r in readers]
    assert tokens == sorted(tokens) and len(set(tokens)) == len(tokens) and tokens[0] > writer.token
    assert tokens[-1] - tokens[0] <= len(tokens)  # each was looked at once, and got one number; and perhaps the dead one
    assert db.ask("SELECT count(*) FILTER (WHERE leads), count(DISTINCT since) FROM dlock.claims WHERE slot IS NOT NULL") == [(1, 1)]
    for r in readers:
        assert r.finish().status == 0
    assert second.held().finish().status == 0
    assert behind.held().finish().status == 0
    called = "SELECT calls FROM pg_stat_user_functions WHERE schemaname = 'dlock' AND funcname = 'serve_readers'"
    # the second writer's release granted to the last one; a session tells of such counts when it ends, at the latest
    wait_for(lambda: db.ask(called) == [(2,)], what="one grant by each writer")


@pytest.mark.parametrize("used, kind", [(["-s"], ["-x"]), (["--limit", "1"], ["--limit", "1"])], ids=["writer", "limit"])
def test_the_first_in_line_takes_up_its_grant_without_the_lock_of_the_key(dlock, db, used, kind):
    """All who release want that one, and take turns."""
    at = At(db.url)
    holder = dlock.hold(at, "job", *used)
    before = dlock.contend(at, "job", *kind).queued(1)
    first = dlock.contend(at, "job", *kind, "-t", "60s").queued(2)
    wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted"), what="its sleep")
    before.signal(signal.SIGTERM)
    before.wait()
    wait_for(lambda: db.value("SELECT bool_or(listens) FROM dlock.claims"), what="the first in line")
    first.signal(signal.SIGSTOP, "keeper")
    assert holder.finish().status == 0
    with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(1684828011, hashtext('job'))")
        first.signal(signal.SIGCONT, "keeper")
        first.held()
    assert first.finish().status == 0
    assert db.value("SELECT count(*) FROM dlock.claims") == 0


def test_the_slot_of_the_dead_is_free_when_its_lease_ends(dlock, db, at):
    dead = dlock.hold(at, "job", "--limit", "2", "-t", "3s", command=SLOT)
    other = dlock.hold(at, "job", "--limit", "2", command=SLOT)
    dead.destroy()
    assert run(dlock, db.url, "--limit", "2", "-n").status == 75
    heir = dlock.contend(at, "job", "--limit", "2", command=SLOT).queued(1)
    assert (slot(other), slot(heir.held())) == (1, 0)


def test_the_dead_leader_of_readers_leaves_no_gap(dlock, db):
    """An exclusive claim decided by an old snapshot is refused while anybody holds."""
    at = At(db.url)
    dead, reader = dlock.hold(at, "job", "-s", "-t", "3s"), dlock.hold(at, "job", "-s", "-t", "60s")
    third = dlock.hold(at, "job", "-s", "-t", "60s")
    dead.destroy()
    wait_for(lambda: db.value("SELECT bool_or(leads AND ends < clock_timestamp()) FROM dlock.claims"), what="the end of its lease")
    for options in (["-n"], ["-s", "-n"], ["--limit", "2"]):
        run(dlock, db.url, *options)
        assert db.value("SELECT count(*) FROM dlock.claims WHERE leads AND slot IS NOT NULL") == 1
    third.finish()
    assert db.value("SELECT count(*) FROM dlock.claims WHERE leads") == 1
    insert = ("INSERT INTO dlock.claims (key, ticket, owner, kind, room, lease, direct, token, slot, seal, leads, ends, since, record)"
              " SELECT 'job', 1, repeat('e', 32), 'exclusive', 0, '1 s', false, 1, 0, 'exclusive 0 0', true, now(), now(), '{}'")
    with pytest.raises(psycopg2.errors.UniqueViolation):
        db.ask(insert)
    reader.finish()
    db.ask(insert)


@pytest.mark.parametrize("used, asked", [("s", "l3"), ("l3", "s"), ("l3", "l5")])
def test_another_kind_is_refused_while_one_is_in_use(dlock, db, at, used, asked):
    names = [" ".join(KINDS[k]) for k in (used, asked)]
    holder = dlock.hold(at, "job", *KINDS[used])
    for more in ([], ["-n"]):
        done = run(dlock, db.url, *KINDS[asked], *more)
        assert done.status == 76 and f"in use with {names[0]}, and this run asks for {names[1]}" in done.stderr
    writer = dlock.contend(at, "job").queued(1)
    holder.finish()
    writer.held()
    waiter = dlock.contend(at, "job", *KINDS[used]).queued(1)  # it is waited for now, behind another writer
    dlock.contend(at, "job").queued(2)
    done = run(dlock, db.url, *KINDS[asked])
    assert done.status == 76 and names[0] in done.stderr
    assert not waiter.running


def test_a_key_that_is_free_again_takes_anything(dlock, db):
    for kind in ["l3", "s", "x", "l5", "l3", "x", "s"]:
        assert ran(run(dlock, db.url, *KINDS[kind], "-n"))


def test_a_limit_of_five_with_thirty_and_random_death(dlock, db):
    """Never above five, no slot twice, and nothing leaks."""
    at = At(db.url)
    run(dlock, db.url)
    dice = random.Random(5)
    crowd = [dlock.contend(at, "job", "--limit", "5", "-t", "3s", "-w", "100s", command=("sh", "-c", "echo $DLOCK_SLOT; sleep 0.3"))
             for _ in range(30)]
    most, bad, victims, ends = 0, [], dice.sample(crowd, 8), time.monotonic() + 50
    while any(c.poll() is None for c in crowd) and time.monotonic() < ends:
        held = [s for s, in db.ask("SELECT slot FROM dlock.claims WHERE key = 'job' AND ends > clock_timestamp()")]
        most = max(most, len(held))
        bad += [held] if len(set(held)) != len(held) or len(held) > 5 or any(s >= 5 for s in held) else []
        if victims and dice.random() < 0.3:
            victim = victims.pop()
            for pid in dice.choice([[victim.pid], children_of(victim.pid)]) if victim.poll() is None else []:
                kill(pid)
    results = [c.wait(60).status for c in crowd]
    assert not bad and most == 5
    assert results.count(0) >= 22
    done = run(dlock, db.url, "-w", "20s")
    assert ran(done) and db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NOT NULL") == 0


def test_a_waiter_behind_holders_that_share_comes_back_after_a_partition(dlock, db, make_proxy):
    """It LISTENs: the notification is lost with its connection, and its place is not."""
    proxy = make_proxy(db.port)
    readers = [dlock.hold(At(db.url), "job", "-s") for _ in range(2)]
    writer = dlock.contend(At(pg_url(proxy.port, db=db.name)), "job").queued(1)
    proxy.hold(*BOTH)
    readers[0].finish()
    proxy.reset()
    proxy.heal()
    wait_for(lambda: proxy.connections > 1, what="its return")
    readers[1].finish()
    assert writer.held().finish().status == 0


def test_a_stricter_isolation_is_for_exclusive_locks_alone(dlock, db):
    """Who decides by an old snapshot is refused, or decides nothing for others."""
    url = db.url + "?options=-cdefault_transaction_isolation%3Dserializable"
    assert ran(run(dlock, url))
    for options in (["-s"], ["--limit", "2"]):
        assert_refused(run(dlock, url, *options), 78, "read committed")
    holder = dlock.hold(At(url), "job", "-t", "60s")
    readers = [dlock.contend(At(db.url), "job", "-s").queued(n) for n in (1, 2)]
    writer = dlock.contend(At(url), "job", "-t", "60s").queued(3)
    assert holder.finish().status == 0
    for r in readers:
        r.held()
    assert not writer.running
    assert [r.finish().status for r in readers] == [0, 0]
    assert writer.held().finish().status == 0


# ---- jobs ----


def test_an_id_is_done_once(dlock, db):
    assert run(dlock, db.url, "--once", "today", command=("false",)).status == 1
    assert ran(run(dlock, db.url, "--once", "today"))
    for more in ([], ["-n"], ["-s"], ["--limit", "2"]):
        done = run(dlock, db.url, "--once", "today", *more)
        assert (done.status, done.stdout, done.stderr) == (0, "", "")
    assert run(dlock, db.url, "--once", "today", "--skipped-exit-code", "9").status == 9
    said = run(dlock, db.url, "--once", "today", "-v", "--who", "somebody").stderr
    assert re.search(r"ID today was run at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ by \S+@\S+ and ended with 0", said)
    assert ran(run(dlock, db.url, "--once", "tomorrow"))
    assert ran(run(dlock, db.url))
    assert db.ask("SELECT id, status FROM dlock.runs ORDER BY ended") == [("today", 1), ("today", 0), ("tomorrow", 0)]
    assert db.value("SELECT bool_and(began <= ended AND token > 0 AND record LIKE '%%command%%') FROM dlock.runs")
    assert db.value("SELECT count(*) FROM dlock.claims") == 0


def test_a_cooldown_counts_from_the_begin_of_the_last_good_run(dlock, db):
    assert ran(run(dlock, db.url, "--cooldown", "1h"))
    assert run(dlock, db.url, "--cooldown", "1h", "--once", "new").stdout == ""
    said = run(dlock, db.url, "--cooldown", "1h", "-v")
    assert said.stdout == "" and re.search(r"began \d+(ms|s) ago, less than --cooldown 1h", said.stderr)
    assert run(dlock, db.url, "--once", "other", command=("false",)).status == 1
    db.ask("UPDATE dlock.runs SET began = began - interval '1 hour' WHERE status = 0")
    assert ran(run(dlock, db.url, "--cooldown", "1h"))


def test_of_many_who_wait_for_one_run_all_are_skipped_and_the_lock_goes_on(dlock, at):
    first = dlock.hold(at, "job", "--once", "today", "-t", "60s")
    others = [dlock.contend(at, "job", "--once", "today", command=("echo", "ran")).queued(n + 1) for n in range(8)]
    plain = dlock.contend(at, "job").queued(9)
    assert first.finish().status == 0
    assert [(o.wait().status, o.stdout()) for o in others] == [(0, "")] * 8
    assert all(o.event("verdict")["verdict"] == "skipped" for o in others)
    assert plain.held().finish().status == 0


def test_a_run_that_is_lost_or_not_released_does_not_count(dlock, db):
    """Also one whose keeper is killed between the command's success and the release: at least once, never falsely skipped."""
    at = At(db.url)
    holder = dlock.hold(at, "job", "--once", "today", "-t", "3s")
    db.ask("DELETE FROM dlock.claims")
    assert holder.wait().status == 79
    late = dlock.contend(at, "job", "--once", "today", "-t", "3s", command=("sh", "-c", 'kill -9 $PPID; exit 0')).wait()
    assert late.status != 0
    with contextlib.closing(psycopg2.connect(pg_url(db.port, "postgres", db.name))) as c, c.cursor() as cursor:
        third = dlock.hold(at, "third", "--once", "today", "-t", "3s")
        cursor.execute("SELECT pg_advisory_xact_lock(1684828011, hashtext('third'))")  # no release gets through
        third.popen.stdin.close()
        wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted"), what="a release")
        third.signal(signal.SIGKILL, "keeper")
        third.signal(signal.SIGKILL)
        wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted") == 0, what="its end")
    assert db.value("SELECT count(*) FROM dlock.runs") == 0
    assert ran(run(dlock, db.url, "--once", "today"))
    assert dlock.run("run", *at.words, "-k", "third", "--once", "today", "--", "echo", "ran").stdout == "ran\n"


def test_a_repeated_release_remembers_once_and_only_for_a_holder(db, dlock):
    run(dlock, db.url)
    a, b = "a" * 32, "b" * 32
    assert db.value("SELECT code FROM dlock.enter('k', %s, '{}', 60000, 0, 'exclusive', 0, 'id', 0, 0, false)", a) == 1
    assert db.value("SELECT dlock.release('k', %s, 0, 'id', false)", a) == 1
    assert db.value("SELECT dlock.release('k', %s, 5, 'id', false)", a) == 0
    assert db.value("SELECT dlock.release('k', %s, 0, 'other', false)", b) == 0
    assert db.value("SELECT code FROM dlock.enter('k', %s, '{}', 1, 0, 'exclusive', 0, 'late', 0, 0, false)", b) == 1
    time.sleep(0.01)
    assert db.value("SELECT dlock.release('k', %s, 0, 'late', false)", b) == 0
    assert db.ask("SELECT id, status FROM dlock.runs") == [("id", 0)]


def test_runs_are_forgotten_after_400_days(dlock, db):
    assert ran(run(dlock, db.url, "--once", "old"))
    assert ran(run(dlock, db.url, "--once", "older"))
    db.ask("UPDATE dlock.runs SET began = began - interval '399 days', ended = ended - interval '399 days' WHERE id = 'old'")
    db.ask("UPDATE dlock.runs SET began = began - interval '401 days', ended = ended - interval '401 days' WHERE id = 'older'")
    assert run(dlock, db.url, "--once", "old").stdout == ""
    assert ran(run(dlock, db.url, "--once", "new"))
    assert db.ask("SELECT id FROM dlock.runs ORDER BY ended") == [("old",), ("new",)]


# ---- what others do to the data ----


ALTER = ["kind = 'shared'", "kind = 'limit'", "kind = 'exclusive'", "kind = 'limit', room = 99", "room = room + 2", "room = 0",
         "slot = slot + 1", "slot = 77", "slot = NULL", "leads = NOT leads", "seal = ''"]


@pytest.mark.parametrize("kind", KINDS)
def test_altered_claims_are_an_error_or_harmless_and_give_no_second_holder(dlock, db, kind):
    holder = dlock.hold(At(db.url), "job", *KINDS[kind], "-t", "60s", command=SLOT)
    filler = [dlock.hold(At(db.url), "job", *KINDS[kind]) for _ in range({"l3": 2, "l5": 4}.get(kind, 0))]
    for alter in ALTER:
        with contextlib.suppress(psycopg2.Error):
            db.ask(f"UPDATE dlock.claims SET {alter} WHERE ticket = (SELECT min(ticket) FROM dlock.claims)")
        for other, options in KINDS.items():
            done = run(dlock, db.url, *options, "-n")
            assert done.status in ((0,) if kind == other == "s" else (75, 76)), (alter, other, done)
    assert [h.finish().status for h in (holder, *filler)] == [0] * (1 + len(filler))
    assert ran(run(dlock, db.url, "-n"))


@pytest.mark.parametrize("alter, outcome", [
    ("status = 5", "ran\n"), ("id = 'x'", "ran\n"), ("record = E'\\n\\x1b[2J'", ""), ("record = repeat('x', 100000)", ""),
    ("began = began + interval '100 years'", ""), ("began = '4000-01-01 BC'", None), ("began = 'infinity'", ""),
    ("status = 4711", ""), ("record = '{\"who\":\"' || E'\\x1b[2J' || '\"}'", "")])
def test_runs_that_were_written_by_others(dlock, db, alter, outcome):
    assert ran(run(dlock, db.url, "--once", "today"))
    with contextlib.suppress(psycopg2.errors.CheckViolation):
        db.ask(f"UPDATE dlock.runs SET {alter}")
    done = run(dlock, db.url, "--once", "today", "-v")
    assert "\x1b" not in done.stderr
    assert (done.status, done.stdout) == ((0, outcome) if outcome is not None else (76, ""))
    assert ran(run(dlock, db.url))
    db.ask("UPDATE dlock.runs SET began = ended + interval '100 years'")  # nobody's
    assert ran(run(dlock, db.url, "--cooldown", "1h", "-n"))


@pytest.mark.parametrize("field, value, options", [
    (2, b"3", ["--limit", "3"]), (2, b"-1", ["--limit", "3"]), (2, None, ["--limit", "3"]), (2, b"1", ["-s"]), (0, b"3", ["-s"]),
    (0, b"2", ["-s"]), (0, b"-1", ["-s"]), (1, b"0", ["-s"]), (16, b"x", ["-s"])], ids=range(9))
def test_an_answer_that_is_none_is_an_error(dlock, db, make_tamper, field, value, options):
    assert ran(run(dlock, db.url))

    def change(kind, body):
        row = columns(body) if kind == b"D" else []
        if len(row) < 19:
            return [(kind, body)]
        row[field] = value
        return [(kind, data_row(row))]

    tamper = make_tamper(db.port, change)
    done = run(dlock, tamper.url(db.name), *options)
    assert (done.status, done.stdout) == (76, "") and done.stderr.count("\n") == 1


# ---- the modes without a table ----


@pytest.fixture(params=["row", "advisory"])
def bound(request, db):
    return At(db.url, request.param)


def test_readers_share_and_exclude_writers_in_every_mode(dlock, db, bound):
    readers = [dlock.hold(bound, "job", "-s", "-t", "6s", "-v") for _ in range(3)]
    assert dlock.run("run", *bound.words, "-k", "job", "-n", "--", "true").status == 75
    assert dlock.run("run", *bound.words, "-k", "job", "-s", "-n", "--", "true").status == 0
    early = dlock.contend(bound, "job", "-x", "-t", "6s").queued()
    renewed = [r.stderr().count(": renew: ok") for r in readers]
    wait_for(lambda: all(r.stderr().count(": renew: ok") > n for r, n in zip(readers, renewed)), what="a renewal of all")
    early.signal(signal.SIGTERM)
    assert early.wait().status == -signal.SIGTERM
    writer = dlock.contend(bound, "job", "-x", "-t", "6s")
    # It has its place for three seconds, and then comes anew.
    begun = f"SELECT count(*) FROM {ADVISORY} JOIN pg_stat_activity USING (pid) WHERE NOT granted AND clock_timestamp() < query_start + '0.2 s'"
    wait_for(lambda: db.value(begun), what="its request")  # after "waiting"
    late = dlock.contend(bound, "job", "-s", "-t", "6s")
    late.event("waiting")
    for r in readers:
        r.popen.stdin.close()
    assert [r.wait().status for r in readers] == [0, 0, 0]
    writer.held()
    assert not late.running
    assert dlock.run("run", *bound.words, "-k", "job", "-s", "-n", "--", "true").status == 75
    assert writer.finish().status == 0
    assert late.held().finish().status == 0
    tokens = [s.token for s in (*readers, writer, late)]
    assert tokens == sorted(tokens) and len(set(tokens)) == len(tokens)


def test_other_programs_see_a_row_that_is_shared(dlock, db):
    reader = dlock.hold(At(db.url, "row"), "job", "-s")
    with contextlib.closing(psycopg2.connect(pg_url(db.port, "postgres", db.name))) as c, c.cursor() as cursor:
        cursor.execute("SELECT FROM dlock.rows WHERE key = 'job' FOR SHARE SKIP LOCKED")
        assert cursor.rowcount == 1
        assert run(dlock, db.url, "-n", mode="row").status == 75
        assert reader.finish().status == 0
        assert run(dlock, db.url, "-n", mode="row").status == 75  # now the other program's
        assert ran(run(dlock, db.url, "-n", "-s", mode="row"))
        c.rollback()
    assert ran(run(dlock, db.url, "-n", mode="row"))


@pytest.mark.parametrize("options, word", [(["--limit", "2"], "limited"), (["--once", "x"], "once"), (["--cooldown", "1s"], "cooldown")])
def test_what_a_mode_cannot_is_refused_before_anything_is_asked(dlock, bound, options, word):
    words = [w.replace("127.0.0.1", "127.0.0.2") for w in bound.words]  # there is nobody
    assert_refused(dlock.run("run", *words, "-k", "job", *options, "--", "true"), 78, word)


def test_tokens_of_readers_grow_though_they_come_at_once(dlock, db):
    run(dlock, db.url, mode="row")
    crowd = [dlock.contend(At(db.url, "row"), "job", "-s", "-w", "60s", command=("true",)) for _ in range(12)]
    assert [c.wait(60).status for c in crowd] == [0] * 12
    assert len({c.token for c in crowd}) == 12
    top = max(c.token for c in crowd)
    after = dlock.hold(At(db.url, "row"), "job")
    assert after.token > top


def test_a_writer_that_waits_for_long_keeps_readers_out(dlock, db):
    """mode=advisory: also when it asks again, as it does every three seconds."""
    at = At(db.url, "advisory")
    reader = dlock.hold(at, "job", "-s", "-t", "30s")
    writer = dlock.contend(at, "job", "-t", "30s")
    writer.event("waiting")
    wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted") == 1, what="a request")
    late = [dlock.contend(at, "job", "-s", "-t", "30s") for _ in range(2)]
    time.sleep(7)
    assert not any(x.running for x in late)
    assert dlock.run("run", *at.words, "-k", "job", "-s", "-n", "--", "true").status == 75
    assert reader.finish().status == 0
    writer.held()
    assert not any(x.running for x in late)
    assert writer.finish().status == 0
    assert [x.held().finish().status for x in late] == [0, 0]
    assert db.value(f"SELECT count(*) FROM {ADVISORY}") == 0


def test_who_comes_back_stands_in_no_way_of_who_stands_before_it(db, dlock):
    """After a cut: the second waiter waits for the key's lock, the first has come back and takes its wake-up lock."""
    run(dlock, db.url)
    enter = "SELECT code FROM dlock.enter('k', %s, '{}', 60000, 60000, 'exclusive', 0, NULL, 0, pg_backend_pid(), false)"
    with contextlib.ExitStack() as stack:
        holder, first, second, locked, again, back = (stack.enter_context(contextlib.closing(db.connect())) for _ in range(6))
        for c, owner, code in (holder, "0", 1), (first, "1", 0), (second, "2", 0):
            assert rows_of(c, enter, [owner * 32]) == [(code,)]
        gone = [c.get_backend_pid() for c in (first, second)]
        first.close()
        second.close()
        wait_for(lambda: not db.value(f"SELECT count(*) FROM pg_stat_activity WHERE pid IN ({gone[0]}, {gone[1]})"), what="their ends")
        locked.autocommit = False
        rows_of(locked, "SELECT pg_advisory_xact_lock(1684828011, hashtext('k'))", [])
        waits = threading.Thread(target=rows_of, args=(again, enter, ["2" * 32]))
        waits.start()
        wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted"), what="the second one")
        assert rows_of(back, "SELECT pg_try_advisory_lock(dlock.wake_lock(repeat('1', 32)))", []) == [(True,)]
        locked.rollback()
        waits.join()
