# Goal of this file: judges of who ran together, whatever was killed, stopped or
# restarted: the kernel, for commands that may be killed at any instruction; and logs
# that commands write themselves, where the order is to be seen as well.

import contextlib
import json
import random
import signal
import threading
import time

import token_order
from support import boottime, children_of, compiled, kill, wait_for

# ---- the kernel: each command, and its descendants with it, holds flock(2)s from its
# first instruction until it is gone.  A command that finds one taken has overlapped.

WITNESS = r"""
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/file.h>
    #include <time.h>
    #include <unistd.h>

    static int take(const char *judge, const char *what, int n, int how)
    {
        char path[4096];

        snprintf(path, sizeof path, "%s%s%.0d", judge, what, n);
        return flock(open(path, O_RDWR | O_CREAT, 0600), how | LOCK_NB) == 0;
    }

    /* One of so many is free: who came later than we looked at it has left another one. */
    static int takes_one_of(const char *judge, int room)
    {
        for (int n = 0; n < 5 * room; n++)
            if (take(judge, ".", n % room + 1, LOCK_EX))
                return 1;
        return 0;
    }

    /* Nobody is there but those whom this kind of lock allows: x, s, or how many at once, each with a slot of the first key. */
    static int fits(const char *judge, const char *kind, int first)
    {
        int room = atoi(kind), slot = getenv("DLOCK_SLOT") ? atoi(getenv("DLOCK_SLOT")) : -1;

        if (!take(judge, "", 0, *kind == 'x' ? LOCK_EX : LOCK_SH))
            return 0;
        if (room > 0 && first && !(slot >= 0 && slot < room && take(judge, ".slot", slot + 1, LOCK_EX)))
            return 0;
        return room == 0 || takes_one_of(judge, room);
    }

    /* One line, in one write, by a clock that goes on while the machine sleeps. */
    static void tell(char **argv, const char *what)
    {
        struct timespec t;

        clock_gettime(CLOCK_BOOTTIME, &t);
        dprintf(open(argv[1], O_WRONLY | O_APPEND), "%s %s %ld.%09ld %s%s%s %s %s\n", what,
            getenv("DLOCK_TOKEN"), (long)t.tv_sec, t.tv_nsec, argv[4], strchr(argv[4], '/') ? "/" : "",
            strchr(argv[4], '/') && getenv("DLOCK_SLOT") ? getenv("DLOCK_SLOT") : "", getenv("DLOCK_KEY"),
            getenv("DLOCK_TOKENS") ? getenv("DLOCK_TOKENS") : "-");
    }

    /*
     * witness LOG END MILLISECONDS KIND JUDGE...: runs so long, or until the file END exists.
     * KIND/RUN/STATUS: tells its end, too, as the command of this run, and ends with that status.
     * Less than 0 milliseconds: without a daemon.
     */
    int main(int argc, char **argv)
    {
        int pause = atoi(argv[3]), overlaps = argc < 6, daemon = 0;
        const char *run = strchr(argv[4], '/');

        for (int i = 5; i < argc; i++)
            overlaps |= !fits(argv[i], argv[4], i == 5);
        tell(argv, overlaps ? "OVERLAP" : "alone");
        if (pause > 0 && fork() == 0) { /* a daemon, which lives a little longer */
            setsid();
            usleep(1000); /* who counts processes may have seen this one, and not the next */
            if (fork() != 0)
                _exit(0);
            pause += 20;
            daemon = 1;
        }
        for (pause = abs(pause); pause > 0 && access(argv[2], F_OK) != 0; pause -= 5)
            usleep(5000);
        if (run && !daemon)
            tell(argv, "end");
        return overlaps ? 99 : run ? atoi(strrchr(run, '/') + 1) : 0;
    }
"""


def compile_witness(directory):
    compiled(directory / "witness", WITNESS, "-O2", "-static")
    return directory / "witness"


def kind_words(kind):
    """What is said to dlock for a witness's kind: x, s, or a number."""
    return {"x": (), "s": ("-s",)}.get(kind, ("--limit", kind))


class Seen:
    """One line of a witness."""

    def __init__(self, line):
        self.line = line
        self.verdict, token, when, self.kind, key, tokens = line.split(None, 5)
        self.time = float(when)
        self.tokens = {key: int(token)} if tokens == "-" else json.loads(tokens)


def read_seen(log):
    return [Seen(line) for line in log.read_text().splitlines()]


def check_seen(seen):
    """Nobody overlapped; tokens differ, and grow from each who was alone to all after it, on every key."""
    assert not [s.line for s in seen if s.verdict != "alone"]
    for key in {key for s in seen for key in s.tokens}:  # those who run together may write in any order
        token_order.check([token_order.Grant(s.kind == "x", None, s.tokens[key], s.line) for s in seen if key in s.tokens])


# ---- a crowd of whom many are tormented ----

LONG = 8  # seconds, well beyond the lease
A_TURN = 180  # seconds: among so many, and where nobody is served in order

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


