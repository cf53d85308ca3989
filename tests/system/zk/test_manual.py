# Goal of these tests: what dlock-zk(7) tells people to type does what it says; and each right that it gives to a
# role is needed.

import itertools
import os
import pathlib
import re
import subprocess
import threading

import pytest
from kazoo.security import make_acl, make_digest_acl

from curator import SMALL
from manual import block, blocks
from support import PATIENCE, ROOT, wait_for
from zk import nodes
from zk_layouts import Menagerie

pytestmark = pytest.mark.filterwarnings("ignore:isSet")  # kazoo's own

PAGE = "dlock-zk.7"
RIGHTS = {"c": "create", "d": "delete", "r": "read", "w": "write", "a": "admin"}
_places = itertools.count(1)


# ---- roles ----


@pytest.fixture
def typed(zk_server, tmp_path):
    """What a block becomes with the server, a directory and a home of this test."""
    directory = f"/manual{next(_places)}"

    def instead(text):
        text = text.replace("127.0.0.1:2181", f"127.0.0.1:{zk_server.port}").replace("/locks", directory)
        return text.replace("zk://127.0.0.1/", f"{zk_server.url}/").replace("@127.0.0.1/", f"@127.0.0.1:{zk_server.port}/")

    instead.directory = directory
    instead.env = {**os.environ, "HOME": str(tmp_path), "JVMFLAGS": " ".join(SMALL)}
    return instead


def paste(typed, text, tmp_path):
    done = subprocess.run(["sh", "-ec", typed(text)], capture_output=True, text=True, env=typed.env, cwd=tmp_path, timeout=90,
                          check=False)
    assert done.returncode == 0, done
    return done.stdout


def command(typed, line):
    """The words of a line that begins with dlock; a command of its own is `true`."""
    line = typed(line).replace("$HOME", typed.env["HOME"])
    return [*line.replace("./nightly", "true").split()[1:]]


def lines_of(marker):
    return block(PAGE, marker).splitlines()


