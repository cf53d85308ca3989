# Goal of these tests: what ZooKeeper alone can do to dlock (sessions, followers,
# strangers in a lock directory, revocation), and that dlock is at home among the
# users of Apache Curator.

import http.server
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
import zlib

import pytest
from kazoo.exceptions import LockTimeout, NoNodeError, NotEmptyError
from kazoo.recipe.lock import Lock
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from hostile import RESET, SILENCE
from proxy import BOTH, DOWN, UP
from support import DLOCK, boottime, free_port, is_alive, wait_for
from test_fault import (IMPATIENT, IS_GONE, LEASE, LEASE_SECONDS, LIVING_LEASE, SOON, SOON_SECONDS, STUBBORN, At,
                        assert_refused, is_free, run, wait_for_writes)
from zk import (CREATE, CREATE2, CREATE_CONTAINER, DELETE, EXISTS, GET_CHILDREN, GET_CHILDREN2, GET_DATA, NO_NODE,
                PING, SET_DATA, SYNC, Tap, ZkEnsemble, ZkHostile, buffer, reply, stat, text_at, welcome)

NODE = re.compile(r"_c_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-lock-(\d{10})")
LISTS = (GET_CHILDREN, GET_CHILDREN2)
MAKES = (CREATE, CREATE2)

_tests = iter(range(1, 1 << 30))


@pytest.fixture
def at(zk_server):
    """A fresh root on the server of all tests."""
    result = At(f"{zk_server.url}/zk{next(_tests)}")
    result.server, result.url, result.root = zk_server, result.words[1], "/" + result.words[1].rsplit("/", 1)[1]
    result.job = result.root + "/job"
    result.through = lambda proxy: At(f"zk://127.0.0.1:{proxy.port}{result.root}")
    return result


@pytest.fixture
def tapped(at, make_proxy):
    """(place, proxy, tap): the same through a proxy with somebody who reads along."""
    proxy = make_proxy(at.server.port)
    return at.through(proxy), proxy, Tap(proxy)


def own(server, root=""):
    """A server of the test's own, as a place."""
    result = At(server.url + root)
    result.server, result.url, result.job = server, result.words[1], root + "/job"
    return result


def hear(heard):
    """A command that lives until the end of its stdin and notes a TERM."""
    return ("sh", "-c", "trap 'echo TERM >>\"$0\"' TERM; cat", heard)


def nodes(client, path):
    try:
        return sorted(client.get_children(path), key=lambda name: name.rsplit("lock-", 1)[-1])
    except NoNodeError:
        return []


# ---- what others see ----


def test_nodes_are_those_of_curator(dlock, at):
    holder = dlock.hold(at, "job", "--who", "alice", command=("sh", "-c", "echo $DLOCK_OWNER; cat"))
    waiter = dlock.contend(at, "job").queued(1)
    owner = wait_for(holder.stdout).strip()
    with at.server.client() as c:
        first, second = nodes(c, at.job)
        match = NODE.fullmatch(first)
        assert match and match[1].replace("-", "") == owner
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
    assert run(dlock, at.url, "-w", "100ms").status == 75
    waiter = dlock.contend(at, "job").queued(1)
    waiter.signal(signal.SIGTERM)
    assert waiter.wait().status == -signal.SIGTERM
    assert len(own_zk.sessions()) == 1
    assert holder.finish().status == 0
    assert own_zk.sessions() == set()
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


# ---- several servers named ----


def test_server_that_falls_silent_is_left_for_another(dlock, zk_server, make_proxy):
    """The library would wait for two thirds of the session, longer than the lease lasts."""
    proxies = [make_proxy(zk_server.port) for _ in range(2)]
    at = At("zk://" + ",".join(f"127.0.0.1:{p.port}" for p in proxies) + f"/silent{next(_tests)}")
    holder = dlock.hold(at, "job", "-t", "9s")
    waiter = dlock.contend(at, "job", "-t", "9s").queued(1)
    used = next(p for p in proxies if p.bytes[UP])
    used.hold(*BOTH)
    wait_for_writes(zk_server, holder, 12)  # more than a session lasts
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_session_that_another_server_shortens_is_lost(dlock, make_zk, make_proxy):
    """What was promised is no longer so: the command is killed at once."""
    server = make_zk(maxSessionTimeout=90000)
    proxy = make_proxy(server.port)
    at = At(f"zk://127.0.0.1:{proxy.port}")
    holder = dlock.hold(at, "job", "-t", "90s")  # bears the restart
    server.settings["maxSessionTimeout"] = 4000
    server.restart()
    done = holder.wait()
    assert (done.status, done.stderr.count("\n")) == (79, 1) and "shortened" in done.stderr


@pytest.mark.parametrize("data", [b"leader of host ", b"{} ", b'{"dlock":"waiting"}\0'], ids=["blank", "object", "nul"])
def test_nodes_of_others_are_not_taken_for_dead_waiters(dlock, at, data):
    name = "_c_22222222-2222-2222-2222-222222222222-lock-"
    with at.server.client() as c:
        c.ensure_path(at.job)
        c.create(f"{at.job}/{name}", data, ephemeral=True, sequence=True)
        assert run(dlock, at.url, "-w", "5s").status == 75
        assert len(nodes(c, at.job)) == 1



def test_dead_hosts_are_passed_over(dlock, zk_server):
    ports = [free_port(), zk_server.port, free_port()]
    for _ in range(5):  # the order is the library's to choose
        url = "zk://" + ",".join(f"127.0.0.1:{port}" for port in ports) + f"/dead{next(_tests)}"
        assert run(dlock, url).status == 0


def test_host_that_is_a_name(dlock, zk_server):
    done = run(dlock, f"zk://localhost:{zk_server.port}/name")
    assert (done.status, done.stderr) == (0, "")


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("hosts", ["[::1]:{0}", "[::1]:{0},127.0.0.1:{1}", "127.0.0.1:{1},[::1]:{0}"])
def test_ipv6(dlock, make_zk, hosts):
    server = make_zk(clientPortAddress="::")
    done = run(dlock, "zk://" + hosts.format(server.port, free_port()))
    assert (done.status, done.stderr) == (0, "")


