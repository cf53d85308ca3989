# Goal of these tests: the schema makes itself, once, with the least rights that are
# enough; nobody gains another's power by it or wedges it, and older and newer ones
# get on with each other.

import contextlib
import hashlib
import json
import pathlib
import re
import subprocess

import psycopg2
import pytest

from databases import wait_for_renewals
from faults import LIVING_LEASE, assert_refused
from pg import MODES, PG_PLACES, USER, VERSION_5, VERSION_8, VERSION_9, pg_url, psql, schema_sql
from proxy import UP
from support import DLOCK, ROOT, At, run


@pytest.fixture(params=PG_PLACES, ids=lambda p: p.id)
def pg_place(request):
    """Each of the modes, and the pooler."""
    return request.param(request)


# ---- the schema ----


def manuals_sql():
    """What dlock-pg(7) tells an administrator to grant to the role `deploy`."""
    text = pathlib.Path(ROOT, "man/dlock-pg.7").read_text(encoding="utf-8")
    found = re.findall(r"^psql -d app -c '(GRANT [^']* TO deploy)'$", text, re.M)
    assert found
    return found


def test_a_crowd_at_first_use(dlock, db):
    """Each finds no schema, and none of them fails for the others."""
    crowd = [dlock.contend(At(db.url), f"key{n % 4}", "-w", "60s", command=("true",)) for n in range(16)]
    assert [c.wait(60).status for c in crowd] == [0] * 16


@pytest.mark.parametrize("mode", ["lease", "row"])
def test_a_role_that_may_not_make_the_schema_is_told_who_can(dlock, worker, mode):
    assert_refused(run(dlock, worker, mode=mode), 77, "dlock help pg-schema", "psql")


