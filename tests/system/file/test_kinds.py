# Goal of these tests: locks of all kinds in the one line of a lock file, where the
# kernel's locks decide; and what is remembered beside it of runs with --once and
# --cooldown, whatever stands there.

import contextlib
import fcntl
import os
import random
import resource
import signal
import struct
import subprocess
import threading
import time

import pytest

from support import DLOCK, FilePlace, children_of, compile_shim, descendants_of, is_alive, kill, wait_for

KINDS = {"plain": (), "-x": ("-x",), "-s": ("-s",), "limit": ("--limit", "3")}
EXCLUSIVE = ("plain", "-x")


@pytest.fixture
def files(request):
    return FilePlace(request)


def try_once(dlock, files, key, *options):
    """The status of a run that does not wait."""
    return dlock.run("run", *files.words, "-k", key, "-n", *options, "--", "true", events=False).status


def sleeps(waiter):
    """Does it wait in the kernel, in a thread or (the first of a limit's line) for news of the file?"""
    keeper = children_of(waiter.pid)
    proc = f"/proc/{keeper[0]}" if keeper else "/nothing"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        files = [os.readlink(f"{proc}/fd/{n}") for n in os.listdir(f"{proc}/fd")]
        return len(os.listdir(f"{proc}/task")) == 2 or "anon_inode:inotify" in files
    return False


def asleep(waiter):
    wait_for(lambda: sleeps(waiter), what="a waiter that sleeps")
    return waiter


# ---- who is granted it, and when ----


def allowed(holding, kind):
    """May one of this kind hold beside these?"""
    if not holding:
        return True
    if kind in EXCLUSIVE or holding[0] in EXCLUSIVE:
        return False
    return kind == "-s" or len(holding) < 3


@pytest.mark.parametrize("other", ["-s", "limit"])
def test_mixtures_are_served_first_come_first_served(dlock, files, other):
    """A model says who holds after each step; nobody else does."""
    rng = random.Random(other)
    line = [(kind, dlock.contend(files, "job", *KINDS[kind]))
            for kind in ["plain"] + rng.choices([*EXCLUSIVE, *[other] * 4], k=20)
            if not dlock.started or asleep_after(dlock)]
    tokens, holding = [], []
    while line or holding:
        while line and allowed([k for k, _ in holding], line[0][0]):
            holding.append(line.pop(0))
            tokens.append((holding[-1][1].held().token, holding[-1][0] in EXCLUSIVE))
        for _, waiter in line:
            assert not waiter.running
        assert holding.pop(rng.randrange(len(holding)))[1].finish().status == 0
    assert len({t for t, _ in tokens}) == len(tokens)
    for n, (token, alone) in enumerate(tokens):
        if alone:  # those who are granted together may be so in any order
            assert all(t < token for t, _ in tokens[:n]) and all(t > token for t, _ in tokens[n + 1:])


def asleep_after(dlock):
    """The one who was started last is in line, or runs: now the next one may come."""
    last = dlock.started[-1]
    wait_for(lambda: last.events("waiting") or last.running, what="a place in the line")
    return True


def test_one_release_grants_all_readers_up_to_the_next_writer(dlock, files):
    holder = dlock.hold(files, "job", "-x")
    readers = [dlock.contend(files, "job", "-s") for _ in range(20)]
    for reader in readers:
        asleep(reader)
    writer = asleep(dlock.contend(files, "job"))
    late = asleep(dlock.contend(files, "job", "-s"))
    holder.finish()
    for reader in readers:
        reader.held()
    assert not writer.running and not late.running
    assert len({r.token for r in readers}) == len(readers)
    for reader in readers:
        reader.finish()
    writer.held()
    assert not late.running
    writer.finish()
    assert late.held().finish().status == 0


def test_a_writer_gets_it_in_a_stream_of_readers(dlock, files):
    readers = [dlock.hold(files, "job", "-s") for _ in range(3)]
    writer = asleep(dlock.contend(files, "job", command=("true",)))
    for _ in range(5):
        assert try_once(dlock, files, "job", "-s") == 75
        readers.append(asleep(dlock.contend(files, "job", "-s")))
    for reader in readers[:3]:
        assert not writer.running
        reader.finish()
    assert writer.wait().status == 0
    for reader in readers[3:]:
        assert reader.held().finish().status == 0


