# Goal of these tests: in a terminal dlock is as good as not there.  Ctrl-C,
# Ctrl-Z, fg, bg, editors, pagers, pipelines and nested shells work; the one
# line that dlock draws while it waits is gone when it no longer does.

import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import unicodedata

import pytest

from support import (DLOCK, DLOCK_TEST, PATIENCE, FilePlace, Late, RedisPlace, boottime, children_of, compile_shim, descendants_of, is_alive, is_free, kill,
                     stat_of, wait_for)

pexpect = Late("pexpect")

TTL = 6
ERASE = "\r\x1b[J"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
WAITING = re.compile(rf"{re.escape(ERASE)}dlock: waiting [\w.]+")
QUEUED = re.compile(WAITING.pattern + r"[^\r]*; held by ")  # it is known to the server
PROMPT = re.compile(r"<(\d+)>\Z")  # a prompt shows the last exit status

CATCH = """
import os, signal, sys
caught = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP}
signal.pthread_sigmask(signal.SIG_SETMASK, caught)
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(log, f"{os.getpid()}\\n".encode())
while True:
    n = signal.sigwait(caught)
    os.write(log, f"{int(n)}\\n".encode())
    if n == signal.SIGUSR2:
        sys.exit(5)
"""


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def leased(request, redis_server):
    """Locks that end with their lease."""
    return RedisPlace(request)


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, env, directory, size=(24, 80)):
        env = {**env, "PS1": "<$?>", "PS2": "", "TERM": "vt100", "HISTFILE": "", "EXINIT": "", "LESS": ""}
        self.tty = pexpect.spawn("bash", ["--norc", "--noprofile", "--noediting", "-i"], env=env, cwd=str(directory),
                                 dimensions=size, echo=False, encoding="utf-8", timeout=PATIENCE)
        self.seen = ""  # all that stood before the last prompt
        self.tty.delaybeforesend = None
        self.prompt()

    def send(self, text):
        self.tty.send(text)

    def prompt(self):
        """Waits for the next prompt and returns the status that it shows."""
        self.tty.expect(PROMPT)
        self.seen = self.tty.before
        return int(self.tty.match.group(1))

    def run(self, line):
        self.send(line + "\n")
        return self.prompt()

    def expect(self, text):
        """Text or a regular expression; returns what stood before it."""
        (self.tty.expect if isinstance(text, re.Pattern) else self.tty.expect_exact)(text)
        return self.tty.before

    def ctrl(self, letter):
        self.tty.sendcontrol(letter)

    def close(self):
        """Like the closing of a window; what does not go by itself is killed."""
        below = descendants_of(self.tty.pid)
        with contextlib.suppress(OSError, pexpect.ExceptionPexpect):  # closed by the test; slow to die of SIGKILL
            self.tty.close(force=True)
        for pid in below:
            kill(pid)


@pytest.fixture
def shells(dlock, tmp_path):
    """Opens interactive shells."""
    opened = []

    def opener(**options):
        opened.append(Shell(dlock.env, tmp_path, **options))
        return opened[-1]

    yield opener
    for shell in opened:
        shell.close()


@pytest.fixture
def shell(shells):
    return shells()


def run_line(place, *words, key="job", options=()):
    return " ".join([DLOCK, "run", *place.words, *options, "-k", place.key(key), "--", *words])


def state_of(pid):
    found = stat_of(pid)
    return found and found[1]


@pytest.fixture
def catcher(tmp_path):
    """A command that logs its pid and every signal it gets; (words, function that reads the log)."""
    (tmp_path / "catch.py").write_text(CATCH)
    log = tmp_path / "log"
    words = [sys.executable, "-IS", str(tmp_path / "catch.py"), str(log)]

    def logged(n=1):
        """At least n lines, as numbers."""
        wait_for(lambda: log.exists() and log.read_text().count("\n") >= n, what=f"{n} lines of the log")
        return [int(line) for line in log.read_text().split()]

    return words, logged


def outlast(seconds):
    until = boottime() + seconds
    wait_for(lambda: boottime() > until, timeout=seconds + PATIENCE, what="time")


# A dash that starts a program in the very moment of Ctrl-C or Ctrl-Z may miss it,
# with and without dlock: it uses vfork, and its child is not yet another
# program.  So the commands here `exec` what comes after "ready".

# ---- Ctrl-C ----


@pytest.mark.parametrize("key, number", [("c", signal.SIGINT), ("\\", signal.SIGQUIT)])
def test_a_key_gives_the_command_exactly_one_signal(shell, files, catcher, key, number):
    words, logged = catcher
    shell.send(run_line(files, *words) + "\n")
    command = logged()[0]
    for i in range(3):
        shell.ctrl(key)
        logged(2 + i)
    kill(command, signal.SIGUSR2)
    assert shell.prompt() == 5
    assert logged()[1:] == 3 * [number] + [signal.SIGUSR2]


def test_a_changed_window_is_one_signal(shell, files, catcher):
    words, logged = catcher
    shell.send(run_line(files, *words) + "\n")
    command = logged()[0]
    shell.tty.setwinsize(30, 90)
    logged(2)
    kill(command, signal.SIGUSR2)
    assert shell.prompt() == 5
    assert logged()[1:] == [signal.SIGWINCH, signal.SIGUSR2]


def until_ended(path):
    """Of the process that writes its number there."""
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), what="the command")
    wait_for(lambda: not is_alive(int(path.read_text())), what="the end of the command")


@pytest.mark.parametrize("left", ["sleep 1000", "setsid sleep 1000"], ids=["ignores it", "is elsewhere"])
def test_ctrl_c_ends_what_is_waited_for_when_the_command_has_ended(shell, files, tmp_path, left):
    """A shell lets what it starts in the background ignore Ctrl-C."""
    shell.send(run_line(files, "sh", "-c", f"'{left} & echo $$ >{tmp_path}/pid; exit 4'", options=["--wait-tree"]) + "\n")
    until_ended(tmp_path / "pid")
    shell.ctrl("c")
    assert shell.prompt() == 4


def test_ctrl_z_stops_what_is_waited_for_when_the_command_has_ended(dlock, shell, files, tmp_path):
    """And Ctrl-C ends it, though it is stopped."""
    line = run_line(files, "sh", "-c", f"'sleep 1000 & echo $$ >{tmp_path}/pid; exit 4'", options=["--wait-tree"])
    shell.send(line + "\n")
    until_ended(tmp_path / "pid")
    for _ in range(2):
        shell.ctrl("z")
        assert shell.prompt() == 148
        assert not is_free(dlock, files)
        shell.send("fg\n")
        wait_for(lambda: {state_of(p) for p in descendants_of(shell.tty.pid)} == {"S"}, what="the job to go on")
    rest, = [p for p in descendants_of(shell.tty.pid) if stat_of(p)[0] == "sleep"]
    kill(rest, signal.SIGSTOP)
    wait_for(lambda: state_of(rest) == "T", what="it to stop")
    shell.ctrl("c")
    assert shell.prompt() == 4


def unseen_end(shell, files, tmp_path):
    """A command has ended, and its keeper, which is returned, sleeps: the command is a zombie, something is waited for."""
    line = run_line(files, "sh", "-c", f"'sleep 1000 & echo $$ >{tmp_path}/pid; read x; exit 4'", options=["--wait-tree"])
    shell.send(line + "\n")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the command")
    keeper = int(stat_of(int((tmp_path / "pid").read_text()))[2])
    kill(keeper, signal.SIGSTOP)
    shell.send("\n")
    until_ended(tmp_path / "pid")
    return keeper


def test_ctrl_c_ends_what_is_waited_for_before_the_keeper_has_seen_the_end(shell, files, tmp_path):
    keeper = unseen_end(shell, files, tmp_path)
    shell.ctrl("c")
    kill(keeper, signal.SIGCONT)
    assert shell.prompt() == 4


