# Goal of these tests: a script that holds a lock by hand has what a command of
# `dlock run` has: the lock as long as it lives and no longer, and an end in time
# when the lock is lost, whichever of dlock's processes is killed or frozen.

import contextlib
import ctypes
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import pytest

from support import (BRIEFLY, DLOCK, DLOCK_TEST, PATIENCE, ROOT, FilePlace, RedisPlace, boottime, born_of, children_of, compile_shim, compiled,
                     descendants_of, is_alive, is_free, kill, let_pass, name_of, parents_below, place_id, places, spent, stat_of, wait_for)

pytestmark = pytest.mark.skipif(not places(), reason="no backend")
# What a script does when it is asked to stop, or what it has begun, is to be done before KILL, also on a slow machine.
GRACE = "-t 12 --grace 4s"
PLACES = [p for p in (FilePlace, RedisPlace) if p in places()]
DESCRIPTORS = {"file", "pg-advisory", "pg-row", "mysql-row", "mysql-named"}  # a lock there lasts for as long as one is open
CLONE_NEWNET = 0x40000000
TTL = 3  # seconds: KILL is due 2.47 s after the last good renewal


@pytest.fixture(params=PLACES, ids=lambda p: p.name)
def where(request):
    """A kernel's locks, and a server's."""
    return request.param(request)


@pytest.fixture
def leased(request, redis_server):
    return RedisPlace(request)


@pytest.fixture(params=["bash", "dash"])
def shell(request):
    return request.param


class Script:
    """A shell script that runs; $D is dlock, $K a key; `mark NAME [TEXT]` tells the test something."""

    def __init__(self, popen, directory):
        self.popen, self.directory, self.pid = popen, directory, popen.pid

    def mark(self, name):
        """What it has told, once it has."""
        path = self.directory / f"mark.{name}"
        wait_for(lambda: path.exists() and path.read_text().endswith("\n") or self.popen.poll() is not None, what=f"mark {name}")
        assert path.exists(), f"ended with {self.popen.returncode} before mark {name}: {self.stderr()}"
        return path.read_text()[:-1]

    def has(self, name):
        return (self.directory / f"mark.{name}").exists()

    def stdout(self):
        return (self.directory / "out").read_text()

    def stderr(self):
        return (self.directory / "err").read_text()

    def wait(self):
        status = self.popen.wait(PATIENCE)
        return status, self.stdout(), self.stderr()


PRELUDE = """D=%s
mark() { echo "$2" >"%s/tmp.$1"; mv "%s/tmp.$1" "%s/mark.$1"; }
"""


def holders():
    """dlock's processes in the background: (front, keeper) each."""
    result, parents = [], parents_below(os.getpid())  # one look: there may be hundreds
    for pid in descendants_of(os.getpid(), parents):
        found = stat_of(pid)
        below = descendants_of(pid, parents)
        if found and found[0] == "dlock-hold" and found[2] == os.getpid() and is_alive(pid) and below:
            result.append((pid, below[0]))
    return result


def began_at(pid):
    """By the kernel's clock."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[19])


@pytest.fixture(autouse=True)
def no_hold_is_left(nothing_is_left):
    """After each test those go that are held for a time; those for a process go with it."""
    yield
    for pid in [p for pair in holders() for p in pair]:
        kill(pid, signal.SIGTERM)
    wait_for(lambda: not holders(), what="all holds to end")


@pytest.fixture
def start(tmp_path, dlock, no_hold_is_left):
    """Starts a script; at the end it and all below it are killed."""
    made = []

    def run(text, place, key="job", shell="bash", **options):
        directory = tmp_path / f"script{len(made)}"
        directory.mkdir()
        (directory / "script").write_text(PRELUDE % (DLOCK, directory, directory, directory) + text)
        env = {**dlock.env, "DLOCK_URL": place.url, "DLOCK_OPTION": " ".join(place.settings), "K": place.key(key),
               "K2": place.key("other")}
        options.setdefault("stdin", subprocess.DEVNULL)
        with open(directory / "out", "w") as out, open(directory / "err", "w") as err:
            options.setdefault("stdout", out)
            options.setdefault("stderr", err)
            popen = subprocess.Popen([shell, str(directory / "script")], env=env, start_new_session=True, **options)
        made.append(Script(popen, directory))
        return made[-1]

    yield run
    for script in made:
        if script.popen.poll() is None:
            for pid in descendants_of(script.pid):
                kill(pid)
            script.popen.kill()
            script.popen.wait()


@pytest.fixture
def hold(dlock):
    """Runs `dlock hold`; returns how it ended."""

    def run(place, key, *options, **more):
        return dlock.run("hold", *place.words, "-k", place.key(key), *options, **more)

    return run


def becomes_free(dlock, place, key="job"):
    wait_for(lambda: is_free(dlock, place, key=place.key(key)), what=f"{key} to be free")


SLEEP = "while :; do sleep 1; done\n"


# ---- in scripts ----


def test_hold_and_release(start, where, shell):
    script = start("""set -e
H=$($D hold -k "$K" --pid $$ --why "by hand")
$D run -nqk "$K" true || echo "held $?"
$D release "$H"
$D run -nk "$K" true
echo free
$D release "$H" || echo "again $?"
""", where, shell=shell)
    status, out, err = script.wait()
    assert (status, out.split("\n")) == (0, ["held 75", "free", "again 1", ""]), err
    assert "nothing is held under this handle" in err


def test_a_second_release_finds_nobody(start, where, shell):
    """Not a keeper that ends before it has answered."""
    script = start("""
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    h=$($D hold -k "$K" --for 1m) && $D release "$h" || exit 2
    $D release "$h"; [ $? -eq 1 ] || exit 3
done
""", where, shell=shell)
    assert script.wait()[0] == 0


def test_every_backend(start, place):
    script = start("""set -e
eval "$($D hold -k "$K" --pid $$ --shell)"
(unset DLOCK_KEEPER; $D run -nqk "$K" true) || echo "held $?"
$D run -nk "$K" sh -c 'echo joined $DLOCK_TOKEN'
echo mine $DLOCK_TOKEN
$D release
unset DLOCK_KEEPER
$D run -nk "$K" true && echo free
""", place)
    status, out, err = script.wait()
    lines = out.split("\n")
    assert status == 0 and lines[0] == "held 75" and lines[3] == "free", (out, err)
    assert lines[1].split()[1] == lines[2].split()[1]


def test_shell_gets_what_a_command_gets(start, where, shell, dlock):
    odd = "it's; $(touch x) \"q\" é"
    script = start(f"""set -e
cat >odd <<'EOF'
{odd}
EOF
eval "$($D hold -k "$K" -k "$(cat odd)" --pid $$ --shell)"
test "$($D run -k "$(cat odd)" sh -c 'echo "$DLOCK_KEY"')" = "$(cat odd)"
env | grep ^DLOCK_ | sort
""", where, shell=shell, cwd=str(pathlib.Path(dlock.directory)))
    status, out, err = script.wait()
    got = dict(line.split("=", 1) for line in out.splitlines())
    assert status == 0, err
    for name in ("DLOCK_HANDLE", "DLOCK_KEY", "DLOCK_TOKEN", "DLOCK_TOKENS", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"):
        assert got[name]
    assert got["DLOCK_KEY"] == where.key("job") and got["DLOCK_KEEPER"].startswith(got["DLOCK_HANDLE"] + "/")
    assert "it's" in got["DLOCK_TOKENS"] and "DLOCK_SLOT" not in got
    assert not (pathlib.Path(dlock.directory) / "x").exists()


def test_release_leaves_nothing_in_the_shell(start, where, shell):
    script = start("""set -e
export DLOCK_WHY=mine
eval "$($D hold -k "$K" --limit 2 --pid $$ --shell)"
A=$DLOCK_HANDLE
eval "$($D hold -k "$K2" --pid $$ --shell)"
B=$DLOCK_HANDLE
eval "$($D release --shell "$A")"
test "$DLOCK_HANDLE" = "$B" -a "$DLOCK_KEY" = "$K2" && echo "$DLOCK_KEEPER" | grep -v "$A"
eval "$($D release --shell)"
env | grep ^DLOCK_ | sort
eval "$($D release --shell "$B")" || echo "again $?"
eval "$($D release --shell --nokey)" || echo "wrong $?"
eval "$($D release --shell)" || echo "none $?"
""", where, shell=shell)
    status, out, err = script.wait()
    keeper, option, *lines = [line for line in out.splitlines()]
    assert status == 0 and keeper.startswith("@dlock-"), err
    assert [line.split("=")[0] for line in [option, *lines[:2]]] == ["DLOCK_OPTION", "DLOCK_URL", "DLOCK_WHY"]
    assert lines[2:] == ["again 1", "wrong 64", "none 64"]


def test_release_gives_back_what_was_there_before_the_hold(start, where, shell):
    """A script's own settings, also after several holds; and what a run around it has told."""
    script = start("""set -e
export D DLOCK_BACKEND="${DLOCK_URL%%:*}" DLOCK_KEY="it's mine"
eval "$($D hold -k "$K" --pid $$ --shell)"
eval "$($D hold -k "$K2" --limit 2 --pid $$ --shell)"
eval "$($D release --shell)"
test "$DLOCK_KEY" = "$K" -a -n "$DLOCK_HANDLE"
eval "$($D release --shell)"
env | grep -E "^DLOCK_(BACKEND|KEY|TOKEN|SLOT|OWNER|HANDLE|BEFORE)" | sort
unset DLOCK_KEEPER DLOCK_KEY
eval "$($D hold -k "$K2" --pid $$ --shell)"
eval "$($D release --shell)"
echo "${DLOCK_KEY-none} $DLOCK_BACKEND"
$D run -k around -- sh -ec '
before=$(env | grep ^DLOCK_ | sort)
eval "$($D hold -k "$K2" --for 1m --shell)"
eval "$($D release --shell)"
test "$before" = "$(env | grep ^DLOCK_ | sort)" && echo same'""", where, shell=shell)
    status, out, err = script.wait()
    backend = where.url.partition(":")[0]
    assert (status, out) == (0, f"DLOCK_BACKEND={backend}\nDLOCK_KEY=it's mine\nnone {backend}\nsame\n"), err


def test_each_release_leads_to_the_hold_before(start, where, shell):
    """Three holds, each in the other; and one of them that was released before its turn."""
    script = start("""set -e
now() { env | grep -E "^DLOCK_(KEY|HANDLE|TOKEN)=" | sort; }
hold() { eval "$($D hold -k "$1" --pid $$ --shell)"; }
none=$(now); hold "$K"; A=$DLOCK_HANDLE one=$(now); hold "$K2"; two=$(now); hold third
eval "$($D release --shell)"; test "$(now)" = "$two" && echo second
eval "$($D release --shell)"; test "$(now)" = "$one" && echo first
hold "$K2"; eval "$($D release --shell)"; test "$(now)" = "$one" && echo first
hold "$K2"; hold third; $D release "$A"
eval "$($D release --shell)"; test "$DLOCK_KEY" = "$K2" && echo second
eval "$($D release --shell)"; test "$(now)" = "$none" && echo none
env | grep -E "^DLOCK_(BEFORE|KEEPER)" || echo nothing
""", where, shell=shell)
    status, out, err = script.wait()
    assert (status, out) == (0, "second\nfirst\nfirst\nsecond\nnone\nnothing\n"), err


def test_a_script_that_holds_in_a_loop_does_not_grow(start, where, shell):
    """DLOCK_KEEPER names those that are there.  As `dlock hold -h` shows it: without release --shell."""
    script = start("""set -e
for i in 1 2 3 4 5; do
    lock=$($D hold -k "$K" --pid $$ --shell)
    eval "$lock"
    echo "$(env | grep -c ^DLOCK_) $(echo "$DLOCK_KEEPER" | wc -w)"
    $D release
done
$D run -k "$K" -- sh -c 'echo "$DLOCK_KEEPER" | wc -w'
""", where, shell=shell)
    status, out, err = script.wait()
    *turns, last = out.splitlines()
    assert status == 0 and last == "1" and len(turns) == 5 and len(set(turns[1:])) == 1 and turns[0].split()[1] == "1", (out, err)
    assert all(turn.split()[1] == "1" for turn in turns)


