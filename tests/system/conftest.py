# Goal of this file: which tests are run, by the backends that they need, and the fixtures that all of
# them share.  Those of a backend are in tests/servers/fixtures_*.py, those of a room in its conftest.py.

import collections
import contextlib
import glob
import importlib.util
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import pytest
from _pytest.assertion import rewrite

# What a CI system, sudo or systemd says of whoever runs the tests; dlock would tell it.
ORIGIN = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_USER_ID", "SUDO_USER", "GITHUB_RUN_ID", "CI_JOB_URL", "BUILD_URL", "JOB_NAME",
          "INVOCATION_ID")

SERVERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "servers")
sys.path.insert(0, SERVERS)

from certificates import Authority
from etcd import EtcdPlace
from hostile import Hostile
from memcached import MemcachedPlace
from mysql_server import MYSQL_PLACES
from pg import PG_PLACES
from proxy import Proxy
from redis_dialect_forms import DIALECT_FORM_PLACES
from redis_dialects import SOME_DIALECT_PLACES
from redis_forms import REDIS_PLACES
from redis_tls import RedisTlsPlace
from redlock import RedlockPlace, RedlockTlsPlace
from support import (DLOCK, FULL, LACKS, OTHER_PLACES, PLACES, ROOT, SERVER_BACKENDS, WANTED, Dlock, Server, adopt_orphans, born_of,
                     is_in_the_background, kill, leftovers, making, place_id, places, stat_of)
from table import Results, outcome, scenario
import token_order
import workers
from zk import ZkPlace
from zk_layouts import LAYOUT_PLACES
from zk_tls import ZkTlsPlace

# pytest 8 names a room's files zk.test_nodes and so on, after a package that is to have a __path__.  It would
# put an empty one there, in place of the module of servers/ that has the same name.
for module in {path.name for path in pathlib.Path(__file__).parent.iterdir()} & set(sys.modules):
    sys.modules[module].__dict__.setdefault("__path__", [])

PLACES += [MemcachedPlace, EtcdPlace, ZkPlace, PG_PLACES[0], MYSQL_PLACES[0]]
OTHER_PLACES += [RedisTlsPlace, ZkTlsPlace, *PG_PLACES[1:], *MYSQL_PLACES[1:], *SOME_DIALECT_PLACES, *DIALECT_FORM_PLACES, *LAYOUT_PLACES]
OTHER_PLACES += [*REDIS_PLACES, RedlockPlace, RedlockTlsPlace] if FULL else []  # a selection is in redis/test_forms.py, redis/test_redlock.py

# For -m.
MARKS = {"place": "once for each place of a backend that is tested",
         **{name: "needs that server: by its room, its fixtures, its place, or marked so" for name in SERVER_BACKENDS},
         "where": "only for the places of which the rule is true (support.where)",
         "full": "only of make check-all, since it takes long"}

# The table of the conformance suite goes to a file, too.
TABLE = os.path.join(ROOT, "build", "kinds.txt")
KEPT = os.path.join(ROOT, "build", "failed")
results, scenarios, untested = Results(), {}, {}


def pytest_addoption(parser):
    workers.add_options(parser)
    parser.addoption("--share", type=int, default=1, help="each server runs one of so many cases of a test, and all servers together run all")
    parser.addoption("--seed", default=None, help="of all randomness in tests; that of a run is in its first lines")


def pytest_runtestloop(session):
    return workers.run_tests(session)


def pytest_configure(config):
    adopt_orphans()
    for name, what in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    for path in glob.glob(os.path.join(SERVERS, "fixtures_*.py")):
        name = pathlib.Path(path).stem
        config.pluginmanager.register(importlib.import_module(name), name)
    show_whole_messages()
    config.seed = config.getoption("seed") or str(random.SystemRandom().randrange(10 ** 6))
    if "PYTEST_CURRENT_TEST" not in os.environ:  # else a test asks others (run/test_kernels.py), and what has failed before is kept
        shutil.rmtree(KEPT, ignore_errors=True)


def show_whole_messages():
    """pytest cuts the middle out of an assertion's message that is no string, and the fault is often told there."""
    shown = getattr(rewrite, "_format_assertmsg", None)  # it is pytest's own, and may go
    if shown:
        rewrite._format_assertmsg = lambda said: shown(said if isinstance(said, str) else repr(said)[-20000:].replace("\\n", "\n"))


def pytest_report_header(config):
    lines = [f"tests of {name} are left out: {package} is not installed" for name, package in LACKS.items()]
    return [f"--seed {config.seed}", *lines]


