# Goal of these tests: dlock's nodes are those of Apache Curator, in a directory where
# others have theirs too.  Whatever stands there and whatever vanishes between two of
# our steps, nobody is passed over who was before us, and nothing is left behind.

import json
import os
import signal
import struct
import subprocess
import threading
import uuid
import zlib

import pytest
from kazoo.exceptions import LockTimeout, NoNodeError, NotEmptyError
from kazoo.recipe.lock import Lock

from faults import PATIENT, assert_refused
from support import BRIEFLY, run, size, wait_for
from zk import DELETE, EXISTS, GET_CHILDREN, GET_CHILDREN2, GET_DATA, MAKES, NODE, SYNC, buffer, nodes, own


# ---- what others see ----


def test_nodes_are_those_of_curator(dlock, at):
    holder = dlock.hold(at, "job", "--who", "alice", command=("sh", "-c", "echo $DLOCK_OWNER; cat"))
    waiter = dlock.contend(at, "job").queued(1)
    owner = wait_for(holder.stdout).strip()
    with at.server.client() as c:
        first, second = nodes(c, at.job)
        match = NODE.fullmatch(first)
        uuid = match[1].replace("-", "")  # with a "d" for dlock where a random one has its version
        assert match and uuid[12] == "d" and uuid[:12] + uuid[13:] == owner[:12] + owner[13:]
        assert NODE.fullmatch(second) and int(NODE.fullmatch(second)[2]) == int(match[2]) + 1
        data, stat_ = c.get(f"{at.job}/{first}")
        assert json.loads(data)["who"] == "alice" and json.loads(data)["pid"] == holder.pid
        assert stat_.ephemeralOwner in at.server.sessions()
        assert stat_.czxid == holder.token
        assert holder.finish().status == 0
        assert nodes(c, at.job) == [second]
        assert c.exists(f"{at.job}/{second}").czxid == waiter.token
        assert waiter.held().finish().status == 0
        assert nodes(c, at.job) == []


def test_kazoo_sees_our_nodes_where_told_how_they_are_named(dlock, at):
    holder = dlock.hold(at, "job")
    with at.server.client() as c:
        lock = Lock(c, at.job, extra_lock_patterns=["-lock-"])
        with pytest.raises(LockTimeout):
            lock.acquire(timeout=0.3)
        assert len(lock.contenders()) == 1
        assert holder.finish().status == 0
        assert lock.acquire(timeout=60)
        lock.release()


def test_nothing_is_left_in_the_directory_nor_of_the_sessions(dlock, own_zk):
    at = own(own_zk)
    holder = dlock.hold(at, "job")
    assert run(dlock, at.url, "-n").status == 75
    assert run(dlock, at.url, "-w", BRIEFLY).status == 75
    waiter = dlock.contend(at, "job").queued(1)
    waiter.signal(signal.SIGTERM)
    assert waiter.wait().status == -signal.SIGTERM
    # a farewell needs no answer, but none of them is to be left until its lease ends
    wait_for(lambda: len(own_zk.sessions()) == 1, 10, "the end of three sessions")
    assert holder.finish().status == 0
    wait_for(lambda: own_zk.sessions() == set(), 10, "the end of the last session")
    with own_zk.client() as c:
        assert nodes(c, at.job) == []


def test_empty_directories_are_removed_by_the_server(dlock, make_zk):
    # They are containers.  The server looks for empty ones every so many milliseconds.
    server = make_zk(["-Dznode.container.checkIntervalMs=20"])
    with server.client() as c:
        for _ in range(4):
            assert run(dlock, server.url + "/a/b").status == 0
            wait_for(lambda: not c.exists("/a/b/job"), what="the removal of the directory")
        assert c.exists("/a/b")


def test_tokens_grow_though_numbers_begin_again(dlock, at):
    tokens, numbers = [], []
    with at.server.client() as c:
        for _ in range(3):
            holder = dlock.hold(at, "job")
            tokens.append(holder.token)
            numbers.append(nodes(c, at.job)[0].rsplit("-", 1)[1])
            assert holder.finish().status == 0
            c.delete(at.job)
    assert numbers == ["0000000000"] * 3
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("key, name", [
    ("a/b", "a%2Fb"), ("/", "%2F"), ("//", "%2F%2F"), ("/a/", "%2Fa%2F"), ("a//b", "a%2F%2Fb"), (".", "%2E"),
    ("..", "%2E%2E"), ("a/../b", "a%2F..%2Fb"), ("ü", "%C3%BC"), ("%2F", "%252F"), ("a b", "a%20b"),
])
def test_key_is_one_component(dlock, at, key, name):
    holder = dlock.hold(at, key)
    with at.server.client() as c:
        assert c.get_children(at.root) == [name]
        assert len(c.get_children(f"{at.root}/{name}")) == 1
    assert holder.finish().status == 0


