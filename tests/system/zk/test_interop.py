# Goal of these tests: services that use Apache Curator's locks, the
# Java library that most of them use, exclude dlock and are excluded by it, and
# kazoo, the Python library, can be told to wait for it.  The other libraries are
# Debian's, and the real ones.

import json
import re
import signal
import subprocess
import threading

import pytest

from curator import children, hold
from support import DLOCK, PATIENCE, wait_for

ALTERNATIONS = 200


def test_dlock_waits_for_curator_and_has_a_greater_token(dlock, curator, words, path):
    node, czxid = curator.do("acquire", path)[1:]
    assert node.startswith(f"{path}/_c_")
    busy = dlock.run("run", *words, "-n", "--", "true")
    assert busy.status == 75 and "is held by somebody" in busy.stderr
    waiter = hold(dlock, words).queued(1)
    assert not waiter.running
    curator.do("release", path)
    assert waiter.token > int(czxid)
    assert waiter.finish().status == 0


def test_curator_waits_for_dlock_and_has_a_greater_token(dlock, curator, kazoo, words, path):
    holder = hold(dlock, words).held()
    assert curator.do("try", path, 300) == ["busy"]
    curator.ask("acquire", path)
    wait_for(lambda: len(children(kazoo, path)) == 2, what="Curator in the queue")
    token = holder.token
    assert holder.finish().status == 0
    czxid = curator.answer()[2]
    assert int(czxid) > token
    curator.do("release", path)
    assert children(kazoo, path) == []


def test_all_wait_in_one_queue(dlock, curator, kazoo, words, path):
    """dlock, Curator, dlock: first come, first served."""
    first = hold(dlock, words).held()
    curator.ask("acquire", path)
    wait_for(lambda: len(children(kazoo, path)) == 2, what="Curator in the queue")
    third = hold(dlock, words).queued(2)
    first.finish()
    second = curator.answer()
    assert second[0] == "held" and not third.running
    curator.do("release", path)
    assert first.token < int(second[2]) < third.token
    assert third.finish().status == 0


def test_a_key_is_a_path_that_curator_can_use(dlock, zk_server, curator):
    """Without -O path: the key, encoded, below the chroot."""
    curator.do("acquire", "/team/reports%2Fdaily")
    place = ["-u", f"{zk_server.url}/team"]
    assert dlock.run("run", *place, "-k", "reports/daily", "-n", "--", "true").status == 75
    assert dlock.run("run", *place, "-k", "reports/weekly", "-n", "--", "true").status == 0
    curator.do("release", "/team/reports%2Fdaily")
    assert dlock.run("run", *place, "-k", "reports/daily", "-n", "--", "true").status == 0


def test_two_hundred_alternations(dlock, curator, words, path, tmp_path):
    """Both take turns on one lock: never at once, and with tokens that grow."""
    log, stop = tmp_path / "log", tmp_path / "stop"
    turn = f'mkdir {log}.d || echo overlap >>{log}; echo "dlock $DLOCK_TOKEN" >>{log}; rmdir {log}.d'
    loop = f'while [ ! -e {stop} ]; do "$@" || exit; done'
    again = subprocess.Popen(["sh", "-c", loop, "sh", DLOCK, "run", *words, "-c", turn], env=dlock.env)

    def lines():
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def alternations():
        assert again.poll() is None, f"dlock ended with {again.returncode}"
        found = lines()
        return sum(a[0] != b[0] for a, b in zip(found, found[1:])) >= ALTERNATIONS

    try:
        curator.ask("turns", path, log, stop)
        wait_for(alternations, timeout=6 * PATIENCE, what=f"{ALTERNATIONS} alternations")
    finally:
        stop.touch()
        assert again.wait(PATIENCE) == 0
    assert curator.answer()[1] == "turns"
    turns = lines()
    assert ["overlap"] not in turns
    tokens = [int(token) for _, token in turns]
    assert all(a < b for a, b in zip(tokens, tokens[1:]))


def test_curators_revocation_stops_the_command_politely(dlock, curator, kazoo, words, path):
    holder = dlock.start("run", *words, "-c", "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.1; done")
    wait_for(lambda: holder.stdout() == "ready\n", what="the trap")
    assert curator.do("revoke", f"{path}/{children(kazoo, path)[0]}") == ["asked"]
    done = holder.wait()
    assert (done.status, done.stdout) == (79, "ready\nasked\n")
    assert "lost job" in done.stderr
    assert children(kazoo, path) == []
    assert curator.do("try", path, 10000)[0] == "held"


