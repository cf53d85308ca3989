# Goal of these tests: what is written about dlock is true.  Manual, README,
# completions and the program know the same words, so that nobody documents by
# memory and no option is forgotten.

import pathlib
import re
import shutil
import subprocess

import pytest

from support import ROOT

TOP = pathlib.Path(ROOT)
MANUAL, README = "man/dlock.1", "README.md"
COMPLETIONS = ["completions/dlock.bash", "completions/_dlock", "completions/dlock.fish"]
ALWAYS = {"help", "version", "raw"}  # understood without standing in the table of options

# The contract with scripts.
STATUSES = {"USAGE": 64, "UNAVAILABLE": 69, "SYSTEM": 71, "BUSY": 75, "PROTOCOL": 76, "DENIED": 77, "CONFIG": 78,
            "LOST": 79, "MAX_RUN": 124, "NOT_EXECUTABLE": 126, "NOT_FOUND": 127}


def text_of(name):
    """A document's text, a manual's as it will be read: "Fl \\&-key" is "--key"."""
    text = (TOP / name).read_text(encoding="utf-8")
    if name != MANUAL:
        return text
    return re.sub(r"\bFl (\\&)?", "-", text).replace("\\-", "-")


@pytest.fixture
def options(dlock):
    """Rows of (name, letter, argument, variable)."""
    return [line.split("\t") for line in dlock.run("help", "--raw").stdout.splitlines()]


def occurs(word, text):
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def test_the_manual_explains_every_option_and_variable(options):
    text = text_of(MANUAL)
    for name, letter, _, variable in options:
        assert occurs(f"--{name}", text), name
        assert letter == "-" or occurs(f"-{letter}", text), letter
        assert occurs(variable, text), variable


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completions_offer_every_option(options, name):
    text = text_of(name)
    for option, *_ in options:
        written = option if name.endswith(".fish") else f"--{option}"
        assert occurs(written, text), option


@pytest.mark.parametrize("name", [MANUAL, README])
def test_documents_speak_of_no_option_that_does_not_exist(options, name):
    known = {row[0] for row in options} | ALWAYS
    text = text_of(name)
    spoken = {word for line in text.splitlines() for word in re.findall(r"(?<![\w-])--([a-z][a-z-]+)", line)
              if "dlock" in line or name == MANUAL}
    assert spoken - known == set()


@pytest.mark.parametrize("name", [MANUAL, README])
def test_variables_in_documents_exist(options, name):
    known = {row[3] for row in options} | {f"DLOCK_{b}_URL" for b in ("FILE", "REDIS", "ZK", "PG", "<BACKEND>")}
    known |= {"DLOCK_KEY", "DLOCK_TOKEN", "DLOCK_TOKENS", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"}
    spoken = set(re.findall(r"\bDLOCK_[A-Z_]*[A-Z]\b", text_of(name)))
    assert spoken - known == set()


@pytest.mark.parametrize("name", [MANUAL, README, *COMPLETIONS])
def test_every_subcommand_is_known(dlock, name):
    overview = dlock.run("help").stdout
    subcommands = re.findall(r"^  dlock ([a-z]+) ", overview, re.M)
    assert {"run", "help", "version"} <= set(subcommands)
    text = text_of(name)
    assert [s for s in subcommands if not occurs(s, text)] == []


@pytest.mark.parametrize("name", [MANUAL, README])
def test_every_status_is_explained(name):
    text = text_of(name)
    assert [status for status in STATUSES.values() if not occurs(str(status), text)] == []


def test_the_program_knows_these_statuses_and_no_others():
    found = re.findall(r"\bSTATUS_(\w+) = (\d+)", text_of("cmd/verdict.h"))
    assert {name: int(status) for name, status in found} == STATUSES


def sources(*patterns):
    found = sorted(path.relative_to(TOP) for pattern in patterns for path in TOP.glob(pattern))
    assert found
    return found


def begins(path):
    """The first words, without what makes them a comment."""
    return " ".join((TOP / path).read_text(encoding="utf-8")[:200].replace("*", " ").split())


def test_every_source_file_begins_with_its_name():
    for path in sources("cmd/*.[ch]", "backends/**/*.[ch]"):
        assert begins(path).startswith(f"/ {path.name} - "), path
    for path in (p for suffix in ("lua", "sql") for p in TOP.glob(f"backends/**/*.{suffix}")):
        assert begins(path).startswith(f"-- {path.name} - "), path.relative_to(TOP)


def test_every_test_says_what_it_is_for():
    for path in sources("tests/test_*.py"):
        assert begins(path).startswith("# Goal of th"), path


def test_no_backend_looks_at_another_or_at_the_house():
    for path in sources("backends/**/*.[ch]"):
        own = f"backends/{path.parts[1]}/" if len(path.parts) > 2 else "backends/"
        for name in re.findall(r'^#include "([^"]+)"', (TOP / path).read_text(encoding="utf-8"), re.M):
            inside = (TOP / path).parent / name
            shared = (TOP / "backends" / pathlib.Path(name).name).exists() and name.count("/") <= 1
            assert inside.exists() or shared or name.startswith(own) or name.endswith(".lua.h"), (path, name)
            assert not name.startswith("cmd/") and ".." not in name, (path, name)


@pytest.mark.parametrize("program, name", [("bash", COMPLETIONS[0]), ("zsh", COMPLETIONS[1]), ("fish", COMPLETIONS[2])])
def test_completions_are_scripts_that_their_shell_understands(program, name):
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    assert text_of(name)
    result = subprocess.run([program, "-n", TOP / name], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_manual_is_set_without_complaint():
    if not shutil.which("groff"):
        pytest.skip("no groff")
    assert len(re.findall(r"^\.S[hH] ", text_of(MANUAL), re.M)) > 5
    result = subprocess.run(["groff", "-mandoc", "-Tutf8", "-ww", "-z", TOP / MANUAL], capture_output=True, text=True,
                            check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_least_rights_of_the_readme_are_enough(dlock, make_redis):
    """The ACL that people copy lets a run acquire, renew, wait and release."""
    rights = re.search(r"^ACL SETUSER dlock on >password (.*)$", (TOP / "README.md").read_text(), re.M)[1].split()
    server = make_redis()
    server.client().execute_command("ACL", "SETUSER", "dlock", "on", ">password", "resetchannels", *rights)
    url = server.url.replace("redis://", "redis://dlock:password@")
    holder = dlock.start("run", "-u", url, "-k", "job", "-t", "3s", "--", "sleep", "1.5").held()
    waiter = dlock.start("run", "-u", url, "-k", "job", "--", "true")
    for done in (holder.wait(), waiter.wait()):
        assert (done.status, done.stderr) == (0, "")
