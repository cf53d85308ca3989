# Goal of these tests: locks of all kinds in the one line of a lock file, where the
# kernel's locks decide; and what is remembered beside it of runs with --once and
# --cooldown, whatever stands there.

import contextlib
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import stat
import struct
import subprocess
import threading
import time

import pytest

from support import DLOCK, FilePlace, children_of, compile_shim, is_alive, kill, stat_of, wait_for

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

    def looks_of_a_second():
        before = switches(waiter.keeper)
        time.sleep(1)
        return switches(waiter.keeper) - before

    assert any(looks_of_a_second() <= 3 for _ in range(3))  # on a busy machine it has begun late
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


def until_ended(pid):
    wait_for(lambda: not is_alive(pid), what="an end")


def stop(pid):
    kill(pid, signal.SIGSTOP)
    wait_for(lambda: (stat_of(pid) or "?X")[1] in "TtZX", what="a stop")  # until then it may be in the middle of a fork


def kill_all(front):
    """Nobody is left to clean up, but no command either: it goes first, each parent before its children, which the keeper adopts."""
    stop(front)
    keepers = children_of(front)
    for keeper in keepers:
        stop(keeper)
        while below := children_of(keeper):
            for pid in below:
                kill(pid)
                until_ended(pid)
        kill(keeper)
        until_ended(keeper)
    kill(front)


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
        keeper = children_of(p.pid)
        if torment == "keeper" and keeper:
            kill(keeper[0])
        elif keeper:
            kill(keeper[0], signal.SIGSTOP)
            time.sleep(0.1)
            kill(keeper[0], signal.SIGCONT)


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
    (("--limit", "3"), ("-s",), ("--limit 3,", "for -s;")),
    (("--limit", "3"), ("--limit", "5"), ("--limit 3,", "--limit 5")),
    (("--limit", "100000"), ("--limit", "1"), ("--limit 100000,", "--limit 1;")),
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
        self.dlock, self.place, self.mark, self.path = dlock, files, tmp_path / "mark", files.directory / "job.runs"
        self.mark.touch()

    def words(self, *options, then="true"):
        return ["run", *self.place.words, "-k", "job", *options, "--", "sh", "-c", f"echo x >>{self.mark}; {then}"]

    def run(self, *options, then="true", **arguments):
        return self.dlock.run(*self.words(*options, then=then), **arguments)

    @property
    def count(self):
        return len(self.mark.read_text().split())

    def forget(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name, text):
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(text)

    @property
    def files(self):
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*") if p.is_file())


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
        job.forget()
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
    /* Kills its process at the KILL_AT-th step that changes something in a directory *.runs, after KILL_AFTER bytes of it. */
    static int is_next(int fd)
    {
        static int steps;
        char link[64], path[4096] = "";

        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        return readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".runs") && ++steps == atoi(getenv("KILL_AT"));
    }
    ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
    {
        ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");

        if (is_next(fd)) {
            real(fd, data, atoi(getenv("KILL_AFTER")), at);
            raise(SIGKILL);
        }
        return real(fd, data, n, at);
    }
    int ftruncate(int fd, off_t n)
    {
        int (*real)(int, off_t) = dlsym(RTLD_NEXT, "ftruncate");

        return is_next(fd) ? raise(SIGKILL) : real(fd, n);
    }
    int renameat(int from, const char *old, int to, const char *new)
    {
        int (*real)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");

        return is_next(from) ? raise(SIGKILL) : real(from, old, to, new);
    }
    int unlinkat(int at, const char *name, int flags)
    {
        int (*real)(int, const char *, int) = dlsym(RTLD_NEXT, "unlinkat");

        return is_next(at) ? raise(SIGKILL) : real(at, name, flags);
    }"""


@pytest.fixture
def killed(job, tmp_path):
    """Runs a job whose dlock is killed while it writes that down."""
    shim = compile_shim(tmp_path, "killer", KILLER)
    return lambda step, after, *options: job.run(*options, env={"LD_PRELOAD": shim, "KILL_AT": str(step), "KILL_AFTER": str(after)})


@pytest.mark.parametrize("after", [0, 1, 17, 36, 54, 57])
def test_who_is_killed_before_it_is_written_down_has_not_run(job, killed, after):
    killed(2, after, "--once", "a")
    assert job.count == 1 and job.files == ["new"] and (job.path / "new").stat().st_size == after
    for _ in range(2):
        assert job.run("--once", "a", "--cooldown", "1h").status == 0
    assert job.count == 2


def test_who_is_killed_at_any_step_has_run_or_not_and_forgets_nobody(job, killed):
    """All that is remembered of others stays; what the killed one has done counts for an ID, a cooldown, and the last run alike."""
    outcomes = []
    for step in range(1, 30):
        job.forget()
        for name in ("a", "b"):
            assert job.run("--once", name).status == 0
        job.write("48/old", line(name="old"))
        before = job.count
        killed(step, 9, "--once", "c")
        assert job.count == before + 1
        done = (job.path / "last").read_text().split()[4] == "c"
        for name in ("a", "b"):
            assert job.run("--once", name).status == 0 and job.count == before + 1
        assert job.run("--cooldown", "1h").status == 0 and job.count == before + 1
        assert job.run("--once", "c").status == 0 and job.count == before + (1 if done else 2)
        outcomes.append(done)
        if step > 1 and not (job.path / "48").exists() and done:
            break
    assert outcomes == sorted(outcomes) and outcomes.count(False) == 9 and outcomes.count(True) >= 3


def test_a_run_that_lost_its_lock_is_not_remembered(dlock, files, job):
    holder = dlock.hold(files, "job", "--once", "a")
    (files.directory / "job.lock").unlink()
    assert holder.finish().status == 79
    assert job.run("--once", "a").status == 0 and job.count == 1


def test_what_cannot_be_written_down_is_said_and_run_again(job):
    words = ("--once", "\u00e4" * 100, "--who", '"' * 200, "--why", '"' * 200)  # longer than a lock file
    assert job.run("--once", "b").status == 0
    done = subprocess.run([DLOCK, *job.words(*words)], capture_output=True, text=True, env=job.dlock.env,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1300, 1300)), check=False)
    assert done.returncode == 0 and "is not recorded" in done.stderr and done.stderr.count("\n") == 1
    assert (job.path / "last").read_text().split()[4] == "b" and not (job.path / "new").exists()
    assert job.run(*words).status == 0 and job.count == 3


# ---- what stands there ----

NOW = int(time.time() * 1e6)  # when the tests begin: some are run an hour later, so what is recent is counted in days
DAY = 24 * 3600 * 10**6
ERA = NOW // (400 * DAY)


def line(begin=NOW - DAY // 2, status=0, name="a", record='{"who":"w"}'):
    return f"{begin} {begin + 1000} {status} {begin} {name} {record}\n".encode()


@pytest.mark.parametrize("name", ["last", f"{ERA}/a"])
@pytest.mark.parametrize("text, done", [
    (line(), True), (b"\n\0\0garbage\n" + line() + b"\xff\xfe", False), (line(record="x"), True), (line(record='{"who":"\x1b[31m'), True),
    (line()[:-1], False), (line(record=""), False), (line(name=""), False), (line(status=256), False), (line(status=-1), False),
    (line(status=""), False), (line(begin=10**18), False), (b" " + line(), False),
    (line(name="A"), False), (line(name="a" * 2000), False), (line(record="x" * 1024), False),
    (b"x" * 300000 + line() + line(name="b"), False), (b"x" * 300000 + b"\n" + line(), False),
    (line(name="b").replace(b"\n", b" "), False), (b"\0" * 5000 + b"\n" + line(), False), (line().replace(b"w", b"\0"), False),
    (line(begin=NOW + 400 * DAY), True), (line() + b"\xff\xfe", True),
], ids=range(22))
def test_only_a_whole_line_of_that_id_is_a_run(job, name, text, done):
    job.write(name, text)
    first = job.run("--once", "a", "-v")
    assert first.status == 0 and job.count == (0 if done else 1) and "\x1b" not in first.stderr
    assert job.run("--once", "a").status == 0 and job.count == (0 if done else 1)


def listed(dlock, files):
    """{ID or None: status of the last run, or of the last success}"""
    done = dlock.run("ls", "--jobs", "-J", *files.words)
    assert done.status == 0 and "\x1b" not in done.stdout, done
    objects = [json.loads(text) for text in done.stdout.splitlines()]
    assert {o["key"] for o in objects} <= {"job"}
    return {o["id"]: [run and run["status"] for run in (o["last"], o["last_success"])] for o in objects}


def test_what_stands_there_and_is_no_run_is_not_listed(job, dlock, files):
    assert listed(dlock, files) == {}
    for name, text in ((f"{ERA}/a", line()), (f"{ERA}/b", line()), (f"{ERA}/c", line(name="c", status=1)), (f"{ERA}/d", b"torn"),
                       (f"{ERA}/e", line(name="e", record='{"who":"\x1b[31m')), (f"{ERA}x/f", line(name="f")), ("g", line(name="g")),
                       (f"{ERA - 9}/h", line(name="h")), (f"{ERA}/i", b"x" * 300000 + line(name="i")), ("good", b"\0" * 99)):
        job.write(name, text)
    (job.path / f"{ERA}" / "j").symlink_to("a")
    (job.path / f"{ERA}" / "k").mkdir()
    os.mkfifo(job.path / f"{ERA}" / "l")
    done = dlock.run("ls", "--jobs", *files.words)
    assert done.status == 77 and "the only record of what was run" in done.stderr, done  # what is no plain file is not trusted
    for name in "jkl":
        (os.rmdir if name == "k" else os.unlink)(job.path / f"{ERA}" / name)
    shown = {"c": [1, None], **{name: [None, 0] for name in "aeh"}}  # c has failed, which counts for runs with --no-retry
    assert listed(dlock, files) == shown
    job.write("last", line(name="m", status=3))
    job.write("good", line(name="n"))
    assert listed(dlock, files) == {None: [3, 0], **shown}
    (job.path / f"{ERA}" / "k").mkdir()
    assert dlock.run("forget", "-y", *files.words, "job").status == 0
    (job.path / f"{ERA}" / "k").rmdir()
    assert listed(dlock, files) == {}
    assert job.files == ["51x/f".replace("51", str(ERA)), "g"]  # others' files stay


def test_a_run_that_seems_to_be_to_come_is_no_recent_one(job, dlock, files):
    job.write("last", line(begin=NOW + 400 * DAY))
    assert dlock.run("status", "--done-within", "26h", *files.words, "job").status == 1
    job.write("last", line(begin=NOW + DAY // 2))
    assert dlock.run("status", "--done-within", "26h", *files.words, "job").status == 0


def test_forgetting_waits_for_who_remembers(job, dlock, files):
    """And is told when that one does not go on."""
    assert job.run("--once", "a").status == 0
    with open(files.directory / "job.lock", "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        done = dlock.run("forget", "-y", *files.words, "job")
        assert done.status == 69 and "keeps job.lock locked" in done.stderr, done
    assert job.run("--once", "a").status == 0 and job.count == 1


@pytest.mark.parametrize("begin, done", [
    (NOW - DAY // 2, True), (NOW - 2 * DAY, False), (NOW + DAY // 2, True), (NOW + 2 * DAY, False), (10**18 - 1001, False), (0, False),
], ids=["recent", "old", "ahead", "far ahead", "absurd", "1970"])
@pytest.mark.parametrize("name", ["last", "good"])
def test_a_clock_that_was_wrong_skips_for_no_longer_than_the_cooldown(job, name, begin, done):
    job.write(name, line(begin))
    assert job.run("--cooldown", "24h").status == 0 and job.count == (0 if done else 1)


@pytest.mark.parametrize("era", [0, ERA - 1, ERA + 3], ids=["before the first", "last", "to come"])
def test_a_clock_that_was_wrong_hides_no_id(job, era):
    job.write(f"{era}/a", line())
    assert job.run("--once", "a").status == 0 and job.count == 0


def test_a_clock_that_was_wrong_pushes_no_run_out(job):
    """The last run was made in the year 2100; the one before it keeps its cooldown."""
    job.write("good", line(name="."))
    job.write("last", line(NOW + 27000 * DAY, name="."))
    assert job.run("--once", "a", then="false").status == 1
    assert job.run("--cooldown", "24h").status == 0 and job.count == 1
    assert job.run("--once", "b").status == 0
    assert job.run("--once", "c").status == 0 and int((job.path / "good").read_text().split()[0]) >= NOW


def test_a_run_that_began_last_counts_though_it_ended_first(job):
    job.write("good", line(name="."))
    job.write("last", line(NOW - 2 * DAY, name="."))
    assert job.run("--once", "a", then="false").status == 1
    assert job.run("--cooldown", "24h").status == 0 and job.count == 1


@pytest.mark.parametrize("trap, name", [(trap, name) for trap in ("symlink", "fifo", "directory", "file")
                                        for name in ("", "last", "good", f"{ERA}", f"{ERA}/a")
                                        if trap != ("directory" if name in ("", f"{ERA}") else "file")])  # what can be ours
def test_a_file_that_cannot_be_ours_is_refused(job, tmp_path, trap, name):
    """What has a run's name may be what somebody counts on: it is not passed over in silence."""
    path = job.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    {"symlink": path.symlink_to, "fifo": lambda _: os.mkfifo(path), "directory": lambda _: path.mkdir(),
     "file": lambda _: path.write_bytes(line())}[trap](tmp_path)
    done = job.run("--once", "a")
    assert done.status == 77 and "job.runs" in done.stderr and job.count == 0
    assert job.run().status == 0  # nobody else is concerned


