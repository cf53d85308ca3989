#!/usr/bin/python3
# Goal of this file: is the net of tests tight?  One fault at a time is put into a copy of the
# source (mutants.txt), and the tests are asked which of them finds it.
#
#	make mutants                 all of them; fifteen minutes on two cores
#	make mutants NAME="a b"      some of them
#	make mutants COMPILE=1       no test is asked: does each compile?  three minutes on two cores
#	make mutants JOBS=4          four at a time; otherwise two more than there are cores, since tests mostly wait
#
# The source is copied and built once, then copied with what was built for each that works side by side.  A fault costs what
# its file does: that is compiled, what it is a part of is linked, and afterwards the files that have changed come back, with
# their times, so that nothing is compiled to take a fault out.
#
# Asked first is the test that has found the fault before (finders.txt), and if it finds it again no other.  Else what costs
# little: the units and `make test`, then `make test BACKEND=...` of the fault's backends.  The first failure ends it.  A line for each
# fault: its name, the seconds, and the test that has found it, which finders.txt keeps.  Fails, and names them at the end, if
# one is found by no test, if its text stands nowhere any more (then it is to be seeded anew, in the code that does the same
# now), or if it does not compile: what no compiler takes is no fault that a test has found.
# A test that was not known to find it is asked once more, with the fault and without.
#
# In mutants.txt a fault is a block:
#
#	NAME: what is wrong then
#	tier redis zk                (whose tests may find it; units and file are always asked)
#	- lines as they stand in cmd or backends, in one file only, however they are indented
#	+ lines in their place

import concurrent.futures
import contextlib
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COPIES = ROOT / "build" / "mutants"
FAULTS = ROOT / "tests" / "mutants" / "mutants.txt"
FINDERS = ROOT / "tests" / "mutants" / "finders.txt"  # "NAME TEST": a test without its parameters, or "unit" and its name
NO_FINDERS = "not (test_a_version_is_for_all or test_what_a_version or test_the_map_says or test_every_fault_of_the)"  # they notice each change of a text
LIMIT = 900  # seconds that one question to the tests may take
ALL = ["all", "build/dlock-test", "build/dlock-admin", "wrong"]


def texts_of(tree):
    """(file, its lines, the same without their indents) of all sources."""
    for path in sorted(tree.glob("cmd/**/*")) + sorted(tree.glob("backends/**/*")):
        if path.suffix in (".c", ".h", ".lua", ".sql"):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            yield path, lines, [line.strip() for line in lines]


class NoFault(Exception):
    """Its text stands nowhere, or does not compile."""


class Fault:
    def __init__(self, block):
        head, *lines = block.splitlines()
        self.name, self.what = head.split(": ", 1)
        self.tiers, self.old, self.new = [], [], []
        for line in filter(None, lines):
            kind, _, rest = line.partition(" ")
            {"tier": lambda r: self.tiers.extend(r.split()), "-": self.old.append, "+": self.new.append}[kind](rest)

    def place(self, texts):
        """(file, its lines, where): the only place where the old lines stand."""
        wanted = [line.strip() for line in self.old]
        found = [(path, lines, i) for path, lines, stripped in texts for i, line in enumerate(stripped)
                 if line == wanted[0] and stripped[i:i + len(wanted)] == wanted]
        if len(found) != 1:
            raise NoFault(f"SEED IT ANEW: its lines stand in {len(found)} places")
        return found[0]

    def put(self, tree):
        """Returns the file that it is in."""
        path, lines, i = self.place(texts_of(tree))
        indent = re.match(r"\s*", lines[i])[0]
        first = re.match(r"\s*", self.new[0])[0] if self.new else ""
        lines[i:i + len(self.old)] = [indent + line.removeprefix(first) + "\n" for line in self.new]
        path.write_text("".join(lines), encoding="utf-8")
        return path


def read_faults(path):
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    return [Fault(block) for block in re.split(r"\n+(?=[a-z0-9-]+: )", text.strip())]


def read_finders():
    lines = FINDERS.read_text(encoding="utf-8").splitlines() if FINDERS.exists() else []
    return dict(line.split(" ", 1) for line in lines)


KEEPING = threading.Lock()


def keep_finder(name, test):
    """In place of the one that did not find it this time."""
    with KEEPING:
        finders = {**read_finders(), name: re.sub(r"\[.*", "", test)}
        FINDERS.write_text("".join(f"{k} {v}\n" for k, v in sorted(finders.items())), encoding="utf-8")


