# Goal of this file: what every test needs and none should write twice: to run
# dlock and look inside it, to start private servers, to wait for conditions.

import atexit
import contextlib
import ctypes
import glob
import hashlib
import importlib.util
import itertools
import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from urllib.parse import quote

import pytest

from once import made_once
from proxy import TARGETS

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import redis

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DLOCK = os.path.abspath(os.environ.get("DLOCK", os.path.join(ROOT, "build", "dlock")))
DLOCK_TEST = os.path.abspath(os.environ.get("DLOCK_TEST", os.path.join(ROOT, "build", "dlock-test")))  # with the fake backend
ADMIN = os.path.join(os.path.dirname(DLOCK_TEST), "dlock-admin")  # calls a backend's admin_ops
# Seconds for anything that should happen soon, on a machine that has much else to do; fewer where a failure is hoped for.
PATIENCE = int(os.environ.get("DLOCK_TEST_PATIENCE", "60"))
# Seconds by which one condition in three is noticed late, as on a machine that is slow: whatever fails of that alone would fail there.
LATE = float(os.environ.get("DLOCK_TEST_LATE", "0"))
BRIEFLY = "2s"  # for `-w`: what a test waits out, and in which a server still answers on such a machine


def wait_for(condition, timeout=PATIENCE, what=None):
    """Calls condition until it gives something true, and returns that.  The time of stalls does not count."""
    began = boottime()
    pause = 0.002
    while True:
        result = condition()
        if result:
            if LATE and random.random() < 0.3:
                sleep_as_if_stalled(LATE)
            return result
        if boottime() - began > timeout and spent(began) > timeout:
            raise AssertionError(f"waited {timeout} s in vain for {what or condition.__name__}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


PORTS = range(10000, 32000)
PART = 1000  # of them for each process that runs tests
_first_part = random.SystemRandom().randrange(len(PORTS) // PART)  # two runs on one machine seldom begin with the same


def in_turn(ports):
    """From any of them on: another run on this machine begins elsewhere."""
    first = random.SystemRandom().randrange(len(ports))
    return itertools.cycle([*ports[first:], *ports[:first]])


_ports = in_turn(PORTS)


def share_ports(number):
    """This process has those of its own: no other one takes the port of a server that is down for a while."""
    global _ports
    first = (_first_part + number) * PART % len(PORTS)
    _ports = in_turn(PORTS[first:first + PART])


def free_port():
    """Below those that clients are given, so that none of them takes it while a server restarts; not given again for long."""
    while True:
        port = next(_ports)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def boottime():
    """The clock on which dlock counts leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stalls(threading.Thread):
    """Sees when this machine lets nobody run for a while: such a time is not dlock's."""

    LEAST = 0.1  # seconds

    def __init__(self):
        super().__init__(daemon=True)
        self.last, self.seen = boottime(), []

    def run(self):
        while True:
            time.sleep(self.LEAST / 5)
            now = boottime()
            if now - self.last > self.LEAST:
                self.seen.append((self.last, now))
            self.last = now

    def since(self, began, now):
        """The seconds of stalls between the two, also of one that has just ended."""
        seen, last = self.seen[:], self.last
        if now - last > self.LEAST:
            seen.append((last, now))
        return sum(max(0, min(end, now) - max(start, began)) for start, end in seen)


STALLS = None


def watch_stalls():
    """For this process: a thread does not outlive a fork."""
    global STALLS
    STALLS = Stalls()
    STALLS.start()


watch_stalls()


def sleep_as_if_stalled(seconds):
    began = boottime()
    time.sleep(seconds)
    STALLS.seen.append((began, boottime()))


def stalled(began):
    """Of the seconds since then, a boottime(): those in which this machine let nobody run."""
    return STALLS.since(began, boottime())


def spent(began):
    """The others: what is compared with the most that something may take."""
    return boottime() - began - stalled(began)


# ---- what the manuals say ----


def rules_of(user, page="dlock-redis.7", below=""):
    """What a manual grants to this user of redis, as an administrator pastes it; below that heading."""
    with open(os.path.join(ROOT, "man", page), encoding="utf-8") as f:
        text = f.read()
    typed = re.compile(rf"^redis-cli ACL SETUSER {user} on '>password' (.*?)^\.Ed", re.M | re.S)
    typed = typed.search(text, text.index(f".Ss {below}") if below else 0)[1]
    return shlex.split(typed.replace("\\e\n", " "))


# ---- processes ----


def stat_of(pid):
    """(name, state, parent) of a process, or None."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # open() costs twice as much, and this is done for all, often
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended while it was opened
        return None
    try:
        text = os.read(fd, 1024).decode("utf-8", "replace")
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    name, rest = text[text.index("(") + 1:].rsplit(")", 1)
    state, parent = rest.split(None, 2)[:2]
    return name, state, int(parent)


def name_of(pid):
    found = stat_of(pid)
    return found and found[0]


def is_alive(pid):
    found = stat_of(pid)
    return found is not None and found[1] not in "ZX"


def born_of(pid):
    """All its children, the dead ones that it has not reaped, too.

    The kernel may pass over one while another ends, so it is asked until it has said the same twice.
    """
    def read():
        found = set()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    fd = os.open(f"/proc/{pid}/task/{task}/children", os.O_RDONLY)
                    try:
                        while text := os.read(fd, 65536):
                            found.update(int(child) for child in text.split())
                    finally:
                        os.close(fd)
        return found

    last, found = None, read()
    while found != last:
        last, found = found, read()
    return found


def children_of(pid):
    """Living children, in order of their pids."""
    return sorted(child for child in born_of(pid) if is_alive(child))


def descendants_of(pid, parents=None, but=()):
    """The living ones; `parents` as parents_below() has them; nothing at or below `but`."""
    if parents is None:
        below = lambda p: {c for c in born_of(p) if is_alive(c)}
    else:
        below = lambda p: {c for c, parent in parents.items() if parent == p}
    found, new = set(), [pid]
    while new:
        children = below(new.pop()) - found - set(but)
        found |= children
        new += children
    return sorted(found)


def parents_below(pid):
    """The parent of each of its living descendants, but for servers and what is below them, after one look at each."""
    result, new = {}, [pid]
    while new:
        parent = new.pop()
        for child in born_of(parent) - servers - set(result):
            if is_alive(child):
                result[child] = parent
                new.append(child)
    return result


def kill(pid, sig=signal.SIGKILL):
    """Sends a signal; a process that is gone is no error.  A stop has stopped all of it when this returns.

    The kernel gives a stop to one thread, and the others go on until that one gets a processor: a server of forty
    threads answers meanwhile.  Nothing can stop a process that waits within the kernel (D).
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)
        if sig == signal.SIGSTOP:
            wait_for(lambda: not stop_is_pending(pid), what=f"the stop of {pid}")


def stop_is_pending(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            fields = dict(line.split(":", 1) for line in f if ":" in line)
    except OSError:  # it is gone
        return False
    pending = (int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)) >> (signal.SIGSTOP - 1) & 1
    return bool(pending) and fields["State"].split()[0] not in "TtDZX"


def await_end(popen, timeout):
    """As popen.wait(), which looks again and again: here the kernel tells.  The time of stalls does not count."""
    with contextlib.ExitStack() as stack, contextlib.suppress(ProcessLookupError):  # another thread has waited for it
        if popen.poll() is None:
            fd, end = os.pidfd_open(popen.pid), select.poll()
            stack.callback(os.close, fd)
            end.register(fd, select.POLLIN)
            began = boottime()
            while (left := timeout - spent(began)) > 0 and not end.poll(max(1, left * 1000)):
                pass
    popen.wait(0.01)


# Whatever a test leaves behind stays a descendant of the test process, so that
# it can be found.
PR_SET_CHILD_SUBREAPER = 36
servers = set()  # pids of servers that outlive a test on purpose


def adopt_orphans():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def leftovers(before):
    """Processes below us that were not there `before`, but for servers and what is below them."""
    return [p for p in descendants_of(os.getpid(), but=servers) if p not in before]


def cwd_of(pid):
    """None: it is gone, or one of dlock's, which show theirs to root alone (PR_SET_DUMPABLE)."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return None


def is_in_the_background(pid):
    """Is it a keeper that has told its ending and goes on alone: for --min-hold, or to release?

    Who is not root cannot tell it from one whose front was killed.
    """
    found = stat_of(pid)
    return found and found[0].startswith("dlock") and found[2] == os.getpid() and cwd_of(pid) in ("/", None)


def compiled(path, source, *words):
    """What gcc makes of this source with these words: compiled once in a run of the tests, and copied there."""
    made = made_once(hashlib.sha256(repr((source, words)).encode()).hexdigest(), lambda directory: subprocess.run(
        ["gcc", *words, "-x", "c", "-o", f"{directory}/made", "-", "-ldl"], input=source.encode(), check=True))
    shutil.copy(f"{made}/made", path)
    return str(path)


def let_pass(path):
    """Lets any user in, down from a directory that is open to all."""
    while not path.stat().st_mode & stat.S_ISVTX and path != path.parent:
        path.chmod(0o755)
        path = path.parent


def compile_shim(directory, name, source):
    """A shared object to preload."""
    return compiled(directory / f"{name}.so", source, "-shared", "-fPIC", "-O1")


# ---- how much is done: DLOCK_TEST_FULL=1 (make check-all) is all of it ----

FULL = bool(os.environ.get("DLOCK_TEST_FULL"))


def size(small, full):
    return full if FULL else small


# ---- running dlock ----


class Completed:
    """How a dlock ended: `status` as subprocess has it, -N for signal N."""

    def __init__(self, status, stdout, stderr):
        self.status, self.stdout, self.stderr = status, stdout, stderr

    def __repr__(self):
        return f"<status {self.status}, stdout {self.stdout!r}, stderr {self.stderr!r}>"


def told_at_the_end(stderr):
    """Without the lines that tell of renewals that fail, of one that has succeeded at last, and of a wait that was long."""
    told = ("; if no renewal succeeds, ", "the lease was renewed after all")
    waited = ("dlock: waiting ", "dlock: got ")
    return "".join(line for line in stderr.splitlines(keepends=True)
                   if not line.startswith(waited) and not any(t in line for t in told))


class Late:
    """A module of Python at its first use; a test that uses it is skipped where its package is not installed."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, attribute):
        return getattr(pytest.importorskip(self.name, reason=f"python3-{self.name} is not installed"), attribute)


class Started:
    """A dlock that runs in the background; its output goes to files."""

    def __init__(self, popen, files, words=(), is_plain=False, asked=None):
        self.popen, self._files = popen, files
        self.pid = self.front = popen.pid
        self._keeper = None
        self.counted = True  # who waits knows its position
        self.words, self.is_plain = words, is_plain  # is_plain: in the environment of all
        self.asked, self.known = asked, None  # when it was begun, and when it was seen that it has its lock or is over

    def stdout(self):
        return self._read("out")

    def stderr(self):
        return self._read("err")

    def _read(self, name):
        """As open() reads text, which costs five times as much, and this is done often."""
        fd = os.open(self._files[name], os.O_RDONLY)
        try:
            data = b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
        finally:
            os.close(fd)
        return data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").replace("\r", "\n")

    def events(self, name=None):
        """What came on --status-fd so far: dictionaries, all or those called `name`."""
        lines = self._read("events").splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [e for e in found if name in (None, e["event"])]

    def event(self, name, timeout=PATIENCE, **members):
        """Waits for an event with these members and returns it."""

        def fits():
            ended = self.popen.poll() is not None  # asked first: it may tell of it and end meanwhile
            for e in self.events(name):
                if all(e.get(k) == v for k, v in members.items()):
                    if name in ("acquired", "started"):
                        self.known = self.known or boottime()
                    return e
            if ended:
                raise AssertionError(f"dlock ended before {name} {members}: {self.result()}")
            return None

        return wait_for(fits, timeout, f"event {name} {members or ''}")

    @property
    def keeper(self):
        """The keeper's pid: the front's only child.  Ask before anything is killed."""
        if self._keeper is None:
            found = wait_for(lambda: children_of(self.pid) or self.poll() is not None, what="a keeper")
            assert found is not True, f"dlock ended before it was asked for its keeper: {self.result()}"
            self._keeper = found[0]
        return self._keeper

    @property
    def command(self):
        """The command's pid; waits until it has been executed."""
        return self.event("started")["pid"]

    @property
    def token(self):
        return self.event("acquired")["token"]

    @property
    def running(self):
        """Has it been granted the lock and executed the command?"""
        return bool(self.events("started"))

    def queued(self, position=None):
        """Waits until it stands in the queue (at this position, where there are any)."""
        if position is None or not self.counted:
            self.event("waiting")
        else:
            self.event("waiting", position=position)
        return self

    def held(self):
        """Waits until the command runs."""
        self.event("started")
        return self

    def signal(self, sig, process="front"):
        """To the front, the keeper or the command."""
        kill(getattr(self, process), sig)

    def tree(self):
        """All its living processes."""
        below = descendants_of(self.pid)
        return below + ([self.pid] if is_alive(self.pid) else [])

    def poll(self):
        return self.popen.poll()

    def result(self):
        return Completed(self.popen.returncode, self.stdout(), self.stderr())

    def wait(self, timeout=PATIENCE):
        try:
            await_end(self.popen, timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"dlock did not end within {timeout} s; stderr: {self.stderr()!r}, "
                                 f"events: {self.events()}") from None
        self.known = self.known or boottime()
        return self.result()

    def finish(self, timeout=PATIENCE):
        """Lets a command that waits for the end of its stdin end, and dlock with it."""
        self.popen.stdin.close()
        return self.wait(timeout)

    def destroy(self):
        """Kills all of it at once."""
        if self.popen.poll() is None:
            kill(self.pid, signal.SIGSTOP)  # it must not react to what follows
            below = descendants_of(self.pid)
            for pid in below:
                kill(pid)
            self.popen.kill()
            self.popen.wait()
            wait_for(lambda: not any(is_alive(pid) for pid in below), what="the end of all that was killed")
        if self.popen.stdin:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()


class Dlock:
    """Runs the binary under test in an environment without DLOCK_* and PG* variables, and CI."""

    UNTIL_EOF = ("cat",)  # a command that ends with its stdin
    _numbers = itertools.count(1)

    def __init__(self, directory):
        self.own_key = f"job-{next(self._numbers)}"
        self.directory = str(directory)
        self.started, self.numbers = [], itertools.count()
        self.counted = True  # unless a place says otherwise
        self.tokens_grow = True  # unless a server has forgotten those that it has given
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("DLOCK_", "PG")) and k not in ("DLOCK", "CI")}

    def start(self, *words, stdin=subprocess.DEVNULL, env=None, events=None, program=None, **options):
        """Starts `dlock WORDS`; for `run`, events go to a file (option events=False: not)."""
        n = next(self.numbers)  # threads start some at a time
        files = {name: f"{self.directory}/dlock{n}.{name}" for name in ("out", "err", "events")}
        words = [str(w) for w in words]
        with contextlib.ExitStack() as stack:
            out, err, log = (os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666) for path in files.values())
            for fd in (out, err, log):
                stack.callback(os.close, fd)
            if events is not False and words[:1] == ["run"]:
                words[1:1] = ["--status-fd", str(log)]
                options["pass_fds"] = (*options.get("pass_fds", ()), log)
            options.setdefault("stdout", out)
            options.setdefault("stderr", err)
            asked = boottime()
            popen = subprocess.Popen([program or DLOCK, *words], stdin=stdin, env={**self.env, **(env or {})}, **options)
        result = Started(popen, files, words, is_plain=not env and not program, asked=asked)
        self.started.append(result)
        return result

    def run(self, *words, timeout=PATIENCE, **options):
        return self.start(*words, **options).wait(timeout)

    def hold(self, place, key, *options, command=UNTIL_EOF):
        """Holds `key` with a command that runs until finish(); returns when it runs."""
        return self.contend(place, key, *options, command=command).held()

    def contend(self, place, key, *options, command=UNTIL_EOF, **arguments):
        """The same, but does not wait for the grant."""
        result = self.start("run", *place.words, f"--key={key}", *options, "--", *command, stdin=subprocess.PIPE, **arguments)
        result.counted = getattr(place, "counted", self.counted)
        return result

    def close(self):
        for started in self.started:
            started.destroy()


