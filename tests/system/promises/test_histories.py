# Goal of these tests: whatever is killed, stopped, broken, frozen or restarted, what happens is what DESIGN.md
# promises: histories of a seeded mixture on a few keys of each place.  histories.py says what is decided, and why that is
# certain.  DLOCK_SOAK=SECONDS makes them last longer, DLOCK_SEED=N takes the seed of one that has failed:
#
#	DLOCK_SOAK=3600 pytest tests/system/promises/test_histories.py -s -k 'test_histories[etcd-3]'
#
# The judge of overlaps is the kernel, through the witness of witness.py.
#
# They were seen to fail when the front did not kill the tree of a dead keeper
# or overlooked a part of it, when it had no copy of the file lock, when the
# keeper released without waiting for the tree, and when the deadlines lay beyond
# the lease.

import contextlib
import json
import os
import random
import subprocess
import time
import types

import pytest

from histories import History
from history_sites import SITES, Site
import support
from support import FULL, PATIENCE, WANTED, children_of, descendants_of, kill, name_of, place_id, size, wait_for
from token_order import check_grants
from witness import LONG, Crowd, check_intervals, check_seen, compile_witness, read_seen

SECONDS = float(os.environ.get("DLOCK_SOAK", "20"))
SEED = os.environ.get("DLOCK_SEED")

@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    return compile_witness(tmp_path_factory.mktemp("witness"))


@pytest.fixture
def verdicts(witness, tmp_path):
    """What witnesses say who all run together: (kind, keys, slot) of each, as it is told."""
    crowd, running = Crowd(witness, tmp_path / "crowd"), []

    def say(*those):
        for n, (kind, keys, slot) in enumerate(those):
            env = {**os.environ, "DLOCK_TOKEN": str(n), "DLOCK_KEY": keys[0], "DLOCK_SLOT": str(slot)}
            running.append(subprocess.Popen(crowd.witness(1000 * PATIENCE, kind, keys), env=env))
            wait_for(lambda: len(crowd.seen()) == len(running), what="a witness")
        crowd.end.touch()
        return [s.verdict for s in crowd.seen()], [each.wait() for each in running]

    yield say
    crowd.end.touch()
    for each in running:
        each.wait()


@pytest.mark.parametrize("first, second, overlap", [
    ("x", "x", True), ("x", "s", True), ("s", "x", True), ("s", "s", False), ("2", "x", True), ("x", "2", True),
])
def test_the_judge_sees_overlaps(verdicts, first, second, overlap):
    said = verdicts((first, "a", 0), (second, "a", 1))
    assert said == ((["alone", "OVERLAP"], [0, 99]) if overlap else (["alone", "alone"], [0, 0]))


@pytest.mark.parametrize("slots, overlap", [("01", False), ("12", True), ("11", True), ("0102", True)])
@pytest.mark.parametrize("keys", ["a", "ab", "ba"])
def test_the_judge_counts_slots(verdicts, slots, overlap, keys):
    said, _ = verdicts(*(("2", keys, slot) for slot in slots))
    assert ("OVERLAP" in said) == overlap and said[0] == "alone"


def test_the_judge_counts_without_slots(verdicts):
    """Of several keys the first one's slot is told; on the others it counts."""
    said, _ = verdicts(("2", "ab", 0), ("2", "cb", 0), ("2", "db", 0))
    assert said == ["alone", "alone", "OVERLAP"]


def test_the_judge_sees_daemons(witness, tmp_path):
    """They outlive their command."""
    crowd = Crowd(witness, tmp_path / "crowd")
    env = {**os.environ, "DLOCK_TOKEN": "1", "DLOCK_KEY": "a"}
    first = subprocess.Popen(crowd.witness(1000 * PATIENCE, "x"), env=env)
    wait_for(lambda: set(witnesses()) - {first.pid} and crowd.seen(), what="the daemon")
    first.kill()
    first.wait()
    assert subprocess.run(crowd.witness(0, "x"), env=env, check=False).returncode == 99
    crowd.end.touch()
    wait_for(lambda: not witnesses(), what="the end of the daemon")


