# Goal of these tests: what is peculiar to looking at locks of the file backend and steering
# them.  A look leaves no trace; whatever stands in a directory is harmless; a mark means
# one grant and a freeze everybody, at whatever moment whoever makes them is killed.

import contextlib
import fcntl
import json
import os
import pathlib
import random
import re
import resource
import signal
import shutil
import struct
import subprocess
import time

import pytest

from support import ADMIN, DLOCK, PATIENCE, FilePlace, boottime, compile_shim, spent, wait_for

BLOCK = 1280
FREEZE = 2 * BLOCK
ALICE = '{"who":"alice@laptop","why":"release"}'
BOB = '{"who":"bob@laptop"}'
KINDS = {"exclusive": (), "shared": ("-s",), "limit": ("--limit", "2")}
LOST, AGAIN = "rc not ours", "rc no answer"


class Entry(dict):
    """A line of dlock-admin: its kind and what it says."""

    def __init__(self, line):
        kind, *pairs = line.split("\t")
        super().__init__(pair.split("=", 1) for pair in pairs)
        self.kind = kind

    def __getattr__(self, name):
        return int(self[name]) if self[name].lstrip("-").isdigit() else self[name]


class Admin:
    """Looks and steers, without the subcommands."""

    def __init__(self, files):
        self.words = [ADMIN, "file", files.url]

    def call(self, *words, **options):
        done = subprocess.run([*self.words, *map(str, words)], capture_output=True, timeout=PATIENCE, check=False, **options)
        *entries, rc = done.stdout.decode().splitlines() or [""]
        return [Entry(line) for line in entries], rc

    def each(self, *words):
        entries, rc = self.call("each", *words)
        assert rc.startswith("rc ok")
        return entries

    def key(self, key, kind=None):
        return [e for e in self.each(key) if kind in (None, e.kind)]

    def rc(self, *words, **options):
        return self.call(*words, **options)[1]

    def does(self, *words):
        assert self.rc(*words).startswith("rc ok")


@pytest.fixture
def files(request):
    return FilePlace(request)


@pytest.fixture
def admin(files):
    return Admin(files)


def lock_file(files, key):
    return files.directory / f"{key}.lock"


def try_once(dlock, files, key, *options):
    return dlock.run("run", *files.words, "-k", key, "-n", *options, "--", "true", events=False)


def kinds(entries):
    return [e.kind for e in entries]


# ---- looking ----


def test_what_is_there_is_told_as_it_is(dlock, files, admin):
    holder = dlock.hold(files, "job")
    waiters = [dlock.contend(files, "job", *options).queued(n) for n, options in enumerate([("-s",), (), ("-s",)], 1)]
    found = admin.key("job")
    assert kinds(found) == ["holder", "waiter", "waiter", "waiter"]
    assert (found[0].token, found[0].slot, found[0].until, found[0].revoked) == (holder.token, -1, -1, 0)
    assert 0 <= found[0].now - found[0].since < PATIENCE * 1_000_000
    assert [(e.position, e.lock) for e in found[1:]] == [(1, 2), (2, 0), (3, 2)]
    for started, e in zip([holder, *waiters], found):
        assert f'"pid":{started.pid},' in e.record and len(e.owner) == 32 and e.since > 0
    assert [(e.kind, e.key) for e in admin.each()] == [("holder", "job")] + 3 * [("waiter", "job")]
    assert [(e.kind, e.count) for e in admin.each("job", "brief")][1:] == [("waiting", 3)]
    holder.finish()
    assert waiters[0].held()
    found = admin.key("job")
    assert [(e.kind, e.lock) for e in found] == [("holder", 2), ("waiter", 0), ("waiter", 2)]
    assert found[0].token == waiters[0].token


@pytest.mark.parametrize("kind", ["shared", "limit"])
def test_several_holders_are_told_in_the_order_of_their_grants(dlock, files, admin, kind):
    options = ("-s",) if kind == "shared" else ("--limit", "100")
    holders = [dlock.hold(files, "job", *options) for _ in range(12)]
    for n in (0, 5, 6):
        holders.pop(n).finish()
        holders.append(dlock.hold(files, "job", *options))
    found = admin.key("job")
    assert [e.token for e in found] == [h.token for h in holders]
    assert all(f'"pid":{h.pid},' in e.record for e, h in zip(found, holders))
    if kind == "limit":
        assert sorted(e.slot for e in found) == list(range(12)) and {e.limit for e in found} == {100}


