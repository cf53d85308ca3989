# Goal of these tests: whoever builds, installs or checks dlock is told what is
# missing and how far things are, and nothing happens behind their back.

import os
import pathlib
import signal
import subprocess

import pytest

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


# ---- check.sh ----

PARTS = 10

# Stands for pytest: says what that would, and whom it tests.
PART = r"""
echo "session $(ps -o sid= -p $$) of $$, INT $(grep SigIgn /proc/$$/status)"
echo "tests/test_a.py::test_1 PASSED                     [ 50%]"
{wait}
echo "tests/test_a.py::test_2 {second}                     [100%]"
case $DLOCK_TEST_BACKENDS$DLOCK_TEST_SHARE in zk2/2)
	if [ {second} = FAILED ]; then
		echo "=========== FAILURES ==========="
		echo "E  it is broken"
		echo "=========== 1 failed, 1 passed in 1.00s ============"
		exit 1
	fi;;
esac
echo "=========== 2 passed in 1.00s ============"
"""


def check(commands, out, wait="", second="PASSED"):
    commands("python", PART.format(wait=wait, second=second))
    return subprocess.Popen([f"{ROOT}/tests/check.sh", out], env={**ENV, "PYTHON": commands.path / "python", "CHECK_SECONDS": "1"},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_check_tells_how_far_it_is_and_where_its_logs_are(commands, tmp_path):
    running = check(commands, tmp_path, wait=f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done")
    lines = []
    while not lines or lines[-1].count("50%") < PARTS:
        lines.append(running.stdout.readline())
        assert lines[-1], lines
    assert f"{tmp_path}/check-" in lines[0]
    assert "failed" not in "".join(lines)
    (tmp_path / "go").touch()
    said = running.communicate(timeout=60)[0]
    assert running.returncode == 0 and said.count("2 passed") == PARTS


def test_check_shows_what_has_failed_and_nothing_twice(commands, tmp_path):
    running = check(commands, tmp_path, second="FAILED")
    said = running.communicate(timeout=60)[0]
    assert running.returncode == 1
    assert said.count("it is broken") == said.count("1 failed, 1 passed") == 1 and said.count("2 passed") == PARTS - 1


def test_parts_of_check_are_sessions_that_can_be_interrupted(commands, tmp_path):
    """Else the kernel sends SIGHUP to all of an orphaned job when a test stops a process."""
    check(commands, tmp_path).communicate(timeout=60)
    for log in tmp_path.glob("check-*.log"):
        words = log.read_text().split("\n", maxsplit=1)[0].replace(",", "").split()
        assert words[1] == words[3] and int(words[-1], 16) & 1 << signal.SIGINT - 1 == 0


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_check_ends_its_parts(commands, tmp_path, sig):
    running = check(commands, tmp_path, wait=f"echo $$ >>{tmp_path}/pids; exec sleep 1000")
    wait_for(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == PARTS, what="the parts")
    running.send_signal(sig)
    running.communicate(timeout=60)
    assert running.returncode == (130 if sig == signal.SIGINT else 143)
    for pid in (tmp_path / "pids").read_text().split():
        assert not pathlib.Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("program, part", [("bench.py", "startup"), ("kinds.py", "keys")])
def test_a_benchmark_gets_to_its_end(program, part):
    """Whatever the figures are: a missed target is marked, not fatal."""
    done = subprocess.run(["/usr/bin/python3", f"{ROOT}/tests/bench/{program}", "--quick", part],
                          env={**ENV, "DLOCK": DLOCK}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout
