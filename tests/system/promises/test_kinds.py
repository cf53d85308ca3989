# Goal of these tests: every kind of lock, several keys, nested runs and jobs mean
# the same everywhere.  The same scenarios on every backend and mode, each as large as
# DLOCK_TEST_FULL says; a table of them is printed at the end.  What a place cannot do
# it refuses by capability, before anything is asked, and that is all it does.
#
# Order is seen in tokens, in what commands write when they begin and end (witness.py),
# and in places in the queue, which each waiter has before the next one comes.

import os
import random
import signal
import subprocess
import time

import pytest

import token_order
from clocks import CLOCK, shifted
from faults import LIVING_LEASE, PATIENT
from redis_dialects import DIALECT_CANNOT
from support import (DLOCK, PATIENCE, Refused, boottime, compile_shim, free_port, is_alive, kill, name_of, descendants_of,
                     place_id, places, size, told_at_the_end, wait_for)
from witness import Crowd, check_intervals, check_seen, compile_witness, excludes, interval, kind_words
from zk_layouts import LAYOUT_CANNOT

LEASE = ("-t", "3s")  # the least there is, where a lease must end

# What not every place can do: options that ask for it, and what those say who cannot.
NEEDS = {
    "shared": (("-s",), "has no shared locks"),
    "limit": (("--limit", "3"), "has no limited locks"),
    "jobs": (("--once", "probe"), "cannot remember runs"),
}
CANNOT = {"pg-advisory": {"limit", "jobs"}, "pg-row": {"limit", "jobs"}, "mysql-row": {"limit", "jobs"},
          "mysql-named": {"shared", "limit", "jobs"}, **dict.fromkeys(("redlock", "redlock-tls"), {"shared", "limit", "jobs"}),
          "memcached": {"shared", "limit", "jobs"},
          **DIALECT_CANNOT, **LAYOUT_CANNOT}  # the manual's table; all others can do all


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    return request.param(request)


@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    return compile_witness(tmp_path_factory.mktemp("witness"))


_able = set()  # (place, need): it can


def refusal(dlock, place, need):
    """What the place says of something it cannot do; "" if it can."""
    if (place_id(place), need) in _able:
        return ""
    options, words = NEEDS[need]
    done = try_at(dlock, place.words, place.key(f"probe-{need}"), options)
    if done.status == 0:
        _able.add((place_id(place), need))
        return ""
    assert (done.status, done.stdout, done.stderr.count("\n")) == (78, "", 1) and words in done.stderr, done
    nowhere = [place.url_at(free_port()) if w == place.url else w for w in place.words]
    assert try_at(dlock, nowhere, place.key(), options).status == 78  # it is not asked of a server
    return done.stderr.strip()


def try_at(dlock, words, key, options):
    return dlock.run("run", *words, "-k", key, *options, "--", "echo", "ran", events=False)


@pytest.fixture
def needs(dlock, place):
    """Ends the test where the place refuses one of these, as it should."""
    def check(*kinds):
        for need in kinds:
            said = need in NEEDS and refusal(dlock, place, need)
            if said:
                raise Refused(said)

    return check


def need_of(kind):
    return {"x": "", "s": "shared"}.get(kind, "limit")


@pytest.mark.parametrize("need", NEEDS)
def test_capabilities(dlock, place, need):
    """It can do what the manual says of it"""
    assert (refusal(dlock, place, need) != "") == (need in CANNOT.get(place_id(place), set()))


# ---- tokens ----

# What a command under each kind of lock writes while it holds it.
SHOWS = 'echo "$0 ${DLOCK_SLOT:--} $DLOCK_TOKEN" >>"$1"; sleep "$2"'