def test_key_zookeeper_at_the_root(dlock, zk_server):
    holder = dlock.start("run", "-u", zk_server.url, "-k", "zookeeper", "--", "cat", stdin=subprocess.PIPE).held()
    with zk_server.client() as c:
        before = set(c.get_children("/zookeeper"))
        assert len(c.get_children("/%7Aookeeper")) == 1
        assert holder.finish().status == 0
        assert set(c.get_children("/zookeeper")) == before == {"config", "quota"}


def test_exact_path(dlock, at):
    path = f"{at.root}/app/locks/job 7"
    holder = dlock.hold(at, "one", "-O", f"path={path}")
    with at.server.client() as c:
        assert len(c.get_children(path)) == 1
        assert c.get_children(at.root) == ["app"]
    assert dlock.run("run", *at.words, "-k", "two", "-O", f"path={path}", "-n", "--", "true").status == 75
    assert run(dlock, at.server.url, "-O", f"path={path}", "-n").status == 75  # the chroot plays no part
    assert holder.finish().status == 0


@pytest.mark.parametrize("dead", [1, 3])
def test_dead_waiters_do_not_block_for_a_session(dlock, at, dead):
    """Their sessions last 30 s; each of them costs the living one a few."""
    holder = dlock.hold(at, "job")
    waiters = [dlock.contend(at, "job").queued(n + 1) for n in range(dead)]
    last = dlock.contend(at, "job", command=("true",)).queued(dead + 1)
    for waiter in waiters:
        waiter.signal(signal.SIGKILL, "keeper")
        assert waiter.wait().status == 71
    assert holder.finish().status == 0
    assert last.wait(6 + 5 * dead).status == 0


def test_no_second_node_while_the_first_is_in_doubt(dlock, tapped, at):
    """The answer to create is lost, and so is the one to the question whether it happened."""
    place, _, tap = tapped
    with at.server.client() as c:
        c.ensure_path(at.job)  # so that the first create is one that succeeds
    tap.lose((*MAKES, SYNC), 2)
    holder = dlock.hold(place, "job")
    assert tap.has_lost
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 1
    assert holder.finish().status == 0


# ---- strangers in the directory ----


def test_a_waiter_that_takes_its_turn_at_the_last_moment_stays(dlock, at, tapped):
    """Whoever holds it for dead has asked for the end of its node by then, of the node as it was."""
    place, _, tap = tapped
    with at.server.client() as c:
        c.ensure_path(at.job)
        first = c.create(f"{at.job}/_c_00000000-0000-d000-0000-000000000000-lock-", b'{"who":"late","dlock":"waiting"}',
                         ephemeral=True, sequence=True)
        waiter = dlock.contend(place, "job").queued(1)
        tap.on((DELETE,), lambda _: c.set(first, b'{"who":"late","dlock":"waited"}'))
        wait_for(lambda: tap.has_acted, what="an attempt to delete it")
        tap.on((GET_DATA,), lambda path: path == first)
        wait_for(lambda: tap.has_acted or waiter.running, what="another look at it")
        assert c.exists(first) and not waiter.running
        c.delete(first)
        assert waiter.held().finish().status == 0


@pytest.mark.parametrize("data", [b"leader of host ", b"{} ", b'{"dlock":"waiting"}\0'], ids=["blank", "object", "nul"])
def test_nodes_of_others_are_not_taken_for_dead_waiters(dlock, at, data):
    name = "_c_22222222-2222-2222-2222-222222222222-lock-"
    with at.server.client() as c:
        c.ensure_path(at.job)
        c.create(f"{at.job}/{name}", data, ephemeral=True, sequence=True)
        assert run(dlock, at.url, "-w", "5s").status == 75
        assert len(nodes(c, at.job)) == 1


BEFORE_US = ["x-lock-0000000000", "block-0000000000"]

BEHIND_US = ["_c_22222222-2222-2222-2222-222222222222-lock-9999999999", "x-lock-0-lock-9999999999"]


