# Goal of these tests: what a member says that no healthy etcd says.  A stalled or deposed leader proves no lease; nonsense
# is refused, and makes no two holders.

import json
import subprocess
import time

import pytest

from etcd import hold
from support import boottime, is_alive, run, spent, wait_for

LEASE = ("-t", "3s")


class Switch:
    """An edit that begins when it is told to."""

    def __init__(self, change):
        self.change, self.on = change, False

    def __call__(self, path, asked, answer):
        return self.change(path, asked, answer) if self.on else answer


def header(answer):
    return answer.get("result", answer)["header"]


def other_member(path, _, answer):
    """A proxy in between, which asks another member for each request."""
    if path == "lease/keepalive":
        header(answer)["member_id"] = "4711"
    return answer


def lost_lease(path, _, answer):
    """The key is there, but the leader knows no such lease (any more)."""
    if path == "lease/keepalive":
        del answer["result"]["TTL"]
    return answer


def stalled(path, _, answer):
    """A leader whose disk stalls: it answers keep-alives, for whose key another leader cares."""
    return answer if path in ("lease/keepalive", "watch") else None


def without_leader(path, _, answer):
    """What a member says that has lost its leader."""
    return answer if path == "watch" else {"error": "etcdserver: no leader", "message": "etcdserver: no leader", "code": 14}


@pytest.mark.parametrize("change", [other_member, lost_lease, stalled, without_leader], ids=lambda c: c.__name__)
def test_a_lease_that_is_not_proved(dlock, at, make_meddler, change):
    """The command is gone before the lease ends that was proved last."""
    switch = Switch(change)
    between = make_meddler(at.server.port, switch)
    held = hold(dlock, between.url, *LEASE)
    time.sleep(1.5)
    assert held.poll() is None
    command = held.command
    began, switch.on = boottime(), True
    wait_for(lambda: not is_alive(command), what="the end of the command")
    assert spent(began) < 3
    assert held.wait().status == 79


def test_a_lease_that_is_proved_again(dlock, at, make_meddler):
    """A change of leader that is over in a second costs nothing."""
    switch = Switch(without_leader)
    between = make_meddler(at.server.port, switch)
    held = hold(dlock, between.url, "-t", "6s")
    switch.on = True
    time.sleep(2.5)
    switch.on = False
    time.sleep(5)
    assert held.poll() is None and held.finish().status == 0


@pytest.mark.parametrize("word", ["status", "ls", "break", "freeze", "thaw", "forget", "doctor"])
def test_who_looks_or_steers_waits_for_the_end_of_an_election(dlock, at, make_meddler, word):
    """As a run does; an election lasts a second or two."""
    told = []

    def electing(path, asked, answer):
        told.append(path)
        return without_leader(path, asked, answer) if len(told) <= 4 else answer

    key = f"election-{word}"
    held = hold(dlock, at.url, key=key) if word == "break" else None
    words = (word, *(() if word == "ls" else ("-k", key)), *(("-y",) if word in ("break", "thaw", "forget") else ()), "-u")
    before = None if held else dlock.run(*words, at.url)
    done = dlock.run(*words, make_meddler(at.server.port, electing).url)
    assert done.status == (before.status if before else 0) != 69 and len(told) > 4, done
    if held:
        assert held.wait().status == 79


@pytest.mark.parametrize("message, setting", [("etcdserver: too many operations in txn request", "--max-txn-ops"),
                                              ("etcdserver: request is too large", "--max-request-bytes")])
def test_a_setting_that_is_too_small_is_named(dlock, at, make_meddler, message, setting):
    """It is no want of a password, which has the same code."""
    between = make_meddler(at.server.port, instead=lambda path: {"error": message, "message": message, "code": 3} if path == "kv/txn" else None)
    done = run(dlock, between.url)
    assert done.status == 78 and setting in done.stderr and "password" not in done.stderr, done


def test_answers_that_are_each_in_time(dlock, at, make_meddler):
    """A busy server serves the calls of a packet one after the other.  Together they may take longer than the first answer may."""
    def slow(path, _, answer):
        time.sleep(3)
        return answer

    between = make_meddler(at.server.port, slow)
    assert run(dlock, between.url).status == 0
    assert [path for path, _ in between.asked].count("lease/grant") == 1


def test_a_later_answer_of_a_packet_is_awaited_for_as_long_as_a_first_one(dlock, at, make_meddler):
    """Also by who has a connection already, and would ask once more on another."""
    late = []

    def slow(path, asked, answer):
        if path == "kv/txn" and is_put(asked) and not is_of_all(asked) and not late:
            late.append(time.sleep(4))
        return answer

    held, between = hold(dlock, at.url), make_meddler(at.server.port, slow)
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "-w", "1m", "--", "true").queued(1)
    wait_for(lambda: "watch" in [path for path, _ in between.asked])
    assert late and [path for path, _ in between.asked].count("lease/grant") == 2, between.asked  # of the hold, and of the place
    assert held.finish().status == 0 and waiter.wait().status == 0


