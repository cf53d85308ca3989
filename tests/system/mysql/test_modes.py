# Goal of these tests: the modes of MySQL and MariaDB that are not a lease in a table.
# mode=named shares its locks with other programs' GET_LOCK, mode=row with their SELECT ...
# FOR UPDATE.  Both end with their session, and dlock knows when that has ended.

import contextlib
import json
import os
import signal
import threading
import time
import zlib

import pymysql
import pytest

from databases import a_wait_takes_less, block_of, token_of
from faults import LEASE, assert_refused
from mysql_server import MODES, AsMysql, Database, error, mysql_url
from proxy import UP
from support import BRIEFLY, ROOT, At, is_free, run, wait_for

SESSION_MODES = ["row", "named"]


@pytest.fixture(params=SESSION_MODES)
def mode(request):
    return request.param


# ---- a second client: the recipes as other programs write them ----


def key_name(database, key="job"):
    """The name of a key, as the manual has it."""
    return database.value("SELECT CONCAT('dlock:', LEFT(SHA2(CONCAT(%s, CHAR(0), %s), 256), 40))", database.name, key)


@contextlib.contextmanager
def client(database, user="app"):
    with contextlib.closing(database.connect(user=user)) as c, c.cursor() as cursor:
        def ask(sql, *arguments):
            cursor.execute(sql, arguments)
            return cursor.fetchall()

        ask.connection = c
        yield ask


@contextlib.contextmanager
def taken(database, mode, key="job", wait=20, **options):
    """The lock of a key, taken by another program."""
    with client(database, **options) as ask:
        if mode == "named":
            assert ask("SELECT GET_LOCK(%s, %s)", key_name(database, key), wait) == ((1,),)
        else:
            if not ask("SELECT 1 FROM dlock_rows WHERE k = %s", key):
                ask("INSERT IGNORE INTO dlock_rows (k) VALUES (%s)", key)
            ask("SET innodb_lock_wait_timeout = %s", wait)
            ask("START TRANSACTION")
            ask("SELECT k FROM dlock_rows WHERE k = %s FOR UPDATE", key)
        yield ask


def can_take(database, mode, key="job"):
    try:
        with taken(database, mode, key, wait=0):
            return True
    except (AssertionError, pymysql.err.OperationalError):
        return False


def test_other_programs_are_excluded(dlock, mysql_db, mode):
    holder = dlock.hold(At(mysql_db.url, mode), "job")
    assert not can_take(mysql_db, mode)
    assert can_take(mysql_db, mode, "another")
    assert holder.finish().status == 0
    assert can_take(mysql_db, mode)


def test_other_programs_exclude(dlock, mysql_db, mode):
    assert run(dlock, mysql_db.url, mode=mode).status == 0
    with taken(mysql_db, mode):
        assert run(dlock, mysql_db.url, "-n", mode=mode).status == 75
        assert run(dlock, mysql_db.url, "-w", BRIEFLY, mode=mode).status == 75
        waiter = dlock.contend(At(mysql_db.url, mode), "job", command=("true",))
        waiter.event("waiting")
    assert waiter.wait().status == 0


def test_others_wait_in_the_same_queue(dlock, mysql_db, mode):
    holder = dlock.hold(At(mysql_db.url, mode), "job")
    served = threading.Event()

    def other():
        with taken(mysql_db, mode):
            served.set()

    thread = threading.Thread(target=other)
    thread.start()
    wait_for(lambda: mysql_db.ask("SELECT 1 FROM information_schema.processlist WHERE db = %s AND time_ms > 100 AND"
                                  " (info LIKE 'SELECT GET_LOCK%%' OR info LIKE 'SELECT k FROM dlock_rows%%')", mysql_db.name),
             what="the other one in the queue")
    assert not served.is_set()
    assert holder.finish().status == 0
    thread.join(20)
    assert served.is_set()