@pytest.mark.parametrize("options", [(), ("-s",), ("--limit", "3")], ids=["exclusive", "shared", "limit"])
def test_of_two_grants_that_exclude_each_other_the_later_has_the_greater_token(dlock, place, needs, tmp_path, options):
    """A writer and anybody, and two holders of one slot, one after the other.  Those that hold together have different ones."""
    needs(*({"-s": ["shared"], "--limit": ["limit"]}.get(options[0], []) if options else []))
    seen, chance = tmp_path / "seen", random.Random(f"{options}")
    words = ["run", *place.words, "-k", place.key(), *LIVING_LEASE, *PATIENT]
    crowd = []
    for n in range(15):
        alone = n % 5 == 4 or not options
        crowd.append(dlock.start(*words, *(() if alone else options), "--", "sh", "-c", SHOWS, "x" if alone else "-", seen,
                                 f"{chance.uniform(0, 0.1):.3f}"))
    assert [s.wait().status for s in crowd] == [0] * len(crowd)
    lines = [line.split() for line in seen.read_text().splitlines()]
    assert len(lines) == len(crowd)
    token_order.check([token_order.Grant(kind == "x", None if slot == "-" else slot, int(token), None) for kind, slot, token in lines])

# ---- helpers ----


def words_of(place, keys):
    """One letter is one key."""
    return [word for key in keys for word in ("-k", place.key(key))]


def start(dlock, place, keys, *options, command=("cat",), **arguments):
    return dlock.start("run", *place.words, *words_of(place, keys), *options, "--", *command, stdin=subprocess.PIPE, **arguments)


def try_once(dlock, place, keys, *options):
    """The status of a run that does not wait."""
    done = dlock.run("run", *place.words, *words_of(place, keys), "-n", *options, "--", "true", events=False)
    return done.status


def queue(place, waiter, position):
    """Makes its place in the queue certain."""
    return waiter.queued(position if place.fair else None)


class Loops:
    """Shells that run dlock again and again, until they are told to end or one has failed."""

    def __init__(self, dlock, directory):
        self.dlock, self.over, self.processes = dlock, directory / "over", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.processes:
            if each.poll() is None:
                for pid in descendants_of(each.pid):
                    kill(pid)
                each.kill()
            each.wait()

    def start(self, place, keys, options, command, rounds=10 ** 9):
        run = [DLOCK, "run", *place.words, *words_of(place, keys), *options, "--", *map(str, command)]
        script = f'i=0; while [ $i -lt {rounds} ] && ! [ -e "{self.over}" ]; do "$@" || exit; i=$((i+1)); done'
        self.processes.append(subprocess.Popen(["sh", "-c", script, "sh", *run], env=self.dlock.env))

    def end(self):
        self.over.touch()
        self.ends()

    def ends(self, timeout=PATIENCE):
        end = time.monotonic() + timeout
        assert [each.wait(max(1, end - time.monotonic())) for each in self.processes] == [0] * len(self.processes)


# ---- one queue for all ----


@pytest.mark.parametrize("other", ["s", "3"])
def test_mixed(dlock, place, needs, tmp_path, other):
    """Mixed exclusive ones and others are served in the order of their coming"""
    needs(need_of(other))
    rng, log, line, holding = random.Random(other), tmp_path / "log", [], []
    log.touch()
    kinds = ["x", *rng.choices(["x", other, other], k=size(14, 50) - 2), other]
    for n, kind in enumerate(kinds):
        run = start(dlock, place, "a", *kind_words(kind), command=interval(log, n, kind))
        line.append((kind, run.held() if n == 0 else queue(place, run, n)))
    holding.append(line.pop(0))
    while line or holding:
        assert holding.pop(rng.randrange(len(holding)))[1].finish().status == 0
        for granted in served(place, line, holding):
            line.remove(granted)
            holding.append(granted)
    began = check_intervals(log, order=[str(n) for n in range(len(kinds))] if place.fair else ())
    assert sorted(map(int, began)) == list(range(len(kinds)))


def served(place, line, holding):
    """Those in line who have been granted it by now, all of whom it can be granted to."""
    inside, granted = [kind for kind, _ in holding], []
    if not place.fair:
        wait_for(lambda: holding or not line or any(run.running for _, run in line), what="somebody to be served")
        return [(kind, run) for kind, run in line if run.running]
    for kind, run in line:
        if excludes(kind, inside):
            break
        granted.append((kind, run))
        run.held()
        inside.append(kind)
    assert not [run for _, run in line[len(granted):] if run.running]
    return granted


