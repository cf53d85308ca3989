# Goal of these tests: the procedures that a dlock calls on MySQL and MariaDB are those of its version,
# whichever others stand beside them; all of them exclude each other; and what they are sent cannot be
# used by who reads it.

import hashlib
import json
import os
import re
import subprocess

import pytest

from databases import wait_for_renewals
from faults import PATIENT
from mysql_server import USER, mysql_url
from proxy import UP
from support import ROOT, At, is_free, run, wait_for

FAR = 9_000_000_000_000_000  # a time that does not come
DIGESTS = {"3": "98b27440a88f5c767765cb48e63c59f68128aaf24d255c200ad287e36e5d521b"}  # of what a version's procedures do


@pytest.fixture
def schema(dlock):
    done = dlock.run("help", "mysql-schema")
    assert done.status == 0
    return done.stdout


def version_of(schema):
    found = set(re.findall(r"\bdlock_[a-z_]+_(\d+)\b", schema))
    assert len(found) == 1
    return found.pop()


def feed(database, text, *login):
    """As the manual says, by an administrator; or with another login."""
    login = login or ("-uroot", f"--socket={database.server.socket}")
    return subprocess.run(["mariadb", "--no-defaults", *login, database.name], input=text, capture_output=True, text=True, check=False,
                          timeout=60)


def procedures(database):
    return {name for name, in database.ask("SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()")}


def older(schema):
    """The same, as a version before had it."""
    version = version_of(schema)
    return re.sub(rf"\b(dlock_[a-z_]+)_{version}\b", r"\1_0", schema)


@pytest.fixture
def old(mysql_db, schema):
    """A database that a dlock of an older version has made: so the procedures are its user's."""
    done = feed(mysql_db, older(schema), f"-u{USER}", "-h127.0.0.1", f"-P{mysql_db.port}")
    assert done.returncode == 0, done
    return mysql_db


def call(connection, procedure, *arguments):
    with connection.cursor() as cursor:
        cursor.execute(f"CALL {procedure}({', '.join(['%s'] * len(arguments))})", arguments)
        return cursor.fetchone()


def owner_of(secret):
    return hashlib.sha256(secret.encode()).hexdigest()[:32]


def take(connection, secret="a"):
    """What an older dlock asks."""
    return call(connection, "dlock_take_0", "job", owner_of(secret), "{}", 30_000, connection.thread_id(), FAR)[0]


def enter(connection, secret="a"):
    return call(connection, "dlock_enter_0", "job", owner_of(secret), "{}", 30_000, 9_000, "exclusive", 0, None, 0,
                connection.thread_id(), 0, FAR)[0]


# ---- versions ----


def test_what_a_version_does_is_never_changed(schema):
    """Servers have its procedures: whoever changes one raises the version (sql.h, schema.sql), and then the digest here."""
    version = version_of(schema)
    text = "\n".join(line for line in schema[schema.index("DELIMITER"):].split("\n") if not line.lstrip().startswith("--"))
    assert DIGESTS.get(version) == hashlib.sha256(text.encode()).hexdigest()


def test_the_schema_can_be_run_again(dlock, mysql_db, schema):
    """By an administrator; also while it is in use, and where a first run was broken off."""
    assert feed(mysql_db, schema[:schema.index("CREATE PROCEDURE", schema.index("dlock_serve"))]).returncode == 0
    for _ in range(2):
        done = feed(mysql_db, schema)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    holder = dlock.hold(At(mysql_db.url), "job")
    made = mysql_db.ask("SELECT name, created FROM mysql.proc WHERE db = DATABASE() ORDER BY name")
    assert feed(mysql_db, schema).returncode == 0
    assert mysql_db.ask("SELECT name, created FROM mysql.proc WHERE db = DATABASE() ORDER BY name") == made
    assert holder.finish().status == 0


def test_a_new_version_stands_beside_the_old_one(dlock, old, schema):
    before = procedures(old)
    assert is_free(dlock, old.url)
    assert procedures(old) == before | set(re.findall(r"\bdlock_[a-z_]+_\d+\b", schema))


