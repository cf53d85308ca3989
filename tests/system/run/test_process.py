# Goal of these tests: under dlock a command lives as it would without: same
# descriptors, signals and limits; whatever is done to its processes or to
# dlock's own, the command never runs without the lock, and the exit status
# says what happened.

import contextlib
import fcntl
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from support import (DLOCK, PATIENCE, At, FilePlace, RedisPlace, boottime, children_of, compile_shim, compiled, descendants_of, is_alive, is_free, kill, let_pass, name_of,
                     stat_of, told_at_the_end, wait_for)

TTL = 6  # seconds: who is to live bears a machine that is late by two seconds
SHORT = ["-t", f"{TTL}s"]
OTHER_USER = 50000 + os.getpid() % 10000  # a user who has no other process, whoever else tests


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def leased(request, redis_server):
    """Locks that end with their lease."""
    return RedisPlace(request)


@pytest.fixture
def script(tmp_path):
    """Writes a program into a file and returns the words that run it."""

    def write(text, name="script.py"):
        (tmp_path / name).write_text(text)
        return [sys.executable, "-IS", str(tmp_path / name)]

    return write


@pytest.fixture
def other_user(tmp_path, files, public_dlock):
    """Runs dlock as another user, in a directory that he may use."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    let_pass(tmp_path)
    os.chown(files.directory, OTHER_USER, OTHER_USER)

    def run(*words, **options):
        return subprocess.run([public_dlock, *words], user=OTHER_USER, group=OTHER_USER, extra_groups=[], cwd=files.directory,
                              capture_output=True, text=True, check=False, timeout=60, **options)

    return run


def has_line(text, started):
    return lambda: text in started.stdout().splitlines()


def outlast(seconds):
    """Lets a lease end that nobody renews: the one thing that only time can show."""
    until = boottime() + seconds
    wait_for(lambda: boottime() > until, timeout=seconds + PATIENCE, what="time")


def read_number(path):
    """What a process has written there, once it has."""
    path = pathlib.Path(path)
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), what=f"{path.name}")
    return int(path.read_text())


# ---- the command gets the world as it was ----


def ignore(*signals):
    def setup():
        for sig in signals:
            signal.signal(sig, signal.SIG_IGN)
    return setup


def block(*signals):
    return lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signals)


def limit(what, soft, hard=None):
    return lambda: resource.setrlimit(what, (soft, soft if hard is None else hard))


CATCHABLE = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}

WORLDS = {
    "plain": lambda: None,
    "pipe ignored": ignore(signal.SIGPIPE),
    "hup int ignored": ignore(signal.SIGHUP, signal.SIGINT),
    "chld ignored": ignore(signal.SIGCHLD),
    "all ignored": ignore(*CATCHABLE),
    "term blocked": block(signal.SIGTERM),
    "chld blocked": block(signal.SIGCHLD),
    "all blocked": block(*CATCHABLE),
    "umask": lambda: os.umask(0o137),
    "nice": lambda: os.nice(3),
    "descriptors": limit(resource.RLIMIT_NOFILE, 64, 100),
    "core": limit(resource.RLIMIT_CORE, 0),
    "stack": limit(resource.RLIMIT_STACK, 1 << 20, 1 << 21),
    "memory": limit(resource.RLIMIT_AS, 1 << 30),
    "cpu": limit(resource.RLIMIT_CPU, 100, 200),
    "file size": limit(resource.RLIMIT_FSIZE, 1 << 20),
    "locked memory": limit(resource.RLIMIT_MEMLOCK, 0),
    "group": lambda: os.setpgid(0, 0),
}

# What belongs to a process alone, and so differs between any two.
OWN = ("Name", "Pid", "PPid", "Tgid", "Ngid", "NSpid", "NStgid", "NSpgid", "SigQ", "Vm", "Rss", "Huge", "State",
       "voluntary_ctxt", "nonvoluntary_ctxt", "Threads", "CoreDumping", "FDSize")


def lines_of(words, setup, **options):
    output = subprocess.run(words, preexec_fn=setup, capture_output=True, text=True, check=True, timeout=60,
                            restore_signals=False, **options).stdout
    return [line for line in output.splitlines() if not line.startswith(OWN)]


@pytest.mark.parametrize("world", WORLDS)
def test_signals_limits_and_the_rest_are_as_without_dlock(dlock, files, world):
    look = ["cat", "/proc/self/status", "/proc/self/limits", "/proc/self/oom_score_adj", "/proc/self/coredump_filter",
            "/proc/self/timerslack_ns", "/proc/self/personality", "/proc/self/cgroup", "/proc/self/cpuset"]
    look = [path for path in look if not path.startswith("/") or os.path.exists(path)]
    direct = lines_of(look, WORLDS[world], env=dlock.env)
    assert lines_of([DLOCK, "run", *files.words, "-k", "k", *look], WORLDS[world], env=dlock.env) == direct
    assert any(line.startswith("SigIgn") for line in direct)


def test_a_complaint_leaves_the_signals_as_they_were(dlock, files):
    words = [DLOCK, "run", *files.words, "-k", "x", "grep", "SigIgn", "/proc/self/status"]
    done = subprocess.run(words, preexec_fn=ignore(signal.SIGCHLD), capture_output=True, text=True, check=True, timeout=60,
                          env={**dlock.env, "DLOCK_STRAY": "1"})
    assert "DLOCK_STRAY" in done.stderr
    assert int(done.stdout.split()[1], 16) >> (signal.SIGCHLD - 1) & 1


def test_nice_directory_and_session_are_as_without_dlock(dlock, files, tmp_path):
    words = ["sh", "-c", "nice; pwd -P; readlink /proc/self/cwd; readlink /proc/self/root; ps -o sid= -p $$"]
    direct = lines_of(words, WORLDS["nice"], cwd=tmp_path, env=dlock.env)
    assert lines_of([DLOCK, "run", *files.words, "-k", "k", *words], WORLDS["nice"], cwd=tmp_path,
                    env=dlock.env) == direct


LIST_DESCRIPTORS = """
import fcntl, json, os, sys
found = []
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        found.append((fd, os.readlink(f"/proc/self/fd/{fd}"), fcntl.fcntl(fd, fcntl.F_GETFL)))
    except OSError:
        pass  # the one that listed
with open(sys.argv[1], "w") as f:
    json.dump(sorted(found), f)
