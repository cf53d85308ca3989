# Goal of these tests: waiters on PostgreSQL keep their order through partitions and
# deaths, and are no burden to the database, however many they are.

import concurrent.futures
import contextlib
import signal
import threading
import time

import pytest

from databases import wait_for_renewals
from faults import LEASE
from pg import ADVISORY, AWAY, MODES, Tamper, pg_url
from proxy import BOTH, DOWN, UP
from support import DLOCK, At, boottime, is_free, run, spent, wait_for


# ---- in the queue ----

def first_is_away(db, key="job"):
    """Has the first one in the queue no session, and so no wake-up lock?  None: nobody is in the queue."""
    rows = db.ask(f"SELECT {AWAY} FROM dlock.claims c WHERE key = %s AND slot IS NULL ORDER BY ticket LIMIT 1", key)
    return rows[0][0] if rows else None


def test_waiters_survive_partitions(dlock, db, make_proxy):
    """Each of them comes back to its place."""
    run(dlock, db.url)
    proxies = {fault: make_proxy(db.server.port) for fault in ("reset", "hold", "refuse")}
    holders = {fault: dlock.contend(At(db.url), fault) for fault in proxies}
    for holder in holders.values():
        holder.held()
    waiters = {fault: dlock.contend(At(pg_url(proxy.port, db=db.name)), fault, command=("true",))
               for fault, proxy in proxies.items()}
    for waiter in waiters.values():
        waiter.queued(1)
    before = {fault: proxy.connections for fault, proxy in proxies.items()}
    proxies["refuse"].refuse()
    proxies["hold"].hold(*BOTH)
    proxies["reset"].reset()
    proxies["refuse"].reset()
    wait_for(lambda: proxies["hold"].connections > before["hold"], what="a new attempt")
    proxies["hold"].reset()
    proxies["hold"].heal()
    proxies["refuse"].accept()  # some attempts have failed
    late = {}
    for fault, proxy in proxies.items():
        wait_for(lambda p=proxy, f=fault: p.connections > before[f] and first_is_away(db, f) is False, what=f"the return of {fault}")
        late[fault] = dlock.contend(At(db.url), fault, command=("true",)).queued(2)
    for fault, holder in holders.items():
        assert holder.finish().status == 0
        assert waiters[fault].wait().status == 0 and late[fault].wait().status == 0
        assert waiters[fault].token < late[fault].token, fault


class CutAfterAnswer(Tamper):
    """Once armed, the first row that comes is passed on; whatever is said next on that connection breaks it."""

    def __init__(self, port):
        super().__init__(port, self.look)
        self.armed, self.heard, self.cut = False, False, 0

    def look(self, kind, body):
        self.heard = self.heard or (self.armed and kind == b"D")
        return [(kind, body)]

    def rewrite(self, link, direction, data):
        if direction == UP and self.heard:
            self.armed, self.heard, self.cut = False, False, self.cut + 1
            raise ConnectionResetError
        return super().rewrite(link, direction, data)


@pytest.mark.parametrize("mode", MODES)
def test_waiter_cut_off_as_it_is_served_does_not_run_without_the_lock(dlock, db, mode, request):
    """It has heard that it is served; but what it says next, by which the lock becomes its own, breaks the connection."""
    proxy = CutAfterAnswer(db.server.port)
    request.addfinalizer(proxy.close)
    holder = dlock.hold(At(db.url, mode), "job", *LEASE)
    alone = f'env -u DLOCK_KEEPER "{DLOCK}" run {" ".join(At(db.url, mode).words)} -k job -n -- true'
    waiter = dlock.contend(At(proxy.url(db.name), mode), "job", *LEASE, command=("sh", "-c", f"{alone}; echo $?"))
    waiter.event("waiting")
    time.sleep(0.3)  # it sleeps in the server
    proxy.armed = True
    assert holder.finish().status == 0
    done = waiter.wait()
    assert proxy.cut == 1
    assert (done.status, done.stdout) == (0, "75\n")


def test_waiter_behind_a_partition_blocks_for_a_moment_only(dlock, db, make_proxy):
    proxy = make_proxy(db.server.port)
    holder = dlock.hold(At(db.url), "job")
    lost = dlock.contend(At(pg_url(proxy.port, db=db.name)), "job", *LEASE).queued(1)
    behind = dlock.contend(At(db.url), "job", command=("true",)).queued(2)
    proxy.drop(*BOTH)
    assert holder.finish().status == 0
    assert behind.wait().status == 0
    assert not lost.running