def test_ctrl_z_stops_what_is_waited_for_before_the_keeper_has_seen_the_end(shell, files, tmp_path):
    keeper = unseen_end(shell, files, tmp_path)
    shell.ctrl("z")
    assert shell.prompt() == 148
    kill(keeper, signal.SIGCONT)
    shell.send("fg\n")
    wait_for(lambda: {state_of(p) for p in descendants_of(shell.tty.pid)} == {"S"}, what="the job to go on")
    shell.ctrl("c")
    assert shell.prompt() == 4


def test_ctrl_c_that_the_caller_ignores_ends_nothing_of_what_is_waited_for(shell, files, tmp_path):
    """With `trap '' INT`, as without dlock."""
    (tmp_path / "job.sh").write_text("trap '' INT\n" + run_line(
        files, "sh", "-c", f"'(while [ ! -e go ]; do sleep 0.05; done; echo all done) & echo $$ >{tmp_path}/pid; exit 4'",
        options=["--wait-tree"]) + "\n")
    shell.send("sh job.sh\n")
    until_ended(tmp_path / "pid")
    shell.ctrl("c")
    outlast(0.3)
    (tmp_path / "go").touch()
    assert shell.prompt() == 4 and "all done" in shell.seen


def test_ctrl_c_ends_the_command_and_the_loop_around_it(dlock, shell, place):
    ready = run_line(place, "sh", "-c", "'echo ready; exec sleep 1000'")
    shell.send(ready + "\n")
    shell.expect("ready")
    shell.ctrl("c")
    assert shell.prompt() == 130
    assert "dlock" not in shell.seen
    shell.send(f"for i in 1 2 3; do {ready}; done; echo the end\n")
    shell.expect("ready")
    shell.ctrl("c")
    assert shell.prompt() == 130
    assert "ready" not in shell.seen and "the end" not in shell.seen
    assert is_free(dlock, place)


def test_ctrl_c_while_waiting_gives_up_the_place(dlock, shell, place):
    holder = dlock.hold(place, place.key())
    shell.send(run_line(place, "echo", "ran") + "\n")
    shell.expect(WAITING)
    shell.ctrl("c")
    assert shell.prompt() == 130
    assert shell.seen.endswith(f"{ERASE}\r\n") and "ran" not in shell.seen
    waiter = dlock.contend(place, place.key()).queued(1)
    holder.finish()
    assert waiter.held().finish().status == 0


def test_ctrl_c_reaches_a_command_that_has_made_its_own_group(shell, files):
    """As timeout(1) does: the terminal's key has reached dlock alone."""
    shell.send(run_line(files, "timeout", "100", "sh", "-c", "'echo be\\gun; exec sleep 100'") + "\n")
    shell.expect("begun")
    # before its fork has returned it would end alone
    wait_for(lambda: [p for p in descendants_of(shell.tty.pid) if (stat_of(p) or ())[:2] == ("timeout", "S")], what="timeout to wait")
    shell.ctrl("c")
    assert shell.prompt() == 130


def test_ctrl_c_reaches_a_pipeline(shell, files, tmp_path):
    shell.send(run_line(files, "cat") + " | tee copy\n")
    shell.send("one\n")
    wait_for(lambda: (tmp_path / "copy").exists() and (tmp_path / "copy").read_text() == "one\n", what="tee")
    shell.ctrl("c")
    assert shell.prompt() == 130


def test_a_closed_window_ends_command_and_lock(dlock, shell, place):
    shell.send(run_line(place, "sh", "-c", "'echo ready; exec sleep 1000'") + "\n")
    shell.expect("ready")
    below = descendants_of(shell.tty.pid)
    assert len(below) >= 3
    os.close(shell.tty.child_fd)
    wait_for(lambda: not [p for p in below if is_alive(p)], what="the end of everything in the window")
    assert is_free(dlock, place)


@pytest.fixture
def leader(terminal):
    """Opens a terminal in which dlock is the first process, as `ssh -t host dlock ...` does."""
    return lambda *words, above=(), program=DLOCK: terminal(*above, *([program] if program else []), *map(str, words))


def hang_up(tty):
    os.close(tty.child_fd)
    tty.closed = True


def test_a_hang_up_reaches_the_command_where_dlock_leads_the_session(leader, files):
    """The kernel tells the first process alone."""
    tty = leader("run", *files.words, "-k", files.key(), "--", "sh", "-c", "echo ready; exec sleep 1000")
    tty.expect("ready")
    below = descendants_of(tty.pid)
    hang_up(tty)
    wait_for(lambda: not [p for p in below if is_alive(p)], what="the end of the command")
    assert os.WTERMSIG(os.waitpid(tty.pid, 0)[1]) == signal.SIGHUP


def test_a_hang_up_is_one_signal(leader, files, catcher):
    """And SIGCONT after it, as the kernel sends it to the first process."""
    words, logged = catcher
    tty = leader("run", *files.words, "-k", files.key(), "--", *words)
    command = logged()[0]
    hang_up(tty)
    logged(3)
    kill(command, signal.SIGUSR2)
    assert os.waitstatus_to_exitcode(os.waitpid(tty.pid, 0)[1]) == 5
    assert logged()[1:] == [signal.SIGHUP, signal.SIGCONT, signal.SIGUSR2]


@pytest.mark.parametrize("words", [["run", "true"], ["hold", "--for", "60"]], ids=lambda w: w[0])
def test_a_hang_up_ends_the_waiting_where_dlock_leads_the_session(dlock, leader, files, words):
    dlock.hold(files, files.key())
    tty = leader(words[0], *files.words, "-k", files.key(), *words[1:])
    tty.expect("waiting")
    below = descendants_of(tty.pid)
    hang_up(tty)
    assert os.WTERMSIG(os.waitpid(tty.pid, 0)[1]) == signal.SIGHUP
    wait_for(lambda: not [p for p in below if is_alive(p)], what="the end of all of dlock's processes")


# ---- Ctrl-Z ----


def test_a_stopped_job_keeps_its_lock_and_continues_with_one_fg(dlock, shell, leased):
    shell.send(run_line(leased, "cat", options=["-t", f"{TTL}s"]) + "\n")
    shell.send("one\n")
    shell.expect("one")
    shell.ctrl("z")
    assert shell.prompt() == 148
    assert "Stopped" in shell.seen
    assert shell.run("jobs") == 0
    assert shell.seen.count("Stopped") == 1
    outlast(TTL + 1)
    assert not is_free(dlock, leased)
    shell.send("fg\n")
    shell.send("two\n")
    shell.expect("two")
    shell.ctrl("z")
    assert shell.prompt() == 148
    shell.send("fg\n")
    shell.ctrl("d")
    assert shell.prompt() == 0
    assert is_free(dlock, leased)


def test_a_stopped_job_continues_in_the_background(dlock, shell, place, tmp_path):
    os.mkfifo(tmp_path / "go")
    shell.send(run_line(place, "sh", "-c", "'echo ready; exec cp go result'") + "\n")
    shell.expect("ready")
    shell.ctrl("z")
    assert shell.prompt() == 148
    assert not is_free(dlock, place)
    assert shell.run("bg") == 0
    (tmp_path / "go").write_text("done\n")
    assert shell.run("wait %1") == 0
    assert (tmp_path / "result").read_text() == "done\n"
    assert is_free(dlock, place)


def test_a_stopped_job_can_be_killed(dlock, shell, place):
    shell.send(run_line(place, "sh", "-c", "'echo ready; exec sleep 1000'") + "\n")
    shell.expect("ready")
    shell.ctrl("z")
    assert shell.prompt() == 148
    shell.run("kill %1")
    wait_for(lambda: is_free(dlock, place), what="the release")
    assert shell.run("wait %1") in (143, 127, 148)  # bash may tell of an earlier change