def mode_words(mode):
    """Nobody but dlock takes these locks, which is said, so that it warns of nothing."""
    own = ["-O", "derive=dlock"] if mode in ("advisory", "named") else []
    return ["-O", f"mode={mode}", *own] if mode not in (None, "lease") else []


def words_to(at, mode=None):
    """The words that lead to a place, a server or a URL."""
    words = at.words if hasattr(at, "words") else ["-u", getattr(at, "url", at)]
    return [*words, *mode_words(mode)]


SHARED = set()  # ports of the servers that all tests of this process use


def is_shared(url):
    """Does it lead to the database of all tests there, if only by way of a proxy?"""
    ports = {int(port) for port in re.findall(r"(?::|\bport=)(\d+)", url)}
    database = re.sub(r"^[^:]*://[^/?]*/?([^?]*).*", r"\1", url) if "://" in url else dict(re.findall(r"(\w+)=(\S+)", url)).get("dbname", "")
    return database in ("", "app") and not SHARED.isdisjoint(TARGETS.get(port, port) for port in ports)


def key_at(dlock, at):
    """Where others may have left a lock, each test has a key of its own."""
    words = words_to(at)
    return dlock.own_key if "-u" in words and is_shared(str(words[words.index("-u") + 1])) else "job"


def run(dlock, at, *options, key=None, command=("echo", "ran"), mode=None, **arguments):
    return dlock.run("run", *words_to(at, mode), "-k", key_at(dlock, at) if key is None else key, *options, "--", *command, **arguments)


