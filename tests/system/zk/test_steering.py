# Goal of these tests: locks in ZooKeeper are looked at without leaving a trace, and are
# taken away and frozen as Curator's users, too, understand it.

import contextlib
import json
import re
import select
import subprocess
import time

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl, make_digest_acl

from curator import children, hold
from faults import LIVING_LEASE
from quotes import text_of
from support import ADMIN, At, boottime, size, spent, stalled, told_at_the_end, wait_for
from zk import CREATE2, DELETE, GET_CHILDREN, GET_CHILDREN2, GET_DATA, LISTS, MULTI, SET_DATA, SYNC, Moments, nodes

BOB = json.dumps({"who": "bob@office", "why": "it \"hangs\""})
NUMBERS = {"lock", "limit", "token", "slot", "position", "count", "since", "until", "now", "revoked", "status", "pid"}
KINDS = {"plain": (), "writer": ("-x",), "reader": ("-s",), "unit": ("--limit", "2")}
EXCLUSIVE, WRITER, SHARED, LIMIT = range(4)
MS, S = 1000, 1000000
HOUR = 3600 * S


# ---- admin_ops, called one by one ----


def entry_of(line):
    kind, *members = line.split("\t")
    entry = {"kind": kind, **dict(m.split("=", 1) for m in members)}
    return {k: int(v) if k in NUMBERS else v for k, v in entry.items()}


def admin(at, *words, ok=True):
    """(entries, what it ended with); `at` is a URL or a place's words."""
    url, *options = [at] if isinstance(at, str) else at.words[1:]
    done = subprocess.run([ADMIN, "zk", url, *options, *map(str, words)], capture_output=True, text=True, timeout=90)
    *lines, last = done.stdout.splitlines()
    assert last.startswith("rc "), (done.returncode, done.stdout[-500:], done.stderr)
    assert not ok or last.startswith("rc ok"), last
    return [entry_of(line) for line in lines], last[3:].strip()


def each(at, *words):
    return admin(at, "each", *words)[0]


def kinds(entries):
    return [e["kind"] for e in entries]


def revoke(at, target, *force, key="job", record=BOB, ok=True):
    return admin(at, "revoke", key, target["token"], target.get("owner", "-"), record, *force, ok=ok)[1]


def freeze(at, *seconds, key="job", record=BOB):
    admin(at, "freeze", key, record, *seconds)


def thaw(at, key="job", ok=True):
    return admin(at, "thaw", key, ok=ok)[1]


@pytest.fixture
def shared(zk_server, path):
    """The lock that an application has chosen, as a place."""
    at = At(zk_server.url)
    at.words = ["-u", zk_server.url, "-O", f"path={path}"]
    at.job, at.server = path, zk_server
    return at


def everything(client, path):
    """All that there is below a path: data, numbers and times of each node."""
    found = {}
    with contextlib.suppress(NoNodeError):
        found[path] = client.get(path)
        for child in client.get_children(path):
            found.update(everything(client, f"{path.rstrip('/')}/{child}"))
    return found


def test_nothing_at_all(at):
    """Where there is nothing, nothing is held, and nothing is made."""
    assert each(at) == [] and each(at, "job") == []
    assert revoke(at, {"token": 7}, ok=False).startswith("not ours")
    assert revoke(at, {"token": 7}, "force", ok=False).startswith("not ours")
    assert thaw(at, ok=False).startswith("not ours")
    with at.server.client() as c:
        assert not c.exists(at.root)


@pytest.mark.parametrize("kind", KINDS)
def test_holder_and_waiters_are_told(dlock, at, kind):
    """In the queue's order, with what is needed to take the lock away."""
    began = time.time()
    limit = 2 if kind == "unit" else 0
    holder = dlock.hold(at, "job", *KINDS[kind])
    waiter = dlock.contend(at, "job", "-x").queued()
    last = dlock.contend(at, "job", "-x").queued()
    entries = each(at, "job")
    assert kinds(entries) == ["holder", "waiter", "waiter"]
    h = entries[0]
    assert h["token"] == holder.token and h["slot"] == (0 if limit else -1) and h["revoked"] == 0
    assert (h["lock"], h["limit"]) == (list(KINDS).index(kind), limit)
    assert json.loads(text_of(h["record"]))["command"] == "cat" and "dlock" not in h["record"] and "slot" not in h["record"]
    assert len(h["owner"]) == 32
    assert began - 1 <= h["since"] / S <= h["now"] / S <= time.time() + 60
    assert [w["position"] for w in entries[1:]] == [1, 2]
    assert all(w["lock"] == WRITER and w["since"] >= h["since"] for w in entries[1:])
    brief = each(at, "job", "brief")
    assert kinds(brief) == ["holder", "waiting"] and brief[1]["count"] == 2
    assert kinds(each(at)) == ["holder", "waiter", "waiter"]
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    assert last.held().finish().status == 0


def test_grant_of_one_who_waited(dlock, at):
    """Its hold is younger than its node; also when that has been renewed since."""
    holder = dlock.hold(at, "job", "-t", "9s")
    waiter = dlock.contend(at, "job", "-t", "9s").queued(1)
    joined = each(at, "job")[1]["since"]
    time.sleep(1.5)
    holder.finish()
    waiter.held()
    first = each(at, "job")[0]
    assert first["since"] >= joined + 1400 * MS
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        version = c.exists(own).version
        wait_for(lambda: c.exists(own).version >= version + 3, what="renewals")
    later = each(at, "job")[0]
    assert abs(later["since"] - first["since"]) <= 600 * MS and later["token"] == first["token"]
    waiter.finish()


