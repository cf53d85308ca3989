# Goal of these tests: looking at locks on Redis and steering them: what is stored for
# it, what is never changed by a look, what others may have put there, and what it costs.

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time

import pytest

from hostile import array
from redis_script import Script, ears
from support import ADMIN, At, boottime, is_alive, rules_of, size, spent, wait_for

BOB = json.dumps({"who": "bob@office", "why": "it hangs"})
NUMBERS = {"lock", "limit", "token", "slot", "position", "count", "since", "until", "now", "revoked", "status"}
LEASE = ("-t", "6s")


# ---- admin_ops, called one by one ----


def entry_of(line):
    kind, *members = line.split("\t")
    entry = {"kind": kind, **dict(m.split("=", 1) for m in members)}
    return {k: int(v) if k in NUMBERS else v for k, v in entry.items()}


def as_stored(text):
    """Undoes what is done to bytes that are not printable."""
    return re.sub(rb"\\x(..)", lambda m: bytes.fromhex(m[1].decode()), text.encode())


def admin(url, *words, ok=True):
    """(entries, what it ended with)"""
    done = subprocess.run([ADMIN, "redis", url, *map(str, words)], capture_output=True, text=True, timeout=60)
    *lines, last = done.stdout.splitlines()
    assert last.startswith("rc "), (done.returncode, done.stdout[-500:], done.stderr)
    assert not ok or last.strip() == "rc ok", last
    return [entry_of(line) for line in lines], last[3:]


def each(server, *words):
    return admin(server.url, "each", *words)[0]


def kinds(entries):
    return [e["kind"] for e in entries]


def revoke(server, target, *force, key="job", record=BOB, ok=True):
    return admin(server.url, "revoke", key, target["token"], target["owner"], record, *force, ok=ok)[1]


def freeze(server, *seconds, key="job", record=BOB):
    admin(server.url, "freeze", key, record, *seconds)


def thaw(server, key="job", ok=True):
    return admin(server.url, "thaw", key, ok=ok)[1]


def url_of_user(server, rules):
    with server.client() as c:
        c.execute_command("ACL", "SETUSER", "somebody", "on", ">password", *rules)
    return f"redis://somebody:password@127.0.0.1:{server.port}"


def contents(client):
    """All that is stored, and until when."""
    raw = client.connection_pool.connection_kwargs
    with type(client)(host=raw["host"], port=raw["port"]) as c:
        found = {k: (c.dump(k), c.execute_command("PEXPIRETIME", k)) for k in c.scan_iter("*")}
    return found


def written(client):
    """Grows with every change."""
    return client.info("persistence")["rdb_changes_since_last_save"]


def row(owner, numbers, record="{}"):
    return f"{numbers} {hashlib.sha1(f'{owner} {numbers}'.encode()).hexdigest()[:8]} {record}"


def hold_by_hand(client, key, owner, kind="x", token=5, slot=0, record="{}", ends=None, granted=5):
    client.hset(f"dlock:{{{key}}}:i", owner, row(owner, f"{kind} 60000 {token} {slot} 0 {granted}", record))
    client.zadd(f"dlock:{{{key}}}:h", {owner: ends or time.time() * 1000 + 3600000})


def wait_by_hand(client, key, owner, ticket, kind="x", record="{}", alive=None):
    client.hset(f"dlock:{{{key}}}:i", owner, row(owner, f"{kind} 60000 0 0 0 0", record))
    client.zadd(f"dlock:{{{key}}}:q", {owner: ticket})
    client.zadd(f"dlock:{{{key}}}:l", {owner: alive or time.time() * 1000 + 3600000})


def owner(n):
    return f"{n:032x}"


def calls(client, command="evalsha"):
    return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


@pytest.fixture
def script(own_redis):
    with own_redis.client() as client:
        yield Script(client)


# ---- looking ----


def test_a_look_tells_holders_and_waiters_in_order(dlock, own_redis):
    at = At(own_redis.url)
    began = time.time()
    holders = [dlock.hold(at, "a b", "--limit", "3", "--why", f"reason {n}") for n in range(2)]
    dlock.contend(at, "a b").queued(1)
    dlock.contend(at, "a b", "--limit", "3").queued(2)
    found = each(own_redis, "a b")
    assert kinds(found) == ["holder", "holder", "waiter", "waiter"]
    assert [e["token"] for e in found[:2]] == [h.token for h in holders]
    assert [(e["lock"], e["limit"], e["slot"]) for e in found[:2]] == [(3, 3, 0), (3, 3, 1)]
    assert [(e["lock"], e["limit"], e["position"]) for e in found[2:]] == [(0, 0, 1), (3, 3, 2)]
    assert [json.loads(e["record"])["why"] for e in found[:2]] == ["reason 0", "reason 1"]
    for e in found:
        assert e["key"] == "a b" and re.fullmatch("[0-9a-f]{32}", e["owner"]) and not e["revoked"]
        assert began - 1 < e["since"] / 1e6 <= e["now"] / 1e6 < time.time() + 1
    assert all(e["now"] < e["until"] <= e["now"] + 30e6 for e in found[:2]) and found[2]["until"] == -1
    assert each(own_redis) == found or kinds(each(own_redis)) == kinds(found)
    brief = each(own_redis, "a b", "brief")
    assert kinds(brief) == ["holder", "holder", "waiting"] and brief[2]["count"] == 2


def test_where_nothing_is_there_is_nothing(own_redis):
    assert each(own_redis) == each(own_redis, "job") == []


def test_the_last_run_is_told_with_a_key(dlock, own_redis):
    for identity, command, status in (("2026-11", ("true",), 0), (None, ("sh", "-c", "exit 3"), 3)):
        words = ["--once", identity] if identity else ["--cooldown", "1ms"]
        dlock.run("run", "-u", own_redis.url, "-k", "job", *words, "--who", 'a"b\\é', "--", *command)
        last, *good = each(own_redis, "job")
        assert [(g["kind"], g["once"], g["status"]) for g in good] == ([("good", "2026-11", 0)] if status else [])
        assert (last["kind"], last["status"], last.get("once")) == ("last", status, identity)
        assert last["since"] <= last["until"] <= last["now"] and last["token"] > 0
        who = as_stored(last["record"]).decode()
        assert json.loads(who)["who"] == 'a"b\\é'
    assert each(own_redis) == []


def test_looks_keep_their_connection(dlock, own_redis):
    def looked():
        return c.info("commandstats").get("cmdstat_evalsha_ro", {"calls": 0})["calls"]

    with own_redis.client() as c:
        looks = dlock.start("ls", "-u", own_redis.url, "--watch=100ms")
        wait_for(lambda: looked() > 2, what="looks")
        before, asked = c.info("stats")["total_connections_received"], looked()
        wait_for(lambda: looked() > asked + 5, what="more looks")
        assert c.info("stats")["total_connections_received"] == before
    looks.signal(signal.SIGINT)
    looks.wait()


