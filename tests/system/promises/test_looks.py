# Goal of these tests: a look shows the same on every backend and mode: who holds a lock, of which kind, who
# waits for it and in which order, and how the last run ended.  It changes nothing, not even what has run out.
# What a look makes of hostile servers is in cli/test_looks.py, breaking and freezing in promises/test_steering.py.

import datetime
import json
import re
import signal
import socket
import time
from fnmatch import fnmatch

import pytest

from faults import LIVING_LEASE
from support import BRIEFLY, DLOCK, PATIENCE, can, kill, need, place_id, places, wait_for, where

LEASE = ("-t", "3s")     # runs out soon
CALM = ("-t", "10m")     # is not renewed while a test looks
HOST = socket.gethostname()


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    return request.param(request)


# only where who waits leaves something on the server
listed = where(lambda place: place.counted)


class Look:
    """The subcommands that look, at one place."""

    def __init__(self, dlock, place):
        self.dlock, self.place = dlock, place

    def run(self, cmd, *words, **options):
        return self.dlock.run(cmd, *self.place.words, *words, **options)

    def at(self, key="job"):
        done = self.run("status", "-J", "-k", self.place.key(key))
        assert done.status in (0, 1) and done.stderr == "", done
        found = json.loads(done.stdout)
        assert done.status == (1 if found["state"] == "free" else 0)
        assert (found["v"], found["key"], found["backend"]) == (1, self.place.key(key), self.place.name)
        return found

    def all(self, *words):
        """Those of this test, by the ends of their keys."""
        done = self.run("ls", "-J", *words)
        assert done.status == 0 and done.stderr == "", done
        objects = [json.loads(line) for line in done.stdout.splitlines()]
        n = len(self.place.prefix)
        return {o["key"][n:]: o for o in objects if o["key"].startswith(self.place.prefix)}

    def holder(self, key="job"):
        one, = self.at(key)["holders"]
        return one

    def waiting(self, n, key="job"):
        """Waits until so many wait there."""
        return wait_for(lambda: (found := self.at(key)) and len(found["waiters"]) == n and found, what=f"{n} waiters")


@pytest.fixture
def look(dlock, place):
    return Look(dlock, place)


