# Goal of these tests: kinds of lock and jobs as lock.lua keeps them: who is woken,
# what is stored, what others may do to it, and how often the server is asked.

import random
import re
import signal
import time

import pytest
import redis

from hostile import array, granted
from redis_script import Script, ears
from support import free_port, is_alive, rules_of, run, wait_for

DAY_MS = 86400 * 1000
KINDS = {"x": [], "s": ["-s"], "l3": ["--limit", "3"], "l5": ["--limit", "5"]}


class At:
    """A place as tests of one backend make them."""

    def __init__(self, url):
        self.words = ["-u", url]


def ran(done):
    return (done.status, done.stdout) == (0, "ran\n")


def calls(client, command):
    return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def listening(client, n):
    wait_for(lambda: ears(client) == n, what="ears of those who wait")


def slot(started):
    wait_for(lambda: started.stdout().endswith("\n"), what="a slot")
    return int(started.stdout())


SLOT = ("sh", "-c", "echo $DLOCK_SLOT; exec cat")


# ---- one queue ----


def test_a_writer_that_releases_wakes_the_readers_before_the_next_writer(dlock, own_redis):
    at = At(own_redis.url)
    writer = dlock.hold(at, "job", "-t", "60s")
    readers = [dlock.contend(at, "job", "-s").queued(n) for n in (1, 2, 3)]
    second = dlock.contend(at, "job").queued(4)
    last = dlock.contend(at, "job", "-s").queued(5)
    with own_redis.client() as c:
        listening(c, 5)
        before = calls(c, "publish")
        writer.finish()
        for r in readers:
            r.held()
        assert calls(c, "publish") - before == 3
        assert not second.running and not last.running
        readers[0].finish()
        readers[1].finish()
        assert calls(c, "publish") - before == 3
        readers[2].finish()
        second.held()
        assert calls(c, "publish") - before == 4 and not last.running
        second.finish()
        assert last.held().finish().status == 0
    tokens = [s.token for s in (writer, *readers, second, last)]
    assert tokens == sorted(tokens) and len(set(tokens)) == len(tokens)


def test_a_reader_does_not_pass_a_writer_and_takes_its_turn_when_that_gives_up(dlock, own_redis):
    at = At(own_redis.url)
    reader = dlock.hold(at, "job", "-s")
    writer = dlock.contend(at, "job", "-x").queued(1)
    assert run(dlock, own_redis, "-s", "-n").status == 75
    behind = dlock.contend(at, "job", "-s").queued(2)
    writer.signal(signal.SIGTERM)
    assert writer.wait().status == -signal.SIGTERM
    assert is_alive(reader.command) and behind.held().finish().status == 0


def test_a_unit_of_a_limit_goes_to_one_waiter_with_its_slot(dlock, own_redis):
    at = At(own_redis.url)
    holders = [dlock.hold(at, "job", "--limit", "3", command=SLOT) for _ in range(3)]
    assert [slot(h) for h in holders] == [0, 1, 2]
    waiters = [dlock.contend(at, "job", "--limit", "3", command=SLOT).queued(n) for n in (1, 2)]
    with own_redis.client() as c:
        listening(c, 2)
        before = calls(c, "publish")
        holders[1].finish()
        assert slot(waiters[0].held()) == 1
        assert calls(c, "publish") - before == 1 and not waiters[1].running
    holders[0].finish()
    assert slot(waiters[1].held()) == 0


def test_the_slot_of_the_dead_is_free_when_its_lease_ends(dlock, own_redis):
    at = At(own_redis.url)
    dead = dlock.hold(at, "job", "--limit", "2", "-t", "3s", command=SLOT)
    other = dlock.hold(at, "job", "--limit", "2", command=SLOT)
    dead.destroy()
    assert run(dlock, own_redis, "--limit", "2", "-n").status == 75
    heir = dlock.contend(at, "job", "--limit", "2", command=SLOT).queued(1)
    assert (slot(other), slot(heir.held())) == (1, 0)


