# Goal of these tests: a ZooKeeper lock ends with its session or its node, whoever ends
# them: then the command is stopped.  A lost answer or connection costs neither, and
# __REVOKE__ takes the lock away politely.

import struct
import threading
import time

import pytest

from faults import IS_GONE, LEASE, LIVING_LEASE, SOON, STUBBORN, assert_refused, wait_for_writes
from proxy import BOTH, DOWN
from support import At, boottime, is_alive, is_free, run, size, spent, told_at_the_end, wait_for
from zk import CLOSE, DELETE, LISTS, MAKES, MULTI, PING, SET_DATA, SET_WATCHES, Tap, hear, nodes, own


# ---- answers that get lost ----


@pytest.mark.parametrize("operations", [MAKES, LISTS], ids=["create", "list"])
@pytest.mark.parametrize("exists", [False, True], ids=["fresh", "used"])
def test_connection_cut_before_an_answer(dlock, at, tapped, operations, exists):
    place, proxy, tap = tapped
    if exists:
        assert run(dlock, at.url).status == 0
    tap.lose(operations, 1)
    holder = dlock.hold(place, "job")
    assert tap.has_lost and proxy.connections >= 2
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 1
        assert c.exists(f"{at.job}/{nodes(c, at.job)[0]}").czxid == holder.token
    assert holder.finish().status == 0
    assert is_free(dlock, at)


