# Goal of these tests: what scripts have learned of a release goes on in all that follow it.  words-1.0.txt is
# what 1.0 knew (CHANGELOG.md says what that promises): nobody takes a line out.  After a release, `PYTHONPATH=tests/servers
# python3 tests/system/cli/test_words.py >words` prints what it knows; words that are new join the file.

import collections
import os
import pathlib
import re
import subprocess

import pytest

from support import DLOCK, ROOT

TOP = pathlib.Path(ROOT)
KNOWN = TOP / "tests/system/cli/words-1.0.txt"
# Settings of -O whose values are words, and what has to stand beside them.
CHOICES = {"redis dialect": [], "zk layout": [], "zk acl": [], "pg mode": [], "mysql mode": [], "pg derive": ["mode=advisory"],
           "mysql derive": ["mode=named"], "file lock": ["path=/tmp/no/such"]}


def text_of(name):
    return (TOP / name).read_text(encoding="utf-8")


def said_by(*words):
    env = {k: v for k, v in os.environ.items() if not k.startswith("DLOCK")} | {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run([DLOCK, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    return done.stdout


def listed(text, start, end):
    """The words of "(there are a, b, c)", or of "X is a, b or c"."""
    found = re.search(f"{start}(.*?){end}", text)
    return re.split(", | or ", found[1]) if found else []


def words_now():
    """{kind: its words}, such as {"status": {"64", ...}}."""
    now = collections.defaultdict(set)
    now["subcommand"] |= {*re.findall(r"^  dlock ([a-z]+) ", said_by("help"), re.M)}
    for row in said_by("help", "--raw").splitlines():
        option, letter, argument, variable, subcommands = row.split("\t")
        for subcommand in subcommands.split(","):
            now[f"option of {subcommand}"] |= {f"--{option}" + ("" if argument == "-" else "=")}
        now["letter"] |= set() if letter == "-" else {f"-{letter}:{option}"}
        now["variable"] |= set() if variable == "-" else {f"{variable}:{option}"}
    for row in said_by("help", "--raw", "backends").splitlines():
        backend, schemes = row.split("\t")
        now["backend"] |= {backend}
        now["scheme"] |= {f"{scheme}:{backend}" for scheme in schemes.split()}
        now[f"setting of {backend}"] |= {*listed(said_by("run", "-b", backend, "-O", "no-such=1", "-k", "a", "--", "true"), r"\(there are ", r"\)")}
    for choice, beside in CHOICES.items():
        backend, name = choice.split()
        said = said_by("run", "-b", backend, *(w for b in beside for w in ("-O", b)), "-O", f"{name}=no-such", "-k", "a", "--", "true")
        now[f"value of {backend} {name}"] |= {*listed(said, r"\(there are ", r"\)"), *listed(said, f"{name} is ", ";")}
    now["status"] |= {status for _, status in re.findall(r"\bSTATUS_(\w+) = (\d+)", text_of("cmd/exit.h"))}
    now["variable of a command"] |= {*re.findall(r"DLOCK_[A-Z]+(?:_[A-Z]+)*", text_of("man/dlock.1") + text_of("man/dlock-hold.1"))}
    now["column"] |= {*re.findall(r"\b[A-Z]{2,}\b", re.search(r"^Columns: .*?\n\n|^Columns: .*", said_by("help", "ls"), re.M | re.S)[0])}
    # test_documents.py sees to it that the pages have these as the program has them.
    events = text_of("man/dlock-events.7")
    now["event"] |= {*re.findall(r"^\.It Li (\w+)$", events, re.M)}
    now["verdict"] |= {*re.findall(r"^\.It Li ([a-z-]+) Ta", events, re.M)}
    checks = text_of("man/dlock-doctor.1").split(".Sh CHECKS")[1].split(".Sh JSON")[0]
    now["check"] |= {word for line in re.findall(r"^\.It Li (.*)$", checks, re.M) for word in line.split(" , ")}
    now["metric"] |= {*re.findall(r'"(dlock_\w+)', text_of("cmd/metrics.c"))}
    for path in TOP.glob("cmd/**/*.c"):
        now["member"] |= {*re.findall(r'json_put_\w+\([^,]+, "(\w+)"', path.read_text(encoding="utf-8"))}
    now["member"] |= {m for row in re.findall(r'\{"\w+", (?:"(\w*)"|NULL), (?:"(\w*)"|NULL)\}', text_of("cmd/supervise/events.c")) for m in row if m}
    return now


def words_of(path):
    lines = [line.partition(": ") for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {kind: set(words.split()) for kind, _, words in lines}


def test_what_1_0_knew_is_known():
    now, then = words_now(), words_of(KNOWN)
    if not then["backend"] <= now["backend"]:
        pytest.skip(f"{DLOCK} was built without some backends")
    assert len(then) > 30 and sum(map(len, then.values())) > 500
    gone = {kind: sorted(words - now[kind]) for kind, words in then.items() if words - now[kind]}
    assert gone == {}, "scripts depend on these"


if __name__ == "__main__":
    for kind, words in sorted(words_now().items()):
        print(f"{kind}: {' '.join(sorted(words))}")
