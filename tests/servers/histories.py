# Goal of this file: histories.  A seeded mixture of runs, of those who steer them and of faults, on a few keys of one
# place; and a checker that decides, with certainty, whether what happened is what DESIGN.md promises.
#
# Each command is a witness (witness.py).  It takes kernel locks before it does anything else, which the kernel drops
# when the last process of its tree is gone; then it writes its begin, and as the last thing its end, by
# CLOCK_BOOTTIME.  The checker notes by the same clock when it asked for something (before the process is made) and
# when that was confirmed (after the process was reaped).  It decides:
#
#   overlap   a command found a lock taken that its kind, its room or its slot of a limited lock excludes.  Certain:
#             the other tree lived at that instant.  It is no fault for as long as a lease may last after
#             `break --force` was asked for that key: then the manual allows it.
#   token     of two begins that exclude each other (a writer and anybody; a slot and the same slot) the later one has
#             the smaller token, or two runs have the same.  Certain: since they did not overlap, the first was granted
#             before the second; and a begin is written while the lock is held.
#   freeze    a command began, though it was asked for after a freeze of one of its keys had been confirmed, or one that
#             excludes it was seen to have the key after that, and before anybody asked for its thaw or it can have ended by
#             itself (counted from when it was asked for).
#   switch    a command with --unless-frozen began later than the 2 s that DESIGN.md grants (and some more for a process that
#             is slow to say so) after a freeze of that key had been confirmed, and before anybody asked for its thaw.
#   min-hold  somebody whom a run with --min-hold excludes began sooner than that after the run was even asked for, or
#             after the command before it was seen to have the lock still.
#   once      a command began though a run of its key and ID had ended with 0, and dlock had not said that its release
#             was not confirmed; or a run was skipped that must have run, since no command of its ID had come to its end with
#             0, and kept its lock: the others had failed, been killed, been lost, or given back when their lease had ended.
#             For the first half of the time of an ID all its commands fail, so that those of the second half show whether
#             that counted.
#   final     the same of --no-retry, whatever a run of the ID ended with: none begins after an end that was confirmed, and
#             none is skipped before one can have ended.
#   cooldown  the same of --cooldown: a command began so soon after one of its key that ended with 0 was even asked for; or
#             a run was skipped though none that ended with 0 can have begun so shortly before.
#   lie       dlock ended with 0 (or its command's own status) though its command never came to its end; or though the
#             grant had been taken away by `break --force`, confirmed, when the command wrote its end.  To some runs of
#             one key that is done while their keeper stands still, so that it hears of that as it gives the lock back.
#   loss      79 without a cause, of a run or of one that has joined it: nobody hurt it, nobody broke its key, no fault and
#             no stall of this machine lasted a fifth of its lease while it lived.
#   status    another status than such a run can have: 69 without a fault of the server (but where a short -w ended without
#             an answer), 71, 76, 77 or 78 at all.
#   for ever  when all faults are mended, all freezes thawed and all commands told to end, a run is not over within 90
#             seconds; or a key cannot be had then, within that time, by one who comes alone.

import collections
import itertools
import random
import shlex
import signal
import threading
import time

import support
import token_order
from support import DLOCK, PATIENCE, boottime, can, children_of, kill, wait_for
from witness import Seen, kind_words

