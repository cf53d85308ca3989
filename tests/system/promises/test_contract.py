# Goal of these tests: what dlock promises on every backend alike.  A new
# backend joins by one class in support.py; nothing here knows any by name.

import json
import os
import re
import signal
import subprocess

import pytest

from faults import PATIENT
from support import BRIEFLY, DLOCK, boottime, is_alive, is_free, name_of, place_id, places, told_at_the_end, wait_for

LEASE = ("-t", "3s")  # the least there is, where a lease must end

# Leaves two descendants that have left session, group and parent.
DAEMONS = 'setsid sh -c "sleep 1000 & exec sleep 1000" & exec sleep 1000'

# Fails if any process named in its arguments is more than a zombie.
ALL_GONE = 'for p; do [ ! -e /proc/$p/exe ] || exit 99; done'


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    """Also each further mode of a backend."""
    return request.param(request)


def daemons(started):
    """Waits until DAEMONS has forked everything; the pids of the command's tree."""
    wait_for(lambda: sum(name_of(p) == "sleep" for p in started.held().tree()) == 3, what="the whole tree")
    return [p for p in started.tree() if p not in (started.front, started.keeper)]


# ---- running ----


@pytest.mark.parametrize("script, status", [
    ("exit 0", 0), ("exit 3", 3), ("exit 75", 75), ("exit 255", 255),
    ("kill -TERM $$", -signal.SIGTERM), ("kill -KILL $$", -signal.SIGKILL), ("kill -INT $$", -signal.SIGINT),
])
def test_status_is_the_commands_own(dlock, place, script, status):
    done = dlock.run("run", *place.words, "-k", place.key(), "--", "sh", "-c", script)
    assert (done.status, done.stderr) == (status, "")


def test_command_is_told_about_its_lock(dlock, place):
    key = place.key("a b/ü")
    done = dlock.run("run", *place.words, "-k", key, "--", "env")
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("DLOCK_"))
    assert done.status == 0
    assert env["DLOCK_KEY"] == key
    assert int(env["DLOCK_TOKEN"]) > 0
    assert len(env["DLOCK_OWNER"]) == 32 and int(env["DLOCK_OWNER"], 16) > 0
    assert env["DLOCK_BACKEND"] == place.name
    assert env["DLOCK_KEEPER"]


