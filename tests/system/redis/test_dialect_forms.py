# Goal of these tests: other tools' dialects keep their promises behind sentinels, in a
# cluster, through TLS and with replicas that must have it; what cannot go together is
# said in one sentence.

import json
import threading

import pytest

from hostile import Hostile, array
from redis_dialect_forms import FORMS, dialect_form
from redis_dialects import A, B, DIALECTS, Redisson
from redis_forms import RedisCluster
from support import FULL, At, boottime, place_id, spent, wait_for

LEASE = ("-t", "12s")  # bears the fail-overs of these servers
PAIRS = [(d, f) for d in DIALECTS for f in FORMS]
# Each dialect with one form, each form with two dialects, unless everything is to be tested.
SOME_PAIRS = PAIRS if FULL else [(d, FORMS[i % 3]) for i, d in enumerate(DIALECTS)]


class Dialect(At):
    """A dialect on servers of the test's own."""

    counted = False

    def __init__(self, url, dialect, *more):
        super().__init__(url)
        self.words += ["-O", f"dialect={dialect}", *more]


def options_of(dialect):
    return ("--limit", "1") if dialect == "redisson-semaphore" else ()


@pytest.fixture(params=[dialect_form(d, f) for d, f in SOME_PAIRS], ids=place_id)
def pair(request):
    return request.param(request)


def run(dlock, place, key, *options, command=("true",)):
    return dlock.run("run", *place.words, "-k", key, *options, "--", *command)


def renewals(holder):
    return holder.stderr().count("renew: ok")


def has_renewed(holder):
    before = renewals(holder)
    return wait_for(lambda: renewals(holder) > before or holder.poll() is not None, what="a renewal") and holder.poll() is None


# ---- all of them ----


def test_a_lock_is_taken_waited_for_seen_and_broken(dlock, pair):
    key, options = pair.key(), options_of(pair.dialect)
    holder = dlock.hold(pair, key, *options)
    assert run(dlock, pair, key, *options, "-n").status == 75
    told = json.loads(dlock.run("status", *pair.words, "-k", key, "-J").stdout)
    assert [h["token"] for h in told["holders"]] == [holder.token]
    assert key in dlock.run("ls", *pair.words).stdout
    waiter = dlock.contend(pair, key, *options, "-w", "60s").queued()
    assert holder.finish().status == 0
    assert waiter.held().token > holder.token
    assert dlock.run("break", *pair.words, "-k", key, "--force", "-y").status == 0
    assert run(dlock, pair, key, *options, "-w", "30s").status == 0
    waiter.destroy()
    assert dlock.run("freeze", *pair.words, "-k", key).status == 78


@pytest.mark.parametrize("dialect", DIALECTS if FULL else ["string", "redisson", "redisson-semaphore"])
def test_replicas_are_waited_for(dlock, redis_sentinels, dialect):
    key, options = f"replicated-{dialect}", options_of(dialect)
    one, two = (Dialect(redis_sentinels.url, dialect, "-O", f"wait-replicas={n}") for n in (1, 2))
    assert run(dlock, one, key, *options).status == 0
    done = run(dlock, two, key, *options, "-n", command=("echo", "ran"))
    assert (done.status, done.stdout) == (69, "") and "1 of its replicas confirmed the lock, not 2" in done.stderr, done
    assert run(dlock, one, key, *options, "-n").status == 0  # given back


# ---- fail-overs ----


@pytest.mark.parametrize("dialect", DIALECTS if FULL else ["redisson-fair"])
def test_a_hold_and_its_waiter_survive_a_planned_fail_over(dlock, make_forms, dialect):
    forms, options = make_forms(), options_of(dialect)
    at = Dialect(forms.url, dialect)
    holder = dlock.hold(at, "job", "-v", *LEASE, *options)
    waiter = dlock.contend(at, "job", *LEASE, *options, "-w", "60s").queued()
    forms.fail_over()
    assert has_renewed(holder)
    assert holder.finish().status == 0
    assert waiter.held().token > holder.token
    assert waiter.finish().status == 0


@pytest.mark.parametrize("dialect", DIALECTS if FULL else ["string"])
def test_a_hold_and_its_waiter_survive_a_fail_over_in_a_cluster(dlock, make_forms, dialect):
    forms, options = make_forms(program=RedisCluster), options_of(dialect)
    at = Dialect(forms.url, dialect)
    holder = dlock.hold(at, "job", "-v", *LEASE, *options)
    waiter = dlock.contend(at, "job", *LEASE, *options, "-w", "60s").queued()
    forms.fail_over("job")
    assert has_renewed(holder)
    assert holder.finish().status == 0
    assert waiter.held().token > holder.token
    assert waiter.finish().status == 0