def test_a_command_that_stops_by_itself_stops_the_job(shell, files):
    assert shell.run(run_line(files, "sh", "-c", "'kill -STOP $$; echo back; exit 3'")) > 128
    assert "Stopped" in shell.seen and "\nback\r" not in shell.seen
    assert shell.run("fg") == 3
    assert shell.seen.endswith("\nback\r\n")


def test_a_stopped_command_that_is_continued_alone_takes_its_job_along(shell, files, catcher):
    words, logged = catcher
    shell.send(run_line(files, *words) + "\n")
    command = logged()[0]
    shell.ctrl("z")
    assert shell.prompt() == 148
    front = stat_of(stat_of(command)[2])[2]
    assert state_of(front) == state_of(command) == "T"
    kill(command, signal.SIGCONT)
    wait_for(lambda: "T" not in (state_of(front), state_of(command)), what="the job to go on")
    kill(command, signal.SIGUSR2)
    wait_for(lambda: shell.run(":") == 0 and "Exit 5" in shell.seen, what="the end of the job")


@pytest.mark.parametrize("order", ["fg first", "release first"])
def test_ctrl_z_while_waiting(dlock, shell, place, order):
    holder = dlock.hold(place, place.key())
    shell.send(run_line(place, "echo", "ran") + "\n")
    shell.expect(WAITING)
    shell.ctrl("z")
    assert shell.prompt() == 148
    assert "Stopped" in shell.seen
    if order == "release first":
        holder.finish()
        shell.send("fg\n")
    else:
        shell.send("fg\n")
        shell.expect(WAITING)
        holder.finish()
    assert shell.prompt() == 0
    assert "ran\r\n" in shell.seen
    assert is_free(dlock, place)


AGAIN = "stopped while it waited, so it has given up its place; asking again"


def test_a_run_that_is_stopped_while_it_waits_keeps_nobody_waiting(dlock, shell, place):
    """With flock(1) the next one gets it."""
    holder = dlock.hold(place, place.key())
    shell.send(run_line(place, "echo", "ran") + "\n")
    shell.expect(QUEUED)
    later = dlock.contend(place, place.key()).queued(2)
    shell.ctrl("z")
    assert shell.prompt() == 148
    later.queued(1)
    holder.finish()
    later.held()
    shell.send("fg\n")
    shell.expect(AGAIN)
    shell.expect(WAITING)
    later.finish()
    assert shell.prompt() == 0
    assert "ran\r\n" in shell.seen
    assert is_free(dlock, place)


def test_a_wait_is_counted_on_while_a_run_is_stopped(dlock, shell, files):
    dlock.hold(files, files.key())
    began = boottime()
    shell.send(run_line(files, "echo", "begun", options=["-w", "5s", "--status-fd", "5", "5>events"]) + "\n")
    shell.expect(QUEUED)
    shell.ctrl("z")
    assert shell.prompt() == 148
    outlast(5 - (boottime() - began))
    assert shell.run("fg") == 75
    assert "\nbegun" not in shell.seen and AGAIN in shell.seen
    assert shell.run("grep -o '\"event\":\"[a-z]*\"' events") == 0
    assert re.findall(":.([a-z]+)", shell.seen) == ["waiting", "stopped", "resumed", "waiting", "verdict"]


def test_what_ends_a_run_that_is_stopped_while_it_waits(dlock, shell, files):
    """It is told of nothing else than its end, once it goes on."""
    dlock.hold(files, files.key())
    shell.send(run_line(files, "echo", "ran") + "\n")
    shell.expect(WAITING)
    shell.ctrl("z")
    assert shell.prompt() == 148
    shell.run("kill %1")
    wait_for(lambda: not [p for p in descendants_of(shell.tty.pid) if is_alive(p)], what="the end of the job")
    assert shell.run("wait %1") in (143, 127, 148)  # bash may tell of an earlier change
    assert AGAIN not in shell.seen


@pytest.mark.parametrize("words", [["run", "--", "echo", "ran"], ["hold", "--for", "1h"]], ids=lambda w: w[0])
def test_a_job_that_is_stopped_by_force_while_it_waits_keeps_nobody_waiting(dlock, shell, files, tmp_path, words):
    """SIGSTOP tells nobody; the keeper sees it when it has been granted the lock."""
    holder = dlock.hold(files, files.key())
    line = [DLOCK, words[0], *files.words, "-k", files.key(), *words[1:]]
    shell.run(" ".join(line) + " 2>said &")
    wait_for(lambda: (tmp_path / "said").exists() and "waiting" in (tmp_path / "said").read_text(), what="it to wait")
    job, = children_of(shell.tty.pid)
    later = dlock.contend(files, files.key()).queued(2)
    os.killpg(job, signal.SIGSTOP)
    group = [p for p in [job, *descendants_of(job)] if os.getpgid(p) == job]
    wait_for(lambda: [state_of(p) for p in group] == ["T", "T"], what="the job to stop")
    holder.finish()
    later.held()
    os.killpg(job, signal.SIGCONT)
    later.finish()
    shell.run("fg")
    assert AGAIN in (tmp_path / "said").read_text()
    if words[0] == "hold":
        shell.run(f"{DLOCK} release {re.search('@dlock-[^ ]+', shell.seen)[0].strip()}")
    else:
        assert "ran" in shell.seen


def test_a_suspended_hold_that_waits_keeps_nobody_waiting(dlock, shell, files):
    holder = dlock.hold(files, files.key())
    shell.send(" ".join([DLOCK, "hold", *files.words, "-k", files.key(), "--for", "1h"]) + "\n")
    shell.expect(QUEUED)
    later = dlock.contend(files, files.key()).queued(2)
    shell.ctrl("z")
    assert shell.prompt() == 148
    later.queued(1)
    holder.finish()
    later.held()
    shell.send("fg\n")
    shell.expect(WAITING)
    later.finish()
    assert shell.prompt() == 0
    assert not is_free(dlock, files)
    assert shell.run(f"{DLOCK} release {re.search('@dlock-[^ ]+', shell.seen)[0].strip()}") == 0


def test_a_suspended_hold_stops_also_after_its_front(dlock, shell, files):
    dlock.hold(files, files.key())
    shell.send(" ".join([DLOCK, "hold", *files.words, "-k", files.key(), "--for", "1h"]) + "\n")
    shell.expect(WAITING)
    asker, = [p for p in children_of(shell.tty.pid) if stat_of(p)[0] == "dlock"]
    front, = children_of(asker)
    os.kill(front, signal.SIGTSTP)
    until_stopped([front])
    os.kill(asker, signal.SIGTSTP)
    assert shell.prompt() == 148
    shell.send("fg\n")
    shell.expect(WAITING)


def keeper_of(front):
    """Once it has left the front's group; the group's witness is none."""
    return wait_for(lambda: [p for p in children_of(front) if group_of(p) not in (front, None)], what="the keeper")[0]


def group_of(pid):
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def job_that_leaves(dlock, shell, leased, tmp_path, left):
    """A job with something of its own, perhaps in another session: (front, keeper)."""
    script = f"{'setsid ' if left == 'elsewhere' else ''}sleep 1000 & echo $! >{tmp_path}/pid; echo ready; exec sleep 1000"
    shell.send(run_line(leased, "sh", "-c", f"'{script}'", options=["-t", f"{TTL}s"]) + "\n")
    shell.expect("ready")
    front, = children_of(shell.tty.pid)
    return front, keeper_of(front)