def test_who_has_died_is_not_told_of(dlock, files, admin):
    holder, dead = dlock.hold(files, "job"), dlock.contend(files, "job").queued(1)
    dlock.contend(files, "job").queued(2)
    dead.destroy()
    wait_for(lambda: [(e.kind, e.position) for e in admin.key("job")] == [("holder", 0), ("waiter", 1)], what="its end")
    holder.destroy()
    wait_for(lambda: kinds(admin.key("job")) == ["holder"], what="the next holder")


def test_where_nothing_is_nothing_is_made(files, admin):
    assert admin.each() == admin.each("job") == admin.each("long" * 100) == []
    assert LOST in admin.rc("thaw", "job") and LOST in admin.rc("revoke", "job", 1, "-", BOB)
    assert list(files.directory.iterdir()) == []
    files.directory.rmdir()
    assert "no such directory" in admin.rc("each")  # as a run would say
    assert not files.directory.exists()


def test_the_last_run_of_a_job_is_told_with_its_key(dlock, files, admin):
    for n, status in ((1, 0), (2, 3)):
        words = ["run", *files.words, "-k", "job", "--once", f"a b{n}", "--", "sh", "-c", f"exit {status}"]
        assert dlock.run(*words, events=False).status == status
    last, good = admin.key("job")
    assert (good.kind, good.once, good.status) == ("good", "a b1", 0)
    assert (last.kind, last.once, last.status) == ("last", "a b2", 3)
    assert 0 < last.since <= last.until <= last.now and last.token > 0 and '"who"' in last.record
    assert admin.each() == []
    path = files.directory / "job.runs" / "last"
    path.write_bytes(b"1 2 0 3 . {}\n" + b"torn 1 2")
    assert [(e.kind, e["once"] if "once" in e else None, e.since) for e in admin.key("job")] == [("last", None, 1)]  # of 0, so no other is told
    for text in (b"x" * 100_000, b"\n\x1b[31m\n" + b"1 2 0 3 . {}\n", b"torn 1 2", b""):
        path.write_bytes(text)
        assert [(e.kind, e.once) for e in admin.key("job")] == [("good", "a b1")]


def locks_below(directory):
    """The kernel's, of all who have a file there open.  /proc/locks comes in pages, between which locks of others come and go."""
    found = set()
    for fd in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has been closed
            if fd.readlink().is_relative_to(directory):
                found |= set(re.findall(r"^lock:\s*\d+: (.*)", (fd.parent.parent / "fdinfo" / fd.name).read_text(), re.M))
    return sorted(found)


def traces(directory):
    """All that a look could change: bytes, times, names, and the kernel's locks."""
    found = {}
    for path in sorted(directory.rglob("*")):
        st = path.lstat()
        times = [st.st_mtime_ns]
        if path.is_file() and not path.is_symlink():  # looking at others here leaves traces itself
            times.append(st.st_atime_ns)
        data = path.read_bytes() if len(times) > 1 else None
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns), follow_symlinks=False)
        found[str(path)] = (st.st_ino, st.st_mode, st.st_size, times, data)
    return found, locks_below(directory)


def test_a_look_changes_nothing(dlock, files, admin):
    dlock.hold(files, "job")
    dlock.contend(files, "job").queued(1)
    dlock.hold(files, "readers", "-s")
    dlock.contend(files, "readers").queued()
    dlock.hold(files, "limited", "--limit", "3")
    dlock.hold(files, "x/" * 250)
    dlock.run("run", *files.words, "-k", "once", "--once", "a", "--", "true")
    admin.does("freeze", "frozen", ALICE)
    admin.does("freeze", "thawed", ALICE, "0.001")
    for key in ("once", "frozen", "thawed"):  # as long as the last access is not older, none is written down
        os.utime(lock_file(files, key), (1, 1))
    before = traces(files.directory)
    assert len(before[1]) >= 6
    for key in ([], ["job"], ["readers"], ["limited"], ["once"], ["frozen"], ["thawed"], ["x/" * 250], ["none"], ["job", "brief"]):
        admin.each(*key)
    assert traces(files.directory) == before
    assert sorted(e.key for e in admin.each() if e.kind in ("holder", "freeze")) == [
        "frozen", "job", "limited", "readers", "x/" * 250]


# ---- what others may have put there ----


@pytest.mark.parametrize("key", ["a" * 512, "ä/" * 170, "%" * 200, "+" * 66, "..", "a b", "~x.lock"])
def test_every_key_is_told_as_it_was_named(dlock, files, admin, key):
    holder = dlock.hold(files, key)
    found, = admin.each()
    assert found.token == holder.token
    assert found["key"] == "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02X}" for b in key.encode())
    admin.does("freeze", key, ALICE)
    assert kinds(admin.key(key)) == ["holder", "freeze"]


