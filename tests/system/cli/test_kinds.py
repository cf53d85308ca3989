# Goal of these tests: whoever waits for readers, slots or a job that has been
# done is told so, and a run inside another one joins what that one holds, or
# hears at once why it cannot.  The server is the script of tests/servers/fake.c.

import json
import os
import re
import shlex

import pytest

import support
from support import DLOCK_TEST, FilePlace, wait_for


ANOTHER = "another@fake (pid 7, running true)"


@pytest.fixture(scope="module", autouse=True)
def with_the_fake():
    assert os.access(DLOCK_TEST, os.X_OK), f"{DLOCK_TEST} is missing: make build/dlock-test"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "DLOCK", DLOCK_TEST)
        yield


def ident(value):
    return " / ".join(value) if isinstance(value, (list, tuple)) else str(value)


def scripted(dlock, script, *words, **options):
    return dlock.start("run", "-b", "fake", "-k", "job", "-O", f"script={script}", *words, **options)


# ---- who has it ----

HOLDINGS = [
    ("", f" is held by {ANOTHER}", f" is still held by {ANOTHER}", {}),
    ("kind=exclusive,holders=1", f" is held by {ANOTHER}", f" is still held by {ANOTHER}", {"kind": "exclusive", "holders": 1}),
    ("kind=shared,holders=3", f" is held by 3 readers, first {ANOTHER}", f" is still held by 3 readers, first {ANOTHER}",
     {"kind": "shared", "holders": 3}),
    ("kind=shared,holders=1", f" is held by a reader, {ANOTHER}", f" is still held by a reader, {ANOTHER}",
     {"kind": "shared", "holders": 1}),
    ("kind=shared", f" is held by readers, first {ANOTHER}", f" is still held by readers, first {ANOTHER}", {}),
    ("kind=limit,holders=4,limit=4", f": all 4 slots are taken, first {ANOTHER}", f": all 4 slots are still taken, first {ANOTHER}",
     {"kind": "limit", "holders": 4, "limit": 4}),
    ("kind=limit,holders=2,limit=4", f": 2 of 4 slots are taken, first {ANOTHER}", f": 2 of 4 slots are still taken, first {ANOTHER}",
     {"kind": "limit", "holders": 2, "limit": 4}),
    ("kind=limit,holders=1,limit=1", f": the only slot is taken, by {ANOTHER}", f": the only slot is still taken, by {ANOTHER}",
     {"kind": "limit", "holders": 1, "limit": 1}),
    ("kind=limit,holders=2,limit=2", f": both slots are taken, first {ANOTHER}", f": both slots are still taken, first {ANOTHER}",
     {"kind": "limit", "holders": 2, "limit": 2}),
    ("kind=limit,limit=4", f" is held by {ANOTHER}", f" is still held by {ANOTHER}", {}),
]


@pytest.mark.parametrize("seen, held, still, members", HOLDINGS)
def test_a_busy_lock_names_the_kind_of_its_holders(dlock, seen, held, still, members):
    script = "acquire=busy," + seen if seen else "acquire=busy"
    done = scripted(dlock, script, "-n", "--", "true").wait()
    assert done.status == 75
    assert done.stderr == f"dlock: job (fake){held} for 1s; not waiting (-n), nothing was run\n"
    waiter = scripted(dlock, script, "-w", "50ms", "--", "true")
    done = waiter.wait()
    assert done.status == 75 and done.stderr.startswith(f"dlock: job (fake){still} for ")
    assert re.search(r"; waited \d+ms \(-w\), nothing was run\n$", done.stderr), done
    event = waiter.event("waiting")
    assert {name: event[name] for name in ("kind", "holders", "limit") if name in event} == members