"""


@pytest.mark.parametrize("redirections", [
    "", "3</etc/passwd", "3<. 4</dev/zero 5>out 6<>out 7>>out 8>&1 9<&0", "7</dev/null", "<&-", ">&-", "2>&-",
    "<&- >&-", "<&- >&- 2>&-", "<&- 3</etc/passwd", "<&- >&- 2>&- 3</etc/passwd 9</etc/passwd", "</dev/null >out 2>&1",
])
def test_the_command_has_the_descriptors_that_it_would_have(dlock, place, script, tmp_path, redirections):
    probe = script(LIST_DESCRIPTORS)
    found = []
    for under in ([], [DLOCK, "run", *place.words, "-k", place.key()]):
        listed = tmp_path / f"listed{len(found)}"
        subprocess.run(["sh", "-c", f'exec "$@" {redirections}', "sh", *under, *probe, str(listed)], check=True,
                       cwd=tmp_path, env=dlock.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60)
        found.append(listed.read_text().replace(listed.name, "listed"))
    assert found[0] == found[1]


def test_descriptors_of_a_waiting_or_holding_dlock_stay_its_own(dlock, place, script, tmp_path):
    """The command of a waiter, whose keeper has opened everything there is to open."""
    holder = dlock.hold(place, place.key())
    listed = tmp_path / "listed"
    waiter = dlock.start("run", *place.words, "-k", place.key(), *script(LIST_DESCRIPTORS), str(listed)).queued()
    holder.finish()
    assert waiter.wait().status == 0
    names = [name for _, name, _ in json.loads(listed.read_text())]
    assert not [n for n in names if "socket" in n or "anon_inode" in n or "locks" in n or "memfd" in n], names


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the descriptors of a process that may hold a password")
def test_a_waiter_takes_one_page_of_what_a_user_may_have_in_pipes(dlock, files):
    """A user has 16384 by default, and perhaps a thousand runs that wait."""
    holder = dlock.hold(files, "k")
    waiter = dlock.start("run", *files.words, "-k", "k", "true").queued()
    sizes = []
    for pid in descendants_of(waiter.pid):
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(fd).startswith("pipe:") and int(fd.name) > 2:
                again = os.open(fd, os.O_RDWR | os.O_NONBLOCK)
                sizes.append(fcntl.fcntl(again, fcntl.F_GETPIPE_SZ))
                os.close(again)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert set(sizes) == {os.sysconf("SC_PAGE_SIZE")}


def test_dlock_reads_nothing_of_the_input(dlock, files, tmp_path):
    (tmp_path / "input").write_text("one\ntwo\n" + "x" * 100_000 + "\n")
    with open(tmp_path / "input", encoding="ascii") as lines:
        line = f'"{DLOCK}" run -u {files.url} -k k -- sh -c "read a; echo got \\$a"; read b; echo left $b; wc -c'
        result = subprocess.run(["bash", "-c", line], stdin=lines, capture_output=True, text=True, check=True,
                                env=dlock.env)
    assert result.stdout == "got one\nleft two\n100001\n"


def test_bytes_flow_through_pipes(dlock, files):
    data = os.urandom(1 << 20)
    line = [DLOCK, "run", *files.words, "-k", "k", "--", "sh", "-c", "tee /dev/stderr"]
    result = subprocess.run(line, input=data, capture_output=True, check=True, env=dlock.env)
    assert result.stdout == data and result.stderr == data


def test_the_command_and_dlock_are_children_of_each_other_as_promised(dlock, place):
    held = dlock.hold(place, place.key())
    assert stat_of(held.keeper)[2] == held.pid
    assert stat_of(held.command)[2] == held.keeper
    assert held.finish().status == 0


# ---- the exit status ----


@pytest.mark.parametrize("status", [0, 1, 2, 64, 69, 75, 79, 124, 126, 127, 128, 130, 137, 255])
def test_the_status_is_the_commands(dlock, files, status):
    result = dlock.run("run", *files.words, "-k", "k", "--", "sh", "-c", f"exit {status}", events=False)
    assert (result.status, result.stdout, result.stderr) == (status, "", "")


@pytest.mark.parametrize("world", ["plain", "all ignored", "all blocked"])
@pytest.mark.parametrize("sig", ["KILL", "TERM", "INT", "HUP", "PIPE", "SEGV", "ABRT", "QUIT", "USR1", "XCPU", "ALRM",
                                 "BUS", "SYS", "RTMIN+3"])
def test_dlock_dies_of_the_signal_that_the_command_died_of(dlock, files, script, sig, world):
    number = signal.SIGRTMIN + 3 if sig == "RTMIN+3" else getattr(signal, "SIG" + sig)
    die = script("import os, signal, sys\n"
                 "n = int(sys.argv[1])\n"
                 "if n != 9: signal.signal(n, signal.SIG_DFL)\n"
                 "signal.pthread_sigmask(signal.SIG_SETMASK, [])\n"
                 "os.kill(os.getpid(), n)\n")
    result = dlock.run("run", *files.words, "-k", "k", *die, str(int(number)), events=False,
                       preexec_fn=WORLDS[world], restore_signals=False)
    assert (result.status, result.stdout, result.stderr) == (-number, "", "")


@pytest.mark.parametrize("sig", [signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT])
def test_only_the_command_leaves_a_core(dlock, files, tmp_path, sig):
    line = [DLOCK, "run", *files.words, "-k", "k", "--", "sh", "-c", f"kill -{int(sig)} $$"]
    pid = os.fork()
    if pid == 0:
        os.chdir(tmp_path)
        most = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        os.execve(DLOCK, line, dlock.env)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == sig
    assert not os.WCOREDUMP(status)


def test_a_shell_sees_128_and_the_signal(dlock, files):
    line = f'"{DLOCK}" run -u {files.url} -k k -- sh -c "kill -INT \\$\\$"; echo $?'
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=dlock.env)
    assert result.stdout == "130\n"


# ---- commands that cannot be executed ----


@pytest.mark.parametrize("content, statuses", [
    ("#!/nonexistent/interpreter\n", (126, 127)),
    ("#!/tmp\n", (126,)),
    ("#!/etc/passwd\n", (126,)),
])
def test_a_command_that_fails_to_execute_gives_the_lock_back(dlock, place, tmp_path, content, statuses):
    path = tmp_path / "command"
    path.write_text(content)
    path.chmod(0o755)
    result = dlock.run("run", *place.words, "-k", place.key(), path, events=False)
    assert result.status in statuses and result.stdout == ""
    assert result.stderr.startswith("dlock: cannot execute '") and result.stderr.count("\n") == 1
    assert "released" in result.stderr and str(path) in result.stderr
    assert is_free(dlock, place)


def test_a_command_that_is_being_written_is_not_executable(dlock, place, tmp_path):
    path = shutil.copy("/bin/true", tmp_path / "busy")
    with open(path, "r+b"):
        result = dlock.run("run", *place.words, "-k", place.key(), path, events=False)
    assert result.status == 126 and "Text file busy" in result.stderr
    assert is_free(dlock, place)


def test_a_script_without_its_first_line_is_for_the_shell(dlock, files, tmp_path):
    path = tmp_path / "command"
    path.write_text("echo from $1; exit 3\n")
    path.chmod(0o755)
    result = dlock.run("run", *files.words, "-k", "k", path, "here", events=False)
    assert (result.status, result.stdout, result.stderr) == (3, "from here\n", "")


def test_a_command_that_vanishes_while_dlock_waits(dlock, place, tmp_path):
    path = shutil.copy("/bin/true", tmp_path / "command")
    holder = dlock.hold(place, place.key())
    waiter = dlock.start("run", *place.words, "-k", place.key(), path).queued()
    os.unlink(path)
    holder.finish()
    result = waiter.wait()
    assert result.status == 127 and "released" in result.stderr
    assert is_free(dlock, place)


# ---- signals ----

CATCH = """
import os, signal, sys
caught = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_SETMASK, caught)
os.write(1, b"ready\\n")
while True:
    n = signal.sigwait(caught)
    os.write(1, f"{int(n)}\\n".encode())
    if n == signal.SIGUSR2:
        sys.exit(5)
"""


def catcher(dlock, place, script, *options, **arguments):
    started = dlock.start("run", *place.words, *options, "-k", place.key(), *script(CATCH, "catch.py"),
                          start_new_session=True, **arguments)
    wait_for(has_line("ready", started), what="the command")
    return started


def test_every_signal_is_passed_on_once(dlock, files, script):
    held = catcher(dlock, files, script)
    sent = [n for n in sorted(CATCHABLE) if n not in (signal.SIGCHLD, signal.SIGUSR2)]
    sent = [n for n in sent if n not in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
                                         signal.SIGSYS, signal.SIGCONT)] + [signal.SIGUSR2]
    for n in sent:
        kill(held.pid, n)
        wait_for(has_line(str(int(n)), held), what=f"signal {n}")
    assert held.wait().status == 5
    assert held.stdout().split() == ["ready", *[str(int(n)) for n in sent]]


def test_a_signal_to_dlocks_group_reaches_the_command_once(dlock, files, script):
    held = catcher(dlock, files, script)
    assert os.getpgid(held.command) == held.command != os.getpgid(held.pid)
    assert os.getpgid(held.keeper) not in (os.getpgid(held.pid), os.getpgid(held.command))
    assert os.getsid(held.command) == os.getsid(held.pid)
    for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        os.killpg(held.pid, n)
        wait_for(has_line(str(int(n)), held), what=f"signal {n}")
    assert held.wait().status == 5
    assert held.stdout().split() == ["ready", "15", "2", "1", str(int(signal.SIGUSR2))]


@pytest.mark.parametrize("sig", [signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_is_for_the_command_alone(dlock, files, script, sig):
    """What it does about its workers is its affair."""
    main = script("""
import os, signal, sys
if os.fork() == 0:
    signal.pause()
signal.pthread_sigmask(signal.SIG_BLOCK, [int(sys.argv[1]), signal.SIGUSR2])
print("ready", flush=True)
print(int(signal.sigwait([int(sys.argv[1])])), flush=True)
signal.sigwait([signal.SIGUSR2])
""")
    held = dlock.start("run", *files.words, "-k", "k", *main, str(int(sig)), start_new_session=True)
    wait_for(has_line("ready", held), what="the command")
    worker = wait_for(lambda: descendants_of(held.command), what="the worker")[0]
    held.signal(sig)
    wait_for(has_line(str(int(sig)), held), what="the signal")
    held.signal(signal.SIGUSR2)
    assert held.wait().status == 0
    assert is_alive(worker), "the signal went to the worker as well"
    kill(worker)


def test_ignored_signals_stay_ignored(dlock, place):
    """As under nohup: neither while it waits nor while it runs."""
    holder = dlock.hold(place, place.key())
    waiter = dlock.start("run", *place.words, "-k", place.key(), *dlock.UNTIL_EOF, stdin=subprocess.PIPE,
                         preexec_fn=ignore(signal.SIGHUP, signal.SIGINT), restore_signals=False).queued()
    waiter.signal(signal.SIGHUP)
    waiter.signal(signal.SIGINT)
    holder.finish()
    waiter.held()
    waiter.signal(signal.SIGHUP)
    waiter.signal(signal.SIGINT)
    assert waiter.finish().status == 0


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_waiting_dlock_gives_up_its_place_and_dies_of_the_signal(dlock, place, sig):
    holder = dlock.hold(place, place.key())
    waiter = dlock.contend(place, place.key()).queued(1)
    waiter.signal(sig)
    result = waiter.wait()
    assert (result.status, result.stdout, result.stderr) == (-sig, "", "")
    second = dlock.contend(place, place.key()).queued(1)
    assert holder.finish().status == 0
    assert second.held().finish().status == 0


def test_a_command_may_take_its_time_to_end(dlock, leased, script):
    """It traps TERM and cleans up for longer than a lease: renewals go on."""
    held = catcher(dlock, leased, script, *SHORT)
    held.signal(signal.SIGTERM)
    wait_for(has_line("15", held))
    outlast(TTL + 1)
    assert not is_free(dlock, leased)
    held.signal(signal.SIGUSR2)
    assert held.wait().status == 5
    assert is_free(dlock, leased)


# ---- --max-run, --signal, --grace ----


@pytest.mark.parametrize("options, command, last", [
    ([], ["sleep", "100"], None),
    ([], ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done"], None),
    (["--grace", "1s"], ["sh", "-c", "trap 'echo TERM' TERM; while :; do sleep 0.02; done"], "TERM"),
    (["--grace", "1s", "--signal", "USR1"], ["sh", "-c", "trap 'echo USR1' USR1; while :; do sleep 0.02; done"],
     "USR1"),
    (["--grace", "300ms", "--signal", "KILL"], ["sh", "-c", "trap 'echo TERM' TERM; while :; do sleep 0.02; done"],
     None),
    (["--grace", "300ms"], ["sh", "-c", "trap '' TERM; setsid sleep 100 & sleep 100"], None),
    (["--grace", "300ms"], ["sh", "-c", "kill -STOP $$"], None),
    (["--grace", "300ms"], ["sh", "-c", "trap '' TERM; kill -STOP $$; kill -STOP $$"], None),
], ids=["dies", "exits", "ignores", "other signal", "kill", "daemon", "stopped", "stubborn"])
def test_max_run_stops_the_whole_tree(dlock, place, options, command, last):
    limit = "1s" if last else "300ms"  # who is to say something has the time to set its trap
    result = dlock.run("run", *place.words, "--max-run", limit, *options, "-k", place.key(), *command,
                       events=False, start_new_session=True)
    assert result.status == 124
    said = [line for line in result.stderr.splitlines() if line.startswith("dlock: ")]  # shells speak, too
    assert len(said) == 1
    assert "--max-run" in said[0] and "released" in said[0] and place.key() in said[0]
    assert result.stdout.split() == ([last] if last else [])
    assert is_free(dlock, place)


@pytest.fixture
def other_pids():
    """Words that run something in another pid namespace, whose init is none of ours."""
    holder = subprocess.Popen(["unshare", "-Urpf", "--kill-child", "sleep", "1000"], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: holder.poll() is not None or [p for p in children_of(holder.pid) if name_of(p) == "sleep"], what="the namespace")
        words = ["nsenter", "-t", *map(str, children_of(holder.pid)), "-U", "--preserve-credentials", "-p"]
        if holder.poll() is not None or subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            pytest.skip("nobody may make a namespace here, or enter it")
        yield words
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.parametrize("rest", ["ends", "stays"])
def test_who_was_seen_below_dlock_is_killed_in_another_pid_namespace(dlock, files, other_pids, rest):
    """SIGTERM ends its parent there, so that the other namespace's init has it when the killing begins."""
    inside = f"{shlex.join(other_pids)} sh -c '(trap \"\" TERM; exec sleep 1000) & wait' & "
    job = dlock.start("run", *files.words, "--max-run", "3s", "--grace", "1s", "-k", "k", "sh", "-c",
                      inside + ("trap '' TERM; " if rest == "stays" else "") + "wait; wait; sleep 1000")
    escaped, = wait_for(lambda: [p for p in descendants_of(job.pid) if name_of(p) == "sleep"], what="the process inside")
    assert job.wait().status == 124
    assert not is_alive(escaped)