def test_foreign_files_are_not_touched(dlock, files, admin, tmp_path):
    """Those whose names are a lock's are told of; none is opened that is not plain."""
    holder = dlock.hold(files, "job")
    victim = tmp_path / "victim"
    victim.write_text("dlock1 7 7 7\n{}\n")
    told = {"link": lambda p: p.symlink_to(victim), "hard": lambda p: p.hardlink_to(victim), "fifo": os.mkfifo,
            "directory": lambda p: p.mkdir(), "text": lambda p: p.write_text("precious\n"),
            "loop": lambda p: p.symlink_to(p), "large": lambda p: p.write_bytes(b"x" * 1_000_000)}
    for name, make in told.items():
        make(lock_file(files, name))
    for name in ("notes.txt", ".lock", "a b.lock", "%0A.lock", "%41.lock", "%2.lock", "%00.lock", "job.LOCK", "job.lock.new",
                 "+.lock", "job.runs", "x" * 250 + ".lock", "x" * 201 + ".lock", "\udcff.lock"):
        (files.directory / name).write_text("dlock1 7 7 7\n{}\n")
    deep = files.directory / ("y" * 200 + "+")
    deep.mkdir()
    (deep / "z.lock").write_text("precious\n")
    (files.directory / ("w" * 200 + "+")).symlink_to(tmp_path)
    (files.directory / ("v" * 200 + "+")).write_text("")
    before = traces(files.directory)
    found = {e.key: e for e in admin.each()}
    assert found.pop("job").token == holder.token
    assert {e.kind for e in found.values()} == {"unknown"} and all(e["what"] for e in found.values())
    assert sorted(found) == sorted([*told, "y" * 200 + "z"])
    for name in told:
        assert kinds(admin.key(name)) == ["unknown"]
    after = traces(files.directory)
    assert [p for p in before[0] if after[0][p] != before[0][p]] == [] and after == before
    for name in told:
        for words in (["revoke", name, 7, "-", BOB], ["freeze", name, BOB], ["thaw", name]):
            assert not admin.rc(*words).startswith(("rc ok", "rc out"))
    assert [t[4] for t in traces(files.directory)[0].values()] == [t[4] for t in before[0].values()]


NUMBERS = [b"", b"0", b"-1", b"x", b"999999999999999999", b"9223372036854775807", b"18446744073709551616", b"1" * 400]


