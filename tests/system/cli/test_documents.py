# Goal of these tests: what is written about dlock is true.  Manual, README,
# completions and the program know the same words, so that nobody documents by
# memory and no option is forgotten.

import errno
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from pg import account, bindir, make_directory
from support import ADMIN, DLOCK, ROOT, boottime, children_of, free_port, kill, spent, told_at_the_end, wait_for

TOP = pathlib.Path(ROOT)
MANUAL, BACKENDS, CONF, README = "man/dlock.1", "man/dlock-backends.7", "man/dlock.conf.5", "README.md"
JOINS, RECIPES, EVENTS, TROUBLE = "man/dlock-joins.7", "man/dlock-recipes.7", "man/dlock-events.7", "man/dlock-troubleshooting.7"
# A manual for each group of subcommands.
GROUPS = {"man/dlock.1": ["run", "version"], "man/dlock-status.1": ["status", "ls", "wait"], "man/dlock-hold.1": ["hold", "release"],
          "man/dlock-break.1": ["break", "freeze", "thaw", "forget"], "man/dlock.conf.5": ["config"], "man/dlock-doctor.1": ["doctor"]}
# A page for each backend, and two more for redis, all with one outline.
PAGES = {name: f"man/dlock-{name}.7" for name in ("file", "redis", "zk", "pg", "mysql", "memcached", "etcd")}
DIALECTS, REDLOCK = "man/dlock-redis-dialects.7", "man/dlock-redlock.7"
OUTLINED = [*PAGES.values(), DIALECTS, REDLOCK]
OUTLINE = ["NAME", "DESCRIPTION", "QUICK START", "SETTING UP", "SETTINGS", "WHAT IT PROMISES", "WHAT BREAKS IT",
           "TOGETHER WITH OTHER PROGRAMS", "INTERNALS", "SEE ALSO"]
MANUALS = [*GROUPS, BACKENDS, *OUTLINED, JOINS, RECIPES, EVENTS, TROUBLE]
COMPLETIONS = ["completions/dlock.bash", "completions/_dlock", "completions/dlock.fish"]
ALWAYS = {"help", "version", "raw"}  # understood without standing in the table of options

# The contract with scripts.
STATUSES = {"NOTHING": 1, "FREE": 1, "LATE": 1, "FOUND": 1, "UNFIT": 1, "USAGE": 64, "UNAVAILABLE": 69, "SYSTEM": 71, "BUSY": 75,
            "PROTOCOL": 76, "DENIED": 77, "CONFIG": 78, "LOST": 79, "MAX_RUN": 124, "NOT_EXECUTABLE": 126, "NOT_FOUND": 127}


def cell_of(words):
    """How a cell of a table is set, without its macros."""
    words = re.sub(r"\bFl ([^A-Z]*)", lambda m: re.sub(r"(\\&)?([\w\\][^ ]*)", lambda w: "-" + w[2].replace("\\&", ""), m[1]), words)
    words = re.sub(r"\b(?:Sy|Cm|Li|Ar|Va|Em|No|Pa|Ev|Ic|Dv) ", "", re.sub(r" ?\bNs\b ?", "", words))
    return re.sub(r" ([.,;)])", r"\1", re.sub(r"\\&|\"", "", words).replace("\\-", "-")).strip()


def cells_too_wide(text):
    """Rows of tables with a cell that runs into the next one, or with a quote or a bracket that Ta does not close."""
    for widths, rows in re.findall(r"^\.Bl .*-column (.*)\n((?:.*\n)*?)\.El", text, re.M):
        room = [len(a or b) for a, b in re.findall(r'"([^"]*)"|((?<!-)\b\w+)', re.sub(r"-offset \w+|-compact", "", widths))]
        for row in re.findall(r"^\.It (.*(?:\n(?!\.It).*)*)", rows, re.M):
            cells = [cell_of(cell) for cell in re.split(r"\bTa\b", row.replace("\n.", " ").replace("\n", " "))[:-1]]
            if any(len(cell) > width for cell, width in zip(cells, room)) or re.search(r"\b(?:[A-Z]q|Ql)\b.*\bTa\b", row):
                yield row


@pytest.mark.parametrize("name", MANUALS)
def test_the_columns_of_a_table_stand_apart(name):
    assert [*cells_too_wide((TOP / name).read_text(encoding="utf-8"))] == []


def text_of(name):
    """A document's text, a manual's as it will be read: "Fl \\&-key" is "--key"."""
    text = (TOP / name).read_text(encoding="utf-8")
    if name not in MANUALS:
        return text
    return re.sub(r"\bFl (\\&)?", "-", text).replace("\\-", "-")


@pytest.fixture
def options(dlock):
    """Rows of (name, letter, argument, variable, subcommands)."""
    return [line.split("\t") for line in dlock.run("help", "--raw").stdout.splitlines()]


def occurs(word, text):
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def test_each_subcommand_has_its_manual(dlock):
    there = re.findall(r"^  dlock ([a-z]+) ", dlock.run("help").stdout, re.M)
    assert {*there} == {s for group in GROUPS.values() for s in group} | {"help"}
    for name, subcommands in GROUPS.items():
        for subcommand in subcommands:
            assert occurs(f"Cm {subcommand}", text_of(name)) or occurs(f"dlock {subcommand}", text_of(name)), subcommand


@pytest.mark.parametrize("name", GROUPS)
def test_a_manual_explains_every_option_and_variable_of_its_subcommands(options, name):
    text, seen = text_of(name), 0
    for option, letter, _, variable, of in options:
        if not set(of.split(",")) & set(GROUPS[name]):
            continue
        seen += 1
        if name == CONF:  # it names most of them without dashes
            assert occurs(f"--{option}", text) or occurs(f"Cm {option}", text), option
            continue
        assert occurs(f"--{option}", text), option
        assert letter == "-" or occurs(f"-{letter}", text), letter
        where = text if "hold" not in GROUPS[name] else text_of(MANUAL)  # as for run
        assert variable == "-" or occurs(variable, where), variable
    assert seen > 1


@pytest.mark.parametrize("name", GROUPS)
def test_a_manual_speaks_of_no_option_that_its_subcommands_do_not_know(options, name):
    """But for those of run, whose meaning others refer to."""
    text = re.sub(r"^\.Sh (EXAMPLES|ON CALL)$.*?(?=^\.Sh )", "", text_of(name), flags=re.M | re.S)
    known = {row[0] for row in options if set(row[4].split(",")) & {"run", *GROUPS[name]}} | ALWAYS
    assert set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text)) - known - {"token", "force", "shell", "json", "jobs"} == set()


def test_the_manuals_of_looking_name_every_member_and_column(dlock, tmp_path):
    text = text_of(EVENTS)
    dlock.start("run", "-u", f"file://{tmp_path}", "-k", "job", "sleep", "1000").held()
    found = json.loads(dlock.run("status", "-J", "-u", f"file://{tmp_path}", "job").stdout)
    listed = json.loads(dlock.run("ls", "-J", "-u", f"file://{tmp_path}").stdout)
    for member in {*found, *listed, *found["holders"][0]}:
        assert re.search(rf"\.(It )?Va .*\b{member}\b", text), member
    config = dlock.run("config", "-J", "-u", f"file://{tmp_path}").stdout.splitlines()
    for member in {m for line in config for m in json.loads(line)}:
        assert re.search(rf"\.(It )?Va .*\b{member}\b", text), member
    text = text_of("man/dlock-status.1")
    columns = re.search(r"^Columns: (.*?)\.$", dlock.run("help", "ls").stdout, re.M | re.S)[1]
    for column in re.findall(r"[A-Z]+", columns):
        assert occurs(column, text), column
        assert all(occurs(column, text_of(name)) for name in COMPLETIONS), column