def test_a_keeper_that_is_still_there_is_kept(start, where, shell):
    """That of a run around it, and of a hold that was not released from here."""
    script = start("""set -e
export D
$D run -k "$K" -- sh -ec '
eval "$($D hold -k "$K2" --for 1m --shell)"
eval "$($D release --shell)"
$D run -nk "$K" true && echo joined
eval "$($D release --shell "$(echo "$DLOCK_KEEPER" | cut -d/ -f1,2)")" || echo "not held $?"
test -n "$DLOCK_KEEPER"'
""", where, shell=shell)
    status, out, err = script.wait()
    assert (status, out) == (0, "joined\nnot held 1\n"), err


def test_a_run_after_a_release_goes_where_it_is_told(start, where, shell):
    """Without --shell DLOCK_KEEPER stays: whom it names is gone, and that is said where it matters."""
    script = start("""eval "$($D hold -k "$K" --pid $$ --shell)"
$D release
$D run -nk "$K" true && echo taken
unset DLOCK_URL DLOCK_OPTION
$D run -nk "$K" true || echo "lost its way $?"
""", where, shell=shell)
    status, out, err = script.wait()
    assert (status, out) == (0, "taken\nlost its way 64\n") and "DLOCK_KEEPER" in err.splitlines()[-1], err


def test_a_forgotten_eval_is_told_at_once(start, where, shell):
    """The run waits for the script, and might do so for ever."""
    script = start("""lock=$($D hold -k "$K" --pid $$ --shell)
$D run -k "$K" -w 100ms true || echo "busy $?"
eval "$lock"
$D run -k "$K" echo joined
""", where, shell=shell)
    status, out, err = script.wait()
    assert (status, out) == (0, "busy 75\njoined\n") and err.count("did the script eval") == 1, err


def test_a_hold_leaves_the_directory_of_its_caller(dlock, where, hold, tmp_path):
    """So that it can be unmounted."""
    assert hold(where, "job", "--for", "60", cwd=tmp_path).status == 0
    (pair,) = holders()
    assert [os.readlink(f"/proc/{pid}/cwd") for pid in pair] == ["/", "/"]


def test_a_hold_connects_again_with_files_that_were_named_from_its_callers_directory(dlock, make_redis, tmp_path):
    server = make_redis("--requirepass", "any")
    (tmp_path / "password").write_text("any\n")
    (tmp_path / "password").chmod(0o600)
    words = ["-u", server.url, "-O", "password-file=password"]
    handle = dlock.run("hold", *words, "-k", "job", "--for", "60", "-t", "6s", cwd=tmp_path).stdout.strip()
    (pair,) = holders()
    assert [os.readlink(f"/proc/{pid}/cwd") for pid in pair] == ["/", "/"]
    with server.client(password="any") as c:
        before = c.info("stats")["total_connections_received"]
        c.client_kill_filter(_type="normal", skipme=True)
        wait_for(lambda: c.info("stats")["total_connections_received"] > before, what="another connection")
        wait_for(lambda: c.info("commandstats")["cmdstat_evalsha"]["calls"] > 3, what="a renewal")
    assert dlock.run("release", handle).status == 0


def test_a_failure_ends_the_script(start, where, shell, hold):
    """Nothing to evaluate would be success."""
    assert hold(where, "job", "--for", "60").status == 0
    script = start('set -e\neval "$($D hold -qnk "$K" --pid $$ --shell)"\necho not reached\n', where, shell=shell)
    assert script.wait() == (75, "", "")
    script = start('set -e\neval "$($D hold --shell --nokey)"\necho not reached\n', where, shell=shell)
    assert script.wait()[:2] == (64, "")


def test_the_example_ends_when_dlock_is_killed(start, where, shell, dlock):
    """eval takes nothing for success: a dlock that is killed, or not there at all, says nothing."""
    lines = dlock.run("help", "hold").stdout.splitlines()
    begin = lines.index("  set -e")
    example = "\n".join(lines[begin:lines.index("  ./build; dlock run -k deploy -- ./copy     (joins the hold)", begin)])
    example = example.replace("dlock hold -u redis://10.0.0.5 -k deploy", '$D hold -k "$K"')
    holder = dlock.hold(where, where.key())
    script = start(f"{example}\necho not reached\n", where, shell=shell)
    wait_for(lambda: "waiting" in script.stderr(), what="it to wait")
    kill(next(p for p in descendants_of(script.pid) if name_of(p) == "dlock"))
    assert script.wait()[:2] == (137, "")
    holder.finish()
    assert start(example.replace("$D", "/nowhere/dlock") + "\necho not reached\n", where, shell=shell).wait()[:2] == (127, "")


def test_subshell(start, where, shell):
    """The parent is the subshell: the lock lasts as long."""
    script = start("""set -e
( $D hold -k "$K" >/dev/null; $D run -nqk "$K" true || echo "held $?" )
$D run -k "$K" -w 30 true && echo free
""", where, shell=shell)
    assert script.wait()[:2] == (0, "held 75\nfree\n")


def test_trap(start, where, shell, dlock):
    script = start("""set -e
H=$($D hold -k "$K")
trap '$D release "$H"; mark released $?' EXIT
exit 3
""", where, shell=shell)
    assert script.wait()[0] == 3
    assert script.mark("released") == "0" and is_free(dlock, where)


def test_shell_is_killed(start, where, shell, dlock):
    script = start(f'$D hold -k "$K" >/dev/null\nmark held\n{SLEEP}', where, shell=shell)
    script.mark("held")
    waiter = dlock.contend(where, where.key()).queued()
    began = boottime()
    kill(script.pid)
    waiter.event("acquired")
    assert spent(began) < 5  # of a lease of 30: it takes milliseconds
    waiter.finish()


def test_a_substitution_is_no_parent(start, where, shell):
    """What ends at once would have held nothing; what writes into a pipe because the script does, may hold."""
    script = start('H=$(true; $D hold -k "$K"; mark status $?)\n', where, shell=shell)
    script.wait()
    assert script.mark("status") == "64" and "say --pid $$" in script.stderr()
    script = start('true | { $D hold -k "$K"; mark status $?; } | cat\n', where, shell=shell)
    script.wait()
    assert script.mark("status") == "64" and "pipeline" in script.stderr() and "say --pid $$" in script.stderr()
    script = start('$D hold -k "$K"; mark status $?\n$D run -nqk "$K" true || mark held $?\n', where, shell=shell,
                   stdout=subprocess.PIPE)
    assert (script.mark("status"), script.mark("held")) == ("0", "75")
    assert script.popen.stdout.read().startswith(b"@dlock-")  # to its end: nobody keeps the pipe
    script.popen.wait()


def test_cron(start, where, shell):
    """No terminal, and descriptors closed."""
    script = start("""$D hold -k "$K" <&- >&- 2>&-; mark status $?
$D run -nqk "$K" true 2>/dev/null; mark busy $?
""", where, shell=shell)
    script.wait()
    assert (script.mark("status"), script.mark("busy")) == ("0", "75")


def test_nothing_of_the_user_stays_open(start, where, tmp_path):
    """No descriptor, no session; but the terminal's signals still reach it while it waits."""
    script = start(f'exec 7>"{tmp_path}/file"\n$D hold -k "$K" >/dev/null\nmark held\n{SLEEP}', where)
    script.mark("held")
    (front, keeper), = wait_for(holders)
    for pid in (front, keeper):
        assert os.getsid(pid) == pid != script.pid
        open_files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")] if os.geteuid() == 0 else []
        assert not [f for f in open_files if str(tmp_path / "file") in f or "/out" in f or "/err" in f], open_files
    kill(script.pid)


@pytest.mark.parametrize("limit", range(8, 14))
def test_few_descriptors(start, where, limit):
    """What hold cannot get is an error; if it says that it holds, `$(...)` ends and the lock is held."""
    script = start(f"""lock=$(ulimit -n {limit}; exec $D hold -k $K --pid $$ --shell) && eval "$lock" || {{ mark told no; exit; }}
        mark told held; exec sleep 60""", where)
    if script.mark("told") == "no":
        assert script.wait()[2].startswith("dlock: cannot "), script.stderr()
        return
    (front, keeper), = wait_for(holders)
    assert {os.readlink(f"/proc/{front}/fd/{fd}") for fd in range(3)} == {"/dev/null"}
    kill(script.pid)
    wait_for(lambda: not is_alive(keeper), what="the end of the hold")


@pytest.mark.parametrize("limit", range(8, 16))
def test_few_descriptors_leave_one_for_the_release(start, where, limit):
    """Whoever comes to release it is heard, though the keeper has no descriptor left for him."""
    script = start(f"""H=$(ulimit -n {limit}; exec $D hold -k $K --for 60s); mark told $?
        [ -z "$H" ] || {{ $D release "$H"; mark released $?; }}""", where)
    if script.mark("told") == "0":
        assert script.mark("released") == "0", script.wait()
    else:
        assert script.wait()[2].startswith("dlock: cannot "), script.stderr()


def test_in_a_pipeline(start, where, shell):
    script = start('$D hold -k "$K" --pid $$ | cat; mark seen\n$D run -nqk "$K" true; mark busy $?\n', where, shell=shell)
    assert script.mark("busy") == "75" and script.has("seen")
    assert script.wait()[1].startswith("@dlock-")


def test_many_at_once(start, where, dlock):
    n = 200
    script = start(f"""i=0
while [ $i -lt {n} ]; do $D hold -k "$K$i" --pid $$ >/dev/null & P="$P $!"; i=$((i+1)); done
for p in $P; do wait $p || mark failed $p; done
mark held
{SLEEP}""", where)
    script.mark("held")
    assert not script.has("failed")
    wait_for(lambda: len(holders()) == n, what="all to be in the background")
    kill(script.pid)
    wait_for(lambda: not holders(), what="all to be given back")
    assert is_free(dlock, where, key=where.key("job0")) and is_free(dlock, where, key=where.key(f"job{n - 1}"))


# ---- for whom ----


@pytest.fixture
def sleeper(nothing_is_left):
    """A process that lives until it is killed."""
    made = []

    def make():
        made.append(subprocess.Popen(["sleep", "1000"]))
        return made[-1]

    yield make
    for p in made:
        p.kill()
        p.wait()


def test_pids_that_cannot_be(hold, where, sleeper, dlock):
    gone = sleeper()
    gone.kill()
    wait_for(lambda: not is_alive(gone.pid), what="it to die")
    zombie = hold(where, "job", "-n", "--pid", gone.pid)
    gone.wait()
    for result, why in [
        (zombie, "no such process"),
        (hold(where, "job", "-n", "--pid", gone.pid), "no such process"),
        (hold(where, "job", "-n", "--pid", "1"), "process 1"),
        (hold(where, "job", "-n", "--pid", "0"), "from 1 to"),
        (hold(where, "job", "-n", "--pid", "me"), "from 1 to"),
    ]:
        assert result.status == 64 and why in result.stderr and result.stdout == "", result
    own = subprocess.run(["sh", "-c", f'exec {DLOCK} hold -b file -k x --pid $$'], capture_output=True, text=True, env=dlock.env)
    assert own.returncode == 64 and "dlock itself" in own.stderr
    assert is_free(dlock, where)


def test_a_parent_that_has_ended_is_no_other_process(dlock, where, sleeper, tmp_path):
    """Its number may be another's by the time that it is looked at; whose script that is, nobody has said."""
    shim = compile_shim(tmp_path, "parent", """
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        pid_t getppid(void) {
            static int calls;
            return calls++ ? syscall(SYS_getppid) : atoi(getenv("PARENT_WAS"));
        }""")
    done = dlock.run("hold", *where.words, "-k", where.key(), env={"LD_PRELOAD": shim, "PARENT_WAS": str(sleeper().pid)})
    assert done.status == 64 and "the parent process has ended" in done.stderr, done
    assert is_free(dlock, where)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process(dlock, public_dlock):
    result = subprocess.run([public_dlock, "hold", "-b", "file", "-k", "x", "--pid", str(os.getpid())], user=54321, group=54321,
                            extra_groups=[], cwd="/", capture_output=True, text=True, env=dlock.env)
    assert result.returncode == 64 and "another user's" in result.stderr


