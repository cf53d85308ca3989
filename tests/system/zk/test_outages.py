# Goal of these tests: ZooKeeper servers that are away, cut off or restarted cost time or
# the command, never exclusion; and many waiters are no burden, neither while
# they wait nor when all come back at once.

import itertools
import os
import re
import signal
import statistics
import time
import uuid

import pytest

from faults import IMPATIENT, IS_GONE, LEASE, LEASE_SECONDS, LIVING_LEASE, SOON, SOON_SECONDS, STUBBORN, assert_refused, wait_for_writes
from hostile import SILENCE
from proxy import BOTH, DOWN
from support import DLOCK, At, boottime, is_alive, run, size, spent, stalled, wait_for
from zk import CREATE2, EXISTS, GET_DATA, LISTS, MAKES, MULTI, PING, SET_DATA, Tap, ZkEnsemble, ZkHostile, hear, nodes, own, to_all


# ---- many waiters ----


def queued(n, start):
    """So many of those that start() gives, in the queue: few begin at once, as a slow server answers not many in their time."""
    waiters = []
    while len(waiters) < n:
        few = [start() for _ in range(min(6, n - len(waiters)))]
        for waiter in few:
            waiter.event("waiting")
        waiters += few
    return waiters


def settled(tap, operation, seconds):
    """Waits until such requests have come to rest."""
    def quiet():
        before = tap.asked[operation]
        time.sleep(seconds)
        return tap.asked[operation] == before

    wait_for(quiet, timeout=60, what="rest")


def test_traffic_of_a_waiter_does_not_grow_with_the_queue(dlock, at, tapped):
    """Far waiters ask for the directory's counts four times a session; nobody lists, nobody writes."""
    place, _, tap = tapped
    holder = dlock.hold(at, "job")
    near = queued(9, lambda: dlock.contend(at, "job", "-t", "60s", command=("true",)))
    far = queued(30, lambda: dlock.contend(place, "job", "-t", "6s", command=("true",)))
    settled(tap, SET_DATA, 1)
    before, began = tap.asked.copy(), boottime()
    time.sleep(6)
    asked, spent = tap.asked - before, boottime() - began
    assert set(asked) <= {EXISTS, PING}
    assert sum(asked.values()) <= 30 * (spent / 1.5 + 1)
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in near + far] == [0] * 39
    assert sum(tap.asked[o] for o in LISTS) <= 30 * 6 + 60  # each: at its start and its turn, two watches, two guards


def test_far_waiter_learns_that_it_has_come_near(dlock, at):
    """The node ahead is a dead one's and stays, so nobody calls when those before it leave."""
    holder = dlock.hold(at, "job")
    living = [dlock.contend(at, "job", "-t", "60s", command=("true",)).queued(n + 1) for n in range(10)]
    dead = dlock.contend(at, "job", "-t", "300s").queued(11)
    last = dlock.contend(at, "job", "-t", "12s", command=("true",)).queued(12)
    dead.signal(signal.SIGKILL, "keeper")
    assert dead.wait().status == 71
    assert holder.finish().status == 0
    assert [w.wait().status for w in living] == [0] * 10
    assert last.wait(40).status == 0


def test_attempts_to_connect_are_spread(dlock, at, make_proxy):
    """All lose their server in one moment, and it is away for longer than a session lasts."""
    proxy, n = make_proxy(at.server.port), 40
    place = at.through(proxy)
    holder = dlock.hold(at, "job")
    waiters = queued(n, lambda: dlock.contend(place, "job", "-t", "60s", command=("true",)))
    proxy.drop(DOWN)  # whoever comes is let in, and hears nothing
    stamps = []
    before = proxy.connections
    proxy.tap = lambda link, direction, data: stamps.append((boottime(), link)) or data
    began = boottime()
    proxy.reset()
    time.sleep(1)
    assert proxy.connections - before <= 20 + 4 * 10  # the four that are near; few of the others
    wait_for(lambda: proxy.connections - before >= n, what="all of them")
    first = sorted({link: t for t, link in reversed(stamps)}.values())
    assert first[-1] - began > 1
    per_tenth = [sum(t <= s < t + 0.1 for s in first) for t in first]
    assert max(per_tenth) <= n / 3 or stalled(began) > 0.3
    proxy.heal()
    proxy.reset()
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * n