def test_the_manual_of_events_names_every_event_member_and_verdict(dlock, tmp_path):
    """Those of the program, and what it writes of a run that waits and of one that has a slot."""
    text = text_of(EVENTS)
    source = text_of("cmd/supervise/events.c")
    events = {*re.findall(r"\[MSG_\w+\] = \{\"(\w+)\"", source), "verdict"}
    assert len(events) > 10 and {*re.findall(r"^\.It Li (\w+)$", text, re.M)} == events
    members = {*re.findall(r'json_put_\w+\([^,]+, "(\w+)"', source), *re.findall(r'\{"\w+", (?:"(\w+)"|NULL)', source), "reason"} - {""}
    assert len(members) > 20
    assert [m for m in members if not occurs(f"Va {m}", text) and not re.search(rf"^\.Va .*\b{m}\b", text, re.M)] == []
    verdicts = set()
    for name in ("cmd/exit.c", "cmd/run.c", "cmd/supervise/verdict.c"):
        found = text_of(name)
        verdicts |= {*re.findall(r'\{STATUS_\w+, "([a-z-]+)"', found), *re.findall(r'name = "([a-z-]+)"', found)}
        verdicts |= {*re.findall(r'verdict_decide\(&?v, [^"]*"([a-z-]+)"', found)}
    verdicts -= {"kept", "run"}  # of dlock release, which has no events; and the name of a subcommand
    assert {*re.findall(r"^\.It Li ([a-z-]+) Ta", text, re.M)} == verdicts


@pytest.mark.parametrize("name", [*MANUALS, README])
def test_no_sentence_begins_with_a_clause_that_stands_for_somebody(name):
    """ "Who holds it goes on" is read twice; "The holder goes on" is not.  A question may begin so."""
    text = text_of(name)
    found = re.findall(r"^(?:What|Who|Whoever|Whose|Whom) [^?.]*(?:\.$|\n\.|\Z)", text, re.M)
    assert [sentence for sentence in found if "?" not in sentence] == [] and not re.search(r"\bshall\b", text)


@pytest.mark.parametrize("name", [*MANUALS, README])
def test_since_tells_a_time_and_no_reason(name):
    """ "Skipped since its job is done": by when, or why?  These pages are full of times, so a reason says "because"."""
    prose = [line for line in text_of(name).splitlines() if not line.startswith((".", "dlock:"))]
    assert re.findall(r".*(?:, |skipped\n|skipped )since (?!when)[a-z].*", "\n".join(prose)) == []


def messages():
    """Those of the manual, as (message, its pieces that do not change)."""
    for item in re.findall(r'^\.It "(.*)"$', text_of(TROUBLE).split(".Sh MESSAGES")[1], re.M):
        item = item.replace("\\(dq", '"').replace("\\&", "")
        pieces = re.split(r"\.\.\.|[;:,()?]|-n\b|-s\b|-w\b|--\w+|'[A-Z ]*'?|\"[A-Z]*\"|\b\d\w*|\b[A-Z]{2,}(?:/[A-Z]+)*\b|\b[NX]\b", item)
        pieces = [re.sub("^it ", "", piece.strip()) for piece in pieces]  # or "one of them"
        yield item, [piece for piece in pieces if len(piece) > 9]


def parts(piece, said):
    """How many strings of the program this is made of."""
    words, n = piece.split(), 0
    while words:
        longest = next((k for k in range(len(words), 0, -1) if " ".join(words[:k]) in said), 0)
        if not longest:
            return len(piece)
        words, n = words[longest:], n + 1
    return n


def test_each_message_of_the_manual_is_one_of_the_program():
    """What does not change in it stands in strings of the source, where a few make up a sentence."""
    said = os.strerror(errno.ENOENT) + os.strerror(errno.ECONNREFUSED)
    for path in sources("cmd/**/*.[ch]", "backends/**/*.[ch]"):
        code = re.sub(r"/\*.*?\*/", "", text_of(path), flags=re.S)
        said += "\n".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*"', "", code)))
    wrong = [(item, piece) for item, pieces in messages() for piece in pieces if parts(piece, said) > 2]
    assert len([*messages()]) > 30 and wrong == []


def pattern_of(item):
    """Of the lines that this message of the manual stands for."""
    return re.sub(r"\.\.\.|\b(?:[A-Z]{2,}|[NX])\b|\b\d\w*", ".+", re.escape(item).replace(r"\.\.\.", "...")) + "(; nothing was run)?"


PROVOKED = """
export DLOCK_URL=file://$PWD
mkdir sub; cp dlock sub
dlock run -n -w 5 -k a true
dlock run -t 4s --grace 3s -k a true
dlock run -k a -- nosuch
dlock run --once x -k a true; dlock run --once x -k a -v true 2>&1 | grep skipped
dlock run -u file://$PWD/nosuch -k a true
env -u DLOCK_URL dlock run -k a true
DLOCK_WIAT=1 dlock run -k a true
dlock run -u redis://127.0.0.1:1 -k a true &
dlock status -u redis://127.0.0.1:1 a
echo secret >pw; chmod 644 pw; dlock run -u redis://127.0.0.1:1 -O password-file=pw -n -k a true
echo 'tttl = 5' >conf; dlock run --config conf -k a true
echo 'ttl = 5 # s' >conf; dlock run --config conf -k a true
echo 'url = redis://:secret@h' >conf; chmod 644 conf; env -u DLOCK_URL dlock run --config conf -k a true
chmod 664 conf; dlock run --config conf -k a true
chmod 600 conf; dlock run --config conf --profile prod -k a true
dlock run -k a --max-run 200ms --grace 100ms --min-hold 1s sleep 9
dlock run -w 3s -k a -- dlock run -k b -k a true
dlock run -k a -- dlock run --once x -k a true
dlock run -k a -- dlock run --limit 2 -k a true
dlock run -k a -- env -i "$PWD/dlock" run -u $DLOCK_URL -k a true
dlock run -k a -s -t 3s -- sleep 5 & sleep 0.5; dlock run -n -k a true; dlock run -w 200ms -k a true; dlock run -k a true; wait
for i in 1 2 3; do dlock run -k c --limit 3 -- sleep 5 & done; sleep 0.5; dlock run -k c --limit 2 true; dlock run -n -k c --limit 3 true
dlock run -k c --limit 3 true; wait
dlock break d </dev/null; dlock break -y d; dlock break -y --force d; dlock thaw -y d; dlock freeze 'd*'
dlock freeze d --for 1h; dlock freeze d --for 2h; dlock run -n -k d true; dlock break -y d; dlock thaw -y d
dlock freeze sw 2>/dev/null; dlock run -n -k d --unless-frozen sw true; dlock thaw -y sw
dlock run -n -k d -O path=$PWD/one --unless-frozen sw true; dlock run -k d -k e --newest true; dlock run -k d --no-retry true
dlock run -n -u memcached://127.0.0.1:1 -k d --newest true
dlock run -k d -t 3s -- sleep 9 & sleep 0.5; dlock break --token 5 d; dlock break -w 0 -y --why x d; wait
lock=$(dlock hold -k e; true)
dlock hold -k e --pid 999999; dlock release; handle=$(dlock hold -k e --for 200ms); sleep 1; dlock release $handle
lock=$(dlock hold -k e --pid $$ --shell); eval "$lock"; dlock run -k e --min-hold 1s true; dlock release; sleep 1.5
echo a 1 >prom; dlock run --metrics-file prom -k g true
unset DLOCK_URL; dlock run -k f true
"""


def test_messages_that_are_easily_provoked_are_in_the_manual(tmp_path):
    done = tried([PROVOKED], tmp_path, stdin=subprocess.DEVNULL)
    known = [pattern_of(item) for item, _ in messages()]
    said = [line.removeprefix("dlock: ") for line in done.stdout.splitlines() if line.startswith("dlock: ")]
    met = {pattern for line in said for pattern in known if re.fullmatch(pattern, line)}
    known += [r"\S+ is thawed", r"\S+ is frozen for \S+, until [^,]*UTC"]  # which say only that all went well
    strange = [line for line in said if not any(re.fullmatch(pattern, line) for pattern in known)]
    assert (strange, len(met) >= 40) == ([], True), "\n".join([f"{len(met)} met, and:", *strange])


