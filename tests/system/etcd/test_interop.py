# Goal of these tests: `etcdctl lock` (and so Go's concurrency.Mutex, whose recipe it is) excludes dlock on the same
# name and is excluded, in the order of their coming, whoever is killed or loses its lease on either side.

import json
import signal
import subprocess
import time

import pytest

from support import PATIENCE, is_free, run, wait_for
from witness import Crowd, check_intervals, compile_witness, interval

LEASE = ("-t", "3s")


@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    return compile_witness(tmp_path_factory.mktemp("witness"))


class Pair:
    """One lock by both names."""

    def __init__(self, at, own_name):
        self.server = at.server
        self.name = "app/nightly" if own_name else "dlock/q/job"
        self.words = ["-u", at.url, *(["-O", "name=app/nightly"] if own_name else [])]
        self.url = at.url
        self.prefix, self.counted, self.settings = "", True, ()

    def key(self, name="job"):
        return name

    def queue(self):
        return sorted(self.server.client().range(self.name + "/"), key=lambda kv: kv["create"])

    def etcdctl(self, *command, ttl=3):
        return self.server.etcdctl("lock", f"--ttl={ttl}", self.name, "--", *map(str, command))


@pytest.fixture(params=[False, True], ids=["native", "name"])
def pair(at, request):
    return Pair(at, request.param)


class Others:
    """Runs of etcdctl lock, which are ended after the test."""

    def __init__(self, pair):
        self.pair, self.all = pair, []

    def start(self, *command, ttl=3):
        self.all.append(self.pair.etcdctl(*command, ttl=ttl))
        return self.all[-1]

    def hold(self, directory, n=0, ttl=3):
        """Holds it until the gate is opened; returns the process and the gate."""
        gate, ready = directory / f"gate{n}", directory / f"ready{n}"
        process = self.start("sh", "-c", f'touch "{ready}"; while ! [ -e "{gate}" ]; do sleep 0.02; done', ttl=ttl)
        return process, gate, ready

    def close(self):
        for process in self.all:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def others(pair):
    result = Others(pair)
    yield result
    result.close()


def held_by_etcdctl(others, directory, n=0, ttl=3):
    process, gate, ready = others.hold(directory, n, ttl)
    wait_for(ready.exists, what="etcdctl's lock")
    return process, gate


def test_who_waits_for_etcdctl(dlock, pair, others, tmp_path):
    process, gate = held_by_etcdctl(others, tmp_path)
    assert run(dlock, pair, "-n", events=False).status == 75
    waiter = dlock.contend(pair, "job").queued(1)
    time.sleep(0.5)
    assert not waiter.running
    gate.touch()
    assert process.wait(PATIENCE) == 0
    assert waiter.held().finish().status == 0
    assert pair.queue() == []


def test_a_key_is_no_name_of_etcdctls(dlock, at, tmp_path):
    """Both run, and who looks is told so."""
    pair = Pair(at, True)
    others = Others(pair)
    try:
        process, gate = held_by_etcdctl(others, tmp_path)
        words = ("-u", at.url, "-k", pair.name)
        looked = dlock.run("status", *words)
        assert looked.status == 1 and "the lock that etcdctl calls app/nightly, which is another than this key" in looked.stdout, looked
        assert "WARN  beside" in dlock.run("doctor", *words).stdout
        done = dlock.run("run", *words, "-n", "true")
        assert (done.status, done.stderr) == (0, "")
        assert "beside" not in dlock.run("status", "-u", at.url, "-k", "app").stdout  # that is no lock's key
        assert "beside" not in dlock.run("status", *pair.words, "-k", "job").stdout
        gate.touch()
        assert process.wait(PATIENCE) == 0
        assert "beside" not in dlock.run("status", *words).stdout
    finally:
        others.close()


def test_etcdctl_waits(dlock, pair, others, tmp_path):
    holder = dlock.hold(pair, "job")
    process, gate, ready = others.hold(tmp_path)
    wait_for(lambda: len(pair.queue()) == 2)
    time.sleep(0.5)
    assert not ready.exists()
    assert holder.finish().status == 0
    wait_for(ready.exists)
    gate.touch()
    assert process.wait(PATIENCE) == 0


