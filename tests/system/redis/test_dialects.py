# Goal of these tests: dlock keeps a lock in Redis exactly as other tools keep it, so that
# they exclude it and are excluded, and each wakes the other where there is a way.
# redis-py is the real one; Redisson is re-enacted (redis_dialects.py) by what its own
# scripts do, and the first tests of it hold the re-enactment to what those were seen to do.

import json
import re
import threading
import time

import pytest
import redis
import redis.lock

from redis_dialects import A, B, D, DIALECTS, Redisson, around
from support import BRIEFLY, FULL, At, wait_for

LEASE = ("-t", "3s")


class Dialect(At):
    """A lock on a server of the test's own."""

    counted = False

    def __init__(self, server, dialect):
        super().__init__(server.url)
        self.words += ["-O", f"dialect={dialect}"]
        self.name, self.server, self.side = dialect, server, f"dlock:{dialect}:{{job}}"


@pytest.fixture
def client(own_redis):
    with own_redis.client() as c:
        yield c


@pytest.fixture
def string(own_redis):
    return Dialect(own_redis, "string")


@pytest.fixture
def redisson(own_redis):
    return Dialect(own_redis, "redisson")


@pytest.fixture
def fenced(own_redis):
    return Dialect(own_redis, "redisson-fenced")


@pytest.fixture(params=DIALECTS if FULL else ["string", "redisson-rw"])
def dialect(request, own_redis):
    return Dialect(own_redis, request.param)


def options_of(place):
    return ("--limit", "1") if place.name == "redisson-semaphore" else ()


def look(dlock, place, key="job"):
    done = dlock.run("status", *place.words, "-k", key, "-J")
    assert done.status in (0, 1), done
    return json.loads(done.stdout)


def run(dlock, place, *options, key="job", command=("true",)):
    return dlock.run("run", *place.words, *options_of(place), "-k", key, *options, "--", *command)


def dump(client):
    """All there is, but for our own keys."""
    return {k: client.dump(k) for k in client.keys("*") if not k.startswith("dlock:")}


# ---- what all have in common ----


@pytest.mark.parametrize("name", ["", "redis", "String", "redisson-", "nativ"])
def test_a_dialect_that_does_not_exist(dlock, name):
    done = dlock.run("run", "-u", "redis://127.0.0.1:1", "-O", f"dialect={name}", "-k", "job", "--", "true")
    assert done.status == 64 and f"'{name}'" in done.stderr and all(d in done.stderr for d in ("native", *DIALECTS))


def test_who_forgets_the_dialect_is_not_excluded(dlock, own_redis, dialect):
    hold = dlock.hold(dialect, "job", *options_of(dialect))
    assert dlock.run("run", "-n", "-u", own_redis.url, "-k", "job", "--", "true").status == 0
    assert hold.finish().status == 0


def test_native_is_what_it_is_without(dlock, own_redis, client):
    assert dlock.run("run", "-u", own_redis.url, "-O", "dialect=native", "-k", "job", "--", "true").status == 0
    assert client.keys("*") == ["dlock:{job}:i"]


@pytest.mark.parametrize("key", ["job", "a b/ü", "{a}b", "x{", "*", "dlock", "%"])
def test_the_key_is_exactly_the_users(dlock, dialect, client, key):
    hold = dlock.hold(dialect, key, *options_of(dialect))
    assert client.exists(key)
    others = [k for k in client.keys("*") if k != key]
    assert all(key in k for k in others), others
    listed = dlock.run("ls", *dialect.words, "-J")
    assert [json.loads(line)["key"] for line in listed.stdout.splitlines()] == [key]
    assert look(dlock, dialect, key)["holders"][0]["token"] == hold.token
    assert hold.finish().status == 0
    assert dlock.run("ls", *dialect.words, "-J").stdout == ""


def test_our_keys_lie_in_the_slot_of_the_lock(dlock, dialect, client, make_redis):
    """Whatever tag the user has chosen; Redisson's own do not where a brace is not closed."""
    cluster = make_redis("--cluster-enabled", "yes")
    with cluster.client() as c:
        for key in ("job", "a b", "{a}b", "a{b}c{d}", *(("x{", "{x") if dialect.name == "string" else ())):
            hold = dlock.hold(dialect, key, *options_of(dialect))
            assert len({c.cluster("keyslot", k) for k in client.keys("*")}) == 1, client.keys("*")
            hold.finish()
            client.flushall()