def test_looking_changes_nothing(dlock, at):
    """Not a number of any node: no version, no counter, no time."""
    dlock.hold(at, "held", "-t", "12s")
    dlock.contend(at, "held", "-t", "12s").queued(1)
    dlock.hold(at, "unit", "--limit", "1", "-t", "12s")
    freeze(at, key="frozen")
    freeze(at, "0.001", key="thawed")
    assert dlock.run("run", *at.words, "-k", "done", "--once", "1", "--", "true").status == 0
    with at.server.client() as c:
        def still():
            """Renewals are not ours."""
            return {p: (d, s.czxid, s.pzxid, s.cversion, s.aversion) for p, (d, s) in everything(c, at.root).items()}

        before = still()
        for _ in range(3):
            assert {e["key"] for e in each(at)} >= {"held", "unit", "frozen"}
            for key in ("held", "unit", "frozen", "thawed", "done", "nothing"):
                each(at, key)
                each(at, key, "brief")
        assert still() == before
        for started in dlock.started:
            started.destroy()
        wait_for(lambda: not [s for _, s in everything(c, at.root).values() if 0 < s.ephemeralOwner], what="the sessions' ends")
        before = everything(c, at.root)
        each(at)
        each(at, "held")
        assert everything(c, at.root) == before


def test_what_the_last_run_of_a_job_was(dlock, at):
    assert dlock.run("run", *at.words, "-k", "job", "--once", "a/b", "--", "true").status == 0
    done = dlock.run("run", *at.words, "-k", "job", "--once", "c", "--", "sh", "-c", "exit 3")
    assert done.status == 3
    last, good = each(at, "job")
    assert (last["kind"], last["once"], last["status"]) == ("last", "c", 3)
    assert (good["kind"], text_of(good["once"]), good["status"]) == ("good", "a/b", 0)
    assert last["token"] > 0 and last["since"] <= last["until"]
    assert json.loads(text_of(last["record"]))["command"] == "sh"
    assert each(at) == []  # only with a key


KEYS = ["a/b", "ä ö", "zookeeper", "dlock-jobs", ".", "..", "%41", "{tag}", "x" * 512]


def test_every_key_is_found_again(dlock, own_zk):
    """At the top, too, where ZooKeeper has its own."""
    at = At(own_zk.url)
    for key in KEYS:
        dlock.hold(at, key, "-t", "60s")
    found = [e for e in each(at) if e["kind"] != "unknown"]
    assert sorted(text_of(e["key"]) for e in found) == sorted(KEYS)
    for key in KEYS:
        assert [text_of(e["key"]) for e in each(at, key)] == [key]


HOSTILE = [b"x" * 1000000, b"\x1b[2J\x1b]52;c;cm0=\x07" * 30, b"\xff\xfe", b"{" * 5000, b"", b"[1]", b"a\0b", b'{"dlock":7,"slot":-9}',
           b'{"revoke":7,"granted":-1}', b'{"dlock":"waited","granted":99999999999999999}', b'{"who":"\xe2\x80\xae","a":1,"a":2}']


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_records(at, data):
    """They are handed out, cut to size; nothing that they say moves an entry to another key."""
    with at.server.client() as c:
        for n, tail in enumerate(["-lock-", "-lock-", "-lock-"]):
            for key in ("one", "two"):
                c.create(f"{at.root}/{key}/_c_{n:08x}-0000-d000-0000-000000000000{tail}", data, ephemeral=True, sequence=True, makepath=True)
                c.create(f"{at.root}/{key}/_c_{n:08x}-0000-4000-0000-000000000000{tail}", data, ephemeral=True, sequence=True)
        entries = each(at)
        assert [e["key"] for e in entries] == ["one"] * 6 + ["two"] * 6
        assert {e["kind"] for e in entries} == {"holder", "waiter"}
        tokens = {c.exists(f"{at.root}/two/{n}").czxid for n in c.get_children(f"{at.root}/two")}
        assert {e["token"] for e in entries if e["key"] == "two"} == tokens
        assert all(len(e.get("record", "")) < 20000 for e in entries)


def test_nodes_that_are_no_locks(dlock, at):
    """They are told, one line a key, and stay as they are."""
    with at.server.client() as c:
        for name in ("brokers/ids", "brokers/topics", "empty", "a%2fb/c", "%0A/x", "%FF/x", "a b/x"):
            c.create(f"{at.root}/{name}", b"1", makepath=True)
        c.create(f"{at.root}/kazoo/0123__lock__0000000000", b"1", makepath=True, ephemeral=True)
        c.create(f"{at.root}/alone", b"1", ephemeral=True)
        before = everything(c, at.root)
        entries = each(at)
        assert everything(c, at.root) == before
    assert sorted((e["key"], e["kind"]) for e in entries) == [("alone", "unknown"), ("brokers", "unknown"), ("kazoo", "unknown")]
    assert "2 nodes" in next(e["what"] for e in entries if e["key"] == "brokers")
    assert "ephemeral" in next(e["what"] for e in entries if e["key"] == "alone")


def test_curators_users_are_foreign(curator, second_curator, shared):
    token = int(curator.do("acquire", shared.job)[2])
    second_curator.ask("acquire", shared.job)
    wait_for(lambda: len(each(shared)) == 2, what="Curator in the queue")
    h, w = each(shared, "any")
    assert (h["kind"], h["token"], h["lock"], w["kind"]) == ("holder", token, EXCLUSIVE, "waiter")
    for e in (h, w):
        assert "Curator" in e["foreign"] and "session 0x" in e["foreign"] and re.fullmatch(r"[0-9a-f.:]+", e["host"])
        assert "record" not in e and "owner" not in e
    assert h["since"] == -1 and w["since"] > 0
    assert [e["key"] for e in each(shared)] == [shared.job] * 2
    curator.do("release", shared.job)
    second_curator.answer()


