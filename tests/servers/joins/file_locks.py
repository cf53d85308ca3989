# Goal of this file: those who lock a file of a given name: flock(1), and libraries as they are
# used.  The name is the file's path.  Each imports its own library, so that one of them is enough.

import subprocess

from serve import DATABASE, serve


class Flock:
    """flock(1), around a command that ends with its input."""

    def __init__(self, path):
        self.path, self.run = path, None

    def acquire(self, blocking):
        self.run = subprocess.Popen(["flock", *([] if blocking else ["-n"]), self.path, "sh", "-c", "echo held; read end"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self.run.stdout.readline() == "held\n"

    def release(self):
        self.run.communicate()


class FileLock:
    def __init__(self, path):
        import filelock
        self.busy, self.lock = filelock.Timeout, filelock.FileLock(path)

    def acquire(self, blocking):
        try:
            return bool(self.lock.acquire(timeout=-1 if blocking else 0))
        except self.busy:
            return False

    def release(self):
        self.lock.release()


class PortaLocker:
    def __init__(self, path):
        self.path, self.lock = path, None

    def acquire(self, blocking):
        import portalocker
        flags = portalocker.LOCK_EX | (0 if blocking else portalocker.LOCK_NB)
        self.lock = portalocker.Lock(self.path, fail_when_locked=not blocking, flags=flags)
        try:
            return bool(self.lock.acquire())
        except portalocker.exceptions.BaseLockException:
            return False

    def release(self):
        self.lock.release()


def fasteners(path):
    from fasteners import InterProcessLock
    return InterProcessLock(path)


def oslo(path):
    from oslo_concurrency import lockutils
    directory, name = path.rsplit("/", 1)
    lock = lockutils.external_lock(name, lock_path=directory)
    assert lock.path.decode() == path if isinstance(lock.path, bytes) else lock.path == path
    return lock


if __name__ == "__main__":
    serve({"flock": Flock, "filelock": FileLock, "portalocker": PortaLocker, "fasteners": fasteners, "oslo": oslo}[DATABASE])
