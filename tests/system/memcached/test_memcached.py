# Goal of these tests: what a lock in memcached is made of; that it is shared with whoever uses `add` there; that a
# server which forgets, evicts, stands still or is no memcached never makes two hold one lock, and is named.

import itertools
import json
import re
import signal
import subprocess
import time

import pytest

from faults import assert_password_is_not_shown
from memcached import LEASE, Pretender, run, status
from proxy import DOWN, UP
from support import ADMIN, At, boottime, is_alive, spent, wait_for
from witness import Crowd, compile_witness

SECRET = "hunter2-and-more"


def is_busy(dlock, url):
    return run(dlock, url, "-n").status == 75


def admin(url, *words):
    """What became of a call of the backend's own, as fault_rc_name() has it."""
    done = subprocess.run([ADMIN, "memcached", url, *map(str, words)], capture_output=True, text=True, check=False)
    return re.search(r"^rc (ok|not ours|.*)", done.stdout, re.M)[1]


@pytest.fixture
def sent(at, make_proxy):
    """(place, what dlock has said to the server): through a proxy that writes it down."""
    proxy, said = make_proxy(at.server.port), []

    def tap(link, direction, data):
        if direction == UP:
            said.append(data)
        return data

    proxy.tap = tap
    return At(f"memcached://127.0.0.1:{proxy.port}"), said


# ---- what it is made of ----


def test_items_of_a_lock(dlock, at, client):
    holder = dlock.hold(at, "job", *LEASE)
    assert client.names() == ["dlock:job"]
    assert client.get("dlock:job").startswith(b"dlock1 ")
    assert holder.finish().status == 0
    assert client.names() == []


@pytest.mark.parametrize("ttl, exptime", [("3s", 6), ("3500ms", 7), ("30s", 33), ("2591997s", 2592000)])
def test_an_item_outlives_the_lease(dlock, sent, ttl, exptime):
    """One of n seconds ends after n - 2 to n of them, and a late timer takes another one."""
    place, said = sent
    assert run(dlock, place.words[1], "-t", ttl).status == 0
    assert f" T{exptime} ME\r\n".encode() in b"".join(said)


def test_a_lease_of_more_than_thirty_days_is_refused(dlock, at, client):
    done = run(dlock, at.url, "-t", "2592000s")
    assert done.status == 64 and "30 days" in done.stderr and client.names() == []


def test_only_compare_and_swap_changes_a_hold(dlock, sent):
    place, said = sent
    holder = dlock.hold(place, "job", "-t", "30s")
    wait_for(lambda: b"".join(said).count(b"ms dlock:job") >= 3, what="two renewals")
    assert holder.finish().status == 0
    lines = [line.split() for line in b"".join(said).split(b"\r\n")]
    written = [line for line in lines if line and line[0] in (b"ms", b"md", b"ma", b"set", b"touch", b"gat")]
    assert all(line[0] in (b"ms", b"md") for line in written)
    of_the_lock = [line for line in written if line[1] == b"dlock:job"]
    assert of_the_lock[0][-1] == b"ME" and of_the_lock[-1][0] == b"md"
    assert all(any(word.startswith(b"C") for word in line) for line in of_the_lock[1:])
    assert not any(line[0] == b"mg" and any(w.startswith((b"T", b"N")) for w in line[2:]) for line in lines if line)


def test_long_keys_are_hashed_and_listed(dlock, at, client):
    keys = ["k" * 300, "ü" * 250, "a b" * 100, "k" * 512]
    for key in keys:
        dlock.hold(at, key)
    assert all(len(name) <= 250 for name in client.names())
    listed = [json.loads(line)["key"] for line in dlock.run("ls", "-J", *at.words).stdout.splitlines()]
    assert sorted(listed) == sorted(keys)
    assert dlock.run("freeze", *at.words, "-k", "f" * 400).status == 0
    assert len(dlock.run("ls", "-J", *at.words).stdout.splitlines()) == len(keys) + 1


# ---- shared with others ----


def test_others_that_add_are_waited_for(dlock, at, client):
    assert client.add("dlock:job", b"worker 17")
    assert is_busy(dlock, at.url)
    waiter = dlock.contend(at, "job", command=("true",)).queued()
    time.sleep(0.5)
    assert not waiter.running
    assert client.delete("dlock:job")
    assert waiter.wait().status == 0


def test_others_that_add_wait_for_us(dlock, at, client):
    holder = dlock.hold(at, "job")
    assert not client.add("dlock:job")
    assert client.ask("ms dlock:job 1 T30 ME", b"x") == "NS"
    assert holder.finish().status == 0
    assert client.add("dlock:job")


def test_without_a_prefix_the_key_is_the_item(dlock, at, client):
    options = ("-O", "prefix=")
    holder = dlock.start("run", *at.words, *options, "-k", "app/lock:1", "--", "sleep", "1000").held()
    assert not client.add("app/lock:1") and "app/lock:1" in client.names()
    client.set("page", b"<html>")
    keys = [json.loads(line)["key"] for line in dlock.run("ls", "-J", *at.words, *options).stdout.splitlines()]
    assert keys == ["app/lock:1"]
    holder.signal(signal.SIGTERM)
    assert holder.wait().status == -signal.SIGTERM
    assert client.add("app/lock:1")
    assert dlock.run("run", *at.words, *options, "-k", "app/lock:1", "-n", "--", "true").status == 75


