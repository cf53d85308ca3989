# Goal of these tests: in each shell, TAB offers what dlock understands at that place, and the keys that are in
# use, inserted so that dlock gets exactly that key, and nothing of a key is ever evaluated.

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess

import pytest

from support import DLOCK, PATIENCE, ROOT, Late, boottime, spent

pexpect = Late("pexpect")

BASH, ZSH, FISH = (os.path.join(ROOT, "completions", name) for name in ("dlock.bash", "_dlock", "dlock.fish"))
SHELLS = ["bash", "zsh", "fish"]
SUBCOMMANDS = ["run", "status", "ls", "wait", "break", "freeze", "thaw", "forget", "hold", "release", "config", "version", "doctor"]
# Any client may have named a key so.
HOSTILE = ["$(touch x)", "`touch x`", "a b", "a'b", 'a"b', "a'b c", "*", "?", "[a]", "{a,b}", "x\\y", "\\x1B", "\\'; touch x;'",
           ";touch x", "&touch x", "|touch x", ">x", "~root", "!!", "#x", "'q'", "a:b=c", "a@b", "%1", "<(touch x)", "=ls",
           "$HOME", "ü", "key\u3000x", "-x", "--force", "^x", "a,b"]
# No terminal should see them: they are not offered.
UNFIT = ["a\u202eb", "a\u200bb"]

START = {
    "bash": (["--norc", "--noprofile", "-i"], "bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; "
             f"source /usr/share/bash-completion/bash_completion; source {BASH}; PS1='rea''dy '"),
    "zsh": (["-f", "-i"], f"fpath=({os.path.dirname(ZSH)} $fpath); autoload -Uz compinit; compinit -u -D; "
            "unsetopt beep; PS1='rea''dy '"),
    "fish": (["--no-config", "-i"], f"source {FISH}; function fish_prompt; echo -n rea''dy' '; end"),
}


class Terminal:
    """A shell at a terminal.  `dlock ls` is real; of all else the words are shown that it would get."""

    def __init__(self, shell, directory):
        self.directory = directory / "here"
        self.directory.mkdir(exist_ok=True)
        self.lists = directory / "ls"
        (directory / "bin").mkdir(exist_ok=True)
        program = directory / "bin" / "dlock"
        program.write_text(f"""#!/bin/sh
            [ "$1" = ls ] && [ "$2" = -n ] && echo "$@" >>{self.lists} && exec {DLOCK} "$@"
            printf 'got:'; printf '<%s>' "$@"; echo :end\n""")
        program.chmod(0o755)
        # what is offered is not a question of time, but for one test
        self.timeout = directory / "bin" / "timeout"
        self.timeout.write_text(f"#!/bin/sh\nshift\nexec {shutil.which('timeout')} {PATIENCE} \"$@\"\n")
        self.timeout.chmod(0o755)
        words, setup = START[shell]
        env = {"PATH": f"{directory}/bin:{os.environ['PATH']}", "HOME": str(directory), "TERM": "xterm", "LANG": "C.UTF-8",
               "LC_ALL": "C.UTF-8"}
        self.tty = pexpect.spawn(shell, words, env=env, cwd=str(self.directory), encoding="utf-8", timeout=PATIENCE,
                                 dimensions=(50, 200), echo=False)
        self.tty.delaybeforesend = None
        self.tty.sendline(setup)
        self.ready()

    def ready(self):
        self.tty.expect("ready ")

    def words(self, typed, behind=""):
        """What dlock gets when this is typed, TAB, the rest and return; and all that was shown."""
        self.tty.send(typed + "\t" + behind + "\r")
        self.tty.expect("got:(.*?):end")
        shown, got = self.tty.before, self.tty.match[1]
        self.ready()
        return got, shown

    def close(self):
        self.tty.close(force=True)


@pytest.fixture(params=SHELLS)
def terminal(request, tmp_path):
    with contextlib.closing(Terminal(request.param, tmp_path)) as it:
        it.shell = request.param
        yield it


@pytest.fixture
def with_key(dlock, tmp_path):
    """A directory in which keys are in use: the URL."""
    made = []

    def make(*keys):
        place = tmp_path / f"locks{len(made)}"
        place.mkdir()
        made.append(place)
        for key in keys:
            assert dlock.run("freeze", "-u", f"file://{place}", "-k", key).status == 0
        return f"file://{place}"
    return make


# ---- words ----


@pytest.fixture
def known(dlock):
    """The options of each subcommand, as the program has them."""
    rows = [line.split("\t") for line in dlock.run("help", "--raw").stdout.splitlines()]
    return {s: {f"--{row[0]}" for row in rows if s in row[4].split(",")} for s in SUBCOMMANDS}