def until_stopped(pids):
    wait_for(lambda: [state_of(p) for p in pids] == ["T"] * len(pids), what="it to stop")


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("left", ["in its group", "elsewhere"])
def test_nothing_of_a_suspended_job_outlives_its_keeper(dlock, shell, leased, tmp_path, left, how):
    """Somebody must stop what the kernel does not, though all of the job is stopped."""
    front, keeper = job_that_leaves(dlock, shell, leased, tmp_path, left)
    shell.ctrl("z")
    assert shell.prompt() == 148
    job = descendants_of(shell.tty.pid)
    until_stopped([front])
    kill(keeper, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    until_all_end(job, "the end of the job")
    assert shell.run("wait %1") in (79, 127)


def until_unguarded(front, keeper):
    """Then the front goes on.  A guard that has not run yet has no name of its own."""
    wait_for(lambda: all((stat_of(p) or [""])[0] == "group-witness" for p in children_of(front) if p != keeper), what="the job to go on")


def has_set_a_guard(keeper):
    """It has both ends of a pipe, and sleeps: the front's socket has one of them, too."""
    pipes = []
    with contextlib.suppress(FileNotFoundError):
        pipes = [os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")]
    return any(pipes.count(p) == 2 for p in pipes if "pipe:" in p) and state_of(keeper) == "S"


def run_out_of_descriptors(pid):
    """It can open none that is new, as if it had as many as it may."""
    used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    free = min(set(range(len(used) + 1)) - used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, free))


def test_a_job_whose_front_has_no_descriptor_for_a_guard_is_guarded_by_the_keeper(dlock, shell, leased, tmp_path):
    front, keeper = job_that_leaves(dlock, shell, leased, tmp_path, "elsewhere")
    until_witnessed(shell)
    run_out_of_descriptors(front)
    shell.ctrl("z")
    assert shell.prompt() == 148
    assert len(children_of(front)) == 2  # the keeper, and the witness
    wait_for(lambda: has_set_a_guard(keeper), what="the guard")
    job = descendants_of(shell.tty.pid)
    kill(keeper)
    until_all_end(job, "the end of the job")


def test_a_job_stops_and_goes_on_where_there_is_no_descriptor_for_a_guard(dlock, shell, leased, tmp_path):
    front, keeper = job_that_leaves(dlock, shell, leased, tmp_path, "in its group")
    until_witnessed(shell)
    for pid in (front, keeper):
        run_out_of_descriptors(pid)
    shell.ctrl("z")
    assert shell.prompt() == 148
    outlast(TTL)
    assert not is_free(dlock, leased)
    shell.run("bg")
    wait_for(lambda: state_of(front) == "S", what="the job to go on")
    shell.run("kill %1")
    wait_for(lambda: is_free(dlock, leased), what="the release")


@pytest.mark.parametrize("whom", ["the job", "the front"])
def test_nothing_of_a_job_that_was_stopped_by_force_outlives_its_keeper(dlock, shell, leased, tmp_path, whom):
    """The front has no time for a guard of its own; the keeper sets one when it sees it."""
    front, keeper = job_that_leaves(dlock, shell, leased, tmp_path, "elsewhere")
    shell.ctrl("z")
    assert shell.prompt() == 148
    shell.run("bg")
    until_unguarded(front, keeper)
    if whom == "the job":
        shell.run("kill -STOP %1")
    else:
        os.kill(front, signal.SIGSTOP)
    until_stopped([front])
    wait_for(lambda: has_set_a_guard(keeper), what="the guard")
    job = descendants_of(shell.tty.pid)
    kill(keeper)
    until_all_end(job, "the end of the job")


# The handler of CONT is set in each stop before all else, and put back after it.
SLEEPS_AT_A_HANDLER = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int sigaction(int sig, const struct sigaction *set, struct sigaction *was) {
        static int calls;
        int (*next)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");
        if (sig == SIGCONT && set && ++calls == atoi(getenv("SLEEP_AT"))) kill(getpid(), SIGSTOP);
        return next(sig, set, was);
    }"""


@pytest.mark.parametrize("moment", ["before it stops", "after it was continued"])
def test_a_front_that_is_stopped_by_force_beside_its_guard_is_woken(dlock, shell, leased, tmp_path, moment):
    """At no line is it guarded by nobody: the keeper sets no guard for a front that says it has one."""
    shim = compile_shim(tmp_path, "sleeps", SLEEPS_AT_A_HANDLER)
    shell.run(f"export LD_PRELOAD={shim} SLEEP_AT={1 if 'before' in moment else 2}")
    front, keeper = job_that_leaves(dlock, shell, leased, tmp_path, "elsewhere")
    shell.ctrl("z")
    assert shell.prompt() == 128 + (signal.SIGSTOP if "before" in moment else signal.SIGTSTP)
    if "after" in moment:
        kill(front, signal.SIGCONT)
        until_stopped([front])
    job = descendants_of(shell.tty.pid)
    kill(keeper)
    until_all_end(job, "the end of the job")


def test_a_job_that_was_stopped_by_force_is_stopped_by_its_keeper(dlock, shell, leased, tmp_path):
    """A lock that is lost meanwhile costs the tree, whoever sleeps; and nobody is continued who was stopped."""
    front, keeper = job_that_leaves(dlock, shell, leased, tmp_path, "elsewhere")
    job = [keeper, *descendants_of(keeper)]  # the group's witness stays with the front
    shell.ctrl("z")
    assert shell.prompt() == 148
    shell.run("bg")
    until_unguarded(front, keeper)
    shell.run("kill -STOP %1")
    until_stopped([front])
    leased.take_away([leased.key()], leased.key())
    until_all_end(job, "the end of the tree")
    assert state_of(front) == "T"
    os.kill(front, signal.SIGCONT)
    shell.expect("the command was stopped")


# ---- suspended, and the shell or the terminal goes ----


def until_witnessed(shell):
    """The front has its witness, 20 ms after its start."""
    wait_for(lambda: "group-witness" in [(stat_of(p) or [""])[0] for p in descendants_of(shell.tty.pid)], what="the witness")


def until_all_end(pids, what):
    wait_for(lambda: not [p for p in pids if is_alive(p)], what=what)


SUSPENDED = {
    "in its group": "sh -c 'echo ready; exec sleep 1000'",
    "leads a group": "bash --norc --noprofile --noediting -i",  # with the terminal, as a shell inside
}


@pytest.mark.parametrize("command", SUSPENDED)
@pytest.mark.parametrize("end", ["exit of dash", "kill of dash", "kill of the first shell", "a closed window"])
def test_a_suspended_job_ends_with_its_shell(dlock, shell, files, end, command):
    """The kernel hangs up a stopped job that no shell can continue any more."""
    if "dash" in end:
        shell.send("exec 9>&1; PS1='dash>' dash -i\n")
        shell.expect("dash>")
    below = set(descendants_of(shell.tty.pid))
    shell.send(run_line(files, "env", "PS1='ready '", SUSPENDED[command]) + "\n")
    shell.expect("ready")
    until_witnessed(shell)
    if command == "leads a group":
        shell.send("suspend\n")
    else:
        shell.ctrl("z")
    shell.expect("dash>" if "dash" in end else PROMPT)
    job = [p for p in descendants_of(shell.tty.pid) if p not in below]
    assert len(job) == 5 and not is_free(dlock, files)  # with the witness, and the front's guard
    if end == "exit of dash":
        shell.send("exit\n")
        shell.expect("dash>")
        shell.send("exit\n")
    elif end == "kill of dash":
        kill(*below)
    elif end == "kill of the first shell":
        kill(shell.tty.pid)
    else:
        hang_up(shell.tty)
    until_all_end(job, "the end of the job")
    assert is_free(dlock, files)


def test_a_suspended_script_ends_with_the_shell_above_it(dlock, shell, files, tmp_path):
    """Of all that is in the group the script alone has the shell for a parent."""
    (tmp_path / "job.sh").write_text(run_line(files, "sh", "-c", "'echo ready; exec sleep 1000'") + "; :\n")
    shell.send("sh job.sh\n")
    shell.expect("ready")
    until_witnessed(shell)
    shell.ctrl("z")
    assert shell.prompt() == 148
    # with the script, the witness, and the front's guard, which begins after the shell's prompt
    wait_for(lambda: len(descendants_of(shell.tty.pid)) == 6, what="the guard")
    below = descendants_of(shell.tty.pid)
    kill(shell.tty.pid)
    until_all_end(below, "the end of the job")
    assert is_free(dlock, files)


# ---- no shell above: ssh -t, the first process of a window or of a container ----


@pytest.mark.parametrize("above", [[], ["unshare", "-pf", "--kill-child", "--mount-proc"]], ids=["first process", "process 1"])
def test_ctrl_z_without_a_shell_stops_nothing(leader, files, above):
    """A plain command ignores it there: nobody could continue it."""
    if above and os.geteuid() != 0:
        pytest.skip("not root")
    tty = leader("run", *files.words, "-k", files.key(), "--", "cat", above=above)
    tty.send("one\n")
    tty.expect("one\r\n.*one\r\n")
    tty.sendcontrol("z")
    tty.send("two\n")
    tty.expect("two\r\n.*two\r\n")
    tty.sendcontrol("d")
    tty.expect(pexpect.EOF)
    wait_for(lambda: not tty.isalive(), what="the end of dlock")
    assert tty.exitstatus == 0


def test_ctrl_z_without_a_shell_or_room_for_a_process_stops_nothing(leader, files, tmp_path):
    """Whether there is a shell is not known then."""
    shim = compile_shim(tmp_path, "full", """
        #include <errno.h>
        #include <signal.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static int full;
        int raise(int sig) {
            full = sig == SIGTSTP;
            return syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
        }
        pid_t _Fork(void) {
            if (full) return errno = EAGAIN, -1;
            return syscall(SYS_fork);
        }
        pid_t fork(void) { return _Fork(); }""")
    tty = leader("LD_PRELOAD=" + shim, DLOCK, "run", *files.words, "-k", files.key(), "--", "env", "-u", "LD_PRELOAD", "cat", program="env")
    tty.send("one\n")
    tty.expect("one\r\n.*one\r\n")
    tty.sendcontrol("z")
    tty.send("two\n")
    tty.expect("two\r\n.*two\r\n")
    tty.sendcontrol("d")
    tty.expect(pexpect.EOF)
    wait_for(lambda: not tty.isalive(), what="the end of dlock")
    assert tty.exitstatus == 0


def test_ctrl_z_without_a_shell_costs_no_place(dlock, leader, files):
    holder = dlock.hold(files, files.key())
    tty = leader("run", *files.words, "-k", files.key(), "--", "echo", "ran")
    tty.expect("held by")
    later = dlock.contend(files, files.key()).queued(2)
    keeper, = children_of(tty.pid)
    wait_for(lambda: os.getsid(keeper) == keeper, what="the keeper to leave the session")  # until then there may be a shell
    tty.sendcontrol("z")
    tty.expect(WAITING)
    tty.expect(WAITING)
    assert [e["position"] for e in later.events("waiting")] == [2]
    holder.finish()
    tty.expect("ran")
    later.held().finish()
    wait_for(lambda: not tty.isalive(), what="the end of dlock")
    assert tty.exitstatus == 0


def test_ctrl_z_in_a_window_of_its_own_stops_nothing(dlock, tmux, files):
    tmux("new-window", "-n", "job", "exec " + run_line(files, "sh", "-c", "'echo ready; cat'"))

    def screen():
        return tmux("capture-pane", "-p", "-t", "job")

    wait_for(lambda: "ready" in screen(), what="the command")
    tmux("send-keys", "-t", "job", "C-z")
    tmux("send-keys", "-t", "job", "still here", "Enter")
    wait_for(lambda: screen().count("still here") == 2, what="an answer")
    tmux("kill-window", "-t", "job")
    wait_for(lambda: is_free(dlock, files), what="the release")


def test_a_job_that_waits_for_the_terminal_ends_with_its_shell(leader, files):
    """It is not stopped for ever."""
    line = " ".join([DLOCK, "run", *files.words, "-k", files.key(), "--", "cat", "&"])
    tty = leader("-c", line + " sleep 1000", above=["bash", "-m"], program=None)
    job = wait_for(lambda: len(p := [p for p in descendants_of(tty.pid) if (stat_of(p) or "  ")[1] == "T"]) == 2 and p, what="a stopped job")
    kill(tty.pid)
    until_all_end(job, "the end of the job")


def test_the_keeper_has_no_terminal(dlock, shell, place):
    """Nor does it get one by what it opens: it leads a session, and would get the first that is nobody's."""
    shell.send(run_line(place, "sh", "-c", "'echo ready; exec sleep 1000'") + "\n")
    shell.expect("ready")
    front, = children_of(shell.tty.pid)
    keeper = keeper_of(front)
    command, = children_of(keeper)

    def is_alone():
        with open(f"/proc/{keeper}/stat") as f:
            return [int(n) for n in f.read().rsplit(")", 1)[1].split()[2:5]] == [keeper, keeper, 0]  # group, session, terminal

    wait_for(is_alone, what="the keeper to leave the session")  # some milliseconds after the start
    assert os.getpgid(command) == os.getpgid(front) != keeper
    shell.ctrl("c")
    assert shell.prompt() == 130


# ---- Ctrl-S ----


def halt(shell):
    """Ctrl-S; returns when the terminal takes nothing any more."""
    tty = os.open(os.readlink(f"/proc/{shell.tty.pid}/fd/0"), os.O_WRONLY | os.O_NOCTTY)
    shell.ctrl("s")
    wait_for(lambda: not select.select([], [tty], [], 0)[1], what="the terminal to halt")
    os.close(tty)


@pytest.mark.parametrize("what, options", [(signal.SIGTERM, []), (signal.SIGUSR1, ["-v"]), ("a killed keeper", []),
                                           ("a killed keeper", ["-v"]), ("a frozen keeper", [])])
def test_a_halted_terminal_holds_nothing_up(dlock, shell, leased, catcher, what, options):
    """The line that says that we wait cannot be erased; command, signals and deadlines do not care."""
    words, logged = catcher
    holder = dlock.hold(leased, leased.key())
    shell.send(run_line(leased, *words, options=["-t", f"{TTL}s", *options]) + "\n")
    shell.expect(f"{ERASE}dlock: waiting ")
    halt(shell)
    outlast(1.2)  # it is drawn each second
    holder.finish()
    command = logged()[0]
    keeper = stat_of(command)[2]
    front = stat_of(keeper)[2]
    outlast(0.2)
    if what == "a killed keeper":
        kill(keeper)
    elif what == "a frozen keeper":
        kill(keeper, signal.SIGSTOP)
    else:
        kill(front, what)
        assert logged(2)[1] == what
        kill(front, signal.SIGUSR2)
    wait_for(lambda: not is_alive(command), what="the end of the command")
    wait_for(lambda: not is_alive(front), what="the end of dlock")  # also though nobody takes its last line
    shell.ctrl("q")
    assert shell.prompt() == (79 if "keeper" in str(what) else 5)


# ---- programs that own the terminal ----

ONLY_WITH_VI = pytest.mark.skipif(not shutil.which("vi"), reason="no vi")
ONLY_WITH_LESS = pytest.mark.skipif(not shutil.which("less"), reason="no less")


@ONLY_WITH_VI
def test_vi_edits_stops_and_goes_on(shell, files, tmp_path):
    (tmp_path / "text").write_text("first line\n")
    shell.send(run_line(files, "vi", "text") + "\n")
    shell.expect("first line")
    shell.send("osecond\x1b:w\r")
    wait_for(lambda: (tmp_path / "text").read_text() == "first line\nsecond\n", what="vi to write")
    shell.ctrl("z")
    assert shell.prompt() == 148
    assert shell.run("echo meanwhile") == 0
    assert "meanwhile" in shell.seen
    shell.send("fg\n")
    shell.send("othird\x1b:w\r")
    wait_for(lambda: "third" in (tmp_path / "text").read_text(), what="vi to write again")
    shell.send(":q\r")
    assert shell.prompt() == 0
    assert (tmp_path / "text").read_text() == "first line\nsecond\nthird\n"


@ONLY_WITH_LESS
def test_less_pages(shell, files, tmp_path):
    (tmp_path / "text").write_text("".join(f"line {i}\n" for i in range(1000)))
    shell.send(run_line(files, "less", "text") + "\n")
    shell.expect("line 20")
    shell.send("G")
    shell.expect("line 999")
    shell.send("q")
    assert shell.prompt() == 0


@ONLY_WITH_LESS
def test_less_at_the_end_of_a_pipeline(shell, files):
    shell.send(run_line(files, "seq", "1", "1000") + " | less\n")
    shell.expect("20")
    shell.send("G")
    shell.expect("1000")
    shell.send("q")
    assert shell.prompt() == 0


def test_the_command_reads_from_and_writes_to_the_terminal(shell, files):
    assert shell.run("tty; stty size") == 0
    direct = shell.seen
    assert shell.run(run_line(files, "tty")) == 0
    assert shell.run(run_line(files, "sh", "-c", "'tty; stty size'", options=["-q"])) == 0
    assert shell.seen == direct
    shell.send(run_line(files, "sh", "-c", "'read -r x </dev/tty; echo got $x >/dev/tty'") + "\n")
    shell.send("something\n")
    shell.expect("got something")
    assert shell.prompt() == 0


def test_a_shell_inside_has_its_own_jobs(dlock, shell, files):
    inner = "bash --norc --noprofile --noediting -i"
    shell.send(run_line(files, "env", "PS1='inner:$? '", inner) + "\n")
    shell.expect("inner:0 ")
    shell.send("cat\n")
    shell.send("x\n")
    shell.expect("x")
    shell.ctrl("c")
    shell.expect("inner:130 ")
    shell.send("cat\n")
    shell.send("y\n")
    shell.expect("y")
    shell.ctrl("z")
    shell.expect("inner:148 ")
    assert not is_free(dlock, files)
    shell.send("kill -9 %1; while jobs %1; do :; done; exit 6\n")
    assert shell.prompt() == 6
    assert is_free(dlock, files)


INNER = {"bash": "bash --norc --noprofile --noediting -i", "zsh": "zsh -fi +Z"}


@pytest.mark.parametrize("inner, stop", [("bash", "kill -STOP $$"), ("bash", "suspend"), ("zsh", "suspend")])
def test_a_shell_inside_can_be_suspended(dlock, shell, leased, inner, stop):
    """It has a process group of its own, and the terminal; `fg` gives it both back."""
    if not shutil.which(inner):
        pytest.skip(f"no {inner}")
    shell.send(run_line(leased, "env", "PS1='inner: '", *INNER[inner].split(), options=["-t", f"{TTL}s"]) + "\n")
    shell.expect("inner: ")
    for i in range(2):
        shell.send(f"{stop}\n")
        assert shell.prompt() > 128
        assert "Stopped" in shell.seen
        assert shell.run("echo outside") == 0
        assert not is_free(dlock, leased)
        shell.send("fg\n")
        shell.send(f"echo in{i}side\n")
        shell.expect(f"in{i}side")
        shell.expect("inner: ")
    shell.send("cat\n")
    shell.send("x\n")
    shell.expect("x")
    shell.ctrl("c")
    shell.expect("inner: ")
    shell.send("exit 6\n")
    assert shell.prompt() == 6
    assert is_free(dlock, leased)


# A shell whose `fg` continues dlock and its witness a moment before the command; tells how often dlock stopped again.
SLOW_FG = """
import os, signal, sys, time
for sig in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP):
    signal.signal(sig, signal.SIG_IGN)
read, write = os.pipe()
os.set_inheritable(write, True)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for sig in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP):
        signal.signal(sig, signal.SIG_DFL)
    os.execvp(sys.argv[1], [*sys.argv[1:], "sh", "-c", f"echo $$ >&{write}; while :; do kill -STOP 0; done"])
command, again = int(os.read(read, 20)), 0

def witnesses():  # one that has just been forked has no name yet
    found = []
    with open(f"/proc/{job}/task/{job}/children") as f:
        for p in map(int, f.read().split()):
            try:
                found += [p] if os.getpgid(p) == job else []
            except ProcessLookupError:
                pass
    return found

def state_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0]

def asked():  # what the next stop would merge with the next fg has been taken by those that were continued
    try:
        for pid in [*witnesses(), job]:
            with open(f"/proc/{pid}/status") as f:
                if int(dict(line.split(":", 1) for line in f)["ShdPnd"], 16) & 1 << signal.SIGCONT - 1:
                    return False
            # a witness sleeps when it has answered, and dlock when it has read that: stopped in between
            # for longer than it waits for an answer, it would have none
            if state_of(pid) not in ("ST" if pid == job else "S"):
                return False
    except (FileNotFoundError, ProcessLookupError):  # of a witness that has ended
        return False
    return True

for _ in range(40):
    assert os.WIFSTOPPED(os.waitpid(job, os.WUNTRACED)[1])
    os.tcsetpgrp(0, os.getpgrp())
    while state_of(command) != "T":
        pass
    os.tcsetpgrp(0, job)
    began = time.monotonic()
    for pid in [*witnesses(), job]:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.0005)
    if os.waitpid(job, os.WUNTRACED | os.WNOHANG)[0]:
        again += time.monotonic() - began < 0.25  # for longer dlock waits for no witness, and then for no shell
        os.kill(job, signal.SIGCONT)
    while not asked() and time.monotonic() - began < 10:
        time.sleep(0.0005)
    os.kill(command, signal.SIGCONT)
os.killpg(job, signal.SIGKILL)
print(f"again {again} times")
"""


def test_fg_that_reaches_dlock_first_is_no_reason_to_stop_again(dlock, files, tmp_path):
    """The command is still stopped at that moment, and the notice of it has not been read."""
    (tmp_path / "fg.py").write_text(SLOW_FG)
    tty = pexpect.spawn(sys.executable, ["fg.py", DLOCK, "run", *files.words, "-k", "job", "--"], env=dlock.env, cwd=str(tmp_path),
                        encoding="utf-8", timeout=PATIENCE)
    tty.expect("again [0-9]+ times")
    assert tty.match.group() == "again 0 times"
    tty.close(force=True)


def test_pipelines_on_both_sides(shell, files, tmp_path):
    assert shell.run("seq 3 | " + run_line(files, "sed", "s/^/-/", options=["-q"]) + " | tee copy | wc -l") == 0
    assert shell.seen.strip() == "3"
    assert (tmp_path / "copy").read_text() == "-1\n-2\n-3\n"


# ---- in the background ----


def test_a_background_job_neither_reads_nor_draws(dlock, shell, place, tmp_path):
    holder = dlock.hold(place, place.key())
    shell.run("( " + run_line(place, "sh", "-c", "'echo ran >result'") + " ) &")
    outlast(1)
    assert shell.run("echo typed") == 0
    assert shell.seen == "typed\r\n"
    holder.finish()
    wait_for(lambda: (tmp_path / "result").exists() and (tmp_path / "result").read_text(), what="the command")
    assert shell.run("wait") == 0
    assert "\x1b" not in shell.seen


def test_a_background_command_that_wants_to_read_is_stopped_like_any_other(shell, files):
    shell.run(run_line(files, "cat") + " &")
    wait_for(lambda: shell.run("jobs") == 0 and "Stopped" in shell.seen, what="the job to stop")
    shell.send("fg\n")
    shell.send("hello\n")
    shell.expect("hello")
    shell.ctrl("d")
    assert shell.prompt() == 0


# ---- what a person sees while dlock waits ----


def test_the_live_line_is_drawn_and_erased(dlock, shells, place):
    shell = shells(size=(24, 200))
    holder = dlock.hold(place, place.key(), "--who", "alice", "--why", "release 7")
    shell.send(run_line(place, "echo", "ran") + "\n")
    assert shell.expect(WAITING) == WRAP_OFF
    shell.expect(re.compile(rf"(, next in line)? for {place.key()}; held by alice \(pid {holder.pid} on {socket.gethostname()}"
                            r', running cat\)( "release 7")?( for [\w.]+)?\r'))
    shell.expect(ERASE)  # it is drawn again
    holder.finish()
    assert shell.prompt() == 0
    drawn, ran = shell.seen.rsplit(ERASE, 1)
    assert "\n" not in drawn and drawn.endswith(WRAP_ON)
    assert re.fullmatch(rf"(dlock: got {place.key()} after \S+\r\n)?ran\r\n", ran)


def test_the_place_in_line_comes_first(dlock, shells, leased):
    """Also where the rest does not fit."""
    shell = shells(size=(10, 44))
    holder = dlock.hold(leased, leased.key(), "--who", "x" * 60)
    first = dlock.contend(leased, leased.key()).queued(1)
    second = dlock.contend(leased, leased.key()).queued(2)
    shell.send(run_line(leased, "true") + "\n")
    shell.expect(re.compile(re.escape(ERASE) + r"dlock: waiting \w+, number 3 in line for"))
    holder.finish()
    first.finish()
    shell.expect(re.compile(re.escape(ERASE) + r"dlock: waiting [\w.]+, next in line for"))
    second.finish()
    assert shell.prompt() == 0


def test_the_token_is_said_with_v_only(dlock, files):
    for words, token in ((["-v"], True), ([], False)):
        holder = dlock.hold(files, "job")
        waiter = dlock.contend(files, "job", *words, command=["true"], start_new_session=True)
        wait_for(lambda w=waiter: "; held by " in w.stderr(), what="a line")
        holder.finish()
        said = [line for line in waiter.wait().stderr.splitlines() if "got job after" in line]
        assert [("token" in line) for line in said] == [token], said


def test_a_lock_that_comes_at_once_draws_nothing(shell, place):
    """On a machine that is too busy for that, what is drawn says a wait for which it may be drawn."""
    assert shell.run(run_line(place, "echo", "ran")) == 0
    told = [float(n) * {"ms": 1, "s": 1000}[unit] for n, unit in re.findall(r"dlock: waiting ([0-9.]+)(ms|s) for ", shell.seen)]
    assert all(ms >= 300 for ms in told), shell.seen
    assert shell.seen == "ran\r\n" or told, shell.seen


@pytest.mark.parametrize("options, variables", [(["-q"], ""), ([], "TERM=dumb "), ([], "CI=true ")], ids=["quiet", "dumb", "ci"])
def test_nothing_is_drawn_where_it_is_not_wanted(dlock, shell, files, options, variables):
    holder = dlock.hold(files, files.key())
    shell.send(variables + run_line(files, "echo", "ran", options=options) + "\n")
    outlast(0.8)
    holder.finish()
    assert shell.prompt() == 0
    assert shell.seen == "ran\r\n"


@pytest.mark.parametrize("columns", [40, 19, 8])
@pytest.mark.parametrize("key", ["\u20ac" * 100, "\u754c" * 100, "e" + "\u0301" * 100, "k" * 100],
                         ids=["narrow", "wide", "combining", "ascii"])
def test_a_narrow_window_is_not_scrolled(dlock, shells, files, key, columns):
    """A line that wraps would scroll the screen with each second."""
    holder = dlock.hold(files, key, "--who", "x" * 100)
    shell = shells(size=(10, columns))
    shell.send("clear\n" + " ".join([DLOCK, "run", *files.words, "-k", key, "echo ran"]) + "\n")
    shell.expect(f"{ERASE}dl")
    line = "dl" + shell.expect("\r")
    assert sum(2 if ord(c) >= 0x1100 else 1 for c in line) < columns and "\ufffd" not in line
    assert line.endswith("...")
    holder.finish()
    assert shell.prompt() == 0


@pytest.mark.parametrize("kind", ["no terminal", "a pipe in a terminal"])
def test_off_a_terminal_there_is_one_line_after_a_while(dlock, files, shell, kind, tmp_path):
    holder = dlock.hold(files, "job", "--who", "alice")
    began = boottime()
    if kind == "no terminal":
        waiter = dlock.start("run", *files.words, "-k", "job", "true", start_new_session=True)
        said = waiter.stderr
    else:
        shell.send(run_line(files, "true") + " 2>said\n")
        wait_for((tmp_path / "said").exists, what="the redirection")
        said = (tmp_path / "said").read_text
    wait_for(said, what="a line")
    assert boottime() - began >= 2.9
    assert re.fullmatch(rf"dlock: waiting \S+, next in line for job; held by alice \(pid {holder.pid} on "
                        rf"{socket.gethostname()}, running cat\) for [\w.]+\n", said())
    holder.finish()
    wait_for(lambda: said().count("\n") == 2, what="the good news")
    assert re.fullmatch(r"dlock: got job after \S+", said().splitlines()[1])
    assert "\x1b" not in said()


# ---- a real screen ----


@pytest.fixture
def tmux(dlock, tmp_path):
    """A tmux of our own; returns a function that runs its commands."""
    socket = str(tmp_path / "tmux")

    def run(*words):
        return subprocess.run(["tmux", "-f", "/dev/null", "-S", socket, *words], env={**dlock.env, "TERM": "xterm"},
                              capture_output=True, text=True, check=True, cwd=tmp_path, timeout=PATIENCE).stdout

    run("new-session", "-d", "-x", "70", "-y", "12", "env PS1='ready>' bash --norc --noprofile -i")
    yield run
    server = int(run("display-message", "-p", "#{pid}"))
    with contextlib.suppress(subprocess.CalledProcessError):
        run("kill-server")
    wait_for(lambda: not is_alive(server), what="the end of tmux")


@ONLY_WITH_VI
def test_what_a_person_sees_on_a_screen(dlock, tmux, files, tmp_path):
    def screen():
        return tmux("capture-pane", "-p")

    def type_keys(*keys):
        tmux("send-keys", *keys)

    wait_for(lambda: "ready>" in screen(), what="a prompt")
    (tmp_path / "job.sh").write_text(run_line(files, "vi", "text") + "\n")
    holder = dlock.hold(files, "job", "--who", "alice")
    type_keys("clear; . ./job.sh", "Enter")
    wait_for(lambda: "next in line for job; held by alice" in screen(), what="the waiting line")
    assert screen().count("dlock:") == 1
    type_keys("C-z")
    wait_for(lambda: "Stopped" in screen() and screen().rstrip().endswith("ready>"), what="the prompt")
    assert "waiting" not in screen()
    type_keys("clear; fg", "Enter")
    wait_for(lambda: "next in line for job; held by alice" in screen(), what="the waiting line again")
    holder.finish()
    wait_for(lambda: "\n~" in screen(), what="vi")
    assert "waiting" not in screen()
    type_keys("ihello", "Escape", ":wq", "Enter")
    wait_for(lambda: screen().rstrip().endswith("ready>"), what="the prompt")
    assert (tmp_path / "text").read_text() == "hello\n"


def test_the_end_of_a_pane_ends_the_command(dlock, tmux, files):
    tmux("new-window", "-d", "-n", "job", "exec " + run_line(files, "sh", "-c", "'echo ready; exec sleep 1000'"))
    wait_for(lambda: "ready" in tmux("capture-pane", "-p", "-t", "job"), what="the command")
    below = descendants_of(int(tmux("display-message", "-p", "-t", "job", "#{pane_pid}")))
    tmux("kill-pane", "-t", "job")
    wait_for(lambda: not [p for p in below if is_alive(p)], what="the end of the command")
    assert is_free(dlock, files)


def wide(text):
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def resize(tmux, columns):
    tmux("resize-window", "-x", str(columns), "-y", "12")


@pytest.mark.parametrize("who", ["x" * 60, "\u754c" * 60, "e\u0301" * 60], ids=["ascii", "wide", "combining"])
def test_a_window_that_changes_its_size_shows_one_line(dlock, tmux, files, tmp_path, who):
    def lines():
        return [line.rstrip() for line in tmux("capture-pane", "-p").splitlines() if line.strip()]

    wait_for(lambda: "ready>" in "".join(lines()), what="a prompt")
    (tmp_path / "job.sh").write_text(run_line(files, "true") + "\n")
    holder = dlock.hold(files, "job", "--who", who)
    tmux("send-keys", "seq 7 26; . ./job.sh", "Enter")  # at the bottom of the screen, as mostly
    wait_for(lambda: "held by" in "".join(lines()), what="the waiting line")
    for columns in (30, 95, 41, 22, 70):
        resize(tmux, columns)
        wait_for(lambda: len(lines()) > 2 and lines()[-2] == "26" and lines()[-1].startswith("dlock: waiting")
                 and lines()[-1].endswith("...") and wide(lines()[-1]) < columns,
                 what=f"one line of {columns} columns")
    holder.finish()
    wait_for(lambda: lines()[-1] == "ready>", what="the end")
    assert [line for line in lines() if "waiting" in line] == []


def test_a_window_that_shrinks_before_its_line_is_drawn_shows_one_line(dlock, tmux, files, tmp_path):
    """dlock is told of 60 columns, as if it had asked a moment before there were only 22."""
    def lines():
        return [line.rstrip() for line in tmux("capture-pane", "-p").splitlines() if line.strip()]

    resize(tmux, 22)
    wait_for(lambda: "ready>" in "".join(lines()), what="a prompt")
    (tmp_path / "job.sh").write_text("stty columns 60\n" + run_line(files, "sh", "-c", "'seq 7; read line; echo a line of 26 characters...'") + "\n")
    holder = dlock.hold(files, "job", "--who", "alice")
    tmux("send-keys", "clear; seq 3; . ./job.sh", "Enter")
    wait_for(lambda: "dlock: waiting" in "".join(lines()), what="the waiting line")
    first = lines()
    assert first[:3] == ["1", "2", "3"] and len(first) == 4 and first[3].startswith("dlock: waiting"), first
    holder.finish()
    wait_for(lambda: "7" in lines(), what="the command")
    assert not [line for line in lines() if "waiting" in line] and lines()[:3] == ["1", "2", "3"]
    tmux("send-keys", "Enter")
    wait_for(lambda: "ready>" in lines()[-1], what="the end")
    assert lines()[-3:-1] == ["a line of 26 character", "s..."], lines()  # it wraps again


@pytest.mark.parametrize("text", ["x\x1b[2J\x1b[5;5Hdlock: got job\r\n", "x\u202e\u2066y\u200b", "\x9b2J\x85\x0c", "\u754c" * 100],
                         ids=["escape", "bidi", "c1", "long"])
def test_what_others_have_stored_is_harmless_on_a_screen(dlock, tmux, leased, tmp_path, text):
    def lines():
        return [line.rstrip() for line in tmux("capture-pane", "-p").splitlines() if line.strip()]

    resize(tmux, 200)
    wait_for(lambda: "ready>" in "".join(lines()), what="a prompt")
    (tmp_path / "job.sh").write_text(run_line(leased, "true") + "\n")
    with leased.server.client() as c:
        holder = dlock.hold(leased, leased.key())
        stored, = [(k, f) for k in c.scan_iter(f"dlock:*{leased.prefix.rstrip(':')}*") if c.type(k) == "hash"
                   for f, v in c.hgetall(k).items() if '"who"' in v]
        head, record = re.fullmatch("([^{]*)({.*})", c.hget(*stored)).groups()
        c.hset(*stored, head + json.dumps({**json.loads(record), "who": text}, ensure_ascii=False))
    tmux("send-keys", "clear; echo top; . ./job.sh", "Enter")
    wait_for(lambda: "held by" in "".join(lines()), what="the waiting line")
    top, line = lines()
    assert top == "top" and line.startswith("dlock: waiting ") and "got job" not in line[:40]
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]", line)
    holder.finish()
    wait_for(lambda: "ready>" in lines()[-1], what="the prompt")