def is_of_all(asked):
    """A condition for all keys of a queue, which etcd reads for it."""
    return any("range_end" in condition for condition in asked.get("compare", ()))


def test_who_joins_a_queue_again_does_not_ask_whether_there_is_one(dlock, at, make_meddler):
    """The answer to its joining never comes."""
    silent = []

    def edit(path, asked, answer):
        if path == "kv/txn" and not is_of_all(asked) and len(silent) < 2:
            silent.append(1)
            return None
        return answer

    held, between = hold(dlock, at.url), make_meddler(at.server.port, edit)
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "-w", "1m", "--", "true").queued(1)
    assert len(silent) == 2 and [is_of_all(asked) for _, asked in between.asked].count(True) == 1
    assert held.finish().status == 0 and waiter.wait().status == 0


def test_a_waiter_that_was_not_answered_in_time_only_reads(dlock, at, make_meddler):
    """Its place is still there; so many who write at once would make the server later still."""
    switch = Switch(lambda path, _, answer: None if path == "lease/keepalive" else answer)
    held, between = hold(dlock, at.url), make_meddler(at.server.port, switch)
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "-w", "1m", "--", "true").queued(1)
    wait_for(lambda: between.asked[-1][0] == "watch")
    known, switch.on = len(between.asked), True

    def since():
        return [path for path, _ in between.asked[known:]]

    wait_for(lambda: since().count("lease/keepalive") >= 3)  # two on two connections were in vain: that was an answer too late
    switch.on = False
    wait_for(lambda: "watch" in since())
    assert set(since()) == {"lease/keepalive", "kv/range", "watch"}, since()
    assert held.finish().status == 0 and waiter.wait().status == 0


def test_a_watch_that_is_canceled(dlock, at, make_meddler):
    """Compacted: the waiter asks again, and is served."""
    canceled = []

    def edit(path, _, answer):
        if path == "watch" and len(canceled) < 2:
            canceled.append(1)
            return {"result": {**answer["result"], "canceled": True, "compact_revision": "99"}}
        return answer

    between = make_meddler(at.server.port, edit)
    held = hold(dlock, at.url)
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "--", "true").queued(1)
    wait_for(lambda: len(canceled) == 2)
    assert waiter.poll() is None
    held.finish()
    assert waiter.wait().status == 0


def test_a_watch_that_tells_nothing(dlock, at, make_meddler):
    """Silent for ever: the waiter's place is renewed, and what it waits for is found then."""
    between = make_meddler(at.server.port, lambda path, _, answer: None if path == "watch" else answer)
    held = hold(dlock, at.url)
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "--", "true").queued(1)
    held.finish()
    assert waiter.wait().status == 0


def half_a_chunk(path, _, answer):
    return (b'20\r\n{"result":', None) if path == "watch" else answer


def test_a_watch_that_tells_a_part_and_stops(dlock, at, make_meddler):
    """A waiter still knows how long it is to wait, and when a freeze ends; a holder renews its lease."""
    between = make_meddler(at.server.port, half_a_chunk)
    held = hold(dlock, between.url, *LEASE)
    began = boottime()
    done = run(dlock, between.url, "-w", "1500ms", events=False)
    assert done.status == 75 and boottime() - began < 2.5, done
    time.sleep(3)
    assert held.poll() is None
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "-w", "30s", "--", "true").queued(1)
    assert held.finish().status == 0 and waiter.wait().status == 0
    began = boottime()
    assert dlock.run("freeze", *at.words, "-k", "job", "--for", "1s").status == 0
    assert run(dlock, between.url, "-w", "30s").status == 0 and boottime() - began < 2.5


def test_a_freeze_that_is_written_again_unseen(dlock, at, make_meddler):
    """The watch is silent: that the freeze ends at last is found with the next renewal of the place."""
    between = make_meddler(at.server.port, lambda path, _, answer: None if path == "watch" else answer)
    assert dlock.run("freeze", *at.words, "-k", "job").status == 0
    waiter = dlock.start("run", "-u", between.url, "-k", "job", "-t", "6s", "-w", "30s", "--", "true").queued(1)
    assert dlock.run("freeze", *at.words, "-k", "job", "--for", "1s").status == 0
    done = waiter.wait()
    assert done.status == 0, done


