# Goal of these tests: status, ls and wait tell what is there, harmlessly, on a terminal, in a pipe and
# as JSON, whatever stands on the server.  A fake backend answers; promises/test_looks.py has the real ones.

import contextlib
import datetime
import json
import os
import random
import re
import resource
import signal
import subprocess
import time
import unicodedata

import pytest

import support
from support import DLOCK_TEST, PATIENCE, Late, kill, wait_for

pexpect = Late("pexpect")

SECOND = 1_000_000
NOW = 1_764_000_000 * SECOND  # microseconds since the epoch: 2025-11-24T16:00:00Z
TOP = ["v", "key", "backend", "server", "state", "kind", "limit", "holders", "waiters", "frozen", "last", "last_success"]
HOLDER = ["token", "owner", "slot", "who", "host", "pid", "command", "arguments", "why", "since", "held_s", "lease_left_s", "ttl_s", "renewed_s",
          "kept_until", "ends_by", "revoked", "foreign"]
WAITER = ["position", "kind", "who", "host", "pid", "command", "arguments", "why", "since", "waiting_s", "newest"]
COLUMNS = ("KEY", "STATE", "KIND", "HOLDER", "HOST", "PID", "HELD", "WAITING", "WHY")


@pytest.fixture(scope="module", autouse=True)
def with_the_fake():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "DLOCK", DLOCK_TEST)
        yield


def escaped(value):
    """As fake_look.c reads it: any bytes on one line."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02X}" for b in data)


def entry(kind, **facts):
    facts.setdefault("now", NOW)
    return "\t".join([kind, *(f"{name}={escaped(value)}" for name, value in facts.items())]) + "\n"


def record(**members):
    return json.dumps({"pid": 4711, "who": "alice@ci-3", "host": "ci-3", "command": "deploy.sh", **members})


def holder(key="deploy", **facts):
    return entry("holder", key=key, **{"token": 7, "since": NOW - 133 * SECOND, "until": NOW + 21 * SECOND,
                                       "owner": "a" * 32, "record": record(why="release 4.2"), **facts})


def waiter(key="deploy", position=1, **facts):
    return entry("waiter", key=key, position=position,
                 **{"since": NOW - 41 * SECOND, "record": record(who=f"w{position}"), **facts})


def freeze(key="deploy", **facts):
    return entry("freeze", key=key,
                 **{"since": NOW - 3600 * SECOND, "record": '{"who":"bob@laptop","why":"weekend"}', **facts})


def last(key="deploy", **facts):
    return entry("last", key=key, **{"token": 5, "once": "2025-11-23", "status": 3, "since": NOW - 100 * SECOND,
                                     "until": NOW - 40 * SECOND, "record": record(), **facts})


class Shown:
    """A fake server that shows what a test says."""

    def __init__(self, dlock, directory):
        self.dlock, self.file = dlock, directory / "look"

    def show(self, *lines):
        replaced = self.file.with_suffix(".new")
        replaced.write_text("".join(lines))
        replaced.rename(self.file)
        return self

    def words(self, cmd, *words):
        return [cmd, "-b", "fake", "-O", f"look={self.file}", *words]

    def run(self, cmd, *words, **options):
        return self.dlock.run(*self.words(cmd, *words), **options)

    def start(self, cmd, *words, **options):
        return self.dlock.start(*self.words(cmd, *words), **options)

    def objects(self, cmd, *words):
        """What it prints with -J, each line checked."""
        done = subprocess.run([DLOCK_TEST, *self.words(cmd, "-J", *words)], env=self.dlock.env, capture_output=True,
                              check=False)
        assert done.returncode in (0, 1) and done.stderr == b"", done
        return objects_in(done.stdout.decode())  # it is UTF-8

    def object(self, key="deploy"):
        result, = self.objects("status", "-k", key)
        return result

    def terminal(self, cmd, *words, columns=80, rows=24, **env):
        return pexpect.spawn(DLOCK_TEST, self.words(cmd, *words), encoding="utf-8", timeout=PATIENCE,
                             env={**self.dlock.env, "TERM": "vt100", **env}, dimensions=(rows, columns))

    def on_terminal(self, cmd, *words, **options):
        """All that comes out there, with its escape sequences, in lines."""
        terminal = self.terminal(cmd, *words, **options)
        terminal.expect(pexpect.EOF)
        terminal.close()
        return terminal.before.replace("\r\n", "\n").splitlines()


def objects_in(text):
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), "control characters"
    objects = [json.loads(line) for line in text.splitlines()]
    for one in objects:  # each line says when it was written, by our clock
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"])
        assert abs(datetime.datetime.strptime(one.pop("time"), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() - time.time()) < PATIENCE
    return objects


def without_colours(line):
    return re.sub(r"\x1b\[[\d;]*m", "", line)


def width(text):
    """In columns of a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@pytest.fixture
def shown(dlock, tmp_path):
    return Shown(dlock, tmp_path).show()


# ---- status ----


def test_status_of_a_free_lock_is_1_and_of_others_0(shown):
    assert (shown.run("status", "deploy").status, shown.run("status", "deploy").stdout) == (1, "deploy (fake) is free\n")
    shown.show(holder())
    assert shown.run("status", "-k", "deploy").status == 0
    assert shown.run("status", "other").status == 1
    assert shown.run("status", "other", "deploy").status == 0, "one of them"
    shown.show(freeze())
    assert shown.run("status", "deploy").status == 0


