# Goal of these tests: the promises hold on the oldest kernel that the manual names, in sandboxes that refuse
# calls, without files of /dev, in other namespaces, and where the C library is made to lie about users.

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from kernels import sandboxed
from support import DLOCK, DLOCK_TEST, ROOT, FilePlace, Late, RedisPlace, boottime, is_alive, is_free, spent, wait_for

pexpect = Late("pexpect")

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces everywhere")


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def leased(request, redis_server):
    """Locks that end with their lease."""
    return RedisPlace(request)


@pytest.fixture
def old(tmp_path):
    """dlock on Linux 4.18."""
    return sandboxed(tmp_path / "old" / "dlock", DLOCK)


@pytest.fixture
def strict(tmp_path):
    """dlock in a container engine that refuses what it does not know."""
    return sandboxed(tmp_path / "strict" / "dlock", DLOCK, error="EPERM")


# ---- older kernels, and sandboxes ----

# Of each kind one: descriptors, processes that are killed, holds and what ends them, joins, the contract.
CORE = {
    "run/test_process.py": "nice_directory or descriptors_that_it or stay_its_own or leaves_the_signals or survives_a_dead or stopped_front "
                           "or frozen_keeper or few_descriptors_and_a_tree or nested_many or broken_output or cannot_be_executed",
    "run/test_hold.py": "hold_and_release or nothing_of_the_user or test_pid_ends or for_a_time or pids_that_cannot or keeper_is_killed "
                        "or those_whose_parent or few_descriptors",
    "run/test_nested.py": "program or begins_alike",
    "promises/test_contract.py": "",
}


def test_the_core_on_the_oldest_kernel(old, tmp_path):
    """The tests themselves may use all that this kernel has."""
    tests = [f"{ROOT}/tests/system/{name}" for name in CORE]
    chosen = " or ".join(f"({name[name.index('/') + 1:]} and ({words}))" if words else f"({name[name.index('/') + 1:]} and file)"
                         for name, words in CORE.items())
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=short", "--workers=2",
                           f"--basetemp={tmp_path}/core", *tests, "-k", chosen], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "DLOCK": old, "DLOCK_TEST": DLOCK_TEST, "DLOCK_TEST_BACKENDS": "file"}, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_what_can_be_executed_is_known_without_faccessat2(dlock, files, tmp_path, error):
    program = sandboxed(tmp_path / "sandbox" / "dlock", DLOCK, error)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "echo").write_text("no program")
    words = [*files.words, "-k", "k", "--"]
    path = {"PATH": f"{tmp_path}/first:{os.environ['PATH']}"}
    for command, status in ([["echo", "ran"], 0], [[f"{tmp_path}/none"], 127], [["no-such-command"], 127], [[f"{tmp_path}/first/echo"], 126],
                            [[str(tmp_path)], 126]):
        result = dlock.run("run", *words, *command, program=program, env=path)
        assert result.status == status and result.stdout == ("ran\n" if status == 0 else ""), result