def test_the_least_rights_of_the_manual_are_enough(dlock, db, worker):
    """An administrator installs the schema twice and grants what the manual says; then the role can do all."""
    for _ in range(2):
        psql(db, schema_sql(dlock))
    for grant in manuals_sql():
        db.ask(grant.replace("deploy", "worker"))
    at = At(worker)
    holder = dlock.hold(at, "job", *LIVING_LEASE, "-v")
    quitter = dlock.contend(at, "job", "-w", "2s").queued(1)
    waiter = dlock.contend(at, "job", command=("true",)).queued(2)
    wait_for_renewals(holder)
    assert quitter.wait().status == 75
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    for mode in ("advisory", "row"):
        done = run(dlock, worker, mode=mode)
        assert (done.status, done.stderr) == (0, "")
    with contextlib.closing(db.connect("worker")) as c, c.cursor() as cursor:
        for sql in ("DROP SCHEMA dlock CASCADE", "CREATE TABLE dlock.mine (a int)", "ALTER TABLE dlock.claims ADD a int",
                    "CREATE OR REPLACE FUNCTION dlock.version() RETURNS int LANGUAGE sql AS 'SELECT 1'"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(sql)


def test_the_schema_is_the_same_whoever_makes_it(dlock, make_db):
    """At first use, or by the administrator: columns, functions, indexes, sequences."""
    first, second = make_db(), make_db()
    assert run(dlock, first.url).status == 0
    psql(second, schema_sql(dlock), USER)
    assert shape(first) == shape(second)
    assert run(dlock, second.url).status == 0


def shape(database):
    columns_ = database.ask("SELECT table_name, column_name, data_type, column_default FROM information_schema.columns"
                            " WHERE table_schema = 'dlock' ORDER BY 1, 2")
    functions = database.ask("SELECT oid::regprocedure::text, prosrc, prosecdef, proconfig, proacl::text FROM pg_proc"
                             " WHERE pronamespace = 'dlock'::regnamespace ORDER BY 1")
    indexes = database.ask("SELECT indexdef FROM pg_indexes WHERE schemaname = 'dlock' ORDER BY 1")
    assert columns_ and functions and indexes
    return columns_, functions, indexes


EVIL = """
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.pg_backend_pid() RETURNS int LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.cheat(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.cheat);
    CREATE TABLE evil.claims (a int); CREATE TABLE evil.rows (a int);
    GRANT ALL ON SCHEMA evil TO PUBLIC;
"""


def test_a_schema_made_by_somebody_else_gets_no_rights_of_the_administrators(dlock, db):
    """Whoever may create schemas may have made this one before, with traps in it."""
    db.ask("CREATE SCHEMA dlock; CREATE TABLE dlock.rows (key text PRIMARY KEY, token bigint NOT NULL DEFAULT 0)", user=USER)
    psql(db, schema_sql(dlock))
    owners = db.ask("SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"
                    " UNION SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'dlock'::regnamespace")
    assert owners == [(USER,)]
    assert run(dlock, db.url).status == 0


def test_a_view_in_place_of_an_old_table_gets_no_rights_of_the_administrators(dlock, db):
    db.ask("CREATE SEQUENCE public.victims; GRANT ALL ON SEQUENCE public.victims TO PUBLIC; GRANT CREATE ON SCHEMA public TO app")
    db.ask("CREATE SCHEMA dlock; CREATE FUNCTION public.evil() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN"
           " PERFORM set_config('role', 'none', false); IF current_user <> 'app' THEN PERFORM nextval('public.victims');"
           " END IF; RETURN NULL; END$$; CREATE VIEW dlock.holds AS SELECT public.evil() AS ends", user=USER)
    words = ("psql", "-X", "-q", f"--dbname={pg_url(db.port, 'postgres', db.name)}")
    subprocess.run(words, input=schema_sql(dlock), capture_output=True, text=True, check=False)
    assert not db.value("SELECT is_called FROM public.victims")


POWERS = {"SUPERUSER": "SUPERUSER", "BYPASSRLS": "BYPASSRLS", "CREATEROLE": "CREATEROLE", "REPLICATION": "REPLICATION",
          "program": "IN ROLE pg_execute_server_program", "member": "IN ROLE postgres"}


@pytest.fixture
def role(db):
    """Makes a role with a power; it may use the database and no more."""
    made = []

    def make(power):
        made.append(f"powerful{db.name}")
        db.ask(f"CREATE ROLE {made[-1]} LOGIN {power}")
        return made[-1]

    yield make
    for name in made:
        db.ask(f"DROP OWNED BY {name}")
        db.ask(f"DROP ROLE {name}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", POWERS)
def test_functions_of_a_stranger_get_no_power(dlock, db, role, power, mode):
    """The owner of the database has made the schema."""
    assert run(dlock, db.url).status == 0
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC", user=USER)
    db.ask("CREATE SEQUENCE public.victims; CREATE SEQUENCE public.calls; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC")
    for name, in db.ask("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"):
        db.ask(f"ALTER FUNCTION {name} SECURITY INVOKER", user=USER)
    source = (f"BEGIN PERFORM nextval('public.calls'); IF current_user <> '{USER}' THEN"
              " PERFORM nextval('public.victims'); END IF; END")  # numbers drawn stay drawn
    db.ask("UPDATE pg_proc SET prosrc = %s, prosqlbody = NULL, prolang = (SELECT oid FROM pg_language WHERE"
           " lanname = 'plpgsql') WHERE pronamespace = 'dlock'::regnamespace", source)
    assert_refused(run(dlock, pg_url(db.port, role(POWERS[power]), db.name), mode=mode), 78, "schema dlock")
    assert not db.value("SELECT is_called FROM public.calls")
    run(dlock, db.url, mode=mode)  # with the owner's own rights they are called
    assert db.value("SELECT is_called FROM public.calls") and not db.value("SELECT is_called FROM public.victims")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", POWERS)
def test_a_schema_of_an_administrators_serves_everybody(dlock, db, role, power, mode):
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC")
    assert run(dlock, db.url, mode=mode).status == 0
    assert run(dlock, pg_url(db.port, role(POWERS[power]), db.name), mode=mode).status == 0
    assert run(dlock, pg_url(db.port, "postgres", db.name), mode=mode).status == 0


TRAPS = ["GRANT CREATE ON SCHEMA dlock TO app", "GRANT CREATE ON SCHEMA dlock TO PUBLIC",
         "ALTER FUNCTION dlock.number() OWNER TO app", "ALTER SEQUENCE dlock.numbers OWNER TO app",
         "ALTER SCHEMA dlock OWNER TO app", "GRANT TRIGGER ON dlock.rows TO app", "GRANT TRIGGER ON dlock.rows TO PUBLIC",
         "ALTER TABLE dlock.rows OWNER TO app"]


@pytest.mark.parametrize("trap", TRAPS)
def test_whatever_lets_a_stranger_in_is_seen(dlock, db, trap):
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE, CREATE ON SCHEMA dlock TO app")
    db.ask(trap)
    db.ask("REVOKE CREATE ON SCHEMA dlock FROM app") if "GRANT CREATE" not in trap else None
    assert_refused(run(dlock, pg_url(db.port, "postgres", db.name)), 78, "schema dlock")


@pytest.mark.parametrize("trap", TRAPS)
def test_whatever_lets_a_stranger_into_ones_own_schema_is_seen(dlock, db, role, trap):
    """To own the schema is not enough: others may have been let in, or own something there."""
    me = role("CREATEROLE")
    url = pg_url(db.port, me, db.name)
    db.ask(f"GRANT CREATE ON DATABASE {db.name} TO {me}")
    psql(db, schema_sql(dlock), me)
    assert run(dlock, url).status == 0
    db.ask("GRANT USAGE, CREATE ON SCHEMA dlock TO app")
    db.ask(trap)
    db.ask("REVOKE CREATE ON SCHEMA dlock FROM app") if "GRANT CREATE" not in trap else None
    done = run(dlock, url)
    db.ask("DROP SCHEMA dlock CASCADE")
    assert_refused(done, 78, "schema dlock")


def test_power_that_comes_by_a_chain_of_memberships_is_seen(dlock, db, role):
    """Also where it is not inherited: a function may SET ROLE."""
    assert run(dlock, db.url).status == 0
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC", user=USER)
    first, between = f"first{db.name}", f"between{db.name}"
    db.ask(f"CREATE ROLE {first} CREATEROLE; CREATE ROLE {between} NOINHERIT IN ROLE {first}")
    done = run(dlock, pg_url(db.port, role(f"NOINHERIT IN ROLE {between}"), db.name))
    db.ask(f"DROP ROLE {between}; DROP ROLE {first}")
    assert_refused(done, 78, "schema dlock")


def poison(db):
    """The owner of the database makes every function of its schema a trap that steps back to who has logged in."""
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC", user=USER)
    db.ask("CREATE SEQUENCE public.victims; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC")
    for name, in db.ask("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"):
        db.ask(f"ALTER FUNCTION {name} SECURITY INVOKER; ALTER FUNCTION {name} RESET ALL", user=USER)
    db.ask("UPDATE pg_proc SET prosrc = %s, prosqlbody = NULL, prolang = (SELECT oid FROM pg_language WHERE"
           " lanname = 'plpgsql') WHERE pronamespace = 'dlock'::regnamespace",
           "BEGIN PERFORM set_config('session_authorization', 'postgres', false), set_config('role', 'none', false);"
           f" IF current_user <> '{USER}' THEN PERFORM nextval('public.victims'); END IF; END")


@pytest.mark.parametrize("setting", ["role", "session_authorization"])
@pytest.mark.parametrize("mode", MODES)
def test_who_was_made_another_at_the_login_keeps_the_power_and_is_guarded(dlock, db, mode, setting):
    """The owner of a database may set for it as whom sessions begin; a function may set that back."""
    assert run(dlock, db.url).status == 0
    poison(db)
    db.ask(f"ALTER DATABASE {db.name} SET {setting} = '{USER}'", user=USER)
    done = run(dlock, pg_url(db.port, "postgres", db.name), mode=mode)
    assert not db.value("SELECT is_called FROM public.victims")
    assert_refused(done, 78, "schema dlock")


@pytest.mark.parametrize("mode", MODES)
def test_a_schema_that_comes_right_behind_the_guard_is_not_called(dlock, db, make_proxy, mode):
    """The owner of the database has it ready, and is faster than our next question."""
    assert run(dlock, db.url, mode=mode).status == 0
    poison(db)
    db.ask("ALTER SCHEMA dlock RENAME TO hidden", user=USER)
    proxy = make_proxy(db.port)

    def tap(_, direction, data):
        if direction == UP and re.search(rb"dlock\.(take|number|lock_row)\((?!\))|SELECT dlock\.number|t\.got, CASE.*dlock", data):
            with contextlib.suppress(psycopg2.Error):  # we may have made ours by now
                db.ask("ALTER SCHEMA hidden RENAME TO dlock", user=USER)
        return data

    proxy.tap = tap
    run(dlock, pg_url(proxy.port, "postgres", db.name, extra="?sslmode=disable"), mode=mode)
    assert not db.value("SELECT is_called FROM public.victims")


def test_a_guard_that_was_cut_short_says_nothing(dlock, db, role, make_proxy):
    """The owner of the database may have it time out; the next attempt is guarded as well."""
    assert run(dlock, db.url).status == 0
    poison(db)
    db.ask(f"ALTER ROLE {USER} IN DATABASE {db.name} SET statement_timeout = 0", user=USER)  # ours are not to be cut short
    db.ask(f"ALTER DATABASE {db.name} SET statement_timeout = 200", user=USER)
    proxy = make_proxy(db.port)
    fast, slow = b"r.rolconnlimit OPERATOR(pg_catalog./) 0", b"pg_catalog.length(pg_sleep(9)::text)"
    cut = []

    def tap(_, direction, data):
        if direction == UP and fast in data and not cut:
            cut.append(True)
            return data.replace(fast, slow.ljust(len(fast)))
        return data

    proxy.tap = tap
    done = run(dlock, pg_url(proxy.port, role("CREATEROLE"), db.name, extra="?sslmode=disable"), "-w", "20s")
    assert cut and not db.value("SELECT is_called FROM public.victims")
    assert_refused(done, 78, "schema dlock")


def test_a_role_without_power_pays_no_round_trip_for_the_guard(dlock, db, make_proxy):
    """What goes up after the handshake: one packet for the grab, one for the release, one good-bye."""
    assert run(dlock, db.url).status == 0
    proxy = make_proxy(db.port)
    turns = []

    def tap(link, direction, data):
        if not turns or turns[-1] != (link, direction):
            turns.append((link, direction))
        return data

    proxy.tap = tap

    def turns_of_a_run():
        turns.clear()
        assert run(dlock, pg_url(proxy.port, db=db.name, extra="?sslmode=disable")).status == 0
        return sum(direction == UP for _, direction in turns)

    assert min(turns_of_a_run() for _ in range(3)) <= 4, turns  # more if the server, or the run, is late by half a second


WHO, ENDLESS = "repeat('a', 32), '{}'", "-9000000000000000"


@pytest.mark.parametrize("call", [
    "take(K, 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz', '{}', 1000, 0, 0)", "take(K, '0123456789abcdef', '{}', 1000, 0, 0)",
    f"take(K, {WHO}, -9000000000000000, 0, 0)",
    "enter(K, 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz', '{}', 1000, 600000, 'exclusive', 0, NULL, 0, 0, false)",
    "enter(K, '0123456789abcdef', '{}', 1000, 600000, 'exclusive', 0, NULL, 0, 0, false)",
    *(f"enter(K, {WHO}, {lease}, 600000, '{kind}', {room}, NULL, 0, 0, false)" for lease, kind, room in (
        ("1000", "limit", 0), ("1000", "limit", -1), ("1000", "limit", 100001), ("1000", "exclusive", 1),
        ("1000", "shared", 7), ("1000", "", 0), ("1000", "freeze", 0), (ENDLESS, "exclusive", 0), (ENDLESS, "shared", 0))),
    f"release(K, {WHO[:15]}, 0, 'never', false)", f"release(K, {WHO[:15]}, 999, '', false)",
    f"release_run(K, {WHO[:15]}, 0, 'never', 'final', false)", f"release_run(K, {WHO}, 999, NULL, 'shown', false)",
    "freeze(K, NULL, NULL)", "freeze(K, '', '-300000 years')", "freeze(K, '', '-1 s')", "ask_back(K, NULL, NULL, NULL)", "take_away(K, NULL, NULL, NULL)",
    "take_away(K, 0, '', '')", "thaw(NULL)", "thaw(K)"])
def test_nobody_wedges_a_key_with_strange_arguments(dlock, db, call):
    """Any role that may use the schema may call its functions."""
    holder = dlock.hold(At(db.url), "job")
    for key in ("job", "other"):
        with contextlib.suppress(psycopg2.Error):
            db.ask(f"SELECT dlock.{call.replace('K', repr(key))}", user=USER)
    waiter = dlock.contend(At(db.url), "job", command=("true",)).queued()
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NULL") == 0
    assert dlock.run("run", "-u", db.url, "-k", "other", "-n", "--", "true").status == 0


@pytest.mark.parametrize("mode", MODES)
def test_search_path_is_no_way_in(dlock, db, mode):
    """A schema of somebody else's in front of everything is not looked into."""
    db.ask(EVIL)
    db.ask(f"ALTER DATABASE {db.name} SET search_path = evil, pg_catalog")
    url = db.url + "?options=-csearch_path%3Devil,pg_catalog"
    holder = dlock.hold(At(url, mode), "job", *LIVING_LEASE, "-v")
    waiter = dlock.contend(At(url, mode), "job", command=("true",))
    waiter.event("waiting")
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


@pytest.mark.parametrize("key", ["'; DROP SCHEMA dlock CASCADE; --", "$1", "\\'", "a'b", "%s%n", "$$", "x\"y", "E'\\n'"])
def test_keys_are_no_sql(dlock, pg_place, key):
    key = pg_place.key(key)
    holder = dlock.hold(pg_place, key)
    assert dlock.run("run", *pg_place.words, "-k", key, "-n", "--", "true").status == 75
    assert holder.finish().status == 0


def test_rows_that_a_policy_hides_are_not_missing_rows(dlock, db):
    """Else a lock that is held would be granted once more."""
    holder = dlock.hold(At(db.url), "job")
    for table in ("claims", "runs", "rows"):
        db.ask(f"ALTER TABLE dlock.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
               f"CREATE POLICY hides ON dlock.{table} USING (false) WITH CHECK (true)")
    for mode in ("lease", "row"):
        assert_refused(run(dlock, db.url, "-n", mode=mode), 77, "row-level security")
    for table in ("claims", "runs", "rows"):
        db.ask(f"ALTER TABLE dlock.{table} DISABLE ROW LEVEL SECURITY")
    assert holder.finish().status == 0


# ---- an older and a newer schema ----


def is_up_to_date(database, fresh):
    """It has all that a new schema has; functions of version 5 that are called otherwise are still there."""
    columns, functions, indexes = shape(database)
    now = shape(fresh)
    assert (columns, indexes) == (now[0], now[2]) and not [f for f in now[1] if f not in functions]
    assert {f[0].split("(")[0] for f in functions if f not in now[1]} == {
        f"dlock.{name}" for name in ("await", "enter_queue", "find_run", "list_claims", "release", "release_among", "renew",
                                     "serves_5", "take_unclaimed", "version")}
    return database.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 11:")


# By its text without comments.  Whoever changes it raises the version, adds the new one to the functions
# serves_N(), and tells here what it is; otherwise no server that has the old one gets the new one.
DIGEST = "a8f794eeb46e5e8f"


def test_a_version_is_for_all_that_is_in_the_schema(dlock):
    text = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", schema_sql(dlock)))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST, "raise the version of schema.sql"


# As version 6 calls those that clients of version 5 call.
RENAMED = {"take_unclaimed": "take(text, text, text, bigint, integer, bigint)", "list_claims": "list(text, text, integer, bigint, integer)",
           "enter_queue": "enter(text, text, text, bigint, bigint, text, integer, text, bigint, integer, boolean)",
           "await(text, text, bigint, integer, bigint, boolean)": "await(text, text, bigint, integer, boolean)",
           "renew(text, text, bigint, bigint, integer, bigint)": "renew(text, text, bigint, bigint, integer)",
           "release(text, text, bigint)": "release_alone(text, text, bigint)",
           "release_among": "release(text, text, integer, text, boolean)"}


@pytest.mark.parametrize("old", RENAMED)
def test_what_was_taken_under_an_old_name_stays_taken(dlock, db, old):
    """Version 6 calls the functions of version 5 otherwise: a right that was taken from everybody does not come back."""
    psql(db, VERSION_5, USER)
    db.ask(f"REVOKE ALL ON FUNCTION dlock.{old} FROM PUBLIC; DROP ROLE IF EXISTS oncall; CREATE ROLE oncall;"
           f"GRANT EXECUTE ON FUNCTION dlock.{old} TO oncall")
    assert run(dlock, db.url).status == 0
    for new, name in RENAMED.items():
        may = f"SELECT has_function_privilege(%s, 'dlock.{name}', 'EXECUTE')"
        assert db.value(may, "oncall") and db.value(may, "pg_monitor") == (new != old)
    db.ask("DROP OWNED BY oncall; DROP ROLE oncall")


A, B = "'key0', repeat('a', 32)", "'key0', repeat('b', 32)"  # owners that are clients of version 5


@pytest.mark.parametrize("mode", MODES)
def test_an_older_schema_with_the_same_tables_is_brought_up_to_date(dlock, db, make_db, mode):
    """By the first run of a role that may; what is held, queued and remembered there stays."""
    psql(db, VERSION_5, USER)
    db.ask(f"SELECT dlock.take_unclaimed({A}, '{{}}', '1 h', 0, 0);"
           " INSERT INTO dlock.runs VALUES ('once', 'monday', now(), now(), 0, 1, '{}')", user=USER)
    assert run(dlock, db.url, mode=mode).status == 0
    fresh = make_db()
    assert run(dlock, fresh.url).status == 0
    assert is_up_to_date(db, fresh)
    assert dlock.run("run", "-u", db.url, "-k", "key0", "-n", "--", "true").status == 75
    done = dlock.run("run", "-u", db.url, "-k", "once", "--once", "monday", "--", "echo", "ran")
    assert (done.status, done.stdout) == (0, "")


def test_a_crowd_brings_a_schema_up_to_date_that_is_in_use(dlock, db, make_db, tmp_path):
    """Each finds it older; nobody fails, and no two hold a lock at once.  Clients of version 5 go on meanwhile."""
    psql(db, VERSION_5, USER)
    with contextlib.closing(db.connect(USER)) as c, c.cursor() as cursor:
        def ask(call):
            cursor.execute(f"SELECT * FROM dlock.{call}")
            return cursor.fetchone()

        token = ask(f"take_unclaimed({A}, '{{}}', '1 h', 0, 0)")[0]
        assert ask(f"enter_queue({B}, '{{}}', 60000, 60000, 'exclusive', 0, 0, 0)")[0] == 0
        script = 'mkdir "$0" && sleep 0.05 && rmdir "$0"'
        crowd = [dlock.contend(At(db.url), f"key{n % 3}", "-w", "60s", command=("sh", "-c", script, str(tmp_path / f"held{n % 3}")))
                 for n in range(12)]
        for waiter in crowd[::3]:
            waiter.event("waiting")
        assert [c.wait(60).status for n, c in enumerate(crowd) if n % 3] == [0] * 8
        assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 11:")
        assert ask(f"renew({A}, {token}, 60000, 0, 0)")[0] == 1
        assert ask(f"release({A}, 0)") == (1,)
        code, second = ask(f"enter_queue({B}, '{{}}', 60000, 60000, 'exclusive', 0, 0, 0)")[:2]  # it came first, and is next
        assert (code, second > token) == (1, True)
        assert [c.poll() for c in crowd[::3]] == [None] * 4
        assert ask(f"release_among({B}, 0)") == (1,)
    assert [c.wait(60).status for c in crowd[::3]] == [0] * 4
    fresh = make_db()
    assert run(dlock, fresh.url).status == 0
    assert is_up_to_date(db, fresh)


@pytest.mark.parametrize("mode", MODES)
def test_an_older_schema_of_anothers_is_refused_and_nothing_of_it_called(dlock, db, worker, mode):
    psql(db, VERSION_5)
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker; CREATE SEQUENCE public.calls; GRANT ALL ON public.calls TO PUBLIC;"
           " GRANT USAGE ON SCHEMA public TO worker")
    db.ask("UPDATE pg_proc SET prosrc = 'BEGIN PERFORM nextval(''public.calls''); END', prosqlbody = NULL, prolang = (SELECT oid"
           " FROM pg_language WHERE lanname = 'plpgsql') WHERE pronamespace = 'dlock'::regnamespace")
    for options in ((), ("-s",)):
        assert_refused(run(dlock, worker, *options, mode=mode), 78, "older", "dlock help pg-schema | psql")
    if mode != "advisory":  # which has no table to look into
        assert dlock.run("status", "-u", worker, "-O", f"mode={mode}", "-k", "job").status == 78
    assert not db.value("SELECT is_called FROM public.calls")
    psql(db, schema_sql(dlock))
    assert run(dlock, worker, mode=mode).status == 0