def test_what_is_no_lock_is_refused_and_not_touched(dlock, dialect, client):
    client.rpush("job", "x")
    before = client.dump("job")
    done = run(dlock, dialect)
    assert (done.status, done.stderr.count("\n")) == (76, 1) and "job" in done.stderr, done
    assert client.dump("job") == before and client.keys("*") == ["job"]
    told = dlock.run("status", *dialect.words, "-k", "job")
    assert told.status == 0 and "a list stands under this key" in told.stdout


@pytest.mark.parametrize("dialect", ["symfony"], indirect=True)
def test_a_lock_of_an_older_symfony_is_waited_for(dlock, dialect, client):
    """Until 5.2 it is a string."""
    client.set("job", "0123456789", px=2500)
    busy = run(dlock, dialect, "-n")
    assert busy.status == 75 and "0123456789" in busy.stderr, busy
    assert run(dlock, dialect, "-s", "-n").status == 75
    waiter = dlock.contend(dialect, "job", command=("true",))
    assert waiter.wait().status == 0


def test_what_becomes_of_a_key_while_it_is_held(dlock, dialect, client):
    hold = dlock.hold(dialect, "job", *options_of(dialect), *LEASE)
    client.delete("job", "{job}:timeout")
    client.rpush("job", "x")
    assert hold.wait().status == 79
    assert client.lrange("job", 0, -1) == ["x"]


def test_a_lost_lock_is_never_made_again(dlock, dialect, client):
    hold = dlock.hold(dialect, "job", *options_of(dialect), *LEASE)
    client.flushall()
    done = hold.wait()
    assert done.status == 79 and "no longer names us as the holder" in done.stderr
    assert dump(client) == {}


def test_the_lease_is_renewed_and_nothing_else(dlock, dialect, client):
    hold = dlock.hold(dialect, "job", *options_of(dialect), *LEASE)
    before = client.type("job"), sorted(client.keys("*"))
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert dialect.name == "redisson-semaphore" or 0 < client.pttl("job") <= 3000
        time.sleep(0.1)
    assert (client.type("job"), sorted(client.keys("*"))) == before
    assert hold.finish().status == 0


def test_tokens_grow_through_the_loss_of_ours(dlock, dialect, client):
    tokens = []
    for lose in (False, True, False):
        tokens.append(int(run(dlock, dialect, command=("sh", "-c", "echo $DLOCK_TOKEN")).stdout))
        if lose:
            client.delete(dialect.side)
    assert tokens == sorted(set(tokens))


def test_a_hold_outlives_the_loss_of_our_key(dlock, dialect, client):
    hold = dlock.hold(dialect, "job", *options_of(dialect), *LEASE)
    client.delete(dialect.side)
    time.sleep(4)
    assert hold.finish().status == 0


@pytest.mark.parametrize("record", ["x" * 1000000, "\0"], ids=["endless", "nul"])
def test_an_absurd_record_is_cut(dlock, dialect, client, record):
    """Who finds the key held is told so, whatever stands at our side."""
    holder = dlock.hold(dialect, "job", *options_of(dialect), "-t", "1h")
    for who, row in client.hgetall(dialect.side).items():
        client.hset(dialect.side, who, row if who == "#token" else row + record)
    done = run(dlock, dialect, "-n")
    assert done.status == 75, done
    assert holder.finish().status == 0


def test_a_no_comes_from_a_master(dlock, dialect, make_redis):
    """A replica that has not heard of a hold does not end it: the renewal is not answered."""
    master = make_redis()
    place = Dialect(master, dialect.name)
    hold = dlock.hold(place, "job", *options_of(place), "-t", "6s")
    with master.client() as c:
        c.flushall()
        c.replicaof("127.0.0.1", "1")
        time.sleep(3)
        assert hold.poll() is None
        c.replicaof("no", "one")
    assert hold.wait().status == 79


def test_status_shows_who_holds(dlock, dialect):
    hold = dlock.hold(dialect, "job", *options_of(dialect), "--why", "4711")
    (h,) = look(dlock, dialect)["holders"]
    assert (h["token"], h["why"], h["foreign"]) == (hold.token, "4711", False)
    assert 20 < h["lease_left_s"] <= 30
    done = run(dlock, dialect, "-n")
    assert done.status == 75 and "4711" in done.stderr
    hold.finish()
    assert look(dlock, dialect)["state"] == "free"


def test_force_takes_it_away_and_what_cannot_be_done_is_said(dlock, dialect):
    hold = dlock.hold(dialect, "job", *options_of(dialect), *LEASE)
    for words in (("break", "-y"), ("freeze",), ("thaw", "-y")):
        done = dlock.run(words[0], *dialect.words, "-k", "job", *words[1:])
        assert done.status == 78 and "cannot" in done.stderr, done
    assert dlock.run("break", *dialect.words, "-k", "job", "--token", str(hold.token + 1000), "--force").status in (1, 75)
    assert hold.poll() is None
    assert dlock.run("break", *dialect.words, "-k", "job", "--token", str(hold.token), "--force").status == 0
    assert run(dlock, dialect, "-n").status == 0
    assert hold.wait().status == 79