# What contenders want again and again: how, kind and keys.  Each line is one thread.  "nested" is an inner run, "joined" one
# that its outer run's command leaves behind.
WANTS = [
    [("run", "x", "a"), ("run", "s", "a"), ("nested", "x", "a"), ("run", "x", "ad")],
    [("run", "s", "a"), ("run", "s", "a"), ("run", "x", "da"), ("hold", "x", "a")],
    [("run", "s", "a"), ("run", "x", "a"), ("run", "s", "ad")],
    [("run", "2", "b"), ("run", "2", "b"), ("run", "x", "b")],
    [("run", "2", "b"), ("hold", "2", "b")],
    [("run", "2", "b"), ("nested", "2", "b")],
    [("run", "3", "c")],
    [("run", "3", "c"), ("run", "3", "c"), ("run", "x", "c")],
    [("run", "3", "c"), ("nested", "3", "c"), ("joined", "3", "c")],
    [("run", "x", "d"), ("run", "x", "d"), ("run", "s", "d")],
    [("run", "x", "f"), ("run", "s", "f")],
    [("run", "x", "f")],
    [("once", "x", "o")],
    [("once", "x", "o"), ("final", "x", "o")],
    [("once", "x", "o"), ("final", "x", "o"), ("run", "x", "o")],
    [("cooldown", "x", "g")],
    [("cooldown", "x", "g")],
    [("switched", "x", "e"), ("switched", "s", "e")],
    [("switched", "x", "e"), ("switched", "x", "ea")],
    [("run", "x", "e")],
    [("min-hold", "x", "h"), ("hold", "x", "h")],
    [("run", "x", "h"), ("min-hold", "x", "h"), ("nested", "x", "h"), ("joined", "x", "h")],
    [("run", "x", "i")],
    [("run", "x", "i"), ("run", "x", "i"), ("run", "s", "i")],
]
KEYS = "abcdefghio"
MIN_HOLD = 1.0
JOB = 3.0  # seconds in which all want the same ID
COOLDOWN = 1.0
JOBS = {"once", "final", "cooldown"}  # who may be skipped
SWITCH = "z"  # a key that nobody locks
ALONE = "q"  # one that only late_releases() locks
HELD = (4, 6)  # seconds that others have the key of those who look at it, so that these are granted it late in a freeze
SWITCH_LATE = 2 + 1  # seconds: what is promised, and how slow a command may be to write that it has begun
LONG = 8  # seconds of a command whose run is hurt; the others' are short, but for one that sees a renewal
SHORT = (0.002, 0.02, 0.1, 0.1, 0.3, 1.2)
A_TURN = 90

# What is done to a run: to which process, how, for how many seconds; and how long its command lasts.
TORMENTS = [
    ("front", signal.SIGKILL, 0, LONG),
    ("keeper", signal.SIGKILL, 0, LONG),
    ("keeper", signal.SIGKILL, 0, LONG),
    ("keeper", signal.SIGSTOP, 4, LONG),
    ("front", signal.SIGSTOP, 1, 0.5),
    ("front", signal.SIGTSTP, 1, 0.5),
    ("front", signal.SIGTERM, 0, LONG),
    ("front", signal.SIGINT, 0, LONG),
    ("keeper", signal.SIGSTOP, 0.3, 0.5),
    ("command", signal.SIGKILL, 0, LONG),
    ("command", signal.SIGSTOP, 0.5, 0.3),
]
KILLED = ("command", signal.SIGKILL, 0, LONG)  # often for jobs, which must not count then
TAKEN = 0.8  # seconds of a command that ends while its keeper stands still, which does not know yet who has taken the lock


class Op:  # pylint: disable=too-many-instance-attributes
    """One dlock, by whomever: what was asked, when, and how it ended."""

    def __init__(self, number, what, kind, keys, ttl, wait=None):
        self.number, self.what, self.kind, self.keys, self.ttl, self.wait = number, what, kind, keys, ttl, wait
        self.asked = self.over = self.status = self.started = self.once = self.begin = self.end = None
        self.hurt, self.words, self.own_status, self.inner, self.inner_status, self.of_token, self.late = "", [], 0, None, None, None, None

    def line(self, since):
        def at(when):
            return f"{when - since:8.3f}" if when else "       -"

        token = f"token {list(self.begin.tokens.values())}" if self.begin else ""
        said = self.started.stderr().strip()[-160:] if self.started else ""
        return f"{at(self.asked)} {at(self.begin and self.begin.time)} {at(self.end)} {at(self.over)} #{self.number:<4} " \
               f"{self.what} {self.kind} {self.keys} {self.ttl} {self.wait or ''} {self.once or ''} -> {self.status} {token} {self.hurt} {said}"


    def is_confirmed(self):
        """dlock says so where the server did not answer its release."""
        return "not confirmed" not in self.started.stderr()

    def told(self):
        """Its events, by the wall clock."""
        found = self.started.events() if self.started else []
        return "".join(f"        {e['time'][11:23]} {e['event']} {e.get('reason') or ''}\n" for e in found)


