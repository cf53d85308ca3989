# Goal of these tests: what is peculiar to locks on Redis: its passwords, what
# others may write into a lock's keys, servers that lose locks, and crowds.

import contextlib
import hashlib
import os
import socket
import subprocess
import threading
import time

import pytest

from faults import assert_password_is_not_shown
from hostile import GRANTED, array, waiting
from proxy import close_with_reset
from redis_script import ears
from support import DLOCK, free_port, is_alive, rules_of, run, told_at_the_end, wait_for

SECRET = "s3cr3t/P%55 x"
ENCODED = "s3cr3t%2FP%2555%20x"
LEASE = ("-t", "3s")
YEAR_MS = 366 * 86400 * 1000


class At:
    """A place as tests of one backend make them."""

    def __init__(self, url):
        self.words = ["-u", url]


def calls(server, command="evalsha"):
    with server.client() as c:
        return c.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


# ---- secrets ----


def said(started):
    return started.stderr() + started.stdout() + str(started.events())


@pytest.mark.parametrize("echo", [SECRET, ENCODED, "\\x73" + SECRET[1:], SECRET[:9]], ids=["plain", "encoded", "escaped", "cut"])
@pytest.mark.parametrize("asked", ["auth", "select", "acquire", "renew", "release"])
def test_a_password_that_the_server_repeats_is_not_told(dlock, make_hostile, asked, echo):
    error = f"-ERR unknown command 'X', with args beginning with: '{echo}'\r\n".encode()
    server = make_hostile({asked: error, "select": error if asked == "select" else b"+OK\r\n"})
    url = f"redis://:{ENCODED}@127.0.0.1:{server.port}/1"
    started = dlock.start("run", "-v", "-u", url, "-k", "job", *LEASE, "--", "sleep", "60" if asked == "renew" else "0")
    started.wait()
    told = said(started)
    assert asked in server.asked and "127.0.0.1" in told
    assert echo[:8] not in told and echo[-6:] not in told, told


def test_a_password_in_what_others_have_said_is_not_shown(dlock, make_redis):
    server = make_redis("--requirepass", SECRET)
    assert_password_is_not_shown(dlock, f"redis://:{ENCODED}@127.0.0.1:{server.port}", SECRET)


def test_a_server_without_passwords_does_not_make_dlock_tell_one(dlock, make_hostile):
    server = make_hostile({"auth": f"-ERR unknown command 'AUTH', with args beginning with: '{SECRET}' \r\n".encode()})
    done = run(dlock, f"redis://:{ENCODED}@127.0.0.1:{server.port}", "-n")
    assert done.status == 77 and "leave the password out" in done.stderr and SECRET[:6] not in done.stderr


def test_protected_mode_is_no_want_of_a_password_of_ours(dlock, make_hostile):
    """A server without a password says so to each client of another machine."""
    done = run(dlock, make_hostile({"*": b"-DENIED Redis is running in protected mode because protected mode is enabled "
                                         b"and no password is set for the default user.\r\n"}).url, "-n")
    assert done.status == 77 and "protected-mode" in done.stderr and "leave the password out" not in done.stderr, done


# ---- what others write into the keys ----


OTHER = "f" * 32  # an owner


def row(owner, numbers="x 60000 5 0 0 5"):
    """As lock.lua writes it: kind, lease, token, slot, subscribed, granted, their sum, record."""
    return f"{numbers} {hashlib.sha1(f'{owner} {numbers}'.encode()).hexdigest()[:8]} {{}}"


def hold_by_hand(client, ends):
    """As another program might: a lease of the key "job" until then, in ms since 1970 (or an hour from now)."""
    client.hset("dlock:{job}:i", OTHER, row(OTHER))
    client.zadd("dlock:{job}:h", {OTHER: ends or time.time() * 1000 + 3600000})


def let_go_by_hand(client):
    client.delete("dlock:{job}:h")


