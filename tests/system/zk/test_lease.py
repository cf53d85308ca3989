# Goal of these tests: how long a ZooKeeper lock is ours is counted from what the
# leader knows.  A write that a follower passed on does not tell it that we live,
# the follower's answer to its next ping does (backends/zk/session.h).

import os
import time

from faults import IS_GONE
from support import DLOCK, At
from zk import SET_DATA, Tap, ZkEnsemble

LEASE, SILENCE = 18, 5  # seconds; the naive binary is heard of each third of its lease
STUBBORN = ("sh", "-c", "trap '' TERM; exec cat")  # holds to the end of what the lease is believed to be


class CutAfterWrite(Tap):
    """Cuts the follower from its leader with the answer to a renewal, before it answers another ping.

    That renewal is one that follows a silence.  When the silence ends, be it with a ping
    of the client, the follower's answers are lost: so the leader's last news is from
    before it, whatever the phases of all their pings.
    """

    def __init__(self, proxy, ensemble, follower):
        super().__init__(proxy)
        self.ensemble, self.follower = ensemble, follower
        self.heard, self.renewed, self.is_gagged, self.has_cut = time.monotonic(), False, False, False

    def _up(self, state, message):
        now = time.monotonic()
        if self.renewed and now - self.heard > SILENCE and not self.is_gagged:
            self.is_gagged = True
            self.ensemble.gag(self.follower)
        self.heard = now
        super()._up(state, message)

    def _down(self, state, message):
        xid = int.from_bytes(message[:4], "big", signed=True)
        if state.welcomed and state.asked.get(xid) == SET_DATA:
            self.renewed = True
            if self.is_gagged and not self.has_cut:
                self.has_cut = True
                self.ensemble.cut(self.follower)
        super()._down(state, message)


def test_follower_cut_right_after_a_write(dlock, make_zk, make_proxy):
    """The leader's last news of the holder is from before the write.

    Where the lease is counted from the write, two run at once: the binary that
    does so shows that this test can fail.  It ends 0.7 s before a lease that was
    counted from the write, the session at least SILENCE before that, and at most
    a tick (0.2 s) and the way to the leader later.
    """
    ensemble = make_zk(program=ZkEnsemble, syncLimit=500)
    leader, follower = ensemble.leader, ensemble.followers[0]
    proxy = make_proxy(follower.port)
    tap = CutAfterWrite(proxy, ensemble, follower)
    naive = os.path.join(os.path.dirname(DLOCK), "dlock-acks")
    lease = ("-t", f"{LEASE}s")
    holders = {"naive": dlock.contend(At(f"zk://127.0.0.1:{proxy.port}"), "naive", *lease, command=STUBBORN,
                                      program=naive).held(),
               "dlock": dlock.contend(At(follower.url), "dlock", *lease, command=STUBBORN).held()}
    commands = {name: holder.command for name, holder in holders.items()}
    others = {name: dlock.contend(At(leader.url), name, command=("sh", "-c", IS_GONE, commands[name])).queued(1)
              for name in holders}
    overlapped = {name: other.wait(60).status == 99 for name, other in others.items()}
    assert tap.has_cut
    assert not overlapped["dlock"] and holders["dlock"].wait().status == 79
    assert overlapped["naive"]
    assert all(others[name].token > holders[name].token for name in holders)