def test_curators_semaphore_is_foreign(dlock, curator, second_curator, shared):
    curator.do("take", "2", shared.job, 10000)
    ours = hold(dlock, [*shared.words, "-k", "x", "--limit", "2"]).held()
    second_curator.ask("take", "2", shared.job, 60000)
    wait_for(lambda: "waiter" in kinds(each(shared, "any")), what="Curator in the queue")
    entries = [e for e in each(shared, "any") if e["kind"] == "holder"]
    assert all(e["lock"] == LIMIT for e in entries)
    assert [e["token"] for e in entries if "owner" in e] == [ours.token]
    assert all("semaphore" in e["foreign"] for e in entries if "owner" not in e)
    theirs = next(e for e in entries if "foreign" in e)
    assert revoke(shared, theirs, ok=False).startswith("unsafe")
    revoke(shared, theirs, "force")
    assert second_curator.answer() == ["held"]
    ours.finish()


# ---- taken away ----


@pytest.mark.parametrize("kind", KINDS)
def test_polite_break(dlock, at, kind):
    """The command is asked to stop, and told who wants that; the next one has the lock."""
    holder = dlock.hold(at, "job", *KINDS[kind])
    next_ = dlock.contend(at, "job", "-x").queued()
    h = each(at, "job")[0]
    revoke(at, h)
    assert each(at, "job")[0]["revoked"] == 1 or holder.wait()
    done = holder.wait()
    assert done.status == 79 and "bob@office" in done.stderr and "hangs" in done.stderr
    assert next_.held().token > h["token"]
    assert [e["revoked"] for e in each(at, "job")] == [0]
    assert next_.finish().status == 0


def test_mark_stays_while_the_command_stops(dlock, at, tmp_path):
    """Renewals go on, and whoever looks sees that it has been asked; a newer record counts."""
    ready = tmp_path / "ready"
    holder = dlock.contend(at, "job", "-t", "12s", "--grace", "4s",
                           command=("sh", "-c", "trap '' TERM; touch \"$0\"; while :; do sleep 0.1; done", ready)).held()
    wait_for(ready.exists, what="the trap")
    h = each(at, "job")[0]
    revoke(at, h)
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        marked = c.get(own)
        wait_for(lambda: c.exists(own) is None or c.exists(own).version > marked[1].version + 1, what="two renewals")
        again = each(at, "job")
        assert not again or (again[0]["revoked"] == 1 and again[0]["token"] == h["token"])
        assert json.loads(marked[0])["revoke"] == BOB
    if again:
        revoke(at, h, ok=False)
    assert holder.wait().status == 79


def test_force_takes_it_at_once(dlock, at):
    holder = dlock.hold(at, "job")
    next_ = dlock.contend(at, "job").queued(1)
    h = each(at, "job")[0]
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        wait_for(lambda: c.exists(own).version > 0, what="a renewal: it watches over its node by then")
    revoke(at, h, "force")
    assert next_.held().token > h["token"]
    done = holder.wait()
    assert done.status == 79 and "bob@office" in done.stderr
    assert next_.finish().status == 0


def test_the_end_of_its_node_is_heard_of_though_the_watch_was_lost(dlock, at, tapped):
    """With the connection, before the server had answered: it is asked for anew."""
    place, _, tap = tapped
    tap.lose((GET_CHILDREN,), 1)
    holder = dlock.hold(place, "job", "-v", "-t", "120s")  # renewed each ten seconds
    wait_for(lambda: tap.has_lost and "renew: ok" in holder.stderr(), what="a renewal through another connection")
    began = boottime()
    revoke(at, each(at, "job")[0], "force")
    done = holder.wait()
    assert done.status == 79 and "broken by bob@office" in done.stderr, done
    assert spent(began) < 5


def test_force_while_the_holder_has_no_connection(dlock, at, tapped):
    """It is told who has done it when it is back."""
    place, proxy, _ = tapped
    holder = dlock.hold(place, "job", "-v")
    wait_for(lambda: "renew: ok" in holder.stderr(), what="a renewal: it watches over its node by then")
    proxy.refuse()
    proxy.reset()
    revoke(at, each(at, "job")[0], "force")
    proxy.accept()
    done = holder.wait()
    assert done.status == 79 and "broken by bob@office" in done.stderr, done


def test_force_of_a_lock_whose_directory_goes(dlock, make_zk, make_proxy):
    """The server removes directories that are empty: who was away until then is told what is still known."""
    server = make_zk(["-Dznode.container.checkIntervalMs=20"])
    at, proxy = At(server.url), make_proxy(server.port)
    holder = dlock.hold(At(f"zk://127.0.0.1:{proxy.port}"), "job", "-v")
    wait_for(lambda: "renew: ok" in holder.stderr(), what="a renewal: it watches over its node by then")
    proxy.refuse()
    proxy.reset()
    revoke(at, each(at, "job")[0], "force")
    with server.client() as c:
        wait_for(lambda: c.exists("/job") is None, what="the end of the empty directory")
    proxy.accept()
    done = holder.wait()
    assert done.status == 79 and "our node was deleted" in done.stderr, done


