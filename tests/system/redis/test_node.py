# Goal of these tests: node-redlock and ioredis-lock, the real ones, exclude dlock with
# dialect=string and are excluded by it.  `make interop-node` has them from npm.

import os
import subprocess
import time

import pytest

from support import ROOT, At, wait_for

MODULES = os.environ.get("DLOCK_TEST_NODE")
pytestmark = pytest.mark.skipif(not MODULES, reason="make interop-node runs these")
MODULES = os.path.abspath(MODULES or ".")

TOOLS = ["redlock", "ioredis"]


class Node:
    """A process of node with these packages; see locks.js for what it understands."""

    def __init__(self, port):
        self.process = subprocess.Popen(["node", os.path.join(ROOT, "tests", "servers", "locks.js"), str(port)], cwd=MODULES,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def do(self, *words):
        self.ask(*words)
        return self.answer()

    def close(self):
        self.process.communicate()


@pytest.fixture
def node(own_redis):
    result = Node(own_redis.port)
    yield result
    result.close()


@pytest.fixture
def place(own_redis):
    result = At(own_redis.url)
    result.words += ["-O", "dialect=string"]
    result.counted = False
    return result


def try_once(dlock, place):
    return dlock.run("run", *place.words, "-k", "job", "-n", "--", "true").status


@pytest.mark.parametrize("tool", TOOLS)
def test_each_excludes_the_other(dlock, node, place, tool):
    assert node.do(tool, "lock", "job", 30000) == "ok"
    assert try_once(dlock, place) == 75
    assert node.do(tool, "unlock", "job") == "ok"
    hold = dlock.hold(place, "job")
    assert node.do(tool, "lock", "job", 30000) == "busy"
    assert hold.finish().status == 0
    assert node.do(tool, "lock", "job", 30000) == "ok"


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_extended_is_waited_for(dlock, node, place, own_redis, tool):
    assert node.do(tool, "lock", "job", 3000) == "ok"
    waiter = dlock.contend(place, "job").queued()
    assert node.do(tool, "extend", "job", 30000) == "ok"
    with own_redis.client() as c:
        assert 20000 < c.pttl("job") <= 30000
    time.sleep(3.5)
    assert not waiter.running
    assert node.do(tool, "unlock", "job") == "ok"
    waiter.event("started", timeout=10)
    assert waiter.finish().status == 0


@pytest.mark.parametrize("tool", TOOLS)
def test_who_lost_it_to_dlock_takes_nothing_back(dlock, node, place, own_redis, tool):
    assert node.do(tool, "lock", "job", 300) == "ok"
    with own_redis.client() as c:
        wait_for(lambda: not c.exists("job"))
    hold = dlock.hold(place, "job")
    answer = node.do(tool, "extend", "job", 30000)
    assert answer == "lost", answer
    answer = node.do(tool, "unlock", "job")
    assert answer == "lost", answer
    assert try_once(dlock, place) == 75
    assert hold.finish().status == 0


def test_redlock_waits_for_dlock(dlock, node, place):
    hold = dlock.hold(place, "job")
    node.ask("redlock", "wait", "job", 30000)
    time.sleep(0.5)
    assert hold.finish().status == 0
    assert node.answer() == "ok"
    assert try_once(dlock, place) == 75


def test_several_resources_of_redlock_are_several_keys(dlock, node, place):
    assert node.do("redlock", "lock", "job,other", 30000) == "ok"
    assert try_once(dlock, place) == 75
    assert node.do("redlock", "unlock", "job,other") == "ok"
    both = dlock.start("run", *place.words, "-k", "job", "-k", "other", "--", "sleep", "1000").held()
    assert node.do("redlock", "lock", "job", 30000) == "busy"
    assert node.do("redlock", "lock", "other", 30000) == "busy"
    both.signal(15)
    both.wait()
    assert node.do("redlock", "lock", "job,other", 30000) == "ok"