# ---- a server that does not answer ----


def test_waiting_for_a_server_is_said_on_the_screen(dlock, tmux, tmp_path):
    def screen():
        return tmux("capture-pane", "-p")

    resize(tmux, 120)
    wait_for(lambda: "ready>" in screen(), what="a prompt")
    (tmp_path / "job.sh").write_text(f"{DLOCK_TEST} run -u 'fake:///?acquire=away' -w 1h -k 'a job' true\n")
    tmux("send-keys", "clear; . ./job.sh", "Enter")
    wait_for(lambda: re.search(r"^dlock: waiting \w+ for 'a job'; cannot reach \\x1B\[2J the server, trying again$",
                               screen(), re.M), what="the waiting line")
    tmux("send-keys", "C-c")
    wait_for(lambda: screen().rstrip().endswith("ready>") and "waiting" not in screen(), what="the prompt")


def test_off_a_terminal_waiting_for_a_server_is_one_line(dlock):
    script = "fake:///?acquire=away,acquire=away,acquire=away,acquire=away,acquire=busy"
    waiter = dlock.start("run", "-u", script.replace("away,", "away@1s,"), "-w", "1h", "-k", "job", "true", program=DLOCK_TEST,
                         start_new_session=True)
    wait_for(waiter.stderr, what="a line")
    assert re.fullmatch(r"dlock: waiting \S+ for job; cannot reach \\x1B\[2J the server, trying again\n", waiter.stderr())
    waiter.queued(1)
    events = [(e["event"], e.get("reason") or e.get("position")) for e in waiter.events()]
    assert events == [("retrying", "cannot reach \x1b[2J the server"), ("waiting", 1)]
    waiter.signal(signal.SIGTERM)
    assert waiter.wait().status == -signal.SIGTERM


@pytest.mark.parametrize("words, env, status, tried, least", [
    (["-n"], {}, 69, "tried once (-n)", 0),
    (["-w", "0"], {}, 69, "tried once (-n)", 0),
    ([], {"DLOCK_NONBLOCK": "1"}, 69, "tried once (-n)", 0),
    ([], {}, 69, "tried for 5s (-w DURATION tries longer)", 5),
    (["-w", "1500ms"], {}, 69, "tried for 1.5s (-w)", 1.5),
    ([], {"DLOCK_WAIT": "6"}, 69, "tried for 6s (-w)", 6),
], ids=str)
def test_a_server_that_stays_away_is_tried_for_so_long(dlock, words, env, status, tried, least):
    began = boottime()
    result = dlock.run("run", "-u", "fake:///?acquire=away", *words, "-q", "-k", "job", "true", env=env, program=DLOCK_TEST)
    assert result.status == status and boottime() - began >= least
    said = re.sub(r"(?<=tried for )[\d.]+(?=s )", lambda m: f"{least:g}" if least <= float(m[0]) < least + 3 else m[0], result.stderr)
    assert re.fullmatch(r"dlock: cannot take job: cannot reach \\x1B\[2J the server; " + re.escape(tried) + "; nothing was run\n", said), result