def test_versions_exclude_each_other(dlock, old):
    with old.connect() as c:
        assert take(c)
        assert run(dlock, old.url, "-n").status == 75
        waiter = dlock.contend(At(old.url), "job", "-t", "1h").queued(1)
        assert call(c, "dlock_release_0", "job", "a", None, None, 0) == (1,)
        waiter.held()
        assert take(c) is None and enter(c) == 0
        last = dlock.contend(At(old.url), "job", command=("true",)).queued(2)
        assert waiter.finish().status == 0
        wait_for(lambda: enter(c) == 1, what="the grant of the older one")
        assert not last.events("started")
        assert call(c, "dlock_release_0", "job", "a", None, None, 0) == (1,)
    assert last.wait().status == 0


def test_version_2_goes_on_beside_ours(dlock, mysql_db):
    """Its real text: who holds, waits or has frozen by it is known here, and its jobs are."""
    with open(os.path.join(ROOT, "tests/system/mysql/schema_2.sql"), encoding="utf-8") as f:
        done = feed(mysql_db, f.read(), f"-u{USER}", "-h127.0.0.1", f"-P{mysql_db.port}")
    assert done.returncode == 0, done
    at, lease = At(mysql_db.url), 3_600_000_000
    with mysql_db.connect() as c:
        token, = call(c, "dlock_take_2", "job", owner_of("a"), "{}", lease, 1, FAR)
        call(c, "dlock_freeze_2", "frozen", "{}", None)
        waiter = dlock.contend(at, "job", "-t", "1h").queued(1)
        assert json.loads(dlock.run("status", "-J", *at.words, "job").stdout)["holders"][0]["token"] == token
        assert dlock.run("run", "-n", *at.words, "-k", "frozen", "--", "true").status == 75
        assert dlock.run("thaw", "-y", *at.words, "frozen").status == 0
        again = ("dlock_enter_2", "job", owner_of("b"), "{}", lease, lease, "exclusive", 0, 1, None, 0, FAR)
        assert call(c, *again)[0] == 0
        last = dlock.contend(at, "job", command=("true",)).queued(3)
        assert call(c, "dlock_release_2", "job", "a", 0, "nightly") == (1,)
        waiter.held()
        assert dlock.run("run", *at.words, "-k", "job", "--once", "nightly", "--", "false").status == 0
        assert call(c, *again)[0] == 0 and waiter.finish().status == 0
        wait_for(lambda: call(c, *again)[0] == 1, what="the grant of version 2")
        assert not last.events("started")
        assert call(c, "dlock_release_2", "job", "b", None, None) == (1,)
    assert last.wait().status == 0


def test_a_crowd_comes_to_an_older_database(dlock, old):
    """All of them make what is new; nobody fails by it, and who held and waited goes on."""
    with old.connect() as c:
        assert take(c)
        crowd = [dlock.contend(At(old.url), "job", "-t", "1h", *PATIENT, command=("true",)) for _ in range(8)]
        for waiter in crowd:
            waiter.queued()
        assert call(c, "dlock_release_0", "job", "a", None, None, 0) == (1,)
    assert [waiter.wait().status for waiter in crowd] == [0] * 8


def test_a_lock_of_an_older_version_is_seen(dlock, old):
    """Also by who looks first of all; and who may not make what is new is not told that there is nothing."""
    old.ask("CREATE OR REPLACE USER looker@'%'")
    old.ask(f"GRANT EXECUTE ON `{old.name}`.* TO looker@'%'")
    looker = At(mysql_url(old.port, "looker", old.name))
    with old.connect() as c:
        token = take(c)
        done = dlock.run("status", *looker.words, "-k", "job")
        assert done.status == 77 and "dlock help mysql-schema" in done.stderr
        done = dlock.run("status", *At(old.url).words, "-J", "-k", "job")
        assert done.status == 0 and json.loads(done.stdout)["holders"][0]["token"] == token
        assert dlock.run("ls", *looker.words).status == 0
    old.ask("DROP USER looker@'%'")