# ---- in a cluster ----


def owner_of(cluster, key):
    slot = cluster.nodes[0].ask("KEYSLOT", key)
    return next(n for first, last, (_, port, *_), *_ in cluster.slots() if first <= slot <= last for n in cluster.nodes if n.port == port)


def test_a_redisson_at_one_node_wakes_a_dlock_that_began_at_another(dlock, redis_cluster):
    """And the other way round; Redisson's own clients may listen at any node."""
    at, owner = Dialect(redis_cluster.url, "redisson"), owner_of(redis_cluster, "wake")
    with owner.client() as c, next(n for n in redis_cluster.masters if n is not owner).client() as elsewhere:
        theirs, ear = Redisson(c, "wake"), Redisson(elsewhere, "wake").listen()
        assert theirs.lock(A) is None
        waiter = dlock.contend(at, "wake", "-w", "60s").queued()
        wait_for(lambda: c.pubsub_numsub(theirs.channel)[0][1], what="a subscription at the owner")
        began = boottime()
        assert theirs.unlock(A) == 1
        waiter.held()
        assert spent(began) < 3  # a beat is longer
        assert ear.heard() == 0
        assert theirs.lock(A) > 0
        assert waiter.finish().status == 0
        assert ear.heard() == 0
        assert theirs.lock(A) is None and theirs.unlock(A) == 1


HOLDS = {"redisson": ("lock", "unlock"), "redisson-fenced": ("fenced", "unlock"), "redisson-rw": ("write", "write_unlock"),
         "redisson-fair": ("fair", "fair_unlock")}


@pytest.mark.parametrize("key", ["shard", "{shard}s"])
@pytest.mark.parametrize("dialect", HOLDS if FULL else ["redisson", "redisson-fair"])
def test_messages_that_stay_in_the_slot_are_heard_and_sent(dlock, redis_cluster, dialect, key):
    """As Redisson has them in a cluster of Redis 7; its older clients listen as before."""
    at, key = Dialect(redis_cluster.url, dialect), f"{key}-{dialect}"
    owner = owner_of(redis_cluster, key)
    with owner.client() as c:
        theirs, take, give = Redisson(c, key, sharded=True), *HOLDS[dialect]
        assert getattr(theirs, take)(A) in (None, [-1, 1])
        waiter = dlock.contend(at, key, "-w", "60s").queued()
        wait_for(lambda: c.execute_command("PUBSUB", "SHARDCHANNELS"), what="an ear in the slot")
        began = boottime()
        assert getattr(theirs, give)(A) == 1
        waiter.held()
        assert spent(began) < 3  # a beat is longer
        assert getattr(theirs, take)(B) not in (None, [-1, 1])
        channel = theirs.rw_channel if dialect == "redisson-rw" else theirs.waiter_channel(B) if dialect == "redisson-fair" else None
        theirs.listen(channel)
        older = Redisson(c, key).listen(channel or theirs.channel)
        assert waiter.finish().status == 0
        assert theirs.heard() in (0, 1) and older.heard() in (0, 1)


def test_permits_are_told_of_in_the_slot(dlock, redis_cluster):
    at, owner = Dialect(redis_cluster.url, "redisson-semaphore"), owner_of(redis_cluster, "permits")
    with owner.client() as c:
        theirs = Redisson(c, "permits", sharded=True)
        theirs.set_permits(1)
        holder = dlock.hold(at, "permits", "--limit", "1")
        theirs.listen(theirs.sc)
        assert holder.finish().status == 0
        assert theirs.heard() == 1


def test_several_keys_in_one_slot(dlock, redis_cluster):
    at = Dialect(redis_cluster.url, "redisson")
    done = dlock.run("run", *at.words, "-k", "{t}a", "-k", "{t}b", "--", "echo", "ran")
    assert (done.status, done.stdout) == (0, "ran\n")
    done = dlock.run("run", *at.words, "-k", "a", "-k", "b", "--", "echo", "ran")
    assert (done.status, done.stdout) == (78, "") and "{tag}" in done.stderr


@pytest.mark.parametrize("dialect, key", [("string", "a}"), ("string", "{}a"), ("redisson", "a{"), ("redisson-fair", "{}a"),
                                          ("redisson-rw", "a{"), ("redisson-semaphore", "a}")])