def test_all_are_served_in_the_order_of_their_coming(dlock, pair, others, tmp_path):
    log = tmp_path / "log"
    log.touch()
    holder, runs, shells = dlock.hold(pair, "job"), [], []
    for n in range(8):
        command = ("sh", "-c", f'echo {n} >>"{log}"')
        if n % 2:
            shells.append(others.start(*command))
        else:
            runs.append(dlock.contend(pair, "job", command=command))
        wait_for(lambda n=n: len(pair.queue()) == n + 2, what="its place")
    holder.finish()
    assert [r.wait().status for r in runs] == [0] * 4 and [s.wait(PATIENCE) for s in shells] == [0] * 4
    assert log.read_text().split() == [str(n) for n in range(8)]


def test_twelve_against_twelve(dlock, pair, others, tmp_path):
    """The kernel watches: a directory is made and removed."""
    inside, log = tmp_path / "inside", tmp_path / "log"
    script = f'mkdir "{inside}" || {{ echo OVERLAP >>"{log}"; exit 99; }}; echo ran >>"{log}"; sleep 0.02; rmdir "{inside}"'
    runs = []
    for _ in range(12):
        others.start("sh", "-c", script, ttl=60)
        runs.append(dlock.contend(pair, "job", command=("sh", "-c", script)))
    assert [r.wait().status for r in runs] == [0] * 12
    assert [o.wait(PATIENCE) for o in others.all] == [0] * 12
    assert log.read_text().split() == ["ran"] * 24


def test_a_killed_etcdctl_blocks_for_its_lease(dlock, pair, others, tmp_path):
    process, gate = held_by_etcdctl(others, tmp_path)
    dead, *_ = others.hold(tmp_path, 1)
    wait_for(lambda: len(pair.queue()) == 2)
    waiter = dlock.contend(pair, "job", *LEASE).queued(2)
    dead.kill()
    process.kill()
    gate.touch()  # its command goes on, as etcdctl lets it
    assert waiter.held().finish().status == 0


@pytest.mark.parametrize("process", ["front", "keeper"])
def test_a_killed_dlock_blocks_etcdctl_for_its_lease(dlock, pair, others, tmp_path, process):
    holder = dlock.hold(pair, "job", *LEASE)
    waiter = dlock.contend(pair, "job", *LEASE).queued(1)
    waiter.signal(signal.SIGKILL, "keeper")
    other, gate, ready = others.hold(tmp_path)
    wait_for(lambda: len(pair.queue()) >= 2)
    holder.signal(signal.SIGKILL, process)
    wait_for(ready.exists, timeout=25)
    gate.touch()
    assert other.wait(PATIENCE) == 0


def test_a_lease_that_dlock_has_lost(dlock, pair, others, tmp_path):
    """The command ends, and etcdctl goes on.  The watch tells: not the next renewal of a long lease."""
    holder = dlock.hold(pair, "job", *LEASE)
    other, gate, ready = others.hold(tmp_path)
    wait_for(lambda: len(pair.queue()) == 2)
    time.sleep(1.5)  # it has been renewed
    pair.server.client().revoke(pair.queue()[0]["lease"])
    done = holder.wait()
    assert done.status == 79 and "no longer has it as ours" in done.stderr, done
    wait_for(ready.exists)
    gate.touch()
    assert other.wait(PATIENCE) == 0


def test_a_lease_that_etcdctl_has_lost(dlock, pair, others, tmp_path):
    """It does not notice; the token is what tells two holders apart."""
    process, gate = held_by_etcdctl(others, tmp_path)
    waiter = dlock.contend(pair, "job").queued(1)
    first = pair.queue()[0]
    pair.server.client().revoke(first["lease"])
    assert waiter.held().token > first["create"]
    assert process.poll() is None
    gate.touch()


def test_a_lease_that_a_waiter_has_lost(dlock, pair):
    """It queues anew, behind those who have come."""
    holder = dlock.hold(pair, "job")
    first = dlock.contend(pair, "job").queued(1)
    dlock.contend(pair, "job", command=("true",)).queued(2)
    lost = pair.queue()[1]
    pair.server.client().revoke(lost["lease"])
    wait_for(lambda: len(pair.queue()) == 3 and pair.queue()[2]["create"] > lost["create"] + 1)
    assert first.poll() is None
    holder.finish()
    assert first.held().finish().status == 0