def test_a_log_of_the_first_dlocks_is_refused(dlock, job, files):
    """They kept one file, with a line for each run, and one of them may still have the key."""
    log = line(name="a") + line(name="b", status=1)
    job.path.write_bytes(log)
    for words in (("--once", "a"), ("--once", "c"), ("--cooldown", "1h")):
        done = job.run(*words)
        assert done.status == 77 and "job.runs is a file, as dlocks of before 2026-11-25 had it" in done.stderr and "remove it" in done.stderr, done
    for words in (("ls", "--jobs", *files.words), ("forget", "-y", *files.words, "job")):
        done = dlock.run(*words)
        assert done.status == 77 and "job.runs" in done.stderr, done
    assert job.count == 0 and job.path.read_bytes() == log
    assert job.run().status == 0
    job.path.unlink()
    assert job.run("--once", "a").status == 0 and job.count == 2


def test_a_name_that_is_no_eras_is_left_alone(job, tmp_path):
    for name in ("x", "-1", "48x", "1000000000000000000", " 1"):
        job.write(f"{name}/a", line())
    assert job.run("--once", "a").status == 0 and job.run("--once", "b").status == 0 and job.count == 2
    assert len(job.files) == 5 + 3


def test_what_nobody_asks_for_any_more_is_dropped(job):
    """Of each era but this one and the last, a few files with each run; what is not ours stays."""
    for era in (ERA - 3, ERA - 2, ERA - 1, ERA, ERA + 1):
        for n in range(150):
            job.write(f"{era}/{n}", line(name=n))
    job.write(f"{ERA - 3}/x/precious", b"")
    left = []
    for n in range(4):
        assert job.run("--once", f"new {n}").status == 0
        left.append([sum(f.startswith(f"{era}/") for f in job.files) for era in (ERA - 3, ERA - 2, ERA - 1, ERA, ERA + 1)])
    assert all(80 < old < 90 for old in left[0][:2]) and left[-1] == [1, 0, 150, 153, 150]
    assert (job.path / f"{ERA - 3}/x/precious").exists() and not (job.path / f"{ERA - 2}").exists()


