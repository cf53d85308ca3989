# Goal of these tests: in each layout of -O layout, clients of that layout exclude dlock and are
# excluded by it, are woken by it and wake it; and no two layouts ever hold one lock, however they meet.
# kazoo is the real one; the others' clients are re-enacted (zk_layouts.py).

import contextlib
import json
import re
import subprocess
import threading
import time

import pytest
from kazoo.exceptions import NoNodeError

from proxy import DOWN
from support import PATIENCE, wait_for
from zk import DELETE, GET_DATA, MAKES, MULTI, SET_DATA, Tap, nodes
from zk_layouts import LAYOUTS, Menagerie, Plain, RwSeq

pytestmark = pytest.mark.filterwarnings("ignore:isSet")  # kazoo's own

ALL = ("curator", *LAYOUTS)
QUEUES = tuple(layout for layout in LAYOUTS if layout != "plain")
OWNER = "[0-9a-f]{12}d[0-9a-f]{19}"
# What dlock's nodes are called: plain, -x, -s.
NAMES = {
    "rw-seq": [rf".+\.{OWNER}-W-\d{{10}}", rf".+\.{OWNER}-W-\d{{10}}", rf".+\.{OWNER}-R-\d{{10}}"],
    "kazoo": [rf"{OWNER}__lock__\d{{10}}", rf"{OWNER}__lock__\d{{10}}", rf"{OWNER}__rlock__\d{{10}}"],
    "menagerie": [rf"lock-.+\.{OWNER}-\d{{19}}-\d{{10}}", rf"writeLock-.+\.{OWNER}-\d{{10}}", rf"readLock-.+\.{OWNER}-\d{{10}}"],
}
KINDS = ((), ("-x",), ("-s",))


@pytest.fixture
def client(zk_server):
    with zk_server.client() as result:
        yield result


@pytest.fixture
def path(at):
    """The lock of this test."""
    return at.job


@pytest.fixture
def words(at):
    return lambda layout, *more: [*at.words, "-O", f"layout={layout}", "-k", "job", *more]


def hold(dlock, words):
    return dlock.start("run", *words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE)


def status(dlock, words):
    return dlock.run("run", *words, "-n", "--", "true").status


def state(dlock, words):
    done = dlock.run("status", *words, "-J")
    return json.loads(done.stdout)


class KazooLock:
    """kazoo's own, as the others are re-enacted."""

    def __init__(self, client, path, recipe="WriteLock"):
        self.lock, self.client, self.path = getattr(client, recipe)(path, "python"), client, path

    def enter(self):
        """Takes it, or waits for it, in the background."""
        before = set(nodes(self.client, self.path))
        self.got = threading.Event()
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()
        wait_for(lambda: set(nodes(self.client, self.path)) - before, what="kazoo in the queue")
        return self

    def _take(self):
        if self.lock.acquire(timeout=PATIENCE):
            self.got.set()

    def holds(self):
        return self.got.wait(0.3)

    def leave(self):
        self.lock.release()


# For each layout, its users' exclusive locks, and their readers' where they are another class.
USERS = {
    "rw-seq": (lambda c, p: RwSeq(c, p), lambda c, p: RwSeq(c, p, "R")),
    "kazoo": (lambda c, p: KazooLock(c, p), lambda c, p: KazooLock(c, p, "ReadLock")),
    "menagerie": (lambda c, p: Menagerie(c, p, "writeLock"), lambda c, p: Menagerie(c, p, "readLock")),
}
# (layout, a user's lock, dlock's options, do they exclude each other): in both directions.
PAIRS = [
    ("rw-seq", lambda c, p: RwSeq(c, p), (), True),
    ("rw-seq", lambda c, p: RwSeq(c, p), ("-s",), True),
    ("rw-seq", lambda c, p: RwSeq(c, p, "R"), (), True),
    ("rw-seq", lambda c, p: RwSeq(c, p, "R"), ("-x",), True),
    ("rw-seq", lambda c, p: RwSeq(c, p, "R"), ("-s",), False),
    ("kazoo", lambda c, p: KazooLock(c, p, "Lock"), (), True),
    ("kazoo", lambda c, p: KazooLock(c, p, "Lock"), ("-x",), True),
    ("kazoo", lambda c, p: KazooLock(c, p, "WriteLock"), (), True),
    ("kazoo", lambda c, p: KazooLock(c, p, "WriteLock"), ("-s",), True),
    ("kazoo", lambda c, p: KazooLock(c, p, "ReadLock"), (), True),
    ("kazoo", lambda c, p: KazooLock(c, p, "ReadLock"), ("-x",), True),
    ("kazoo", lambda c, p: KazooLock(c, p, "ReadLock"), ("-s",), False),
    ("menagerie", lambda c, p: Menagerie(c, p, "lock"), (), True),
    ("menagerie", lambda c, p: Menagerie(c, p, "lock2"), (), True),
    ("menagerie", lambda c, p: Menagerie(c, p, "writeLock"), ("-x",), True),
    ("menagerie", lambda c, p: Menagerie(c, p, "writeLock"), ("-s",), True),
    ("menagerie", lambda c, p: Menagerie(c, p, "readLock"), ("-x",), True),
    ("menagerie", lambda c, p: Menagerie(c, p, "readLock"), ("-s",), False),
]