@pytest.mark.parametrize("at", [0, FREEZE, 4 * BLOCK, BLOCK], ids=["header", "freeze", "place", "mark"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_stands_in_a_file_is_harmless(dlock, files, admin, at, seed):
    """Bytes of others: no crash, no endless look, no holder who is not there, and the holder goes on."""
    rng = random.Random(seed)
    holder, path = dlock.hold(files, "job"), lock_file(files, "job")
    waiter = dlock.contend(files, "job", "-s").queued(1)
    whole = path.read_bytes()
    for _ in range(30):
        line = b"dlock1 " + b" ".join(rng.choice(NUMBERS) for _ in range(rng.randrange(9)))
        junk = rng.choice([line + b"\n", line, b"\0" * BLOCK, b"\xff" * 3000, rng.randbytes(BLOCK),
                           line + b"\n\x1b[2J\xe2\x80\xae{\"who\":" + b"[" * 3000, b"dlock1 1 1 1 1 0 1 -\n" + b"\0" * 1000])
        with open(path, "r+b") as f:
            f.write(whole)
            f.seek(at)
            f.write(junk)
        entries, rc = admin.call("each", "job")
        assert rc.startswith("rc ok") and kinds(entries)[:1] in (["holder"], ["waiter"], ["unknown"])
        assert len([e for e in entries if e.kind in ("holder", "waiter")]) in (0, 2)
        assert {e.key for e in entries} == {"job"} and all(len(str(e)) < 8192 for e in entries)
        assert admin.call("each")[1].startswith("rc ok")
        path.write_bytes(whole)
    assert holder.finish().status == 0
    waiter.held()


@pytest.mark.parametrize("start, length", [(0, 0), (1, 0), (1, 1 << 60), (2 << 60, 1 << 60), (4 << 60, 1 << 60), (3 << 60, 1 << 60)])
@pytest.mark.parametrize("lock", [fcntl.F_RDLCK, fcntl.F_WRLCK], ids=["read", "write"])
def test_what_a_stranger_locks_is_no_crowd(files, admin, lock, start, length):
    """Also of a byte for each of 10^18 numbers only a few entries come."""
    path = lock_file(files, "job")
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", lock, os.SEEK_SET, start, length, 0))
        assert len(admin.key("job")) <= 64
        entries, rc = admin.call("each")
        assert rc.startswith("rc ok") and len(entries) <= 64


def test_a_stranger_is_one_holder_and_waits_for_nothing(dlock, files, admin):
    path = lock_file(files, "job")
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        done = dlock.run("status", *files.words, "-J", "-k", "job")
        seen = json.loads(done.stdout)
        assert [(h["foreign"], h["token"]) for h in seen["holders"]] == [(True, None)] and seen["waiters"] == [], seen
        assert "another program" in dlock.run("status", *files.words, "-k", "job").stdout


def test_a_stopped_process_at_the_lock_file_keeps_nobody_from_looking(dlock, files, admin):
    holder = dlock.hold(files, "job")
    with open(lock_file(files, "job"), "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        assert [e.token for e in admin.key("job")] == [holder.token]


# ---- many ----


class Crowd:
    """Lock files with their holders, as many dlocks would make them."""

    def __init__(self, files, n):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        self.fds = []
        for i in range(n):
            fd = os.open(lock_file(files, f"key{i}"), os.O_RDWR | os.O_CREAT, 0o600)
            self.fds.append(fd)
            os.write(fd, f'dlock1 2 {i + 1} {i + 1} 0 0 1 {i:032x}\n{{"who":"user{i}"}}\n'.encode().ljust(BLOCK, b"\n"))
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0))

    def close(self):
        for fd in self.fds:
            os.close(fd)


def most_memory(pid):
    """In KiB, that it has ever had."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1])


def test_ten_thousand_locks_are_told_at_once_and_in_little_memory(files, admin):
    crowd = Crowd(files, 10_000)
    try:
        begin = boottime()
        with subprocess.Popen([*admin.words, "each"], stdout=subprocess.PIPE) as p:
            first = p.stdout.readline()
            told = spent(begin)
            rest = [p.stdout.readline() for _ in range(9_000)]  # what is left does not fit into a pipe: it lives
            memory = most_memory(p.pid)
            rest += p.stdout.readlines()
    finally:
        crowd.close()
    assert first.startswith(b"holder") and told < 1
    assert len(rest) == 10_000 and rest[-1].startswith(b"rc ok")
    assert memory < 16 * 1024
    assert len({line.split(b"\t")[1] for line in [first, *rest[:-1]]}) == 10_000


# ---- marks ----


def test_a_mark_is_read_with_the_next_renewal_and_means_one_grant(dlock, files, admin):
    holder = dlock.start("run", *files.words, "-k", "job", "-t", "3s", "--", "sleep", "1000").held()
    waiter = dlock.contend(files, "job", "-t", "3s").queued(1)
    for wrong in ((holder.token + 1, "-"), (holder.token, "0" * 32), (0, "-"), (0, "0" * 32)):
        assert LOST in admin.rc("revoke", "job", *wrong, BOB)
    entry = admin.key("job", "holder")[0]
    holder.signal(signal.SIGSTOP, "keeper")  # it reads both at once
    admin.does("revoke", "job", holder.token, entry.owner, BOB)
    admin.does("revoke", "job", 0, entry.owner, ALICE)
    holder.signal(signal.SIGCONT, "keeper")
    done = holder.wait()
    assert done.status == 79 and "alice@laptop" in done.stderr
    assert waiter.held().token > holder.token
    assert admin.key("job", "holder")[0].revoked == 0
    assert LOST in admin.rc("revoke", "job", holder.token, "-", BOB)
    time.sleep(1.5)  # it renews, and is meant by nobody
    assert waiter.finish().status == 0


@pytest.mark.parametrize("kind", ["shared", "limit"])
def test_one_of_several_is_meant(dlock, files, admin, kind):
    run = ["run", *files.words, "-k", "job", *KINDS[kind], "-t", "3s", "--", "sleep", "1000"]
    first, second = (dlock.start(*run).held() for _ in range(2))
    waiter = dlock.contend(files, "job", *KINDS[kind], "-t", "3s") if kind == "limit" else None
    second.signal(signal.SIGSTOP, "keeper")  # until it was seen
    admin.does("revoke", "job", second.token, "-", BOB)
    assert [e.revoked for e in admin.key("job", "holder")] == [0, 1]
    second.signal(signal.SIGCONT, "keeper")
    assert second.wait().status == 79
    if waiter:
        waiter.held()
    time.sleep(1.5)
    assert first.poll() is None and {e.revoked for e in admin.key("job", "holder")} == {0}


def test_a_mark_that_was_not_read_in_time_means_nobody_else(dlock, files, admin):
    """Who ends by himself is followed by one whom the mark does not mean, at the same place in the file."""
    for options in KINDS.values():
        for _ in range(3):
            holder = dlock.hold(files, "job", *options, "-t", "60s")
            admin.does("revoke", "job", holder.token, "-", BOB)
            assert holder.finish().status == 0
            after = dlock.hold(files, "job", *options, "-t", "3s")
            assert [e.revoked for e in admin.key("job", "holder")] == [0]
            time.sleep(1.2)
            assert after.poll() is None and after.finish().status == 0


def test_force_is_refused(dlock, files):
    holder = dlock.hold(files, "job")
    done = dlock.run("break", *files.words, "-k", "job", "--force", "-y")
    assert done.status == 78 and "cannot take a lock away" in done.stderr
    assert holder.poll() is None and holder.finish().status == 0


# ---- freezes ----


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_takes_a_frozen_key(dlock, files, admin, kind):
    """Neither who waits already, wherever in the line, nor who comes; then all in their order."""
    options = KINDS[kind]
    holders = [dlock.hold(files, "job", *options) for _ in range(1 if kind == "exclusive" else 2)]
    waiters = [dlock.contend(files, "job").queued()]
    waiters += [dlock.contend(files, "job", *options).queued() for _ in range(4)]
    admin.does("freeze", "job", ALICE)
    assert [e.kind for e in admin.key("job")] == ["holder"] * len(holders) + ["waiter"] * 5 + ["freeze"]
    for h in holders:
        assert h.finish().status == 0
    waiters[0].event("waiting", frozen=True, position=1)
    waiters.append(dlock.contend(files, "job", *options).queued())
    assert kinds(admin.key("job")) == ["waiter"] * 6 + ["freeze"]
    for words in ((), options, ("-s",)):
        done = try_once(dlock, files, "job", *words)
        assert done.status in (75, 76) and (done.status == 76 or "alice@laptop" in done.stderr)
    late = dlock.run("run", *files.words, "-k", "job", *options, "-w", "0.2s", "--", "true")
    assert late.status == 75 and "alice@laptop" in late.stderr
    assert not any(w.running for w in waiters)
    admin.does("thaw", "job")
    waiters[0].held()
    assert not any(w.running for w in waiters[1:]) and admin.key("job", "freeze") == []
    before = waiters[0].token
    waiters[0].finish()
    for w in waiters[1:]:
        assert w.held().token > before
        w.finish()


def test_who_gives_up_says_what_has_become_of_the_lock_meanwhile(dlock, files, admin):
    """He sleeps behind another one: only at the end he looks again."""
    holder = dlock.hold(files, "job")
    dlock.contend(files, "job").queued(1)
    last = dlock.contend(files, "job", "-w", "6s").queued(2)
    admin.does("freeze", "job", ALICE)
    holder.finish()
    done = last.wait()
    assert done.status == 75 and "frozen by alice@laptop" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_thaw_wakes_all_that_may_hold(dlock, files, admin, kind):
    """Of those who came when it was frozen already and nobody held it."""
    admin.does("freeze", "job", ALICE)
    waiters = [dlock.contend(files, "job", *KINDS[kind]).queued() for _ in range(4)]
    time.sleep(0.5)
    assert not any(w.running for w in waiters) and kinds(admin.key("job")) == ["waiter"] * 4 + ["freeze"]
    admin.does("thaw", "job")
    count = {"exclusive": 1, "shared": 4, "limit": 2}[kind]
    wait_for(lambda: sum(w.running for w in waiters) == count, what="as many as fit")
    assert kinds(admin.key("job")) == ["holder"] * count + ["waiter"] * (4 - count)
    while waiters:
        runs = wait_for(lambda: [w for w in waiters if w.running], what="the next one")
        waiters.remove(runs[0])
        assert runs[0].finish().status == 0


@pytest.mark.parametrize("came", ["before", "after"])
def test_who_waits_for_a_thaw_sleeps(dlock, files, admin, came):
    """Though there are free slots, perhaps since he has waited for one."""
    holder = dlock.hold(files, "job", "--limit", "1") if came == "before" else None
    waiter = dlock.contend(files, "job", "--limit", "1").queued() if holder else None
    admin.does("freeze", "job", ALICE)
    if holder:
        holder.finish()
    else:
        waiter = dlock.contend(files, "job", "--limit", "1")
    waiter.event("waiting", frozen=True, position=1)

    def cpu():
        with open(f"/proc/{waiter.keeper}/stat", encoding="utf-8") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    before = cpu()
    time.sleep(3)
    assert cpu() - before <= 5
    admin.does("thaw", "job")
    waiter.held()


@pytest.mark.parametrize("kind", KINDS)
def test_a_freeze_ends_by_itself(dlock, files, admin, kind):
    begin = time.time()
    admin.does("freeze", "job", ALICE, "2")
    freeze, = admin.key("job")
    assert freeze.until - freeze.since == 2_000_000
    waiter = dlock.contend(files, "job", *KINDS[kind]).held()
    assert time.time() - begin >= 2
    assert admin.key("job", "freeze") == [] and LOST in admin.rc("thaw", "job")
    assert waiter.finish().status == 0
    assert try_once(dlock, files, "job").status == 0


def test_the_end_of_a_freeze_counts_from_the_last_one(dlock, files, admin):
    admin.does("freeze", "job", ALICE, "0.001")
    admin.does("freeze", "job", BOB)
    freeze, = admin.key("job")
    assert (freeze.until, "bob" in freeze.record) == (-1, True)
    assert try_once(dlock, files, "job").status == 75
    admin.does("freeze", "job", ALICE, "0.001")
    wait_for(lambda: admin.key("job") == [], what="the end of a freeze of a millisecond")
    assert try_once(dlock, files, "job").status == 0
    assert LOST in admin.rc("thaw", "job")


def test_a_freeze_needs_nobody_and_is_kept_by_runs(dlock, files, admin):
    """Of a key that nobody has asked for before; those who fail do not end it, nor does a job that has been done."""
    admin.does("freeze", "job", ALICE)
    assert [e.kind for e in admin.each()] == ["freeze"]
    for words in ((), ("-s",), ("--limit", "3"), ("--once", "a")):
        assert try_once(dlock, files, "job", *words).status == 75
    dead = dlock.contend(files, "job").queued()
    dead.destroy()
    assert try_once(dlock, files, "job").status == 75
    wait_for(lambda: kinds(admin.key("job")) == ["freeze"], what="the kernel's end of who has died")
    admin.does("thaw", "job")
    assert admin.each() == [] and try_once(dlock, files, "job").status == 0


def test_a_waiter_for_a_thaw_follows_what_replaces_its_file(dlock, files, admin):
    admin.does("freeze", "job", ALICE)
    waiter = dlock.contend(files, "job", command=("true",)).queued()
    lock_file(files, "job").unlink()
    assert waiter.wait().status == 0


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_not_next_in_line_hears_of_a_thaw_too(dlock, files, admin, kind):
    """Though his place does not change by it."""
    holder = dlock.hold(files, "job")
    admin.does("freeze", "job", ALICE)
    waiters = [dlock.contend(files, "job", *KINDS[kind]).queued() for _ in range(3)]
    for w in waiters:
        w.event("waiting", frozen=True)
    admin.does("thaw", "job")
    for w in waiters[1:]:
        wait_for(lambda: "frozen" not in w.events("waiting")[-1], what="the news")
    assert holder.poll() is None
    holder.finish()
    for w in waiters:
        w.held().finish()


def test_a_holder_goes_on_while_its_key_is_frozen(dlock, files, admin):
    holder = dlock.hold(files, "job", "-t", "3s")
    admin.does("freeze", "job", ALICE)
    time.sleep(1.5)
    assert holder.poll() is None and holder.finish().status == 0
    assert try_once(dlock, files, "job").status == 75


def test_who_comes_to_be_first_during_a_freeze_takes_no_permit(dlock, files, admin):
    """Until the thaw it would be told of as a holder, with the name of the last one that had the permit."""
    assert dlock.hold(files, "job", "--limit", "2").finish().status == 0
    admin.does("freeze", "job", ALICE)
    first, second = (dlock.contend(files, "job", "--limit", "2").queued(n) for n in (1, 2))
    first.signal(signal.SIGINT)
    first.wait()
    second.event("waiting", position=1)
    for _ in range(5):
        time.sleep(0.05)
        assert admin.key("job", "holder") == []
    admin.does("thaw", "job")
    assert second.held().finish().status == 0


@pytest.mark.parametrize("kind", KINDS)
def test_freezes_in_a_crowd_lose_nobody_and_let_nobody_in(dlock, files, admin, tmp_path, kind):
    """Each run writes when it begins; during a freeze nobody does, and in the end all have.

    The first to be let in stay until a look has met them, so that some look has met a holder however
    late a busy machine lets it look.
    """
    log, met = tmp_path / "log", tmp_path / "met"
    command = f"echo x >>{log}; until [ -e {met} ]; do sleep 0.01; done; sleep 0.05"
    admin.does("freeze", "job", ALICE)
    runs = [dlock.contend(files, "job", *KINDS[kind], command=("sh", "-c", command)) for _ in range(30)]
    rng, owners = random.Random(kind), {}

    def holders():
        found = admin.key("job", "holder")
        for e in found:  # a grant is told of as one and the same in all looks, or without its owner
            assert owners.setdefault(e.token, e.get("owner")) in (e.get("owner"), None) or "owner" not in e
        return found

    for _ in range(6):
        wait_for(lambda: not holders(), what="the end of those who held it")
        begun = log.stat().st_size if log.exists() else 0
        time.sleep(rng.random() / 4)
        assert (log.stat().st_size if log.exists() else 0) == begun
        admin.does("thaw", "job")
        wait_for(lambda: met.exists() or holders(), what="a holder that a look meets")
        met.touch()
        end = time.monotonic() + rng.random() / 4
        while time.monotonic() < end:
            holders()
        admin.does("freeze", "job", ALICE)
    admin.does("thaw", "job")
    assert owners and all(r.wait().status == 0 for r in runs)
    assert log.stat().st_size == 2 * 30
    assert admin.each() == []


# ---- whoever steers is killed ----

SHIM = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <signal.h>
    #include <stdarg.h>
    #include <stdlib.h>
    #include <sys/types.h>
    #include <unistd.h>

    /* Before call number KILLED_AT of these, it is killed. */
    static void step(void)
    {
        static int steps;

        if (++steps == atoi(getenv("KILLED_AT")))
            kill(getpid(), SIGKILL);
    }
    #define REAL(name) (step(), dlsym(RTLD_NEXT, name))

    ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
    {
        return ((ssize_t (*)(int, const void *, size_t, off_t))REAL("pwrite"))(fd, data, n, at);
    }
    ssize_t pread(int fd, void *data, size_t n, off_t at)
    {
        return ((ssize_t (*)(int, void *, size_t, off_t))REAL("pread"))(fd, data, n, at);
    }
    int fdatasync(int fd)
    {
        return ((int (*)(int))REAL("fdatasync"))(fd);
    }
    int fcntl(int fd, int command, ...)
    {
        va_list ap;
        void *argument;

        va_start(ap, command);
        argument = va_arg(ap, void *);
        va_end(ap);
        return ((int (*)(int, int, void *))REAL("fcntl"))(fd, command, argument);
    }
    int openat(int fd, const char *name, int flags, ...)
    {
        return ((int (*)(int, const char *, int, int))REAL("openat"))(fd, name, flags, 0600);
    }
"""


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    """killer(N): the environment of one that is killed before its step N."""
    library = compile_shim(tmp_path_factory.mktemp("killer"), "killer", SHIM)
    return lambda n: {**os.environ, "LD_PRELOAD": library, "KILLED_AT": str(n)}


def steps(admin, killer, *words):
    """Makes the call again and again, killed one step later each time, until it is not."""
    for n in range(1, 200):
        entries, rc = admin.call(*words, env=killer(n))
        yield bool(rc)
        if rc:
            assert rc.startswith("rc ok")
            return
    raise AssertionError("it has no end")


def test_who_freezes_and_is_killed_has_frozen_or_not(dlock, files, admin, killer):
    frozen = []
    for ended in steps(admin, killer, "freeze", "job", ALICE):
        found = admin.key("job")
        assert try_once(dlock, files, "job").status == (75 if found else 0)
        assert kinds(found) in ([], ["freeze"]) and all("alice" in e.record and e.until == -1 for e in found)
        frozen.append(bool(found))
        if found and not ended:
            admin.does("thaw", "job")
            assert try_once(dlock, files, "job").status == 0
    assert frozen[0] is False and frozen[-1] is True


def test_who_replaces_a_freeze_and_is_killed_has_done_all_or_nothing(files, admin, killer):
    who = []
    admin.does("freeze", "job", ALICE)
    for ended in steps(admin, killer, "freeze", "job", BOB, "1000"):
        freeze, = admin.key("job")
        assert ("alice" in freeze.record, freeze.until == -1) in ((True, True), (False, False))
        who.append("bob" in freeze.record)
        if who[-1] and not ended:
            admin.does("freeze", "job", ALICE)
    assert who[0] is False and who[-1] is True


def test_who_thaws_and_is_killed_has_woken_those_who_wait_or_left_it(dlock, files, admin, killer):
    admin.does("freeze", "job", ALICE)
    thawed = []
    for ended in steps(admin, killer, "thaw", "job"):
        thawed.append(not admin.key("job", "freeze"))
        done = dlock.run("run", *files.words, "-k", "job", "-w", "0.1s" if not thawed[-1] else "60s", "--", "true", events=False)
        assert done.status == (0 if thawed[-1] else 75)
        if not ended:
            admin.does("freeze", "job", ALICE)
    assert thawed[0] is False and thawed[-1] is True


def test_who_marks_and_is_killed_has_asked_or_not(dlock, files, admin, killer):
    holder = dlock.hold(files, "job", "-t", "60s")
    marked = []
    for _ in steps(admin, killer, "revoke", "job", holder.token, "-", BOB):
        entry, = admin.key("job")
        assert entry.token == holder.token
        marked.append(bool(entry.revoked))
    assert marked[0] is False and marked[-1] is True and marked == sorted(marked)
    assert holder.finish().status == 0


def test_a_limit_on_files_is_a_failure_like_others(dlock, tmp_path):
    done = dlock.run("freeze", "-u", f"file://{tmp_path}", "job",
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY)))
    assert done.status == 71 and "File too large" in done.stderr, done
    assert dlock.run("status", "-u", f"file://{tmp_path}", "job").status == 1, "nothing half done"