def test_the_user_of_the_manual_can_run_and_steer(dlock, typed, tmp_path):
    """Who is none of it may not; pasting twice does no harm."""
    for _ in range(2):
        paste(typed, block(PAGE, "setAcl /locks auth::cdrwa\n"), tmp_path)
    login, line = lines_of("zk.login -k nightly")
    paste(typed, login, tmp_path)
    run = command(typed, line)
    assert dlock.run(*run).status == 0
    words = run[1:run.index("--")]
    assert dlock.run("freeze", *words).status == 0
    assert dlock.run(*run[:1], "-n", *run[1:]).status == 75
    assert dlock.run("thaw", "-y", *words).status == 0
    for force, status in ((), 0), (("--force",), 0):
        holder = dlock.start("run", *words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
        assert dlock.run("status", *words).status == 0
        assert dlock.run("break", "-y", *force, *words).status == status
        assert holder.wait().status == 79
    nobody = [word for word in words if "auth-file" not in word and word != "-O"]
    assert [dlock.run(*what, *nobody).status for what in (("status",), ("freeze",))] == [77, 77]


class Roles:
    """Those of the second block, and the lock that they are about."""

    def __init__(self, dlock, typed, tmp_path):
        logins = [line for marker in ("zk.login -k", "zk.login -O acl=open", "dlock break") for line in lines_of(marker) if "umask" in line]
        paste(typed, "\n".join([block(PAGE, "setAcl /locks/nightly"), *logins]), tmp_path)
        self.dlock, self.path = dlock, f"{typed.directory}/nightly"
        run, look = [command(typed, line) for line in lines_of("zk.login -O acl=open") if "umask" not in line]
        steer = [command(typed, line) for line in lines_of("dlock break")[1:]]
        self.run, self.look = run, look
        self.steering = {words[0]: words for words in steer}
        assert [*self.steering] == ["break", "freeze", "thaw"]

    def hold(self, *words):
        return self.dlock.start(self.run[0], *words, *self.run[1:-1], *self.dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()

    def status(self, words):
        return self.dlock.run(*words).status

    def oncall(self):
        """What the three commands end with: a break, a freeze of the key, and its thaw."""
        holder = self.hold()
        done = [self.status(self.steering["break"])]
        if done == [0]:
            holder.wait()
        else:
            holder.finish()
        return [*done, self.status(self.steering["freeze"]), self.status(self.steering["thaw"])]


def test_the_roles_of_the_manual_are_enough(dlock, typed, tmp_path, zk_server):
    roles = Roles(dlock, typed, tmp_path)
    assert roles.status(roles.run) == 0
    holder = roles.hold()
    looked = dlock.run(*roles.look)
    assert looked.status == 0 and "running cat" in looked.stdout
    where = roles.look[1:-1]
    assert "nightly" in dlock.run("ls", *where).stdout
    assert dlock.run("wait", "-n", *where, "nightly").status == 75
    # who only looks can do nothing else but ask
    for words in (("freeze",), ("break", "-y", "--force")):
        assert dlock.run(*words, *where, "nightly").status == 77
    assert dlock.run("run", *where, "-O", "acl=open", "-n", "-k", "nightly", "--", "true").status == 77
    assert holder.finish().status == 0
    holder = roles.hold("-t", "9s")
    with zk_server.client() as c:
        c.add_auth("digest", "dlock:password")
        wait_for(lambda: version_of(c, roles.path), what="a renewal")
    assert dlock.run(*roles.steering["break"], "--who", "carol").status == 0
    lost = holder.wait()
    assert lost.status == 79 and "broken by carol" in lost.stderr
    assert roles.status(roles.steering["freeze"]) == 0
    assert roles.status([roles.run[0], "-n", *roles.run[1:]]) == 75
    assert dlock.run("thaw", "-y", *where, "nightly").status == 77
    assert roles.status(roles.steering["thaw"]) == 0
    assert roles.status(roles.run) == 0
    # who may steer may run
    assert dlock.run("run", *roles.steering["break"][1:-3], "-n", "-k", "nightly", "--", "true").status == 0
    # the user of the runs makes what lies beside the lock; who only looks sees it
    assert dlock.run(*roles.run[:1], "--once", "7", *roles.run[1:]).status == 0
    assert "ID 7" in dlock.run(*roles.look).stdout
    assert " 7 " in dlock.run("ls", "--jobs", *where).stdout
    assert dlock.run("forget", *roles.steering["thaw"][1:], "7").status == 0
    holder = roles.hold()
    assert dlock.run("break", "-y", "-w", "9s", *where, "nightly").status == 0
    assert holder.wait().status == 79
    # also by hand, and by nobody in particular
    permit = dlock.start("run", "--limit", "2", *roles.run[1:-1], *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    with zk_server.client() as c:  # who has no user
        c.delete(f"{roles.path}/leases/{nodes(c, f'{roles.path}/leases')[0]}")
    assert permit.wait().status == 79


def version_of(client, path):
    """How often the first node of the lock was written."""
    return client.exists(f"{path}/{nodes(client, path)[0]}").version


def test_without_open_nodes_who_looks_sees_no_name(dlock, typed, tmp_path):
    roles = Roles(dlock, typed, tmp_path)
    run = roles.run[:-1]
    at = run.index("acl=open")
    del run[at - 1:at + 1]
    holder = dlock.start(*run, *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    looked = dlock.run(*roles.look)
    assert looked.status == 0 and "holder    somebody" in looked.stdout
    assert holder.finish().status == 0


def test_each_right_of_a_role_is_needed(dlock, typed, tmp_path, zk_server):
    """Those of the lock's own directory, one taken away at a time; who has `write` can say who broke it."""
    roles = Roles(dlock, typed, tmp_path)
    assert roles.status(roles.run) == 0  # with what a run makes there
    needed = {("dlock", "create"): lambda: [roles.status(roles.run)],
              ("dlock", "read"): lambda: [roles.status(roles.run)],
              ("watcher", "read"): lambda: [roles.status(roles.look)],
              ("oncall", "create"): lambda: roles.oncall()[1:2],
              ("oncall", "delete"): lambda: roles.oncall()[::2],
              ("oncall", "read"): lambda: roles.oncall()}
    with zk_server.client() as c:
        c.add_auth("digest", "dlock:password")
        acls, _ = c.get_acls(roles.path)
        given = {acl.id.id.split(":")[0]: {right.lower() for right in acl.acl_list} for acl in acls}
        assert given == {"dlock": {"all"}, "watcher": {"read"}, "oncall": {"create", "delete", "read", "write"}}
        for (user, right), outcome in needed.items():
            c.set_acls(roles.path, [without(acl, right) if acl.id.id.startswith(f"{user}:") else acl for acl in acls])
            done = outcome()
            assert set(done) == {77}, (user, right, done)
            c.set_acls(roles.path, acls)
            assert roles.status(roles.steering["thaw"]) in (0, 1)
        # what a freeze needs on the directory above
        above, _ = c.get_acls(typed.directory)
        c.set_acls(typed.directory, [without(acl, "create") if acl.id.id.startswith("oncall:") else acl for acl in above])
        assert roles.oncall() == [0, 77, 1]
        c.set_acls(typed.directory, above)
        assert roles.oncall() == [0, 0, 0] and roles.status(roles.run) == roles.status(roles.look) - 1 == 0


def without(acl, right):
    names = RIGHTS.values() if acl.acl_list == ["ALL"] else [name.lower() for name in acl.acl_list]
    return make_acl(acl.id.scheme, acl.id.id, **{name: True for name in names if name != right})


def test_a_run_that_may_not_delete_says_so(dlock, typed, tmp_path, zk_server):
    roles = Roles(dlock, typed, tmp_path)
    with zk_server.client() as c:
        c.add_auth("digest", "dlock:password")
        acls, _ = c.get_acls(roles.path)
        c.set_acls(roles.path, [without(acl, "delete") if acl.id.id.startswith("dlock:") else acl for acl in acls])
    done = dlock.run(*roles.run)
    assert done.status == 0 and "release was not confirmed" in done.stderr


@pytest.mark.parametrize("lacks", ["nothing", "create", "delete"])
def test_the_rights_for_a_node_that_is_the_lock(dlock, at, kazoo, lacks):
    """On the directory above, which is all that there is before."""
    mine = make_digest_acl("dlock", "password", **{right: True for right in ("create", "delete") if right != lacks})
    kazoo.create(at.root, acl=[mine])
    words = ["-u", at.url.replace("zk://", "zk://dlock:password@"), "-O", "layout=plain", "-k", "job", "--"]
    if lacks == "create":
        assert dlock.run("run", *words, "true").status == 77
        return
    holder = dlock.start("run", *words, *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    waiter = dlock.start("run", *words, "true")
    done = [holder.finish(), waiter.wait()]
    assert [d.status for d in done] == [0, 0]
    assert ("release was not confirmed" in done[0].stderr) == (lacks == "delete")


def test_the_table_of_rights_is_the_one_that_is_tested():
    """By test_the_rights_of_the_manual_are_needed_and_suffice, whose words these are."""
    page = pathlib.Path(ROOT, "man", PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\.It Ic (.*) Ta ((?:create|read)[\w, ]*)$", page, re.M)
    told = {word.replace(r"Fl \&-force", "--force"): rights.split(", ") for words, rights in rows for word in words.split(" , ")}
    tested = pathlib.Path(__file__).with_name("test_steering.py").read_text(encoding="utf-8")
    for what, rights in re.findall(r'^    "([\w -]+)": \(.*\), (\[[^]]*\]), \d+\),$', tested, re.M):
        assert sorted(re.findall(r"\w+", rights)) == sorted(set(told.pop(what)) - ({"delete"} if what == "run" else set())), what
    assert told.pop("ls") == ["read"] and told == {}  # and a run needs `delete` to leave: see test_documents.py


# ---- others' programs ----


class CuratorLock:
    """One of Curator's locks, as the test's Java has it."""

    def __init__(self, curator, recipe, path):
        self.curator, self.words = curator, (recipe, path)

    def try_it(self):
        return self.curator.do("take", *self.words, 300) == ["held"] if self.words[0] else \
            self.curator.do("try", self.words[1], 300)[0] == "held"

    def leave(self):
        if self.words[0]:
            self.curator.do("give", *self.words)
        else:
            self.curator.do("release", self.words[1])


class KazoosOwn:
    def __init__(self, lock):
        self.lock = lock

    def try_it(self):
        return self.lock.acquire(blocking=False)

    def leave(self):
        self.lock.release()


class Created:
    """A node that was created by hand, as zkCli.sh does it; it has the lock if it is the only one."""

    def __init__(self, client, words):
        self.client, self.words, self.node = client, words, None

    def try_it(self):
        *flags, path = self.words
        parent = path.rsplit("/", 1)[0]
        self.client.ensure_path(parent)
        if "-s" not in flags and self.client.exists(path):
            return False
        self.node = self.client.create(path, b"", ephemeral="-e" in flags, sequence="-s" in flags)
        if "-s" in flags and len(nodes(self.client, parent)) > 1:
            self.leave()
            return False
        return True

    def leave(self):
        self.client.delete(self.node)


class Reenacted:
    def __init__(self, lock):
        self.lock = lock

    def try_it(self):
        self.lock.enter()
        if not self.lock.holds():
            self.lock.leave()
            return False
        return True

    def leave(self):
        self.lock.leave()


def pairs():
    """(another program's line, the line of dlock under it)"""
    text = "\n".join(b for b in blocks(PAGE) if "zk://10.0.0.5 -O" in b)
    return re.findall(r"^((?:new|client|create) ?.*)\n(dlock run .*)$", text, re.M)


def other_of(line, client, make_curator):
    """The lock that this line is about."""
    if line.startswith("create "):
        return Created(client, line.split()[1:])
    if line.startswith("client."):
        return KazoosOwn(eval(line, {"client": client}))
    path = re.search(r'"(/[^"]*)"', line)[1]
    if "ReentrantZkLock" in line:
        return Reenacted(Menagerie(client, path, "lock"))
    semaphore = re.search(r"SemaphoreV2\(.*, (\d+)\)", line)
    return CuratorLock(make_curator(), semaphore[1] if semaphore else "write" if "writeLock" in line else "", path)


@pytest.mark.parametrize("n", range(7))
def test_each_example_excludes_both_ways(dlock, at, kazoo, request, n):
    line, run = (text.replace('"/shop/', f'"{at.root}/').replace(" /shop/", f" {at.root}/").replace("=/shop/", f"={at.root}/")
                 for text in pairs()[n])
    words = run.replace("zk://10.0.0.5", at.server.url).split()[1:]
    words = words[:words.index("--")]
    limit = int(words[words.index("--limit") + 1]) if "--limit" in words else 1
    other = other_of(line, kazoo, lambda: request.getfixturevalue("curator"))
    holders = [dlock.start(*words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held() for _ in range(limit)]
    assert not other.try_it()
    assert [holder.finish().status for holder in holders] == [0] * limit
    assert other.try_it()
    others = [dlock.start(*words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held() for _ in range(limit - 1)]
    assert dlock.run(words[0], "-n", *words[1:], "--", "true").status == 75
    other.leave()
    assert dlock.run(words[0], "-n", *words[1:], "--", "true").status == 0
    assert [holder.finish().status for holder in others] == [0] * (limit - 1)


def test_each_pair_is_tried():
    assert len(pairs()) == 7
    assert len(blocks(PAGE)) == 10


def test_kazoo_waits_where_it_is_told_our_names(dlock, at, kazoo):
    """And no run waits for it."""
    line = block(PAGE, "extra_lock_patterns").replace('"/shop/', f'"{at.root}/')
    words = pairs()[0][1].replace("=/shop/", f"={at.root}/").replace("zk://10.0.0.5", at.server.url).split()[1:]
    words = words[:words.index("--")]
    holder = dlock.start(*words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    lock = eval(line, {"client": kazoo})
    got = threading.Event()
    thread = threading.Thread(target=lambda: lock.acquire(timeout=PATIENCE) and got.set())
    thread.start()
    wait_for(lambda: len(nodes(kazoo, f"{at.root}/nightly")) == 2, what="kazoo in the queue")
    assert not got.is_set()
    assert dlock.run(*words, "--", "true").status == 76
    assert holder.finish().status == 0
    thread.join()
    assert got.is_set() and dlock.run(*words, "--", "true").status == 76
    lock.release()