def test_silent_host_is_passed_over(dlock, at, make_hostile):
    silent = make_hostile({"*": SILENCE})
    for _ in range(3):
        done = run(dlock, f"zk://127.0.0.1:{silent.port},127.0.0.1:{at.server.port}{at.root}")
        assert (done.status, done.stderr) == (0, "")


# ---- settings ----


@pytest.mark.parametrize("url", [
    "zk://", "zk:///", "zk:h", "zk://a,,b", "zk://h:0", "zk://h:65536", "zk://h:1x", "zk://h//x", "zk://h/x/", "zk://h/.",
    "zk://h/a/../b", "zk://h/%zz", "zk://h/zookeeper", "zk://h?x=y", "zk://u@h", "zk://:hunter2@h", "zk://u:hunter2%zz@h",
])
def test_url_that_makes_no_sense(dlock, url):
    done = run(dlock, url)
    assert_refused(done, 64, "zk")
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("setting", [
    "path=", "path=a", "path=/", "path=/a/", "path=/a//b", "path=/a/../b", "path=/zookeeper/a", "acl=", "acl=all",
    "acl=creator", "connect-timeout=0", "connect-timeout=soon", "mode=lease",
])
def test_setting_that_makes_no_sense(dlock, at, setting):
    assert_refused(run(dlock, at.url, "-O", setting), 64, setting.split("=")[0])


def test_tls_is_not_to_be_had(dlock, zk_server):
    assert_refused(run(dlock, f"zks://127.0.0.1:{zk_server.port}"), 78, "TLS")


# ---- who may do what ----

ALICE, BOB = "alice:hunter2", "bob:swordfish"
SECRETS = ("hunter2", "swordfish")


def with_login(at, login):
    return At(at.url.replace("zk://", f"zk://{login}@"))


def assert_no_secret(*texts):
    for secret in SECRETS:
        assert not any(secret in text for text in texts)


def test_creator_excludes_others_from_the_nodes(dlock, at):
    holder = dlock.hold(with_login(at, ALICE), "job", "-v")
    with at.server.client() as c:
        c.add_auth("digest", ALICE)
        name, = nodes(c, at.job)
        for path in (at.job, f"{at.job}/{name}"):
            acls, _ = c.get_acls(path)
            assert [(a.perms, a.id.scheme, a.id.id.split(":")[0]) for a in acls] == [(31, "digest", "alice")]
    assert run(dlock, with_login(at, ALICE).words[1], "-n").status == 75
    for words in (at.words, with_login(at, BOB).words, with_login(at, "alice:wrong").words):
        assert_refused(dlock.run("run", *words, "-k", "job", "-n", "--", "true"), 77, "acl")
    done = holder.finish()
    assert done.status == 0
    assert_no_secret(done.stderr, json.dumps(holder.events()))


def test_open_lets_everybody_contend(dlock, at):
    holder = dlock.hold(with_login(at, ALICE), "job", "-O", "acl=open")
    with at.server.client() as c:
        assert c.get_acls(f"{at.job}/{nodes(c, at.job)[0]}")[0] == OPEN_ACL_UNSAFE
    for place in (at, with_login(at, BOB)):
        assert dlock.run("run", *place.words, "-k", "job", "-n", "-O", "acl=open", "--", "true").status == 75
    assert holder.finish().status == 0
    assert dlock.run("run", *at.words, "-k", "job", "-n", "--", "true").status == 0


def test_chroot_of_somebody_else(dlock, at):
    with at.server.client() as c:
        c.add_auth("digest", ALICE)
        c.create(at.root, acl=[make_digest_acl("alice", "hunter2", all=True)])
    assert_refused(run(dlock, at.url), 77)
    assert_refused(run(dlock, with_login(at, BOB).words[1]), 77)
    assert run(dlock, with_login(at, ALICE).words[1]).status == 0


@pytest.mark.parametrize("rights", [{"read": True}, {"create": True}, {"read": True, "create": True}],
                         ids=["read", "create", "no-delete"])
def test_some_rights_are_not_enough(dlock, at, rights):
    with at.server.client() as c:
        c.add_auth("digest", ALICE)
        mine = make_digest_acl("alice", "hunter2", all=True)
        c.create(at.root, acl=OPEN_ACL_UNSAFE)
        c.create(at.job, acl=[mine, make_digest_acl("bob", "swordfish", **rights)])
        done = run(dlock, with_login(at, BOB).words[1])
        assert_no_secret(done.stderr)
        if len(rights) == 2:
            # Granted, and then its node cannot be deleted; it goes with the session.
            assert done.status in (0, 77), done
        else:
            assert_refused(done, 77)
        wait_for(lambda: nodes(c, at.job) == [], timeout=10, what="the end of its session, which would last longer")


def test_rights_taken_away_from_a_holder(dlock, at):
    """The node can no longer be written: the lease cannot be renewed."""
    holder = dlock.hold(at, "job", *LEASE)
    with at.server.client() as c:
        c.add_auth("digest", ALICE)
        c.set_acls(f"{at.job}/{nodes(c, at.job)[0]}", [make_digest_acl("alice", "hunter2", all=True)])
        done = holder.wait()
        assert done.status == 79 and done.stderr.count("\n") == 1
        wait_for(lambda: nodes(c, at.job) == [], what="the end of the session")


