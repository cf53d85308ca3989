# Goal of these tests: how long a ZooKeeper lock is ours is counted from what the
# leader knows.  A write that a follower passed on does not tell it that we live,
# the follower's answer to its next ping does (backends/zk/session.h).

import os

from support import DLOCK
from test_fault import IS_GONE, At
from zk import SET_DATA, Tap, ZkEnsemble


class CutAfterWrite(Tap):
    """Cuts the follower from its leader with the answer to the second renewal, long before its next ping."""

    def __init__(self, proxy, ensemble, follower):
        super().__init__(proxy)
        self.ensemble, self.follower, self.writes = ensemble, follower, 0

    def _down(self, state, message):
        xid = int.from_bytes(message[:4], "big", signed=True)
        if state.welcomed and state.asked.get(xid) == SET_DATA:
            self.writes += 1
            if self.writes == 2:
                self.ensemble.cut(self.follower)
        super()._down(state, message)


def test_follower_cut_right_after_a_write(dlock, make_zk, make_proxy):
    """The leader's last news of the holder is from before the write.

    Where the lease is counted from the write, two run at once: the binary that
    does so shows that this test can fail.
    """
    ensemble = make_zk(program=ZkEnsemble, tickTime=1000, minSessionTimeout=2000)
    leader, follower = ensemble.leader, ensemble.followers[0]
    proxy = make_proxy(follower.port)
    tap = CutAfterWrite(proxy, ensemble, follower)
    naive = os.path.join(os.path.dirname(DLOCK), "dlock-acks")
    holders = {"naive": dlock.contend(At(f"zk://127.0.0.1:{proxy.port}"), "naive", "-t", "12s", program=naive).held(),
               "dlock": dlock.contend(At(follower.url), "dlock", "-t", "12s").held()}
    commands = {name: holder.command for name, holder in holders.items()}
    others = {name: dlock.contend(At(leader.url), name, command=("sh", "-c", IS_GONE, commands[name])).queued(1)
              for name in holders}
    overlapped = {name: other.wait(60).status == 99 for name, other in others.items()}
    assert tap.writes == 2
    assert not overlapped["dlock"] and holders["dlock"].wait().status == 79
    assert overlapped["naive"]
    assert all(others[name].token > holders[name].token for name in holders)