@pytest.mark.parametrize("words", [(), ("--limit", "1"), ("--once", "a")], ids=["plain", "unit", "job"])
def test_force_before_a_release_whose_answer_is_lost(dlock, at, tapped, words):
    """Its node has gone when it asks again, but not by its own first question."""
    place, _, tap = tapped
    holder = dlock.contend(place, "job", *words, command=("cat",)).held()
    h = next(e for e in each(at, "job") if e["kind"] == "holder")
    operations = (MULTI,) if words else (DELETE,)
    tap.on(operations, lambda _: revoke(at, h, "force"))
    tap.lose(operations, 1)
    done = holder.finish()
    assert tap.has_acted and tap.has_lost
    assert done.status == 79 and "broken by bob@office" in done.stderr, done
    if "--once" in words:
        assert dlock.run("run", *at.words, "-k", "job", *words, "--", "echo", "ran").stdout == "ran\n"


def test_force_of_two_in_a_row_before_a_release_whose_answer_is_lost(dlock, at, tapped):
    """The first of them has not asked yet who did it when the next one has lost the lock as well."""
    place, _, tap = tapped
    holder, late = dlock.contend(place, "job", command=("cat",)).held(), []

    def force_both(_):
        if not late:
            revoke(at, next(e for e in each(at, "job") if e["kind"] == "holder"), "force")
            late.append(dlock.hold(at, "job"))
            revoke(at, next(e for e in each(at, "job") if e["kind"] == "holder"), "force")

    tap.on((DELETE,), force_both)
    tap.lose((DELETE,), 1)
    done = holder.finish()
    assert tap.has_acted and tap.has_lost
    assert done.status == 79 and "broken by bob@office" in done.stderr, done
    assert late[0].wait().status == 79


@pytest.mark.parametrize("force", [True, False], ids=["forced", "plain"])
def test_a_release_whose_answer_is_lost_is_not_confirmed(dlock, at, tapped, force):
    """Without a note of force, nobody knows which of the two has removed the node."""
    place, _, tap = tapped
    with at.server.client() as c:
        c.create(at.job, b"an application's own", makepath=True)
        holder = dlock.contend(place, "job", command=("cat",)).held()
        h = next(e for e in each(at, "job") if e["kind"] == "holder")
        if force:
            tap.on((DELETE,), lambda _: revoke(at, h, "force"))
        tap.lose((DELETE,), 1)
        done = holder.finish()
    assert tap.has_lost and (done.status, "release was not confirmed" in done.stderr) == (0, True), done
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0


@pytest.mark.parametrize("data", [b"", b"an application's own", b'{"forced":1,"by":"eve"}'], ids=range(3))
def test_note_of_who_has_forced_it(dlock, at, data):
    """It is kept in the lock's directory, if nothing of others stands there, and meant for one grant."""
    with at.server.client() as c:
        c.create(at.job, data, makepath=True)
        holder = dlock.hold(at, "job")
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        wait_for(lambda: c.exists(own).version > 0, what="a renewal")
        token, = (h["token"] for h in each(at, "job"))
        revoke(at, {"token": token}, "force")
        ours = data != b"an application's own"
        done = holder.wait()
        assert done.status == 79 and ("bob@office" in done.stderr) == ours and "eve" not in done.stderr
        earlier = {"earlier": [json.loads(data)]} if b"eve" in data else {}
        assert (json.loads(c.get(at.job)[0]) == {"forced": token, "by": BOB, **earlier}) if ours else c.get(at.job)[0] == data
        second = dlock.hold(at, "job")
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        wait_for(lambda: c.exists(own).version > 0, what="a renewal")
        c.delete(own)
        done = second.wait()
        assert done.status == 79 and "bob" not in done.stderr


def test_force_gives_back_a_whole_unit(dlock, at):
    """Node, lease and slot."""
    holder = dlock.hold(at, "job", "--limit", "1")
    h, = each(at, "job")
    revoke(at, h, "force")
    with at.server.client() as c:
        assert [c.get_children(f"{at.job}/{part}") for part in ("leases", "slots")] == [[], []]
    assert holder.wait().status == 79
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--limit", "1", "--", "true").status == 0


@pytest.mark.parametrize("force", [(), ("force",)], ids=["polite", "force"])
def test_only_that_grant(dlock, at, force):
    """Not a waiter, not another's, not one with half of it right, and not the next one."""
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at, "job").queued(1)
    h, w = each(at, "job")
    for wrong in ({"token": w["token"]}, w, {"token": h["token"] + 1, "owner": h["owner"]}, {"token": h["token"], "owner": w["owner"]},
                  {"token": 0, "owner": "0" * 32}, {"token": 0}, {"token": h["token"], "owner": "x"}, {"token": h["token"], "owner": h["owner"] + "0"}):
        assert revoke(at, wrong, *force, ok=False).startswith("not ours")
    assert holder.finish().status == 0
    waiter.held()
    assert revoke(at, h, *force, ok=False).startswith("not ours")
    assert [e["revoked"] for e in each(at, "job")] == [0]
    revoke(at, {"token": 0, "owner": w["owner"]}, *force)  # the owner alone says it
    assert waiter.wait().status == 79


@pytest.mark.parametrize("operation", [SET_DATA, MULTI], ids=["polite", "force"])
def test_holder_that_ends_meanwhile(dlock, at, tapped, operation):
    """Between the look and the deed its node goes, and the next one has its turn: nothing is done to that."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at, "job").queued(1)
    h = each(at, "job")[0]

    def end(_):
        holder.finish()
        waiter.held()

    tap.on((operation,), end)
    force = ("force",) if operation == MULTI else ()
    assert revoke(place, h, *force, ok=False).startswith("not ours")
    assert tap.has_acted
    assert [(e["token"], e["revoked"]) for e in each(at, "job")] == [(waiter.token, 0)]
    assert waiter.finish().status == 0


def test_renewal_meanwhile(dlock, at, tapped):
    """The holder writes between our read and our write: it is read anew, and marked."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job")
    h = each(at, "job")[0]
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        tap.on((SET_DATA,), lambda _: c.set(own, c.get(own)[0]))
        revoke(place, h)
    assert tap.asked[SET_DATA] == 2
    assert "bob@office" in holder.wait().stderr