def moment(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()


def is_bound(place):
    """Are its locks a session's, of which the server tells others little?"""
    return place_id(place) in ("pg-advisory", "pg-row")


def same_token(place, shown, token):
    return shown == token or (is_bound(place) and shown is None)


def tells_keys(place):
    """Can a look at all locks name them?"""
    return place_id(place) not in ("pg-advisory",)


# ---- one lock ----


def test_what_nobody_has_used_is_free(look, place):
    found = look.at()
    assert (found["state"], found["kind"], found["limit"], found["holders"], found["waiters"], found["frozen"],
            found["last"]) == ("free", None, None, [], [], None, None)
    assert look.all() == {}
    assert look.run("wait", "-n", "-k", place.key()).status == 0
    done = look.run("status", "-k", place.key())
    assert done.status == 1 and done.stdout.startswith(place.key()) and done.stdout.endswith(" is free\n")


def test_who_holds_it(look, place, dlock):
    began = time.time()
    held = dlock.hold(place, place.key(), *CALM, "--who", "alice@ci", "--why", "release 4.2")
    found = look.at()
    assert (found["state"], found["kind"], found["limit"], found["waiters"]) == ("held", "exclusive", None, [])
    one, = found["holders"]
    assert (one["who"], one["pid"], one["slot"], one["foreign"]) == ("alice@ci", held.pid, None, False)
    assert one["command"] == "cat" and same_token(place, one["token"], held.token)
    if not is_bound(place):
        assert one["host"] == HOST and one["why"] == "release 4.2"
    if place_id(place) != "pg-advisory":
        assert began - 60 < moment(one["since"]) < time.time() + 60
        assert 0 <= one["held_s"] < PATIENCE
    if place.lease_ends and one["lease_left_s"] is not None:
        assert 300 < one["lease_left_s"] <= 600
    text = look.run("status", "-k", place.key()).stdout
    assert "alice@ci" in text and f"pid {held.pid}" in text and "running cat" in text
    assert is_bound(place) or (f" on {HOST}" in text and str(held.token) in text)
    assert look.run("wait", "-n", "-k", place.key()).status == 75
    assert held.finish().status == 0
    assert look.at()["state"] == "free"
    assert look.run("wait", "-n", "-k", place.key()).status == 0


@where(tells_keys)
def test_what_is_held_for_too_long(look, place, dlock):
    """For cron, and for Prometheus."""
    words = ("ls", place.key(), "-n", "-o", "KEY", "--held-over")
    assert look.run(*words, "1h").status == 0
    dlock.hold(place, place.key(), *CALM)
    done = look.run(*words, "1h")
    assert (done.status, done.stdout, done.stderr) == (0, "", "")
    found = wait_for(lambda: (done := look.run(*words, "500ms")).status == 1 and done, what="it is held for so long")
    assert found.stdout == f"{place.key()}\n"
    told = look.run("ls", place.key(), "--format", "prometheus").stdout
    at = f'{{key="{place.key()}",backend="{place.name}"}}'
    assert f"\ndlock_lock_holders{at} 1\n" in told and f"\ndlock_lock_waiting{at} 0\n" in told
    assert f"\ndlock_lock_frozen{at} 0\n" in told and f"\ndlock_lock_held_seconds{at} " in told


def test_one_look_is_like_another_while_nothing_happens(look, place, dlock):
    dlock.hold(place, place.key(), *CALM)
    first, second = look.holder(), look.holder()
    passing = ("held_s", "lease_left_s", "renewed_s")
    assert {k: v for k, v in first.items() if k not in passing} == {k: v for k, v in second.items() if k not in passing}
    assert second["held_s"] is None or second["held_s"] >= first["held_s"]


def test_a_renewal_is_no_new_grant(look, place, dlock):
    dlock.hold(place, place.key(), *LIVING_LEASE)
    first = look.holder()
    time.sleep(4)  # it is renewed every three seconds
    second = look.holder()
    assert (first["since"], first["token"], first["owner"]) == (second["since"], second["token"], second["owner"])
    if second["lease_left_s"] is not None and place.name != "zk":
        assert 0 <= second["lease_left_s"] <= 9


def test_a_lease_is_told_by_its_renewal(look, place, dlock):
    """As long as that goes on, and when it has stopped."""
    held = dlock.hold(place, place.key(), *LIVING_LEASE)
    found = look.holder()
    if found["ttl_s"] is None or found["lease_left_s"] is None:
        assert found["renewed_s"] is None and "renewed" not in look.run("status", "-k", place.key()).stdout
        return
    assert (found["ttl_s"], found["kept_until"], found["ends_by"]) == (9, None, None)

    def says():
        return look.run("status", "-k", place.key()).stdout

    kill(held.keeper, signal.SIGSTOP)
    seen = [wait_for(lambda word=word: (text := says()) and word in text and text, what=word) for word in ("renewed", "not renewed for ")]
    assert re.search(r" ago\), renewed [\d.]+m?s ago, ", seen[0]) or "not renewed" in seen[0], seen[0]
    assert re.search(r", not renewed for [\d.]+m?s, free in [\d.]+m?s at the latest, ", seen[1]), seen[1]


def test_readers(look, place, dlock):
    need(dlock, place, "-s")
    readers = [dlock.hold(place, place.key(), "-s", *CALM) for _ in range(3)]
    found = look.at()
    assert (found["state"], found["kind"], found["limit"]) == ("held", "shared", None)
    assert [h["pid"] for h in found["holders"]] == [r.pid for r in readers], "in the order of their grants"
    assert all(same_token(place, h["token"], r.token) for h, r in zip(found["holders"], readers))
    assert look.run("wait", "-n", "-s", "-k", place.key()).status == 0
    assert look.run("wait", "-n", "-x", "-k", place.key()).status == 75
    writer = dlock.contend(place, place.key(), "-x", *CALM).queued()
    if place.counted:
        found = look.waiting(1)
        assert (found["kind"], found["waiters"][0]["kind"], found["waiters"][0]["pid"]) == ("shared", "exclusive", writer.pid)
    if place.fair:
        assert look.run("wait", "-n", "-s", "-k", place.key()).status == 75, "behind the writer"


def test_slots(look, place, dlock):
    need(dlock, place, "--limit", "2")
    held = [dlock.hold(place, place.key(), "--limit", "3", *CALM) for _ in range(2)]
    found = look.at()
    assert (found["kind"], found["limit"]) == ("limit", 3)
    assert [(h["pid"], h["slot"]) for h in found["holders"]] == [(held[0].pid, 0), (held[1].pid, 1)]
    assert [h.event("acquired")["slot"] for h in held] == [0, 1]
    assert look.run("wait", "-n", "--limit", "3", "-k", place.key()).status == 0
    assert look.run("wait", "-n", "-k", place.key()).status == 75
    dlock.hold(place, place.key(), "--limit", "3", *CALM)
    assert look.run("wait", "-n", "--limit", "3", "-k", place.key()).status == 75
    waiter = dlock.contend(place, place.key(), "--limit", "3", *CALM).queued()
    if place.counted:
        assert [(w["kind"], w["pid"]) for w in look.waiting(1)["waiters"]] == [("limit", waiter.pid)]
    assert held[0].finish().status == 0
    wait_for(lambda: sorted(h["slot"] for h in look.at()["holders"]) == [0, 1, 2])


@listed
def test_waiters_are_listed_in_their_order(look, place, dlock):
    dlock.hold(place, place.key(), *CALM)
    waiters = []
    for n in range(3):
        waiters.append(dlock.contend(place, place.key(), *CALM, "--who", f"w{n}").queued())
        found = look.waiting(n + 1)["waiters"]
    assert [w["position"] for w in found] == [1, 2, 3]
    expected = [("w0", waiters[0].pid), ("w1", waiters[1].pid), ("w2", waiters[2].pid)]
    order = (lambda pairs: pairs) if place.fair else sorted
    assert order([(w["who"], w["pid"]) for w in found]) == order(expected)
    assert {w["kind"] for w in found} == {"exclusive"} and (is_bound(place) or {w["host"] for w in found} == {HOST})
    assert all(w["waiting_s"] is None or 0 <= w["waiting_s"] < PATIENCE for w in found)

    def are_shown():
        text = look.run("status", "-k", place.key()).stdout
        return all(f"w{n}" in text for n in range(3))

    if is_bound(place):  # between two sleeps in the server, a waiter is not seen
        wait_for(are_shown, what="all three in one look")
    else:
        assert are_shown()
    waiters[1].signal(signal.SIGINT)
    waiters[1].wait()
    # a session that ends while it is looked at may have no name any more
    wait_for(lambda: order([str(w["who"]) for w in look.at()["waiters"]]) == ["w0", "w2"], what="the other two")


def test_each_of_several_keys_has_its_own_token(look, place, dlock):
    started = dlock.start("run", *place.words, *CALM, "-k", place.key("a"), "-k", place.key("b"), "--", "cat", stdin=-1)
    started.held()
    assert {look.holder(k)["pid"] for k in "ab"} == {started.pid}
    done = look.run("status", "-J", "-k", place.key("a"), "-k", place.key("b"), "-k", place.key("c"))
    assert done.status == 0 and [json.loads(line)["state"] for line in done.stdout.splitlines()] == ["held", "held", "free"]
    tokens = started.event("acquired").get("tokens")
    if tokens:
        assert [look.holder(k)["token"] for k in "ab"] == [tokens[place.key(k)] for k in "ab"]
    assert started.finish().status == 0


def test_how_the_last_run_ended(look, place, dlock):
    key = place.key()
    need(dlock, place, "--once", "x")
    assert dlock.run("run", *place.words, "-k", key, "--once", "monday", "--who", "alice", "true").status == 0
    found = look.at()
    assert found["state"] == "free"
    last = found["last"]
    assert (last["id"], last["who"], last["status"]) == ("monday", "alice", 0)
    assert last["token"] > 0 and 0 <= moment(last["ended"]) - moment(last["began"]) < PATIENCE
    dlock.run("run", *place.words, "-k", key, "--once", "tuesday", "sh", "-c", "exit 3")
    after = look.at()["last"]
    assert (after["id"], after["status"]) == ("tuesday", 3) and after["token"] > last["token"]
    dlock.run("run", *place.words, "-k", key, "--cooldown", "0.001s", "true")
    assert (look.at()["last"]["id"], look.at()["last"]["status"]) == (None, 0)
    assert "status 0" in look.run("status", "-k", key).stdout
    assert look.all() == {}, "that nobody has any more"


# ---- what has run out ----


def test_a_holder_whose_lease_has_ended_is_none(look, place, dlock):
    held = dlock.hold(place, place.key(), *LEASE)
    held.destroy()
    wait_for(lambda: look.at()["state"] == "free", what="the end of its lease")
    assert place.key() not in look.all()
    assert look.run("wait", "-n", "-k", place.key()).status == 0


@listed
def test_a_dead_waiter_is_none(look, place, dlock):
    dlock.hold(place, place.key(), *CALM)
    dead = dlock.contend(place, place.key(), *LEASE, "--who", "dead").queued()
    alive = dlock.contend(place, place.key(), *LEASE, "--who", "alive").queued()
    look.waiting(2)
    dead.destroy()
    wait_for(lambda: [w["who"] for w in look.at()["waiters"]] == ["alive"], what="the end of the dead one")
    assert alive.poll() is None
    if tells_keys(place):  # a waiter is not seen between two sleeps in a server
        wait_for(lambda: look.all()["job"]["waiting"] == 1, what="the living one alone")


# ---- all locks ----


@where(tells_keys)
def test_all_that_are_held_or_waited_for_are_listed(look, place, dlock):
    names = ["a", "b/c", "b/d", "ü x", "e" * 100]
    holds = [dlock.contend(place, place.key(n), *CALM, "--who", f"who {i}") for i, n in enumerate(names)]
    for h in holds:
        h.held()
    dlock.contend(place, place.key("a"), *CALM).queued()
    wait_for(lambda: look.all()["a"]["waiting"] == 1 or not place.counted)
    found = look.all()
    assert sorted(found) == sorted(names)
    for n, h in zip(names, holds):
        one, = found[n]["holders"]
        assert (one["pid"], found[n]["state"]) == (h.pid, "held") and same_token(place, one["token"], h.token)
        assert found[n]["waiting"] == (1 if n == "a" and place.counted else 0)
    pattern = place.key("b/*")
    assert sorted(look.all(pattern)) == ["b/c", "b/d"] and fnmatch(place.key("b/c"), pattern)
    rows = look.run("ls", "-n", "-o", "pid,state").stdout.splitlines()
    assert {f"{h.pid} held" for h in holds} <= {" ".join(row.split()) for row in rows}
    assert holds[1].finish().status == 0
    wait_for(lambda: sorted(look.all()) == sorted(set(names) - {"b/c"}))


def test_wait_ends_when_the_lock_is_given_back(look, place, dlock):
    held = dlock.hold(place, place.key(), *CALM)
    started = dlock.start("wait", *place.words, "-k", place.key(), "-k", place.key("other"))
    busy = look.run("wait", "-w", BRIEFLY, "-E", "9", "-k", place.key())
    assert busy.status == 9 and "is still held by" in busy.stderr and str(held.pid) in busy.stderr
    assert started.poll() is None
    assert held.finish().status == 0
    assert started.wait().status == 0
    assert look.at()["state"] == "free", "it has taken nothing"


def test_a_nested_one_looks_where_the_enclosing_dlock_is(place, dlock):
    script = '"$0" status -J -k "$1" && "$0" ls -J && exec "$0" wait -n -k "$2"'
    done = dlock.run("run", *place.words, "-k", place.key(), "--", "sh", "-c", script, DLOCK, place.key(), place.key("other"))
    assert done.status == 0, done
    first, *rest = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["state"] == "held" and first["holders"][0]["command"] == "sh"
    if tells_keys(place):
        assert place.key() in [o["key"] for o in rest]


def test_its_own_lock_is_nothing_to_wait_for(place, dlock):
    """A run inside would join it at once, also when it is frozen or others wait."""
    done = dlock.run("run", *place.words, "-k", place.key(), "--", DLOCK, "wait", "-n", "-k", place.key())
    assert done.status == 0, done


# ---- a server that is away ----


def test_a_server_that_is_away_is_said_to_be(dlock, own_remote):
    place = own_remote
    dlock.hold(place, place.key(), *CALM)
    place.server.pause()
    try:
        for words in (["status"], ["wait", "-n"], ["wait", "-w", "1s"]):
            done = dlock.run(*words, *place.words, "-k", place.key())
            assert done.status == 69 and done.stderr.count("\n") == 1 and place.key() in done.stderr, done
        assert dlock.run("ls", *place.words).status == 69
        started = dlock.start("wait", *place.words, "-w", "1h", "-k", place.key("free"))
        time.sleep(1)
        assert started.poll() is None
    finally:
        place.server.resume()
    assert started.wait().status == 0
    place.server.kill()
    for words in (["status", "-k", "x"], ["ls"], ["wait", "-n", "-k", "x"]):
        done = dlock.run(*words, *place.words)
        assert done.status == 69 and done.stderr.startswith("dlock: cannot ") and done.stderr.count("\n") == 1, done


# ---- nothing is changed ----


def file_data(place):
    return {p.relative_to(place.directory): (p.read_bytes() if p.is_file() else None, p.stat().st_mtime_ns, p.stat().st_ino)
            for p in [place.directory, *place.directory.rglob("*")]}


def redis_data(place):
    with place.server.client(decode_responses=False) as c:
        return {k: (c.dump(k), c.expiretime(k) if hasattr(c, "expiretime") else c.execute_command("PEXPIRETIME", k))
                for k in c.scan_iter("*") if place.prefix.encode() in k}


def zk_data(place):
    def below(client, path):
        data, stat = client.get(path)
        yield path, data, stat
        for child in sorted(client.get_children(path)):
            yield from below(client, f"{path}/{child}")

    with place.server.client() as c:
        return list(below(c, place.root)) if c.exists(place.root) else []


def pg_data(place):
    ask = place.server.ask
    tables = ask("SELECT schemaname, relname FROM pg_stat_user_tables ORDER BY 1, 2")
    rows = {(s, n): sorted(str(r) for r in ask(f'SELECT t::text, xmin::text, ctid::text FROM "{s}"."{n}" t')) for s, n in tables}
    return rows, ask("SELECT oid, relname, relfilenode FROM pg_class WHERE oid > 16384 ORDER BY 1")


def memcached_data(place):
    with place.server.client() as c:
        return {name: (item, c.get(name)) for name, item in c.items().items() if place.prefix in name}


def mysql_data(place):
    tables = place.server.ask("SELECT table_schema, table_name, create_time FROM information_schema.tables WHERE table_type ="
                              " 'BASE TABLE' AND table_schema NOT IN ('mysql', 'performance_schema', 'sys') ORDER BY 1, 2")
    return [(t, sorted(map(str, place.server.ask(f"SELECT * FROM `{t[0]}`.`{t[1]}`")))) for t in tables]


def etcd_data(place):
    return [kv for kv in place.server.client().range("dlock/") if place.prefix in kv["key"]]


DATA = {"file": file_data, "etcd": etcd_data, "redis": redis_data, "memcached": memcached_data, "zk": zk_data, "pg": pg_data, "mysql": mysql_data}


def look_everywhere(look, place):
    for key in ("held", "gone", "once", "never", "queue"):
        look.at(key)
        look.run("status", "-k", place.key(key))
        look.run("wait", "-n", "-k", place.key(key))
    look.all()
    look.run("ls")


def test_looking_changes_nothing(look, place, dlock):
    data = DATA[place.name]
    holders = [dlock.hold(place, place.key(key), *CALM) for key in ("held", "queue")]
    dead = [dlock.hold(place, place.key("gone"), *LEASE), dlock.contend(place, place.key("queue"), *LEASE).queued()]
    if can(dlock, place, "--once", "x"):
        dlock.run("run", *place.words, "-k", place.key("once"), "--once", "x", "true")
    frozen = dlock.run("freeze", *place.words, "--for", "1s", "-k", place.key("thawed")).status == 0
    for one in dead:
        one.destroy()
    wait_for(lambda: look.at("gone")["state"] == "free" and not look.at("queue")["waiters"])
    wait_for(lambda: not frozen or look.at("thawed")["state"] == "free")
    for holder in holders:
        kill(holder.keeper, signal.SIGSTOP)  # on memcached they renew every second
    before = wait_for_calm(lambda: data(place))
    look_everywhere(look, place)
    assert data(place) == before


def wait_for_calm(data):
    """What stands there, once nobody changes it any more."""
    seen = [data()]

    def is_calm():
        time.sleep(0.5)
        seen.append(data())
        return seen[-1] == seen[-2]

    wait_for(is_calm)
    return seen[-1]


def test_looking_makes_nothing(look, place, request):
    data = DATA[place.name]
    if place.name == "file":
        place.directory.rmdir()
    elif place.name == "pg":
        db = request.getfixturevalue("make_db")()
        place.server = db
    elif place.name == "mysql":
        place.server = request.getfixturevalue("mysql_db")
    if place_id(place) == "pg-pooled":
        place.pooler = request.getfixturevalue("make_pooler")(place.server)
    if place.name == "file":  # a name with a mistake in it is no directory without locks
        assert look.run("ls").status == look.run("status", "x").status == 78
        assert not place.directory.exists()
        return
    before = data(place)
    look_everywhere(look, place)
    assert data(place) == before