@pytest.mark.parametrize("used, asked", [("s", "l3"), ("l3", "s"), ("l3", "l5")])
def test_another_kind_is_refused_while_one_is_in_use(dlock, own_redis, used, asked):
    at = At(own_redis.url)
    names = [" ".join(KINDS[k]) for k in (used, asked)]
    holder = dlock.hold(at, "job", *KINDS[used])
    for more in ([], ["-n"]):
        done = run(dlock, own_redis, *KINDS[asked], *more)
        assert done.status == 76 and f"in use with {names[0]}, and this run asks for {names[1]}" in done.stderr
    writer = dlock.contend(at, "job").queued(1)
    holder.finish()
    writer.held()
    waiter = dlock.contend(at, "job", *KINDS[used]).queued(1)  # it is waited for now, behind another writer
    dlock.contend(at, "job").queued(2)
    done = run(dlock, own_redis, *KINDS[asked])
    assert done.status == 76 and names[0] in done.stderr
    assert not waiter.running


def test_a_key_that_is_free_again_takes_anything(dlock, own_redis):
    for kind in ["l3", "s", "x", "l5", "l3", "x", "s"]:
        assert ran(run(dlock, own_redis, *KINDS[kind], "-n"))


# ---- jobs ----


def test_an_id_is_done_once_and_skipped_by_one_question(dlock, own_redis):
    assert run(dlock, own_redis, "--once", "today", command=("false",)).status == 1
    assert ran(run(dlock, own_redis, "--once", "today"))
    with own_redis.client() as c:
        c.config_resetstat()
        for more in ([], ["-n"], ["-s"], ["--limit", "2"]):
            done = run(dlock, own_redis, "--once", "today", *more)
            assert (done.status, done.stdout, done.stderr) == (0, "", "")
        assert calls(c, "evalsha") == 4
        assert run(dlock, own_redis, "--once", "today", "--skipped-exit-code", "9").status == 9
        assert c.pttl("dlock:{job}:r:today") > 400 * DAY_MS and c.pttl("dlock:{job}:r") > 400 * DAY_MS
        assert c.hget("dlock:{job}:r", "id") == "today" and c.hget("dlock:{job}:r", "status") == "0"
    said = run(dlock, own_redis, "--once", "today", "-v", "--who", "somebody").stderr
    assert re.search(r"ID today was run at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ by \S+@\S+ and ended with 0", said)
    assert ran(run(dlock, own_redis, "--once", "tomorrow"))
    assert ran(run(dlock, own_redis, "--once", "today", key="other"))
    assert ran(run(dlock, own_redis))


def test_what_failed_was_the_last_run_and_does_not_count(dlock, own_redis):
    assert ran(run(dlock, own_redis, "--once", "a"))
    assert run(dlock, own_redis, "--once", "b", command=("sh", "-c", "exit 7")).status == 7
    assert run(dlock, own_redis, "--once", "c", command=("sh", "-c", "kill -9 $$")).status == -9
    with own_redis.client() as c:
        last = c.hgetall("dlock:{job}:r")
        assert (last["id"], last["status"]) == ("c", "137")
        assert int(last["began"]) <= int(last["ended"]) and int(last["token"]) > int(last["good"])
        assert not c.exists("dlock:{job}:r:b", "dlock:{job}:r:c")
    assert run(dlock, own_redis, "--once", "a").stdout == ""
    assert ran(run(dlock, own_redis, "--once", "c"))


def test_a_cooldown_counts_from_the_begin_of_the_last_good_run(dlock, own_redis):
    assert ran(run(dlock, own_redis, "--cooldown", "1h"))
    assert run(dlock, own_redis, "--cooldown", "1h", "--once", "new").stdout == ""
    said = run(dlock, own_redis, "--cooldown", "1h", "-v")
    assert said.stdout == "" and re.search(r"began \d+(ms|s) ago, less than --cooldown 1h", said.stderr)
    assert run(dlock, own_redis, "--once", "other", command=("false",)).status == 1
    with own_redis.client() as c:
        c.hset("dlock:{job}:r", "good", int(c.hget("dlock:{job}:r", "good")) - 3600 * 10**6)
    assert ran(run(dlock, own_redis, "--cooldown", "1h"))