def test_status_tells_a_person_all_that_is_known(shown):
    shown.show(holder(), waiter(), waiter(position=2, lock=2), freeze(), last())
    done = shown.run("status", "deploy", env={"TZ": "UTC"})
    assert done.stdout == """\
deploy (fake) is held, and frozen for others
  holder    alice@ci-3 (pid 4711 on ci-3, running deploy.sh) "release 4.2"
            since 2025-11-24 15:57:47 UTC (2m13s ago), lease ends in 21s, token 7
  waiting 1 w1 (pid 4711 on ci-3, running deploy.sh) for 41s
          2 w2 (pid 4711 on ci-3, running deploy.sh) as a reader for 41s
  frozen    by bob@laptop "weekend"
            since 2025-11-24 15:00:00 UTC, until dlock thaw
  last run  ID 2025-11-23 by alice@ci-3, status 3
            began 2025-11-24 15:58:20 UTC, took 1m00s, token 5
"""
    assert done.stderr == ""


@pytest.mark.parametrize("since, until, length, late", [
    (-60, 3540, 3600, False), (-60, 3540, None, False), (2, 3602, 3600, False), (7200, 10800, 3600, True), (7200, 10800, None, True),
    (-60, 7200, 3600, True), (-60, -1, 3600, False), (1 << 40, (1 << 40) + 9, 3600, True), (-1 << 40, 1 << 40, 1 << 50, False)])
def test_a_freeze_that_ends_later_than_was_asked_for_is_shown_as_such(shown, since, until, length, late):
    """A clock was ahead when it began, or its end is another than its length says."""
    facts = {"until": -1 if until == -1 else NOW + until * SECOND, "since": NOW + since * SECOND}
    shown.show(freeze(**facts, record=json.dumps({"who": "bob", **({"for_ms": length * 1000} if length else {})})))
    done = shown.run("status", "deploy")
    assert done.status == 0 and ("later than was asked for" in done.stdout) == late, done
    assert shown.object()["frozen"]["late"] == late


def test_status_counts_readers_and_slots(shown):
    shown.show(holder(lock=2), holder(lock=2, token=8, record=record(who="bob")))
    out = shown.run("status", "deploy").stdout
    assert out.startswith("deploy (fake) is held: 2 readers\n") and "bob" in out
    shown.show(holder(lock=3, limit=4, slot=0), holder(lock=3, limit=4, slot=2, token=8))
    out = shown.run("status", "deploy").stdout
    assert out.startswith("deploy (fake) is held: 2 of 4 slots taken\n") and ", slot 2, token 8" in out


def test_status_lists_no_more_than_a_person_reads(shown):
    shown.show(holder(), *(waiter(position=n) for n in range(1, 501)))
    lines = shown.run("status", "deploy").stdout.splitlines()
    assert len(lines) == 24 and lines[-1].endswith("and 480 more (-J lists them)")
    assert len(shown.object()["waiters"]) == 500


def test_a_marked_holder_is_shown_as_such(shown):
    shown.show(holder(revoked=1))
    assert ", asked to give it back" in shown.run("status", "deploy").stdout


def test_status_as_an_object(shown):
    shown.show(holder(), waiter(), waiter(position=2, lock=2), freeze(until=NOW + 60 * SECOND), last())
    found = shown.object()
    assert list(found) == TOP
    assert {k: found[k] for k in TOP[:7]} == {"v": 1, "key": "deploy", "backend": "fake", "server": "fake", "state": "held",
                                              "kind": "exclusive", "limit": None}
    one, = found["holders"]
    assert list(one) == HOLDER
    assert one == {"token": 7, "owner": "a" * 32, "slot": None, "who": "alice@ci-3", "host": "ci-3", "pid": 4711,
                   "command": "deploy.sh", "why": "release 4.2", "since": "2025-11-24T15:57:47.000Z", "held_s": 133,
                   "lease_left_s": 21, "revoked": False, "foreign": False,
                   **dict.fromkeys(("arguments", "ttl_s", "renewed_s", "kept_until", "ends_by"))}  # of an older dlock
    assert [list(w) for w in found["waiters"]] == [WAITER, WAITER]
    assert found["waiters"][1] == {"position": 2, "kind": "shared", "who": "w2", "host": "ci-3", "pid": 4711,
                                   "command": "deploy.sh", "arguments": None, "why": None, "since": "2025-11-24T15:59:19.000Z",
                                   "waiting_s": 41,
                                   "newest": None}
    assert found["frozen"] == {"who": "bob@laptop", "why": "weekend", "since": "2025-11-24T15:00:00.000Z",
                               "until": "2025-11-24T16:01:00.000Z", "late": False}
    assert found["last"] == {"id": "2025-11-23", "who": "alice@ci-3", "began": "2025-11-24T15:58:20.000Z",
                             "ended": "2025-11-24T15:59:20.000Z", "took_s": 60, "status": 3, "token": 5, "job": True}
    assert found["last_success"] is None


def test_a_holder_tells_how_long_its_lease_is(shown):
    said = {"ttl": 30000, "keep_ms": 600000, "end_ms": 3600000, "arguments": "a 'b c'"}
    one, = shown.show(holder(record=record(**said)), holder(key="other", until=NOW + 9 * SECOND, record=record(**said))).object()["holders"]
    assert {name: one[name] for name in ("lease_left_s", "ttl_s", "renewed_s", "kept_until", "ends_by", "arguments")} == {
        "lease_left_s": 21, "ttl_s": 30, "renewed_s": 9, "kept_until": "2025-11-24T16:07:47.000Z", "ends_by": "2025-11-24T16:57:47.000Z",
        "arguments": "a 'b c'"}
    for key, says in (("deploy", "renewed 9s ago"), ("other", "not renewed for 21s, free in 9s at the latest")):
        assert shown.run("status", key, env={"TZ": "UTC"}).stdout.splitlines()[1:] == [
            """  holder    alice@ci-3 (pid 4711 on ci-3, running "deploy.sh a 'b c'")""",
            f"            since 2025-11-24 15:57:47 UTC (2m13s ago), {says}, kept until 16:07:47 (--min-hold), ends at 16:57:47 at the latest,"
            " token 7"]
    assert shown.run("ls", "-n", "-o", "left,renewed,ends,command", "other", env={"TZ": "UTC"}).stdout.split(None, 3) == [
        "9s", "21s", "2025-11-24", "16:57:47 UTC \"deploy.sh a 'b c'\"\n"]