@pytest.mark.parametrize("name", ["nightly", "Mein Schloß", "dlock:x", "a'b\\"])
def test_a_name_of_another_program(dlock, mysql_db, name):
    words = ["-u", mysql_db.url, "-O", "mode=named", "-O", f"name={name}"]
    holder = dlock.start("run", *words, "-k", "job", "--", "sleep", "1000").held()
    with client(mysql_db) as ask:
        assert ask("SELECT GET_LOCK(%s, 0)", name) == ((0,),)
        holder.signal(signal.SIGTERM)
        assert holder.wait().status == -signal.SIGTERM
        assert ask("SELECT GET_LOCK(%s, 0)", name) == ((1,),)
        done = dlock.run("run", *words, "-k", "whatever", "-n", "true")
        assert done.status == 75


def test_a_lock_that_nobody_else_has_is_warned_of(dlock, mysql_db):
    warning = "mode=named without name= or derive=: no other program takes this lock"
    words = ["-u", mysql_db.url, "-O", "mode=named"]
    assert dlock.run("run", *words, "-k", "job", "--", "true").stderr.count(warning) == 1
    for more in (["-O", "derive=dlock"], ["-O", "name=x"], ["-q"]):
        assert dlock.run("run", *words, *more, "-k", "job", "--", "true").stderr == ""
    assert dlock.run("status", *words, "job").stderr == ""


@pytest.mark.parametrize("tool, key, name", [
    ("prisma-migrate", "any", lambda _: "prisma_migrate"),
    ("golang-migrate", "schema_migrations", lambda db: str(zlib.crc32(f"{db}:schema_migrations".encode()) * 1486364155 % (1 << 32))),
    ("with_advisory_lock", "report", lambda _: "report"),
])
def test_a_name_that_a_program_derives(dlock, mysql_db, tool, key, name):
    words, name = ["-u", mysql_db.url, "-O", "mode=named", "-O", f"derive={tool}"], name(mysql_db.name)
    holder = dlock.start("run", *words, "-k", key, "--", "sleep", "1000").held()
    with client(mysql_db) as ask:
        assert ask("SELECT GET_LOCK(%s, 0)", name) == ((0,),)
        assert dlock.run("status", *words, key).status == 0
        holder.signal(signal.SIGTERM)
        assert holder.wait().status == -signal.SIGTERM
        assert ask("SELECT GET_LOCK(%s, 0)", name) == ((1,),)
        assert dlock.run("run", *words, "-k", key, "-n", "true").status == 75
        assert dlock.run("status", *words, key).status == 0


def java_hash(text):
    found = 0
    for c in text:
        found = (31 * found + ord(c)) & 0xffffffff
    return found - (1 << 32) if found >> 31 else found


@pytest.mark.parametrize("tool, key, name", [
    ("rails-migration", "any", lambda db: str(2053462845 * zlib.crc32(db.encode()))),
    ("flyway", "flyway_schema_history", lambda db: f"Flyway-{java_hash(f'`{db}`.`flyway_schema_history`')}"),
])
def test_a_name_has_the_database_as_the_server_calls_it(dlock, make_mysql, tool, key, name):
    """As those programs ask for it; lower_case_table_names=1: /LAB is the database lab."""
    server = make_mysql(lower_case_table_names=1)
    words = [["run", "-u", f"{server.url.rpartition('/')[0]}/{typed}", "-O", "mode=named", "-O", f"derive={tool}", "-k", key, "-n"]
             for typed in (server.name.lower(), server.name.upper())]
    with client(server) as ask:
        for how, other in (words, words[::-1]):
            holder = dlock.start(*how, "--", "sleep", "1000").held()
            assert ask("SELECT GET_LOCK(%s, 0)", name(server.name.lower())) == ((0,),)
            assert dlock.run(*other, "true").status == 75
            for shown in (how, other):
                assert dlock.run("status", *shown[1:-1]).status == 0
            holder.signal(signal.SIGTERM)
            assert holder.wait().status == -signal.SIGTERM