def is_free(dlock, at, *options, key=None, mode=None):
    key = key or (at.key() if hasattr(at, "key") else None)
    return run(dlock, at, "-nq", *options, key=key, command=("true",), mode=mode, events=False).status == 0


def where(rule):
    """Marks a test that is for those places only of which this is true."""
    return pytest.mark.where(rule=rule)


class Refused(pytest.skip.Exception):
    """Ends a test that has seen a place refuse what it cannot do, as is documented: the test is skipped for that reason."""


def need(dlock, place, *options):
    """Ends the test where the place has no such locks, as it says before anything is asked of a server."""
    done = dlock.run("run", *place.words, "-k", place.key("probe"), *options, "--", "echo", "ran", events=False)
    if done.status == 78:
        assert (done.stdout, done.stderr.count("\n")) == ("", 1), done
        raise Refused(done.stderr.strip())


def can(dlock, place, *options):
    """Does the place have such locks?  Another fault is the test's to meet."""
    return dlock.run("run", *place.words, "-k", place.key("probe"), *options, "--", "true", events=False).status != 78


# ---- private servers ----


class Server:
    """What private servers have in common; a kind of them has start(wait) and answers()."""

    kind = None  # what people call it
    running = []  # all of them

    def __init__(self, directory):
        self.directory, self.process, self.port = directory, None, None
        Server.running.append(self)

    def settle(self, port=None, **options):
        """Starts it, on this port or a free one."""
        for _ in range(5):  # somebody else may take a free port before we do
            self.port = port or free_port()
            try:
                self.start(**options)
                return
            except AssertionError:
                if self.process.poll() is None:
                    self.kill()
        raise AssertionError(f"{self.kind} does not start: {self.log()}")

    def launch(self, words, wait=True, **options):
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
        servers.add(self.process.pid)
        if wait:
            wait_for(self.answers, what=self.kind)

    def must_live(self):
        if self.process.poll() is not None:
            servers.discard(self.process.pid)
            raise AssertionError(f"{self.kind} ended: {self.log()}")

    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def kill(self):
        """The crash of a server."""
        self.process.kill()
        self.process.wait()
        servers.discard(self.process.pid)

    def restart(self):
        self.kill()
        self.start()

    def pause(self):
        """It takes connections, for the kernel does that, but never answers."""
        kill(self.process.pid, signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        """Ends it for good."""
        with contextlib.suppress(ValueError):  # it has ended already
            Server.running.remove(self)
        if self.process:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


_directories = []


def at_end(directory):
    """It is removed when the tests of this process have ended."""
    _directories.append(directory)


@atexit.register
def remove_directories():
    """A worker, which does not end as Python does, calls it: a fork must not."""
    while _directories:
        shutil.rmtree(_directories.pop(), ignore_errors=True)


class RedisServer(Server):
    """A redis-server of our own on a loopback port and a unix socket."""

    kind = "redis-server"

    def __init__(self, *options, env=None, program="redis-server"):
        super().__init__(tempfile.mkdtemp(prefix="dlock-redis-"))
        self.options, self.env, self.program = options, env, program
        self.socket = os.path.join(self.directory, "s")
        self.settle()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_url(self):
        return f"redis+unix://{self.socket}"

    def writes(self):
        """Grows with each operation of a lock."""
        with self.client() as c:
            return c.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)

    def client(self, **options):
        return redis.Redis(host="127.0.0.1", port=self.port, **{"decode_responses": True, **options})

    def start(self, wait=True):
        words = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket,
                 "--dir", self.directory, "--save", "86400 1", "--appendonly", "no", "--loglevel", "warning",
                 "--repl-diskless-sync-delay", "0", *self.options]
        self.launch(words, wait, env={**os.environ, **(self.env or {})})

    def answers(self):
        """Does it answer at all, whatever it says?"""
        self.must_live()
        try:
            with self.client(socket_timeout=1) as c:
                return c.ping()
        except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError):
            return True
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            return False