def test_a_look_changes_nothing_not_even_what_has_run_out(dlock, own_redis):
    at = At(own_redis.url)
    holder = dlock.hold(at, "held", "-t", "120s")
    for process in ("front", "keeper"):  # or it renews meanwhile
        holder.signal(signal.SIGSTOP, process)
    with own_redis.client() as c:
        past = time.time() * 1000 - 5000
        hold_by_hand(c, "ended", owner(1), ends=past)
        wait_by_hand(c, "ended", owner(2), 6, alive=past)
        wait_by_hand(c, "held", owner(3), 7, alive=past)
        wait_by_hand(c, "held", owner(4), 8)
        c.hset("dlock:{ended}:f", mapping={"since": 5, "until": int(past * 1000), "record": BOB})
        c.hset("dlock:{ended}:r", mapping={"id": "x", "began": 5, "ended": 6, "status": 0, "token": 7, "who": "me", "good": 5})
        freeze(own_redis, key="frozen")
        freeze(own_redis, 3600, key="frozen for an hour")
        before, changes = contents(c), written(c)
        for words in ([], ["held"], ["held", "brief"], ["ended"], ["ended", "brief"], ["frozen"], ["none"]):
            found = each(own_redis, *words)
            if not words:
                assert sorted(kinds(found)) == ["freeze", "freeze", "holder", "waiter"]
            elif words[0] == "held":
                assert kinds(found) == ["holder", "waiting" if words[1:] else "waiter"] and found[1]["count"] in (0, 1)
            else:
                assert kinds(found) == {"ended": ["last"], "frozen": ["freeze"], "none": []}[words[0]]
        assert contents(c) == before and written(c) == changes


def test_a_replica_and_a_user_who_may_only_read_can_look(dlock, own_redis, make_redis):
    holder = dlock.hold(At(own_redis.url), "job", "-t", "120s")
    dlock.contend(At(own_redis.url), "job").queued(1)
    replica = make_redis("--replicaof", f"127.0.0.1 {own_redis.port}")
    with replica.client() as c:
        wait_for(lambda: c.info("replication")["master_link_status"] == "up", what="the replica")
        wait_for(lambda: c.exists("dlock:{job}:q"), what="its data")
    assert kinds(each(replica, "job")) == kinds(each(replica)) == ["holder", "waiter"]
    assert "READONLY" in admin(replica.url, "freeze", "job", BOB, ok=False)[1]
    assert "READONLY" in thaw(replica, ok=False) and "READONLY" in revoke(replica, {"token": holder.token, "owner": "-"}, ok=False)
    url = url_of_user(own_redis, rules_of("watcher"))
    with own_redis.client() as c:
        for number in range(40):  # and many holders
            hold_by_hand(c, "many", owner(number), kind="s")
        c.hset("dlock:{job}:r", mapping={"id": "", "began": 5, "ended": 6, "status": 0, "token": 7, "who": "me", "good": 5})
    assert kinds(admin(url, "each", "job")[0]) == ["holder", "waiter", "last"]
    assert kinds(admin(url, "each", "job", "brief")[0]) == ["holder", "waiting", "last"]
    assert len(admin(url, "each")[0]) == 42
    for words in (["freeze", "job", BOB], ["thaw", "job"], ["revoke", "job", holder.token, "-", BOB]):
        said = admin(url, *words, ok=False)[1]
        assert said.startswith("denied") and "NOPERM" in said, said
    assert kinds(each(own_redis, "job")) == ["holder", "waiter", "last"] and is_alive(holder.command)


@pytest.mark.parametrize("rules", ["dlock", "both", "+@all -@dangerous"])
def test_the_rights_of_the_manual_suffice_to_steer(dlock, own_redis, rules):
    rules = {"dlock": rules_of("dlock"), "both": rules_of("oncall")}.get(rules, ["~dlock:*", "&dlock:*", *rules.split()])
    url = url_of_user(own_redis, rules)
    holder = dlock.hold(At(url), "job", "-t", "60s")
    dlock.contend(At(url), "job").queued(1)
    for process in ("front", "keeper"):
        holder.signal(signal.SIGSTOP, process)  # it would hear of the break, and give the lock up before it is taken by force
    admin(url, "freeze", "job", BOB, "3600")
    admin(url, "freeze", "job", BOB)
    admin(url, "revoke", "job", holder.token, "-", BOB)
    admin(url, "revoke", "job", holder.token, "-", BOB, "force")
    admin(url, "thaw", "job")
    if rules != rules_of("dlock"):
        assert kinds(admin(url, "each")[0]) == kinds(admin(url, "each", "job")[0]) == ["holder"]
    else:
        assert "NOPERM" in admin(url, "each", ok=False)[1]


def test_a_server_before_7_is_looked_at_too(dlock, make_redis):
    """It knows no EVAL_RO."""
    old = make_redis("--rename-command", "EVAL_RO", "", "--rename-command", "EVALSHA_RO", "")
    dlock.hold(At(old.url), "job")
    assert kinds(each(old)) == kinds(each(old, "job")) == ["holder"]


# ---- what others have put there ----


@pytest.mark.parametrize("letter, stands", [(n, t) for n, t in zip("hiqlfr" * 2, ["string", "list", "set", "stream", "zset", "string",
                                                                                 "list", "zset", "hash", "hash", "string", "zset"])])
def test_what_is_no_lock_is_told_and_not_touched(own_redis, letter, stands):
    with own_redis.client() as c:
        wait_by_hand(c, "job", owner(1), 7)
        hold_by_hand(c, "job", owner(2))
        hold_by_hand(c, "other", owner(3))
        at = f"dlock:{{job}}:{letter}"
        c.delete(at)
        {"string": lambda: c.set(at, "x"), "list": lambda: c.rpush(at, "x"), "set": lambda: c.sadd(at, "x"),
         "zset": lambda: c.zadd(at, {"x": 1}), "hash": lambda: c.hset(at, "x", "y"), "stream": lambda: c.xadd(at, {"x": "y"})}[stands]()
        before = contents(c)
        for words in (["job"], ["job", "brief"], []):
            found = [e for e in each(own_redis, *words) if e["key"] == "job"]
            unknown = [e["what"] for e in found if e["kind"] == "unknown"]
            assert unknown == [f"a {stands} stands under {at}"], found
            assert ("holder" in kinds(found)) == (letter not in "hi")
            assert ("waiter" in kinds(found) or "waiting" in kinds(found)) == (letter not in "iql")
        assert kinds(each(own_redis, "other")) == ["holder"]
        thaw(own_redis, ok=False)
        if letter != "r":  # where nothing is a lock's that a freeze needs
            assert "another program has stored something" in admin(own_redis.url, "freeze", "job", BOB, ok=False)[1]
        assert contents(c) == before


@pytest.mark.parametrize("letter", "hiql")
def test_a_freeze_can_be_ended_whatever_stands_in_its_place_by_now(dlock, own_redis, letter):
    freeze(own_redis)
    with own_redis.client() as c:
        c.sadd(f"dlock:{{job}}:{letter}", "x")
        done = dlock.run("thaw", "-u", own_redis.url, "-y", "job")
        assert done.status == 0 and done.stderr == "dlock: job is thawed\n"
        assert not any(e["kind"] == "freeze" for e in each(own_redis, "job"))


HOSTILE = {
    "escape": "\x1b[2J\x07\r\n\u202e{",
    "json": '{"who": ',
    "nul": "a\0b",
    "utf-8": b"\xff\xfe\xc0\x80",
    "long": "x" * (1 << 20),
    "empty": "",
}


@pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)
def test_hostile_records_are_handed_out_as_they_are(own_redis, record):
    raw = record if isinstance(record, bytes) else record.encode()
    with own_redis.client() as c:
        numbers = "s 60000 5 0 0 5"
        for n in range(3):
            c.hset("dlock:{job}:i", owner(n), row(owner(n), numbers, "").encode() + raw)
            c.zadd("dlock:{job}:h", {owner(n): time.time() * 1000 + 3600000})
        c.hset("dlock:{job}:i", owner(9), row(owner(9), "x 60000 0 0 0 0", "").encode() + raw)
        c.zadd("dlock:{job}:q", {owner(9): 7})
        c.hset("dlock:{job}:f", mapping={"since": 5, "until": "", "record": raw})
        c.hset("dlock:{job}:r", mapping={"id": raw, "began": 5, "ended": 6, "status": 0, "token": raw, "who": raw, "good": 5})
    found = each(own_redis, "job")
    assert kinds(found) == ["holder"] * 3 + ["waiter", "freeze", "last"]
    kept = raw.split(b"\0")[0]
    for e in found[:5]:
        told = as_stored(e.get("record", ""))
        assert told == kept[:len(told)] and len(told) >= min(len(kept), 4096)
    assert found[5]["token"] == 0


def lengths_of_hashes(c):
    return {key: {field: c.hstrlen(key, field) for field in c.hkeys(key)} for key in c.keys() if c.type(key) == "hash"}


@pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)
def test_hostile_runs_are_listed_as_far_as_they_are_runs(dlock, own_redis, record):
    raw = record if isinstance(record, bytes) else record.encode()
    run = {"id": raw, "began": raw, "ended": 6, "status": 0, "token": raw, "who": raw}
    with own_redis.client() as c:
        c.hset("dlock:{job}:r", mapping={**run, "good": 7, "good_began": 7, "good_id": raw, "good_ended": raw, "good_who": raw})
        c.hset("dlock:{job}:r:x", mapping=run)  # is not called so
        c.hset("dlock:{job}:r:y", mapping={**run, "id": "y"})
        c.hset("dlock:{job}:r:z", mapping={**run, "id": "z", "status": 1})
        c.hset("dlock:{job}:r:v", mapping={**run, "id": "v", "status": 256})
        c.hset("dlock:{job}:r:%79", mapping={**run, "id": "y"})
        c.hset("dlock:{%6Aob}:r", mapping=run)
        c.hset("dlock:{}:r", mapping=run)
        c.hset("dlock:{job:r", mapping=run)
        for n, put in enumerate((lambda at: c.set(at, "x"), lambda at: c.rpush(at, "x"), lambda at: c.zadd(at, {"x": 1}))):
            put(f"dlock:{{other}}:r:{n}")
        before = lengths_of_hashes(c)
        done = dlock.run("ls", "--jobs", "-J", "-u", own_redis.url)
        assert (done.status, done.stderr) == (0, "") and "\x1b" not in done.stdout, done
        found = {(o["key"], o["id"]): o for o in map(json.loads, done.stdout.splitlines())}
        assert set(found) == {("job", None), ("job", "y"), ("job", "z")}  # which counts for --no-retry
        assert found["job", "z"]["last"]["status"] == 1 and found["job", "z"]["last_success"] is None
        assert found["job", None]["last_success"]["status"] == 0 and found["job", "y"]["last_success"]["token"] is None
        assert "\x1b" not in dlock.run("ls", "--jobs", "-u", own_redis.url).stdout
        assert lengths_of_hashes(c) == before and len(c.keys()) == len(before) + 3


def test_a_success_that_an_older_dlock_has_written(dlock, own_redis):
    """It knows no more than when it began; what was kept of the one before that is not taken for it."""
    words = ["-u", own_redis.url, "-k", "job", "--cooldown", "1ms", "--"]
    assert dlock.run("run", *words, "true").status == 0 and dlock.run("run", *words, "false").status == 1
    good = [e for e in each(own_redis, "job") if e["kind"] == "good"]
    assert len(good) == 1 and good[0]["until"] > good[0]["since"]
    with own_redis.client() as c:
        c.hset("dlock:{job}:r", "good", good[0]["since"] + 5)
    after, = [e for e in each(own_redis, "job") if e["kind"] == "good"]
    assert (after["since"], after["until"], after["token"]) == (good[0]["since"] + 5, -1, 0)
    assert dlock.run("status", "--done-within", "1h", "-u", own_redis.url, "job").status == 0
    assert dlock.run("forget", "-y", "-u", own_redis.url, "job").status == 0
    with own_redis.client() as c:
        assert not c.exists("dlock:{job}:r")


def test_an_older_dlocks_success_is_forgotten_with_its_id(dlock, own_redis):
    """It stands there without its ID, behind a failure; a cooldown does not count from it any more."""
    words = ["-u", own_redis.url, "-k", "job"]
    assert dlock.run("run", *words, "--once", "b", "--", "true").status == 0
    assert dlock.run("run", *words, "--once", "c", "--", "false").status == 1
    with own_redis.client() as c:
        c.hdel("dlock:{job}:r", "good_began", "good_id", "good_ended", "good_token", "good_who")
        assert dlock.run("forget", "-y", *words, "c").status == 0 and c.hget("dlock:{job}:r", "good")
        assert dlock.run("forget", "-y", *words, "b").status == 0 and not c.exists("dlock:{job}:r")


def test_a_run_that_ends_while_all_are_forgotten_stays(dlock, own_redis):
    """With its ID, which was not there yet, the cooldown stays that begins with it."""
    words = ["-u", own_redis.url, "-k", "job", "--once"]
    def sums(c, s):
        return [hashlib.sha1((c.hget(s.last, f) or "").encode()).hexdigest() for f in ("ended", "good")]

    with own_redis.client() as c:
        s = Script(c)
        before = sums(c, s)
        assert dlock.run("run", *words, "a", "--", "true").status == 0
        after = c.hgetall(s.last)
        assert s.forget("", *before) == 0 and c.hgetall(s.last) == after
        before = sums(c, s)
        assert dlock.run("run", *words, "b", "--", "false").status == 1
        assert s.forget("", *before) == 1 and c.hget(s.last, "id") == "b" and not c.hget(s.last, "good")
        assert s.forget("", *sums(c, s)) == 1 and not c.exists(s.last)


def test_a_look_that_is_repeated_leaves_no_doubt_what_was_forgotten(dlock, own_redis, make_proxy):
    """Its connection ends within a look; somebody else forgets all of them meanwhile."""
    assert dlock.run("run", "-u", own_redis.url, "-k", "job", "--once", "a", "--", "true").status == 0
    proxy = make_proxy(own_redis.port)

    def tap(_link, _direction, data):
        if b"\nlast\r" in data and b"EVAL_RO" in data and c.delete("dlock:{job}:r", "dlock:{job}:r:a"):
            raise ConnectionResetError
        return data

    with own_redis.client() as c:
        proxy.tap = tap
        done = dlock.run("forget", "-y", "-u", proxy.url, "job")
    assert done.status == 1 and proxy.connections == 3, done


def test_long_and_odd_runs_are_listed_and_forgotten(dlock, own_redis):
    """Whatever others have written there, a page has room for it; a key that is called as a run is told once."""
    words = ["-u", own_redis.url]
    with own_redis.client() as c:
        for n in range(900):
            once = f"{n:03}" + "x" * 197
            c.hset("dlock:{job}:r:" + once, mapping={"id": once, "began": 1, "ended": 2, "status": 0, "token": "9" * 500, "who": "\x01" * 900})
        c.hset("dlock:{a:r:b}:r", mapping={"began": 1, "ended": 2, "status": 0, "token": 3, "who": "alice"})
    done = dlock.run("ls", "--jobs", "-J", *words)
    assert (done.status, done.stderr) == (0, "") and done.stdout.count("\n") == 901, done.stderr
    assert done.stdout.count('"a:r:b"') == 1