def test_an_object_of_what_is_free(shown):
    found = shown.object()
    assert list(found) == TOP
    assert (found["state"], found["kind"], found["holders"], found["waiters"], found["frozen"], found["last"]) == \
        ("free", None, [], [], None, None)


def test_what_is_not_known_is_null(shown):
    shown.show(entry("holder", key="deploy", slot=-1, since=-1, until=-1), entry("waiter", key="deploy"), freeze(since=-1),
               entry("last", key="deploy"))
    found = shown.object()
    assert found["holders"] == [{**dict.fromkeys(HOLDER), "revoked": False, "foreign": False}]
    assert found["waiters"] == [{**dict.fromkeys(WAITER), "position": 1, "kind": "exclusive"}]
    assert found["frozen"] == {"who": "bob@laptop", "why": "weekend", "since": None, "until": None, "late": False}
    assert found["last"] == {"id": None, "who": None, "began": None, "ended": None, "took_s": None, "status": 0, "token": None,
                             "job": True}
    assert "somebody" in shown.run("status", "deploy").stdout


def test_states_and_kinds_as_objects(shown):
    shown.show(holder(lock=3, limit=4, slot=2), freeze("ice"), waiter("queue"), holder("read", lock=2), holder("write", lock=1))
    found = {o["key"]: (o["state"], o["kind"], o["limit"], o["waiting"]) for o in shown.objects("ls")}
    assert found == {"deploy": ("held", "limit", 4, 0), "ice": ("frozen", None, None, 0), "queue": ("free", None, None, 1),
                     "read": ("held", "shared", None, 0), "write": ("held", "exclusive", None, 0)}
    assert shown.object()["holders"][0]["slot"] == 2


def test_who_is_no_dlock_is_listed_with_what_is_known(shown):
    shown.show(entry("holder", key="deploy", foreign="an advisory lock", who="psql", host="10.0.0.3", pid=99),
               entry("waiter", key="deploy", foreign="a lock of Curator, session 0x10"))
    found = shown.object()
    assert found["holders"][0] == {**dict.fromkeys(HOLDER), "who": "psql", "host": "10.0.0.3", "pid": 99, "revoked": False, "foreign": True,
                                   "what": "an advisory lock"}
    out = shown.run("status", "deploy").stdout
    assert "psql (an advisory lock) (pid 99 on 10.0.0.3)" in out and "a lock of Curator, session 0x10" in out
    assert "psql" in shown.run("ls").stdout


def test_a_key_that_is_used_by_what_is_no_lock(shown):
    shown.show(entry("unknown", key="deploy", what="a list"))
    done = shown.run("status", "deploy")
    assert (done.status, done.stdout) == (0, "deploy (fake) is held by something that is no lock: a list\n")
    assert shown.object() == {**dict.fromkeys(TOP), "v": 1, "key": "deploy", "backend": "fake", "server": "fake",
                              "state": "held", "holders": [], "waiters": [], "unknown": "a list"}
    assert shown.run("wait", "-n", "deploy").status == 75


# ---- hostile records ----

HOSTILE = [
    b"", b"x", b"[]", b"null", b"{}", b'{"who":', b'{"who":"a","who":"b"}', b'{"who":"a\\u0000b"}', b'{"who":"\xff"}',
    b'{"who":7,"host":[],"pid":"x","command":{},"why":null}', b'{"pid":-1}', b'{"pid":99999999999999999999}', b'{"pid":1e300}',
    '{"who":"\\u001b[2J\\u001b]0;x\\u0007\\n\\r\\t\u202e\u2066\u200b\u009b31m"}'.encode(), b'{"who":"\\ud800"}',
    b'{"who":"' + b"x" * (1 << 20) + b'"}', b"[" * 100000, '{"who":"界' .encode() + b"\xe7" * 3, b'{"why":"%s%n%99999999d"}',
    '{"who":"{}"}'.replace("{}", "é" * 3000).encode(), b'{"who":"root 1 held exclusive","why":"\\n  holder    eve"}',
    '{"who":"\u0301\u0301\u0301","command":"\u3000"}'.encode(),
]


def assert_harmless(text):
    for c in text:
        assert c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs"), repr(c)


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_record_is_harmless(shown, data):
    shown.show(holder(record=data), waiter(record=data), freeze(record=data), last(record=data, once=data[:2000]),
               holder("second"))
    done = shown.run("status", "deploy")
    assert done.status == 0
    assert_harmless(done.stdout)
    assert done.stdout.count("\n") == 8, "no line of its own making"
    found = shown.object()
    assert list(found) == TOP and len(found["holders"]) == len(found["waiters"]) == 1
    assert found["holders"][0]["token"] == 7, "what the server says of it is there"
    done = shown.run("ls")
    assert_harmless(done.stdout)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["KEY", "deploy", "second"]
    assert [o["key"] for o in shown.objects("ls")] == ["deploy", "second"]
    for line in shown.on_terminal("ls"):
        assert_harmless(without_colours(line))
    assert shown.run("wait", "-n", "deploy").stderr.count("\n") == 1


def test_hostile_bytes_everywhere(shown):
    chance = random.Random(7)

    def noise():
        n = chance.choice([0, 3, 30, 700])
        return bytes(chance.choice([chance.randrange(1, 256), 27, 0xe2, 0x80, 0xae, 34, 92]) for _ in range(n))

    for _ in range(30):
        numbers = {n: chance.choice([-1, 0, 7, 1 << 40, (1 << 63) - 1, -(1 << 63)]) for n in ("since", "until", "now")}
        shown.show(holder(record=noise(), owner=noise(), lock=chance.randrange(4), limit=chance.choice([0, 1, 1 << 31]), **numbers),
                   entry("holder", key="deploy", foreign=noise(), who=noise(), host=noise(), pid=chance.choice([-7, 0, 1 << 62])),
                   freeze(record=noise(), **numbers), last(once=noise(), status=chance.choice([-1, 0, 1 << 30]), **numbers),
                   entry("unknown", key="deploy", what=noise()), holder(b"\x1b[2J" + noise()[:100] + b"x"))
        done = shown.run("status", "deploy")
        assert done.status == 0
        assert_harmless(done.stdout)
        assert list(shown.object())[:len(TOP)] == TOP
        assert_harmless(shown.run("ls").stdout)
        assert len(shown.objects("ls")) == 2