def test_only_what_ended_with_0_is_kept_behind_the_last_run(job):
    for n, status in enumerate((0, 1, 0, 2)):
        assert job.run("--once", str(n), then=f"exit {status}").status == status
    assert job.files == [f"{ERA}/0", f"{ERA}/2", "good", "last"]
    assert (job.path / "last").read_text().split()[2:5:2] == ["2", "3"]


def test_files_of_runs_are_open_to_whom_the_directory_is(job):
    job.place.directory.chmod(0o2770)
    for name in ("a", "b"):
        assert job.run("--once", name).status == 0
    modes = {f: stat.S_IMODE((job.path / f).stat().st_mode) for f in ("", f"{ERA}", f"{ERA}/a", "good", "last")}
    assert modes == {"": 0o2770, f"{ERA}": 0o2770, f"{ERA}/a": 0o660, "good": 0o660, "last": 0o660}


def test_a_long_key_has_its_runs_beside_its_lock(dlock, files, tmp_path):
    for _ in range(2):
        dlock.run("run", *files.words, "-k", "k" * 450, "--once", "a", "--", "sh", "-c", f"echo x >>{tmp_path}/mark")
    assert (tmp_path / "mark").read_text() == "x\n"
    assert len(list(files.directory.rglob("*.runs"))) == 1 and len(list(files.directory.rglob("last"))) == 1
