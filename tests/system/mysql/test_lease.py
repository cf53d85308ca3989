# Goal of these tests: who waits for a lease on MySQL sleeps, is woken in order, and is no
# ghost; what the procedures decide, they decide whatever has happened to sessions and rows.

import concurrent.futures
import contextlib
import hashlib
import time

import pymysql
import pytest

from databases import wait_for_renewals
from faults import assert_refused
from mysql_server import USER, AsMysql, mysql_url, on_galera
from proxy import UP
from support import At, boottime, is_free, run, spent, wait_for

FAR = 9_000_000_000_000_000  # a time that does not come


def secret_of(number):
    return f"{number:032x}"


def owner_of(number):
    """As the tables have it, and every statement but a release."""
    return hashlib.sha256(secret_of(number).encode()).hexdigest()[:32]


OWNER = owner_of(0)


def call(connection, procedure, *arguments):
    """The one row that it gives."""
    with connection.cursor() as cursor:
        cursor.execute(f"CALL {procedure}({', '.join(['%s'] * len(arguments))})", arguments)
        return cursor.fetchone()


def enter(connection, owner, kind="exclusive", room=0, patience=9_000, bells=1, by=FAR, key="job", cooldown=0):
    session = connection.thread_id() if bells else 0
    row = call(connection, "dlock_enter_3", key, owner, "{}", 30_000, patience, kind, room, None, cooldown, session, 0, by)
    return dict(zip(("code", "token", "slot", "place"), row))


@pytest.fixture
def made(dlock, mysql_db):
    """The tables are there."""
    assert run(dlock, mysql_db.url).status == 0
    return mysql_db


# ---- waiting ----


def test_a_crowd_sleeps_and_is_served_in_order(dlock, own_mysql):
    """More than a server lets wait for each other in a chain: nobody is told of a deadlock, nobody has to poll."""
    n = 70
    holder = dlock.hold(At(own_mysql.url), "job")
    crowd = [dlock.contend(At(own_mysql.url), "job", command=("true",)).queued(i + 1) for i in range(n)]
    wait_for(lambda: own_mysql.asleep() == n, what="all to sleep")
    before = own_mysql.status("Questions")
    time.sleep(1)
    assert own_mysql.status("Questions") - before < n  # one or the other may have asked again
    wait_for(lambda: own_mysql.asleep() > n * 0.9, what="most to sleep")
    assert holder.finish().status == 0
    assert [w.wait().status for w in crowd] == [0] * n
    tokens = [w.token for w in crowd]
    assert tokens == sorted(tokens)


def test_a_release_wakes_who_is_next_and_at_most_one_more(dlock, own_mysql):
    holder = dlock.hold(At(own_mysql.url), "job")
    crowd = [dlock.contend(At(own_mysql.url), "job").queued(i + 1) for i in range(30)]
    wait_for(lambda: own_mysql.asleep() == 30, what="all to sleep")
    time.sleep(0.3)
    before = own_mysql.status("Com_call_procedure")
    assert holder.finish().status == 0
    crowd[0].held()
    wait_for(lambda: own_mysql.asleep() == 29, what="the others to sleep")
    # the release; its await ends, it renews; the one 16 places behind asks and sleeps again; calls within calls count
    assert own_mysql.status("Com_call_procedure") - before < 30
    for w in crowd:
        w.finish()


def test_who_waits_for_readers_sleeps(dlock, mysql_db):
    readers = [dlock.hold(At(mysql_db.url), "job", "-s") for _ in range(3)]
    writer = dlock.contend(At(mysql_db.url), "job", "-x", command=("true",)).queued(1)
    wait_for(lambda: mysql_db.server.asleep() > 0, what="sleep")
    for reader in readers:
        assert writer.poll() is None
        reader.finish()
    assert writer.wait().status == 0


def test_readers_behind_a_writer_are_granted_by_one_release(dlock, mysql_db):
    writer = dlock.hold(At(mysql_db.url), "job", "-x")
    readers = [dlock.contend(At(mysql_db.url), "job", "-s").queued(i + 1) for i in range(6)]
    last = dlock.contend(At(mysql_db.url), "job", "-x", command=("true",)).queued(7)
    writer.finish()
    for reader in readers:
        reader.held()
    assert {since for since, in mysql_db.ask("SELECT since FROM dlock_holds")}.__len__() == 1
    for reader in readers:
        reader.finish()
    assert last.wait().status == 0


def test_a_sleeper_that_is_disturbed_goes_on(dlock, mysql_db):
    """KILL QUERY, which GET_LOCK answers with NULL, and KILL."""
    holder = dlock.hold(At(mysql_db.url), "job")
    waiters = [dlock.contend(At(mysql_db.url), "job", command=("true",)).queued(i + 1) for i in range(3)]
    for word in ("KILL QUERY", "KILL") * 2:
        wait_for(lambda: mysql_db.server.asleep() == 3, what="sleep")
        for number in mysql_db.sessions()[1:]:
            with contextlib.suppress(pymysql.err.OperationalError):  # one that was killed before has gone by now
                mysql_db.ask(f"{word} {number}")
    assert all(w.poll() is None for w in waiters)
    wait_for(lambda: mysql_db.server.asleep() == 3, what="sleep")
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0, 0]
    tokens = [w.token for w in waiters]
    assert tokens == sorted(tokens)


def test_a_question_that_was_cancelled_is_no_sleep_that_was(dlock, mysql_db, request):
    """The wait that follows it ends as one that has expired.  One of three may do so between two waits."""
    proxy = AsMysql(mysql_db.port)
    request.addfinalizer(proxy.close)
    assert run(dlock, mysql_db.url).status == 0

    def replace(function):
        mysql_db.ask("DROP PROCEDURE dlock_enter_3")
        mysql_db.ask(function)

    def expires_while_it_waits():
        holder = dlock.hold(At(mysql_db.url), "job", "-t", "60s")
        waiter = dlock.contend(At(mysql_db.through(proxy)), "job", "-t", "60s", "-w", "2950ms").queued(1)
        function = mysql_db.ask("SHOW CREATE PROCEDURE dlock_enter_3")[0][2]
        replace(function.replace("\tCALL dlock_must_lock_3();", "\tSIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317;"))
        status = waiter.wait().status
        replace(function)
        assert holder.finish().status == 0
        return status == 75

    assert any(expires_while_it_waits() for _ in range(3))


def test_a_dead_waiter_is_passed_over_at_once(dlock, mysql_db):
    holder = dlock.hold(At(mysql_db.url), "job", "-t", "60s")
    dead = dlock.contend(At(mysql_db.url), "job").queued(1)
    waiter = dlock.contend(At(mysql_db.url), "job", command=("true",)).queued(2)
    dead.destroy()
    wait_for(lambda: mysql_db.value("SELECT IS_FREE_LOCK(CONCAT('dlock:', bell)) FROM dlock_waiters ORDER BY ticket LIMIT 1"),
             what="the end of its session")
    began = boottime()
    assert holder.finish().status == 0
    assert waiter.wait().status == 0 and spent(began) < 8


def behind_a_proxy(number, body):
    """The greeting names another session than the one that is talked to."""
    if number != 0:
        return [body]
    end = body.index(b"\0") + 1
    return [body[:end] + b"\1\2\3\4" + body[end + 4:]]


@pytest.mark.parametrize("change", [behind_a_proxy, on_galera])
def test_where_there_are_no_bells_waiters_ask(dlock, mysql_db, make_mysql_tamper, change):
    """And are served in order all the same."""
    at = At(mysql_url(make_mysql_tamper(mysql_db.server.port, change, ready=0).port, db=mysql_db.name))
    holder = dlock.contend(at, "job", "-t", "9s").held()
    waiters = [dlock.contend(at, "job", command=("true",)).queued(i + 1) for i in range(3)]
    assert mysql_db.ask("SELECT DISTINCT bell FROM dlock_holds UNION SELECT bell FROM dlock_waiters") == [(None,)]
    assert mysql_db.server.asleep() == 0
    dead = dlock.contend(at, "job").queued(4)
    dead.destroy()
    last = dlock.contend(At(mysql_db.url), "job", command=("true",)).queued()  # the dead one counts for 9 s at most
    assert holder.finish().status == 0
    assert [w.wait().status for w in (*waiters, last)] == [0] * 4
    tokens = [w.token for w in (*waiters, last)]
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("option", [("--once", "a"), ("--cooldown", "1h")])
def test_on_a_cluster_a_job_sees_a_release_that_came_while_it_was_granted(dlock, made, make_mysql_tamper, option):
    """Another node's, which becomes visible when the runs have been read: here a trigger writes what that would."""
    at = At(mysql_url(make_mysql_tamper(made.server.port, on_galera, ready=0).port, db=made.name))
    made.ask("CREATE TRIGGER other_node AFTER INSERT ON dlock_holds FOR EACH ROW INSERT INTO dlock_runs (k, ended, token, id, began, status, record) "
             "VALUES (NEW.k, NEW.since, NEW.token - 1, 'a', NEW.since - 1000, 0, '{}')")
    job = dlock.run("run", *at.words, "-k", "job", *option, "--skipped-exit-code", "9", "--", "echo", "ran")
    assert (job.status, job.stdout) == (9, "")
    assert is_free(dlock, at, key="job")