def test_the_item_that_is_named_is_frozen(dlock, at):
    words = (*at.words, "-O", "name=app:1", "-k", "job")
    assert dlock.run("freeze", *words).status == 0
    assert dlock.run("run", *words, "-n", "--", "true").status == 75
    assert dlock.run("thaw", "-y", *words).status == 0
    assert dlock.run("run", *words, "-n", "--", "true").status == 0


@pytest.mark.parametrize("prefix", ["a b", "a#", "a%", "ü", "p" * 65])
def test_prefixes_that_are_none(dlock, at, prefix):
    done = run(dlock, at.url, "-O", f"prefix={prefix}")
    assert done.status == 64 and "prefix is up to 64" in done.stderr


def test_a_foreign_holder_is_shown_and_only_taken_by_force(dlock, at, client):
    client.add("dlock:job", b"worker 17")
    one, = status(dlock, at.url)["holders"]
    assert one["foreign"] and "worker 17" in one["what"] and 55 < one["lease_left_s"] <= 60
    assert dlock.run("break", "-y", *at.words, "-k", "job").status == 78
    assert client.get("dlock:job") == b"worker 17"
    assert dlock.run("break", "-y", "--force", *at.words, "-k", "job").status == 0
    assert client.get("dlock:job") is None


def test_who_waits_for_a_foreign_holder_is_told_that_there_is_one(dlock, at, client):
    """The server has answered: that would be the wrong thing to look at."""
    client.add("dlock:job", b"worker 17")
    waiter = dlock.contend(at, "job")
    wait_for(lambda: "\n" in waiter.stderr(), what="a line")
    assert "held by somebody" in waiter.stderr()
    client.delete("dlock:job")
    waiter.held()


@pytest.mark.parametrize("value", [b"", b"\r\nflush_all\r\n", b"\0" * 100, b"dlock1 ", b"x" * 1000000,
                                   b"dlock1 " + b"0" * 32 + b" 1 1 1 0 11 0 \r\nflush_all \r\n"], ids=range(6))
def test_values_of_others_do_no_harm(dlock, at, client, value):
    client.set("canary", b"alive")
    client.set("dlock:job", value, 60)
    assert is_busy(dlock, at.url)
    assert status(dlock, at.url)["holders"][0]["foreign"]
    assert dlock.run("break", "-y", *at.words, "-k", "job").status == 78
    client.set("dlock#f:dlock:job", value, 60)
    assert status(dlock, at.url)["frozen"]
    assert dlock.run("thaw", "-y", *at.words, "-k", "job").status == 0
    assert client.get("canary") == b"alive" and client.get("dlock:job") == value


# ---- tokens ----


def token_of(dlock, url, *words):
    done = run(dlock, url, *LEASE, *words, command=("sh", "-c", "echo $DLOCK_TOKEN"))
    assert done.status == 0, done
    return int(done.stdout)


def test_tokens_grow_though_everything_is_evicted(dlock, at, client):
    """Again and again within a second."""
    tokens = []
    for _ in range(8):
        tokens.append(token_of(dlock, at.url))
        for name in client.names():
            client.delete(name)
    assert tokens == sorted(set(tokens))


def test_tokens_grow_though_the_server_forgets(dlock, at, client):
    first = token_of(dlock, at.url)
    assert client.ask("flush_all") == "OK"
    at.server.step(10)
    wait_for(lambda: at.server.uptime() > at.server.age + 10, what="its clock")
    second = token_of(dlock, at.url)
    at.server.restart()
    assert first < second < token_of(dlock, at.url)


def test_tokens_grow_over_restarts_however_much_was_counted(dlock, make_memcached):
    """Its numbers of changes begin anew, and so does the second in which it began."""
    server = make_memcached(age=0)
    token_of(dlock, server.url, "-w", "60s")
    with server.client() as c:
        c.socket.sendall(b"".join(b"set page%d 0 0 1 noreply\r\nx\r\n" % n for n in range(200000)))
        wait_for(lambda: c.get("page199999"), what="the last one")
    before = token_of(dlock, server.url)
    for _ in range(3):  # and within one second
        server.kill()
        server.start(age=0)
    assert token_of(dlock, server.url, "-w", "60s") > before


def test_a_token_costs_no_round_trip(dlock, make_pretender):
    def asked():
        pretender = make_pretender({"ms": b"HD c5\r\n"})
        assert token_of(dlock, pretender.url) == (1800000000 - 100000) * 1000000 + 5
        return [" ".join(words[:2]) for words, _ in pretender.asked]

    assert ["stats", "mg dlock:job", "mg dlock#f:dlock:job", "ms dlock:job", "mg dlock#f:dlock:job", "stats settings",
            "md dlock:job"] in [asked() for _ in range(3)]  # more where it has lasted for a second


def test_an_item_that_was_only_added_has_its_token(dlock, at, client):
    """Who looks, asks for it back or takes it away knows it before the holder has written it."""
    holder = dlock.hold(at, "job", "-t", "1h")
    holder.signal(signal.SIGSTOP, "keeper")
    listed, = (json.loads(line) for line in dlock.run("ls", "-J", *at.words).stdout.splitlines())
    assert listed["holders"][0]["token"] == status(dlock, at.url)["holders"][0]["token"] == holder.token
    assert admin(at.url, "revoke", "job", holder.token, "-", "{}") == "ok"
    assert b" %d " % holder.token in client.get("dlock:job")
    holder.signal(signal.SIGCONT, "keeper")
    assert holder.wait().status == 79