def test_dead_waiters_in_a_row_are_passed_over(dlock, db):
    """Their sessions have ended, so the lock is not offered to one after the other."""
    holder = dlock.hold(At(db.url), "job")
    dead = [dlock.contend(At(db.url), "job").queued(n + 1) for n in range(5)]
    for waiter in dead:
        waiter.signal(signal.SIGKILL, "keeper")
    wait_for(lambda: db.value(f"SELECT every({AWAY}) FROM dlock.claims c WHERE slot IS NULL"), what="silence")
    assert holder.finish().status == 0
    assert is_free(dlock, db.url)


def test_who_is_away_is_passed_over_and_keeps_its_place(dlock, db, make_proxy):
    proxy = make_proxy(db.server.port)
    holder = dlock.hold(At(db.url), "job")
    lost = dlock.contend(At(pg_url(proxy.port, db=db.name)), "job").queued(1)
    behind = dlock.contend(At(db.url), "job").queued(2)
    proxy.refuse()
    proxy.reset()
    wait_for(lambda: first_is_away(db), what="silence")
    assert holder.finish().status == 0
    behind.held()
    late = dlock.contend(At(db.url), "job", command=("true",)).queued(2)
    proxy.accept()
    wait_for(lambda: first_is_away(db) is False, what="its return")
    assert behind.finish().status == 0
    lost.held()
    assert lost.finish().status == 0
    assert late.wait().status == 0
    assert lost.token < late.token


@pytest.mark.parametrize("kind", [(), ("--limit", "1")], ids=["exclusive", "limit"])
def test_who_is_granted_has_a_moment_to_come(dlock, db, kind):
    """Its lease begins when it has come: until then it may be dead."""
    holder = dlock.hold(At(db.url), "job", *kind)
    waiter = dlock.contend(At(db.url), "job", *kind, "-t", "60s").queued(1)
    waiter.signal(signal.SIGSTOP, "keeper")
    assert holder.finish().status == 0
    assert db.value("SELECT extract(epoch FROM ends - since) FROM dlock.claims") == 3
    waiter.signal(signal.SIGCONT, "keeper")
    assert waiter.held().finish().status == 0


def test_who_does_not_queue_takes_no_place_and_waits_for_nobody(dlock, db):
    """Where the key is held exclusively, whoever else is busy with it."""
    holder = dlock.hold(At(db.url), "job", "-t", "60s")
    before = db.value("SELECT last_value FROM dlock.numbers")
    with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
        c.autocommit = False
        cursor.execute("SELECT dlock.lock_key('job')")
        assert not is_free(dlock, db.url)
    assert db.value("SELECT last_value FROM dlock.numbers") == before
    assert holder.finish().status == 0


def test_a_newcomer_does_not_pass_who_waits_for_what_is_free_for_a_moment(dlock, db):
    """A hold has been deleted; whose turn it is has not noticed yet."""
    holder = dlock.hold(At(db.url), "job", "-t", "60s")
    waiter = dlock.contend(At(db.url), "job", "-t", "60s").queued(1)
    waiter.signal(signal.SIGSTOP, "keeper")
    db.ask("DELETE FROM dlock.claims WHERE slot IS NOT NULL")
    assert not is_free(dlock, db.url)
    waiter.signal(signal.SIGCONT, "keeper")
    assert waiter.held().finish().status == 0
    assert holder.finish().status == 79


def test_a_job_that_has_missed_its_turn_is_not_passed_over(dlock, db):
    """Who shares the key gives its wake-up lock back when it is granted: it needs it again where that came to nothing."""
    at = At(db.url)
    first = dlock.hold(at, "job", "-t", "60s")
    late = dlock.contend(at, "job", "-s", "--once", "today", "-t", "60s").queued(1)
    wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted") == 1, what="its sleep")
    late.signal(signal.SIGSTOP, "keeper")
    second = dlock.contend(at, "job", "-t", "60s").queued()
    assert first.finish().status == 0
    second.held()  # after 3 s, for which the first in line has had it
    late.signal(signal.SIGCONT, "keeper")
    wait_for(lambda: first_is_away(db) is False, what="its place")
    assert second.finish().status == 0
    assert late.held().finish().status == 0


def test_silent_waiters_with_a_session_are_not_passed_over(dlock, db):
    """A keeper that stands still for a moment keeps its place, and what it is granted, for that moment."""
    holder = dlock.hold(At(db.url), "job")
    first = dlock.contend(At(db.url), "job").queued(1)
    first.signal(signal.SIGSTOP, "keeper")
    time.sleep(4)  # longer than a server needs to see that a session has ended
    assert first_is_away(db) is False
    assert holder.finish().status == 0
    assert not is_free(dlock, db.url)
    first.signal(signal.SIGCONT, "keeper")
    assert first.held().finish().status == 0