def pair_id(value):
    return "-".join(value) if isinstance(value, tuple) else value if isinstance(value, str) else None


# ---- what is created ----


@pytest.mark.parametrize("layout", QUEUES)
def test_names_and_data(dlock, client, words, path, layout):
    """A node is called as its layout has it, and its data are the holder's record."""
    for kind, name in zip(KINDS, NAMES[layout]):
        holder = hold(dlock, words(layout, "--who", "alice@ci-1", *kind)).held()
        node, = nodes(client, path)
        assert re.fullmatch(name, node), node
        data, stat = client.get(f"{path}/{node}")
        assert json.loads(data)["who"] == "alice@ci-1"
        assert (stat.czxid, stat.ephemeralOwner != 0) == (holder.token, True)
        assert holder.finish().status == 0
        assert nodes(client, path) == []


def test_the_node_is_the_lock(dlock, client, words, path):
    holder = hold(dlock, words("plain", "--who", "alice@ci-1")).held()
    data, stat = client.get(path)
    assert json.loads(data)["who"] == "alice@ci-1" and len(json.loads(data)["owner"]) == 32
    assert (stat.czxid, stat.ephemeralOwner != 0, stat.children_count) == (holder.token, True, 0)
    assert holder.finish().status == 0
    assert client.exists(path) is None


def test_a_path_of_a_plain_lock_is_its_node(dlock, zk_server, client, at):
    """The directory above is made if it is missing, and stays."""
    node = f"{at.root}/shop/deep/nightly"
    words = ["-u", zk_server.url, "-O", "layout=plain", "-O", f"path={node}", "-k", "x"]
    holder = hold(dlock, words).held()
    assert client.exists(node).czxid == holder.token
    assert holder.finish().status == 0
    assert client.get_children(f"{at.root}/shop/deep") == []


# ---- both directions ----


@pytest.mark.parametrize("layout, user, kind, excluded", PAIRS, ids=pair_id)
def test_users_and_dlock(dlock, client, words, path, layout, user, kind, excluded):
    """Whoever comes first, and each is woken by the other's end."""
    run = words(layout, *kind)
    other = user(client, path).enter()
    wait_for(other.holds, what="the other's hold")
    assert status(dlock, run) == (75 if excluded else 0)
    if excluded:
        waiter = hold(dlock, run).queued(1)
    other.leave()
    if excluded:
        assert waiter.held().finish().status == 0
    holder = hold(dlock, run).held()
    other = user(client, path).enter()
    if excluded:
        assert not other.holds()
    else:
        wait_for(other.holds, what="the other's hold beside ours")
    assert holder.finish().status == 0
    wait_for(other.holds, what="the other's turn")
    other.leave()
    assert nodes(client, path) == []


@pytest.mark.parametrize("layout", QUEUES)
def test_all_stand_in_one_queue(dlock, client, words, path, layout):
    """dlock, user, dlock: first come, first served; tokens grow."""
    first = hold(dlock, words(layout, "-x")).held()
    second = USERS[layout][0](client, path).enter()
    third = hold(dlock, words(layout, "-x")).queued(2)
    assert first.finish().status == 0
    wait_for(second.holds, what="the user's turn")
    assert not third.running
    second.leave()
    assert third.token > first.token
    assert third.finish().status == 0