@pytest.mark.parametrize("who", ["holder", "waiter"])
def test_who_dies_before_a_writer_lets_it_pass(dlock, files, who):
    """A reader, a writer, a reader, a writer: each in the way of the next."""
    first = dlock.hold(files, "job", "-s")
    middle = [asleep(dlock.contend(files, "job", "-x")), asleep(dlock.contend(files, "job", "-s"))]
    last = asleep(dlock.contend(files, "job", command=("true",)))
    for dead in middle if who == "waiter" else [first]:
        dead.destroy()
    if who == "waiter":
        assert not last.running
        first.finish()
    else:
        middle[0].held().finish()
        middle[1].held().finish()
    assert last.wait().status == 0


def test_a_reader_joins_readers_when_the_writer_between_gives_up(dlock, files):
    dlock.hold(files, "job", "-s")
    writer = asleep(dlock.contend(files, "job"))
    reader = asleep(dlock.contend(files, "job", "-s"))
    writer.signal(signal.SIGTERM)
    reader.held()


# ---- limits ----


def test_a_slot_is_the_lowest_that_is_free(dlock, files):
    def hold():
        return dlock.hold(files, "job", "--limit", "4", command=("sh", "-c", "echo $DLOCK_SLOT; cat"))

    holders = [hold() for _ in range(4)]
    assert [wait_for(h.stdout) for h in holders] == ["0\n", "1\n", "2\n", "3\n"]
    assert try_once(dlock, files, "job", "--limit", "4") == 75
    for n in (2, 0):
        holders[n].finish()
    assert [wait_for(hold().stdout) for _ in range(2)] == ["0\n", "2\n"]


@pytest.mark.parametrize("how", ["released", "killed"])
@pytest.mark.parametrize("n", range(3))
def test_the_first_in_line_gets_whatever_slot_is_freed(dlock, files, how, n):
    holders = [dlock.hold(files, "job", *KINDS["limit"]) for _ in range(3)]
    first, second = (asleep(dlock.contend(files, "job", *KINDS["limit"], command=("sh", "-c", "echo $DLOCK_SLOT; cat")))
                     for _ in range(2))
    if how == "released":
        holders[n].finish()
    else:
        holders[n].destroy()
    assert wait_for(first.stdout) == f"{n}\n"
    assert not second.running and try_once(dlock, files, "job", *KINDS["limit"]) == 75


def switches(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("voluntary")).split()[1])


def test_the_first_in_a_limits_line_does_not_poll(dlock, files):
    holder = dlock.hold(files, "job", "--limit", "1")
    waiter = asleep(dlock.contend(files, "job", "--limit", "1"))
    time.sleep(1)  # it looks after 1, 2, 4, ... ms
    before = switches(waiter.keeper)
    time.sleep(1)
    assert switches(waiter.keeper) - before <= 3
    holder.finish()
    waiter.held()


def test_where_the_kernel_tells_nothing_of_a_file_it_is_looked_at(dlock, files, tmp_path):
    library = compile_shim(tmp_path, "noinotify", """
        #include <errno.h>
        int inotify_init1(int flags) { (void)flags; errno = EMFILE; return -1; }""")
    holder = dlock.hold(files, "job", "--limit", "1")
    waiter = dlock.contend(files, "job", "--limit", "1", env={"LD_PRELOAD": library}).queued(1)
    time.sleep(0.3)
    holder.destroy()
    waiter.held()


JUDGED = """flock $2 -n $0/judge flock -n "$0/slot.${DLOCK_SLOT-$$}" sh -c "echo run >>$0/log; sleep 0.0$1" || echo OVERLAP >>$0/log"""


def kill_all(front):
    """Nobody is left to clean up, but no command either: it goes first, and forks no more."""
    stopped = set()
    while new := {front, *descendants_of(front)} - stopped:
        for pid in new:
            kill(pid, signal.SIGSTOP)
        stopped |= new
        time.sleep(0.005)
    for pid in sorted(stopped, reverse=True):
        kill(pid)
        wait_for(lambda pid=pid: pid == front or not is_alive(pid), what="an end")