# ---- string: redis-py's Lock, the real one ----


def test_the_string_is_what_others_write(dlock, string, client):
    hold = dlock.hold(string, "job")
    assert re.fullmatch("[0-9a-f]{32}", client.get("job"))
    assert 0 < client.pttl("job") <= 30000
    assert client.type(string.side) == "hash"
    assert hold.finish().status == 0
    assert client.keys("*") == [string.side]


def test_redis_py_and_dlock_exclude_each_other(dlock, string, client):
    theirs = redis.lock.Lock(client, "job", timeout=30)
    assert theirs.acquire(blocking=False)
    assert run(dlock, string, "-n").status == 75
    (h,) = look(dlock, string)["holders"]
    assert h["foreign"] and h["owner"] == theirs.local.token.decode() and 20 < h["lease_left_s"] <= 30
    theirs.release()
    hold = dlock.hold(string, "job")
    assert not theirs.acquire(blocking=False)
    assert hold.finish().status == 0
    assert theirs.acquire(blocking=False)


def test_redis_py_waits_for_dlock_and_dlock_for_redis_py(dlock, string, client):
    hold = dlock.hold(string, "job")
    theirs = redis.lock.Lock(client, "job", timeout=30)
    got = threading.Thread(target=theirs.acquire)
    theirs.local = type("Shared", (), {"token": None})()
    got.start()
    time.sleep(0.3)
    assert got.is_alive()
    hold.finish()
    got.join(20)
    assert not got.is_alive()
    waiter = dlock.contend(string, "job").queued()
    time.sleep(0.5)
    assert not waiter.running
    theirs.release()
    waiter.event("started", timeout=10)  # their lease would go on for longer
    assert waiter.finish().status == 0


def test_what_redis_py_extends_is_waited_for(dlock, string, client):
    theirs = redis.lock.Lock(client, "job", timeout=1)
    assert theirs.acquire()
    waiter = dlock.contend(string, "job").queued()
    theirs.extend(3)
    assert 3000 < client.pttl("job") <= 4000
    wait_for(lambda: client.pttl("job") < 1500)
    assert not waiter.running
    waiter.event("started", timeout=10)  # it has run out
    assert waiter.finish().status == 0


def test_who_is_no_owner_releases_nothing(dlock, string, client):
    hold = dlock.hold(string, "job")
    theirs = redis.lock.Lock(client, "job", timeout=30)
    for call in (theirs.release, lambda: theirs.extend(10), theirs.reacquire):
        theirs.local.token = b"another"
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            call()
    assert hold.finish().status == 0
    # and the other way: dlock, whose lock was taken over, leaves it alone
    hold = dlock.hold(string, "job", *LEASE)
    client.set("job", "theirs", px=60000)
    assert hold.wait().status == 79
    assert client.get("job") == "theirs" and client.pttl("job") > 50000
    client.delete("job")
    hold = dlock.hold(string, "job")
    client.set("job", "theirs", px=60000)
    assert hold.finish().status == 79  # found out by the release
    assert client.get("job") == "theirs"


def test_a_key_without_an_end_is_reported_and_not_touched(dlock, string, client):
    theirs = redis.lock.Lock(client, "job")  # no timeout: redis-py's default
    assert theirs.acquire()
    done = run(dlock, string, "-w", BRIEFLY)
    assert done.status == 75 and "no end" in done.stderr, done
    (h,) = look(dlock, string)["holders"]
    assert h["foreign"] and h["lease_left_s"] is None and "without an end" in h["what"]
    assert client.pttl("job") == -1
    waiter = dlock.contend(string, "job").queued()
    theirs.release()
    assert waiter.held().finish().status == 0


def test_a_value_may_be_any_bytes(dlock, string, client):
    client.set("job", b"\xff\x00\n\x1b[31m" + b"x" * 5000, px=60000)
    done = run(dlock, string, "-n")
    assert done.status == 75 and done.stderr.count("\n") == 1 and "\x1b" not in done.stderr
    told = dlock.run("status", *string.words, "-k", "job")
    assert told.status == 0 and "\x1b" not in told.stdout
    assert look(dlock, string)["state"] == "held"


