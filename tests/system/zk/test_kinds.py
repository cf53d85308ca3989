# Goal of these tests: on ZooKeeper readers, writers and holders of one of N units exclude
# each other as they must, whatever their nodes look like; they are served in order; and what a job
# has done is remembered with the release that ends it, beside the lock's own directory.

import contextlib
import json
import os
import random
import signal
import subprocess
import time

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl, make_digest_acl

from faults import LIVING_LEASE, PATIENT, assert_refused
from support import DLOCK, PATIENCE, boottime, children_of, kill, spent, wait_for
from zk import CLOSE, CREATE, CREATE2, DELETE, GET_CHILDREN2, LISTS, MULTI, SET_DATA, own

KINDS = {"plain": (), "writer": ("-x",), "reader": ("-s",), "unit": ("--limit", "3")}


def run(dlock, at, *options, command=("true",)):
    return dlock.run("run", *at.words, "-k", "job", *options, "--", *command)


def queued(dlock, at, *kind, command=("cat",)):
    """Someone who wants it; returns when its node is there."""
    with at.server.client() as c:
        before = set(tickets(c, at))
        result = dlock.contend(at, "job", *kind, command=command)
        wait_for(lambda: len(set(tickets(c, at)) - before) == 1, what="a node")
    return result


def children(client, path):
    """None where there is no such node: a server removes containers that stay empty."""
    with contextlib.suppress(NoNodeError):
        return client.get_children(path)
    return []


def tickets(client, at):
    return sorted((name for name in children(client, at.job) if name.startswith("_c_")), key=lambda name: name[-10:])


def parts(client, at):
    return [children(client, f"{at.job}/{part}") for part in ("locks", "leases", "slots")]


# ---- what stands there ----


@pytest.mark.parametrize("kind, tag", [("plain", "-lock-"), ("writer", "-__WRIT__"), ("reader", "-__READ__"),
                                       ("unit", "-3-unit-")])
def test_names_are_those_of_curators_recipes(dlock, at, kind, tag):
    holder = dlock.hold(at, "job", *KINDS[kind])
    with at.server.client() as c:
        name, = tickets(c, at)
        assert name[:3] == "_c_" and name[17] == "d" and name[39:-10] == tag
        assert c.exists(f"{at.job}/{name}").czxid == holder.token
        if kind == "unit":
            (locks, (lease,), slots) = parts(c, at)
            assert (locks, slots) == ([], ["0"]) and lease.startswith(name[:39] + "-lease-")
            assert json.loads(c.get(f"{at.job}/{name}")[0])["slot"] == 0
        assert holder.finish().status == 0
        assert tickets(c, at) == []
        if kind == "unit":
            assert parts(c, at) == [[], [], []]


@pytest.mark.parametrize("kind", ["plain", "writer", "reader"])
def test_a_lock_costs_no_more_than_before_there_were_kinds(dlock, at, tapped, kind):
    """Make a node and list, delete it."""
    place, _, tap = tapped
    with at.server.client() as c:
        c.ensure_path(at.job)  # or the server might remove it between the two
    for n in range(10):
        tap.asked.clear()
        assert run(dlock, place, *KINDS[kind]).status == 0
        wait_for(lambda: tap.asked[CLOSE] == 1, what="the farewell")
        if n and not tap.asked[SET_DATA]:  # one that lasts for half a second renews its lease
            break
    assert sum(tap.asked[o] for o in (CREATE, CREATE2)) == 1
    assert (tap.asked[GET_CHILDREN2], tap.asked[DELETE], tap.asked[MULTI]) == (1, 1, 0)
    assert sum(tap.asked.values()) == 5  # and the server's kind, and the end of the session


# ---- who excludes whom ----


def may_meet(a, b):
    return a == b and a in ("reader", "unit")


def may_mix(a, b):
    return {a, b} != {"reader", "unit"}


@pytest.mark.parametrize("held", KINDS)
@pytest.mark.parametrize("wanted", KINDS)
def test_every_kind_excludes_what_it_must(dlock, at, held, wanted):
    holder = dlock.hold(at, "job", *KINDS[held])
    done = run(dlock, at, *KINDS[wanted], "-n")
    if not may_mix(held, wanted):
        assert_refused(done, 76, "-s", "--limit 3")
        assert done.status == run(dlock, at, *KINDS[wanted]).status
    else:
        assert done.status == (0 if may_meet(held, wanted) else 75), done
    assert holder.finish().status == 0
    assert run(dlock, at, *KINDS[wanted], "-n").status == 0


def test_two_limits_do_not_mix(dlock, at):
    holder = dlock.hold(at, "job", "--limit", "3")
    assert_refused(run(dlock, at, "--limit", "5"), 76, "--limit 3", "--limit 5")
    writer = queued(dlock, at, "-x")
    assert_refused(run(dlock, at, "--limit", "5"), 76, "--limit 3", "--limit 5")
    assert holder.finish().status == 0
    waiter = queued(dlock, at, "--limit", "5")
    assert_refused(run(dlock, at, "-s", "-n"), 76, "--limit 5", "-s")
    assert writer.held().finish().status == 0
    assert waiter.held().finish().status == 0