@pytest.mark.parametrize("seen, words, waits", [
    ("kind=shared,holders=3", ("-s",), True), ("kind=shared,holders=3", (), False),
    ("kind=limit,holders=2,limit=4", ("--limit", "4"), True), ("kind=limit,holders=4,limit=4", ("--limit", "4"), False),
    ("kind=limit,holders=2,limit=4", (), False), ("kind=exclusive,holders=1", ("-s",), False), ("kind=shared", ("-s",), False),
])
def test_who_would_fit_is_told_that_others_wait(dlock, seen, words, waits):
    done = scripted(dlock, f"acquire=busy,{seen}", "-n", *words, "--", "true").wait()
    assert done.status == 75 and (" for 1s (and another run waits already); not waiting (-n)" in done.stderr) == waits


@pytest.mark.parametrize("seen, said", [
    ("kind=shared,holders=3", f"waiting 3s, next in line for job; held by 3 readers, first {ANOTHER} for "),
    ("kind=limit,holders=4,limit=4", f"waiting 3s, next in line for job; all 4 slots are taken, first {ANOTHER} for "),
    ("holders=1", f"waiting 3s, next in line for job; held by {ANOTHER} for "),
], ids=["shared", "limit", "exclusive"])
def test_waiting_names_the_kind_of_the_holders(dlock, seen, said):
    waiter = scripted(dlock, f"acquire=busy,{seen}", "--", "true")
    wait_for(lambda: "waiting" in waiter.stderr(), what="a line")
    assert said in waiter.stderr()


@pytest.mark.parametrize("words", [("-k", "other"), ()], ids=["two keys", "one key"])
def test_waiting_for_a_server_that_says_nothing_yet(dlock, words):
    """There is no word yet of which key is waited for."""
    waiter = scripted(dlock, "acquire=hang", *words, "--", "true")
    wait_for(lambda: "\n" in waiter.stderr() or waiter.poll() is not None, what="a line")
    assert "waiting 3s for job; no answer yet from fake" in waiter.stderr()


@pytest.mark.parametrize("words, members", [
    ((), {"kind": "exclusive"}), (("-x",), {"kind": "exclusive"}), (("-s",), {"kind": "shared"}),
    (("--limit", "5"), {"kind": "limit", "limit": 5, "slot": 3}),
], ids=["plain", "-x", "-s", "--limit"])
def test_a_grant_names_its_kind_and_slot(dlock, words, members):
    started = scripted(dlock, "slot=3", *words, "-c", "echo ${DLOCK_SLOT-none}", env={"DLOCK_SLOT": "of an outer one"})
    done = started.wait()
    assert (done.status, done.stdout) == (0, "3\n" if "slot" in members else "none\n")
    event = started.event("acquired")
    assert {name: event[name] for name in ("kind", "limit", "slot") if name in event} == members


# ---- what has been done already ----

JOB = ("--once", "x")


@pytest.mark.parametrize("words, status, said", [
    ((), 0, ""),
    (("-q",), 0, ""),
    (("--skipped-exit-code", "4"), 4, ""),
    (("--skipped-exit-code", "255", "-E", "9", "-n"), 255, ""),
    (("-v",), 0, "dlock: skipped 'echo' under job: ID x was run by another@fake\n"),
], ids=ident)
def test_a_skipped_run_says_nothing(dlock, words, status, said):
    started = scripted(dlock, "acquire=done", *JOB, *words, "--", "echo", "ran")
    done = started.wait()
    lines = [line for line in done.stderr.splitlines(keepends=True) if "fake: " not in line]  # -v tells the calls, too
    assert (done.status, done.stdout, "".join(lines)) == (status, "", said)
    *_, skipped, verdict = started.events()
    assert (skipped["event"], skipped["reason"]) == ("skipped", "ID x was run by another@fake")
    assert (verdict["event"], verdict["verdict"], verdict["status"]) == ("verdict", "skipped", status)


def test_a_run_that_is_skipped_after_waiting_did_not_get_the_lock(dlock):
    started = scripted(dlock, "acquire=done@3500ms", *JOB, "--", "echo", "ran")
    done = started.wait()
    assert (done.status, done.stdout) == (0, "") and "got" not in done.stderr and "took" not in done.stderr


