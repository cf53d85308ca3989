# Goal of these tests: break, freeze and thaw mean the same on every backend and mode,
# while others work there.  A break never hits another grant than the one that was shown
# and never lets two commands run; a freeze holds whoever comes, and whoever waits.

import datetime
import json
import random
import re
import signal
import threading
import time

import pytest

from redis_dialects import DIALECT_CANNOT
from support import DLOCK, Refused, boottime, kill, place_id, places, size, spent, wait_for, where
from witness import Crowd, check_seen, compile_witness
from zk_layouts import LAYOUT_LACKS

LEASE = ("-t", "6s")  # renewed every two seconds, so that a mark is soon seen
NOT_MARKED = {"pg-advisory", "pg-row", "mysql-row", "mysql-named", *DIALECT_CANNOT}  # the manual's table


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    return request.param(request)


# What a place cannot where grants can be marked.
CANNOT = {**dict.fromkeys(("redlock", "redlock-tls"), {"freeze", "shared", "limit"}), **LAYOUT_LACKS, "memcached": {"shared", "limit"}}


def steers(*needs):
    """Only where a grant can be marked, and all this; test_what_a_mode_cannot is for the others."""
    return where(lambda place: place_id(place) not in NOT_MARKED and not CANNOT.get(place_id(place), set()) & set(needs))


def refuses(cmd):
    return where(lambda place: place_id(place) in NOT_MARKED or cmd != "break" and "freeze" in CANNOT.get(place_id(place), ()))


class Steer:
    """The subcommands at one place."""

    def __init__(self, dlock, place):
        self.dlock, self.place = dlock, place

    def start(self, cmd, *words, key="job"):
        return self.dlock.start(cmd, *self.place.words, "-k", self.place.key(key), *words)

    def run(self, cmd, *words, key="job"):
        return self.start(cmd, *words, key=key).wait()

    def look(self, key="job"):
        done = self.run("status", "-J", key=key)
        assert done.status in (0, 1), done
        return json.loads(done.stdout)

    def token(self, key="job"):
        return self.look(key)["holders"][0]["token"]

    def state(self, key="job"):
        return self.look(key)["state"]

    def hold(self, *options, key="job", command=("sleep", "1000")):
        started = self.dlock.start("run", *self.place.words, "-k", self.place.key(key), *LEASE, *options, "--", *command)
        started.event("started")
        return started

    def wait(self, *options, key="job"):
        started = self.dlock.start("run", *self.place.words, "-k", self.place.key(key), *LEASE, *options, "--", "echo", "ran")
        started.event("waiting")
        return started


@pytest.fixture
def steer(dlock, place):
    return Steer(dlock, place)


# ---- break ----


@steers()
def test_a_polite_break(steer):
    holder = steer.hold()
    waiter = steer.wait()
    done = steer.run("break", "-y", "--why", "hotfix 4711", "--who", "carol")
    assert done.status == 0 and "has given the lock up" in done.stderr, done
    held = holder.wait()
    assert held.status == 79 and 'broken by carol "hotfix 4711"' in held.stderr and "was stopped" in held.stderr, held
    assert waiter.wait().status == 0
    assert steer.state() == "free"


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["polite", "force"])
@where(lambda place: place.hears and place_id(place) not in NOT_MARKED)
def test_a_break_is_heard_at_once(steer, place, force):
    """Once it has renewed for the first time, and up to ten seconds before it renews again."""
    holder = steer.dlock.hold(place, place.key(), "-v", "-t", "30s")
    wait_for(lambda: "renew: ok" in holder.stderr(), what="the first renewal")
    time.sleep(2)  # what comes as it begins to listen another renewal may tell
    began = boottime()
    assert steer.run("break", "-y", *force).status == 0
    assert holder.wait().status == 79
    assert spent(began) < 4


@steers()
def test_a_grant_is_broken_by_its_token(steer):
    holder = steer.hold()
    token = steer.token()
    wrong = steer.run("break", "--token", str(int(token) + 1))
    assert wrong.status == 75 and holder.poll() is None
    assert steer.run("break", "--token", str(token)).status == 0
    assert holder.wait().status == 79