@pytest.mark.parametrize("lines, fault", [
    ("x a 1, s a 2, s a 3, x a 4", None), ("x a 1, s a 3, s a 2, x a 4", None),
    ("x a 2, s a 1", "1"), ("s a 2, s a 1, x a 2", "len"), ("s a 1, s a 3, x a 2", "2"),
    ("x a 2, x b 1", None), ("x ab 2 1, x b 3, x a 1", "1"),
])
def test_the_judge_compares_tokens(tmp_path, lines, fault):
    log = tmp_path / "log"
    for line in lines.split(", "):
        kind, keys, *tokens = line.split()
        several = json.dumps(dict(zip(keys, map(int, tokens)))).replace(" ", "") if len(keys) > 1 else "-"
        with log.open("a") as f:
            print("alone", tokens[0], 0.0, kind, keys[0], several, file=f)
    if fault is None:
        check_seen(read_seen(log))
    else:
        with pytest.raises(AssertionError):
            check_seen(read_seen(log))


@pytest.mark.parametrize("lines, verdict", [
    ("B 1 x 1 -;E 1;B 2 s 2 -;B 3 s 3 -;E 2;E 3;B 4 x 4 -;E 4", "fine"),
    ("B 1 x 1 -;E 1;B 3 s 3 -;B 2 s 2 -;E 2;E 3", "fine"),     # both at once
    ("B 1 x 1 -;B 2 s 2 -", "beside"), ("B 1 s 1 -;B 2 x 2 -", "beside"), ("B 1 2 1 0;B 2 2 2 1;B 3 2 3 0", "beside"),
    ("B 1 2 1 0;B 2 2 2 0", "slot"), ("B 1 2 1 2", "slot"), ("B 1 s 1 -;B 2 s 1 -", "token"),
    ("B 1 s 1 -;B 3 s 3 -;E 1;E 3;B 2 x 2 -", "order"), ("B 2 x 1 -;E 2;B 1 x 2 -", "order"),
])
def test_intervals_are_replayed(tmp_path, lines, verdict):
    log = tmp_path / "log"
    log.write_text(lines.replace(";", "\n"))
    if verdict == "fine":
        check_intervals(log, order=["1", "2", "3", "4"])
    else:
        with pytest.raises(AssertionError):
            check_intervals(log, order=["1", "2", "3", "4"])


X, S, SLOT, OTHER = {"kind": "exclusive"}, {"kind": "shared"}, {"kind": "limit", "slot": 1}, {"kind": "limit", "slot": 2}


@pytest.mark.parametrize("first, second, known, fault", [
    (X, X, 5, True), (S, X, 5, True), (X, S, 5, True), (SLOT, SLOT, 5, True),
    (S, S, 5, False), (SLOT, OTHER, 5, False), (X, X, 7, False),
])
def test_what_a_test_has_started_is_compared(first, second, known, fault):
    """The first has the greater token, and is seen to be granted at `known`; the second is asked for at 6."""
    def started(kind, **members):
        return types.SimpleNamespace(words=["run", "-u", "file:///x", "-k", "a", "--", "true"], is_plain=True,
                                     events=lambda name: [{"event": name, "key": "a", **kind, **members}], **members)

    runs = [started(first, token=2, asked=4, known=known), started(second, token=1, asked=6, known=None)]
    with pytest.raises(AssertionError, match="out of order") if fault else contextlib.nullcontext():
        check_grants(runs)


class Told:
    """What a dlock has said, for a history that nobody has lived."""

    def __init__(self, stderr):
        self.stderr, self.events = lambda: stderr, lambda: []


def run_of(what="run", kind="x", asked=1, begin=2, end=3, over=4, status=0, token=1, said="", slot="", verdict="alone", **more):
    return {"what": what, "kind": kind, "keys": "a", "asked": asked, "at": (begin, end), "over": over, "status": status, "number": token,
            "said": said, "slot": slot, "verdict": verdict, **more}


