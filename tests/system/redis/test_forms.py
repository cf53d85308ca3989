# Goal of these tests: locks in Redis behind sentinels and in a cluster keep dlock's
# promises over every fail-over, redirection and move of a slot; and what servers that
# are not what they should be get to hear.

import contextlib
import json
import os
import threading
import time

import pytest
import redis

from hostile import DONE, GRANTED, RESET, SILENCE, Hostile, array
from redis_forms import HOST, REDIS_PLACES, RedisCluster, await_replicas
from redis_script import ears
from support import PATIENCE, ROOT, At, boottime, free_port, is_alive, place_id, run, spent, wait_for
from witness import check_intervals, interval

TTL = "15s"  # bears the fail-overs of these servers, also where a second vote is needed
with open(os.path.join(ROOT, "backends", "redis", "lock.lua"), encoding="utf-8") as lua:
    LOCK = lua.read()


@pytest.fixture(params=REDIS_PLACES, ids=place_id)
def form(request):
    """Each form of Redis, on servers that no test breaks."""
    return request.param(request)


@pytest.fixture
def sentinels(make_forms):
    return make_forms()


@pytest.fixture
def cluster(make_forms):
    return make_forms(program=RedisCluster)


def hold(dlock, at, key, *options):
    """With -v, which tells each renewal."""
    return dlock.hold(at, key, "-v", *options)


def renewals(holder):
    return holder.stderr().count("renew: ok")


def has_renewed(holder, before):
    """After this many renewals it has renewed once more."""
    return wait_for(lambda: renewals(holder) > before or holder.poll() is not None, what="a renewal") and holder.poll() is None


class Contenders:
    """Each takes the lock again and again; the log tells whether two ever ran together."""

    def __init__(self, dlock, at, log, n=4, key="job", options=()):
        self.log, self.results, self.ended, self.runs = log, [], threading.Event(), 0
        log.touch()
        self.threads = [threading.Thread(target=self._contend, args=(dlock, at, key, i, options), daemon=True) for i in range(n)]
        for t in self.threads:
            t.start()

    def _contend(self, dlock, at, key, i, options):
        while not self.ended.is_set():
            self.runs += 1
            words = interval(self.log, f"c{i}.{self.runs}", "x", "sleep 0.02")
            self.results.append(dlock.run("run", *at.words, "-k", key, "-t", TTL, "-w", "60s", *options, "--", *words, timeout=120))

    def granted(self):
        return self.log.read_text().count("B ")

    def go_on(self, more=10):
        """Until so many more have run."""
        before = self.granted()
        wait_for(lambda: self.granted() >= before + more, what="more runs")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """They end with a test that has failed, too: the next one would find them."""
        self.ended.set()
        for t in self.threads:
            t.join(120)

    def finish(self):
        self.__exit__()
        assert not any(t.is_alive() for t in self.threads)
        check_intervals(self.log)
        return self.results


# ---- who may say "no" ----


def lock_keys(tag="job"):
    return [f"dlock:{{{tag}}}:{s}" for s in ("h", "i", "q", "l", "w:", "f")]


REFUSALS = {
    "renew": ["renew", "b" * 32, 1000],
    "other kind": ["acquire", "b" * 32, 1000, 0, 0, "s", "{}", 0],
    "release": ["release", "b" * 32],
    "revoke": ["revoke", "", "1", "{}", "0"],
    "thaw": ["thaw", ""],
}


@pytest.mark.parametrize("words", REFUSALS.values(), ids=REFUSALS)
def test_every_no_is_a_write_which_a_replica_cannot_say(redis_sentinels, words):
    master = redis_sentinels.master
    replica = next(s for s in redis_sentinels.servers if s is not master)
    with master.client() as c, replica.client() as r:
        c.eval(LOCK, 6, *lock_keys(), "acquire", "a" * 32, 60000, 0, 0, "l3", "{}", 0)
        c.wait(1, 5000)
        with pytest.raises(redis.exceptions.ReadOnlyError):
            r.eval(LOCK, 6, *lock_keys(), *words)
        assert c.eval(LOCK, 6, *lock_keys(), *words)[0] in (0, -1)
        c.delete(*lock_keys())


def test_a_job_that_is_done_is_not_believed_of_a_replica(redis_sentinels):
    master = redis_sentinels.master
    replica = next(s for s in redis_sentinels.servers if s is not master)
    keys = [*lock_keys(), "dlock:{job}:r", "dlock:{job}:r:id"]
    with master.client() as c, replica.client() as r:
        c.hset(keys[7], mapping={"status": "0", "began": "1", "who": "w"})
        c.wait(1, 5000)
        words = ["acquire", "b" * 32, 1000, 0, 0, "x", "{}", 0, 0]
        with pytest.raises(redis.exceptions.ReadOnlyError):
            r.eval(LOCK, 8, *keys, *words)
        assert c.eval(LOCK, 8, *keys, *words)[0] == 4
        c.delete(*keys)