def test_a_release_wakes_one_of_a_crowd(dlock, own_zk, make_proxy):
    n = size(60, 200)
    at, proxy = own(own_zk), make_proxy(own_zk.port)
    tap = Tap(proxy)
    holder = dlock.hold(at, "job")
    through = At(f"zk://127.0.0.1:{proxy.port}")
    waiters = [dlock.contend(through, "job", "-t", "60s", "-w", "10m", command=("true",)) for _ in range(n)]
    for waiter in waiters:
        waiter.event("waiting", timeout=60)
    wait_for(lambda: int(own_zk.metrics()["watch_count"]) >= n, what="all watches")
    assert tap.ended == []
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * n
    woken = [(path, receiver) for path, receiver in tap.ended if path != receiver]
    assert len(woken) == n  # by n + 1 releases: nobody waits for the last one
    assert len({path for path, _ in woken}) == len({receiver for _, receiver in woken}) == n


# ---- a server that is away ----


def test_server_that_comes_later_is_waited_for(dlock, at, make_proxy):
    """With --wait as long as that says, and otherwise for connect-timeout; with -n it is asked once."""
    proxy = make_proxy(at.server.port)
    url = at.through(proxy).words[1]
    proxy.refuse()
    assert_refused(run(dlock, url, "-n"), 69, str(proxy.port), "refused")
    assert_refused(run(dlock, url, "-w", "2s"), 69, str(proxy.port), "refused")
    patient = dlock.contend(at.through(proxy), "one", "-w", "60s", command=("true",))
    default = dlock.contend(at.through(proxy), "two", "-O", "connect-timeout=30s", command=("true",))
    time.sleep(1)
    assert patient.poll() is None and default.poll() is None
    proxy.accept()
    assert patient.wait().status == default.wait().status == 0


def test_whose_turn_it_is_comes_back_at_once(dlock, tapped):
    """Those behind wait for it all the while: it comes as soon as one of whom nobody knows yet."""
    place, _, tap = tapped

    def costs(operation):
        tap.lose((operation,), 1)
        run_ = dlock.start("run", *place.words, "-k", f"job{next(numbers)}", "--limit", "1", "--", "true")
        wait_for(lambda: tap.has_lost, what="a lost answer")
        began = boottime()
        assert run_.wait().status == 0
        return boottime() - began

    numbers = itertools.count()
    first, turn = (statistics.median(costs(operation) for _ in range(7)) for operation in (CREATE2, MULTI))
    assert turn < 0.3 + 2 * first


@pytest.mark.parametrize("listing", [False, True], ids=["watching", "listing"])
def test_an_outage_is_no_time_in_which_a_turn_was_left_unused(dlock, at, make_proxy, listing):
    """Whoever saw that it was not taken yet, and comes back first, takes nobody for dead who may be coming, too."""
    ways = [make_proxy(at.server.port) for _ in range(2)]
    taps = [Tap(way) for way in ways]
    holder = dlock.hold(at, "job")
    waiters = [dlock.contend(at.through(way), "job", "-t", "60s", command=("cat",)).queued(n + 1) for n, way in enumerate(ways)]
    wait_for(lambda: all(tap.asked[SET_DATA] for tap in taps), what="their words")
    with at.server.client() as c:
        first = nodes(c, at.job)[1]
        last = c.create(f"{at.job}/_c_{uuid.uuid4()}-lock-", ephemeral=True, sequence=True)

        def await_looks():
            for _ in range(2):
                taps[1].on((GET_DATA,), lambda path: path.endswith(first))
                wait_for(lambda: taps[1].has_acted, what="a look at the first")

        ways[0].hold(*BOTH)
        assert holder.finish().status == 0
        await_looks()
        if listing:
            taps[1].on(LISTS, lambda _: ways[1].refuse() or ways[1].reset())
            c.delete(last)
            wait_for(lambda: taps[1].has_acted, what="a look at the queue, since somebody has left")
        else:
            ways[1].refuse()
            ways[1].reset()
        time.sleep(4)  # longer than a turn may be left unused
        ways[1].accept()
        await_looks()
        ways[0].heal()
        assert waiters[0].held() and not waiters[1].running
        assert nodes(c, at.job)[0] == first
        if not listing:
            c.delete(last)
        assert [w.finish().status for w in waiters] == [0, 0]


def test_outage_longer_than_the_ttl_costs_no_turn(dlock, make_zk, make_proxy):
    """The server has longer sessions: who had begun to take its turn goes on with it."""
    server = make_zk(minSessionTimeout=30000)
    at, proxy = own(server), make_proxy(server.port)
    place, tap, cuts = At(f"zk://127.0.0.1:{proxy.port}"), Tap(proxy), []
    holder = dlock.hold(at, "job", "-t", "30s")
    waiter = dlock.contend(place, "job", "-t", "3s", "-w", "1m").queued(1)
    wait_for(lambda: tap.asked[SET_DATA], what="its word")

    def cut(_):
        tap.on((SET_DATA,), cut_for_long)  # which it sends when it has seen that nobody is ahead
        raise ConnectionResetError

    def cut_for_long(_):
        proxy.refuse()
        cuts.append("for long")
        raise ConnectionResetError

    tap.on((SET_DATA,), cut)
    assert holder.finish().status == 0
    wait_for(lambda: cuts, what="its turn")
    time.sleep(4)  # longer than the ttl
    proxy.accept()
    waiter.event("started")
    assert waiter.finish().status == 0


def test_slow_server_is_given_the_time_of_wait(dlock, at, make_proxy, tapped):
    """Each answer takes longer than connect-timeout: with --wait there is time, and it is spent in one session."""
    place, proxy, tap = tapped
    other = make_proxy(at.server.port)
    holder = dlock.hold(at, "job")
    proxy.delay = other.delay = 0.7  # there, and back
    hasty = ("-t", "60s", "-O", "connect-timeout=1s")
    assert_refused(run(dlock, at.through(other).words[1], *hasty, timeout=30), 69, str(other.port))
    waiter = dlock.contend(place, "job", *hasty, "-w", "inf", command=("true",))
    wait_for(lambda: tap.asked[SET_DATA] == 1, timeout=60, what="its mark in the queue")
    assert len({session for session, _ in tap.sessions if session}) == 1
    assert sum(tap.asked[o] for o in MAKES) == 1
    assert holder.finish().status == 0
    assert waiter.wait(60).status == 0


def test_slow_server_does_not_prolong_wait(dlock, make_hostile):
    """It takes our create, and never answers: no more than the time to wait, or connect-timeout, is spent on it."""
    server = make_hostile(program=ZkHostile, answers=to_all((*MAKES, *LISTS), SILENCE))
    for options, most in ((("-w", "2s", "-t", "60s"), 15), (("-O", "connect-timeout=6s"), 10)):
        before = boottime()
        assert run(dlock, server.url, *options, timeout=70).status == 69
        assert spent(before) < most