LATER = {"asked": 5, "begin": 6, "end": 7, "over": 8}
SKIPPED = {**LATER, "begin": None, "end": None}
FAILED = {"status": 3, "own_status": 3}
FREEZE = {"what": "freeze", "kind": "", "begin": None, "asked": 1, "over": 2, "length": None}
SWITCH = {**FREEZE, "keys": "z"}
FORCE = {"what": "break", "kind": "-y --force", "begin": None}


@pytest.mark.parametrize("problem, ops", [
    (None, [run_of(), run_of(token=2, **LATER)]),
    ("token", [run_of(token=2), run_of(token=1, **LATER)]),
    ("token", [run_of(kind="s", token=2), run_of(token=1, **LATER)]),
    (None, [run_of(kind="s", token=2), run_of(kind="s", token=1, **LATER)]),
    (None, [run_of(kind="2", token=2, slot="0"), run_of(kind="2", token=1, slot="1", **LATER)]),
    ("token", [run_of(kind="2", token=2, slot="0"), run_of(kind="2", token=1, slot="0", **LATER)]),
    ("overlap", [run_of(), run_of(token=2, verdict="OVERLAP", status=99)]),
    (None, [run_of(over=9, status=79), run_of(**FORCE, asked=4, over=5), run_of(token=2, **{**LATER, "status": 99, "verdict": "OVERLAP"})]),
    ("freeze", [run_of(**FREEZE), run_of(token=2, **LATER)]),
    (None, [run_of(**{**FREEZE, "over": 5.5}), run_of(token=2, **LATER)]),
    ("freeze", [run_of(end=5.7), run_of(**{**FREEZE, "over": 5.5}), run_of(token=2, **LATER)]),
    (None, [run_of(kind="s", end=5.7), run_of(**{**FREEZE, "over": 5.5}), run_of(kind="s", token=2, **LATER)]),
    (None, [run_of(**FREEZE, thawed=5.5), run_of(token=2, **LATER)]),
    (None, [run_of(**{**FREEZE, "length": 3}), run_of(token=2, **LATER)]),
    ("freeze", [run_of(**{**FREEZE, "length": 10}), run_of(token=2, **LATER)]),
    ("switch", [run_of(**SWITCH), run_of("switched", token=2, **LATER)]),
    (None, [run_of(**{**SWITCH, "over": 3}), run_of("switched", token=2, **LATER)]),
    (None, [run_of(**SWITCH, thawed=5.5), run_of("switched", token=2, **LATER)]),
    (None, [run_of(**SWITCH), run_of(token=2, **LATER)]),
    ("min-hold", [run_of("min-hold", asked=5.9, begin=5.95, end=5.97, over=5.98), run_of(token=2, **LATER)]),
    (None, [run_of("min-hold"), run_of(token=2, **LATER)]),
    ("min-hold", [run_of(end=4.9), run_of("min-hold", token=2, **{**LATER, "begin": 5.1, "end": 5.2}), run_of(token=3, **{**LATER, "begin": 5.8})]),
    (None, [run_of(end=4.9), run_of("min-hold", token=2, **{**LATER, "asked": 4, "begin": 5.1, "end": 5.2}), run_of(token=3, **LATER)]),
    ("once", [run_of("once", once="job"), run_of("once", once="job", token=2, **LATER)]),
    (None, [run_of("once", once="job", said="the release was not confirmed"), run_of("once", once="job", token=2, **LATER)]),
    (None, [run_of("once", once="job"), run_of("once", once="job", token=2, **{**LATER, "begin": None})]),
    (None, [run_of("once", once="job", token=2, **{**LATER, "begin": None}), run_of("once", once="job")]),
    ("once", [run_of("once", once="job", **SKIPPED)]),
    ("once", [run_of("once", once="job", **FAILED), run_of("once", once="job", **SKIPPED)]),
    (None, [run_of("once", once="job", **FAILED), run_of("once", once="job", token=2, **LATER)]),
    ("once", [run_of("once", once="job", end=None, status=137, hurt="[command SIGKILL]"), run_of("once", once="job", **SKIPPED)]),
    ("once", [run_of("once", once="job", status=79, hurt="[keeper SIGSTOP]"), run_of("once", once="job", **SKIPPED)]),
    (None, [run_of("once", once="job", status=-9, hurt="[front SIGKILL]"), run_of("once", once="job", **SKIPPED)]),
    ("once", [run_of("once", once="job", late=2.5, said="the release was not confirmed"), run_of("once", once="job", **SKIPPED)]),
    (None, [run_of("once", once="job", late=3.5, said="the release was not confirmed"), run_of("once", once="job", **SKIPPED)]),
    ("final", [run_of("final", once="job", **FAILED), run_of("final", once="job", token=2, **LATER)]),
    ("final", [run_of("final", once="job"), run_of("final", once="job", token=2, **LATER)]),
    (None, [run_of("final", once="job", **FAILED), run_of("final", once="other", token=2, **LATER)]),
    (None, [run_of("final", once="job", said="the release was not confirmed", **FAILED), run_of("final", once="job", token=2, **LATER)]),
    (None, [run_of("final", once="job", **FAILED), run_of("final", once="job", **SKIPPED)]),
    ("final", [run_of("final", once="job", **SKIPPED)]),
    ("final", [run_of("final", once="job", status=79, hurt="[keeper SIGSTOP]"), run_of("final", once="job", **SKIPPED)]),
    (None, [run_of("final", once="job", end=None, status=137, hurt="[command SIGKILL]"), run_of("final", once="job", **SKIPPED)]),
    (None, [run_of("final", once="job", begin=None, end=None, status=137, hurt="[command SIGKILL]"), run_of("final", once="job", **SKIPPED)]),
    ("final", [run_of("final", once="job", begin=None, end=None, status=75, wait="0"), run_of("final", once="job", **SKIPPED)]),
    ("cooldown", [run_of("cooldown", asked=5), run_of("cooldown", token=2, asked=5, begin=5.5, end=5.6, over=5.7)]),
    (None, [run_of("cooldown", asked=5), run_of("cooldown", token=2, **LATER)]),
    (None, [run_of("cooldown", asked=5, **FAILED), run_of("cooldown", token=2, asked=5, begin=5.5, end=5.6, over=5.7)]),
    (None, [run_of("cooldown", begin=4.5, end=4.6, over=4.7), run_of("cooldown", **SKIPPED)]),
    ("cooldown", [run_of("cooldown", begin=3.5, end=4.6, over=4.7), run_of("cooldown", **SKIPPED)]),
    ("cooldown", [run_of("cooldown", begin=4.5, end=4.6, over=4.7, **FAILED), run_of("cooldown", **SKIPPED)]),
    ("lie", [run_of(end=None)]),
    ("lie", [run_of(end=9, over=10), run_of(**FORCE, asked=3, over=4)]),
    (None, [run_of(end=9, over=10, keys="o"), run_of(**FORCE, asked=3, over=4)]),
    ("lie", [run_of(end=9, over=10, hurt="[keeper]"), run_of(asked=4, begin=None, status=75), run_of(**FORCE, asked=3, over=4, of_token=1)]),
    (None, [run_of(end=9, over=10), run_of(**FORCE, asked=3, over=4, of_token=2)]),
    (None, [run_of(end=9, over=10, said="the release was not confirmed"), run_of(**FORCE, asked=3, over=4)]),
    ("loss", [run_of(status=79)]),
    ("loss", [run_of("joined", inner_status=79)]),
    (None, [run_of("joined", inner_status=79), run_of("break", kind="-y", begin=None, asked=2, over=3)]),
    (None, [run_of(status=79), run_of("break", kind="-y", begin=None, asked=2, over=3)]),
    (None, [run_of(status=79, hurt="[keeper SIGKILL]", end=None)]),
    ("status", [run_of(status=69)]),
    ("status", [run_of(status=77)]),
    ("status", [run_of(status=75, begin=None)]),
    (None, [run_of(status=75, begin=None, wait="1s")]),
])
def test_the_checker_decides(tmp_path, monkeypatch, problem, ops):
    monkeypatch.setattr(support, "STALLS", support.Stalls())  # nothing stalled in this history, whatever did on this machine
    history = History(None, Site(), None, tmp_path / "history", "none")
    history.began -= 100  # all of it is over
    with history.log.open("a") as log:
        for told in ops:
            op = history.op(told.pop("what"), told.pop("kind"), told.pop("keys"), "3s", told.pop("wait", "inf"))
            (begin, end), number, slot, verdict = (told.pop(name) for name in ("at", "number", "slot", "verdict"))
            op.started = Told(told.pop("said"))
            for name, value in told.items():
                setattr(op, name, value + history.began if name in ("asked", "over", "thawed", "late") else value)
            for when, what in ((begin, verdict), (end, "end")):
                if begin and when:
                    print(what, number, when + history.began, f"{op.kind}/{op.number}/0/{slot}", f"h-{op.keys}", "-", file=log)
    if problem is None:
        history.check()
    else:
        with pytest.raises(AssertionError, match=f"\n{problem}: "):
            history.check()