class Contender(threading.Thread):
    """Takes a lock of one of these kinds again and again, and is often killed or stopped while it waits or holds."""

    def __init__(self, dlock, place, kinds, judge, seed):
        super().__init__()
        self.dlock, self.place, self.kinds, self.judge, self.rng = dlock, place, kinds, judge, random.Random(seed)
        self.end, self.failed = time.monotonic() + 4, []

    def run(self):
        while time.monotonic() < self.end:
            kind = self.rng.choice(self.kinds)
            words = [DLOCK, "run", *self.place.words, "-q", "-k", "job", *kind, "--", "sh", "-c", JUDGED, self.judge,
                     str(self.rng.randrange(10)), "-s" if kind else "-x"]
            with subprocess.Popen(words, env=self.dlock.env) as p:
                torment = self.rng.choice(["none", "none", "front", "keeper", "all", "freeze"])
                if torment != "none":
                    time.sleep(self.rng.random() * 0.2)
                    self.torment(p, torment)
                status = p.wait()
            if torment == "none" and status != 0:
                self.failed.append(status)

    def torment(self, p, torment):
        if torment == "front":
            p.kill()
            return
        if torment == "all":
            kill_all(p.pid)
            return
        below = descendants_of(p.pid)
        if torment == "keeper" and below:
            kill(below[0])
        elif below:
            kill(below[0], signal.SIGSTOP)
            time.sleep(0.1)
            kill(below[0], signal.SIGCONT)


FIVE = ("--limit", "5")


@pytest.mark.parametrize("kinds", [[FIVE], [FIVE, FIVE, ()], [("-s",), ("-s",), ()]], ids=["limit", "limit-alone", "readers-alone"])
def test_nothing_overlaps_and_nothing_leaks_whoever_is_killed(dlock, files, tmp_path, kinds):
    """The judge is the kernel, a flock(2) for the key and one for each slot, which live as long as anything of the command."""
    crowd = [Contender(dlock, files, kinds, str(tmp_path), seed) for seed in range(30)]
    for c in crowd:
        c.start()
    for c in crowd:
        c.join()
    log = (tmp_path / "log").read_text().split()
    assert set(log) == {"run"} and len(log) > 10
    assert [c.failed for c in crowd] == [[]] * 30
    if FIVE in kinds:
        assert {p.name for p in tmp_path.glob("slot.?")} <= {f"slot.{n}" for n in range(5)}
    wait_for(lambda: try_once(dlock, files, "job") == 0, what="the end of all that was killed")
    for _ in range(5):
        dlock.hold(files, "job", *FIVE)
    assert try_once(dlock, files, "job", *FIVE) == 75


# ---- kinds that do not go together ----


@pytest.mark.parametrize("used, asked, words", [
    (("-s",), ("--limit", "5"), ("-s,", "--limit 5")),
    (("--limit", "3"), ("-s",), ("--limit 3,", "-s is")),
    (("--limit", "3"), ("--limit", "5"), ("--limit 3,", "--limit 5")),
    (("--limit", "100000"), ("--limit", "1"), ("--limit 100000,", "--limit 1 ")),
])
@pytest.mark.parametrize("state", ["held", "waited-for"])
def test_kinds_that_do_not_mix_are_refused_naming_both(dlock, files, used, asked, words, state):
    holder = dlock.hold(files, "job", *(used if state == "held" else ()))
    waiter = None if state == "held" else asleep(dlock.contend(files, "job", *used))
    done = dlock.run("run", *files.words, "-k", "job", *asked, "--", "true")
    assert done.status == 76 and all(w in done.stderr for w in words) and done.stderr.count("\n") == 1
    assert try_once(dlock, files, "job") == 75
    holder.finish()
    if waiter:
        assert waiter.held().finish().status == 0
    assert try_once(dlock, files, "job", *asked) == 0
    assert try_once(dlock, files, "job", *used) == 0


def test_a_limit_of_any_size_costs_no_more_than_its_holders(dlock, files):
    holders = [dlock.hold(files, "job", "--limit", "100000") for _ in range(3)]
    assert try_once(dlock, files, "job", "--limit", "100000") == 0
    waiter = asleep(dlock.contend(files, "job", command=("true",)))
    for h in holders:
        assert not waiter.running
        h.finish()
    assert waiter.wait().status == 0


# ---- what is told of those who hold it ----


def test_a_busy_line_names_the_first_who_still_holds_it(dlock, files):
    for kind in ("-s", "limit"):
        first, second, third = (dlock.hold(files, f"job{kind}", *KINDS[kind]) for _ in range(3))
        for gone, named in ((third, first), (first, second)):
            gone.finish()
            done = dlock.run("run", *files.words, "-k", f"job{kind}", "-n", "--", "true")
            assert done.status == 75 and f"(pid {named.front} " in done.stderr


