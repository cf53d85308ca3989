# Goal of this file: what is dear to make and always the same is made by one of the processes that run tests
# side by side, and used by all of them.

import atexit
import fcntl
import functools
import os
import shutil
import tempfile


@functools.cache
def common():
    """A directory of all of them, if the process that forks them has asked for it; who asked removes it at its end."""
    directory, owner = tempfile.mkdtemp(prefix="dlock-common-"), os.getpid()
    os.chmod(directory, 0o755)  # servers run as other users
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(directory, ignore_errors=True))
    return directory


def made_once(name, make):
    """The directory of this name, which make(directory) has filled; its parent belongs to whoever asks first."""
    path = os.path.join(common(), name)
    with open(f"{path}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            fresh = f"{path}.new"
            shutil.rmtree(fresh, ignore_errors=True)  # of one who was interrupted
            os.mkdir(fresh)
            os.chmod(fresh, 0o755)
            make(fresh)
            os.rename(fresh, path)
    return path