def test_who_made_nothing_adds_nothing(dlock, mysql_db):
    """What he would make has his rights, which are none on the tables; the maker adds it at its next use."""
    own = At(mysql_db.url)
    assert dlock.run("run", *own.words, "-k", "job", "--once", "a", "--", "true").status == 0
    for name in ("list_last", "list_jobs", "forget", "forget_run"):
        mysql_db.ask(f"DROP PROCEDURE dlock_{name}_3")
    mysql_db.ask("CREATE OR REPLACE USER maker@'%'")
    mysql_db.ask(f"GRANT EXECUTE, CREATE, CREATE ROUTINE ON `{mysql_db.name}`.* TO maker@'%'")
    there, maker = procedures(mysql_db), At(mysql_url(mysql_db.port, "maker", mysql_db.name))
    for words in (("ls", "--jobs", *maker.words), ("forget", "-y", *maker.words, "job"), ("status", "--done-within", "1h", *maker.words, "job")):
        done = dlock.run(*words)
        assert words[0] == "status" or done.status == 78 and "dlock help mysql-schema | mysql" in done.stderr, done
    assert procedures(mysql_db) == there
    assert dlock.run("forget", "-y", *own.words, "job").status == 0
    mysql_db.ask("DROP USER maker@'%'")


# As the schema had them before it had those that look at each run once.
LISTS = {"list_jobs": ("p_k VARBINARY(512), p_after VARBINARY(512), p_most INT", "k, 0 AS turn, id, began, ended, status, token, ended AS moment,"
                       " record FROM dlock_runs WHERE k > p_after AND k = COALESCE(p_k, k) ORDER BY ended DESC LIMIT 1"),
         "list_done": ("p_after VARBINARY(512), p_id VARBINARY(200), p_most INT", "k, 2 AS turn, id, began, ended, status, token, ended AS moment,"
                       " record FROM dlock_runs WHERE status = 0 AND (k > p_after OR k = p_after AND id > p_id) ORDER BY k, id")}


def jobs(dlock, at):
    done = dlock.run("ls", "--jobs", "-J", *at.words)
    assert (done.status, done.stderr) == (0, "")
    return [{**json.loads(line), "time": None} for line in done.stdout.splitlines()]


@pytest.mark.parametrize("rights", ["EXECUTE ON", "EXECUTE, CREATE ROUTINE ON", "the procedures"])
def test_a_schema_of_before_lists_runs_as_it_did(dlock, mysql_db, rights):
    """To those who may not make what lists them now; its maker makes that."""
    own, other = At(mysql_db.url), At(mysql_url(mysql_db.port, "looker", mysql_db.name))
    assert dlock.run("run", *own.words, "-k", "job", "--once", "a", "--", "true").status == 0
    told, there = jobs(dlock, own), procedures(mysql_db)
    mysql_db.ask("CREATE OR REPLACE USER looker@'%'")
    for name, (words, text) in LISTS.items():
        mysql_db.ask(f"CREATE OR REPLACE DEFINER = {USER}@'%' PROCEDURE dlock_{name}_3({words}) SELECT {text}")
    for name in ("list_last", "list_ids"):
        mysql_db.ask(f"DROP PROCEDURE dlock_{name}_3")
    for name in ("list", "last_run", *LISTS):
        mysql_db.ask(f"GRANT EXECUTE ON PROCEDURE `{mysql_db.name}`.dlock_{name}_3 TO looker@'%'")
    if rights != "the procedures":
        mysql_db.ask(f"GRANT {rights} `{mysql_db.name}`.* TO looker@'%'")
    assert jobs(dlock, other) == told and len(told) == 2
    done = dlock.run("status", "--done-within", "1h", *other.words, "job")
    assert (done.status, done.stderr) == (0, "")
    assert len(procedures(mysql_db)) == len(there) - 2
    assert jobs(dlock, own) == told and procedures(mysql_db) == there
    mysql_db.ask("DROP USER looker@'%'")


def test_who_made_nothing_of_an_older_version_makes_no_newer_one(dlock, old):
    """What he would make has no rights on the tables, and would be in the way of who may make it."""
    old.ask("CREATE OR REPLACE USER maker@'%'")
    old.ask(f"GRANT EXECUTE, CREATE, CREATE ROUTINE ON `{old.name}`.* TO maker@'%'")
    there, maker = procedures(old), At(mysql_url(old.port, "maker", old.name))
    for words in (("run", *maker.words, "-k", "job", "--", "true"), ("status", *maker.words, "job")):
        done = dlock.run(*words)
        assert done.status == 78 and "dlock help mysql-schema | mysql" in done.stderr, done
    assert procedures(old) == there
    assert is_free(dlock, old.url) and procedures(old) > there
    old.ask("DROP USER maker@'%'")