def test_an_administrators_schema_is_brought_up_to_date_by_the_administrator(dlock, db):
    psql(db, VERSION_5)
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC")
    assert_refused(run(dlock, db.url), 78, "older")
    assert run(dlock, pg_url(db.port, "postgres", db.name)).status == 0
    assert run(dlock, db.url).status == 0


def test_an_older_schema_of_anothers_is_not_touched_by_a_superuser(dlock, db):
    psql(db, VERSION_5, USER)
    before = shape(db)
    assert_refused(run(dlock, pg_url(db.port, "postgres", db.name)), 78, "schema dlock")
    assert shape(db) == before


def test_a_newer_schema_that_serves_this_version_is_used(dlock, db):
    assert run(dlock, db.url).status == 0
    db.ask("COMMENT ON SCHEMA dlock IS 'dlock 12: locks for commands'", user=USER)
    for mode in MODES:
        assert run(dlock, db.url, mode=mode).status == 0
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 12:")


@pytest.mark.parametrize("mode", MODES)
def test_a_newer_schema_is_left_alone(dlock, db, mode):
    """Its functions would not go together with ours."""
    assert run(dlock, db.url).status == 0
    db.ask("COMMENT ON SCHEMA dlock IS 'dlock 12: locks for commands'; ALTER FUNCTION dlock.serves_6 RENAME TO serves_12", user=USER)
    assert_refused(run(dlock, db.url, mode=mode), 78, "newer")
    assert dlock.run("status", "-u", db.url, "-k", "job").status == 78
    with pytest.raises(AssertionError, match="a newer dlock"):
        psql(db, schema_sql(dlock), USER)
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 12:")
    assert not db.ask("SELECT FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace AND proname = 'serves_6'")