# As the schema had it before freeze_key.
OLD_FREEZE = """p_k VARBINARY(512), p_record VARBINARY(1023), p_length_ms BIGINT)
BEGIN
    INSERT INTO dlock_holds (k, token, owner, kind, room, since, ends, record)
        VALUES (p_k, 0, '', 'freeze', 0, 1, 9223372036854775807, p_record) ON DUPLICATE KEY UPDATE record = p_record;
    SELECT 1 AS done;
END"""


def test_a_freeze_changes_the_row_that_each_grant_changes(dlock, made):
    """So of the two the servers of a cluster commit the second only if it has seen the first (histories of Galera)."""
    last = made.value("SELECT last FROM dlock_keys WHERE k = 'job'")
    for _ in range(2):
        assert dlock.run("freeze", "-u", made.url, "-k", "job").status == 0
        assert made.value("SELECT last FROM dlock_keys WHERE k = 'job'") > last
        last = made.value("SELECT last FROM dlock_keys WHERE k = 'job'")
    with made.connect() as c:  # as an older dlock asks
        assert call(c, "dlock_freeze_3", "job", "{}", None) == (1,)
    assert made.value("SELECT last FROM dlock_keys WHERE k = 'job'") > last


def test_a_freeze_that_a_cluster_does_not_order_is_made_on_one_server_only(dlock, made, make_mysql_tamper):
    """Where an older schema is there, which is another user's, or rights to that one."""
    made.ask(f"CREATE OR REPLACE DEFINER = {USER}@'%' PROCEDURE dlock_freeze_3({OLD_FREEZE}")
    made.ask("CREATE OR REPLACE USER steers@'%'")
    for procedure in ("list", "asker", "last_run", "list_last", "list_ids", "list_ended", "freeze"):
        made.ask(f"GRANT EXECUTE ON PROCEDURE `{made.name}`.dlock_{procedure}_3 TO steers@'%'")
    node = make_mysql_tamper(made.server.port, on_galera, ready=0).port
    for status in (77, 78):
        assert dlock.run("freeze", "-u", mysql_url(made.port, "steers", made.name), "-k", "job").status == 0
        done = dlock.run("freeze", "-u", mysql_url(node, "steers", made.name), "-k", "job")
        assert done.status == status and "dlock help mysql-schema | mysql" in done.stderr
        made.ask("DROP PROCEDURE IF EXISTS dlock_freeze_key_3")
        made.ask(f"GRANT EXECUTE, CREATE, CREATE ROUTINE ON `{made.name}`.* TO steers@'%'")
    made.ask("DROP USER steers@'%'")


def test_a_look_at_a_key_on_a_cluster_waits_for_what_the_others_have_confirmed(dlock, made, make_mysql_tamper, make_proxy):
    """A thaw would not find a freeze that has yet to arrive (histories of Galera).  Runs, and one server, do without."""
    node, up = make_mysql_tamper(made.server.port, on_galera, ready=0).port, []
    for port in (made.port, node):
        proxy = make_proxy(port)
        proxy.tap = lambda _, direction, data: (up.append(data) if direction == UP else None) or data
        for command, words in (("run", ("-n", "--", "true")), ("thaw", ("-y",)), ("status", ())):
            up.clear()
            dlock.run(command, "-u", mysql_url(proxy.port, db=made.name), "-k", "job", *words)
            assert (b"wsrep_sync_wait" in b"".join(up)) == (port == node and command != "run"), command


@pytest.mark.parametrize("logins, words", [(1, ("status",)), (2, ("freeze",)), (1, ("thaw", "-y")), (1, ("forget", "-y")),
                                           (1, ("status", "--done-within", "1h")), (1, ("ls", "--jobs"))])