def directory(client, at, *children, ephemeral=False, value=b""):
    client.ensure_path(at.job)
    for child in children:
        client.create(f"{at.job}/{child}", value, ephemeral=ephemeral)


@pytest.mark.parametrize("name", BEFORE_US)
def test_foreign_child_before_us_is_waited_for(dlock, at, name):
    with at.server.client() as c:
        directory(c, at, "first")  # so that our numbers begin with 1
        c.delete(f"{at.job}/first")
        directory(c, at, name, value=b"\x7f\0\0\1")
        done = run(dlock, at.url, "-n")
        assert_refused(done, 75)
        waiter = dlock.contend(at, "job").queued(1)
        c.delete(f"{at.job}/{name}")
        assert waiter.held().finish().status == 0


def test_foreign_children_behind_us_are_not_waited_for(dlock, at):
    with at.server.client() as c:
        directory(c, at, *BEHIND_US)
        assert run(dlock, at.url, "-n").status == 0
        assert sorted(nodes(c, at.job)) == sorted(BEHIND_US)


STRANGERS = ["0123456789abcdef0123456789abcdef__lock__0000000000", "0123456789abcdef0123456789abcdef__rlock__0000000000",
             "_c_22222222-2222-2222-2222-222222222222-__READ__0000000000",
             "_c_22222222-2222-2222-2222-222222222222-__WRIT__0000000000"]


@pytest.mark.parametrize("name", STRANGERS, ids=["kazoo", "kazoo-reader", "reader", "writer"])
def test_lock_of_another_kind(dlock, at, name):
    with at.server.client() as c:
        directory(c, at, name)
        assert_refused(run(dlock, at.url), 76, name)
        assert_refused(run(dlock, at.url, "-n"), 76, name)
        assert nodes(c, at.job) == [name]
        c.delete(f"{at.job}/{name}")
    assert run(dlock, at.url).status == 0


def test_kazoo_holds_it(dlock, at):
    with at.server.client() as c:
        with Lock(c, at.job):
            assert_refused(run(dlock, at.url), 76, at.job)
        assert nodes(c, at.job) == []


def test_kazoo_comes_while_we_wait(dlock, at):
    with at.server.client() as c:
        holder = dlock.hold(at, "job")
        waiter = dlock.contend(at, "job").queued(1)
        directory(c, at, STRANGERS[0])
        assert holder.finish().status == 0
        done = waiter.wait()
        assert (done.status, done.stdout) == (76, "")
        assert nodes(c, at.job) == [STRANGERS[0]]


def set_last_number(server, path, value):
    """Makes the next numbered child of `path` bear this number, by a look into the server's snapshot."""
    server.restart()  # it writes one
    server.kill()
    directory_ = os.path.join(server.settings["dataDir"], "version-2")
    files = sorted(os.listdir(directory_), key=lambda name: int(name.rsplit(".", 1)[1], 16))
    snapshot = [f for f in files if f.startswith("snapshot.")][-1]
    for file in files:
        if file != snapshot:
            os.remove(os.path.join(directory_, file))
    with open(os.path.join(directory_, snapshot), "r+b") as f:
        data = bytearray(f.read()[:-13])  # without the seal: a checksum and "/"
        offset = data.index(buffer(path.encode()) + b"\0\0\0\0") + 4 + len(path)  # it has no data
        offset += 4 + 8 + 4 * 8 + 4  # data, acl, czxid, mzxid, ctime, mtime, version
        struct.pack_into(">i", data, offset, value)
        f.seek(0)
        f.write(data + struct.pack(">q", zlib.adler32(data)) + buffer(b"/"))
    server.start()


def test_numbers_that_come_to_their_end(dlock, make_zk):
    """The server's counter stays at 2^31 - 1 (3.8) or becomes negative; neither orders anything."""
    server = make_zk(["-Dzookeeper.digest.enabled=false", "-Dzookeeper.serializeLastProcessedZxid.enabled=false"])  # nothing behind the nodes
    at = own(server)
    with server.client() as c:
        c.ensure_path(at.job)
    set_last_number(server, at.job, (1 << 31) - 2)
    holder = dlock.hold(at, "job")
    with server.client() as c:
        assert nodes(c, at.job)[0].endswith("-lock-2147483646")
        for options in (), ("-n",), ():
            assert_refused(run(dlock, at.url, *options), 78, at.job)
        assert len(nodes(c, at.job)) == 1
        assert holder.finish().status == 0
        assert_refused(run(dlock, at.url), 78, at.job)
        c.delete(at.job)
        assert run(dlock, at.url).status == 0
        directory(c, at, "_c_22222222-2222-2222-2222-222222222222-lock--2147483000")
        assert_refused(run(dlock, at.url), 78, at.job)