def test_a_writer_is_not_overtaken_and_lets_all_readers_in(dlock, at):
    readers = [dlock.hold(at, "job", "-s") for _ in range(2)]
    writer = queued(dlock, at)
    later = [queued(dlock, at, "-s") for _ in range(4)]
    last = queued(dlock, at, "-x")
    assert run(dlock, at, "-s", "-n").status == 75
    readers.pop().finish()
    assert not writer.running
    readers.pop().finish()
    assert writer.held() and not any(r.running for r in later)
    assert writer.finish().status == 0
    tokens = [r.held().token for r in later]
    assert not last.running and tokens == sorted(tokens) and writer.token < tokens[0]
    for r in later:
        assert r.finish().status == 0
    assert last.held().token > tokens[-1]
    assert last.finish().status == 0


def test_readers_behind_a_writer_are_told_by_its_release(dlock, tapped, at):
    """They have all watched the writer: nothing else ends, and nobody waits for a beat."""
    place, _, tap = tapped
    writer = dlock.hold(at, "job", "-x")
    readers = [dlock.contend(place, "job", "-s").queued() for _ in range(3)]
    with at.server.client() as c:
        node = f"{at.job}/{tickets(c, at)[0]}"
    assert writer.finish().status == 0
    for r in readers:
        r.held()
    assert [ended for ended, _ in tap.ended].count(node) >= 3


SCRIPT = """
import fcntl, os, sys, time
path, kind, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
def note(word):
    with open(path, "ab", 0) as f:
        f.write(f"{word} {os.getpid()} {kind} {os.environ['DLOCK_TOKEN']} {os.environ.get('DLOCK_SLOT', '')}\\n".encode())
note("in")
time.sleep(seconds)
note("out")
"""


def history(log):
    """(word, pid, kind, token, slot) of each line."""
    with open(log, encoding="ascii") as f:
        return [(line.rstrip("\n").split(" ") + [""])[:5] for line in f]


def check(lines, limit):
    """Nobody met whom it must not; slots were unique; tokens grew in the order of the grants.  Returns the greatest crowd."""
    inside, most = {}, 0
    for word, pid, kind, _, slot in lines:
        if word == "out":
            del inside[pid]
            continue
        for other, _ in inside.values():
            assert may_meet(kind, other), f"{kind} beside {other}"
        if kind == "unit":
            taken = {s for _, s in inside.values()}
            assert slot not in taken and 0 <= int(slot) < limit
        inside[pid] = (kind, slot)
        most = max(most, len(inside))
        assert kind != "unit" or len(inside) <= limit
    return most


@pytest.mark.parametrize("kinds", [("plain", "writer", "reader"), ("plain", "writer", "unit")], ids=["readers", "units"])
def test_mixtures_exclude_and_are_first_come_first_served(dlock, at, tmp_path, kinds):
    log, rng = tmp_path / "log", random.Random(5)
    holder = dlock.hold(at, "job")
    script = ("/usr/bin/python3", "-S", "-c", SCRIPT, log)
    wanted = [rng.choice((*kinds, kinds[-1])) for _ in range(24)]
    all_ = []
    for kind in wanted:
        all_.append(queued(dlock, at, *KINDS[kind], command=(*script, kind, "0.05")))
    assert holder.finish().status == 0
    for started in all_:
        assert started.wait().status == 0
    lines = history(log)
    check(lines, 3)
    tokens = [int(line[3]) for line in lines if line[0] == "in" and line[2] in ("plain", "writer")]
    assert tokens == sorted(tokens)
    # nobody of a group was granted before all those of the groups before
    groups, order = [], {s.token: i for i, s in enumerate(all_)}
    for i, kind in enumerate(wanted):
        if not groups or not may_meet(kind, wanted[i - 1]):
            groups.append(set())
        groups[-1].add(i)
    ins = [order[int(line[3])] for line in lines if line[0] == "in"]
    for group in groups:
        assert set(ins[:len(group)]) == group
        ins = ins[len(group):]


def test_a_writer_is_served_under_a_stream_of_readers(dlock, at):
    loop = 'while [ ! -e "$0" ]; do "$@" || exit; done'
    stop = os.path.join(dlock.directory, "stop")
    streams = [subprocess.Popen(["sh", "-c", loop, stop, DLOCK, "run", *at.words, "-k", "job", "-s", "--", "sleep", "0.3"],
                                env=dlock.env) for _ in range(3)]
    try:
        with at.server.client() as c:
            wait_for(lambda: len(tickets(c, at)) >= 2, what="readers")
        for _ in range(3):
            assert run(dlock, at).status == 0
    finally:
        with open(stop, "w", encoding="ascii"):
            pass
        assert [s.wait(PATIENCE) for s in streams] == [0] * 3


# ---- units ----


def test_slots_are_the_lowest_that_are_free(dlock, at):
    def slot(started):
        return int(wait_for(started.stdout))

    def hold():
        return dlock.hold(at, "job", "--limit", "3", command=("sh", "-c", "echo $DLOCK_SLOT; cat"))

    holders = [hold() for _ in range(3)]
    assert [slot(h) for h in holders] == [0, 1, 2]
    waiter = dlock.contend(at, "job", "--limit", "3", command=("sh", "-c", "echo $DLOCK_SLOT; cat")).queued(1)
    assert holders[1].finish().status == 0
    assert slot(waiter.held()) == 1
    assert holders[0].finish().status == 0 and holders[2].finish().status == 0
    assert slot(hold()) == 0


