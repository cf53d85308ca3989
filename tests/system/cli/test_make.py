# Goal of these tests: whoever builds, installs or checks dlock is told what is
# missing and how far things are, and nothing happens behind their back.

import contextlib
import os
import pathlib
import re
import signal
import subprocess

import pytest

import support
from support import DLOCK, ROOT, wait_for

# One make does not rebuild what another one tests, nor take its options over.
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "DLOCK", "GNUMAKE"))}


def make(*words, path=None, **options):
    env = {**ENV, "PATH": f"{path}:{ENV['PATH']}"} if path else ENV
    return subprocess.run(["make", "-C", ROOT, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False, **options)


def files(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def test_install_and_uninstall_bear_blanks(tmp_path):
    where = [f"DESTDIR={tmp_path}/a b", "PREFIX=/usr/lo cal"]
    done = make("-o", "all", "install", *where)
    assert done.returncode == 0, done.stdout
    assert {pathlib.Path(name).parts[:4] for name in files(tmp_path)} == {
        ("a b", "usr", "lo cal", "bin"), ("a b", "usr", "lo cal", "share")}
    assert "a b/usr/lo cal/bin/dlock" in files(tmp_path)
    assert make("uninstall", *where).returncode == 0
    assert files(tmp_path) == []


def test_without_openssls_headers_dlock_is_built_without_tls(tmp_path):
    tls = tmp_path / "backends/common/tls.o"
    done = make(f"O={tmp_path}", "WITH_TLS=no", str(tls))
    assert done.returncode == 0, done.stdout
    assert "openssl/" not in tls.with_suffix(".d").read_text()
    assert b"TLS is not compiled in" in tls.read_bytes()
    names = subprocess.run(["nm", "--defined-only", tls], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert {"tls_open_if", "tls_set", "tls_start", "tls_can_retry", "tls_close"} <= set(names)


@pytest.fixture
def commands(tmp_path):
    """Makes commands that come first in the PATH, and tell when they are called."""
    directory, called = tmp_path / "bin", tmp_path / "called"
    directory.mkdir()
    called.touch()

    def command(name, script="exit 1"):
        path = directory / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{called}\n{script}\n')
        path.chmod(0o755)

    command.path, command.called = directory, lambda: called.read_text().splitlines()
    return command


# What Debian's dpkg-query says where gcc is installed, and make was once.
SOME = r'printf "install ok installed/gcc\ndeinstall ok config-files/mandoc\n"'


@pytest.mark.parametrize("goal", ["deps", "check"])
def test_without_root_the_administrators_line_is_said_once(commands, goal):
    commands("id", "echo 1000")
    commands("dpkg-query", SOME)
    for name in ("sudo", "apt-get"):
        commands(name)
    done = make(goal, path=commands.path)
    lines = [line for line in done.stdout.splitlines() if "apt-get" in line]
    assert done.returncode == 2 and len(lines) == 1
    assert lines[0].startswith("    apt-get install ") and " mandoc " in lines[0] and " gcc " not in lines[0]
    assert not [call for call in commands.called() if call.startswith(("sudo", "apt-get"))]


def test_root_is_told_what_is_installed(commands, tmp_path):
    commands("id", "echo 0")
    commands("dpkg-query", SOME)
    commands("apt-get", "echo the archive is away; exit 100")
    done = make("deps", f"O={tmp_path}", path=commands.path)
    assert done.returncode == 2 and done.stdout.count("the archive is away") == 1
    assert done.stdout.count("installing with apt-get: ") == 1
    assert [call for call in commands.called() if call.startswith("apt-get")] == ["apt-get update -qq"]


def test_what_the_compiler_would_miss_is_said_once(commands, tmp_path):
    commands("id", "echo 1000")
    done = make("-j2", "PKG_CONFIG=false", f"O={tmp_path}/build", path=commands.path)
    assert done.returncode == 2 and done.stdout.count("apt-get install ") == 1 and "libjansson-dev" in done.stdout
    assert "  CC " not in done.stdout
    demo = make("demo", "PKG_CONFIG=false", f"O={tmp_path}/build", path=commands.path)
    assert demo.returncode == 2 and demo.stdout.count("apt-get install ") == 1


def test_without_cmocka_units_are_left_out(commands):
    """Of a compiler that finds no cmocka.h."""
    said = make("-s", "CC=cc", "--eval=cmocka: ; @echo [$(have_cmocka)]", "cmocka", path=commands.path).stdout
    commands("cc", 'if [ "$1" = -include ]; then ! grep -q "^#include <cmocka.h>"; fi')
    done = make("-s", "CC=cc", "--eval=cmocka: ; @echo [$(have_cmocka)]", "cmocka", path=commands.path)
    assert done.stdout.splitlines()[-1] == "[]" and said.splitlines()[-1] in ("[]", "[yes]"), (done, said)


# ---- check.sh ----

# Stand for pytest and for make: each says what that would.
TESTS = """
echo "session $(ps -o sid= -p $$ | tr -d ' ') of $$, $(grep SigIgn /proc/$$/status)"
{wait}
echo "{end}"
exit {status}
"""


def check(commands, out, wait="", tests=0, tools=0, units=0):
    commands("python", TESTS.format(wait=wait, end=f"tests end with {tests}", status=tests))
    fails = f'case " $* " in *" units "*) exit {units};; *" units-have-failed"*) exit 2;; esac\n'
    commands("make", fails + TESTS.format(wait=wait, end=f"tools end with {tools}", status=tools))
    return subprocess.Popen([f"{ROOT}/tests/check.sh", out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**ENV, "PYTHON": commands.path / "python", "PATH": f"{commands.path}:{ENV['PATH']}"})


@pytest.mark.parametrize("tests, tools, units", [(0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 2)])
def test_check_fails_if_the_tests_or_the_tools_do_and_shows_both(commands, tmp_path, tests, tools, units):
    running = check(commands, tmp_path, tests=tests, tools=tools, units=units)
    said = running.communicate(timeout=60)[0]
    assert running.returncode == (1 if tests or tools or units else 0)
    assert said.count(f"tests end with {tests}") == 1 and (units or said.count(f"tools end with {tools}") == 1)
    assert f"{tmp_path}/check-tests.log" in said.splitlines()[0]


def test_tests_and_tools_run_side_by_side(commands, tmp_path):
    running = check(commands, tmp_path, wait=f"echo $$ >>{tmp_path}/pids; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done")
    wait_for(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2, what="both")
    (tmp_path / "go").touch()
    running.communicate(timeout=60)
    assert running.returncode == 0


def test_the_tests_can_be_interrupted(commands, tmp_path):
    said = check(commands, tmp_path).communicate(timeout=60)[0]
    ignored = next(line for line in said.splitlines() if line.startswith("session ") and "SigIgn" in line).split()[-1]
    assert int(ignored, 16) & 1 << signal.SIGINT - 1 == 0


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_check_ends_what_it_runs(commands, tmp_path, sig):
    running = check(commands, tmp_path, wait=f"echo $$ >>{tmp_path}/pids; exec sleep 1000")
    wait_for(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2, what="both")
    running.send_signal(sig)
    running.communicate(timeout=60)
    assert running.returncode == (130 if sig == signal.SIGINT else 143)
    for pid in (tmp_path / "pids").read_text().split():
        assert not pathlib.Path(f"/proc/{pid}").exists()


# ---- several processes that run the tests ----

CONFTEST = f"""
import sys
sys.path.insert(0, {ROOT + "/tests/servers"!r})
import workers

def pytest_addoption(parser):
    workers.add_options(parser)

def pytest_runtestloop(session):
    return workers.run_tests(session)
"""


@pytest.fixture
def crew(tmp_path):
    """Runs these tests in three processes; returns what pytest says and the log of the tests."""

    def run(tests, *options, status, more=""):
        (tmp_path / "conftest.py").write_text(CONFTEST + more)
        (tmp_path / "test_it.py").write_text(tests)
        done = subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--workers=3",
                               f"--basetemp={tmp_path}/base",  # else it cleans up what other runs have left
                               f"--progress={tmp_path}/log", *options, tmp_path], env=ENV, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stdout
        return done.stdout, (tmp_path / "log").read_text()

    return run


def test_each_test_is_run_once_and_all_at_a_time(crew, tmp_path):
    """Three that wait for each other: none of three processes runs two of them."""
    said, log = crew(f"""
import os, time, pytest

@pytest.mark.parametrize("n", range(3))
def test_wait(n):
    open(f"{tmp_path}/{{n}}", "w")
    end = time.monotonic() + 30
    while not all(os.path.exists(f"{tmp_path}/{{i}}") for i in range(3)):
        assert time.monotonic() < end
        time.sleep(0.01)

@pytest.mark.parametrize("n", range(20))
def test_more(n):
    with open(f"{tmp_path}/more", "a") as f:
        f.write("x")
""", status=0)
    assert "23 passed" in said and (tmp_path / "more").read_text() == "x" * 20
    assert log.count(" begins ") == log.count(" passed ") == 23


def test_on_a_busy_machine_few_tests_run_at_a_time(crew, tmp_path):
    """And all have their turn."""
    (tmp_path / "now").mkdir()
    crew(f"""
import os, time, pytest

@pytest.mark.parametrize("n", range(20))
def test_it(n):
    open(f"{tmp_path}/now/{{n}}", "w")
    time.sleep(0.3)
    assert len(os.listdir("{tmp_path}/now")) <= 4
    os.unlink(f"{tmp_path}/now/{{n}}")
    with open("{tmp_path}/all", "a") as f:
        f.write("x")
""", "--workers=12", status=0, more="workers.wanting = lambda: 1000\n")
    assert (tmp_path / "all").read_text() == "x" * 20


def test_what_fails_prints_or_ends_its_process_is_told_as_ever(crew):
    said, _ = crew("""
import os
def test_fails():
    print("this is what it has printed")
    assert 1 + 1 == 3

def test_dies():
    os.kill(os.getpid(), 9)

def test_passes():
    pass
""", status=1)
    assert "2 failed, 1 passed" in said and said.count("\nthis is what it has printed") == 1 and "assert (1 + 1) == 3" in said
    assert "test_dies" in said and "has ended with status 0x9" in said


def test_a_test_that_does_not_end_is_ended_and_its_processes_are_told(crew):
    said, _ = crew("""
import subprocess
def test_waits():
    with subprocess.Popen(["sleep", "1000"]) as p:
        try:
            p.wait()
        finally:
            p.kill()

def test_passes():
    pass
""", "--limit=1", status=1)
    assert "1 failed, 1 passed" in said and "longer than 1 s" in said and "sleep 1000" in said


def test_tests_that_share_a_fixture_of_their_file_run_one_after_the_other(crew, tmp_path):
    crew(f"""
import pytest
@pytest.fixture(scope="module")
def dear():
    with open("{tmp_path}/made", "a") as f:
        f.write("x")

@pytest.mark.parametrize("n", range(9))
def test_it(dear, n):
    pass
""", status=0)
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.parametrize("stall, lasts", [(0, 60), (60, 0.3)])
def test_a_stall_of_this_machine_takes_nothing_from_a_wait(monkeypatch, stall, lasts):
    began = support.boottime()
    monkeypatch.setattr(support, "STALLS", support.Stalls())
    support.STALLS.last, support.STALLS.seen = began + 600, [(began, began + stall)]
    with contextlib.nullcontext() if stall else pytest.raises(AssertionError):
        wait_for(lambda: support.boottime() > began + lasts, 0.1)
    with subprocess.Popen(["sleep", str(lasts)]) as process:
        support.STALLS.seen = [(support.boottime(), support.boottime() + stall)]
        with contextlib.nullcontext() if stall else pytest.raises(subprocess.TimeoutExpired):
            support.await_end(process, 0.2)
        process.kill()


def test_a_failure_shows_its_whole_message():
    said = "x" * 1000 + "\nthe fault\n" + "x" * 1000
    with pytest.raises(AssertionError) as failure:
        assert not said, ("words", said)
    assert "\nthe fault\n" in re.sub(" *\n *", "\n", str(failure.value))


@pytest.mark.full
@pytest.mark.parametrize("program, part", [("bench.py", "startup"), ("kinds.py", "keys")])
def test_a_benchmark_gets_to_its_end(program, part):
    """Whatever the figures are: a missed target is marked, not fatal."""
    done = subprocess.run(["/usr/bin/python3", f"{ROOT}/tests/bench/{program}", "--quick", part],
                          env={**ENV, "DLOCK": DLOCK}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout
