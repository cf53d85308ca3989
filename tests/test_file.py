# Goal of these tests: what is peculiar to the file backend.  The kernel's
# locks decide, whatever becomes of the bytes in the file; a lock file that is
# gone or replaced is noticed; nobody is led astray by what others put there.

import os
import resource
import stat
import subprocess

import pytest

from support import DLOCK, FilePlace


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