def test_units_are_granted_in_order_as_holders_leave_in_any(dlock, at):
    holders = [dlock.hold(at, "job", "--limit", "3") for _ in range(3)]
    waiters = [queued(dlock, at, "--limit", "3").queued(n + 1) for n in range(4)]
    for n, holder in enumerate((holders[2], holders[0], holders[1])):
        assert holder.finish().status == 0
        waiters[n].held()
        assert not any(w.running for w in waiters[n + 1:])
    assert waiters[1].finish().status == 0
    assert waiters[3].held().finish().status == 0


def test_who_waits_for_a_unit_is_told_when_the_one_before_is_granted(dlock, at, tapped):
    """So that only the next in line need watch the list."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job", "--limit", "1")
    first = queued(dlock, at, "--limit", "1").queued(1)
    second = dlock.contend(place, "job", "--limit", "1").queued(2)
    with at.server.client() as c:
        node = f"{at.job}/{tickets(c, at)[1]}"
        assert holder.finish().status == 0
        first.held()
        wait_for(lambda: node in tap.changed, what="news of the grant")
        assert tap.changed.count(node) <= 2  # it may have said that it waits, too
    assert first.finish().status == 0
    assert second.held().finish().status == 0


def test_a_release_is_one_transaction(dlock, at):
    """Place, lease, slot and what is remembered: nobody sees one without the other."""
    assert run(dlock, at, "--limit", "2", "--once", "x").status == 0
    with at.server.client() as c:
        last = [c.exists(f"{at.job}{part}").pzxid for part in ("", "/leases", "/slots")]
        written = [c.exists(f"{at.root}/dlock-jobs/job/{name}").mzxid for name in ("last", "good")]
        assert len({*last, *written}) == 1


def test_a_limit_bears_deaths_of_any_process(dlock, at, tmp_path):
    """Forty contenders for three units; a third of them is killed somewhere on the way."""
    log, rng = tmp_path / "log", random.Random(3)
    script = ("/usr/bin/python3", "-S", "-c", SCRIPT, log, "unit", "0.1")
    all_ = [dlock.contend(at, "job", "--limit", "3", *LIVING_LEASE, *PATIENT, command=script) for _ in range(40)]
    killed = []
    for started in rng.sample(all_, 13):
        time.sleep(rng.random() / 10)
        below = children_of(started.pid)
        if started.poll() is None and below:
            kill(rng.choice((started.pid, below[0])))
            killed.append(started)
    for started in all_:
        done = started.wait(90)
        assert done.status == 0 or started in killed, done
    with open(log, encoding="ascii") as f:
        lines = [line.split() for line in f]
    ended = {pid for word, pid, *_ in lines if word == "out"}
    whole = [(w, p, k, t, s) for w, p, k, t, s in lines if p in ended]  # of those that died, nobody noted the end
    assert check(whole, 3) <= 3
    with at.server.client() as c:
        wait_for(lambda: tickets(c, at) == [] and parts(c, at) == [[], [], []], what="the end of all sessions")
    assert run(dlock, at, "--limit", "3", "-n").status == 0


def test_a_dead_waiter_among_units_does_not_keep_one(dlock, at):
    """Its turn comes while another holds for long: its unit is not lost until its session ends."""
    first, second = (dlock.hold(at, "job", "--limit", "2") for _ in range(2))
    dead = queued(dlock, at, "--limit", "2").queued(1)
    last = queued(dlock, at, "--limit", "2", command=("true",)).queued(2)
    dead.signal(signal.SIGKILL, "keeper")
    assert dead.wait().status == 71
    assert second.finish().status == 0
    assert last.wait(15).status == 0
    assert first.finish().status == 0


# ---- permits are taken in the order of the queue: a slot's next holder has a greater token than its last one ----


def test_a_free_unit_is_not_taken_before_those_ahead_have_theirs(dlock, at):
    """A waiter stands still when its turn comes: one that comes then does not get a unit first."""
    script = ("sh", "-c", "echo $DLOCK_TOKEN")
    holders = [dlock.hold(at, "job", "--limit", "2") for _ in range(2)]
    first = queued(dlock, at, "--limit", "2", command=script).queued(1)
    os.kill(first.keeper, signal.SIGSTOP)
    for holder in holders:
        assert holder.finish().status == 0
    second = queued(dlock, at, "--limit", "2", command=script)
    time.sleep(1)
    overtaken = second.poll() is not None
    os.kill(first.keeper, signal.SIGCONT)
    assert int(first.wait().stdout) < int(second.wait().stdout) and not overtaken


@contextlib.contextmanager
def newcomer(dlock, at):
    """A client that makes its place, for one of three units, as dlock does: yields that, and how it takes its unit."""
    holder = dlock.hold(at, "job", "--limit", "3")
    with at.server.client() as c, at.server.client() as owner:
        name, = tickets(c, at)
        uuid = name[:18] + "00000000" + name[26:39]
        node = owner.create(f"{at.job}/{uuid}-3-unit-", b"{}", ephemeral=True, sequence=True)

        def take():
            t = owner.transaction()
            t.set_data(node, b'{"slot":1}')
            t.create(f"{at.job}/leases/{uuid}-lease-", b"", ephemeral=True, sequence=True)
            t.create(f"{at.job}/slots/1", b"", ephemeral=True)
            t.commit()

        yield holder, owner, node, take


def test_who_comes_behind_one_without_its_unit_waits_for_that(dlock, at):
    with newcomer(dlock, at) as (holder, owner, node, take):
        waiter = dlock.contend(at, "job", "--limit", "3", command=("sh", "-c", "echo $DLOCK_SLOT; cat")).queued(1)
        looked = boottime()
        assert run(dlock, at, "--limit", "3", "-n").status == 75
        owner.set(node, b'{"slot":1}')  # a lease counts, and no text
        time.sleep(0.3 + (looked - 0.1 - boottime()) % 2)  # until just behind a look
        assert not waiter.running
        began = boottime()
        take()
        waiter.held()
        assert spent(began) < 1.5  # it is told, and looks every two seconds
        assert holder.finish().status == 0
        done = waiter.finish()
        assert (done.status, done.stdout) == (0, "2\n")


def test_who_does_not_wait_gives_those_before_it_the_time_to_take_theirs(dlock, at, tapped):
    """It says that it waits when it has seen that the one before it has none."""
    place, _, tap = tapped
    with newcomer(dlock, at) as (_, _, _, take):
        tap.on((SET_DATA,), lambda _: take())
        assert run(dlock, place, "--limit", "3", "-n").status == 0
        assert tap.has_acted


@pytest.mark.parametrize("behind", [1, 2])
def test_who_stands_behind_one_that_goes_without_its_unit_gets_one(dlock, at, behind):
    with newcomer(dlock, at) as (holder, owner, node, _):
        waiters = [dlock.contend(at, "job", "--limit", "3").queued() for _ in range(behind)]
        began = boottime()
        owner.delete(node)
        waiters[0].held()
        assert spent(began) < 1.5
        for started in (holder, *waiters):
            assert started.held().finish().status == 0


def test_a_dead_waiter_keeps_no_unit_from_those_behind_it(dlock, at):
    """Their turn has come, too; who does its part is not taken for dead."""
    holders = [dlock.hold(at, "job", "--limit", "3", "-t", "60s") for _ in range(3)]
    dead = queued(dlock, at, "--limit", "3", "-t", "60s").queued(1)
    waiters = [queued(dlock, at, "--limit", "3", "-t", "60s").queued(n + 2) for n in range(2)]
    with at.server.client() as c:
        places = tickets(c, at)[4:]
        dead.signal(signal.SIGKILL, "keeper")
        assert dead.wait().status == 71
        for holder in holders:
            assert holder.finish().status == 0
        for waiter in waiters:
            waiter.held()
        assert tickets(c, at) == places
    assert [w.finish().status for w in waiters] == [0, 0]


@pytest.mark.parametrize("operation", [MULTI, CREATE2])
def test_a_lost_answer_takes_no_second_unit(dlock, at, tapped, operation):
    place, _, tap = tapped
    assert run(dlock, at, "--limit", "2").status == 0
    tap.lose((operation,), 1)
    holder = dlock.hold(place, "job", "--limit", "2")
    assert tap.has_lost
    with at.server.client() as c:
        assert [len(names) for names in parts(c, at)] == [0, 1, 1]
        assert holder.finish().status == 0
        assert parts(c, at) == [[], [], []]


def stage(client, at, n):
    """What the n-th in the queue says of itself."""
    return json.loads(client.get(f"{at.job}/{tickets(client, at)[n]}")[0]).get("dlock")


@pytest.mark.parametrize("cut", [True, False], ids=["lost", "refused"])
def test_who_is_served_says_so_also_after_a_unit_was_not_got(dlock, at, tapped, cut):
    """Its turn had come, and somebody else's lease was quicker: those behind it must not take it for dead."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job", "--limit", "1")
    with at.server.client() as c:
        def come(_):
            for other in ("leases/x-lease-0000000000", "slots/0"):
                c.create(f"{at.job}/{other}", ephemeral=True)
            if cut:
                raise ConnectionResetError

        waiter = dlock.contend(place, "job", "--limit", "1").queued(1)
        wait_for(lambda: stage(c, at, 1) == "waiting", what="a waiter")
        tap.on((MULTI,), come)
        assert holder.finish().status == 0
        wait_for(lambda: stage(c, at, 0) == "waited", what="served")
        for other in ("slots/0", "leases/x-lease-0000000000"):
            c.delete(f"{at.job}/{other}")
        assert waiter.held().finish().status == 0
        assert parts(c, at) == [[], [], []]


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "with-the-unit"])
def test_a_place_that_is_lost_gives_up_what_came_with_it(dlock, at, late):
    """Its owner, who may be the next to take a unit, goes to the end of the queue: who is there now takes it."""
    assert run(dlock, at, "--limit", "1").status == 0
    with at.server.client() as c:
        lease = c.create(f"{at.job}/leases/x-lease-", ephemeral=True, sequence=True)
        first = queued(dlock, at, "--limit", "1")
        wait_for(lambda: stage(c, at, 0) == "waited", what="served")
        second = queued(dlock, at, "--limit", "1").queued(1)
        c.delete(f"{at.job}/{tickets(c, at)[0]}")
        if not late:
            wait_for(lambda: len(tickets(c, at)) == 2, what="its return")
        c.delete(lease)
        assert second.held().finish().status == 0
        assert first.held().finish().status == 0
        assert parts(c, at) == [[], [], []]