def test_a_schema_of_version_8_serves_and_is_brought_up_to_date_while_it_is_in_use(dlock, db, make_db):
    """Those who wait have rehearsed its functions; nobody loses a place, and who comes then stands behind them."""
    psql(db, schema_sql(dlock), USER)
    psql(db, VERSION_8, USER)
    at = At(db.url)
    holder = dlock.hold(at, "job", *LIVING_LEASE, "-v")
    crowd = [dlock.contend(at, "job", *options, command=("true",)).queued(n)
             for n, options in enumerate(((), ("-w", "5s"), (), ("-s",), ("-s",), ()), 1)]
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 8:")
    assert crowd.pop(1).wait().status == 75
    psql(db, schema_sql(dlock), USER)
    crowd.append(dlock.contend(at, "job", command=("true",)).queued(6))
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert [c.wait(60).status for c in crowd] == [0] * 6
    assert [c.token for c in crowd] == sorted(c.token for c in crowd)
    fresh = make_db()
    assert run(dlock, fresh.url).status == 0
    assert shape(db) == shape(fresh)


def test_a_schema_of_version_9_serves_by_its_own_rule_for_wrong_clocks(dlock, db, worker):
    """Until its owner brings it up to date; nobody else is told to."""
    psql(db, schema_sql(dlock))
    psql(db, VERSION_9)
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker")
    job = ("run", "-u", worker, "-k", "job", "--cooldown", "1h", "--skipped-exit-code", "9", "--", "true")
    assert [dlock.run(*job).status for _ in range(2)] == [0, 9]
    db.ask("UPDATE dlock.runs SET began = now() + interval '2h', ended = now() + interval '2h'")
    assert dlock.run(*job).status == 9
    assert dlock.run("status", "-u", worker, "job").status == 1
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 9:")
    psql(db, schema_sql(dlock))
    assert [dlock.run(*job).status for _ in range(2)] == [0, 9]
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 11:")


