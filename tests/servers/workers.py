# Goal of this file: the tests are collected once and run by several processes side by
# side (pytest --workers N), since they mostly wait.
#
# The collecting process forks the workers after the collection and hands out units of
# work in an order that is always the same, but mixed: many of the long ones have a crowd
# of processes, and crowds are to meet as seldom as may be.  What takes long is done before
# the end, so that no worker is left alone with it.  A unit is one test, or those of a file that share a fixture
# of scope "module".  A worker starts the servers that its tests ask for and keeps them
# for its life, so it stays with the tests of one server while there are any (its home).
# Reports come back through a pipe; only the collecting process prints.
#
# A test begins when there is a processor for it: on a machine that is slow, or has other
# work, a crowd of tests would only wait for each other until their servers and leases give up.
#
# A test that takes longer than --limit fails, with a list of its processes; a worker
# that does not end after that is killed, and another one takes its place.

import collections
import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import signal
import sys
import time

import pytest

import once
import support

HOMES = ("zk", "pg", "mysql", "etcd", "forms", "here")
# Fixtures, and places, of which each has several servers.
FORMS = {"redis_sentinels", "redis_cluster", "redlock_masters", "redlock_tls_masters", "redis-sentinel", "redis-cluster", "redlock", "redlock-tls"}
PATIENCE = 120  # seconds that a test has for its clean-up after its limit
SHORT = 0.4     # seconds that a test of unknown length is taken to last
LONG = 8        # seconds: what takes longer is begun ...
EARLY = 0.6     # ... in this part of the time
TOGETHER = 40   # seconds: units of tests that share a fixture are not longer
CROWD = 2       # processes that want each processor: while they are more, no test begins ...
AT_LEAST = 4    # ... beside so many others
TICK = 0.05     # seconds from one beginning to the next, which is to see what the one before it wants


def add_options(parser):
    parser.addoption("--workers", type=int, default=0, help="how many processes run tests side by side")
    parser.addoption("--limit", type=float, default=0, help="seconds that a test may take")
    parser.addoption("--progress", default=None, help="a file that gets a line for each test as it begins and ends")
    parser.addoption("--known", default=None, help="how long tests take: a file as --lasted writes it")
    parser.addoption("--lasted", default=None, help="a file that gets how long each test took")


def name_of(item):
    """Without its parameters."""
    return item.nodeid.split("[")[0]