def test_command_that_cannot_run_leaves_the_lock_free(dlock, place, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    assert dlock.run("run", *place.words, "-k", place.key(), "--", script).status == 127
    assert is_free(dlock, place)


# ---- exclusion and tokens ----


def test_contenders_never_overlap(dlock, place, tmp_path):
    script = 'mkdir "$0" || exit 99; sleep 0.02; rmdir "$0"'
    all_ = [dlock.contend(place, place.key(), *PATIENT, command=("sh", "-c", script, tmp_path / "inside")) for _ in range(12)]
    assert [s.wait().status for s in all_] == [0] * 12


def test_owners_differ_and_tokens_grow_with_every_grant(dlock, place):
    seen = []
    for _ in range(15):
        done = dlock.run("run", *place.words, "-k", place.key(), "--", "sh", "-c", "echo $DLOCK_TOKEN $DLOCK_OWNER")
        seen.append(done.stdout.split())
    tokens = [int(token) for token, _ in seen]
    assert all(a < b for a, b in zip(tokens, tokens[1:]))
    assert len({owner for _, owner in seen}) == 15


def test_tokens_grow_after_a_crash(dlock, place):
    first = dlock.hold(place, place.key(), *LEASE)
    first.signal(signal.SIGKILL, "keeper")
    assert first.wait().status == 79
    second = dlock.hold(place, place.key())
    assert second.token > first.token


def test_different_keys_do_not_exclude_each_other(dlock, place):
    # Common prefixes, encodings of each other, names that file systems, servers or dlock itself use.
    keys = ["a/b", "a%2Fb", "a%2fb", "a b", "a", "A", "a ", "..", ".", "...", "{x}", "x", "{x", "x}", "{}", "%", "%%",
            "%2E", "/", "//", "/a", "*", "a:h", "a:i", "a:q", "a:f", "dlock:{a}:h", "k" * 300, "k" * 512,
            "k" * 511 + "l", "k" * 200, "k" * 201, "ключ", "\u00e9", "e\u0301", "日本", "-n", "--", "$(x)", "'\"\\"]
    keys = [key for key in keys if place.braces or key not in ("{x", "x}", "{}")]
    holds = [dlock.contend(place, key, *PATIENT) for key in keys]
    for hold in holds:
        assert hold.held().events("waiting") == []
    for key in keys:
        assert dlock.run("run", *place.words, f"--key={key}", "-n", "--", "true").status == 75, key
    for hold in holds:
        assert hold.finish().status == 0


# ---- when the lock is busy ----


def test_nonblock_says_who_holds_it(dlock, place):
    holder = dlock.hold(place, place.key(), "--who", "alice@ci", "--why", "release 4.2")
    done = dlock.run("run", *place.words, "-k", place.key(), "-n", "--", "echo", "ran")
    assert (done.status, done.stdout) == (75, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("dlock: ")
    for word in (place.key(), "alice@ci", str(holder.pid), "cat", *(["release 4.2"] if place.whole_record else [])):
        assert word in done.stderr


@pytest.mark.parametrize("how", [("-n",), ("-w", "0"), ("-w", BRIEFLY)])
@pytest.mark.parametrize("status", [0, 7, 255])
def test_conflict_exit_code(dlock, place, how, status):
    dlock.hold(place, place.key())
    done = dlock.run("run", *place.words, "-k", place.key(), *how, "-E", status, "--", "echo", "ran")
    assert (done.status, done.stdout) == (status, "")


def test_expired_wait_is_75_and_blocks_nobody(dlock, place):
    holder = dlock.hold(place, place.key())
    before = boottime()
    quitter = dlock.contend(place, place.key(), "-w", "5s").queued(1)
    behind = dlock.contend(place, place.key()).queued(2)
    done = quitter.wait()
    assert done.status == 75 and place.key() in done.stderr
    assert boottime() - before >= 5
    behind.queued(1)
    holder.finish()
    assert behind.held().finish().status == 0
    assert is_free(dlock, place)


def test_waiters_are_served_in_order(dlock, place, tmp_path):
    order = tmp_path / "order"
    holder = dlock.hold(place, place.key())
    waiters = []
    for n in range(1, 7):
        command = ("sh", "-c", f"echo {n} >>{order}")
        waiters.append(dlock.contend(place, place.key(), command=command).queued(n))
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0] * 6
    served = order.read_text().split()
    assert served == list("123456") if place.fair else sorted(served) == list("123456")
    tokens = [holder.token] + [waiters[int(n) - 1].token for n in served]
    assert tokens == sorted(set(tokens))


# ---- interrupted, crashed ----


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda s: s.name)
def test_interrupted_waiter_dies_of_the_signal_and_leaves_the_queue(dlock, place, sig):
    holder = dlock.hold(place, place.key())
    waiter = dlock.contend(place, place.key()).queued(1)
    behind = dlock.contend(place, place.key()).queued(2)
    waiter.signal(sig)
    done = waiter.wait()
    assert (done.status, done.stdout) == (-sig, "")
    holder.finish()
    assert behind.held().finish().status == 0
    assert is_free(dlock, place)


@pytest.mark.parametrize("process", ["front", "keeper"])
def test_killed_waiter_blocks_nobody_for_long(dlock, place, process):
    holder = dlock.hold(place, place.key())
    waiter = dlock.contend(place, place.key()).queued(1)
    behind = dlock.contend(place, place.key()).queued(2)
    assert waiter.keeper
    waiter.signal(signal.SIGKILL, process)
    assert not waiter.wait().stdout
    holder.finish()
    behind.event("started", timeout=25)  # before a lease of 30 s could end
    assert behind.finish().status == 0
    assert not waiter.running