def making(program, end="stop"):
    """The body of a fixture that makes such things, with any arguments, and ends them after the test."""
    made = []

    def make(*arguments, program=program, **options):
        made.append(program(*arguments, **options))
        return made[-1]

    yield make
    for thing in made:
        getattr(thing, end)()


# ---- backends, for tests of what all of them promise ----


# What make check asks of a further way to keep locks in a database: what sessions, deaths and outages do there.
# What the first way shows of kinds, jobs and looks is the same code; make check-all asks all of it here, too.
OF_SESSIONS = {"test_capabilities", "test_command_is_told_about_its_lock", "test_contenders_never_overlap",
               "test_expired_wait_is_75_and_blocks_nobody", "test_interrupted_waiter_dies_of_the_signal_and_leaves_the_queue",
               "test_killed_keeper_takes_the_whole_tree_along", "test_killed_waiter_blocks_nobody_for_long",
               "test_nonblock_says_who_holds_it", "test_one_of_several_is_taken_away",
               "test_one_that_has_joined_and_is_frozen_keeps_what_lasts_with_a_descriptor", "test_tokens_grow_after_a_crash",
               "test_waiter_killed_as_it_is_served_blocks_nobody_for_long", "test_what_a_mode_cannot_it_refuses",
               "test_who_holds_it", "test_looking_changes_nothing", "test_wait_ends_when_the_lock_is_given_back", "test_force"}