def test_passwords_are_shown_to_nobody(shown):
    secret = "redis://u:s3cret@h/ postgres://h/?password=s3cret password='s3cret'"
    shown.show(holder(record=record(who=secret, why=secret, command=secret, host=secret)),
               waiter(record=record(why=secret)), freeze(record=record(why=secret)), last(once=secret))
    for words in (["status", "deploy"], ["status", "-J", "deploy"], ["ls"], ["ls", "-J"], ["wait", "-n", "deploy"]):
        done = shown.run(*words)
        assert "s3cret" not in done.stdout + done.stderr


def test_a_record_of_one_lock_is_never_anothers(shown):
    shown.show(holder("a", record=b"{"), holder("b"), waiter("c"), holder("d", record=b""))
    who = {o["key"]: [h["who"] for h in o["holders"]] for o in shown.objects("ls")}
    assert who == {"a": [None], "b": ["alice@ci-3"], "c": [], "d": [None]}


# ---- ls ----


def test_ls_has_a_line_for_each_lock(shown):
    shown.show(holder(), waiter(), holder("nightly", record=record(who="root@db2", host="db2", pid=12, why=None)), freeze("ice"))
    lines = shown.run("ls").stdout.splitlines()
    assert tuple(lines[0].split()) == COLUMNS
    assert lines[1].split() == ["deploy", "held", "exclusive", "alice@ci-3", "ci-3", "4711", "2m13s", "1", '"release', '4.2"']
    assert lines[2].split() == ["nightly", "held", "exclusive", "root@db2", "db2", "12", "2m13s", "0", "-"]
    assert lines[3].split() == ["ice", "frozen", "-", "bob@laptop", "-", "-", "1h00m", "0", '"weekend"']
    assert len({line.index(word) for line, word in zip(lines, ("STATE", "held", "held", "frozen"))}) == 1
    assert all(why in shown.run("status", key).stdout for key, why in (("deploy", '"release 4.2"'), ("ice", '"weekend"')))


def test_ls_of_nothing_is_no_failure(shown):
    done = shown.run("ls")
    assert (done.status, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    assert (shown.run("ls", "-n").stdout, shown.run("ls", "-J").stdout) == ("", "")


def test_ls_lists_what_fits_a_pattern(shown):
    shown.show(*(holder(key) for key in ("deploy/prod", "deploy/test", "nightly", "[x]")))
    keys = lambda *words: [line.split()[0] for line in shown.run("ls", "-n", *words).stdout.splitlines()]
    assert keys() == ["deploy/prod", "deploy/test", "nightly", "[x]"]
    assert keys("deploy/*") == keys("*/[pt]*") == ["deploy/prod", "deploy/test"]
    assert keys("nightly") == ["nightly"]
    assert keys("\\[x]") == ["[x]"]
    assert keys("none*") == []
    assert [o["key"] for o in shown.objects("ls", "n*")] == ["nightly"]
    assert shown.run("ls", "a", "b").status == 64


def test_ls_held_over_is_an_alert_of_one_line(shown):
    """0: nothing has been held for so long; 1: these have been.  Whose time nobody knows does not count."""
    lines = [holder("new", since=NOW - 59 * SECOND), holder("old", since=NOW - 61 * SECOND), holder("unknown", since=-1),
             freeze("frozen"), holder("two", since=NOW - 5 * SECOND), holder("two", token=8, since=NOW - 7200 * SECOND)]
    shown.show(*lines)
    for over, keys in (("1m", ["old", "two"]), ("1h", ["two"]), ("2h", []), ("30d", [])):
        done = shown.run("ls", "--held-over", over, "-n", "-o", "KEY")
        assert (done.status, done.stdout.split(), done.stderr) == (1 if keys else 0, keys, "")
    done = shown.run("ls", "--held-over", "1m", "-J", "o*")
    assert done.status == 1 and [o["key"] for o in objects_in(done.stdout)] == ["old"]
    assert shown.run("ls", "--held-over", "1m", "n*").status == 0
    for words in (("--held-over", "0"), ("--held-over",), ("--held-over", "-1")):
        assert shown.run("ls", *words).status == 64


def test_ls_for_prometheus(shown):
    """Each metric's lines stand together, each key once, its bytes escaped; a look that fails prints nothing."""
    odd = 'a\\b"c'
    shown.show(holder("b", since=NOW - 133 * SECOND), holder("b", token=8, since=NOW - 7 * SECOND), waiter("b"), waiter("b", 2),
               holder(odd, since=-1), freeze("z"), holder(b"\xff", since=NOW), entry("holder", key="c"), freeze("z"), entry("holder", key="c"))
    done = shown.run("ls", "--format", "prometheus")
    assert done.status == 0 and done.stderr == ""
    lines = [line for line in done.stdout.splitlines() if not line.startswith("# HELP")]
    labels = [f'{{key="{key}",backend="fake"}}' for key in (r"\\xFF", r"a\\b\"c", "b", "c", "z")]
    odd, a, b, c, z = labels
    assert lines == ["# TYPE dlock_lock_holders gauge", *(f"dlock_lock_holders{at} {n}" for at, n in zip(labels, (1, 1, 2, 1, 0))),
                     "# TYPE dlock_lock_waiting gauge", *(f"dlock_lock_waiting{at} {n}" for at, n in zip(labels, (0, 0, 2, 0, 0))),
                     "# TYPE dlock_lock_frozen gauge", *(f"dlock_lock_frozen{at} {n}" for at, n in zip(labels, (0, 0, 0, 0, 1))),
                     "# TYPE dlock_lock_held_seconds gauge", f"dlock_lock_held_seconds{odd} 0", f"dlock_lock_held_seconds{b} 133"]
    done = shown.run("ls", "--format", "prometheus", "--held-over", "1m", "b")
    assert done.status == 1 and len([line for line in done.stdout.splitlines() if line[0] != "#"]) == 4
    assert shown.run("ls", "--format", "json").stdout.startswith('{"v":1,')
    assert shown.run("ls", "--format", "table").stdout.startswith("KEY ")
    for words in (("-J",), ("--watch",), ("-o", "KEY")):
        refused = shown.run("ls", "--format", "prometheus", *words)
        assert refused.status == 64 and "contradict" in refused.stderr
    assert shown.run("ls", "--format", "xml").status == 64
    broken = shown.run("ls", "-O", "script=bad", "--format", "prometheus")
    assert broken.status >= 64 and broken.stdout == ""


def test_ls_has_the_columns_that_are_named(shown):
    shown.show(holder(), waiter())
    done = shown.run("ls", "-o", "token,KEY,Waiting,left,holders,owner,command")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["TOKEN", "KEY", "WAITING", "LEFT", "HOLDERS", "OWNER", "COMMAND"],
        ["7", "deploy", "1", "21s", "1", "a" * 32, "deploy.sh"]]
    done = shown.run("ls", "-o", "key,pdi")
    assert done.status == 64 and done.stdout == "" and "'pdi'" in done.stderr
    assert all(name in done.stderr for name in COLUMNS)
    assert shown.run("ls", "-o", "").status == 64
    assert shown.run("ls", "-o", ",".join(["why"] * 99)).status == 64
    assert shown.run("ls", "-o", "key", "-J").status == 64