@pytest.mark.parametrize("settings", [["mode=named", "name="], ["mode=named", "name=" + "x" * 193], ["name=x"],
                                      ["mode=row", "name=x"], ["mode=names"], ["mode=named", "derive=liquibase"], ["derive=flyway"]])
def test_settings_that_make_no_sense(dlock, mysql_server, settings):
    words = [w for s in settings for w in ("-O", s)]
    assert_refused(run(dlock, mysql_server.url, *words), 64, settings[-1].split("=")[0])


def test_readers_of_other_programs(dlock, mysql_db):
    at = At(mysql_db.url, "row")
    readers = [dlock.hold(at, "job", "-s") for _ in range(2)]
    with client(mysql_db) as ask:
        ask("START TRANSACTION")
        assert ask("SELECT k FROM dlock_rows WHERE k = 'job' LOCK IN SHARE MODE") == ((b"job",),)
        assert [r.finish().status for r in readers] == [0, 0]
        assert run(dlock, mysql_db.url, "-n", mode="row").status == 75
        assert run(dlock, mysql_db.url, "-n", "-s", mode="row").status == 0


def test_a_key_is_another_lock_in_another_database(dlock, mysql_db, mysql_server, mode):
    """Although names of GET_LOCK are the whole server's."""
    other = mysql_server.database()
    holders = [dlock.hold(At(db.url, mode), "job", "-n") for db in (mysql_db, other)]
    assert [h.finish().status for h in holders] == [0, 0]
    other.drop()


def one_run(dlock, server, at):
    """Of a key that nobody has; on one connection, for of one that was left the server frees a name some time later."""
    before = server.status("Connections")
    assert dlock.run("run", *at.words, "-n", "-k", "job", "--", "true").status == 0
    assert server.status("Connections") - before == 2  # the second one reads the number


def test_first_use_finds_nobody(dlock, mysql_db, mysql_server, mode):
    """Making the tables on the way, it does not find itself."""
    one_run(dlock, mysql_server, At(mysql_db.url, mode))


def test_first_use_without_a_right_to_make_the_table_finds_nobody(dlock, mysql_db, mysql_server):
    mysql_server.ask("CREATE USER reader@'%'")
    mysql_server.ask(f"GRANT SELECT ON `{mysql_db.name}`.* TO reader@'%'")
    one_run(dlock, mysql_server, At(mysql_url(mysql_server.port, user="reader", db=mysql_db.name), "named"))
    mysql_server.ask("DROP USER reader@'%'")


# ---- how long one waits ----


@pytest.mark.parametrize("mode", MODES)
def test_a_wait_need_not_be_whole_seconds(dlock, mysql_db, mode):
    at = At(mysql_db.url, mode)
    dlock.hold(at, "job", "-t", "10m")
    assert a_wait_takes_less(1.9, dlock, at, 75, "1100ms")


def test_the_end_of_a_wait_on_mysql_is_not_spent_on_questions(dlock, mysql_db, request):
    """Whose GET_LOCK takes 0.4 s for 0 s: it would say at once that it was in vain."""
    proxy = AsMysql(mysql_db.port)
    request.addfinalizer(proxy.close)
    at = At(mysql_db.through(proxy), "named")
    holder = dlock.hold(At(mysql_db.url, "named"), "job", "-t", "10m")
    assert a_wait_takes_less(2.4, dlock, at, 75, "1990ms")
    assert {ms % 1000 for ms in proxy.asked} == {0} and 1000 in proxy.asked
    proxy.asked.clear()
    assert dlock.contend(at, "job", "-w", "490ms").wait().status == 75
    assert set(proxy.asked) == {0} and len(proxy.asked) < 20
    waiter = dlock.contend(at, "job", "-w", "1m", command=("true",))
    waiter.event("waiting")
    assert holder.finish().status == 0 and waiter.wait().status == 0