@pytest.mark.parametrize("operation", [SET_DATA, MULTI], ids=["polite", "force"])
def test_lost_answer(dlock, at, tapped, operation):
    """It is asked again, and that it had been done is no failure."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job")
    h = each(at, "job")[0]
    tap.lose((operation,), 1)
    revoke(place, h, *(("force",) if operation == MULTI else ()))
    assert tap.has_lost and holder.wait().status == 79


def test_lost_answer_of_one_who_has_gone_by_then(dlock, at, tapped):
    """The holder has done as it was asked before it can be asked again: that is no failure either."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job", *LIVING_LEASE)
    h = each(at, "job")[0]
    tap.lose((SET_DATA,), 1)
    tap.on((SYNC,), lambda _: tap.has_lost and holder.wait().status == 79)
    revoke(place, h)
    assert tap.has_lost and tap.has_acted and "bob@office" in holder.wait().stderr


@pytest.mark.parametrize("lost", ["nothing", "request", "answer"])
def test_a_waiter_that_is_asked_goes_back_to_the_end(dlock, at, tapped, lost):
    """By what it deletes, also if that is not heard of, or not known to have been heard of."""
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(place, "job", "-t", "60s").queued(1)
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[1]}"
        wait_for(lambda: c.exists(own).version, what="its word")
        asked = c.exists(own).czxid
        c.set(own, b"__REVOKE__")
    if lost == "request":
        tap.on((DELETE,), lambda _: proxy.reset())
    elif lost == "answer":
        tap.lose((DELETE,), 1)
    assert holder.finish().status == 0
    assert waiter.held().token > asked
    assert (lost != "request" or tap.has_acted) and (lost != "answer" or tap.has_lost)
    assert waiter.finish().status == 0


def test_curator_is_asked_as_its_revoker_asks(curator, shared):
    """One that listens gives it up; one that does not still has it, and is told as asked."""
    curator.do("revocable", shared.job)
    h, = each(shared, "any")
    revoke(shared, h)
    wait_for(lambda: not each(shared, "any"), what="the end of its hold")
    curator.do("acquire", shared.job)
    h, = each(shared, "any")
    revoke(shared, h)
    assert each(shared, "any")[0]["revoked"] == 1
    revoke(shared, h, "force")
    assert each(shared, "any") == []


def test_dlock_is_asked_by_curators_revoker(dlock, curator, kazoo, shared, words):
    holder = hold(dlock, words).held()
    curator.do("revoke", f"{shared.job}/{children(kazoo, shared.job)[0]}")
    done = holder.wait()
    assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1 and "asked" in done.stderr


# ---- frozen ----


@pytest.mark.parametrize("kind", KINDS)
def test_freeze_stops_newcomers_and_waiters(dlock, at, kind):
    """Also one that stands at the head already; the holder goes on.  Thaw wakes them."""
    holder = dlock.hold(at, "job", "-x")
    waiter = dlock.contend(at, "job", *KINDS[kind]).queued(1)
    freeze(at)
    entries = each(at, "job")
    assert kinds(entries) == ["holder", "waiter", "freeze"]
    assert json.loads(text_of(entries[2]["record"])) == json.loads(BOB) and entries[2]["until"] == -1
    assert holder.finish().status == 0
    busy = dlock.run("run", *at.words, "-k", "job", "-n", *KINDS[kind], "--", "true")
    assert busy.status == 75 and "bob@office" in busy.stderr and "frozen" in busy.stderr
    newcomer = dlock.contend(at, "job", *KINDS[kind]).queued()
    assert waiter.event("waiting", frozen=True)
    assert newcomer.event("waiting", frozen=True)
    wait_for(lambda: kinds(each(at, "job")) == ["waiter", "waiter", "freeze"], what="two waiters")
    assert not waiter.running and not newcomer.running
    thaw(at)
    began = boottime()
    waiter.held()
    if kind in ("reader", "unit"):
        newcomer.held()
    assert spent(began) < 10
    assert waiter.finish().status == 0 and newcomer.held().finish().status == 0
    with at.server.client() as c:
        assert not [n for n in c.get_children(at.job) if "freeze" in n or n == "locks" and kind != "unit"]
    assert thaw(at, ok=False).startswith("not ours")


def test_freeze_of_a_free_key(dlock, at):
    freeze(at)
    assert kinds(each(at)) == ["freeze"]
    waiters = [dlock.contend(at, "job").queued() for _ in range(3)]
    wait_for(lambda: [e.get("position") for e in each(at, "job")] == [1, 2, 3, 0], what="their places")
    waiters[0].event("waiting", position=1, frozen=True)
    waiters[2].event("waiting", position=3, frozen=True)
    time.sleep(7)  # longer than one who does not take his turn is given
    assert kinds(each(at, "job")) == ["waiter"] * 3 + ["freeze"]
    thaw(at)
    for waiter in waiters:
        assert waiter.held().finish().status == 0