def test_a_loss_during_a_renewal(dlock, at, client, make_meddler):
    """What the watch tells while a renewal is under way wakes the keeper afterwards."""
    woken, lost = [], []

    def edit(path, asked, answer):
        if path == "watch" and not woken:
            woken.append(1)
            return {"result": {**answer["result"], "events": [{}]}}  # now there is another renewal
        if path == "kv/txn" and woken and not lost and not is_put(asked):
            lost.append(client.delete(client.queue()[0]["key"]))
            time.sleep(0.5)  # the watch tells of it first; this answer is older
        return answer

    began = boottime()
    held = hold(dlock, make_meddler(at.server.port, edit).url, "-t", "60s")
    done = held.wait()
    assert lost == [1] and done.status == 79 and boottime() - began < 10, done


def test_doctor_waits_for_a_leader_who_tells_of_the_members(dlock, at, make_meddler):
    told = []

    def electing(path, asked, answer):
        told.append(path)
        return without_leader(path, asked, answer) if path == "cluster/member/list" and told.count(path) <= 2 else answer

    done = dlock.run("doctor", "-J", "-u", make_meddler(at.server.port, electing).url, "-k", "job")
    found = {fact["check"]: fact for fact in map(json.loads, done.stdout.splitlines())}
    assert found["quorum"]["fact"].endswith("the cluster has 1"), found


def test_all_runs_are_forgotten_after_an_election(dlock, at, client, make_meddler):
    told = []

    def electing(path, asked, answer):
        if not is_put(asked):
            return answer
        told.append(path)
        return without_leader(path, asked, answer) if len(told) <= 3 else answer

    assert run(dlock, at, "--once", "x").status == 0
    done = dlock.run("forget", "-y", "-u", make_meddler(at.server.port, electing).url, "job")
    assert done.status == 0 and len(told) == 4 and client.names() == [], done


def test_doctor_counts_no_learner_and_believes_that_there_is_no_quota(dlock, at, make_meddler):
    def edit(path, _, answer):
        if path == "cluster/member/list":
            answer["members"].append({"ID": "4711", "isLearner": True})
        if path == "maintenance/status":
            answer["dbSizeQuota"] = "-1"
        return answer

    done = dlock.run("doctor", "-J", "-u", make_meddler(at.server.port, edit).url, "-k", "job")
    found = {fact["check"]: fact for fact in map(json.loads, done.stdout.splitlines())}
    assert found["quorum"]["level"] == "ok" and found["quorum"]["fact"].endswith("the cluster has 1"), found
    assert found["database"]["level"] == "ok", found


def test_doctor_tells_alarms_by_their_type(dlock, at, make_meddler):
    def edit(path, _, answer):
        if path == "maintenance/status":
            answer["errors"] = ["memberID:4711 alarm:NOSPACE ", "memberID:4711 alarm:CORRUPT ", "a member called NOSPACE"]
        return answer

    done = dlock.run("doctor", "-J", "-u", make_meddler(at.server.port, edit).url, "-k", "job")
    found = [fact["check"] for fact in map(json.loads, done.stdout.splitlines()) if fact["level"] == "fail"]
    assert found == ["database", "alarm", "alarm"], done


def is_put(asked):
    return any("request_put" in op or "request_delete_range" in op for op in asked.get("success", []))


class Loses:
    """Loses the answer to the `nth` write."""

    def __init__(self, nth):
        self.left = nth

    def __call__(self, path, asked, answer):
        if path == "kv/txn" and is_put(asked):
            self.left -= 1
            if self.left == 0:
                return (b"",)
        return answer


@pytest.mark.parametrize("options", [(), ("-s",), ("--limit", "1"), ("--limit", "2"), ("--once", "x")], ids=" ".join)
@pytest.mark.parametrize("waits", [False, True], ids=["free", "waits"])
def test_a_lost_answer_to_a_grant(dlock, at, client, make_meddler, options, waits):
    """What has been done is found, and is ours: with its slot, and with nothing left of it in the end."""
    between = make_meddler(at.server.port, Loses(3 if waits else 1))  # its first try, and its place, come before
    held = hold(dlock, at.url) if waits else None
    began = boottime()
    other = dlock.start("run", "-u", between.url, "-k", "job", *options, "--", "sh", "-c", "echo slot ${DLOCK_SLOT:-0}")
    if waits:
        other.queued(1)
        held.finish()
    done = other.wait()
    assert (done.status, done.stdout) == (0, "slot 0\n") and boottime() - began < 8, done
    assert between.edit.left <= 0
    assert [name for name in client.names() if "/j/" not in name] == []


