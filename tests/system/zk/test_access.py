# Goal of these tests: a ZooKeeper is found in whatever way it is named, and what it
# does not allow is said in one line.  Who may do what with our nodes is up to us, and
# no password shows.

import json
import socket
import subprocess

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from faults import IMPATIENT, LEASE, assert_password_is_not_shown, assert_refused, wait_for_writes
from hostile import SILENCE
from proxy import BOTH, UP
from support import BRIEFLY, At, free_port, run, told_at_the_end, wait_for
from zk import nodes


# ---- several servers named ----


def test_server_that_falls_silent_is_left_for_another(dlock, zk_server, make_proxy):
    """The library would wait for two thirds of the session, longer than the lease lasts."""
    proxies = [make_proxy(zk_server.port) for _ in range(2)]
    at = At("zk://" + ",".join(f"127.0.0.1:{p.port}" for p in proxies) + "/silent")
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
    assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1) and "shortened" in done.stderr


def test_dead_hosts_are_passed_over(dlock, zk_server):
    ports = [free_port(), zk_server.port, free_port()]
    for n in range(5):  # the order is the library's to choose
        url = "zk://" + ",".join(f"127.0.0.1:{port}" for port in ports) + f"/dead{n}"
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
        assert (done.status, told_at_the_end(done.stderr)) == (0, ""), done


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


def test_a_run_that_looks_at_a_switch_must_be_able_to_read_it(dlock, at):
    """Its own user's, or one that is open, as the manual says."""
    alice, bob = with_login(at, ALICE), with_login(at, BOB)

    def looks(place, switch):
        return dlock.run("run", *place.words, "-n", "-k", f"job-{switch}", "-O", "acl=open", "--newest", "--unless-frozen", switch, "--", "true")

    assert looks(bob, "none").status == 0
    for words, status in (((), 77), (("-O", "acl=open"), 75)):
        switch = f"all-{len(words)}"
        assert dlock.run("freeze", *alice.words, *words, switch).status == 0
        done = looks(bob, switch)
        assert done.status == status and (status == 75 or "which --unless-frozen needs" in done.stderr), done
        assert looks(alice, switch).status == 75


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
        assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1
        wait_for(lambda: nodes(c, at.job) == [], what="the end of the session")


@pytest.mark.parametrize("content, mode, status", [
    (ALICE, 0o600, 0), (ALICE + "\n", 0o400, 0), (ALICE, 0o660, 78), (ALICE, 0o604, 78), ("", 0o600, 78), ("\n", 0o600, 78),
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


def test_a_password_in_what_others_have_said_is_not_shown(dlock, at):
    assert_password_is_not_shown(dlock, with_login(at, ALICE).words[1], "hunter2")


def test_password_appears_nowhere(dlock, at, make_zk):
    url = with_login(at, ALICE).words[1]
    script = "env | grep DLOCK_ | grep -v DLOCK_ZK_URL; cat"
    holder = dlock.start("run", "-b", "zk", "-v", "-k", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE,
                         env={"DLOCK_ZK_URL": url}).held()
    waiter = dlock.start("run", "-b", "zk", "-v", "-k", "job", "-w", BRIEFLY, "--", "true", env={"DLOCK_ZK_URL": url})
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
