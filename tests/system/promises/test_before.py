# Goal of these tests: what a run looks at before it begins, beside its lock, means the same on every backend and
# mode: switches (--unless-frozen) stop whoever has not begun, and nobody else.

import json
import re
import shlex
import time

import pytest

from redis_dialects import DIALECT_CANNOT
from support import BRIEFLY, DLOCK, is_free, place_id, places, wait_for, where
from zk_layouts import LAYOUT_LACKS

LEASE = ("-t", "30s")  # nothing fails here: a server that stands for seconds on a busy machine ends no lease
CANNOT = {"pg-advisory", "pg-row", "mysql-row", "mysql-named", "redlock", "redlock-tls", *DIALECT_CANNOT,
          *(place for place, lacks in LAYOUT_LACKS.items() if "freeze" in lacks)}
QUEUELESS = CANNOT - {"redis-redisson-fair"} | {"memcached"}  # the manual's table
freezes = where(lambda place: place_id(place) not in CANNOT)
has_queue = where(lambda place: place_id(place) not in QUEUELESS)


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    return request.param(request)


class Switch:
    """A key that others are to look at, and who looks."""

    def __init__(self, dlock, place):
        self.dlock, self.place, self.key = dlock, place, place.key("all")

    def steer(self, cmd, *words):
        done = self.dlock.run(cmd, *self.place.words, "-k", self.key, *words)
        assert done.status == 0, done

    def freeze(self):
        self.steer("freeze", "--who", "carol", "--why", "incident 4711")

    def thaw(self):
        self.steer("thaw", "-y")

    def run(self, *options, key="job", command=("echo", "ran"), cmd="run", **arguments):
        return self.dlock.start(cmd, *self.place.words, "-k", self.place.key(key), "--unless-frozen", self.key, *LEASE, *options,
                                *(["--", *command] if command else []), **arguments)

    def status(self, *words, key="job"):
        return self.dlock.run("status", *self.place.words, "-k", self.place.key(key), "-J", *words)


@pytest.fixture
def switch(dlock, place):
    return Switch(dlock, place)


@freezes
def test_nobody_begins_while_a_switch_is_frozen(switch, dlock, place):
    """Nor stands in a queue, so that a run that does not look passes, and so does one inside a run that has begun."""
    key = place.key("job")
    inner = shlex.join([DLOCK, "run", *map(str, place.words), "-n", "-k", place.key("other"), "--unless-frozen", switch.key, "--", "echo", "inner"])
    outer = dlock.contend(place, key, command=("sh", "-c", f"read x; {inner}")).held()
    switch.freeze()
    done = switch.run("-n", "-E", "7", key="free").wait()
    assert (done.status, done.stdout, done.stderr.count("\n")) == (7, "", 1), done
    told = rf'{re.escape(switch.key)} is frozen by carol "incident 4711" for [\d.]+\w+, until dlock thaw; not waiting \(-n\), nothing was run'
    assert re.search(told, done.stderr) and place.key("free") in done.stderr, done
    done = switch.run("-q", "-w", BRIEFLY, key="free").wait()
    assert (done.status, done.stdout, done.stderr) == (75, "", ""), done
    waiters = [switch.run() for _ in range(2)]
    for waiter in waiters:
        event = waiter.event("waiting", unless_frozen=switch.key)
        assert event["frozen"] and json.loads(event["holder"])["who"] == "carol"
    status = json.loads(switch.status("--unless-frozen", switch.key).stdout)
    assert status["waiters"] == [] and status["frozen"] is None
    assert [(s["key"], s["frozen"]["who"]) for s in status["unless_frozen"]] == [(switch.key, "carol")]
    outer.popen.stdin.write(b"\n")
    assert outer.finish().stdout == "inner\n"
    assert is_free(dlock, place, key=key)
    switch.thaw()
    assert [(w.wait().status, w.stdout()) for w in waiters] == [(0, "ran\n")] * 2
    assert switch.run("-n").wait().status == 0


@freezes
def test_a_freeze_that_comes_while_a_run_waits(switch, dlock, place):
    """The lock that it is granted goes back, others have it, and it is asked for anew."""
    key = place.key("job")
    holder = dlock.hold(place, key, *LEASE)
    waiter = switch.run("-v", "--min-hold", "30s")
    waiter.event("waiting", unless_frozen=None)
    switch.freeze()
    assert holder.finish().status == 0
    waiter.event("waiting", unless_frozen=switch.key)
    wait_for(lambda: is_free(dlock, place, key=key), what="the lock to be given back")
    assert waiter.events("acquired") == [] and waiter.stdout() == ""
    switch.thaw()
    done = waiter.wait()
    assert (done.status, done.stdout) == (0, "ran\n"), done


@freezes
def test_a_hold_waits_for_a_thaw(switch, dlock, place):
    key = place.key("job")
    switch.freeze()
    done = switch.run("-n", "--for", "30s", cmd="hold", command=None).wait()
    assert done.status == 75 and "all" in done.stderr and "nothing is held" in done.stderr, done
    hold = switch.run("--for", "30s", cmd="hold", command=None)
    time.sleep(0.2)
    assert hold.poll() is None and is_free(dlock, place, key=key)
    switch.thaw()
    assert hold.wait().status == 0
    assert dlock.run("release", hold.stdout().strip()).status == 0