@pytest.mark.parametrize("process", ["front", "keeper"])
def test_waiter_killed_as_it_is_served_blocks_nobody_for_long(dlock, place, process):
    # The grant may already be under way to it; then its first lease must end.
    holder = dlock.hold(place, place.key())
    waiter = dlock.contend(place, place.key(), *LEASE).queued(1)
    behind = dlock.contend(place, place.key()).queued(2)
    assert waiter.keeper
    holder.popen.stdin.close()
    waiter.signal(signal.SIGKILL, process)
    behind.event("started", timeout=25)  # before a lease of 30 s could end
    assert holder.wait().status == 0
    assert behind.finish().status == 0


def test_killed_keeper_takes_the_whole_tree_along(dlock, place):
    holder = dlock.contend(place, place.key(), *LEASE, command=("sh", "-c", DAEMONS))
    tree = daemons(holder)
    next_ = dlock.contend(place, place.key(), command=("sh", "-c", ALL_GONE, "sh", *map(str, tree))).queued(1)
    holder.signal(signal.SIGKILL, "keeper")
    done = holder.wait()
    assert done.status == 79
    assert told_at_the_end(done.stderr).count("\n") == 1 and place.key() in done.stderr
    assert not any(is_alive(p) for p in tree)
    assert next_.wait().status == 0
    assert next_.token > holder.token


def test_killed_front_lets_the_keeper_stop_the_tree_then_release(dlock, place, tmp_path):
    heard = tmp_path / "heard"
    script = f"trap 'echo TERM >>{heard}' TERM; (trap '' TERM; {DAEMONS}) & while :; do read x; done"
    holder = dlock.contend(place, place.key(), "-t", "18s", "--grace", "2s", command=("sh", "-c", script))
    keeper, tree = holder.keeper, daemons(holder)
    next_ = dlock.contend(place, place.key(), command=("sh", "-c", ALL_GONE, "sh", *map(str, tree))).queued(1)
    holder.signal(signal.SIGKILL)
    assert holder.wait().status == -signal.SIGKILL
    assert next_.wait().status == 0
    assert heard.read_text() == "TERM\n"
    wait_for(lambda: not is_alive(keeper), what="the keeper's end")


def test_stopped_command_is_gone_before_the_next_one_starts(dlock, place):
    script = f"trap '' TERM; {DAEMONS}"
    holder = dlock.contend(place, place.key(), "--max-run", "3s", "--grace", "300ms", command=("sh", "-c", script))
    tree = daemons(holder)
    next_ = dlock.contend(place, place.key(), command=("sh", "-c", ALL_GONE, "sh", *map(str, tree)))
    done = holder.wait()
    assert done.status == 124 and place.key() in done.stderr
    assert next_.wait().status == 0


# ---- who holds it ----


def test_record_names_the_command_but_not_its_arguments(dlock, place):
    holder = dlock.hold(place, place.key(), command=("/bin/sh", "-c", ": hunter2; cat"))
    waiter = dlock.contend(place, place.key()).queued(1)
    record = json.loads(waiter.event("waiting")["holder"])
    assert record["command"] == "sh" and record["pid"] == holder.pid
    assert set(record) <= {"who", "host", "pid", "born", "command", "why", "since", "door", "ttl"}
    assert not place.whole_record or b'"sh"' in place.stored()
    assert b"hunter2" not in place.stored()


# ---- nesting ----


def nested(*words):
    return " ".join([DLOCK, "run", *words])


@pytest.mark.parametrize("inner", ["", "-n", "-w 5s"])
@pytest.mark.parametrize("stated", [True, False], ids=["same-url", "no-url"])
def test_nested_run_on_the_same_key_joins(dlock, place, inner, stated):
    words = place.words if stated else []
    script = f"echo $DLOCK_TOKEN; {nested(*words, '-k', place.key(), inner)} -- sh -c 'echo $DLOCK_TOKEN; exit 5'"
    done = dlock.run("run", *place.words, "-k", place.key(), "--", "sh", "-c", script)
    assert (done.status, done.stderr) == (5, "")
    outer_token, inner_token = done.stdout.split()
    assert outer_token == inner_token
    assert is_free(dlock, place)


