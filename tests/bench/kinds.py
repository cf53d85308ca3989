"""Goal of this benchmark: show what kinds of lock cost, beside what they compete with.

  two keys   a run of `true` on two keys, against one on one key
  readers    that wait behind a writer: from its end until all of them have started, against as many `flock -s`
  a limit    of 8: how many commands a second it lets through, against 8 times what the exclusive lock does

    make bench kinds                     all of it
    tests/bench/kinds.py --quick         a smoke run
    tests/bench/kinds.py readers         one part: keys readers limit
"""

import argparse
import signal
import statistics
import struct
import subprocess
import sys

from bench import Bench, Impossible, Stage, finish, heading, judged, row, say, until

SIZES = {"rounds": (300, 8), "crowd": (200, 16), "passes": (3, 1)}  # name: (full, quick)
LIMIT, COMMAND_MS = 8, 20


def with_options(contender, key, options, command):
    """flock knows -s; dlock's go before the command."""
    words = contender.argv(key, command)
    at = words.index("--") if "--" in words else 1
    return [*words[:at], *options, *words[at:]]


class Fleet:
    """Commands that wait behind one holder until it is told to end."""

    def __init__(self, b, contender, count, options, command_ms):
        self.b, self.contender = b, contender
        self.key = b.stage.fresh("kinds")
        self.log, self.gate = (b.stage.dir / f"{self.key}.{end}" for end in ("log", "gate"))
        self.processes = []
        self._start((), b.stage.stamp(self.log, 0, self.gate))
        until(self.log.exists, f"the first holder ({contender.name})")
        for _ in range(count):
            self._start(options, b.stage.stamp(self.log, command_ms))
        until(lambda: self._queued() >= count, f"{count} waiters ({contender.name})")

    def _start(self, options, command):
        events = () if self.contender is self.b.flock else ("--status-fd", "2")
        with open(self._events(len(self.processes)), "wb") as f:
            words = with_options(self.contender, self.key, (*options, *events), command)
            self.processes.append(self.b.stage.start(words, stderr=f))

    def _events(self, n):
        return self.b.stage.dir / f"{self.key}.events{n}"

    def _queued(self):
        if self.contender is self.b.flock:
            return self.contender.queued(self.key)
        return sum(b'"waiting"' in self._events(n).read_bytes() for n in range(1, len(self.processes)))

    def runs(self):
        """(begin, end) of each command, the holder's first."""
        self.gate.touch()
        finish(self.contender, self.processes)
        found = list(struct.iter_unpack("=qq", self.log.read_bytes()))
        if len(found) != len(self.processes):
            raise Impossible(f"{self.contender.name}: {len(found)} of {len(self.processes)} commands ran")
        return found


def can(contender, options):
    """Has it such locks?"""
    words = with_options(contender, "can", options, ["true"])
    done = subprocess.run([str(w) for w in words], capture_output=True, check=False)
    if done.returncode not in (0, 78):
        raise Impossible(f"{contender.name}: {done.stderr.decode()}")
    return done.returncode == 0


def keys(b):
    """A whole run of `true` on two keys, and on one."""
    heading("start-up with several keys", "one key", "two keys", "x one key", "target")
    contenders = [b.file] + b.redis + b.zk + b.pg
    words = [b.stage.spawner, "time", b.sizes["rounds"]]
    for c in contenders:
        for options in ((), ("-k", "second")):
            words += [":", 1, *with_options(c, "first", options, ["true"])]
    p = b.stage.start(words, stdout=subprocess.PIPE)
    told = [int(line.split()[0]) for line in p.communicate()[0].split("\n") if line]
    if p.returncode != 0:
        raise Impossible("a command of the table failed")
    for c, one, two in zip(contenders, told[::2], told[1::2]):
        row(c.name, f"{one / 1e6:.2f} ms", f"{two / 1e6:.2f} ms", f"{two / one:.2f}",
            judged(two / one, 1.6 if c in b.redis else None))


def passes(b, contenders, measure):
    """The median of what is measured for each, in turns."""
    found = {c.name: [] for c in contenders}
    for i in range(b.sizes["passes"]):
        for c in contenders[i % len(contenders):] + contenders[:i % len(contenders)]:
            found[c.name].append(measure(c))
    return {name: statistics.median(values) for name, values in found.items()}


def readers(b):
    """From the end of a writer until all readers behind it have begun."""
    count = b.sizes["crowd"]

    def measure(c):
        first, *others = Fleet(b, c, count, ("-s",), 500).runs()  # they last until all have begun
        return max(begin for begin, _ in others) - first[1]

    contenders = [b.flock] + [c for c in b.contenders[1:] if can(c, ("-s",))]
    found = passes(b, contenders, measure)
    heading(f"{count} readers behind a writer", "all begun", "x flock -s", "target")
    for c in contenders:
        ratio = found[c.name] / found["flock"]
        row(c.name, f"{found[c.name] / 1e6:.1f} ms", f"{ratio:.2f}", judged(ratio, None if c is b.flock else 1.5))


def limit(b):
    """Commands a second, when as many wait, with the exclusive lock and with the limit."""
    count = b.sizes["crowd"]

    def throughput(c, options):
        found = Fleet(b, c, count, options, COMMAND_MS).runs()
        return count / (max(end for _, end in found) - found[0][1]) * 1e9

    heading(f"{count} commands of {COMMAND_MS} ms", "exclusive", f"limit {LIMIT}", f"x {LIMIT} excl.")
    for c in b.contenders[1:]:
        if can(c, ("--limit", LIMIT)):
            alone, limited = throughput(c, ()), throughput(c, ("--limit", LIMIT))
            row(c.name, f"{alone:.1f}/s", f"{limited:.1f}/s", f"{limited / alone / LIMIT:.2f}", "")


PARTS = {f.__name__: f for f in (keys, readers, limit)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].split(": ", 1)[1])
    p.add_argument("parts", nargs="*", metavar="PART", help=f"{' '.join(PARTS)} (default: all)")
    p.add_argument("--quick", action="store_true", help="a smoke run: small sizes")
    o = p.parse_args()
    if set(o.parts) - set(PARTS):
        p.error(f"a part is one of: {' '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    stage = Stage()
    try:
        stage.compile()
        b = Bench(stage, {name: size[o.quick] for name, size in SIZES.items()})
        for name, part in PARTS.items():
            if not o.parts or name in o.parts:
                part(b)
                say()
    except Impossible as why:
        sys.exit(f"bench: {why}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, signal.SIG_IGN)  # the cleaning is not to be interrupted
        stage.close()


if __name__ == "__main__":
    main()