@pytest.mark.parametrize("content, mode, status", [
    (ALICE, 0o600, 0), (ALICE + "\n", 0o400, 0), (ALICE, 0o640, 78), (ALICE, 0o604, 78), ("", 0o600, 78), ("\n", 0o600, 78),
    ("hunter2", 0o600, 78), (":hunter2", 0o600, 78), (f"{ALICE}\nmore\n", 0o600, 78), (None, 0, 78), ("directory", 0, 78),
], ids=range(11))
def test_auth_file(dlock, at, tmp_path, content, mode, status):
    file = tmp_path / "login"
    if content == "directory":
        file.mkdir()
    elif content is not None:
        file.write_text(content)
        file.chmod(mode)
    holder = dlock.hold(with_login(at, ALICE), "job") if status == 0 else None
    done = run(dlock, at.url, "-n", "-O", f"auth-file={file}")
    assert_no_secret(done.stderr)
    if status:
        assert_refused(done, status, "auth-file")
    else:
        assert done.status == 75  # the same user: it sees the holder
        assert holder.finish().status == 0


def test_password_appears_nowhere(dlock, at, make_zk):
    url = with_login(at, ALICE).words[1]
    script = "env | grep DLOCK_ | grep -v DLOCK_ZK_URL; cat"
    holder = dlock.start("run", "-b", "zk", "-v", "-k", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE,
                         env={"DLOCK_ZK_URL": url}).held()
    waiter = dlock.start("run", "-b", "zk", "-v", "-k", "job", "-w", "300ms", "--", "true", env={"DLOCK_ZK_URL": url})
    done = [waiter.wait(), holder.finish()]
    assert [d.status for d in done] == [75, 0]
    port = free_port()
    for url in (f"zk://{ALICE}@127.0.0.1:{port}", f"zk://{ALICE}@dlock-test.invalid", f"zks://{ALICE}@h",
                f"zk://{ALICE}@h//x", f"zk://{ALICE}@127.0.0.1:{make_zk(maxSessionTimeout=600).port}"):
        done.append(run(dlock, url, "-v", *IMPATIENT))
        assert done[-1].status in (64, 69, 78)
    for d in done:
        assert_no_secret(d.stdout, d.stderr)
        assert all(line.startswith("dlock: ") for line in d.stderr.splitlines()), d
    with at.server.client() as c:
        c.add_auth("digest", ALICE)
        assert_no_secret(*(json.dumps(e) for s in (holder, waiter) for e in s.events()))


# ---- strangers in the directory ----

BEFORE_US = ["!", "lock-", "lock--", "x-lock-!", "x-lock-0000000000", "block-000000000", "0000000000", "-", "0"]
BEHIND_US = ["x", "readme", "LOCK-0000000000", "lock-x", "write-0000000000", "x-0000000000-", "~", "ü",
             "_c_22222222-2222-2222-2222-222222222222-lock-9999999999", "x-lock-0-lock-9", "lock", "_locknode_"]


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
    server = make_zk(["-Dzookeeper.digest.enabled=false"])
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


def test_ten_thousand_children(dlock, own_zk):
    at = own(own_zk)
    with own_zk.client() as c:
        directory(c, at)
        for start in range(0, 10000, 1000):
            batch = c.transaction()
            for n in range(start, start + 1000):
                batch.create(f"{at.job}/_c_{uuid.uuid4()}-lock-{n:010d}")
            batch.commit()
        waiter = dlock.contend(at, "job").queued(10000)
        assert_refused(run(dlock, at.url, "-n"), 75)
        for n, name in enumerate(nodes(c, at.job)[:10000]):
            c.delete_async(f"{at.job}/{name}")
        assert waiter.held().finish().status == 0


@pytest.mark.parametrize("value", [
    b"x" * 1000000, b"\x1b[2J\x1b]52;c;cm0=\x07" * 30, b"\xff\xfe", b"{" * 5000, b"", b"127.0.0.1", b"[1]", b"__REVOKE__",
    b'{"who":"' + b"x" * 990000 + b'"}', b'{"who":"a\\u0000b","host":"\\u202e","pid":-1}', b'{"who":"alice"}\0',
], ids=range(11))
def test_holder_may_have_written_anything(dlock, at, value):
    with at.server.client() as c:
        directory(c, at, "!", value=value)
        assert_refused(run(dlock, at.url, "-n"), 75)
        waiter = dlock.contend(at, "job").queued(1)
        c.delete(f"{at.job}/!")
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
        all_ = [dlock.contend(at, "job", command=("sh", "-c", script, inside)) for _ in range(10)]
        assert [s.wait().status for s in all_] == [0] * 10
    finally:
        over.set()
        thread.join()


def test_predecessor_that_vanishes_before_it_is_watched(dlock, at, tapped):
    place, _, tap = tapped
    with at.server.client() as c:
        directory(c, at, "!")
        tap.on((GET_DATA, EXISTS), lambda path: path.endswith("/!") and c.delete(f"{at.job}/!"))
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


# ---- answers that get lost ----


@pytest.mark.parametrize("operations", [MAKES, LISTS], ids=["create", "list"])
@pytest.mark.parametrize("exists", [False, True], ids=["fresh", "used"])
def test_connection_cut_before_an_answer(dlock, at, tapped, operations, exists):
    place, proxy, tap = tapped
    if exists:
        assert run(dlock, at.url).status == 0
    tap.lose(operations, 1)
    holder = dlock.hold(place, "job")
    assert tap.has_lost and proxy.connections >= 2
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 1
        assert c.exists(f"{at.job}/{nodes(c, at.job)[0]}").czxid == holder.token
    assert holder.finish().status == 0
    assert is_free(dlock, at)