def test_the_messages_of_the_manual_are_in_alphabetical_order():
    items = [item.lower() for item, _ in messages()]
    assert items == sorted(items)


def test_the_manual_of_doctor_names_every_check():
    """As the sources name them: a word, or one of two, behind how fit it is."""
    code = "".join(text_of(path) for path in sources("cmd/*.c", "backends/**/*.c"))
    names = re.findall(r"\b(?:checkup_tell|tell)\(\s*[^;]*?\b(?:FIT|UNFIT|DOUBTFUL|fitness),\s*([^,;]*),", code)
    names += re.findall(r"\btell_(?:failure|right)\(\s*d,\s*([^,;]*),", code)
    found = set(re.findall(r'"([a-z-]+)"', " ".join(names)))
    manual = text_of("man/dlock-doctor.1").split(".Sh CHECKS")[1].split(".Sh JSON")[0]
    told = {word for line in re.findall(r"^\.It Li (.*)$", manual, re.M) for word in line.split(" , ")}
    assert len(found) > 30 and found == told, found ^ told


def test_every_status_of_a_subcommand_is_in_its_manual(dlock):
    for name, subcommands in GROUPS.items():
        for subcommand in subcommands:
            said = re.search(r"Status: (.*)", dlock.run("help", subcommand).stdout, re.S)
            for status in re.findall(r"(?<![\d-])(\d+) ", said[1] if said else ""):
                assert occurs(status, text_of(name)), (subcommand, status)


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completions_offer_every_option(options, name):
    text = text_of(name)
    for option, *_ in options:
        written = option if name.endswith(".fish") else f"--{option}"
        assert occurs(written, text), option


@pytest.mark.parametrize("name", [*MANUALS, README])
def test_documents_speak_of_no_option_that_does_not_exist(options, name):
    known = {row[0] for row in options} | ALWAYS
    text = text_of(name)
    if name in (README, RECIPES):  # others' options stand before "dlock"
        text = "\n".join(re.findall(r"dlock.*", text))
    text = re.sub(r"^\$ (?!.*\bdlock\b)(?:.*\\e\n)*.*", "", text, flags=re.M)
    spoken = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text))
    assert spoken - known == set()


@pytest.mark.parametrize("name", [*MANUALS, README])
def test_variables_in_documents_exist(options, name):
    known = {row[3] for row in options} | {f"DLOCK_{b}_URL" for b in ("FILE", "REDIS", "ZK", "PG", "MEMCACHED", "ETCD", "MYSQL", "<BACKEND>")}
    known |= {"DLOCK_HANDLE", "DLOCK_KEY", "DLOCK_TOKEN", "DLOCK_TOKENS", "DLOCK_SLOT", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"}
    known |= {"DLOCK_BEFORE_KEY", "DLOCK_BEFORE_BACKEND"}
    spoken = set(re.findall(r"\bDLOCK_[A-Z_]*[A-Z]\b", text_of(name)))
    assert spoken - known == set()


def test_the_manual_of_the_configuration_names_what_may_stand_in_it(dlock):
    names = dlock.run("help", "--raw", "config").stdout.split()
    assert re.findall(r"^\.It Cm ([a-z-]+) Ta ", text_of(CONF), re.M) == names


def test_the_examples_of_the_configuration_can_be_used(dlock, tmp_path):
    blocks = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", text_of(CONF), re.M | re.S)
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "conf").write_text(block.replace("\\(dq", '"'))
        result = dlock.run("config", "--config", tmp_path / "conf", "-k", "nightly/backup")
        assert result.status == 0 and "redis://" in result.stdout, result


@pytest.mark.parametrize("words, counts", [
    ("-k other", {"wait": "inf", "ttl": "60s"}), ("-k deploy/web", {"wait": "30m", "why": "see the deployment log"}),
    ("-k nightly/backup", {"nonblock": "yes", "conflict-exit-code": "0", "cooldown": "12h"}), ("-k reports", {"limit": "3"}),
    ("-k reports --profile local", {"backend": "file", "nonblock": "yes", "limit": "3"}),
])
def test_the_example_of_the_configuration_says_what_its_comments_say(dlock, tmp_path, words, counts):
    (tmp_path / "conf").write_text(blocks(CONF)[1])
    told = dlock.run("config", "-J", "--config", tmp_path / "conf", *words.split()).stdout.splitlines()
    values = {row["name"]: row.get("value") for row in map(json.loads, told)}
    assert {name: values[name] for name in counts} == counts


# A key, and for the pattern of each row of the table whether it is meant: in a section, in dlock ls.
MATCHES = {"*": [("a/b", "a*", True, True), ("a", "a*", True, True), ("ab", "*c", False, False)],
           "?": [("a/b", "a?b", True, True), ("ab", "a?b", False, False), ("\u00e4", "?", False, False), ("\u00e4", "??", True, True)],
           "\\x": [("a*", "a\\*", True, True), ("ab", "a\\*", False, False)],
           "[abc]": [("b", "[abc]", None, True), ("d", "[abc]", None, False)],
           "[a-z]": [("k", "[a-z]", None, True), ("K", "[a-z]", None, False)],
           "[!a]": [("b", "[!a]", None, True), ("a", "[!a]", None, False)]}


def test_patterns_match_as_the_table_says(dlock, tmp_path):
    table = re.search(r"^\.It Sy pattern Ta.*?$(.*?)^\.El$", text_of(CONF), re.M | re.S)[1].replace("\\&", "").replace("\\e", "\\")
    rows = dict(re.findall(r"^\.It Li (\S+) Ta (.*?) Ta ", table, re.M))
    assert {pattern for pattern, said in rows.items() if said == "cannot be written"} == {"[abc]", "[a-z]", "[!a]"}
    assert set(rows) == set(MATCHES)
    url = f"file://{tmp_path}"
    for key, pattern, in_section, in_ls in sum(MATCHES.values(), []):
        (tmp_path / "conf").write_text(f'[key "{pattern}"]\nttl = 77s\n')
        done = dlock.run("config", "--config", tmp_path / "conf", "-k", key)
        assert done.status == 78 if in_section is None else ("77s" in done.stdout) == in_section, (key, pattern, done)
        dlock.run("freeze", "-u", url, "-k", key)
        listed = [json.loads(line)["key"] for line in dlock.run("ls", "-J", "-u", url, pattern).stdout.splitlines()]
        dlock.run("thaw", "-y", "-u", url, "-k", key)
        assert (key in listed) == in_ls, (key, pattern, listed)


@pytest.fixture
def settings(dlock):
    """The -O names of each backend that is compiled in, as it lists them itself."""
    found = {}
    for backend in re.findall(r"^  (\w+)", dlock.run("version").stdout, re.M):
        refused = dlock.run("run", "-b", backend, "-O", "no-such=1", "-k", "job", "--", "true")
        if refused.status == 64:
            listed = re.search(r"\(there are (.*?)\)", refused.stderr)
            found[backend] = listed[1].split(", ") if listed else []
    assert found["file"] == ["name", "path", "lock"] and len(found) > 1
    return found


@pytest.fixture
def backends(dlock):
    """The schemes of each backend, the usual one first."""
    rows = (line.split("\t") for line in dlock.run("help", "--raw", "backends").stdout.splitlines())
    return {name: schemes.split() for name, schemes in rows}


def test_help_names_every_backend(dlock, backends):
    *others, last = backends
    named = re.search(r"where locks are kept:\n +(.*)\n", dlock.run("run", "--help").stdout)[1]
    assert named == f"{', '.join(others)} or {last}"


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completions_offer_every_backend_and_no_other(backends, name):
    offered = re.findall(r"['(](file(?: [a-z]+)+)[')]", text_of(name))
    assert [words.split() for words in offered] == [list(backends)]


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completions_offer_a_url_of_every_backend_and_no_other(backends, name):
    offered = set(re.findall(r"([a-z+]+):/", text_of(name)))
    assert offered == {scheme for schemes in backends.values() for scheme in schemes} - {"postgres"}  # postgresql