def test_a_server_without_its_replicas_at_release_is_no_loss(dlock, make_redis):
    server = make_redis()
    holder = hold(dlock, At(server.url), "job", "-t", "6s")
    with server.client() as c:
        c.config_set("min-replicas-to-write", 1)
        done = holder.finish()
        assert done.status == 0 and "lost" not in done.stderr and "not confirmed" in done.stderr
        c.config_set("min-replicas-to-write", 0)
        wait_for(lambda: not c.zcard("dlock:{job}:h"), what="the release in the background")


# ---- one server is asked as before ----


def test_a_single_server_is_asked_nothing_more(dlock, make_hostile):
    hostile = make_hostile()
    assert dlock.run("run", "-u", hostile.url, "-k", "job", "--", "true").status == 0
    assert hostile.asked == ["acquire", "ping", "release"]


# ---- both forms ----


def test_contenders_of_a_form_exclude_each_other(dlock, form, tmp_path):
    with Contenders(dlock, form, tmp_path / "log", key=form.key()) as contenders:
        contenders.go_on()
        assert all(r.status == 0 for r in contenders.finish())


def test_kinds_of_a_form(dlock, form):
    key = form.key()
    readers = [dlock.hold(form, key, "-s") for _ in range(2)]
    assert dlock.run("run", *form.words, "-n", "-k", key, "--", "true").status == 75
    waiter = dlock.contend(form, key, "-w", "60s").queued()
    for r in readers:
        assert r.finish().status == 0
    assert waiter.held().finish().status == 0
    limited = [dlock.hold(form, key, "--limit", "2") for _ in range(2)]
    assert dlock.run("run", *form.words, "-n", "--limit", "2", "-k", key, "--", "true").status == 75
    assert dlock.run("run", *form.words, "-n", "-s", "-k", key, "--", "true").status == 76
    assert all(one.finish().status == 0 for one in limited)


def test_several_keys_of_a_form(dlock, form):
    a, b = form.key("a"), form.key("b")
    both = dlock.start("run", *form.words, "-k", a, "-k", b, "--", "cat", stdin=-1).held()
    assert dlock.run("run", *form.words, "-n", "-k", b, "--", "true").status == 75
    assert both.finish().status == 0


def test_a_form_is_looked_at_and_steered(dlock, form):
    keys = [form.key(f"look{i}") for i in range(3)]
    holders = [dlock.hold(form, key, "-t", "9s") for key in keys]
    listed = dlock.run("ls", *form.words).stdout
    assert all(key in listed for key in keys)
    assert dlock.run("status", *form.words, "-k", keys[0]).status == 0
    assert dlock.run("break", *form.words, "-k", keys[0], "-y").status == 0
    assert holders[0].wait().status == 79
    assert dlock.run("freeze", *form.words, "-k", keys[0]).status == 0
    assert dlock.run("run", *form.words, "-n", "-k", keys[0], "--", "true").status == 75
    assert dlock.run("thaw", *form.words, "-k", keys[0], "-y").status == 0
    assert dlock.run("break", *form.words, "-k", keys[1], "--force", "-y").status == 0
    assert holders[1].wait().status == 79
    assert holders[2].finish().status == 0


def test_jobs_of_a_form(dlock, form):
    words = ["run", *form.words, "-k", form.key(), "--once", "id", "--", "echo", "ran"]
    assert [dlock.run(*words).stdout for _ in range(2)] == ["ran\n", ""]
    tagged = f"{form.key()}{{tag}}:r"
    assert dlock.run("run", *form.words, "-k", tagged, "--once-per", "day", "--", "true").status == 0
    for key in (form.key(), tagged):
        found = dlock.run("ls", "--jobs", "-J", *form.words, key.replace("[", "[[]")).stdout.splitlines()
        assert [bool(json.loads(line)["id"]) for line in found].count(True) == 1 and len(found) == 2, found
        assert dlock.run("forget", "-y", *form.words, "-k", key).status == 0
        assert dlock.run("forget", "-y", *form.words, "-k", key).status == 1
    assert dlock.run(*words).stdout == "ran\n"


