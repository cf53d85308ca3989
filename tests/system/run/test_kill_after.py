# Goal of these tests: --kill-after bounds how long a command may go on when others have asked dlock to end, whoever asked and
# whatever is in the way; and nothing else begins that time.

import contextlib
import os
import shlex
import signal
import sys
import time

import pytest

from support import DLOCK, FilePlace, Late, boottime, children_of, descendants_of, is_alive, is_free, kill, spent, wait_for

pexpect = Late("pexpect")

# Logs its pid, then each signal, and ends of none of them; with an argument it ends with 5 so many seconds after the first.
# Each signal is taken when the one before it is logged: one handler could be interrupted by the next, which then comes first.
STUBBORN = """
import os, signal, sys, time
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
signals = signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
os.write(log, f"{os.getpid()}\\n".encode())
while True:
    os.write(log, f"{int(signal.sigwait(signals))}\\n".encode())
    if len(sys.argv) > 1:
        break
time.sleep(float(sys.argv[1]))
sys.exit(5)
"""
WORDS = [sys.executable, "-IS", "stubborn.py"]


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def start(dlock, files, tmp_path):
    """start(OPTIONS..., command=WORDS): a run that has begun."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)

    def starts(*options, command=WORDS, **more):
        started = dlock.start("run", *files.words, "-k", files.key(), *options, "--", *command, cwd=tmp_path, **more)
        pids(tmp_path)
        return started

    return starts


def pids(tmp_path, n=1):
    log = tmp_path / "log"
    wait_for(lambda: log.exists() and log.read_text().count("\n") >= n, what=f"{n} lines of the log")
    return [int(line) for line in log.read_text().split()]


def leftover(*command):
    """A line of shell that ends with 3 when the command has logged that it runs."""
    return ["sh", "-c", shlex.join(map(str, command)) + " & while [ ! -s log ]; do sleep 0.02; done; exit 3"]


def inner(files):
    return [DLOCK, "run", *files.words, "-k", files.key(), "--", *WORDS]


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_does_not_end_is_killed_and_dlock_ends_by_the_signal(dlock, start, files, tmp_path, sig):
    run = start("--kill-after", "2s")
    began = boottime()
    kill(run.pid, sig)
    kill(run.pid, signal.SIGTERM)  # the first one counts
    done = run.wait()
    assert done.status == -sig and spent(began) < 6 and is_free(dlock, files), done
    assert done.stderr.count("\n") == 1 and f"--kill-after 2s after {sig.name}" in done.stderr and "released" in done.stderr
    verdict = run.events("verdict")[-1]
    assert (verdict["verdict"], verdict["status"], verdict["signal"]) == ("killed", 128 + sig, sig)
    assert pids(tmp_path)[1] == sig


def test_what_ends_in_time_ends_as_ever(start):
    run = start("--kill-after", "30s", command=[*WORDS, "0"])
    kill(run.pid, signal.SIGTERM)
    done = run.wait()
    assert (done.status, done.stderr) == (5, "")


def test_the_whole_tree_is_killed(dlock, start, files, tmp_path):
    run = start("--kill-after", "300ms", command=["sh", "-c", f"trap '' TERM; setsid {shlex.join(WORDS)} & {shlex.join(WORDS)}; wait"])
    commands = pids(tmp_path, 2)
    kill(run.pid, signal.SIGTERM)
    assert run.wait().status == -signal.SIGTERM
    assert not [pid for pid in commands if is_alive(pid)] and is_free(dlock, files)


@pytest.mark.parametrize("options, command", [
    (["--wait-tree"], lambda _: leftover(*WORDS)),
    ([], lambda files: leftover(*inner(files))),
    ([], lambda files: ["sh", "-c", f"trap '' TERM; {shlex.join(map(str, inner(files)))}"]),
], ids=["what is left", "what has joined, alone", "what has joined"])
def test_what_the_lock_is_kept_for_is_killed(dlock, start, files, tmp_path, options, command):
    """The status is that of the signal, though the command itself may have ended."""
    run = start("--kill-after", "400ms", *options, command=command(files))
    wait_for(lambda: is_alive(pids(tmp_path)[0]), what="the command")
    time.sleep(0.2)  # until the shell has ended, where it does
    kill(run.pid, signal.SIGTERM)
    done = run.wait()
    assert done.status == -signal.SIGTERM and not is_alive(pids(tmp_path)[0]) and is_free(dlock, files), done


def test_an_inner_run_has_a_time_of_its_own(dlock, start, files, tmp_path):
    """What it kills is its command; the outer run keeps the lock."""
    words = shlex.join(map(str, [DLOCK, "run", "--kill-after", "300ms", *files.words, "-k", files.key(), "--", *WORDS]))
    run = start(command=["sh", "-c", f"{words} & echo $! >inner; wait $!; echo $? >status; exec sleep 1000"])
    kill(int(wait_for(lambda: (tmp_path / "inner").exists() and (tmp_path / "inner").read_text(), what="its pid")), signal.SIGTERM)
    wait_for(lambda: (tmp_path / "status").exists() and (tmp_path / "status").read_text(), what="the status")
    assert (tmp_path / "status").read_text() == "143\n" and not is_free(dlock, files)
    kill(run.pid, signal.SIGTERM)
    assert run.wait().status == -signal.SIGTERM


@pytest.mark.parametrize("sig, ignored", [(signal.SIGHUP, True), (signal.SIGUSR1, False)])
def test_no_other_signal_begins_the_time(start, sig, ignored):
    """Such as one that the caller ignores."""
    run = start("--kill-after", "100ms", command=[*WORDS, "0.5"], preexec_fn=(lambda: signal.signal(sig, signal.SIG_IGN)) if ignored else None)
    kill(run.pid, sig)
    assert run.wait().status == 5


def test_a_keeper_that_others_are_shown_is_asked_as_well(dlock, start, files):
    run = start("--kill-after", "300ms", "--min-hold", "500ms")
    kill(run.keeper, signal.SIGTERM)
    assert run.wait().status == -signal.SIGTERM
    wait_for(lambda: is_free(dlock, files), what="the release")


@pytest.mark.parametrize("whose, status", [("front", -signal.SIGKILL), ("keeper", 79)])
def test_whoever_of_dlock_is_killed_meanwhile(dlock, start, files, tmp_path, whose, status):
    run = start("--kill-after", "30s", "--grace", "300ms")
    keeper = run.keeper
    kill(run.pid, signal.SIGTERM)
    pids(tmp_path, 2)
    kill(keeper if whose == "keeper" else run.pid)
    assert run.wait().status == status
    wait_for(lambda: not is_alive(pids(tmp_path)[0]) and is_free(dlock, files), what="the end of all")


def test_a_run_that_waits_ends_at_once(dlock, files):
    holder = dlock.hold(files, files.key())
    waiter = dlock.start("run", *files.words, "-k", files.key(), "--kill-after", "1h", "true").queued()
    kill(waiter.pid, signal.SIGTERM)
    assert waiter.wait().status == -signal.SIGTERM
    assert holder.finish().status == 0


def test_a_hold_has_no_command_to_kill(dlock, files):
    done = dlock.run("hold", *files.words, "-k", "k", "--for", "1h", "--kill-after", "1s")
    assert done.status == 64 and "--kill-after" in done.stderr and is_free(dlock, files, key="k"), done


# ---- with a terminal ----


@pytest.fixture
def job(dlock, files, tmp_path):
    """A shell that tells of its job; job(TIME, ARGUMENTS...) is dlock's pid."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    tty = pexpect.spawn("bash", ["--norc", "--noprofile", "--noediting", "-i"], env={**dlock.env, "PS1": "<$?>", "TERM": "vt100"}, cwd=str(tmp_path),
                        encoding="utf-8", timeout=60, echo=False)
    tty.expect_exact("<0>")

    def starts(time_, *arguments):
        tty.sendline(shlex.join(map(str, [DLOCK, "run", *files.words, "-k", files.key(), "--kill-after", time_, "--", *WORDS, *arguments])))
        pids(tmp_path)
        front = children_of(tty.pid)[0]
        wait_for(lambda: len(children_of(front)) == 2, what="the witness")
        return front

    starts.tty = tty
    yield starts
    below = descendants_of(tty.pid)
    with contextlib.suppress(OSError, pexpect.ExceptionPexpect):
        tty.close(force=True)
    for pid in below:
        kill(pid)


