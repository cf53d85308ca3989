# Goal of this file: leases and patience of tests in which something fails, and what they ask of dlock.

import datetime
import re

from support import told_at_the_end, wait_for

LEASE = ("-t", "3s")  # TERM 1.97 s, KILL 2.47 s after the last good renewal was sent
LEASE_SECONDS = 3
LIVING_LEASE = ("-t", "9s")  # of a holder who is to keep it, on a machine that is late by seconds
SOON_SECONDS = 25  # after a lease of 3 s, and before one of 30 s could end
SOON = f"{SOON_SECONDS}s"
IMPATIENT = ("-O", "connect-timeout=1s")
PATIENT = ("-w", "2m")  # of many that begin at once, not all of whom a slow server answers within connect-timeout
ONCE = ("-n",)  # asks once, also a server that does not answer

# Notes SIGTERM in a file and goes on until it is killed.
STUBBORN = "trap 'echo TERM >>\"$0\"' TERM; while :; do read x; done"

# Fails if the process is more than a zombie.
IS_GONE = "[ ! -e /proc/$0/exe ] || exit 99"


# Said by a run that has had no answer for three seconds, which is what some answers take on a machine that is late.
WAITS = re.compile(r"dlock: waiting [3-9]\S* for .*\n")


def assert_refused(done, status, *words):
    """Nothing was run, and one clean line says why."""
    assert (done.status, done.stdout) == (status, ""), done
    why = WAITS.sub("", done.stderr, count=1)
    assert why.startswith("dlock: ") and why.endswith("\n") and why.count("\n") == 1, done
    assert all(c.isprintable() for c in done.stderr.replace("\n", "")), done
    for word in words:
        assert word in why, done


def wait_for_writes(server, started, n=1):
    """Waits until the lease has been renewed so many times more."""
    before = server.writes()
    wait_for(lambda: server.writes() >= before + n, what=f"{n} renewals")
    assert started.poll() is None


class UntilTold:
    """A fault of a holder's renewals, from begin() until it has told of that: it lasts no longer if a test sees that late."""

    def __init__(self):
        self.holder, self.on = None, False

    def begin(self, holder):
        self.holder = holder

    def decide(self):
        """For one answer as a whole: is it changed?"""
        self.on = self.holder is not None and not self.holder.events("suspect")


def assert_goes_on(holder, about):
    """It ends well, and whatever failed is told only if that lasted for half of the time that was left."""
    def lasted(suspect, trusted):
        began, end = (datetime.datetime.fromisoformat(e["time"].replace("Z", "+00:00")) for e in (suspect, trusted))
        return (end - began).total_seconds() * 1000

    done = holder.finish()
    failed, passed = holder.events("suspect"), holder.events("trusted")
    assert (done.status, told_at_the_end(done.stderr), len(failed)) == (0, "", len(passed)), (about, done)
    if all(lasted(*both) < both[0]["left_ms"] / 2 - 5 for both in zip(failed, passed)):
        assert done.stderr == "", (about, done)


def assert_password_is_not_shown(dlock, url, secret, job=("--once", "today"), asker=True, **more):
    """Though it stands in what others have said of themselves: who sees that may have been told nothing."""
    words = ["-u", url, "-k", "password"]
    held = dlock.start("run", *words, "-t", "12s", "--grace", "2s", "--why", f"runs with {secret}", *job, "--",
                       "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", **more).held()
    for patience in ("500ms", "3s", "10s"):  # on a busy machine the first may end before it is told of a holder
        waits = dlock.start("run", *words, "-w", patience, "--", "true", **more)
        waits.wait()
        if waits.events("waiting"):
            break
    told = {waits.stderr(), str(waits.events()), dlock.run("ls", "-J", "-u", url, **more).stdout}
    assert "runs with ***" in str(waits.events())
    breaks = dlock.start("break", *words, "-y", "--why", f"breaks with {secret}", **more)
    while breaks.poll() is None:
        told.add(dlock.run("status", "-J", *words, **more).stdout)
    assert held.wait().status == 79 and "breaks with ***" in held.stderr(), held.stderr()
    told |= {breaks.stderr(), held.stderr(), str(held.events()), dlock.run("status", "-J", *words, **more).stdout}
    assert not [text for text in told if secret in text]
    for says in ('"why":"runs with ***"', '"revoked_why":"breaks with ***"')[:1 + asker]:
        assert any(says in text for text in told), says
