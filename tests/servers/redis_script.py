# Goal of this file: the operations of lock.lua, asked as dlock asks them.

import os

from support import ROOT


def ears(client, key="job"):
    """How many of those who wait for this lock would hear a message.  (A holder listens, too.)"""
    waiting = client.zrange(f"dlock:{{{key}}}:q", 0, -1)
    return sum(n for _, n in client.pubsub_numsub(*(f"dlock:{{{key}}}:w:{owner}" for owner in waiting)))


class Script:
    """Its operations, with owners of short names."""

    def __init__(self, client, key="job"):
        with open(os.path.join(ROOT, "backends/redis/lock.lua"), encoding="utf-8") as f:
            self._run = client.register_script(f.read())
        self.client = client
        self.keys = [f"dlock:{{{key}}}:{k}" for k in ("h", "i", "q", "l", "w:", "f")]
        self.last = f"dlock:{{{key}}}:r"

    def acquire(self, owner, kind="x", alive=9000, lease=30000, ticket=0, once=None, cooldown=0):
        job = [self.last, f"{self.last}:{once}"] if once else []
        return self._run(self.keys + job, ["acquire", owner, lease, alive, 0, kind, "{}", ticket, *([cooldown] if job else [])])

    def renew(self, owner, lease=30000):
        return self._run(self.keys, ["renew", owner, lease])

    def release(self, owner, status=None, once=None):
        job = [self.last, f"{self.last}:{once}"] if once else []
        return self._run(self.keys + job, ["release", owner, *([status, once] if job else [])])[0]

    def forget(self, once, *sums):
        return self._run([*self.keys, self.last, f"{self.last}:{once}"], ["forget", "", once, *sums])[0]

    def holders(self):
        rows = {o: self.client.hget(self.keys[1], o).split(" ") for o in self.client.zrange(self.keys[0], 0, -1)}
        return {o: (w[0], int(w[3]), int(w[2])) for o, w in rows.items()}

    def waiters(self):
        return self.client.zrange(self.keys[2], 0, -1)