def pytest_ignore_collect(collection_path):
    """The room of a backend that is not tested."""
    return collection_path.name in SERVER_BACKENDS and collection_path.name not in WANTED or None


def named_params(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def params_of(item):
    return list(named_params(item).values())


def needs_of(item):
    """The names of the backends whose servers it needs."""
    found = {item.path.parent.name, named_params(item).get("sql")}
    found |= {name for name in SERVER_BACKENDS if item.get_closest_marker(name)}
    found |= {getattr(p, attribute, None) for p in params_of(item) for attribute in ("name", "server") if not isinstance(p, str)
              and isinstance(getattr(p, attribute, None), str)}
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        found.add(definitions[-1].func.__module__.removeprefix("fixtures_"))
    return found & set(SERVER_BACKENDS)


def applies(item):
    """Is its place one of those that the test is for, if there is any?"""
    at = [p for p in params_of(item) if p in PLACES + OTHER_PLACES]
    nowhere = any("empty parameter set" in mark.kwargs.get("reason", "") for mark in item.iter_markers("skip"))
    return not nowhere and all(mark.kwargs["rule"](p) for mark in item.iter_markers("where") for p in at)


def is_for_later(item):
    """Is it a test of make check-all, since its place runs only a few ordinarily, or of a suite that this does not join?"""
    params = params_of(item)
    if not FULL and item.get_closest_marker("full"):
        return True
    few = [p.ordinarily for p in params if getattr(p, "ordinarily", None) is not None]
    joined = [p.suites for p in params if getattr(p, "suites", None) is not None]
    return (not FULL and any(item.originalname not in names for names in few)) or any(item.path.stem not in suites for suites in joined)


def shared_out(items, n):
    """Those of which another place runs the same case, so that each case is run somewhere.

    That is for what one backend does as another; a file has all cases, and so has the table of the kinds.
    """
    tests, left = collections.defaultdict(lambda: collections.defaultdict(list)), []
    for item in items:
        at = [p for p in params_of(item) if p in PLACES + OTHER_PLACES]
        if len(at) == 1 and item.path.stem != "test_kinds":
            tests[item.path, item.originalname][at[0]].append(item)
    for cases_at in tests.values():
        servers = [place for place in cases_at if place is not PLACES[0]]
        for number, place in enumerate(servers):
            cases = cases_at[place]
            turns = min(n, len(cases), n if PLACES[0] in cases_at else len(servers))
            left += [item for i, item in enumerate(cases) if i % turns != number % turns]
    return left


def pytest_collection_modifyitems(config, items):
    left = []
    for item in items:
        needs = needs_of(item)
        for name in needs:
            item.add_marker(name)
        if any(p in PLACES + OTHER_PLACES for p in params_of(item)):
            item.add_marker("place")
        if not needs <= WANTED or is_for_later(item) or not applies(item):
            left.append(item)
    without = set(map(id, left))
    kept = [item for item in items if id(item) not in without]
    others = shared_out(kept, config.getoption("share"))
    left += others
    without = set(map(id, others))
    kept = [item for item in kept if id(item) not in without]
    assert not [i.nodeid for i in kept if " at 0x" in i.nodeid], "an address in a test's id: it has another name each time"
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_collection_finish(session):
    """What the tests are told in DLOCK_... is read by now; a dlock would say that it does not know it."""
    for item in session.items:
        if item.path.match("promises/test_kinds.py") and "place" in getattr(item, "fixturenames", ()):
            place = place_id(item.callspec.params["place"])
            scenarios[item.nodeid] = scenario(item, place), place
    for name in [name for name in os.environ if name.startswith("DLOCK") or name in ORIGIN]:
        del os.environ[name]


def pytest_runtest_setup(item):
    """The same whichever tests are run beside it, so that one alone can be run again."""
    random.seed(f"{item.config.seed} {item.nodeid}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Keeps what a failed test leaves on the disk: its own directory, and those of all servers that run now."""
    report = (yield).get_result()
    if report.failed and call.when != "teardown":
        directory = os.path.join(KEPT, re.sub(r"[^\w.,=-]+", "_", item.nodeid)[-150:])
        keep(getattr(item, "funcargs", {}).get("tmp_path"), directory)
        for server in Server.running:
            keep(server.directory, directory, f"{server.kind}-{server.port}")
        report.sections.append(("kept", f"{directory}; again: --seed {item.config.seed}"))


def keep(source, directory, name="test"):
    """Not what is large: nobody reads it."""
    def boring(where, names):
        paths = {n: os.path.join(where, n) for n in names}
        return [n for n, p in paths.items() if not os.path.isdir(p) and not (os.path.isfile(p) and os.path.getsize(p) < 1 << 20)]

    if source:
        shutil.copytree(source, os.path.join(directory, name), ignore=boring, symlinks=True, dirs_exist_ok=True,
                        ignore_dangling_symlinks=True)


def pytest_runtest_logreport(report):
    if report.nodeid in scenarios:
        results.add(*scenarios[report.nodeid], outcome(report))


def pytest_terminal_summary(terminalreporter):
    if results.found:
        terminalreporter.section("kinds of lock: scenarios and places", sep="-")
        terminalreporter.write_line("\n".join(results.lines()))
        os.makedirs(os.path.dirname(TABLE), exist_ok=True)
        with open(TABLE, "w", encoding="utf-8") as f:
            print(*results.lines(), sep="\n", file=f)


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each test, no process that it brought into the world is left."""
    before = {*leftovers(()), *born_of(os.getpid())}
    yield
    end, told = time.monotonic() + 10, set()  # keepers may still be releasing
    quiet = 0  # looks in a row that found nobody: a single one may miss who is just being born or handed on
    while quiet < 2 and time.monotonic() < end:
        found = leftovers(before)
        quiet = 0 if found else quiet + 1
        for pid in found:  # those in the background may go on for the rest of a lease, unless told
            if pid not in told and is_in_the_background(pid):
                kill(pid, signal.SIGTERM)
                told.add(pid)
        time.sleep(0.02 if found else 0.001)
    left = [(pid, stat_of(pid)) for pid in leftovers(before)] if quiet < 2 else []
    for pid, _ in left:
        kill(pid)
    _reap_adopted(before)
    assert not left, f"processes left behind: {left}"


def _reap_adopted(before):
    """Collects orphans that became ours, but no child that a Popen waits for."""
    for pid in born_of(os.getpid()) - before:
        found = stat_of(pid)
        if found and found[1] == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


numbers = itertools.count()


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """As pytest's own, which looks through the directories of all tests before it makes another one."""
    return tmp_path_factory.mktemp(f"{re.sub(r'[^0-9A-Za-z]', '_', request.node.name)[:30]}{next(numbers)}", numbered=False)


@pytest.fixture
def dlock(tmp_path, nothing_is_left):
    """Runs dlock; what still runs at the end of the test is killed."""
    result = Dlock(tmp_path)
    yield result
    result.close()
    if result.tokens_grow:
        token_order.check_grants(result.started)


@pytest.fixture
def public(nothing_is_left):
    """A directory that is open to every user, wherever the tests and their own directories are."""
    with tempfile.TemporaryDirectory(prefix="dlock-public-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


@pytest.fixture
def public_dlock(public):
    """A copy that every user may run."""
    return shutil.copy(DLOCK, public / "dlock")


# ---- what stands between, or pretends ----

@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A CA that signs for whatever name a test asks."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def make_proxy():
    """Proxies in front of a local port."""
    yield from making(Proxy, "close")


@pytest.fixture
def make_hostile():
    """Servers that misbehave."""
    yield from making(Hostile, "close")


# ---- places ----


@pytest.fixture(params=places(), ids=place_id)
def place(request):
    """Each backend in turn: `words` to reach it and fresh keys."""
    return request.param(request)


# Backends with a server between which and dlock something can happen.
REMOTE = [p for p in places() if p.lease_ends]
if FULL:
    REMOTE += [p for p in LAYOUT_PLACES if p.name in {r.name for r in REMOTE}]


def _by_url(place, request):
    """Its URL alone is to lead there, with its settings."""
    dlock = request.getfixturevalue("dlock")
    if place.settings:
        dlock.env["DLOCK_OPTION"] = " ".join(place.settings)
    dlock.counted = place.counted
    return place


@pytest.fixture(params=REMOTE, ids=place_id)
def remote(request):
    """Each such backend in turn, on the server of all tests."""
    return _by_url(request.param(request), request)


def _on_its_own(place, request):
    place.crashable(request)
    return _by_url(place, request)


@pytest.fixture(params=REMOTE, ids=place_id)
def own_remote(request):
    """The same on a server that the test may break, and whose crashes lose nothing, if there is such a one."""
    return _on_its_own(request.param(request), request)


@pytest.fixture(params=[p for p in REMOTE if p.durable], ids=place_id)
def own_durable(request):
    """Only where its crashes lose nothing."""
    return _on_its_own(request.param(request), request)