def test_freeze_with_an_end(dlock, at):
    """The server's clock counts; who waits removes what has ended."""
    began = boottime()
    freeze(at, 4)
    f, = each(at, "job")
    assert f["until"] - f["since"] == 4 * S
    waiter = dlock.contend(at, "job").queued(1)
    with at.server.client() as c:
        waiter.held()
        own, = wait_for(lambda: [n for n in c.get_children(at.job) if "_c_" in n], what="its node")
        taken = json.loads(c.get(f"{at.job}/{own}")[0]).get("granted", c.exists(f"{at.job}/{own}").mtime)
        assert 0 <= taken - f["since"] / MS - 4000 < 3000 + 1000 * stalled(began)
        assert c.get_children(at.job) == [own]
    assert waiter.finish().status == 0


def test_freeze_that_has_ended_is_none(dlock, at):
    freeze(at, "0.05")
    time.sleep(0.1)
    assert each(at) == [] and each(at, "job") == []
    assert thaw(at, ok=False).startswith("not ours")
    freeze(at, "0.05")
    time.sleep(0.1)
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0
    freeze(at, "0.05")
    freeze(at)
    time.sleep(0.1)
    assert [e["until"] for e in each(at, "job")] == [-1]
    freeze(at, "0.05", record='{"who":"eve"}')
    assert not [e for e in each(at, "job") if "eve" not in e["record"]]  # the second replaces the first
    time.sleep(0.1)
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0


@pytest.mark.parametrize("recipe", ["mutex", "read", "write", "3"])
def test_curator_respects_a_freeze(dlock, curator, second_curator, kazoo, shared, recipe):
    """Also a user of it that waited already; thaw wakes it, and it has the lock."""
    def ask(who, ms):
        who.ask(*(("try", shared.job, ms) if recipe == "mutex" else ("take", recipe, shared.job, ms)))

    place = shared.job + ("/locks" if recipe == "3" else "")
    holder = None
    if recipe != "3":  # see dlock-zk(7) for those who are next in line for a semaphore
        holder = hold(dlock, [*shared.words, "-k", "x", *(["-x"] if recipe in ("read", "write") else [])]).held()
        ask(curator, 90000)
        wait_for(lambda: len(children(kazoo, place)) == 2, what="Curator in the queue")
    freeze(shared)
    if holder:
        holder.finish()
    else:
        ask(curator, 90000)
        wait_for(lambda: len(children(kazoo, place)) == 2, what="Curator in the queue")
    ask(second_curator, 1500)
    assert second_curator.answer() == ["busy"]
    assert select.select([curator.process.stdout], [], [], 0)[0] == []  # nor has the first one got it
    thaw(shared)
    assert curator.answer()[0] == "held"


def test_dlock_ends_a_freeze_for_curator(dlock, curator, kazoo, shared):
    """Which knows of no end: a dlock that waits behind removes what has ended."""
    freeze(shared, 3)
    curator.ask("acquire", shared.job)
    wait_for(lambda: "waiter" in kinds(each(shared, "x")) or "holder" in kinds(each(shared, "x")), what="Curator in the queue")
    behind = hold(dlock, [*shared.words, "-k", "x"]).queued()
    assert curator.answer()[0] == "held"
    curator.do("release", shared.job)
    assert behind.held().finish().status == 0


def test_freeze_of_units_that_wait_for_curators(dlock, curator, kazoo, shared):
    """One that has had its turn among dlocks, and waits for a lease."""
    curator.do("take", "1", shared.job, 10000)
    waiter = hold(dlock, [*shared.words, "-k", "x", "--limit", "1"]).queued()
    wait_for(lambda: children(kazoo, shared.job + "/locks"), what="its node in locks")
    freeze(shared)
    curator.do("give", "1", shared.job)
    waiter.event("waiting", frozen=True)
    time.sleep(1)
    assert not waiter.running
    assert sorted(kinds(each(shared, "x"))) == ["freeze", "waiter"]
    thaw(shared)
    assert waiter.held().finish().status == 0