# As version 10 had it: what keeps runs apart is not there.
TO_10 = ("DROP FUNCTION dlock.find_ended, dlock.release_run, dlock.list_ended; DROP TABLE dlock.ended;"
         "CREATE OR REPLACE FUNCTION dlock.forget(the_key text, the_id text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER"
         " SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$BEGIN"
         " PERFORM dlock.flush(), dlock.lock_key(the_key);"
         " DELETE FROM dlock.runs u WHERE u.key = the_key AND (the_id IS NULL OR u.id = the_id); RETURN FOUND; END$$;"
         "COMMENT ON SCHEMA dlock IS 'dlock 10: locks for commands'")


def test_a_schema_of_version_10_serves_all_but_what_it_cannot_keep(dlock, db, worker, tmp_path):
    """Whoever asks for that is told; whom a file lets ask is not remembered; and its owner brings it up to date by asking."""
    psql(db, schema_sql(dlock), USER)
    db.ask(f"{TO_10}; GRANT USAGE ON SCHEMA dlock TO worker", user=USER)
    where = ("-u", worker, "-k", "job")
    assert dlock.run("run", *where, "--once", "a", "--", "false").status == 1
    for options in (("--once", "a", "--no-retry"), ("--remember",)):
        done = dlock.run("run", *where, *options, "--", "true")
        assert done.status == 78 and "dlock help pg-schema | psql" in done.stderr, done
    conf = tmp_path / "dlock.conf"
    conf.write_text("remember = yes\n", encoding="ascii")
    done = dlock.run("run", *where, "--config", str(conf), "--", "sh", "-c", "exit 3")
    assert (done.status, done.stderr) == (3, "")
    assert "ID a by" in dlock.run("status", *where).stdout and dlock.run("ls", "--jobs", "-u", worker).status == 0
    assert dlock.run("forget", "-y", *where, "a").status == 0 and dlock.run("forget", "-y", *where).status == 1
    final = ("--once", "b", "--no-retry", "--skipped-exit-code", "9", "--")
    assert dlock.run("run", "-u", db.url, "-k", "job", *final, "false").status == 1
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 11:")
    assert dlock.run("run", *where, *final, "true").status == 9
    assert dlock.run("run", *where, "--config", str(conf), "--", "true").status == 0
    assert json.loads(dlock.run("status", "-J", *where).stdout)["last"]["job"] is False