def test_the_manuals_name_every_backend_and_scheme(backends):
    assert set(PAGES) == set(backends)
    for backend, schemes in backends.items():
        for name in (MANUAL, BACKENDS):
            assert occurs(backend, text_of(name)) and f"dlock-{backend} Ns (7)" in text_of(name), (backend, name)
        assert [s for s in schemes if f"{s}:" not in text_of(PAGES[backend])] == [], backend


def test_the_page_of_each_backend_explains_every_setting(settings):
    for backend, names in settings.items():
        explained = re.findall(r"^\.It Cm ([a-z-]+) Ns =", text_of(PAGES[backend]), re.M)
        assert sorted(explained) == sorted(names), backend


@pytest.mark.parametrize("name", OUTLINED)
def test_the_pages_of_the_backends_have_one_outline(name):
    assert re.findall(r"^\.Sh (.*)", text_of(name), re.M) == OUTLINE


@pytest.mark.parametrize("name", MANUALS)
def test_what_a_manual_refers_to_is_there(dlock, name):
    """Sections of its own, pages of dlock's, and subcommands."""
    text = text_of(name)
    assert set(re.findall(r"\bSx ([\w ,]+?)(?: [.,;])?$", text, re.M)) <= set(re.findall(r"^\.S[hs] (.*)", text, re.M))
    pages = {f"{path.name}" for path in (TOP / "man").iterdir()}
    pages |= {f"{link.split(':')[0]}.1" for link in re.findall(r"[\w-]+:dlock[\w-]*", text_of("Makefile"))}
    assert {f"{page}.{n}" for page, n in re.findall(r"\b(dlock[\w.-]*)(?: Ns )?\s?\((\d)\)", text)} <= pages
    known = {*re.findall(r"^  dlock ([a-z]+) ", dlock.run("help").stdout, re.M), "eval", "fg"}
    spoken = {word for line in re.findall(r"\bIc ([a-z ,]+)$", text, re.M) for word in re.findall("[a-z]+", line)}
    typed = "\n".join([*re.findall(r"^\.Dl (dlock .*)", text, re.M), *re.findall(r"Ql (dlock .*)", text), *blocks(name)])
    spoken |= set(re.findall(r"^(?:\w*\$ )?dlock ([a-z]+)", typed, re.M))
    assert spoken <= known


def test_manuals_and_completions_name_every_setting(settings):
    for backend, names in settings.items():
        for document in [PAGES[backend], *COMPLETIONS]:
            assert [n for n in names if not occurs(n, text_of(document))] == [], (backend, document)


# The columns of the tables of dlock-backends(7), as words of dlock-admin; what no column stands for has its own sentence.
AT = {"file": ["file", "file:///tmp"], "redis": ["redis", "redis://127.0.0.1:1"], "zk": ["zk", "zk://127.0.0.1:1"],
      "redlock": ["redis", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"], "etcd": ["etcd", "etcd://127.0.0.1:1"],
      "pg": ["pg", "postgresql://127.0.0.1:1/app"], "mysql": ["mysql", "mysql://127.0.0.1:1/app"],
      "memc.": ["memcached", "memcached://127.0.0.1:1"]}
AT |= {f"{name} {mode}": [*AT[name], "-O", f"mode={mode}"] for name, mode in (("pg", "advisory"), ("pg", "row"), ("mysql", "named"), ("mysql", "row"))}
DIALECT_NAMES = ("string", "symfony", "redisson", "redisson-fenced", "redisson-rw", "redisson-semaphore", "redisson-fair")
LAYOUT_NAMES = ("curator", "plain", "rw-seq", "kazoo", "menagerie", "recipes")
AT |= {name: [*AT["redis"], "-O", f"dialect={name}"] for name in DIALECT_NAMES}
AT |= {f"layout {name}": [*AT["zk"], "-O", f"layout={name}"] for name in LAYOUT_NAMES}
COLUMNS = {"pg, mysql": ["pg", "mysql"], "advisory": ["pg advisory"], "named": ["mysql named"], "row": ["pg row", "mysql row"],
           "session": ["pg advisory", "pg row", "mysql named", "mysql row"], "dial.": DIALECT_NAMES,
           "zk": [f"layout {name}" for name in LAYOUT_NAMES]}


def caps_of(place):
    """What dlock asks a store for before it asks its server."""
    said = subprocess.run([ADMIN, *AT[place], "caps"], capture_output=True, text=True, check=False).stdout
    assert said.startswith("caps"), (place, said)
    return set(said.splitlines()[0].split()[1:])


def table_of(section, name=BACKENDS):
    """{row: {column: cell}} of the first table of a section."""
    text = re.search(rf"^\.Sh {section}$(.*?)(?=^\.Sh )", text_of(name), re.M | re.S)[1]
    head, *rows = [[cell.strip().replace("\\&", "") for cell in line.split(" Ta ")] for line in re.findall(r"^\.It (.* Ta .*)$", text, re.M)]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


@pytest.mark.parametrize("section, rows", [
    ("KINDS OF LOCK", {"-s": "shared", "--limit": "limit", "--once , -cooldown": "job", "in one line": "fair", "--newest": "fair", "break": "revoke",
                       "break --force": "force", "freeze, thaw": "freeze", "ls --jobs, forget": "job"}),
    ("PROMISES, BACKEND BY BACKEND", {"Order": "fair", "Once": "job"})])
def test_the_tables_of_the_backends_say_what_the_program_can_do(section, rows):
    table, exceptions = table_of(section), {"14": {"redisson-fair"}, "15": {"layout plain", "layout recipes"}}
    for row, cap in rows.items():
        for column, said in table[row].items():
            places = ["zk"] if section == "KINDS OF LOCK" and column == "zk" else COLUMNS.get(column, [column])
            able = {place for place in places if cap in caps_of(place)}
            if said in exceptions:
                odd = able if column == "dial." else {*places} - able
                assert odd and odd <= exceptions[said], (row, column, odd)
            else:
                assert able == ({*places} if said == "yes" else set()), (row, column, said, able)


def test_the_promises_have_one_order_and_each_exception_is_told():
    text = re.search(r"^\.Sh PROMISES, BACKEND BY BACKEND$(.*?)(?=^\.Sh )", text_of(BACKENDS), re.M | re.S)[1]
    table = table_of("PROMISES, BACKEND BY BACKEND")
    told = re.search(r"^\.Bl -enum.*?^\.El", text, re.M | re.S)[0].count("\n.It\n")
    cells = {cell for row in table.values() for cell in row.values()}
    assert {int(cell) for cell in cells - {"yes", "no"}} == {*range(1, told + 1)}
    guarantees = re.search(r"^\.Sh GUARANTEES$(.*?)(?=^\.Sh )", text_of(MANUAL), re.M | re.S)[1]
    names = [name.replace("\\&", "") for name in re.findall(r"^\.It\n\.Sy (.*?)(?: are harmless)? \.$", guarantees, re.M)]
    assert list(table) == names
    promised = dict(re.findall(r"^\| ([A-Z][a-z ]+)(\*?) \| .* \|$", text_of(README).split("## What it promises")[1].split("\n## ")[0], re.M))
    everywhere = {row for row, cells in table.items() if {*cells.values()} == {"yes"}}
    assert [name.removesuffix(" are harmless") for name in promised] == names
    assert {name.removesuffix(" are harmless") for name, mark in promised.items() if not mark} == everywhere


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
    found = re.findall(r"\bSTATUS_(\w+) = (\d+)", text_of("cmd/exit.h"))
    assert {name: int(status) for name, status in found} == STATUSES


def sources(*patterns):
    found = sorted(path.relative_to(TOP) for pattern in patterns for path in TOP.glob(pattern))
    assert found
    return found


def begins(path):
    """The first words, without what makes them a comment."""
    return " ".join((TOP / path).read_text(encoding="utf-8")[:200].replace("*", " ").split())


def test_every_source_file_begins_with_its_name():
    for path in sources("cmd/**/*.[ch]", "backends/**/*.[ch]"):
        assert begins(path).startswith(f"/ {path.name} - "), path
    for path in (p for suffix in ("lua", "sql") for p in TOP.glob(f"backends/**/*.{suffix}")):
        assert begins(path).startswith(f"-- {path.name} - "), path.relative_to(TOP)


def test_the_map_says_what_every_source_file_is_for():
    said = subprocess.run(["sh", TOP / "tests" / "map.sh"], capture_output=True, text=True, check=True).stdout
    for path in sources("cmd/**/*.[ch]", "backends/**/*.[ch]", "backends/**/*.lua", "backends/**/*.sql"):
        room = re.search(rf"^{path.parent}/\n((?:  .*\n)+)", said, re.M)[1]
        name = f"{path.stem}.[ch]" if f"  {path.stem}.[ch] " in room else path.name
        assert re.search(rf"^  {re.escape(name)} +\S+ \S+", room, re.M), path


def test_every_fault_of_the_mutants_can_be_seeded():
    """Its lines stand in exactly one place, whatever has been moved."""
    spec = importlib.util.spec_from_file_location("mutants", TOP / "tests" / "mutants" / "run.py")
    mutants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutants)
    faults = mutants.read_faults(TOP / "tests" / "mutants" / "mutants.txt")
    texts = list(mutants.texts_of(TOP))
    assert len(faults) >= 79 and [f.place(texts) for f in faults]
    finders = mutants.read_finders()
    assert set(finders) <= {f.name for f in faults}
    for test in finders.values():
        file, _, function = test.partition("::")
        assert f"def {function}(" in (TOP / "tests" / file).read_text() if function else (TOP / "tests" / f"{file.split()[1]}.c").exists(), test