def test_a_unit_that_was_free_when_it_was_looked_at_is_frozen_when_it_is_taken(dlock, at, tapped):
    """The freeze comes between the two: whoever has looked looks again."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job", "--limit", "1")
    waiter = dlock.contend(place, "job", "-t", "60s", "--limit", "1").queued(1)
    wait_for(lambda: tap.asked[SET_DATA], what="its word")
    tap.on((MULTI,), lambda _: freeze(at))
    assert holder.finish().status == 0
    waiter.event("waiting", frozen=True)
    assert tap.has_acted and not waiter.running
    assert kinds(each(at, "job")) == ["waiter", "freeze"]
    thaw(at)
    assert waiter.held().finish().status == 0


MALLORY = '{"who":"mallory@laptop"}'


class Frozen:
    """Freezes the key at some moment of a client.

    told     who stands there then: what whoever freezes it is told
    """

    def __init__(self, at, moments, moment):
        self.at, self.told = at, []
        moments.at(*moment, self.act)

    def act(self):
        freeze(self.at, record=MALLORY)
        self.told += kinds(each(self.at, "job"))

    def outcome(self, client):
        """Whether it has begun after all.  Nobody may who was not told as a holder."""
        wait_for(lambda: self.told, what="the moment")
        assert self.told.pop() == "freeze"
        wait_for(lambda: client.events("started") or any("mallory" in str(e) for e in client.events("waiting")), what="what became of it")
        began = bool(client.events("started"))
        assert not began or self.told == ["holder"]
        if began:
            assert client.finish().status == 0
            thaw(self.at)
            return True
        wait_for(lambda: kinds(each(self.at, "job")) == ["waiter", "freeze"], what="its return to those who wait")
        assert not client.running
        thaw(self.at)
        assert client.held().finish().status == 0
        return False


QUEUED = [k for k in KINDS if k != "unit"]
# a unit is taken by a transaction that no freeze may come before


@pytest.mark.parametrize("moment, begins", [(("asks", SET_DATA), False), (("asks", GET_CHILDREN2), False), (("heard", GET_CHILDREN2), True)],
                         ids=["before-its-write", "before-its-list", "after-its-list"])
@pytest.mark.parametrize("kind", QUEUED)
def test_a_waiter_that_is_slow_to_take_its_turn(dlock, at, make_proxy, kind, moment, begins):
    """It stops when the one before it has gone, and goes on when the key is frozen."""
    proxy = make_proxy(at.server.port)
    moments = Moments(proxy)
    holder = dlock.hold(at, "job", "-x")
    waiter = dlock.contend(at.through(proxy), "job", "-t", "60s", *KINDS[kind]).queued(1)
    wait_for(lambda: moments.asked[SET_DATA], what="its word")
    frozen = Frozen(at, moments, moment)
    assert holder.finish().status == 0
    assert frozen.outcome(waiter) == begins


def test_a_waiter_that_nobody_has_called_is_slow(dlock, at, make_proxy):
    """It sees by itself that its turn has come: an earlier freeze has ended."""
    proxy = make_proxy(at.server.port)
    moments = Moments(proxy)
    freeze(at, 3)
    waiter = dlock.contend(at.through(proxy), "job", "-t", "60s").queued(1)
    wait_for(lambda: moments.asked[SET_DATA], what="its word")
    assert not Frozen(at, moments, ("asks", SET_DATA)).outcome(waiter)


@pytest.mark.parametrize("moment, begins", [(("asks", CREATE2), False), (("asks", GET_CHILDREN2), False), (("heard", GET_CHILDREN2), True)],
                         ids=["before-its-node", "before-its-list", "after-its-list"])
@pytest.mark.parametrize("kind", QUEUED)
def test_a_newcomer_that_is_slow(dlock, at, make_proxy, kind, moment, begins):
    """The same where nobody is before it."""
    assert dlock.run("run", *at.words, "-k", "job", "--", "true").status == 0
    proxy = make_proxy(at.server.port)
    frozen = Frozen(at, Moments(proxy), moment)
    newcomer = dlock.contend(at.through(proxy), "job", "-t", "60s", *KINDS[kind])
    assert frozen.outcome(newcomer) == begins


def test_freeze_costs_the_crowd_nothing(dlock, at, tapped):
    """Those far behind ask for nothing that they would not ask for anyway; one of the others is woken."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job")
    near = [dlock.contend(at, "job", command=("true",)).queued(n + 1) for n in range(12)]
    far = dlock.contend(place, "job", "-t", "60s", command=("true",)).queued(13)
    wait_for(lambda: tap.asked[SET_DATA], what="its word")
    before = tap.asked.copy()
    freeze(at)
    time.sleep(3)
    asked = tap.asked - before
    assert not any(asked[op] for op in LISTS) and not asked[GET_DATA]
    assert holder.finish().status == 0
    time.sleep(1)
    assert not any(w.running for w in near)
    thaw(at)
    assert [w.wait().status for w in [*near, far]] == [0] * 13


def test_the_last_of_many_hears_of_the_thaw(dlock, at):
    """It has heard of the freeze when it came, and lists the queue once in five minutes."""
    freeze(at)
    with at.server.client() as c:
        for _ in range(300):
            c.create(f"{at.job}/_c_00000000-0000-4000-8000-000000000000-lock-", b"somebody", ephemeral=True, sequence=True)
        waiter = dlock.contend(at, "job", "-t", "9s").queued()
        waiter.event("waiting", frozen=True)
        thaw(at)
        wait_for(lambda: not waiter.events("waiting")[-1].get("frozen"), what="its hearing of the thaw")
        assert "bob" not in str(waiter.events("waiting")[-1])
        assert not waiter.running


def test_dead_waiter_at_the_head_after_thaw(dlock, at):
    """It is not removed while the key is frozen, and no later than ever when it is not."""
    freeze(at)
    first = dlock.contend(at, "job", "-t", "60s").queued()
    wait_for(lambda: kinds(each(at, "job")) == ["waiter", "freeze"], what="its node")
    next_ = dlock.contend(at, "job", "-t", "60s").queued()
    first.destroy()
    time.sleep(6)
    assert kinds(each(at, "job")) == ["waiter", "waiter", "freeze"]
    thaw(at)
    assert next_.held().finish().status == 0


def test_lost_answers_of_freeze_and_thaw(at, tapped):
    place, _, tap = tapped
    tap.lose((MULTI,), 1)
    freeze(place)
    assert tap.has_lost
    assert kinds(each(at, "job")) == ["freeze"]
    tap.lose((DELETE,), 1)
    thaw(place)
    tap.lose((DELETE,), 2)
    assert each(at, "job") == []


def test_half_a_freeze(dlock, at):
    """Somebody has deleted the node that they saw: the one for semaphores is thawed as well."""
    freeze(at)
    with at.server.client() as c:
        c.delete(f"{at.job}/{next(n for n in c.get_children(at.job) if 'freeze' in n)}")
        assert dlock.run("run", *at.words, "-k", "job", "-n", "--limit", "1", "--", "true").status == 75
    thaw(at)
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--limit", "1", "--", "true").status == 0


def test_frozen_across_a_restart(dlock, own_zk):
    at = At(own_zk.url + "/locks")
    freeze(at)
    own_zk.restart()
    assert kinds(each(at)) == ["freeze"]
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 75
    thaw(at)
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0