def test_pid_ends(hold, where, sleeper, dlock):
    p = sleeper()
    assert hold(where, "job", "--pid", p.pid).status == 0
    assert not is_free(dlock, where)
    p.kill()
    becomes_free(dlock, where)


def test_pid_ends_while_it_waits(where, sleeper, dlock):
    holder = dlock.hold(where, where.key())
    p = sleeper()
    waiting = dlock.start("hold", *where.words, "-k", where.key(), "--pid", p.pid)
    wait_for(lambda: "waiting" in waiting.stderr(), what="it to wait")
    p.kill()
    result = waiting.wait()
    assert result.status == 71 and f"process {p.pid}" in result.stderr and "has ended" in result.stderr, result
    holder.finish()


DIES_AS_THE_KEEPER_IS_MADE = """
    #define _GNU_SOURCE
    #include <poll.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    ssize_t getrandom(void *at, size_t n, unsigned flags) {
        pid_t pid = atoi(getenv("DIES"));
        struct pollfd end = {.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
        kill(pid, SIGKILL);
        poll(&end, 1, end.fd < 0 ? 100 : -1); /* where it is refused, a moment has to do */
        return syscall(SYS_getrandom, at, n, flags);
    }"""


def test_pid_ends_before_the_grant(where, sleeper, dlock, tmp_path):
    """Front and keeper see it at the same moment: it is delivered to nobody, or in full."""
    shim = compile_shim(tmp_path, "dies", DIES_AS_THE_KEEPER_IS_MADE)
    for _ in range(5):
        p = sleeper()
        done = dlock.run("hold", *where.words, "-k", where.key(), "--pid", p.pid, env={"LD_PRELOAD": shim, "DIES": str(p.pid)})
        if done.status:
            assert done.status == 71 and f"process {p.pid}" in done.stderr and "has ended" in done.stderr and not done.stdout, done
        else:
            assert done.stdout.startswith("@dlock-"), done
        becomes_free(dlock, where)


def test_for_a_time(hold, where, dlock):
    began = boottime()
    handle = hold(where, "job", "--for", "2").stdout.strip()
    assert not is_free(dlock, where)
    becomes_free(dlock, where)
    assert boottime() - began >= 2
    wait_for(lambda: not holders())
    assert dlock.run("release", handle).status == 1


def test_for_a_time_or_a_process(hold, where, sleeper, dlock):
    p = sleeper()
    assert hold(where, "job", "--for", "1", "--pid", p.pid).status == 0
    becomes_free(dlock, where)
    assert p.poll() is None
    assert hold(where, "job", "--for", "1000", "--pid", p.pid).status == 0
    p.kill()
    becomes_free(dlock, where)


def test_kinds(hold, where, dlock):
    assert [hold(where, "s", "-s", "-n", "--for", "100").status for _ in range(2)] == [0, 0]
    assert hold(where, "s", "-nq", "--for", "100").status == 75
    slots = [hold(where, "l", "--limit", "2", "-nq", "--for", "100", "--shell") for _ in range(3)]
    assert [s.status for s in slots] == [0, 0, 75]
    assert "export DLOCK_SLOT='0';" in slots[0].stdout and "export DLOCK_SLOT='1';" in slots[1].stdout


def test_interactive_shells_have_to_say(where, dlock):
    """A loss would end the shell in which somebody types."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "-i"], {**dlock.env, "PS1": "", "DLOCK_URL": where.url})

    def type_in(line, until):
        os.write(terminal, line.encode() + b"\n")
        seen, end = "", time.monotonic() + PATIENCE
        while until not in seen.replace(line, ""):
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096).decode()
        return seen

    try:
        assert "say --for" in type_in(f"{DLOCK} hold -k {where.key()}; echo st=$(($?+0))", "st=64")
        assert "@dlock-" in type_in(f"{DLOCK} hold -k {where.key()} --pid $$; echo st=$(($?+0))", "st=0")
        type_in(f"{DLOCK} run -nqk {where.key()} true; echo st=$(($?+0))", "st=75")
        # nothing of the terminal is kept
        (front, keeper), = wait_for(holders)
        assert os.getsid(front) == front and os.getsid(keeper) == keeper
    finally:
        kill(pid)
        os.waitpid(pid, 0)
        os.close(terminal)
    becomes_free(dlock, where)


# ---- waiting ----


def test_busy(hold, where):
    assert hold(where, "job", "--for", "100").status == 0
    busy = hold(where, "job", "-n", "--for", "1")
    assert busy.status == 75 and "nothing is held" in busy.stderr
    assert hold(where, "job", "-n", "-E", "9", "--for", "1").status == 9
    assert hold(where, "job", "-w", BRIEFLY, "--for", "1").status == 75


def test_a_front_that_sleeps_through_the_time_gives_the_handle_all_the_same(dlock, where):
    """It has been held, and status 0 without a handle would say nothing of that."""
    first = dlock.hold(where, where.key())
    asker = dlock.start("hold", *where.words, "-k", where.key(), "--for", "1ms", events=False)
    front, = wait_for(lambda: born_of(asker.pid), what="the front")
    wait_for(lambda: born_of(front), what="the keeper")
    os.kill(front, signal.SIGSTOP)
    keeper, = born_of(front)
    assert first.finish().status == 0
    wait_for(lambda: not is_alive(keeper), what="the end of the hold")
    os.kill(front, signal.SIGCONT)
    done = asker.wait()
    assert done.status == 0 and done.stdout.startswith("@dlock-"), done


@pytest.mark.parametrize("cmd", [["hold", "--for", "1"], ["wait"]])
@pytest.mark.parametrize("words, env", [(["-E", "0"], {}), ([], {"DLOCK_CONFLICT_EXIT_CODE": "0"})], ids=["word", "variable"])
def test_busy_is_no_success(hold, where, dlock, cmd, words, env):
    """Whoever goes on after a 0 goes on with the lock."""
    assert hold(where, "job", "--for", "100").status == 0
    result = dlock.run(cmd[0], *where.words, "-n", "-k", where.key(), *words, *cmd[1:], env=env)
    assert result.status == 64 and "status 0 of dlock" in result.stderr, result


def test_server_is_gone(dlock):
    result = dlock.run("hold", "-u", "redis://127.0.0.1:9", "-n", "-k", "x", "--for", "1")
    assert result.status == 69 and "nothing is held" in result.stderr


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_interrupted(where, dlock, sig):
    holder = dlock.hold(where, where.key())
    waiting = dlock.start("hold", *where.words, "-k", where.key(), "--for", "100")
    wait_for(lambda: "waiting" in waiting.stderr(), what="it to wait")
    kill(waiting.pid, sig)
    assert waiting.wait().status == -sig and waiting.stdout() == ""
    # nobody of them waits on
    wait_for(lambda: {p for p in descendants_of(os.getpid()) if (name_of(p) or "").startswith("dlock")}
             <= {holder.pid, *descendants_of(holder.pid)}, what="all of it to end")
    holder.finish()
    wait_for(lambda: is_free(dlock, where))
    assert not holders()


# As an interactive shell starts a job: a group of its own, in a session that goes on.
# Not a shell itself: what bash's wait says of a job that was stopped depends on the moment.
JOB = """mark status $(/usr/bin/python3 -c '
import subprocess, sys
job = subprocess.Popen(sys.argv[1:], process_group=0, stdout=subprocess.DEVNULL)
print(job.pid, file=sys.stderr, flush=True)
print(job.wait())' $D hold -k "$K" --for 100)
"""


def test_stopped_while_it_waits(start, where, dlock):
    """With Ctrl-Z, and continued."""
    holder = dlock.hold(where, where.key())
    script = start(JOB, where)
    wait_for(lambda: "waiting" in script.stderr(), what="it to wait")
    pid = int(script.stderr().split()[0])
    kill(pid, signal.SIGTSTP)
    wait_for(lambda: stat_of(pid)[1] == "T", what="it to stop")
    kill(pid, signal.SIGCONT)
    holder.finish()
    assert script.mark("status") == "0"


def test_nobody_takes_the_handle(where, dlock):
    with open("/dev/full", "w") as full:
        result = dlock.run("hold", *where.words, "-k", where.key(), "--for", "100", stdout=full)
    assert result.status == 71 and "No space left" in result.stderr
    assert is_free(dlock, where) and not holders()


def test_nobody_can_take_the_handle(where, dlock):
    """stdout is closed, and no process ends the hold."""
    result = dlock.run("hold", *where.words, "-k", where.key(), "--for", "100", preexec_fn=lambda: os.close(1))
    assert result.status == 71 and "standard output" in result.stderr and "nothing is held" in result.stderr, result
    assert is_free(dlock, where) and not holders()


@pytest.fixture
def full_pipe():
    """(where it is written to, a function that empties it)."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, b"x" * 4096)
    os.set_blocking(theirs, True)
    yield theirs, lambda: os.read(ours, 1 << 20)
    os.close(ours)
    os.close(theirs)


def has_pending(pid, sig):
    """Has it been sent a signal that it has not read yet?"""
    with contextlib.suppress(OSError):
        fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return bool((int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)) >> (sig - 1) & 1)
    return False


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whose", ["process", "nobody"])
def test_a_signal_while_the_handle_is_written(where, dlock, sleeper, full_pipe, sig, whose):
    """It ends with 0 only if something is held."""
    words = ("--pid", sleeper().pid) if whose == "process" else ("--for", "100")
    to, empty = full_pipe
    started = dlock.start("hold", *where.words, "-k", where.key(), *words, stdout=to)
    wait_for(lambda: not is_free(dlock, where), what="the grant")
    time.sleep(0.1)
    front, = born_of(started.pid)
    kill(started.pid, sig)
    wait_for(lambda: started.poll() is not None or has_pending(front, sig), what="the asker to pass it on")
    empty()
    assert started.wait().status == -sig
    wait_for(lambda: is_free(dlock, where), what="the release")
    wait_for(lambda: not holders(), what="the end of all of it")


def test_a_front_that_is_killed_at_the_handle(where, dlock, sleeper, full_pipe):
    """The process has the lock already: it is stopped, which is said."""
    p = sleeper()
    started = dlock.start("hold", *where.words, "-k", where.key(), "--pid", p.pid, "--grace", "1s", stdout=full_pipe[0])
    wait_for(lambda: not is_free(dlock, where), what="the grant")
    time.sleep(0.1)
    front, = born_of(started.pid)
    kill(front)
    result = started.wait()
    assert result.status == 71 and "nothing is held" in result.stderr, result
    assert f"process {p.pid} and its descendants are stopped" in result.stderr, result
    p.wait(PATIENCE)
    wait_for(lambda: is_free(dlock, where), what="the release")


def test_a_signal_when_the_handle_has_been_written(where, dlock, tmp_path):
    """The front has left; the asker, which has not heard of that yet, passes on a signal."""
    shim = compile_shim(tmp_path, "slow", """
        #include <sys/syscall.h>
        #include <unistd.h>
        ssize_t write(int fd, const void *what, size_t n) {
            ssize_t result = syscall(SYS_write, fd, what, n);
            if (n > 0 && *(const char *)what == '@') usleep(1000);
            return result;
        }""")
    for n in range(10):
        key = where.key(f"n{n}")
        started = dlock.start("hold", *where.words, "-k", key, "--for", "100", env={"LD_PRELOAD": shim})
        wait_for(lambda: started.stdout(), what="the handle")
        kill(started.pid, signal.SIGTERM)
        assert (started.wait().status == 0) == (not is_free(dlock, where, key=key)), n
        if started.result().status == 0:
            assert dlock.run("release", started.stdout().strip()).status == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_nobody_looks_into_it_while_it_waits(dlock, public_dlock):
    """All of its processes may have a password."""
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, 54321, 54321)
        words = [public_dlock, "hold", "-u", f"file://{directory}", "-k", "x", "--for"]
        who = {"user": 54321, "group": 54321, "extra_groups": [], "cwd": "/", "env": dlock.env, "stderr": subprocess.PIPE}
        assert subprocess.run([*words, "100"], stdout=subprocess.DEVNULL, check=True, **who).returncode == 0
        waiting = subprocess.Popen([*words, "100"], stdout=subprocess.DEVNULL, **who)
        try:
            assert b"waiting" in waiting.stderr.readline()
            below = [waiting.pid, *descendants_of(waiting.pid)]
            assert len(below) == 3
            assert {os.stat(f"/proc/{pid}/mem").st_uid for pid in below} == {0}
        finally:
            kill(waiting.pid, signal.SIGTERM)
            waiting.wait()
            waiting.stderr.close()