def test_connection_cut_after_any_byte(dlock, at, make_proxy):
    """Once, anywhere: it is connected again, and what had been done is found."""
    proxy = make_proxy(at.server.port)
    place = at.through(proxy)
    assert run(dlock, place.words[1]).status == 0
    total, cuts = proxy.bytes[DOWN], 0
    with at.server.client() as c:
        for n in range(1, total, total // 12):
            before = proxy.connections
            proxy.cut(DOWN, n, once=True)
            holder = dlock.contend(place, "job", *LIVING_LEASE)
            wait_for(lambda: holder.running or holder.poll() is not None, what="the grant")
            assert holder.running, (n, holder.result())
            assert len(nodes(c, at.job)) == 1
            assert holder.finish().status == 0, n
            assert nodes(c, at.job) == []
            cuts += proxy.connections > before + 1
            proxy.heal()
    assert cuts > 5


def test_lost_answer_of_a_waiter_is_found_again(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    tap.lose(MAKES, 1)
    waiter = dlock.contend(place, "job").queued(1)
    assert tap.has_lost
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 2
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0


def test_create_whose_answer_never_comes_is_withdrawn(dlock, at, tapped):
    place, proxy, tap = tapped
    tap.on(MAKES, lambda path: "-lock-" in path and proxy.drop(DOWN))
    assert_refused(run(dlock, place.words[1], *IMPATIENT, *LEASE), 69, str(proxy.port))
    assert tap.has_acted
    assert run(dlock, at.url, "-w", SOON).status == 0


@pytest.mark.parametrize("fault", ["reset", "hold", "refuse"])
def test_waiter_survives_a_partition(dlock, at, make_proxy, fault):
    proxy = make_proxy(at.server.port)
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at.through(proxy), "job", "-t", "6s", command=("true",)).queued(1)
    before = proxy.connections
    if fault == "refuse":
        proxy.refuse()
    if fault == "hold":
        proxy.hold(*BOTH)
        wait_for(lambda: proxy.connections > before, what="a new attempt")
    proxy.reset()
    if fault == "refuse":
        time.sleep(0.5)  # some attempts fail
        proxy.accept()
    proxy.heal()
    wait_for(lambda: proxy.connections > before, what="the waiter's return")
    with at.server.client() as c:
        wait_for(lambda: len(nodes(c, at.job)) == 2, what="the waiter's only node")
        assert holder.finish().status == 0
        assert waiter.wait().status == 0
        assert nodes(c, at.job) == []


def test_holder_survives_resets(dlock, at, make_proxy, tmp_path):
    proxy, heard = make_proxy(at.server.port), tmp_path / "heard"
    holder = dlock.hold(at.through(proxy), "job", *LIVING_LEASE, command=hear(heard))
    for _ in range(3):
        before = proxy.connections
        proxy.reset()
        wait_for(lambda: proxy.connections > before, what="a new connection")
        wait_for_writes(at.server, holder)
    assert holder.finish().status == 0
    assert not heard.exists()


def test_lost_answer_to_a_renewal(dlock, at, tapped, tmp_path):
    # The version has grown, though we were not told: it is our own write.
    place, _, tap = tapped
    heard = tmp_path / "heard"
    holder = dlock.hold(place, "job", *LIVING_LEASE, command=hear(heard))
    for _ in range(2):
        tap.lose((SET_DATA,), 1)
        wait_for(lambda: tap.has_lost, what="a lost answer")
        wait_for_writes(at.server, holder, 2)
    assert holder.finish().status == 0
    assert not heard.exists()


def test_lost_answer_to_a_release_is_no_lost_lock(dlock, at, tapped):
    place, _, tap = tapped
    holder = dlock.hold(place, "job")
    tap.lose((DELETE,), 1)
    done = holder.finish()
    assert tap.has_lost
    assert done.status == 0
    with at.server.client() as c:
        assert nodes(c, at.job) == []


# ---- sessions ----


def assert_killed_at_once(started, heard, since, seconds=8):
    """79 long before the lease is short, and without a polite word before."""
    done = started.wait()
    assert done.status == 79
    assert boottime() - since < seconds
    assert done.stderr.count("\n") == 1 and "job" in done.stderr
    assert not heard.exists()


def end_session(at, proxy, tap):
    """While its client is kept from the server."""
    proxy.refuse()
    proxy.reset()
    at.server.end_session(*tap.sessions[-1])
    proxy.accept()


def test_session_ended_by_somebody_else(dlock, at, tapped, tmp_path):
    place, proxy, tap = tapped
    heard = tmp_path / "heard"
    holder = dlock.contend(place, "job", command=("sh", "-c", STUBBORN, heard)).held()
    next_ = dlock.contend(at, "job", command=("cat",)).queued(1)
    before = boottime()
    end_session(at, proxy, tap)
    next_.held()
    assert_killed_at_once(holder, heard, before)
    with at.server.client() as c:
        assert len(nodes(c, at.job)) == 1  # nothing was taken again
    assert next_.finish().status == 0


def test_session_of_a_waiter_ended_by_somebody_else(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(place, "job").queued(1)
    end_session(at, proxy, tap)
    with at.server.client() as c:
        wait_for(lambda: len(nodes(c, at.job)) == 2, what="its return")
        assert holder.finish().status == 0
        assert waiter.held().token > holder.token
        assert waiter.finish().status == 0
        assert nodes(c, at.job) == []


def test_session_ended_while_a_renewal_is_under_way(dlock, at, tapped):
    place, proxy, tap = tapped
    holder = dlock.hold(place, "job", "-t", "6s")
    held = threading.Event()
    tap.on((SET_DATA,), lambda path: (proxy.hold(*BOTH), held.set()))
    assert held.wait(60)
    at.server.end_session(*tap.sessions[-1])
    proxy.heal()
    assert holder.wait().status == 79


def test_node_deleted_by_an_admin(dlock, at, tmp_path):
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", command=("sh", "-c", STUBBORN, heard)).held()
    with at.server.client() as c:
        before = boottime()
        c.delete(at.job, recursive=True)
        assert_killed_at_once(holder, heard, before)
        assert nodes(c, at.job) == []


def test_node_deleted_after_a_renewal(dlock, at, tmp_path):
    # From the first renewal on it is watched, and not only read when the next one is due, after 5 s.
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", "-t", "60s", command=("sh", "-c", STUBBORN, heard)).held()
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        version = c.exists(path).version
        wait_for(lambda: c.exists(path).version >= version + 1, what="a renewal")
        before = boottime()
        c.delete(path)
        assert_killed_at_once(holder, heard, before, 3)


def test_node_deleted_and_made_again_by_somebody_else(dlock, at, tmp_path):
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", command=("sh", "-c", STUBBORN, heard)).held()
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        data = c.get(path)[0]
        before = boottime()
        both = c.transaction()
        both.delete(path)
        both.create(path, data)
        both.commit()
        assert_killed_at_once(holder, heard, before)
        assert c.exists(path)  # not ours to delete
        c.delete(path)


# What is refused leaves no time for a second attempt to renew before TERM: 1 s of a server that is alone
# would do (half a second is the margin of KILL, two attempts are 0.1 s each), of an ensemble's not (unit_step.c).
@pytest.mark.parametrize("settings, options, status", [
    ({"maxSessionTimeout": 600}, (), 78),
    ({"maxSessionTimeout": 600}, LEASE, 78),
    ({"maxSessionTimeout": 4000}, ("--grace", "5s"), 78),
    ({"maxSessionTimeout": 4000}, (), 0),
    ({"minSessionTimeout": 8000}, LEASE, 0),
])
def test_negotiated_timeout_is_what_counts(dlock, make_zk, settings, options, status):
    at = own(make_zk(**settings))
    if status:
        assert_refused(run(dlock, at.url, *options), status, "gives a lease of")
        with at.server.client() as c:
            assert nodes(c, at.job) == []
    else:
        assert run(dlock, at.url, *options).status == 0


def test_shorter_lease_than_asked_for_is_obeyed(dlock, make_zk, make_proxy):
    at = own(make_zk(maxSessionTimeout=4000))
    proxy = make_proxy(at.server.port)
    holder = dlock.hold(At(f"zk://127.0.0.1:{proxy.port}"), "job", "-t", "60s")
    next_ = dlock.contend(at, "job", command=("sh", "-c", IS_GONE, holder.command)).queued(1)
    wait_for_writes(at.server, holder, 3)
    before = boottime()
    proxy.hold(*BOTH)
    assert holder.wait().status == 79
    assert boottime() - before < 4
    assert next_.wait().status == 0


def test_longer_lease_than_asked_for_is_used(dlock, make_zk, make_proxy):
    at = own(make_zk(minSessionTimeout=7000))
    proxy = make_proxy(at.server.port)
    holder = dlock.hold(At(f"zk://127.0.0.1:{proxy.port}"), "job", *LEASE)
    before = boottime()
    proxy.hold(*BOTH)
    assert holder.wait().status == 79
    assert 3.5 < boottime() - before < 7  # with 3 s, the command would be gone after 2.5 s


# ---- revocation ----


@pytest.mark.parametrize("stubborn", [False, True], ids=["polite", "stubborn"])
def test_revocation_stops_the_command_and_gives_the_lock_back(dlock, at, tmp_path, stubborn):
    heard = tmp_path / "heard"
    script = STUBBORN if stubborn else "trap 'echo TERM >>\"$0\"; exit 0' TERM; while :; do read x || sleep 0.1; done"
    holder = dlock.contend(at, "job", "--grace", "1s", command=("sh", "-c", script, heard)).held()
    command = holder.command
    next_ = dlock.contend(at, "job", command=("sh", "-c", IS_GONE, command)).queued(1)
    with at.server.client() as c:
        before = boottime()
        c.set(f"{at.job}/{nodes(c, at.job)[0]}", b"__REVOKE__")
        done = holder.wait()
        assert boottime() - before < 30 / 3 - 2  # before the next renewal
        assert done.status == 79 and done.stderr.count("\n") == 1 and "job" in done.stderr
        assert heard.read_text() == "TERM\n"
        assert next_.wait().status == 0
        assert nodes(c, at.job) == []


def test_revocation_after_renewals(dlock, at, tmp_path):
    heard = tmp_path / "heard"
    holder = dlock.contend(at, "job", "-t", "9s", command=("sh", "-c", STUBBORN, heard)).held()
    wait_for_writes(at.server, holder)
    with at.server.client() as c:
        c.set(f"{at.job}/{nodes(c, at.job)[0]}", b"__REVOKE__")
        assert holder.wait().status == 79
        assert heard.read_text() == "TERM\n"
        assert nodes(c, at.job) == []


@pytest.mark.parametrize("value", [b"", b"hello", b"__REVOKE__ ", b"__revoke__", b"x" * 100000], ids=range(5))
def test_other_writes_to_our_node_do_no_harm(dlock, at, tmp_path, value):
    heard = tmp_path / "heard"
    holder = dlock.hold(at, "job", *LIVING_LEASE, command=hear(heard))
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        for _ in range(2):
            version = c.set(path, value).version
            wait_for(lambda: c.exists(path).version >= version + 2, what="two renewals")
        assert holder.finish().status == 0
        assert not heard.exists()
        assert nodes(c, at.job) == []


def test_writes_without_end_do_no_harm(dlock, at, tmp_path):
    heard, over = tmp_path / "heard", threading.Event()
    holder = dlock.hold(at, "job", *LIVING_LEASE, command=hear(heard))

    def write():
        with at.server.client() as c:
            path = f"{at.job}/{nodes(c, at.job)[0]}"
            while not over.wait(0.02):
                c.set(path, b"mine")

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(10)  # it would be lost by now, if it could not be renewed
    assert holder.poll() is None
    over.set()
    thread.join()
    assert holder.finish().status == 0
    assert not heard.exists()


# ---- many waiters ----


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
    near = [dlock.contend(at, "job", "-t", "60s", command=("true",)) for _ in range(9)]
    for waiter in near:
        waiter.event("waiting", timeout=60)
    far = [dlock.contend(place, "job", "-t", "6s", command=("true",)) for _ in range(30)]
    for waiter in far:
        waiter.event("waiting", timeout=60)
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
    waiters = [dlock.contend(place, "job", "-t", "60s", command=("true",)) for _ in range(n)]
    for waiter in waiters:
        waiter.event("waiting", timeout=60)
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
    assert max(per_tenth) <= n / 3
    proxy.heal()
    proxy.reset()
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * n


def test_release_wakes_one_of_two_hundred(dlock, own_zk, make_proxy):
    at, proxy = own(own_zk), make_proxy(own_zk.port)
    tap = Tap(proxy)
    holder = dlock.hold(at, "job")
    through = At(f"zk://127.0.0.1:{proxy.port}")
    waiters = [dlock.contend(through, "job", "-t", "60s", command=("true",)) for _ in range(200)]
    for waiter in waiters:
        waiter.event("waiting", timeout=60)
    wait_for(lambda: int(own_zk.metrics()["watch_count"]) >= 200, what="all watches")
    assert tap.ended == []
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * 200
    woken = [(path, receiver) for path, receiver in tap.ended if path != receiver]
    assert len(woken) == 200  # by 201 releases: nobody waits for the last one
    assert len({path for path, _ in woken}) == len({receiver for _, receiver in woken}) == 200


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


def test_slow_server_is_given_the_time_of_wait(dlock, at, make_proxy, tapped):
    """Each answer takes longer than connect-timeout: with --wait there is time, and it is spent in one session."""
    place, proxy, tap = tapped
    other = make_proxy(at.server.port)
    holder = dlock.hold(at, "job")
    proxy.delay = other.delay = 1.5  # there, and back
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
        assert boottime() - before < most


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
    assert boottime() - before < 10


def test_all_waiters_are_back_soon_after_a_restart(dlock, own_zk):
    at, n = own(own_zk), 60
    holder = dlock.hold(at, "job", "-t", "60s")
    waiters = [dlock.contend(at, "job", "-t", "60s", command=("true",)) for _ in range(n)]
    for waiter in waiters:
        waiter.event("waiting", timeout=60)
    own_zk.restart()
    wait_for(lambda: len(own_zk.sessions()) == n + 1 and int(own_zk.metrics()["num_alive_connections"]) > n, what="all")
    with own_zk.client() as c:
        assert len(nodes(c, at.job)) == n + 1
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * n


# ---- servers that are not what they should be ----


class Http(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(params=["redis", "pg", "http"])
def other(request):
    """The port of a server that is something else."""
    if request.param == "redis":
        yield request.getfixturevalue("redis_server").port
    elif request.param == "pg":
        yield request.getfixturevalue("pg_server").port
    else:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield server.server_port
            server.shutdown()


def test_server_that_is_something_else(dlock, other):
    """It is said at once, not after a time-out."""
    url = f"zk://127.0.0.1:{other}"
    for options in (("-O", "connect-timeout=60s"), ("-w", "inf"), ("-n", "-O", "connect-timeout=60s")):
        assert_refused(run(dlock, url, *options, timeout=15), 76, str(other), "is this a ZooKeeper?")


def test_lease_of_a_single_server_is_the_whole_session(dlock, at, ensemble):
    """It is itself the leader that counts; a member of an ensemble may not be."""
    for place, full in ((at, True), (own(ensemble.servers[0]), False), (own(ensemble.servers[1]), False)):
        holder = dlock.hold(place, "job", "-t", "12s", "-v")
        wait_for(lambda: "renew: ok" in holder.stderr(), what="a renewal")
        left = float(re.search(r"renew: ok .* lease for ([\d.]+) s", holder.stderr())[1])
        assert (left > 11) == full and left > 6
        assert holder.finish().status == 0


@pytest.mark.parametrize("late", [False, True], ids=["prompt", "late"])
def test_what_a_server_says_of_itself_is_not_believed_of_the_next(dlock, make_hostile, late):
    """The first connection is to a server that is alone, or a leader that looks so; the second to a follower.

    `late`: the first answers no request but the question who it is, with the end of the connection behind it.
    """
    asked = []  # one question a connection

    def nothing(xid):
        return reply(xid, 0, buffer(b""), stat())

    def who(xid, request):
        if text_at(request, 8) != "/zookeeper/config":
            return reply(xid, 0, buffer(b"{}"), stat(version=server.version, length=2))
        asked.append(xid)
        if len(asked) > 1:
            return reply(xid, 0, buffer(b"server.1=a:1:2"), stat(length=14))
        return SILENCE if late else nothing(xid)

    def create(xid, request):
        return nothing(asked[0]) if late and len(asked) == 1 else server.make(xid, request)

    def lists(xid, _):
        if late and len(asked) == 1:
            raise ConnectionResetError
        return reply(xid, 0, struct.pack(">i", 1), buffer(server.name), stat())

    def write(xid, request):
        if server.version == 1 and len(asked) == 1:
            raise ConnectionResetError
        return server.set(xid, request)

    server = make_hostile(program=ZkHostile, first=welcome(12000), answers={
        GET_DATA: who, SET_DATA: write, **to_all(MAKES, create), **to_all(LISTS, lists)})
    holder = dlock.hold(At(server.url), "job", "-t", "12s", "-v")
    wait_for(lambda: len(asked) == 2 and holder.stderr().count("renew: ok") == 3, what="renewals")
    leases = [float(left) for left in re.findall(r"renew: ok .* lease for ([\d.]+) s", holder.stderr())]
    assert [left > 11 for left in leases[:2]] == [not late, False]
    assert holder.finish().status == 0


@pytest.mark.parametrize("n", [-1 << 63, -1, 0, (1 << 63) - 1])
def test_odd_numbers_of_nodes(dlock, make_hostile, n):
    small = max(-1 << 31, min(n, (1 << 31) - 1))
    odd = struct.pack(">qqqqiiiqiiq", 7, n, n, n, small, small, small, n, small, small, n)

    def children_(xid, _):
        return reply(xid, 0, struct.pack(">i", 2), buffer(b"!"), buffer(server.name), odd)

    server = make_hostile(program=ZkHostile, answers={
        **to_all(LISTS, children_), GET_DATA: lambda xid, _: reply(xid, 0, buffer(b"{}"), odd),
        EXISTS: lambda xid, _: reply(xid, 0, odd)})
    assert_refused(run(dlock, server.url, "-w", "2s", timeout=20), 75)



def test_read_only_server(dlock, make_zk):
    # A member of an ensemble whose other members are not there.
    dead = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3)}
    server = make_zk(["-Dreadonlymode.enabled=true"], member=1, **dead)
    assert wait_for(server.mode) == "read-only"
    # It turns clients away that do not ask for reading only, as one without a quorum does.
    assert_refused(run(dlock, server.url, *IMPATIENT), 69, "quorum")


def test_server_without_quorum(dlock, make_zk):
    dead = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3)}
    server = make_zk(member=1, wait=False, **dead)
    wait_for(lambda: "not currently serving" in (server.try_four("srvr") or ""), what="a server that serves nobody")
    assert_refused(run(dlock, server.url, *IMPATIENT), 69, str(server.port))