@pytest.mark.parametrize("cannot, words, said", [
    ("shared", ("-s",), "shared"), ("limit", ("--limit", "2"), "limited"), ("job", JOB, "--once"), ("job", ("--cooldown", "1m"), "--cooldown"),
])
def test_what_a_store_cannot_is_refused_before_it_is_asked(dlock, tmp_path, cannot, words, said):
    done = scripted(dlock, f"not={cannot}", "-O", f"log={tmp_path}/log", *words, "--", "echo", "ran").wait()
    assert (done.status, done.stdout, done.stderr.count("\n")) == (78, "", 1) and said in done.stderr
    assert not (tmp_path / "log").exists() or "acquire" not in (tmp_path / "log").read_text()


# ---- a run inside a run ----

TELL = "echo $DLOCK_TOKEN ${DLOCK_SLOT-none}"


def nested(*levels):
    """The line of a run with the words of levels[0], which runs the next one, and so on; the innermost tells what it got."""
    line = TELL
    for words in reversed(levels[1:]):
        line = f"{DLOCK_TEST} run -b fake {words} -c {shlex.quote(line)}"
    return ["run", "-b", "fake", "-O", "script=token=42,slot=3", *levels[0].split(), "-c", line]


@pytest.mark.parametrize("levels, told", [
    (["-k a", "-k a"], "42 none"),
    (["-k a", "-x -k a"], "42 none"),
    (["-x -k a", "-k a"], "42 none"),
    (["-k a", "-s -k a"], "42 none"),
    (["-x -k a", "-s -k a"], "42 none"),
    (["-s -k a", "-s -k a"], "42 none"),
    (["--limit 5 -k a", "--limit 5 -k a"], "42 3"),
    (["-k a -k b -k c", "-k c -k a"], "42 none"),
    (["-s -k a -k b", "-s -k b"], "42 none"),
    (["-k a -k b", "-s -k b"], "42 none"),
    (["-k a", "-k b -O script=token=1", "-k a"], "42 none"),
    (["-k a -k b", "-k c -O script=token=1", "-k b -k a"], "42 none"),
    (["-k a", "-s -k a", "-x -k a"], "42 none"),  # the outermost has all of it
    (["-k a", "-k a", "-k a"], "42 none"),
], ids=ident)
def test_a_nested_run_joins_what_is_a_part_of_what_is_held(dlock, tmp_path, levels, told):
    done = dlock.run(*nested(*levels))
    assert (done.status, done.stdout, done.stderr) == (0, told + "\n", "")


@pytest.mark.parametrize("levels, said", [
    (["-s -k a", "-k a"], ["has a shared (-s)", "exclusively", "its own parent"]),
    (["-s -k a", "-x -k a"], ["has a shared (-s)", "exclusively"]),
    (["-s -k a", "--limit 3 -k a"], ["has a shared (-s)", "with --limit 3"]),
    (["--limit 3 -k a", "--limit 4 -k a"], ["has a with --limit 3", "with --limit 4"]),
    (["--limit 1 -k a", "-k a"], ["has a with --limit 1", "exclusively"]),
    (["--limit 3 -k a", "-s -k a"], ["has a with --limit 3", "shared (-s)"]),
    (["-k a", "--limit 3 -k a"], ["has a exclusively", "with --limit 3"]),
    (["-k a", "-k a -k b"], ["has a,", "no outer run has b", "deadlock", "take both in the outer run"]),
    (["-k b", "-k a -k b"], ["has b,", "no outer run has a"]),
    (["-k a", "-k b", "-k a -k b -k c"], ["no outer run has c"]),
    (["-k a", "-k b", "-k a -k b"], ["none of them has all", "in one outer run"]),
    (["-s -k a", "-k b", "-s -k a -k b"], ["none of them has all"]),
    (["-s -k a", "-k b", "-k a -k b"], ["has a shared (-s)", "exclusively"]),
    (["-s -k a", "-s -k a", "-k a"], ["has a shared (-s)", "exclusively"]),
], ids=ident)
@pytest.mark.parametrize("how", ["", "-n ", "-w 1h "])
def test_a_nested_run_that_could_only_deadlock_is_refused_at_once(dlock, levels, said, how):
    done = dlock.run(*nested(*levels[:-1], how + levels[-1]))
    assert (done.status, done.stdout, done.stderr.count("\n")) == (76, "", 1)
    for words in ["cannot take ", "nothing was run", "DLOCK_KEEPER", *said]:
        assert words in done.stderr