@pytest.mark.parametrize("record", ["x" * 2000, "x" * 10000, "x" * 1000000, "\0", "a\0b"], ids=["2000", "10000", "1000000", "nul", "nul-within"])
def test_an_absurd_record_is_cut(dlock, own_redis, record):
    """Who finds the key held is told so, whatever its holder has written."""
    with own_redis.client() as c:
        hold_by_hand(c, None)
        c.hset("dlock:{job}:i", OTHER, row(OTHER) + record)
        result = dlock.run("run", *At(own_redis.url).words, "-nk", "job", "true")
    assert (result.status, result.stderr.count("\n")) == (75, 1), result
    assert "is held by somebody" in result.stderr


@pytest.mark.parametrize("began", [None, "", "x", "-5", "1e300", "9" * 18], ids=str)
def test_a_job_that_is_done_is_done_whenever_that_was(dlock, own_redis, began):
    words = ["run", *At(own_redis.url).words, "-v", "-k", "job", "--once", "id", "--", "echo", "ran"]
    assert dlock.run(*words).stdout == "ran\n"
    with own_redis.client() as c:
        assert c.hdel("dlock:{job}:r:id", "began") == 1
        c.hset("dlock:{job}:r:id", "who", 1000000 * "w")
        if began is not None:
            c.hset("dlock:{job}:r:id", "began", began)
    done = dlock.run(*words)
    assert (done.status, done.stdout) == (0, "") and "ended with 0" in done.stderr, done


@pytest.mark.parametrize("ends", ["9.3e18", "1e300", "+inf", YEAR_MS * 3000], ids=str)
def test_an_absurd_lease_makes_no_waiter_ask_without_end(dlock, own_redis, ends):
    at = At(own_redis.url)
    with own_redis.client() as c:
        hold_by_hand(c, ends)
        waiter = dlock.contend(at, "job").queued(1)
        wait_for(lambda: c.pubsub_channels("dlock:*"), what="the waiter's subscription")
        time.sleep(0.3)
        before = calls(own_redis)
        time.sleep(2)
        assert calls(own_redis) - before <= 2
        assert 0 < c.pttl("dlock:{job}:h") < YEAR_MS + 120000
        let_go_by_hand(c)
    assert waiter.held().finish().status == 0


def test_a_lease_that_is_always_about_to_end_is_looked_at_now_and_then(dlock, make_hostile):
    server = make_hostile({"acquire": waiting(left=1), "subscribe": array(b"subscribe", b"x", 1)})
    began = time.monotonic()
    dlock.contend(At(server.url), "job").queued(1)
    time.sleep(2)
    wait_for(lambda: server.asked.count("acquire") > 5, what="looks")
    asked = server.asked.count("acquire")
    assert asked <= (time.monotonic() - began) / 0.05 + 5


# ---- a server that is restarted ----


@pytest.mark.parametrize("words", [[], ["-w", "60s"], ["-w", "60s", "-O", "connect-timeout=1s"]], ids=str)
def test_a_new_run_outlasts_the_restart_of_its_server(dlock, own_redis, words):
    own_redis.kill()
    run_ = dlock.start("run", "-u", own_redis.url, "-k", "job", *words, "--", "true")
    time.sleep(1.2 if "-w" not in words else 6)
    assert run_.poll() is None
    own_redis.start()
    assert run_.wait().status == 0


def test_a_new_run_that_may_not_wait_asks_once(dlock, make_hostile):
    server = make_hostile({"acquire": b"-LOADING Redis is loading the dataset in memory\r\n"})
    assert run(dlock, server.url, "-n").status == 69
    assert server.asked.count("acquire") == 1


def test_a_new_run_gives_up_when_its_time_is_over(dlock):
    began = time.monotonic()
    assert run(dlock, f"redis://127.0.0.1:{free_port()}", "-w", "2s").status == 69
    assert 1.5 < time.monotonic() - began
    assert run(dlock, f"redis://127.0.0.1:{free_port()}", "-O", "connect-timeout=700ms").status == 69


PASSING = ["LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down",
           "BUSY Redis is busy running a script.", "ERR max number of clients reached", "TRYAGAIN later"]