def test_max_run_of_what_the_command_has_left_has_its_status(dlock, files):
    done = dlock.run("run", *files.words, "--wait-tree", "--max-run", "300ms", "-k", "k", "sh", "-c", "sleep 60 & exit 3")
    assert done.status == 124 and "--max-run" in done.stderr, done


def test_max_run_counts_from_the_start_of_the_command(dlock, files):
    holder = dlock.hold(files, "k")
    waiter = dlock.start("run", *files.words, "--max-run", "5s", "-k", "k", "sh", "-c", "exit 3").queued()
    outlast(0.3)
    impatient = dlock.start("run", *files.words, "--max-run", "2s", "-k", "k", "true").queued()
    outlast(2.2)
    holder.finish()
    assert waiter.wait().status == 3
    assert impatient.wait().status == 0


def test_a_silent_server_means_the_signal_then_kill(dlock, own_redis, script):
    """And the command is dead before the lease can have ended."""
    script_words = script(CATCH, "catch.py")
    held = dlock.start("run", "-u", own_redis.url, *SHORT, "--grace", "2s", "--signal", "USR1", "-k", "k", *script_words)
    wait_for(has_line("ready", held))
    command = held.command
    frozen = boottime()
    own_redis.pause()
    wait_for(has_line(str(int(signal.SIGUSR1)), held), what="the signal")
    wait_for(lambda: not is_alive(command), what="the end of the command")
    assert boottime() < frozen + TTL
    own_redis.resume()
    result = held.wait()
    assert result.status == 79 and "lost k" in result.stderr and told_at_the_end(result.stderr).count("\n") == 1
    heard = held.stdout().split()
    assert [n for n in heard if n != str(int(signal.SIGCONT))] == ["ready", str(int(signal.SIGUSR1))]


# ---- what the command leaves behind ----


@pytest.mark.parametrize("words", [[], ["-q"]], ids=["", "quiet"])
def test_renewals_that_fail_are_told_in_time(dlock, leased, own_redis, words):
    """Once in an outage, and once when it is over."""
    leased.server = own_redis
    held = dlock.hold(leased, leased.key(), *words, "-t", "15s", "--grace", "300ms")
    own_redis.pause()
    if words:
        held.event("suspect")
    else:
        wait_for(held.stderr, what="a warning")
    own_redis.resume()
    held.event("trusted")
    result = held.finish()
    assert result.status == 0, result
    if words:
        assert result.stderr == ""
    else:
        warned, renewed = result.stderr.splitlines()
        left = held.events("suspect")[0]["left_ms"] / 1000
        said = re.search(r"stopped in (?:(\d+)s|([\d.]+)s|(\d+)ms)", warned)
        then = float(said[1] or said[2] or 0) + float(said[3] or 0) / 1000
        assert 0.3 * left < then < 0.55 * left, (left, warned)  # at half of it
        assert leased.key() in warned and "; if no renewal succeeds, the command is stopped in " in warned
        assert renewed == f"dlock: {leased.key()}: the lease was renewed after all"


def daemon(tmp_path):
    """A command whose descendant escapes into a session of its own, and how to end that one."""
    fifo, pid = tmp_path / "fifo", tmp_path / "daemon.pid"
    os.mkfifo(fifo)
    return ["sh", "-c", f"setsid sh -c 'echo $$ >{pid}; exec cat {fifo}' >/dev/null 2>&1 & sleep 0; "
                        f"until [ -s {pid} ]; do sleep 0.01; done; exit 4"], fifo, pid


def test_the_lock_is_released_when_the_command_ends(dlock, place, tmp_path):
    command, _, pid = daemon(tmp_path)
    result = dlock.run("run", *place.words, "-k", place.key(), *command, events=False)
    assert (result.status, result.stderr) == (4, "")
    assert is_alive(read_number(pid)), "dlock leaves daemons alone"
    assert is_free(dlock, place)
    kill(read_number(pid))


def test_wait_tree_holds_the_lock_until_the_last_descendant_ends(dlock, place, tmp_path):
    command, fifo, pid = daemon(tmp_path)
    held = dlock.start("run", *place.words, "--wait-tree", "-k", place.key(), *command)
    read_number(pid)
    wait_for(lambda: not is_alive(held.command), what="the end of the command")
    assert held.poll() is None and not is_free(dlock, place)
    fifo.write_text("")
    assert held.wait().status == 4
    assert is_free(dlock, place)


def test_a_signal_reaches_what_is_waited_for_when_the_command_has_ended(dlock, files, tmp_path):
    """Else nothing but KILL would end dlock."""
    command, _, pid = daemon(tmp_path)
    held = dlock.start("run", *files.words, "--wait-tree", "-k", "k", *command)
    left = read_number(pid)
    wait_for(lambda: not is_alive(held.command), what="the end of the command")
    held.signal(signal.SIGTERM)
    assert held.wait().status == 4
    assert not is_alive(left)


@pytest.mark.parametrize("words", [["run"], ["run", "--min-hold", "1s"], ["hold", "--for", "1s"]], ids=["run", "min-hold", "hold"])
def test_a_password_database_that_hangs_keeps_nobody_from_being_killed(dlock, files, tmp_path, words):
    """Who we are is asked before signals are blocked; a user of another number than root's, whom no variable names."""
    shim = compile_shim(tmp_path, "hangs", """
        #include <fcntl.h>
        #include <stdlib.h>
        #include <unistd.h>
        struct passwd;
        uid_t geteuid(void) { return 4711; }
        struct passwd *getpwuid(uid_t uid) { (void)uid; creat(getenv("HANGS"), 0600); for (;;) pause(); }""")
    env = {"LD_PRELOAD": shim, "HANGS": str(tmp_path / "hangs"), "USER": "", "LOGNAME": ""}
    started = dlock.start(words[0], *files.words, "-k", "k", *words[1:], *(["true"] if words[0] == "run" else []), env=env)
    wait_for(lambda: (tmp_path / "hangs").exists(), what="the question")
    started.signal(signal.SIGTERM)
    assert started.wait(10).status == -signal.SIGTERM


@pytest.mark.parametrize("inner", ["run", "hold"])
def test_a_signal_reaches_who_has_joined_when_the_command_has_ended(dlock, files, tmp_path, inner):
    """And nobody else of those that it has left: the lock does not wait for them."""
    words = " ".join([DLOCK, inner, *files.words, "-k", "k"])
    joins = {"run": f"{words} -- sh -c 'trap \"echo TERM >{tmp_path}/got; exit 3\" TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.05; done' &",
             "hold": f"{words} --for 1h; echo $$ >{tmp_path}/pid"}
    (tmp_path / "left").write_text("")
    left = f"sleep 1000 & echo $! >{tmp_path}/left; {joins[inner]}"
    held = dlock.start("run", *files.words, "-k", "k", "sh", "-c", f"{left}\nwhile [ ! -s {tmp_path}/pid ]; do sleep 0.02; done; exit 4")
    read_number(tmp_path / "pid")
    wait_for(lambda: not is_alive(held.command), what="the end of the command")
    assert held.poll() is None
    held.signal(signal.SIGTERM)
    assert held.wait().status == 4
    assert inner == "hold" or (tmp_path / "got").read_text() == "TERM\n"
    bystander = read_number(tmp_path / "left")
    assert is_alive(bystander)
    kill(bystander)


@pytest.mark.parametrize("whom", ["keeper", "front"])
def test_no_descendant_survives_a_killed_dlock(dlock, place, tmp_path, whom):
    command, _, pid = daemon(tmp_path)
    command[-1] = command[-1].replace("exit 4", "exec sleep 1000")
    held = dlock.start("run", *place.words, "-t", "6s", "-k", place.key(), *command).held()
    tree = {*held.tree(), read_number(pid)} - {held.pid, held.keeper}
    assert len(tree) >= 2
    held.signal(signal.SIGKILL, whom)
    if whom == "keeper":
        result = held.wait()
        assert result.status == 79 and "lost" in result.stderr
        assert not [p for p in tree if is_alive(p)], "dlock ended before its command"
    wait_for(lambda: not [p for p in tree if is_alive(p)], what="the end of the tree")
    if whom == "front" or not place.lease_ends:
        wait_for(lambda: is_free(dlock, place), what="the release")


def test_a_dying_front_lets_the_command_clean_up(dlock, place, script):
    """TERM first, KILL only after the grace; the lock is held until the end."""
    held = catcher(dlock, place, script, "-t", "30s")
    command, keeper = held.command, held.keeper
    held.signal(signal.SIGKILL)
    wait_for(has_line("15", held), what="SIGTERM")
    assert is_alive(command) and not is_free(dlock, place)
    kill(command, signal.SIGUSR2)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert is_free(dlock, place)


