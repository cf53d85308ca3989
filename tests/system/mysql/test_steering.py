# Goal of these tests: looking at locks on MariaDB and steering them costs little, tells
# what is there and no more, and hits exactly the grant that was meant.

import contextlib
import json
import os
import re
import signal
import subprocess
import time

import pytest

from admin import ADMIN, BOB, LOST, OK, admin, each, kinds, revoke
from databases import FORGET, JOBS, LOOK, RUN, STEER, block_of, hostile_runs_are_listed, may, paste, waits_and_renews, what_may
from faults import LIVING_LEASE
from mysql_server import MODES, Database, mysql_url
from support import ROOT, At, run, wait_for

ENDLESS = ("-t", "1h")


@pytest.fixture
def at(mysql_db):
    return At(mysql_db.url)


# ---- what is told ----


@pytest.mark.parametrize("mode", MODES)
def test_where_there_is_nothing_nothing_is_held_and_nothing_made(mysql_db, mode):
    at = At(mysql_db.url, mode)
    assert each(at) == each(at, "job") == each(at, "job", "brief") == []
    assert revoke(at, {"token": 7, "owner": "17-42" if mode != "lease" else "-"}, "force") == LOST
    if mode == "lease":
        assert revoke(at, {"token": 7}) == admin(at, "thaw", "job")[0] == LOST
    assert mysql_db.ask("SHOW TABLES") == []


def fill(database, size):
    """So many locks, held."""
    database.ask("INSERT INTO dlock_holds (k, token, owner, kind, room, slot, since, ends, record) SELECT CONCAT('key', seq), seq,"
                 f" MD5(seq), 'exclusive', 0, -1, 1, 9000000000000000, %s FROM seq_1_to_{size}", BOB + " " * 150)


def test_of_a_crowd_each_one_is_told_once(mysql_db, dlock, at):
    assert run(dlock, mysql_db.url).status == 0
    fill(mysql_db, 1700)
    mysql_db.ask("INSERT INTO dlock_waiters (k, ticket, owner, kind, room, lease, alive, since, record) SELECT 'key5', 90000 + seq,"
                 " MD5(CONCAT('w', seq)), 'shared', 0, 1000000, 9000000000000000, 1, '{}' FROM seq_1_to_1300")
    found = each(at)
    tokens = [e["token"] for e in found if e["kind"] == "holder"]
    assert len(tokens) == 1700 == len(set(tokens))
    assert [e["position"] for e in found if e["kind"] == "waiter"] == list(range(1, 1301))
    assert {e["key"] for e in found if e["kind"] == "waiter"} == {"key5"}
    assert [e["count"] for e in each(at, "key5", "brief") if e["kind"] == "waiting"] == [1300]


def test_strange_rows_are_nobody_elses(dlock, mysql_db, at):
    holder = dlock.hold(at, "job", *ENDLESS)
    mysql_db.ask("INSERT INTO dlock_holds (k, token, owner, kind, room, slot, since, ends, record) VALUES"
                 " ('odd', 6, 'o', 'odd', 0, -1, 0, 9000000000000000, x'1b5b324a00ff'),"
                 " ('room', 7, 'o', 'limit', -7, 0, 0, 9000000000000000, ''), ('slot', 8, 'o', 'limit', 2, 5, 0, 9000000000000000, ''),"
                 " ('far', 9, 'o', 'exclusive', 9, -1, 0, 9000000000000000, '')")
    found = each(at)
    assert [(e["key"], e["kind"]) for e in found] == [("far", "unknown"), ("job", "holder"), ("odd", "unknown"), ("room", "unknown"),
                                                      ("slot", "unknown")]
    assert [e["token"] for e in each(at, "job")] == [holder.token]
    assert not any("owner" in e for e in found)


# ---- what it costs ----