def test_waiter_with_a_time_of_its_own_outlasts_its_session(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(place, "job", *LEASE, "-w", "60s", command=("true",)).queued(1)
    proxy.refuse()
    proxy.reset()
    with at.server.client() as c:
        wait_for(lambda: len(nodes(c, at.job)) == 1, what="the end of its session")
        time.sleep(LEASE_SECONDS)  # without --wait it would have given up
        assert waiter.poll() is None
        proxy.accept()
        wait_for(lambda: len(nodes(c, at.job)) == 2, what="its return")
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


def test_release_is_made_up_for_when_the_server_is_back(dlock, own_zk):
    """The session would last another minute."""
    at = own(own_zk)
    holder = dlock.hold(at, "job", "-t", "60s")
    waiter = dlock.contend(at, "job", "-t", "60s", "-w", "inf", command=("true",)).queued(1)
    own_zk.kill()
    holder.finish()
    own_zk.start()
    before = boottime()
    assert waiter.wait().status == 0
    assert spent(before) < 10


def test_all_waiters_are_back_soon_after_a_restart(dlock, own_zk):
    at, n = own(own_zk), 60
    holder = dlock.hold(at, "job", "-t", "60s")
    waiters = queued(n, lambda: dlock.contend(at, "job", "-t", "60s", command=("true",)))
    own_zk.restart()
    wait_for(lambda: len(own_zk.sessions()) == n + 1 and int(own_zk.metrics()["num_alive_connections"]) > n, what="all")
    with own_zk.client() as c:
        assert len(nodes(c, at.job)) == n + 1
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * n


def test_frozen_server_does_not_hold_up_the_end(dlock, own_zk):
    """The library waits for an answer to its farewell; dlock does not wait for it."""
    at = own(own_zk)
    holder = dlock.hold(at, "job", *LEASE)
    own_zk.pause()
    before = boottime()
    done = holder.finish()
    assert done.status == 0 and "job" in done.stderr  # the release was not confirmed
    assert spent(before) < SOON_SECONDS
    own_zk.resume()
    assert run(dlock, at.url, "-w", SOON).status == 0


# ---- a server that lost everything ----


def test_restart_without_its_data(dlock, own_zk, tmp_path):
    at, heard = own(own_zk), tmp_path / "heard"
    holder = dlock.contend(at, "job", *LIVING_LEASE, command=("sh", "-c", STUBBORN, heard)).held()
    waiter = dlock.contend(at, "job", *LIVING_LEASE, command=("true",)).queued(1)
    own_zk.kill()
    own_zk.forget()
    own_zk.start()
    dlock.tokens_grow = False
    assert holder.wait().status == 79
    assert waiter.wait().status == 69  # the server turns away who has seen more than it knows
    assert run(dlock, at.url).status == 0


# ---- three servers ----


def test_lease_of_a_single_server_is_the_whole_session(dlock, at, ensemble):
    """It is itself the leader that counts; a member of an ensemble may not be."""
    for place, full in ((at, True), (own(ensemble.servers[0]), False), (own(ensemble.servers[1]), False)):
        holder = dlock.hold(place, "job", "-t", "12s", "-v")
        wait_for(lambda: "renew: ok" in holder.stderr(), what="a renewal")
        took, left = map(float, re.search(r"renew: ok in ([\d.]+) ms, lease for ([\d.]+) s", holder.stderr()).groups())
        lease = took / 1000 + left  # it is counted from when it was asked for
        assert (lease > 11) == full and lease > 6
        assert holder.finish().status == 0


# A follower believes for longer in a leader that is silent than any lease here lasts: 40 s, 100 s.  COARSE has Debian's other
# settings: the leader knows of a client only what followers tell it twice a tick.
FINE = {"syncLimit": 200}
COARSE = {"tickTime": 2000, "minSessionTimeout": 4000}


@pytest.mark.parametrize("settings, program", [(FINE, "dlock"), (COARSE, "dlock"), (FINE, "dlock-reads")],
                         ids=["writes", "writes-coarse", "reads"])
def test_follower_cut_from_its_leader(dlock, make_zk, settings, program):
    """The follower goes on answering the holder; the leader ends its session meanwhile.

    Where renewals are reads, which any follower answers, two run at once: the
    binary that does so shows that this test can fail.
    """
    ensemble = make_zk(program=ZkEnsemble, **settings)
    follower, leader = ensemble.followers[0], ensemble.leader
    binary = DLOCK if program == "dlock" else os.path.join(os.path.dirname(DLOCK), program)
    holder = dlock.contend(own(follower), "job", "-t", "12s", program=binary).held()  # it counts on half of that
    command = holder.command
    next_ = dlock.contend(own(leader), "job", command=("sh", "-c", IS_GONE, command)).queued(1)
    wait_for_writes(leader, holder, 2 if program == "dlock" else 0)
    ensemble.cut(follower)
    overlapped = next_.wait().status == 99
    assert follower.mode() == "follower"  # it still believes that it is one
    if program == "dlock":
        assert not overlapped
        assert holder.wait().status == 79
    else:
        assert overlapped and is_alive(command) and holder.poll() is None
    assert next_.token > holder.token


def test_leader_killed(dlock, ensemble, tmp_path):
    heard = tmp_path / "heard"
    leader, followers = ensemble.leader, ensemble.followers
    at = At(ensemble.url)
    lease = ("-t", "45s")  # half of it bears an election
    holders = [dlock.hold(at, "job", *lease, command=hear(heard)),
               dlock.hold(own(followers[0]), "other", *lease, command=hear(heard))]
    waiter = dlock.contend(at, "job", command=("true",)).queued(1)
    leader.kill()
    new = ensemble.leader
    before = new.writes()
    wait_for(lambda: new.writes() >= before + 4, what="renewals by the new leader")
    assert [h.finish().status for h in holders] == [0, 0]
    assert waiter.wait().status == 0
    assert waiter.token > holders[0].token
    assert not heard.exists()


def test_quorum_lost(dlock, ensemble):
    followers, at = ensemble.followers, At(ensemble.url)
    holder = dlock.hold(at, "job", *LIVING_LEASE)
    command = holder.command
    for follower in followers:
        follower.kill()
    assert holder.wait().status == 79
    assert not is_alive(command)
    assert_refused(run(dlock, at.words[1], *IMPATIENT), 69)
    followers[0].start(wait=False)
    wait_for(lambda: run(dlock, at.words[1], *IMPATIENT, "-w", "10s").status == 0, what="a quorum")


def test_all_servers_frozen(dlock, ensemble):
    at = At(ensemble.url)
    holder = dlock.hold(at, "job", *LIVING_LEASE)
    waiter = dlock.contend(at, "job", "-t", "30s").queued(1)
    before = boottime()
    for server in ensemble.servers:
        server.pause()
    assert holder.wait().status == 79
    assert spent(before) < SOON_SECONDS
    for server in ensemble.servers:
        server.resume()
    assert waiter.held().finish().status == 0
    assert waiter.token > holder.token