def witnesses():
    return [p for p in descendants_of(os.getpid()) if name_of(p) == "witness"]


def test_no_daemon_survives_a_killed_keeper(dlock, place, witness, tmp_path):
    # The command is killed while it makes a daemon, or the daemon changes its
    # parent while the front looks for it: now and then the front could miss it.
    # That is the same whatever the backend: many times on one of them.
    crowd, left = Crowd(witness, tmp_path / "crowd"), set()
    for n in range(120 if FULL or place.name == "file" else 30):
        started = dlock.start("run", *place.words, "-k", place.key(f"key{n}"), "--", *crowd.witness(LONG * 1000))
        started.event("started")
        time.sleep(random.uniform(0, 0.001))
        kill(started.keeper)
        assert started.wait().status == 79
        left.update(witnesses())
    crowd.end.touch()
    assert not left


@pytest.mark.parametrize("site", [s for s in SITES if s.name in WANTED], ids=place_id)
def test_histories(dlock, site, witness, tmp_path, request):
    """DLOCK_SEED=N is that history again, as far as the machine lets it be."""
    seed = SEED or str(random.randrange(1 << 32))
    history = History(dlock, site(request), witness, tmp_path / "history", seed)
    history.start(SECONDS)
    history.finish()
    history.check()


def test_no_overlap_in_a_crowd_on_pg(dlock, make_pg, witness, tmp_path):
    """So many at once on one server, of whom one after the other is killed."""
    server = make_pg(safe=True, max_connections=500)
    place = ("-u", server.url, "-k", "crowd", "-t", "6s")
    crowd = Crowd(witness, tmp_path / "crowd")
    assert dlock.run("run", *place, "--", "true").status == 0  # the schema is there
    started = [dlock.start("run", *place, "-w", "5m", "--wait-tree", "--", *crowd.witness(random.choice((2, 20, 50))))
               for _ in range(size(75, 300))]
    killed, until = set(), time.monotonic() + SECONDS
    while time.monotonic() < until and any(s.popen.poll() is None for s in started):
        time.sleep(0.1)
        n = random.randrange(len(started))
        pids = [started[n].popen.pid, *children_of(started[n].popen.pid)][:2]
        if started[n].popen.poll() is None:
            killed.add(n)
            kill(random.choice(pids))
    for n, each in enumerate(started):
        each.popen.wait(300)
        if n not in killed:
            assert each.popen.returncode == 0, each.stderr()
    seen = crowd.seen()
    assert len(seen) >= len(started) - len(killed)
    check_seen(seen)
