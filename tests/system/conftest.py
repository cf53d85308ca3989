# Goal of this file: the fixtures that all tests share, and which tests belong together.

import functools
import os
import pathlib
import shutil
import sys
import signal
import tempfile
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "servers"))

from certificates import Authority
from hostile import Hostile
from memcached import Memcached, MemcachedPlace, Pretender, compile_clock
from mysql_server import MYSQL_PLACES, MysqlServer, MysqlTamper
from pg import PG_PLACES, PgBouncer, PgServer, Tamper
from proxy import Proxy
from redis_dialect_forms import DIALECT_FORM_PLACES
from redis_dialects import SOME_DIALECT_PLACES
from redis_forms import REDIS_PLACES, RedisCluster, RedisSentinels
from redis_tls import Chatty, RedisTls, RedisTlsPlace
from redlock import Masters, RedlockPlace, RedlockTlsPlace, TlsMasters
from support import (DLOCK, FULL, OTHER_PLACES, PLACES, ROOT, At, Dlock, RedisServer, Refused, adopt_orphans, descendants_of,
                     is_in_the_background, kill, leftovers, place_id, places, stat_of)
from table import REFUSED, Results, outcome, scenario
import workers
from zk import Tap, ZkEnsemble, ZkPlace, ZkServer
from zk_layouts import LAYOUT_PLACES

PLACES += [MemcachedPlace, ZkPlace, PG_PLACES[0], MYSQL_PLACES[0]]
OTHER_PLACES += [RedisTlsPlace, *PG_PLACES[1:], *MYSQL_PLACES[1:], *SOME_DIALECT_PLACES, *DIALECT_FORM_PLACES, *LAYOUT_PLACES]
OTHER_PLACES += [*REDIS_PLACES, RedlockPlace, RedlockTlsPlace] if FULL else []  # a selection is in test_redis_forms.py, test_redis_redlock.py

# For -m.
MARKS = {"place": "once for each backend of DLOCK_TEST_BACKENDS",
         "redis": "of a file test_redis*, or marked so, only if redis is among these backends",
         "zk": "of a file test_zk*, or marked so, only if zk is among them",
         "pg": "of a file test_pg*, or marked so, or with sql=pg (test_databases.py), only if pg is among them",
         "mysql": "of a file test_mysql*, or marked so, or with sql=mysql, only if mysql is among them",
         "where": "only for the places of which the rule is true (support.where)",
         "full": "only of make check-all, since it takes long"}


# The table of the conformance suite goes to a file, too.
TABLE = os.path.join(ROOT, "build", "kinds.txt")
results, scenarios = Results(), {}


def pytest_addoption(parser):
    workers.add_options(parser)


def pytest_runtestloop(session):
    return workers.run_tests(session)


def pytest_configure(config):
    adopt_orphans()
    for name, what in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {what}")


def named_params(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def params_of(item):
    return list(named_params(item).values())


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


def pytest_collection_modifyitems(config, items):
    wanted, left = {p.name for p in places()}, []
    for item in items:
        whose = {item.path.stem.split("_")[1], named_params(item).get("sql")}
        of = [name for name in ("redis", "zk", "pg", "mysql") if name in whose or item.get_closest_marker(name)]
        for name in of:
            item.add_marker(name)
            if name not in wanted:
                left.append(item)
        if not of and any(p in PLACES + OTHER_PLACES for p in params_of(item)):
            item.add_marker("place")
    left += [item for item in items if is_for_later(item) or not applies(item)]
    kept = [item for item in items if item not in left]
    assert not [i.nodeid for i in kept if " at 0x" in i.nodeid], "an address in a test's id: it has another name each time"
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_collection_finish(session):
    """What the tests are told in DLOCK_... is read by now; a dlock would say that it does not know it."""
    for item in session.items:
        if item.path.stem == "test_kinds" and "place" in getattr(item, "fixturenames", ()):
            place = place_id(item.callspec.params["place"])
            scenarios[item.nodeid] = scenario(item, place), place
    for name in [name for name in os.environ if name.startswith("DLOCK")]:
        del os.environ[name]


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    ended = yield
    if ended.excinfo and ended.excinfo[0] is Refused:
        pyfuncitem.user_properties.append((REFUSED, str(ended.excinfo[1])))
        ended.force_result(True)


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


def making(program, end="stop"):
    """The body of a fixture that makes such things, with any arguments, and ends them after the test."""
    made = []

    def make(*arguments, program=program, **options):
        made.append(program(*arguments, **options))
        return made[-1]

    yield make
    for thing in made:
        getattr(thing, end)()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each test, no process that it brought into the world is left."""
    before = descendants_of(os.getpid())
    yield
    end, told = time.monotonic() + 10, set()  # keepers may still be releasing
    while leftovers(before) and time.monotonic() < end:
        for pid in leftovers(before):  # those in the background may go on for the rest of a lease, unless told
            if pid not in told and is_in_the_background(pid):
                kill(pid, signal.SIGTERM)
                told.add(pid)
        time.sleep(0.02)
    left = [(pid, stat_of(pid)) for pid in leftovers(before)]
    for pid, _ in left:
        kill(pid)
    _reap_adopted()
    assert not left, f"processes left behind: {left}"


def _reap_adopted():
    """Collects orphans that became ours, but no child that a Popen waits for."""
    for entry in os.listdir("/proc"):
        found = stat_of(entry) if entry.isdigit() else None
        if found and found[1] == "Z" and found[2] == os.getpid():
            try:
                os.waitpid(int(entry), os.WNOHANG)
            except ChildProcessError:
                pass


@pytest.fixture
def dlock(tmp_path, nothing_is_left):
    """Runs dlock; what still runs at the end of the test is killed."""
    result = Dlock(tmp_path)
    yield result
    result.close()


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


# ---- servers: one for all tests that do it no harm, and those of a test's own ----


@pytest.fixture(scope="session")
def redis_server():
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def make_redis(nothing_is_left):
    """Starts servers of the test's own, with any options of redis-server."""
    yield from making(RedisServer)


@pytest.fixture
def own_redis(make_redis):
    """A server that the test may break."""
    return make_redis()


@pytest.fixture(scope="session")
def redis_sentinels():
    forms = RedisSentinels()
    yield forms
    forms.stop()


@pytest.fixture(scope="session")
def redis_cluster():
    forms = RedisCluster()
    yield forms
    forms.stop()


@pytest.fixture
def make_forms(nothing_is_left):
    """Starts sentinels with their servers, or clusters, that the test may break."""
    yield from making(RedisSentinels)


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A CA that signs for whatever name a test asks."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def redis_tls_server(authority):
    server = RedisTls(authority)
    yield server
    server.stop()


@pytest.fixture
def make_redis_tls(authority, nothing_is_left):
    """Starts servers of the test's own that speak TLS, with any options of redis-server."""
    yield from making(functools.partial(RedisTls, authority))


@pytest.fixture
def make_chatty(authority, nothing_is_left):
    """TLS fronts of a plain port that send tickets unasked."""
    yield from making(Chatty, "close")


@pytest.fixture(scope="session")
def redlock_masters():
    masters = Masters()
    yield masters
    masters.stop()


@pytest.fixture(scope="session")
def redlock_tls_masters(authority):
    masters = TlsMasters(authority)
    yield masters
    masters.stop()


@pytest.fixture
def make_tls_masters(authority, nothing_is_left):
    """Starts independent masters that speak TLS, for the test to break."""
    yield from making(functools.partial(TlsMasters, authority))


@pytest.fixture
def make_masters(nothing_is_left):
    """Starts independent masters of the test's own."""
    yield from making(Masters)


@pytest.fixture
def masters(make_masters):
    """Three that the test may break, and whose crashes lose nothing."""
    return make_masters()


@pytest.fixture(scope="session")
def memcached_clock(tmp_path_factory):
    """By which servers seem to have been running for long."""
    return compile_clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="session")