def test_a_wake_up_lock_that_somebody_keeps_costs_time_only(dlock, db):
    """Whoever may connect may take the advisory locks by which waiters are woken."""
    holder = dlock.hold(At(db.url), "job")
    owner = db.value("SELECT owner FROM dlock.claims")
    taken = threading.Event()

    def take():
        with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(dlock.wake_lock(%s))", (owner,))
            taken.wait(120)

    thief = threading.Thread(target=take)
    thief.start()
    wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE NOT granted"),
             what="the thief in the queue")
    waiter = dlock.contend(At(db.url), "job", command=("true",)).queued(1)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    taken.set()
    thief.join()


def test_a_waiter_that_is_looked_for_as_it_comes_back_is_there_soon_after(dlock, db):
    """Whoever looks has its wake-up lock for a moment, and without that it would be passed over for seconds."""
    dlock.hold(At(db.url), "job")
    dlock.contend(At(db.url), "job", command=("true",)).queued(1)
    number, = db.ask("SELECT dlock.wake_lock(owner) FROM dlock.claims WHERE slot IS NULL")[0]
    with contextlib.closing(db.connect()) as other, other.cursor() as look:
        db.ask("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'"
               " AND (classid::bigint << 32) | objid::bigint = %s", number)
        look.execute("SELECT pg_advisory_lock_shared(%s)", (number,))
        wait_for(lambda: db.server.value("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event = 'advisory'", db.name),
                 what="its return")
        assert first_is_away(db)
        look.execute("SELECT pg_advisory_unlock_shared(%s)", (number,))
        began = boottime()
        wait_for(lambda: not first_is_away(db), what="its lock")
        assert spent(began) < 1


def test_a_holder_that_comes_back_without_its_wake_up_lock_asks_again_soon(dlock, db):
    """Its session of before may have it for a moment, or who looks; whoever waits for it would have to ask now and then."""
    holder = dlock.hold(At(db.url), "job", "-v", "-t", "1h")
    (number, old), = db.ask(f"SELECT dlock.wake_lock(owner), pid FROM dlock.claims, {ADVISORY} WHERE granted")
    with contextlib.closing(db.connect()) as other, other.cursor() as cursor, concurrent.futures.ThreadPoolExecutor() as pool:
        taken = pool.submit(cursor.execute, "SELECT pg_advisory_lock(%s)", (number,))
        wait_for(lambda: db.server.asleep() == 1, what="another one that wants it")
        db.ask("SELECT pg_terminate_backend(%s)", old)
        taken.result()
        wait_for_renewals(holder)
        cursor.execute("SELECT pg_advisory_unlock(%s)", (number,))
        wait_for(lambda: db.value(f"SELECT count(*) FROM {ADVISORY} WHERE granted"), what="its lock")
    assert holder.finish().status == 0


def test_terminated_waiters_come_back_to_their_places(dlock, db, tmp_path):
    order = tmp_path / "order"
    holder = dlock.hold(At(db.url), "job")
    waiters = [dlock.contend(At(db.url), "job", command=("sh", "-c", f"echo {n} >>{order}")).queued(n)
               for n in (1, 2, 3)]
    present = f"SELECT DISTINCT pid FROM {ADVISORY} WHERE granted"
    before = set(db.ask(present))
    assert db.terminate() == 4
    wait_for(lambda: len(set(db.ask(present)) - before) == 4,
             what="their return, and the holder's, each with its wake-up lock")
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0, 0]
    assert order.read_text().split() == list("123")


# ---- a crowd ----


def transactions(database):
    return database.value("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")


def test_a_waiter_is_no_burden_while_it_waits(dlock, db):
    """It sleeps for many seconds at a time, and asks nothing in between: whatever the length of the queue."""
    holder = dlock.hold(At(db.url), "job")
    waiters = [dlock.contend(At(db.url), "job", "-w", "10m", command=("true",)) for _ in range(20)]
    for waiter in waiters:
        waiter.queued()
    time.sleep(2)  # the server counts what a session has done after a second or so
    begin, before = time.monotonic(), transactions(db)
    time.sleep(15)
    done, seconds = transactions(db) - before, time.monotonic() - begin
    assert done / len(waiters) / seconds < 0.3, done
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * len(waiters)