@pytest.mark.parametrize("options", [(), ("--limit", "2")], ids=" ".join)
def test_a_grant_whose_answer_was_lost_is_broken(dlock, at, client, make_meddler, options):
    """It is given up as any other one: it does not ask for ever, with the lock, for what it has got."""
    loses = Loses(1)

    def edit(path, asked, answer):
        answer = loses(path, asked, answer)
        if answer == (b"",):
            breaks.append(dlock.start("break", "-y", "-w", "30s", "-u", at.url, "job"))
            wait_for(lambda: [name for name in client.names() if "/m/" in name], what="the mark")
        return answer

    breaks = []
    done = dlock.run("run", "-u", make_meddler(at.server.port, edit).url, "-k", "job", *options, "--", "sleep", "1000", timeout=40)
    assert done.status == 79 and "broken by" in done.stderr, done
    assert [b.wait().status for b in breaks] == [0]
    assert client.names() == []


def test_a_lost_answer_to_the_release_of_a_job(dlock, at, client, make_meddler):
    """The run counts; nobody says that the lock was lost."""
    between = make_meddler(at.server.port, Loses(2))
    done = run(dlock, between.url, "--once", "x")
    assert done.status == 0 and "lost" not in done.stderr, done
    again = run(dlock, at.url, "--once", "x")
    assert (again.status, again.stdout) == (0, ""), again
    assert client.queue() == []


def test_a_lost_answer_to_a_release(dlock, at, client, make_meddler):
    """That our key is gone by then says nothing."""
    done = run(dlock, make_meddler(at.server.port, Loses(2)).url, "-t", "9s")
    assert done.status == 0 and "not confirmed" in done.stderr and "lost" not in done.stderr, done
    assert client.queue() == []


@pytest.mark.parametrize("said", [(b"",), {"error": "x", "message": "etcdserver: server is unhealthy", "code": 13}], ids=["cut", "refused"])
@pytest.mark.parametrize("options", [("-t", "2m"), ("--limit", "2"), ("--once", "x")], ids=" ".join)
def test_a_release_is_done_before_its_lease_is_revoked(dlock, at, client, make_meddler, options, said):
    between = make_meddler(at.server.port, lambda path, _, answer: said if path == "lease/revoke" else answer)
    done = run(dlock, between.url, *options)
    assert (done.status, done.stderr) == (0, "") and client.queue() == [], done
    assert [path for path, _ in between.asked].count("lease/revoke") > 0


def without_lease(path, asked, answer):
    """What a write says whose lease has ended."""
    return {"error": "x", "message": "etcdserver: requested lease not found", "code": 5} if path == "kv/txn" and is_put(asked) else answer


def test_a_write_whose_lease_has_ended_tells_of_no_loss(dlock, at, make_meddler):
    switch = Switch(without_lease)
    between = make_meddler(at.server.port, switch)
    held = dlock.start("run", "-u", between.url, "-k", "job", "--once", "x", "--", "cat", stdin=subprocess.PIPE).held()
    switch.on = True
    done = dlock.run("break", "-y", "-u", between.url, "-k", "job")
    assert done.status == 69 and "has not answered" in done.stderr, done
    done = held.finish()
    assert done.status != 79 and "lost" not in done.stderr, done


@pytest.mark.parametrize("reply, status", [
    (b"", 69), (b"HTTP/1.1 200 OK\r\n\r\n", 76), (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 76),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 76), (b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nNot Found", 78),
    (b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", 78),
    (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 69), (b"+PONG\r\n", 76), (b"SSH-2.0-OpenSSH_9.2\r\n", 76),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 76),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 76), (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 5000, 76),
    (b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"result":{},"error":{}}', 69),
], ids=range(13))
def test_nonsense(dlock, at, make_meddler, reply, status):
    between = make_meddler(at.server.port, lambda *_: (reply,))
    patience = "1s" if status == 69 else "60s"  # what is answered is read, however slow the machine is
    done = run(dlock, between.url, "-n", "-O", f"connect-timeout={patience}")
    assert (done.status, done.stdout) == (status, "") and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("change", [
    lambda a: {**a, "responses": "none"}, lambda a: {**a, "responses": [{"response_range": {"kvs": [{"key": "!", "create_revision": 1}]}}] * 9},
    lambda a: {**a, "responses": [None, 7, {"x": []}]}, lambda a: {k: v for k, v in a.items() if k != "responses"},
    lambda a: {**a, "succeeded": "yes"},
], ids=range(5))
def test_answers_of_the_wrong_shape(dlock, at, client, make_meddler, change):
    """Never a crash; never a hold beside another."""
    between = make_meddler(at.server.port, lambda path, _, answer: change(answer) if path == "kv/txn" else answer)
    held = hold(dlock, at.url)
    done = run(dlock, between.url, "-w", "1s", events=False)
    assert done.status in (69, 75, 76) and not done.stdout, done
    assert held.poll() is None and client.queue()[0]["create"] == held.token