def test_server_with_too_many_clients(dlock, make_zk):
    server = make_zk(maxClientCnxns=1)
    with server.client():
        assert_refused(run(dlock, server.url, *IMPATIENT), 69, str(server.port))


GARBAGE = {
    "length-minus-1": b"\xff\xff\xff\xff",
    "length-int-max": b"\x7f\xff\xff\xff" + b"x" * 5000,
    "length-int-min": b"\x80\0\0\0",
    "length-0": b"\0\0\0\0",
    "length-10M": struct.pack(">i", 10 << 20) + b"x" * 100000,
    "truncated": welcome(30000)[:20],
    "short": buffer(welcome(30000)[4:20]),
    "password-length": welcome(30000)[:20] + b"\x7f\xff\xff\xff" + b"x" * 16,
    "password-negative": welcome(30000)[:20] + b"\xff\xff\xff\xff" + b"x" * 16,
    "ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "redis": b"-ERR unknown command\r\n",
    "zeros": bytes(100),
    "reply-before": welcome(30000) + reply(77, 0, b"x" * 100),
    "replies-before": welcome(30000) + reply(1, 0) * 50,
    "event-unasked": welcome(30000) + reply(-1, 0, struct.pack(">ii", 2, 3), buffer(b"/x")),
    "event-torn": welcome(30000) + reply(-1, 0, struct.pack(">ii", 2, 3), b"\x7f\xff\xff\xff/x"),
    "auth-failed": welcome(30000) + reply(-4, -115),
}