def test_nested_run_on_another_key_takes_its_own_lock(dlock, place):
    outer, inner = place.key("outer"), place.key("inner")
    command = ("sh", "-c", nested(*place.words, "-k", inner, "-- cat"))
    hold = dlock.contend(place, outer, command=command).held()
    wait_for(lambda: not is_free(dlock, place, key=inner), what="the inner lock")
    assert not is_free(dlock, place, key=outer)
    assert hold.finish().status == 0
    assert is_free(dlock, place, key=outer) and is_free(dlock, place, key=inner)


def test_nested_in_nested_finds_the_outermost(dlock, place):
    a, b = place.key("a"), place.key("b")
    innermost = nested("-k", a, "-n") + " -- sh -c 'echo $DLOCK_TOKEN'"
    middle = nested(*place.words, "-k", b) + f' -- sh -c "{innermost}"'.replace("$", "\\$")
    done = dlock.run("run", *place.words, "-k", a, "--", "sh", "-c", f"echo $DLOCK_TOKEN; {middle}")
    assert done.status == 0, done
    first, second = done.stdout.split()
    assert first == second


def test_joined_hold_keeps_the_lock_after_the_outer_command(dlock, place, tmp_path):
    gate, joined = tmp_path / "gate", tmp_path / "joined"
    os.mkfifo(gate)
    inner = nested("-k", place.key(), "-n") + f" -- sh -c 'touch {joined}; read line <{gate}'"
    script = f"{inner} & while [ ! -e {joined} ]; do sleep 0.01; done"
    outer = dlock.contend(place, place.key(), "-t", "9s", command=("sh", "-c", script)).held()
    wait_for(lambda: not is_alive(outer.command), what="the outer command's end")
    waiter = dlock.contend(place, place.key(), command=("true",)).queued()
    assert not is_free(dlock, place)
    gate.write_text("go\n")
    assert outer.wait().status == 0
    assert waiter.wait().status == 0


# ---- for how long ----


def test_min_hold_outlasts_the_command_but_not_dlock(dlock, place):
    before = boottime()
    short = dlock.start("run", *place.words, "-k", place.key(), "--min-hold", "5s", "--", "echo", "done",
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert short.popen.stdout.read() == b"done\n"  # up to the end of file
    assert short.wait().status == 0
    waiter = dlock.contend(place, place.key(), command=("true",))
    waiter.queued()
    assert boottime() - before < 5, "too slow a machine for this test"
    assert waiter.wait().status == 0
    assert boottime() - before >= 5


@pytest.mark.parametrize("options, waits", [((), False), (("--wait-tree",), True)], ids=["default", "wait-tree"])
def test_wait_tree_keeps_the_lock_for_descendants(dlock, place, tmp_path, options, waits):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"setsid sh -c 'read line <{gate}' & exit 4"
    holder = dlock.contend(place, place.key(), *options, command=("sh", "-c", script)).held()
    command = holder.command
    wait_for(lambda: not is_alive(command), what="the command's end")
    if waits:
        assert not is_free(dlock, place)
        assert holder.poll() is None
    else:
        assert holder.wait().status == 4
        assert is_free(dlock, place)
    gate.write_text("go\n")
    assert holder.wait().status == 4
    assert is_free(dlock, place)


def test_a_crowd_of_nested_runs_joins_without_deadlock(dlock, place):
    """More at once than a socket's queue holds: none of them may go past the keeper to the server."""
    inner = f'"{DLOCK}" run -k "$DLOCK_KEY" -- sh -c "echo $DLOCK_TOKEN"'
    crowd = f"for i in $(seq 40); do {inner} & done; wait"
    done = dlock.run("run", *place.words, "-k", place.key(), "--", "sh", "-c", crowd, timeout=60)
    tokens = done.stdout.split()
    said = [line for line in done.stderr.splitlines() if not re.match("dlock: (waiting|got) ", line)]  # on a busy machine
    assert (done.status, said) == (0, [])
    assert len(tokens) == 40 and len(set(tokens)) == 1