@pytest.fixture
def crowded(make_pretender):
    """A server that has counted 97 million changes, and keeps one item; it has been running for `uptime`."""
    uptime, stored, began = [100], [], time.monotonic()

    def store(_):
        stored[:] = [pretender.asked[-1][1]]
        return b"HD c97000000\r\n"

    def get(words):
        return b"VA %d c97000000 t30\r\n%s\r\n" % (len(stored[0]), stored[0]) if stored and "#" not in words[1] else b"EN\r\n"

    def delete(_):
        stored.clear()
        return b"HD\r\n"

    pretender = make_pretender({"stats": lambda _: Pretender.stats(uptime=uptime[0], time=int(1800000000 + time.monotonic() - began)),
                                "ms": store, "mg": get, "md": delete})
    pretender.uptime, pretender.store = uptime, store
    return pretender


def test_a_server_that_has_counted_too_much_for_a_token(dlock, crowded):
    """After its next restart tokens would not be sure to be greater: so it is waited for, until they are."""
    for words in ["-n"], ["-w", "3s"]:
        crowded.asked.clear()
        done = run(dlock, crowded.url, *words, command=("echo", "ran"))
        assert (done.status, done.stdout) == (69, "") and "tokens" in done.stderr and "held by" not in done.stderr, done
        assert "dlock waits for 1 s" in done.stderr
        assert ["md", "dlock:job", "C97000000"] in [words for words, _ in crowded.asked]
    crowded.uptime[0] += 1
    assert token_of(dlock, crowded.url) >= (1800000000 - 101) * 1000000 + 97000000


@pytest.mark.parametrize("there", [False, True], ids=["added", "adopted"])
def test_who_waits_for_a_token_is_told(dlock, crowded, there):
    answers = iter([b""] if there else [])  # the connection ends, and the item is there
    crowded.answers["ms"] = lambda words: next(answers, crowded.store(words))
    waiting = dlock.start("run", *At(crowded.url).words, "-k", "job", "--", "echo", "ran")
    wait_for(lambda: crowded.commands().count("md") > 1, what="a second attempt")
    crowded.uptime[0] += 1
    done = waiting.wait()
    assert (done.status, done.stdout) == (0, "ran\n") and done.stderr.count("tokens") == 1, done


# ---- a server that forgets ----


def test_a_server_that_has_just_been_started_grants_nothing(dlock, make_memcached):
    began = boottime()
    server = make_memcached(age=0)
    done = run(dlock, server.url, *LEASE, "-n")
    assert done.status == 69 and "may not know who holds the lock" in done.stderr
    done = run(dlock, server.url, *LEASE, "-w", "1500ms")
    assert done.status == 69 and "held by" not in done.stderr and "may not know who holds the lock" in done.stderr
    done = run(dlock, server.url, *LEASE, "-w", "60s")
    assert done.status == 0 and "waits until 3 s, a lease, have passed" in done.stderr
    assert boottime() - began > 2.5


def test_who_waits_for_a_server_to_be_older_is_not_told_that_it_does_not_answer(dlock, make_memcached):
    waiter = dlock.contend(At(make_memcached(age=0).url), "job", "-t", "20s")
    wait_for(lambda: "waiting " in waiter.stderr(), what="a line")
    assert "not granted yet, see above" in waiter.stderr() and "may not know who holds the lock" in waiter.stderr()
    assert "no answer" not in waiter.stderr()


def test_restart_under_a_hold(dlock, at, tmp_path):
    """The next one is granted after the lease that the server has forgotten of."""
    holder = dlock.contend(at, "job", *LEASE, command=("sleep", "1000")).held()
    command = holder.command
    next_ = dlock.contend(at, "job", *LEASE, command=("sh", "-c", f"[ ! -e /proc/{command}/exe ]")).queued()
    at.server.kill()
    began = boottime()
    at.server.start(age=0)
    assert holder.wait().status == 79
    assert next_.wait().status == 0
    assert boottime() - began > 2.5 and next_.token > holder.token


def test_the_end_of_the_connection_is_news(dlock, at):
    """Nobody waits for the next renewal then."""
    holder = dlock.hold(at, "job", "-t", "5m")
    at.server.restart()
    assert holder.wait(50).status == 79


def test_a_holder_whose_connections_end_soon_opens_no_end_of_them(dlock, make_pretender):
    """Some proxy may end whatever is idle. A few are followed at once, the others wait for the pace, which is a second."""
    stored = []

    def store(words):
        stored[:] = [pretender.asked[-1][1]]
        return b"HD c7\r\n" if "ME" in words else (b"HD c7\r\n",)

    def get(words):
        return b"VA %d c7 t30\r\n%s\r\n" % (len(stored[0]), stored[0]) if stored and "#" not in words[1] else b"EN\r\n"

    pretender = make_pretender({"stats": Pretender.running(), "ms": store, "mg": get})
    began = boottime()
    holder = dlock.hold(At(pretender.url), "job", "-t", "1h")
    wait_for(lambda: pretender.connections >= 14, timeout=60, what="connections")
    assert boottime() - began > 5
    assert holder.finish().status == 0