def test_writer_in_a_stream(dlock, place, needs, tmp_path):
    """A writer is served within a stream of readers"""
    needs("shared")
    if not place.streams:
        raise Refused("has no line, as the manual says")
    log, readers = tmp_path / "log", size(4, 10)
    log.touch()
    with Loops(dlock, tmp_path) as stream:
        for n in range(readers):
            stream.start(place, "a", ("-s",), interval(log, f"r{n}", "s", inside="sleep 0.05"))
        wait_for(lambda: log.read_text().count("B") > readers, what="the stream")
        for n in range(size(2, 10)):
            writer = start(dlock, place, "a", command=interval(log, f"w{n}", "x", inside="true"))
            wait_for(lambda: writer.events("waiting") or writer.poll() is not None)
            before = log.read_text().count("B r")
            assert writer.wait().status == 0
            passed = log.read_text().split(f"B w{n}")[0].count("B r") - before
            assert not place.fair or passed <= readers  # who was granted it before, and writes late
        stream.end()
    check_intervals(log)


@pytest.mark.parametrize("used, asked, words", [
    ("s", "5", ("-s", "--limit 5")), ("3", "s", ("--limit 3", "-s")), ("3", "5", ("--limit 3", "--limit 5")),
], ids=["5 beside s", "s beside 3", "5 beside 3"])
@pytest.mark.parametrize("how", ["held", "waited for"])
def test_kinds_do_not_mix(dlock, place, needs, used, asked, words, how):
    """Kinds that do not mix are refused with 76, naming both"""
    needs(need_of(used), need_of(asked))
    holder = start(dlock, place, "a", *kind_words(used if how == "held" else "x")).held()
    waiter = queue(place, start(dlock, place, "a", *kind_words("x" if how == "held" else used)), 1)
    for more in ((), ("-n",)):
        done = dlock.run("run", *place.words, *words_of(place, "a"), *kind_words(asked), *more, "--", "echo", "ran")
        assert (done.status, done.stdout, done.stderr.count("\n")) == (76, "", 1), done
        assert all(w in done.stderr for w in words), done
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    assert try_once(dlock, place, "a", *kind_words(asked)) == 0


# ---- limits ----


SLOT = ("sh", "-c", "echo $DLOCK_SLOT; exec cat")


def slot(started):
    return int(wait_for(lambda: started.stdout().endswith("\n") and started.stdout(), what="a slot"))


def test_slots(dlock, place, needs):
    """A slot is the lowest that no living holder has"""
    needs("limit")

    def contend(*options):
        return start(dlock, place, "a", "--limit", "4", *options, command=SLOT)

    holders = [contend(*LIVING_LEASE) for _ in range(4)]
    assert sorted(slot(h) for h in holders) == [0, 1, 2, 3]
    holders.sort(key=slot)
    assert try_once(dlock, place, "a", "--limit", "4") == 75
    waiter = queue(place, contend(), 1)
    holders[2].finish()
    assert slot(waiter.held()) == 2
    holders[3].finish()
    holders[1].finish()
    assert slot(contend().held()) == 1
    holders[0].destroy()  # its slot is free when its lease has ended
    assert [slot(contend().held()) for _ in range(2)] == ([3, 0] if place.lease_ends else [0, 3])
    assert try_once(dlock, place, "a", "--limit", "4") == 75


def test_limit_in_torment(dlock, place, needs, witness, tmp_path):
    """A limit of 5 is kept and nothing leaks, whoever is killed or stopped"""
    needs("limit")
    before, contenders = boottime(), size(15, 60)
    ttl = max(place.crash_ttl, "6s", key=lambda t: int(t[:-1]))  # for those that end by themselves
    crowd = Crowd(witness, tmp_path / "crowd", [("5", "a")])

    def run(keys, *words):
        return dlock.start("run", *place.words, *words_of(place, keys), "-t", ttl, *words)

    crowd.start(contenders, run)
    time.sleep(size(5, 30))  # of torment
    crowd.finish()
    crowd.check(contenders, before)
    holders = [start(dlock, place, "a", "--limit", "5", command=SLOT) for _ in range(5)]
    assert sorted(slot(h.held()) for h in holders) == [0, 1, 2, 3, 4]
    assert try_once(dlock, place, "a", "--limit", "5") == 75


# ---- several keys ----