def test_who_may_not_log_in_is_refused_once(dlock, made, make_proxy, logins, words):
    """More attempts would bring the account, or the host, nearer to being locked out.  (A freeze is tried though the look before it fails.)"""
    proxy = make_proxy(made.port)
    done = dlock.run(*words, "-u", mysql_url(proxy.port, f"{USER}:wrong", made.name), *(() if words[0] == "ls" else ("-k", "job")))
    assert (done.status, proxy.connections) == (77, logins), done


# ---- what the procedures decide ----


def test_what_comes_too_late_takes_nothing(made):
    with made.connect() as c:
        for arguments in (("dlock_take_3", "job", OWNER, "{}", 30_000, 0, 1),
                          ("dlock_enter_3", "job", OWNER, "{}", 30_000, 9_000, "exclusive", 0, None, 0, 0, 0, 1)):
            with pytest.raises(pymysql.err.MySQLError) as e:
                call(c, *arguments)
            assert e.value.args[0] == 3024
    assert made.ask("SELECT k FROM dlock_holds UNION SELECT k FROM dlock_waiters") == []


def test_who_gets_the_row_of_its_key_too_late_takes_nothing(made):
    """Its time is up while it waits for the row, which somebody else has locked."""
    for procedure, more in (("dlock_take_3", (0,)), ("dlock_enter_3", (9_000, "exclusive", 0, None, 0, 0, 0))):
        with made.connect(autocommit=False) as locked, made.connect() as c, concurrent.futures.ThreadPoolExecutor(1) as pool:
            locked.cursor().execute("SELECT last FROM dlock_keys WHERE k = 'job' FOR UPDATE")
            by = made.value("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)") + 2_000_000
            late = pool.submit(call, c, procedure, "job", OWNER, "{}", 30_000, *more, by)
            wait_for(lambda: made.value("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)") > by, what="the end of its time")
            assert not late.done()
            locked.rollback()
            with pytest.raises(pymysql.err.MySQLError) as e:
                late.result()
            assert e.value.args[0] == 3024
    assert made.ask("SELECT k FROM dlock_holds UNION SELECT k FROM dlock_waiters") == []


def test_a_run_whose_lease_has_ended_is_not_remembered(made):
    with made.connect() as c:
        for number, ends in ((1, 1), (2, FAR)):
            assert enter(c, owner_of(number))["code"] == 1
            made.ask("UPDATE dlock_holds SET ends = %s", ends)
            assert call(c, "dlock_release_3", "job", secret_of(number), 0, "today", 0) == (number - 1,)
            assert made.value("SELECT COUNT(*) FROM dlock_runs") == number - 1


def test_asking_twice_changes_nothing(made):
    with made.connect() as c, made.connect() as d:
        first = enter(c, owner_of(1))
        assert first["code"] == 1 and enter(c, owner_of(1))["token"] == first["token"]
        assert [enter(d, owner_of(2))["place"] for _ in range(3)] == [1, 1, 1]
        assert call(c, "dlock_release_3", "job", secret_of(1), None, None, 0) == (1,)
        assert call(c, "dlock_release_3", "job", secret_of(1), None, None, 0) == (0,)
        granted = enter(d, owner_of(2))
        assert granted["code"] == 1 and granted["token"] > first["token"]
        assert call(d, "dlock_release_3", "job", secret_of(2), None, None, 0) == (1,)


def test_who_is_granted_but_does_not_come_loses_its_turn(made):
    with made.connect() as c, made.connect() as d, made.connect() as e:
        enter(c, owner_of(1))
        enter(d, owner_of(2))
        enter(e, owner_of(3))
        call(c, "dlock_release_3", "job", secret_of(1), None, None, 0)
        assert made.value("SELECT owner FROM dlock_holds") == owner_of(2).encode()
        assert made.value("SELECT ends - since FROM dlock_holds") <= 3_000_000
        wait_for(lambda: enter(e, owner_of(3))["code"] == 1, what="the end of that grant")
        assert enter(d, owner_of(2))["code"] == 0


def test_a_waiter_without_its_bell_is_passed_over_and_keeps_its_place(made):
    with made.connect() as c, made.connect() as d:
        enter(c, owner_of(1))
        with made.connect() as gone:
            enter(gone, owner_of(2))
        wait_for(lambda: made.value("SELECT IS_FREE_LOCK(CONCAT('dlock:', bell)) FROM dlock_waiters WHERE owner = %s",
                                    owner_of(2)), what="its end")
        enter(d, owner_of(3))
        call(c, "dlock_release_3", "job", secret_of(1), None, None, 0)
        assert enter(d, owner_of(3))["code"] == 1
        assert enter(c, owner_of(2))["place"] == 1
        call(d, "dlock_release_3", "job", secret_of(3), None, None, 0)
        assert enter(c, owner_of(2))["code"] == 1