# ---- permissions ----


def test_who_may_not(dlock, zk_server):
    """Another user, or nobody: said with advice, and nothing has happened."""
    login = At(f"{zk_server.url.replace('zk://', 'zk://ann:secret@')}/private")
    nobody = f"{zk_server.url}/private"
    holder = dlock.hold(login, "job")
    h, = each(login, "job")
    for order in (("each", "job"), ("revoke", "job", h["token"], "-", BOB), ("revoke", "job", h["token"], "-", BOB, "force"),
                  ("freeze", "job", BOB), ("thaw", "job")):
        said = admin(nobody, *order, ok=False)[1]
        assert said.startswith("denied") and ("ACL" in said) and "secret" not in said
    assert [(e["kind"], e["revoked"]) for e in each(login, "job")] == [("holder", 0)]
    assert holder.finish().status == 0


def test_who_may_look_but_not_touch(dlock, at):
    with at.server.client() as c:
        c.add_auth("digest", "root:x")
        read = [make_digest_acl("root", "x", all=True), make_acl("world", "anyone", read=True)]
        c.ensure_path(at.root)
        c.create(at.job, acl=read)
        c.create(f"{at.job}/_c_00000000-0000-d000-0000-000000000000-lock-", b'{"who":"ann"}', acl=read, ephemeral=True, sequence=True)
        h, = each(at, "job")
        for order in (("revoke", "job", h["token"], "-", BOB), ("revoke", "job", h["token"], "-", BOB, "force"), ("freeze", "job", BOB)):
            said = admin(at, *order, ok=False)[1]
            assert said.startswith("denied") and "ACL" in said, said
        assert [e["kind"] for e in each(at)] == ["holder"]


# What is there, the words, the rights on the lock's directory that they cannot do without, and the status with them.
TYPED = {
    "run": ("", ("run", "-n", "-k", "job", "--", "true"), ["read", "create"], 0),
    "status": ("", ("status", "-k", "job"), ["read"], 1),
    "wait": ("", ("wait", "-n", "-k", "job"), ["read"], 0),
    "freeze": ("", ("freeze", "-k", "job"), ["read", "create"], 0),
    "thaw": ("frozen", ("thaw", "-y", "-k", "job"), ["read", "delete"], 0),
    "break": ("held", ("break", "-y", "-w", "0", "-k", "job"), ["read"], 75),
    "break --force": ("held", ("break", "-y", "--force", "-k", "job"), ["read", "delete"], 0),
}


@pytest.mark.parametrize("scene", TYPED)
def test_the_rights_of_the_manual_are_needed_and_suffice(dlock, zk_server, scene):
    """read, create and delete on the directory; the holder's own node is open."""
    there, words, rights, status = TYPED[scene]
    path = f"/rights-{scene.replace(' ', '')}"

    def grant(*some):
        acl = [make_digest_acl("root", "x", all=True), make_digest_acl("dlock", "password", **dict.fromkeys(some, True))]
        if c.exists(path):
            c.set_acls(path, acl)
        else:
            c.create(path, acl=acl)

    def place(login):
        return ["-u", zk_server.url.replace("zk://", f"zk://{login}@"), "-O", f"path={path}", "-O", "acl=open"]

    with zk_server.client() as c:
        c.add_auth("digest", "root:x")
        grant()
        if there == "held":
            dlock.start("run", *place("root:x"), "-k", "job", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
        elif there == "frozen":
            assert dlock.run("freeze", *place("root:x"), "-k", "job").status == 0
        told = {}
        for right in rights:
            grant(*({"read", "create", "delete"} - {right}))
            done = dlock.run(words[0], *place("dlock:password"), *words[1:])
            told[right] = (done.status, "ACL" in done.stderr)
        assert told == dict.fromkeys(rights, (77, True))
        grant("read", "create", "delete")
        assert dlock.run(words[0], *place("dlock:password"), *words[1:]).status == status


def test_one_that_may_not_be_read_does_not_hide_the_others(dlock, at):
    dlock.hold(at, "b")
    with at.server.client() as c:
        c.add_auth("digest", "root:x")
        c.create(f"{at.root}/a", acl=[make_digest_acl("root", "x", all=True)])
    entries = each(at)
    assert [(e["key"], e["kind"]) for e in entries] == [("a", "unknown"), ("b", "holder")]


# ---- many ----


def test_ten_thousand_locks(own_zk):
    """The first is told within a second, in little memory."""
    n = size(2000, 10000)
    with own_zk.client() as c:
        c.ensure_path("/locks")
        made = [c.create_async(f"/locks/k{i}", b"") for i in range(n)]
        [m.get() for m in made]
        record = json.dumps({"who": "ann", "host": "h", "pid": 1, "command": "sleep"}).encode()
        made = [c.create_async(f"/locks/k{i}/_c_{i:08x}-0000-d000-0000-000000000000-lock-", record, ephemeral=True, sequence=True)
                for i in range(n)]
        [m.get() for m in made]
        began = boottime()
        process = subprocess.Popen(["/usr/bin/time", "-f", "%M", ADMIN, "zk", own_zk.url + "/locks", "each"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = process.stdout.readline()
        soon = spent(began)
        rest, said = process.stdout.read(), process.stderr.read()
        process.wait()
        took = spent(began)
        print(f"{n} locks: the first after {soon:.3f} s, all after {took:.3f} s, {said.strip()} KiB")
        assert first.startswith("holder")
        assert rest.count("holder\t") == n - 1 and rest.endswith("rc ok \n")
        assert soon < 1 and int(said) < 16 * 1024