def assert_all_survived(dlock, servers, *options):
    """Nothing was run, and one line says so, whatever these servers (by name) do; all at once, for time's sake.

    Some of it makes libzookeeper reach for memory that is not its own (a reply to nothing, a torn
    one).  Then the keeper dies of it (71), alone and before anything is locked.
    """
    started = {name: dlock.contend(At(server.url), "job", "-q", *IMPATIENT, *options, command=("echo", "ran"))
               for name, server in servers.items()}
    odd = {}
    for name, one in started.items():
        done = one.wait()
        told = [line for line in done.stderr.splitlines() if "waited" not in line]  # a slow machine waits, and says so
        if done.status not in (69, 71, 76, 77) or done.stdout or len(told) != 1:
            odd[name] = done
    assert not odd


def test_garbage_for_a_welcome(dlock, make_hostile):
    silent = {o: SILENCE for o in (*MAKES, *LISTS, CREATE_CONTAINER)}
    assert_all_survived(dlock, {name: make_hostile(program=ZkHostile, first=first, answers=silent)
                                for name, first in GARBAGE.items()})


def test_banner_of_another_protocol(dlock, make_hostile):
    banners = {"ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "smtp": b"220 mail.example ESMTP\r\n", "zeros": b"\0" * 10}
    assert_all_survived(dlock, {name: make_hostile(program=ZkHostile, first=SILENCE, greeting=banner)
                                for name, banner in banners.items()})


def test_reset_after_any_byte(dlock, make_hostile):
    assert_all_survived(dlock, {n: make_hostile(program=ZkHostile, reset_after=n)
                                for n in (0, 1, 3, 4, 5, 20, 40, 41, 42, 50, 80, 100)})


@pytest.mark.parametrize("timeout", [0, -1, -(1 << 31), 1, 999])
def test_lease_of_no_use(dlock, make_hostile, timeout):
    server = make_hostile(program=ZkHostile, first=welcome(timeout))
    done = run(dlock, server.url, *IMPATIENT)
    assert done.status in (69, 76, 78), done
    assert_refused(done, done.status, str(server.port))


def test_lease_of_25_days(dlock, make_hostile):
    # The library reckons with twice of that, as an int.
    server = make_hostile(program=ZkHostile, first=welcome((1 << 31) - 1))
    done = run(dlock, server.url, *IMPATIENT)
    assert done.status in (0, 69, 76, 78), done


def test_hostile_server_can_also_be_good(dlock, make_hostile):
    server = make_hostile(program=ZkHostile)
    done = run(dlock, server.url)
    assert (done.status, done.stdout, done.stderr) == (0, "ran\n", "")
    assert server.count(DELETE) == 1


def children(count, *names):
    return lambda xid, _: reply(xid, 0, struct.pack(">i", count), *(buffer(n) for n in names), stat())


def to_all(operations, answer):
    return {operation: answer for operation in operations}


NONSENSE = {
    "create-no-body": to_all(MAKES, lambda xid, _: reply(xid)),
    "create-no-stat": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b"/job/_c_x-lock-0000000000"))),
    "create-path-huge": to_all(MAKES, lambda xid, _: reply(xid, 0, b"\x7f\xff\xff\xff", stat())),
    "create-path-negative": to_all(MAKES, lambda xid, _: reply(xid, 0, b"\xff\xff\xff\xfe", stat())),
    "create-path-none": to_all(MAKES, lambda xid, _: reply(xid, 0, b"\xff\xff\xff\xff", stat())),
    "create-path-empty": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b""), stat())),
    "create-path-other": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b"/elsewhere"), stat())),
    "create-path-long": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b"/job/" + b"x" * 100000), stat())),
    "create-error": to_all(MAKES, lambda xid, _: reply(xid, -99999)),
    "create-other-xid": to_all(MAKES, lambda xid, _: reply(xid + 7, 0, buffer(b"/job/x"), stat())),
    "children-count-huge": to_all(LISTS, children((1 << 31) - 1, b"a")),
    "children-count-negative": to_all(LISTS, children(-5, b"a")),
    "children-count-1M": to_all(LISTS, children(1000000, b"a")),
    "children-name-huge": to_all(LISTS, lambda xid, _: reply(xid, 0, struct.pack(">ii", 1, (1 << 31) - 1))),
    "children-no-body": to_all(LISTS, lambda xid, _: reply(xid)),
    "children-error": to_all(LISTS, lambda xid, _: reply(xid, -4)),
    "children-none": to_all(LISTS, children(-1)),
}