def test_connection_cut_after_any_byte(dlock, at, make_proxy):
    """Once, anywhere: it is connected again, and what had been done is found."""
    proxy = make_proxy(at.server.port)
    place = at.through(proxy)
    assert run(dlock, place.words[1]).status == 0
    total, cuts = proxy.bytes[DOWN], 0
    with at.server.client() as c:
        for n in range(1, total, total // 12):
            before = proxy.connections
            proxy.cut(DOWN, n, once=True)
            holder = dlock.contend(place, "job", *LIVING_LEASE)
            wait_for(lambda: holder.running or holder.poll() is not None, what="the grant")
            assert holder.running, (n, holder.result())
            assert len(nodes(c, at.job)) == 1
            assert holder.finish().status == 0, n
            assert nodes(c, at.job) == []
            cuts += proxy.connections > before + 1
            proxy.heal()
    assert cuts > 5


class CutAt(Tap):
    """Cuts the connection once: before the n-th request passes, or its answer."""

    def __init__(self, proxy, n, answer):
        super().__init__(proxy)
        self._left, self._answer, self._doomed = n, answer, None

    @property
    def has_cut(self):
        return self._left == 0 and self._doomed is None

    def _up(self, state, message):
        asked = state.greeted and struct.unpack_from(">ii", message)
        super()._up(state, message)
        if not asked or asked[1] in (PING, SET_WATCHES, CLOSE) or self._left == 0:
            return
        self._left -= 1
        if self._left == 0 and not self._answer:
            raise ConnectionResetError
        if self._left == 0:
            self._doomed = state, asked[0]

    def _down(self, state, message):
        doomed = state.welcomed and self._doomed == (state, struct.unpack_from(">i", message)[0])
        super()._down(state, message)
        if doomed:
            self._doomed = None
            raise ConnectionResetError


def left_behind(client, at):
    parts = ("", "/locks", "/leases", "/slots")
    return [name for part in parts for name in nodes(client, at.job + part) if name not in ("locks", "leases", "slots")]


@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("words", [(), ("--limit", "1")], ids=["plain", "unit"])
def test_connection_cut_at_any_request_of_a_waiter(dlock, at, make_proxy, words, answer):
    """From its first word to its release: it is served in its turn, once, and leaves nothing."""
    with at.server.client() as c:
        cut, n = True, 1
        while cut:
            proxy = make_proxy(at.server.port)
            tap = CutAt(proxy, n, answer)
            holder = dlock.hold(at, "job", *words)
            first = dlock.contend(at.through(proxy), "job", *words, "-w", "1m").queued(1)
            second = dlock.contend(at, "job", *words, command=("true",)).queued(2)
            assert holder.finish().status == 0
            assert first.held() and not second.running, n
            assert (first.finish().status, second.wait().status) == (0, 0), n
            assert first.token < second.token, n
            assert left_behind(c, at) == [], n
            cut, n = tap.has_cut, n + size(3, 1)
        assert n > 8


def test_unit_that_is_given_back_in_parts_refuses_nobody(dlock, at, tapped):
    """Whose place is deleted while it has no answer gives back lease and slot: the next one finds both."""
    place, _, tap = tapped
    words = ("job", "--limit", "1", "-w", "1m")
    holder = dlock.hold(at, *words[:3])

    with at.server.client() as c:
        def units():
            return sorted((n for n in nodes(c, at.job) if "-unit-" in n), key=lambda n: n[-10:])

        def delete_place(_):
            c.delete(f"{at.job}/{mine}")
            wait_for(lambda: nodes(c, at.job + "/locks"), what="the second before its unit")
            tap.on((DELETE,), give_time)

        def give_time(path):
            if "/slots/" not in path:
                return False
            until = boottime() + 1
            wait_for(lambda: not second.running or boottime() > until, what="the second")
            return True

        first = dlock.contend(place, *words).queued(1)
        mine = units()[1]
        second = dlock.contend(at, *words).queued(2)
        tap.lose((MULTI,), 1)
        tap.on((MULTI,), lambda _: tap.on(LISTS, delete_place))  # the next list is that of its return
        assert holder.finish().status == 0
        wait_for(lambda: tap.has_lost, what="a lost answer")
        second.held()
        assert second.finish().status == 0
        assert first.held().finish().status == 0
        assert left_behind(c, at) == []


def test_lost_answer_of_a_waiter_is_found_again(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    tap.lose(MAKES, 1)
    waiter = dlock.contend(place, "job").queued(1)
    assert tap.has_lost
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 2
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_create_whose_answer_never_comes_is_withdrawn(dlock, at, tapped):
    place, proxy, tap = tapped
    tap.on(MAKES, lambda path: "-lock-" in path and proxy.drop(DOWN))
    assert_refused(run(dlock, place.words[1], "-O", "connect-timeout=3s", *LEASE), 69, str(proxy.port))
    assert tap.has_acted
    assert run(dlock, at.url, "-w", SOON).status == 0


@pytest.mark.parametrize("fault", ["reset", "hold", "refuse"])
def test_waiter_survives_a_partition(dlock, at, make_proxy, fault):
    proxy = make_proxy(at.server.port)
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at.through(proxy), "job", "-t", "6s", command=("true",)).queued(1)
    before = proxy.connections
    if fault == "refuse":
        proxy.refuse()
    if fault == "hold":
        proxy.hold(*BOTH)
        wait_for(lambda: proxy.connections > before, what="a new attempt")
    proxy.reset()
    if fault == "refuse":
        time.sleep(0.5)  # some attempts fail
        proxy.accept()
    proxy.heal()
    wait_for(lambda: proxy.connections > before, what="the waiter's return")
    with at.server.client() as c:
        wait_for(lambda: len(nodes(c, at.job)) == 2, what="the waiter's only node")
        assert holder.finish().status == 0
        assert waiter.wait().status == 0
        assert nodes(c, at.job) == []


def test_holder_survives_resets(dlock, at, make_proxy, tmp_path):
    proxy, heard = make_proxy(at.server.port), tmp_path / "heard"
    holder = dlock.hold(at.through(proxy), "job", *LIVING_LEASE, command=hear(heard))
    for _ in range(3):
        before = proxy.connections
        proxy.reset()
        wait_for(lambda: proxy.connections > before, what="a new connection")
        wait_for_writes(at.server, holder)
    assert holder.finish().status == 0
    assert not heard.exists()


def test_lost_answer_to_a_renewal(dlock, at, tapped, tmp_path):
    # The version has grown, though we were not told: it is our own write.
    place, _, tap = tapped
    heard = tmp_path / "heard"
    holder = dlock.hold(place, "job", *LIVING_LEASE, command=hear(heard))
    for _ in range(2):
        tap.lose((SET_DATA,), 1)
        wait_for(lambda: tap.has_lost, what="a lost answer")
        wait_for_writes(at.server, holder, 2)
    assert holder.finish().status == 0
    assert not heard.exists()


def test_lost_answer_to_a_release_is_no_lost_lock(dlock, at, tapped):
    place, _, tap = tapped
    holder = dlock.hold(place, "job")
    tap.lose((DELETE,), 1)
    done = holder.finish()
    assert tap.has_lost
    assert done.status == 0
    with at.server.client() as c:
        assert nodes(c, at.job) == []


# ---- sessions ----


def test_nobody_waits_for_the_end_of_the_session(dlock, at, tapped):
    # The node is gone.  The library would wait 1.5 s for this answer, and the front a second for its keeper.
    place, proxy, tap = tapped
    holder = dlock.hold(place, "job")
    farewell = []

    def keep_the_answer(_):
        proxy.hold(DOWN)
        farewell.append(time.monotonic())

    tap.on((CLOSE,), keep_the_answer)
    assert holder.finish().status == 0
    ended = time.monotonic()
    wait_for(lambda: tap.sessions[-1][0] not in at.server.sessions(), 10, "the end of the session")
    assert ended - farewell[0] < 0.8


def assert_killed_at_once(started, heard, since, seconds=8):
    """79 long before the lease is short, and without a polite word before."""
    done = started.wait()
    assert done.status == 79
    assert spent(since) < seconds
    assert done.stderr.count("\n") == 1 and "job" in done.stderr
    assert not heard.exists()


def end_session(at, proxy, tap):
    """While its client is kept from the server."""
    proxy.refuse()
    proxy.reset()
    at.server.end_session(*tap.sessions[-1])
    proxy.accept()


def test_session_ended_by_somebody_else(dlock, at, tapped, tmp_path):
    place, proxy, tap = tapped
    heard = tmp_path / "heard"
    holder = dlock.contend(place, "job", command=("sh", "-c", STUBBORN, heard)).held()
    next_ = dlock.contend(at, "job", command=("cat",)).queued(1)
    before = boottime()
    end_session(at, proxy, tap)
    next_.held()
    assert_killed_at_once(holder, heard, before)
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 1  # nothing was taken again
    assert next_.finish().status == 0


def test_session_of_a_waiter_ended_by_somebody_else(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(place, "job").queued(1)
    end_session(at, proxy, tap)
    with at.server.client() as c:
        wait_for(lambda: len(nodes(c, at.job)) == 2, what="its return")
        assert holder.finish().status == 0
        assert waiter.held().token > holder.token
        assert waiter.finish().status == 0
        assert nodes(c, at.job) == []


def test_session_ended_while_a_renewal_is_under_way(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(place, "job", "-t", "6s")
    held = threading.Event()
    tap.on((SET_DATA,), lambda path: (proxy.hold(*BOTH), held.set()))
    assert held.wait(60)
    at.server.end_session(*tap.sessions[-1])
    proxy.heal()
    assert holder.wait().status == 79


def test_node_deleted_by_an_admin(dlock, at, tmp_path):
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", command=("sh", "-c", STUBBORN, heard)).held()
    with at.server.client() as c:
        before = boottime()
        c.delete(at.job, recursive=True)
        assert_killed_at_once(holder, heard, before)
        assert nodes(c, at.job) == []


def test_node_deleted_after_a_renewal(dlock, at, tmp_path):
    # From the first renewal on it is watched, and not only read when the next one is due, after 5 s.
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", "-t", "60s", command=("sh", "-c", STUBBORN, heard)).held()
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        version = c.exists(path).version
        wait_for(lambda: c.exists(path).version >= version + 1, what="a renewal")
        before = boottime()
        c.delete(path)
        assert_killed_at_once(holder, heard, before, 3)


def test_node_deleted_and_made_again_by_somebody_else(dlock, at, tmp_path):
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", command=("sh", "-c", STUBBORN, heard)).held()
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        data = c.get(path)[0]
        before = boottime()
        both = c.transaction()
        both.delete(path)
        both.create(path, data)
        both.commit()
        assert_killed_at_once(holder, heard, before)
        assert c.exists(path)  # not ours to delete
        c.delete(path)


# What is refused leaves no time for a second attempt to renew before TERM: 1 s of a server that is alone
# would do (half a second is the margin of KILL, two attempts are 0.1 s each), of an ensemble's not (tests/unit/step.c).
@pytest.mark.parametrize("settings, options, status", [
    ({"maxSessionTimeout": 600}, (), 78),
    ({"maxSessionTimeout": 600}, LEASE, 78),
    ({"maxSessionTimeout": 4000}, ("--grace", "5s"), 78),
    ({"maxSessionTimeout": 4000}, (), 0),
    ({"minSessionTimeout": 8000}, LEASE, 0),
])
def test_negotiated_timeout_is_what_counts(dlock, make_zk, settings, options, status):
    at = own(make_zk(**settings))
    if status:
        assert_refused(run(dlock, at.url, *options), status, "gives a lease of")
        with at.server.client() as c:
            assert nodes(c, at.job) == []
    else:
        assert run(dlock, at.url, *options).status == 0


def test_shorter_lease_than_asked_for_is_obeyed(dlock, make_zk, make_proxy):
    at = own(make_zk(maxSessionTimeout=4000))
    proxy = make_proxy(at.server.port)
    holder = dlock.hold(At(f"zk://127.0.0.1:{proxy.port}"), "job", "-t", "60s")
    next_ = dlock.contend(at, "job", command=("sh", "-c", IS_GONE, holder.command)).queued(1)
    command = holder.command
    wait_for_writes(at.server, holder, 3)
    before = boottime()
    proxy.hold(*BOTH)
    wait_for(lambda: not is_alive(command), what="the end of the command")
    assert spent(before) < 4
    assert holder.wait().status == 79
    assert next_.wait().status == 0


def test_longer_lease_than_asked_for_is_used(dlock, make_zk, make_proxy):
    at = own(make_zk(minSessionTimeout=7000))
    proxy = make_proxy(at.server.port)
    holder = dlock.hold(At(f"zk://127.0.0.1:{proxy.port}"), "job", *LEASE)
    command = holder.command
    before = boottime()
    proxy.hold(*BOTH)
    wait_for(lambda: not is_alive(command), what="the end of the command")
    assert boottime() - before >= 3.5 and spent(before) < 7  # with 3 s, the command would be gone after 2.5 s
    assert holder.wait().status == 79


# ---- revocation ----


@pytest.mark.parametrize("stubborn", [False, True], ids=["polite", "stubborn"])
def test_revocation_stops_the_command_and_gives_the_lock_back(dlock, at, tmp_path, stubborn):
    heard = tmp_path / "heard"
    script = STUBBORN if stubborn else "trap 'echo TERM >>\"$0\"; exit 0' TERM; while :; do read x || sleep 0.1; done"
    holder = dlock.contend(at, "job", "--grace", "1s", command=("sh", "-c", script, heard)).held()
    command = holder.command
    next_ = dlock.contend(at, "job", command=("sh", "-c", IS_GONE, command)).queued(1)
    with at.server.client() as c:
        before = boottime()
        c.set(f"{at.job}/{nodes(c, at.job)[0]}", b"__REVOKE__")
        done = holder.wait()
        assert spent(before) < 30 / 3 - 2  # before the next renewal
        assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1 and "job" in done.stderr
        assert heard.read_text() == "TERM\n"
        assert next_.wait().status == 0
        assert nodes(c, at.job) == []


def test_revocation_after_renewals(dlock, at, tmp_path):
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", "-t", "9s", command=("sh", "-c", STUBBORN, heard)).held()
    wait_for_writes(at.server, holder)
    with at.server.client() as c:
        c.set(f"{at.job}/{nodes(c, at.job)[0]}", b"__REVOKE__")
        assert holder.wait().status == 79
        assert heard.read_text() == "TERM\n"
        assert nodes(c, at.job) == []


@pytest.mark.parametrize("value", [b"", b"hello", b"__REVOKE__ ", b"__revoke__", b"x" * 100000], ids=range(5))
def test_other_writes_to_our_node_do_no_harm(dlock, at, tmp_path, value):
    heard = tmp_path / "heard"
    holder = dlock.hold(at, "job", *LIVING_LEASE, command=hear(heard))
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        for _ in range(2):
            version = c.set(path, value).version
            wait_for(lambda: c.exists(path).version >= version + 2, what="two renewals")
        assert holder.finish().status == 0
        assert not heard.exists()
        assert nodes(c, at.job) == []


def test_writes_without_end_do_no_harm(dlock, at, tmp_path):
    heard, over = tmp_path / "heard", threading.Event()
    holder = dlock.hold(at, "job", *LIVING_LEASE, command=hear(heard))

    def write():
        with at.server.client() as c:
            path = f"{at.job}/{nodes(c, at.job)[0]}"
            while not over.wait(0.02):
                c.set(path, b"mine")

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(10)  # it would be lost by now, if it could not be renewed
    assert holder.poll() is None
    over.set()
    thread.join()
    assert holder.finish().status == 0
    assert not heard.exists()
