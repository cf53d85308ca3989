# Goal of this file: what each client in Python has in common: it is started with the port of
# a server (and a database), is told `take NAME`, `wait NAME` or `free NAME`, one line each,
# and answers "held", "busy" or "free".

import sys

PORT, DATABASE = int(sys.argv[1]), (sys.argv[2:] or [None])[0]
LEASE = 600  # seconds, where a client has any: longer than a test waits


def serve(lock):
    """lock(name) makes what has acquire(blocking=) and release()."""
    held = None
    for line in sys.stdin:
        verb, name = line.split()
        if verb == "free":
            held.release()
            answer = "free"
        else:
            held = lock(name)
            answer = "held" if held.acquire(blocking=verb == "wait") else "busy"
        print(answer, flush=True)


class Added:
    """The usual lock of those who have nothing but a Django cache."""

    def __init__(self, cache, name):
        self.cache, self.name = cache, name

    def acquire(self, blocking):
        assert not blocking
        return self.cache.add(self.name, "me", LEASE)

    def release(self):
        assert self.cache.delete(self.name)