def test_nonsense_for_an_answer(dlock, make_hostile):
    servers = {name: make_hostile(program=ZkHostile, answers=answers) for name, answers in NONSENSE.items()}
    assert_all_survived(dlock, servers, *LEASE)


@pytest.mark.parametrize("czxid", [0, -5])
def test_token_that_is_none(dlock, make_hostile, czxid):
    def create(xid, request):
        server.node = server.created(request)
        return reply(xid, 0, buffer(server.node), stat(czxid=czxid))

    server = make_hostile(program=ZkHostile, answers=to_all(MAKES, create))
    assert_refused(run(dlock, server.url), 76, str(server.port))


def test_nonsense_for_a_renewal(dlock, make_hostile):
    """An answer to nothing (`twice`) kills libzookeeper, and so the keeper; the command is stopped all the same."""
    answers = {
        "error": lambda xid, _: reply(xid, -99999), "silence": SILENCE, "reset": RESET,
        "torn": b"\0\0\0\x50\0\0", "huge": b"\x7f\xff\xff\xff", "negative": b"\xff\xff\xff\xff",
        "twice": lambda xid, _: reply(xid, 0, stat(version=1)) + reply(xid, 0, stat(version=1)),
        "not-yours": lambda xid, _: reply(xid, NO_NODE), "denied": lambda xid, _: reply(xid, -102),
    }
    holders = {}
    for name, answer in answers.items():
        server = make_hostile(program=ZkHostile, first=welcome(3000), answers={SET_DATA: answer})
        holders[name] = dlock.contend(At(server.url), "job", *LEASE)
    ended = {}
    for name, holder in holders.items():
        done = holder.wait()
        ended[name] = done.status, done.stderr.count("\n")
    assert ended == dict.fromkeys(answers, (79, 1))


