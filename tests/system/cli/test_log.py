# Goal of these tests: --log has one line for each grant, each end and each deed, from which one can
# tell later who did what; it is never waited for, and what it cannot take costs a line and nothing else.

import contextlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import types

import pytest

from support import DLOCK, DLOCK_TEST, FilePlace, kill, wait_for

HEAD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S+ dlock\[(\d+)\]: ")
SYSLOG_HEAD = re.compile(r"<(\d+)>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d dlock\[(\d+)\]: ")


def object_of(line):
    """As the manual takes it out of a line."""
    return json.loads(re.sub(r'.*{"v":1', '{"v":1', line))


class Log:
    def __init__(self, dlock, files, path):
        self.dlock, self.files, self.path = dlock, files, path

    def words(self, *words, key="job", to=None):
        return [words[0], *self.files.words, "--log", to or self.path, "-k", key, *words[1:]]

    def run(self, *words, key="job", to=None, **options):
        return self.dlock.run(*self.words("run", *words, key=key, to=to), **{"events": False, **options})

    def lines(self):
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        assert text == "" or text.endswith("\n")
        lines = text.splitlines()
        assert all(HEAD.match(line) and len(line.encode()) < 4096 and not re.search(r"[\0-\x1f\x7f-\x9f]", line) for line in lines), lines
        return lines

    def objects(self):
        return [object_of(line) for line in self.lines()]

    def events(self):
        return [o["event"] for o in self.objects()]


def at(server):
    return types.SimpleNamespace(words=["-u", server.url])


@pytest.fixture
def log(request, dlock, tmp_path):
    return Log(dlock, FilePlace(request), tmp_path / "dlock.log")


# ---- which lines, and what is in them ----


def test_a_grant_and_an_end_say_who_why_and_how_long(log):
    result = log.run("--who", "alice@ci-3", "--why", "release 4.2", "--", "sh", "-c", "sleep 0.3; echo $DLOCK_TOKEN; exit 7")
    assert result.status == 7 and result.stderr == ""
    (granted, ended), lines = log.objects(), log.lines()
    token = int(result.stdout)
    for o in (granted, ended):
        assert (o["key"], o["token"], o["who"], o["why"], o["command"]) == ("job", token, "alice@ci-3", "release 4.2", "sh")
        assert o["server"] == f"directory {log.files.directory}" and o["host"] == socket.gethostname()
        assert str(o["pid"]) == HEAD.match(lines[0])[1] == HEAD.match(lines[1])[1] and o["waited_s"] < 5
    assert granted["event"] == "acquired" and "status" not in granted and "held_s" not in granted
    assert (ended["event"], ended["status"]) == ("ended", 7) and 0.3 <= ended["held_s"] < 5
    assert f'job: acquired by alice@ci-3 (pid {granted["pid"]} on {granted["host"]}, running sh) "release 4.2", token {token}, ' in lines[0]
    assert re.search(r"job: the command ended with status 7 after \S+, run by alice@ci-3 ", lines[1])


def test_each_way_to_end_has_one_line(log):
    """Also with -q, and where the lock was never granted."""
    assert log.run("--once", "a", "--", "true").status == 0
    assert log.run("--once", "a", "--", "true").status == 0
    held = log.dlock.hold(log.files, "job")
    assert log.run("-nq", "--", "true").status == 75
    assert log.run("-w", "0.2", "--", "true").status == 75
    waiting = log.dlock.start(*log.words("run", "--", "true"))
    waiting.event("waiting")
    waiting.signal(signal.SIGTERM)
    assert waiting.wait().status == -15
    held.finish()
    assert log.run("--max-run", "0.1", "--", "sleep", "9").status == 124
    assert log.run("--", "/no/such/command").status == 127
    assert log.run("--", "sh", "-c", "kill -9 $$").status == -9
    assert log.run("-O", "name=x", "-O", "path=y", "--", "true").status == 64
    told = [(o["event"], o.get("status"), o.get("signal")) for o in log.objects() if o["event"] != "acquired"]
    assert told == [("ended", 0, None), ("skipped", 0, None), ("busy", 75, None), ("busy", 75, None), ("interrupted", 143, 15),
                    ("max-run", 124, None), ("not-executed", 127, None), ("ended", 137, 9), ("usage", 64, None)]
    assert log.events().count("acquired") == 3  # the first, --max-run, kill
    busy = [o for o in log.objects() if o["event"] == "busy"]
    assert busy[1]["waited_s"] >= 0.2 and all(" held by " in o["message"] and "held_s" not in o for o in busy)


