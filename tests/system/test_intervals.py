# Goal of these tests: whatever is killed, stopped or restarted, two commands
# never run at once under one key, tokens only grow, and who is left alone is
# served.  DLOCK_SOAK=SECONDS makes them last longer.
#
# The judge is the kernel: each command, and its descendants with it, holds a
# flock(2) from its first instruction until it is gone.  A command that finds it
# taken has overlapped with another one.
#
# They were seen to fail when the front did not kill the tree of a dead keeper
# or overlooked a part of it, when it had no copy of the file lock, when the
# keeper released without waiting for the tree, and when the deadlines lay beyond
# the lease.

import os
import random
import signal
import subprocess
import threading
import time

import pytest

from support import boottime, children_of, descendants_of, kill, name_of, wait_for

SECONDS = float(os.environ.get("DLOCK_SOAK", "14"))
CROWDS = (24, 6, 6, 6)  # contenders for each key
LONG = 8                # seconds, well beyond the lease

WITNESS = r"""
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/file.h>
    #include <time.h>
    #include <unistd.h>

    /* witness JUDGE LOG END MILLISECONDS: runs so long, or until the file END exists */
    int main(int argc, char **argv)
    {
        int overlaps = flock(open(argv[1], O_RDWR), LOCK_EX | LOCK_NB) != 0;
        int pause = atoi(argv[4]);
        struct timespec t;

        clock_gettime(CLOCK_BOOTTIME, &t);
        dprintf(open(argv[2], O_WRONLY | O_APPEND), "%s %s %ld.%09ld\n", overlaps ? "OVERLAP" : "alone",
            getenv("DLOCK_TOKEN"), (long)t.tv_sec, t.tv_nsec);
        if (fork() == 0) { /* a daemon, which lives a little longer */
            setsid();
            usleep(1000); /* who counts processes may have seen this one, and not the next */
            if (fork() != 0)
                _exit(0);
            pause += 20;
        }
        for (; pause > 0 && access(argv[3], F_OK) != 0; pause -= 5)
            usleep(5000);
        return argc != 5;
    }
"""

# What is done to a run: to which process (one only, since each relies on the
# other), how, for how many seconds; and how long the command of such a run lasts.
TORMENTS = [
    ("front", signal.SIGKILL, 0, LONG),
    ("keeper", signal.SIGKILL, 0, LONG),
    ("keeper", signal.SIGSTOP, 4, LONG),
    ("front", signal.SIGSTOP, 1, 0.5),
    ("keeper", signal.SIGSTOP, 0.3, 0.5),
    ("command", signal.SIGKILL, 0, LONG),
    ("command", signal.SIGSTOP, 0.5, 0.3),
]
SHORT = (0.002, 0.02, 0.1, 0.1, 1.2)  # the others' commands; the last one sees a renewal


@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    program = tmp_path_factory.mktemp("witness") / "witness"
    subprocess.run(["gcc", "-O2", "-static", "-x", "c", "-o", program, "-"], input=WITNESS.encode(), check=True)
    return program


class Crowd:
    """Contenders for one key, each of which runs the witness again and again."""

    def __init__(self, witness, directory):
        self.directory = directory
        directory.mkdir()
        self.judge, self.log, self.end = (directory / name for name in ("judge", "log", "end"))
        self.judge.touch()
        self.log.touch()
        self.witness = [witness, self.judge, self.log, self.end]
        self.spared, self.tormented, self.errors = [], [], []
        self.stories = {}  # of the tormented
        self.threads = []

    def start(self, contenders, run):
        """`run` starts one dlock with these options and this command."""
        for n in range(contenders):
            dice = random.Random(random.random() + n)
            self.threads.append(threading.Thread(target=self._contend, args=(run, dice), daemon=True))
            self.threads[-1].start()

    def finish(self):
        self.end.touch()
        for thread in self.threads:
            thread.join(180)
        assert not any(thread.is_alive() for thread in self.threads), "a contender waits for ever"
        assert not self.errors

    def _contend(self, run, dice):
        served = False
        try:
            while not (served and self.end.exists()):
                torment = dice.choice(TORMENTS) if dice.random() < 0.4 and not self.end.exists() else None
                pause = torment[3] if torment else dice.choice(SHORT)
                started = run("--wait-tree", "--", *self.witness, int(pause * 1000))
                if torment:
                    self.stories[started] = self._torment(started, dice, *torment[:3])
                (self.tormented if torment else self.spared).append(started)
                started.wait(120)
                served = served or started.running
        except Exception as e:  # pylint: disable=broad-except
            self.errors.append(e)

    def _torment(self, started, dice, process, sig, seconds):
        if dice.random() < 0.75:
            wait_for(lambda: started.running or started.poll() is not None)
        time.sleep(dice.uniform(0, 0.3))
        pids = [started.pid]
        for _ in range(("front", "keeper", "command").index(process)):
            pids = children_of(pids[0]) if pids else []
        if started.poll() is not None or not pids:
            return "nothing"
        at = boottime()
        kill(pids[0], sig)
        time.sleep(seconds)
        if sig == signal.SIGSTOP:
            kill(pids[0], signal.SIGCONT)
        return f"{process} {sig.name} at {at:.3f} for {seconds} s, {pids}"

    def tell(self):
        """Prints what happened to whom, for the search after a failure."""
        runs = {s.events("acquired")[0]["token"]: s for s in self.spared + self.tormented if s.events("acquired")}
        for line in self.seen():
            print(*line)
            started = runs.get(int(line[1]))
            if started:
                print("   ", started.poll(), self.stories.get(started, "spared"), started.stderr().strip())
                print("   ", *((e["time"][17:], e["event"], e.get("reason")) for e in started.events()))

    def seen(self):
        """(alone or OVERLAP, token, time) of each command, in the order of their starts."""
        return [line.split() for line in self.log.read_text().splitlines()]