@steers()
def test_a_break_is_gone_with_its_grant(steer):
    """Who comes next never sees it, also when the one that was meant ended by itself."""
    for _ in range(5):
        holder = steer.hold(command=("sleep", "0.3"))
        breaker = steer.start("break", "-y")
        assert holder.wait().status in (0, 79)
        assert breaker.wait().status in (0, 1)
        after = steer.hold("-n", command=("sleep", "2.3"))
        assert after.wait().status == 0


@steers()
def test_a_dead_holder_needs_no_answer(steer, place):
    holder = steer.hold()
    kill(holder.keeper)
    holder.wait()
    done = steer.run("break", "-y")
    assert done.status in ((0,) if place.lease_ends else (0, 1)), done
    assert steer.state() == "free"


@steers()
def test_a_frozen_holder_keeps_it_as_long_as_its_lease(steer, place):
    """Then its command is dead before anybody else begins."""
    holder = steer.hold()
    keeper = holder.keeper
    kill(keeper, signal.SIGSTOP)
    waiter = steer.wait()
    breaker = steer.start("break", "-y", "--who", "carol", "--why", "hotfix")
    if place.name != "zk" or place.lease_ends:
        def looks():
            holders = steer.look()["holders"]
            return [holders] if [h["revoked"] for h in holders] in ([True], []) else None

        for h in wait_for(looks)[0]:
            assert (h["revoked_by"], h["revoked_why"]) == ("carol", "hotfix")
    if place.lease_ends:
        assert breaker.wait().status == 0
        assert waiter.wait().status == 0
    kill(keeper, signal.SIGCONT)
    assert breaker.wait().status == 0
    assert holder.wait().status == 79
    assert waiter.wait().status == 0


@steers()
def test_nothing_to_break(steer):
    assert steer.run("break", "-y").status == 1
    assert steer.run("break", "--token", "7").status == 1
    assert steer.run("break", "-y", "--why", "x", key="no such key").status == 1


@steers("shared")
def test_all_readers_are_broken(steer):
    readers = [steer.hold("-s") for _ in range(3)]
    writer = steer.wait("-x")
    assert steer.run("break", "-y").status == 0
    assert [r.wait().status for r in readers] == [79] * 3
    assert writer.wait().status == 0


@steers("limit")
def test_one_of_a_limit_is_broken(steer):
    holders = [steer.hold("--limit", "2") for _ in range(2)]
    waiter = steer.wait("--limit", "2")
    tokens = {h["slot"]: h["token"] for h in steer.look()["holders"]}
    assert steer.run("break", "--token", str(tokens[1])).status == 0
    assert holders[1].wait().status == 79 and waiter.wait().status == 0
    assert holders[0].poll() is None


@steers()
def test_force(steer, place):
    holder = steer.hold()
    waiter = steer.wait()
    done = steer.run("break", "-y", "--force", "--who", "carol")
    if done.status == 78:
        assert place_id(place) == "file" and waiter.poll() is None  # the manual says why
        return
    assert done.status == 0 and "may still run" in done.stderr, done
    assert waiter.wait().status == 0
    assert holder.wait().status == 79


@pytest.mark.parametrize("ends", [False, True], ids=["renews", "ends"])
@steers()
def test_who_has_taken_it_by_force_is_named(steer, place, ends):
    holder = steer.dlock.hold(place, place.key())
    if steer.run("break", "-y", "--force", "--who", "carol").status == 78:
        return
    done = holder.finish() if ends else holder.wait()
    assert done.status == 79 and "carol" in done.stderr, done


@steers()
def test_one_of_several_keys_is_broken(steer, place):
    both = steer.dlock.start("run", *place.words, "-k", place.key("a"), "-k", place.key("b"), *LEASE, "--", "sleep", "1000")
    both.event("started")
    assert steer.run("break", "-y", "--who", "carol", key="b").status == 0
    done = both.wait()
    assert done.status == 79 and "broken by carol" in done.stderr and f"({place.key('b')}); " in done.stderr, done
    assert steer.state("a") == steer.state("b") == "free"


# ---- freeze and thaw ----


@steers("freeze")
def test_a_freeze_holds_newcomers(steer):
    assert steer.run("freeze", "--why", "weekend", "--who", "carol").status == 0
    assert steer.state() == "frozen"
    busy = steer.dlock.run("run", *steer.place.words, "-n", "-k", steer.place.key(), "true")
    assert busy.status == 75 and re.search(r'frozen by carol "weekend" for [\d.]+\w+, until dlock thaw', busy.stderr), busy
    assert steer.dlock.run("wait", *steer.place.words, "-n", "-k", steer.place.key()).status == 75
    waiter = steer.wait()
    wait_for(lambda: any(e.get("frozen") for e in waiter.events("waiting")))
    assert steer.run("thaw", "-y").status == 0
    assert waiter.wait().status == 0
    assert steer.run("thaw", "-y").status == 1