BREEDING = """
import os, time
if os.fork():
    time.sleep(1000)
while True:  # each generation outlives its parent, in a session of its own
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.03)
"""


@pytest.mark.parametrize("kind", ["wide", "breeding"])
def test_a_tree_that_is_hard_to_kill_is_killed(dlock, files, script, kind):
    breeding = script(BREEDING)
    command = breeding if kind == "breeding" else \
        ["sh", "-c", "trap '' TERM; for i in $(seq 100); do setsid sleep 1000 & done; sleep 1000; sleep 1000"]
    held = dlock.start("run", *files.words, "--max-run", "500ms", "--grace", "200ms", "-k", "k", *command)
    result = held.wait()  # and nothing is left behind: every test checks that
    assert result.status == 124 and "NOT" not in result.stderr, result
    assert is_free(dlock, files, key="k")


def test_children_of_the_caller_are_none_of_dlocks_business(dlock, place, tmp_path):
    """`daemon & exec dlock ...`: a process may have children before it becomes dlock."""
    line = f'sleep 1000 & echo $! >{tmp_path}/foreign; sleep 0.1 & exec "$@"'
    result = subprocess.run(["sh", "-c", line, "sh", DLOCK, "run", *place.words, "--wait-tree", "-k", place.key(),
                             "sh", "-c", "sleep 0.2; exit 3"], env=dlock.env, check=False, timeout=60)
    assert result.returncode == 3
    foreign = read_number(tmp_path / "foreign")
    assert is_alive(foreign)
    kill(foreign)


@pytest.mark.parametrize("whom", ["keeper", "frozen keeper"])
def test_processes_of_the_caller_survive_a_killed_keeper(dlock, leased, tmp_path, whom):
    """Many children from before, and a daemon of theirs that comes later and loses its parent."""
    line = (f'for i in $(seq 40); do sleep 1000 & done; jobs -p >{tmp_path}/older; '
            f'bash -c "read x <{tmp_path}/go; bash -c \'setsid sleep 1000 & echo \\$! >{tmp_path}/daemon\'; '
            'exec sleep 1000" & exec "$@"')
    os.mkfifo(tmp_path / "go")
    held = dlock.start("-c", line, "bash", DLOCK, "run", *leased.words, "--status-fd=2", *SHORT, "-k", leased.key(),
                       "sh", "-c", "setsid sleep 1000 & exec sleep 1000", program=shutil.which("bash"))
    wait_for(lambda: '"started"' in held.stderr(), what="the command")
    command = next(event["pid"] for event in map(json.loads, held.stderr().splitlines())
                   if event["event"] == "started")
    keeper = stat_of(command)[2]
    tree = wait_for(lambda: [command, *descendants_of(command)][1:] and [command, *descendants_of(command)])
    (tmp_path / "go").write_text("go\n")
    daemon = read_number(tmp_path / "daemon")
    wait_for(lambda: stat_of(daemon)[2] == held.pid, what="the front to inherit a daemon")
    outlast(4)  # the front looks around every 2 s
    kill(keeper, signal.SIGKILL if whom == "keeper" else signal.SIGSTOP)
    assert held.wait().status == 79
    older = [int(pid) for pid in (tmp_path / "older").read_text().split()]
    assert len(older) == 40
    assert [p for p in [*older, daemon] if not is_alive(p)] == []
    assert not [p for p in tree if is_alive(p)]
    for pid in descendants_of(os.getpid()):
        if pid in (*older, daemon) or name_of(pid) == "sleep":
            kill(pid)


def test_processes_of_the_caller_survive_a_front_that_could_not_look_at_first(dlock, leased, tmp_path):
    """No descriptor for /proc while dlock starts: it looks again, before the keeper is gone."""
    shim = compile_shim(tmp_path, "blind", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <fcntl.h>
        #include <stdarg.h>
        #include <string.h>
        #include <sys/types.h>
        #include <time.h>
        static time_t began;
        __attribute__((constructor)) static void begin(void) { began = time(NULL); }
        int open(const char *path, int flags, ...) {
            int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
            va_list ap;
            va_start(ap, flags);
            mode_t mode = flags & O_CREAT ? va_arg(ap, int) : 0;
            va_end(ap);
            if (strncmp(path, "/proc", 5) == 0 && time(NULL) < began + 2) { errno = EMFILE; return -1; }
            return next(path, flags, mode);
        }
        int open64(const char *path, int flags, ...) {
            va_list ap;
            va_start(ap, flags);
            mode_t mode = flags & O_CREAT ? va_arg(ap, int) : 0;
            va_end(ap);
            return open(path, flags, mode);
        }""")
    line = f'sleep 1000 & echo $! >{tmp_path}/older; LD_PRELOAD={shim} exec "$@"'
    held = dlock.start("-c", line, "sh", DLOCK, "run", *leased.words, *SHORT, "-k", leased.key(),
                       "env", "-u", "LD_PRELOAD", "sh", "-c", f"echo $$ >{tmp_path}/command; exec sleep 1000",
                       program="/bin/sh", events=False)
    older, command = read_number(tmp_path / "older"), read_number(tmp_path / "command")
    outlast(4.5)  # blind for two seconds, and it looks around every 2 s
    kill(stat_of(command)[2])
    assert held.wait().status == 79
    assert not is_alive(command) and is_alive(older)
    kill(older)


# ---- a /proc that numbers our processes otherwise, or hides some, or none ----

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces everywhere")
PROCS = {
    "of an outer namespace": ["unshare", "-pf", "--kill-child"],
    "hiding": ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 none /proc && exec setpriv --reuid=54321 '
               '--regid=54321 --clear-groups --bounding-set=-all "$@"', "sh"],
}


def beating(path):
    """Does somebody still write there?"""
    before = path.stat().st_size
    time.sleep(0.3)
    return path.stat().st_size > before


def test_what_finds_no_room_in_the_gate_waits_for_a_stopped_stub(dlock, leased, tmp_path):
    """Sixteen long keys have more variables than a pipe of a page; the keeper goes on meanwhile."""
    shim = compile_shim(tmp_path, "stops", """
        #define _GNU_SOURCE
        #include <signal.h>
        #include <stdio.h>
        #include <sys/syscall.h>
        #include <sys/uio.h>
        #include <unistd.h>
        ssize_t writev(int fd, const struct iovec *all, int n)
        {
            int pid = 0;
            FILE *f = fopen("/proc/thread-self/children", "r");
            if (f && fscanf(f, "%d", &pid) == 1) kill(pid, SIGSTOP);
            return syscall(SYS_writev, fd, all, n);
        }""")
    words = [w for i in range(1, 16) for w in ("-k", f"{i:x}" * 500)]
    run = dlock.contend(leased, leased.key(), "-v", "-t", "6s", *words, command=["sh", "-c", "echo ${#DLOCK_TOKENS} $DLOCK_TOKEN; cat"], env={"LD_PRELOAD": shim})
    stub = wait_for(lambda: [p for p in children_of(run.keeper) if stat_of(p)[1] == "T"], what="the stub to stop")[0]
    wait_for(lambda: "renew" in run.stderr(), what="a renewal")
    kill(stub, signal.SIGCONT)
    run.finish()
    assert run.wait().status == 0
    room, token = run.result().stdout.split()
    assert int(room) > 7500 and int(token) > 0


@pytest.fixture
def beater(script, tmp_path):
    """A command whose daemon and grandchild bear TERM, hide themselves and write on as long as they live."""
    signs = [tmp_path / name for name in ("daemon", "worker")]
    words = script(f"""
import ctypes, os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def beat(path):
    ctypes.CDLL(None).prctl(4, 0)  # not dumpable: with hidepid=2 invisible even to its user
    while True:
        with open(path, "a") as f: f.write("x")
        time.sleep(0.02)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: beat({str(signs[0])!r})
    os._exit(0)
if os.fork() == 0: beat({str(signs[1])!r})
time.sleep(1000)
""")
    return words, signs


@pytest.fixture
def for_all(tmp_path, files):
    """Lets any user in, and gives him a dlock that he can execute."""
    let_pass(tmp_path)
    tmp_path.chmod(0o777)
    files.directory.chmod(0o1777)
    copy = tmp_path / "dlock"
    shutil.copy(DLOCK, copy)
    return str(copy)


@AS_ROOT
@pytest.mark.parametrize("proc", PROCS)
def test_max_run_stops_a_tree_that_proc_does_not_show(dlock, files, beater, for_all, proc):
    words, signs = beater
    result = dlock.start(*PROCS[proc][1:], for_all, "run", *files.words, "--max-run", "2s", "--grace", "200ms", "-k",
                         "k", *words, program=shutil.which("unshare"), start_new_session=True, events=False).wait()
    assert result.status == 124 and "NOT" not in result.stderr, result
    assert not any(beating(sign) for sign in signs)


@AS_ROOT
@pytest.mark.parametrize("proc", PROCS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_no_descendant_survives_the_keeper_where_proc_does_not_show_it(dlock, leased, beater, for_all, proc, how):
    words, signs = beater
    held = dlock.start(*PROCS[proc][1:], for_all, "run", *leased.words, *SHORT, "-k", leased.key(), *words,
                       program=shutil.which("unshare"), start_new_session=True, events=False)
    wait_for(lambda: all(sign.exists() for sign in signs), what="signs of life")
    command = next(p for p in descendants_of(held.pid) if name_of(p).startswith("python") and
                   name_of(stat_of(p)[2]) == "dlock")
    kill(stat_of(command)[2], how)
    result = held.wait()
    assert result.status == 79 and "NOT" not in result.stderr, result
    assert not any(beating(sign) for sign in signs)


NO_PROC = ["unshare", "-m", "sh", "-c", 'umount -l /proc 2>/dev/null || mount -t tmpfs none /proc; exec "$@"', "sh"]


@AS_ROOT
@pytest.mark.parametrize("words", [["run"], ["hold", "--pid", str(os.getpid())]], ids=["run", "hold"])
def test_nothing_is_run_where_there_is_no_proc(dlock, files, words):
    """What the command starts could not be found to be stopped."""
    line = [*NO_PROC, DLOCK, *words, *files.words, "-k", "k", *(["echo", "ran"] if words == ["run"] else [])]
    result = dlock.start(*line[1:], program=shutil.which("unshare"), events=False).wait()
    assert (result.status, result.stdout, result.stderr.count("\n")) == (78, "", 1), result
    assert "/proc" in result.stderr and ("nothing was run" if words == ["run"] else "nothing is held") in result.stderr
    assert not list(files.directory.iterdir())


# Runs a command without that call, as a sandbox may.
NO_SUBREAPER = """
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char **words)
{
	struct sock_filter f[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_CHILD_SUBREAPER, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof f / sizeof *f, f};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return 99;
	execv(words[1], words + 1);
	return 98;
}
"""


def test_nothing_is_run_where_orphans_cannot_be_adopted(dlock, files, tmp_path):
    """What loses its parent would be nobody's that dlock knows.  A hold has no command, and needs no such thing."""
    filtered = compiled(tmp_path / "filtered", NO_SUBREAPER, "-O1")
    if subprocess.run([filtered, "/bin/true"], check=False).returncode == 99:
        pytest.skip("no filters of system calls here")
    result = dlock.start(DLOCK, "run", *files.words, "-k", "k", "echo", "ran", program=filtered, events=False).wait()
    assert (result.status, result.stdout, result.stderr.count("\n")) == (78, "", 1), result
    assert "PR_SET_CHILD_SUBREAPER" in result.stderr and "nothing was run" in result.stderr
    assert not list(files.directory.iterdir())
    result = dlock.start(DLOCK, "doctor", *files.words, program=filtered, events=False).wait()
    assert result.status == 78 and "PR_SET_CHILD_SUBREAPER" in result.stdout, result
    result = dlock.start(DLOCK, "hold", *files.words, "-k", "k", "--for", "100ms", program=filtered, events=False).wait()
    assert result.status == 0 and result.stdout.startswith("@dlock-"), result
    wait_for(lambda: is_free(dlock, files, key="k"), what="the end of the hold")


