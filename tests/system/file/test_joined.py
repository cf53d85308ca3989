# Goal of these tests: with -O path=FILE dlock takes the very lock that another program takes on
# that file: each excludes the other, waits for it and is followed by it, whoever is killed; and
# the kernel's word on who holds it is passed on.

import os
import signal
import subprocess
import sys

import pytest

from support import DLOCK, PATIENCE, ROOT, descendants_of, kill, size, wait_for

PROGRAM = os.path.join(ROOT, "tests", "servers", "joins", "file_locks.py")
KINDS = {"flock": "flock", "filelock": "flock", "portalocker": "flock", "fasteners": "fcntl", "oslo": "fcntl"}


class Client:
    """A process of file_locks.py; see serve.py for what it understands."""

    def __init__(self, who, path):
        self.path = path
        self.process = subprocess.Popen([sys.executable, PROGRAM, "0", who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)

    def ask(self, verb):
        self.process.stdin.write(f"{verb} {self.path}\n")
        self.process.stdin.flush()

    def do(self, verb):
        self.ask(verb)
        return self.answer()

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def kill(self):
        for pid in [*descendants_of(self.process.pid), self.process.pid]:
            kill(pid)
        self.process.communicate()


@pytest.fixture
def make_client(nothing_is_left):
    made = []

    def make(who, path):
        if who != "flock":
            pytest.importorskip({"oslo": "oslo_concurrency"}.get(who, who))
        made.append(Client(who, path))
        return made[-1]

    yield make
    for client in made:
        if client.process.returncode is None:
            client.kill()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "the.lock"


def words_of(path, lock="flock"):
    return ["-b", "file", "-O", f"path={path}", "-O", f"lock={lock}", "-k", "job"]


def try_once(dlock, *words):
    return dlock.run("run", *words, "-n", "--", "true").status


@pytest.mark.parametrize("who", KINDS)
def test_each_excludes_the_other_and_is_waited_for(dlock, make_client, path, who):
    client, words = make_client(who, path), words_of(path, KINDS[who])
    assert client.do("take") == "held"
    busy = dlock.run("run", *words, "-n", "--", "true")
    assert busy.status == 75 and ("running flock)" if who == "flock" else f"(pid {client.process.pid} on ") in busy.stderr
    waiter = dlock.start("run", *words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE)
    waiter.event("waiting")
    assert client.do("free") == "free"
    waiter.held()
    assert client.do("take") == "busy"
    client.ask("wait")
    assert waiter.finish().status == 0
    assert client.answer() == "held"
    assert try_once(dlock, *words) == 75
    client.kill()  # what it has started may end a moment later
    assert dlock.run("run", *words, "-w", "10s", "--", "true").status == 0


@pytest.mark.parametrize("who", KINDS)
def test_a_lock_is_free_when_dlock_is_killed(dlock, make_client, path, who):
    client = make_client(who, path)
    holder = dlock.start("run", *words_of(path, KINDS[who]), "--", "sleep", "1000").held()
    assert client.do("take") == "busy"
    kill(holder.keeper)
    holder.wait()
    assert client.do("take") == "held"


@pytest.mark.parametrize("lock", ["flock", "fcntl"])
def test_readers_share_it(dlock, path, lock):
    words = words_of(path, lock)
    readers = [dlock.start("run", *words, "-s", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held() for _ in range(2)]
    assert try_once(dlock, *words) == 75 and try_once(dlock, *words, "-s") == 0
    if lock == "flock":
        assert subprocess.run(["flock", "-n", "-s", path, "true"], check=False).returncode == 0
        assert subprocess.run(["flock", "-n", path, "true"], check=False).returncode == 1
    for reader in readers:
        reader.finish()
    assert try_once(dlock, *words) == 0


def test_what_the_kernel_tells_is_passed_on(dlock, path):
    """Also of who took it and has ended, as `flock 9` in a script does."""
    words = words_of(path)
    with subprocess.Popen(["bash", "-c", f"exec 9>{path}; flock 9; echo held; read end"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout.readline() == "held\n"

        def is_named():  # names are looked for during one second, among all processes
            busy = dlock.run("run", *words, "-n", "--", "true")
            assert busy.status == 75, busy
            return f"(pid {script.pid} on " in busy.stderr and "running bash)" in busy.stderr

        wait_for(is_named, what="its name")
        waiter = dlock.start("run", *words, "--", "true")
        waiter.event("waiting")
        seen = dlock.run("status", *words[:-2], "job")
        assert seen.status == 0 and f"pid {script.pid}" in seen.stdout and "bash" in seen.stdout
        listed = dlock.run("ls", *words[:-2])
        assert str(path) in listed.stdout and str(script.pid) in listed.stdout
        script.communicate("\n")
    assert waiter.wait().status == 0
    assert dlock.run("status", *words[:-2], "job").status == 1


def test_a_file_that_is_replaced_is_another_lock(dlock, path):
    words = words_of(path)
    with subprocess.Popen(["flock", path, "cat"], stdin=subprocess.PIPE) as other:
        wait_for(lambda: try_once(dlock, *words) == 75)
        waiter = dlock.start("run", *words, "-t", "3s", "--", "sleep", "1000")
        waiter.event("waiting")
        path.unlink()
        other.communicate()
    waiter.held()
    assert try_once(dlock, *words) == 75
    path.unlink()
    done = waiter.wait()
    assert done.status == 79 and "removed or replaced" in done.stderr
    assert try_once(dlock, *words) == 0


@pytest.mark.parametrize("words, status, said", [
    (["-O", "path=x"], 64, "absolute path"),
    (["-O", "lock=fcntl"], 64, "goes with path="),
    (["-O", "path=/x", "-O", "lock=lockf"], 64, "flock or fcntl"),
    (["-O", "path=/nowhere/x"], 78, "mkdir it first"),
    (["-O", "path=/tmp/x", "--limit", "2"], 78, "no limited locks"),
    (["-O", "path=/tmp/x", "--once", "x"], 78, "cannot remember runs"),
])
def test_what_makes_no_sense_is_refused(dlock, words, status, said):
    done = dlock.run("run", "-b", "file", *words, "-k", "job", "--", "true")
    assert done.status == status and said in done.stderr


def test_what_can_be_locked_is_locked(dlock, tmp_path):
    done = dlock.run("run", *words_of(tmp_path, "fcntl"), "--", "true")
    assert done.status == 71 and "Is a directory" in done.stderr
    assert try_once(dlock, *words_of(tmp_path)) == 0  # flock(1) locks directories, too


@pytest.mark.parametrize("lock", ["flock", "fcntl"])
def test_many_of_both_kinds_never_overlap(dlock, path, tmp_path, lock):
    """Twelve at a time, of ours some are killed while they wait or hold; another lock judges, which what they leave running keeps."""
    log, judge = tmp_path / "log", tmp_path / "judge"
    alone = f"flock -n -E 99 {judge} sh -c 'echo alone >>{log}; sleep 0.01'; [ $? != 99 ] || echo OVERLAP >>{log}"
    if lock == "flock":
        theirs = ["flock", path, "sh", "-c", alone]
    else:
        pytest.importorskip("fasteners")
        program = ("import fasteners, subprocess, sys, time\n"
                   "with fasteners.InterProcessLock(sys.argv[1], sleep_func=lambda _: time.sleep(0.005)):\n"
                   "    subprocess.run(['sh', '-c', sys.argv[2]])")
        theirs = [sys.executable, "-c", program, path, alone]
    ours = [DLOCK, "run", "-q", *words_of(path, lock), "--grace", "1s", "--wait-tree", "--", "sh", "-c", alone]
    running = []
    for n in range(size(60, 600)):
        running.append(subprocess.Popen(theirs if n % 2 else ours, env=dlock.env))
        if n > 8 and n % 6 == 0:
            running[-7].send_signal(signal.SIGKILL if n % 12 else signal.SIGTERM)
        while len(running) >= 12:
            running.pop(0).wait(PATIENCE)
    for process in running:
        process.wait(PATIENCE)
    seen = log.read_text().split()
    assert "OVERLAP" not in seen and len(seen) >= size(40, 400)


def test_a_key_is_no_path(dlock, tmp_path):
    """`dlock run -b file /x.lock` beside `flock /x.lock`: who looks is told, and a person at a terminal, or with -v."""
    pexpect = pytest.importorskip("pexpect")
    (tmp_path / "x.lock").touch()
    (tmp_path / "locks").mkdir()
    place, key, says = ("-u", f"file://{tmp_path}/locks"), f"{tmp_path}/x.lock", "the key is a name, and not the file"
    assert says in dlock.run("status", *place, key).stdout and "-O path=FILE" in dlock.run("status", "-J", *place, key).stdout
    assert says in dlock.run("doctor", *place, "-k", key).stdout
    done = dlock.run("run", *place, "-k", key, "true", start_new_session=True)
    assert (done.status, done.stderr) == (0, "")
    assert dlock.run("run", *place, "-v", "-k", key, "true", start_new_session=True).stderr.count(says) == 1
    shown = pexpect.run(" ".join([DLOCK, "run", *place, "-k", key, "true"]), env=dlock.env, encoding="utf-8")
    assert shown.count(says) == 1
    assert says not in pexpect.run(" ".join([DLOCK, "run", *place, "-k", key + "x", "true"]), env=dlock.env, encoding="utf-8")
    assert says not in dlock.run("status", *place, "-O", f"path={key}", key).stdout