@pytest.mark.parametrize("how", ["READ", "WRITE"])
def test_a_table_that_is_locked_is_no_holder(dlock, mysql_db, how):
    """As by mysqldump: a key that nobody holds is not called held."""
    assert is_free(dlock, mysql_db.url, mode="row")
    with client(mysql_db) as ask:
        ask(f"LOCK TABLES dlock_rows {how}, dlock_grants READ")
        assert_refused(run(dlock, mysql_db.url, "-n", mode="row"), 69, "LOCK TABLES")
        waiter = dlock.contend(At(mysql_db.url, "row"), "job", "-w", "1m", command=("true",))
        waiter.event("retrying")
        ask("UNLOCK TABLES")
        assert waiter.wait().status == 0
    with taken(mysql_db, "row"):
        assert run(dlock, mysql_db.url, "-n", mode="row").status == 75


def test_a_table_that_another_run_makes_meanwhile_is_waited_for(dlock, mysql_db):
    """Also by a run that does not wait for a holder."""
    assert is_free(dlock, mysql_db.url, mode="row")
    waits = "SELECT 1 FROM information_schema.processlist WHERE db = %s AND state = 'Waiting for table metadata lock'"

    def is_granted():
        with client(mysql_db) as ask:
            ask("LOCK TABLES dlock_rows WRITE")
            one = dlock.contend(At(mysql_db.url, "row"), "job", "-n", command=("true",))
            wait_for(lambda: mysql_db.ask(waits, mysql_db.name) or one.poll() is not None, what="the wait for the table")
            ask("UNLOCK TABLES")
            done = one.wait()
        assert done.status in (0, 69), done
        return done.status == 0

    assert any(is_granted() for _ in range(3))  # it waits for two seconds, in which we may not get that far


@pytest.mark.parametrize("how", ["LOCK TABLES dlock_rows READ, dlock_grants READ", "FLUSH TABLES WITH READ LOCK"])
def test_tables_that_are_locked_for_long_cost_a_session_lock_nothing(dlock, own_mysql, mode, how):
    """Who locks the tables themselves waits for the command; who is free is not called held, and who asks gets no lock."""
    at = At(own_mysql.url, mode)
    assert run(dlock, own_mysql.url, mode=mode).status == 0
    holder = dlock.hold(at, "job", "-t", "6s")
    done = threading.Event()

    def lock():
        with contextlib.closing(own_mysql.connect(db="app")) as c, c.cursor() as cursor:
            cursor.execute(how)
            done.set()
            released.wait(60)

    released = threading.Event()
    thread = threading.Thread(target=lock)
    thread.start()
    if how.startswith("LOCK"):
        assert not done.wait(7)
    else:
        assert done.wait(20)
        assert_refused(run(dlock, own_mysql.url, "-n", key="other", mode=mode), 69)
        time.sleep(7)
    assert holder.poll() is None and not holder.events("lost")
    assert holder.finish().status == 0
    assert done.wait(20)
    assert_refused(run(dlock, own_mysql.url, "-n", key="other", mode=mode), 69)
    released.set()
    thread.join()
    assert run(dlock, own_mysql.url, "-n", key="other", mode=mode).status == 0


# ---- what the manual says ----


def test_other_programs_do_as_the_manual_says(dlock, own_mysql):
    """With its statements they exclude dlock and are excluded, by the commands that stand there."""
    assert run(dlock, own_mysql.url, mode="row").status == 0
    name = block_of("dlock-mysql.7", "SELECT GET_LOCK(CONCAT").strip().rstrip(";").replace("%", "%%")
    insert, begin, select = block_of("dlock-mysql.7", "INSERT IGNORE").strip().rstrip(";").split(";")
    own_name = "SELECT GET_LOCK('nightly', 0)"
    for words, takes in ((["-O", "mode=named", "-k", "job"], [name]), (["-O", "mode=named", "-O", "name=nightly", "-k", "nightly"], [own_name]),
                         (["-O", "mode=row", "-k", "job"], [begin, select])):
        typed = ["run", "-u", own_mysql.url, *words, "-n", "true"]
        with client(Database(own_mysql, "app")) as ask:
            ask(insert)
            assert dlock.run(*typed).status == 0
            for sql in takes:
                found = ask(sql)
            assert found in (((1,),), ((b"job",),))
            assert dlock.run(*typed).status == 75
            seen = dlock.run("status", "-u", own_mysql.url, *words)
            assert ("a session" in seen.stdout) == ("mode=named" in words), seen