def other_in_locks(client, at):
    """A user of Curator's stands behind us, and comes to nothing before us."""
    return client.create(f"{at.job}/locks/_c_22222222-2222-4222-2222-222222222222-lock-", ephemeral=True, sequence=True)


def test_a_lost_connection_costs_no_place_among_those_who_take_a_unit(dlock, at, tapped):
    place, proxy, tap = tapped
    assert run(dlock, at, "--limit", "1").status == 0
    with at.server.client() as c:
        lease = c.create(f"{at.job}/leases/x-lease-", ephemeral=True, sequence=True)
        waiter = dlock.contend(place, "job", "--limit", "1")
        wait_for(lambda: tickets(c, at) and stage(c, at, 0) == "waited", what="served")
        other_in_locks(c, at)
        before, asked = proxy.connections, tap.asked[GET_CHILDREN2] + 2
        proxy.reset()
        wait_for(lambda: proxy.connections > before, what="its return")
        wait_for(lambda: tap.asked[GET_CHILDREN2] > asked, what="a look")
        c.delete(lease)
        assert waiter.held().finish().status == 0


def test_a_lost_answer_costs_no_place_among_those_who_take_a_unit(dlock, at, tapped):
    place, _, tap = tapped
    assert run(dlock, at, "--limit", "1").status == 0
    with at.server.client() as c:
        tap.on((MULTI,), lambda _: other_in_locks(c, at) and None)
        tap.lose((MULTI,), 1)
        holder = dlock.hold(place, "job", "--limit", "1")
        assert tap.has_acted and tap.has_lost
        assert [len(names) for names in parts(c, at)] == [1, 1, 1]
        assert holder.finish().status == 0
        assert [len(names) for names in parts(c, at)] == [1, 0, 0]