def test_of_many_who_wait_for_one_run_each_asks_once_more(dlock, own_redis):
    at, many = At(own_redis.url), 12
    first = dlock.hold(at, "job", "--once", "today", "-t", "60s")
    others = [dlock.contend(at, "job", "--once", "today", command=("echo", "ran")).queued(n + 1) for n in range(many)]
    with own_redis.client() as c:
        listening(c, many)
        before, began = calls(c, "evalsha"), time.monotonic()
        assert first.finish().status == 0
        assert [(o.wait().status, o.stdout()) for o in others] == [(0, "")] * many
        beats = many * ((time.monotonic() - began) / 3.3 + 1)
        assert calls(c, "evalsha") - before <= 1 + many + beats
        assert not c.exists("dlock:{job}:h", "dlock:{job}:q", "dlock:{job}:l")
    assert all(o.event("verdict")["verdict"] == "skipped" for o in others)


def test_the_lock_goes_on_to_who_has_other_work(dlock, own_redis):
    at = At(own_redis.url)
    first = dlock.hold(at, "job", "--once", "today")
    waiters = [dlock.contend(at, "job", "--once", "today").queued(n) for n in (1, 2)]
    plain = dlock.contend(at, "job").queued(3)
    first.finish()
    assert [w.wait().status for w in waiters] == [0, 0] and not any(w.running for w in waiters)
    assert plain.held().finish().status == 0