def test_a_cas_of_a_former_life_is_not_believed(dlock, at):
    """It counts from 1 again: our number may be another's by now."""
    holder = dlock.hold(at, "job", "-t", "30s")
    with at.server.client() as c:
        ours = int(c.items()["dlock:job"][1])
    keeper = holder.keeper
    holder.signal(signal.SIGSTOP, "keeper")
    at.server.restart()
    with at.server.client() as c:
        while c.ask("ms dlock:job 5 T60 c", b"other") != f"HD c{ours}":
            pass
        holder.signal(signal.SIGCONT, "keeper")
        assert holder.wait().status == 79
        wait_for(lambda: not is_alive(keeper), what="the keeper's end")
        assert c.get("dlock:job") == b"other" and int(c.items()["dlock:job"][1]) == ours


def test_flush_under_a_hold(dlock, at, client):
    holder = dlock.contend(at, "job", *LEASE, command=("sleep", "1000")).held()
    command = holder.command
    next_ = dlock.contend(at, "job", *LEASE, command=("sh", "-c", f"[ ! -e /proc/{command}/exe ]")).queued()
    began = boottime()
    assert client.ask("flush_all") == "OK"
    assert holder.wait().status == 79
    assert next_.wait().status == 0
    assert boottime() - began > 2.5 and next_.token > holder.token
    done = run(dlock, at.url, "-v", *LEASE)
    assert done.status == 0 and "flushed 1 times" in done.stderr


def test_a_flush_between_the_question_and_the_item(dlock, at, client, make_proxy):
    """It may have taken the item of one who was granted the lock meanwhile."""
    proxy = make_proxy(at.server.port)

    def tap(link, direction, data):
        if direction == UP and b"ms dlock:job" in data:
            client.ask("flush_all")
        return data

    proxy.tap = tap
    done = run(dlock, f"memcached://127.0.0.1:{proxy.port}", "-n", command=("echo", "ran"))
    assert (done.status, done.stdout) == (69, "") and "may not know who holds the lock" in done.stderr
    assert client.get("dlock:job") is None


def test_who_waits_after_a_flush_adds_nothing_meanwhile(dlock, at, client, sent):
    place, said = sent
    assert client.ask("flush_all") == "OK"
    assert run(dlock, place.words[1], *LEASE, "-w", "60s").status == 0
    assert len(re.findall(rb"ms dlock:job [^\r]* ME\r\n", b"".join(said))) == 2  # the first, which has told of the flush, and the grant


def test_a_flush_to_come_is_waited_for(dlock, at, client):
    assert client.ask("flush_all 1000") == "OK"
    assert run(dlock, at.url, *LEASE, "-n").status == 69


def test_eviction_costs_the_command(dlock, make_memcached):
    server = make_memcached("-m", "2")
    holder = dlock.hold(At(server.url), "job", "-t", "1h")
    with server.client() as c:
        wait_for(lambda: str(holder.token).encode() in c.get("dlock:job"), what="a renewal, which writes the token")
        size, numbers = len(c.get("dlock:job")), itertools.count()

        def is_evicted():
            c.socket.sendall(b"".join(b"set page%d 0 0 %d noreply\r\n%s\r\n" % (next(numbers), size, b"x" * size)
                                      for _ in range(1000)))
            return c.get("dlock:job") is None

        wait_for(is_evicted, what="the eviction")
    done = holder.finish()
    assert done.status == 79 and "evicted" in done.stderr
    done = run(dlock, server.url, "-v")
    assert done.status == 0 and "may lose locks" in done.stderr and "evicted 0 items" not in done.stderr


def test_a_full_server_that_evicts_nothing(dlock, make_memcached):
    """It deletes what it has no room to write anew: that is noticed at once."""
    server = make_memcached("-M", "-m", "2")
    holder = dlock.hold(At(server.url), "job", "-t", "30s")
    with server.client() as c:
        size, numbers = len(c.get("dlock:job")), itertools.count()

        def fill():
            for near in (size - 24, size, size + 24):  # a renewed item may be some bytes longer, and elsewhere
                while "out of memory" not in c.ask(f"set page{next(numbers)} 0 0 {near}", b"x" * near):
                    pass

        fill()
        done = holder.wait()
        assert done.status == 79 and "evicted or deleted" in done.stderr and not holder.events("suspect")
        fill()
    done = run(dlock, server.url, "-w", "3s")
    assert done.status == 69 and "memory is full" in done.stderr


@pytest.mark.parametrize("there", [False, True], ids=["free", "held"])
def test_a_server_without_cas_is_refused(dlock, make_memcached, there):
    server = make_memcached("-C")
    with server.client() as c:
        if there:
            c.set("dlock:job", b"x")
        done = run(dlock, server.url)
        assert done.status == 78 and "-C" in done.stderr
        assert c.get("dlock:job") == (b"x" if there else None)


# ---- a server that stands still ----


def test_a_write_by_a_clock_that_stands_still_is_none(dlock, make_pretender):
    """What is stored then ends too early: see item.h."""
    pretender = make_pretender()
    holder = dlock.hold(At(pretender.url), "job", "-t", "6s")
    assert holder.event("suspect")
    assert holder.wait().status == 79
    assert pretender.commands().count("ms") > 3


