# Goal of these tests: with -O layout=kazoo, --limit and kazoo's own Semaphore count each other, wait for
# each other in one queue and wake each other, whatever becomes of their clients.

import contextlib
import json
import signal
import subprocess
import threading
import time

import pytest
from kazoo.exceptions import KazooException

from support import PATIENCE, wait_for
from zk import GET_CHILDREN2, MULTI, nodes

pytestmark = pytest.mark.filterwarnings("ignore:isSet")  # kazoo's own


@pytest.fixture
def client(zk_server):
    with zk_server.client() as result:
        yield result


@pytest.fixture
def path(at):
    return at.job


@pytest.fixture
def queue(at):
    return f"{at.job}-__lock__"


@pytest.fixture
def words(at):
    return lambda limit=2, *more: [*at.words, "-O", "layout=kazoo", "-k", "job", *(["--limit", str(limit)] if limit else []), *more]


@pytest.fixture
def hold(dlock, words):
    return lambda *args: dlock.start("run", *words(*args), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE)


@pytest.fixture
def refused(dlock, words):
    def run(*args):
        done = dlock.run("run", *words(*args), "-n", "--", "true")
        return done.status, done.stderr
    return run


@pytest.fixture
def state(dlock, words):
    return lambda: json.loads(dlock.run("status", *words(None), "-J").stdout)


class Semaphore:
    """kazoo's own, in the background."""

    def __init__(self, client, path, limit=2):
        self.semaphore, self.client, self.path = client.Semaphore(path, "python", limit), client, path
        self.got = threading.Event()

    def enter(self):
        threading.Thread(target=self._take, daemon=True).start()
        return self

    def _take(self):
        with contextlib.suppress(KazooException):  # its session may end with the test
            if self.semaphore.acquire(timeout=PATIENCE):
                self.got.set()

    def holds(self):
        return self.got.wait(0.3)

    def held(self):
        assert self.got.wait(PATIENCE)
        return self

    def leave(self):
        self.semaphore.release()


def test_names_and_data(client, hold, path, queue):
    """K says N; the lease is our node, and nothing stays in the queue."""
    holder = hold(3, "--who", "alice@ci-1").held()
    name, = nodes(client, path)
    data, stat = client.get(f"{path}/{name}")
    assert name[12] == "d" and name[32:] == "-slot-0" and json.loads(data)["who"] == "alice@ci-1"
    assert (stat.czxid, stat.ephemeralOwner != 0) == (holder.token, True)
    assert client.get(path)[0] == b"3" and nodes(client, queue) == []
    assert [json.loads(who)["who"] for who in client.Semaphore(path, max_leases=3).lease_holders()] == ["alice@ci-1"]
    assert holder.finish().status == 0
    assert nodes(client, path) == nodes(client, queue) == []


def test_dlock_first(client, hold, path):
    """Two of ours leave none; the end of one wakes kazoo's."""
    first, second = hold().held(), hold().held()
    assert second.token > first.token
    other = Semaphore(client, path).enter()
    assert not other.holds()
    assert first.finish().status == 0
    other.held().leave()
    assert second.finish().status == 0


def test_kazoo_first(client, hold, refused, path):
    others = [Semaphore(client, path).enter().held() for _ in range(2)]
    assert refused()[0] == 75
    waiter = hold().queued(1)
    others[0].leave()
    waiter.held()
    assert refused()[0] == 75
    others[1].leave()
    assert waiter.finish().status == 0


def test_one_queue(client, hold, path, queue):
    """First come, first served, of whichever side; tokens grow, and only the first one is served."""
    holder = hold(1).held()
    first = Semaphore(client, path, 1).enter()
    wait_for(lambda: len(nodes(client, queue)) == 1, what="kazoo in the queue")
    second = hold(1).queued(2)
    third = Semaphore(client, path, 1).enter()
    wait_for(lambda: len(nodes(client, queue)) == 3, what="kazoo in the queue")
    token = holder.token
    assert holder.finish().status == 0
    first.held()
    assert not second.running and not third.holds()
    first.leave()
    assert second.held().token > token and not third.holds()
    assert second.finish().status == 0
    third.held().leave()


