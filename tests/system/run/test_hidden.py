# Goal of these tests: where /proc hides processes (hidepid), nobody who lives is taken for ended, for stopped, or for awake.

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import sys
import time

import pytest

from support import DLOCK, FilePlace, children_of, descendants_of, is_alive, kill, stat_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount /proc and become another user")

# dlock hides itself from all but root (PR_SET_DUMPABLE), as does this command; what is root's is hidden anyhow.
HIDING = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 none /proc && exec "$@"', "sh"]
ANOTHER = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--bounding-set=-all"]
COMMAND = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(4, 0)
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b"continued\\n"))
if sys.argv[1:]:
    signal.signal(signal.SIGTSTP, lambda *_: os.write(1, b"not stopped\\n"))
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def program(tmp_path, files):
    """A dlock for any user, in directories that are open to all."""
    path = tmp_path
    while not path.stat().st_mode & 0o1000 and path != path.parent:
        path.chmod(0o755)
        path = path.parent
    tmp_path.chmod(0o777)
    files.directory.chmod(0o1777)
    shutil.copy(DLOCK, tmp_path / "dlock")
    (tmp_path / "command.py").write_text(COMMAND)
    return str(tmp_path / "dlock")


def state_of(pid):
    found = stat_of(pid)
    return found and found[1]


def test_a_hidden_leader_of_the_session_has_not_ended(program, terminal, files):
    """In its first moments Ctrl-Z stops a job that no shell can continue; it is hung up only if there was one until then."""
    line = " ".join([*ANOTHER, program, "run", *files.words, "-k", "k", "--", "sh", "-c", "'kill -TSTP $$; echo went on'"])
    tty = terminal(*HIDING, "sh", "-c", f"{line}; echo status $?", echo=False)
    tty.expect("went on")
    tty.expect("status 0")


@pytest.mark.parametrize("stops", [True, False], ids=["stops", "does not stop"])
def test_dlock_stops_if_a_hidden_command_does(program, terminal, files, stops):
    tty = terminal(*HIDING, *ANOTHER, "bash", "--norc", "--noprofile", "--noediting", "-i", echo=False)
    tty.expect("<0>")
    tty.send(" ".join([program, "run", *files.words, "-k", "k", "--", sys.executable, "-IS", "command.py", *["x"] * (not stops)]) + "\n")
    tty.expect("ready")
    front, = children_of(tty.pid)
    wait_for(lambda: len(children_of(front)) == 2, what="the witness")
    tty.sendcontrol("z")
    if stops:
        tty.expect("<148>")
        assert state_of(front) == "T"
        kill(front, signal.SIGCONT)
        tty.expect("continued")
    else:
        tty.expect("not stopped")
        time.sleep(0.1)  # nothing else shows that nothing comes
        wait_for(lambda: state_of(front) in "ST", what="the front to have read of it")
        assert state_of(front) == "S"


@pytest.fixture
def start(dlock, program):
    return lambda *words: dlock.start(*HIDING[1:], *ANOTHER, program, *words, program=shutil.which("unshare"), events=False)


def guard_of(keeper, refused=False):
    """The pipe of which it has both ends, once it sleeps again; a front that is awake refuses it: that continues nobody any more (O_ASYNC)."""
    pipes, asks = [], False
    with contextlib.suppress(FileNotFoundError):
        fds = os.listdir(f"/proc/{keeper}/fd")
        pipes = [os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in fds]
        flags = [re.search(r"flags:\s*([0-7]+)", pathlib.Path(f"/proc/{keeper}/fdinfo/{fd}").read_text(encoding="ascii"))[1] for fd in fds]
        asks = any(int(flag, 8) & fcntl.FASYNC for flag in flags)
    found = next((p for p in pipes if "pipe:" in p and pipes.count(p) == 2 and state_of(keeper) == "S"), None)
    return found if asks != refused else None


@pytest.mark.parametrize("moment", ["soon", "late"])
def test_nothing_of_a_hidden_job_that_was_stopped_by_force_outlives_its_keeper(start, tmp_path, files, moment):
    """A front that reads what it gets is awake, as far as the keeper knows."""
    held = start("run", "-t", "3s", *files.words, "-k", "k", "sh", "-c", f"setsid sleep 1000 & echo $! >{tmp_path}/pid; exec sleep 1000")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the command")
    keeper, = children_of(held.pid)
    before = wait_for(lambda: guard_of(keeper, refused=True), what="a first guard that the front has read of") if moment == "late" else None
    kill(held.pid, signal.SIGSTOP)
    wait_for(lambda: guard_of(keeper) not in (None, before), what="the guard")
    job = descendants_of(held.pid)
    kill(keeper)
    assert held.wait().status == 79
    assert not [p for p in job if is_alive(p)]


def test_a_hidden_front_that_is_stopped_by_force_keeps_nobody_waiting(dlock, start, files):
    """The keeper cannot see that it sleeps."""
    words = [*files.words, "-k", "k"]
    holder = start("run", *words, "sh", "-c", "echo ready; exec sleep 1000")
    wait_for(lambda: "ready" in holder.stdout(), what="the holder")
    hold = start("hold", "-q", *words, "--for", "1h")
    wait_for(lambda: "waiting" in start("status", *words).wait().stdout, what="the hold to wait")
    front, = children_of(hold.pid)
    kill(front, signal.SIGSTOP)
    kill(holder.pid, signal.SIGTERM)
    later = start("run", "-w", "30s", *words, "echo", "ran").wait()
    assert (later.status, later.stdout) == (0, "ran\n"), later
    kill(front, signal.SIGCONT)
    result = hold.wait()
    assert result.status == 0 and result.stdout.startswith("@dlock-"), result
    assert start("release", result.stdout.strip()).wait().status == 0
    wait_for(lambda: not is_alive(front), what="its end")