@pytest.mark.parametrize("kind", ["-s", "limit"])
def test_a_place_in_a_mixed_line_is_counted(dlock, files, kind):
    """Holders are before nobody's place, however many there are."""
    for _ in range(3):
        dlock.hold(files, "job", *KINDS[kind])
    for n, waits in enumerate(["-x", kind, kind, "-x", kind], 1):
        dlock.contend(files, "job", *KINDS[waits]).queued(n)


# ---- a file that others write, lock or replace ----


@pytest.mark.parametrize("kind", ["-s", "limit"])
def test_a_truncated_file_frees_nobody(dlock, files, kind):
    holders = [dlock.hold(files, "job", *KINDS[kind]) for _ in range(3)]
    os.truncate(files.directory / "job.lock", 0)
    writer = asleep(dlock.contend(files, "job"))
    os.truncate(files.directory / "job.lock", 0)
    late = asleep(dlock.contend(files, "job", *KINDS[kind]))
    for h in holders:
        assert not writer.running
        h.finish()
    writer.held()
    assert not late.running
    writer.finish()
    assert late.held().token > max(h.token for h in holders)


@pytest.mark.parametrize("block", [b"", b"\0", b"dlock1 x y z\n", b"dlock1 1 1 1\n{\"who\":\"\x1b[31m\"}\n", b"other\n",
                                   b"dlock1 65 1 1\n{\"who\":\"mallory\"}\n"])
def test_a_block_of_a_holder_is_for_people_only(dlock, files, block):
    holder = dlock.hold(files, "job", "-s")
    with open(files.directory / "job.lock", "r+b") as f:
        for n in range(1, 65):
            f.seek(n * 1280)
            f.write(block.ljust(1280, block[-1:]) if block else b"")
    done = dlock.run("run", *files.words, "-k", "job", "-n", "--", "true")
    assert done.status == 75 and "\x1b" not in done.stderr and "mallory" not in done.stderr
    assert holder.finish().status == 0


@pytest.mark.parametrize("kind", ["-s", "limit"])
def test_a_waiter_follows_what_replaces_its_file(dlock, files, kind):
    holder = dlock.hold(files, "job")
    waiter = asleep(dlock.contend(files, "job", *KINDS[kind], command=("true",)))
    (files.directory / "job.lock").unlink()
    second = dlock.hold(files, "job", "-x")
    holder.finish()
    assert not waiter.running
    second.finish()
    assert waiter.wait().status == 0