@pytest.mark.parametrize("marker", ["mode=named -O name=nightly", "mode=row -k job"])
def test_the_commands_of_the_manual_run_the_job(dlock, own_mysql, tmp_path, marker):
    with open(os.path.join(ROOT, "man/dlock-mysql.7"), encoding="utf-8") as f:
        line, = [line for line in f.read().replace("\\-", "-").splitlines() if marker in line]
    (tmp_path / "job").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "job").chmod(0o755)
    words = line.removeprefix(".Dl ").split()
    assert words[:2] == ["dlock", "run"]
    done = dlock.run("run", "-u", own_mysql.url, *words[2:], cwd=tmp_path)
    assert (done.status, done.stdout) == (0, "ran\n"), done


# ---- who it is ----


def look(dlock, url, mode, *words):
    done = dlock.run("status", *At(url, mode).words, "-J", "-k", "job", *words)
    assert done.status in (0, 1), done
    return json.loads(done.stdout)


def test_who_holds_and_who_waits(dlock, mysql_db, mode):
    at = At(mysql_db.url, mode)
    holder = dlock.hold(at, "job", "--who", "alice", "--why", "x" * 200)
    waiters = [dlock.contend(at, "job", "--who", f"w{i}") for i in range(2)]
    for waiter in waiters:
        waiter.event("waiting")
    assert json.loads(waiters[0].events("waiting")[-1]["holder"])["who"] == "alice"
    found = wait_for(lambda: len((seen := look(dlock, mysql_db.url, mode))["waiters"]) == 2 and seen)
    assert found["holders"][0]["who"] == "alice" and found["holders"][0]["why"] == "x" * 200
    assert found["holders"][0]["token"] == holder.token and not found["holders"][0]["foreign"]
    assert {w["who"] for w in found["waiters"]} == {"w0", "w1"}
    holder.finish()
    wait_for(lambda: look(dlock, mysql_db.url, mode)["state"] == "held", what="the next holder")


def test_another_program_is_shown_and_its_session_ended(dlock, mysql_db):
    with taken(mysql_db, "named") as ask:
        number = ask.connection.thread_id()
        holder = look(dlock, mysql_db.url, "named")["holders"][0]
        assert holder["foreign"] and holder["who"] == "app" and holder["host"].startswith("127.0.0.1")
        assert holder["owner"] == f"{number}-0"
        waiter = dlock.contend(At(mysql_db.url, "named"), "job", "-w", BRIEFLY)
        assert json.loads(waiter.event("waiting")["holder"])["who"].startswith("app@127.0.0.1")
        assert waiter.wait().status == 75
        assert dlock.run("break", *At(mysql_db.url, "named").words, "--force", "-y", "-k", "job").status == 0
        with pytest.raises(pymysql.err.OperationalError):
            ask("SELECT 1")
    assert is_free(dlock, mysql_db.url, mode="named")


def test_break_takes_the_right_to_end_a_session(dlock, mysql_db, mode):
    mysql_db.ask("CREATE USER guest@'%'")
    mysql_db.ask(f"GRANT SELECT, INSERT, DELETE ON `{mysql_db.name}`.* TO guest@'%'")
    holder = dlock.hold(At(mysql_db.url, mode), "job")
    words = At(mysql_url(mysql_db.port, "guest", mysql_db.name), mode).words
    done = dlock.run("break", *words, "--force", "-y", "-k", "job")
    mysql_db.ask("DROP USER guest@'%'")
    assert_refused(done, 77, "CONNECTION ADMIN")
    assert holder.finish().status == 0