@pytest.mark.parametrize("part", ["leases", "slots"])
def test_what_belongs_to_a_unit_is_deleted(dlock, at, part):
    """A loss, and the rest goes too: nobody else is kept out."""
    holder = dlock.hold(at, "job", "--limit", "2")
    with at.server.client() as c:
        name, = c.get_children(f"{at.job}/{part}")
        c.delete(f"{at.job}/{part}/{name}")
        assert holder.wait().status == 79
        assert parts(c, at) == [[], [], []] and tickets(c, at) == []


@pytest.mark.parametrize("names, status", [(["0", "1"], 76), (["0"], 0), (["7", "-1", "x", "1x", "99999999999999999999"], 0)])
def test_slots_that_others_have_made(dlock, at, names, status):
    assert run(dlock, at, "--limit", "2").status == 0
    with at.server.client() as c:
        for name in names:
            c.create(f"{at.job}/slots/{name}", makepath=True)
        done = run(dlock, at, "--limit", "2", command=("sh", "-c", "echo $DLOCK_SLOT"))
        assert done.status == status
        assert status or int(done.stdout) == (1 if names == ["0"] else 0)


@pytest.mark.parametrize("data", [b"", b"x", b"__REVOKE__", b'{"slot":"a"}', b'{"slot":-7,"dlock":1}', b'{"dlock":"waited"}'])
def test_data_of_those_before_that_others_have_written(dlock, at, data):
    """Names say who is who; whatever stands in the nodes, nobody is let in."""
    holders = [dlock.hold(at, "job", "--limit", "2", "-t", "60s") for _ in range(2)]
    waiters = [queued(dlock, at, "--limit", "2").queued(n + 1) for n in range(2)]
    with at.server.client() as c:
        for name in tickets(c, at)[2:3]:
            c.set(f"{at.job}/{name}", data)
    last = queued(dlock, at, "--limit", "2")
    time.sleep(0.3)
    assert not any(w.running for w in (*waiters, last))
    for h in holders:
        assert h.finish().status == 0
    assert waiters[1].held().finish().status == 0
    assert last.held().finish().status == 0


def test_units_wait_through_lost_connections(dlock, at, tapped):
    """The next in line, who watches the list, and the one behind it, who watches that one."""
    place, proxy, _ = tapped
    holders = [dlock.hold(at, "job", "--limit", "2") for _ in range(2)]
    waiters = [dlock.contend(place, "job", "--limit", "2").queued(n + 1) for n in range(3)]
    proxy.refuse()
    proxy.reset()
    assert holders[1].finish().status == 0
    proxy.accept()
    waiters[0].held()
    assert not any(w.running for w in waiters[1:])
    proxy.refuse()
    proxy.reset()
    proxy.accept()
    assert holders[0].finish().status == 0
    waiters[1].held()
    assert waiters[0].finish().status == 0
    assert waiters[2].held().finish().status == 0
    assert waiters[1].finish().status == 0


def test_a_unit_outlives_the_restart_of_a_server(dlock, own_zk):
    at = own(own_zk)
    holder = dlock.hold(at, "job", "--limit", "1", "-t", "40s")
    waiter = dlock.contend(at, "job", "--limit", "1", "-t", "40s").queued(1)
    own_zk.restart()
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    with own_zk.client() as c:
        assert parts(c, at) == [[], [], []]


# ---- jobs ----


