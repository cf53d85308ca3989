# Goal of this file: what the rooms of tests of a run share.

import contextlib

import pytest

from support import PATIENCE, Late, descendants_of, kill

pexpect = Late("pexpect")


@pytest.fixture
def terminal(dlock, tmp_path):
    """Opens terminals in which these words are the first process; each is closed like a window, and what does not go by itself is killed."""
    opened = []

    def opener(*words, echo=True):
        env = {**dlock.env, "PS1": "<$?>", "TERM": "vt100", "HISTFILE": ""}
        opened.append(pexpect.spawn(words[0], list(words[1:]), env=env, cwd=str(tmp_path), echo=echo, encoding="utf-8", timeout=PATIENCE))
        return opened[-1]

    yield opener
    for tty in opened:
        below = [tty.pid, *descendants_of(tty.pid)]
        with contextlib.suppress(OSError, pexpect.ExceptionPexpect):
            tty.close(force=True)
        for pid in below:
            kill(pid)