HIDING_AND_OUTER = ["-m", "sh", "-c", 'mount -t proc -o hidepid=2 none /proc && exec unshare -pf --kill-child setpriv '
                    '--reuid=54321 --regid=54321 --clear-groups --bounding-set=-all sh -c "$0"']


@AS_ROOT
@pytest.mark.parametrize("words", ["run", "hold --pid $!", "hold --for 1ms"])
def test_nothing_is_run_where_a_hidden_process_has_no_number_of_ours(dlock, files, for_all, words):
    """The kernel's list of our children has the numbers of an outer namespace, which say nothing to kill(2)."""
    line = " ".join([for_all, words, *files.words, "-k", "k", *(["echo", "ran"] if words == "run" else [])])
    result = dlock.start(*HIDING_AND_OUTER, f"sleep 1000 & {line}", program=shutil.which("unshare"), events=False).wait()
    if "--for" in words:
        assert result.status == 0 and result.stdout.startswith("@dlock-"), result
        return
    assert (result.status, result.stdout, result.stderr.count("\n")) == (78, "", 1), result
    assert "hidepid" in result.stderr and ("nothing was run" if words == "run" else "nothing is held") in result.stderr
    assert not list(files.directory.iterdir())


@AS_ROOT
def test_a_hold_for_nobody_needs_no_proc(dlock, files):
    line = [*NO_PROC, DLOCK, "hold", *files.words, "-k", "k", "--for", "100ms"]
    result = dlock.start(*line[1:], program=shutil.which("unshare"), events=False).wait()
    assert result.status == 0 and result.stdout.startswith("@dlock-"), result
    wait_for(lambda: is_free(dlock, files, key="k"), what="the end of the hold")


@pytest.mark.parametrize("descriptors", [10, 11, 12])
def test_few_descriptors_and_a_tree_is_killed(dlock, files, beater, descriptors):
    words, signs = beater
    result = dlock.run("run", *files.words, "--max-run", "2s", "--grace", "200ms", "-k", "k", *words, events=False,
                       start_new_session=True, preexec_fn=limit(resource.RLIMIT_NOFILE, descriptors))
    assert result.status == 124 and "NOT" not in result.stderr, result
    assert not any(beating(sign) for sign in signs)


def test_a_keeper_that_wants_a_processor_is_not_given_up(dlock, leased, tmp_path):
    """A hundred that begin at once on a small machine are not frozen, but wait for each other."""
    shim = compile_shim(tmp_path, "busy", """
        #define _GNU_SOURCE
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        int connect(int fd, const struct sockaddr *address, socklen_t size) {
            static int called;
            time_t until = time(NULL) + 7;
            while (!called && time(NULL) < until);
            called = 1;
            return syscall(SYS_connect, fd, address, size);
        }""")
    done = dlock.run("run", *leased.words, "-t", "3s", "-w", "1m", "-k", leased.key(), "--", "echo", "ran", env={"LD_PRELOAD": shim})
    assert (done.status, done.stdout) == (0, "ran\n"), done


def test_a_keeper_that_has_had_its_processor_and_sleeps_is_not_given_up(dlock, tmp_path, redis_server):
    """It is looked at again two seconds after it has wanted one, and need not have woken since: its server says nothing."""
    shim = compile_shim(tmp_path, "busy", """
        #define _GNU_SOURCE
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        static double now(void) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            return t.tv_sec + t.tv_nsec / 1e9;
        }
        int connect(int fd, const struct sockaddr *address, socklen_t size) {
            static int called;
            double until = now() + 6.6;
            while (!called && now() < until);
            called = 1;
            return syscall(SYS_connect, fd, address, size);
        }""")
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        for _ in range(2):  # once the backlog is full, Linux drops the SYNs
            full = stack.enter_context(socket.socket())
            full.setblocking(False)
            full.connect_ex(("127.0.0.1", port))
        done = dlock.run("run", "-u", f"redis://127.0.0.1:{port}", "-O", "connect-timeout=20s", "-t", "3s", "-w", "9s", "-k", "job", "echo", "ran",
                         env={"LD_PRELOAD": shim})
    assert done.status == 69 and str(port) in done.stderr and "keeper" not in done.stderr, done


def test_a_keeper_that_goes_on_while_the_front_kills_gives_nothing_back_early(dlock, files, tmp_path):
    """Between the death of the command and its own the keeper may be awake: descendants live on."""
    shim = compile_shim(tmp_path, "slow", """
        #define _GNU_SOURCE
        #include <signal.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int kill(pid_t pid, int sig) {
            int result = syscall(SYS_kill, pid, sig);
            if (sig == SIGKILL) usleep(700000);
            return result;
        }""")
    rest = tmp_path / "rest"
    held = dlock.start("run", *files.words, "-k", "k", "-t", "3s", "-c",
                       f"sh -c 'trap \"\" TERM; echo $$ >{rest}; exec sleep 1000' & echo $$ >{tmp_path}/command; wait",
                       env={"LD_PRELOAD": shim}, start_new_session=True)
    descendant, command = read_number(rest), read_number(tmp_path / "command")
    keeper = stat_of(command)[2]
    kill(keeper, signal.SIGSTOP)
    wait_for(lambda: not is_alive(command), what="the front to kill the command")
    kill(keeper, signal.SIGCONT)
    while is_alive(descendant):
        other = dlock.run("run", *files.words, "-n", "-q", "-k", "k", "kill", "-0", str(descendant), events=False)
        assert other.status != 0
    assert held.wait().status == 79


def test_no_signal_is_for_the_number_of_who_was_reaped(dlock, files, tmp_path):
    """It may be another process's by then.  Keeper and command die one after the other."""
    shim = compile_shim(tmp_path, "slow_deaths", """
        #define _GNU_SOURCE
        #include <stdio.h>
        #include <sys/resource.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        pid_t waitpid(pid_t pid, int *status, int options) {
            static int none;
            siginfo_t dead = {0};
            pid_t got;
            if (pid == -1 && status && (none = !none) == 0)
                return 0;
            for (int i = 0; pid == -1 && !status && i < 100 && !dead.si_pid; i++)
                if (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) != 0 || usleep(2000) != 0)
                    break;
            got = wait4(pid, status, options, NULL);
            if (got > 0)
                dprintf(2, "reaped %d\\n", got);
            return got;
        }
        int kill(pid_t pid, int sig) {
            dprintf(2, "signalled %d\\n", pid);
            return syscall(SYS_kill, pid, sig);
        }""")
    held = dlock.start("run", *files.words, "-k", "k", "sleep", "1000", env={"LD_PRELOAD": shim}, start_new_session=True).held()
    command = held.command
    held.signal(signal.SIGKILL, "keeper")
    result = held.wait()
    told = result.stderr.splitlines()
    assert result.status == 79 and f"reaped {command}" in told, result
    after = told[told.index(f"reaped {command}"):]
    assert f"signalled {command}" not in after and f"signalled -{command}" not in after, told


# ---- what passes between front and keeper ----