class Place:
    """Where locks are kept: `words` lead there, key() keeps those of tests on one server apart."""

    lease_ends = True    # a dead holder's lock ends with its lease
    fair = True          # waiters are served in order
    counted = True       # and know their position
    whole_record = True  # others can read all that a holder says of itself
    durable = True       # a server can be set so that its crash loses nothing
    braces = True        # a key may have any, and not only those of a whole {tag}
    hears = False        # from its first renewal on a holder is told at once that it is asked for the lock
    streams = True       # those who came later do not keep a waiter out for ever
    settings = ()        # words for -O
    ordinarily = None    # the tests that make check runs there; None: all, as make check-all does
    suites = None        # the files of tests that it joins at all; None: all
    crash_ttl = "3s"     # the shortest whose lease bears the restart of a server
    prefix = ""
    _numbers = itertools.count(1)

    @property
    def words(self):
        return ["-u", self.url, *(word for s in self.settings for word in ("-O", s))]

    def key(self, name="job"):
        return self.prefix + name

    def date_ahead(self, key, seconds):
        """As a clock that was wrong has dated the last run of `key` that ended with 0: so far ahead of the server's."""
        raise NotImplementedError

    def is_done_of_old(self, key, once):
        """Does a dlock that does not know --no-retry and --remember take this ID for done, or that key for one with a cooldown?"""
        raise NotImplementedError