def test_no_run_is_told_where_something_else_stands(dlock, own_redis):
    """A plain status says what it is; who asks for a success is not told that there was none."""
    words = ["-u", own_redis.url, "job"]
    with own_redis.client() as c:
        c.set("dlock:{job}:r", "x")
    assert "a string stands under" in dlock.run("status", *words).stdout
    done = dlock.run("status", "--done-within", "1h", *words)
    assert done.status == 76 and done.stdout == "" and "another program" in done.stderr, done


def test_a_success_stays_known_beside_a_run_that_began_before_it(dlock, own_redis):
    """Readers run side by side: the one that began last counts for the cooldown."""
    words = [At(own_redis.url), "job", "-s", "--cooldown", "1ms"]
    first = dlock.hold(*words)
    second = dlock.hold(*words)
    assert second.finish().status == 0 and first.finish().status == 0
    found = {e["kind"]: e for e in each(own_redis, "job")}
    assert found["last"]["token"] == first.token and found["good"]["token"] == second.token


DAMAGED = {
    "no row": None,
    "empty": "",
    "sum": "x 60000 5 0 0 5 00000000 {}",
    "another owner's": row(owner(77), "x 60000 5 0 0 5"),
    "words": "hello world",
    "kind": "y9",  # with a right sum
    "limit": "l999999999",
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damaged_rows_are_told_as_such(own_redis, damage):
    with own_redis.client() as c:
        for name, put in (("h", lambda who: hold_by_hand(c, "job", who)), ("w", lambda who: wait_by_hand(c, "job", who, 7))):
            who = owner(ord(name))
            put(who)
            if damage is None:
                c.hdel("dlock:{job}:i", who)
            elif re.fullmatch(r"\w\d+", damage):
                c.hset("dlock:{job}:i", who, row(who, f"{damage} 60000 5 0 0 5"))
            else:
                c.hset("dlock:{job}:i", who, damage)
    found = each(own_redis, "job")
    assert kinds(found) == ["unknown", "unknown"]
    assert {e["what"].split()[1] for e in found} == {"holder", "waiter"}


def test_odd_numbers_and_owners_break_nothing(own_redis):
    odd = ["9" * 400, "0", "9007199254740993", "18446744073709551616"]
    with own_redis.client() as c:
        for n, number in enumerate(odd):
            hold_by_hand(c, "job", owner(n), kind="l3", token=number, slot=number, granted=number, ends=["+inf", "1e300", 1e17, None][n])
        for who in ("", "x" * 33, "a b", "\0", "\x1b[2J", "y" * (1 << 20)):
            hold_by_hand(c, "odd", who)
            wait_by_hand(c, "odd", who, 5)
        hold_by_hand(c, "odd", owner(1))
        wait_by_hand(c, "odd", owner(2), 5)
        for ends in ("x", "nan", "1e400", "", "9" * 400):
            c.hset("dlock:{frozen}:f", mapping={"since": ends, "until": ends, "record": ""})
            found = each(own_redis, "frozen")
            assert kinds(found) == ([] if ends == "nan" else ["freeze"]) and all(e["until"] == -1 for e in found)
        for field in ("began", "ended", "token"):
            c.hset("dlock:{last}:r", mapping={"id": "", "began": 5, "ended": 6, "status": 0, "token": 7, "who": "", field: "-1e9"})
            assert kinds(each(own_redis, "last")) == ["last"]
        for status in ("-1", "256", "x", "", "9" * 30):
            c.hset("dlock:{last}:r", "status", status)
            assert kinds(each(own_redis, "last")) == ["unknown"]
    assert kinds(each(own_redis, "job")) == ["holder"] * 4
    assert all(0 <= e["token"] < 2**53 and -1 <= e["since"] < 2**53 and e["until"] > 0 for e in each(own_redis, "job"))
    assert sorted(kinds(each(own_redis, "odd"))) == ["holder"] + ["unknown"] * 12 + ["waiter"]


def test_names_that_no_dlock_gives_are_passed_over(own_redis):
    with own_redis.client() as c:
        hold_by_hand(c, "job", owner(1))
        for name in ("a b", "a}:h", "%6a", "%6Aob", "%6aob", "%zz", "%00", "%", "", "%2f", "x" * 513, "%2F" * 513, "y" * 100000, "a:h}{b"):
            hold_by_hand(c, name, owner(2))
        for name in ("dlock:x:h", "dlock:{x:h", "xdlock:{x}:h", "dlock:{x}:hh", "dlock:{job}:w:", "dlock:{job}:h:x"):
            c.set(name, "x")
        longest = "%2F" * 512
        hold_by_hand(c, longest, owner(3))
        assert sorted(e["key"] for e in each(own_redis)) == ["/" * 512, "job"]


SAID = {
    "error": b"-ERR Error running script\r\n", "integer": b":1\r\n", "nothing": b"*0\r\n", "nil": b"*-1\r\n", "huge": b"*2147483647\r\n",
    "bytes": b"$1048577\r\n", "word": array(b"x"), "number": array(5), "words": array(b"0", b"job", 5), "noscript": b"-NOSCRIPT x\r\n",
    "unknown": b"-ERR unknown command 'EVALSHA_RO'\r\n", "lock": b"*5\r\n:5\r\n:0\r\n:1\r\n*1\r\n*1\r\n$1\r\nh\r\n*0\r\n",
    "kind": b"*5\r\n:5\r\n:0\r\n:1\r\n*1\r\n*1\r\n$1\r\nz\r\n*0\r\n", "flat": b"*5\r\n:5\r\n:0\r\n:1\r\n*1\r\n$1\r\nh\r\n*0\r\n",
    "many": b"*5\r\n:5\r\n:1\r\n:1\r\n*0\r\n*0\r\n",
}


@pytest.mark.parametrize("answer", SAID.values(), ids=SAID)
@pytest.mark.parametrize("words", [["each"], ["each", "job"], ["revoke", "job", "5", "-", BOB], ["freeze", "job", BOB], ["thaw", "job"]],
                         ids=lambda w: "-".join(w[:2]))
def test_an_answer_that_is_none_is_an_error(make_hostile, words, answer):
    server = make_hostile({"*": answer})
    said = admin(server.url, *words, ok=False)[1]
    assert not said.startswith("ok") and "127.0.0.1" in said


# ---- many ----


def fill(client, locks, record):
    """So many locks, half of them with a waiter."""
    pipe = client.pipeline(transaction=False)
    for n in range(locks):
        hold_by_hand(pipe, f"job{n}", owner(n), record=record)
        if n % 2:
            wait_by_hand(pipe, f"job{n}", owner(n + locks), 7, record=record)
        if n % 500 == 499:
            pipe.execute()
    pipe.execute()


def peak_of(pid):
    """The most memory it has had, KiB; None: it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            found = re.search(r"VmHWM:\s*(\d+)", f.read())
    except OSError:
        return None
    return found and int(found[1])


LONGEST = 0.05  # s, of an operation of the server


def has_no_long_operation(client, act):
    """Does `act` ask for none that takes long?  What waits for the processor does not take long: the server comes before all others."""
    with contextlib.suppress(PermissionError):  # then some act of several comes without such a wait
        os.sched_setscheduler(client.info("server")["process_id"], os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    longest = 1
    for _ in range(5):
        client.config_set("slowlog-log-slower-than", 1000)
        client.config_set("slowlog-max-len", 1000)
        client.slowlog_reset()
        act()
        longest = min(longest, max([e["duration"] for e in client.slowlog_get(1000)], default=0) / 1e6)
        if longest < LONGEST:
            return True
    print(f"{longest * 1000:.1f} ms: {client.slowlog_get(5)}")
    return False


class Listing:
    """`each` of all locks, read as it comes."""

    def __init__(self, url):
        began = boottime()
        with subprocess.Popen([ADMIN, "redis", url, "each"], stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline()]
            self.to_first, self.peak = spent(began), 0
            for line in process.stdout:
                lines.append(line)
                if len(lines) % 100 == 0:
                    self.peak = peak_of(process.pid) or self.peak
        assert lines[-1].strip() == "rc ok"
        self.entries = [entry_of(line) for line in lines[:-1]]


def test_ten_thousand_locks_are_told_at_once_and_in_little_memory(own_redis):
    locks, listings = 10000, []
    with own_redis.client() as c:
        fill(c, locks, json.dumps({"who": "somebody@somewhere", "why": "x" * 200}))
        c.mset({f"other{n}": n for n in range(size(20000, 200000))})  # and what else is there
        assert has_no_long_operation(c, lambda: listings.append(Listing(own_redis.url)))
    for listing in listings:
        assert len({e["key"] for e in listing.entries if e["kind"] == "holder"}) == locks
        assert len(listing.entries) == locks * 3 // 2
        assert 0 < listing.peak < 16 * 1024
    assert min(listing.to_first for listing in listings) < 1


def test_a_lock_of_a_crowd_comes_in_pages(own_redis):
    many, looks = 5000, []
    with own_redis.client() as c:
        pipe = c.pipeline(transaction=False)
        for n in range(many):
            # their leases end in another order than they began
            hold_by_hand(pipe, "job", owner(n), kind="s", token=n + 1, record="{}", ends=(time.time() + 3600 + n * 7919 % many) * 1000)
            wait_by_hand(pipe, "job", owner(n + many), 10 + n // 3)  # some tickets twice
        pipe.execute()
        assert has_no_long_operation(c, lambda: looks.append(each(own_redis, "job")))
    found = looks[-1]
    assert [e["token"] for e in found[:many]] == list(range(1, many + 1))
    assert [e["position"] for e in found[many:]] == list(range(1, many + 1))
    assert [e["owner"] for e in found[many:]] == [owner(n + many) for n in range(many)]
    brief = each(own_redis, "job", "brief")
    assert len(brief) == many + 1 and brief[-1]["count"] == many
    with own_redis.client() as c:
        c.hset("dlock:{job}:i", mapping={owner(1): "damaged", owner(2): "damaged"})
        hold_by_hand(c, "job", "\0")
        hold_by_hand(c, "job", "x" * 100)
    assert kinds(each(own_redis, "job", "brief"))[:3] == ["unknown", "unknown", "holder"]


def test_rows_of_a_megabyte_come_one_by_one(own_redis):
    many, looks = 40, []
    with own_redis.client() as c:
        for n in range(many):
            hold_by_hand(c, "job", owner(n), kind="s", token=n + 1, record="x" * (1 << 20))
            wait_by_hand(c, "job", owner(n + many), 10 + n, record="x" * (1 << 20))
        assert has_no_long_operation(c, lambda: looks.append(each(own_redis, "job")))
        found = looks[-1]
        assert kinds(found) == ["holder"] * many + ["waiter"] * many
        assert {e["owner"] for e in found} == {owner(n) for n in range(2 * many)}
        assert [e["position"] for e in found[many:]] == list(range(1, many + 1))
        for n in range(3, many):
            c.zrem("dlock:{job}:h", owner(n))
        assert sorted(e["token"] for e in each(own_redis, "job", "brief")[:-1]) == [1, 2, 3]


def test_a_queue_that_moves_while_it_is_told_is_told_to_its_end(own_redis):
    """Whoever waits all the time is told, though the first ones leave between two pages."""
    many = 500
    with own_redis.client() as c:
        for n in range(many):
            wait_by_hand(c, "job", owner(n), 100 + n)
        with subprocess.Popen([ADMIN, "redis", own_redis.url, "each", "job"], stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline()]
            for n in range(0, many // 2):  # those of the first pages, among them who was told last
                c.zrem("dlock:{job}:q", owner(n))
            lines += process.stdout.readlines()
    found = [e for e in map(entry_of, lines[:-1])]
    assert {e["owner"] for e in found} >= {owner(n) for n in range(many // 2, many)}


# ---- breaking, politely ----


def test_a_polite_break_is_heard_with_the_next_renewal(dlock, own_redis):
    at = At(own_redis.url)
    holder = dlock.hold(at, "job", *LEASE)
    waiter = dlock.contend(at, "job").queued(1)
    target = each(own_redis, "job")[0]
    with own_redis.client() as c:
        wait_for(lambda: ears(c), what="the waiter's subscription")
        c.config_resetstat()
        for process in ("front", "keeper"):  # until the mark was seen
            holder.signal(signal.SIGSTOP, process)
        revoke(own_redis, target)
        found = each(own_redis, "job")
        assert found[0]["revoked"] == 1 and found[0]["record"] == target["record"] and found[0]["token"] == target["token"]
        for process in ("keeper", "front"):
            holder.signal(signal.SIGCONT, process)
        waiter.held()  # since the holder has given it up
        done = holder.wait()
        assert done.status == 79
        found = each(own_redis, "job")
        assert kinds(found) == ["holder"] and found[0]["owner"] != target["owner"] and not found[0]["revoked"]
        assert BOB not in str(c.hgetall("dlock:{job}:i"))
    assert is_alive(waiter.command)
    assert waiter.finish().status == 0


def has_renewed(holder, n=1):
    """So many times from now on."""
    before = renewals(holder)
    wait_for(lambda: renewals(holder) >= before + n or holder.poll() is not None, what="renewals")
    assert holder.poll() is None, holder.stderr()


def renewals(holder):
    return holder.stderr().count("renew: ok")


def connected(server):
    """How many connections it has seen; this one is another."""
    with server.client() as c:
        return c.info("stats")["total_connections_received"]


def is_broken_at_once(server, holder):
    began = boottime()
    revoke(server, each(server, "job")[0])
    assert holder.wait().status == 79
    assert spent(began) < 4


def test_a_holder_listens_once_it_has_renewed(dlock, own_redis):
    """A shorter run has one connection."""
    before = connected(own_redis)
    assert dlock.run("run", "-u", own_redis.url, "-k", "job", "--", "true").status == 0
    assert connected(own_redis) - before == 2
    holder = dlock.hold(At(own_redis.url), "job", "-v", "-t", "60s")
    assert connected(own_redis) - before == 4
    has_renewed(holder, 2)
    assert connected(own_redis) - before == 6
    is_broken_at_once(own_redis, holder)


def test_who_has_waited_listens_on(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job")
    waiter = dlock.contend(At(own_redis.url), "job", "-v", "-t", "60s").queued(1)
    with own_redis.client() as c:
        wait_for(lambda: ears(c) == 1, what="its ear")
    holder.finish()
    waiter.held()
    before = connected(own_redis)
    is_broken_at_once(own_redis, waiter)
    assert renewals(waiter) <= 1 and connected(own_redis) - before == 1 + 2  # ours


def test_a_break_that_comes_as_it_begins_to_listen_is_heard(dlock, own_redis, make_proxy):
    """Between the renewal and the subscription: a renewal follows soon."""
    proxy = make_proxy(own_redis.port)
    broken = []

    def tap(_link, _direction, data):
        if b"\nSUBSCRIBE\r" in data and not broken:
            broken.append(boottime())
            revoke(own_redis, each(own_redis, "job")[0])
        return data

    proxy.tap = tap
    holder = dlock.hold(At(proxy.url), "job", "-t", "60s")
    assert holder.wait().status == 79
    assert spent(broken[0]) < 4


def test_a_holder_whose_server_is_late_when_it_asks_to_listen_asks_again(dlock, own_redis, make_proxy):
    """Not at its next regular renewal, which is due after 80 s."""
    proxy = make_proxy(own_redis.port)
    swallowed = []

    def tap(_link, _direction, data):
        if b"\nSUBSCRIBE\r" in data and not swallowed:
            swallowed.append(data)
            return b""
        return data

    proxy.tap = tap
    holder = dlock.hold(At(proxy.url), "job", "-t", "240s")
    with own_redis.client() as c:
        wait_for(lambda: swallowed and c.pubsub_channels(), what="it to listen")
    assert holder.finish().status == 0


def test_a_holder_whose_listening_ends_listens_again(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", "-v", "-t", "60s")
    has_renewed(holder, 2)
    time.sleep(1)  # it begins once a second
    with own_redis.client() as c:
        assert c.client_kill_filter(_type="pubsub") == 1
        has_renewed(holder)
        wait_for(lambda: c.pubsub_channels("dlock:*"), what="its ear")
    time.sleep(2)  # it looks once more as it begins to listen
    is_broken_at_once(own_redis, holder)


def test_a_holder_whose_listening_always_ends_opens_no_end_of_connections(dlock, own_redis):
    """One for each renewal at most, of which there are few; and the hold goes on."""
    holder = dlock.hold(At(own_redis.url), "job", "-v", *LEASE)
    has_renewed(holder)
    with own_redis.client() as c:
        before, renewed = c.info("stats")["total_connections_received"], renewals(holder)
        for _ in range(200):
            c.client_kill_filter(_type="pubsub")
            time.sleep(0.05)
        opened = c.info("stats")["total_connections_received"] - before
        assert 1 <= opened <= renewals(holder) - renewed + 1 <= 25
    assert holder.finish().status == 0


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_server_that_takes_no_second_connection_costs_no_hold(dlock, own_redis, make_proxy, how):
    """What a holder hears then it hears by its renewals."""
    proxy = make_proxy(own_redis.port)
    holder = dlock.hold(At(proxy.url), "job", "-v", "-t", "12s")
    if how == "refused":
        proxy.refuse()
    else:
        proxy.tap = lambda _link, _direction, data: b"" if b"\nSUBSCRIBE\r" in data else data
    has_renewed(holder, 3)
    said = holder.stderr()
    assert "no answer" not in said and said.count("dlock:") == 1 + said.count("renew: ok"), said
    revoke(own_redis, each(own_redis, "job")[0])
    assert holder.wait().status == 79


def test_a_flood_of_messages_is_no_flood_of_renewals(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", "-v", "-t", "60s")
    has_renewed(holder, 2)
    with own_redis.client() as c:
        (channel,) = c.pubsub_channels("dlock:*")
        before, began = renewals(holder), boottime()
        while boottime() < began + 2:
            c.publish(channel, "x" * 1000)
        assert renewals(holder) - before <= 5 + (boottime() - began) / 2 + 1
    is_broken_at_once(own_redis, holder)


def test_a_mark_is_of_one_grant(dlock, own_redis):
    at = At(own_redis.url)
    holder = dlock.hold(at, "job")
    next_one = dlock.contend(at, "job").queued(1)
    old = each(own_redis, "job")[0]
    holder.finish()
    next_one.held()
    new = each(own_redis, "job")[0]
    for target in (old, {**old, "owner": "-"}, {"token": 0, "owner": old["owner"]}, {**new, "owner": old["owner"]},
                   {**new, "token": old["token"]}, {"token": 0, "owner": "-"}, {"token": 0, "owner": ""}, {"token": 1, "owner": "-"}):
        for force in ((), ("force",)):
            assert revoke(own_redis, target, *force, ok=False).startswith("not ours")
    found = each(own_redis, "job")
    assert kinds(found) == ["holder"] and found[0]["revoked"] == 0
    assert next_one.finish().status == 0
    assert revoke(own_redis, new, ok=False).startswith("not ours")
    assert each(own_redis) == []


@pytest.mark.parametrize("by", ["token", "owner", "both"])
def test_a_grant_is_known_by_token_or_owner(script, own_redis, by):
    for o in "abc":
        script.acquire(o, "s")
    found = {e["owner"]: e for e in each(own_redis, "job")}
    target = {"token": found["b"]["token"] if by != "owner" else 0, "owner": "b" if by != "token" else "-"}
    revoke(own_redis, target)
    assert {e["owner"]: e["revoked"] for e in each(own_redis, "job")} == {"a": 0, "b": 1, "c": 0}
    assert script.renew("a")[0] == script.renew("c")[0] == 1
    revoke(own_redis, target, "force")
    assert {e["owner"] for e in each(own_redis, "job")} == {"a", "c"}


def test_the_newer_mark_wins_and_each_renewal_tells_it(script, own_redis):
    script.acquire("a")
    target = each(own_redis, "job")[0]
    for record in (BOB, '{"who":"eve"} 12 {}', "", "5 " * 300):
        revoke(own_redis, target, record=record)
        for _ in range(2):
            code, token, slot, mark = script.renew("a")
            assert (code, int(token), slot, mark) == (6, target["token"], 0, record)
    assert script.release("a") == 1 and script.acquire("a")[0] == 1
    assert script.renew("a")[0] == 1
    script.release("a")


def test_a_waiter_does_not_keep_the_mark_of_its_lost_grant(script, own_redis):
    """Whom an outage took the lock from stands in the queue again, as the same owner."""
    script.acquire("a")
    revoke(own_redis, each(own_redis, "job")[0])
    script.client.zadd(script.keys[0], {"a": 1})
    assert script.renew("a") == [0]  # its lease ran out: nobody took it
    assert script.acquire("b")[0] == 1
    assert script.acquire("a")[0] == 0
    script.release("b")
    assert script.acquire("a")[0] == 1 and script.renew("a")[0] == 1


def test_a_marked_row_is_one_for_the_script_of_before(script, own_redis):
    """A holder of another version may stand beside: its row is not to be taken for damaged."""
    script.acquire("a")
    revoke(own_redis, each(own_redis, "job")[0])
    stored = script.client.hget(script.keys[1], "a")
    assert re.fullmatch(r"x \d+ \d+ \d+ \d \d+ [0-9a-f]{8} .*", stored)
    numbers, total = re.match(r"(.*?) ([0-9a-f]{8}) ", stored).groups()
    assert total == hashlib.sha1(f"a {numbers}".encode()).hexdigest()[:8]


def test_a_break_of_a_holder_that_ends_meanwhile_never_hits_the_next(dlock, own_redis):
    at = At(own_redis.url)
    for round_ in range(size(8, 50)):
        holder = dlock.hold(at, "job")
        next_one = dlock.contend(at, "job").queued(1)
        target = each(own_redis, "job")[0]
        breaker = subprocess.Popen([ADMIN, "redis", own_redis.url, "revoke", "job", str(target["token"]), target["owner"], BOB,
                                    *(["force"] if round_ % 2 else [])], stdout=subprocess.PIPE, text=True)
        holder.popen.stdin.close()
        assert breaker.communicate()[0].startswith(("rc ok", "rc not ours"))
        next_one.held()
        found = [e for e in each(own_redis, "job") if e["kind"] == "holder" and e["token"] != target["token"]]
        assert len(found) == 1 and not found[0]["revoked"]
        assert next_one.finish().status == 0
        assert holder.wait().status in (0, 79)


# ---- by force ----


def test_force_hands_the_lock_on_at_once_and_the_loser_is_told_who_did_it(dlock, own_redis, script):
    holder = dlock.hold(At(own_redis.url), "job", *LEASE)
    waiter = dlock.contend(At(own_redis.url), "job", "-t", "60s").queued(1)
    target = each(own_redis, "job")[0]
    with own_redis.client() as c:
        wait_for(lambda: ears(c), what="the waiter's subscription")
        before = calls(c, "publish")
        revoke(own_redis, target, "force")
        waiter.held()
        assert calls(c, "publish") - before == 2  # the holder is told, too
    found = each(own_redis, "job")
    assert kinds(found) == ["holder"] and found[0]["token"] > target["token"]
    assert script.renew(target["owner"]) == [0, BOB]
    assert holder.wait().status == 79
    assert is_alive(waiter.command)
    assert waiter.finish().status == 0


def test_whose_lock_was_taken_by_force_is_told_by_whom_also_at_the_end(dlock, own_redis):
    """No renewal comes before it."""
    holder = dlock.hold(At(own_redis.url), "job", "-t", "1h")
    revoke(own_redis, each(own_redis, "job")[0], "force")
    done = holder.finish()
    assert done.status == 79 and "bob@office" in done.stderr and "expired" not in done.stderr, done


def is_broken(script, server, lease):
    """Is a hold of so many ms taken away by force before it ends by itself?"""
    script.acquire("a", lease=lease)
    found = [e for e in each(server, "job") if e["kind"] == "holder"]
    return found and revoke(server, found[0], "force", ok=False).strip() == "ok"


def test_nothing_stays_of_a_forced_break_when_its_holder_is_dead(script, own_redis):
    for lease in (50, 30000, 400 * 86400 * 1000):
        while not is_broken(script, own_redis, lease):  # where it takes so long to begin a program, it has ended before
            lease *= 2
        assert -1 not in [script.client.pttl(k) for k in script.client.keys()]
        left = script.client.zscore(script.keys[3], "a")
        assert left is None or left < time.time() * 1000 + 61000
        freeze(own_redis)
        script.acquire("w")
        script.client.zadd(script.keys[3], {"a": 1}, xx=True)
        assert [e["count"] for e in each(own_redis, "job", "brief") if e["kind"] == "waiting"] == [1]
        script.release("w")
        thaw(own_redis)
        assert script.acquire("b")[0] == 1
        assert script.client.hkeys(script.keys[1]) and "a" not in script.client.hkeys(script.keys[1])
        script.release("b")


def test_a_forced_break_is_done_on_a_server_without_memory(script, own_redis):
    script.acquire("a")
    target = each(own_redis, "job")[0]
    script.client.config_set("maxmemory", "1")
    said = revoke(own_redis, target, "force", ok=False)
    script.client.config_set("maxmemory", "0")
    assert said.strip() == "ok" and each(own_redis) == []


# ---- freezing ----


SOON = 3  # s: without being called, one would have to wait for a beat
KINDS = {"x": [], "s": ["-s"], "limit": ["--limit", "2"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_nobody_passes_a_freeze_and_thaw_wakes_who_can_be_granted(dlock, own_redis, kind, held):
    at, words = At(own_redis.url), KINDS[kind]
    holder = dlock.hold(at, "job", "-t", "60s") if held else None
    if held:
        early = dlock.contend(at, "job", *words).queued(1)
    freeze(own_redis)
    if not held:
        early = dlock.contend(at, "job", *words).queued(1)
    late = [dlock.contend(at, "job", *words).queued(n) for n in (2, 3)]
    with own_redis.client() as c:
        wait_for(lambda: ears(c) == 3, what="their ears")
        if held:
            assert is_alive(holder.command) and holder.finish().status == 0
        for n in ([], ["-s"], ["--limit", "2"]):
            done = dlock.run("run", "-u", own_redis.url, "-k", "job", *n, "-n", "--", "true")
            assert done.status == (75 if n == words or not n or kind == "x" else 76), done
        beats = calls(c)
        wait_for(lambda: calls(c) >= beats + 3, what="beats")  # the first in line asks, and is refused
        assert not any(w.running for w in (early, *late))
        assert kinds(each(own_redis, "job")) == ["waiter"] * 3 + ["freeze"]
        wake = [early] + {"x": [], "s": late, "limit": late[:1]}[kind]
        before = calls(c, "publish")
        thaw(own_redis)
        assert calls(c, "publish") - before == len(wake)
        assert not c.exists("dlock:{job}:f")
    for w in wake:
        w.held()
    assert [w.running for w in (early, *late)] == [w in wake for w in (early, *late)]
    for w in (early, *late):
        assert w.finish().status == 0
    assert thaw(own_redis, ok=False).startswith("not ours")


def test_a_waiter_is_told_who_froze_it_and_since_when(script, own_redis):
    script.acquire("a", "s")
    freeze(own_redis)
    code, place, left, held, record, ticket, kind, count, frozen = script.acquire("w", "s")
    assert (code, place, record, kind, count, frozen) == (0, 1, "{}", "s", 1, 1)  # of the holder, while there is one
    script.release("a")
    time.sleep(0.05)
    code, place, left, held, record, ticket, kind, count, frozen = script.acquire("w", "s")
    assert (code, place, left, record, kind, count, frozen) == (0, 1, 0, BOB, "x", 0, 1) and 50 <= held < 20000
    freeze(own_redis, 20, record="{1}")
    answer = script.acquire("w", "s")
    assert 0 < answer[2] <= 20001 and answer[4] == "{1}" and answer[-1] == 1
    assert script.acquire("n", "l3", alive=0) == [-1, "s"]
    assert script.acquire("n", "x", alive=0)[:2] == [0, 2]
    thaw(own_redis)
    assert script.acquire("w", "s")[0] == 1


def test_a_freeze_and_its_reason_are_seen_by_who_waits(dlock, own_redis):
    freeze(own_redis, record='{"who":"carol","why":"weekend"}')
    done = dlock.run("run", "-u", own_redis.url, "-k", "job", "-n", "--", "true")
    assert done.status == 75 and re.search('is frozen by carol.*"weekend"', done.stderr)


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_who_waits_has_it_soon_after_a_freeze_ends_by_itself(dlock, own_redis, held):
    at = At(own_redis.url)
    holder = dlock.hold(at, "job", "-t", "60s") if held else None
    if not held:
        freeze(own_redis)
    waiter = dlock.contend(at, "job", "-t", "60s").queued(1)
    with own_redis.client() as c:
        wait_for(lambda: ears(c), what="its ears")
        freeze(own_redis, 2)
        ends = int(c.hget("dlock:{job}:f", "until")) / 1e6
        if held:
            holder.finish()
    granted = waiter.token / 1e6
    assert ends <= granted < ends + SOON, granted - ends
    assert waiter.finish().status == 0
    assert each(own_redis) == [] and thaw(own_redis, ok=False).startswith("not ours")


def test_the_next_in_line_takes_over_who_looked_for_the_end_of_a_freeze(dlock, own_redis):
    freeze(own_redis, 4)
    first = dlock.contend(At(own_redis.url), "job").queued(1)
    second = dlock.contend(At(own_redis.url), "job").queued(2)
    with own_redis.client() as c:
        ends = int(c.hget("dlock:{job}:f", "until")) / 1e6
        wait_for(lambda: len(c.pubsub_channels("dlock:*")) == 2, what="their ears")
        first.signal(signal.SIGTERM)
        first.wait()
    assert ends <= second.token / 1e6 < ends + SOON


def test_who_looked_for_the_end_of_a_freeze_is_killed(dlock, own_redis):
    """Those near behind it ask as well; the grant that nobody takes up lasts a second."""
    freeze(own_redis, 4)
    first = dlock.contend(At(own_redis.url), "job").queued(1)
    second = dlock.contend(At(own_redis.url), "job").queued(2)
    with own_redis.client() as c:
        ends = int(c.hget("dlock:{job}:f", "until")) / 1e6
        wait_for(lambda: len(c.pubsub_channels("dlock:*")) == 2, what="their ears")
        first.destroy()
    assert ends <= second.token / 1e6 < ends + SOON, second.token / 1e6 - ends


def test_the_first_in_line_is_called_to_ask_when_a_freeze_will_end(script, own_redis):
    """Others do not: of a crowd one finds the end."""
    script.acquire("a")
    script.acquire("v")
    script.acquire("w")
    heard = script.client.pubsub(ignore_subscribe_messages=True)
    heard.psubscribe("dlock:*")

    def called():
        script.client.publish("dlock:end", "")
        names = iter(lambda: heard.get_message(timeout=10)["channel"].rsplit(":", 1)[1], "end")
        return "".join(names)

    heard.get_message(timeout=10)
    freeze(own_redis)
    assert called() == ""
    freeze(own_redis, 3600)
    assert called() == "v"
    assert script.renew("a")[0] == 1 and script.acquire("w")[0] == script.acquire("v")[0] == 0
    assert called() == ""
    script.release("a")
    assert called() == "v"
    script.release("v")
    assert called() == "w"
    freeze(own_redis)
    script.acquire("z")
    script.release("w")
    assert called() == ""
    thaw(own_redis)
    assert called() == "z"


def test_a_second_freeze_replaces_the_first(script, own_redis):
    freeze(own_redis, 3600)
    assert 0 < script.client.pttl("dlock:{job}:f") <= 3600001  # its end is a whole ms, rounded up
    freeze(own_redis, record="{2}")
    assert script.client.pttl("dlock:{job}:f") == -1
    (found,) = each(own_redis, "job")
    assert (found["until"], found["record"]) == (-1, "{2}") and found["since"] <= found["now"]
    freeze(own_redis, 3)
    assert 0 < script.client.pttl("dlock:{job}:f") <= 3001
    wait_for(lambda: not script.client.exists("dlock:{job}:f"), what="its end")
    assert script.acquire("a")[0] == 1


def test_a_queue_before_a_freeze_does_not_expire(script, own_redis):
    freeze(own_redis)
    script.acquire("w")
    for key in script.keys[2:4]:
        script.client.pexpire(key, 12000)
    assert script.acquire("w")[0] == 0  # as it does with each beat
    assert all(script.client.pttl(key) > 50000 for key in script.keys[2:4])


def test_a_job_that_is_done_is_done_whatever_is_frozen(dlock, own_redis):
    words = ["run", "-u", own_redis.url, "-k", "job", "--once", "today", "--", "echo", "ran"]
    assert dlock.run(*words).stdout == "ran\n"
    freeze(own_redis)
    done = dlock.run(*words)
    assert (done.status, done.stdout) == (0, "")


def test_a_freeze_outlives_the_restart_of_its_server(dlock, make_redis):
    server = make_redis("--appendonly", "yes", "--appendfsync", "always")
    freeze(server)
    freeze(server, 3600, key="hour")
    waiter = dlock.contend(At(server.url), "job", "-t", "30s").queued(1)
    server.restart()
    assert kinds(each(server, "hour")) == kinds(e for e in each(server, "job") if e["kind"] == "freeze") == ["freeze"]
    with server.client() as c:
        wait_for(lambda: c.zcard("dlock:{job}:q"), what="the waiter's return")
        assert not waiter.running
        thaw(server)
    assert waiter.held().finish().status == 0


def test_any_history_with_freezes_and_breaks_is_sound(script, own_redis):
    """What the common contract says, from many histories."""
    dice = random.Random(7)
    frozen, held, line, n = False, {}, [], 0

    def steer(*words):
        return script._run(script.keys, list(words))[0]

    for _ in range(1500):
        act = dice.random()
        if act < 0.35:
            n += 1
            kind = dice.choice(["x", "s", "s"])
            answer = script.acquire(f"o{n}", kind)
            if answer[0] >= 0:
                line.append(f"o{n}")
            assert not (frozen and answer[0] == 1)
        elif act < 0.5 and line:
            who = dice.choice(line)
            was = who in script.holders()
            assert script.acquire(who)[0] == (1 if was else 0)
        elif act < 0.7 and line:
            who = dice.choice(line)
            script.release(who)
            line.remove(who)
        elif act < 0.8 and script.holders():
            who = dice.choice(list(script.holders()))
            assert steer("revoke", who, "0", "m", "1") == 1
            line.remove(who)
            assert steer("revoke", who, "0", "m", "1") == 0
        elif act < 0.85:
            assert steer("freeze", "", "{}", "0") == 1
            frozen = True
        else:
            assert steer("thaw", "") == (1 if frozen else 0)
            frozen = False
        now = script.holders()
        assert not frozen or set(now) <= set(held)
        waiting = script.waiters()
        assert set(now) | set(waiting) == set(line)
        assert line[:len(now)] == [o for o in line if o in now]  # first come, first served
        if waiting and not frozen:
            first = script.client.hget(script.keys[1], waiting[0]).split(" ")[0]
            assert now and "x" in (first, *(k for k, _, _ in now.values()))
        held = now


def test_what_stands_in_the_place_of_a_freeze_does_not_harm_a_holder(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", *LEASE)
    with own_redis.client() as c:
        c.set("dlock:{job}:f", "x")
        renewals = calls(c)
        wait_for(lambda: calls(c) > renewals + 1, what="renewals")
        assert dlock.run("run", "-u", own_redis.url, "-k", "job", "-n", "--", "true").status == 76
        assert holder.finish().status == 0


def test_steering_is_one_question(own_redis, script):
    script.acquire("a")
    target = each(own_redis, "job")[0]
    with own_redis.client() as c:
        thaw(own_redis, ok=False)
        c.config_resetstat()
        for act in (lambda: revoke(own_redis, target), lambda: freeze(own_redis), lambda: thaw(own_redis)):
            before = calls(c)
            act()
            assert calls(c) - before == 1 and calls(c, "eval") == 0