@pytest.mark.parametrize("words", ["--once x", "--cooldown 1m", "--once x --cooldown 1m", "--remember"])
def test_a_joined_run_cannot_be_remembered(dlock, words):
    done = dlock.run(*nested("-k a", f"{words} -k a"))
    assert (done.status, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert "--once, --cooldown and --remember" in done.stderr and "give that run these options" in done.stderr
    done = dlock.run(*nested("-k a", f"{words} -k b -O script=token=1"))
    assert (done.status, done.stdout) == (0, "1 none\n")


def test_every_joined_key_has_its_own_token(dlock):
    """That of the run around it."""
    inner = f"{DLOCK_TEST} run -b fake -k c -k b -v -c 'echo $DLOCK_TOKENS'"
    middle = f"{DLOCK_TEST} run -b fake -k d -O script=token=7 -c {shlex.quote(inner)}"
    done = dlock.run("run", "-b", "fake", "-k", "a", "-k", "b", "-k", "c", "-O", "script=token=42", "-c", middle)
    assert (done.status, json.loads(done.stdout)) == (0, {"c": 42, "b": 42})
    assert [any(f"the outer run: {call}: ok" in line for line in done.stderr.splitlines()) for call in ("acquire", "release")] == [True, True]


def test_the_enclosing_lock_is_kept_until_the_joined_run_has_ended(dlock, tmp_path):
    """It lives on alone, below a run whose command has ended."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    inner = f"{DLOCK_TEST} run -b fake -O log={log} -k a -c 'touch {tmp_path}/joined; while [ ! -e {gate} ]; do sleep 0.01; done'"
    leave = f"{inner} & while [ ! -e {tmp_path}/joined ]; do sleep 0.01; done"
    outer = dlock.start("run", "-b", "fake", "-k", "a", "-O", f"log={log}", "-c", leave)
    wait_for((tmp_path / "joined").exists, what="the joined run")
    command = outer.command
    wait_for(lambda: not support.is_alive(command), what="the end of the command")
    assert log.read_text().split().count("acquire") == 1
    assert "release" not in log.read_text()
    gate.touch()
    assert outer.wait().status == 0
    assert log.read_text().split().count("release") == 1


# ---- the same with the stores themselves ----


@pytest.mark.parametrize("outer, inner, status", [
    ("", "-s", 0), ("-s", "-s", 0), ("-x", "-x", 0), ("--limit 2", "--limit 2", 0),
    ("-s", "", 76), ("-s", "--limit 2", 76), ("--limit 2", "--limit 3", 76), ("--limit 2", "-s", 76), ("", "--limit 2", 76),
])
def test_a_nested_run_on_a_real_store(dlock, outer, inner, status, request):
    """Alone it would wait for its parent for ever; joined, it also leaves the lock free."""
    place = FilePlace(request)
    line = f"echo $DLOCK_TOKEN ${{DLOCK_SLOT-none}}; {DLOCK_TEST} run -k job {inner} -- sh -c {shlex.quote(TELL)}"
    done = dlock.run("run", *place.words, "-k", "job", *outer.split(), "-c", line)
    told = done.stdout.splitlines()
    assert done.status == status and (told[0] == told[-1]) and len(told) == (2 if status == 0 else 1)
    assert dlock.run("run", *place.words, "-k", "job", "-n", "--", "true").status == 0