def test_the_judge_sees_overlaps(witness, tmp_path):
    crowd = Crowd(witness, tmp_path / "crowd")
    env = {**os.environ, "DLOCK_TOKEN": "1"}
    subprocess.run([*crowd.witness, "10"], env=env, check=True)
    subprocess.run([*crowd.witness, "10"], env=env, check=True)  # the first one's daemon is still there
    assert [line[0] for line in crowd.seen()] == ["alone", "OVERLAP"]


def witnesses():
    return [p for p in descendants_of(os.getpid()) if name_of(p) == "witness"]


def test_no_daemon_survives_a_killed_keeper(dlock, place, witness, tmp_path):
    # The command is killed while it makes a daemon, or the daemon changes its
    # parent while the front looks for it: now and then the front could miss it.
    crowd, left = Crowd(witness, tmp_path / "crowd"), set()
    for n in range(120):
        started = dlock.start("run", *place.words, "-k", place.key(f"key{n}"), "--", *crowd.witness, LONG * 1000)
        started.event("started")
        time.sleep(random.uniform(0, 0.001))
        kill(started.keeper)
        assert started.wait().status == 79
        left.update(witnesses())
    crowd.end.touch()
    assert not left


def test_no_overlap_whatever_happens(dlock, place, witness, tmp_path, request):
    seed = int(os.environ.get("DLOCK_SEED", random.SystemRandom().randrange(1 << 32)))
    print("DLOCK_SEED", seed)  # shown when the test fails
    random.seed(seed)
    restart = place.crashable(request)
    before, lock = boottime(), threading.Lock()
    crowds, longest = [], 0
    for n, contenders in enumerate(CROWDS):
        def run(*words, key=place.key(f"key{n}")):
            with lock:
                return dlock.start("run", *place.words, "-k", key, "-t", place.crash_ttl, "-w", "inf", *words)

        crowds.append(Crowd(witness, tmp_path / f"crowd{n}"))
        crowds[-1].start(contenders, run)
    while boottime() - before < SECONDS:
        time.sleep(random.uniform(1, 4))
        if restart:
            crash = boottime()
            restart()
            longest = max(longest, boottime() - crash)
            print(f"restart at {crash:.3f}, until {boottime():.3f}")
    for crowd in crowds:
        crowd.end.touch()
    for crowd, contenders in zip(crowds, CROWDS):
        crowd.finish()
        check(crowd, contenders, before, longest > float(place.crash_ttl[:-1]) / 5)


def check(crowd, contenders, before, slow):
    """slow: a server was away for longer than a lease of that length can bear."""
    seen = crowd.seen()
    if any(line[0] != "alone" for line in seen):
        crowd.tell()
    assert not [line for line in seen if line[0] != "alone"]
    tokens = [int(line[1]) for line in seen]
    assert all(a < b for a, b in zip(tokens, tokens[1:]))
    times = [float(line[2]) for line in seen]
    assert times == sorted(times) and times[0] >= before
    assert len(seen) >= contenders and crowd.spared
    for started in crowd.spared:
        done = started.result()
        # Whoever names a time to wait waits for a server, too, however long it is away.
        assert done.status == 0 or slow and done.status == 79, (done, started.events())


def test_no_overlap_in_a_crowd_on_pg(dlock, make_pg, witness, tmp_path):
    """Three hundred at once on one server, of whom one after the other is killed."""
    server = make_pg(safe=True, max_connections=500)
    place = ("-u", server.url, "-k", "crowd", "-t", "6s")
    crowd = Crowd(witness, tmp_path / "crowd")
    assert dlock.run("run", *place, "--", "true").status == 0  # the schema is there
    started = [dlock.start("run", *place, "-w", "5m", "--wait-tree", "--", *crowd.witness, random.choice((2, 20, 50)))
               for _ in range(300)]
    killed, until = set(), time.monotonic() + SECONDS
    while time.monotonic() < until and any(s.popen.poll() is None for s in started):
        time.sleep(0.1)
        n = random.randrange(len(started))
        pids = [started[n].popen.pid, *children_of(started[n].popen.pid)][:2]
        if started[n].popen.poll() is None:
            killed.add(n)
            kill(random.choice(pids))
    for n, each in enumerate(started):
        each.popen.wait(300)
        if n not in killed:
            assert each.popen.returncode == 0, each.stderr()
    seen = crowd.seen()
    assert len(seen) >= len(started) - len(killed)
    assert {line[0] for line in seen} == {"alone"}
    assert [int(line[1]) for line in seen] == sorted({int(line[1]) for line in seen})