def test_a_stopped_process_at_the_lock_file_is_said(files, admin):
    admin.does("freeze", "job", ALICE)
    with open(lock_file(files, "job"), "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        rc = admin.rc("thaw", "job")
    assert AGAIN in rc and "stopped" in rc
    assert kinds(admin.key("job")) == ["freeze"]


# ---- who may ----


def of_another_user(admin, tmp_path, uid):
    """Lets him call copies of the programs; returns what makes a process his."""
    for program in (ADMIN, os.path.abspath(DLOCK)):
        copy = tmp_path / os.path.basename(program)
        shutil.copyfile(program, copy)
        copy.chmod(0o755)
    admin.dlock = copy
    for path in (tmp_path, *tmp_path.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    admin.words[0] = str(tmp_path / "dlock-admin")
    return {"user": uid, "group": uid, "extra_groups": []}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_look_makes_no_default_directory(admin, tmp_path):
    uid = 1_000_000_000 + os.getpid()
    other = of_another_user(admin, tmp_path, uid)
    admin.words[2] = "-"
    for words in (("each",), ("each", "job")):
        assert admin.call(*words, **other) == ([], "rc ok ")
    assert LOST in admin.rc("thaw", "job", **other) and LOST in admin.rc("revoke", "job", 1, "-", BOB, **other)
    assert not any(os.path.exists(f"{d}/dlock-{uid}") for d in ("/run/lock", "/tmp"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_who_may_not_write_the_lock_file_may_not_steer(dlock, files, admin, tmp_path):
    """A member of nothing sees, in a directory that shows itself, that he may not."""
    holder = dlock.hold(files, "job")
    other = of_another_user(admin, tmp_path, 65534)
    files.directory.chmod(0o755)
    lock_file(files, "job").chmod(0o644)
    assert [e.token for e in admin.call("each", "job", **other)[0]] == [holder.token]
    for words in (("revoke", "job", holder.token, "-", BOB), ("freeze", "job", BOB), ("freeze", "new", BOB), ("thaw", "job")):
        assert "Permission denied" in admin.rc(*words, **other)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("hidden", ["file", "directory"])
def test_who_may_not_read_a_lock_file_is_told_so(dlock, files, admin, tmp_path, hidden):
    """Neither that it is free, nor that it is none; what he may read, he sees."""
    key = "job" if hidden == "file" else "long" * 100
    dlock.hold(files, key)
    dlock.hold(files, "open")
    other = of_another_user(admin, tmp_path, 65534)
    files.directory.chmod(0o755)
    lock_file(files, "open").chmod(0o644)
    path, = [p for p in files.directory.iterdir() if not p.name.startswith("open")]
    path.chmod(0o600 if hidden == "file" else 0o700)
    for words in (["status", key], ["status", "-J", key], ["wait", "-n", key], ["break", "-y", key], ["ls"], ["ls", "-J"]):
        done = subprocess.run([admin.dlock, *words, "-u", f"file://{files.directory}"], capture_output=True, text=True,
                              env=dlock.env, check=False, timeout=PATIENCE, **other)
        assert done.returncode == 77 and done.stderr.count("\n") == 1, (words, done)
        assert done.stderr.startswith("dlock: cannot ") and "Permission denied" in done.stderr and "no lock" not in done.stderr
        assert (words[0] == "ls") == ("open" in done.stdout) and key not in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_root_freezes_in_the_directory_of_a_user_is_his(files, admin):
    os.chown(files.directory, 65534, 65534)
    for key in ("job", "long" * 100):
        admin.does("freeze", key, ALICE)
    assert {p.stat().st_uid for p in files.directory.rglob("*")} == {65534}
    assert len(list(files.directory.rglob("*"))) == 3
