#!/usr/bin/python3
# Goal of this file: is the net of tests tight?  One fault at a time is put into a copy of the
# source (mutants.txt), and the tests are asked which of them finds it.
#
#	make mutants                 all of them; ten minutes on two cores
#	make mutants NAME="a b"      some of them
#	make mutants COMPILE=1       no test is asked: does each compile?  a few minutes on one core
#
# Asked first is the test that has found the fault before (finders.txt), then what costs little: the units and
# `make test`, then `make test BACKEND=...` of the fault's backends.  The first failure ends it.  A line for each
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

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COPY = ROOT / "build" / "mutants"
FAULTS = ROOT / "tests" / "mutants" / "mutants.txt"
FINDERS = ROOT / "tests" / "mutants" / "finders.txt"  # "NAME TEST": a test without its parameters, or "unit" and its name
NO_FINDERS = "not (test_a_version_is_for_all or test_what_a_version or test_the_map_says or test_every_fault_of_the)"  # they notice each change of a text
LIMIT = 900  # seconds that one question to the tests may take


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
        for line in lines:
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
        """Returns the file and what was in it."""
        path, lines, i = self.place(texts_of(tree))
        before = path.read_text(encoding="utf-8")
        indent = re.match(r"\s*", lines[i])[0]
        first = re.match(r"\s*", self.new[0])[0] if self.new else ""
        lines[i:i + len(self.old)] = [indent + line.removeprefix(first) + "\n" for line in self.new]
        path.write_text("".join(lines), encoding="utf-8")
        return path, before


def read_faults(path):
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    return [Fault(block) for block in re.split(r"\n{2,}", text.strip())]


def read_finders():
    lines = FINDERS.read_text(encoding="utf-8").splitlines() if FINDERS.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def keep_finder(name, test):
    """In place of the one that did not find it this time."""
    finders = {**read_finders(), name: re.sub(r"\[.*", "", test)}
    FINDERS.write_text("".join(f"{k} {v}\n" for k, v in sorted(finders.items())), encoding="utf-8")


def make_copy():
    """The source, and what has been built of it, so that little is to be built again."""
    COPY.mkdir(parents=True, exist_ok=True)
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        target = COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            shutil.copy2(ROOT / name, target)
    for name in {str(p.relative_to(COPY)) for d in ("cmd", "backends", "tests") for p in (COPY / d).rglob("*.[ch]")} - set(names):
        (COPY / name).unlink()


def make(*words):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    try:
        return subprocess.run(["make", "-C", COPY, "--no-print-directory", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=env, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as e:
        return subprocess.CompletedProcess(words, 1, f"FAILED make {' '.join(words)} (it does not end)\n{e.stdout or ''}")


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


@contextlib.contextmanager
def seeded(fault, *words):
    """The fault is in the source, and that has been built."""
    path, before = fault.put(COPY)
    try:
        built = make(*words)
        if built.returncode != 0:
            error = re.search(r"^.*\b(?:error|undefined reference)\b.*$", built.stdout, re.M)
            raise NoFault(f"DOES NOT COMPILE: {error[0] if error else built.stdout[-500:]}")
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def asked_with(fault, *words):
    """What has failed with the fault in the source."""
    with seeded(fault, "-j2", "all", *(["build/dlock-test", "build/dlock-admin", "wrong"] if words[0] == "test" else [])):
        return finder_of(make(*words))


def compile_only(fault):
    with seeded(fault, "all"):
        return "compiles"


def finds(fault, test):
    """Does it fail with the fault again, and not without?  A test may fail by chance, on a busy machine above all."""
    words = alone(fault, test)
    return asked_with(fault, *words) and not finder_of(make(*words))


def ask(fault):
    """Returns the test that has found it, or None."""
    known, chance = read_finders().get(fault.name, ""), []
    if known:
        found = asked_with(fault, *alone(fault, known))
        if found:
            return found
    for _ in range(3):
        for words in tiers(fault, chance):
            found = asked_with(fault, *words)
            if found and (not found.startswith("system/") or finds(fault, found)):
                return found
            if found:
                chance.append(re.sub(r"\[.*", "", found.split("::")[1]))
                break
        else:
            return None
    return None


def asked(fault):
    """A line for people; raises NoFault."""
    found = ask(fault)
    if found and re.match(r"system/|unit ", found):
        keep_finder(fault.name, found)
        return found
    raise NoFault(found or "FOUND BY NO TEST")


def main(names):
    faults = [f for f in read_faults(FAULTS) if not names or f.name in names]
    what = compile_only if os.environ.get("COMPILE") else asked
    make_copy()
    built = make("all") if what is compile_only else make("-j2", "all", "build/dlock-test", "build/dlock-admin", "wrong", "units")
    assert built.returncode == 0, built.stdout[-2000:]
    bad = [n for n in names if n not in [f.name for f in faults]]
    for fault in faults:
        began = time.monotonic()
        try:
            line = what(fault)
        except NoFault as e:
            bad.append(fault.name)
            line = str(e)
        print(f"{fault.name}: {time.monotonic() - began:.0f} s: {line}", flush=True)
    print(f"{len(faults)} faults, {len(bad)} of them are not {'compiled' if what is compile_only else 'found'}", *bad)
    return bad != []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
