# Goal of these tests: what a run looks at before it begins, beside its lock, means the same on every backend and
# mode: switches (--unless-frozen) stop whoever has not begun, and nobody else.

import json
import re
import shlex
import time

import pytest

from redis_dialects import DIALECT_CANNOT
from support import DLOCK, is_free, place_id, places, wait_for, where
from zk_layouts import LAYOUT_LACKS

LEASE = ("-t", "3s")
CANNOT = {"pg-advisory", "pg-row", "mysql-row", "mysql-named", "redlock", "redlock-tls", *DIALECT_CANNOT,
          *(place for place, lacks in LAYOUT_LACKS.items() if "freeze" in lacks)}
freezes = where(lambda place: place_id(place) not in CANNOT)


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
    told = rf'{re.escape(switch.key)} is frozen by carol "incident 4711" for \w+, until dlock thaw; not waiting \(-n\), nothing was run'
    assert re.search(told, done.stderr) and place.key("free") in done.stderr, done
    done = switch.run("-q", "-w", "200ms", key="free").wait()
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