@pytest.mark.parametrize("error", PASSING, ids=lambda e: e.split()[0])
def test_what_passes_by_itself_is_waited_for(dlock, make_hostile, error):
    server = make_hostile({"acquire": [b"-" + error.encode() + b"\r\n"] * 3 + [GRANTED]})
    assert run(dlock, server.url).status == 0
    assert server.asked.count("acquire") == 4


class Counter:
    """Listens where a server was, notes when it is asked, and resets each connection."""

    def __init__(self, port):
        self.times = []
        self.listener = socket.create_server(("127.0.0.1", port), backlog=1000)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.times.append(time.monotonic())
                close_with_reset(client)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def most_in_a_second(self):
        return max(sum(1 for other in self.times if t <= other < t + 1) for t in self.times)


CROWD = 40


def queue_of(client):
    return client.zrange("dlock:{job}:q", 0, -1)


@pytest.mark.parametrize("options", [[], ["--appendonly", "yes", "--appendfsync", "always"]], ids=["forgets", "remembers"])
def test_a_crowd_bears_a_restart_in_order_and_asks_seldom_meanwhile(dlock, make_redis, make_proxy, options):
    server = make_redis(*options)
    proxy = make_proxy(server.port)
    with server.client() as c:
        hold_by_hand(c, None)
        waiters = [dlock.contend(At(proxy.url), "job", "-w", "90s", command=("true",)).queued(n + 1) for n in range(CROWD)]
        wait_for(lambda: len(c.pubsub_channels("dlock:*")) == CROWD, what="their ears")
        order = queue_of(c)
    proxy.refuse()
    counter = Counter(proxy.port)
    server.kill()
    time.sleep(7)
    counter.close()
    server.start()
    # Each comes once in three seconds, the first four some three times a second.
    assert CROWD < len(counter.times)
    assert counter.most_in_a_second() <= 0.4 * CROWD + 4 * 5
    with server.client() as c:
        hold_by_hand(c, None)
        proxy.accept()
        wait_for(lambda: len(queue_of(c)) == CROWD, what="the crowd's return")
        assert queue_of(c) == order
        wait_for(lambda: len(c.pubsub_channels("dlock:*")) == CROWD, what="their ears")
        let_go_by_hand(c)
        assert [w.wait(60).status for w in waiters] == [0] * CROWD
    tokens = [w.token for w in waiters]
    assert tokens == sorted(tokens)


def test_who_comes_too_late_for_its_grant_keeps_its_place(dlock, own_redis, make_proxy):
    """A waiter that hears nothing when its turn comes, and is back a little later, goes before those behind it."""
    proxy = make_proxy(own_redis.port)
    holder = dlock.hold(At(own_redis.url), "job")
    first = dlock.contend(At(proxy.url), "job").queued(1)
    second = dlock.contend(At(own_redis.url), "job").queued(2)
    third = dlock.contend(At(own_redis.url), "job").queued(3)
    proxy.refuse()
    proxy.reset()
    with own_redis.client() as c:
        wait_for(lambda: ears(c) == 2, what="the loss of a subscription")
    holder.finish()
    second.held()
    proxy.accept()
    wait_for(lambda: len(own_redis_queue(own_redis)) == 2, what="the first one's return")
    second.finish()
    first.held().finish()
    third.held().finish()
    assert [w.wait().status for w in (holder, first, second, third)] == [0] * 4
    assert second.token < first.token < third.token


def own_redis_queue(server):
    with server.client() as c:
        return queue_of(c)