def test_a_run_that_is_lost_does_not_count(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", "--once", "today", "-t", "3s")
    with own_redis.client() as c:
        c.delete("dlock:{job}:h")
    assert holder.wait().status == 79
    killed = dlock.hold(At(own_redis.url), "job", "--once", "today", "-t", "3s")
    killed.signal(signal.SIGKILL, "keeper")
    assert killed.wait().status == 79
    assert ran(run(dlock, own_redis, "--once", "today"))


@pytest.mark.parametrize("words", [["-s"], ["--limit", "3"], ["--once", "today", "--cooldown", "1ms"]], ids=str)
def test_the_rights_of_the_manual_suffice(dlock, own_redis, words):
    with own_redis.client() as c:
        c.execute_command("ACL", "SETUSER", "dlock", "on", ">password", *rules_of("dlock"))
    at = At(f"redis://dlock:password@127.0.0.1:{own_redis.port}")
    holders = [dlock.contend(at, "job", *words).held() for _ in range(2 if "--once" not in words else 1)]
    writer = dlock.contend(at, "job", "--once", "never").queued(1)
    behind = dlock.contend(at, "job", *words).queued(2)
    assert [h.finish().status for h in holders] == [0] * len(holders)
    assert writer.held().finish().status == 0
    assert behind.finish().status == 0


# ---- what others do to the data ----


TAMPERED = {  # what becomes of the words of a row: kind lease token slot subscribed granted sum record
    "another-kind": lambda w: ["s" if w[0] != "s" else "x", *w[1:]],
    "no-kind": lambda w: ["7", *w[1:]],
    "a-limit": lambda w: ["l99", *w[1:]],
    "slot-x": lambda w: [*w[:3], "x", *w[4:]],
    "slot-1": lambda w: [*w[:3], "1", *w[4:]],
    "slot-huge": lambda w: [*w[:3], "9" * 400, *w[4:]],
    "token": lambda w: [*w[:2], "7", *w[3:]],
    "lease": lambda w: [w[0], "nan", *w[2:]],
    "empty": lambda w: [],
    "gone": lambda w: None,
}


def alter_row(client, key, alter):
    info, owner = f"dlock:{{{key}}}:i", client.zrange(f"dlock:{{{key}}}:h", 0, 0)[0]
    words = alter(client.hget(info, owner).split(" "))
    if words is None:
        client.hdel(info, owner)
    else:
        client.hset(info, owner, " ".join(words))


def test_a_row_that_was_altered_is_a_loss_and_never_a_second_holder(dlock, own_redis):
    at = At(own_redis.url)
    holders = {(kind, how): dlock.contend(at, f"{kind} {how}", *KINDS[kind], "-t", "9s") for kind in ("x", "s", "l3") for how in TAMPERED}
    with own_redis.client() as c:
        for (kind, how), holder in holders.items():
            holder.held()
            alter_row(c, f"{kind}%20{how}", TAMPERED[how])
            for other in KINDS.values():
                done = run(dlock, own_redis, *other, "-n", key=f"{kind} {how}")
                assert done.status in (75, 76) and done.stdout == "", (kind, how, other, done)
    for (kind, how), holder in holders.items():
        assert holder.wait().status == 79, (kind, how)
    for kind, how in holders:
        assert ran(run(dlock, own_redis, key=f"{kind} {how}")), (kind, how)


def test_a_slot_is_not_given_twice_though_its_row_was_altered(dlock, own_redis):
    at = At(own_redis.url)
    holders = [dlock.hold(at, "job", "--limit", "3", "-t", "60s", command=SLOT) for _ in range(2)]
    with own_redis.client() as c:
        for owner in c.zrange("dlock:{job}:h", 0, -1):
            words = c.hget("dlock:{job}:i", owner).split(" ")
            if words[3] == "1":
                c.hset("dlock:{job}:i", owner, " ".join([*words[:3], "2", *words[4:]]))
    assert [slot(h) for h in holders] == [0, 1]
    assert run(dlock, own_redis, "--limit", "3", "-n").status == 75
    holders[0].finish()
    assert run(dlock, own_redis, "--limit", "3", "-n").status == 75


@pytest.mark.parametrize("renewed", [granted(b"1700000000000001"), granted(slot=1)], ids=["token", "slot"])
def test_another_hold_than_ours_is_a_loss(dlock, make_hostile, renewed):
    server = make_hostile({"renew": renewed})
    assert run(dlock, server, "--limit", "3", "-t", "3s", command=("sleep", "60")).status == 79


@pytest.mark.parametrize("answer, words", [
    (granted(slot=3), ["--limit", "3"]),
    (array(4, 1700000000000, b"root@host"), ["--cooldown", "1h"]),
    (array(5, 1000), ["--once", "x"]),
    (array(5, -1), ["--cooldown", "1h"]),
], ids=range(4))
def test_an_answer_that_is_none_is_an_error(dlock, make_hostile, answer, words):
    done = run(dlock, make_hostile({"acquire": answer}), *words)
    assert (done.status, done.stdout) == (76, "") and done.stderr.count("\n") == 1


def test_who_ran_it_is_shown_harmlessly(dlock, make_hostile):
    done = run(dlock, make_hostile({"acquire": array(4, 0, b"\x1b[2J\xff\r\nroot", 0)}), "--once", "x", "-v")
    assert done.status == 0 and "\x1b" not in done.stderr and "1970-01-01T00:00:00Z by \\x1B[2J" in done.stderr


@pytest.mark.parametrize("name, value, status, output", [
    ("r:today", {"status": "x"}, 0, "ran\n"),
    ("r:today", {"status": "00"}, 0, "ran\n"),
    ("r:today", {"status": "0"}, 0, ""),  # it is done, whatever else is written
    ("r:today", {"status": "0", "began": "x"}, 0, ""),
    ("r:today", {"status": "0", "began": "-5"}, 0, ""),
    ("r:today", {"status": "0", "began": "9e300"}, 0, ""),
    ("r:today", {"status": "0", "began": "nan"}, 0, ""),
    ("r:today", {"status": "0", "began": "1700000000000000", "who": "x" * 5000}, 0, ""),
    ("r:today", "a string", 76, ""),
    ("r", "a string", 76, ""),
    ("r", {"good": "x"}, 0, "ran\n"),
    ("r", {"good": "9e300"}, 0, "ran\n"),
    ("r", {"good": "-9e300"}, 0, "ran\n"),
    ("r", {"good": "nan"}, 0, "ran\n"),
    ("r", {"good": ""}, 0, "ran\n"),
], ids=range(15))
def test_runs_that_were_written_by_others(dlock, redis_server, name, value, status, output):
    key = f"tampered{random.getrandbits(64)}"
    with redis_server.client() as c:
        at = f"dlock:{{{key}}}:{name}"
        c.set(at, value) if isinstance(value, str) else c.hset(at, mapping=value)
    done = run(dlock, redis_server, "--once", "today", "--cooldown", "1h", key=key)
    assert (done.status, done.stdout) == (status, output)
    assert run(dlock, redis_server, "-n", key=key).status == 0
    if output:
        assert run(dlock, redis_server, "--cooldown", "1h", key=key).stdout == ""


def test_a_run_that_cannot_be_written_down_does_not_count_and_is_told_of(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", "--once", "today")
    with own_redis.client() as c:
        c.set("dlock:{job}:r", "a string")
        done = holder.finish()
        assert done.status == 0 and "could not record" in done.stderr
        c.delete("dlock:{job}:r")
    assert ran(run(dlock, own_redis, "--once", "today", "-n"))


# ---- the script itself ----


@pytest.fixture
def script(own_redis):
    with own_redis.client() as client:
        yield Script(client)


def test_a_waiter_is_told_who_and_how_many_hold(script):
    for o in "abc":
        assert script.acquire(o, "l4")[::2] == [1, "abc".index(o)]
    for _ in range(3):  # the same one is shown as long as it holds, whoever renews
        code, place, left, held, record, ticket, kind, count = script.acquire("w")
        assert (code, place, record, kind, count) == (0, 1, "{}", "l4", 3)
        shown = script.client.hget(script.keys[1], "#shown")
        assert shown == "a" and 0 < left <= 30000 and held >= 0
        script.renew("a", 31000)
        script.renew("b", 29000)
    script.release("a")
    assert script.acquire("w")[-1] == 2 and script.client.hget(script.keys[1], "#shown") != "a"


def test_a_repeated_release_remembers_once(script):
    script.acquire("a", once="id")
    assert script.release("a", 0, "id") == 1
    before = script.client.hgetall(script.last)
    assert script.release("a", 5, "id") == 0
    assert script.client.hgetall(script.last) == before and before["status"] == "0"


def test_a_run_whose_lease_has_ended_is_not_remembered(script):
    script.acquire("a", once="id", lease=50)
    time.sleep(0.1)
    assert script.release("a", 0, "id") == 0
    assert not script.client.exists(script.last, f"{script.last}:id")


def test_a_woken_waiter_that_finds_its_job_done_gives_way_in_the_same_run(script):
    script.acquire("a", once="id")
    script.acquire("w", once="id")
    script.acquire("v")
    script.release("a", 0, "id")
    assert list(script.holders()) == ["w"]
    assert script.acquire("w", once="id")[0] == 4
    assert list(script.holders()) == ["v"] and script.waiters() == []


def test_every_answer_is_preceded_by_a_write(script):
    script.acquire("a", once="id")
    script.release("a", 0, "id")
    script.acquire("b", "s")
    script.client.replicaof("127.0.0.1", free_port())
    for ask in (lambda: script.acquire("b", "s"), lambda: script.acquire("c", "s"), lambda: script.acquire("c", "l3"),
                lambda: script.acquire("c", "l3", alive=0), lambda: script.acquire("c", once="id"),
                lambda: script.acquire("c", once="x", cooldown=3600000), lambda: script.renew("b"), lambda: script.renew("c"),
                lambda: script.release("b"), lambda: script.release("c", 0, "id")):
        with pytest.raises(redis.exceptions.ReadOnlyError):
            ask()


def test_a_woken_waiter_has_a_moment_to_come(script):
    """Its lease begins when it has come: until then it may be dead."""
    script.acquire("a")
    script.acquire("w", lease=60000)
    script.release("a")
    now, us = script.client.time()
    assert script.client.zscore(script.keys[0], "w") <= now * 1000 + us / 1000 + 3000
    assert script.acquire("w", lease=60000)[0] == 1
    assert script.client.zscore(script.keys[0], "w") >= now * 1000 + 60000


def test_nothing_stays_of_a_woken_waiter_that_is_dead(script):
    script.acquire("a", lease=50)
    script.acquire("dead")
    script.acquire("w")
    time.sleep(0.1)
    assert script.acquire("w")[0] == 0 and list(script.holders()) == ["dead"]
    assert all(0 < script.client.pttl(key) for key in script.client.keys())


@pytest.mark.parametrize("dealt, days", [
    (lambda now: now + 9 * DAY_MS * 1000, 10), (lambda now: now - 9 * DAY_MS * 1000, 1), (lambda now: "nan", 1), (lambda now: "-inf", 1)])
def test_a_token_is_known_until_the_clock_has_passed_it(script, dealt, days):
    """After a clock was set back; otherwise the first grant after a day of silence would have a smaller one."""
    script.client.hset(script.keys[1], "#token", dealt(int(time.time() * 1e6)))
    try:
        script.acquire("a")
    except redis.exceptions.ResponseError:
        pytest.fail("an error") if days > 1 else None
    script.renew("a")
    assert days * DAY_MS - 60000 < script.client.pttl(script.keys[1]) < days * DAY_MS + 180000


def must_be_sound(script, dealt):
    """No more hold than fit, no slot twice, tokens as they were dealt, and whoever waits first does not fit."""
    holders, kinds = script.holders(), {k for k, _, _ in script.holders().values()}
    assert len(kinds) <= 1
    kind = kinds.pop() if kinds else None
    if kind == "x":
        assert len(holders) == 1
    elif kind and kind[0] == "l":
        slots = [s for _, s, _ in holders.values()]
        assert len(set(slots)) == len(slots) <= int(kind[1:]) and max(slots) < int(kind[1:])
    for owner, (_, _, token) in holders.items():
        assert dealt.setdefault(owner, token) == token
    waiting = script.waiters()
    if waiting:
        first = script.client.hget(script.keys[1], waiting[0]).split(" ")[0]
        assert holders and (first == "x" or first != kind or (first[0] == "l" and len(holders) == int(first[1:])))


@pytest.mark.parametrize("seed", range(2))
def test_any_history_is_sound(script, seed):
    dice, dealt, known, n = random.Random(seed), {}, {}, 0
    order = []  # of asking: whoever is still there is granted in it

    def forget(owner):
        del known[owner]
        if owner not in dealt:
            order.remove(owner)

    def time_is_up(key, owner):
        script.client.zadd(script.keys[key], {owner: 1})
        assert script.release("nobody") == 0
        forget(owner)

    for _ in range(1000):
        act = dice.random()
        if act < 0.4 or not known:
            n += 1
            kind = dice.choice(["x", "s", "s", "l2", "l3"])
            if script.acquire(f"o{n}", kind)[0] != -1:
                known[f"o{n}"] = kind
                order.append(f"o{n}")
        elif act < 0.6:
            owner = dice.choice(list(known))
            assert script.acquire(owner, known[owner])[0] in (0, 1)
        elif act < 0.7:
            owner = dice.choice(list(known))
            assert script.renew(owner)[0] == (1 if owner in dealt else 0)
        elif act < 0.75:
            time_is_up(0, dice.choice(list(script.holders())))
        elif act < 0.8:
            for owner in dice.sample(script.waiters(), min(1, len(script.waiters()))):
                time_is_up(3, owner)
        else:
            owner = dice.choice(list(script.holders()) if act < 0.95 else list(known))
            assert script.release(owner) == (1 if owner in dealt else 2)
            forget(owner)
        must_be_sound(script, dealt)
        assert set(script.holders()) | set(script.waiters()) == set(known)
        turns = sorted(dealt, key=dealt.get)
        assert turns == order[:len(turns)]
    assert len(turns) > 200 and len(set(dealt.values())) == len(dealt)


def test_a_crowd_of_readers_costs_each_the_same(script):
    """What one of many is asked for does not grow with their number (a server works on one thing at a time)."""
    def commands_of_a_round(first, many):
        for n in range(many):
            script.acquire(f"r{first + n}", "s")
        before = script.client.info("stats")["total_commands_processed"], script.client.info("commandstats")
        script.acquire("probe", "s")
        script.renew("probe")
        script.release("probe")
        after = script.client.info("commandstats")
        return sum(v["calls"] - before[1].get(k, {"calls": 0})["calls"] for k, v in after.items() if not k.startswith("cmdstat_info"))

    assert commands_of_a_round(0, 2) == commands_of_a_round(2, 300)