def test_a_failure_that_counts_and_a_run_that_is_shown_of_a_form(dlock, form):
    words = ["run", *form.words, "-k", form.key("final"), "--once", "id", "--skipped-exit-code", "9"]
    assert dlock.run(*words, "--no-retry", "--", "sh", "-c", "exit 3").status == 3
    assert dlock.run(*words, "--no-retry", "--", "true").status == 9
    assert not form.is_done_of_old(form.key("final"), "id")
    assert dlock.run(*words, "--", "true").status == 0
    assert form.is_done_of_old(form.key("final"), "id")
    assert dlock.run("run", *form.words, "-k", form.key("shown"), "--remember", "--", "sh", "-c", "exit 4").status == 4
    found = json.loads(dlock.run("status", "-J", *form.words, "-k", form.key("shown")).stdout)
    assert (found["last"]["status"], found["last"]["job"]) == (4, False)
    for key in ("final", "shown"):
        assert dlock.run("forget", "-y", *form.words, "-k", form.key(key)).status == 0
        assert dlock.run("forget", "-y", *form.words, "-k", form.key(key)).status == 1


# ---- sentinels ----


def test_a_hold_and_its_waiter_survive_a_planned_fail_over(dlock, sentinels):
    at = At(sentinels.url)
    holder = hold(dlock, at, "job", "-t", TTL)
    waiter = dlock.contend(at, "job", "-t", TTL, "-w", "60s").queued()
    before = renewals(holder)
    sentinels.fail_over()
    assert has_renewed(holder, before)
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    assert waiter.token > holder.token


def test_contenders_over_a_killed_master(dlock, sentinels, tmp_path):
    """Its only replica has all that was granted; it comes back, as a master without data at first."""
    with Contenders(dlock, At(sentinels.url), tmp_path / "log", options=("-O", "wait-replicas=1")) as contenders:
        contenders.go_on(5)
        killed = sentinels.kill_master()
        sentinels.await_other(killed.port)
        killed.start()
        contenders.go_on()
        results = contenders.finish()
    assert results and all(r.status in (0, 79) for r in results), results


def test_a_hold_survives_a_killed_master(dlock, sentinels):
    holder = hold(dlock, At(sentinels.url), "job", "-t", TTL)
    with sentinels.master.client() as c:
        await_replicas(c)
    killed, before = sentinels.kill_master(), renewals(holder)
    sentinels.await_other(killed.port)
    assert has_renewed(holder, before), holder.result()
    assert holder.finish().status == 0
    with sentinels.master.client() as c:
        assert not c.zcard("dlock:{job}:h")


def test_a_hold_that_a_fail_over_lost_is_a_loss(dlock, sentinels):
    """The replica has not got the grant: nobody makes it up there."""
    replica = next(s for s in sentinels.servers if s is not sentinels.master)
    sentinels.cut_off(replica)
    holder = hold(dlock, At(sentinels.url), "job", "-t", TTL)
    killed = sentinels.kill_master()
    replica.resume()
    done = holder.wait()
    assert done.status == 79 and "no longer names us as the holder" in done.stderr
    sentinels.await_other(killed.port)
    with sentinels.master.client() as c:
        assert not c.zcard("dlock:{job}:h")


def test_what_no_replica_has_is_not_granted_if_replicas_are_waited_for(dlock, sentinels):
    at = At(sentinels.url)
    at.words += ["-O", "wait-replicas=1"]
    replica = next(s for s in sentinels.servers if s is not sentinels.master)
    holder = hold(dlock, at, "held", "-t", TTL)
    sentinels.cut_off(replica)
    done = dlock.run("run", *at.words, "-n", "-k", "job", "--", "true")
    assert done.status == 69 and "wait-replicas" in done.stderr and not done.stdout
    with sentinels.master.client() as c:
        assert not c.zcard("dlock:{job}:h")  # it was given back
    holder.event("suspect", timeout=30)  # a renewal does not count, either
    assert "wait-replicas" in holder.events("suspect")[0]["reason"]
    replica.resume()
    assert has_renewed(holder, renewals(holder))
    killed = sentinels.kill_master()
    sentinels.await_other(killed.port)
    # there is no replica left: nothing more is granted, and the hold ends with its lease
    assert holder.wait().status == 79