def test_force(dlock, mysql_db, mode):
    at = At(mysql_db.url, mode)
    holder = dlock.hold(at, "job", "-t", "10m")
    waiter = dlock.contend(at, "job", command=("true",))
    waiter.event("waiting")
    assert dlock.run("break", *at.words, "--force", "-y", "-k", "job").status in (0, 75)
    assert holder.wait().status == 79 and waiter.wait().status == 0


# ---- tokens ----


def test_tokens_grow_whatever_ends(dlock, make_mysql, mode):
    """A release, a killed session, a crash of the server."""
    server = make_mysql(safe=True)
    tokens = [token_of(dlock, server.url, mode) for _ in range(3)]
    for end in (server.terminate, server.restart):
        holder = dlock.hold(At(server.url, mode), "job", *LEASE)
        tokens.append(holder.token)
        end()
        assert holder.wait().status == 79
        tokens += [token_of(dlock, server.url, mode) for _ in range(2)]
    assert tokens == sorted(set(tokens)) and tokens[0] > 1.7e15


def test_tokens_grow_though_the_clock_goes_back(dlock, mysql_db, mode):
    """AUTO_INCREMENT never gives a number twice, whatever was rolled back."""
    tokens = [token_of(dlock, mysql_db.url, mode)]
    ahead = int((time.time() + 3600) * 1e6)
    mysql_db.ask(f"ALTER TABLE dlock_grants AUTO_INCREMENT = {ahead}")
    tokens += [token_of(dlock, mysql_db.url, mode) for _ in range(3)]
    assert tokens == sorted(set(tokens)) and tokens[1] >= ahead


def test_a_user_who_may_make_nothing_can_take_a_name(dlock, mysql_server, mysql_db):
    """Tokens are then the server's clock."""
    mysql_db.ask("CREATE USER nobody@'%'")
    url = f"mysql://nobody@127.0.0.1:{mysql_server.port}/"
    before = time.time() * 1e6
    tokens = [token_of(dlock, url, "named") for _ in range(3)]
    holder = dlock.hold(At(url, "named"), "job")
    done = run(dlock, url, "-n", key="job", mode="named")
    found = look(dlock, url, "named")
    waiter = dlock.contend(At(url, "named"), "job", command=("true",))
    waiter.event("waiting")
    assert holder.finish().status == 0 and waiter.wait().status == 0
    mysql_db.ask("DROP USER nobody@'%'")
    assert before < tokens[0] < tokens[1] < tokens[2] < time.time() * 1e6
    assert done.status == 75 and found["holders"][0]["foreign"] and found["holders"][0]["who"] == "nobody"


# ---- the session ends, and the lock with it ----


def test_a_lock_that_was_given_back_behind_our_back_is_lost(dlock, mysql_db, make_mysql_tamper, mode):
    """The server says at a renewal that the session no longer has it."""
    lie = threading.Event()

    def change(_, body):
        return [b"\x010"] if lie.is_set() and body == b"\x011" else [body]

    proxy = make_mysql_tamper(mysql_db.port, change)
    holder = dlock.hold(At(mysql_url(proxy.port, db=mysql_db.name), mode), "job", *LEASE)
    lie.set()
    assert holder.wait().status == 79


def test_a_row_is_held_by_its_transaction_alone(dlock, mysql_db, make_proxy):
    """Should that have been rolled back while the session lives, its row in dlock_grants is not there any more."""
    proxy, asked = make_proxy(mysql_db.port), b"FROM dlock_grants WHERE n = 1"
    holder = dlock.hold(At(mysql_url(proxy.port, db=mysql_db.name), "row"), "job", *LEASE)
    proxy.tap = lambda _, direction, data: data.replace(asked, asked[:-1] + b"2") if direction == UP else data
    assert holder.wait().status == 79