PAIRS = {
    "exclusive": [("ab", "x"), ("ba", "x")],
    "mixed with shared": [("ab", "x"), ("ba", "x"), ("ab", "s"), ("ba", "s")],
    "mixed with limit": [("ab", "x"), ("ba", "x"), ("ab", "2"), ("ba", "2")],
}


@pytest.mark.parametrize("kinds", PAIRS)
def test_opposite_orders(dlock, place, needs, witness, tmp_path, kinds):
    """Pairs of keys in opposite orders never deadlock"""
    needs(*(need_of(kind) for _, kind in PAIRS[kinds]))
    eat(dlock, place, witness, tmp_path, PAIRS[kinds], size(15, 500) // (len(PAIRS[kinds]) // 2))


def test_philosophers(dlock, place, witness, tmp_path):
    """Five philosophers eat"""
    eat(dlock, place, witness, tmp_path, [(keys, "x") for keys in ("ab", "bc", "cd", "de", "ea")], size(8, 100))


def eat(dlock, place, witness, directory, diners, rounds):
    """Each takes its keys so many times; the kernel watches, and tokens are compared."""
    crowd = Crowd(witness, directory / "crowd")
    with Loops(dlock, directory) as loops:
        for keys, kind in diners:
            loops.start(place, keys, kind_words(kind), crowd.witness(0, kind, keys), rounds)
        loops.ends(PATIENCE + rounds)
    assert len(crowd.seen()) == rounds * len(diners)
    check_seen(crowd.seen())


def test_several_in_a_stream(dlock, place, witness, tmp_path):
    """Several keys are served within a stream of single ones"""
    crowd = Crowd(witness, tmp_path / "crowd")
    with Loops(dlock, tmp_path) as stream:
        for key in "abcabc":
            stream.start(place, key, (), crowd.witness(0, "x", key))
        for keys in ("cba", "abc", "bca")[:size(2, 3)] * size(1, 5):
            assert start(dlock, place, keys, command=crowd.witness(0, "x", keys)).wait().status == 0
        stream.end()
    check_seen(crowd.seen())


@pytest.mark.parametrize("name", "ac")
def test_one_of_several_is_taken_away(dlock, place, name):
    """One of several keys is taken away: 79 naming it"""
    held = start(dlock, place, "bca", *LIVING_LEASE).held()  # or a silent server is the loss, and the first key is named
    command = held.command
    place.take_away([place.key(k) for k in "abc"], place.key(name))
    done = held.wait()
    assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1), done
    assert f"({place.key(name)}: " in done.stderr, done
    assert not is_alive(command)
    again = start(dlock, place, "abc", command=("true",)).wait()
    assert again.status == 0, again


# ---- nested ----

NESTS = {  # keys and kind of each of three runs, one inside another
    "exclusive": (("a", "x"), ("a", "x"), ("a", "x")),
    "shared in exclusive": (("a", "x"), ("a", "s"), ("a", "s")),
    "shared": (("a", "s"), ("a", "s"), ("a", "s")),
    "limit": (("a", "3"), ("a", "3"), ("a", "3")),
    "fewer keys": (("abc", "x"), ("cb", "x"), ("b", "x")),
}


@pytest.mark.parametrize("nest", NESTS)
def test_three_deep(dlock, place, needs, tmp_path, nest):
    """Three nested runs, the last in a session of its own, are one hold"""
    needs(*(need_of(kind) for _, kind in NESTS[nest]))
    outer, gate, told = begin_nest(dlock, place, tmp_path, NESTS[nest])
    (*_, middle, _), tokens = zip(*(line.split() for line in told.read_text().splitlines()))
    assert len(tokens) == 3 and len(set(tokens)) == 1
    wait_for(lambda: not is_alive(int(middle)), what="the end of the middle command")
    waiter = queue(place, start(dlock, place, "b" if nest == "fewer keys" else "a", command=("true",)), 1)
    assert outer.poll() is None and not waiter.running
    gate.write_text("go\n")
    assert outer.wait().status == 0
    assert waiter.wait().status == 0


