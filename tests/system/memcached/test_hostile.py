# Goal of these tests: that a memcached server which is broken, slow or hostile, or whose other clients are, costs a
# command at most, and never lets it run without the lock.

import re
import signal
import time

import pytest

from memcached import LEASE, Pretender, run
from proxy import DOWN, UP
from support import At, boottime, spent, wait_for

RAN = ("echo", "ran")


def through(proxy):
    return f"memcached://127.0.0.1:{proxy.port}"


# ---- answers ----


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_one_byte_at_a_time(dlock, at, make_proxy, direction):
    proxy = make_proxy(at.server.port)
    proxy.drip(direction, 1, 0)
    done = run(dlock, through(proxy), "-w", "60s", command=RAN)
    assert (done.status, done.stdout) == (0, "ran\n"), done


def test_answers_that_drip_are_not_waited_for(dlock, at, client, make_proxy):
    proxy = make_proxy(at.server.port)
    proxy.drip(DOWN, 1, 0.1)
    began = boottime()
    done = run(dlock, through(proxy), "-O", "connect-timeout=1s", command=RAN)
    assert (done.status, done.stdout) == (69, "") and spent(began) < 30
    assert client.get("dlock:job") is None


def test_answers_that_come_twice(dlock, at, client, make_proxy):
    proxy = make_proxy(at.server.port)
    proxy.tap = lambda link, direction, data: data + data if direction == DOWN else data
    done = run(dlock, through(proxy), "-w", "2s", command=RAN)
    assert done.status in (69, 76) and done.stdout == "", done


def test_answers_to_the_question_before(dlock, at, make_proxy):
    """Each comes once more, before the next one."""
    proxy, last = make_proxy(at.server.port), {}

    def tap(link, direction, data):
        if direction == DOWN:
            data, last[link] = last.get(link, b"") + data, data
        return data

    proxy.tap = tap
    done = run(dlock, through(proxy), "-w", "2s", command=RAN)
    assert done.status in (69, 76) and done.stdout == "", done


def test_such_answers_to_a_holder(dlock, at, client, make_proxy):
    proxy, last = make_proxy(at.server.port), {}

    def tap(link, direction, data):
        if direction == DOWN:
            data, last[link] = last.get(link, b"") + data, data
        return data

    holder = dlock.hold(At(through(proxy)), "job", *LEASE)
    proxy.tap = tap
    wait_for(lambda: len(last) > 2 or holder.poll() is not None, what="new connections")
    proxy.tap = None
    done = holder.finish()
    assert done.status in (0, 79)
    wait_for(lambda: client.get("dlock:job") is None, what="its end")


@pytest.mark.parametrize("answer", ["{} c7 t30 O1", "{} c7 t30 kdlock:other", "{} c7 c8 t30 s5"], ids=["opaque", "key", "size"])
def test_flags_that_were_not_asked_for(dlock, make_pretender, answer):
    pretender = make_pretender({"mg": ("VA " + answer.format(1) + "\r\nx\r\n").encode()})
    done = run(dlock, pretender.url, "-w", "20s", command=RAN)
    assert done.status == 76 and done.stdout == ""


def test_a_list_without_an_end_can_be_interrupted(dlock, make_pretender):
    flood = b"key=page exp=0 la=0 cas=1 fetch=no cls=1 size=64\n" * 100000

    def answer(_):
        yield from iter(lambda: flood, None)

    pretender = make_pretender({"lru_crawler": answer})
    looks = dlock.start("ls", "-u", pretender.url)
    wait_for(lambda: pretender.sent > 1 << 20, what="the list")
    looks.signal(signal.SIGINT)
    assert looks.wait().status == -signal.SIGINT


# ---- what other clients do ----


@pytest.mark.parametrize("how", ["overwritten", "deleted", "touched"])
def test_what_others_do_to_the_item(dlock, at, client, how):
    holder = dlock.contend(at, "job", "-t", "30s", command=("sleep", "1000")).held()
    if how == "overwritten":
        client.set("dlock:job", b"other", 60)
    elif how == "deleted":
        assert client.delete("dlock:job")
    else:
        assert client.ask("touch dlock:job -1") == "TOUCHED"
    done = holder.wait()
    assert done.status == 79 and "evicted or deleted" in done.stderr
    assert client.get("dlock:job") == (b"other" if how == "overwritten" else None)


def test_what_others_write_back_is_still_ours(dlock, at, client):
    holder = dlock.hold(at, "job", "-t", "30s")
    wait_for(lambda: str(holder.token).encode() in client.get("dlock:job"), what="a renewal")
    for _ in range(20):
        client.set("dlock:job", client.get("dlock:job"), 60)
    assert holder.finish().status == 0


@pytest.mark.parametrize("seen_by", ["release", "renewal"])
def test_an_add_of_ours_that_arrives_late_is_no_hold(dlock, at, client, seen_by):
    """Between the two another may have held the lock: the item has another number."""
    holder = dlock.hold(at, "job", "-t", "1h")
    client.set("dlock:job", re.sub(rb"^(dlock1 \w+) \d+ ", rb"\1 0 ", client.get("dlock:job")), 60)
    done = holder.finish() if seen_by == "release" else holder.wait()
    assert done.status == 79
    assert client.get("dlock:job") is None


@pytest.mark.parametrize("flush", ["flush_all 1", "flush_all 2"])
def test_a_flush_to_come_under_a_hold(dlock, at, client, flush):
    holder = dlock.contend(at, "job", *LEASE, command=("sleep", "1000")).held()
    next_ = dlock.contend(at, "job", *LEASE, command=("sh", "-c", f"[ ! -e /proc/{holder.command}/exe ]")).queued()
    assert client.ask(flush) == "OK"
    assert holder.wait().status == 79
    assert next_.wait().status == 0


# ---- a server that stands still ----


def test_who_was_answered_late_asks_again(dlock, make_pretender):
    """The server was stopped, perhaps, and its clock has not gone on yet: an item of then would end too early."""
    running = Pretender.running()

    def stats(words):
        if len(pretender.asked) == 1:
            time.sleep(1.2)
        return running(words)

    pretender = make_pretender({"stats": stats})
    done = run(dlock, pretender.url, "-n", command=RAN)
    commands = pretender.commands()
    assert (done.status, done.stdout) == (0, "ran\n"), done
    assert commands[:commands.index("ms")] == 2 * ["stats", "mg", "mg"]


def test_a_server_that_is_stopped_for_longer_than_the_lease(dlock, at):
    holder = dlock.contend(at, "job", *LEASE, command=("sleep", "1000")).held()
    next_ = dlock.contend(at, "job", *LEASE, "-w", "inf", command=("sh", "-c", f"[ ! -e /proc/{holder.command}/exe ]")).queued()
    at.server.pause()
    assert holder.wait().status == 79
    late = dlock.contend(at, "job", *LEASE, "-w", "inf", command=("true",))
    time.sleep(1)
    at.server.resume()
    assert next_.wait().status == 0 and late.wait().status == 0