def test_a_clock_that_goes_on_again_is_believed(dlock, make_pretender):
    began = time.monotonic()
    stood = [True]

    def stats(_):
        return pretender.stats(time=1800000000 + (0 if stood[0] else int(time.monotonic() - began)))

    pretender = make_pretender({"stats": stats})
    holder = dlock.hold(At(pretender.url), "job", "-t", "10s")
    holder.event("suspect")
    stood[0] = False
    holder.event("trusted")
    assert holder.finish().status == 0


def test_a_server_that_was_stopped(dlock, at):
    holder = dlock.hold(at, "job", "-t", "12s")
    at.server.pause()
    holder.event("suspect")
    at.server.resume()
    holder.event("trusted")
    assert holder.finish().status == 0


# ---- giving it back ----


def test_what_is_anothers_by_now_is_not_given_back(dlock, at, client):
    holder = dlock.hold(at, "job", "-t", "1h")
    client.set("dlock:job", b"other", 60)
    assert holder.finish().status == 79
    assert client.get("dlock:job") == b"other"


# ---- answers that do not come ----


def test_a_release_whose_connection_ends_is_made_on_another(dlock, make_pretender):
    """Nobody is to wait for a second attempt in the background."""
    stored, answers = [], iter([b""])

    def store(_):
        stored[:] = [pretender.asked[-1][1]]
        return b"HD c7\r\n"

    def get(words):
        return b"VA %d c7 t30\r\n%s\r\n" % (len(stored[0]), stored[0]) if stored and "#" not in words[1] else b"EN\r\n"

    pretender = make_pretender({"ms": store, "mg": get, "md": lambda _: next(answers, b"HD\r\n")})
    done = run(dlock, pretender.url)
    assert (done.status, done.stderr) == (0, ""), done
    assert pretender.commands().count("md") == 2 and pretender.connections == 2


def test_a_deletion_that_was_late_is_no_loss(dlock, make_pretender):
    """The first one is still on its way when the item is looked for, and comes before the second one."""
    stored, answers = [], iter([b""])

    def store(_):
        stored[:] = [pretender.asked[-1][1]]
        return b"HD c7\r\n"

    def get(words):
        return b"VA %d c7 t30\r\n%s\r\n" % (len(stored[0]), stored[0]) if stored and "#" not in words[1] else b"EN\r\n"

    def delete(_):
        answer = next(answers, b"NF\r\n")
        stored[:] = stored if not answer else []
        return answer

    pretender = make_pretender({"ms": store, "mg": get, "md": delete})
    done = run(dlock, pretender.url)
    assert pretender.commands().count("md") == 2
    assert done.status == 0 and "not confirmed" in done.stderr, done


def test_an_add_without_an_answer_is_found_again(dlock, at, client, make_proxy):
    proxy, cut = make_proxy(at.server.port), []

    def tap(link, direction, data):
        if direction == UP and b"ms dlock:job" in data:
            cut.append(link)
        if direction == DOWN and cut[:1] == [link]:
            raise ConnectionResetError
        return data

    proxy.tap = tap
    began = boottime()
    done = run(dlock, f"memcached://127.0.0.1:{proxy.port}", command=("sh", "-c", "echo $DLOCK_TOKEN"))
    assert done.status == 0 and spent(began) < 20, done  # no lease of 30 s was waited for
    assert int(done.stdout) < token_of(dlock, at.url)
    assert client.get("dlock:job") is None


def test_who_gives_up_then_leaves_nothing(dlock, at, client, make_proxy):
    proxy = make_proxy(at.server.port)

    def tap(link, direction, data):
        if direction == UP and b"ms dlock:job" in data:
            proxy.hold(DOWN)
        return data

    proxy.tap = tap
    started = dlock.start("run", "-u", f"memcached://127.0.0.1:{proxy.port}", "-k", "job", "--", "true")
    wait_for(lambda: client.get("dlock:job"), what="the item")
    proxy.tap = None
    proxy.heal()
    started.signal(signal.SIGINT)
    assert started.wait().status in (-signal.SIGINT, 0)
    wait_for(lambda: client.get("dlock:job") is None, what="the withdrawal")


# ---- who is let in ----


@pytest.fixture
def private(make_memcached):
    return make_memcached(password=SECRET)


def test_login(dlock, private, tmp_path):
    file = tmp_path / "password"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    at_bob = f"memcached://bob@127.0.0.1:{private.port}"
    words = ("-w", "60s", *LEASE)
    assert run(dlock, f"memcached://bob:{SECRET}@127.0.0.1:{private.port}", *words).status == 0
    assert run(dlock, at_bob, "-O", f"password-file={file}", *words).status == 0
    for done in (run(dlock, f"memcached://bob:{SECRET[:7]}@127.0.0.1:{private.port}"),
                 run(dlock, f"memcached://eve:{SECRET}@127.0.0.1:{private.port}")):
        assert done.status == 77 and "wrong user or password" in done.stderr and SECRET[:7] not in done.stderr
    done = run(dlock, private.url)
    assert done.status == 77 and "password-file" in done.stderr
    assert run(dlock, at_bob).status == 64


def test_a_password_in_what_others_have_said_is_not_shown(dlock, private):
    assert_password_is_not_shown(dlock, f"memcached://bob:{SECRET}@127.0.0.1:{private.port}", SECRET, job=())