def peak_of(pid):
    """Kilobytes of memory that a process had at most."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            found = re.search(r"VmHWM:\s*(\d+) kB", f.read())
            return found and int(found[1])
    return None


def look_at(at):
    """(seconds to the first line, lines, kilobytes) of a look."""
    began, kilobytes = time.monotonic(), None
    with subprocess.Popen([ADMIN, "mysql", *at.words[1:], "each"], stdout=subprocess.PIPE) as look:
        assert look.stdout.readline()
        seconds, lines = time.monotonic() - began, 1
        while look.stdout.readline():
            lines += 1
            if lines % 250 == 0:  # it is not at its end, for what it has to say does not fit into a pipe
                kilobytes = peak_of(look.pid) or kilobytes
    assert look.returncode == 0
    return seconds, lines, kilobytes


@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_locks(dlock, make_mysql, mode):
    """A page at a time: in little memory, and no statement takes the server long."""
    server = make_mysql(slow_query_log=1, long_query_time=0.05, slow_query_log_file="slow")
    at = At(server.url, mode)
    assert run(dlock, server.url, mode=mode).status == 0
    c = server.connect(db="app")
    with c.cursor() as cursor:
        if mode == "lease":
            fill(Database(server, "app"), 10000)
        else:
            cursor.execute("START TRANSACTION")
            cursor.execute("INSERT INTO dlock_grants (mode, k, waits, shared, session, since, record) SELECT %s, CONCAT('key', seq), 0, 0,"
                           " CONNECTION_ID(), 1, %s FROM seq_1_to_10000", (mode, BOB + " " * 150))
    found = []
    for _ in range(5):
        server.ask("FLUSH SLOW LOGS")
        with open(f"{server.data}/slow", encoding="utf-8") as log:
            log.seek(0, os.SEEK_END)
            seconds, lines, kilobytes = look_at(at)
            slow = log.read().count("# Query_time")
        assert lines == 10001
        assert 1000 < kilobytes < 16 << 10
        found.append((slow, seconds))
        if slow == 0 and seconds < 1:
            break
    else:
        raise AssertionError(f"slow statements, and the first line's delay, in each look: {found}")
    c.close()


# ---- break ----


def test_a_holder_that_is_asked_gives_it_up(dlock, at):
    """It ends with 79 and names who asked; the mark dies with the grant."""
    holder = dlock.hold(at, "job", *LIVING_LEASE)
    waiter = dlock.contend(at, "job", *ENDLESS).queued(1)
    found = each(at, "job")
    assert revoke(at, found[0]) == OK
    assert revoke(at, found[0], record=BOB.replace("bob", "eve")) == OK  # the newer one wins
    done = holder.wait()
    assert done.status == 79 and "eve@office" in done.stderr
    waiter.held()
    assert [e["revoked"] for e in each(at, "job")] == [0]
    assert waiter.finish().status == 0


def test_who_asks_is_told_by_what_the_maker_of_the_rest_adds(dlock, mysql_db, at):
    """And not to others before that, who look all the same."""
    def look(url):
        done = dlock.run("status", *At(url).words, "-J", "job")
        told, = json.loads(done.stdout)["holders"]
        assert (done.status, done.stderr, told["revoked"]) == (0, "", True), done
        return told["revoked_by"], told["revoked_why"]

    holder = dlock.hold(at, "job", *ENDLESS)
    holder.signal(signal.SIGSTOP, "keeper")
    assert revoke(at, each(at, "job")[0]) == OK
    mysql_db.ask("DROP PROCEDURE dlock_asker_3")
    mysql_db.ask("CREATE OR REPLACE USER other@'%'")
    mysql_db.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO other@'%'")
    other = mysql_url(mysql_db.port, "other", mysql_db.name)
    assert look(other) == (None, None)
    assert look(mysql_db.url) == look(other) == ("bob@office", "it hangs")
    holder.signal(signal.SIGCONT, "keeper")
    mysql_db.ask("DROP USER other@'%'")


def test_only_the_grant_that_was_meant(dlock, at):
    """Not the next one's, not by a wrong owner, not a freeze's, not a waiter."""
    first = dlock.hold(at, "job", *ENDLESS)
    second = dlock.contend(at, "job", *ENDLESS).queued(1)
    seen = each(at, "job")[0]
    assert revoke(at, {**seen, "owner": "f" * 32}) == revoke(at, {**seen, "owner": "f" * 32}, "force") == LOST
    assert revoke(at, seen, key="other") == revoke(at, {"token": 0}) == revoke(at, {"token": (1 << 64) - 1}) == LOST
    assert first.finish().status == 0
    second.held()
    assert admin(at, "freeze", "job", BOB)[0] == OK
    for force in ((), ("force",)):
        assert revoke(at, seen, *force) == LOST
        for token in range(second.token + 1, second.token + 5):
            assert revoke(at, {"token": token}, *force) == LOST
    assert [(e["kind"], e["revoked"]) for e in each(at, "job")] == [("holder", 0), ("freeze", 0)]
    assert second.finish().status == 0


def test_force_tells_everybody_who_can_be_granted(dlock, make_mysql):
    """Nobody sleeps on for the rest of a long sleep, though the holder knows nothing; and then it is told who has taken it."""
    server = make_mysql()
    at = At(server.url)
    holder = dlock.hold(at, "job", "-t", "1m")
    readers = [dlock.contend(at, "job", "-s", *ENDLESS).queued(n + 1) for n in range(4)]
    sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'"
    wait_for(lambda: server.value(sleeping) == 4, what="four that sleep")
    holder.signal(signal.SIGSTOP, "keeper")
    target, before = each(at, "job")[0], server.status("Com_kill")
    assert revoke(at, target, "force") == OK
    granted = [reader.held().token for reader in readers]
    assert server.status("Com_kill") - before == 4
    assert len(set(granted)) == 4 and min(granted) > target["token"]
    assert revoke(at, target, "force") == OK  # it had been done
    assert revoke(at, target, "force", record="{}") == LOST  # by somebody else
    holder.signal(signal.SIGCONT, "keeper")
    done = holder.wait()
    assert done.status == 79 and "bob@office" in done.stderr
    assert [e["token"] for e in each(at, "job")] == sorted(granted)
    assert [reader.finish().status for reader in readers] == [0] * 4


def test_force_frees_what_a_dead_machine_holds(dlock, mysql_db, at):
    holder = dlock.hold(at, "job", *ENDLESS)
    target = each(at, "job")[0]
    for process in ("front", "keeper", "command"):  # what could be told later
        holder.signal(signal.SIGSTOP, process)
    assert revoke(at, target, "force") == OK
    assert run(dlock, mysql_db.url, "-n").status == 0


@pytest.mark.parametrize("mode", ["row", "named"])
def test_exactly_the_session_that_was_meant_is_ended(dlock, mysql_db, mode):
    at = At(mysql_db.url, mode)
    holder, other = dlock.hold(at, "job", *ENDLESS), dlock.hold(at, "other", *ENDLESS)
    waiter = dlock.contend(at, "job", *ENDLESS)
    waiter.event("waiting")
    seen = wait_for(lambda: len(found := each(at, "job")) == 2 and found)
    assert kinds(seen) == ["holder", "waiter"]
    session, number = seen[0]["owner"].split("-")
    for owner in (seen[1]["owner"], f"{session}-{int(number) + 1}", f"{int(session) + 1}-{number}", "x", "1-", "-1", f"0{session}-{number}"):
        assert revoke(at, {"token": 0, "owner": owner}, "force") == LOST
    assert revoke(at, seen[0], "force", key="other") == LOST
    assert revoke(at, seen[0], "force") == OK
    assert holder.wait().status == 79
    waiter.held()
    assert other.poll() is None
    assert waiter.finish().status == other.finish().status == 0


# ---- freeze and thaw ----


def test_a_freeze_outlives_the_server(dlock, make_mysql):
    server = make_mysql(safe=True)
    at = At(server.url)
    assert admin(at, "freeze", "job", BOB)[0] == OK
    waiter = dlock.contend(at, "job", *ENDLESS, command=("true",)).queued(1)
    server.restart()
    done = run(dlock, server.url, "-n")
    assert done.status == 75 and "bob@office" in done.stderr
    assert admin(at, "thaw", "job")[0] == OK and admin(at, "thaw", "job")[0] == LOST
    assert waiter.wait().status == 0


def test_a_read_only_server_can_be_looked_at_but_not_steered(dlock, make_mysql):
    server = make_mysql()
    at = At(server.url)
    dlock.hold(at, "job", *ENDLESS)
    dlock.contend(at, "job", *ENDLESS).queued(1)
    server.ask("SET GLOBAL read_only = 1")
    assert kinds(each(at, "job")) == ["holder", "waiter"]
    for words in (["freeze", "job", BOB], ["thaw", "job"], ["revoke", "job", each(at, "job")[0]["token"], "-", BOB]):
        assert admin(at, *words)[0] == "unsafe configuration"
    server.ask("SET GLOBAL read_only = 0")


def test_a_page_again_and_again_is_no_end_of_a_look(dlock, mysql_db, make_mysql_tamper, at):
    """Nor are fields that are none."""
    assert run(dlock, mysql_db.url).status == 0
    fill(mysql_db, 3)
    for name, change in {"again": lambda n, body: [body, body] if b"key1" in body else [body],
                         "text": lambda n, body: [body.replace(b"key1", b"\xff\xfe\x1b[")]}.items():
        url = mysql_url(make_mysql_tamper(mysql_db.port, change).port, db=mysql_db.name)
        done = subprocess.run([ADMIN, "mysql", url, "each"], capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, 1) and b"\nrc " in b"\n" + done.stdout, (name, done)
    assert len(each(at)) == 3


# ---- who may ----


# What is there, and the words: each subcommand, as typed.
TYPED = {
    "run": ("", ("run", "-n", "-k", "job", "true"), 0),
    "status": ("", ("status", "-k", "job"), 1),
    "ls": ("", ("ls",), 0),
    "wait": ("", ("wait", "-n", "-k", "job"), 0),
    "freeze": ("", ("freeze", "-k", "job"), 0),
    "thaw": ("frozen", ("thaw", "-y", "-k", "job"), 0),
    "break": ("held", ("break", "-y", "-w", "0", "-k", "job"), 75),
    "break --force": ("held", ("break", "-y", "--force", "-k", "job"), 0),
}


@pytest.mark.parametrize("scene", TYPED)
def test_the_right_of_the_manual_is_needed_and_suffices(dlock, mysql_db, scene):
    there, words, status = TYPED[scene]
    own, place = At(mysql_db.url), At(mysql_url(mysql_db.port, "poor", mysql_db.name))
    assert run(dlock, mysql_db.url).status == 0  # this makes the procedures
    if there == "held":
        dlock.hold(own, "job")
    elif there == "frozen":
        assert dlock.run("freeze", *own.words, "-k", "job").status == 0
    mysql_db.ask("CREATE USER poor@'%'")
    try:
        mysql_db.ask(f"GRANT SELECT ON `{mysql_db.name}`.* TO poor@'%'")  # to enter it
        done = dlock.run(words[0], *place.words, *words[1:])
        assert done.status == 77 and "GRANT EXECUTE ON" in done.stderr, done
        mysql_db.ask(f"REVOKE SELECT ON `{mysql_db.name}`.* FROM poor@'%'")
        mysql_db.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO poor@'%'")
        done = dlock.run(words[0], *place.words, *words[1:])
        assert done.status == status, done
    finally:
        mysql_db.ask("DROP USER poor@'%'")


PAGE = "dlock-mysql.7"
MARKS = {"deploy": "EXECUTE ON app.*", "watcher": "TO 'watcher'", "oncall": "${p}_3 TO 'oncall'",
         "row": "SELECT, INSERT, DELETE", "sessions": "CONNECTION ADMIN"}


class Roles:
    """A server with the users of the manual, and its blocks, pasted."""

    def __init__(self, server, directory):
        self.server, self.directory = server, directory
        for name in ("deploy", "watcher", "oncall"):
            server.ask(f"CREATE USER {name}@'%'")
        self.own = At(server.url)
        (directory / ".my.cnf").write_text(f"[client]\nuser=root\nsocket={server.socket}\n")

    def paste(self, name, block=None):
        paste(block or block_of(PAGE, MARKS[name]), self.directory)

    def at(self, name, mode="lease"):
        return At(mysql_url(self.server.port, name), mode)


@pytest.fixture
def roles(own_mysql, tmp_path):
    return Roles(own_mysql, tmp_path)


def test_the_role_of_the_manual_that_runs(dlock, roles):
    for _ in range(2):
        roles.paste("deploy")
    assert what_may(dlock, roles.own, roles.at("deploy")) == {*RUN, *LOOK, *STEER, *JOBS, *FORGET}
    assert waits_and_renews(dlock, roles.own, roles.at("deploy"))


# The procedures that the blocks grant, and what cannot be done without.
NEEDS = {"list": "ls", "asker": "asker", "last_run": "status", "list_last": "ls --jobs", "list_ids": "ls --jobs", "list_ended": "shown", "forget_run": "forget", "ask_back": "break", "take_away": "break --force", "freeze_key": "freeze", "thaw": "thaw",
         "take": "run", "enter": "run -s", "find_ended": "run --no-retry", "release_run": "run --remember"}


@pytest.mark.parametrize("name, scenes", [("watcher", {**LOOK, **JOBS}), ("oncall", {**LOOK, **STEER, **JOBS, **FORGET})])
def test_each_right_of_the_manual_is_needed(dlock, roles, name, scenes):
    """By the block alone one may do what it says and no more, and nothing of it is too much."""
    roles.paste(name)
    procedures = re.search(r"for p in ([^;]*);", block_of(PAGE, MARKS[name]))[1].replace("\\", " ").split()
    assert what_may(dlock, roles.own, roles.at(name)) == {*scenes}
    assert {NEEDS[p] for p in procedures} | {"wait"} == {*scenes}
    for procedure in procedures:
        roles.server.ask(f"REVOKE EXECUTE ON PROCEDURE app.dlock_{procedure}_3 FROM {name}@'%'")
        assert not may(dlock, NEEDS[procedure], roles.own, roles.at(name)), procedure
        roles.server.ask(f"GRANT EXECUTE ON PROCEDURE app.dlock_{procedure}_3 TO {name}@'%'")


def test_the_role_of_the_manual_that_runs_and_does_not_steer(dlock, roles):
    with open(os.path.join(ROOT, "man", PAGE), encoding="utf-8") as f:
        words = re.search(r"needs\s+the loop with these: ([a-z_\s]*)\.\n", f.read())[1].split()
    block = block_of(PAGE, MARKS["watcher"])
    roles.paste("watcher", re.sub("for p in .*;", f"for p in {' '.join(words)};", block))
    assert what_may(dlock, roles.own, roles.at("watcher")) == {*RUN, *LOOK, *JOBS}
    assert waits_and_renews(dlock, roles.own, roles.at("watcher"))
    assert run(dlock, roles.at("watcher"), "-n", "--newest", "--unless-frozen", "all", key="looks").status == 0
    assert {*words} == {*NEEDS} - {"ask_back", "take_away", "freeze_key", "thaw", "forget_run"} | {"await", "renew", "release"}
    at = roles.at("watcher")
    for procedure in words:
        roles.server.ask(f"REVOKE EXECUTE ON PROCEDURE app.dlock_{procedure}_3 FROM watcher@'%'")
        if procedure == "await":
            holder = dlock.hold(roles.own, "job")
            assert dlock.run("run", *at.words, "-k", "job", "true").status == 77
            assert holder.finish().status == 0
        elif procedure == "renew":
            assert dlock.run("run", *at.words, "-t", "3s", "-k", "job", "sleep", "1000").status == 79
        elif procedure == "release":
            assert run(dlock, at, key="kept").status == 0 and run(dlock, roles.own, "-n", key="kept").status == 75
        else:
            assert not may(dlock, NEEDS[procedure], roles.own, at), procedure
        roles.server.ask(f"GRANT EXECUTE ON PROCEDURE app.dlock_{procedure}_3 TO watcher@'%'")


@pytest.mark.parametrize("mode", ["row", "named"])
def test_the_rights_over_session_locks_of_the_manual(dlock, roles, mode):
    """Who runs, who looks, and who ends a session of another user; and each right is needed for that."""
    own, oncall = roles.at("deploy", mode), roles.at("oncall", mode)
    roles.paste("row")
    assert may(dlock, "run", own, own) and may(dlock, "break --force", own, own)
    assert mode == "named" or may(dlock, "run -s", own, own)
    for table in ("dlock_rows", "dlock_grants") if mode == "row" else ():
        for right in ("SELECT", "INSERT", "DELETE"):
            roles.server.ask(f"REVOKE {right} ON app.{table} FROM deploy@'%'")
            # MySQL wants DELETE for SELECT ... FOR UPDATE
            assert may(dlock, "run", own, own) == ((table, right) == ("dlock_rows", "DELETE"))
            roles.server.ask(f"GRANT {right} ON app.{table} TO deploy@'%'")
    roles.server.ask("GRANT SELECT ON app.dlock_grants TO watcher@'%', oncall@'%'")
    for name in ("deploy", "watcher", "oncall"):
        assert all(may(dlock, scene, own, roles.at(name, mode)) for scene in LOOK)
    assert not may(dlock, "break --force", own, oncall)
    roles.paste("sessions")
    assert may(dlock, "break --force", own, oncall)
    roles.server.ask("REVOKE CONNECTION ADMIN ON *.* FROM oncall@'%'")
    assert not may(dlock, "break --force", own, oncall)


def test_a_name_needs_no_right(dlock, roles):
    """But then others see a session."""
    roles.paste("row")
    own = roles.at("deploy", "named")
    for rights, shown in (("", True), ("REVOKE ALL PRIVILEGES, GRANT OPTION FROM deploy@'%'", False)):
        if rights:
            roles.server.ask(rights)
            own = At(mysql_url(roles.server.port, "deploy", db=""), "named")
        holder = dlock.hold(own, "job", "--who", "alice")
        done = dlock.run("status", *own.words, "job")
        assert (done.status, "alice" in done.stdout, "a session" in done.stdout) == (0, shown, not shown), done
        assert holder.finish().status == 0


# ---- runs ----


def test_hostile_runs_are_listed_as_far_as_they_are_runs(dlock, mysql_db, at):
    """In the order of keys and IDs, whatever stands in their columns; more than a page of them."""
    assert dlock.run("run", *at.words, "-k", "job", "--once", "first", "--", "true").status == 0
    mysql_db.ask("INSERT INTO dlock_runs (k, ended, token, id, began, status, record) VALUES"
                 " ('job', 4102444800000000, 7, '\\x1b[2J', -5, 255, REPEAT('\\x1b', 1000))".replace("\\x1b", "\x1b"))
    mysql_db.ask("INSERT INTO dlock_runs (k, ended, token, id, began, status, record) VALUES"
                 " ('job', 4102444700000000, 8, NULL, 4102444700000000, 0, '{}')")  # of a clock far ahead
    for start in range(0, 1200, 300):
        mysql_db.ask("INSERT INTO dlock_runs (k, ended, token, id, began, status, record) VALUES" + ", ".join(
            f"('many', 5, {n}, 'id{n}', 4, 0, '{{}}')" for n in range(start, start + 300)))
    hostile_runs_are_listed(dlock, at)