def jobs(client, at, name):
    return json.loads(client.get(f"{at.root}/dlock-jobs/job/{name}")[0])


def test_once(dlock, at):
    command = ("sh", "-c", "echo ran; exit $0")
    assert run(dlock, at, "--once", "a/b", command=(*command, "3")).status == 3
    assert run(dlock, at, "--once", "a/b", "--who", "alice", command=(*command, "0")).stdout == "ran\n"
    done = run(dlock, at, "--once", "a/b", "-v", command=(*command, "0"))
    assert (done.status, done.stdout) == (0, "") and "ID a/b was run at 2" in done.stderr and "alice" in done.stderr
    assert run(dlock, at, "--once", "a", command=(*command, "0")).stdout == "ran\n"
    assert run(dlock, at, "--once", "a/b", "--skipped-exit-code", "9").status == 9
    with at.server.client() as c:
        last = jobs(c, at, "last")
        assert (last["id"], last["status"], last["record"]["command"]) == ("a", 0, "sh")
        assert last["began"] / 1000 == pytest.approx(time.time(), abs=PATIENCE)
        assert tickets(c, at) == [] and c.get_children(at.job) == []


def test_a_fresh_cache_is_known_behind_the_readers_only(dlock, at):
    """What dlock-recipes(7) says of zk: a job is looked at when the lock is held."""
    assert run(dlock, at, "--cooldown", "1h").status == 0
    reader = dlock.hold(at, "job", "-s")
    assert run(dlock, at, "-n", "--cooldown", "1h", "--skipped-exit-code", "9").status == 75
    assert reader.finish().status == 0
    assert run(dlock, at, "-n", "--cooldown", "1h", "--skipped-exit-code", "9").status == 9


@pytest.mark.parametrize("kind", KINDS)
def test_cooldown(dlock, at, kind):
    options = (*KINDS[kind], "--cooldown", "1h")
    assert run(dlock, at, *options, command=("false",)).status == 1
    assert run(dlock, at, *options, command=("echo", "ran")).stdout == "ran\n"
    done = run(dlock, at, *options, "-v", command=("echo", "ran"))
    assert (done.status, done.stdout) == (0, "") and "less than --cooldown 1h" in done.stderr
    assert run(dlock, at, *KINDS[kind], "--cooldown", "1ms", command=("echo", "ran")).stdout == "ran\n"
    assert run(dlock, at, command=("echo", "ran")).stdout == "ran\n"


def test_of_many_at_once_one_runs(dlock, at):
    holder = dlock.hold(at, "job")
    all_ = [dlock.contend(at, "job", "--once", "today", *PATIENT, command=("echo", "ran")) for _ in range(12)]
    with at.server.client() as c:
        wait_for(lambda: len(tickets(c, at)) == 13, what="all of them")
    assert holder.finish().status == 0
    done = [s.wait() for s in all_]
    assert [d.status for d in done] == [0] * 12
    assert sorted(d.stdout for d in done) == [""] * 11 + ["ran\n"]


def test_readers_that_run_one_job_at_once(dlock, at):
    """None has ended when the others begin: all run, and the second to end finds the ID there."""
    readers = [dlock.hold(at, "job", "-s", "--once", "x") for _ in range(3)]
    assert [r.finish().status for r in readers] == [0, 0, 0]
    assert run(dlock, at, "-s", "--once", "x", "--skipped-exit-code", "9").status == 9


def test_what_is_lost_does_not_count(dlock, at):
    holder = dlock.hold(at, "job", "--once", "x", "--cooldown", "1h")
    with at.server.client() as c:
        c.delete(f"{at.job}/{tickets(c, at)[0]}")
    assert holder.wait().status == 79
    assert run(dlock, at, "--once", "x", "--cooldown", "1h", "--skipped-exit-code", "9").status == 0


def test_a_release_whose_answer_is_lost_remembers_once(dlock, at, tapped):
    place, _, tap = tapped
    holder = dlock.hold(place, "job", "--once", "x")
    tap.lose((MULTI,), 1)
    assert holder.finish().status == 0
    assert tap.has_lost
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == 9


@pytest.mark.parametrize("gone", ["", "/last", "/good", "/51", "/52"])
def test_what_is_missing_at_the_release_is_made(dlock, at, gone):
    holder = dlock.hold(at, "job", "--once", "x")
    with at.server.client() as c:
        path = f"{at.root}/dlock-jobs/job{gone}"
        if c.exists(path):
            c.delete(path, recursive=True)
    assert holder.finish().status == 0
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == 9


@pytest.mark.parametrize("data", [b"", b"x", b"{}", b'{"began":"x"}', b'{"began":-1}', b"[1]", b'{"began":1e99}', b"{" * 5000,
                                  b'{"began":1,"record":{"who":7}}'])
def test_jobs_data_that_others_have_written(dlock, at, data):
    with at.server.client() as c:
        for name in "good", "last":
            c.create(f"{at.root}/dlock-jobs/job/{name}", data, makepath=True)
        assert run(dlock, at, "--cooldown", "1h", "--once", "x", command=("echo", "ran")).stdout == "ran\n"
        assert jobs(c, at, "good")["id"] == "x"


@pytest.mark.parametrize("data", [b"", b"x", b"{}", b"[1]", b"{" * 5000, b'{"status":0,"began":1e99}', b'{"status":256}',
                                  b'{"status":0,"id":"\\u001b[2J","record":{"who":"\\u001b[2J"}}', b"\xff" * 100, b"x" * 900000], ids=range(10))