def test_a_run_that_cannot_be_kept_to_be_shown_is_told_of_where_that_was_wanted(dlock, db, worker, tmp_path):
    psql(db, schema_sql(dlock), USER)
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker", user=USER)
    conf = tmp_path / "dlock.conf"
    conf.write_text("remember = yes\n", encoding="ascii")
    jobs = [dlock.start("run", "-u", worker, "-k", key, *words, "--", "cat", stdin=subprocess.PIPE).held()
            for key, words in (("a", ("--remember",)), ("b", ("--config", conf)))]
    db.ask("REVOKE EXECUTE ON FUNCTION dlock.release_run FROM PUBLIC", user=USER)
    told, silent = (job.finish() for job in jobs)
    assert told.status == 0 and "could not record that this run ended with 0: status will not show it" in told.stderr
    assert silent.status == 0 and "record" not in silent.stderr
    assert dlock.run("run", "-n", "-u", worker, "-k", "a", "--", "true").status == 0


# As version 6 had it: what lists and forgets runs is not there.
TO_6 = f"{TO_10}; DROP FUNCTION dlock.asker, dlock.list_jobs, dlock.list_done, dlock.forget; COMMENT ON SCHEMA dlock IS 'dlock 6: locks for commands'"


def test_a_schema_of_version_6_serves_all_but_what_lists_and_forgets_runs(dlock, db, worker):
    psql(db, schema_sql(dlock))
    db.ask(f"{TO_6}; GRANT USAGE ON SCHEMA dlock TO worker")
    where = ("-u", worker, "-k", "job")
    assert dlock.run("run", *where, "--once", "a", "--", "true").status == 0
    assert dlock.run("run", *where, "--once", "b", "--", "false").status == 1
    done = dlock.run("status", *where)
    assert (done.status, done.stderr) == (1, "") and "ID b by" in done.stdout and "success" not in done.stdout
    assert dlock.run("run", *where, "--once", "a", "--skipped-exit-code", "9", "--", "true").status == 9
    for words in (("ls", "--jobs", "-u", worker), ("forget", "-y", *where), ("status", "--done-within", "1h", *where)):
        done = dlock.run(*words)
        assert done.status == 78 and "older" in done.stderr and "dlock help pg-schema | psql" in done.stderr, done
    psql(db, schema_sql(dlock))
    within = ("status", "--done-within", "1h", *where)
    assert dlock.run(*within).status == 0
    db.ask("REVOKE EXECUTE ON FUNCTION dlock.list_jobs FROM PUBLIC")  # what cannot be seen is not told as never done
    assert dlock.run(*within).status == 77 and dlock.run("status", *where).status == 1
    assert dlock.run("forget", "-y", *where, "a").status == 0
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 11:")