def test_waiters_without_bells_live_as_long_as_they_said(made):
    """Behind a proxy, or on a node of a cluster."""
    with made.connect() as c, made.connect() as d, made.connect() as e:
        enter(c, owner_of(1))
        enter(d, owner_of(2), bells=0, patience=1)
        time.sleep(0.05)
        enter(e, owner_of(3), bells=0)
        call(c, "dlock_release_3", "job", secret_of(1), None, None, 0)
        assert enter(e, owner_of(3), bells=0)["code"] == 1
        assert made.ask("SELECT owner FROM dlock_waiters") == []


@pytest.mark.parametrize("damage", ["DELETE FROM dlock_keys", "UPDATE dlock_keys SET last = 1",
                                    "UPDATE dlock_keys SET last = last + 5000000000"])
def test_tokens_grow_whatever_becomes_of_the_row(dlock, made, damage):
    tokens = [run(dlock, made.url, command=("printenv", "DLOCK_TOKEN")).stdout]
    made.ask(damage)
    tokens += [str(last) for last, in made.ask("SELECT last FROM dlock_keys") if last > int(tokens[0])]
    tokens += [run(dlock, made.url, command=("printenv", "DLOCK_TOKEN")).stdout for _ in range(2)]
    numbers = [int(t) for t in tokens]
    assert numbers == sorted(set(numbers)), numbers


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_who_waits_is_served_though_the_row_is_gone(made, kind):
    with made.connect() as c, made.connect() as d:
        token = enter(c, owner_of(1))["token"]
        enter(d, owner_of(2), kind=kind)
        made.ask("DELETE FROM dlock_keys")
        assert call(c, "dlock_release_3", "job", secret_of(1), None, None, 0) == (1,)
        granted = enter(d, owner_of(2), kind=kind)
        assert granted["code"] == 1 and granted["token"] > token


def test_a_queue_has_an_end(made):
    """Also behind the last ticket that there can be."""
    with made.connect() as c:
        enter(c, owner_of(1))
        made.ask("INSERT INTO dlock_waiters VALUES ('job', 9223372036854775807, 'x', 'shared', 0, 1000000, NULL, %s, 1, '{}')", FAR)
        assert call(c, "dlock_release_3", "job", secret_of(1), None, None, 0) == (1,)


def test_a_ticket_below_all_others_is_served(made):
    """Somebody has written into the table."""
    with made.connect() as c, made.connect() as d:
        enter(c, owner_of(1))
        enter(d, owner_of(2))
        made.ask("UPDATE dlock_waiters SET ticket = -5")
        assert call(c, "dlock_release_3", "job", secret_of(1), None, None, 0) == (1,)
        assert made.ask("SELECT owner FROM dlock_holds WHERE k = 'job'") == [(owner_of(2).encode(),)]


def test_a_number_behind_which_there_is_none_is_told(dlock, mysql_db):
    assert run(dlock, mysql_db.url).status == 0
    mysql_db.ask("UPDATE dlock_keys SET last = 9223372036854775807")
    assert_refused(run(dlock, mysql_db.url, "-n"), 78, "DELETE FROM dlock_keys")
    mysql_db.ask("DELETE FROM dlock_keys")
    assert run(dlock, mysql_db.url, "-n").status == 0


def test_no_owner_is_told(made):
    """Whoever may do no more than call the procedures does not get to know it."""
    with made.connect() as c, made.connect() as d, made.connect() as spy, spy.cursor() as cursor:
        token = enter(c, owner_of(1))["token"]
        enter(d, owner_of(2), kind="shared")
        for kind in ("exclusive", "shared"):
            cursor.execute("CALL dlock_enter_3('job', %s, '{}', 1000, 1, %s, 0, NULL, 0, CONNECTION_ID(), 0, %s)", (f"spy {kind}", kind, FAR))
            row = str(cursor.fetchone())
            assert owner_of(1) not in row and owner_of(2) not in row
            cursor.execute("CALL dlock_list_3('job', '', 0, 0, 100)")
            rows = cursor.fetchall()
            assert len(rows) >= 3 and owner_of(1) not in str(rows) and owner_of(2) not in str(rows)
        cursor.execute("CALL dlock_take_away_3('job', %s, NULL, '{}')", (token,))
        assert owner_of(1) not in str(cursor.fetchall())