def test_flood_of_events_does_no_harm(dlock, make_hostile):
    event = reply(-1, 0, struct.pack(">ii", 3, 3), buffer(b"/job/x"))
    server = make_hostile(program=ZkHostile, first=welcome(30000) + event * 20000)
    assert run(dlock, server.url).status == 0


def test_frozen_server_does_not_hold_up_the_end(dlock, own_zk):
    """The library waits for an answer to its farewell; dlock does not wait for it."""
    at = own(own_zk)
    holder = dlock.hold(at, "job", *LEASE)
    own_zk.pause()
    before = boottime()
    done = holder.finish()
    assert done.status == 0 and "job" in done.stderr  # the release was not confirmed
    assert boottime() - before < SOON_SECONDS
    own_zk.resume()
    assert run(dlock, at.url, "-w", SOON).status == 0


# ---- a server that lost everything ----


def test_restart_without_its_data(dlock, own_zk, tmp_path):
    at, heard = own(own_zk), tmp_path / "heard"
    holder = dlock.contend(at, "job", *LEASE, command=("sh", "-c", STUBBORN, heard)).held()
    waiter = dlock.contend(at, "job", *LEASE, command=("true",)).queued(1)
    own_zk.kill()
    own_zk.forget()
    own_zk.start()
    assert holder.wait().status == 79
    assert waiter.wait().status == 69  # the server turns away who has seen more than it knows
    assert run(dlock, at.url).status == 0


# ---- three servers ----


# Debian's settings, apart from syncLimit: the leader knows of a client only what followers tell it twice a tick.
COARSE = {"tickTime": 2000, "minSessionTimeout": 4000}


@pytest.mark.parametrize("settings, program", [({}, "dlock"), (COARSE, "dlock"), ({}, "dlock-reads")],
                         ids=["writes", "writes-coarse", "reads"])
def test_follower_cut_from_its_leader(dlock, make_zk, settings, program):
    """The follower goes on answering the holder; the leader ends its session meanwhile.

    Where renewals are reads, which any follower answers, two run at once: the
    binary that does so shows that this test can fail.
    """
    ensemble = make_zk(program=ZkEnsemble, **settings)
    follower, leader = ensemble.followers[0], ensemble.leader
    binary = DLOCK if program == "dlock" else os.path.join(os.path.dirname(DLOCK), program)
    holder = dlock.contend(own(follower), "job", "-t", "6s", program=binary).held()  # less than syncLimit
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
    holders = [dlock.hold(at, "job", "-t", "15s", command=hear(heard)),
               dlock.hold(own(followers[0]), "other", "-t", "15s", command=hear(heard))]
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
    holder = dlock.hold(at, "job", *LEASE)
    command = holder.command
    for follower in followers:
        follower.kill()
    before = boottime()
    assert holder.wait().status == 79
    assert not is_alive(command)
    assert_refused(run(dlock, at.words[1], *IMPATIENT), 69)
    followers[0].start(wait=False)
    wait_for(lambda: run(dlock, at.words[1], *IMPATIENT, "-w", "10s").status == 0, what="a quorum")


def test_all_servers_frozen(dlock, ensemble):
    at = At(ensemble.url)
    holder = dlock.hold(at, "job", *LEASE)
    waiter = dlock.contend(at, "job", "-t", "30s").queued(1)
    before = boottime()
    for server in ensemble.servers:
        server.pause()
    assert holder.wait().status == 79
    assert boottime() - before < SOON_SECONDS
    for server in ensemble.servers:
        server.resume()
    assert waiter.held().finish().status == 0
    assert waiter.token > holder.token