def test_a_waiter_that_is_revoked_does_not_harm_the_holder(dlock, curator, kazoo, words, path):
    """Whatever the waiter makes of it, the lock goes on to somebody, and holders never meet."""
    holder = hold(dlock, words).held()
    ours = children(kazoo, path)
    waiter = hold(dlock, words).queued(1)
    curator.do("revoke", f"{path}/{(set(children(kazoo, path)) - set(ours)).pop()}")
    assert holder.poll() is None and not waiter.running
    assert holder.finish().status == 0
    waiter.signal(signal.SIGTERM)
    waiter.wait()
    assert curator.do("try", path, 10000)[0] == "held"


@pytest.mark.filterwarnings("ignore:isSet")  # kazoo's own
def test_kazoo_waits_for_dlock_when_told_of_its_nodes(dlock, kazoo, words, path):
    holder = hold(dlock, words).held()
    lock = kazoo.Lock(path, "python", extra_lock_patterns=["-lock-"])
    assert not lock.acquire(blocking=False)
    holders = lock.contenders()
    assert len(holders) == 1 and json.loads(holders[0])["command"] == "cat"

    got = threading.Event()
    thread = threading.Thread(target=lambda: lock.acquire(timeout=PATIENCE) and got.set())
    thread.start()
    wait_for(lambda: len(children(kazoo, path)) == 2, what="kazoo in the queue")
    assert not got.is_set()
    assert holder.finish().status == 0
    thread.join()
    assert got.is_set()
    lock.release()


def test_kazoos_own_locks_are_refused(dlock, kazoo, words, path):
    """Curator would not see them, so that nobody may mix the two without the extra pattern."""
    with kazoo.Lock(path, "python"):
        refused = dlock.run("run", *words, "-n", "--", "true")
    assert refused.status == 76 and "nothing was run" in refused.stderr


def test_kazoo_reads_who_holds_it(dlock, kazoo, words, path):
    holder = dlock.start("run", *words, "--who", "alice@ci-1", "--why", "release 4.2", "--", "cat",
                         stdin=subprocess.PIPE).held()
    node, = children(kazoo, path)
    assert re.fullmatch(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}", node)
    data, stat = kazoo.get(f"{path}/{node}")
    record = json.loads(data)
    assert (record["who"], record["why"], record["command"]) == ("alice@ci-1", "release 4.2", "cat")
    assert stat.czxid == holder.token and stat.ephemeralOwner != 0
    holder.finish()


# ---- readers and writers ----


def queue(kazoo, path, n):
    wait_for(lambda: len(children(kazoo, path)) == n, what=f"{n} in the queue")


def busy(dlock, words, *kind):
    done = dlock.run("run", *words, *kind, "-n", "--", "true")
    assert done.status in (0, 75), done
    return done.status == 75


@pytest.mark.parametrize("recipe, kind, excluded", [("read", "-s", False), ("read", "-x", True), ("write", "-s", True),
                                                    ("write", "-x", True)])
def test_dlock_beside_curators_readers_and_writers(dlock, curator, kazoo, words, path, recipe, kind, excluded):
    """Whoever comes first: dlock, or Curator."""
    assert curator.do("take", recipe, path, 10000) == ["held"]
    assert busy(dlock, words, kind) == excluded
    if excluded:
        waiter = hold(dlock, [*words, kind]).queued(1)
    assert curator.do("give", recipe, path) == ["released"]
    if excluded:
        assert waiter.held().finish().status == 0
    holder = hold(dlock, [*words, kind]).held()
    assert curator.do("take", recipe, path, 300 if excluded else 10000) == ["busy" if excluded else "held"]
    if excluded:
        curator.ask("take", recipe, path, 60000)
        queue(kazoo, path, 2)
    assert holder.finish().status == 0
    if excluded:
        assert curator.answer() == ["held"]
    curator.do("give", recipe, path)
    assert children(kazoo, path) == []


