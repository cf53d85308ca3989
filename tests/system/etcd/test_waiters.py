# Goal of these tests: many waiters on one key.  All are served, and an idle one costs the server the same, however many there are.

import os
import signal
import time

from etcd import hold
from support import boottime, run, wait_for

IDLE = 20  # seconds: twice as long as the longest pause of a waiter


def cost(server, waiters):
    """What one of so many idle waiters asks of the server in a minute: requests, bytes to it, bytes from it."""
    def asked():
        return [server.metric(name) for name in ("grpc_server_started_total", "etcd_network_client_grpc_received_bytes_total",
                                                 "etcd_network_client_grpc_sent_bytes_total")]

    def in_a_second():
        before = asked()[0]
        time.sleep(1)
        return asked()[0] - before

    wait_for(lambda: in_a_second() < waiters / 2, what="the end of what joining asks")
    before, began = asked(), boottime()
    time.sleep(IDLE)
    after, took = asked(), boottime() - began
    return [(a - b) / waiters / took * 60 for a, b in zip(after, before)]


def test_an_idle_waiter_costs_the_same_among_more(dlock, own_etcd):
    holder, waiters, found = hold(dlock, own_etcd.url), [], []
    for n in (50, 100):
        waiters += [dlock.start("run", "-u", own_etcd.url, "-k", "job", "-w", "inf", "--", "true") for _ in range(n - len(waiters))]
        for waiter in waiters:
            waiter.queued()
        found.append(cost(own_etcd, n))
    for few, many in zip(*found):
        assert 0.75 < many / few < 1.25, found
    assert found[1][0] < 60, found
    assert holder.finish().status == 0
    assert {w.wait().status for w in waiters} == {0}


def test_permits_are_taken_in_the_order_of_the_queue(dlock, at):
    """Tokens are dealt when one joins: of two that have one slot, the later is to have the greater."""
    limit = ("--limit", "2", "-t", "6s")
    held = [hold(dlock, at.url, *limit) for _ in range(2)]
    waiters = []
    for _ in range(2):
        waiters.append(dlock.start("run", *at.words, "-k", "job", *limit, "--", "sh", "-c", "echo $DLOCK_TOKEN"))
        waiters[-1].queued()
    os.kill(waiters[0].keeper, signal.SIGSTOP)
    for one in held:
        one.finish()
    time.sleep(4)  # longer than a beat, by which one looks though nobody called; shorter than the lease of a place
    overtaken = waiters[1].poll() is not None
    os.kill(waiters[0].keeper, signal.SIGCONT)
    first, second = (int(w.wait().stdout) for w in waiters)
    assert first < second and not overtaken