def offered_by_bash(line):
    words = line.split(" ")
    script = (f"source /usr/share/bash-completion/bash_completion; source {BASH}; COMP_LINE={shlex.quote(line)}; "
              f"COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _dlock dlock; "
              'printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def offered_by_fish(line):
    script = f"source {FISH}; complete -C {shlex.quote(line)}"
    result = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True)
    return [row.split("\t")[0] for row in result.stdout.splitlines()]


def offered_by_zsh(terminal, line):
    """zsh lists below the line what it has."""
    terminal.tty.send(line + "\t\t")
    terminal.tty.send("\x15echo do''ne\r")
    terminal.tty.expect("done\r\n")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", " ", terminal.tty.before)
    terminal.ready()
    return re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown.split(line, 1)[-1])


@pytest.mark.parametrize("offered", [offered_by_bash, offered_by_fish])
def test_a_subcommand_has_its_own_options_and_no_others(known, offered):
    for subcommand in SUBCOMMANDS:
        assert set(offered(f"dlock {subcommand} --")) - {"--help"} == known[subcommand], subcommand


# What run means by an option, and these do not.
NOT_MEANT = {"hold": ["by itself", "the command", "without -k"], "wait": ["take it", "the lock is not free", "all of them or none", "without -k"],
             "status": ["all of them or none", "without -k"], "freeze": ["all of them or none", "by itself", "busy lock"],
             "doctor": ["--signal"], "thaw": ["all of them or none", "busy lock"], "break": ["repeatable:", "busy lock", "without -k"], "release": ["busy lock", "all of them or none"]}


@pytest.mark.parametrize("subcommand", NOT_MEANT)
def test_an_option_is_explained_as_what_it_means_there(dlock, subcommand):
    text = re.search(r"^ +(-\w, )?--\w.*?(?=\n\n)", dlock.run("help", subcommand).stdout, re.M | re.S)[0]
    fish = f"source {FISH}; complete -C 'dlock {subcommand} --'"
    for shown in (text, subprocess.run(["fish", "--no-config", "-c", fish], capture_output=True, text=True, check=True).stdout):
        assert "quiet" in shown or subcommand in ("status", "doctor")
        assert [wrong for wrong in NOT_MEANT[subcommand] if wrong in shown.lower()] == []
    assert max(map(len, text.splitlines())) <= 90


def test_in_zsh_too(known, tmp_path):
    with contextlib.closing(Terminal("zsh", tmp_path)) as terminal:
        for subcommand in SUBCOMMANDS:
            found = {word for word in offered_by_zsh(terminal, f"dlock {subcommand} --") if word.startswith("--")}
            assert found - {"--help"} == known[subcommand], subcommand


@pytest.mark.parametrize("offered", [offered_by_bash, offered_by_fish])
def test_every_subcommand_is_offered(dlock, offered):
    there = re.findall(r"^  dlock ([a-z]+) ", dlock.run("help").stdout, re.M)
    assert set(there) == {*SUBCOMMANDS, "help"}
    assert set(offered("dlock ")) - {"--help", "--version"} == set(there)
    assert set(offered("dlock help ")) >= {*there, "pg-schema", "mysql-schema"}


def test_help_of_a_schema_is_completed(terminal):
    for schema in ("pg-schema", "mysql-schema"):
        assert terminal.words(f"dlock help {schema[:3]}", "x")[0].startswith(f"<help><{schema}>"), schema


def test_subcommands_and_options_start_nothing(terminal):
    assert terminal.words("dlock stat", "x")[0].startswith("<status>")
    assert terminal.words("dlock status --jso", "x")[0].startswith("<status><--json>")
    assert not terminal.lists.exists()


def test_the_command_is_completed_as_ever(terminal):
    (terminal.directory / "a-file").touch()
    assert terminal.words("dlock run -k x -- cat a-fi")[0] == "<run><-k><x><--><cat><a-file>"


# ---- keys ----


@pytest.mark.parametrize("typed", ["status -k ", "run -k ", "hold -k ", "wait ", "break ", "freeze ", "thaw ", "ls ", "run "])
def test_keys_in_use_are_offered(terminal, with_key, typed):
    url = with_key("deploy/prod")
    first, *rest = typed.split(" ", 1)
    assert terminal.words(f"dlock {first} -u {url} {rest[0]}dep")[0].endswith("<deploy/prod>")


