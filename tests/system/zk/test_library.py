# Goal of these tests: a libzookeeper whose log is not the one that dlock knows (library.h) is
# refused where its answers would not be looked at, and otherwise done without.

import os
import subprocess

import pytest

from faults import IMPATIENT, assert_refused
from support import DLOCK, boottime, free_port, spent, wait_for
from zk import nodes

MUTE = os.path.join(os.path.dirname(DLOCK), "dlock-mute")  # leaves out lines with the text of MUTE_ZOOKEEPER


@pytest.mark.parametrize("text", ["", "nitiated connection to server"], ids=["everything", "connections"])
def test_one_that_does_not_tell_of_its_connections_is_refused(dlock, at, text):
    done = dlock.start("run", *at.words, "-k", "job", "--", "echo", "ran", program=MUTE, env={"MUTE_ZOOKEEPER": text}).wait()
    assert_refused(done, 78, "libzookeeper", "3.8")


def test_one_that_does_not_tell_of_errors_is_done_without(dlock, at, make_proxy):
    """It connects as it likes: a server that is away is said to be, and one that comes back is found."""
    quiet = {"program": MUTE, "env": {"MUTE_ZOOKEEPER": "errno="}}
    before = boottime()
    away = ["-u", f"zk://127.0.0.1:{free_port()}", *IMPATIENT]
    assert_refused(dlock.start("run", *away, "-k", "job", "--", "true", **quiet).wait(), 69)
    assert spent(before) < 20
    proxy = make_proxy(at.server.port)
    holder = dlock.start("run", *at.through(proxy).words, "-k", "job", "-t", "6s", "--", *dlock.UNTIL_EOF,
                         stdin=subprocess.PIPE, **quiet).held()
    with at.server.client() as c:
        path = f"{at.job}/{nodes(c, at.job)[0]}"
        version = c.get(path)[1].version
        proxy.reset()
        wait_for(lambda: c.exists(path).version >= version + 2, what="renewals through another connection")
    assert holder.finish().status == 0