def test_a_deposed_master_that_returns_is_not_believed(dlock, sentinels):
    """It takes writes for some seconds more, and knows nothing of what came after it."""
    at = At(sentinels.url)
    holder = hold(dlock, at, "job", "-t", TTL)
    waiter = dlock.contend(at, "job", "-t", TTL, "-w", "60s").queued()
    old = sentinels.master
    old.pause()
    sentinels.await_other(old.port)
    assert has_renewed(holder, renewals(holder))
    with contextlib.suppress(redis.exceptions.RedisError):
        old.resume()
        with old.client() as c:
            c.flushall()
    before = renewals(holder)
    assert has_renewed(holder, before) and not waiter.running
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_one_sentinel_alongside_betrays_a_deposed_master(dlock, make_redis, make_hostile):
    """The old master is there, and renews; a sentinel knows better."""
    old, new = make_redis(), make_redis()
    says = array(b"127.0.0.1", b"%d" % old.port)
    sentinel = make_hostile({"sentinel": says})
    holder = hold(dlock, At(f"redis+sentinel://127.0.0.1:{sentinel.port}/m"), "job", "-t", "6s")
    sentinel.answers["sentinel"] = array(b"127.0.0.1", b"%d" % new.port)
    done = holder.wait()  # the new one has never heard of it
    assert done.status == 79 and str(new.port) in done.stderr
    with new.client() as c:
        assert not c.keys("*")


def test_a_deposed_master_is_not_believed_at_the_end(dlock, make_redis, make_hostile):
    """A fail-over that nobody has heard of before has lost the hold."""
    old, new = make_redis(), make_redis()
    sentinels = [make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % old.port)}) for _ in range(3)]
    hosts = ",".join(f"127.0.0.1:{s.port}" for s in sentinels)

    def is_found_out():
        for s in sentinels:
            s.answers["sentinel"] = array(b"127.0.0.1", b"%d" % old.port)
        holder = dlock.hold(At(f"redis+sentinel://{hosts}/m"), "job", "-t", "1h")
        for s in sentinels:
            s.answers["sentinel"] = array(b"127.0.0.1", b"%d" % new.port)
        done = holder.finish()
        assert done.status == 0 or done.status == 79 and str(new.port) in done.stderr, done
        return done.status == 79

    assert any(is_found_out() for _ in range(5))  # a sentinel has a tenth of a second for that


def test_one_stale_sentinel_makes_no_loss_of_a_release(dlock, make_redis, make_hostile):
    server = make_redis()
    sentinels = [make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % server.port)}) for _ in range(3)]
    hosts = ",".join(f"127.0.0.1:{s.port}" for s in sentinels)
    at = At(f"redis+sentinel://{hosts}/m")
    assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0  # the server knows the script
    for stale in sentinels:  # whichever is asked
        holder = dlock.hold(at, "job", "-t", "1h")
        good, stale.answers["sentinel"] = stale.answers["sentinel"], array(b"127.0.0.1", b"%d" % free_port())
        done = holder.finish()
        assert (done.status, done.stderr) == (0, ""), done
        stale.answers["sentinel"] = good


def test_a_holder_whose_connections_end_soon_opens_no_end_of_them(dlock, make_redis, make_hostile):
    """Some proxy may end whatever is idle: that a few ended is followed at once, what comes after waits."""
    server = make_redis()
    sentinel = make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % server.port)})
    holder = hold(dlock, At(f"redis+sentinel://127.0.0.1:{sentinel.port}/m"), "job", "-t", "1h")
    patience = 5 * [PATIENCE] + 15 * [3]
    with server.client() as c:
        for seconds in patience:
            before = renewals(holder)
            c.client_kill_filter(_type="normal", skipme=True)  # as sentinels before 6.0: not those who listen
            try:
                wait_for(lambda: renewals(holder) > before, timeout=seconds, what="another renewal")
            except AssertionError:
                assert seconds < PATIENCE
                break
        else:
            raise AssertionError("there is always another one")
    assert holder.finish().status == 0


def received(servers):
    """How many connections each has seen."""
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(s.client()).info("stats")["total_connections_received"] for s in servers]


@pytest.mark.full
def test_a_waiter_keeps_its_connections_to_sentinels(dlock, sentinels):
    holder = hold(dlock, At(sentinels.url), "job", "-t", "1h")
    waiter = dlock.contend(At(sentinels.url), "job", "-w", "120s").queued()
    time.sleep(14)  # four beats: each has been asked
    before = received(sentinels.sentinels)
    time.sleep(20)
    assert received(sentinels.sentinels) == [n + 1 for n in before]  # ours
    assert holder.finish().status == 0 and waiter.held().finish().status == 0


def test_renewals_keep_their_connections_to_sentinels(dlock, sentinels):
    holder = hold(dlock, At(sentinels.url), "job", "-t", "6s")
    has_renewed(holder, 3)  # each has been asked

    def are_kept():
        before = received(sentinels.sentinels)
        has_renewed(holder, 3)
        return received(sentinels.sentinels) == [n + 1 for n in before]  # ours

    assert any(are_kept() for _ in range(4))  # one that is late by a tenth of a second is connected to anew
    assert holder.finish().status == 0