def test_all_keys_of_a_run_and_of_one_inside_it(log):
    """The inner run has the variable, and joins: its grant has the same token."""
    words = ["run", *log.files.words, "-k", "a", "-k", "b", "--", DLOCK, "run", "-k", "b", "true"]
    assert log.dlock.run(*words, events=False, env={"DLOCK_LOG": str(log.path)}).status == 0
    assert [(o["event"], o["key"], o.get("keys")) for o in log.objects()] == [
        ("acquired", "a", ["a", "b"]), ("acquired", "b", None), ("ended", "b", None), ("ended", "a", ["a", "b"])]


def test_a_break_is_told_by_who_broke_it_and_by_who_lost_it(log, make_redis, tmp_path):
    log.files = at(make_redis())
    own = Log(log.dlock, log.files, tmp_path / "bob.log")
    for force in ([], ["--force"]):
        carol = log.dlock.start(*log.words("run", "-t", "6s", "--who", "carol", "--", "sleep", "1000")).held()
        done = own.dlock.run(*own.words("break", "-y", "--who", "bob", "--why", "hotfix", *force))
        assert done.status == 0 and carol.wait().status == 79
    asked, forced = own.objects()
    lost = [o for o in log.objects() if o["event"] == "lost"]
    assert len(lost) == 2 and 'broken by bob "hotfix"' in lost[0]["message"] and lost[0]["status"] == 79 and lost[0]["who"] == "carol"
    for o, of in ((asked, lost[0]), (forced, lost[1])):
        assert (o["event"], o["who"], o["why"], o["token"], o["status"]) == ("break", "bob", "hotfix", of["token"], 0)
        assert o["holder"].startswith("carol (pid ") and o["held_s"] >= 0 and "pid" not in o
    assert "force" not in asked and forced["force"] is True
    assert "job was taken away (--force) by bob \"hotfix\"; it was held by carol (pid " in own.lines()[1]


def test_freeze_thaw_and_forget(log):
    assert log.run("--once", "x", "--", "true").status == 0
    before = len(log.lines())
    for words in (["freeze", "--for", "1h", "--who", "bob", "-k", "other"], ["thaw", "-y"], ["thaw", "-y"], ["forget", "-y", "x"]):
        log.dlock.run(*log.words(*words))
    told = log.objects()[before:]
    assert [(o["event"], o["key"]) for o in told] == [("freeze", "job"), ("freeze", "other"), ("thaw", "job"), ("forget", "job")]
    assert told[0]["who"] == "bob" and told[0]["until"] > told[0]["time"] and told[2]["holder"] == "bob" and told[3]["id"] == "x"
    assert "keys" not in told[0]
    assert re.search(r"other was frozen by bob, until ", log.lines()[before + 1])


def test_a_hold_is_told_when_it_is_delivered_and_given_back(log):
    env = {"DLOCK_LOG": str(log.path)}
    handle = log.dlock.run("hold", *log.files.words, "-k", "job", "--pid", os.getpid(), "--why", "by hand", env=env).stdout.strip()
    wait_for(lambda: log.events() == ["acquired"])
    assert log.dlock.run("release", handle).status == 0
    wait_for(lambda: log.events() == ["acquired", "ended"])
    assert {o["pid"] for o in log.objects()} == {os.getpid()} and log.objects()[1]["why"] == "by hand"
    assert re.search(r"job: given back after \S+, held by ", log.lines()[1])


@pytest.mark.parametrize("granted", [True, False])
def test_the_keeper_writes_when_the_front_is_killed(log, granted):
    holder = None if granted else log.dlock.hold(log.files, "job")
    run = log.dlock.start(*log.words("run", "--who", "alice", "--", "sleep", "1000"))
    if granted:
        run.held()
    else:
        run.event("waiting")
    kill(run.pid)
    wait_for(lambda: log.events()[-1:] == ["failed"])
    told = log.objects()
    assert [o["event"] for o in told] == ["acquired"] * granted + ["failed"]
    assert {(o["who"], o["pid"], o["command"]) for o in told} == {("alice", run.pid, "sleep")}
    assert told[-1]["status"] == 71 and ("held_s" in told[-1]) is granted
    assert "dlock was killed" in log.lines()[-1]
    if holder:
        holder.finish()
    assert log.dlock.run("run", *log.files.words, "-n", "-k", "job", "true", events=False).status == 0  # it was released before


