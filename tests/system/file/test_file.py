# Goal of these tests: what is peculiar to the file backend.  The kernel's
# locks decide, whatever becomes of the bytes in the file; a lock file that is
# gone or replaced is noticed; nobody is led astray by what others put there.

import contextlib
import errno
import fcntl
import os
import resource
import signal
import stat
import struct
import subprocess

import pytest

from support import DLOCK, Completed, FilePlace, compile_shim, descendants_of, is_alive, kill, making, name_of, wait_for


@pytest.fixture
def files(request):
    return FilePlace(request)


def lock_file(files, key):
    return files.directory / f"{key}.lock"


def test_a_truncated_file_does_not_free_the_lock(dlock, files):
    holder = dlock.hold(files, "job")
    os.truncate(lock_file(files, "job"), 0)
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 75
    waiter = dlock.contend(files, "job", command=("true",)).queued(1)
    os.truncate(lock_file(files, "job"), 0)
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 75
    holder.finish()
    assert waiter.wait().status == 0


@pytest.mark.parametrize("stored", [b"", None], ids=["new-file", "old-file"])
def test_what_cannot_be_written_is_no_lock(dlock, files, stored):
    """Without room for its ticket and token a run refuses, instead of sharing them with the next."""
    if stored is None:
        assert dlock.run("run", *files.words, "-k", "job", "--", "true").status == 0
    done = subprocess.run([DLOCK, "run", *files.words, "-k", "job", "--", "true"], capture_output=True, text=True,
                          env=dlock.env, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert done.returncode == 71 and "cannot write the lock file" in done.stderr
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 0


@pytest.mark.parametrize("how", ["removed", "replaced", "directory-moved"])
def test_a_holder_notices_that_its_file_is_gone(dlock, files, how):
    holder = dlock.start("run", *files.words, "-k", "job", "-t", "3s", "--", "sleep", "1000").held()
    if how == "directory-moved":
        files.directory.rename(files.directory.with_name("elsewhere"))
        files.directory.mkdir(mode=0o700)
    else:
        lock_file(files, "job").unlink()
    if how == "replaced":
        lock_file(files, "job").touch()
    done = holder.wait()
    assert done.status == 79 and "removed or replaced" in done.stderr


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_waiter_follows_what_replaces_the_file_it_waits_on(dlock, files, what):
    holder = dlock.hold(files, "job")
    waiter = dlock.contend(files, "job", command=("true",)).queued(1)
    lock_file(files, "job").unlink()
    if what == "directory":
        files.directory.rename(files.directory.with_name("elsewhere"))
        files.directory.mkdir(mode=0o700)
    holder.finish()
    assert waiter.wait().status == 0


def test_a_foreign_file_is_left_as_it_is(dlock, files):
    lock_file(files, "job").write_text("precious\n")
    done = dlock.run("run", *files.words, "-k", "job", "--", "true")
    assert done.status == 76 and "not a lock file of dlock" in done.stderr
    assert lock_file(files, "job").read_text() == "precious\n"


@pytest.mark.parametrize("trap", ["symlink", "hardlink", "fifo", "directory"])
def test_what_others_may_have_put_there_is_refused(dlock, files, tmp_path, trap):
    victim = tmp_path / "victim"
    victim.write_text("")
    path = lock_file(files, "job")
    {"symlink": path.symlink_to, "hardlink": path.hardlink_to, "fifo": lambda _: os.mkfifo(path),
     "directory": lambda _: path.mkdir()}[trap](victim)
    done = dlock.run("run", *files.words, "-k", "job", "--", "true")
    assert done.status == 77 and "somebody put it there" in done.stderr
    assert victim.read_text() == ""


def test_a_directory_where_everybody_may_delete_is_refused(dlock, files):
    files.directory.chmod(0o777)
    assert dlock.run("run", *files.words, "-k", "job", "--", "true").status == 77
    files.directory.chmod(0o1777)
    assert dlock.run("run", *files.words, "-k", "job", "--", "true").status == 0


def test_files_in_a_shared_directory_are_open_to_its_group(dlock, files):
    files.directory.chmod(0o770)
    assert dlock.run("run", *files.words, "-k", "job", "--", "true").status == 0
    assert stat.S_IMODE(lock_file(files, "job").stat().st_mode) == 0o660


# ---- what stands in the file decides nothing ----


NUMBERS = ["4611686018427387903", "999999999999999999", "9223372036854775807", "18446744073709551616", "-1", "", "x"]


@pytest.mark.parametrize("place", range(3), ids=["next", "token", "granted"])
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_that_cannot_be_are_none(dlock, files, number, place):
    numbers = ["1", "1", "1"]
    numbers[place] = number
    dlock.tokens_grow = number != NUMBERS[1]  # the greatest of all
    lock_file(files, "job").write_text(f"dlock1 {' '.join(numbers)}\n{{}}\n")
    holder = dlock.hold(files, "job")
    waiter = dlock.contend(files, "job").queued(1)
    holder.finish()
    assert waiter.held().finish().status == 0
    assert holder.token < waiter.token or not dlock.tokens_grow
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 0


@pytest.mark.parametrize("text", [b"d", b"dlock1", b"dlock1 ", b"dlock1 7", b"dlock1 7\n", b"\0" * 1280,
                                  b"dlock1 " + b"9" * 2000], ids=range(7))
def test_a_damaged_header_is_an_empty_one(dlock, files, text):
    lock_file(files, "job").write_bytes(text)
    first = dlock.hold(files, "job")
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 75
    first.finish()
    assert dlock.hold(files, "job").token > first.token


@pytest.mark.parametrize("room", [3, 8, 20, 40])
def test_a_disk_that_was_full_is_no_lasting_trouble(dlock, files, room):
    done = subprocess.run([DLOCK, "run", *files.words, "-k", "job", "--", "true"], capture_output=True, text=True,
                          env=dlock.env, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
    assert done.returncode == 71 and "cannot write the lock file" in done.stderr
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 0


# ---- what the kernel says, or does not ----

SHIM = """
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <unistd.h>
    /* Each F_OFD_GETLK and F_OFD_SETLK is a letter in the file GETLK_LOG; number GETLK_FAILS of the first fails. */
    int fcntl(int fd, int command, ...)
    {
        static int (*real)(int, int, ...), asked;
        const char *log = getenv("GETLK_LOG"), *fails = getenv("GETLK_FAILS");
        va_list ap;
        void *argument;

        va_start(ap, command);
        argument = va_arg(ap, void *);
        va_end(ap);
        if (!real)
            real = dlsym(RTLD_NEXT, "fcntl");
        if (log && (command == F_OFD_GETLK || command == F_OFD_SETLK)) {
            int file = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
            if (write(file, command == F_OFD_GETLK ? "G" : "S", 1) != 1)
                abort();
            close(file);
        }
        if (command == F_OFD_GETLK && fails && ++asked == atoi(fails)) {
            errno = ENOLCK;
            return -1;
        }
        if (command == F_OFD_SETLK && getenv("SETLK_ERRNO")) {
            errno = atoi(getenv("SETLK_ERRNO"));
            return -1;
        }
        return real(fd, command, argument);
    }

    /* NEVER_THERE: what has this name is always another file than the one that is open. */
    int fstatat(int dir, const char *name, struct stat *st, int flags)
    {
        static int (*real)(int, const char *, struct stat *, int);
        const char *never = getenv("NEVER_THERE");
        int result;

        if (!real)
            real = dlsym(RTLD_NEXT, "fstatat");
        result = real(dir, name, st, flags);
        if (never && strcmp(name, never) == 0)
            st->st_ino++;
        return result;
    }"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-o", library, "-", "-D_GNU_SOURCE", "-ldl"],
                   input=SHIM.encode(), check=True)
    return str(library)


@pytest.mark.parametrize("nth, held", [(1, False), (1, True), (2, True)])
def test_a_question_that_fails_is_an_error_of_that_run_alone(dlock, files, shim, nth, held):
    holder = dlock.hold(files, "job") if held else None
    env = {"LD_PRELOAD": shim, "GETLK_FAILS": str(nth)}
    done = dlock.run("run", *files.words, "-k", "job", "-w", "1s", "--", "true", env=env)
    assert done.status == 71 and "cannot look at the queue" in done.stderr
    if holder:
        assert holder.finish().status == 0
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 0


@pytest.mark.parametrize("error, status, words", [
    (errno.ENOLCK, 71, "lock service"), (errno.EINVAL, 78, "cannot lock"), (errno.EOPNOTSUPP, 78, "cannot lock")])
def test_a_file_system_without_locks(dlock, files, shim, error, status, words):
    done = dlock.run("run", *files.words, "-k", "job", "--", "true", env={"LD_PRELOAD": shim, "SETLK_ERRNO": str(error)})
    assert done.status == status and words in done.stderr and os.strerror(error) in done.stderr


@pytest.mark.parametrize("how", [("-n",), ("-w", "1s")])
def test_a_file_that_is_replaced_again_and_again_keeps_nobody_for_longer_than_wanted(dlock, files, shim, how):
    env = {"LD_PRELOAD": shim, "NEVER_THERE": lock_file(files, "job").name}
    done = dlock.run("run", *files.words, "-k", "job", *how, "--", "echo", "ran", env=env)
    assert (done.status, done.stdout) == (69, "") and "removed or replaced" in done.stderr


class Foreign:
    """Locks on the file of a key that a member of the directory's group may take, as no dlock does."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def lock(self, kind, start, length):
        fcntl.fcntl(self.file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))

    def close(self):
        os.close(self.file)


@pytest.fixture
def foreign(files):
    result = Foreign(lock_file(files, "job"))
    yield result
    with contextlib.suppress(OSError):
        result.close()


def asleep(waiter):
    """Waits until a thread of its waits in the kernel."""
    wait_for(lambda: len(os.listdir(f"/proc/{waiter.keeper}/task")) == 2, what="a thread that waits")


@pytest.mark.parametrize("start, length", [(1, 0), (5, 0), (1, 2**62), (2, 10**18), (10**18 - 1, 1)])
def test_a_lock_on_a_huge_range_is_waited_for_and_leaves_nothing(dlock, files, foreign, start, length):
    foreign.lock(fcntl.F_WRLCK, start, length)
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 75
    waiters = [dlock.contend(files, "job", command=("true",)) for _ in range(3)]
    for waiter in waiters:
        asleep(waiter)
    assert not any(w.running for w in waiters)
    foreign.close()
    assert [w.wait().status for w in waiters] == [0] * 3
    holder = dlock.hold(files, "job")
    next_ = dlock.contend(files, "job", command=("true",)).queued(1)
    holder.finish()
    assert next_.wait().status == 0


def test_a_lock_for_reading_is_no_ticket(dlock, files, foreign):
    """It is what a waiter leaves that was stopped just when its turn came; nobody must spin on it."""
    foreign.lock(fcntl.F_RDLCK, 1, 1)
    lock_file(files, "job").write_text("dlock1 2 1 1\n{}\n")
    assert dlock.run("run", *files.words, "-k", "job", "-n", "--", "true").status == 0


# ---- how much a crowd costs: counted, so that growth is seen whatever the machine ----


def counted(dlock, files, shim, log):
    """A waiter that logs what it asks the kernel, queued."""
    log.write_text("")
    return dlock.contend(files, "job", command=("true",), env={"LD_PRELOAD": shim, "GETLK_LOG": str(log)}).queued()


def questions(log):
    return log.read_text().count("G"), log.read_text().count("S")


@pytest.mark.parametrize("crowd", [40, 120])
def test_joining_and_release_ask_the_same_in_any_crowd(dlock, files, shim, tmp_path, crowd):
    """A crowd of tickets without a dlock behind each: a ticket is a byte lock."""
    log = tmp_path / "log"
    log.write_text("")
    holder = dlock.hold(files, "job")
    tickets = [Foreign(lock_file(files, "job")) for _ in range(crowd)]
    for n, ticket in enumerate(tickets):
        ticket.lock(fcntl.F_WRLCK, 2 + n, 1)
    token = holder.token
    lock_file(files, "job").write_text(f"dlock1 {crowd + 2} {token} 1\n{{}}\n")
    waiter = counted(dlock, files, shim, log)
    waiter.queued(crowd + 1)
    asleep(waiter)
    asked, locked = questions(log)
    assert asked <= 8 and locked <= 6
    log.write_text("")
    for ticket in tickets[:-1]:
        ticket.close()  # none of these is the one that the waiter waits for
    holder.finish()
    assert questions(log) == (0, 0)
    tickets[-1].close()
    assert waiter.wait().status == 0
    asked, locked = questions(log)
    assert asked <= 2 and locked <= 8


@pytest.mark.parametrize("hint", ["1", "200", "99999999"])
def test_a_wrong_hint_costs_little(dlock, files, shim, tmp_path, hint):
    """Also among tickets that were drawn in no order, as the kernel then lists them."""
    log = tmp_path / "log"
    numbers = [*range(390, 10, -1), 1000, 5, 2000]
    tickets = {}
    for n in numbers:
        tickets[n] = Foreign(lock_file(files, "job"))
        tickets[n].lock(fcntl.F_WRLCK, n, 1)
    lock_file(files, "job").write_text(f"dlock1 {hint} 1 1\n{{}}\n")
    waiter = counted(dlock, files, shim, log)
    asleep(waiter)
    assert questions(log)[0] <= 160
    del numbers[numbers.index(2000)]
    for n in numbers:
        tickets[n].close()
    assert waiter.poll() is None and not waiter.running
    tickets[2000].close()
    assert waiter.wait().status == 0


def test_a_place_near_the_head_is_counted(dlock, files):
    """Also where the numbers have gaps."""
    for n in (3, 9, 17, 24):
        ticket = Foreign(lock_file(files, "job"))
        ticket.lock(fcntl.F_WRLCK, n, 1)
        files.keep = [*getattr(files, "keep", []), ticket]
    lock_file(files, "job").write_text("dlock1 25 1 1\n{}\n")
    dlock.contend(files, "job").queued(4)
    for ticket in files.keep:
        ticket.close()


# ---- what others may do in a directory ----


def test_directories_of_a_long_key_are_open_to_the_group_whatever_the_umask(dlock, files):
    files.directory.chmod(0o2770)
    done = subprocess.run([DLOCK, "run", *files.words, "-k", "k" * 450, "--", "true"], env=dlock.env, umask=0o077)
    assert done.returncode == 0
    inside = list(files.directory.rglob("*"))
    assert [stat.S_IMODE(p.stat().st_mode) for p in inside if p.is_dir()] == [0o2770] * 2
    assert [stat.S_IMODE(p.stat().st_mode) for p in inside if p.is_file()] == [0o660]


KILLED_AT_FCHMOD = """
    #include <signal.h>
    #include <sys/stat.h>
    #include <unistd.h>

    int fchmod(int fd, mode_t mode)
    {
        (void)fd, (void)mode;
        return kill(getpid(), SIGKILL);
    }
"""


def test_who_is_killed_after_making_a_file_locks_nobody_out(dlock, files, tmp_path):
    """Nor does who is slow: another user may open it at once."""
    env = {**dlock.env, "LD_PRELOAD": compile_shim(tmp_path, "fchmod", KILLED_AT_FCHMOD)}
    files.directory.chmod(0o2770)
    for left in (1, 2, 3):
        assert subprocess.run([DLOCK, "run", *files.words, "-k", "k" * 450, "--", "true"], env=env, umask=0o077, check=False).returncode != 0
        assert [stat.S_IMODE(p.stat().st_mode) for p in sorted(files.directory.rglob("*"))] == [0o2770, 0o2770, 0o660][:left]


def test_a_directory_of_a_long_key_that_is_replaced_is_noticed(dlock, files):
    key = "k" * 450
    holder = dlock.start("run", *files.words, "-k", key, "-t", "3s", "--", "sleep", "1000").held()
    next(files.directory.iterdir()).rename(files.directory / "elsewhere")
    done = holder.wait()
    assert done.status == 79 and "removed or replaced" in done.stderr


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users and have mounts of its own")
USER, OTHER = 12345, 12346


@ONLY_ROOT
@pytest.mark.parametrize("what", ["directory", "file", "symlink"])
def test_a_directory_of_a_long_key_that_a_stranger_made_is_refused(dlock, files, what):
    files.directory.chmod(0o1777)
    step = files.directory / ("k" * 200 + "+")
    if what == "directory":
        step.mkdir(mode=0o755)
        os.chown(step, OTHER, OTHER)
    elif what == "file":
        step.touch()
    else:
        step.symlink_to("/tmp")
    done = dlock.run("run", *files.words, "-k", "k" * 450, "--", "true")
    assert done.status == 77 and done.stderr.count("\n") == 1


def test_a_lock_file_that_is_old_is_touched(dlock, files):
    """Those who clean /tmp look at the age of files."""
    holder = dlock.start("run", *files.words, "-k", "job", "-t", "3s", "--", "sleep", "1000").held()
    os.utime(lock_file(files, "job"), (1, 1))
    wait_for(lambda: lock_file(files, "job").stat().st_mtime > 1, what="a new time")
    assert holder.poll() is None


# ---- the default directory ----


# Where it is in an island: the tests may run from a directory that is hidden there.
PROGRAM = "/mnt/dlock"


class Island:
    """Mounts of its own: an empty /run and /tmp, in which dlock is run as some user."""

    def __init__(self, setup="chmod 1777 /tmp; mkdir -m 1777 /run/lock", *before):
        script = " && ".join(["mount --make-rprivate /", "mount -t tmpfs -o mode=755 program /mnt",
                              f"install -m 755 '{DLOCK}' {PROGRAM}", *before, "mount -t tmpfs -o mode=755 run /run",
                              "mount -t tmpfs tmp /tmp", f"{{ {setup}; }}"]) + "; echo ready; exec sleep 1000"
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        self.started = []

    def words(self, *words, uid=USER, env=None):
        environ = {"PATH": "/usr/bin:/bin", **(env or {})}
        return ["nsenter", "-t", str(self.process.pid), "-m", "setpriv", f"--reuid={uid}", f"--regid={uid}",
                "--clear-groups", "env", "-i", *(f"{k}={v}" for k, v in environ.items()), *words]

    def sh(self, script, uid=0):
        return subprocess.run(self.words("sh", "-c", script, uid=uid), capture_output=True, text=True, check=True).stdout

    def run(self, *words, program=PROGRAM, **options):
        done = subprocess.run(self.words(program, "run", "-b", "file", "-k", "job", *words, **options),
                              capture_output=True, text=True, timeout=60, check=False)
        return Completed(done.returncode, done.stdout, done.stderr)

    def hold(self, *words, program=PROGRAM, **options):
        """Returns when it holds the lock, which it does until finish()."""
        words = self.words(program, "run", "-b", "file", "-k", "job", *words, "--", "sh", "-c", "echo held; cat", **options)
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(holder)
        assert holder.stdout.readline() == "held\n"
        return holder

    def close(self):
        for holder in self.started:
            holder.communicate()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def island(nothing_is_left):
    yield from making(Island, end="close")


@ONLY_ROOT
@pytest.mark.parametrize("uid, runtime", [(0, "/run"), (USER, "/run/user/12345")], ids=["root", "user"])
def test_cron_and_a_login_exclude_each_other(island, uid, runtime):
    """One has XDG_RUNTIME_DIR and values of its own for TMPDIR and HOME, the other nothing."""
    here = island()
    here.sh(f"mkdir -p {runtime} && chown {uid} {runtime}; mkdir -m 777 /tmp/mine")
    login = {"XDG_RUNTIME_DIR": runtime, "HOME": "/tmp/mine", "TMPDIR": "/tmp/mine"}
    here.hold(uid=uid, env=login)
    done = here.run("-n", "--", "true", uid=uid)
    assert done.status == 75 and done.stderr.count("\n") == 1
    assert here.run("-n", "--", "true", uid=OTHER).status == 0
    found = here.sh("ls -d /run/dlock /run/lock/* /tmp/d* 2>/dev/null || :").split()
    mine = "/run/dlock" if uid == 0 else f"/run/lock/dlock-{USER}"
    assert sorted(found) == sorted([mine, f"/run/lock/dlock-{OTHER}"])
    assert here.sh(f"stat -c '%a %u' {mine}") == f"700 {uid}\n"


@ONLY_ROOT
@pytest.mark.parametrize("setup, uid", [
    ("mkdir -m 755 /run/lock; chmod 1777 /tmp", USER), ("chmod 1777 /tmp", USER), ("touch /run/lock; chmod 1777 /tmp", USER),
    ("mkdir -m 1777 /run/lock; chmod 1777 /tmp; mount -o remount,ro /run", USER),
    ("chmod 1777 /tmp; mount -o remount,ro /run", 0),
], ids=["not-ours", "none", "file", "read-only", "root-read-only"])
def test_where_run_cannot_be_had_it_is_tmp(island, setup, uid):
    here = island(setup)
    here.hold(uid=uid)
    assert here.run("-n", "--", "true", uid=uid).status == 75
    assert here.sh("ls -d /tmp/dlock-*") == f"/tmp/dlock-{uid}\n"


@ONLY_ROOT
def test_a_sandbox_is_led_nowhere_else_by_what_it_may_not_write(island):
    """It may see the directory but not write it: better no run than one beside another."""
    here = island()
    here.hold()
    here.sh("mount --bind /run/lock /run/lock && mount -o remount,bind,ro /run/lock")
    done = here.run("-n", "--", "true")
    assert done.status == 71 and f"/run/lock/dlock-{USER}" in done.stderr and "Read-only" in done.stderr


@ONLY_ROOT
def test_a_full_disk_does_not_change_the_place(island):
    here = island("mkdir -m 1777 /run/lock; chmod 1777 /tmp; mount -o remount,nr_inodes=4 /run; touch /run/a /run/b; :")
    done = here.run("-n", "--", "true")
    assert done.status == 71 and "/run/lock/dlock" in done.stderr and "No space" in done.stderr
    assert here.sh("ls /tmp") == ""


@ONLY_ROOT
@pytest.mark.parametrize("what", ["directory", "closed", "file", "symlink", "dangling", "open"])
@pytest.mark.parametrize("first", [True, False], ids=["lock", "tmp"])
def test_a_squatted_directory_is_refused_with_advice(island, what, first):
    here = island("mkdir -m 1777 /run/lock; chmod 1777 /tmp" if first else "chmod 1777 /tmp")
    path = f"/run/lock/dlock-{USER}" if first else f"/tmp/dlock-{USER}"
    here.sh({"directory": f"mkdir {path}", "closed": f"mkdir -m 700 {path}", "file": f"touch {path}",
             "symlink": f"mkdir -m 777 /tmp/x; ln -s /tmp/x {path}", "dangling": f"ln -s /nowhere {path}",
             "open": f"mkdir {path}; chmod 777 {path}"}[what], uid=USER if what == "open" else OTHER)
    done = here.run("--", "true")
    assert done.status == 77 and done.stderr.count("\n") == 1
    assert path in done.stderr and "-u file:///" in done.stderr
    assert f"uid {USER if what == 'open' else OTHER}" in done.stderr
    assert ("symbolic link" in done.stderr) == (what in ("symlink", "dangling"))


@ONLY_ROOT
def test_a_link_that_comes_and_goes_leads_nobody_to_the_next_place(island):
    """Another user who wins a race may have a run refused, but not sent where another one does not look."""
    here, path = island(), f"/run/lock/dlock-{USER}"
    loop = f"import os\nprint(flush=True)\nwhile True:\n try: os.symlink('/x', {path!r}); os.unlink({path!r})\n except OSError: pass"
    with subprocess.Popen(here.words("python3", "-c", loop, uid=OTHER), stdout=subprocess.PIPE) as racer:
        assert racer.stdout.readline() == b"\n"
        here.sh(f"for i in $(seq 100); do {DLOCK} run -b file -k job -- true; rm -rf {path}; done 2>/dev/null; :", uid=USER)
        racer.kill()
    assert here.sh("ls /tmp") == ""


@ONLY_ROOT
def test_nobody_can_squat_roots_directory(island):
    here = island()
    here.sh("mkdir /run/lock/dlock /run/lock/dlock-0 /tmp/dlock-0 /tmp/dlock", uid=OTHER)
    done = here.run("--", "true", uid=0)
    assert (done.status, done.stderr) == (0, "")


@ONLY_ROOT
def test_doctor_makes_no_default_directory(island):
    """Nor removes one that a run has opened meanwhile."""
    here = island()
    done = subprocess.run(here.words(PROGRAM, "doctor", "-b", "file"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "not tried: the directory would be made for it" in done.stdout, done
    assert here.sh("ls /run/lock") == ""


@ONLY_ROOT
@pytest.mark.parametrize("umask", ["000", "077", "777"])
def test_the_default_directory_is_private_whatever_the_umask(island, umask):
    here = island()
    done = subprocess.run(here.words("sh", "-c", f"umask {umask}; exec {PROGRAM} run -b file -k job -- true"), check=False)
    assert done.returncode == 0
    assert here.sh("stat -c %a /run/lock/*") == "700\n"
    assert here.run("-n", "--", "true").status == 0


@ONLY_ROOT
@pytest.mark.parametrize("uid, place, env", [
    (0, "/tmp/dlock-0", {}), (USER, f"/tmp/dlock-{USER}", {}), (USER, f"/tmp/dlock-{USER}", {"XDG_RUNTIME_DIR": "/tmp/x"}),
], ids=["root-tmp", "tmp", "tmp, in a session"])
def test_a_lock_in_another_default_directory_is_told_of_once(island, uid, place, env):
    here = island()
    here.sh(f"mkdir -p -m 1777 {os.path.dirname(place)}; mkdir -m 700 {place}; chown {uid} {place}")
    assert here.run("-u", f"file://{place}", "--", "true", uid=uid).stderr == ""
    assert here.run("--", "true", uid=uid, env=env).stderr == ""  # a file is no lock
    here.hold("-u", f"file://{place}", uid=uid)
    done = here.run("--", "true", uid=uid, env=env)
    assert done.status == 0 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("dlock: job is also locked in ") and place in done.stderr and "do not exclude" in done.stderr
    assert here.run("-q", "--", "true", uid=uid, env=env).stderr == ""
    assert '"event":"notice"' in here.run("--status-fd", "1", "--", "true", uid=uid, env=env).stdout
    assert here.run("-u", f"file://{place}", "-n", "--", "true", uid=uid).stderr.count("\n") == 1


@ONLY_ROOT
def test_what_a_stranger_locks_in_another_default_directory_is_nobodys_business(island):
    here = island()
    here.sh("mkdir /tmp/dlock-0", uid=OTHER)
    here.hold("-u", "file:///tmp/dlock-0", uid=OTHER)
    assert here.run("--", "true", uid=0).stderr == ""


def test_a_lock_file_that_was_gone_at_the_release_is_a_loss(dlock, tmp_path):
    directory = tmp_path / "locks"
    directory.mkdir(mode=0o700)
    done = dlock.run("run", "-u", f"file://{directory}", "-k", "k", "--", "rm", directory / "k.lock")
    assert done.status == 79 and "lost k" in done.stderr, done


def test_steering_of_several_keys_ends_with_the_worst(dlock, tmp_path):
    directory = tmp_path / "locks"
    directory.mkdir(mode=0o700)
    (directory / "a.lock").mkdir()
    done = dlock.run("freeze", "-u", f"file://{directory}", "-k", "a", "-k", "b")
    assert done.status not in (0, 64) and "b is frozen" in done.stdout + done.stderr, done


def test_both_processes_killed_at_once_leave_the_lock_free(dlock, files):
    """The kernel ends the command, and nobody what that has started."""
    holder = dlock.start("run", *files.words, "-k", "job", "--", "sh", "-c", "sleep 1000 & echo $!; wait").held()
    left = int(wait_for(holder.stdout, what="the command"))
    wait_for(lambda: name_of(left) == "sleep", what="the other one")
    command, = [p for p in descendants_of(holder.pid) if name_of(p) == "sh"]
    for pid in (holder.pid, holder.keeper):
        os.kill(pid, signal.SIGSTOP)
    for pid in (holder.pid, holder.keeper):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(command), what="the command's end")
    assert dlock.run("run", *files.words, "-k", "job", "-w", "10s", "--", "true").status == 0
    assert is_alive(left)
    kill(left)