def test_sentinels_have_a_password_of_their_own(dlock, make_forms, tmp_path):
    forms = make_forms(n=1, sentinel_lines=("requirepass s3cret",), password="s3cret")
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    words = ["run", "-n", "-u", forms.url, "-k", "job"]
    assert dlock.run(*words, "-O", f"sentinel-password-file={secret}", "--", "true").status == 0
    done = dlock.run(*words, "--", "true")
    assert done.status == 77 and "sentinel-password-file" in done.stderr
    secret.write_text("wr0ng\n")
    done = dlock.run(*words, "-O", f"sentinel-password-file={secret}", "--", "true")
    assert done.status == 77 and "wr0ng" not in done.stderr


@pytest.mark.parametrize("down_after, told", [(1000, False), (30000, True)])
def test_a_lease_that_does_not_bear_a_fail_over_is_told_with_v(dlock, make_redis, make_hostile, down_after, told):
    server = make_redis()
    named = array(b"127.0.0.1", b"%d" % server.port)
    state = array(b"name", b"m", b"down-after-milliseconds", b"%d" % down_after)
    sentinel = make_hostile({"sentinel": [named + state, b""]})  # with one packet: nothing waits for the second
    done = dlock.run("run", "-v", "-u", f"redis+sentinel://127.0.0.1:{sentinel.port}/m", "-k", "job", "--", "true")
    assert done.status == 0
    assert ("a fail-over takes at least 32.5 s" in done.stderr) == told, done.stderr


@pytest.mark.parametrize("answer, status, words", [
    (b"*-1\r\n", 78, "know no master called 'm'"),
    (b"-ERR No such master with that name\r\n", 78, "know no master called 'm'"),
    (array(b"127.0.0.1"), 76, "is it a sentinel?"),
    (array(b"no host", b"1"), 76, "is it a sentinel?"),
    (array(b"127.0.0.1", b"0"), 76, "is it a sentinel?"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", 76, "does not answer as Redis does"),
    (b"-NOAUTH Authentication required.\r\n", 77, "sentinel-password-file"),
    (b"-ERR unknown command 'SENTINEL'\r\n", 76, "unknown command"),
    (b"-ERR max number of clients reached\r\n", 69, "max number of clients"),
    (RESET, 69, "no sentinel tells"),
    (None, 69, "no sentinel tells"),
])
def test_sentinels_that_are_none(dlock, make_hostile, answer, status, words):
    sentinel = make_hostile({"*": answer})
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/m"
    done = dlock.run("run", "-n", "-u", url, "-O", "connect-timeout=1s", "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout) == (status, "") and words in done.stderr, done
    assert done.stderr.count("\n") == 1


def test_sentinels_without_room_are_asked_again(dlock, make_redis, make_hostile):
    """Each waiter has a connection to each of them: many of them fill it."""
    master = make_redis()
    sentinel = make_hostile({"sentinel": [b"-ERR max number of clients reached\r\n"] * 2 + [array(b"127.0.0.1", b"%d" % master.port)]})
    done = dlock.run("run", "-u", f"redis+sentinel://127.0.0.1:{sentinel.port}/m", "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout) == (0, "ran\n"), done


def test_a_sentinel_that_names_a_replica(dlock, redis_sentinels, make_hostile):
    replica = next(s for s in redis_sentinels.servers if s is not redis_sentinels.master)
    sentinel = make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % replica.port)})
    done = dlock.run("run", "-n", "-u", f"redis+sentinel://127.0.0.1:{sentinel.port}/m", "-k", "job",
                     "--", "echo", "ran")
    assert (done.status, done.stdout) == (69, "") and "READONLY" in done.stderr, done


class LateReplica(Hostile):
    """A replica that says so for as long as the last attempt of `-w 2s` has not begun, and then nothing."""

    SAYS_SO = 1.85

    def __init__(self):
        super().__init__({"acquire": b"-READONLY You can't write against a read only replica.\r\n"})
        self.answers["sentinel"] = array(b"127.0.0.1", b"%d" % self.port)
        self.began = None

    def _answer(self, words):
        self.began = self.began or boottime()
        answer = super()._answer(words)
        return answer if b"acquire" not in words or boottime() < self.began + self.SAYS_SO else SILENCE


def test_a_last_attempt_without_time_hides_no_reason(dlock, request):
    server = LateReplica()
    request.addfinalizer(server.close)
    done = dlock.run("run", "-u", f"redis+sentinel://127.0.0.1:{server.port}/m", "-w", "2s", "-k", "job", "--", "true")
    assert done.status == 69 and "READONLY" in done.stderr and server.asked.count("acquire") > 2, done