@pytest.fixture
def small_link(tmp_path):
    """A link that is full after six messages instead of some hundred."""
    return {"LD_PRELOAD": compile_shim(tmp_path, "small_link", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <sys/socket.h>
        int socketpair(int domain, int type, int protocol, int ends[2]) {
            int (*make)(int, int, int, int *) = dlsym(RTLD_NEXT, "socketpair");
            int result = make(domain, type, protocol, ends), least = 1;
            for (int i = 0; i < 2 && result == 0; i++)
                setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
            return result;
        }""")}


def test_a_front_that_sleeps_has_the_grant_for_all_the_traces(dlock, files, small_link):
    """Traces fill the link before the grant comes: it and its anchors find room all the same."""
    keys = [f"k{n:02}" for n in range(16)]
    several = [word for key in keys for word in ("-k", key)]
    busy = dlock.hold(files, keys[-1])
    held = dlock.start("run", *files.words, "-v", *SHORT, *several, "sleep", "1000", env=small_link, start_new_session=True).queued()
    keeper = held.keeper
    held.signal(signal.SIGSTOP)
    time.sleep(1)  # the keys are asked for again and again
    assert busy.finish().status == 0
    command = wait_for(lambda: [p for p in descendants_of(keeper) if name_of(p) == "sleep"], what="the command")[0]
    kill(keeper)
    wait_for(lambda: not is_alive(command), what="the end of the command")
    assert not any(is_free(dlock, files, key=key) for key in keys)
    held.signal(signal.SIGCONT)
    assert held.wait().status == 79
    assert is_free(dlock, files, key=keys[0])


@pytest.mark.parametrize("descriptors", range(6, 17, 2))
def test_few_descriptors_and_the_lock_outlives_the_keeper(dlock, files, descriptors):
    """Where front or keeper have no room for the lock's descriptors, nothing is run."""
    several = ["-k", "a", "-k", "b", "-k", "c"]
    held = dlock.start("run", *files.words, *several, "sleep", "1000", events=False, start_new_session=True,
                       preexec_fn=limit(resource.RLIMIT_NOFILE, descriptors))
    command = wait_for(lambda: held.poll() is not None or [p for p in descendants_of(held.pid) if name_of(p) == "sleep"],
                       what="the command or a refusal")
    if held.poll() is not None:
        assert held.result().status == 71 and "nothing was run" in held.result().stderr, held.result()
        assert all(is_free(dlock, files, key=key) for key in several[1::2])
        return
    time.sleep(0.1)  # longer than a front sleeps on
    keeper = held.keeper
    held.signal(signal.SIGSTOP)
    kill(keeper)
    wait_for(lambda: not is_alive(command[0]), what="the end of the command")
    assert not any(is_free(dlock, files, key=key) for key in several[1::2])
    held.signal(signal.SIGCONT)
    assert held.wait().status == 79


@pytest.fixture(params=["ETOOMANYREFS", "ENOBUFS", "EMFILE", "EAGAIN"])
def no_descriptor_passes(request, tmp_path):
    return {"LD_PRELOAD": compile_shim(tmp_path, "none_passes", """
        #include <errno.h>
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
            if (m->msg_controllen > 0) {
                errno = %s;
                return -1;
            }
            return syscall(SYS_sendmsg, fd, m, flags);
        }""" % request.param)}


@pytest.mark.parametrize("kind", ["run", "hold", "joined"])
def test_a_grant_that_does_not_reach_the_front_goes_back(dlock, files, tmp_path, no_descriptor_passes, kind):
    marker = tmp_path / "ran"
    words = ["-k", "a", "-k", "b"]
    if kind == "run":
        done = dlock.run("run", *files.words, *words, "touch", marker, env=no_descriptor_passes)
    elif kind == "hold":
        done = dlock.run("hold", *files.words, *words, "--for", "1h", env=no_descriptor_passes)
    else:
        shim = f"LD_PRELOAD={no_descriptor_passes['LD_PRELOAD']}"
        done = dlock.run("run", *files.words, *words, "env", shim, DLOCK, "run", *files.words, "-k", "b", "touch", marker)
    assert (done.status, done.stdout) == (71, "") and "cannot be told of the grant" in done.stderr, done
    assert not marker.exists()
    assert is_free(dlock, files, key="a") and is_free(dlock, files, key="b")


def test_a_signal_finds_its_way_to_a_keeper_that_has_many_before_it(dlock, files, small_link):
    held = dlock.start("run", *files.words, "-k", "k", "sh", "-c", "trap '' USR1; echo ready; exec sleep 1000", env=small_link,
                       start_new_session=True).held()
    wait_for(has_line("ready", held), what="the trap")
    held.signal(signal.SIGSTOP, "keeper")
    for _ in range(30):
        held.signal(signal.SIGUSR1)
        time.sleep(0.01)  # or they would be one
    held.signal(signal.SIGTERM)
    time.sleep(0.05)
    held.signal(signal.SIGCONT, "keeper")
    assert held.wait().status == -signal.SIGTERM


# ---- nested runs ----

# Without what makes a run nested findable it waits for its own parent for ever; --wait would hide that.
NESTS = {
    "pid namespace": (["unshare", "-pf", "--kill-child"], 0),
    "pid namespace and /proc": (["unshare", "-pf", "--kill-child", "--mount-proc"], 0),
    "user namespace": (["unshare", "-Ur"], 0),
    "hidepid": (["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 none /proc && exec "$@"', "sh"], 0),
    "net namespace": (["unshare", "-n"], 76),
    "net and pid namespaces": (["unshare", "-npf", "--kill-child", "--mount-proc"], 76),
    "another user": (["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"], 76),
}


@AS_ROOT
@pytest.mark.parametrize("nest, where", [(nest, "inner") for nest in NESTS] + [(nest, "both") for nest in NESTS if NESTS[nest][1] == 0])
def test_a_nested_run_joins_or_is_refused_whatever_the_namespace(dlock, files, for_all, nest, where):
    around, status = NESTS[nest]
    if where == "both":  # what hides one from the other must lie between them
        if nest == "hidepid":
            around = [*around, "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--bounding-set=-all"]
    inner = [for_all, "run", *files.words, "-k", "k", "sh", "-c", "echo $DLOCK_TOKEN"]
    outer = [for_all, "run", *files.words, "-k", "k", "sh", "-c", 'echo $DLOCK_TOKEN; "$@"', "sh"]
    words = [*around, *outer, *inner] if where == "both" else [*outer, *around, *inner]
    result = dlock.start(*words[1:], program=shutil.which(words[0]), events=False, start_new_session=True).wait()
    assert result.status == status, result
    tokens = result.stdout.split()
    if status == 0:
        assert len(tokens) == 2 and tokens[0] == tokens[1] and result.stderr == ""
    else:
        assert len(tokens) == 1
        assert result.stderr.count("\n") == 1 and "DLOCK_KEEPER" in result.stderr and "k" in result.stderr


@AS_ROOT
def test_what_cannot_be_asked_is_no_matter_for_another_key(dlock, files):
    inner = ["unshare", "-n", DLOCK, "run", *files.words, "-k", "other", "echo", "ran"]
    result = dlock.run("run", *files.words, "-k", "k", *inner, events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "ran\n", "")


def test_a_stranger_with_our_environment_is_refused(dlock, files, tmp_path):
    """It is not killed with us, so it cannot join; and may be what our command waits for."""
    held = dlock.hold(files, "k", command=["sh", "-c", f"echo $DLOCK_KEEPER >{tmp_path}/keeper; cat"])
    wait_for(lambda: (tmp_path / "keeper").exists() and (tmp_path / "keeper").read_text(), what="the address")
    env = {"DLOCK_KEEPER": (tmp_path / "keeper").read_text().strip()}
    result = dlock.run("run", *files.words, "-k", "k", "true", env=env, events=False)
    assert result.status == 76 and "DLOCK_KEEPER" in result.stderr, result
    assert held.finish().status == 0
    assert dlock.run("run", *files.words, "-k", "k", "true", env=env, events=False).status == 0


# What execve(2) does not know: whether it is a text, for sh, or a program of another machine or a broken one.
FORMATS = {
    "script": (b"echo ran $1", 0),
    "empty": (b"", 0),
    "long line": (b"echo ran $1 #" + b"x" * 500 + b"\n\0", 0),
    "another machine": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xff\xff" + bytes(44), 126),
    "cut off": (b"\x7fELF\x02\x01\x01\n", 126),
    "binary": (b"echo ran\0\n", 126),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_no_text_is_not_given_to_a_shell(dlock, files, tmp_path, kind):
    text, status = FORMATS[kind]
    (tmp_path / "program").write_bytes(text)
    (tmp_path / "program").chmod(0o755)
    result = dlock.run("run", *files.words, "-k", "k", tmp_path / "program", "well")
    assert (result.status, result.stdout) == (status, "ran well\n" if b"$1" in text else ""), result
    assert status == 0 or "Exec format error" in result.stderr


@pytest.mark.parametrize("line, said", [("#!/bin/sh\r\n", "interpreter '/bin/sh' with a CR, which is not there"),
                                        ("#! /bin/sh\r\n", "remove the CR"),
                                        ("#!/none/such -x\necho\n", "interpreter '/none/such', which is not there")])
def test_an_interpreter_that_is_not_there_is_named(dlock, files, tmp_path, line, said):
    (tmp_path / "program").write_text(line, newline="")
    (tmp_path / "program").chmod(0o755)
    result = dlock.run("run", *files.words, "-k", "k", tmp_path / "program")
    assert result.status == 127 and said in result.stderr and "No such file" not in result.stderr, result


def test_what_names_dlock_to_systemd_names_the_command(dlock, files):
    """And nothing else does: these three are read by who compares them with its own pid."""
    script = 'LISTEN_PID=$$ WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=1 OTHER_PID=$$ exec "$0" run "$@"'
    told = 'echo $((LISTEN_PID - $$)) $((WATCHDOG_PID - $$)) $SYSTEMD_EXEC_PID $((OTHER_PID == $$))'
    done = subprocess.run(["sh", "-c", script, DLOCK, *files.words, "-k", "k", "sh", "-c", told], env=dlock.env, capture_output=True, text=True,
                          timeout=60, check=True)
    assert done.stdout == "0 0 1 0\n", done
    done = dlock.run("run", *files.words, "-k", "k", "env", env={"LISTEN_PID": "7", "WATCHDOG_PID": ""})
    assert "LISTEN_PID=7\n" in done.stdout and "WATCHDOG_PID=\n" in done.stdout, done


@pytest.mark.parametrize("sig", [32, 33])
def test_signals_that_the_c_library_keeps_have_a_status(dlock, files, script, sig):
    """Nobody can end by them who lets the library set what they do.  Where our caller has them blocked, they end nobody."""
    words = script(f"import os; os.kill(os.getpid(), {sig})")
    plain = subprocess.run(words, timeout=60, check=False).returncode
    result = dlock.run("run", *files.words, "-k", "k", *words)
    assert result.status in ((128 + sig, -sig) if plain == -sig else (plain,)), (plain, result)


TRACED = """import ctypes, os, signal
ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
os.kill(os.getpid(), signal.SIGUSR2)
"""


def test_a_command_that_is_traced_has_not_ended(dlock, files, script):
    """Its parent traces it, who has not asked for that: a signal stops it, and others reach it all the same."""
    held = dlock.start("run", *files.words, "-k", "k", *script(TRACED))
    wait_for(lambda: stat_of(held.command)[1] == "t", what="a stop")
    held.signal(signal.SIGUSR1)
    pending = lambda: int(re.search(r"^ShdPnd:\s*(\w+)", pathlib.Path(f"/proc/{held.command}/status").read_text(), re.M)[1], 16)
    wait_for(lambda: pending() & 1 << signal.SIGUSR1 - 1, timeout=20, what="the signal")
    assert not is_free(dlock, files, key="k")
    held.signal(signal.SIGKILL, "command")
    assert held.wait().status == -signal.SIGKILL


def test_nested_many_times(dlock, files):
    """40 levels, each with its own key; the innermost knows them all."""
    words = [DLOCK, "run", *files.words, "-n", "-k", "k0", "echo", "ran"]
    for i in range(39, 0, -1):
        words = [DLOCK, "run", *files.words, "-n", "-k", f"k{i}", *words]
    result = dlock.run("run", *files.words, "-k", "k0", *words, events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "ran\n", "")


@pytest.mark.parametrize("descriptors", range(9, 13))
def test_few_descriptors_and_a_nested_run_does_not_wait_for_its_parent(dlock, files, descriptors):
    inner = f'ulimit -Sn 64; exec "{DLOCK}" run -k k echo ran'
    result = dlock.run("run", *files.words, "-k", "k", "sh", "-c", inner, events=False,
                       preexec_fn=limit(resource.RLIMIT_NOFILE, descriptors, 1024))
    assert (result.status, result.stdout) in ((0, "ran\n"), (69, ""), (71, ""), (76, "")), result


@pytest.mark.parametrize("key, status", [("k", 0), ("other", 64)])
def test_a_password_is_handed_to_nobody(dlock, make_redis, script, key, status):
    """Whoever descends from dlock may ask its keeper; the URL is not for all of them."""
    server = make_redis("--requirepass", "hunter2")
    url = f"redis://:hunter2@127.0.0.1:{server.port}"
    ask = script("""
import os, socket, struct, sys
name = os.environ["DLOCK_KEEPER"].split()[0].split("/")[0]
for version in range(2, 12):
    for verb in (1, 2):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(10)
        s.connect(chr(0) + name[1:])
        s.send(struct.pack("=iiq9000s", version, verb, 0, b"") + b"k" + bytes(1))
        answer = s.recv(65536)
        if b"hunter2" in answer: print("told")
        if answer: print("answered", version)
""")
    result = dlock.run("run", "-u", url, "-k", "k", *ask, events=False)
    assert result.status == 0 and "told" not in result.stdout and "answered" in result.stdout, result
    result = dlock.run("run", "-u", url, "-k", "k", DLOCK, "run", "-n", "-k", key, "echo", "in", events=False)
    assert result.status == status and "hunter2" not in result.stdout + result.stderr, result
    assert ("DLOCK_URL" in result.stderr) == (status == 64)
    env = {"DLOCK_URL": url}
    result = dlock.run("run", "-k", "k", DLOCK, "run", "-n", "-k", key, "echo", "in", env=env, events=False)
    assert (result.status, result.stdout) == (0, "in\n")


# ---- in company ----


def test_a_timer_set_before_still_rings(dlock, files):
    def setup():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    result = dlock.run("run", *files.words, "-k", "k", "sleep", "1000", preexec_fn=setup, events=False)
    assert (result.status, result.stderr) == (-signal.SIGALRM, "")


@pytest.mark.parametrize("company, command, status, output", [
    (["timeout", "0.3"], ["sleep", "1000"], 124, ""),
    (["timeout", "-s", "KILL", "0.3"], ["sleep", "1000"], -9, ""),
    (["nohup"], ["sh", "-c", "kill -HUP $$; echo alive"], 0, "alive\n"),
    (["setsid", "-w"], ["echo", "a"], 0, "a\n"),
    (["env", "-i"], ["/bin/echo", "a"], 0, "a\n"),
    (["nice", "-n", "5"], ["nice"], 0, f"{min(os.nice(0) + 5, 19)}\n"),
    (["xargs", "-a", "/dev/null"], ["echo", "a"], 0, "a\n"),
], ids=lambda v: " ".join(v[:1]) if isinstance(v, list) else "")
def test_dlock_works_with_others_of_its_kind(dlock, place, company, command, status, output):
    words = [*company, DLOCK, "run", *place.words, "-k", place.key(), "--", *command]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=dlock.env, timeout=60,
                            stdin=subprocess.DEVNULL)
    assert (result.returncode, result.stdout) == (status, output), result
    wait_for(lambda: is_free(dlock, place), what="the release")


def test_parallel_jobs_take_turns(dlock, place, tmp_path):
    """A counter that is read and written without any care but the lock's."""
    counter = tmp_path / "counter"
    counter.write_text("0\n")
    work = f"n=$(cat {counter}); sleep 0.005; echo $((n + 1)) >{counter}"
    subprocess.run(["sh", "-c", 'seq 24 | xargs -P 8 -I{} "$@"', "sh", DLOCK, "run", *place.words, "-k", place.key(),
                    "-c", work], check=True, env=dlock.env, timeout=60)
    assert counter.read_text() == "24\n"


# ---- stopped processes ----


def test_a_stopped_front_or_command_keeps_the_lock(dlock, leased):
    stopped = {"f": ["front"], "c": ["command"], "fc": ["front", "command"]}
    held = {name: dlock.hold(leased, leased.key(name), *SHORT) for name in stopped}
    for name, processes in stopped.items():
        for process in processes:
            held[name].signal(signal.SIGSTOP, process)
    outlast(TTL + 1)
    for name, processes in stopped.items():
        assert not is_free(dlock, leased, key=leased.key(name)), name
        assert is_alive(held[name].command), name
        for process in processes:
            held[name].signal(signal.SIGCONT, process)
        assert held[name].finish().status == 0, name


def test_a_frozen_keeper_costs_the_lock_but_never_its_exclusion(dlock, leased, tmp_path):
    """The front kills in time: the next holder finds no trace of the command."""
    held = dlock.hold(leased, leased.key(), *SHORT)
    command = held.command
    alive = tmp_path / "still-alive"
    after = dlock.start("run", *leased.words, "-k", leased.key(), "sh", "-c",
                        f"grep -qs '^State:[[:space:]]*[^ZX[:space:]]' /proc/{command}/status && touch {alive}; exit 0").queued()
    held.signal(signal.SIGSTOP, "keeper")
    result = held.wait()
    assert result.status == 79 and "lost" in result.stderr and told_at_the_end(result.stderr).count("\n") == 1
    assert not is_alive(command) and not is_alive(held.keeper)
    assert after.wait().status == 0
    assert not alive.exists()


def test_a_keeper_that_is_frozen_between_its_stop_and_its_kill(dlock, leased, tmp_path):
    """The front that takes over kills what was stopped; it wakes nobody."""
    shim = compile_shim(tmp_path, "frozen", """
        #define _GNU_SOURCE
        #include <signal.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int kill(pid_t pid, int sig) {
            int result = syscall(SYS_kill, pid, sig);
            if (sig == SIGSTOP && pid < -1 && getsid(0) != getpid()) /* the front leads the session */
                syscall(SYS_kill, getpid(), SIGSTOP);
            return result;
        }""")
    woken = tmp_path / "woken"
    held = dlock.start("run", *leased.words, "-k", leased.key(), *SHORT, "-c",
                       f"trap 'echo TERM >>{woken}' TERM; echo $$ >{tmp_path}/command; while :; do sleep 0.05; done",
                       env={"LD_PRELOAD": shim}, start_new_session=True)
    command = read_number(tmp_path / "command")
    keeper = stat_of(command)[2]
    leased.take_away([leased.key()], leased.key())
    wait_for(lambda: stat_of(keeper) is None or stat_of(keeper)[1] == "T", what="the keeper to be frozen")
    result = held.wait()
    assert result.status == 79 and not is_alive(command), result
    assert not woken.exists()


def test_a_frozen_dlock_stops_the_command_when_it_thaws(dlock, leased):
    """While both are frozen nothing can be done; what then counts is the token."""
    held = dlock.hold(leased, leased.key(), *SHORT)
    for process in ("front", "keeper"):
        held.signal(signal.SIGSTOP, process)
    outlast(TTL + 0.5)
    for process in ("keeper", "front"):
        held.signal(signal.SIGCONT, process)
    assert held.wait().status == 79
    assert not is_alive(held.command)


# ---- scarcity ----


def outcome(dlock, words, marker, **options):
    """Runs touch(1) under dlock; either all of it happened, or nothing and dlock says so."""
    marker.unlink(missing_ok=True)
    result = dlock.run(*words, "touch", str(marker), events=False, **options)
    assert result.status >= 0, ("a crash", result)
    assert (result.status == 0) == marker.exists(), result
    assert result.status == 0 or result.stderr, result
    return result


@pytest.mark.parametrize("descriptors", range(3, 15))
def test_few_descriptors_mean_a_refusal_never_a_wrong_grant(dlock, place, tmp_path, descriptors):
    marker = tmp_path / "ran"
    few = limit(resource.RLIMIT_NOFILE, descriptors)
    words = ["run", *place.words, "-w", "100ms", "-k", place.key()]
    outcome(dlock, words, marker, preexec_fn=few)
    assert is_free(dlock, place)
    holder = dlock.hold(place, place.key())
    assert outcome(dlock, words, marker, preexec_fn=few).status != 0
    assert holder.finish().status == 0


def test_descriptors_that_run_out_everywhere_mean_a_refusal(dlock, files, tmp_path):
    shim = compile_shim(tmp_path, "full", """
        #include <errno.h>
        #include <signal.h>
        int signalfd(int fd, const sigset_t *mask, int flags) { errno = ENFILE; return -1; }
        int timerfd_create(int clock, int flags) { errno = ENFILE; return -1; }""")
    done = dlock.run("run", *files.words, "-k", "x", "echo", "runs", env={"LD_PRELOAD": shim})
    assert (done.status, done.stdout) == (71, "")


def test_descriptors_enough_for_a_lock(dlock, place, tmp_path):
    result = outcome(dlock, ["run", *place.words, "-k", place.key()], tmp_path / "ran",
                     preexec_fn=limit(resource.RLIMIT_NOFILE, 24))
    assert result.status == 0


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_few_processes_mean_a_refusal_before_anything_is_locked(other_user, files, processes):
    result = other_user("run", *files.words, "-k", "k", "touch", "ran",
                      preexec_fn=limit(resource.RLIMIT_NPROC, processes))
    ran = (files.directory / "ran").exists()
    assert (result.returncode, ran) == ((71, False) if processes < 3 else (0, True)), result
    if not ran:
        assert result.stderr.startswith("dlock: ") and result.stderr.count("\n") == 1
        assert "cannot start a process" in result.stderr and not list(files.directory.iterdir())


@pytest.mark.parametrize("megabytes", [1, 2, 3, 4, 6, 8])
def test_little_memory_means_a_refusal_never_a_wrong_grant(dlock, place, tmp_path, megabytes):
    few = limit(resource.RLIMIT_DATA, megabytes << 20)
    outcome(dlock, ["run", *place.words, "-k", place.key()], tmp_path / "ran", preexec_fn=few)
    assert is_free(dlock, place)


FAILING_MALLOC = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static int count;

/* In dlock and what it forks, not in what it executes. */
static int
fails(void)
{
	const char *n = getenv("FAIL_AT");

	return n && strcmp(program_invocation_short_name, "dlock") == 0 && ++count == atoi(n) && (errno = ENOMEM);
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return fails() ? NULL : __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }

void *
mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	return fd < 0 && fails() ? MAP_FAILED : (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
"""


@pytest.fixture(scope="module")
def failing_malloc(tmp_path_factory):
    directory = tmp_path_factory.mktemp("malloc")
    (directory / "malloc.c").write_text(FAILING_MALLOC)
    library = directory / "malloc.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, directory / "malloc.c"], check=True)
    return str(library)


def test_memory_that_fails_at_any_call(dlock, place, tmp_path, failing_malloc):
    libraries = subprocess.run(["ldd", DLOCK], capture_output=True, text=True, check=False).stdout
    if "libasan" in libraries or "libtsan" in libraries:
        pytest.skip("a sanitizer has its own malloc")
    refused = 0
    for n in range(1, 41):
        env = {"LD_PRELOAD": failing_malloc, "FAIL_AT": str(n)}
        key = place.key(f"k{n}")
        result = outcome(dlock, ["run", *place.words, "-k", key], tmp_path / "ran", env=env)
        refused += result.status != 0
        assert "not confirmed" in result.stderr or is_free(dlock, place, key=key), n
    assert refused, "nothing was made to fail"


# ---- output that goes nowhere ----


@contextlib.contextmanager
def broken_output(kind):
    """A descriptor that takes nothing."""
    if kind == "full disk":
        with open("/dev/full", "wb") as full:
            yield full.fileno()
        return
    read, write = os.pipe()
    if kind == "closed pipe":
        os.close(read)
    else:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        os.write(write, b"x" * 4096)
    yield write
    os.close(write)
    if kind == "full pipe":
        os.close(read)


@pytest.mark.parametrize("kind", ["closed pipe", "full pipe", "full disk"])
def test_broken_output_of_dlock_does_the_command_no_harm(dlock, place, kind):
    holder = dlock.hold(place, place.key())
    with broken_output(kind) as output:
        waiter = dlock.start("run", *place.words, "-v", f"--status-fd={output}", "-k", place.key(), "sh", "-c",
                             "echo fine; exit 6", stderr=output, pass_fds=[output], events=False)
        outlast(0.2)
        assert waiter.poll() is None
        holder.finish()
        result = waiter.wait()
    assert (result.status, result.stdout) == (6, "fine\n")
    assert is_free(dlock, place)


# ---- at the same moment ----


def test_a_command_that_ends_while_the_lease_is_being_renewed(dlock, leased):
    """The first renewal is due after a second: around it, every millisecond counts."""
    delays = [0.985 + i * 0.003 for i in range(16)]
    runs = [dlock.start("run", *leased.words, *SHORT, "-k", leased.key(f"k{i}"), "sleep", f"{delay:.3f}",
                        events=False) for i, delay in enumerate(delays)]
    results = [run.wait() for run in runs]
    assert [(r.status, r.stderr) for r in results] == [(0, "")] * len(runs)
    assert all(is_free(dlock, leased, key=leased.key(f"k{i}")) for i in range(len(delays)))


def test_a_lock_is_lost_or_the_command_ended_never_both(dlock, place):
    """KILL to the keeper in the moment when the command ends: one outcome, and nothing left."""
    for i in range(10):
        held = dlock.hold(place, place.key(f"k{i}"))
        keeper = held.keeper
        held.popen.stdin.close()
        time.sleep(i * 0.0002)
        kill(keeper)
        result = held.wait()
        assert result.status in (0, 79), result
        assert (result.status == 79) == ("lost" in result.stderr), result
        assert descendants_of(held.pid) == []


def test_min_hold_keeps_the_lock_but_not_the_caller(dlock, place):
    started = boottime()
    result = dlock.run("run", *place.words, "--min-hold", "2s", "-k", place.key(), "sh", "-c", "exit 3", events=False)
    assert (result.status, result.stderr) == (3, "")
    free = is_free(dlock, place)
    assert boottime() - started >= 2 or not free
    wait_for(lambda: is_free(dlock, place), what="the end of --min-hold")
    assert boottime() - started >= 2


# Runs dlock beside a stopped process of the same group, in a session of its own, and counts the HUPs that it gets.
BESIDE_A_STOPPED_ONE = """
import os, signal, subprocess, sys
heard = []
signal.signal(signal.SIGHUP, lambda *_: heard.append(1))
stopped = subprocess.Popen(["sleep", "1000"])
os.kill(stopped.pid, signal.SIGSTOP)
environ = {**os.environ, "LD_PRELOAD": sys.argv[1]}
for _ in range(3):
    subprocess.run(sys.argv[2:], env=environ, stderr=subprocess.DEVNULL)
stopped.kill()
print(len(heard))
"""

# The stub is slow to leave its caller's group: its keeper may have ended by then.
# The stub asks the kernel itself, so that only its beginning can be held up from outside.
SLOW_STUB = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int (*stub)(void *);
static int late(void *arg)
{
    struct timespec t = {0, 700000000};
    syscall(SYS_nanosleep, &t, NULL);
    return stub(arg);
}
int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
    int (*real)(int (*)(void *), void *, int, void *) = dlsym(RTLD_NEXT, "clone");
    stub = fn;
    return real(late, stack, flags, arg);
}"""


def test_nobody_is_hung_up_by_a_stub_that_is_slow(dlock, files, tmp_path):
    """When the parent of a process in an orphaned group ends, the kernel sends HUP to all of it, if one is stopped."""
    shim = compile_shim(tmp_path, "slow_stub", SLOW_STUB)
    dlock.hold(files, "job")
    done = subprocess.run(["setsid", "--wait", sys.executable, "-c", BESIDE_A_STOPPED_ONE, shim, DLOCK, "run", *files.words, "-n",
                           "-k", "job", "--", "true"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"


def test_a_command_does_not_begin_on_a_look_that_is_old(dlock, files, tmp_path):
    """A switch may have been frozen since: 2 s are promised."""
    shim = compile_shim(tmp_path, "slower_stub", SLOW_STUB.replace("{0, 700000000}", "{5, 0}"))
    done = dlock.run("run", *files.words, "-k", "job", "--unless-frozen", "all", "--", "echo", "ran", env={"LD_PRELOAD": shim})
    assert (done.status, done.stdout) == (69, "") and "too late to be used" in done.stderr, done
    assert is_free(dlock, files, key="job")


def test_a_keeper_that_stands_still_as_it_ends_a_run_whose_command_has_not_begun(dlock, own_redis, tmp_path):
    """Its front says that the grant came too late, as the keeper would have; not what an attempt before had met."""
    shim = compile_shim(tmp_path, "still", """
        #include <signal.h>
        #include <stdio.h>
        #include <sys/syscall.h>
        #include <sys/uio.h>
        #include <unistd.h>
        static pid_t front;
        __attribute__((constructor)) static void begin(void) { front = getpid(); }
        ssize_t writev(int fd, const struct iovec *all, int n)
        {
            int pid = 0;
            FILE *f = fopen("/proc/thread-self/children", "r");
            if (f && fscanf(f, "%d", &pid) == 1) syscall(SYS_kill, pid, SIGSTOP);
            return syscall(SYS_writev, fd, all, n);
        }
        int kill(pid_t pid, int sig)
        {
            if (getpid() != front) syscall(SYS_kill, getpid(), SIGSTOP);
            return syscall(SYS_kill, pid, sig);
        }""")
    run = dlock.contend(At(own_redis.url), "job", *SHORT, command=("echo", "ran"), env={"LD_PRELOAD": shim})
    wait_for(lambda: [p for p in children_of(run.keeper) if stat_of(p)[1] == "T"], what="the stub to stop")
    own_redis.pause()
    run.event("stopping")
    # not a keeper that the front continues at once, since it was late itself
    wait_for(lambda: run.poll() is not None or (stat_of(run.keeper) or "??")[1] == "T", what="the keeper to stand still")
    done = run.wait()
    own_redis.resume()
    assert (done.status, done.stdout) == (69, "") and "too late to be used" in done.stderr, done