def test_readers_and_writers_of_both_wait_in_one_queue(dlock, curator, second_curator, kazoo, words, path):
    """Writer of dlock; readers of Curator and dlock; writer of Curator; reader of dlock."""
    first = hold(dlock, [*words, "-x"]).held()
    curator.ask("take", "read", path, 60000)
    queue(kazoo, path, 2)
    reader = hold(dlock, [*words, "-s"])
    queue(kazoo, path, 3)
    second_curator.ask("take", "write", path, 60000)
    queue(kazoo, path, 4)
    last = hold(dlock, [*words, "-s"])
    queue(kazoo, path, 5)
    assert first.finish().status == 0
    assert curator.answer() == ["held"] and reader.held()
    curator.do("give", "read", path)
    assert not last.running and len(children(kazoo, path)) == 3
    assert reader.finish().status == 0
    assert second_curator.answer() == ["held"]
    assert busy(dlock, words, "-s") and not last.running
    second_curator.do("give", "write", path)
    assert last.held().finish().status == 0


# ---- semaphores ----


def test_curators_leases_count(dlock, curator, kazoo, words, path):
    """Two units: one each, then both Curator's, then both dlock's."""
    two = [*words, "--limit", "2"]
    assert curator.do("take", "2", path, 10000) == ["held"]
    holder = hold(dlock, two).held()
    assert busy(dlock, two)
    curator.do("give", "2", path)
    second = hold(dlock, two).held()
    assert curator.do("take", "2", path, 300) == ["busy"]
    curator.ask("take", "2", path, 60000)
    wait_for(lambda: len(children(kazoo, f"{path}/locks")) == 1, what="Curator in the queue")
    assert holder.finish().status == 0
    assert curator.answer() == ["held"]
    waiter = hold(dlock, two).queued(1)
    curator.do("give", "2", path)
    assert waiter.held().finish().status == 0
    assert second.finish().status == 0
    assert [children(kazoo, f"{path}/{part}") for part in ("locks", "leases", "slots")] == [[], [], []]


def test_semaphores_wait_on_both_sides(dlock, curator, second_curator, kazoo, words, path):
    """One unit: Curator has it; dlock, Curator, dlock wait, first come, first served."""
    one = [*words, "--limit", "1"]
    assert curator.do("take", "1", path, 10000) == ["held"]
    second = hold(dlock, one).queued(1)
    wait_for(lambda: len(children(kazoo, f"{path}/locks")) == 1, what="dlock in the queue")
    second_curator.ask("take", "1", path, 60000)
    wait_for(lambda: len(children(kazoo, f"{path}/locks")) == 2, what="Curator in the queue")
    last = hold(dlock, one).queued()
    curator.do("give", "1", path)
    second.held()
    assert not last.running  # Curator may have a lease already: it makes one before it counts
    assert second.finish().status == 0
    assert second_curator.answer() == ["held"]
    assert not last.running
    second_curator.do("give", "1", path)
    assert last.held().finish().status == 0


def test_a_lease_that_is_deleted_is_a_loss(dlock, kazoo, words, path):
    holder = hold(dlock, [*words, "--limit", "2"]).held()
    lease, = children(kazoo, f"{path}/leases")
    kazoo.delete(f"{path}/leases/{lease}")
    done = holder.wait()
    assert done.status == 79 and "lease" in done.stderr


# ---- recipes that would not see ours ----


@pytest.mark.parametrize("recipe, kinds", [("mutex", ["-s", "-x", "--limit"]), ("read", ["", "--limit"]),
                                           ("write", ["", "--limit"]), ("2", ["", "-s", "-x"])])
def test_recipes_that_do_not_see_us_are_refused(dlock, curator, kazoo, words, path, recipe, kinds):
    take, give = (("acquire",), ("release",)) if recipe == "mutex" else (("take", recipe), ("give", recipe))
    assert curator.do(*take, path, *([] if recipe == "mutex" else [10000]))[0] == "held"
    for kind in kinds:
        done = dlock.run("run", *words, *([kind] if kind else []), *(["2"] if kind == "--limit" else []), "--", "true")
        assert done.status == 76 and path in done.stderr, done
        flag = {"mutex": "without", "read": "-s or -x", "write": "-s or -x", "2": "--limit"}[recipe]
        assert flag in done.stderr
    curator.do(*give, path)
    assert dlock.run("run", *words, *([kinds[0]] if kinds[0] else []), *(["2"] if kinds[0] == "--limit" else []), "--",
                     "true").status == 0