def test_every_test_says_what_it_is_for():
    for path in sources("tests/system/**/test_*.py"):
        assert begins(path).startswith("# Goal of th"), path


def test_no_backend_looks_at_another_or_at_cmd():
    for path in sources("backends/**/*.[ch]"):
        own = f"backends/{path.parts[1]}/" if len(path.parts) > 2 else "backends/"
        for name in re.findall(r'^#include "([^"]+)"', (TOP / path).read_text(encoding="utf-8"), re.M):
            inside = (TOP / path).parent / name
            shared = name in ("backends/backend.h", "backends/multi.h") or name.startswith(("backends/common/", "backends/sql/"))
            assert inside.exists() or shared or name.startswith(own) or name.endswith(".lua.h"), (path, name)
            assert not name.startswith("cmd/") and ".." not in name, (path, name)


@pytest.mark.parametrize("program, name", [("bash", COMPLETIONS[0]), ("zsh", COMPLETIONS[1]), ("fish", COMPLETIONS[2])])
def test_completions_are_scripts_that_their_shell_understands(program, name):
    assert text_of(name)
    result = subprocess.run([program, "-n", TOP / name], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", MANUALS)
def test_the_manuals_are_set_without_complaint(name):
    text = text_of(name)
    assert len(re.findall(r"^\.S[hH] ", text, re.M)) > 5
    assert re.findall(r"^\.(?:It|Sh|Ss|Pq|Dq|Pq Dq) (?:An|At|In|No)\b.*", text, re.M) == [], "words that are macros are not shown"
    assert re.findall(r"^\.(?:Pq )?(?:Ql|Dq) .* No\b.*", text, re.M) == [], "a quote goes on to the end of its line"
    result = subprocess.run(["groff", "-mandoc", "-Tutf8", "-ww", "-z", TOP / name], capture_output=True, text=True,
                            check=False)
    assert (result.returncode, result.stderr) == (0, "")


def shown(cell):
    """What a cell of a table looks like: "Fl x" is "-x", "Ic run" is "run"."""
    text, glue, before = "", "", ""
    for word in re.findall(r'"[^"]*"|\S+', cell):
        if word == "Fl":
            before = "-"
        elif word == "Ns":
            glue = ""
        elif re.fullmatch(r"[A-Z][a-z]", word):  # another macro
            before = ""
        elif word in {",", ";", ":"}:
            text += word
        else:
            text += glue + before + re.sub(r"\\(&|f.)", "", word.strip('"')).replace("\\-", "-").replace("\\e", "\\")
            glue = " "
    return text


@pytest.mark.parametrize("name", MANUALS)
def test_what_stands_in_a_table_fits_its_column(name):
    """A cell that is too long runs into the next one; an enclosure is closed at the end of the row, whatever its column."""
    for words, rows in re.findall(r"^\.Bl -column (.*?)\n(.*?)^\.El$", (TOP / name).read_text(encoding="utf-8"), re.M | re.S):
        widths = [len(shown(width)) for width in re.findall(r'"[^"]*"', words)]
        for row in re.split(r"^\.It ", rows, flags=re.M)[1:]:
            cells = [cell.strip() for cell in re.split(r"\sTa(?=\s)", " " + row)]
            assert len(cells) <= len(widths) + 1, row
            assert [cell for cell, width in zip(cells[:-1], widths) if len(shown(cell)) > width] == []
            assert [cell for cell in cells[:-1] if re.search(r"\b(?:Ql|Dq|Pq|Sq)\b", cell)] == []


def test_the_least_rights_of_the_manual_are_enough(dlock, make_redis):
    """The ACL that people copy lets a run acquire, renew, wait and release."""
    server = make_redis()
    typed = block_with("ACL SETUSER dlock", PAGES["redis"]).replace("redis-cli", f"redis-cli -p {server.port}")
    assert subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True).stdout == "OK\n"
    url = server.url.replace("redis://", "redis://dlock:password@")
    holder = dlock.start("run", "-u", url, "-k", "job", "-t", "6s", "--", "sleep", "2.5").held()
    waiter = dlock.start("run", "-u", url, "-k", "job", "--", "true")
    for done in (holder.wait(), waiter.wait()):
        assert (done.status, told_at_the_end(done.stderr)) == (0, ""), done


@pytest.mark.parametrize("lacks", ["nothing", "read", "create", "delete"])
def test_the_least_rights_of_the_manual_are_enough_for_zk(dlock, zk_server, lacks):
    """create, read and delete on the lock's own path; and none of them is too much."""
    from kazoo.security import make_digest_acl

    rights = {right: True for right in ("read", "create", "delete") if right != lacks}
    path = f"/rights-{lacks}"
    with zk_server.client() as client:
        client.create(path, acl=[make_digest_acl("dlock", "password", **rights)])
    words = ["-u", zk_server.url.replace("zk://", "zk://dlock:password@"), "-O", f"path={path}", "-k", "job"]
    holder = dlock.start("run", *words, "--", "sleep", "0.5")
    if lacks == "nothing":
        holder.held()
        waiter = dlock.start("run", *words, "--", "true")
        for done in (holder.wait(), waiter.wait()):
            assert (done.status, done.stderr) == (0, "")
    else:
        assert (holder.wait().status, holder.stderr()) != (0, "")


# ---- what stands there to be typed ----