@pytest.mark.parametrize("layout", QUEUES)
def test_readers_behind_a_writer_are_granted_together(dlock, client, words, path, layout):
    writer = USERS[layout][0](client, path).enter()
    wait_for(writer.holds, what="the writer's hold")
    readers = [hold(dlock, words(layout, "-s")) for _ in range(3)]
    wait_for(lambda: len(nodes(client, path)) == 4, what="readers in the queue")
    last = hold(dlock, words(layout, "-x"))
    wait_for(lambda: len(nodes(client, path)) == 5, what="a writer in the queue")
    writer.leave()
    assert all(r.held() for r in readers) and not last.running
    assert [r.finish().status for r in readers] == [0] * 3
    assert last.held().finish().status == 0


@pytest.mark.parametrize("layout", QUEUES)
def test_a_release_wakes_one(dlock, tapped, words, client, path, layout):
    """No herd: of three that wait, one is told."""
    place, _, tap = tapped
    holder = hold(dlock, words(layout)).held()
    node, = nodes(client, path)
    waiters = [dlock.start("run", *place.words, "-O", f"layout={layout}", "-k", "job", "--", *dlock.UNTIL_EOF,
                           stdin=subprocess.PIPE).queued(n) for n in (1, 2, 3)]
    assert holder.finish().status == 0
    waiters[0].held()
    assert [p for p, _ in tap.ended] == [f"{path}/{node}"]
    for each in waiters:
        assert each.held().finish().status == 0


# ---- plain ----


def test_plain_clients_and_dlock(dlock, client, words, at, path):
    client.ensure_path(at.root)
    other = Plain(client, path)
    assert other.try_it()
    assert status(dlock, words("plain")) == 75
    waiter = hold(dlock, words("plain")).queued()
    other.leave()
    waiter.held()
    assert not other.try_it()
    gone = threading.Event()
    assert client.exists(path, watch=lambda event: gone.set())
    assert waiter.finish().status == 0
    assert gone.wait(PATIENCE) and other.try_it()
    other.leave()


def test_of_all_that_wait_for_a_node_one_has_it_at_a_time(dlock, words, tmp_path):
    script = 'mkdir "$0" || exit 99; sleep 0.02; rmdir "$0"'
    holder = hold(dlock, words("plain")).held()
    waiters = [dlock.start("run", *words("plain"), "--", "sh", "-c", script, tmp_path / "inside").queued() for _ in range(5)]
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0] * 5


def test_a_create_whose_answer_is_lost_is_ours(dlock, tapped, client, at):
    """Our session's node is ours, in whatever layout, and there is but one."""
    place, _, tap = tapped
    for layout in ALL:
        tap.lose(MAKES, 1)
        holder = dlock.start("run", *place.words, "-O", f"layout={layout}", "-k", layout, "--", *dlock.UNTIL_EOF,
                             stdin=subprocess.PIPE).held()
        assert tap.has_lost
        there = [at.root + "/" + layout] if layout == "plain" else [f"{at.root}/{layout}/{n}" for n in nodes(client, f"{at.root}/{layout}")]
        assert [client.exists(n).czxid for n in there] == [holder.token]
        assert holder.finish().status == 0
        assert nodes(client, f"{at.root}/{layout}") == []


def test_a_lost_answer_says_nothing_of_anothers_node(dlock, tapped, client, at):
    """It said that there is one already."""
    place, _, tap = tapped
    client.ensure_path(at.root)
    other = Plain(client, at.job)
    assert other.try_it()
    tap.lose(MAKES, 1)
    waiter = dlock.start("run", *place.words, "-O", "layout=plain", "-k", "job", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).queued()
    assert tap.has_lost and client.exists(at.job)
    other.leave()
    assert waiter.held().finish().status == 0


def test_another_owners_node_is_never_deleted(dlock, client, words, path):
    """Somebody has deleted ours, and another has made one with the same name."""
    holder = hold(dlock, words("plain")).held()
    client.delete(path)
    other = Plain(client, path)
    assert other.try_it()
    czxid = client.exists(path).czxid
    assert holder.wait().status == 79
    assert client.exists(path).czxid == czxid
    other.leave()


