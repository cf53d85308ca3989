# Goal of these tests: a node that no layout of dlock's knows is some other program's lock, whose users do not see
# dlock's: dlock does not run beside it, whatever the layout, and does not wait where it comes.  ZooKeeper's own
# recipe for Java is the real one; of the others, the nodes.

import json
import os
import select
import shutil
import subprocess

import pytest
from kazoo.security import make_digest_acl

from curator import SMALL, compile_java
from support import PATIENCE, wait_for
from zk import nodes

JARS = ["zookeeper-recipes-lock", "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop"]
LAYOUTS = ("curator", "rw-seq", "kazoo", "menagerie")
# How each program calls its node, up to the number.
RECIPES = {
    "ZooKeeper's C recipe": f"x-{0x100a1b2c3d4e5f6:016x}-", "ZooKeeper's Java recipe": f"x-{0x100a1b2c3d4e5f6}-",
    "ZooKeeper's Java recipe, on server 128 or later": f"x-{-0x100a1b2c3d4e5f6}-",
    "zk-ruby, exclusive": "ex", "zk-ruby, shared": "sh", ".NET, reader": "read-", ".NET, writer": "write-",
    "Hive": "LOCK-EXCLUSIVE-", "Hive, shared": "LOCK-SHARED-",
}


@pytest.fixture
def client(zk_server):
    with zk_server.client() as result:
        yield result


@pytest.fixture
def path(at):
    return at.job


@pytest.fixture
def words(at):
    return lambda layout, *more: [*at.words, "-O", f"layout={layout}", "-k", "job", *more]


@pytest.fixture(scope="module")
def write_lock(zk_server):
    """Starts the Java recipe on a path."""
    if not os.path.exists(f"/usr/share/java/{JARS[0]}.jar") or not shutil.which("javac"):
        pytest.skip("no ZooKeeper recipes, or no javac (apt install libzookeeper-java libslf4j-java default-jdk-headless)")
    classpath = compile_java("WriteLock", JARS)
    started = []

    def start(path):
        process = subprocess.Popen(["java", *SMALL, "-cp", classpath, "WriteLock", f"127.0.0.1:{zk_server.port}", path],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def run(dlock, words, *more):
    return dlock.run("run", *words, *more, "--", "true")


def refused(done, *names):
    assert done.status == 76 and done.stderr.count("\n") == 1, done
    assert all(name in done.stderr for name in names), done


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ((), ("-s",), ("-x",)), ids=("plain", "shared", "exclusive"))
def test_no_run_beside_a_lock_of_another_program(dlock, client, words, path, layout, kind):
    client.ensure_path(path)
    for prefix in RECIPES.values():
        node = client.create(f"{path}/{prefix}", b"", ephemeral=True, sequence=True)
        refused(run(dlock, words(layout, *kind), "-n"), node.rsplit("/", 1)[1], path)
        client.delete(node)
    assert run(dlock, words(layout, *kind), "-n").status == 0


def test_no_unit_beside_a_lock_of_another_program(dlock, client, words, path):
    node = client.create(f"{path}/x-1-", b"", ephemeral=True, sequence=True, makepath=True)
    refused(run(dlock, words("curator", "--limit", "2"), "-n"), node.rsplit("/", 1)[1])
    client.delete(node)
    assert run(dlock, words("curator", "--limit", "2"), "-n").status == 0