def make(tree, *words):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    env["DLOCK_TEST_PATIENCE"] = "20"  # many a fault is found when what a test waits for does not come
    words = ["make", "-C", tree, "--no-print-directory", *words]
    done = subprocess.run(["timeout", "-k", "60", str(LIMIT), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=env, check=False)
    if done.returncode in (124, 137):
        done.stdout = f"FAILED {' '.join(words[4:])} (it does not end)\n{done.stdout}"
    return done


def error_of(done):
    error = re.search(r"^.*\b(?:error|undefined reference)\b.*$", done.stdout, re.M)
    return error[0] if error else done.stdout[-500:]


# ---- copies of the source ----


def copy_source(copy):
    """What has been built of it stays, so that little is to be built again."""
    copy.mkdir(parents=True, exist_ok=True)
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            shutil.copy2(ROOT / name, target)
            target.touch()  # an older file than its object may have come
    for name in {str(p.relative_to(copy)) for d in ("cmd", "backends", "tests") for p in (copy / d).rglob("*.[ch]")} - set(names):
        (copy / name).unlink()


class Copy:
    """One of those in which faults are put side by side."""

    def __init__(self, pristine, path):
        self.pristine, self.path = pristine, path
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(pristine, path, symlinks=True)
        self.times = {p: p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()}

    @contextlib.contextmanager
    def seeded(self, fault, *words):
        """The fault is in the source, and that has been built."""
        try:
            path = fault.put(self.path)
            what = self.objects_of(path) if words == ("objects",) else words
            built = make(self.path, *what)
            if built.returncode != 0:
                raise NoFault(f"DOES NOT COMPILE: {error_of(built)}")
            yield
        finally:
            self.restore()

    def objects_of(self, path):
        """What is compiled of this file; of a header all that may include it."""
        return [f"build/{path.relative_to(self.path).with_suffix('.o')}"] if path.suffix == ".c" else ["all"]

    def restore(self):
        for path, when in self.times.items():
            if not path.exists() or path.stat().st_mtime_ns != when:
                new = path.with_name(f"{path.name}.new")  # the file itself may be a program that still runs
                shutil.copy2(self.pristine / path.relative_to(self.path), new)
                new.replace(path)


# ---- questions ----


def finder_of(done):
    """What has failed, of the output of a make; None: nothing has."""
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", done.stdout, re.M)
    unit = re.search(r"^(\S+) has failed$", done.stdout, re.M)
    return found[1].removeprefix("tests/") if found else f"unit {unit[1].split('tests/')[-1]}" if unit else done.stdout[-500:]


def alone(fault, test):
    """The words of make by which one test is asked."""
    if test.startswith("unit "):
        return ["units", f"UNITS={test.removeprefix('unit ')}"]
    file, function = re.sub(r"\[.*", "", test).split("::")
    backends = " ".join(["file", *(t for t in fault.tiers if t not in ("units", "file"))])
    return ["test", "NO_UNITS=1", f"TESTS=tests/{file}", f"DLOCK_TEST_BACKENDS={backends}", f"PYTEST=-x -k '{function} and {NO_FINDERS}'"]


def tiers(fault, but):
    """The words of make by which all tests are asked but these, in this order."""
    others = " or ".join([NO_FINDERS.removeprefix("not "), *but])
    yield ["units"]
    yield ["test", "NO_UNITS=1", f"PYTEST=-x -k 'not ({others})'"]
    for backend in fault.tiers:
        if backend not in ("units", "file"):
            yield ["test", f"BACKEND={backend}", f"PYTEST=-x -k 'not ({others})'"]


def asked_with(copy, fault, *words):
    """What has failed with the fault in the source."""
    unit = words[1].removeprefix("UNITS=") if words[0] == "units" and len(words) > 1 else None
    with copy.seeded(fault, *([f"build/tests/{unit}"] if unit else ["-j2", *ALL])):
        return finder_of(make(copy.path, *words))


def compiles(copy, fault):
    with copy.seeded(fault, "objects"):
        return "compiles"


def finds(copy, fault, test):
    """Does it fail with the fault again, and not without?  A test may fail by chance, on a busy machine above all."""
    words = alone(fault, test)
    return asked_with(copy, fault, *words) and not finder_of(make(copy.path, *words))


def ask(copy, fault):
    """Returns the test that has found it, or None."""
    known, chance = read_finders().get(fault.name, ""), []
    if known:
        found = asked_with(copy, fault, *alone(fault, known))
        if found:
            return found
    for _ in range(3):
        for words in tiers(fault, chance):
            found = asked_with(copy, fault, *words)
            if found and (not found.startswith("system/") or finds(copy, fault, found)):
                return found
            if found:
                chance.append(re.sub(r"\[.*", "", found.split("::")[1]))
                break
        else:
            return None
    return None


def asked(copy, fault):
    """A line for people; raises NoFault."""
    found = ask(copy, fault)
    if found and re.match(r"system/|unit ", found):
        keep_finder(fault.name, found)
        return found
    raise NoFault(found or "FOUND BY NO TEST")


def side_by_side(faults, what, copies):
    """(fault, seconds, what is said of it, is it well) of each, as they come."""
    free = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(fault):
        copy, began = free.get(), time.monotonic()
        try:
            said, is_well = what(copy, fault), True
        except NoFault as e:
            said, is_well = str(e), False
        finally:
            free.put(copy)
        return fault, time.monotonic() - began, said, is_well

    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        try:
            for each in concurrent.futures.as_completed([pool.submit(one, fault) for fault in faults]):
                yield each.result()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def main(names):
    began, finders = time.monotonic(), read_finders()
    # Servers first: what is asked of units fills the gaps.
    faults = sorted((f for f in read_faults(FAULTS) if not names or f.name in names), key=lambda f: finders.get(f.name, "").startswith("unit "))
    what = compiles if os.environ.get("COMPILE") else asked
    cores = len(os.sched_getaffinity(0))
    jobs = min(len(faults), int(os.environ.get("JOBS") or cores + 2 * (what is asked)))
    pristine = COPIES / "pristine"
    copy_source(pristine)
    built = make(pristine, f"-j{cores}", *(["all"] if what is compiles else [*ALL, "units"]))
    assert built.returncode == 0, built.stdout[-2000:]
    copies = [Copy(pristine, COPIES / str(n)) for n in range(jobs)]
    print(f"built after {time.monotonic() - began:.0f} s", flush=True)
    bad = [n for n in names if n not in [f.name for f in faults]]
    for fault, seconds, said, is_well in side_by_side(faults, what, copies):
        bad += [fault.name] * (not is_well)
        print(f"{fault.name}: {seconds:.0f} s: {said}", flush=True)
    print(f"{len(faults)} faults in {time.monotonic() - began:.0f} s, {len(bad)} of them are not {'compiled' if what is compiles else 'found'}", *bad)
    return bad != []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
