# Goal of these tests: Redlock, a lock on N independent masters.  Nothing that happens to a
# minority of them is noticed, nothing that happens to any of them gives two holders, and
# tokens only grow.
#
# They were seen to fail without the write-back of tokens, without healing, when releases
# went only where a vote had been won, and (build/dlock-forgets) when the votes of masters
# that had just restarted counted.

import os
import random
import signal
import threading
import time

import pytest

from faults import assert_password_is_not_shown
from hostile import array
from proxy import DOWN, UP
from redlock import DURABLE, FORGETFUL, RUN, compile_clock, seconds_of
from support import DLOCK, PATIENCE, At, boottime, rules_of, size, spent, wait_for
from witness import check_seen, compile_witness, read_seen

ONCE = ("-n", "-k", "job", "--", "true")
LEASE = ("-t", "3s")
RESOLVED = ("-t", "12s")  # a resolver that takes longer than a share of it does not count, and the address is what it was
SECONDS = float(os.environ.get("DLOCK_SOAK_REDLOCK", "600"))  # of the long runs
FORGETS = os.path.join(os.path.dirname(DLOCK), "dlock-forgets")  # counts the votes of restarted masters
BRIEF = os.path.join(os.path.dirname(DLOCK), "dlock-brief")  # has leases of 3 s at most, and so waits 4 s for such votes


def run(dlock, at, *words, **options):
    return dlock.run("run", *at.words, *words, **options)


def assert_refused(done, status, *words):
    lines = [line for line in done.stderr.splitlines() if not line.startswith("dlock: waiting")]
    assert done.status == status and len(lines) == 1, done
    for word in words:
        assert word in lines[0], (word, done.stderr)


def token(dlock, at, *words):
    done = run(dlock, at, "-k", "job", *words, "--", "sh", "-c", "echo $DLOCK_TOKEN")
    assert done.status == 0, done
    return int(done.stdout)


def calls(server, command):
    with server.client() as c:
        return c.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def votes_until_none(masters):
    wait_for(lambda: masters.votes() == [None] * len(masters), what="a release")


# ---- bad input ----


@pytest.mark.parametrize("hosts, word", [
    ("h1", "at least three"), ("h1,h2", "at least three"), ("", "at least three"),
    ("h1,h2,h1", "twice"), ("h1,h2,H1:6379", "twice"), ("h1,,h2", "empty"), ("h1,h2,h3,", "empty"),
    (",".join(f"h{n}" for n in range(16)), "15"), ("h1,h2,h3:0", "port"), ("u@h1,h2,h3", "password"),
    ("h1,h2,h3/x", "database"), ("h1,h2,h3?a=b", "database"),
])
def test_urls_that_make_no_sense(dlock, hosts, word):
    assert_refused(run(dlock, At(f"redlock://{hosts}"), *ONCE), 64, word)


def test_passwords_are_not_told(dlock):
    done = run(dlock, At("redlock://:geheim@h1,h2"), *ONCE)
    assert_refused(done, 64, "three")
    assert "geheim" not in done.stderr


@pytest.mark.parametrize("words", [("-s",), ("--limit", "2"), ("--once", "x"), ("--cooldown", "1h")])
def test_what_a_quorum_cannot_do(dlock, masters, words):
    assert_refused(run(dlock, masters.at(), *words, *ONCE), 78, "redlock")
    assert all(not s.client().keys() for s in masters.all)


def test_freezes_are_refused(dlock, masters):
    assert_refused(dlock.run("freeze", *masters.at().words, "-k", "job"), 78, "freeze")


def test_unknown_dialect(dlock, masters):
    assert_refused(run(dlock, masters.at(), "-O", "dialect=redisson", *ONCE), 78, "dialect")


def test_one_server_by_two_names(dlock, masters):
    """Its vote never counts twice."""
    port = masters[0].port
    at = At(f"redlock://127.0.0.1:{port},localhost:{port},127.0.0.1:{masters[1].port}")
    masters[1].kill()
    assert_refused(run(dlock, at, *ONCE), 78, "one server")
    assert masters.votes()[0] is None


def test_a_password_in_what_others_have_said_is_not_shown(dlock, masters):
    for server in masters.all:
        server.client().config_set("requirepass", "geheimes")
    assert_password_is_not_shown(dlock, masters.url.replace("//", "//:geheimes@"), "geheimes", job=(), asker=False)


def test_an_inner_run_names_the_masters_in_any_order(dlock, masters):
    hosts = masters.url.removeprefix("redlock://").split(",")
    inner = [DLOCK, "run", "-n", "-u", "redlock://" + ",".join(reversed(hosts)), "-k", "job", "--", "echo", "joined"]
    done = dlock.run("run", "-u", masters.url, "-k", "job", "--", *inner, events=False)
    assert (done.status, done.stdout) == (0, "joined\n"), done


