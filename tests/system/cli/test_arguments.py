# Goal of these tests: the command line is the contract with people and
# scripts.  What is wrong is said in one line that names it and what is right,
# and nothing happens; what is legal works, however odd it looks.

import contextlib
import ctypes
import json
import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest

from support import DLOCK, DLOCK_TEST, FilePlace, RedisPlace, free_port, is_alive, stat_of, wait_for

RAN = "touched-by-the-command"

# Every option: a value that is refused (None: there is none) with what the line must say, one that is taken.
DURATION = "1.5s"
OPTIONS = {
    "key": ("a\nb", "UTF-8", "k"),
    "config": ("a\tb", "control", "/dev/null"),
    "profile": ("a\tb", "control", None),
    "backend": ("nope", "redis", "file"),
    "url": ("nowhere", "file:///", None),
    "option": ("novalue", "NAME=VALUE", None),
    "nonblock": ("maybe", "1 or 0", "1"),
    "wait": ("soon", DURATION, "5"),
    "conflict-exit-code": ("256", "255", "9"),
    "newest": ("maybe", "1 or 0", "0"),
    "unless-frozen": ("a\tb", "UTF-8", "all"),
    "ttl": ("2.9s", "3s", "30s"),
    "grace": ("-1", DURATION, "2s"),
    "signal": ("NOPE", "SIGTERM", "USR1"),
    "min-hold": ("x", DURATION, "0"),
    "max-run": ("0", "more than 0", "inf"),
    "kill-after": ("0", "more than 0", "inf"),
    "wait-tree": ("maybe", "1 or 0", "0"),
    "with-parent": ("maybe", "1 or 0", "1"),
    "shared": ("maybe", "1 or 0", "1"),
    "exclusive": ("maybe", "1 or 0", "1"),
    "limit": ("0", "1 to 100000", "3"),
    "once": ("x" * 201, "200", "2026-11-22"),
    "once-per": ("month", "day, hour or week", "day"),
    "at-offset": ("8d", "7d", "2h"),
    "cooldown": ("-1", DURATION, "1h"),
    "no-retry": ("maybe", "1 or 0", "0"),
    "skipped-exit-code": ("256", "255", "4"),
    "remember": ("maybe", "1 or 0", "0"),
    "command": ("", "empty", "exit 0"),
    "who": (None, None, "alice"),
    "why": (None, None, "ticket 1"),
    "show-arguments": ("maybe", "1 or 0", "0"),
    "status-fd": ("999", "not open", "2"),
    "metrics-file": ("a\tb", "control", None),
    "log": ("fd:x", "fd:3", "fd:2"),
    "quiet": ("maybe", "1 or 0", "1"),
    "verbose": ("maybe", "1 or 0", "0"),
}
FLAGS = ("nonblock", "newest", "wait-tree", "no-retry", "remember", "with-parent", "shared", "exclusive", "show-arguments", "quiet", "verbose")
REPEATABLE = ("key", "option", "unless-frozen")
NOT_VARIABLES = ("command",)  # cannot be had together with the words of a command



@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def mark(tmp_path):
    """A command that leaves a trace when it runs."""
    return ["touch", str(tmp_path / RAN)]


def short(value):
    """An id for a row of a table: long ones would not fit the environment."""
    return ascii(value)[:40]


def variable(option):
    return "DLOCK_" + option.upper().replace("-", "_")


def flag(option, value):
    return [f"--{option}"] if option in FLAGS else [f"--{option}", value]


def entries_below(directory):
    return sorted(str(p.relative_to(directory)) for p in pathlib.Path(directory).rglob("*"))


def assert_one_line(result, status, *words):
    """The line is for people: one, ours, clean, of a length that can be read."""
    assert result.status == status, result
    assert result.stdout == "", result
    assert result.stderr.startswith("dlock: "), result
    assert result.stderr.endswith("\n") and result.stderr.count("\n") == 1, result
    line = result.stderr[:-1]
    assert line.isprintable() and "\\x0A" not in line[-4:], result
    for word in words:
        assert word in line, (word, result)


def assert_refused(result, tmp_path, status, *words):
    assert_one_line(result, status, *words)
    assert not (tmp_path / RAN).exists(), "the command ran"
    assert not (tmp_path / "locks").exists() or entries_below(tmp_path / "locks") == []


# ---- the shape of the line ----

SITE, MARK = ["SITE"], ["MARK"]  # in the tables: how to reach the backend; the command


@pytest.fixture
def refuse(dlock, files, mark, tmp_path):
    """Runs dlock with these words and expects to be refused in these terms."""

    def run(words, status, said, **options):
        line = []
        for word in words:
            line += files.words if word is SITE else mark if word is MARK else [word]
        assert_refused(dlock.run(*line, events=False, **options), tmp_path, status, *said)

    return run


@pytest.mark.parametrize("words, said", [
    ([], ["dlock run", "dlock help"]),
    (["run"], ["key", "dlock run -k KEY"]),
    (["run", SITE], ["key", "dlock run -k KEY"]),
    (["run", SITE, "-k", "k"], ["no command", "k"]),
    (["run", SITE, "-k", "k", "--"], ["no command", "k"]),
    (["run", SITE, "k"], ["no command", "k"]),
    (["run", SITE, "k", "--"], ["no command", "k"]),
    (["run", SITE, "-k", "k", "--", ""], ["command", "empty"]),
    (["run", SITE, "", MARK], ["key", "empty"]),
    (["run", SITE, "k", "-n", MARK], ["'-n'", "after the key 'k'", "before", "dlock run k -n ... -- COMMAND"]),
    (["run", SITE, "k", "--full"], ["'--full'", "after the key 'k'", "before"]),
    (["run", SITE, "k", "-n", "touch", "--", "x"], ["'-n'", "after the key 'k'", "before"]),
    (["run", SITE, "k", "--nope", "--", MARK], ["--nope", "dlock help"]),
    (["run", SITE, "k", "--why", "--", MARK], ["--why needs a value", "'--'", "--why=VALUE"]),
    # an empty variable that a shell has left out: what stands behind the -- is no key
    (["run", SITE, "--", "nice", MARK], ["no key before the --", "dlock run -k KEY -- COMMAND"]),
    (["run", SITE, "-n", "--", "nice", MARK], ["no key before the --"]),
    (["run", SITE, "--", "nice", "-n", "--", MARK], ["no key before the --"]),
    (["run", SITE, "k", "-k", "other", "--", MARK], ["'k'", "'other'", "-k for each"]),
    (["run", SITE, "k", "-n", "--"], ["no command", "'k'"]),
    (["run", SITE, "-k=k", MARK], ["-k=", "-k KEY", "--key=KEY"]),
    (["run", SITE, "-nk=k", MARK], ["-k=", "-k KEY", "--key=KEY"]),
    (["run", SITE, "-k", "k", "-w=5", MARK], ["-w=", "-w DURATION", "--wait=DURATION"]),
    (["run", SITE, "-k", "k", "-n=1", MARK], ["-n", "no value"]),
    (["run", SITE, "-k", "k", "-qn=", MARK], ["-n", "no value"]),
    (["run", SITE, "-key", "k", MARK], ["-key", "--key"]),
    (["run", SITE, "-k", "k", "-quiet", MARK], ["-quiet", "--quiet"]),
    (["run", SITE, "-k", "k", "-wait=5", MARK], ["-wait", "--wait"]),
    (["run", SITE, "-k", "k", "--nowait", MARK], ["--nowait", "did you mean --nonblock?", "dlock help"]),
    (["run", SITE, "-k", "k", "--no-wait", MARK], ["--no-wait", "did you mean --nonblock?"]),
    (["run", SITE, "-k", "k", "--timeout", "5", MARK], ["--timeout", "did you mean --wait, or --max-run?", "dlock help run"]),
    (["hold", SITE, "-k", "k", "--timeout=5"], ["--timeout", "did you mean --wait?", "dlock help hold"]),
    (["status", SITE, "-k", "k", "--timeout=5"], ["unknown option --timeout (dlock help status"]),
    (["run", SITE, "-k", "k", "-timeout=5s", MARK], ["unknown option -timeout:", "did you mean --wait, or --max-run?", "dlock help run"]),
    (["run", SITE, "-k", "k", "-try=5s", MARK], ["unknown option -try:", "did you mean --wait?"]),
    (["run", SITE, "-k", "k", "--try", "5s", MARK], ["--try", "did you mean --wait?"]),
    (["run", "--endpoints=h:2379", "-k", "k", MARK], ["--endpoints", "did you mean --url?"]),
    (["run", "--host", "h", "-k", "k", MARK], ["--host", "did you mean --url?"]),
    (["run", SITE, "-k", "k", "--expire", "9", MARK], ["--expire", "did you mean --ttl?"]),
    (["ls", SITE, "--lease", "9"], ["unknown option --lease (dlock help ls"]),
    (["k", MARK], ["no subcommand 'k'", "dlock run -k KEY -- COMMAND"]),
    (["run", SITE, "-k", "k", "--non-block", MARK], ["--non-block", "did you mean --nonblock?"]),
    (["run", SITE, "-k", "k", "--Wait=5", MARK], ["--Wait", "did you mean --wait?"]),
    (["run", "-b", "postgres", "-k", "k", MARK], ["'postgres'", "did you mean pg?", "file", "redis", "zk", "pg"]),
    (["run", "-b", "zookeeper", "-k", "k", MARK], ["'zookeeper'", "did you mean zk?"]),
    (["run", "-b", "MariaDB", "-k", "k", MARK], ["'MariaDB'", "did you mean mysql?"]),
    (["run", "-b", "rdeis", "-k", "k", MARK], ["'rdeis'", "did you mean redis?"]),
    (["run", "-u", "/tmp/x", "-k", "k", MARK], ["--url '/tmp/x'", "file:///tmp/x"]),
    (["run", "-b", "file", "-u", "/tmp/x", "-k", "k", MARK], ["--url '/tmp/x'", "file:///tmp/x"]),
    (["run", "-u", "./x", "-k", "k", MARK], ["--url './x'", "file:///DIRECTORY"]),
    (["run", "-u", "zookeeper://h", "-k", "k", MARK], ["--url 'zookeeper...'", "did you mean zk://?"]),
    (["run", "-u", "http://h:2379", "-k", "k", MARK], ["--url 'http...'", "did you mean etcd://?"]),
    (["run", "-u", "https://h:2379", "-k", "k", MARK], ["--url 'https...'", "did you mean etcds://?"]),
    (["run", SITE, "-k", "k", "-c", "true", MARK], ["--command", "touch"]),
    (["run", "-k", "k", MARK], ["backend", "-b", "-u", "file", "redis", "zk", "pg"]),
    (["run", "-b", "redis", SITE, "-k", "k", MARK], ["--backend (redis) and --url (file)", "contradict"]),
    (["run", SITE, "-n", "-w", "5", "-k", "k", MARK], ["--nonblock", "--wait 5"]),
    (["run", SITE, "-s", "-x", "-k", "k", MARK], ["--shared and --exclusive", "contradict"]),
    (["run", SITE, "--newest", "-k", "k", "-k", "l", MARK], ["--newest takes one key", "2"]),
    (["run", SITE, "-sx", "-k", "k", MARK], ["--shared and --exclusive", "contradict"]),
    (["run", SITE, "-s", "--limit", "3", "-k", "k", MARK], ["--shared and --limit", "contradict"]),
    (["run", SITE, "--limit", "3", "-x", "-k", "k", MARK], ["--exclusive and --limit", "contradict"]),
    (["run", SITE, "--reader", "-k", "k", MARK], ["--reader"]),
    (["run", SITE, "--read", "-k", "k", MARK], ["--read"]),
    (["run", SITE, "--write", "-k", "k", MARK], ["--write"]),
    (["run", SITE, "--Writer", "-k", "k", MARK], ["--Writer"]),
    (["run", SITE, "--semaphore=3", "-k", "k", MARK], ["--semaphore"]),
    (["run", SITE, "--slots", "3", "-k", "k", MARK], ["--slots"]),
    (["run", SITE, "--max", "3", "-k", "k", MARK], ["--max"]),
    (["run", SITE, "--concurrency", "3", "-k", "k", MARK], ["--concurrency"]),
    (["run", SITE, "--limt", "3", "-k", "k", MARK], ["--limt", "did you mean --limit?"]),
    (["run", SITE, "--id", "x", "-k", "k", MARK], ["--id"]),
    (["run", SITE, "--cool-down", "1h", "-k", "k", MARK], ["--cool-down", "did you mean --cooldown?"]),
    (["run", SITE, "--skip-exit-code", "1", "-k", "k", MARK], ["--skip-exit-code", "did you mean --skipped-exit-code?"]),
    (["run", SITE, "--nope", "-k", "k", MARK], ["--nope", "dlock help"]),
    (["run", SITE, "--ke", "k", MARK], ["--ke", "dlock help"]),
    (["run", SITE, "--key2", "k", MARK], ["--key2", "dlock help"]),
    (["run", SITE, "--KEY", "k", MARK], ["--KEY", "dlock help"]),
    (["run", SITE, "-Z", "-k", "k", MARK], ["-Z", "dlock help"]),
    (["run", SITE, "-nZq", "-k", "k", MARK], ["-Z", "dlock help"]),
    (["run", SITE, "-k", "k", "-foo", MARK], ["-f", "dlock help"]),
    (["run", SITE, "-k", "k", "--=x", MARK], ["--", "dlock help"]),
    (["run", SITE, "-O", "colour=red", "-k", "k", MARK], ["colour", "file"]),
    (["nosuch"], ["nosuch", "dlock help"]),
    (["ru", SITE, "-k", "k", MARK], ["ru", "did you mean dlock run?", "dlock help"]),
    (["rnu", SITE, "-k", "k", MARK], ["rnu", "did you mean dlock run?", "dlock help"]),
    (["RUN", SITE, "-k", "k", MARK], ["RUN", "did you mean dlock run?", "dlock help"]),
    (["lock", SITE, "-k", "k", MARK], ["lock", "did you mean dlock run, or dlock hold?", "dlock help"]),
    (["list"], ["did you mean dlock ls?"]),
    (["who", "k"], ["did you mean dlock status?"]),
    (["unlock", "k"], ["did you mean dlock release?"]),
    (["kill", "k"], ["did you mean dlock break?"]),
    (["top"], ["did you mean dlock ls --watch?"]),
    (["watch", "k"], ["did you mean dlock status --watch?"]),
    (["log"], ["did you mean dlock ls --jobs, or dlock run --log?"]),
    (["help", "exec"], ["did you mean dlock run?"]),
    (["status", SITE], ["no key: say dlock status KEY (dlock ls lists all locks)"]),
    (["-k", "k", MARK], ["-k", "dlock run -k", "dlock help"]),
    (["help", "nosuch"], ["nosuch", "dlock help"]),
    (["--verson"], ["--verson", "did you mean dlock version?", "dlock help"]),
    (["help", "vresion"], ["vresion", "did you mean dlock version?", "dlock help"]),
    (["a\x1b]0;title\x07\n\u202eb"], ["a\\x1B]0;title\\x07\\x0A\\u202Eb"]),
], ids=short)
def test_a_wrong_line_is_refused(refuse, words, said):
    refuse(words, 64, said)