def test_the_password_is_not_shown_that_others_repeat(dlock, private):
    """Who looks may show it to anybody."""
    url = f"memcached://bob:{SECRET}@127.0.0.1:{private.port}"
    held = dlock.start("run", "-u", url, "-k", "job", "--who", f"eve {SECRET}", "--why", f"has {SECRET}", "-t", "30s", "--", "cat",
                       stdin=subprocess.PIPE).held()
    told = [dlock.run(word, "-J", "-u", url, *(() if word == "ls" else ("-k", "job"))).stdout for word in ("status", "ls")]
    assert not [text for text in told if SECRET in text] and all('"why":"has ***"' in text for text in told), told
    assert held.finish().status == 0


def test_a_server_without_passwords_is_told_none(dlock, at, client):
    """It would keep it for everybody to read."""
    done = run(dlock, f"memcached://bob:{SECRET}@127.0.0.1:{at.server.port}")
    assert done.status == 77 and "leave user and password out" in done.stderr
    assert client.names() == [] and SECRET[:7] not in done.stderr


@pytest.mark.parametrize("answer, status", [(b"CLIENT_ERROR authentication failure\r\n", 77), (b"CLIENT_ERROR bad data chunk\r\n", 78),
                                            (b"SERVER_ERROR out of memory reading request\r\n", 69), (b"HD\r\n", 76)], ids=str)
def test_a_login_that_fails_has_the_status_of_its_reason(dlock, make_pretender, answer, status):
    pretender = make_pretender({"mn": b"CLIENT_ERROR unauthenticated\r\n", "set": answer})
    done = run(dlock, f"memcached://bob:{SECRET}@127.0.0.1:{pretender.port}", "-n")
    assert done.status == status and done.stderr.count("\n") == 1 and SECRET[:7] not in done.stderr, done


def test_a_stranger_is_not_told_the_password(dlock, make_pretender):
    for answer in (b"ERROR\r\n", b"HTTP/1.1 400\r\n", b"-ERR\r\n"):
        pretender = make_pretender({"mn": answer})
        done = run(dlock, f"memcached://bob:{SECRET}@127.0.0.1:{pretender.port}", "-n")
        assert done.status in (76, 78) and pretender.commands() == ["mn"]


# ---- a wrong server, or a hostile one ----


def test_several_servers_are_refused(dlock):
    done = run(dlock, "memcached://a,b:1,c")
    assert done.status == 78 and "names several servers" in done.stderr and "name one" in done.stderr


def test_redis_is_no_memcached(dlock, own_redis):
    done = run(dlock, f"memcached://127.0.0.1:{own_redis.port}")
    assert done.status == 76 and "is this a memcached server?" in done.stderr
    with own_redis.client() as c:
        assert c.dbsize() == 0


@pytest.mark.parametrize("banner", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\n",
                                    b"220 mail ESMTP\r\n"], ids=range(4))
def test_other_servers(dlock, make_pretender, banner):
    done = run(dlock, make_pretender({"stats": None}, greeting=banner).url)
    assert done.status == 76 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["1.5.22", "1.6.9", "1.4.15", "mcrouter 41", ""])
def test_old_servers_and_proxies(dlock, make_pretender, version):
    pretender = make_pretender({"stats": b"STAT version %s\r\nSTAT uptime 9999\r\nSTAT time 9\r\nEND\r\n" % version.encode()})
    done = run(dlock, pretender.url)
    assert done.status == 78 and "1.6.10 or newer" in done.stderr and "ms" not in pretender.commands()


ENDLESS = b"x" * 100000
BAD = {
    "endless-line": {"stats": ENDLESS}, "endless-stats": {"stats": b"STAT a 1\r\n" * 100000}, "nul": {"stats": b"STAT a\0b 1\r\nEND\r\n"},
    "huge-value": {"mg": b"VA 2147483647 c1 t1\r\n"}, "huge-number": {"mg": b"VA 99999999999999999999999 c1 t1\r\n"},
    "negative": {"mg": b"VA -1 c1 t1\r\n"}, "no-flags": {"mg": b"VA 1\r\nx\r\n"}, "value-too-long": {"mg": b"VA 1 c1 t1\r\nxyz\r\n"},
    "hd-for-a-value": {"mg": b"HD\r\n"}, "stored-without-cas": {"ms": b"HD\r\n"}, "ok-for-a-store": {"ms": b"OK\r\n"},
    "value-for-a-store": {"ms": b"VA 1 c1 t1\r\nx\r\n"}, "two-answers": {"stats": b"END\r\nEN\r\nEN\r\nEN\r\nHD c1\r\nHD c1\r\nEN\r\n"},
    "client-error": {"ms": b"CLIENT_ERROR bad data chunk\r\n"}, "garbage": {"mg": bytes(range(128, 256)) + b"\r\n"},
    "no-time": {"stats": b"STAT version 1.6.18\r\nEND\r\n"}, "endless-uptime": {"stats": b"STAT version 1.6.18\r\nSTAT uptime 99999999999999999999\r\nSTAT time 1\r\nEND\r\n"},
    "endless-time": {"stats": b"STAT version 1.6.18\r\nSTAT uptime 100000\r\nSTAT time 999999999999999\r\nEND\r\n"},
    "began-before-time": {"stats": b"STAT version 1.6.18\r\nSTAT uptime 100000\r\nSTAT time 9\r\nEND\r\n"},
}