def test_who_waits_for_a_unit_goes_when_another_program_comes(dlock, client, words, path):
    holder = dlock.start("run", *words("curator", "--limit", "1"), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    waiter = dlock.start("run", *words("curator", "--limit", "1"), "--", "true").queued(1)
    node = client.create(f"{path}/x-00001000a1b2c3d4-", b"", ephemeral=True, sequence=True)
    assert holder.finish().status == 0
    refused(waiter.wait(), node.rsplit("/", 1)[1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_waiter_goes_when_another_program_comes(dlock, client, words, path, layout):
    holder = dlock.start("run", *words(layout), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    waiters = [dlock.start("run", *words(layout), "--", "true").queued(n) for n in (1, 2)]
    node = client.create(f"{path}/x-00001000a1b2c3d4-", b"", ephemeral=True, sequence=True)
    assert holder.finish().status == 0
    for waiter in waiters:
        done = waiter.wait()
        assert done.status == 76 and node.rsplit("/", 1)[1] in done.stderr, done


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_put_there_by_hand_is_refused(dlock, client, words, path, layout):
    for name in ("x", "readme", "0", "!", "~", "ü", "_locknode_", "lock-"):
        client.create(f"{path}/{name}", b"", makepath=True)
        refused(run(dlock, words(layout), "-n"), path)
        client.delete(f"{path}/{name}")


def test_zookeepers_own_recipe_and_dlock(dlock, client, words, path, write_lock):
    """The real one.  While it holds or waits, no run begins."""
    client.ensure_path(path)
    java = write_lock(path)
    assert java.stdout.readline() == "held\n"
    (name,) = nodes(client, path)
    assert name.startswith("x-")
    refused(run(dlock, words("curator"), "-n"), name)
    refused(run(dlock, words("curator"), "-w", "9s"), name)
    java.communicate("", timeout=PATIENCE)
    assert run(dlock, words("curator"), "-n").status == 0


# ---- joined: layout=recipes ----


def is_said(process, seconds=0.5):
    return bool(select.select([process.stdout], [], [], seconds)[0])


def test_zookeepers_own_recipe_is_joined(dlock, client, words, path, write_lock):
    """The real one: each excludes the other, waits for it, and is waited for; a freeze stops both."""
    client.ensure_path(path)
    java = write_lock(path)
    assert java.stdout.readline() == "held\n"
    assert run(dlock, words("recipes"), "-n").status == 75
    seen = json.loads(dlock.run("status", *words("recipes"), "-J").stdout)
    assert [h["foreign"] for h in seen["holders"]] == [True] and "ZooKeeper's own" in seen["holders"][0]["what"]
    waiter = dlock.start("run", *words("recipes"), "-t", "6s", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).queued(1)
    java.communicate("", timeout=PATIENCE)
    waiter.held()
    second = write_lock(path)
    wait_for(lambda: len(nodes(client, path)) == 2, what="the other one in the queue")
    last = dlock.start("run", *words("recipes"), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).queued(2)
    assert not is_said(second)
    waiter.signal(9, "keeper")  # its session ends with the other process's farewell, or by itself
    waiter.wait()
    assert second.stdout.readline() == "held\n"
    second.kill()
    last.held()
    assert last.finish().status == 0
    assert dlock.run("freeze", *words("recipes")).status == 0
    third = write_lock(path)
    wait_for(lambda: len(nodes(client, path)) == 2, what="the next one")
    assert not is_said(third) and run(dlock, words("recipes"), "-n").status == 75
    assert dlock.run("thaw", *words("recipes"), "-y").status == 0
    assert third.stdout.readline() == "held\n"
    third.communicate("", timeout=PATIENCE)
    assert run(dlock, words("recipes"), "-n").status == 0


def test_the_recipe_of_c_is_joined(dlock, client, words, path):
    """Its names, sorted by what follows the last '-' (zoo_lock.c)."""
    holder = dlock.start("run", *words("recipes"), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    own = client.create(path + "/" + RECIPES["ZooKeeper's C recipe"], b"", ephemeral=True, sequence=True).rsplit("/", 1)[1]
    in_order = sorted(nodes(client, path), key=lambda name: name.rsplit("-", 1)[1])
    assert in_order[1:] == [own] and in_order[0].startswith("x-")
    waiter = dlock.start("run", *words("recipes"), "--", "true").queued(2)
    assert holder.finish().status == 0
    wait_for(lambda: len(nodes(client, path)) == 2, what="the end of the holder's node")
    assert run(dlock, words("recipes"), "-n").status == 75
    client.delete(f"{path}/{own}")
    assert waiter.wait().status == 0


@pytest.mark.parametrize("words_of_it, status", [(("-s",), 78), (("--limit", "2"), 78), (("--once", "1"), 78), (("-x",), 0)])
def test_what_the_recipes_lack(dlock, client, words, path, words_of_it, status):
    assert run(dlock, words("recipes"), "-n", *words_of_it).status == status


def test_other_programs_beside_the_recipes_are_refused(dlock, client, words, path):
    for prefix in ("ex", "read-", "LOCK-EXCLUSIVE-", "ci-1-W-", f"{'0' * 32}__lock__"):
        node = client.create(f"{path}/{prefix}", b"", ephemeral=True, sequence=True, makepath=True)
        refused(run(dlock, words("recipes"), "-n"), node.rsplit("/", 1)[1])
        client.delete(node)
    assert run(dlock, words("recipes"), "-n").status == 0


# ---- what other programs read ----


def go_numbers(name):
    """The number that go-zookeeper's Lock reads in a child's name: before 1.0.2, and since; ValueError: it gives up."""
    after = name.split("lock-") if "lock-" in name else name.split("__")
    return int(name.split("-")[-1]), int(after[-1])


def test_go_zookeeper_can_read_a_freeze(dlock, client, at, words, path):
    """Its Lock reads a number in each name, and waits for those that are smaller than its own."""
    assert dlock.run("freeze", *words("curator")).status == 0
    own = client.create(f"{path}/_c_{'0' * 32}-lock-", b"", ephemeral=True, sequence=True)
    for freeze in (*(n for n in nodes(client, path) if "freeze" in n), *nodes(client, f"{path}/locks")):
        assert all(number < go_numbers(own)[0] for number in go_numbers(freeze)), freeze
    assert dlock.run("thaw", *words("curator"), "-y").status == 0


def test_go_zookeeper_can_read_a_writer(dlock, client, words, path):
    holder = dlock.start("run", *words("curator", "-x"), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    (name,) = nodes(client, path)
    assert int(name.split("__")[-1]) >= 0
    assert holder.finish().status == 0


def test_a_semaphore_whose_size_nobody_says(dlock, client, at, words, path):
    """Curator's users know it, and write it nowhere."""
    client.create(f"{path}/leases/x-lease-", b"", ephemeral=True, sequence=True, makepath=True)
    seen = json.loads(dlock.run("status", *words("curator"), "-J").stdout)
    assert (seen["kind"], seen["limit"]) == ("limit", None)
    told = dlock.run("status", *words("curator")).stdout + dlock.run("ls", *words("curator")[:-2]).stdout
    assert "1 slot taken" in told and "limit 1 " in told and "of 0" not in told and "1/0" not in told, told


# ---- directories of other locks ----


@pytest.mark.parametrize("layout", LAYOUTS)
def test_locks_lie_below_each_other(dlock, client, zk_server, at, words, path, layout):
    """`deploy` and `deploy/web` are two locks, each with all kinds of children, and free or not."""
    below = ["-u", f"{zk_server.url}{path}", "-O", f"layout={layout}", "-k", "web"]
    holder = dlock.start("run", *below, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    assert run(dlock, words(layout), "-n").status == 0
    outer = dlock.start("run", *words(layout), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    assert holder.finish().status == 0
    assert run(dlock, below, "-n").status == 0
    waiter = dlock.start("run", *words(layout), "--", "true").queued(1)
    assert outer.finish().status == 0
    assert waiter.wait().status == 0
    assert nodes(client, path)  # it was there all the time


def test_what_jobs_and_semaphores_below_have_made(dlock, client, zk_server, words, path):
    below = ["-u", f"{zk_server.url}{path}", "-k", "web"]
    assert dlock.run("run", *below, "--once", "1", "--", "true").status == 0
    holder = dlock.start("run", *below, "--limit", "2", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    assert sorted(nodes(client, path)) == ["dlock-jobs", "web"]
    assert run(dlock, words("curator"), "-n").status == 0
    assert holder.finish().status == 0


def test_a_directory_of_no_lock_is_a_strangers(dlock, client, words, path):
    client.create(f"{path}/readers/ex", b"", ephemeral=True, sequence=True, makepath=True)
    refused(run(dlock, words("curator"), "-n"), "readers")


def test_a_directory_that_may_not_be_read_is_one(dlock, client, words, path):
    """Only that it has children is known to everybody."""
    if client.server_version() >= (3, 9):
        pytest.skip("ZooKeeper 3.9 does not tell even that")
    client.ensure_path(path)
    client.create(f"{path}/web", b"", acl=[make_digest_acl("u", "p", all=True)])
    refused(run(dlock, words("curator"), "-n"), "web")
    client.add_auth("digest", "u:p")
    client.create(f"{path}/web/x-lock-", b"", ephemeral=True, sequence=True)
    assert run(dlock, words("curator"), "-n").status == 0


def test_a_directory_that_is_just_being_made(dlock, client, words, path):
    """Its first child comes a moment after it."""
    holder = dlock.start("run", *words("curator"), "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    waiter = dlock.start("run", *words("curator"), "--", "true").queued(1)
    client.create(f"{path}/web", b"")
    client.create(f"{path}/web/x-lock-", b"", ephemeral=True, sequence=True)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    wait_for(lambda: nodes(client, path) == ["web"], what="an empty queue")