@steers("freeze")
def test_a_run_is_told_who_holds_a_frozen_lock_and_not_who_has_frozen_it(steer):
    holder = steer.dlock.hold(steer.place, steer.place.key(), "--who", "alice", *LEASE)
    assert steer.run("freeze", "--who", "carol").status == 0
    busy = steer.dlock.run("run", *steer.place.words, "-n", "-k", steer.place.key(), "true")
    assert busy.status == 75 and " is held by alice (pid " in busy.stderr and "carol" not in busy.stderr, busy
    assert holder.finish().status == 0
    assert steer.run("thaw", "-y").status == 0


@steers("freeze")
def test_a_freeze_holds_who_waits_already(steer):
    holder = steer.dlock.hold(steer.place, steer.place.key(), *LEASE)
    waiters = [steer.wait() for _ in range(2)]
    frozen = steer.run("freeze", "--why", "weekend")
    assert frozen.status == 0 and "it is still held by" in frozen.stderr, frozen
    assert steer.state() == "held" and steer.look()["frozen"]["why"] == "weekend"
    assert holder.finish().status == 0
    wait_for(lambda: steer.state() == "frozen")
    time.sleep(1.5)  # longer than any beat: nobody begins
    assert all(w.poll() is None for w in waiters)
    assert steer.run("thaw", "-y").status == 0
    assert [w.wait().status for w in waiters] == [0, 0]


@pytest.mark.parametrize("options", [
    pytest.param(("-s",), marks=steers("shared")), pytest.param(("--limit", "2"), marks=steers("limit")), ("-x",),
], ids=" ".join)
@steers("freeze")
def test_a_freeze_holds_every_kind(steer, options):
    assert steer.run("freeze").status == 0
    waiters = [steer.wait(*options) for _ in range(2)]
    time.sleep(1)
    assert all(w.poll() is None for w in waiters)
    assert steer.run("thaw", "-y").status == 0
    assert [w.wait().status for w in waiters] == [0, 0]


@steers("freeze")
def test_a_freeze_has_an_end(steer):
    began = time.monotonic()
    assert steer.run("freeze", "--for", "4s").status == 0
    waiter = steer.wait()
    assert waiter.wait().status == 0
    assert time.monotonic() - began > 3.5  # it was frozen
    assert steer.state() == "free" and steer.run("thaw", "-y").status == 1


@where(lambda place: hasattr(place, "url_at") and place_id(place) != "memcached" and "freeze" not in CANNOT.get(place_id(place), ()))
def test_a_freeze_that_is_over_when_it_is_confirmed_is_no_success(steer, place, make_proxy, dlock):
    """(memcached counts whole seconds.)"""
    assert steer.run("run", "true").status == 0  # all that a database needs is there
    proxy = make_proxy(place.server.port)
    proxy.delay = 0.1
    words = ["-u", place.url_at(proxy.port), *place.words[2:], "-k", place.key()]
    done = dlock.run("freeze", *words, "--for", "50ms", events=False)
    if done.status == 78:
        raise Refused("cannot freeze")
    assert done.status == 69 and "is not frozen any more" in done.stderr and done.stderr.count("\n") == 1, done
    assert steer.state() == "free"


@steers("freeze")
def test_a_freeze_says_until_when(steer):
    """Whoever meets it reads the same end, to the second or two between the clocks."""
    steer.dlock.env["TZ"] = "UTC"

    def end(text):
        found = re.findall(r"until (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", text)
        assert found, text
        return datetime.datetime.fromisoformat(found[-1]).timestamp()

    said = [steer.run("freeze", "--for", "60h").stderr]
    said.append(steer.dlock.run("run", *steer.place.words, "-n", "-k", steer.place.key(), "true").stderr)
    waiter = steer.wait()
    said.append(steer.run("wait", "-n").stderr)
    said.append(steer.run("break", "-y").stderr)
    said.append(steer.run("status").stdout)
    wait_for(lambda: "waiting" in waiter.stderr())
    said.append(waiter.stderr())
    ends = [end(text) for text in said]
    event = wait_for(lambda: next((e for e in waiter.events("waiting") if e.get("frozen")), None))
    ends.append(datetime.datetime.strptime(event["until"].replace("Z", ""), "%Y-%m-%dT%H:%M:%S.%f").timestamp())
    assert max(ends) - min(ends) <= 3, said
    assert steer.run("thaw", "-y").status == 0 and waiter.wait().status == 0


