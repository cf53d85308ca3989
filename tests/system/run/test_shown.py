# Goal of these tests: others are shown of a run what it has said of itself, in the same words wherever they look:
# until when it keeps the lock, at least and at most, and the arguments of its command only where it wants that.

import datetime
import json
import re
import subprocess

import pytest

from support import FilePlace

CLOCK = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d( \w+)?"  # at night it is another day


@pytest.fixture
def files(request):
    return FilePlace(request)


@pytest.fixture
def seen(dlock, files):
    """What is said of the holder: by JSON, by status, by a run that finds it busy, and in a column of ls."""

    def look(column):
        words = (*files.words, "-k", files.key())
        one, = json.loads(dlock.run("status", "-J", *words).stdout)["holders"]
        return (one, dlock.run("status", *words).stdout, dlock.run("run", "-n", *words, "true").stderr,
                dlock.run("ls", *files.words, "-n", "-o", column).stdout.strip())

    return look


def seconds(one, name):
    times = [datetime.datetime.strptime(one[which], "%Y-%m-%dT%H:%M:%S.%f%z") for which in ("since", name)]
    return (times[1] - times[0]).total_seconds()


@pytest.mark.parametrize("words, kept, ends", [
    ((), None, None), (("--min-hold", "1h"), 3600, None), (("--max-run", "2h", "--grace", "4s"), None, 7204),
    (("--min-hold", "1h", "--max-run", "2h", "--grace", "4s"), 3600, 7204), (("--min-hold", "3h", "--max-run", "2h"), 10800, 10800),
    (("--min-hold", "1h", "-k", "other"), None, None)])  # which would have another time for each key
def test_until_when_it_keeps_the_lock(dlock, files, seen, words, kept, ends):
    held = dlock.hold(files, files.key(), *words)
    one, status, busy, column = seen("ends")
    for name, length, says in (("kept_until", kept, rf", kept until {CLOCK} \(--min-hold\)"), ("ends_by", ends, rf", ends at {CLOCK} at the latest")):
        assert (one[name] and seconds(one, name)) == length
        for text in (status, busy):
            assert bool(re.search(says, text)) == bool(length), text
    assert bool(re.fullmatch(CLOCK, column)) == bool(ends), column
    assert one["ttl_s"] == 30 and one["renewed_s"] is None  # of a kernel's lock
    dlock.run("break", *files.words, "-y", files.key())
    held.wait()


def test_a_hold_for_a_time_tells_its_end(dlock, files, seen):
    handle = dlock.run("hold", *files.words, "-k", files.key(), "--for", "90m").stdout.strip()
    one, status, busy, _ = seen("ends")
    assert seconds(one, "ends_by") == 5400 and "at the latest" in status and "at the latest" in busy
    assert dlock.run("release", handle).status == 0


ARGUMENTS = ["prod", "it's", "", "\x1b[2J", "redis://u:secret@h"]
SHOWN = r"""prod 'it'\''s' '' ' [2J' redis://u:xxxxxx@h"""


@pytest.mark.parametrize("how", ["--show-arguments", "variable", "file", None])
def test_arguments_are_shown_where_that_is_wanted(dlock, files, seen, tmp_path, how):
    words, env = [], {}
    if how == "variable":
        env = {"DLOCK_SHOW_ARGUMENTS": "yes"}
    elif how == "file":
        (tmp_path / "conf").write_text("show-arguments = yes\n")
        words = ["--config", str(tmp_path / "conf")]
    elif how:
        words = [how]
    command = ["sh", "-c", "read x || :", "prod", *ARGUMENTS[1:]]
    shown = "sh -c 'read x || :' " + SHOWN
    held = dlock.start("run", *files.words, "-k", files.key(), *words, "--", *command, env=env, stdin=subprocess.PIPE).held()
    one, status, busy, column = seen("command")
    assert one["command"] == "sh" and one["arguments"] == (shown[3:] if how else None)
    quoted = f'"{shown}"'.replace("\\", "\\\\") if how else "sh"
    assert f"running {quoted})" in status and f"running {quoted})" in busy and column == quoted
    assert how or b"prod" not in files.stored()
    assert held.finish().status == 0


def test_a_password_in_an_argument_is_hidden_also_where_the_word_is_quoted(dlock, files, seen):
    command = ["sh", "-c", "read x || :", "psql", "host=db password='s3cret' user=u", "redis://u:my s3cret@h"]
    held = dlock.start("run", *files.words, "-k", files.key(), "--show-arguments", "--", *command, stdin=subprocess.PIPE).held()
    assert b"s3cret" not in files.stored()
    shown = seen("command")[0]["arguments"]
    assert "s3cret" not in shown and "my" not in shown and "user=u" in shown and shown.endswith("@h'"), shown
    assert held.finish().status == 0


def test_a_hold_shows_the_arguments_of_its_process(dlock, files, seen):
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        for words, shown in (((), None), (("--show-arguments",), "1000")):
            handle = dlock.run("hold", *files.words, "-k", files.key(), "--pid", sleeper.pid, *words).stdout.strip()
            one = seen("key")[0]
            assert (one["pid"], one["command"], one["arguments"]) == (sleeper.pid, "sleep", shown)
            assert dlock.run("release", handle).status == 0
    finally:
        sleeper.kill()
        sleeper.wait()