def test_rights_that_were_taken_away_are_not_had_of_what_is_new(dlock, db):
    psql(db, schema_sql(dlock))
    db.ask(f"{TO_6}; REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA dlock FROM PUBLIC; DROP ROLE IF EXISTS watcher; DROP ROLE IF EXISTS oncall;"
           "CREATE ROLE watcher; CREATE ROLE oncall; GRANT EXECUTE ON FUNCTION dlock.list, dlock.last_run TO watcher;"
           "GRANT EXECUTE ON FUNCTION dlock.list, dlock.last_run, dlock.thaw TO oncall")
    for _ in range(2):
        psql(db, schema_sql(dlock))
        may = {role: {name for name, in db.ask(
            "SELECT proname::text FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace AND proname IN ('asker', 'list_jobs', 'list_done', 'list_ended', 'forget')"
            f" AND has_function_privilege('{role}', oid, 'EXECUTE')")} for role in ("watcher", "oncall", "pg_monitor")}
        assert may == {"watcher": {"asker", "list_jobs", "list_done", "list_ended"}, "pg_monitor": set(),
                       "oncall": {"asker", "list_jobs", "list_done", "list_ended", "forget"}}
    db.ask("DROP OWNED BY watcher, oncall; DROP ROLE watcher; DROP ROLE oncall")