@pytest.mark.parametrize("sandbox", ["old", "strict"])
def test_a_hold_keeps_nothing_of_the_caller_without_close_range(dlock, files, tmp_path, sandbox, request):
    program = request.getfixturevalue(sandbox)
    with open(tmp_path / "file", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        begun = boottime()
        done = subprocess.run(["sh", "-c", f'x=$("{program}" hold "$@" --for 60s); echo $x', "sh", *files.words, "-k", "k"], env=dlock.env,
                              pass_fds=[file.fileno()], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.startswith("@dlock-") and spent(begun) < 30, done
    with open(tmp_path / "file", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not is_free(dlock, files, key="k")
    assert dlock.run("release", done.stdout.strip()).status == 0


@AS_ROOT
@pytest.mark.parametrize("around, status", [([], 0), (["unshare", "-n"], 76)], ids=["the same", "another"])
def test_a_network_namespace_without_a_cookie_is_known_by_its_file(dlock, files, old, around, status):
    """Before Linux 5.14; an inner run that cannot reach the outer one would wait for its own parent."""
    inner = [*around, old, "run", "-w", "1s", *files.words, "-k", "k", "echo", "joined"]
    result = dlock.run("run", *files.words, "-k", "k", *inner, program=old, events=False)
    assert (result.status, result.stdout) == (status, "joined\n" if status == 0 else ""), result
    assert ("DLOCK_KEEPER" in result.stderr) == (status == 76)


@pytest.mark.parametrize("sandbox", ["old", "strict"])
def test_a_hold_for_a_process_without_pidfds(dlock, files, sandbox, request):
    """Its end is seen, and a loss stops it."""
    program = request.getfixturevalue(sandbox)
    for how in ("ends", "loses"):
        body = subprocess.Popen(["sleep", "1000"])
        try:
            held = dlock.run("hold", *files.words, "-k", how, "--pid", str(body.pid), program=program)
            assert held.status == 0 and not is_free(dlock, files, key=how), held
            if how == "ends":
                body.kill()
                wait_for(lambda: is_free(dlock, files, key="ends"), what="the end of the hold")
            else:
                assert dlock.run("break", *files.words, "-k", how, "-y").status == 0
                assert body.wait(60) == -signal.SIGTERM
        finally:
            body.kill()
            body.wait()


@AS_ROOT
@pytest.mark.parametrize("words", ["run", "hold --pid $!"])
def test_an_outer_proc_without_pidfds(dlock, files, old, words):
    """Processes would have other numbers than ours, and nothing leads from one to the other."""
    line = " ".join([old, words, *files.words, "-k", "k", *(["echo", "ran"] if words == "run" else [])])
    result = dlock.start("-pf", "--kill-child", "sh", "-c", f"sleep 1000 & {line}; exit $?", program=shutil.which("unshare"), events=False).wait()
    assert (result.status, result.stdout, result.stderr.count("\n")) == (78, "", 1) and "5.3" in result.stderr, result


# ---- without files of /dev ----

NO_DEV = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh"]


@AS_ROOT
def test_a_hold_without_dev_null_keeps_no_pipe_open(dlock, files):
    begun = boottime()
    done = subprocess.run([*NO_DEV, "sh", "-c", f'x=$({DLOCK} hold "$@" --for 60s); echo $x', "sh", *files.words, "-k", "k"], env=dlock.env,
                          capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.startswith("@dlock-") and spent(begun) < 30, done
    assert dlock.run("release", done.stdout.strip()).status == 0


@AS_ROOT
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_line_for_nobody_without_dev_null(dlock, files, tmp_path, closed):
    """It is written to no socket of dlock's, and nobody waits for room."""
    begun = boottime()
    done = subprocess.run([*NO_DEV, "sh", "-c", f'{DLOCK} run -v "$@" {closed}', "sh", *files.words, "-k", "k", "--",
                           "sh", "-c", f"ls /proc/self/fd >{tmp_path}/fds; exit 7"], env=dlock.env, timeout=50, check=False)
    assert done.returncode == 7 and spent(begun) < 4, done
    # with the directory that ls reads, in the lowest place that is free
    assert (tmp_path / "fds").read_text().split() == ["0", "1", *(["2"] if closed == "2>&-" else [])]
    assert subprocess.run([*NO_DEV, "sh", "-c", f'{DLOCK} run "$@" {closed}', "sh", *files.words, "-k", "k", "no-such-command"], env=dlock.env,
                          timeout=50, check=False).returncode == 127
    assert spent(begun) < 8


@AS_ROOT
def test_a_hold_that_waits_without_dev_null_and_stderr(dlock, files):
    """The line that says so reaches none of dlock's own processes."""
    other = dlock.hold(files, "k")
    started = subprocess.Popen([*NO_DEV, "sh", "-c", f'exec {DLOCK} hold "$@" -k k --for 60s <&- 2>&-', "sh", *files.words], env=dlock.env,
                               stdout=subprocess.PIPE, text=True)
    outlast = boottime() + 1.5  # it speaks after a second
    wait_for(lambda: boottime() > outlast, what="time")
    other.finish()
    handle = started.communicate(timeout=50)[0].strip()
    assert started.returncode == 0 and handle.startswith("@dlock-"), (started.returncode, handle)
    assert dlock.run("release", handle).status == 0


@AS_ROOT
def test_a_command_reads_from_a_terminal_without_dev_tty(dlock, files):
    """It stays in the terminal's process group."""
    line = [*NO_DEV, DLOCK, "run", *files.words, "-k", "k", "sh", "-c", "read word; echo got $word; read word; echo got $word"]
    tty = pexpect.spawn(line[0], line[1:], env=dlock.env, timeout=60, encoding="ascii")
    tty.sendline("one")
    tty.expect("got one")
    tty.sendintr()
    tty.expect(pexpect.EOF)
    tty.close()
    assert tty.signalstatus == signal.SIGINT


# ---- other namespaces ----


def later(seconds, *words):
    """In a time namespace whose clock is ahead."""
    return ["unshare", "-T", "--boottime", str(seconds), *words]


@AS_ROOT
@pytest.mark.parametrize("seconds", [300, -1000])
def test_an_inner_run_in_another_time_namespace(dlock, leased, seconds):
    if not os.path.exists("/proc/self/ns/time"):
        pytest.skip("this kernel has no time namespaces")
    key = leased.key()
    seconds = max(seconds, 10 - int(boottime()))  # before its boot no clock goes
    inner = [DLOCK, "run", *leased.words, "-k", key, "-t", "3s", "echo", "joined"]
    result = dlock.run("run", *leased.words, "-k", key, "-t", "3s", *later(seconds, *inner))
    assert (result.status, result.stdout) == (0, "joined\n"), result


@AS_ROOT
def test_who_would_wait_for_its_own_parent_in_another_time_namespace(dlock, leased):
    key = leased.key()
    inner = ["env", "-u", "DLOCK_KEEPER", *later(300, DLOCK, "run", *leased.words, "-w", "20s", "-k", key, "echo", "ran")]
    result = dlock.run("run", *leased.words, "-k", key, *inner)
    assert result.status == 76 and "its own parent" in result.stderr, result


@AS_ROOT
@pytest.mark.parametrize("seconds", [300])
def test_a_lease_ends_in_another_time_namespace_as_well(dlock, leased, seconds, tmp_path):
    """The outer dlock is frozen: the inner one ends its command before the lease has ended."""
    key = leased.key()
    inner = [DLOCK, "run", *leased.words, "-k", key, "-t", "3s", "sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 1000"]
    outer = dlock.start("run", *leased.words, "-k", key, "-t", "3s", *later(seconds, *inner))
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the command"))
    begun = boottime()
    for process in (outer.keeper, outer.pid):
        os.kill(process, signal.SIGSTOP)
    try:
        wait_for(lambda: not is_alive(pid), what="the end of the command")
        assert spent(begun) < 10
    finally:
        for process in (outer.keeper, outer.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


# ---- a C library that lies ----


@pytest.fixture
def faked(tmp_path, public_dlock):
    """Runs a line of shell as another user than root, to whom fakeroot says that he is root."""
    if not shutil.which("fakeroot"):
        pytest.skip("fakeroot is not installed")
    user = {"user": 54321, "group": 54321, "extra_groups": []} if os.geteuid() == 0 else {}
    path = tmp_path
    while not path.stat().st_mode & stat.S_ISVTX and path != path.parent:
        path.chmod(0o755)
        path = path.parent
    home = tmp_path / "home"
    home.mkdir()
    if user:
        os.chown(home, 54321, 54321)

    def run(line, *words, env):
        return subprocess.run(["fakeroot", "sh", "-c", line, str(public_dlock), *words], env={**env, "HOME": str(home)}, cwd=home, capture_output=True,
                              text=True, timeout=60, check=False, **user)

    return run


def test_fakeroot_is_no_other_user(dlock, files, faked):
    """Inner runs join, a hold is released, and the owner's locks are those of the user that the kernel knows."""
    os.chown(files.directory, *((54321, 54321) if os.geteuid() == 0 else (-1, -1)))
    done = faked('id -u; $0 run "$@" -k k -- sh -c \'$0 run "$@" -k k echo joined\' "$0" "$@"', *files.words, env=dlock.env)
    assert (done.returncode, done.stdout) == (0, "0\njoined\n"), done
    done = faked('h=$($0 hold "$@" -k k --for 60s) && $0 release $h && echo released', *files.words, env=dlock.env)
    assert (done.returncode, done.stdout) == (0, "released\n"), done


def test_fakeroot_finds_the_locks_of_its_user(dlock, faked):
    done = faked("$0 doctor -b file | grep -o '/[^ ]*dlock-[0-9]*'; $0 run -b file -k k echo ran", env=dlock.env)
    assert done.stdout.endswith("ran\n") and f"dlock-{54321 if os.geteuid() == 0 else os.geteuid()}" in done.stdout, done