def begin_nest(dlock, place, directory, nest):
    """(the outer run, what lets the innermost command go on, each command's pid and token, of b among several)."""
    gate, joined, told = (directory / name for name in ("gate", "joined", "told"))
    os.mkfifo(gate)
    token = f'echo $$ $(echo "${{DLOCK_TOKENS:-$DLOCK_TOKEN}}" | sed "s/.*b\\":\\([0-9]*\\).*/\\1/") >>{told}'
    scripts = [f"{token}; touch {joined}; read line <{gate}"]
    for level, wait in ((2, f"while [ ! -e {joined} ]; do sleep 0.01; done"), (1, "")):
        (keys, kind), script = nest[level], directory / f"level{level}"
        script.write_text(scripts[-1])
        words = " ".join([f"'{w}'" for w in (DLOCK, "run", *words_of(place, keys), *kind_words(kind))])
        scripts.append(f"{token}; setsid {words} -- sh {script} & {wait}" if wait else f"{token}; {words} -- sh {script}")
    keys, kind = nest[0]
    outer = start(dlock, place, keys, *kind_words(kind), *LEASE, command=("sh", "-c", scripts[-1]))
    wait_for(lambda: joined.exists() or outer.poll() is not None, what="the innermost command")
    assert outer.poll() is None, outer.result()
    return outer, gate, told


ALL_GONE = 'for p; do [ ! -e /proc/$p/exe ] || exit 99; done'  # no process named is more than a zombie


def test_three_deep_and_killed(dlock, place, tmp_path):
    """Nobody is served before all of three nested runs are gone, when the outer keeper is killed"""
    outer, _, _ = begin_nest(dlock, place, tmp_path, NESTS["exclusive"])
    keeper = outer.keeper
    tree = [p for p in outer.tree() if p not in (outer.pid, keeper) and not (name_of(p) or "").startswith("dlock")]
    assert tree
    waiter = queue(place, start(dlock, place, "a", command=("sh", "-c", ALL_GONE, "sh", *map(str, tree))), 1)
    outer.signal(signal.SIGKILL, "keeper")
    assert outer.wait().status == 79
    assert waiter.wait().status == 0


@pytest.mark.parametrize("outer, inner", [(("a", "s"), ("a", "x")), (("a", "3"), ("a", "2")), (("a", "3"), ("a", "x")),
                                          (("a", "x"), ("ab", "x"))], ids=["x in s", "2 in 3", "x in 3", "a b in a"])
def test_nest_that_can_only_deadlock(dlock, place, needs, outer, inner):
    """A nested run that could only wait for itself is refused at once"""
    needs(need_of(outer[1]))
    nested = [DLOCK, "run", *place.words, *words_of(place, inner[0]), *kind_words(inner[1]), "--", "echo", "ran"]
    done = start(dlock, place, outer[0], *kind_words(outer[1]), command=nested).wait()
    assert (done.status, done.stdout, done.stderr.count("\n")) == (76, "", 1), done
    assert try_once(dlock, place, "ab") == 0


# ---- tokens ----


def test_tokens(dlock, place):
    """Tokens grow over every mixture of kinds"""
    def possible(kind):
        return not need_of(kind) or not refusal(dlock, place, need_of(kind))

    rng, last = random.Random(1), 0
    kinds = [k for k in ("x", "s", "3", "2") if possible(k)]
    for kind in rng.choices(kinds, k=size(8, 40)):
        holders = [start(dlock, place, "a", *LEASE, *kind_words(kind)).held() for _ in range(1 if kind == "x" else 2)]
        tokens = [h.token for h in holders]
        assert last < tokens[0] and tokens == sorted(set(tokens)), (kind, last, tokens)
        rng.shuffle(holders)
        last = max(tokens)
        if rng.random() < 0.2:  # what a killed one was given does not come again
            holders.pop().destroy()
        assert [h.finish().status for h in holders] == [0] * len(holders)
        if rng.random() < 0.4:  # nor do those of several keys
            run = start(dlock, place, "ba", *kind_words(rng.choice(kinds)),
                        command=("sh", "-c", "echo $DLOCK_TOKENS")).wait(2 * PATIENCE)
            assert run.status == 0
            token = int(run.stdout.split(f'"{place.key("a")}":')[1].split("}")[0].split(",")[0])
            assert token > last
            last = token


# ---- jobs ----