def cpu(started):
    """Of its keeper, in hundredths of a second; 0 when it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError), \
            open(f"/proc/{children_of(started.pid)[0]}/stat", encoding="utf-8") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start, length", [(1, 0), (1 << 60, 1 << 60), (2 << 60, 1 << 60), (3 << 60, 5), (4 << 60, 0)])
@pytest.mark.parametrize("lock", [fcntl.F_RDLCK, fcntl.F_WRLCK], ids=["read", "write"])
def test_what_a_stranger_locks_ends_with_him(dlock, files, kind, start, length, lock):
    """Meanwhile a run waits or is refused."""
    path = files.directory / "job.lock"
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", lock, os.SEEK_SET, start, length, 0))
        assert try_once(dlock, files, "job", *KINDS[kind]) in (0, 71, 75, 76, 78)
        waiter = dlock.contend(files, "job", *KINDS[kind], command=("true",))
        wait_for(lambda: waiter.poll() is not None or sleeps(waiter), what="an end or a wait")
        before = cpu(waiter)
        time.sleep(0.1)
        assert cpu(waiter) - before <= 5
    assert waiter.wait().status in (0, 71, 76, 78)
    assert try_once(dlock, files, "job", *KINDS[kind]) == 0


# ---- what has been done is done ----


class Job:
    """Runs under one key that leave a mark in a file."""

    def __init__(self, dlock, files, tmp_path):
        self.dlock, self.files, self.mark, self.path = dlock, files, tmp_path / "mark", files.directory / "job.runs"
        self.mark.touch()

    def words(self, *options, then="true"):
        return ["run", *self.files.words, "-k", "job", *options, "--", "sh", "-c", f"echo x >>{self.mark}; {then}"]

    def run(self, *options, then="true", **arguments):
        return self.dlock.run(*self.words(*options, then=then), **arguments)

    @property
    def count(self):
        return len(self.mark.read_text().split())


@pytest.fixture
def job(dlock, files, tmp_path):
    return Job(dlock, files, tmp_path)


def test_an_id_is_run_once(job):
    assert job.run("--once", "2026-11-22").status == 0
    done = job.run("--once", "2026-11-22", "--skipped-exit-code", "9", "-v")
    assert done.status == 9 and job.count == 1
    assert "ID 2026-11-22 was run at 20" in done.stderr and "and ended with 0" in done.stderr
    for n, other in enumerate(["2026-11-2", "2026-11-22 ", "x" * 200, "ä %.", ".", "2026%2D11-22"], 2):
        assert job.run("--once", other).status == 0 and job.count == n
        assert job.run("--once", other).status == 0 and job.count == n
    assert job.run().status == 0 and job.count == 8


def test_only_status_0_counts(job):
    for then in ("false", "exit 75", "kill $$"):
        assert job.run("--once", "a", then=then).status not in (0, 64)
        assert job.run("--cooldown", "1h", then=then).status not in (0, 64)
    assert job.count == 6
    assert job.run("--cooldown", "1h").status == 0 and job.run("--cooldown", "1h").status == 0
    assert job.count == 7
    assert job.run("--once", "a").status == 0 and job.run("--once", "a").status == 0
    assert job.count == 8


def test_a_cooldown_counts_from_the_beginning(job):
    assert job.run("--cooldown", "300ms", then="sleep 0.4").status == 0
    assert job.run("--cooldown", "300ms").status == 0 and job.count == 2
    done = job.run("--cooldown", "1h", "-v")
    assert job.count == 2 and "began" in done.stderr and "less than --cooldown 1h" in done.stderr
    assert job.run("--once", "a").status == 0 and job.count == 3
    assert job.run("--once", "b", "--cooldown", "1h").status == 0 and job.count == 3  # whatever the ID


def test_of_a_crowd_one_runs(dlock, job):
    for options in (("--once", "a"), ("--cooldown", "1h")):
        crowd = [dlock.start(*job.words(*options, then="sleep 0.1")) for _ in range(30)]
        assert [c.wait().status for c in crowd] == [0] * 30
        assert sum(c.events("verdict")[0]["verdict"] == "skipped" for c in crowd) == 29
        job.path.unlink()
    assert job.count == 2


def test_a_crowd_that_finds_it_done_keeps_nobody_waiting(dlock, files, job):
    holder = dlock.hold(files, "job", "--once", "a")
    skipped = [asleep(dlock.start(*job.words("--once", "a"))) for _ in range(5)]
    last = asleep(dlock.contend(files, "job", "--once", "b"))
    holder.finish()
    assert [s.wait().status for s in skipped] == [0] * 5 and job.count == 0
    last.held()


@pytest.mark.parametrize("kind", ["-s", "limit"])
def test_a_job_may_be_of_any_kind(job, kind):
    for _ in range(2):
        assert job.run("--once", "a", *KINDS[kind]).status == 0
    assert job.count == 1


KILLER = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>
    /* Kills its process when it is to write to a file *.runs, after KILL_AFTER bytes of that. */
    ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
    {
        static ssize_t (*real)(int, const void *, size_t, off_t);
        char link[64], path[4096] = "";

        if (!real)
            real = dlsym(RTLD_NEXT, "pwrite");
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".runs")) {
            real(fd, data, atoi(getenv("KILL_AFTER")), at);
            raise(SIGKILL);
        }
        return real(fd, data, n, at);
    }"""


@pytest.mark.parametrize("after", [0, 1, 17, 36, 54, 57])
def test_who_is_killed_before_it_is_written_down_has_not_run(job, tmp_path, after):
    env = {"LD_PRELOAD": compile_shim(tmp_path, "killer", KILLER), "KILL_AFTER": str(after)}
    job.run("--once", "a", env=env)
    assert job.count == 1 and (not job.path.exists() or job.path.stat().st_size == after)
    for _ in range(2):
        assert job.run("--once", "a", "--cooldown", "1h").status == 0
    assert job.count == 2


def test_a_run_that_lost_its_lock_is_not_remembered(dlock, files, job):
    holder = dlock.hold(files, "job", "--once", "a")
    (files.directory / "job.lock").unlink()
    assert holder.finish().status == 79
    assert job.run("--once", "a").status == 0 and job.count == 1


def test_what_cannot_be_written_down_is_said_and_run_again(job):
    job.path.write_bytes(b"#" * 1379 + b"\n")
    done = subprocess.run([DLOCK, *job.words("--once", "a")], capture_output=True, text=True, env=job.dlock.env,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1400, 1400)), check=False)
    assert done.returncode == 0 and "is not remembered" in done.stderr and done.stderr.count("\n") == 1
    assert job.path.stat().st_size == 1380
    assert job.run("--once", "a").status == 0 and job.count == 2