@steers("freeze")
def test_what_was_done_is_told_as_an_object(steer):
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    done = steer.run("freeze", "-J", "--until", until, "--who", "carol", "--why", "hotfix")
    told = json.loads(done.stdout)
    assert done.status == 0 and (told["action"], told["result"], told["status"], told["state"]) == ("freeze", "done", 0, "frozen")
    assert (told["frozen"]["who"], told["frozen"]["why"]) == ("carol", "hotfix")
    length = [datetime.datetime.strptime(told["frozen"][name], "%Y-%m-%dT%H:%M:%S.%f%z") for name in ("since", "until")]
    assert 3500 < (length[1] - length[0]).total_seconds() <= 3601
    assert (told["who"], told["why"]) == ("carol", "hotfix")
    done = steer.run("thaw", "-Jy", "--who", "bob", "--why", "fixed")
    told = json.loads(done.stdout)
    assert done.status == 0 and (told["action"], told["result"], told["frozen"]["who"]) == ("thaw", "done", "carol")
    assert (told["who"], told["why"]) == ("bob", "fixed")
    holder = steer.hold()
    done = steer.run("break", "-Jy")
    told = json.loads(done.stdout)
    assert done.status == 0 and (told["action"], told["result"], told["holders"][0]["token"]) == ("break", "done", holder.token)
    assert holder.wait().status == 79


@steers("freeze")
def test_a_second_freeze_replaces_the_first(steer):
    assert steer.run("freeze", "--for", "1s", "--why", "first").status in (0, 69)  # the second may have passed
    assert steer.run("freeze", "--why", "second").status == 0
    time.sleep(1.2)
    assert steer.state() == "frozen" and steer.look()["frozen"]["why"] == "second"
    assert steer.run("thaw", "-y").status == 0


@steers("freeze")
def test_a_nested_run_joins_in_spite_of_a_freeze(steer, place):
    script = f'read x; "{DLOCK}" run -k {place.key()} echo inner'
    outer = steer.dlock.contend(place, place.key(), *LEASE, command=("sh", "-c", script)).held()
    assert steer.run("freeze").status == 0
    outer.popen.stdin.write(b"\n")
    done = outer.finish()
    assert (done.status, done.stdout) == (0, "inner\n"), done
    assert steer.run("thaw", "-y").status == 0


# ---- what a mode cannot ----


@pytest.mark.parametrize("cmd", [pytest.param(cmd, marks=refuses(cmd)) for cmd in ("break", "freeze", "thaw")])
def test_what_a_mode_cannot_it_refuses(steer, place, cmd):
    holder = steer.dlock.hold(place, place.key())
    done = steer.run(cmd, *["-y"] * (cmd != "freeze"))
    assert done.status == 78 and done.stderr.count("\n") == 1, done
    assert holder.finish().status == 0


# ---- with contenders at work ----


@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    return compile_witness(tmp_path_factory.mktemp("witness"))


@steers()
def test_polite_breaks_at_any_moment(steer, dlock, place, witness, tmp_path):
    """Two hundred of them in a full check: no two commands at once, and everybody is served."""
    crowd, lock, broken = Crowd(witness, tmp_path / "crowd"), threading.Lock(), []

    def run(keys, *words):
        with lock:
            return dlock.start("run", *place.words, "-k", place.key("a"), "-t", place.crash_ttl, "-w", "inf", *words)

    def break_it():
        time.sleep(random.uniform(0, 0.2))
        done = steer.run("break", "-y", "-w", "0", key="a")
        assert done.status in (0, 1, 75), done
        broken.append(done.status)

    crowd.start(6, run)
    wait_for(lambda: len(crowd.seen()) >= 1)
    for _ in range(size(25, 200)):
        break_it()
    # one of the crowd that was killed may be waited for all the while
    wait_for(lambda: {0, 75} & set(broken) or break_it(), what="a holder to be broken")
    crowd.finish()
    check_seen(crowd.seen())