def test_a_sleep_that_is_broken_off_keeps_nobodys_bell(made):
    """Its statement has ended between getting the bell of the one ahead and giving it back: that one must not count as alive."""
    with made.connect() as c, made.connect() as d, d.cursor() as cursor:
        enter(c, owner_of(1))
        with made.connect() as gone:
            enter(gone, owner_of(2))
        enter(d, owner_of(3))
        ahead, = made.ask("SELECT bell FROM dlock_waiters WHERE owner = %s", owner_of(2))[0]
        wait_for(lambda: made.value("SELECT IS_FREE_LOCK(CONCAT('dlock:', %s))", ahead), what="its end")
        cursor.execute("SET @dlock_ahead = %s", (ahead,))
        cursor.execute("SELECT GET_LOCK(CONCAT('dlock:', %s), 0)", (ahead,))
        enter(d, owner_of(3))
        assert made.value("SELECT IS_FREE_LOCK(CONCAT('dlock:', %s))", ahead)


def test_a_renewal_wants_owner_token_and_a_lease_that_runs(made):
    with made.connect() as c:
        token = enter(c, owner_of(1))["token"]
        for arguments in ((owner_of(2), token), (owner_of(1), token + 1), (owner_of(1), token - 1)):
            assert call(c, "dlock_renew_3", "job", *arguments, 30_000, 0)[0] == 0
        assert call(c, "dlock_renew_3", "job", owner_of(1), token, 1, 0)[0] == 1
        time.sleep(0.01)
        assert call(c, "dlock_renew_3", "job", owner_of(1), token, 30_000, 0)[0] == 0
        assert call(c, "dlock_release_3", "job", secret_of(1), None, None, 0) == (0,)


def test_a_renewal_that_is_under_way_is_seen_by_who_takes(made):
    """The lease has run out, the renewal has locked the row, and somebody wants the lock: one of them is to lose."""
    with made.connect() as c, made.connect(autocommit=False) as d, made.connect() as e:
        token = enter(c, owner_of(1))["token"]
        made.ask("UPDATE dlock_holds SET ends = 1")
        with d.cursor() as cursor:
            cursor.execute("UPDATE dlock_holds SET ends = %s WHERE token = %s", (FAR, token))
        e.cursor().execute("SET innodb_lock_wait_timeout = 1")
        with pytest.raises(pymysql.err.MySQLError) as error:
            enter(e, owner_of(2))
        assert error.value.args[0] == 1205
        d.commit()
        assert enter(e, owner_of(2))["code"] == 0


def test_an_error_in_the_midst_leaves_no_transaction(made):
    """1205 undoes the statement only; the procedure undoes the rest."""
    with made.connect(autocommit=False) as blocker, made.connect() as c:
        blocker.cursor().execute("SELECT * FROM dlock_keys FOR UPDATE")
        c.cursor().execute("SET innodb_lock_wait_timeout = 1")
        for _ in range(2):
            with pytest.raises(pymysql.err.MySQLError):
                call(c, "dlock_take_3", "job", OWNER, "{}", 30_000, 0, FAR)
        assert made.server.value("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = %s",
                                 c.thread_id()) == 0
        blocker.rollback()
        assert call(c, "dlock_take_3", "job", OWNER, "{}", 30_000, 0, FAR)[0]


def test_two_databases_are_two_places(dlock, made):
    other = made.server.database()
    try:
        dlock.hold(At(made.url), "job")
        assert run(dlock, made.url, "-n").status == 75
        assert is_free(dlock, other.url)
    finally:
        other.drop()


def test_a_session_that_goes_to_another_database_looks_at_its_tables_too(dlock, made):
    """As one does that a proxy lends to several: that the tables of one can lock says nothing of another's."""
    other = made.server.database()
    try:
        assert run(dlock, other.url).status == 0
        other.ask("ALTER TABLE dlock_holds ENGINE = MyISAM")
        with made.connect() as c:
            assert call(c, "dlock_take_3", "job", OWNER, "{}", 30_000, 0, FAR)[0]
            c.select_db(other.name)
            with pytest.raises(pymysql.err.MySQLError) as refusal:
                call(c, "dlock_take_3", "job", OWNER, "{}", 30_000, 0, FAR)
            assert refusal.value.args[0] == 1286
            c.select_db(made.name)
            assert call(c, "dlock_take_3", "else", OWNER, "{}", 30_000, 0, FAR)[0]
    finally:
        other.drop()