@pytest.mark.parametrize("option", [o for o in OPTIONS if o not in FLAGS])
def test_an_option_without_its_value_is_refused(refuse, option):
    refuse(["run", f"--{option}"], 64, [f"--{option}", "value"])


@pytest.mark.parametrize("option", FLAGS)
def test_a_flag_with_a_value_is_refused(refuse, option):
    refuse(["run", SITE, f"--{option}=1", "-k", "k", MARK], 64, [f"--{option}", "'1'", "no value"])


@pytest.mark.parametrize("option", [o for o in OPTIONS if o not in REPEATABLE])
def test_an_option_given_twice_is_refused(refuse, option):
    twice = 2 * flag(option, OPTIONS[option][2] or "file:///tmp")
    refuse(["run", *twice, "-k", "k", MARK], 64, [f"--{option}", "twice"])


@pytest.mark.parametrize("option", [o for o in OPTIONS if o not in FLAGS and OPTIONS[o][0]])
def test_a_wrong_value_is_refused(refuse, option):
    value, said, _ = OPTIONS[option]
    place = [] if option in ("backend", "url") else [SITE]
    shown = value[:20] if value.isprintable() else value[0]
    refuse(["run", *place, f"--{option}", value, *([] if option == "key" else ["-k", "k"]), MARK], 64,
           [f"--{option}", shown, said])


@pytest.mark.parametrize("option", [o for o in OPTIONS if o not in NOT_VARIABLES and OPTIONS[o][0]])
def test_a_wrong_variable_is_refused(refuse, option):
    value, said, _ = OPTIONS[option]
    place = [] if option in ("backend", "url") else [SITE]
    refuse(["run", *place, *([] if option == "key" else ["-k", "k"]), MARK], 64,
           [variable(option), said], env={variable(option): value})


# ---- values that are options ----


def every_option(dlock):
    """{subcommand: [(name, letter, takes a value)]}, of the table of options."""
    known = {}
    for row in dlock.run("help", "--raw").stdout.splitlines():
        name, letter, value, _, commands = row.split("\t")
        for command in commands.split(","):
            known.setdefault(command, []).append((name, letter.strip("-"), value != "-"))
    return known


def words_of(options):
    """Words that are read as these options, or as the end of all."""
    yield from ("--", "--help", "-h")
    flags = [letter for _, letter, valued in options if letter and not valued]
    for name, letter, valued in options:
        yield f"--{name}"
        if letter:
            yield f"-{letter}"
            yield f"-h{letter}"
        if valued:
            yield f"--{name}=5s"
            yield from (f"-{before}{letter}5s" for before in ["", *flags] if letter)


def hidden(word):
    """What of such a word the line may show: its value may be a password."""
    return word.split("=")[0].removesuffix("5s")


@pytest.mark.parametrize("command", ["run", "status", "ls", "wait", "break", "freeze", "thaw", "forget", "hold", "doctor", "config"])
def test_an_option_is_no_value(dlock, tmp_path, command):
    """`-k $KEY -n` with an empty variable: the key is not "-n"."""
    options, asked, here = every_option(dlock)[command], 0, tmp_path / "here"
    here.mkdir()
    for name, letter, _ in [o for o in options if o[2] and o[0] != "watch"]:
        for word in [*words_of(options)][::1 if name == "key" else 12] + ["--"]:
            for spelt in [f"--{name}", *([f"-{letter}"] if letter else [])]:
                words = [command, spelt, word, "k", "true"]
                done = subprocess.run([DLOCK, *words], cwd=here, capture_output=True, text=True, check=False)
                assert done.returncode == 64 and done.stdout in ("", "(exit 64)\n") and done.stderr.count("\n") == 1, (words, done)
                assert f"--{name} needs a value, but '{hidden(word)}' comes next" in done.stderr and f"--{name}=VALUE" in done.stderr, (words, done)
                asked += 1
    assert asked > 20 and entries_below(here) == []


@pytest.mark.parametrize("key", ["--", "-n", "-nq", "-w5s", "--wait=1h"])
def test_a_key_that_looks_like_an_option_is_written_behind_the_sign(dlock, files, key):
    for words in ([f"--key={key}"], [f"-k{key}"]):
        done = dlock.run("run", *files.words, *words, "--", "sh", "-c", 'printf %s "$DLOCK_KEY"', events=False)
        assert (done.status, done.stdout) == (0, key), done
    assert dlock.run("status", *files.words, "--", key).status == 1


@pytest.mark.parametrize("value", ["-", "-1", "-5m", "- tidy up", "-zz", "---", "--nosuch", "--wait for it"])
def test_what_is_no_option_is_a_value(dlock, files, value):
    done = dlock.run("run", *files.words, "--why", value, "-k", value, "--", "sh", "-c", 'printf %s "$DLOCK_KEY"', events=False)
    assert (done.status, done.stdout) == (0, value), done


# ---- values ----

NO_DURATIONS = ["", "x", "-1", "+5", "1e9", "nan", "0x10", "10 s", " 10", "10 ", "10S", "1m30", "1h30", "INF",
                "infinity", "99999999999999999999", "99999999999w", "1,5s", "1.", ".5", "1..5s", "1.5.5", "s",
                "5s5s", "5s5m", "5us", "5\u00b5s", "1h-5m", "\u0665"]


@pytest.mark.parametrize("value", NO_DURATIONS, ids=short)
@pytest.mark.parametrize("option", ["wait", "ttl", "grace", "min-hold", "max-run", "cooldown"], ids=short)
def test_what_is_no_duration_is_refused(refuse, option, value):
    refuse(["run", SITE, f"--{option}", value, "-k", "k", MARK], 64, [f"--{option} '{value}'", "1h30m"])