# ---- whatever happens to dlock's processes ----

# A child that ignores TERM, and one in a session of its own.
FAMILY = """$D hold -k "$K" -t 3 --grace 300ms >/dev/null
(trap '' TERM; mark a; while :; do sleep 1; done) &
setsid sleep 1000 & mark b $!
trap 'mark term; exit' TERM
mark held
while :; do sleep 0.1; done
"""


def family_of(start, where, text):
    script = start(text, where)
    script.mark("held"), script.mark("a")
    script.below = descendants_of(script.pid)
    script.all = [script.pid, *script.below, int(script.mark("b"))]
    (script.front, script.keeper), = wait_for(holders)
    yield script
    for pid in script.all:
        kill(pid)


@pytest.fixture
def family(start, where):
    yield from family_of(start, where, FAMILY)


@pytest.fixture
def polite_family(start, where):
    """It has the time to do something on TERM."""
    yield from family_of(start, where, FAMILY.replace("-t 3 --grace 300ms", "-t 6 --grace 2s"))


def all_end(script):
    wait_for(lambda: script.popen.poll() is not None, what="the script to end")
    wait_for(lambda: not [p for p in script.all if is_alive(p)], what="all of them to end")


def was_told_of_the_loss(script, where):
    """In one line, by whoever stopped it: before that, since nothing can be written to what has ended."""
    line, = [line for line in script.stderr().splitlines() if line.startswith("dlock: lost ")]
    return line.startswith(f"dlock: lost {where.key()}: ")


def test_keeper_is_killed(family, where, dlock):
    began = boottime()
    kill(family.keeper)
    all_end(family)
    assert spent(began) < 2.5 + 5
    assert was_told_of_the_loss(family, where)
    becomes_free(dlock, where)


def test_who_has_stopped_it_all_ends(start, where):
    """When nobody is left, the front sees that; it does not go on looking for as long as it would for the unkillable."""
    script = start(f'$D hold -k "$K" >/dev/null\nmark held\n{SLEEP}', where)
    script.mark("held")
    (front, keeper), = wait_for(holders)
    began = boottime()
    kill(keeper)
    script.popen.wait(PATIENCE)
    wait_for(lambda: not is_alive(front), what="the end of the front")
    assert spent(began) < 3


def test_keeper_is_frozen(polite_family, where, dlock):
    kill(polite_family.keeper, signal.SIGSTOP)
    all_end(polite_family)
    assert was_told_of_the_loss(polite_family, where)
    assert where.lease_ends is False or polite_family.has("term")
    becomes_free(dlock, where)


def test_front_is_killed(polite_family, where, dlock):
    """First TERM, then KILL, then the release."""
    kill(polite_family.front)
    all_end(polite_family)
    assert polite_family.has("term")
    becomes_free(dlock, where)


def test_front_is_frozen(family, where, dlock):
    kill(family.front, signal.SIGSTOP)
    wait = boottime() + 2 * TTL
    wait_for(lambda: boottime() > wait)
    assert family.popen.poll() is None and not is_free(dlock, where)
    kill(family.front, signal.SIGCONT)


def test_both_are_killed(family, where, dlock):
    """Nobody is left who could stop it: the one thing that differs from a command.  But nobody lies."""
    kill(family.front, signal.SIGSTOP)
    kill(family.keeper)
    kill(family.front)
    becomes_free(dlock, where)
    assert family.popen.poll() is None


def test_a_run_that_is_killed_with_a_hold_below_it(start, where):
    """The hold is for a process outside that run, which does not go on without its lock."""
    script = start("""$D run -k "$K2" --max-run 3s --grace 100ms sh -c "$D hold -k '$K' --pid $$ >/dev/null; sleep 1000"
mark on
sleep 1000
""", where)
    script.popen.wait(PATIENCE)
    assert f"dlock: lost {where.key()}: " in script.stderr() and not script.has("on")
    wait_for(lambda: not holders(), what="the end of the hold")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_run_of_any_user_that_is_killed_with_a_hold_below_it(start, leased, public_dlock, tmp_path):
    """He may not see which program the processes of a hold execute, for they hide their memory."""
    let_pass(tmp_path)
    script = start(f"""D={public_dlock}
$D run -k "$K2" --max-run 3s --grace 100ms sh -c "$D hold -k '$K' --pid $$ >/dev/null; sleep 1000"
sleep 1000
""", leased, user=54321, group=54321, extra_groups=[], cwd="/")
    script.popen.wait(PATIENCE)
    assert f"dlock: lost {leased.key('job')}: " in script.stderr(), script.stderr()
    wait_for(lambda: not holders(), what="the end of the hold")


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_those_whose_parent_has_ended(start, where, victim):
    """Who has been seen below it is stopped with it, though by then he descends from nobody."""
    script = start("""$D hold -k "$K" -t 9 >/dev/null
(sleep 1000 & mark orphan $!; sleep 3) &
wait; mark alone
sleep 1000
""", where)
    orphan = int(script.mark("orphan"))
    script.mark("alone")
    assert is_alive(orphan) and orphan not in descendants_of(script.pid)
    (front, keeper), = holders()
    kill({"front": front, "keeper": keeper}[victim])
    script.popen.wait(PATIENCE)
    wait_for(lambda: not is_alive(orphan), what="the orphan to be stopped")


@pytest.mark.parametrize("who", ["front", "keeper"])
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_release_nothing(start, where, dlock, who, sig):
    """While somebody lives for whom it is held; else they end it."""
    script = start(f'$D hold -k "$K" >/dev/null\nmark held\n{SLEEP}', where)
    script.mark("held")
    (front, keeper), = wait_for(holders)
    kill({"front": front, "keeper": keeper}[who], sig)
    assert dlock.run("run", *where.words, "-q", "-w", BRIEFLY, "-k", where.key(), "true", events=False).status == 75
    assert script.popen.poll() is None


# ---- the server ----


def test_a_short_outage(start, leased, own_redis):
    leased.server = own_redis
    script = start('eval "$($D hold -k "$K" -t 9 --pid $$ --shell)"\nmark held\nwhile [ ! -e ${0%script}go ]; do sleep 0.1; done\n'
                   '$D release; mark released $?\n', leased)
    script.mark("held")
    own_redis.pause()
    pause = boottime() + 3.5  # past a renewal
    wait_for(lambda: boottime() > pause)
    own_redis.resume()
    pause = boottime() + 6  # past the lease that was there
    wait_for(lambda: boottime() > pause)
    (script.directory / "go").touch()
    assert script.mark("released") == "0"


def test_renewals_that_fail_are_told_to_the_script(start, leased, own_redis):
    """Once, while there is time to do something about it, and once when it is over."""
    leased.server = own_redis
    script = start('$D hold -k "$K" -t 15 --grace 300ms --pid $$ >/dev/null\nmark held\n'
                   'while [ ! -e ${0%script}go ]; do sleep 0.1; done\n', leased)
    script.mark("held")
    own_redis.pause()
    wait_for(script.stderr, what="a warning")
    own_redis.resume()
    wait_for(lambda: script.stderr().count("\n") > 1, what="the end of it")
    (script.directory / "go").touch()
    status, _, err = script.wait()
    warned, renewed = err.splitlines()
    assert status == 0 and f"; if no renewal succeeds, process {script.pid} and its descendants are stopped in " in warned, err
    assert renewed == f"dlock: {leased.key()}: the lease was renewed after all"


def test_a_long_outage(start, leased, own_redis):
    leased.server = own_redis
    script = start(FAMILY.replace("mark term;", "$D release \"$H\"; mark term $?;")
                   .replace("$D hold", "H=$($D hold").replace(">/dev/null", ")")
                   .replace("-t 3 --grace 300ms", "-t 10 --grace 2s"), leased)  # for the release in the trap
    script.mark("held"), script.mark("a")
    script.all = [script.pid, *descendants_of(script.pid), int(script.mark("b"))]
    began = boottime()
    own_redis.pause()
    all_end(script)
    took = boottime() - began
    own_redis.resume()
    assert script.mark("term") == "79", script.stderr()
    assert "lost" in script.stderr() and "were stopped" in script.stderr()
    print(f"ended {took:.2f} s after the server had")


def test_an_outage_at_the_release(hold, leased, own_redis, dlock):
    leased.server = own_redis
    handle = hold(leased, "job", "-t", "3", "--for", "100").stdout.strip()
    own_redis.pause()
    result = dlock.run("release", handle)
    own_redis.resume()
    assert result.status in (69, 79), result
    assert "not confirmed" in result.stderr or "lost" in result.stderr
    wait_for(lambda: not holders())


def test_taken_away(start, where, dlock):
    """Who has lost it is stopped at once; whoever asks hears of it."""
    script = start(f'$D hold -k "$K" -t 9 >/dev/null\nmark held\n{SLEEP}', where)
    script.mark("held")
    where.take_away([where.key()], where.key())
    wait_for(lambda: script.popen.poll() is not None, what="the script to end")
    status, _, err = script.wait()
    assert -status in (signal.SIGTERM, signal.SIGKILL)
    assert err.startswith(f"dlock: lost {where.key()}: it was taken away while it was held") and err.count("\n") == 1, err


def test_a_loss_is_not_written_over(start, where, dlock):
    """What the script writes next to its file comes behind that line."""
    script = start(f"""trap 'echo "that was it" >&2; exit 3' TERM
$D hold -k "$K" {GRACE} >/dev/null
echo begun >&2
mark held
{SLEEP.replace("sleep 1", "sleep 0.1")}""", where)
    script.mark("held")
    assert dlock.run("break", *where.words, "-y", "-k", where.key()).status == 0
    status, _, err = script.wait()
    begun, loss, *_, last = err.splitlines()  # the shell may say that its sleep was ended
    assert (status, begun, last) == (3, "begun", "that was it") and loss.startswith(f"dlock: lost {where.key()}: "), err


def test_a_loss_is_told_on_a_socket(start, where):
    """As a service of systemd has it."""
    ours, its = socket.socketpair()
    with ours, its:
        ours.settimeout(PATIENCE)
        script = start(f'$D hold -k "$K" -t 9 >/dev/null\nmark held\n{SLEEP}', where, stderr=its)
        script.mark("held")
        where.take_away([where.key()], where.key())
        assert ours.recv(1000).decode().startswith(f"dlock: lost {where.key()}: ")
        script.popen.wait(PATIENCE)


@pytest.mark.parametrize("to", ["closed", "another file"])
def test_a_loss_is_told_to_nobody_else(start, where, to):
    """What has the number of stderr by then may be data."""
    script = start(f"""$D hold -k "$K" -t 3 >/dev/null
exec 2>{'&-' if to == 'closed' else '"${0%script}data"'}
mark held
{SLEEP}""", where)
    script.mark("held")
    where.take_away([where.key()], where.key())
    assert script.wait()[2] == ""
    data = script.directory / "data"
    assert not data.exists() or data.read_text() == ""


def test_a_hold_keeps_no_pipe_of_stderr_open(start, where):
    script = start("""x=$($D hold -k "$K" --pid $$ 2>&1); mark got "$x"\n""", where)
    assert script.mark("got").startswith("@dlock-")


def test_whose_parent_ended_unseen(start, where, dlock):
    """Started by a subshell that is gone long before anybody looks: a loss stops it."""
    script = start("""$D hold -k "$K" --pid $$ >/dev/null
(sleep 1000 & echo $! >"${0%script}child")
mark child "$(cat "${0%script}child")"
while :; do sleep 1; done
""", where)
    child = int(script.mark("child"))
    try:
        assert dlock.run("break", *where.words, "-y", "-k", where.key()).status == 0
        assert not is_alive(child)
    finally:
        kill(child)