def test_the_index_refuses_two_exclusive_holds(made):
    with made.connect() as c:
        enter(c, owner_of(1))
        with pytest.raises(pymysql.err.IntegrityError):
            made.ask("INSERT INTO dlock_holds (k, token, owner, kind, room, slot, since, ends, record) VALUES"
                     " ('job', 5, 'x', 'exclusive', 0, -1, 1, 1, '')")


def test_a_session_that_lives_on_alone_is_ended_at_release(dlock, mysql_db, make_proxy):
    """The server has not heard that its connection is gone, and keeps the bell on which the next one sleeps."""
    proxy = make_proxy(mysql_db.port)
    holder = dlock.hold(At(mysql_url(proxy.port, db=mysql_db.name)), "job", "-t", "9s")
    old, = mysql_db.sessions()
    waiter = dlock.contend(At(mysql_db.url), "job", command=("true",)).queued(1)
    proxy.strand()
    holder.event("trusted")
    assert old in mysql_db.sessions()
    assert holder.finish().status == 0
    wait_for(lambda: old not in mysql_db.sessions(), timeout=5, what="its end")  # by itself after 15 s of silence
    assert waiter.wait().status == 0


def test_a_release_ends_nobody_who_has_slept_on_the_bell(dlock, made):
    """Its holder has had another session before: who is woken by the release has the bell, too, for a moment (here: longer)."""
    holder = dlock.hold(At(made.url), "job", "-t", "1h")
    old = made.value("SELECT IS_USED_LOCK(CONCAT('dlock:', bell)) FROM dlock_holds")
    made.terminate()
    wait_for(lambda: made.value("SELECT IS_USED_LOCK(CONCAT('dlock:', bell)) FROM dlock_holds") not in (None, old),
             what="the bell in another session")
    bell = made.value("SELECT bell FROM dlock_holds")
    with made.connect(user=USER) as sleeper, sleeper.cursor() as cursor, concurrent.futures.ThreadPoolExecutor() as pool:
        sleep = pool.submit(cursor.execute, "SELECT GET_LOCK(CONCAT('dlock:', %s), 60)", (bell,))
        wait_for(lambda: made.server.asleep() == 1, what="it to sleep")
        assert holder.finish().status == 0
        sleep.result()
        assert cursor.fetchone() == (1,)
        cursor.execute("SELECT CONNECTION_ID()")
        assert cursor.fetchone() == (sleeper.thread_id(),)


def test_a_holder_that_comes_back_without_its_bell_asks_again_soon(dlock, made):
    """Its session of before may have it for a moment, or who looks; whoever waits for it would have to ask now and then."""
    holder = dlock.hold(At(made.url), "job", "-v", "-t", "1h")
    bell = "CONCAT('dlock:', (SELECT bell FROM dlock_holds))"
    old = made.value(f"SELECT IS_USED_LOCK({bell})")
    with made.connect() as other, other.cursor() as cursor, concurrent.futures.ThreadPoolExecutor() as pool:
        taken = pool.submit(cursor.execute, f"SELECT GET_LOCK({bell}, 60)")
        wait_for(lambda: made.server.asleep() == 1, what="another one that wants it")
        made.server.kill_session(old)
        taken.result()
        wait_for_renewals(holder)
        cursor.execute(f"SELECT RELEASE_LOCK({bell})")
        wait_for(lambda: made.value(f"SELECT IS_USED_LOCK({bell})"), what="its bell")
    assert holder.finish().status == 0


def test_keys_are_bytes(dlock, made):
    """No collation makes two of them one, and no quote ends them."""
    keys = ["a", "A", "a ", "ä", "a'; DROP TABLE dlock_holds; --", "a\\", "%", "x" * 512]
    holders = [dlock.hold(At(made.url), key) for key in keys]
    for key in keys:
        assert dlock.run("run", *At(made.url).words, "-k", key, "-n", "--", "true").status == 75
    assert len(made.ask("SELECT k FROM dlock_holds")) == len(keys)
    for holder in holders:
        assert holder.finish().status == 0