def test_one_wrong_password_is_told_and_two_are_refused(dlock, masters):
    at = At(masters.url.replace("//", "//:geheim@"))
    for server in masters.all:
        server.client().config_set("requirepass", "geheim")
    assert run(dlock, at, *ONCE).stderr == ""
    masters[2].client(password="geheim").config_set("requirepass", "other")
    done = run(dlock, at, *ONCE)
    assert done.status == 0
    masters[1].client(password="geheim").config_set("requirepass", "other")
    assert_refused(run(dlock, at, *ONCE), 77, "refuses the login")
    assert "geheim" not in done.stderr


def test_info_must_be_allowed(dlock, masters):
    for server in masters.all:
        server.client().acl_setuser("default", enabled=True, nopass=True, commands=["-info"])
    assert_refused(run(dlock, masters.at(), *ONCE), 78, "+info")
    assert masters.votes() == [None] * 3


def test_keys_of_another_type(dlock, masters):
    for server in masters.all:
        server.client().rpush("job", "x")
    assert_refused(run(dlock, masters.at(), "-O", "dialect=string", *ONCE), 76, "WRONGTYPE")
    assert all(s.client().lrange("job", 0, -1) == ["x"] for s in masters.all)


@pytest.mark.parametrize("answer", ["+OK\r\n", ":1\r\n", "*-1\r\n", "$-1\r\n", "*2\r\n:1\r\n:1\r\n",
                                    "*4\r\n:9\r\n:1\r\n:1\r\n:1\r\n",
                                    "*4\r\n:1\r\n$16\r\n9999999999999999\r\n:99999\r\n$1\r\na\r\n"])
def test_a_minority_that_talks_nonsense(dlock, masters, make_hostile, answer):
    hostile = make_hostile({"*": answer.encode()})
    first = token(dlock, masters.at(m0=hostile.port))
    assert first < 9e15
    assert token(dlock, masters.at()) > first


def test_two_answers_to_who_listens(dlock, make_hostile):
    """The reply that was read is not freed twice."""
    held = [array(0, 1, 99999, b"%d" % i, 60000, 5, b"other-0", b"{}") for i in range(3)]
    hostile = [make_hostile({"acquire": answer, "blpop": b"*-1\r\n*-1\r\n"}) for answer in held]
    at = At("redlock://" + ",".join(f"127.0.0.1:{h.port}" for h in hostile))
    done = run(dlock, at, "-w", "3s", "-k", "job", "--", "true")
    assert done.status == 75 and any("blpop" in h.asked for h in hostile), done


# ---- a minority ----