def test_how_it_is_shown_and_broken(dlock, pair, others, tmp_path):
    process, gate = held_by_etcdctl(others, tmp_path, ttl=60)
    words = [*pair.words, "-k", "job"]
    found = json.loads(dlock.run("status", "-J", *words).stdout)
    one, = found["holders"]
    assert one["foreign"] and one["token"] == pair.queue()[0]["create"] and one["lease_left_s"] > 30
    assert f"lease {pair.queue()[0]['lease']:x}" in dlock.run("status", *words).stdout
    assert dlock.run("break", "-y", *words).status == 78
    waiter = dlock.contend(pair, "job").queued(1)
    assert dlock.run("break", "-y", "--force", *words).status == 0
    assert waiter.held().finish().status == 0
    gate.touch()
    process.wait(PATIENCE)


def test_a_freeze_does_not_stop_etcdctl(dlock, pair, others, tmp_path):
    assert dlock.run("freeze", *pair.words, "-k", "job").status == 0
    process, gate = held_by_etcdctl(others, tmp_path)
    gate.touch()
    assert process.wait(PATIENCE) == 0
    assert dlock.run("thaw", "-y", *pair.words, "-k", "job").status == 0


def test_readers_and_permits_are_writers_for_etcdctl(dlock, pair, others, tmp_path):
    for options in (("-s",), ("--limit", "2")):
        holders = [dlock.hold(pair, "job", *options) for _ in range(2)]
        other, gate, ready = others.hold(tmp_path, options[0])
        wait_for(lambda: len(pair.queue()) == 3)
        late = dlock.contend(pair, "job", *options).queued()
        assert holders[0].finish().status == 0
        time.sleep(0.3)
        assert not ready.exists() and not late.running
        assert holders[1].finish().status == 0
        wait_for(ready.exists)
        assert not late.running
        gate.touch()
        assert other.wait(PATIENCE) == 0
        assert late.held().finish().status == 0


def test_a_lock_below_the_name(dlock, at, tmp_path):
    """etcdctl's lock on a/b is in the way of one on a, and so it is for dlock; not the other way round."""
    ready, gate = tmp_path / "ready", tmp_path / "gate"
    script = f'touch "{ready}"; while ! [ -e "{gate}" ]; do sleep 0.02; done'
    other = at.server.etcdctl("lock", "a/b", "--", "sh", "-c", script)
    try:
        wait_for(ready.exists)
        assert run(dlock, at, "-n", "-O", "name=a", events=False).status == 75
        assert run(dlock, at, "-n", "-O", "name=a/b/c", events=False).status == 0
    finally:
        gate.touch()
        other.communicate()
    assert is_free(dlock, at, "-O", "name=a")


def test_another_prefix(dlock, at, client):
    url = at.url + "/team/a%20b"
    holder = dlock.start("run", "-u", url, "-k", "job", "--", "cat", stdin=subprocess.PIPE).held()
    assert [kv["key"].rsplit("/", 1)[0] for kv in client.range("team/")] == ["team/a b/q/job"]
    assert is_free(dlock, at) and not is_free(dlock, url, key="job")
    assert holder.finish().status == 0
    assert client.names("team/") == []


@pytest.mark.full
def test_a_crowd_of_both_in_torment(dlock, at, others, witness, tmp_path):
    crowd = Crowd(witness, tmp_path / "crowd")
    pair = others.pair

    def start(keys, *words):
        return dlock.start("run", *pair.words, "-k", "job", *LEASE, *words)

    crowd.start(8, start)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        process = others.start(*crowd.witness(20), ttl=60)
        process.wait(PATIENCE)
    crowd.finish()
    crowd.check(8, 0)


def test_intervals_of_both(dlock, pair, others, tmp_path):
    """What the commands write themselves: one after the other, with growing tokens of those that have one."""
    log = tmp_path / "log"
    log.touch()
    runs = [dlock.contend(pair, "job", command=interval(log, n, "x", inside="sleep 0.01")) for n in range(6)]
    for _ in range(6):
        others.start("sh", "-c", "sleep 0.01")
    assert [r.wait().status for r in runs] == [0] * 6
    assert len(check_intervals(log)) == 6