@pytest.mark.parametrize("answers", BAD.values(), ids=BAD)
def test_hostile_answers(dlock, make_pretender, answers):
    done = run(dlock, make_pretender(answers).url, "-w", "3s", command=("echo", "ran"))
    assert done.status in (69, 76, 78) and done.stdout == "" and done.stderr.count("\n") == 1, done


def test_a_line_without_an_end_is_no_answer(dlock, make_pretender):
    assert run(dlock, make_pretender({"stats": ENDLESS}).url).status == 76


@pytest.mark.parametrize("answers", [{"ms": b"SERVER_ERROR out of memory storing object\r\n"}, {"stats": None}, {"mg": b""},
                                     {"ms": None}, {"ms": b"SERVER_ERROR backend failure\r\n"}], ids=range(5))
def test_answers_that_pass(dlock, make_pretender, answers):
    done = run(dlock, make_pretender(answers).url, "-O", "connect-timeout=1s")
    assert done.status == 69 and done.stderr.count("\n") == 1


def test_what_goes_on_with_an_answer_goes_to_who_gave_it(dlock, make_pretender):
    """Behind another connection may be another life of the server, of which nothing is known."""
    pretender = make_pretender({"mg": lambda words: (b"EN\r\n",) if "#f:" in words[1] else b"EN\r\n"})
    assert run(dlock, pretender.url, "-w", "3s").status == 69
    assert pretender.commands().count("stats") > 1 and not {"ms", "md", "ma"} & set(pretender.commands())


def test_nothing_is_asked_where_an_error_was_said(dlock, make_pretender):
    """What comes after it may be the answer to something else."""
    pretender = make_pretender({"mg": lambda words: b"SERVER_ERROR busy\r\n" if "#f:" in words[1] else b"EN\r\n"})
    assert run(dlock, pretender.url, "-w", "2s").status == 69
    stats = pretender.commands().count("stats")
    assert stats > 2 and pretender.connections - stats in (0, 1)  # the time may be over before it is asked


@pytest.mark.parametrize("answer", [b"CLIENT_ERROR bad\r\n", b"ERROR\r\n", b"HD\r\n", b"", b"XX\r\n", ENDLESS], ids=range(6))
def test_hostile_answers_to_a_renewal(dlock, make_pretender, answer):
    """Nothing but the server's word ends a hold before its lease."""
    hold, value = [None], [b""]

    def store(words):
        hold[0] = True
        return answer if "ME" not in words else b"HD c7\r\n"

    def get(words):
        if "#" not in words[1] and hold[0]:
            stored = [v for w, v in pretender.asked if w[0] == "ms" and "#" not in w[1]][0]
            return b"VA %d c7 t30\r\n%s\r\n" % (len(stored), stored)
        return b"EN\r\n"

    pretender = make_pretender({"ms": store, "mg": get, "stats": Pretender.running()})
    holder = dlock.hold(At(pretender.url), "job", "-t", "6s")
    holder.event("suspect")
    assert holder.wait().status == 79
    assert value


# ---- looking and steering ----


def test_status_says_what_it_is(dlock, at):
    dlock.hold(at, "job")
    text = dlock.run("status", *at.words, "-k", "job").stdout
    assert "best effort: memcached may evict" in text
    assert "best effort" in status(dlock, at.url)["caveat"]
    assert "best effort" in json.loads(dlock.run("ls", "-J", *at.words).stdout)["caveat"]
    done = run(dlock, at.url, "-v", "-n")
    assert "may lose locks" in done.stderr and "dlock-memcached(7)" in done.stderr


def test_locks_among_much_else(dlock, at, client):
    client.socket.sendall(b"".join(b"set page%d 0 0 1 noreply\r\nx\r\n" % n for n in range(100000)))
    value = b"dlock1 " + b"0" * 32 + b" 7 1700000000000000 -1 0 2 0  {} "
    client.socket.sendall(b"".join(b"set dlock:lock%d 0 600 %d noreply\r\n%s\r\n" % (n, len(value), value) for n in range(1000)))
    wait_for(lambda: client.get("dlock:lock999"), what="the last one")
    assert dlock.run("freeze", *at.words, "-k", "lock5").status == 0
    assert dlock.run("freeze", *at.words, "-k", "alone").status == 0
    found = [json.loads(line) for line in dlock.run("ls", "-J", *at.words).stdout.splitlines()]
    assert sorted(o["key"] for o in found) == sorted([f"lock{n}" for n in range(1000)] + ["alone"])
    assert [o["key"] for o in found if o["frozen"]] == [o["key"] for o in found if o["key"] in ("lock5", "alone")]
    assert all(o["holders"][0]["token"] == 7 for o in found if o["key"] != "alone")


def test_no_hold_is_told_of_another_key(dlock, at, client):
    """A hashed name and the key in its value belong together, or it is no lock."""
    value = b"dlock1 " + b"0" * 32 + b" 7 1700000000000000 -1 6 2 0 victim {} "
    client.set("dlock:#" + "a" * 64, value, 60)
    client.set("dlock:#short", value, 60)
    client.set("dlock:%41", value, 60)
    assert dlock.run("ls", "-J", *at.words).stdout == ""