@pytest.mark.parametrize("listing, last, may", [("watcher", "oncall", set()), ("watcher, oncall", "oncall", {"oncall"}),
                                                ("PUBLIC", "oncall", {"oncall"}), ("watcher", "PUBLIC", {"watcher"})])
def test_who_may_list_keys_but_not_see_last_runs_does_not_list_runs(dlock, db, listing, last, may):
    psql(db, schema_sql(dlock))
    db.ask(f"{TO_6}; REVOKE EXECUTE ON FUNCTION dlock.list, dlock.last_run FROM PUBLIC; DROP ROLE IF EXISTS watcher; DROP ROLE IF EXISTS oncall;"
           f"CREATE ROLE watcher; CREATE ROLE oncall; GRANT EXECUTE ON FUNCTION dlock.list TO {listing}; GRANT EXECUTE ON FUNCTION dlock.last_run TO {last}")
    psql(db, schema_sql(dlock))
    for name in ("list_jobs", "list_done", "list_ended"):
        assert {role for role in ("watcher", "oncall", "pg_monitor") if db.value(
            f"SELECT has_function_privilege('{role}', oid, 'EXECUTE') FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace AND proname = '{name}'")} == may
    db.ask("DROP OWNED BY watcher, oncall; DROP ROLE watcher; DROP ROLE oncall")


def test_who_may_not_list_keys_does_not_list_runs_either(dlock, db):
    """Though anybody may ask for the last run of a key that he knows."""
    psql(db, schema_sql(dlock))
    db.ask(f"{TO_6}; REVOKE EXECUTE ON FUNCTION dlock.list FROM PUBLIC")
    psql(db, schema_sql(dlock))
    for name, may in (("list", False), ("asker", False), ("list_jobs", False), ("list_done", False), ("list_ended", False), ("last_run", True)):
        assert db.value("SELECT has_function_privilege('pg_monitor', oid, 'EXECUTE') FROM pg_proc"
                        f" WHERE pronamespace = 'dlock'::regnamespace AND proname = '{name}'") == may, name


# ---- long records ----


def test_nobody_fills_the_memory_of_others_by_a_record(dlock, db):
    """Records are cut when they come, checked in the table, and cut when they go."""
    assert run(dlock, db.url).status == 0
    much = f"repeat('\u00e9', {8 << 20})"
    db.ask(f"SELECT dlock.take('job', repeat('a', 32), {much}, 3600000, 0, 0);"
           f" SELECT dlock.enter('job', repeat('b', 32), {much}, 3600000, 60000, 'exclusive', 0, NULL, 0, 0, false);"
           f" SELECT dlock.ask_back('job', token, NULL, {much}) FROM dlock.claims WHERE slot IS NOT NULL;"
           f" SELECT dlock.freeze('frozen', {much}, NULL)", user=USER)
    assert db.value("SELECT max(greatest(octet_length(record), octet_length(wanted_by))) FROM dlock.claims") == 2 * 1023
    with pytest.raises(psycopg2.errors.CheckViolation):
        db.ask(f"UPDATE dlock.claims SET record = {much}", user=USER)
    for table, check in db.ask("SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint WHERE contype = 'c'"
                               " AND pg_get_constraintdef(oid) LIKE '%record%'"):  # as an older version's tables
        db.ask(f"ALTER TABLE {table} DROP CONSTRAINT {check}")
    db.ask(f"UPDATE dlock.claims SET record = {much}, wanted_by = {much} WHERE key = 'job'", user=USER)
    for words in (("run", "-k", "job", "-n", "--", "true"), ("run", "-k", "job", "-w", "1s", "--", "true"), ("status", "-k", "job"), ("ls",)):
        done = subprocess.run(["prlimit", f"--data={32 << 20}", DLOCK, words[0], "-u", db.url, *words[1:]], env=dlock.env,
                              capture_output=True, timeout=60, check=False)
        assert done.returncode == (75 if words[0] == "run" else 0), done