def test_an_idle_waiter_asks_once_in_three_seconds(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", "-t", "120s")
    waiters = [dlock.contend(At(own_redis.url), "job", command=("true",)).queued(n + 1) for n in range(8)]
    with own_redis.client() as c:
        wait_for(lambda: ears(c) == 8, what="their ears")
        time.sleep(0.5)
        before, began = c.info("commandstats")["cmdstat_evalsha"]["calls"], time.monotonic()
        time.sleep(7)
        asked, passed = c.info("commandstats")["cmdstat_evalsha"]["calls"] - before, time.monotonic() - began
        assert 8 <= asked <= 8 * (passed / 3.3 + 1)
        c.config_resetstat()
        assert holder.finish().status == 0
        assert [w.wait().status for w in waiters] == [0] * 8
        stats = c.info("commandstats")
    # A hand-off: the release, one call, one question.  (Beats may fall between.)
    assert stats["cmdstat_evalsha"]["calls"] <= 2 * 9 + 8
    assert stats["cmdstat_publish"]["calls"] <= 9


# ---- servers that lose locks ----

EVICTING = ("--maxmemory", "1gb", "--maxmemory-policy", "volatile-lru")
NOTHING_SAVED = ("--save", "")


@pytest.mark.parametrize("options, words", [
    (EVICTING, ["maxmemory-policy volatile-lru"]),
    (NOTHING_SAVED, ["neither appendonly nor save"]),
    (EVICTING + NOTHING_SAVED, ["maxmemory-policy volatile-lru", "neither appendonly nor save"]),
    ((), []),
    (("--maxmemory", "1gb"), []),
    (("--maxmemory-policy", "allkeys-lru"), []),
    (("--save", "", "--appendonly", "yes"), []),
], ids=["evicts", "forgets", "both", "saves", "limited", "unlimited", "appends"])
@pytest.mark.parametrize("verbose", [False, True], ids=["renewal", "verbose"])
def test_a_server_that_may_lose_locks_is_told_of_once(dlock, make_redis, options, words, verbose):
    server = make_redis(*options)
    started = dlock.contend(At(server.url), "job", "-t", "9s", *(["-v"] if verbose else [])).held()
    if not verbose:
        assert not started.events("notice")
        wait_for(lambda: calls(server, "evalsha") >= 3 and calls(server, "config|get") == 1, what="two renewals")
        # The server has counted the question before its answer has been read.
        wait_for(lambda: len(started.events("notice")) == bool(words), what="an answer that has been read")
    done = started.finish()
    lines = [line for line in done.stderr.splitlines() if "may lose locks" in line]
    assert done.status == 0 and len(lines) == len(started.events("notice")) == (1 if words else 0)
    assert all(word in lines[0] and str(server.port) in lines[0] for word in words)
    assert calls(server, "info|memory") <= 1 and calls(server, "config|get") == 1


def test_a_run_that_ends_early_is_not_told_of_such_a_server(dlock, make_redis):
    """Although it has renewed, which it does once it has had the lock for a second: cron would send each such line."""
    server = make_redis(*NOTHING_SAVED)
    holder = dlock.hold(At(server.url), "job")
    wait_for(lambda: calls(server, "evalsha") >= 3, what="two renewals")
    done = holder.finish()
    assert (done.status, done.stderr) == (0, "") and calls(server, "info|memory") == 0


def test_a_server_that_cannot_save_is_told_of(dlock, make_redis):
    server = make_redis("--stop-writes-on-bgsave-error", "no", "--enable-protected-configs", "yes")
    with server.client() as c:
        c.config_set("dir", "/proc/self")  # nobody writes there
        c.bgsave()
        wait_for(lambda: c.info("persistence")["rdb_last_bgsave_status"] == "err", what="a save that fails")
    assert "cannot save" in run(dlock, server.url, "-v").stderr


def test_a_verbose_run_is_told_although_the_server_was_away_at_first(dlock, make_redis):
    server = make_redis(*NOTHING_SAVED)
    server.kill()
    started = dlock.start("run", "-v", "-u", server.url, "-k", "job", "-w", "60s", "--", "true")
    time.sleep(0.5)
    server.start()
    assert started.wait().status == 0
    assert len(started.events("notice")) == 1


@pytest.mark.parametrize("more, told", [("", 0), (" +info +config|get", 1)], ids=["least", "told"])
def test_the_rights_of_the_manual_suffice(dlock, make_redis, more, told):
    server = make_redis(*NOTHING_SAVED)
    with server.client() as c:
        c.execute_command("ACL", "SETUSER", "dlock", "on", ">password", *rules_of("dlock"), *more.split())
    at = At(f"redis://dlock:password@127.0.0.1:{server.port}")
    holder = dlock.hold(at, "job", "-t", "9s")
    waiter = dlock.contend(at, "job", "-t", "9s").queued(1)
    wait_for(lambda: calls(server) >= 5 and len(holder.events("notice")) == told, what="renewals")
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    assert len(holder.events("notice")) == told


@pytest.mark.parametrize("rules", ["-info -config", "-config", "-info"])
def test_what_the_server_does_not_tell_is_not_complained_about(dlock, make_redis, rules):
    server = make_redis(*NOTHING_SAVED)
    with server.client() as c:
        c.execute_command("ACL", "SETUSER", "worker", "on", "nopass", "~*", "&*", "+@all", *rules.split())
    done = run(dlock, f"redis://worker:any@127.0.0.1:{server.port}", "-v")
    assert done.status == 0 and "may lose" not in done.stderr


@pytest.mark.parametrize("answer", [b"", b"-ERR unknown command\r\n", b"$3\r\nabc\r\n", array(b"save", b""), array(),
                                    b"$40\r\nmaxmemory:99999999999999999999999999\r\n\r\n\r\n"], ids=range(6))
@pytest.mark.parametrize("asked", ["info", "config"])
def test_a_renewal_counts_whatever_is_said_of_the_settings(dlock, make_hostile, asked, answer):
    silent = b"-NOPERM\r\n"
    server = make_hostile({"info": silent, "config": silent, **{asked: answer or None}})
    holder = dlock.contend(At(server.url), "job", *LEASE)
    wait_for(lambda: server.asked.count("renew") >= 2, what="two renewals")
    assert holder.finish().status == 0


# ---- who may say "no" ----


def test_a_replica_cannot_say_that_the_lock_is_lost(dlock, make_redis):
    """Its master's data may be late, or flushed by a resynchronization: it must not be believed."""
    server = make_redis()
    holder = dlock.hold(At(server.url), "job", "-t", "12s")
    with server.client() as c:
        c.flushall()
        c.replicaof("127.0.0.1", free_port())
        holder.event("suspect")
        assert is_alive(holder.command)
        assert "READONLY" in holder.events("suspect")[0]["reason"]


def test_a_waiter_outlasts_a_master_that_is_demoted_for_a_while(dlock, make_redis):
    """It was the master when it took the waiter into its queue.  A run that begins is told at once that this is a replica."""
    server = make_redis()
    holder = dlock.hold(At(server.url), "job", "-t", "30s")
    waiter = dlock.contend(At(server.url), "job").queued()
    brief = dlock.contend(At(server.url), "job", "-w", "8s").queued()
    with server.client() as c:
        c.replicaof("127.0.0.1", free_port())
        waiter.event("retrying", timeout=10)
        assert "READONLY" in waiter.events("retrying")[0]["reason"], waiter
        done = brief.wait()
        assert done.status == 69 and "READONLY" in done.stderr, done
        assert run(dlock, server.url, "-w", "3s").status == 78
        c.replicaof("no", "one")
    assert holder.finish().status == 0
    waiter.held()
    assert waiter.finish().status == 0


# ---- a name with several addresses ----


@contextlib.contextmanager
def silent(address):
    """Nobody answers who connects there: no place is left in the line."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        yield


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("other", [lambda address: contextlib.nullcontext(), silent], ids=["refuses", "silent"])
def test_a_name_leads_to_the_address_that_answers(dlock, own_redis, tmp_path, other):
    """The resolver names 127.0.0.1 first; the server is at the other one."""
    with own_redis.client() as c:
        c.config_set("bind", "127.0.0.2")
    (tmp_path / "hosts").write_text("127.0.0.2 both\n127.0.0.1 both\n")
    with other(("127.0.0.1", own_redis.port)):
        done = subprocess.run(["unshare", "-m", "sh", "-c", f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"', "sh", DLOCK, "run",
                               "-u", f"redis://both:{own_redis.port}", "-k", "job", "--", "echo", "ran"],
                              env=dlock.env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, told_at_the_end(done.stderr)) == (0, "ran\n", ""), done