HOSTILE = {"wait_timeout": 1, "interactive_timeout": 1, "idle_transaction_timeout": 1, "idle_write_transaction_timeout": 1,
           "idle_readonly_transaction_timeout": 1, "max_statement_time": 2, "innodb_lock_wait_timeout": 1, "lock_wait_timeout": 1,
           "transaction_isolation": "SERIALIZABLE", "sql_mode": "ANSI,NO_BACKSLASH_ESCAPES", "autocommit": 0,
           "default_time_zone": "+05:00", "completion_type": "RELEASE", "innodb_rollback_on_timeout": 1}


def test_settings_of_the_server_do_no_harm(dlock, make_mysql, tmp_path):
    """Nor those of an option file."""
    server = make_mysql(**HOSTILE)
    (tmp_path / ".my.cnf").write_text("[client]\ninit-command=SET SESSION wait_timeout=1\n[dlock]\nlocal-infile=1\n"
                                      "init-command=SET SESSION wait_timeout=1, autocommit=0\n")
    env = {"HOME": str(tmp_path), "MARIADB_HOME": str(tmp_path)}
    holders = [dlock.contend(At(server.url, m), "job", "-t", "9s", "-v", env=env).held() for m in MODES]
    waiters = [dlock.contend(At(server.url, m), "job", command=("true",), env=env) for m in MODES]
    for holder in holders:
        wait_for(lambda h=holder: "renew: ok" in h.stderr(), what="a renewal")  # at a third of 9 s
    for waiter in waiters:
        waiter.event("waiting")
    for holder, waiter in zip(holders, waiters):
        assert holder.finish().status == 0
        assert waiter.wait().status == 0


# ---- waiting ----


SLEEPS = "SELECT id FROM information_schema.processlist WHERE db = %s AND state IN ('User lock', 'Statistics', 'Updating')" \
         " OR (db = %s AND info LIKE '%%FOR UPDATE')"


def test_a_sleep_that_is_broken_off_is_no_grant(dlock, mysql_db, mode):
    """KILL QUERY: GET_LOCK says NULL, and no error."""
    holder = dlock.hold(At(mysql_db.url, mode), "job")
    waiter = dlock.contend(At(mysql_db.url, mode), "job", command=("true",))
    waiter.event("waiting")
    for _ in range(3):
        found = wait_for(lambda: mysql_db.ask(SLEEPS, mysql_db.name, mysql_db.name), what="a sleeper")
        mysql_db.ask(f"KILL QUERY {found[0][0]}")
        time.sleep(0.3)
        assert not waiter.running and waiter.poll() is None
    assert holder.finish().status == 0 and waiter.wait().status == 0


@pytest.mark.parametrize("code", [1213, 3058])
def test_a_deadlock_is_none(dlock, mysql_db, make_mysql_tamper, code):
    """The server takes a long chain of waits for one: then we ask again."""
    holder = dlock.hold(At(mysql_db.url, "named"), "job")
    lies, told = threading.Event(), threading.Event()

    def change(number, body):
        if not lies.is_set() or told.is_set() or body != b"\x010" or number < 4:
            return [body]
        told.set()
        return [error(code, "Deadlock found")]

    proxy = make_mysql_tamper(mysql_db.port, change)
    waiter = dlock.contend(At(mysql_url(proxy.port, db=mysql_db.name), "named"), "job", command=("true",))
    waiter.event("waiting")
    lies.set()
    wait_for(told.is_set, what="the lie")
    assert not waiter.running
    assert holder.finish().status == 0 and waiter.wait().status == 0


def test_another_program_is_named_to_who_waits(dlock, mysql_db):
    assert run(dlock, mysql_db.url, mode="named").status == 0
    with taken(mysql_db, "named") as ask:
        done = run(dlock, mysql_db.url, "-n", mode="named")
        assert_refused(done, 75, "app@127.0.0.1", str(ask.connection.thread_id()))