def test_secrets_and_control_bytes_are_not_in_it(log):
    secret = "redis://alice:hunter2@h/0"
    assert log.run("--who", f"a\x1b[31m\nb {secret}", "--why", f"see {secret}\t\x07", "--", "true", key="k\u202eey").status == 0
    text = log.path.read_text(encoding="utf-8")
    assert len(log.lines()) == 2 and "hunter2" not in text and "\x1b" not in text and "\\u202E" in text


def test_a_line_is_never_longer_than_a_pipe_takes(log):
    keys = [word for i in range(16) for word in ("-k", f"{i:x}" + '"' * 511)]
    words = ["run", *log.files.words, "--log", log.path, *keys, "--who", "\u20ac" * 200, "--why", "\\" * 300, "--", "true"]
    assert log.dlock.run(*words, events=False).status == 0
    assert [len(line.encode()) <= 4095 for line in log.path.read_text(encoding="utf-8").splitlines()] == [True] * 2
    assert log.events() == ["acquired", "ended"] and log.objects()[0]["token"] > 0


# ---- syslog ----


@contextlib.contextmanager
def syslog(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(str(path))
        reader.settimeout(10)
        yield reader


@pytest.fixture
def to_syslog(log, tmp_path):
    def run(*words):
        return log.run(*words, to="syslog", program=DLOCK_TEST, env={"TEST_LOG_SOCKET": str(tmp_path / "log")})

    return run


def test_syslog_gets_a_datagram_for_each_line(to_syslog, tmp_path):
    with syslog(tmp_path / "log") as reader:
        assert to_syslog("--", "true").status == 0
        assert to_syslog("--", "/no/such/command").status == 127
        lines = [reader.recv(8192).decode() for _ in range(3)]
    assert [object_of(line)["event"] for line in lines] == ["acquired", "ended", "not-executed"]
    assert [SYSLOG_HEAD.match(line)[1] for line in lines] == ["14", "14", "12"]  # user.info, user.warning
    assert all("\n" not in line and int(SYSLOG_HEAD.match(line)[2]) == object_of(line)["pid"] for line in lines)


def test_a_syslog_that_is_gone_costs_a_line(to_syslog):
    result = to_syslog("--", "sh", "-c", "exit 3")
    assert result.status == 3
    assert result.stderr == "dlock: the log (syslog) lacks 2 of its lines: No such file or directory\n"


def test_a_syslog_that_is_full_is_not_waited_for(to_syslog, tmp_path):
    with syslog(tmp_path / "log"), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                filler.sendto(b"x", str(tmp_path / "log"))
        result = to_syslog("--", "true")
        assert result.status == 0 and "the log (syslog) lacks 2 of its lines: Resource temporarily unavailable" in result.stderr


# ---- files, pipes, descriptors ----


def test_a_relative_path_is_found_again_and_logrotate_is_heeded(log, tmp_path):
    """The file is opened anew for each line: what is moved away stays as it is."""
    (tmp_path / "below").mkdir()
    job = log.dlock.start("run", *log.files.words, "--log", "dlock.log", "-k", "job", "--", "cat", stdin=subprocess.PIPE, cwd=tmp_path)
    job.held()
    wait_for(lambda: log.events() == ["acquired"])
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o644 & ~current_umask()
    log.path.rename(tmp_path / "dlock.log.1")
    assert job.finish().status == 0
    assert log.events() == ["ended"] and (tmp_path / "dlock.log.1").read_text().count("\n") == 1


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_pipe_without_a_reader_and_what_is_no_file(log, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("pipe", "socket", "nowhere/log"):
            result = log.run("--", "true", to=tmp_path / name)
            assert result.status == 0 and f"the log ({tmp_path / name}) lacks 2 of its lines: " in result.stderr, result
        assert "Is a directory" in log.run("--", "true", to=tmp_path).stderr


def test_a_pipe_that_is_full_is_not_waited_for_and_the_next_line_says_how_many_are_missing(log, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    job = log.dlock.start(*log.words("run", "--", "cat", to=tmp_path / "pipe"), stdin=subprocess.PIPE).held()
    assert set(os.read(reader, 1 << 20)) == {ord("x")}
    done = job.finish()
    assert done.status == 0 and "lacks 1 of its lines" in done.stderr
    os.close(writer)
    with open(reader, encoding="utf-8") as lines:
        text = lines.read()
    assert (object_of(text)["event"], object_of(text)["dropped"]) == ("ended", 1)


def test_a_full_disk_costs_a_line_never_a_lock(log):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (99999, 99999))

    log.path.write_text(99998 * "x" + "\n")
    result = log.run("--", "sh", "-c", "exit 5", preexec_fn=limited)
    assert result.status == 5 and f"the log ({log.path}) lacks 2 of its lines: File too large" in result.stderr, result
    result = log.run("--", "true", to="/dev/full")
    assert result.status == 0 and "No space left on device" in result.stderr, result
    result = log.run("--", "/no/such/command", preexec_fn=limited)
    assert result.status == 127 and "lacks 1 of its lines: File too large" in result.stderr, result


def test_a_line_is_not_glued_to_a_part_of_one(log):
    """There was room for that part only, then."""
    log.path.write_text("a part")
    assert log.run("--", "true").status == 0
    first, rest = log.path.read_text().split("\n", 1)
    log.path.write_text(rest)
    assert first == "a part" and log.events() == ["acquired", "ended"]


def test_the_end_is_logged_before_anything_else_is_said_of_it(log):
    """Who reads that may not read, and kill dlock meanwhile."""
    held = log.dlock.hold(log.files, "job")
    end, fd = os.pipe()
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"x" * 4096)
    with subprocess.Popen([DLOCK, *map(str, log.words("run", "-n", "--", "true"))], stderr=fd) as job:
        wait_for(lambda: log.events() == ["busy"])
        assert job.poll() is None  # it says why, to nobody, for some seconds
        job.kill()
    os.close(fd)
    os.close(end)
    held.finish()


def test_a_descriptor_gets_the_lines_and_one_whose_reader_is_gone_kills_nobody(log):
    for words in (["run", "--", "true"], ["freeze"]):
        end, fd = os.pipe()
        result = log.dlock.run(*log.words(*words, to=f"fd:{fd}", key=words[0]), pass_fds=[fd], events=False)
        os.close(fd)
        with open(end, encoding="utf-8") as reader:
            assert result.status == 0 and [object_of(line)["event"] for line in reader] == (["acquired", "ended"] if "run" in words else ["freeze"])
        end, fd = os.pipe()
        os.close(end)
        result = log.dlock.run(*log.words(*words, to=f"fd:{fd}", key=words[0] + "2"), pass_fds=[fd], events=False)
        os.close(fd)
        assert result.status == 0 and f"the log (descriptor {fd}) lacks " in result.stderr and "its reader is gone" in result.stderr, result


def test_a_hold_takes_no_descriptor_and_nobody_a_closed_one(log):
    result = log.dlock.run(*log.words("hold", "--for", "1s", to="fd:1"))
    assert result.status == 64 and "--log fd:1" in result.stderr and "syslog or a file" in result.stderr
    result = log.run("--", "true", to="fd:97")
    assert result.status == 64 and "fd:97: this descriptor is not open" in result.stderr
    with open("/dev/null", "rb") as null:
        result = log.run("--", "true", to=f"fd:{null.fileno()}", pass_fds=[null.fileno()])
    assert result.status == 64 and "not open for writing" in result.stderr


def test_a_variable_and_the_option_that_takes_it_back(log):
    env = {"DLOCK_LOG": str(log.path)}
    assert log.dlock.run("run", *log.files.words, "--log=", "-k", "job", "true", events=False, env=env).status == 0
    assert not log.path.exists()
    assert log.dlock.run("run", *log.files.words, "-k", "job", "true", events=False, env=env).status == 0
    assert log.events() == ["acquired", "ended"]