def test_what_most_sentinels_say_counts(dlock, make_redis, make_hostile):
    server = make_redis()
    good = array(b"127.0.0.1", b"%d" % server.port)
    wrong = make_hostile({"sentinel": array(b"127.0.0.1", b"%d" % free_port())})
    right = [make_hostile({"sentinel": good}) for _ in range(2)]
    hosts = ",".join(f"127.0.0.1:{s.port}" for s in (wrong, *right))
    for _ in range(3):
        done = dlock.run("run", "-u", f"redis+sentinel://{hosts}/m", "-k", "job", "--", "true")
        assert (done.status, done.stderr) == (0, ""), done
    # as many say this as that
    hosts = f"127.0.0.1:{wrong.port},127.0.0.1:{right[0].port}"
    done = dlock.run("run", "-n", "-u", f"redis+sentinel://{hosts}/m", "-k", "job", "--", "true")
    assert done.status == 69 and "do not agree" in done.stderr
    # one that is silent does not stop the other
    hosts = f"127.0.0.1:{make_hostile({'*': None}).port},127.0.0.1:{right[0].port}"
    assert dlock.run("run", "-u", f"redis+sentinel://{hosts}/m", "-k", "job", "--", "true").status == 0


@pytest.mark.parametrize("url, status", [
    ("redis+sentinel://", 64), ("redis+sentinel:///m", 64), ("redis+sentinel://h", 64), ("redis+sentinel://h/", 64),
    ("redis+sentinel://h,/m", 64), ("redis+sentinel://h/m/x", 64), ("redis+sentinel://h/a%20b", 64), ("redis+cluster://", 64),
    ("redis+cluster://,h", 64), ("redis+cluster://h:0", 64), ("redis+cluster://h?db=1", 64), ("redis+cluster://h/1", 78),
    ("redis+cluster://" + ",".join(f"h{i}" for i in range(17)), 64),
])
def test_wrong_urls(dlock, url, status):
    done = dlock.run("run", "-u", url, "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout) == (status, "") and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("setting, url", [("wait-replicas=0", "redis://h"), ("wait-replicas=x", "redis://h"),
                                          ("wait-replicas=101", "redis+cluster://h"), ("sentinel-password-file=/x", "redis://h")])
def test_wrong_settings(dlock, setting, url):
    assert dlock.run("run", "-u", url, "-O", setting, "-k", "job", "--", "true").status == 64


# ---- a cluster ----


def test_a_hold_and_its_waiter_survive_a_planned_fail_over_of_their_node(dlock, cluster):
    at = At(cluster.url)
    holder = hold(dlock, at, "job", "-t", TTL)
    waiter = dlock.contend(at, "job", "-t", TTL, "-w", "60s").queued()
    before = renewals(holder)
    cluster.fail_over("job")
    assert has_renewed(holder, before)
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_contenders_and_a_hold_survive_a_killed_node(dlock, cluster, tmp_path):
    holder = hold(dlock, At(cluster.url), "{job}held", "-t", TTL)
    with Contenders(dlock, At(cluster.url), tmp_path / "log") as contenders:
        contenders.go_on(5)
        old = cluster.owner("job")
        with old.client() as c:
            await_replicas(c, key="{job}mark")
        before = renewals(holder)
        old.kill()
        wait_for(lambda: cluster.owner("job") is not old, what="another owner")
        contenders.go_on()
        assert has_renewed(holder, before), holder.result()
        assert holder.finish().status == 0
        assert all(r.status in (0, 79) for r in contenders.finish())


def test_a_slot_that_moves_during_a_hold_and_a_wait(dlock, cluster):
    at = At(cluster.url)
    holder = hold(dlock, at, "job", "-t", TTL)
    waiter = dlock.contend(at, "job", "-t", TTL, "-w", "60s").queued()
    to = next(m for m in cluster.masters if m is not cluster.owner("job"))
    cluster.begin_move("job", to)
    cluster.move_keys("job", to, most=1)
    holder.event("suspect", timeout=30)  # half of it is there, half here: TRYAGAIN
    assert is_alive(holder.command)
    cluster.move_keys("job", to)
    cluster.end_move("job", to)
    before = renewals(holder)
    assert has_renewed(holder, before)
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_waiters_are_not_deaf_on_another_node(dlock, cluster):
    """Where the first question goes is not where the lock is: the ear is at the owner's."""
    owner = cluster.owner("job")
    at = At(cluster.url_of(*(n for n in cluster.nodes if n is not owner)))
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at, "job", "-w", "60s").queued()

    def hears():
        with owner.client() as c:
            return ears(c)

    wait_for(hears, what="a subscription at the owner")
    began = boottime()
    assert holder.finish().status == 0
    waiter.held()
    assert spent(began) < 3  # a beat is longer
    assert waiter.finish().status == 0