@pytest.mark.parametrize("words, said", [
    (["--ttl", "0"], ["--ttl '0'", "from 3s", "365d"]),
    (["--ttl", "2999ms"], ["--ttl '2999ms'", "from 3s", "365d"]),
    (["--ttl", "366d"], ["--ttl '366d'", "from 3s", "365d"]),
    (["--ttl", "inf"], ["--ttl 'inf'", "from 3s", "365d"]),
    (["--grace", "inf"], ["--grace 'inf'", "365d"]),
    (["--min-hold", "inf"], ["--min-hold 'inf'", "365d"]),
    (["--max-run", "0"], ["--max-run '0'", "more than 0"]),
    (["--ttl", "10s", "--grace", "10s"], ["--ttl 10s", "--grace 10s", "at least"]),
    (["--ttl", "10s", "--grace", "1m"], ["--ttl 10s", "--grace 1m", "at least"]),
    (["--grace", "29s"], ["--ttl 30s", "--grace 29s", "at least"]),
    (["-E", "256"], ["--conflict-exit-code '256'", "0 to 255"]),
    (["-E", "-1"], ["--conflict-exit-code '-1'", "0 to 255"]),
    (["-E", "x"], ["--conflict-exit-code 'x'", "0 to 255"]),
    (["-E", ""], ["--conflict-exit-code ''", "0 to 255"]),
    (["-E", " 7"], ["--conflict-exit-code ' 7'", "0 to 255"]),
    (["-E", "0x4b"], ["--conflict-exit-code '0x4b'", "0 to 255"]),
    (["-E", "4294967296"], ["--conflict-exit-code '4294967296'", "0 to 255"]),
    *((["--limit", value], [f"--limit '{value}'", "a number from 1 to 100000"])
      for value in ("0", "1x", "100001", "", "-1", "+1", " 1", "1.5", "0x3", "4294967297", "99999999999999999999", "inf")),
    (["--once", ""], ["--once ''", "empty", "1 to 200 bytes"]),
    (["--once", "x" * 201], ["--once 'xxx", "too long", "200"]),
    (["--once", "\u00e9" * 101], ["--once '\u00e9", "too long", "200"]),
    (["--once", "a\nb"], ["--once 'a\\x0Ab'", "control"]),
    (["--once", "\x1b[2J"], ["--once '\\x1B[2J'", "control"]),
    (["--once", b"\xff"], ["--once '\\xFF'", "UTF-8"]),
    (["--cooldown", "-5m"], ["--cooldown '-5m'", "from 0ms to 365d"]),
    (["--cooldown", "366d"], ["--cooldown '366d'", "from 0ms to 365d"]),
    (["--cooldown", "inf"], ["--cooldown 'inf'", "365d"]),
    (["--skipped-exit-code", "-1"], ["--skipped-exit-code '-1'", "0 to 255"]),
    (["--skipped-exit-code", "x"], ["--skipped-exit-code 'x'", "0 to 255"]),
    (["--signal", ""], ["--signal ''", "TERM"]),
    (["--signal", "0"], ["--signal '0'", "TERM"]),
    (["--signal", "-9"], ["--signal '-9'", "TERM"]),
    (["--signal", "65"], ["--signal '65'", "TERM"]),
    (["--signal", "SIGSIGTERM"], ["--signal 'SIGSIGTERM'", "TERM"]),
    (["--signal", "CHLD"], ["--signal 'CHLD'", "end"]),
    (["--signal", "STOP"], ["--signal 'STOP'", "end"]),
    (["--status-fd", "-1"], ["--status-fd '-1'", "descriptor"]),
    (["--status-fd", "x"], ["--status-fd 'x'", "descriptor"]),
    (["--status-fd", "777"], ["--status-fd '777'", "not open"]),
    (["--status-fd", "99999999999999999999"], ["--status-fd '99999999999999999999'", "descriptor"]),
    (["--wait", "99999999999w"], ["--wait '99999999999w'", "292 years", "inf"]),
    (["--max-run", "99999999999w"], ["--max-run '99999999999w'", "292 years", "inf"]),
    (["--ttl", ""], ["--ttl ''", "from 3s to 365d"]),
    (["--grace", "x\ny"], ["--grace 'x\\x0Ay'", "365d"]),
    (["--wait", b"\xff"], ["--wait '\\xFF'", "inf"]),
    (["--signal", "TERM\n"], ["--signal 'TERM\\x0A'", "SIGTERM"]),
    (["-O", "x" * 9000 + "=1"], ["--option 'xxx", "8192"]),
    (["-b", "x" * 9000], ["--backend 'xxx", "file", "redis", "zk", "pg"]),
    (["--" + "x" * 9000], ["--xxx", "dlock help"]),
    (["-w", "1" * 9000], ["--wait '111", "inf"]),
    (["-O", ""], ["--option ''", "NAME=VALUE"]),
    (["-O", "=x"], ["--option '=x'", "NAME=VALUE"]),
    (["-b", ""], ["--backend ''", "file", "redis", "zk", "pg"]),
    (["-b", "REDIS"], ["--backend 'REDIS'", "file", "redis", "zk", "pg"]),
    (["-b", "file "], ["--backend 'file '", "file", "redis", "zk", "pg"]),
], ids=short)
def test_a_value_out_of_range_is_refused(refuse, words, said):
    words = [os.fsdecode(w) for w in words]
    refuse(["run", *([] if "-b" in words else [SITE]), *words, "-k", "k", MARK], 64, said)


@pytest.mark.parametrize("words", [
    ["-w", "0"], ["-w", "inf"], ["-w", "0.0001s"], ["-w", "1h30m"], ["-w", "1w2d3h4m5s6ms"], ["-w", "007"],
    ["-w", "1.5h"], ["-t", "3"], ["-t", "3000ms"], ["-t", "3.0s"], ["-t", "365d"], ["-t", "52w"],
    ["--grace", "0"], ["--grace", "4500ms"], ["--max-run", "inf"], ["--min-hold", "0s"],
    ["--signal", "TERM"], ["--signal", "SIGINT"], ["--signal", "15"], ["--signal", "KILL"], ["--signal", "64"],
    ["-E", "0"], ["-E", "255"], ["--why", ""], ["--why", "\u00e9" * 100], ["--who", "x" * 200],
    ["-n"], ["-nqv"], ["-qn"], ["-E0"], ["-w5"],
], ids=short)
def test_a_legal_value_is_taken(dlock, files, words):
    result = dlock.run("run", *files.words, *words, "-k", "k", "--", "echo", "ran")
    assert (result.status, result.stdout) == (0, "ran\n"), result


def test_a_descriptor_for_reading_takes_no_events(refuse):
    with open("/dev/null", encoding="utf-8") as null:
        refuse(["run", SITE, "--status-fd", "0", "-k", "k", MARK], 64, ["--status-fd '0'", "not open for writing"], stdin=null)


def test_a_decimal_point_is_a_point_in_every_locale(dlock, files):
    for name in ("de_DE.UTF-8", "nonsense"):
        env = {"LC_ALL": name, "LC_NUMERIC": name, "LANG": name, "TZ": ":no/such/zone"}
        assert dlock.run("run", *files.words, "-t", "3.5s", "-k", "k", "true", env=env).status == 0


# ---- keys ----


@pytest.mark.parametrize("key, said", [
    (b"", ["--key ''", "empty"]),
    (b"a" * 513, ["--key 'aaa", "too long", "512"]),
    (b"a" * 131000, ["--key 'aaa", "too long", "512"]),
    ("\u00e9".encode() * 257, ["--key '\u00e9", "too long", "512"]),
    (b"a\nb", ["--key 'a\\x0Ab'", "control"]),
    (b"a\rb", ["--key 'a\\x0Db'", "control"]),
    (b"a\tb", ["--key 'a\\x09b'", "control"]),
    (b"\x1b[2J", ["--key '\\x1B[2J'", "control"]),
    (b"\x1b]52;c;eA==\x07", ["\\x1B]52;c;eA==\\x07", "control"]),
    (b"a\x7f", ["--key 'a\\x7F'", "control"]),
    (b"\xc2\x9b2J", ["\\x9B2J", "control"]),
    (b"\x9b2J", ["--key '\\x9B2J'", "UTF-8"]),
    (b"\xff", ["--key '\\xFF'", "UTF-8"]),
    (b"a\xc3", ["--key 'a\\xC3'", "UTF-8"]),
    (b"\xc0\xaf", ["--key '\\xC0\\xAF'", "UTF-8"]),
    (b"\xed\xa0\x80", ["--key '\\xED\\xA0\\x80'", "UTF-8"]),
    (b"\xf4\x90\x80\x80", ["--key '\\xF4\\x90\\x80\\x80'", "UTF-8"]),
], ids=short)
def test_an_illegal_key_is_refused(refuse, key, said):
    refuse(["run", SITE, "-k", os.fsdecode(key), MARK], 64, said)


ODD_KEYS = ["/", "//", "/a/", "a//b", ".", "..", "a/../b", "../../etc/passwd", "zookeeper", "{}", "{x", "x}y{", "*",
            "?", "[a-z]", "%s%n%x", "%2e%2e", "%", "%zz", "'; DROP TABLE x; --", "\\'", "$1", "$(id)", "`id`", "a b",
            " ", "  ", "k ", "k:fence", "-k", "--", "=", "a=b", "\u202eevil", "zero\u200bwidth", "e\u0301", "\u00e9",
            "e" + "\u0301" * 200, "\U0001f512", "a" * 512, "\u20ac" * 170, "lock", "x.lock", "CON", "~", "#", "k\\n"]


@pytest.mark.parametrize("key", ODD_KEYS, ids=short)
def test_an_odd_key_is_a_key(dlock, place, key):
    result = dlock.run("run", *place.words, f"--key={key}", "--", "printenv", "DLOCK_KEY")
    assert (result.status, result.stdout, result.stderr) == (0, key + "\n", "")


def test_no_key_leads_out_of_the_directory(dlock, files, tmp_path):
    before = set(entries_below(tmp_path))
    for key in ODD_KEYS:
        assert dlock.run("run", *files.words, f"--key={key}", "true", events=False).status == 0
    outside = {e for e in set(entries_below(tmp_path)) - before if not e.startswith(("locks/", "dlock"))}
    assert outside == set()
    assert not [e for e in entries_below(files.directory) if pathlib.Path(files.directory, e).is_symlink()]


@pytest.mark.parametrize("one, other", [
    ("k", "k "), ("k", "K"), ("\u00e9", "e\u0301"), (".", "%2e"), ("a/b", "a%2Fb"), ("a/b", "a%2fb"), ("a/b", "a_b"),
    ("k", "k:fence"), ("k", "k.lock"), ("{k}", "k"), ("a" * 512, "a" * 511), ("a" * 200, "a" * 201), ("/", "//"),
    ("a" * 200 + "+", "a" * 200), ("k", "{k}"), ("k:h", "k:w"), ("*", "k"),
], ids=short)
def test_keys_that_differ_in_one_byte_are_different_locks(dlock, place, one, other):
    held = dlock.hold(place, place.key(one)) if len(one) < 200 else dlock.hold(place, one)
    key = place.key(other) if len(one) < 200 else other
    result = dlock.run("run", *place.words, "-n", "-k", key, "--", "echo", "free")
    assert (result.status, result.stdout) == (0, "free\n"), result
    assert held.finish().status == 0