def home_of(item):
    """Whose server it needs."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {getattr(p, "name", None) for p in params} | {mark.name for mark in item.iter_markers()}
    if FORMS & {*item.fixturenames, *(getattr(p, "id", None) for p in params)}:
        names.add("forms")
    return next((home for home in HOMES if home in names), HOMES[-1])


def shared_by(item):
    """The fixtures of scope "module" that it needs, which are dear as a rule."""
    return frozenset(name for name, defs in item._fixtureinfo.name2fixturedefs.items() if defs[-1].scope == "module")


def wanting():
    """How many processes want a processor now, or have one."""
    return int(pathlib.Path("/proc/loadavg").read_text(encoding="ascii").split()[3].split("/")[0])


class Unit:
    def __init__(self, home):
        self.home, self.indexes, self.seconds = home, [], 0.0


def units_of(items, known):
    """All items in units, by home, in the order in which they are to be run."""
    units, open_units = [], {}
    for index, item in enumerate(items):
        seconds, home, shared = known.get(name_of(item), SHORT), home_of(item), shared_by(item)
        key = (item.path, home, shared)
        unit = open_units.get(key)
        if not shared or unit is None or unit.seconds + seconds > TOGETHER:
            unit = Unit(home)
            units.append(unit)
            open_units[key] = unit
        unit.indexes.append(index)
        unit.seconds += seconds
    by_home = {home: collections.deque() for home in HOMES}
    dice = random.Random(1)
    for unit in sorted(units, key=lambda u: dice.random() * (EARLY if u.seconds >= LONG else 1)):
        by_home[unit.home].append(unit)
    return by_home


def read_known(path):
    if not path or not os.path.exists(path):
        return {}
    lines = [line.split() for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    return {name: float(seconds) for seconds, name in lines}


# ---- in a worker ----


class Between:
    """Stands for the next test where that is not known: only what belongs to the session is kept."""

    def __init__(self, session):
        self.session = session

    def listchain(self):
        return [self.session]


class Overtime(Exception):
    pass


def processes_of(pid):
    """A line for each process below it: what it is, and where it waits."""
    lines = []
    for p in support.descendants_of(pid):
        with contextlib.suppress(OSError):
            wait = pathlib.Path(f"/proc/{p}/wchan").read_text(encoding="utf-8") or "?"
            words = pathlib.Path(f"/proc/{p}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:160]
            _, state, parent = support.stat_of(p) or (None, "?", 0)
            lines.append(f"  {p} (of {parent}) {state} in {wait}: {words}")
    return "\n".join(lines)


class Worker:
    """One of the processes that run tests."""

    def __init__(self, session, pipe, number):
        self.session, self.config, self.pipe, self.number = session, session.config, pipe, number

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        self.pipe.send(("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report)))

    def is_born(self):
        """What a fork leaves as it was for the parent alone."""
        os.setsid()  # a group of its own: the kernel sends SIGHUP to one that is left with a stopped process
        support.adopt_orphans()
        support.watch_stalls()
        support.share_ports(self.number)
        random.seed()
        self.config.pluginmanager.unregister(name="terminalreporter")
        self.config.pluginmanager.register(self)
        capture = self.config.pluginmanager.getplugin("capturemanager")
        if capture.is_globally_capturing():
            capture.stop_global_capturing()
            capture.start_global_capturing()
        factory = self.config._tmp_path_factory
        factory._basetemp = factory.getbasetemp() / f"worker{self.number}"
        factory._basetemp.mkdir(mode=0o700)
        limit = self.config.getoption("limit")

        def is_over(_sig, _frame):
            signal.setitimer(signal.ITIMER_REAL, PATIENCE / 2)
            raise Overtime(f"longer than {limit:g} s; its processes:\n{processes_of(os.getpid())}")

        signal.signal(signal.SIGALRM, is_over)

    def run(self):
        limit = self.config.getoption("limit")
        while True:
            indexes = self.pipe.recv()
            if indexes is None:
                break
            items = [self.session.items[i] for i in indexes]
            for item, following in zip(items, items[1:] + [Between(self.session)]):
                self.pipe.send(("begin", item.nodeid))
                signal.setitimer(signal.ITIMER_REAL, limit)
                self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.pipe.send(("end", None))
            self.pipe.send(("idle", None))
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        self.session._setupstate.teardown_exact(None)

    def live(self):
        """Never returns."""
        status = 1
        try:
            self.is_born()
            self.run()
            status = 0
        except (EOFError, KeyboardInterrupt):
            with contextlib.suppress(BaseException):
                self.session._setupstate.teardown_exact(None)
        except BaseException as e:  # pylint: disable=broad-except
            with contextlib.suppress(OSError):
                self.pipe.send(("trouble", f"{type(e).__name__}: {e}"))
        finally:
            support.remove_directories()
            with contextlib.suppress(OSError):
                self.pipe.close()
            os._exit(status)


# ---- in the process that has collected ----


class Hand:
    """A worker as its parent sees it."""

    def __init__(self, pid, pipe, home):
        self.pid, self.pipe, self.home = pid, pipe, home
        self.test, self.began = None, 0.0  # what it runs, and since when


class Crew:
    def __init__(self, session, count):
        self.session, self.config, self.count = session, session.config, count
        self.queues = units_of(session.items, read_known(self.config.getoption("known")))
        self.items = {item.nodeid: item for item in session.items}
        self.hands, self.born, self.took = {}, 0, collections.defaultdict(float)
        self.resting = collections.deque()  # hands without a unit, the first of whom gets the next one
        self.crowd, self.looked = 0.0, 0.0  # how many processes have wanted a processor of late, and when that was looked at
        log = self.config.getoption("progress")
        self.log = open(log, "w", encoding="utf-8") if log else None
        self.began = time.monotonic()

    def say(self, *words):
        if self.log:
            print(f"{time.monotonic() - self.began:7.1f}", *words, file=self.log, flush=True)

    def homes(self):
        """As many workers for each home as it has work."""
        left = {home: sum(u.seconds for u in queue) for home, queue in self.queues.items()}
        total, result = sum(left.values()) or 1, []
        for home in HOMES:
            result += [home] * max(1 if left[home] else 0, round(self.count * left[home] / total))
        return (result + [HOMES[-1]] * self.count)[:self.count]

    def hire(self, home):
        ours, theirs = multiprocessing.Pipe()
        self.born += 1
        pid = os.fork()
        if pid == 0:
            for hand in self.hands.values():
                hand.pipe.close()
            ours.close()
            Worker(self.session, theirs, self.born).live()
        theirs.close()
        hand = Hand(pid, ours, home)
        self.hands[ours] = hand
        self.resting.append(hand)

    def give(self, hand):
        """The next unit of its home, else of whoever has most left; None ends it."""
        queue = self.queues[hand.home] or max(self.queues.values(), key=lambda q: sum(u.seconds for u in q))
        with contextlib.suppress(BrokenPipeError):
            hand.pipe.send(queue.popleft().indexes if queue and not self.session.shouldfail else None)

    def begin(self):
        """One unit more, if there is a processor for it."""
        if not self.resting or time.monotonic() < self.looked + TICK:
            return
        self.looked = time.monotonic()
        self.crowd += (wanting() - self.crowd) / 4  # a mean over some ticks: a crowd that lasts is meant
        if len(self.hands) - len(self.resting) < AT_LEAST or self.crowd <= CROWD * os.cpu_count():
            self.give(self.resting.popleft())

    def report_failure(self, hand, why):
        item = self.items[hand.test]
        report = pytest.TestReport(hand.test, item.location, {}, "failed", why, "call", duration=time.monotonic() - hand.began)
        self.config.hook.pytest_runtest_logreport(report=report)
        self.say(hand.pid, "failed", hand.test)

    def hear(self, hand):
        try:
            what, of = hand.pipe.recv()
        except (EOFError, OSError):
            return self.bury(hand)
        if what == "begin":
            hand.test, hand.began = of, time.monotonic()
            self.say(hand.pid, "begins", of)
        elif what == "report":
            report = self.config.hook.pytest_report_from_serializable(config=self.config, data=of)
            self.took[report.nodeid] += report.duration
            if report.when == "call" or not report.passed:
                self.say(hand.pid, report.outcome, report.nodeid, f"{report.duration:.1f} s")
            if report.failed:
                self.say(hand.pid, report.longreprtext)
            self.config.hook.pytest_runtest_logreport(report=report)
        elif what == "end":
            hand.test = None
        elif what == "idle":
            self.resting.append(hand)
        elif what == "trouble":
            self.session.shouldfail = f"a worker: {of}"
        return None

    def bury(self, hand):
        """A worker has ended: after its work, or in the middle of a test."""
        hand.pipe.close()
        del self.hands[hand.pipe]
        if hand in self.resting:
            self.resting.remove(hand)
        _, status = os.waitpid(hand.pid, 0)
        if hand.test:
            self.report_failure(hand, f"the process that ran it has ended with status {status:#x}")
            self.kill_orphans()
            if not self.session.shouldstop:
                self.hire(hand.home)

    def kill_orphans(self):
        """What a killed worker has left became ours."""
        for pid in set(support.children_of(os.getpid())) - {hand.pid for hand in self.hands.values()}:
            for below in support.descendants_of(pid):
                support.kill(below)
            support.kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def watch_limits(self):
        limit = self.config.getoption("limit")
        for hand in self.hands.values():
            if limit and hand.test and time.monotonic() - hand.began > limit + PATIENCE:
                support.kill(hand.pid)

    def run(self):
        self.config._tmp_path_factory.getbasetemp()
        once.common()
        sys.stdout.flush()
        gc.collect()
        gc.freeze()  # no worker looks through all tests again, and writes to the memory that they share
        try:
            for home in self.homes():
                self.hire(home)
            while self.hands:
                for pipe in multiprocessing.connection.wait(list(self.hands), timeout=TICK if self.resting else 5):
                    self.hear(self.hands[pipe])
                self.begin()
                self.watch_limits()
        finally:
            self.end()
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)

    def end(self):
        """Also when interrupted: each worker ends its test and its servers."""
        for hand in self.hands.values():
            support.kill(hand.pid, signal.SIGINT)
        until = time.monotonic() + PATIENCE
        for hand in self.hands.values():
            while os.waitpid(hand.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > until:
                    support.kill(hand.pid)
                time.sleep(0.05)
        self.hands.clear()
        self.kill_orphans()
        path = self.config.getoption("lasted")
        if path:
            longest = collections.defaultdict(float)
            for nodeid, seconds in self.took.items():
                name = nodeid.split("[")[0]
                longest[name] = max(longest[name], seconds)
            with open(path, "w", encoding="utf-8") as f:
                for name, seconds in sorted(longest.items(), key=lambda x: -x[1]):
                    if seconds >= 2:
                        print(f"{seconds:.0f} {name}", file=f)


def run_tests(session):
    """As pytest_runtestloop(); None: the tests are run here, one after the other."""
    count = session.config.getoption("workers")
    if not count or session.config.option.collectonly:
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        raise session.Interrupted(f"{session.testsfailed} error(s) during collection")
    Crew(session, count).run()
    return True