def test_seeds_that_are_gone(dlock, redis_cluster):
    gone = f"{HOST}:{free_port()}"
    url = f"redis+cluster://{gone},{HOST}:{redis_cluster.nodes[0].port}"
    assert dlock.run("run", "-u", url, "-k", "seeds", "--", "true").status == 0
    done = dlock.run("run", "-u", f"redis+cluster://{gone}", "-O", "connect-timeout=1s", "-k", "seeds", "--", "true")
    assert done.status == 69 and "refused" in done.stderr


def test_keys_of_several_slots(dlock, redis_cluster):
    done = dlock.run("run", "-u", redis_cluster.url, "-k", "a", "-k", "b", "--", "echo", "ran")
    assert (done.status, done.stdout) == (78, "") and "{tag}" in done.stderr
    done = dlock.run("run", "-u", redis_cluster.url, "-k", "a{t}", "-k", "b{t}", "--", "echo", "ran")
    assert (done.status, done.stdout) == (0, "ran\n")
    # the lock lies where the tag lies
    holder = dlock.hold(At(redis_cluster.url), "a{t}")
    node = redis_cluster.owner("t")
    with node.client() as c:
        assert c.keys("dlock:{t}:a%7Bt%7D:h")
    assert holder.finish().status == 0


def test_a_circle_of_redirections(dlock, make_hostile):
    one, two = make_hostile(), make_hostile()
    one.answers = {"*": b"-MOVED 1 127.0.0.1:%d\r\n" % two.port}
    two.answers = {"*": b"-MOVED 1 127.0.0.1:%d\r\n" % one.port}
    done = dlock.run("run", "-n", "-u", f"redis+cluster://127.0.0.1:{one.port}", "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout) == (69, "") and "MOVED" in done.stderr and (one.asked + two.asked).count("acquire") <= 6
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("to", [b"no-such-host.invalid:7", b"bad host:7", b"127.0.0.1:0", b"", b"7"])
def test_a_redirection_to_nowhere(dlock, make_hostile, to):
    one = make_hostile({"*": b"-MOVED 1 " + to + b"\r\n"})
    done = dlock.run("run", "-n", "-u", f"redis+cluster://127.0.0.1:{one.port}", "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout) == (69, "") and done.stderr.count("\n") == 1, done


OF_A_CLUSTER = [
    b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", b"-CLUSTERDOWN The cluster is down\r\n",
    b"-CLUSTERDOWN Hash slot not served\r\n", b"-ERR Script attempted to access a non local key in a cluster node script: x\r\n",
]
OF_ANY = [
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n", b"-MASTERDOWN Link with MASTER is down\r\n",
    b"-BUSY Redis is busy running a script.\r\n", b"-NOREPLICAS Not enough good replicas to write.\r\n",
    b"-UNBLOCKED force unblock\r\n",
]


@pytest.mark.parametrize("form_of, reply", [("sentinel", r) for r in OF_ANY] + [("cluster", r) for r in OF_A_CLUSTER + OF_ANY],
                         ids=lambda r: r if isinstance(r, str) else r.split()[0].decode().strip("-"))
def test_what_passes_is_waited_out(dlock, make_hostile, reply, form_of):
    server = make_hostile({"acquire": [reply, reply, GRANTED], "release": [reply, DONE]})
    server.answers["sentinel"] = array(b"127.0.0.1", b"%d" % server.port)
    url = f"redis+{form_of}://127.0.0.1:{server.port}" + ("/m" if form_of == "sentinel" else "")
    done = dlock.run("run", "-u", url, "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout) == (0, "ran\n"), done


@pytest.mark.parametrize("reply", [r for r in OF_A_CLUSTER + OF_ANY if r.split()[0] in (b"-LOADING", b"-CLUSTERDOWN", b"-TRYAGAIN")],
                         ids=lambda r: r.split()[0].decode().strip("-"))
def test_a_look_at_what_does_not_pass_ends(dlock, make_hostile, reply):
    server = make_hostile({"*": reply})
    done = dlock.run("ls", "-u", f"redis+cluster://127.0.0.1:{server.port}")
    word = reply.split()[0].decode().strip("-")
    assert done.status == 69 and word in done.stderr and str(server.port) in done.stderr, done


def test_what_was_said_before_the_last_silence_is_told(dlock, make_hostile):
    server = make_hostile({"*": [b"-LOADING data\r\n", SILENCE]})
    done = dlock.run("ls", "-u", f"redis+cluster://127.0.0.1:{server.port}")
    assert done.status == 69 and "LOADING" in done.stderr, done


@pytest.mark.parametrize("named", [b"127.0.0.1:%d", b":%d"])
def test_ask_is_followed_once_and_moved_remembered(dlock, make_hostile, named):
    target = make_hostile({"asking": b"+OK\r\n"})
    source = make_hostile({"acquire": b"-ASK 1 " + named % target.port + b"\r\n",
                           "release": b"-MOVED 1 " + named % target.port + b"\r\n"})
    assert dlock.run("run", "-u", f"redis+cluster://127.0.0.1:{source.port}", "-k", "job", "--", "true").status == 0
    assert target.asked[:2] == ["asking", "acquire"] and target.asked[-1] == "release"
    assert "asking" not in target.asked[2:]
    assert source.asked[0] == "acquire" and "release" in source.asked


def test_a_node_that_gets_a_slot_does_not_know_the_script(dlock, make_hostile):
    """ASKING holds for one command: the whole script is sent with another one."""
    target = make_hostile({"asking": b"+OK\r\n", "acquire": [b"-NOSCRIPT No matching script.\r\n", GRANTED]})
    source = make_hostile({"*": b"-ASK 1 127.0.0.1:%d\r\n" % target.port})
    assert dlock.run("run", "-u", f"redis+cluster://127.0.0.1:{source.port}", "-k", "job", "--", "true").status == 0
    assert target.asked[:4] == ["asking", "acquire", "asking", "acquire"]


# ---- replicas that must have it ----


def test_replicas_are_waited_for_on_any_form(dlock, form):
    assert dlock.run("run", *form.words, "-O", "wait-replicas=1", "-k", form.key(), "--", "true").status == 0
    done = dlock.run("run", *form.words, "-n", "-O", "wait-replicas=2", "-k", form.key(), "--", "echo", "ran")
    assert (done.status, done.stdout) == (69, "") and "1 of its replicas confirmed the lock, not 2" in done.stderr
    assert dlock.run("status", *form.words, "-k", form.key()).status == 1  # given back


def test_what_was_steered_counts_when_replicas_have_it(dlock, form):
    """A fail-over would undo a thaw: nobody gets the lock, though it was said to be open."""
    words = [*form.words, "-k", form.key("steered")]
    for operation in (["freeze"], ["thaw", "-y"]):
        done = dlock.run(*operation, *words, "-O", "wait-replicas=2")
        assert done.status == 69 and "1 of its replicas confirmed" in done.stderr, done
        assert dlock.run("freeze", *words, "-O", "wait-replicas=1").status == 0
    assert dlock.run("thaw", *words, "-y", "-O", "wait-replicas=1").status == 0


def test_a_grant_that_replicas_lack_does_not_stand_in_others_way(dlock, redis_sentinels):
    at, key = At(redis_sentinels.url), "given-back"
    vain = dlock.contend(at, key, "-w", "60s", "-O", "wait-replicas=2")
    wait_for(lambda: "wait-replicas" in vain.stderr(), what="a grant that is given back")
    assert dlock.run("run", *at.words, "-w", "30s", "-k", key, "--", "true").status == 0
    assert vain.poll() is None and not vain.running


def test_a_renewal_without_its_replicas_is_no_renewal(dlock, make_hostile):
    server = make_hostile({"wait": [b":1\r\n", b":0\r\n", b":0\r\n", b":1\r\n"]})
    holder = hold(dlock, At(server.url), "job", "-t", "6s", "-O", "wait-replicas=1")
    holder.event("suspect", timeout=30)
    assert has_renewed(holder, renewals(holder))
    assert holder.finish().status == 0
    assert server.asked.count("wait") == server.asked.count("acquire") + server.asked.count("renew")


@pytest.mark.parametrize("options, confirmed, said", [((), 0, False), (("--once", "x"), 0, True), (("--once", "x"), 1, False),
                                                     (("--once", "x", "--no-retry"), 0, True)], ids=["", "once", "once confirmed", "no-retry"])
def test_a_job_counts_when_replicas_have_its_run(dlock, make_hostile, options, confirmed, said):
    """A fail-over would forget the run, and the job would be run again, though dlock had not said so."""
    server = make_hostile({"wait": [b":1\r\n", *[b":%d\r\n" % confirmed] * 50]})
    done = run(dlock, At(server.url), "-t", "6s", "-O", "wait-replicas=1", *options)
    assert (done.status, done.stdout) == (0, "ran\n"), done
    assert ("the release was not confirmed" in done.stderr and "0 of its replicas confirmed" in done.stderr) == said, done
    assert said or not done.stderr, done
