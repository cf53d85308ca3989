# Goal of these tests: with --with-parent dlock ends as on TERM when the process that has started it ends, and not before; and
# what CI and ssh do with the processes of a job, played as they document it.

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from kernels import sandboxed
from support import DLOCK, ROOT, FilePlace, Late, children_of, descendants_of, is_alive, is_free, kill, name_of, wait_for

pexpect = Late("pexpect")

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces everywhere")

# Logs that it runs, and each TERM and INT; ends with the first one.
COMMAND = "for s in TERM INT; do trap \"echo $s >>log; exit 3\" $s; done; echo $$ >>log; while :; do sleep 0.05; done"


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def parents(dlock, tmp_path):
    """Starts a shell, which leads a process group, with a line; all that is below it ends with the test."""
    started = []

    def start(line, *words, shell="sh", below=()):
        (tmp_path / "command").write_text(COMMAND)
        started.append(subprocess.Popen([*below, shell, "-c", line, "sh", *map(str, words)], env=dlock.env, cwd=tmp_path, start_new_session=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start
    for process in started:
        for pid in (process.pid, *descendants_of(process.pid)):
            kill(pid)
        process.wait()
        process.stdout.close()


def lines(tmp_path, n=1):
    log = tmp_path / "log"
    wait_for(lambda: log.exists() and log.read_text().count("\n") >= n, what=f"{n} lines of the log")
    return log.read_text().split()


def words(files, *more, program=DLOCK):
    return [program, "run", "--with-parent", *files.words, "-k", files.key(), *more]


@pytest.mark.parametrize("kernel", ["this", "old", "strict"])
def test_the_command_gets_term_once_when_the_parent_is_killed(dlock, parents, files, tmp_path, kernel):
    """Also without pidfd_open(2)."""
    program = DLOCK if kernel == "this" else sandboxed(tmp_path / kernel / "dlock", DLOCK, **({"error": "EPERM"} if kernel == "strict" else {}))
    parent = parents('"$@" & echo $!; wait', *words(files, "sh", "command", program=program))
    front = int(parent.stdout.readline())
    assert lines(tmp_path)
    time.sleep(0.1)  # in its first moments the front wakes anyhow
    kill(parent.pid)
    assert lines(tmp_path, 2)[1:] == ["TERM"]
    wait_for(lambda: not is_alive(front), what="the end of dlock")
    assert lines(tmp_path)[1:] == ["TERM"] and is_free(dlock, files)


@pytest.mark.parametrize("prepare", ["", "trap '' TERM; "], ids=["", "ignores TERM"])
def test_a_run_that_waits_gives_up_its_place(dlock, parents, files, prepare):
    holder = dlock.hold(files, files.key())
    parent = parents(prepare + '"$@" & echo $!; wait', *words(files, "-q", "true"))
    front = int(parent.stdout.readline())
    wait_for(lambda: "waiting" in dlock.run("status", *files.words, "-k", files.key()).stdout, what="the waiter")
    kill(parent.pid)
    wait_for(lambda: not is_alive(front), what="the end of dlock")
    assert "waiting" not in dlock.run("status", *files.words, "-k", files.key()).stdout
    assert holder.finish().status == 0


@pytest.mark.parametrize("whose", ["front", "keeper"])
def test_whoever_of_dlock_is_killed_with_the_parent(dlock, parents, files, tmp_path, whose):
    parent = parents('"$@" & echo $!; wait', *words(files, "sh", "command"))
    front = int(parent.stdout.readline())
    command, keeper = int(lines(tmp_path)[0]), children_of(front)[0]
    kill(parent.pid)
    kill(front if whose == "front" else keeper)
    for pid in (command, front, keeper):
        wait_for(lambda pid=pid: not is_alive(pid), what="the end of all")
    wait_for(lambda: is_free(dlock, files), what="the release")


def test_a_terminal_changes_nothing(dlock, files, tmp_path):
    """The command is in the group of dlock, and gets it once all the same."""
    (tmp_path / "command").write_text(COMMAND)
    tty = pexpect.spawn("sh", ["-c", "trap '' HUP; \"$@\" & echo $!; wait", "sh", *map(str, words(files, "sh", "command"))], env=dlock.env,
                        cwd=str(tmp_path), encoding="utf-8", timeout=60)
    below = {tty.pid}
    try:
        tty.expect(r"([0-9]+)\r\n")
        front = int(tty.match[1])
        assert lines(tmp_path)
        wait_for(lambda: len(descendants_of(front)) >= 4, what="the witness")
        below.update(descendants_of(tty.pid))
        kill(tty.pid)
        assert lines(tmp_path, 2)[1:] == ["TERM"]
        wait_for(lambda: not is_alive(front), what="the end of dlock")
        assert lines(tmp_path)[1:] == ["TERM"] and is_free(dlock, files)
    finally:
        for pid in below:
            kill(pid)
        tty.close(force=True)


def test_the_end_of_a_thread_of_the_parent_ends_nothing(dlock, files):
    """Runners in Go and Java fork in threads that end."""
    script = ("import subprocess, sys, threading, time\n"
              "def start():\n    global p\n    p = subprocess.Popen(sys.argv[1:])\n"
              "t = threading.Thread(target=start)\nt.start()\nt.join()\nsys.exit(p.wait())\n")
    done = subprocess.run([sys.executable, "-IS", "-c", script, *map(str, words(files, "sh", "-c", "sleep 0.5; exit 7"))], env=dlock.env, timeout=60,
                          check=False)
    assert done.returncode == 7


@AS_ROOT
@pytest.mark.parametrize("subcommand", [["run"], ["hold", "--for", "1h"]], ids=lambda w: w[0])
@pytest.mark.parametrize("line, said", [('exec "$@"', "another pid namespace"), ('"$@"; exit $?', "process 1")])
def test_a_parent_whose_end_cannot_be_seen_is_refused(dlock, files, tmp_path, subcommand, line, said):
    command = ["touch", tmp_path / "ran"] if subcommand == ["run"] else []
    done = dlock.start("-pf", "--kill-child", "sh", "-c", line, "sh", DLOCK, *subcommand, "--with-parent", *files.words, "-k", "k", *command,
                       program=shutil.which("unshare"), events=False).wait()
    assert (done.status, done.stdout, done.stderr.count("\n")) == (64, "", 1) and "--with-parent" in done.stderr and said in done.stderr, done
    assert not (tmp_path / "ran").exists() and is_free(dlock, files, key="k")


@pytest.mark.parametrize("prepare", ["", "trap '' TERM; "], ids=["", "ignores TERM"])
def test_a_hold_waits_with_its_parent_and_is_kept_without(dlock, parents, files, prepare):
    hold = [DLOCK, "hold", "-q", "--with-parent", "--for", "1h", *files.words, "-k", files.key()]
    holder = dlock.hold(files, files.key())
    parent = parents(prepare + '"$@" & echo $!; wait', *hold)
    asker = int(parent.stdout.readline())
    wait_for(lambda: "waiting" in dlock.run("status", *files.words, "-k", files.key()).stdout, what="the waiter")
    below = descendants_of(asker)
    if prepare:
        kill(asker, signal.SIGTERM)
        time.sleep(0.1)  # nothing else shows that nothing comes
        assert all(map(is_alive, (asker, *below)))
    kill(parent.pid)
    for pid in (asker, *below):
        wait_for(lambda pid=pid: not is_alive(pid), what="the end of the hold")
    assert holder.finish().status == 0
    held = parents(prepare + '"$@"; exec sleep 1000', *hold)
    handle = held.stdout.readline().strip()
    assert handle.startswith('@'), handle
    wait_for(lambda: name_of(held.pid) == "sleep", what="the end of the asker")  # it can be read before that
    kill(held.pid)
    held.wait()
    time.sleep(0.2)  # nothing else shows that nothing comes
    assert not is_free(dlock, files) and dlock.run("release", handle).status == 0


def test_a_file_cannot_say_it(dlock, files, tmp_path):
    (tmp_path / "conf").write_text("with-parent = yes\n")
    done = dlock.run("run", "--config", tmp_path / "conf", *files.words, "-k", "k", "true")
    assert done.status == 78 and "with-parent" in done.stderr, done


# ---- played: who ends what ----


@pytest.mark.parametrize("line, ended", [('exec {} run "$@"', "INT"), ('{} run "$@"; exit $?', None),
                                         ('{} run --with-parent "$@"; exit $?', "TERM")], ids=["exec", "a shell between", "with the parent"])
def test_a_cancelled_step_of_github(dlock, parents, files, tmp_path, line, ended):
    """INT to the step's shell, TERM after 7.5 s, KILL after 2.5 s more; here ten times as fast where all are to be sent."""
    step = parents(line.format(DLOCK), *files.words, "-k", files.key(), "sh", "command", shell="bash")
    command = int(lines(tmp_path)[0])
    pace = 1 if ended == "INT" else 0.1  # who ends of the first one is not waited for so long
    for sig, seconds in ((signal.SIGINT, 7.5 * pace), (signal.SIGTERM, 2.5 * pace), (signal.SIGKILL, 0)):
        step.send_signal(sig)
        until = time.monotonic() + seconds
        while step.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if step.poll() is not None:
            break
    if ended:
        assert lines(tmp_path, 2)[1:] == [ended]
        wait_for(lambda: is_free(dlock, files), what="the release")
    else:
        time.sleep(0.2)  # nothing else shows that nothing comes
        assert is_alive(command) and not is_free(dlock, files)
        kill(command)


def test_a_connection_of_ssh_that_is_cut(dlock, parents, files, tmp_path):
    """sshd's process is the parent, and says nothing when it ends."""
    recipes = pathlib.Path(ROOT, "man/dlock-recipes.7").read_text()
    line = re.search(r"^ssh build1 '(exec dlock run --with-parent -k \S+ -- )\./deploy\.sh'$", recipes.replace("\\-", "-").replace("\\&", ""), re.M)[1]
    line = line.replace("exec dlock", f"exec {DLOCK}").replace("-k deploy/prod", f"{' '.join(map(str, files.words))} -k {files.key()}")
    sshd = parents('sh -c "$1" & wait', f"{line} sh command")
    command = int(lines(tmp_path)[0])
    kill(sshd.pid)
    assert lines(tmp_path, 2)[1:] == ["TERM"]
    wait_for(lambda: not is_alive(command) and is_free(dlock, files), what="the end")