def test_forget_wants_one_key_and_then_an_id(terminal, with_key):
    url = with_key("deploy/prod")
    assert terminal.words(f"dlock forget -u {url} dep")[0].endswith("<deploy/prod>")
    for typed in ("nightly dep", "-k nightly dep", "-y nightly dep"):
        assert terminal.words(f"dlock forget -u {url} {typed}")[0].endswith("<nightly><dep>"), typed


def test_no_key_is_offered_behind_what_ends_the_options(terminal, with_key):
    """`run` takes none from there; others do."""
    url = with_key("qqdeploy")
    assert terminal.words(f"dlock run -u {url} -- qqd", "x")[0].endswith("<--><qqdx>")
    (terminal.directory / "a-file").touch()
    assert terminal.words(f"dlock run -u {url} qqd -q -- cat a-fi")[0].endswith("<cat><a-file>")
    assert terminal.words(f"dlock wait -u {url} -- qqd")[0].endswith("<--><qqdeploy>")


def test_a_long_option_has_its_keys_too(terminal, with_key):
    url = with_key("deploy/prod")
    got = terminal.words(f"dlock status --url={url} --key=dep")[0]
    assert got == f"<status><--url={url}><--key=deploy/prod>"


def test_every_key_is_inserted_as_it_is_and_never_evaluated(terminal, with_key):
    for key in HOSTILE:
        url = with_key(key)
        unquotable = terminal.shell == "fish" and key.startswith("~")  # not offered there
        got, shown = terminal.words(f"dlock status -u {url} -k ", "x" if unquotable else "")
        assert got == f"<status><-u><{url}><-k><{'x' if unquotable else key}>", (key, shown)
        assert os.listdir(terminal.directory) == [], key


def test_a_key_is_found_by_what_was_typed_of_it(terminal, with_key):
    url = with_key("a b$c'd:e=f", "other")
    for typed in [r"a\ ", r"a\ b\$", "'a ", "'a b$", '"a b\\$', r"a\ b\$c\'d:", r"a\ b\$c\'d:e=", r"a\ b\$c\'d:e"]:
        if typed == '"a b\\$' and terminal.shell == "zsh":
            continue  # it takes the word as it stands there
        got, shown = terminal.words(f"dlock status -u {url} ke1 {typed}")
        assert got == f"<status><-u><{url}><ke1><a b$c'd:e=f>", (typed, shown)


@pytest.mark.parametrize("key", UNFIT)
def test_keys_that_no_terminal_should_see_are_not_offered(terminal, with_key, key):
    url = with_key(key)
    got, _ = terminal.words(f"dlock status -u {url} -k ", "x")
    assert got == f"<status><-u><{url}><-k><x>"


def test_several_keys_are_listed_as_they_are(terminal, with_key):
    url = with_key("$(touch x)", "`touch x`", "*")
    terminal.tty.send(f"dlock status -u {url} -k \t\t\t")
    terminal.tty.expect(r"touch\\? x")
    terminal.close()
    assert os.listdir(terminal.directory) == []


# ---- servers ----


@pytest.mark.parametrize("server", ["$(touch x)", "`touch x`", '"$(touch x)"', '"$NAME"'])
def test_nothing_of_the_line_is_evaluated(terminal, server):
    """And no other server is asked than the one that is meant."""
    terminal.tty.send(f"dlock status -u {server} -k \t\x15echo do''ne\r")
    terminal.tty.expect("done\r\n")
    terminal.ready()
    assert os.listdir(terminal.directory) == []
    assert not terminal.lists.exists() or (terminal.shell, server) == ("fish", "`touch x`")  # plain words there


def test_a_quoted_server_is_understood(terminal, with_key):
    url = with_key("deploy")
    for typed in [f"'{url}'", f'"{url}"']:
        assert terminal.words(f"dlock status -u {typed} -k ")[0].endswith("<-k><deploy>")


def test_a_server_that_hangs_holds_nobody_up(terminal):
    terminal.timeout.unlink()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}"
        began = boottime()
        got, shown = terminal.words(f"dlock status -u {url} -k ", "x")
        took = spent(began)
    assert got == f"<status><-u><{url}><-k><x>"
    assert took < 4, "dlock itself would have tried for 5 s"
    assert "cannot" not in shown and "Terminated" not in shown and "Killed" not in shown


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "file:///no/such/place", "nonsense"])
def test_a_server_that_is_not_there_is_no_news(terminal, url):
    got, shown = terminal.words(f"dlock status -u {url} -k ", "x")
    assert got == f"<status><-u><{url}><-k><x>"
    assert "cannot" not in shown and "directory" not in shown.replace(url, "")