def test_a_deceptive_key_is_shown_as_what_it_is(dlock, place):
    key = place.key("a\u202eb\u200bc")
    held = dlock.hold(place, key)
    result = dlock.run("run", *place.words, "-n", "-k", key, "true", events=False)
    assert_one_line(result, 75, "a\\u202Eb\\u200Bc")
    assert held.finish().status == 0


# ---- URLs ----


@pytest.mark.parametrize("url, said", [
    ("", ["--url"]),
    ("http://h", ["--url", "http", "redis://"]),
    ("://h", ["--url", "redis://"]),
    ("REDIS://h", ["--url", "REDIS", "redis://"]),
    ("file", ["--url", "file:///"]),
    ("file:", ["file:///DIR"]),
    ("file://", ["file:///DIR"]),
    ("file:here", ["file:///DIR"]),
    ("file://host/dir", ["file:///DIR"]),
    ("file://user@localhost/dir", ["file:///DIR"]),
    ("file://localhost", ["file:///DIR"]),
    ("file:///a%zz", ["%XX"]),
    ("file:///a%00b", ["%XX"]),
    ("file:///" + "a" * 5000, ["--url", "allowed"]),
    ("redis:", ["redis URL", "redis://"]),
    ("redis:h", ["redis URL", "redis://"]),
    ("redis://", ["host", "redis://"]),
    ("redis:///", ["host", "redis://"]),
    ("redis://@", ["host", "redis://"]),
    ("redis://:6379", ["host", "redis://"]),
    ("redis://h:", ["port", "65535"]),
    ("redis://h:0", ["port", "65535"]),
    ("redis://h:65536", ["port", "65535"]),
    ("redis://h:655360", ["port", "65535"]),
    ("redis://h:6379abc", ["port", "65535"]),
    ("redis://h:-6379", ["port", "65535"]),
    ("redis://h: 6379", ["port", "65535"]),
    ("redis://h/-1", ["database"]),
    ("redis://h/2147483648", ["database"]),
    ("redis://h/x", ["database"]),
    ("redis://h/0/1", ["database"]),
    ("redis://h?x=1", ["database"]),
    ("redis://::1", ["redis URL"]),
    ("redis://fe80::1:6379", ["redis URL"]),
    ("redis://[::1", ["IPv6"]),
    ("redis://[]", ["IPv6"]),
    ("redis://[::1]6379", ["port"]),
    ("redis://h ost", ["host"]),
    ("redis://h\nost", ["host"]),
    ("redis://a,,b", ["host"]),
    ("redis://" + "a" * 256, ["host"]),
    ("redis://user@h", ["user without a password"]),
    ("redis://u:p%zz@h", ["%XX"]),
    ("redis+unix://", ["path"]),
    ("redis+unix://rel", ["path"]),
    ("redis+unix:///" + "a" * 107, ["107"]),
    ("redis+unix:///s?db=x", ["?db="]),
], ids=short)
def test_a_wrong_url_is_refused(refuse, url, said):
    refuse(["run", "-u", url, "-k", "k", MARK], 64, said)


@pytest.mark.parametrize("spoil, status, said", [
    (lambda d: d.rmdir(), 78, ["directory", "mkdir"]),
    (lambda d: (d.rmdir(), d.write_text("")), 78, ["not a directory"]),
    (lambda d: d.chmod(0o777), 77, ["chmod +t"]),
    (lambda d: (d / "k.lock").symlink_to("/etc/passwd"), 77, ["k.lock"]),
    (lambda d: os.mkfifo(d / "k.lock"), 77, ["k.lock"]),
    (lambda d: (d / "k.lock").mkdir(), 77, ["k.lock"]),
    (lambda d: (d / "k.lock").write_text("something else\n"), 76, ["k.lock"]),
], ids=["missing", "no directory", "open to all", "symlink", "fifo", "directory", "foreign"])
def test_a_directory_that_cannot_be_trusted_is_refused(dlock, files, mark, tmp_path, spoil, status, said):
    spoil(files.directory)
    before = entries_below(tmp_path)
    result = dlock.run("run", *files.words, "-k", "k", "--", *mark, events=False)
    assert_one_line(result, status, *said)
    assert [e for e in entries_below(tmp_path) if not e.startswith("dlock0.")] == before


def serve_once(listener, greeting):
    """A server of another kind: says its piece and stays on the line."""
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), peer:
            peer.settimeout(60)
            peer.recv(4096)
            peer.sendall(greeting)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(65536)


@pytest.mark.parametrize("greeting", [
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>\x1b[2J</html>",
    b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    b"\x15\x03\x01\x00\x02\x02\x46",  # the alert of a TLS server
    b"220 mail ESMTP ready\r\n",
], ids=["http", "ssh", "tls", "smtp"])
def test_a_server_of_another_kind_is_recognised(refuse, greeting):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener, greeting), daemon=True)
        thread.start()
        refuse(["run", "-u", f"redis://127.0.0.1:{listener.getsockname()[1]}", "-k", "k", MARK], 76, ["127.0.0.1"])
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("path", ["/nonexistent/socket", "/dev/null", "/tmp"])
def test_what_is_no_socket_is_no_server(refuse, path):
    refuse(["run", "-n", "-u", f"redis+unix://{path}", "-k", "k", MARK], 69, [path])


# ---- commands ----


@pytest.fixture
def odd_commands(tmp_path):
    for name, text, mode in [("plain", "", 0o644), ("closed", "#!/bin/sh\n", 0o600)]:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    return tmp_path


@pytest.mark.parametrize("command, status, said", [
    ("/tmp", 126, ["'/tmp'", "directory"]),
    ("plain", 126, ["plain", "Permission denied"]),
    ("plain/x", 127, ["plain/x", "Not a directory"]),
    ("nonexistent", 127, ["nonexistent", "No such file"]),
    ("dlock-no-such-command", 127, ["'dlock-no-such-command'", "No such file"]),
    ("echo a b", 127, ["'echo a b'", "No such file", "did you mean -c?"]),
    ("-foo", 127, ["'-foo'", "No such file", "options go before the --"]),
    ("\x1b[2J", 127, ["'\\x1B[2J'", "No such file"]),
    ("/" + "a" * 300, 126, ["aaa", "too long"]),
    ("/" + "a/" * 4000, 126, ["a/a", "too long"]),
], ids=short)
def test_a_command_that_cannot_be_found_takes_no_lock(dlock, files, odd_commands, tmp_path, command, status, said):
    if (tmp_path / command.split("/")[0]).exists() or command == "nonexistent":
        command = str(tmp_path / command)
    result = dlock.run("run", *files.words, "-k", "k", "--", command, events=False)
    assert_refused(result, tmp_path, status, "no lock", *said)


OWN = [("golang-migrate", "migrate up"), ("golang-migrate-instance", "/usr/local/bin/migrate -path x up"), ("flyway", "flyway migrate"),
       ("prisma-migrate", "npx prisma migrate deploy"), ("node-pg-migrate", "npx node-pg-migrate up"), ("graphile-migrate", "graphile-migrate watch"),
       ("rails-migration", "bundle exec rails db:migrate"), ("rails-migration", "env rake db:migrate")]
OTHERS = [("golang-migrate", "true migrate up"), ("golang-migrate", "flyway migrate"), ("rails-migration", "rails runner x"), ("prisma-migrate", "prisma generate"),
          ("flyway", "./migrate.sh flyway")]


@pytest.mark.pg
@pytest.mark.parametrize("tool, line, own", [*((*row, True) for row in OWN), *((*row, False) for row in OTHERS)], ids=short)
def test_a_program_is_not_run_under_its_own_lock(dlock, tmp_path, tool, line, own):
    """It would wait for the run that holds it; no server is asked to find that out."""
    words = ("-u", f"postgresql://u@127.0.0.1:{free_port()}/x", "-O", "mode=advisory", "-O", f"derive={tool}", "-n", "-k", "k")
    result = dlock.run("run", *words, "--", *line.split(), events=False)
    said = "takes by itself the lock that -O derive= names, and would wait for this run for ever"
    if own:
        assert_one_line(result, 64, said)
    else:
        assert result.status != 64 and said not in result.stderr, result


def builtins_that_are_no_program(shell, words):
    """What the shell itself understands, and PATH has not."""
    known = subprocess.run([shell, "-c", words], capture_output=True, text=True, check=True).stdout.split()
    return [word for word in known if not any(os.access(os.path.join(p, word), os.X_OK) for p in os.get_exec_path())]