def memcached_server(memcached_clock):
    server = Memcached(memcached_clock)
    yield server
    server.stop()


@pytest.fixture
def make_memcached(memcached_clock, nothing_is_left):
    """Starts servers of the test's own, with any options of memcached."""
    yield from making(functools.partial(Memcached, memcached_clock))


@pytest.fixture
def make_pretender():
    """Servers that pretend to be a memcached."""
    yield from making(Pretender, "close")


@pytest.fixture
def own_memcached(make_memcached):
    """A server that the test may break."""
    return make_memcached()


@pytest.fixture(scope="session")
def zk_server():
    server = ZkServer()
    yield server
    server.stop()


@pytest.fixture
def make_zk(nothing_is_left):
    """Starts servers of the test's own, with any settings of zoo.cfg."""
    yield from making(ZkServer)


@pytest.fixture
def own_zk(make_zk):
    """A server that the test may break."""
    return make_zk()


@pytest.fixture
def ensemble(make_zk):
    """Three servers that the test may break."""
    return make_zk(program=ZkEnsemble)


@pytest.fixture(scope="session")
def pg_server():
    server = PgServer()
    yield server
    server.stop()


@pytest.fixture
def make_pg(nothing_is_left):
    """Starts servers of the test's own, with any settings."""
    yield from making(PgServer)


@pytest.fixture
def own_pg(make_pg):
    """A server that the test may break."""
    return make_pg()


@pytest.fixture
def make_db(pg_server, nothing_is_left):
    """Makes databases on the shared server."""
    yield from making(pg_server.database, "drop")


@pytest.fixture
def db(make_db):
    """A database that the test may break."""
    return make_db()


@pytest.fixture
def make_pooler(nothing_is_left):
    """Starts poolers in front of a server."""
    yield from making(PgBouncer)


@pytest.fixture(scope="session")
def mysql_server():
    server = MysqlServer()
    yield server
    server.stop()


@pytest.fixture
def make_mysql(nothing_is_left):
    """Starts servers of the test's own, with any settings."""
    yield from making(MysqlServer)


@pytest.fixture
def own_mysql(make_mysql):
    """A server that the test may break."""
    return make_mysql()


@pytest.fixture
def mysql_db(mysql_server, nothing_is_left):
    """A database on the shared server, which the test may break."""
    result = mysql_server.database()
    yield result
    result.drop()


# ---- a lock's place on ZooKeeper ----

_tests = iter(range(1, 1 << 30))


@pytest.fixture
def at(zk_server):
    """A fresh root on the server of all tests."""
    result = At(f"{zk_server.url}/zk{next(_tests)}")
    result.server, result.url, result.root = zk_server, result.words[1], "/" + result.words[1].rsplit("/", 1)[1]
    result.job = result.root + "/job"
    result.through = lambda proxy: At(f"zk://127.0.0.1:{proxy.port}{result.root}")
    return result


@pytest.fixture
def tapped(at, make_proxy):
    """(place, proxy, tap): the same through a proxy with somebody who reads along."""
    proxy = make_proxy(at.server.port)
    return at.through(proxy), proxy, Tap(proxy)


# ---- what stands between, or pretends ----


@pytest.fixture
def make_proxy():
    """Proxies in front of a local port."""
    yield from making(Proxy, "close")


@pytest.fixture
def make_tamper():
    """Proxies that change what a PostgreSQL server says."""
    yield from making(Tamper, "close")


@pytest.fixture
def make_mysql_tamper():
    """Proxies that change what a MariaDB server says."""
    yield from making(MysqlTamper, "close")


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