class Crowd:
    """Contenders, each of which runs the witness again and again.

    What each run wants is one of `wants`: a kind (x, s, or a number), and keys of one letter each.
    """

    def __init__(self, witness, directory, wants=(("x", "a"),)):
        self.directory, self.program, self.wants = directory, witness, wants
        directory.mkdir()
        self.log, self.end = (directory / name for name in ("log", "end"))
        self.log.touch()
        self.spared, self.tormented, self.errors = [], [], []
        self.stories = {}  # of the tormented
        self.threads = []

    def witness(self, milliseconds, kind="x", keys="a"):
        """The words of a command that holds what this kind of lock on these keys would."""
        return [self.program, self.log, self.end, str(milliseconds), kind, *(self.directory / f"judge-{key}" for key in keys)]

    def start(self, contenders, run):
        """`run` starts one dlock on these keys, with these options and this command."""
        for n in range(contenders):
            dice = random.Random(random.random() + n)
            self.threads.append(threading.Thread(target=self._contend, args=(run, dice), daemon=True))
            self.threads[-1].start()

    def finish(self):
        self.end.touch()
        for thread in self.threads:
            thread.join(A_TURN)
        assert not any(thread.is_alive() for thread in self.threads), "a contender waits for ever"
        assert not self.errors, self.errors

    def _contend(self, run, dice):
        served = False
        try:
            while not (served and self.end.exists()):
                torment = dice.choice(TORMENTS) if dice.random() < 0.4 and not self.end.exists() else None
                pause = torment[3] if torment else dice.choice(SHORT)
                kind, keys = dice.choice(self.wants)
                started = run(keys, *kind_words(kind), "--wait-tree", "--", *self.witness(int(pause * 1000), kind, keys))
                if torment:
                    self.stories[started] = self._torment(started, dice, *torment[:3])
                (self.tormented if torment else self.spared).append(started)
                started.wait(A_TURN)
                served = served or started.running
        except Exception as e:  # pylint: disable=broad-except
            self.errors.append(e)

    def _torment(self, started, dice, process, sig, seconds):
        if dice.random() < 0.75:
            wait_for(lambda: started.running or started.poll() is not None, A_TURN)
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
        for seen in self.seen():
            print(seen.line)
            started = runs.get(int(seen.line.split()[1]))
            if started:
                print("   ", started.poll(), self.stories.get(started, "spared"), started.stderr().strip())
                print("   ", *((e["time"][17:], e["event"], e.get("reason")) for e in started.events()))

    def seen(self):
        """What each command saw, in the order of their starts."""
        return read_seen(self.log)

    def check(self, contenders, before, slow=False):
        """slow: a server was away for longer than a lease of that length can bear."""
        seen = self.seen()
        if any(s.verdict != "alone" for s in seen):
            self.tell()
        check_seen(seen)
        alone = [s.time for s in seen if s.kind == "x"]
        assert alone == sorted(alone) and min(s.time for s in seen) >= before
        assert len(seen) >= contenders and self.spared
        for started in self.spared:
            done = started.result()
            # Whoever names a time to wait waits for a server, too, however long it is away.
            assert done.status == 0 or slow and done.status == 79, (done, started.events())


# ---- what commands say themselves: when each began and ended, in one file ----


def interval(log, name, kind, inside="cat"):
    """A command that writes its begin, does `inside`, and writes its end."""
    return ("sh", "-c", f'echo "B {name} {kind} $DLOCK_TOKEN ${{DLOCK_SLOT:--}}" >>"$0"; {inside}; echo "E {name}" >>"$0"', log)


def excludes(kind, others):
    """May one of this kind not run beside these?"""
    if not others:
        return False
    if kind == "x" or "x" in others:
        return True
    return kind != "s" and len(others) >= int(kind)


def check_intervals(log, order=()):
    """Replays such a log: nobody ran beside whom it excludes, no slot was there twice; those in `order` began in it.

    Those who can be granted together may begin in any order, but nobody who came later than
    one whom it excludes.  Returns the names in the order of their begins.
    """
    inside, began, place = {}, [], {name: n for n, name in enumerate(order)}
    kinds, slots, grants = {}, {}, []
    for line in log.read_text().splitlines():
        what, name, *rest = line.split()
        if what == "E":
            del inside[name]
            slots.pop(name, None)
            continue
        kinds[name], token, slot = rest
        assert not excludes(kinds[name], list(inside.values())), (line, inside)
        if slot != "-":
            assert int(slot) < int(kinds[name]) and slot not in slots.values(), (line, slots)
            slots[name] = slot
        with contextlib.suppress(KeyError):
            late = [b for b in began if place.get(b, -1) > place[name] and "x" in (kinds[b], kinds[name])]
            assert not late, f"{name} began after {late}"
        inside[name] = kinds[name]
        grants.append(token_order.Grant(kinds[name] == "x", None if slot == "-" else slot, int(token), line))
        began.append(name)
    token_order.check(grants)
    return began