def test_a_builtin_of_the_shell_is_named_as_one(dlock, files, tmp_path):
    """All that bash has, and dash's; with a program of that name it is run."""
    words = builtins_that_are_no_program("bash", "compgen -bk; echo . :")
    assert {"cd", "export", "source", "ulimit", "if"} <= {*words}
    for word in words:
        result = dlock.run("run", *files.words, "-k", "k", "--", word, "/", events=False)
        status = 126 if word == "." else 127  # a directory of PATH
        assert_refused(result, tmp_path, status, f"'{word}'", "no lock", "a builtin of the shell, and no program: say -c")
    (tmp_path / "cd").write_text("#!/bin/sh\necho moved\n")
    (tmp_path / "cd").chmod(0o755)
    result = dlock.run("run", *files.words, "-k", "k", "cd", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert (result.status, result.stdout) == (0, "moved\n")


@pytest.mark.parametrize("words, output", [
    (["-k", "k", "--", "echo", "a"], "a\n"),
    (["-k", "k", "echo", "a"], "a\n"),
    (["k", "echo", "a"], "a\n"),
    (["k", "--", "echo", "a"], "a\n"),
    (["-n", "k", "echo", "a"], "a\n"),
    (["-kk", "echo", "a"], "a\n"),
    (["-nqkk", "echo", "a"], "a\n"),
    (["-nqvk", "k", "-E", "9", "echo", "a"], "a\n"),
    (["--key=k", "--", "echo", "a"], "a\n"),
    (["--key", "--", "printenv", "DLOCK_KEY"], None),
    (["--key=--", "printenv", "DLOCK_KEY"], "--\n"),
    (["--key==", "printenv", "DLOCK_KEY"], "=\n"),
    (["-k", "=", "printenv", "DLOCK_KEY"], "=\n"),
    (["-k", "=x", "printenv", "DLOCK_KEY"], "=x\n"),
    (["k", "-n", "--", "echo", "-n", "a"], "a"),
    (["k", "-n", "-w5"], None),
    (["k", "-w", "5", "--ttl=9s", "--", "printenv", "DLOCK_KEY"], "k\n"),
    (["-n", "k", "-q", "--", "echo", "--"], "--\n"),
    (["k", "-c", "echo $0", "--"], "/bin/sh\n"),
    (["-", "printenv", "DLOCK_KEY"], "-\n"),
    (["--", "-x", "printenv", "DLOCK_KEY"], None),
    (["-k", "k", "echo", "-n", "-k", "--key=x", "--help", "--"], "-k --key=x --help --"),
    (["-k", "k", "--", "echo", "--", "-q"], "-- -q\n"),
    (["-k", "k", "echo", "", " ", "*", "$HOME;", "a\nb", "%s"], "   * $HOME; a\nb %s\n"),
    (["-k", "k", "-c", "echo $((1+1)) \"$0\" $#"], "2 /bin/sh 0\n"),
    (["k", "-c", "x"], None),
    (["-c", "echo a; echo b", "k"], "a\nb\n"),
    (["-c", "echo 'x  y' | tr x z", "-k", "k"], "z  y\n"),
    (["--command=exit 0", "-k", "k", "--"], ""),
], ids=short)
def test_words_reach_the_command_as_they_are(dlock, files, words, output):
    result = dlock.run("run", *files.words, *words, events=False)
    assert (result.status, result.stdout) == ((64, "") if output is None else (0, output)), result


def test_bytes_that_are_no_text_reach_the_command_unchanged(files):
    odd = [b"\xff\xfe", b"\x80", b"a\xc3", bytes(range(1, 256))]
    line = [DLOCK, "run", *files.words, "-k", "k", "--", "printf", "%s\\0", *odd]
    assert subprocess.run(line, capture_output=True, check=True).stdout == b"\0".join(odd) + b"\0"


@pytest.mark.parametrize("words, answer", [
    (["x" * 131000], "1 131000"),
    (["x"] * 100_000, "100000 1"),
    (["x" * 100_000] * 15, "15 100000"),
], ids=short)
def test_as_many_arguments_as_the_kernel_takes(dlock, files, words, answer):
    result = dlock.run("run", *files.words, "-k", "k", "--", "sh", "-c", 'echo $# ${#1}', "sh", *words)
    assert (result.status, result.stdout) == (0, answer + "\n")


def test_arguments_that_fit_dlock_but_not_its_command(dlock, files):
    """DLOCK_* make the environment larger; the command is refused, the lock is free again."""
    env = {"DLOCK_URL": files.url}

    def line(n):
        full, rest = divmod(n, 100_000)
        return ["run", "k", "true", *["x" * 100_000] * full, "x" * rest]

    def fits(n):
        try:
            return subprocess.run([DLOCK, *line(n)], env={**dlock.env, **env}, capture_output=True,
                                  check=False).returncode
        except OSError:
            return None

    low, high = 0, 8_000_000  # bisect for the longest line that dlock itself can be started with
    while high - low > 16:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) is None else (middle, high)
    assert_one_line(dlock.run(*line(low), env=env, events=False), 126, "'true'", "Argument list too long", "released")
    assert dlock.run("run", *files.words, "-n", "-k", "k", "true").status == 0


# ---- flags, variables, both ----


def raw_options(dlock):
    result = dlock.run("help", "--raw")
    assert result.status == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    return {name: row for name, *row in rows if "run" in row[3].split(",")}


def test_these_tests_know_every_option(dlock):
    rows = raw_options(dlock)
    assert sorted(rows) == sorted(OPTIONS)
    assert sorted(name for name, row in rows.items() if row[1] == "-") == sorted(FLAGS)


def test_every_option_has_its_variable(dlock):
    rows = raw_options(dlock)
    assert {name: row[2] for name, row in rows.items()} == {name: variable(name) for name in rows}
    letters = [row[0] for row in rows.values() if row[0] != "-"]
    assert len(letters) == len(set(letters)) and "h" not in letters


@pytest.mark.parametrize("option", [o for o, (_, _, good) in OPTIONS.items() if good and o != "command"])
def test_a_variable_does_what_its_flag_does(dlock, files, option):
    env = {variable(option): OPTIONS[option][2]}
    words = ["echo", "ran"] if option == "key" else ["-k", "k", "echo", "ran"]
    result = dlock.run("run", *files.words, *words, env=env, events=False)
    assert (result.status, result.stdout) == (0, "ran\n"), result


@pytest.mark.parametrize("option", [o for o, (_, _, good) in OPTIONS.items() if good and o != "command"])
def test_a_flag_beats_its_variable(dlock, files, option):
    bad, _, good = OPTIONS[option]
    key = [] if option == "key" else ["-k", "k"]
    place = [] if option == "backend" else files.words
    period = ["--once-per", "day"] if option in ("at-offset", "no-retry") else []
    env = {variable(option): bad or "x", "XDG_RUNTIME_DIR": str(files.directory.parent)}
    result = dlock.run("run", *place, *period, *flag(option, good), *key, "echo", "ran", env=env, events=False)
    assert (result.status, result.stdout) == (0, "ran\n"), result


@pytest.mark.parametrize("quiet", [False, True])
def test_an_unknown_variable_is_named_but_not_fatal(dlock, files, quiet):
    env = {"DLOCK_WIAT": "secret", "DLOCK_X\x1b[2J": "1", "DLOCK_TOKENS": "{}", "DLOCK_NONE": "", "DLOCKS": "1"}
    result = dlock.run("run", *files.words, *["-q"] * quiet, "-k", "k", "echo", "ran", env=env, events=False)
    assert (result.status, result.stdout) == (0, "ran\n")
    if quiet:
        assert result.stderr == ""
    else:
        assert result.stderr.count("\n") == 1 and result.stderr.startswith("dlock: ")
        assert "DLOCK_WIAT (did you mean DLOCK_WAIT?)" in result.stderr and "DLOCK_X\\x1B[2J" in result.stderr
        assert "secret" not in result.stderr and "TOKENS" not in result.stderr and "NONE" not in result.stderr


def test_a_nested_run_finds_no_unknown_variable(dlock, files):
    result = dlock.run(*nested(files, "k", [*files.words, "-n", "-k", "l", "true"]), events=False)
    assert (result.status, result.stderr) == (0, "")


@pytest.mark.parametrize("env, words, status, output", [
    ({"DLOCK_COMMAND": "echo variable"}, ["-k", "k"], 0, "variable\n"),
    ({"DLOCK_COMMAND": "echo variable"}, ["-k", "k", "-c", "echo flag"], 0, "flag\n"),
    ({"DLOCK_KEY": "v"}, ["printenv", "DLOCK_KEY"], 0, "v\n"),
    ({"DLOCK_KEY": "v"}, ["-k", "f", "printenv", "DLOCK_KEY"], 0, "f\n"),
    ({"DLOCK_NONBLOCK": "yes", "DLOCK_WAIT": "1h"}, ["-n", "-k", "k", "echo", "a"], 0, "a\n"),
    ({"DLOCK_NONBLOCK": "maybe"}, ["-w", "1h", "-k", "k", "echo", "a"], 0, "a\n"),
    ({"DLOCK_WAIT": "soon"}, ["-n", "-k", "k", "echo", "a"], 0, "a\n"),
    ({"DLOCK_NONBLOCK": "yes", "DLOCK_WAIT": "1h"}, ["-k", "k", "echo", "a"], 64, ""),
    ({"DLOCK_NONBLOCK": "no", "DLOCK_WAIT": "1h"}, ["-k", "k", "echo", "a"], 0, "a\n"),
    ({"DLOCK_SHARED": "1", "DLOCK_EXCLUSIVE": "1"}, ["-k", "k", "echo", "a"], 64, ""),
    ({"DLOCK_SHARED": "1", "DLOCK_LIMIT": "3"}, ["-k", "k", "echo", "a"], 64, ""),
    ({"DLOCK_SHARED": "0", "DLOCK_EXCLUSIVE": "1"}, ["-k", "k", "echo", "a"], 0, "a\n"),
    ({"DLOCK_SHARED": "1", "DLOCK_LIMIT": "x"}, ["-x", "-k", "k", "echo", "a"], 0, "a\n"),
    ({"DLOCK_TTL": "5s"}, ["--grace", "4s", "-k", "k", "echo", "a"], 64, ""),
    ({"DLOCK_TTL": "5s"}, ["--grace", "4s", "-t", "30s", "-k", "k", "echo", "a"], 0, "a\n"),
])
def test_flags_and_variables_together(dlock, files, env, words, status, output):
    result = dlock.run("run", *files.words, *words, env=env, events=False)
    assert (result.status, result.stdout) == (status, output), result


def where_locked(dlock, files, words, env):
    """The directories below files.directory in which a run leaves its lock."""
    result = dlock.run("run", *words, "-k", "k", "true", env=env, events=False)
    assert result.status == 0, result
    return [d for d in ("a", "b", "dlock") if (files.directory / d / "k.lock").exists()]


@pytest.mark.parametrize("words, variables, place", [
    (["-u", "A"], {}, ["a"]),
    ([], {"DLOCK_URL": "A"}, ["a"]),
    ([], {"DLOCK_URL": "A", "DLOCK_BACKEND": "file"}, ["a"]),
    ([], {"DLOCK_URL": "A", "DLOCK_FILE_URL": "B"}, ["a"]),
    ([], {"DLOCK_BACKEND": "file", "DLOCK_FILE_URL": "A"}, ["a"]),
    (["-b", "file"], {"DLOCK_FILE_URL": "A"}, ["a"]),
    (["-b", "file"], {"DLOCK_URL": "redis://nowhere", "DLOCK_FILE_URL": "A"}, ["a"]),
    (["-u", "A"], {"DLOCK_BACKEND": "redis", "DLOCK_URL": "redis://nowhere", "DLOCK_FILE_URL": "B"}, ["a"]),
    (["-b", "file", "-u", "A"], {"DLOCK_URL": "B"}, ["a"]),
    ([], {"DLOCK_URL": "A", "DLOCK_FILE_URL": "", "DLOCK_BACKEND": ""}, ["a"]),
])
def test_where_locks_are_kept(dlock, files, words, variables, place):
    urls = {}
    for letter in "AB":
        (files.directory / letter.lower()).mkdir()
        urls[letter] = f"{files.url}/{letter.lower()}"
    words = [urls.get(w, w) for w in words]
    assert where_locked(dlock, files, words, {k: urls.get(v, v) for k, v in variables.items()}) == place


def test_an_empty_variable_counts_as_unset(dlock, files):
    env = {variable(option): "" for option in OPTIONS} | {"DLOCK_FILE_URL": "", "DLOCK_KEEPER": ""}
    result = dlock.run("run", *files.words, "-k", "k", "echo", "ran", env=env, events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "ran\n", "")