# ---- what stands there ----

NOW = int(time.time() * 1e6)
HOUR, DAY = 3600 * 10**6, 24 * 3600 * 10**6


def line(begin=NOW - HOUR // 2, status=0, name="a", record='{"who":"w"}'):
    return f"{begin} {begin + 1000} {status} {begin} {name} {record}\n".encode()


@pytest.mark.parametrize("text, done", [
    (line(), True), (b"\n\0\0garbage\n" + line() + b"\xff\xfe", True), (line(record="x"), True), (line(record='{"who":"\x1b[31m'), True),
    (line()[:-1], False), (line(record=""), False), (line(name=""), False), (line(status=256), False), (line(status=-1), False),
    (line(status=""), False), (line(begin=10**18), False), (b" " + line(), False),
    (line(name="A"), False), (line(name="a" * 2000), False), (line(record="x" * 1024), False),
    (b"x" * 300000 + line() + line(name="b"), False), (b"x" * 300000 + b"\n" + line(), True),
    (line(name="b").replace(b"\n", b" "), False), (b"\0" * 5000 + b"\n" + line(), True), (line().replace(b"w", b"\0"), False),
    (line(begin=NOW + 400 * DAY), True),
], ids=range(21))
def test_only_a_whole_line_of_that_id_is_a_run(job, text, done):
    job.path.write_bytes(text)
    first = job.run("--once", "a", "-v")
    assert first.status == 0 and job.count == (0 if done else 1) and "\x1b" not in first.stderr
    assert job.run("--once", "a").status == 0 and job.count == (0 if done else 1)


@pytest.mark.parametrize("begin, done", [
    (NOW - HOUR // 2, True), (NOW - 2 * HOUR, False), (NOW + HOUR // 2, True), (NOW + 2 * HOUR, False), (10**18 - 1001, False), (0, False),
], ids=["recent", "old", "ahead", "far ahead", "absurd", "1970"])
def test_a_clock_that_was_wrong_skips_for_no_longer_than_the_cooldown(job, begin, done):
    job.path.write_bytes(line(begin))
    assert job.run("--cooldown", "1h").status == 0 and job.count == (0 if done else 1)


@pytest.mark.parametrize("trap, status", [("symlink", 77), ("fifo", 77), ("directory", 77), ("huge", 76)])
def test_a_file_that_cannot_be_ours_is_refused(job, tmp_path, trap, status):
    if trap == "huge":
        job.path.touch()
        os.truncate(job.path, 2**31)
    else:
        {"symlink": job.path.symlink_to, "fifo": lambda _: os.mkfifo(job.path), "directory": lambda _: job.path.mkdir()}[trap](tmp_path)
    done = job.run("--once", "a")
    assert done.status == status and "job.runs" in done.stderr and job.count == 0
    assert job.run().status == 0  # nobody else is concerned


def test_what_nobody_asks_for_any_more_is_dropped(job):
    """IDs are kept for 400 days; failures and runs without ID only as long as they are the last."""
    keep = [line(NOW - 399 * DAY, name="kept"), line(NOW - HOUR, name=".")]
    drop = [line(NOW - 401 * DAY, name="old"), *[line(NOW - 2 * HOUR, name=".")] * 2000, *[line(status=1, name="failed")] * 2000]
    with open(job.path, "wb") as f:
        f.writelines(drop[:1000] + keep + drop[1000:])
        f.write(b"#" * (-f.tell() % (256 * 1024) - 10) + b"\n")  # the next line goes beyond a step
    size = job.path.stat().st_size
    assert job.run("--once", "kept").status == 0 and job.path.stat().st_size == size
    assert job.run("--once", "failed", then="false").status == 1
    text = job.path.read_bytes()
    assert text.startswith(b"".join(keep)) and text[len(b"".join(keep)):].split()[2] == b"1" and text.count(b"\n") == 3
    assert [p.name for p in job.path.parent.iterdir()] != ["job.runs.new"]
    assert job.run("--cooldown", "2h").status == 0 and job.run("--once", "kept").status == 0 and job.count == 1


def test_a_long_key_has_its_runs_beside_its_lock(dlock, files, tmp_path):
    for _ in range(2):
        dlock.run("run", *files.words, "-k", "k" * 450, "--once", "a", "--", "sh", "-c", f"echo x >>{tmp_path}/mark")
    assert (tmp_path / "mark").read_text() == "x\n"
    assert len(list(files.directory.rglob("*.runs"))) == 1