def test_a_key_whose_names_lie_in_two_slots(dlock, redis_cluster, dialect, key):
    for cmd in (("run", *options_of(dialect)), ("status",)):
        done = dlock.run(cmd[0], *Dialect(redis_cluster.url, dialect).words, *cmd[1:], "-k", key, *(("--", "echo", "ran") if cmd[0] == "run" else ()))
        assert (done.status, done.stdout) == (78, "") and done.stderr.count("\n") == 1 and key in done.stderr, done
        assert "brace" in done.stderr


# ---- a server that runs no scripts ----

NO_SCRIPTS = "~* &* +@all -eval -evalsha -eval_ro -evalsha_ro -script -fcall -info -config"


def forbid_scripts(servers):
    for server in servers:
        with server.client() as c:
            c.execute_command("ACL SETUSER", "plain", "on", ">word", *NO_SCRIPTS.split())


def test_string_does_without_scripts_in_any_form(dlock, redis_sentinels, redis_cluster):
    for forms, servers in ((redis_sentinels, redis_sentinels.servers), (redis_cluster, redis_cluster.nodes)):
        forbid_scripts(servers)
        at = Dialect(forms.url.replace("//", "//plain:word@"), "string")
        holder = dlock.hold(at, "plain", "-v", "-t", "3s")
        assert run(dlock, at, "plain", "-n").status == 75
        waiter = dlock.contend(at, "plain", "-w", "60s").queued()
        assert has_renewed(holder)
        assert holder.finish().status == 0
        assert waiter.held().finish().status == 0


def test_replicas_cannot_be_waited_for_without_scripts(dlock, redis_sentinels):
    forbid_scripts(redis_sentinels.servers)
    at = Dialect(redis_sentinels.url.replace("//", "//plain:word@"), "string", "-O", "wait-replicas=1")
    done = run(dlock, at, "plain2", "-w", "5s", command=("echo", "ran"))
    assert (done.status, done.stdout) == (78, "") and "wait-replicas" in done.stderr and done.stderr.count("\n") == 1, done
    with redis_sentinels.master.client() as c:
        assert not c.exists("plain2")


def test_a_deposed_master_is_not_believed_without_scripts(dlock, make_redis, make_hostile):
    """The old master is there, and takes transactions; a sentinel knows better."""
    old, new = make_redis(), make_redis()
    forbid_scripts([old, new])
    sentinel = make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % old.port)})
    at = Dialect(f"redis+sentinel://plain:word@127.0.0.1:{sentinel.port}/m", "string")
    holder = dlock.hold(at, "job", "-t", "6s")
    sentinel.answers["sentinel"] = array(b"127.0.0.1", b"%d" % new.port)
    done = holder.wait()  # the new one has never heard of it
    assert done.status == 79 and str(new.port) in done.stderr, done
    with new.client() as c:
        assert not c.exists("job")


def test_a_deposed_master_is_not_believed_at_the_end_without_scripts(dlock, make_redis, make_hostile):
    """A fail-over that nobody has heard of before has lost the hold."""
    old, new = make_redis(), make_redis()
    forbid_scripts([old, new])
    sentinels = [make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % old.port)}) for _ in range(3)]
    hosts = ",".join(f"127.0.0.1:{s.port}" for s in sentinels)

    def is_found_out():
        for s in sentinels:
            s.answers["sentinel"] = array(b"127.0.0.1", b"%d" % old.port)
        holder = dlock.hold(Dialect(f"redis+sentinel://plain:word@{hosts}/m", "string"), "job", "-t", "1h")
        for s in sentinels:
            s.answers["sentinel"] = array(b"127.0.0.1", b"%d" % new.port)
        done = holder.finish()
        assert done.status == 0 or done.status == 79 and str(new.port) in done.stderr, done
        return done.status == 79

    assert any(is_found_out() for _ in range(5))  # a sentinel has a tenth of a second for that