def test_a_percent_in_a_directory_is_decoded(dlock, tmp_path):
    directory = tmp_path / "a b%?"
    directory.mkdir()
    assert dlock.run("run", "-u", f"file://{tmp_path}/a%20b%25%3f", "-k", "k", "true").status == 0
    assert entries_below(directory) == ["k.lock"]
    assert dlock.run("run", "-u", f"file://localhost{tmp_path}/a%20b%25%3F", "-k", "k", "true").status == 0


@pytest.mark.parametrize("before", ["file:", "file://", "file://localhost"])
def test_a_directory_may_be_written_as_it_is(dlock, tmp_path, before):
    directory = tmp_path / "a#b?c=d@e"
    directory.mkdir()
    assert dlock.run("run", "-u", f"{before}{directory}", "-k", "k", "true").status == 0
    assert entries_below(directory) == ["k.lock"]


# ---- a dlock inside a dlock ----


def nested(files, outer, inner, env=""):
    return ["run", *files.words, "-k", outer, "--", "sh", "-c",
            f'echo $DLOCK_TOKEN; {env} exec "$@"', "sh", DLOCK, "run", *inner]


def test_a_nested_run_on_the_same_key_joins(dlock, files):
    result = dlock.run(*nested(files, "k", [*files.words, "-n", "-k", "k", "printenv", "DLOCK_TOKEN"]), events=False)
    assert (result.status, result.stderr) == (0, "")
    outer, inner = result.stdout.split()
    assert outer == inner


def test_a_nested_run_on_another_key_takes_another_lock(dlock, files):
    inner = [*files.words, "-n", "-k", "l", "sh", "-c", "echo $DLOCK_KEY $DLOCK_TOKEN"]
    result = dlock.run(*nested(files, "k", inner), events=False)
    assert result.status == 0, result
    outer, key, token = result.stdout.split()
    assert key == "l" and outer != token


def test_the_enclosing_key_is_no_default_for_the_nested_run(dlock, files):
    result = dlock.run(*nested(files, "k", [*files.words, "true"]), events=False)
    assert result.status == 64 and "no command after the key 'true'" in result.stderr, result


def test_a_nested_run_with_the_same_variables_needs_no_options(dlock, files):
    env = {"DLOCK_URL": files.url}
    line = ["run", "-k", "k", "--", DLOCK, "run", "-n", "-k", "l", "--", DLOCK, "run", "-n", "-k", "k", "echo", "in"]
    result = dlock.run(*line, env=env, events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "in\n", "")
    assert entries_below(files.directory) == ["k.lock", "l.lock"]


def test_no_other_user_can_read_the_owner_off_the_list_of_sockets(dlock, files):
    """Whoever knows it may release the lock."""
    script = "cat /proc/net/unix; echo $DLOCK_OWNER $DLOCK_KEEPER"
    *sockets, last = dlock.run("run", *files.words, "-k", "k", "--", "sh", "-c", script, events=False).stdout.splitlines()
    owner, keeper = last.split()
    assert any(s.endswith(" " + keeper.split("/")[0]) for s in sockets)
    assert not any(owner in s for s in sockets)


def test_a_forgotten_keeper_does_no_harm(dlock, files):
    env = {"DLOCK_KEEPER": "@dlock-nobody-listens-here nonsense @ @@ " + "@" + "x" * 300}
    result = dlock.run("run", *files.words, "-k", "k", "echo", "ran", env=env, events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "ran\n", "")


# ---- help and version ----

HELPS = [["help"], ["--help"], ["-h"], ["help", "run"], ["run", "--help"], ["run", "-h"], ["run", "-nh", "x"],
         ["help", "help"], ["help", "version"], ["help", "--help"], ["help", "--raw"], ["version"], ["--version"], ["-V"]]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_is_output_not_an_error(dlock, words):
    result = dlock.run(*words, events=False)
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.endswith("\n") and len(result.stdout.splitlines()) > 1
    for line in result.stdout.splitlines():
        assert (len(line) <= 80 or "--raw" in words) and line == line.rstrip(), line


def test_version_is_one_object_too(dlock):
    """Nothing that is configured, well or badly, is asked."""
    env = {"DLOCK_CONFIG": "/nonexistent", "DLOCK_URL": "nonsense", "DLOCK_UNKNOWN": "1"}
    said = [dlock.run(*words, events=False, env=env) for words in (["version", "-J"], ["--version", "--json"], ["-V", "-J"])]
    assert {(s.status, s.stdout, s.stderr) for s in said} == {(0, said[0].stdout, "")}
    told, lines = json.loads(said[0].stdout), dlock.run("version").stdout.splitlines()
    assert lines[0] == f"dlock {told['version']}"
    assert told["backends"] == [line.split()[0] for line in lines[1:] if line[2] != " " and "not compiled in" not in line]
    needed = {"pg": "libpq.so.5", "mysql": "libmariadb.so.3"}
    files = {library["file"]: library["found"] for library in told["libraries"]}
    assert {backend for backend, file in needed.items() if file in files} == {*needed} & {*told["backends"]}
    listed = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert files == {file: f"\t{file} (" in listed for file in files}


def test_help_names_every_subcommand_and_option(dlock):
    overview = dlock.run("help").stdout
    for name in ("run", "help", "version"):
        assert f"dlock {name}" in overview
    text = dlock.run("help", "run").stdout
    for name, (letter, arg, *_) in raw_options(dlock).items():
        assert f"--{name}" + ("" if arg == "-" else f" {arg}") in text
        assert letter == "-" or f"-{letter}, --{name}" in text


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_output_that_cannot_be_written_is_an_error(dlock, words):
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = dlock.run(*words, stdout=full, events=False)
    assert_one_line(result, 71, "standard output")


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_output_to_a_closed_descriptor_is_an_error_or_silence(words):
    """Never an "output" into some file that happened to get the number."""
    result = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", DLOCK, *words], stderr=subprocess.PIPE, check=False)
    assert result.returncode in (0, 71)


# ---- an odd world ----


def execve(path, argv, env, **options):
    """execve(2) with exactly these arrays, which no language of comfort would pass."""

    def array(strings):
        return (ctypes.c_char_p * (len(strings) + 1))(*strings, None)

    def replace():
        ctypes.CDLL(None).execve(os.fsencode(path), array(argv), array(env))

    return subprocess.run(["true"], preexec_fn=replace, capture_output=True, check=False, timeout=60, **options)


def test_no_arguments_at_all():
    result = execve(DLOCK, [], [b"PATH=/usr/bin:/bin"])
    assert result.returncode == 64
    assert result.stdout == b"" and result.stderr.startswith(b"dlock: ") and result.stderr.count(b"\n") == 1


def test_the_environment_reaches_the_command_as_it_is(files):
    odd = [b"PATH=/usr/bin:/bin", b"NOEQUALS", b"", b"=x", b"A=1", b"A=2", b"EMPTY=", b"B=\xff\n", b"DLOCK_KEY"]
    words = ["run", *files.words, "-k", "k", "cat", "/proc/self/environ"]
    result = execve(DLOCK, [os.fsencode(w) for w in ["dlock", *words]], odd)
    assert result.returncode == 0, result
    assert result.stderr == b""
    found = result.stdout.split(b"\0")
    assert found[:len(odd)] == odd
    added = [e.split(b"=")[0] for e in found[len(odd):] if e]
    assert sorted(added) == [b"DLOCK_BACKEND", b"DLOCK_KEEPER", b"DLOCK_KEY", b"DLOCK_OWNER", b"DLOCK_TOKEN"]


def test_ten_thousand_variables(dlock, files):
    env = {f"V{i}": "x" for i in range(10_000)}
    result = dlock.run("run", *files.words, "-k", "k", "--", "sh", "-c", "env | grep -c ^V", env=env)
    assert (result.status, result.stdout) == (0, "10000\n")