def test_a_key_is_the_command_s(job, tmp_path):
    """A program may want Ctrl-C for itself; an INT that somebody sends is another."""
    front = job("2s")
    job.tty.sendcontrol("c")
    pids(tmp_path, 2)
    time.sleep(2.5)
    assert is_alive(front) and is_alive(pids(tmp_path)[0])
    kill(front, signal.SIGINT)
    job.tty.expect_exact("<130>")
    assert pids(tmp_path)[1:] == [signal.SIGINT] * 2


def test_a_signal_to_the_group_is_one_to_dlock(job, tmp_path):
    """The command has it already, and gets no second one."""
    os.killpg(job("2s"), signal.SIGTERM)
    job.tty.expect_exact("<143>")
    assert pids(tmp_path)[1:] == [signal.SIGTERM]


def test_a_suspended_job_is_killed_in_time(dlock, job, files, tmp_path):
    """The keeper sleeps for nobody, and wakes the front."""
    front = job("4s")
    kill(front, signal.SIGTERM)
    pids(tmp_path, 2)
    job.tty.sendcontrol("z")
    job.tty.expect_exact("<148>")
    wait_for(lambda: not is_alive(pids(tmp_path)[0]) and is_free(dlock, files), what="the end of the job")
    job.tty.sendline("fg")
    job.tty.expect("Terminated|no such job|has terminated|no current job")