class Turns(Tamper):
    """Counts how often the client spoke, and how often it was spoken to."""

    def __init__(self, port):
        self.said, self.last = {UP: 0, DOWN: 0}, None
        super().__init__(port, lambda kind, body: [(kind, body)])

    def rewrite(self, link, direction, data):
        if direction != self.last:
            self.said[direction] += 1
        self.last = direction
        return super().rewrite(link, direction, data)


def test_a_hand_off_is_two_statements_and_wakes_one(dlock, db, request):
    """The release of the one, a renewal by the other: whoever else there is hears nothing of it."""
    run(dlock, db.url)
    proxies = [Turns(db.port) for _ in range(8)]
    for proxy in proxies:
        request.addfinalizer(proxy.close)
    all_of_them = [dlock.contend(At(p.url(db.name)), "job", "-t", "60s") for p in proxies[:1]]
    all_of_them[0].held()
    for n, proxy in enumerate(proxies[1:], 1):
        all_of_them.append(dlock.contend(At(proxy.url(db.name)), "job", "-t", "60s").queued(n))
    found = []
    for n in range(5):  # in one of them no chunk has just ended, and nobody renews
        time.sleep(2)  # all are asleep, and the holder has renewed for the first time
        before = [p.said[UP] for p in proxies]
        assert all_of_them[n].finish().status == 0
        all_of_them[n + 1].held()
        up = [p.said[UP] - said for p, said in zip(proxies, before)]
        found.append(up)
        # a release and a good-bye; a renewal
        if up[n] <= 2 and up[n + 1] == 1 and sum(up[n + 2:]) <= 1:
            break
    else:
        raise AssertionError(found)
    for each in all_of_them[n + 1:]:
        assert each.held().finish().status == 0


def test_a_question_that_was_cancelled_is_no_sleep_that_was(dlock, db):
    """The wait that follows it ends as one that has expired.  One of three may do so between two waits."""
    def expires_while_it_waits():
        reader = dlock.hold(At(db.url), "job", "-s", "-t", "60s")
        writer = dlock.contend(At(db.url), "job", "-t", "60s", "-w", "4s").queued(1)
        function = db.value("SELECT pg_get_functiondef('dlock.enter'::regproc)")
        db.ask(function.replace("\nBEGIN\n", "\nBEGIN\nRAISE query_canceled;\n", 1))  # it asks every 2.5 s, and soon waits again
        status = writer.wait().status
        db.ask(function)
        assert reader.finish().status == 0
        return status == 75

    assert any(expires_while_it_waits() for _ in range(3))


def test_the_queue_forgets_the_dead(dlock, db):
    """Those whose sessions have ended no longer count, though the holder holds on."""
    holder = dlock.hold(At(db.url), "job")
    dead = [dlock.contend(At(db.url), "job").queued(n + 1) for n in range(5)]
    last = dlock.contend(At(db.url), "job", command=("true",)).queued(6)
    for waiter in dead:
        waiter.signal(signal.SIGKILL, "keeper")
    last.event("waiting", 60, position=1)
    assert holder.finish().status == 0
    assert last.wait().status == 0
    assert run(dlock, db.url).status == 0


CREATE_INDEX = """
import psycopg2, sys
c = psycopg2.connect(sys.argv[1])
c.autocommit = True
sys.stdin.read()
c.cursor().execute("CREATE INDEX CONCURRENTLY ON things (g)")
"""


def test_index_is_built_concurrently_while_others_wait(dlock, make_db, make_pooler):
    """A waiter that keeps a snapshot, or the holder's own, would block it for ever."""
    holders, waiters = {}, {}
    for name in (*MODES, "pooled"):
        database = make_db()
        database.ask("CREATE TABLE things AS SELECT g FROM generate_series(1, 1000) g")
        port = make_pooler(database.server).port if name == "pooled" else database.port
        at = At(pg_url(port, db=database.name), name if name in MODES else "lease")
        command = ["/usr/bin/python3", "-c", CREATE_INDEX, pg_url(database.port, "postgres", database.name)]
        holders[name] = dlock.contend(at, "job", "-t", "6s", command=command).held()
        waiters[name] = [dlock.contend(at, "job", "-t", "6s", command=("true",)) for _ in range(3)]
    for waiter in (w for ws in waiters.values() for w in ws):
        waiter.event("waiting")
    time.sleep(0.5)  # they wait as they will
    for holder in holders.values():
        holder.popen.stdin.close()
    for name, holder in holders.items():
        assert holder.wait().status == 0, name
        assert [w.wait().status for w in waiters[name]] == [0, 0, 0]