@pytest.mark.parametrize("env, words, status, output", [
    ({}, ["echo", "a"], 0, "a\n"),
    ({"PATH": ""}, ["here"], 0, "here\n"),
    ({"PATH": "."}, ["here"], 0, "here\n"),
    ({"PATH": "/nonexistent:"}, ["here"], 0, "here\n"),
    ({"PATH": "/nonexistent:/etc/passwd:.:/bin"}, ["here"], 0, "here\n"),
    ({"PATH": "/nonexistent"}, ["here"], 127, ""),
    ({"PATH": "/nonexistent"}, ["/bin/echo", "a"], 0, "a\n"),
    ({"PATH": "/" + "x" * 5000 + ":/bin"}, ["echo", "a"], 0, "a\n"),
    ({"PATH": "dark:/bin"}, ["echo", "a"], 0, "a\n"),
    ({"PATH": "dark"}, ["here"], 126, ""),
    ({"HOME": "", "USER": "", "SHELL": "", "TERM": ""}, ["/bin/echo", "a"], 0, "a\n"),
], ids=str)
def test_the_command_is_looked_for_in_path(files, tmp_path, env, words, status, output):
    for directory, mode in ((tmp_path, 0o755), (tmp_path / "dark", 0o644)):
        directory.mkdir(exist_ok=True)
        (directory / "here").write_text("#!/bin/sh\necho here\n")
        (directory / "here").chmod(mode)
    result = subprocess.run([DLOCK, "run", *files.words, "-k", "k", *words], env=env, cwd=tmp_path,
                            capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (status, output), result


def test_a_directory_that_was_deleted(dlock, files, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    result = subprocess.run(["sh", "-c", line, "sh", gone, DLOCK, "run", *files.words, "-k", "k", "echo", "ran"],
                            env=dlock.env, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ran\n", "")


NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
OTHER_GROUPS = sorted({*os.getgroups()} - {os.getegid()})


@pytest.mark.skipif(not NOBODY and not OTHER_GROUPS, reason="only root, or who is in several groups, can make a program with the rights of others")
def test_a_set_uid_or_set_gid_dlock_refuses(public_dlock, files, mark, tmp_path):
    if not NOBODY:
        os.chown(public_dlock, -1, OTHER_GROUPS[0])
    os.chmod(public_dlock, 0o4755 if NOBODY else 0o2755)
    result = subprocess.run([public_dlock, "run", *files.words, "-k", "k", *mark], **NOBODY, capture_output=True,
                            text=True, check=False)
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr.startswith("dlock: ") and "set-uid" in result.stderr
    assert not (tmp_path / RAN).exists()


# ---- what dlock says ----


def test_nothing_is_said_when_all_is_well(dlock, place):
    result = dlock.run("run", *place.words, "-k", place.key(), "true", events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("words, status", [
    (["-n"], 75), (["-w", "0"], 75), (["-w", "100ms"], 75), (["-n", "-E", "0"], 0), (["-w", "50ms", "-E", "255"], 255),
])
def test_a_busy_lock_is_reported_unless_quiet(dlock, place, words, status, tmp_path, mark):
    held = dlock.hold(place, place.key(), "--who", "alice", "--why", "release 7")
    loud = dlock.run("run", *place.words, *words, "-k", place.key(), *mark, events=False)
    assert_one_line(loud, status, place.key(), "alice", "release 7", "nothing was run")
    quiet = dlock.run("run", *place.words, "-q", *words, "-k", place.key(), *mark, events=False)
    assert (quiet.status, quiet.stdout, quiet.stderr) == (status, "", "")
    assert not (tmp_path / RAN).exists()
    assert held.finish().status == 0


def test_the_busy_line_says_where_and_whose(dlock, files):
    """Server or directory, host of the pid also with --who, a key with blanks within quotes."""
    held = dlock.hold(files, "a key", "--who", "alice", "--why", 'the "why"')
    said = dlock.run("run", *files.words, "-n", "-k", "a key", "true", events=False).stderr
    assert re.fullmatch(rf"dlock: 'a key' \(directory {re.escape(str(files.directory))}\) is held by alice "
                        rf"\(pid {held.pid} on {re.escape(socket.gethostname())}, running cat\) "
                        r'"the \\"why\\"" for \S+; not waiting \(-n\), nothing was run\n', said), said
    assert held.finish().status == 0


HOSTILE = {
    "escape": "x\x1b[2J\x1b]0;t\x07y",
    "bidi": "x\u202ey\u2066z",
    "newline": "x\ndlock: got it",
    "invisible": "x\u200b\u3164\ufeff\U000e0041y",
    "long": "\u754c" * 200,
    "imitation": 'root (pid 1 on prod) for 3s; y',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("member", ["who", "host", "command", "why"])
def test_what_others_have_stored_is_harmless_in_the_busy_line(dlock, redis_server, request, member, text):
    place = RedisPlace(request)
    with redis_server.client() as c:
        held = dlock.hold(place, place.key())
        stored, = [(k, f) for k in c.scan_iter(f"dlock:*{place.prefix.rstrip(':')}*") if c.type(k) == "hash"
                   for f, v in c.hgetall(k).items() if '"who"' in v]
        head, record = re.fullmatch("([^{]*)({.*})", c.hget(*stored)).groups()
        c.hset(*stored, head + json.dumps({**json.loads(record), member: text}, ensure_ascii=False))
        result = dlock.run("run", *place.words, "-n", "-k", place.key(), "true", events=False)
    assert_one_line(result, 75, place.key(), "nothing was run")
    assert len(result.stderr) < 1500
    if text == HOSTILE["imitation"]:
        assert {"why": f'"{text}"'}.get(member, f"'{text}'") in result.stderr
    assert held.finish().status == 0


def test_a_variable_is_no_command(dlock, files):
    result = dlock.run("run", *files.words, "-k", "k", "A=1", "true", events=False)
    assert_one_line(result, 127, "'A=1'", "did you mean env?")


@pytest.mark.parametrize("script, words, status, said", [
    ("acquire=busy", ["-n", "true"], 75, None),
    ("acquire=busy", ["-w", "1", "true"], 75, None),
    ("acquire=away", ["-n", "true"], 69, "cannot reach"),
    ("acquire=denied", ["true"], 77, "says denied"),
    ("acquire=protocol", ["true"], 76, "says protocol"),
    ("acquire=config", ["true"], 78, "says unsafe"),
    ("acquire=system", ["true"], 71, "says system"),
    ("acquire=usage", ["true"], 64, "says usage"),
    ("open=config", ["true"], 78, "refused"),
    ("renew=lost", ["-t", "3s", "sleep", "9"], 79, "lost"),
    ("acquire=ok", ["--max-run", "100ms", "sleep", "9"], 124, "--max-run"),
    ("release=again", ["true"], 0, None),
    ("release=lost", ["true"], 79, "lost"),
    ("acquire=ok", ["sh", "-c", "exit 7"], 7, None),
    ("acquire=ok", ["sh", "-c", "kill -TERM $$"], -15, None),
    ("acquire=ok", ["dlock-no-such-command"], 127, "No such file"),
    ("acquire=ok", ["/tmp"], 126, "directory"),
], ids=str)
def test_quiet_hides_no_verdict(dlock, script, words, status, said):
    """Of the lines that go with a verdict, -q leaves out the busy lock and the release that was not confirmed."""
    result = dlock.run("run", "-b", "fake", "-O", f"script={script}", "-q", "-k", "a b", *words, events=False, program=DLOCK_TEST,
                       env={"DLOCK_STRANGE": "1"})
    if said:
        assert_one_line(result, status, said, "'a b'")
    else:
        assert (result.status, result.stderr) == (status, "")


def test_quiet_is_not_silent_about_errors(dlock, files):
    result = dlock.run("run", *files.words, "-q", "-k", "k", "dlock-no-such-command", events=False)
    assert_one_line(result, 127, "dlock-no-such-command")


def test_verbose_tells_every_call(dlock, place):
    result = dlock.run("run", *place.words, "-v", "-k", place.key(), "echo", "out", events=False)
    assert (result.status, result.stdout) == (0, "out\n")
    lines = result.stderr.splitlines()
    assert all(line.startswith("dlock: ") for line in lines), result
    for call in ("acquire", "release"):
        assert any(call in line for line in lines), result


def test_events_tell_the_whole_story(dlock, place):
    key = place.key('"odd\\ \u202e')
    holder = dlock.hold(place, key, "--who", "alice")
    waiter = dlock.contend(place, key, command=["sh", "-c", "exit 7"]).queued()
    assert holder.finish().status == 0
    assert waiter.wait().status == 7
    for who, names, status in ((holder, ["acquired", "started", "verdict"], 0),
                               (waiter, ["waiting", "acquired", "started", "verdict"], 7)):
        events = who.events()  # each line was read as JSON
        told = [e["event"] for e in events]
        assert [n for i, n in enumerate(told) if told[:i].count(n) == 0] == names
        assert all(e["key"] == key and e["time"].endswith("Z") for e in events)
        assert events[-1]["status"] == status and events[-1]["verdict"] == "ended"
    assert '"alice"' in waiter.event("waiting")["holder"]
    assert waiter.token > holder.token


def test_events_tell_of_a_busy_lock(dlock, place):
    holder = dlock.hold(place, place.key())
    busy = dlock.start("run", *place.words, "-n", "-k", place.key(), "true")
    result = busy.wait()
    verdict = busy.events("verdict")
    assert [(e["verdict"], e["status"]) for e in verdict] == [("busy", 75)]
    assert "dlock: " + verdict[0]["message"] + "\n" == result.stderr
    assert holder.finish().status == 0


def test_the_status_descriptor_reaches_nobody_by_surprise(dlock, files):
    """It was inherited like any other, so the command has it too: that is what inheriting means."""
    read, write = os.pipe()
    with os.fdopen(read) as events:
        popen = subprocess.Popen([DLOCK, "run", *files.words, f"--status-fd={write}", "-k", "k", "--", "sh", "-c",
                                  f"echo mine >/proc/self/fd/{write}"], pass_fds=[write], env=dlock.env)
        os.close(write)
        text = events.read()
    assert popen.wait() == 0
    assert "mine\n" in text.splitlines(keepends=True) and '"verdict"' in text


# ---- secrets ----

SECRET = "s3cr3t-Pa55"


@pytest.fixture
def guarded_redis(make_redis):
    """A server that wants a password."""
    return make_redis("--requirepass", SECRET)


def command_line(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("options", [["-u", "{}"], ["-u{}"], ["--url={}"], ["--url", "{}"], ["-vu", "{}"]], ids=str)
def test_a_password_is_not_shown_to_others(dlock, guarded_redis, options):
    url = f"redis://:{SECRET}@127.0.0.1:{guarded_redis.port}"
    holder = dlock.start("run", *[o.format(url) for o in options], "-k", "k", "--who", "x", "cat",
                         stdin=subprocess.PIPE).held()
    shown = {pid: command_line(pid) for pid in holder.tree()}
    assert len(shown) == 3 and stat_of(holder.command)[0] == "cat"
    assert b"redis://" in shown[holder.pid], "the rest of the line is still there"
    assert all(SECRET.encode() not in line for line in shown.values())
    result = holder.finish()
    assert result.status == 0
    assert SECRET not in result.stderr + result.stdout + str(holder.events())


@pytest.mark.parametrize("words", [["-t", "1s"], ["--nope"], ["-b", "file"], ["-u", "redis://h"]], ids=str)
def test_nor_while_it_says_what_is_wrong(dlock, words):
    """Whoever reads that may be slow."""
    read, write = os.pipe2(os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    popen = subprocess.Popen([DLOCK, "run", "-k", "k", "-u", f"redis://:{SECRET}@h", *words, "true"], stderr=write, env=dlock.env)
    try:
        wait_for(lambda: b"xxx@h" in command_line(popen.pid))
        assert SECRET.encode() not in command_line(popen.pid) and popen.poll() is None
    finally:
        os.close(read)
        os.close(write)
        popen.wait()


@pytest.mark.parametrize("line", [
    ["run", "-u", "redis://:{}@127.0.0.1:{}x", "-k", "k", "true"],
    ["run", "-u", "redis://u:{}@127.0.0.1:{}", "-b", "file", "-k", "k", "true"],
    ["run", "-u", "redos://:{}@127.0.0.1:{}", "-k", "k", "true"],
    ["run", "-u", "redis://u:{}%zz@127.0.0.1:{}", "-k", "k", "true"],
    ["run", "-u", "redis://u:{}@127.0.0.1:{}", "-u", "redis://u:{}@h", "-k", "k", "true"],
    ["run", "--uri=redis://:{}@127.0.0.1:{}", "-k", "k", "true"],
    ["run", "-Uredis://:{}@127.0.0.1:{}", "-k", "k", "true"],
    ["run", "-v", "-u", "redis://:wrong{}@127.0.0.1:{}", "-k", "k", "true"],
    ["run", "-v", "-u", "redis://nobody:{}@127.0.0.1:{}", "-k", "k", "true"],
    # where it was not meant for, or cannot be
    ["redis://:{}@127.0.0.1:{}"],
    ["run", "k", "--url=redis://:{}@127.0.0.1:{}", "true"],
    ["run", "k", "-uredis://:{}@127.0.0.1:{}", "true"],
    ["run", "-b", "file", "-k", "k", "redis://:{}@127.0.0.1:{}", "true"],
    ["run", "-b", "file", "redis://:{}@127.0.0.1:{}"],
    ["run", "-b", "file", "-k", "k", "--quiet=redis://:{}@127.0.0.1:{}", "true"],
    ["run", "-k", "k", "-c", "true", "redis://:{}@127.0.0.1:{}"],
    ["freeze", "-b", "file", "redis://:{}@127.0.0.1:{}/*"],
    ["release", "x", "redis://:{}@127.0.0.1:{}"],
    ["run", "-b", "redis", "-O", "redis://:{}@127.0.0.1:{}/0?protocol=3", "-k", "k", "true"],
])
def test_a_password_is_in_no_message(dlock, guarded_redis, line):
    result = dlock.run(*[w.format(SECRET, guarded_redis.port) for w in line], events=False)
    assert result.status in (64, 77, 127), result
    assert SECRET not in result.stderr + result.stdout, result


def test_a_wrong_password_is_denied(refuse, guarded_redis):
    address = f"127.0.0.1:{guarded_redis.port}"
    for url in (f"redis://:wrong@{address}", f"redis://{address}", f"redis://nobody:{SECRET}@{address}"):
        refuse(["run", "-u", url, "-k", "k", MARK], 77, [address])


def test_a_password_may_have_any_characters(make_redis, dlock):
    password = "p@ss:w/rd%&?#[]"
    server = make_redis("--requirepass", password)
    encoded = "".join(f"%{b:02x}" for b in password.encode())
    for login in (f":{encoded}", f"default:{encoded}"):
        assert dlock.run("run", "-u", f"redis://{login}@127.0.0.1:{server.port}", "-k", "k", "true").status == 0


def test_the_record_names_the_command_but_not_its_arguments(dlock, place):
    holder = dlock.hold(place, place.key(), command=["sh", "-c", "cat # " + SECRET])
    result = dlock.run("run", *place.words, "-n", "-k", place.key(), "true", events=False)
    assert "sh" in result.stderr and SECRET not in result.stderr
    holder.popen.stdin.close()
    wait_for(lambda: not is_alive(holder.pid))
    assert holder.wait().status == 0


# ---- jobs ----


@pytest.mark.parametrize("words, said", [
    (("--once", "a", "--once-per", "day"), "--once and --once-per contradict each other"),
    (("--at-offset", "1h"), "--at-offset needs --once-per"),
    (("--once-per", "hour", "--at-offset", "1h"), "is not less than the period"),
    (("--once-per", "day", "--at-offset", "24h"), "--at-offset 1d00h is not less than the period, 1d00h"),
    (("--once-per", "month"), "day, hour or week is allowed"),
], ids=" ".join)
def test_a_period_that_makes_no_sense(dlock, files, words, said):
    done = dlock.run("run", *files.words, *words, "-k", "job", "--", "true")
    assert done.status == 64 and said in done.stderr, done


@pytest.mark.parametrize("words, said", [
    (("ls", "--jobs", "--watch"), "--jobs and --watch contradict each other"),
    (("status", "--done-within", "1h", "--watch", "-k", "job"), "--done-within and --watch contradict each other"),
    (("status", "--done-within", "0", "-k", "job"), "from 1ms to 400d"),
    (("ls", "--jobs", "-o", "held"), "there is no column 'held'"),
    (("ls", "-o", "took"), "there is no column 'took'"),
    (("ls", "--jobs", "-J", "-o", "key"), "contradict"),
    (("forget", "-y"), "no key"),
    (("forget", "-y", "job*"), "forget has no patterns"),
    (("forget", "-y", "job", "a", "b"), "one word too many"),
    (("forget", "-y", "job", ""), "it is empty"),
    (("forget", "-y", "job", "x" * 201), "1 to 200 bytes"),
    (("forget", "-y", "job", "a\nb"), "control characters"),
    (("forget", "-y", "-k", "a", "-k", "b"), "one key at a time"),
], ids=lambda w: " ".join(w)[:40].replace("\n", " ") if isinstance(w, tuple) else "")
def test_what_is_asked_of_jobs_and_makes_no_sense(dlock, files, words, said):
    done = dlock.run(words[0], *files.words, *words[1:])
    assert done.status == 64 and said in done.stderr and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("line", ["-c", "-cecho", "--command", "--command=echo"])
def test_a_line_of_shell_behind_its_key_as_flock_has_it(dlock, files, line):
    """flock FILE -c LINE: a -- and a command behind that, as other options want it, would not help."""
    done = dlock.run("run", *files.words, "job", line, "echo")
    assert (done.status, done.stdout) == (64, "") and "(dlock run -k job -c ...)" in done.stderr, done


@pytest.mark.parametrize("cmd, status", [(("status",), 1), (("wait", "-n"), 0), (("break", "-y"), 1)])
def test_a_word_like_a_pattern_is_a_key_and_its_being_free_means_little(dlock, files, cmd, status):
    """Somebody on call asks for 'deploy/*', and is not to believe that no deployment runs."""
    done = dlock.run(*cmd, *files.words, "job*")
    assert done.status == status and f"dlock: key 'job*': {cmd[0]} has no patterns" in done.stderr, done
    assert "patterns" not in dlock.run(*cmd, *files.words, "-k", "job*").stderr + dlock.run(*cmd, *files.words, "job").stderr
    holder = dlock.start("run", *files.words, "-k", "job*", "--", "sleep", "1000")
    holder.event("started")
    assert "patterns" not in dlock.run(*cmd, *files.words, "job*").stderr


GITHUB = {"GITHUB_ACTOR": "bob", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "shop/web", "GITHUB_RUN_ID": "4711"}


@pytest.mark.parametrize("env, who, why", [
    ({}, None, None),
    ({"SUDO_USER": "alice"}, "alice", None),
    (GITHUB, "bob", "https://github.com/shop/web/actions/runs/4711"),
    ({**GITHUB, "GITHUB_RUN_ID": "", "SUDO_USER": "alice", "BUILD_URL": "http://ci/9"}, "bob", "http://ci/9"),
    ({"CI_JOB_URL": "https://gitlab/j/7", "GITLAB_USER_LOGIN": "eve", "JOB_NAME": "x"}, "eve", "https://gitlab/j/7"),
    ({"BUILD_URL": "http://ci/9", "JOB_NAME": "nightly"}, None, "http://ci/9"),
    ({"JOB_NAME": "nightly"}, None, "nightly"),
    ({"BUILD_URL": "http://u:s3cret@ci/9"}, None, "http://ci/9"),
    ({"BUILD_URL": "s3cret@ci/9@2"}, None, "ci/9@2"),
    ({"BUILD_URL": "//u:s3cret@ci/9"}, None, "//ci/9"),
    ({"BUILD_URL": "u:s3cret@ci/to/https://x"}, None, "ci/to/https://x"),
    ({"BUILD_URL": "view:https://s3cret@ci/9"}, None, "view:https://ci/9"),
    ({"CI_JOB_URL": "https://s3cret@ci/j/7@2?private_token=s3cret#s3cret"}, None, "https://ci/j/7@2"),
    ({"BUILD_URL": "https://" + "s3cret" * 200 + "@ci/9"}, None, "https://"),
    ({**GITHUB, "GITHUB_SERVER_URL": "https://s3cret@git"}, "bob", "https://git/shop/web/actions/runs/4711"),
    ({**GITHUB, "GITHUB_SERVER_URL": "s3cret@git"}, "bob", "git/shop/web/actions/runs/4711"),
    ({"JOB_NAME": "is it #7? ask a@b"}, None, "is it #7? ask a@b"),
    ({"SUDO_USER": "a\x1b[2Jb", "JOB_NAME": "x" * 5000}, "a\\x1B[2Jb", "x" * 200 + "..."),
    ({"JOB_NAME": "\udcff\n\u202e"}, None, "\\xFF\\x0A\\u202E"),
    ({"INVOCATION_ID": "1"}, None, None),  # no unit of systemd's
])
def test_the_environment_says_who_and_why(dlock, files, env, who, why):
    """Where it says more than user@host; what is told by an option or a variable of dlock's counts more."""
    words = [*files.words, "-k", "k", "--", DLOCK, "status", *files.words, "-k", "k", "-J"]
    env = {k: os.fsencode(v) for k, v in env.items()}
    said = json.loads(dlock.run("run", *words, env=env).stdout)["holders"][0]
    host = os.uname().nodename
    assert said["who"] == f"{who}@{host}" if who else said["who"].endswith(f"@{host}")
    assert said["why"] == why
    said = json.loads(dlock.run("run", "--who", "carol", "--why", "hotfix", *words, env=env).stdout)["holders"][0]
    assert (said["who"], said["why"]) == ("carol", "hotfix")


@pytest.mark.parametrize("said, told", [
    ("x" * 200, "x" * 200),
    ("x" * 201, "x" * 200 + "..."),
    ("x" + "\u00e9" * 100, "x" + "\u00e9" * 99 + "..."),
    ("y" * 130000, "y" * 200 + "..."),
    ("Merge branch 'a'\n\n\tinto b\r\n", "Merge branch 'a' into b"),
    ("x" * 200 + "\n", "x" * 200),
    ("a\x1b[2Jb\x7f", "a [2Jb "),
    ("caf\udce9 \u202e", "caf\\xE9 \u202e"),
    ("see https://u:" + "s3cret" * 40 + "@ci/7", "see https://u:" + "x" * 186 + "..."),
    ("\n", None),
], ids=short)
@pytest.mark.parametrize("by", ["option", "variable", "file"])
def test_texts_for_people_are_cut_and_never_refused(dlock, files, tmp_path, said, told, by):
    """Those of holders, of freezes and of breaks, wherever they are said."""
    if by == "file" and (len(said) > 8000 or set("\n\x1b\x7f") & set(said)):
        return  # a file with such a line is no text
    (tmp_path / "conf").write_bytes(os.fsencode(f"who = {said}\nwhy = {said}\n"))
    words, env = {"option": (["--who", said, "--why", said], {}), "file": (["--config", tmp_path / "conf"], {}),
                  "variable": ([], {"DLOCK_WHO": said, "DLOCK_WHY": said})}[by]

    def seen():
        found = json.loads(dlock.run("status", *files.words, "-k", "k", "-J").stdout)
        who = found["frozen"] or found["holders"][0]
        return who["who"], who["why"]

    held = dlock.start("run", *files.words, "-k", "k", *words, "--", "sleep", "100", env=env).held()
    assert seen() == (told, told)
    broken = dlock.run("break", "-y", *files.words, "-k", "k", *words, env=env)
    assert broken.status == 0 and held.wait().status == 79, (broken, held.result())
    assert (told or "somebody").split()[0][:20] in held.stderr().replace("\\\\", "\\"), held.stderr()
    assert dlock.run("freeze", *files.words, "-k", "k", *words, env=env).status == 0
    assert seen() == (told, None if by == "file" else told)  # a file says why for runs only