class At:
    """A place as tests of one backend make them."""

    def __init__(self, url, mode="lease"):
        self.words = ["-u", url, *mode_words(mode)]


class FilePlace(Place):
    """Locks in a fresh directory."""

    name = "file"
    lease_ends = False  # the kernel frees the lock of a dead holder at once

    def __init__(self, request):
        self.directory = request.getfixturevalue("tmp_path") / "locks"
        self.directory.mkdir(mode=0o700)
        self.url = f"file://{self.directory}"

    def stored(self):
        """All that anybody could read there."""
        return b"".join(f.read_bytes() for f in self.directory.iterdir())

    def take_away(self, keys, key):
        """Takes `key` from who was the last to take all these, as an administrator would who knows no better."""
        (self.directory / f"{key}.lock").unlink()

    def crashable(self, request):
        """Moves to a server whose crashes lose nothing; returns what crashes and restarts it, None without server."""
        return None

    def date_ahead(self, key, seconds):
        path = self.directory / f"{key}.runs" / "last"
        path.write_text(" ".join([str(int((time.time() + seconds) * 1e6))] * 2 + path.read_text().split(" ")[2:]))

    def is_done_of_old(self, key, once):
        """By the lines of these files with status 0."""
        runs = self.directory / f"{key}.runs"
        lines = [p.read_text().split(" ") for p in (*runs.glob(f"[0-9]*/{once}"), runs / "last", runs / "good") if p.exists()]
        return any(line[2] == "0" for line in lines)