def blocks(name):
    """The blocks of a document that are to be typed or copied, as they are read."""
    text = (TOP / name).read_text(encoding="utf-8")
    if name == README:
        return re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
    return [as_read(block) for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", text, re.M | re.S)]


def as_read(block):
    return re.sub(r"\\(&|-|\(dq|e)", lambda m: {"&": "", "-": "-", "(dq": '"', "e": "\\"}[m[1]], block)


def typed(name, section="EXAMPLES"):
    """The lines of a section that are to be typed or copied, as they are read."""
    text = re.search(rf"^\.Sh {section}$(.*?)(?=^\.Sh )", (TOP / name).read_text(encoding="utf-8"), re.M | re.S)[1]
    found = re.findall(r"^\.Dl ([^\n]*)$|^\.Bd -literal[^\n]*\n(.*?)^\.Ed$", text, re.M | re.S)
    return [line for alone, block in found for line in as_read(alone or block).splitlines()]


def block_with(marker, name=README):
    """The first block of a document that has `marker` in it."""
    return next(b for b in blocks(name) if marker in b)


def example(marker, name=README):
    """The commands (behind $) and the answers of the example that has `marker` in it."""
    commands, answers = [], []
    for line in block_with(marker, name).replace("\\\n", "").splitlines():
        (commands if line.startswith("$ ") else answers).append(line.removeprefix("$ "))
    return commands, answers


def shape(lines):
    """Who, what is measured, and whether dlock or its command is first to write, is different each time."""
    return sorted(shape_of(line) for line in lines)


def shape_of(line):
    line = re.sub(r"\S+@\S+|on [\w-]+, |directory [^):]*", "WHO", line)
    line = re.sub(r"\d+-\d+-\d+[T ][\d:]+( UTC|Z)", "N", line)
    return re.sub(r"\d[\d.]*(ms|s)?\b", "N", line)


SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def times(line):
    """The times that a line tells, in seconds: "for 1m05s", "in 9.1 ms"."""
    found = re.findall(r"(?<![\w.:-])((?:\d+(?:\.\d+)? ?(?:ms|[smhd])(?![a-z]))+)", line)
    return [sum(float(n) * SECONDS[unit] for n, unit in re.findall(r"([\d.]+) ?(ms|[smhd])", each)) for each in found]


def test_the_times_of_a_line_are_read():
    assert times("for 2s; in 93.214 ms; after 1m05s, 1d00h; at 09:53:42; slot 3; 10s") == [2, 0.093214, 65, 86400, 10]


def tried(commands, directory, **options):
    """What these commands answer, typed into a shell in that directory."""
    (directory / "dlock").unlink(missing_ok=True)  # one that still runs cannot be written to
    shutil.copy(DLOCK, directory / "dlock")
    env = {"PATH": f"{directory}:{os.environ['PATH']}", "HOME": str(directory), "DLOCK_FILE_URL": f"file://{directory}",
           "USER": "alice"}
    began = boottime()
    done = subprocess.run(["bash", "-c", "\n".join(commands)], cwd=directory, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **options)
    done.late = max(0, boottime() - began - spent(began))  # for what time the machine stood still
    return done


def assert_answers(done, answers):
    """Each in its shape and with such times, among lines that say nothing new and are left out of examples."""
    assert done.returncode == 0, done.stdout
    said = [line for line in done.stdout.splitlines() if shape_of(line) in shape(answers)]
    assert shape(said) == shape(answers), done.stdout
    for told, real in zip(sorted(answers, key=shape_of), sorted(said, key=shape_of)):
        assert all(t - 1 <= r <= t + 5 + done.late for t, r in zip(times(told), times(real), strict=True)), (told, real)


@pytest.mark.parametrize("name, server", [(PAGES["redis"], "redis-server"), (PAGES["zk"], "ZooKeeperServerMain"),
                                          (PAGES["memcached"], "memcached -u"), (PAGES["etcd"], "etcd --data-dir"), (PAGES["pg"], "pg_ctl"),
                                          (PAGES["mysql"], "mariadbd --"), (DIALECTS, "redis-server"), (REDLOCK, "redis-server")])
def test_the_first_steps_with_a_server_lead_somewhere(name, server):
    """As written, but with a port and a directory of our own, and no longer than the server takes to come up."""
    commands, answers = example(server, name)
    place = pathlib.Path(make_directory("dlock-readme-"))
    script = "\n".join(commands).replace("/tmp/", f"{place}/").replace("/usr/lib/postgresql/15/bin", bindir())
    ports = {port: str(free_port()) for port in ("7000", "7001", "7002", "7003")}
    script = re.sub(r"\b700[0-3]\b", lambda m: ports[m[0]], script)
    script, waits = re.subn(r"^sleep 3\b", "until dlock run -k up -w 1s -- true 2>>log; do sleep 0.1; done", script,
                            flags=re.M)
    assert waits == (server == "ZooKeeperServerMain")
    try:
        assert_answers(tried([script], place, **account()), answers)
    finally:
        shutil.rmtree(place)


def test_dlock_waits_for_redis_py_as_the_manual_shows(make_redis, tmp_path):
    commands, answers = example("redis.Redis(port=7000)", DIALECTS)
    port = str(make_redis().port)
    script = "\n".join(commands).replace("7000", port).replace("python3", sys.executable)
    script = script.replace("sleep 2\n", f"until redis-cli -p {port} exists app:nightly | grep -q 1; do sleep 0.1; done; sleep 2\n")
    assert_answers(tried([script], tmp_path), answers)


@pytest.mark.parametrize("marker, name", [("-k demo", README), ("-k backup --why", PAGES["file"]), ("-k hung", PAGES["file"]),
                                          ("-k account-7", RECIPES), ("exit 75", EVENTS),
                                          ("waiting > 5", EVENTS), ("-k practice", TROUBLE)])
def test_the_examples_without_a_server_are_as_shown(tmp_path, marker, name):
    commands, answers = example(marker, name)
    assert_answers(tried(commands, tmp_path), answers)


def test_the_kinds_of_the_recipes_are_as_shown(tmp_path):
    commands, answers = example("-k cache -s -- sleep 5 &", RECIPES)
    (tmp_path / "rebuild").symlink_to("/bin/true")
    assert_answers(tried(commands, tmp_path), answers)


def test_nested_runs_of_the_recipes_have_one_token(tmp_path):
    commands, answers = example("echo inner", RECIPES)
    done = tried(commands, tmp_path)
    assert_answers(done, answers)
    assert len({line.split()[1] for line in done.stdout.splitlines()}) == 1


def test_install_of_the_readme_names_what_is_needed():
    """The packages of the Makefile and no others, and goals that it has."""
    packages, goals = block_with("apt-get install make").strip(), re.findall(r"\bmake \w+", block_with("make demo"))
    makefile, *others = [(TOP / name).read_text(encoding="utf-8") for name in ("Makefile", "packages/packages.mk", "tests/model.mk")]
    needed = re.search(r"^BUILD_PACKAGES := (.*)$", makefile, re.M)[1].split()
    assert packages.split() == ["apt-get", "install", "make", *needed]
    for goal in [g.split()[1] for g in goals] + re.findall(r"`make ([a-z]+)", text_of(README)):
        assert re.search(rf"^{goal}\b.*:|^\.PHONY: .*\b{goal}\b", "".join([makefile, *others]), re.M), goal


def test_the_two_commands_of_the_readme_do_what_they_say(tmp_path):
    run, status = block_with("dlock run -k KEY -- COMMAND").splitlines()
    done = tried(["export DLOCK_BACKEND=file", run.replace("KEY", "job").replace("COMMAND", status.replace("KEY", "job"))], tmp_path)
    assert (done.returncode, "job (directory" in done.stdout, "is held" in done.stdout) == (0, True, True), done.stdout


@pytest.mark.parametrize("name", [README, RECIPES])
def test_one_of_the_hosts_with_the_crontab_runs_the_job(tmp_path, name):
    """As cron starts it, which takes a backslash away, on five hosts at once and on a sixth later."""
    url, line, *_ = block_with("--once", name).splitlines()
    command = re.match(r"5 2 \* \* \*(?: +root)? +(.*)$", line)[1].replace("\\%", "%")
    assert url == "DLOCK_URL=redis://10.0.0.5" and command.count("/usr/local/bin/") == 2
    (tmp_path / "nightly").write_text("#!/bin/sh\nsleep 0.5\necho ran >>runs\n")
    (tmp_path / "nightly").chmod(0o755)
    host = command.replace("/usr/local/bin/", f"{tmp_path}/")
    done = tried([f"export DLOCK_URL=file://{tmp_path}", *[f"{host} &" for _ in range(5)], "wait", host], tmp_path)
    assert (done.returncode, done.stdout, (tmp_path / "runs").read_text()) == (0, "", "ran\n")
    told = tried([f"export DLOCK_URL=file://{tmp_path}", "dlock status nightly"], tmp_path).stdout  # in the morning
    assert re.search(r"last run +ID [\d-]+ by .*, status 0\n +began .*, took ", told), told


@pytest.mark.parametrize("name, marker", [(README, "runs-on"), (RECIPES, "runs-on"), (RECIPES, "CI_JOB_URL")])
def test_the_jobs_of_ci_deploy_under_the_lock(dlock, tmp_path, name, marker):
    """As the runner starts them, and with a timeout that is longer than the wait."""
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(block_with(marker, name))
    job = found.get("jobs", found)["deploy"]
    script = job["script"][0] if "script" in job else job["steps"][-1]["run"]
    minutes = job.get("timeout-minutes") or int(job["timeout"].removesuffix("h")) * 60
    assert minutes > int(re.search(r"-w (\d+)h ", script)[1]) * 60
    (tmp_path / "deploy.sh").write_text("#!/bin/sh\ndlock status deploy/prod\n")
    (tmp_path / "deploy.sh").chmod(0o755)
    variables = "GITHUB_ACTOR=alice GITHUB_REPOSITORY=shop/web GITHUB_SHA=4711 CI_PROJECT_PATH=shop/web CI_JOB_URL=4711"
    done = tried([f"export DLOCK_URL=file://{tmp_path} {variables}", script], tmp_path)
    assert done.returncode == 0 and re.search(r'holder +alice.*"shop/web[@ ]4711"', done.stdout), done.stdout


def test_the_script_of_the_readme_holds_its_lock(dlock, tmp_path):
    script = block_with("joins the hold")
    for program, does in (("build", "dlock status deploy"), ("copy", 'echo "copying with $DLOCK_TOKEN"')):
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    done = tried([f"export DLOCK_URL=file://{tmp_path}; {script} dlock status deploy"], tmp_path)
    assert done.returncode == 1, done.stdout
    assert "is held" in done.stdout and "copying with " in done.stdout and done.stdout.rstrip().endswith("is free")


def test_the_configuration_of_the_readme_can_be_used(dlock, tmp_path):
    (tmp_path / "conf").write_text(block_with("password-file=/etc/dlock"))
    assert "redis://dlock@10.0.0.5" in dlock.run("config", "--config", tmp_path / "conf", "-k", "x").stdout


def test_the_fence_of_the_readme_keeps_late_ones_out(tmp_path):
    (tmp_path / "publish.sh").write_text(block_with("# publish.sh: "))
    (tmp_path / "publish.sh").chmod(0o755)
    done = tried(['sqlite3 r.db "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER);'
                  "INSERT INTO report VALUES (7, '', 0)\"",
                  "dlock run -b file -k report -- ./publish.sh first", "dlock run -b file -k report -- ./publish.sh second",
                  "DLOCK_TOKEN=1795233364755580 ./publish.sh late; echo $?", 'sqlite3 r.db "SELECT body FROM report"'], tmp_path)
    assert done.stdout == "a newer holder was here: nothing written\n1\nsecond\n"


def make_programs(directory, *names, does='echo "$(basename $0) $*" >>ran'):
    for name in names:
        (directory / name).write_text(f"#!/bin/sh\n{does}\n")
        (directory / name).chmod(0o755)


def test_the_examples_of_the_manual_run_their_commands(dlock, tmp_path, make_redis, zk_server, db):
    """Each line as written, but for the servers, on one of each kind."""
    lines = typed(MANUAL)
    make_programs(tmp_path, "backup.sh", "make", "manage", "nightly", "read-cache", "rebuild-cache", "rep", "job")
    make_programs(tmp_path, "train", does='echo "train on $CUDA_VISIBLE_DEVICES" >>ran')
    redis, script = make_redis().url, []
    for line in lines:
        cron = line.startswith("5 2 * * *  ")
        line = line.removeprefix("5 2 * * *  ").replace("\\%", "%") if cron else line
        line = re.sub(r"redis://[\d.]+", redis, re.sub(r"zk://[\d.,]+", zk_server.url, line.replace("postgresql://app@db/app", db.url)))
        line = re.sub(r"^DLOCK_URL=", "export DLOCK_URL=", line)
        if line.startswith("PATH="):
            continue
        if "--once" in line:  # another day
            script.append(f"export DLOCK_URL={redis}/1")
        script += [line] * (2 if cron or "--cooldown" in line else 1)
        if line.startswith("dlock status"):
            script.append('echo "status $?"')
    done = tried(script, tmp_path)
    said = done.stdout.splitlines()
    assert (done.returncode, said[0].endswith("is free"), said[1]) == (0, True, "status 1"), done.stdout
    assert len(said) == 3 and json.loads(said[2])["verdict"] == "ended", done.stdout
    ran = ["backup.sh", "make deploy", "manage migrate", "nightly", "nightly", "nightly", "read-cache", "rebuild-cache",
           "train on 0", "rep", "job"]
    assert [line.strip() for line in (tmp_path / "ran").read_text().splitlines()] == ran
    again = tmp_path / "again"  # since the program is busy here
    again.mkdir()
    make_programs(again, "job")
    holder = dlock.start("run", "-u", f"file://{again}", "-k", "x", "sleep", "1000").held()
    done = tried(lines[-2:], again)
    assert json.loads(done.stdout.splitlines()[-1])["verdict"] == "busy", done.stdout
    holder.destroy()


def test_the_examples_of_hold_are_as_shown(dlock, tmp_path):
    make_programs(tmp_path, "build", does="dlock status deploy/prod")
    make_programs(tmp_path, "copy", does='echo "copying with $DLOCK_TOKEN"')
    page, export = "man/dlock-hold.1", f"export DLOCK_URL=file://{tmp_path}"
    (tmp_path / "deploy").write_text(f"{block_with('joins the hold', page)}dlock status deploy/prod")
    done = tried([export, "sh deploy"], tmp_path)
    assert (done.returncode, done.stdout.rstrip().endswith("is free")) == (1, True), done.stdout
    assert '"release 4.2"' in done.stdout and re.search(r"^copying with \d+$", done.stdout, re.M), done.stdout
    pid, named = done.stdout.split("(pid ")[1].split(" ")[0], re.search(r"running (\w+)", done.stdout)[1]
    assert named == "sh" and pid.isdigit(), done.stdout  # of the process that it is held for
    (hold, release), answers = example("--for 30m", page)
    done = tried([export, f"handle=$({hold})", 'echo "$handle"', "dlock status deploy/prod", re.sub(r"@dlock-\S+", '"$handle"', release),
                  "dlock status deploy/prod || true"], tmp_path)
    assert done.returncode == 0 and '"looking at the database"' in done.stdout and done.stdout.rstrip().endswith("is free"), done.stdout
    assert re.fullmatch(r"@dlock-[0-9a-f]{32}/\d+", done.stdout.splitlines()[0]) and re.fullmatch(r"@dlock-[0-9a-f]{32}/\d+", answers[0])


def test_the_examples_of_status_are_as_shown(dlock, tmp_path, make_redis):
    page, redis = "man/dlock-status.1", make_redis().url
    (tmp_path / "make").symlink_to("/bin/sleep")
    jobs = [f"dlock run -q -k deploy/prod --who {who} --why '{why}' -- ./make {n} &"
            for who, why, n in (("carol@ci-3", "release 4.2", 9), ("bob@laptop", "hotfix 4711", 0))]
    commands, answers = example("deploy/prod", page)
    assert_answers(tried([f"export DLOCK_URL={redis}", jobs[0], "sleep 2", jobs[1], "sleep 2", *commands, "kill %1; wait"], tmp_path), answers)
    listing, waiting = [line for line in typed(page) if line.startswith("dlock ")][-2:]
    make_programs(tmp_path, "report.sh", does="echo reported")
    crowd = ["for i in 1 2 3 4 5 6; do dlock run -q -k crowd -- true & done"]
    done = tried([f"export DLOCK_URL=file://{tmp_path}", "dlock run -k crowd -- sleep 4 &", "dlock run -k pair -- sleep 4 &",
                  "sleep 1", *crowd, "sleep 1", listing, waiting, "wait"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "crowd\nreported\n")


def test_the_script_of_break_takes_the_lock_from_the_holder_it_has_seen(dlock, tmp_path):
    words = ["-u", f"file://{tmp_path}", "-k", "deploy"]
    holder = dlock.start("run", *words, "-t", "3s", "sleep", "1000").held()
    done = tried([f"export DLOCK_URL=file://{tmp_path}", *typed("man/dlock-break.1")], tmp_path)
    assert (done.returncode, holder.wait().status) == (0, 79) and "given the lock up" in done.stdout, done.stdout


def test_the_fence_of_the_manual_keeps_late_ones_out():
    update, wrote = block_with("UPDATE report", BACKENDS), []
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER)")
    db.execute("INSERT INTO report VALUES (7, '', 0)")
    for body, token in (("first", 17), ("second", 23), ("late", 17)):
        wrote.append(db.execute(update, {"body": body, "token": token}).rowcount)
    assert (wrote, db.execute("SELECT body FROM report").fetchall()) == ([1, 1, 0], [("second",)])
    db.close()


TRIED = {"-k demo", "make demo", "apt-get install make", "dlock run -k KEY -- COMMAND", "--once", "joins the hold", "runs-on", "# publish.sh: ",
         "password-file=/etc/dlock"}


def test_each_block_of_the_readme_is_tried():
    assert [block for block in blocks(README) if not any(marker in block for marker in TRIED)] == []
    assert len(blocks(README)) == len(TRIED)


def test_the_readme_is_short():
    assert len(text_of(README).splitlines()) <= 220


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh"])
def test_a_script_can_take_its_lock_by_itself(dlock, tmp_path, shell):
    line = block_with("= :locked", RECIPES)
    script = tmp_path / "nightly.sh"
    script.write_text(f'#!/usr/bin/env {shell}\n{line}set -u\necho "$#" "$1" "$DLOCK_KEY"\n')
    script.chmod(0o755)
    done = tried(["./nightly.sh 'a  b' c"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "2 a  b nightly\n")
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "nightly", "sleep", "1000").held()
    done = tried(["./nightly.sh 'a  b' c"], tmp_path)
    assert (done.returncode, done.stdout.count("\n")) == (75, 1) and "held by" in done.stdout
    # the variables of another run, as sbatch, at and tmux hand them on, prove nothing
    done = tried(["export DLOCK_KEY=nightly DLOCK_TOKEN=7", "./nightly.sh 'a  b' c"], tmp_path)
    assert (done.returncode, done.stdout.count("\n")) == (75, 1) and "held by" in done.stdout
    holder.destroy()


def test_the_overview_names_the_manuals(dlock):
    """Those of single backends by an example."""
    said = dlock.run("help").stdout
    assert all(len(line) <= 80 for line in said.splitlines())
    assert [page for page in MANUALS if page not in OUTLINED and not occurs(pathlib.Path(page).stem, said)] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces everywhere")
def test_dlock_can_be_process_1(dlock, tmp_path):
    """As its manual says: signals reach the command, a wait ends by SIGTERM, and no zombies are left."""
    island = ["-fp", "--mount-proc", DLOCK, "run", "-u", f"file://{tmp_path}", "-k", "one"]
    script = "(sleep 0.1 &) ; trap 'exit 3' TERM; sleep 0.5; until ps -eo pid,stat,comm >ps; ! grep -q ' Z' ps; do sleep 0.1; done; cat ps; echo ready; sleep 1000 & wait"
    first = dlock.start(*island, "sh", "-c", script, program=shutil.which("unshare"), events=False, cwd=tmp_path)
    wait_for(lambda: "ready" in first.stdout())
    assert re.search(r"^ +1 S\S* +dlock$", first.stdout(), re.M), first.stdout()
    second = dlock.start(*island, "true", program=shutil.which("unshare"), events=False)
    wait_for(lambda: "waiting" in second.stderr())
    for process, status in ((second, 128 + signal.SIGTERM), (first, 3)):
        kill(next(pid for pid in children_of(process.pid)), signal.SIGTERM)
        assert process.wait().status in (status, -signal.SIGTERM if status > 128 else status)


def test_the_manuals_link_to_each_other(tmp_path):
    """make html: each page of dlock's that another one names is a link to a page that is there."""
    made = subprocess.run(["make", "-C", ROOT, f"O={tmp_path}", "html"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "html").glob("*.html")}
    assert set(pages) == {f"{pathlib.Path(name).name}.html" for name in MANUALS}
    for name, text in pages.items():
        assert set(re.findall(r'href="([^"#]+)"', text)) <= set(pages), name
        assert not re.search(r"<b[^>]*>dlock[\w.-]*</b>\(\d\)", text), name


def test_each_backend_has_its_variable_in_the_manuals(dlock):
    names = re.findall(r"^  (\w+) +\S", dlock.run("version").stdout, re.M)
    assert len(names) >= 6
    for page in ("man/dlock.1", "man/dlock.conf.5"):
        assert [n for n in names if f"DLOCK_{n.upper()}_URL" not in text_of(page)] == [], page


def test_the_story_of_the_manual_is_true(dlock, make_redis, tmp_path):
    """All that dlock says in it is said, when somebody does the same."""
    story = re.search(r"^\.Sh ON CALL$(.*?)(?=^\.Sh )", text_of("man/dlock-break.1"), re.M | re.S)[1]
    told = [re.sub(r"\n +", " ", line) for line in re.findall(r"^dlock: .*(?:\n  .*)*", story, re.M)]
    shown = re.findall(r"^(?:deploy/prod \(redis|  holder|  waiting|  frozen| +since ).*", story, re.M)
    job = tmp_path / "make"
    job.write_text("#!/bin/sh\ntrap 'sleep 2; exit' TERM\nsleep 1000 &\nwait\n")
    job.chmod(0o755)
    words = ["-u", make_redis().url, "-k", "deploy/prod"]
    carol = dlock.start("run", *words, "-t", "9s", "--grace", "3s", "--who", "carol@ci-3", "--why", "release 4.2", job).held()
    (tmp_path / "bob").mkdir()
    make_programs(tmp_path / "bob", "make", does="")
    bob = dlock.start("run", *words, "--who", "bob@laptop", "--why", "hotfix 4711", tmp_path / "bob" / "make")
    wait_for(lambda: re.search(r"waiting \S+, next in line", bob.stderr()))
    bob_too = ["--who", "bob@laptop", "--why"]
    looks = dlock.run("status", *words).stdout
    done = [dlock.run("break", *words, "-y", *bob_too, "hotfix 4711, the deploy hangs"), carol.wait(), bob.wait(),
            dlock.run("freeze", *words, *bob_too, "Carol looks into it first", "--for", "24h"),
            dlock.run("run", *words, "-n", "true")]
    looks += dlock.run("status", *words).stdout
    done.append(dlock.run("thaw", *words, "-y"))
    assert [d.status for d in done] == [0, 79, 0, 0, 75, 0]
    assert len(shown) == 7 and shape(shown) == shape(looks.splitlines()), looks
    said = shape("".join(d.stderr for d in done).splitlines())
    assert len(told) == 8 and [line for line in shape(told) if line not in said] == [], said