@pytest.mark.parametrize("force", [False, True], ids=["asked", "taken"])
def test_only_the_grant_that_is_meant_is_broken(dlock, at, client, force):
    holder = dlock.hold(at, "job", "-t", "1h")
    wait_for(lambda: str(holder.token).encode() in client.get("dlock:job"), what="a renewal, which writes the token")
    before = client.get("dlock:job")
    owner = before.split()[1].decode()

    def revoke(token, owner):
        return admin(at.url, "revoke", "job", token, owner, "{}", *(["force"] if force else []))

    for token, of in ((holder.token + 1, owner), (holder.token, "0" * 32), (holder.token + 1, "-"), (0, "0" * 32)):
        assert revoke(token, of) == "not ours", (token, of)
        assert client.get("dlock:job") == before
    assert revoke(holder.token, owner) == "ok"
    assert client.get("dlock:job") != before


def test_who_may_not_list_can_name_a_key(dlock, make_memcached):
    server = make_memcached("-X")
    done = dlock.run("ls", "-u", server.url)
    assert done.status == 78 and "name a key" in done.stderr
    assert dlock.run("status", "-u", server.url, "-k", "job").status == 1


def test_a_server_that_lists_for_somebody_else(dlock, make_pretender):
    busy = [3]

    def answer(_):
        busy[0] -= 1
        return b"BUSY currently processing crawler request\r\n" if busy[0] > 0 else b"END\r\n"

    pretender = make_pretender({"lru_crawler": answer})
    assert dlock.run("ls", "-u", pretender.url).status == 0 and busy[0] == 0
    busy[0] = 10000
    done = dlock.run("ls", "-u", pretender.url)
    assert done.status == 69 and "try again" in done.stderr


def test_a_broken_hold_knows_by_whom(dlock, at):
    def is_known():
        holder = dlock.hold(at, "job", "-t", "9s")
        assert dlock.run("break", "-y", "--force", "--who", "carol", "--why", "in the way", *at.words, "-k", "job").status == 0
        done = holder.wait()
        assert done.status == 79
        return "carol" in done.stderr and "in the way" in done.stderr

    assert any(is_known() for _ in range(3))  # a busy server does not say it in the time that a name is worth


def test_a_mark_does_not_make_the_lease_longer(dlock, at, client):
    holder = dlock.hold(at, "job", "-t", "10m")
    holder.signal(signal.SIGSTOP, "keeper")
    at.server.step(100)
    wait_for(lambda: client.ttl("dlock:job") <= 503, what="the server's clock")
    started = dlock.start("break", "-y", *at.words, "-k", "job")
    wait_for(lambda: status(dlock, at.url)["holders"][0]["revoked"], what="the mark")
    assert 400 < client.ttl("dlock:job") <= 503
    holder.signal(signal.SIGCONT, "keeper")
    started.signal(signal.SIGTERM)
    started.wait()


@pytest.mark.parametrize("length, most", [("2s", 4), ("31d", 31 * 86400 + 2)])
def test_how_long_a_freeze_is_kept(dlock, at, client, length, most):
    if length.endswith("d"):
        length = f"{int(length[:-1]) * 24}h"
    assert dlock.run("freeze", "--for", length, *at.words, "-k", "job").status == 0
    assert most - 2 <= client.ttl("dlock#f:dlock:job") <= most


def test_a_freeze_without_an_end(dlock, at, client):
    assert dlock.run("freeze", *at.words, "-k", "job").status == 0
    assert client.ttl("dlock#f:dlock:job") == -1
    at.server.step(86400 * 400)
    wait_for(lambda: at.server.uptime() > 86400 * 400, what="the server's clock")
    assert run(dlock, at.url, "-n").status == 75


def test_a_grant_comes_before_a_freeze_or_not_at_all(dlock, make_pretender):
    """A freeze that is made after we have looked, and before we are granted, holds."""
    frozen = []

    def get(words):
        if words[1].startswith("dlock#f:") and frozen:
            return b"VA 1 c9 t-1\r\nx\r\n"
        return b"EN\r\n"

    def store(words):
        frozen.append(words)
        return b"HD c5\r\n"

    pretender = make_pretender({"mg": get, "ms": store})
    done = run(dlock, pretender.url, "-n", command=("echo", "ran"))
    assert (done.status, done.stdout) == (75, "")
    assert ["md", "dlock:job", "C5"] in [words for words, _ in pretender.asked]


# ---- whatever happens ----


def test_no_overlap_though_the_server_forgets(dlock, make_memcached, tmp_path):
    """It is killed and begins anew, and is told to forget all; holders are killed and stopped meanwhile."""
    server, crowd = make_memcached(), Crowd(compile_witness(tmp_path), tmp_path / "crowd")

    def run_one(_, *words):
        return dlock.start("run", "-u", server.url, "-k", "job", "-t", "3s", "-w", "inf", *words)

    began = boottime()
    crowd.start(12, run_one)
    wait_for(lambda: len(crowd.seen()) > 3, what="some runs")
    for forget in (lambda: (server.kill(), server.start(age=0)), lambda: server.client().ask("flush_all")):
        forget()
        before = len(crowd.seen())
        wait_for(lambda: len(crowd.seen()) > before + 8, what="runs after that")
    crowd.finish()
    crowd.check(12, began, True)