# ---- what others read ----


def test_what_is_sent_before_a_release_releases_nothing(dlock, mysql_db, make_proxy, schema):
    """Whoever sees the processlist reads every statement; the owner's secret is in none while there is something to give back."""
    proxy, up = make_proxy(mysql_db.port), []
    proxy.tap = lambda _, direction, data: (up.append(data) if direction == UP else None) or data
    at = At(mysql_db.through(proxy))
    holder = dlock.contend(at, "job", "-t", "6s", "-v", command=("sh", "-c", "echo $DLOCK_OWNER; cat")).held()
    waiter = dlock.contend(at, "job", "-t", "1h", command=("true",)).queued(1)
    wait_for_renewals(holder, 2)
    wait_for(lambda: mysql_db.server.asleep() == 1, what="the waiter asleep")
    secret = wait_for(lambda: holder.stdout().strip(), what="the secret")
    sent = b"".join(up)
    assert secret.encode() not in sent and secret.encode().hex().encode() not in sent
    words = {bytes.fromhex(word.decode()) for word in re.findall(rb"x'([0-9a-f]+)'", sent)}
    assert owner_of(secret).encode() in words
    with mysql_db.connect() as c:
        for word in words:
            assert call(c, f"dlock_release_{version_of(schema)}", "job", word[:32], None, None, 0) == (0,)
    assert holder.poll() is None and not waiter.events("started")
    assert holder.finish().status == 0 and waiter.wait().status == 0


# ---- what a look costs ----


def rows_read(server):
    return server.status("Handler_read_first", "Handler_read_key", "Handler_read_next", "Handler_read_rnd_next", "Handler_read_prev")


def test_a_look_reads_each_row_a_few_times_at_most(dlock, own_mysql):
    """However many pages it has."""
    assert run(dlock, own_mysql.url).status == 0

    def reads_of(size):
        own_mysql.ask("DELETE FROM dlock_holds", db="app")
        own_mysql.ask("INSERT INTO dlock_holds (k, token, owner, kind, room, slot, since, ends, record) SELECT CONCAT('key', seq), seq,"
                      f" MD5(seq), 'exclusive', 0, -1, 1, {FAR}, '{{}}' FROM seq_1_to_{size}", db="app")
        before = rows_read(own_mysql)
        done = dlock.run("ls", *At(own_mysql.url).words)
        assert done.status == 0 and done.stdout.count("key") == size
        return rows_read(own_mysql) - before

    few = reads_of(50)
    many = reads_of(10000)
    assert many < 10000 * 8 + few * 21, (few, many)  # a page costs as much as the first one, beside its rows


RUNS = 600


def test_a_look_at_jobs_reads_each_run_a_few_times_at_most(dlock, own_mysql):
    """However many a key or an ID has, and however they ended."""
    assert run(dlock, own_mysql.url).status == 0
    for key, run_id, status in (("ids", "CONCAT('id', seq)", "0"), ("one-id", "'id'", "0"), ("failed", "NULL", "seq > 1"),
                                ("late", "NULL", f"seq = {RUNS}")):
        own_mysql.ask("INSERT INTO dlock_runs (k, ended, token, id, began, status, record) SELECT %s, 1000 + seq, seq,"
                      f" {run_id}, seq, {status}, '{{}}' FROM seq_1_to_{RUNS}", key, db="app")
    before = rows_read(own_mysql)
    done = dlock.run("ls", "--jobs", "-J", *At(own_mysql.url).words)
    assert done.status == 0 and done.stdout.count("\n") == 4 + RUNS + 1
    assert rows_read(own_mysql) - before < 4 * RUNS * 20  # each of them for each other one: 90 times as many
    for key, success in (("failed", 1001), ("late", 1000 + RUNS - 1)):
        before = rows_read(own_mysql)
        done = json.loads(dlock.run("status", "-J", *At(own_mysql.url).words, key).stdout)
        assert done["last"]["status"] == 1 and done["last_success"]["token"] == success - 1000
        assert rows_read(own_mysql) - before < RUNS * 20