@freezes
def test_each_of_four_switches_counts(switch, dlock, place):
    keys = [place.key(name) for name in "abc"] + [switch.key]
    words = [word for key in keys for word in ("--unless-frozen", key)]
    both = ["run", *place.words, "-k", place.key("x"), "-k", place.key("y"), "-n", *words, "--", "echo", "ran"]
    assert dlock.run(*both).status == 0
    switch.freeze()
    done = dlock.run(*both)
    assert done.status == 75 and f"{switch.key} is frozen by carol" in done.stderr, done
    switch.thaw()


@where(lambda place: place_id(place) in CANNOT)
def test_where_nothing_can_be_frozen_it_is_refused(switch, dlock, place, tmp_path):
    done = switch.run("-n").wait()
    assert (done.status, done.stdout, done.stderr.count("\n")) == (78, "", 1), done
    assert "--unless-frozen=" in done.stderr and "nothing was run" in done.stderr, done
    conf = tmp_path / "dlock.conf"
    conf.write_text(f"unless-frozen = {switch.key}\n")
    words = ["run", *place.words, "--config", conf, "-k", place.key("job"), "-n"]
    assert dlock.run(*words, "true").status == 78
    assert dlock.run(*words, "--unless-frozen=", "true").status == 0
    done = dlock.run("doctor", *place.words, "--config", conf, "-J")
    failed = [f for f in map(json.loads, done.stdout.splitlines()) if f["check"] == "unless-frozen"]
    assert done.status == 78 and [f["level"] for f in failed] == ["fail"], done


# ---- only the newest ----


def runs(dlock, place, n, *options, command):
    """So many at once, in the order in which they ask.  A server that is asked by all of them may be silent for seconds."""
    started = []
    for i in range(n):
        words = ["run", *place.words, "-k", place.key("job"), *LEASE, "-w", "60s", "--newest", "--who", f"w{i}", *options, "--", *command]
        started.append(dlock.start(*words))
    return started


@has_queue
def test_of_twenty_at_once_the_last_one_runs(dlock, place):
    """And those that had begun; whoever does not ask for that is left alone."""
    holder = dlock.hold(place, place.key("job"), *LEASE)
    plain = dlock.start("run", *place.words, "-k", place.key("job"), *LEASE, "--", "echo", "ran")
    plain.event("waiting")
    all_ = runs(dlock, place, 20, command=("echo", "ran"))
    wait_for(lambda: sum(r.poll() is None for r in all_) == 1, what="all but one to end")
    last = next(r for r in all_ if r.poll() is None)
    assert holder.finish().status == 0
    assert last.wait().stdout == plain.wait().stdout == "ran\n"
    for run in set(all_) - {last}:
        done = run.wait()
        assert (done.status, done.stdout, done.stderr.count("superseded by w")) == (75, "", 1), done
        assert "which came later (--newest); nothing was run" in done.stderr
        by, verdict = run.events("superseded")[-1], run.events("verdict")[-1]
        assert json.loads(by["by"])["newest"] >= 0 and (verdict["verdict"], verdict["status"]) == ("superseded", 75)


@has_queue
def test_an_older_run_does_not_begin_when_it_is_granted_the_lock(dlock, place):
    """The look before "go", for nobody has the time to look while it waits; and its --min-hold does not count."""
    holder = dlock.hold(place, place.key("job"), *LEASE)
    first, = runs(dlock, place, 1, "-E", "9", "--min-hold", "60s", command=("echo", "ran"))
    first.event("waiting")
    second, = runs(dlock, place, 1, command=("echo", "ran"))
    second.event("waiting")
    assert holder.finish().status == 0
    assert (first.wait().status, second.wait().stdout) == (9, "ran\n")
    assert first.events("acquired") == []


@has_queue
def test_who_has_begun_goes_on(dlock, place):
    first = dlock.hold(place, place.key("job"), *LEASE, "--newest")
    second, = runs(dlock, place, 1, command=("echo", "ran"))
    second.event("waiting")
    third, = runs(dlock, place, 1, command=("echo", "ran"))
    assert second.wait().status == 75
    assert first.poll() is None and third.poll() is None
    assert first.finish().status == 0
    assert third.wait().stdout == "ran\n"


@has_queue
@freezes
def test_after_a_thaw_the_last_of_five_runs(switch, dlock, place):
    """Though none of them stood in a queue, and each notices the thaw at another moment."""
    switch.freeze()
    all_ = []
    for _ in range(5):
        all_ += [switch.run("--newest")]
        all_[-1].event("waiting", unless_frozen=switch.key)
    switch.thaw()
    assert [(r.wait().status, r.stdout()) for r in all_] == [(75, "")] * 4 + [(0, "ran\n")]


@where(lambda place: place_id(place) in ("file", "redis", "zk"))
def test_who_leaves_the_queue_is_no_newer_when_it_is_back(switch, dlock, place):
    holder = dlock.hold(place, place.key("job"), *LEASE)
    first = switch.run("--newest")
    first.event("waiting", unless_frozen=None)
    switch.freeze()
    assert holder.finish().status == 0
    first.event("waiting", unless_frozen=switch.key)
    holder = dlock.hold(place, place.key("job"), *LEASE)
    second, = runs(dlock, place, 1, command=("echo", "ran"))
    second.event("waiting")
    switch.thaw()
    assert first.wait().status == 75
    assert holder.finish().status == 0
    assert second.wait().stdout == "ran\n"


@where(lambda place: place_id(place) in QUEUELESS)
def test_without_a_queue_the_newest_is_not_known(dlock, place):
    done = dlock.run("run", *place.words, "-k", place.key("job"), "--newest", "--", "echo", "ran")
    assert (done.status, done.stdout, done.stderr.count("\n")) == (78, "", 1) and "--newest" in done.stderr, done