def test_columns_are_whole_where_there_is_no_terminal(shown):
    long = "k" * 500
    shown.show(holder(long, record=record(who="w" * 190, why="y" * 190)))
    line = shown.run("ls", "-n").stdout
    assert long in line and "w" * 190 in line and "y" * 190 in line


@pytest.mark.parametrize("columns", [30, 60, 80, 100, 132, 200])
def test_columns_fit_the_terminal_and_are_aligned(shown, columns):
    names = ["a", "deploy/production", "日本語キー", "e\u0301" * 9, "→" * 5, "k" * 300, "ключ", "界" * 40]
    shown.show(*(holder(n, record=record(who=n, host=n, why="hot fix " + n)) for n in names))
    lines = shown.on_terminal("ls", columns=columns, NO_COLOR="1")
    assert len(lines) == 1 + len(names) and all(width(line) < columns for line in lines)
    assert lines[0].split()[:2] == ["KEY", "STATE"]
    if columns >= 80:
        assert {"HOLDER", "PID", "HELD", "WAITING", "WHY"} < set(lines[0].split())
    if columns >= 100:
        assert tuple(lines[0].split()) == COLUMNS
    at = lines[0].index("STATE")
    if columns > 30:
        assert {width(line[:line.index(" held")]) + 1 for line in lines[1:]} == {at}
    if columns >= 80:
        assert {width(line[:line.index(" 4711")]) for line in lines[1:]} == {lines[0].index(" PID") - 1}


def test_colours_are_for_terminals_alone(shown):
    shown.show(holder(), freeze("ice"))
    for words in (["ls"], ["status", "deploy"]):
        assert any("\x1b[" in line for line in shown.on_terminal(*words))
        assert not any("\x1b" in line for line in shown.on_terminal(*words, NO_COLOR="1"))
        assert not any("\x1b" in line for line in shown.on_terminal(*words, TERM="dumb"))
        assert any("\x1b[" in line for line in shown.on_terminal(*words, NO_COLOR=""))
        assert "\x1b" not in shown.run(*words).stdout
        assert not any("\x1b" in line for line in shown.on_terminal(*words, "-J"))


def test_the_first_line_comes_at_once(shown):
    shown.show(holder("one"), holder("two"), "sleep 1500\n", holder("three"), "hang\n")
    started = shown.start("ls")
    wait_for(lambda: "\none " in started.stdout())
    assert started.poll() is None and "three" not in started.stdout()
    done = started.wait()
    assert done.status == 69 and "two" in done.stdout