def test_never_more_than_n(client, dlock, words, path, tmp_path):
    """Crowds of both at once."""
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"touch {inside}/$$; ls {inside} | wc -l; sleep 0.02; rm {inside}/$$"
    stop, seen = threading.Event(), []

    def python(n):
        semaphore = client.Semaphore(path, "python", 3)
        while not stop.is_set():
            with semaphore:
                (inside / f"python{n}").touch()
                seen.append(len(list(inside.iterdir())))
                (inside / f"python{n}").unlink()

    threads = [threading.Thread(target=python, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    ours = [dlock.start("run", *words(3), "-c", script) for _ in range(12)]
    ended = [each.wait() for each in ours]
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert [e.status for e in ended] == [0] * 12
    assert seen and max(int(e.stdout) for e in ended) <= 3 and max(seen) <= 3
    assert nodes(client, path) == []


def slot(holder):
    return holder.event("acquired")["slot"]


def test_slots(client, hold, path):
    """The lowest that is free; kazoo's users have none."""
    first, second = hold(3).held(), hold(3).held()
    other = Semaphore(client, path, 3).enter().held()
    assert [slot(first), slot(second)] == [0, 1]
    assert first.finish().status == 0
    third = hold(3).held()
    assert slot(third) == 0
    other.leave()
    assert slot(hold(3).held()) == 2


def test_another_n_is_refused(client, hold, refused, path):
    """As kazoo does it, in both directions, also when nobody holds it."""
    with client.Semaphore(path, "python", 2):
        status, message = refused(3)
    assert status == 76 and "for 2" in message and "--limit 3" in message
    assert refused(3)[0] == 76
    assert refused(2)[0] == 0
    hold(2).held()
    with pytest.raises(ValueError, match="Inconsistent"):
        client.Semaphore(path, "python", 3).acquire(timeout=1)


def test_another_n_is_refused_behind_others(client, dlock, hold, words, queue):
    """Who can never be served does not wait for a turn to hear it."""
    holder = hold(1).held()
    waiter = hold(1).queued(1)
    done = dlock.run("run", *words(2), "--", "echo", "ran")
    assert (done.status, done.stdout) == (76, "") and "--limit 1" in done.stderr
    assert len(nodes(client, queue)) == 1
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_data_of_another_purpose_stay(client, refused, path):
    """kazoo passes over them, too."""
    client.create(path, b"owned by web", makepath=True)
    assert refused(2)[0] == 0
    assert client.get(path)[0] == b"owned by web"


def test_an_empty_node_is_told_n(client, refused, path):
    client.create(path, b"", makepath=True)
    assert refused(2)[0] == 0
    assert client.get(path)[0] == b"2"


def test_a_lock_and_a_semaphore_do_not_share_a_path(client, hold, refused, path):
    with client.Semaphore(path, "python", 2):
        for kind in ((), ("-s",), ("-x",)):
            status, message = refused(None, *kind)
            assert status == 76 and "semaphore of kazoo" in message and "--limit" in message
    status, message = refused(None)  # nobody holds it, but its users do not see us
    assert status == 76 and "for 2" in message and "--limit 2" in message
    client.delete(path)
    holder = hold(None).held()
    status, message = refused(2)
    assert status == 76 and "do not see" in message
    assert holder.finish().status == 0


def test_a_lock_that_comes_meanwhile(tapped, dlock, client, at):
    """Its node was made after our list, and before our lease: it goes, or we do."""
    place, _, tap = tapped
    run = [*place.words, "-O", "layout=kazoo", "-k", "job", "--limit", "2", "-n"]
    client.create(at.job, b"", makepath=True)

    def come(_):
        client.create(f"{at.job}/{'0' * 32}__lock__", b"", ephemeral=True, sequence=True)

    tap.on((MULTI,), come)
    done = dlock.run("run", *run, "--", "echo", "ran")
    assert tap.has_acted
    assert (done.status, done.stdout) == (76, "")
    assert [n[32:40] for n in nodes(client, at.job)] == ["__lock__"]


@pytest.mark.parametrize("lost", [MULTI, GET_CHILDREN2], ids=["lease", "list"])
def test_a_lock_that_comes_while_an_answer_is_lost(tapped, dlock, client, at, lost):
    """What was found again has not been looked at since."""
    place, _, tap = tapped
    client.create(at.job, b"2", makepath=True)

    def come(_):
        client.create(f"{at.job}/{'0' * 32}__lock__", b"", ephemeral=True, sequence=True)
        tap.lose((lost,), 1)

    tap.on((MULTI,), come)
    done = dlock.run("run", *place.words, "-O", "layout=kazoo", "-k", "job", "--limit", "2", "-w", "30s", "--", "echo", "ran")
    assert tap.has_acted and tap.has_lost
    assert (done.status, done.stdout) == (76, "")
    assert [n[32:40] for n in nodes(client, at.job)] == ["__lock__"]


def test_another_n_that_comes_meanwhile(tapped, dlock, client, at):
    """It was written after our look: no lease is made by the old one."""
    place, _, tap = tapped
    client.create(at.job, b"2", makepath=True)
    tap.on((MULTI,), lambda _: client.set(at.job, b"1") and None)
    done = dlock.run("run", *place.words, "-O", "layout=kazoo", "-k", "job", "--limit", "2", "--", "echo", "ran")
    assert tap.has_acted
    assert (done.status, done.stdout) == (76, "") and "--limit 1" in done.stderr


def test_a_freeze_that_comes_meanwhile(tapped, dlock, client, words, at):
    """It was made after our look."""
    place, _, tap = tapped
    client.create(at.job, b"2", makepath=True)
    tap.on((MULTI,), lambda _: dlock.run("freeze", *words(None)) and None)
    done = dlock.run("run", *place.words, "-O", "layout=kazoo", "-k", "job", "--limit", "2", "-n", "--", "echo", "ran")
    assert tap.has_acted
    assert (done.status, done.stdout) == (75, "") and "frozen" in done.stderr


def test_a_place_in_the_queue_that_is_deleted_meanwhile(tapped, dlock, client, at):
    """Another one may be the first now, and goes by the same free lease."""
    place, _, tap = tapped
    queue, before = f"{at.job}-__lock__", []

    def take_away(_):
        before.extend(nodes(client, queue))
        client.delete(f"{queue}/{before[0]}")

    tap.on((MULTI,), take_away)
    holder = dlock.start("run", *place.words, "-O", "layout=kazoo", "-k", "job", "--limit", "2", "--", *dlock.UNTIL_EOF,
                         stdin=subprocess.PIPE).held()
    assert tap.has_acted and tap.asked[MULTI] == 2
    assert len(nodes(client, at.job)) == 1
    assert holder.finish().status == 0


def test_a_lost_answer_to_the_lease(tapped, dlock, client, at):
    """It was made: we have it, once."""
    place, _, tap = tapped
    tap.lose((MULTI,), 1)
    holder = dlock.start("run", *place.words, "-O", "layout=kazoo", "-k", "job", "--limit", "2", "--", *dlock.UNTIL_EOF,
                         stdin=subprocess.PIPE).held()
    assert tap.has_lost
    name, = nodes(client, at.job)
    assert client.exists(f"{at.job}/{name}").czxid == holder.token
    assert nodes(client, f"{at.job}-__lock__") == []
    assert holder.finish().status == 0
    assert nodes(client, at.job) == []


def test_who_is_the_first_is_not_taken_for_dead_while_no_lease_is_free(client, hold, queue):
    """Though it leaves its turn unused for longer than others may."""
    holder, first = hold(1).held(), hold(1).queued(1)
    second = hold(1).queued(2)
    before = nodes(client, queue)
    time.sleep(6)  # a turn may be left unused for three, and is looked at each two
    assert nodes(client, queue) == before
    assert holder.finish().status == 0
    assert first.held() and not second.running
    assert first.finish().status == 0
    assert second.held().finish().status == 0


@pytest.mark.parametrize("free", [False, True], ids=["at-once", "after-a-while"])
def test_a_first_one_that_is_dead_does_not_keep_a_lease(client, hold, queue, free):
    """Its session would last for five minutes."""
    holder = hold(1).held()
    dead = hold(1, "-t", "300s").queued(1)
    wait_for(lambda: json.loads(client.get(f"{queue}/{nodes(client, queue)[0]}")[0]).get("dlock"), what="its word")
    last = hold(1).queued(2)
    dead.signal(signal.SIGKILL, "keeper")
    assert dead.wait().status == 71
    if free:
        time.sleep(4)
    assert holder.finish().status == 0
    assert last.held().finish().status == 0


def test_a_lease_that_is_deleted_is_lost(client, hold, path):
    holder = hold().held()
    name, = nodes(client, path)
    client.delete(f"{path}/{name}")
    assert holder.wait().status == 79


def test_who_gives_up_leaves_nothing(client, dlock, words, hold, path, queue):
    """The first in the queue, and one behind it."""
    holder = hold(1).held()
    first = dlock.start("run", *words(1), "-w", "4", "--", "true").queued(1)
    second = dlock.start("run", *words(1), "-w", "2", "--", "true").queued(2)
    assert (second.wait().status, first.wait().status) == (75, 75)
    assert nodes(client, queue) == []
    assert holder.finish().status == 0


def test_a_dead_waiter_does_not_keep_its_turn(client, hold, path, queue):
    """One that died before its turn in the queue is removed when that has come."""
    holder = hold(1).held()
    first = hold(1).queued(1)
    client.create(f"{queue}/{'0' * 12}d{'0' * 19}__lock__", b'{"who":"dead","dlock":"waiting"}', ephemeral=True, sequence=True)
    last = hold(1).queued(3)
    assert holder.finish().status == 0
    assert first.held().finish().status == 0
    assert last.held().finish().status == 0


def test_a_client_that_dies_at_the_head_of_the_queue(zk_server, client, hold, path, queue):
    """Its session's end lets the next one in; a lease is then free already."""
    holder = hold(1).held()
    with zk_server.client() as mortal:
        Semaphore(mortal, path, 1).enter()
        wait_for(lambda: nodes(client, queue), what="kazoo in the queue")
        waiter = hold(1).queued(2)
    waiter.queued(1)
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_status(client, hold, state, dlock, words, path):
    other = Semaphore(client, path).enter().held()
    mine = hold(2, "--who", "alice@ci-1").held()
    waiter = hold(2, "--who", "bob@ci-2").queued(1)
    shown = state()
    assert (shown["state"], shown["kind"], shown["limit"]) == ("held", "limit", 2)
    assert sorted((h["who"], h["slot"], h["token"], h["foreign"]) for h in shown["holders"]) == [
        ("alice@ci-1", 0, mine.token, False), ("python", None, client.exists(other.semaphore.create_path).czxid, True)]
    assert [(w["who"], w["position"]) for w in shown["waiters"]] == [("bob@ci-2", 1)]
    listed = [json.loads(line)["key"] for line in dlock.run("ls", *words(None)[:-2], "-J").stdout.splitlines()]
    assert listed == ["job"]
    other.leave()
    assert waiter.held().finish().status == 0


def test_break(client, hold, dlock, words, path):
    """Ours is asked, kazoo's is not, and can be taken away."""
    mine, other = hold().held(), Semaphore(client, path).enter().held()
    token = str(client.exists(other.semaphore.create_path).czxid)
    assert dlock.run("break", *words(None), "--token", str(mine.token), "-y", "--why", "it hangs").status == 0
    done = mine.wait()
    assert done.status == 79 and "it hangs" in done.stderr
    done = dlock.run("break", *words(None), "--token", token, "-y")
    assert done.status == 78 and "by force" in done.stderr
    assert dlock.run("break", *words(None), "--token", token, "-y", "--force").status == 0
    assert nodes(client, path) == []


def test_freeze(client, hold, dlock, words, state, path, queue):
    """Who holds goes on; nobody else comes in, of neither side, until the thaw."""
    holder = hold().held()
    assert dlock.run("freeze", *words(None), "--why", "move").status == 0
    waiter = hold().queued(1)
    other = Semaphore(client, path).enter()
    assert not other.holds() and not waiter.running
    assert holder.finish().status == 0
    shown = wait_for(lambda: (s := state())["holders"] == [] and s, what="no holder")
    assert (shown["state"], len(shown["waiters"])) == ("frozen", 2)
    assert not other.holds() and not waiter.running
    assert dlock.run("thaw", *words(None), "-y").status == 0
    waiter.held()
    other.held().leave()
    assert waiter.finish().status == 0
    assert nodes(client, path) == nodes(client, queue) == []


def test_a_freeze_that_ends(client, hold, dlock, words, path, queue):
    """Both of its nodes go, or one would count for ever."""
    assert dlock.run("freeze", *words(None), "--for", "1s").status == 0
    waiter = hold(1)
    assert waiter.held().finish().status == 0
    assert nodes(client, path) == nodes(client, queue) == []


def test_a_freeze_whose_removal_was_cut_short(client, hold, path, queue):
    """Its node in the queue has gone, the other one counts; it is over."""
    client.create(path, b"1", makepath=True)
    client.create(f"{path}/-freeze-{'0' * 16}-1-__lock__-0000000001", b"{}")
    assert hold(1).held().finish().status == 0
    assert nodes(client, path) == []


def test_what_a_break_has_noted_makes_room_for_n(client, dlock, hold, words, refused, path):
    holder = hold(None).held()
    assert dlock.run("break", *words(None), "-y", "--force").status == 0
    assert holder.wait().status == 79 and client.get(path)[0] != b""
    assert refused(2)[0] == 0
    assert client.get(path)[0] == b"2"


def test_a_job_is_done_once(dlock, words):
    run = words(2, "--once", "today")
    assert [dlock.run("run", *run, "--", "echo", "ran").stdout for _ in range(2)] == ["ran\n", ""]


def test_a_freeze_while_the_first_one_waits(client, hold, dlock, words, path):
    """It stands in the queue already, and does not get what becomes free."""
    holder = hold(1).held()
    waiter = hold(1).queued(1)
    assert dlock.run("freeze", *words(None)).status == 0
    assert holder.finish().status == 0
    done = dlock.run("run", *words(1), "-n", "--", "true")
    assert done.status == 75 and "frozen" in done.stderr and not waiter.running
    assert dlock.run("thaw", *words(None), "-y").status == 0
    assert waiter.held().finish().status == 0