# ---- where it cannot be ----


@pytest.mark.parametrize("single, status", [("ON", 0), ("OFF", 78)])
def test_one_of_several_primaries_is_refused(dlock, mysql_db, request, mode, single, status):
    """As MySQL's group replication can be told to run: each has locks of its own."""
    proxy, asked = AsMysql(mysql_db.port), b"SHOW GLOBAL VARIABLES LIKE 'group_replication_single_primary_mode'"
    request.addfinalizer(proxy.close)
    rewrite = proxy.tap
    answer = f"SELECT 'group_replication_single_primary_mode', '{single}'".encode().ljust(len(asked))
    proxy.tap = lambda link, direction, data: rewrite(link, direction, data).replace(asked, answer)
    done = run(dlock, mysql_db.through(proxy), mode=mode)
    assert done.status == status and ("is one of several primaries" in done.stderr) == (status != 0), done


def test_refused_behind_a_proxy_that_lends_sessions(dlock, mysql_db, make_mysql_tamper, mode):
    """The server's number of the session is not the one of the greeting."""
    def change(number, body):
        if number == 0 and body[:1] == b"\n":
            at = body.index(b"\0") + 1
            return [body[:at] + (77777).to_bytes(4, "little") + body[at + 4:]]
        return [body]

    proxy = make_mysql_tamper(mysql_db.port, change, ready=0)
    url = mysql_url(proxy.port, db=mysql_db.name)
    assert_refused(run(dlock, url, mode=mode), 78, "proxy", "mode=lease")
    assert run(dlock, url).status == 0


def test_a_server_that_is_read_only_is_refused(dlock, make_mysql):
    """Also to who might write there: GET_LOCK on a replica excludes nobody."""
    server = make_mysql()
    for m in MODES:
        assert run(dlock, server.url, mode=m).status == 0
    server.ask("SET GLOBAL read_only = 1")
    for user in ("app", "root"):
        for m in MODES:
            assert_refused(run(dlock, mysql_url(server.port, user), mode=m), 78, "read-only")


def test_rights_that_are_missing(dlock, mysql_db, mode):
    mysql_db.ask("CREATE USER poor@'%'")
    mysql_db.ask(f"GRANT SELECT ON `{mysql_db.name}`.* TO poor@'%'")
    url = mysql_url(mysql_db.port, "poor", mysql_db.name)
    done = run(dlock, url, mode="row")
    assert_refused(done, 77, "dlock help mysql-schema", "GRANT SELECT, INSERT, DELETE ON")
    assert run(dlock, mysql_db.url, mode="row").status == 0
    mysql_db.ask(f"GRANT SELECT, INSERT, DELETE ON `{mysql_db.name}`.dlock_rows TO poor@'%'")
    mysql_db.ask(f"GRANT SELECT, INSERT, DELETE ON `{mysql_db.name}`.dlock_grants TO poor@'%'")
    mysql_db.ask(f"REVOKE SELECT ON `{mysql_db.name}`.* FROM poor@'%'")
    for options in ((), ("-s",)) if mode == "row" else ((),):
        assert run(dlock, url, *options, mode=mode).status == 0
    mysql_db.ask("DROP USER poor@'%'")


def test_nothing_is_left(dlock, mysql_db, mode):
    """No row but the key's, and no open transaction."""
    holder = dlock.hold(At(mysql_db.url, mode), "job")
    waiter = dlock.contend(At(mysql_db.url, mode), "job", command=("true",))
    waiter.event("waiting")
    assert holder.finish().status == 0 and waiter.wait().status == 0
    wait_for(lambda: not mysql_db.sessions(), what="the end of all sessions")
    with client(mysql_db) as ask:
        ask("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        assert ask("SELECT * FROM dlock_grants") == ()
