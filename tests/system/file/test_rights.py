# Goal of these tests: what dlock-file(7) says of users and groups is so.  Its blocks are
# typed, and then each role does with dlock what it may, and is refused all else.

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from support import DLOCK, PATIENCE, ROOT, descendants_of, kill, name_of, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
PAGE = os.path.join(ROOT, "man", "dlock-file.7")
GROUPS = {"deploy": 60001, "watch": 60002, "others": 60003}
ALICE, BOB, CAROL = 50001, 50002, 50003


def block(first):
    """The one that begins with this line, its groups by number: no test makes any."""
    with open(PAGE, encoding="utf-8") as f:
        found = next(b for b in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", f.read(), re.M | re.S) if b.startswith(first))
    lines = [line for line in found.splitlines() if not line.startswith(("groupadd ", "usermod "))]
    return "\n".join(re.sub(r"\b(deploy|watch)\b", lambda m: str(GROUPS[m[1]]), line) for line in lines)


class Shared:
    """Below /tmp itself: pytest closes the directories of its own whenever another one begins."""

    def __init__(self, place):
        self.directory, self.program = place / "locks", place / "dlock"
        place.chmod(0o755)
        shutil.copy(DLOCK, self.program)
        self.program.chmod(0o755)
        self.type(block("groupadd deploy"))

    def type(self, commands):
        subprocess.run(["sh", "-ec", commands.replace("/srv/locks", str(self.directory))], check=True)

    def words(self, uid, group, *words):
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={GROUPS[group]}", "env", f"DLOCK_URL=file://{self.directory}",
                "sh", "-c", f'umask 077; cd /; exec {self.program} "$@"', "sh", *words]

    def does(self, uid, group, *words):
        done = subprocess.run(self.words(uid, group, *words), capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode != 77 or "Permission denied" in done.stderr or "not trusted" in done.stderr, done
        return done.returncode

    def hold(self, key):
        holder = subprocess.Popen(self.words(ALICE, "deploy", "run", "-t", "3s", "-k", key, "--", "sh", "-c", "echo held; exec sleep 1000"),
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert holder.stdout.readline() == "held\n"
        return holder


@pytest.fixture
def shared():
    with tempfile.TemporaryDirectory(prefix="dlock-rights-") as place:
        yield Shared(pathlib.Path(place))


def test_a_group_runs_and_steers_and_others_do_not(shared):
    """Whatever their umask; who is not of the group may not even look."""
    holder = shared.hold("job")
    for group, status in (("deploy", 75), ("others", 77)):
        assert shared.does(BOB, group, "run", "-n", "-k", "job", "true") == status
    for group, status in (("deploy", 0), ("others", 77)):
        for words in (["status", "job"], ["ls"], ["freeze", "new"], ["thaw", "-y", "new"], ["ls", "--jobs"]):
            assert shared.does(BOB, group, *words) == status, words
    assert shared.does(ALICE, "deploy", "run", "-k", "done", "--once", "1", "true") == 0
    for group, status in (("others", 77), ("deploy", 0)):
        assert shared.does(BOB, group, "forget", "-y", "done") == status
    assert shared.does(BOB, "others", "break", "-y", "job") == 77 and holder.poll() is None
    assert shared.does(BOB, "deploy", "break", "-y", "job") == 0 and holder.wait(PATIENCE) == 79
    holder.stdout.close()


def test_what_may_not_be_read_is_not_told_as_never_done(shared):
    assert shared.does(ALICE, "deploy", "run", "-k", "done", "--cooldown", "1h", "true") == 0
    for name in shared.directory.glob("**/last"):
        name.chmod(0)
    assert shared.does(BOB, "deploy", "status", "done") == 1
    assert shared.does(BOB, "deploy", "status", "--done-within", "1h", "done") == 77


@pytest.mark.skipif(not shutil.which("setfacl"), reason="no setfacl (apt install acl)")
@pytest.mark.parametrize("acl", ["before the first run", "afterwards, of the directory alone", "afterwards, of all"])
def test_a_group_that_only_looks(shared, acl):
    if acl == "before the first run":
        shared.type(block("groupadd watch"))
    keys = ["job", "long" * 100]
    for key in keys:
        assert shared.does(ALICE, "deploy", "run", "-k", key, "--once", "1", "true") == 0
    holder = shared.hold("job")
    assert shared.does(CAROL, "watch", "status", "job") == (0 if acl == "before the first run" else 77)
    if acl != "before the first run":
        shared.type(block("groupadd watch"))
    if acl == "afterwards, of all":
        with open(PAGE, encoding="utf-8") as f:
            command = re.search(r"^\.Ql (setfacl -R .*)$", f.read(), re.M)[1]
        shared.type(command.replace("watch", str(GROUPS["watch"])))
    sees = 77 if acl == "afterwards, of the directory alone" else 0
    for words in (["status", "job"], ["ls"], ["ls", "--jobs"]):
        assert shared.does(CAROL, "watch", *words) == sees, words
    assert shared.does(CAROL, "watch", "forget", "-y", "job") == 77
    assert shared.does(CAROL, "watch", "status", keys[1]) == (sees or 1)
    assert shared.does(CAROL, "watch", "wait", "-n", "job") == (sees or 75)
    for words in (["run", "-n", "-k", "job", "true"], ["run", "-n", "-k", "new", "true"], ["break", "-y", "job"], ["freeze", "job"],
                  ["freeze", "new"]):
        assert shared.does(CAROL, "watch", *words) == 77, words
    assert shared.does(ALICE, "deploy", "freeze", "job") == 0
    assert shared.does(CAROL, "watch", "thaw", "-y", "job") == 77
    assert holder.poll() is None
    assert shared.does(BOB, "deploy", "break", "-y", "job") == 0 and holder.wait(PATIENCE) == 79
    holder.stdout.close()


@pytest.mark.parametrize("mode, status", [(0o2770, 0), (0o3770, 1)], ids=["group", "sticky"])
def test_who_may_remove_a_lock_file(shared, mode, status):
    shared.directory.chmod(mode)
    assert shared.does(ALICE, "deploy", "run", "-k", "job", "true") == 0
    assert shared.does(BOB, "deploy", "run", "-k", "job", "true") == 0
    removes = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", f"--groups={GROUPS['deploy']}", "rm", "-f", shared.directory / "job.lock"]
    assert subprocess.run(removes, stderr=subprocess.DEVNULL, check=False).returncode == status


@pytest.mark.parametrize("first, status", [(None, 77), (0, 0)], ids=["", "root has made it"])
def test_two_users_in_a_directory_open_to_all(shared, first, status):
    shared.directory.chmod(0o1777)
    if first is not None:
        assert shared.does(first, "others", "run", "-k", "job", "true") == 0
    assert [shared.does(uid, "others", "run", "-k", "job", "true") for uid in (ALICE, BOB, ALICE)] == [0, status, 0]
    once = ["--once", "1", "--skipped-exit-code", "9"]
    assert [shared.does(uid, "others", "run", "-k", "job", *once, "true") for uid in (ALICE, BOB, ALICE)] == [0, 77, 9]


def test_the_processes_of_a_container_exclude_those_outside(shared):
    """And its pid is the one that it has inside."""
    inside = subprocess.Popen(["unshare", "-fp", "--mount-proc", *shared.words(ALICE, "deploy", "run", "-k", "job", "sleep", "1000")])
    wait_for(lambda: shared.does(BOB, "deploy", "run", "-n", "-k", "job", "true") == 75, what="the lock")
    said = subprocess.run(shared.words(BOB, "deploy", "status", "job"), capture_output=True, text=True, check=True).stdout
    assert "(pid 1 on " in said
    kill(next(pid for pid in descendants_of(inside.pid) if name_of(pid) == "dlock"))
    inside.wait()
    wait_for(lambda: shared.does(BOB, "deploy", "run", "-n", "-k", "job", "true") == 0, what="its end")