def test_many_locks_need_no_memory(shown):
    shown.show("repeat 100000\n", holder("k%d"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    popen = subprocess.Popen([DLOCK_TEST, *shown.words("ls", "-n")], stdout=subprocess.PIPE, env=shown.dlock.env)
    rss, lines = 0, 0
    for line in popen.stdout:
        lines += 1
        if lines == 99000:
            with open(f"/proc/{popen.pid}/status", encoding="ascii") as f:
                rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
    assert popen.wait() == 0 and lines == 100000
    assert 0 < rss < 16384, (rss, before)


def test_a_reader_that_has_enough_ends_it(shown):
    shown.show("repeat 100000\n", holder("k%d"))
    done = subprocess.run(["sh", "-c", '"$@" | head -n 2', "sh", DLOCK_TEST, *shown.words("ls")], env=shown.dlock.env,
                          capture_output=True, text=True, check=False)
    assert (done.stdout.count("\n"), done.stderr) == (2, "")


@pytest.mark.parametrize("words", [["ls"], ["status", "deploy"], ["ls", "-J"], ["ls", "--watch=100ms"]])
def test_what_cannot_be_written_is_a_failure(shown, words):
    shown.show(holder())
    with open("/dev/full", "wb") as full:
        done = shown.start(*words, stdout=full).wait()
    assert done.status == 71 and done.stderr.count("\n") == 1 and "standard output" in done.stderr


def test_why_it_cannot_be_written_is_no_guess(dlock, tmp_path):
    with open("/dev/full", "wb") as full:
        done = dlock.run("ls", "-u", f"file://{tmp_path}", stdout=full)
    assert done.status == 71 and done.stderr == "dlock: cannot write to standard output\n"


# ---- --watch ----


def test_watch_prints_what_has_changed(shown):
    shown.show(holder("a"), holder("b"))
    started = shown.start("ls", "-n", "--watch=100ms", "-o", "key,state,waiting")
    wait_for(lambda: started.stdout().count("\n") == 2)
    shown.show(holder("a", now=NOW + 60 * SECOND, until=NOW + 99 * SECOND), holder("b"), waiter("b"), holder("c"))
    wait_for(lambda: started.stdout().count("\n") == 4)
    shown.show(freeze("a"))
    wait_for(lambda: started.stdout().count("\n") == 7)
    started.signal(signal.SIGINT)
    done = started.wait()
    assert done.status == -signal.SIGINT and done.stderr == ""
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[:5] == [["a", "held", "0"], ["b", "held", "0"], ["b", "held", "1"], ["c", "held", "0"], ["a", "frozen", "0"]]
    assert sorted(rows[5:]) == [["b", "free", "0"], ["c", "free", "0"]]


def test_a_lock_that_others_have_got_meanwhile_is_not_free(shown):
    """With --held-over it is no longer listed; what has become of it is told once."""
    shown.show(holder("a", since=NOW - 7200 * SECOND), holder("b", since=NOW - 7200 * SECOND))
    started = shown.start("ls", "-n", "--watch=100ms", "--held-over", "1h", "-o", "key,state,held")
    wait_for(lambda: started.stdout().count("\n") == 2)
    shown.show(holder("a", since=NOW - 5 * SECOND), holder("b", since=NOW - 7200 * SECOND))
    wait_for(lambda: started.stdout().count("\n") == 3)
    time.sleep(0.3)
    shown.show()
    wait_for(lambda: started.stdout().count("\n") == 4)
    started.signal(signal.SIGINT)
    assert [line.split() for line in started.wait().stdout.splitlines()[2:]] == [["a", "held", "5s"], ["b", "free", "-"]]


def test_a_key_that_was_told_twice_does_not_become_free(shown):
    """A server that changes while it is read may tell of a key twice; it is one lock all the same."""
    shown.show(holder("a"), holder("b"), holder("a"))
    started = shown.start("ls", "-n", "--watch=100ms", "-o", "key,state")
    wait_for(lambda: started.stdout().count("\n") == 3)
    shown.show(holder("a"), holder("b"))
    time.sleep(0.5)
    shown.show(holder("a"), holder("b"), holder("c"))
    wait_for(lambda: started.stdout().count("\n") > 3)
    started.signal(signal.SIGINT)
    assert [line.split() for line in started.wait().stdout.splitlines()[3:]] == [["c", "held"]]


@pytest.mark.parametrize("words", [["ls", "-n"], ["status", "deploy"]])
def test_watch_ends_with_its_reader(shown, words):
    """Also where nothing changes that it would write."""
    shown.show(holder())
    out, into = os.pipe()
    watching = shown.start(*words, "--watch=100ms", stdout=into)
    os.close(into)
    assert os.read(out, 1)
    os.close(out)
    done = watching.wait()
    assert (done.status, done.stderr) == (-signal.SIGPIPE, "")


def test_watch_prints_objects(shown):
    started = shown.start("ls", "-J", "--watch=100ms")
    shown.show(holder())
    wait_for(lambda: started.stdout().count("\n") == 1)
    shown.show()
    wait_for(lambda: started.stdout().count("\n") == 2)
    started.signal(signal.SIGTERM)
    assert [o["state"] for o in objects_in(started.wait().stdout)] == ["held", "free"]


def test_watch_of_one_lock_prints_what_has_changed(shown):
    started = shown.start("status", "-J", "--watch=100ms", "deploy")
    wait_for(lambda: started.stdout().count("\n") == 1)
    shown.show(holder())
    wait_for(lambda: started.stdout().count("\n") == 2)
    shown.show(holder(now=NOW + SECOND))
    shown.show(holder(now=NOW + SECOND), waiter())
    wait_for(lambda: started.stdout().count("\n") == 3)
    started.signal(signal.SIGINT)
    found = objects_in(started.wait().stdout)
    assert [(o["state"], len(o["waiters"])) for o in found] == [("free", 0), ("held", 0), ("held", 1)]


@pytest.mark.parametrize("words", [["ls", "-J"], ["status", "-J", "deploy"]])
def test_watch_outlives_a_server_that_is_away(shown, words):
    shown.show(holder())
    started = shown.start(*words, "--watch=100ms")
    wait_for(lambda: started.stdout().count("\n") == 1)
    shown.show("again the server is away\n")
    wait_for(lambda: "the server is away" in started.stderr())
    shown.show(holder(), waiter())
    wait_for(lambda: started.stdout().count("\n") == 2)
    started.signal(signal.SIGINT)
    assert started.wait().stderr.count("\n") == 1, "it is said once"


def test_watch_needs_a_server_to_begin_with(shown):
    shown.show("again the server is away\n")
    for words in (["ls", "--watch"], ["status", "deploy", "--watch"]):
        assert shown.run(*words).status == 69
        assert not any("\x1b[J" in line for line in shown.on_terminal(*words))


class Tmux:
    """A terminal of which one can see what stands on it."""

    def __init__(self, dlock, directory):
        self.base = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
        self.env = {**dlock.env, "PS1": "$ ", "HISTFILE": ""}

    def start(self, columns, rows):
        self._do("new-session", "-d", "-x", str(columns), "-y", str(rows), "env PS1='$ ' sh")
        wait_for(lambda: "$" in self.screen())

    def _do(self, *words):
        return subprocess.run([*self.base, *words], env=self.env, check=True, capture_output=True, text=True).stdout

    def screen(self):
        return self._do("capture-pane", "-p").rstrip("\n")

    def history(self):
        return self._do("capture-pane", "-p", "-S", "-").rstrip("\n")

    def run(self, words):
        self._do("send-keys", "-l", " ".join(f"'{w}'" for w in words))
        self._do("send-keys", "Enter")

    def key(self, name):
        self._do("send-keys", name)

    def resize(self, columns, rows):
        self._do("resize-window", "-x", str(columns), "-y", str(rows))

    def close(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self._do("kill-server")


@pytest.fixture
def tmux(dlock, tmp_path):
    result = Tmux(dlock, tmp_path)
    result.start(100, 12)
    yield result
    result.close()


def test_watch_draws_in_place_and_leaves_a_clean_terminal(shown, tmux):
    shown.show(*(holder(f"lock{n}") for n in range(4)))
    tmux.run([DLOCK_TEST, *shown.words("ls", "--watch=100ms")])
    wait_for(lambda: "4 locks at fake" in tmux.screen())
    shown.show(holder("日本"), waiter("日本"), freeze("ice"))
    wait_for(lambda: "2 locks at fake" in (screen := tmux.screen()) and "lock0" not in screen)  # it may be half drawn
    lines = [line for line in tmux.screen().splitlines() if line]
    rows = lines[-4:]
    assert rows[0] == "2 locks at fake, every 100ms"
    assert rows[1].split()[:2] == ["KEY", "STATE"] and rows[2].startswith("日本") and rows[3].startswith("ice")
    assert not any("lock0" in line for line in lines), "what was there is gone"
    assert tmux.history().count("locks at fake") == 1, "drawn over itself"
    tmux.key("C-c")
    wait_for(lambda: tmux.screen().splitlines()[-1].endswith("$"))
    tmux.run(["echo", "clean"])
    wait_for(lambda: tmux.screen().splitlines()[-2:] == ["clean", "$"])


def test_watch_fits_a_terminal_that_becomes_another(shown, tmux):
    shown.show(*(holder(f"lock{n}", record=record(why="y" * 150)) for n in range(40)))
    tmux.run([DLOCK_TEST, *shown.words("ls", "--watch=100ms")])
    wait_for(lambda: "... and 33 more" in tmux.screen())
    tmux.resize(60, 20)
    wait_for(lambda: "... and 25 more" in tmux.screen())
    lines = tmux.screen().splitlines()
    assert lines[0].startswith("40 locks") and len(lines) == 18 and all(len(line) < 60 for line in lines)
    tmux.resize(100, 8)
    wait_for(lambda: "... and 37 more" in tmux.screen())
    assert tmux.screen().splitlines()[0].startswith("40 locks")
    tmux.key("C-c")


def test_watch_of_one_lock_is_drawn(shown, tmux):
    shown.show(holder(), waiter())
    tmux.run([DLOCK_TEST, *shown.words("status", "deploy", "--watch=100ms")])
    wait_for(lambda: "waiting 1 w1" in tmux.screen())
    shown.show("again the server is away\n")
    wait_for(lambda: "the server is away; trying again" in tmux.screen())
    shown.show()
    wait_for(lambda: "deploy (fake) is free" in tmux.screen() and "waiting" not in tmux.screen().split("deploy (fake)")[-1])
    tmux.key("C-c")
    wait_for(lambda: tmux.screen().splitlines()[-1].endswith("$"))


def test_a_stopped_watch_goes_on_below_what_came_meanwhile(shown, dlock, tmp_path):
    shown.show(holder())
    terminal = shown.terminal("ls", "--watch=100ms", rows=20)
    terminal.expect_exact("\x1b[3A")
    kill(terminal.pid, signal.SIGSTOP)
    kill(terminal.pid, signal.SIGCONT)
    terminal.expect(r"(\x1b\[3A\r)?1 lock at")
    terminal.expect_exact("\x1b[3A")
    terminal.close(force=True)


# ---- wait ----


@pytest.mark.parametrize("holders, free", [
    ([], ["", "-s", "-x", "--limit=2", "--limit=3"]),
    ([dict(lock=0)], []), ([dict(lock=1)], []),
    ([dict(lock=2)], ["-s"]), ([dict(lock=2), dict(lock=2)], ["-s"]),
    ([dict(lock=3, limit=2)], ["--limit=2"]), ([dict(lock=3, limit=3)], ["--limit=3"]),
    ([dict(lock=3, limit=2), dict(lock=3, limit=2)], []), ([dict(lock=3, limit=3), dict(lock=3, limit=3)], ["--limit=3"]),
])
def test_wait_returns_when_a_run_would_not_have_to_wait(shown, holders, free):
    shown.show(*(holder(token=n + 1, **h) for n, h in enumerate(holders)))
    for kind in ("", "-s", "-x", "--limit=2", "--limit=3"):
        done = shown.run("wait", "-n", "deploy", *kind.split())
        assert done.status == (0 if kind in free else 75), kind
        assert bool(done.stderr) == (done.status != 0) and done.stdout == ""
    for more in (waiter(), freeze()):
        shown.show(*(holder(token=n + 1, **h) for n, h in enumerate(holders)), more)
        assert {shown.run("wait", "-n", "deploy", *kind.split()).status for kind in ("", "-s", "-x", "--limit=2")} == {75}


def test_wait_says_why_not(shown):
    shown.show(holder(lock=2), holder(lock=2, token=8))
    done = shown.run("wait", "-n", "deploy")
    assert done.stderr == ('dlock: deploy (fake) is held by 2 readers, first alice@ci-3 (pid 4711 on ci-3, running deploy.sh) '
                           '"release 4.2" for 2m13s; not waiting (-n)\n')
    shown.show(*(holder(lock=3, limit=2, slot=slot, token=slot + 1) for slot in range(2)))
    assert "deploy (fake): both slots are taken, first alice@ci-3 (" in shown.run("wait", "-n", "--limit", "2", "deploy").stderr
    shown.show(holder(lock=3, limit=1, slot=0))
    assert "deploy (fake): the only slot is taken, by alice@ci-3 (" in shown.run("wait", "-n", "--limit", "1", "deploy").stderr
    shown.show(holder(lock=2), waiter())
    assert "for 2m13s (and another run waits already); not waiting (-n)\n" in shown.run("wait", "-n", "-s", "deploy").stderr
    shown.show(freeze())
    done = shown.run("wait", "-w", "300ms", "-E", "9", "deploy")
    assert done.status == 9
    assert done.stderr.startswith('dlock: deploy (fake) is still frozen by bob@laptop "weekend" for 1h00m, until dlock thaw; waited 3')
    assert shown.run("wait", "-nq", "deploy").stderr == ""
    shown.show(waiter(), waiter(position=2))
    assert "is waited for by 2 others" in shown.run("wait", "-n", "deploy").stderr


def test_wait_ends_when_the_lock_is_free(shown):
    shown.show(holder())
    started = shown.start("wait", "deploy", "other")
    wait_for(lambda: "dlock: waiting " in started.stderr())
    shown.show(holder("elsewhere"))
    done = started.wait()
    assert done.status == 0 and done.stderr.count("\n") == 1
    assert "for deploy; held by alice@ci-3" in done.stderr


def test_all_keys_are_free_at_one_look(shown):
    shown.show(holder("b"))
    log = shown.file.with_name("log")
    started = shown.start("wait", "-O", f"log={log}", "a", "b")
    wait_for(lambda: "waiting" in started.stderr())
    shown.show(holder("a"), holder("b"))
    seen = log.read_text().count("each a ")
    wait_for(lambda: log.read_text().count("each a ") > seen)  # no look is to see a as it was, and b as it will be
    assert shown.run("wait", "-n", "a", "b").status == 75
    shown.show(holder("a"))
    assert shown.run("wait", "-n", "a", "b").status == shown.run("wait", "-n", "b", "a").status == 75
    assert started.poll() is None
    shown.show()
    assert started.wait().status == 0


def test_ctrl_c_ends_a_wait(shown):
    shown.show(holder())
    started = shown.start("wait", "deploy")
    wait_for(lambda: "waiting" in started.stderr())
    started.signal(signal.SIGINT)
    assert started.wait().status == -signal.SIGINT


def test_wait_bears_a_server_that_is_away_for_as_long_as_it_may(shown):
    shown.show("again the server is away\n")
    done = shown.run("wait", "-n", "deploy")
    assert done.status == 69 and "cannot wait for deploy: the server is away" in done.stderr
    started = shown.start("wait", "-w", "1m", "deploy")
    wait_for(lambda: "the server is away" in started.stderr())
    shown.show()
    assert started.wait().status == 0
    shown.show("again the server is away\n")
    assert shown.run("wait", "-w", "2s", "deploy").status == 69


@pytest.mark.parametrize("kind, word", [("-s", "shared"), ("--limit=2", "limit")])
def test_wait_for_a_kind_that_there_is_not(shown, kind, word):
    done = shown.run("wait", "-O", f"script=not={word}", kind, "deploy")
    assert done.status == 78 and f"has no {word}" in done.stderr and "deploy" in done.stderr
    assert shown.run("wait", "-O", f"script=not={word}", "deploy").status == 0


# ---- what goes wrong ----


@pytest.mark.parametrize("words", [["status", "deploy"], ["ls"], ["wait", "-n", "deploy"]])
def test_a_failure_is_one_sentence_and_its_status(shown, words):
    for says, status in (("again gone \x1b[2J away\n", 69), ("denied NOAUTH\n", 77), ("hang\n", 69)):
        shown.show(says)
        done = shown.run(*words)
        assert done.status == status and done.stderr.count("\n") == 1, done
        assert done.stderr.startswith("dlock: cannot ") and "\x1b" not in done.stderr
        assert ("deploy" if "deploy" in words else "fake") in done.stderr


def test_words_that_make_no_sense(shown):
    for words in (["status"], ["wait"], ["status", ""], ["ls", "--watch=0"], ["ls", "-k", "x"], ["status", "--ttl", "3s", "x"],
                  ["wait", "-n", "-w", "3s", "x"]):
        done = shown.run(*words)
        assert done.status == 64 and done.stdout == "" and done.stderr.count("\n") == 1, words


@pytest.mark.parametrize("words, says", [
    (["status", "deploy", "--watch", "1s"], "--watch=1s"), (["status", "--watch", "1.5s", "deploy"], "--watch=1.5s"),
    (["ls", "--watch", "500ms"], "--watch=500ms"), (["ls", "--watch", "2"], "--watch=2"),
    (["status", "deploy", "-w", "1s"], "--watch"), (["status", "deploy", "-w1s"], "--watch"), (["ls", "-w"], "--watch")])
def test_a_watch_is_not_taken_for_a_key(shown, words, says):
    """Rather than to watch a lock "1s", which is always free."""
    done = shown.run(*words)
    assert done.status == 64 and done.stdout == "" and says in done.stderr and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("words", [["status", "--watch", "deploy"], ["status", "1s", "--watch"], ["ls", "--watch", "*s"]])
def test_a_key_behind_watch_is_a_key(shown, words):
    watcher = shown.show(holder(), holder(key="1s")).start(*words)
    wait_for(watcher.stdout)
    watcher.signal(signal.SIGINT)
    assert watcher.wait().stderr == ""


@pytest.mark.parametrize("cmd", ["status", "ls", "wait"])
def test_each_is_explained(dlock, cmd):
    done = dlock.run("help", cmd)
    assert done.status == 0 and done.stdout.startswith(f"usage: dlock {cmd} ") and "--url" in done.stdout
    assert done.stdout == dlock.run(cmd, "--help").stdout
    assert max(map(len, done.stdout.splitlines())) <= 90