def has_done(client, last, once):
    """What a dlock reads in Redis that does not know --no-retry."""
    return client.hget(f"{last}:{once}", "status") == "0" or client.hget(last, "good") is not None


class RemotePlace(Place):
    """Locks on `server`, which url_at() leads to through any port of any host, such as a proxy's."""

    @property
    def url(self):
        return self.url_at(self.server.port)


def date_run(client, name, seconds):
    client.hset(name, mapping=dict.fromkeys(("began", "ended", "good", "good_began", "good_ended"), int((time.time() + seconds) * 1e6)))


class RedisPlace(RemotePlace):
    """Locks on the session's server; keys are kept apart by a prefix."""

    name = "redis"
    hears = True

    def __init__(self, request):
        self.server = request.getfixturevalue("redis_server")
        self.prefix = f"t{next(self._numbers)}:"

    def url_at(self, port, host="127.0.0.1"):
        return f"redis://{host}:{port}"

    def stored(self):
        with self.server.client(decode_responses=False) as c:
            return b"".join(k + (c.dump(k) or b"") for k in c.scan_iter("*"))

    def take_away(self, keys, key):
        with self.server.client() as c:
            assert c.delete(f"dlock:{{{quote(key, safe=':')}}}:h") == 1

    def date_ahead(self, key, seconds):
        with self.server.client() as c:
            date_run(c, f"dlock:{{{quote(key, safe=':')}}}:r", seconds)

    def is_done_of_old(self, key, once):
        with self.server.client() as c:
            return has_done(c, f"dlock:{{{quote(key, safe=':')}}}:r", once)

    def crashable(self, request):
        self.server = request.getfixturevalue("make_redis")("--appendonly", "yes", "--appendfsync", "always")
        return self.server.restart


# A new backend joins here, with one class; those that need more are in files of
# their own and join in conftest.py.
PLACES = [FilePlace, RedisPlace]
OTHER_PLACES = []  # further ways to keep locks on one of these backends, which promise the same

# What tests of a backend need, as Debian calls it: modules of Python and programs.
SERVER_BACKENDS = {
    "redis": {"python3-redis": "redis", "redis-server": "redis-server"},
    "zk": {"python3-kazoo": "kazoo", "default-jdk-headless": "java", "zookeeper": "/usr/share/java/zookeeper.jar"},
    "pg": {"python3-psycopg2": "psycopg2", "postgresql": "/usr/lib/postgresql/*/bin/postgres"},
    "mysql": {"python3-pymysql": "pymysql", "mariadb-server": "mariadbd"},
    "memcached": {"memcached": "memcached"},
    "etcd": {"etcd-server": "etcd", "etcd-client": "etcdctl"},
}


def is_installed(package, what):
    if package.startswith("python3-"):
        return importlib.util.find_spec(what) is not None
    return bool(glob.glob(what) if "/" in what else shutil.which(what, path=os.environ["PATH"] + ":/usr/sbin:/sbin"))


# DLOCK_TEST_BACKENDS names those to test where it is not to be all of them: tests of others are left out.
WANTED = set(os.environ.get("DLOCK_TEST_BACKENDS", "").split()) or {"file", *SERVER_BACKENDS}
LACKS = {name: package for name in sorted(WANTED & set(SERVER_BACKENDS)) for package, what in SERVER_BACKENDS[name].items()
         if not is_installed(package, what)}
WANTED -= set(LACKS)


def places(every=False):
    return [p for p in PLACES + (OTHER_PLACES if every else []) if p.name in WANTED]


def place_id(place):
    return getattr(place, "id", place.name)
