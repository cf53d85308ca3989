# Goal of these tests: a thousand waiters that lose their ZooKeeper in one moment are no
# more trouble to it when they come back than a few.

import socket

from support import wait_for
from zk import EXISTS, GET_CHILDREN, GET_CHILDREN2, GET_DATA, SET_DATA


def test_waiter_that_comes_back_does_not_list_the_queue(dlock, at, tapped):
    """All names are sent with a list: n waiters that list when their server is back cost it n squared.

    Nothing has changed: its watches are set again, and the directory's counts tell that.
    """
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    near = [dlock.contend(at, "job", command=("true",)).queued(n + 1) for n in range(9)]
    far = [dlock.contend(place, "job", "-t", "60s", command=("true",)).queued(n + 10) for n in range(5)]
    wait_for(lambda: tap.asked[SET_DATA] >= 5, what="five waiters' words")
    for _ in range(3):
        before, connections = tap.asked.copy(), proxy.connections
        proxy.reset()
        wait_for(lambda: proxy.connections >= connections + 5, what="their return")
        wait_for(lambda: (tap.asked - before)[EXISTS] >= 5, what="a look at the counts")
        asked = tap.asked - before
        assert not asked[GET_CHILDREN2] and not asked[GET_CHILDREN] and not asked[SET_DATA]
        assert asked[GET_DATA] <= 2 * 5  # each: who this server is
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in near + far] == [0] * 14


def test_waiter_learns_what_happened_while_it_was_away(dlock, at, tapped):
    """Those ahead have left: its watch is set again, and tells it so."""
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    first = dlock.contend(at, "job").queued(1)
    last = dlock.contend(place, "job", "-t", "60s", command=("true",)).queued(2)
    wait_for(lambda: tap.asked[SET_DATA], what="its word")
    proxy.refuse()
    proxy.reset()
    assert holder.finish().status == 0
    assert first.held().finish().status == 0
    proxy.accept()
    assert last.wait().status == 0


def test_waiter_does_not_stay_with_a_server_that_has_not_heard_of_it(dlock, at, tapped):
    """Of many who come at once the kernel loses some: these are connected, and nobody will ever answer them."""
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(place, "job", "-t", "150s", command=("true",)).queued(1)
    wait_for(lambda: tap.asked[SET_DATA], what="its word")
    proxy.refuse()
    with socket.create_server(("127.0.0.1", proxy.port)) as silent:
        proxy.reset()
        silent.settimeout(60)
        lost, _ = silent.accept()
    with lost:
        proxy.accept()
        wait_for(lambda: len(tap.sessions) >= 2, what="its return")  # the library alone would wait for 100 s
        assert holder.finish().status == 0
        assert waiter.wait().status == 0