NO_SCRIPTS = [("renamed", ("--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "")),
              ("acl", ("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-eval", "-evalsha"))]


@pytest.fixture(params=NO_SCRIPTS, ids=lambda p: p[0])
def unscripted(request, make_redis):
    """A server that runs no scripts."""
    return make_redis(*request.param[1])


def test_without_scripts(dlock, unscripted):
    place = Dialect(unscripted, "string")
    with unscripted.client() as c:
        hold = dlock.hold(place, "job", *LEASE)
        assert re.fullmatch("[0-9a-f]{32}", c.get("job"))
        assert run(dlock, place, "-n").status == 75
        waiter = dlock.contend(place, "job").queued()
        time.sleep(4)  # it is renewed
        assert hold.finish().status == 0
        assert waiter.held().token > hold.token
        assert waiter.finish().status == 0
        assert c.keys("*") == [place.side]
        c.set("job", "theirs")
        done = run(dlock, place, "-w", BRIEFLY)
        assert done.status == 75 and "without an end" in done.stderr, done
        assert (c.get("job"), c.pttl("job")) == ("theirs", -1)
        c.delete("job")
        c.rpush("job", "x")
        assert run(dlock, place).status == 76
        c.delete("job")
        hold = dlock.hold(place, "job", *LEASE)
        c.set("job", "theirs", px=60000)
        assert hold.wait().status == 79
        assert c.get("job") == "theirs"


def test_without_scripts_nobody_overlaps(dlock, unscripted, tmp_path):
    place = Dialect(unscripted, "string")
    script = 'mkdir "$0" || exit 99; sleep 0.02; rmdir "$0"; echo $DLOCK_TOKEN'
    all_ = [dlock.contend(place, "job", "-w", "60s", command=("sh", "-c", script, tmp_path / "inside")) for _ in range(12)]
    done = [s.wait() for s in all_]
    assert [d.status for d in done] == [0] * 12
    assert len({d.stdout for d in done}) == 12


def test_a_look_without_scripts_needs_those_that_only_read(dlock, make_redis, unscripted):
    none = make_redis(*(w for name in ("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO") for w in ("--rename-command", name, "")))
    for server, statuses in ((unscripted, ({1}, {0})), (none, ({77, 78}, {77, 78}))):
        words = Dialect(server, "string").words
        assert [dlock.run(what, *words, *key).status in good for what, key, good in zip(("status", "ls"), (("job",), ()), statuses)] \
            == [True, True]


def test_a_break_needs_scripts_and_so_do_replicas(dlock, unscripted):
    place = Dialect(unscripted, "string")
    hold = dlock.hold(place, "job")
    for done in (dlock.run("break", *place.words, "-y", "--force", "job"),
                 dlock.run("run", *place.words, "-n", "-O", "wait-replicas=1", "-k", "other", "--", "true")):
        assert done.status in (77, 78) and done.stderr.count("\n") == 1, done
    assert hold.finish().status == 0


def test_other_dialects_say_that_they_need_scripts(dlock, unscripted):
    done = run(dlock, Dialect(unscripted, "redisson"))
    assert done.status in (77, 78) and done.stderr.count("\n") == 1


# ---- Redisson: RLock ----


def test_rlock_as_redisson_does_it(client):
    """The re-enactment answers what Redisson's own scripts were seen to answer."""
    r = Redisson(client).listen()
    assert r.lock(A) is None and client.hgetall("job") == {A: "1"} and 29000 < client.pttl("job") <= 30000
    assert 29000 < r.lock(B) <= 30000
    assert r.lock(A) is None and client.hgetall("job") == {A: "2"}
    assert r.unlock(B) is None and client.hgetall("job") == {A: "2"}
    assert r.unlock(A) == 0
    assert r.unlock(A) == 1 and not client.exists("job") and r.heard() == 0
    assert r.channel == "redisson_lock__channel:{job}"
    assert around("redisson_lock__channel", "{a}b") == "redisson_lock__channel:{a}b"


def test_dlock_keeps_an_rlock(dlock, redisson, client):
    r = Redisson(client).listen()
    hold = dlock.hold(redisson, "job")
    ((owner, count),) = client.hgetall("job").items()
    assert re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]+", owner) and count == "1"
    assert 0 < client.pttl("job") <= 30000
    assert 0 < r.lock(A) <= 30000
    assert r.unlock(A) is None
    assert hold.finish().status == 0
    assert r.heard() == 0 and r.heard(timeout=0.3) is None
    assert client.keys("*") == [redisson.side]
    assert r.lock(A) is None


def test_who_waits_is_woken_by_redisson(dlock, redisson, client):
    r = Redisson(client)
    r.lock(A)
    waiters = [dlock.contend(redisson, "job").queued() for _ in range(2)]
    wait_for(lambda: client.pubsub_numsub(r.channel)[0][1] == 2)
    writes = redisson.server.writes()
    assert r.unlock(A) == 1
    first = wait_for(lambda: next((w for w in waiters if w.running), None), timeout=3)  # before anybody would ask by itself
    assert redisson.server.writes() - writes <= 8
    (second,) = set(waiters) - {first}
    assert not second.running
    first.finish()
    second.event("started", timeout=10)
    assert second.finish().status == 0


def test_who_waits_for_redisson_asks_when_its_lease_ends(dlock, redisson, client):
    Redisson(client, lease=1500).lock(A)
    waiter = dlock.contend(redisson, "job").queued()
    waiter.event("started", timeout=10)
    assert waiter.finish().status == 0


def test_a_redisson_without_an_end(dlock, redisson, client):
    client.hset("job", A, 1)
    done = run(dlock, redisson, "-w", BRIEFLY)
    assert done.status == 75 and "no end" in done.stderr
    assert client.pttl("job") == -1 and client.hgetall("job") == {A: "1"}


def test_a_taken_over_rlock_is_lost(dlock, redisson, client):
    hold = dlock.hold(redisson, "job", *LEASE)
    client.delete("job")
    Redisson(client).lock(A)
    assert hold.wait().status == 79
    assert client.hgetall("job") == {A: "1"}


def test_force_wakes_redisson(dlock, redisson, client):
    r = Redisson(client).listen()
    hold = dlock.hold(redisson, "job", *LEASE)
    assert dlock.run("break", *redisson.words, "-k", "job", "--force", "--token", hold.token).status == 0
    assert r.heard() == 0
    hold.wait()


# ---- RFencedLock ----


def test_fenced_as_redisson_does_it(client):
    r = Redisson(client)
    assert r.fenced(A) == [-1, 1]
    left, token = r.fenced(B)
    assert 29000 < left <= 30000 and token == -1
    assert client.get("redisson_lock_token:{job}") == "1" and client.pttl("redisson_lock_token:{job}") == -1
    assert r.fenced(A) == [-1, 2]
    r.unlock(A), r.unlock(A)
    assert r.fenced(B) == [-1, 3]


def test_tokens_are_dealt_by_the_counter_of_both(dlock, fenced, client):
    r = Redisson(client)
    assert r.fenced(A) == [-1, 1]
    assert r.unlock(A) == 1
    hold = dlock.hold(fenced, "job", *LEASE)
    assert hold.token == 2 and client.get("redisson_lock_token:{job}") == "2"
    assert client.pttl("redisson_lock_token:{job}") == -1
    time.sleep(2.5)  # a renewal deals none
    assert hold.finish().status == 0
    assert r.fenced(B) == [-1, 3]


def test_a_counter_that_is_none_leaves_the_lock_free(dlock, fenced, client):
    client.rpush("redisson_lock_token:{job}", "x")
    assert run(dlock, fenced).status == 76
    assert not client.exists("job")


# ---- RReadWriteLock ----


@pytest.fixture
def rw(own_redis):
    return Dialect(own_redis, "redisson-rw")


def string_of(owner):
    return f"{{job}}:{owner}:rwlock_timeout:1"


def test_rw_as_redisson_does_it(client):
    r = Redisson(client)
    r.listen(r.rw_channel)
    assert r.read(A) is None and client.hgetall("job") == {"mode": "read", A: "1"}
    job, string = client.pipeline().pttl("job").pttl(string_of(A)).execute()  # both at one moment
    assert client.get(string_of(A)) == "1" and abs(job - string) <= 5
    assert r.read(B, lease=10000) is None and client.pttl("job") > 29000
    assert 0 < r.write(D) <= 30000
    assert r.read_unlock(A) == 0 and 9000 < client.pttl("job") <= 10000
    assert r.read_unlock(B) == 1 and r.heard() == 0 and not client.exists("job")
    assert r.write(D) is None and client.hgetall("job") == {"mode": "write", f"{D}:write": "1"}
    assert r.write(D) is None and 59000 < client.pttl("job") <= 60000
    assert (r.write_unlock(D), r.write_unlock(D)) == (0, 1) and r.heard() == 1


def test_dlock_reads_beside_redisson(dlock, rw, client):
    r = Redisson(client)
    r.listen(r.rw_channel)
    assert r.read(A, lease=60000) is None
    hold = dlock.hold(rw, "job", "-s")
    (ours,) = set(client.hkeys("job")) - {"mode", A}
    assert client.hgetall("job") == {"mode": "read", A: "1", ours: "1"}
    assert 0 < client.pttl(string_of(ours)) <= 30000 and client.pttl("job") > 50000  # never less than it had
    assert r.write(D) > 0
    assert run(dlock, rw, "-n").status == 75
    assert {h["foreign"] for h in look(dlock, rw)["holders"]} == {True, False}
    assert hold.finish().status == 0
    assert client.hgetall("job") == {"mode": "read", A: "1"} and r.heard(timeout=0.3) is None
    assert not client.exists(string_of(ours))
    assert r.read_unlock(A) == 1 and r.heard() == 0


def test_a_reader_that_leaves_lets_the_others_have_what_they_have(dlock, rw, client):
    r = Redisson(client)
    hold = dlock.hold(rw, "job", "-s")
    assert r.read(A, lease=10000) is None
    assert hold.finish().status == 0
    assert client.hgetall("job") == {"mode": "read", A: "1"} and 8000 < client.pttl("job") <= 10000


def test_dlock_survives_the_unlock_of_another_reader(dlock, rw, client):
    r = Redisson(client, lease=60000)
    r.read(A)
    hold = dlock.hold(rw, "job", "-s", *LEASE)
    time.sleep(4)  # more than a lease: its own string is renewed
    assert r.read_unlock(A) == 0 and 0 < client.pttl("job") <= 3000
    time.sleep(2)
    assert hold.finish().status == 0


def test_a_reader_whose_string_is_gone_has_lost_it(dlock, rw, client):
    Redisson(client).read(A)
    hold = dlock.hold(rw, "job", "-s", *LEASE)
    (ours,) = set(client.hkeys("job")) - {"mode", A}
    client.delete(string_of(ours))
    assert hold.wait().status == 79
    assert not client.exists(string_of(ours))
    assert Redisson(client).read_unlock(A) == 1 and not client.exists("job")  # nor does what is left hold anybody up


def test_dlock_writes_as_redisson_does(dlock, rw, client):
    r = Redisson(client)
    r.listen(r.rw_channel)
    hold = dlock.hold(rw, "job", "-x")
    fields = client.hgetall("job")
    assert fields.pop("mode") == "write" and re.fullmatch("[-0-9a-f]{36}:[0-9]+:write", *fields)
    assert 0 < r.write(A) <= 30000 and 0 < r.read(A) <= 30000
    assert hold.finish().status == 0
    assert r.heard() == 1 and not client.exists("job")


@pytest.mark.parametrize("kind, options", [("read", ("-x",)), ("write", ("-s",)), ("write", ("-x",))])
def test_the_release_of_a_redisson_wakes_dlock(dlock, rw, client, kind, options):
    r = Redisson(client)
    getattr(r, kind)(A)
    waiter = dlock.contend(rw, "job", *options).queued()
    wait_for(lambda: client.pubsub_numsub(r.rw_channel)[0][1] == 1)
    assert getattr(r, f"{kind}_unlock")(A) == 1
    waiter.event("started", timeout=3)
    assert waiter.finish().status == 0


def test_readers_are_woken_together(dlock, rw, client):
    writer = dlock.hold(rw, "job", "-x")
    readers = [dlock.contend(rw, "job", "-s").queued() for _ in range(3)]
    wait_for(lambda: client.pubsub_numsub("redisson_rwlock:{job}")[0][1] == 3)
    writer.finish()
    for r in readers:
        r.event("started", timeout=3)
    assert client.hlen("job") == 4
    assert [r.finish().status for r in readers] == [0] * 3
    assert not client.exists("job")


def test_an_rlock_is_no_rw_lock(dlock, rw, client):
    Redisson(client).lock(A)
    assert run(dlock, rw, "-s", "-n").status == 75
    assert client.hgetall("job") == {A: "1"}


# ---- RPermitExpirableSemaphore ----


@pytest.fixture
def semaphore(own_redis):
    return Dialect(own_redis, "redisson-semaphore")


def now_ms():
    return int(time.time() * 1000)


def test_permits_as_redisson_does_it(client):
    r, now, zset = Redisson(client), 1700000000000, "{job}:timeout"
    r.listen(r.sc)
    assert r.take_permit("0" * 16, now, 30000) is None
    assert r.set_permits(1) == 1 and client.get("job") == "1" and r.heard() == 1
    assert r.set_permits(3) == 0
    assert r.take_permit("a" * 16, now, 30000) == "OK"
    assert client.get("job") == "0" and client.zrange(zset, 0, -1, withscores=True) == [("a" * 16, 1700000030000)]
    assert r.take_permit("b" * 16, now, 30000) == 1700000030000
    assert r.take_permit("b" * 16, now + 30001) == "OK" and r.heard() == 1
    assert client.zscore(zset, "b" * 16) == r.NEVER
    assert r.take_permit("c" * 16, now + 30001, 30000) is None
    assert r.release_permit("b" * 16, now) == 1 and r.heard() == 1
    assert r.release_permit("b" * 16, now) == 0
    assert r.take_permit("d" * 16, now, 1000) == "OK"
    assert r.release_permit("d" * 16, now + 2000) == 0 and r.heard() == 1 and client.get("job") == "1"


def test_dlock_takes_a_permit(dlock, semaphore, client):
    r = Redisson(client)
    assert r.set_permits(2) == 1
    r.listen(r.sc)
    first, second = dlock.hold(semaphore, "job", "--limit", "2"), dlock.contend(semaphore, "job", "--limit", "2").held()
    assert client.get("job") == "0"
    with redis.Redis(port=semaphore.server.port) as raw:
        permits = raw.zrange("{job}:timeout", 0, -1, withscores=True)
    assert [len(p) for p, _ in permits] == [16, 16] and all(0 < e - now_ms() <= 30000 for _, e in permits)
    assert r.take_permit("x" * 16, now_ms(), 30000) > now_ms()
    assert {h["slot"] for h in look(dlock, semaphore)["holders"]} == {0, 1}
    assert dlock.run("run", *semaphore.words, "-k", "job", "-n", "--limit", "2", "--", "true").status == 75
    assert first.finish().status == 0 and r.heard() == 1
    assert r.take_permit("x" * 16, now_ms(), 30000) == "OK"
    assert second.finish().status == 0 and r.heard() == 1
    assert client.zcard("{job}:timeout") == 1


def test_who_is_first_sets_the_number(dlock, semaphore, client):
    r = Redisson(client)
    r.listen(r.sc)
    hold = dlock.hold(semaphore, "job", "--limit", "3")
    assert client.get("job") == "2" and r.heard() == 3
    assert r.set_permits(5) == 0
    assert hold.finish().status == 0 and client.get("job") == "3" and r.heard() == 3


def test_another_number_is_refused(dlock, semaphore, client):
    Redisson(client).set_permits(3)
    for options, words in ((("--limit", "2"), "--limit 2"), (("--limit", "4"), "--limit 4"), ((), "-x")):
        done = dlock.run("run", *semaphore.words, "-k", "job", *options, "--", "true")
        assert done.status == 76 and "--limit 3" in done.stderr and words in done.stderr
    assert dump(client).keys() == {"job"} and client.get("job") == "3"


def test_a_string_that_is_no_number(dlock, semaphore, client):
    client.set("job", "0123456789abcdef0123456789abcdef")
    assert run(dlock, semaphore).status == 76
    assert dump(client).keys() == {"job"}
    assert "no number" in dlock.run("status", *semaphore.words, "-k", "job").stdout


def test_permits_that_have_run_out_are_given_back(dlock, semaphore, client):
    r = Redisson(client)
    r.set_permits(1)
    r.take_permit("a" * 16, now_ms(), 1500)
    waiter = dlock.contend(semaphore, "job", "--limit", "1").queued()
    r.listen(r.sc)
    waiter.event("started", timeout=10)
    assert r.heard() == 1  # the one that had run out
    assert waiter.finish().status == 0 and client.get("job") == "1"
    client.zadd("{job}:timeout", {"z" * 16: now_ms() - 1000})
    client.decrby("job", 1)
    assert run(dlock, semaphore).status == 0 and client.get("job") == "1"


def test_a_release_by_redisson_wakes_dlock(dlock, semaphore, client):
    r = Redisson(client)
    r.set_permits(1)
    r.take_permit("a" * 16, now_ms())
    assert "without an end" in look(dlock, semaphore)["holders"][0]["what"]
    waiter = dlock.contend(semaphore, "job", "--limit", "1").queued()
    wait_for(lambda: client.pubsub_numsub(r.sc)[0][1] == 1)
    assert r.release_permit("a" * 16, now_ms()) == 1
    waiter.event("started", timeout=3)
    assert waiter.finish().status == 0


def test_a_permit_that_another_took_back_is_lost(dlock, semaphore, client):
    hold = dlock.hold(semaphore, "job", "--limit", "2", *LEASE)
    with redis.Redis(port=semaphore.server.port) as raw:
        ((permit, _),) = raw.zrange("{job}:timeout", 0, -1, withscores=True)
        raw.zrem("{job}:timeout", permit)
        raw.incr("job")
    assert hold.wait().status == 79
    assert client.get("job") == "2"


# ---- RFairLock ----


@pytest.fixture
def fair(own_redis):
    result = Dialect(own_redis, "redisson-fair")
    result.counted = True
    return result


QUEUE, TIMEOUTS, T0 = "redisson_lock_queue:{job}", "redisson_lock_timeout:{job}", 1700000000000


def queue_of(client):
    return client.lrange(QUEUE, 0, -1), dict(client.zrange(TIMEOUTS, 0, -1, withscores=True))


def test_fair_as_redisson_does_it(client):
    r = Redisson(client)
    assert r.fair(A, T0) is None
    left = r.fair(B, T0)
    assert 29000 < left <= 30000 and queue_of(client) == ([B], {B: T0 + left + 300000})
    assert r.fair(D, T0) == left + 300000 and queue_of(client)[0] == [B, D]
    assert queue_of(client)[1][D] == T0 + left + 600000
    r.listen(r.waiter_channel(B))
    assert r.fair_unlock(A, T0) == 1 and r.heard() == 0 and queue_of(client)[0] == [B, D]
    assert r.fair(D, T0) > 0  # not its turn
    assert r.fair(B, T0) is None and queue_of(client) == ([D], {D: T0 + left + 300000})
    r.fair_leave(D)
    assert queue_of(client) == ([], {})


def test_dlock_stands_in_line_with_redisson(dlock, fair, client):
    r = Redisson(client)
    assert r.fair(A) is None
    r.fair(B)
    first = dlock.contend(fair, "job").queued(2)
    r.fair(D)
    names, times = queue_of(client)
    assert len(names) == 3 and (names[0], names[2]) == (B, D) and re.fullmatch("[-0-9a-f]{36}:[0-9]+", names[1])
    assert times[B] < times[names[1]] < times[D]
    assert len(look(dlock, fair)["waiters"]) == 3
    assert r.fair_unlock(A) == 1
    first.event("waiting", position=2)
    assert r.fair(B) is None
    assert r.fair_unlock(B) == 1
    first.event("started", timeout=3)  # called, by its own channel
    assert r.fair(D) > 0
    r.listen(r.waiter_channel(D))
    assert first.finish().status == 0
    assert r.heard() == 0
    assert r.fair(D) is None and queue_of(client) == ([], {})


def test_only_the_first_is_called(dlock, fair, client):
    hold = dlock.hold(fair, "job")
    waiters = [dlock.contend(fair, "job").queued(n) for n in (1, 2)]
    channels = [f"redisson_lock__channel:{{job}}:{name}" for name in queue_of(client)[0]]
    wait_for(lambda: [n for _, n in client.pubsub_numsub(*channels)] == [1, 1])
    general = Redisson(client).listen()
    assert hold.finish().status == 0
    waiters[0].event("started", timeout=3)
    assert not waiters[1].running and general.heard(timeout=0.3) is None
    waiters[0].finish()
    waiters[1].event("started", timeout=3)
    waiters[1].finish()


def test_who_gives_up_leaves_the_line(dlock, fair, client):
    hold = dlock.hold(fair, "job")
    quitter = dlock.contend(fair, "job", "-w", "2s").queued(1)
    r = Redisson(client)
    r.fair(B)
    before = queue_of(client)[1][B]
    assert quitter.wait().status == 75
    wait_for(lambda: queue_of(client)[0] == [B])
    assert queue_of(client)[1] == {B: before - 9000}
    r.listen(r.waiter_channel(B))
    hold.finish()
    assert r.heard() == 0


def test_nobody_is_put_out_while_it_asks(dlock, fair, client):
    """Redisson moves all times up at each grant; a dlock behind many is not put out by that."""
    r = Redisson(client)
    r.fair(A)
    owners = [f"{A}{n}" for n in range(3)]
    for each in owners:
        r.fair(each)
    waiter = dlock.contend(fair, "job").queued(4)
    holder = A
    for each in owners:
        assert r.fair_unlock(holder) == 1
        assert r.fair(each) is None
        holder = each
    assert len(queue_of(client)[0]) == 1
    assert r.fair_unlock(holder) == 1
    waiter.event("started", timeout=3)
    assert waiter.finish().status == 0


def test_a_waiter_without_a_time_is_in_nobodys_way(dlock, fair, client):
    client.rpush(QUEUE, D)
    assert dlock.run("run", *fair.words, "-k", "job", "-n", "--", "true").status == 0
    assert not client.exists(QUEUE)


def test_a_redisson_that_died_in_line_is_put_out_in_its_time(dlock, fair, client):
    Redisson(client).fair(A)
    Redisson(client).fair(D, wait=1000)
    client.delete("job")
    client.zadd(TIMEOUTS, {D: now_ms() + 1500})
    assert dlock.run("run", *fair.words, "-k", "job", "-n", "--", "true").status == 75
    waiter = dlock.contend(fair, "job").queued(2)
    waiter.event("started", timeout=10)
    assert waiter.finish().status == 0