def test_clocks_can_be_shifted(dlock, tmp_path):
    shim = compile_shim(tmp_path, "clock", CLOCK)
    place = type("At", (), {"words": ["-u", f"file://{tmp_path}"], "key": lambda self, key: key})()
    run = start(dlock, place, "a", command=("date", "+%s"), env={"LD_PRELOAD": shim, "CLOCK_SHIFT": str(-10 * 365 * 86400)})
    done = run.wait()
    assert done.status == 0 and int(done.stdout) < time.time() - 9 * 365 * 86400
    assert run.event("acquired")["time"] < time.strftime("%Y", time.gmtime(time.time() - 9 * 365 * 86400))


def test_a_cooldown_begins_with_the_run(dlock, place, needs):
    """A job that lasts for its cooldown is due again when it has ended"""
    needs("jobs")
    words = ["run", *place.words, "-k", place.key(), "--cooldown", "1s", "--"]
    for _ in range(2):
        done = dlock.run(*words, "sh", "-c", "sleep 1.2; echo ran", events=False)
        assert (done.status, done.stdout) == (0, "ran\n"), done


JOBS = {"once": ("--once", "2026-11-22"), "cooldown": ("--cooldown", "1h")}


@pytest.mark.parametrize("option", JOBS)
def test_one_of_a_hundred(dlock, place, needs, tmp_path, option):
    """Of many hosts whose clocks are 5 s apart exactly one runs a job"""
    needs("jobs")
    shim, log, contenders = compile_shim(tmp_path, "clock", CLOCK), tmp_path / "log", size(20, 100)
    words = (*JOBS[option], "--skipped-exit-code", "9", *PATIENT)

    def contend(n):
        return start(dlock, place, "a", *words, command=("sh", "-c", f"echo run >>{log}; sleep 1"),
                     env=shifted(place, shim, n % 6 - 2.5))

    crowd = [contend(n) for n in range(contenders - contenders // 4)]
    wait_for(lambda: any(c.poll() is not None for c in crowd), what="the first end")
    crowd += [contend(n) for n in range(contenders // 4)]  # some come when it is done
    statuses = sorted(c.wait().status for c in crowd)
    assert statuses == [0] + [9] * (contenders - 1)
    assert log.read_text() == "run\n"
    assert sum(bool(c.events("started")) for c in crowd) == 1


@pytest.mark.parametrize("how", ["fails", "killed", "lost", "keeper killed"])
@pytest.mark.parametrize("option", size(["once"], JOBS))
def test_runs_that_do_not_count(dlock, place, needs, option, how):
    """A run that fails or is lost does not count"""
    needs("jobs")
    job, end = JOBS[option], {"fails": "exit 3", "killed": "kill -9 $$"}.get(how, "exec cat")
    run = start(dlock, place, "a", *job, *LEASE, command=("sh", "-c", end))
    if how == "lost":
        run.held()
        place.take_away([place.key("a")], place.key("a"))
    if how == "keeper killed":
        run.held()
        run.signal(signal.SIGKILL, "keeper")
    assert run.wait().status == {"fails": 3, "killed": -9}.get(how, 79)
    assert run_job(dlock, place, job) == "ran\n"
    assert run_job(dlock, place, job) == ""


def run_job(dlock, place, job):
    done = start(dlock, place, "a", *job, command=("echo", "ran")).wait()
    assert done.status == 0, done
    return done.stdout


@pytest.mark.parametrize("option", size(["once"], JOBS))
@pytest.mark.parametrize("whom", ["keeper", "both"])
def test_killed_between_success_and_release(dlock, place, needs, option, whom):
    """A run killed after its command's success and before its release does not count"""
    needs("jobs")
    run = start(dlock, place, "a", *JOBS[option], *LEASE).held()
    keeper, command = run.keeper, run.command
    run.signal(signal.SIGSTOP, "keeper")  # it does not hear of the success
    run.popen.stdin.close()
    wait_for(lambda: not is_alive(command), what="the command's success")
    if whom == "both":
        kill(run.pid)
    kill(keeper)
    assert run.wait().status != 0
    assert run_job(dlock, place, JOBS[option]) == "ran\n"
    assert run_job(dlock, place, JOBS[option]) == ""