def test_hostile_jobs_are_listed_as_far_as_they_are_runs(dlock, at, data):
    with at.server.client() as c:
        for name in ("good", "last", "50/a", "51/b%20c", "51/%zz", "x/y"):
            c.create(f"{at.root}/dlock-jobs/job/{name}", data, makepath=True)
        c.create(f"{at.root}/dlock-jobs/%zz/51/a", data, makepath=True)
        c.create(f"{at.root}/dlock-jobs/empty", data)
    done = dlock.run("ls", "--jobs", "-J", *at.words)
    assert (done.status, done.stderr) == (0, "") and "\x1b" not in done.stdout, done
    found = {(o["key"], o["id"]): o for o in map(json.loads, done.stdout.splitlines())}
    assert set(found) - {("job", None)} == {("job", "a"), ("job", "b c")}  # that of an ID was run, whatever stands there
    text = dlock.run("ls", "--jobs", *at.words)
    assert text.status == 0 and "\x1b" not in text.stdout
    for words, status in ((("job", "a"), 0), (("job", "a"), 1), (("job",), 0), (("job",), 1)):
        assert dlock.run("forget", "-y", *at.words, *words).status == status
    assert run(dlock, at, "--once", "b c", "--cooldown", "1h", command=("echo", "ran")).stdout == "ran\n"


def test_a_run_that_ends_while_all_are_forgotten_stays(dlock, at, tapped):
    """With its ID, which was not there yet, the cooldown stays that begins with it."""
    assert run(dlock, at, "--once", "x").status == 0
    with at.server.client() as c:
        jobs = f"{at.root}/dlock-jobs/job"
        era, = [f"{jobs}/{name}" for name in c.get_children(jobs) if name.isdigit()]
        for n in range(50):
            c.create(f"{era}/id{n}", b"{}")
        place, _, tap = tapped
        tap.on((DELETE,), lambda _: run(dlock, at, "--once", "y").status == 0)
        assert dlock.run("forget", "-y", *place.words, "job").status == 0
        assert tap.has_acted and c.get_children(era) == ["y"]
    assert run(dlock, at, "--once", "y", "--skipped-exit-code", "9").status == 9
    assert run(dlock, at, "--cooldown", "1h", "--skipped-exit-code", "9").status == 9
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == 0


def test_a_run_that_ends_while_its_id_is_forgotten_is_forgotten_whole_or_stays_whole(dlock, at, tapped):
    """Neither is its ID due without its cooldown, nor the other way round."""
    place, _, tap = tapped
    holders = [dlock.hold(at, "job", "-s", "--once", name) for name in "xyx"]
    assert [h.finish().status for h in holders[:2]] == [0, 0]
    tap.on((DELETE, MULTI), lambda _: holders[2].finish().status == 0)
    assert dlock.run("forget", "-y", *place.words, "job", "x").status == 0
    assert tap.has_acted
    assert dlock.run("status", "--done-within", "1h", *at.words, "job").status == 1
    assert run(dlock, at, "--once", "x", "--cooldown", "1h", "--skipped-exit-code", "9").status == 0
    assert run(dlock, at, "--once", "y", "--skipped-exit-code", "9").status == 9


def test_an_id_that_is_done_anew_while_all_are_forgotten_stays(dlock, at, tapped):
    place, _, tap = tapped
    holders = [dlock.hold(at, "job", "-s", "--once", "x") for _ in range(2)]
    assert holders[0].finish().status == 0
    tap.on((DELETE,), lambda _: holders[1].finish().status == 0)
    assert dlock.run("forget", "-y", *place.words, "job").status == 0
    assert tap.has_acted
    assert dlock.run("status", "--done-within", "1h", *at.words, "job").status == 0
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == 9


@pytest.mark.parametrize("words, moment", [((), LISTS), ((), (CREATE, CREATE2)), (("y",), (DELETE, MULTI))],
                         ids=["IDs are listed", "a node is made", "one is forgotten"])
def test_a_run_that_ends_where_only_ids_are_left_is_forgotten_whole_or_stays_whole(dlock, at, tapped, words, moment):
    """Somebody has deleted the nodes of the last runs."""
    place, _, tap = tapped
    holders = [dlock.hold(at, "job", "-s", "--once", name) for name in "xyy"]
    assert [h.finish().status for h in holders[:2]] == [0, 0]
    with at.server.client() as c:
        for name in ("good", "last"):
            c.delete(f"{at.root}/dlock-jobs/job/{name}")
    tap.on(moment, lambda path: (moment != LISTS or path.rsplit("/", 1)[1].isdigit()) and holders[2].finish().status == 0)
    assert dlock.run("forget", "-y", *place.words, "job", *words).status == 0
    assert tap.has_acted
    stays = run(dlock, at, "--cooldown", "1h", "--skipped-exit-code", "9").status
    assert run(dlock, at, "--once", "y", "--skipped-exit-code", "9").status == stays
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == (9 if words else 0)