class Transacting(Hostile):
    """Runs no scripts; the first SET of a transaction meets a slot that moves."""

    def __init__(self):
        ok, queued = b"+OK\r\n", b"+QUEUED\r\n"
        super().__init__({"acquire": b"-ERR unknown command `EVALSHA`, with args beginning with:\r\n", "watch": ok, "unwatch": ok,
                          "time": array(b"1700000000", b"0"), "hget": b"$-1\r\n", "multi": ok, "set": [b"-TRYAGAIN x\r\n", queued],
                          "del": queued, "hset": queued, "hdel": queued, "pexpireat": queued, "exec": array(1, 1, 1, 1, 1)})
        self.local, self.owner = threading.local(), None

    def _answer(self, words):
        name = words[0].decode().lower()
        if name == "watch" and getattr(self.local, "multi", False):
            return b"-ERR WATCH inside MULTI is not allowed\r\n"
        self.local.multi = name == "multi" or (name != "exec" and getattr(self.local, "multi", False))
        if name == "set":
            self.owner = words[2]
        if name == "get":
            return b"$%d\r\n%s\r\n" % (len(self.owner), self.owner) if self.asked.count("exec") else b"$-1\r\n"
        if name == "exec" and self.local.refused:
            return b"-EXECABORT Transaction discarded because of previous errors.\r\n"
        answer = super()._answer(words)
        self.local.refused = answer.startswith(b"-") or (name != "multi" and getattr(self.local, "refused", False))
        return answer


def test_a_transaction_that_a_moving_slot_cuts_is_begun_anew(dlock, request):
    server = Transacting()
    request.addfinalizer(server.close)
    done = run(dlock, Dialect(f"redis+cluster://127.0.0.1:{server.port}", "string"), "job", command=("echo", "ran"))
    assert (done.status, done.stdout, done.stderr) == (0, "ran\n", ""), done
    assert server.asked.count("set") == 2


class Expiring(Hostile):
    """Runs no scripts; what ends between WATCH and EXEC ends no transaction, as before Redis 6.0.9: it changes nothing."""

    def __init__(self, acquire):
        ok, queued = b"+OK\r\n", b"+QUEUED\r\n"
        super().__init__({"acquire": b"-ERR unknown command `EVALSHA`, with args beginning with:\r\n", "watch": ok, "unwatch": ok,
                          "time": array(b"1700000000", b"0"), "hget": b"$-1\r\n", "multi": ok, "set": queued, "pexpire": queued,
                          "del": queued, "hset": queued, "hdel": b":0\r\n", "pexpireat": queued, "pttl": b":1000\r\n",
                          "exec": [acquire + 4 * b":1\r\n", array(0)]})
        self.owner = b"another"

    def _answer(self, words):
        name = words[0].decode().lower()
        if name == "set":
            self.owner = words[2]
        done = self.asked.count("exec")
        if name == "get":
            super()._answer(words)
            return b"$-1\r\n" if done != 1 else b"$%d\r\n%s\r\n" % (len(self.owner), self.owner)
        return super()._answer(words)


@pytest.fixture
def make_expiring(request):
    def make(acquire):
        server = Expiring(b"*5\r\n" + acquire)
        request.addfinalizer(server.close)
        return server
    return make


def test_a_transaction_that_extends_nothing_is_no_renewal(dlock, make_expiring):
    holder = dlock.hold(Dialect(make_expiring(b"+OK\r\n").url, "string"), "job", "-v", "-t", "6s")
    done = holder.wait()
    assert done.status == 79 and "no longer names us as the holder" in done.stderr and "renew: ok" not in done.stderr, done


def test_a_transaction_that_ends_nothing_is_no_release(dlock, make_expiring):
    done = dlock.hold(Dialect(make_expiring(b"+OK\r\n").url, "string"), "job", "-t", "1h").finish()
    assert done.status == 79, done


# ---- a slot that moves ----


@pytest.mark.parametrize("dialect", DIALECTS if FULL else ["redisson-rw"])
def test_a_slot_that_moves_during_a_hold(dlock, make_forms, dialect):
    """Nothing is half done: it is waited for, and then goes on or is given back."""
    cluster = make_forms(program=RedisCluster)
    at, kind = Dialect(cluster.url, dialect), ("-s",) if dialect == "redisson-rw" else options_of(dialect)
    # the helper asks for the slot of dlock:{KEY}:h, which is that of {KEY}
    holder = dlock.hold(at, "{job}", "-v", *LEASE, *kind)
    waiter = dlock.contend(at, "{job}", *LEASE, *options_of(dialect), "-w", "60s").queued()
    to = next(m for m in cluster.masters if m is not cluster.owner("job"))
    cluster.begin_move("job", to)
    cluster.move_keys("job", to, most=1)
    holder.event("suspect", timeout=30)
    assert holder.poll() is None and not waiter.running
    cluster.move_keys("job", to)
    cluster.end_move("job", to)
    assert has_renewed(holder)
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    with to.client() as c:
        stays = {"redisson-semaphore": ["{job}"], "redisson-fenced": ["redisson_lock_token:{job}"]}
        assert [k for k in c.keys("*") if not k.startswith("dlock:")] == stays.get(dialect, [])