# A new child each 5 ms, which has a child of two seconds: as a parallel make has.  Bounded whatever happens.
MAKE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **words)
{
	alarm(20);
	if (n > 1)
		signal(SIGTERM, SIG_IGN);
	for (int i = 0; i < 2000; i++) {
		if (fork() == 0) {
			if (fork() == 0)
				sleep(2);
			else
				wait(NULL);
			_exit(0);
		}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		usleep(5000);
	}
	return 0;
}
"""


@pytest.mark.parametrize("lets_go", ["", "ignores"], ids=["ends on TERM", "ignores TERM"])
def test_who_forks_while_it_is_stopped_is_gone_before_the_next_holder(start, where, dlock, tmp_path, lets_go):
    """Of a script that leads no process group an orphan that nobody has seen could not be found."""
    make, pipe = compiled(tmp_path / "make", MAKE, "-O1"), tmp_path / "pipe"
    os.mkfifo(pipe)
    alive = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = start(f"""export D K
bash -c '$D hold -k "$K" -t 6 --grace 500ms --pid $$ >/dev/null || exit
exec 3>{pipe}; {make} {lets_go}; exit' &
sleep 1; mark going; wait""", where)
    script.mark("going")
    assert dlock.run("break", *where.words, "-y", "-k", where.key()).status == 0
    try:
        left = os.read(alive, 1)  # nothing: nobody has the pipe any more
    except BlockingIOError:
        left = None
    os.close(alive)
    assert left == b"", "some of them run on, though the lock is free"


# ---- dlock's own processes below the one for which they hold ----

ADOPTS = """import ctypes, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
subprocess.run([os.environ["D"], "hold", "-k", os.environ["K"], "--grace", "300ms"], check=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_who_adopts_us(where, dlock, victim):
    """A process to which orphans fall (the first of a container) has dlock's among them: they do not stop themselves."""
    env = {**dlock.env, "D": DLOCK, "K": where.key(), "DLOCK_URL": where.url}
    p = subprocess.Popen([sys.executable, "-IS", "-c", ADOPTS], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline().startswith("@dlock-") and p.stdout.readline() == "held\n"
        below = descendants_of(p.pid)
        front = [q for q in below if stat_of(q)[2] == p.pid][0]
        keeper = [q for q in below if q != front][0]
        kill({"front": front, "keeper": keeper}[victim])
        wait_for(lambda: p.poll() is not None, what="it to be stopped")
        assert p.returncode == -signal.SIGKILL
        if victim == "front":
            # by a keeper that has not killed itself: else when a lease of 30 s ends
            wait_for(lambda: is_free(dlock, where), timeout=15, what="it to be released")
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def test_holds_for_others_go_on(start, leased, own_redis, tmp_path):
    """A script that is stopped has started another hold, which is for nobody, and which it had below it for a while."""
    leased.server = own_redis
    files = tmp_path / "files"
    files.mkdir(mode=0o700)
    script = start(f"""$D hold -k "$K" -t 3 --grace 300ms >/dev/null
$D hold -u file://{files} -O "" -k other --for 1000 >/dev/null & 
$D run -u file://{files} -k taken sleep 5 &
$D hold -u file://{files} -k taken --for 1000 >/dev/null
mark held
{SLEEP}""".replace(' -O ""', ""), leased)
    script.mark("held")  # after the keeper has looked who is there
    wait_for(lambda: len(holders()) == 3, what="all to be in the background")
    own_redis.pause()
    wait_for(lambda: script.popen.poll() is not None, what="the script to be stopped")
    wait_for(lambda: len(holders()) == 2, what="the first hold to end")
    own_redis.resume()
    for key in ("other", "taken"):
        assert subprocess.run([DLOCK, "run", "-u", f"file://{files}", "-nqk", key, "true"], check=False).returncode == 75


@pytest.mark.parametrize("who", ["the script", "a child"])
def test_a_script_of_the_same_name_is_none_of_them(start, where, who):
    """Whatever it is called, it and what it has started are stopped."""
    script = start(f"""me=${{0%script}}dlock-hold
cat >"$me" <<'EOF'
#!/bin/bash
[ "$1" != hold ] || $D hold -k "$K" -t 3 --grace 300ms >/dev/null
sleep 1000 & echo $$ $! >"$0.pids"
wait
EOF
chmod +x "$me"; export D
{'exec "$me" hold' if who == "the script" else '$D hold -k "$K" -t 3 --grace 300ms >/dev/null; setsid "$me" & wait'}
""", where)
    pids = script.directory / "dlock-hold.pids"
    me, child = map(int, wait_for(lambda: pids.exists() and pids.read_text().split()))
    try:
        assert name_of(me) == "dlock-hold"
        where.take_away([where.key()], where.key())
        wait_for(lambda: not is_alive(me) and not is_alive(child), timeout=20, what="both to be stopped")
    finally:
        kill(me), kill(child)


def test_broken(start, where, dlock):
    """Whoever breaks it waits for it; the script hears who it was, if it asks before it ends."""
    script = start(f"""trap '$D release "$H"; mark released $?; exit 3' TERM
H=$($D hold -k "$K" {GRACE} --pid $$)
mark held
{SLEEP.replace("sleep 1", "sleep 0.1")}""", where)
    script.mark("held")
    result = dlock.run("break", *where.words, "-y", "-k", where.key(), "--why", "stuck")
    assert result.status == 0, result
    status, _, err = script.wait()
    assert (status, script.mark("released")) == (3, "79")
    assert "broken by" in err and "stuck" in err and "were stopped" in err
    assert is_free(dlock, where)


def test_what_a_script_does_when_it_is_asked_to_stop_is_not_stopped(start, where, dlock):
    """A script that leads a process group runs on while all its processes are looked at, of which here there are many."""
    script = start("""trap '$D release "$H"; mark released $?; exit 3' TERM
H=$($D hold -k "$K" -t 30 --grace 10s --pid $$)
i=0; while [ $i -lt 600 ]; do sleep 1000 & i=$((i + 1)); done
mark held
wait""", where)
    script.mark("held")
    assert dlock.run("break", *where.words, "-y", "-k", where.key()).status == 0
    assert (script.wait()[0], script.mark("released")) == (3, "79")


def test_what_ended_a_hold_is_told_to_its_last_word(start, where, dlock):
    """However long the keys and the reason are; and no character is cut."""
    keys = [where.key("é" * 100 + str(i)) for i in range(4)]
    script = start(f"""trap '$D release "$H"; exit 3' TERM
H=$($D hold {" ".join(f"-k {key}" for key in keys)} {GRACE} --pid $$)
mark held
{SLEEP.replace("sleep 1", "sleep 0.1")}""", where)
    script.mark("held")
    result = dlock.run("break", *where.words, "-y", "-k", keys[0], "--who", "é" * 100, "--why", "é" * 100)
    assert result.status == 0, result
    status, _, err = script.wait()
    assert status == 3 and err.endswith("; check its work before you run it again\n") and len(err.encode()) > 720, err
    assert "\\x" not in err and "\ufffd" not in err, err
    long = dlock.run("release", "x" + "é" * 100)
    assert long.status == 64 and "\\x" not in long.stderr, long


def calls(path):
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def fake(dlock, tmp_path):
    """Holds at a server that answers as scripted; its calls are in a file."""
    log = tmp_path / "calls"

    def run(script, *options):
        return dlock.run("hold", "-b", "fake", "-O", f"script={script}", "-O", f"log={log}", "-k", "job", *options, program=DLOCK_TEST)

    run.log = log
    return run


def test_asked_back(fake, sleeper, dlock):
    """Who breaks it waits: TERM, the release when nobody is left, 79."""
    p = sleeper()
    handle = fake("renew=revoked", "-t", "9", "--grace", "3", "--pid", p.pid).stdout.strip()
    assert p.wait(PATIENCE) == -signal.SIGTERM
    wait_for(lambda: "release" in calls(fake.log))
    assert dlock.run("release", handle).status == 79


def test_asked_back_of_the_stubborn(fake, dlock, sleeper):
    """Not released before it is dead, nor is what it has started."""
    p = subprocess.Popen(["bash", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo $!; while :; do sleep 1; done"],
                         stdout=subprocess.PIPE, text=True)
    try:
        child = int(p.stdout.readline())
        fake("renew=revoked", "-t", "9", "--grace", "1", "--pid", p.pid)
        wait_for(lambda: not is_alive(child) or "release" in calls(fake.log))
        assert not is_alive(child) and p.wait(PATIENCE) == -signal.SIGKILL
        wait_for(lambda: "release" in calls(fake.log))
        assert calls(fake.log).count("release") == 1
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def test_a_keeper_that_waits_for_a_question_sleeps(fake):
    """Of a lost lock, while it does not matter any more that the time has come."""
    def keepers():
        return [p for p in descendants_of(os.getpid()) if name_of(p) == "dlock-hold"]

    fake("renew=lost", "-t", "3", "--for", "2")
    until = boottime() + 5
    wait_for(lambda: boottime() > until)
    keeper, = keepers()
    with open(f"/proc/{keeper}/stat", encoding="utf-8") as f:
        ticks = sum(int(n) for n in f.read().rsplit(")", 1)[1].split()[11:13])
    assert ticks < 30
    kill(keeper, signal.SIGTERM)
    wait_for(lambda: not keepers(), what="it to end")


@pytest.mark.parametrize("script, way", [("renew=lost", "it was taken away while it was held"),
                                         ("release=lost", "it was no longer ours when it was to be released")])
def test_a_loss_of_a_hold_speaks_of_no_command(fake, dlock, script, way):
    handle = fake(script, "-t", "9", "--for", "100").stdout.strip()
    if "renew" in script:
        wait_for(lambda: "renew" in calls(fake.log))
    result = dlock.run("release", handle)
    assert result.status == 79 and way in result.stderr and "command" not in result.stderr, result


def test_what_is_said_of_several_keys_is_said_of_all(where, dlock):
    keys = [where.key("a"), where.key("b")]
    both = f"-k {keys[0]} -k {keys[1]}"
    inner = f'{DLOCK} release "$({DLOCK} hold {both} --for 60)"'
    result = dlock.run("run", *where.words, *both.split(), "sh", "-c", inner)
    assert f"{keys[0]} and {keys[1]} are released here, but the outer run still holds them" in result.stderr, result


def test_release_is_not_confirmed(fake, dlock):
    handle = fake("release=hang", "-t", "3", "--for", "100").stdout.strip()
    result = dlock.run("release", handle)
    assert result.status == 69 and "the release was not confirmed" in result.stderr, result


def test_lost_at_the_release(fake, dlock, sleeper):
    p = sleeper()
    handle = fake("release=lost", "--pid", p.pid).stdout.strip()
    result = dlock.run("release", handle)
    assert result.status == 79 and "another may have run beside it" in result.stderr, result
    assert p.poll() is None


def test_nobody_is_stopped_who_does_not_know_of_it(dlock, fake, sleeper, tmp_path):
    """The keeper is killed when it has the lock and has told the front, which sleeps."""
    shim = compile_shim(tmp_path, "dies", """
        #include <signal.h>
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
            int grant = m->msg_iovlen == 2;
            if (grant) kill(getppid(), SIGSTOP);
            ssize_t sent = syscall(SYS_sendmsg, fd, m, flags);
            if (grant) kill(getpid(), SIGKILL);
            return sent;
        }""")
    p = sleeper()
    started = dlock.start("hold", "-b", "fake", "-O", f"log={fake.log}", "-t", "3", "-k", "job", "--pid", p.pid, program=DLOCK_TEST,
                          env={"LD_PRELOAD": shim})
    front, = wait_for(lambda: born_of(started.pid), what="the front")
    wait_for(lambda: stat_of(front)[1] == "T" and not children_of(front), what="the keeper to die")
    kill(front, signal.SIGCONT)
    result = started.wait()
    assert result.status == 71 and "nothing" in result.stderr and p.poll() is None


@pytest.mark.parametrize("script, how", [("release=hang", signal.SIGTERM), ("renew=hang,release=hang", None)], ids=["term", "asleep"])
def test_nobody_gets_a_handle_of_what_is_being_given_back(dlock, fake, sleeper, script, how):
    """
    The front sleeps while the keeper has the lock, and gives it back because it is asked to end, or because the front sleeps; the
    front wakes in the middle of the release.  In the second case it asks again.
    """
    p = sleeper()
    started = dlock.start("hold", "-b", "fake", "-O", f"log={fake.log}", "-O", f"script=acquire=ok@1s,{script}", "-t", "3", "-k", "job",
                          "--pid", p.pid, program=DLOCK_TEST, events=False)
    front, = wait_for(lambda: born_of(started.pid), what="the front")
    keeper, = wait_for(lambda: born_of(front), what="the keeper")
    kill(front, signal.SIGSTOP)
    wait_for(lambda: {"renew", "release"} & {*calls(fake.log)}, what="a renewal, or that it is given back")
    if how:
        kill(keeper, how)
    wait_for(lambda: "release" in calls(fake.log), what="the release")
    kill(front, signal.SIGCONT)
    result = started.wait()
    if how and result.status:
        assert (result.status, result.stdout) == (-how, ""), result
    else:  # also if the keeper has seen how the front sleeps before it was asked to end
        assert result.status == 0 and "asking again" in result.stderr, result
        told = [line for line in calls(fake.log) if line in ("acquire", "release")]
        assert told[:2] == ["acquire", "release"] and told.count("acquire") == 2, told
    assert p.poll() is None


def test_nobody_gets_a_handle_of_what_has_run_out(dlock, fake, sleeper, tmp_path):
    """Front and keeper are frozen in the moment of the grant, and the front goes on first."""
    shim = compile_shim(tmp_path, "freezes", """
        #include <signal.h>
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
            int grant = m->msg_iovlen == 2;
            if (grant) kill(getppid(), SIGSTOP);
            ssize_t sent = syscall(SYS_sendmsg, fd, m, flags);
            if (grant) kill(getpid(), SIGSTOP);
            return sent;
        }""")
    p = sleeper()
    started = dlock.start("hold", "-b", "fake", "-O", f"log={fake.log}", "-O", "script=acquire=ok", "-t", TTL, "-k", "job", "--pid", p.pid,
                          program=DLOCK_TEST, env={"LD_PRELOAD": shim})
    front, = wait_for(lambda: born_of(started.pid), what="the front")
    keeper, = wait_for(lambda: [k for k in born_of(front) if stat_of(k)[1] == "T"], what="the keeper to freeze")
    until = boottime() + 2  # TERM is due 1.97 s after the grant
    wait_for(lambda: boottime() > until, what="time")
    kill(front, signal.SIGCONT)
    result = started.wait()
    assert result.status != 0 and not result.stdout and p.poll() is None, result
    kill(keeper)


def test_a_front_that_sleeps_through_time_and_lease_gives_the_handle_all_the_same(dlock, fake):
    started = dlock.start("hold", "-b", "fake", "-O", f"log={fake.log}", "-O", "script=acquire=ok@1s", "-t", TTL, "-k", "job", "--for", "1ms",
                          program=DLOCK_TEST, events=False)
    front, = wait_for(lambda: born_of(started.pid), what="the front")
    keeper, = wait_for(lambda: born_of(front), what="the keeper")
    kill(front, signal.SIGSTOP)
    wait_for(lambda: not is_alive(keeper), what="the end of the hold")
    until = boottime() + 2  # TERM would have been due 1.97 s after the grant
    wait_for(lambda: boottime() > until, what="time")
    kill(front, signal.SIGCONT)
    done = started.wait()
    assert done.status == 0 and done.stdout.startswith("@dlock-"), done


@pytest.mark.parametrize("whose", ["process", "nobody"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_with_the_grant(dlock, fake, sleeper, how, whose):
    """The front finds both when it wakes: nobody is given what the signal ends."""
    words = ("--pid", sleeper().pid) if whose == "process" else ("--for", "1h")
    started = dlock.start("hold", "-b", "fake", "-O", f"log={fake.log}", "-O", "script=acquire=ok@1s", "-t", "3", "-k", "job", *words,
                          program=DLOCK_TEST, events=False)
    front, = wait_for(lambda: born_of(started.pid), what="the front")
    wait_for(lambda: born_of(front), what="the keeper")
    kill(front, signal.SIGSTOP)
    wait_for(lambda: {"renew", "release"} & {*calls(fake.log)}, what="a renewal, or that it is given back")
    kill(front, how)
    kill(front, signal.SIGCONT)
    result = started.wait()
    assert (result.status, result.stdout) == (-how, ""), result
    wait_for(lambda: "release" in calls(fake.log), what="the release")


@pytest.mark.parametrize("script, status", [("acquire=denied", 77), ("acquire=config", 78), ("acquire=protocol", 76),
                                             ("acquire=system", 71), ("open=config", 78)])
def test_refusals(fake, script, status):
    result = fake(script, "--for", "100", "--shell")
    assert (result.status, result.stdout) == (status, f"(exit {status})\n") and "nothing is held" in result.stderr


def test_released_too_late(where, sleeper, hold, dlock):
    """Who was held for was stopped; whoever releases it hears that."""
    p = sleeper()
    handle = hold(where, "job", "-t", "3", "--pid", p.pid).stdout.strip()
    where.take_away([where.key()], where.key())
    p.wait(PATIENCE)
    result = dlock.run("release", handle)
    assert result.status == 79 and f"process {p.pid} and its descendants were stopped" in result.stderr, result
    again = dlock.run("release", handle)
    assert again.status == 1 and "or it was lost more than a minute ago" in again.stderr, again


def test_waiting_for_a_late_release_costs_nothing(hold, where, dlock):
    """The time is over while the keeper of a lost hold still waits for whoever releases it."""
    began = boottime()
    handle = hold(where, "job", "-t", "3", "--for", "4").stdout.strip()
    keeper = holders()[0][1]
    where.take_away([where.key()], where.key())
    wait_for(lambda: not holders(), what="the front to end")
    wait_for(lambda: boottime() > began + 5, what="the time to be over")
    used = sum(int(n) for n in pathlib.Path(f"/proc/{keeper}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    wait_for(lambda: boottime() > began + 7)
    after = sum(int(n) for n in pathlib.Path(f"/proc/{keeper}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    assert after - used < 20, f"{after - used} ticks in two seconds"
    assert dlock.run("release", handle).status == 79


def test_a_release_says_that_the_keeper_is_frozen(request, hold, dlock):
    where = FilePlace(request)
    handle = hold(where, "job", "--for", "300").stdout.strip()
    pids = holders()[0]
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    result = dlock.run("release", "--shell", handle)
    assert result.status == 71 and f"keeper process (pid {pids[1]}) does not answer: it is stopped" in result.stderr, result
    assert "unset" not in result.stdout  # it is held still, and can be released again
    for pid in pids:
        kill(pid, signal.SIGCONT)
    becomes_free(dlock, where)


def test_a_release_that_was_asked_for_twice_is_told_how_it_ended(request, hold, dlock, tmp_path):
    """A keeper that was stopped for a while has two questions before it, and is gone when it has answered the first."""
    shim = compile_shim(tmp_path, "twice", """
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <sys/socket.h>
        #include <unistd.h>
        ssize_t sendto(int fd, const void *data, size_t n, int flags, const struct sockaddr *to, socklen_t size) {
            syscall(SYS_sendto, fd, data, n, flags, to, size);
            close(open(getenv("SENT"), O_WRONLY | O_CREAT, 0600));
            return syscall(SYS_sendto, fd, data, n, flags, to, size);
        }""")
    where = FilePlace(request)
    handle = hold(where, "job", "--for", "300").stdout.strip()
    keeper = holders()[0][1]
    kill(keeper, signal.SIGSTOP)
    release = dlock.start("release", handle, env={"LD_PRELOAD": shim, "SENT": str(tmp_path / "sent")}, events=False)
    wait_for((tmp_path / "sent").exists, what="the question")
    wait_for(lambda: stat_of(release.pid)[1] == "S", what="it to wait")
    kill(keeper, signal.SIGCONT)
    result = release.wait()
    assert (result.status, result.stderr) == (0, ""), result
    assert is_free(dlock, where)


# ---- nesting ----


def test_hold_inside_a_run_joins(where, dlock):
    """The enclosing run's lock lasts as long as the hold."""
    inner = f'{DLOCK} hold -nk {where.key()} --pid $$ --shell && {DLOCK} hold -nk {where.key()} --for 2'
    result = dlock.run("run", *where.words, "-k", where.key(), "sh", "-c", inner)
    assert result.status == 0, result
    assert result.stdout.count("@dlock-") >= 2


def test_release_says_who_keeps_it(where, dlock):
    inner = f'{DLOCK} release "$({DLOCK} hold -k {where.key()} --for 60)"'
    result = dlock.run("run", *where.words, "-k", where.key(), "sh", "-c", inner)
    assert result.status == 0 and "the outer run still holds it" in result.stderr, result


def test_release_does_not_wait_for_its_own(start, where):
    """Two holds in one script, and a run that goes on: the first release says what keeps the lock."""
    script = start("""eval "$($D hold -k "$K" --pid $$ --shell)"; first=$DLOCK_HANDLE
eval "$($D hold -nk "$K" --pid $$ --shell)"
$D release $first; mark first $?
(unset DLOCK_KEEPER; $D run -nqk "$K" true); mark busy $?
$D release; mark second $?
unset DLOCK_KEEPER
$D run -k "$K" -w 30 true; mark free $?
""", where)
    script.wait()
    assert [script.mark(m) for m in ("first", "busy", "second", "free")] == ["0", "75", "0", "0"], script.stderr()
    assert "is kept until" in script.stderr()


def test_release_says_that_a_min_hold_keeps_it(start, where):
    """Of a run that has joined it: the lock is not free, whatever the script believes."""
    script = start("""eval "$($D hold -k "$K" --pid $$ --shell)"
$D run -k "$K" --min-hold 8s true
$D release; mark first $?
$D release; mark second $?
(unset DLOCK_KEEPER; $D run -nqk "$K" true); mark busy $?
unset DLOCK_KEEPER
$D run -qk "$K" true; mark free $?
""", where)
    script.wait()
    assert [script.mark(m) for m in ("first", "second", "busy", "free")] == ["75", "75", "75", "0"], script.stderr()
    assert len(re.findall(r"is kept until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*, for the --min-hold of a run", script.stderr())) == 2


def test_joins_are_told_of_a_loss(start, leased, own_redis):
    leased.server = own_redis
    script = start("""eval "$($D hold -k "$K" -t 3 --for 1000 --shell)"
$D run -k "$K" sleep 1000; mark run $?
""", leased)
    wait_for(lambda: [p for p in descendants_of(script.pid) if name_of(p) == "sleep"], what="the run")
    own_redis.pause()
    assert script.mark("run") == "79"
    own_redis.resume()


@pytest.mark.parametrize("how", ["by silence", "to another"])
def test_what_is_given_back_stops_nobody(start, leased, own_redis, how):
    """Others who have joined keep the lock, and lose it: no affair of who has released it."""
    leased.server = own_redis
    script = start("""eval "$($D hold -k "$K" -t 3 --pid $$ --shell --log "${0%script}log")"
$D run -k "$K" sh -c 'trap "" TERM; echo; exec sleep 1000' >"${0%script}run" & # it outlives what the keeper sees
while [ ! -s "${0%script}run" ]; do sleep 0.1; done
$D release; mark released $?
wait $!; mark run $?
sleep 1; $D release; mark again $?
""", leased)
    assert script.mark("released") == "0"
    if how == "by silence":
        own_redis.pause()
    else:
        leased.take_away([leased.key("job")], leased.key("job"))
    assert script.mark("run") == "79"
    assert script.mark("again") == "79" and "nothing was stopped" in script.stderr(), script.stderr()
    log = script.directory / "log"
    lost = wait_for(lambda: [line for line in log.read_text().splitlines() if "lost" in line], what="the line of the loss")
    assert len(lost) == 1 and "nothing was stopped" in lost[0], lost
    if how == "by silence":
        own_redis.resume()


@pytest.mark.parametrize("options", ["--for 1000", "--pid $$"])
def test_broken_under_those_who_have_joined(start, where, dlock, options):
    """The next one gets the lock when they have stopped, wherever they stand.  From TERM to KILL they have --grace."""
    script = start("""eval "$($D hold -k "$K" %s --shell)"
: >"${0%%script}log"
(setsid $D run -k "$K" %s sh -c 'trap "sleep 0.2; echo stopped >>$1; exit" TERM; echo joined >>$1; while :; do sleep 0.1; done' \
    sh "${0%%script}log" &
while [ ! -s "${0%%script}log" ]; do sleep 0.1; done)
unset DLOCK_KEEPER
mark joined
while :; do sleep 0.1; done
""" % (f"{GRACE} {options}", GRACE), where)
    script.mark("joined")
    log = script.directory / "log"
    next_one = dlock.start("run", *where.words, "-k", where.key(), "sh", "-c", f"echo next >>{log}")
    assert dlock.run("break", *where.words, "-y", "-k", where.key()).status == 0
    assert next_one.wait().status == 0
    assert log.read_text().split() == ["joined", "stopped", "next"]


SLOW_TO_SEE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    ssize_t (*real)(int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
    ssize_t n = real(fd, bytes, size, flags);
    if (n == 0) usleep(200000);
    return n;
}"""


@pytest.mark.parametrize("where", [p for p in PLACES if p is FilePlace], ids=["file"], indirect=True)  # elsewhere a lease goes on without the keeper
@pytest.mark.parametrize("options", ["--for 1000", "--pid $$"])
def test_the_keeper_is_killed_under_those_who_have_joined(start, where, dlock, tmp_path, options):
    """Wherever they stand: the next one gets the lock when they have ended, though they are slow to see it."""
    script = start("""eval "$($D hold -k "$K" -t 9 %s --shell)"
: >"${0%%script}pid"
(LD_PRELOAD=%s setsid $D run -q -k "$K" -t 9 sh -c 'echo $$ >$1; exec sleep 1000' sh "${0%%script}pid" &
while [ ! -s "${0%%script}pid" ]; do sleep 0.02; done)
unset DLOCK_KEEPER
mark joined
while :; do sleep 0.1; done
""" % (options, compile_shim(tmp_path, "slow", SLOW_TO_SEE)), where)
    script.mark("joined")
    command = int((script.directory / "pid").read_text())
    next_one = dlock.start("run", *where.words, "-k", where.key(), "sh", "-c", f"kill -0 {command} 2>&1", events=False)
    (_, keeper), = holders()
    kill(keeper)
    assert next_one.wait().status == 1


@pytest.mark.parametrize("where", [p for p in places(every=True) if place_id(p) in DESCRIPTORS], ids=place_id, indirect=True)
@pytest.mark.parametrize("how", ["killed", "killed, as that of who joined", "killed below another hold", "killed, and has joined a run", "one key is lost"])
def test_one_that_has_joined_and_is_frozen_keeps_what_lasts_with_a_descriptor(start, where, dlock, how):
    """Nobody else works as long as its command can go on, though the keeper of the hold is gone."""
    script = start("""export D P="${0%%script}"
: >"${P}pid"
cat >"${P}body" <<'end'
%s
(setsid $D run -q -k "$K2" -t 9 sh -c 'echo $$ >$1; exec sleep 1000' sh "${P}pid" & echo $! >"${P}front"
while [ ! -s "${P}pid" ]; do sleep 0.02; done)
end
%s
while [ ! -s "${P}pid" ]; do sleep 0.02; done
unset DLOCK_KEEPER
mark joined
while :; do sleep 0.1; done
""" % ("\n".join(['eval "$($D hold -k "$K" -k "$K2" -t 9 --for 1000 --shell --log "${P}log")"'] * (2 if "another" in how else 1)),
       '$D run -q -k "$K" -k "$K2" -t 9 sh "${P}body" &' if "run" in how else '. "${P}body"'), where)
    script.mark("joined")
    other = where.key("other")
    command, inner = (int((script.directory / name).read_text()) for name in ("pid", "front"))
    keepers = [below[0] for p in descendants_of(os.getpid()) if name_of(p) == "dlock-hold" and (below := children_of(p))]
    keeper = min(keepers, key=began_at)
    tree = [inner] + descendants_of(inner)
    assert command in tree
    joined = children_of(inner)[0]
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    try:
        if "who joined" in how:
            kill(joined)
        if "lost" in how:
            where.take_away([where.key(), other], where.key())
        else:
            kill(keeper)
        wait_for(lambda: " lost " in (script.directory / "log").read_text(), what="the line of the loss")
        time.sleep(2)  # in which its front gives it back, if it does
        assert dlock.run("run", *where.words, "-n", "-k", other, "true").status == 75
    finally:
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert dlock.run("run", *where.words, "-w", "30s", "-k", other, "sh", "-c", f"! kill -0 {command} 2>&1").status == 0


@pytest.mark.parametrize("options", ["--for 1000", "--pid $$"])
def test_one_that_has_joined_and_is_frozen_ends_with_the_lease(start, leased, dlock, options):
    """It is in no tree of the hold's, and so stopped by nobody: `break` comes to its end when the lease does."""
    script = start("""eval "$($D hold -k "$K" -t 3 %s --shell)"
: >"${0%%script}log"
(setsid $D run -k "$K" -t 3 sh -c 'echo joined >>$1; exec sleep 1000' sh "${0%%script}log" & echo $! >"${0%%script}pid"
while [ ! -s "${0%%script}log" ]; do sleep 0.1; done)
unset DLOCK_KEEPER
mark joined
while :; do sleep 0.1; done
""" % options, leased)
    script.mark("joined")
    front = int((script.directory / "pid").read_text())
    tree = [front] + descendants_of(front)
    assert len(tree) > 2
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert dlock.run("break", *leased.words, "-y", "-k", leased.key(), timeout=30).status == 0
        assert dlock.run("run", *leased.words, "-k", leased.key(), "-w", "10s", "true").status == 0
    finally:
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# ---- handles ----


def test_no_handles(dlock, where, hold):
    assert hold(where, "job", "--for", "100").status == 0
    for handle in ("", "x", "@dlock-", "@dlock-" + "0" * 32, "@dlock-" + "0" * 32 + "/", "@dlock-" + "g" * 32 + "/3",
                   "@dlock-" + "0" * 32 + "/3/4", "@dlock-" + "0" * 32 + "/" + "3" * 500, "@x" + "0" * 32 + "/3", "\x1b[2J"):
        result = dlock.run("release", handle)
        assert result.status == 64 and "\x1b" not in result.stderr, handle
    assert dlock.run("release").status == 64
    assert dlock.run("release", "a", "b").status == 64
    net = hold(where, "other", "--for", "100").stdout.strip().split("/")[1]
    assert dlock.run("release", "@dlock-" + "0" * 32 + "/" + net).status == 1
    assert dlock.run("release", "@dlock-" + "0" * 32 + "/ffff").status == 1
    assert not is_free(dlock, where)


def release(dlock, place, *keys, **options):
    return dlock.run("release", *[word for key in keys for word in ("-k", place.key(key))], **options)


@pytest.fixture
def alone(request):
    """In a network namespace of its own, where no keepers of other tests are found."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a network namespace")
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    assert libc.unshare(CLONE_NEWNET) == 0, ctypes.get_errno()
    yield FilePlace(request)
    assert libc.setns(home, CLONE_NEWNET) == 0, ctypes.get_errno()
    os.close(home)


def test_a_hold_on_any_server_is_released_by_its_key(dlock, hold, where):
    key = where.key(uuid.uuid4().hex)  # as others have holds, too
    assert dlock.run("hold", *where.words, "-k", key, "--for", "100").status == 0

    def answered():  # all keepers of this user are asked, of which other tests have many: 71 if one did not answer in time
        result = dlock.run("release", "-k", key)
        return None if result.status == 71 and "does not answer" in result.stderr else result

    result = wait_for(answered, what="an answer of all keepers")
    assert (result.status, result.stdout, result.stderr) == (0, "", "")
    assert is_free(dlock, where, key=key)


def test_a_hold_is_released_by_its_key(dlock, hold, alone):
    """Whatever else this user holds or runs, and from any directory."""
    other = hold(alone, "other", "--for", "100").stdout.strip()
    assert hold(alone, "job", "--for", "100", "--who", "x").status == 0
    running = dlock.hold(alone, alone.key("third"))
    result = release(dlock, alone, "job")
    assert (result.status, result.stdout, result.stderr) == (0, "", "")
    assert is_free(dlock, alone) and not is_free(dlock, alone, key=alone.key("other"))
    result = release(dlock, alone, "job")
    assert result.status == 1 and "you have no hold of it on this machine, at any server" in result.stderr, result
    result = release(dlock, alone, "third")
    assert result.status == 1 and f"but a dlock run (pid {running.pid}, directory " in result.stderr, result
    assert dlock.run("release", other).status == 0 and running.finish().status == 0


def test_several_holds_of_a_key_are_named_by_their_handles(dlock, hold, alone):
    handles = {hold(alone, "job", "-s", "--for", "100").stdout.strip() for _ in range(2)}
    result = release(dlock, alone, "job")
    assert result.status == 64 and result.stderr.count("\n") == 1 and "you have 2 holds of it here" in result.stderr, result
    assert {*re.findall(r"@dlock-\S+", result.stderr)} == handles
    assert dlock.run("release", handles.pop()).status == 0
    assert release(dlock, alone, "job").status == 0
    becomes_free(dlock, alone)


def test_a_hold_of_several_keys_is_released_by_all_of_them(dlock, hold, alone):
    handle = hold(alone, "job", "-k", alone.key("other"), "--for", "100").stdout.strip()
    result = release(dlock, alone, "other")
    assert result.status == 64 and f"say -k for each of its keys, or dlock release {handle}" in result.stderr, result
    assert "your hold of it (directory " in result.stderr, result
    assert not is_free(dlock, alone)
    assert release(dlock, alone, "other", "job").status == 0
    assert is_free(dlock, alone)


def test_a_lost_hold_is_told_by_its_key(dlock, hold, alone):
    assert hold(alone, "job", "--for", "100").status == 0
    assert dlock.run("break", *alone.words, "-y", "--why", "x", "-k", alone.key()).status == 0
    assert hold(alone, "job", "--for", "100").status == 0  # which is meant, while it is there
    assert release(dlock, alone, "job").status == 0
    result = release(dlock, alone, "job")
    assert result.status == 79 and "lost" in result.stderr, result
    assert release(dlock, alone, "job").status == 1


@contextlib.contextmanager
def keeper_that_ends(key, where, at="JOIN_RELEASE"):
    """Listens as the keeper of a hold does, says to whoever looks what it has, and ends when it is asked that: to release it."""
    header = (pathlib.Path(ROOT) / "cmd/supervise/join.h").read_text()
    version, verbs, has_hold = int(re.search(r"JOIN_VERSION (\d+)", header)[1]), re.search(r"enum join_verb {(.*)}", header)[1], 2
    last_verb = [verb.split()[0] for verb in verbs.split(",")].index(at) + 1
    room = int(re.search(r"WHERE_BYTES = (\d+)", (pathlib.Path(ROOT) / "backends/backend.h").read_text())[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind("\0dlock-" + uuid.uuid4().hex)
        listening.listen(50)
        ready, begun = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(begun, b"x")
            while True:  # others look for a hold of theirs meanwhile
                with contextlib.suppress(OSError):
                    asker = listening.accept()[0]
                    ask = asker.recv(1000)
                    if len(ask) >= 8 and struct.unpack("ii", ask[:8])[1] == last_verb:
                        os._exit(0)
                    asker.send(struct.pack(f"iiq{room}s", version, has_hold, os.getpid(), where.encode()) + key.encode() + b"\0")
        os.read(ready, 1)
    os.close(ready)
    os.close(begun)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_failure_of_a_release_by_a_key_names_key_and_server(dlock, alone):
    with keeper_that_ends("job", "redis 10.0.0.5:6379"):
        result = dlock.run("release", "-k", "job")
    said = "dlock: cannot release job (redis 10.0.0.5:6379): dlock's keeper process has ended before it said whether the lock is released"
    assert result.stderr.startswith(said) and result.stderr.count("\n") == 1, result


def test_a_keeper_that_ends_as_it_is_asked_has_nothing_any_more(dlock, alone):
    with keeper_that_ends("job", "redis 10.0.0.5:6379", at="JOIN_NAME"):
        result = dlock.run("release", "-k", "job")
    assert result.status == 1 and "you have no hold" in result.stderr, result


def test_a_keeper_that_hangs_up_and_lives_may_have_it(dlock, alone):
    """It is of another version, or has no room for one more who asks."""
    def hang_up(listening):
        with contextlib.suppress(OSError):
            while True:
                listening.accept()[0].close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind("\0dlock-" + uuid.uuid4().hex)
        listening.listen(5)
        thread = threading.Thread(target=hang_up, args=(listening,), daemon=True)
        thread.start()
        result = dlock.run("release", "-k", "job")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert result.status == 71 and "may have it" in result.stderr, result


SLOW_TO_END = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/socket.h>
    #include <unistd.h>
    int shutdown(int fd, int how) {
        int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "shutdown");
        if (how == SHUT_WR && getenv("GATE")) {
            close(open(getenv("AT"), O_CREAT | O_WRONLY, 0600));
            while (access(getenv("GATE"), F_OK) == 0)
                usleep(1000);
        }
        return real(fd, how);
    }"""


def test_a_release_that_comes_as_the_hold_ends(dlock, where, tmp_path):
    """Its keeper has given the lock back already, and tells the front so."""
    gate, at = tmp_path / "gate", tmp_path / "at"
    gate.touch()
    env = {"LD_PRELOAD": compile_shim(tmp_path, "slow", SLOW_TO_END), "GATE": str(gate), "AT": str(at)}
    handle = dlock.run("hold", *where.words, "-k", where.key(), "--for", "100ms", env=env).stdout.strip()
    wait_for(at.exists, what="the end of the hold")
    asking = dlock.start("release", handle, events=False)

    def waits():
        fds = pathlib.Path(f"/proc/{asking.pid}/fd")
        return stat_of(asking.pid)[1] == "S" and any(os.readlink(fd).startswith("socket:") for fd in fds.iterdir())

    wait_for(waits, what="it to ask")
    gate.unlink()
    result = asking.wait()
    assert result.status == 0, result


def test_a_key_or_a_handle(dlock, hold, alone):
    """What is said by a word counts more than what stands in a variable."""
    handle = hold(alone, "job", "--for", "100").stdout.strip()
    hold(alone, "other", "--for", "100")
    both = dlock.run("release", "-k", alone.key(), handle)
    assert both.status == 64 and "both a handle and --key" in both.stderr
    assert release(dlock, alone, "other", env={"DLOCK_HANDLE": handle}).status == 0
    assert not is_free(dlock, alone)
    assert dlock.run("release", env={"DLOCK_HANDLE": handle, "DLOCK_KEY": "nosuch"}).status == 0
    hold(alone, "job", "--for", "100")
    assert dlock.run("release", env={"DLOCK_KEY": alone.key()}).status == 0
    assert "say -k" in dlock.run("release", alone.key()).stderr


def test_a_keeper_that_does_not_answer_may_be_the_one(dlock, hold, alone):
    hold(alone, "job", "--for", "100")
    (_, keeper), = holders()
    os.kill(keeper, signal.SIGSTOP)
    try:
        result = release(dlock, alone, "job")
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert result.status == 71 and f"(pid {keeper}) does not answer, and may have it" in result.stderr, result
    assert release(dlock, alone, "job").status == 0


@pytest.mark.parametrize("uid", [pytest.param(54321, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")), None])
def test_only_ones_own_holds_are_found(dlock, hold, alone, public_dlock, uid):
    """Whoever listens under such a name and takes nobody in, answers with anything, or is another user's."""
    hold(alone, "job", "--for", "100")
    if uid:
        ask = subprocess.run([public_dlock, "release", "-k", alone.key()], user=uid, group=uid, extra_groups=[], cwd="/",
                             capture_output=True, text=True, env=dlock.env)
        assert ask.returncode == 1 and "you have no hold" in ask.stderr, ask
    with contextlib.ExitStack() as stack:
        for i, backlog in enumerate((0, 5)):
            squatter = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            squatter.bind(f"\0dlock-{i:032x}")
            squatter.listen(backlog)
            for _ in range(1 - i):  # one fills it
                caller = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                caller.connect(f"\0dlock-{i:032x}")
        assert release(dlock, alone, "job").status == 0
    assert is_free(dlock, alone)


def test_a_run_is_not_released(dlock, where):
    script = f"{DLOCK} release $(echo $DLOCK_KEEPER | cut -d/ -f1,2); echo status $?; {DLOCK} run -nk {where.key()} echo still"
    result = dlock.run("run", *where.words, "-k", where.key(), "sh", "-c", script)
    assert result.status == 0 and result.stdout == "status 1\nstill\n", result


# Joins the hold for which it is held, as nested runs would; prints how many times that was granted.
JOIN = """import os, re, socket, struct, subprocess, sys
join, key, times = open(sys.argv[1]).read(), sys.argv[2], int(sys.argv[3])
version = int(re.search("#define JOIN_VERSION (.*)", join)[1])
ask = struct.pack("=iiqQ?8192s512x7x32x", version, 1, 0, 0, False, bytes.fromhex(sys.argv[4])) + key.encode() + bytes(1)
handle = sys.stdin.readline().strip()
joined = []
for _ in range(times):
    joined.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    joined[-1].connect("\\0" + handle.split("/")[0][1:])
    joined[-1].send(ask)
print(sum(len(s.recv(65536)) > 0 for s in joined), flush=True)
for line in iter(sys.stdin.readline, ""):  # commands that join; "leave" makes room while the last one runs
    if line == "leave\\n":
        joined.pop().close()
    else:
        started = subprocess.Popen(line, shell=True, env={**os.environ, "DLOCK_KEEPER": handle})
"""


def identity(place):
    """Which locks these are, as backends/common/setting.h has it."""
    if place.name == "file":
        st = os.stat(place.directory)
        parts = {"device": st.st_dev, "inode": st.st_ino}
    else:
        port = place.url.rsplit(":", 1)[1]
        parts = {"form": "single", "host": "127.0.0.1", "port": port, "path": "", "master": "", "user": "default", "db": 0, "tls": 0,
                 "dialect": "native"}
    parts = {"backend": place.name, **parts}
    return "".join(f"{name}={len(str(value))}:{value}\n" for name, value in parts.items()).encode()


def join_many(place, hold, times, env=None):
    """A process that has joined a hold for itself so many times; and the handle."""
    joiner = subprocess.Popen([sys.executable, "-IS", "-c", JOIN, os.path.join(ROOT, "cmd/supervise/join.h"),
                               place.key(), str(times), identity(place).hex()], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    handle = hold(place, "job", "--pid", joiner.pid).stdout.strip()
    print(handle, file=joiner.stdin)
    assert joiner.stdout.readline() == f"{times}\n"
    return joiner, handle


def end_joiner(joiner):
    joiner.kill()
    joiner.wait()
    joiner.stdin.close()
    joiner.stdout.close()


def test_what_has_joined_keeps_the_other_keys_until_it_has_stopped(dlock, leased):
    """It is told that one of them is lost; that it has stopped is told by the end of its connection."""
    keys = [leased.key("one"), leased.key("two")]
    words = [word for key in keys for word in ("-k", key)]
    handle = dlock.run("hold", *leased.words, *words, "-t", "30", "--for", "1h").stdout.strip()
    version = int(re.search("#define JOIN_VERSION (.*)", (pathlib.Path(ROOT) / "cmd/supervise/join.h").read_text())[1])

    def question(verb):
        return struct.pack("=iiqQ?8192s512x7x32x", version, verb, 0, 0, False, identity(leased)) + b"".join(key.encode() + b"\0" for key in keys)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as joined:
        joined.settimeout(PATIENCE)
        joined.connect("\0" + handle.split("/")[0][1:])
        joined.send(question(1))
        assert len(joined.recv(65536)) > 1
        leased.take_away(keys, keys[0])
        while len(joined.recv(65536)) > 1:  # until it calls: the loss is told to who asks
            pass
        joined.send(question(2))
        assert len(joined.recv(65536)) > 1
        time.sleep(0.5)  # in which it would be given back
        assert not is_free(dlock, leased, key=keys[1])
    wait_for(lambda: is_free(dlock, leased, key=keys[1]), what="the other to be free")


@pytest.mark.skipif(FilePlace not in PLACES, reason="not built in")
def test_a_keeper_that_was_stopped_has_not_ended(dlock, request, tmp_path):
    """However often it was asked meanwhile: as long as it lives, it has the lock."""
    where = FilePlace(request)
    outer = dlock.start("run", *where.words, "-k", where.key(), "-t", "3", "--", "sh", "-c",
                        f"{DLOCK} run {shlex.join(where.words)} -k {where.key()} -t 3 -- sh -c 'echo joined; until [ -e {tmp_path}/end ]; do sleep 0.1; done; echo over'", events=False)
    wait_for(lambda: "joined" in outer.stdout(), what="the inner run")
    keeper, = children_of(outer.pid)
    for pid in (outer.pid, keeper):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(8)  # more questions than its socket has room for
    for pid in (outer.pid, keeper):
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "end").touch()
    done = outer.wait()
    assert (done.status, done.stdout) == (0, "joined\nover\n"), done


@pytest.mark.parametrize("times", [256, 448])
def test_a_release_beside_many_who_have_joined(hold, where, dlock, times):
    """Whoever releases it may be none of those for whom it is held."""
    joiner, handle = join_many(where, hold, times)
    try:
        result = dlock.run("release", handle)
        assert result.status == 0 and f"have ended: {times}" in result.stderr, result
    finally:
        end_joiner(joiner)
    becomes_free(dlock, where)


def test_no_more_can_join_than_there_is_room_for(hold, where, dlock, tmp_path):
    """The next one waits for room, and then is refused rather than to wait for its own parent."""
    joiner, _ = join_many(where, hold, 448, dlock.env)
    run = shlex.join([DLOCK, "run", *where.words, "-k", where.key(), "true"])

    def said(name):
        return (tmp_path / name).exists() and (tmp_path / name).read_text()

    def ask(name):
        print(f"{run} 2>{tmp_path}/{name}; echo status $? >>{tmp_path}/{name}", file=joiner.stdin)

    try:
        ask("late")
        assert wait_for(lambda: "status" in (said("late") or "") and said("late")).endswith("nothing was run\nstatus 69\n")
        assert "too many runs have joined" in said("late")
        ask("later")
        time.sleep(0.5)  # or else it may find room at once
        print("leave", file=joiner.stdin)
        assert wait_for(lambda: said("later")) == "status 0\n"
    finally:
        end_joiner(joiner)


SQUAT = """import os, socket, sys
name, uid = sys.argv[1], int(sys.argv[2])
os.setuid(uid)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\\0" + name)
s.listen()
print("ready", flush=True)
c = s.accept()[0]
print(len(c.recv(10)), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_squatter(dlock, hold, where):
    """Another user at the name is told nothing, and believed nothing."""
    handle = hold(where, "job", "--for", "100").stdout.strip()
    assert dlock.run("release", handle).status == 0
    name = handle.split("/")[0][1:]
    squatter = subprocess.Popen([sys.executable, "-IS", "-c", SQUAT, name, "54321"], stdout=subprocess.PIPE, text=True)
    try:
        assert squatter.stdout.readline() == "ready\n"
        result = dlock.run("release", handle)
        assert result.status == 1 and "another user's" in result.stderr
        assert squatter.stdout.readline() == "0\n"
    finally:
        squatter.kill()
        squatter.wait()
        squatter.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_handle(dlock, hold, where, public_dlock):
    handle = hold(where, "job", "--for", "100").stdout.strip()
    ask = subprocess.run([public_dlock, "release", handle], user=54321, group=54321, extra_groups=[], cwd="/", capture_output=True,
                         text=True, env=dlock.env)
    assert ask.returncode == 1 and ask.stderr.count("\n") == 1, ask
    assert not is_free(dlock, where)