def test_thousands_of_children(dlock, own_zk):
    at, children = own(own_zk), size(3000, 10000)
    with own_zk.client() as c:
        directory(c, at)
        for start in range(0, children, 1000):
            batch = c.transaction()
            for n in range(start, start + 1000):
                batch.create(f"{at.job}/_c_{uuid.uuid4()}-lock-{n:010d}")
            batch.commit()
        waiter = dlock.contend(at, "job").queued(children)
        assert_refused(run(dlock, at.url, "-n"), 75)
        for n, name in enumerate(nodes(c, at.job)[:children]):
            c.delete_async(f"{at.job}/{name}")
        assert waiter.held().finish().status == 0


@pytest.mark.parametrize("value", [
    b"x" * 1000000, b"\x1b[2J\x1b]52;c;cm0=\x07" * 30, b"\xff\xfe", b"{" * 5000, b"", b"127.0.0.1", b"[1]", b"__REVOKE__",
    b'{"who":"' + b"x" * 990000 + b'"}', b'{"who":"a\\u0000b","host":"\\u202e","pid":-1}', b'{"who":"alice"}\0',
], ids=range(11))
def test_holder_may_have_written_anything(dlock, at, value):
    with at.server.client() as c:
        directory(c, at, "!-lock-0000000000", value=value)
        assert_refused(run(dlock, at.url, "-n"), 75)
        waiter = dlock.contend(at, "job").queued(1)
        c.delete(f"{at.job}/!-lock-0000000000")
        assert waiter.held().finish().status == 0
        assert "x" * 2000 not in waiter.stderr() and "\x1b" not in waiter.stderr()


def test_parent_that_can_have_no_children(dlock, at):
    with at.server.client() as c:
        c.create(at.root)
        c.create(at.job, ephemeral=True)
        assert_refused(run(dlock, at.url), 76, at.job)


# ---- between two steps ----


@pytest.mark.parametrize("operations", [MAKES, (GET_CHILDREN, GET_CHILDREN2, GET_DATA)], ids=["create", "look"])
def test_directory_removed_between_steps(dlock, at, tapped, operations):
    place, _, tap = tapped
    assert run(dlock, at.url).status == 0
    with at.server.client() as c:
        tap.on(operations, lambda path: c.delete(at.job, recursive=True))
        holder = dlock.hold(place, "job")
        assert tap.has_acted
        assert len(nodes(c, at.job)) == 1  # without it, nobody is excluded
        assert run(dlock, at.url, "-n").status == 75
        assert holder.finish().status == 0


def test_directory_removed_again_and_again(dlock, at):
    over = threading.Event()

    def remove():
        with at.server.client() as c:
            while not over.is_set():
                for path in (at.job, at.root):
                    try:
                        c.delete(path)
                    except (NoNodeError, NotEmptyError):
                        pass

    thread = threading.Thread(target=remove)
    thread.start()
    script = 'mkdir "$0" || exit 99; sleep 0.01; rmdir "$0"'
    inside = os.path.join(dlock.directory, "inside")
    try:
        all_ = [dlock.contend(at, "job", *PATIENT, command=("sh", "-c", script, inside)) for _ in range(10)]
        assert [s.wait().status for s in all_] == [0] * 10
    finally:
        over.set()
        thread.join()


def test_predecessor_that_vanishes_before_it_is_watched(dlock, at, tapped):
    place, _, tap = tapped
    with at.server.client() as c:
        directory(c, at, "!-lock-0000000000")
        tap.on((GET_DATA, EXISTS), lambda path: path.endswith("/!-lock-0000000000") and c.delete(f"{at.job}/!-lock-0000000000"))
        assert run(dlock, place.words[1]).status == 0
        assert tap.has_acted


def test_waiter_whose_node_is_deleted_is_not_granted_without_one(dlock, at):
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at, "job").queued(1)
    with at.server.client() as c:
        c.delete(f"{at.job}/{nodes(c, at.job)[1]}")
        assert holder.finish().status == 0
        waiter.held()
        assert len(nodes(c, at.job)) == 1
        assert c.exists(f"{at.job}/{nodes(c, at.job)[0]}").czxid == waiter.token > holder.token
        assert waiter.finish().status == 0