class Fault:
    """Something that happened to a server or the way to it."""

    def __init__(self, name, began):
        self.name, self.began, self.ended = name, began, None

    def line(self, since):
        return f"{self.began - since:8.3f} {(self.ended or boottime()) - since:8.3f} FAULT {self.name}"


class History:
    """Runs one: start(), finish(), check()."""

    def __init__(self, dlock, site, witness, directory, seed):
        self.dlock, self.site, self.witness, self.directory, self.seed = dlock, site, witness, directory, seed
        directory.mkdir()
        self.log, self.end = directory / "log", directory / "end"
        self.log.touch()
        self.ops, self.faults, self.begins, self.errors, self.problems, self.concerned = [], [], [], [], [], []
        self.threads, self.lock, self.over = [], threading.Lock(), False
        self.damaging = threading.Lock()  # one fault at a time: each is mended by itself
        self.began, self.zero = boottime(), time.time()

    # ---- who takes part ----

    def start(self, seconds):
        self.until = self.began + seconds
        lacking = {kind for kind in ("s", "2") if not can(self.dlock, self.site, *kind_words(kind))}
        lacking |= {what for what, words in (("once", ("--once", "1")), ("final", ("--once", "1", "--no-retry")), ("cooldown", ("--cooldown", "1s")), ("min-hold", ("--min-hold", "1ms")),
                                                     ("switched", ("--unless-frozen", self.site.key("probe"))))
                    if not can(self.dlock, self.site, *words)}

        def offered(want):
            what, kind, keys = want
            return ("run" if what in lacking else what, "x" if kind in lacking or "2" in lacking and kind == "3" else kind, keys)

        for n, wants in enumerate(WANTS):
            self.begin(self.contend, n, [offered(want) for want in wants])
        self.begin(self.freezes, "freezes", "acho", 2.5, 2)
        self.begin(self.freezes, "often", "i", 1, 1.2)
        if "switched" not in lacking:
            self.begin(self.switches, "switches")
        self.begin(self.breaks, "breaks")
        if self.site.faults:
            self.begin(self.damages, "faults")
        if self.site.is_exact and "once" not in lacking:
            self.begin(self.late_releases, "late")

    def begin(self, actor, name, *arguments):
        dice = random.Random(f"{self.seed} {name}")

        def body():
            try:
                actor(dice, *arguments)
            except Exception as e:  # pylint: disable=broad-except
                self.errors.append((name, e))

        self.threads.append(threading.Thread(target=body, daemon=True))
        self.threads[-1].start()

    def going(self, spare=0):
        return boottime() < self.until - spare

    def key_words(self, keys):
        return [word for key in keys for word in ("-k", self.site.key(key))]

    def op(self, what, kind, keys, ttl="", wait=None):
        with self.lock:
            self.ops.append(Op(len(self.ops), what, kind, keys, ttl, wait))
            return self.ops[-1]

    def launch(self, op, *words, **options):
        with self.lock:
            op.asked = boottime()
            op.started = self.dlock.start(*words, **options)
        return op.started

    def patience(self):
        """As long as servers fail, somebody may wait: each election of etcd lets the place of a dead waiter last anew."""
        return max(0, self.until - boottime()) + A_TURN

    def close(self, op, seconds=None):
        op.status = op.started.wait(seconds or self.patience()).status
        op.over = boottime()
        return op.status

    # ---- those who want locks ----

    def contend(self, dice, wants):
        while self.going():
            self.contend_once(dice, *dice.choice(wants))
            if dice.random() < 0.3:
                time.sleep(dice.uniform(0, 0.2))

    def contend_once(self, dice, what, kind, keys):
        wait = dice.choice(["inf", "inf", "inf", "20s", "300ms", "0"])
        ttl = dice.choice(self.site.ttls)
        op = self.op(what, kind, keys, ttl, wait)
        torment = dice.choice(TORMENTS) if what in ("run", "nested", "switched", *JOBS) and dice.random() < 0.3 and self.going(spare=6) else None
        if torment and what in JOBS and dice.random() < 0.5:
            torment = KILLED
        taken = not torment and (what, kind, keys) == ("run", "x", "f") and dice.random() < 0.2
        pause = TAKEN if taken else torment[3] if torment else dice.uniform(*HELD) if (what, keys) == ("run", "e") else dice.choice(SHORT if what != "joined" else SHORT[-2:])
        if what == "once":
            job = (boottime() - self.began) / JOB
            op.once, op.own_status = f"job{int(job)}", 3 if job % 1 < 0.5 and not torment else dice.choice((0, 0, 3))
        if what == "final":
            op.once, op.own_status = f"final{int((boottime() - self.began) / JOB)}", dice.choice((0, 3, 3))
        if what == "cooldown":
            op.own_status = dice.choice((0, 3))
        daemon = what in ("nested", "joined") or what == "run" and dice.random() < 0.5
        command = [self.witness, self.log, self.end, int(pause * 1000) * (1 if daemon else -1), f"{kind}/{op.number}/{op.own_status}",
                   *(self.directory / f"judge-{key}" for key in keys)]
        command = [str(word) for word in command]
        place = self.site.all_words
        asks = [*place, *self.key_words(keys), "-t", ttl, "-w", wait, *kind_words(kind)]
        if what == "hold":
            script = f'lock=$({shlex.join([DLOCK, "hold", *asks])} --pid $$ --shell) || exit; eval "$lock"\n' \
                     f'{shlex.join(command)}; status=$?; {DLOCK} release; exit $status'
            self.launch(op, "-c", script, program="/bin/sh")
        else:
            more = {"min-hold": ["--min-hold", f"{MIN_HOLD}s"], "once": ["--once", op.once],
                    "final": ["--once", op.once, "--no-retry"], "cooldown": ["--cooldown", f"{COOLDOWN}s"],
                    "switched": ["--unless-frozen", self.site.key(SWITCH)]}.get(what, [])
            if what in ("nested", "joined"):
                command = [DLOCK, "run", *place, *self.key_words(keys), *kind_words(kind), "--wait-tree", "--", *command]
            elif what == "min-hold" and dice.random() < 0.5:  # which that of the outer run outlasts
                command = [DLOCK, "run", *place, *self.key_words(keys), "--min-hold", f"{MIN_HOLD / 3:.3f}s", "--", *command]
            if what == "joined":  # a quarter of a second is enough for it to join, nearly always
                op.inner = self.directory / f"inner-{op.number}"
                command = ["sh", "-c", f"{{ {shlex.join(command)}; echo $? >{op.inner}; }} & sleep 0.25"]
            self.launch(op, "run", *asks, *more, *["--wait-tree"] * (daemon and what == "run"), "--", *command)
        if torment:
            op.hurt = "about to be hurt"
            op.hurt = self.torment(op.started, dice, *torment[:3])
        elif taken:
            self.take_away(op, keys)
        self.close(op)

    def torment(self, started, dice, process, sig, seconds):
        if dice.random() < 0.7:
            wait_for(lambda: started.running or started.poll() is not None, self.patience())
        time.sleep(dice.uniform(0, 0.3))
        pids = [started.pid]
        for _ in range(("front", "keeper", "command").index(process)):
            pids = children_of(pids[0]) if pids else []
        if started.poll() is not None or not pids:
            return ""
        at = boottime()
        kill(pids[0], sig)
        time.sleep(seconds)
        if sig in (signal.SIGSTOP, signal.SIGTSTP):
            kill(pids[0], signal.SIGCONT)
        return f"[{process} {sig.name} at {at - self.began:.3f} for {seconds} s]"

    def take_away(self, op, key):
        """Its command ends while its keeper stands still: that hears of the break when it gives the lock back, or just before."""
        started = op.started
        wait_for(lambda: started.running or started.poll() is not None, self.patience())
        pids, token = children_of(started.pid), started.events("acquired")
        if not pids or not token:
            return
        op.hurt = f"[its keeper stops while its lock is taken away, at {boottime() - self.began:.3f}]"
        kill(pids[0], signal.SIGSTOP)
        self.steer("break", key, "-y", "--force", "--token", str(token[0]["token"]), of_token=token[0]["token"])
        time.sleep(TAKEN)
        kill(pids[0], signal.SIGCONT)

    # ---- those who steer ----

    def steer(self, what, key, *words, **members):
        op = self.op(what, " ".join(words), key)
        vars(op).update(members)
        self.launch(op, what, *self.site.all_words, *self.key_words(key), *words)
        return op, self.close(op)

    def freezes(self, dice, keys, pause, most):
        while self.going():
            time.sleep(dice.uniform(pause / 5, pause))
            key, length = dice.choice(keys), dice.uniform(0.3, 2)
            with_end = dice.random() < 0.4
            op, status = self.steer("freeze", key, *["--for", f"{int(length * 1000)}ms"] * with_end, length=length if with_end else None)
            if status == 78:
                return
            time.sleep(dice.uniform(0, most))
            op.thawed = boottime()
            self.thaw(key)

    def switches(self, dice):
        while self.going():
            time.sleep(dice.uniform(0.5, 2.5))
            op, _ = self.steer("freeze", SWITCH, length=None)
            time.sleep(dice.uniform(0, 2 * SWITCH_LATE))
            op.thawed = boottime()
            self.thaw(SWITCH)

    def thaw(self, key):
        wait_for(lambda: self.steer("thaw", key, "-y")[1] in (0, 1), self.patience(), "a thaw")

    def breaks(self, dice):
        while self.going():
            time.sleep(dice.uniform(0.5, 2))
            key = dice.choice("abcfffh")
            self.steer("break", key, "-y", *(["--force"] if key == "f" else ["-w", "10s"]))

    def damages(self, dice):
        while self.going():
            time.sleep(dice.uniform(0.5, 3))
            if not self.going():
                return
            name, do = dice.choice(self.site.faults)
            with self.damaging:
                self.damage(name, lambda do=do: do(dice))

    def damage(self, name, do):
        fault = Fault(name, boottime())
        self.faults.append(fault)
        do()
        fault.ended = boottime()

    def late_releases(self, dice):
        """A job's release is sent in time, and read when its lease has ended: it does not count, and the next one runs."""
        lease = seconds_of(self.site.ttls[0])
        for n in itertools.count():
            time.sleep(dice.uniform(1, 5))
            if not self.going(spare=lease):
                return
            with self.damaging:
                op = self.lone(n, 0.8)
                wait_for(lambda op=op: op.started.running or op.started.poll() is not None, self.patience())
                time.sleep(0.2)
                if op.started.poll() is None:
                    self.damage("the server stands still for longer than a lease", lambda op=op: self.outlast(op, lease))
            self.close(op)
            self.close(self.lone(n, 0.1))
            time.sleep(dice.uniform(3, 20))

    def outlast(self, op, lease):
        self.site.at.server.pause()
        op.late = boottime()
        time.sleep(lease + 0.1)
        self.site.at.server.resume()

    def lone(self, n, seconds):
        """A job that ends with 0, of a key that nobody else wants."""
        op = self.op("once", "x", ALONE, self.site.ttls[0], "inf")
        op.once = f"lone{n}"
        command = [self.witness, self.log, self.end, -int(seconds * 1000), f"x/{op.number}/0", self.directory / f"judge-{ALONE}"]
        self.launch(op, "run", *self.site.all_words, *self.key_words(ALONE), "-t", op.ttl, "--once", op.once, "--",
                    *(str(word) for word in command))
        return op

    # ---- the end ----

    def finish(self):
        time.sleep(max(0, self.until - boottime()))
        self.end.touch()
        until = boottime() + A_TURN
        for thread in self.threads:
            thread.join(max(0, until - boottime()))
        for op in self.ops:
            if op.status is None and op.started:
                self.problem("for ever", f"not over after {A_TURN} s", op)
        for name, e in self.errors:
            self.problem("for ever" if isinstance(e, AssertionError) else "test", f"{name}: {e!r}")
        for key in KEYS + ALONE if not self.problems else "":
            op = self.op("last", "x", key)
            self.launch(op, "run", *self.site.all_words, *self.key_words(key), "-w", f"{A_TURN}s", "-t", self.site.ttls[0], "--", "true")
            if self.close(op, A_TURN + PATIENCE) != 0:
                self.problem("for ever", "nobody is left, and the key cannot be had", op)

    # ---- the checker ----

    def problem(self, kind, text, *ops):
        self.concerned += ops
        self.problems.append(f"{kind}: {text}\n" + "".join(f"    {op.line(self.began)}\n{op.told()}" for op in ops))

    def check(self):
        self.read()
        self.tally()
        for check in (self.check_overlaps, self.check_tokens, self.check_freezes, self.check_switches, self.check_min_hold, self.check_once, self.check_final,
                      self.check_cooldown, self.check_statuses, self.check_joined):
            check()
        if self.problems:
            self.tell()
        assert not self.problems, f"history of {self.site.id}, seed {self.seed}:\n" + "\n".join(self.problems)

    def tally(self):
        """How often what ended how: a history in which little happens proves little."""
        counted = collections.Counter((op.what, op.status) for op in self.ops)
        faults = collections.Counter(f.name for f in self.faults)
        print(f"{self.site.id}, seed {self.seed}: {len(self.begins)} commands,", {k: counted[k] for k in sorted(counted, key=str)}, dict(faults))

    def read(self):
        """Whose begins and ends they are; begins in the order in which they were written."""
        for line in self.log.read_text().splitlines():
            seen = Seen(line)
            seen.kind, number, _, seen.slot = seen.kind.split("/")
            seen.op = self.ops[int(number)]
            if seen.verdict == "end":
                seen.op.end = seen.time
            elif seen.op.begin:
                self.problem("once", "it began twice", seen.op)
            else:
                seen.op.begin = seen
                self.begins.append(seen)
        self.begins.sort(key=lambda seen: seen.time)
        for op in self.ops:
            if op.inner and op.inner.exists():
                op.inner_status = int(op.inner.read_text() or -1)

    def of(self, *whats):
        return [op for op in self.ops if op.what in whats and op.asked]

    def is_forced(self, seen):
        """May the manual let it begin beside one from whom `break --force` has taken the lock?"""
        longest = max(seconds_of(ttl) for ttl in self.site.ttls) + 1
        return any("--force" in op.kind and op.keys in seen.op.keys and op.asked <= seen.time <= (op.over or seen.time) + longest
                   for op in self.of("break"))

    def check_overlaps(self):
        for seen in self.begins:
            if seen.verdict == "OVERLAP" and not self.is_forced(seen):
                beside = [s.op for s in self.begins if s.op is not seen.op and set(s.op.keys) & set(seen.op.keys) and
                          s.time <= seen.time <= (s.op.over or seen.time)]
                self.problem("overlap", "this one began beside one of the others", seen.op, *beside)

    def check_tokens(self):
        for key in {key for s in self.begins for key in s.op.keys}:
            grants = [token_order.Grant(s.kind == "x", s.slot or None, s.tokens[self.site.key(key)], s) for s in self.begins if key in s.op.keys]
            for grant, before in token_order.in_order(grants):
                if grant.token == before.token:
                    self.problem("token", f"{grant.token} of {key} was given twice", grant.who.op, before.who.op)
                elif not self.is_forced(grant.who):
                    self.problem("token", f"{grant.token} of {key} came after {before.token}", grant.who.op, before.who.op)

    def check_freezes(self):
        for freeze in self.of("freeze"):
            if freeze.status != 0:
                continue
            until = min([freeze.thawed if hasattr(freeze, "thawed") else float("inf")] +
                        ([freeze.asked + 0.99 * freeze.length - 0.05] if freeze.length else []))
            for seen in self.begins:
                if freeze.keys in seen.op.keys and freeze.over < seen.time < until and self.granted_after(seen, freeze.keys) > freeze.over:
                    self.problem("freeze", "the second began though the first was confirmed", freeze, seen.op)

    def check_switches(self):
        for freeze in self.of("freeze"):
            for seen in self.begins if freeze.status == 0 and freeze.keys == SWITCH else []:
                late = seen.time - freeze.over - support.STALLS.since(freeze.over, seen.time)
                if seen.op.what == "switched" and late > SWITCH_LATE and seen.time < getattr(freeze, "thawed", float("inf")):
                    self.problem("switch", "the second began though the first was confirmed", freeze, seen.op)

    def check_min_hold(self):
        for op in self.of("min-hold"):
            if op.status != 0 or not op.begin or self.broken(op) or self.stress(op) >= seconds_of(op.ttl) / 5:
                continue
            granted = self.granted_after(op.begin, op.keys)
            for seen in self.begins:
                if op.keys in seen.op.keys and op.begin.time < seen.time < granted + 0.99 * MIN_HOLD:
                    self.problem("min-hold", "the second began too early", op, seen.op)

    def granted_after(self, seen, key):
        """A time before its grant: when it was asked for, or when another that excludes it was seen to have the key still."""
        others = [s for s in self.begins if key in s.op.keys and ("x" in (s.kind, seen.kind) or s.slot == seen.slot != "")]
        return max([seen.op.asked] + [when for s in others for when in (s.time, s.op.end) if when and when < seen.time])

    def done(self, what):
        """Those that kept the lock until it was known that they have done it: who begins after their end was granted it later."""
        return [op for op in self.of(what) if op.status == 0 and op.end and op.own_status == 0 and op.is_confirmed()]

    def check_once(self):
        for first in self.done("once"):
            for seen in self.begins:
                if (seen.op.what, seen.op.once) == ("once", first.once) and seen.time > first.end:
                    self.problem("once", "the second began though the first had done it", first, seen.op)
        for op in self.of("once"):
            same = [s.op for s in self.begins if s.op.once == op.once and s.time < op.over]
            if op.status == 0 and not op.begin and not any(self.may_count(other, op.over) for other in same):
                self.problem("once", "it was skipped though nobody has done it", op, *same)

    def check_final(self):
        for first in self.of("final"):
            if not first.end or first.status != first.own_status or not first.is_confirmed():
                continue
            for seen in self.begins:
                if (seen.op.what, seen.op.once) == ("final", first.once) and seen.time > first.end:
                    self.problem("final", "the second began though the first had ended", first, seen.op)
        for op in self.of("final"):
            # a command that was killed may not have had the time to write that it has begun
            same = [other for other in self.of("final") if other.once == op.once and other.asked < op.over
                    and (other.begin.time < op.over if other.begin else other.hurt and other.status == 137)]
            if op.status == 0 and not op.begin and not any(other.status not in (79, 99) and (other.end or other.hurt) for other in same):
                self.problem("final", "it was skipped though nobody's has ended", op, *same)

    def check_cooldown(self):
        for first in self.done("cooldown"):
            for seen in self.begins:
                if seen.op.what == "cooldown" and first.end < seen.time < first.asked + 0.99 * COOLDOWN - 0.02:
                    self.problem("cooldown", "the second began too soon after the first", first, seen.op)
        for op in self.of("cooldown"):
            same = [s.op for s in self.begins if s.op.what == "cooldown" and op.asked - 1.01 * COOLDOWN - 0.02 < s.time < op.over]
            if op.status == 0 and not op.begin and not any(self.may_count(other, op.over) for other in same):
                self.problem("cooldown", "it was skipped though nobody had done it just before", op, *same)

    def may_count(self, op, when):
        """May it be known by then that this run has done its job?"""
        return not (op.late and op.end and op.late < op.end) and op.own_status == 0 and op.begin.verdict == "alone" and op.end and op.end < when and op.status not in (79, 99)

    def broken(self, op):
        """Has anybody broken a key of it while it lived, or its lock did?"""
        kept = MIN_HOLD + 1 if op.what == "min-hold" else 0
        return any(b.keys in op.keys and b.asked <= (op.over or b.asked) + kept and (b.over or op.asked) >= op.asked for b in self.of("break"))

    def stress(self, op):
        """The longest time that a fault, or this machine, has taken from it."""
        end = (op.over or boottime()) + (MIN_HOLD + 1 if op.what == "min-hold" else 0)
        faults = [f for f in self.faults if f.began <= end and (f.ended or end) >= op.asked - 1]
        return sum((f.ended or end) - f.began + 0.2 for f in faults) + support.STALLS.since(op.asked, end)

    def check_statuses(self):
        for op in self.of("run", "nested", "joined", "hold", "min-hold", "switched", *JOBS):
            if op.status is None:
                continue
            possible = {op.own_status if op.begin else 0 if op.what in JOBS or op.what == "joined" else None}
            if op.wait != "inf":
                possible.add(75)
                if op.status == 69 and "; tried for " in op.started.stderr():
                    possible.add(69)  # a busy machine alone can take the second or two that it had
                if any(text in op.started.stderr() for text in self.site.has_none):
                    possible.add(69)
            if any(f.began <= op.over and (f.ended or op.over) >= op.asked - 1 for f in self.faults):
                possible.add(69)
            if op.wait != "inf" and support.STALLS.since(op.asked, op.over) > (op.over - op.asked) / 4:
                possible.add(69)  # its server could not answer either
            if self.may_lose(op):
                possible.add(79)
            if op.begin and op.begin.verdict == "OVERLAP":
                possible.add(99)
            if op.hurt:
                possible |= {-9, -15, -2, 137, 143, 130, 71, 69, 75}
            if op.what == "hold" and 79 in possible:
                possible |= {-15, -9, 1}  # the script is the command
            if op.status not in possible:
                self.problem("loss" if op.status == 79 else "status", f"{op.status} was not to be expected, but {possible}", op)
            if op.status == op.own_status and op.what not in ("hold", "joined") and op.begin and not op.end:
                self.problem("lie", "its command has not come to its end", op)
            for b in self.of("break"):
                token = op.begin and op.begin.tokens.get(self.site.key(b.keys))
                taken = b.keys in op.keys and b.status == 0 and "--force" in b.kind and op.end and b.over < op.end and b.asked > op.begin.time
                if op.status == 0 and taken and op.what not in JOBS and op.is_confirmed() and self.only_holder(op, b):
                    self.problem("lie", f"it was taken away, token {token}", op, b)

    def check_joined(self):
        for op in self.of("joined"):
            if op.inner_status == 79 and not self.may_lose(op):
                self.problem("loss", "the run that has joined it has lost its lock", op)

    def may_lose(self, op):
        return self.broken(op) or self.stress(op) >= seconds_of(op.ttl) / 5 or op.hurt

    def only_holder(self, op, b):
        """Nobody else can have been meant by this break."""
        if b.of_token:
            return b.of_token == op.begin.tokens.get(self.site.key(b.keys))
        return op.kind == "x" and not [s for s in self.begins if s.op is not op and b.keys in s.op.keys and
                                       s.op.asked < b.over and (s.op.over or b.asked) > b.asked]

    def tell(self):
        """The last minute, or what was before and during each problem, as a table."""
        print(f"seed {self.seed}, {self.site.id}; 0 is {time.strftime('%H:%M:%S', time.gmtime(self.zero))}.{int(self.zero * 1000) % 1000:03}; asked, begin, end, over")
        rows = [(op.asked, op.line(self.began)) for op in self.ops if op.asked] + [(f.began, f.line(self.began)) for f in self.faults]
        rows += [(start, f"{start - self.began:8.3f} {stop - self.began:8.3f} STALL") for start, stop in support.STALLS.seen if start > self.began]
        spans = [(op.asked - 5, (op.over or boottime()) + 1) for op in self.concerned if op.asked]
        spans += [(max(when for when, _ in rows) - 60, boottime())] * (not spans)
        for _, line in sorted(row for row in rows if any(start <= row[0] <= end for start, end in spans)):
            print(line)


def seconds_of(ttl):
    return float(ttl.removesuffix("s"))