def fail(server, how):
    if how == "killed":
        server.kill()
    else:
        server.pause()


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("n", [3, 5])
def test_loss_of_a_minority_before(dlock, make_masters, how, n):
    masters = make_masters(n)
    assert run(dlock, masters.at(), *ONCE).status == 0  # all know the script
    for server in masters.all[:n // 2]:
        fail(server, how)
    done, seconds = seconds_of(lambda: run(dlock, masters.at(), "-t", "60s", *ONCE))
    assert (done.status, done.stderr) == (0, "") and seconds < PATIENCE / 6
    assert masters.votes()[n // 2:] == [None] * (n // 2 + 1)
    for server in masters.all[:n // 2]:
        server.resume() if how == "frozen" else server.start()
    votes_until_none(masters)  # the request to acquire comes late there, and so does that to release


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_loss_of_a_minority_during_a_hold(dlock, masters, how):
    holder = dlock.hold(masters.at(), "job", *LEASE)
    fail(masters[0], how)
    time.sleep(5)  # well beyond the lease
    assert run(dlock, masters.at(), *ONCE).status == 75
    if how == "frozen":
        masters[0].resume()
    assert holder.finish().status == 0
    assert run(dlock, masters.at(), *ONCE).status == 0


def test_a_late_minority_is_not_waited_for(dlock, masters, make_proxy):
    proxy = make_proxy(masters[0].port)
    proxy.delay = 5
    done, seconds = seconds_of(lambda: run(dlock, masters.at(m0=proxy.port), *ONCE))
    assert done.status == 0 and seconds < 5


def test_a_hold_is_healed(dlock, make_masters):
    """One master after the other loses its memory: more than a quorum in all."""
    masters = make_masters(3, FORGETFUL)
    masters.known()
    holder = dlock.hold(masters.at(), "job", *LEASE)
    votes = wait_for(lambda: (votes := masters.votes()) and len(set(votes)) == 1 and all(votes) and votes, what="the vote of each: two are a grant")
    for server in masters.all:
        server.restart()
        wait_for(lambda: masters.votes() == votes, what="the vote that is asked for again")
    assert holder.finish().status == 0


def test_a_master_that_may_not_be_written_says_no_no(dlock, masters):
    """Two replicas, who know nothing of it, are no quorum that has lost it."""
    holder = dlock.hold(masters.at(), "job", "-t", "12s")
    for server in masters.all[1:]:
        with server.client() as c:
            c.delete("dlock:{job}:redlock")
            c.replicaof("127.0.0.1", 1)
    assert holder.event("suspect")
    time.sleep(1)
    assert holder.poll() is None
    holder.signal(signal.SIGTERM)
    holder.wait()


def test_a_replica_does_not_say_that_it_was_lost(dlock, masters):
    holder = dlock.hold(masters.at(), "job")
    for server in masters.all[1:]:
        with server.client() as c:
            c.delete("dlock:{job}:redlock")
            c.replicaof("127.0.0.1", 1)
    done = holder.finish()
    assert done.status != 79 and "no longer" not in done.stderr, done


def test_scripts_are_sent_where_they_are_not_known(dlock, masters):
    holder = dlock.hold(masters.at(), "job", *LEASE)
    for server in masters.all:
        server.client().script_flush()
    time.sleep(3)
    assert holder.finish().status == 0
    assert masters.votes() == [None] * 3


# ---- a majority ----


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_loss_of_a_majority_before(dlock, masters, how):
    for server in masters.all[1:]:
        fail(server, how)
    done, seconds = seconds_of(lambda: run(dlock, masters.at(), "-k", "job", "-O", "connect-timeout=2s", "--", "true"))
    assert_refused(done, 69, "2 of 3 masters do not answer")
    assert seconds < PATIENCE / 3
    assert masters.votes()[:1] == [None] if how == "killed" else True
    for server in masters.all[1:]:
        if how == "frozen":
            server.resume()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_loss_of_a_majority_during_a_hold(dlock, masters, how):
    holder = dlock.hold(masters.at(), "job", *LEASE)
    began = boottime()
    for server in masters.all[1:]:
        fail(server, how)
    done = holder.wait()
    assert done.status == 79 and "masters" in done.stderr, done
    assert spent(began) < 3 + PATIENCE / 3
    for server in masters.all[1:]:
        if how == "frozen":
            server.resume()


def test_of_four_masters_three_are_needed(dlock, make_masters):
    masters = make_masters(4)
    masters[0].kill()
    assert run(dlock, masters.at(), *ONCE).status == 0
    masters[1].kill()
    assert_refused(run(dlock, masters.at(), *ONCE), 69, "2 of 4")


def test_a_majority_that_has_lost_it(dlock, masters):
    """Their word is enough."""
    holder = dlock.hold(masters.at(), "job", "-t", "6s")
    for server in masters.all[1:]:
        server.client().flushall()
    done = holder.wait()
    assert done.status == 79 and "2 of 3 masters" in done.stderr, done


# ---- release ----


def test_an_attempt_without_quorum_is_withdrawn_everywhere(dlock, masters):
    """Two have given their votes to another; the third one's vote is given back."""
    for server in masters.all[:2]:
        server.client().set("dlock:{job}:redlock", "another", px=60000)
    assert run(dlock, masters.at(), *ONCE).status == 75
    assert masters.votes() == ["another", "another", None]


def test_votes_are_withdrawn_where_no_answer_came(dlock, masters, make_proxy):
    """The answers of one are lost, those of another say no: the vote that was given is given back."""
    proxy = make_proxy(masters[0].port)
    for server in masters.all[1:]:
        server.client().set("dlock:{job}:redlock", "another", px=60000)
    run(dlock, masters.at(), *ONCE)
    masters[1].client().delete("dlock:{job}:redlock")
    proxy.drop("down")
    assert run(dlock, masters.at(m0=proxy.port), *ONCE).status in (69, 75)
    wait_for(lambda: masters.votes() == [None, None, "another"], what="a withdrawal")


def test_a_slow_master_is_asked_on_one_connection(dlock, masters, make_proxy):
    """It still owes the answer to one question when it is asked the next."""
    for server in masters.all[:2]:
        server.client().set("dlock:{job}:redlock", "another", px=60000)
    proxy = make_proxy(masters[2].port)
    proxy.delay = 0.1
    with masters[2].client() as c:
        before = c.info("stats")["total_connections_received"]
        assert run(dlock, masters.at(m2=proxy.port), "-w", "3s", "-k", "job", "--", "true").status == 75
        assert calls(masters[2], "evalsha") + calls(masters[2], "eval") > 5
        assert c.info("stats")["total_connections_received"] - before <= 3


@pytest.mark.parametrize("names", ["m0 m1 m2", "?m0 ?m1 ?m2"], ids=["fails", "hangs"])
def test_a_hold_outlives_the_resolver(dlock, masters, make_proxy, lost, names):
    """Connections that end are opened anew to where the masters were."""
    proxies = [make_proxy(s.port) for s in masters.all]
    at = At("redlock://" + ",".join(f"m{i}:{p.port}" for i, p in enumerate(proxies)))
    holder = dlock.hold(at, "job", "-v", "-t", "6s")
    lost.write_text(names)
    for proxy in proxies:
        proxy.reset()
    before = holder.stderr().count("renew: ok")
    wait_for(lambda: holder.stderr().count("renew: ok") > before + 3 or holder.poll() is not None, what="renewals")
    assert holder.finish().status == 0
    votes_until_none(masters)


def test_a_name_that_is_gone_is_not_the_address_it_had(dlock, masters, make_proxy, lost):
    """Another server may have that by now."""
    proxies = [make_proxy(s.port) for s in masters.all]
    at = At("redlock://" + ",".join(f"m{i}:{p.port}" for i, p in enumerate(proxies)))
    holder = dlock.hold(at, "job", *RESOLVED)
    lost.write_text("-m0 -m1 -m2")
    for proxy in proxies:
        proxy.reset()
    assert holder.wait().status == 79


def test_a_name_that_leads_to_another_master_has_no_vote_of_its_own(dlock, masters, make_proxy, lost):
    proxies = [make_proxy(s.port) for s in masters.all]
    at = At("redlock://" + ",".join(f"m{i}:{p.port}" for i, p in enumerate(proxies)))
    holder = dlock.hold(at, "job", *RESOLVED)
    lost.write_text(f"m1={proxies[0].port}")
    for proxy in proxies[1:]:
        proxy.refuse()
        proxy.reset()
    assert holder.wait().status == 79


def test_a_name_that_is_not_resolved_holds_up_no_other_master(dlock, masters, lost):
    lost.write_text("?m1")
    at = At("redlock://" + ",".join(f"m{i}:{s.port}" for i, s in enumerate(masters.all)))
    began = boottime()
    assert run(dlock, at, *ONCE).status == 0
    assert spent(began) < 1.5  # a round may take 2 s


def test_looks_keep_their_connections(dlock, masters):
    looks = dlock.start("ls", *masters.at().words, "--watch=100ms")
    wait_for(lambda: calls(masters[0], "evalsha_ro") > 2, what="looks")
    with masters[0].client() as c:
        before, asked = c.info("stats")["total_connections_received"], calls(masters[0], "evalsha_ro")
        wait_for(lambda: c.info("commandstats")["cmdstat_evalsha_ro"]["calls"] > asked + 5, what="more looks")
        assert c.info("stats")["total_connections_received"] == before + 1  # ours
    looks.signal(signal.SIGINT)
    looks.wait()


def test_released_where_no_answer_came(dlock, masters):
    holder = dlock.hold(masters.at(), "job")
    masters[0].pause()
    assert holder.finish().status == 0
    masters[0].resume()
    votes_until_none(masters)


def test_killed_holder_and_waiter_leave_nothing_for_long(dlock, masters):
    holder = dlock.hold(masters.at(), "job", *LEASE)
    waiter = dlock.contend(masters.at(), "job", *LEASE).queued()
    rest = dlock.contend(masters.at(), "job", *LEASE).queued()
    waiter.destroy()
    holder.destroy()
    rest.held()
    assert rest.finish().status == 0


# ---- waiting ----


def test_releases_wake_one_who_waits(dlock, masters):
    """Without a hint it would take half a second and more."""
    took = []
    for _ in range(5):
        holder = dlock.hold(masters.at(), "job")
        waiter = dlock.contend(masters.at(), "job")
        masters.listener()
        before = boottime()
        holder.finish()
        waiter.held()
        took.append(boottime() - before)
        waiter.finish()
    assert min(took) < 0.25, took


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_waiters_ask_without_a_hint(dlock, masters, how):
    holder = dlock.hold(masters.at(), "job")
    waiter = dlock.contend(masters.at(), "job").queued()
    server = masters[masters.listener()]
    fail(server, how)
    holder.finish()
    waiter.held()
    assert waiter.finish().status == 0
    if how == "frozen":
        server.resume()


def test_waiting_ends_in_time(dlock, masters):
    holder = dlock.hold(masters.at(), "job")
    done, seconds = seconds_of(lambda: run(dlock, masters.at(), "-k", "job", "-w", "1s", "--", "true"))
    assert done.status == 75 and "held by" in done.stderr and 1 <= seconds < PATIENCE / 3
    waiter = dlock.contend(masters.at(), "job").queued()
    masters.listener()
    waiter.signal(signal.SIGTERM)
    assert waiter.wait().status == -signal.SIGTERM
    assert len(set(masters.votes())) == 1
    holder.finish()


def test_several_keys(dlock, masters):
    done = run(dlock, masters.at(), "-k", "a", "-k", "b", "--", "sh", "-c", "echo $DLOCK_TOKENS")
    assert done.status == 0 and '"a"' in done.stdout and '"b"' in done.stdout
    assert masters.votes("a") == masters.votes("b") == [None] * 3


# ---- tokens ----


def test_tokens_of_one_quorum_are_known_to_the_next(dlock, masters):
    """One master's clock, or counter, is years ahead; then it is the one that is away."""
    ahead = 2 * 10 ** 15
    masters[0].client().hset("dlock:{job}:redlock-data", "token", ahead)
    masters[2].pause()
    first = token(dlock, masters.at())
    masters[2].resume()
    masters[0].pause()
    second = token(dlock, masters.at())
    masters[0].resume()
    assert ahead < first < second


def test_tokens_grow_through_lost_data(dlock, masters):
    seen = [token(dlock, masters.at())]
    for server in masters.all:
        server.client().flushall()
        seen.append(token(dlock, masters.at()))
    assert seen == sorted(set(seen))


# ---- restarts ----


@pytest.mark.parametrize("options, program, overlap", [
    (FORGETFUL, DLOCK, False), (DURABLE, DLOCK, False), (FORGETFUL, FORGETS, True)],
    ids=["forgetful", "durable", "forgetful and without the guard"])
def test_votes_that_were_forgotten(dlock, make_masters, make_proxy, options, program, overlap):
    """One master was out of the holder's reach, and another of its quorum crashes: together they are one."""
    masters = make_masters(3, options)
    masters.known()
    proxy = make_proxy(masters[2].port)
    proxy.refuse()
    holder = dlock.hold(masters.at(m2=proxy.port), "job", "-t", "6s")
    assert [bool(v) for v in masters.votes()] == [True, True, False]
    holder.signal(signal.SIGSTOP, "keeper")  # nothing is healed
    masters[1].restart()
    done = run(dlock, masters.at(), "-t", "6s", *ONCE, program=program)
    holder.signal(signal.SIGCONT, "keeper")
    assert (done.status == 0) == overlap, done
    if options == FORGETFUL and not overlap:
        assert done.status in (69, 75)
    holder.finish()


def test_all_have_restarted(dlock, make_masters):
    """Nobody can know who holds, until the longest lease that there may be is over."""
    masters = make_masters(3, FORGETFUL)
    began = boottime()
    assert_refused(run(dlock, masters.at(), "-t", "12s", *ONCE), 69, "restarted", "61 s", "appendfsync")
    waiter = dlock.contend(masters.at(), "job", *LEASE, command=("true",), program=BRIEF)
    assert waiter.wait().status == 0 and "restarted" in waiter.stderr()
    assert boottime() - began > 4


@pytest.mark.full  # a minute
def test_a_minute_after_the_first_meeting_votes_count(dlock, make_masters):
    masters = make_masters(3, FORGETFUL)
    began = boottime()
    done = run(dlock, masters.at(), *LEASE, "-k", "job", "--", "true", timeout=61 + PATIENCE)
    assert done.status == 0 and boottime() - began > 61
    assert run(dlock, masters.at(), *ONCE).status == 0
    masters[0].restart()
    masters[1].restart()
    assert run(dlock, masters.at(), *ONCE).status == 69


def test_who_has_waited_for_masters_that_have_restarted_was_not_kept_by_a_holder(dlock, make_masters):
    done = run(dlock, make_masters(3, FORGETFUL).at(), "-w", "3s", "-k", "job", "--", "true")
    assert done.status == 69 and "restarted" in done.stderr.splitlines()[-1] and "held" not in done.stderr, done


def test_one_that_nobody_has_met_is_met_though_the_others_decide(dlock, make_masters, make_proxy):
    """Its answers come later than theirs: it is met all the same, so that its vote counts in a minute."""
    masters = make_masters(3, FORGETFUL)
    masters.known()
    assert run(dlock, masters.at(), *ONCE).status == 0
    masters[2].client().delete(RUN)
    proxy = make_proxy(masters[2].port)
    proxy.delay = 0.01

    def is_met():
        assert run(dlock, masters.at(m2=proxy.port), "-k", "job", "--", "sleep", "0.3").status == 0
        with masters[2].client() as c:
            return c.hget(RUN, "run") == c.info("server")["run_id"]

    assert any(is_met() for _ in range(10))  # the end of a run waits only a tenth of a second for that


def test_leases_of_different_lengths(dlock, make_masters, make_proxy, tmp_path):
    """Never more than one is down: C misses the long lease that A and B know, A forgets it, and B is away.

    A step of the wall clock makes no master older."""
    masters = make_masters(3, FORGETFUL, compile_clock(tmp_path))
    masters.known()
    masters[2].kill()
    holder = dlock.hold(masters.at(), "job", "-t", "60s")
    masters[2].start()
    masters[0].restart()
    for server in (masters[0], masters[2]):
        server.step(3600)
    masters[1].pause()
    assert_refused(run(dlock, masters.at(), *LEASE, *ONCE), 69, "restarted")
    time.sleep(5)  # more than the short lease
    assert_refused(run(dlock, masters.at(), *LEASE, *ONCE), 69, "restarted")
    masters[1].resume()
    holder.signal(signal.SIGTERM)
    holder.wait()


@pytest.mark.parametrize("words", [("-t", "61s"), ("-t", "1h")])
def test_no_lease_is_longer_than_a_master_that_restarts_waits(dlock, masters, words):
    assert_refused(run(dlock, masters.at(), *words, *ONCE), 64, "--ttl", "3s to 60s")
    assert all(not s.client().keys() for s in masters.all)


def test_who_was_met_is_known_by_its_process(dlock, make_masters):
    """What a backup, another master, or the future say of it counts for nothing."""
    masters = make_masters(3, FORGETFUL)
    for server in masters.all:
        server.client().hset(RUN, mapping={"run": "0" * 40, "sure": 1})
    assert run(dlock, masters.at(), *ONCE).status == 69
    met = masters[0].client().hgetall(RUN)
    assert met["run"] == masters[0].client().info("server")["run_id"] and met["sure"] == "0", met
    (clock,) = [name for name in met if name.startswith("at ")]
    for server in masters.all:
        server.client().hset(RUN, clock, int(1000 * boottime()) + 10 ** 6)
    assert run(dlock, masters.at(), *ONCE).status == 69
    assert int(masters[0].client().hget(RUN, clock)) <= 1000 * boottime()


def test_settings_count_as_they_were_at_the_first_meeting(dlock, make_masters):
    masters = make_masters(3, FORGETFUL)
    assert run(dlock, masters.at(), *ONCE).status == 69
    for server in masters.all:
        with server.client() as c:
            c.config_set("appendonly", "yes")
            c.config_set("appendfsync", "always")
    assert run(dlock, masters.at(), *ONCE).status == 69


# ---- permissions ----


def test_permissions_that_do(dlock, masters):
    """As dlock-redlock(7) has them."""
    holders, watchers, oncall = (rules_of(user, "dlock-redlock.7") for user in ("dlock", "watcher", "oncall"))
    assert {*oncall, "%R~dlock:*"} == {*holders, *watchers}
    assert "+info" in holders and "~dlock:*" in holders
    for server in masters.all:
        for user, rules in (("holder", holders), ("watcher", watchers), ("both", oncall)):
            server.client().execute_command("ACL", "SETUSER", user, "on", ">any", *rules)
    at, watch, both = (At(masters.url.replace("//", f"//{user}:any@")) for user in ("holder", "watcher", "both"))
    holder = dlock.hold(at, "job", *LEASE)
    waiter = dlock.contend(at, "job", *LEASE)
    masters.listener()
    assert f"token {holder.token}" in dlock.run("status", *watch.words, "-k", "job").stdout
    assert "job" in dlock.run("ls", *watch.words).stdout
    masters[0].client().delete("dlock:{job}:redlock")
    time.sleep(2)
    assert holder.finish().status == 0
    waiter.held()
    for place in (at, watch):
        assert dlock.run("break", *place.words, "-y", "-w", "0", "-k", "job").status == 77
    assert dlock.run("break", *both.words, "-y", "-k", "job").status == 0
    assert waiter.wait().status == 79


def user_of(masters, *rules):
    for server in masters.all:
        with server.client() as c:
            c.script_flush()  # so that an answer does not depend on what was asked before
            c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *rules)
    return At(masters.url.replace("//", "//some:any@"))


@pytest.mark.parametrize("user", ["dlock", "watcher", "oncall"])
def test_no_right_of_the_manual_is_too_much(dlock, masters, user):
    """Who has none of these commands is granted those that a master refuses, one by one: in the end they are all."""
    granted = rules_of(user, "dlock-redlock.7")
    keys, given = [r for r in granted if r[0] != "+"], {"+select"}  # for another database
    quiet = 0
    while quiet < 3 and given != {*granted} - {*keys}:  # a round of a machine that is late may end before all was asked
        for server in masters.all:
            with server.client() as c:
                c.flushall()
                c.acl_log_reset()
        place = user_of(masters, *keys, *given)
        run(dlock, place, "-t", "3s", "-n", "-k", "job", "--", "sleep", "1.5")
        for server in masters.all:
            server.client().flushall()
        holder = dlock.start("run", "-u", masters.url, "-k", "job", "-t", "9s", "--", "sleep", "1000").held()
        run(dlock, place, "-k", "job", "-w", "300ms", "--", "true")
        for words in (("status", "job"), ("ls",), ("wait", "-w", "100ms", "job"), ("break", "-y", "-w", "0", "job"),
                      ("break", "-y", "--force", "job")):
            for server in masters.all:
                server.client().script_flush()
            dlock.run(words[0], *place.words, *words[1:])
        holder.destroy()
        refused = {f"+{entry['object']}" for server in masters.all for entry in server.client().acl_log()}
        more = (refused & {*granted}) - given
        given |= more
        quiet = 0 if more else quiet + 1
    assert given == {*granted} - {*keys}


def test_rights_to_a_key_of_other_clients(dlock, masters):
    """Those of the manual, and the key itself."""
    for more, status in (((), 77), (("~app:*",), 0)):
        place = user_of(masters, *rules_of("oncall", "dlock-redlock.7"), *more)
        place.words += ["-O", "dialect=string"]
        done = run(dlock, place, "-n", "-k", "app:nightly", "--", DLOCK, "status", *place.words, "app:nightly")
        assert done.status == status, done
    holder = dlock.hold(place, "app:nightly", "-t", "6s")
    assert dlock.run("break", *place.words, "-y", "--force", "app:nightly").status == 0
    assert holder.wait().status == 79


def test_a_vote_that_is_gone_is_not_a_master_that_does_not_answer(dlock, masters):
    """One is silent and one has lost the key: neither alone would matter."""
    holder = dlock.hold(At(masters.url), "job", *LEASE)
    masters.all[2].pause()
    with masters.all[1].client() as c:
        c.flushall()
    done = holder.wait()
    assert done.status == 79 and "only 1 of 3 masters say that it is ours, and 2 must" in done.stderr


# ---- other clients ----


def test_other_clients_of_redlock(dlock, masters):
    """dialect=string: the key is the lock, as node-redlock and redsync have it."""
    at = At(masters.url)
    at.words = [*at.words, "-O", "dialect=string"]
    holder = dlock.hold(at, "job", *LEASE)
    for server in masters.all:
        with server.client() as c:
            assert not c.set("job", "theirs", nx=True, px=1000) and 0 < c.pttl("job") <= 3000
    holder.finish()
    for server in masters.all:
        assert server.client().set("job", "theirs", nx=True, px=60000)
    assert run(dlock, at, *ONCE).status == 75
    waiter = dlock.contend(at, "job").queued()
    wait_for(lambda: "\n" in waiter.stderr(), what="a line")
    assert "held by somebody" in waiter.stderr() and "no answer" not in waiter.stderr()
    for server in masters.all:
        server.client().delete("job")
    waiter.held()
    waiter.finish()
    assert all(s.client().get("job") is None for s in masters.all)


# ---- looking and steering ----


def status(dlock, masters, *words):
    return dlock.run("status", *masters.at().words, *(words or ("-k", "job")))


def test_look_counts_votes(dlock, masters):
    assert "free" in status(dlock, masters).stdout
    holder = dlock.hold(masters.at(), "job")
    assert f"token {holder.token}" in status(dlock, masters).stdout
    masters[0].client().flushall()
    assert f"token {holder.token}" in status(dlock, masters).stdout
    listed = dlock.run("ls", *masters.at().words).stdout
    assert listed.count("job") == 1 and "held" in listed
    masters[1].client().flushall()
    assert "free" in status(dlock, masters).stdout
    masters[1].kill()
    assert "1 of 3 masters" in status(dlock, masters).stdout
    holder.destroy()


def test_look_needs_a_quorum(dlock, masters):
    masters[0].kill()
    assert "free" in status(dlock, masters).stdout
    masters[1].kill()
    done = dlock.run("ls", *masters.at().words)
    assert done.status == 69, done


def test_all_keys_are_listed_once(dlock, masters):
    names = [f"key{n}" for n in range(12)]
    holders = [dlock.hold(masters.at(), name) for name in names]
    masters[1].client().flushall()
    lines = dlock.run("ls", *masters.at().words).stdout.splitlines()[1:]
    assert sorted(line.split()[0] for line in lines) == sorted(names)
    for holder in holders:
        holder.destroy()


@pytest.mark.parametrize("words, ended", [((), 79), (("--force",), 79)])
def test_break(dlock, masters, words, ended):
    holder = dlock.hold(masters.at(), "job", "-t", "6s")
    done = dlock.run("break", *masters.at().words, "-k", "job", "--yes", *words)
    assert done.status == 0, done
    result = holder.wait()
    assert result.status == ended and "broken by" in result.stderr, result
    votes_until_none(masters)


def test_whose_lock_was_taken_by_force_is_told_by_whom_also_at_the_end(dlock, masters):
    """As a rule no renewal comes before it."""
    holder = dlock.hold(masters.at(), "job", "-t", "6s")
    done = dlock.run("break", *masters.at().words, "-k", "job", "--yes", "--force", "--who", "carol")
    assert done.status == 0, done
    result = holder.finish()
    assert result.status == 79 and "broken by carol" in result.stderr, result


def test_a_release_that_was_heard_is_no_loss_though_it_was_asked_back(dlock, make_masters, make_proxy):
    """The answers to the first one are lost, and the second one finds nothing: who asked politely took nothing."""
    masters = make_masters(3, DURABLE)
    proxies = [make_proxy(server.port) for server in masters.all]
    released = set()

    def tap_of(proxy):
        def tap(_, direction, data):
            if direction == UP and b"release" in data and proxy not in released:
                released.add(proxy)
                proxy.ends = True
            elif direction == DOWN and getattr(proxy, "ends", False):
                proxy.ends = False
                raise ConnectionResetError
            return data
        return tap

    holder = dlock.hold(masters.at(**{f"m{i}": p.port for i, p in enumerate(proxies)}), "job", "-t", "60s")
    votes = wait_for(lambda: (votes := masters.votes()) and all(votes) and votes, what="the vote of the last one, too")
    for server, owner in zip(masters.all, votes):
        server.client().hset("dlock:{job}:redlock-data", mapping={"marked": owner, "mark": '{"who":"carol"}'})
    for proxy in proxies:
        proxy.tap = tap_of(proxy)
    done = holder.finish()
    assert len(released) == 3
    assert done.status == 0 and "not confirmed" in done.stderr, done


# ---- whatever happens ----


class Torment(threading.Thread):
    """Kills and stops masters at random, a minority at a time, and sets one's clock."""

    def __init__(self, masters, stepped, gap):
        super().__init__(daemon=True)
        self.masters, self.stepped, self.gap = masters, stepped, gap
        self.ended, self.kills, self.steps, self.error = threading.Event(), 0, 0, None

    def run(self):
        dice = random.Random()
        try:
            while not self.ended.wait(dice.uniform(self.gap / 2, self.gap)):
                self._once(dice)
        except Exception as e:  # pylint: disable=broad-except
            self.error = e

    def _once(self, dice):
        n = len(self.masters)
        if self.stepped and dice.random() < 0.3:
            # what is set forward is a vote forgotten, so it is one master only, and no other dies just then
            self.masters[0].step(dice.choice([0, -3600, 3600, 10, -10]))
            self.steps += 1
            return
        victims = dice.sample(self.masters.all[1 if self.stepped else 0:], dice.randint(1, n // 2 - (1 if self.stepped else 0)))
        stopped = dice.random() < 0.3
        for server in victims:
            server.pause() if stopped else server.kill()
        self.kills += 0 if stopped else len(victims)
        time.sleep(dice.choice([0.01, 0.05, 0.5, 2]))
        for server in victims:
            server.resume() if stopped else server.start()

    def stop(self):
        self.ended.set()
        self.join(PATIENCE)
        assert not self.error, self.error


@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    return compile_witness(tmp_path_factory.mktemp("witness"))


def contend(dlock, masters, words, ends, errors):
    """One contender: again and again, until the time has come; it may be that nobody is served for a while."""
    try:
        while boottime() < ends:
            done = run(dlock, masters.at(), *LEASE, "-w", "20s", "-q", "-k", "job", "--wait-tree", "--", *words,
                       program=BRIEF)
            assert done.status in (0, 69, 75, 79), done
    except Exception as e:  # pylint: disable=broad-except
        errors.append(e)


def torment(dlock, masters, witness, directory, seconds, contenders=4, stepped=False, gap=None):
    """Returns what the witnesses saw, in the order of their starts, and who tormented."""
    log, end = directory / "log", directory / "end"
    log.touch()
    words = [witness, log, end, "20", "x", directory / "judge"]
    masters.known()
    torturer, errors = Torment(masters, stepped, gap or seconds), []
    ends = boottime() + seconds
    threads = [threading.Thread(target=contend, args=(dlock, masters, words, ends, errors), daemon=True) for _ in range(contenders)]
    torturer.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 2 * PATIENCE)
    torturer.stop()
    assert not errors, errors
    return read_seen(log), torturer


@pytest.mark.parametrize("n, options", [(3, FORGETFUL), (5, DURABLE)], ids=["3", "5 durable"])
def test_nobody_overlaps(dlock, make_masters, witness, tmp_path, n, options):
    seen, torturer = torment(dlock, make_masters(n, options), witness, tmp_path, size(9, 14), gap=4)
    print(f"{len(seen)} grants, {torturer.kills} kills")
    check_seen(seen)
    assert len(seen) > 4


@pytest.mark.full  # ten minutes each
@pytest.mark.parametrize("stepped", [False, True], ids=["", "clocks"])
@pytest.mark.parametrize("options", [FORGETFUL, DURABLE], ids=["forgetful", "durable"])
def test_nobody_overlaps_for_ten_minutes(dlock, make_masters, witness, tmp_path, options, stepped):
    shim = compile_clock(tmp_path) if stepped else None
    seen, torturer = torment(dlock, make_masters(5, options, shim), witness, tmp_path, SECONDS, 6, stepped,
                             gap=2 if options == DURABLE else 6)
    print(f"{len(seen)} grants, {torturer.kills} kills, {torturer.steps} steps")
    check_seen(seen)
    assert len(seen) > SECONDS / 10


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_clock_that_is_set(dlock, make_masters, tmp_path, step):
    """On one master: neither lost nor granted twice, and tokens grow on."""
    masters = make_masters(3, DURABLE, compile_clock(tmp_path))
    holder = dlock.hold(masters.at(), "job", *LEASE)
    masters[0].step(step)
    assert run(dlock, masters.at(), *LEASE, *ONCE).status == 75
    time.sleep(4)
    assert run(dlock, masters.at(), *LEASE, *ONCE).status == 75
    first = holder.token
    assert holder.finish().status == 0
    second = token(dlock, masters.at(), *LEASE)
    masters[0].step(0)
    assert first < second < token(dlock, masters.at(), *LEASE)