@pytest.mark.parametrize("words", [("x",), ()], ids=["id", "all"])
def test_a_lost_answer_is_no_run_that_was_not_remembered(dlock, at, tapped, words):
    """The second attempt finds what the first one has left, and that was ours."""
    place, _, tap = tapped
    for name in "xy":
        assert run(dlock, at, "--once", name).status == 0
    tap.lose((MULTI,), 1)
    done = dlock.run("forget", "-y", *place.words, "job", *words)
    assert (done.status, tap.has_lost) == (0, True), done
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == 0
    assert run(dlock, at, "--once", "y", "--skipped-exit-code", "9").status == (9 if words else 0)
    assert dlock.run("forget", "-y", *at.words, "job", "z").status == 1


def test_a_look_that_is_lost_after_all_was_forgotten_is_no_run_that_was_not_remembered(dlock, at, tapped):
    place, _, tap = tapped
    assert run(dlock, at, "--cooldown", "1h").status == 0
    tap.on((MULTI,), lambda _: tap.lose(LISTS, 1))
    done = dlock.run("forget", "-y", *place.words, "job")
    assert (done.status, tap.has_acted, tap.has_lost) == (0, True, True), done
    assert run(dlock, at, "--cooldown", "1h", "--skipped-exit-code", "9").status == 0


def test_what_may_not_be_read_is_not_told_as_never_done(dlock, at):
    assert run(dlock, at, "--cooldown", "1h").status == 0
    with at.server.client() as c:
        c.set_acls(f"{at.root}/dlock-jobs/job/last", [make_digest_acl("other", "secret", all=True)])
        assert dlock.run("status", *at.words, "job").status == 1
        done = dlock.run("status", "--done-within", "1h", *at.words, "job")
        assert done.status == 77 and done.stdout == "", done


def test_a_run_that_may_not_be_kept_to_be_shown_is_told_of(dlock, at):
    holder = dlock.hold(at, "job", "--remember")
    with at.server.client() as c:
        c.set_acls(f"{at.root}/dlock-jobs/job/shown", [make_digest_acl("other", "secret", all=True)])
    done = holder.finish()
    assert done.status == 0 and "could not record that this run ended with 0: status will not show it" in done.stderr
    assert run(dlock, at, "-n").status == 0


def test_a_run_that_goes_on_is_remembered_though_all_was_forgotten(dlock, at):
    """Its release finds another ID's node, or none, than it was prepared for."""
    assert run(dlock, at, "--once", "x").status == 0
    holder = dlock.hold(at, "job", "--once", "y", "-s")
    other = dlock.hold(at, "job", "--once", "y", "-s")
    assert other.finish().status == 0
    assert dlock.run("forget", "-y", *at.words, "job").status == 0
    assert holder.finish().status == 0
    assert run(dlock, at, "--once", "y", "--skipped-exit-code", "9").status == 9
    assert run(dlock, at, "--once", "x", "--skipped-exit-code", "9").status == 0


def test_a_begin_in_the_future_is_none(dlock, at):
    """It counts from when the server saw it written."""
    with at.server.client() as c:
        future = json.dumps({"began": int(time.time() * 1000) + 10**9}).encode()
        c.create(f"{at.root}/dlock-jobs/job/good", future, makepath=True)
        assert run(dlock, at, "--cooldown", "1h", "--skipped-exit-code", "9").status == 9
        assert run(dlock, at, "--cooldown", "1ms", "--skipped-exit-code", "9").status == 0


def test_old_ids_are_removed(dlock, at):
    with at.server.client() as c:
        for n in range(5):
            c.create(f"{at.root}/dlock-jobs/job/3/id{n}", b"{}", makepath=True)
        c.create(f"{at.root}/dlock-jobs/job/3x", b"{}")
        era = int(time.time() / (400 * 86400))
        c.create(f"{at.root}/dlock-jobs/job/{era - 1}/id", b"{}", makepath=True)  # perhaps of yesterday
        assert run(dlock, at, "--once", "x").status == 0
        left = set(c.get_children(f"{at.root}/dlock-jobs/job"))
        assert "3" not in left and {"3x", "last", "good", str(era - 1)} <= left
        assert c.get_children(f"{at.root}/dlock-jobs/job/{era - 1}") == ["id"]


def test_a_job_beside_a_path_of_ones_own(dlock, at):
    path = f"{at.root}/app/nightly"
    for status in 0, 9:
        assert run(dlock, at, "-O", f"path={path}", "--once", "x", "--skipped-exit-code", "9").status == status
    with at.server.client() as c:
        assert c.exists(f"{at.root}/app/dlock-jobs/nightly/last")
    assert run(dlock, at, "-O", f"path={at.root}/dlock-jobs/x").status == 64


def test_a_key_like_the_jobs_directory(dlock, at):
    done = dlock.run("run", *at.words, "-k", "dlock-jobs", "--once", "x", "--", "true")
    assert done.status == 0
    with at.server.client() as c:
        assert set(c.get_children(at.root)) == {"dlock-jobs", "%64lock-jobs"}


def test_who_may_not_write_of_jobs_is_told_before_anything_runs(dlock, at):
    with at.server.client() as c:
        c.ensure_path(at.root)
        c.create(f"{at.root}/dlock-jobs", acl=[make_acl("world", "anyone", read=True)])
        done = run(dlock, at, "--once", "x", command=("echo", "ran"))
        assert (done.status, done.stdout) == (77, "")
        assert run(dlock, at).status == 0