def test_another_owners_node_is_never_deleted_by_a_release(dlock, tapped, client, words, at):
    """The same between the command's end and the release's request."""
    place, _, tap = tapped
    holder = dlock.start("run", *place.words, "-O", "layout=plain", "-k", "job", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()

    def replace(_):
        client.delete(at.job)
        assert Plain(client, at.job).try_it()

    tap.on((GET_DATA,), replace)  # which asks whose it is
    holder.finish()
    assert tap.has_acted
    assert client.exists(at.job).ephemeralOwner == client.client_id[0]


def test_another_owners_node_is_never_deleted_by_force(dlock, tapped, client, words, at):
    """It was made between the look at ours and the request."""
    place, _, tap = tapped
    holder = hold(dlock, words("plain", "-t", "9s")).held()
    wait_for(lambda: client.exists(at.job).version > 0, what="a renewal")

    def replace(_):
        client.delete(at.job)
        assert Plain(client, at.job).try_it()

    tap.on((MULTI,), replace)
    dlock.run("break", *place.words, "-O", "layout=plain", "-k", "job", "-y", "--force")
    assert tap.has_acted
    assert client.exists(at.job) and client.exists(at.job).ephemeralOwner == client.client_id[0]
    assert holder.wait().status == 79


def test_who_is_asked_to_give_up_what_it_does_not_yet_have(dlock, ensemble, make_proxy):
    """It deletes its node, also where others go on writing to that, and does not take what it was to give up."""
    proxy, path, before = make_proxy(ensemble.leader.port), "/job", []
    tap = Tap(proxy)
    run = ["-u", f"zk://127.0.0.1:{proxy.port}", "-O", "layout=plain", "-O", "connect-timeout=60s", "-k", "job", "-t", "18s"]
    with ensemble.leader.client() as client:
        def write(_):
            client.set(path, b"once more")

        def ask(_):
            before.append(client.exists(path).czxid)
            client.set(path, b"__REVOKE__")
            tap.on((DELETE,), write)

        tap.on((SET_DATA,), ask)
        proxy.hold(DOWN)  # a session that is half over when it begins: the node alone earns too short a lease
        holder = hold(dlock, run)
        time.sleep(10)
        proxy.heal()
        holder.held()
        assert before and tap.has_acted
        assert client.exists(path).czxid == holder.token > before[0]
        assert holder.finish().status == 0


def test_a_node_that_stays_is_waited_for_and_reported(dlock, client, at, words, path):
    client.ensure_path(at.root)
    client.create(path, b"maintenance")
    done = dlock.run("run", *words("plain"), "-n", "--", "true")
    assert done.status == 75 and "until somebody deletes it" in done.stderr and client.get(path)[0] == b"maintenance"
    waiter = hold(dlock, words("plain")).queued()
    client.delete(path)
    assert waiter.held().finish().status == 0


def test_an_empty_directory_of_another_layout_is_refused(dlock, client, words, path):
    """Its users may count on it.  (What is made for Curator's, the server removes at some time.)"""
    assert status(dlock, words("kazoo")) == 0
    assert client.exists(path).children_count == 0
    done = dlock.run("run", *words("plain"), "--", "true")
    assert done.status == 76 and "empty directory" in done.stderr
    client.delete(path)
    assert status(dlock, words("plain")) == 0


def test_a_directory_that_others_count_on_stays(dlock, make_zk):
    """An object of kazoo's makes its path once, and uses it for as long as the program lives."""
    server = make_zk(["-Dznode.container.checkIntervalMs=20"])
    run = ["-u", server.url, "-O", "layout=kazoo", "-k", "job"]
    with server.client() as client:
        lock = client.Lock("/job", "python")
        holder = hold(dlock, run).held()
        assert not lock.acquire(blocking=False)
        assert holder.finish().status == 0
        # a directory of the other kind, made now, has gone
        assert dlock.run("run", "-u", server.url, "-k", "curator", "--", "true").status == 0
        wait_for(lambda: client.exists("/curator") is None, what="the end of an empty container")
        assert lock.acquire(timeout=PATIENCE)
        lock.release()


# ---- layouts that meet ----


@pytest.mark.parametrize("there", ALL)
@pytest.mark.parametrize("comes", ALL)
def test_layouts_do_not_share_a_lock(dlock, words, there, comes):
    """Who comes second is refused, with the flag that joins; the holder goes on."""
    holder = hold(dlock, words(there)).held()
    done = dlock.run("run", *words(comes), "-w", "0" if there == comes else "9", "--", "true")
    if there == comes:
        assert done.status == 75
    else:
        assert done.status == 76 and f"-O layout={there}" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert holder.finish().status == 0
    assert status(dlock, words(there)) == 0


@pytest.mark.parametrize("there, comes", [("curator", "kazoo"), ("kazoo", "curator"), ("rw-seq", "menagerie"), ("menagerie", "rw-seq")])
def test_a_late_dlock_of_another_layout_does_no_harm(dlock, words, there, comes):
    """It goes, and a waiter that may have seen it keeps its place."""
    holder = hold(dlock, words(there)).held()
    waiter = hold(dlock, words(there)).queued(1)
    for _ in range(3):
        assert status(dlock, words(comes)) == 76
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_what_a_dlock_of_another_layout_has_left_behind_us_is_passed(dlock, client, words, path):
    """Its node stays until its session ends; it has seen ours."""
    holder = hold(dlock, words("curator")).held()
    waiter = hold(dlock, words("curator")).queued(1)
    client.create(f"{path}/{'0' * 12}d{'0' * 19}__lock__", b"{}", ephemeral=True, sequence=True)
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


@pytest.mark.parametrize("layout, name", [
    ("curator", "ci-1-W-"), ("curator", "lock-"), ("curator", "lock-ci-1-12-"), ("curator", "readLock-"), ("curator", "0123456789abcdef0123456789abcdef__rlock__"),
    ("rw-seq", "_c_0d38b6d5-44b6-4c85-b6a4-9b7c1f0e2a11-lock-"), ("rw-seq", "0123456789abcdef0123456789abcdef__lock__"), ("rw-seq", "lock-ci-1-12-"),
    ("kazoo", "ci-1-R-"), ("kazoo", "_c_0d38b6d5-44b6-4c85-b6a4-9b7c1f0e2a11-__READ__"), ("kazoo", "writeLock-"),
    ("menagerie", "ci-1-W-"), ("menagerie", "0123456789abcdef0123456789abcdef__lock__"),
])
@pytest.mark.parametrize("behind", (False, True))
def test_others_nodes_are_refused_wherever_they_stand(dlock, client, words, path, layout, name, behind):
    """Their makers do not see us, so that we may not hold beside them, nor wait where they come."""
    if not behind:
        client.create(f"{path}/{name}", ephemeral=True, sequence=True, makepath=True)
        done = dlock.run("run", *words(layout), "--", "true")
        assert done.status == 76 and name in done.stderr and "-O layout=" in done.stderr, done
        return
    holder, waiter = hold(dlock, words(layout)).held(), hold(dlock, words(layout)).queued(1)
    client.create(f"{path}/{name}", ephemeral=True, sequence=True)
    assert holder.finish().status == 0
    assert waiter.wait().status == 76


@pytest.mark.parametrize("layout, kind", [("curator", ("--limit", "2")), *((layout, ()) for layout in ("curator", *QUEUES))])
def test_a_semaphore_of_menagerie_is_refused(dlock, client, words, path, layout, kind):
    """It sees permits alone.  dlock has no layout for these, and says so."""
    client.create(f"{path}/permit-", ephemeral=True, sequence=True, makepath=True)
    done = dlock.run("run", *words(layout, *kind), "-n", "--", "true")
    assert done.status == 76 and "semaphore of menagerie" in done.stderr and "cannot join" in done.stderr, done
    assert len(nodes(client, path)) == 1


def test_nodes_of_curator_with_a_number_alone_are_not_menageries(dlock, client, words, path):
    """Curator names its own _c_<uuid>-lock-<n>, and whoever puts another word in front means the same."""
    for name in ("_c_0d38b6d5-44b6-4c85-b6a4-9b7c1f0e2a11-lock-", "web-lock-"):
        node = client.create(f"{path}/{name}", ephemeral=True, sequence=True, makepath=True)
        assert status(dlock, words("curator")) == 75
        client.delete(node)
    assert status(dlock, words("curator")) == 0


@pytest.mark.parametrize("layout", QUEUES)
@pytest.mark.parametrize("name", ("x", "lease-0000000001", "locks", "0123456789abcdef0123456789abcdef"))
def test_what_no_lock_of_the_layout_has_made_is_refused(dlock, client, words, path, layout, name):
    """The last one is a lease of kazoo's Semaphore: whoever counts these does not see us."""
    client.create(f"{path}/{name}", makepath=True)
    done = dlock.run("run", *words(layout), "--", "true")
    assert done.status == 76 and name in done.stderr and path in done.stderr
    assert ("semaphore of kazoo" in done.stderr) == (len(name) == 32)
    assert nodes(client, path) == [name]


def test_a_real_semaphore_of_kazoo_is_refused(dlock, client, words, path):
    """Also when nobody holds it: its users do not see us."""
    def refused(*kind):
        done = dlock.run("run", *words("kazoo", *kind), "-n", "--", "true")
        assert done.status == 76 and "semaphore of kazoo" in done.stderr, done
        return done.stderr

    with client.Semaphore(path, "python", 2):
        for kind in ((), ("-s",), ("-x",)):
            assert "cannot join" in refused(*kind)
        assert state(dlock, words("kazoo"))["state"] == "held"
    assert "for 2" in refused()
    client.set(path, b"owned by web")
    assert status(dlock, words("kazoo")) == 0
    client.delete(path)
    assert status(dlock, words("kazoo")) == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kazoo_joins_no_other(dlock, client, words, path, layout):
    """Curator's users are told of kazoo, kazoo's of whoever is there."""
    with client.Lock(path, "python"):
        for other in ALL:
            done = dlock.run("run", *words(other), "-n", "--", "true")
            assert done.status == (75 if other == "kazoo" else 76), done
            assert other == "kazoo" or "-O layout=kazoo" in done.stderr


@pytest.mark.parametrize("one, other", [("curator", "kazoo"), ("rw-seq", "menagerie"), ("plain", "curator"), ("kazoo", "plain")])
def test_two_layouts_that_start_at_once_never_both_hold(dlock, words, tmp_path, one, other):
    script = f'mkdir {tmp_path}/inside || {{ echo overlap; exit 99; }}; rmdir {tmp_path}/inside'
    statuses = []
    for _ in range(8):
        pair = [dlock.start("run", *words(layout), "-c", script) for layout in (one, other) * 2]
        statuses += [s.wait().status for s in pair]
    assert set(statuses) <= {0, 76} and 0 in statuses, statuses


# ---- traps of one layout ----


def test_hosts_have_dashes(dlock, client, words, path):
    """The last two count."""
    reader = RwSeq(client, path, "R", "a-W-b-W").enter()
    shared = hold(dlock, words("rw-seq", "-s")).held()
    assert status(dlock, words("rw-seq")) == 75
    reader.leave()
    assert status(dlock, words("rw-seq")) == 75
    shared.finish()
    writer = RwSeq(client, path, "W", "a-R-0000000000-R").enter()
    assert status(dlock, words("rw-seq", "-s")) == 75
    writer.leave()


def test_no_thread_of_menagerie_finds_our_node_to_be_its_own(dlock, client, words, path):
    """The same host may run it; a thread's number is small, and ours are large and differ."""
    holder = hold(dlock, words("menagerie")).held()
    hold(dlock, words("menagerie")).queued(1)
    threads = {name.rsplit("-", 2)[1] for name in nodes(client, path)}
    assert len(threads) == 2 and all(int(t) > 1 << 60 and int(t) < 1 << 63 for t in threads)
    host = nodes(client, path)[0].split("-", 1)[1].split(".")[0]
    other = Menagerie(client, path, "lock2", host).enter()
    assert not other.holds() and other.name not in threads
    other.leave()
    holder.finish()


def test_menagerie_can_read_every_name(dlock, client, words, path):
    """It throws at a name without a number, such as \"locks\"."""
    names = set()
    for kind in KINDS:
        holder = hold(dlock, words("menagerie", *kind)).held()
        assert dlock.run("freeze", *words("menagerie")).status == 0
        names |= set(nodes(client, path))
        holder.finish()
        assert dlock.run("thaw", *words("menagerie"), "-y").status == 0
    assert len(names) == 9 and all(int(name[name.rindex("-") + 1:]) >= 0 for name in names)


@pytest.mark.parametrize("kind, recipe, flag", [("lock2", ("-s",), "without"), ("lock", ("-x",), "without"), ("readLock", (), "-s or -x"),
                                                ("writeLock", (), "-s or -x")])
def test_recipes_of_menagerie_that_do_not_see_us_are_refused(dlock, client, words, path, kind, recipe, flag):
    other = Menagerie(client, path, kind).enter()
    done = dlock.run("run", *words("menagerie", *recipe), "--", "true")
    assert done.status == 76 and flag in done.stderr
    other.leave()


def test_a_lock_of_kazoo_does_not_see_readers(dlock, client, words, path):
    """So it is with kazoo's own ReadLock; WriteLock is what excludes readers.  The manual says it."""
    reader = hold(dlock, words("kazoo", "-s")).held()
    lock, writer = KazooLock(client, path, "Lock").enter(), None
    wait_for(lock.holds, what="its hold")
    lock.leave()
    writer = KazooLock(client, path, "WriteLock").enter()
    assert not writer.holds()
    reader.finish()
    wait_for(writer.holds, what="the writer's turn")
    writer.leave()


def test_kazoo_reads_who_holds_it(dlock, client, words, path):
    holder = hold(dlock, words("kazoo", "--who", "alice@ci-1")).held()
    assert [json.loads(c)["who"] for c in client.Lock(path).contenders()] == ["alice@ci-1"]
    holder.finish()


@pytest.mark.parametrize("layout", QUEUES)
def test_a_dead_waiter_does_not_keep_its_turn(dlock, client, words, path, layout):
    """A waiter's node, by name and data a dlock's, that does not take its turn is removed."""
    holder = hold(dlock, words(layout)).held()
    name = nodes(client, path)[0][:-10]
    idle = re.sub("[0-9a-f]{12}d", "0" * 12 + "d", name, count=1)
    client.create(f"{path}/{idle}", b'{"who":"dead","dlock":"waiting"}', ephemeral=True, sequence=True)
    waiter = hold(dlock, words(layout)).queued(2)
    holder.finish()
    assert waiter.held().finish().status == 0


# ---- steering ----


@pytest.mark.parametrize("layout", QUEUES)
def test_a_freeze_stops_users_too(dlock, client, words, path, layout):
    run = words(layout)
    assert dlock.run("freeze", *run, "--why", "move").status == 0
    done = dlock.run("run", *run, "-n", "--", "true")
    assert done.status == 75 and "frozen" in done.stderr
    users = [USERS[layout][0](client, path).enter()]
    assert not users[0].holds()
    if layout == "menagerie":
        users.append(Menagerie(client, path, "lock2").enter())
        assert not users[1].holds()
        users.pop().leave()
    assert state(dlock, run)["state"] == "frozen"
    assert dlock.run("thaw", *run, "-y").status == 0
    wait_for(users[0].holds, what="the user's turn")
    users[0].leave()
    assert nodes(client, path) == []
    assert dlock.run("thaw", *run, "-y").status == 1


@pytest.mark.parametrize("layout", QUEUES)
def test_a_freeze_beside_a_holder(dlock, client, words, path, layout):
    """Who holds goes on, though its number is the first that there can be; who waits does not get it."""
    holder = hold(dlock, words(layout)).held()
    assert nodes(client, path)[0].endswith("0000000000")
    waiter = hold(dlock, words(layout)).queued(1)
    assert dlock.run("freeze", *words(layout), "--for", "1h").status == 0
    assert holder.finish().status == 0
    shown = wait_for(lambda: (s := state(dlock, words(layout)))["holders"] == [] and s, what="no holder")
    assert shown["state"] == "frozen" and len(shown["waiters"]) == 1
    assert not waiter.running
    assert dlock.run("thaw", *words(layout), "-y").status == 0
    assert waiter.held().finish().status == 0


@pytest.mark.parametrize("layout", ALL)
def test_break(dlock, words, layout):
    """The holder is asked; by force its node is deleted."""
    for force in ((), ("--force",)):
        holder = hold(dlock, words(layout)).held()
        assert dlock.run("break", *words(layout), "-y", "--why", "it hangs", *force).status == 0
        done = holder.wait()
        assert done.status == 79
        assert force or "it hangs" in done.stderr, done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_foreign_holders_are_shown_and_only_taken_by_force(dlock, client, at, words, path, layout):
    client.ensure_path(at.root)
    other = Plain(client, path) if layout == "plain" else USERS[layout][0](client, path)
    if layout == "plain":
        assert other.try_it()
    else:
        wait_for(other.enter().holds, what="its hold")
    run = words(layout)
    if layout != "plain":
        waiter = hold(dlock, words(layout, "-x", "--who", "alice@ci-1")).queued(1)
    shown = state(dlock, run)
    assert (shown["state"], shown["kind"], [h["foreign"] for h in shown["holders"]]) == ("held", "exclusive", [True])
    assert shown["holders"][0]["who"] == {"kazoo": "python", "plain": None}.get(layout, getattr(other, "name", None))
    assert layout == "plain" or [w["who"] for w in shown["waiters"]] == ["alice@ci-1"]
    listed = [json.loads(line) for line in dlock.run("ls", *run[:-2], "-J").stdout.splitlines()]
    assert [entry["key"] for entry in listed] == ["job"]
    done = dlock.run("break", *run, "-y")
    assert done.status == 78 and "--force takes" in done.stderr
    assert dlock.run("break", *run, "-y", "--force").status == 0
    if layout != "plain":
        assert waiter.held().finish().status == 0
    with contextlib.suppress(NoNodeError):
        other.leave()


def test_a_look_at_a_directory_where_a_node_should_be(dlock, client, words, path):
    """And the reverse: it says what is there, and changes nothing."""
    holder = hold(dlock, words("kazoo")).held()
    done = dlock.run("status", *words("plain"))
    assert "a directory" in done.stderr + done.stdout
    holder.finish()
    client.delete(path)
    holder = hold(dlock, words("plain")).held()
    done = dlock.run("status", *words("kazoo"))
    assert "layout=plain" in done.stderr + done.stdout
    holder.finish()


# ---- what a layout cannot do ----


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_missing_is_said_before_a_server_is_asked(dlock, layout):
    nowhere = ["-u", "zk://127.0.0.1:1", "-O", f"layout={layout}", "-k", "job"]
    missing = {("run", "--limit", "2"): True, ("run", "-s"): layout == "plain", ("freeze",): layout == "plain"}
    for (subcommand, *options), is_missing in missing.items():
        done = dlock.run(subcommand, *nowhere, *options, *(["-n", "--", "true"] if subcommand == "run" else []))
        assert (done.status == 78) == is_missing, done
        assert not is_missing or f"layout={layout}" in done.stderr


def test_a_layout_must_be_one(dlock):
    done = dlock.run("run", "-u", "zk://127.0.0.1:1", "-O", "layout=herd", "-k", "job", "--", "true")
    assert done.status == 64 and all(layout in done.stderr for layout in ALL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_is_done_once(dlock, words, layout):
    run = words(layout, "--once", "today")
    assert dlock.run("run", *run, "-c", "exit 3").status == 3
    assert dlock.run("run", *run, "--", "echo", "ran").stdout == "ran\n"
    assert dlock.run("run", *run, "--", "echo", "ran").stdout == ""
    assert state(dlock, words(layout))["last"]["id"] == "today"


# ---- attacks ----


def received(client):
    return int(client.command(b"srvr").split("Received: ")[1].split()[0])


def test_hosts_called_as_menagerie_calls_locks(dlock, client, words, path):
    """Menagerie's own client would see them, but they do not see it."""
    first = RwSeq(client, path, "W", "lockbox-3").enter()
    assert status(dlock, words("menagerie")) == 76
    first.leave()
    holder = hold(dlock, words("menagerie")).held()
    waiter = hold(dlock, words("menagerie")).queued(1)
    RwSeq(client, path, "W", "lockbox-4").enter()
    assert holder.finish().status == 0
    assert waiter.wait().status == 76


def test_the_node_that_took_our_place_keeps_its_data(dlock, client, words, path):
    holder = hold(dlock, words("plain")).held()
    replace = client.transaction()
    replace.delete(path)
    replace.create(path, b"another's", ephemeral=True)
    replace.commit()
    assert holder.wait().status == 79
    assert client.get(path)[0] == b"another's"


@pytest.mark.parametrize("layout", ("curator", *QUEUES))
def test_a_node_that_is_a_lock_cannot_be_frozen(dlock, client, words, path, layout):
    client.create(path, ephemeral=True, makepath=True)
    before = received(client)
    assert dlock.run("freeze", *words(layout)).status == 76
    assert received(client) - before < 50


@pytest.mark.parametrize("layout, tag", (("curator", "-lock-"), ("kazoo", "__lock__")))
def test_a_name_that_is_too_long_to_be_waited_for(dlock, client, words, path, layout, tag):
    client.create(f"{path}/{'x' * 6000}{tag}", ephemeral=True, sequence=True, makepath=True)
    before = received(client)
    assert dlock.run("run", *words(layout, "-w", "3"), "--", "true").status == 76
    assert received(client) - before < 100
